//! Stories about the public API, one module for each family of operations.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

// The name by which the rest of the workspace knows the crate.
extern crate polder_fs as fs;

mod acl;
mod checker;
mod clones;
mod collapse_insert;
mod conventional;
mod crash;
mod defragmentation;
mod delayed_writes;
mod directories;
mod early_append;
mod exerciser;
mod files;
mod forged;
mod full;
mod growth;
mod holes;
mod lifetimes;
mod links;
mod log;
mod maintenance;
mod permissions;
mod readahead;
mod renames;
mod repair;
mod runtime;
mod scattered;
mod sets;
mod support;
mod throttled;
mod unlinked;
mod watched;
mod xattrs;

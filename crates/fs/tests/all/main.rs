//! Stories about the public API, one module for each family of operations.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

// The name by which the rest of the workspace knows the crate.
extern crate polder_fs as fs;

mod acl;
mod ahead;
mod checker;
mod clones;
mod conventional;
mod crash;
mod defragmented;
mod directories;
mod exerciser;
mod files;
mod forged;
mod full;
mod growth;
mod holes;
mod known;
mod lifetimes;
mod links;
mod permissions;
mod renames;
mod repair;
mod runtime;
mod scattered;
mod shifts;
mod support;
mod throttled;
mod upkeep;
mod watched;
mod xattrs;

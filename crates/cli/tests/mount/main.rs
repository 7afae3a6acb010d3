//! Volumes mounted for real: what programs see, and what is left after a daemon was killed.
//!
//! Needs the kernel's FUSE and the right to mount; where these are missing each test says so and ends. Root with a
//! `/dev/fuse` has them, and what set-up installs: there a test that passes itself over has failed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod access_lists;
mod bench;
mod block_device;
mod caches;
mod callers;
mod daemon;
mod deep;
mod full;
mod full_host;
mod golden;
mod header;
mod hints;
mod inside;
mod memory;
mod nameless;
mod names;
mod operations;
mod options;
mod permissions;
mod places;
mod replaced;
mod security;
mod set_id;
mod silent;
mod survival;
mod told;
mod upkeep;
mod user;
mod zones;

pub(crate) use bench::{Bench, Mounted};

/// Says why a test ends before it has tested anything; a failure where nothing excuses it.
pub(crate) fn skip(reason: &str) {
    let has_no_excuse = rustix::process::geteuid().is_root() && std::path::Path::new("/dev/fuse").exists();
    assert!(!has_no_excuse, "not tested, though root with /dev/fuse can do everything: {reason}");
    eprintln!("skipped: {reason}");
}

/// A bench with a new volume, or nothing and a reason where nothing can be mounted.
macro_rules! bench_or_skip {
    () => {
        match $crate::Bench::new() {
            Ok(bench) => bench,
            Err(reason) => return $crate::skip(&reason),
        }
    };
}
pub(crate) use bench_or_skip;

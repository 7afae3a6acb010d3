//! Tests on mounted volumes: the view of programs, and the state after a daemon was killed.
//!
//! The tests need the kernel's FUSE and the right to mount. If these are missing, each test says so and is skipped. If the
//! tests run as root and `/dev/fuse` exists, nothing is missing, and a test that skips itself fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod access_lists;
mod bench;
mod block_device;
mod book;
mod caches;
mod cp_check_dump;
mod daemon;
mod deep;
mod full;
mod full_host;
mod gc_and_defrag;
mod golden;
mod header;
mod hints;
mod inherited_state;
mod killed_daemons;
mod library;
mod memory;
mod moved_mounts;
#[cfg(feature = "objects")]
mod objects;
mod operations;
mod options;
mod permissions;
mod replaced_files;
mod reports;
mod security;
mod set_id;
mod sets;
mod shared;
mod silent_daemons;
mod status;
mod system_helpers;
mod tmpfile;
mod top;
mod user;
mod zones;

pub(crate) use bench::{Bench, Mounted};

/// Reports why a test is skipped. Fails if the test runs as root with `/dev/fuse`, because then nothing can be missing.
pub(crate) fn skip(reason: &str) {
    let has_no_excuse = rustix::process::geteuid().is_root() && std::path::Path::new("/dev/fuse").exists();
    assert!(!has_no_excuse, "not tested, though root with /dev/fuse can do everything: {reason}");
    eprintln!("skipped: {reason}");
}

/// Creates a bench with a new volume, or skips the test if mounting is impossible.
macro_rules! bench_or_skip {
    () => {
        match $crate::Bench::new() {
            Ok(bench) => bench,
            Err(reason) => return $crate::skip(&reason),
        }
    };
}
pub(crate) use bench_or_skip;

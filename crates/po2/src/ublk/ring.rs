//! Waiting for completions of a ring.

use io_uring::{IoUring, cqueue, squeue};
use rustix::io::Errno;

/// Submits the entries of a ring and waits until at least one command has completed.
///
/// A command may still write to memory that its caller has borrowed. So this function aborts the process if the
/// kernel does not report completions.
pub(super) fn wait<S: squeue::EntryMarker, C: cqueue::EntryMarker>(ring: &mut IoUring<S, C>) {
    if let Err(error) = ring.submit_and_wait(1) {
        let again = [Errno::INTR, Errno::AGAIN, Errno::BUSY].map(|errno| Some(errno.raw_os_error()));
        if !again.contains(&error.raw_os_error()) {
            eprintln!("polder: io_uring failed with commands in flight: {error}");
            std::process::abort();
        }
    }
}

//! Prepares the daemon for writeback under memory pressure.
//!
//! The kernel reclaims memory by writing dirty pages, including those of this file system. If the kernel waited for the
//! daemon while the daemon waits for memory, both would deadlock. So the daemon declares that it is part of writeback (the
//! kernel then does not start writeback to allocate memory for it), locks its used memory, allocates the buffers of device
//! writes before the first write, and is the last process that the OOM killer selects. Memory for queued writes is
//! allocated when they are queued. If there is none, the writes are not queued.
//!
//! All of this needs root. Without root, a mount works as long as there is enough memory.
//!
//! [`apart`] is for calls in which the kernel waits for the daemon itself: no process waits forever if the daemon is
//! killed meanwhile.

use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc;
use std::time::Duration;

use nix::sched::CloneFlags;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The OOM killer selects this process only if there is no other. Killing the daemon frees little memory, takes the volume
/// from its users, and frees none of their dirty pages. A score of -1000 would exempt it completely, and a cgroup in which
/// no process may be killed would wait forever.
const OUT_OF_MEMORY_SCORE: &str = "-999";
const SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Must be called before the first thread is started, because threads inherit the setting.
pub(crate) fn stand_by_writeback() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("the process is not marked as an I/O flusher: {error}");
    }
    if let Err(error) = std::fs::write(SCORE_FILE, OUT_OF_MEMORY_SCORE) {
        tracing::debug!("the out-of-memory score cannot be set: {error}");
    }
    if let Err(error) = lock_memory() {
        tracing::debug!("the memory of this process cannot be locked: {error}");
    }
}

/// Locks used memory, but only if no limit applies to the process: a process that reached its limit could not allocate
/// memory at all. So the call is made with a limit of zero, which fails unless the process is exempt from the limit.
fn lock_memory() -> rustix::io::Result<()> {
    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), ..before })?;
    let locked =
        rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    setrlimit(Resource::Memlock, before)?;
    locked
}

/// Calls `body`, which waits for a mount of this process, on a thread with its own table of file descriptors, and waits for
/// the thread. The table contains only the standard descriptors. `body` opens the files that it needs, and neither logs nor
/// panics.
///
/// SIGKILL does not end a thread that waits in the kernel for an answer of this process. With the shared table, the thread
/// would keep the FUSE connection open: the users of the mount and the thread itself would wait forever, and the volume
/// would stay locked. If the system refuses a separate table, `body` is called with the shared one.
pub(crate) fn apart<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let thread = rt::thread::spawn(name, || {
        let _ = drop_descriptors();
        body()
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Calls `body`, which may wait for a mount of another process, and waits at most this time. After that returns `None`, and
/// the thread continues in the background.
pub(crate) fn within<T: Send + 'static>(
    time: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    rt::thread::spawn("polder-asks", move || sender.send(body())).ok()?;
    receiver.recv_timeout(time).ok()
}

fn drop_descriptors() -> io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_FILES)?;
    close_all_but_standard()
}

/// Closes all descriptors except the standard ones. No object with a descriptor may be used afterwards.
pub(crate) fn close_all_but_standard() -> io::Result<()> {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/thread-self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The descriptor of the directory that was listed is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

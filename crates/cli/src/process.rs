//! Making the daemon a process that the kernel may depend on when memory is short.
//!
//! The kernel frees memory by writing dirty pages, ours among them. If it then waited for us while we wait
//! for memory, neither would go on. So we say that we are part of writing (the kernel does not write in
//! order to give us memory), keep what we have touched in memory, have the buffers of the device's writes before
//! the first write, and are the last to be ended for want of memory. Memory for writes that wait is taken when they
//! do; where there is none they do not wait.
//!
//! All of it needs root. Without, a mount works as long as memory is not short.
//!
//! And waiting for the kernel, which waits for us, so that nobody waits for ever when we are killed: see [`apart`].

use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc;
use std::time::Duration;

use nix::sched::CloneFlags;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Ended for want of memory only when there is nobody else: ending us frees little, takes a volume from all who
/// use it, and frees none of their dirty pages. One more would mean never, and a group of processes in which
/// nobody may be ended waits for ever.
const OUT_OF_MEMORY_SCORE: &str = "-999";
const SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// To be called before the first thread is started: threads inherit it.
pub(crate) fn stand_by_writeback() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("the kernel does not know that it writes through this process: {error}");
    }
    if let Err(error) = std::fs::write(SCORE_FILE, OUT_OF_MEMORY_SCORE) {
        tracing::debug!("this process is ended like any other when memory is short: {error}");
    }
    if let Err(error) = lock_memory() {
        tracing::debug!("memory of this process may be taken from it: {error}");
    }
}

/// Keeps in memory what has been touched, if that can be done without a limit: a process that reaches its limit
/// gets no more memory at all. So it is tried with a limit of nothing, which stops all but those who have none.
fn lock_memory() -> rustix::io::Result<()> {
    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), ..before })?;
    let locked =
        rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    setrlimit(Resource::Memlock, before)?;
    locked
}

/// Does what waits for a mount of this process on a thread that has none of this process's descriptors but the standard
/// three, and waits for it: `body` opens what it needs itself, and neither logs nor panics.
///
/// A thread in the kernel that waits for an answer of ours is not ended by SIGKILL. It would keep the descriptors that
/// all threads share, so the connection would stay, its users and the thread itself would wait for ever, and the
/// volume would stay locked. Where the system refuses a thread descriptors of its own, it is as if there were no such
/// care.
pub(crate) fn apart<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let thread = rt::thread::spawn(name, || {
        let _ = let_go();
        body()
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Does what may wait for a mount of another process, and waits no longer than this: then nothing comes back, and the thread
/// is left to itself.
pub(crate) fn within<T: Send + 'static>(
    time: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    rt::thread::spawn("polder-asks", move || sender.send(body())).ok()?;
    receiver.recv_timeout(time).ok()
}

fn let_go() -> io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_FILES)?;
    close_all_but_standard()
}

/// Closes every descriptor but the standard three. Nothing that has a descriptor may be used afterwards.
pub(crate) fn close_all_but_standard() -> io::Result<()> {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/thread-self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The one that this list was read from is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

//! State that a process inherits from its caller, and how it is changed. The table in docs/operating/boot.md says the same
//! for users.
//!
//! A daemon outlives its caller and serves other processes. So the caller's limits must not end the daemon, and the daemon
//! must not keep the caller's descriptors open. A foreground process belongs to its caller, which has chosen its signals and
//! its priority. Nevertheless it must not be killed in the middle of a write.
//!
//! Ignored signals stay ignored in a new program, and only unsafe code could change this in a running process. So a daemon is
//! started with the default actions of all signals (`starter`), and this module only reads which signals are ignored.

use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zone::file::FileError;

use crate::{bytes, process};

/// Enough descriptors for a mount on a machine with many processors, and for clients of its socket.
const FILES: u64 = 1024;
/// The smallest number of descriptors for a mount.
const FILES_MIN: u64 = 64;
/// The usual stack size of the main thread.
const STACK_BYTES: u64 = 8 << 20;
/// For a process with a limit of CPU time: the CPU time reserved for closing the volume, and the smallest limit for a mount.
const CLOSING_SECONDS: u64 = 10;
const SECONDS_MIN: u64 = 60;
/// The umask of a daemon: other users cannot write to its files.
const NOT_FOR_OTHERS: Mode = Mode::from_raw_mode(0o022);

/// Must be called first in each command, before there are threads.
///
/// Blocks SIGXFSZ, which ends a process that writes beyond the file size limit (`ulimit -f`). With the signal blocked, the
/// write fails with EFBIG.
///
/// Raises a stack size limit below the usual one (`ulimit -s`): reading the command line needs a quarter of a mebibyte in
/// builds for tests.
pub(crate) fn begin() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    if let Err(error) = signals.thread_block() {
        tracing::debug!("SIGXFSZ cannot be blocked: {error}");
    }
    let stack = getrlimit(Resource::Stack);
    let wanted = stack.maximum.map_or(STACK_BYTES, |maximum| maximum.min(STACK_BYTES));
    if stack.current.is_some_and(|current| current < wanted) {
        // Fails only for limits above the maximum.
        let _ = setrlimit(Resource::Stack, Rlimit { current: Some(wanted), ..stack });
    }
}

/// Must be called first in a process that serves a mount or a device. `is_daemon` means that the caller does not wait for its
/// end.
pub(crate) fn leave_caller(is_daemon: bool) -> Result<()> {
    process::close_all_but_standard().context("descriptors of the caller cannot be closed")?;
    rustix::process::umask(rustix::process::umask(Mode::empty()) | NOT_FOR_OTHERS);
    end_before_the_limit()?;
    raise(Resource::Stack, STACK_BYTES);
    raise(Resource::Nproc, 0);
    if raise(Resource::Nofile, FILES) < FILES_MIN {
        bail!(
            "a mount needs {FILES_MIN} file descriptors, and this process may have fewer; raise the limit (`ulimit -n`)"
        );
    }
    if is_daemon && rustix::process::getpriority_process(None).is_ok_and(|nice| nice > 0) {
        // Fails if this process is not root.
        let _ = rustix::process::setpriority_process(None, 0);
    }
    Ok(())
}

/// Leaves the caller's working directory, so that its file system is not in use. Must be called after all relative paths are
/// resolved.
pub(crate) fn leave_directory() -> Result<()> {
    std::env::set_current_dir("/").context("/")
}

/// Raises the file size limit. Fails if the limit stays smaller than `size`: a volume is one file, and a part of it could not
/// be written.
pub(crate) fn allow_file(path: &Path, size: u64) -> Result<(), FileError> {
    let limit = raise(Resource::Fsize, u64::MAX);
    if limit >= size {
        return Ok(());
    }
    let (limit, size) = (bytes::show(limit), bytes::show(size));
    let why = format!(
        "this process may write files of at most {limit}, and the volume has {size}; raise the limit (`ulimit -f`)"
    );
    Err(FileError::Unsuitable { path: path.to_owned(), why })
}

/// The same for an existing volume.
pub(crate) fn allow_volume(path: &Path) -> Result<(), FileError> {
    // An inaccessible path is refused when it is opened. The limit does not apply to devices.
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    found.map_or(Ok(()), |found| allow_file(path, found.len()))
}

/// Blocks the signals that end a process, in this thread and all threads that it starts, so that a thread can wait for them.
/// Signals that the caller ignores are not included. `nohup` ignores some, and so does a shell for background jobs.
pub(crate) fn block_signals() -> Result<SigSet> {
    let ignored = ignored_signals();
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGXCPU] {
        if ignored >> (signal as u32 - 1) & 1 == 0 {
            signals.add(signal);
        }
    }
    // The caller may have blocked other signals, and no thread would wait for them. So the mask is replaced.
    let mut all = signals;
    all.add(Signal::SIGXFSZ);
    all.thread_set_mask().context("signals cannot be blocked")?;
    Ok(signals)
}

/// A mask with a bit for each ignored signal. The lowest bit is signal 1.
fn ignored_signals() -> u64 {
    let about = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = about.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Raises the soft limit to the hard limit, or both to `enough` if that is more and permitted. Returns the new soft limit.
fn raise(resource: Resource, enough: u64) -> u64 {
    let before = getrlimit(resource);
    let whole = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let limit = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    if whole(before.maximum) < enough {
        // Fails if this process is not root.
        let raised = Rlimit { current: limit(enough), maximum: limit(enough) };
        if setrlimit(resource, raised).is_ok() {
            return enough;
        }
    }
    let raised = Rlimit { current: before.maximum, ..before };
    match setrlimit(resource, raised) {
        Ok(()) => whole(before.maximum),
        Err(_) => whole(before.current),
    }
}

/// Sets the soft limit of CPU time below the hard limit, at which the process is killed. The signal at the soft limit ends the
/// mount, so that the volume is closed before the hard limit.
fn end_before_the_limit() -> Result<()> {
    let maximum = raise(Resource::Cpu, u64::MAX);
    if maximum == u64::MAX {
        return Ok(());
    }
    if maximum < SECONDS_MIN {
        bail!(
            "this process is killed after {maximum} s of processor time, which loses unsynced data; raise the limit to at least \
             {SECONDS_MIN} s (`ulimit -t`)"
        );
    }
    let before = getrlimit(Resource::Cpu);
    let current = Some(maximum - CLOSING_SECONDS);
    setrlimit(Resource::Cpu, Rlimit { current, ..before })
        .context("the limit of processor time cannot be set")
}

/// Logs limits that will end this process. Must be called after the log is open.
pub(crate) fn warn_of_limits() {
    if let Some(maximum) = getrlimit(Resource::Cpu).maximum {
        tracing::warn!(
            "the processor time of this process is limited (`ulimit -t {maximum}`): it unmounts shortly before the limit"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_possible() {
        let before = getrlimit(Resource::Core);
        setrlimit(Resource::Core, Rlimit { current: Some(0), ..before }).unwrap();
        assert_eq!(raise(Resource::Core, 0), before.maximum.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Core).current, before.maximum);
        setrlimit(Resource::Core, before).unwrap();
    }

    #[test]
    fn the_system_reports_ignored_signals() {
        // All Rust programs ignore SIGPIPE.
        assert_eq!(ignored_signals() >> (Signal::SIGPIPE as u32 - 1) & 1, 1);
        assert_eq!(ignored_signals() >> (Signal::SIGTERM as u32 - 1) & 1, 0);
    }
}

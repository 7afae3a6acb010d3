//! What a process inherits from its caller, and what becomes of it. The table in the manual says the same for users.
//!
//! A daemon lives on after its caller and serves others, so limits and descriptors that were meant for the caller's own
//! work must not end it or be kept by it. A process in the foreground belongs to its caller, which has chosen its signals
//! and its priority; it is kept from being ended in the middle of writing all the same.
//!
//! Signals that the caller ignores stay so across the start of a program, and only unsafe code could change that in a running
//! one. So a daemon is started with all of them as the system has them (`starter`), and here they are only looked at.

use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zone::file::FileError;

use crate::{bytes, process};

/// As many descriptors as a mount has on a machine with many processors, and clients of its socket.
const FILES: u64 = 1024;
/// With fewer than these a mount cannot be served.
const FILES_LEAST: u64 = 64;
/// What the main thread is usually given.
const STACK_BYTES: u64 = 8 << 20;
/// Processor time that closing a volume may take, of a process that may only have so much, and how much is too little for a
/// mount.
const CLOSING_SECONDS: u64 = 10;
const SECONDS_LEAST: u64 = 60;
/// Others cannot write to what a daemon makes.
const NOT_FOR_OTHERS: Mode = Mode::from_raw_mode(0o022);

/// The first thing that each command does, before there are threads.
///
/// A write beyond the file size limit (`ulimit -f`) ends a process by SIGXFSZ. Blocked, the write fails with EFBIG, which is
/// an error like any other.
pub(crate) fn begin() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    if let Err(error) = signals.thread_block() {
        tracing::debug!("SIGXFSZ cannot be blocked: {error}");
    }
}

/// The first thing that a process does that serves something. `is_daemon`: its caller does not wait for it.
pub(crate) fn leave_caller(is_daemon: bool) -> Result<()> {
    process::close_all_but_standard().context("descriptors of the caller cannot be closed")?;
    rustix::process::umask(rustix::process::umask(Mode::empty()) | NOT_FOR_OTHERS);
    end_before_the_limit()?;
    raise(Resource::Stack, STACK_BYTES);
    raise(Resource::Nproc, 0);
    if raise(Resource::Nofile, FILES) < FILES_LEAST {
        bail!(
            "a mount takes {FILES_LEAST} descriptors, and this process may have fewer (`ulimit -n`); raise that limit"
        );
    }
    if is_daemon && rustix::process::getpriority_process(None).is_ok_and(|nice| nice > 0) {
        // Only root may.
        let _ = rustix::process::setpriority_process(None, 0);
    }
    Ok(())
}

/// Leaves the caller's directory, so that its file system is not in use. To be called when all relative paths were followed.
pub(crate) fn leave_directory() -> Result<()> {
    std::env::set_current_dir("/").context("/")
}

/// Makes sure that a file may have so many bytes. Refused where the limit is less and stays so: a volume is one file, and a
/// part of it could not be written.
pub(crate) fn allow_file(path: &Path, size: u64) -> Result<(), FileError> {
    let limit = raise(Resource::Fsize, u64::MAX);
    if limit >= size {
        return Ok(());
    }
    let (limit, size) = (bytes::show(limit), bytes::show(size));
    let why = format!(
        "this process may write files of {limit} at most (`ulimit -f`), and the volume has {size}; raise that limit"
    );
    Err(FileError::Unsuitable { path: path.to_owned(), why })
}

/// The same for a volume that is there.
pub(crate) fn allow_volume(path: &Path) -> Result<(), FileError> {
    // A path that cannot be looked at is refused when it is opened. Devices have no such limit.
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    found.map_or(Ok(()), |found| allow_file(path, found.len()))
}

/// Signals that end a process wait to be fetched, in every thread that is started from now on; but for those that the caller
/// ignores, as `nohup` does, and a shell of what runs in its background.
pub(crate) fn block_signals() -> Result<SigSet> {
    let ignored = ignored_signals();
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGXCPU] {
        if ignored >> (signal as u32 - 1) & 1 == 0 {
            signals.add(signal);
        }
    }
    // The caller may have blocked some, and then nobody would fetch them.
    let mut all = signals;
    all.add(Signal::SIGXFSZ);
    all.thread_set_mask().context("signals cannot be blocked")?;
    Ok(signals)
}

/// One bit for each signal, the lowest for number 1.
fn ignored_signals() -> u64 {
    let about = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = about.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Raises a limit as far as this process may: to as much as can be, or to `enough` where that is more. What it is then.
fn raise(resource: Resource, enough: u64) -> u64 {
    let before = getrlimit(resource);
    let whole = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let limit = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    if whole(before.maximum) < enough {
        // Only root may.
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

/// At the end of its processor time a process is killed. The signal that comes at the lower limit is taken as one that ends the
/// mount, so that the volume is closed by then.
fn end_before_the_limit() -> Result<()> {
    let maximum = raise(Resource::Cpu, u64::MAX);
    if maximum == u64::MAX {
        return Ok(());
    }
    if maximum < SECONDS_LEAST {
        bail!(
            "this process may have {maximum} s of processor time (`ulimit -t`), and then the system kills it, which loses \
             what was not synced; raise that limit, to {SECONDS_LEAST} s at least"
        );
    }
    let before = getrlimit(Resource::Cpu);
    let current = Some(maximum - CLOSING_SECONDS);
    setrlimit(Resource::Cpu, Rlimit { current, ..before })
        .context("the limit of processor time cannot be set")
}

/// Tells of limits that will end this process, when there is a log.
pub(crate) fn warn_of_limits() {
    if let Some(maximum) = getrlimit(Resource::Cpu).maximum {
        tracing::warn!(
            "the processor time of this process is limited (`ulimit -t {maximum}`): it unmounts before that"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_it_can_be() {
        let before = getrlimit(Resource::Core);
        setrlimit(Resource::Core, Rlimit { current: Some(0), ..before }).unwrap();
        assert_eq!(raise(Resource::Core, 0), before.maximum.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Core).current, before.maximum);
        setrlimit(Resource::Core, before).unwrap();
    }

    #[test]
    fn what_is_ignored_is_told_by_the_system() {
        // That of the pipe is ignored by all programs of this language.
        assert_eq!(ignored_signals() >> (Signal::SIGPIPE as u32 - 1) & 1, 1);
        assert_eq!(ignored_signals() >> (Signal::SIGTERM as u32 - 1) & 1, 0);
    }
}

//! Waits for a daemon that has lost its mount and closes the volume.
//!
//! umount(2) returns when the mount is detached. After that the daemon holds the volume until its last writes are done.
//! The next command waits for this, but not for a daemon whose mount is attached.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rt::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::client::Silent;
use crate::holders;
use crate::registry::PATIENCE;
use crate::volume::FileId;

/// A daemon, identified by a handle and not by its number, which another process may get later.
pub(crate) struct Daemon {
    handle: OwnedFd,
    pid: Pid,
}

impl Daemon {
    /// The process with this number, if there is one.
    pub(crate) fn with_number(pid: Pid) -> Option<Daemon> {
        pidfd_open(pid, PidfdFlags::empty()).ok().map(|handle| Daemon { handle, pid })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits at most this time for the end of the process. Returns whether it has ended.
    pub(crate) fn wait_for(&self, time: Duration) -> Result<bool> {
        becomes_readable(&self.handle, time)
    }

    /// Opens a file or device that the daemon has open, even if it was moved, deleted or hidden.
    pub(crate) fn reopen(&self, file: &FileId) -> Option<File> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?;
        let mut paths = open.flatten().map(|entry| entry.path());
        let is_meant = |path: &PathBuf| FileId::of(path).is_ok_and(|found| found == *file);
        File::open(paths.find(is_meant)?).ok()
    }
}

/// Waits at most this time until a file is readable or at its end. A handle of a process becomes readable when the process
/// ends.
pub(crate) fn becomes_readable(file: &impl AsFd, time: Duration) -> Result<bool> {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    loop {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&time)) {
            Err(Errno::INTR) => {}
            readable => {
                return readable.map(|count| count > 0).context("the end of the daemon cannot be waited for");
            }
        }
    }
}

/// The process that holds the lock of a volume and cannot be asked. It counts as alive while it computes, reads or writes.
pub(crate) struct Holder {
    pid: Option<Pid>,
    /// The counters of the process when they last changed.
    counted: Vec<u8>,
    changed_ns: u64,
    clock: SystemClock,
}

impl Holder {
    /// The process that holds a volume. A process that is not visible counts as inactive.
    pub(crate) fn of(volume: &Path) -> Holder {
        let pid = holders::processes(volume).first().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        Holder { pid, counted: counted(pid), changed_ns: 0, clock: SystemClock::new() }
    }

    /// Returns the process if it has been inactive for longer than [`PATIENCE`].
    pub(crate) fn silent(&mut self) -> Option<Silent> {
        let (counted, now_ns) = (counted(self.pid), self.clock.monotonic_ns());
        if counted != self.counted {
            (self.counted, self.changed_ns) = (counted, now_ns);
        }
        let silent_ns = now_ns - self.changed_ns;
        (silent_ns > PATIENCE.as_nanos() as u64).then_some(Silent(self.pid))
    }
}

fn counted(pid: Option<Pid>) -> Vec<u8> {
    let about = |file| std::fs::read(format!("/proc/{}/{file}", pid?)).ok();
    ["stat", "io"].into_iter().filter_map(about).flatten().collect()
}

/// Whether a process is stopped by SIGSTOP or a debugger.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the process name, which may contain any characters.
    let state = about.rsplit_once(") ").map(|(_, fields)| fields.as_bytes().first().copied());
    matches!(state, Some(Some(b'T' | b't')))
}

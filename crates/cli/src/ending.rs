//! Waiting for a daemon that has lost its mount and closes the volume.
//!
//! `umount` returns when nothing is mounted any more; until then the daemon has the volume, and after that for as
//! long as its last writes take. Whoever comes next waits for that, and not for a daemon whose mount lives.

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

/// A daemon, known for itself and not by its number, which may be that of another process later.
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

    /// Waits no longer than this; whether it has ended.
    pub(crate) fn wait_for(&self, time: Duration) -> Result<bool> {
        becomes_readable(&self.handle, time)
    }

    /// Opens what it has open of this file or device, wherever that is by now: moved, deleted or hidden.
    pub(crate) fn open_what_it_has(&self, what: FileId) -> Option<File> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?;
        let mut paths = open.flatten().map(|entry| entry.path());
        let is_meant = |path: &PathBuf| FileId::of(path).is_ok_and(|found| found == what);
        File::open(paths.find(is_meant)?).ok()
    }
}

/// Waits no longer than this for something to read, or for the end; a handle of a process has its end to read.
pub(crate) fn becomes_readable(file: &impl AsFd, time: Duration) -> Result<bool> {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    loop {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&time)) {
            Err(Errno::INTR) => {}
            readable => return readable.map(|count| count > 0).context("the daemon cannot be waited for"),
        }
    }
}

/// The process that has a volume locked and cannot be asked. Its sign of life is that it computes, reads or writes.
pub(crate) struct Holder {
    pid: Option<Pid>,
    /// What the system had counted of it when it last changed.
    counted: Vec<u8>,
    changed_ns: u64,
    clock: SystemClock,
}

impl Holder {
    /// That of a volume. Where it does not show, it counts as one that does nothing.
    pub(crate) fn of(volume: &Path) -> Holder {
        let pid = holders::processes(volume).first().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        Holder { pid, counted: counted(pid), changed_ns: 0, clock: SystemClock::new() }
    }

    /// It, when it has given no sign of life for as long as a daemon may.
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
    let about = |what| std::fs::read(format!("/proc/{}/{what}", pid?)).ok();
    ["stat", "io"].into_iter().filter_map(about).flatten().collect()
}

/// Whether a process was stopped, by SIGSTOP or a debugger, and does nothing until it is let go on.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have anything in it.
    let state = about.rsplit_once(") ").map(|(_, fields)| fields.as_bytes().first().copied());
    matches!(state, Some(Some(b'T' | b't')))
}

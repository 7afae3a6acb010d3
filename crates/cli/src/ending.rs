//! Waiting for a daemon that has lost its mount and closes the volume.
//!
//! `umount` returns when nothing is mounted any more; until then the daemon has the volume, and after that for as
//! long as its last writes take. Whoever comes next waits for that, and not for a daemon whose mount lives.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

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
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        loop {
            match poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&time)) {
                Err(Errno::INTR) => {}
                ended => return ended.map(|count| count > 0).context("the daemon cannot be waited for"),
            }
        }
    }

    /// Opens what it has open of this file or device, wherever that is by now: moved, deleted or hidden.
    pub(crate) fn open_what_it_has(&self, what: FileId) -> Option<File> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?;
        let mut paths = open.flatten().map(|entry| entry.path());
        let is_meant = |path: &PathBuf| FileId::of(path).is_ok_and(|found| found == what);
        File::open(paths.find(is_meant)?).ok()
    }
}

/// Whether a process was stopped, by SIGSTOP or a debugger, and does nothing until it is let go on.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have anything in it.
    let state = about.rsplit_once(") ").map(|(_, fields)| fields.as_bytes().first().copied());
    matches!(state, Some(Some(b'T' | b't')))
}

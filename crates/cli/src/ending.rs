//! Waiting for a daemon that has lost its mount and closes the volume.
//!
//! `umount` returns when nothing is mounted any more; until then the daemon has the volume, and after that for as
//! long as its last writes take. Whoever comes next waits for that, and not for a daemon whose mount lives.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A daemon, known for itself and not by its number, which may be that of another process later.
pub(crate) struct Daemon(OwnedFd);

impl Daemon {
    /// The process with this number, if there is one.
    pub(crate) fn with_number(pid: Pid) -> Option<Daemon> {
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Daemon)
    }

    pub(crate) fn wait(&self) -> Result<()> {
        self.wait_until(None).map(drop)
    }

    /// Waits no longer than this; whether it has ended.
    pub(crate) fn wait_for(&self, time: &Timespec) -> Result<bool> {
        self.wait_until(Some(time))
    }

    fn wait_until(&self, time: Option<&Timespec>) -> Result<bool> {
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], time) {
                Err(Errno::INTR) => {}
                ended => return ended.map(|count| count > 0).context("the daemon cannot be waited for"),
            }
        }
    }
}

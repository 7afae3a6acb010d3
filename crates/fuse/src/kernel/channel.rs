//! The open device, from which requests are read and to which replies are written.
//!
//! One `read` takes one request, and one `writev` sends one reply. Both are atomic, so any number of threads may
//! share a channel. With a channel [of its own](Channel::fork), a thread does not compete for a lock in the kernel.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rt::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::abi::{InHeader, WriteIn};
use super::{PageBuffer, REQUEST_BYTES_MAX};
use crate::request_times::{ChannelTimes, RequestTimes};

/// `FUSE_DEV_IOC_CLONE`. The kernel defines it as a read of one `u32`, but reads that from us.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// The bytes of a write request before its data.
pub(super) const WRITE_HEAD: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// An open device. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Channel(Arc<Open>);

#[derive(Debug)]
struct Open {
    device: OwnedFd,
    /// The clock of the durations of requests.
    clock: SystemClock,
    times: Arc<ChannelTimes>,
    of_mount: RequestTimes,
}

impl Channel {
    /// The first channel of a mount.
    pub(crate) fn new(device: OwnedFd) -> io::Result<Channel> {
        Channel::of_mount(device, RequestTimes::default())
    }

    /// Sets the device to receive without waiting.
    fn of_mount(device: OwnedFd, of_mount: RequestTimes) -> io::Result<Channel> {
        let flags = fcntl_getfl(&device)?;
        fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
        let times = of_mount.add_channel();
        Ok(Channel(Arc::new(Open { device, clock: SystemClock::new(), times, of_mount })))
    }

    /// Another channel of the same mount. `device` is a newly opened FUSE device.
    #[allow(unsafe_code, reason = "rustix has no call of its own for this command")]
    pub(crate) fn fork(&self, device: OwnedFd) -> io::Result<Channel> {
        let ours = u32::try_from(self.0.device.as_raw_fd()).expect("an open descriptor is not negative");
        // SAFETY: the command reads one `u32`, which `Setter` points it to, and writes nothing.
        let clone = unsafe { Setter::<CLONE, u32>::new(ours) };
        // SAFETY: `clone` is this command's, as made above; its number belongs to FUSE devices alone, and what is
        // none refuses it.
        unsafe { ioctl(&device, clone) }?;
        Channel::of_mount(device, self.0.of_mount.clone())
    }

    /// The durations of the requests of this mount.
    pub(crate) fn times_of_mount(&self) -> RequestTimes {
        self.0.of_mount.clone()
    }

    /// The durations of the requests of this channel.
    pub(super) fn times(&self) -> &ChannelTimes {
        &self.0.times
    }

    /// The clock of the durations.
    pub(super) fn now_ns(&self) -> u64 {
        self.0.clock.monotonic_ns()
    }

    /// Receives a request if there is one.
    pub(crate) fn receive(&self, buffer: &mut RequestBuffer) -> io::Result<Received> {
        loop {
            return match rustix::io::read(&self.0.device, buffer.space()) {
                Ok(0) => Ok(Received::End),
                Ok(count) => Ok(Received::Request(count)),
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                // The request was withdrawn while it was read, or a signal came.
                Err(Errno::NOENT | Errno::INTR) => continue,
                // The connection ended, perhaps while a request was read.
                Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::End),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Waits until there may be a request, or the connection has ended.
    pub(crate) fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.0.device, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether requests may still come: until the mount is detached and no longer in use, or is aborted.
    pub(crate) fn is_connected(&self) -> bool {
        let mut device = [PollFd::new(&self.0.device, PollFlags::OUT)];
        match poll(&mut device, Some(&Timespec::default())) {
            Ok(_) => !device[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
            Err(_) => true,
        }
    }

    /// Sends one message without copying its parts.
    pub(super) fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::writev(&self.0.device, parts).map(drop)
    }
}

/// What [`Channel::receive`] has found.
pub(crate) enum Received {
    /// A request of this many bytes, in the buffer.
    Request(usize),
    Nothing,
    /// The connection has ended.
    End,
}

/// A buffer for the largest request, aligned so that the data of a write begins on a page.
pub(crate) struct RequestBuffer(PageBuffer);

impl RequestBuffer {
    pub(crate) fn new() -> Self {
        RequestBuffer(PageBuffer::new(WRITE_HEAD, REQUEST_BYTES_MAX as usize))
    }

    fn space(&mut self) -> &mut [u8] {
        self.0.space()
    }

    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        &self.0.bytes()[..length]
    }

    /// The memory, which may be exchanged for other memory of the same size.
    pub(super) fn memory(&mut self) -> &mut PageBuffer {
        &mut self.0
    }
}

#[cfg(test)]
mod tests;

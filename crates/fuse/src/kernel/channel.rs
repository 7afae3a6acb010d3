//! The open device that requests come from and replies go to.
//!
//! One `read` takes one request, one `writev` gives one reply; both are whole or not at all, so any number of
//! threads may share a channel. A channel [of its own](Channel::fork) spares a thread the others' lock in
//! the kernel.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::abi::{InHeader, WriteIn};
use super::{PageBuffer, REQUEST_BYTES_MAX};

/// `FUSE_DEV_IOC_CLONE`. The kernel calls it a read of one `u32`, and reads that from us.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// What stands before the bytes of a write.
pub(super) const WRITE_HEAD: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// One open device; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Channel(Arc<OwnedFd>);

impl Channel {
    pub(crate) fn new(device: OwnedFd) -> Self {
        Channel(Arc::new(device))
    }

    /// Another channel of the same mount. `device` is a FUSE device that was opened anew.
    #[allow(unsafe_code, reason = "rustix has no call of its own for this command")]
    pub(crate) fn fork(&self, device: OwnedFd) -> io::Result<Channel> {
        let ours = u32::try_from(self.0.as_raw_fd()).expect("an open descriptor is not negative");
        // SAFETY: the command reads one `u32`, which `Setter` points it to, and writes nothing.
        let clone = unsafe { Setter::<CLONE, u32>::new(ours) };
        // SAFETY: `clone` is this command's, as made above; its number belongs to FUSE devices alone, and what is
        // none refuses it.
        unsafe { ioctl(&device, clone) }?;
        Ok(Channel::new(device))
    }

    /// Waits for the next request; none comes any more when nothing is mounted.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut RequestBuffer) -> io::Result<Option<&'a [u8]>> {
        let count = loop {
            match rustix::io::read(&self.0, buffer.space()) {
                Ok(count) => break count,
                // The request was withdrawn while it was read, or a signal came.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // It ended, perhaps while a request was read.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        Ok((count > 0).then(|| &buffer.space()[..count]))
    }

    /// Whether requests may still come: until everything that was mounted is detached and unused, or was aborted.
    pub(crate) fn is_connected(&self) -> bool {
        let mut device = [PollFd::new(&self.0, PollFlags::OUT)];
        match poll(&mut device, Some(&Timespec::default())) {
            Ok(_) => !device[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
            Err(_) => true,
        }
    }

    /// Sends one message, whose parts are not copied.
    pub(super) fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::writev(&self.0, parts).map(drop)
    }
}

/// Room for the largest request, placed so that the bytes of a write begin on a page.
pub(crate) struct RequestBuffer(PageBuffer);

impl RequestBuffer {
    pub(crate) fn new() -> Self {
        RequestBuffer(PageBuffer::new(WRITE_HEAD, REQUEST_BYTES_MAX as usize))
    }

    fn space(&mut self) -> &mut [u8] {
        self.0.space()
    }

    /// The memory, which may be exchanged for as much.
    pub(super) fn memory(&mut self) -> &mut PageBuffer {
        &mut self.0
    }
}

#[cfg(test)]
mod tests;

//! Telling a block device that nobody needs a range any more.
//!
//! Not by punching a hole, as in a file: the kernel promises zeros behind one, and has them written where the device
//! cannot make them otherwise, which for a zone takes as long as filling it. A discard promises nothing of what is read
//! afterwards, and nobody reads a zone beyond its pointer.

use std::fs::File;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `BLKDISCARD` (`linux/fs.h`).
const DISCARD: Opcode = opcode::none(0x12, 119);

/// Of a device that is open for writing; `OPNOTSUPP` where it cannot.
pub(super) fn discard(device: &File, offset: u64, bytes: u64) -> Result<(), Errno> {
    // SAFETY: the command reads two `u64`: where the range begins, and its length.
    let setter = unsafe { Setter::<DISCARD, [u64; 2]>::new([offset, bytes]) };
    // SAFETY: `setter` is this command's, as made above.
    unsafe { ioctl(device, setter) }
}

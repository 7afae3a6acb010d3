//! Telling a block device that nobody needs a range any more.
//!
//! Not by punching a hole, as in a file: the kernel promises zeros behind one, and has them written where the device
//! cannot make them otherwise, which for a zone takes as long as filling it. A discard promises nothing of what is read
//! afterwards, and nobody reads a zone beyond its pointer.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `BLKDISCARD` (`linux/fs.h`).
const DISCARD: Opcode = opcode::none(0x12, 119);

/// Whether a device takes discards, as the kernel says.
pub(super) fn can_discard(device: &File) -> bool {
    let Ok(known) = device.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(known.rdev()), rustix::fs::minor(known.rdev()));
    // A partition has the queue of its disk, whose folder it lies in.
    let says = |queue: &str| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/discard_max_bytes");
        std::fs::read_to_string(path).ok()
    };
    says("queue").or_else(|| says("../queue")).is_some_and(|most| most.trim() != "0")
}

/// Of a device that is open for writing; `OPNOTSUPP` where it cannot.
pub(super) fn discard(device: &File, offset: u64, bytes: u64) -> Result<(), Errno> {
    // SAFETY: the command reads two `u64`: where the range begins, and its length.
    let setter = unsafe { Setter::<DISCARD, [u64; 2]>::new([offset, bytes]) };
    // SAFETY: `setter` is this command's, as made above.
    unsafe { ioctl(device, setter) }
}

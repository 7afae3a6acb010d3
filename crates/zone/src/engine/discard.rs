//! Discards of a block device.
//!
//! A hole is not punched, as it is in a file. The kernel guarantees zeros behind a hole and writes them if the device
//! cannot create them in another way. For a zone this takes as long as filling it. A discard guarantees nothing about
//! later reads, and nothing reads a zone beyond its pointer.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `BLKDISCARD` (`linux/fs.h`).
const DISCARD: Opcode = opcode::none(0x12, 119);

/// Whether a device supports discards according to the kernel.
pub(super) fn can_discard(device: &File) -> bool {
    let Ok(known) = device.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(known.rdev()), rustix::fs::minor(known.rdev()));
    // A partition has the queue of its disk, and its directory is in that of the disk.
    let limit_in = |queue: &str| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/discard_max_bytes");
        std::fs::read_to_string(path).ok()
    };
    limit_in("queue").or_else(|| limit_in("../queue")).is_some_and(|most| most.trim() != "0")
}

/// Discards a range of a device that is open for writing. Returns `OPNOTSUPP` if the device does not support that.
pub(super) fn discard(device: &File, offset: u64, bytes: u64) -> Result<(), Errno> {
    // SAFETY: the command reads two `u64`: the start of the range and its length.
    let setter = unsafe { Setter::<DISCARD, [u64; 2]>::new([offset, bytes]) };
    // SAFETY: `setter` is this command's, as made above.
    unsafe { ioctl(device, setter) }
}

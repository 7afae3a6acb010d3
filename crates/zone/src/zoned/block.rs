//! Zoned block devices of Linux: SMR disks, ZNS namespaces whose zone size is a power of two, zoned flash.
//!
//! The kernel executes one write at a time for each zone. After a write has failed, it refuses all others of that
//! zone until the zone was reported. It keeps the order of concurrent writes only if one thread submits them without
//! blocking, which io_uring does not guarantee. So there is one write in flight for each zone.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};

use rt::waits::{WaitFor, about_to_wait};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

use super::port::{Action, Limits, Port, ReportedZone};
use super::report::{Report, SECTOR};
use crate::engine::{Engine, Transfer};

/// The kernel's commands for zones (`linux/blkzoned.h`).
const GROUP: u8 = 0x12;
const REPORT: Opcode = opcode::read_write::<ReportHead>(GROUP, 130);
const RESET: Opcode = opcode::write::<Range>(GROUP, 131);
const ZONE_SIZE: Opcode = opcode::read::<u32>(GROUP, 132);
const OPEN: Opcode = opcode::write::<Range>(GROUP, 134);
const CLOSE: Opcode = opcode::write::<Range>(GROUP, 135);
const FINISH: Opcode = opcode::write::<Range>(GROUP, 136);

/// `struct blk_zone_report` without its zones: its size is part of the command's number.
#[repr(C)]
struct ReportHead {
    sector: u64,
    count: u32,
    flags: u32,
}

/// `struct blk_zone_range`, in sectors.
#[repr(C)]
struct Range {
    sector: u64,
    sectors: u64,
}

/// A zoned block device, open for direct I/O.
pub(super) struct BlockPort {
    engine: Engine,
    limits: Limits,
}

/// The zone size of a block device; `None` if it has no zones.
pub(super) fn zone_bytes(device: &File) -> Result<Option<u64>> {
    // SAFETY: the command writes one `u32`.
    let getter = unsafe { Getter::<ZONE_SIZE, u32>::new() };
    // SAFETY: `getter` is this command's, as made above.
    match unsafe { ioctl(device, getter) } {
        Ok(sectors) => Ok((sectors > 0).then(|| u64::from(sectors) * SECTOR)),
        // Kernels without support for zones do not know this command.
        Err(Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

impl BlockPort {
    /// A port for a device that was opened for direct I/O.
    pub(super) fn new(device: File, limits: Limits) -> Self {
        BlockPort { engine: Engine::of_direct(device), limits }
    }

    fn change<const OPCODE: Opcode>(&self, range: Range) -> Result<()> {
        about_to_wait(WaitFor::Device);
        // SAFETY: callers pass one of the commands above that read a `Range`.
        let setter = unsafe { Setter::<OPCODE, Range>::new(range) };
        // SAFETY: `setter` is this command's, as made above.
        Ok(unsafe { ioctl(self.engine.file(), setter) }?)
    }
}

impl Port for BlockPort {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn report(&self, from: u64, most: usize) -> Result<Vec<ReportedZone>> {
        about_to_wait(WaitFor::Device);
        let mut report = Report::new(from / SECTOR, most);
        // SAFETY: the command reads the head of a report and writes at most as many zones behind it as its count
        // says, for which there is space.
        let updater = unsafe { Updater::<REPORT, Report>::new(&mut report) };
        // SAFETY: `updater` is this command's, as made above.
        match unsafe { ioctl(self.engine.file(), updater) } {
            Ok(()) => report.zones().map_err(Error::other),
            Err(errno) => Err(errno.into()),
        }
    }

    fn act(&self, start: u64, length: u64, action: Action) -> Result<()> {
        let range = Range { sector: start / SECTOR, sectors: length / SECTOR };
        match action {
            Action::Reset => self.change::<RESET>(range),
            Action::Open => self.change::<OPEN>(range),
            Action::Close => self.change::<CLOSE>(range),
            Action::Finish => self.change::<FINISH>(range),
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.engine.read(at, into)
    }

    fn move_all(&self, transfers: &mut [Transfer<'_>]) -> Vec<Result<()>> {
        self.engine.run(transfers)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        self.engine.write(at, from)
    }

    fn append(&self, _start: u64, _from: &[u8]) -> Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> Result<()> {
        self.engine.sync()
    }

    fn prepare_buffers(&self, count: usize, bytes: usize) {
        self.engine.prepare_buffers(count, bytes);
    }
}

//! Zoned namespaces through the generic device of NVMe (`/dev/ngXnY`). They have any zone size, and appends whose
//! place the device chooses, so that several appends to a zone can be in flight.
//!
//! The kernel passes commands on and does not track zones here. Its information about the block device of the same
//! namespace becomes outdated meanwhile. So a process that writes opens the block device exclusively, if there is
//! one. A process that only reads shares it with other readers, and prevents writers.

mod command;
pub(super) mod format;
mod ring;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use self::command::{Data, Queue, Words, namespace_of, run};
use self::format::{IDENTIFY_BYTES, Namespace, REPORT_BYTES};
use self::ring::{Move, Rings};
use super::port::{Action, Limits, Port, ReportedZone};
use crate::engine::{AlignedBuffer, Transfer};
use crate::file::{self, FileError, OpenMode};

/// Opcodes.
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const ZONE_SEND: u8 = 0x79;
const ZONE_RECEIVE: u8 = 0x7a;
const ZONE_APPEND: u8 = 0x7d;

/// The zoned command set, as a parameter of commands.
const ZONED: u32 = 2 << 24;

/// The number of separate memory segments that Linux supports at least for an NVMe command over PCI.
const SEGMENTS: u64 = 127;
/// The largest command, even if the device supports larger ones: each page may be a separate segment, and there is
/// one page more if the first begins within a page. Whether a larger command is accepted depends on where its pages
/// lie: a probe when the device is opened may succeed, and a later command of the same length may be refused.
const TRANSFER_BYTES_MAX: u64 = (SEGMENTS - 1) * PAGE_BYTES;
const PAGE_BYTES: u64 = 4096;

/// The generic device of a namespace without a block device, where `path` would be that block device.
pub(crate) fn generic_beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_prefix("nvme")?;
    let generic = path.with_file_name(format!("ng{name}"));
    std::fs::metadata(&generic).is_ok_and(|known| is_generic(&known)).then_some(generic)
}

/// An open namespace.
pub(super) struct NvmePort {
    device: File,
    /// The block device of the same namespace, locked.
    _block_device: Option<File>,
    number: u32,
    namespace: Namespace,
    /// The size in bytes.
    size: u64,
    limits: Limits,
    rings: Rings,
}

/// Whether a character device is the generic device of an NVMe namespace. The answer comes from sysfs, because
/// opening another device may have side effects.
pub(super) fn is_generic(device: &Metadata) -> bool {
    if !device.file_type().is_char_device() {
        return false;
    }
    let (major, minor) = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
    let class = std::fs::read_link(format!("/sys/dev/char/{major}:{minor}/subsystem"));
    class.is_ok_and(|class| class.ends_with("nvme-generic"))
}

impl NvmePort {
    /// A port for an open generic device; if `mode` is given, its block device is locked as well.
    pub(super) fn new(
        device: File,
        path: &Path,
        mode: Option<OpenMode>,
    ) -> std::result::Result<Self, FileError> {
        let io = |error| FileError::io(path, "list its zones", error);
        let number = namespace_of(&device).map_err(io)?;
        let identify = |what: u32, number: u32| -> Result<Box<[u8; IDENTIFY_BYTES]>> {
            let mut found = Box::new([0; IDENTIFY_BYTES]);
            let set = if what >= 5 { ZONED } else { 0 };
            let words = Words { opcode: IDENTIFY, words: [what, set, 0, 0, 0, 0] };
            run(&device, number, Queue::Admin, words, Data::In(&mut found[..])).map(|_| found)
        };
        let (common, controller) = (identify(0, number).map_err(io)?, identify(1, 0).map_err(io)?);
        let unsuitable = |why: &str| FileError::Unsuitable { path: path.to_owned(), why: why.to_owned() };
        let zoned = identify(5, number)
            .map_err(|_| unsuitable("it is a namespace without zones; name its block device"))?;
        let zoned_controller = identify(6, 0).map_err(io)?;
        let namespace = format::namespace(&common, &zoned).map_err(|why| unsuitable(&why))?;
        let blocks = u64::from_le_bytes(common[..8].try_into().expect("eight bytes"));
        let largest = format::transfer_bytes(&controller, &zoned_controller).min(TRANSFER_BYTES_MAX);
        let limits = Limits {
            block_size: namespace.block_size,
            max_open: namespace.max_open,
            max_active: namespace.max_active,
            transfer_bytes: largest as usize,
            append_bytes: Some(largest as usize),
            seeks: false,
        };
        let block_device = mode.map_or(Ok(None), |mode| keep_block_device(path, mode))?;
        let size = blocks.saturating_mul(namespace.block_size.into());
        let rings = Rings::default();
        let mut port =
            NvmePort { device, _block_device: block_device, number, namespace, size, limits, rings };
        port.find_transfer_bytes().map_err(io)?;
        Ok(port)
    }

    /// The kernel has a limit of its own, which is found by probing: it refuses larger commands. It need not be a
    /// power of two: for a namespace without a block device it is 127.5 KiB.
    fn find_transfer_bytes(&mut self) -> Result<()> {
        let block = self.limits.block_size as usize;
        let blocks = largest((self.limits.transfer_bytes / block).max(1), |blocks| {
            let mut buffer = AlignedBuffer::new(blocks * block);
            match self.transfer(READ, 0, Data::In(buffer.bytes_mut())) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Err(error),
                // Errors of the device at that place do not matter.
                _ => Ok(()),
            }
        })?;
        self.limits.transfer_bytes = blocks * block;
        self.limits.append_bytes = Some(blocks * block);
        Ok(())
    }

    fn io(&self, words: Words, data: Data<'_>) -> Result<u64> {
        let mut one = [Move { words, data }];
        self.rings.run(&self.device, self.number, &mut one).pop().expect("one result for one command")
    }

    /// A command that transfers blocks.
    fn transfer(&self, opcode: u8, at: u64, data: Data<'_>) -> Result<u64> {
        let bytes = match &data {
            Data::None => 0,
            Data::In(into) => into.len(),
            Data::Out(from) => from.len(),
        };
        self.io(self.words(opcode, at, bytes), data)
    }

    /// The words of a command that transfers `bytes` bytes.
    fn words(&self, opcode: u8, at: u64, bytes: usize) -> Words {
        let block = u64::from(self.namespace.block_size);
        let blocks = (bytes as u64 / block) as u32;
        assert!(blocks > 0 && at.is_multiple_of(block), "whole blocks are moved");
        let [low, high] = halves(at / block);
        Words { opcode, words: [low, high, blocks - 1, 0, 0, 0] }
    }
}

/// The largest number up to `most` that is accepted, if all smaller ones are accepted too; an error if 1 is not.
fn largest(most: usize, takes: impl Fn(usize) -> Result<()>) -> Result<usize> {
    if takes(most).is_ok() {
        return Ok(most);
    }
    takes(1)?;
    let (mut taken, mut refused) = (1, most);
    while refused - taken > 1 {
        let tried = taken + (refused - taken) / 2;
        if takes(tried).is_ok() { taken = tried } else { refused = tried }
    }
    Ok(taken)
}

fn halves(block: u64) -> [u32; 2] {
    [block as u32, (block >> 32) as u32]
}

/// Locks the block device of the same namespace, if there is one.
fn keep_block_device(path: &Path, mode: OpenMode) -> std::result::Result<Option<File>, FileError> {
    let Some(beside) = block_device_beside(path) else { return Ok(None) };
    let flags = if mode == OpenMode::ReadWrite { OFlags::EXCL } else { OFlags::empty() };
    match OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&beside) {
        Ok(device) => file::lock(&device, &beside, mode).map(|()| Some(device)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file::refusal(&beside, error)),
    }
}

/// `/dev/nvme0n1` for `/dev/ng0n1`.
fn block_device_beside(path: &Path) -> Option<PathBuf> {
    let path = std::fs::canonicalize(path).ok()?;
    let name = path.file_name()?.to_str()?.strip_prefix("ng")?;
    Some(path.with_file_name(format!("nvme{name}")))
}

impl Port for NvmePort {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn report(&self, from: u64, most: usize) -> Result<Vec<ReportedZone>> {
        if from >= self.size {
            return Ok(Vec::new());
        }
        let mut report = Box::new([0; REPORT_BYTES]);
        let [low, high] = halves(from / u64::from(self.namespace.block_size));
        // Counts only the zones that fit.
        const PARTIAL: u32 = 1 << 16;
        let words = [low, high, REPORT_BYTES as u32 / 4 - 1, PARTIAL, 0, 0];
        self.io(Words { opcode: ZONE_RECEIVE, words }, Data::In(&mut report[..]))?;
        let mut zones = format::zones(&report, &self.namespace).map_err(Error::other)?;
        zones.truncate(most);
        Ok(zones)
    }

    fn act(&self, start: u64, _length: u64, action: Action) -> Result<()> {
        let code = match action {
            Action::Close => 1,
            Action::Finish => 2,
            Action::Open => 3,
            Action::Reset => 4,
        };
        let [low, high] = halves(start / u64::from(self.namespace.block_size));
        let words = Words { opcode: ZONE_SEND, words: [low, high, 0, code, 0, 0] };
        self.io(words, Data::None).map(drop)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let mut read = [Transfer::Read { offset: at, into }];
        self.move_all(&mut read).pop().expect("one result for one read")
    }

    fn move_all(&self, transfers: &mut [Transfer<'_>]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = transfers.iter().map(|_| Ok(())).collect();
        let (mut whose, mut pieces) = (Vec::new(), Vec::new());
        for (index, transfer) in transfers.iter_mut().enumerate() {
            match transfer {
                Transfer::Read { offset, into } => {
                    let ats = (*offset..).step_by(self.limits.transfer_bytes);
                    for (at, into) in ats.zip(into.chunks_mut(self.limits.transfer_bytes)) {
                        let words = self.words(READ, at, into.len());
                        pieces.push(Move { words, data: Data::In(into) });
                    }
                }
                Transfer::Write { offset, from, .. } => {
                    let words = self.words(WRITE, *offset, from.len());
                    pieces.push(Move { words, data: Data::Out(from) });
                }
            }
            whose.resize(pieces.len(), index);
        }
        let done = self.rings.run(&self.device, self.number, &mut pieces);
        for (index, done) in whose.into_iter().zip(done) {
            if let Err(error) = done {
                results[index] = Err(error);
            }
        }
        results
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        self.transfer(WRITE, at, Data::Out(from)).map(drop)
    }

    fn append(&self, start: u64, from: &[u8]) -> Result<u64> {
        let landed = self.transfer(ZONE_APPEND, start, Data::Out(from))?;
        Ok(landed.saturating_mul(self.namespace.block_size.into()))
    }

    fn flush(&self) -> Result<()> {
        self.io(Words { opcode: FLUSH, words: [0; 6] }, Data::None).map(drop)
    }

    fn prepare_buffers(&self, _count: usize, _bytes: usize) {}
}

#[cfg(test)]
mod tests;

//! Opening and looking into a volume's file.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rt::sync::atomic::AtomicU64;
use rt::sync::{Condvar, Mutex};
use rustix::fs::{FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;

use super::contents::{contents_of, find_header};
use super::error::is_read_only;
use super::format::{HEADER_BYTES, Layout, NoHeader};
use super::options::BLOCK_BYTES_MAX;
use super::slots::Slots;
use super::writes::Writes;
use super::{FileContents, FileDevice, FileError, OpenMode, State, ZoneExtra};
use crate::engine::Engine;
use crate::machine::Machine;
use crate::medium::Kind;
use crate::{FsId, ZoneId, ZoneInfo, ZoneState};

impl FileDevice {
    /// Opens a volume, and keeps it from being opened by others until it is dropped.
    pub fn open(path: &Path, mode: OpenMode) -> Result<FileDevice, FileError> {
        FileDevice::open_locked(open_file(path, mode)?, path, mode)
    }

    /// What is at a path: nothing, nothing of value, a volume, or something else. Changes nothing
    /// and needs no lock.
    pub fn probe(path: &Path) -> Result<FileContents, FileError> {
        let opened = check_kind(path).and_then(|()| File::open(path).map_err(|error| refusal(path, error)));
        let file = match opened {
            Err(FileError::NotFound(_)) => return Ok(FileContents::Nothing),
            opened => opened?,
        };
        let size = size_of(&file, path)?;
        contents_of(&file, path, size)
    }

    /// What it is on.
    pub(crate) fn kind(&self) -> Kind {
        let streams = self.streams;
        let kept = self.layout.preallocated;
        self.engine.discards().map_or(Kind::File, |can| Kind::Disk { discards: can && !kept, streams })
    }

    pub(super) fn open_locked(file: File, path: &Path, mode: OpenMode) -> Result<FileDevice, FileError> {
        let (fs_id, layout) = read_header(&file, path, mode)?;
        let tables = [0, 1].map(|table| {
            let mut bytes = vec![0; layout.table_bytes()];
            let read = file.read_exact_at(&mut bytes, layout.table_offset(table));
            read.map(|()| bytes).map_err(|error| FileError::io(path, "read the states of its zones", error))
        });
        let [first, second] = tables;
        let (slots, zones, given_back) = Slots::load(fs_id, layout.clone(), [first?, second?]);
        let unit = layout.geometry.block_size as usize;
        let streams = write_streams(&file);
        let engine = Engine::new(file, unit).map_err(|error| FileError::io(path, "read it", error))?;
        Ok(FileDevice {
            engine,
            fs_id,
            mode,
            state: Mutex::new(state_of(&layout, slots, zones, &given_back)),
            layout,
            calm: Condvar::new(),
            flushing: Mutex::new(()),
            flushes: AtomicU64::new(0),
            own_bytes: AtomicU64::new(0),
            streams,
        })
    }
}

/// The state of a device that was just opened; `given_back` says of each zone whether the host has nothing for it.
fn state_of(layout: &Layout, slots: Slots, zones: Vec<ZoneInfo>, given_back: &[bool]) -> State {
    let extra = |(info, given_back): (&ZoneInfo, &bool)| ZoneExtra {
        writes: Writes::up_to(info.pointer),
        busy: false,
        is_taken: layout.preallocated || info.state != ZoneState::Empty,
        may_hold: !given_back,
        reset_undurable: false,
        dirty: false,
        stream: 0,
        has_data: false,
    };
    let may_hold = |zone: &ZoneId| {
        let index = zone.0 as usize;
        zones[index].state == ZoneState::Empty && !given_back[index] && !layout.preallocated
    };
    State {
        is_unsure: true,
        to_give_back: (0..layout.geometry.zones).map(ZoneId).filter(may_hold).collect(),
        zones: zones.iter().zip(given_back).map(extra).collect(),
        machine: Machine::new(layout.geometry.clone(), zones),
        slots,
        dirty: Vec::new(),
        broken: None,
    }
}

/// The smallest block, a power of two up to 64 KiB, that a disk does not write as a part of a larger one; 1 where there is
/// no disk, or nothing is said of that. What tells of more (an array of disks, say) cannot be had.
pub(crate) fn whole_block(path: &Path) -> u32 {
    // What cannot be opened is refused later, with the reason.
    let is_disk = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let disk = is_disk.then(|| File::open(path).ok()).flatten();
    disk.map_or(1, |disk| whole_block_of(&disk).unwrap_or(1))
}

pub(super) fn whole_block_of(disk: &File) -> std::io::Result<u32> {
    Ok(rustix::fs::ioctl_blkpbszget(disk)?.clamp(1, BLOCK_BYTES_MAX).next_power_of_two())
}

/// Opens a file or block device that is there, and locks it.
pub(super) fn open_file(path: &Path, mode: OpenMode) -> Result<File, FileError> {
    check_kind(path)?;
    let writable = mode == OpenMode::ReadWrite;
    let device = std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device());
    let is_device = device.is_some();
    // Some kernels let it be opened all the same, and then every write fails.
    if device.is_some_and(|device| writable && is_read_only(device.rdev())) {
        return Err(FileError::read_only(path));
    }
    // On a block device this keeps out whoever mounts it.
    let exclusive = if is_device && writable { OFlags::EXCL } else { OFlags::empty() };
    let opened =
        OpenOptions::new().read(true).write(writable).custom_flags(exclusive.bits() as i32).open(path);
    let file = opened.map_err(|error| refusal(path, error))?;
    lock(&file, path, mode)?;
    Ok(file)
}

/// Refuses what cannot hold a volume. Asked before it is opened: opening a pipe waits for its other end.
fn check_kind(path: &Path) -> Result<(), FileError> {
    let kind = std::fs::metadata(path).map_err(|error| refusal(path, error))?.file_type();
    let what = match kind {
        kind if kind.is_file() || kind.is_block_device() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a character device",
    };
    Err(FileError::NotStorage { path: path.to_owned(), what })
}

/// Why the system does not open a path.
pub(crate) fn refusal(path: &Path, error: std::io::Error) -> FileError {
    match error.kind() {
        ErrorKind::NotFound => FileError::NotFound(path.to_owned()),
        ErrorKind::ResourceBusy => FileError::InUse(path.to_owned()),
        ErrorKind::PermissionDenied => FileError::denied(path, &error),
        _ => FileError::io(path, "open it", error),
    }
}

pub(crate) fn lock(file: &File, path: &Path, mode: OpenMode) -> Result<(), FileError> {
    let operation = match mode {
        OpenMode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    rustix::fs::flock(file, operation).map_err(|errno| match errno {
        Errno::WOULDBLOCK => FileError::InUse(path.to_owned()),
        errno => FileError::io(path, "lock it", errno),
    })
}

/// Bytes of a file or block device.
pub(super) fn size_of(file: &File, path: &Path) -> Result<u64, FileError> {
    rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| FileError::io(path, "find its size", errno))
}

/// How many write streams a block device has; none where the kernel knows of none (before Linux 6.16, or a file).
fn write_streams(file: &File) -> u8 {
    let Ok(about) = file.metadata() else { return 0 };
    if !about.file_type().is_block_device() {
        return 0;
    }
    let (major, minor) = (rustix::fs::major(about.rdev()), rustix::fs::minor(about.rdev()));
    // A partition has no queue of its own, and the kernel takes no streams through one.
    let path = format!("/sys/dev/block/{major}:{minor}/queue/max_write_streams");
    let told = std::fs::read_to_string(path).ok();
    let streams: u64 = told.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    u8::try_from(streams).unwrap_or(u8::MAX)
}

fn read_header(file: &File, path: &Path, mode: OpenMode) -> Result<(FsId, Layout), FileError> {
    let found = size_of(file, path)?;
    let mut start = vec![0; found.min(2 * HEADER_BYTES as u64) as usize];
    file.read_exact_at(&mut start, 0).map_err(|error| FileError::io(path, "read it", error))?;
    let (fs_id, layout, writable) = match find_header(&start) {
        Ok(header) => header,
        Err(NoHeader::Foreign) => return Err(foreign(file, path, found)),
        Err(NoHeader::Damaged) => return Err(FileError::Damaged(path.to_owned())),
        Err(NoHeader::Newer { version, features, reader }) => {
            return Err(FileError::Newer { path: path.to_owned(), version, features, reader });
        }
    };
    let expected = layout.file_bytes();
    if found < expected {
        return Err(FileError::Truncated { path: path.to_owned(), found, expected });
    }
    if mode == OpenMode::ReadWrite && !writable {
        return Err(FileError::OnlyReadable(path.to_owned()));
    }
    Ok((fs_id, layout))
}

/// The error for a file that is not ours, with what is known of it.
fn foreign(file: &File, path: &Path, size: u64) -> FileError {
    let what = match contents_of(file, path, size) {
        Ok(FileContents::Other(what)) => what,
        _ => "nothing".to_owned(),
    };
    FileError::Foreign { path: path.to_owned(), what }
}

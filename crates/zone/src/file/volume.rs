//! Opening and looking into a volume's file.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rt::sync::atomic::{AtomicBool, AtomicU64};
use rt::sync::{Condvar, Mutex};
use rustix::fs::{FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;

use super::contents::{self, contents_of};
use super::device_metadata::{self, DeviceMetadata};
use super::error::is_read_only;
use super::format::{Layout, NoHeader};
use super::header::Headers;
use super::options::BLOCK_BYTES_MAX;
use super::slots::{Loaded, Slots};
use super::writes::Writes;
use super::{FileContents, FileDevice, FileError, OpenMode, State, ZoneExtra, search};
use crate::engine::Engine;
use crate::machine::Machine;
use crate::medium::MediumKind;
use crate::{Device, FsId, MetadataCopy, MetadataPart, ZoneId, ZoneInfo, ZoneState};

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
    pub(crate) fn kind(&self) -> MediumKind {
        let streams = self.streams;
        let kept = self.layout.preallocated;
        self.engine
            .discards()
            .map_or(MediumKind::File, |can| MediumKind::Disk { discards: can && !kept, streams })
    }

    /// Opens a volume that no copy of the header is left of, by what its zones say of themselves; writes nothing.
    /// Where zones of several volumes are left, the newest, or the one that is wanted. `progress` is told bytes searched,
    /// and bytes in all.
    ///
    /// # Errors
    /// When there is none, and when none is wanted and nothing tells which one is the newest.
    pub fn open_by_zones(
        path: &Path,
        wanted: Option<FsId>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<FileDevice, FileError> {
        let file = open_file(path, OpenMode::ReadOnly)?;
        let bytes = size_of(&file, path)?;
        let Some(shape) = search::find(&file, bytes, wanted, progress) else {
            return Err(FileError::NoZones(path.to_owned()));
        };
        if let Some(volumes) = shape.volumes() {
            return Err(FileError::Several { path: path.to_owned(), volumes });
        }
        FileDevice::of_headers(file, path, OpenMode::ReadOnly, shape.headers, Start::MayBeWritten)
    }

    /// Writes the header of a volume anew where an opening for writing does not do so by itself: where no copy of it
    /// is left, or the start was overwritten, perhaps by somebody who wants what is there now. What was found and
    /// done; nothing where there was nothing to do. What has a mark of another program is overwritten with `force` only.
    ///
    /// # Errors
    /// When zones do not tell for certain which volume it was, and where another program's mark stands.
    pub fn restore_header(
        path: &Path,
        force: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<RestoredHeader>, FileError> {
        let file = open_file(path, OpenMode::ReadWrite)?;
        let bytes = size_of(&file, path)?;
        let (headers, zones) = match Headers::read(&file, bytes) {
            Ok(headers) if !headers.start_is_damaged() => return Ok(None),
            Ok(headers) if !force => {
                refuse_marked(&file, path, bytes, &headers)?;
                (headers, None)
            }
            Ok(headers) => (headers, None),
            Err(NoHeader::Newer { version, features, reader }) => {
                return Err(FileError::Newer { path: path.to_owned(), version, features, reader });
            }
            Err(NoHeader::Damaged | NoHeader::Foreign) => {
                if !force {
                    refuse_foreign(&file, path, bytes)?;
                }
                let found = search::find(&file, bytes, None, progress);
                let shape = found.ok_or_else(|| FileError::NoZones(path.to_owned()))?;
                shape.refuse_uncertain(path)?;
                let zones = shape.headers.counts.is_none().then_some(shape.agreeing);
                (shape.headers, zones)
            }
        };
        let overwritten = mark_of_another(&file, bytes, &headers);
        let device = FileDevice::of_headers(file, path, OpenMode::ReadWrite, headers, Start::MayBeWritten)?;
        // The tables of states, too.
        device.flush().map_err(|error| FileError::io(path, "write the states of its zones", error))?;
        Ok(Some(RestoredHeader {
            fs_id: device.fs_id,
            zones,
            overwritten,
            repaired: device.repaired.clone(),
        }))
    }

    pub(super) fn open_locked(file: File, path: &Path, mode: OpenMode) -> Result<FileDevice, FileError> {
        let headers = read_header(&file, path)?;
        FileDevice::of_headers(file, path, mode, headers, Start::MayBeSomebodys)
    }

    fn of_headers(
        file: File,
        path: &Path,
        mode: OpenMode,
        mut headers: Headers,
        start: Start,
    ) -> Result<FileDevice, FileError> {
        let (fs_id, layout) = (headers.fs_id, headers.layout.clone());
        let device_bytes = check_header(&file, path, mode, &headers)?;
        let io = |error| FileError::io(path, "read it", error);
        let tables = [0, 1].map(|table| {
            device_metadata::read_table(&layout, table, |offset, into| file.read_exact_at(into, offset))
        });
        let (slots, loaded) = Slots::load(fs_id, layout.clone(), tables);
        if mode == OpenMode::ReadWrite && start == Start::MayBeSomebodys {
            refuse_overwritten(&file, path, device_bytes, &headers, loaded.is_empty())?;
        }
        let is_file = file.metadata().map_err(io)?.is_file();
        let end = headers.settle_end(&file, device_bytes, is_file);
        let unit = layout.geometry.block_size as usize;
        let streams = write_streams(&file);
        let engine = Engine::new(file, unit).map_err(io)?;
        let mut device = FileDevice {
            engine,
            fs_id,
            mode,
            metadata: Mutex::new(DeviceMetadata::new(headers, &layout, loaded.damaged)),
            repaired: Vec::new(),
            state: Mutex::new(state_of(&layout, slots, loaded)),
            layout,
            not_busy: Condvar::new(),
            flushing: Mutex::new(()),
            flushes: AtomicU64::new(0),
            metadata_bytes_written: AtomicU64::new(0),
            host_is_full: AtomicBool::new(false),
            streams,
        };
        match mode {
            OpenMode::ReadOnly => device.log_damage(),
            OpenMode::ReadWrite => {
                let repaired = device.repair_device_metadata(end, device_bytes);
                repaired.map_err(|error| FileError::io(path, "make its header durable", error))?;
            }
        }
        Ok(device)
    }
}

/// Whose the start of a device is whose header is damaged there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Perhaps that of another program which has taken the device over.
    MayBeSomebodys,
    /// The user says that it is the volume's.
    MayBeWritten,
}

/// What was done to write the header of a volume anew.
#[derive(Clone, Debug)]
pub struct RestoredHeader {
    /// The volume.
    pub fs_id: FsId,
    /// From the headers of how many zones it was made up, if no copy was left.
    pub zones: Option<u32>,
    /// What the device held by the mark of another program, if it had one.
    pub overwritten: Option<&'static str>,
    /// What was written.
    pub repaired: Vec<MetadataCopy>,
}

/// The state of a device that was just opened.
fn state_of(layout: &Layout, slots: Slots, loaded: Loaded) -> State {
    let Loaded { zones, discarded, unsure, .. } = loaded;
    let extra = |(info, discarded): (&ZoneInfo, &bool)| ZoneExtra {
        writes: Writes::up_to(info.pointer),
        busy: false,
        is_allocated: layout.preallocated || info.state != ZoneState::Empty,
        may_hold: !discarded,
        reset_undurable: false,
        dirty: false,
        stream: 0,
        has_data: false,
    };
    let may_hold = |zone: &ZoneId| {
        let index = zone.0 as usize;
        zones[index].state == ZoneState::Empty && !discarded[index] && !layout.preallocated
    };
    let mut state = State {
        is_unsure: true,
        to_discard: (0..layout.geometry.zones).map(ZoneId).filter(may_hold).collect(),
        zones: zones.iter().zip(&discarded).map(extra).collect(),
        machine: Machine::new(layout.geometry.clone(), zones),
        slots,
        dirty: Vec::new(),
        broken: None,
    };
    unsure.into_iter().for_each(|zone| state.mark_dirty(zone));
    state
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

/// Bytes of a file or block device. Refuses a device that has none: a drive without a medium, say.
pub(super) fn size_of(file: &File, path: &Path) -> Result<u64, FileError> {
    let size = rustix::fs::seek(file, SeekFrom::End(0));
    let size = size.map_err(|errno| FileError::io(path, "find its size", errno))?;
    let is_device = || file.metadata().is_ok_and(|about| about.file_type().is_block_device());
    if size == 0 && is_device() {
        let why = "the device has 0 bytes; put a medium into it, or attach something to it (`losetup`, `lsblk` lists \
                   devices with their sizes)";
        return Err(FileError::Unsuitable { path: path.to_owned(), why: why.to_owned() });
    }
    Ok(size)
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

fn read_header(file: &File, path: &Path) -> Result<Headers, FileError> {
    let bytes = size_of(file, path)?;
    Headers::read(file, bytes).or_else(|why| match why {
        NoHeader::Newer { version, features, reader } => {
            Err(FileError::Newer { path: path.to_owned(), version, features, reader })
        }
        NoHeader::Foreign | NoHeader::Damaged => Err(no_header(file, path, bytes)?),
    })
}

/// Refuses what a header says that cannot be used so. Returns the bytes of the device.
fn check_header(file: &File, path: &Path, mode: OpenMode, headers: &Headers) -> Result<u64, FileError> {
    let (found, expected) = (size_of(file, path)?, headers.layout.file_bytes());
    if found < expected {
        return Err(FileError::Truncated { path: path.to_owned(), found, expected });
    }
    if mode == OpenMode::ReadWrite && !headers.is_writable {
        return Err(FileError::OnlyReadable(path.to_owned()));
    }
    Ok(found)
}

/// Refuses to write a header over what may be somebody's. A start that is damaged may be one that another program has
/// taken over: where it shows a mark of one, or nothing that is Polder's any more, a person has to say so.
fn refuse_overwritten(
    file: &File,
    path: &Path,
    device_bytes: u64,
    headers: &Headers,
    has_no_states: bool,
) -> Result<(), FileError> {
    if !headers.start_is_damaged() {
        return Ok(());
    }
    refuse_marked(file, path, device_bytes, headers)?;
    let is_gone = headers.counts == Some(MetadataPart::EndHeader) && has_no_states;
    let error = || FileError::Overwritten { path: path.to_owned(), fs_id: headers.fs_id, what: None };
    if is_gone { Err(error()) } else { Ok(()) }
}

/// Refuses to write a header over the mark of another program.
fn refuse_marked(file: &File, path: &Path, bytes: u64, headers: &Headers) -> Result<(), FileError> {
    let Some(mark) = mark_of_another(file, bytes, headers) else { return Ok(()) };
    let what = Some(mark.to_owned());
    Err(FileError::Overwritten { path: path.to_owned(), fs_id: headers.fs_id, what })
}

/// The mark of another program, beside what is left of the volume.
fn mark_of_another(file: &File, bytes: u64, headers: &Headers) -> Option<&'static str> {
    match headers.counts {
        Some(MetadataPart::FirstHeader | MetadataPart::SecondHeader) => contents::known_beside_header(file),
        _ => contents::known_without_header(file, bytes),
    }
}

/// Refuses what has the mark of another program, whether there is anything of a volume or not.
fn refuse_foreign(file: &File, path: &Path, bytes: u64) -> Result<(), FileError> {
    if contents::known_without_header(file, bytes).is_none() {
        return Ok(());
    }
    Err(no_header(file, path, bytes)?)
}

/// The error for a file without a header, with what is known of it.
fn no_header(file: &File, path: &Path, bytes: u64) -> Result<FileError, FileError> {
    let path_of = || path.to_owned();
    Ok(match contents_of(file, path, bytes)? {
        FileContents::Damaged { what } => FileError::Damaged { path: path_of(), what },
        FileContents::Other(what) => FileError::Foreign { path: path_of(), what },
        _ if bytes == 0 => {
            FileError::Foreign { path: path_of(), what: "nothing, the file is empty (0 bytes)".to_owned() }
        }
        _ => FileError::Foreign { path: path_of(), what: "nothing".to_owned() },
    })
}

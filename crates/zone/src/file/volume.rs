//! Opens and probes a volume's file.

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
use crate::medium_kind::MediumKind;
use crate::set::MemberLabel;
use crate::{Device, FsId, MetadataCopy, MetadataPart, ZoneId, ZoneInfo, ZoneState};

impl FileDevice {
    /// Opens a volume, and locks it until the device is dropped.
    pub fn open(path: &Path, mode: OpenMode) -> Result<FileDevice, FileError> {
        FileDevice::open_locked(open_file(path, mode)?, path, mode)
    }

    /// The contents of a path: nothing, zeros, a volume, or something else. Changes nothing and needs no lock.
    pub fn probe(path: &Path) -> Result<FileContents, FileError> {
        let opened = check_kind(path).and_then(|()| File::open(path).map_err(|error| refusal(path, error)));
        let file = match opened {
            Err(FileError::NotFound(_)) => return Ok(FileContents::Nothing),
            opened => opened?,
        };
        let size = size_of(&file, path)?;
        contents_of(&file, path, size)
    }

    /// The label of a member of a set at a path; `None` if it is something else, or cannot be read. Changes nothing and
    /// needs no lock.
    pub(crate) fn member_label(path: &Path) -> Option<MemberLabel> {
        check_kind(path).ok()?;
        let file = File::open(path).ok()?;
        contents::member_label(&file, size_of(&file, path).ok()?)
    }

    /// Whether it is a member of a set.
    pub(crate) fn is_member(&self) -> bool {
        self.layout.is_member
    }

    /// The kind of its medium.
    pub(crate) fn kind(&self) -> MediumKind {
        let streams = self.streams;
        let kept = self.layout.preallocated;
        self.engine
            .discards()
            .map_or(MediumKind::File, |can| MediumKind::Disk { discards: can && !kept, streams })
    }

    /// Opens a volume without a header for reading, by the headers of its zones; writes nothing. If there are zones
    /// of several volumes, it opens the newest, or the volume `wanted`. `progress` receives the bytes searched and
    /// the total.
    ///
    /// # Errors
    /// If there is no volume, and if `wanted` is `None` and the newest one cannot be determined.
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
        FileDevice::of_headers(file, path, OpenMode::ReadOnly, shape.headers, Start::IsConfirmed)
    }

    /// Restores the header of a volume in the cases in which an open for writing does not do so: if no copy is left,
    /// or if the start was overwritten, perhaps on purpose. Returns what was found and done, or `None` if the header
    /// is intact. The signature of another program is overwritten only with `force`.
    ///
    /// # Errors
    /// If the zones do not identify the volume with certainty, and if there is a signature of another program.
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
                refuse_foreign_signature(&file, path, bytes, &headers)?;
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
        let overwritten = foreign_signature(&file, bytes, &headers);
        let device = FileDevice::of_headers(file, path, OpenMode::ReadWrite, headers, Start::IsConfirmed)?;
        // This repairs the tables of states, too.
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
        FileDevice::of_headers(file, path, mode, headers, Start::MayBeForeign)
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
        if mode == OpenMode::ReadWrite && start == Start::MayBeForeign {
            refuse_overwritten(&file, path, device_bytes, &headers, loaded.is_empty())?;
        }
        let is_file = file.metadata().map_err(io)?.is_file();
        let end = headers.place_end_copy(&file, device_bytes, is_file);
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
                repaired.map_err(|error| FileError::io(path, "sync its header", error))?;
            }
        }
        Ok(device)
    }
}

/// Whether a damaged start of a device belongs to the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Another program may use the device now.
    MayBeForeign,
    /// The user has confirmed that it belongs to the volume.
    IsConfirmed,
}

/// The result of restoring the header of a volume.
#[derive(Clone, Debug)]
pub struct RestoredHeader {
    /// The volume.
    pub fs_id: FsId,
    /// The number of zone headers from which it was derived, if no copy was left.
    pub zones: Option<u32>,
    /// The other contents of the device according to their signature, if there was one.
    pub overwritten: Option<&'static str>,
    /// The copies that were written.
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

/// The physical block size of a disk, rounded up to a power of two; 1 if it is not a disk or the size is not known. A
/// larger size than 64 KiB, for example of an array of disks, counts as 64 KiB.
pub(crate) fn physical_block(path: &Path) -> u32 {
    // If it cannot be opened, a later step reports the reason.
    let is_disk = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let disk = is_disk.then(|| File::open(path).ok()).flatten();
    disk.map_or(1, |disk| physical_block_of(&disk).unwrap_or(1))
}

pub(super) fn physical_block_of(disk: &File) -> std::io::Result<u32> {
    Ok(rustix::fs::ioctl_blkpbszget(disk)?.clamp(1, BLOCK_BYTES_MAX).next_power_of_two())
}

/// Opens and locks an existing file or block device.
pub(super) fn open_file(path: &Path, mode: OpenMode) -> Result<File, FileError> {
    check_kind(path)?;
    let writable = mode == OpenMode::ReadWrite;
    let device = std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device());
    let is_device = device.is_some();
    // Some kernels permit the open nevertheless, and then every write fails.
    if device.is_some_and(|device| writable && is_read_only(device.rdev())) {
        return Err(FileError::read_only(path));
    }
    // On a block device this prevents mounts.
    let exclusive = if is_device && writable { OFlags::EXCL } else { OFlags::empty() };
    let opened =
        OpenOptions::new().read(true).write(writable).custom_flags(exclusive.bits() as i32).open(path);
    let file = opened.map_err(|error| refusal(path, error))?;
    lock(&file, path, mode)?;
    Ok(file)
}

/// Refuses a path that cannot contain a volume. Checked before it is opened, because opening a pipe waits for its
/// other end.
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

/// The error for a path that the system does not open.
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

/// The size of a file or block device in bytes. Refuses a device of size 0, for example a drive without a medium.
pub(super) fn size_of(file: &File, path: &Path) -> Result<u64, FileError> {
    let size = rustix::fs::seek(file, SeekFrom::End(0));
    let size = size.map_err(|errno| FileError::io(path, "find its size", errno))?;
    let is_device = || file.metadata().is_ok_and(|about| about.file_type().is_block_device());
    if size == 0 && is_device() {
        let why = "the device has 0 bytes; insert a medium, or attach a file to it (`losetup`, `lsblk` lists \
                   devices with their sizes)";
        return Err(FileError::Unsuitable { path: path.to_owned(), why: why.to_owned() });
    }
    Ok(size)
}

/// The number of write streams of a block device; 0 if the kernel reports none (before Linux 6.16, or a file).
fn write_streams(file: &File) -> u8 {
    let Ok(about) = file.metadata() else { return 0 };
    if !about.file_type().is_block_device() {
        return 0;
    }
    let (major, minor) = (rustix::fs::major(about.rdev()), rustix::fs::minor(about.rdev()));
    // A partition has no queue of its own, and the kernel accepts no streams through a partition.
    let path = format!("/sys/dev/block/{major}:{minor}/queue/max_write_streams");
    let text = std::fs::read_to_string(path).ok();
    let streams: u64 = text.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
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

/// Refuses a device that does not match its header, or that this release may not write. Returns the bytes of the
/// device.
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

/// Refuses to overwrite data of others with a header. If the start is damaged, another program may use the device
/// now: if there is a signature of one, or if nothing of Polder is left there, the user must confirm it.
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
    refuse_foreign_signature(file, path, device_bytes, headers)?;
    let is_gone = headers.counts == Some(MetadataPart::EndHeader) && has_no_states;
    let error = || FileError::Overwritten { path: path.to_owned(), fs_id: headers.fs_id, what: None };
    if is_gone { Err(error()) } else { Ok(()) }
}

/// Refuses to write a header over the signature of another program.
fn refuse_foreign_signature(
    file: &File,
    path: &Path,
    bytes: u64,
    headers: &Headers,
) -> Result<(), FileError> {
    let Some(mark) = foreign_signature(file, bytes, headers) else { return Ok(()) };
    let what = Some(mark.to_owned());
    Err(FileError::Overwritten { path: path.to_owned(), fs_id: headers.fs_id, what })
}

/// The signature of another program, beside the rest of the volume.
fn foreign_signature(file: &File, bytes: u64, headers: &Headers) -> Option<&'static str> {
    match headers.counts {
        Some(MetadataPart::FirstHeader | MetadataPart::SecondHeader) => {
            contents::signature_behind_headers(file)
        }
        _ => contents::signature_without_header(file, bytes),
    }
}

/// Refuses a device with the signature of another program, whether there are traces of a volume or not.
fn refuse_foreign(file: &File, path: &Path, bytes: u64) -> Result<(), FileError> {
    if contents::signature_without_header(file, bytes).is_none() {
        return Ok(());
    }
    Err(no_header(file, path, bytes)?)
}

/// The error for a file without a header, with its contents as far as they are known.
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

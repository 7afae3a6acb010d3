//! Making, opening and looking into a volume's file.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use rt::sync::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;

use super::contents::{contents_of, find_header};
use super::engine::Engine;
use super::format::{HEADER_BYTES, Layout, NoHeader, encode_header};
use super::slots::Slots;
use super::writes::Writes;
use super::{FileContents, FileDevice, FileError, FileOptions, OpenMode, State, ZoneExtra};
use crate::machine::Machine;
use crate::{FsId, ZoneId, ZoneInfo, ZoneState};

impl FileDevice {
    /// Makes a volume with empty zones in a file, which is made too if there is none, and opens it.
    /// Refuses to overwrite what a file holds unless told to.
    pub fn create(path: &Path, options: &FileOptions) -> Result<FileDevice, FileError> {
        let found = open_file(path, OpenMode::ReadWrite);
        let is_new = matches!(found, Err(FileError::NotFound(_)));
        if is_new {
            let why = "a file that is not there yet needs one; say how large it is to be";
            let size = options.size.ok_or(FileError::Option { option: "size", value: 0, why })?;
            options.layout(size)?;
        }
        let file = if is_new { make_file(path)? } else { found? };
        let made = fill(&file, path, options, is_new);
        if made.is_err() && is_new {
            // It was made by this call and is locked by it, so nothing of anybody's is in it.
            let _ = std::fs::remove_file(path);
        }
        made?;
        FileDevice::open_locked(file, path, OpenMode::ReadWrite)
    }

    /// Opens a volume, and keeps it from being opened by others until it is dropped.
    pub fn open(path: &Path, mode: OpenMode) -> Result<FileDevice, FileError> {
        FileDevice::open_locked(open_file(path, mode)?, path, mode)
    }

    /// What is at a path: nothing, nothing of value, a volume, or something else. Changes nothing
    /// and needs no lock.
    pub fn probe(path: &Path) -> Result<FileContents, FileError> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FileContents::Nothing),
            opened => opened.map_err(|error| FileError::io(path, "open it", error))?,
        };
        let size = size_of(&file, path)?;
        contents_of(&file, path, size)
    }

    fn open_locked(file: File, path: &Path, mode: OpenMode) -> Result<FileDevice, FileError> {
        let (fs_id, layout) = read_header(&file, path, mode)?;
        let tables = [0, 1].map(|table| {
            let mut bytes = vec![0; layout.table_bytes()];
            let read = file.read_exact_at(&mut bytes, layout.table_offset(table));
            read.map(|()| bytes).map_err(|error| FileError::io(path, "read the states of its zones", error))
        });
        let [first, second] = tables;
        let (slots, zones) = Slots::load(fs_id, layout.clone(), [first?, second?]);
        let unit = layout.geometry.block_size as usize;
        let engine = Engine::new(file, unit).map_err(|error| FileError::io(path, "read it", error))?;
        Ok(FileDevice {
            engine,
            fs_id,
            mode,
            state: Mutex::new(state_of(&layout, slots, zones)),
            layout,
            calm: Condvar::new(),
            flushing: Mutex::new(()),
            flushes: AtomicU64::new(0),
            own_bytes: AtomicU64::new(0),
        })
    }
}

/// The state of a device that was just opened.
fn state_of(layout: &Layout, slots: Slots, zones: Vec<ZoneInfo>) -> State {
    let extra = |info: &ZoneInfo| ZoneExtra {
        writes: Writes::up_to(info.pointer),
        busy: false,
        is_taken: layout.preallocated || info.state != ZoneState::Empty,
        may_hold: true,
        reset_undurable: false,
        dirty: false,
    };
    let is_empty = |zone: &ZoneId| zones[zone.0 as usize].state == ZoneState::Empty;
    State {
        is_unsure: true,
        leftovers: (0..layout.geometry.zones).map(ZoneId).filter(is_empty).collect(),
        zones: zones.iter().map(extra).collect(),
        machine: Machine::new(layout.geometry.clone(), zones),
        slots,
        dirty: Vec::new(),
        broken: None,
    }
}

/// Opens a file or block device that is there, and locks it.
fn open_file(path: &Path, mode: OpenMode) -> Result<File, FileError> {
    let writable = mode == OpenMode::ReadWrite;
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    // On a block device this keeps out whoever mounts it.
    let exclusive = if is_device && writable { OFlags::EXCL } else { OFlags::empty() };
    let opened =
        OpenOptions::new().read(true).write(writable).custom_flags(exclusive.bits() as i32).open(path);
    let file = opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => FileError::NotFound(path.to_owned()),
        ErrorKind::ResourceBusy => FileError::InUse(path.to_owned()),
        _ => FileError::io(path, "open it", error),
    })?;
    lock(&file, path, mode)?;
    Ok(file)
}

fn make_file(path: &Path) -> Result<File, FileError> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = made.map_err(|error| FileError::io(path, "make it", error))?;
    lock(&file, path, OpenMode::ReadWrite)?;
    Ok(file)
}

fn lock(file: &File, path: &Path, mode: OpenMode) -> Result<(), FileError> {
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
fn size_of(file: &File, path: &Path) -> Result<u64, FileError> {
    rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| FileError::io(path, "find its size", errno))
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

/// Puts an empty volume into a locked file. The header goes last: where it is, all else is.
fn fill(file: &File, path: &Path, options: &FileOptions, is_new: bool) -> Result<(), FileError> {
    let present = size_of(file, path)?;
    if !is_new && !options.force {
        refuse_contents(&contents_of(file, path, present)?, path)?;
    }
    let size = options.size.unwrap_or(present);
    let layout = options.layout(size)?;
    let io = |operation| move |error: std::io::Error| FileError::io(path, operation, error);
    let is_file = file.metadata().map_err(io("look at it"))?.is_file();
    if is_file {
        // All old contents go, and with them what an earlier volume left in its zones.
        file.set_len(0).and_then(|()| file.set_len(size)).map_err(io("give it its size"))?;
    } else if present < layout.file_bytes() {
        return Err(FileError::Truncated {
            path: path.to_owned(),
            found: present,
            expected: layout.file_bytes(),
        });
    } else {
        file.write_all_at(&[0; 2 * HEADER_BYTES], 0)
            .and_then(|()| file.sync_data())
            .map_err(io("write to it"))?;
    }
    if is_file && options.preallocate {
        preallocate(file, path, size)?;
    }
    for page in Slots::new(options.fs_id, layout.clone()).take_changed() {
        file.write_all_at(&page.bytes, page.offset).map_err(io("write to it"))?;
    }
    file.sync_all().map_err(io("make it durable"))?;
    let header = encode_header(options.fs_id, &layout);
    file.write_all_at(&[header.clone(), header].concat(), 0).map_err(io("write to it"))?;
    file.sync_all().map_err(io("make it durable"))?;
    sync_directory(path).map_err(io("make its name durable"))
}

fn refuse_contents(contents: &FileContents, path: &Path) -> Result<(), FileError> {
    let what = match contents {
        FileContents::Nothing | FileContents::Blank => return Ok(()),
        FileContents::Volume { fs_id, .. } => format!("the Polder volume {fs_id}"),
        FileContents::Other(what) => what.clone(),
    };
    Err(FileError::HoldsData { path: path.to_owned(), what })
}

fn preallocate(file: &File, path: &Path, size: u64) -> Result<(), FileError> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size).map_err(|errno| {
        // What the host has given so far goes back.
        let _ = file.set_len(0);
        match errno {
            Errno::NOSPC | Errno::DQUOT => FileError::HostFull { path: path.to_owned(), size },
            errno => FileError::io(path, "take its blocks", errno),
        }
    })
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

//! Creates a volume in a file.
//!
//! This has two steps: a draft makes all checks and writes nothing, and `make` writes. The old contents of the file
//! stay until all checks have passed: those of this module for the file, and those of the owner of the draft for the
//! contents of the device.
//!
//! The header is written last, all its copies together: if one copy exists, everything else does.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::contents::contents_of;
use super::format::{FILE_MAGIC, HEADER_BYTES, Layout, encode_header, end_copy_place};
use super::header::Headers;
use super::slots::Slots;
use super::volume::{lock, open_file, physical_block_of, size_of};
use super::{FileContents, FileDevice, FileError, FileOptions, OpenMode};
use crate::{Blocks, Geometry};

/// A volume that can be created as far as its file is concerned. Nothing is written yet; an existing file is locked.
pub struct FileDraft {
    path: PathBuf,
    options: FileOptions,
    layout: Layout,
    /// The intended size of the file in bytes.
    size: u64,
    /// The file, if it exists.
    found: Option<File>,
}

impl FileDevice {
    /// Prepares a volume with empty zones in a file. Refuses to overwrite contents unless the options permit it.
    pub fn draft(path: &Path, options: &FileOptions) -> Result<FileDraft, FileError> {
        let (size, found) = match open_file(path, OpenMode::ReadWrite) {
            Err(FileError::NotFound(path)) => {
                let what = "the file does not exist yet";
                (options.size.ok_or(FileError::NoSize { path, what })?, None)
            }
            found => {
                let file = found?;
                let present = size_of(&file, path)?;
                if !options.force {
                    refuse_contents(&contents_of(&file, path, present)?, path)?;
                }
                let what = "the file is empty (0 bytes)";
                let no_size = FileError::NoSize { path: path.to_owned(), what };
                let present = Some(present).filter(|&present| present > 0);
                (options.size.or(present).ok_or(no_size)?, Some(file))
            }
        };
        let draft = FileDraft {
            path: path.to_owned(),
            options: options.clone(),
            layout: options.layout(size)?,
            size,
            found,
        };
        draft.check_space()?;
        Ok(draft)
    }

    /// Creates a volume as [`FileDevice::draft`] describes, creates its file if there is none, and opens it.
    pub fn create(path: &Path, options: &FileOptions) -> Result<FileDevice, FileError> {
        FileDevice::draft(path, options)?.make(&mut |_, _| {})
    }
}

impl FileDraft {
    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// The capacity of its last zone.
    pub fn last_zone(&self) -> Blocks {
        self.layout.last_zone_blocks.min(self.layout.geometry.zone_blocks)
    }

    /// Its file or device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is no file yet.
    pub fn is_new(&self) -> bool {
        self.found.is_none()
    }

    /// Creates the file, if there is none, and asks the host for its space. Returns whether it was created. If this fails,
    /// no file is left.
    pub fn create_file(&mut self) -> Result<bool, FileError> {
        if self.found.is_some() {
            return Ok(false);
        }
        self.found = Some(make_file(&self.path)?);
        if let Err(error) = self.check_space() {
            // This call created and locked it.
            let _ = std::fs::remove_file(&self.path);
            return Err(error);
        }
        Ok(true)
    }

    /// Creates the volume and opens it; old contents are lost. While the host's blocks are allocated, `allocated`
    /// receives the bytes so far and the total.
    pub fn make(mut self, allocated: &mut dyn FnMut(u64, u64)) -> Result<FileDevice, FileError> {
        let is_new = self.create_file()?;
        let Some(file) = self.found.take() else { return Err(FileError::NotFound(self.path)) };
        let filled = self.fill(&file, allocated);
        if filled.is_err() && is_new {
            // This call created and locked it, so it contains no data of others.
            let _ = std::fs::remove_file(&self.path);
        }
        filled?;
        FileDevice::open_locked(file, &self.path, OpenMode::ReadWrite)
    }

    /// Makes the requests that the host may refuse; the contents of the file stay.
    fn check_space(&self) -> Result<(), FileError> {
        let Some(file) = &self.found else { return Ok(()) };
        let present = size_of(file, &self.path)?;
        if !self.is_file(file)? {
            self.check_blocks_are_whole(file)?;
            let expected = self.layout.device_bytes();
            let is_enough = present >= expected;
            let error = FileError::Truncated { path: self.path.clone(), found: present, expected };
            return if is_enough { Ok(()) } else { Err(error) };
        }
        // Free blocks are only counted: if another program takes some now, the error occurs after the old contents
        // are gone.
        let tried = file.set_len(self.size.max(present));
        file.set_len(present).and(tried).map_err(self.io("set its size"))?;
        if self.options.preallocate { check_blocks(file, &self.path, self.size) } else { Ok(()) }
    }

    /// If a block is smaller than the blocks that the disk writes atomically, a power loss may tear it or damage its
    /// neighbours.
    fn check_blocks_are_whole(&self, disk: &File) -> Result<(), FileError> {
        let whole = physical_block_of(disk).map_err(self.io("find its block size"))?;
        let value = self.layout.geometry.block_size;
        let why = "it must be at least the physical block size of the disk (`blockdev --getpbsz` shows it)";
        let error = FileError::Option { option: "block size", value: value.into(), why };
        if value < whole { Err(error) } else { Ok(()) }
    }

    /// Writes an empty volume to the locked file.
    fn fill(&self, file: &File, allocated: &mut dyn FnMut(u64, u64)) -> Result<(), FileError> {
        if self.is_file(file)? {
            // All old contents are removed, also the zones of an earlier volume.
            let sized = file.set_len(0).and_then(|()| file.set_len(self.size));
            sized.map_err(self.io("set its size"))?;
            if self.options.preallocate {
                allocate_blocks(file, &self.path, self.size, allocated)?;
            }
        } else {
            self.remove_headers(file).map_err(self.io("write to it"))?;
        }
        let fs_id = self.options.fs_id;
        // A disk may still have old contents; a file was truncated to nothing.
        let is_discarded = self.is_file(file)? && !self.options.preallocate;
        for page in Slots::new(fs_id, self.layout.clone(), is_discarded).take_changed() {
            file.write_all_at(&page.bytes, page.offset).map_err(self.io("write to it"))?;
        }
        file.sync_all().map_err(self.io("sync it"))?;
        let header = encode_header(fs_id, &self.layout);
        if let Some(place) = self.layout.end_copy {
            file.write_all_at(&header, place).map_err(self.io("write to it"))?;
        }
        file.write_all_at(&[header.clone(), header].concat(), 0).map_err(self.io("write to it"))?;
        file.sync_all().map_err(self.io("sync it"))?;
        sync_directory(&self.path).map_err(self.io("sync its directory"))
    }

    /// Durably removes all header copies of a volume that the disk may contain, before anything else of it is
    /// overwritten: a remaining copy would describe a volume that is damaged.
    fn remove_headers(&self, disk: &File) -> std::io::Result<()> {
        let bytes = size_of(disk, &self.path).map_err(std::io::Error::other)?;
        let known = Headers::read(disk, bytes).ok().and_then(|headers| headers.layout.end_copy);
        let end_copies = [known, end_copy_place(bytes), self.layout.end_copy];
        for place in end_copies.into_iter().flatten() {
            let mut found = vec![0; FILE_MAGIC.len()];
            // Only headers of Polder are removed: the volume may be shorter than the disk.
            if disk.read_exact_at(&mut found, place).is_ok() && found == FILE_MAGIC {
                disk.write_all_at(&[0; HEADER_BYTES], place)?;
            }
        }
        disk.write_all_at(&[0; 2 * HEADER_BYTES], 0)?;
        disk.sync_data()
    }

    fn is_file(&self, file: &File) -> Result<bool, FileError> {
        Ok(file.metadata().map_err(self.io("read it"))?.is_file())
    }

    fn io(&self, operation: &'static str) -> impl Fn(std::io::Error) -> FileError {
        move |error| FileError::io(&self.path, operation, error)
    }
}

fn make_file(path: &Path) -> Result<File, FileError> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = made.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => FileError::denied(path, &error),
        _ => FileError::io(path, "make it", error),
    })?;
    lock(&file, path, OpenMode::ReadWrite)?;
    Ok(file)
}

fn refuse_contents(contents: &FileContents, path: &Path) -> Result<(), FileError> {
    let what = match contents {
        FileContents::Nothing | FileContents::Blank => return Ok(()),
        FileContents::Volume { fs_id, .. } => format!("the Polder volume {fs_id}"),
        FileContents::Member(label) => format!("a member of the Polder volume {}", label.fs_id()),
        FileContents::Damaged { .. } => {
            "a damaged Polder volume, which `polder check --repair` may repair".to_owned()
        }
        FileContents::Other(what) => what.clone(),
    };
    Err(FileError::HoldsData { path: path.to_owned(), what })
}

/// Checks that the host has enough free blocks for a file of `size` bytes, in addition to those that the file has.
fn check_blocks(file: &File, path: &Path, size: u64) -> Result<(), FileError> {
    const SECTOR: u64 = 512;
    let io = |error| FileError::io(path, "allocate its blocks", error);
    let present = file.metadata().map_err(io)?.blocks() * SECTOR;
    let host = rustix::fs::fstatvfs(file).map_err(|errno| io(errno.into()))?;
    if size > present.saturating_add(host.f_bfree.saturating_mul(host.f_frsize)) {
        return Err(FileError::HostFull { path: path.to_owned(), size });
    }
    Ok(())
}

/// Allocates all of the host's blocks for a file, in pieces, because some hosts write zeros for it.
fn allocate_blocks(
    file: &File,
    path: &Path,
    size: u64,
    allocated: &mut dyn FnMut(u64, u64),
) -> Result<(), FileError> {
    const PIECE: u64 = 64 << 20;
    // Checked first, because the host would allocate all free blocks before it fails.
    check_blocks(file, path, size)?;
    for at in (0..size).step_by(PIECE as usize) {
        let length = PIECE.min(size - at);
        let done = rustix::fs::fallocate(file, FallocateFlags::empty(), at, length);
        done.map_err(|errno| match errno {
            Errno::NOSPC | Errno::DQUOT => FileError::HostFull { path: path.to_owned(), size },
            errno => FileError::io(path, "allocate its blocks", errno),
        })?;
        allocated(at + length, size);
    }
    Ok(())
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

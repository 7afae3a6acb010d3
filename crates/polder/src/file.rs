//! Open files.

mod cursor;

use std::time::SystemTime;

use fs::{Changes, FallocateMode, FsError, Lifetime, LockMode, LockRange};
use rt::sync::Mutex;

use crate::access::Opened;
use crate::call::{FileCall, PairCall};
use crate::error::{Error, Result};
use crate::metadata::{Metadata, Times};

/// An open file.
///
/// Any number of threads may use it at the same time. Offsets and lengths are in bytes. Two writes to the same bytes at
/// the same time leave one of them, never a mixture within a block. A read sees each write completely or not at all.
///
/// The file also has a cursor for [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`], which are implemented
/// for `File` and `&File`. There is no buffer: wrap the file in a [`std::io::BufReader`] or [`std::io::BufWriter`] for
/// small pieces.
///
/// An open file keeps its volume open. It can be used after the [`Volume`](crate::Volume) was dropped, and until
/// [`Volume::close`](crate::Volume::close) is called. Dropping the file makes nothing durable: call
/// [`File::sync_data`] for that. A file whose last name was removed exists until it is dropped.
///
/// ```
/// # let place = tempfile::tempdir().unwrap();
/// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
/// let file = volume.options().read(true).write(true).create(true).open("/journal")?;
/// assert_eq!(file.append(b"one ")?, 0);
/// assert_eq!(file.append(b"two")?, 4);
/// file.sync_data()?;
/// let mut bytes = [0; 3];
/// file.read_exact_at(&mut bytes, 4)?;
/// assert_eq!(&bytes, b"two");
/// # Ok::<(), polder::Error>(())
/// ```
#[derive(Debug)]
pub struct File {
    opened: Opened,
    /// Where the next read or write without an offset begins.
    cursor: Mutex<u64>,
}

impl File {
    pub(crate) fn new(opened: Opened) -> File {
        File { opened, cursor: Mutex::new(0) }
    }

    /// Reads at an offset. Returns the number of bytes, which is smaller than requested only at the end of the file.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.opened.read(into, offset)
    }

    /// Reads at an offset until `into` is full.
    ///
    /// # Errors
    /// [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof) if the file ends before that. The contents of `into` are
    /// not defined then.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        let wanted = into.len();
        match self.read_at(into, offset)? {
            read if read == wanted => Ok(()),
            _ => Err(Error::EndOfFile),
        }
    }

    /// Writes at an offset. Returns the number of bytes, which is smaller than given only if space ran out on the way.
    /// A file that was opened for appending writes at its end instead.
    ///
    /// # Errors
    /// [`StorageFull`](std::io::ErrorKind::StorageFull) if nothing could be written. Polder first collects all garbage,
    /// so this call can take long on a nearly full volume.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.opened.write(data, offset)
    }

    /// Writes all of `data` at an offset.
    ///
    /// # Errors
    /// As [`File::write_at`]. A part of the data may have been written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset.saturating_add(done as u64))?;
        }
        Ok(())
    }

    /// Writes all of `data` at the end of the file, however it was opened for writing. Returns the offset of the data.
    /// Appends of several threads do not mix and overwrite nothing.
    ///
    /// # Errors
    /// As [`File::write_at`]. If space runs out on the way, a first part of the data can be at the end of the file. If
    /// another thread then appends before space is found for the rest, a piece of the rest can be behind its data.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let (offset, mut done) = self.append_once(data)?;
        while done < data.len() {
            let (at, written) = self.append_once(&data[done..])?;
            if at != offset.saturating_add(done as u64) {
                // Another append is in between.
                return Err(FsError::NoSpace.into());
            }
            done += written;
        }
        Ok(offset)
    }

    /// Sets the length. A longer file ends with a hole, which reads as zeros.
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.change(Changes { size: Some(length), ..Changes::default() })
    }

    /// Allocates space for a range, so that writing there later does not fail for lack of space. What was not written
    /// reads as zeros. The file becomes longer if the range ends behind its end.
    pub fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.fallocate(FallocateMode::Allocate { keep_size: false }, offset, length)
    }

    /// Frees the space of a range, which then reads as zeros. The length of the file stays.
    pub fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.fallocate(FallocateMode::PunchHole, offset, length)
    }

    /// Changes the space of a range in one of the ways of `fallocate(2)`. [`FallocateMode::CollapseRange`] and
    /// [`FallocateMode::InsertRange`] need whole blocks.
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        self.opened.call(FileCall::Allocate { mode, offset, length }).map(drop)
    }

    /// The offset of the first byte at or after `offset` that is data. Holes are found in units of blocks.
    ///
    /// # Errors
    /// [`FsError::NoData`] (`ENXIO`) if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.opened.call(FileCall::SeekData { offset })?.number()
    }

    /// The offset of the first byte at or after `offset` that is in a hole. The end of the file counts as one.
    ///
    /// # Errors
    /// [`FsError::NoData`] (`ENXIO`) if `offset` is not before the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.opened.call(FileCall::SeekHole { offset })?.number()
    }

    /// Makes everything durable that was written to the file, and the file's name. When this returns, it survives a
    /// loss of power. Everything that was changed anywhere in the volume before becomes durable too.
    ///
    /// # Errors
    /// The device has failed. The volume then accepts no changes until it is opened again. The next call for each other
    /// file that is open fails too, once.
    pub fn sync_data(&self) -> Result<()> {
        self.opened.call(FileCall::Sync { data_only: true }).map(drop)
    }

    /// The same as [`File::sync_data`], with all attributes. In Polder both cost the same.
    pub fn sync_all(&self) -> Result<()> {
        self.opened.call(FileCall::Sync { data_only: false }).map(drop)
    }

    /// The attributes of the file.
    pub fn metadata(&self) -> Result<Metadata> {
        self.opened.call(FileCall::Metadata)?.attributes().map(Metadata)
    }

    /// Sets the permission bits, for example 0o644.
    pub fn set_permissions(&self, permissions: u16) -> Result<()> {
        self.change(Changes { permissions: Some(permissions), ..Changes::default() })
    }

    /// Sets the times.
    pub fn set_times(&self, times: Times) -> Result<()> {
        self.change(times.changes())
    }

    /// Sets the time of the last change of the contents.
    pub fn set_modified(&self, time: SystemTime) -> Result<()> {
        self.set_times(Times { modified: Some(time), ..Times::default() })
    }

    /// Sets how long data is expected to live that is written through this handle from now on. Data of one lifetime is
    /// stored together, which makes garbage collection cheaper. `None`: as the file's own
    /// ([`Volume::set_lifetime`](crate::Volume::set_lifetime)).
    pub fn set_lifetime(&self, lifetime: Option<Lifetime>) {
        // It is a hint. The next operation reports that the volume is closed.
        let _ = self.opened.call(FileCall::SetLifetime { lifetime });
    }

    /// Copies up to `length` bytes at `offset` to another file of the same volume. Whole blocks are shared where that
    /// pays, so the copy takes little time and space. Returns the number of copied bytes. It is smaller than `length`
    /// at the end of this file, or if much had to be read and written; then call it again for the rest.
    pub fn copy_range(&self, offset: u64, to: &File, to_offset: u64, length: u64) -> Result<u64> {
        self.opened.call_with_other(&to.opened, PairCall::Copy { offset, to_offset, length })?.number()
    }

    /// Makes a range of another file share the blocks of a range of this file (a reflink). Offsets and length are whole
    /// blocks; a range may end within a block at the end of both files. A length of 0 means up to the end.
    pub fn clone_range(&self, offset: u64, to: &File, to_offset: u64, length: u64) -> Result<()> {
        self.opened.call_with_other(&to.opened, PairCall::Clone { offset, to_offset, length }).map(drop)
    }

    fn append_once(&self, data: &[u8]) -> Result<(u64, usize)> {
        self.opened.call_with(FileCall::Append, data, &mut [])?.appended()
    }

    fn change(&self, changes: Changes) -> Result<()> {
        self.opened.call(FileCall::Change { changes }).map(drop)
    }
}

/// Advisory locks among the open files of this volume, in the owner and in attached processes. They do not prevent
/// reads or writes. They end when the file is dropped or its process ends. Programs that use a mount of the volume have
/// locks of their own.
impl File {
    /// Takes the lock of the whole file, so that no other open file has it. Waits as long as another one has it. If
    /// this file has the lock already in the other mode, the lock is changed, and released before a wait.
    pub fn lock(&self) -> Result<()> {
        self.wait_for_whole(LockMode::Exclusive)
    }

    /// Takes the lock of the whole file shared with others that do the same. Waits as [`File::lock`] does.
    pub fn lock_shared(&self) -> Result<()> {
        self.wait_for_whole(LockMode::Shared)
    }

    /// The same as [`File::lock`], but does not wait.
    ///
    /// # Errors
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if another open file has the lock.
    pub fn try_lock(&self) -> Result<()> {
        self.lock_once(LockMode::Exclusive, false)
    }

    /// The same as [`File::lock_shared`], but does not wait.
    ///
    /// # Errors
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if another open file has the lock for itself.
    pub fn try_lock_shared(&self) -> Result<()> {
        self.lock_once(LockMode::Shared, false)
    }

    /// Releases the lock of the whole file, if this file has it.
    pub fn unlock(&self) -> Result<()> {
        self.opened.call(FileCall::Unlock).map(drop)
    }

    /// Takes a lock of a range of bytes. An exclusive lock needs a file that is open for writing, a shared lock one
    /// that is open for reading. Locks of ranges and locks of whole files do not affect each other.
    ///
    /// # Errors
    /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) if another open file has a conflicting lock.
    pub fn try_lock_range(&self, range: LockRange, mode: LockMode) -> Result<()> {
        self.opened.call(FileCall::LockRange { range, mode, waits: false }).map(drop)
    }

    /// The same, but waits until the lock is free. Two files that wait for each other wait until the volume is closed.
    pub fn lock_range(&self, range: LockRange, mode: LockMode) -> Result<()> {
        let call = FileCall::LockRange { range, mode, waits: true };
        self.opened.access().wait_for_lock(|| self.opened.call(call).map(drop))
    }

    /// Releases the locks that this file has in a range of bytes.
    pub fn unlock_range(&self, range: LockRange) -> Result<()> {
        self.opened.call(FileCall::UnlockRange { range }).map(drop)
    }

    fn wait_for_whole(&self, mode: LockMode) -> Result<()> {
        match self.lock_once(mode, false) {
            // Two files that share the lock and both want it for themselves would wait for each other.
            Err(Error::Operation(FsError::WouldBlock)) => self.unlock()?,
            done => return done,
        }
        self.opened.access().wait_for_lock(|| self.lock_once(mode, true))
    }

    fn lock_once(&self, mode: LockMode, waits: bool) -> Result<()> {
        self.opened.call(FileCall::Lock { mode, waits }).map(drop)
    }
}

/// One read of a batch: [`Volume::read_many`](crate::Volume::read_many).
pub struct ReadRequest<'a> {
    /// The file, open for reading.
    pub file: &'a File,
    /// The offset of the first byte.
    pub offset: u64,
    /// Where the bytes go.
    pub into: &'a mut [u8],
    /// How many bytes were read; smaller than the length of `into` only at the end of the file.
    pub read: usize,
}

impl<'a> ReadRequest<'a> {
    /// A request for the bytes at an offset.
    pub fn new(file: &'a File, offset: u64, into: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest { file, offset, into, read: 0 }
    }
}

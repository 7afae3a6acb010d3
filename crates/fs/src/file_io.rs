//! Reading and writing files.
//!
//! A reader holds the file's lock shared during a whole call. A writer holds it exclusively from before its first
//! transaction until after its last one. So a read sees either all of a write or nothing of it. Data reaches the
//! device before its transaction is committed, and where possible before the lock is taken (`early_append.rs`). The
//! transaction also sets the new size, so a size never covers data that is not there.

use std::ops::Range;
use std::sync::atomic::Ordering;

use extent::{Hint, WriteCall, Written};
use tree::Lsn;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::{FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHARES, FLAG_SHIFTING, FLAG_TAIL_STALE, Record};
use crate::handle::Handle;
use crate::inodes::Locked;
use crate::permissions::without_set_id;
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

/// The largest number of bytes that one transaction inserts.
pub(crate) const PIECE: u64 = 1 << 20;

/// Decides whether a write sets the times of the file and clears its privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A program writes now: the write does both.
    Program { keeps_set_id: bool },
    /// A cache writes back what a program has written to it before: the cache does both.
    Cache,
}

impl Writer {
    /// The program that has this handle.
    pub(crate) fn of(handle: &Handle) -> Writer {
        Writer::Program { keeps_set_id: handle.keeps_set_id() }
    }
}

impl Fs {
    /// Reads bytes. Returns fewer than requested only at the end of the file.
    pub fn read(&self, handle: &Handle, offset: u64, into: &mut [u8]) -> Result<usize> {
        handle.check_readable()?;
        self.settle_bytes(handle.node(), &(offset..offset.saturating_add(into.len() as u64)))?;
        let state = handle.node().state.read();
        let record = state.record()?;
        check_file(record)?;
        let length = (into.len() as u64).min(record.size.saturating_sub(offset)) as usize;
        let into = &mut into[..length];
        if record.has(FLAG_INLINE) {
            into.copy_from_slice(&record.content.get(offset as usize..).unwrap_or_default()[..length]);
        } else if length > 0 {
            self.read_blocks(handle.inode(), record, offset, into)?;
            self.note_read(handle, record, offset..offset + length as u64);
        }
        Ok(length)
    }

    /// Requests what a reader in order wants next.
    fn note_read(&self, handle: &Handle, record: &Record, bytes: Range<u64>) {
        if !record.has(FLAG_SHIFTING) {
            let object = record.object(handle.inode());
            let (bytes, block) = ((bytes.start, bytes.end), self.extents.block_size());
            let readahead = self.extents.maps().readahead();
            readahead.note_read(object, handle.reader(), bytes, record.size, block);
        }
    }

    /// Writes at `offset`, or at the end through a handle that appends. Returns a smaller count than given only if
    /// space ran out on the way.
    pub fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        handle.check_writable()?;
        if self.delay_write(handle, offset, data)? {
            self.user_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            return Ok(data.len());
        }
        self.write_now(handle, offset, data)
    }

    /// The same, but the write is not delayed ([`Fs::delay_writes`]).
    pub fn write_now(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_as(Writer::of(handle), handle, Some(offset), data).map(|(_, written)| written)
    }

    /// Writes at the end of the file, through any handle that writes. Returns the offset of the data, and how much of it
    /// was written, which is less than given only if space ran out on the way.
    pub fn append(&self, handle: &Handle, data: &[u8]) -> Result<(u64, usize)> {
        self.write_as(Writer::of(handle), handle, None, data)
    }

    /// The same for a cache that writes back. The cache sets the times of the file to those at which a program wrote,
    /// and has cleared its privileges by then.
    pub fn write_back(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_as(Writer::Cache, handle, Some(offset), data).map(|(_, written)| written)
    }

    /// Writes at an offset, or at the end of the file.
    fn write_as(
        &self,
        writer: Writer,
        handle: &Handle,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<(u64, usize)> {
        handle.check_writable()?;
        if data.is_empty() {
            // Only an append returns where the end is.
            let at = match offset {
                Some(offset) => offset,
                None => self.attributes_but_blocks(handle.inode())?.size,
            };
            return Ok((at, 0));
        }
        let offset = offset.filter(|_| !handle.flags().append);
        let (at, written, lsn) = self.with_space(|| self.write_once(writer, handle, offset, data))?;
        self.user_bytes.fetch_add(written as u64, Ordering::Relaxed);
        if handle.flags().sync {
            self.sync_to(lsn)?;
        }
        Ok((at, written))
    }

    fn write_once(
        &self,
        writer: Writer,
        handle: &Handle,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<(u64, usize, Lsn)> {
        self.begin()?;
        let inode = handle.inode();
        let early = self.begin_write(handle, offset, data)?;
        let mut locked = self.lock_one(handle.node());
        self.finish_range_move(&mut locked, inode)?;
        let record = locked.record(inode)?;
        check_file(record)?;
        let offset = offset.unwrap_or(record.size);
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        end.ok_or(FsError::TooLarge)?;
        let (written, lsn) = self.write_locked(writer, &mut locked, handle, offset, data, early)?;
        Ok((offset, written, lsn))
    }

    /// Writes to a locked file in which no range is being moved. The caller has checked the end. An early append must
    /// contain exactly these data.
    pub(crate) fn write_locked(
        &self,
        writer: Writer,
        locked: &mut Locked,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        early: Option<Written>,
    ) -> Result<(usize, Lsn)> {
        let (inode, end) = (handle.inode(), offset + data.len() as u64);
        if locked.record(inode)?.has(FLAG_INLINE) && end <= self.inline_bytes_max() as u64 {
            let lsn = self.write_inline(writer, locked, inode, offset, data)?;
            return Ok((data.len(), lsn));
        }
        self.prepare_write(locked, inode, offset, end)?;
        self.write_pieces(writer, locked, handle, offset, data, early)
    }

    fn write_inline(
        &self,
        writer: Writer,
        locked: &mut Locked,
        inode: InodeNo,
        offset: u64,
        data: &[u8],
    ) -> Result<Lsn> {
        let mut record = locked.record(inode)?.clone();
        let (offset, end) = (offset as usize, offset as usize + data.len());
        if record.content.len() < end {
            record.content.resize(end, 0);
            record.size = end as u64;
        }
        record.content[offset..end].copy_from_slice(data);
        let mut change = Change::new();
        self.note_write(&mut change, inode, &mut record, writer)?;
        change.save(inode, record);
        self.commit(change, locked)
    }

    /// If the file grows beyond the block of its old end, the rest of that block must be zeros. A write into that
    /// block takes care of this itself.
    fn prepare_write(&self, locked: &mut Locked, inode: InodeNo, offset: u64, end: u64) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let record = locked.record(inode)?;
        if record.has(FLAG_INLINE) {
            let is_replaced = offset == 0 && record.size <= end.min(block);
            // The first piece does it.
            return if record.size == 0 || is_replaced { Ok(()) } else { self.spill(locked, inode) };
        }
        if end <= record.size {
            return Ok(());
        }
        if record.has(FLAG_TAIL_STALE) && offset / block <= record.size / block {
            while !self.trim(locked, inode)? {}
            return Ok(());
        }
        self.prepare_growth(locked, inode, end)
    }

    fn write_pieces(
        &self,
        writer: Writer,
        locked: &mut Locked,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        mut early: Option<Written>,
    ) -> Result<(usize, Lsn)> {
        let block = u64::from(self.extents.block_size());
        let (mut done, mut piece) = (0, PIECE);
        let mut last = Lsn::default();
        while done < data.len() {
            let at = offset + done as u64;
            let length = ((piece - at % block) as usize).min(data.len() - done);
            if done > 0 {
                self.extents.throttle().wait(length as u64);
            }
            match self.write_piece(writer, locked, handle, at, &data[done..done + length], early.take()) {
                Ok((length, lsn)) => (done, last) = (done + length, lsn),
                // Overwritten data needs its space twice for a moment, so a smaller piece may succeed.
                Err(FsError::NoSpace) if piece > block => {
                    piece /= 2;
                    continue;
                }
                Err(FsError::NoSpace | FsError::NoMemory) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((done, last))
    }

    /// How many of these bytes one transaction can overwrite. All of them, unless it would have to remove very many
    /// extents or handle many shared blocks.
    pub(crate) fn length_at_once(
        &self,
        record: &Record,
        inode: InodeNo,
        at: u64,
        length: usize,
    ) -> Result<usize> {
        let block = u64::from(self.extents.block_size());
        let first = at / block;
        let blocks = (first, (at + length as u64).div_ceil(block));
        let may_refer = record.has(FLAG_SHARES);
        let end = (first + self.extents.blocks_per_tx(record.object(inode), blocks, may_refer)?) * block;
        Ok((end - at).min(length as u64) as usize)
    }

    fn write_piece(
        &self,
        writer: Writer,
        locked: &mut Locked,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        early: Option<Written>,
    ) -> Result<(usize, Lsn)> {
        let inode = handle.inode();
        let mut record = locked.record(inode)?.clone();
        let block = u64::from(self.extents.block_size());
        let early = early.filter(|_| self.accepts_whole_blocks(&record, offset + data.len() as u64));
        let call = write_call(handle, &record, offset, data);
        let mut change = Change::new();
        let (map, length) = self.extents.write(&mut change.tx, &call, early)?;
        let end = offset + length as u64;
        // Also a file that had blocks: when the rest of a truncation has emptied it, its contents are inline.
        if record.has(FLAG_INLINE) {
            assert!(record.size == 0 || offset == 0 && record.size <= end, "all contents are replaced");
            record.content.clear();
            record.set(FLAG_INLINE, false);
        }
        let touches_tail = offset / block <= record.size / block && record.size < end.next_multiple_of(block);
        if touches_tail {
            record.set(FLAG_TAIL_STALE, false);
        }
        record.size = record.size.max(end);
        record.add_blocks(map.blocks_added());
        self.note_write(&mut change, inode, &mut record, writer)?;
        change.save(inode, record);
        let lsn = self.commit(change, locked)?;
        drop(map);
        Ok((length, lsn))
    }

    /// Sets the times of a written file and clears its privileges.
    pub(crate) fn note_write(
        &self,
        change: &mut Change,
        inode: InodeNo,
        record: &mut Record,
        writer: Writer,
    ) -> Result<()> {
        let Writer::Program { keeps_set_id } = writer else { return Ok(()) };
        record.touch(self.clock.now());
        if !keeps_set_id {
            record.permissions = without_set_id(record);
        }
        self.drop_capabilities(change, inode, record)
    }

    /// The first byte at or after `offset` that is data. [`FsError::NoData`] if there is none.
    pub fn seek_data(&self, handle: &Handle, offset: u64) -> Result<u64> {
        self.settle(handle.node())?;
        let state = handle.node().state.read();
        let record = state.record()?;
        check_file(record)?;
        if offset >= record.size {
            return Err(FsError::NoData);
        }
        if record.has(FLAG_INLINE) {
            return Ok(offset);
        }
        let data = self.next_data(handle.inode(), record, offset)?;
        data.map(|data| data.max(offset)).filter(|data| *data < record.size).ok_or(FsError::NoData)
    }

    /// The first byte at or after `offset` that is in a hole. The end of the file counts as a hole.
    pub fn seek_hole(&self, handle: &Handle, offset: u64) -> Result<u64> {
        self.settle(handle.node())?;
        let state = handle.node().state.read();
        let record = state.record()?;
        check_file(record)?;
        if offset >= record.size {
            return Err(FsError::NoData);
        }
        if record.has(FLAG_INLINE) {
            return Ok(record.size);
        }
        let hole = self.next_hole(handle.inode(), record, offset)?;
        Ok(hole.max(offset).min(record.size))
    }
}

/// A write through a handle to a file with this record.
pub(crate) fn write_call<'d>(handle: &Handle, record: &Record, offset: u64, data: &'d [u8]) -> WriteCall<'d> {
    WriteCall {
        object: record.object(handle.inode()),
        hint: hint_of(handle, record),
        offset,
        data,
        valid: record.size,
        may_refer: record.has(FLAG_SHARES),
    }
}

/// The expected lifetime of data that is written through a handle.
fn hint_of(handle: &Handle, record: &Record) -> Hint {
    match handle.lifetime() {
        Some(lifetime) => Hint { lifetime, ..record.hint() },
        None => record.hint(),
    }
}

/// Refuses inodes that are not regular files.
pub(crate) fn check_file(record: &Record) -> Result<()> {
    match record.kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid),
    }
}

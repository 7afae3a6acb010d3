//! The size of a file: growth and truncation.
//!
//! Bytes within the size that were never written read as zeros. Three things could break that: blocks beyond the end
//! that are still being removed (`FLAG_TRUNCATING`), bytes behind the end in the last block (`FLAG_TAIL_STALE`, after
//! a truncation within a block), and contents that move from the record to blocks. So every operation that lets a
//! file grow first calls [`Fs::prepare_growth`]. Every operation that changes a file in which a range is being moved
//! first calls [`Fs::finish_range_move`], unless it only removes data.
//!
//! Truncation needs no space: one transaction changes the record and removes the first few hundred extents. The rest
//! is an intent that later steps continue, also those of the next mount.

use extent::MapLock;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::{
    FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHIFTING, FLAG_SPACE_BEYOND_END, FLAG_TAIL_STALE, FLAG_TRUNCATING,
    INTENT, Record, Shift, marker, number_key,
};
use crate::inodes::Locked;
use crate::orphan::Work;
use crate::types::InodeNo;
use crate::volume::Fs;

/// Extents that one transaction removes.
pub(crate) const STEP_EXTENTS: usize = 256;

impl Fs {
    /// Performs the transactions that must precede `resize`.
    pub(crate) fn prepare_resize(&self, locked: &mut Locked, inode: InodeNo, size: u64) -> Result<()> {
        if size > FILE_SIZE_MAX {
            return Err(FsError::TooLarge);
        }
        if size <= locked.record(inode)?.size {
            return Ok(());
        }
        self.finish_range_move(locked, inode)?;
        self.prepare_growth(locked, inode, size)
    }

    /// Adds a new size to a change. The caller holds the result until the change is committed.
    pub(crate) fn resize(
        &self,
        change: &mut Change,
        inode: InodeNo,
        record: &mut Record,
        size: u64,
    ) -> Result<Option<MapLock<'_>>> {
        // As in other file systems, setting the present size frees space that is preallocated beyond it.
        let shrinks = size < record.size || size == record.size && record.has(FLAG_SPACE_BEYOND_END);
        record.size = size;
        if record.has(FLAG_INLINE) {
            record.content.resize(size as usize, 0);
            return Ok(None);
        }
        if !shrinks {
            return Ok(None);
        }
        let block = u64::from(self.extents.block_size());
        let shift = self.range_move_if_any(inode, record)?.and_then(|shift| shift.cut(size, block));
        self.remove_beyond_end(change, inode, record, shift).map(Some)
    }

    /// Where the object's blocks end in which the file has bytes.
    pub(crate) fn object_end(&self, inode: InodeNo, record: &Record) -> Result<u64> {
        let block = u64::from(self.extents.block_size());
        let shift = self.range_move_if_any(inode, record)?;
        let own_end = record.size.next_multiple_of(block);
        Ok(shift.map_or(own_end, |shift| shift.object_end(record.size, block)))
    }

    fn range_move_if_any(&self, inode: InodeNo, record: &Record) -> Result<Option<Shift>> {
        record.has(FLAG_SHIFTING).then(|| self.range_move_of(inode)).transpose()
    }

    /// Removes what is beyond the size in the record. `shift` is the range move that continues.
    fn remove_beyond_end(
        &self,
        change: &mut Change,
        inode: InodeNo,
        record: &mut Record,
        shift: Option<Shift>,
    ) -> Result<MapLock<'_>> {
        let block = u64::from(self.extents.block_size());
        record.set(FLAG_TAIL_STALE, !record.size.is_multiple_of(block));
        let own_end = record.size.next_multiple_of(block);
        let end = shift.as_ref().map_or(own_end, |shift| shift.object_end(record.size, block));
        let (object, from) = (record.object(inode), end / block);
        let (map, done) =
            self.extents.remove(&mut change.tx, object, (from, u64::MAX), STEP_EXTENTS, record.file_class)?;
        record.add_blocks(map.blocks_added());
        let (group, key) = (self.group(inode), number_key(inode));
        match &shift {
            Some(shift) => change.tx.put(group, INTENT, key, shift.encode()),
            None if !done && rt::is_planted("break-truncate-intent") => {}
            None if !done => change.tx.put(group, INTENT, key, marker()),
            None if record.has(FLAG_TRUNCATING | FLAG_SHIFTING) => change.tx.delete(group, INTENT, key),
            None => {}
        }
        record.set(FLAG_SHIFTING, shift.is_some());
        record.set(FLAG_TRUNCATING, !done);
        record.set(FLAG_SPACE_BEYOND_END, false);
        if !done || shift.is_some() {
            self.backlog.push(Work::Intent(inode));
        }
        if done && record.size == 0 {
            record.set(FLAG_INLINE, true);
        }
        Ok(map)
    }

    /// Removes more of what lies beyond the end. Returns true when nothing is left.
    pub(crate) fn trim(&self, locked: &mut Locked, inode: InodeNo) -> Result<bool> {
        let mut record = match locked.record(inode) {
            Ok(record) if record.has(FLAG_TRUNCATING) => record.clone(),
            _ => return Ok(true),
        };
        let was_stale = record.has(FLAG_TAIL_STALE);
        let mut change = Change::reclaiming();
        let shift = self.range_move_if_any(inode, &record)?;
        let map = self.remove_beyond_end(&mut change, inode, &mut record, shift)?;
        record.set(FLAG_TAIL_STALE, was_stale);
        let done = !record.has(FLAG_TRUNCATING);
        change.save(inode, record);
        self.commit(change, locked)?;
        drop(map);
        Ok(done)
    }

    /// Prepares a growth of the file up to `end`, so that it reads as zeros.
    pub(crate) fn prepare_growth(&self, locked: &mut Locked, inode: InodeNo, end: u64) -> Result<()> {
        while !self.trim(locked, inode)? {}
        let record = locked.record(inode)?;
        if record.has(FLAG_INLINE) {
            return if end > self.inline_bytes_max() as u64 { self.spill(locked, inode) } else { Ok(()) };
        }
        let is_stale = record.has(FLAG_TAIL_STALE) && !rt::is_planted("break-tail-on-growth");
        if is_stale { self.zero_tail(locked, inode) } else { Ok(()) }
    }

    /// Moves contents from the record to blocks.
    pub(crate) fn spill(&self, locked: &mut Locked, inode: InodeNo) -> Result<()> {
        let mut record = locked.record(inode)?.clone();
        if !record.has(FLAG_INLINE) {
            return Ok(());
        }
        let content = std::mem::take(&mut record.content);
        record.set(FLAG_INLINE, false);
        let mut change = Change::new();
        let written = match content.is_empty() {
            true => None,
            false => Some(self.extents.append(record.object(inode), record.hint(), 0, &content, 0)?),
        };
        let map = written.map(|written| self.extents.insert(&mut change.tx, written)).transpose()?;
        record.add_blocks(map.as_ref().map_or(0, MapLock::blocks_added));
        change.save(inode, record);
        self.commit(change, locked)?;
        drop(map);
        Ok(())
    }

    /// Writes zeros to the rest of the last block.
    fn zero_tail(&self, locked: &mut Locked, inode: InodeNo) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let size = locked.record(inode)?.size;
        self.zero_bytes(locked, inode, size, size.next_multiple_of(block))?;
        let mut record = locked.record(inode)?.clone();
        record.set(FLAG_TAIL_STALE, false);
        let mut change = Change::new();
        change.save(inode, record);
        self.commit(change, locked)?;
        Ok(())
    }

    /// Writes zeros over the data in a range of at most a block or two.
    pub(crate) fn zero_bytes(&self, locked: &mut Locked, inode: InodeNo, from: u64, to: u64) -> Result<()> {
        let object = locked.record(inode)?.object(inode);
        let block = u64::from(self.extents.block_size());
        let first_block = from - from % block;
        if from == to || self.extents.maps().next_data(object, first_block)?.is_none_or(|data| data >= to) {
            return Ok(());
        }
        self.put_bytes(locked, inode, from, &vec![0; (to - from) as usize])
    }

    /// Writes bytes in one transaction. Size and times stay the same.
    pub(crate) fn put_bytes(&self, locked: &mut Locked, inode: InodeNo, at: u64, bytes: &[u8]) -> Result<()> {
        let mut record = locked.record(inode)?.clone();
        let written = self.extents.append(record.object(inode), record.hint(), at, bytes, record.size)?;
        let mut change = Change::new();
        let map = self.extents.insert(&mut change.tx, written)?;
        record.add_blocks(map.blocks_added());
        change.save(inode, record);
        self.commit(change, locked)?;
        drop(map);
        Ok(())
    }
}

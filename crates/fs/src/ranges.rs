//! Ranges of files: preallocating, punching, zeroing, copying.

use std::ops::Range;

use extent::{MapRow, Object};
use tree::Lsn;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::file_io::{Writer, check_file};
use crate::format::{FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHARES, FLAG_SPACE_BEYOND_END};
use crate::handle::Handle;
use crate::inodes::Locked;
use crate::truncate::STEP_EXTENTS;
use crate::types::{FallocateMode, InodeNo};
use crate::volume::Fs;

/// Bytes that a copy moves at a time.
const PIECE: u64 = 1 << 20;

/// The largest number of bytes that one call copies. During the call a kernel holds its lock of the file, the program
/// cannot be killed, and a thread that answers requests is busy.
const COPIED_MAX: u64 = 64 << 20;

/// One step of preallocation.
struct PreallocateStep {
    /// First block, and the block after the last.
    blocks: (u64, u64),
    /// Whether the contents of these blocks are removed.
    clear: bool,
    /// Bytes to be zeroed before.
    zeros: Option<Range<u64>>,
}

impl Fs {
    /// `fallocate`.
    pub fn allocate(&self, handle: &Handle, mode: FallocateMode, offset: u64, length: u64) -> Result<()> {
        handle.check_writable()?;
        self.begin()?;
        if length == 0 {
            return Err(FsError::Invalid);
        }
        let end = offset.checked_add(length).filter(|end| *end <= FILE_SIZE_MAX).ok_or(FsError::TooLarge)?;
        self.settle(handle.node())?;
        check_file(handle.node().state.read().record()?)?;
        match mode {
            FallocateMode::Allocate { keep_size } => {
                self.preallocate(handle, &(offset..end), keep_size, false)
            }
            FallocateMode::ZeroRange { keep_size } => {
                self.preallocate(handle, &(offset..end), keep_size, true)
            }
            FallocateMode::PunchHole => self.punch(handle, offset, end),
            FallocateMode::CollapseRange => self.collapse_range(handle, offset, end),
            FallocateMode::InsertRange => self.insert_range(handle, offset, end),
        }?;
        self.sync_if_asked(handle)
    }

    /// Preallocates space for a range, which later writes there use. The range reads as zeros where nothing was
    /// written, or with `clear` everywhere.
    fn preallocate(&self, handle: &Handle, range: &Range<u64>, keep_size: bool, clear: bool) -> Result<()> {
        self.with_space(|| match self.growth_fits(handle, range)? {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        })?;
        let block = u64::from(self.extents.block_size());
        let whole = (range.end - (range.start - range.start % block)).next_multiple_of(block);
        let (mut at, mut step_bytes_max) = (range.start, whole);
        while at < range.end {
            let part = at..range.end.min((at - at % block).saturating_add(step_bytes_max));
            let preallocated = self.with_space(|| {
                self.begin_growing()?;
                // Only the last step sets the size. If the operation fails, the size is unchanged.
                self.preallocate_step(handle, &part, keep_size || part.end < range.end, clear)
            });
            match preallocated {
                Ok(next) => (at, step_bytes_max) = (next, step_bytes_max.saturating_mul(2).min(whole)),
                // Clearing shared blocks needs space for as many blocks, so a smaller part may succeed.
                Err(FsError::NoSpace) if clear && step_bytes_max > block && self.shares_blocks(handle)? => {
                    step_bytes_max = (step_bytes_max / 2).next_multiple_of(block);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn shares_blocks(&self, handle: &Handle) -> Result<bool> {
        Ok(handle.node().state.read().record()?.has(FLAG_SHARES))
    }

    /// Whether there is space for the growth of the file.
    fn growth_fits(&self, handle: &Handle, range: &Range<u64>) -> Result<bool> {
        let record = handle.node().state.read().record()?.clone();
        let grown = range.start.max(record.size)..range.end;
        let wanted = grown.end.saturating_sub(grown.start);
        let available = self.extents.budget().bytes_left();
        if wanted <= available || !record.has(FLAG_SPACE_BEYOND_END) {
            return Ok(wanted <= available);
        }
        Ok(wanted.saturating_sub(self.bytes_allocated(record.object(handle.inode()), &grown)?) <= available)
    }

    /// How many bytes of a range have blocks.
    fn bytes_allocated(&self, object: Object, range: &Range<u64>) -> Result<u64> {
        let block = u64::from(self.extents.block_size());
        let pieces = extent::view_object(self.extents.maps(), object)?.into_iter();
        let allocated = pieces.filter_map(|(at, piece)| match piece {
            MapRow::Extent(extent) if extent.holds_space() => {
                let end = (at + u64::from(extent.blocks)) * block;
                Some(end.min(range.end).saturating_sub((at * block).max(range.start)))
            }
            _ => None,
        });
        Ok(allocated.sum())
    }

    /// Preallocates a first part of the range. Returns where the next part begins.
    fn preallocate_step(
        &self,
        handle: &Handle,
        range: &Range<u64>,
        keep_size: bool,
        clear: bool,
    ) -> Result<u64> {
        let (inode, end) = (handle.inode(), range.end);
        let mut locked = self.lock_one(handle.node());
        self.finish_range_move(&mut locked, inode)?;
        if end > locked.record(inode)?.size {
            self.prepare_growth(&mut locked, inode, end)?;
        }
        if locked.record(inode)?.has(FLAG_INLINE) {
            return self.preallocate_inline(&mut locked, handle, range, keep_size, clear);
        }
        let block = u64::from(self.extents.block_size());
        let part = self.first_preallocate_step(range, clear.then_some(locked.record(inode)?.size));
        if let Some(bytes) = part.zeros {
            self.zero_bytes(&mut locked, inode, bytes.start, bytes.end)?;
        }
        let mut record = locked.record(inode)?.clone();
        let mut change = Change::new();
        let (object, blocks) = (record.object(inode), part.blocks);
        let clear = part.clear.then_some(record.file_class);
        let (map, until) = self.extents.preallocate(&mut change.tx, object, blocks, STEP_EXTENTS, clear)?;
        let until = until * block;
        record.add_blocks(map.blocks_added());
        if until.min(end) > record.size {
            // Blocks beyond the part of the growth that is complete may have space.
            match keep_size || until < end {
                true => record.set(FLAG_SPACE_BEYOND_END, true),
                false => record.size = end,
            }
        }
        self.note_write(&mut change, inode, &mut record, Writer::of(handle))?;
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        drop(map);
        Ok(until)
    }

    /// The first step. `cleared` is the size of the file if the range is to be cleared.
    fn first_preallocate_step(&self, range: &Range<u64>, cleared: Option<u64>) -> PreallocateStep {
        let block = u64::from(self.extents.block_size());
        let (first, last) = (range.start / block, range.end.div_ceil(block));
        let Some(size) = cleared else {
            return PreallocateStep { blocks: (first, last), clear: false, zeros: None };
        };
        // The last block of the file is removed as a whole: it has no bytes behind the range.
        let whole_end = if range.end >= size { last } else { range.end / block };
        if (range.start.div_ceil(block)..whole_end).contains(&first) {
            return PreallocateStep { blocks: (first, whole_end), clear: true, zeros: None };
        }
        let zeros = (first * block).max(range.start)..((first + 1) * block).min(range.end);
        PreallocateStep { blocks: (first, first + 1), clear: false, zeros: Some(zeros) }
    }

    /// Contents stay in the record, which has as much space as an inline file may use.
    fn preallocate_inline(
        &self,
        locked: &mut Locked,
        handle: &Handle,
        range: &Range<u64>,
        keep_size: bool,
        clear: bool,
    ) -> Result<u64> {
        let (inode, writer) = (handle.inode(), Writer::of(handle));
        if !keep_size {
            self.grow(locked, inode, range.end, writer)?;
        }
        let end = range.end.min(locked.record(inode)?.size);
        if clear && range.start < end {
            self.clear_inline(locked, inode, range.start..end, writer)?;
        }
        Ok(range.end)
    }

    /// Raises the size to at least `end`. The caller has prepared the growth.
    fn grow(&self, locked: &mut Locked, inode: InodeNo, end: u64, writer: Writer) -> Result<Lsn> {
        let mut record = locked.record(inode)?.clone();
        if end > record.size {
            record.size = end;
            if record.has(FLAG_INLINE) {
                record.content.resize(end as usize, 0);
            }
        }
        let mut change = Change::new();
        self.note_write(&mut change, inode, &mut record, writer)?;
        change.save(inode, record);
        self.commit(change, locked)
    }

    /// Makes a range read as zeros. Whole blocks become a hole, and zeros are written at the edges.
    fn punch(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let inode = handle.inode();
        let block = u64::from(self.extents.block_size());
        // Removing whole blocks must succeed on a full volume. Shared blocks are excluded: removing them may free
        // nothing, and the rest of a reference needs another row.
        let is_whole =
            offset.is_multiple_of(block) && end.is_multiple_of(block) && !self.shares_blocks(handle)?;
        self.with_space(|| {
            if !is_whole {
                self.extents.admit()?;
            }
            let mut locked = self.lock_one(handle.node());
            if !is_whole {
                self.finish_range_move(&mut locked, inode)?;
            }
            self.punch_beyond_end(&mut locked, inode, offset..end)?;
            let end = end.min(locked.record(inode)?.size);
            if offset >= end {
                return Ok(());
            }
            if locked.record(inode)?.has(FLAG_INLINE) {
                return self.clear_inline(&mut locked, inode, offset..end, Writer::of(handle));
            }
            self.clear_edges(&mut locked, inode, offset, end)?;
            self.clear_blocks(&mut locked, inode, offset, end, Writer::of(handle))
        })
    }

    /// Frees preallocated space beyond the end of the file in the whole blocks of a range. A range move does not
    /// affect this space.
    fn punch_beyond_end(&self, locked: &mut Locked, inode: InodeNo, range: Range<u64>) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        loop {
            let mut record = locked.record(inode)?.clone();
            let from = range.start.max(self.object_end(inode, &record)?).next_multiple_of(block);
            let preallocated = from..range.end - range.end % block;
            if !record.has(FLAG_SPACE_BEYOND_END) || preallocated.is_empty() {
                return Ok(());
            }
            let mut change = Change::reclaiming();
            let (map, none_left) = self.remove_some(&mut change, inode, &mut record, &preallocated)?;
            change.save(inode, record);
            self.commit(change, locked)?;
            drop(map);
            if none_left {
                return Ok(());
            }
        }
    }

    fn clear_inline(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        range: Range<u64>,
        writer: Writer,
    ) -> Result<()> {
        let mut record = locked.record(inode)?.clone();
        record.content[range.start as usize..range.end as usize].fill(0);
        let mut change = Change::new();
        self.note_write(&mut change, inode, &mut record, writer)?;
        change.save(inode, record);
        self.commit(change, locked)?;
        Ok(())
    }

    fn clear_edges(&self, locked: &mut Locked, inode: InodeNo, offset: u64, end: u64) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let at_end = end == locked.record(inode)?.size;
        let head_end = offset.next_multiple_of(block).min(end);
        if head_end > offset {
            self.zero_bytes(locked, inode, offset, head_end)?;
        }
        // The last block of the file is removed as a whole: it has no bytes behind the range.
        let tail = end - end % block;
        if tail >= head_end && end > tail && !at_end {
            self.zero_bytes(locked, inode, tail, end)?;
        }
        Ok(())
    }

    fn clear_blocks(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        offset: u64,
        end: u64,
        writer: Writer,
    ) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let size = locked.record(inode)?.size;
        let whole_tail = end == size || rt::is_planted("break-punch-tail");
        let to = if whole_tail { end.next_multiple_of(block) } else { end - end % block };
        let whole = offset.next_multiple_of(block)..to;
        let mut places = self.places_of(inode, locked.record(inode)?, &whole)?;
        loop {
            let mut record = locked.record(inode)?.clone();
            let mut change = if record.has(FLAG_SHARES) { Change::new() } else { Change::reclaiming() };
            let map = match places.last() {
                Some(place) => {
                    let (map, none_left) = self.remove_some(&mut change, inode, &mut record, place)?;
                    if none_left {
                        places.pop();
                    }
                    Some(map)
                }
                None => None,
            };
            self.note_write(&mut change, inode, &mut record, writer)?;
            change.save(inode, record);
            self.commit(change, locked)?;
            drop(map);
            if places.is_empty() {
                return Ok(());
            }
        }
    }

    /// Copies bytes between files. Copies fewer than requested at the end of the source, or if more than 64 MiB would
    /// have to be read and written. Whole blocks are shared if that pays ([`Fs::clone_range`]), any number of them.
    /// The rest is copied in pieces of one read and one write each, as if the caller had done these.
    pub fn copy_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        from.check_readable()?;
        to.check_writable()?;
        if to.flags().append {
            return Err(FsError::BadHandle);
        }
        [from, to].into_iter().try_for_each(|handle| self.settle(handle.node()))?;
        let length = self.bytes_after(from, from_offset)?.min(length);
        let overlaps =
            from_offset < to_offset.saturating_add(length) && to_offset < from_offset.saturating_add(length);
        if from.inode() == to.inode() && overlaps && length > 0 {
            return Err(FsError::Invalid);
        }
        let mut done = self.worth_sharing((from, from_offset), (to, to_offset), length)?;
        if done > 0 {
            let (shared, cloned) = self.clone_some(from, from_offset, to, to_offset, done);
            done = if cloned.is_ok() { done } else { shared };
            self.sync_if_asked(to)?;
        }
        let length = length.min(done + COPIED_MAX);
        let mut buffer = vec![0; (length - done).min(PIECE) as usize];
        while done < length {
            let wanted = (length - done).min(PIECE) as usize;
            let (source, target) = (from_offset + done, to_offset.saturating_add(done));
            let read = self.read(from, source, &mut buffer[..wanted]);
            let written = read.and_then(|read| self.write(to, target, &buffer[..read]));
            match written {
                Ok(0) => break,
                Ok(written) => done += written as u64,
                // The caller gets the error when it requests the rest.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// How many bytes a file has from an offset on.
    fn bytes_after(&self, handle: &Handle, offset: u64) -> Result<u64> {
        let state = handle.node().state.read();
        let record = state.record()?;
        check_file(record)?;
        Ok(record.size.saturating_sub(offset))
    }
}

//! Ranges of files: allocating, punching, zeroing, copying.

use std::ops::Range;

use extent::{Object, Piece};
use tree::Lsn;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::file_io::{Writer, check_file};
use crate::format::{FILE_SIZE_MAX, FLAG_INLINE, FLAG_KEPT_BEYOND, FLAG_SHARES};
use crate::handle::Handle;
use crate::inodes::Locked;
use crate::truncate::STEP_EXTENTS;
use crate::types::{FallocateMode, InodeNo};
use crate::volume::Fs;

/// Bytes that a copy moves at a time.
const PIECE: u64 = 1 << 20;

/// Bytes that one call copies at most. Whoever asked by way of a kernel holds the file's lock there and cannot be
/// ended meanwhile, and a thread that answers requests is busy.
const COPIED_MAX: u64 = 64 << 20;

/// One step of keeping space.
struct PartToKeep {
    /// From block to block.
    blocks: (u64, u64),
    /// Whether what they hold goes.
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
        check_file(handle.node().state.read().record()?)?;
        match mode {
            FallocateMode::Allocate { keep_size } => self.keep(handle, &(offset..end), keep_size, false),
            FallocateMode::ZeroRange { keep_size } => self.keep(handle, &(offset..end), keep_size, true),
            FallocateMode::PunchHole => self.punch(handle, offset, end),
            FallocateMode::CollapseRange => self.collapse(handle, offset, end),
            FallocateMode::InsertRange => self.insert(handle, offset, end),
        }?;
        self.sync_if_asked(handle)
    }

    /// Keeps space for [offset, end), which later writes there take: it reads as zeros where nothing
    /// was written, or with `clear` everywhere.
    fn keep(&self, handle: &Handle, range: &Range<u64>, keep_size: bool, clear: bool) -> Result<()> {
        self.with_space(|| match self.may_fit(handle, range)? {
            true => Ok(()),
            false => Err(FsError::NoSpace),
        })?;
        let block = u64::from(self.extents.block_size());
        let whole = (range.end - (range.start - range.start % block)).next_multiple_of(block);
        let (mut at, mut most) = (range.start, whole);
        while at < range.end {
            let part = at..range.end.min((at - at % block).saturating_add(most));
            let kept = self.with_space(|| {
                self.begin_growing()?;
                // The size is set once, by the last step: who is told that it failed finds it as it was.
                self.keep_step(handle, &part, keep_size || part.end < range.end, clear)
            });
            match kept {
                Ok(next) => (at, most) = (next, most.saturating_mul(2).min(whole)),
                // Blocks that others own are given back only when there is space for as many, so less at once may do.
                Err(FsError::NoSpace) if clear && most > block && self.shares_blocks(handle)? => {
                    most = (most / 2).next_multiple_of(block);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn shares_blocks(&self, handle: &Handle) -> Result<bool> {
        Ok(handle.node().state.read().record()?.has(FLAG_SHARES))
    }

    /// Whether there is room for what the file would grow by.
    fn may_fit(&self, handle: &Handle, range: &Range<u64>) -> Result<bool> {
        let record = handle.node().state.read().record()?.clone();
        let grown = range.start.max(record.size)..range.end;
        let wanted = grown.end.saturating_sub(grown.start);
        let available = self.extents.bytes_left();
        if wanted <= available || !record.has(FLAG_KEPT_BEYOND) {
            return Ok(wanted <= available);
        }
        Ok(wanted.saturating_sub(self.bytes_held(record.object(handle.inode()), &grown)?) <= available)
    }

    /// How much of a range the file has blocks for.
    fn bytes_held(&self, object: Object, range: &Range<u64>) -> Result<u64> {
        let block = u64::from(self.extents.block_size());
        let pieces = self.extents.view_object(object)?.into_iter();
        let held = pieces.filter_map(|(at, piece)| match piece {
            Piece::Stored(extent) if extent.holds_space() => {
                let end = (at + u64::from(extent.blocks)) * block;
                Some(end.min(range.end).saturating_sub((at * block).max(range.start)))
            }
            _ => None,
        });
        Ok(held.sum())
    }

    /// A first part of it; where the next one begins.
    fn keep_step(&self, handle: &Handle, range: &Range<u64>, keep_size: bool, clear: bool) -> Result<u64> {
        let (inode, end) = (handle.inode(), range.end);
        let mut locked = Locked::one(handle.node());
        self.finish_shift(&mut locked, inode)?;
        if end > locked.record(inode)?.size {
            self.prepare_growth(&mut locked, inode, end)?;
        }
        if locked.record(inode)?.has(FLAG_INLINE) {
            return self.keep_inline(&mut locked, handle, range, keep_size, clear);
        }
        let block = u64::from(self.extents.block_size());
        let part = self.part_to_keep(range, clear.then_some(locked.record(inode)?.size));
        if let Some(bytes) = part.zeros {
            self.zero_bytes(&mut locked, inode, bytes.start, bytes.end)?;
        }
        let mut record = locked.record(inode)?.clone();
        let mut change = Change::new();
        let (object, blocks) = (record.object(inode), part.blocks);
        let clear = part.clear.then_some(record.data_kind);
        let (map, until) = self.extents.keep_space(&mut change.tx, object, blocks, STEP_EXTENTS, clear)?;
        let until = until * block;
        record.add_blocks(map.blocks_added());
        if until.min(end) > record.size {
            // Behind what the file grows by more may be kept.
            match keep_size || until < end {
                true => record.set(FLAG_KEPT_BEYOND, true),
                false => record.size = end,
            }
        }
        self.note_write(&mut change, inode, &mut record, Writer::of(handle))?;
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        drop(map);
        Ok(until)
    }

    /// What to do first. `cleared` is the size of the file if the range is to be cleared.
    fn part_to_keep(&self, range: &Range<u64>, cleared: Option<u64>) -> PartToKeep {
        let block = u64::from(self.extents.block_size());
        let (first, last) = (range.start / block, range.end.div_ceil(block));
        let Some(size) = cleared else {
            return PartToKeep { blocks: (first, last), clear: false, zeros: None };
        };
        // The block of the file's end goes as a whole: nothing behind the range in it counts.
        let whole_end = if range.end >= size { last } else { range.end / block };
        if (range.start.div_ceil(block)..whole_end).contains(&first) {
            return PartToKeep { blocks: (first, whole_end), clear: true, zeros: None };
        }
        let zeros = (first * block).max(range.start)..((first + 1) * block).min(range.end);
        PartToKeep { blocks: (first, first + 1), clear: false, zeros: Some(zeros) }
    }

    /// The record has the contents, and as much space as an inline file may take.
    fn keep_inline(
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

    /// The size becomes at least `end`. Growth was prepared.
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

    /// Makes [offset, end) read as zeros: whole blocks become a hole, the edges are written.
    fn punch(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let inode = handle.inode();
        let block = u64::from(self.extents.block_size());
        // Whole blocks only go away, which a full volume must allow; not of what is shared: that frees nothing
        // for sure, and what is left of a reference takes a row more.
        let is_whole =
            offset.is_multiple_of(block) && end.is_multiple_of(block) && !self.shares_blocks(handle)?;
        self.with_space(|| {
            if !is_whole {
                self.extents.admit()?;
            }
            let mut locked = Locked::one(handle.node());
            if !is_whole {
                self.finish_shift(&mut locked, inode)?;
            }
            self.punch_kept(&mut locked, inode, offset..end)?;
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

    /// Gives back what is kept beyond the end of the file in the whole blocks of a range. What is kept there
    /// does not take part in a move: it is where it was.
    fn punch_kept(&self, locked: &mut Locked, inode: InodeNo, range: Range<u64>) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        loop {
            let mut record = locked.record(inode)?.clone();
            let from = range.start.max(self.object_end(inode, &record)?).next_multiple_of(block);
            let kept = from..range.end - range.end % block;
            if !record.has(FLAG_KEPT_BEYOND) || kept.is_empty() {
                return Ok(());
            }
            let mut change = Change::reclaiming();
            let (map, none_left) = self.remove_some(&mut change, inode, &mut record, &kept)?;
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
        // The block of the file's end goes as a whole: nothing behind the range in it counts.
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

    /// Copies bytes between files; fewer than asked for at the end of the source, and where more than 64 MiB would
    /// have to be read and written. Whole blocks are shared where that is worth it ([`Fs::clone_range`]), however
    /// many; of the rest each piece is one read and one write, as if the caller did them.
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
                // The caller learns of it when he asks for the rest.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// How much a file has from an offset on.
    fn bytes_after(&self, handle: &Handle, offset: u64) -> Result<u64> {
        let state = handle.node().state.read();
        let record = state.record()?;
        check_file(record)?;
        Ok(record.size.saturating_sub(offset))
    }
}

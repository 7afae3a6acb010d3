//! Collapse range and insert range: taking a range out of a file or inserting a hole, so that the bytes behind it
//! move.
//!
//! The bytes behind the range are copied, not renumbered: a zone's reverse map records for each block which block of
//! the object it was, and garbage collection relies on that (I-EXT-2). Copying takes many transactions. Nevertheless
//! a crash leaves the file as it was before the operation or as it is after it:
//! * The first transaction is the operation. It sets the new size and `FLAG_SHIFTING`, and it writes an intent with
//!   the range and the progress of copying. It includes the first step, so that a full volume refuses the operation
//!   before anything has changed.
//! * From then on the bytes of the file are found through the intent ([`Shift::spans`]): copied bytes at their new
//!   place, the others at their old place, and an inserted range as a hole. Readers always see the file as it is
//!   after the operation, even on a read-only volume.
//! * Each step copies a piece and records the progress in one transaction, or removes blocks in which no byte of the
//!   file is found any more. Pieces are taken from the side towards which they move, so no byte is overwritten
//!   before it is copied.
//! * The last step removes the flag and the intent. An operation that changes the file first performs all remaining
//!   steps ([`Fs::finish_range_move`]). Usually none remain, because the operation itself has performed them under
//!   the lock.
//! * Operations that only remove data need no space and do not wait for the steps, which may need some: truncation
//!   keeps the rest of the move ([`Shift::cut`]), and punching removes whole blocks where they are.
//!
//! After a crash the backlog finds the intent and continues. A block that cannot be read becomes lost at its new
//! place and delays nothing. Each piece frees as many blocks as it takes. So space for a later piece is missing only
//! if others take the last space meanwhile. Then the operation is done, and copying continues when there is space. A
//! piece frees nothing if it replaces shared blocks or a hole. Then the old place of copied bytes is cleared before
//! the next piece.

use std::ops::Range;

use extent::{ExtentError, MapLock, Object};

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::file_io::Writer;
use crate::format::{
    Damaged, Direction, FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHARES, FLAG_SHIFTING, FLAG_TRUNCATING, INTENT,
    Record, Shift, number_key,
};
use crate::handle::Handle;
use crate::inodes::Locked;
use crate::orphan::Work;
use crate::truncate::STEP_EXTENTS;
use crate::types::InodeNo;
use crate::volume::Fs;

/// Bytes that one transaction copies.
const PIECE: u64 = 1 << 20;

/// Consecutive bytes of a file and their place in the object. `None` for a hole.
pub(crate) type Span = (Range<u64>, Option<u64>);

impl Shift {
    /// The places of all bytes that the file can have.
    pub fn spans(&self) -> Vec<Span> {
        let Shift { at, length, moved, .. } = *self;
        match self.direction {
            Direction::Down => {
                vec![(0..moved - length, Some(0)), (moved - length..u64::MAX, Some(moved))]
            }
            Direction::Up => vec![
                (0..at, Some(0)),
                (at..at + length, None),
                (at + length..moved + length, Some(at)),
                (moved + length..u64::MAX, Some(moved + length)),
            ],
        }
    }

    /// Where the file ended before the move, for a size after it. For a file that was truncated within an inserted
    /// range: where that range begins.
    fn end_before(&self, size: u64, block: u64) -> u64 {
        match self.direction {
            Direction::Down => (size + self.length).next_multiple_of(block),
            Direction::Up => size.next_multiple_of(block).saturating_sub(self.length).max(self.at),
        }
    }

    /// Where the object's blocks end, for a size after the move.
    pub(crate) fn object_end(&self, size: u64, block: u64) -> u64 {
        match self.direction {
            Direction::Down => self.end_before(size, block),
            Direction::Up => size.next_multiple_of(block),
        }
    }

    /// Blocks of the object between the copied and the other bytes. No byte of the file is found in them.
    fn gap(&self) -> Range<u64> {
        match self.direction {
            Direction::Down => self.moved - self.length..self.moved,
            Direction::Up => self.moved..self.moved + self.length,
        }
    }

    /// The rest of the move when the file is truncated to `size`. None if all remaining bytes are in their place.
    pub(crate) fn cut(&self, size: u64, block: u64) -> Option<Shift> {
        let is_all_in_place = match self.direction {
            Direction::Down => size <= self.moved - self.length,
            Direction::Up => size <= self.at,
        };
        let moved = match self.direction {
            Direction::Down => self.moved,
            Direction::Up => self.moved.min(self.end_before(size, block)),
        };
        (!is_all_in_place).then(|| Shift { moved, ..self.clone() })
    }

    /// The new place of a byte.
    fn target(&self, offset: u64) -> u64 {
        match self.direction {
            Direction::Down => offset - self.length,
            Direction::Up => offset + self.length,
        }
    }

    /// The half of a piece of several blocks that must be copied first.
    fn half(&self, piece: &Range<u64>, block: u64) -> Range<u64> {
        let middle = piece.start + ((piece.end - piece.start) / block / 2) * block;
        match self.direction {
            Direction::Down => piece.start..middle,
            Direction::Up => middle..piece.end,
        }
    }

    /// Records that a piece has been moved.
    fn advance(&mut self, done: &Range<u64>) {
        let (before, after) = match self.direction {
            Direction::Down => (done.start, done.end),
            Direction::Up => (done.end, done.start),
        };
        assert_eq!(self.moved, before, "steps follow each other");
        self.moved = after;
    }
}

/// The next step.
enum Next {
    /// Copy these bytes.
    Copy(Range<u64>),
    /// These bytes are a hole: remove the blocks at their new place.
    Skip(Range<u64>),
    /// All bytes are in their place.
    Done,
}

impl Fs {
    /// Takes the range from `offset` to `end` out of the file.
    ///
    /// # Errors
    /// `Invalid` for a range that is not whole blocks, or that reaches the end of the file: that is a truncation.
    pub(crate) fn collapse_range(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let inode = handle.inode();
        self.check_whole_blocks(offset, end)?;
        self.with_space(|| {
            self.begin_growing()?;
            let mut locked = self.lock_one(handle.node());
            self.finish_range_move(&mut locked, inode)?;
            let size = locked.record(inode)?.size;
            if end >= size {
                return Err(FsError::Invalid);
            }
            if locked.record(inode)?.has(FLAG_INLINE) {
                let (from, to) = (offset as usize, end as usize);
                return self.edit_inline(&mut locked, handle, |content| drop(content.drain(from..to)));
            }
            while !self.trim(&mut locked, inode)? {}
            let shift = Shift { direction: Direction::Down, at: offset, length: end - offset, moved: end };
            self.start_range_move(&mut locked, handle, shift, size - (end - offset))
        })
    }

    /// Moves the bytes from `offset` on to `end` and leaves a hole in between.
    ///
    /// # Errors
    /// `Invalid` for a range that is not whole blocks, or that does not begin before the end of the file. `TooLarge`
    /// if the file would become too large.
    pub(crate) fn insert_range(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let (inode, length) = (handle.inode(), end - offset);
        self.check_whole_blocks(offset, end)?;
        self.with_space(|| {
            self.begin_growing()?;
            let mut locked = self.lock_one(handle.node());
            self.finish_range_move(&mut locked, inode)?;
            let size = locked.record(inode)?.size;
            if offset >= size {
                return Err(FsError::Invalid);
            }
            let grown = size.checked_add(length).filter(|size| *size <= FILE_SIZE_MAX);
            let grown = grown.ok_or(FsError::TooLarge)?;
            if locked.record(inode)?.has(FLAG_INLINE) && grown <= self.inline_bytes_max() as u64 {
                return self.insert_inline(&mut locked, handle, offset as usize, length as usize);
            }
            self.spill(&mut locked, inode)?;
            while !self.trim(&mut locked, inode)? {}
            let moved = size.next_multiple_of(u64::from(self.extents.block_size()));
            self.start_range_move(
                &mut locked,
                handle,
                Shift { direction: Direction::Up, at: offset, length, moved },
                grown,
            )
        })
    }

    /// The operation with its first step, then further steps as far as there is space.
    fn start_range_move(&self, locked: &mut Locked, handle: &Handle, shift: Shift, size: u64) -> Result<()> {
        let inode = handle.inode();
        let mut record = locked.record(inode)?.clone();
        let mut change = Change::new();
        self.note_write(&mut change, inode, &mut record, Writer::of(handle))?;
        if record.xattrs < locked.record(inode)?.xattrs {
            // The steps are transactions of their own.
            change.save(inode, record.clone());
            self.commit(change, locked)?;
        }
        record.size = size;
        record.set(FLAG_SHIFTING, true);
        self.move_next_piece(locked, inode, record, shift)?;
        if let Err(error) = self.finish_range_move(locked, inode) {
            tracing::warn!("a range operation on inode {} will be finished later: {error}", inode.0);
            self.backlog.push(Work::Intent(inode));
            self.runtime.wake();
        }
        Ok(())
    }

    /// Performs the steps that are left, so that the file can be changed.
    pub(crate) fn finish_range_move(&self, locked: &mut Locked, inode: InodeNo) -> Result<()> {
        while !self.step_range_move(locked, inode)? {}
        Ok(())
    }

    /// Performs one step. Returns true when nothing is left.
    pub(crate) fn step_range_move(&self, locked: &mut Locked, inode: InodeNo) -> Result<bool> {
        let record = match locked.record(inode) {
            Ok(record) if record.has(FLAG_SHIFTING) => record.clone(),
            _ => return Ok(true),
        };
        if record.has(FLAG_TRUNCATING) {
            // This frees space, and the removed blocks are not part of the move.
            self.trim(locked, inode)?;
            return Ok(false);
        }
        let shift = self.range_move_of(inode)?;
        self.move_next_piece(locked, inode, record, shift)
    }

    /// Performs one step and saves the given record with it. Returns true if it was the last one.
    fn move_next_piece(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        record: Record,
        shift: Shift,
    ) -> Result<bool> {
        match self.next(record.object(inode), &shift, record.size)? {
            Next::Copy(piece) => match self.copy(locked, inode, record, shift.clone(), piece) {
                // Before the first step the operation has not happened, and there is nothing to remove.
                Err(FsError::NoSpace)
                    if locked.record(inode)?.has(FLAG_SHIFTING)
                        && self.clear_gap(locked, inode, &shift)? => {}
                copied => copied?,
            },
            Next::Skip(hole) => self.skip(locked, inode, record, shift, hole)?,
            Next::Done => return self.end_range_move(locked, inode, record, &shift),
        }
        Ok(false)
    }

    /// The move that is recorded in the intent of a file.
    pub(crate) fn range_move_of(&self, inode: InodeNo) -> Result<Shift> {
        let stored = self.store.get(self.group(inode), INTENT, &number_key(inode))?;
        let stored = stored.ok_or(Damaged("a range operation has no intent"))?;
        let shift = Shift::decode(&stored)?;
        let block = u64::from(self.extents.block_size());
        let whole = [shift.at, shift.length, shift.moved].iter().all(|offset| offset.is_multiple_of(block));
        if whole { Ok(shift) } else { Err(Damaged("the range of an intent is not of whole blocks").into()) }
    }

    fn next(&self, object: Object, shift: &Shift, size: u64) -> Result<Next> {
        let block = u64::from(self.extents.block_size());
        let damaged = FsError::from(Damaged("the range of an intent is not within its file"));
        let Shift { direction, at, moved, .. } = *shift;
        let end = shift.end_before(size, block);
        if moved > end {
            return Err(damaged);
        }
        Ok(match direction {
            Direction::Down if moved == end => Next::Done,
            Direction::Down => match self.extents.maps().next_data(object, moved)?.filter(|data| *data < end)
            {
                Some(data) if data > moved => Next::Skip(moved..data),
                Some(_) => Next::Copy(
                    moved..self.extents.maps().next_hole(object, moved)?.min(end).min(moved + PIECE),
                ),
                None => Next::Skip(moved..end),
            },
            Direction::Up if moved == at => Next::Done,
            // Holes are skipped as a whole: a sparse file may be a million times as long as its data.
            Direction::Up => {
                match self.extents.maps().data_end_before(object, moved)?.filter(|end| *end > at) {
                    Some(end) if end < moved => Next::Skip(end..moved),
                    Some(_) => Next::Copy(self.start_of_run(object, at, moved)?..moved),
                    None => Next::Skip(at..moved),
                }
            }
        })
    }

    /// The beginning of the data that ends at `to`, but at most a piece before it, and not before `least`.
    fn start_of_run(&self, object: Object, least: u64, to: u64) -> Result<u64> {
        let mut at = to.saturating_sub(PIECE).max(least);
        loop {
            let data = self.extents.maps().next_data(object, at)?.map_or(to, |data| data.min(to));
            let hole = self.extents.maps().next_hole(object, data)?.min(to);
            if hole == to {
                return Ok(data);
            }
            at = hole;
        }
    }

    /// Copies a piece of data to its new place. Copies less if one transaction cannot replace all extents there.
    fn copy(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        record: Record,
        shift: Shift,
        piece: Range<u64>,
    ) -> Result<()> {
        let (block, length) = (u64::from(self.extents.block_size()), piece.end - piece.start);
        let target = shift.target(piece.start);
        let at_once = self.length_at_once(&record, inode, target, length as usize)?;
        if length > block && (at_once as u64) < length {
            let half = shift.half(&piece, block);
            return self.copy(locked, inode, record, shift, half);
        }
        if record.has(FLAG_SHARES) {
            return self.copy_or_share(locked, inode, record, shift, piece);
        }
        self.copy_bytes(locked, inode, record, shift, piece)
    }

    /// Moves a piece of a file that shares blocks. Shared blocks are not copied, because that would free nothing: the
    /// new place gets references.
    fn copy_or_share(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        mut record: Record,
        mut shift: Shift,
        piece: Range<u64>,
    ) -> Result<()> {
        let (object, block) = (record.object(inode), u64::from(self.extents.block_size()));
        let blocks = (piece.start / block, piece.end / block);
        let is_shared = !self.extents.maps().has_own_data(object, blocks)?;
        let is_mixed = !is_shared && self.extents.maps().has_references(object, blocks)?;
        if piece.end - piece.start > block && is_mixed {
            return self.copy_or_share(locked, inode, record, shift.clone(), shift.half(&piece, block));
        }
        if !is_shared {
            return self.copy_bytes(locked, inode, record, shift, piece);
        }
        let mut change = Change::new();
        let target = (object, shift.target(piece.start) / block);
        let (map, until) = self.extents.maps().share(
            &mut change.tx,
            (object, blocks),
            target,
            STEP_EXTENTS,
            record.file_class,
        )?;
        if until < blocks.1 {
            drop(map);
            return self.copy_or_share(locked, inode, record, shift.clone(), shift.half(&piece, block));
        }
        record.add_blocks(map.blocks_added());
        shift.advance(&piece);
        self.commit_move_step(locked, inode, change, record, &shift, map)
    }

    fn copy_bytes(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        mut record: Record,
        mut shift: Shift,
        piece: Range<u64>,
    ) -> Result<()> {
        let (object, block) = (record.object(inode), u64::from(self.extents.block_size()));
        let one = match shift.direction {
            Direction::Down => piece.start..piece.start + block,
            Direction::Up => piece.end - block..piece.end,
        };
        let mut data = vec![0; (piece.end - piece.start) as usize];
        let mut read = || self.extents.maps().read(object, piece.start, &mut data);
        // A lost block stays lost. So a single failed read must not count as loss.
        let mut twice = || match read() {
            Err(ExtentError::Lost { .. }) => read(),
            read => read,
        };
        match twice() {
            Err(ExtentError::Lost { .. }) if data.len() as u64 > block => {
                // Copy single blocks to lose as little as possible.
                return self.copy_bytes(locked, inode, record, shift, one);
            }
            Err(ExtentError::Lost { .. }) => return self.lose(locked, inode, record, shift, piece),
            read => read?,
        }
        self.extents.throttle().wait(data.len() as u64);
        let written =
            self.extents.append(object, record.hint(), shift.target(piece.start), &data, u64::MAX)?;
        let mut change = Change::new();
        let map = self.extents.insert(&mut change.tx, written)?;
        record.add_blocks(map.blocks_added());
        shift.advance(&piece);
        self.commit_move_step(locked, inode, change, record, &shift, map)
    }

    /// Moves a block that cannot be read: it becomes lost at its new place.
    fn lose(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        mut record: Record,
        mut shift: Shift,
        piece: Range<u64>,
    ) -> Result<()> {
        let target = shift.target(piece.start) / u64::from(self.extents.block_size());
        let mut change = Change::reclaiming();
        let map = self.extents.lose_block(&mut change.tx, record.object(inode), target)?;
        record.add_blocks(map.blocks_added());
        shift.advance(&piece);
        self.commit_move_step(locked, inode, change, record, &shift, map)
    }

    /// Removes the blocks at the new place of a hole.
    fn skip(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        mut record: Record,
        mut shift: Shift,
        hole: Range<u64>,
    ) -> Result<()> {
        let mut change = Change::reclaiming();
        let target = shift.target(hole.start)..shift.target(hole.end);
        let (map, none_left) = self.remove_some(&mut change, inode, &mut record, &target)?;
        if none_left {
            shift.advance(&hole);
        }
        self.commit_move_step(locked, inode, change, record, &shift, map)
    }

    fn commit_move_step(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        mut change: Change,
        record: Record,
        shift: &Shift,
        map: MapLock<'_>,
    ) -> Result<()> {
        change.tx.put(self.group(inode), INTENT, number_key(inode), shift.encode());
        change.save(inode, record);
        self.commit(change, locked)?;
        drop(map);
        Ok(())
    }

    /// Removes blocks in which no byte of the file is found any more. Returns whether that freed any. It is needed
    /// when pieces free none themselves, because they replace shared blocks or holes.
    fn clear_gap(&self, locked: &mut Locked, inode: InodeNo, shift: &Shift) -> Result<bool> {
        let (gap, mut gave_back) = (shift.gap(), false);
        loop {
            let mut record = locked.record(inode)?.clone();
            let mut change = Change::reclaiming();
            let (map, none_left) = self.remove_some(&mut change, inode, &mut record, &gap)?;
            gave_back |= map.blocks_added() < 0;
            change.save(inode, record);
            self.commit(change, locked)?;
            drop(map);
            if none_left {
                return Ok(gave_back);
            }
        }
    }

    /// All bytes are in their place. Removes the blocks that remain at old places, then the intent.
    fn end_range_move(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        mut record: Record,
        shift: &Shift,
    ) -> Result<bool> {
        let mut change = Change::reclaiming();
        let left = match shift.direction {
            Direction::Down => {
                let block = u64::from(self.extents.block_size());
                record.size.next_multiple_of(block)..shift.end_before(record.size, block)
            }
            Direction::Up => shift.at..shift.at + shift.length,
        };
        let (map, none_left) = self.remove_some(&mut change, inode, &mut record, &left)?;
        if none_left {
            record.set(FLAG_SHIFTING, false);
            change.tx.delete(self.group(inode), INTENT, number_key(inode));
        }
        change.save(inode, record);
        self.commit(change, locked)?;
        drop(map);
        Ok(none_left)
    }

    /// Removes as much of a range as fits in one transaction. Returns whether that was all.
    pub(crate) fn remove_some(
        &self,
        change: &mut Change,
        inode: InodeNo,
        record: &mut Record,
        range: &Range<u64>,
    ) -> Result<(MapLock<'_>, bool)> {
        let block = u64::from(self.extents.block_size());
        let (object, blocks) = (record.object(inode), (range.start / block, range.end / block));
        let removed = self.extents.remove(&mut change.tx, object, blocks, STEP_EXTENTS, record.file_class)?;
        record.add_blocks(removed.0.blocks_added());
        Ok(removed)
    }

    fn check_whole_blocks(&self, offset: u64, end: u64) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let whole = offset.is_multiple_of(block) && end.is_multiple_of(block);
        if whole { Ok(()) } else { Err(FsError::Invalid) }
    }
}

/// Inline contents are changed at once.
impl Fs {
    fn insert_inline(&self, locked: &mut Locked, handle: &Handle, at: usize, by: usize) -> Result<()> {
        self.edit_inline(locked, handle, |content| {
            content.splice(at..at, std::iter::repeat_n(0, by));
        })
    }

    fn edit_inline(
        &self,
        locked: &mut Locked,
        handle: &Handle,
        edit: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let inode = handle.inode();
        let mut record = locked.record(inode)?.clone();
        edit(&mut record.content);
        record.size = record.content.len() as u64;
        let mut change = Change::new();
        self.note_write(&mut change, inode, &mut record, Writer::of(handle))?;
        change.save(inode, record);
        self.commit(change, locked)?;
        Ok(())
    }
}

/// Reading a file in which a range is being moved.
impl Fs {
    /// The places of a file's bytes: one span unless a range is being moved.
    fn spans_of(&self, inode: InodeNo, record: &Record) -> Result<Vec<Span>> {
        match record.has(FLAG_SHIFTING) {
            true => Ok(self.range_move_of(inode)?.spans()),
            false => Ok(vec![(0..u64::MAX, Some(0))]),
        }
    }

    /// The places of a range of the file, without holes of the move.
    pub(crate) fn places_of(
        &self,
        inode: InodeNo,
        record: &Record,
        range: &Range<u64>,
    ) -> Result<Vec<Range<u64>>> {
        let spans = self.spans_of(inode, record)?.into_iter();
        let places = spans.filter_map(|(span, place)| {
            let (from, to) = (span.start.max(range.start), span.end.min(range.end));
            let place = place.filter(|_| from < to)?;
            Some(place + (from - span.start)..place + (to - span.start))
        });
        Ok(places.collect())
    }

    /// Reads from blocks. The file is locked, and the range is within its size.
    pub(crate) fn read_blocks(
        &self,
        inode: InodeNo,
        record: &Record,
        offset: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let object = record.object(inode);
        if !record.has(FLAG_SHIFTING) {
            return Ok(self.extents.maps().read(object, offset, into)?);
        }
        let end = offset + into.len() as u64;
        for (span, place) in self.spans_of(inode, record)? {
            let (from, to) = (span.start.max(offset), span.end.min(end));
            if from >= to {
                continue;
            }
            let part = &mut into[(from - offset) as usize..(to - offset) as usize];
            match place {
                Some(place) => self.extents.maps().read(object, place + (from - span.start), part)?,
                None => part.fill(0),
            }
        }
        Ok(())
    }

    /// The first byte at or after `offset` that is data. The file is locked.
    pub(crate) fn next_data(&self, inode: InodeNo, record: &Record, offset: u64) -> Result<Option<u64>> {
        for (span, place) in self.spans_of(inode, record)? {
            let Some(place) = place.filter(|_| offset < span.end) else { continue };
            let from = place + (span.start.max(offset) - span.start);
            let found = self.extents.maps().next_data(record.object(inode), from)?;
            if let Some(data) =
                found.map(|data| data.max(from) - place).filter(|at| *at < span.end - span.start)
            {
                return Ok(Some(span.start + data));
            }
        }
        Ok(None)
    }

    /// The first byte at or after `offset` that is in a hole. The file is locked.
    pub(crate) fn next_hole(&self, inode: InodeNo, record: &Record, offset: u64) -> Result<u64> {
        for (span, place) in self.spans_of(inode, record)? {
            if offset >= span.end {
                continue;
            }
            let start = span.start.max(offset);
            let Some(place) = place else { return Ok(start) };
            let from = place + (start - span.start);
            let hole = self.extents.maps().next_hole(record.object(inode), from)?.max(from) - place;
            if hole < span.end - span.start {
                return Ok(span.start + hole);
            }
        }
        Ok(u64::MAX)
    }
}

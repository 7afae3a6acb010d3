//! Taking a range out of a file, or opening one in it: what follows moves down or up.
//!
//! The bytes that follow are copied, not renumbered: a zone's reverse map says of each block which block
//! of the object it was, and garbage collection believes it (I-EXT-2). Copying takes many transactions,
//! and yet a crash leaves the file as it was before or as it is after:
//! * The first transaction is the operation. It gives the file its new size, sets `FLAG_SHIFTING`, and
//!   writes an intent that says which range it is and how far the copying has come: one step, so that a
//!   full volume refuses the operation before anything has happened.
//! * From then on the file's bytes are found through the intent ([`Shift::spans`]): what was copied is at
//!   its new place, the rest still at its old one, and a range that was put in is a hole. Readers see
//!   the file after, whenever they come, also on a volume that may not be changed.
//! * Each step copies a piece and says so in one transaction, or removes what no byte is found at any
//!   more. Pieces are taken away from what is still to be copied, so none is overwritten before.
//! * The last step takes flag and intent away. Whoever wants to change the file does all steps before
//!   ([`Fs::finish_shift`]); usually the operation itself has done them, with the inode locked.
//! * What only takes away needs no room and does not wait for the steps, which may: a file that is cut
//!   keeps what is left of the move ([`Shift::cut`]), and whole blocks are removed from where they are.
//!
//! After a crash the backlog finds the intent and goes on. A block that cannot be read is lost at its new
//! place as well and stops nobody. Each piece frees as many blocks as it takes; only when others take the
//! last space meanwhile is there none for a later one: the operation is done, and the copying goes on
//! when there is room. Where it does not (what a piece replaces is shared, or nothing), what was copied is removed from
//! its old place before the next piece.

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

/// Bytes of a file that follow each other, and where the object has them: `None` for a hole.
pub(crate) type Span = (Range<u64>, Option<u64>);

impl Shift {
    /// Where the bytes of the file are, from the first to the last that there can be.
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

    /// Where the file ended before, for a size after; of a file that was cut within a range that was put
    /// in: where that begins.
    fn end_before(&self, size: u64, block: u64) -> u64 {
        match self.direction {
            Direction::Down => (size + self.length).next_multiple_of(block),
            Direction::Up => size.next_multiple_of(block).saturating_sub(self.length).max(self.at),
        }
    }

    /// Where the object's blocks end, for a size after.
    pub(crate) fn object_end(&self, size: u64, block: u64) -> u64 {
        match self.direction {
            Direction::Down => self.end_before(size, block),
            Direction::Up => size.next_multiple_of(block),
        }
    }

    /// Blocks of the object in which no byte of the file is found, between what was copied and what is to be.
    fn gap(&self) -> Range<u64> {
        match self.direction {
            Direction::Down => self.moved - self.length..self.moved,
            Direction::Up => self.moved..self.moved + self.length,
        }
    }

    /// What is left of the move when the file is cut to `size`; None when all that stays is in its place.
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

    /// Where a byte goes.
    fn target(&self, offset: u64) -> u64 {
        match self.direction {
            Direction::Down => offset - self.length,
            Direction::Up => offset + self.length,
        }
    }

    /// The half of a piece, of several blocks, that goes first.
    fn half(&self, piece: &Range<u64>, block: u64) -> Range<u64> {
        let middle = piece.start + ((piece.end - piece.start) / block / 2) * block;
        match self.direction {
            Direction::Down => piece.start..middle,
            Direction::Up => middle..piece.end,
        }
    }

    /// What follows has been moved a step further.
    fn advance(&mut self, done: &Range<u64>) {
        let (before, after) = match self.direction {
            Direction::Down => (done.start, done.end),
            Direction::Up => (done.end, done.start),
        };
        assert_eq!(self.moved, before, "steps follow each other");
        self.moved = after;
    }
}

/// What the next step does.
enum Next {
    /// Copy these bytes.
    Copy(Range<u64>),
    /// There is nothing in these: remove what is where they go.
    Skip(Range<u64>),
    /// All is where it belongs.
    End,
}

impl Fs {
    /// Takes [offset, end) out of the file.
    ///
    /// # Errors
    /// `Invalid` for what is no whole number of blocks, or reaches the end of the file: that is a
    /// truncation.
    pub(crate) fn collapse(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let inode = handle.inode();
        self.check_whole_blocks(offset, end)?;
        self.with_room(|| {
            self.begin_growing()?;
            let mut locked = Locked::one(handle.node());
            self.finish_shift(&mut locked, inode)?;
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
            self.shift(&mut locked, handle, shift, size - (end - offset))
        })
    }

    /// Moves what is at `offset` and behind it to `end`, and leaves a hole in between.
    ///
    /// # Errors
    /// `Invalid` for what is no whole number of blocks or begins at the end of the file or behind it;
    /// `TooLarge` when the file would be.
    pub(crate) fn insert(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let (inode, length) = (handle.inode(), end - offset);
        self.check_whole_blocks(offset, end)?;
        self.with_room(|| {
            self.begin_growing()?;
            let mut locked = Locked::one(handle.node());
            self.finish_shift(&mut locked, inode)?;
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
            self.shift(
                &mut locked,
                handle,
                Shift { direction: Direction::Up, at: offset, length, moved },
                grown,
            )
        })
    }

    /// The operation with its first step, then the others as far as there is room.
    fn shift(&self, locked: &mut Locked, handle: &Handle, shift: Shift, size: u64) -> Result<()> {
        let inode = handle.inode();
        let mut record = locked.record(inode)?.clone();
        let mut change = Change::new();
        self.note_write(&mut change, inode, &mut record, Writer::of(handle))?;
        if record.xattrs < locked.record(inode)?.xattrs {
            // The steps are changes of their own.
            change.save(inode, record.clone());
            self.commit(change, locked)?;
        }
        record.size = size;
        record.set(FLAG_SHIFTING, true);
        self.go_on(locked, inode, record, shift)?;
        if let Err(error) = self.finish_shift(locked, inode) {
            tracing::warn!("what follows a range of inode {} will be moved later: {error}", inode.0);
            self.backlog.push(Work::Intent(inode));
            self.runtime.wake();
        }
        Ok(())
    }

    /// Does what is left to do before the file can be changed.
    pub(crate) fn finish_shift(&self, locked: &mut Locked, inode: InodeNo) -> Result<()> {
        while !self.step_shift(locked, inode)? {}
        Ok(())
    }

    /// One step; true when there is nothing left.
    pub(crate) fn step_shift(&self, locked: &mut Locked, inode: InodeNo) -> Result<bool> {
        let record = match locked.record(inode) {
            Ok(record) if record.has(FLAG_SHIFTING) => record.clone(),
            _ => return Ok(true),
        };
        if record.has(FLAG_TRUNCATING) {
            // That makes room, and what it removes is in nobody's way.
            self.trim(locked, inode)?;
            return Ok(false);
        }
        let shift = self.shift_of(inode)?;
        self.go_on(locked, inode, record, shift)
    }

    /// One step, which saves the record as it is given; true when it was the last.
    fn go_on(&self, locked: &mut Locked, inode: InodeNo, record: Record, shift: Shift) -> Result<bool> {
        match self.next(record.object(inode), &shift, record.size)? {
            Next::Copy(piece) => match self.copy(locked, inode, record, shift.clone(), piece) {
                // Before the first step the operation has not happened, and nothing is to be removed.
                Err(FsError::NoSpace)
                    if locked.record(inode)?.has(FLAG_SHIFTING)
                        && self.clear_gap(locked, inode, &shift)? => {}
                copied => copied?,
            },
            Next::Skip(hole) => self.skip(locked, inode, record, shift, hole)?,
            Next::End => return self.end_shift(locked, inode, record, &shift),
        }
        Ok(false)
    }

    /// The intent of a file that has one.
    pub(crate) fn shift_of(&self, inode: InodeNo) -> Result<Shift> {
        let stored = self.store.get(self.group(inode), INTENT, &number_key(inode))?;
        let stored = stored.ok_or(Damaged("a range is being moved and nothing says which"))?;
        let shift = Shift::decode(&stored)?;
        let block = u64::from(self.extents.block_size());
        let whole = [shift.at, shift.length, shift.moved].iter().all(|offset| offset.is_multiple_of(block));
        if whole {
            Ok(shift)
        } else {
            Err(Damaged("a range that is being moved is not of whole blocks").into())
        }
    }

    fn next(&self, object: Object, shift: &Shift, size: u64) -> Result<Next> {
        let block = u64::from(self.extents.block_size());
        let damaged = FsError::from(Damaged("a range that is being moved is not within its file"));
        let Shift { direction, at, moved, .. } = *shift;
        let end = shift.end_before(size, block);
        if moved > end {
            return Err(damaged);
        }
        Ok(match direction {
            Direction::Down if moved == end => Next::End,
            Direction::Down => match self.extents.next_data(object, moved)?.filter(|data| *data < end) {
                Some(data) if data > moved => Next::Skip(moved..data),
                Some(_) => {
                    Next::Copy(moved..self.extents.next_hole(object, moved)?.min(end).min(moved + PIECE))
                }
                None => Next::Skip(moved..end),
            },
            Direction::Up if moved == at => Next::End,
            // Holes are skipped whole: a sparse file may be a million times as long as what is in it.
            Direction::Up => match self.extents.data_end_before(object, moved)?.filter(|end| *end > at) {
                Some(end) if end < moved => Next::Skip(end..moved),
                Some(_) => Next::Copy(self.start_of_run(object, at, moved)?..moved),
                None => Next::Skip(at..moved),
            },
        })
    }

    /// Where the data begins that ends at `to`; a piece before that where it is longer, and not before `least`.
    fn start_of_run(&self, object: Object, least: u64, to: u64) -> Result<u64> {
        let mut at = to.saturating_sub(PIECE).max(least);
        loop {
            let data = self.extents.next_data(object, at)?.map_or(to, |data| data.min(to));
            let hole = self.extents.next_hole(object, data)?.min(to);
            if hole == to {
                return Ok(data);
            }
            at = hole;
        }
    }

    /// Copies a piece of data to where it goes; less of it where one transaction cannot write over all that is there.
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
            return self.copy_or_refer(locked, inode, record, shift, piece);
        }
        self.copy_bytes(locked, inode, record, shift, piece)
    }

    /// Copies a piece of a file that shares blocks. Copies of these would give nothing back, and need not be
    /// made: references may be anywhere.
    fn copy_or_refer(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        mut record: Record,
        mut shift: Shift,
        piece: Range<u64>,
    ) -> Result<()> {
        let (object, block) = (record.object(inode), u64::from(self.extents.block_size()));
        let blocks = (piece.start / block, piece.end / block);
        let is_shared = !self.extents.has_own_data(object, blocks)?;
        let is_mixed = !is_shared && self.extents.has_references(object, blocks)?;
        if piece.end - piece.start > block && is_mixed {
            return self.copy_or_refer(locked, inode, record, shift.clone(), shift.half(&piece, block));
        }
        if !is_shared {
            return self.copy_bytes(locked, inode, record, shift, piece);
        }
        let mut change = Change::new();
        let target = (object, shift.target(piece.start) / block);
        let (map, until) =
            self.extents.share(&mut change.tx, (object, blocks), target, STEP_EXTENTS, record.data_kind)?;
        if until < blocks.1 {
            drop(map);
            return self.copy_or_refer(locked, inode, record, shift.clone(), shift.half(&piece, block));
        }
        record.add_blocks(map.blocks_added());
        shift.advance(&piece);
        self.commit_step(locked, inode, change, record, &shift, map)
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
        let mut read = || self.extents.read(object, piece.start, &mut data);
        // What is lost is lost for good: one failure in passing must not cost what was written.
        let mut twice = || match read() {
            Err(ExtentError::Lost { .. }) => read(),
            read => read,
        };
        match twice() {
            Err(ExtentError::Lost { .. }) if data.len() as u64 > block => {
                // Block by block, to lose as little as possible.
                return self.copy_bytes(locked, inode, record, shift, one);
            }
            Err(ExtentError::Lost { .. }) => return self.lose(locked, inode, record, shift, piece),
            read => read?,
        }
        let written =
            self.extents.write(object, record.hint(), shift.target(piece.start), &data, u64::MAX)?;
        let mut change = Change::new();
        let map = self.extents.insert(&mut change.tx, written)?;
        record.add_blocks(map.blocks_added());
        shift.advance(&piece);
        self.commit_step(locked, inode, change, record, &shift, map)
    }

    /// A block that cannot be read: neither can it be where it goes.
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
        self.commit_step(locked, inode, change, record, &shift, map)
    }

    /// Removes what is where a hole goes.
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
        self.commit_step(locked, inode, change, record, &shift, map)
    }

    fn commit_step(
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

    /// Removes what is in blocks in which no byte is found any more; whether that gave any back. Pieces that are put in
    /// the place of what others have as well, or of nothing, give back none of it by themselves.
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

    /// Everything is at its new place: removes what is still at old ones, then the intent.
    fn end_shift(
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

    /// Removes as much of a range as one transaction takes; whether that was all.
    pub(crate) fn remove_some(
        &self,
        change: &mut Change,
        inode: InodeNo,
        record: &mut Record,
        range: &Range<u64>,
    ) -> Result<(MapLock<'_>, bool)> {
        let block = u64::from(self.extents.block_size());
        let (object, blocks) = (record.object(inode), (range.start / block, range.end / block));
        let removed = self.extents.remove(&mut change.tx, object, blocks, STEP_EXTENTS, record.data_kind)?;
        record.add_blocks(removed.0.blocks_added());
        Ok(removed)
    }

    fn check_whole_blocks(&self, offset: u64, end: u64) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let whole = offset.is_multiple_of(block) && end.is_multiple_of(block);
        if whole { Ok(()) } else { Err(FsError::Invalid) }
    }
}

/// Contents in the record are changed at once.
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
    /// Where the bytes of a file are: one span unless a range is being moved.
    fn spans_of(&self, inode: InodeNo, record: &Record) -> Result<Vec<Span>> {
        match record.has(FLAG_SHIFTING) {
            true => Ok(self.shift_of(inode)?.spans()),
            false => Ok(vec![(0..u64::MAX, Some(0))]),
        }
    }

    /// Where the object has a range of the file; without the parts that are nowhere.
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

    /// Reads from blocks; the file is locked and the range within its size.
    pub(crate) fn read_blocks(
        &self,
        inode: InodeNo,
        record: &Record,
        offset: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let object = record.object(inode);
        if !record.has(FLAG_SHIFTING) {
            return Ok(self.extents.read(object, offset, into)?);
        }
        let end = offset + into.len() as u64;
        for (span, place) in self.spans_of(inode, record)? {
            let (from, to) = (span.start.max(offset), span.end.min(end));
            if from >= to {
                continue;
            }
            let part = &mut into[(from - offset) as usize..(to - offset) as usize];
            match place {
                Some(place) => self.extents.read(object, place + (from - span.start), part)?,
                None => part.fill(0),
            }
        }
        Ok(())
    }

    /// The first byte at or after `offset` that is data; the file is locked.
    pub(crate) fn next_data(&self, inode: InodeNo, record: &Record, offset: u64) -> Result<Option<u64>> {
        for (span, place) in self.spans_of(inode, record)? {
            let Some(place) = place.filter(|_| offset < span.end) else { continue };
            let from = place + (span.start.max(offset) - span.start);
            let found = self.extents.next_data(record.object(inode), from)?;
            if let Some(data) =
                found.map(|data| data.max(from) - place).filter(|at| *at < span.end - span.start)
            {
                return Ok(Some(span.start + data));
            }
        }
        Ok(None)
    }

    /// The first byte at or after `offset` that is in a hole; the file is locked.
    pub(crate) fn next_hole(&self, inode: InodeNo, record: &Record, offset: u64) -> Result<u64> {
        for (span, place) in self.spans_of(inode, record)? {
            if offset >= span.end {
                continue;
            }
            let start = span.start.max(offset);
            let Some(place) = place else { return Ok(start) };
            let from = place + (start - span.start);
            let hole = self.extents.next_hole(record.object(inode), from)?.max(from) - place;
            if hole < span.end - span.start {
                return Ok(span.start + hole);
            }
        }
        Ok(u64::MAX)
    }
}

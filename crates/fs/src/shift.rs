//! Taking a range out of a file, or opening one in it: what follows moves down or up.
//!
//! The bytes that follow are copied, not renumbered: a zone's reverse map says of each block which block
//! of the object it was, and garbage collection believes it (I-EXT-2). Holes stay holes. The map is
//! changed piece by piece, always away from what is still to be moved, so that no byte is overwritten
//! before it was copied. The inode is locked throughout: a reader sees the file before or after.
//! Not so a crash, which may keep the first pieces only, as with a large write.
//!
//! Each piece frees as many blocks as it takes, so a full volume refuses at the first one; only when others
//! take the last space meanwhile does a later one fail, and what was moved so far stays moved.

use std::ops::Range;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::{FILE_SIZE_MAX, FLAG_INLINE};
use crate::handle::Handle;
use crate::inodes::Locked;
use crate::truncate::STEP_EXTENTS;
use crate::types::InodeNo;
use crate::volume::Fs;

/// Bytes that one transaction moves.
const PIECE: u64 = 1 << 20;

/// Which way, and by how many bytes.
#[derive(Clone, Copy)]
enum Shift {
    Down(u64),
    Up(u64),
}

impl Shift {
    /// Where the byte at `offset` goes.
    fn of(self, offset: u64) -> u64 {
        match self {
            Shift::Down(by) => offset - by,
            Shift::Up(by) => offset + by,
        }
    }
}

impl Fs {
    /// Takes [offset, end) out of the file.
    ///
    /// # Errors
    /// `Invalid` for what is no whole number of blocks, or reaches the end of the file: that is a
    /// truncation.
    pub(crate) fn collapse(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let (inode, by) = (handle.inode(), end - offset);
        self.check_whole_blocks(offset, end)?;
        // What is before this was moved when space ran out, and is not moved again.
        let mut moved = end;
        self.with_room(|| {
            self.begin_growing()?;
            let mut locked = Locked::one(handle.node());
            let size = locked.record(inode)?.size;
            if end >= size {
                return Err(FsError::Invalid);
            }
            if locked.record(inode)?.has(FLAG_INLINE) {
                let (from, to) = (offset as usize, end as usize);
                return self.edit_inline(&mut locked, handle, |content| drop(content.drain(from..to)));
            }
            self.move_down(&mut locked, inode, &mut moved, by, size)?;
            self.finish_shift(&mut locked, handle, size - by)
        })
    }

    /// Moves what is at `offset` and behind it to `end`, and leaves a hole in between.
    ///
    /// # Errors
    /// `Invalid` for what is no whole number of blocks or begins at the end of the file or behind it;
    /// `TooLarge` when the file would be.
    pub(crate) fn insert(&self, handle: &Handle, offset: u64, end: u64) -> Result<()> {
        let (inode, by) = (handle.inode(), end - offset);
        self.check_whole_blocks(offset, end)?;
        // The size before, and what has yet to be moved of it: known once the operation is under way.
        let mut begun: Option<(u64, u64)> = None;
        self.with_room(|| {
            self.begin_growing()?;
            let mut locked = Locked::one(handle.node());
            let now = locked.record(inode)?.size;
            let (size, mut unmoved) = begun.unwrap_or((now, now));
            if offset >= size {
                return Err(FsError::Invalid);
            }
            let grown = size.checked_add(by).filter(|size| *size <= FILE_SIZE_MAX);
            let grown = grown.ok_or(FsError::TooLarge)?;
            if locked.record(inode)?.has(FLAG_INLINE) && grown <= self.inline_bytes_max() as u64 {
                return self.insert_inline(&mut locked, handle, offset as usize, by as usize);
            }
            self.prepare_growth(&mut locked, inode, grown)?;
            self.finish_shift(&mut locked, handle, grown.max(now))?;
            let done = self.move_up(&mut locked, inode, offset..size, &mut unmoved, by);
            begun = Some((size, unmoved));
            done
        })
    }

    /// Moves data from `moved` on, up to the end of the file.
    fn move_down(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        moved: &mut u64,
        by: u64,
        size: u64,
    ) -> Result<()> {
        let shift = Shift::Down(by);
        let mut cleared = shift.of(*moved);
        for run in self.data_runs(inode, *moved, size)? {
            self.remove_range(locked, inode, cleared, shift.of(run.start))?;
            for piece in pieces(&run) {
                self.move_piece(locked, inode, &piece, shift)?;
                *moved = piece.end;
            }
            cleared = shift.of(run.end);
        }
        self.remove_range(locked, inode, cleared, shift.of(size))
    }

    /// Moves data before `unmoved`, down to where the range begins.
    fn move_up(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        range: Range<u64>,
        unmoved: &mut u64,
        by: u64,
    ) -> Result<()> {
        let shift = Shift::Up(by);
        let mut cleared = shift.of(*unmoved);
        for run in self.data_runs(inode, range.start, *unmoved)?.iter().rev() {
            self.remove_range(locked, inode, shift.of(run.end), cleared)?;
            for piece in pieces(run).iter().rev() {
                self.move_piece(locked, inode, piece, shift)?;
                *unmoved = piece.start;
            }
            cleared = shift.of(run.start);
        }
        self.remove_range(locked, inode, range.start, cleared)
    }

    fn insert_inline(&self, locked: &mut Locked, handle: &Handle, at: usize, by: usize) -> Result<()> {
        self.edit_inline(locked, handle, |content| {
            content.splice(at..at, std::iter::repeat_n(0, by));
        })
    }

    fn check_whole_blocks(&self, offset: u64, end: u64) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let whole = offset.is_multiple_of(block) && end.is_multiple_of(block);
        if whole { Ok(()) } else { Err(FsError::Invalid) }
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
        self.note_write(&mut record, handle.keeps_set_id());
        let mut change = Change::new();
        change.save(inode, record);
        self.commit(change, locked)?;
        Ok(())
    }

    /// Where there is data in [from, to): in order, and not next to each other.
    fn data_runs(&self, inode: InodeNo, from: u64, to: u64) -> Result<Vec<Range<u64>>> {
        let object = Self::object(inode);
        let (mut runs, mut at) = (Vec::new(), from);
        while let Some(start) = self.extents.next_data(object, at)?
            && start < to
        {
            at = self.extents.next_hole(object, start)?.min(to);
            runs.push(start..at);
        }
        Ok(runs)
    }

    /// Copies a piece of data to where it goes.
    fn move_piece(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        piece: &Range<u64>,
        shift: Shift,
    ) -> Result<()> {
        let mut data = vec![0; (piece.end - piece.start) as usize];
        self.extents.read(Self::object(inode), piece.start, &mut data)?;
        self.put_bytes(locked, inode, shift.of(piece.start), &data)
    }

    /// Makes a hole of [from, to), which begins with a block and ends with one or with the file.
    fn remove_range(&self, locked: &mut Locked, inode: InodeNo, from: u64, to: u64) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let (from, to) = (from.div_ceil(block), to.div_ceil(block));
        let mut done = from >= to;
        while !done {
            let mut record = locked.record(inode)?.clone();
            let mut change = Change::reclaiming();
            let (map, none_left) =
                self.extents.remove(&mut change.tx, Self::object(inode), from, to, STEP_EXTENTS)?;
            record.add_blocks(map.blocks_added());
            change.save(inode, record);
            self.commit(change, locked)?;
            drop(map);
            done = none_left;
        }
        Ok(())
    }

    /// The new size and times.
    fn finish_shift(&self, locked: &mut Locked, handle: &Handle, size: u64) -> Result<()> {
        let inode = handle.inode();
        let mut record = locked.record(inode)?.clone();
        let mut change = Change::reclaiming();
        let map = self.resize(&mut change, inode, &mut record, size)?;
        self.note_write(&mut record, handle.keeps_set_id());
        change.save(inode, record);
        self.commit(change, locked)?;
        drop(map);
        Ok(())
    }
}

/// A run in parts that one transaction takes.
fn pieces(run: &Range<u64>) -> Vec<Range<u64>> {
    let starts = (run.start..run.end).step_by(PIECE as usize);
    starts.map(|start| start..(start + PIECE).min(run.end)).collect()
}

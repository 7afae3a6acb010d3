//! Ranges of files: allocating, punching, zeroing, copying.

use tree::Lsn;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::file_io::check_file;
use crate::format::{FILE_SIZE_MAX, FLAG_INLINE};
use crate::handle::Handle;
use crate::inodes::Locked;
use crate::truncate::STEP_EXTENTS;
use crate::types::{FallocateMode, InodeNo};
use crate::volume::Fs;

/// Zeros that one transaction writes; bytes that a copy moves at a time.
const PIECE: u64 = 1 << 20;

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
            FallocateMode::Allocate { keep_size } => self.fill(handle, offset, end, keep_size),
            FallocateMode::PunchHole => self.clear(handle, offset, end, false),
            FallocateMode::ZeroRange { keep_size } => self.clear(handle, offset, end, !keep_size),
            FallocateMode::CollapseRange => self.collapse(handle, offset, end),
            FallocateMode::InsertRange => self.insert(handle, offset, end),
        }
    }

    /// Fills holes with zeros that take space: later writes there replace blocks and so need none.
    /// Space beyond the end cannot be kept for a file that does not grow.
    fn fill(&self, handle: &Handle, offset: u64, end: u64, keep_size: bool) -> Result<()> {
        let size = handle.node().state.read().record()?.size;
        if keep_size && end > size {
            return Err(FsError::NotSupported);
        }
        if end.saturating_sub(size.max(offset)) > self.extents.space().available {
            self.work_backlog()?;
            if end.saturating_sub(size.max(offset)) > self.extents.space().available {
                return Err(FsError::NoSpace);
            }
        }
        let mut at = offset;
        while at < end {
            at = self.with_room(|| {
                self.begin_growing()?;
                self.fill_piece(handle, at, end)
            })?;
        }
        Ok(())
    }

    /// Fills what holes there are in a piece of [at, end); returns where the next piece begins.
    fn fill_piece(&self, handle: &Handle, at: u64, end: u64) -> Result<u64> {
        let inode = handle.inode();
        let mut locked = Locked::one(handle.node());
        let size = locked.record(inode)?.size;
        if end > size {
            self.prepare_growth(&mut locked, inode, end)?;
        }
        if locked.record(inode)?.has(FLAG_INLINE) {
            self.grow(&mut locked, inode, end, handle.keeps_set_id())?;
            return Ok(end);
        }
        let object = Self::object(inode);
        let hole = self.extents.next_hole(object, at)?.max(at);
        let stop = match self.extents.next_data(object, hole)? {
            Some(data) if data > hole => data.min(end),
            _ => end,
        };
        let stop = stop.min((hole / PIECE + 1) * PIECE);
        if hole >= end || hole >= stop {
            self.grow(&mut locked, inode, end, handle.keeps_set_id())?;
            return Ok(end);
        }
        let mut change = Change::new();
        let mut record = locked.record(inode)?.clone();
        let zeros = vec![0; (stop - hole) as usize];
        let written = self.extents.write(object, record.hint(), hole, &zeros, record.size)?;
        let map = self.extents.insert(&mut change.tx, written)?;
        record.size = record.size.max(stop);
        record.add_blocks(self.blocks_added(&change)?);
        self.note_write(&mut record, handle.keeps_set_id());
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        drop(map);
        Ok(stop)
    }

    /// The size becomes at least `end`. Growth was prepared.
    fn grow(&self, locked: &mut Locked, inode: InodeNo, end: u64, keep_set_id: bool) -> Result<Lsn> {
        let mut record = locked.record(inode)?.clone();
        if end > record.size {
            record.size = end;
            if record.has(FLAG_INLINE) {
                record.content.resize(end as usize, 0);
            }
        }
        self.note_write(&mut record, keep_set_id);
        let mut change = Change::new();
        change.save(inode, record);
        self.commit(change, locked)
    }

    /// Makes [offset, end) read as zeros: whole blocks become a hole, the edges are written.
    fn clear(&self, handle: &Handle, offset: u64, end: u64, may_grow: bool) -> Result<()> {
        let inode = handle.inode();
        let block = u64::from(self.extents.block_size());
        self.with_room(|| {
            // Whole blocks only go away, which a full volume must allow.
            if may_grow || !offset.is_multiple_of(block) || !end.is_multiple_of(block) {
                self.extents.admit()?;
            }
            let mut locked = Locked::one(handle.node());
            if may_grow && end > locked.record(inode)?.size {
                self.prepare_growth(&mut locked, inode, end)?;
                self.grow(&mut locked, inode, end, handle.keeps_set_id())?;
            }
            let end = end.min(locked.record(inode)?.size);
            if offset >= end {
                return Ok(());
            }
            if locked.record(inode)?.has(FLAG_INLINE) {
                return self.clear_inline(&mut locked, inode, offset..end, handle.keeps_set_id());
            }
            self.clear_edges(&mut locked, inode, offset, end)?;
            self.clear_blocks(&mut locked, inode, offset, end, handle.keeps_set_id())
        })
    }

    fn clear_inline(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        range: std::ops::Range<u64>,
        keep_set_id: bool,
    ) -> Result<()> {
        let mut record = locked.record(inode)?.clone();
        record.content[range.start as usize..range.end as usize].fill(0);
        self.note_write(&mut record, keep_set_id);
        let mut change = Change::new();
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
        keep_set_id: bool,
    ) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let size = locked.record(inode)?.size;
        let from = offset.div_ceil(block);
        let to = if end == size { end.div_ceil(block) } else { end / block };
        loop {
            let mut record = locked.record(inode)?.clone();
            let mut change = Change::reclaiming();
            let (map, done) = match from < to {
                true => {
                    let object = Self::object(inode);
                    let (map, done) = self.extents.remove(&mut change.tx, object, from, to, STEP_EXTENTS)?;
                    (Some(map), done)
                }
                false => (None, true),
            };
            record.add_blocks(self.blocks_added(&change)?);
            self.note_write(&mut record, keep_set_id);
            change.save(inode, record);
            self.commit(change, locked)?;
            drop(map);
            if done {
                return Ok(());
            }
        }
    }

    /// Copies bytes between files; fewer than asked for at the end of the source. Each piece is one
    /// read and one write, as if the caller did them.
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
        let overlaps =
            from_offset < to_offset.saturating_add(length) && to_offset < from_offset.saturating_add(length);
        if from.inode() == to.inode() && overlaps && length > 0 {
            return Err(FsError::Invalid);
        }
        let mut buffer = vec![0; length.min(PIECE) as usize];
        let mut done = 0;
        while done < length {
            let wanted = (length - done).min(PIECE) as usize;
            let offset = from_offset.checked_add(done).ok_or(FsError::TooLarge)?;
            let read = self.read(from, offset, &mut buffer[..wanted])?;
            if read == 0 {
                break;
            }
            let offset = to_offset.checked_add(done).ok_or(FsError::TooLarge)?;
            match self.write(to, offset, &buffer[..read]) {
                Ok(written) => done += written as u64,
                Err(FsError::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

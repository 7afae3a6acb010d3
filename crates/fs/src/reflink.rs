//! Reflinks: files that share blocks.
//!
//! A clone refers to the blocks of its source and copies nothing (`extent::refcount`). Blocks can be shared only if
//! their object is no longer written. So a file that has data in an object of its own is **frozen** before it is
//! cloned: a new object is built, in steps, that refers to everything in the file's object. Then one transaction
//! makes the new object that of the file, and the old one becomes a shared object. Afterwards the references and the
//! unwritten extents of the old object are removed, because the new one has them.
//!
//! References of the new object are not counted before that transaction, and those of the old object are not counted
//! after it. Such an object is **uncounted**. It has a row in the table [`SHADOW`] from before it exists until its
//! references are removed. So after a crash the file is intact, and the backlog removes what an uncounted object has
//! left. The **owner** in the row is the file that the object belonged to. A new object has none.
//!
//! Space that is preallocated for the file is handed from the old object to the new one at the end, in steps. If a
//! crash interrupts this, the backlog continues: it hands over space up to the end of the file, where the file has no
//! blocks. So space that was punched out in the meantime may be preallocated again.
//!
//! A clone is made in steps, each of which is a transaction. After a crash, a first part of it exists. Freezing
//! changes nothing that a program can see.

use std::ops::Range;

use extent::Object;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::file_io::{Writer, check_file};
use crate::format::{
    FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHARES, FLAG_SPACE_BEYOND_END, FLAG_TAIL_STALE, SHADOW, decode_shadow,
    encode_shadow, number_key,
};
use crate::handle::Handle;
use crate::inodes::{Locked, in_order};
use crate::orphan::Work;
use crate::truncate::STEP_EXTENTS;
use crate::types::InodeNo;
use crate::volume::Fs;

/// Shorter ranges are copied, because the rows of references cost as much.
const WORTH_SHARING: u64 = 32 << 10;
/// A file is frozen to copy a part of it only if the part is at least 1 / `WORTH_FREEZING` of the file.
const WORTH_FREEZING: u64 = 4;
/// Or if the part has at least this many bytes, because requests have a limit.
const WORTH_FREEZING_BYTES: u64 = 1 << 30;

/// The ranges of one clone.
struct Cloning<'h> {
    from: &'h Handle,
    source: Range<u64>,
    to: &'h Handle,
    at: u64,
}

/// The progress of a clone, over all attempts.
struct Progress {
    /// Bytes to be cloned. This is decided in the first attempt, because a later attempt after a lack of space may
    /// find a source that the first one has made longer.
    length: Option<u64>,
    /// Bytes from the beginning that the target has.
    shared: u64,
    /// A new object that an attempt has built without success. It is removed when no inode is locked.
    abandoned: Option<Object>,
}

impl Cloning<'_> {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.source.end - self.source.start)
    }

    /// Whether a file would be cloned onto itself.
    fn overlaps(&self) -> bool {
        self.from.inode() == self.to.inode() && self.at < self.source.end && self.source.start < self.end()
    }
}

impl Fs {
    /// `FICLONERANGE`: makes a range of a file share the blocks of a range of another file, or of another range of
    /// the same file. A length of 0 means everything up to the end of the source.
    ///
    /// # Errors
    /// `Invalid` for ranges that are not whole blocks, that end behind the end of the source, or that overlap in one
    /// file. As an exception, a range may end within a block at the end of the source if the target does not reach
    /// further.
    pub fn clone_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        self.clone_some(from, from_offset, to, to_offset, length).1?;
        self.sync_if_asked(to)
    }

    /// The same without `sync_if_asked`. Also returns how many bytes from the beginning were cloned before an error.
    pub(crate) fn clone_some(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        length: u64,
    ) -> (u64, Result<()>) {
        let mut progress = Progress { length: (length > 0).then_some(length), shared: 0, abandoned: None };
        let cloned = self.with_space(|| {
            let cloned = self.clone_once((from, from_offset), (to, to_offset), &mut progress);
            progress.abandoned.take().into_iter().for_each(|object| self.finish_uncounted(object));
            cloned
        });
        (progress.shared, cloned)
    }

    /// Makes changes durable if the handle is synchronous.
    pub(crate) fn sync_if_asked(&self, handle: &Handle) -> Result<()> {
        if handle.flags().sync {
            self.make_durable()?;
        }
        Ok(())
    }

    fn clone_once(
        &self,
        (from, from_offset): (&Handle, u64),
        (to, at): (&Handle, u64),
        progress: &mut Progress,
    ) -> Result<()> {
        from.check_readable()?;
        to.check_writable()?;
        if to.flags().append {
            return Err(FsError::BadHandle);
        }
        self.begin_growing()?;
        // No other object has this number. It is used up even if it is not needed.
        let fresh = Object(self.numbers.next(&self.store, self.group(from.inode()))?.0);
        let nodes = in_order(vec![from.node().clone(), to.node().clone()]);
        let mut locked = self.lock(&nodes);
        check_file(locked.record(from.inode())?)?;
        check_file(locked.record(to.inode())?)?;
        self.finish_range_move(&mut locked, from.inode())?;
        self.finish_range_move(&mut locked, to.inode())?;
        let size = locked.record(from.inode())?.size;
        let length = *progress.length.get_or_insert(size.saturating_sub(from_offset));
        let end = from_offset.checked_add(length).filter(|end| *end <= size).ok_or(FsError::Invalid)?;
        at.checked_add(length).filter(|end| *end <= FILE_SIZE_MAX).ok_or(FsError::TooLarge)?;
        let clone = Cloning { from, source: from_offset..end, to, at };
        if clone.overlaps() || !self.is_of_whole_blocks(&clone, size, locked.record(to.inode())?.size) {
            return Err(FsError::Invalid);
        }
        if length == 0 {
            return Ok(());
        }
        let source = locked.record(from.inode())?;
        if source.has(FLAG_INLINE) {
            let content = source.content[from_offset as usize..end as usize].to_vec();
            let (written, _) = self.write_locked(Writer::of(to), &mut locked, to, at, &content, None)?;
            progress.shared = written as u64;
            return if written == content.len() { Ok(()) } else { Err(FsError::NoSpace) };
        }
        while !self.trim(&mut locked, from.inode())? {}
        // When this has emptied the file, its contents are inline.
        while !self.trim(&mut locked, to.inode())? {}
        self.spill(&mut locked, to.inode())?;
        if clone.end() > locked.record(to.inode())?.size {
            self.prepare_growth(&mut locked, to.inode(), clone.end())?;
        }
        let object = locked.record(from.inode())?.object(from.inode());
        if self.extents.maps().has_own_data(object, self.blocks_of(&clone.source))? {
            self.backlog.begin_building(fresh);
            let frozen = self.freeze(&mut locked, from.inode(), fresh, &mut progress.abandoned);
            self.backlog.end_building(fresh);
            frozen?;
        }
        self.share(&mut locked, &clone, &mut progress.shared)
    }

    fn is_of_whole_blocks(&self, clone: &Cloning<'_>, source_size: u64, target_size: u64) -> bool {
        let block = u64::from(self.extents.block_size());
        let ends = clone.source.end.is_multiple_of(block)
            || clone.source.end == source_size && clone.end() >= target_size;
        clone.source.start.is_multiple_of(block) && clone.at.is_multiple_of(block) && ends
    }

    /// The blocks that contain a byte of the range.
    fn blocks_of(&self, range: &Range<u64>) -> (u64, u64) {
        let block = u64::from(self.extents.block_size());
        (range.start / block, range.end.div_ceil(block))
    }

    /// Makes a new object that of the file, with references to everything in the old one. `abandoned`: see [`Progress`].
    fn freeze(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        fresh: Object,
        abandoned: &mut Option<Object>,
    ) -> Result<()> {
        let object = locked.record(inode)?.object(inode);
        let mut change = Change::new();
        self.put_uncounted(&mut change, fresh, None);
        self.commit(change, locked)?;
        *abandoned = Some(fresh);
        let mut from = Some(0);
        while let Some(at) = from {
            let mut change = Change::new();
            let (map, next) = self.extents.maps().refer(&mut change.tx, (object, fresh), at, STEP_EXTENTS)?;
            self.commit(change, locked)?;
            drop(map);
            from = next;
        }
        let mut record = locked.record(inode)?.clone();
        record.object = Some(fresh);
        record.set(FLAG_SHARES, true);
        let mut change = Change::new();
        self.delete_uncounted(&mut change, fresh);
        self.put_uncounted(&mut change, object, Some(inode));
        change.save(inode, record);
        self.commit(change, locked)?;
        *abandoned = None;
        let mut work = Some(0);
        while let Some(from) = work {
            work = self.drop_references_of_uncounted(locked, object, Some(inode), from).unwrap_or_else(
                |error| {
                    self.queue_uncounted(object, from, &error);
                    None
                },
            );
        }
        Ok(())
    }

    /// Makes the target refer to the blocks of the source. `shared`: the number of bytes that are shared so far.
    fn share(&self, locked: &mut Locked, clone: &Cloning<'_>, shared: &mut u64) -> Result<()> {
        let block = u64::from(self.extents.block_size());
        let (from, to) = (clone.from.inode(), clone.to.inode());
        let (mut next, end) = self.blocks_of(&clone.source);
        let first = next;
        while next < end {
            let source = locked.record(from)?;
            let (object, tail_stale) = (source.object(from), source.has(FLAG_TAIL_STALE));
            let mut record = locked.record(to)?.clone();
            let mut change = Change::new();
            let target = (record.object(to), clone.at / block + (next - first));
            let (map, until) = self.extents.maps().share(
                &mut change.tx,
                (object, (next, end)),
                target,
                STEP_EXTENTS,
                record.file_class,
            )?;
            record.add_blocks(map.blocks_added());
            record.set(FLAG_SHARES, true);
            let reached = (clone.at + (until - first) * block).min(clone.end());
            if reached >= record.size {
                record.size = reached;
                record.set(FLAG_TAIL_STALE, !reached.is_multiple_of(block) && tail_stale);
            }
            self.note_write(&mut change, to, &mut record, Writer::of(clone.to))?;
            change.save(to, record);
            self.commit(change, locked)?;
            drop(map);
            next = until;
            *shared = (*shared).max(reached - clone.at);
        }
        Ok(())
    }

    /// How many bytes of a range that is to be copied should be shared instead. 0: none.
    pub(crate) fn worth_sharing(
        &self,
        (from, from_offset): (&Handle, u64),
        (to, to_offset): (&Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let target_size = to.node().state.read().record()?.size;
        let state = from.node().state.read();
        let record = state.record()?;
        let end = from_offset.saturating_add(length).min(record.size);
        let mut clone = Cloning { from, source: from_offset.min(end)..end, to, at: to_offset };
        if !self.is_of_whole_blocks(&clone, record.size, target_size) {
            clone.source.end -= clone.source.end % u64::from(self.extents.block_size());
        }
        let shared = clone.source.end.saturating_sub(from_offset);
        let is_aligned = shared >= WORTH_SHARING && self.is_of_whole_blocks(&clone, record.size, target_size);
        if !is_aligned || record.has(FLAG_INLINE) {
            return Ok(0);
        }
        let must_freeze =
            self.extents.maps().has_own_data(record.object(from.inode()), self.blocks_of(&clone.source))?;
        let is_worth_it = !must_freeze || shared >= (record.size / WORTH_FREEZING).min(WORTH_FREEZING_BYTES);
        Ok(if is_worth_it { shared } else { 0 })
    }

    fn put_uncounted(&self, change: &mut Change, object: Object, owner: Option<InodeNo>) {
        let number = InodeNo(object.0);
        change.tx.put(self.group(number), SHADOW, number_key(number), encode_shadow(owner));
    }

    fn delete_uncounted(&self, change: &mut Change, object: Object) {
        let number = InodeNo(object.0);
        change.tx.delete(self.group(number), SHADOW, number_key(number));
    }

    /// Removes an uncounted object, or queues that for the backlog. No inode is locked.
    fn finish_uncounted(&self, object: Object) {
        let mut at = Some(0);
        while let Some(from) = at {
            at = match self.work_on_unqueued(Work::Uncounted(object, from)) {
                Ok(Some(Work::Uncounted(_, from))) => Some(from),
                Ok(_) => None,
                Err(error) => {
                    self.queue_uncounted(object, from, &error);
                    None
                }
            };
        }
    }

    fn queue_uncounted(&self, object: Object, from: u64, error: &FsError) {
        tracing::warn!("the references of object {} will be removed later: {error}", object.0);
        self.backlog.push(Work::Uncounted(object, from));
        self.runtime.wake();
    }

    /// One step of removing an uncounted object. Returns the work that is left.
    pub(crate) fn step_uncounted(&self, object: Object, from: u64) -> Result<Option<Work>> {
        // Asked before the row is read: then a row that exists does not belong to an object that is being built.
        if self.backlog.is_building(object) {
            return Ok(None);
        }
        let Some(owner) = self.owner_of_uncounted(object)? else { return Ok(None) };
        let node = owner.map(|owner| self.node(owner)).transpose()?;
        let mut locked = self.lock(node.as_slice());
        match self.owner_of_uncounted(object)? {
            None => return Ok(None),
            Some(now) if now != owner => return Ok(Some(Work::Uncounted(object, 0))),
            Some(_) => {}
        }
        let next = self.drop_references_of_uncounted(&mut locked, object, owner, from)?;
        // Removing an object that was built without success frees no space that was in use before.
        if owner.is_some() {
            self.backlog.note_advance();
        }
        Ok(next.map(|from| Work::Uncounted(object, from)))
    }

    /// The owner of an uncounted object. None if there is no such object.
    fn owner_of_uncounted(&self, object: Object) -> Result<Option<Option<InodeNo>>> {
        let number = InodeNo(object.0);
        let stored = self.store.get(self.group(number), SHADOW, &number_key(number))?;
        Ok(stored.map(|stored| decode_shadow(&stored)).transpose()?)
    }

    /// The same with the owner, if there is one, locked. Returns the block to continue with.
    fn drop_references_of_uncounted(
        &self,
        locked: &mut Locked,
        object: Object,
        owner: Option<InodeNo>,
        from: u64,
    ) -> Result<Option<u64>> {
        let block = u64::from(self.extents.block_size());
        let record = owner.and_then(|owner| Some((owner, locked.record(owner).ok()?.clone())));
        let gets_space_up_to = match &record {
            Some((_, record)) if record.has_no_blocks() => None,
            Some((owner, record)) if record.has(FLAG_SPACE_BEYOND_END) => {
                Some((record.object(*owner), u64::MAX))
            }
            Some((owner, record)) => Some((record.object(*owner), self.object_end(*owner, record)? / block)),
            None => None,
        };
        let mut change = Change::reclaiming();
        let (map, next) = self.extents.maps().drop_uncounted(
            &mut change.tx,
            (object, gets_space_up_to),
            from,
            STEP_EXTENTS,
        )?;
        if next.is_none() {
            self.delete_uncounted(&mut change, object);
        }
        if let Some((owner, mut record)) = record.filter(|_| map.blocks_added() != 0) {
            record.add_blocks(map.blocks_added());
            change.save(owner, record);
        }
        self.commit(change, locked)?;
        drop(map);
        Ok(next)
    }
}

#[cfg(test)]
mod tests;

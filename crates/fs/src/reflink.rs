//! Files that share blocks: cloning.
//!
//! What is cloned is referred to, not copied (`extent::refcount`). Contents that are a file's own must first be
//! those of an object that is written no more: the file is **frozen**. A new object becomes, in steps, what the
//! file's object is, by references; then one transaction makes it the file's. Until then the new object is a
//! shadow, from then on the old one is, until all that the new one has taken over is gone from it. A shadow
//! has a row in the table of shadows from before it exists to after it has ended, so a crash at any moment leaves
//! a file that is whole and at most a shadow, which the backlog ends.
//!
//! Space that the file keeps is handed from the old object to the new one at the end, piece by piece. After a crash
//! in between the backlog does so, as far as the file reaches and where it has nothing: what was given back in the
//! meantime may have its space kept once more.
//!
//! A clone is made in steps, each a transaction: after a crash a first part of it is there. Freezing changes nothing
//! that anybody can see.

use std::ops::Range;

use extent::Object;

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::file_io::{Writer, check_file};
use crate::format::{
    FILE_SIZE_MAX, FLAG_INLINE, FLAG_KEPT_BEYOND, FLAG_SHARES, FLAG_TAIL_STALE, SHADOW, decode_shadow,
    encode_shadow, number_key,
};
use crate::handle::Handle;
use crate::inodes::{Locked, in_order};
use crate::orphan::Work;
use crate::truncate::STEP_EXTENTS;
use crate::types::InodeNo;
use crate::volume::Fs;

/// What is less is copied: the rows of a reference, here and there, cost as much.
const WORTH_SHARING: u64 = 32 << 10;
/// A file is frozen to copy a part of it only where that is at least so large a part.
const WORTH_FREEZING: u64 = 4;
/// Or where it is as much as this: requests have an end.
const WORTH_FREEZING_BYTES: u64 = 1 << 30;

/// What is cloned.
struct Cloning<'h> {
    from: &'h Handle,
    source: Range<u64>,
    to: &'h Handle,
    at: u64,
}

/// How far cloning has come, over all attempts.
struct Progress {
    /// How much is to be cloned. Found out once: what is cloned first may be cloned again when there is room, and the
    /// source be longer by then.
    length: Option<u64>,
    /// Bytes from the beginning that the target has.
    shared: u64,
    /// A copy that was made in vain, and is to be ended when no inode is locked any more.
    left: Option<Object>,
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
    /// `FICLONERANGE`: makes a range of a file share the blocks of a range of another, or of another range of the same
    /// file. A length of 0 means all up to the end of the source.
    ///
    /// # Errors
    /// `Invalid` for what is no whole number of blocks, except that it may end where the source does if that
    /// is no less than the size of the target; for what is beyond the end of the source; and for ranges of one
    /// file that overlap.
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

    /// The same, not yet durable where that is asked for; also how many bytes from the beginning are cloned, if not all.
    pub(crate) fn clone_some(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        length: u64,
    ) -> (u64, Result<()>) {
        let mut progress = Progress { length: (length > 0).then_some(length), shared: 0, left: None };
        let cloned = self.with_space(|| {
            let cloned = self.clone_once((from, from_offset), (to, to_offset), &mut progress);
            progress.left.take().into_iter().for_each(|object| self.end_shadow(object));
            cloned
        });
        (progress.shared, cloned)
    }

    /// What was changed through a handle that asks for it becomes durable.
    pub(crate) fn sync_if_asked(&self, handle: &Handle) -> Result<()> {
        if handle.flags().sync {
            self.as_writer(|| self.store.sync(self.store.last_lsn()))?;
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
        // Nobody else has this number; it is spent whether it is needed or not.
        let fresh = Object(self.numbers.next(&self.store, self.group(from.inode()))?.0);
        let nodes = in_order(vec![from.node().clone(), to.node().clone()]);
        let mut locked = Locked::lock(&nodes);
        check_file(locked.record(from.inode())?)?;
        check_file(locked.record(to.inode())?)?;
        self.finish_shift(&mut locked, from.inode())?;
        self.finish_shift(&mut locked, to.inode())?;
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
        self.spill(&mut locked, to.inode())?;
        if clone.end() > locked.record(to.inode())?.size {
            self.prepare_growth(&mut locked, to.inode(), clone.end())?;
        }
        let object = locked.record(from.inode())?.object(from.inode());
        if self.extents.has_own_data(object, self.blocks_of(&clone.source))? {
            self.backlog.begin_making(fresh);
            let frozen = self.freeze(&mut locked, from.inode(), fresh, &mut progress.left);
            self.backlog.end_making(fresh);
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

    /// The blocks that have a byte of a range.
    fn blocks_of(&self, range: &Range<u64>) -> (u64, u64) {
        let block = u64::from(self.extents.block_size());
        (range.start / block, range.end.div_ceil(block))
    }

    /// Makes all that a file has another object's, of which it has references. `left`: see [`Progress`].
    fn freeze(
        &self,
        locked: &mut Locked,
        inode: InodeNo,
        fresh: Object,
        left: &mut Option<Object>,
    ) -> Result<()> {
        let object = locked.record(inode)?.object(inode);
        let mut change = Change::new();
        self.add_shadow(&mut change, fresh, None);
        self.commit(change, locked)?;
        *left = Some(fresh);
        let mut from = Some(0);
        while let Some(at) = from {
            let mut change = Change::new();
            let (map, next) = self.extents.refer(&mut change.tx, (object, fresh), at, STEP_EXTENTS)?;
            self.commit(change, locked)?;
            drop(map);
            from = next;
        }
        let mut record = locked.record(inode)?.clone();
        record.object = Some(fresh);
        record.set(FLAG_SHARES, true);
        let mut change = Change::new();
        self.remove_shadow(&mut change, fresh);
        self.add_shadow(&mut change, object, Some(inode));
        change.save(inode, record);
        self.commit(change, locked)?;
        *left = None;
        let mut work = Some(0);
        while let Some(from) = work {
            work = self.step_shadow(locked, object, Some(inode), from).unwrap_or_else(|error| {
                self.leave_shadow(object, from, &error);
                None
            });
        }
        Ok(())
    }

    /// Has the target refer to what the source refers to. `shared`: how many bytes have come so far.
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
            let (map, until) = self.extents.share(
                &mut change.tx,
                (object, (next, end)),
                target,
                STEP_EXTENTS,
                record.data_kind,
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

    /// How much of a range to be copied is better shared; 0: nothing.
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
            self.extents.has_own_data(record.object(from.inode()), self.blocks_of(&clone.source))?;
        let is_worth_it = !must_freeze || shared >= (record.size / WORTH_FREEZING).min(WORTH_FREEZING_BYTES);
        Ok(if is_worth_it { shared } else { 0 })
    }

    fn add_shadow(&self, change: &mut Change, object: Object, heir: Option<InodeNo>) {
        let number = InodeNo(object.0);
        change.tx.put(self.group(number), SHADOW, number_key(number), encode_shadow(heir));
    }

    fn remove_shadow(&self, change: &mut Change, object: Object) {
        let number = InodeNo(object.0);
        change.tx.delete(self.group(number), SHADOW, number_key(number));
    }

    /// Ends a shadow, or leaves that to the backlog. No inode is locked.
    fn end_shadow(&self, object: Object) {
        let mut at = Some(0);
        while let Some(from) = at {
            at = match self.work_in_hand(Work::Shadow(object, from)) {
                Ok(Some(Work::Shadow(_, from))) => Some(from),
                Ok(_) => None,
                Err(error) => {
                    self.leave_shadow(object, from, &error);
                    None
                }
            };
        }
    }

    fn leave_shadow(&self, object: Object, from: u64, error: &FsError) {
        tracing::warn!("what object {} shared will be ended later: {error}", object.0);
        self.backlog.push(Work::Shadow(object, from));
        self.runtime.wake();
    }

    /// One step towards the end of a shadow; what is left to do.
    pub(crate) fn work_on_shadow(&self, object: Object, from: u64) -> Result<Option<Work>> {
        // Before its row is looked up: a row that is there is not of one that is being made then.
        if self.backlog.is_making(object) {
            return Ok(None);
        }
        let Some(heir) = self.heir_of(object)? else { return Ok(None) };
        let node = heir.map(|heir| self.node(heir)).transpose()?;
        let mut locked = Locked::lock(node.as_slice());
        match self.heir_of(object)? {
            None => return Ok(None),
            Some(now) if now != heir => return Ok(Some(Work::Shadow(object, 0))),
            Some(_) => {}
        }
        let next = self.step_shadow(&mut locked, object, heir, from)?;
        // That a copy goes that was made in vain makes no room that was not there before.
        if heir.is_some() {
            self.backlog.note_advance();
        }
        Ok(next.map(|from| Work::Shadow(object, from)))
    }

    /// The heir of a shadow; None when there is no such shadow.
    fn heir_of(&self, object: Object) -> Result<Option<Option<InodeNo>>> {
        let number = InodeNo(object.0);
        let stored = self.store.get(self.group(number), SHADOW, &number_key(number))?;
        Ok(stored.map(|stored| decode_shadow(&stored)).transpose()?)
    }

    /// The same; the heir, if there is one, is locked. Where to go on.
    fn step_shadow(
        &self,
        locked: &mut Locked,
        object: Object,
        heir: Option<InodeNo>,
        from: u64,
    ) -> Result<Option<u64>> {
        let block = u64::from(self.extents.block_size());
        let record = heir.and_then(|heir| Some((heir, locked.record(heir).ok()?.clone())));
        let kept_up_to = match &record {
            Some((_, record)) if record.has_no_blocks() => None,
            Some((heir, record)) if record.has(FLAG_KEPT_BEYOND) => Some((record.object(*heir), u64::MAX)),
            Some((heir, record)) => Some((record.object(*heir), self.object_end(*heir, record)? / block)),
            None => None,
        };
        let mut change = Change::reclaiming();
        let (map, next) =
            self.extents.drop_shadow(&mut change.tx, (object, kept_up_to), from, STEP_EXTENTS)?;
        if next.is_none() {
            self.remove_shadow(&mut change, object);
        }
        if let Some((heir, mut record)) = record.filter(|_| map.blocks_added() != 0) {
            record.add_blocks(map.blocks_added());
            change.save(heir, record);
        }
        self.commit(change, locked)?;
        drop(map);
        Ok(next)
    }
}

#[cfg(test)]
mod tests;

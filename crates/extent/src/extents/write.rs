//! Writing: reserve, place, append, and later insert.
//!
//! A write is complete at the device before it is in the object map. Between the two its blocks are *pending*: their zone is
//! no victim and is not reset. A [`Written`] that is dropped without being inserted only leaves dead blocks.
//!
//! The transaction that inserts is built after the appends have returned. So its record is submitted after the data
//! (`break-data-before-record` removes this).

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;
use tree::Tx;
use zone::{Cause, DeviceError, ZoneId};

use super::Extents;
use crate::append::{Appending, BATCH_APPENDS, Run};
use crate::appended::Appended;
use crate::format::{EXTENT_BLOCKS_MAX, Extent};
use crate::map::{self, View};
use crate::maps::MapLock;
use crate::place::PlaceRequest;
use crate::reservations::Reservation;
use crate::tx_limits::REMOVED_ROW_BYTES;
use crate::{ExtentError, FileClass, Hint, Lifetime, Object, Result};

/// Zones that may fail during one write before the write fails.
const FAILURES_MAX: u32 = 16;

/// Data that is complete at the device and pending until it is inserted. If it is dropped before, it becomes dead blocks.
pub struct Written {
    object: Object,
    file_class: FileClass,
    pieces: Vec<Appended>,
    /// Blocks to be stored in the table of inline blocks.
    inline_blocks: Vec<(u64, Vec<u8>)>,
    reservations: SmallVec<[Reservation; 1]>,
}

/// Space for whole blocks that are appended later. Returned when it is dropped.
pub struct DelayedSpace(Reservation);

/// Whole blocks of one object, in one buffer. They are appended together and inserted by one transaction.
pub struct BlockRuns<'d> {
    /// The object.
    pub object: Object,
    /// The file class and lifetime of the data.
    pub hint: Hint,
    /// The size of the file before.
    pub valid: u64,
    /// The first block of each run and the number of its blocks, in the order of the buffer. They do not overlap.
    pub runs: &'d [(u64, u64)],
    /// The contents of all runs, one after the other.
    pub data: &'d [u8],
}

/// A write of bytes to an object.
#[derive(Clone, Copy, Debug)]
pub struct WriteCall<'d> {
    /// The object.
    pub object: Object,
    /// The file class and lifetime of the data.
    pub hint: Hint,
    /// The first byte.
    pub offset: u64,
    /// The bytes.
    pub data: &'d [u8],
    /// The size of the file before this write. Older bytes of the object from there on count as zeros.
    pub valid: u64,
    /// Whether the object may refer to blocks of other objects.
    pub may_refer: bool,
}

impl WriteCall<'_> {
    /// The blocks of these bytes.
    fn blocks(&self, block_size: u64) -> (u64, u64) {
        (self.offset / block_size, (self.offset + self.data.len() as u64).div_ceil(block_size))
    }
}

impl Written {
    fn nothing(object: Object, hint: Hint) -> Self {
        let (pieces, inline_blocks, reservations) = (Vec::new(), Vec::new(), SmallVec::new());
        Written { object, file_class: hint.file_class, pieces, inline_blocks, reservations }
    }

    /// The ranges of blocks, in order. Adjacent ones are one.
    fn ranges(&self) -> SmallVec<[(u64, u64); 1]> {
        let of_pieces = self.pieces.iter().map(|piece| (piece.start, piece.end()));
        let of_inline_blocks = self.inline_blocks.iter().map(|(block, _)| (*block, block + 1));
        let mut all: SmallVec<[(u64, u64); 1]> = of_pieces.chain(of_inline_blocks).collect();
        all.sort_unstable();
        all.dedup_by(|next, last| {
            let joins = last.1 == next.0;
            last.1 = if joins { next.1 } else { last.1 };
            joins
        });
        all
    }
}

/// An extent or an inline block that is overwritten.
struct OverwrittenRow {
    /// Its first block.
    block: u64,
    /// Its bytes in the transaction. For a reference, they include the possible changes of the owner.
    bytes: usize,
    is_reference: bool,
}

impl Extents {
    /// Admits a write of this number of bytes, which may wait for GC. Then appends the data if `early` has it: without the
    /// lock of the file, so that writers of one file append concurrently. The caller knows that the rest of the first and of the
    /// last block has no data.
    ///
    /// Appends nothing if space is so scarce that others could lack the reservation until the data is inserted, or if one
    /// transaction might not replace everything in these blocks. Call without any lock.
    pub fn begin_write(&self, bytes: u64, early: Option<&WriteCall<'_>>) -> Result<Option<Written>> {
        self.throttle.wait(bytes);
        self.supply.admit()?;
        let Some(call) = early else { return Ok(None) };
        let (first, end) = call.blocks(u64::from(self.maps.block_size()));
        if call.may_refer || !self.maps.limits().fit_in_one_tx(end - first) {
            return Ok(None);
        }
        match self.append_early(call) {
            Err(ExtentError::NoSpace) => Ok(None),
            appended => appended,
        }
    }

    /// Appends the data, unless that was done early, and adds to `tx` its insertion into the object. Returns the lock of the
    /// map, to be kept until `commit` has returned, and the number of written bytes. It is less than given if one transaction
    /// cannot replace everything in these blocks. Call with the lock of the file.
    ///
    /// # Errors
    /// As [`Extents::append`].
    pub fn write<'a>(
        &'a self,
        tx: &mut Tx,
        call: &WriteCall<'_>,
        early: Option<Written>,
    ) -> Result<(MapLock<'a>, usize)> {
        let size = u64::from(self.maps.block_size());
        let (first, end) = call.blocks(size);
        let blocks = self.blocks_per_tx(call.object, (first, end), call.may_refer)?;
        let length = (((first + blocks) * size - call.offset) as usize).min(call.data.len());
        let to = (call.offset + length as u64).div_ceil(size);
        let is_same = |early: &Written| early.object == call.object && early.ranges()[..] == [(first, to)];
        assert!(length > 0 || call.data.is_empty(), "each write makes progress");
        let written = match early.filter(is_same) {
            Some(early) => early,
            None => self.append(call.object, call.hint, call.offset, &call.data[..length], call.valid)?,
        };
        Ok((self.insert(tx, written)?, length))
    }

    /// Reserves, places and appends. Several appends are in flight. If a zone fails, the data goes to another one.
    ///
    /// Whole blocks are written. At unaligned edges the rest is read and merged. Bytes from `valid` on, the file's size
    /// before this write, count as zeros. A write of less than a block becomes inline blocks if these fit into values of the
    /// store. Call with the file's write lock and without map locks, and insert everything of one call in one transaction.
    ///
    /// # Errors
    /// `NoSpace` if the data does not fit even after GC; `Lost` if a block at an edge cannot be read.
    pub fn append(
        &self,
        object: Object,
        hint: Hint,
        offset: u64,
        data: &[u8],
        valid: u64,
    ) -> Result<Written> {
        let mut written = Written::nothing(object, hint);
        if data.is_empty() {
            return Ok(written);
        }
        let (first, blocks) = self.assemble(object, offset, data, valid)?;
        let size = self.maps.block_size() as usize;
        assert!(
            blocks.len().is_multiple_of(size) && first * size as u64 <= offset,
            "whole blocks are written"
        );
        let count = (blocks.len() / size) as u64;
        let is_small = data.len() < size && self.fit_inline(&blocks);
        // If trees may not grow, the data goes to space that the object has already.
        let reserved = match is_small && self.budget.may_trees_grow() {
            true => None,
            false => Some(self.budget.reserve_over(object, first, count)),
        };
        match reserved {
            Some(Ok(reservation)) => written.reservations.push(reservation),
            Some(Err(error)) if !is_small || !matches!(error, ExtentError::NoSpace) => return Err(error),
            _ => {
                self.maps.inline_counts().set_hint(object, hint);
                let contents = blocks.chunks(size).map(|block| trim(block).to_vec());
                written.inline_blocks = (first..).zip(contents).collect();
                return Ok(written);
            }
        }
        written.pieces = self.append_user_data(object, hint, (first, &blocks), valid)?;
        Ok(written)
    }

    /// Admits a write of whole blocks, which may wait for GC, and reserves its space. The data is appended later
    /// ([`Extents::append_runs`]). None if space is so scarce that others could lack it until then. Call without any lock.
    pub fn begin_delayed_write(&self, bytes: u64) -> Result<Option<DelayedSpace>> {
        let size = u64::from(self.maps.block_size());
        assert!(bytes.is_multiple_of(size), "whole blocks are delayed");
        self.throttle.wait(bytes);
        self.supply.admit()?;
        Ok(self.budget.reserve_for_long(bytes / size).map(DelayedSpace))
    }

    /// Whether one transaction can always insert this number of runs with this number of blocks, if the object has no
    /// references there.
    pub fn runs_fit_in_one_tx(&self, runs: u64, blocks: u64) -> bool {
        self.maps.limits().runs_fit_in_one_tx(runs, blocks)
    }

    /// Appends runs of blocks whose space is reserved. Runs that follow each other in the buffer share commands.
    ///
    /// # Errors
    /// As [`Extents::append`].
    pub fn append_runs(&self, call: &BlockRuns<'_>, space: Vec<DelayedSpace>) -> Result<Written> {
        let BlockRuns { object, hint, valid, runs, data } = *call;
        let size = self.maps.block_size() as usize;
        let mut written = Written::nothing(object, hint);
        written.reservations = space.into_iter().map(|DelayedSpace(reservation)| reservation).collect();
        let Some(&(first, _)) = runs.first() else { return Ok(written) };
        let mut at = 0;
        let run = |&(start, blocks): &(u64, u64)| {
            let from = at;
            at += blocks as usize * size;
            Run::within(object, start, (data, from..at), None)
        };
        let in_buffer: VecDeque<Run<'_>> = runs.iter().map(run).collect();
        assert_eq!(at, data.len(), "the buffer consists of the runs");
        let lifetime = self.class_of(object, hint, first, first * (size as u64) < valid)?;
        written.pieces = self.append_data(lifetime, in_buffer, Cause::Data)?;
        self.maps.learned().placed(lifetime, hint, (data.len() / size) as u64);
        Ok(written)
    }

    fn append_early(&self, call: &WriteCall<'_>) -> Result<Option<Written>> {
        let WriteCall { object, hint, offset, data, valid, .. } = *call;
        let size = self.maps.block_size() as usize;
        assert!(offset.is_multiple_of(size as u64), "without the lock, the write begins with a whole block");
        let (first, blocks) = self.assemble(object, offset, data, 0)?;
        let Some(reservation) = self.budget.reserve_for_long((blocks.len() / size) as u64) else {
            return Ok(None);
        };
        let mut written = Written::nothing(object, hint);
        written.reservations.push(reservation);
        written.pieces = self.append_user_data(object, hint, (first, &blocks), valid)?;
        Ok(Some(written))
    }

    /// Appends whole blocks, from block `first` on, to zones of their lifetime class.
    fn append_user_data(
        &self,
        object: Object,
        hint: Hint,
        (first, blocks): (u64, &[u8]),
        valid: u64,
    ) -> Result<Vec<Appended>> {
        let size = u64::from(self.maps.block_size());
        let run = Run::new(object, first, blocks);
        let lifetime = self.class_of(object, hint, first, first * size < valid)?;
        let pieces = self.append_data(lifetime, [run].into(), Cause::Data)?;
        self.maps.learned().placed(lifetime, hint, blocks.len() as u64 / size);
        Ok(pieces)
    }

    /// Locks the object's map and adds to `tx` the insertion of the written data. Keep the lock until `commit` has returned.
    pub fn insert<'a>(&'a self, tx: &mut Tx, written: Written) -> Result<MapLock<'a>> {
        let ranges = written.ranges();
        let Written { object, file_class, pieces, inline_blocks, reservations } = written;
        reservations.iter().for_each(|reservation| reservation.spend_in(tx));
        let (mut lock, mut view) = self.maps.lock_view(object, &ranges, usize::MAX, BTreeSet::new())?;
        if !ranges.is_empty() {
            for piece in &pieces {
                assert_eq!(piece.object, object, "the data is of this object");
                view.cut(piece.start, piece.end());
                view.put(piece.start, piece.extent.clone());
            }
            inline_blocks.into_iter().for_each(|(block, contents)| view.put_inline(block, contents));
            lock.set_blocks_added(self.maps.finish_view(&view, tx)?);
            self.maps.learn_from(&view, file_class, &pieces);
        }
        lock.keep(pieces, reservations);
        Ok(lock)
    }

    /// Locks the object's map and adds to `tx` the preallocation of a first part of blocks [from, to), in at most `limit`
    /// extents. Returns where it stopped. Later writes use this space. With `clear`, data in these blocks is removed, so
    /// that they read as zeros; it has the given file class. Keep the lock until `commit` has returned. Call without map locks.
    ///
    /// # Errors
    /// `NoSpace` if there is not enough space even after GC.
    pub fn preallocate<'a>(
        &'a self,
        tx: &mut Tx,
        object: Object,
        (from, to): (u64, u64),
        limit: usize,
        clear: Option<FileClass>,
    ) -> Result<(MapLock<'a>, u64)> {
        assert!(from < to && limit > 0, "a call that changes nothing is repeated forever");
        let most = limit as u64 * u64::from(EXTENT_BLOCKS_MAX);
        let to = to.min(from.saturating_add(most));
        // Cleared blocks of other owners are only freed afterwards.
        let allocated = match clear {
            Some(_) => self.budget.blocks_occupied(object, from, to - from)?,
            None => self.maps.count_blocks(object, from, to - from, |_| true)?,
        };
        let reservation = self.budget.reserve(to - from - allocated)?;
        let (mut lock, mut view) = self.maps.lock_view(object, &[(from, to)], limit + 1, BTreeSet::new())?;
        let until = self.maps.end_of_part(&view, limit)?.unwrap_or(to);
        if clear.is_some() {
            view.cut(from, until);
        }
        let until = view.preallocate(from, until, limit);
        lock.set_blocks_added(self.maps.finish_view(&view, tx)?);
        self.maps.learn_from(&view, clear.unwrap_or_default(), &[]);
        reservation.spend_in(tx);
        lock.keep(Vec::new(), [reservation].into());
        Ok((lock, until))
    }

    /// Locks the object's map and adds to `tx` the removal of blocks [from, to) of this file class: at most `limit` extents,
    /// and as many inline blocks. True if none is left. Keep the lock until `commit` has returned.
    pub fn remove<'a>(
        &'a self,
        tx: &mut Tx,
        object: Object,
        (from, to): (u64, u64),
        limit: usize,
        file_class: FileClass,
    ) -> Result<(MapLock<'a>, bool)> {
        assert!(limit > 0, "a call that changes nothing is repeated forever");
        let (mut lock, mut view) = self.maps.lock_view(object, &[(from, to)], limit + 1, BTreeSet::new())?;
        let until = self.maps.end_of_part(&view, limit)?;
        view.cut(from, until.unwrap_or(to));
        lock.set_blocks_added(self.maps.finish_view(&view, tx)?);
        self.maps.learn_from(&view, file_class, &[]);
        Ok((lock, until.is_none()))
    }

    /// Locks the object's map and adds to `tx` that a block is lost: it cannot be read, and takes no space. Keep the lock
    /// until `commit` has returned.
    pub fn lose_block<'a>(&'a self, tx: &mut Tx, object: Object, block: u64) -> Result<MapLock<'a>> {
        let range = (block, block + 1);
        let (mut lock, mut view) = self.maps.lock_view(object, &[range], usize::MAX, BTreeSet::new())?;
        view.cut(block, block + 1);
        view.put(block, Extent::lost(1));
        lock.set_blocks_added(self.maps.finish_view(&view, tx)?);
        Ok(lock)
    }

    /// Whole blocks from the one that contains `offset`, with the file's bytes at both edges.
    fn assemble<'d>(
        &self,
        object: Object,
        offset: u64,
        data: &'d [u8],
        valid: u64,
    ) -> Result<(u64, Cow<'d, [u8]>)> {
        let size = u64::from(self.maps.block_size());
        let end = offset + data.len() as u64;
        let (first, last) = (offset / size, end.div_ceil(size));
        if offset.is_multiple_of(size) && end.is_multiple_of(size) {
            return Ok((first, Cow::Borrowed(data)));
        }
        let mut blocks = vec![0; ((last - first) * size) as usize];
        let head = !offset.is_multiple_of(size) && first * size < valid;
        let tail = !end.is_multiple_of(size) && end < valid;
        if head || tail && last == first + 1 {
            self.read_edge(object, first, valid, &mut blocks[..size as usize])?;
        }
        if tail && last > first + 1 {
            let at = blocks.len() - size as usize;
            self.read_edge(object, last - 1, valid, &mut blocks[at..])?;
        }
        let at = (offset - first * size) as usize;
        blocks[at..at + data.len()].copy_from_slice(data);
        Ok((first, Cow::Owned(blocks)))
    }

    fn read_edge(&self, object: Object, block: u64, valid: u64, into: &mut [u8]) -> Result<()> {
        self.maps.read_blocks(object, block, into)?;
        let start = block * into.len() as u64;
        let known = valid.saturating_sub(start).min(into.len() as u64) as usize;
        if !rt::is_planted("break-tail-on-write") {
            into[known..].fill(0);
        }
        Ok(())
    }

    fn fit_inline(&self, blocks: &[u8]) -> bool {
        let fits = |block: &[u8]| trim(block).len() <= self.maps.store().value_max();
        blocks.chunks(self.maps.block_size() as usize).all(fits)
    }

    /// Appends runs to the open zone of their lifetime class. `cause` is what the traffic counts.
    pub(crate) fn append_data(
        &self,
        lifetime: Lifetime,
        mut runs: VecDeque<Run<'_>>,
        cause: Cause,
    ) -> Result<Vec<Appended>> {
        let (mut pieces, mut failures) = (Vec::new(), 0);
        let size = self.maps.block_size() as usize;
        let blocks: u64 = runs.iter().map(|run| u64::from(run.blocks(size))).sum();
        self.throttle.charge(blocks);
        let mut request = PlaceRequest { lifetime, blocks };
        while !runs.is_empty() {
            let open = self.supply.place(request)?;
            request.blocks = 0;
            let mut job = Appending { open: &open, runs: &mut runs, cause, at_once: BATCH_APPENDS };
            let appended = self.appender.append_some(&mut job, Vec::new())?;
            failures += u32::from(open.lease.has_failed());
            if failures > FAILURES_MAX {
                let why = "too many zones fail".to_owned();
                return Err(tree::StoreError::Device(DeviceError::Unusable(why)).into());
            }
            pieces.extend(appended);
        }
        let appended: u64 = pieces.iter().map(|piece| u64::from(piece.extent.blocks)).sum();
        assert_eq!(appended, blocks, "each block is appended once");
        Ok(pieces)
    }

    /// How many blocks from `from` on, at least one, can be overwritten in one transaction. `may_refer`: the object may
    /// have references. No thread may change the object until they are written.
    ///
    /// The object map is read only if the number of blocks leaves a doubt.
    pub fn blocks_per_tx(&self, object: Object, (from, to): (u64, u64), may_refer: bool) -> Result<u64> {
        let most = self.maps.limits().tx_bytes_for_blocks();
        let to = to.min(from + (most / 2 / self.maps.limits().bytes_of_new_block()).max(1));
        if !may_refer && self.maps.limits().fit_in_one_tx(to - from) {
            return Ok(to - from);
        }
        let left = most.saturating_sub((to - from) * self.maps.limits().bytes_of_new_block());
        let (_lock, view) = self.maps.lock_view(object, &[(from, to)], usize::MAX, BTreeSet::new())?;
        let (mut of_references, mut all) = (0, 0);
        for OverwrittenRow { block, bytes, is_reference } in self.overwritten_rows(&view)? {
            of_references += if is_reference { bytes } else { 0 };
            all += bytes;
            if block > from && (of_references > self.maps.limits().part_bytes_max() || all as u64 > left) {
                return Ok(block - from);
            }
        }
        Ok(to - from)
    }

    /// All rows of a view, in the order of the blocks.
    fn overwritten_rows(&self, view: &View) -> Result<Vec<OverwrittenRow>> {
        let inline_blocks = view.inline_blocks().keys();
        let mut overwritten_rows: Vec<OverwrittenRow> = inline_blocks
            .map(|&block| OverwrittenRow { block, bytes: REMOVED_ROW_BYTES, is_reference: false })
            .collect();
        for (block, extent) in view.extents() {
            let (bytes, is_reference) = (self.maps.bytes_of_reference(extent)?, extent.origin.is_some());
            overwritten_rows.push(OverwrittenRow { block, bytes, is_reference });
        }
        overwritten_rows.sort_by_key(|overwritten_rows| overwritten_rows.block);
        Ok(overwritten_rows)
    }

    /// The lifetime class of data that is written to an object from this block on: the class in the hint, or else the
    /// learned one. `over`: the data may overwrite something.
    pub(crate) fn class_of(&self, object: Object, hint: Hint, block: u64, over: bool) -> Result<Lifetime> {
        if hint.lifetime != Lifetime::Unknown {
            return Ok(hint.lifetime);
        }
        let learned = self.maps.learned();
        if over
            && learned.predicts_overwrites()
            && let Some(zone) = self.zone_of(object, block)?
        {
            return Ok(learned.predict_for_overwrite(zone, self.maps.pool().is_open(zone)));
        }
        Ok(learned.predict_for_file(hint.file_class))
    }

    /// The zone that holds this block of an object.
    fn zone_of(&self, object: Object, block: u64) -> Result<Option<ZoneId>> {
        let _shared = self.maps.map_of(object).read();
        let found = map::extents(self.maps.store(), object, (block, block + 1), 1)?;
        let stored = found.first().filter(|(_, extent)| extent.is_stored());
        Ok(stored.map(|(_, extent)| extent.address.zone()))
    }
}

/// A block without its trailing zeros.
fn trim(block: &[u8]) -> &[u8] {
    let end = block.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &block[..end]
}

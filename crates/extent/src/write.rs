//! Writing: reserve, place, append, and later insert.
//!
//! A write is complete at the device before it is in the object map. Between the two its blocks are *pending*: their zone is
//! no victim and is not reset. A [`Written`] that is dropped without being inserted only leaves dead blocks.
//!
//! The transaction that inserts is built after the appends have returned. So its record is submitted after the data
//! (`break-data-before-record` removes this).

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use rt::order::Guard;
use rt::sync::{Mutex, RwLockWriteGuard};
use tree::{Store, Tx};
use zone::{Address, Blocks, Cause, Command, DeviceError, Output, ZoneId};

use crate::format::{EXTENT_BLOCKS_MAX, Entry, Extent};
use crate::map::View;
use crate::place::{OpenZone, PlaceRequest};
use crate::reverse::Summary;
use crate::reverse::ZoneMap;
use crate::space::Reservation;
use crate::{ExtentError, Extents, FileClass, Hint, Lifetime, Object, Result};

/// Appends of one writer that are in flight to one zone.
pub(crate) const BATCH_APPENDS: usize = 8;
/// Zones that may fail during one write before the write fails.
const FAILURES_MAX: u32 = 16;

/// Blocks of a zone that are submitted and not yet inserted or abandoned.
pub(crate) struct Pending {
    store: Arc<Store>,
    map: Arc<Mutex<ZoneMap>>,
    zone: ZoneId,
    blocks: Blocks,
}

impl Pending {
    fn new(store: &Arc<Store>, open: &OpenZone, blocks: Blocks) -> Self {
        let zone = open.lease.zone();
        open.map.lock().add_pending();
        store.pool().add_pending(zone, blocks);
        Pending { store: Arc::clone(store), map: Arc::clone(&open.map), zone, blocks }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.store.pool().remove_pending(self.zone, self.blocks);
        self.map.lock().remove_pending();
    }
}

/// Blocks of one object that are to be appended.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) object: Object,
    /// The first block in the object.
    pub(crate) start: u64,
    /// The buffer that contains the run, and its place in there.
    buffer: &'a [u8],
    from: usize,
    to: usize,
    /// The checksums, if they are known.
    pub(crate) crcs: Option<&'a [u32]>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(object: Object, start: u64, data: &'a [u8]) -> Run<'a> {
        Run::within(object, start, (data, 0..data.len()), None)
    }

    /// A run in a part of a buffer.
    pub(crate) fn within(
        object: Object,
        start: u64,
        (buffer, bytes): (&'a [u8], Range<usize>),
        crcs: Option<&'a [u32]>,
    ) -> Run<'a> {
        Run { object, start, buffer, from: bytes.start, to: bytes.end, crcs }
    }

    fn data(&self) -> &'a [u8] {
        &self.buffer[self.from..self.to]
    }

    fn split(self, blocks: Blocks, block_size: usize) -> (Run<'a>, Option<Run<'a>>) {
        let at = self.from + blocks as usize * block_size;
        let crcs = self.crcs.map(|crcs| crcs.split_at(blocks as usize));
        let start = self.start + u64::from(blocks);
        let rest = Run { start, from: at, crcs: crcs.map(|(_, rest)| rest), ..self };
        (Run { to: at, crcs: crcs.map(|(crcs, _)| crcs), ..self }, (at < self.to).then_some(rest))
    }

    pub(crate) fn blocks(&self, block_size: usize) -> Blocks {
        ((self.to - self.from) / block_size) as Blocks
    }

    fn checksums(&self, block_size: usize) -> Vec<u32> {
        match self.crcs {
            Some(crcs) => crcs.to_vec(),
            None => self.data().chunks(block_size).map(|block| zone::format::checksum(&[block])).collect(),
        }
    }
}

/// The runs that one command appends: they are adjacent in memory, and may be of several objects.
struct Append<'a> {
    runs: Vec<Run<'a>>,
}

impl<'a> Append<'a> {
    fn data(&self) -> &'a [u8] {
        let (first, last) = (self.runs[0], self.runs[self.runs.len() - 1]);
        &first.buffer[first.from..last.to]
    }

    /// Whether the same command can append this run too, within `most` bytes.
    fn is_followed_by(&self, run: &Run<'a>, most: usize) -> bool {
        let (first, last) = (self.runs[0], self.runs[self.runs.len() - 1]);
        std::ptr::eq(first.buffer, run.buffer) && last.to == run.from && run.to - first.from <= most
    }
}

/// Runs to be appended to a zone, and the cause.
pub(crate) struct Appending<'r, 'd> {
    pub(crate) open: &'r Arc<OpenZone>,
    pub(crate) runs: &'r mut VecDeque<Run<'d>>,
    pub(crate) cause: Cause,
    /// Most appends in flight at once. The device carries them out in any order.
    pub(crate) at_once: usize,
}

/// Appends that are submitted together.
struct Batch<'d> {
    appends: Vec<Append<'d>>,
    /// For each run of each append.
    prepared: Vec<Vec<(Pending, Vec<u32>)>>,
    /// Bytes of the reverse map's entries for these appends.
    entry_bytes: usize,
    /// A summary of earlier appends, which is appended first.
    due: Option<Summary>,
}

impl Batch<'_> {
    fn commands(&self, zone: ZoneId) -> impl Iterator<Item = Command<'_>> {
        let due = self.due.iter().map(|summary| &summary.bytes[..]);
        let data = due.chain(self.appends.iter().map(Append::data));
        data.map(move |from| Command::Append { zone, from })
    }
}

/// A completed append.
pub(crate) struct Appended {
    pub(crate) object: Object,
    /// The first block in the object.
    pub(crate) start: u64,
    pub(crate) extent: Extent,
    pub(crate) _pending: Pending,
}

impl Appended {
    /// The block after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.extent.blocks)
    }
}

/// Data that is complete at the device and pending until it is inserted. If it is dropped before, it becomes dead blocks.
pub struct Written {
    object: Object,
    file_class: FileClass,
    pieces: Vec<Appended>,
    /// Blocks to be stored in the table of inline blocks.
    inline_blocks: Vec<(u64, Vec<u8>)>,
    reservation: Option<Reservation>,
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
        let (pieces, inline_blocks) = (Vec::new(), Vec::new());
        Written { object, file_class: hint.file_class, pieces, inline_blocks, reservation: None }
    }

    fn range(&self) -> (u64, u64) {
        let starts =
            self.pieces.iter().map(|piece| piece.start).chain(self.inline_blocks.iter().map(|r| r.0));
        let ends = self.pieces.iter().map(Appended::end).chain(self.inline_blocks.iter().map(|r| r.0 + 1));
        (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
    }
}

/// The object's map, locked until the transaction that changes it is committed: keep it until `commit` has returned.
pub struct MapLock<'a> {
    blocks_added: i64,
    // The order of dropping: an append is pending until its insertion is visible.
    _guard: Guard<RwLockWriteGuard<'a, ()>>,
    /// Locks of the owners to which it refers, if they have other locks.
    _owners: Vec<Guard<RwLockWriteGuard<'a, ()>>>,
    _pieces: Vec<Appended>,
    _reservation: Option<Reservation>,
}

impl<'a> MapLock<'a> {
    fn new(guard: Guard<RwLockWriteGuard<'a, ()>>, owners: Vec<Guard<RwLockWriteGuard<'a, ()>>>) -> Self {
        MapLock { blocks_added: 0, _guard: guard, _owners: owners, _pieces: Vec::new(), _reservation: None }
    }

    /// The change of the number of blocks of the object.
    pub fn blocks_added(&self) -> i64 {
        self.blocks_added
    }

    pub(crate) fn set_blocks_added(&mut self, added: i64) {
        self.blocks_added = added;
    }
}

impl Extents {
    /// Admits a write of this number of bytes, which may wait for GC. Then appends the data if `early` has it: without the
    /// lock of the file, so that writers of one file append concurrently. The caller knows that the rest of the first and of the
    /// last block has no data.
    ///
    /// Appends nothing if space is so scarce that others could lack the reservation until the data is inserted, or if one
    /// transaction might not replace everything in these blocks. Call without any lock.
    pub fn begin_write(&self, bytes: u64, early: Option<&WriteCall<'_>>) -> Result<Option<Written>> {
        self.throttle(bytes);
        self.admit()?;
        let Some(call) = early else { return Ok(None) };
        let (first, end) = call.blocks(u64::from(self.block_size()));
        if call.may_refer || !self.fit_in_one_tx(end - first) {
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
        let size = u64::from(self.block_size());
        let (first, end) = call.blocks(size);
        let blocks = self.blocks_per_tx(call.object, (first, end), call.may_refer)?;
        let length = (((first + blocks) * size - call.offset) as usize).min(call.data.len());
        let to = (call.offset + length as u64).div_ceil(size);
        let is_same = |early: &Written| early.object == call.object && early.range() == (first, to);
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
        let size = self.block_size() as usize;
        let count = (blocks.len() / size) as u64;
        let is_small = data.len() < size && self.fit_inline(&blocks);
        // If trees may not grow, the data goes to space that the object has already.
        let reserved = match is_small && self.may_trees_grow() {
            true => None,
            false => Some(self.reserve_over(object, first, count)),
        };
        written.reservation = match reserved {
            Some(Ok(reservation)) => Some(reservation),
            Some(Err(error)) if !is_small || !matches!(error, ExtentError::NoSpace) => return Err(error),
            _ => {
                self.inline_counts.set_hint(object, hint);
                let contents = blocks.chunks(size).map(|block| trim(block).to_vec());
                written.inline_blocks = (first..).zip(contents).collect();
                return Ok(written);
            }
        };
        written.pieces = self.append_user_data(object, hint, (first, &blocks), valid)?;
        Ok(written)
    }

    fn append_early(&self, call: &WriteCall<'_>) -> Result<Option<Written>> {
        let WriteCall { object, hint, offset, data, valid, .. } = *call;
        let size = self.block_size() as usize;
        assert!(offset.is_multiple_of(size as u64), "without the lock, the write begins with a whole block");
        let (first, blocks) = self.assemble(object, offset, data, 0)?;
        let Some(reservation) = self.reserve_for_long((blocks.len() / size) as u64) else { return Ok(None) };
        let mut written = Written::nothing(object, hint);
        written.reservation = Some(reservation);
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
        let size = u64::from(self.block_size());
        let run = Run::new(object, first, blocks);
        let lifetime = self.class_of(object, hint, first, first * size < valid)?;
        let pieces = self.append_data(lifetime, run, Cause::Data)?;
        self.learned.placed(lifetime, hint, blocks.len() as u64 / size);
        Ok(pieces)
    }

    /// Locks the object's map and adds to `tx` the insertion of the written data. Keep the lock until `commit` has returned.
    pub fn insert<'a>(&'a self, tx: &mut Tx, written: Written) -> Result<MapLock<'a>> {
        let (from, to) = written.range();
        let Written { object, file_class, pieces, inline_blocks, reservation } = written;
        if let Some(reservation) = &reservation {
            reservation.spend_in(tx);
        }
        let (mut lock, mut view) = self.lock_view(object, (from, to), usize::MAX, BTreeSet::new())?;
        if from < to {
            for piece in &pieces {
                view.cut(piece.start, piece.end());
                view.put(piece.start, piece.extent.clone());
            }
            inline_blocks.into_iter().for_each(|(block, contents)| view.put_inline(block, contents));
            lock.blocks_added = self.finish_view(&view, tx)?;
            self.learn_from(&view, file_class, &pieces);
        }
        lock._pieces = pieces;
        lock._reservation = reservation;
        Ok(lock)
    }

    /// Adds the changes of the view, and of the references to other objects' blocks. Returns the change of the number of
    /// blocks of the object.
    pub(crate) fn finish_view(&self, view: &View, tx: &mut Tx) -> Result<i64> {
        self.inline_counts.changed(view.object(), view.inline_change());
        view.apply(&self.store, tx);
        self.count_references(view, tx)?;
        Ok(view.block_change())
    }

    /// Learns from blocks that were written and blocks that have died.
    pub(crate) fn learn_from(&self, view: &View, file_class: FileClass, pieces: &[Appended]) {
        let mut written = 0;
        for piece in pieces {
            written += i64::from(piece.extent.blocks);
            self.learned.wrote(piece.object, file_class, piece.start..piece.end());
        }
        self.learned.died(file_class, (written - view.stored_change()).max(0) as u64);
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
            Some(_) => self.blocks_occupied(object, from, to - from)?,
            None => self.count_blocks(object, from, to - from, |_| true)?,
        };
        let reservation = self.reserve(to - from - allocated)?;
        let (mut lock, mut view) = self.lock_view(object, (from, to), limit + 1, BTreeSet::new())?;
        let until = self.end_of_part(&view, limit)?.unwrap_or(to);
        if clear.is_some() {
            view.cut(from, until);
        }
        let until = view.preallocate(from, until, limit);
        lock.blocks_added = self.finish_view(&view, tx)?;
        self.learn_from(&view, clear.unwrap_or_default(), &[]);
        reservation.spend_in(tx);
        lock._reservation = Some(reservation);
        Ok((lock, until))
    }

    /// Locks the maps of an object and of the owners of its blocks, in the order of the locks.
    pub(crate) fn lock_maps(&self, object: Object, owners: &BTreeSet<Object>) -> MapLock<'_> {
        if owners.is_empty() {
            return MapLock::new(self.map_of(object).write(), Vec::new());
        }
        let shards: BTreeSet<usize> = owners.iter().chain([&object]).map(|&of| self.shard_of(of)).collect();
        let mut guards = shards.into_iter().map(|shard| self.maps[shard].write());
        let guard = guards.next().expect("an object has a lock");
        MapLock::new(guard, guards.collect())
    }

    /// Locks the maps of the object, of `owners`, and of all owners to which it refers in the range.
    pub(crate) fn lock_view(
        &self,
        object: Object,
        range: (u64, u64),
        limit: usize,
        mut owners: BTreeSet<Object>,
    ) -> Result<(MapLock<'_>, View)> {
        loop {
            let lock = self.lock_maps(object, &owners);
            let view = View::load(&self.store, object, range, limit)?;
            let found = view.origins();
            if found.is_subset(&owners) {
                return Ok((lock, view));
            }
            owners.extend(found);
        }
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
        let (mut lock, mut view) = self.lock_view(object, (from, to), limit + 1, BTreeSet::new())?;
        let until = self.end_of_part(&view, limit)?;
        view.cut(from, until.unwrap_or(to));
        lock.blocks_added = self.finish_view(&view, tx)?;
        self.learn_from(&view, file_class, &[]);
        Ok((lock, until.is_none()))
    }

    /// Locks the object's map and adds to `tx` that a block is lost: it cannot be read, and takes no space. Keep the lock
    /// until `commit` has returned.
    pub fn lose_block<'a>(&'a self, tx: &mut Tx, object: Object, block: u64) -> Result<MapLock<'a>> {
        let range = (block, block + 1);
        let (mut lock, mut view) = self.lock_view(object, range, usize::MAX, BTreeSet::new())?;
        view.cut(block, block + 1);
        view.put(block, Extent::lost(1));
        lock.blocks_added = self.finish_view(&view, tx)?;
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
        let size = u64::from(self.block_size());
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
        self.read_blocks(object, block, into)?;
        let start = block * into.len() as u64;
        let known = valid.saturating_sub(start).min(into.len() as u64) as usize;
        if !rt::is_planted("break-tail-on-write") {
            into[known..].fill(0);
        }
        Ok(())
    }

    fn fit_inline(&self, blocks: &[u8]) -> bool {
        let fits = |block: &[u8]| trim(block).len() <= self.store.value_max();
        blocks.chunks(self.block_size() as usize).all(fits)
    }

    /// Appends a run to zones of user data. With `Cause::Gc` its blocks are moved: they stay in the zone to which the last
    /// data of the object went.
    pub(crate) fn append_data(
        &self,
        lifetime: Lifetime,
        run: Run<'_>,
        cause: Cause,
    ) -> Result<Vec<Appended>> {
        let (mut pieces, mut runs, mut failures) = (Vec::new(), VecDeque::from([run]), 0);
        let blocks = u64::from(run.blocks(self.block_size() as usize));
        self.charge(blocks);
        let mut request =
            PlaceRequest { object: run.object, lifetime, blocks, stays_in_zone: cause == Cause::Gc };
        while !runs.is_empty() {
            let open = self.place(request)?;
            request.blocks = 0;
            let mut job = Appending { open: &open, runs: &mut runs, cause, at_once: BATCH_APPENDS };
            let appended = self.append_some(&mut job, Vec::new())?;
            failures += u32::from(open.lease.has_failed());
            if failures > FAILURES_MAX {
                let why = "too many zones fail".to_owned();
                return Err(tree::StoreError::Device(DeviceError::Unusable(why)).into());
            }
            pieces.extend(appended);
        }
        Ok(pieces)
    }

    /// Appends one batch of runs, as far as the zone has space. Failed runs are put back in their order. A zone that is full
    /// or has failed is retired. `beside`: reads to be submitted with the appends, if there are any.
    pub(crate) fn append_some(
        &self,
        to: &mut Appending<'_, '_>,
        beside: Vec<Command<'_>>,
    ) -> Result<Vec<Appended>> {
        let batch = self.prepare(to);
        let outputs = self.submit_batch(to.open, &batch, beside);
        self.complete(to, batch, &mut outputs.into_iter())
    }

    fn submit_batch(&self, open: &Arc<OpenZone>, batch: &Batch<'_>, beside: Vec<Command<'_>>) -> Vec<Output> {
        self.submit_deferred();
        let mut commands: Vec<Command<'_>> = batch.commands(open.lease.zone()).collect();
        if commands.is_empty() {
            return Vec::new();
        }
        commands.extend(beside);
        self.submit(open, &mut commands)
    }

    /// Takes the next appends from the runs.
    fn prepare<'d>(&self, to: &mut Appending<'_, 'd>) -> Batch<'d> {
        let size = self.block_size() as usize;
        let due = to.open.map.lock().take_due(&to.open.lease);
        let (appends, entry_bytes) = self.admit_batch(to);
        let prepare =
            |run: &Run<'_>| (Pending::new(&self.store, to.open, run.blocks(size)), run.checksums(size));
        let prepared = appends.iter().map(|append| append.runs.iter().map(prepare).collect()).collect();
        Batch { appends, prepared, entry_bytes, due }
    }

    /// The device has carried out the commands, with these outputs.
    fn complete<'d>(
        &self,
        to: &mut Appending<'_, 'd>,
        batch: Batch<'d>,
        outputs: &mut impl Iterator<Item = Output>,
    ) -> Result<Vec<Appended>> {
        let Appending { open, cause, .. } = *to;
        if let Some(due) = batch.due {
            let output = outputs.next().expect("each command has an output");
            open.lease.account(Cause::ReverseMap, due.bytes.len(), &output);
            open.map.lock().end_summary(&due, output.ok());
        }
        if batch.appends.is_empty() {
            self.retire(open)?;
            return Ok(Vec::new());
        }
        let (size, zone) = (self.block_size() as usize, open.lease.zone());
        let (mut pieces, mut entries, mut failed, mut fatal) = (Vec::new(), Vec::new(), Vec::new(), None);
        let sequence = self.store.last_lsn().0;
        for ((append, prepared), output) in batch.appends.into_iter().zip(batch.prepared).zip(outputs) {
            open.lease.account(cause, append.data().len(), &output);
            let mut block = match output {
                Ok(block) => block,
                Err(error) => {
                    fatal = fatal.or(is_fatal(&error).then_some(error));
                    failed.extend(append.runs);
                    continue;
                }
            };
            for (run, (pending, crcs)) in append.runs.into_iter().zip(prepared) {
                let (object, offset) = (run.object, run.start);
                entries.push(Entry { object, offset, sequence, block, crcs: crcs.clone() });
                let extent = Extent::new(Address::new(zone, block, open.lease.life()), crcs);
                pieces.push(Appended { object, start: run.start, extent, _pending: pending });
                block += run.blocks(size);
            }
        }
        // In their order, before the runs that follow them.
        failed.into_iter().rev().for_each(|run| to.runs.push_front(run));
        open.map.lock().end(batch.entry_bytes, entries);
        match fatal {
            // The zone has failed for its lease, but the device works: the zone is closed like any other.
            Some(DeviceError::HostFull { .. }) => self.retire_if_full(open).and(Err(ExtentError::NoSpace)),
            Some(error) => Err(tree::StoreError::Device(error).into()),
            None => self.retire_if_full(open).map(|()| pieces),
        }
    }

    /// Takes runs from the front as far as the zone has space for them. Returns them and the bytes of their entries. Begins
    /// a batch unless it is empty.
    fn admit_batch<'d>(&self, to: &mut Appending<'_, 'd>) -> (Vec<Append<'d>>, usize) {
        let Appending { open, runs, at_once, .. } = to;
        let size = self.block_size() as usize;
        let most = self.piece_blocks_max as usize * size;
        let (mut batch, mut entry_bytes): (Vec<Append<'d>>, usize) = (Vec::new(), 0);
        let mut map = open.map.lock();
        while let Some(run) = runs.pop_front() {
            let blocks = run.blocks(size).min(self.piece_blocks_max);
            let joins =
                batch.last().is_some_and(|last| last.is_followed_by(&run.split(blocks, size).0, most));
            let blocks = match joins || batch.len() < *at_once {
                true => map.admit(&open.lease, blocks),
                false => 0,
            };
            if blocks == 0 {
                runs.push_front(run);
                break;
            }
            let (piece, rest) = run.split(blocks, size);
            entry_bytes += Entry::bytes_for(blocks);
            match batch.last_mut().filter(|_| joins) {
                Some(last) => last.runs.push(piece),
                None => batch.push(Append { runs: vec![piece] }),
            }
            rest.into_iter().for_each(|rest| runs.push_front(rest));
        }
        if !batch.is_empty() {
            map.begin();
        }
        (batch, entry_bytes)
    }
}

/// Whether other zones would fail too.
pub(crate) fn is_fatal(error: &DeviceError) -> bool {
    error.is_of_whole_device()
}

/// A block without its trailing zeros.
fn trim(block: &[u8]) -> &[u8] {
    let end = block.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &block[..end]
}

//! Writing: reserve, place, append, and later insert.
//!
//! A write is complete at the device before it has a place in the object map. Between the two its
//! blocks are *pending*: their zone is neither victim nor reset. A [`Written`] that is dropped without
//! being inserted leaves dead blocks behind, nothing else.
//!
//! The transaction that inserts is built after the appends have returned, so its record can only be
//! submitted after the data (`break-data-before-record` removes this).

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
use crate::place::{OpenZone, Wanted};
use crate::reverse::Summary;
use crate::reverse::ZoneMap;
use crate::space::Reservation;
use crate::{ExtentError, Extents, FileClass, Hint, Lifetime, Object, Result};

/// Appends in flight to one zone for one writer.
pub(crate) const BATCH_APPENDS: usize = 8;
/// Zones that may fail under one write before it does.
const FAILURES_MAX: u32 = 16;

/// Blocks of a zone that are submitted and neither inserted nor given up.
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
    /// What lies in memory together with it, and where in there it is.
    buffer: &'a [u8],
    from: usize,
    to: usize,
    /// The checksums, when they are carried along.
    pub(crate) crcs: Option<&'a [u32]>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(object: Object, start: u64, data: &'a [u8]) -> Run<'a> {
        Run::within(object, start, (data, 0..data.len()), None)
    }

    /// A part of what lies in memory together.
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

/// What one command appends: runs that follow one another in memory, whosever they are.
struct Append<'a> {
    runs: Vec<Run<'a>>,
}

impl<'a> Append<'a> {
    fn data(&self) -> &'a [u8] {
        let (first, last) = (self.runs[0], self.runs[self.runs.len() - 1]);
        &first.buffer[first.from..last.to]
    }

    /// Whether the run can be appended by the same command, which takes so many bytes.
    fn is_followed_by(&self, run: &Run<'a>, most: usize) -> bool {
        let (first, last) = (self.runs[0], self.runs[self.runs.len() - 1]);
        std::ptr::eq(first.buffer, run.buffer) && last.to == run.from && run.to - first.from <= most
    }
}

/// Runs that are to be appended to a zone, and why.
pub(crate) struct Appending<'r, 'd> {
    pub(crate) open: &'r Arc<OpenZone>,
    pub(crate) runs: &'r mut VecDeque<Run<'d>>,
    pub(crate) cause: Cause,
    /// How many appends of it may be under way at once: a device carries those out in any order.
    pub(crate) at_once: usize,
}

/// What of it is appended at once.
struct Batch<'d> {
    appends: Vec<Append<'d>>,
    /// For each run of each append.
    prepared: Vec<Vec<(Pending, Vec<u32>)>>,
    /// Bytes of the entries that tell what was appended.
    promised: usize,
    /// Entries of what was appended before: they come first.
    due: Option<Summary>,
}

impl Batch<'_> {
    fn commands(&self, zone: ZoneId) -> impl Iterator<Item = Command<'_>> {
        let due = self.due.iter().map(|summary| &summary.bytes[..]);
        let data = due.chain(self.appends.iter().map(Append::data));
        data.map(move |from| Command::Append { zone, from })
    }
}

/// An append that is complete.
pub(crate) struct Piece {
    pub(crate) object: Object,
    /// The first block in the object.
    pub(crate) start: u64,
    pub(crate) extent: Extent,
    pub(crate) _pending: Pending,
}

impl Piece {
    /// The block behind the last one.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.extent.blocks)
    }
}

/// Data that is complete at the device and pending until it is inserted. Dropped before, it becomes
/// dead blocks.
pub struct Written {
    object: Object,
    file_class: FileClass,
    pieces: Vec<Piece>,
    /// Blocks that are to become values of the store.
    residents: Vec<(u64, Vec<u8>)>,
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
    /// The size of the file before this write: bytes of the object at or beyond it count as zeros.
    pub valid: u64,
    /// Whether the object may refer to blocks of other objects.
    pub may_refer: bool,
}

impl WriteCall<'_> {
    /// The blocks in which bytes are written.
    fn blocks(&self, block_size: u64) -> (u64, u64) {
        (self.offset / block_size, (self.offset + self.data.len() as u64).div_ceil(block_size))
    }
}

impl Written {
    fn nothing(object: Object, hint: Hint) -> Self {
        let (pieces, residents) = (Vec::new(), Vec::new());
        Written { object, file_class: hint.file_class, pieces, residents, reservation: None }
    }

    fn range(&self) -> (u64, u64) {
        let starts = self.pieces.iter().map(|piece| piece.start).chain(self.residents.iter().map(|r| r.0));
        let ends = self.pieces.iter().map(Piece::end).chain(self.residents.iter().map(|r| r.0 + 1));
        (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
    }
}

/// The object's map, locked until the transaction that changes it is committed: keep it until
/// `commit` has returned, then drop it.
pub struct MapLock<'a> {
    blocks_added: i64,
    // In this order they are dropped: what was inserted is pending until nobody can miss it.
    _guard: Guard<RwLockWriteGuard<'a, ()>>,
    /// Of those to whose blocks it refers, where they have other locks.
    _others: Vec<Guard<RwLockWriteGuard<'a, ()>>>,
    _pieces: Vec<Piece>,
    _reservation: Option<Reservation>,
}

impl<'a> MapLock<'a> {
    fn new(guard: Guard<RwLockWriteGuard<'a, ()>>, others: Vec<Guard<RwLockWriteGuard<'a, ()>>>) -> Self {
        MapLock { blocks_added: 0, _guard: guard, _others: others, _pieces: Vec::new(), _reservation: None }
    }

    /// How many blocks the object takes more than before.
    pub fn blocks_added(&self) -> i64 {
        self.blocks_added
    }

    pub(crate) fn note_blocks(&mut self, added: i64) {
        self.blocks_added = added;
    }
}

impl Extents {
    /// Admits a write of this number of bytes, which may wait for GC, and then appends its data if `early` has them: without the lock of
    /// the file, so that writers of one file append concurrently. The caller knows that what precedes and follows the data in
    /// their blocks is nothing, or zeros.
    ///
    /// Appends nothing if space is so scarce that others could miss the reservation until the data are inserted, or if one
    /// transaction might not replace everything that the object has there. Call with no lock.
    pub fn begin_write(&self, bytes: u64, early: Option<&WriteCall<'_>>) -> Result<Option<Written>> {
        self.throttle(bytes);
        self.admit()?;
        let Some(call) = early else { return Ok(None) };
        let (first, end) = call.blocks(u64::from(self.block_size()));
        if call.may_refer || !self.are_replaced_at_once(end - first) {
            return Ok(None);
        }
        match self.append_early(call) {
            Err(ExtentError::NoSpace) => Ok(None),
            appended => appended,
        }
    }

    /// Appends the data, unless that was done early, and adds to `tx` what makes them the object's. Returns the lock of the
    /// map, to be kept until `commit` has returned, and how many bytes were written: fewer than given if one transaction
    /// cannot replace all that the object has there. Call with the lock of the file.
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
        let blocks = self.blocks_at_once(call.object, (first, end), call.may_refer)?;
        let length = (((first + blocks) * size - call.offset) as usize).min(call.data.len());
        let to = (call.offset + length as u64).div_ceil(size);
        let is_same = |early: &Written| early.object == call.object && early.range() == (first, to);
        let written = match early.filter(is_same) {
            Some(early) => early,
            None => self.append(call.object, call.hint, call.offset, &call.data[..length], call.valid)?,
        };
        Ok((self.insert(tx, written)?, length))
    }

    /// Reserves, places and appends: in pieces, several in flight, tried elsewhere when a zone fails.
    ///
    /// Whole blocks are written: at unaligned edges the rest is read and merged, and bytes at or beyond
    /// `valid`, the file's size before this write, count as zeros. A write of less than a block whose
    /// blocks fit into values of the store is kept there instead. Call with the file's write lock held
    /// and no map lock; of one call, insert in one transaction.
    ///
    /// # Errors
    /// `NoSpace` when it does not fit after all reclaim; `Lost` when a block at an edge cannot be read.
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
        let is_small = data.len() < size && self.may_be_resident(&blocks);
        // Where trees may not grow, what the object has space for already is written there.
        let reserved = match is_small && self.may_trees_grow() {
            true => None,
            false => Some(self.reserve_over(object, first, count)),
        };
        written.reservation = match reserved {
            Some(Ok(reservation)) => Some(reservation),
            Some(Err(error)) if !is_small || !matches!(error, ExtentError::NoSpace) => return Err(error),
            _ => {
                self.residents.expect(object, hint);
                let contents = blocks.chunks(size).map(|block| trim(block).to_vec());
                written.residents = (first..).zip(contents).collect();
                return Ok(written);
            }
        };
        written.pieces = self.append_fresh(object, hint, (first, &blocks), valid)?;
        Ok(written)
    }

    fn append_early(&self, call: &WriteCall<'_>) -> Result<Option<Written>> {
        let WriteCall { object, hint, offset, data, valid, .. } = *call;
        let size = self.block_size() as usize;
        assert!(offset.is_multiple_of(size as u64), "the start of a block is not known without the lock");
        let (first, blocks) = self.assemble(object, offset, data, 0)?;
        let Some(reservation) = self.reserve_of_plenty((blocks.len() / size) as u64) else { return Ok(None) };
        let mut written = Written::nothing(object, hint);
        written.reservation = Some(reservation);
        written.pieces = self.append_fresh(object, hint, (first, &blocks), valid)?;
        Ok(Some(written))
    }

    /// Appends whole blocks, from this one on, to zones of the class that they are of.
    fn append_fresh(
        &self,
        object: Object,
        hint: Hint,
        (first, blocks): (u64, &[u8]),
        valid: u64,
    ) -> Result<Vec<Piece>> {
        let size = u64::from(self.block_size());
        let run = Run::new(object, first, blocks);
        let lifetime = self.class_of(object, hint, first, first * size < valid)?;
        let pieces = self.append_data(lifetime, run, Cause::Data)?;
        self.learned.placed(lifetime, hint, blocks.len() as u64 / size);
        Ok(pieces)
    }

    /// Locks the object's map and adds to `tx` what makes the written data the object's. Keep the lock
    /// until `commit` has returned.
    pub fn insert<'a>(&'a self, tx: &mut Tx, written: Written) -> Result<MapLock<'a>> {
        let (from, to) = written.range();
        let Written { object, file_class, pieces, residents, reservation } = written;
        if let Some(reservation) = &reservation {
            reservation.kept_by(tx);
        }
        let (mut lock, mut view) = self.lock_view(object, (from, to), usize::MAX, BTreeSet::new())?;
        if from < to {
            for piece in &pieces {
                view.cut(piece.start, piece.end());
                view.put(piece.start, piece.extent.clone());
            }
            residents.into_iter().for_each(|(block, contents)| view.put_resident(block, contents));
            lock.blocks_added = self.finish_view(&view, tx)?;
            self.learn_of(&view, file_class, &pieces);
        }
        lock._pieces = pieces;
        lock._reservation = reservation;
        Ok(lock)
    }

    /// Adds what the view is to become, and what that means for the blocks of others; how many blocks more the object
    /// has.
    pub(crate) fn finish_view(&self, view: &View, tx: &mut Tx) -> Result<i64> {
        self.residents.changed(view.object(), view.resident_change());
        view.apply(&self.store, tx);
        self.count_references(view, tx)?;
        Ok(view.block_change())
    }

    /// What was written, and what is nobody's any more.
    pub(crate) fn learn_of(&self, view: &View, file_class: FileClass, pieces: &[Piece]) {
        let mut written = 0;
        for piece in pieces {
            written += i64::from(piece.extent.blocks);
            self.learned.wrote(piece.object, file_class, piece.start..piece.end());
        }
        self.learned.died(file_class, (written - view.stored_change()).max(0) as u64);
    }

    /// Locks the object's map and adds to `tx` that blocks [from, to) have space kept for them, which
    /// later writes there take: a first part of them, in at most `limit` extents; where it stopped. With
    /// `clear`, what they hold goes, data of that file_class, and they read as zeros. Keep the lock until `commit` has returned. Call
    /// with no map lock.
    ///
    /// # Errors
    /// `NoSpace` when there is not as much after all reclaim.
    pub fn keep_space<'a>(
        &'a self,
        tx: &mut Tx,
        object: Object,
        (from, to): (u64, u64),
        limit: usize,
        clear: Option<FileClass>,
    ) -> Result<(MapLock<'a>, u64)> {
        assert!(from < to && limit > 0, "a step that does nothing never ends");
        let most = limit as u64 * u64::from(EXTENT_BLOCKS_MAX);
        let to = to.min(from.saturating_add(most));
        // What is cleared is given back only afterwards, where others own it.
        let held = match clear {
            Some(_) => self.blocks_held(object, from, to - from)?,
            None => self.count_blocks(object, from, to - from, |_| true)?,
        };
        let reservation = self.reserve(to - from - held)?;
        let (mut lock, mut view) = self.lock_view(object, (from, to), limit + 1, BTreeSet::new())?;
        let until = self.end_of_step(&view, limit)?.unwrap_or(to);
        if clear.is_some() {
            view.cut(from, until);
        }
        let until = view.keep(from, until, limit);
        lock.blocks_added = self.finish_view(&view, tx)?;
        self.learn_of(&view, clear.unwrap_or_default(), &[]);
        reservation.kept_by(tx);
        lock._reservation = Some(reservation);
        Ok((lock, until))
    }

    /// Locks the maps of an object and of those whose blocks it has, in the order of the locks.
    pub(crate) fn lock_maps(&self, object: Object, owners: &BTreeSet<Object>) -> MapLock<'_> {
        if owners.is_empty() {
            return MapLock::new(self.map_of(object).write(), Vec::new());
        }
        let shards: BTreeSet<usize> = owners.iter().chain([&object]).map(|&of| self.shard_of(of)).collect();
        let mut guards = shards.into_iter().map(|shard| self.maps[shard].write());
        let guard = guards.next().expect("an object has a lock");
        MapLock::new(guard, guards.collect())
    }

    /// Locks the object's map, and those of `owners` and of all to whose blocks it refers in the range.
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

    /// Locks the object's map and adds to `tx` the removal of blocks [from, to), data of `file_class`, at most `limit` extents
    /// (and as many resident blocks); true when none is left. Keep the lock until `commit` has returned.
    pub fn remove<'a>(
        &'a self,
        tx: &mut Tx,
        object: Object,
        (from, to): (u64, u64),
        limit: usize,
        file_class: FileClass,
    ) -> Result<(MapLock<'a>, bool)> {
        assert!(limit > 0, "a removal that removes nothing never ends");
        let (mut lock, mut view) = self.lock_view(object, (from, to), limit + 1, BTreeSet::new())?;
        let until = self.end_of_step(&view, limit)?;
        view.cut(from, until.unwrap_or(to));
        lock.blocks_added = self.finish_view(&view, tx)?;
        self.learn_of(&view, file_class, &[]);
        Ok((lock, until.is_none()))
    }

    /// Locks the object's map and adds to `tx` what makes a block lost: it cannot be read, and takes no
    /// space. Keep the lock until `commit` has returned.
    pub fn lose_block<'a>(&'a self, tx: &mut Tx, object: Object, block: u64) -> Result<MapLock<'a>> {
        let range = (block, block + 1);
        let (mut lock, mut view) = self.lock_view(object, range, usize::MAX, BTreeSet::new())?;
        view.cut(block, block + 1);
        view.put(block, Extent::lost(1));
        lock.blocks_added = self.finish_view(&view, tx)?;
        Ok(lock)
    }

    /// Whole blocks from the one that holds `offset`, with what the file has at both edges.
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

    fn may_be_resident(&self, blocks: &[u8]) -> bool {
        let fits = |block: &[u8]| trim(block).len() <= self.store.value_max();
        blocks.chunks(self.block_size() as usize).all(fits)
    }

    /// Appends a run to zones of user data. By `Cause::Gc` it is moved, and stays together with what was written of its
    /// object last.
    pub(crate) fn append_data(&self, lifetime: Lifetime, run: Run<'_>, cause: Cause) -> Result<Vec<Piece>> {
        let (mut pieces, mut runs, mut failures) = (Vec::new(), VecDeque::from([run]), 0);
        let blocks = u64::from(run.blocks(self.block_size() as usize));
        self.charge(blocks);
        let mut wanted = Wanted { object: run.object, lifetime, blocks, stays: cause == Cause::Gc };
        while !runs.is_empty() {
            let open = self.place(wanted)?;
            wanted.blocks = 0;
            let mut fresh = Appending { open: &open, runs: &mut runs, cause, at_once: BATCH_APPENDS };
            let appended = self.append_some(&mut fresh, Vec::new())?;
            failures += u32::from(open.lease.has_failed());
            if failures > FAILURES_MAX {
                let why = "too many zones fail".to_owned();
                return Err(tree::StoreError::Device(DeviceError::Unusable(why)).into());
            }
            pieces.extend(appended);
        }
        Ok(pieces)
    }

    /// Appends from the runs what the zone takes, one batch; what failed is in them again, in its order. The zone
    /// is retired when it has become full or has failed. `beside`: reads that are done meanwhile, if there is anything to append.
    pub(crate) fn append_some(
        &self,
        to: &mut Appending<'_, '_>,
        beside: Vec<Command<'_>>,
    ) -> Result<Vec<Piece>> {
        let batch = self.prepare(to);
        let outputs = self.submit_batch(to.open, &batch, beside);
        self.complete(to, batch, &mut outputs.into_iter())
    }

    fn submit_batch(&self, open: &Arc<OpenZone>, batch: &Batch<'_>, beside: Vec<Command<'_>>) -> Vec<Output> {
        self.catch_up();
        let mut commands: Vec<Command<'_>> = batch.commands(open.lease.zone()).collect();
        if commands.is_empty() {
            return Vec::new();
        }
        commands.extend(beside);
        self.submit(open, &mut commands)
    }

    /// Takes from the runs what is to be appended next.
    fn prepare<'d>(&self, to: &mut Appending<'_, 'd>) -> Batch<'d> {
        let size = self.block_size() as usize;
        let due = to.open.map.lock().take_due(&to.open.lease);
        let (appends, promised) = self.admit_batch(to);
        let prepare =
            |run: &Run<'_>| (Pending::new(&self.store, to.open, run.blocks(size)), run.checksums(size));
        let prepared = appends.iter().map(|append| append.runs.iter().map(prepare).collect()).collect();
        Batch { appends, prepared, promised, due }
    }

    /// The device has done what it was asked to: with these outputs, one for each command.
    fn complete<'d>(
        &self,
        to: &mut Appending<'_, 'd>,
        batch: Batch<'d>,
        outputs: &mut impl Iterator<Item = Output>,
    ) -> Result<Vec<Piece>> {
        let Appending { open, cause, .. } = *to;
        if let Some(due) = batch.due {
            let output = outputs.next().expect("each command has an output");
            open.lease.account(Cause::ReverseMap, due.bytes.len(), &output);
            open.map.lock().summarised(&due, output.ok());
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
                pieces.push(Piece { object, start: run.start, extent, _pending: pending });
                block += run.blocks(size);
            }
        }
        // In their order, before what follows them.
        failed.into_iter().rev().for_each(|run| to.runs.push_front(run));
        open.map.lock().end(batch.promised, entries);
        match fatal {
            // The zone has failed for its lease, while the device goes on: it must be closed like any other.
            Some(DeviceError::HostFull { .. }) => self.tend(open).and(Err(ExtentError::NoSpace)),
            Some(error) => Err(tree::StoreError::Device(error).into()),
            None => self.tend(open).map(|()| pieces),
        }
    }

    /// Takes pieces from the front of the runs that the zone has room for; also the bytes that their
    /// entries will have. Begins a batch unless there is none.
    fn admit_batch<'d>(&self, to: &mut Appending<'_, 'd>) -> (Vec<Append<'d>>, usize) {
        let Appending { open, runs, at_once, .. } = to;
        let size = self.block_size() as usize;
        let most = self.piece_blocks_max as usize * size;
        let (mut batch, mut promised): (Vec<Append<'d>>, usize) = (Vec::new(), 0);
        let mut map = open.map.lock();
        while let Some(run) = runs.pop_front() {
            let wanted = run.blocks(size).min(self.piece_blocks_max);
            let joins =
                batch.last().is_some_and(|last| last.is_followed_by(&run.split(wanted, size).0, most));
            let blocks = match joins || batch.len() < *at_once {
                true => map.admit(&open.lease, wanted),
                false => 0,
            };
            if blocks == 0 {
                runs.push_front(run);
                break;
            }
            let (piece, rest) = run.split(blocks, size);
            promised += Entry::bytes_for(blocks);
            match batch.last_mut().filter(|_| joins) {
                Some(last) => last.runs.push(piece),
                None => batch.push(Append { runs: vec![piece] }),
            }
            rest.into_iter().for_each(|rest| runs.push_front(rest));
        }
        if !batch.is_empty() {
            map.begin();
        }
        (batch, promised)
    }
}

/// Whether trying another zone is no use.
pub(crate) fn is_fatal(error: &DeviceError) -> bool {
    error.is_of_whole_device()
}

/// A block without the zeros at its end.
fn trim(block: &[u8]) -> &[u8] {
    let end = block.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &block[..end]
}

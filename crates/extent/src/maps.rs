//! The object maps of a volume: their locks, and the store and the device on which they are.
//!
//! A thread that changes an object's map locks it from the look-up until the commit has returned.

use std::collections::BTreeSet;
use std::sync::Arc;

use rt::order::{Guard, LockOrder, Ordered};
use rt::sync::{RwLock, RwLockWriteGuard};
use smallvec::SmallVec;
use tree::{Group, Pool, Store, Tx};
use zone::{Blocks, Device, ZoneId};

use crate::appended::Appended;
use crate::deferred_appends::Appends;
use crate::format::{self, EXTENT, Extent, Packing};
use crate::inline_counts::InlineCounts;
use crate::learn::Learned;
use crate::map::{self, View};
use crate::readahead::Readahead;
use crate::reservations::Reservation;
use crate::tx_limits::TxLimits;
use crate::{FileClass, Object, Result};

/// Shards of the map locks.
const MAP_LOCKS: usize = 256;

/// The maps of all objects, and what every change of them updates.
pub struct ObjectMaps {
    store: Arc<Store>,
    device: Arc<dyn Device>,
    packing: Packing,
    /// The most blocks of one append and one extent.
    piece_blocks_max: Blocks,
    limits: TxLimits,
    /// Each guards the maps of the objects of its shard.
    locks: Vec<Ordered<RwLock<()>>>,
    appends: Appends,
    inline_counts: InlineCounts,
    learned: Learned,
    readahead: Readahead,
}

/// The object's map, locked until the transaction that changes it is committed: keep it until `commit` has returned.
pub struct MapLock<'a> {
    blocks_added: i64,
    // The order of dropping: an append is pending until its insertion is visible.
    _guard: Guard<RwLockWriteGuard<'a, ()>>,
    /// Locks of the owners to which it refers, if they have other locks.
    _owners: Vec<Guard<RwLockWriteGuard<'a, ()>>>,
    _pieces: Vec<Appended>,
    _reservations: SmallVec<[Reservation; 1]>,
}

impl<'a> MapLock<'a> {
    fn new(guard: Guard<RwLockWriteGuard<'a, ()>>, owners: Vec<Guard<RwLockWriteGuard<'a, ()>>>) -> Self {
        let (_pieces, _reservations) = (Vec::new(), SmallVec::new());
        MapLock { blocks_added: 0, _guard: guard, _owners: owners, _pieces, _reservations }
    }

    /// The change of the number of blocks of the object.
    pub fn blocks_added(&self) -> i64 {
        self.blocks_added
    }

    pub(crate) fn set_blocks_added(&mut self, added: i64) {
        self.blocks_added = added;
    }

    /// Keeps these appends pending, and these reservations, until the transaction is committed.
    pub(crate) fn keep(&mut self, pieces: Vec<Appended>, reservations: SmallVec<[Reservation; 1]>) {
        assert!(self._pieces.is_empty() && self._reservations.is_empty(), "a lock is of one insertion");
        (self._pieces, self._reservations) = (pieces, reservations);
    }
}

impl ObjectMaps {
    pub(crate) fn new(store: Arc<Store>) -> ObjectMaps {
        let (device, piece_blocks_max) = (Arc::clone(store.device()), piece_blocks_max(&store));
        let geometry = device.geometry();
        ObjectMaps {
            packing: Packing { block_size: geometry.block_size },
            piece_blocks_max,
            limits: TxLimits::new(&store, piece_blocks_max),
            locks: (0..MAP_LOCKS).map(|_| Ordered::rwlock(LockOrder::ObjectMap, ())).collect(),
            appends: Appends::new(&device),
            inline_counts: InlineCounts::default(),
            learned: Learned::new(geometry.zones, geometry.zone_blocks),
            readahead: Readahead::default(),
            store,
            device,
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn pool(&self) -> &Pool {
        self.store.pool()
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub(crate) fn appends(&self) -> &Appends {
        &self.appends
    }

    /// The pieces that are read ahead.
    pub fn readahead(&self) -> &Readahead {
        &self.readahead
    }

    pub(crate) fn packing(&self) -> Packing {
        self.packing
    }

    /// The most blocks of one append and one extent.
    pub(crate) fn piece_blocks_max(&self) -> Blocks {
        self.piece_blocks_max
    }

    pub(crate) fn limits(&self) -> TxLimits {
        self.limits
    }

    pub(crate) fn inline_counts(&self) -> &InlineCounts {
        &self.inline_counts
    }

    pub(crate) fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.packing.block_size
    }

    /// The lock of an object's map.
    pub(crate) fn map_of(&self, object: Object) -> &Ordered<RwLock<()>> {
        &self.locks[self.shard_of(object)]
    }

    /// The shard of an object.
    fn shard_of(&self, object: Object) -> usize {
        let hash = object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 56) as usize % MAP_LOCKS
    }

    /// Locks the maps of an object and of the owners of its blocks, in the order of the locks.
    pub(crate) fn lock_maps(&self, object: Object, owners: &BTreeSet<Object>) -> MapLock<'_> {
        if owners.is_empty() {
            return MapLock::new(self.map_of(object).write(), Vec::new());
        }
        let shards: BTreeSet<usize> = owners.iter().chain([&object]).map(|&of| self.shard_of(of)).collect();
        let mut guards = shards.into_iter().map(|shard| self.locks[shard].write());
        let guard = guards.next().expect("an object has a lock");
        MapLock::new(guard, guards.collect())
    }

    /// Locks the maps of the object, of `owners`, and of all owners to which it refers in the ranges.
    pub(crate) fn lock_view(
        &self,
        object: Object,
        ranges: &[(u64, u64)],
        limit: usize,
        mut owners: BTreeSet<Object>,
    ) -> Result<(MapLock<'_>, View)> {
        loop {
            let lock = self.lock_maps(object, &owners);
            let view = View::load_all(&self.store, object, ranges, limit)?;
            let found = view.origins();
            if found.is_subset(&owners) {
                return Ok((lock, view));
            }
            owners.extend(found);
        }
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

    /// Commits the changes of GC or of writeback, if there are any.
    pub(crate) fn commit_if_any(&self, tx: Tx) -> Result<()> {
        if !tx.is_empty() {
            self.store.commit(tx)?;
        }
        Ok(())
    }

    /// How many of these blocks the object has in extents for which `is_counted` returns true.
    pub(crate) fn count_blocks(
        &self,
        object: Object,
        start: u64,
        blocks: u64,
        is_counted: impl Fn(&Extent) -> bool,
    ) -> Result<u64> {
        let _shared = self.map_of(object).read();
        let view = View::load(&self.store, object, (start, start + blocks), usize::MAX)?;
        let within = |at: u64, length: u64| (at + length).min(start + blocks).saturating_sub(at.max(start));
        let taken = view.extents().filter(|(_, extent)| is_counted(extent));
        Ok(taken.map(|(at, extent)| within(at, u64::from(extent.blocks))).sum())
    }

    /// Blocks of user data that fit in the zone at worst.
    pub(crate) fn payload_of(&self, zone: ZoneId) -> Blocks {
        self.packing.payload(self.store.pool().capacity(zone))
    }

    /// Calls `each` for every extent of the volume.
    pub(crate) fn each_extent(&self, each: &mut dyn FnMut(Object, u64, Extent)) -> Result<()> {
        let most = map::blocks_max(self.device.geometry());
        self.each_entry(EXTENT, &mut |key, value| {
            if let (Some((object, start)), Some(extent)) = (format::decode_key(key), Extent::decode(value))
                && start.checked_add(u64::from(extent.blocks)).is_some_and(|end| end <= most)
            {
                each(object, start, extent);
            }
        })
    }

    /// Calls `each` for every entry of a table, group by group.
    pub(crate) fn each_entry(&self, table: tree::Table, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for group in (0..self.store.info().groups).map(Group) {
            let mut from = tree::Key::new();
            loop {
                let batch = self.store.range(group, table, &from, &[], 512)?;
                batch.iter().for_each(|(key, value)| each(key, value));
                let Some((last, _)) = batch.last() else { break };
                from.clone_from(last);
                from.push(0);
            }
        }
        Ok(())
    }
}

/// The most blocks of an extent: 256, a mebibyte, the largest append, and the number of checksums that fit in a value.
fn piece_blocks_max(store: &Store) -> Blocks {
    let geometry = store.device().geometry();
    let by_bytes = format::EXTENT_BYTES_MAX / u64::from(geometry.block_size);
    let by_value = (store.value_max() - size_of::<format::ExtentRecord>()) / size_of::<u32>();
    let blocks =
        u64::from(format::EXTENT_BLOCKS_MAX.min(geometry.max_append)).min(by_bytes).min(by_value as u64);
    assert!(blocks > 0, "a value holds at least one checksum");
    blocks as Blocks
}

//! The interface of the store.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use pool::{GC_MINIMUM, Lsn, Moment, Pool};
use rt::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zone::{Address, Device, Geometry, Lease, Role, Traffic, ZoneId};

use crate::check::{CheckProgress, Finding, Visit};
use crate::checkpoint::Client;
use crate::core::Core;
use crate::headroom::Need;
use crate::mkfs::FormatOptions;
use crate::recover::{Config, Recovery, Replay};
use crate::trees::Growth;
use crate::types::{Bytes, Entry, Group, Key, Label, Result, Step, Table, Tx, VolumeInfo};
use crate::zones::ZoneRef;

/// Idle steps before a long epoch is ended: these take some seconds.
const IDLE_STEPS: u32 = 20;

/// Transactional ordered tables on a zoned device.
pub struct Store {
    pub(crate) core: Core,
    /// The last LSN when [`Store::step`] last had nothing to do.
    idle_at: AtomicU64,
    /// The number of steps since then that had nothing to do.
    idle_for: AtomicU32,
}

/// Counters since the store was opened.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Transactions.
    pub commits: u64,
    /// Batches appended to the log (journal, checkpoints, seals).
    pub log_batches: u64,
    /// Syncs that were served by the flush of an earlier sync.
    pub sync_followers: u64,
    /// The most syncs that one flush of the log has served.
    pub syncs_per_flush_max: u64,
    /// Pages of nodes and chunks in memory.
    pub pages_cached: u64,
    /// Pages that may be in memory.
    pub pages_cached_max: u64,
    /// Nodes written whole by checkpoints and evictions.
    pub nodes_written: u64,
    /// Leaves that they wrote as delta records.
    pub deltas_written: u64,
    /// Whole nodes moved by GC.
    pub nodes_moved: u64,
    /// Delta records moved by GC.
    pub deltas_moved: u64,
    /// Nodes read from the device.
    pub nodes_read: u64,
}

impl Store {
    /// Whether [`Store::format`] would accept these options on a device with this geometry. To be called before the
    /// contents of the device are given up.
    pub fn check_format(geometry: &Geometry, options: &FormatOptions) -> Result<()> {
        crate::mkfs::check_options(geometry, options)
    }

    /// Zones that data never gets on a device with this geometry, beside those with metadata in them. These are the
    /// zones of the log, and the most free zones that are ever reserved for metadata and for GC.
    pub fn zones_kept(geometry: &Geometry, page_size: u32) -> (u32, u32) {
        let (bounds, _) = crate::limits::Limits::new(geometry, page_size as usize, crate::mkfs::CACHE_BYTES);
        let kept = bounds.metadata_reserve_of(geometry, page_size as usize);
        (pool::LOG_ZONES, kept.zones(0) + GC_MINIMUM)
    }

    /// Pages of the zone table on a device with this geometry. They are always live, and [`Store::metadata_blocks`]
    /// does not count them.
    pub fn zone_table_pages(geometry: &Geometry, page_size: u32) -> u64 {
        crate::limits::zone_table_pages(geometry.zones, page_size as usize) as u64
    }

    /// Makes an empty volume, and discards any earlier contents of the device.
    pub fn format(device: &Arc<dyn Device>, options: &FormatOptions) -> Result<()> {
        crate::mkfs::format(device, options)
    }

    /// Recovers and opens a volume. [`Store::set_client`] must be called before the first change.
    pub fn open(
        device: Arc<dyn Device>,
        config: &Config,
        replay: &mut dyn Replay,
    ) -> Result<(Store, Recovery)> {
        let (core, recovery) = crate::recover::recover(device, config, replay)?;
        core.headroom.measure_garbage(&core.checkpoints.saving.lock());
        Ok((Store { core, idle_at: AtomicU64::new(u64::MAX), idle_for: AtomicU32::new(0) }, recovery))
    }

    /// Sets the client whose bytes checkpoints carry.
    pub fn set_client(&self, client: Arc<dyn Client>) {
        self.core.checkpoints.set_client(client);
    }

    /// Sets the [`Growth`] that decides whether there is space for trees to grow. Without one there always is.
    pub fn set_growth(&self, growth: Weak<dyn Growth>) {
        self.core.trees.set_growth(growth);
    }

    /// Sets the function that wakes the background reader, which then calls [`Store::read_ahead`] soon. The store
    /// calls `wake` under locks. `wake` takes only its own locks and never calls the store.
    pub fn set_reader(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.core.nodes.readahead.set_reader(wake);
    }

    /// The properties that `mkfs` decided.
    pub fn info(&self) -> &VolumeInfo {
        &self.core.volume.info
    }

    /// The group that contains the entries of a number (an inode's, an object's).
    pub fn group_of(&self, number: u64) -> Group {
        Group((number % u64::from(self.core.volume.info.groups)) as u16)
    }

    /// The longest value.
    pub fn value_max(&self) -> usize {
        crate::page::value_max(self.core.volume.page_size())
    }

    /// The longest transaction, as [`Tx::encoded_bytes`] counts.
    pub fn tx_bytes_max(&self) -> usize {
        self.core.log.record_max()
    }

    // ---- reading -----------------------------------------------------------------------------

    /// The value of a key.
    pub fn get(&self, group: Group, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        self.look(group, table, key, <[u8]>::to_vec)
    }

    /// Passes the value of a key to `see` without a copy. `None` if there is none. `see` calls nothing of the store.
    pub fn look<T>(
        &self,
        group: Group,
        table: Table,
        key: &[u8],
        see: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.core.trees.look(group, table, key, see)
    }

    /// Passes the entries with `from <= key < to` to `each` without a copy, in order. An empty `to` is the end of the
    /// table. `each` calls nothing of the store. The entries are not a snapshot if other threads write meanwhile.
    pub fn visit(
        &self,
        group: Group,
        table: Table,
        from: &[u8],
        to: &[u8],
        each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.core.trees.visit(group, table, from, to, each)
    }

    /// Up to `limit` entries, as [`Store::visit`] passes them.
    pub fn range(
        &self,
        group: Group,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        self.visit(group, table, from, to, |key, value| {
            found.push((Key::from_slice(key), value.to_vec()));
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(found)
    }

    /// Passes the entry with the greatest key that is not greater than `key` to `see` without a copy. `None` if there
    /// is none. `see` calls nothing of the store.
    pub fn floor<T>(
        &self,
        group: Group,
        table: Table,
        key: &[u8],
        see: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Result<Option<T>> {
        self.core.trees.floor(group, table, key, see)
    }

    /// One of the user's counters ([`Tx::counter`]).
    pub fn counter(&self, counter: u8) -> u64 {
        let count = self.core.volume.pool.counter(counter);
        u64::try_from(count).expect("a counter is never negative")
    }

    // ---- writing -----------------------------------------------------------------------------

    /// Applies a transaction. It is durable after a [`Store::sync`] of the LSN that this returns.
    ///
    /// May take a checkpoint or run GC, but never waits for a lock or a resource that the caller could hold.
    pub fn commit(&self, tx: Tx) -> Result<Lsn> {
        self.core.transactions.commit(tx)
    }

    /// The last transaction.
    pub fn last_lsn(&self) -> Lsn {
        self.core.log.last()
    }

    /// The last transaction that is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.core.log.durable()
    }

    /// Returns when everything up to `lsn`, with the data that it names, is durable. All waiting threads share one
    /// flush.
    pub fn sync(&self, lsn: Lsn) -> Result<()> {
        self.core.transactions.sync(lsn)
    }

    /// Takes a checkpoint.
    pub fn checkpoint(&self) -> Result<()> {
        self.core.checkpoints.checkpoint()
    }

    /// Changes the label of the volume, and takes a checkpoint, which makes that durable.
    pub fn set_label(&self, text: &str) -> Result<()> {
        assert!(text.len() <= Label::BYTES_MAX, "the caller has checked the length");
        self.info().label.change(text);
        self.checkpoint()
    }

    /// Whether [`Store::step`] should be called soon. Otherwise committing threads will have to do its work.
    pub fn is_pressed(&self) -> bool {
        self.core.running.is_pressed()
            || self.core.log.is_pressed()
            || self.core.headroom.background_gc_is_due()
    }

    /// Reads the leaves that walks through a tree will need next. Returns false if there is nothing to read.
    /// [`Store::set_reader`] sets the function that asks for a call.
    pub fn read_ahead(&self) -> bool {
        self.core.nodes.read_ahead()
    }

    /// Reads the missing nodes on the paths to the first of these keys, all at the same time, so that later look-ups
    /// do not wait for them. Returns the number of keys, which depends on the cache. Best in order, group by group. A
    /// hint: a later look-up reads what cannot be read here.
    pub fn read_ahead_of(
        &self,
        table: Table,
        keys: impl Iterator<Item = (Group, impl AsRef<[u8]>)>,
    ) -> usize {
        self.core.trees.read_paths_ahead(table, keys)
    }

    /// Does one piece of background work.
    pub fn step(&self) -> Result<Step> {
        if self.core.volume.writable().is_err() {
            return Ok(Step::Idle);
        }
        if self.background()? {
            return Ok(Step::Worked);
        }
        // Nothing has changed since the last step. The log now records that everything is durable. Then a recovery
        // need not verify data that was acknowledged long ago, and cannot lose it.
        let last = self.last_lsn();
        if self.idle_at.swap(last.0, Ordering::Relaxed) == last.0 && self.durable_lsn() == last {
            if self.settle(last)? == Step::Worked {
                return Ok(Step::Worked);
            }
            if self.idle_for.fetch_add(1, Ordering::Relaxed) >= IDLE_STEPS
                && self.core.running.epoch_is_large()
            {
                self.core.checkpoints.checkpoint()?;
                return Ok(Step::Worked);
            }
            return Ok(Step::Idle);
        }
        self.idle_for.store(0, Ordering::Relaxed);
        Ok(Step::Idle)
    }

    fn background(&self) -> Result<bool> {
        let Core { volume, log, running, headroom, checkpoints, gc, .. } = &self.core;
        log.relieve();
        let has_emptied_zone = checkpoints.saving.lock().has_emptied_zone;
        let is_pressed = running.is_pressed();
        if has_emptied_zone || running.epoch_is_long() || (is_pressed && running.epoch_is_ending()) {
            checkpoints.checkpoint()?;
            return Ok(true);
        }
        if gc.refill_reserve()? {
            return Ok(true);
        }
        let has_full_batches = log.has_full_batches();
        if has_full_batches {
            volume.shut_down_on_error("the log cannot be written", log.push())?;
        }
        if is_pressed {
            checkpoints.write_out(&mut checkpoints.saving.lock())?;
        }
        if is_pressed || has_full_batches {
            return Ok(true);
        }
        if self.core.zones.reclaim(1)?.0 > 0 || gc.harvest_ids()? {
            return Ok(true);
        }
        Ok(headroom.gc_is_worth_it() && gc.collect_one_zone(&mut checkpoints.saving.lock(), Need::May)?)
    }

    fn settle(&self, last: Lsn) -> Result<Step> {
        let Core { volume, log, .. } = &self.core;
        if log.known_durable() >= last {
            return Ok(Step::Idle);
        }
        volume.shut_down_on_error("the log cannot be written", log.make_known(last))?;
        Ok(Step::Worked)
    }

    /// Runs GC of metadata zones, if that gains anything, and frees them. Returns false if it gains nothing. For a
    /// caller that needs a zone for data and gets none otherwise.
    pub fn collect_garbage(&self) -> Result<bool> {
        self.core.gc.collect_garbage()
    }

    /// Resets zones without live blocks. Returns how many became free. With `force`, the log first records what is
    /// durable if the resets wait for that.
    pub fn reclaim(&self, force: bool) -> Result<u32> {
        self.core.volume.writable()?;
        self.core.checkpoints.reclaim(u32::MAX, force)
    }

    /// The number of finished resets. Read it, then look for a free zone, then call [`Store::reclaim_one`].
    pub fn resets_over(&self) -> u64 {
        self.core.volume.pool.resets_over()
    }

    /// For a caller that needs a zone and has found none since it read `over`. Resets a zone without live blocks, or
    /// waits until another thread has reset one, unless one was reset meanwhile. Returns false if there is no such
    /// zone.
    pub fn reclaim_one(&self, over: u64) -> Result<bool> {
        self.core.volume.writable()?;
        self.core.checkpoints.reclaim_one(over)
    }

    /// Runs GC of one metadata zone while the dead blocks of metadata zones together fill a zone.
    pub fn collect_garbage_if_worth_it(&self) -> Result<bool> {
        self.core.gc.collect_garbage_if_worth_it()
    }

    /// Takes a last checkpoint, so that the next mount has nothing to replay.
    pub fn close(&self) -> Result<()> {
        if self.core.volume.is_read_only() {
            return Ok(());
        }
        self.core.volume.writable()?;
        if self.is_clean() { Ok(()) } else { self.core.checkpoints.checkpoint() }
    }

    /// Whether nothing had to be replayed.
    fn is_clean(&self) -> bool {
        self.core.log.replay_cost().0 == 0 && self.core.running.dirty().nodes() == 0
    }

    /// Shuts the volume down: no changes until the next mount.
    pub fn shut_down(&self, why: &str) {
        self.core.volume.shut_down(why);
    }

    /// Whether no reserved page is in use. This is always so while no thread changes anything.
    pub fn covers_reservations(&self) -> bool {
        self.core.nodes.pages.covers_reservations()
    }

    /// Why the volume is shut down.
    pub fn shutdown_reason(&self) -> Option<Arc<str>> {
        self.core.volume.shutdown_reason()
    }

    // ---- zones of data -----------------------------------------------------------------------

    /// Opens a free zone for data or GC: resets it if it is not empty, writes its header, and journals that. `None`:
    /// this role may take no free zone.
    pub fn open_zone(&self, role: Role) -> Result<Option<Lease>> {
        self.core.transactions.open_data_zone(role)
    }

    /// Continues a partly written data zone after a mount.
    pub fn resume_zone(&self, zone: ZoneId) -> Result<Lease> {
        self.core.zones.resume_data_zone(zone)
    }

    /// A reader enters a zone: it is not reset until the reference is dropped. `None`: the zone is in another life by
    /// now. To be called under the lock that protected the look-up of the address.
    pub fn enter_zone(&self, at: Address) -> Option<ZoneRef> {
        ZoneRef::enter(&self.core.volume.pool, at)
    }

    /// How many zones of user writes may be open at once.
    pub fn leases_for_data(&self) -> u32 {
        self.core.volume.leases.limit_for_data()
    }

    // ---- space of metadata -------------------------------------------------------------------

    /// Nodes that transactions have reserved and may not have made yet. Read it before the number of nodes. Then a
    /// node that is made in between counts twice rather than not at all.
    pub fn nodes_reserved(&self) -> u64 {
        self.core.trees.nodes_reserved()
    }

    /// Free zones without which trees do not grow, even if [`Growth`] allows it. A zone that GC took from the metadata
    /// reserve counts as free ([`Pool::free_or_outstanding`]).
    pub fn zones_needed_to_grow(&self) -> u32 {
        self.core.headroom.needed_to_grow()
    }

    /// Blocks of live metadata.
    pub fn metadata_blocks(&self) -> u64 {
        self.core.trees.metadata_blocks()
    }

    /// The same at the given moment of the zone table.
    pub fn metadata_blocks_at(&self, moment: &Moment<'_>) -> u64 {
        self.core.trees.metadata_blocks_at(moment)
    }

    /// Blocks of the nodes of all trees, and of those of them that lead to other tables than [`crate::PREPAID`]. None
    /// on a volume that was made before these were counted.
    pub fn blocks_of_nodes(&self) -> Option<(u64, u64)> {
        self.core.trees.blocks_of_nodes()
    }

    /// Blocks that metadata can write now, beside the remaining writes of a running checkpoint.
    pub fn metadata_headroom(&self) -> u64 {
        self.core.headroom.headroom_now()
    }

    /// Blocks that metadata can write, beside what is dirty now, before one more free zone is reserved for it.
    /// Negative: the dirty nodes take more by that amount.
    pub fn headroom_until_reserve_grows(&self) -> i64 {
        let headroom =
            i64::try_from(self.core.volume.pool.headroom_until_reserve_grows()).unwrap_or(i64::MAX);
        headroom - self.core.headroom.blocks_of_next_checkpoint() as i64
    }

    /// The number of checkpoints before the running epoch, since the mount, and the share of the epoch that has
    /// passed. At 1 a checkpoint begins, unless one was requested before.
    pub fn epoch(&self) -> (u64, f64) {
        (self.core.checkpoints.counts()[0], self.core.running.epoch_share())
    }

    // ---- around ------------------------------------------------------------------------------

    /// The zones of the volume: their use, and how many zones each role may take.
    pub fn pool(&self) -> &Pool {
        &self.core.volume.pool
    }

    /// An error that says why nothing can be written. `Ok` if the volume is writable.
    pub fn writable(&self) -> Result<()> {
        self.core.volume.writable()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.core.volume.device
    }

    /// Bytes written, by cause.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.core.volume.leases.traffic()
    }

    /// The counters.
    pub fn stats(&self) -> StoreStats {
        let [checkpoints, nodes_written, deltas_written] = self.core.checkpoints.counts();
        let [nodes_moved, deltas_moved] = self.core.gc.moved();
        let (sync_followers, syncs_per_flush_max) = self.core.log.served();
        StoreStats {
            checkpoints,
            commits: self.core.transactions.count(),
            log_batches: self.core.log.batches(),
            sync_followers,
            syncs_per_flush_max,
            pages_cached: (self.core.nodes.cache.pages() + self.core.nodes.chunks.pages()) as u64,
            pages_cached_max: self.core.nodes.cache.limit() as u64,
            nodes_written,
            deltas_written,
            deltas_moved,
            nodes_moved,
            nodes_read: self.core.nodes.reads(),
        }
    }

    /// Verifies every node, the MAT and the ZIT's counts of metadata. Calls `each` for every entry, by group and in
    /// order. No thread may write meanwhile.
    pub fn check(&self, each: &mut Visit<'_>) -> Result<Vec<Finding>> {
        self.check_with_progress(each, &mut |_, _| ())
    }

    /// As [`Store::check`], and reports the progress after each node.
    pub fn check_with_progress(
        &self,
        each: &mut Visit<'_>,
        progress: &mut CheckProgress<'_>,
    ) -> Result<Vec<Finding>> {
        crate::check::check(&self.core.trees, each, progress)
    }
}

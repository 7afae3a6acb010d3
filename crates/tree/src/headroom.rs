//! How much space metadata has, how much it needs, and whether GC has to gain more.

mod garbage;

use std::sync::Arc;

use rt::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zone::Blocks;

use crate::epoch::RunningEpoch;
use crate::saving::Saving;
use crate::trees::Trees;
use crate::types::Draw;
use crate::volume::Volume;
pub use garbage::GAIN_PAGES;
pub(crate) use garbage::Need;

/// A checkpoint of at least this number of pages updates the measured ratio of written to dirty pages, and the ratio
/// is at most this.
const MEASURED_PAGES_MIN: usize = 64;
const PERMILLE_MAX: u64 = 10_000;

/// The space of metadata, as admission and GC judge it.
pub(crate) struct Headroom {
    volume: Arc<Volume>,
    trees: Arc<Trees>,
    running: Arc<RunningEpoch>,
    /// How much recent checkpoints have written, in thousandths of the pages that they had to write.
    written_permille: AtomicU64,
    /// With this number of blocks for metadata no thread needs to run GC before the next checkpoint, because GC would
    /// gain little. 0: unknown.
    headroom_enough: AtomicU64,
    /// With this number of blocks for metadata, beside those for dirty pages, a zone of the reserve may be missing
    /// until background GC has collected one. As of the last checkpoint. 0: background GC has no victim.
    headroom_to_wait: AtomicU64,
    /// Free zones that metadata lacks, beside its reserve, so that GC never moves many blocks for a small gain. As of
    /// the last checkpoint.
    zones_lacking: AtomicU32,
    /// Free zones did not make up for the lacking ones at the last checkpoint.
    is_short_of_zones: AtomicBool,
    /// Blocks that may be dead in metadata zones before GC begins, as of the last checkpoint.
    dead_blocks_max: AtomicU64,
}

impl Headroom {
    pub(crate) fn new(volume: Arc<Volume>, trees: Arc<Trees>, running: Arc<RunningEpoch>) -> Self {
        Headroom {
            volume,
            trees,
            running,
            written_permille: AtomicU64::new(0),
            headroom_enough: AtomicU64::new(0),
            headroom_to_wait: AtomicU64::new(0),
            zones_lacking: AtomicU32::new(0),
            is_short_of_zones: AtomicBool::new(false),
            dead_blocks_max: AtomicU64::new(0),
        }
    }

    /// Whether fewer zones are free than metadata needs. Then changed leaves are written whole, because delta records
    /// beside a base page take some of the space that is lacking. As of the last checkpoint.
    pub(crate) fn is_short_of_zones(&self) -> bool {
        self.is_short_of_zones.load(Ordering::Relaxed)
    }

    /// Takes the headroom, if it suffices, as that with which no thread needs to run GC before the next checkpoint.
    pub(crate) fn note_headroom_enough(&self, saving: &Saving) {
        let enough = self.headroom_to_go_on(saving, self.gc_target_blocks(saving));
        if self.headroom(saving) >= enough {
            self.headroom_enough.store(enough, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn zones_lacking(&self) -> &AtomicU32 {
        &self.zones_lacking
    }

    /// A checkpoint is durable, after which GC may gain more.
    pub(crate) fn saved(&self) {
        self.headroom_enough.store(0, Ordering::Relaxed);
    }

    /// Background GC has found no victim.
    pub(crate) fn nothing_to_wait_for(&self) {
        self.headroom_to_wait.store(0, Ordering::Relaxed);
    }

    /// Measures everything anew after a checkpoint.
    pub(crate) fn renew(&self, saving: &mut Saving) {
        assert!(self.running.pages_being_saved() == 0, "the checkpoint has written everything");
        self.measure_garbage(saving);
        self.note_headroom_to_wait(saving);
        self.update_metadata_share(saving);
    }

    pub(crate) fn reserve_is_whole(&self) -> bool {
        self.volume.pool.reserve_is_complete()
    }

    /// Whether a thread has found since the last checkpoint that GC gains little, and the headroom is still as large
    /// as it was required to be. Each transaction calls this while the reserve is incomplete. It takes no lock that
    /// writers hold.
    pub(crate) fn gc_gains_little(&self) -> bool {
        let enough = self.headroom_enough.load(Ordering::Relaxed);
        enough > 0 && self.headroom_now() >= enough
    }

    /// Whether a transaction can go on without waiting for GC. This needs headroom for the dirty pages, for all that
    /// another epoch can write, and for a zone as the target of GC. Then the live blocks of any victim still fit after
    /// the running epoch has been written. The missing zone must also come back: GC of data returns it, or the
    /// background collects one.
    pub(crate) fn gc_can_wait(&self) -> bool {
        let enough = self.headroom_to_wait.load(Ordering::Relaxed);
        let dirty = self.running.dirty_pages() as u64 * self.volume.page_blocks();
        enough > 0 && self.headroom_now() >= enough + dirty
    }

    /// Computes the headroom with which GC can wait. Called after a checkpoint.
    fn note_headroom_to_wait(&self, saving: &Saving) {
        let zone = self.volume.zone_blocks();
        let epoch = self.epoch_blocks() + saving.tables.blocks(self.running.limits.epoch_nodes, zone);
        let comes_back = self.volume.pool.is_one_taken() || self.gc_gains_much(saving);
        // The margin is for transactions that were admitted and have not changed anything yet.
        let enough = zone + epoch + epoch / 8;
        self.headroom_to_wait.store(if comes_back { enough } else { 0 }, Ordering::Relaxed);
    }

    /// Whether a zone of the reserve is missing, no thread returns it, and background GC is to collect one.
    pub(crate) fn background_gc_is_due(&self) -> bool {
        self.headroom_to_wait.load(Ordering::Relaxed) > 0
            && self.volume.pool.free_or_taken() < self.volume.pool.metadata_reserve()
    }

    pub(crate) fn has_headroom_to_go_on(&self, saving: &Saving) -> bool {
        self.has_headroom_to_go_on_with(saving, self.gc_target_blocks(saving))
    }

    pub(crate) fn has_headroom_to_go_on_with(&self, saving: &Saving, gc_target: u64) -> bool {
        self.reserve_is_whole() || self.headroom(saving) >= self.headroom_to_go_on(saving, gc_target)
    }

    /// Headroom with which GC can wait until it gains more. It suffices for an epoch and a half and the target of a
    /// GC. It also suffices for GC of full zones after the epoch has reached its limit and the transactions under way
    /// have finished.
    fn headroom_to_go_on(&self, saving: &Saving, gc_target: u64) -> u64 {
        let changed = self.trees.nodes.mat.running_len().max(self.running.limits.epoch_nodes);
        let dirty_until_cut = self.dirty_until_cut() as u64 * self.volume.page_blocks();
        let tables = saving.tables.blocks(changed, gc_target);
        let last_chance = self.epoch_blocks() + dirty_until_cut + tables;
        gc_target + last_chance.max(self.epoch_blocks() * 3 / 2)
    }

    /// Blocks that GC needs as its target. This is a zone, or the live blocks of the number of zones whose joint GC
    /// gains more than the checkpoint after it writes, for any choice of zones. The tables are written once for all of
    /// them.
    fn gc_target_blocks(&self, saving: &Saving) -> u64 {
        let zone = self.volume.zone_blocks();
        let (zones, _, dead) = self.closed_garbage();
        if zones == 0 {
            return zone;
        }
        // No zone with fewer dead blocks is collected.
        let dead = (dead / zones).max(u64::from(self.dead_at_least(zone as Blocks, Need::Must)));
        let live = zone.saturating_sub(dead);
        let gains =
            |count: &u64| count * dead > saving.tables.blocks(self.running.limits.epoch_nodes, count * live);
        (1..=zones).find(gains).map_or(zone, |count| (count * live).max(zone))
    }

    /// Whether a transaction with this draw can go on although the reserve is incomplete. It needs headroom for what
    /// an epoch writes and for a zone as the target of GC. A transaction that frees space needs no target, because it
    /// leaves garbage for GC.
    pub(crate) fn has_headroom_for(&self, saving: &Saving, draw: Draw) -> bool {
        let zone = self.volume.zone_blocks();
        let gc_target = match draw {
            Draw::Reserve => 0,
            // The zone that was taken from the reserve comes back.
            _ if self.volume.pool.is_one_taken() => zone.min(self.epoch_blocks()),
            _ => zone,
        };
        let tables = self.running.limits.zone_table_beyond as u64 * self.volume.page_blocks();
        self.headroom(saving) >= self.epoch_blocks() * 3 / 2 + tables + gc_target
    }

    /// Blocks that the nodes of an epoch take when they are written, unless the epoch is a long one.
    fn epoch_blocks(&self) -> u64 {
        self.running.limits.epoch_pages as u64 * self.volume.page_blocks()
    }

    /// Blocks for pages in the open metadata zone and in the free zones.
    pub(crate) fn headroom(&self, saving: &Saving) -> u64 {
        self.headroom_with(saving.zone.free_blocks())
    }

    /// The same for a caller that does not write metadata itself.
    pub(crate) fn headroom_now(&self) -> u64 {
        self.headroom_with(u64::from(self.volume.pool.open_headroom()))
    }

    /// The same for a given headroom of the open zone. What a running checkpoint still has to write is subtracted.
    fn headroom_with(&self, open: u64) -> u64 {
        let being_saved = self.running.pages_being_saved() as u64 * self.volume.page_blocks();
        (open + self.volume.pool.free_headroom()).saturating_sub(being_saved)
    }

    /// Blocks that a GC needs: for the live blocks of its victims, for the checkpoint that frees the victims and
    /// writes `dirty` pages of nodes, and for pages that become dirty before this checkpoint.
    ///
    /// More pages become dirty only with more headroom than that, for an epoch and a half at least. A transaction that
    /// finds less waits.
    pub(crate) fn blocks_for_gc(&self, saving: &Saving, live: u64, dirty: usize) -> u64 {
        let pages = (dirty + self.dirty_until_cut()) as u64;
        live + pages * self.volume.page_blocks() + self.table_blocks(saving, live)
    }

    /// Pages that may become dirty before the cut although the headroom is small: those of transactions under way. A
    /// transaction that was admitted with headroom for a zone and an epoch and a half leaves a zone and half an epoch
    /// when all is written. This must suffice for a full zone, for these pages, and for the tables.
    pub(crate) fn dirty_until_cut(&self) -> usize {
        self.running.limits.epoch_pages / 4
    }

    /// Blocks for this number of dirty pages of nodes, or for as many as may become dirty before a cut if that is
    /// more.
    pub(crate) fn blocks_for_nodes(&self, dirty: usize) -> u64 {
        let pages = dirty.max(self.running.limits.dirty.min(self.running.limits.epoch_pages)) as u64;
        pages * self.volume.page_blocks()
    }

    /// Blocks that a checkpoint writes beside dirty nodes when `moved` blocks have been moved.
    pub(crate) fn table_blocks(&self, saving: &Saving, moved: u64) -> u64 {
        saving.tables.blocks(self.running.changed_nodes(), moved)
    }

    /// Reserves zones for the writes of a checkpoint: `pages` pages of nodes and `tables` blocks of tables. From the
    /// cut on they no longer count as dirty, and other roles must not take the zones for them. If the epoch is longer
    /// than the reserve allows, these zones are in addition to the reserve.
    pub(crate) fn reserve_for_checkpoint(&self, pages: usize, tables: u64) {
        let written = self.blocks_for_nodes(pages) + tables;
        // Longer than one epoch in the reserve.
        let is_long = written > self.volume.pool.two_epochs() / 2;
        if !is_long || !self.volume.pool.announce(written + self.volume.pool.two_epochs()) {
            self.volume.pool.announce(written);
        }
    }

    /// Updates the measured ratio of written to dirty pages. A small checkpoint writes mostly tables, so it does not
    /// count.
    pub(crate) fn note_write_ratio(&self, pages: usize, bytes: u64) {
        if pages < MEASURED_PAGES_MIN {
            return;
        }
        let now = (bytes * 1000 / (pages * self.volume.page_size()) as u64).min(PERMILLE_MAX);
        let before = self.written_permille.load(Ordering::Relaxed);
        let learned = if before == 0 { now } else { (3 * before + now) / 4 };
        self.written_permille.store(learned, Ordering::Relaxed);
    }

    /// Blocks that the next checkpoint will write, estimated from recent checkpoints, and blocks that a running one
    /// has still to write.
    pub(crate) fn blocks_of_next_checkpoint(&self) -> u64 {
        let pages = (self.running.dirty_pages() + self.running.pages_being_saved()) as u64;
        pages * self.volume.page_blocks() * self.written_permille.load(Ordering::Relaxed) / 1000
    }
}

//! The zone table: the ZIT in memory, and what is known of zones only while mounted.
//!
//! For each zone: its life, role, live blocks and user's bytes (the ZIT, which checkpoints save), and
//! its use, pending blocks, readers and pages of running epochs (which die with the mount).
//!
//! The ZIT is versioned at the cut: from the cut until its chunks are encoded, the first change to an
//! entry saves the old one in `frozen`; the user's counters, which a checkpoint's record carries, are
//! copied at the cut. What a checkpoint itself changes (metadata zones opened for
//! it, live counts of the merged MAT) belongs to the saved version as well and goes to both.
//!
//! A transaction's changes of zones and counters happen at one moment, and with them the promises that it
//! keeps: who looks at the whole table ([`Moment`]) never sees half of one.
//!
//! Which zones may be reset when is in `docs/design.md`, section 6 (I-ZONE-4). This table decides
//! which are dead; `reclaim` does the resets.

mod changes;
mod engaged;
mod free;
mod resets;
mod shares;
mod sums;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rt::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex};
use zone::{Address, Blocks, Life, Role, ZoneId, ZoneInfo};

use crate::delta::IN_PAGE_AT_LEAST;
use crate::kept::KeptForMetadata;
use crate::mat::Place;
use crate::types::{Lsn, Op, Promise, ZoneEntry};
use engaged::{Engaged, EngagedZones};
use free::{FreeZones, Links};
pub use sums::{Sums, Uses};

/// Free zones that only garbage collection may take.
pub(crate) const KEPT_FOR_GC: u32 = 1;

/// In debug builds, sums over no more zones than this are compared with a count each time.
const CHECKED_ZONES_MAX: usize = 256;

/// Blocks of the largest zone, at least.
pub(crate) const ZONE_BLOCKS_MIN: Blocks = 16;

/// What a zone is doing in this mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// May be opened; `empty` when the device has it empty already.
    Free {
        /// The device reports it empty, so that no reset is needed.
        empty: bool,
    },
    /// Being opened or written.
    Leased,
    /// Holds something, takes no more.
    Closed,
    /// Dead and being reset: nobody enters.
    Resetting,
    /// Cannot be written any more (read-only, offline, or it failed), or has no room for a page: never free again.
    Bad,
}

/// What is known of a zone beside its entry, of each: what only few have is in [`Engaged`].
struct Run {
    info: ZoneInfo,
    usage: Use,
    /// Its neighbours among the free ones.
    links: Links,
    /// The last record that changed `live`.
    changed: Lsn,
}

/// What a zone takes while it is not in use, and a volume may have millions.
const _: () = assert!(size_of::<ZoneEntry>() + size_of::<Run>() <= 64);

/// Blocks of the smallest zone that is used: devices leave out those of less than half the others, data has little room
/// in fewer than half of what there has to be, and a page has to fit behind a header.
pub(crate) fn smallest_of_use(page_blocks: Blocks) -> Blocks {
    (ZONE_BLOCKS_MIN / 2).max(1 + page_blocks)
}

struct State {
    /// Blocks of the smallest zone that is of use: less has no room for a header and a page. Whatever would make a
    /// smaller one free gives it up, so that nobody opens it or counts on it.
    zone_blocks_min: Blocks,
    entries: Vec<ZoneEntry>,
    run: Vec<Run>,
    /// Blocks of the largest zone, when the volume was mounted.
    largest: Blocks,
    /// Whether none was smaller.
    are_alike: bool,
    engaged: EngagedZones,
    /// Those whose use is free, but for the log's.
    free: FreeZones,
    /// Closed data zones in which something lives, by what would live there if they were as large as the largest and had as
    /// much dead: a small one has few live blocks though little is won by moving them.
    closed: BTreeSet<(Blocks, ZoneId)>,
    /// Those in which nothing does. Apart, because they are counted for each write, and there may be many: all that
    /// a large file had.
    dead: BTreeSet<ZoneId>,
    /// Zones that were taken to be reset and are not yet, and how many have been.
    resets: (u32, u64),
    /// How often a zone was opened for data, taken to be reset after it, or taken back from metadata.
    turnover: u64,
    /// Zones with the role metadata.
    metadata: BTreeSet<ZoneId>,
    /// Of metadata zones that somebody has looked at, in that life, the most pages that the changes of leaves can take
    /// that live there. They become fewer only.
    looked_at: HashMap<ZoneId, (Life, u64)>,
    /// Entries as they were at the cut, where they have changed since.
    frozen: Option<HashMap<ZoneId, ZoneEntry>>,
    /// ZIT chunks that differ from those on the device.
    changed_chunks: BTreeSet<u64>,
    /// Zones changed for the checkpoint after its ZIT chunks were encoded.
    late: Option<BTreeSet<ZoneId>>,
    /// The user's counters, none of them negative.
    counters: UserCounters,
    /// What garbage collection has open and took from what is kept for metadata: it comes back.
    borrowed: Option<ZoneId>,
    /// The same, until any zone has become free since: then it may have come back.
    lent: Option<ZoneId>,
    /// Sums over all zones, once they are asked for.
    sums: Option<Sums>,
}

/// Numbers that the store keeps for its user, changed by transactions.
pub(crate) type UserCounters = [i64; crate::COUNTERS];

/// The table.
pub(crate) struct ZoneTable {
    state: Mutex<State>,
    /// With `state`: a reset is over.
    reset_ended: Condvar,
    per_chunk: u64,
    page_blocks: Blocks,
    kept: KeptForMetadata,
    /// Blocks that the open metadata zone still takes: as many of those that are kept.
    open_room: AtomicU32,
    /// Blocks of free zones that cleaning, and the checkpoint after it, count on. Changes under `state`.
    held: AtomicU64,
    /// Free zones that data leaves beside those that are kept, so that metadata need not be cleaned yet: a wish.
    /// Changes under `state`.
    left_to_metadata: AtomicU32,
}

/// A closed metadata zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetadataZone {
    pub(crate) zone: ZoneId,
    pub(crate) life: Life,
    /// The most blocks that moving what lives in it can take, what running epochs name included.
    pub(crate) live: Blocks,
    pub(crate) capacity: Blocks,
}

impl MetadataZone {
    /// Blocks that cleaning it gains.
    pub(crate) fn dead(&self) -> Blocks {
        self.capacity - self.live
    }
}

impl State {
    /// Before a change that belongs to the running epoch only.
    fn touch(&mut self, zone: ZoneId, per_chunk: u64) -> &mut ZoneEntry {
        let entry = self.entries[zone.0 as usize];
        if let Some(frozen) = &mut self.frozen {
            frozen.entry(zone).or_insert(entry);
        }
        self.changed_chunks.insert(u64::from(zone.0) / per_chunk);
        &mut self.entries[zone.0 as usize]
    }

    /// A change that belongs to the checkpoint that is being taken, and to the running epoch.
    fn change_both(&mut self, zone: ZoneId, per_chunk: u64, change: impl Fn(&mut ZoneEntry)) {
        change(&mut self.entries[zone.0 as usize]);
        if let Some(entry) = self.frozen.as_mut().and_then(|frozen| frozen.get_mut(&zone)) {
            change(entry);
        }
        if let Some(late) = &mut self.late {
            late.insert(zone);
        }
        self.changed_chunks.insert(u64::from(zone.0) / per_chunk);
    }

    /// Changes the counts of a metadata zone for both; false where they cannot be right.
    fn merge(&mut self, zone: ZoneId, per_chunk: u64, blocks: i64, deltas: i64) -> bool {
        let index = zone.0 as usize;
        let Some(entry) = self.entries.get(index) else { return false };
        let live = i64::from(entry.live) + blocks;
        let Ok(deltas) = u32::try_from(i64::from(entry.deltas) + deltas) else { return false };
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.get(&zone));
        let same = frozen.is_none_or(|frozen| (frozen.live, frozen.deltas) == (entry.live, entry.deltas));
        if !same || !(0..=i64::from(self.run[index].info.capacity)).contains(&live) {
            return false;
        }
        self.with_part(zone, |state| {
            state.change_both(zone, per_chunk, |entry| (entry.live, entry.deltas) = (live as Blocks, deltas));
        });
        true
    }

    /// Keeps the set of metadata zones after a role has changed.
    fn set_metadata(&mut self, zone: ZoneId) {
        if self.entries[zone.0 as usize].role == Role::Metadata {
            self.metadata.insert(zone);
        } else {
            self.metadata.remove(&zone);
        }
    }

    /// Whether a change belongs to the life that the zone has; if not, it belongs to one that has ended
    /// (the checkpoint that replay began with had reset the zone already).
    fn is_of(&self, zone: ZoneId, life: Life) -> bool {
        self.entries[zone.0 as usize].life == life
    }

    fn is_victim(&self, zone: ZoneId) -> bool {
        self.run[zone.0 as usize].usage == Use::Closed && self.entries[zone.0 as usize].role.holds_data()
    }

    fn set_live(&mut self, zone: ZoneId, change: i64, per_chunk: u64) {
        let victim = self.is_victim(zone);
        let entry = self.touch(zone, per_chunk);
        let before = entry.live;
        let after = i64::from(before) + change;
        assert!(after >= 0, "zone {}: {before} live blocks cannot change by {change}", zone.0);
        assert!(
            after <= i64::from(Address::BLOCKS_MAX),
            "zone {}: more live blocks than a zone holds",
            zone.0
        );
        entry.live = after as Blocks;
        if victim {
            self.take_out_of_closed(zone, before);
            self.put_among_closed(zone, after as Blocks);
        }
    }

    /// Blocks that the largest zone has more.
    fn lacks(&self, zone: ZoneId) -> Blocks {
        self.largest.saturating_sub(self.run[zone.0 as usize].info.capacity)
    }

    fn put_among_closed(&mut self, zone: ZoneId, live: Blocks) {
        if live > 0 {
            self.closed.insert((live + self.lacks(zone), zone));
        } else {
            self.dead.insert(zone);
        }
    }

    fn take_out_of_closed(&mut self, zone: ZoneId, live: Blocks) {
        if live > 0 {
            self.closed.remove(&(live + self.lacks(zone), zone));
        } else {
            self.dead.remove(&zone);
        }
    }
}

/// How a transaction changes the table, and a zone its use.
impl State {
    fn apply(&mut self, op: &Op, lsn: Lsn, per_chunk: u64) {
        match op {
            Op::ZoneOpened { zone, life, role } => {
                self.with_part(*zone, |state| state.open(*zone, *life, *role, lsn, per_chunk));
            }
            Op::ZoneLive { zone, life, change } if self.is_of(*zone, *life) => {
                self.with_part(*zone, |state| state.set_live(*zone, i64::from(*change), per_chunk));
                self.run[zone.0 as usize].changed = lsn;
            }
            Op::ZoneUser { zone, life, bytes } if self.is_of(*zone, *life) => {
                self.touch(*zone, per_chunk).user = *bytes;
            }
            Op::Counter { counter, change } => {
                let counter = &mut self.counters[usize::from(*counter)];
                *counter += *change;
                assert!(*counter >= 0, "a counter counts what there is");
            }
            Op::ZoneLive { .. } | Op::ZoneUser { .. } | Op::Put { .. } | Op::Delete { .. } => {}
        }
    }

    fn open(&mut self, zone: ZoneId, life: Life, role: Role, lsn: Lsn, per_chunk: u64) {
        if self.entries[zone.0 as usize].life >= life {
            return;
        }
        let entry = self.touch(zone, per_chunk);
        assert!(!entry.holds_anything(), "nothing lives in zone {} when it is opened", zone.0);
        *entry = ZoneEntry { life, role, live: 0, deltas: 0, user: [0; 16] };
        // A replay may begin when the zone held metadata.
        if !rt::is_planted("break-role-taken") {
            self.set_metadata(zone);
        }
        // Even if nothing is ever put there: a replay looks for its header until the record is known
        // to be durable.
        self.run[zone.0 as usize].changed = lsn;
        self.turnover += u64::from(role.holds_data());
    }

    /// Whether a zone is in the list of free ones. The log takes its zones by number.
    fn is_listed(&self, zone: ZoneId) -> bool {
        let is_free = matches!(self.run[zone.0 as usize].usage, Use::Free { .. });
        is_free && zone.0 >= crate::log::LOG_ZONES
    }

    /// Before its use changes.
    fn take_out_of_free(&mut self, zone: ZoneId) {
        if self.is_listed(zone) {
            self.free.remove(&mut self.run, zone);
        }
    }

    /// The device reports it anew, and that is its use now. Free and closed zones are counted by their capacity.
    fn set_info(&mut self, zone: ZoneId, info: ZoneInfo, usage: Use) {
        self.set_usage(zone, Use::Resetting);
        self.set_capacity(zone, info.capacity);
        self.run[zone.0 as usize].info = info;
        self.set_usage(zone, usage);
    }

    /// Of a zone that is not listed.
    fn set_capacity(&mut self, zone: ZoneId, capacity: Blocks) {
        self.run[zone.0 as usize].info.capacity = capacity;
        self.are_alike &= capacity == self.largest;
    }

    fn set_usage(&mut self, zone: ZoneId, usage: Use) {
        for held in [&mut self.borrowed, &mut self.lent] {
            held.take_if(|held| *held == zone);
        }
        let live = self.entries[zone.0 as usize].live;
        self.take_out_of_closed(zone, live);
        self.take_out_of_free(zone);
        let is_of_use = self.run[zone.0 as usize].info.capacity >= self.zone_blocks_min;
        let is_given_up = matches!(usage, Use::Free { .. }) && !is_of_use;
        self.run[zone.0 as usize].usage = if is_given_up { Use::Bad } else { usage };
        if self.is_listed(zone) {
            self.free.push(&mut self.run, zone);
            self.lent = None;
        } else if self.is_victim(zone) {
            self.put_among_closed(zone, live);
        }
    }
}

/// The whole table at one moment.
pub struct Moment<'a> {
    state: &'a State,
}

/// A zone at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ZoneNow {
    /// Its entry in the ZIT.
    pub entry: ZoneEntry,
    /// As the device reported it at the mount, or when it was last reset.
    pub info: ZoneInfo,
    /// It has room for a page.
    pub is_of_use: bool,
    /// It holds nothing, and it can be opened for data or metadata, or is being opened.
    pub is_free: bool,
    /// It is never written again in this mount.
    pub is_bad: bool,
}

impl Moment<'_> {
    /// How many zones there are.
    pub fn count(&self) -> u32 {
        self.state.entries.len() as u32
    }

    /// All zones, in order.
    pub fn zones(&self) -> impl Iterator<Item = ZoneNow> {
        (0..self.count()).map(|zone| self.state.now(ZoneId(zone)))
    }

    /// Sums over all zones.
    pub fn sums(&self) -> &Sums {
        self.state.sums.as_ref().expect("the table counts before it shows a moment")
    }

    /// One of the user's counters.
    pub fn counter(&self, counter: u8) -> u64 {
        let count = self.state.counters[usize::from(counter)];
        u64::try_from(count).expect("a counter is never negative")
    }
}

impl ZoneTable {
    pub(crate) fn new(
        entries: Vec<ZoneEntry>,
        report: &[ZoneInfo],
        per_chunk: u64,
        page_blocks: Blocks,
        kept: KeptForMetadata,
    ) -> Self {
        assert_eq!(entries.len(), report.len(), "the ZIT has an entry for each zone");
        let capacities = || report.iter().map(|info| info.capacity);
        let largest = capacities().max().unwrap_or(0);
        let are_alike = capacities().all(|capacity| capacity == largest);
        let run = report.iter().map(|&info| Run {
            info,
            usage: Use::Closed,
            links: Links::NOWHERE,
            changed: Lsn(0),
        });
        let state = State {
            zone_blocks_min: smallest_of_use(page_blocks),
            entries,
            run: run.collect(),
            largest,
            are_alike,
            engaged: EngagedZones::default(),
            free: FreeZones::new(),
            closed: BTreeSet::new(),
            dead: BTreeSet::new(),
            resets: (0, 0),
            turnover: 0,
            metadata: BTreeSet::new(),
            looked_at: HashMap::new(),
            frozen: None,
            changed_chunks: BTreeSet::new(),
            late: None,
            counters: [0; crate::COUNTERS],
            borrowed: None,
            lent: None,
            sums: None,
        };
        ZoneTable {
            state: Mutex::new(state),
            reset_ended: Condvar::new(),
            per_chunk,
            page_blocks,
            kept,
            open_room: AtomicU32::new(0),
            held: AtomicU64::new(0),
            left_to_metadata: AtomicU32::new(0),
        }
    }

    /// The same with all zones but so many conventional.
    pub(crate) fn with_sequential(self, sequential: u32) -> Self {
        self.state.lock().free.set_sequential(sequential);
        self
    }

    pub(crate) fn count(&self) -> u32 {
        self.state.lock().entries.len() as u32
    }

    pub(crate) fn page_blocks(&self) -> Blocks {
        self.page_blocks
    }

    /// Blocks of the free zones that only metadata may take, but for the zone to clean into.
    pub(crate) fn kept_blocks(&self) -> u64 {
        self.kept.blocks
    }

    /// Blocks that metadata can write before one more free zone is needed for it.
    pub(crate) fn room_until_more_is_kept(&self) -> u64 {
        self.kept.until_more(u64::from(self.open_room()))
    }

    /// Blocks that the open metadata zone still takes.
    pub(crate) fn open_room(&self) -> Blocks {
        self.open_room.load(Ordering::Relaxed)
    }

    /// The most that this ever is.
    pub(crate) fn kept_for_metadata_at_most(&self) -> u32 {
        self.kept.zones(0)
    }

    /// So much of what is kept for metadata is in the zone that is open.
    pub(crate) fn set_open_room(&self, blocks: Blocks) {
        self.open_room.store(blocks, Ordering::Relaxed);
    }

    pub(crate) fn entry(&self, zone: ZoneId) -> ZoneEntry {
        self.state.lock().entries[zone.0 as usize]
    }

    pub(crate) fn usage(&self, zone: ZoneId) -> Use {
        self.state.lock().run[zone.0 as usize].usage
    }

    pub(crate) fn info(&self, zone: ZoneId) -> ZoneInfo {
        self.state.lock().run[zone.0 as usize].info
    }

    /// The last record that changed what lives in it.
    pub(crate) fn changed(&self, zone: ZoneId) -> Lsn {
        self.state.lock().run[zone.0 as usize].changed
    }

    /// Pages in it that overlays and directories name.
    pub(crate) fn pages(&self, zone: ZoneId) -> u32 {
        let Engaged { pages, deltas, bases, .. } = self.state.lock().engaged.of(zone);
        pages + deltas + bases
    }

    // ---- what zones are used for -------------------------------------------------------------

    /// Whether a zone could be taken.
    pub(crate) fn is_free(&self, zone: ZoneId) -> bool {
        matches!(self.state.lock().run[zone.0 as usize].usage, Use::Free { .. })
    }

    /// Takes one free zone by its number; false when it is not free.
    pub(crate) fn claim_free(&self, zone: ZoneId) -> bool {
        self.state.lock().with_part(zone, |state| {
            let free = matches!(state.run[zone.0 as usize].usage, Use::Free { .. });
            if free {
                state.take_out_of_free(zone);
                state.run[zone.0 as usize].usage = Use::Leased;
            }
            free
        })
    }

    /// The device reports a zone anew.
    pub(crate) fn set_info(&self, zone: ZoneId, info: ZoneInfo) {
        self.state.lock().with_part(zone, |state| {
            let usage = state.run[zone.0 as usize].usage;
            state.set_info(zone, info, usage);
        });
    }

    /// Blocks of pages that free zones take.
    pub(crate) fn free_room(&self) -> u64 {
        self.state.lock().free.room(self.page_blocks)
    }

    /// The capacity may have changed when the zone was reset.
    pub(crate) fn set_capacity(&self, zone: ZoneId, capacity: Blocks) {
        self.state.lock().with_part(zone, |state| state.set_capacity(zone, capacity));
    }

    /// Gives a zone its use after recovery, or when its use ends.
    pub(crate) fn set_usage(&self, zone: ZoneId, usage: Use) {
        self.state.lock().with_part(zone, |state| state.set_usage(zone, usage));
    }

    /// Shows the table as it is at one moment.
    pub(crate) fn at_one_moment<T>(&self, see: impl FnOnce(Moment<'_>) -> T) -> T {
        let mut state = self.state.lock();
        let is_checked = cfg!(debug_assertions) && state.entries.len() <= CHECKED_ZONES_MAX;
        if state.sums.is_none() || is_checked {
            let counted = state.count();
            let before = state.sums.replace(counted);
            assert!(before.is_none() || before == state.sums, "sums are those of a count");
        }
        see(Moment { state: &state })
    }

    /// Zones that could be opened.
    pub(crate) fn free(&self) -> u32 {
        self.state.lock().free.count()
    }

    /// What lives in all zones of data.
    pub(crate) fn live_data(&self) -> u64 {
        self.at_one_moment(|moment| moment.sums().live)
    }

    /// A metadata or log zone begins a life: part of the checkpoint that is being taken, if one is.
    pub(crate) fn opened_for_store(&self, zone: ZoneId, life: Life, role: Role, capacity: Blocks) {
        let mut state = self.state.lock();
        assert!(!state.entries[zone.0 as usize].holds_anything(), "nothing lives in a zone that is opened");
        state.with_part(zone, |state| {
            state.set_capacity(zone, capacity);
            // At the cut something may have lived there; it has died and the zone was reset since.
            state.change_both(zone, self.per_chunk, |entry| {
                *entry = ZoneEntry { life, role, live: 0, deltas: 0, user: [0; 16] };
            });
        });
        state.engaged.change(zone, |engaged| engaged.new_from = 0);
        if role == Role::Metadata {
            let held = self.held.load(Ordering::Relaxed);
            self.held.store(held.saturating_sub(u64::from(capacity - 1)), Ordering::Relaxed);
            let left = self.left_to_metadata.load(Ordering::Relaxed);
            self.left_to_metadata.store(left.saturating_sub(1), Ordering::Relaxed);
        }
        state.set_metadata(zone);
    }

    /// A zone has nothing left that counts and has been reset.
    pub(crate) fn freed(&self, zone: ZoneId, info: ZoneInfo) {
        self.state.lock().with_part(zone, |state| {
            let entry = state.touch(zone, self.per_chunk);
            assert!(!entry.holds_anything(), "zone {} is not dead", zone.0);
            entry.role = Role::Free;
            entry.user = [0; 16];
            state.set_metadata(zone);
            state.looked_at.remove(&zone);
            state.set_info(zone, info, Use::Free { empty: true });
        });
    }

    // ---- what transactions change ------------------------------------------------------------

    /// Applies the part of a transaction that concerns zones, at one moment. Under the log's lock, so that
    /// the order of LSNs is the order of changes.
    pub(crate) fn apply(&self, ops: &[Op], lsn: Lsn, promises: &[Arc<dyn Promise>]) {
        let mut state = self.state.lock();
        ops.iter().for_each(|op| state.apply(op, lsn, self.per_chunk));
        promises.iter().for_each(|promise| promise.kept());
    }

    /// Fills in the lives that changes of zones speak of.
    pub(crate) fn fill_lives(&self, ops: &mut [Op]) {
        let state = self.state.lock();
        for op in ops {
            if let Op::ZoneLive { zone, life, .. } | Op::ZoneUser { zone, life, .. } = op
                && let Some(entry) = state.entries.get(zone.0 as usize)
            {
                *life = entry.life;
            }
        }
    }

    /// Whether all zones that these writes name exist, and live counts and counters stay in bounds at each of
    /// them: asked of records that come from the device.
    pub(crate) fn accepts(&self, ops: &[Op]) -> bool {
        let state = self.state.lock();
        let mut seen: BTreeMap<ZoneId, (Life, i64)> = BTreeMap::new();
        let mut counters = state.counters;
        for op in ops {
            if let Op::Counter { counter, change } = op {
                let counter = &mut counters[usize::from(*counter)];
                let Some(after) = counter.checked_add(*change).filter(|&after| after >= 0) else {
                    return false;
                };
                *counter = after;
            }
            let (Op::ZoneOpened { zone, life, .. }
            | Op::ZoneLive { zone, life, .. }
            | Op::ZoneUser { zone, life, .. }) = op
            else {
                continue;
            };
            let Some(entry) = state.entries.get(zone.0 as usize) else { return false };
            let now = seen.entry(*zone).or_insert((entry.life, i64::from(entry.live)));
            match op {
                Op::ZoneOpened { .. } if *life > now.0 && (now.1 != 0 || entry.deltas > 0) => return false,
                Op::ZoneOpened { .. } => now.0 = now.0.max(*life),
                Op::ZoneLive { change, .. } if *life == now.0 => now.1 += i64::from(*change),
                _ if *life > now.0 => return false,
                _ => {}
            }
            // The capacity may have been another in the life that the record speaks of.
            if !(0..=i64::from(Address::BLOCKS_MAX)).contains(&now.1) {
                return false;
            }
        }
        true
    }

    // ---- what keeps a zone from being reset --------------------------------------------------

    pub(crate) fn add_pending(&self, zone: ZoneId, blocks: Blocks) {
        self.state.lock().engaged.change(zone, |engaged| engaged.pending += blocks);
    }

    pub(crate) fn remove_pending(&self, zone: ZoneId, blocks: Blocks) {
        self.state.lock().engaged.change(zone, |engaged| {
            assert!(engaged.pending >= blocks, "pending blocks are returned once");
            engaged.pending -= blocks;
        });
    }

    /// A reader enters, if the zone is still in that life.
    pub(crate) fn enter(&self, at: Address) -> bool {
        let mut state = self.state.lock();
        let index = at.zone().0 as usize;
        let Some(entry) = state.entries.get(index) else { return false };
        let is_gone = matches!(state.run[index].usage, Use::Free { .. } | Use::Resetting);
        // The record that it is open again may lag behind.
        if !at.is_of(entry.life) || is_gone || entry.role == Role::Free {
            return false;
        }
        state.engaged.change(at.zone(), |engaged| engaged.readers += 1);
        true
    }

    pub(crate) fn leave(&self, zone: ZoneId) {
        self.state.lock().engaged.change(zone, |engaged| {
            assert!(engaged.readers > 0, "a reader leaves once");
            engaged.readers -= 1;
        });
    }

    pub(crate) fn add_page(&self, zone: ZoneId) {
        self.state.lock().engaged.change(zone, |engaged| engaged.pages += 1);
    }

    pub(crate) fn remove_page(&self, zone: ZoneId) {
        self.state.lock().engaged.change(zone, |engaged| {
            assert!(engaged.pages > 0, "zone {}: a page is removed once", zone.0);
            engaged.pages -= 1;
        });
    }

    /// An overlay names this place of a node.
    pub(crate) fn add_place(&self, place: Place) {
        self.change_place(place, |count| *count += 1);
    }

    /// An overlay names this place no more.
    pub(crate) fn remove_place(&self, place: Place) {
        self.change_place(place, |count| {
            *count = count.checked_sub(1).expect("an overlay ceases to name a place once");
        });
    }

    fn change_place(&self, place: Place, change: impl Fn(&mut u32)) {
        let mut state = self.state.lock();
        if place.is_delta() {
            state.engaged.change(place.at.zone(), |engaged| change(&mut engaged.deltas));
            state.engaged.change(place.base.zone(), |of_base| {
                change(&mut of_base.bases);
                if place.base.block() >= of_base.new_from {
                    change(&mut of_base.new_bases);
                }
            });
        } else if !place.is_nowhere() {
            state.engaged.change(place.at.zone(), |engaged| change(&mut engaged.pages));
        }
    }

    /// Entries count all that metadata zones hold, but for what is written to the open one from there on. At the end
    /// of a checkpoint, or when that zone is gone on with after a mount.
    pub(crate) fn new_pages_begin(&self, open: Option<(ZoneId, Blocks)>) {
        let mut state = self.state.lock();
        let State { metadata, engaged, .. } = &mut *state;
        for zone in metadata.iter() {
            engaged.change(*zone, |engaged| {
                assert_eq!(engaged.new_bases, 0, "zone {}: the checkpoint has counted what was new", zone.0);
                engaged.new_from =
                    open.filter(|(open, _)| open == zone).map_or(Blocks::MAX, |(_, from)| from);
            });
        }
    }

    /// Closed data zones without pending blocks, and what lives there, those first of which most is dead.
    pub(crate) fn victims(&self, limit: usize) -> Vec<(ZoneId, Blocks)> {
        let state = self.state.lock();
        let idle = |&&(_, zone): &&(Blocks, ZoneId)| state.engaged.of(zone).pending == 0;
        let live = |&(ranked, zone): &(Blocks, ZoneId)| (zone, ranked - state.lacks(zone));
        state.closed.iter().filter(idle).take(limit).map(live).collect()
    }

    /// Closed metadata zones.
    pub(crate) fn closed_metadata(&self) -> Vec<MetadataZone> {
        let state = self.state.lock();
        let measured = |&zone: &ZoneId| {
            let (entry, run) = (&state.entries[zone.0 as usize], &state.run[zone.0 as usize]);
            let engaged = state.engaged.of(zone);
            let changes = u64::from(entry.deltas) + u64::from(engaged.deltas);
            let packed = changes.div_ceil(IN_PAGE_AT_LEAST);
            let packed = state.pages_seen(zone).map_or(packed, |seen| packed.min(seen));
            let pages = u64::from(engaged.pages + engaged.new_bases) + packed;
            let live = u64::from(entry.live) + pages * u64::from(self.page_blocks);
            let capacity = run.info.capacity;
            let live = live.min(u64::from(capacity)) as Blocks;
            (run.usage == Use::Closed).then_some(MetadataZone { zone, life: entry.life, live, capacity })
        };
        state.metadata.iter().filter_map(measured).collect()
    }

    pub(crate) fn in_role(&self, role: Role) -> Vec<ZoneId> {
        let state = self.state.lock();
        let zones = state.entries.iter().enumerate();
        zones.filter(|(_, entry)| entry.role == role).map(|(index, _)| ZoneId(index as u32)).collect()
    }

    // ---- what a checkpoint saves -------------------------------------------------------------

    /// The cut: from now on entries keep their old version when they change. The counters at the cut.
    pub(crate) fn cut(&self) -> UserCounters {
        let mut state = self.state.lock();
        assert!(state.frozen.is_none(), "one checkpoint at a time");
        state.frozen = Some(HashMap::new());
        state.counters
    }

    /// One of the user's counters.
    pub(crate) fn counter(&self, counter: u8) -> i64 {
        self.state.lock().counters[usize::from(counter)]
    }

    /// The counters as a checkpoint has them.
    pub(crate) fn load_counters(&self, counters: UserCounters) {
        self.state.lock().counters = counters;
    }

    /// The MAT of the checkpoint being taken names this place of a node (`sign` 1), or no more (-1).
    ///
    /// The counts before come from the device: where they cannot be right, the answer is false, and the
    /// checkpoint must fail.
    #[must_use]
    pub(crate) fn merge_place(&self, place: Place, sign: i64) -> bool {
        if place.is_nowhere() {
            return true;
        }
        let mut state = self.state.lock();
        let page = sign * i64::from(self.page_blocks);
        state.merge(place.whole_page().zone(), self.per_chunk, page, 0)
            && (!place.is_delta() || state.merge(place.at.zone(), self.per_chunk, 0, sign))
    }

    /// The chunks that differ from those on the device, as they were at the cut; from now on, what the
    /// checkpoint changes is noted for its record.
    pub(crate) fn encode_changed(&self, entries_of: impl Fn(&[ZoneEntry]) -> Vec<u8>) -> Vec<(u64, Vec<u8>)> {
        let mut state = self.state.lock();
        let frozen = state.frozen.take().expect("a cut was made");
        let changed = std::mem::take(&mut state.changed_chunks);
        // What was changed after the cut differs from what is saved now.
        state.changed_chunks = frozen.keys().map(|zone| u64::from(zone.0) / self.per_chunk).collect();
        state.late = Some(BTreeSet::new());
        let encode = |number: u64| {
            let first = (number * self.per_chunk) as usize;
            let last = (first + self.per_chunk as usize).min(state.entries.len());
            let saved = |index: usize| match frozen.get(&ZoneId(index as u32)) {
                Some(entry) if !rt::is_planted("break-zit-cut") => *entry,
                _ => state.entries[index],
            };
            let entries: Vec<ZoneEntry> = (first..last).map(saved).collect();
            (number, entries_of(&entries))
        };
        changed.into_iter().map(encode).collect()
    }

    /// Has a chunk saved by the next checkpoint though nothing in it changed.
    pub(crate) fn save_chunk(&self, number: u64) {
        self.state.lock().changed_chunks.insert(number);
    }

    /// Zones that changed for the checkpoint after its ZIT chunks were encoded.
    pub(crate) fn take_late(&self) -> Vec<(ZoneId, ZoneEntry)> {
        let mut state = self.state.lock();
        let late = state.late.take().expect("chunks were encoded");
        late.into_iter().map(|zone| (zone, state.entries[zone.0 as usize])).collect()
    }

    /// An entry as a chunk has it.
    pub(crate) fn load(&self, zone: ZoneId, entry: ZoneEntry) {
        self.state.lock().with_part(zone, |state| {
            state.entries[zone.0 as usize] = entry;
            state.set_metadata(zone);
        });
    }

    /// All chunks are new.
    pub(crate) fn save_all(&self) {
        let mut state = self.state.lock();
        let chunks = (state.entries.len() as u64).div_ceil(self.per_chunk);
        state.changed_chunks = (0..chunks).collect();
    }

    /// Nothing lives in it: whatever it was for, it is free now.
    pub(crate) fn forget_role(&self, zone: ZoneId) {
        self.state.lock().with_part(zone, |state| {
            let entry = state.touch(zone, self.per_chunk);
            assert!(!entry.holds_anything(), "zone {} is not dead", zone.0);
            (entry.role, entry.user) = (Role::Free, [0; 16]);
            state.set_metadata(zone);
        });
    }

    /// The life that the header of a zone left behind by a crash has shown is over.
    pub(crate) fn set_life(&self, zone: ZoneId, life: Life) {
        self.state.lock().touch(zone, self.per_chunk).life = life;
    }

    /// An entry as a checkpoint's record has it.
    pub(crate) fn patch(&self, zone: ZoneId, entry: ZoneEntry) {
        self.state.lock().with_part(zone, |state| {
            state.entries[zone.0 as usize] = entry;
            state.set_metadata(zone);
            state.changed_chunks.insert(u64::from(zone.0) / self.per_chunk);
        });
    }
}

#[cfg(test)]
mod tests;

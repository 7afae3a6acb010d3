//! The table of zones under the mutex: the parts together, and the changes that concern several of them.

use zone::{Address, Blocks, Life, Role, ZoneId, ZoneInfo};

use crate::free::{BYTES_PER_ZONE, FreeList, FreeZone};
use crate::holds::Holds;
use crate::metadata::MetadataZones;
use crate::resets::Resets;
use crate::rows::Rows;
use crate::shares::Shares;
use crate::sums::{Part, Sums};
use crate::types::{Change, LOG_ZONES, Lsn, ZoneEntry, ZoneNow, smallest_of_use};
use crate::victims::Victims;

/// In debug builds, sums over no more zones than this are compared with a count each time.
const CHECKED_ZONES_MAX: u32 = 256;

/// What a zone is doing in this mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// It may be taken.
    Free {
        /// The device reports it empty, so that no reset is needed.
        empty: bool,
    },
    /// It is being opened or written.
    Open,
    /// It holds something and takes no more.
    Closed,
    /// It is dead and is being reset: no reader enters.
    Resetting,
    /// It cannot be written any more (read-only, offline, or it failed), or has no room for a page. It is not free again in
    /// this mount.
    Retired,
}

/// What is known of each zone beside its row. What only few zones have is in [`Holds`].
#[derive(Clone, Copy)]
struct Run {
    info: ZoneInfo,
    usage: Usage,
    /// The last record that changed `live`.
    changed_by: Lsn,
}

/// What a zone takes while it is not in use, links in the free list included: a volume may have millions.
const _: () = assert!(size_of::<ZoneEntry>() + size_of::<Run>() + BYTES_PER_ZONE <= 64);

/// The table.
pub(crate) struct State {
    pub(crate) rows: Rows,
    pub(crate) holds: Holds,
    pub(crate) metadata: MetadataZones,
    pub(crate) victims: Victims,
    pub(crate) shares: Shares,
    pub(crate) resets: Resets,
    free: FreeList,
    run: Vec<Run>,
    /// Blocks of the smallest zone that is of use. If a change would free a smaller zone, the zone is retired instead.
    zone_blocks_min: Blocks,
    /// Blocks of the largest zone at the mount.
    largest: Blocks,
    /// Whether no zone is smaller.
    are_alike: bool,
    /// How often a zone was opened for data or taken to be reset after it, or metadata's target was lowered.
    turnover: u64,
    /// Sums over all zones, once they were asked for.
    sums: Option<Sums>,
}

/// The whole table at one moment.
pub struct Moment<'a> {
    state: &'a State,
}

impl Moment<'_> {
    /// The number of zones.
    pub fn count(&self) -> u32 {
        self.state.rows.count()
    }

    /// All zones, in order.
    pub fn zones(&self) -> impl Iterator<Item = ZoneNow> {
        (0..self.count()).map(|zone| self.state.now(ZoneId(zone)))
    }

    /// Sums over all zones.
    pub fn sums(&self) -> &Sums {
        self.state.sums.as_ref().expect("the pool counts before it shows a moment")
    }

    /// One of the user's counters.
    pub fn counter(&self, counter: u8) -> u64 {
        let count = self.state.rows.counters()[usize::from(counter)];
        u64::try_from(count).expect("a counter is never negative")
    }
}

impl State {
    pub(crate) fn new(
        rows: Rows,
        report: &[ZoneInfo],
        sequential: u32,
        page_blocks: Blocks,
        shares: Shares,
    ) -> State {
        assert_eq!(rows.count() as usize, report.len(), "the table has a row for each zone");
        let capacities = || report.iter().map(|info| info.capacity);
        let largest = capacities().max().unwrap_or(0);
        let run = |&info| Run { info, usage: Usage::Closed, changed_by: Lsn(0) };
        State {
            rows,
            holds: Holds::default(),
            metadata: MetadataZones::default(),
            victims: Victims::default(),
            shares,
            resets: Resets::default(),
            free: FreeList::new(report.len(), sequential, page_blocks),
            run: report.iter().map(run).collect(),
            zone_blocks_min: smallest_of_use(page_blocks),
            largest,
            are_alike: capacities().all(|capacity| capacity == largest),
            turnover: 0,
            sums: None,
        }
    }

    // ---- questions ---------------------------------------------------------------------------

    pub(crate) fn usage(&self, zone: ZoneId) -> Usage {
        self.run[zone.0 as usize].usage
    }

    pub(crate) fn info(&self, zone: ZoneId) -> ZoneInfo {
        self.run[zone.0 as usize].info
    }

    /// Whether a zone has room for a header and a page.
    pub(crate) fn is_of_use(&self, zone: ZoneId) -> bool {
        self.info(zone).capacity >= self.zone_blocks_min
    }

    pub(crate) fn changed_by(&self, zone: ZoneId) -> Lsn {
        self.run[zone.0 as usize].changed_by
    }

    pub(crate) fn is_free(&self, zone: ZoneId) -> bool {
        matches!(self.usage(zone), Usage::Free { .. })
    }

    pub(crate) fn free(&self) -> &FreeList {
        &self.free
    }

    pub(crate) fn turnover(&self) -> u64 {
        self.turnover
    }

    /// Free zones that only metadata may take now.
    pub(crate) fn metadata_reserve(&self) -> u32 {
        self.shares.of_metadata(&self.free, self.are_alike)
    }

    /// Free zones that this role has to leave to others.
    pub(crate) fn reserved_from(&self, role: Role) -> u32 {
        self.shares.reserved_from(role, &self.free, self.are_alike)
    }

    /// Announces that metadata will write this number of blocks; false if they are not free.
    pub(crate) fn announce(&mut self, blocks: u64) -> bool {
        self.shares.announce(blocks, &self.free, self.are_alike)
    }

    /// Whether a reader may enter the zone of this address.
    pub(crate) fn may_enter(&self, at: Address) -> bool {
        let Some(row) = self.rows.find(at.zone()) else { return false };
        let is_gone = self.is_free(at.zone()) || self.usage(at.zone()) == Usage::Resetting;
        // The record that the zone is open again may lag behind.
        at.is_of(row.life) && !is_gone && row.role != Role::Free
    }

    /// Whether this record emptied the data zone, and nothing prevents its reset.
    pub(crate) fn may_reset(&self, zone: ZoneId, emptied_by: Lsn) -> bool {
        let ZoneEntry { live, role, .. } = *self.rows.get(zone);
        let is_same = self.changed_by(zone) == emptied_by && self.usage(zone) == Usage::Closed;
        live == 0 && role.holds_data() && is_same && !self.holds.of(zone).prevents_reset()
    }

    /// The live blocks of a victim from its rank among the victims.
    pub(crate) fn live_of_rank(&self, rank: Blocks, zone: ZoneId) -> Blocks {
        let live = rank - self.lacks(zone);
        debug_assert_eq!(live, self.rows.get(zone).live, "victims have their rank");
        live
    }

    /// Blocks by which the zone is smaller than the largest.
    fn lacks(&self, zone: ZoneId) -> Blocks {
        self.largest.saturating_sub(self.info(zone).capacity)
    }

    /// Whether a change belongs to the life that the zone has. If not, it belongs to a life that has ended: the checkpoint
    /// with which a replay began had reset the zone.
    fn is_of(&self, zone: ZoneId, life: Life) -> bool {
        self.rows.get(zone).life == life
    }

    fn is_victim(&self, zone: ZoneId) -> bool {
        self.usage(zone) == Usage::Closed && self.rows.get(zone).role.holds_data()
    }

    /// Whether a zone is in the free list. The log takes its zones by number.
    fn is_listed(&self, zone: ZoneId) -> bool {
        self.is_free(zone) && zone.0 >= LOG_ZONES
    }

    fn free_zone(&self, zone: ZoneId) -> FreeZone {
        let Run { info, usage, .. } = self.run[zone.0 as usize];
        FreeZone { zone, capacity: info.capacity, is_empty: usage == Usage::Free { empty: true } }
    }

    // ---- sums --------------------------------------------------------------------------------

    /// The zone at this moment.
    fn now(&self, zone: ZoneId) -> ZoneNow {
        let (entry, info, usage) = (*self.rows.get(zone), self.info(zone), self.usage(zone));
        let can_be_opened = matches!(usage, Usage::Free { .. } | Usage::Open);
        ZoneNow {
            entry,
            info,
            is_of_use: self.is_of_use(zone),
            is_free: entry.role == Role::Free && zone.0 >= LOG_ZONES && can_be_opened,
            is_retired: usage == Usage::Retired,
        }
    }

    fn part_of(&self, zone: ZoneId) -> Part {
        Part::of(&self.now(zone), zone.0 >= LOG_ZONES)
    }

    /// Makes a change of a zone that may change its part of the sums.
    fn with_part<T>(&mut self, zone: ZoneId, change: impl FnOnce(&mut State) -> T) -> T {
        if self.sums.is_none() {
            return change(self);
        }
        let before = self.part_of(zone);
        let changed = change(self);
        let after = self.part_of(zone);
        if let Some(sums) = self.sums.as_mut().filter(|_| before != after) {
            sums.subtract(&before);
            sums.add(&after);
        }
        changed
    }

    /// The table as it is now, with sums.
    pub(crate) fn moment(&mut self) -> Moment<'_> {
        let is_checked = cfg!(debug_assertions) && self.rows.count() <= CHECKED_ZONES_MAX;
        if self.sums.is_none() || is_checked {
            let mut counted = Sums::default();
            (0..self.rows.count()).for_each(|zone| counted.add(&self.part_of(ZoneId(zone))));
            let before = self.sums.replace(counted);
            assert!(before.is_none() || before == self.sums, "sums are those of a count");
        }
        Moment { state: self }
    }

    // ---- changes of rows ---------------------------------------------------------------------

    /// A transaction changes the table.
    pub(crate) fn apply(&mut self, change: Change, lsn: Lsn) {
        match change {
            Change::Opened { zone, life, role } => {
                self.with_part(zone, |state| state.open(zone, life, role, lsn));
            }
            Change::Live { zone, life, change } if self.is_of(zone, life) => {
                self.with_part(zone, |state| state.change_live(zone, change));
                self.run[zone.0 as usize].changed_by = lsn;
            }
            Change::User { zone, life, bytes } if self.is_of(zone, life) => {
                self.rows.change(zone).user = bytes;
            }
            Change::Counter { counter, change } => self.rows.change_counter(counter, change),
            Change::Live { .. } | Change::User { .. } => {}
        }
    }

    fn open(&mut self, zone: ZoneId, life: Life, role: Role, lsn: Lsn) {
        if self.rows.get(zone).life >= life {
            return;
        }
        let row = self.rows.change(zone);
        assert!(!row.holds_anything(), "zone {} is dead when it is opened", zone.0);
        *row = ZoneEntry { life, role, live: 0, deltas: 0, user: [0; 16] };
        // A replay may begin when the zone held metadata.
        if !rt::is_planted("break-role-taken") {
            self.role_changed(zone);
        }
        // Even if no block is ever inserted: a replay looks for its header until the record is known to be durable.
        self.run[zone.0 as usize].changed_by = lsn;
        self.turnover += u64::from(role.holds_data());
    }

    fn change_live(&mut self, zone: ZoneId, change: i32) {
        let (is_victim, lacks) = (self.is_victim(zone), self.lacks(zone));
        let row = self.rows.change(zone);
        let before = row.live;
        let after = i64::from(before) + i64::from(change);
        assert!(after >= 0, "zone {}: {before} live blocks cannot change by {change}", zone.0);
        assert!(
            after <= i64::from(Address::BLOCKS_MAX),
            "zone {}: more live blocks than a zone holds",
            zone.0
        );
        row.live = after as Blocks;
        if is_victim {
            self.victims.remove(zone, before, lacks);
            self.victims.insert(zone, after as Blocks, lacks);
        }
    }

    /// A metadata or log zone begins a life: a part of the checkpoint that is being written, if there is one.
    pub(crate) fn open_for_store(&mut self, zone: ZoneId, life: Life, role: Role, capacity: Blocks) {
        assert!(!self.rows.get(zone).holds_anything(), "zone {} is dead when it is opened", zone.0);
        assert!(!role.holds_data(), "zones of data are opened by a transaction");
        self.with_part(zone, |state| {
            state.change_capacity(zone, capacity);
            // At the cut it may have had live blocks: these have died and the zone was reset since.
            state.rows.change_both(zone, |row| {
                *row = ZoneEntry { life, role, live: 0, deltas: 0, user: [0; 16] };
            });
        });
        self.holds.change(zone, |hold| hold.new_from = 0);
        if role == Role::Metadata {
            self.shares.metadata_opened(capacity);
        }
        self.role_changed(zone);
    }

    /// Changes the counts of a metadata zone in both versions; false if the result cannot be right.
    pub(crate) fn merge(&mut self, zone: ZoneId, blocks: i64, deltas: i64) -> bool {
        let Some(row) = self.rows.find(zone) else { return false };
        let live = i64::from(row.live) + blocks;
        let Ok(deltas) = u32::try_from(i64::from(row.deltas) + deltas) else { return false };
        let is_metadata = row.role == Role::Metadata;
        let is_possible = is_metadata && (0..=i64::from(self.info(zone).capacity)).contains(&live);
        if !self.rows.counts_agree(zone) || !is_possible {
            return false;
        }
        self.with_part(zone, |state| {
            state.rows.change_both(zone, |row| (row.live, row.deltas) = (live as Blocks, deltas));
        });
        true
    }

    /// A row as the device has it, in a chunk or in the record of a checkpoint.
    pub(crate) fn load(&mut self, zone: ZoneId, row: ZoneEntry, is_patch: bool) {
        self.with_part(zone, |state| {
            match is_patch {
                true => state.rows.patch(zone, row),
                false => state.rows.load(zone, row),
            }
            state.role_changed(zone);
        });
    }

    /// The zone is dead: whatever it was for, it has no role any more.
    pub(crate) fn forget_role(&mut self, zone: ZoneId) {
        self.with_part(zone, |state| {
            let row = state.rows.change(zone);
            assert!(!row.holds_anything(), "zone {} is not dead", zone.0);
            (row.role, row.user) = (Role::Free, [0; 16]);
            state.role_changed(zone);
        });
    }

    fn role_changed(&mut self, zone: ZoneId) {
        self.metadata.set(zone, self.rows.get(zone).role == Role::Metadata);
    }

    // ---- changes of usage --------------------------------------------------------------------

    /// Takes a free zone for this role, if the role may have one; also says whether the zone is empty.
    pub(crate) fn take(&mut self, role: Role) -> Option<(ZoneId, bool)> {
        if self.free.count() <= self.reserved_from(role) {
            return None;
        }
        let mut best = self.best_free(role)?;
        self.free.remove(self.free_zone(best));
        if !self.are_alike && role == Role::Data && self.free.count() < self.reserved_from(role) {
            // Without this zone, the reserve needs one more of the others. Without the smallest it never does.
            self.free.push(self.free_zone(best));
            best = self.free.smallest_of_all()?;
            self.free.remove(self.free_zone(best));
        }
        let is_empty = self.free_zone(best).is_empty;
        self.with_part(best, |state| state.run[best.0 as usize].usage = Usage::Open);
        if role == Role::Gc && self.free.count() < self.metadata_reserve() {
            self.shares.gc_took(best);
        }
        Some((best, is_empty))
    }

    /// The best free zone for this role. Empty zones come first, then the zone that has been free longest; the first zones,
    /// which a log may need, come last. User data takes the smallest zones and leaves the largest to the others: the live
    /// blocks of a victim of GC do not fit into a small zone, and there may be no other.
    ///
    /// Conventional zones come after all others: what they still take when the volume is unmounted is lost. But data takes
    /// them first when no more of the others are free than twice the largest reserve of metadata. So metadata that grows
    /// finds some too: it writes a little with each mount and would lose nearly a zone.
    fn best_free(&self, role: Role) -> Option<ZoneId> {
        let few = 2 * self.shares.of_metadata_max();
        let conventional_first = role.holds_data() && self.free.ordinary() <= few;
        let of_kind = |is_conventional: bool| match role {
            Role::Data => self.free.smallest(is_conventional),
            _ => self.free.largest(is_conventional),
        };
        let best = of_kind(conventional_first).or_else(|| of_kind(!conventional_first));
        best.or_else(|| self.free.log_reserve())
    }

    /// Takes the free zone with this number; false if it is not free.
    pub(crate) fn take_zone(&mut self, zone: ZoneId) -> bool {
        self.with_part(zone, |state| {
            let is_free = state.is_free(zone);
            if is_free {
                state.leave_free_list(zone);
                state.run[zone.0 as usize].usage = Usage::Open;
            }
            is_free
        })
    }

    /// Begins the reset of a closed zone.
    pub(crate) fn begin_reset(&mut self, zone: ZoneId) {
        assert_eq!(self.usage(zone), Usage::Closed, "zone {} is closed before it is reset", zone.0);
        assert!(!self.rows.get(zone).holds_anything(), "zone {} is dead before it is reset", zone.0);
        if self.is_victim(zone) {
            self.victims.remove(zone, 0, self.lacks(zone));
            self.turnover += 1;
        }
        self.with_part(zone, |state| state.run[zone.0 as usize].usage = Usage::Resetting);
        self.resets.begin();
    }

    /// The reset of a zone has succeeded, and the device reports it anew.
    pub(crate) fn freed(&mut self, zone: ZoneId, info: ZoneInfo) {
        // In a zone of the log, a forged table can lead readers to blocks that it never held.
        let is_held = self.usage(zone) == Usage::Resetting && self.holds.of(zone).prevents_reset();
        assert!(!is_held, "zone {} has a reader or pending blocks, and was reset", zone.0);
        self.forget_role(zone);
        self.metadata.forget_delta_pages(zone);
        self.set_info(zone, info, Usage::Free { empty: true });
    }

    /// The device reports a zone anew, and this is its usage now. Free and closed zones are counted by their capacity.
    pub(crate) fn set_info(&mut self, zone: ZoneId, info: ZoneInfo, usage: Usage) {
        self.with_part(zone, |state| {
            state.change_usage(zone, Usage::Resetting);
            state.change_capacity(zone, info.capacity);
            state.run[zone.0 as usize].info = info;
            state.change_usage(zone, usage);
        });
    }

    /// The capacity may have changed when the zone was reset. The zone is not free.
    pub(crate) fn set_capacity(&mut self, zone: ZoneId, capacity: Blocks) {
        self.with_part(zone, |state| state.change_capacity(zone, capacity));
    }

    fn change_capacity(&mut self, zone: ZoneId, capacity: Blocks) {
        debug_assert!(!self.is_listed(zone), "zone {} is counted by its capacity", zone.0);
        self.run[zone.0 as usize].info.capacity = capacity;
        self.are_alike &= capacity == self.largest;
    }

    /// Recovery has found out the usage of a zone. Until then all zones are closed.
    pub(crate) fn recovered(&mut self, zone: ZoneId, usage: Usage) {
        self.leave(zone, Usage::Closed, usage);
    }

    /// A zone that was taken is free again.
    pub(crate) fn give_back(&mut self, zone: ZoneId, is_empty: bool) {
        // Its row is not asserted: the table of a forged volume may count live blocks in a zone of the log.
        assert_eq!(
            self.holds.of(zone).pending,
            0,
            "zone {} has pending blocks, so it cannot be free",
            zone.0
        );
        self.leave(zone, Usage::Open, Usage::Free { empty: is_empty });
    }

    /// A partly written zone is continued.
    pub(crate) fn resume(&mut self, zone: ZoneId) {
        assert_ne!(self.rows.get(zone).role, Role::Free, "zone {} has no role to continue in", zone.0);
        self.leave(zone, Usage::Closed, Usage::Open);
    }

    /// Nothing writes an open zone any more.
    pub(crate) fn close(&mut self, zone: ZoneId) {
        self.leave(zone, Usage::Open, Usage::Closed);
    }

    /// A zone cannot be written any more, whatever it is doing.
    pub(crate) fn retire(&mut self, zone: ZoneId) {
        assert_eq!(self.holds.of(zone).pending, 0, "zone {} has pending blocks and is retired", zone.0);
        self.with_part(zone, |state| state.change_usage(zone, Usage::Retired));
    }

    fn leave(&mut self, zone: ZoneId, before: Usage, after: Usage) {
        assert_eq!(self.usage(zone), before, "zone {} becomes {after:?}", zone.0);
        self.with_part(zone, |state| state.change_usage(zone, after));
    }

    fn change_usage(&mut self, zone: ZoneId, usage: Usage) {
        self.shares.usage_changes(zone);
        let (live, lacks) = (self.rows.get(zone).live, self.lacks(zone));
        self.victims.remove(zone, live, lacks);
        self.leave_free_list(zone);
        let is_retired = matches!(usage, Usage::Free { .. }) && !self.is_of_use(zone);
        self.run[zone.0 as usize].usage = if is_retired { Usage::Retired } else { usage };
        if self.is_listed(zone) {
            self.free.push(self.free_zone(zone));
            self.shares.zone_freed();
        } else if self.is_victim(zone) {
            self.victims.insert(zone, live, lacks);
        }
    }

    /// Before the usage of a zone changes.
    fn leave_free_list(&mut self, zone: ZoneId) {
        if self.is_listed(zone) {
            self.free.remove(self.free_zone(zone));
        }
    }

    /// Raises the target of metadata until it has this number of zones in all, but by `more` at most, and not at all if data
    /// has no zone left to open; returns by how many.
    pub(crate) fn raise_target(&mut self, zones: u32, more: u32) -> u32 {
        let target = self.shares.target();
        let missing = zones.saturating_sub(self.metadata.count());
        let can_be_had = self.free.count() > self.reserved_from(Role::Data);
        let now = missing.min(target + if can_be_had { more } else { 0 });
        self.shares.set_target(now);
        now.saturating_sub(target)
    }

    /// Lowers the target of metadata by a zone; false if it is 0.
    pub(crate) fn lower_target(&mut self) -> bool {
        let target = self.shares.target();
        if target == 0 {
            return false;
        }
        self.shares.set_target(target - 1);
        self.turnover += 1;
        self.resets.count_one_more();
        true
    }
}

//! Garbage collection (GC) of data: moving live blocks out of zones that are mostly dead.
//!
//! Victims are closed data zones without pending blocks: first those without a footer, then those with the fewest live
//! blocks. The entries of their reverse maps are compared with the object map. Live extents are sorted by object and
//! offset, read, verified, appended to the target, and committed in pieces. The target is an open zone that takes
//! nothing else. During the I/O, GC holds only its own lock, which no reader and no fsync needs. So each commit
//! re-checks under the object's map lock, block by block, that the map still names the block that was read
//! (`break-gc-recheck` removes this).
//!
//! Checksums are copied and never recomputed: a block that was damaged before the move is damaged after it. A block
//! that two reads cannot deliver stays where it is, and its zone becomes *unreadable*: it comes after all other
//! victims, until a writer finds no zone at all, or GC has no zone to continue with. Then GC reads the block once more.
//! If it still cannot be read, it becomes a lost extent. So it occupies its zone no longer than the zone is not needed.
//! Blocks of an offline zone are lost at once.
//!
//! GC needs one lease and, beyond the headroom in its target, one free zone: a single victim has fewer live blocks than
//! a zone takes, so they fit there, and its reset returns a free zone. Several victims are taken together only if there
//! is headroom for all of them.
//!
//! While zones are plentiful, only zones without a footer are victims. A victim whose moves have failed waits until
//! zones are short, and then comes after all others.
//!
//! A zone may still count live blocks after all blocks that its reverse map and the object map name have been moved.
//! That is a finding, and the zone is *stuck*: GC leaves it alone (I-EXT-2).

mod reading;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use rt::sync::atomic::Ordering;
use tree::{Group, Tx};
use zone::{Address, Blocks, Cause, Life, Role, ZoneId};

use crate::format::{self, EXTENT, Entry, Extent, Packing};
use crate::map::{self, View};
use crate::place::{OpenAttempt, OpenZone};
use crate::write::{Appended, Appending, BATCH_APPENDS, Run};
use crate::{Extents, Object, Result};
use reading::Contents;
pub(crate) use reading::Readability;

/// Bytes that are moved in one piece of work …
const CHUNK_BYTES: usize = 1 << 20;
/// … or this number of times what the device reads in the time of a seek …
const CHUNK_SEEKS: usize = 4;
/// … or this share of a zone, if that is less.
const CHUNK_SHARE: usize = 16;
/// Victims that are reclaimed together.
const VICTIMS_MAX: usize = 4;
/// The same for `Goal::All`.
const VICTIMS_MAX_FOR_ALL: usize = 32;
/// Extents are moved in the order of objects if that leaves at most this number of eighths of their runs.
const JOINED_RUNS_MAX: usize = 7;
/// This number of zones with the fewest live blocks is compared.
const RANKED_ZONES: usize = 1024;

/// An extent to be moved, as the object map had it.
pub(crate) struct Move {
    pub(crate) object: Object,
    pub(crate) start: u64,
    pub(crate) extent: Extent,
}

/// What GC has done since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Victims that were reclaimed.
    pub zones_reclaimed: u64,
    /// Blocks that were moved.
    pub blocks_moved: u64,
    /// Unreadable blocks that are lost.
    pub blocks_lost: u64,
    /// Zones whose reverse map was missing or did not name all live blocks, so that the object map had to be searched.
    /// More than 0 is a reason for a check.
    pub zones_searched: u64,
}

/// The state of GC.
#[derive(Default)]
pub(crate) struct GcState {
    stats: GcStats,
    /// GC's open zone.
    target: Option<Arc<OpenZone>>,
    /// With the life in which each was chosen: once a victim has no live blocks, it may be reset and written again at
    /// any time.
    victims: Vec<(ZoneId, Life)>,
    /// The reserved headroom does not suffice for them. A thread that needs a zone releases them first, and so does
    /// manual GC when it finds no further zone that user writes could have (`manual_gc.rs`).
    exceeds_reserve: bool,
    /// Live extents of the victims, in the order in which they are moved. If other threads cut extents while these were
    /// looked up, a block may be in two of them, at the same address: victims are not written.
    queue: VecDeque<Move>,
    /// Contents of the next extents of the queue.
    contents: Contents,
    /// Victims whose reverse map did not name all live blocks.
    searched: BTreeSet<ZoneId>,
    /// Zones that count more live blocks than the object map has there.
    stuck: BTreeSet<ZoneId>,
    /// Former victims whose moves have failed: the life, and how many failures there had been.
    postponed: BTreeMap<ZoneId, (Life, u64)>,
    /// Failures of moves.
    failures: u64,
    /// Zones, and their lives, with live blocks that could not be read. They are no victims until zones are needed.
    unreadable: BTreeMap<ZoneId, Life>,
    /// Unreadable victims whose blocks become lost if they cannot be read now.
    given_up: BTreeSet<ZoneId>,
}

impl GcState {
    pub(crate) fn with_target(target: Option<Arc<OpenZone>>) -> Self {
        GcState { target, ..GcState::default() }
    }

    /// Ends the work on the victims after a failure. When they are victims again, their live blocks are looked up
    /// again, but other victims come first.
    fn postpone_victims(&mut self) {
        self.queue.clear();
        self.contents = Contents::default();
        self.failures += 1;
        let victims = self.victims.drain(..).map(|(zone, life)| (zone, (life, self.failures)));
        self.postponed.extend(victims);
    }

    pub(crate) fn exceeds_reserve(&self) -> bool {
        self.exceeds_reserve
    }

    /// Returns the victims to the candidates. Blocks that were moved stay moved.
    fn release_victims(&mut self) {
        self.queue.clear();
        self.contents = Contents::default();
        self.victims.clear();
        self.exceeds_reserve = false;
    }

    /// The number of the failure of this zone in this life, or 0.
    fn postponed(&self, zone: ZoneId, life: Life) -> u64 {
        self.postponed.get(&zone).filter(|(in_life, _)| *in_life == life).map_or(0, |(_, number)| *number)
    }

    /// Blocks moved since the volume was opened.
    #[cfg(test)]
    pub(crate) fn blocks_moved(&self) -> u64 {
        self.stats.blocks_moved
    }

    pub(crate) fn has_victims(&self) -> bool {
        !self.victims.is_empty()
    }

    /// The victims.
    pub(crate) fn victims(&self) -> impl Iterator<Item = ZoneId> {
        self.victims.iter().map(|(zone, _)| *zone)
    }

    /// The victims, and the life in which each was chosen.
    pub(crate) fn victims_with_life(&self) -> impl Iterator<Item = (ZoneId, Life)> {
        self.victims.iter().copied()
    }

    /// Whether all live blocks of the victims have been moved.
    pub(crate) fn is_moved(&self) -> bool {
        self.queue.is_empty() && !self.victims.is_empty()
    }

    /// Takes the target out of GC if the predicate holds for it.
    pub(crate) fn take_target_if(
        &mut self,
        predicate: impl Fn(&Arc<OpenZone>) -> bool,
    ) -> Option<Arc<OpenZone>> {
        self.target.take_if(|open| predicate(open))
    }

    /// The zone that is written.
    pub(crate) fn target(&self) -> Option<&Arc<OpenZone>> {
        self.target.as_ref()
    }

    /// Blocks that the target takes at least.
    pub(crate) fn target_headroom(&self, packing: Packing) -> i64 {
        self.target.as_ref().map_or(0, |open| i64::from(packing.payload(open.lease.free_blocks())))
    }

    /// Whether the zone has live blocks, in this life, that could not be read.
    fn has_unreadable(&self, zone: ZoneId, life: Life) -> bool {
        self.unreadable.get(&zone) == Some(&life)
    }

    /// The unreadable ones among these zones.
    fn unreadable_among(&self, zones: &[(ZoneId, Life)]) -> BTreeSet<ZoneId> {
        zones.iter().filter(|&&(zone, life)| self.has_unreadable(zone, life)).map(|(zone, _)| *zone).collect()
    }

    /// Zones that count more live blocks than the object map has there.
    pub(crate) fn is_stuck(&self, zone: ZoneId) -> bool {
        self.stuck.contains(&zone)
    }

    pub(crate) fn stuck(&self) -> impl Iterator<Item = ZoneId> {
        self.stuck.iter().copied()
    }
}

/// The result of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The victims are not reclaimed yet.
    Moved,
    /// The victims have no live blocks.
    Reclaimed,
    /// There is no worthwhile victim, or no target.
    Nothing,
}

/// The goal of GC, which decides which victims it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Reclaim zones without a footer, and read-only zones. No others.
    Repair,
    /// Move as few blocks as possible in the long run, in step with user writes (`learn/ages.rs`).
    InStep,
    /// Reclaim one zone with as few moves as possible now.
    OneZone,
    /// Reclaim all zones that can be reclaimed, with as many victims at once as there is headroom for, so that GC joins
    /// the pieces of files.
    All,
}

/// A block to be moved.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) object: Object,
    pub(crate) block: u64,
    address: Address,
    crc: u32,
    readability: Readability,
}

/// The contents of one chunk: blocks in the order of the queue, and their bytes.
pub(crate) struct Chunk {
    pub(crate) sources: Vec<Source>,
    /// The address from which each block was read.
    places: BTreeMap<(Object, u64), Address>,
    pub(crate) crcs: Vec<u32>,
    pub(crate) data: Vec<u8>,
}

impl Chunk {
    /// Maximal runs of blocks that follow one another in one object and are equally readable.
    pub(crate) fn runs(&self) -> Vec<(Range<usize>, Readability)> {
        // The zone decides what happens to unreadable blocks.
        let is_one_case = |a: &Source, b: &Source| {
            a.readability == Readability::Intact || a.address.zone() == b.address.zone()
        };
        let follows = |a: &Source, b: &Source| {
            a.object == b.object
                && a.block + 1 == b.block
                && a.readability == b.readability
                && is_one_case(a, b)
        };
        let mut at = 0;
        let chunks = self.sources.chunk_by(follows).map(|run| {
            let range = at..at + run.len();
            at = range.end;
            (range, run[0].readability)
        });
        chunks.collect()
    }

    /// A run of its blocks, to be appended.
    pub(crate) fn run(&self, range: Range<usize>) -> Run<'_> {
        let first = self.sources[range.start];
        let size = self.data.len() / self.sources.len();
        let bytes = range.start * size..range.end * size;
        Run::within(first.object, first.block, (&self.data, bytes), Some(&self.crcs[range]))
    }

    /// The address from which the block was read.
    fn address(&self, object: Object, block: u64) -> Option<Address> {
        self.places.get(&(object, block)).copied()
    }
}

impl Extents {
    /// What GC has done.
    pub fn gc_stats(&self) -> GcStats {
        self.gc.lock().stats
    }

    /// Does one piece of work.
    pub(crate) fn collect(&self, gc: &mut GcState, goal: Goal) -> Result<Progress> {
        self.collect_some(gc, goal, self.piece_blocks())
    }

    /// The same, with at most about this number of blocks.
    pub(crate) fn collect_some(&self, gc: &mut GcState, goal: Goal, blocks: usize) -> Result<Progress> {
        if gc.exceeds_reserve && goal != Goal::All && !gc.queue.is_empty() {
            gc.release_victims();
        }
        let worked = match gc.queue.is_empty() {
            false => self.move_chunk(gc, goal, blocks),
            true => self.go_on_without_moves(gc, goal),
        };
        match worked {
            Ok(Progress::Nothing) if gc.exceeds_reserve => {
                gc.release_victims();
                Ok(Progress::Moved)
            }
            worked => worked.inspect_err(|_| gc.postpone_victims()),
        }
    }

    /// Goes on when the queue is empty.
    fn go_on_without_moves(&self, gc: &mut GcState, goal: Goal) -> Result<Progress> {
        if !gc.victims.is_empty() {
            return self.finish_victims(gc);
        }
        let begun = self.choose_and_queue_victims(gc, goal)?;
        Ok(if begun { Progress::Moved } else { Progress::Nothing })
    }

    /// Works until the present victims, or the next ones, are reclaimed. Returns false if there are none.
    pub(crate) fn reclaim_victims(&self, gc: &mut GcState) -> Result<bool> {
        loop {
            match self.collect(gc, Goal::OneZone)? {
                Progress::Moved => {}
                Progress::Reclaimed => return Ok(true),
                Progress::Nothing => return Ok(false),
            }
        }
    }

    // ---- victims -----------------------------------------------------------------------------

    fn choose_and_queue_victims(&self, gc: &mut GcState, goal: Goal) -> Result<bool> {
        let with_life = |zone: ZoneId| (zone, self.store.pool().entry(zone).life);
        let (chosen, exceeds_reserve) = self.choose_victims(gc, goal);
        gc.victims = chosen.into_iter().map(with_life).collect();
        gc.exceeds_reserve = exceeds_reserve;
        // An unreadable zone is chosen only if its space is needed, and alone.
        gc.given_up = gc.unreadable_among(&gc.victims);
        gc.searched.clear();
        self.learned.gc_begins(gc.victims().map(|zone| (zone, self.store.pool().entry(zone).live)));
        let mut moves = BTreeMap::new();
        for (zone, life) in gc.victims.clone() {
            // The lookups for the victims before it take time. Meanwhile it may have been reset.
            let now = self.store.pool().entry(zone);
            if now.life == life && now.role.holds_data() && now.live > 0 {
                self.find_moves(gc, zone, &mut moves)?;
            }
        }
        gc.queue = self.queue(moves, &gc.victims);
        gc.contents = Contents::default();
        Ok(!gc.victims.is_empty())
    }

    /// Adds all live extents of the zone.
    fn find_moves(
        &self,
        gc: &mut GcState,
        zone: ZoneId,
        moves: &mut BTreeMap<(Object, u64), Extent>,
    ) -> Result<()> {
        match self.view_zone(zone) {
            Some(entries) => self.find_live(zone, &entries, moves),
            None => {
                gc.searched.insert(zone);
                gc.stats.zones_searched += 1;
                self.search(zone, moves)
            }
        }
    }

    /// The next victims, and whether they need more than the reserved headroom.
    fn choose_victims(&self, gc: &GcState, goal: Goal) -> (Vec<ZoneId>, bool) {
        let mut candidates = self.first_victims(gc);
        if goal != Goal::Repair {
            self.add_worthwhile_victims(gc, goal, &mut candidates);
        }
        let reserved = self.reserved_headroom(gc);
        let headroom = if goal == Goal::All { reserved.max(self.headroom_for_all(gc)) } else { reserved };
        let (mut live_blocks, mut exceeds_reserve) = (0, false);
        let mut gain = self.gain_of(gc);
        let mut chosen = Vec::new();
        let most = if goal == Goal::All { VICTIMS_MAX_FOR_ALL } else { VICTIMS_MAX };
        for (zone, live) in candidates.into_iter().take(most) {
            if goal != Goal::All && gain.zones() >= self.zones_to_free() {
                break;
            }
            gain.add(live);
            live_blocks += i64::from(live);
            // A postponed zone is a victim alone, so that its failure does not delay others.
            if !chosen.is_empty() && (live_blocks > headroom || self.is_postponed(gc, zone)) {
                break;
            }
            exceeds_reserve |= !chosen.is_empty() && live_blocks > reserved;
            chosen.push(zone);
        }
        (chosen, exceeds_reserve)
    }

    fn is_postponed(&self, gc: &GcState, zone: ZoneId) -> bool {
        let life = self.store.pool().entry(zone).life;
        gc.postponed(zone, life) > 0 || gc.has_unreadable(zone, life)
    }

    /// Whether the zone has unreadable blocks. It is a victim only if a writer finds no other.
    pub(crate) fn is_unreadable(&self, gc: &GcState, zone: ZoneId) -> bool {
        gc.has_unreadable(zone, self.store.pool().entry(zone).life)
    }

    /// Adds the victims with a gain, the best first. Postponed zones come after them, in the order of their failures,
    /// and then unreadable zones.
    fn add_worthwhile_victims(&self, gc: &GcState, goal: Goal, candidates: &mut Vec<(ZoneId, Blocks)>) {
        let first: BTreeSet<ZoneId> = candidates.iter().map(|&(zone, _)| zone).collect();
        let pool = self.store.pool();
        let left_out = first.len() + gc.stuck.len() + gc.postponed.len() + gc.unreadable.len();
        let mut others = self.ranked_victims(goal, VICTIMS_MAX_FOR_ALL + left_out);
        others.retain(|&(zone, live)| {
            live < self.payload_of(zone)
                && !first.contains(&zone)
                && !gc.stuck.contains(&zone)
                && (goal == Goal::OneZone || !self.is_unreadable(gc, zone))
        });
        others.sort_by_key(|&(zone, _)| {
            let life = pool.entry(zone).life;
            (gc.has_unreadable(zone, life), gc.postponed(zone, life))
        });
        candidates.extend(others);
    }

    /// Closed zones, the best victims first. At least this number, if there are as many.
    pub(crate) fn ranked_victims(&self, goal: Goal, least: usize) -> Vec<(ZoneId, Blocks)> {
        let count = if goal == Goal::InStep { least.max(RANKED_ZONES) } else { least };
        let mut victims = self.store.pool().victims(count);
        if goal == Goal::InStep {
            self.learned.rank(&mut victims, self.payload_min);
        }
        victims
    }

    /// Zones without a footer, and read-only zones, those with the fewest live blocks first, if there is a target for
    /// them. They need no gain, and zones need not be short. Postponed ones are ordinary candidates.
    fn first_victims(&self, gc: &GcState) -> Vec<(ZoneId, Blocks)> {
        let pool = self.store.pool();
        if pool.free() <= pool.reserved_from(Role::Gc) {
            return Vec::new();
        }
        let zones: BTreeSet<ZoneId> =
            self.reverse.without_footer().into_iter().chain(self.read_only_zones.iter().copied()).collect();
        let mut first: Vec<(ZoneId, Blocks)> = zones
            .into_iter()
            .map(|zone| (zone, pool.entry(zone)))
            .filter(|(zone, entry)| entry.live > 0 && entry.role.holds_data() && !gc.stuck.contains(zone))
            .filter(|(zone, _)| !pool.is_open(*zone) && !self.is_postponed(gc, *zone))
            .map(|(zone, entry)| (zone, entry.live))
            .collect();
        first.sort_by_key(|&(_, live)| live);
        first
    }

    /// Blocks for which GC has headroom for sure: in the target, and in the zone that is reserved for GC. User writes
    /// may take the other free zones first.
    fn reserved_headroom(&self, gc: &GcState) -> i64 {
        let pool = self.store.pool();
        let has_reserve = pool.free() > pool.reserved_from(Role::Gc);
        gc.target_headroom(self.packing) + i64::from(has_reserve) * i64::from(self.payload_min)
    }

    /// Adds the live extents of the zone that an entry names. They are looked up in the order of the map, whose leaves
    /// are read for many entries at once and once each. The lookups for one object must see one state of its map, so
    /// each holds the object's lock.
    fn find_live(
        &self,
        zone: ZoneId,
        entries: &[Entry],
        moves: &mut BTreeMap<(Object, u64), Extent>,
    ) -> Result<()> {
        let life = self.store.pool().entry(zone).life;
        let mut entries: Vec<&Entry> = entries.iter().collect();
        entries.sort_unstable_by_key(|entry| self.map_order(entry.object, entry.offset));
        let mut prefetched = 0;
        for (index, entry) in entries.iter().enumerate() {
            if index == prefetched {
                let next = entries[index..].iter().map(|entry| (entry.object, entry.offset));
                prefetched += self.prefetch_map(next);
            }
            let range = (entry.offset, entry.offset + u64::from(entry.blocks()));
            let _shared = self.map_of(entry.object).read();
            for (start, extent) in map::extents(&self.store, entry.object, range, usize::MAX)? {
                let is_live =
                    extent.is_stored() && extent.address.zone() == zone && extent.address.is_of(life);
                if is_live {
                    moves.insert((entry.object, start), extent);
                }
            }
        }
        Ok(())
    }

    /// Adds all live extents of the zone, by a walk over the whole object map.
    fn search(&self, zone: ZoneId, moves: &mut BTreeMap<(Object, u64), Extent>) -> Result<()> {
        tracing::warn!("zone {} has no usable reverse map: searching the object map", zone.0);
        self.each_extent(&mut |object, start, extent| {
            if extent.is_stored() && extent.address.zone() == zone {
                moves.insert((object, start), extent);
            }
        })
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
            let mut from = Vec::new();
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

    /// Ends the work on victims whose queue is empty. They should have no live blocks.
    fn finish_victims(&self, gc: &mut GcState) -> Result<Progress> {
        let pool = self.store.pool();
        let mut moves = BTreeMap::new();
        let (victims, mut left) = (gc.victims.clone(), Vec::new());
        for (zone, life) in victims {
            let now = pool.entry(zone);
            let live = now.live;
            gc.stats.zones_reclaimed += 1;
            if live == 0 || now.life != life || !now.role.holds_data() {
                gc.postponed.remove(&zone);
                gc.unreadable.remove(&zone);
                continue;
            }
            if gc.has_unreadable(zone, life) && !gc.given_up.contains(&zone) {
                gc.stats.zones_reclaimed -= 1;
                // Its unreadable blocks stay until there is no zone to move other victims to.
                if pool.free_soon() <= pool.reserved_from(Role::Gc) {
                    self.find_moves(gc, zone, &mut moves)?;
                    left.push((zone, life));
                }
                continue;
            }
            if gc.searched.insert(zone) {
                gc.stats.zones_reclaimed -= 1;
                gc.stats.zones_searched += 1;
                self.search(zone, &mut moves)?;
                left.push((zone, life));
            } else {
                tracing::error!(
                    "zone {} counts {live} live blocks that no extent names; run `polder check`",
                    zone.0
                );
                gc.stuck.insert(zone);
            }
        }
        let given_up = gc.unreadable_among(&left);
        gc.given_up.extend(given_up);
        gc.queue = self.queue(moves, &left);
        gc.contents = Contents::default();
        gc.victims = left;
        self.may_need_resets.store(true, Ordering::Relaxed);
        self.reverse.prune(&self.store);
        Ok(if gc.victims.is_empty() { Progress::Reclaimed } else { Progress::Moved })
    }

    /// Orders the moves: by object if that joins pieces of files. Otherwise they are ordered by victim and address, so that
    /// few commands read them and the first victim is reclaimed first. Moves that are read together are then ordered by
    /// object.
    fn queue(&self, moves: BTreeMap<(Object, u64), Extent>, victims: &[(ZoneId, Life)]) -> VecDeque<Move> {
        let rank = |moved: &Move| {
            let (zone, block) = address_of_move(moved);
            (victims.iter().position(|(victim, _)| *victim == zone), block)
        };
        let mut moves: Vec<Move> =
            moves.into_iter().map(|((object, start), extent)| Move { object, start, extent }).collect();
        let mut by_address: Vec<&Move> = moves.iter().collect();
        by_address.sort_by_key(|moved| rank(moved));
        if runs_in(moves.iter()) * 8 <= runs_in(by_address.into_iter()) * JOINED_RUNS_MAX {
            return moves.into();
        }
        moves.sort_by_key(rank);
        let mut rest = &mut moves[..];
        while !rest.is_empty() {
            let (next, after) = rest.split_at_mut(self.read_together(rest.iter()));
            next.sort_by_key(|moved| (moved.object, moved.start));
            rest = after;
        }
        moves.into()
    }

    /// Blocks of one piece of work.
    pub(crate) fn piece_blocks(&self) -> usize {
        let bytes = CHUNK_BYTES.max(CHUNK_SEEKS * self.seek_bytes() as usize);
        (bytes / self.block_size() as usize).min(self.payload_min as usize / CHUNK_SHARE).max(1)
    }

    // ---- moves ------------------------------------------------------------------------------

    /// The moved blocks count for the streams of the zones from which they were moved.
    fn count_moved(&self, chunk: &Chunk, piece: &Appended) {
        for block in piece.start..piece.end() {
            let from = chunk.places.get(&(piece.object, block)).expect("a moved block was read");
            self.learned.moved_out_of(from.zone(), 1);
        }
    }

    /// Moves the next chunk. The chunk after it is read meanwhile. For `Goal::All`, one piece is appended after the
    /// other, so that pieces of files lie in order.
    fn move_chunk(&self, gc: &mut GcState, goal: Goal, blocks: usize) -> Result<Progress> {
        if !self.has_target(gc)? {
            return Ok(Progress::Nothing);
        }
        let (chunk, _references) = self.read_chunk(gc, blocks)?;
        let mut runs = self.runs_to_move(gc, &chunk)?;
        let mut next = self.plan_next(gc)?;
        let at_once = if goal == Goal::All { 1 } else { BATCH_APPENDS };
        while !runs.is_empty() {
            if !self.has_target(gc)? {
                self.requeue(gc, &chunk, &runs);
                // The next piece of work tries again to open a target.
                return Ok(if goal == Goal::OneZone { Progress::Moved } else { Progress::Nothing });
            }
            let target = gc.target.as_ref().expect("it was just opened");
            let reads = next.iter_mut().flat_map(|(contents, _)| contents.reads()).collect();
            let mut moving = Appending { open: target, runs: &mut runs, cause: Cause::Gc, at_once };
            let pieces = self.append_some(&mut moving, reads)?;
            // If nothing was appended, the reads may not have been done.
            if !pieces.is_empty()
                && let Some((contents, _)) = next.take()
            {
                gc.contents = contents;
            }
            let moved = pieces.iter().map(|piece| u64::from(piece.extent.blocks)).sum::<u64>();
            gc.stats.blocks_moved += moved;
            self.throttle.moved(moved);
            for piece in pieces {
                self.count_moved(&chunk, &piece);
                self.commit_move(&chunk, piece, Tx::reclaiming())?;
            }
        }
        Ok(Progress::Moved)
    }

    /// The readable runs of a chunk. Blocks of an offline zone, and unreadable blocks of a zone that is given up,
    /// become lost. Other unreadable blocks stay.
    fn runs_to_move<'c>(&self, gc: &mut GcState, chunk: &'c Chunk) -> Result<VecDeque<Run<'c>>> {
        let mut runs = VecDeque::new();
        for (range, readability) in chunk.runs() {
            let first = chunk.sources[range.start];
            match readability {
                Readability::Intact => runs.push_back(chunk.run(range)),
                Readability::Unreadable if !gc.given_up.contains(&first.address.zone()) => {
                    self.leave_unreadable(gc, first, range.len());
                }
                Readability::Unreadable | Readability::Offline => {
                    gc.stats.blocks_lost += range.len() as u64;
                    self.lose(chunk, first, range.len() as u64)?;
                }
            }
        }
        Ok(runs)
    }

    /// Leaves unreadable blocks where they are. Their zone is no victim until it is needed.
    fn leave_unreadable(&self, gc: &mut GcState, first: Source, blocks: usize) {
        let (object, zone) = (first.object.0, first.address.zone());
        tracing::warn!(
            "object {object} block {}: {blocks} blocks at {} cannot be read; GC reclaims zone {} last",
            first.block,
            first.address,
            zone.0
        );
        gc.unreadable.insert(zone, self.store.pool().entry(zone).life);
    }

    /// Returns blocks that could not be written to the queue.
    fn requeue(&self, gc: &mut GcState, chunk: &Chunk, runs: &VecDeque<Run<'_>>) {
        for run in runs.iter().rev() {
            for index in (0..u64::from(run.blocks(self.block_size() as usize))).rev() {
                let (object, start) = (run.object, run.start + index);
                let address = chunk.address(object, start).expect("the run is of this chunk");
                let crc = run.crcs.expect("moves have checksums")[index as usize];
                gc.queue.push_front(Move { object, start, extent: Extent::new(address, vec![crc]) });
            }
        }
    }

    /// Opens a target if there is none. Returns false if none can be opened. The lease of a full target is returned
    /// first: GC has one lease, and the log must always find another.
    fn has_target(&self, gc: &mut GcState) -> Result<bool> {
        let is_open = |open: &Arc<OpenZone>| !open.lease.has_failed() && !open.map.lock().is_full();
        if gc.target.as_ref().is_some_and(is_open) {
            return Ok(true);
        }
        gc.target = None;
        if gc.exceeds_reserve && !self.has_zone_for_all() {
            return Ok(false);
        }
        loop {
            let over = self.store.resets_over();
            if let OpenAttempt::Zone(open) = self.open_zone(Role::Gc)? {
                gc.target = Some(open);
                return Ok(true);
            }
            if !self.store.reclaim_one(over)? {
                return Ok(false);
            }
        }
    }

    /// Points the object's extents to the moved blocks, where they are unchanged.
    pub(crate) fn commit_move(&self, chunk: &Chunk, piece: Appended, mut tx: Tx) -> Result<()> {
        let _guard = self.map_of(piece.object).write();
        let range = (piece.start, piece.end());
        let mut view = View::load(&self.store, piece.object, range, usize::MAX)?;
        for Range { start, end } in unchanged(&view, chunk, piece.object, range) {
            let part = piece.extent.slice((start - piece.start) as Blocks, (end - piece.start) as Blocks);
            view.cut(start, end);
            view.put(start, part);
        }
        view.apply(&self.store, &mut tx);
        self.commit_if_any(tx)
    }

    /// Makes unreadable blocks lost, where they are still the object's.
    fn lose(&self, chunk: &Chunk, first: Source, blocks: u64) -> Result<()> {
        let (object, address) = (first.object, first.address);
        tracing::error!(
            "object {} block {}: {blocks} blocks at {address} are lost; `polder check` lists all lost blocks",
            object.0,
            first.block
        );
        let _guard = self.map_of(object).write();
        let range = (first.block, first.block + blocks);
        let mut view = View::load(&self.store, object, range, usize::MAX)?;
        for Range { start, end } in unchanged(&view, chunk, object, range) {
            view.cut(start, end);
            let step = u64::from(format::EXTENT_BLOCKS_MAX);
            for at in (start..end).step_by(step as usize) {
                view.put(at, Extent::lost((end - at).min(step) as Blocks));
            }
        }
        let mut tx = Tx::reclaiming();
        view.apply(&self.store, &mut tx);
        self.commit_if_any(tx)
    }
}

fn address_of_move(moved: &Move) -> (ZoneId, Blocks) {
    (moved.extent.address.zone(), moved.extent.address.block())
}

/// The number of runs if these extents are moved in this order.
fn runs_in<'m>(moves: impl Iterator<Item = &'m Move>) -> usize {
    let mut end = None;
    let begins = moves.filter(|moved| {
        let follows = end == Some((moved.object, moved.start));
        end = Some((moved.object, moved.start + u64::from(moved.extent.blocks)));
        !follows
    });
    begins.count()
}

fn sources(moved: &Move) -> impl Iterator<Item = Source> {
    let Move { object, start, extent } = moved;
    let blocks = extent.crcs.iter().enumerate();
    blocks.map(move |(index, &crc)| Source {
        object: *object,
        block: start + index as u64,
        address: extent.address_of(index as Blocks),
        crc,
        readability: Readability::Intact,
    })
}

/// The ranges within the given one whose blocks are still at the address from which they were read.
fn unchanged(view: &View, chunk: &Chunk, object: Object, (from, to): (u64, u64)) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    if rt::is_planted("break-gc-recheck") {
        ranges.push(from..to);
        return ranges;
    }
    for (start, extent) in view.extents() {
        let blocks = from.max(start)..to.min(start + u64::from(extent.blocks));
        for block in blocks {
            let now = extent.address_of((block - start) as Blocks);
            if now.is_none() || chunk.address(object, block) != Some(now) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => ranges.push(block..block + 1),
            }
        }
    }
    ranges
}

#[cfg(test)]
pub(crate) mod tests;

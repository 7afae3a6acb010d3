//! Garbage collection: moving what lives out of zones that are mostly dead.
//!
//! Victims are closed data zones without pending blocks, those without a footer first, then those with
//! the fewest live blocks. What their reverse maps name is compared with the object map; what lives is
//! sorted by object and offset, read, verified, appended to a zone that takes nothing else, and
//! committed in pieces. Over the I/O only the collector's own lock is held, which no reader and no fsync needs; so
//! each commit re-checks under the object's map lock, block by block, that the map still names the block that was
//! read (`break-gc-recheck` removes this).
//!
//! Checksums are carried along and never computed anew: what was damaged before it was moved is damaged
//! after it. A block that cannot be read twice stays where it is, and its zone waits: behind all other victims, until
//! somebody finds no zone at all, or garbage collection has none to go on with. Then it is tried once more, and what
//! still cannot be read becomes a lost extent, so that it pins its zone no longer than nobody needs it. What was in a
//! zone that is offline is lost at once.
//!
//! It needs one lease and, beyond the room in its zone, one free zone: a single victim with less live
//! than a zone takes fits there, and after its reset a free zone is back. Several victims are taken
//! at once only when there is room for all of them.
//!
//! While zones are plentiful only those without a footer are victims. One whose evacuation has failed
//! waits until zones are short, and then behind all others.
//!
//! A zone that still counts live blocks when all that its reverse map and the object map know of it is
//! gone is a finding, and is left alone (I-EXT-2).

mod reading;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use rt::sync::atomic::Ordering;
use tree::{Group, Tx};
use zone::{Address, Blocks, Cause, Life, Role, ZoneId};

use crate::format::{self, EXTENT, Entry, Extent, Packing};
use crate::map::{self, View};
use crate::place::{OpenZone, Opened};
use crate::write::{Appended, Appending, BATCH_APPENDS, Run};
use crate::{Extents, Object, Result};
use reading::Contents;
pub(crate) use reading::Found;

/// Bytes that are moved in one piece of work …
const CHUNK_BYTES: usize = 1 << 20;
/// … or so many times what could be read instead of beginning elsewhere …
const CHUNK_SEEKS: usize = 4;
/// … or a share of a zone, if that is less.
const CHUNK_SHARE: usize = 16;
/// Victims evacuated together.
const VICTIMS_MAX: usize = 4;
/// The same, when somebody asks for all that can be won.
const VICTIMS_OF_ALL: usize = 32;
/// What belongs together is put together where that leaves at most so many eighths of its runs.
const PUT_TOGETHER: usize = 7;
/// Of the zones with the fewest live blocks, how many are compared.
const RANKED: usize = 1024;

/// An extent that is to be moved, as it was found.
pub(crate) struct Move {
    pub(crate) object: Object,
    pub(crate) start: u64,
    pub(crate) extent: Extent,
}

/// What garbage collection has done since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcStats {
    /// Zones that were emptied.
    pub zones_evacuated: u64,
    /// Blocks that were moved.
    pub blocks_moved: u64,
    /// Blocks that could not be read and are lost.
    pub blocks_lost: u64,
    /// Zones whose reverse map was missing or did not name all that lived there, so that the object map
    /// had to be searched. More than none is worth a look.
    pub zones_searched: u64,
}

/// The work in hand.
#[derive(Default)]
pub(crate) struct GcState {
    stats: GcStats,
    /// The zone that is written.
    target: Option<Arc<OpenZone>>,
    /// In the life in which they were chosen: once empty, they may be reset and written again any time.
    victims: Vec<(ZoneId, Life)>,
    /// They are more than there is sure to be room for: whoever needs a zone puts them back first, and so does who finds
    /// no further zone that fresh data could have had (`compact.rs`).
    is_wide: bool,
    /// What is left to move of them, in the order in which it is moved. Where others cut extents while they were looked
    /// up, a block may be in two of them, at the same address: victims are not written.
    queue: VecDeque<Move>,
    /// Contents of what is next in the queue.
    contents: Contents,
    /// Victims whose reverse map did not name all that lives there.
    searched: BTreeSet<ZoneId>,
    /// Zones that count more live blocks than the object map has there.
    stuck: BTreeSet<ZoneId>,
    /// Victims whose evacuation was abandoned: in which life, and after how many others.
    put_off: BTreeMap<ZoneId, (Life, u64)>,
    /// Evacuations that were abandoned.
    abandoned: u64,
    /// Zones, and their lives, in which blocks live that could not be read: they wait until zones are needed.
    waiting: BTreeMap<ZoneId, Life>,
    /// Victims whose blocks are given up where they cannot be read now: they have waited.
    given_up: BTreeSet<ZoneId>,
}

impl GcState {
    pub(crate) fn with_target(target: Option<Arc<OpenZone>>) -> Self {
        GcState { target, ..GcState::default() }
    }

    /// The evacuation ends here: the next one looks again what lives there, but not before others had
    /// their turn.
    fn abandon(&mut self) {
        self.queue.clear();
        self.contents = Contents::default();
        self.abandoned += 1;
        let victims = self.victims.drain(..).map(|(zone, life)| (zone, (life, self.abandoned)));
        self.put_off.extend(victims);
    }

    pub(crate) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// They are victims like any others again; what was moved of them was moved.
    fn put_back_victims(&mut self) {
        self.queue.clear();
        self.contents = Contents::default();
        self.victims.clear();
        self.is_wide = false;
    }

    /// When the zone was put off in this life; 0: it was not.
    fn put_off(&self, zone: ZoneId, life: Life) -> u64 {
        self.put_off.get(&zone).filter(|(in_life, _)| *in_life == life).map_or(0, |(_, number)| *number)
    }

    /// Blocks moved since the volume was opened.
    #[cfg(test)]
    pub(crate) fn blocks_moved(&self) -> u64 {
        self.stats.blocks_moved
    }

    pub(crate) fn has_victims(&self) -> bool {
        !self.victims.is_empty()
    }

    /// The zones that are being emptied.
    pub(crate) fn victims(&self) -> impl Iterator<Item = ZoneId> {
        self.victims.iter().map(|(zone, _)| *zone)
    }

    /// The same, and the life in which each was chosen.
    pub(crate) fn victims_as_chosen(&self) -> impl Iterator<Item = (ZoneId, Life)> {
        self.victims.iter().copied()
    }

    /// Whether there is nothing left to move of the victims.
    pub(crate) fn is_moved(&self) -> bool {
        self.queue.is_empty() && !self.victims.is_empty()
    }

    /// Takes away the zone that is written, if it is such a one.
    pub(crate) fn take_target_if(
        &mut self,
        is_such: impl Fn(&Arc<OpenZone>) -> bool,
    ) -> Option<Arc<OpenZone>> {
        self.target.take_if(|open| is_such(open))
    }

    /// The zone that is written.
    pub(crate) fn target(&self) -> Option<&Arc<OpenZone>> {
        self.target.as_ref()
    }

    /// Blocks that the zone that is written takes at least.
    pub(crate) fn target_room(&self, packing: Packing) -> i64 {
        self.target.as_ref().map_or(0, |open| i64::from(packing.payload(open.lease.free_blocks())))
    }

    /// Whether blocks live in the zone, in this life, that could not be read.
    fn waits(&self, zone: ZoneId, life: Life) -> bool {
        self.waiting.get(&zone) == Some(&life)
    }

    /// Those among these zones.
    fn waiting_of(&self, zones: &[(ZoneId, Life)]) -> BTreeSet<ZoneId> {
        zones.iter().filter(|&&(zone, life)| self.waits(zone, life)).map(|(zone, _)| *zone).collect()
    }

    /// Zones that count more live blocks than the object map has there.
    pub(crate) fn is_stuck(&self, zone: ZoneId) -> bool {
        self.stuck.contains(&zone)
    }

    pub(crate) fn stuck(&self) -> impl Iterator<Item = ZoneId> {
        self.stuck.iter().copied()
    }
}

/// What a piece of work came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do for these victims.
    Moved,
    /// The victims are empty.
    Evacuated,
    /// There is no victim that is worth it, or no zone to write to.
    Nothing,
}

/// What garbage is collected for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// To be rid of zones without a footer; others are left alone.
    Mend,
    /// To move as little as can be in the long run: in step with writing (`learn/ages.rs`).
    Pace,
    /// To win a zone by moving as little as can be now.
    Zone,
    /// To win all that can be won: as many victims at once as there is room for, so that what belongs together
    /// comes together.
    All,
}

/// A block that is being moved.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) object: Object,
    pub(crate) block: u64,
    address: Address,
    crc: u32,
    found: Found,
}

/// What was read of one chunk: blocks in the order of the queue, and their bytes.
pub(crate) struct Chunk {
    pub(crate) sources: Vec<Source>,
    /// Where each block was read.
    places: BTreeMap<(Object, u64), Address>,
    pub(crate) crcs: Vec<u32>,
    pub(crate) data: Vec<u8>,
}

impl Chunk {
    /// Maximal runs of blocks that follow one another in one object, and how they were found.
    pub(crate) fn runs(&self) -> Vec<(Range<usize>, Found)> {
        // What becomes of blocks that cannot be read depends on their zone.
        let is_one_case =
            |a: &Source, b: &Source| a.found == Found::Whole || a.address.zone() == b.address.zone();
        let follows = |a: &Source, b: &Source| {
            a.object == b.object && a.block + 1 == b.block && a.found == b.found && is_one_case(a, b)
        };
        let mut at = 0;
        let chunks = self.sources.chunk_by(follows).map(|run| {
            let range = at..at + run.len();
            at = range.end;
            (range, run[0].found)
        });
        chunks.collect()
    }

    /// Some of its blocks, which follow one another in one object, to be appended.
    pub(crate) fn run(&self, range: Range<usize>) -> Run<'_> {
        let first = self.sources[range.start];
        let size = self.data.len() / self.sources.len();
        let bytes = range.start * size..range.end * size;
        Run::within(first.object, first.block, (&self.data, bytes), Some(&self.crcs[range]))
    }

    /// Where the block lay that is being moved.
    fn address(&self, object: Object, block: u64) -> Option<Address> {
        self.places.get(&(object, block)).copied()
    }
}

impl Extents {
    /// What garbage collection has done.
    pub fn gc_stats(&self) -> GcStats {
        self.gc.lock().stats
    }

    /// One piece of work.
    pub(crate) fn collect(&self, gc: &mut GcState, aim: Aim) -> Result<Progress> {
        self.collect_some(gc, aim, self.piece_blocks())
    }

    /// The same, where so many blocks are moved at most.
    pub(crate) fn collect_some(&self, gc: &mut GcState, aim: Aim, blocks: usize) -> Result<Progress> {
        if gc.is_wide && aim != Aim::All && !gc.queue.is_empty() {
            gc.put_back_victims();
        }
        let worked = match gc.queue.is_empty() {
            false => self.move_chunk(gc, aim, blocks),
            true => self.go_on(gc, aim),
        };
        match worked {
            Ok(Progress::Nothing) if gc.is_wide => {
                gc.put_back_victims();
                Ok(Progress::Moved)
            }
            worked => worked.inspect_err(|_| gc.abandon()),
        }
    }

    /// What comes when there is nothing to move.
    fn go_on(&self, gc: &mut GcState, aim: Aim) -> Result<Progress> {
        if !gc.victims.is_empty() {
            return self.end_evacuation(gc);
        }
        let begun = self.begin_evacuation(gc, aim)?;
        Ok(if begun { Progress::Moved } else { Progress::Nothing })
    }

    /// Works until the victims in hand, or the next ones, are empty; false when there are none.
    pub(crate) fn evacuate(&self, gc: &mut GcState) -> Result<bool> {
        loop {
            match self.collect(gc, Aim::Zone)? {
                Progress::Moved => {}
                Progress::Evacuated => return Ok(true),
                Progress::Nothing => return Ok(false),
            }
        }
    }

    // ---- victims -----------------------------------------------------------------------------

    fn begin_evacuation(&self, gc: &mut GcState, aim: Aim) -> Result<bool> {
        let with_life = |zone: ZoneId| (zone, self.store.pool().entry(zone).life);
        let (chosen, is_wide) = self.choose_victims(gc, aim);
        gc.victims = chosen.into_iter().map(with_life).collect();
        gc.is_wide = is_wide;
        // One that waits is chosen when its space is needed, and alone.
        gc.given_up = gc.waiting_of(&gc.victims);
        gc.searched.clear();
        self.learned.gc_begins(gc.victims().map(|zone| (zone, self.store.pool().entry(zone).live)));
        let mut moves = BTreeMap::new();
        for (zone, life) in gc.victims.clone() {
            // Looking up those before it takes its time: it may have died, and be another zone by now.
            let now = self.store.pool().entry(zone);
            if now.life == life && now.role.holds_data() && now.live > 0 {
                self.find_moves(gc, zone, &mut moves)?;
            }
        }
        gc.queue = self.queue(moves, &gc.victims);
        gc.contents = Contents::default();
        Ok(!gc.victims.is_empty())
    }

    /// Adds all that lives in the zone.
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

    /// And whether they are more than there is sure to be room for.
    fn choose_victims(&self, gc: &GcState, aim: Aim) -> (Vec<ZoneId>, bool) {
        let mut candidates = self.first_victims(gc);
        if aim != Aim::Mend {
            self.add_victims_worth_it(gc, aim, &mut candidates);
        }
        let sure = self.room_to_move_to(gc);
        let room = if aim == Aim::All { sure.max(self.room_for_all(gc)) } else { sure };
        let (mut live_blocks, mut is_wide) = (0, false);
        let mut gain = self.gain_of(gc);
        let mut chosen = Vec::new();
        let most = if aim == Aim::All { VICTIMS_OF_ALL } else { VICTIMS_MAX };
        for (zone, live) in candidates.into_iter().take(most) {
            if aim != Aim::All && gain.zones() >= self.zones_to_free() {
                break;
            }
            gain.add(live);
            live_blocks += i64::from(live);
            // One that was put off is tried alone: what it fails by is not to keep others from being moved.
            if !chosen.is_empty() && (live_blocks > room || self.is_put_off(gc, zone)) {
                break;
            }
            is_wide |= !chosen.is_empty() && live_blocks > sure;
            chosen.push(zone);
        }
        (chosen, is_wide)
    }

    fn is_put_off(&self, gc: &GcState, zone: ZoneId) -> bool {
        let life = self.store.pool().entry(zone).life;
        gc.put_off(zone, life) > 0 || gc.waits(zone, life)
    }

    /// Whether the zone is no victim but for somebody who finds no other: what lives there could not be read.
    pub(crate) fn is_waiting(&self, gc: &GcState, zone: ZoneId) -> bool {
        gc.waits(zone, self.store.pool().entry(zone).life)
    }

    /// Adds the victims from which something can be won, the best first; behind all, those that were put off,
    /// the earliest first, and then those that wait.
    fn add_victims_worth_it(&self, gc: &GcState, aim: Aim, candidates: &mut Vec<(ZoneId, Blocks)>) {
        let first: BTreeSet<ZoneId> = candidates.iter().map(|&(zone, _)| zone).collect();
        let pool = self.store.pool();
        let left_out = first.len() + gc.stuck.len() + gc.put_off.len() + gc.waiting.len();
        let mut others = self.ranked_victims(aim, VICTIMS_OF_ALL + left_out);
        others.retain(|&(zone, live)| {
            live < self.payload_of(zone)
                && !first.contains(&zone)
                && !gc.stuck.contains(&zone)
                && (aim == Aim::Zone || !self.is_waiting(gc, zone))
        });
        others.sort_by_key(|&(zone, _)| {
            let life = pool.entry(zone).life;
            (gc.waits(zone, life), gc.put_off(zone, life))
        });
        candidates.extend(others);
    }

    /// Closed zones, the best victims first: at least so many, if there are.
    pub(crate) fn ranked_victims(&self, aim: Aim, least: usize) -> Vec<(ZoneId, Blocks)> {
        let looked_at = if aim == Aim::Pace { least.max(RANKED) } else { least };
        let mut victims = self.store.pool().victims(looked_at);
        if aim == Aim::Pace {
            self.learned.rank(&mut victims, self.payload_min);
        }
        victims
    }

    /// Zones without a footer, and those that can only be read, fewest live first, as long as there is a zone to move
    /// them to: they need not be worth it, nor zones be short. Those that were put off are like any other.
    fn first_victims(&self, gc: &GcState) -> Vec<(ZoneId, Blocks)> {
        let pool = self.store.pool();
        if pool.free() <= pool.reserved_from(Role::Gc) {
            return Vec::new();
        }
        let these: BTreeSet<ZoneId> =
            self.reverse.without_footer().into_iter().chain(self.worn.iter().copied()).collect();
        let mut first: Vec<(ZoneId, Blocks)> = these
            .into_iter()
            .map(|zone| (zone, pool.entry(zone)))
            .filter(|(zone, entry)| entry.live > 0 && entry.role.holds_data() && !gc.stuck.contains(zone))
            .filter(|(zone, _)| !pool.is_open(*zone) && !self.is_put_off(gc, *zone))
            .map(|(zone, entry)| (zone, entry.live))
            .collect();
        first.sort_by_key(|&(_, live)| live);
        first
    }

    /// Blocks that are sure to find a place: in the zone that is written, and in the one that is kept for
    /// it. Others that are free now may be fresh data's before they are needed.
    fn room_to_move_to(&self, gc: &GcState) -> i64 {
        let pool = self.store.pool();
        let kept = pool.free() > pool.reserved_from(Role::Gc);
        gc.target_room(self.packing) + i64::from(kept) * i64::from(self.payload_min)
    }

    /// Adds the extents that live in the zone and that an entry names. They are looked up in the order of the map, whose
    /// leaves are read for many entries at once and once each. Several look-ups find one object's extents: nobody may
    /// change them in between.
    fn find_live(
        &self,
        zone: ZoneId,
        entries: &[Entry],
        moves: &mut BTreeMap<(Object, u64), Extent>,
    ) -> Result<()> {
        let life = self.store.pool().entry(zone).life;
        let mut entries: Vec<&Entry> = entries.iter().collect();
        entries.sort_unstable_by_key(|entry| self.place_in_map(entry.object, entry.offset));
        let mut ahead = 0;
        for (index, entry) in entries.iter().enumerate() {
            if index == ahead {
                let next = entries[index..].iter().map(|entry| (entry.object, entry.offset));
                ahead += self.read_map_ahead(next);
            }
            let range = (entry.offset, entry.offset + u64::from(entry.blocks()));
            let _shared = self.map_of(entry.object).read();
            for (start, extent) in map::extents(&self.store, entry.object, range, usize::MAX)? {
                let lives = extent.is_stored() && extent.address.zone() == zone && extent.address.is_of(life);
                if lives {
                    moves.insert((entry.object, start), extent);
                }
            }
        }
        Ok(())
    }

    /// Adds all extents that live in the zone, by a walk over the whole object map.
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

    /// The queue is empty: so should the victims be.
    fn end_evacuation(&self, gc: &mut GcState) -> Result<Progress> {
        let pool = self.store.pool();
        let mut moves = BTreeMap::new();
        let (victims, mut left) = (gc.victims.clone(), Vec::new());
        for (zone, life) in victims {
            let now = pool.entry(zone);
            let live = now.live;
            gc.stats.zones_evacuated += 1;
            if live == 0 || now.life != life || !now.role.holds_data() {
                gc.put_off.remove(&zone);
                gc.waiting.remove(&zone);
                continue;
            }
            if gc.waits(zone, life) && !gc.given_up.contains(&zone) {
                gc.stats.zones_evacuated -= 1;
                // What cannot be read of it is not needed yet, as long as there is a zone to empty others into.
                if pool.free_soon() <= pool.reserved_from(Role::Gc) {
                    self.find_moves(gc, zone, &mut moves)?;
                    left.push((zone, life));
                }
                continue;
            }
            if gc.searched.insert(zone) {
                gc.stats.zones_evacuated -= 1;
                gc.stats.zones_searched += 1;
                self.search(zone, &mut moves)?;
                left.push((zone, life));
            } else {
                tracing::error!("zone {} counts {live} live blocks that no extent names: check", zone.0);
                gc.stuck.insert(zone);
            }
        }
        let given_up = gc.waiting_of(&left);
        gc.given_up.extend(given_up);
        gc.queue = self.queue(moves, &left);
        gc.contents = Contents::default();
        gc.victims = left;
        self.emptied.store(true, Ordering::Relaxed);
        self.reverse.prune(&self.store);
        Ok(if gc.victims.is_empty() { Progress::Evacuated } else { Progress::Moved })
    }

    /// In the order of objects, if that puts together what is apart in the zones; otherwise victim by victim and as it
    /// lies there, as much as is read at once in the order of objects: so a few reads bring all of it, and the first
    /// victim is empty first.
    fn queue(&self, moves: BTreeMap<(Object, u64), Extent>, victims: &[(ZoneId, Life)]) -> VecDeque<Move> {
        let rank = |moved: &Move| {
            let (zone, block) = place_of(moved);
            (victims.iter().position(|(victim, _)| *victim == zone), block)
        };
        let mut moves: Vec<Move> =
            moves.into_iter().map(|((object, start), extent)| Move { object, start, extent }).collect();
        let mut as_it_lies: Vec<&Move> = moves.iter().collect();
        as_it_lies.sort_by_key(|moved| rank(moved));
        if runs_in(moves.iter()) * 8 <= runs_in(as_it_lies.into_iter()) * PUT_TOGETHER {
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

    /// Blocks that are moved in one piece of work, if nothing else is said.
    pub(crate) fn piece_blocks(&self) -> usize {
        let bytes = CHUNK_BYTES.max(CHUNK_SEEKS * self.seek_bytes() as usize);
        (bytes / self.block_size() as usize).min(self.payload_min as usize / CHUNK_SHARE).max(1)
    }

    // ---- moving ------------------------------------------------------------------------------

    /// What was moved counts for the streams of the zones that it was moved out of.
    fn count_moved(&self, chunk: &Chunk, piece: &Appended) {
        for block in piece.start..piece.end() {
            let from = chunk.places.get(&(piece.object, block)).expect("what is moved was read");
            self.learned.moved_out_of(from.zone(), 1);
        }
    }

    /// What comes next is read while this is appended. What somebody wants to come together is appended piece after
    /// piece, so that it lies in its order.
    fn move_chunk(&self, gc: &mut GcState, aim: Aim, blocks: usize) -> Result<Progress> {
        if !self.has_target(gc)? {
            return Ok(Progress::Nothing);
        }
        let (chunk, _held) = self.read_chunk(gc, blocks)?;
        let mut runs = self.runs_to_move(gc, &chunk)?;
        let mut next = self.plan_next(gc)?;
        let at_once = if aim == Aim::All { 1 } else { BATCH_APPENDS };
        while !runs.is_empty() {
            if !self.has_target(gc)? {
                self.put_back(gc, &chunk, &runs);
                // The next piece tries again with what there is then.
                return Ok(if aim == Aim::Zone { Progress::Moved } else { Progress::Nothing });
            }
            let target = gc.target.as_ref().expect("it was just opened");
            let reads = next.iter_mut().flat_map(|(contents, _)| contents.reads()).collect();
            let mut moving = Appending { open: target, runs: &mut runs, cause: Cause::Gc, at_once };
            let pieces = self.append_some(&mut moving, reads)?;
            // Where nothing of this was appended it may not have been read.
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

    /// The runs of a chunk that can be read. Of the others those are lost that are gone, or given up; the rest stays.
    fn runs_to_move<'c>(&self, gc: &mut GcState, chunk: &'c Chunk) -> Result<VecDeque<Run<'c>>> {
        let mut runs = VecDeque::new();
        for (range, found) in chunk.runs() {
            let first = chunk.sources[range.start];
            match found {
                Found::Whole => runs.push_back(chunk.run(range)),
                Found::Wrong if !gc.given_up.contains(&first.address.zone()) => {
                    self.leave(gc, first, range.len());
                }
                Found::Wrong | Found::Gone => {
                    gc.stats.blocks_lost += range.len() as u64;
                    self.lose(chunk, first, range.len() as u64)?;
                }
            }
        }
        Ok(runs)
    }

    /// Blocks that cannot be read stay where they are, and their zone waits until it is needed.
    fn leave(&self, gc: &mut GcState, first: Source, blocks: usize) {
        let (object, zone) = (first.object.0, first.address.zone());
        tracing::warn!(
            "object {object} block {}: {blocks} blocks at {} cannot be read; zone {} is emptied when there is no other",
            first.block,
            first.address,
            zone.0
        );
        gc.waiting.insert(zone, self.store.pool().entry(zone).life);
    }

    /// What could not be written is to be moved later.
    fn put_back(&self, gc: &mut GcState, chunk: &Chunk, runs: &VecDeque<Run<'_>>) {
        for run in runs.iter().rev() {
            for index in (0..u64::from(run.blocks(self.block_size() as usize))).rev() {
                let (object, start) = (run.object, run.start + index);
                let address = chunk.address(object, start).expect("the run is of this chunk");
                let crc = run.crcs.expect("checksums are carried along")[index as usize];
                gc.queue.push_front(Move { object, start, extent: Extent::new(address, vec![crc]) });
            }
        }
    }

    /// Sees to it that there is a zone to write to; false when none can be opened. The lease of a full one
    /// is given back first: garbage collection has one, and the log must always find another.
    fn has_target(&self, gc: &mut GcState) -> Result<bool> {
        let is_open = |open: &Arc<OpenZone>| !open.lease.has_failed() && !open.map.lock().is_full();
        if gc.target.as_ref().is_some_and(is_open) {
            return Ok(true);
        }
        gc.target = None;
        if gc.is_wide && !self.has_zone_for_all() {
            return Ok(false);
        }
        loop {
            let over = self.store.resets_over();
            if let Opened::Zone(open) = self.open_zone(Role::Gc)? {
                gc.target = Some(open);
                return Ok(true);
            }
            if !self.store.reclaim_one(over)? {
                return Ok(false);
            }
        }
    }

    /// The object's extents follow the moved blocks, where they are still the same.
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

    /// Blocks that cannot be read are lost, where they are still the object's.
    fn lose(&self, chunk: &Chunk, first: Source, blocks: u64) -> Result<()> {
        let (object, address) = (first.object, first.address);
        tracing::error!(
            "object {} block {}: {blocks} blocks at {address} are lost; `polder check` names all that are",
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

fn place_of(moved: &Move) -> (ZoneId, Blocks) {
    (moved.extent.address.zone(), moved.extent.address.block())
}

/// How many runs of an object's blocks are written when these are moved in this order.
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
        found: Found::Whole,
    })
}

/// The ranges within `range` whose blocks are still where they were read.
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

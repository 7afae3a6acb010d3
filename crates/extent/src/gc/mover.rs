//! Moving extents: finding the live ones of a zone, copying them, committing the moves.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use tree::Tx;
use zone::{Blocks, Cause, Life, Role, ZoneId};

use super::chunk::{Chunk, Move, Source, address_of_move, runs_in, unchanged};
use super::reading::{MoveReader, Readability};
use super::state::{GcState, Goal, Progress};
use crate::append::{Appender, Appending, BATCH_APPENDS, Run};
use crate::appended::Appended;
use crate::charges::Charges;
use crate::format::{self, Entry, Extent};
use crate::map::{self, View};
use crate::maps::ObjectMaps;
use crate::open_zone::OpenZone;
use crate::place::{OpenAttempt, Placer};
use crate::{Object, Result};

/// Extents are moved in the order of objects if that leaves at most this number of eighths of their runs.
const JOINED_RUNS_MAX: usize = 7;

/// Moves extents.
pub(crate) struct DataMover {
    maps: Arc<ObjectMaps>,
    placer: Arc<Placer>,
    appender: Arc<Appender>,
    charges: Arc<Charges>,
    reader: MoveReader,
}

impl DataMover {
    pub(crate) fn new(
        maps: &Arc<ObjectMaps>,
        placer: &Arc<Placer>,
        appender: &Arc<Appender>,
        charges: &Arc<Charges>,
    ) -> DataMover {
        DataMover {
            maps: Arc::clone(maps),
            placer: Arc::clone(placer),
            appender: Arc::clone(appender),
            charges: Arc::clone(charges),
            reader: MoveReader::new(maps, placer.payload_min()),
        }
    }

    pub(super) fn maps(&self) -> &Arc<ObjectMaps> {
        &self.maps
    }

    pub(super) fn placer(&self) -> &Arc<Placer> {
        &self.placer
    }

    pub(crate) fn reader(&self) -> &MoveReader {
        &self.reader
    }

    /// Adds all live extents of the zone.
    pub(super) fn find_moves(
        &self,
        gc: &mut GcState,
        zone: ZoneId,
        moves: &mut BTreeMap<(Object, u64), Extent>,
    ) -> Result<()> {
        match self.placer.reverse().entries_of(self.maps.store(), zone) {
            Some(entries) => self.find_live(zone, &entries, moves),
            None => {
                gc.searched.insert(zone);
                gc.stats.zones_searched += 1;
                self.search(zone, moves)
            }
        }
    }

    /// Adds the live extents of the zone that an entry names. They are looked up in the order of the map, whose leaves
    /// are read for many entries at once and once each. The lookups for one object must see one state of its map, so
    /// each holds the object's lock.
    pub(super) fn find_live(
        &self,
        zone: ZoneId,
        entries: &[Entry],
        moves: &mut BTreeMap<(Object, u64), Extent>,
    ) -> Result<()> {
        let life = self.maps.pool().entry(zone).life;
        let mut entries: Vec<&Entry> = entries.iter().collect();
        entries.sort_unstable_by_key(|entry| self.reader.map_order(entry.object, entry.offset));
        let mut prefetched = 0;
        for (index, entry) in entries.iter().enumerate() {
            if index == prefetched {
                let next = entries[index..].iter().map(|entry| (entry.object, entry.offset));
                prefetched += self.reader.prefetch_map(next);
            }
            let range = (entry.offset, entry.offset + u64::from(entry.blocks()));
            let _shared = self.maps.map_of(entry.object).read();
            for (start, extent) in map::extents(self.maps.store(), entry.object, range, usize::MAX)? {
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
    pub(super) fn search(&self, zone: ZoneId, moves: &mut BTreeMap<(Object, u64), Extent>) -> Result<()> {
        tracing::warn!("zone {} has no usable reverse map: searching the object map", zone.0);
        self.maps.each_extent(&mut |object, start, extent| {
            if extent.is_stored() && extent.address.zone() == zone {
                moves.insert((object, start), extent);
            }
        })
    }

    /// Orders the moves: by object if that joins pieces of files. Otherwise they are ordered by victim and address, so that
    /// few commands read them and the first victim is reclaimed first. Moves that are read together are then ordered by
    /// object.
    pub(super) fn queue(
        &self,
        moves: BTreeMap<(Object, u64), Extent>,
        victims: &[(ZoneId, Life)],
    ) -> VecDeque<Move> {
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
            let (next, after) = rest.split_at_mut(self.reader.read_together(rest.iter()));
            next.sort_by_key(|moved| (moved.object, moved.start));
            rest = after;
        }
        moves.into()
    }

    // ---- moves ------------------------------------------------------------------------------

    /// The moved blocks count for the streams of the zones from which they were moved.
    fn count_moved(&self, chunk: &Chunk, piece: &Appended) {
        for block in piece.start..piece.end() {
            let from = chunk.places.get(&(piece.object, block)).expect("a moved block was read");
            self.maps.learned().moved_out_of(from.zone(), 1);
        }
    }

    /// Moves the next chunk. The chunk after it is read meanwhile. For `Goal::All`, one piece is appended after the
    /// other, so that pieces of files lie in order.
    pub(super) fn move_chunk(&self, gc: &mut GcState, goal: Goal, blocks: usize) -> Result<Progress> {
        if !self.has_target(gc)? {
            return Ok(Progress::Nothing);
        }
        let (chunk, _references) = self.reader.read_chunk(gc, blocks)?;
        let mut runs = self.runs_to_move(gc, &chunk)?;
        let mut next = self.reader.plan_next(gc)?;
        let at_once = if goal == Goal::All { 1 } else { BATCH_APPENDS };
        while !runs.is_empty() {
            if !self.has_target(gc)? {
                self.requeue(gc, &chunk, &runs);
                // The next piece of work tries again to open a target.
                return Ok(if goal == Goal::OneZone { Progress::Moved } else { Progress::Nothing });
            }
            let target = gc.target.as_ref().expect("it was just opened");
            assert_eq!(target.lease.role(), Role::Gc, "moved blocks have a zone of their own");
            let reads = next.iter_mut().flat_map(|(contents, _)| contents.reads()).collect();
            let mut moving = Appending { open: target, runs: &mut runs, cause: Cause::Gc, at_once };
            let pieces = self.appender.append_some(&mut moving, reads)?;
            // If nothing was appended, the reads may not have been done.
            if !pieces.is_empty()
                && let Some((contents, _)) = next.take()
            {
                gc.contents = contents;
            }
            let moved = pieces.iter().map(|piece| u64::from(piece.extent.blocks)).sum::<u64>();
            gc.stats.blocks_moved += moved;
            self.charges.moved(moved);
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
        gc.unreadable.insert(zone, self.maps.pool().entry(zone).life);
    }

    /// Returns blocks that could not be written to the queue.
    pub(super) fn requeue(&self, gc: &mut GcState, chunk: &Chunk, runs: &VecDeque<Run<'_>>) {
        for run in runs.iter().rev() {
            for index in (0..u64::from(run.blocks(self.maps.block_size() as usize))).rev() {
                let (object, start) = (run.object, run.start + index);
                let address = chunk.address(object, start).expect("the run is of this chunk");
                let crc = run.crcs.expect("moves have checksums")[index as usize];
                gc.queue.push_front(Move { object, start, extent: Extent::new(address, vec![crc]) });
            }
        }
    }

    /// Whether there is a zone that user writes could have as well.
    pub(super) fn has_zone_for_all(&self) -> bool {
        let pool = self.maps.pool();
        pool.free() > pool.reserved_from(Role::Data)
    }

    /// Opens a target if there is none. Returns false if none can be opened. The lease of a full target is returned
    /// first: GC has one lease, and the log must always find another.
    pub(super) fn has_target(&self, gc: &mut GcState) -> Result<bool> {
        let is_open = |open: &Arc<OpenZone>| !open.lease.has_failed() && !open.map.lock().is_full();
        if gc.target.as_ref().is_some_and(is_open) {
            return Ok(true);
        }
        gc.target = None;
        if gc.exceeds_reserve && !self.has_zone_for_all() {
            return Ok(false);
        }
        loop {
            let over = self.maps.store().resets_over();
            if let OpenAttempt::Zone(open) = self.placer.open_zone(Role::Gc)? {
                gc.target = Some(open);
                return Ok(true);
            }
            if !self.maps.store().reclaim_one(over)? {
                return Ok(false);
            }
        }
    }

    /// Points the object's extents to the moved blocks, where they are unchanged.
    pub(crate) fn commit_move(&self, chunk: &Chunk, piece: Appended, mut tx: Tx) -> Result<()> {
        let _guard = self.maps.map_of(piece.object).write();
        let range = (piece.start, piece.end());
        let mut view = View::load(self.maps.store(), piece.object, range, usize::MAX)?;
        for Range { start, end } in unchanged(&view, chunk, piece.object, range) {
            let part = piece.extent.slice((start - piece.start) as Blocks, (end - piece.start) as Blocks);
            view.cut(start, end);
            view.put(start, part);
        }
        view.apply(self.maps.store(), &mut tx);
        self.maps.commit_if_any(tx)
    }

    /// Makes unreadable blocks lost, where they are still the object's.
    fn lose(&self, chunk: &Chunk, first: Source, blocks: u64) -> Result<()> {
        let (object, address) = (first.object, first.address);
        tracing::error!(
            "object {} block {}: {blocks} blocks at {address} are lost; `polder check` lists all lost blocks",
            object.0,
            first.block
        );
        let _guard = self.maps.map_of(object).write();
        let range = (first.block, first.block + blocks);
        let mut view = View::load(self.maps.store(), object, range, usize::MAX)?;
        for Range { start, end } in unchanged(&view, chunk, object, range) {
            view.cut(start, end);
            let step = u64::from(format::EXTENT_BLOCKS_MAX);
            for at in (start..end).step_by(step as usize) {
                view.put(at, Extent::lost((end - at).min(step) as Blocks));
            }
        }
        let mut tx = Tx::reclaiming();
        view.apply(self.maps.store(), &mut tx);
        self.maps.commit_if_any(tx)
    }
}

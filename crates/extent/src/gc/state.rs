//! The state of GC, under its lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use zone::{Life, ZoneId};

use super::chunk::Move;
use super::reading::Contents;
use crate::format::Packing;
use crate::open_zone::OpenZone;

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
    pub(super) stats: GcStats,
    /// GC's open zone.
    pub(super) target: Option<Arc<OpenZone>>,
    /// With the life in which each was chosen: once a victim has no live blocks, it may be reset and written again at
    /// any time.
    pub(super) victims: Vec<(ZoneId, Life)>,
    /// The reserved headroom does not suffice for them. A thread that needs a zone releases them first, and so does
    /// manual GC when it finds no further zone that user writes could have (`manual.rs`).
    pub(super) exceeds_reserve: bool,
    /// Live extents of the victims, in the order in which they are moved. If other threads cut extents while these were
    /// looked up, a block may be in two of them, at the same address: victims are not written.
    pub(super) queue: VecDeque<Move>,
    /// Contents of the next extents of the queue.
    pub(super) contents: Contents,
    /// Victims whose reverse map did not name all live blocks.
    pub(super) searched: BTreeSet<ZoneId>,
    /// Zones that count more live blocks than the object map has there.
    pub(super) stuck: BTreeSet<ZoneId>,
    /// Former victims whose moves have failed: the life, and how many failures there had been.
    pub(super) postponed: BTreeMap<ZoneId, (Life, u64)>,
    /// Failures of moves.
    pub(super) failures: u64,
    /// Zones, and their lives, with live blocks that could not be read. They are no victims until zones are needed.
    pub(super) unreadable: BTreeMap<ZoneId, Life>,
    /// Unreadable victims whose blocks become lost if they cannot be read now.
    pub(super) given_up: BTreeSet<ZoneId>,
}

impl GcState {
    pub(crate) fn with_target(target: Option<Arc<OpenZone>>) -> Self {
        GcState { target, ..GcState::default() }
    }

    /// Ends the work on the victims after a failure. When they are victims again, their live blocks are looked up
    /// again, but other victims come first.
    pub(super) fn postpone_victims(&mut self) {
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
    pub(super) fn release_victims(&mut self) {
        self.queue.clear();
        self.contents = Contents::default();
        self.victims.clear();
        self.exceeds_reserve = false;
    }

    /// The number of the failure of this zone in this life, or 0.
    pub(super) fn postponed(&self, zone: ZoneId, life: Life) -> u64 {
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
    pub(super) fn has_unreadable(&self, zone: ZoneId, life: Life) -> bool {
        self.unreadable.get(&zone) == Some(&life)
    }

    /// The unreadable ones among these zones.
    pub(super) fn unreadable_among(&self, zones: &[(ZoneId, Life)]) -> BTreeSet<ZoneId> {
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

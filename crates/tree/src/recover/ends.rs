//! Where each log zone ends, and whether a mark there shows that the log continued elsewhere.

use zone::{ZoneId, ZoneState};

use super::LogContents;
use crate::log::OldZone;
use crate::scan::{Found, Successor};

/// The newest batch of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneEnd {
    pub(super) zone: ZoneId,
    pub(super) state: ZoneState,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) successor: Option<Successor>,
}

impl ZoneEnd {
    pub(super) fn new(found: &Found, state: ZoneState) -> ZoneEnd {
        let Found { epoch, sequence, successor, .. } = *found;
        ZoneEnd { zone: found.at.zone(), state, epoch, sequence, successor }
    }

    pub(super) fn order(&self) -> (u64, u64) {
        (self.epoch, self.sequence)
    }

    /// Whether the zone shows recovery that the log continued elsewhere, even if all newer batches are lost
    /// (`log/switch.rs`).
    pub(super) fn is_marked(&self) -> bool {
        self.successor.is_some_and(|successor| successor.has_begun)
    }
}

impl LogContents {
    /// The place of a zone's newest batch in the order of all batches.
    pub(super) fn order_of(&self, zone: ZoneId) -> Option<(u64, u64)> {
        self.ends.iter().find(|end| end.zone == zone).map(ZoneEnd::order)
    }

    pub(super) fn is_marked(&self, zone: ZoneId) -> bool {
        self.ends.iter().any(|end| end.zone == zone && end.is_marked())
    }

    /// Whether the newest batch in these zones is a successor mark, if there is one at all.
    pub(super) fn are_marked(&self, zones: &[OldZone]) -> bool {
        let ends = self.ends.iter().filter(|end| zones.iter().any(|left| left.zone == end.zone));
        ends.max_by_key(|end| end.order()).is_none_or(ZoneEnd::is_marked)
    }
}

//! What prevents the reset of a zone, and what is counted beside its row while epochs run. Few zones have any of it at a
//! time: those that are written or read, and those of metadata. So it is kept for these zones only.

use rustc_hash::FxHashMap;
use zone::{Blocks, ZoneId};

use crate::types::NodeCopy;

/// Of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Blocks that were submitted and are neither inserted nor given up.
    pub(crate) pending: Blocks,
    /// Readers that are in the zone.
    pub(crate) readers: u32,
    /// Whole pages that overlays and directories name: they count beside `live`.
    pub(crate) pages: u32,
    /// Delta records that overlays name.
    pub(crate) deltas: u32,
    /// Base pages of such delta records.
    pub(crate) bases: u32,
    /// Those of them that `live` does not count: they were written or moved there in a running epoch.
    pub(crate) new_bases: u32,
    /// Blocks from this one on were written in a running epoch.
    pub(crate) new_from: Blocks,
}

impl Hold {
    const NONE: Hold =
        Hold { pending: 0, readers: 0, pages: 0, deltas: 0, bases: 0, new_bases: 0, new_from: Blocks::MAX };

    /// Whether the reset of a data zone has to wait.
    pub(crate) fn prevents_reset(&self) -> bool {
        let is_read = !rt::is_planted("break-zone-reference") && self.readers > 0;
        let is_pending = !rt::is_planted("break-pending") && self.pending > 0;
        is_read || is_pending
    }

    /// Pages, delta records and base pages that overlays and directories name.
    pub(crate) fn named(&self) -> u32 {
        self.pages + self.deltas + self.bases
    }
}

/// Of all zones.
#[derive(Default)]
pub(crate) struct Holds(FxHashMap<ZoneId, Hold>);

impl Holds {
    pub(crate) fn of(&self, zone: ZoneId) -> Hold {
        self.0.get(&zone).copied().unwrap_or(Hold::NONE)
    }

    pub(crate) fn change<T>(&mut self, zone: ZoneId, change: impl FnOnce(&mut Hold) -> T) -> T {
        let hold = self.0.entry(zone).or_insert(Hold::NONE);
        let changed = change(hold);
        if *hold == Hold::NONE {
            self.0.remove(&zone);
        }
        changed
    }

    /// Changes the counts that an overlay's name of a copy adds to.
    pub(crate) fn change_copy(&mut self, copy: NodeCopy, change: impl Fn(&mut u32)) {
        match copy {
            NodeCopy::Page(page) => self.change(page.zone(), |hold| change(&mut hold.pages)),
            NodeCopy::Deltas { at, base } => {
                self.change(at.zone(), |hold| change(&mut hold.deltas));
                self.change(base.zone(), |of_base| {
                    change(&mut of_base.bases);
                    if base.block() >= of_base.new_from {
                        change(&mut of_base.new_bases);
                    }
                });
            }
        }
    }
}

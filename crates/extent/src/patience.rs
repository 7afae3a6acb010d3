//! When whoever has found no zone stops looking for one.
//!
//! He looks again whenever a reset has ended since he looked: what became free may be what he lacks. But zones of metadata
//! are reset for as long as anybody changes anything, and metadata takes each of them again. So he counts the looks between
//! which nobody has come further: he has emptied no victim, data has neither got nor given back a zone, and metadata has no
//! more room than at any of his looks before. Room goes up and down with each checkpoint, its maximum goes up only so often;
//! and who is faster and takes what was won opens a zone. So the looks come to an end where nothing can be won, and nobody
//! is refused because others were faster.

use tree::Store;

/// Looks in vain, one after the other, after which there is no room.
const IN_VAIN_MAX: u32 = 16;
/// After so many, what has become free meanwhile is no reason to look again without having tried to win anything.
const IN_VAIN_WITHOUT_WORK: u32 = IN_VAIN_MAX / 2;

/// What somebody has seen who finds no zone.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// How often data had got or given back a zone.
    turnover: u64,
    /// The most room that metadata had at any look since then, in blocks.
    room_max: u64,
    in_vain: u32,
}

impl Patience {
    /// Whether to look again.
    pub(crate) fn lasts(&mut self, store: &Store) -> bool {
        let (turnover, room) = (store.pool().turnover(), store.metadata_headroom());
        if turnover != self.turnover || room > self.room_max {
            *self = Patience { turnover, room_max: room, in_vain: 0 };
        } else {
            self.in_vain += 1;
        }
        self.in_vain < IN_VAIN_MAX
    }

    /// Since how many resets one that is over is a reason to look again.
    pub(crate) fn since(&self, store: &Store, over: u64) -> u64 {
        if self.in_vain < IN_VAIN_WITHOUT_WORK { over } else { store.resets_over() }
    }
}

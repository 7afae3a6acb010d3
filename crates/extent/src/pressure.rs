//! How near writers are to waiting for garbage collection: what `pace.rs` decides by, for those who look on.

use zone::ZoneId;

use crate::{Extents, Lifetime};

/// What collecting garbage has to do with writing now, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// What fresh data can take before a zone must have been emptied.
    pub room: u64,
    /// The room below which each written byte owes some moving, where the zone that is needed next is not there.
    pub begin: u64,
    /// What must be moved until there is a zone more than there must be; none: nothing can be won.
    pub debt: Option<u64>,
    /// What is owed and not yet moved.
    pub owed: u64,
    /// What may be written, at the present rate, before a writer moves something himself; none: as much as there
    /// is room before collection begins.
    pub credit: Option<u64>,
    /// Bytes to be moved for each that is written.
    pub moved_per_written: f64,
    /// Bytes that come free for each that is moved, of the zones that would be emptied next.
    pub won_per_moved: Option<f64>,
}

impl Pressure {
    /// What may be written before collection begins; 0: it has, or does when a zone is lacking.
    pub fn before_begin(&self) -> u64 {
        self.room.saturating_sub(self.begin)
    }
}

impl Extents {
    /// How near writers are to waiting for garbage collection.
    pub fn pressure(&self) -> Pressure {
        let bytes = |blocks: i64| blocks.max(0) as u64 * u64::from(self.block_size());
        let rate = self.pace.moved_per_written();
        let owed = self.pace.owed_blocks();
        let left = (self.allowance() - owed).max(0) as f64;
        let debt = self.debt_of_one_more(&self.gc.lock());
        let won = f64::from(self.payload_min) * self.zones_to_win() as f64;
        Pressure {
            room: bytes(self.room()),
            begin: bytes(self.room_to_begin()),
            debt: debt.map(bytes),
            owed: bytes(owed),
            credit: (rate > 0.0).then(|| bytes((left / rate) as i64)),
            moved_per_written: rate,
            won_per_moved: debt.filter(|debt| *debt > 0).map(|debt| won / debt as f64),
        }
    }

    /// The zones that take fresh data, and the lifetime class of what they take.
    pub fn open_zones(&self) -> Vec<(ZoneId, Lifetime)> {
        self.placement.classes()
    }
}

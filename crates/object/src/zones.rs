//! The zones of a volume as this process uses them: in memory, on their way to the store, and in the store.

mod reading;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rt::sync::{Condvar, Mutex, MutexGuard};
use zone::{DeviceError, Life, Result, ZoneId, ZoneState};

use crate::format::Shape;
use crate::names::Names;
use crate::options::Mode;
use crate::store::{Creation, Store};
use crate::table::Table;
use crate::tails::Tails;

/// The zones. What this struct writes is parts; a chain of bundles makes it durable.
pub(crate) struct Zones {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) names: Names,
    pub(crate) shape: Shape,
    pub(crate) mode: Mode,
    /// The number of this owner; 0 for a process that only reads.
    pub(crate) owner: u32,
    /// How many parts may be in the process of being created.
    parts_in_flight: usize,
    state: Mutex<State>,
    /// Signalled when the creation of a part has ended.
    part_ended: Condvar,
}

/// What tells one volume and one process that uses it from others.
pub(crate) struct Identity {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) names: Names,
    pub(crate) shape: Shape,
    pub(crate) mode: Mode,
    pub(crate) owner: u32,
}

/// What the chain says about the zones.
pub(crate) struct Recorded {
    pub(crate) table: Table,
    pub(crate) tails: Tails,
    /// Zones that differ from the newest chunk of the table.
    pub(crate) differing: BTreeSet<ZoneId>,
}

/// The state that commands change.
pub(crate) struct State {
    pub(crate) table: Table,
    pub(crate) tails: Tails,
    /// Parts that are complete and not yet known to be in the store.
    pub(crate) in_flight: BTreeMap<PartId, InFlight>,
    /// Zones that differ from what the chain has.
    pub(crate) changed: BTreeSet<ZoneId>,
    /// The same, but it need not be recorded before anything else is.
    pub(crate) noted: BTreeSet<ZoneId>,
    /// Zones whose reset no bundle has yet.
    pub(crate) reset: BTreeSet<ZoneId>,
    /// Zones that differ from the newest chunk of the table.
    pub(crate) differing: BTreeSet<ZoneId>,
    /// Zones that differed from a chunk that is being written.
    pub(crate) in_new_chunk: BTreeSet<ZoneId>,
    /// The reason why nothing is written any more.
    pub(crate) broken: Option<String>,
}

/// A part of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartId {
    pub(crate) zone: ZoneId,
    pub(crate) life: Life,
    pub(crate) part: u32,
}

/// A part on its way to the store.
pub(crate) struct InFlight {
    pub(crate) bytes: Bytes,
    /// `None` while a thread waits for it.
    pub(crate) creation: Option<Box<dyn Creation>>,
}

impl Zones {
    pub(crate) fn new(of: Identity, recorded: Recorded, parts_in_flight: usize) -> Zones {
        let Identity { store, names, shape, mode, owner } = of;
        let Recorded { table, tails, differing } = recorded;
        let state = State {
            table,
            tails,
            in_flight: BTreeMap::new(),
            changed: BTreeSet::new(),
            noted: BTreeSet::new(),
            reset: BTreeSet::new(),
            differing,
            in_new_chunk: BTreeSet::new(),
            broken: None,
        };
        let (state, part_ended) = (Mutex::new(state), Condvar::new());
        Zones { store, names, shape, mode, owner, parts_in_flight, state, part_ended }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether changes are possible: the volume is open for writing, and no write has failed.
    pub(crate) fn can_change(&self) -> bool {
        self.mode == Mode::ReadWrite && self.state.lock().broken.is_none()
    }

    /// Locks the state for a change. Fails if the volume cannot be written.
    fn lock_for_change(&self) -> Result<MutexGuard<'_, State>> {
        if self.mode == Mode::ReadOnly {
            let why = "the volume is open for reading only; open it for writing to change it";
            return Err(DeviceError::Unusable(why.to_owned()));
        }
        let state = self.state.lock();
        state.check()?;
        Ok(state)
    }

    /// Writes nothing from now on, for this reason.
    pub(crate) fn break_down(&self, why: String) -> DeviceError {
        let mut state = self.state.lock();
        if state.broken.is_none() {
            tracing::error!("{}: {why}", self.store.describe());
        }
        DeviceError::Unusable(state.broken.get_or_insert(why).clone())
    }

    pub(crate) fn reset(&self, zone: ZoneId) -> Result<()> {
        let mut state = self.lock_for_change()?;
        if state.table.machine().zone(zone)?.state == ZoneState::Empty {
            return Ok(());
        }
        state.table.reset(zone)?;
        state.tails.remove(zone);
        state.reset.insert(zone);
        state.mark_changed(zone);
        Ok(())
    }
}

impl State {
    pub(crate) fn check(&self) -> Result<()> {
        match &self.broken {
            Some(why) => Err(DeviceError::Unusable(why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn mark_changed(&mut self, zone: ZoneId) {
        self.changed.insert(zone);
        self.differing.insert(zone);
    }
}

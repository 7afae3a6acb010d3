//! Appends, and the creation of parts.

use rt::sync::MutexGuard;
use zone::{Blocks, Result, ZoneId, ZoneState};

use super::{InFlight, PartId, State, Zones};
use crate::store::{Placed, wait_for};
use crate::table::tail_start;

impl Zones {
    pub(crate) fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        let mut state = self.lock_for_change()?;
        let blocks = state.table.machine().blocks(zone, from.len())?;
        state.table.machine().check_append(zone, blocks)?;
        state.table.machine().check_write(zone, blocks, None)?;
        state = self.wait_for_space(state)?;
        let block = state.table.machine_mut().advance(zone, blocks, None)?;
        let (size, part_blocks) = (self.shape.geometry.block_size as usize, self.shape.part_blocks);
        let (mut at, mut rest) = (block, from);
        while !rest.is_empty() {
            let first = tail_start(&self.shape, at);
            let count = (first + part_blocks - at).min((rest.len() / size) as Blocks);
            let (now, later) = rest.split_at(count as usize * size);
            state.tails.at(zone, first).bytes.extend_from_slice(now);
            (at, rest) = (at + count, later);
            if at == first + part_blocks {
                self.begin_part(&mut state, zone);
            }
        }
        if state.table.info(zone).state == ZoneState::Full {
            self.begin_part(&mut state, zone);
        }
        state.mark_changed(zone);
        Ok(block)
    }

    pub(crate) fn finish(&self, zone: ZoneId) -> Result<()> {
        let mut state = self.lock_for_change()?;
        state.table.machine().zone(zone)?;
        state = self.wait_for_space(state)?;
        state.table.machine_mut().finish(zone)?;
        self.begin_part(&mut state, zone);
        state.mark_changed(zone);
        Ok(())
    }

    /// Begins to create the part that the tail of a zone is, if there is one. The creation itself needs no wait.
    fn begin_part(&self, state: &mut State, zone: ZoneId) {
        let Some(tail) = state.tails.remove(zone) else { return };
        let part = tail.first / self.shape.part_blocks;
        let id = PartId { zone, life: state.table.life(zone), part };
        state.table.set_owner(zone, part, self.owner);
        let bytes = bytes::Bytes::from(tail.bytes);
        let creation = self.store.create(&self.names.part(zone, id.life, part, self.owner), bytes.clone());
        state.in_flight.insert(id, InFlight { bytes, creation: Some(creation) });
    }

    /// Waits until few enough parts are in flight.
    fn wait_for_space<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        while state.in_flight.len() >= self.parts_in_flight {
            let first = *state.in_flight.keys().next().expect("there are some");
            state = self.wait_for_part(state, first)?;
        }
        Ok(state)
    }

    /// Waits until these parts are in the store.
    pub(crate) fn wait_for_parts(&self, parts: &[PartId]) -> Result<()> {
        for &part in parts {
            drop(self.wait_for_part(self.state.lock(), part)?);
        }
        Ok(())
    }

    /// Waits until a part is in the store, if it is in flight.
    fn wait_for_part<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: PartId,
    ) -> Result<MutexGuard<'a, State>> {
        loop {
            state.check()?;
            let Some(part) = state.in_flight.get_mut(&id) else { return Ok(state) };
            let Some(creation) = part.creation.take() else {
                self.part_ended.wait(&mut state);
                continue;
            };
            let bytes = part.bytes.clone();
            drop(state);
            let name = self.names.part(id.zone, id.life, id.part, self.owner);
            let why = match wait_for(&*self.store, &name, &bytes, creation) {
                Ok(Placed::Ours) => None,
                Ok(Placed::Other(_)) => Some(format!("another program has created {name}")),
                Err(error) => Some(error.to_string()),
            };
            let failed = why.map(|why| {
                self.break_down(format!("a part of zone {} could not be written: {why}", id.zone.0))
            });
            state = self.state.lock();
            self.part_ended.notify_all();
            if let Some(error) = failed {
                // It can still be read from memory.
                return Err(error);
            }
            state.in_flight.remove(&id);
            return Ok(state);
        }
    }
}

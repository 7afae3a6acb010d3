//! The reverse map: what each data zone says of its own blocks.
//!
//! A zone's map is in one of these states:
//!
//! * *open*: completed appends are entries in memory; whenever a block's worth is there it is appended
//!   to the zone as a summary. What the zone takes is so limited that a summary of all that is left and
//!   the footer still fit behind it.
//! * *closed with footer*: the footer lists the summaries, the ZIT says where the footer is. The map
//!   stays in memory until the record that says so is durable: until then a checkpoint must carry it, unless its cut is
//!   behind that record. Then the ZIT that it saves names the footer, and the flush before it makes the footer durable.
//! * *closed without footer* (the zone failed, or came back full after a crash): the map stays in memory
//!   and in every checkpoint until the zone has been evacuated.
//!
//! The rule that a crash would punish: an entry leaves the memory only after its summary's append has
//! returned. A checkpoint takes its bytes and then flushes, so what is missing in its bytes is in a
//! summary that this flush makes durable.
//!
//! Entries are hints. Which blocks live is decided by the object map alone, so an entry of a write that
//! was never inserted, or one entry twice, does no harm. A missing one would pin its zone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rt::sync::Mutex;
use tree::{Lsn, Store};
use zone::{Blocks, Command, Device, FsId, Lease, Life, ZoneId};

use crate::format::{self, Entry, FOOTER_MAGIC, Packing, SUMMARY_MAGIC, Unfinished, ZoneName, ZoneUser};

/// Blocks of a summary that is appended while the zone is written.
const SUMMARY_BLOCKS_MAX: usize = 16;

/// What is to be appended to the zone for its reverse map.
pub(crate) struct Summary {
    /// Its blocks.
    pub(crate) bytes: Vec<u8>,
    /// How many entries, from the first, it holds.
    entries: usize,
}

/// The reverse map of one zone that has no footer yet, or none that is known durable.
pub(crate) struct ZoneMap {
    name: ZoneName,
    packing: Packing,
    /// Where its summaries begin.
    summaries: Vec<Blocks>,
    /// Completed appends that no summary has.
    entries: Vec<Entry>,
    /// Bytes of these, without those that are being summarised.
    entry_bytes: usize,
    /// Bytes that the entries of appends in flight will have.
    in_flight_bytes: usize,
    /// Batches of appends in flight.
    in_flight: u32,
    /// Appends that are neither inserted nor given up.
    pending: u32,
    /// A summary is being appended; its room is admitted.
    writing: bool,
    /// Takes no more data.
    full: bool,
    /// Somebody is closing it.
    closing: bool,
    closed: Option<Closed>,
}

/// How a zone was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The record that names the footer.
    Footer(Lsn),
    /// There is none: evacuate first.
    Without,
}

impl ZoneMap {
    pub(crate) fn new(name: ZoneName, packing: Packing, unfinished: Unfinished) -> Self {
        let mut seen = BTreeSet::new();
        let mut entries = unfinished.entries;
        entries.retain(|entry| seen.insert(entry.block));
        ZoneMap {
            name,
            packing,
            summaries: unfinished.summaries,
            entry_bytes: entries.iter().map(Entry::bytes).sum(),
            entries,
            in_flight_bytes: 0,
            in_flight: 0,
            pending: 0,
            writing: false,
            full: false,
            closing: false,
            closed: None,
        }
    }

    /// Whether all that is unsummarised, and the footer, fit in so many blocks.
    pub(crate) fn fits(&self, room: Blocks) -> bool {
        self.packing.reserved_behind(self.entry_bytes, self.summaries.len()) <= room
    }

    /// Blocks to keep back behind `more` bytes of entries.
    fn reserved_behind(&self, more: usize) -> Blocks {
        let bytes = self.entry_bytes + self.in_flight_bytes + more;
        self.packing.reserved_behind(bytes, self.summaries.len() + usize::from(self.writing))
    }

    /// Admits one append of at most `wanted` blocks and says of how many; 0 when the zone is full.
    pub(crate) fn admit(&mut self, lease: &Lease, wanted: Blocks) -> Blocks {
        let mut blocks = wanted.min(lease.free_blocks());
        while blocks > 0 && !self.full {
            let bytes = Entry::bytes_for(blocks);
            let reserved_behind = self.reserved_behind(bytes);
            if lease.admit(blocks, reserved_behind) {
                self.in_flight_bytes += bytes;
                return blocks;
            }
            let left = lease.free_blocks().saturating_sub(reserved_behind);
            blocks = if left == 0 && blocks > 1 { 1 } else { left.min(blocks - 1) };
        }
        self.full = true;
        0
    }

    /// A batch of admitted appends is about to be submitted.
    pub(crate) fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// A batch is over: what was promised for it, and the entries of what succeeded.
    pub(crate) fn end(&mut self, bytes: usize, entries: Vec<Entry>) {
        assert!(self.in_flight > 0 && self.in_flight_bytes >= bytes, "a batch ends once");
        self.in_flight -= 1;
        self.in_flight_bytes -= bytes;
        self.entry_bytes += entries.iter().map(Entry::bytes).sum::<usize>();
        self.entries.extend(entries);
    }

    /// An append is about to be submitted.
    pub(crate) fn add_pending(&mut self) {
        self.pending += 1;
    }

    /// An append is inserted or given up.
    pub(crate) fn remove_pending(&mut self) {
        assert!(self.pending > 0, "an append is inserted or given up once");
        self.pending -= 1;
    }

    /// Takes no more data.
    pub(crate) fn fill(&mut self) {
        self.full = true;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// As many entries as fill blocks, their room admitted, when there are so many for one: what is left at the end
    /// must go in one command. Followed by [`ZoneMap::summarised`].
    pub(crate) fn take_due(&mut self, lease: &Lease) -> Option<Summary> {
        let block = self.packing.bytes_per_block();
        if self.writing || self.closing || self.entry_bytes < block {
            return None;
        }
        let wanted = block * (self.entry_bytes / block).min(SUMMARY_BLOCKS_MAX);
        let (mut count, mut bytes) = (0, 0);
        for entry in &self.entries {
            if count > 0 && bytes + entry.bytes() > wanted {
                break;
            }
            (count, bytes) = (count + 1, bytes + entry.bytes());
        }
        self.take(lease, count, bytes)
    }

    /// Everything that is left, when nothing is in flight and nobody else is closing the zone.
    /// None: not now. Some(None): nothing is left.
    pub(crate) fn take_rest(&mut self, lease: &Lease) -> Option<Option<Summary>> {
        if self.in_flight > 0 || self.writing || self.closing {
            return None;
        }
        assert_eq!(self.in_flight_bytes, 0, "entries are in flight with their appends");
        (self.full, self.closing) = (true, true);
        if self.entries.is_empty() || lease.has_failed() {
            return Some(None);
        }
        Some(self.take(lease, self.entries.len(), self.entry_bytes))
    }

    fn take(&mut self, lease: &Lease, count: usize, bytes: usize) -> Option<Summary> {
        let rest = self.entry_bytes - bytes + self.in_flight_bytes;
        let reserved_behind = self.packing.reserved_behind(rest, self.summaries.len() + 1);
        if !lease.admit(self.packing.summary(bytes), reserved_behind) {
            return None;
        }
        self.writing = true;
        self.entry_bytes -= bytes;
        let payload = format::encode_entries(self.entries[..count].iter());
        let (name, size) = (&self.name, self.packing.block_size);
        let bytes =
            format::encode_summary(SUMMARY_MAGIC, name, self.summaries.len(), (count, &payload), size);
        Some(Summary { bytes, entries: count })
    }

    /// A summary's append has returned: only now may its entries go.
    pub(crate) fn summarised(&mut self, summary: &Summary, place: Option<Blocks>) {
        assert!(self.writing, "a summary was taken");
        self.writing = false;
        let bytes: usize = self.entries[..summary.entries].iter().map(Entry::bytes).sum();
        match place {
            Some(place) => {
                self.entries.drain(..summary.entries);
                self.summaries.push(place);
            }
            None => {
                self.entry_bytes += bytes;
                self.full = true;
            }
        }
    }

    /// The footer, when every entry is in a summary and it fits.
    pub(crate) fn take_footer(&mut self, lease: &Lease) -> Option<Vec<u8>> {
        assert!(self.closing, "a footer ends a zone");
        let count = self.summaries.len();
        if !self.entries.is_empty() || !lease.admit(self.packing.footer(count), 0) {
            return None;
        }
        let places = format::encode_places(&self.summaries);
        let size = self.packing.block_size;
        Some(format::encode_summary(FOOTER_MAGIC, &self.name, count, (count, &places), size))
    }

    /// The zone is closed.
    pub(crate) fn close(&mut self, how: Closed) {
        self.full = true;
        self.closed = Some(how);
    }

    /// Where its summaries are, and its other entries.
    pub(crate) fn parts(&self) -> (Vec<Blocks>, Vec<Entry>) {
        (self.summaries.clone(), self.entries.clone())
    }
}

/// The maps of all zones whose reverse map is not wholly in a footer that is known durable.
pub(crate) struct ReverseMaps {
    zones: Mutex<BTreeMap<ZoneId, Arc<Mutex<ZoneMap>>>>,
}

impl ReverseMaps {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(ReverseMaps { zones: Mutex::new(BTreeMap::new()) })
    }

    /// Takes a zone's map over; checkpoints carry it from now on.
    pub(crate) fn add(&self, map: ZoneMap) -> Arc<Mutex<ZoneMap>> {
        let zone = map.name.zone;
        let map = Arc::new(Mutex::new(map));
        self.zones.lock().insert(zone, Arc::clone(&map));
        map
    }

    /// The map of a zone in this life.
    pub(crate) fn find(&self, zone: ZoneId, life: Life) -> Option<Arc<Mutex<ZoneMap>>> {
        let map = self.zones.lock().get(&zone).cloned()?;
        let same = map.lock().name.life == life;
        same.then_some(map)
    }

    fn all(&self) -> Vec<(ZoneId, Arc<Mutex<ZoneMap>>)> {
        self.zones.lock().iter().map(|(&zone, map)| (zone, Arc::clone(map))).collect()
    }

    /// Zones closed without a footer and without pending blocks.
    pub(crate) fn without_footer(&self) -> Vec<ZoneId> {
        let without = |map: &Mutex<ZoneMap>| {
            let map = map.lock();
            map.closed == Some(Closed::Without) && map.pending == 0
        };
        self.all().into_iter().filter(|(_, map)| without(map)).map(|(zone, _)| zone).collect()
    }

    /// Forgets what no checkpoint needs any more: maps whose footer's record is durable, and those of
    /// lives that have ended.
    pub(crate) fn prune(&self, store: &Store) {
        let durable = store.durable_lsn();
        for (zone, map) in self.all() {
            let entry = store.pool().entry(zone);
            let (life, closed) = {
                let map = map.lock();
                (map.name.life, map.closed)
            };
            let done = match closed {
                Some(Closed::Footer(lsn)) => lsn <= durable,
                Some(Closed::Without) => entry.life != life || !entry.role.holds_data(),
                None => false,
            };
            let mut zones = self.zones.lock();
            if done && zones.get(&zone).is_some_and(|now| Arc::ptr_eq(now, &map)) {
                zones.remove(&zone);
            }
        }
    }
}

impl tree::Client for ReverseMaps {
    fn checkpoint_bytes(&self, cut: Lsn) -> Vec<u8> {
        let mut bytes = format::CHECKPOINT_MAGIC.to_le_bytes().to_vec();
        for (zone, map) in self.all() {
            let map = map.lock();
            if matches!(map.closed, Some(Closed::Footer(named)) if named <= cut) {
                continue;
            }
            format::encode_unfinished(&mut bytes, (zone, map.name.life), &map.summaries, map.entries.iter());
        }
        bytes
    }
}

/// Reads summaries, or a footer: their first blocks together, then what else they have; None when one is not there or
/// not whole.
fn read_parts(store: &Store, magic: u32, name: &ZoneName, places: &[Blocks]) -> Option<Vec<(u32, Vec<u8>)>> {
    read_parts_of(&**store.device(), store.pool().capacity(name.zone), magic, name, places)
}

/// Reads a summary, or a footer, of a zone that ends at `end`: its count, and the bytes of its entries. `None` if it is
/// not there or not whole.
pub fn read_summary(
    device: &dyn Device,
    end: Blocks,
    magic: u32,
    name: &ZoneName,
    place: Blocks,
) -> Option<(u32, Vec<u8>)> {
    read_parts_of(device, end, magic, name, &[place])?.pop()
}

fn read_parts_of(
    device: &dyn Device,
    end: Blocks,
    magic: u32,
    name: &ZoneName,
    places: &[Blocks],
) -> Option<Vec<(u32, Vec<u8>)>> {
    let size = device.geometry().block_size as usize;
    let mut parts = vec![vec![0; size]; places.len()];
    let firsts = parts.iter_mut().zip(places).map(|(into, &place)| (place, &mut into[..]));
    read_pieces(device, name.zone, firsts)?;
    // All of them are in the zone, each in its own place: so they are no more than it takes.
    let mut left = end;
    for (bytes, &place) in parts.iter_mut().zip(places) {
        let blocks = format::summary_blocks_claimed(magic, bytes)?;
        if blocks == 0 || blocks > left || place.checked_add(blocks).is_none_or(|behind| behind > end) {
            return None;
        }
        left -= blocks;
        bytes.resize(blocks as usize * size, 0);
    }
    let with_more = parts.iter_mut().zip(places).filter(|(bytes, _)| bytes.len() > size);
    read_pieces(device, name.zone, with_more.map(|(bytes, &place)| (place + 1, &mut bytes[size..])))?;
    let decoded = parts.iter().map(|bytes| {
        let (count, payload) = format::decode_summary(magic, name, bytes)?;
        Some((count, payload.to_vec()))
    });
    decoded.collect()
}

/// Reads pieces of a zone together; None unless all can be read.
fn read_pieces<'b>(
    device: &dyn Device,
    zone: ZoneId,
    pieces: impl Iterator<Item = (Blocks, &'b mut [u8])>,
) -> Option<()> {
    let mut commands: Vec<Command<'_>> =
        pieces.map(|(block, into)| Command::Read { zone, block, into }).collect();
    (commands.is_empty() || device.run(&mut commands).iter().all(Result::is_ok)).then_some(())
}

/// Where the summaries are, as the footer says; None when there is no whole footer.
fn read_footer(store: &Store, name: &ZoneName, user: ZoneUser) -> Option<Vec<Blocks>> {
    if user.footer == 0 {
        return None;
    }
    let (count, payload) = read_parts(store, FOOTER_MAGIC, name, &[user.footer])?.pop()?;
    format::decode_places(&payload, count)
}

/// All entries of a zone with a footer; None when the footer or a summary is not there or not whole.
pub(crate) fn read_all(store: &Store, name: &ZoneName, user: ZoneUser) -> Option<Vec<Entry>> {
    read_summaries(store, name, &read_footer(store, name, user)?)
}

/// The entries of summaries; None when one is not there or not whole.
pub(crate) fn read_summaries(store: &Store, name: &ZoneName, places: &[Blocks]) -> Option<Vec<Entry>> {
    let parts = read_parts(store, SUMMARY_MAGIC, name, places)?;
    let entries = parts.into_iter().map(|(count, payload)| format::decode_entries(&payload, count));
    Some(entries.collect::<Option<Vec<_>>>()?.concat())
}

/// The name of a zone in the life that it has now.
pub(crate) fn name_of(store: &Store, zone: ZoneId) -> ZoneName {
    let fs_id: FsId = store.info().fs_id;
    ZoneName { fs_id, zone, life: store.pool().entry(zone).life }
}

#[cfg(test)]
mod tests;

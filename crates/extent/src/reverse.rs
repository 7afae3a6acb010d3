//! The reverse map: the owners of a data zone's blocks, stored in the zone.
//!
//! A zone's map is in one of these states:
//!
//! * *open*: entries of completed appends are in memory. As soon as they fill a block, they are appended to the zone as a
//!   summary. The zone keeps space for a summary of the remaining entries and for the footer.
//! * *closed with a footer*: the footer lists the summaries, and the ZIT has the footer's place. The map stays in memory until
//!   the record with this place is durable. Until then a checkpoint must carry the map, unless its cut is after that record:
//!   then the ZIT that it saves names the footer, and the flush before it makes the footer durable.
//! * *closed without a footer* (the zone failed, or was full after a crash): the map stays in memory and in every checkpoint
//!   until GC has reclaimed the zone.
//!
//! The rule that a crash would break: an entry leaves the memory only after its summary's append has returned. A checkpoint
//! takes its bytes and then flushes. So an entry that is missing in its bytes is in a summary that this flush makes durable.
//!
//! Entries are hints. Only the object map decides which blocks are live. So an entry of a write that was never inserted, or a
//! duplicate entry, does no harm. If an entry were missing, its zone could never be reclaimed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rt::sync::Mutex;
use tree::{Lsn, Store};
use zone::{Blocks, Command, Device, FsId, Lease, Life, ZoneId};

use crate::format::{self, Entry, FOOTER_MAGIC, Packing, SUMMARY_MAGIC, Unfinished, ZoneName, ZoneUser};

/// Most blocks of a summary, except for the last one of a zone.
const SUMMARY_BLOCKS_MAX: usize = 16;

/// A summary to be appended to the zone.
pub(crate) struct Summary {
    /// Its blocks.
    pub(crate) bytes: Vec<u8>,
    /// The number of its entries, which are the first ones in memory.
    entries: usize,
}

/// The reverse map of a zone without a footer that is known to be durable.
pub(crate) struct ZoneMap {
    name: ZoneName,
    packing: Packing,
    /// Where its summaries begin.
    summaries: Vec<Blocks>,
    /// Completed appends that are in no summary.
    entries: Vec<Entry>,
    /// Bytes of these, without those in a summary that is being appended.
    entry_bytes: usize,
    /// Bytes that the entries of appends in flight will take.
    in_flight_bytes: usize,
    /// Batches of appends in flight.
    in_flight: u32,
    /// Appends that are neither inserted nor abandoned.
    pending: u32,
    /// A summary is being appended. Its space is admitted.
    is_summarising: bool,
    /// Takes no more data.
    is_full: bool,
    /// A thread is closing it.
    is_closing: bool,
    closed: Option<Closed>,
}

/// How a zone was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The record that names the footer.
    Footer(Lsn),
    /// There is none: GC reclaims the zone first.
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
            is_summarising: false,
            is_full: false,
            is_closing: false,
            closed: None,
        }
    }

    /// Whether all entries that are in no summary, and the footer, fit in this number of blocks.
    pub(crate) fn fits(&self, free: Blocks) -> bool {
        self.packing.reserved_behind(self.entry_bytes, self.summaries.len()) <= free
    }

    /// Blocks to be reserved after data with `more` bytes of entries.
    fn reserved_behind(&self, more: usize) -> Blocks {
        let bytes = self.entry_bytes + self.in_flight_bytes + more;
        self.packing.reserved_behind(bytes, self.summaries.len() + usize::from(self.is_summarising))
    }

    /// Admits one append of at most `wanted` blocks. Returns its blocks; 0 if the zone is full.
    pub(crate) fn admit(&mut self, lease: &Lease, wanted: Blocks) -> Blocks {
        let mut blocks = wanted.min(lease.free_blocks());
        while blocks > 0 && !self.is_full {
            let bytes = Entry::bytes_for(blocks);
            let reserved_behind = self.reserved_behind(bytes);
            if lease.admit(blocks, reserved_behind) {
                self.in_flight_bytes += bytes;
                return blocks;
            }
            let left = lease.free_blocks().saturating_sub(reserved_behind);
            blocks = if left == 0 && blocks > 1 { 1 } else { left.min(blocks - 1) };
        }
        self.is_full = true;
        0
    }

    /// A batch of admitted appends is about to be submitted.
    pub(crate) fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// A batch has ended: the bytes that were reserved for its entries, and the entries of successful appends.
    pub(crate) fn end(&mut self, bytes: usize, entries: impl IntoIterator<Item = Entry>) {
        assert!(self.in_flight > 0 && self.in_flight_bytes >= bytes, "a batch ends once");
        self.in_flight -= 1;
        self.in_flight_bytes -= bytes;
        for entry in entries {
            self.entry_bytes += entry.bytes();
            self.entries.push(entry);
        }
    }

    /// An append is about to be submitted.
    pub(crate) fn add_pending(&mut self) {
        self.pending += 1;
    }

    /// An append is inserted or abandoned.
    pub(crate) fn remove_pending(&mut self) {
        assert!(self.pending > 0, "an append is inserted or abandoned once");
        self.pending -= 1;
    }

    /// Takes no more data.
    pub(crate) fn fill(&mut self) {
        self.is_full = true;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// A summary of the entries that fill whole blocks, with its space admitted. `None` if they fill none: the last entries
    /// of the zone are one summary. Must be followed by [`ZoneMap::end_summary`].
    pub(crate) fn take_due(&mut self, lease: &Lease) -> Option<Summary> {
        let block = self.packing.bytes_per_block();
        let most = SUMMARY_BLOCKS_MAX.min(lease.append_blocks_max() as usize);
        if self.is_summarising || self.is_closing || self.entry_bytes < block {
            return None;
        }
        let wanted = block * (self.entry_bytes / block).min(most);
        let (mut count, mut bytes) = (0, 0);
        for entry in &self.entries {
            if count > 0 && bytes + entry.bytes() > wanted {
                break;
            }
            (count, bytes) = (count + 1, bytes + entry.bytes());
        }
        self.take(lease, count, bytes)
    }

    /// A summary of all entries. `None` if an append is in flight or another thread is closing the zone. `Some(None)` if
    /// there are no entries.
    pub(crate) fn take_rest(&mut self, lease: &Lease) -> Option<Option<Summary>> {
        if self.in_flight > 0 || self.is_summarising || self.is_closing {
            return None;
        }
        assert_eq!(self.in_flight_bytes, 0, "entries are in flight with their appends");
        (self.is_full, self.is_closing) = (true, true);
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
        self.is_summarising = true;
        self.entry_bytes -= bytes;
        let payload = format::encode_entries(self.entries[..count].iter());
        let (name, size) = (&self.name, self.packing.block_size);
        let bytes =
            format::encode_summary(SUMMARY_MAGIC, name, self.summaries.len(), (count, &payload), size);
        Some(Summary { bytes, entries: count })
    }

    /// A summary's append has returned: only now its entries may leave the memory.
    pub(crate) fn end_summary(&mut self, summary: &Summary, place: Option<Blocks>) {
        assert!(self.is_summarising, "a summary was taken");
        self.is_summarising = false;
        let bytes: usize = self.entries[..summary.entries].iter().map(Entry::bytes).sum();
        match place {
            Some(place) => {
                self.entries.drain(..summary.entries);
                self.summaries.push(place);
            }
            None => {
                self.entry_bytes += bytes;
                self.is_full = true;
            }
        }
    }

    /// The footer, if every entry is in a summary and it fits.
    pub(crate) fn take_footer(&mut self, lease: &Lease) -> Option<Vec<u8>> {
        assert!(self.is_closing, "a footer ends a zone");
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
        self.is_full = true;
        self.closed = Some(how);
    }

    /// The places of its summaries, and its other entries.
    pub(crate) fn parts(&self) -> (Vec<Blocks>, Vec<Entry>) {
        (self.summaries.clone(), self.entries.clone())
    }
}

/// The maps of all zones without a footer that is known to be durable.
pub struct ReverseMaps {
    zones: Mutex<BTreeMap<ZoneId, Arc<Mutex<ZoneMap>>>>,
}

impl ReverseMaps {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(ReverseMaps { zones: Mutex::new(BTreeMap::new()) })
    }

    /// Adds a zone's map. From now on checkpoints carry it.
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

    /// The entries of a data zone's reverse map, oldest first. `None` if there is no whole one.
    pub fn entries_of(&self, store: &Store, zone: ZoneId) -> Option<Vec<Entry>> {
        let name = name_of(store, zone);
        let user = ZoneUser::decode(&store.pool().entry(zone).user);
        let Some(open) = self.find(zone, name.life) else {
            return read_all(store, &name, user);
        };
        let (summaries, unsummarised) = open.lock().parts();
        let mut entries = read_summaries(store, &name, &summaries)?;
        entries.extend(unsummarised);
        Some(entries)
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

    /// Drops maps that no checkpoint needs: those whose footer's record is durable, and those of lives that have ended.
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

/// Reads summaries, or a footer: first the first block of each, then the others. `None` if one is missing or not whole.
fn read_parts(store: &Store, magic: u32, name: &ZoneName, places: &[Blocks]) -> Option<Vec<(u32, Vec<u8>)>> {
    read_parts_of(&**store.device(), store.pool().capacity(name.zone), magic, name, places)
}

/// Reads a summary, or a footer, of a zone that ends at `end`: its count, and the bytes of its entries. `None` if it is
/// missing or not whole.
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
    read_together(device, name.zone, firsts)?;
    // All of them are in the zone, each at its own place. So together they are at most as long as the zone.
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
    read_together(device, name.zone, with_more.map(|(bytes, &place)| (place + 1, &mut bytes[size..])))?;
    let decoded = parts.iter().map(|bytes| {
        let (count, payload) = format::decode_summary(magic, name, bytes)?;
        Some((count, payload.to_vec()))
    });
    decoded.collect()
}

/// Reads several parts of a zone together. `None` unless all can be read.
fn read_together<'b>(
    device: &dyn Device,
    zone: ZoneId,
    reads: impl Iterator<Item = (Blocks, &'b mut [u8])>,
) -> Option<()> {
    let mut commands: Vec<Command<'_>> =
        reads.map(|(block, into)| Command::Read { zone, block, into }).collect();
    (commands.is_empty() || device.run(&mut commands).iter().all(Result::is_ok)).then_some(())
}

/// The places of the summaries in the footer. `None` if there is no whole footer.
fn read_footer(store: &Store, name: &ZoneName, user: ZoneUser) -> Option<Vec<Blocks>> {
    if user.footer == 0 {
        return None;
    }
    let (count, payload) = read_parts(store, FOOTER_MAGIC, name, &[user.footer])?.pop()?;
    format::decode_places(&payload, count)
}

/// All entries of a zone with a footer. `None` if the footer or a summary is missing or not whole.
pub(crate) fn read_all(store: &Store, name: &ZoneName, user: ZoneUser) -> Option<Vec<Entry>> {
    read_summaries(store, name, &read_footer(store, name, user)?)
}

/// The entries of summaries. `None` if one is missing or not whole.
pub(crate) fn read_summaries(store: &Store, name: &ZoneName, places: &[Blocks]) -> Option<Vec<Entry>> {
    let parts = read_parts(store, SUMMARY_MAGIC, name, places)?;
    let entries = parts.into_iter().map(|(count, payload)| format::decode_entries(&payload, count));
    Some(entries.collect::<Option<Vec<_>>>()?.concat())
}

/// The name of a zone in its current life.
pub(crate) fn name_of(store: &Store, zone: ZoneId) -> ZoneName {
    let fs_id: FsId = store.info().fs_id;
    ZoneName { fs_id, zone, life: store.pool().entry(zone).life }
}

#[cfg(test)]
mod tests;

//! The rows of the table (the ZIT), in two versions while a checkpoint is written.
//!
//! From the cut until the chunks of the ZIT are encoded, the first change of a row keeps the row as it was at the cut. The
//! user's counters, which the record of a checkpoint carries, are copied at the cut. What a checkpoint itself changes
//! (metadata zones that are opened for it, live counts of the merged MAT) belongs to both versions.

use std::collections::{BTreeSet, HashMap};

use zone::ZoneId;

use crate::types::{COUNTERS, ZoneEntry};

/// The counters that the pool keeps for its user.
pub type UserCounters = [i64; COUNTERS];

/// The rows, and the user's counters.
pub(crate) struct Rows {
    rows: Vec<ZoneEntry>,
    /// Rows in a chunk of the ZIT.
    per_chunk: u64,
    /// Rows as they were at the cut, if they have changed since.
    at_cut: Option<HashMap<ZoneId, ZoneEntry>>,
    /// Chunks that differ from those on the device.
    changed_chunks: BTreeSet<u64>,
    /// Rows that changed for the checkpoint after its chunks were encoded.
    late: Option<BTreeSet<ZoneId>>,
    /// None of them is negative.
    counters: UserCounters,
}

impl Rows {
    pub(crate) fn new(rows: Vec<ZoneEntry>, per_chunk: u64) -> Rows {
        Rows {
            rows,
            per_chunk,
            at_cut: None,
            changed_chunks: BTreeSet::new(),
            late: None,
            counters: [0; COUNTERS],
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.rows.len() as u32
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (ZoneId, &ZoneEntry)> {
        self.rows.iter().enumerate().map(|(index, row)| (ZoneId(index as u32), row))
    }

    pub(crate) fn get(&self, zone: ZoneId) -> &ZoneEntry {
        &self.rows[zone.0 as usize]
    }

    /// The row of a zone whose number comes from the device.
    pub(crate) fn find(&self, zone: ZoneId) -> Option<&ZoneEntry> {
        self.rows.get(zone.0 as usize)
    }

    /// A row, to be changed in the running epoch only.
    pub(crate) fn change(&mut self, zone: ZoneId) -> &mut ZoneEntry {
        let row = &mut self.rows[zone.0 as usize];
        if let Some(at_cut) = &mut self.at_cut {
            at_cut.entry(zone).or_insert(*row);
        }
        self.changed_chunks.insert(u64::from(zone.0) / self.per_chunk);
        row
    }

    /// Makes a change that belongs to the checkpoint that is being written, and to the running epoch.
    pub(crate) fn change_both(&mut self, zone: ZoneId, change: impl Fn(&mut ZoneEntry)) {
        change(&mut self.rows[zone.0 as usize]);
        if let Some(row) = self.at_cut.as_mut().and_then(|at_cut| at_cut.get_mut(&zone)) {
            change(row);
        }
        if let Some(late) = &mut self.late {
            late.insert(zone);
        }
        self.changed_chunks.insert(u64::from(zone.0) / self.per_chunk);
    }

    /// Whether both versions of a row count the same live blocks and delta records.
    pub(crate) fn counts_agree(&self, zone: ZoneId) -> bool {
        let row = self.get(zone);
        let at_cut = self.at_cut.as_ref().and_then(|at_cut| at_cut.get(&zone));
        at_cut.is_none_or(|at_cut| (at_cut.live, at_cut.deltas) == (row.live, row.deltas))
    }

    /// A row as a chunk on the device has it.
    pub(crate) fn load(&mut self, zone: ZoneId, row: ZoneEntry) {
        assert!(self.at_cut.is_none(), "rows are loaded while no checkpoint is written");
        self.rows[zone.0 as usize] = row;
    }

    /// A row as the record of a checkpoint has it, which is newer than its chunk.
    pub(crate) fn patch(&mut self, zone: ZoneId, row: ZoneEntry) {
        self.load(zone, row);
        self.changed_chunks.insert(u64::from(zone.0) / self.per_chunk);
    }

    pub(crate) fn counters(&self) -> UserCounters {
        self.counters
    }

    pub(crate) fn load_counters(&mut self, counters: UserCounters) {
        self.counters = counters;
    }

    pub(crate) fn change_counter(&mut self, counter: u8, change: i64) {
        let counter = &mut self.counters[usize::from(counter)];
        *counter += change;
        assert!(*counter >= 0, "a counter counts what there is");
    }

    /// The cut. Returns the counters at the cut.
    pub(crate) fn cut(&mut self) -> UserCounters {
        assert!(self.at_cut.is_none(), "one checkpoint at a time");
        self.at_cut = Some(HashMap::new());
        self.counters
    }

    /// Encodes the chunks that differ from those on the device, as they were at the cut. From now on, changes for the
    /// checkpoint are noted for its record.
    pub(crate) fn encode_changed(&mut self, encode: impl Fn(&[ZoneEntry]) -> Vec<u8>) -> Vec<(u64, Vec<u8>)> {
        let at_cut = self.at_cut.take().expect("a cut was made");
        let changed = std::mem::take(&mut self.changed_chunks);
        // Rows that changed after the cut differ from what is saved now.
        self.changed_chunks = at_cut.keys().map(|zone| u64::from(zone.0) / self.per_chunk).collect();
        self.late = Some(BTreeSet::new());
        let encode_chunk = |number: u64| {
            let first = (number * self.per_chunk) as usize;
            let last = (first + self.per_chunk as usize).min(self.rows.len());
            let saved = |index: usize| match at_cut.get(&ZoneId(index as u32)) {
                Some(row) if !rt::is_planted("break-zit-cut") => *row,
                _ => self.rows[index],
            };
            let rows: Vec<ZoneEntry> = (first..last).map(saved).collect();
            (number, encode(&rows))
        };
        changed.into_iter().map(encode_chunk).collect()
    }

    /// Rows that changed for the checkpoint after its chunks were encoded.
    pub(crate) fn take_late(&mut self) -> Vec<(ZoneId, ZoneEntry)> {
        let late = self.late.take().expect("chunks were encoded");
        late.into_iter().map(|zone| (zone, *self.get(zone))).collect()
    }

    /// Has the next checkpoint save a chunk though none of its rows changed.
    pub(crate) fn save_chunk(&mut self, number: u64) {
        self.changed_chunks.insert(number);
    }

    /// Has the next checkpoint save all chunks.
    pub(crate) fn save_all(&mut self) {
        let chunks = (self.rows.len() as u64).div_ceil(self.per_chunk);
        self.changed_chunks = (0..chunks).collect();
    }
}

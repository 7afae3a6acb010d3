//! The device metadata: copies of the header and tables of zone states. They are verified, and an open for writing
//! repairs damaged copies.
//!
//! **No write endangers the last good copy.** A copy is written by one write of one page, and each such write is
//! durable before the next one begins. The end copy is written first, then the damaged copies at the start. A good
//! copy at the start is written last, and only if it must change because it names the place of the end copy. So at
//! every moment there is a durable good copy that is not being written. If a block has 8 KiB or more, both copies at
//! the start are in one block, which the device writes atomically.
//!
//! A table of states needs no such order: each slot lies in one sector, and the first flush writes lost states again
//! (`slots.rs`).

use std::io;

use super::FileDevice;
use super::format::{HEADER_BYTES, Layout, with_end_copy};
use super::header::{EndPlace, Headers, START_COPIES, compare};
use super::slots::Slots;
use crate::device_metadata::{CopyState, MetadataCopy, MetadataPart};

const REFUSED: &str = "the system refused to write it; the next mount for writing tries again";

/// The header and the states of all copies.
pub(super) struct DeviceMetadata {
    /// The header as it is stored.
    header: Vec<u8>,
    /// In the order of [`MetadataPart`].
    pub(super) copies: Vec<MetadataCopy>,
}

/// A page of the header, and the copies in it.
struct HeaderPage {
    records: Vec<MetadataPart>,
    offset: u64,
    bytes: Vec<u8>,
}

impl DeviceMetadata {
    /// The metadata as it was read. `damaged` is the number of damaged slots in each table.
    pub(super) fn new(headers: Headers, layout: &Layout, damaged: [u32; 2]) -> DeviceMetadata {
        let [first_table, second_table] = damaged.map(|count| state_of_table(layout, count));
        let copies = [
            (MetadataPart::FirstHeader, headers.first),
            (MetadataPart::SecondHeader, headers.second),
            (MetadataPart::EndHeader, headers.end),
            (MetadataPart::FirstTable, first_table),
            (MetadataPart::SecondTable, second_table),
        ];
        let copies = copies.map(|(record, state)| MetadataCopy { record, state }).into();
        DeviceMetadata { header: headers.bytes, copies }
    }

    fn state(&self, record: MetadataPart) -> &CopyState {
        &self.copies[record as usize].state
    }

    fn set(&mut self, record: MetadataPart, state: CopyState) {
        self.copies[record as usize].state = state;
    }

    /// The pages to write so that all copies of the header equal `wanted`, in the safe order.
    fn pages(&self, layout: &Layout, wanted: &[u8], end: Option<u64>) -> Vec<HeaderPage> {
        let mut pages: Vec<HeaderPage> = Vec::new();
        let is_due = |record| *self.state(record) != CopyState::Whole || wanted != self.header;
        if let Some(offset) = end.filter(|_| is_due(MetadataPart::EndHeader)) {
            let bytes = page_with(layout, &[wanted]);
            pages.push(HeaderPage { records: vec![MetadataPart::EndHeader], offset, bytes });
        }
        let both = [MetadataPart::FirstHeader, MetadataPart::SecondHeader];
        let mut starts: Vec<Vec<MetadataPart>> = match layout.page_bytes() >= 2 * HEADER_BYTES {
            true => vec![both.to_vec()],
            false => both.iter().map(|record| vec![*record]).collect(),
        };
        starts.retain(|records| records.iter().any(|record| is_due(*record)));
        starts.sort_by_key(|records| records.iter().all(|record| *self.state(*record) == CopyState::Whole));
        pages.extend(starts.into_iter().map(|records| {
            let copies = vec![wanted; records.len()];
            HeaderPage {
                offset: START_COPIES[records[0] as usize],
                bytes: page_with(layout, &copies),
                records,
            }
        }));
        pages
    }
}

fn page_with(layout: &Layout, copies: &[&[u8]]) -> Vec<u8> {
    let mut page = copies.concat();
    page.resize(layout.page_bytes(), 0);
    page
}

/// The reason why a copy is damaged or absent.
fn reason(state: &CopyState) -> &str {
    match state {
        CopyState::Whole => "is whole",
        CopyState::Damaged(why) => why,
        CopyState::Absent(why) => why,
    }
}

fn state_of_table(layout: &Layout, damaged: u32) -> CopyState {
    match damaged {
        0 => CopyState::Whole,
        damaged if damaged == layout.geometry.zones => CopyState::Damaged("is lost".to_owned()),
        damaged => CopyState::Damaged(format!("is damaged for {damaged} of {} zones", layout.geometry.zones)),
    }
}

/// Reads a table of states. Unreadable pages become zeros, which are no valid slots.
pub(super) fn read_table(
    layout: &Layout,
    table: usize,
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
) -> Vec<u8> {
    let (mut bytes, start) = (vec![0; layout.table_bytes()], layout.table_offset(table));
    if read(start, &mut bytes).is_err() {
        for (page, offset) in
            bytes.chunks_mut(layout.page_bytes()).zip((start..).step_by(layout.page_bytes()))
        {
            if read(offset, page).is_err() {
                page.fill(0);
            }
        }
    }
    bytes
}

impl FileDevice {
    /// The copies that were damaged and were repaired when the device was opened.
    pub fn repaired(&self) -> &[MetadataCopy] {
        &self.repaired
    }

    /// Repairs damaged copies of the header, and adds the end copy. A copy that cannot be written stays as it is.
    /// Returns an error only if the result of a write is unknown.
    pub(super) fn repair_device_metadata(&mut self, end: EndPlace, device_bytes: u64) -> io::Result<()> {
        if let Some(place) = self.extend_for_end_copy(end) {
            let wanted = with_end_copy(&self.metadata.get_mut().header, place);
            if self.write_header(&wanted, Some(place))? {
                self.layout.end_copy = Some(place);
            } else {
                self.abandon_end_copy(end, device_bytes);
            }
        }
        let now = self.metadata.get_mut().header.clone();
        self.write_header(&now, None)?;
        let metadata = self.metadata.get_mut();
        let tables = metadata.copies.iter_mut().filter(|copy| copy.record >= MetadataPart::FirstTable);
        for table in tables.filter(|copy| copy.state != CopyState::Whole) {
            tracing::warn!(
                "{} {}; it is rewritten, and zones whose state was lost count as full",
                table.record.name(),
                reason(&table.state)
            );
            self.repaired.push(table.clone());
            table.state = CopyState::Whole;
        }
        Ok(())
    }

    /// Extends the file if the end copy needs it. Returns the place of the end copy.
    fn extend_for_end_copy(&mut self, end: EndPlace) -> Option<u64> {
        let (place, bytes) = match end {
            EndPlace::At(place) => return Some(place),
            EndPlace::Nowhere(_) => return None,
            EndPlace::Longer { place, bytes } => (place, bytes),
        };
        let made = self.engine.file().set_len(bytes);
        if let Err(error) = made {
            tracing::warn!(%error, "the file cannot be extended for a copy of its header");
            self.metadata.get_mut().set(MetadataPart::EndHeader, CopyState::Absent(REFUSED));
            return None;
        }
        Some(place)
    }

    /// Restores the length of the file after the end copy could not be written, for example because the host is full.
    fn abandon_end_copy(&mut self, end: EndPlace, device_bytes: u64) {
        if self.layout.end_copy.is_none() {
            self.metadata.get_mut().set(MetadataPart::EndHeader, CopyState::Absent(REFUSED));
        }
        if matches!(end, EndPlace::Longer { .. }) {
            let _ = self.engine.file().set_len(device_bytes);
        }
    }

    /// Writes the copies that differ from `wanted`, each durable before the next. Returns false if one could not be
    /// written.
    fn write_header(&mut self, wanted: &[u8], end: Option<u64>) -> io::Result<bool> {
        let pages = self.metadata.get_mut().pages(&self.layout, wanted, end);
        for page in pages {
            if let Err(error) = self.engine.write(page.offset, &page.bytes) {
                tracing::warn!(%error, "{} cannot be written", page.records[0].name());
                return Ok(false);
            }
            self.engine.sync()?;
            for record in page.records {
                self.note_written(record);
            }
        }
        self.metadata.get_mut().header = wanted.to_vec();
        Ok(true)
    }

    fn note_written(&mut self, record: MetadataPart) {
        let metadata = self.metadata.get_mut();
        match metadata.state(record).clone() {
            CopyState::Whole => {}
            CopyState::Absent(_) => tracing::info!("{} was added", record.name()),
            state @ CopyState::Damaged(_) => {
                tracing::warn!("{} {}; it was rewritten", record.name(), reason(&state));
                self.repaired.push(MetadataCopy { record, state });
            }
        }
        metadata.set(record, CopyState::Whole);
    }

    /// Logs damage that is not repaired because the volume is opened for reading.
    pub(super) fn log_damage(&self) {
        for damage in self.metadata.lock().copies.iter().filter_map(MetadataCopy::damage) {
            tracing::warn!("{damage}; a mount for writing or `polder check --repair` repairs it");
        }
    }

    /// Reads all copies again.
    pub(super) fn reread_device_metadata(&self) -> Vec<MetadataCopy> {
        // No flush writes states meanwhile.
        let _calm = self.flushing.lock();
        let mut metadata = self.metadata.lock();
        let offsets = [Some(START_COPIES[0]), Some(START_COPIES[1]), self.layout.end_copy];
        let records = [MetadataPart::FirstHeader, MetadataPart::SecondHeader, MetadataPart::EndHeader];
        for (record, offset) in records.into_iter().zip(offsets) {
            let Some(offset) = offset.filter(|_| !matches!(metadata.state(record), CopyState::Absent(_)))
            else {
                continue;
            };
            let found = compare(&metadata.header, &self.header_copy(offset));
            metadata.set(record, found);
        }
        for (table, record) in [MetadataPart::FirstTable, MetadataPart::SecondTable].into_iter().enumerate() {
            let bytes = read_table(&self.layout, table, |offset, into| self.engine.read(offset, into));
            let damaged = Slots::damaged(self.fs_id, &self.layout, table, &bytes);
            metadata.set(record, state_of_table(&self.layout, damaged));
        }
        metadata.copies.clone()
    }

    /// The bytes of a copy. A device reads whole pages.
    fn header_copy(&self, offset: u64) -> io::Result<Vec<u8>> {
        let page = self.layout.page_bytes() as u64;
        let start = offset / page * page;
        let mut bytes = vec![0; page as usize];
        self.engine.read(start, &mut bytes)?;
        Ok(bytes[(offset - start) as usize..][..HEADER_BYTES].to_vec())
    }
}

#[cfg(test)]
mod tests;

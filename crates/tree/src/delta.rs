//! Delta records: the changes of a leaf since it was last written whole, and the pages of such records.
//!
//! A leaf with a few changed entries is not written whole. The present entries of the changed keys go to a page that
//! it shares with the delta records of other leaves. The MAT names that page beside the whole one, the *base page*.
//! Each delta record has all changes since the base page, so a leaf lies in two pages at most. A leaf is written whole
//! if its record would take more than an eighth of a page, because at about that size the number of written pages is
//! smallest. It is also written whole if its changes cannot be expressed by keys.
//!
//! The node in memory has the set of changed keys, and for each key the length of its value, or that it was deleted.
//! So the size of the record is known when a leaf is changed. The set may have more keys than have changed, never
//! fewer. The values are taken from the page when the record is written, so an extra key has the value of the base
//! page.
//!
//! A delta record names its base page by LSN and not by address, because GC moves each of them separately, and a MAT
//! rebuilt by scanning finds the two again (I-TREE-3). Decoders of delta records accept any bytes (I-TREE-2).
//!
//! This module does no I/O and does not know addresses of pages. Inner nodes are always written whole.

use std::collections::BTreeMap;

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::format::{
    DELTA_GONE, DeltaEntry, DeltaHeader, KEY_MAX, PAGE_HEADER, PageHeader, PageKind, is_ordinal, take,
    write_header,
};
use crate::page::{Page, value_max};
use crate::types::{Bytes, Epoch, Group, NodeId};
use pool::Lsn;

/// The fraction of a page that a leaf's delta record may take.
pub(crate) const SHARE: usize = 8;
/// The least number of delta records in a full page. With this estimate GC never counts bytes as dead that it would
/// have to move. Otherwise it could move the same live blocks again and again.
pub(crate) const IN_PAGE_AT_LEAST: u64 = SHARE as u64 - 1;

/// The most delta records in a page of this size.
pub(crate) fn in_page_at_most(page_size: usize) -> u64 {
    ((page_size - PAGE_HEADER) / (size_of::<DeltaHeader>() + size_of::<DeltaEntry>())) as u64
}

/// The keys under which a leaf may differ from its base.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Each as [`DeltaEntry`] and key: the length of the present value, or the mark for a deleted key.
    keys: Bytes,
    /// Bytes of the values.
    values: usize,
    /// Changes that cannot be expressed by keys, or a record larger than [`SHARE`] allows.
    all: bool,
}

impl Changes {
    /// For a node that has to be written whole.
    pub(crate) fn all() -> Self {
        Changes { all: true, ..Changes::default() }
    }

    /// Notes a change under this key: a value of this length, or a deletion.
    pub(crate) fn note(&mut self, key: &[u8], value: Option<usize>, page_size: usize) {
        if self.all {
            return;
        }
        let entry = DeltaEntry {
            key: U16::new(key.len() as u16),
            value: U16::new(value.map_or(DELTA_GONE, |length| length as u16)),
        };
        let known = self.keys().find(|(_, known, _)| *known == key).map(|(at, _, before)| (at, before));
        if let Some((at, before)) = known {
            self.keys[at..at + size_of::<DeltaEntry>()].copy_from_slice(entry.as_bytes());
            self.values -= before.unwrap_or_default();
        } else {
            self.keys.reserve(size_of::<DeltaEntry>() + key.len());
            self.keys.extend_from_slice(entry.as_bytes());
            self.keys.extend_from_slice(key);
        }
        self.values += value.unwrap_or_default();
        if self.encoded_bytes().is_some_and(|bytes| bytes > page_size / SHARE) {
            *self = Changes::all();
        }
    }

    /// The size of the result of [`Changes::encode`]. None if the leaf has to be written whole.
    pub(crate) fn encoded_bytes(&self) -> Option<usize> {
        (!self.all).then(|| size_of::<DeltaHeader>() + self.keys.len() + self.values)
    }

    /// The offset, the key and the length of the value of each entry.
    fn keys(&self) -> impl Iterator<Item = (usize, &[u8], Option<usize>)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let (at, (entry, behind)) = (next, take::<DeltaEntry>(&self.keys[next..])?);
            let (key, value) = (usize::from(entry.key.get()), entry.value.get());
            next += size_of::<DeltaEntry>() + key;
            Some((at, &behind[..key], (value != DELTA_GONE).then_some(value.into())))
        })
    }

    /// Notes changes that cannot be expressed by keys.
    pub(crate) fn note_all(&mut self) {
        *self = Changes::all();
    }

    /// The delta record as it is stored, without the epoch, which [`set_epoch`] sets. `None` if the leaf has to be
    /// written whole. The page must be the one after the last noted change.
    pub(crate) fn encode(&self, page: &Page, base: Lsn) -> Option<Bytes> {
        let length = self.encoded_bytes().filter(|_| page.level() == 0)?;
        let header = page.header();
        // The header is filled in at the end.
        let mut bytes = Bytes::with_capacity(length);
        bytes.resize(size_of::<DeltaHeader>(), 0);
        let mut count = 0;
        for (at, key, length) in self.keys() {
            count += 1;
            debug_assert!(length.is_some() || page.search(key).is_err(), "a deleted key has no entry");
            bytes.extend_from_slice(&self.keys[at..at + size_of::<DeltaEntry>() + key.len()]);
            if let Some(length) = length {
                let index = page.search(key).expect("a changed key has an entry");
                let value = page.value(index);
                assert_eq!(value.len(), length, "the value has the noted length");
                bytes.extend_from_slice(value);
            }
        }
        let header = DeltaHeader {
            node: header.id,
            lsn: header.lsn,
            epoch: U64::ZERO,
            base: U64::new(base.0),
            group: header.group,
            entries: U16::new(count),
            bytes: U32::new((bytes.len() - size_of::<DeltaHeader>()) as u32),
        };
        bytes[..size_of::<DeltaHeader>()].copy_from_slice(header.as_bytes());
        Some(bytes)
    }
}

/// Sets the epoch in which a result of [`Changes::encode`] is written.
pub(crate) fn set_epoch(delta: &mut [u8], epoch: Epoch) {
    let at = std::mem::offset_of!(DeltaHeader, epoch);
    delta[at..at + size_of::<U64>()].copy_from_slice(&epoch.0.to_le_bytes());
}

/// The group of a stored delta record's leaf, and the LSN of its contents.
pub(crate) fn group_and_lsn(delta: &[u8]) -> (Group, Lsn) {
    let (header, _) = take::<DeltaHeader>(delta).expect("a delta record has a header");
    (Group(header.group.get()), Lsn(header.lsn.get()))
}

/// A stored delta record of a leaf.
#[derive(Clone, Copy)]
pub(crate) struct Delta<'a> {
    pub(crate) header: DeltaHeader,
    entries: &'a [u8],
    /// Header and entries.
    pub(crate) bytes: &'a [u8],
}

impl Delta<'_> {
    pub(crate) fn node(&self) -> NodeId {
        NodeId(self.header.node.get())
    }

    /// Whether this is the record's base page.
    pub(crate) fn is_to(&self, page: &Page) -> bool {
        let header = page.header();
        header.level == 0
            && (header.id, header.lsn, header.group)
                == (self.header.node, self.header.base, self.header.group)
    }

    /// Applies the record to its base page. Returns the keys under which the page may then differ from the base page
    /// on the device. `None` if the record does not fit that page.
    pub(crate) fn apply(&self, page: &mut Page) -> Option<Changes> {
        let (mut entries, mut changes) = (BTreeMap::new(), Changes::default());
        let mut rest = self.entries;
        for _ in 0..self.header.entries.get() {
            let (entry, behind) = take::<DeltaEntry>(rest)?;
            let (key, behind) = behind.split_at_checked(usize::from(entry.key.get()))?;
            let gone = entry.value.get() == DELTA_GONE;
            let length = if gone { 0 } else { usize::from(entry.value.get()) };
            let (value, behind) = behind.split_at_checked(length)?;
            rest = behind;
            changes.note(key, (!gone).then_some(length), page.bytes().len());
            if let Ok(index) = page.search(key) {
                page.remove(index);
            }
            if entries.insert(key, (!gone).then_some(value)).is_some() {
                return None;
            }
        }
        // Deletions come first, so that each insertion has space.
        for (key, value) in entries.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            let Err(index) = page.search(key) else { return None };
            let is_kept = (1..=KEY_MAX).contains(&key.len()) && value.len() <= value_max(page.bytes().len());
            if !is_kept || !page.fits(key.len(), value.len()) {
                return None;
            }
            page.insert(index, key, value);
        }
        page.set_lsn(Lsn(self.header.lsn.get()));
        (rest.is_empty() && !changes.all).then_some(changes)
    }
}

/// All delta records in a page whose header has been verified. `None` if they are not well formed.
pub(crate) fn all(page: &[u8]) -> Option<Vec<Delta<'_>>> {
    let (header, _) = take::<PageHeader>(page)?;
    let mut rest = page.get(PAGE_HEADER..)?;
    let mut deltas = Vec::new();
    for _ in 0..header.entries.get() {
        let (header, behind) = take::<DeltaHeader>(rest)?;
        if ![header.lsn, header.base, header.epoch].into_iter().all(is_ordinal) {
            return None;
        }
        let (entries, behind) = behind.split_at_checked(header.bytes.get() as usize)?;
        let bytes = &rest[..size_of::<DeltaHeader>() + entries.len()];
        deltas.push(Delta { header, entries, bytes });
        rest = behind;
    }
    Some(deltas)
}

/// The delta record of a node in a page whose header has been verified.
pub(crate) fn find(page: &[u8], id: NodeId) -> Option<Delta<'_>> {
    all(page)?.into_iter().find(|delta| delta.node() == id)
}

/// Fills pages with delta records, in order. Each record has a value of type `T` with it.
pub(crate) struct Packed<T> {
    page_size: usize,
    pages: Vec<(Bytes, Vec<T>)>,
    lsn: Lsn,
}

impl<T> Packed<T> {
    pub(crate) fn new(page_size: usize) -> Self {
        Packed { page_size, pages: Vec::new(), lsn: Lsn(0) }
    }

    /// Pages so far.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether this record would go into a page that has others.
    fn joins(&self, delta: &[u8]) -> bool {
        self.pages.last().is_some_and(|(bytes, _)| self.has_room(bytes, delta))
    }

    fn has_room(&self, bytes: &Bytes, delta: &[u8]) -> bool {
        bytes.len() + delta.len() <= self.page_size - PAGE_HEADER
    }

    /// Adds a delta record, the result of [`Changes::encode`] or [`Delta::bytes`].
    pub(crate) fn add(&mut self, delta: &[u8], lsn: Lsn, with: T) {
        if !self.joins(delta) {
            self.seal();
            self.pages.push((Bytes::with_capacity(self.page_size), Vec::new()));
        }
        let (bytes, those) = self.pages.last_mut().expect("one was added if there was none");
        bytes.extend_from_slice(delta);
        those.push(with);
        self.lsn = self.lsn.max(lsn);
    }

    /// Completes the page that is being filled.
    fn seal(&mut self) {
        let lsn = std::mem::take(&mut self.lsn);
        let Some((bytes, those)) = self.pages.last_mut() else { return };
        let mut page = vec![0; self.page_size];
        page[PAGE_HEADER..PAGE_HEADER + bytes.len()].copy_from_slice(bytes);
        write_header(&mut page, PageKind::Deltas, 0, lsn);
        page[56..58].copy_from_slice(&(those.len() as u16).to_le_bytes());
        *bytes = page;
    }

    /// The full pages, and the values of the records in each.
    pub(crate) fn take_full(&mut self) -> (Vec<Bytes>, Vec<Vec<T>>) {
        let filling = self.pages.pop();
        let full = std::mem::take(&mut self.pages);
        self.pages.extend(filling);
        full.into_iter().unzip()
    }

    /// All pages, and the values of the records in each.
    pub(crate) fn take(mut self) -> (Vec<Bytes>, Vec<Vec<T>>) {
        self.seal();
        self.pages.into_iter().unzip()
    }
}

#[cfg(test)]
mod tests;

//! Changes of a leaf since it was last written whole, and pages of such changes.
//!
//! A leaf that has changed in a few entries is not written again: what it has now under the keys that
//! changed goes to a page that it shares with the changes of other leaves, and the MAT names that page
//! beside the whole one, the *base*. Each time all changes since the base are written, so a leaf lies in
//! two pages at most; when they take more than an eighth of a page (then the pages written for a change
//! are about the fewest), or are of a kind that keys do not tell, it is written whole.
//!
//! Which keys have changed is kept with the node in memory, and of each how long its value is, or that it
//! went: so it is known when a leaf is changed what writing it will take. It may be more keys than have
//! changed, never fewer: the value is taken from the page that is written, so that a key too many says
//! what the base says.
//!
//! Changes name their base by its LSN and not by its address: cleaning moves either by itself, and a MAT
//! rebuilt by scanning finds the two again (I-TREE-3). Any bytes may be offered for changes (I-TREE-2).
//!
//! Does no I/O and knows nothing of where pages lie. Inner nodes are always written whole.

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

/// The part of a page that a leaf's changes may take.
pub(crate) const SHARE: usize = 8;
/// As many leaves' changes as a page that is full holds at least. Counted so, nothing that cleaning would have to
/// move is taken for dead; otherwise it would move what lives round and round.
pub(crate) const IN_PAGE_AT_LEAST: u64 = SHARE as u64 - 1;

/// As many as a page of so many bytes holds at most.
pub(crate) fn in_page_at_most(page_size: usize) -> u64 {
    ((page_size - PAGE_HEADER) / (size_of::<DeltaHeader>() + size_of::<DeltaEntry>())) as u64
}

/// The keys under which a leaf may differ from its base.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Each as [`DeltaEntry`] and key: a value as long as it has now, or none.
    keys: Bytes,
    /// Bytes of the values.
    values: usize,
    /// More has changed than is known by key, or it takes more than [`SHARE`] lets it.
    all: bool,
}

impl Changes {
    /// Of a node that has to be written whole.
    pub(crate) fn all() -> Self {
        Changes { all: true, ..Changes::default() }
    }

    /// What is under this key has changed: there is a value of this length, or none any more.
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

    /// Bytes that [`Changes::encode`] gives; none when the leaf has to be written whole.
    pub(crate) fn encoded_bytes(&self) -> Option<usize> {
        (!self.all).then(|| size_of::<DeltaHeader>() + self.keys.len() + self.values)
    }

    /// Where each begins, and how long its value is.
    fn keys(&self) -> impl Iterator<Item = (usize, &[u8], Option<usize>)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let (at, (entry, behind)) = (next, take::<DeltaEntry>(&self.keys[next..])?);
            let (key, value) = (usize::from(entry.key.get()), entry.value.get());
            next += size_of::<DeltaEntry>() + key;
            Some((at, &behind[..key], (value != DELTA_GONE).then_some(value.into())))
        })
    }

    /// More has changed than can be told by key.
    pub(crate) fn note_all(&mut self) {
        *self = Changes::all();
    }

    /// The changes as they are stored, but for the epoch, which [`set_epoch`] sets; `None` when the leaf has to be
    /// written whole. The page is what it was when the last of them was noted.
    pub(crate) fn encode(&self, page: &Page, base: Lsn) -> Option<Bytes> {
        let length = self.encoded_bytes().filter(|_| page.level() == 0)?;
        let header = page.header();
        // With the header before them once it is known.
        let mut bytes = Bytes::with_capacity(length);
        bytes.resize(size_of::<DeltaHeader>(), 0);
        let mut count = 0;
        for (at, key, length) in self.keys() {
            count += 1;
            debug_assert!(length.is_some() || page.search(key).is_err(), "what is gone is not there");
            bytes.extend_from_slice(&self.keys[at..at + size_of::<DeltaEntry>() + key.len()]);
            if let Some(length) = length {
                let index = page.search(key).expect("what was noted as there is there");
                let value = page.value(index);
                assert_eq!(value.len(), length, "the value is as long as it was noted");
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

/// Completes what [`Changes::encode`] gave for the epoch in which it is written.
pub(crate) fn set_epoch(delta: &mut [u8], epoch: Epoch) {
    let at = std::mem::offset_of!(DeltaHeader, epoch);
    delta[at..at + size_of::<U64>()].copy_from_slice(&epoch.0.to_le_bytes());
}

/// Of changes as they are stored: the leaf's group, and the LSN of what it was then.
pub(crate) fn of_what(delta: &[u8]) -> (Group, Lsn) {
    let (header, _) = take::<DeltaHeader>(delta).expect("changes have a header");
    (Group(header.group.get()), Lsn(header.lsn.get()))
}

/// One leaf's changes as they are stored.
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

    /// Whether this is the page that the changes are to.
    pub(crate) fn is_to(&self, page: &Page) -> bool {
        let header = page.header();
        header.level == 0
            && (header.id, header.lsn, header.group)
                == (self.header.node, self.header.base, self.header.group)
    }

    /// Changes the base; the keys under which it then may differ from what is on the device. `None` when
    /// these are no changes to that page.
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
        // What goes goes first: then what comes has room at every step.
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

/// All changes in a page whose header has been checked; `None` when they are not well formed.
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

/// A node's changes in a page whose header has been checked.
pub(crate) fn find(page: &[u8], id: NodeId) -> Option<Delta<'_>> {
    all(page)?.into_iter().find(|delta| delta.node() == id)
}

/// Fills pages with the changes of leaves, in turn; `T` goes with each.
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

    /// Whether these changes would go into a page that has others.
    fn joins(&self, delta: &[u8]) -> bool {
        self.pages.last().is_some_and(|(bytes, _)| self.has_room(bytes, delta))
    }

    fn has_room(&self, bytes: &Bytes, delta: &[u8]) -> bool {
        bytes.len() + delta.len() <= self.page_size - PAGE_HEADER
    }

    /// Adds a leaf's changes, which [`Changes::encode`] or [`Delta::bytes`] gave.
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

    /// The pages that take no more, and what went with the changes in each.
    pub(crate) fn take_full(&mut self) -> (Vec<Bytes>, Vec<Vec<T>>) {
        let filling = self.pages.pop();
        let full = std::mem::take(&mut self.pages);
        self.pages.extend(filling);
        full.into_iter().unzip()
    }

    /// The pages, and what went with the changes in each.
    pub(crate) fn take(mut self) -> (Vec<Bytes>, Vec<Vec<T>>) {
        self.seal();
        self.pages.into_iter().unzip()
    }
}

#[cfg(test)]
mod tests;

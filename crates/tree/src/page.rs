//! A node's page: sorted cells in a buffer that is the same in memory and on the device.
//!
//! ```text
//! | header 64 | slot 0 | slot 1 | … →      free      ← … | cell | cell |
//! ```
//! A slot is the offset of its cell; a cell is key length, value length, key, value. Cells of removed entries leave
//! holes that are closed when space is needed. A page that came from the device was verified as a whole
//! ([`Page::load`]), so no later access can leave it.
//!
//! Not on the device are the heads: the first bytes of each key behind the prefix that all keys share. They lie
//! together in memory. A search goes over the heads and then reads a cell or two.
//!
//! In a leaf the key begins with the number of its table. In an inner node the value is the id of a
//! child, the key the smallest that may be below it, and the first key is empty.

use std::sync::Arc;

use pool::Lsn;
use smallvec::SmallVec;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};
use zone::{PageBuffer, Pages};

use crate::format::{KEY_MAX, NODE_PREPAID, PAGE_HEADER, PageHeader, PageKind, take};
use crate::types::{Group, NodeId, PREPAID};

const CELL_HEADER: usize = 4;
const SLOT: usize = 2;
/// The offset of the flags in the header.
const FLAGS: usize = std::mem::offset_of!(PageHeader, flags);
/// The bytes that a processor reads from memory at once.
const LINE: usize = 64;
/// The largest page, because a slot has 16 bits for the offset of its cell.
const BYTES_MAX: usize = 1 << 16;

/// A node in memory.
#[derive(Clone)]
pub struct Page {
    bytes: PageBuffer,
    /// As in the header. Here a search needs no access to the header's memory.
    group: Group,
    level: u8,
    /// Bytes of used slots and cells, at most the page less its header.
    used: usize,
    /// The common prefix of all keys, except the first key of an inner node.
    prefix: SmallVec<[u8; 24]>,
    /// For each entry, in order, the next bytes of its key ([`head`]).
    heads: Vec<u16>,
}

/// The longest value in pages of this size: two cells always fit in a page, so that a full one can be split.
pub(crate) fn value_max(page_size: usize) -> usize {
    page_size / 16 * 5 - KEY_MAX / 4
}

impl Page {
    /// An empty node.
    pub(crate) fn new(pages: &Arc<Pages>, id: NodeId, group: Group, level: u8) -> Self {
        let header = PageHeader {
            checksum: U32::ZERO,
            magic: [0; 4],
            fs_id: [0; 16],
            id: U64::new(id.0),
            lsn: U64::ZERO,
            epoch: U64::ZERO,
            life: U32::ZERO,
            group: U16::new(group.0),
            kind: PageKind::Node as u8,
            level,
            entries: U16::ZERO,
            flags: U16::ZERO,
            cells: U32::new(pages.page_size() as u32),
        };
        let mut bytes = pages.zeroed();
        bytes[..PAGE_HEADER].copy_from_slice(header.as_bytes());
        Page { bytes, group, level, used: 0, prefix: SmallVec::new(), heads: Vec::new() }
    }

    /// A node from a page that was read and whose header has been verified. `None` if its contents are not those of a
    /// node.
    pub fn load(bytes: PageBuffer) -> Option<Self> {
        let (header, _) = take::<PageHeader>(&bytes)?;
        let (group, level) = (Group(header.group.get()), header.level);
        let mut page = Page { bytes, group, level, used: 0, prefix: SmallVec::new(), heads: Vec::new() };
        let longest = value_max(page.bytes.len());
        let slots_end = PAGE_HEADER + page.count() * SLOT;
        if slots_end > page.bytes.len() || page.cells() > page.bytes.len() || page.cells() < slots_end {
            return None;
        }
        for index in 0..page.count() {
            let at = page.slot(index);
            let header = page.bytes.get(at..at + CELL_HEADER).filter(|_| at >= page.cells())?;
            let (key, value) = cell_lengths(header);
            let is_kept = key <= KEY_MAX && if page.level() > 0 { value == 8 } else { value <= longest };
            if at + CELL_HEADER + key + value > page.bytes.len() || !is_kept {
                return None;
            }
            page.used += SLOT + CELL_HEADER + key + value;
        }
        if !page.cells_lie_apart() {
            return None;
        }
        let sorted = (1..page.count()).all(|index| page.key(index - 1) < page.key(index));
        let fits = page.used <= page.bytes.len() - PAGE_HEADER;
        let first = match page.level() {
            0 => page.count() == 0 || !page.key(0).is_empty(),
            _ => page.count() > 0 && page.key(0).is_empty(),
        };
        if !(sorted && fits && first) {
            return None;
        }
        page.take_heads();
        Some(page)
    }

    /// Copies another page into this page's memory.
    pub(crate) fn copy_from(&mut self, other: &Page) {
        self.bytes.clone_from(&other.bytes);
        self.heads.clone_from(&other.heads);
        self.prefix.clone_from(&other.prefix);
        (self.group, self.level, self.used) = (other.group, other.level, other.used);
    }

    /// Whether no two cells overlap. Otherwise a change in one cell would change the other.
    fn cells_lie_apart(&self) -> bool {
        let mut begins = [0_u64; BYTES_MAX / 64];
        for index in 0..self.count() {
            let at = self.slot(index);
            if begins[at / 64] & 1 << (at % 64) != 0 {
                return false;
            }
            begins[at / 64] |= 1 << (at % 64);
        }
        let mut end = 0;
        for (word, mut bits) in begins[..self.bytes.len().div_ceil(64)].iter().copied().enumerate() {
            while bits != 0 {
                let at = word * 64 + bits.trailing_zeros() as usize;
                let (key, value) = cell_lengths(&self.bytes[at..at + CELL_HEADER]);
                if at < end {
                    return false;
                }
                end = at + CELL_HEADER + key + value;
                bits &= bits - 1;
            }
        }
        true
    }

    /// The bytes, header included.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn header(&self) -> PageHeader {
        take::<PageHeader>(&self.bytes).expect("a page is longer than its header").0
    }

    pub(crate) fn set_lsn(&mut self, lsn: Lsn) {
        self.bytes[32..40].copy_from_slice(&lsn.0.to_le_bytes());
    }

    /// Whether it is marked as a node of [`PREPAID`].
    pub(crate) fn is_prepaid(&self) -> bool {
        self.header().flags.get() & NODE_PREPAID != 0
    }

    pub(crate) fn set_prepaid(&mut self, is_prepaid: bool) {
        let flags = self.header().flags.get() & !NODE_PREPAID | if is_prepaid { NODE_PREPAID } else { 0 };
        self.bytes[FLAGS..FLAGS + 2].copy_from_slice(&flags.to_le_bytes());
    }

    /// Whether it leads only to keys of [`PREPAID`]. No table comes before that one.
    pub(crate) fn leads_to_prepaid(&self) -> bool {
        self.count().checked_sub(1).is_some_and(|last| self.key(last).first() == Some(&PREPAID.0))
    }

    /// The level of the node above the leaves.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// The group in whose tree it is.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[56], self.bytes[57]]))
    }

    fn set_count(&mut self, count: usize) {
        let count = u16::try_from(count).expect("a page of 64 KiB has fewer than 65536 slots");
        self.bytes[56..58].copy_from_slice(&count.to_le_bytes());
    }

    /// Where the cells begin.
    fn cells(&self) -> usize {
        u32::from_le_bytes([self.bytes[60], self.bytes[61], self.bytes[62], self.bytes[63]]) as usize
    }

    fn set_cells(&mut self, cells: usize) {
        self.bytes[60..64].copy_from_slice(&(cells as u32).to_le_bytes());
    }

    fn slot(&self, index: usize) -> usize {
        let at = PAGE_HEADER + index * SLOT;
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    fn cell(&self, index: usize) -> (usize, usize, usize) {
        let at = self.slot(index);
        let (key, value) = cell_lengths(&self.bytes[at..at + CELL_HEADER]);
        (at + CELL_HEADER, key, value)
    }

    /// Bytes of an entry, including its slot.
    pub(crate) fn entry_bytes(&self, index: usize) -> usize {
        let (_, key, value) = self.cell(index);
        SLOT + CELL_HEADER + key + value
    }

    /// The key of an entry.
    pub fn key(&self, index: usize) -> &[u8] {
        let (at, key, _) = self.cell(index);
        &self.bytes[at..at + key]
    }

    /// The value of an entry.
    pub fn value(&self, index: usize) -> &[u8] {
        let (at, key, value) = self.cell(index);
        &self.bytes[at + key..at + key + value]
    }

    /// The child of an entry of an inner node.
    pub fn child(&self, index: usize) -> NodeId {
        NodeId(u64::from_le_bytes(self.value(index).try_into().expect("checked when loaded")))
    }

    /// The entry with this key, or where it would be.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = self.likely(key);
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The place of the key by its head, and the end of the entries with an equal head.
    fn likely(&self, key: &[u8]) -> (usize, usize) {
        if self.level == 0 {
            self.warm();
        }
        let first = usize::from(self.level > 0).min(self.heads.len());
        match key.strip_prefix(self.prefix.as_slice()) {
            Some(rest) if first == 0 || !key.is_empty() => {
                let head = head(rest);
                let low = first + self.heads[first..].partition_point(|its| *its < head);
                let alike = self.heads[low..].partition_point(|its| *its == head);
                (low, low + alike)
            }
            _ => (0, self.heads.len()),
        }
    }

    /// Touches all memory that a search reads, at once. For a leaf outside the processor caches, a search would
    /// otherwise wait for each line separately.
    fn warm(&self) {
        let heads = self.heads.iter().step_by(LINE / size_of::<u16>()).fold(0, |all, head| all ^ head);
        let slots = &self.bytes[PAGE_HEADER..PAGE_HEADER + self.heads.len() * SLOT];
        std::hint::black_box((heads, slots.iter().step_by(LINE).fold(0, |all, byte| all ^ byte)));
    }

    /// The first key of an inner node is empty.
    fn first_with_prefix(&self) -> usize {
        usize::from(self.level() > 0).min(self.count())
    }

    /// Computes the common prefix of the keys and their heads.
    fn take_heads(&mut self) {
        let (first, count) = (self.first_with_prefix(), self.count());
        self.prefix.clear();
        if first < count {
            let (low, high) = (self.key(first), self.key(count - 1));
            let common = low.iter().zip(high).take_while(|(low, high)| low == high).count();
            self.prefix = SmallVec::from_slice(&low[..common]);
        }
        let behind = |index| self.key(index).get(self.prefix.len()..).map_or(0, head);
        self.heads = (0..count).map(behind).collect();
    }

    /// The entry of an inner node below which `key` belongs.
    pub(crate) fn branch(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(index) => index,
            Err(index) => index - 1,
        }
    }

    /// Bytes of used slots and cells.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Whether it should be merged with a neighbour.
    pub(crate) fn is_small(&self) -> bool {
        self.used < self.capacity() / 4
    }

    /// Bytes that slots and cells may take.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len() - PAGE_HEADER
    }

    /// Whether an entry of these lengths fits.
    pub(crate) fn fits(&self, key: usize, value: usize) -> bool {
        self.used + SLOT + CELL_HEADER + key + value <= self.capacity()
    }

    /// The bytes by which an entry of these lengths enlarges the page. `found` is the result of [`Page::search`] for
    /// its key.
    pub(crate) fn growth(&self, found: Result<usize, usize>, key: usize, value: usize) -> isize {
        let goes = found.map_or(0, |index| self.entry_bytes(index));
        (SLOT + CELL_HEADER + key + value) as isize - goes as isize
    }

    /// Bytes that are free for slots and cells.
    pub(crate) fn room(&self) -> isize {
        (self.capacity() - self.used) as isize
    }

    /// Puts an entry that fits. `found` is the result of [`Page::search`] for its key.
    pub(crate) fn put(&mut self, found: Result<usize, usize>, key: &[u8], value: &[u8]) {
        let (Ok(index) | Err(index)) = found;
        if found.is_ok() {
            let (at, key, old) = self.cell(index);
            if old == value.len() {
                return self.bytes[at + key..at + key + old].copy_from_slice(value);
            }
            self.remove(index);
        }
        self.insert(index, key, value);
    }

    /// Inserts an entry that fits, as the `index`-th.
    pub(crate) fn insert(&mut self, index: usize, key: &[u8], value: &[u8]) {
        assert!(self.fits(key.len(), value.len()), "the caller splits a page that is full");
        let (count, need) = (self.count(), CELL_HEADER + key.len() + value.len());
        let slots_end = PAGE_HEADER + count * SLOT;
        if self.cells() < slots_end + SLOT + need {
            self.compact();
        }
        let at = self.cells() - need;
        self.bytes[at..at + 2].copy_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes[at + 2..at + 4].copy_from_slice(&(value.len() as u16).to_le_bytes());
        self.bytes[at + 4..at + 4 + key.len()].copy_from_slice(key);
        self.bytes[at + 4 + key.len()..at + need].copy_from_slice(value);
        let slot = PAGE_HEADER + index * SLOT;
        self.bytes.copy_within(slot..slots_end, slot + SLOT);
        self.bytes[slot..slot + SLOT].copy_from_slice(&(at as u16).to_le_bytes());
        self.set_cells(at);
        self.set_count(count + 1);
        self.used += SLOT + need;
        match key.strip_prefix(self.prefix.as_slice()) {
            // The common prefix is recomputed now and then, because it may have become longer.
            Some(rest) if !(count + 1).is_power_of_two() => self.heads.insert(index, head(rest)),
            _ => self.take_heads(),
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, index: usize) {
        let (at, key, value) = self.cell(index);
        let count = self.count();
        if at - CELL_HEADER == self.cells() {
            self.set_cells(at + key + value);
        }
        let slot = PAGE_HEADER + index * SLOT;
        self.bytes.copy_within(slot + SLOT..PAGE_HEADER + count * SLOT, slot);
        self.heads.remove(index);
        self.set_count(count - 1);
        self.used -= SLOT + CELL_HEADER + key + value;
    }

    /// Moves the entries from `at` on to the end of `to`, which is an empty page or the left neighbour.
    pub(crate) fn move_entries(&mut self, at: usize, to: &mut Page) {
        for index in at..self.count() {
            to.insert(to.count(), self.key(index), self.value(index));
        }
        for index in (at..self.count()).rev() {
            self.remove(index);
        }
        self.take_heads();
    }

    /// Where to split so that both halves have space for one more entry of the greatest size. A split at the end (for
    /// keys that only grow) leaves the left page full.
    pub(crate) fn split_point(&self, insert_at: usize) -> usize {
        let count = self.count();
        assert!(count >= 2, "two of the longest cells fit in a page");
        if insert_at == count {
            return count - 1;
        }
        let mut bytes = 0;
        for index in 0..count {
            bytes += self.entry_bytes(index);
            if bytes * 2 >= self.used {
                return (index + 1).min(count - 1).max(1);
            }
        }
        count - 1
    }

    fn compact(&mut self) {
        let mut end = self.bytes.len();
        let old = self.bytes.to_vec();
        for index in 0..self.count() {
            let at = self.slot(index);
            let (key, value) = cell_lengths(&old[at..at + CELL_HEADER]);
            let length = CELL_HEADER + key + value;
            end -= length;
            self.bytes[end..end + length].copy_from_slice(&old[at..at + length]);
            let slot = PAGE_HEADER + index * SLOT;
            self.bytes[slot..slot + SLOT].copy_from_slice(&(end as u16).to_le_bytes());
        }
        let slots_end = PAGE_HEADER + self.count() * SLOT;
        self.bytes[slots_end..end].fill(0);
        self.set_cells(end);
    }
}

/// The first two bytes of a key behind the prefix, as a number that sorts like the key.
fn head(rest: &[u8]) -> u16 {
    let byte = |index| rest.get(index).copied().unwrap_or(0);
    u16::from_be_bytes([byte(0), byte(1)])
}

fn cell_lengths(header: &[u8]) -> (usize, usize) {
    let key = usize::from(u16::from_le_bytes([header[0], header[1]]));
    let value = usize::from(u16::from_le_bytes([header[2], header[3]]));
    (key, value)
}

#[cfg(test)]
mod tests;

//! Decoders of the pages in metadata zones, for a program that has neither log nor checkpoint record.
//!
//! A page states its kind, number, epoch and LSN (I-TREE-3). So the tables can be rebuilt from pages alone; the crate
//! `polder-salvage` does that. These functions do no I/O. They accept any bytes (I-TREE-2), but except for
//! [`page_header`] they expect a page whose header has been verified.

use pool::{Lsn, ZoneEntry};
use zerocopy::FromBytes;
use zone::{Address, FsId, Life};

use crate::delta;
use crate::format::{self, DirectoryEntry, PAGE_HEADER, ZitEntry, entries_per_page, loaded};
use crate::types::{Bytes, Group, Table};

pub use crate::format::PageKind;
pub use crate::mat::{MatLayout, Place};
pub use crate::page::Page;
pub use crate::types::NodeId;

/// What a page states about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The number of its [`PageKind`], or one that this release does not know.
    pub kind: u8,
    /// The number of the node, chunk or directory; 0 in a page of delta records.
    pub id: u64,
    /// The group of a node.
    pub group: Group,
    /// The level of a node; 0: a leaf.
    pub level: u8,
    /// The life of the zone when the page was written.
    pub life: Life,
    /// The epoch in which it was written.
    pub epoch: u64,
    /// The last transaction in it.
    pub lsn: Lsn,
}

/// What the delta records of one leaf state about themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeader {
    /// The leaf.
    pub node: NodeId,
    /// Its group.
    pub group: Group,
    /// The epoch in which they were written.
    pub epoch: u64,
    /// The last transaction in them.
    pub lsn: Lsn,
    /// The LSN of the base page.
    pub base: Lsn,
}

/// The header of a page whose checksum, magic number and volume are right.
pub fn page_header(page: &[u8], fs_id: FsId) -> Option<PageHeader> {
    let header = format::decode_page(page, fs_id)?;
    Some(PageHeader {
        kind: header.kind,
        id: header.id.get(),
        group: Group(header.group.get()),
        level: header.level,
        life: Life(header.life.get()),
        epoch: header.epoch.get(),
        lsn: Lsn(header.lsn.get()),
    })
}

/// The headers of all delta records in a page; none if the page is not well formed.
pub fn delta_headers(page: &[u8]) -> Vec<DeltaHeader> {
    let header = |delta: delta::Delta<'_>| DeltaHeader {
        node: delta.node(),
        group: Group(delta.header.group.get()),
        epoch: delta.header.epoch.get(),
        lsn: Lsn(delta.header.lsn.get()),
        base: Lsn(delta.header.base.get()),
    };
    delta::all(page).unwrap_or_default().into_iter().map(header).collect()
}

/// Applies the delta records of a leaf from a page of them to its base page. False if the page has none for this base
/// page, or if they are not well formed.
#[must_use]
pub fn apply_delta(deltas: &[u8], base: &mut Page) -> bool {
    let id = NodeId(base.header().id.get());
    let delta = delta::find(deltas, id).filter(|delta| delta.is_to(base));
    delta.and_then(|delta| delta.apply(base)).is_some()
}

/// How many chunks one page of a directory lists.
pub fn chunks_per_directory(page_size: usize) -> u64 {
    entries_per_page(page_size, size_of::<DirectoryEntry>()) as u64
}

/// The addresses of chunks that a page of a directory lists, in the order of the chunks' numbers.
pub fn chunk_addresses(directory: &[u8]) -> Vec<Address> {
    entries::<DirectoryEntry>(directory).map(|entry| Address::from_bits(entry.address.get())).collect()
}

/// The entries of zones in a chunk of the ZIT, in the order of their numbers; none where the role is unknown.
pub fn zone_entries(chunk: &[u8]) -> Vec<Option<ZoneEntry>> {
    entries::<ZitEntry>(chunk).map(|entry| loaded(&entry)).collect()
}

/// The key of a row in the tree of its group: the number of the table, then the key in the table.
pub fn tree_key(table: Table, key: &[u8]) -> Bytes {
    crate::types::tree_key(table, key).into_vec()
}

/// The entries behind the header of a page.
fn entries<T: FromBytes>(page: &[u8]) -> impl Iterator<Item = T> {
    let entries = page.get(PAGE_HEADER..).unwrap_or_default().chunks_exact(size_of::<T>());
    entries.map(|bytes| T::read_from_bytes(bytes).expect("chunks of the entry's size"))
}

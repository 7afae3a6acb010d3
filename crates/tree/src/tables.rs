//! The tables that a checkpoint writes: chunks of the MAT and the ZIT, and their directories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool::Lsn;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};
use zone::{Address, Cause, PageBuffer};

use crate::format::{
    DirectoryEntry, PAGE_HEADER, PageHeader, PageKind, entries_per_page, stored, write_header,
};
use crate::mat::{ChunkPlace, Place};
use crate::metadata_zone::MetadataZone;
use crate::nodes::{Nodes, PAGES_AT_ONCE};
use crate::types::{Epoch, NodeId, Result, StoreError};
use crate::volume::Volume;

/// About how many directory pages a checkpoint writes in a volume that has few of them.
const DIRECTORY_PAGES: u64 = 4;

/// Where the tables of the last checkpoint lie, and what the next one writes although nothing in it changed. The MAT
/// itself has the places of its chunks.
pub(crate) struct Tables {
    volume: Arc<Volume>,
    nodes: Arc<Nodes>,
    zit_chunks: Vec<ChunkPlace>,
    mat_directories: Vec<Address>,
    zit_directories: Vec<Address>,
    move_mat_chunks: BTreeSet<u64>,
    move_directories: bool,
}

impl Tables {
    /// The tables of a volume without a checkpoint.
    pub(crate) fn new(volume: Arc<Volume>, nodes: Arc<Nodes>) -> Self {
        Tables {
            volume,
            nodes,
            zit_chunks: Vec::new(),
            mat_directories: Vec::new(),
            zit_directories: Vec::new(),
            move_mat_chunks: BTreeSet::new(),
            move_directories: false,
        }
    }

    /// The tables of the checkpoint from which recovery starts.
    pub(crate) fn load(
        &mut self,
        zit: Vec<ChunkPlace>,
        mat_directories: &[Address],
        zit_directories: &[Address],
    ) {
        self.zit_chunks = zit;
        self.mat_directories = mat_directories.to_vec();
        self.zit_directories = zit_directories.to_vec();
    }

    #[cfg(test)]
    pub(crate) fn move_mat_chunks(&mut self, chunks: std::ops::Range<u64>) {
        self.move_mat_chunks.extend(chunks);
    }

    /// The directory pages of the MAT and of the ZIT.
    pub(crate) fn directories(&self) -> [&[Address]; 2] {
        [&self.mat_directories, &self.zit_directories]
    }

    /// The chunks of the ZIT.
    pub(crate) fn zit_chunks(&self) -> impl Iterator<Item = Address> {
        self.zit_chunks.iter().map(|chunk| chunk.address)
    }

    /// Blocks of tables and directories that a checkpoint writes when `changed` nodes have changed and `moved` blocks
    /// have been moved.
    pub(crate) fn blocks(&self, changed: usize, moved: u64) -> u64 {
        let page = self.volume.page_blocks();
        let mat_chunks = self.nodes.mat.chunks_len().min(changed as u64 + moved / page);
        let directories =
            mat_chunks.min(self.mat_directories.len() as u64) + self.zit_directories.len() as u64;
        (mat_chunks + self.zit_chunks.len() as u64 + directories.max(DIRECTORY_PAGES)) * page
    }

    /// The next checkpoint rewrites chunks and directory pages.
    pub(crate) fn move_at_next_checkpoint(&mut self, at: Address, header: &PageHeader) {
        let number = header.id.get();
        if header.kind == PageKind::MatChunk as u8 && self.nodes.mat.chunk(number).address == at {
            self.move_mat_chunks.insert(number);
        } else {
            self.save_from_memory(at);
        }
    }

    /// Marks a ZIT chunk or a directory page at this address for the next checkpoint. Memory has all its contents.
    pub(crate) fn save_from_memory(&mut self, at: Address) {
        if let Some(number) = self.zit_chunks.iter().position(|place| place.address == at) {
            self.volume.pool.save_chunk(number as u64);
        } else if self.mat_directories.contains(&at) || self.zit_directories.contains(&at) {
            self.move_directories = true;
        }
    }

    /// Merges the overlay of the epoch that is being saved into the chunks, and appends these.
    pub(crate) fn write_mat(
        &mut self,
        zone: &mut MetadataZone,
        lsn: Lsn,
        epoch: Epoch,
    ) -> Result<Vec<(u64, ChunkPlace)>> {
        let mut by_chunk: BTreeMap<u64, Vec<(NodeId, Place)>> = BTreeMap::new();
        for (id, place) in self.nodes.mat.saving() {
            by_chunk.entry(id.0 / self.nodes.mat.per_chunk()).or_default().push((id, place));
        }
        for number in std::mem::take(&mut self.move_mat_chunks) {
            by_chunk.entry(number).or_default();
        }
        let mut written = Vec::new();
        let all: Vec<_> = by_chunk.into_iter().collect();
        for some in all.chunks(PAGES_AT_ONCE) {
            let _held = self.nodes.pin_numbered_chunks(some.iter().map(|(number, _)| *number));
            let mut pages = Vec::new();
            let mut used = Vec::new();
            for (number, changes) in some {
                let (page, count) = self.merge_chunk(*number, changes, lsn)?;
                pages.push(page);
                used.push(count);
            }
            let places = zone.append(&mut pages, epoch, Cause::Checkpoint)?;
            for ((((number, _), page), used), address) in some.iter().zip(pages).zip(used).zip(places) {
                self.volume.pool.add_page(address.zone());
                written.push((*number, ChunkPlace { address, used }));
                self.nodes.cache_chunk(*number, address, Arc::new(page));
            }
        }
        Ok(written)
    }

    fn merge_chunk(&self, number: u64, changes: &[(NodeId, Place)], lsn: Lsn) -> Result<(PageBuffer, u32)> {
        let place = self.nodes.mat.chunk(number);
        let old = self.nodes.chunk_for_checkpoint(number, place.address)?;
        let old = old.expect("chunks move only under the checkpoint lock");
        let mut page = self.nodes.checkpoint_page();
        page.copy_from_slice(&old);
        write_header(&mut page, PageKind::MatChunk, number, lsn);
        let mut used = place.used;
        for &(id, now) in changes {
            let index = (id.0 % self.nodes.mat.per_chunk()) as usize;
            let before = self.nodes.mat.place_in(&page, index);
            let counted = self.volume.pool.merge_copy(before.copy(), -1)
                && self.volume.pool.merge_copy(now.copy(), 1)
                && (used > 0 || before.is_nowhere());
            if !counted {
                return Err(StoreError::Corrupt(format!(
                    "MAT chunk {number} contradicts the ZIT: node {} was at {} and is at {}",
                    id.0, before.at, now.at
                )));
            }
            // From now on the chunk counts this copy, and the overlay no longer does.
            self.volume.pool.remove_copy(now.copy());
            used = used + u32::from(!now.is_nowhere()) - u32::from(!before.is_nowhere());
            self.nodes.mat.set_in(&mut page, index, now);
        }
        Ok((page, used))
    }

    pub(crate) fn write_zit(
        &mut self,
        zone: &mut MetadataZone,
        lsn: Lsn,
        epoch: Epoch,
    ) -> Result<Vec<(u64, ChunkPlace)>> {
        let changed = self.volume.pool.encode_changed(|entries| {
            entries.iter().flat_map(|entry| stored(entry).as_bytes().to_vec()).collect()
        });
        let mut written = Vec::new();
        for some in changed.chunks(PAGES_AT_ONCE) {
            let page = |(number, entries): &(u64, Vec<u8>)| {
                let mut page = vec![0; self.volume.page_size()];
                page[PAGE_HEADER..PAGE_HEADER + entries.len()].copy_from_slice(entries);
                write_header(&mut page, PageKind::ZitChunk, *number, lsn);
                page
            };
            let mut pages: Vec<_> = some.iter().map(page).collect();
            let places = zone.append(&mut pages, epoch, Cause::Checkpoint)?;
            for ((number, _), address) in some.iter().zip(places) {
                self.volume.pool.add_page(address.zone());
                written.push((*number, ChunkPlace { address, used: 0 }));
            }
        }
        Ok(written)
    }

    /// Appends the directory pages that changed. Returns the addresses of their predecessors, which are dead once the
    /// checkpoint is durable.
    pub(crate) fn write_directories(
        &mut self,
        zone: &mut MetadataZone,
        mat: &[(u64, ChunkPlace)],
        zit: &[(u64, ChunkPlace)],
        (lsn, epoch): (Lsn, Epoch),
    ) -> Result<Vec<Address>> {
        let mut mat_chunks = self.nodes.mat.chunks();
        let mut old = replace_chunks(&mut mat_chunks, mat);
        old.extend(replace_chunks(&mut self.zit_chunks, zit));
        let all = std::mem::take(&mut self.move_directories);
        let directories = [
            (PageKind::MatDirectory, &mat_chunks, mat, &mut self.mat_directories),
            (PageKind::ZitDirectory, &self.zit_chunks, zit, &mut self.zit_directories),
        ];
        for (kind, chunks, changed, directory) in directories {
            let per_page = entries_per_page(self.volume.page_size(), size_of::<DirectoryEntry>());
            let mut numbers: BTreeSet<usize> =
                changed.iter().map(|(number, _)| *number as usize / per_page).collect();
            if all {
                numbers.extend(0..directory.len());
            }
            let page = |number: &usize| {
                let last = ((number + 1) * per_page).min(chunks.len());
                let mut page = vec![0; self.volume.page_size()];
                list_chunks(&mut page, &chunks[number * per_page..last]);
                write_header(&mut page, kind, *number as u64, lsn);
                page
            };
            let mut pages: Vec<_> = numbers.iter().map(page).collect();
            let places = zone.append(&mut pages, epoch, Cause::Checkpoint)?;
            directory.resize(chunks.len().div_ceil(per_page), Address::NONE);
            assert_eq!(places.len(), numbers.len(), "each page of a directory has an address");
            for (number, address) in numbers.into_iter().zip(places) {
                self.volume.pool.add_page(address.zone());
                old.push(std::mem::replace(&mut directory[number], address));
            }
        }
        Ok(old)
    }
}

/// Writes the entries of a directory page.
fn list_chunks(page: &mut [u8], chunks: &[ChunkPlace]) {
    for (index, place) in chunks.iter().enumerate() {
        let (address, used) = (U64::new(place.address.bits()), U32::new(place.used));
        let at = PAGE_HEADER + index * size_of::<DirectoryEntry>();
        page[at..at + size_of::<DirectoryEntry>()]
            .copy_from_slice(DirectoryEntry { address, used, reserved: U32::ZERO }.as_bytes());
    }
}

/// Replaces the places of written chunks, and returns the addresses before.
fn replace_chunks(chunks: &mut Vec<ChunkPlace>, written: &[(u64, ChunkPlace)]) -> Vec<Address> {
    let replaced = written.iter().map(|(number, place)| {
        let index = *number as usize;
        assert!(!place.address.is_none(), "chunk {number} was written");
        if chunks.len() <= index {
            chunks.resize(index + 1, ChunkPlace::default());
        }
        std::mem::replace(&mut chunks[index], *place).address
    });
    replaced.collect()
}

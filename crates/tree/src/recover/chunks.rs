//! Reading the chunks of a table at a mount.
//!
//! A checkpoint writes the changed chunks one behind the other, so most of a table lies in few places. Consecutive
//! chunks are read at once: on a disk each place costs a movement of the arm. Chunks that cannot be read together, or
//! that are not valid, are read separately.

use crate::core::Core;
use crate::format::PageKind;
use crate::mat::ChunkPlace;
use crate::types::Result;
use zone::Address;

/// Bytes that are read at once, at most.
const READ_BYTES: usize = 1 << 20;

/// A chunk and its number.
type Chunk = (Address, usize);

impl Core {
    /// Passes every existing chunk to the caller, in the order of addresses.
    pub(super) fn each_chunk(
        &self,
        kind: PageKind,
        places: &[ChunkPlace],
        mut each: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let places = places.iter().map(|place| place.address).zip(0..);
        let mut chunks: Vec<Chunk> = places.filter(|(at, _)| !at.is_none()).collect();
        chunks.sort_unstable_by_key(|(at, _)| (at.zone(), at.block()));
        let page_blocks = self.volume.page_blocks();
        let follows = |&(one, _): &Chunk, &(other, _): &Chunk| {
            one.zone() == other.zone() && u64::from(one.block()) + page_blocks == u64::from(other.block())
        };
        let most = (READ_BYTES / self.volume.page_size()).max(1);
        let runs = chunks.chunk_by(follows).flat_map(|run| run.chunks(most));
        runs.into_iter().try_for_each(|run| self.each_of_run(kind, run, &mut each))
    }

    fn each_of_run(
        &self,
        kind: PageKind,
        run: &[Chunk],
        each: &mut impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (first, _) = run[0];
        let mut bytes = vec![0; run.len() * self.volume.page_size()];
        let is_read = self.volume.device.read(first.zone(), first.block(), &mut bytes).is_ok();
        for (&(at, number), page) in run.iter().zip(bytes.chunks(self.volume.page_size())) {
            let is_right = is_read && self.nodes.check_page(page, at, kind, number as u64).is_ok();
            match is_right {
                true => each(number, page)?,
                false => each(number, &self.nodes.read_page(self.nodes.page()?, at, kind, number as u64)?)?,
            }
        }
        Ok(())
    }
}

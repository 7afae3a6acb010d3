//! How much of an object one transaction changes.
//!
//! A transaction is no longer than the log takes in one piece, which is little where zones are small. So whatever
//! changes many extents does it in steps: those that take away or double what is there count extents and bytes
//! ([`Extents::end_of_part`]), and who writes over what is there asks first how far he may go
//! ([`Extents::blocks_per_tx`]).

use std::collections::BTreeSet;

use crate::map::View;
use crate::{Extents, Object, Result};

/// Bytes of a row in a transaction, its checksums aside, at most.
pub(crate) const ROW_BYTES: usize = 64;
/// Bytes by which a transaction says that an extent, or a resident block, is gone, and from which zone.
pub(crate) const GONE_BYTES: usize = 40;
/// What a transaction holds beside rows of blocks: the inode, its intent, and what is left of two extents that are cut.
const OTHER_BYTES: usize = 4096;

impl Extents {
    /// Where a step ends that takes away or doubles what a view has: as much as one transaction takes beside another
    /// such step.
    pub(crate) fn end_of_part(&self, view: &View, limit: usize) -> Result<Option<u64>> {
        view.end_of_part(limit, self.part_bytes_max(), |extent| self.bytes_of_reference(extent))
    }

    pub(crate) fn part_bytes_max(&self) -> usize {
        self.store.tx_bytes_max() / 4
    }

    /// As many of `limit` rows as a step may change.
    pub(crate) fn part_rows_max(&self, limit: usize) -> usize {
        limit.min(self.part_bytes_max() / ROW_BYTES).max(1)
    }

    /// How many blocks from `from` on, at least one, may be written in one transaction over what the object has there;
    /// `may_refer`: to blocks of others, too. Nobody may change the object until they are.
    ///
    /// It looks at what is there only where that could be too much.
    pub fn blocks_per_tx(&self, object: Object, (from, to): (u64, u64), may_refer: bool) -> Result<u64> {
        let most = self.tx_bytes_for_blocks();
        let to = to.min(from + (most / 2 / self.bytes_of_new_block()).max(1));
        if !may_refer && self.fit_in_one_tx(to - from) {
            return Ok(to - from);
        }
        let left = most.saturating_sub((to - from) * self.bytes_of_new_block());
        let (_lock, view) = self.lock_view(object, (from, to), usize::MAX, BTreeSet::new())?;
        let (mut of_references, mut all) = (0, 0);
        for Replaced { block, bytes, is_reference } in self.replaced(&view)? {
            of_references += if is_reference { bytes } else { 0 };
            all += bytes;
            if block > from && (of_references > self.part_bytes_max() || all as u64 > left) {
                return Ok(block - from);
            }
        }
        Ok(to - from)
    }

    /// Whether one transaction can replace this number of blocks that refer to no other object, however the object has them.
    pub(crate) fn fit_in_one_tx(&self, blocks: u64) -> bool {
        // For each block at worst an extent is removed, and an inline block above it.
        blocks * (self.bytes_of_new_block() + 2 * GONE_BYTES as u64) <= self.tx_bytes_for_blocks()
    }

    fn tx_bytes_for_blocks(&self) -> u64 {
        self.store.tx_bytes_max().saturating_sub(OTHER_BYTES) as u64
    }

    /// Bytes in a transaction for each block that is appended, at worst: its checksum, and its share of the extents
    /// that the largest appends make, each in a zone of its own; twice as many, because zones end.
    fn bytes_of_new_block(&self) -> u64 {
        size_of::<u32>() as u64 + (2 * ROW_BYTES as u64).div_ceil(u64::from(self.piece_blocks_max))
    }

    /// All that a view has, in the order of the blocks.
    fn replaced(&self, view: &View) -> Result<Vec<Replaced>> {
        let inline_blocks = view.inline_blocks().keys();
        let mut replaced: Vec<Replaced> =
            inline_blocks.map(|&block| Replaced { block, bytes: GONE_BYTES, is_reference: false }).collect();
        for (block, extent) in view.extents() {
            let (bytes, is_reference) = (self.bytes_of_reference(extent)?, extent.origin.is_some());
            replaced.push(Replaced { block, bytes, is_reference });
        }
        replaced.sort_by_key(|replaced| replaced.block);
        Ok(replaced)
    }
}

/// An extent or a resident block that is written over.
struct Replaced {
    /// Its first block.
    block: u64,
    /// What it takes in the transaction that replaces it; of a reference, also what may become of what it refers to.
    bytes: usize,
    is_reference: bool,
}

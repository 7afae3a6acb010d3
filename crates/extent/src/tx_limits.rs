//! Transaction limits: how much of an object one transaction changes.
//!
//! A transaction fits into one batch of the log, which is short if zones are small. So an operation that changes many extents
//! uses several transactions. Operations that remove or copy extents limit their number and bytes
//! ([`Extents::end_of_part`]). An overwrite first asks how many blocks one transaction can replace
//! ([`Extents::blocks_per_tx`]).

use std::collections::BTreeSet;

use crate::map::View;
use crate::{Extents, Object, Result};

/// Most bytes of a row in a transaction, without its checksums.
pub(crate) const ROW_BYTES: usize = 64;
/// Bytes in a transaction that remove an extent or an inline block, with the change of its zone's live count.
pub(crate) const REMOVED_ROW_BYTES: usize = 40;
/// Bytes for everything else: the inode, its intent, and the rests of two extents that are cut.
const OTHER_BYTES: usize = 4096;

impl Extents {
    /// Where a part of a view ends that is removed or copied. One transaction can hold two such parts.
    pub(crate) fn end_of_part(&self, view: &View, limit: usize) -> Result<Option<u64>> {
        view.end_of_part(limit, self.part_bytes_max(), |extent| self.bytes_of_reference(extent))
    }

    pub(crate) fn part_bytes_max(&self) -> usize {
        self.store.tx_bytes_max() / 4
    }

    /// How many of `limit` rows a part may change.
    pub(crate) fn part_rows_max(&self, limit: usize) -> usize {
        limit.min(self.part_bytes_max() / ROW_BYTES).max(1)
    }

    /// How many blocks from `from` on, at least one, can be overwritten in one transaction. `may_refer`: the object may
    /// have references. No thread may change the object until they are written.
    ///
    /// The object map is read only if the number of blocks leaves a doubt.
    pub fn blocks_per_tx(&self, object: Object, (from, to): (u64, u64), may_refer: bool) -> Result<u64> {
        let most = self.tx_bytes_for_blocks();
        let to = to.min(from + (most / 2 / self.bytes_of_new_block()).max(1));
        if !may_refer && self.fit_in_one_tx(to - from) {
            return Ok(to - from);
        }
        let left = most.saturating_sub((to - from) * self.bytes_of_new_block());
        let (_lock, view) = self.lock_view(object, (from, to), usize::MAX, BTreeSet::new())?;
        let (mut of_references, mut all) = (0, 0);
        for OverwrittenRow { block, bytes, is_reference } in self.overwritten_rows(&view)? {
            of_references += if is_reference { bytes } else { 0 };
            all += bytes;
            if block > from && (of_references > self.part_bytes_max() || all as u64 > left) {
                return Ok(block - from);
            }
        }
        Ok(to - from)
    }

    /// Whether one transaction can always replace this number of blocks, if the object has no references there.
    pub(crate) fn fit_in_one_tx(&self, blocks: u64) -> bool {
        // The worst case of a block: an extent and an inline block are removed.
        blocks * (self.bytes_of_new_block() + 2 * REMOVED_ROW_BYTES as u64) <= self.tx_bytes_for_blocks()
    }

    fn tx_bytes_for_blocks(&self) -> u64 {
        self.store.tx_bytes_max().saturating_sub(OTHER_BYTES) as u64
    }

    /// Most bytes in a transaction for each appended block: its checksum, and its share of extents. Each of the largest
    /// appends has an extent. Twice as many are counted, because zones end.
    fn bytes_of_new_block(&self) -> u64 {
        size_of::<u32>() as u64 + (2 * ROW_BYTES as u64).div_ceil(u64::from(self.piece_blocks_max))
    }

    /// All rows of a view, in the order of the blocks.
    fn overwritten_rows(&self, view: &View) -> Result<Vec<OverwrittenRow>> {
        let inline_blocks = view.inline_blocks().keys();
        let mut overwritten_rows: Vec<OverwrittenRow> = inline_blocks
            .map(|&block| OverwrittenRow { block, bytes: REMOVED_ROW_BYTES, is_reference: false })
            .collect();
        for (block, extent) in view.extents() {
            let (bytes, is_reference) = (self.bytes_of_reference(extent)?, extent.origin.is_some());
            overwritten_rows.push(OverwrittenRow { block, bytes, is_reference });
        }
        overwritten_rows.sort_by_key(|overwritten_rows| overwritten_rows.block);
        Ok(overwritten_rows)
    }
}

/// An extent or an inline block that is overwritten.
struct OverwrittenRow {
    /// Its first block.
    block: u64,
    /// Its bytes in the transaction. For a reference, they include the possible changes of the owner.
    bytes: usize,
    is_reference: bool,
}

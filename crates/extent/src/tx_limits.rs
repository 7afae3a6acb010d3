//! Transaction limits: how much of an object one transaction changes.
//!
//! A transaction fits into one batch of the log, which is short if zones are small. So an operation that changes many extents
//! uses several transactions. Operations that remove or copy extents limit their number and bytes. An overwrite first asks how
//! many blocks one transaction can replace.

use tree::Store;
use zone::Blocks;

/// Most bytes of a row in a transaction, without its checksums.
pub(crate) const ROW_BYTES: usize = 64;
/// Bytes in a transaction that remove an extent or an inline block, with the change of its zone's live count.
pub(crate) const REMOVED_ROW_BYTES: usize = 40;
/// Bytes for everything else: the inode, its intent, and the rests of two extents that are cut.
const OTHER_BYTES: usize = 4096;

/// The limits of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxLimits {
    tx_bytes_max: usize,
    /// The most blocks of one extent.
    piece_blocks_max: Blocks,
}

impl TxLimits {
    pub(crate) fn new(store: &Store, piece_blocks_max: Blocks) -> TxLimits {
        TxLimits { tx_bytes_max: store.tx_bytes_max(), piece_blocks_max }
    }

    /// Most bytes of a part.
    pub(crate) fn part_bytes_max(self) -> usize {
        self.tx_bytes_max / 4
    }

    /// How many of `limit` rows a part may change.
    pub(crate) fn part_rows_max(self, limit: usize) -> usize {
        limit.min(self.part_bytes_max() / ROW_BYTES).max(1)
    }

    /// Whether one transaction can always replace this number of blocks, if the object has no references there.
    pub(crate) fn fit_in_one_tx(self, blocks: u64) -> bool {
        // The worst case of a block: an extent and an inline block are removed.
        blocks * (self.bytes_of_new_block() + 2 * REMOVED_ROW_BYTES as u64) <= self.tx_bytes_for_blocks()
    }

    /// Whether one transaction can always replace this number of blocks in this number of runs, if the object has no
    /// references there.
    pub(crate) fn runs_fit_in_one_tx(self, runs: u64, blocks: u64) -> bool {
        // The worst case of a run: at each end it cuts an extent, of which almost all checksums stay.
        let rest = ROW_BYTES as u64 + size_of::<u32>() as u64 * u64::from(self.piece_blocks_max);
        // Two extents of its own, because zones end.
        let of_run = 2 * rest + 2 * ROW_BYTES as u64;
        let of_block = self.bytes_of_new_block() + 2 * REMOVED_ROW_BYTES as u64;
        runs * of_run + blocks * of_block <= self.tx_bytes_for_blocks()
    }

    pub(crate) fn tx_bytes_for_blocks(self) -> u64 {
        self.tx_bytes_max.saturating_sub(OTHER_BYTES) as u64
    }

    /// Most bytes in a transaction for each appended block: its checksum, and its share of extents. Each of the largest
    /// appends has an extent. Twice as many are counted, because zones end.
    pub(crate) fn bytes_of_new_block(self) -> u64 {
        size_of::<u32>() as u64 + (2 * ROW_BYTES as u64).div_ceil(u64::from(self.piece_blocks_max))
    }
}

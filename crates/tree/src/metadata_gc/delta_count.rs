//! Counting the delta records of metadata zones exactly before a transaction is refused.
//!
//! The zone table has the number of delta records in a zone, but not their sizes, so GC uses an upper bound for their
//! size. An exact count reads each zone once in its life and moves nothing. The result stays an upper bound, because
//! nothing is added to a closed zone, and the live rest of records that were packed in order takes no more pages.
//! Zones that GC would not collect with any result are not read.

use super::MetadataGc;
use super::move_pages::ReadPage;
use crate::delta::{self, Packed};
use crate::format::PageKind;
use crate::headroom::Need;
use crate::types::Result;

impl MetadataGc {
    /// Reads zones whose delta records are counted with the maximal size. Overwrites of single blocks all over a file
    /// leave small records, of which a page holds many. A zone that is counted as full is never collected. Returns
    /// whether there was any such zone. The caller holds the checkpoint lock. Each zone is read once in each of its
    /// lives.
    pub(crate) fn count_deltas_exactly(&self) -> Result<bool> {
        let in_page = delta::in_page_at_most(self.volume.page_size());
        let zones = self.volume.pool.with_uncounted_deltas(in_page, |capacity, live| {
            capacity - live >= self.headroom.dead_at_least(capacity, Need::Must)
        });
        for &zone in &zones {
            let (mut packed, mut full) = (Packed::new(self.volume.page_size()), 0);
            self.read_zone(zone, |pages| {
                for ReadPage { at, bytes, header } in &pages {
                    match (bytes, header) {
                        (Some(page), Some(header)) if header.kind == PageKind::Deltas as u8 => {
                            self.pack_deltas(*at, page, &mut packed)?;
                        }
                        (Some(_), Some(_)) => {}
                        // It may be a page of delta records.
                        _ => full += 1,
                    }
                }
                full += packed.take_full().0.len() as u64;
                Ok(())
            })?;
            self.volume.pool.note_delta_pages(zone, full + packed.len() as u64);
        }
        Ok(!zones.is_empty())
    }

    /// Counts the delta records of metadata zones exactly, before a transaction is refused because metadata lacks
    /// zones. Returns whether the transaction may try again. The caller holds no lock of the trees.
    pub(crate) fn recount_before_refusing(&self) -> Result<bool> {
        // Another thread may have counted before, or a zone may have become free.
        if self.headroom.lacks_zones() {
            let saving = self.checkpoints.saving.lock();
            if self.count_deltas_exactly()? {
                self.headroom.measure_garbage(&saving);
            }
        }
        Ok(!self.headroom.lacks_zones())
    }
}

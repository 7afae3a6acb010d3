//! Looking closer at zones of metadata before somebody is refused: what the changes of leaves there really take.
//!
//! Cleaning counts them from above, because the table of zones knows how many there are and not how large. Looking reads
//! each zone once in its life and moves nothing; what it finds can only become less, because nothing is added to a zone
//! that is closed, and what is left of changes that were packed in order takes no more pages. Zones that could not be cleaned
//! whatever is found there are not read.

use rt::sync::atomic::Ordering;

use super::{Need, ReadPage};
use crate::core::Core;
use crate::delta::{self, Packed};
use crate::format::PageKind;
use crate::types::Result;

impl Core {
    /// Reads zones whose changes of leaves are counted as if each took the most that it may: what is written all over in
    /// single blocks leaves small ones, of which a page holds many, and a zone that is taken for full is never cleaned.
    /// Whether there was any. Under the checkpoint lock; once for each life of a zone.
    pub(crate) fn look_closer(&self) -> Result<bool> {
        let in_page = delta::in_page_at_most(self.page_size());
        let zones = self.pool.with_uncounted_deltas(in_page, |capacity, live| {
            capacity - live >= self.dead_at_least(capacity, Need::Must)
        });
        for &zone in &zones {
            let (mut packed, mut full) = (Packed::new(self.page_size()), 0);
            self.read_zone(zone, |pages| {
                for ReadPage { at, bytes, header } in &pages {
                    match (bytes, header) {
                        (Some(page), Some(header)) if header.kind == PageKind::Deltas as u8 => {
                            self.pack_deltas(*at, page, &mut packed)?;
                        }
                        (Some(_), Some(_)) => {}
                        // It may be such a page.
                        _ => full += 1,
                    }
                }
                full += packed.take_full().0.len() as u64;
                Ok(())
            })?;
            self.pool.note_delta_pages(zone, full + packed.len() as u64);
        }
        Ok(!zones.is_empty())
    }

    /// Whether metadata may not grow, because so much lives in its zones that cleaning would move much for little.
    pub(crate) fn lacks_zones(&self) -> bool {
        let are_lacking = self.count.zones_lacking.load(Ordering::Relaxed) > 0;
        are_lacking && self.pool.free_or_outstanding() < self.needed_to_grow()
    }

    /// Before a transaction is refused because metadata lacks zones: counts the live blocks of metadata zones closer. Whether
    /// the transaction may try again. No lock of the trees is held.
    pub(crate) fn look_before_refusing(&self) -> Result<bool> {
        // Another thread may have counted before, or a zone may have become free.
        if self.lacks_zones() {
            let saving = self.saving.lock();
            if self.look_closer()? {
                self.measure_garbage(&saving);
            }
        }
        Ok(!self.lacks_zones())
    }
}

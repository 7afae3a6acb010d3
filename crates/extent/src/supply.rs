//! Zones for operations that find none: an open zone for a write, free zones for metadata.

use std::sync::Arc;

use zone::Role;

use crate::Result;
use crate::charges::Charges;
use crate::gc::{Collector, Goal, Progress};
use crate::open_zone::OpenZone;
use crate::place::{PlaceRequest, Search};
use crate::retry_limit::RetryLimit;

/// GC of metadata victims that a writer without a zone asks for before it gives up.
const METADATA_GC_MAX: usize = 64;

/// Frees zones.
pub(crate) struct ZoneSupply {
    collector: Arc<Collector>,
    charges: Arc<Charges>,
}

impl ZoneSupply {
    pub(crate) fn new(collector: &Arc<Collector>, charges: &Arc<Charges>) -> ZoneSupply {
        ZoneSupply { collector: Arc::clone(collector), charges: Arc::clone(charges) }
    }

    /// An open zone for this write. If there is none, it frees a zone. It returns `NoSpace` only if no zone can be
    /// freed.
    pub(crate) fn place(&self, request: PlaceRequest) -> Result<Arc<OpenZone>> {
        let placer = self.collector.placer();
        let mut retry_limit = RetryLimit::default();
        let open = loop {
            let over = self.collector.maps().store().resets_over();
            match placer.search(request)? {
                Search::Found(open) => break open,
                Search::Again => {}
                Search::NoZone if self.free_a_zone(&mut retry_limit, over)? => {}
                // Other threads may have opened the zones that they have freed.
                Search::NoZone => break placer.any(request)?,
            }
        };
        assert_eq!(open.lease.role(), Role::Data, "user writes go to zones of user data");
        open.lease.set_lifetime_class(open.lifetime().number());
        Ok(open)
    }

    /// Reclaims zones if metadata has taken one from its reserve and GC will not return it. Call before taking the
    /// locks of any operation that may make metadata grow.
    pub(crate) fn admit(&self) -> Result<()> {
        let pool = self.collector.maps().pool();
        self.reclaim_while(|| {
            pool.free_or_outstanding() < self.collector.maps().store().zones_needed_to_grow()
        })
    }

    /// Reclaims all of these zones, for an operation that has found no space. Returns true if zones were lacking, and
    /// none is lacking now.
    pub(crate) fn reclaim_for_growth(&self) -> Result<bool> {
        let pool = self.collector.maps().pool();
        let lacks = || pool.free() < self.collector.maps().store().zones_needed_to_grow();
        if !lacks() {
            return Ok(false);
        }
        self.reclaim_while(lacks)?;
        Ok(!lacks())
    }

    fn reclaim_while(&self, lacks: impl Fn() -> bool) -> Result<()> {
        if !lacks() {
            return Ok(());
        }
        // There may be zones without live blocks that only need a reset.
        self.reset_while(&lacks, self.collector.maps().store().resets_over())?;
        if !lacks() {
            return Ok(());
        }
        let mut gc = self.collector.lock();
        while lacks() {
            let over = self.collector.maps().store().resets_over();
            let progress = self.collector.collect(&mut gc, Goal::OneZone)?;
            if progress == Progress::Moved {
                continue;
            }
            // More than one zone may be lacking. If GC has no target, it goes on after a reset.
            if !self.reset_while(&lacks, over)? && progress == Progress::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Resets as many zones as are lacking, or as can be reset. Returns whether a reset has ended after the `over`th.
    fn reset_while(&self, lacks: impl Fn() -> bool, mut over: u64) -> Result<bool> {
        let mut is_reset = false;
        while lacks() && self.collector.maps().store().reclaim_one(over)? {
            (is_reset, over) = (true, self.collector.maps().store().resets_over());
        }
        Ok(is_reset)
    }

    /// Frees a zone for data, by resets or by GC. Returns false if no zone can be reclaimed and no reset has ended
    /// after the `over`th, or if the retry limit is reached.
    pub(crate) fn free_a_zone(&self, retry_limit: &mut RetryLimit, over: u64) -> Result<bool> {
        let over = retry_limit.resets_to_exceed(self.collector.maps().store(), over);
        Ok(self.try_to_free_a_zone(retry_limit, over)?
            && retry_limit.allows_retry(self.collector.maps().store()))
    }

    /// Whether the caller should try again: a zone was freed, or an event may have freed one.
    fn try_to_free_a_zone(&self, retry_limit: &mut RetryLimit, over: u64) -> Result<bool> {
        // Metadata can do with fewer zones at the cost of more moves: a writer waits.
        if self.collector.maps().store().reclaim_one(over)?
            || self.collector.maps().pool().lower_metadata_target()
        {
            return Ok(true);
        }
        let mut gc = self.collector.lock();
        if !self.collector.placer().is_out_of_zones() {
            return Ok(true);
        }
        let was_announced = self.collector.maps().pool().is_announced();
        let worked = self.collector.reclaim_victims(&mut gc)?;
        if worked {
            // The victim itself may not be free yet: it may be in use by a reader, or have an unreadable block.
            *retry_limit = RetryLimit::default();
        }
        self.charges.forgive();
        drop(gc);
        let is_freed =
            self.collector.maps().store().reclaim_one(over)? || worked || self.collect_metadata()?;
        // Another thread may have waited for the checkpoint that had announced its need, or have freed a zone.
        let is_over = self.collector.maps().store().resets_over() != over;
        Ok(is_freed
            || is_over
            || was_announced && !self.collector.maps().pool().is_announced()
            || !self.collector.placer().is_out_of_zones())
    }

    /// Runs GC of metadata, which may have taken the zone that GC of data needs. Returns false if this frees no zone.
    fn collect_metadata(&self) -> Result<bool> {
        let before = self.collector.maps().pool().free();
        for _ in 0..METADATA_GC_MAX {
            if !self.collector.maps().store().collect_garbage()?
                || self.collector.maps().pool().free() > before
            {
                break;
            }
        }
        // Another thread may have freed them.
        Ok(self.collector.maps().pool().free() > before)
    }
}

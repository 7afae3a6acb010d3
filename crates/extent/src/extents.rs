//! All parts of a volume's data, put together.

mod inline_blocks;
mod write;

use std::sync::Arc;

use tree::{Client, Growth, Step, Store};
use zone::{Blocks, ZoneId};

use crate::append::Appender;
use crate::budget::Budget;
use crate::charges::Charges;
use crate::gc::{Collector, DataMover, Goal, Progress};
use crate::headroom::Headroom;
use crate::learn::{Learned, Switches};
use crate::maps::ObjectMaps;
use crate::place::Placer;
use crate::recover::Recovering;
use crate::reverse::ReverseMaps;
use crate::supply::ZoneSupply;
use crate::throttle::Throttle;
use crate::{Lifetime, Result};

pub use write::{BlockRuns, DelayedSpace, WriteCall, Written};

/// All objects of a volume.
pub struct Extents {
    maps: Arc<ObjectMaps>,
    budget: Arc<Budget>,
    placer: Arc<Placer>,
    appender: Arc<Appender>,
    collector: Arc<Collector>,
    supply: ZoneSupply,
    throttle: Throttle,
}

impl Extents {
    /// Takes over the state that recovery found, continues the open zones, and becomes the store's client. Call it
    /// once, right after `Store::open`. It appends nothing.
    pub fn open(store: Arc<Store>, recovering: Recovering) -> Result<Arc<Extents>> {
        let (reverse, charges) = (ReverseMaps::new(), Arc::<Charges>::default());
        store.set_client(Arc::clone(&reverse) as Arc<dyn Client>);
        let maps = Arc::new(ObjectMaps::new(store));
        maps.learned().load_ages(maps.store());
        let budget = Arc::new(Budget::new(&maps));
        let placer = Arc::new(Placer::new(&maps, &budget, &reverse, &charges));
        let target = placer.continue_zones(recovering)?;
        placer.placement().set_open_max(placer.count_open_wanted());
        let appender = Arc::new(Appender::new(&maps, &placer));
        let mover = DataMover::new(&maps, &placer, &appender, &charges);
        let collector = Arc::new(Collector::new(mover, Headroom::new(&maps, &placer), target));
        let (supply, throttle) = (ZoneSupply::new(&collector, &charges), Throttle::new(&collector, &charges));
        let growth = Arc::downgrade(&budget);
        maps.store().set_growth(growth as std::sync::Weak<dyn Growth>);
        Ok(Arc::new(Extents { maps, budget, placer, appender, collector, supply, throttle }))
    }

    /// The metadata store.
    pub fn store(&self) -> &Arc<Store> {
        self.maps.store()
    }

    /// The seek cost of the device in bytes: see [`zone::Geometry::seek_bytes`].
    pub fn seek_bytes(&self) -> u32 {
        self.maps.device().geometry().seek_bytes
    }

    /// Does one piece of any background work.
    pub fn step(&self) -> Result<Step> {
        let reset = self.step_resets()?;
        Ok(if self.step_space()? == Step::Worked { Step::Worked } else { reset })
    }

    /// Resets zones without live blocks, so that writers need not wait for them. While there is enough headroom, zones
    /// that wait for another event are left alone.
    pub fn step_resets(&self) -> Result<Step> {
        Ok(if self.maps.store().reclaim(self.are_resets_urgent())? > 0 { Step::Worked } else { Step::Idle })
    }

    /// Whether the background task has to be woken because it has work now. It is reported once.
    pub fn take_call(&self) -> bool {
        self.throttle.charges().take_call()
    }

    /// Whether user writes will soon wait for zones that need only be reset.
    pub(crate) fn are_resets_urgent(&self) -> bool {
        self.maps.pool().dead_count() > 0
            && (self.placer.is_out_of_zones() || self.collector.headroom().is_low())
    }

    /// Blocks of data zones that are neither live nor writable before the next reset: dead blocks, headers and
    /// summaries of zones, and the rest of zones that were closed before they were full. Free blocks of open zones do
    /// not count. Waits for a piece of GC: call with no map lock.
    pub fn dead_blocks(&self) -> u64 {
        let mut free_blocks =
            self.collector.lock().target().map_or(0, |open| i64::from(open.lease.free_blocks()));
        free_blocks += self.placer.placement().free_blocks();
        u64::try_from(self.budget.blocks_not_live() - free_blocks).unwrap_or(0)
    }

    /// The open zones of user data, and the lifetime class of each.
    pub fn open_zones(&self) -> Vec<(ZoneId, Lifetime)> {
        self.placer.placement().classes()
    }

    /// The smallest payload of a zone.
    pub(crate) fn payload_min(&self) -> Blocks {
        self.placer.payload_min()
    }

    /// The object maps: reading, sharing blocks, inspection.
    pub fn maps(&self) -> &ObjectMaps {
        &self.maps
    }

    /// The count of space.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Garbage collection.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// What makes writers wait.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// What was learned about lifetimes.
    pub fn learned(&self) -> &Learned {
        self.maps.learned()
    }

    /// The reverse maps of data zones.
    pub fn reverse_maps(&self) -> &ReverseMaps {
        self.placer.reverse()
    }

    #[cfg(test)]
    pub(crate) fn placer(&self) -> &Placer {
        &self.placer
    }

    #[cfg(test)]
    pub(crate) fn appender(&self) -> &Appender {
        &self.appender
    }

    #[cfg(test)]
    pub(crate) fn supply(&self) -> &ZoneSupply {
        &self.supply
    }

    /// Sets what placement and GC use from now on.
    pub fn set_switches(&self, switches: Switches) {
        self.learned().set_switches(switches);
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.maps.block_size()
    }

    /// Whether zones that may need a reset were found since the last call.
    pub fn take_may_need_resets(&self) -> bool {
        self.collector.take_may_need_resets()
    }

    /// Closes the open conventional zones before the volume is closed, because the next mount cannot continue them.
    /// With a footer, no block has to be moved out of them, and only the rest of their space is unused.
    pub fn close_conventional(&self) {
        let geometry = self.maps.device().geometry();
        let target = self.collector.lock().take_target_if(|open| geometry.is_conventional(open.lease.zone()));
        self.placer.close_conventional(target);
    }

    /// Reclaims zones if metadata has taken one from its reserve and GC will not return it. Call before taking the
    /// locks of any operation that may make metadata grow.
    pub fn admit(&self) -> Result<()> {
        self.supply.admit()
    }

    /// Reclaims all of these zones, for an operation that has found no space. Returns true if zones were lacking, and
    /// none is lacking now.
    pub fn reclaim_for_growth(&self) -> Result<bool> {
        self.supply.reclaim_for_growth()
    }

    /// Does one piece of the other background work: GC in step with user writes, and writeback of inline blocks.
    pub fn step_space(&self) -> Result<Step> {
        self.learned().load_once(self.maps.store());
        self.placer.reverse().prune(self.maps.store());
        let has_collected = self.throttle.collect_in_background()?;
        if has_collected && self.throttle.charges().charged() > 0 {
            return Ok(Step::Worked);
        }
        if self.collector.has_first_victims()
            && let Some(mut gc) = self.collector.try_lock()
            && self.collector.collect(&mut gc, Goal::Repair)? != Progress::Nothing
        {
            return Ok(Step::Worked);
        }
        let worked = self.write_back()? || self.learned().save(self.maps.store(), false)? || has_collected;
        Ok(if worked { Step::Worked } else { Step::Idle })
    }
}

//! Completed appends, whose blocks are pending until they are inserted.

use std::sync::Arc;

use rt::sync::Mutex;
use tree::Store;
use zone::{Blocks, ZoneId};

use crate::Object;
use crate::format::Extent;
use crate::open_zone::OpenZone;
use crate::reverse::ZoneMap;

/// Blocks of a zone that are submitted and not yet inserted or abandoned.
pub(crate) struct Pending {
    store: Arc<Store>,
    map: Arc<Mutex<ZoneMap>>,
    zone: ZoneId,
    blocks: Blocks,
}

impl Pending {
    pub(crate) fn new(store: &Arc<Store>, open: &OpenZone, blocks: Blocks) -> Self {
        assert!(blocks > 0, "an append has blocks");
        let zone = open.lease.zone();
        open.map.lock().add_pending();
        store.pool().add_pending(zone, blocks);
        Pending { store: Arc::clone(store), map: Arc::clone(&open.map), zone, blocks }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.store.pool().remove_pending(self.zone, self.blocks);
        self.map.lock().remove_pending();
    }
}

/// A completed append.
pub(crate) struct Appended {
    pub(crate) object: Object,
    /// The first block in the object.
    pub(crate) start: u64,
    pub(crate) extent: Extent,
    _pending: Pending,
}

impl Appended {
    pub(crate) fn new(object: Object, start: u64, extent: Extent, pending: Pending) -> Appended {
        assert_eq!(pending.blocks, extent.blocks, "each block of an append is pending");
        Appended { object, start, extent, _pending: pending }
    }

    /// The block after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.extent.blocks)
    }
}

//! What the holder of the checkpoint lock works with.

use std::collections::HashMap;

use zone::{Life, ZoneId};

use crate::metadata_share::MetadataShare;
use crate::metadata_zone::MetadataZone;
use crate::tables::Tables;

/// The state for checkpoints, writing nodes out, and GC. Its lock is the checkpoint lock.
pub(crate) struct Saving {
    pub(crate) zone: MetadataZone,
    pub(crate) tables: Tables,
    /// Checkpoints so far.
    pub(crate) number: u64,
    /// The life of each zone in which GC last moved its live blocks.
    pub(crate) last_gc: HashMap<ZoneId, Life>,
    /// GC has emptied a zone, and the next checkpoint frees it.
    pub(crate) has_emptied_zone: bool,
    /// The write rates of data and metadata.
    pub(crate) metadata_share: MetadataShare,
}

impl Saving {
    pub(crate) fn new(zone: MetadataZone, tables: Tables) -> Self {
        Saving {
            zone,
            tables,
            number: 0,
            last_gc: HashMap::new(),
            has_emptied_zone: false,
            metadata_share: MetadataShare::default(),
        }
    }
}

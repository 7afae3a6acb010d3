//! Names and data of a volume whose log is lost, or that cannot be mounted for another reason.
//!
//! [`Salvage`] needs neither journal nor checkpoint record, and it only reads. From the bottom:
//!
//! * `scan`: every page in the metadata zones, by what it states about itself (I-TREE-3).
//! * `checkpoint`, `loader`, `segments`, `assemble`: the newest checkpoint that was written completely, the valid copy of
//!   each node, and the leaves in the order of their keys.
//! * [`Tables`]: the rows in the leaves.
//! * `ranges`, `reverse_maps`, [`Objects`]: the blocks of objects, by their extents. A block that is no longer there is
//!   looked for by the reverse maps of the data zones.
//! * `records`: inodes, entries of directories and attributes.
//! * `contents`, `names`: the bytes of files, and a walk through the tree of names.
//!
//! Everything that is returned is either **certain**, which means that it is what the last checkpoint contains, or it is
//! reported as uncertain. Missing rows and blocks are reported as ranges. A block is returned only if its checksum is
//! right (I-EXT-3).
//!
//! Memory: 50 bytes for each page of metadata, the bounds of all leaves, the rows in damaged ranges, and an entry for
//! each inode. Once a block is missing, also all entries of the reverse maps.
#![forbid(unsafe_code)]

mod assemble;
mod checkpoint;
mod contents;
mod loader;
mod names;
mod objects;
mod ranges;
mod records;
mod reverse_maps;
mod scan;
mod segments;
mod tables;

use std::sync::Arc;

use fs::Result;
use zone::Device;

pub use assemble::TableCounts;
pub use names::{EachItem, Item, Paths, Trouble, Unsaved};
pub use objects::{EachBlock, ObjectReport, Objects, StrayObject};
pub use tables::{Row, Tables};

/// A volume that is read without its log.
pub struct Salvage {
    tables: Arc<Tables>,
    objects: Objects,
}

impl Salvage {
    /// Reads all metadata. `progress` is called with the number of zones that were read, and that of all metadata zones.
    ///
    /// # Errors
    /// If there is no volume, or no page of metadata.
    pub fn open(device: Arc<dyn Device>, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvage> {
        let tables = Arc::new(Tables::scan(device, progress)?);
        Ok(Salvage { objects: Objects::new(Arc::clone(&tables)), tables })
    }

    /// The tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }
}

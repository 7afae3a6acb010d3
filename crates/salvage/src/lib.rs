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
//! * `items`, `records`: inodes, entries of directories and attributes.
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
mod items;
mod loader;
mod names;
mod objects;
mod ranges;
mod records;
mod reverse_maps;
mod scan;
mod segments;
mod tables;

pub use assemble::TableCounts;
pub use items::{Item, Paths, Problem, Unsaved};
pub use names::EachItem;
pub use objects::{EachBlock, ObjectReport, Objects, StrayObject};
pub use records::Salvage;
pub use tables::{Row, Tables};

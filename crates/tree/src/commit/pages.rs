//! How many pages the changes of a transaction take in memory.

use smallvec::SmallVec;

use super::PinnedWrite;
use crate::lookup::leaf_of;
use crate::types::NodeId;

/// Temporary copies while a transaction is applied: of the node that is split or merged, and of the nodes that result.
const TEMPORARY_PAGES: usize = 4;

/// The largest effect of these writes on one leaf.
struct LeafEffect {
    leaf: NodeId,
    /// Bytes by which the leaf grows if nothing is deleted, and bytes by which it shrinks if nothing is added.
    grows: isize,
    shrinks: usize,
}

/// How many pages applying these writes takes at most.
pub(super) fn needed(held: &[PinnedWrite<'_>]) -> usize {
    let mut touched: SmallVec<[LeafEffect; 4]> = SmallVec::new();
    held.iter().map(|write| pages_of(write, &mut touched)).sum::<usize>() + TEMPORARY_PAGES
}

/// Each node on the path may have to be copied, because a checkpoint still has to write its earlier contents or a
/// reader holds it. A full leaf is split once or twice, and the nodes above it once, each with a new node beside it. A
/// small leaf merges with a neighbour.
fn pages_of(write: &PinnedWrite<'_>, touched: &mut SmallVec<[LeafEffect; 4]>) -> usize {
    let (leaf, depth) = (leaf_of(&write.path), write.path.len());
    let page = &leaf.look().page;
    let found = page.search(&write.key);
    let before = touched.iter().position(|before| before.leaf == leaf.id).unwrap_or_else(|| {
        touched.push(LeafEffect { leaf: leaf.id, grows: 0, shrinks: 0 });
        touched.len() - 1
    });
    let of_leaf = &mut touched[before];
    let is_reshaped = match write.value {
        Some(value) => {
            of_leaf.grows += page.growth(Err(0), write.key.len(), value.len());
            of_leaf.shrinks += found.map_or(0, |index| page.entry_bytes(index));
            of_leaf.grows > page.room()
        }
        None => {
            of_leaf.shrinks += found.map_or(0, |index| page.entry_bytes(index));
            let is_thin = page.used().saturating_sub(of_leaf.shrinks) < page.capacity() / 4;
            is_thin || of_leaf.grows > page.room()
        }
    };
    if is_reshaped { 3 * (depth + 2) } else { 1 }
}

//! The store's part of the checker: every node, the MAT, and the counts of metadata zones.
//!
//! It walks each tree from its root and verifies identity, order and bounds of each node. Then it compares the nodes
//! it has found with those that the MAT names, the number of marked nodes with the prepaid count, and the pages in
//! each zone with the ZIT. Memory: a bit for each node id, and a path. It repairs nothing.

use std::collections::HashMap;
use std::fmt;

use pool::OwnedPool;
use zone::{Role, ZoneId};

use crate::key_range::KeyRange;
use crate::nodes::Nodes;
use crate::trees::Trees;
use crate::types::{Bytes, Group, Key, NodeId, Result, StoreError, Table};

/// Called for every entry with its group, table, key and value.
pub type Visit<'a> = dyn FnMut(Group, Table, &[u8], &[u8]) + 'a;

/// Called after each node with the number of checked nodes and the estimated total. The estimate is the number of
/// nodes at the last checkpoint, and at least the number of checked nodes. In the last call both are equal.
pub type CheckProgress<'a> = dyn FnMut(u64, u64) + 'a;

/// The kind of a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A node that a tree names cannot be read or is not valid.
    Node,
    /// A node's keys are outside the bounds that its parent gives.
    Order,
    /// Two places name the same node.
    Shared,
    /// The MAT names a node that is part of no tree.
    Unreachable,
    /// The ZIT's counts of a metadata zone differ from the pages that the MAT places there. Or the prepaid count
    /// differs from the number of marked nodes.
    LiveCount,
    /// A chunk of the MAT or ZIT, or a directory of these, cannot be read or is not valid.
    Table,
}

/// A defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// Its place and nature, in words.
    pub what: String,
    /// The keys that cannot be read because of it, as far as they are known.
    pub lost: Option<KeyRange>,
}

impl Finding {
    /// The finding for metadata that is not valid.
    pub fn unreadable(what: String) -> Finding {
        Finding { kind: FindingKind::Node, what, lost: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

struct Walk<'a, 'v> {
    trees: &'a Trees,
    group: Group,
    seen: Bits,
    findings: Vec<Finding>,
    each: &'a mut Visit<'v>,
    progress: &'a mut CheckProgress<'v>,
    /// The number of checked nodes, and that of nodes at the last checkpoint.
    done: u64,
    nodes: u64,
    /// Nodes that are marked as prepaid.
    prepaid: i64,
}

/// A set of small numbers.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    /// Adds a number.
    fn insert(&mut self, number: u64) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    fn contains(&self, number: u64) -> bool {
        self.0.get((number / 64) as usize).is_some_and(|word| word & 1 << (number % 64) != 0)
    }
}

/// Verifies every node, the MAT and the counts.
pub(crate) fn check(
    trees: &Trees,
    each: &mut Visit<'_>,
    progress: &mut CheckProgress<'_>,
) -> Result<Vec<Finding>> {
    let nodes = trees.nodes.mat.chunks().iter().map(|chunk| u64::from(chunk.used)).sum();
    let (group, seen, findings) = (Group(0), Bits::default(), Vec::new());
    let mut walk = Walk { trees, group, seen, findings, each, progress, done: 0, nodes, prepaid: 0 };
    for group in 0..trees.nodes.volume.info.groups {
        walk.group = Group(group);
        walk.node(walk.group.root(), None, &[], None)?;
    }
    (walk.progress)(walk.done, walk.done);
    let (seen, prepaid, mut findings) = (walk.seen, walk.prepaid, walk.findings);
    // The marks of nodes that cannot be reached are unknown.
    if findings.is_empty()
        && let Some(counted) = trees.prepaid()
        && prepaid != counted
    {
        findings.push(Finding {
            kind: FindingKind::LiveCount,
            what: format!("{prepaid} nodes are marked as prepaid, but the checkpoint counts {counted}"),
            lost: None,
        });
    }
    let placed = check_mat(&trees.nodes, &seen, &mut findings)?;
    check_counts(&trees.nodes.volume.pool, &placed, &mut findings);
    Ok(findings)
}

/// Compares the nodes that the MAT names with those found. Returns the numbers of pages and of delta records that
/// its chunks place in each zone.
fn check_mat(nodes: &Nodes, seen: &Bits, findings: &mut Vec<Finding>) -> Result<HashMap<ZoneId, (u32, u32)>> {
    let mut placed: HashMap<ZoneId, (u32, u32)> = HashMap::new();
    for number in 0..nodes.mat.chunks_len() {
        let place = nodes.mat.chunk(number).address;
        let bytes = match nodes.chunk(number, place) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(StoreError::Corrupt(what)) => {
                findings.push(Finding { kind: FindingKind::Table, what, lost: None });
                continue;
            }
            Err(StoreError::Device(error)) if !error.is_of_whole_device() => {
                let what = format!("MAT chunk {number} cannot be read: {error}");
                findings.push(Finding { kind: FindingKind::Table, what, lost: None });
                continue;
            }
            Err(error) => return Err(error),
        };
        for index in 0..nodes.mat.per_chunk() {
            let stored = nodes.mat.place_in(&bytes, index as usize);
            if !stored.is_nowhere() {
                placed.entry(stored.whole_page().zone()).or_default().0 += 1;
            }
            if stored.is_delta() {
                placed.entry(stored.at.zone()).or_default().1 += 1;
            }
            let id = NodeId(number * nodes.mat.per_chunk() + index);
            if !nodes.find(id)?.0.is_nowhere() && !seen.contains(id.0) {
                findings.push(Finding {
                    kind: FindingKind::Unreachable,
                    what: format!("the MAT has an address of node {}, which is not part of a tree", id.0),
                    lost: None,
                });
            }
        }
    }
    Ok(placed)
}

fn check_counts(pool: &OwnedPool, placed: &HashMap<ZoneId, (u32, u32)>, findings: &mut Vec<Finding>) {
    for index in 0..pool.count() {
        let zone = ZoneId(index);
        let entry = pool.entry(zone);
        if entry.role.holds_data() {
            continue;
        }
        let (pages, deltas) = placed.get(&zone).copied().unwrap_or_default();
        let counted = pages * pool.page_blocks();
        let holds = counted > 0 || deltas > 0;
        if (entry.live, entry.deltas) != (counted, deltas) || (holds && entry.role != Role::Metadata) {
            findings.push(Finding {
                kind: FindingKind::LiveCount,
                what: format!(
                    "zone {index} ({:?}) has {counted} live metadata blocks and {deltas} delta records, but the \
                     ZIT counts {} and {}",
                    entry.role, entry.live, entry.deltas
                ),
                lost: None,
            });
        }
    }
}

impl Walk<'_, '_> {
    fn found(&mut self, kind: FindingKind, what: String) {
        self.findings.push(Finding { kind, what, lost: None });
    }

    /// Notes a node that cannot be used, and that everything below it is lost.
    fn lost(&mut self, what: String, low: &[u8], high: Option<&[u8]>) {
        let lost = KeyRange { group: self.group, low: Key::from_slice(low), high: high.map(Key::from_slice) };
        self.findings.push(Finding { kind: FindingKind::Node, what, lost: Some(lost) });
    }

    /// Checks a node whose keys should be in `low..high`, and all below it.
    fn node(&mut self, id: NodeId, level: Option<u8>, low: &[u8], high: Option<&[u8]>) -> Result<()> {
        if id.0 >= self.trees.nodes.mat.next_node() {
            self.lost(
                format!("the number of node {} of group {} was never allocated", id.0, self.group.0),
                low,
                high,
            );
            return Ok(());
        }
        if self.seen.contains(id.0) {
            self.found(
                FindingKind::Shared,
                format!("node {} of group {} has two parents", id.0, self.group.0),
            );
            return Ok(());
        }
        let loaded = self.trees.nodes.load(id);
        // The set grows with the ids, and a damaged node may name any id. So a node without a place is not added.
        if !matches!(loaded, Ok(None)) {
            self.seen.insert(id.0);
            self.done += 1;
            (self.progress)(self.done, self.nodes.max(self.done));
        }
        let node = match loaded {
            Ok(Some(node)) => node,
            Ok(None) => {
                self.lost(format!("node {} of group {} has no address", id.0, self.group.0), low, high);
                return Ok(());
            }
            Err(StoreError::Corrupt(what)) => {
                self.lost(what, low, high);
                return Ok(());
            }
            Err(StoreError::Device(error)) if !error.is_of_whole_device() => {
                self.lost(format!("node {} cannot be read: {error}", id.0), low, high);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let page = node.page();
        let belongs = page.group() == self.group && level.is_none_or(|level| page.level() == level);
        if !belongs || page.header().id.get() != id.0 {
            self.lost(
                format!("the page of node {} is not the node to which group {} refers", id.0, self.group.0),
                low,
                high,
            );
            return Ok(());
        }
        self.prepaid += i64::from(page.is_prepaid());
        let keys: Vec<Bytes> = (0..page.count()).map(|index| page.key(index).to_vec()).collect();
        let inside = |key: &Bytes| key.as_slice() >= low && high.is_none_or(|high| key.as_slice() < high);
        let bounded = if page.level() == 0 { &keys[..] } else { keys.get(1..).unwrap_or_default() };
        if !bounded.iter().all(inside) {
            self.found(
                FindingKind::Order,
                format!("node {} of group {} has keys outside its range", id.0, self.group.0),
            );
        }
        if page.level() == 0 {
            for (index, key) in keys.iter().enumerate().filter(|(_, key)| !key.is_empty()) {
                (self.each)(self.group, Table(key[0]), &key[1..], page.value(index));
            }
            return Ok(());
        }
        for index in 0..page.count() {
            let low = if index == 0 { low } else { &keys[index] };
            let high = keys.get(index + 1).map(Bytes::as_slice).or(high);
            self.node(page.child(index), Some(page.level() - 1), low, high)?;
        }
        Ok(())
    }
}

//! Views of the log, of a node, and of a metadata zone for inspection.
//!
//! Nothing is changed. Contents of the device are returned as far as they can be decoded. Meant for a volume that no
//! program changes meanwhile.

use pool::{COUNTERS, Lsn};
use zone::{Address, Blocks, Role, ZoneId, ZoneState};

use crate::format::{BatchKind, PageKind, decode_page};
use crate::nodes::Nodes;
use crate::record;
use crate::recover::decode_checkpoint;
use crate::scan::{Found, LogZone};
use crate::store::Store;
use crate::types::{Bytes, Group, NodeId, Op, Result, Table};

/// A node of a tree.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its id.
    pub id: u64,
    /// The shard whose tree it is part of.
    pub group: Group,
    /// 0: a leaf.
    pub level: u8,
    /// The last change in it.
    pub lsn: Lsn,
    /// Where it was written last, whole or as a delta record; nowhere as long as it has not been written.
    pub address: Address,
    /// The base page of the delta record; nowhere if the node was written whole.
    pub base: Address,
    /// Bytes of its entries, and the most that it can have.
    pub used: (usize, usize),
    /// Its entries, in order.
    pub entries: Vec<NodeEntry>,
}

/// An entry of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEntry {
    /// Of an inner node: keys from this one on (table and key; empty: from the first) are below that node.
    Child(Bytes, u64),
    /// Of a leaf.
    Row(Table, Bytes, Bytes),
}

/// A batch of the log.
#[derive(Clone, Debug)]
pub struct BatchView {
    /// Where it begins.
    pub at: Address,
    /// Its epoch.
    pub epoch: u64,
    /// Its sequence number.
    pub sequence: u64,
    /// The first and the last transaction.
    pub lsns: (u64, u64),
    /// The last transaction known durable when it was written.
    pub known_durable: u64,
    /// The newest checkpoint known durable then.
    pub checkpoint: Address,
    /// Its contents.
    pub kind: BatchContents,
}

/// The contents of a batch.
#[derive(Clone, Debug)]
pub enum BatchContents {
    /// Transactions; `None` when they cannot be decoded.
    Journal(Option<Vec<(Lsn, Vec<Op>)>>),
    /// A checkpoint.
    Checkpoint {
        /// Checkpoints so far.
        number: u64,
        /// The last transaction in it.
        cut: u64,
        /// Where a replay begins.
        replay_from: Address,
        /// The next node's id.
        next_node: u64,
        /// The volume's incompatible features ([`zone::format::FEATURES`]).
        features: u64,
        /// The store's counters at the cut.
        counters: [i64; COUNTERS],
        /// Nodes that are marked as those of [`crate::PREPAID`], with feature [`zone::format::FEATURE_PREPAID`].
        prepaid: u64,
    },
    /// The state that a recovery accepted.
    Seal,
    /// An invalid checkpoint.
    Damaged,
}

/// A page in a metadata zone, live or dead.
#[derive(Clone, Debug)]
pub struct PageView {
    /// Its first block.
    pub block: Blocks,
    /// `node`, `MAT chunk` and so on.
    pub kind: &'static str,
    /// The node's id, or the number of the chunk.
    pub id: u64,
    /// The group and level of a node.
    pub place: Option<(Group, u8)>,
    /// The last change in it.
    pub lsn: Lsn,
    /// The epoch in which it was written.
    pub epoch: u64,
    /// Whether this is the present place of the node; unknown for other pages.
    pub is_current: Option<bool>,
}

impl Store {
    /// A node; `None` if no node has this id.
    pub fn view_node(&self, id: u64) -> Result<Option<NodeView>> {
        let core = &self.core;
        if id == 0 || id >= core.nodes.mat.next_node() {
            return Ok(None);
        }
        let Some(node) = core.nodes.load(NodeId(id))? else { return Ok(None) };
        let (page, header) = (node.page(), node.page().header());
        let entry = |index| match page.level() {
            0 => {
                let key = page.key(index);
                NodeEntry::Row(Table(key[0]), key[1..].to_vec(), page.value(index).to_vec())
            }
            _ => NodeEntry::Child(page.key(index).to_vec(), page.child(index).0),
        };
        let place = core.nodes.find(NodeId(id))?.0;
        Ok(Some(NodeView {
            id,
            group: page.group(),
            level: page.level(),
            lsn: Lsn(header.lsn.get()),
            address: place.at,
            base: place.base,
            used: (page.used(), page.capacity()),
            entries: (0..page.count()).map(entry).collect(),
        }))
    }

    /// All whole batches of the log, in the order in which they were written.
    pub fn view_log(&self) -> Result<Vec<BatchView>> {
        let zones = self.pool().in_role(Role::Log);
        let mut all = Vec::new();
        for zone in zones {
            all.extend(self.view_log_zone(zone)?);
        }
        all.sort_by_key(|batch| (batch.epoch, batch.sequence));
        Ok(all)
    }

    /// All whole batches of one log zone.
    pub fn view_log_zone(&self, zone: ZoneId) -> Result<Vec<BatchView>> {
        let core = &self.core;
        let (info, life) = (core.volume.device.report_zone(zone)?, core.volume.pool.entry(zone).life);
        if matches!(info.state, ZoneState::Empty | ZoneState::Offline) {
            return Ok(Vec::new());
        }
        let log = LogZone::new(&*core.volume.device, core.volume.info.fs_id, zone, life, info);
        Ok(log.batches(1)?.into_iter().map(view_batch).collect())
    }

    /// Every whole page of a metadata zone.
    pub fn view_pages(&self, zone: ZoneId) -> Result<Vec<PageView>> {
        let core = &self.core;
        let info = core.volume.device.report_zone(zone)?;
        let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
        let step = core.volume.pool.page_blocks();
        let mut pages = Vec::new();
        let mut block = 1;
        while block + step <= end {
            pages.extend(view_page(
                &core.nodes,
                Address::new(zone, block, core.volume.pool.entry(zone).life),
            )?);
            block += step;
        }
        Ok(pages)
    }
}

fn view_page(nodes: &Nodes, at: Address) -> Result<Option<PageView>> {
    let mut bytes = vec![0; nodes.volume.page_size()];
    if nodes.volume.device.read(at.zone(), at.block(), &mut bytes).is_err() {
        return Ok(None);
    }
    let Some(header) = decode_page(&bytes, nodes.volume.info.fs_id) else { return Ok(None) };
    let (id, is_node) = (header.id.get(), header.kind == PageKind::Node as u8);
    let is_current = match is_node && id < nodes.mat.next_node() {
        true => Some(nodes.find(NodeId(id))?.0.whole_page() == at),
        false => None,
    };
    Ok(Some(PageView {
        block: at.block(),
        kind: kind_name(header.kind),
        id,
        place: is_node.then(|| (Group(header.group.get()), header.level)),
        lsn: Lsn(header.lsn.get()),
        epoch: header.epoch.get(),
        is_current,
    }))
}

fn kind_name(kind: u8) -> &'static str {
    let kinds = [
        (PageKind::Node, "node"),
        (PageKind::MatChunk, "MAT chunk"),
        (PageKind::ZitChunk, "ZIT chunk"),
        (PageKind::MatDirectory, "MAT directory"),
        (PageKind::ZitDirectory, "ZIT directory"),
        (PageKind::Deltas, "delta records"),
    ];
    kinds.iter().find(|(known, _)| *known as u8 == kind).map_or("unknown", |(_, name)| name)
}

fn view_batch(found: Found) -> BatchView {
    let kind = match found.kind {
        BatchKind::Journal => BatchContents::Journal(record::decode_all(&found.body)),
        BatchKind::Seal => BatchContents::Seal,
        BatchKind::Checkpoint => match decode_checkpoint(&found) {
            Some(checkpoint) => BatchContents::Checkpoint {
                number: checkpoint.header.number.get(),
                cut: checkpoint.header.cut.get(),
                replay_from: Address::from_bits(checkpoint.header.replay_from.get()),
                next_node: checkpoint.header.next_node.get(),
                features: checkpoint.header.features_incompatible.get(),
                counters: checkpoint.header.counters.map(|counter| counter.get()),
                prepaid: checkpoint.header.prepaid.get(),
            },
            None => BatchContents::Damaged,
        },
    };
    BatchView {
        at: found.at,
        epoch: found.epoch,
        sequence: found.sequence,
        lsns: (found.first, found.last),
        known_durable: found.known_durable,
        checkpoint: found.checkpoint,
        kind,
    }
}

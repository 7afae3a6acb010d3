//! The Metadata Allocation Table: where each node lies.
//!
//! A node's place is usually the address of the page that holds all of it. A leaf that has changed a little since it
//! was last written whole has two addresses: that page (the base page) and a page of delta records (`delta`).
//!
//! A look-up goes through three layers in this order: the overlay of the running epoch, the overlay of the epoch that
//! is being checkpointed, the chunks. Chunks change only when a checkpoint merges its overlay into them, so the chunks
//! on the device are always those of the last checkpoint. The directory has the addresses of all chunks and is held in
//! memory (16 bytes for each ~1,000 nodes).
//!
//! This module does no I/O. If a chunk is not in memory, it returns the chunk's number, and the caller reads it.

use std::collections::HashMap;

use pool::NodeCopy;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use zone::Address;

use crate::delta;
use crate::format::PAGE_HEADER;
use crate::types::NodeId;
use crate::weight::Weight;

/// Where a chunk lies and how many of its ids are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) address: Address,
    pub(crate) used: u32,
}

/// Where a node lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The page with its newest contents, whole or as delta records; none if it lies nowhere.
    pub at: Address,
    /// The base page of the delta records; none if `at` is whole.
    pub base: Address,
}

impl Place {
    /// The place of a node that has not been written.
    pub const NOWHERE: Place = Place { at: Address::NONE, base: Address::NONE };

    /// A page that holds all of the node.
    pub fn whole(at: Address) -> Self {
        Place { at, base: Address::NONE }
    }

    /// Whether the node has not been written.
    pub fn is_nowhere(&self) -> bool {
        self.at.is_none()
    }

    /// Whether the node was last written as delta records.
    pub fn is_delta(&self) -> bool {
        !self.base.is_none()
    }

    /// The copy of the node that lies there, if there is one.
    pub(crate) fn copy(&self) -> Option<NodeCopy> {
        match (self.is_nowhere(), self.is_delta()) {
            (true, _) => None,
            (_, true) => Some(NodeCopy::Deltas { at: self.at, base: self.base }),
            (_, false) => Some(NodeCopy::Page(self.at)),
        }
    }

    /// The weight of a node that lies there when it is written once more.
    pub(crate) fn weight(&self, page_size: usize) -> Weight {
        match (self.is_nowhere(), self.is_delta()) {
            (true, _) => Weight::default(),
            (_, true) => Weight::packed(page_size / delta::SHARE),
            (_, false) => Weight::of_bytes(page_size),
        }
    }

    /// The page from which reading the node begins.
    pub fn whole_page(&self) -> Address {
        if self.is_delta() { self.base } else { self.at }
    }
}

/// How places lie in a chunk of the MAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatLayout {
    /// Bytes of a place: with one address or with two.
    entry: usize,
    /// Places in a chunk.
    per_chunk: u64,
}

impl MatLayout {
    /// The layout for pages of this size, with delta records or without.
    pub fn new(page_size: usize, deltas: bool) -> Self {
        let entry = if deltas { 16 } else { 8 };
        MatLayout { entry, per_chunk: ((page_size - PAGE_HEADER) / entry) as u64 }
    }

    /// Places in a chunk.
    pub fn per_chunk(&self) -> u64 {
        self.per_chunk
    }

    /// The place at `index` of a chunk.
    pub fn place_in(&self, chunk: &[u8], index: usize) -> Place {
        let at = PAGE_HEADER + index * self.entry;
        let address = |at: usize| {
            Address::from_bits(u64::from_le_bytes(chunk[at..at + 8].try_into().expect("eight bytes")))
        };
        match self.has_deltas() {
            true => Place { at: address(at), base: address(at + 8) },
            false => Place::whole(address(at)),
        }
    }

    /// Sets the place at `index` of a chunk.
    fn set_in(&self, chunk: &mut [u8], index: usize, place: Place) {
        let at = PAGE_HEADER + index * self.entry;
        chunk[at..at + 8].copy_from_slice(&place.at.bits().to_le_bytes());
        if self.has_deltas() {
            chunk[at + 8..at + 16].copy_from_slice(&place.base.bits().to_le_bytes());
        } else {
            assert!(!place.is_delta(), "a volume without delta records has none");
        }
    }

    fn has_deltas(&self) -> bool {
        self.entry == 16
    }
}

/// The place of a node as far as it is known without I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// At this place, which may be [`Place::NOWHERE`].
    At(Place),
    /// The chunk with this number has the place.
    InChunk(u64),
}

/// The result of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The node has another place by now, so the copy is dead.
    Not,
    /// The old place was in the overlay and is no longer named.
    InOverlay,
    /// The old place is still in the chunk, until the next checkpoint.
    InChunk,
}

/// A node whose place has changed since a cut. Nowhere: the node was freed, or is new.
#[derive(Clone, Copy, Default)]
struct Changed {
    place: Place,
    /// The most that the node weighs after a replay. It is nothing if the node was only moved. It is a page if the
    /// node was written whole, because replay knows all changes since the page before.
    weight: Weight,
}

type Overlay = HashMap<NodeId, Changed>;

#[derive(Default)]
struct State {
    running: Overlay,
    saving: Overlay,
    chunks: Vec<ChunkPlace>,
    next_node: u64,
    /// Ids available for new nodes.
    free: Vec<NodeId>,
    /// The next chunk to search for unused ids.
    searched: usize,
}

/// Sizes that each commit reads. Changed under the lock.
#[derive(Default)]
struct Counts {
    running: AtomicUsize,
    /// The weight of the running overlay.
    weight: AtomicUsize,
    chunks: AtomicU64,
}

/// The table.
pub(crate) struct Mat {
    state: Mutex<State>,
    counts: Counts,
    layout: MatLayout,
    page_size: usize,
}

impl Mat {
    /// A table with this page size, with or without delta records.
    pub(crate) fn new(page_size: usize, deltas: bool, next_node: u64) -> Self {
        let state = Mutex::new(State { next_node, ..State::default() });
        Mat { state, counts: Counts::default(), layout: MatLayout::new(page_size, deltas), page_size }
    }

    /// Notes the place of a node that was written, or only moved, in the running epoch. Returns its earlier place in
    /// that epoch.
    fn run(&self, state: &mut State, id: NodeId, place: Place, is_moved: bool) -> Option<Place> {
        let before = state.running.get(&id).copied();
        let was = before.unwrap_or_default().weight;
        let weight = match place.is_nowhere() {
            true => Weight::default(),
            false if is_moved => was,
            false => was.max(place.weight(self.page_size)),
        };
        state.running.insert(id, Changed { place, weight });
        self.counts.running.store(state.running.len(), Ordering::Relaxed);
        self.counts.weight.store((self.running_weight() - was + weight).bytes(), Ordering::Relaxed);
        before.map(|before| before.place)
    }

    /// Whether a leaf may be stored as delta records.
    pub(crate) fn has_deltas(&self) -> bool {
        self.layout.has_deltas()
    }

    /// The place at `index` of a chunk.
    pub(crate) fn place_in(&self, chunk: &[u8], index: usize) -> Place {
        self.layout.place_in(chunk, index)
    }

    /// Sets the place at `index` of a chunk.
    pub(crate) fn set_in(&self, chunk: &mut [u8], index: usize, place: Place) {
        self.layout.set_in(chunk, index, place);
    }

    /// The chunks of the checkpoint from which recovery starts. Ids below `least` always count as used.
    pub(crate) fn load(&self, chunks: Vec<ChunkPlace>, least: u64) {
        self.counts.chunks.store(chunks.len() as u64, Ordering::Relaxed);
        let mut state = self.state.lock();
        // No node has an id beyond the chunks. So a new node extends the table by no more than it should, even if the
        // checkpoint claims higher ids.
        state.next_node = state.next_node.min(self.layout.per_chunk * chunks.len() as u64).max(least);
        state.chunks = chunks;
    }

    /// Places in a chunk.
    pub(crate) fn per_chunk(&self) -> u64 {
        self.layout.per_chunk()
    }

    pub(crate) fn find(&self, id: NodeId) -> Found {
        let state = self.state.lock();
        if let Some(changed) = state.running.get(&id).or_else(|| state.saving.get(&id)) {
            return Found::At(changed.place);
        }
        Found::InChunk(id.0 / self.layout.per_chunk)
    }

    /// The same in the epoch that is being saved.
    pub(crate) fn find_saved(&self, id: NodeId) -> Found {
        let state = self.state.lock();
        state
            .saving
            .get(&id)
            .map_or(Found::InChunk(id.0 / self.layout.per_chunk), |changed| Found::At(changed.place))
    }

    /// The place of a chunk. It has no address if there is no such chunk.
    pub(crate) fn chunk(&self, number: u64) -> ChunkPlace {
        self.state.lock().chunks.get(number as usize).copied().unwrap_or_default()
    }

    /// Notes where a node of the running epoch (or, with `saving`, of the one being saved) was written.
    /// Returns the place that it had in that epoch.
    pub(crate) fn place(&self, id: NodeId, place: Place, saving: bool) -> Option<Place> {
        let mut state = self.state.lock();
        if !saving {
            return self.run(&mut state, id, place, false);
        }
        // The node belongs to an epoch after its cut, so its weight is no longer used.
        let changed = Changed { place, weight: Weight::default() };
        state.saving.insert(id, changed).map(|before| before.place)
    }

    /// Notes the new place of a moved node, if its place has not changed meanwhile. `from` is its place in the
    /// overlay, or else in its chunk.
    pub(crate) fn replace(&self, id: NodeId, from: Place, to: Place) -> Replaced {
        let mut state = self.state.lock();
        assert!(state.saving.is_empty(), "GC does not run while a checkpoint is taken");
        match state.running.get(&id) {
            Some(now) if now.place != from => return Replaced::Not,
            _ => {}
        }
        match self.run(&mut state, id, to, true) {
            Some(_) => Replaced::InOverlay,
            None => Replaced::InChunk,
        }
    }

    /// Removes a node that is no longer part of any tree. Its id is available again at once.
    pub(crate) fn free(&self, id: NodeId) -> Option<Place> {
        let mut state = self.state.lock();
        state.free.push(id);
        self.run(&mut state, id, Place::NOWHERE, false)
    }

    /// An id for a new node, which lies nowhere until it is written.
    pub(crate) fn allocate(&self) -> NodeId {
        let mut state = self.state.lock();
        let id = state.free.pop().unwrap_or_else(|| {
            state.next_node += 1;
            NodeId(state.next_node - 1)
        });
        state.running.entry(id).or_default();
        self.counts.running.store(state.running.len(), Ordering::Relaxed);
        id
    }

    /// The next id that has never been used.
    pub(crate) fn next_node(&self) -> u64 {
        self.state.lock().next_node
    }

    /// Pretends that ids below `next` have been used, as a forged checkpoint may.
    #[cfg(test)]
    pub(crate) fn set_next_node(&self, next: u64) {
        self.state.lock().next_node = next;
    }

    /// A chunk that may have unused ids, if no free ids are known. The caller reads it and passes it to
    /// [`Mat::harvest`].
    pub(crate) fn chunk_to_harvest(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if !state.free.is_empty() || !state.saving.is_empty() || !state.running.is_empty() {
            return None;
        }
        let full = self.layout.per_chunk as u32;
        while state.searched < state.chunks.len() {
            let number = state.searched;
            state.searched += 1;
            let chunk = state.chunks[number];
            if !chunk.address.is_none() && chunk.used < full / 4 * 3 {
                return Some(number as u64);
            }
        }
        None
    }

    /// Takes the unused ids of a chunk, if nothing has changed since the last checkpoint.
    pub(crate) fn harvest(&self, number: u64, chunk: &[u8]) {
        let mut state = self.state.lock();
        if !state.free.is_empty() || !state.saving.is_empty() || !state.running.is_empty() {
            return;
        }
        let next = state.next_node;
        let first = number * self.layout.per_chunk;
        let unused =
            (0..self.layout.per_chunk as usize).filter(|&index| self.place_in(chunk, index).is_nowhere());
        let ids = unused.map(|index| NodeId(first + index as u64)).filter(|id| id.0 != 0 && id.0 < next);
        state.free.extend(ids);
    }

    /// Number of nodes whose place changed since the last cut.
    pub(crate) fn running_len(&self) -> usize {
        self.counts.running.load(Ordering::Relaxed)
    }

    /// The weight of the nodes that were written since the last cut.
    pub(crate) fn running_weight(&self) -> Weight {
        Weight::of_bytes(self.counts.weight.load(Ordering::Relaxed))
    }

    /// The cut: the running overlay becomes the one being saved.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock();
        assert!(state.saving.is_empty(), "one checkpoint at a time");
        state.saving = std::mem::take(&mut state.running);
        self.counts.running.store(0, Ordering::Relaxed);
        self.counts.weight.store(0, Ordering::Relaxed);
    }

    /// The overlay being saved, in the order of chunks.
    pub(crate) fn saving(&self) -> Vec<(NodeId, Place)> {
        let mut all: Vec<_> =
            self.state.lock().saving.iter().map(|(id, changed)| (*id, changed.place)).collect();
        all.sort_unstable();
        all
    }

    /// The checkpoint is durable: the written chunks replace the saved overlay.
    pub(crate) fn saved(&self, written: &[(u64, ChunkPlace)]) {
        let mut state = self.state.lock();
        for (number, place) in written {
            let index = *number as usize;
            assert!(!place.address.is_none(), "a checkpoint replaces chunks with written ones");
            if state.chunks.len() <= index {
                state.chunks.resize(index + 1, ChunkPlace::default());
            }
            state.chunks[index] = *place;
        }
        self.counts.chunks.store(state.chunks.len() as u64, Ordering::Relaxed);
        state.saving.clear();
    }

    /// Number of chunks.
    pub(crate) fn chunks_len(&self) -> u64 {
        self.counts.chunks.load(Ordering::Relaxed)
    }

    /// All chunks.
    pub(crate) fn chunks(&self) -> Vec<ChunkPlace> {
        self.state.lock().chunks.clone()
    }
}

#[cfg(test)]
mod tests;

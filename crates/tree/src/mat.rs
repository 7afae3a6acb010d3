//! The Metadata Allocation Table: where each node lies.
//!
//! A node's place is one address, of the page that holds all of it; or, of a leaf that has changed a little
//! since it was last written whole, two: that page (the base) and a page of changes (`delta`).
//!
//! Three layers, asked in this order: the overlay of the running epoch, the overlay of the epoch that
//! is being checkpointed, the chunks. Chunks change only when a checkpoint merges its overlay into
//! them, so the chunks on the device are always those of the last checkpoint. Which chunks there are,
//! and where, is in the directory, which is kept in memory (16 bytes for each ~1,000 nodes).
//!
//! Does no I/O: a chunk that is not in memory is named to the caller, who reads it.

use std::collections::HashMap;

use rt::sync::Mutex;
use zone::Address;

use crate::epoch::Weight;
use crate::format::PAGE_HEADER;
use crate::types::NodeId;

/// Where a chunk lies and how many of its ids are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) address: Address,
    pub(crate) used: u32,
}

/// Where a node lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The page with its newest contents, whole or as changes to the base; none when it lies nowhere.
    pub(crate) at: Address,
    /// The whole page that the changes are to; none when `at` is whole.
    pub(crate) base: Address,
}

impl Place {
    pub(crate) const NOWHERE: Place = Place { at: Address::NONE, base: Address::NONE };

    /// A page that holds all of the node.
    pub(crate) fn whole(at: Address) -> Self {
        Place { at, base: Address::NONE }
    }

    pub(crate) fn is_nowhere(&self) -> bool {
        self.at.is_none()
    }

    pub(crate) fn is_delta(&self) -> bool {
        !self.base.is_none()
    }

    /// The page from which reading the node begins.
    pub(crate) fn whole_page(&self) -> Address {
        if self.is_delta() { self.base } else { self.at }
    }
}

/// What is known of a node without I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Here (or nowhere).
    At(Place),
    /// The chunk with this number says.
    InChunk(u64),
}

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The node has another place by now: the copy is dead.
    Not,
    /// The old place was in the overlay and is named no more.
    InOverlay,
    /// The old place is still in the chunk, until the next checkpoint.
    InChunk,
}

/// Changes of places since a cut. Nowhere: the node was freed, or is new.
pub(crate) type Overlay = HashMap<NodeId, Place>;

#[derive(Default)]
struct State {
    running: Overlay,
    /// What those in it weigh at most when they have been replayed.
    weight: Weight,
    saving: Overlay,
    chunks: Vec<ChunkPlace>,
    next_node: u64,
    page_size: usize,
    /// Ids that may be given out.
    free: Vec<NodeId>,
    /// The next chunk to look for unused ids in.
    searched: usize,
}

impl State {
    /// Notes a place in the running epoch. Returns the one that it had in that epoch.
    fn run(&mut self, id: NodeId, place: Place) -> Option<Place> {
        let before = self.running.insert(id, place);
        let weight = |place| Weight::of_place(place, self.page_size);
        let (was, is) = (before.map_or(Weight::default(), weight), weight(place));
        // Of changes to a page that was written in this epoch replay knows more: all since the one before.
        self.weight = self.weight - was + if place.is_nowhere() { is } else { is.max(was) };
        before
    }
}

/// The table.
pub(crate) struct Mat {
    state: Mutex<State>,
    /// Bytes of a place in a chunk: with one address or with two.
    entry: usize,
    /// Places in a chunk.
    per_chunk: u64,
}

impl Mat {
    /// A table whose chunks have pages of this size; with changes of leaves, or without.
    pub(crate) fn new(page_size: usize, deltas: bool, next_node: u64) -> Self {
        let state = State { next_node, page_size, ..State::default() };
        let entry = if deltas { 16 } else { 8 };
        Mat { state: Mutex::new(state), entry, per_chunk: ((page_size - PAGE_HEADER) / entry) as u64 }
    }

    /// Whether a leaf may lie as changes to a base.
    pub(crate) fn has_deltas(&self) -> bool {
        self.entry == 16
    }

    /// The place at `index` of a chunk.
    pub(crate) fn place_in(&self, chunk: &[u8], index: usize) -> Place {
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
    pub(crate) fn set_in(&self, chunk: &mut [u8], index: usize, place: Place) {
        let at = PAGE_HEADER + index * self.entry;
        chunk[at..at + 8].copy_from_slice(&place.at.bits().to_le_bytes());
        if self.has_deltas() {
            chunk[at + 8..at + 16].copy_from_slice(&place.base.bits().to_le_bytes());
        } else {
            assert!(!place.is_delta(), "a volume without deltas has none");
        }
    }

    /// The chunks of the checkpoint from which recovery starts.
    pub(crate) fn load(&self, chunks: Vec<ChunkPlace>) {
        self.state.lock().chunks = chunks;
    }

    /// Places in a chunk.
    pub(crate) fn per_chunk(&self) -> u64 {
        self.per_chunk
    }

    pub(crate) fn find(&self, id: NodeId) -> Found {
        let state = self.state.lock();
        if let Some(place) = state.running.get(&id).or_else(|| state.saving.get(&id)) {
            return Found::At(*place);
        }
        Found::InChunk(id.0 / self.per_chunk)
    }

    /// The same in the epoch that is being saved.
    pub(crate) fn find_saved(&self, id: NodeId) -> Found {
        let state = self.state.lock();
        state.saving.get(&id).map_or(Found::InChunk(id.0 / self.per_chunk), |place| Found::At(*place))
    }

    /// Where a chunk lies; no address when there is none.
    pub(crate) fn chunk(&self, number: u64) -> ChunkPlace {
        self.state.lock().chunks.get(number as usize).copied().unwrap_or_default()
    }

    /// Notes where a node of the running epoch (or, with `saving`, of the one being saved) was written.
    /// Returns the place that it had in that epoch.
    pub(crate) fn place(&self, id: NodeId, place: Place, saving: bool) -> Option<Place> {
        let mut state = self.state.lock();
        if saving { state.saving.insert(id, place) } else { state.run(id, place) }
    }

    /// Notes the new place of a node that was moved, if nothing has happened to it meanwhile; `from` is
    /// where the overlay, or else its chunk, said that it was.
    pub(crate) fn replace(&self, id: NodeId, from: Place, to: Place) -> Replaced {
        let mut state = self.state.lock();
        assert!(state.saving.is_empty(), "nothing is cleaned while a checkpoint is taken");
        match state.running.get(&id) {
            Some(now) if *now != from => return Replaced::Not,
            _ => {}
        }
        match state.run(id, to) {
            Some(_) => Replaced::InOverlay,
            None => Replaced::InChunk,
        }
    }

    /// The node is no longer part of any tree. Its id may be given out again at once.
    pub(crate) fn free(&self, id: NodeId) -> Option<Place> {
        let mut state = self.state.lock();
        state.free.push(id);
        state.run(id, Place::NOWHERE)
    }

    /// An id for a new node, which lies nowhere until it is written.
    pub(crate) fn allocate(&self) -> NodeId {
        let mut state = self.state.lock();
        let id = state.free.pop().unwrap_or_else(|| {
            state.next_node += 1;
            NodeId(state.next_node - 1)
        });
        state.running.entry(id).or_insert(Place::NOWHERE);
        id
    }

    /// The next id that has never been given out.
    pub(crate) fn next_node(&self) -> u64 {
        self.state.lock().next_node
    }

    /// A chunk that may have unused ids, when few are known: to be read and offered to
    /// [`Mat::harvest`].
    pub(crate) fn chunk_to_harvest(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if !state.free.is_empty() || !state.saving.is_empty() || !state.running.is_empty() {
            return None;
        }
        let full = self.per_chunk as u32;
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
        let first = number * self.per_chunk;
        let unused = (0..self.per_chunk as usize).filter(|&index| self.place_in(chunk, index).is_nowhere());
        let ids = unused.map(|index| NodeId(first + index as u64)).filter(|id| id.0 != 0 && id.0 < next);
        state.free.extend(ids);
    }

    /// Number of nodes whose place changed since the last cut.
    pub(crate) fn running_len(&self) -> usize {
        self.state.lock().running.len()
    }

    /// What those weigh of them that were written since.
    pub(crate) fn running_weight(&self) -> Weight {
        self.state.lock().weight
    }

    /// The cut: what was running is now being saved.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock();
        assert!(state.saving.is_empty(), "one checkpoint at a time");
        state.saving = std::mem::take(&mut state.running);
        state.weight = Weight::default();
    }

    /// What is being saved, by chunk.
    pub(crate) fn saving(&self) -> Vec<(NodeId, Place)> {
        let mut all: Vec<_> = self.state.lock().saving.iter().map(|(id, place)| (*id, *place)).collect();
        all.sort_unstable();
        all
    }

    /// The checkpoint is durable: chunks that were written take the place of the saved overlay.
    pub(crate) fn saved(&self, written: &[(u64, ChunkPlace)]) {
        let mut state = self.state.lock();
        for (number, place) in written {
            let index = *number as usize;
            if state.chunks.len() <= index {
                state.chunks.resize(index + 1, ChunkPlace::default());
            }
            state.chunks[index] = *place;
        }
        state.saving.clear();
    }

    /// Number of chunks.
    pub(crate) fn chunks_len(&self) -> u64 {
        self.state.lock().chunks.len() as u64
    }

    /// All chunks.
    pub(crate) fn chunks(&self) -> Vec<ChunkPlace> {
        self.state.lock().chunks.clone()
    }
}

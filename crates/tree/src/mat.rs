//! The Metadata Allocation Table: where each node lies.
//!
//! Three layers, asked in this order: the overlay of the running epoch, the overlay of the epoch that
//! is being checkpointed, the chunks. Chunks change only when a checkpoint merges its overlay into
//! them, so the chunks on the device are always those of the last checkpoint. Which chunks there are,
//! and where, is in the directory, which is kept in memory (16 bytes for each ~2,000 nodes).
//!
//! Does no I/O: a chunk that is not in memory is named to the caller, who reads it.

use std::collections::HashMap;

use rt::sync::Mutex;
use zone::Address;

use crate::types::NodeId;

/// Where a chunk lies and how many of its ids are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) address: Address,
    pub(crate) used: u32,
}

/// What is known of a node without I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Here (or, with no address, nowhere).
    At(Address),
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

/// Changes of places since a cut. No address: the node was freed.
pub(crate) type Overlay = HashMap<NodeId, Address>;

#[derive(Default)]
struct State {
    running: Overlay,
    saving: Overlay,
    chunks: Vec<ChunkPlace>,
    next_node: u64,
    /// Ids that may be given out.
    free: Vec<NodeId>,
    /// The next chunk to look for unused ids in.
    searched: usize,
}

/// The table.
pub(crate) struct Mat {
    state: Mutex<State>,
    /// Addresses in a chunk.
    per_chunk: u64,
}

impl Mat {
    pub(crate) fn new(per_chunk: u64, next_node: u64) -> Self {
        let state = State { next_node, ..State::default() };
        Mat { state: Mutex::new(state), per_chunk }
    }

    /// The chunks of the checkpoint from which recovery starts.
    pub(crate) fn load(&self, chunks: Vec<ChunkPlace>) {
        self.state.lock().chunks = chunks;
    }

    /// Addresses in a chunk.
    pub(crate) fn per_chunk(&self) -> u64 {
        self.per_chunk
    }

    pub(crate) fn find(&self, id: NodeId) -> Found {
        let state = self.state.lock();
        if let Some(address) = state.running.get(&id).or_else(|| state.saving.get(&id)) {
            return Found::At(*address);
        }
        Found::InChunk(id.0 / self.per_chunk)
    }

    /// Where a chunk lies; no address when there is none.
    pub(crate) fn chunk(&self, number: u64) -> ChunkPlace {
        self.state.lock().chunks.get(number as usize).copied().unwrap_or_default()
    }

    /// Notes where a node of the running epoch (or, with `saving`, of the one being saved) was written.
    pub(crate) fn place(&self, id: NodeId, address: Address, saving: bool) -> Option<Address> {
        let mut state = self.state.lock();
        let overlay = if saving { &mut state.saving } else { &mut state.running };
        overlay.insert(id, address)
    }

    /// Notes the new place of a node that was moved, if nothing has happened to it meanwhile; `from` is
    /// where the overlay, or else its chunk, said that it was.
    pub(crate) fn replace(&self, id: NodeId, from: Address, to: Address) -> Replaced {
        let mut state = self.state.lock();
        assert!(state.saving.is_empty(), "nothing is cleaned while a checkpoint is taken");
        match state.running.get(&id) {
            Some(now) if *now != from => return Replaced::Not,
            _ => {}
        }
        match state.running.insert(id, to) {
            Some(_) => Replaced::InOverlay,
            None => Replaced::InChunk,
        }
    }

    /// The node is no longer part of any tree. Its id may be given out again at once.
    pub(crate) fn free(&self, id: NodeId) -> Option<Address> {
        let mut state = self.state.lock();
        state.free.push(id);
        state.running.insert(id, Address::NONE)
    }

    /// An id for a new node, which lies nowhere until it is written.
    pub(crate) fn allocate(&self) -> NodeId {
        let mut state = self.state.lock();
        let id = state.free.pop().unwrap_or_else(|| {
            state.next_node += 1;
            NodeId(state.next_node - 1)
        });
        state.running.entry(id).or_insert(Address::NONE);
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
    pub(crate) fn harvest(&self, number: u64, addresses: impl Iterator<Item = Address>) {
        let mut state = self.state.lock();
        if !state.free.is_empty() || !state.saving.is_empty() || !state.running.is_empty() {
            return;
        }
        let next = state.next_node;
        let first = number * self.per_chunk;
        let unused = addresses.enumerate().filter(|(_, address)| address.is_none());
        let ids = unused.map(|(index, _)| NodeId(first + index as u64)).filter(|id| id.0 != 0 && id.0 < next);
        state.free.extend(ids);
    }

    /// Number of nodes whose place changed since the last cut.
    pub(crate) fn running_len(&self) -> usize {
        self.state.lock().running.len()
    }

    /// The cut: what was running is now being saved.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock();
        assert!(state.saving.is_empty(), "one checkpoint at a time");
        state.saving = std::mem::take(&mut state.running);
    }

    /// What is being saved, by chunk.
    pub(crate) fn saving(&self) -> Vec<(NodeId, Address)> {
        let mut all: Vec<_> = self.state.lock().saving.iter().map(|(id, address)| (*id, *address)).collect();
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

    /// All chunks.
    pub(crate) fn chunks(&self) -> Vec<ChunkPlace> {
        self.state.lock().chunks.clone()
    }
}

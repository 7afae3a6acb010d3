//! Chunks of the MAT in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rt::sync::Mutex;
use zone::{Address, PageBuffer};

use super::Nodes;
use super::memory::Reading;
use crate::format::PageKind;
use crate::mat::{Found, Place};
use crate::types::{NodeId, Result, StoreError};

/// Chunks of the MAT that stay in memory while this value exists.
pub(crate) type PinnedChunks = Vec<Arc<PageBuffer>>;

/// MAT chunks in memory. The number is bounded, except for chunks in use.
pub(crate) struct ChunkCache {
    limit: usize,
    chunks: Mutex<ChunkMap>,
}

#[derive(Default)]
struct ChunkMap {
    map: HashMap<u64, CachedChunk>,
    now: u64,
}

struct CachedChunk {
    address: Address,
    bytes: Arc<PageBuffer>,
    used: u64,
}

impl ChunkCache {
    pub(crate) fn new(limit: usize) -> Self {
        ChunkCache { limit, chunks: Mutex::new(ChunkMap::default()) }
    }

    pub(crate) fn pages(&self) -> usize {
        self.chunks.lock().map.len()
    }

    /// Drops the chunks that are not in use. Returns whether there were any.
    pub(crate) fn shrink(&self) -> bool {
        let map = &mut self.chunks.lock().map;
        let before = map.len();
        map.retain(|_, chunk| Arc::strong_count(&chunk.bytes) > 1);
        map.len() < before
    }

    /// The chunk as it is at `address`.
    pub(crate) fn get(&self, number: u64, address: Address) -> Option<Arc<PageBuffer>> {
        let mut chunks = self.chunks.lock();
        chunks.now += 1;
        let now = chunks.now;
        let chunk = chunks.map.get_mut(&number).filter(|chunk| chunk.address == address)?;
        chunk.used = now;
        Some(Arc::clone(&chunk.bytes))
    }

    pub(crate) fn put(&self, number: u64, address: Address, bytes: Arc<PageBuffer>) {
        let mut chunks = self.chunks.lock();
        chunks.now += 1;
        let used = chunks.now;
        chunks.map.insert(number, CachedChunk { address, bytes, used });
        while chunks.map.len() > self.limit {
            let unheld = chunks.map.iter().filter(|(_, chunk)| Arc::strong_count(&chunk.bytes) == 1);
            let Some(oldest) = unheld.min_by_key(|(_, chunk)| chunk.used).map(|(number, _)| *number) else {
                break;
            };
            chunks.map.remove(&oldest);
        }
    }
}

impl Nodes {
    /// The chunk of the MAT at `place`. `None` if it is no longer there.
    pub(crate) fn chunk(&self, number: u64, place: Address) -> Result<Option<Arc<PageBuffer>>> {
        self.chunk_in(number, place, || self.page())
    }

    /// The same for a checkpoint, which cannot stop because memory is short.
    pub(crate) fn chunk_for_checkpoint(
        &self,
        number: u64,
        place: Address,
    ) -> Result<Option<Arc<PageBuffer>>> {
        self.chunk_in(number, place, || Ok(self.checkpoint_page()))
    }

    fn chunk_in(
        &self,
        number: u64,
        place: Address,
        page: impl FnOnce() -> Result<PageBuffer>,
    ) -> Result<Option<Arc<PageBuffer>>> {
        if place.is_none() {
            let mut page = page()?;
            page.fill(0);
            return Ok(Some(Arc::new(page)));
        }
        if let Some(bytes) = self.chunks.get(number, place) {
            return Ok(Some(bytes));
        }
        let page = page()?;
        if !self.volume.pool.enter(place) {
            return if self.mat.chunk(number).address == place {
                self.damaged(format!(
                    "the address of MAT chunk {number} is {place}, but the zone is in another life"
                ))
            } else {
                Ok(None)
            };
        }
        let read = self.read_page(page, place, PageKind::MatChunk, number);
        self.volume.pool.leave(place.zone());
        match read {
            Ok(bytes) => {
                let bytes = Arc::new(bytes);
                self.cache_chunk(number, place, Arc::clone(&bytes));
                Ok(Some(bytes))
            }
            Err(_) if self.mat.chunk(number).address != place => Ok(None),
            Err(error) => self.volume.shut_down_on_error("a chunk of the MAT cannot be read", Err(error)),
        }
    }

    /// Holds the chunks with the places of these nodes in memory, and reads the missing ones at once. The number of
    /// nodes is at most the number of pages that are read at once.
    pub(crate) fn pin_chunks(&self, ids: &[NodeId]) -> PinnedChunks {
        let in_chunk = |id: &NodeId| match self.mat.find(*id) {
            Found::InChunk(number) => Some(number),
            Found::At(_) => None,
        };
        self.pin_numbered_chunks(ids.iter().filter_map(in_chunk))
    }

    /// The same for chunks with these numbers.
    pub(crate) fn pin_numbered_chunks(&self, numbers: impl Iterator<Item = u64>) -> PinnedChunks {
        let numbers: BTreeSet<u64> = numbers.take(self.pages_at_once()).collect();
        let (mut held, mut missing) = (PinnedChunks::new(), Vec::new());
        for number in numbers {
            let at = self.mat.chunk(number).address;
            match self.chunks.get(number, at) {
                Some(chunk) => held.push(chunk),
                None if at.is_none() => {}
                None => missing.push((at, PageKind::MatChunk, number)),
            }
        }
        if missing.is_empty() {
            return held;
        }
        for (&(at, _, number), read) in missing.iter().zip(self.read_many(&missing, Reading::Ahead)) {
            let Ok((bytes, _)) = read else { continue };
            let chunk = Arc::new(bytes);
            held.push(Arc::clone(&chunk));
            self.chunks.put(number, at, chunk);
        }
        held
    }

    /// Where a node lies. The held chunks are released for its chunk if there is no other memory.
    pub(crate) fn find_with_chunks(&self, held: &mut PinnedChunks, id: NodeId) -> Result<Place> {
        let found = match self.find(id) {
            Err(StoreError::NoMemory(_)) if !held.is_empty() => {
                held.clear();
                self.find(id)
            }
            found => found,
        };
        Ok(found?.0)
    }
}

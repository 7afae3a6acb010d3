//! From a node id to the node: its place in the MAT, its pages on the device, the caches.

mod chunks;
mod memory;

use std::sync::Arc;

use pool::Lsn;
use rt::sync::atomic::{AtomicU64, Ordering};
use smallvec::SmallVec;
use zone::format::FEATURE_DELTAS;
use zone::{Address, Command, Life, Output, PageBuffer, PageReservation, Pages};

use crate::cache::{Cache, Node, UnusedPages};
use crate::delta::{self, Changes};
use crate::format::{self, PageHeader, PageKind};
use crate::limits::CachePages;
use crate::log::Log;
use crate::mat::{Found, Mat, Place};
use crate::page::Page;
use crate::readahead::{NEXT_LEAVES, Readahead};
use crate::types::{NodeId, Result, StoreError};
use crate::volume::Volume;
use chunks::ChunkCache;
pub(crate) use chunks::PinnedChunks;
pub(crate) use memory::PAGES_AT_ONCE;
use memory::Reading;

/// Bytes, and pages, that are read at once, at most.
const AT_ONCE_BYTES: usize = 4 << 20;
const AT_ONCE: usize = 256;

/// The nodes on the device and in memory.
pub(crate) struct Nodes {
    pub(crate) volume: Arc<Volume>,
    log: Arc<Log>,
    pub(crate) mat: Mat,
    pub(crate) cache: Cache,
    pub(crate) chunks: ChunkCache,
    /// Memory for pages.
    pub(crate) pages: Arc<Pages>,
    /// Pages reserved for the holder of the checkpoint lock: a checkpoint cannot stop because memory is short.
    _pages_to_save: PageReservation,
    pub(crate) unused_pages: UnusedPages,
    pub(crate) readahead: Readahead,
    /// Nodes that were read, on demand or ahead.
    reads: AtomicU64,
}

impl Nodes {
    /// No nodes, and memory for this number of nodes and chunks.
    pub(crate) fn new(
        volume: Arc<Volume>,
        log: Arc<Log>,
        limits: CachePages,
        next_node: u64,
    ) -> Result<Self> {
        let pages = Pages::new(volume.page_size());
        Ok(Nodes {
            mat: Mat::new(volume.page_size(), volume.has_feature(FEATURE_DELTAS), next_node),
            cache: Cache::new(limits.nodes),
            chunks: ChunkCache::new(limits.chunks),
            _pages_to_save: pages.reserve(memory::CHECKPOINT_PAGES)?,
            pages,
            unused_pages: UnusedPages::default(),
            readahead: Readahead::default(),
            reads: AtomicU64::new(0),
            volume,
            log,
        })
    }

    /// Nodes that were read from the device.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads a node into memory. `None`: it has no place any more (or not yet), and the caller repeats its look-up.
    pub(crate) fn load(&self, id: NodeId) -> Result<Option<Arc<Node>>> {
        self.load_with(id, &[])
    }

    /// The same, and reads other nodes ahead as far as this needs no further reads.
    pub(crate) fn load_with(&self, id: NodeId, mut others: &[NodeId]) -> Result<Option<Arc<Node>>> {
        loop {
            if let Some(node) = self.cache.get(id) {
                return Ok(Some(node));
            }
            let (place, chunk) = self.find(id)?;
            if place.is_nowhere() {
                return Ok(None);
            }
            let mut wanted = vec![(id, place, chunk)];
            wanted.extend(self.not_in_memory(others));
            others = &[];
            let reading = if wanted.len() > 1 { Reading::Ahead } else { Reading::Needed };
            let mut nodes = self.read_nodes(&wanted, reading).into_iter();
            let node = nodes.next().expect("each node is read or not");
            self.insert_read_ahead(nodes, &wanted[1..]);
            let node = match node {
                Ok(node) => node,
                // Alone, this node may replace unused pages.
                Err(StoreError::NoMemory(_)) if reading == Reading::Ahead => continue,
                Err(error) if self.is_current(id, place, chunk) => {
                    return self.volume.shut_down_on_error("a node cannot be read", Err(error));
                }
                Err(_) => continue,
            };
            if let Some(node) = self.cache.insert_read(node, || self.is_current(id, place, chunk)) {
                return Ok(Some(node));
            }
        }
    }

    /// Reads the requested leaves. Returns false if there was no request.
    pub(crate) fn read_ahead(&self) -> bool {
        let Some(requested) = self.readahead.take_request() else { return false };
        let wanted = self.not_in_memory(&requested);
        self.insert_read_ahead(self.read_nodes(&wanted, Reading::Ahead), &wanted);
        true
    }

    /// Reads these nodes as far as possible.
    pub(crate) fn read_missing(&self, ids: &[NodeId], held: &mut Vec<Arc<Node>>) {
        let mut wanted = Vec::with_capacity(ids.len());
        for ids in ids.chunks(self.pages_at_once()) {
            let _chunks = self.pin_chunks(ids);
            wanted.extend(self.not_in_memory(ids));
        }
        wanted.sort_unstable_by_key(|(_, place, _)| place.whole_page());
        // Each node may have a page of delta records beside its base page.
        for wanted in wanted.chunks(self.pages_at_once() / 2) {
            let nodes = self.read_nodes(wanted, Reading::Ahead).into_iter();
            for (node, &(id, place, chunk)) in nodes.zip(wanted) {
                let is_current = || self.is_current(id, place, chunk);
                held.extend(node.ok().and_then(|node| self.cache.insert_read(node, is_current)));
            }
        }
    }

    /// The nodes among `ids` that are not in memory and whose places are known without a read.
    pub(crate) fn not_in_memory(&self, ids: &[NodeId]) -> Vec<(NodeId, Place, Option<Address>)> {
        let absent = ids.iter().filter(|id| self.cache.get(**id).is_none());
        absent.filter_map(|&id| self.find_in_memory(id).map(|(place, chunk)| (id, place, chunk))).collect()
    }

    /// Puts nodes that were read ahead into the cache. The first one leads, and so do others at the distance at which
    /// walks request more.
    fn insert_read_ahead(
        &self,
        read: impl IntoIterator<Item = Result<Arc<Node>>>,
        wanted: &[(NodeId, Place, Option<Address>)],
    ) {
        for (index, (node, &(id, place, chunk))) in read.into_iter().zip(wanted).enumerate() {
            let Ok(node) = node else { continue };
            if index % NEXT_LEAVES == 0 {
                node.set_leading();
            }
            self.cache.insert_read(node, || self.is_current(id, place, chunk));
        }
    }

    /// The valid place of a node, if it is known without a read.
    fn find_in_memory(&self, id: NodeId) -> Option<(Place, Option<Address>)> {
        let (place, chunk) = match self.mat.find(id) {
            Found::At(place) => (place, None),
            Found::InChunk(number) => {
                let chunk = self.mat.chunk(number).address;
                let bytes = self.chunks.get(number, chunk)?;
                (self.mat.place_in(&bytes, (id.0 % self.mat.per_chunk()) as usize), Some(chunk))
            }
        };
        (!place.is_nowhere() && self.is_on_device(place)).then_some((place, chunk))
    }

    fn is_on_device(&self, place: Place) -> bool {
        let zones = self.volume.device.geometry().zones;
        [place.at, place.base].iter().all(|at| at.is_none() || at.zone().0 < zones)
    }

    /// Reads a node that lies at `place`: its base page, and the delta record if there is one.
    pub(crate) fn read_node(&self, id: NodeId, place: Place) -> Result<Arc<Node>> {
        self.read_nodes(&[(id, place, None)], Reading::Needed).pop().expect("one node is read or not")
    }

    /// Reads the nodes at these places, all at the same time. Delta records of several nodes share pages.
    pub(crate) fn read_nodes(
        &self,
        wanted: &[(NodeId, Place, Option<Address>)],
        reading: Reading,
    ) -> Vec<Result<Arc<Node>>> {
        self.reads.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        let mut shared: SmallVec<[Address; 8]> =
            wanted.iter().filter(|(_, place, _)| place.is_delta()).map(|(_, place, _)| place.at).collect();
        shared.sort_unstable();
        shared.dedup();
        let whole = wanted.iter().map(|(id, place, _)| (place.whole_page(), PageKind::Node, id.0));
        let pages: Vec<_> = whole.chain(shared.iter().map(|&at| (at, PageKind::Deltas, 0))).collect();
        let mut pages = self.read_many(&pages, reading);
        let changes = pages.split_off(wanted.len());
        let changes_at = |at: Address| {
            let page = &changes[shared.binary_search(&at).expect("each page with changes was asked for")];
            page.as_ref().map_err(StoreError::clone)
        };
        let read = pages.into_iter().zip(wanted).map(|(whole, &(id, place, _))| {
            let whole = whole?;
            let changes = place.is_delta().then(|| changes_at(place.at)).transpose()?;
            node_of(id, place, whole, changes)
        });
        read.collect()
    }

    /// Reads a page if its zone is still in the life of the address.
    pub(crate) fn read_within(
        &self,
        at: Address,
        kind: PageKind,
        id: u64,
    ) -> Result<(PageBuffer, PageHeader)> {
        self.read_many(&[(at, kind, id)], Reading::Needed).pop().expect("one page is read or not")
    }

    /// Reads pages like [`Nodes::read_within`], all at the same time and requested in the order of their addresses. A
    /// page that is not valid is read twice.
    pub(crate) fn read_many(
        &self,
        wanted: &[(Address, PageKind, u64)],
        reading: Reading,
    ) -> Vec<Result<(PageBuffer, PageHeader)>> {
        let mut pages: Vec<Result<Option<PageBuffer>>> =
            wanted.iter().map(|(at, ..)| self.enter_with_page(*at, reading)).collect();
        let mut commands: Vec<(usize, Command<'_>)> = (wanted.iter().zip(&mut pages).enumerate())
            .filter_map(|(index, ((at, ..), page))| {
                let into = page.as_mut().ok()?.as_deref_mut()?;
                Some((index, Command::Read { zone: at.zone(), block: at.block(), into }))
            })
            .collect();
        commands.sort_unstable_by_key(|(index, _)| wanted[*index].0);
        let (order, mut commands): (Vec<usize>, Vec<Command<'_>>) = commands.into_iter().unzip();
        let mut outputs: Vec<Option<Output>> = wanted.iter().map(|_| None).collect();
        for (index, output) in order.into_iter().zip(self.volume.device.run(&mut commands)) {
            outputs[index] = Some(output);
        }
        let read = wanted.iter().zip(pages).zip(outputs).map(|((&(at, kind, id), page), output)| {
            let Some(mut bytes) = page? else {
                let why = format!("page {id} ({kind:?}) at {at}: the zone is in another life");
                return Err(StoreError::Corrupt(why));
            };
            let output = output.expect("each command has an output");
            let checked =
                output.map_err(StoreError::from).and_then(|_| self.check_page(&bytes, at, kind, id));
            let read = match checked {
                Ok(header) => Ok((bytes, header)),
                Err(_) => self.read_again(&mut bytes, at, kind, id).map(|header| (bytes, header)),
            };
            self.volume.pool.leave(at.zone());
            read
        });
        read.collect()
    }

    /// Reads a page and verifies it (I-TREE-2). A page that is not valid is read twice, because after an error nothing
    /// could be changed any more.
    pub(crate) fn read_page(
        &self,
        mut into: PageBuffer,
        at: Address,
        kind: PageKind,
        id: u64,
    ) -> Result<PageBuffer> {
        let first = self.read_once(&mut into, at, kind, id);
        first.or_else(|_| self.read_again(&mut into, at, kind, id))?;
        Ok(into)
    }

    /// Reads a page once more, and then other copies of it, if the device has several.
    fn read_again(&self, into: &mut PageBuffer, at: Address, kind: PageKind, id: u64) -> Result<PageHeader> {
        let again = self.read_once(into, at, kind, id);
        let device = &self.volume.device;
        let copies = device.copies(at.zone(), at.block());
        if again.is_ok() || copies < 2 {
            return again;
        }
        let intact = (0..copies).find_map(|copy| {
            device.read_copy(at.zone(), at.block(), copy, into).ok()?;
            self.check_page(into, at, kind, id).ok()
        });
        if intact.is_some() {
            tracing::warn!("page {id} at {at} is damaged on one of the devices: another copy was read");
        }
        intact.map_or(again, Ok)
    }

    /// The damage of a copy of a page, if another copy is right. Nothing if there is only one copy, or the zone is in
    /// another life.
    pub(crate) fn damaged_copy(&self, at: Address, kind: PageKind, id: u64) -> Result<Option<String>> {
        let device = &self.volume.device;
        let copies = device.copies(at.zone(), at.block());
        if copies < 2 {
            return Ok(None);
        }
        let Some(mut bytes) = self.enter_with_page(at, Reading::Needed)? else { return Ok(None) };
        let mut damage = |copy| {
            let read = device.read_copy(at.zone(), at.block(), copy, &mut bytes).map_err(StoreError::from);
            read.and_then(|()| self.check_page(&bytes, at, kind, id)).err()
        };
        // A copy that is wrong is read once more, as by every reader.
        let damaged: Vec<(u32, StoreError)> =
            (0..copies).filter_map(|copy| damage(copy).and_then(|_| Some((copy, damage(copy)?)))).collect();
        self.volume.pool.leave(at.zone());
        let is_known = damaged.len() < copies as usize && device.copies(at.zone(), at.block()) == copies;
        let first = damaged.first().filter(|_| is_known);
        Ok(first.map(|(copy, why)| format!("the copy on {}: {why}", device.copy_name(at.zone(), *copy))))
    }

    fn read_once(&self, into: &mut PageBuffer, at: Address, kind: PageKind, id: u64) -> Result<PageHeader> {
        self.volume.device.read(at.zone(), at.block(), into)?;
        self.check_page(into, at, kind, id)
    }

    /// Verifies a page that was read at this address (I-TREE-2).
    pub(crate) fn check_page(
        &self,
        bytes: &[u8],
        at: Address,
        kind: PageKind,
        id: u64,
    ) -> Result<PageHeader> {
        let damaged = |what: &str| StoreError::Corrupt(format!("page {id} ({kind:?}) at {at}: {what}"));
        let header = format::decode_page(bytes, self.volume.info.fs_id)
            .ok_or_else(|| damaged("wrong checksum or volume"))?;
        if header.kind != kind as u8 || header.id.get() != id {
            return Err(damaged("it contains another page"));
        }
        if !at.is_of(Life(header.life.get())) {
            return Err(damaged("it was written in another life of the zone"));
        }
        if header.lsn.get() > self.log.last().0 {
            return Err(damaged("it is newer than the log"));
        }
        Ok(header)
    }

    /// A page buffer for a read. The zone cannot be reset meanwhile. None if it is in another life.
    fn enter_with_page(&self, at: Address, reading: Reading) -> Result<Option<PageBuffer>> {
        if !self.volume.pool.enter(at) {
            return Ok(None);
        }
        let page = match reading {
            Reading::Needed => self.page(),
            Reading::Ahead => self.pages.try_take().map_err(StoreError::from),
        };
        page.map(Some).inspect_err(|_| self.volume.pool.leave(at.zone()))
    }

    /// Where a node lies, and the address of the chunk that has this place.
    pub(crate) fn find(&self, id: NodeId) -> Result<(Place, Option<Address>)> {
        self.find_by(id, || self.mat.find(id), |number, at| self.chunk(number, at))
    }

    /// The place of a node in the epoch that is being saved or an earlier one.
    pub(crate) fn find_saved(&self, id: NodeId) -> Result<Place> {
        let chunk = |number, at| self.chunk_for_checkpoint(number, at);
        Ok(self.find_by(id, || self.mat.find_saved(id), chunk)?.0)
    }

    fn find_by(
        &self,
        id: NodeId,
        found: impl Fn() -> Found,
        chunk_at: impl Fn(u64, Address) -> Result<Option<Arc<PageBuffer>>>,
    ) -> Result<(Place, Option<Address>)> {
        loop {
            match found() {
                Found::At(place) => return Ok((place, None)),
                Found::InChunk(number) => {
                    let chunk = self.mat.chunk(number).address;
                    if let Some(bytes) = chunk_at(number, chunk)? {
                        let index = (id.0 % self.mat.per_chunk()) as usize;
                        let place = self.mat.place_in(&bytes, index);
                        if !self.is_on_device(place) {
                            return self
                                .damaged(format!("the address of node {} is outside all zones", id.0));
                        }
                        return Ok((place, Some(chunk)));
                    }
                }
            }
        }
    }

    /// Whether a result of [`Nodes::find`] is still valid.
    pub(crate) fn is_current(&self, id: NodeId, place: Place, chunk: Option<Address>) -> bool {
        match (self.mat.find(id), chunk) {
            (Found::At(now), None) => now == place,
            (Found::InChunk(number), Some(place)) => self.mat.chunk(number).address == place,
            _ => false,
        }
    }

    /// How many pages are read at once, at most.
    pub(crate) fn pages_at_once(&self) -> usize {
        (AT_ONCE_BYTES / self.volume.page_size()).min(AT_ONCE)
    }

    pub(crate) fn damaged<T>(&self, what: String) -> Result<T> {
        self.volume.shut_down_on_error("metadata is damaged", Err(StoreError::Corrupt(what)))
    }
}

/// The node at `place`, decoded from its base page and the page with its delta record, if there is one.
fn node_of(
    id: NodeId,
    place: Place,
    (bytes, header): (PageBuffer, PageHeader),
    deltas: Option<&(PageBuffer, PageHeader)>,
) -> Result<Arc<Node>> {
    let malformed = |at: Address| StoreError::Corrupt(format!("node {} at {at} is not well formed", id.0));
    let mut page = Page::load(bytes).ok_or_else(|| malformed(place.whole_page()))?;
    let mut changes = Changes::default();
    if let Some((bytes, _)) = deltas {
        let delta = delta::find(bytes, id).filter(|delta| delta.is_to(&page));
        changes = delta.and_then(|delta| delta.apply(&mut page)).ok_or_else(|| malformed(place.at))?;
    }
    Ok(Node::read(id, page, changes, Lsn(header.lsn.get())))
}

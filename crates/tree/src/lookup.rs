//! Reading: from a key to its leaf, from a node id to its page.
//!
//! Look-ups hold the group's lock shared while they walk over nodes in memory. A missing node ends the walk with its
//! id. Then the lock is released, the node is read, and the walk begins again with that node pinned. So no I/O happens
//! under a tree's lock.

use std::ops::ControlFlow;
use std::sync::Arc;

use pool::Lsn;
use rt::sync::atomic::Ordering;
use smallvec::SmallVec;
use zone::{Address, Command, Output, PageBuffer, ZoneId};

use crate::cache::Node;
use crate::core::Core;
use crate::delta::{self, Changes};
use crate::format::{self, PageHeader, PageKind};
use crate::mat::{Found, Place};
use crate::memory::Reading;
use crate::page::Page;
use crate::readahead::{NEXT_LEAVES, NextLeaves, request_len};
use crate::types::{Bytes, Entry, Group, NodeId, Result, StoreError, Table, tree_key};

/// How often a walk may find a node that has just been freed.
const RETRIES_MAX: usize = 100;

/// Nodes that an operation pins in memory.
#[derive(Default)]
pub(crate) struct Pins {
    nodes: Vec<Arc<Node>>,
    vain: usize,
}

/// A node that must be read before the walk can go on.
pub(crate) enum Miss {
    /// It is not in memory. If it is a leaf, the leaves behind it are named as well.
    Absent(NodeId, NextLeaves),
    /// Its level or group differs from the one expected on the path.
    Misplaced(NodeId),
}

/// A path from the root to a leaf: each node, and the index of the entry that leads to the next one.
pub(crate) type Path = SmallVec<[(Arc<Node>, usize); 4]>;

impl Core {
    /// Walks to the leaf where `key` belongs; the group's lock is held.
    pub(crate) fn path(&self, group: Group, key: &[u8]) -> std::result::Result<Path, Miss> {
        let mut path = Path::new();
        let mut id = self.root(group);
        let mut level = None;
        loop {
            let Some(node) = self.cache.get(id) else {
                let following = path.last().filter(|_| level == Some(0));
                let following =
                    following.map(|(parent, branch)| next_leaves_of(parent, *branch, NEXT_LEAVES));
                return Err(Miss::Absent(id, following.unwrap_or_default()));
            };
            let seen = node.look();
            let page = &*seen.page;
            // Levels fall by one on the way down, so no walk is endless.
            if page.group() != group || level.is_some_and(|level| page.level() != level) {
                return Err(Miss::Misplaced(id));
            }
            let mut branch = 0;
            if page.level() > 0 {
                branch = page.branch(key);
                id = page.child(branch);
            }
            level = page.level().checked_sub(1);
            drop(seen);
            if level.is_none()
                && node.take_leading()
                && let Some((parent, branch)) = path.last()
            {
                self.readahead.request(next_leaves_of(parent, *branch, request_len(self.cache.limit())));
            }
            path.push((node, branch));
            if level.is_none() {
                return Ok(path);
            }
        }
    }

    /// Repeats `walk` under the group's shared lock until all the nodes it needs are in memory.
    fn walking<T>(&self, group: Group, mut walk: impl FnMut() -> std::result::Result<T, Miss>) -> Result<T> {
        let mut pins = Pins::default();
        loop {
            let missed = {
                let _shared = self.groups[usize::from(group.0)].read();
                match walk() {
                    Ok(found) => return Ok(found),
                    Err(miss) => miss,
                }
            };
            self.pin(&mut pins, missed)?;
        }
    }

    /// Reads the node that ended a walk and pins it for the next walk.
    ///
    /// While writers run, a node may be freed between the walk that named it and this call. The next walk does not
    /// find it again. A node that is named again and again and has no place is damage.
    pub(crate) fn pin(&self, pins: &mut Pins, miss: Miss) -> Result<()> {
        let (id, following) = match miss {
            Miss::Absent(id, following) => (id, following),
            Miss::Misplaced(id) => return self.damaged(format!("node {} is not at its address", id.0)),
        };
        match self.load_with(id, self.readahead.with(id, &following))? {
            Some(node) => pins.nodes.push(node),
            None => pins.vain += 1,
        }
        if pins.vain > RETRIES_MAX {
            return self.damaged(format!("node {} of a tree has no address", id.0));
        }
        Ok(())
    }

    pub(crate) fn look<T>(
        &self,
        group: Group,
        table: Table,
        key: &[u8],
        see: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let key = tree_key(table, key);
        let mut see = Some(see);
        self.walking(group, || {
            let path = self.path(group, &key)?;
            let page = &leaf_of(&path).look().page;
            let found = page.search(&key).ok();
            Ok(found.and_then(|index| see.take().map(|see| see(page.value(index)))))
        })
    }

    pub(crate) fn visit(
        &self,
        group: Group,
        table: Table,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let end = if to.is_empty() { tree_key(Table(table.0 + 1), &[]) } else { tree_key(table, to) };
        let mut next = Some(tree_key(table, from));
        while let Some(start) = next.take()
            && start < end
        {
            next = self.walking(group, || {
                let path = self.path(group, &start)?;
                Ok(visit_leaf(&path, &start, &end, &mut each))
            })?;
        }
        Ok(())
    }

    pub(crate) fn floor(&self, group: Group, table: Table, key: &[u8]) -> Result<Option<Entry>> {
        let key = tree_key(table, key);
        let found = self.walking(group, || {
            let path = self.path(group, &key)?;
            let page = leaf_of(&path).page();
            match page.search(&key) {
                Ok(index) => Ok(Some(entry(&page, index))),
                Err(0) => self.last_before(&path),
                Err(index) => Ok(Some(entry(&page, index - 1))),
            }
        })?;
        Ok(found.filter(|(key, _)| key[0] == table.0).map(|(key, value)| (key[1..].to_vec(), value)))
    }

    /// The last entry of the leaf to the left of this path's leaf.
    fn last_before(&self, path: &Path) -> std::result::Result<Option<Entry>, Miss> {
        let Some((node, branch)) = path.iter().rev().skip(1).find(|(_, branch)| *branch > 0) else {
            return Ok(None);
        };
        let mut above = node.page();
        let mut id = above.child(branch - 1);
        loop {
            let page = self.cache.get(id).ok_or_else(|| Miss::Absent(id, NextLeaves::new()))?.page();
            if page.level() + 1 != above.level() {
                return Err(Miss::Misplaced(id));
            }
            let Some(last) = page.count().checked_sub(1) else { return Ok(None) };
            if page.level() == 0 {
                return Ok(Some(entry(&page, last)));
            }
            id = page.child(last);
            above = page;
        }
    }

    // ---- from a node id to its page ----------------------------------------------------------

    /// Reads a node into memory. `None`: it has no place any more (or not yet), and the caller repeats its look-up.
    pub(crate) fn load(&self, id: NodeId) -> Result<Option<Arc<Node>>> {
        self.load_with(id, &[])
    }

    /// The same, and reads other nodes ahead as far as this needs no further reads.
    fn load_with(&self, id: NodeId, mut others: &[NodeId]) -> Result<Option<Arc<Node>>> {
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
                    return self.shut_down_on_error("a node cannot be read", Err(error));
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
        let zones = self.device.geometry().zones;
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
        self.count.node_reads.fetch_add(wanted.len() as u64, Ordering::Relaxed);
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

    /// Reads pages like [`Core::read_within`], all at the same time and requested in the order of their addresses. A
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
        for (index, output) in order.into_iter().zip(self.device.run(&mut commands)) {
            outputs[index] = Some(output);
        }
        let read = wanted.iter().zip(pages).zip(outputs).map(|((&(at, kind, id), page), output)| {
            let Some(mut bytes) = page? else {
                let why = format!("page {id} ({kind:?}) at {at}: the zone is in another life");
                return Err(StoreError::Corrupt(why));
            };
            let output = output.expect("each command has an output");
            let checked =
                output.map_err(StoreError::from).and_then(|_| check_page(&bytes, self, at, kind, id));
            let read = match checked {
                Ok(header) => Ok((bytes, header)),
                Err(_) => self.read_once(&mut bytes, at, kind, id).map(|header| (bytes, header)),
            };
            self.pool.leave(at.zone());
            read
        });
        read.collect()
    }

    /// A page buffer for a read. The zone cannot be reset meanwhile. None if it is in another life.
    fn enter_with_page(&self, at: Address, reading: Reading) -> Result<Option<PageBuffer>> {
        if !self.pool.enter(at) {
            return Ok(None);
        }
        let page = match reading {
            Reading::Needed => self.page(),
            Reading::Ahead => self.pages.try_take().map_err(StoreError::from),
        };
        page.map(Some).inspect_err(|_| self.pool.leave(at.zone()))
    }

    fn damaged<T>(&self, what: String) -> Result<T> {
        self.shut_down_on_error("metadata is damaged", Err(StoreError::Corrupt(what)))
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

    /// Whether a result of [`Core::find`] is still valid.
    pub(crate) fn is_current(&self, id: NodeId, place: Place, chunk: Option<Address>) -> bool {
        match (self.mat.find(id), chunk) {
            (Found::At(now), None) => now == place,
            (Found::InChunk(number), Some(place)) => self.mat.chunk(number).address == place,
            _ => false,
        }
    }

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
        if !self.pool.enter(place) {
            return if self.mat.chunk(number).address == place {
                self.damaged(format!(
                    "the address of MAT chunk {number} is {place}, but the zone is in another life"
                ))
            } else {
                Ok(None)
            };
        }
        let read = self.read_page(page, place, PageKind::MatChunk, number);
        self.pool.leave(place.zone());
        match read {
            Ok(bytes) => {
                let bytes = Arc::new(bytes);
                self.cache_chunk(number, place, Arc::clone(&bytes));
                Ok(Some(bytes))
            }
            Err(_) if self.mat.chunk(number).address != place => Ok(None),
            Err(error) => self.shut_down_on_error("a chunk of the MAT cannot be read", Err(error)),
        }
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
        first.or_else(|_| self.read_once(&mut into, at, kind, id))?;
        Ok(into)
    }

    fn read_once(&self, into: &mut PageBuffer, at: Address, kind: PageKind, id: u64) -> Result<PageHeader> {
        self.device.read(at.zone(), at.block(), into)?;
        check_page(into, self, at, kind, id)
    }
}

/// The leaves behind the one at this branch.
fn next_leaves_of(parent: &Node, branch: usize, most: usize) -> NextLeaves {
    let parent = &parent.look().page;
    (branch + 1..parent.count()).take(most).map(|branch| parent.child(branch)).collect()
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

pub(crate) fn check_page(
    bytes: &[u8],
    core: &Core,
    at: Address,
    kind: PageKind,
    id: u64,
) -> Result<PageHeader> {
    let damaged = |what: &str| StoreError::Corrupt(format!("page {id} ({kind:?}) at {at}: {what}"));
    let header =
        format::decode_page(bytes, core.info.fs_id).ok_or_else(|| damaged("wrong checksum or volume"))?;
    if header.kind != kind as u8 || header.id.get() != id {
        return Err(damaged("it contains another page"));
    }
    if !at.is_of(zone::Life(header.life.get())) {
        return Err(damaged("it was written in another life of the zone"));
    }
    if header.lsn.get() > core.log.last().0 {
        return Err(damaged("it is newer than the log"));
    }
    Ok(header)
}

/// Passes the entries of a path's leaf from `start` on. Returns where the next leaf begins, if there may be more
/// entries.
fn visit_leaf(
    path: &Path,
    start: &[u8],
    end: &[u8],
    each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Option<Bytes> {
    let page = &leaf_of(path).look().page;
    let first = page.search(start).unwrap_or_else(|index| index);
    for index in first..page.count() {
        let key = page.key(index);
        if key >= end || each(&key[1..], page.value(index)).is_break() {
            return None;
        }
    }
    path.iter().rev().skip(1).find_map(|(node, branch)| {
        let page = &node.look().page;
        (branch + 1 < page.count()).then(|| page.key(branch + 1).to_vec())
    })
}

/// The leaf that a path leads to.
pub(crate) fn leaf_of(path: &Path) -> &Arc<Node> {
    &path.last().expect("a path has a leaf").0
}

fn entry(page: &Page, index: usize) -> Entry {
    (page.key(index).to_vec(), page.value(index).to_vec())
}

/// A reader in a zone. The zone is not reset until this is dropped.
pub struct ZoneRef {
    core: Arc<Core>,
    zone: ZoneId,
}

impl ZoneRef {
    pub(crate) fn enter(core: &Arc<Core>, at: Address) -> Option<ZoneRef> {
        core.pool.enter(at).then(|| ZoneRef { core: Arc::clone(core), zone: at.zone() })
    }
}

impl Drop for ZoneRef {
    fn drop(&mut self) {
        self.core.pool.leave(self.zone);
    }
}

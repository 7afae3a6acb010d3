//! From what was found to the tables: which state it is, which copy of each node counts, and the leaves in the
//! order of their keys.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use zone::{Address, Device, FsId, Pages};

use super::scan::{self, Copy, Scan, read};
use super::{Leaf, Piece, Pieced, SalvageCounts, SalvagedZone, Source};
use crate::decode::{
    MatLayout, Page, PageKind, Place, apply_delta, chunk_addresses, chunks_per_directory, page_header,
    zone_entries,
};
use crate::types::{Bytes, Group, Lsn, Result, ZoneEntry};

/// What is known of a node's place.
enum Known {
    /// The MAT says so.
    At(Place),
    /// The part of the MAT that would say it is lost.
    Nothing,
}

/// Puts the tables together.
pub(super) struct Assembly<'a> {
    loader: Loader,
    scan: &'a Scan,
    mat: MatLayout,
    /// Chunks of the MAT; none: lost.
    chunks: BTreeMap<u64, Option<Bytes>>,
    /// Nothing of a later epoch counts.
    epoch: u64,
    /// Chunks were found by their age, so that others may be missing.
    by_age: bool,
    /// Nodes that have been met on the way from the roots.
    visited: HashSet<u64>,
    pub(super) counts: SalvageCounts,
}

impl Scan {
    /// Groups that have a node.
    pub(super) fn groups(&self) -> u16 {
        self.nodes.values().flatten().map(|copy| copy.group.saturating_add(1)).max().unwrap_or(0)
    }
}

/// Which state of the tables was found.
pub(super) struct State {
    pub(super) cut: Lsn,
    epoch: u64,
    pub(super) is_newest: bool,
    /// The pages of the MAT's directory; none where one is lost.
    directories: BTreeMap<u64, Copy>,
    /// The newest directories are lost: chunks are found by their age.
    by_age: bool,
}

impl State {
    /// The newest state that was written as a whole.
    ///
    /// A checkpoint writes its directories last, so that the newest of these stands for it. Chunks that are
    /// newer come from a checkpoint that a crash has cut short, unless their directory is among what is
    /// damaged.
    pub(super) fn newest(scan: &Scan) -> State {
        let mut directories: BTreeMap<u64, Copy> = BTreeMap::new();
        for (number, copy) in scan.all(PageKind::MatDirectory) {
            let newest = directories.entry(number).or_insert(*copy);
            if copy.age() > newest.age() {
                *newest = *copy;
            }
        }
        let newest = directories.values().max_by_key(|copy| copy.age()).copied();
        let all_there = directories.keys().copied().eq(0..directories.len() as u64);
        let per_page = chunks_per_directory(scan.page_size);
        let is_older = |number: u64, chunk: &Copy| {
            directories.get(&(number / per_page)).is_none_or(|directory| directory.epoch < chunk.epoch)
        };
        let later: Vec<Copy> = scan
            .all(PageKind::MatChunk)
            .filter(|(number, chunk)| is_older(*number, chunk))
            .map(|(_, c)| *c)
            .collect();
        let hidden = later.iter().any(|chunk| scan.may_hide_later(chunk));
        match newest {
            Some(newest) if all_there && !hidden => State {
                cut: Lsn(newest.lsn),
                epoch: newest.epoch,
                is_newest: !scan.may_hide_later(&newest),
                directories,
                by_age: false,
            },
            _ => {
                let tables =
                    [PageKind::MatChunk, PageKind::MatDirectory, PageKind::ZitChunk, PageKind::ZitDirectory];
                let all = tables.into_iter().flat_map(|kind| scan.all(kind)).map(|(_, copy)| *copy);
                let newest = all.max_by_key(Copy::age);
                State {
                    cut: Lsn(newest.map_or(0, |copy| copy.lsn)),
                    epoch: newest.map_or(u64::MAX, |copy| copy.epoch),
                    is_newest: false,
                    directories,
                    by_age: true,
                }
            }
        }
    }
}

/// Reads pages that the scan has found.
#[derive(Clone)]
pub(super) struct Loader {
    pub(super) device: Arc<dyn Device>,
    pub(super) fs_id: FsId,
    /// Memory for nodes.
    pub(super) pages: Arc<Pages>,
}

impl Loader {
    pub(super) fn new(device: Arc<dyn Device>, scan: &Scan) -> Loader {
        Loader { device, fs_id: scan.fs_id, pages: Pages::new(scan.page_size) }
    }

    fn page(&self, at: Address, kind: PageKind, id: u64) -> Result<Option<Bytes>> {
        let mut bytes = vec![0; self.pages.page_size()];
        if !read(&*self.device, at.zone(), at.block(), &mut bytes)? {
            return Ok(None);
        }
        let is_it = page_header(&bytes, self.fs_id)
            .is_some_and(|header| header.kind == kind as u8 && header.id == id && at.is_of(header.life));
        Ok(is_it.then_some(bytes))
    }

    /// A node with the changes that belong to it.
    pub(super) fn node(&self, id: u64, place: Place) -> Result<Option<Page>> {
        let Some(bytes) = self.page(place.whole_page(), PageKind::Node, id)? else { return Ok(None) };
        let mut memory = self.pages.try_take()?;
        memory.copy_from_slice(&bytes);
        let Some(mut page) = Page::load(memory) else { return Ok(None) };
        if !place.is_delta() {
            return Ok(Some(page));
        }
        let Some(bytes) = self.page(place.at, PageKind::Deltas, 0)? else { return Ok(None) };
        Ok(apply_delta(&bytes, &mut page).then_some(page))
    }
}

impl<'a> Assembly<'a> {
    pub(super) fn new(loader: Loader, scan: &'a Scan, state: &State) -> Result<Assembly<'a>> {
        let mut chunks = BTreeMap::new();
        if state.by_age {
            for (number, _) in scan.all(PageKind::MatChunk) {
                let copies = scan.table(PageKind::MatChunk, number).iter();
                let newest = copies.filter(|copy| copy.epoch <= state.epoch).max_by_key(|copy| copy.age());
                let page = newest.map(|copy| loader.page(copy.at, PageKind::MatChunk, number)).transpose()?;
                chunks.insert(number, page.flatten());
            }
        } else {
            let per_page = chunks_per_directory(scan.page_size);
            for (number, directory) in &state.directories {
                let places = loader.page(directory.at, PageKind::MatDirectory, *number)?.unwrap_or_default();
                for (index, at) in chunk_addresses(&places).into_iter().enumerate() {
                    let number = number * per_page + index as u64;
                    if !at.is_none() {
                        chunks.insert(number, loader.page(at, PageKind::MatChunk, number)?);
                    }
                }
            }
        }
        // Whether places have one address or two, the log would say; the pages that they lead to do too.
        let mats = [true, false].map(|deltas| MatLayout::new(scan.page_size, deltas));
        let hits = |mat: &MatLayout| -> usize {
            chunks.iter().map(|(number, chunk)| scan.hits(mat, *number, chunk.as_ref())).sum()
        };
        let [two, one] = mats;
        let mat = if hits(&one) > hits(&two) { one } else { two };
        let (visited, counts) = (HashSet::new(), SalvageCounts::default());
        let (epoch, by_age) = (state.epoch, state.by_age);
        Ok(Assembly { loader, scan, mat, chunks, epoch, by_age, visited, counts })
    }

    fn known(&self, id: u64) -> Known {
        match self.chunks.get(&(id / self.mat.per_chunk())) {
            Some(Some(chunk)) => Known::At(self.mat.place_in(chunk, (id % self.mat.per_chunk()) as usize)),
            Some(None) => Known::Nothing,
            // A chunk that no directory names has no nodes; where there is no directory, who knows.
            None if self.by_age => Known::Nothing,
            None => Known::At(Place::NOWHERE),
        }
    }

    /// The newest copy of a node that the state can have.
    fn newest(&self, id: u64) -> Option<(Place, Copy)> {
        let of =
            |copies: Option<&'a Vec<Copy>>| copies.into_iter().flatten().filter(|c| c.epoch <= self.epoch);
        let mut wholes: BTreeMap<u64, &Copy> = BTreeMap::new();
        for whole in of(self.scan.nodes.get(&id)) {
            wholes.entry(whole.lsn).or_insert(whole);
        }
        let deltas = of(self.scan.deltas.get(&id)).filter_map(|delta| {
            let base = wholes.get(&delta.base)?;
            Some((Place { at: delta.at, base: base.at }, *delta))
        });
        let whole = of(self.scan.nodes.get(&id)).map(|whole| (Place::whole(whole.at), *whole));
        whole.chain(deltas).max_by_key(|(_, copy)| copy.age())
    }

    /// The tree of one group, in pieces that follow each other.
    pub(super) fn group(&mut self, group: Group) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        self.node(group, u64::from(group.0) + 1, None, (Vec::new(), None), &mut pieces)?;
        if pieces.iter().any(|piece| matches!(piece.source, Source::Pieced(_))) {
            self.fill(group, &mut pieces)?;
        }
        Ok(pieces)
    }

    /// A node whose keys are in `low..high`, and all below it.
    fn node(
        &mut self,
        group: Group,
        id: u64,
        level: Option<u8>,
        (low, high): (Bytes, Option<Bytes>),
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        let is_new = self.visited.insert(id);
        let place = match self.known(id) {
            _ if !is_new => None,
            Known::At(place) => Some((place, true)),
            Known::Nothing => self.newest(id).map(|(place, _)| (place, false)),
        };
        let page = match place {
            Some((place, _)) if !place.is_nowhere() => self.loader.node(id, place)?,
            _ => None,
        };
        let right = |page: &Page| page.group() == group && level.is_none_or(|level| level == page.level());
        let Some((page, (place, certain))) = page.filter(right).zip(place) else {
            self.counts.nodes_lost += 1;
            let is_above = level.is_some_and(|level| level > 0);
            let mut pieced = Pieced { is_lost: true, is_above, ..Pieced::default() };
            self.older(group, id, (&low, high.as_ref()), &mut pieced)?;
            pieces.push(Piece { low, high, source: Source::Pieced(pieced) });
            return Ok(());
        };
        if page.level() == 0 {
            self.counts.leaves_older += u64::from(!certain);
            pieces.push(Piece { low, high, source: Source::Leaf(Leaf { id, place, certain }) });
            return Ok(());
        }
        let first = pieces.len();
        for index in 0..page.count() {
            let from = if index == 0 { low.clone() } else { page.key(index).to_vec() };
            let next = (index + 1 < page.count()).then(|| page.key(index + 1).to_vec());
            let to = next.or_else(|| high.clone());
            let is_range = from >= low && to.as_ref().is_none_or(|to| *to > from);
            if is_range {
                self.node(group, page.child(index).0, Some(page.level() - 1), (from, to), pieces)?;
            }
        }
        if !certain {
            let below = pieces.split_off(first);
            pieces.push(self.collapse((low, high), below)?);
        }
        Ok(())
    }

    /// What an uncertain node leads to: its bounds may be others by now, so leaves that it does not lead to
    /// may belong there too.
    fn collapse(&self, (low, high): (Bytes, Option<Bytes>), below: Vec<Piece>) -> Result<Piece> {
        let mut all = Pieced { is_lost: true, ..Pieced::default() };
        for piece in below {
            match piece.source {
                Source::Pieced(pieced) => {
                    all.is_above |= pieced.is_above;
                    all.rows.extend(pieced.rows);
                }
                Source::Leaf(leaf) => {
                    // All of a certain leaf counts, whatever bounds it is given; of others, what they allow.
                    let bounds = match leaf.certain {
                        true => (&low, high.as_ref()),
                        false => (&piece.low, piece.high.as_ref()),
                    };
                    if let Some(page) = self.loader.node(leaf.id, leaf.place)? {
                        all.add(&page, bounds, leaf.certain);
                    }
                }
            }
        }
        Ok(Piece { low, high, source: Source::Pieced(all) })
    }

    /// Adds the rows of the newest copy of a leaf whose own is lost.
    fn older(
        &mut self,
        group: Group,
        id: u64,
        bounds: (&Bytes, Option<&Bytes>),
        into: &mut Pieced,
    ) -> Result<()> {
        let is_own = |place: &Place| matches!(self.known(id), Known::At(own) if own == *place);
        let Some((place, _)) = self.newest(id).filter(|(place, _)| !is_own(place)) else { return Ok(()) };
        let page = self.loader.node(id, place)?;
        if let Some(page) = page.filter(|page| page.group() == group && page.level() == 0) {
            self.counts.leaves_older += 1;
            into.add(&page, bounds, false);
        }
        Ok(())
    }

    /// Puts leaves that nothing leads to where what led to them is lost: those that the MAT names, which are
    /// certain, and where both are lost the newest of each.
    fn fill(&mut self, group: Group, pieces: &mut [Piece]) -> Result<()> {
        let is_ours = |copy: &Copy| copy.group == group.0 && copy.level == 0;
        let of_ours = self.scan.nodes.iter().filter(|(_, copies)| copies.iter().any(is_ours));
        let unvisited = of_ours.map(|(id, _)| *id).filter(|id| !self.visited.contains(id));
        let mut leaves: Vec<(bool, (u64, u64), Place, u64)> = Vec::new();
        for id in unvisited {
            match self.known(id) {
                Known::At(place) if !place.is_nowhere() => leaves.push((true, (0, 0), place, id)),
                Known::At(_) => {}
                Known::Nothing => {
                    leaves.extend(self.newest(id).map(|(place, copy)| (false, copy.age(), place, id)));
                }
            }
        }
        // What is certain comes last and wins; before it, what is newer.
        leaves.sort_unstable();
        let complete = self.is_complete();
        for (certain, _, place, id) in leaves {
            let page = self.loader.node(id, place)?;
            let Some(page) = page.filter(|page| page.group() == group && page.level() == 0) else { continue };
            self.counts.leaves_older += u64::from(!certain);
            if page.count() == 0 {
                continue;
            }
            let (first, last) = (page.key(0), page.key(page.count() - 1));
            // Pieces follow each other in the order of their keys.
            let ends_before =
                |piece: &Piece| piece.high.as_ref().is_some_and(|high| high.as_slice() <= first);
            let from = pieces.partition_point(ends_before);
            let near = pieces[from..].iter_mut().take_while(|piece| piece.low.as_slice() <= last);
            for Piece { low, high, source } in near {
                if let Source::Pieced(pieced) = source
                    && (certain || pieced.is_above)
                {
                    pieced.add(&page, (low, high.as_ref()), certain);
                }
            }
        }
        for piece in pieces {
            if let Source::Pieced(pieced) = &mut piece.source {
                pieced.is_lost = !(pieced.is_above && complete);
            }
        }
        Ok(())
    }

    /// Whether every node that the MAT names can be read, or was met where a node above names it.
    fn is_complete(&self) -> bool {
        !self.by_age
            && self.chunks.iter().all(|(number, chunk)| {
                let Some(chunk) = chunk else { return false };
                (0..self.mat.per_chunk()).all(|index| {
                    let id = number * self.mat.per_chunk() + index;
                    let place = self.mat.place_in(chunk, index as usize);
                    place.is_nowhere() || self.visited.contains(&id) || self.scan.has(id, place)
                })
            })
    }

    /// The zones: their headers, and what the zone table says of them.
    pub(super) fn zones(&self) -> Result<Vec<SalvagedZone>> {
        let mut table: BTreeMap<usize, ZoneEntry> = BTreeMap::new();
        let numbers: BTreeSet<u64> = self.scan.all(PageKind::ZitChunk).map(|(number, _)| number).collect();
        for number in numbers {
            let copies = self.scan.table(PageKind::ZitChunk, number).iter();
            let newest = copies.filter(|copy| copy.epoch <= self.epoch).max_by_key(|copy| copy.age());
            let Some(newest) = newest else { continue };
            let Some(page) = self.loader.page(newest.at, PageKind::ZitChunk, number)? else { continue };
            let entries = zone_entries(&page);
            let first = number as usize * entries.len();
            table.extend((first..).zip(entries).filter_map(|(zone, entry)| Some((zone, entry?))));
        }
        let of = |(index, zone): (usize, &scan::FoundZone)| {
            let entry = table.get(&index).copied().unwrap_or_default();
            let own = zone.identity.filter(|identity| identity.fs_id == self.scan.fs_id);
            let (life, role) = own.map_or((entry.life, entry.role), |own| (own.life, own.role));
            let user = if entry.life == life { entry.user } else { [0; 16] };
            SalvagedZone { life, role, user, end: zone.end() }
        };
        Ok(self.scan.zones.iter().enumerate().map(of).collect())
    }
}

impl Scan {
    /// Whether the pages are there that a place names.
    fn has(&self, id: u64, place: Place) -> bool {
        let stands = |copies: Option<&Vec<Copy>>, at: Address| {
            copies.is_some_and(|copies| copies.iter().any(|copy| copy.at == at))
        };
        stands(self.nodes.get(&id), place.whole_page())
            && (!place.is_delta() || stands(self.deltas.get(&id), place.at))
    }

    /// How many places of a chunk lead to where the node is, when they are read like this.
    fn hits(&self, mat: &MatLayout, number: u64, chunk: Option<&Bytes>) -> usize {
        let Some(chunk) = chunk else { return 0 };
        let has = |index: &u64| {
            let place = mat.place_in(chunk, *index as usize);
            !place.is_nowhere() && self.has(number * mat.per_chunk() + index, place)
        };
        (0..mat.per_chunk()).filter(has).count()
    }
}

#[cfg(test)]
mod tests;

//! Rebuilds the trees from the pages that were found: which copy of each node is valid, and the leaves in the order of
//! their keys.
//!
//! The MAT gives the address of the valid copy of each node. So all leaves that it names are certain, even if nodes above
//! them are lost. Where the MAT itself is damaged, the newest copy of a node that is not newer than the checkpoint takes
//! its place, if the nodes above lead to it. Newest is by epoch, then LSN: a copy from an epoch that a crash has undone
//! can have a higher LSN than later copies.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tree::decode::{MatLayout, Page, PageKind, Place, chunk_addresses, chunks_per_directory, zone_entries};
use tree::{Bytes, Group, Result, ZoneEntry};
use zone::{Address, Blocks, Life, Role};

use crate::checkpoint::FoundCheckpoint;
use crate::loader::Loader;
use crate::scan::{FoundZone, PageCopy, Scan};
use crate::segments::{CollectedRows, Leaf, Segment, Source};

/// What was found, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Metadata pages whose checksum is right.
    pub pages: u64,
    /// Positions in metadata zones without such a page.
    pub pages_damaged: u64,
    /// Nodes that are lost.
    pub nodes_lost: u64,
    /// Leaves for which another copy was used, which may be older.
    pub leaves_older: u64,
}

/// What is known about a zone without the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownZone {
    /// Life and role by the zone's header; by the ZIT if the header is damaged.
    pub(crate) life: Life,
    pub(crate) role: Role,
    /// The 16 bytes that the ZIT keeps for `extent`; zeros if they are not known.
    pub(crate) user: [u8; 16],
    /// The end of the written blocks, as far as that is known.
    pub(crate) end: Blocks,
}

/// What the MAT says about a node.
enum Location {
    /// Its place.
    At(Place),
    /// Nothing: the chunk is lost.
    Unknown,
}

/// Rebuilds the trees.
pub(crate) struct Assembly<'a> {
    loader: Loader,
    scan: &'a Scan,
    layout: MatLayout,
    /// Chunks of the MAT; `None`: lost.
    chunks: BTreeMap<u64, Option<Bytes>>,
    /// Copies of a later epoch are not used.
    epoch: u64,
    /// Chunks were chosen by age, so others may be missing.
    by_age: bool,
    /// Nodes to which the roots have led so far.
    visited: HashSet<u64>,
    pub(crate) counts: TableCounts,
}

impl Scan {
    /// Groups that have a node.
    pub(crate) fn groups(&self) -> u16 {
        self.nodes.values().flatten().map(|copy| copy.group.saturating_add(1)).max().unwrap_or(0)
    }
}

impl<'a> Assembly<'a> {
    pub(crate) fn new(loader: Loader, scan: &'a Scan, checkpoint: &FoundCheckpoint) -> Result<Assembly<'a>> {
        let mut chunks = BTreeMap::new();
        if checkpoint.by_age {
            for (number, _) in scan.all(PageKind::MatChunk) {
                let copies = scan.table(PageKind::MatChunk, number).iter();
                let newest =
                    copies.filter(|copy| copy.epoch <= checkpoint.epoch).max_by_key(|copy| copy.age());
                let page = newest.map(|copy| loader.page(copy.at, PageKind::MatChunk, number)).transpose()?;
                chunks.insert(number, page.flatten());
            }
        } else {
            let per_page = chunks_per_directory(scan.page_size);
            for (number, directory) in &checkpoint.directories {
                let places = loader.page(directory.at, PageKind::MatDirectory, *number)?.unwrap_or_default();
                for (index, at) in chunk_addresses(&places).into_iter().enumerate() {
                    let number = number * per_page + index as u64;
                    if !at.is_none() {
                        chunks.insert(number, loader.page(at, PageKind::MatChunk, number)?);
                    }
                }
            }
        }
        // The log would tell whether places have one address or two. Without it, the layout by which more places lead
        // to their nodes is the right one.
        let layouts = [true, false].map(|deltas| MatLayout::new(scan.page_size, deltas));
        let hits = |layout: &MatLayout| -> usize {
            chunks.iter().map(|(number, chunk)| scan.hits(layout, *number, chunk.as_ref())).sum()
        };
        let [two, one] = layouts;
        let layout = if hits(&one) > hits(&two) { one } else { two };
        let (visited, counts) = (HashSet::new(), TableCounts::default());
        let (epoch, by_age) = (checkpoint.epoch, checkpoint.by_age);
        Ok(Assembly { loader, scan, layout, chunks, epoch, by_age, visited, counts })
    }

    fn location(&self, id: u64) -> Location {
        match self.chunks.get(&(id / self.layout.per_chunk())) {
            Some(Some(chunk)) => {
                Location::At(self.layout.place_in(chunk, (id % self.layout.per_chunk()) as usize))
            }
            Some(None) => Location::Unknown,
            // A chunk that no directory names has no nodes. Without a directory, nothing is known about it.
            None if self.by_age => Location::Unknown,
            None => Location::At(Place::NOWHERE),
        }
    }

    /// The newest copy of a node that can belong to the checkpoint.
    fn newest(&self, id: u64) -> Option<(Place, PageCopy)> {
        let of = |copies: Option<&'a Vec<PageCopy>>| {
            copies.into_iter().flatten().filter(|c| c.epoch <= self.epoch)
        };
        let mut wholes: BTreeMap<u64, &PageCopy> = BTreeMap::new();
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

    /// The tree of a group as segments that follow each other.
    pub(crate) fn group(&mut self, group: Group) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        self.node(group, u64::from(group.0) + 1, None, (Vec::new(), None), &mut segments)?;
        if segments.iter().any(|segment| matches!(segment.source, Source::Collected(_))) {
            self.fill(group, &mut segments)?;
        }
        Ok(segments)
    }

    /// Adds the segments of a node whose keys are in `low..high`, and of everything below it.
    fn node(
        &mut self,
        group: Group,
        id: u64,
        level: Option<u8>,
        (low, high): (Bytes, Option<Bytes>),
        segments: &mut Vec<Segment>,
    ) -> Result<()> {
        let is_new = self.visited.insert(id);
        let place = match self.location(id) {
            _ if !is_new => None,
            Location::At(place) => Some((place, true)),
            Location::Unknown => self.newest(id).map(|(place, _)| (place, false)),
        };
        let page = match place {
            Some((place, _)) if !place.is_nowhere() => self.loader.node(id, place)?,
            _ => None,
        };
        let right = |page: &Page| page.group() == group && level.is_none_or(|level| level == page.level());
        let Some((page, (place, certain))) = page.filter(right).zip(place) else {
            self.counts.nodes_lost += 1;
            let was_inner = level.is_some_and(|level| level > 0);
            let mut rows = CollectedRows { may_be_incomplete: true, was_inner, ..CollectedRows::default() };
            self.older(group, id, (&low, high.as_ref()), &mut rows)?;
            segments.push(Segment { low, high, source: Source::Collected(rows) });
            return Ok(());
        };
        if page.level() == 0 {
            self.counts.leaves_older += u64::from(!certain);
            segments.push(Segment { low, high, source: Source::Leaf(Leaf { id, place, certain }) });
            return Ok(());
        }
        let first = segments.len();
        for index in 0..page.count() {
            let from = if index == 0 { low.clone() } else { page.key(index).to_vec() };
            let next = (index + 1 < page.count()).then(|| page.key(index + 1).to_vec());
            let to = next.or_else(|| high.clone());
            let is_range = from >= low && to.as_ref().is_none_or(|to| *to > from);
            if is_range {
                self.node(group, page.child(index).0, Some(page.level() - 1), (from, to), segments)?;
            }
        }
        if !certain {
            let below = segments.split_off(first);
            segments.push(self.collapse((low, high), below)?);
        }
        Ok(())
    }

    /// Joins the segments below an uncertain node. Its bounds may be outdated, so leaves to which it does not lead may
    /// belong there too.
    fn collapse(&self, (low, high): (Bytes, Option<Bytes>), below: Vec<Segment>) -> Result<Segment> {
        let mut all = CollectedRows { may_be_incomplete: true, ..CollectedRows::default() };
        for segment in below {
            match segment.source {
                Source::Collected(collected) => {
                    all.was_inner |= collected.was_inner;
                    all.rows.extend(collected.rows);
                }
                Source::Leaf(leaf) => {
                    // All rows of a certain leaf count, whatever its bounds here. Of other leaves, only rows within them.
                    let bounds = match leaf.certain {
                        true => (&low, high.as_ref()),
                        false => (&segment.low, segment.high.as_ref()),
                    };
                    if let Some(page) = self.loader.node(leaf.id, leaf.place)? {
                        all.add(&page, bounds, leaf.certain);
                    }
                }
            }
        }
        Ok(Segment { low, high, source: Source::Collected(all) })
    }

    /// Adds the rows of the newest copy of a leaf whose valid copy is lost.
    fn older(
        &mut self,
        group: Group,
        id: u64,
        bounds: (&Bytes, Option<&Bytes>),
        into: &mut CollectedRows,
    ) -> Result<()> {
        let is_own = |place: &Place| matches!(self.location(id), Location::At(own) if own == *place);
        let Some((place, _)) = self.newest(id).filter(|(place, _)| !is_own(place)) else { return Ok(()) };
        let page = self.loader.node(id, place)?;
        if let Some(page) = page.filter(|page| page.group() == group && page.level() == 0) {
            self.counts.leaves_older += 1;
            into.add(&page, bounds, false);
        }
        Ok(())
    }

    /// Adds leaves to which no node leads to segments whose inner node is lost: those that the MAT names, which are
    /// certain; and where the MAT is lost too, the newest copy of each.
    fn fill(&mut self, group: Group, segments: &mut [Segment]) -> Result<()> {
        let is_ours = |copy: &PageCopy| copy.group == group.0 && copy.level == 0;
        let of_ours = self.scan.nodes.iter().filter(|(_, copies)| copies.iter().any(is_ours));
        let unvisited = of_ours.map(|(id, _)| *id).filter(|id| !self.visited.contains(id));
        let mut leaves: Vec<(bool, (u64, u64), Place, u64)> = Vec::new();
        for id in unvisited {
            match self.location(id) {
                Location::At(place) if !place.is_nowhere() => leaves.push((true, (0, 0), place, id)),
                Location::At(_) => {}
                Location::Unknown => {
                    leaves.extend(self.newest(id).map(|(place, copy)| (false, copy.age(), place, id)));
                }
            }
        }
        // Later ones win: newer copies over older ones, certain leaves over all others.
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
            // Segments follow each other in the order of their keys.
            let ends_before =
                |segment: &Segment| segment.high.as_ref().is_some_and(|high| high.as_slice() <= first);
            let from = segments.partition_point(ends_before);
            let near = segments[from..].iter_mut().take_while(|segment| segment.low.as_slice() <= last);
            for Segment { low, high, source } in near {
                if let Source::Collected(collected) = source
                    && (certain || collected.was_inner)
                {
                    collected.add(&page, (low, high.as_ref()), certain);
                }
            }
        }
        for segment in segments {
            if let Source::Collected(collected) = &mut segment.source {
                collected.may_be_incomplete = !(collected.was_inner && complete);
            }
        }
        Ok(())
    }

    /// Whether every node that the MAT names was found, or a node above leads to it.
    fn is_complete(&self) -> bool {
        !self.by_age
            && self.chunks.iter().all(|(number, chunk)| {
                let Some(chunk) = chunk else { return false };
                (0..self.layout.per_chunk()).all(|index| {
                    let id = number * self.layout.per_chunk() + index;
                    let place = self.layout.place_in(chunk, index as usize);
                    place.is_nowhere() || self.visited.contains(&id) || self.scan.has(id, place)
                })
            })
    }

    /// All zones, by their headers and by the ZIT.
    pub(crate) fn zones(&self) -> Result<Vec<KnownZone>> {
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
        let of = |(index, zone): (usize, &FoundZone)| {
            let entry = table.get(&index).copied().unwrap_or_default();
            let own = zone.identity.filter(|identity| identity.fs_id == self.scan.fs_id);
            let (life, role) = own.map_or((entry.life, entry.role), |own| (own.life, own.role));
            let user = if entry.life == life { entry.user } else { [0; 16] };
            KnownZone { life, role, user, end: zone.end() }
        };
        Ok(self.scan.zones.iter().enumerate().map(of).collect())
    }
}

impl Scan {
    /// Whether the pages that a place names were found.
    fn has(&self, id: u64, place: Place) -> bool {
        let was_found = |copies: Option<&Vec<PageCopy>>, at: Address| {
            copies.is_some_and(|copies| copies.iter().any(|copy| copy.at == at))
        };
        was_found(self.nodes.get(&id), place.whole_page())
            && (!place.is_delta() || was_found(self.deltas.get(&id), place.at))
    }

    /// How many places in a chunk lead to their node, if the chunk has this layout.
    fn hits(&self, layout: &MatLayout, number: u64, chunk: Option<&Bytes>) -> usize {
        let Some(chunk) = chunk else { return 0 };
        let has = |index: &u64| {
            let place = layout.place_in(chunk, *index as usize);
            !place.is_nowhere() && self.has(number * layout.per_chunk() + index, place)
        };
        (0..layout.per_chunk()).filter(has).count()
    }
}

#[cfg(test)]
mod tests;

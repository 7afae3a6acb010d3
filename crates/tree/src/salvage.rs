//! The tables without the log: what the pages of the metadata zones alone say (I-TREE-3).
//!
//! All that a checkpoint saves but its record lies in metadata zones: nodes, the chunks of the MAT and its
//! directory. The newest directory that was written as a whole is the newest state there is; what only the
//! journal knew is gone with it. Which copy of a node counts is then known by address, and all of the leaves
//! that count together are the tables, whatever has become of the nodes above them.
//!
//! Where the MAT is damaged as well, the newest copy of a node that is not newer than that state takes its
//! place, if the nodes above lead to it. Newest is by epoch, then LSN: what an epoch wrote that a crash has
//! undone can be newer by LSN than what followed it.
//!
//! What is told is either **certain** (it is what the last checkpoint that can be found says) or not: it stands
//! in a copy that was found in place of one that is lost, or a later checkpoint may be among what is damaged.
//! Where keys may be missing is told as ranges.
//!
//! Reads only, and holds in memory: 50 bytes a page, the bounds of all leaves, and the rows of ranges in which
//! leaves had to be pieced together.

mod assemble;
mod scan;

use std::collections::BTreeMap;
use std::sync::Arc;

use rt::sync::Mutex;
use zone::{Blocks, Device, FsId, Life, Role};

use crate::decode::{Page, Place, tree_key};
use crate::key_range::{KeyRange, KeyRanges};
use crate::types::{Bytes, Group, Lsn, Result, Table};

use assemble::{Assembly, Loader, State};
use scan::Scan;

/// Leaves kept in memory.
const LEAVES_CACHED: usize = 256;

/// What is known of a zone without the log.
#[derive(Clone, Copy, Debug)]
pub struct SalvagedZone {
    /// Its life and role, as its header says; as the zone table did where the header is damaged.
    pub life: Life,
    /// What it is for.
    pub role: Role,
    /// The 16 bytes that its user keeps with it; zeros where they are not known.
    pub user: [u8; 16],
    /// Where what was written ends, as far as that is known.
    pub end: Blocks,
}

/// What was found, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SalvageCounts {
    /// Pages of metadata that are whole.
    pub pages: u64,
    /// Places in metadata zones where no whole page is.
    pub pages_damaged: u64,
    /// Nodes that are lost.
    pub nodes_lost: u64,
    /// Leaves for which an older copy, or one that may be older, was taken.
    pub leaves_older: u64,
}

/// A row: key, value, whether it is certain.
pub type SalvagedRow<'a> = (&'a [u8], &'a [u8], bool);

/// The tables as far as they can be read.
pub struct Salvaged {
    loader: Loader,
    page_blocks: Blocks,
    cut: Lsn,
    is_newest: bool,
    counts: SalvageCounts,
    groups: Vec<Vec<Piece>>,
    lost: KeyRanges,
    zones: Vec<SalvagedZone>,
    /// Leaves by their node's number.
    cache: Mutex<BTreeMap<u64, Arc<Page>>>,
}

/// Keys from `low` up to the next piece's, and where they are found.
struct Piece {
    low: Bytes,
    high: Option<Bytes>,
    source: Source,
}

enum Source {
    /// One leaf has all of them.
    Leaf(Leaf),
    /// The leaf, or a node above it, is lost or not certain; these rows were found.
    Pieced(Pieced),
}

/// Where rows may be missing.
fn lost(groups: &[Vec<Piece>]) -> Vec<KeyRange> {
    let is_lost = |piece: &&Piece| matches!(&piece.source, Source::Pieced(pieced) if pieced.is_lost);
    let of_group = |(group, pieces): (usize, &Vec<Piece>)| {
        let range = |piece: &Piece| KeyRange {
            group: Group(group as u16),
            low: piece.low.clone(),
            high: piece.high.clone(),
        };
        pieces.iter().filter(is_lost).map(range).collect::<Vec<_>>()
    };
    groups.iter().enumerate().flat_map(of_group).collect()
}

#[derive(Default)]
struct Pieced {
    rows: BTreeMap<Bytes, (Bytes, bool)>,
    /// Some may be missing.
    is_lost: bool,
    /// It was a node above leaves, and nothing of it was found.
    is_above: bool,
}

impl Pieced {
    /// Adds the rows of a leaf within bounds. What is certain stays.
    fn add(&mut self, page: &Page, (low, high): (&Bytes, Option<&Bytes>), certain: bool) {
        for index in 0..page.count() {
            let key = page.key(index);
            let is_inside = key >= low.as_slice() && high.is_none_or(|high| key < high.as_slice());
            let is_better = certain || self.rows.get(key).is_none_or(|(_, certain)| !certain);
            if is_inside && is_better {
                self.rows.insert(key.to_vec(), (page.value(index).to_vec(), certain));
            }
        }
    }
}

/// A leaf that can be read.
#[derive(Clone, Copy)]
struct Leaf {
    id: u64,
    place: Place,
    certain: bool,
}

impl Salvaged {
    /// Finds out what there is. `progress` is told parts done, and parts in all.
    ///
    /// # Errors
    /// When there is no volume, or no metadata at all.
    pub fn scan(device: Arc<dyn Device>, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvaged> {
        let scan = Scan::new(&*device, progress)?;
        let state = State::newest(&scan);
        let loader = Loader::new(device, &scan);
        let mut assembly = Assembly::new(loader.clone(), &scan, &state)?;
        let groups = (0..scan.groups()).map(|group| assembly.group(Group(group)));
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let counts =
            SalvageCounts { pages: scan.pages, pages_damaged: scan.damaged.len() as u64, ..assembly.counts };
        let zones = assembly.zones()?;
        Ok(Salvaged {
            loader,
            page_blocks: scan.page_blocks,
            cut: state.cut,
            is_newest: state.is_newest,
            counts,
            lost: KeyRanges::new(lost(&groups)),
            groups,
            zones,
            cache: Mutex::default(),
        })
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.loader.device
    }

    /// The volume's identity.
    pub fn fs_id(&self) -> FsId {
        self.loader.fs_id
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.loader.pages.page_size()
    }

    /// The last transaction that is in what was found; 0 when that is not known.
    pub fn cut(&self) -> Lsn {
        self.cut
    }

    /// Whether this is the newest checkpoint for certain. If not, a later one may be among what is damaged,
    /// and no row is certain.
    pub fn is_newest(&self) -> bool {
        self.is_newest
    }

    /// What was found, in numbers.
    pub fn counts(&self) -> SalvageCounts {
        self.counts
    }

    /// Shards of the tables.
    pub fn groups(&self) -> u16 {
        self.groups.len() as u16
    }

    /// The group in which what belongs to a number is kept.
    pub fn group_of(&self, number: u64) -> Group {
        Group((number % self.groups.len().max(1) as u64) as u16)
    }

    /// What is known of the zones.
    pub fn zones(&self) -> &[SalvagedZone] {
        &self.zones
    }

    /// Where rows may be missing.
    pub fn lost(&self) -> Vec<KeyRange> {
        self.lost.iter().cloned().collect()
    }

    /// Where rows of a table may be missing whose keys begin with these bytes.
    pub fn lost_near<'a>(
        &'a self,
        group: Group,
        table: Table,
        prefix: &[u8],
    ) -> impl Iterator<Item = &'a KeyRange> + use<'a> {
        self.lost.touching(group, table, prefix)
    }

    /// Shows the rows of a table with `from <= key < to` (an empty `to`: up to the table's end), in order, each
    /// with whether it is certain. Goes on for as long as `each` says true.
    ///
    /// # Errors
    /// When the device as a whole has failed.
    pub fn rows(
        &self,
        group: Group,
        table: Table,
        (from, to): (&[u8], &[u8]),
        each: &mut dyn FnMut(SalvagedRow<'_>) -> bool,
    ) -> Result<()> {
        let low = tree_key(table, from);
        let high = if to.is_empty() { vec![table.0 + 1] } else { tree_key(table, to) };
        let Some(pieces) = self.groups.get(usize::from(group.0)) else { return Ok(()) };
        let first = pieces.partition_point(|piece| piece.high.as_ref().is_some_and(|high| *high <= low));
        for piece in pieces[first..].iter().take_while(|piece| piece.low < high) {
            if !self.rows_of(piece, (&low, &high), each)? {
                break;
            }
        }
        Ok(())
    }

    fn rows_of(
        &self,
        piece: &Piece,
        (low, high): (&Bytes, &Bytes),
        each: &mut dyn FnMut(SalvagedRow<'_>) -> bool,
    ) -> Result<bool> {
        match &piece.source {
            Source::Leaf(leaf) => {
                let Some(page) = self.leaf(leaf)? else { return Ok(true) };
                let first = page.search(low).unwrap_or_else(|index| index);
                for index in first..page.count() {
                    let key = page.key(index);
                    if key >= high.as_slice() {
                        break;
                    }
                    let is_inside = key >= piece.low.as_slice()
                        && piece.high.as_ref().is_none_or(|high| key < high.as_slice());
                    let certain = leaf.certain && self.is_newest;
                    if is_inside && !each((&key[1..], page.value(index), certain)) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Source::Pieced(Pieced { rows, .. }) => Ok(rows
                .range(low.clone()..)
                .take_while(|(key, _)| *key < high)
                .all(|(key, (value, certain))| each((&key[1..], value, *certain && self.is_newest)))),
        }
    }

    fn leaf(&self, leaf: &Leaf) -> Result<Option<Arc<Page>>> {
        if let Some(page) = self.cache.lock().get(&leaf.id) {
            return Ok(Some(Arc::clone(page)));
        }
        let Some(page) = self.loader.node(leaf.id, leaf.place)?.map(Arc::new) else { return Ok(None) };
        let mut cache = self.cache.lock();
        if cache.len() >= LEAVES_CACHED {
            cache.clear();
        }
        cache.insert(leaf.id, Arc::clone(&page));
        Ok(Some(page))
    }

    /// Blocks of a page.
    pub fn page_blocks(&self) -> Blocks {
        self.page_blocks
    }
}

//! The tables as far as they can be read.
//!
//! A row is **certain** if it is what the newest checkpoint contains. It is not certain if it comes from a copy that was
//! used in place of a lost one, or if a later checkpoint may be among the damaged pages. Ranges of keys in which rows may
//! be missing are reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use rt::sync::Mutex;
use tree::decode::{Page, tree_key};
use tree::{Bytes, Group, Key, KeyRange, KeyRanges, Lsn, Result, Table};
use zone::{Device, FsId};

use crate::assemble::{Assembly, KnownZone, TableCounts};
use crate::checkpoint::FoundCheckpoint;
use crate::loader::Loader;
use crate::scan::Scan;
use crate::segments::{CollectedRows, Leaf, Segment, Source};

/// Leaves kept in memory.
const LEAVES_CACHED: usize = 256;

/// A row: key, value, whether it is certain.
pub type Row<'a> = (&'a [u8], &'a [u8], bool);

/// The tables of a volume, rebuilt from the pages in its metadata zones.
pub struct Tables {
    loader: Loader,
    cut: Lsn,
    is_newest: bool,
    counts: TableCounts,
    groups: Vec<Vec<Segment>>,
    lost: KeyRanges,
    zones: Vec<KnownZone>,
    /// Leaves by their node's number.
    cache: Mutex<BTreeMap<u64, Arc<Page>>>,
}

impl Tables {
    /// Reads all metadata. `progress` is called with the number of zones that were read, and that of all metadata zones.
    ///
    /// # Errors
    /// If there is no volume, or no page of metadata.
    pub fn scan(device: Arc<dyn Device>, progress: &mut dyn FnMut(u64, u64)) -> Result<Tables> {
        let scan = Scan::new(&*device, progress)?;
        let checkpoint = FoundCheckpoint::newest(&scan);
        let loader = Loader::new(device, &scan);
        let mut assembly = Assembly::new(loader.clone(), &scan, &checkpoint)?;
        let groups = (0..scan.groups()).map(|group| assembly.group(Group(group)));
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let counts =
            TableCounts { pages: scan.pages, pages_damaged: scan.damaged.len() as u64, ..assembly.counts };
        let zones = assembly.zones()?;
        Ok(Tables {
            loader,
            cut: checkpoint.cut,
            is_newest: checkpoint.is_newest,
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

    /// The last transaction in the checkpoint that was found; 0 if that is not known.
    pub fn cut(&self) -> Lsn {
        self.cut
    }

    /// Whether the checkpoint is the newest. If not, a later one may be among the damaged pages, and no row is certain.
    pub fn is_newest(&self) -> bool {
        self.is_newest
    }

    /// What was found, in numbers.
    pub fn counts(&self) -> TableCounts {
        self.counts
    }

    /// Shards of the tables.
    pub fn groups(&self) -> u16 {
        self.groups.len() as u16
    }

    /// The group for an inode or object of this number.
    pub fn group_of(&self, number: u64) -> Group {
        Group((number % self.groups.len().max(1) as u64) as u16)
    }

    /// All zones.
    pub(crate) fn zones(&self) -> &[KnownZone] {
        &self.zones
    }

    /// The ranges in which rows may be missing.
    pub fn lost(&self) -> Vec<KeyRange> {
        self.lost.iter().cloned().collect()
    }

    /// The ranges in which rows of a table may be missing whose keys begin with these bytes.
    pub fn lost_near<'a>(
        &'a self,
        group: Group,
        table: Table,
        prefix: &[u8],
    ) -> impl Iterator<Item = &'a KeyRange> + use<'a> {
        self.lost.touching(group, table, prefix)
    }

    /// Calls `each` for the rows of a table with `from <= key < to`, in order, as long as it returns true. An empty `to` is
    /// the end of the table.
    ///
    /// # Errors
    /// If the device as a whole has failed.
    pub fn rows(
        &self,
        group: Group,
        table: Table,
        (from, to): (&[u8], &[u8]),
        each: &mut dyn FnMut(Row<'_>) -> bool,
    ) -> Result<()> {
        let low = tree_key(table, from);
        let high = if to.is_empty() { vec![table.0 + 1] } else { tree_key(table, to) };
        let Some(segments) = self.groups.get(usize::from(group.0)) else { return Ok(()) };
        let first =
            segments.partition_point(|segment| segment.high.as_ref().is_some_and(|high| *high <= low));
        for segment in segments[first..].iter().take_while(|segment| segment.low < high) {
            if !self.rows_of(segment, (&low, &high), each)? {
                break;
            }
        }
        Ok(())
    }

    fn rows_of(
        &self,
        segment: &Segment,
        (low, high): (&Bytes, &Bytes),
        each: &mut dyn FnMut(Row<'_>) -> bool,
    ) -> Result<bool> {
        match &segment.source {
            Source::Leaf(leaf) => {
                let Some(page) = self.leaf(leaf)? else { return Ok(true) };
                let first = page.search(low).unwrap_or_else(|index| index);
                for index in first..page.count() {
                    let key = page.key(index);
                    if key >= high.as_slice() {
                        break;
                    }
                    let is_inside = key >= segment.low.as_slice()
                        && segment.high.as_ref().is_none_or(|high| key < high.as_slice());
                    let certain = leaf.certain && self.is_newest;
                    if is_inside && !each((&key[1..], page.value(index), certain)) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Source::Collected(CollectedRows { rows, .. }) => Ok(rows
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
}

/// The ranges in which rows may be missing.
fn lost(groups: &[Vec<Segment>]) -> Vec<KeyRange> {
    let is_lost = |segment: &&Segment| matches!(&segment.source, Source::Collected(collected) if collected.may_be_incomplete);
    let of_group = |(group, segments): (usize, &Vec<Segment>)| {
        let range = |segment: &Segment| KeyRange {
            group: Group(group as u16),
            low: Key::from_slice(&segment.low),
            high: segment.high.as_deref().map(Key::from_slice),
        };
        segments.iter().filter(is_lost).map(range).collect::<Vec<_>>()
    };
    groups.iter().enumerate().flat_map(of_group).collect()
}

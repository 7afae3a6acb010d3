//! Scrub: reads and verifies all live data of a volume in use.
//!
//! It works in steps, in the order of the object map. As for every reader, the map's lock is held only for the look-up, and
//! references on the zones are held until the data is read (I-ZONE-4). A block that is wrong is looked up and read again: a
//! block that was overwritten or moved meanwhile is no finding. A scrub changes nothing, and computes no checksum anew.
//!
//! On a device with several copies all of them are read. A block of which one is right is no finding:
//! [`rewrite`](crate::rewrite) writes it anew, with all its copies.

use std::collections::BTreeMap;
use std::ops::Range;

use tree::{Group, StoreError, ZoneRef};
use zone::{Address, Blocks, DeviceError};

use crate::finding::{Finding, FindingKind};
use crate::format::{self, EXTENT, Extent};
use crate::maps::ObjectMaps;
use crate::{ExtentError, Object, Result, map};

/// Rows that are looked up at a time.
const ROWS: usize = 64;
/// Failed look-ups, because a zone is in another life than the extent says, before this counts as damage.
const LOOKUPS_MAX: usize = 8;

/// Where the scrub continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataScrub {
    /// The group of the map.
    pub group: u16,
    /// The object in it.
    pub object: u64,
    /// The first block of it that has not been read.
    pub block: u64,
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes that were read.
    pub bytes: u64,
    /// The damage.
    pub findings: Vec<Finding>,
    /// Blocks with a damaged copy and an intact one.
    pub damaged_copies: Vec<DamagedCopy>,
    /// Everything was read.
    pub done: bool,
}

/// Adjacent blocks of an object of which one copy is damaged, and another is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedCopy {
    /// The object.
    pub object: Object,
    /// Its blocks.
    pub blocks: Range<u64>,
    /// The device with the damaged copy, and the damage of the first block.
    pub what: String,
}

/// A block that is wrong, as the map named it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Suspect {
    block: u64,
    address: Address,
    crc: u32,
    /// The damaged copy, if another one is right.
    copy: Option<u32>,
}

/// A copy of a block that is wrong.
struct WrongCopy {
    copy: u32,
    /// Nothing if it was read and its checksum is wrong.
    error: Option<DeviceError>,
}

/// Reads and verifies the next extents, until `bytes_max` bytes have been read.
///
/// # Errors
/// If the device as a whole has failed. Damage is a finding.
pub fn scrub_step(maps: &ObjectMaps, scrub: &mut DataScrub, bytes_max: u64) -> Result<Scrubbed> {
    let mut scrubbed = Scrubbed::default();
    while scrubbed.bytes < bytes_max.max(1) {
        if scrub.group >= maps.store().info().groups {
            scrubbed.done = true;
            break;
        }
        let from = format::key(Object(scrub.object), scrub.block);
        let rows = match maps.store().range(Group(scrub.group), EXTENT, &from, &[], ROWS) {
            Ok(rows) if !rows.is_empty() => rows,
            Ok(_) => {
                *scrub = DataScrub { group: scrub.group + 1, ..DataScrub::default() };
                continue;
            }
            Err(StoreError::Corrupt(what)) => {
                scrubbed.findings.push(Finding::new(FindingKind::Record, None, what));
                *scrub = DataScrub { group: scrub.group + 1, ..DataScrub::default() };
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        scrub_rows(maps, scrub, &rows, bytes_max, &mut scrubbed)?;
    }
    Ok(scrubbed)
}

fn scrub_rows(
    maps: &ObjectMaps,
    scrub: &mut DataScrub,
    rows: &[tree::Entry],
    bytes_max: u64,
    scrubbed: &mut Scrubbed,
) -> Result<()> {
    for (key, value) in rows {
        let Some((object, start)) = format::decode_key(key) else {
            let what = format!("an extent with key {key:02x?} cannot be decoded");
            scrubbed.findings.push(Finding::new(FindingKind::Record, None, what));
            *scrub = DataScrub { group: scrub.group + 1, ..DataScrub::default() };
            return Ok(());
        };
        let blocks = Extent::decode(value).map_or(1, |extent| u64::from(extent.blocks));
        let end = start.saturating_add(blocks);
        scrub_range(maps, object, start..end, scrubbed)?;
        (scrub.object, scrub.block) = (object.0, end);
        if scrubbed.bytes >= bytes_max {
            break;
        }
    }
    Ok(())
}

/// Reads the blocks of a range.
fn scrub_range(maps: &ObjectMaps, object: Object, blocks: Range<u64>, scrubbed: &mut Scrubbed) -> Result<()> {
    let range = (blocks.start, blocks.end);
    let (extents, _zone_refs) = match look_up_and_enter(maps, object, range) {
        Ok(Some(zone_refs)) => zone_refs,
        Ok(None) => {
            let why = "its zone is not in the life in which it was written";
            add(&mut scrubbed.findings, object, blocks, Some(why));
            return Ok(());
        }
        Err(ExtentError::Store(StoreError::Corrupt(what))) => {
            let of = Some((object, blocks));
            scrubbed.findings.push(Finding::new(FindingKind::Record, of, what));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for (start, extent) in extents {
        if extent.is_lost() {
            add(&mut scrubbed.findings, object, start..start + u64::from(extent.blocks), None);
        }
        if extent.is_stored() {
            let copies = u64::from(copies_of(maps, &extent));
            scrubbed.bytes += copies * u64::from(extent.blocks) * u64::from(maps.block_size());
            let suspects = read_and_verify(maps, start, &extent)?;
            for of_block in suspects.chunk_by(|(one, _), (next, _)| one.block == next.block) {
                for (suspect, why) in read_again(maps, object, of_block)? {
                    add_suspect(maps, object, suspect, &why, scrubbed);
                }
            }
        }
    }
    Ok(())
}

/// The extents of a range, with references on their zones. `None` if a zone remains in another life.
#[allow(clippy::type_complexity, reason = "extents and references, used once")]
fn look_up_and_enter(
    maps: &ObjectMaps,
    object: Object,
    range: (u64, u64),
) -> Result<Option<(Vec<(u64, Extent)>, Vec<ZoneRef>)>> {
    for _ in 0..LOOKUPS_MAX {
        let _shared = maps.map_of(object).read();
        let extents = map::extents(maps.store(), object, range, usize::MAX)?;
        let stored = extents.iter().filter(|(_, extent)| extent.is_stored());
        let zone_refs: Option<Vec<_>> =
            stored.map(|(_, extent)| maps.store().enter_zone(extent.address)).collect();
        if let Some(zone_refs) = zone_refs {
            return Ok(Some((extents, zone_refs)));
        }
    }
    Ok(None)
}

fn add_suspect(maps: &ObjectMaps, object: Object, suspect: Suspect, why: &str, scrubbed: &mut Scrubbed) {
    let blocks = suspect.block..suspect.block + 1;
    let Some(copy) = suspect.copy else {
        return add(&mut scrubbed.findings, object, blocks, Some(why));
    };
    let what = format!("the copy on {}: {why}", maps.device().copy_name(suspect.address.zone(), copy));
    let last = scrubbed.damaged_copies.last_mut();
    let is_next = |last: &&mut DamagedCopy| {
        (last.object, last.blocks.end, &last.what) == (object, suspect.block, &what)
    };
    match last.filter(is_next) {
        Some(last) => last.blocks.end = blocks.end,
        None => scrubbed.damaged_copies.push(DamagedCopy { object, blocks, what }),
    }
}

fn copies_of(maps: &ObjectMaps, extent: &Extent) -> u32 {
    maps.device().copies(extent.address.zone(), extent.address.block()).max(1)
}

/// The wrong blocks of an extent whose zone is referenced, and the reasons. All copies are read.
fn read_and_verify(maps: &ObjectMaps, start: u64, extent: &Extent) -> Result<Vec<(Suspect, String)>> {
    let copies = copies_of(maps, extent);
    let mut wrong: BTreeMap<Blocks, Vec<WrongCopy>> = BTreeMap::new();
    for copy in 0..copies {
        for (index, error) in wrong_in_copy(maps, extent, copy) {
            wrong.entry(index).or_default().push(WrongCopy { copy, error });
        }
    }
    let mut suspects = Vec::new();
    for (index, wrong) in wrong {
        let crc = extent.crcs[index as usize];
        let suspect =
            Suspect { block: start + u64::from(index), address: extent.address_of(index), crc, copy: None };
        if wrong.len() < copies as usize {
            let of_copy = |wrong: WrongCopy| (Suspect { copy: Some(wrong.copy), ..suspect }, wrong.why());
            suspects.extend(wrong.into_iter().map(of_copy));
            continue;
        }
        let is_failure =
            |wrong: &&WrongCopy| wrong.error.as_ref().is_some_and(DeviceError::is_of_whole_device);
        if let Some(error) = wrong.iter().find(is_failure).and_then(|wrong| wrong.error.clone()) {
            return Err(StoreError::Device(error).into());
        }
        suspects.extend(wrong.first().map(|wrong| (suspect, wrong.why())));
    }
    Ok(suspects)
}

/// The wrong blocks of one copy of an extent, and the error if they could not be read.
fn wrong_in_copy(maps: &ObjectMaps, extent: &Extent, copy: u32) -> Vec<(Blocks, Option<DeviceError>)> {
    let size = maps.block_size() as usize;
    let (zone, first) = (extent.address.zone(), extent.address.block());
    let mut bytes = vec![0; extent.blocks as usize * size];
    let whole = maps.device().read_copy(zone, first, copy, &mut bytes);
    let blocks = (0..extent.blocks).zip(bytes.chunks_mut(size)).zip(&extent.crcs);
    let wrong = blocks.filter_map(|((index, block), crc)| {
        let read = match &whole {
            Err(error) if !error.is_of_whole_device() => {
                maps.device().read_copy(zone, first + index, copy, block)
            }
            whole => whole.clone(),
        };
        match read {
            Ok(()) if zone::format::checksum(&[block]) == *crc => None,
            Ok(()) => Some((index, None)),
            Err(error) => Some((index, Some(error))),
        }
    });
    wrong.collect()
}

impl WrongCopy {
    fn why(&self) -> String {
        match &self.error {
            Some(error) => error.to_string(),
            None => "its checksum is wrong".to_owned(),
        }
    }
}

/// What is wrong of a block when it is read once more. Nothing if the map no longer names it.
fn read_again(
    maps: &ObjectMaps,
    object: Object,
    before: &[(Suspect, String)],
) -> Result<Vec<(Suspect, String)>> {
    let suspect = before[0].0;
    let block = suspect.block;
    let Some((extents, _zone_refs)) = look_up_and_enter(maps, object, (block, block + 1))? else {
        return Ok(before.to_vec());
    };
    let Some((start, extent)) = extents.first().filter(|(_, extent)| extent.is_stored()) else {
        return Ok(Vec::new());
    };
    let index = (block - start) as Blocks;
    let now = extent.slice(index, index + 1);
    if (now.address, now.crcs[0]) != (suspect.address, suspect.crc) {
        return Ok(Vec::new());
    }
    read_and_verify(maps, block, &now)
}

/// Whether all copies of these blocks can be read and are right.
///
/// # Errors
/// If the device as a whole has failed.
pub fn is_intact(maps: &ObjectMaps, object: Object, blocks: Range<u64>) -> Result<bool> {
    let mut scrubbed = Scrubbed::default();
    scrub_range(maps, object, blocks, &mut scrubbed)?;
    Ok(scrubbed.findings.is_empty() && scrubbed.damaged_copies.is_empty())
}

/// Adds damaged blocks, to the previous finding if they are adjacent to it. Without a reason they were lost before.
pub(crate) fn add(findings: &mut Vec<Finding>, object: Object, blocks: Range<u64>, why: Option<&str>) {
    let kind = if why.is_some() { FindingKind::Data } else { FindingKind::Lost };
    let why = why.unwrap_or("it was lost before");
    let say = |blocks: &Range<u64>| match blocks.end - blocks.start {
        1 => format!("object {} block {} cannot be read: {why}", object.0, blocks.start),
        _ => {
            format!("object {} blocks {} to {} cannot be read: {why}", object.0, blocks.start, blocks.end - 1)
        }
    };
    if let Some(Finding { kind: before, what, of: Some((owner, range)) }) = findings.last_mut()
        && (*before, *owner, range.end) == (kind, object, blocks.start)
    {
        range.end = blocks.end;
        *what = say(range);
        return;
    }
    let what = say(&blocks);
    findings.push(Finding::new(kind, Some((object, blocks)), what));
}

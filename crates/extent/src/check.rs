//! The checker of data: whether the object map agrees with the zones and the ZIT.
//!
//! No thread may change the volume meanwhile. It reads the object map once, uses one bit for each block of the zones that it
//! finds in use, and looks up only inline blocks a second time.

use std::collections::BTreeMap;
use std::ops::Range;

use tree::{StoreError, Tx};
use zone::{Blocks, Role, ZoneId};

use crate::extents::Extents;
use crate::finding::{Finding, FindingKind};
use crate::format::{self, EXTENT, Extent, INLINE_BLOCK, UNWRITTEN_BLOCKS};
use crate::maps::ObjectMaps;
use crate::scrub::{self, DataScrub};
use crate::{ExtentError, Object, Result, map};

/// Bytes that one step of a scrub reads.
const SCRUB_AT_ONCE: u64 = 1 << 20;

/// Blocks of one zone that extents name.
#[derive(Default)]
struct ZoneBlocks {
    live: u64,
    /// One bit for each block.
    named: Vec<u64>,
}

impl ZoneBlocks {
    /// Adds the blocks of an extent. Returns the first one that another extent names.
    fn add(&mut self, from: Blocks, to: Blocks) -> Option<Blocks> {
        self.live += u64::from(to - from);
        self.named.resize(self.named.len().max(to as usize / 64 + 1), 0);
        let mut twice = None;
        for block in from..to {
            let (word, bit) = (&mut self.named[block as usize / 64], 1 << (block % 64));
            if *word & bit != 0 {
                twice = twice.or(Some(block));
            }
            *word |= bit;
        }
        twice
    }
}

struct Check<'a> {
    maps: &'a ObjectMaps,
    findings: Vec<Finding>,
    zones: BTreeMap<ZoneId, ZoneBlocks>,
    /// The extent before this one, for overlaps: object and end.
    before: Option<(Object, u64)>,
    /// Blocks of unwritten extents.
    unwritten: u64,
}

/// Compares the live counts of all zones with the object map, and finds extents that overlap, share blocks, or are outside
/// of a zone or its life. Reads no data.
pub fn check(extents: &Extents) -> Result<Vec<Finding>> {
    check_with_progress(extents, &mut || ())
}

/// As [`check`]. Calls `progress` after each extent.
pub fn check_with_progress(extents: &Extents, progress: &mut dyn FnMut()) -> Result<Vec<Finding>> {
    let (findings, zones) = (Vec::new(), BTreeMap::new());
    let mut check = Check { maps: extents.maps(), findings, zones, before: None, unwritten: 0 };
    extents.maps().each_entry(EXTENT, &mut |key, value| {
        check.extent(key, value);
        progress();
    })?;
    check.inline_blocks()?;
    check.live_counts();
    check.unwritten_count();
    for zone in extents.collector().lock().stuck() {
        check.found(
            FindingKind::LiveCount,
            format!("zone {} cannot be reclaimed: it counts live blocks that no extent names", zone.0),
        );
    }
    Ok(check.findings)
}

/// As [`check`]. With `scrub` it also reads and verifies all data.
pub fn check_data(extents: &Extents, scrub: bool) -> Result<Vec<Finding>> {
    let mut findings = check(extents)?;
    if scrub {
        let mut at = DataScrub::default();
        loop {
            let scrubbed = scrub::scrub_step(extents.maps(), &mut at, SCRUB_AT_ONCE)?;
            findings.extend(scrubbed.findings);
            if scrubbed.done {
                break;
            }
        }
    }
    Ok(findings)
}

/// Sets the counts that follow from the object map (I-EXT-2). If the map contradicts itself, it changes nothing and returns
/// false. No thread may change the volume meanwhile.
pub fn repair_counts(maps: &ObjectMaps) -> Result<bool> {
    let (findings, zones) = (Vec::new(), BTreeMap::new());
    let mut check = Check { maps, findings, zones, before: None, unwritten: 0 };
    maps.each_entry(EXTENT, &mut |key, value| check.extent(key, value))?;
    if !check.findings.is_empty() {
        return Ok(false);
    }
    let table = maps.pool();
    for zone in [Role::Data, Role::Gc].into_iter().flat_map(|role| table.in_role(role)) {
        let live = check.zones.get(&zone).map_or(0, |blocks| blocks.live);
        let mut tx = Tx::reclaiming();
        tx.zone_live(zone, (live as i64 - i64::from(table.entry(zone).live)) as i32);
        maps.store().commit(tx)?;
    }
    let (mut tx, counted) = (Tx::reclaiming(), maps.store().counter(UNWRITTEN_BLOCKS));
    tx.counter(UNWRITTEN_BLOCKS, check.unwritten as i64 - counted as i64);
    maps.store().commit(tx)?;
    Ok(true)
}

/// Blocks that could not be read when GC moved them, and are lost for good. Reads only the object map.
pub fn lost(maps: &ObjectMaps) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = Vec::new();
    maps.each_extent(&mut |object, start, extent| {
        if extent.is_lost() {
            scrub::add(&mut findings, object, start..start + u64::from(extent.blocks), None);
        }
    })?;
    Ok(findings)
}

impl Check<'_> {
    fn found(&mut self, kind: FindingKind, what: String) {
        self.findings.push(Finding::new(kind, None, what));
    }

    fn found_at(&mut self, kind: FindingKind, object: Object, blocks: Range<u64>, what: String) {
        self.findings.push(Finding::new(kind, Some((object, blocks)), what));
    }

    fn extent(&mut self, key: &[u8], value: &[u8]) {
        let (Some((object, start)), Some(extent)) = (format::decode_key(key), Extent::decode(value)) else {
            return self
                .found(FindingKind::Record, format!("an extent with key {key:02x?} cannot be decoded"));
        };
        let most = map::blocks_max(self.maps.device().geometry());
        let end = start.checked_add(u64::from(extent.blocks));
        let Some(end) = end.filter(|&end| end <= most) else {
            let what = format!(
                "object {}: the extent at block {start} ends beyond the largest block number",
                object.0
            );
            return self.found_at(FindingKind::Record, object, start..u64::MAX, what);
        };
        if self.before.is_some_and(|(owner, end)| owner == object && end > start) {
            let what = format!("object {}: extents overlap at block {start}", object.0);
            self.found_at(FindingKind::Overlap, object, start..end, what);
        }
        self.before = Some((object, end));
        if extent.unwritten {
            self.unwritten += u64::from(extent.blocks);
        }
        if extent.is_stored() {
            self.place(object, start, &extent);
        }
    }

    fn place(&mut self, object: Object, start: u64, extent: &Extent) {
        let (zones, address) = (self.maps.pool(), extent.address);
        let zone = address.zone();
        let end = address.block() + extent.blocks;
        let blocks = start..start + u64::from(extent.blocks);
        if zone.0 >= zones.count() || end > zones.capacity(zone) {
            let what = format!("object {} block {start}: {address} is outside of its zone", object.0);
            return self.found_at(FindingKind::Place, object, blocks, what);
        }
        let entry = zones.entry(zone);
        if !entry.role.holds_data() || !address.is_of(entry.life) {
            let what = format!("object {} block {start}: {address} is of another life or role", object.0);
            self.found_at(FindingKind::Place, object, blocks.clone(), what);
        }
        if let Some(block) = self.zones.entry(zone).or_default().add(address.block(), end) {
            let what =
                format!("object {} block {start}: block {block} of zone {} has two owners", object.0, zone.0);
            self.found_at(FindingKind::Shared, object, blocks, what);
        }
    }

    fn inline_blocks(&mut self) -> Result<()> {
        let mut blocks = Vec::new();
        let size = self.maps.block_size() as usize;
        let most = map::blocks_max(self.maps.device().geometry());
        let findings = &mut self.findings;
        let mut found = |what: String| findings.push(Finding::new(FindingKind::Record, None, what));
        self.maps.each_entry(INLINE_BLOCK, &mut |key, value| match format::decode_key(key) {
            Some(_) if value.len() > size => found(format!("an inline block at {key:02x?} is too long")),
            Some((_, block)) if block >= most => {
                found(format!("an inline block at {key:02x?} has too large a number"))
            }
            Some(block) => blocks.push(block),
            None => found(format!("an inline block with key {key:02x?} cannot be decoded")),
        })?;
        for (object, block) in blocks {
            match map::extents(self.maps.store(), object, (block, block + 1), 1) {
                Err(ExtentError::Store(StoreError::Corrupt(what))) => {
                    self.found_at(FindingKind::Record, object, block..block + 1, what);
                }
                Err(error) => return Err(error),
                Ok(found) if found.iter().all(|(_, extent)| extent.unwritten) => {}
                Ok(_) => {
                    let what =
                        format!("object {} block {block} is both an inline block and in an extent", object.0);
                    self.found_at(FindingKind::Overlap, object, block..block + 1, what);
                }
            }
        }
        Ok(())
    }

    fn live_counts(&mut self) {
        let pool = self.maps.pool();
        for zone in [Role::Data, Role::Gc].into_iter().flat_map(|role| pool.in_role(role)) {
            let counted = u64::from(pool.entry(zone).live);
            let live = self.zones.get(&zone).map_or(0, |blocks| blocks.live);
            if counted != live {
                self.found(
                    FindingKind::LiveCount,
                    format!("zone {} counts {counted} live blocks, extents name {live}", zone.0),
                );
            }
        }
    }

    fn unwritten_count(&mut self) {
        let (counted, found) = (self.maps.store().counter(UNWRITTEN_BLOCKS), self.unwritten);
        if counted != found {
            self.found(
                FindingKind::Unwritten,
                format!("{counted} unwritten blocks are counted, extents have {found}"),
            );
        }
    }
}

//! The checker of shared blocks: whether references, counts and data agree.
//!
//! It works in passes. Each is about the owners of one residue class, few enough to be kept in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tree::StoreError;

use crate::finding::{Finding, FindingKind};
use crate::format::{self, EXTENT, Extent, Origin, REFCOUNT};
use crate::maps::ObjectMaps;
use crate::{ExtentError, Object, Result, map, refcount};

/// Extents that are read from the store at once.
const BATCH: usize = 256;
/// References that one pass keeps in memory.
const PASS_REFERENCES: u64 = 1 << 20;

/// Runs of blocks, in order.
type Runs = Vec<Range<u64>>;

/// The result of the check.
#[derive(Clone, Debug, Default)]
pub struct SharedBlocks {
    /// The damage.
    pub findings: Vec<Finding>,
    /// Objects with shared blocks.
    pub owners: BTreeSet<Object>,
}

/// Whether every reference leads to data, every shared block has a reference, and all counts are right. References of
/// `uncounted` objects do not count. No thread may change the volume meanwhile.
pub fn check_references(maps: &ObjectMaps, uncounted: &BTreeSet<Object>) -> Result<SharedBlocks> {
    check_references_in_passes(maps, uncounted, PASS_REFERENCES)
}

pub(crate) fn check_references_in_passes(
    maps: &ObjectMaps,
    uncounted: &BTreeSet<Object>,
    pass_references: u64,
) -> Result<SharedBlocks> {
    let mut references = 0;
    each_reference(maps, uncounted, &mut |_, _| references += 1)?;
    let mut shared = SharedBlocks::default();
    let passes = u64::div_ceil(references, pass_references).max(1);
    for residue in 0..passes {
        check_owners(maps, uncounted, &|owner: Object| owner.0 % passes == residue, &mut shared)?;
    }
    Ok(shared)
}

fn each_reference(
    maps: &ObjectMaps,
    uncounted: &BTreeSet<Object>,
    each: &mut dyn FnMut(Origin, u64),
) -> Result<()> {
    maps.each_entry(EXTENT, &mut |key, value| {
        let (Some((object, _)), Some(extent)) = (format::decode_key(key), Extent::decode(value)) else {
            return;
        };
        if let Some(origin) = extent.origin.filter(|_| !uncounted.contains(&object)) {
            each(origin, u64::from(extent.blocks));
        }
    })
}

fn check_owners(
    maps: &ObjectMaps,
    uncounted: &BTreeSet<Object>,
    is_ours: &dyn Fn(Object) -> bool,
    shared: &mut SharedBlocks,
) -> Result<()> {
    let mut steps: BTreeMap<Object, BTreeMap<u64, i64>> = BTreeMap::new();
    each_reference(maps, uncounted, &mut |origin, blocks| {
        if is_ours(origin.object) {
            let steps = steps.entry(origin.object).or_default();
            *steps.entry(origin.block).or_default() += 1;
            *steps.entry(origin.block + blocks).or_default() -= 1;
        }
    })?;
    let mut unowned = BTreeSet::new();
    maps.each_entry(REFCOUNT, &mut |key, value| {
        let owner = format::decode_key(key).map(|(owner, _)| owner);
        if owner.is_none() || format::decode_refcount(value).is_none() {
            let what = format!("a reference count with key {key:02x?} cannot be decoded");
            shared.findings.push(Finding::new(FindingKind::Record, None, what));
        }
        unowned.extend(owner.filter(|owner| is_ours(*owner) && !steps.contains_key(owner)));
    })?;
    for owner in unowned {
        let what = format!("object {} has reference counts, but no object refers to it", owner.0);
        shared.findings.push(Finding::new(FindingKind::Refcount, None, what));
    }
    for (owner, steps) in steps {
        check_owner(maps, owner, &counts(steps), &mut shared.findings)?;
        shared.owners.insert(owner);
    }
    Ok(())
}

fn check_owner(
    maps: &ObjectMaps,
    owner: Object,
    referenced: &[(Range<u64>, i64)],
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let mut found = |kind, run: Range<u64>, what: &str| {
        let what = format!("object {} blocks {} to {}: {what}", owner.0, run.start, run.end - 1);
        findings.push(Finding::new(kind, Some((owner, run)), what));
    };
    let data = match data_of(maps, owner) {
        Err(ExtentError::Store(StoreError::Corrupt(what))) => {
            found(FindingKind::Record, 0..u64::MAX, &what);
            return Ok(());
        }
        data => data?,
    };
    let covered = joined(referenced.iter().map(|(run, _)| run.clone()));
    for run in differences(&covered, &data) {
        found(FindingKind::Reference, run, "there is a reference, but no data");
    }
    for run in differences(&data, &covered) {
        found(FindingKind::Unreferenced, run, "there is shared data, but no reference");
    }
    let several = referenced.iter().filter(|(_, count)| *count > 1).cloned();
    let stored = match refcount::counted(maps.store(), owner, &(0..u64::MAX)) {
        Err(ExtentError::Store(StoreError::Corrupt(what))) => {
            found(FindingKind::Refcount, 0..u64::MAX, &what);
            return Ok(());
        }
        stored => stored?.into_iter().map(|(run, count)| (run, i64::from(count))),
    };
    let stored = joined_counts(stored);
    let expected = joined_counts(several);
    let wrong = first_missing(&expected, &stored).or(first_missing(&stored, &expected));
    if let Some((run, count)) = wrong {
        found(
            FindingKind::Refcount,
            run.clone(),
            &format!("stored and actual reference counts differ ({count})"),
        );
    }
    Ok(())
}

/// The blocks of an object with data of its own.
fn data_of(maps: &ObjectMaps, object: Object) -> Result<Runs> {
    let _shared = maps.map_of(object).read();
    let (mut runs, mut from) = (Runs::new(), Some(0));
    while let Some(at) = from {
        let extents = map::extents(maps.store(), object, (at, u64::MAX), BATCH)?;
        let end = |(start, extent): &(u64, Extent)| start + u64::from(extent.blocks);
        from = (extents.len() == BATCH).then(|| extents.last().map_or(0, end));
        let own = extents.iter().filter(|(_, extent)| extent.is_stored() || extent.is_lost());
        runs.extend(own.map(|one| one.0..end(one)));
    }
    let inline_blocks = map::inline_blocks(maps.store(), object, (0, u64::MAX), usize::MAX)?;
    runs.extend(inline_blocks.into_iter().map(|(block, _)| block..block + 1));
    runs.sort_by_key(|run| run.start);
    Ok(joined(runs.into_iter()))
}

/// The runs that have references, and their numbers.
fn counts(steps: BTreeMap<u64, i64>) -> Vec<(Range<u64>, i64)> {
    let ends: Vec<u64> = steps.keys().skip(1).copied().collect();
    let (mut count, mut runs) = (0, Vec::new());
    for ((from, step), to) in steps.into_iter().zip(ends) {
        count += step;
        if count > 0 {
            runs.push((from..to, count));
        }
    }
    runs
}

/// Joins runs that are adjacent.
fn joined(runs: impl Iterator<Item = Range<u64>>) -> Runs {
    joined_counts(runs.map(|run| (run, 1))).into_iter().map(|(run, _)| run).collect()
}

fn joined_counts(runs: impl Iterator<Item = (Range<u64>, i64)>) -> Vec<(Range<u64>, i64)> {
    let mut joined: Vec<(Range<u64>, i64)> = Vec::new();
    for (run, count) in runs {
        match joined.last_mut() {
            Some((last, before)) if last.end == run.start && *before == count => last.end = run.end,
            _ => joined.push((run, count)),
        }
    }
    joined
}

/// The first run that is not in the other list. Both are in order.
fn first_missing<'a>(
    some: &'a [(Range<u64>, i64)],
    others: &[(Range<u64>, i64)],
) -> Option<&'a (Range<u64>, i64)> {
    some.iter().find(|one| {
        let at = others.partition_point(|(run, _)| run.start < one.0.start);
        others.get(at) != Some(one)
    })
}

/// Blocks in the first list that are not in the second. Both are in order.
fn differences(some: &[Range<u64>], others: &[Range<u64>]) -> Runs {
    let (mut left, mut others) = (Vec::new(), others.iter().peekable());
    for run in some {
        let mut at = run.start;
        while let Some(other) = others.peek() {
            if other.start > at {
                left.push(at..other.start.min(run.end));
            }
            at = at.max(other.end);
            if at >= run.end {
                break;
            }
            others.next();
        }
        if at < run.end {
            left.push(at..run.end);
        }
    }
    left.retain(|run| run.start < run.end);
    left
}

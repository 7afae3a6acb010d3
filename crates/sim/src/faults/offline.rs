//! A data zone that goes offline costs exactly its blocks and nothing else: while the scenario runs, in a recovery,
//! or while the power was off.
//!
//! The lost blocks are determined without relying on the volume. On a twin of the device the zone can be read until
//! the volume has recovered, and from then on it cannot be read. Exactly the blocks that cannot be read there must be
//! missing on the device without the zone. The checker must name exactly these files, and the volume is used again.

use std::collections::BTreeSet;
use std::sync::Arc;

use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault};
use fs::{Finding, Fs, InodeNo};
use zone::{Role, ZoneId, ZoneState};

use super::trial::Stage;
use crate::allowed::{FilesState, Unreadable};
use crate::caught::Wrong;
use crate::files::{Driver, afterwards, caller, compare, view};
use crate::history::History;

/// What the files of a mounted volume would lose with this offline zone. `None` if it is not a zone of data.
pub(super) fn would_lose(
    stage: &Stage,
    device: &Emulated,
    zone: ZoneId,
    allowed: &[Arc<FilesState>],
) -> Result<Option<Unreadable>, Wrong> {
    let twin = Arc::new(device.image(&CrashPlan::KeepAll));
    twin.set_zone_state(zone, ZoneState::ReadOnly);
    twin.record();
    let driver = stage.mount(&twin, History::recovering(allowed))?;
    if !matches!(driver.fs.store().pool().entry(zone).role, Role::Data | Role::Gc) {
        return Ok(None);
    }
    twin.inject(Fault::nth(CommandKind::Read, 1, Effect::Error).on(zone).forever());
    Ok(Some(view(&driver.fs)?.unreadable))
}

/// Checks that the volume without the zone has lost exactly that, reports it, and can be used.
pub(super) fn has_lost(
    mut driver: Driver,
    allowed: &[Arc<FilesState>],
    lost: &Unreadable,
    seed: u64,
) -> Result<(), Wrong> {
    let seen = view(&driver.fs)?;
    compare(&seen, allowed)?;
    if seen.unreadable != *lost {
        return Err(Wrong(format!("lost are {:?}, and in the zone were {lost:?}", seen.unreadable)));
    }
    let (reported, gone) = (reported(&driver.fs)?, inodes(&driver.fs, lost)?);
    if reported != gone {
        return Err(Wrong(format!("the checker names {reported:?}, and {gone:?} have lost something")));
    }
    let block = driver.fs.extents().block_size() as usize;
    driver.settle(driver.device.commands(), FilesState::found(seen.snapshot, block));
    driver.run(&afterwards(1, seed, block))
}

/// The inodes that the checker names, if they have a name. The others are still to be deleted, and their blocks do
/// not count.
fn reported(fs: &Fs) -> Result<BTreeSet<InodeNo>, Wrong> {
    let failed = |error: &dyn std::fmt::Display| Wrong::at("check", error);
    let mut findings = fs.check().map_err(|error| failed(&error))?;
    let data = extent::check_data(fs.extents(), true).map_err(|error| failed(&error))?;
    findings.extend(data.into_iter().map(Finding::Extents));
    let affected = fs.affected_files(&findings).map_err(|error| failed(&error))?;
    let named = affected.into_iter().flatten().filter(|affected| affected.path.is_some());
    Ok(named.map(|affected| affected.inode).collect())
}

/// The inodes at these paths.
fn inodes(fs: &Fs, lost: &Unreadable) -> Result<BTreeSet<InodeNo>, Wrong> {
    let at = |path: &String| {
        let down = |inode, name: &str| fs.lookup(&caller(), inode, name.as_bytes()).map(|found| found.inode);
        path.split('/').try_fold(InodeNo::ROOT, down).map_err(|error| Wrong::at(path, error))
    };
    lost.keys().map(at).collect()
}

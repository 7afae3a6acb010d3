//! `rsync -aHAXS` of a tree with everything, onto the mount and back.
//!
//! rsync must see no difference in either direction, by checksum, and neither must our own comparison: before and
//! after the volume was unmounted, checked and mounted again.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Counts;
use super::odd_tree::{self, Snapshot};
use super::running::at_most;
use crate::accept::Run;
use crate::accept::volume::Volume;

const SECONDS_MAX: u64 = 300;
/// Limit for the blocks of sparse files, whose pieces have fewer than 20 KB each.
const SPARSE_BLOCKS_MAX: u64 = 2 * 5 * (20_000 + 2 * 65_536) / 512;

pub(super) fn run(run: &Run, place: &Path) -> Result<(String, Counts)> {
    let volume = Volume::make(&["--size", "1G"], &[])?;
    volume.tell_if_failed(copy(&volume, run, place))
}

fn copy(volume: &Volume, run: &Run, place: &Path) -> Result<(String, Counts)> {
    let (source, there, back) = (place.join("source"), volume.dir().join("copy"), place.join("back"));
    let files = if run.quick { 150 } else { 5_000 };
    odd_tree::make(&source, files, &mut fastrand::Rng::with_seed(run.seed))?;
    let wanted = Snapshot::of(&source)?;
    volume.mount()?;
    let geometry = volume.geometry()?;
    rsync(&source, &there)?;
    let mut compared = same(&source, &there, &wanted)?;
    volume.unmount()?;
    volume.check()?;
    volume.mount()?;
    compared += same(&source, &there, &wanted).context("after unmounting and mounting")?;
    stays_sparse(&there)?;
    rsync(&there, &back)?;
    compared += same(&there, &back, &wanted).context("copied back")?;
    volume.unmount()?;
    volume.check()?;
    let counts = vec![
        ("files, links and nodes copied by rsync", wanted.len()),
        ("bytes in them", wanted.bytes),
        ("of them compared", compared),
    ];
    Ok((geometry, counts))
}

/// Copies a tree with all its properties.
pub(super) fn rsync(from: &Path, to: &Path) -> Result<()> {
    at_most(SECONDS_MAX, "rsync -aHAXS").arg(inside(from)).arg(to).run()
}

/// Checks that nothing differs: for rsync, both ways, and for our comparison.
fn same(one: &Path, other: &Path, wanted: &Snapshot) -> Result<u64> {
    for (from, to) in [(one, other), (other, one)] {
        let line = at_most(SECONDS_MAX, "rsync -aHAXSc --dry-run --itemize-changes --delete");
        let changes = line.arg(inside(from)).arg(to).output_bytes()?;
        ensure!(changes.is_empty(), "rsync sees differences:\n{}", String::from_utf8_lossy(&changes));
    }
    let found = Snapshot::of(other)?;
    wanted.judge(&found)?;
    Ok(found.len())
}

/// rsync copies the contents of a folder whose name ends with a slash.
fn inside(folder: &Path) -> String {
    format!("{}/", folder.display())
}

fn stays_sparse(root: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    for name in ["sparse-0", "sparse-1", "sparse-2", "hole"] {
        let blocks = std::fs::metadata(root.join(name))?.blocks();
        ensure!(blocks <= SPARSE_BLOCKS_MAX, "{name} has lost its holes: it takes {blocks} blocks of 512");
    }
    Ok(())
}

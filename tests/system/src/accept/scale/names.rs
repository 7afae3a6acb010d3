//! Rates of names in small and in large trees.
//!
//! The criterion is a ratio of Polder to itself: every operation on a million files must have at least half the rate
//! of the same operation on ten thousand, through the library and through a mount, with the default cache of a mount.
//! Each turn on the large tree is followed by one on the small tree. The rates of other file systems are printed as
//! well, each as a multiple of XFS with a small tree in the same run.

use std::path::Path;

use anyhow::{Result, ensure};
use support::shell::Line;
use support::workspace;
use tempfile::TempDir;

use super::{Report, Run};
use crate::accept::simulator::simulator;
use crate::accept::volume::Volume;
use crate::measured::Measured;
use crate::peer::{Kind, Peer};

const SMALL: u64 = 10_000;
/// The checked operations. A second lookup of the same names is only printed.
const JUDGED: [&str; 4] = ["create", "lookup", "readdir", "unlink"];
const SHOWN: [&str; 5] = ["create", "lookup", "lookup again", "readdir", "unlink"];

/// The size of the short and the long form.
struct Scale {
    large: u64,
    rounds: u64,
    /// Directories of the trees.
    shapes: &'static [u64],
    volume: &'static str,
    /// Bytes of an ext4 or XFS with a large tree. `None` in the short form.
    peer_bytes: Option<u64>,
    /// The least ratio of the rates at both sizes: half. Three turns on a busy machine cannot show that, so the short
    /// form requires half of it.
    ratio_min: f64,
}

const QUICK: Scale =
    Scale { large: 30_000, rounds: 3, shapes: &[1], volume: "1G", peer_bytes: None, ratio_min: 0.25 };
const FULL: Scale = Scale {
    large: 1_000_000,
    rounds: 10,
    shapes: &[1, 1000],
    volume: "6G",
    peer_bytes: Some(6 << 30),
    ratio_min: 0.5,
};
/// Bytes of an ext4 or XFS with a small tree.
const PEER_BYTES_SMALL: u64 = 512 << 20;

pub(super) fn run(run: &Run) -> Result<Report> {
    let scale = if run.quick { QUICK } else { FULL };
    let (mut turns, mut geometry) = (0, String::new());
    let mut slow = Vec::new();
    for &directories in scale.shapes {
        let ours = measure_polder(&scale, directories, &mut geometry)?;
        turns += ours.turns();
        for place in ["library", "mount"] {
            show(&ours, place, &scale, directories, true)?;
            slow.extend(judge(&ours, place, &scale, directories)?);
        }
        if let Some(bytes) = scale.peer_bytes {
            let theirs = measure_peers(&scale, bytes, directories)?;
            turns += theirs.turns();
            show(&theirs, "ext4", &scale, directories, true)?;
            show(&theirs, "xfs", &scale, directories, true)?;
        } else {
            show(&ours, "xfs", &scale, directories, false)?;
        }
    }
    ensure!(slow.is_empty(), "below {} of the rate at {SMALL} files: {}", scale.ratio_min, slow.join("; "));
    let counts = vec![("files of the large tree", scale.large), ("turns measured", turns)];
    Ok(Report { geometry: format!("names: {geometry}"), counts })
}

/// The operations with less than half the rate.
fn judge(measured: &Measured, place: &str, scale: &Scale, directories: u64) -> Result<Vec<String>> {
    let mut slow = Vec::new();
    for operation in JUDGED {
        let ratio = ratio_of_sizes(measured, place, scale, operation)?;
        if ratio.median < scale.ratio_min {
            slow.push(format!("{place}, {directories} directories: {operation} {ratio}"));
        }
    }
    Ok(slow)
}

fn ratio_of_sizes(
    measured: &Measured,
    place: &str,
    scale: &Scale,
    operation: &str,
) -> Result<crate::measured::Ratio> {
    let large = format!("{place}@{} {operation}", scale.large);
    measured.ratio(&large, &format!("{place}@{SMALL} {operation}"))
}

fn show(measured: &Measured, place: &str, scale: &Scale, directories: u64, is_large: bool) -> Result<()> {
    println!("{place}, files in {directories} directories:");
    for operation in SHOWN {
        let xfs = |files: u64| -> Result<f64> {
            let reference = measured.median(&format!("xfs@{SMALL} {operation}"))?;
            Ok(measured.median(&format!("{place}@{files} {operation}"))? / reference)
        };
        if is_large {
            let ratio = ratio_of_sizes(measured, place, scale, operation)?;
            let (small, large) = (xfs(SMALL)?, xfs(scale.large)?);
            println!(
                "  {operation:<13} {ratio} of itself with {SMALL}; {large:.2} of XFS with {SMALL} ({small:.2} with \
                 {SMALL})"
            );
        } else {
            println!("  {operation:<13} {:.2} of XFS with {SMALL}", xfs(SMALL)?);
        }
    }
    Ok(())
}

/// Library and mount with both sizes, and a small XFS for reference.
fn measure_polder(scale: &Scale, directories: u64, geometry: &mut String) -> Result<Measured> {
    let volume = || Volume::make(&["--size", scale.volume], &[]);
    let library = [volume()?, volume()?];
    let mounted = [volume()?, volume()?];
    let folder = folder()?;
    let xfs = Peer::make(Kind::Xfs, "small", folder.path(), PEER_BYTES_SMALL)?;
    let mut measured = Measured::default();
    let done = (|| -> Result<()> {
        for stage in ["make", "visit"] {
            mounted.iter().try_for_each(|volume| volume.mount().map(drop))?;
            *geometry = mounted[0].geometry()?;
            let mut line = driver(stage, scale, directories);
            for (volume, files) in library.iter().zip([scale.large, SMALL]) {
                line = plan(line, "--library", "library", &volume.file(), files);
            }
            for (volume, files) in mounted.iter().zip([scale.large, SMALL]) {
                line = plan(line, "--directory", "mount", &volume.dir(), files);
            }
            line = plan(line, "--directory", "xfs", xfs.dir(), SMALL);
            drive(&line, &mut measured)?;
            mounted.iter().try_for_each(Volume::unmount)?;
            xfs.remount()?;
        }
        library.iter().chain(&mounted).try_for_each(Volume::check)
    })();
    let done = mounted[0].keep_if_failed("names-mount", done);
    library[0].keep_if_failed("names-library", done)?;
    Ok(measured)
}

/// ext4 and XFS with both sizes.
fn measure_peers(scale: &Scale, bytes: u64, directories: u64) -> Result<Measured> {
    let folder = folder()?;
    let mut peers = Vec::new();
    for kind in [Kind::Ext4, Kind::Xfs] {
        for (size, files, bytes) in [("large", scale.large, bytes), ("small", SMALL, PEER_BYTES_SMALL)] {
            let name = format!("{}-{size}", kind.name());
            peers.push((Peer::make(kind, &name, folder.path(), bytes)?, files));
        }
    }
    let mut measured = Measured::default();
    for stage in ["make", "visit"] {
        let line = peers.iter().fold(driver(stage, scale, directories), |line, (peer, files)| {
            plan(line, "--directory", peer.kind.name(), peer.dir(), *files)
        });
        drive(&line, &mut measured)?;
        peers.iter().try_for_each(|(peer, _)| peer.remount())?;
    }
    Ok(measured)
}

fn folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("accept-").tempdir_in(workspace::target_dir()?)?)
}

fn driver(stage: &str, scale: &Scale, directories: u64) -> Line {
    let numbers = [directories, scale.rounds].map(|number| number.to_string());
    simulator("names").args(["--stage", stage, "--directories", &numbers[0], "--rounds", &numbers[1]])
}

fn plan(line: Line, kind: &str, name: &str, path: &Path, files: u64) -> Line {
    line.arg(kind).arg(format!("{name}={}@{files}", path.display()))
}

/// Prints the driver's output, except the measurements.
fn drive(line: &Line, measured: &mut Measured) -> Result<()> {
    println!("{line}");
    line.run_watched(|line| measured.read(line))
}

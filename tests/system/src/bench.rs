//! `cargo system bench`: the speed of Polder compared with the file below it and with other file systems.
//!
//! The library and a mount, a plain file with direct I/O in the same directory, and ext4 and XFS on loop devices over
//! files there do the same operations in turns. The long form writes the medians of their ratios into
//! `docs/performance.md`. It fails if an operation is below half of its peer and the page gives no reason. This
//! depends only on the page, so it is a test as well. The short form measures for a moment and does not change the
//! page.

mod page;

use anyhow::{Context, Result, ensure};
use support::shell::Line;
use support::workspace;
use tempfile::TempDir;

use self::page::{Page, Row};
use crate::accept::simulator::simulator;
use crate::accept::volume::Volume;
use crate::marked;
use crate::measured::Measured;
use crate::peer::{Kind, Peer};

/// The operations, with the names of `polder-sim turns`, and whether a plain file supports them.
const OPERATIONS: [(&str, bool); 9] = [
    ("sequential write", true),
    ("sequential read", true),
    ("random read", true),
    ("random write", true),
    ("write and fsync", true),
    ("write and fsync, 16 threads", true),
    ("create", false),
    ("stat", false),
    ("unlink", false),
];
const OURS: [&str; 2] = ["library", "mount"];
const PEERS: [&str; 3] = ["raw", "ext4", "xfs"];
/// The operations of `polder-sim amplification`.
const AMPLIFIED: [&str; 3] = ["create", "overwrite", "unlink"];

/// `cargo system bench [--quick]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure for a moment, and do not change the page.
    #[arg(long)]
    quick: bool,
}

/// The duration, as arguments of the drivers.
struct Scale {
    turns: &'static [&'static str],
    amplification: &'static [&'static str],
    bytes: u64,
    volume: &'static str,
}

const QUICK: Scale = Scale {
    turns: &["--rounds", "2", "--file", "8", "--small", "512", "--synced", "16", "--names", "200"],
    amplification: &["--files", "16384", "--operations", "2000", "--times", "4"],
    bytes: 512 << 20,
    volume: "512M",
};
const FULL: Scale = Scale { turns: &["--rounds", "7"], amplification: &[], bytes: 1 << 30, volume: "2G" };

/// Measures, prints, and writes the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    let scale = if args.quick { QUICK } else { FULL };
    marked::check(page::PATH, "bench")?;
    let measured = measure(&scale)?;
    let (rows, metadata) = (rows(&measured)?, metadata(&measured)?);
    let table = page::table(&rows, &metadata, &machine()?);
    println!("\n{table}");
    let page = Page::read()?;
    if args.quick {
        return page.check_reasons();
    }
    let page = page.with_table(&table)?;
    page.write()?;
    println!("written to {}", page::PATH);
    page.check_reasons()
}

fn measure(scale: &Scale) -> Result<Measured> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(workspace::target_dir()?)?;
    let library = Volume::make(&["--size", scale.volume], &[])?;
    let mounted = Volume::make(&["--size", scale.volume], &[])?;
    let peers = [Kind::Ext4, Kind::Xfs].map(|kind| Peer::make(kind, kind.name(), folder.path(), scale.bytes));
    let peers: Vec<Peer> = peers.into_iter().collect::<Result<_>>()?;
    let mut measured = Measured::default();
    mounted.mount()?;
    println!("geometry: {}", mounted.geometry()?);
    take_turns(scale, &folder, &library, &mounted, &peers, &mut measured)?;
    mounted.unmount()?;
    [&library, &mounted].into_iter().try_for_each(Volume::check)?;
    let volume = Volume::make(&["--size", "1G"], &[])?;
    let line = simulator("amplification").arg(volume.file()).args(scale.amplification);
    line.run_watched(|line| measured.read(line))?;
    volume.check()?;
    Ok(measured)
}

fn take_turns(
    scale: &Scale,
    folder: &TempDir,
    library: &Volume,
    mounted: &Volume,
    peers: &[Peer],
    measured: &mut Measured,
) -> Result<()> {
    let raw = folder.path().join("raw");
    std::fs::create_dir(&raw)?;
    let plan = |line: Line, kind: &str, name: &str, path: &std::path::Path| {
        line.arg(kind).arg(format!("{name}={}", path.display()))
    };
    let mut line = simulator("turns").args(scale.turns);
    line = plan(line, "--raw", "raw", &raw);
    line = plan(line, "--library", "library", &library.file());
    line = plan(line, "--directory", "mount", &mounted.dir());
    for peer in peers {
        line = plan(line, "--directory", peer.kind.name(), peer.dir());
    }
    println!("{line}");
    line.run_watched(|line| measured.read(line))
}

fn rows(measured: &Measured) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for ours in OURS {
        for (operation, has_raw) in OPERATIONS {
            let beside = PEERS.iter().filter(|&&peer| has_raw || peer != "raw");
            let ratio = |&peer: &&'static str| {
                let ratio = measured.ratio(&format!("{ours} {operation}"), &format!("{peer} {operation}"))?;
                Ok((peer, ratio))
            };
            rows.push(Row { ours, operation, ratios: beside.map(ratio).collect::<Result<_>>()? });
        }
    }
    Ok(rows)
}

/// Bytes of metadata for each operation.
fn metadata(measured: &Measured) -> Result<Vec<(&'static str, f64)>> {
    let bytes = |&operation: &&'static str| {
        let bytes = measured.median(&format!("metadata {operation}"))?;
        ensure!(bytes > 0.0, "{operation} wrote no metadata");
        Ok((operation, bytes))
    };
    AMPLIFIED.iter().map(bytes).collect()
}

/// The class of machine of the table.
pub(crate) fn machine() -> Result<String> {
    let release = Line::new("uname -r").output()?;
    let mut numbers = release.trim().split('.');
    let (major, minor) = (numbers.next().context("no release")?, numbers.next().context("no release")?);
    Ok(format!("{} processors, Linux {major}.{minor}", rt::thread::processors()))
}

#[cfg(test)]
mod tests;

//! Point 10: databases and other programs run on a mount as they do on ext4.
//!
//! * `rsync` of everything that a file system can contain, there and back (`programs/copies.rs`).
//! * SQLite with both kinds of journals, killed (`programs/sqlite.rs`).
//! * PostgreSQL with pgbench, server and daemon killed (`programs/postgres.rs`).
//! * RocksDB, larger than the volume's cache, buffered and direct (`programs/rocksdb.rs`).
//! * `stress-ng` on Polder and on an ext4 for comparison (`programs/stress.rs`).
//! * Two volumes at once (`programs/two_mounts.rs`).
//!
//! The quick form does all of it with less data and fewer kills, and takes a handful of stress-ng's stressors. It
//! needs root: for device nodes, for PostgreSQL's own user, and for the ext4.

mod copies;
pub(crate) mod cycle;
mod odd_tree;
pub(crate) mod postgres;
mod rocksdb;
pub(crate) mod running;
pub(crate) mod sqlite;
mod stress;
mod two_mounts;

use anyhow::{Context, Result};
use rt::{Clock, SystemClock};
use support::needs;
use support::workspace;

use super::{Report, Run};

/// The counts of a part.
type Counts = Vec<(&'static str, u64)>;

/// One kind of programs. It gets a folder that is removed afterwards.
type Part = fn(&Run, &std::path::Path) -> Result<(String, Counts)>;

const PARTS: [(&str, Part); 6] = [
    ("rsync", copies::run),
    ("SQLite", sqlite::run),
    ("PostgreSQL", postgres::run),
    ("RocksDB", rocksdb::run),
    ("stress-ng", stress::run),
    ("two mounts", two_mounts::run),
];

pub(super) fn run(run: &Run) -> Result<Report> {
    needs::require_root("make devices and change users")?;
    needs::require(&needs::PROGRAMS)?;
    let clock = SystemClock::new();
    let mut geometry = Vec::new();
    let mut counts = Counts::new();
    for (name, part) in PARTS {
        let began_ns = clock.monotonic_ns();
        let place = tempfile::Builder::new()
            .prefix("accept-")
            .tempdir_in(workspace::target_dir()?)
            .context("cannot make a temporary folder")?;
        let (on, counted) = part(run, place.path()).with_context(|| format!("{name} on a mount"))?;
        println!("{name}: done in {} s", (clock.monotonic_ns() - began_ns) / 1_000_000_000);
        geometry.push(format!("{name}: {on}"));
        counts.extend(counted);
    }
    Ok(Report { geometry: geometry.join("\n          "), counts })
}

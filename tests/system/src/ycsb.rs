//! `cargo system ycsb`: YCSB's workloads on RocksDB through a mount, on ext4 and on XFS.
//!
//! Each file system has the same number of bytes below it, in the same directory of the host. In a round each file
//! system first loads a database that takes most of it. Then every workload runs on one file system after the other,
//! before the next workload begins. Rounds after the first find used file systems. Rates and times become ratios
//! within the same round. Bytes are counted: those that RocksDB wrote to its files, and those that reached the
//! device. The long form writes `docs/results/performance.md`.
//!
//! The driver is a program of its own, `ycsb/`, because only it needs the headers and the library of RocksDB.

mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use support::shell::Line;
use support::{needs, workspace};

use crate::accept::volume::{Volume, number};
use crate::measured::Measured;
use crate::peer::{Kind, Peer};
use crate::{bench, marked};

/// `cargo system ycsb [--quick]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Small databases for a moment; does not change the page.
    #[arg(long)]
    quick: bool,
    /// Determines the requested records.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The workloads, in this order, with the driver's names: whether each write is made durable, and the kinds of
/// operations. Workloads that add records come last.
const WORKLOADS: [Workload; 8] = [
    Workload { name: "load", is_synced: false, kinds: &["insert"] },
    Workload { name: "a", is_synced: false, kinds: &["read", "update"] },
    Workload { name: "b", is_synced: false, kinds: &["read", "update"] },
    Workload { name: "c", is_synced: false, kinds: &["read"] },
    Workload { name: "f", is_synced: false, kinds: &["read", "read-modify-write"] },
    Workload { name: "a", is_synced: true, kinds: &["read", "update"] },
    Workload { name: "d", is_synced: false, kinds: &["read", "insert"] },
    Workload { name: "e", is_synced: false, kinds: &["scan", "insert"] },
];

struct Workload {
    name: &'static str,
    is_synced: bool,
    kinds: &'static [&'static str],
}

impl Workload {
    /// The name of its figures.
    fn title(&self) -> String {
        format!("{}{}", self.name, if self.is_synced { " synced" } else { "" })
    }
}

struct Scale {
    rounds: u64,
    bytes: u64,
    records: u64,
    operations: u64,
    /// For workloads with long operations: scans, and synced writes.
    long_operations: u64,
}

const QUICK: Scale =
    Scale { rounds: 1, bytes: 512 << 20, records: 100_000, operations: 5_000, long_operations: 500 };
const FULL: Scale =
    Scale { rounds: 3, bytes: 1536 << 20, records: 800_000, operations: 200_000, long_operations: 10_000 };

impl Scale {
    fn operations_of(&self, workload: &Workload) -> u64 {
        match workload.name {
            "load" => self.records,
            "e" => self.long_operations,
            _ if workload.is_synced => self.long_operations,
            _ => self.operations,
        }
    }
}

/// Runs everything, prints the tables, and writes the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    let scale = if args.quick { QUICK } else { FULL };
    if !args.quick {
        marked::check(marked::PERFORMANCE, "ycsb")?;
    }
    let driver = build_driver()?;
    let measured = measure(&driver, &scale, args.seed)?;
    let table = table::of(&measured, &scale, &bench::machine()?)?;
    println!("\n{table}");
    if args.quick { Ok(()) } else { marked::write(marked::PERFORMANCE, "ycsb", &table) }
}

/// Tests and builds the driver.
fn build_driver() -> Result<PathBuf> {
    needs::require(&needs::YCSB)?;
    let folder = workspace::target_dir()?.join("ycsb");
    let cargo = |words: &str| {
        let line = Line::new(words).arg("--target-dir").arg(&folder).in_dir(&workspace::root().join("ycsb"));
        // Directories that the linker searches by default. Without these variables the library would be built from
        // its sources.
        line.env("ROCKSDB_LIB_DIR", "/usr/lib").env("ROCKSDB_INCLUDE_DIR", "/usr/include")
    };
    cargo("cargo test --release --locked").run()?;
    cargo("cargo build --release --locked").run()?;
    Ok(folder.join("release/polder-ycsb"))
}

fn measure(driver: &Path, scale: &Scale, seed: u64) -> Result<Measured> {
    let folder = tempfile::Builder::new().prefix("ycsb-").tempdir_in(workspace::target_dir()?)?;
    let volume = Volume::make(&["--size", &scale.bytes.to_string()], &[])?;
    volume.mount()?;
    println!("geometry: {}", volume.geometry()?);
    let peer = |kind: Kind| Peer::make(kind, kind.name(), folder.path(), scale.bytes).map(Place::Peer);
    let mut places = vec![Place::Polder(volume), peer(Kind::Ext4)?, peer(Kind::Xfs)?];
    let mut measured = Measured::default();
    for round in 0..scale.rounds {
        for workload in &WORKLOADS {
            for place in &places {
                let operations = scale.operations_of(workload);
                place.run(driver, workload, operations, seed + round, &mut measured)?;
            }
        }
        places.iter().try_for_each(Place::clear)?;
        // The places take turns at being first.
        places.rotate_left(1);
    }
    for place in places {
        place.end()?;
    }
    Ok(measured)
}

/// The file system of a database.
enum Place {
    Polder(Volume),
    Peer(Peer),
}

impl Place {
    fn name(&self) -> &'static str {
        match self {
            Place::Polder(_) => table::OURS,
            Place::Peer(peer) => peer.kind.name(),
        }
    }

    fn database(&self) -> PathBuf {
        match self {
            Place::Polder(volume) => volume.dir(),
            Place::Peer(peer) => peer.dir().to_owned(),
        }
        .join("database")
    }

    fn run(
        &self,
        driver: &Path,
        workload: &Workload,
        operations: u64,
        seed: u64,
        measured: &mut Measured,
    ) -> Result<()> {
        let before = self.counts()?;
        let line = Line::program(driver).arg("--db").arg(self.database()).args(["--place", self.name()]);
        let line = line.args(["--workload", workload.name, "--operations", &operations.to_string()]);
        let line = line.args(["--seed", &seed.to_string()]);
        let line = if workload.is_synced { line.arg("--sync") } else { line };
        println!("{line}");
        line.run_watched(|line| measured.read(line))?;
        for ((cause, before), (_, after)) in before.iter().zip(self.counts()?) {
            let what = format!("{} {} {cause}", self.name(), workload.title());
            measured.add(&what, (after - before) as f64);
        }
        Ok(())
    }

    /// Bytes written to the device, in total and by known causes, once caches are flushed.
    fn counts(&self) -> Result<Vec<(&'static str, u64)>> {
        match self {
            Place::Polder(volume) => {
                // The kernel sends no request to the daemon for this. The fsync of a directory does.
                Line::new("sync --file-system").arg(volume.dir()).run()?;
                Line::new("sync").arg(volume.dir()).run()?;
                let stats = volume.stats()?;
                let count = |path: &str| number(&stats, &format!("/written/{path}"));
                Ok(vec![
                    (table::DEVICE, count("device_bytes")?),
                    (table::DATA, count("device_bytes_by_cause/data")?),
                    (table::COLLECTION, count("device_bytes_by_cause/gc")?),
                ])
            }
            Place::Peer(peer) => {
                Line::new("sync --file-system").arg(peer.dir()).run()?;
                Ok(vec![(table::DEVICE, peer.device_bytes()?)])
            }
        }
    }

    fn clear(&self) -> Result<()> {
        let database = self.database();
        std::fs::remove_dir_all(&database).with_context(|| database.display().to_string())
    }

    fn end(self) -> Result<()> {
        match self {
            Place::Polder(volume) => {
                volume.unmount()?;
                volume.check_data()
            }
            Place::Peer(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

//! `polder-space`: runs one cell of the space page (`cargo xtask space`), and prints it as JSON.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use fs::Reserve;
use polder_space::beside::Beside;
use polder_space::cell::Cell;
use polder_space::many::Many;
use polder_space::pieces::Pieces;
use polder_space::trace::{BLOCK, Workload};
use polder_space::usable::Usable;
use polder_space::volume::{Medium, Shape, Switches};

/// Runs a workload on a volume in memory and on an ideal garbage collector, and prints one line of JSON.
#[derive(Parser)]
#[command(name = "polder-space", args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// small-files, large-files, uniform, zipf, rocksdb, mix or spool.
    #[arg(long, required = true)]
    workload: Option<Workload>,
    /// Fill level, in percent of the space available on the empty volume.
    #[arg(long, default_value_t = 80)]
    fill: u64,
    /// Zones of the device.
    #[arg(long, default_value_t = 256)]
    zones: u32,
    /// MiB of a zone.
    #[arg(long, default_value_t = 16)]
    zone_mib: u64,
    /// The device model.
    #[arg(long, default_value = "ssd")]
    medium: Medium,
    /// Make files durable when they are closed, and every 64 writes where none is closed.
    #[arg(long)]
    fsync: bool,
    /// Pass the program's lifetime hints to the volume.
    #[arg(long)]
    hints: bool,
    /// Switch something off: ages (victims are ranked by how fast zones like them lose live blocks); file-classes
    /// (lifetimes of file classes); overwrite-history (lifetimes from the last life of overwritten blocks); or learning
    /// (all three). May be given several times.
    #[arg(long)]
    off: Vec<Off>,
    /// Bytes written before the measurement, in percent of the bytes in files.
    #[arg(long, default_value_t = 200)]
    warm: u64,
    /// Bytes written during the measurement, in percent of the bytes in files.
    #[arg(long, default_value_t = 100)]
    measure: u64,
    /// Run the checker at the end.
    #[arg(long)]
    check: bool,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Fills a volume with its available space, overwrites it while it is full, empties it, and compares the reported
    /// space with the bytes written.
    Usable(UsableOptions),
    /// Fills many zones of a disk with shingled tracks, stores only the metadata, and reports the costs of many
    /// zones: mounts, memory, choosing victims, deleting.
    Many(ManyOptions),
    /// Writes files in pieces, in turn, deletes some, runs GC, and reports the fragments of one file and the cost of
    /// reading it, compared with a file that was written alone.
    Pieces(PiecesOptions),
    /// Runs a writer at full speed, a reader, and a client that writes a little and calls fsync, each with files of
    /// its own. Reports the latencies of the latter two, with the writer and without it.
    Beside(BesideOptions),
}

#[derive(clap::Args)]
struct BesideOptions {
    /// The workload of the writer.
    #[arg(long, default_value = "small-files")]
    workload: Workload,
    /// Fill level, in percent of the space available on the empty volume. Several values, also separated by commas,
    /// give a line each.
    #[arg(long, value_delimiter = ',', default_value = "10,90,95")]
    fill: Vec<u64>,
    /// Zones of the device.
    #[arg(long, default_value_t = 64)]
    zones: u32,
    /// MiB of a zone.
    #[arg(long, default_value_t = 64)]
    zone_mib: u64,
    /// The device model.
    #[arg(long, default_value = "ssd")]
    medium: Medium,
    /// Bytes written before the measurement, in percent of the bytes in files.
    #[arg(long, default_value_t = 100)]
    warm: u64,
    /// Duration of each measurement, with and without the writer, in device time.
    #[arg(long, default_value_t = 40_000)]
    milliseconds: u64,
    /// Run the checker at the end.
    #[arg(long)]
    check: bool,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct PiecesOptions {
    /// Zones of the device.
    #[arg(long, default_value_t = 64)]
    zones: u32,
    /// MiB of a zone.
    #[arg(long, default_value_t = 16)]
    zone_mib: u64,
    /// Blocks of each file.
    #[arg(long, default_value_t = 1000)]
    pieces: u64,
    /// Files in addition to the one that is measured.
    #[arg(long, default_value_t = 100)]
    others: u32,
    /// Those of them that are deleted.
    #[arg(long, default_value_t = 50)]
    deleted: u32,
    /// Determines the order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct ManyOptions {
    /// Zones of the device.
    #[arg(long, default_value_t = 100_000)]
    zones: u32,
    /// MiB of a zone.
    #[arg(long, default_value_t = 256)]
    zone_mib: u64,
    /// Zones that are filled.
    #[arg(long, default_value_t = 1000)]
    used: u32,
    /// Determines what is overwritten.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct UsableOptions {
    /// Zones of the device.
    #[arg(long, default_value_t = 32)]
    zones: u32,
    /// MiB of a zone.
    #[arg(long, default_value_t = 2048)]
    zone_mib: u64,
    /// Bytes of a block.
    #[arg(long, default_value_t = BLOCK)]
    block: u64,
    /// Percent of the device that data never gets; 0: as little as possible.
    #[arg(long, default_value_t = 0.0)]
    reserve: f64,
    /// Bytes overwritten while the volume is full, in thousandths of the available space.
    #[arg(long, default_value_t = 50)]
    churn: u64,
    /// Determines what is overwritten.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Off {
    Ages,
    FileClasses,
    OverwriteHistory,
    Learning,
}

impl Options {
    fn switches(&self) -> extent::Switches {
        let is_on = |switch: Off| !self.off.contains(&switch);
        let learned = |switch: Off| is_on(switch) && is_on(Off::Learning);
        extent::Switches {
            ages: learned(Off::Ages),
            file_classes: learned(Off::FileClasses),
            overwrite_history: learned(Off::OverwriteHistory),
        }
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn beside(options: &BesideOptions) -> Result<()> {
    let BesideOptions { workload, medium, milliseconds, seed, check, .. } = *options;
    let shape = Shape::new(options.zones, options.zone_mib << 20);
    for &fill_percent in &options.fill {
        ensure!((1..=100).contains(&fill_percent), "--fill is a percentage from 1 to 100");
        let warm_percent = options.warm;
        let beside =
            Beside { workload, fill_percent, shape, medium, warm_percent, milliseconds, seed, check };
        println!("{}", serde_json::to_string(&beside.run()?)?);
    }
    Ok(())
}

fn usable(options: &UsableOptions) -> Result<()> {
    let reserve = Reserve((options.reserve * 100.0) as u32);
    let usable = Usable {
        shape: Shape { block_bytes: options.block, ..Shape::new(options.zones, options.zone_mib << 20) },
        reserve,
        churn_permille: options.churn,
        seed: options.seed,
    };
    println!("{}", serde_json::to_string(&usable.run()?)?);
    Ok(())
}

fn run(options: &Options) -> Result<()> {
    match &options.other {
        Some(Other::Usable(options)) => return usable(options),
        Some(Other::Many(options)) => {
            let shape = Shape::new(options.zones, options.zone_mib << 20);
            let many = Many { shape, used: options.used, seed: options.seed };
            println!("{}", serde_json::to_string(&many.run()?)?);
            return Ok(());
        }
        Some(Other::Pieces(options)) => {
            let PiecesOptions { pieces, others, deleted, seed, .. } = *options;
            let shape = Shape::new(options.zones, options.zone_mib << 20);
            let pieces = Pieces { shape, pieces, others, deleted, seed };
            println!("{}", serde_json::to_string(&pieces.run()?)?);
            return Ok(());
        }
        Some(Other::Beside(options)) => return beside(options),
        None => {}
    }
    ensure!((1..=100).contains(&options.fill), "--fill is a percentage from 1 to 100");
    ensure!(options.measure >= 1, "--measure is at least 1");
    let cell = Cell {
        workload: options.workload.context("--workload is required")?,
        fill_percent: options.fill,
        shape: Shape::new(options.zones, options.zone_mib << 20),
        medium: options.medium,
        switches: Switches { fsync: options.fsync, hints: options.hints, of_volume: options.switches() },
        seed: options.seed,
        warm_percent: options.warm,
        measure_percent: options.measure,
        check: options.check,
    };
    let row = cell.run()?;
    row.verify()?;
    println!("{}", serde_json::to_string(&row)?);
    Ok(())
}

//! `polder-space`: runs one cell of the table that `cargo xtask space` makes, and prints it as JSON.
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

/// Runs a workload on a volume in memory and beside it an ideal cleaner; prints one line of JSON.
#[derive(Parser)]
#[command(name = "polder-space", args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// small-files, large-files, uniform, zipf, rocksdb, mix or spool.
    #[arg(long, required = true)]
    workload: Option<Workload>,
    /// How full, in percent of what the empty volume offers.
    #[arg(long, default_value_t = 80)]
    fill: u64,
    /// Zones of the device.
    #[arg(long, default_value_t = 256)]
    zones: u32,
    /// MiB of a zone.
    #[arg(long, default_value_t = 16)]
    zone_mib: u64,
    /// What the device is.
    #[arg(long, default_value = "ssd")]
    medium: Medium,
    /// Make files durable when they are closed, and every 64 writes where none is.
    #[arg(long)]
    fsync: bool,
    /// Tell the volume what the program knows of lifetimes.
    #[arg(long)]
    hints: bool,
    /// Switch something off: by-file (large files have zones of their own) or learning (of lifetimes). More than
    /// once for both.
    #[arg(long)]
    off: Vec<Off>,
    /// Bytes written before it is measured, in percent of what is in files.
    #[arg(long, default_value_t = 200)]
    warm: u64,
    /// Bytes written while it is measured, in percent of what is in files.
    #[arg(long, default_value_t = 100)]
    measure: u64,
    /// Let the checker look at the end.
    #[arg(long)]
    check: bool,
    /// Decides everything that is left open.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Fills a volume with what it offers, writes over it while it is full, empties it, and compares what it says
    /// of its space with what was done.
    Usable(UsableOptions),
    /// Writes many zones of a disk of shingled tracks, of which metadata alone is kept, and tells what their number
    /// costs: mounts, memory, choosing what to empty, deleting.
    Many(ManyOptions),
    /// Writes files in pieces, in turn, deletes some, collects garbage, and tells in how many pieces one of them lies
    /// and what reading it takes, beside one that was written alone.
    Pieces(PiecesOptions),
    /// Lets one write as fast as he can, another read and a third write a little and fsync, each files of his own, and
    /// tells how long they waited, beside him and without him.
    Beside(BesideOptions),
}

#[derive(clap::Args)]
struct BesideOptions {
    /// What the writer does.
    #[arg(long, default_value = "small-files")]
    workload: Workload,
    /// How full, in percent of what the empty volume offers. More than once, or with commas: a line for each.
    #[arg(long, value_delimiter = ',', default_value = "10,90,95")]
    fill: Vec<u64>,
    /// Zones of the device.
    #[arg(long, default_value_t = 64)]
    zones: u32,
    /// MiB of a zone.
    #[arg(long, default_value_t = 64)]
    zone_mib: u64,
    /// What the device is.
    #[arg(long, default_value = "ssd")]
    medium: Medium,
    /// Bytes written before it is measured, in percent of what is in files.
    #[arg(long, default_value_t = 100)]
    warm: u64,
    /// How long it is measured, in time of the device: beside him, and without him.
    #[arg(long, default_value_t = 40_000)]
    milliseconds: u64,
    /// Let the checker look at the end.
    #[arg(long)]
    check: bool,
    /// Decides everything that is left open.
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
    /// Files beside the one that is looked at.
    #[arg(long, default_value_t = 100)]
    others: u32,
    /// Those of them that are deleted.
    #[arg(long, default_value_t = 50)]
    deleted: u32,
    /// Decides the order.
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
    /// Decides what is written over.
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
    /// Percent of the device that data never has; 0: as little as possible.
    #[arg(long, default_value_t = 0.0)]
    reserve: f64,
    /// Bytes written over while it is full, in thousandths of what is offered.
    #[arg(long, default_value_t = 50)]
    churn: u64,
    /// Decides what is written over.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Off {
    ByFile,
    Learning,
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
        workload: options.workload.context("--workload says what to run")?,
        fill_percent: options.fill,
        shape: Shape::new(options.zones, options.zone_mib << 20),
        medium: options.medium,
        switches: Switches {
            fsync: options.fsync,
            hints: options.hints,
            by_file: !options.off.contains(&Off::ByFile),
            learning: !options.off.contains(&Off::Learning),
        },
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

//! The commands that measure: `polder-sim names`, `polder-sim turns`, `polder-sim transfer`,
//! `polder-sim amplification` and `polder-sim extents`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use polder_sim::speed::data::{self, Turn};
use polder_sim::speed::extents;
use polder_sim::speed::names::{self, Measured, Tree};
use polder_sim::speed::{Directory, Library, Named, Place, Raw, Zones};
use rt::SystemClock;

#[derive(Clone, Copy, ValueEnum)]
enum Stage {
    /// Create the trees.
    Make,
    /// Look up, list and unlink in trees that were created before, with the same other arguments.
    Visit,
}

#[derive(Args)]
pub(crate) struct Names {
    /// The stage to run.
    #[arg(long)]
    stage: Stage,
    /// A volume's file, used through the library, and how many files. May be given several times.
    #[arg(long, value_name = "NAME=PATH@FILES")]
    library: Vec<Planned>,
    /// An empty directory, used through system calls, and how many files. May be given several times.
    #[arg(long, value_name = "NAME=PATH@FILES")]
    directory: Vec<Planned>,
    /// Directories of each tree.
    #[arg(long, default_value_t = 1)]
    directories: u64,
    /// How many turns each tree gets.
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// The library's memory for metadata, in MiB (default: that of a mount).
    #[arg(long, default_value_t = 128)]
    cache: u64,
}

/// `NAME=PATH@FILES`.
#[derive(Clone)]
struct Planned {
    name: String,
    path: PathBuf,
    files: u64,
}

impl FromStr for Planned {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once('=').context("it has to be NAME=PATH@FILES")?;
        let (path, files) = rest.rsplit_once('@').context("it has to be NAME=PATH@FILES")?;
        Ok(Planned { name: name.to_owned(), path: PathBuf::from(path), files: files.parse()? })
    }
}

/// `NAME=PATH`.
#[derive(Clone)]
struct Located {
    name: String,
    path: PathBuf,
}

impl FromStr for Located {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, path) = text.split_once('=').context("it has to be NAME=PATH")?;
        Ok(Located { name: name.to_owned(), path: PathBuf::from(path) })
    }
}

#[derive(Args)]
pub(crate) struct Turns {
    /// A volume's file, used through the library.
    #[arg(long, value_name = "NAME=PATH")]
    library: Vec<Located>,
    /// An empty directory, used through system calls, with direct I/O. May be given several times.
    #[arg(long, value_name = "NAME=PATH")]
    directory: Vec<Located>,
    /// A folder whose files stand for the device, with direct I/O.
    #[arg(long, value_name = "NAME=PATH")]
    raw: Vec<Located>,
    /// How many turns each place gets.
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// MiB of the file that is written and read.
    #[arg(long, default_value_t = 64)]
    file: u64,
    /// Small reads, and small writes, in a turn.
    #[arg(long, default_value_t = 8192)]
    small: u64,
    /// Small writes in a turn, each made durable.
    #[arg(long, default_value_t = 256)]
    synced: u64,
    /// Files created, looked up and removed in a turn.
    #[arg(long, default_value_t = 4000)]
    names: u64,
    /// The library's memory for metadata, in MiB (default: that of a mount).
    #[arg(long, default_value_t = 128)]
    cache: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum TransferStage {
    /// Write from start to end, after resetting the zones.
    Write,
    /// Read the written bytes.
    Read,
    /// Read blocks of them at random.
    ReadSmall,
}

#[derive(Args)]
pub(crate) struct Transfer {
    /// The transfer to measure.
    #[arg(long)]
    stage: TransferStage,
    /// A zoned device, whose zones are used one after the other. Its contents are lost.
    #[arg(long, conflicts_with = "directory", required_unless_present = "directory")]
    zones: Option<PathBuf>,
    /// A directory, used through system calls with direct I/O.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// MiB to write and read.
    #[arg(long, default_value_t = 64)]
    file: u64,
    /// Small reads.
    #[arg(long, default_value_t = 8192)]
    small: u64,
}

#[derive(Args)]
pub(crate) struct Amplification {
    /// A volume's file, used through the library.
    volume: PathBuf,
    /// Memory for metadata, in MiB.
    #[arg(long, default_value_t = 4)]
    cache: u64,
    /// Files of 1 KiB.
    #[arg(long, default_value_t = 75_000)]
    files: u64,
    /// How many more files are created, and how many of them are overwritten and removed.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// The least size of the tree, as a multiple of the cache.
    #[arg(long, default_value_t = 20)]
    times: u64,
    /// Determines which files are overwritten and removed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum ExtentsStage {
    /// Write the file.
    Make,
    /// Read it and compare.
    Compare,
    /// Delete it.
    Remove,
}

#[derive(Args)]
pub(crate) struct Extents {
    /// The stage to run.
    #[arg(long)]
    stage: ExtentsStage,
    /// A volume's file, used through the library.
    #[arg(long, conflicts_with = "directory", required_unless_present = "directory")]
    library: Option<PathBuf>,
    /// A directory, used through system calls with direct I/O.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// The number of extents.
    #[arg(long, default_value_t = 20_000)]
    extents: u64,
    /// The library's memory for metadata, in MiB (default: that of a mount).
    #[arg(long, default_value_t = 128)]
    cache: u64,
}

/// Measures names in small and large trees.
pub(crate) fn names(options: &Names) -> Result<()> {
    let cache_bytes = options.cache << 20;
    let tree = |planned: &Planned, place: Box<dyn Place>| Tree {
        named: Named { name: planned.name.clone(), place },
        files: planned.files,
        directories: options.directories,
    };
    let mut trees = Vec::new();
    for planned in &options.library {
        trees.push(tree(planned, library(&planned.path, cache_bytes)?));
    }
    for planned in &options.directory {
        trees.push(tree(planned, directory(&planned.path, false)?));
    }
    let stage = match options.stage {
        Stage::Make => names::make,
        Stage::Visit => names::visit,
    };
    stage(&trees, options.rounds, &SystemClock::new(), &mut show).map_err(|wrong| anyhow!(wrong))?;
    for tree in &trees {
        let statistics = tree.named.place.statistics().unwrap_or_default();
        println!("{} with {} files: {statistics}", tree.named.name, tree.files);
    }
    Ok(())
}

fn library(path: &Path, cache_bytes: u64) -> Result<Box<dyn Place>> {
    Ok(Box::new(Library::open(path, cache_bytes).map_err(|wrong| anyhow!(wrong))?))
}

fn directory(path: &Path, direct: bool) -> Result<Box<dyn Place>> {
    Ok(Box::new(Directory::open(path, direct).map_err(|wrong| anyhow!(wrong))?))
}

fn show(measured: Measured<'_>) {
    let Measured { place, files, operation, rate } = measured;
    println!("measured {place}@{files} {operation}: {rate:.1}");
}

/// Measures bytes and single operations.
pub(crate) fn turns(options: &Turns) -> Result<()> {
    let named = |located: &Located, place: Box<dyn Place>| Named { name: located.name.clone(), place };
    let mut places = Vec::new();
    for located in &options.raw {
        places.push(named(located, Box::new(Raw::new(&located.path))));
    }
    for located in &options.library {
        places.push(named(located, library(&located.path, options.cache << 20)?));
    }
    for located in &options.directory {
        places.push(named(located, directory(&located.path, true)?));
    }
    let turn = Turn {
        file_bytes: options.file << 20,
        small: options.small,
        synced: options.synced,
        names: options.names,
    };
    let mut show = |measured: data::Measured<'_>| {
        println!("measured {} {}: {:.1}", measured.place, measured.operation, measured.rate);
    };
    data::run(&places, &turn, options.rounds, &SystemClock::new(), &mut show).map_err(|wrong| anyhow!(wrong))
}

/// Measures one transfer in one place, so that the caller can count device commands in between.
pub(crate) fn transfer(options: &Transfer) -> Result<()> {
    let (what, unit) = match options.stage {
        TransferStage::Write => (data::Transfer::Write, "MiB"),
        TransferStage::Read => (data::Transfer::Read, "MiB"),
        TransferStage::ReadSmall => (data::Transfer::ReadSmall, "small reads"),
    };
    let place = match (&options.zones, &options.directory) {
        (Some(path), _) if what == data::Transfer::Write => Zones::make(path).map(boxed),
        (Some(path), _) => Zones::open(path).map(boxed),
        (None, Some(path)) => Directory::open(path, true).map(boxed),
        (None, None) => return Err(anyhow!("name --zones or a --directory")),
    };
    let place = place.map_err(|wrong| anyhow!(wrong))?;
    let turn = Turn { file_bytes: options.file << 20, small: options.small, synced: 0, names: 0 };
    let rate = data::transfer(&*place, what, &turn, &SystemClock::new()).map_err(|wrong| anyhow!(wrong))?;
    println!("measured {unit} a second: {rate:.1}");
    Ok(())
}

fn boxed(place: impl Place + 'static) -> Box<dyn Place> {
    Box::new(place)
}

/// Measures metadata written for each operation.
pub(crate) fn amplification(options: &Amplification) -> Result<()> {
    let place = library(&options.volume, options.cache << 20)?;
    let found = data::amplification(&*place, options.files, options.operations, options.seed)
        .map_err(|wrong| anyhow!(wrong))?;
    let cache = options.cache << 20;
    println!("{} bytes of metadata, {:.1} times the cache", found.tree, found.tree as f64 / cache as f64);
    ensure!(found.tree >= options.times * cache, "that is less than {} times the cache", options.times);
    println!("measured metadata create: {:.1}", found.create);
    println!("measured metadata overwrite: {:.1}", found.overwrite);
    println!("measured metadata unlink: {:.1}", found.unlink);
    println!("{}", place.statistics().unwrap_or_default());
    Ok(())
}

/// Writes, compares or deletes a file of very many extents.
pub(crate) fn extents(options: &Extents) -> Result<()> {
    let place = match (&options.library, &options.directory) {
        (Some(path), _) => library(path, options.cache << 20)?,
        (None, Some(path)) => directory(path, true)?,
        (None, None) => return Err(anyhow!("name a --library or a --directory")),
    };
    let clock = SystemClock::new();
    let (what, rate) = match options.stage {
        ExtentsStage::Make => ("written", extents::make(&*place, options.extents, &clock)),
        ExtentsStage::Compare => ("compared", extents::compare(&*place, options.extents, &clock)),
        ExtentsStage::Remove => {
            return extents::remove(&*place).map_err(|wrong| anyhow!(wrong));
        }
    };
    let rate = rate.map_err(|wrong| anyhow!(wrong))?;
    println!("counted extents {what}: {}", options.extents);
    println!("{rate:.0} a second");
    Ok(())
}

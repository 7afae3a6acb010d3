//! The commands that run a file system for long: `polder-sim fill`, `polder-sim endure` and `polder-sim churn`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use emulated::Spec;
use polder_sim::caught::Wrong;
use polder_sim::long::{self, Asked, Directory, Endured, Filled, Library, Setup, Way};
use zone::Cause;

/// Eighths of the available space that a large file takes beside small ones.
const BESIDE: u64 = 7;

#[derive(Args)]
pub(crate) struct Device {
    /// Zones of the emulated device. May be given several times.
    #[arg(long, default_values_t = [16])]
    zones: Vec<u32>,
    /// Blocks of a zone.
    #[arg(long, default_value_t = 1024)]
    zone_blocks: u32,
    /// Bytes of a block.
    #[arg(long, default_value_t = 4096)]
    block_size: u32,
    /// Zones that may be active.
    #[arg(long, default_value_t = 14)]
    active: u32,
    /// Memory for metadata, in MiB.
    #[arg(long, default_value_t = 64)]
    cache: u64,
    /// Hundredths of a percent of the device that data never gets; 0: the default, 1: as few as possible.
    #[arg(long, default_value_t = 0)]
    reserve: u32,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
pub(crate) struct Fill {
    #[command(flatten)]
    device: Device,
    /// Run in this empty directory of a mounted file system instead.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// A shell command that verifies that file system.
    #[arg(long, requires = "directory")]
    verify: Option<String>,
    /// How many times the full volume is overwritten.
    #[arg(long, default_value_t = 2)]
    times: u64,
    /// Fill with files with inline data, alone and beside a large file, instead of one large file.
    #[arg(long)]
    small_files: bool,
}

#[derive(Args)]
pub(crate) struct Endure {
    #[command(flatten)]
    device: Device,
    /// Run in this empty directory of a mounted file system instead.
    #[arg(long, requires = "capacity")]
    directory: Option<PathBuf>,
    /// A shell command that verifies that file system.
    #[arg(long, requires = "directory")]
    verify: Option<String>,
    /// The capacity: the bytes of its device.
    #[arg(long, value_name = "BYTES", requires = "directory")]
    capacity: Option<u64>,
    /// The fill level, in percent of the space available on the empty volume.
    #[arg(long, default_value_t = 80)]
    percent: u64,
    /// How many times the capacity is written.
    #[arg(long, default_value_t = 10)]
    times: u64,
    /// Fill the volume to the last block now and then, check that more is refused, and continue.
    #[arg(long, conflicts_with = "directory")]
    fill_up: bool,
}

#[derive(Args)]
pub(crate) struct Churn {
    /// An empty directory of a mounted file system.
    directory: PathBuf,
    /// MiB that files have all the time.
    #[arg(long)]
    level: u64,
    /// MiB to write after that level was reached.
    #[arg(long)]
    write: u64,
    /// A shell command to run when the level is reached.
    #[arg(long)]
    reached: String,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Device {
    fn library(&self, zones: u32) -> Result<Library> {
        let spec = Spec::new(self.block_size, zones, self.zone_blocks).limits(self.active, self.active);
        Library::new(Setup::usual(spec, fs::Reserve(self.reserve), self.cache << 20, self.seed))
            .map_err(|wrong| anyhow!("{wrong}"))
    }
}

/// Fills a volume of each size.
pub(crate) fn fill(options: &Fill) -> Result<()> {
    let device = &options.device;
    let block_size = u64::from(device.block_size);
    if let Some(directory) = &options.directory {
        let place = &mut in_directory(directory, options.verify.as_deref())?;
        let filled = match options.small_files {
            true => long::fill_small(place, block_size, BESIDE, device.seed),
            false => long::fill(place, &Way::usual(block_size, options.times), device.seed),
        };
        print_filled(&filled.map_err(|wrong| anyhow!("{wrong}"))?, options);
        return Ok(());
    }
    for &zones in &device.zones {
        let beside: &[u64] = if options.small_files { &[0, BESIDE] } else { &[0] };
        for &eighths in beside {
            fill_library(options, zones, eighths).map_err(|wrong| anyhow!("{zones} zones: {wrong}"))?;
        }
    }
    Ok(())
}

fn fill_library(options: &Fill, zones: u32, eighths: u64) -> Result<()> {
    let device = &options.device;
    let block_size = u64::from(device.block_size);
    let mut library = device.library(zones)?;
    let filled = match options.small_files {
        true => long::fill_small(&mut library, block_size, eighths, device.seed),
        false => long::fill(&mut library, &Way::usual(block_size, options.times), device.seed),
    };
    let filled = filled.map_err(|wrong| anyhow!("{wrong}"))?;
    library.remount().map_err(|wrong| anyhow!("{wrong}"))?;
    println!(
        "{zones} zones of {} blocks of {block_size}: {} of {} bytes offered",
        device.zone_blocks,
        filled.offered,
        library.device_bytes()
    );
    if options.small_files {
        println!("{} small files beside a file of {eighths} eighths", filled.small);
    }
    print_filled(&filled, options);
    Ok(())
}

fn print_filled(filled: &Filled, options: &Fill) {
    // One large file fills the volume twice.
    let exactly = if options.small_files { 0 } else { 2 * filled.offered };
    println!("counted bytes offered and written: {exactly}");
    println!("counted small files made and deleted: {}", filled.small);
    println!("counted bytes written over: {}", filled.overwritten);
    println!("counted bytes compared: {}", filled.compared);
}

/// Runs a volume of each size, or a directory.
pub(crate) fn endure(options: &Endure) -> Result<()> {
    if let (Some(directory), Some(capacity)) = (&options.directory, options.capacity) {
        return endure_in(directory, capacity, options);
    }
    for &zones in &options.device.zones {
        let mut library = options.device.library(zones)?;
        let asked = options.asked(library.device_bytes());
        let endured =
            long::endure(&mut library, &asked).map_err(|wrong| anyhow!("{zones} zones: {wrong}"))?;
        let traffic = Arc::clone(library.fs.store().traffic());
        library.remount().map_err(|wrong| anyhow!("{zones} zones: {wrong}"))?;
        println!(
            "{zones} zones of {} blocks, {} active, {} times the {} bytes of the device, at {} % of the {} bytes \
             offered:",
            options.device.zone_blocks,
            options.device.active,
            options.times,
            library.device_bytes(),
            options.percent,
            endured.offered
        );
        print_endured(&endured);
        let written = (endured.written + endured.filled) as f64;
        for cause in Cause::ALL {
            let share = traffic.bytes_written(cause) as f64 / written;
            println!("  device bytes per byte written, {}: {share:.3}", cause.name());
        }
        let all = traffic.bytes_written_total() as f64 / written;
        println!("  write amplification: {all:.3}");
    }
    Ok(())
}

impl Endure {
    fn asked(&self, capacity: u64) -> Asked {
        let Endure { percent, times, fill_up, .. } = *self;
        Asked { percent, total: capacity * times, seed: self.device.seed, fill_up }
    }
}

fn endure_in(directory: &Path, capacity: u64, options: &Endure) -> Result<()> {
    let mut place = in_directory(directory, options.verify.as_deref())?;
    let endured = long::endure(&mut place, &options.asked(capacity)).map_err(|wrong| anyhow!("{wrong}"))?;
    println!(
        "{} times the {capacity} bytes of the device, at {} % of the {} bytes offered:",
        options.times, options.percent, endured.offered
    );
    print_endured(&endured);
    Ok(())
}

/// Does the same as `endure` in any file system, which may refuse operations, and reports how far it came.
pub(crate) fn churn(options: &Churn) -> Result<()> {
    let mut place = in_directory(&options.directory, None)?;
    let mut reached = || run_command(&options.reached).map_err(Wrong);
    let churned =
        long::churn(&mut place, options.level << 20, options.write << 20, options.seed, &mut reached)
            .map_err(|wrong| anyhow!("{wrong}"))?;
    println!("counted bytes written until it was full: {}", churned.filling);
    println!("counted bytes written then: {}", churned.churning);
    match churned.refused {
        Some(refused) => println!("refused: {refused}"),
        None => println!("completed"),
    }
    Ok(())
}

/// A directory of a mounted file system, its available space, and a command to verify it.
fn in_directory(directory: &Path, verify: Option<&str>) -> Result<Directory> {
    let asked = directory.to_owned();
    let available = move || match rustix::fs::statvfs(&asked) {
        Ok(space) => Ok(space.f_bavail * space.f_frsize),
        Err(errno) => Err(format!("{}: {errno}", asked.display())),
    };
    let command = verify.map(str::to_owned);
    let verify = move || command.as_deref().map_or(Ok(()), run_command);
    Directory::new(directory.to_owned(), Box::new(available), Box::new(verify))
        .context("the directory must be empty")
}

fn run_command(command: &str) -> Result<(), String> {
    let ran = std::process::Command::new("sh").args(["-c", command]).output();
    let output = ran.map_err(|error| format!("sh: {error}"))?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let complaint = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command}: {}: {complaint}", output.status)) }
}

fn print_endured(endured: &Endured) {
    println!(
        "  full, in percent of that: {}.{} on average since it was reached, {}.{} at least",
        endured.full_permille / 10,
        endured.full_permille % 10,
        endured.least_permille / 10,
        endured.least_permille % 10
    );
    println!("counted bytes written: {}", endured.written);
    println!("counted operations: {}", endured.operations);
    println!("counted bytes compared: {}", endured.compared);
    println!("counted files at the end: {}", endured.files);
    println!("counted times filled to the last block: {}", endured.fill_ups);
    println!("counted bytes written for that: {}", endured.filled);
    println!("counted writes refused for want of space: {}", endured.refused);
}

//! `cargo system vm`: runs Polder on zoned devices, in a guest that has them.
//!
//! The guest is a packaged kernel on an emulated machine. It contains only a shell, Polder and its tests: no network,
//! and no disks except the test devices. It reports on its console; the last line is the verdict. A message that the
//! kernel logs as an error is a failure too.
//!
//! The suites test behaviour, never time. Suites with figures write a table of `docs/results/performance.md`.

mod counts;
mod emulator;
mod guest;
mod image;
mod kernel;
mod peers;
mod suite;
mod table;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use support::{busybox, needs, workspace};

use crate::marked;
use emulator::Emulator;
use guest::Run;
use suite::{SUITES, Suite};

/// `cargo system vm [SUITE...]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The suites to run, in this order (default: all).
    suites: Vec<String>,
    /// Print the names of the suites.
    #[arg(long)]
    list: bool,
    /// Get the machine, its kernel and its shell, like set-up, and run nothing.
    #[arg(long, conflicts_with_all = ["list", "suites"])]
    prepare: bool,
    /// The short form of suites that have one.
    #[arg(long)]
    quick: bool,
    /// The only kind of device to use, for suites with several.
    #[arg(long, value_name = "KIND")]
    only: Option<String>,
    /// The seed of random choices.
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

/// Boots a guest for each suite. The first failure ends the run.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        SUITES.iter().for_each(|suite| println!("{:<12} {}", suite.name, suite.about));
        return Ok(());
    }
    if args.prepare {
        return prepare().map(drop);
    }
    let suites = named(&args.suites)?;
    let home = prepare()?;
    let _alone = sweep(&home)?;
    let kernel = kernel::fetch(&home)?;
    for suite in suites {
        let emulator =
            if suite.devices.handles { Emulator::with_handles(&home)? } else { Emulator::installed() };
        let image = image::build(&home, &kernel, suite)?;
        let run = Run {
            suite,
            emulator: &emulator,
            quick: args.quick,
            only: args.only.as_deref(),
            seed: args.seed,
        };
        let passed = guest::run(&home, &kernel, &image, &run)?;
        println!("vm {}: passed in {} s", suite.name, passed.seconds);
        if !passed.figures.is_empty() {
            let table = table::of(&passed.figures);
            println!("{table}");
            if !args.quick && args.only.is_none() {
                marked::write(marked::PERFORMANCE, &format!("vm {}", suite.name), &table)?;
            }
        }
    }
    Ok(())
}

/// Gets the requirements of a guest, including its kernel. Returns the folder with them. Afterwards suites need no
/// network, except those with other file systems, the first time.
pub(crate) fn prepare() -> Result<PathBuf> {
    needs::require(&needs::GUEST)?;
    let home = workspace::target_dir()?.join("vm");
    busybox::fetch(&home)?;
    kernel::fetch(&home)?;
    Ok(home)
}

/// Removes the files of killed commands, unless another command is running: disks and archives take hundreds of
/// megabytes each. No other command removes anything while the returned file is open.
fn sweep(home: &Path) -> Result<File> {
    let lock = File::create(home.join("lock"))?;
    if lock.try_lock().is_ok() {
        for entry in std::fs::read_dir(home)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let begins = [guest::RUN, image::TREE].iter().any(|begin| name.starts_with(begin));
            match entry.file_type()?.is_dir() {
                true if begins => std::fs::remove_dir_all(entry.path())?,
                false if begins || name.ends_with(image::ARCHIVE) => std::fs::remove_file(entry.path())?,
                _ => {}
            }
        }
        lock.unlock()?;
    }
    lock.lock_shared()?;
    Ok(lock)
}

/// The suite that is a step of the gate.
pub(crate) const IN_GATE: &str = "gate";

/// The names of all suites.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SUITES.iter().map(|suite| suite.name)
}

fn named(names: &[String]) -> Result<Vec<&'static Suite>> {
    if names.is_empty() {
        return Ok(SUITES.iter().collect());
    }
    let find = |name: &String| match SUITES.iter().find(|suite| suite.name == name) {
        Some(suite) => Ok(suite),
        None => bail!("no suite `{name}`; `cargo system vm --list` names them"),
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests;

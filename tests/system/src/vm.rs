//! `cargo system vm`: runs Polder on zoned devices, in a guest that has them.
//!
//! The guest is a packaged kernel on an emulated machine, with nothing in it but a shell, Polder and what
//! tests it: no network, no disk but the zoned ones. It says what it does on its console; the last line is the
//! verdict. Whatever the kernel logs as an error is a failure too.
//!
//! What is seen there is behaviour, never time. Figures of a suite that has some become a table of
//! `docs/performance.md`.

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
    /// What to run, in this order (default: everything).
    suites: Vec<String>,
    /// Prints the names of the suites and ends.
    #[arg(long)]
    list: bool,
    /// Gets the machine, its kernel and its shell, as set-up does, and ends.
    #[arg(long, conflicts_with_all = ["list", "suites"])]
    prepare: bool,
    /// The short form of suites that have one.
    #[arg(long)]
    quick: bool,
    /// The only kind of device that is used, of suites that go through several.
    #[arg(long, value_name = "KIND")]
    only: Option<String>,
    /// The seed of what is random in suites that have such.
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

/// Boots a guest for each suite; the first failure ends it.
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

/// Gets what a guest needs of this machine, its kernel too; the folder where that is kept. Afterwards no suite
/// needs the network but those with others' file systems, the first time.
pub(crate) fn prepare() -> Result<PathBuf> {
    needs::require(&needs::GUEST)?;
    let home = workspace::target_dir()?.join("vm");
    busybox::fetch(&home)?;
    kernel::fetch(&home)?;
    Ok(home)
}

/// Removes what commands that were killed have left, unless another is at work: disks and archives take hundreds of
/// megabytes each. Nobody else removes anything as long as what is returned is there.
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

//! `cargo system bench`: the speed of Polder compared with a plain file and with other file systems.
//!
//! # Design
//!
//! A shared machine is fast now and slow a second later. So a figure is the ratio of two measurements of the same
//! round, which take place right after one another: in each round, each step runs in every *place* before the next
//! step begins. Places are a mount for each *transport* (`place.rs`), an ext4 and an XFS on loop devices, all over
//! files in one directory of the host. The first place of each round is another one.
//!
//! A *row* (`rows.rs`) is an operation with the peer and the target of its ratio. Rows that use each other's files
//! form a *group* (`groups.rs`). Programs of others are started as a user would start them. Single operations come
//! from a client that is a process of its own (`polder-sim calls`), so that its latencies, its processor time and its
//! requests are those of one operation. Groups of single operations run twice in a round: alone, and next to a large
//! sequential writer in the same place. After the rounds, each group runs once more to count requests and
//! instructions, because counting costs time. The library runs in the process that measures it (`library.rs`).
//!
//! All figures are kept one by one (`figures.rs`). The tables (`page.rs`), the CSV file and the comparison with an
//! earlier run (`baseline.rs`) are made from these alone. `--page` writes the tables into `docs/results/performance.md`, and
//! fails if an operation is below half of a peer and the page gives no reason. This depends only on the page, so it
//! is a test as well.
//!
//! It does not measure YCSB (`cargo system ycsb`), write amplification (`cargo system space`) or the processor time
//! of a fresh clone (`cargo system accept fresh-clone`).

mod baseline;
mod churn;
mod cost;
mod facts;
mod figures;
mod groups;
mod library;
mod material;
mod page;
mod place;
mod requests;
mod rows;
mod runner;
mod scale;
mod step;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::shell::Line;
use support::{needs, workspace};

use self::figures::Figures;
use self::groups::Group;
use self::material::Material;
use self::page::Page;
use self::place::Set;
use self::rows::Selection;
use self::runner::{Counters, Runner};
use self::scale::Scale;
use self::step::Client;
use crate::marked;

/// `cargo system bench [--quick] [--only ROWS]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure for a moment, and only some groups unless rows are named.
    #[arg(long, conflicts_with = "page")]
    quick: bool,
    /// Only these rows or groups of rows. A row runs with its whole group.
    #[arg(long, value_name = "ROWS", value_delimiter = ',', conflicts_with = "page")]
    only: Vec<String>,
    /// How many rounds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Write every figure to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Compare with the figures of an earlier run.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the tables into the page.
    #[arg(long)]
    page: bool,
}

/// Measures, prints, and writes what was asked for.
pub(crate) fn run(args: &Args) -> Result<()> {
    let scale = if args.quick { scale::QUICK } else { scale::FULL };
    let selection = Selection::of(&args.only, scale.groups)?;
    let before = args.baseline.as_deref().map(Figures::read).transpose()?;
    marked::check(page::PATH, "bench")?;
    needs::require_root("mount an ext4 and an XFS to compare with")?;
    // The tracepoint exists once the kernel's part of FUSE is loaded.
    needs::require(&needs::MOUNT)?;
    let rounds = args.rounds.unwrap_or(scale.rounds);
    let figures = measure(&scale, &selection, rounds)?;
    if let Some(file) = &args.csv {
        std::fs::write(file, figures.csv()).with_context(|| file.display().to_string())?;
    }
    let tables = page::tables(&figures, rounds, &machine()?);
    println!("\n{tables}");
    if let Some(before) = before {
        println!("{}", baseline::table(&before, &figures));
    }
    if !args.page {
        return Page::read()?.check_reasons();
    }
    let page = Page::read()?.with_tables(&tables)?;
    page.write()?;
    println!("written to {}", page::PATH);
    page.check_reasons()
}

fn measure(scale: &Scale, selection: &Selection, rounds: u64) -> Result<Figures> {
    let host = workspace::target_dir()?;
    let scratch = tempfile::Builder::new().prefix("bench-scratch-").tempdir_in(&host)?;
    let (client, counters) = (Client::build()?, Counters::open());
    let mut runner = Runner { client, counters, rounds, figures: Figures::default(), scratch };
    in_common_places(&mut runner, scale, selection, &host)?;
    if selection.has_group(rows::CHURN) {
        churn::run(&mut runner, scale, &host)?;
    }
    if selection.has_group(rows::METADATA) {
        facts::metadata(&mut runner, scale)?;
    }
    if selection.has_group(rows::BINARY) {
        facts::binary(&mut runner)?;
    }
    ensure!(!runner.figures.is_empty(), "nothing was measured");
    Ok(runner.figures)
}

/// Everything that needs no places of its own.
fn in_common_places(runner: &mut Runner, scale: &Scale, selection: &Selection, host: &Path) -> Result<()> {
    let material = material(scale, selection, host)?;
    let mut groups = material.as_ref().map(groups::of_trees).unwrap_or_default();
    groups.extend(groups::of_calls(scale));
    groups.retain(|group| selection.has_group(group.name));
    let others = [rows::LIBRARY, rows::IDLE, rows::LOG];
    if groups.is_empty() && !others.iter().any(|other| selection.has_group(other)) {
        return Ok(());
    }
    let set = Set::make(scale.bytes, host)?;
    let ours = set.ours().next().context("there is a transport")?;
    if selection.has_group(rows::IDLE) {
        facts::idle(&mut runner.figures, scale, ours)?;
    }
    groups.iter().try_for_each(|group: &Group| runner.run(group, &set))?;
    facts::requests(&mut runner.figures);
    if selection.has_group(rows::LOG) {
        facts::log(runner, scale, ours)?;
    }
    if selection.has_group(rows::LIBRARY) {
        library::run(runner, scale, &set, host)?;
    }
    set.end()
}

/// The files for programs of others, if some row needs them.
fn material(scale: &Scale, selection: &Selection, host: &Path) -> Result<Option<Material>> {
    let with_trees = [rows::TREES, rows::SOURCES, rows::GIT].iter().any(|group| selection.has_group(group));
    let with_databases = selection.has_group(rows::SQLITE);
    if with_databases {
        needs::require([&needs::SQLITE])?;
    }
    let is_needed = with_trees || with_databases;
    is_needed.then(|| Material::make(host, scale, with_trees)).transpose()
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

//! `cargo system mutants`: how many small code changes in `pool`, `tree`, `extent` and `salvage` their tests
//! notice (docs/testing.md).
//!
//! cargo-mutants generates the mutants: an exchanged operator, an inverted condition, a function that returns at
//! once. There are thousands, so a seed draws some of them. All drawn mutants are built into the same programs, and
//! each process activates the one that it is given (`weave.rs`). Mutants that cannot be built in this way are tried
//! by cargo-mutants, one by one. This checkout is not changed: mutants are made in a copy below the target folder,
//! and each outcome is recorded beside it immediately. An interrupted run, or a run with a larger count, continues
//! after the recorded outcomes.
//!
//! A mutant is first tried with the tests of its own package. If these pass, the tests of other packages follow. The
//! mutant is missed if all of them pass. It is caught if one fails or does not end in time.

mod begun;
mod copy;
mod drawing;
mod outcomes;
mod score;
mod showing;
mod together;
mod trial;
mod weave;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};
use support::{needs, workspace};

use begun::Begun;
use copy::Copy;
use drawing::Mutant;
use outcomes::{Kept, Outcome};
use trial::Trials;

/// `cargo system mutants --count N --seed S --package P`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The number of mutants, in the order in which the seed draws them (default: 50; all with --only).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The seed of the draw, which also depends on the sources.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only mutants of this package.
    #[arg(long)]
    package: Option<Package>,
    /// Only mutants with this in their names, which begin with their files.
    #[arg(long)]
    only: Option<String>,
    /// Stop after this many minutes, when the current mutant is done.
    #[arg(long)]
    minutes: Option<u64>,
    /// Continue with the mutants, sources and tests of the last run, whatever has changed since.
    #[arg(long)]
    go_on: bool,
    /// Try nothing: only report the results of earlier runs.
    #[arg(long)]
    report: bool,
}

/// The packages with mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Package {
    Pool,
    Tree,
    Extent,
    Salvage,
}

impl Package {
    const ALL: [Package; 4] = [Package::Pool, Package::Tree, Package::Extent, Package::Salvage];

    fn name(self) -> &'static str {
        match self {
            Package::Pool => "polder-pool",
            Package::Tree => "polder-tree",
            Package::Extent => "polder-extent",
            Package::Salvage => "polder-salvage",
        }
    }

    /// The packages whose tests run, one after the other, until the mutant is noticed.
    fn asked(self) -> &'static [Asked] {
        match self {
            Package::Pool => &[POOL, TREE, EXTENT, FS],
            Package::Tree => &[TREE, EXTENT, FS, SALVAGE],
            Package::Extent => &[EXTENT, FS, SALVAGE],
            Package::Salvage => &[SALVAGE, FS],
        }
    }

    fn of(mutant: &Mutant) -> Result<Package> {
        let known = Package::ALL.into_iter().find(|package| package.name() == mutant.package);
        known.with_context(|| format!("{} is of a package that was not asked for", mutant.name))
    }
}

/// Tests of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    package: &'static str,
    folder: &'static str,
    /// Parts of the names of tests that do not run.
    without: &'static [&'static str],
}

impl Asked {
    fn has(&self, test: &str) -> bool {
        !self.without.iter().any(|part| test.contains(part))
    }

    /// The same as a filter for cargo-nextest.
    fn filter(&self) -> String {
        let without = self.without.iter().map(|part| format!(" and not test({part})"));
        format!("all(){}", without.collect::<String>())
    }
}

const ASKED: [Asked; 5] = [POOL, TREE, EXTENT, FS, SALVAGE];
const POOL: Asked = Asked { package: "polder-pool", folder: "crates/pool", without: &[] };
const TREE: Asked = Asked { package: "polder-tree", folder: "crates/tree", without: &[] };
const EXTENT: Asked = Asked { package: "polder-extent", folder: "crates/extent", without: &[] };
/// The tests that read a volume without its log, including the decoders that only they use.
const SALVAGE: Asked = Asked { package: "polder-salvage", folder: "crates/salvage", without: &[] };
/// Without the five tests that take ten seconds or more.
const FS: Asked = Asked {
    package: "polder-fs",
    folder: "crates/fs",
    without: &[
        "crash::after_a_cut_in_a_long_deletion",
        "exerciser::a_file_agrees",
        "full::names_and_data_share",
        "full::a_volume_full_of_small_files",
        "collapse_insert::a_file_in_the_middle",
    ],
};

/// The number of mutants that are tried if neither a number nor a part of names is given.
const COUNT: u64 = 50;

pub(crate) fn run(args: &Args) -> Result<()> {
    needs::require(&needs::MUTANTS)?;
    let folder = workspace::target_dir()?.join("mutants");
    let root = folder.join("tree");
    let begun = args.go_on.then(|| Begun::load(&folder)).transpose()?;
    let (copy, drawn) = match &begun {
        Some(begun) => (Copy::as_it_is(&root, begun.sources), begun.drawn.clone()),
        None => {
            let copy = Copy::make(&root)?;
            let drawn = wanted(args, drawing::draw(args.seed, drawing::list(&copy)?))?;
            (copy, drawn)
        }
    };
    let mut kept = Kept::open(&folder.join("outcomes.jsonl"))?;
    if !args.report {
        try_all(&drawn, begun, &mut kept, &Trials::new(&copy, &folder), args.minutes)?;
    }
    let found: Vec<(&Mutant, &Outcome)> =
        drawn.iter().filter_map(|mutant| Some((mutant, kept.last(mutant)?))).collect();
    println!("\n{}", score::report(&found));
    println!("tried {} of {} drawn by seed {}", found.len(), drawn.len(), args.seed);
    if found.len() < drawn.len() {
        println!("left out: {} mutants, for want of time", drawn.len() - found.len());
    }
    ensure!(!found.is_empty(), "nothing was tried: run it without --report, or for longer");
    Ok(())
}

/// The mutants of this run.
fn wanted(args: &Args, mut drawn: Vec<Mutant>) -> Result<Vec<Mutant>> {
    if let Some(package) = args.package {
        drawn.retain(|mutant| mutant.package == package.name());
    }
    if let Some(part) = &args.only {
        drawn.retain(|mutant| mutant.name.contains(part));
    }
    if let Some(count) = args.count.or(args.only.is_none().then_some(COUNT)) {
        drawn.truncate(usize::try_from(count)?);
    }
    ensure!(!drawn.is_empty(), "there is no such mutant: `cargo mutants --list` names all there are");
    Ok(drawn)
}

/// Tries all mutants without a recorded outcome: those that compile together, then the rest one by one.
fn try_all(
    drawn: &[Mutant],
    begun: Option<Begun>,
    kept: &mut Kept,
    trials: &Trials<'_>,
    minutes: Option<u64>,
) -> Result<()> {
    let clock = Arc::new(SystemClock::new());
    let is_late = move || minutes.is_some_and(|minutes| clock.monotonic_ns() > minutes * 60_000_000_000);
    let (known, open): (Vec<&Mutant>, Vec<&Mutant>) =
        drawn.iter().partition(|mutant| kept.stands(mutant, trials.sources()).is_some());
    println!("{} are known, {} are tried now", known.len(), open.len());
    if open.is_empty() {
        return Ok(());
    }
    trial::limit_memory()?;
    let Begun { built, tests, .. } = match begun {
        Some(begun) => begun,
        None => trials.begin(drawn, &open)?,
    };
    let (together, alone): (Vec<&Mutant>, Vec<&Mutant>) =
        open.into_iter().partition(|mutant| built.contains(&mutant.place.number));
    println!("{} are tried together, {} alone", together.len(), alone.len());
    let mut count = known.len();
    let mut add = |mutant: &Mutant, outcome: Outcome| {
        count += 1;
        println!("{count} of {}: {outcome}: {}", drawn.len(), mutant.name);
        kept.add(mutant, outcome, trials.sources())
    };
    tests.show(together.into_iter().cloned().collect(), is_late.clone(), &mut add)?;
    trials.alone(&alone, is_late, &mut add)
}

#[cfg(test)]
mod tests;

//! `cargo system mutants`: how many small mistakes in `tree`, `extent` and `salvage` their tests notice
//! (docs/testing.md).
//!
//! cargo-mutants knows the mistakes: an operator exchanged, a condition turned round, a function that returns at
//! once. There are thousands, so that a seed draws some of them. All that were drawn are built into the same
//! programs, and a process makes the one that it was told of (`weave.rs`); what cannot be built so is tried by
//! cargo-mutants, one by one. Nothing is changed in this checkout: mistakes are made in a copy below the target
//! folder, and what became of each is written down beside it at once. A run that is interrupted, or one of a greater
//! count, goes on behind what was tried.
//!
//! A mistake is first shown to the tests of its own package, and one that passes them to those of other packages. It
//! is missed when all of them pass, and caught as well when they come to no end in time.

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
    /// So many mutants, those first that the seed draws first.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// What is drawn follows from it, and from the sources.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only mutants of this package.
    #[arg(long)]
    package: Option<Package>,
    /// Only mutants with this in their names, and all of them.
    #[arg(long)]
    only: Option<String>,
    /// Stop after so many minutes, when the mutant at hand is done.
    #[arg(long)]
    minutes: Option<u64>,
    /// Go on with the mutants, the sources and the tests of the last run that was begun, whatever has changed since.
    #[arg(long)]
    go_on: bool,
    /// Try nothing: only say what earlier runs have found.
    #[arg(long)]
    report: bool,
}

/// The packages whose mutants are drawn.
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

    /// Whose tests are asked, one after the other, until a mistake is noticed.
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
    /// Parts of the names of those that are not asked.
    without: &'static [&'static str],
}

impl Asked {
    fn has(&self, test: &str) -> bool {
        !self.without.iter().any(|part| test.contains(part))
    }

    /// The same, as cargo-nextest is told.
    fn filter(&self) -> String {
        let without = self.without.iter().map(|part| format!(" and not test({part})"));
        format!("all(){}", without.collect::<String>())
    }
}

const ASKED: [Asked; 5] = [POOL, TREE, EXTENT, FS, SALVAGE];
const POOL: Asked = Asked { package: "polder-pool", folder: "crates/pool", without: &[] };
const TREE: Asked = Asked { package: "polder-tree", folder: "crates/tree", without: &[] };
const EXTENT: Asked = Asked { package: "polder-extent", folder: "crates/extent", without: &[] };
/// The tests that read a volume without its log, and with it the decoders that only they use.
const SALVAGE: Asked = Asked { package: "polder-salvage", folder: "crates/salvage", without: &[] };
/// Without the five that take ten seconds each and more.
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
    ensure!(!found.is_empty(), "nothing was tried: run it without --report, or for longer");
    Ok(())
}

/// Those that this run is about.
fn wanted(args: &Args, mut drawn: Vec<Mutant>) -> Result<Vec<Mutant>> {
    if let Some(package) = args.package {
        drawn.retain(|mutant| mutant.package == package.name());
    }
    match &args.only {
        Some(part) => drawn.retain(|mutant| mutant.name.contains(part)),
        None => drawn.truncate(usize::try_from(args.count)?),
    }
    ensure!(!drawn.is_empty(), "there is no such mutant: `cargo mutants --list` names all there are");
    Ok(drawn)
}

/// Tries all that nothing is known of yet: together what compiles together, the rest one by one.
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

//! `cargo xtask mutants`: how many small mistakes in `tree` and `extent` their tests notice (docs/testing.md).
//!
//! cargo-mutants knows the mistakes: an operator exchanged, a condition turned round, a function that returns at
//! once. There are thousands, and each costs a build and a run of tests, so that a seed draws some of them. Nothing
//! is changed in this checkout: mistakes are made in a copy below the target folder, which is built there and keeps
//! what was built, and what became of each is written down beside it at once. A run that is interrupted, or one of a
//! greater count, goes on behind what was tried.
//!
//! A mistake is first shown to the tests of its own package, and one that passes them to those of other packages. It
//! is missed when all of them pass, and caught as well when they come to no end in time.

mod copy;
mod drawing;
mod outcomes;
mod score;
mod trial;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};

use crate::{setup, workspace};

use copy::Copy;
use drawing::Mutant;
use outcomes::{Kept, Outcome};
use trial::Trials;

/// `cargo xtask mutants --count N --seed S --package P`.
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
    /// Try nothing: only say what earlier runs have found.
    #[arg(long)]
    report: bool,
}

/// The packages whose mutants are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Package {
    Tree,
    Extent,
}

impl Package {
    const ALL: [Package; 2] = [Package::Tree, Package::Extent];

    fn name(self) -> &'static str {
        match self {
            Package::Tree => "polder-tree",
            Package::Extent => "polder-extent",
        }
    }

    /// Whose tests are asked, one after the other, until a mistake is noticed.
    fn asked(self) -> &'static [Asked] {
        match self {
            Package::Tree => &[TREE, EXTENT, FS],
            Package::Extent => &[EXTENT, FS],
        }
    }

    fn of(mutant: &Mutant) -> Result<Package> {
        let known = Package::ALL.into_iter().find(|package| package.name() == mutant.package);
        known.with_context(|| format!("{} is of a package that was not asked for", mutant.name))
    }
}

/// Tests of a package.
#[derive(Clone, Copy, Debug)]
struct Asked {
    package: &'static str,
    /// Which of them, as cargo-nextest is told.
    filter: &'static str,
}

const TREE: Asked = Asked { package: "polder-tree", filter: "all()" };
const EXTENT: Asked = Asked { package: "polder-extent", filter: "all()" };
/// Without the eight that take ten seconds each and more, which is four fifths of the time of all 218.
const FS: Asked = Asked {
    package: "polder-fs",
    filter: "not (test(crash::after_a_cut_in_a_long_deletion) | test(exerciser::a_file_agrees) \
             | test(full::names_and_data_share) | test(full::a_volume_full_of_small_files) \
             | test(salvage::everything_is_saved) | test(salvage::what_is_saved) | test(salvage::what_was_moved) \
             | test(shifts::a_file_in_the_middle))",
};

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::require(&setup::MUTANTS)?;
    let folder = workspace::target_dir()?.join("mutants");
    let copy = Copy::make(&folder.join("tree"))?;
    let drawn = wanted(args, drawing::draw(args.seed, drawing::list(&copy)?))?;
    let mut kept = Kept::open(&folder.join("outcomes.jsonl"))?;
    if !args.report {
        try_all(&drawn, &mut kept, &Trials::new(&copy, &folder), args.minutes)?;
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

/// Tries all that nothing is known of yet, in the order in which they were drawn.
fn try_all(drawn: &[Mutant], kept: &mut Kept, trials: &Trials<'_>, minutes: Option<u64>) -> Result<()> {
    let clock = SystemClock::new();
    let is_late = || minutes.is_some_and(|minutes| clock.monotonic_ns() > minutes * 60_000_000_000);
    trial::limit_memory()?;
    let mut seconds_max = None;
    for (place, mutant) in drawn.iter().enumerate() {
        let of = format!("{} of {}", place + 1, drawn.len());
        if let Some(outcome) = kept.stands(mutant, trials.sources()) {
            println!("{of}: {outcome} (known): {}", mutant.name);
            continue;
        }
        if is_late() {
            println!("the time is over");
            break;
        }
        let seconds_max = match &seconds_max {
            Some(seconds) => seconds,
            None => seconds_max.insert(trials.baseline()?),
        };
        let outcome = trials.of(mutant, seconds_max)?;
        println!("{of}: {outcome}: {}", mutant.name);
        kept.add(mutant, outcome, trials.sources())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! The suites: their names, their commands, and which of them the gate runs.
//!
//! The gate runs the quick forms of some suites at every commit. The long forms run rarely, so that failures after
//! other changes stay unnoticed. `cargo system run` runs them one after another, the shortest first, and continues
//! after a failure. `--shard 3/8` runs an eighth of them, for several machines. All machines must be at one commit,
//! because the durations are read from the results in this commit.
//!
//! A test fails if neither the gate nor `run` reaches a suite (`suites/forgotten.rs`).

#[cfg(test)]
mod forgotten;
mod results;
mod run;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::shell::Line;
use support::workspace;

use self::results::Results;
use crate::{accept, crash, space, vm};

/// A suite, with the commands of its forms. `{seed}` stands for the seed.
pub(crate) struct Suite {
    /// The name in commands and results.
    pub(crate) name: String,
    /// Another spelling of the name.
    also: Option<String>,
    /// The command that `run` runs and records. `None` if the gate runs the whole suite.
    pub(crate) long: Option<String>,
    /// The short form, if there is one.
    pub(crate) quick: Option<String>,
    /// Whether the gate runs the quick form.
    pub(crate) in_gate: bool,
}

/// The selection of suites.
#[derive(clap::Args)]
struct Selection {
    /// Names, names of groups, or parts of names (default: all suites).
    filters: Vec<String>,
    /// One of N parts of about equal duration, as `1/8`.
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<(usize, usize)>,
}

/// `cargo system list`.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    selection: Selection,
    /// The quick forms.
    #[arg(long)]
    quick: bool,
    /// Only the quick forms that the gate runs: in each line a name, a tab and the command.
    #[arg(long, conflicts_with = "quick")]
    gate: bool,
}

/// `cargo system run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    selection: Selection,
    /// The quick forms; nothing is recorded.
    #[arg(long)]
    quick: bool,
    /// The seed (default: made from the commit; 1 for quick forms, as in the gate).
    #[arg(long)]
    seed: Option<u32>,
}

/// `cargo system results`.
#[derive(clap::Args)]
pub(crate) struct ResultsArgs {
    /// Take the results from these files if they are newer than our own.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    merge: Vec<PathBuf>,
    /// Fail unless every suite has passed as a whole on one commit: none failed, was skipped or left a part out.
    #[arg(long)]
    complete: bool,
}

/// An older spelling of the commands above.
#[derive(clap::Args)]
pub(crate) struct EverythingArgs {
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<(usize, usize)>,
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    #[arg(long)]
    seed: Option<u32>,
    #[arg(long)]
    list: bool,
    #[arg(long, value_name = "FILE", num_args = 1..)]
    merge: Vec<PathBuf>,
    #[arg(long)]
    complete: bool,
}

/// Suites that are not in a list of their command, each with its long and its quick form. An empty text means no
/// quick form.
const FIXED: [(&str, &str, &str); 21] = [
    ("soak", "cargo system soak --minutes 45 --seed {seed}", ""),
    (SHUTTLE, "cargo system shuttle --times 20 --seed {seed}", "cargo system shuttle"),
    (FUZZ, "cargo system fuzz --seconds 60 --seed {seed}", "cargo system fuzz --quick"),
    ("mutants", "cargo system mutants --count 50 --minutes 30 --seed {seed}", ""),
    ("mutants/pool", "cargo system mutants --package pool --count 30 --minutes 20 --seed {seed}", ""),
    ("mutants/gc", "cargo system mutants --only gc --count 30 --minutes 20 --seed {seed}", ""),
    ("coverage", "cargo system coverage", ""),
    ("bench", "cargo system bench --page", "cargo system bench --quick"),
    ("ycsb", "cargo system ycsb --seed {seed}", "cargo system ycsb --quick --seed {seed}"),
    ("rocksdb", "cargo system rocksdb --seed {seed}", "cargo system rocksdb --quick --seed {seed}"),
    ("setup-test", "cargo xtask setup-test", ""),
    ("package", "cargo xtask package --test", ""),
    ("sim/flips", "cargo run --release --locked --package polder-sim -- flips --unmounted --seed {seed}", ""),
    ("sim/fuzz", "cargo run --release --locked --package polder-sim -- fuzz", ""),
    (
        "sim/shapes",
        "cargo run --release --locked --package polder-sim -- shapes --times 900 --seed {seed}",
        "",
    ),
    ("sim/shows", "cargo run --release --locked --package polder-sim -- shows --seeds 20 --seed {seed}", ""),
    ("sets", "cargo test --package polder-zone --features planted --test all --locked -- sets::", ""),
    ("objects", "cargo test --package polder-object --features client,planted --test all --locked", ""),
    ("sanitizer/tree", "cargo system sanitizer --package polder-tree", ""),
    ("sanitizer/extent", "cargo system sanitizer --package polder-extent", ""),
    ("sanitizer/fs", "cargo system sanitizer --package polder-fs", ""),
];

const SHUTTLE: &str = "shuttle";
const FUZZ: &str = "fuzz";
/// The assumed duration of a suite without a recorded one.
const SECONDS_UNKNOWN: u64 = 900;
/// The gate tests the commit, and not chance: its seed is always the same.
const SEED_OF_GATE: u32 = 1;

/// All suites. Those of the gate are in the order in which it runs them.
pub(crate) fn all() -> Vec<Suite> {
    let points = accept::POINTS.iter().map(|point| Suite {
        also: Some(format!("accept/{}", point.number)),
        ..Suite::in_gate(
            format!("accept/{}", point.name),
            Some(format!("cargo system accept {} --seed {{seed}}", point.name)),
            format!("cargo system accept {} --quick --seed {{seed}}", point.name),
        )
    });
    let fixed = FIXED.iter().map(|&(name, long, quick)| Suite {
        in_gate: [SHUTTLE, FUZZ].contains(&name),
        ..Suite::outside(name.to_owned(), long.to_owned(), Some(quick).filter(|quick| !quick.is_empty()))
    });
    let (first, rest): (Vec<Suite>, Vec<Suite>) = fixed.partition(|suite| suite.name == SHUTTLE);
    let counted = Suite::in_gate("instructions".to_owned(), None, "cargo system instructions".to_owned());
    points.chain(first).chain([counted]).chain(guests()).chain(rest).chain(crashes()).chain(pages()).collect()
}

/// The suites in the guest. One of them runs only in the gate.
fn guests() -> impl Iterator<Item = Suite> {
    vm::names().map(|name| match name == vm::IN_GATE {
        true => Suite::in_gate(format!("vm/{name}"), None, format!("cargo system vm {name}")),
        false => {
            Suite::outside(format!("vm/{name}"), format!("cargo system vm {name} --seed {{seed}}"), None)
        }
    })
}

/// The application crash tests, each with its share of the crashes.
fn crashes() -> impl Iterator<Item = Suite> {
    crash::shares().map(|(name, kills, quick_kills)| {
        let words = |kills: u64| format!("cargo system crash --only {name} --kills {kills} --seed {{seed}}");
        let quick = format!("{} --quick", words(quick_kills));
        Suite::outside(format!("crash/{name}"), words(kills), Some(&quick))
    })
}

/// The parts of the space page.
fn pages() -> impl Iterator<Item = Suite> {
    space::names().map(|name| {
        let words = format!("cargo system space --only {name}");
        let quick = format!("{words} --quick");
        Suite::outside(format!("space/{name}"), words, Some(&quick))
    })
}

impl Suite {
    fn in_gate(name: String, long: Option<String>, quick: String) -> Suite {
        Suite { name, also: None, long, quick: Some(quick), in_gate: true }
    }

    fn outside(name: String, long: String, quick: Option<&str>) -> Suite {
        Suite { name, also: None, long: Some(long), quick: quick.map(str::to_owned), in_gate: false }
    }

    /// The command of the quick or the long form. `None` if there is no such form.
    fn words(&self, quick: bool) -> Option<&str> {
        if quick { self.quick.as_deref() } else { self.long.as_deref() }
    }

    fn is_called_or_in_group(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            || self.also.as_deref() == Some(name)
    }

    fn has_in_name(&self, part: &str) -> bool {
        self.name.contains(part)
    }
}

fn line(words: &str, seed: u32) -> Line {
    Line::new(&words.replace("{seed}", &seed.to_string()))
}

/// Prints suites and their commands.
pub(crate) fn list(args: &ListArgs) -> Result<()> {
    if args.gate {
        for suite in all().iter().filter(|suite| suite.in_gate) {
            let words = suite.words(true).context("a suite of the gate has a quick form")?;
            println!("{}\t{}", suite.name, line(words, SEED_OF_GATE));
        }
        return Ok(());
    }
    let recorded = Results::read(&file())?;
    for suite in selected(&args.selection, args.quick, &of_commit()?)? {
        let seconds = recorded.seconds(&suite.name).filter(|_| !args.quick);
        let seconds = seconds.map_or("-".to_owned(), |seconds| seconds.to_string());
        println!("{:<22} {seconds:>6} s  {}", suite.name, suite.words(args.quick).unwrap_or_default());
    }
    Ok(())
}

/// Runs suites.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let suites = selected(&args.selection, args.quick, &of_commit()?)?;
    if args.quick {
        return run::quick(&suites, args.seed.unwrap_or(SEED_OF_GATE));
    }
    let seed = args.seed.map_or_else(|| accept::seed_of_commit().map(|seed| seed as u32), Ok)?;
    run::recorded(&suites, &run::Checkout::ours(), seed, |row| {
        // Another process may have recorded something meanwhile.
        let mut results = Results::read(&file())?;
        results.put(row);
        results.write(&file())
    })
}

/// Merges results files, or judges what is recorded.
pub(crate) fn results(args: &ResultsArgs) -> Result<()> {
    ensure!(!args.merge.is_empty() || args.complete, "give `--merge FILE…`, `--complete`, or both");
    let mut results = Results::read(&file())?;
    for other in &args.merge {
        results.merge(Results::read(other)?);
    }
    if !args.merge.is_empty() {
        results.write(&file())?;
    }
    if args.complete { results.check(&all()) } else { Ok(()) }
}

/// The commands of the older spelling.
pub(crate) fn everything(args: EverythingArgs) -> Result<()> {
    if !args.merge.is_empty() || args.complete {
        return results(&ResultsArgs { merge: args.merge, complete: args.complete });
    }
    let filters = args.only.into_iter().map(|only| if only == "knife" { "crash".to_owned() } else { only });
    let selection = Selection { filters: filters.collect(), shard: args.shard };
    match args.list {
        true => list(&ListArgs { selection, quick: false, gate: false }),
        false => run(&RunArgs { selection, quick: false, seed: args.seed }),
    }
}

/// The suites to run, the shortest first. A part is the same on every machine at this commit.
fn selected(selection: &Selection, quick: bool, recorded: &Results) -> Result<Vec<Suite>> {
    let seconds = |suite: &Suite| recorded.seconds(&suite.name).unwrap_or(SECONDS_UNKNOWN);
    let mut suites = named(&selection.filters, quick)?;
    suites.sort_by_key(seconds);
    if let Some((part, parts)) = selection.shard {
        let mut taken = vec![0; parts];
        // The longest first, each to the part with the least time so far.
        let place = suites.iter().rev().map(|suite| {
            let least = (0..parts).min_by_key(|&index| taken[index]).expect("there are parts");
            taken[least] += seconds(suite);
            least + 1 == part
        });
        let mut is_ours = place.collect::<Vec<_>>().into_iter().rev();
        suites.retain(|_| is_ours.next() == Some(true));
    }
    Ok(suites)
}

/// The suites with this form that match the filters. A filter is the name of a suite, or of a group such as `crash`,
/// or a part of names. A space may replace the slash.
fn named(filters: &[String], quick: bool) -> Result<Vec<Suite>> {
    let mut suites = all();
    suites.retain(|suite| suite.words(quick).is_some());
    let filters: Vec<String> = filters.iter().map(|filter| filter.replace(' ', "/")).collect();
    let mut wanted = vec![filters.is_empty(); suites.len()];
    for filter in &filters {
        let ways = [Suite::is_called_or_in_group, Suite::has_in_name];
        let first = ways.into_iter().find(|way| suites.iter().any(|suite| way(suite, filter)));
        let matches = |suite: &Suite| first.is_some_and(|way| way(suite, filter));
        ensure!(suites.iter().any(matches), "no suite is called `{filter}`; `cargo system list` names them");
        wanted.iter_mut().zip(&suites).for_each(|(wanted, suite)| *wanted |= matches(suite));
    }
    let mut wanted = wanted.into_iter();
    suites.retain(|_| wanted.next() == Some(true));
    Ok(suites)
}

fn shard(text: &str) -> Result<(usize, usize)> {
    let (part, parts) = text.split_once('/').context("a shard is given as I/N, for example 1/8")?;
    let (part, parts) = (part.parse()?, parts.parse()?);
    ensure!((1..=parts).contains(&part), "of {parts} shards, the first is 1 and the last {parts}");
    Ok((part, parts))
}

fn file() -> PathBuf {
    workspace::root().join(Path::new(results::FILE))
}

/// The results in the commit.
fn of_commit() -> Result<Results> {
    let (is_there, text) = Line::new("git show").arg(format!("HEAD:{}", results::FILE)).verdict()?;
    if is_there { Results::parse(&text) } else { Ok(Results::default()) }
}

#[cfg(test)]
mod tests;

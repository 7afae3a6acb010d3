//! `cargo xtask everything`: runs every suite that the gate does not run, and records the results.
//!
//! Nobody runs these at every commit, so they fail unnoticed when something else changes. This command runs them one
//! after another, the shortest first, and goes on after a failure. `--shard 3/8` runs an eighth of them, for several
//! machines: all machines have to be at one commit, because how long suites took is read from the results that this
//! commit has. The result of a suite is written to [`results::FILE`] as it ends; `--merge` brings the files of several
//! machines together, and `--complete` says whether they show every suite on one commit.
//!
//! A result belongs to a commit, so nothing is recorded for a checkout with changes. Pages that a suite writes are moved
//! below the target folder, beside the suite's output. A suite that says that the machine lacks something
//! ([`needs::LACKS`]), or leaves a part of itself out, is recorded as skipped, with the reason.
//!
//! That no suite is forgotten is a rule of `tidy`.

mod results;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use rt::{Clock, SystemClock};
use support::shell::Line;
use support::{needs, workspace};

use self::results::{Results, Row, Verdict};
use crate::{accept, space, vm};

/// `cargo xtask everything`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run one of N parts that take about equally long, as `1/8`.
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<(usize, usize)>,
    /// Run only this suite; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The seed (default: made from the commit).
    #[arg(long)]
    seed: Option<u32>,
    /// Run nothing: print the suites, how long they took, and their commands.
    #[arg(long)]
    list: bool,
    /// Run nothing: take the results from these files that are newer than our own.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    merge: Vec<PathBuf>,
    /// Run nothing: fail unless every suite was run on one commit and none failed.
    #[arg(long)]
    complete: bool,
}

/// A suite, and the command that runs it. `{seed}` stands for the seed.
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) words: String,
}

/// Suites that no list of their command names.
const FIXED: [(&str, &str); 16] = [
    ("soak", "cargo xtask soak --minutes 60 --seed {seed}"),
    ("shuttle", "cargo xtask shuttle --times 20 --seed {seed}"),
    ("fuzz", "cargo xtask fuzz --seconds 60 --seed {seed}"),
    ("mutants", "cargo xtask mutants --count 100 --minutes 60 --seed {seed}"),
    ("coverage", "cargo xtask coverage"),
    ("knife", "cargo xtask knife --seed {seed}"),
    ("bench", "cargo xtask bench"),
    ("ycsb", "cargo xtask ycsb --seed {seed}"),
    ("setup-test", "cargo xtask setup-test"),
    ("sim flips", "cargo run --release --locked --package polder-sim -- flips --unmounted --seed {seed}"),
    ("sim fuzz", "cargo run --release --locked --package polder-sim -- fuzz"),
    ("sim shapes", "cargo run --release --locked --package polder-sim -- shapes --times 900 --seed {seed}"),
    ("sim shows", "cargo run --release --locked --package polder-sim -- shows --seeds 20 --seed {seed}"),
    ("sanitizer tree", "cargo xtask sanitizer --package polder-tree"),
    ("sanitizer extent", "cargo xtask sanitizer --package polder-extent"),
    ("sanitizer fs", "cargo xtask sanitizer --package polder-fs"),
];

/// No suite takes so long: it hangs.
const SECONDS_MAX: u64 = 6 * 3600;
/// For a suite that nobody has recorded yet.
const SECONDS_UNKNOWN: u64 = 900;
/// Pages that suites write into the checkout.
const PAGES: [&str; 3] = ["docs/performance.md", "docs/space.md", "docs/space"];
/// How lines begin in which a suite says that it leaves a part of itself out.
const LEFT_OUT: [&str; 2] = ["left out: ", "Skipped: "];
/// Lines of a failure's output that are printed.
const LINES_SHOWN: usize = 20;

/// All suites, each by its name.
pub(crate) fn suites() -> Vec<Suite> {
    let points = accept::POINTS.iter().map(|point| format!("accept {} --seed {{seed}}", point.number));
    let guests = vm::names().filter(|name| *name != vm::IN_GATE);
    let guests = guests.map(|name| format!("vm {name} --seed {{seed}}"));
    let pages = space::names().map(|name| format!("space --only {name}"));
    let listed = points.chain(guests).chain(pages).map(|words| {
        let name = words.replace(" --seed {seed}", "").replace("--only ", "");
        Suite { name, words: format!("cargo xtask {words}") }
    });
    let fixed = FIXED.iter().map(|(name, words)| Suite { name: (*name).into(), words: (*words).into() });
    listed.chain(fixed).collect()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = workspace::root().join(results::FILE);
    let mut results = Results::read(&path)?;
    if !args.merge.is_empty() {
        for file in &args.merge {
            results.merge(Results::read(file)?);
        }
        results.write(&path)?;
    }
    if args.complete {
        return results.check(&suites());
    }
    if !args.merge.is_empty() {
        return Ok(());
    }
    let chosen = chosen(args, &recorded()?)?;
    if args.list {
        let seconds =
            |name: &str| results.seconds(name).map_or("-".to_owned(), |seconds| seconds.to_string());
        chosen
            .iter()
            .for_each(|suite| println!("{:<18} {:>6} s  {}", suite.name, seconds(&suite.name), suite.words));
        return Ok(());
    }
    let checkout = Checkout(workspace::root());
    let seed = args.seed.map_or_else(|| accept::seed_of_commit().map(|seed| seed as u32), Ok)?;
    run_all(&chosen, &checkout, seed, |row| {
        // Another one may have recorded something meanwhile.
        let mut results = Results::read(&path)?;
        results.put(row);
        results.write(&path)
    })
}

/// Runs suites, whatever becomes of each, and hands each result on as it ends; an error at the end if one failed.
fn run_all(
    suites: &[Suite],
    checkout: &Checkout,
    seed: u32,
    mut record: impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let commit = checkout.commit()?;
    println!("everything: {} suites on {commit}, seed {seed}", suites.len());
    let mut rows = Vec::new();
    for suite in suites {
        let row = suite.run(checkout, &commit, seed)?;
        println!("=== {}: {} in {} s {}", row.suite, row.verdict, row.seconds, row.why);
        record(row.clone())?;
        rows.push((suite, row));
    }
    judge(&rows, seed)
}

/// Prints the suites that did not pass; an error if one failed.
fn judge(rows: &[(&Suite, Row)], seed: u32) -> Result<()> {
    let of = |verdict| rows.iter().filter(move |(_, row)| row.verdict == verdict);
    of(Verdict::Skipped).for_each(|(_, row)| println!("skipped: {}: {}", row.suite, row.why));
    for (suite, row) in of(Verdict::Failed) {
        println!("failed: {}: {}\n    repeat with: {}", row.suite, row.why, suite.line(seed));
    }
    let (failed, skipped) = (of(Verdict::Failed).count(), of(Verdict::Skipped).count());
    println!("everything: {} passed, {skipped} skipped, {failed} failed", rows.len() - failed - skipped);
    ensure!(failed == 0, "{failed} of {} suites failed", rows.len());
    Ok(())
}

/// The suites to run, the shortest first. A part is the same on every machine that is at this commit.
fn chosen(args: &Args, recorded: &Results) -> Result<Vec<Suite>> {
    let seconds = |suite: &Suite| recorded.seconds(&suite.name).unwrap_or(SECONDS_UNKNOWN);
    let mut suites = suites();
    for name in &args.only {
        ensure!(suites.iter().any(|suite| suite.name == *name), "no suite `{name}`; `--list` names them");
    }
    suites.retain(|suite| args.only.is_empty() || args.only.contains(&suite.name));
    suites.sort_by_key(seconds);
    if let Some((part, parts)) = args.shard {
        let mut taken = vec![0; parts];
        // The longest first, each to the part that has least.
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

fn shard(text: &str) -> Result<(usize, usize)> {
    let (part, parts) = text.split_once('/').context("a shard is given as I/N, for example 1/8")?;
    let (part, parts) = (part.parse()?, parts.parse()?);
    ensure!((1..=parts).contains(&part), "of {parts} shards, the first is 1 and the last {parts}");
    Ok((part, parts))
}

/// The results that the commit has.
fn recorded() -> Result<Results> {
    let (is_there, text) = Line::new("git show").arg(format!("HEAD:{}", results::FILE)).verdict()?;
    if is_there { Results::parse(&text) } else { Ok(Results::default()) }
}

/// The checkout on which suites run.
struct Checkout(PathBuf);

impl Checkout {
    /// Its commit; refused where it differs from that, but for the results.
    fn commit(&self) -> Result<String> {
        let changes = self.changes(&[".", &format!(":!{}", results::FILE)])?;
        if !changes.is_empty() {
            bail!(
                "a result is recorded for a commit, and this checkout has changes; commit or remove them:\n{changes}"
            );
        }
        Ok(self.git("rev-parse HEAD").output()?.trim().to_owned())
    }

    /// Moves pages that a suite has written into a folder, and restores those of the commit.
    fn move_pages(&self, folder: &Path) -> Result<()> {
        if self.changes(&PAGES)?.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        let copy = Line::new("cp --recursive --parents --target-directory").arg(folder).args(PAGES);
        copy.in_dir(&self.0).run()?;
        self.git("restore --staged --worktree --").args(PAGES).run()?;
        self.git("clean --quiet --force -d --").args(PAGES).run()
    }

    fn changes(&self, paths: &[&str]) -> Result<String> {
        self.git("status --porcelain --untracked-files=all --").args(paths).output()
    }

    fn git(&self, words: &str) -> Line {
        Line::new("git").args(words.split(' ')).in_dir(&self.0)
    }
}

impl Suite {
    fn line(&self, seed: u32) -> Line {
        Line::new(&self.words.replace("{seed}", &seed.to_string()))
    }

    /// Runs it to its end; an error if the checkout has changed meanwhile.
    fn run(&self, checkout: &Checkout, commit: &str, seed: u32) -> Result<Row> {
        let line = self.line(seed);
        println!("\n=== {}\n    {line}", self.name);
        let clock = SystemClock::new();
        let (status, log) = self.run_logged(&line)?;
        let seconds = clock.monotonic_ns() / 1_000_000_000;
        let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let (verdict, why) = verdict(status, &said);
        if verdict == Verdict::Failed {
            let lines: Vec<&str> = said.lines().collect();
            lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().for_each(|line| println!("  {line}"));
            println!("  all of it: {}", log.display());
        }
        checkout.move_pages(&self.kept("pages")?)?;
        let now =
            checkout.commit().with_context(|| format!("the result of `{}` is not recorded", self.name))?;
        ensure!(now == commit, "another commit was checked out while `{}` ran", self.name);
        let seed = self.words.contains("{seed}").then_some(seed);
        Row::new(&self.name, commit, seed, seconds, verdict, &why)
    }

    /// Its exit status, and the file with all that it said. It ends when this command does, and when it hangs.
    fn run_logged(&self, line: &Line) -> Result<(Option<i32>, PathBuf)> {
        let log = self.kept("log")?;
        let (output, errors) = (File::create(&log)?, File::options().append(true).open(&log)?);
        let limited = format!("setpriv --pdeathsig TERM timeout --kill-after 60 {SECONDS_MAX} {line}");
        let mut child = Line::new(&limited).start(Stdio::null(), output.into(), errors.into())?;
        Ok((child.wait()?.code(), log))
    }

    fn kept(&self, suffix: &str) -> Result<PathBuf> {
        let folder = workspace::target_dir()?.join("everything");
        fs::create_dir_all(&folder)?;
        Ok(folder.join(format!("{}.{suffix}", self.name.replace(' ', "-"))))
    }
}

/// The result that the exit status and the output of a suite show, and the reason if it did not pass.
fn verdict(status: Option<i32>, said: &str) -> (Verdict, String) {
    let last = |begin: &str| said.lines().rev().find_map(|line| line.trim_start().strip_prefix(begin));
    let left_out = || LEFT_OUT.iter().find_map(|begin| last(begin));
    match status {
        Some(0) => left_out()
            .map_or((Verdict::Passed, String::new()), |why| (Verdict::Skipped, format!("in part: {why}"))),
        Some(status) if status == i32::from(needs::LACKS) => {
            (Verdict::Skipped, last("error: ").unwrap_or("the machine lacks something").into())
        }
        Some(124 | 137) => (Verdict::Failed, format!("it had not ended after {SECONDS_MAX} s")),
        _ => (Verdict::Failed, last("error: ").unwrap_or("its output says why").into()),
    }
}

#[cfg(test)]
mod tests;

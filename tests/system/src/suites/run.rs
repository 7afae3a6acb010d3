//! Runs suites, each as a process of its own.
//!
//! A result belongs to a commit, so nothing is recorded for a checkout with changes. Pages that a suite writes are
//! moved below the target folder, beside the suite's output. A suite is recorded as skipped, with the reason, if it
//! reports that the machine lacks something ([`needs::LACKS`]) or that a part was left out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use rt::{Clock, SystemClock};
use support::shell::Line;
use support::{needs, workspace};

use super::results::{self, Row, Verdict};
use super::{Suite, line};

/// Time limit for a suite. A longer one hangs.
const SECONDS_MAX: u64 = 6 * 3600;
/// Pages that suites write into the checkout.
const PAGES: [&str; 3] = ["docs/results/performance.md", "docs/results/space.md", "docs/results/space"];
/// Prefixes of the lines with which a suite reports that a part was left out.
const LEFT_OUT: [&str; 2] = ["left out: ", "Skipped: "];
/// Lines of a failure's output that are printed.
const LINES_SHOWN: usize = 20;

/// Runs quick forms and shows their output. Nothing is recorded. Returns an error at the end if one failed.
pub(super) fn quick(suites: &[Suite], seed: u32) -> Result<()> {
    let mut failed = Vec::new();
    for suite in suites {
        let line = line(suite.words(true).context("the suite has no quick form")?, seed);
        println!("\n=== {}\n    {line}", suite.name);
        if let Err(error) = line.run() {
            println!("=== {}: failed: {error:#}", suite.name);
            failed.push(suite.name.as_str());
        }
    }
    ensure!(failed.is_empty(), "{} of {} suites failed: {}", failed.len(), suites.len(), failed.join(", "));
    println!("all {} suites have passed", suites.len());
    Ok(())
}

/// Runs long forms and passes each result to `record` as it ends. A failure does not end the others. Returns an error
/// at the end if one failed.
pub(super) fn recorded(
    suites: &[Suite],
    checkout: &Checkout,
    seed: u32,
    mut record: impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let commit = checkout.commit()?;
    println!("{} suites on {commit}, seed {seed}", suites.len());
    let mut rows = Vec::new();
    for suite in suites {
        let row = suite.run(checkout, &commit, seed)?;
        println!("=== {}: {} in {} s {}", row.suite, row.verdict, row.seconds, row.why);
        record(row.clone())?;
        rows.push((suite, row));
    }
    judge(&rows, seed)
}

/// Prints the suites that did not pass. Returns an error if one failed.
fn judge(rows: &[(&Suite, Row)], seed: u32) -> Result<()> {
    let of = |verdict| rows.iter().filter(move |(_, row)| row.verdict == verdict);
    of(Verdict::Skipped).for_each(|(_, row)| println!("skipped: {}: {}", row.suite, row.why));
    for (suite, row) in of(Verdict::Failed) {
        let repeat = line(suite.words(false).unwrap_or_default(), seed);
        println!("failed: {}: {}\n    repeat with: {repeat}", row.suite, row.why);
    }
    let (failed, skipped) = (of(Verdict::Failed).count(), of(Verdict::Skipped).count());
    println!("{} passed, {skipped} skipped, {failed} failed", rows.len() - failed - skipped);
    ensure!(failed == 0, "{failed} of {} suites failed", rows.len());
    Ok(())
}

/// The checkout on which suites run.
pub(super) struct Checkout(pub(super) PathBuf);

impl Checkout {
    /// The checkout from which this program was built.
    pub(super) fn ours() -> Checkout {
        Checkout(workspace::root())
    }

    /// Its commit. Refused if the checkout has changes, except to the results.
    pub(super) fn commit(&self) -> Result<String> {
        let changes = self.changes(&[".", &format!(":!{}", results::FILE)])?;
        if !changes.is_empty() {
            bail!(
                "a result is recorded for a commit, and this checkout has changes; commit or remove them:\n{changes}"
            );
        }
        Ok(self.git("rev-parse HEAD").output()?.trim().to_owned())
    }

    /// Moves the pages of a suite into a folder, and restores those of the commit.
    pub(super) fn move_pages(&self, folder: &Path) -> Result<()> {
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

    pub(super) fn git(&self, words: &str) -> Line {
        Line::new("git").args(words.split(' ')).in_dir(&self.0)
    }
}

impl Suite {
    /// Runs it to its end. Returns an error if the checkout has changed meanwhile.
    fn run(&self, checkout: &Checkout, commit: &str, seed: u32) -> Result<Row> {
        let words = self.words(false).context("the suite has no long form")?;
        let line = line(words, seed);
        println!("\n=== {}\n    {line}", self.name);
        let clock = SystemClock::new();
        let (status, log) = self.run_logged(&line)?;
        let seconds = clock.monotonic_ns() / 1_000_000_000;
        let printed = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let (verdict, why) = verdict(status, &printed);
        if verdict == Verdict::Failed {
            let lines: Vec<&str> = printed.lines().collect();
            lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().for_each(|line| println!("  {line}"));
            println!("  all of it: {}", log.display());
        }
        checkout.move_pages(&self.output_path("pages")?)?;
        let now =
            checkout.commit().with_context(|| format!("the result of `{}` is not recorded", self.name))?;
        ensure!(now == commit, "another commit was checked out while `{}` ran", self.name);
        let seed = words.contains("{seed}").then_some(seed);
        Row::new(&self.name, commit, seed, seconds, verdict, &why)
    }

    /// Its exit status, and the file with its output. The suite is ended with this command, and when it hangs.
    fn run_logged(&self, line: &Line) -> Result<(Option<i32>, PathBuf)> {
        let log = self.output_path("log")?;
        let (output, errors) = (File::create(&log)?, File::options().append(true).open(&log)?);
        let limited = format!("setpriv --pdeathsig TERM timeout --kill-after 60 {SECONDS_MAX} {line}");
        let mut child = Line::new(&limited).start(Stdio::null(), output.into(), errors.into())?;
        Ok((child.wait()?.code(), log))
    }

    fn output_path(&self, suffix: &str) -> Result<PathBuf> {
        let folder = workspace::target_dir()?.join("suites");
        fs::create_dir_all(&folder)?;
        Ok(folder.join(format!("{}.{suffix}", self.name.replace('/', "-"))))
    }
}

/// The result that the exit status and the output of a suite show, and the reason if it did not pass.
pub(super) fn verdict(status: Option<i32>, printed: &str) -> (Verdict, String) {
    let last = |begin: &str| printed.lines().rev().find_map(|line| line.trim_start().strip_prefix(begin));
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

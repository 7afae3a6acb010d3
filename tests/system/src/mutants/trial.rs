//! Tries one mutant: cargo-mutants makes the change in the copy, builds, and runs the tests of one package.
//!
//! cargo-nextest runs the tests, and stops at the first failure. The time limit follows from the time of the
//! unchanged tests, on this machine now.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rt::{Clock, SystemClock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::shell::Line;

use super::begun::Begun;
use super::copy::Copy;
use super::drawing::{self, Mutant};
use super::outcomes::{self, Outcome};
use super::showing::Tests;
use super::{ASKED, Asked, Package, together};

/// Time limit for tests, as a multiple of their unchanged time, plus half a minute. An endless mutant costs this, and
/// a busy machine must not be taken for an endless mutant.
const TIMES: u64 = 5;
const SECONDS_MORE: u64 = 30;
/// Address space of each program of a trial. An endless loop may well fill memory.
const ADDRESS_SPACE: u64 = 4 << 30;

/// The time limit for the tests of each package, in seconds.
pub(super) type SecondsMax = BTreeMap<&'static str, u64>;

/// The folder in which mutants are tried.
pub(crate) struct Trials<'a> {
    copy: &'a Copy,
    /// The output folder of cargo-mutants.
    folder: PathBuf,
}

/// The time limit for work that takes this many seconds without a change.
pub(super) fn seconds_max(seconds: u64) -> u64 {
    seconds * TIMES + SECONDS_MORE
}

/// Limits the memory of all programs that are started from here on.
pub(super) fn limit_memory() -> Result<()> {
    let maximum = getrlimit(Resource::As).maximum;
    let wanted = Rlimit { current: Some(ADDRESS_SPACE), maximum };
    setrlimit(Resource::As, wanted).context("cannot limit the memory of the trials")
}

impl<'a> Trials<'a> {
    pub(super) fn new(copy: &'a Copy, folder: &Path) -> Self {
        Trials { copy, folder: folder.to_owned() }
    }

    /// A hash of the sources.
    pub(super) fn sources(&self) -> u64 {
        self.copy.sources()
    }

    /// Builds and runs all tests without a change. They must pass.
    ///
    /// A run that was ended during compilation may have left artifacts that do not link, and then every mutant would
    /// fail to build. So these are removed first.
    pub(super) fn baseline(&self) -> Result<SecondsMax> {
        let parts = self.copy.root().join("target/debug/incremental");
        if parts.is_dir() {
            std::fs::remove_dir_all(parts).context("cannot begin anew")?;
        }
        let clock = SystemClock::new();
        let mut seconds_max = SecondsMax::new();
        for asked in ASKED {
            let line = Line::new("cargo nextest run --locked --package").arg(asked.package);
            let line = self.quickly_built(line.args(["--filterset", &asked.filter()]));
            line.clone().arg("--no-run").run()?;
            let started = clock.monotonic_ns();
            line.run().context("tests fail without a mistake: repair them first")?;
            let seconds = (clock.monotonic_ns() - started).div_ceil(1_000_000_000);
            println!("tests of {}: {seconds} s", asked.package);
            seconds_max.insert(asked.package, self::seconds_max(seconds));
        }
        Ok(seconds_max)
    }

    /// Builds as many of the open mutants together as possible, and measures the tests.
    pub(super) fn begin(&self, drawn: &[Mutant], open: &[&Mutant]) -> Result<Begun> {
        let folder = self.folder.join("together");
        let together = together::build(self.copy, &folder, open)?;
        let tests = Tests::measure(&together, &folder)?;
        tests.say();
        let begun = Begun { sources: self.sources(), drawn: drawn.to_vec(), built: together.mutants, tests };
        begun.save(&self.folder)?;
        Ok(begun)
    }

    /// Tries one after the other. Mutants that do not compile need no tests, so the tests may never be built.
    pub(super) fn alone(
        &self,
        mutants: &[&Mutant],
        is_late: impl Fn() -> bool,
        mut add: impl FnMut(&Mutant, Outcome) -> Result<()>,
    ) -> Result<()> {
        let mut seconds_max = None;
        for mutant in mutants {
            if is_late() {
                return Ok(());
            }
            if self.is_program(mutant)? {
                let seconds_max = match &seconds_max {
                    Some(seconds) => seconds,
                    None => seconds_max.insert(self.baseline()?),
                };
                add(mutant, self.of(mutant, seconds_max)?)?;
            } else {
                add(mutant, Outcome::Unviable)?;
            }
        }
        Ok(())
    }

    fn is_program(&self, mutant: &Mutant) -> Result<bool> {
        let line = self.line(mutant).args(["--check", "--cargo-arg", "--locked"]);
        Ok(self.outcome(&line, mutant, "check")? != Outcome::Unviable)
    }

    /// The outcome of a mutant.
    fn of(&self, mutant: &Mutant, seconds_max: &SecondsMax) -> Result<Outcome> {
        for &asked in Package::of(mutant)?.asked() {
            let outcome = self.shown_to(mutant, asked, seconds_max[asked.package])?;
            if outcome != Outcome::Missed {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Missed)
    }

    /// The result of the tests of one package.
    fn shown_to(&self, mutant: &Mutant, asked: Asked, seconds_max: u64) -> Result<Outcome> {
        let line = self.line(mutant).args(["--test-tool", "nextest", "--no-times"]);
        let line = line.args(["--cargo-arg", "--locked", "--test-package", asked.package]);
        let line = line.args(["--timeout", &seconds_max.to_string(), "--", "--filterset", &asked.filter()]);
        self.outcome(&line, mutant, asked.package)
    }

    /// Runs cargo-mutants. It exits with an error if a mutant was missed or timed out, so its written outcomes count.
    fn outcome(&self, line: &Line, mutant: &Mutant, by: &str) -> Result<Outcome> {
        let written = self.folder.join("mutants.out/outcomes.json");
        // Outcomes of an earlier run must not be taken for those of this run.
        std::fs::remove_file(&written).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let (_, printed) = line.outcome()?;
        let text = std::fs::read_to_string(&written)
            .with_context(|| format!("cargo-mutants wrote no outcomes; its output:\n{printed}"))?;
        outcomes::read(&text, &mutant.name, by)
            .with_context(|| format!("of {}; its output:\n{printed}", mutant.name))
    }

    fn line(&self, mutant: &Mutant) -> Line {
        let shard = format!("{}/{}", mutant.place.number, mutant.place.of);
        let line = drawing::cargo_mutants(self.copy)
            .args(["--in-place", "--baseline", "skip", "--shard", &shard, "--sharding", "slice"])
            .arg("--output")
            .arg(&self.folder);
        self.quickly_built(line)
    }

    /// A build for a single test run needs no debug information.
    fn quickly_built(&self, line: Line) -> Line {
        line.env("CARGO_PROFILE_DEV_DEBUG", "false").in_dir(self.copy.root())
    }
}

//! Trying one mutant: cargo-mutants makes the mistake in the copy, builds, and runs the tests of one package.
//!
//! The tests are run by cargo-nextest, which stops at the first that fails. How long they may take follows from how
//! long they take without a mistake, on this machine now.

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

/// Tests may take so many times what they take without a mistake, and half a minute more: a mutant that comes to no
/// end costs this, and a machine that does other things as well must not be taken for one.
const TIMES: u64 = 5;
const SECONDS_MORE: u64 = 30;
/// Bytes of address space for each program of a trial: a loop that does not end may well fill memory.
const ADDRESS_SPACE: u64 = 4 << 30;

/// How many seconds the tests of each package may take.
pub(super) type SecondsMax = BTreeMap<&'static str, u64>;

/// Where mutants are tried.
pub(crate) struct Trials<'a> {
    copy: &'a Copy,
    /// Where cargo-mutants writes what it did.
    folder: PathBuf,
}

/// How many seconds something may take that takes so many without a mistake.
pub(super) fn seconds_max(seconds: u64) -> u64 {
    seconds * TIMES + SECONDS_MORE
}

/// Bounds the memory of everything that is started from here on.
pub(super) fn limit_memory() -> Result<()> {
    let maximum = getrlimit(Resource::As).maximum;
    let wanted = Rlimit { current: Some(ADDRESS_SPACE), maximum };
    setrlimit(Resource::As, wanted).context("cannot bound the memory of what is tried")
}

impl<'a> Trials<'a> {
    pub(super) fn new(copy: &'a Copy, folder: &Path) -> Self {
        Trials { copy, folder: folder.to_owned() }
    }

    /// Which sources are tried.
    pub(super) fn sources(&self) -> u64 {
        self.copy.sources()
    }

    /// Builds and runs all tests without a mistake, which have to pass.
    ///
    /// A run that was ended amid a compiler's work may have left parts of that which link no more, and every mutant
    /// would be none: these go first.
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

    /// Builds as many of the open ones together as can be, and measures the tests.
    pub(super) fn begin(&self, drawn: &[Mutant], open: &[&Mutant]) -> Result<Begun> {
        let folder = self.folder.join("together");
        let together = together::build(self.copy, &folder, open)?;
        let tests = Tests::measure(&together, &folder)?;
        tests.say();
        let begun = Begun { sources: self.sources(), drawn: drawn.to_vec(), built: together.mutants, tests };
        begun.save(&self.folder)?;
        Ok(begun)
    }

    /// Tries one after the other. Those that are no program need no tests, so that these may never be built.
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

    /// What becomes of a mutant.
    fn of(&self, mutant: &Mutant, seconds_max: &SecondsMax) -> Result<Outcome> {
        for &asked in Package::of(mutant)?.asked() {
            let outcome = self.shown_to(mutant, asked, seconds_max[asked.package])?;
            if outcome != Outcome::Missed {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Missed)
    }

    /// What the tests of one package say.
    fn shown_to(&self, mutant: &Mutant, asked: Asked, seconds_max: u64) -> Result<Outcome> {
        let line = self.line(mutant).args(["--test-tool", "nextest", "--no-times"]);
        let line = line.args(["--cargo-arg", "--locked", "--test-package", asked.package]);
        let line = line.args(["--timeout", &seconds_max.to_string(), "--", "--filterset", &asked.filter()]);
        self.outcome(&line, mutant, asked.package)
    }

    /// Runs cargo-mutants. It ends with an error where a mutant was missed or came to no end; what counts is what it
    /// has written down.
    fn outcome(&self, line: &Line, mutant: &Mutant, by: &str) -> Result<Outcome> {
        let written = self.folder.join("mutants.out/outcomes.json");
        // Nothing of an earlier run may be taken for one of this.
        std::fs::remove_file(&written).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let (_, said) = line.outcome()?;
        let text = std::fs::read_to_string(&written)
            .with_context(|| format!("cargo-mutants wrote no outcomes; it said:\n{said}"))?;
        outcomes::read(&text, &mutant.name, by)
            .with_context(|| format!("of {}; it said:\n{said}", mutant.name))
    }

    fn line(&self, mutant: &Mutant) -> Line {
        let shard = format!("{}/{}", mutant.place.number, mutant.place.of);
        let line = drawing::cargo_mutants(self.copy)
            .args(["--in-place", "--baseline", "skip", "--shard", &shard, "--sharding", "slice"])
            .arg("--output")
            .arg(&self.folder);
        self.quickly_built(line)
    }

    /// What is built for one run of tests needs nothing for a debugger.
    fn quickly_built(&self, line: Line) -> Line {
        line.env("CARGO_PROFILE_DEV_DEBUG", "false").in_dir(self.copy.root())
    }
}

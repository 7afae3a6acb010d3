//! `cargo system coverage`: which lines and branches the gate runs, by crate (docs/testing.md).
//!
//! A nightly compiler, which alone counts branches, builds what the gate's step `tests` runs, and then what its
//! acceptance points run, as cargo-llvm-cov says; all of it little optimised and with assertions. What a process has
//! run is written into a file that is mapped into it, so that what is killed counts as well. Tests themselves are not
//! counted, nor are commands of this program. Of decoders, recovery, the allocator and garbage collection every line is
//! named that was not run: there a line that nobody runs has to have a reason. What is covered need not be tested: that
//! is asked by `cargo system mutants`.

mod lcov;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use support::shell::Line;
use support::{needs, workspace};

use crate::accept;

use lcov::{Count, Covered};

/// `cargo system coverage --lcov FILE`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run nothing: read what an earlier run wrote.
    #[arg(long)]
    lcov: Option<PathBuf>,
    /// Count what tests run, and not what acceptance points do.
    #[arg(long)]
    tests_only: bool,
}

/// Acceptance points that build Polder or something else in a folder of their own.
const BUILDERS: [u32; 2] = [1, 4];
/// What is built: fast to build, and fast enough to run the gate. Assertions are part of what is tested.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
    // Counts lie where a mapped file can be put in their place.
    ("RUSTFLAGS", "-Cllvm-args=-runtime-counter-relocation"),
];
/// Where counts are written, by each process for itself (`%p`), since not all are the same user: mapped (`%c`).
const WRITTEN: &str = "run-%p-%m%c.profraw";

/// Files of which every line is named that was not run: decoders, recovery, the allocator, garbage collection.
const NAMED: [&str; 38] = [
    "crates/extent/src/format.rs",
    "crates/extent/src/gc.rs",
    "crates/extent/src/gc/reading.rs",
    "crates/extent/src/pace.rs",
    "crates/extent/src/pace/ahead.rs",
    "crates/extent/src/pace/foreseen.rs",
    "crates/extent/src/place.rs",
    "crates/extent/src/recover.rs",
    "crates/extent/src/refcount.rs",
    "crates/extent/src/reserve.rs",
    "crates/extent/src/reverse.rs",
    "crates/extent/src/space.rs",
    "crates/fs/src/format.rs",
    "crates/pool/src/free.rs",
    "crates/pool/src/holds.rs",
    "crates/pool/src/pool.rs",
    "crates/pool/src/pool/blocks.rs",
    "crates/pool/src/pool/saved.rs",
    "crates/pool/src/rows.rs",
    "crates/pool/src/shares.rs",
    "crates/pool/src/state.rs",
    "crates/tree/src/checkpoint.rs",
    "crates/tree/src/delta.rs",
    "crates/tree/src/format.rs",
    "crates/tree/src/log.rs",
    "crates/tree/src/mat.rs",
    "crates/tree/src/page.rs",
    "crates/tree/src/reclaim.rs",
    "crates/tree/src/record.rs",
    "crates/tree/src/recover.rs",
    "crates/tree/src/recover/chunks.rs",
    "crates/tree/src/recover/headers.rs",
    "crates/tree/src/recover/missing.rs",
    "crates/tree/src/scan.rs",
    "crates/zone/src/file/format.rs",
    "crates/zone/src/format.rs",
    "crates/zone/src/zoned/nvme/format.rs",
    "crates/zone/src/zoned/report.rs",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = match &args.lcov {
        Some(path) => path.clone(),
        None => measure(args)?,
    };
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let covered = lcov::read(&text)?;
    println!("\n{}", table(&covered));
    for (name, lines) in not_run(&covered)? {
        println!("{name}: {lines}");
    }
    Ok(())
}

/// Runs the tests and the acceptance points, and returns where the counts are.
fn measure(args: &Args) -> Result<PathBuf> {
    needs::require(&needs::COVERAGE)?;
    // It alone counts branches.
    needs::require_nightly()?;
    needs::require_nightly_component("llvm-tools")?;
    let folder = workspace::target_dir()?.join("cov");
    open_to_all(&folder)?;
    let counting = Counting::in_folder(&folder)?;
    counting.run(Line::new("cargo llvm-cov clean --workspace"))?;
    counting.run(Line::new("cargo test --workspace --locked --release"))?;
    let own = std::env::current_exe().context("cannot find this program")?;
    for point in args.points() {
        let line = Line::program(&own).arg("accept").arg(point.to_string()).args(["--quick", "--seed", "1"]);
        counting.run(line)?;
    }
    let path = folder.join("lcov.info");
    counting.run(Line::new("cargo llvm-cov report --release --branch --lcov --output-path").arg(&path))?;
    Ok(path)
}

impl Args {
    /// The points whose programs are counted: each but those that build Polder themselves.
    fn points(&self) -> Vec<u32> {
        let all = accept::POINTS.iter().map(|point| point.number);
        all.filter(|number| !self.tests_only && !BUILDERS.contains(number)).collect()
    }
}

/// The environment in which a compiler makes programs that count, and these write down what they have run.
struct Counting(Vec<(String, String)>);

impl Counting {
    fn in_folder(folder: &Path) -> Result<Counting> {
        let folder = folder.to_str().context("the target folder's path is no UTF-8")?;
        let place = [("CARGO_TARGET_DIR", folder), ("RUSTUP_TOOLCHAIN", "nightly")];
        let asked = Line::new("cargo llvm-cov show-env --branch");
        let said = place.iter().fold(asked, |line, (key, value)| line.env(key, value)).output()?;
        let mut all = variables(&said)?;
        all.extend(place.map(|(key, value)| (key.to_owned(), value.to_owned())));
        all.extend(PROFILE.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let written = all.iter_mut().find(|(key, _)| key == "LLVM_PROFILE_FILE");
        let (_, written) = written.context("cargo-llvm-cov does not say where counts are written")?;
        *written = format!("{folder}/{WRITTEN}");
        Ok(Counting(all))
    }

    fn run(&self, line: Line) -> Result<()> {
        println!("    {line}");
        self.0.iter().fold(line, |line, (key, value)| line.env(key, value)).run()
    }
}

/// Lines such as `KEY='value'`.
fn variables(said: &str) -> Result<Vec<(String, String)>> {
    let variable = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
        Some((key.to_owned(), value.to_owned()))
    };
    let lines = said.lines().filter(|line| !line.is_empty());
    lines.map(|line| variable(line).with_context(|| format!("`{line}` is no variable"))).collect()
}

/// Where what was run is written down: by tests that run the command as somebody without rights too, which else would
/// say that it cannot, and fail.
fn open_to_all(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(0o1777)))
        .with_context(|| format!("cannot let everybody write to {}", folder.display()))
}

/// Lines and branches, by crate.
fn table(covered: &BTreeMap<String, Covered>) -> String {
    let mut counts: BTreeMap<&str, (Count, Count)> = BTreeMap::new();
    for (path, file) in covered {
        let Some(name) = crate_of(path) else { continue };
        let (lines, branches) = counts.entry(name).or_default();
        *lines += file.lines();
        *branches += file.branches();
    }
    let all = counts.values().fold((Count::default(), Count::default()), |mut sum, (lines, branches)| {
        sum.0 += *lines;
        sum.1 += *branches;
        sum
    });
    let mut text = "| crate | lines | run | branches | taken |\n|---|--:|--:|--:|--:|\n".to_owned();
    for (name, (lines, branches)) in counts.into_iter().chain([("all", all)]) {
        text += &format!("| {name} | {} | {lines} | {} | {branches} |\n", lines.of, branches.of);
    }
    text
}

/// The crate of a file that is part of the product or of its harnesses, and no test.
fn crate_of(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = file.ends_with("tests.rs") || file.contains("tests/");
    (!is_test).then_some(name)
}

/// For each file in which such lines are named, those that were not run, as `12, 20-23`. A file of which nothing is
/// known is a mistake in the list.
fn not_run(covered: &BTreeMap<String, Covered>) -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for name in NAMED {
        let file = covered.get(name).with_context(|| format!("nothing is known of {name}"))?;
        let lines = lcov::ranges(&file.not_run());
        all.push((name, if lines.is_empty() { "all lines are run".to_owned() } else { lines }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;

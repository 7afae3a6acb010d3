//! `cargo system coverage`: which lines and branches the gate runs, by crate (docs/testing.md).
//!
//! A nightly compiler, because only that counts branches, builds the programs of the gate's step `tests` and of its
//! acceptance points, as cargo-llvm-cov prescribes. They are little optimised and have assertions. Each process
//! writes its counts into a mapped file, so that killed processes count as well. Tests themselves are not counted,
//! nor are the commands of this program. For decoders, recovery, the allocator and garbage collection every line that
//! was not run is listed, because there it needs a reason. Covered code need not be tested: `cargo system mutants`
//! examines that.

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
    /// Run nothing: read the output of an earlier run.
    #[arg(long)]
    lcov: Option<PathBuf>,
    /// Count only the tests, and not the acceptance points.
    #[arg(long)]
    tests_only: bool,
}

/// Acceptance points that build Polder or other programs in a folder of their own.
const BUILDERS: [u32; 2] = [1, 4];
/// The build profile: fast to build, and fast enough to run the gate. Assertions are a part of the tested code.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
    // Puts the counters where a mapped file can replace them.
    ("RUSTFLAGS", "-Cllvm-args=-runtime-counter-relocation"),
];
/// The files of the counts, one for each process (`%p`), because not all run as the same user; mapped (`%c`).
const WRITTEN: &str = "run-%p-%m%c.profraw";

/// Files for which every line that was not run is listed: decoders, recovery, the allocator, garbage collection.
const NAMED: [&str; 50] = [
    "crates/extent/src/append.rs",
    "crates/extent/src/budget.rs",
    "crates/extent/src/charges.rs",
    "crates/extent/src/format.rs",
    "crates/extent/src/gc/collector.rs",
    "crates/extent/src/gc/debt.rs",
    "crates/extent/src/gc/mover.rs",
    "crates/extent/src/gc/reading.rs",
    "crates/extent/src/headroom.rs",
    "crates/extent/src/place.rs",
    "crates/extent/src/recover.rs",
    "crates/extent/src/refcount.rs",
    "crates/extent/src/reserve.rs",
    "crates/extent/src/reverse.rs",
    "crates/extent/src/supply.rs",
    "crates/extent/src/throttle.rs",
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
    "crates/tree/src/checkpoint/record.rs",
    "crates/tree/src/checkpoint/write_nodes.rs",
    "crates/tree/src/delta.rs",
    "crates/tree/src/format.rs",
    "crates/tree/src/headroom.rs",
    "crates/tree/src/headroom/garbage.rs",
    "crates/tree/src/log.rs",
    "crates/tree/src/mat.rs",
    "crates/tree/src/metadata_gc.rs",
    "crates/tree/src/metadata_gc/move_pages.rs",
    "crates/tree/src/metadata_zone.rs",
    "crates/tree/src/page.rs",
    "crates/tree/src/record.rs",
    "crates/tree/src/recover.rs",
    "crates/tree/src/recover/chunks.rs",
    "crates/tree/src/recover/headers.rs",
    "crates/tree/src/recover/missing.rs",
    "crates/tree/src/scan.rs",
    "crates/tree/src/tables.rs",
    "crates/tree/src/zones.rs",
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

/// Runs the tests and the acceptance points. Returns the path of the counts.
fn measure(args: &Args) -> Result<PathBuf> {
    needs::require(&needs::COVERAGE)?;
    // Only this compiler counts branches.
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
    /// The points whose programs are counted: all except those that build Polder themselves.
    fn points(&self) -> Vec<u32> {
        let all = accept::POINTS.iter().map(|point| point.number);
        all.filter(|number| !self.tests_only && !BUILDERS.contains(number)).collect()
    }
}

/// The environment in which a compiler builds counting programs, and in which these write their counts.
struct Counting(Vec<(String, String)>);

impl Counting {
    fn in_folder(folder: &Path) -> Result<Counting> {
        let folder = folder.to_str().context("the target folder's path is no UTF-8")?;
        let place = [("CARGO_TARGET_DIR", folder), ("RUSTUP_TOOLCHAIN", "nightly")];
        let asked = Line::new("cargo llvm-cov show-env --branch");
        let printed = place.iter().fold(asked, |line, (key, value)| line.env(key, value)).output()?;
        let mut all = variables(&printed)?;
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
fn variables(printed: &str) -> Result<Vec<(String, String)>> {
    let variable = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
        Some((key.to_owned(), value.to_owned()))
    };
    let lines = printed.lines().filter(|line| !line.is_empty());
    lines.map(|line| variable(line).with_context(|| format!("`{line}` is no variable"))).collect()
}

/// Allows all users to write counts. Tests also run the command as a user without rights, which would otherwise
/// report an error and fail.
fn open_to_all(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::set_permissions(folder, Permissions::from_mode(0o1777)))
        .with_context(|| format!("cannot make {} writable for all users", folder.display()))
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

/// The crate of a file that belongs to the product or its harnesses, and is no test.
fn crate_of(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = file.ends_with("tests.rs") || file.contains("tests/");
    (!is_test).then_some(name)
}

/// The lines that were not run, for each listed file, as `12, 20-23`. A file without counts is an error in the list.
fn not_run(covered: &BTreeMap<String, Covered>) -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for name in NAMED {
        let file = covered.get(name).with_context(|| format!("there are no counts for {name}"))?;
        let lines = lcov::ranges(&file.not_run());
        all.push((name, if lines.is_empty() { "all lines are run".to_owned() } else { lines }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;

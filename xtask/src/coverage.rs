//! `cargo xtask coverage`: which lines and branches the workspace's tests run, by crate (docs/testing.md).
//!
//! cargo-llvm-cov builds and runs what the gate's step `tests` runs, with a nightly compiler, which alone counts
//! branches. Tests themselves are not counted, nor are commands of this program. Of decoders, recovery, the allocator
//! and garbage collection every line is named that no test has run: there a line that nobody runs has to have a
//! reason. What is covered need not be tested: that is asked by `cargo xtask mutants`.

mod lcov;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::shell::Line;
use crate::{setup, workspace};

use lcov::{Count, Covered};

/// `cargo xtask coverage --lcov FILE`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run nothing: read what an earlier run wrote.
    #[arg(long)]
    lcov: Option<PathBuf>,
}

/// Files of which every line is named that was not run: decoders, recovery, the allocator, garbage collection.
const NAMED: [&str; 33] = [
    "crates/extent/src/format.rs",
    "crates/extent/src/gc.rs",
    "crates/extent/src/gc/reading.rs",
    "crates/extent/src/pace.rs",
    "crates/extent/src/place.rs",
    "crates/extent/src/recover.rs",
    "crates/extent/src/refcount.rs",
    "crates/extent/src/reserve.rs",
    "crates/extent/src/reverse.rs",
    "crates/extent/src/space.rs",
    "crates/fs/src/format.rs",
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
    "crates/tree/src/zones.rs",
    "crates/tree/src/zones/engaged.rs",
    "crates/tree/src/zones/free.rs",
    "crates/tree/src/zones/resets.rs",
    "crates/tree/src/zones/shares.rs",
    "crates/zone/src/file/format.rs",
    "crates/zone/src/format.rs",
    "crates/zone/src/zoned/nvme/format.rs",
    "crates/zone/src/zoned/report.rs",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = match &args.lcov {
        Some(path) => path.clone(),
        None => measure()?,
    };
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let covered = lcov::read(&text)?;
    println!("\n{}", table(&covered));
    for (name, lines) in not_run(&covered)? {
        println!("{name}: {lines}");
    }
    Ok(())
}

/// Runs the tests and returns where the counts are.
fn measure() -> Result<PathBuf> {
    setup::require(&setup::COVERAGE)?;
    ensure!(
        setup::has_nightly(),
        "there is no nightly compiler, which counts branches; run: {}",
        setup::nightly_line()
    );
    let parts = Line::new("rustup component add llvm-tools --toolchain nightly");
    parts.run()?;
    let target = workspace::target_dir()?;
    open_to_all(&target.join("llvm-cov-target"))?;
    let path = target.join("lcov.info");
    let line = Line::new("cargo +nightly llvm-cov test --branch --workspace --locked --lcov --output-path");
    let line = line.arg(&path);
    println!("    {line}");
    line.run()?;
    Ok(path)
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

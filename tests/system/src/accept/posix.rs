//! Point 6: the whole file system, tested by suites for other file systems, and by our own where those are not
//! enough.
//!
//! * `pjdfstest`, as root, on a mount and on an ext4 for comparison: no failure, and everything that passes on ext4
//!   passes on Polder, except for excludes with a reason.
//! * `fsx` on mounts of many geometries, each so full that GC has to move data.
//! * Direct writes, zeroed ranges and searches for holes, mixed with cached writes, which `fsx` does not support: on
//!   the same geometries.
//! * Handles of files, which outlive names, the kernel's caches and mounts.
//! * The library, with collapsed and inserted ranges, which no mount supports.
//!
//! The quick form takes all of pjdfstest, a few thousand operations of `fsx` on two geometries and of ours on one,
//! and leaves the library to the gate's tests.

mod direct;
mod fsx;
mod handles;
mod pjdfstest;

use anyhow::{Result, ensure};
use support::needs;
use support::shell::Line;

use super::{Report, Run};

/// Operations on each of the six shapes of the library's exerciser.
const LIBRARY_OPERATIONS: u64 = 100_000;
const LIBRARY_SHAPES: u64 = 6;

pub(super) fn run(run: &Run) -> Result<Report> {
    needs::require_root("change users and mount an ext4")?;
    let passed = pjdfstest::run()?;
    let mut geometry = vec![passed.geometry];
    let mut counts = vec![
        ("tests of pjdfstest passed", passed.tests),
        ("tests of pjdfstest passed on ext4", passed.tests_of_ext4),
    ];
    counts.push(("files found by their handles", handles::run()?));
    let mut moved_bytes = 0;
    let mut operations = 0;
    for shape in fsx::SHAPES.iter().filter(|shape| shape.operations(run.quick) > 0) {
        let done = fsx::run(shape, run)?;
        geometry.push(done.geometry);
        operations += shape.operations(run.quick);
        moved_bytes += done.moved_bytes;
    }
    counts.extend([("operations of fsx", operations), ("bytes moved by garbage collection", moved_bytes)]);
    let more = if run.quick { [].iter() } else { fsx::SHAPES.iter() };
    let mut operations = 0;
    for shape in std::iter::once(&direct::SMALL).chain(more) {
        geometry.push(direct::run(shape, run)?);
        operations += shape.operations(run.quick);
    }
    counts.push(("operations beside O_DIRECT", operations));
    if !run.quick {
        exercise_library(run.seed)?;
        counts.push(("operations through the library", LIBRARY_SHAPES * LIBRARY_OPERATIONS));
    }
    Ok(Report { geometry: geometry.join("\n          "), counts })
}

/// The exerciser in the tests of the crate `fs`, with many operations.
fn exercise_library(seed: u64) -> Result<()> {
    let line = Line::new("cargo test --release --locked --package polder-fs --test all exerciser")
        .args(["--", "--nocapture"])
        .env("POLDER_FSX_OPERATIONS", &LIBRARY_OPERATIONS.to_string())
        .env("POLDER_FSX_SEED", &seed.to_string());
    println!("{line}");
    let mut shapes = 0;
    line.run_watched(|line| shapes += u64::from(line.starts_with("fsx ")))?;
    ensure!(shapes == LIBRARY_SHAPES, "{shapes} shapes were exercised, not {LIBRARY_SHAPES}");
    Ok(())
}

//! Acceptance points: the promises of the project, shown from outside.
//!
//! A point is a function in a file of its own under `accept/`, and one line in [`POINTS`]. It gets a seed, reports
//! its geometry and its counts, and fails with an error. To add one: write `accept/NAME.rs` with `pub(super) fn
//! run(&Run) -> Result<Report>` and name it here. The gate runs `--quick` of every point.

mod crash_cuts;
mod endurance;
mod ext4;
mod fresh_clone;
mod full_volume;
mod kills;
mod large_metadata;
mod many_zones;
mod mounting;
mod posix;
pub(crate) mod programs;
pub(crate) mod real_input;
mod scale;
pub(crate) mod simulator;
mod trust;
pub(crate) mod volume;

use anyhow::{Context, Result, bail, ensure};
use support::shell::Line;
use support::workspace;

/// All points.
pub(crate) const POINTS: &[Point] = &[
    Point {
        number: 1,
        name: "fresh-clone",
        title: "a fresh clone mounts a volume and passes the gate with the README's two commands",
        run: fresh_clone::run,
    },
    Point {
        number: 2,
        name: "power-cuts",
        title: "a loss of power at any device command leaves what was promised, and again after it; \
                the long form plants every bug that the simulator knows (`polder-sim planted`), and each is noticed",
        run: crash_cuts::run,
    },
    Point {
        number: 3,
        name: "kills",
        title: "the daemon may be killed at any moment, and nothing that was acknowledged is lost",
        run: kills::run,
    },
    Point {
        number: 4,
        name: "real-input",
        title: "real programs find what they put there, after a crash too: tar, git, cargo",
        run: real_input::run,
    },
    Point {
        number: 5,
        name: "large-metadata",
        title: "metadata larger than the cache stays within its memory and mounts at once after a crash",
        run: large_metadata::run,
    },
    Point {
        number: 6,
        name: "posix",
        title: "a mount passes what ext4 passes of pjdfstest, and fsx finds nothing on any geometry",
        run: posix::run,
    },
    Point {
        number: 7,
        name: "mounting",
        title: "a volume is mounted as people do it: mount, fstab, fsck, systemd, read-only, over a dead mount",
        run: mounting::run,
    },
    Point {
        number: 8,
        name: "full-volume",
        title: "a volume takes what it offers and not a block more, can be written over, and offers it again",
        run: full_volume::run,
    },
    Point {
        number: 9,
        name: "endurance",
        title: "for many times its capacity a volume, full or not, takes what fits and no more, loses and leaks nothing",
        run: endurance::run,
    },
    Point {
        number: 10,
        name: "programs",
        title: "databases and other programs run on a mount as they do on ext4",
        run: programs::run,
    },
    Point {
        number: 11,
        name: "scale",
        title: "a million files cost no more than twice what ten thousand cost, each; files of 8 EiB, of a million extents",
        run: scale::run,
    },
    Point {
        number: 12,
        name: "trust",
        title: "every state after a loss of power, every fault and every flipped bit is promised, harmless or reported",
        run: trust::run,
    },
    Point {
        number: 13,
        name: "many-zones",
        title: "a hundred thousand zones cost what is used of them: mounts, memory, choosing what to empty",
        run: many_zones::run,
    },
];

/// One acceptance point.
pub(crate) struct Point {
    /// Its number, by which documents cite it.
    pub(crate) number: u32,
    /// Its name. `cargo system accept` takes this or the number.
    pub(crate) name: &'static str,
    title: &'static str,
    run: fn(&Run) -> Result<Report>,
}

/// The parameters of a run.
pub(crate) struct Run {
    /// The short form, for the gate. The file of a point says what it leaves out.
    pub(crate) quick: bool,
    /// The seed of all random choices.
    pub(crate) seed: u64,
}

/// The results of a point that passed.
pub(crate) struct Report {
    /// Its geometry: devices, zones, sizes.
    pub(crate) geometry: String,
    /// Its counts. None may be zero, because a zero count proves nothing.
    pub(crate) counts: Vec<(&'static str, u64)>,
}

/// `cargo system accept POINT [--quick] [--seed SEED]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name or the number of a point (none: list them).
    point: Option<String>,
    /// The short form that the gate runs.
    #[arg(long)]
    quick: bool,
    /// The seed of all random choices (default: made from the commit, so that every commit tries something new and
    /// the same commit the same).
    #[arg(long)]
    seed: Option<u64>,
}

/// `cargo system growth [--quick]`: one part of point 11.
#[derive(clap::Args)]
pub(crate) struct GrowthArgs {
    /// Fewer kinds of things, as in the gate.
    #[arg(long)]
    quick: bool,
}

/// Runs the growth comparison and prints its counts.
pub(crate) fn run_growth(args: &GrowthArgs) -> Result<()> {
    show(&scale::growth::run(&Run { quick: args.quick, seed: 0 })?)
}

/// Runs one point, or lists them.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(wanted) = &args.point else {
        POINTS.iter().for_each(|point| println!("{:>3}  {:<14}  {}", point.number, point.name, point.title));
        return Ok(());
    };
    let point = find(wanted)?;
    let number = point.number;
    let seed = args.seed.map_or_else(seed_of_commit, Ok)?;
    let run = Run { quick: args.quick, seed };
    println!("Point {number}: {}\nseed: {seed}", point.title);
    println!("repeat with: {}", repeat(point, &run));
    let report = (point.run)(&run).with_context(|| format!("point {number} failed"))?;
    show(&report)?;
    println!("Point {number} holds{}.", if run.quick { " (quick form)" } else { "" });
    Ok(())
}

fn find(wanted: &str) -> Result<&'static Point> {
    let is_wanted = |point: &&Point| point.name == wanted || point.number.to_string() == wanted;
    POINTS.iter().find(is_wanted).with_context(|| {
        let known: Vec<&str> = POINTS.iter().map(|point| point.name).collect();
        format!("there is no acceptance point `{wanted}`; there are: {}", known.join(", "))
    })
}

fn repeat(point: &Point, run: &Run) -> Line {
    let line = Line::new("cargo system accept").arg(point.name);
    let line = if run.quick { line.arg("--quick") } else { line };
    line.arg("--seed").arg(run.seed.to_string())
}

/// The first 64 bits of the commit's name.
pub(crate) fn seed_of_commit() -> Result<u64> {
    let commit = workspace::head_commit()?;
    let head = commit.get(..16).context("git names the commit with fewer than 16 digits")?;
    u64::from_str_radix(head, 16).context("git names the commit with something not hexadecimal")
}

/// Prints the results. A point that counted nothing fails.
fn show(report: &Report) -> Result<()> {
    ensure!(!report.geometry.trim().is_empty(), "the point does not report its geometry");
    ensure!(!report.counts.is_empty(), "the point counted nothing");
    println!("geometry: {}", report.geometry.trim());
    for (what, count) in &report.counts {
        println!("{what}: {count}");
        if *count == 0 {
            bail!("the point counted no {what}, so it has shown nothing about them");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

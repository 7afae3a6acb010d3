//! Point 1: in a fresh clone of the repository, the two commands of the README create a mounted volume and run a
//! passing gate, without any other preparation.
//!
//! The whole form clones the last commit and runs both commands in the clone, as the README has them, with nothing
//! built before. The quick form checks that the README still contains them, and runs the first one from this
//! checkout, in a folder of its own. Both forms write to the mount, unmount it, mount it again and compare.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::mounts::{is_mounted, umount_line};
use support::shell::Line;
use support::workspace;

use super::{Report, Run};

/// The README's two commands.
const TRY: &str = "cargo xtask try";
const GATE: &str = "cargo xtask ci";

/// The number of files to write and read back, and the length of the largest.
const FILES: usize = 32;
const LONGEST: usize = 256 * 1024;

pub(super) fn run(run: &Run) -> Result<Report> {
    let readme = std::fs::read_to_string(workspace::root().join("README.md")).context("no README.md")?;
    let commands = check_readme(&readme)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let checkout = if run.quick { Checkout::ours() } else { Checkout::clone(folder.path())? };
    let mount = Mount::new(&checkout, folder.path());
    let files = files(run.seed);
    let geometry = round_trip(&mount, &files)?;
    let mut counts = vec![
        ("commands of the README found", commands),
        ("mounts", mount.times.get()),
        ("files compared", files.len() as u64),
        ("bytes compared", files.iter().map(|file| file.len() as u64).sum()),
    ];
    if !run.quick {
        checkout.line(GATE).run()?;
        counts.push(("gates passed", 1));
    }
    Ok(Report { geometry, counts })
}

/// Checks that both commands are on lines of their own, in fenced blocks. Returns how many were found.
fn check_readme(readme: &str) -> Result<u64> {
    let commands: Vec<&str> = support::markdown::fenced_lines(readme).map(|(_, line)| line).collect();
    let mut found = 0;
    for wanted in [TRY, GATE] {
        ensure!(commands.contains(&wanted), "README.md has no fenced line `{wanted}`");
        found += 1;
    }
    Ok(found)
}

/// The directory in which the README's commands run.
struct Checkout {
    dir: PathBuf,
    /// A clone may have to fetch dependencies that this checkout already has.
    may_fetch: bool,
}

impl Checkout {
    fn ours() -> Self {
        Checkout { dir: workspace::root(), may_fetch: false }
    }

    /// A clone of the last commit. Uncommitted changes are not in it, and are reported.
    fn clone(folder: &Path) -> Result<Self> {
        let changed = Line::new("git status --porcelain").output()?;
        if !changed.is_empty() {
            println!("Not in the clone, because not committed:\n{changed}");
        }
        let dir = folder.join("clone");
        Line::new("git clone --quiet .").arg(&dir).run()?;
        Ok(Checkout { dir, may_fetch: true })
    }

    /// A command of the README, run in this checkout with its build folder.
    fn line(&self, command: &str) -> Line {
        let line = Line::new(command).in_dir(&self.dir).without_env("CARGO_TARGET_DIR");
        if self.may_fetch { line.without_env("CARGO_NET_OFFLINE") } else { line }
    }

    /// The command as built by this checkout.
    fn polder(&self) -> PathBuf {
        self.dir.join("target/release/polder")
    }
}

/// Writes, unmounts, mounts again, and compares. Returns the output of `polder info`.
fn round_trip(mount: &Mount<'_>, files: &[Vec<u8>]) -> Result<String> {
    mount.mount()?;
    for (number, bytes) in files.iter().enumerate() {
        std::fs::write(mount.file(number), bytes).with_context(|| format!("cannot write file {number}"))?;
    }
    mount.unmount()?;
    mount.mount()?;
    for (number, bytes) in files.iter().enumerate() {
        let found =
            std::fs::read(mount.file(number)).with_context(|| format!("cannot read file {number}"))?;
        ensure!(found == *bytes, "file {number} changed while it was not mounted");
    }
    mount.unmount()?;
    Line::program(mount.checkout.polder()).arg("check").arg(&mount.volume).run()?;
    Line::program(mount.checkout.polder()).arg("info").arg(&mount.volume).output()
}

/// Files of all lengths from nothing to [`LONGEST`].
fn files(seed: u64) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut lengths: Vec<usize> = (0..FILES).map(|_| random.usize(..=LONGEST)).collect();
    lengths[0] = 0;
    lengths[1] = LONGEST;
    lengths
        .into_iter()
        .map(|length| std::iter::repeat_with(|| random.u8(..)).take(length).collect())
        .collect()
}

/// A volume and a mount made by `cargo xtask try`. Removed in any case.
struct Mount<'a> {
    checkout: &'a Checkout,
    volume: PathBuf,
    dir: PathBuf,
    /// How often it was mounted.
    times: Cell<u64>,
}

impl<'a> Mount<'a> {
    fn new(checkout: &'a Checkout, folder: &Path) -> Self {
        Mount { checkout, volume: folder.join("volume"), dir: folder.join("mnt"), times: Cell::new(0) }
    }

    fn mount(&self) -> Result<()> {
        self.checkout.line(TRY).arg(&self.dir).arg("--volume").arg(&self.volume).run()?;
        ensure!(is_mounted(&self.dir)?, "`{TRY}` ended well, but nothing is mounted");
        self.times.set(self.times.get() + 1);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        umount_line(&self.checkout.polder(), &self.dir).run()?;
        ensure!(!is_mounted(&self.dir)?, "`polder umount` ended well, but the mount is still there");
        Ok(())
    }

    fn file(&self, number: usize) -> PathBuf {
        self.dir.join(format!("file-{number}"))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        if matches!(is_mounted(&self.dir), Ok(true)) {
            let line = Line::new("fusermount3 -u -z").arg(&self.dir);
            if let Err(error) = line.run() {
                println!("a mount is left behind: {error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests;

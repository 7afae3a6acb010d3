//! Point 1: whoever clones the repository gets a mounted volume, and a gate that passes, with the
//! two commands that the README names and nothing else.
//!
//! The whole form clones the last commit and runs both commands in the clone, as the README has
//! them, with nothing built before. The quick form checks that the README still names them and runs
//! the first from this checkout, in a folder of its own. Both write to the mount, take it away,
//! mount it again and compare.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Report, Run};
use crate::shell::Line;
use crate::try_volume::{is_mounted, umount_line};
use crate::workspace;

/// The README's two commands.
const TRY: &str = "cargo xtask try";
const GATE: &str = "cargo xtask ci";

/// The files that are written and read back, and the length of the largest.
const FILES: usize = 32;
const LONGEST: usize = 256 * 1024;

pub(super) fn run(run: &Run) -> Result<Report> {
    let readme = std::fs::read_to_string(workspace::root().join("README.md")).context("no README.md")?;
    check_readme(&readme)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let checkout = if run.quick { workspace::root() } else { clone(folder.path())? };
    let mount = Mount::new(&checkout, folder.path());
    let files = files(run.seed);
    let geometry = round_trip(&mount, &files)?;
    let mut counts = vec![
        ("commands of the README found", 2),
        ("mounts", 2),
        ("files compared", files.len() as u64),
        ("bytes compared", files.iter().map(|file| file.len() as u64).sum()),
    ];
    if !run.quick {
        in_checkout(GATE, &checkout).run()?;
        counts.push(("gates passed", 1));
    }
    Ok(Report { geometry, counts })
}

/// Both commands stand on lines of their own, in fenced blocks.
fn check_readme(readme: &str) -> Result<()> {
    let commands: Vec<&str> = crate::tidy::fenced_lines(readme).map(|(_, line)| line).collect();
    for wanted in [TRY, GATE] {
        ensure!(commands.contains(&wanted), "README.md has no fenced line `{wanted}`");
    }
    Ok(())
}

/// A clone of the last commit; what is not committed is not in it, and is said.
fn clone(folder: &Path) -> Result<PathBuf> {
    let changed = Line::new("git status --porcelain").output()?;
    if !changed.is_empty() {
        println!("Not in the clone, because not committed:\n{changed}");
    }
    let clone = folder.join("clone");
    Line::new("git clone --quiet .").arg(&clone).run()?;
    Ok(clone)
}

/// A command of the README, run as someone would who has just cloned: with no folder of ours.
fn in_checkout(command: &str, checkout: &Path) -> Line {
    Line::new(command).in_dir(checkout).without_env("CARGO_TARGET_DIR").without_env("CARGO_NET_OFFLINE")
}

/// Writes, unmounts, mounts again, compares; returns what `polder info` says of the volume.
fn round_trip(mount: &Mount, files: &[Vec<u8>]) -> Result<String> {
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
    Line::program(mount.polder()).arg("check").arg(&mount.volume).run()?;
    Line::program(mount.polder()).arg("info").arg(&mount.volume).output()
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

/// A volume and a mount made by `cargo xtask try`; taken away whatever happens.
struct Mount {
    checkout: PathBuf,
    volume: PathBuf,
    dir: PathBuf,
}

impl Mount {
    fn new(checkout: &Path, folder: &Path) -> Self {
        Mount { checkout: checkout.to_owned(), volume: folder.join("volume"), dir: folder.join("mnt") }
    }

    fn mount(&self) -> Result<()> {
        in_checkout(TRY, &self.checkout).arg(&self.dir).arg("--volume").arg(&self.volume).run()?;
        ensure!(is_mounted(&self.dir)?, "`{TRY}` ended well, but nothing is mounted");
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        umount_line(&self.polder(), &self.dir).run()?;
        ensure!(!is_mounted(&self.dir)?, "`polder umount` ended well, but the mount is still there");
        Ok(())
    }

    fn file(&self, number: usize) -> PathBuf {
        self.dir.join(format!("file-{number}"))
    }

    /// The command as the checkout has built it.
    fn polder(&self) -> PathBuf {
        self.checkout.join("target/release/polder")
    }
}

impl Drop for Mount {
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

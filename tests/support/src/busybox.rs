//! The guest's shell and tools: a `busybox` that needs no libraries.
//!
//! It is the distribution's package `busybox-static`, unpacked and never installed. A `busybox` of the machine is not
//! used: Debian has two of that name that exclude each other, and the ordinary one, which `initramfs-tools` brings, is
//! linked dynamically, so that the guest's kernel finds nothing that it can run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use crate::machine::is_static;
use crate::packages::{Source, renew};
use crate::shell::Line;

const SUITE: &str = "bookworm";
const PACKAGE: &str = "busybox-static";
/// Where it lies in the package.
const PROGRAM: &str = "bin/busybox";

/// The program; fetched now where it is not there yet.
pub fn fetch(home: &Path) -> Result<PathBuf> {
    fs::create_dir_all(home)?;
    let kept = home.join("busybox");
    if check(&kept).is_err() {
        renew(home, &kept, |work, made| {
            let unpacked = Source::of(SUITE, work)?.unpack(&[PACKAGE])?;
            fs::rename(unpacked.join(PROGRAM), made)
                .with_context(|| format!("{PACKAGE} has no {PROGRAM}"))?;
            check(made)
        })?;
    }
    Ok(kept)
}

/// Fails where the guest's kernel could not run it.
fn check(program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let is_executable = program.metadata()?.permissions().mode() & 0o111 != 0;
    let wrong = if is_executable { is_static(&bytes) } else { Err("it is not executable".to_owned()) };
    wrong.map_err(|reason| anyhow!("{} does not run in the guest of `vm`: {reason}", program.display()))
}

/// One of its tools.
pub fn line(busybox: &Path, words: &str) -> Line {
    Line::program(busybox).args(words.split(' '))
}

#[cfg(test)]
mod tests;

//! The tools for the kernel's own zoned file systems: packaged programs that are newer than this machine's, with the
//! libraries that they were built for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use support::packages::{Source, renew};

/// The suite with the newest packages. Only it has an `mkfs.xfs` that supports zones.
const SUITE: &str = "sid";
/// The programs, and their packages.
const PROGRAMS: [(&str, &str); 3] =
    [("mkfs.xfs", "xfsprogs"), ("mkfs.f2fs", "f2fs-tools"), ("mkfs.btrfs", "btrfs-progs")];
/// The libraries of these programs.
const LIBRARIES: [&str; 9] = [
    "libc6",
    "libblkid1",
    "libuuid1",
    "libinih1",
    "liburcu8t64",
    "libudev1",
    "libzstd1",
    "zlib1g",
    "liblzo2-2",
];
/// The folder of libraries in a package, including their loader.
const FOLDER: &str = "usr/lib/x86_64-linux-gnu";

/// A folder with the programs (`bin`) and the libraries (`lib`). Fetched now if it does not exist.
pub(super) fn fetch(home: &Path) -> Result<PathBuf> {
    let kept = home.join("peers");
    if !kept.is_dir() {
        renew(home, &kept, |work, made| {
            let packages: Vec<&str> = PROGRAMS.iter().map(|(_, package)| *package).chain(LIBRARIES).collect();
            gather(&Source::of(SUITE, work)?.unpack(&packages)?, made)
        })?;
    }
    Ok(kept)
}

/// Takes the needed files out of unpacked packages.
fn gather(unpacked: &Path, made: &Path) -> Result<()> {
    let (programs, libraries) = (made.join("bin"), made.join("lib"));
    fs::create_dir_all(&programs)?;
    fs::create_dir_all(&libraries)?;
    for (program, package) in PROGRAMS {
        let from = unpacked.join("usr/sbin").join(program);
        fs::copy(&from, programs.join(program)).with_context(|| format!("{package} has no {program}"))?;
    }
    for entry in fs::read_dir(unpacked.join(FOLDER))? {
        let from = entry?.path();
        let is_library = from.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
        // Links are followed, because programs request libraries by the names of links.
        if is_library && from.is_file() {
            let name = from.file_name().context("a library has a name")?;
            fs::copy(&from, libraries.join(name))?;
        }
    }
    Ok(())
}

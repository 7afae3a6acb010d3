//! `fsx` on mounts of many geometries.
//!
//! A volume is filled with an unchanging file until little space is left, so that the file of `fsx` shares this space
//! with its own garbage. Then live blocks must be moved and zones freed over and over.

use std::fs::File;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};
use support::needs;
use support::shell::Line;

use crate::accept::Run;
use crate::accept::volume::{Volume, number};

/// A volume to run on.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) mkfs: &'static [&'static str],
    pub(super) mount: &'static [&'static str],
    /// Bytes of a block.
    pub(super) block: usize,
    /// In the quick form, and in the long form.
    pub(super) operations: [u64; 2],
    /// Percent of the space for the unchanging file, and for the changing one.
    pub(super) filled: u64,
    pub(super) used: u64,
}

impl Shape {
    /// `None`: the shape is left out.
    pub(super) fn operations(&self, quick: bool) -> u64 {
        self.operations[usize::from(!quick)]
    }
}

const ORDINARY: Shape = Shape {
    name: "default geometry",
    mkfs: &["--size", "64M"],
    mount: &[],
    block: 4096,
    operations: [4_000, 1_000_000],
    filled: 40,
    used: 35,
};

/// All shapes.
pub(super) const SHAPES: [Shape; 7] = [
    ORDINARY,
    Shape {
        name: "zones of 96 MiB",
        mkfs: &["--size", "1632M", "--zone-size", "96M"],
        operations: [0, 100_000],
        filled: 70,
        used: 20,
        ..ORDINARY
    },
    Shape {
        name: "capacity below zone size",
        mkfs: &["--size", "130M", "--zone-size", "4M", "--zone-capacity", "3M"],
        operations: [0, 100_000],
        ..ORDINARY
    },
    Shape {
        name: "blocks of 512",
        mkfs: &["--size", "64M", "--block-size", "512"],
        block: 512,
        operations: [0, 100_000],
        ..ORDINARY
    },
    Shape {
        name: "blocks of 64 KiB",
        mkfs: &["--size", "256M", "--block-size", "64K", "--zone-size", "8M"],
        block: 64 << 10,
        operations: [0, 100_000],
        ..ORDINARY
    },
    Shape {
        name: "16 zones, 6 active",
        mkfs: &["--size", "66M", "--zone-size", "4M", "--max-open", "6", "--max-active", "6"],
        operations: [4_000, 100_000],
        ..ORDINARY
    },
    Shape { name: "cache of 8 MiB", mount: &["--cache", "8M"], operations: [0, 100_000], ..ORDINARY },
];

/// Operations of one run. `fsx` 0.3.2 never unmaps its read mappings, and Linux allows a process some 65,000
/// mappings.
const ROUND: u64 = 100_000;
/// Lines of its log that a failure shows.
const SHOWN: usize = 60;

/// Every kind of operation, none with weight 0. Operations have at least one byte, because `posix_fallocate` refuses
/// zero bytes everywhere, and `fsx` takes that for a failure.
const WEIGHTS: &str = "
[opsize]
min = 1
max = 65536

[weights]
close_open = 1
read = 8
write = 12
mapread = 5
mapwrite = 6
invalidate = 1
truncate = 0.1
fsync = 1
fdatasync = 1
posix_fallocate = 0.5
punch_hole = 1
sendfile = 2
posix_fadvise = 1
copy_file_range = 4
";

/// The results of a run.
pub(super) struct Done {
    pub(super) geometry: String,
    pub(super) moved_bytes: u64,
}

pub(super) fn run(shape: &Shape, run: &Run) -> Result<Done> {
    let volume = Volume::make(shape.mkfs, shape.mount)?;
    let name = format!("fsx-{}", shape.name.replace([' ', ','], "-"));
    let done = volume.keep_if_failed(&name, exercise(&volume, shape, run));
    done.with_context(|| format!("fsx on {}", shape.name))
}

fn exercise(volume: &Volume, shape: &Shape, run: &Run) -> Result<Done> {
    volume.mount()?;
    let geometry = format!("fsx, {}: {}", shape.name, volume.geometry()?);
    let available = number(&volume.stats()?, "/stored/available_bytes")?;
    fill(volume, available * shape.filled / 100)?;
    let size = available * shape.used / 100;
    let artifacts = tempfile::tempdir().context("cannot make a temporary folder")?;
    let configuration = artifacts.path().join("fsx.toml");
    std::fs::write(&configuration, format!("flen = {size}\n{WEIGHTS}"))?;
    let clock = SystemClock::new();
    let operations = shape.operations(run.quick);
    for (round, begun) in (0..).zip((0..operations).step_by(ROUND as usize)) {
        let line = Line::program(needs::FSX.program()?)
            .arg("-f")
            .arg(&configuration)
            .arg("-N")
            .arg(ROUND.min(operations - begun).to_string())
            .arg("-S")
            .arg(run.seed.wrapping_add(round).to_string())
            .arg("-P")
            .arg(artifacts.path())
            .arg(volume.dir().join("file"));
        succeed(&line)?;
    }
    let seconds = clock.monotonic_ns() / 1_000_000_000;
    let stats = volume.stats()?;
    let moved_bytes = number(&stats, "/written/device_bytes_by_cause/gc")?;
    let user_bytes = number(&stats, "/written/user_bytes")?;
    println!(
        "  {}: {operations} operations on {} MiB in {seconds} s, {user_bytes} bytes written, {moved_bytes} moved",
        shape.name,
        size >> 20
    );
    ensure!(moved_bytes > 0, "garbage collection had nothing to move: the volume is too large for this");
    // `fsx` may have compared bytes of the kernel's cache. The volume must return the same bytes.
    let file = volume.dir().join("file");
    let before = std::fs::read(&file)?;
    volume.unmount()?;
    volume.check_data()?;
    volume.mount()?;
    ensure!(std::fs::read(&file)? == before, "after another mount the file has other contents");
    volume.unmount()?;
    Ok(Done { geometry, moved_bytes })
}

/// Runs `fsx`, and shows the end of its output if it fails.
fn succeed(line: &Line) -> Result<()> {
    println!("{line}");
    let (succeeded, printed) = line.verdict()?;
    if !succeeded {
        let lines: Vec<&str> = printed.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(SHOWN)).for_each(|line| println!("  {line}"));
    }
    ensure!(succeeded, "a read differs from the writes, or an operation failed");
    Ok(())
}

/// Writes an unchanging file of this many bytes.
pub(super) fn fill(volume: &Volume, bytes: u64) -> Result<()> {
    let mut file = File::create_new(volume.dir().join("unchanging"))?;
    let piece = vec![0x5a; 1 << 20];
    for at in (0..bytes).step_by(piece.len()) {
        file.write_all(&piece[..piece.len().min((bytes - at) as usize)])?;
    }
    file.sync_all().context("the volume cannot be filled")
}

#[cfg(test)]
mod tests;

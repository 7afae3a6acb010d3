//! Point 5: a volume whose metadata is much larger than the cache stays within its memory, and mounts immediately
//! after a crash.
//!
//! Files of 1 KiB have inline data in the records of their inodes, so everything is metadata: a million files make
//! more than a gigabyte of it, for a cache of 16 MiB. The quick form creates 20,000 for the smallest cache that a
//! mount accepts. The daemon is killed when half of them exist, many of them not durable. The found files must be a
//! prefix, and filling continues after it. The daemon is killed again at the end. Then every file must exist: all are
//! counted, and a sample is read.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;
use rt::{Clock, SystemClock};
use serde_json::Value;

use super::volume::{Volume, number};
use super::{Report, Run};

/// Memory that a daemon may need besides its cache.
const BESIDE_CACHE_BYTES: u64 = 64 << 20;
const FILE_BYTES: usize = 1024;
const FILES_PER_DIRECTORY: u64 = 1000;

/// The size of the short and the long form.
struct Scale {
    files: u64,
    cache_bytes: u64,
    volume: &'static str,
    /// The number of files to read back.
    sample: u64,
}

const QUICK: Scale = Scale { files: 20_000, cache_bytes: 4 << 20, volume: "512M", sample: 500 };
const FULL: Scale = Scale { files: 1_000_000, cache_bytes: 16 << 20, volume: "8G", sample: 20_000 };

pub(super) fn run(run: &Run) -> Result<Report> {
    let scale = if run.quick { QUICK } else { FULL };
    let cache = scale.cache_bytes.to_string();
    let volume = Volume::make(&["--size", scale.volume], &["--cache", &cache])?;
    volume.keep_if_failed("large-metadata", prove(&volume, run.seed, &scale))
}

fn prove(volume: &Volume, seed: u64, scale: &Scale) -> Result<Report> {
    volume.mount()?;
    let geometry = volume.geometry()?;
    let half = scale.files / 2;
    let synced = half - half / 10;
    fill(volume, seed, 0..synced)?;
    File::open(path(&volume.dir(), synced - 1))?.sync_all().context("a file cannot be synced")?;
    fill(volume, seed, synced..half)?;
    let metadata_before = judge_cache(&volume.stats()?, half, scale)?;
    let peak_before = judge_memory(volume.pid()?, scale)?;

    volume.kill()?;
    let mount_ns = volume.mount_in_time()?;
    let kept = keep_prefix(&volume.dir(), seed, synced..half)?;
    println!("mount after half: {} ms; {} files of {half} were lost", mount_ns / 1_000_000, half - kept);
    fill(volume, seed, kept..scale.files)?;
    File::open(path(&volume.dir(), scale.files - 1))?.sync_all().context("the last file cannot be synced")?;
    let metadata_bytes = metadata_before + judge_cache(&volume.stats()?, scale.files - kept, scale)?;
    let peak_filled = judge_memory(volume.pid()?, scale)?.max(peak_before);

    volume.kill()?;
    let mount_ns = volume.mount_in_time()?;
    println!("mount after the crash: {} ms", mount_ns / 1_000_000);
    count_all(&volume.dir(), scale)?;
    read_sample(&volume.dir(), seed, scale)?;
    let peak_read = judge_memory(volume.pid()?, scale)?;
    volume.unmount()?;
    volume.check()?;
    Ok(Report {
        geometry,
        counts: vec![
            ("files made", scale.files),
            ("files made before the first crash", half),
            ("files read back", scale.sample),
            ("metadata bytes written", metadata_bytes),
            ("cache bytes", scale.cache_bytes),
            ("peak resident bytes while writing", peak_filled),
            ("peak resident bytes after the crash", peak_read),
            ("mounts", volume.mounts()),
            ("longest mount, ms", (volume.mount_ns_max() / 1_000_000).max(1)),
        ],
    })
}

/// Creates these files without syncs.
fn fill(volume: &Volume, seed: u64, numbers: Range<u64>) -> Result<()> {
    let clock = SystemClock::new();
    let dir = volume.dir();
    for number in numbers.clone() {
        let path = path(&dir, number);
        if number.is_multiple_of(FILES_PER_DIRECTORY) {
            // The crash may have left the directory without its first file.
            std::fs::create_dir_all(path.parent().expect("a file lies in a directory"))?;
        }
        make(&path, &content(seed, number)).with_context(|| format!("file {number} cannot be made"))?;
        if (number + 1).is_multiple_of(100_000) {
            println!("{} files after {} s", number + 1, clock.monotonic_ns() / 1_000_000_000);
        }
    }
    let (files, seconds) = (numbers.end - numbers.start, clock.monotonic_ns() as f64 / 1e9);
    println!("{files} files in {seconds:.1} s: {:.0} a second", files as f64 / seconds);
    Ok(())
}

/// The state of a file after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Whole,
    /// Only the name.
    Empty,
    Nothing,
}

/// The files were created one after the other and not synced. Finds the files that survived a crash, and returns the
/// number of the first one that must be created again.
fn keep_prefix(dir: &Path, seed: u64, numbers: Range<u64>) -> Result<u64> {
    let mut left = Vec::new();
    for number in numbers.clone() {
        left.push(match std::fs::read(path(dir, number)) {
            Ok(found) if found == content(seed, number) => Left::Whole,
            Ok(found) if found.is_empty() => Left::Empty,
            Ok(_) => bail!("file {number} contains bytes that were never written"),
            Err(error) if error.kind() == ErrorKind::NotFound => Left::Nothing,
            Err(error) => return Err(error).context(format!("file {number} cannot be read")),
        });
    }
    let whole = judge_order(&left)?;
    let first = numbers.start + whole as u64;
    if left.get(whole) == Some(&Left::Empty) {
        std::fs::remove_file(path(dir, first))?;
    }
    Ok(first)
}

/// The number of complete files. They come first, then at most one empty file, and nothing after it.
fn judge_order(left: &[Left]) -> Result<usize> {
    let whole = left.iter().take_while(|&&left| left == Left::Whole).count();
    let later = left.iter().skip(whole + 1).position(|&left| left != Left::Nothing);
    if let Some(later) = later {
        bail!("file {} after the last sync is there, and {whole} before it is not whole", whole + 1 + later);
    }
    Ok(whole)
}

fn make(path: &Path, content: &[u8]) -> std::io::Result<()> {
    File::create_new(path)?.write_all(content)
}

/// Prints the costs of the writes, and checks that the metadata did not fit in the cache.
fn judge_cache(stats: &Value, files: u64, scale: &Scale) -> Result<u64> {
    let user = number(stats, "/written/user_bytes")?;
    let device = number(stats, "/written/device_bytes")?;
    let causes = stats["written"]["device_bytes_by_cause"].as_object().context("nothing by cause")?;
    for (cause, bytes) in causes {
        let bytes = bytes.as_u64().context("a count is no number")?;
        println!("  {cause}: {bytes} bytes, {:.3} for each byte of users", bytes as f64 / user as f64);
    }
    println!("metadata write amplification: {:.2}", device as f64 / user as f64);
    let read = number(stats, "/metadata/nodes_read")?;
    let written = number(stats, "/metadata/nodes_written")?;
    let moved = number(stats, "/metadata/nodes_moved")?;
    println!("nodes: {written} written, {moved} moved, {read} read");
    let least = files * FILE_BYTES as u64;
    ensure!(user >= least, "{user} bytes were written, not {least}");
    ensure!(least > 2 * scale.cache_bytes, "{least} bytes of metadata say nothing about this cache");
    Ok(number(stats, "/written/device_bytes_by_cause/checkpoint")?
        + number(stats, "/written/device_bytes_by_cause/journal")?)
}

/// The peak of the resident memory of the process. An error if it is too large.
fn judge_memory(pid: Pid, scale: &Scale) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the daemon has ended")?;
    let peak = peak_bytes(&status).context("the system does not tell the peak of resident memory")?;
    let allowed = scale.cache_bytes + BESIDE_CACHE_BYTES;
    println!("peak of resident memory: {} KiB of {} KiB", peak >> 10, allowed >> 10);
    ensure!(peak <= allowed, "the daemon needed {peak} bytes; its cache and 64 MiB are {allowed}");
    Ok(peak)
}

/// `VmHWM:    49200 kB`.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Checks that every directory has every name.
fn count_all(dir: &Path, scale: &Scale) -> Result<()> {
    let mut found = 0;
    for directory in std::fs::read_dir(dir)? {
        found += std::fs::read_dir(directory?.path())?.count() as u64;
    }
    ensure!(found == scale.files, "{found} files are there after the crash, not {}", scale.files);
    Ok(())
}

/// Closed files had reached Polder, and the last file's sync came after them. The bytes of such a small file are in
/// the record that was made durable then.
fn read_sample(dir: &Path, seed: u64, scale: &Scale) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    for at in 0..scale.sample {
        let number = if at == 0 { scale.files - 1 } else { random.u64(..scale.files) };
        let mut found = Vec::new();
        File::open(path(dir, number))?.read_to_end(&mut found)?;
        ensure!(found == content(seed, number), "file {number} has changed in the crash");
    }
    Ok(())
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("d{}", number / FILES_PER_DIRECTORY)).join(format!("file-{number}"))
}

/// Different for each file and seed, without repetitions that could be compressed away.
fn content(seed: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; FILE_BYTES];
    fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;

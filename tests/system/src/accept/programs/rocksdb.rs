//! RocksDB on a database of at least four times the mount's cache, buffered and direct.
//!
//! `db_bench` fills a database in random order, overwrites it, and reads while it writes. Every block that is read is
//! compared with its checksum. Then the daemon is killed during more overwrites, the volume is mounted again, and
//! RocksDB must open and recover the database. At the end each file is the same before and after a remount, and
//! `ldb`, `sst_dump` and `db_bench` verify everything.
//!
//! The mount's cache is small (`--cache`), instead of a large database. Only their ratio matters.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rt::thread::Stop;
use support::shell::Line;

use super::Counts;
use super::odd_tree::Snapshot;
use super::running::{Running, at_most, await_that};
use crate::accept::Run;
use crate::accept::volume::{Volume, number};

const SECONDS_MAX: u64 = 900;
/// Bytes of each value.
const VALUE_BYTES: u64 = 1_000;
/// The least size of a database, as a multiple of the cache.
const TIMES_CACHE: u64 = 4;
/// Bytes of the current work that must have reached the daemon before it is killed.
const BEFORE_KILL_BYTES: u64 = 4 << 20;

/// Small tables and levels, so that compactions run all the time, and a log that is written evenly.
const SETTINGS: &str = "--compression_type=none --write_buffer_size=4194304 --target_file_size_base=4194304 \
    --max_bytes_for_level_base=16777216 --verify_checksum=true --bytes_per_sync=524288 \
    --wal_bytes_per_sync=524288 --cache_size=2097152";

struct Scale {
    volume: &'static str,
    cache: &'static str,
    cache_bytes: u64,
    keys: u64,
    /// Operations of the benchmark that reads while it writes.
    reads: u64,
}

const QUICK: Scale = Scale { volume: "512M", cache: "4M", cache_bytes: 4 << 20, keys: 40_000, reads: 2_000 };
const FULL: Scale = Scale { volume: "3G", cache: "64M", cache_bytes: 64 << 20, keys: 500_000, reads: 20_000 };

/// How RocksDB accesses files.
struct Access {
    name: &'static str,
    flags: &'static str,
}

const ACCESSES: [Access; 2] = [
    Access { name: "buffered", flags: "" },
    Access { name: "direct", flags: "--use_direct_reads=true --use_direct_io_for_flush_and_compaction=true" },
];

pub(super) fn run(run: &Run, place: &Path) -> Result<(String, Counts)> {
    let scale = if run.quick { QUICK } else { FULL };
    let volume = Volume::make(&["--size", scale.volume], &["--cache", scale.cache])?;
    volume.tell_if_failed(prove(&volume, run, &scale, place))
}

fn prove(volume: &Volume, run: &Run, scale: &Scale, place: &Path) -> Result<(String, Counts)> {
    volume.mount()?;
    let mut geometry = volume.geometry()?;
    let (mut operations, mut keys, mut files) = (0, 0, 0);
    for access in &ACCESSES {
        let bench = Bench { volume, access, scale, place, seed: run.seed % 1_000_000 + 1 };
        let bytes = bench.work()?;
        geometry += &format!("; {}: {} MiB", access.name, bytes >> 20);
        bench.kill_while_overwriting()?;
        let verified = bench.verify().with_context(|| format!("a database with {} access", access.name))?;
        operations += 2 * scale.keys + scale.reads;
        keys += verified.0;
        files += verified.1;
        std::fs::remove_dir_all(bench.database())?;
    }
    volume.unmount()?;
    volume.check()?;
    let counts = vec![
        ("operations of RocksDB", operations),
        ("kills of the daemon under RocksDB", ACCESSES.len() as u64),
        ("keys read after the kills", keys),
        ("files of RocksDB that are the same after mounting again", files),
    ];
    Ok((geometry, counts))
}

struct Bench<'a> {
    volume: &'a Volume,
    access: &'a Access,
    scale: &'a Scale,
    place: &'a Path,
    seed: u64,
}

impl Bench<'_> {
    fn database(&self) -> std::path::PathBuf {
        self.volume.dir().join(self.access.name)
    }

    fn line(&self, benchmarks: &str) -> Line {
        let line = at_most(SECONDS_MAX, "db_bench").arg(format!("--db={}", self.database().display()));
        let line = line.args(SETTINGS.split_whitespace()).args(self.access.flags.split_whitespace());
        line.arg(format!("--num={}", self.scale.keys))
            .arg(format!("--value_size={VALUE_BYTES}"))
            .arg(format!("--seed={}", self.seed))
            .arg(format!("--benchmarks={benchmarks}"))
    }

    /// Fills, overwrites, and reads while writing. Returns the size of the database.
    fn work(&self) -> Result<u64> {
        for (words, threads) in [("fillrandom,overwrite", 1), ("readwhilewriting", 2)] {
            let line = self.line(words).arg(format!("--threads={threads}"));
            let line = if threads == 1 {
                line
            } else {
                line.arg("--use_existing_db=true").arg(format!("--reads={}", self.scale.reads / threads))
            };
            let printed = line.output()?;
            for word in words.split(',') {
                let result =
                    printed.lines().find(|line| line.starts_with(word) && line.contains("micros/op"));
                println!(
                    "{}: {}",
                    self.access.name,
                    result.with_context(|| format!("no {word}: {printed}"))?
                );
            }
            // Each opening begins another log.
            self.logged_no_error()?;
        }
        let bytes = Snapshot::of(&self.database())?.bytes;
        let least = TIMES_CACHE * self.scale.cache_bytes;
        ensure!(bytes >= least, "the database has {bytes} bytes, and {least} are wanted");
        Ok(bytes)
    }

    /// RocksDB reports errors of its threads only in its log.
    fn logged_no_error(&self) -> Result<()> {
        let log = std::fs::read_to_string(self.database().join("LOG"))?;
        let words = ["[ERROR]", "Corruption", "IO error", "background error"];
        let error = log.lines().find(|line| words.iter().any(|word| line.contains(word)));
        ensure!(error.is_none(), "RocksDB logs: {error:?}");
        Ok(())
    }

    fn kill_while_overwriting(&self) -> Result<()> {
        let output = self.place.join("db_bench");
        let line = self.line("overwrite").arg("--use_existing_db=true");
        let written = || number(&self.volume.stats()?, "/written/user_bytes");
        let before = written()?;
        let mut running = Running::start(&line, Stdio::null(), &output)?;
        let begun = await_that("overwriting by RocksDB", || {
            Ok(running.ended()?.is_some() || written()? > before + BEFORE_KILL_BYTES)
        });
        Stop::default().wait(Duration::from_millis(self.seed % 500));
        let has_ended = running.ended()?.is_some();
        self.volume.strike()?;
        running.await_end()?;
        begun?;
        let printed = std::fs::read_to_string(&output)?;
        ensure!(!has_ended, "db_bench ended before the kill: {printed}");
        self.volume.await_end()?;
        self.volume.detach()?;
        self.volume.check()?;
        self.volume.mount_in_time().map(drop)
    }

    /// Verifies the whole database, before and after a remount. Returns the numbers of keys and files.
    fn verify(&self) -> Result<(u64, u64)> {
        // Opening the database runs its recovery.
        self.line("verifychecksum").arg("--use_existing_db=true").output()?;
        let (keys, files) = (self.count_keys()?, Snapshot::of(&self.database())?);
        self.volume.unmount()?;
        self.volume.check()?;
        self.volume.mount()?;
        files.judge(&Snapshot::of(&self.database())?).context("after mounting again")?;
        let tool = |words: &str| at_most(SECONDS_MAX, words);
        tool("ldb checkconsistency").arg(format!("--db={}", self.database().display())).output()?;
        let tables = format!("--file={}", self.database().display());
        let (passed, printed) = tool("sst_dump --command=verify").arg(tables).verdict()?;
        ensure!(passed && !printed.to_lowercase().contains("corrupt"), "sst_dump finds: {printed}");
        let again = self.count_keys()?;
        ensure!(again == keys, "{keys} keys were there, and {again} after mounting again");
        let found = self.line("readrandom").arg("--use_existing_db=true").arg("--reads=2000").output()?;
        let (hits, reads) = found_of(&found).with_context(|| format!("nothing was read: {found}"))?;
        // Of n numbers drawn n times, 63 % are drawn.
        ensure!(reads >= 2000 && hits > reads / 2, "{hits} of {reads} keys were found");
        self.logged_no_error()?;
        Ok((keys, files.len()))
    }

    /// `Keys in range: 25312`. Must be most of the keys that were filled in random order.
    fn count_keys(&self) -> Result<u64> {
        let line = at_most(SECONDS_MAX, "ldb dump --count_only");
        let printed = line.arg(format!("--db={}", self.database().display())).output()?;
        let count = printed.lines().find_map(|line| line.strip_prefix("Keys in range: "));
        let count: u64 = count.with_context(|| format!("ldb counts nothing: {printed}"))?.trim().parse()?;
        // Of n numbers drawn n times, 63 % are drawn.
        ensure!(count > self.scale.keys / 2, "only {count} keys exist");
        Ok(count)
    }
}

/// The hits and reads of `db_bench`: `(1266 of 2000 found)`.
fn found_of(printed: &str) -> Option<(u64, u64)> {
    let (before, _) = printed.split_once(" found)")?;
    let (hits, reads) = before.rsplit_once('(')?.1.split_once(" of ")?;
    Some((hits.trim().parse().ok()?, reads.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn hits_and_reads_are_parsed() {
        let printed = "readrandom   :  11.4 micros/op 87000 ops/sec;   86.1 MB/s (1266 of 2000 found)\n";
        assert_eq!(super::found_of(printed), Some((1266, 2000)));
        assert_eq!(super::found_of("readrandom : (of found)"), None);
    }
}

//! RocksDB: `db_bench` fills a new database in the order of its keys and syncs each of them.
//!
//! It reports how many keys it has put. Keys and values follow from their number, so the database after a crash must
//! be a prefix of a database that was filled elsewhere without a crash. The database of the previous round is
//! compared as well.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::shell::Line;

use super::section::Site;
use super::writer::Writer;
use crate::accept::programs::cycle::Application;
use crate::accept::programs::running::at_most;

const SECONDS_MAX: u64 = 300;
/// More keys than are put until the latest crash.
const KEYS: u64 = 20_000;
/// Keys in the database before each crash.
const BEFORE_CRASH_MIN: u64 = 10;
/// The number of databases to keep.
const KEPT: usize = 2;

/// Slow enough that every crash comes before the last key, even on a fast machine without syncs.
const RATE: &str = "--benchmark_write_rate_limit=2000000";

/// Tables so small that they are written and merged all the time.
const SETTINGS: &str = "--benchmarks=fillseq --compression_type=none --value_size=400 --seed=1 \
    --write_buffer_size=131072 --target_file_size_base=131072 --max_bytes_for_level_base=524288 \
    --stats_interval=1 --stats_per_interval=0";

pub(super) struct RocksDb {
    dir: PathBuf,
    output: PathBuf,
    careless: bool,
    /// The contents of a complete database: one line for each key and its value.
    whole: Vec<String>,
    made: u64,
    writer: Option<Writer>,
    /// The newest is last.
    databases: VecDeque<Database>,
}

struct Database {
    path: PathBuf,
    /// The range of the number of keys.
    expected: RangeInclusive<u64>,
}

impl RocksDb {
    pub(super) fn make(site: Site<'_>) -> Result<Self> {
        let elsewhere = site.place.join("rocksdb");
        fill(&elsewhere, false).output()?;
        let whole = scan(&elsewhere)?;
        std::fs::remove_dir_all(&elsewhere)?;
        ensure!(whole.len() as u64 == KEYS, "db_bench has put {} keys, not {KEYS}", whole.len());
        Ok(RocksDb {
            dir: site.dir.to_owned(),
            output: site.place.join("db_bench"),
            careless: site.careless,
            whole,
            made: 0,
            writer: None,
            databases: VecDeque::new(),
        })
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        self.writer.as_mut().context("db_bench was not started")
    }
}

impl Application for RocksDb {
    fn start(&mut self) -> Result<()> {
        self.made += 1;
        let path = self.dir.join(format!("database-{}", self.made));
        self.writer = Some(Writer::start(&fill(&path, !self.careless).arg(RATE), &self.output, put)?);
        self.databases.push_back(Database { path, expected: 0..=0 });
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool> {
        self.writer()?.has_reached(BEFORE_CRASH_MIN)
    }

    fn progress(&mut self) -> String {
        self.writer.as_ref().map(Writer::progress).unwrap_or_default()
    }

    fn brace(&mut self) -> Result<()> {
        self.writer()?.brace()
    }

    fn finish(&mut self) -> Result<u64> {
        let writer = self.writer.take().context("db_bench was not started")?;
        let newest = self.databases.back_mut().context("db_bench was not started")?;
        newest.expected = writer.finish()?;
        Ok(*newest.expected.start())
    }

    fn verify(&mut self) -> Result<u64> {
        let mut found = 0;
        for database in &mut self.databases {
            found += database.verify(&self.whole).with_context(|| database.path.display().to_string())?;
        }
        while self.databases.len() > KEPT {
            let oldest = self.databases.pop_front().expect("more databases exist than are kept");
            std::fs::remove_dir_all(&oldest.path)?;
        }
        Ok(found)
    }
}

impl Database {
    /// Runs RocksDB's checks, and compares the contents.
    fn verify(&mut self, whole: &[String]) -> Result<u64> {
        let db = format!("--db={}", self.path.display());
        // Opening the database runs its recovery.
        let open =
            at_most(SECONDS_MAX, "db_bench --use_existing_db=true --benchmarks=verifychecksum --num=1");
        open.arg(&db).output()?;
        at_most(SECONDS_MAX, "ldb checkconsistency").arg(&db).output()?;
        let tables = at_most(SECONDS_MAX, "sst_dump --command=verify");
        let (passed, printed) = tables.arg(format!("--file={}", self.path.display())).verdict()?;
        ensure!(passed && !printed.to_lowercase().contains("corrupt"), "sst_dump finds: {printed}");
        let found = scan(&self.path)?;
        let count = found.len() as u64;
        ensure!(
            self.expected.contains(&count),
            "the number of keys must be in {:?}, but {count} exist",
            self.expected
        );
        let wrong = found.iter().zip(whole).find(|(found, wanted)| found != wanted);
        ensure!(wrong.is_none(), "a key or value differs from the one that was put: {wrong:?}");
        // It was recovered, and is not written any more.
        self.expected = count..=count;
        Ok(count)
    }
}

fn fill(path: &Path, sync: bool) -> Line {
    let line = Line::new("db_bench").args(SETTINGS.split_whitespace()).arg(format!("--num={KEYS}"));
    line.arg(format!("--sync={sync}")).arg(format!("--db={}", path.display()))
}

/// A line for each key and its value, in the order of the keys.
fn scan(path: &Path) -> Result<Vec<String>> {
    let line = at_most(SECONDS_MAX, "ldb scan --hex").arg(format!("--db={}", path.display()));
    Ok(line.output()?.lines().map(str::to_owned).collect())
}

/// `…  ... thread 0: (1,50) ops and (2242.8,2242.8) ops/second in …`: fifty keys.
fn put(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("thread 0: (")?;
    rest.split_once(") ops and ")?.0.split_once(',')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn put_keys_are_counted() {
        let line = "2026/11/23-18:29:17  ... thread 0: (1,50) ops and (2242.8,2242.8) ops/second in (0.02,0.02) seconds";
        assert_eq!(super::put(line), Some(50));
        assert_eq!(super::put("put error: IO error: While appending to file"), None);
    }
}

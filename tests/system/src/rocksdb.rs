//! `cargo system rocksdb`: RocksDB on a volume through the plugin, without a mount.
//!
//! The plugin's own tests compare every method with RocksDB's file system for POSIX (`rocksdb/tests`). Then the tools of
//! the distribution work on a volume with the plugin preloaded: `db_bench` fills, overwrites and reads a database, `ldb`
//! and `sst_dump` verify it. At the end writers with syncs are killed again and again, and every key that was
//! acknowledged must exist.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rt::thread::Stop;
use support::shell::Line;
use support::{needs, stage, workspace};

use crate::accept::programs::running::{Running, await_that};
use crate::crash::writer::Writer;

/// `cargo system rocksdb [--quick]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Small databases and a few kills.
    #[arg(long)]
    quick: bool,
    /// Determines the keys and the moments of the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many writers are killed (default: 200; 3 with --quick).
    #[arg(long)]
    kills: Option<u64>,
}

const SECONDS_MAX: u64 = 900;
/// Small tables and levels, so that compactions run all the time.
const SETTINGS: &str = "--db=/bench --compression_type=none --value_size=1000 --write_buffer_size=1048576 \
    --target_file_size_base=1048576 --max_bytes_for_level_base=4194304 --verify_checksum=true --cache_size=1048576";
/// The same with direct I/O.
const DIRECT: &str = "--use_direct_reads=true --use_direct_io_for_flush_and_compaction=true";
/// The number of keys for each read.
const READS_EVERY: u64 = 10;
/// One kill in so many is that of `db_bench`. It reports nothing, so only its consistency is verified.
const BENCH_EVERY: u64 = 4;
/// The latest kill after the first key that was acknowledged.
const DELAY_MS_MAX: u64 = 300;

/// Where everything is.
struct Place {
    folder: tempfile::TempDir,
    plugin: PathBuf,
    test: PathBuf,
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let place = Place::make(args.seed)?;
    place.test().run()?;
    place.work(if args.quick { 10_000 } else { 200_000 })?;
    let kills = args.kills.unwrap_or(if args.quick { 3 } else { 200 });
    let keys = place.kill(kills)?;
    println!("{kills} writers were killed, and each of {keys} acknowledged keys exists.");
    Ok(())
}

impl Place {
    /// Builds the plugin and its tests.
    fn make(seed: u64) -> Result<Place> {
        needs::require(needs::PLUGIN.iter().chain(&[needs::ROCKSDB_TOOLS]))?;
        let prefix = workspace::target_dir()?.join("rocksdb/stage");
        std::fs::create_dir_all(&prefix)?;
        stage::install(&stage::Built::for_use()?, &prefix, &prefix)?;
        stage::install_plugin(&prefix)?;
        stage::plugin_line(&prefix, "tests")?.run()?;
        Ok(Place {
            folder: tempfile::Builder::new().prefix("rocksdb-").tempdir_in(workspace::target_dir()?)?,
            plugin: prefix.join("lib").join(stage::PLUGIN),
            test: workspace::target_dir()?.join("rocksdb/test_rocksdb_polder"),
            seed,
        })
    }

    /// The tests of the plugin, which need an empty directory.
    fn test(&self) -> Line {
        limited(Line::program(&self.test).arg(self.folder.path()))
    }

    fn uri(&self, volume: &str) -> String {
        format!("polder://{}/{volume}?root=/{volume}&size=2G", self.folder.path().display())
    }

    /// A tool of RocksDB on a volume.
    fn tool(&self, volume: &str, words: &str) -> Line {
        let line = Line::new(words).arg(format!("--fs_uri={}", self.uri(volume)));
        line.env("LD_PRELOAD", &self.plugin.display().to_string())
    }

    fn bench(&self, words: &str, keys: u64) -> Line {
        let line = self.tool("bench", "db_bench").args(SETTINGS.split_whitespace());
        let line = line.args(words.split_whitespace()).arg(format!("--reads={}", keys / READS_EVERY));
        line.arg(format!("--num={keys}")).arg(format!("--seed={}", self.seed))
    }

    /// Fills, overwrites and reads, buffered and direct.
    fn work(&self, keys: u64) -> Result<()> {
        for access in ["", DIRECT] {
            let line =
                format!("--benchmarks=fillrandom,overwrite,readrandom,seekrandom,multireadrandom {access}");
            let printed = limited(self.bench(&line, keys)).output()?;
            let beside = format!("--benchmarks=readwhilewriting --threads=2 --use_existing_db=true {access}");
            let printed = printed + &limited(self.bench(&beside, keys / 10)).output()?;
            for word in ["fillrandom", "overwrite", "readrandom", "seekrandom", "readwhilewriting"] {
                let result = printed
                    .split(['\r', '\n'])
                    .find(|line| line.starts_with(word) && line.contains("micros/op"));
                println!("{}", result.with_context(|| format!("no {word}: {printed}"))?);
            }
            self.verify("bench", "/bench")?;
            let printed = limited(self.tool("bench", "ldb --db=/bench dump --count_only")).output()?;
            let count = printed.lines().find_map(|line| line.strip_prefix("Keys in range: "));
            let count: u64 =
                count.with_context(|| format!("ldb counts nothing: {printed}"))?.trim().parse()?;
            // Of n numbers drawn n times, 63 % are drawn.
            ensure!(count > keys / 2, "{count} of {keys} keys exist");
        }
        Ok(())
    }

    /// The checks of RocksDB's own tools.
    fn verify(&self, volume: &str, database: &str) -> Result<()> {
        let consistency = self.tool(volume, "ldb checkconsistency").arg(format!("--db={database}"));
        let printed = limited(consistency).output()?;
        ensure!(printed.contains("OK"), "ldb says: {printed}");
        let tables = self.tool(volume, "sst_dump --command=verify").arg(format!("--file={database}"));
        let (passed, printed) = limited(tables).verdict()?;
        ensure!(passed && !printed.to_lowercase().contains("corrupt"), "sst_dump finds: {printed}");
        Ok(())
    }

    /// Kills writers. Returns how many keys exist at the end.
    fn kill(&self, kills: u64) -> Result<u64> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut last = 0;
        for round in 1..=kills {
            let delay = Duration::from_millis(rng.u64(..DELAY_MS_MAX));
            match round % BENCH_EVERY {
                0 => self.kill_bench(delay)?,
                _ => {
                    last = self
                        .kill_writer(last, delay)
                        .with_context(|| format!("kill {round}, after {last} keys"))?
                }
            }
        }
        Ok(last)
    }

    /// Kills the writer of the tests, which prints each key when it is durable.
    fn kill_writer(&self, before: u64, delay: Duration) -> Result<u64> {
        let (uri, output) = (self.uri("keys"), self.folder.path().join("printed"));
        let line = Line::program(&self.test).args(["write", &uri, &(before + 1).to_string()]);
        let mut writer = Writer::start(&line, &output, |line| line.parse().ok())?;
        await_that("a key that is acknowledged", || writer.has_reached(before + 1))?;
        Stop::default().wait(delay);
        writer.brace()?;
        let last = *writer.finish()?.start();
        let verify = Line::program(&self.test).args(["verify", &uri, &last.to_string()]);
        let verified = limited(verify).output()?;
        let found = verified.trim().parse()?;
        self.verify("keys", "/keys")?;
        Ok(found)
    }

    /// Kills `db_bench`, wherever it is.
    fn kill_bench(&self, delay: Duration) -> Result<()> {
        let line = self.bench("--benchmarks=overwrite --sync=true --use_existing_db=true", 10_000_000);
        let mut running = Running::start(&line, Stdio::null(), &self.folder.path().join("db_bench"))?;
        Stop::default().wait(delay * 2);
        ensure!(running.ended()?.is_none(), "db_bench ended before the kill");
        running.kill()?;
        self.verify("bench", "/bench")
    }
}

/// A command that hangs is a failure.
fn limited(line: Line) -> Line {
    line.started_by(Line::new(&format!("timeout --kill-after=5 {SECONDS_MAX}")))
}

//! One of YCSB's workloads on RocksDB in a directory of whatever file system.
//!
//! It makes or opens the database, has some clients work, each doing one operation after the other, and tells the
//! rate, the time of each kind of operation and the bytes that RocksDB has written to its files, in lines as
//! `measured PLACE a update 99 %: 123.4` (microseconds). Whatever is read is judged: a record that is not there, or
//! is another one, fails the run; a scan may leave out records behind its first.
//!
//! Blocks and tables are read and written past the kernel's cache, so that the times are those of file systems. What
//! is written to the log is written through it, as RocksDB does.
#![forbid(unsafe_code)]

mod records;
mod workload;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use polder_rt::{Clock, SystemClock};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rocksdb::{BlockBasedOptions, Cache, DB, Direction, IteratorMode, Options, WriteOptions};

use records::{Records, VALUE_BYTES, key, value};
use workload::{Choice, Kind, Workload};

/// Of each memtable and table; levels follow.
const TABLE_BYTES: usize = 16 << 20;
const FIRST_LEVEL_BYTES: u64 = 64 << 20;
const BLOCK_CACHE_BYTES: usize = 32 << 20;
/// How many numbers fall on one filter's bit, see RocksDB's guide.
const FILTER_BITS: f64 = 10.0;
/// Files are written out evenly rather than by the kernel's own choice of moments.
const BYTES_PER_SYNC: u64 = 1 << 20;
/// Where the count of records stands.
const COUNT: &[u8] = b"count";

/// Run one workload.
#[derive(Parser)]
struct Args {
    /// Directory of the database; `load` makes it.
    #[arg(long)]
    db: PathBuf,
    /// What the figures are called.
    #[arg(long)]
    place: String,
    #[arg(long, value_enum)]
    workload: Workload,
    /// Records to load, or operations of all clients together.
    #[arg(long)]
    operations: u64,
    #[arg(long, default_value_t = 4)]
    clients: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make each write durable before it counts as done.
    #[arg(long)]
    sync: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.clients > 0 && args.operations >= args.clients, "each client needs an operation");
    let is_load = args.workload == Workload::Load;
    let before = bytes_written()?;
    let db = DB::open(&options(is_load), &args.db).with_context(|| args.db.display().to_string())?;
    let present = if is_load { 0 } else { count(&db)? };
    let run = Run { db, records: Records::new(present), clock: SystemClock::new(), args };
    let (times, ns) = run.work()?;
    run.db.put(COUNT, run.records.confirmed().to_le_bytes())?;
    let Run { db, args, .. } = run;
    drop(db);
    let name = format!("{} {}{}", args.place, args.workload.name(), if args.sync { " synced" } else { "" });
    println!("measured {name} rate: {:.1}", args.operations as f64 * 1e9 / ns as f64);
    println!("measured {name} written: {}", bytes_written()? - before);
    for (kind, times) in Kind::ALL.iter().zip(&times).filter(|(_, times)| !times.is_empty()) {
        let micros = |part: f64| times.value_at_quantile(part) as f64 / 1e3;
        let kind = kind.name();
        println!("measured {name} {kind} median: {:.1}", micros(0.5));
        println!("measured {name} {kind} 99 %: {:.1}", micros(0.99));
        println!("measured {name} {kind} 99.9 %: {:.1}", micros(0.999));
        println!("measured {name} {kind} longest: {:.1}", times.max() as f64 / 1e3);
    }
    Ok(())
}

fn options(is_load: bool) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_bloom_filter(FILTER_BITS, false);
    let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES).expect("memory for the cache of blocks");
    blocks.set_block_cache(&cache);
    let mut options = Options::default();
    options.create_if_missing(is_load);
    options.set_error_if_exists(is_load);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    options.set_write_buffer_size(TABLE_BYTES);
    options.set_target_file_size_base(TABLE_BYTES as u64);
    options.set_max_bytes_for_level_base(FIRST_LEVEL_BYTES);
    options.set_max_background_jobs(2);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    options.set_wal_bytes_per_sync(BYTES_PER_SYNC);
    options
}

fn count(db: &DB) -> Result<u64> {
    let bytes = db.get(COUNT)?.context("the database was not loaded to its end: load it anew")?;
    Ok(u64::from_le_bytes(bytes.as_slice().try_into().context("the count of records is no number")?))
}

/// What this process has given to `write` and the like.
fn bytes_written() -> Result<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").context("/proc/self/io")?;
    let written = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(written.context("the kernel does not count what is written")?.parse()?)
}

/// Nanoseconds of each kind, in the order of [`Kind::ALL`].
type Times = [Histogram<u64>; Kind::ALL.len()];

fn no_times() -> Times {
    std::array::from_fn(|_| Histogram::new(3).expect("three digits are allowed"))
}

struct Run {
    db: DB,
    records: Records,
    clock: SystemClock,
    args: Args,
}

impl Run {
    /// All clients' operations; returns the time of each and of all.
    fn work(&self) -> Result<(Times, u64)> {
        let began = self.clock.monotonic_ns();
        let clients = self.args.clients;
        let all: Vec<Result<Times>> = std::thread::scope(|scope| {
            let started: Vec<_> =
                (0..clients).map(|client| scope.spawn(move || self.client(client))).collect();
            started.into_iter().map(|client| client.join().expect("a client panicked")).collect()
        });
        let ns = self.clock.monotonic_ns() - began;
        let mut sum = no_times();
        for times in all {
            for (sum, times) in sum.iter_mut().zip(times?) {
                sum.add(times)?;
            }
        }
        Ok((sum, ns))
    }

    fn client(&self, client: u64) -> Result<Times> {
        let Args { clients, operations, seed, .. } = self.args;
        let mut random = SmallRng::seed_from_u64(seed.wrapping_mul(clients) + client);
        let choice = Choice::new(self.args.workload, self.records.confirmed().max(1))?;
        let mut times = no_times();
        // What does not come out even falls to the first clients.
        for _ in 0..operations / clients + u64::from(client < operations % clients) {
            let kind = choice.kind(&mut random);
            let began = self.clock.monotonic_ns();
            self.operate(kind, &choice, &mut random)?;
            times[kind as usize].record(self.clock.monotonic_ns() - began)?;
        }
        Ok(times)
    }

    fn operate(&self, kind: Kind, choice: &Choice, random: &mut SmallRng) -> Result<()> {
        if kind == Kind::Insert {
            return self.records.insert(|record| self.put(record, random));
        }
        let record = choice.record(self.records.confirmed(), random);
        match kind {
            Kind::Read => self.get(record).map(drop),
            Kind::Update => self.put(record, random),
            Kind::ReadModifyWrite => {
                let mut value = self.get(record)?;
                // One of YCSB's ten fields.
                let field = value.len() - VALUE_BYTES / 10;
                value[field..].fill(rand::Rng::random(random));
                self.put_value(record, &value)
            }
            Kind::Scan => self.scan(record, choice.scan_length(random)),
            Kind::Insert => unreachable!("inserted above"),
        }
    }

    fn get(&self, record: u64) -> Result<Vec<u8>> {
        let value = self.db.get(key(record))?;
        let value = value.with_context(|| format!("record {record} is not there"))?;
        ensure!(records::is_of(&value, record), "what is there is not record {record}");
        Ok(value)
    }

    fn put(&self, record: u64, random: &mut SmallRng) -> Result<()> {
        self.put_value(record, &value(record, random))
    }

    fn put_value(&self, record: u64, value: &[u8]) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(self.args.sync);
        Ok(self.db.put_opt(key(record), value, &options)?)
    }

    /// The record and those whose keys follow.
    fn scan(&self, record: u64, length: usize) -> Result<()> {
        let from = key(record);
        let mut last: Option<Box<[u8]>> = None;
        for found in self.db.iterator(IteratorMode::From(&from, Direction::Forward)).take(length) {
            let (found, value) = found?;
            let is_next = last.as_ref().map_or(*found == from, |last| found > *last);
            let number = value.first_chunk().map(|number| u64::from_le_bytes(*number));
            let belongs =
                number.is_some_and(|number| records::is_of(&value, number) && key(number) == *found);
            ensure!(is_next && belongs, "a scan from record {record} finds what is not there");
            last = Some(found);
        }
        ensure!(last.is_some(), "a scan from record {record} finds nothing");
        Ok(())
    }
}

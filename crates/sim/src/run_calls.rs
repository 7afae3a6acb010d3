//! `polder-sim calls`: one kind of operation with its latencies, the client of `cargo system bench`.
//! `polder-sim counted`: what `cargo system instructions` counts.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use polder_sim::speed::calls::{self, Call, Work};
use polder_sim::speed::counted;
use rt::SystemClock;

/// The printed parts of all operations.
const QUANTILES: [(&str, f64); 3] = [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)];

#[derive(Args)]
pub(crate) struct Calls {
    /// The operation.
    kind: Call,
    /// A directory that only this command uses.
    directory: PathBuf,
    /// How many operations, by all threads.
    #[arg(long, default_value_t = 1)]
    operations: u64,
    /// How many threads, for small reads, writes and appends.
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Bytes of each named file, or of the one file.
    #[arg(long, default_value_t = 1024)]
    bytes: u64,
    /// Determines contents and random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Performs the operations and prints their figures.
pub(crate) fn calls(options: &Calls) -> Result<()> {
    ensure!(options.threads > 0, "there must be a thread");
    std::fs::create_dir_all(&options.directory)?;
    let work = Work {
        directory: options.directory.clone(),
        operations: options.operations,
        threads: options.threads,
        bytes: options.bytes,
        seed: options.seed,
    };
    let mut ready = || println!("measured ready: 1");
    let done = calls::run(options.kind, &work, Arc::new(SystemClock::new()), &mut ready);
    let done = done.map_err(|wrong| anyhow!(wrong))?;
    println!("measured operations: {}", done.latencies.operations());
    println!("measured rate: {:.3}", done.rate());
    for (name, part) in QUANTILES {
        println!("measured {name}: {}", done.latencies.quantile_ns(part));
    }
    Ok(())
}

/// Performs the operations that are counted, and prints how often.
pub(crate) fn counted() -> Result<()> {
    let print = |operation: counted::Operation, times| println!("measured {}: {times}", operation.name());
    counted::run(print).map_err(|wrong| anyhow!(wrong))
}

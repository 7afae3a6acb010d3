//! The command that mounts a volume with every bit of it flipped: `polder-sim flips`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use polder_sim::caught::Wrong;
use polder_sim::crew::{self, Member};
use polder_sim::digest::mix;
use polder_sim::flips::{Fate, METADATA_MAX, Target};
use polder_sim::shapes;
use rt::sync::Mutex;
use rt::{Clock, SystemClock};

/// In the quick form one of this many bits is flipped.
const QUICK_EVERY: u64 = 100;
/// The least number of blocks of log and metadata. With fewer there are hardly any trees.
const METADATA_MIN: usize = 20;

#[derive(Args)]
pub(crate) struct Flips {
    /// Only as much as the gate has time for: one bit in a hundred, drawn from the seed.
    #[arg(long)]
    quick: bool,
    /// One bit of this many, drawn from the seed.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// The shape of device.
    #[arg(long, default_value = "power-of-two")]
    geometry: String,
    /// Use an unmounted volume, instead of one that has a journal.
    #[arg(long)]
    unmounted: bool,
    /// Repeat one bit: zone, block and bit, such as 0:3:1717.
    #[arg(long)]
    bit: Option<String>,
    /// End after this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Determines which bits are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The state that all threads share.
struct Work {
    target: Target,
    every: u64,
    seed: u64,
    nanoseconds: u64,
    case: String,
    clock: SystemClock,
    next: AtomicU64,
    fates: Mutex<BTreeMap<Fate, u64>>,
    failure: Mutex<Option<(String, Wrong)>>,
}

pub(crate) fn flips(options: &Flips) -> Result<()> {
    let Some(shape) = shapes::all().into_iter().find(|shape| shape.name == options.geometry) else {
        bail!("there is no shape {:?}; `polder-sim list` shows all", options.geometry);
    };
    let target = Target::new(shape.clone(), options.unmounted).map_err(|wrong| anyhow!("{wrong}"))?;
    if let Some(text) = &options.bit {
        let flip = target.parse(text).ok_or_else(|| anyhow!("no written block holds the bit {text:?}"))?;
        println!("{:?}", target.try_flip(&flip).map_err(|wrong| anyhow!("{wrong}"))?);
        return Ok(());
    }
    let unmounted = if options.unmounted { " --unmounted" } else { "" };
    let work = Arc::new(Work {
        target,
        every: options.every.unwrap_or(if options.quick { QUICK_EVERY } else { 1 }),
        seed: options.seed,
        nanoseconds: options.minutes.map_or(u64::MAX, |minutes| minutes * 60_000_000_000),
        case: format!("polder-sim flips --geometry {}{unmounted} --bit", shape.name),
        clock: SystemClock::new(),
        next: AtomicU64::new(0),
        fates: Mutex::default(),
        failure: Mutex::default(),
    });
    let shared = Arc::clone(&work);
    crew::share(move |member| shared.work(member));
    println!("shape {shape}");
    print(&work)
}

impl Work {
    fn work(&self, member: &Member) {
        let mut fates = BTreeMap::new();
        while let Some(number) = self.take() {
            let flip = self.target.flip(number);
            let case = format!("{} {flip}", self.case);
            member.began(case.clone());
            match self.target.try_flip(&flip) {
                Ok(fate) => *fates.entry(fate).or_insert(0) += 1,
                Err(wrong) => drop(self.failure.lock().get_or_insert((case, wrong))),
            }
        }
        let mut sum = self.fates.lock();
        fates.into_iter().for_each(|(fate, count)| *sum.entry(fate).or_insert(0) += count);
    }

    /// The next bit: one of each group of consecutive bits.
    fn take(&self) -> Option<u64> {
        if self.clock.monotonic_ns() > self.nanoseconds || self.failure.lock().is_some() {
            return None;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let turns = self.target.bits().div_ceil(self.every);
        // With a time limit, each seed begins with another bit.
        let place = (turn + mix(&[self.seed]) % turns) % turns;
        let number = place * self.every + mix(&[self.seed, place]) % self.every;
        (turn < turns).then(|| number.min(self.target.bits() - 1))
    }
}

fn print(work: &Work) -> Result<()> {
    let seconds = work.clock.monotonic_ns() as f64 / 1e9;
    let fates = work.fates.lock();
    let all: u64 = fates.values().sum();
    let (blocks, metadata) = (work.target.blocks(), work.target.metadata_blocks());
    println!(
        "{} blocks, {metadata} of them log and metadata, {} bits; seed {}",
        blocks.len(),
        work.target.bits(),
        work.seed
    );
    println!("counted bits flipped: {all}");
    let is_whole = all == work.target.bits();
    println!("{} bit of it was flipped", if is_whole { "every" } else { "not every" });
    for (fate, name) in Fate::ALL {
        println!("counted {name}: {}", fates.get(&fate).copied().unwrap_or(0));
    }
    println!("{seconds:.1} s, {:.0} a second", all as f64 / seconds);
    if let Some((case, wrong)) = work.failure.lock().as_ref() {
        println!("FAILED: {}\n  repeat with: {case}", wrong.0.replace('\n', "\n    "));
        bail!("a bit did more than it may");
    }
    ensure!(all > 0, "no bit was flipped");
    ensure!(is_whole || work.every > 1 || work.nanoseconds < u64::MAX, "some bits were left out");
    ensure!(work.target.is_small(), "{metadata} blocks of log and metadata: more than {METADATA_MAX}");
    ensure!(metadata >= METADATA_MIN, "only {metadata} blocks of log and metadata: too few to mean anything");
    Ok(())
}

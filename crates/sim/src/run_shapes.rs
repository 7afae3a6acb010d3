//! The command that runs volumes of drawn shapes: `polder-sim shapes`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use polder_sim::caught::Wrong;
use polder_sim::crew;
use polder_sim::long::drawn::{Drawn, Seen};
use rt::sync::Mutex;
use rt::{Clock, SystemClock};

/// A run that never returns is normally detected by the device commands. If there are none, it is detected after this
/// time.
const HUNG_AFTER: Duration = Duration::from_secs(600);

#[derive(Args, Clone)]
pub(crate) struct Shapes {
    /// The first seed. Each shape has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of shapes.
    #[arg(long, default_value_t = 100)]
    times: u64,
    /// Print the shapes and run nothing.
    #[arg(long)]
    list: bool,
}

/// The sum of all results.
#[derive(Default)]
struct Sum {
    shapes: u64,
    written: u64,
    overwritten: u64,
    compared: u64,
    device_written: u64,
    resets: u64,
    /// The most device changes within one operation, in thousandths of the limit, and the seed.
    longest: (u64, u64),
    failed: u64,
}

pub(crate) fn shapes(options: &Shapes) -> Result<()> {
    let seeds = (options.seed, options.times);
    if options.list {
        (0..options.times)
            .map(|number| seeds.0.wrapping_add(number))
            .for_each(|seed| println!("{seed}: {}", Drawn::of(seed)));
        return Ok(());
    }
    let (sum, next) = (Arc::new(Mutex::new(Sum::default())), Arc::new(AtomicU64::new(0)));
    let shared = Arc::clone(&sum);
    crew::share_patiently(HUNG_AFTER, move |member| {
        let clock = SystemClock::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds.1 {
                break;
            }
            let seed = seeds.0.wrapping_add(number);
            member.began(repeat(seed));
            let began = clock.monotonic_ns();
            let ran = Drawn::of(seed).run();
            let seconds = (clock.monotonic_ns() - began) as f64 / 1e9;
            shared.lock().add(seed, ran, seconds);
        }
    });
    let sum = std::mem::take(&mut *sum.lock());
    println!("counted shapes drawn: {}", sum.shapes);
    println!("counted bytes written on them: {}", sum.written);
    println!("counted bytes written over on them: {}", sum.overwritten);
    println!("counted bytes compared on them: {}", sum.compared);
    println!("counted device bytes written on them: {}", sum.device_written);
    println!("counted zones reset on them: {}", sum.resets);
    println!("longest operation: {} ‰ of what it may take, with seed {}", sum.longest.0, sum.longest.1);
    ensure!(sum.failed == 0, "{} of {} shapes failed", sum.failed, sum.shapes);
    Ok(())
}

fn repeat(seed: u64) -> String {
    format!("polder-sim shapes --times 1 --seed {seed}")
}

impl Sum {
    fn add(&mut self, seed: u64, ran: Result<Seen, Wrong>, seconds: f64) {
        self.shapes += 1;
        match ran {
            Ok(seen) => {
                self.written += seen.filled.written;
                self.overwritten += seen.filled.overwritten;
                self.compared += seen.filled.compared;
                self.device_written += seen.device_written;
                self.resets += seen.resets;
                self.longest = self.longest.max((seen.longest_permille, seed));
                let offered = seen.filled.offered as f64 / seen.device_bytes as f64 * 100.0;
                let amplified = seen.device_written as f64 / seen.filled.written.max(1) as f64;
                let rest = seen.filled.rest as f64 / seen.filled.offered.max(1) as f64 * 100.0;
                println!(
                    "{seed}: {}\n  {offered:.1} % offered, {rest:.1} % of it more, {amplified:.2} device bytes per byte, longest {} ‰, {seconds:.1} s",
                    Drawn::of(seed),
                    seen.longest_permille
                );
            }
            Err(wrong) => {
                self.failed += 1;
                println!(
                    "FAILED: {wrong}\n  {}\n  {seconds:.1} s, repeat with: {}",
                    Drawn::of(seed),
                    repeat(seed)
                );
            }
        }
    }
}

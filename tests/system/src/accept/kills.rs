//! Point 3: the daemon may be killed at any moment, and nothing acknowledged is lost.
//!
//! Writers work on a mount, each in a directory of its own, and note acknowledged operations outside of the volume,
//! in this process, which survives the daemon. The daemon is killed at a random moment. Then the volume is checked,
//! mounted again (in less than a second), and compared with the allowed states (`kills/names.rs`,
//! `kills/contents.rs`). The writers continue from the found state. The volume is small and four fifths full, so that
//! garbage collection and checkpoints hardly ever rest. Some of the kills wait until the daemon's counters show that
//! one of them is in progress.
//!
//! The quick form kills ten times. This test cannot show the loss of data that the host's disk had not made durable.
//! Losses of power, alone and after a kill, are tested on the emulated device.

mod contents;
mod names;
mod watch;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use self::watch::{Sign, Watch};
use self::writer::{Tally, Writer};
use super::volume::{Volume, number};
use super::{Report, Run};

const WRITERS: usize = 6;
const VOLUME: [&str; 4] = ["--size", "96M", "--zone-size", "1M"];

/// The share of the available space that the writers keep filled.
const FILLED_PERCENT: u64 = 80;

/// The size of the short and the long form.
struct Scale {
    /// The least number of kills; up to four times as many while there were too few syncs.
    kills: u64,
    /// The latest moment of a kill, from the start of the work.
    latest_ms: u64,
    /// How many kills must fall into garbage collection, and how many into a checkpoint.
    caught_min: u64,
    /// How many answers of `fsync` and `fdatasync` must be compared.
    synced_min: u64,
}

const QUICK: Scale = Scale { kills: 10, latest_ms: 2000, caught_min: 1, synced_min: 200 };
const FULL: Scale = Scale { kills: 200, latest_ms: 3000, caught_min: 20, synced_min: 100_000 };

/// The state shared between the writers and the killing thread.
struct Shared {
    /// Orders the operations of all writers: counts up at each start and each end.
    order: AtomicU64,
    /// Set before the daemon is killed. From then on, errors are expected.
    killing: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        Shared { order: AtomicU64::new(1), killing: AtomicBool::new(false) }
    }

    fn tick(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }
}

/// The sums of all rounds.
#[derive(Default)]
struct Sum {
    tally: Tally,
    kills: u64,
    during_gc: u64,
    during_checkpoint: u64,
    checks: u64,
    bytes_compared: u64,
}

pub(super) fn run(run: &Run) -> Result<Report> {
    let scale = if run.quick { QUICK } else { FULL };
    let volume = Volume::make(&VOLUME, &[])?;
    volume.keep_if_failed("kills", prove(&volume, run.seed, &scale))
}

fn prove(volume: &Volume, seed: u64, scale: &Scale) -> Result<Report> {
    volume.mount()?;
    let mut writers = begin(volume, seed)?;
    let geometry = geometry(volume)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sum = Sum::default();
    for kill in 0..scale.kills * 4 {
        if kill >= scale.kills && sum.tally.synced() >= scale.synced_min {
            break;
        }
        let aim = Sign::for_kill(kill);
        let at = Duration::from_millis(random.u64(..scale.latest_ms));
        writers = round(volume, writers, Watch::new(at, scale.latest_ms, aim), &mut sum)
            .with_context(|| format!("kill {} at {} ms or later", kill + 1, at.as_millis()))?;
        if sum.kills.is_multiple_of(20) {
            let (synced, buffered) = (sum.tally.synced(), sum.tally.buffered());
            println!("{} kills, {synced} syncs and {buffered} other operations so far", sum.kills);
        }
    }
    volume.unmount()?;
    volume.check()?;
    sum.checks += 1;
    sum.report(volume, scale, geometry)
}

/// Fills the volume up to its level, and makes that durable.
fn begin(volume: &Volume, seed: u64) -> Result<Vec<Writer>> {
    let available = number(&volume.info()?, "/available_bytes")?;
    let bytes_each = available * FILLED_PERCENT / 100 / WRITERS as u64;
    (0..WRITERS).map(|number| Writer::begin(&volume.dir(), number, seed, bytes_each)).collect()
}

fn geometry(volume: &Volume) -> Result<String> {
    let stats = volume.stats()?;
    let live = number(&stats, "/stored/live_bytes")?;
    let available = number(&stats, "/stored/available_bytes")?;
    Ok(format!(
        "{}; {WRITERS} writers keep {live} bytes, {} % of the available space",
        volume.geometry()?,
        live * 100 / (live + available)
    ))
}

/// Works until the kill, mounts again and compares. Returns the writers with the found state.
fn round(volume: &Volume, writers: Vec<Writer>, mut watch: Watch, sum: &mut Sum) -> Result<Vec<Writer>> {
    let shared = Arc::new(Shared::new());
    let threads = start(writers, &shared)?;
    let watched = watch.until_kill(volume);
    shared.killing.store(true, Ordering::SeqCst);
    let struck = volume.strike();
    let joined: Vec<Result<Writer>> =
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a writer panicked"))?).collect();
    let mut writers = joined.into_iter().collect::<Result<Vec<Writer>>>()?;
    watched?;
    struck?;
    volume.await_end()?;
    sum.kills += 1;
    sum.during_gc += u64::from(watch.saw(Sign::Collection));
    sum.during_checkpoint += u64::from(watch.saw(Sign::Checkpoint));
    volume.detach()?;
    volume.check()?;
    sum.checks += 1;
    volume.mount_in_time()?;
    sum.bytes_compared += compare(&mut writers, &volume.dir())?;
    writers.iter_mut().for_each(|writer| sum.tally.add(writer.take_tally()));
    Ok(writers)
}

fn start(writers: Vec<Writer>, shared: &Arc<Shared>) -> Result<Vec<rt::thread::JoinHandle<Result<Writer>>>> {
    writers
        .into_iter()
        .map(|writer| {
            let shared = Arc::clone(shared);
            let spawned = rt::thread::spawn("writer", move || writer.work(&shared));
            spawned.context("a writer cannot be started")
        })
        .collect()
}

/// Compares names, over all writers, and then the contents of each file.
fn compare(writers: &mut [Writer], root: &Path) -> Result<u64> {
    let mut expected: Vec<String> = writers.iter().map(Writer::directory_name).collect();
    let mut found: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(root)? {
        found.push(entry?.file_name().to_string_lossy().into_owned());
    }
    expected.sort();
    found.sort();
    ensure!(found == expected, "the root holds {found:?}, not {expected:?}");
    let durable = writers.iter().map(Writer::synced_order).max().unwrap_or(0);
    let mut fits = Vec::new();
    for writer in writers.iter_mut() {
        fits.push(writer.compare_names(durable)?);
    }
    names::judge_prefix(&fits)?;
    let mut bytes = 0;
    for writer in writers.iter_mut() {
        bytes += writer.compare_contents()?;
    }
    Ok(bytes)
}

impl Sum {
    fn report(self, volume: &Volume, scale: &Scale, geometry: String) -> Result<Report> {
        for (what, count) in &self.tally.by_kind {
            println!("  acknowledged {what}: {count}");
        }
        let (synced, buffered) = (self.tally.synced(), self.tally.buffered());
        let enough = [
            ("kills during garbage collection", self.during_gc, scale.caught_min),
            ("kills during a checkpoint", self.during_checkpoint, scale.caught_min),
            ("acknowledged fsync and fdatasync", synced, scale.synced_min),
        ];
        for (what, count, least) in enough {
            ensure!(count >= least, "only {count} {what}, which says too little: {least} are wanted");
        }
        Ok(Report {
            geometry,
            counts: vec![
                ("kills", self.kills),
                ("kills during garbage collection", self.during_gc),
                ("kills during a checkpoint", self.during_checkpoint),
                ("acknowledged fsync and fdatasync", synced),
                ("acknowledged other operations", buffered),
                ("bytes compared", self.bytes_compared),
                ("mounts", volume.mounts()),
                ("longest mount, ms", (volume.mount_ns_max() / 1_000_000).max(1)),
                ("clean checks", self.checks),
            ],
        })
    }
}

#[cfg(test)]
mod tests;

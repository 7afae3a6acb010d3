//! One cell of the table: a workload at a fill level on one device shape, and its costs.
//!
//! A run has five parts: *fill*, whose first half shows the speed of an empty device; *warm up*, until the zones have
//! settled; *measure*, in a closed loop; *half rate*, in which writes arrive at half the rate of the closed loop,
//! even while earlier ones wait; and *compare*. Then the ideal garbage collector runs the same trace, once with the
//! zones that the volume had left for data, once with all zones, and is measured over the same writes.

use anyhow::{Result, ensure};
use emulated::timed::CommandClass;
use serde::Serialize;
use zone::Cause;

use crate::ideal::{Collector, Full, uniform_optimum};
use crate::latency::{Latencies, Summary};
use crate::trace::{BLOCK, Op, PIECE, Trace, Workload};
use crate::volume::{Medium, Shape, Switches, Timing, Volume};

/// Operations between two samples of the zones.
const LOOK_EVERY: u64 = 256;
/// Files to compare at the end.
const COMPARED: usize = 32;

/// The parameters of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The trace.
    pub workload: Workload,
    /// The fill level, in percent of the space available on the empty volume.
    pub fill_percent: u64,
    /// The device.
    pub shape: Shape,
    /// The device model.
    pub medium: Medium,
    /// Options beyond the trace.
    pub switches: Switches,
    /// The seed of all random choices.
    pub seed: u64,
    /// Bytes written before the measurement, in percent of the level.
    pub warm_percent: u64,
    /// Bytes written during the measurement, in percent of the level.
    pub measure_percent: u64,
    /// Whether to run the checker at the end.
    pub check: bool,
}

/// Device bytes per byte that the user wrote, for one cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Part {
    /// The cause.
    pub cause: &'static str,
    /// Bytes per byte.
    pub amplification: f64,
}

/// Latencies.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Waits {
    /// All writes, each with the fsync that follows it.
    pub writes: Summary,
    /// Of these, those of 1 MiB.
    pub writes_of_1_mib: Summary,
}

/// The results of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of the workload.
    pub workload: &'static str,
    /// Percent of the space available on the empty volume.
    pub fill_percent: u64,
    /// Zones of the device.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// The device model.
    pub medium: Medium,
    /// Whether files were made durable when closed.
    pub fsync: bool,
    /// Whether the volume got lifetime hints.
    pub hints: bool,
    /// Whether the volume used what it learned about lifetimes.
    pub learning: bool,
    /// The seed.
    pub seed: u64,
    /// The space available on the empty volume, in bytes.
    pub offered_bytes: u64,
    /// Bytes in files during the measurement, on average, in percent of all bytes of the device.
    pub live_percent_of_raw: f64,
    /// Bytes written by the user during the measurement.
    pub user_bytes: u64,
    /// Device bytes per byte that the user wrote.
    pub amplification: f64,
    /// The same by cause.
    pub parts: Vec<Part>,
    /// Zones left for data, on average: all except those of the log, those with metadata and those reserved for
    /// metadata.
    pub data_zones: f64,
    /// Zones that contain metadata, on average.
    pub metadata_zones: f64,
    /// The ideal garbage collector with the zones left for data, interpolated between whole numbers of zones. `None`
    /// if it runs out of space.
    pub ideal: Option<f64>,
    /// The ideal garbage collector with all zones.
    pub ideal_of_all: Option<f64>,
    /// The analytical optimum for the zones left for data, where there is one.
    pub optimum: Option<f64>,
    /// The first writes on an empty device.
    pub empty: Waits,
    /// In a closed loop.
    pub closed: Waits,
    /// At half the rate of the closed loop.
    pub half_rate: Waits,
    /// Device bytes per byte that the user wrote at half the rate.
    pub half_rate_amplification: f64,
    /// The rate of the closed loop, in bytes per second of device time.
    pub bytes_per_second: f64,
    /// The longest time that a device command was queued, in nanoseconds: reads, writes.
    pub queued_ns_max: [u64; 2],
    /// Blocks compared at the end.
    pub compared_blocks: u64,
}

#[derive(Default)]
struct Waiting {
    writes: Latencies,
    of_1_mib: Latencies,
    last_was_1_mib: bool,
}

impl Waiting {
    fn add(&mut self, timing: Timing) {
        match timing {
            Timing::Wrote { blocks, nanoseconds } => {
                self.writes.add(nanoseconds);
                self.last_was_1_mib = blocks == PIECE;
                if self.last_was_1_mib {
                    self.of_1_mib.add(nanoseconds);
                }
            }
            Timing::Synced { nanoseconds } => {
                self.writes.extend_last(nanoseconds);
                if self.last_was_1_mib {
                    self.of_1_mib.extend_last(nanoseconds);
                }
            }
            Timing::Other => {}
        }
    }

    fn waits(&self) -> Waits {
        Waits { writes: self.writes.summary(), writes_of_1_mib: self.of_1_mib.summary() }
    }
}

/// The ends of the parts of a run, in blocks written by the user.
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    to: u64,
}

struct Run {
    volume: Volume,
    trace: Trace,
    written: u64,
    live: Live,
}

/// Blocks that files hold.
#[derive(Default)]
struct Live {
    files: std::collections::HashMap<u32, u64>,
    blocks: u64,
}

impl Live {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Write { file, start, blocks } => {
                let held = self.files.entry(file).or_default();
                let grown = (start + blocks).saturating_sub(*held);
                *held += grown;
                self.blocks += grown;
            }
            Op::Delete { file } => self.blocks -= self.files.remove(&file).unwrap_or(0),
            _ => {}
        }
    }
}

/// Samples taken during the measurement.
#[derive(Default)]
struct Looks {
    count: u64,
    data_zones: u64,
    metadata_zones: u64,
    live_blocks: u64,
}

impl Looks {
    fn look(&mut self, run: &Run) {
        let zones = run.volume.zone_use();
        self.count += 1;
        self.data_zones += u64::from(zones.data);
        self.metadata_zones += u64::from(zones.metadata);
        self.live_blocks += run.live.blocks;
    }

    fn mean(&self, sum: u64) -> f64 {
        sum as f64 / self.count.max(1) as f64
    }
}

impl Run {
    fn step(&mut self) -> Result<Timing> {
        let op = self.trace.next().expect("traces do not end");
        self.apply(&op)
    }

    fn apply(&mut self, op: &Op) -> Result<Timing> {
        self.live.apply(op);
        if let Op::Write { blocks, .. } = op {
            self.written += blocks;
        }
        self.volume.apply(op)
    }

    /// Fills. Returns the latencies of the first half.
    fn fill(&mut self, level: u64) -> Result<Waits> {
        let mut empty = Waiting::default();
        while !self.trace.is_filled() {
            let timing = self.step()?;
            if self.written <= level / 2 {
                empty.add(timing);
            }
        }
        Ok(empty.waits())
    }

    fn go_on(&mut self, until: u64, mut each: impl FnMut(&Run, Timing)) -> Result<()> {
        while self.written < until {
            let timing = self.step()?;
            each(self, timing);
        }
        Ok(())
    }

    /// Writes at this rate, even while earlier writes still wait.
    fn at_rate(&mut self, until: u64, bytes_per_second: f64) -> Result<Waits> {
        let mut waiting = Waiting::default();
        let mut arrival = self.volume.now() as f64;
        while self.written < until {
            let op = self.trace.next().expect("traces do not end");
            let Op::Write { blocks, .. } = op else {
                waiting.add(self.apply(&op)?);
                continue;
            };
            self.volume.rest_until(arrival as u64);
            self.apply(&op)?;
            let nanoseconds = self.volume.now() - arrival as u64;
            waiting.add(Timing::Wrote { blocks, nanoseconds });
            arrival += (blocks * BLOCK) as f64 / bytes_per_second * 1e9;
        }
        Ok(waiting.waits())
    }
}

/// The writes between two moments, by cause.
fn parts(before: &[u64], after: &[u64], user_bytes: u64) -> Vec<Part> {
    let written = before.iter().zip(after).map(|(before, after)| after - before);
    let part = |(cause, bytes): (&Cause, u64)| Part {
        cause: cause.name(),
        amplification: bytes as f64 / user_bytes as f64,
    };
    Cause::ALL.iter().zip(written).map(part).collect()
}

fn sum(parts: &[Part]) -> f64 {
    parts.iter().map(|part| part.amplification).sum()
}

impl Cell {
    /// Runs the cell.
    pub fn run(&self) -> Result<Row> {
        // The order of directory entries depends on the volume's secret.
        rt::random::repeat_from(self.seed);
        let of = (self.shape, self.medium, fs::Reserve::default(), self.switches);
        Volume::used_by(of, self.seed, |volume| self.run_on(volume))
    }

    fn run_on(&self, volume: Volume) -> Result<Row> {
        let offered_bytes = volume.available()?;
        let level = offered_bytes / BLOCK * self.fill_percent / 100;
        let trace = Trace::new(self.workload, level, self.seed);
        let mut run = Run { volume, trace, written: 0, live: Live::default() };
        let empty = run.fill(level)?;
        let from = run.written + level * self.warm_percent / 100;
        let to = from + level * self.measure_percent / 100;
        run.go_on(from, |_, _| {})?;
        let window = Window { from: run.written, to };
        let (mut closed, mut looks, mut operations) = (Waiting::default(), Looks::default(), 0);
        let (before, began) = (device_bytes(&run.volume), run.volume.now());
        run.go_on(to, |run, timing| {
            closed.add(timing);
            if operations % LOOK_EVERY == 0 {
                looks.look(run);
            }
            operations += 1;
        })?;
        let (after, took) = (device_bytes(&run.volume), run.volume.now() - began);
        let window = Window { to: run.written, ..window };
        let user_bytes = (window.to - window.from) * BLOCK;
        let bytes_per_second = user_bytes as f64 / took as f64 * 1e9;
        let half_rate = run.at_rate(to + (to - from) / 2, bytes_per_second / 2.0)?;
        let half_bytes = (run.written - window.to) * BLOCK;
        let half_parts = parts(&after, &device_bytes(&run.volume), half_bytes);
        let times = run.volume.times();
        let compared_blocks = run.volume.compare(COMPARED)?;
        if self.check {
            run.volume.check()?;
        }
        let data_zones = looks.mean(looks.data_zones);
        let live_blocks = looks.mean(looks.live_blocks);
        let zone_blocks = (self.shape.zone_bytes / BLOCK) as usize;
        let parts = parts(&before, &after, user_bytes);
        Ok(Row {
            workload: self.workload.name(),
            fill_percent: self.fill_percent,
            zones: self.shape.zones,
            zone_bytes: self.shape.zone_bytes,
            medium: self.medium,
            fsync: self.switches.fsync,
            hints: self.switches.hints,
            learning: self.switches.of_volume.is_learning(),
            seed: self.seed,
            offered_bytes,
            live_percent_of_raw: live_blocks / f64::from(self.shape.zones) / zone_blocks as f64 * 100.0,
            user_bytes,
            amplification: sum(&parts),
            parts,
            data_zones,
            metadata_zones: looks.mean(looks.metadata_zones),
            ideal: self.ideal_between(level, data_zones, window).ok(),
            ideal_of_all: self.ideal(level, self.shape.zones as usize, window).ok(),
            optimum: (self.workload == Workload::Uniform)
                .then(|| uniform_optimum((data_zones - 1.0) * zone_blocks as f64, live_blocks)),
            empty,
            closed: closed.waits(),
            half_rate,
            half_rate_amplification: sum(&half_parts),
            bytes_per_second,
            queued_ns_max: [CommandClass::Read, CommandClass::Write].map(|kind| times.of(kind).waited_ns_max),
            compared_blocks,
        })
    }

    /// For a fractional number of zones. One zone is worth several percent if there are few.
    fn ideal_between(&self, level: u64, zones: f64, window: Window) -> Result<f64, Full> {
        let more = self.ideal(level, zones.ceil() as usize, window)?;
        if zones.fract() == 0.0 {
            return Ok(more);
        }
        let fewer = self.ideal(level, zones.floor() as usize, window)?;
        Ok(fewer + (more - fewer) * zones.fract())
    }

    /// Runs the same trace through the ideal garbage collector. Returns its amplification over the same writes.
    fn ideal(&self, level: u64, zones: usize, window: Window) -> Result<f64, Full> {
        let mut collector = Collector::new(zones, (self.shape.zone_bytes / BLOCK) as usize);
        let mut trace = Trace::new(self.workload, level, self.seed);
        let mut go_on = |collector: &mut Collector, until: u64| {
            while collector.written().user < until {
                collector.apply(&trace.next().expect("traces do not end"))?;
            }
            Ok(())
        };
        go_on(&mut collector, window.from)?;
        let before = collector.written();
        go_on(&mut collector, window.to)?;
        Ok(collector.written().since(before).amplification())
    }
}

fn device_bytes(volume: &Volume) -> Vec<u64> {
    Cause::ALL.iter().map(|&cause| volume.written(cause)).collect()
}

impl Row {
    /// Refuses impossible figures: a device that takes fewer bytes than were written.
    pub fn verify(&self) -> Result<()> {
        ensure!(self.amplification >= 1.0, "{} device bytes per byte written", self.amplification);
        ensure!(self.closed.writes.count > 0 && self.half_rate.writes.count > 0, "no writes were timed");
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! How long reads and fsyncs of other files take while a writer causes garbage collection.
//!
//! A *writer* follows a trace of files in a closed loop. Meanwhile a *reader* reads 4 or 64 KiB at random from files
//! that are not written, and a *syncer* overwrites one block of a file of its own and makes it durable. The reader
//! and the syncer start operations at a modest rate, even if the writer waits. Their latency counts from the moment
//! at which the operation should have started. Data is never cached, so each read reaches the device. Each of the
//! three is a thread of one schedule in time, beside the threads of the volume. They compete for the locks of the
//! product and for the queues of the device as they do in the product.
//!
//! The same is measured while the writer writes, and again while it rests after all background work has been done. A
//! fill level at which GC finds hardly anything to do shows the latency that a busy device causes. Higher levels show
//! the latency that GC adds. For each operation the time of its own commands at the device, service and queue, is
//! known. The rest is waiting for other threads of this process: for locks, for conditions, and for a commit that
//! another thread has started.
//!
//! Not modelled: processors, the kernel and its cache, and the threads that answer a mount's requests (each writer
//! that waits occupies one of them). There is one writer, and the device serves commands in the order of arrival.

use std::sync::Arc;

use anyhow::{Result, ensure};
use fs::Reserve;
use rt::random::Rng;
use rt::schedule::{self, Body};
use rt::sync::{Condvar, Mutex};
use serde::Serialize;
use zone::Cause;

use crate::latency::{Latencies, Summary};
use crate::trace::{BLOCK, Class, Name, Op, PIECE, Trace, Workload};
use crate::volume::{Medium, Opened, Shape, Switches, Timing, Took, Volume};

/// The number of files to read, and their size. The size is limited to a share of the level.
const READ_FILES: u32 = 64;
const READ_SHARE: u64 = 32;
/// Blocks of a short and a long read.
const SHORT: u64 = 1;
const LONG: u64 = 16;
/// Blocks of the synced file.
const SYNCED_BLOCKS: u64 = 256;
/// The numbers of these files, beyond all numbers of a trace.
const SYNCED: u32 = u32::MAX;
const FIRST_READ: u32 = SYNCED - READ_FILES;
/// The average intervals between operations.
const READ_EVERY_NS: u64 = 500_000;
const SYNC_EVERY_NS: u64 = 20_000_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// The workload of the writer.
    pub workload: Workload,
    /// The fill level, in percent of the space available on the empty volume.
    pub fill_percent: u64,
    /// The device.
    pub shape: Shape,
    /// The device model.
    pub medium: Medium,
    /// Bytes written before the measurement, in percent of the level.
    pub warm_percent: u64,
    /// How long each part takes, in device time.
    pub milliseconds: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether to run the checker at the end.
    pub check: bool,
}

/// Latencies of a client: in total, and without its own commands at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// From the moment at which the operation should have started.
    pub all: Summary,
    /// Waiting for other threads of this process, from the start of the operation.
    pub for_others: Summary,
}

/// The latencies of reader and syncer in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Others {
    /// Reads of 4 KiB.
    pub reads_of_4_kib: Waits,
    /// Reads of 64 KiB.
    pub reads_of_64_kib: Waits,
    /// Writes of 4 KiB to a small file.
    pub writes_of_4_kib: Waits,
    /// The fsync after each write, from the return of that write.
    pub fsyncs: Waits,
}

/// The results of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wrote {
    /// Its writes of 1 MiB.
    pub writes_of_1_mib: Summary,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Bytes moved by GC for each byte written.
    pub moved_per_written: f64,
    /// Device bytes for each byte written.
    pub amplification: f64,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Seen {
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
    /// The seed.
    pub seed: u64,
    /// The writer.
    pub wrote: Wrote,
    /// The other clients while the writer wrote.
    pub beside: Others,
    /// The other clients while the writer rested.
    pub alone: Others,
}

#[derive(Default)]
struct Waiting {
    all: Latencies,
    for_others: Latencies,
}

impl Waiting {
    fn add(&mut self, since_ns: u64, took: Took) {
        self.all.add(since_ns);
        self.for_others.add(took.nanoseconds - took.at_device_ns);
    }

    fn waits(&self) -> Waits {
        Waits { all: self.all.summary(), for_others: self.for_others.summary() }
    }
}

/// One part of the measurement for a client with a fixed rate: it runs until this moment.
struct Part {
    until: u64,
    read: Arc<Vec<Opened>>,
    synced: Arc<Opened>,
}

/// A slot in which one thread leaves a value for another.
struct Post<T> {
    left: Mutex<Option<T>>,
    changed: Condvar,
}

impl<T> Default for Post<T> {
    fn default() -> Self {
        Post { left: Mutex::new(None), changed: Condvar::new() }
    }
}

impl<T> Post<T> {
    fn put(&self, what: T) {
        *self.left.lock() = Some(what);
        self.changed.notify_all();
    }

    fn take(&self) -> T {
        let mut left = self.left.lock();
        loop {
            if let Some(what) = left.take() {
                return what;
            }
            self.changed.wait(&mut left);
        }
    }
}

/// A client with a fixed rate, on a thread of its own: its task, and the two latencies that it measured.
#[derive(Default)]
struct Client {
    /// `None`: the run is over.
    tasks: Post<Option<Part>>,
    results: Post<Result<[Waits; 2]>>,
}

impl Client {
    fn serve(&self, mut run_part: impl FnMut(&Part) -> Result<[Waits; 2]>) {
        while let Some(part) = self.tasks.take() {
            let waits = run_part(&part);
            drop(part);
            self.results.put(waits);
        }
    }
}

/// The arrivals of a client. Intervals are random with a given average, so that no two clients run in step.
struct Arrivals {
    next: u64,
    every_ns: u64,
}

impl Arrivals {
    /// Sleeps until the next arrival. `None` if that is later than `until`.
    fn wait(&mut self, rng: &mut Rng, until: u64) -> Option<u64> {
        self.next += rng.u64(1..2 * self.every_ns);
        let arrival = Some(self.next).filter(|next| *next < until)?;
        assert!(schedule::sleep_until(arrival), "a client is a thread of a schedule");
        Some(arrival)
    }
}

fn read(part: &Part, rng: &mut Rng) -> Result<[Waits; 2]> {
    let mut waiting = [Waiting::default(), Waiting::default()];
    let mut arrivals = Arrivals { next: part.synced.now(), every_ns: READ_EVERY_NS };
    let mut buffer = [0; (LONG * BLOCK) as usize];
    while let Some(arrival) = arrivals.wait(rng, part.until) {
        let (file, is_long) = (&part.read[rng.usize(..part.read.len())], rng.bool());
        let blocks = if is_long { LONG } else { SHORT };
        let start = rng.u64(0..=file.blocks() - blocks);
        let took = file.read(start, &mut buffer[..(blocks * BLOCK) as usize])?;
        waiting[usize::from(is_long)].add(file.now() - arrival, took);
    }
    Ok(waiting.map(|waiting| waiting.waits()))
}

fn sync(part: &Part, rng: &mut Rng) -> Result<[Waits; 2]> {
    let (mut writes, mut syncs) = (Waiting::default(), Waiting::default());
    let file = &part.synced;
    let mut arrivals = Arrivals { next: file.now(), every_ns: SYNC_EVERY_NS };
    while let Some(arrival) = arrivals.wait(rng, part.until) {
        let took = file.write(rng.u64(0..file.blocks()), rng.u16(..))?;
        writes.add(file.now() - arrival, took);
        let took = file.sync()?;
        syncs.add(took.nanoseconds, took);
    }
    Ok([writes.waits(), syncs.waits()])
}

/// The writer and the clients beside it.
struct Run<'a> {
    volume: Volume,
    trace: Trace,
    written: u64,
    clients: &'a [Client; 2],
}

impl Run<'_> {
    fn step(&mut self) -> Result<Timing> {
        let op = self.trace.next().expect("traces do not end");
        if let Op::Write { blocks, .. } = op {
            self.written += blocks;
        }
        self.volume.apply(&op)
    }

    fn make(&mut self, file: u32, blocks: u64) -> Result<()> {
        let name = Name { directory: "beside", suffix: "" };
        self.volume.apply(&Op::Create { file, name, class: Class::Unknown })?;
        self.volume.apply(&Op::Write { file, start: 0, blocks })?;
        self.volume.apply(&Op::Close { file })?;
        Ok(())
    }

    /// Fills the volume up to this many blocks, without counting the files that are read. Those lie among the others.
    fn fill(&mut self, level: u64, read_blocks: u64) -> Result<()> {
        self.make(SYNCED, SYNCED_BLOCKS.min(read_blocks * u64::from(READ_FILES)).min(PIECE))?;
        let mut files = FIRST_READ..SYNCED;
        while !self.trace.is_filled() {
            self.step()?;
            let made = u64::from(files.start - FIRST_READ);
            if self.written * u64::from(READ_FILES) > made * level
                && let Some(file) = files.next()
            {
                self.make(file, read_blocks)?;
            }
        }
        files.try_for_each(|file| self.make(file, read_blocks))
    }

    fn part(&self, until: u64) -> Result<()> {
        let read: Result<Vec<Opened>> =
            (FIRST_READ..SYNCED).map(|file| self.volume.open_for_another(file)).collect();
        let (read, synced) = (Arc::new(read?), Arc::new(self.volume.open_for_another(SYNCED)?));
        for each in self.clients {
            let part = Part { until, read: Arc::clone(&read), synced: Arc::clone(&synced) };
            each.tasks.put(Some(part));
        }
        Ok(())
    }

    fn results(&self) -> Result<Others> {
        let [reads, syncs] = self.clients.each_ref().map(|each| each.results.take());
        let ([reads_of_4_kib, reads_of_64_kib], [writes_of_4_kib, fsyncs]) = (reads?, syncs?);
        Ok(Others { reads_of_4_kib, reads_of_64_kib, writes_of_4_kib, fsyncs })
    }

    fn beside(&mut self, nanoseconds: u64) -> Result<(Wrote, Others)> {
        let (began, before) = (self.volume.now(), self.written);
        let bytes = |volume: &Volume| [volume.written(Cause::Gc), volume.written_in_all()];
        let bytes_before = bytes(&self.volume);
        self.part(began + nanoseconds)?;
        let mut pieces = Latencies::default();
        while self.volume.now() < began + nanoseconds {
            if let Timing::Wrote { blocks: PIECE, nanoseconds } = self.step()? {
                pieces.add(nanoseconds);
            }
        }
        let took = self.volume.now() - began;
        let after = bytes(&self.volume);
        let others = self.results()?;
        let user_bytes = ((self.written - before) * BLOCK) as f64;
        let [moved, in_all] = [0, 1].map(|which| (after[which] - bytes_before[which]) as f64);
        let wrote = Wrote {
            writes_of_1_mib: pieces.summary(),
            bytes_per_second: user_bytes / took as f64 * 1e9,
            moved_per_written: moved / user_bytes,
            amplification: in_all / user_bytes,
        };
        Ok((wrote, others))
    }

    fn alone(&mut self, nanoseconds: u64) -> Result<Others> {
        self.volume.rest()?;
        self.part(self.volume.now() + nanoseconds)?;
        self.results()
    }
}

impl Beside {
    /// Runs the measurement.
    pub fn run(&self) -> Result<Seen> {
        rt::random::repeat_from(self.seed);
        let clients = [Client::default(), Client::default()];
        let of = (self.shape, self.medium, Reserve::default(), Switches::default());
        let others = clients.iter().zip(["reader", "syncer"]).map(|(each, name)| -> Body<'_, ()> {
            let mut rng = Rng::with_seed(self.seed ^ name.len() as u64);
            let run_part = if name == "reader" { read } else { sync };
            (name.to_owned(), Box::new(move || each.serve(|part| run_part(part, &mut rng))))
        });
        let client = |volume| {
            let seen = self.run_on(volume, &clients);
            clients.iter().for_each(|each| each.tasks.put(None));
            seen
        };
        let seen = Volume::used_beside(of, self.seed, client, others.collect())?;
        seen.verify()?;
        Ok(seen)
    }

    fn run_on(&self, volume: Volume, clients: &[Client; 2]) -> Result<Seen> {
        let all = volume.available()? / BLOCK * self.fill_percent / 100;
        let read_blocks = (all / READ_SHARE / u64::from(READ_FILES)).clamp(LONG, PIECE);
        let level = all.saturating_sub(read_blocks * u64::from(READ_FILES) + SYNCED_BLOCKS);
        ensure!(level > 0, "at {} % there is no space for the files that are read", self.fill_percent);
        let trace = Trace::new(self.workload, level, self.seed);
        let mut run = Run { volume, trace, written: 0, clients };
        run.fill(level, read_blocks)?;
        let until = run.written + level * self.warm_percent / 100;
        while run.written < until {
            run.step()?;
        }
        let nanoseconds = self.milliseconds * 1_000_000;
        let (wrote, beside) = run.beside(nanoseconds)?;
        let alone = run.alone(nanoseconds)?;
        if self.check {
            run.volume.check()?;
        }
        Ok(Seen {
            workload: self.workload.name(),
            fill_percent: self.fill_percent,
            zones: self.shape.zones,
            zone_bytes: self.shape.zone_bytes,
            medium: self.medium,
            seed: self.seed,
            wrote,
            beside,
            alone,
        })
    }
}

impl Seen {
    /// Refuses results without meaning: a client without operations, or a writer that did not write.
    fn verify(&self) -> Result<()> {
        ensure!(self.wrote.writes_of_1_mib.count > 0, "nothing was written");
        for others in [&self.beside, &self.alone] {
            let Others { reads_of_4_kib, reads_of_64_kib, writes_of_4_kib, fsyncs } = others;
            let counts =
                [reads_of_4_kib, reads_of_64_kib, writes_of_4_kib, fsyncs].map(|waits| waits.all.count);
            ensure!(counts.iter().all(|count| *count > 0), "a client did not read or sync: {others:?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

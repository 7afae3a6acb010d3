//! Bytes and single operations, in turns: the figures of `cargo xtask bench`.
//!
//! In each round every place does every operation for a moment, one place right after the other. Files are new in
//! every round, and use direct I/O if there is a kernel cache in between.

use std::sync::Arc;

use rt::Clock;
use rt::random::Rng;
use rt::thread::JoinHandle;

use super::{Bytes, Named, Place, Result, rate};

/// Bytes of large reads and writes.
const LARGE: usize = 1 << 20;
/// Bytes of small reads and writes.
pub(super) const SMALL: usize = 4096;
/// How many operations are in progress at once.
pub(super) const DEPTH: u64 = 16;
/// The alignment that direct I/O requires.
const ALIGNMENT: usize = 4096;
/// Bytes of a file whose names are measured.
const NAMED: [u8; 1024] = [0x5a; 1024];

/// The amount of work in one turn.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Bytes of the file that is written and read.
    pub file_bytes: u64,
    /// Small reads, and small writes.
    pub small: u64,
    /// Small writes that are each made durable.
    pub synced: u64,
    /// Files created, looked up and removed.
    pub names: u64,
}

/// The result of one turn.
pub struct Measured<'a> {
    /// The place's name.
    pub place: &'a str,
    /// The operation.
    pub operation: &'static str,
    /// Operations per second.
    pub rate: f64,
}

/// One operation in one place. Returns operations per second.
type Operation = fn(&dyn Place, &Turn, u64, &dyn Clock) -> Result<f64>;

/// The operations, in this order: files are written, read and removed.
const BYTES: [(&str, Operation); 6] = [
    ("sequential write", write_large),
    ("sequential read", read_large),
    ("random read", read_small),
    ("random write", write_small),
    ("write and fsync", write_synced),
    ("write and fsync, 16 threads", write_synced_together),
];

const NAMES: [(&str, Operation); 3] = [("create", create), ("stat", stat), ("unlink", unlink)];

/// A transfer that a device without names can do. Each uses the bytes that the previous one wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Large writes from start to end.
    Write,
    /// Large reads of the written bytes, from start to end.
    Read,
    /// Small reads, at random.
    ReadSmall,
}

/// Moves the bytes of one turn. Returns large or small operations per second.
pub fn transfer(place: &dyn Place, what: Transfer, turn: &Turn, clock: &dyn Clock) -> Result<f64> {
    let operation: Operation = match what {
        Transfer::Write => write_large,
        Transfer::Read => read_large,
        Transfer::ReadSmall => read_small,
    };
    operation(place, turn, 0, clock)
}

/// Runs every operation in every place, `rounds` times. Places without names do what they can.
pub fn run(
    places: &[Named],
    turn: &Turn,
    rounds: u64,
    clock: &dyn Clock,
    each: &mut dyn FnMut(Measured<'_>),
) -> Result<()> {
    for round in 0..rounds {
        let mut all = |operations: &[(&'static str, Operation)], with_names: bool| -> Result<()> {
            for &(operation, work) in operations {
                for Named { name, place } in
                    places.iter().filter(|named| !with_names || named.place.has_names())
                {
                    let rate = work(&**place, turn, round, clock);
                    let rate = rate.map_err(|wrong| format!("{name}: {operation}: {wrong}"))?;
                    each(Measured { place: name, operation, rate });
                }
            }
            Ok(())
        };
        all(&BYTES, false)?;
        all(&NAMES, true)?;
        places.iter().try_for_each(|named| tidy_up(&*named.place))?;
    }
    Ok(())
}

/// Aligned memory for direct I/O.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub(super) fn new(length: usize, seed: u64) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        let mut buffer = Buffer { bytes, start, length };
        Rng::with_seed(seed).fill(buffer.get_mut());
        buffer
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[self.start..][..self.length]
    }

    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }
}

const FILE: &str = "bytes";

fn write_large(place: &dyn Place, turn: &Turn, round: u64, clock: &dyn Clock) -> Result<f64> {
    let file = place.open(FILE)?;
    let buffer = Buffer::new(LARGE, round);
    let writes = turn.file_bytes / LARGE as u64;
    rate(clock, writes, || {
        (0..writes).try_for_each(|number| file.write(number * LARGE as u64, buffer.get()))?;
        file.sync()
    })
}

fn read_large(place: &dyn Place, turn: &Turn, round: u64, clock: &dyn Clock) -> Result<f64> {
    let file = place.open(FILE)?;
    let (mut buffer, written) = (Buffer::new(LARGE, 0), Buffer::new(LARGE, round));
    let reads = turn.file_bytes / LARGE as u64;
    let rate = rate(clock, reads, || {
        (0..reads).try_for_each(|number| file.read(number * LARGE as u64, buffer.get_mut()))
    })?;
    if buffer.get() == written.get() { Ok(rate) } else { Err("something else was written".to_owned()) }
}

fn read_small(place: &dyn Place, turn: &Turn, round: u64, clock: &dyn Clock) -> Result<f64> {
    let (blocks, count) = (turn.file_bytes / SMALL as u64, turn.small / DEPTH);
    at_once(place, &[FILE.to_owned()], turn.small, clock, move |thread, file| {
        let mut rng = Rng::with_seed(round * DEPTH + thread);
        let mut buffer = Buffer::new(SMALL, 0);
        (0..count).try_for_each(|_| file.read(rng.u64(0..blocks) * SMALL as u64, buffer.get_mut()))
    })
}

fn write_small(place: &dyn Place, turn: &Turn, round: u64, clock: &dyn Clock) -> Result<f64> {
    let (blocks, count) = (turn.file_bytes / SMALL as u64, turn.small / DEPTH);
    at_once(place, &[FILE.to_owned()], turn.small, clock, move |thread, file| {
        let mut rng = Rng::with_seed(round * DEPTH + thread);
        let buffer = Buffer::new(SMALL, thread);
        (0..count).try_for_each(|_| file.write(rng.u64(0..blocks) * SMALL as u64, buffer.get()))
    })
}

/// Appends to a file. Each append is made durable.
fn append(file: &dyn Bytes, count: u64, seed: u64) -> Result<()> {
    let buffer = Buffer::new(SMALL, seed);
    (0..count).try_for_each(|number| {
        file.write(number * SMALL as u64, buffer.get())?;
        file.sync()
    })
}

fn write_synced(place: &dyn Place, turn: &Turn, round: u64, clock: &dyn Clock) -> Result<f64> {
    let file = place.open(&synced_name(0))?;
    rate(clock, turn.synced, || append(&*file, turn.synced, round))
}

fn write_synced_together(place: &dyn Place, turn: &Turn, round: u64, clock: &dyn Clock) -> Result<f64> {
    let count = turn.synced.div_ceil(4);
    let names: Vec<String> = (0..DEPTH).map(|thread| synced_name(1 + thread)).collect();
    at_once(place, &names, count * DEPTH, clock, move |thread, file| append(file, count, round + thread))
}

fn synced_name(number: u64) -> String {
    format!("synced{number}")
}

/// Runs `work` on [`DEPTH`] threads at once, which share the files.
pub(super) fn at_once(
    place: &dyn Place,
    names: &[String],
    operations: u64,
    clock: &dyn Clock,
    work: impl Fn(u64, &dyn Bytes) -> Result<()> + Send + Sync + 'static,
) -> Result<f64> {
    let files: Vec<Arc<dyn Bytes>> =
        names.iter().map(|name| place.open(name).map(Arc::from)).collect::<Result<_>>()?;
    let work = Arc::new(work);
    rate(clock, operations, || {
        let start = |thread: u64| {
            let (work, file) = (Arc::clone(&work), Arc::clone(&files[thread as usize % files.len()]));
            rt::thread::spawn("turn", move || work(thread, &*file)).map_err(|error| error.to_string())
        };
        let threads: Vec<JoinHandle<Result<()>>> = (0..DEPTH).map(start).collect::<Result<_>>()?;
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

fn create(place: &dyn Place, turn: &Turn, _round: u64, clock: &dyn Clock) -> Result<f64> {
    rate(clock, turn.names, || (0..turn.names).try_for_each(|file| place.create(&format!("f{file}"), &NAMED)))
}

fn stat(place: &dyn Place, turn: &Turn, _round: u64, clock: &dyn Clock) -> Result<f64> {
    rate(clock, turn.names, || {
        (0..turn.names).try_for_each(|file| match place.lookup(&format!("f{file}"))? {
            size if size == NAMED.len() as u64 => Ok(()),
            size => Err(format!("file {file} has {size} bytes")),
        })
    })
}

fn unlink(place: &dyn Place, turn: &Turn, _round: u64, clock: &dyn Clock) -> Result<f64> {
    rate(clock, turn.names, || (0..turn.names).try_for_each(|file| place.remove(&format!("f{file}"))))
}

/// Removes everything, so that the next round starts empty.
fn tidy_up(place: &dyn Place) -> Result<()> {
    place.remove(FILE)?;
    (0..=DEPTH).try_for_each(|number| place.remove(&synced_name(number)))?;
    place.sync()
}

/// Metadata written for each operation, in bytes.
pub struct Amplification {
    /// Bytes of metadata before.
    pub tree: u64,
    /// For each created file.
    pub create: f64,
    /// For each overwritten file, at random.
    pub overwrite: f64,
    /// For each removed file, at random.
    pub unlink: f64,
}

/// Creates files of 1 KiB, whose contents are metadata. Then creates some more, overwrites and removes as many at
/// random, and counts the metadata written to the device until everything is durable.
pub fn amplification(place: &dyn Place, files: u64, operations: u64, seed: u64) -> Result<Amplification> {
    let mut rng = Rng::with_seed(seed);
    let unknown = || "the place does not count its metadata".to_owned();
    let written = || place.metadata_bytes().ok_or_else(unknown);
    let done = operations.min(files);
    let per = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let before = written()?;
        work()?;
        place.sync()?;
        Ok((written()? - before) as f64 / done as f64)
    };
    let make = |file: u64| place.create(&format!("m{file}"), &NAMED);
    (0..files).try_for_each(make)?;
    place.sync()?;
    let tree = place.live_metadata_bytes().ok_or_else(unknown)?;
    let create = per(&mut || (files..files + done).try_for_each(make))?;
    let mut numbers: Vec<u64> = (0..files).collect();
    rng.shuffle(&mut numbers);
    numbers.truncate(done as usize);
    let overwrite = per(&mut || {
        numbers.iter().try_for_each(|file| place.open(&format!("m{file}"))?.write(0, &NAMED[1..]))
    })?;
    let unlink = per(&mut || numbers.iter().try_for_each(|file| place.remove(&format!("m{file}"))))?;
    Ok(Amplification { tree, create, overwrite, unlink })
}

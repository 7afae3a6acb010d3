//! Endurance: creates, overwrites, truncates and deletes files at random, at a fill level, until many times the
//! capacity has been written. Then everything is compared with the model. The volume may be filled to the last block
//! in between, to check that the available space can be written, and no more.

use std::collections::BTreeMap;

use rt::random::Rng;

use super::bytes::{GRANULE, fill};
use super::{Place, Refused};
use crate::caught::Wrong;

/// Bytes of a write.
const PIECE: u64 = 1 << 20;
/// How much may fit when no space is available: a few dozen nodes of names.
const NAMES_BYTES: u64 = 1 << 20;
/// Sizes of files are log-uniform between a granule and this limit, or a share of the volume if that is smaller.
const LARGEST: u64 = 8 << 20;
/// One of this many operations is followed by an fsync.
const FSYNC_EVERY: u32 = 16;
/// The level counts as reached from this fill on, and the average fill must reach it. In thousandths.
const FULL_PERMILLE: u64 = 900;
/// One of this many operations compares a whole file.
const COMPARE_EVERY: u32 = 64;
/// One of this many operations fills the volume to the last block, if that is requested.
const FILL_UP_EVERY: u32 = 128;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The fill level, in percent of the space available on the empty volume.
    pub percent: u64,
    /// Bytes to write.
    pub total: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Fill the volume to the last block now and then, and at the end. Only for a place with no other activity, so
    /// that all freed space is available to the run.
    pub fill_up: bool,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endured {
    /// Bytes available on the empty volume.
    pub offered: u64,
    /// Bytes written.
    pub written: u64,
    /// Operations.
    pub operations: u64,
    /// Bytes compared.
    pub compared: u64,
    /// Files at the end.
    pub files: u64,
    /// The average fill since the level was reached, in thousandths of the level.
    pub full_permille: u64,
    /// The least fill since then.
    pub least_permille: u64,
    /// How often the volume was filled to the last block.
    pub fill_ups: u64,
    /// Bytes written for that, and into files while it was full, in addition to `written`.
    pub filled: u64,
    /// Writes that were refused because they did not fit.
    pub refused: u64,
}

/// A granule of a file: the number of its write, and the bytes of that write in it. Zeros follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Granule {
    write: u64,
    bytes: u16,
}

/// The expected contents of a file.
#[derive(Clone, Debug, Default)]
struct Model {
    size: u64,
    granules: Vec<Granule>,
}

struct Run<'a, P> {
    place: &'a mut P,
    rng: Rng,
    files: BTreeMap<u32, Model>,
    next: u32,
    /// Bytes of granules in files.
    used: u64,
    /// The limit for `used`.
    level: u64,
    largest: u64,
    /// The fill after each operation since the level was reached, in thousandths of the level.
    fills: Vec<u16>,
    done: Endured,
}

/// Runs until the requested number of bytes has been written.
pub fn endure<P: Place>(place: &mut P, asked: &Asked) -> Result<Endured, Wrong> {
    let offered = place.available().map_err(|error| error.wrong("querying the available space"))?;
    let mut run = Run::new(place, offered / 100 * asked.percent, asked.seed);
    run.done.offered = offered;
    while run.done.written < asked.total {
        let operated = run.operate().and_then(|()| match asked.fill_up && run.is_time_to_fill_up() {
            true => run.fill_up(),
            false => Ok(()),
        });
        operated.map_err(|wrong| {
            let Endured { operations, written, .. } = run.done;
            Wrong(format!("operation {operations}, after {written} bytes: {wrong}"))
        })?;
    }
    if asked.fill_up {
        run.fill_up().map_err(|wrong| Wrong(format!("at the end: {wrong}")))?;
    }
    run.finish()
}

/// How far a file system came that may refuse operations.
#[derive(Clone, Debug, Default)]
pub struct Churned {
    /// Bytes written until the level was reached.
    pub filling: u64,
    /// Bytes written since then.
    pub churning: u64,
    /// The refusal that ended the run. `None` if everything was written.
    pub refused: Option<Refused>,
}

/// The same operations with `level` bytes in files, until this many bytes have been written after the level was
/// reached. `reached` is called at that moment. Each write is made durable. A refusal ends the run and is no error.
/// Wrong file contents are an error.
pub fn churn<P: Place>(
    place: &mut P,
    level: u64,
    total: u64,
    seed: u64,
    reached: &mut dyn FnMut() -> Result<(), Wrong>,
) -> Result<Churned, Wrong> {
    let mut noting = Noting { place, refused: None };
    let mut run = Run::new(&mut noting, level, seed);
    let mut filling = None;
    let ended = loop {
        if let Err(wrong) = run.operate() {
            break Err(wrong);
        }
        if filling.is_none() && run.used * 1000 >= level * FULL_PERMILLE {
            filling = Some(run.done.written);
            reached()?;
        }
        if filling.is_some_and(|filling| run.done.written - filling >= total) {
            let files: Vec<u32> = run.files.keys().copied().collect();
            break files.into_iter().try_for_each(|file| run.compare(file));
        }
    };
    let written = run.done.written;
    let filling = filling.unwrap_or(written);
    match (ended, noting.refused) {
        (Ok(()), None) => Ok(Churned { filling, churning: written - filling, refused: None }),
        (_, Some(refused)) => Ok(Churned { filling, churning: written - filling, refused: Some(refused) }),
        (Err(wrong), None) => Err(wrong),
    }
}

/// A place that remembers refusals. Each write is made durable at once. Otherwise a file might be deleted while it is
/// only in the kernel's cache, and the file system would never have to find space for it.
struct Noting<'a, P> {
    place: &'a mut P,
    refused: Option<Refused>,
}

impl<P> Noting<'_, P> {
    fn note<T>(&mut self, done: Result<T, Refused>) -> Result<T, Refused> {
        if let Err(refused) = &done {
            self.refused = Some(refused.clone());
        }
        done
    }
}

impl<P: Place> Place for Noting<'_, P> {
    fn create(&mut self, file: u32) -> Result<(), Refused> {
        let done = self.place.create(file);
        self.note(done)
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let done = self.place.write(file, offset, bytes).and_then(|()| self.place.fsync(file));
        self.note(done)
    }

    fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused> {
        let done = self.place.truncate(file, size);
        self.note(done)
    }

    fn remove(&mut self, file: u32) -> Result<(), Refused> {
        let done = self.place.remove(file);
        self.note(done)
    }

    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused> {
        let done = self.place.read(file, offset, into);
        self.note(done)
    }

    fn fsync(&mut self, file: u32) -> Result<(), Refused> {
        let done = self.place.fsync(file);
        self.note(done)
    }

    fn available(&mut self) -> Result<u64, Refused> {
        let done = self.place.available();
        self.note(done)
    }

    fn verify(&mut self) -> Result<(), Refused> {
        let done = self.place.verify();
        self.note(done)
    }

    fn regain(&mut self, bytes: u64) -> Result<u64, Refused> {
        let done = self.place.regain(bytes);
        self.note(done)
    }
}

impl<'a, P: Place> Run<'a, P> {
    /// The state before the first operation.
    fn new(place: &'a mut P, level: u64, seed: u64) -> Self {
        Run {
            place,
            rng: Rng::with_seed(seed),
            files: BTreeMap::new(),
            next: 0,
            used: 0,
            level,
            largest: LARGEST.min(level / 16).max(GRANULE),
            fills: Vec::new(),
            done: Endured::default(),
        }
    }

    fn operate(&mut self) -> Result<(), Wrong> {
        self.done.operations += 1;
        let file = self.any();
        match (self.rng.u32(0..10), file) {
            (0..4, _) | (_, None) => self.create()?,
            (4..8, Some(file)) => self.overwrite(file)?,
            (8, Some(file)) => self.truncate(file)?,
            (_, Some(file)) => self.remove(file)?,
        }
        while self.used > self.level {
            let file = self.any().expect("used bytes are in files");
            self.remove(file)?;
        }
        let permille = self.used * 1000 / self.level.max(1);
        if !self.fills.is_empty() || permille >= FULL_PERMILLE {
            self.fills.push(permille as u16);
        }
        if let Some(file) = self.any() {
            if self.rng.u32(0..FSYNC_EVERY) == 0 {
                self.place.fsync(file).map_err(|error| error.wrong(format!("fsync of {file}")))?;
            }
            if self.rng.u32(0..COMPARE_EVERY) == 0 {
                self.compare(file)?;
            }
        }
        Ok(())
    }

    /// A random file.
    fn any(&mut self) -> Option<u32> {
        let from = self.rng.u32(0..self.next.max(1));
        let (file, _) = self.files.range(from..).next().or_else(|| self.files.iter().next())?;
        Some(*file)
    }

    /// A length, log-uniform from a granule to the largest.
    fn length(&mut self) -> u64 {
        let steps = (self.largest / GRANULE).ilog2();
        let up_to = (GRANULE << self.rng.u32(0..=steps)).min(self.largest);
        self.rng.u64(up_to / 2..=up_to)
    }

    /// Creates a file, after freeing space for it, so that the level is never exceeded.
    fn create(&mut self) -> Result<(), Wrong> {
        let (file, length) = (self.next, self.length());
        while self.used + length.next_multiple_of(GRANULE) > self.level {
            let other = self.any().expect("the largest file is a part of the level");
            self.remove(other)?;
        }
        self.next += 1;
        self.place.create(file).map_err(|error| error.wrong(format!("creating {file}")))?;
        self.files.insert(file, Model::default());
        self.write(file, 0, length)
    }

    fn overwrite(&mut self, file: u32) -> Result<(), Wrong> {
        let size = self.files[&file].size;
        let offset = self.rng.u64(0..=size / GRANULE) * GRANULE;
        let length = self.length().min(self.largest.saturating_sub(offset)).max(1);
        // A write that ends in the middle of a granule must end the file.
        let whole = if offset + length < size { length.next_multiple_of(GRANULE) } else { length };
        let grown = (offset + whole).next_multiple_of(GRANULE).saturating_sub(size.next_multiple_of(GRANULE));
        if self.used + grown > self.level {
            return self.remove(file);
        }
        self.write(file, offset, whole)
    }

    fn write(&mut self, file: u32, offset: u64, length: u64) -> Result<(), Wrong> {
        self.put(file, offset, length)?;
        self.done.written += length;
        Ok(())
    }

    fn put(&mut self, file: u32, offset: u64, length: u64) -> Result<(), Wrong> {
        let write = self.done.operations;
        let mut bytes = vec![0; length.min(PIECE) as usize];
        let mut at = offset;
        while at < offset + length {
            let piece = &mut bytes[..PIECE.min(offset + length - at) as usize];
            fill(piece, file, at, write);
            self.place
                .write(file, at, piece)
                .map_err(|error| error.wrong(format!("writing {} bytes at {at} of {file}", piece.len())))?;
            at += piece.len() as u64;
        }
        let model = self.files.get_mut(&file).expect("only existing files are written");
        self.used -= model.used();
        model.write(offset, length, write);
        self.used += model.used();
        Ok(())
    }

    fn truncate(&mut self, file: u32) -> Result<(), Wrong> {
        let model = self.files.get_mut(&file).expect("only existing files are truncated");
        let size = self.rng.u64(0..=model.size);
        self.place.truncate(file, size).map_err(|error| error.wrong(format!("cutting {file} to {size}")))?;
        self.used -= model.used();
        model.truncate(size);
        self.used += model.used();
        Ok(())
    }

    fn remove(&mut self, file: u32) -> Result<(), Wrong> {
        self.place.remove(file).map_err(|error| error.wrong(format!("deleting {file}")))?;
        let model = self.files.remove(&file).expect("only existing files are deleted");
        self.used -= model.used();
        Ok(())
    }

    fn compare(&mut self, file: u32) -> Result<(), Wrong> {
        let model = &self.files[&file];
        let mut found = vec![0; PIECE as usize];
        let mut offset = 0;
        loop {
            let (size, read) = self
                .place
                .read(file, offset, &mut found)
                .map_err(|error| error.wrong(format!("reading {file} at {offset}")))?;
            if size != model.size {
                return Err(Wrong(format!("{file} has {size} bytes, not {}", model.size)));
            }
            if let Some(at) = model.differs(file, offset, &found[..read]) {
                return Err(Wrong(format!("{file} of {size} bytes differs from the write at {at}")));
            }
            offset += read as u64;
            self.done.compared += read as u64;
            if offset >= size {
                return Ok(());
            }
            if read == 0 {
                return Err(Wrong(format!("{file} of {size} bytes ends at {offset}")));
            }
        }
    }

    /// Only after the level has been reached.
    fn is_time_to_fill_up(&mut self) -> bool {
        !self.fills.is_empty() && self.rng.u32(0..FILL_UP_EVERY) == 0
    }

    /// A file takes all available space. Then no operation that needs another block succeeds, but files can be
    /// overwritten and deleted. At the end the file is deleted.
    fn fill_up(&mut self) -> Result<(), Wrong> {
        let Some(other) = self.any() else { return Ok(()) };
        let file = self.next;
        self.next += 1;
        self.place.create(file).map_err(|error| error.wrong(format!("creating {file}")))?;
        self.files.insert(file, Model::default());
        self.take_all(file).map_err(|wrong| Wrong(format!("filling it to the last block: {wrong}")))?;
        self.refuses(file)?;
        self.refuses(other)?;
        let whole = self.files[&other].size / GRANULE * GRANULE;
        self.put(other, 0, whole)
            .map_err(|wrong| Wrong(format!("writing over while it is full: {wrong}")))?;
        self.done.filled += whole;
        self.compare(file)?;
        self.compare(other)?;
        self.done.fill_ups += 1;
        self.remove(other)?;
        self.remove(file)
    }

    /// Writes until no space is available. Space that was counted for metadata and is not needed becomes available
    /// again.
    fn take_all(&mut self, file: u32) -> Result<(), Wrong> {
        let mut unoffered = 0;
        loop {
            let offered =
                self.place.regain(0).map_err(|error| error.wrong("querying the available space"))?;
            let length = offered / GRANULE * GRANULE;
            if length == 0 {
                if !self.takes_more(file)? {
                    return Ok(());
                }
                unoffered += GRANULE;
                if unoffered > NAMES_BYTES {
                    return Err(Wrong(format!("no space is available, but {unoffered} more bytes fit")));
                }
                continue;
            }
            self.put(file, self.files[&file].size, length)?;
            self.done.filled += length;
            self.place.fsync(file).map_err(|error| error.wrong(format!("fsync of {file}")))?;
        }
    }

    /// Appends a granule if there is space for it. The available space leaves out what names may need.
    fn takes_more(&mut self, file: u32) -> Result<bool, Wrong> {
        let (size, write) = (self.files[&file].size, self.done.operations);
        let mut bytes = [0; GRANULE as usize];
        fill(&mut bytes, file, size, write);
        match self.place.write(file, size, &bytes).and_then(|()| self.place.fsync(file)) {
            Err(Refused::NoSpace) => return Ok(false),
            written => written.map_err(|error| error.wrong(format!("writing a granule more to {file}")))?,
        }
        let model = self.files.get_mut(&file).expect("it is there");
        self.used -= model.used();
        model.write(size, GRANULE, write);
        self.used += model.used();
        self.done.filled += GRANULE;
        Ok(true)
    }

    /// A granule beyond all blocks of the file is refused.
    fn refuses(&mut self, file: u32) -> Result<(), Wrong> {
        let offset = self.files[&file].size.next_multiple_of(PIECE);
        let written = self.place.write(file, offset, &[1; GRANULE as usize]);
        match written.and_then(|()| self.place.fsync(file)) {
            Err(Refused::NoSpace) => {
                self.done.refused += 1;
                Ok(())
            }
            Err(error) => Err(error.wrong(format!("writing more than is available to {file}"))),
            Ok(()) => Err(Wrong(format!("no space is available, but {file} takes another block"))),
        }
    }

    /// Compares everything, deletes it, and checks that all space is available again.
    fn finish(mut self) -> Result<Endured, Wrong> {
        let sum: u64 = self.fills.iter().map(|&permille| u64::from(permille)).sum();
        self.done.full_permille = sum / (self.fills.len() as u64).max(1);
        self.done.least_permille = self.fills.iter().min().copied().map_or(0, u64::from);
        if self.done.full_permille < FULL_PERMILLE {
            return Err(Wrong(format!("it was {} ‰ full of the requested level", self.done.full_permille)));
        }
        let files: Vec<u32> = self.files.keys().copied().collect();
        self.done.files = files.len() as u64;
        self.place.verify().map_err(|error| error.wrong("verifying everything"))?;
        for &file in &files {
            self.compare(file)?;
        }
        for file in files {
            self.remove(file)?;
        }
        let left =
            self.place.regain(self.done.offered).map_err(|error| error.wrong("after deleting everything"))?;
        if left < self.done.offered {
            return Err(Wrong(format!(
                "{left} bytes are available after everything was deleted, {} before",
                self.done.offered
            )));
        }
        Ok(self.done)
    }
}

impl Model {
    fn used(&self) -> u64 {
        self.size.next_multiple_of(GRANULE)
    }

    fn write(&mut self, offset: u64, length: u64, write: u64) {
        self.size = self.size.max(offset + length);
        let first = (offset / GRANULE) as usize;
        let last = (offset + length).div_ceil(GRANULE) as usize;
        if self.granules.len() < last {
            self.granules.resize(last, Granule::default());
        }
        for index in first..last {
            let bytes = (offset + length - index as u64 * GRANULE).min(GRANULE);
            self.granules[index] = Granule { write, bytes: bytes as u16 };
        }
    }

    fn truncate(&mut self, size: u64) {
        self.size = size;
        self.granules.truncate(size.div_ceil(GRANULE) as usize);
        if let Some(last) = self.granules.last_mut() {
            let left = size - (size - 1) / GRANULE * GRANULE;
            last.bytes = last.bytes.min(left as u16);
        }
    }

    /// The first offset at which the bytes differ from the expected contents.
    fn differs(&self, file: u32, offset: u64, found: &[u8]) -> Option<u64> {
        let mut expected = vec![0; GRANULE as usize];
        for (index, granule) in found.chunks(GRANULE as usize).enumerate() {
            let at = offset + index as u64 * GRANULE;
            let model = self.granules.get((at / GRANULE) as usize).copied().unwrap_or_default();
            fill(&mut expected[..usize::from(model.bytes)], file, at, model.write);
            expected[usize::from(model.bytes)..].fill(0);
            if granule != &expected[..granule.len()] {
                return Some(at);
            }
        }
        None
    }
}

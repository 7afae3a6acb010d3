//! Direct and cached access to one file, with zeroed and punched ranges and searches for holes, which `fsx` does not
//! do. Everything follows from the seed and is compared with a plain vector.
//!
//! Cached and direct writes stay consistent only if the file system plays its part: dirty pages must be written back
//! before direct access, and pages dropped after it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

use super::fsx::{Shape, fill};
use crate::accept::Run;
use crate::accept::volume::{Volume, number};
use holes::Holes;

/// The model of the library's exerciser.
#[expect(dead_code, reason = "no mount takes ranges out of a file or puts them in")]
#[path = "../../../../../crates/fs/tests/all/holes.rs"]
mod holes;

/// The unit of direct access.
const UNIT: usize = 4096;
const LENGTH_MAX: usize = 64 << 10;
/// So small that GC moves data after a few thousand operations.
pub(super) const SMALL: Shape = Shape {
    name: "small",
    mkfs: &["--size", "48M", "--zone-size", "1M"],
    mount: &["--cache", "8M"],
    block: 4096,
    operations: [3_000, 100_000],
    filled: 40,
    used: 35,
};

/// Returns the geometry.
pub(super) fn run(shape: &Shape, run: &Run) -> Result<String> {
    let volume = Volume::make(shape.mkfs, shape.mount)?;
    let name = format!("direct-{}", shape.name.replace([' ', ','], "-"));
    let geometry = volume.keep_if_failed(&name, exercise(&volume, shape, run));
    geometry.with_context(|| format!("direct access on {}", shape.name))
}

fn exercise(volume: &Volume, shape: &Shape, run: &Run) -> Result<String> {
    volume.mount()?;
    let geometry = format!("O_DIRECT, {}: {}", shape.name, volume.geometry()?);
    let available = number(&volume.stats()?, "/stored/available_bytes")?;
    fill(volume, available * shape.filled / 100)?;
    let size_max = (available * shape.used / 100) as usize;
    let mut subject = Subject::new(&volume.dir().join("file"), shape.block, size_max, run.seed)?;
    let operations = shape.operations(run.quick);
    for at in 0..operations {
        subject.act().with_context(|| format!("operation {at}"))?;
    }
    subject.compare(0, subject.model.len())?;
    let moved_bytes = number(&volume.stats()?, "/written/device_bytes_by_cause/gc")?;
    println!(
        "O_DIRECT, {}: {operations} operations, {moved_bytes} bytes moved; {}",
        shape.name,
        subject.summary()
    );
    ensure!(moved_bytes > 0, "garbage collection had nothing to move");
    ensure!(subject.holes_seen > 0, "there was never a hole to be found");
    ensure!(subject.done.iter().all(|(_, done)| *done > 0), "an operation was never done");
    drop(subject.files);
    volume.unmount()?;
    volume.check()?;
    volume.mount()?;
    let found = std::fs::read(volume.dir().join("file"))?;
    ensure!(found == subject.model, "after another mount the file has other contents");
    volume.unmount()?;
    Ok(geometry)
}

type Action = fn(&mut Subject) -> Result<()>;

const ACTIONS: [(&str, Action); 14] = [
    ("direct writes", Subject::write_directly),
    ("direct reads", Subject::read_directly),
    ("cached writes", Subject::write_cached),
    ("cached writes", Subject::write_cached),
    ("cached reads", Subject::read_cached),
    ("zeroed ranges", Subject::zero),
    ("zeroed ranges of the same size", Subject::zero_within),
    ("holes punched", Subject::punch),
    ("allocations", Subject::allocate),
    ("sizes set", Subject::resize),
    ("copies", Subject::copy),
    ("searches", Subject::search),
    ("syncs", Subject::sync),
    ("openings", Subject::open_again),
];

/// One file, open twice, and its expected contents.
struct Subject {
    path: PathBuf,
    files: Files,
    model: Vec<u8>,
    holes: Holes,
    /// A part of a page may be data and the rest of it a hole.
    has_small_blocks: bool,
    /// Blocks that were certainly holes when holes were searched for.
    holes_seen: u64,
    size_max: usize,
    random: fastrand::Rng,
    /// The buffer for direct access, aligned from `aligned` on.
    buffer: Vec<u8>,
    aligned: usize,
    done: Vec<(&'static str, u64)>,
}

struct Files {
    cached: File,
    direct: File,
}

impl Files {
    fn open(path: &Path) -> Result<Files> {
        let options = || OpenOptions::new().read(true).write(true).create(true).truncate(false).to_owned();
        let direct = options().custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)?;
        Ok(Files { cached: options().open(path)?, direct })
    }
}

impl Subject {
    fn new(path: &Path, block: usize, size_max: usize, seed: u64) -> Result<Subject> {
        let buffer = vec![0; LENGTH_MAX + UNIT];
        let aligned = buffer.as_ptr().align_offset(UNIT);
        Ok(Subject {
            path: path.to_owned(),
            files: Files::open(path)?,
            model: Vec::new(),
            holes: Holes::new(block.max(UNIT) as u64),
            has_small_blocks: block < UNIT,
            holes_seen: 0,
            size_max,
            random: fastrand::Rng::with_seed(seed),
            buffer,
            aligned,
            done: ACTIONS.iter().map(|(name, _)| (*name, 0)).collect(),
        })
    }

    fn act(&mut self) -> Result<()> {
        let index = self.random.usize(..ACTIONS.len());
        let (name, action) = ACTIONS[index];
        action(self).context(name)?;
        self.done[index].1 += 1;
        let size = self.files.cached.metadata()?.len();
        ensure!(size == self.model.len() as u64, "{name}: {size} bytes, not {}", self.model.len());
        Ok(())
    }

    fn summary(&self) -> String {
        self.done.iter().map(|(name, done)| format!("{done} {name}")).collect::<Vec<_>>().join(", ")
    }

    /// A random range below `end`, in multiples of `unit`.
    fn range(&mut self, end: usize, unit: usize) -> (usize, usize) {
        let (end, length_max) = (end / unit, LENGTH_MAX / unit);
        if end == 0 {
            return (0, 0);
        }
        let at = self.random.usize(..end);
        (at * unit, self.random.usize(1..=length_max.min(end - at)) * unit)
    }

    /// Fills the aligned buffer with random bytes. Returns their range.
    fn fill(&mut self, length: usize) -> std::ops::Range<usize> {
        let range = self.aligned..self.aligned + length;
        self.random.fill(&mut self.buffer[range.clone()]);
        range
    }

    fn note(&mut self, at: usize, data: std::ops::Range<usize>) {
        let end = at + data.len();
        self.grow(end);
        self.model[at..end].copy_from_slice(&self.buffer[data]);
        self.wrote(at, end);
    }

    /// Notes a write. The rest of a partly written page may be a hole if blocks are smaller.
    fn wrote(&mut self, at: usize, end: usize) {
        self.holes.write(at as u64, (end - at) as u64);
        for edge in [at, end].into_iter().filter(|edge| self.has_small_blocks && !edge.is_multiple_of(UNIT)) {
            self.holes.zero((edge / UNIT * UNIT) as u64, 1);
        }
    }

    fn grow(&mut self, end: usize) {
        if self.model.len() < end {
            self.model.resize(end, 0);
            self.holes.resize(end as u64);
        }
    }

    fn write_directly(&mut self) -> Result<()> {
        let (at, length) = self.range(self.size_max, UNIT);
        let data = self.fill(length);
        self.files.direct.write_all_at(&self.buffer[data.clone()], at as u64)?;
        self.note(at, data);
        Ok(())
    }

    fn write_cached(&mut self) -> Result<()> {
        let (at, length) = self.range(self.size_max, 1);
        let data = self.fill(length);
        self.files.cached.write_all_at(&self.buffer[data.clone()], at as u64)?;
        self.note(at, data);
        Ok(())
    }

    fn read_directly(&mut self) -> Result<()> {
        let (at, length) = self.range(self.model.len(), UNIT);
        let into = self.aligned..self.aligned + length;
        self.files.direct.read_exact_at(&mut self.buffer[into.clone()], at as u64)?;
        ensure!(self.buffer[into] == self.model[at..at + length], "{length} bytes at {at} are wrong");
        Ok(())
    }

    fn read_cached(&mut self) -> Result<()> {
        let (at, length) = self.range(self.model.len(), 1);
        self.compare(at, length)
    }

    fn compare(&self, at: usize, length: usize) -> Result<()> {
        let mut found = vec![0xee; length];
        self.files.cached.read_exact_at(&mut found, at as u64)?;
        ensure!(found == self.model[at..at + length], "{length} bytes at {at} are wrong");
        Ok(())
    }

    fn fallocate(&self, flags: FallocateFlags, at: usize, length: usize) -> Result<()> {
        if length > 0 {
            rustix::fs::fallocate(&self.files.cached, flags, at as u64, length as u64)?;
        }
        Ok(())
    }

    fn zero(&mut self) -> Result<()> {
        let (at, length) = self.range(self.size_max, 1);
        self.fallocate(FallocateFlags::ZERO_RANGE, at, length)?;
        self.grow(at + length);
        self.model[at..at + length].fill(0);
        self.holes.zero(at as u64, length as u64);
        Ok(())
    }

    fn zero_within(&mut self) -> Result<()> {
        let (at, length) = self.range(self.model.len(), 1);
        self.fallocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, length)?;
        self.model[at..at + length].fill(0);
        self.holes.zero(at as u64, length as u64);
        Ok(())
    }

    fn punch(&mut self) -> Result<()> {
        let (at, length) = self.range(self.model.len(), 1);
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length)?;
        self.model[at..at + length].fill(0);
        self.holes.punch(at as u64, length as u64);
        Ok(())
    }

    fn allocate(&mut self) -> Result<()> {
        let (at, length) = self.range(self.size_max, 1);
        self.fallocate(FallocateFlags::empty(), at, length)?;
        self.grow(at + length);
        Ok(())
    }

    fn resize(&mut self) -> Result<()> {
        let near = self.model.len().saturating_sub(LENGTH_MAX)..=self.model.len() + LENGTH_MAX;
        let size = self.random.usize(near).min(self.size_max);
        self.files.cached.set_len(size as u64)?;
        self.model.resize(size, 0);
        self.holes.resize(size as u64);
        Ok(())
    }

    fn copy(&mut self) -> Result<()> {
        let (from, length) = self.range(self.model.len(), 1);
        let to = self.random.usize(..self.size_max - LENGTH_MAX);
        if length == 0 || from < to + length && to < from + length {
            return Ok(());
        }
        let (mut source, mut target) = (from as u64, to as u64);
        let file = &self.files.cached;
        while source < (from + length) as u64 {
            let rest = from + length - source as usize;
            let copied = rustix::fs::copy_file_range(file, Some(&mut source), file, Some(&mut target), rest)?;
            ensure!(copied > 0, "nothing more was copied");
        }
        let data = self.model[from..from + length].to_vec();
        self.grow(to + length);
        self.model[to..to + length].copy_from_slice(&data);
        self.wrote(to, to + length);
        Ok(())
    }

    /// A reported hole must contain only zeros, whatever the kernel has not written back yet. A certain hole must be
    /// reported.
    fn search(&mut self) -> Result<()> {
        let (at, _) = self.range(self.model.len(), 1);
        if self.model.is_empty() {
            return Ok(());
        }
        let found = match rustix::fs::seek(&self.files.cached, SeekFrom::Data(at as u64)) {
            Err(rustix::io::Errno::NXIO) => None,
            found => Some(found?),
        };
        let data = found.map_or(self.model.len(), |found| found as usize);
        let hole = self.model.get(at..data).context("data was found before where it was looked for")?;
        ensure!(hole.iter().all(|&byte| byte == 0), "{at} to {data} is called a hole");
        let end = rustix::fs::seek(&self.files.cached, SeekFrom::Hole(at as u64))? as usize;
        ensure!((at..=self.model.len()).contains(&end), "the hole at {end} is beyond the file");
        self.holes.compare(at as u64, found, end as u64).map_err(anyhow::Error::msg)?;
        self.holes_seen += self.holes.count();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        match self.random.bool() {
            true => self.files.cached.sync_all()?,
            false => self.files.cached.sync_data()?,
        }
        Ok(())
    }

    fn open_again(&mut self) -> Result<()> {
        self.files = Files::open(&self.path)?;
        Ok(())
    }
}

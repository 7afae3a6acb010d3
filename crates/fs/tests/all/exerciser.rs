//! Random operations on one file against a plain vector, on a volume so small that garbage is collected meanwhile.
//!
//! Everything follows from a seed. The short form is a test like any other. The long form, which
//! `POLDER_FSX_OPERATIONS` and `POLDER_FSX_SEED` request, is run by the acceptance point.

use emulated::Spec;
use fs::{Caller, Changes, FallocateMode, FsError, Handle, InodeNo, OpenFlags};
use rt::random::Rng;

use crate::holes::Holes;
use crate::support::{READ_WRITE, Volume};

/// How often each operation is chosen, relative to the sum of all.
const WEIGHTS: [(Action, u32); 16] = [
    (Action::Read, 14),
    (Action::Write, 24),
    (Action::Append, 3),
    (Action::Resize, 2),
    (Action::Punch, 6),
    (Action::Zero, 6),
    (Action::Allocate, 3),
    (Action::Collapse, 6),
    (Action::Insert, 6),
    (Action::Copy, 8),
    (Action::Clone, 4),
    (Action::Seek, 8),
    (Action::Sync, 4),
    (Action::Reopen, 4),
    (Action::Step, 5),
    (Action::Remount, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read,
    Write,
    Append,
    Resize,
    Punch,
    Zero,
    Allocate,
    Collapse,
    Insert,
    Copy,
    Clone,
    Seek,
    Sync,
    Reopen,
    Step,
    Remount,
}

/// One volume, one file, and its expected contents.
struct Exerciser {
    /// Empty for a moment during a remount.
    volume: Option<Volume>,
    handle: Option<Handle>,
    block: u64,
    model: Vec<u8>,
    holes: Holes,
    /// Blocks that were certainly holes when holes were searched for.
    holes_seen: u64,
    /// The file never grows beyond this.
    size_max: u64,
    /// How many bytes of writes may be delayed.
    delayed_bytes_max: u64,
    rng: Rng,
    /// How often each action was carried out and not refused.
    done: [u64; WEIGHTS.len()],
    moved_bytes: u64,
}

impl Exerciser {
    fn new(spec: Spec, seed: u64, delayed_bytes_max: u64) -> Self {
        let block = u64::from(spec.block_size);
        let volume = Volume::on(spec);
        volume.fs.delay_writes(delayed_bytes_max);
        let available = volume.fs.space().available;
        let handle = volume.file(InodeNo::ROOT, "file");
        // Most of the space is in use, so that zones contain both live and dead blocks.
        let size_max = available / 10 * 7;
        Exerciser {
            volume: Some(volume),
            handle: Some(handle),
            block,
            model: Vec::new(),
            holes: Holes::new(block),
            holes_seen: 0,
            size_max,
            delayed_bytes_max,
            rng: Rng::with_seed(seed),
            done: [0; WEIGHTS.len()],
            moved_bytes: 0,
        }
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("it is mounted between operations")
    }

    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("it is open between operations")
    }

    fn size(&self) -> u64 {
        self.model.len() as u64
    }

    fn run(&mut self, operations: u64) {
        let sum: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        for number in 0..operations {
            let mut pick = self.rng.u32(..sum);
            let index = WEIGHTS.iter().position(|(_, weight)| match pick.checked_sub(*weight) {
                Some(rest) => {
                    pick = rest;
                    false
                }
                None => true,
            });
            let index = index.expect("the pick is less than the sum");
            let action = WEIGHTS[index].0;
            self.volume().clock.advance(1_000_000);
            let before = self.rng.get_seed();
            if self.act(action) {
                self.done[index] += 1;
            }
            let size = self.volume().fs.attributes(self.handle().inode()).unwrap().size;
            assert_eq!(size, self.size(), "operation {number}, {action:?}, random state {before}");
        }
        self.compare_all();
        self.note_moved();
        self.volume().settle_and_check();
    }

    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Read => self.read(),
            Action::Write => self.write(),
            Action::Append => self.append(),
            Action::Resize => self.resize(),
            Action::Punch => self.punch(),
            Action::Zero => self.zero(),
            Action::Allocate => self.allocate(),
            Action::Collapse => self.collapse(),
            Action::Insert => self.insert(),
            Action::Copy => self.copy(),
            Action::Clone => self.clone_blocks(),
            Action::Seek => self.seek(),
            Action::Sync => self.sync(),
            Action::Reopen => self.reopen(),
            Action::Step => self.step(),
            Action::Remount => self.remount(),
        }
    }

    /// A place and a length within `end`: mostly unaligned and short, sometimes whole blocks.
    fn range(&mut self, end: u64) -> (u64, u64) {
        if end == 0 {
            return (0, 0);
        }
        let longest = if self.rng.u8(..8) == 0 { end } else { (20 * self.block).min(end) };
        let (mut at, mut length) = (self.rng.u64(..end), self.rng.u64(1..=longest));
        if self.rng.u8(..3) == 0 {
            at -= at % self.block;
            length = length.next_multiple_of(self.block);
        }
        (at, length.min(end - at))
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn read(&mut self) -> bool {
        let (at, length) = self.range(self.size() + self.block);
        self.compare(at, length);
        true
    }

    fn compare(&self, at: u64, length: u64) {
        let mut found = vec![0xee; length as usize];
        let read = self.volume().fs.read(self.handle(), at, &mut found).unwrap();
        let (from, to) = (at.min(self.size()) as usize, (at + length).min(self.size()) as usize);
        assert_eq!(read, to - from, "{length} bytes at {at}");
        let wrong = found[..read].iter().zip(&self.model[from..to]).position(|(found, model)| found != model);
        assert_eq!(wrong, None, "the first wrong byte of {length} at {at}");
    }

    fn compare_all(&self) {
        self.compare(0, self.size() + 1);
    }

    fn write(&mut self) -> bool {
        let (at, length) = self.range(self.size_max);
        let data = self.bytes(length);
        self.volume().write(self.handle(), at, &data);
        self.overwrite(at, &data);
        true
    }

    fn overwrite(&mut self, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[at as usize..end].copy_from_slice(data);
        self.holes.write(at, data.len() as u64);
    }

    fn append(&mut self) -> bool {
        let room = self.size_max.saturating_sub(self.size());
        let length = self.rng.u64(1..=3 * self.block).min(room);
        if length == 0 {
            return false;
        }
        let data = self.bytes(length);
        let flags = OpenFlags { append: true, ..READ_WRITE };
        let appending = self.volume().fs.open(&Caller::root(), self.handle().inode(), flags).unwrap();
        self.volume().write(&appending, 0, &data);
        self.holes.write(self.size(), length);
        self.model.extend(data);
        true
    }

    /// Mostly around the present size, so that the file stays large.
    fn resize(&mut self) -> bool {
        let far = self.rng.u8(..16) == 0;
        let near = self.size().saturating_sub(10 * self.block)..=self.size() + 10 * self.block;
        let size = if far { self.rng.u64(..self.size_max) } else { self.rng.u64(near) };
        let size = size.min(self.size_max);
        let changes = Changes { size: Some(size), ..Changes::default() };
        self.volume().fs.set_attributes(&Caller::root(), self.handle().inode(), &changes).unwrap();
        self.model.resize(size as usize, 0);
        self.holes.resize(size);
        true
    }

    fn fallocate(&self, mode: FallocateMode, at: u64, length: u64) -> Result<(), FsError> {
        self.volume().fs.allocate(self.handle(), mode, at, length)
    }

    fn punch(&mut self) -> bool {
        let (at, length) = self.range(self.size());
        if length == 0 {
            return false;
        }
        self.fallocate(FallocateMode::PunchHole, at, length).unwrap();
        self.model[at as usize..(at + length) as usize].fill(0);
        self.holes.punch(at, length);
        true
    }

    fn zero(&mut self) -> bool {
        let keep_size = self.rng.bool();
        let (at, length) = self.range(self.size_max);
        self.fallocate(FallocateMode::ZeroRange { keep_size }, at, length).unwrap();
        let end = (at + length) as usize;
        if !keep_size && self.model.len() < end {
            self.model.resize(end, 0);
            self.holes.resize(end as u64);
        }
        self.holes.zero(at, length);
        let end = end.min(self.model.len());
        self.model.get_mut(at as usize..end).into_iter().for_each(|range| range.fill(0));
        true
    }

    fn allocate(&mut self) -> bool {
        let (at, length) = self.range(self.size_max);
        let length = length.min(64 * self.block);
        let keep_size = self.rng.u8(..3) == 0;
        self.fallocate(FallocateMode::Allocate { keep_size }, at, length).unwrap();
        let end = (at + length) as usize;
        if !keep_size && self.model.len() < end {
            self.model.resize(end, 0);
            self.holes.resize(end as u64);
        }
        true
    }

    /// A whole number of blocks within `end`.
    fn blocks(&mut self, end: u64) -> (u64, u64) {
        let at = self.rng.u64(..=end / self.block) * self.block;
        (at, self.rng.u64(1..=16) * self.block)
    }

    fn collapse(&mut self) -> bool {
        let (at, length) = self.blocks(self.size());
        let done = self.fallocate(FallocateMode::CollapseRange, at, length);
        if at + length >= self.size() {
            assert_eq!(done, Err(FsError::Invalid), "{length} at {at} of {}", self.size());
            return false;
        }
        done.unwrap();
        self.model.drain(at as usize..(at + length) as usize);
        self.holes.collapse(at, length);
        true
    }

    fn insert(&mut self) -> bool {
        let (at, length) = self.blocks(self.size());
        if self.size() + length > self.size_max {
            return false;
        }
        let done = self.fallocate(FallocateMode::InsertRange, at, length);
        if at >= self.size() {
            assert_eq!(done, Err(FsError::Invalid), "{length} at {at} of {}", self.size());
            return false;
        }
        done.unwrap();
        self.model.splice(at as usize..at as usize, std::iter::repeat_n(0, length as usize));
        self.holes.insert(at, length);
        true
    }

    fn copy(&mut self) -> bool {
        let (from, length) = self.range(self.size());
        let to = self.rng.u64(..self.size_max);
        let length = length.min(self.size_max - to);
        if length == 0 || from < to + length && to < from + length {
            return false;
        }
        let (volume, handle) = (self.volume(), self.handle());
        assert_eq!(volume.fs.copy_range(handle, from, handle, to, length), Ok(length));
        self.duplicate(from, to, length);
        true
    }

    /// A hole may still be one at its new place.
    fn duplicate(&mut self, from: u64, to: u64, length: u64) {
        let data = self.model[from as usize..(from + length) as usize].to_vec();
        self.overwrite(to, &data);
        self.holes.zero(to, length);
    }

    fn clone_blocks(&mut self) -> bool {
        let ((from, length), to) = (self.blocks(self.size()), self.blocks(self.size_max).0);
        let to_end = self.rng.u8(..4) == 0 && from < self.size();
        let length = if to_end { self.size() - from } else { length };
        let end = to + length;
        if end > self.size_max {
            return false;
        }
        let cloned = self.volume().fs.clone_range(self.handle(), from, self.handle(), to, length);
        let is_possible = from + length <= self.size()
            && !(from < end && to < from + length)
            && (length.is_multiple_of(self.block) || end >= self.size());
        if !is_possible {
            assert_eq!(cloned, Err(FsError::Invalid), "{length} at {from} of {} to {to}", self.size());
            return false;
        }
        cloned.unwrap();
        self.duplicate(from, to, length);
        true
    }

    /// Every reported hole contains only zeros, and every certain hole is reported.
    fn seek(&mut self) -> bool {
        let (at, _) = self.range(self.size());
        let fs = &self.volume().fs;
        if self.size() == 0 {
            assert_eq!(fs.seek_data(self.handle(), 0), Err(FsError::NoData));
            return false;
        }
        let found = match fs.seek_data(self.handle(), at) {
            Err(FsError::NoData) => None,
            found => Some(found.unwrap()),
        };
        let data = found.unwrap_or(self.size());
        assert!(data >= at && self.model[at as usize..data as usize].iter().all(|&byte| byte == 0));
        let hole = fs.seek_hole(self.handle(), at).unwrap();
        assert!((at..=self.size()).contains(&hole), "a hole at {hole}, looked for from {at}");
        if data > at {
            assert_eq!(hole, at, "{at} is in a hole");
        }
        assert_eq!(self.holes.compare(at, found, hole), Ok(()));
        self.holes_seen += self.holes.count();
        true
    }

    fn sync(&mut self) -> bool {
        let data_only = self.rng.bool();
        self.volume().fs.fsync(self.handle(), data_only).unwrap();
        true
    }

    fn reopen(&mut self) -> bool {
        let inode = self.handle().inode();
        self.handle = None;
        self.handle = Some(self.volume().open(inode));
        true
    }

    /// Background work: garbage collection, writeback, checkpoints, truncations.
    fn step(&mut self) -> bool {
        for _ in 0..self.rng.u8(1..8) {
            self.volume().fs.step().unwrap();
        }
        true
    }

    fn note_moved(&mut self) {
        self.moved_bytes += self.volume().fs.extents().collector().stats().blocks_moved * self.block;
    }

    /// Half of the time as after a killed process, whose writes have all reached the device.
    fn remount(&mut self) -> bool {
        self.note_moved();
        let inode = self.handle().inode();
        self.handle = None;
        let volume = self.volume.take().expect("it is mounted between operations");
        self.volume = Some(if self.rng.bool() {
            volume.remount()
        } else {
            volume.fs.sync().unwrap();
            volume.kill()
        });
        self.volume().fs.delay_writes(self.delayed_bytes_max);
        self.handle = Some(self.volume().open(inode));
        self.compare_all();
        true
    }
}

/// The geometries, and the share of the work of each.
fn shapes() -> Vec<(&'static str, Spec)> {
    let mut short = Spec::new(4096, 28, 192);
    short.capacities.iter_mut().skip(2).step_by(3).for_each(|capacity| *capacity = 150);
    vec![
        ("power of two", Spec::new(4096, 28, 128)),
        ("odd", Spec::odd()),
        ("capacities of two kinds", short),
        ("blocks of 512", Spec::new(512, 28, 1000)),
        ("blocks of 64 KiB", Spec::new(65536, 30, 40).max_append(16)),
        ("16 zones, 6 active", Spec::new(4096, 16, 256).limits(6, 6)),
        ("half of the zones conventional", Spec::new(4096, 28, 128).conventional(14)),
    ]
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

#[test]
fn a_file_agrees_with_a_plain_vector_whatever_is_done_to_it() {
    compare_with_a_plain_vector(0);
}

#[test]
fn a_file_whose_writes_are_delayed_agrees_with_a_plain_vector_too() {
    compare_with_a_plain_vector(4 << 20);
}

fn compare_with_a_plain_vector(delayed_bytes_max: u64) {
    let operations = from_environment("POLDER_FSX_OPERATIONS", 800);
    let seed = from_environment("POLDER_FSX_SEED", 1);
    for (number, (name, spec)) in shapes().into_iter().enumerate() {
        let mut exerciser = Exerciser::new(spec, seed.wrapping_add(number as u64), delayed_bytes_max);
        exerciser.run(operations);
        let done: Vec<String> = WEIGHTS
            .iter()
            .zip(exerciser.done)
            .map(|((action, _), done)| format!("{done} {action:?}"))
            .collect();
        println!(
            "fsx {name}: {operations} operations, {} moved bytes, {}",
            exerciser.moved_bytes,
            done.join(", ")
        );
        assert!(exerciser.done.iter().all(|&done| done > 0), "an operation never succeeded: {done:?}");
        assert!(exerciser.moved_bytes > 0, "nothing was collected on {name}");
        assert!(exerciser.holes_seen > 0, "there was never a hole to be found on {name}");
    }
}

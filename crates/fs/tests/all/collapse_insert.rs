//! Collapse range and insert range with interruptions: a loss of power, a read-only mount, a block that cannot be
//! read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault};
use extent::Object;
use extent::format::{EXTENT, Extent};
use fs::format::{FLAG_SHIFTING, INTENT};
use fs::{Caller, Changes, FallocateMode, Fs, FsError, Handle, InodeNo};
use rt::schedule::{self, Body};
use rt::{ManualClock, Timestamp};

use crate::support::{READ, Volume, mount, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: u64 = 4096;

/// The visible state of a file: its bytes, and where data begins and ends.
#[derive(Debug, PartialEq)]
struct Seen {
    bytes: Vec<u8>,
    edges: Vec<u64>,
}

impl Seen {
    fn of(fs: &Fs, inode: InodeNo) -> Seen {
        let handle = fs.open(&Caller::root(), inode, READ).unwrap();
        let mut bytes = vec![0xee; fs.attributes(inode).unwrap().size as usize];
        assert_eq!(fs.read(&handle, 0, &mut bytes), Ok(bytes.len()));
        Seen { bytes, edges: edges(fs, &handle) }
    }
}

fn edges(fs: &Fs, handle: &Handle) -> Vec<u64> {
    let mut edges = Vec::new();
    while let Ok(data) = fs.seek_data(handle, edges.last().copied().unwrap_or(0)) {
        edges.extend([data, fs.seek_hole(handle, data).unwrap()]);
    }
    edges
}

/// Data, holes, and an end within a block.
fn file_with_holes(volume: &Volume) -> Handle {
    let handle = volume.file(ROOT, "f");
    for (at, blocks) in [(0, 3), (5, 2), (9, 1), (20, 4)] {
        volume.write(&handle, at * BLOCK, &pattern(at as u8 + 1, (blocks * BLOCK) as usize));
    }
    volume.write(&handle, 24 * BLOCK, &pattern(99, 77));
    volume.fs.sync().unwrap();
    handle
}

/// Runs it while another thread makes the changes durable.
fn amid_syncs(volume: &Volume, handle: &Handle, mode: FallocateMode, range: (u64, u64), seed: u64) {
    let is_over = AtomicBool::new(false);
    let allocate = || {
        let done = volume.fs.allocate(handle, mode, range.0 * BLOCK, range.1 * BLOCK);
        is_over.store(true, Ordering::SeqCst);
        done.unwrap();
    };
    let sync = || {
        while !is_over.load(Ordering::SeqCst) {
            schedule::at_device();
            volume.fs.sync().unwrap();
        }
    };
    let bodies: Vec<Body<'_, ()>> =
        vec![("allocating".into(), Box::new(allocate)), ("syncing".into(), Box::new(sync))];
    schedule::run(seed, bodies);
}

/// Cuts at every command of the operation. Every mount finds the file before or after it, whether the mount is
/// writable or not. Returns how many cuts fell in the middle.
fn cut_everywhere(mode: FallocateMode, range: (u64, u64), seed: u64) -> u32 {
    let volume = Volume::new();
    let handle = file_with_holes(&volume);
    let inode = handle.inode();
    let before = Seen::of(&volume.fs, inode);
    volume.device.record();
    amid_syncs(&volume, &handle, mode, range, seed);
    let after = Seen::of(&volume.fs, inode);
    assert_ne!(before, after);
    let mut amid = 0;
    for command in 0..=volume.device.commands() {
        for plan in volume.device.plans_at(command) {
            let device = Arc::new(volume.device.image_at(command, &plan));
            let clock = Arc::new(ManualClock::at(Timestamp(0)));
            let fs = mount(&device, &clock, true);
            let record = fs.view_inode(inode).unwrap().unwrap();
            let seen = Seen::of(&fs, inode);
            assert!(seen == before || seen == after, "command {command}, {plan:?}, read-only");
            if record.flags & FLAG_SHIFTING != 0 {
                assert!(seen == after, "command {command}, {plan:?}: what is under way has happened");
                amid += 1;
            }
            assert_eq!(fs.check().unwrap(), [], "command {command}, {plan:?}");
            drop(fs);
            let fs = mount(&device, &clock, false);
            assert!(Seen::of(&fs, inode) == seen, "command {command}, {plan:?}");
            let crashed = Volume { device, clock, fs };
            if command % 2 == 0 {
                // An operation that changes the file finds it complete.
                crashed.write(&crashed.open(inode), 2 * BLOCK, &[7; 10]);
                let mut bytes = seen.bytes;
                bytes[2 * BLOCK as usize..][..10].fill(7);
                assert!(crashed.contents(&crashed.open(inode)) == bytes, "command {command}, {plan:?}");
                crashed.settle_and_check();
            } else {
                crashed.settle_and_check();
                assert!(Seen::of(&crashed.fs, inode) == seen, "command {command}, {plan:?}");
            }
            let record = crashed.fs.view_inode(inode).unwrap().unwrap();
            assert_eq!(record.flags & FLAG_SHIFTING, 0, "the background has finished it");
        }
    }
    amid
}

/// A crash while a range was collapsed or inserted kept only the first of many transactions: half of the file was
/// moved. The first transaction is an intent for the whole operation now.
#[test]
fn a_crash_leaves_a_file_before_or_after_a_collapse() {
    let amid: u32 = (0..4).map(|seed| cut_everywhere(FallocateMode::CollapseRange, (1, 7), seed)).sum();
    assert!(amid > 10, "{amid} cuts fell in the middle");
}

/// A crash while a range was collapsed or inserted kept only the first of many transactions: half of the file was
/// moved. The first transaction is an intent for the whole operation now.
#[test]
fn a_crash_leaves_a_file_before_or_after_an_insertion() {
    let amid: u32 = (0..4).map(|seed| cut_everywhere(FallocateMode::InsertRange, (2, 3), seed)).sum();
    assert!(amid > 10, "{amid} cuts fell in the middle");
}

/// An operation that removes data and needs no space.
#[derive(Clone, Copy, Debug)]
enum Less {
    Cut { bytes: u64 },
    Punch { from: u64, to: u64 },
}

impl Less {
    /// For a file of this size: offsets at, before and behind every place of a move.
    fn all(size: u64) -> Vec<Less> {
        let cut = |bytes| Less::Cut { bytes };
        let punch = |(from, to): (u64, u64)| Less::Punch { from: from * BLOCK, to: to * BLOCK };
        let by_block = (0..size / BLOCK).flat_map(|block| [block * BLOCK, block * BLOCK + 5]).map(cut);
        let ranges = [(0, 1), (1, 2), (1, 9), (2, 3), (3, 17), (8, 14), (13, 40), (0, 40)].map(punch);
        by_block.chain([cut(size - 1)]).chain(ranges).collect()
    }

    fn apply(self, volume: &Volume, inode: InodeNo, bytes: &mut Vec<u8>) {
        match self {
            Less::Cut { bytes: size } => {
                let changes = Changes { size: Some(size), ..Changes::default() };
                volume.fs.set_attributes(&Caller::root(), inode, &changes).unwrap();
                bytes.truncate(size as usize);
            }
            Less::Punch { from, to } => {
                let handle = volume.open(inode);
                volume.fs.allocate(&handle, FallocateMode::PunchHole, from, to - from).unwrap();
                let to = bytes.len().min(to as usize);
                bytes[from as usize..to].fill(0);
            }
        }
    }
}

/// Cuts the power in the middle of a move, removes something from the file, and reads it: at once, after another
/// crash, after a growth, and when the move is over.
fn take_away_amid(mode: FallocateMode, range: (u64, u64), seed: u64) -> u32 {
    let volume = Volume::new();
    let handle = file_with_holes(&volume);
    let inode = handle.inode();
    volume.device.record();
    amid_syncs(&volume, &handle, mode, range, seed);
    let after = Seen::of(&volume.fs, inode).bytes;
    let mut amid = 0;
    let mut moved = Vec::new();
    for command in 0..=volume.device.commands() {
        let image = || Arc::new(volume.device.image_at(command, &CrashPlan::LoseAll));
        let crashed = |device: Arc<Emulated>| {
            let clock = Arc::new(ManualClock::at(Timestamp(0)));
            let fs = mount(&device, &clock, false);
            Volume { device, clock, fs }
        };
        let is_shifting =
            |volume: &Volume| volume.fs.view_inode(inode).unwrap().unwrap().flags & FLAG_SHIFTING != 0;
        let found = crashed(image());
        let store = found.fs.store();
        let intent = store.get(store.group_of(inode.0), INTENT, &inode.0.to_be_bytes()).unwrap();
        if !is_shifting(&found) || moved.contains(&intent) {
            continue;
        }
        moved.push(intent);
        amid += 1;
        for (number, less) in Less::all(after.len() as u64).into_iter().enumerate() {
            let found = crashed(image());
            let mut bytes = after.clone();
            less.apply(&found, inode, &mut bytes);
            let is = |volume: &Volume| volume.contents(&volume.open(inode)) == bytes;
            assert!(is(&found), "command {command}, {less:?}");
            assert_eq!(found.fs.check().unwrap(), [], "command {command}, {less:?}");
            let found = if number % 2 == 0 {
                found.fs.sync().unwrap();
                found.kill()
            } else {
                found
            };
            assert!(is(&found), "command {command}, {less:?}, mounted again");
            if number % 3 == 0 {
                found.write(&found.open(inode), 50 * BLOCK, b"far");
                bytes.resize(50 * BLOCK as usize, 0);
                bytes.extend(b"far");
            }
            let is = |volume: &Volume| volume.contents(&volume.open(inode)) == bytes;
            assert!(is(&found), "command {command}, {less:?}, grown");
            found.settle_and_check();
            assert!(is(&found) && !is_shifting(&found), "command {command}, {less:?}, over");
        }
    }
    amid
}

/// A file in the middle of such an operation could not be truncated or punched on a full volume.
#[test]
fn a_file_in_the_middle_of_a_move_can_be_cut_and_punched() {
    for (mode, range) in [
        (FallocateMode::CollapseRange, (1, 7)),
        (FallocateMode::InsertRange, (2, 3)),
        (FallocateMode::InsertRange, (2, 20)),
    ] {
        let amid: u32 = (0..2).map(|seed| take_away_amid(mode, range, seed)).sum();
        assert!(amid > 3, "{amid} places in the middle of {mode:?}");
    }
}

#[test]
fn a_block_that_cannot_be_read_moves_with_the_others() {
    let volume = Volume::new();
    let handle = file_with_holes(&volume);
    let inode = handle.inode();
    let store = volume.fs.store();
    let key = extent::format::key(Object(inode.0), 20);
    let row = store.get(store.group_of(inode.0), EXTENT, &key).unwrap().unwrap();
    let address = Extent::decode(&row).unwrap().address_of(1);
    volume.device.make_unreadable(address.zone(), address.block());
    let lost = |block: u64| {
        let read = volume.fs.read(&handle, block * BLOCK, &mut [0; BLOCK as usize]);
        matches!(read, Err(FsError::Io(_)))
    };
    assert!(lost(21));
    for (mode, at, blocks, now) in
        [(FallocateMode::InsertRange, 1, 6, 27), (FallocateMode::CollapseRange, 4, 8, 19)]
    {
        volume.fs.allocate(&handle, mode, at * BLOCK, blocks * BLOCK).unwrap();
        assert_eq!((now - 1..now + 3).map(lost).collect::<Vec<_>>(), [false, true, false, false]);
    }
    let mut after = vec![0; BLOCK as usize];
    volume.fs.read(&handle, 20 * BLOCK, &mut after).unwrap();
    assert_eq!(after, pattern(21, 4 * BLOCK as usize)[2 * BLOCK as usize..3 * BLOCK as usize]);
    volume.settle_and_check();
}

/// A read that failed once, while a range was inserted, made a block lost for good: the next read of it would have
/// succeeded, but from then on it was an error for ever, on a sound device.
#[test]
fn a_read_that_fails_in_passing_loses_no_block() {
    let mut nth = 1;
    loop {
        let volume = Volume::new();
        let handle = volume.file(ROOT, "f");
        for block in [1, 3, 5, 7] {
            volume.write(&handle, block * BLOCK, &pattern(block as u8, BLOCK as usize));
        }
        volume.device.inject(Fault::nth(CommandKind::Read, nth, Effect::Error));
        volume.fs.allocate(&handle, FallocateMode::InsertRange, 0, BLOCK).unwrap();
        if volume.device.failed_zones().is_empty() {
            break;
        }
        for block in [1, 3, 5, 7] {
            let mut found = vec![0; BLOCK as usize];
            volume.fs.read(&handle, (block + 1) * BLOCK, &mut found).unwrap();
            assert!(found == pattern(block as u8, BLOCK as usize), "block {block}, read {nth}");
        }
        volume.settle_and_check();
        nth += 1;
    }
    assert!(nth > 4, "each block is read once");
}

/// Inserting a range at the beginning of a sparse file moved its holes a megabyte at a time: 2^30 transactions for a
/// file of a petabyte with one block in it, during which the file could not be used.
#[test]
fn holes_of_a_sparse_file_move_at_once() {
    const SIZE: u64 = 1 << 50;
    let shifts = [(FallocateMode::InsertRange, SIZE + BLOCK), (FallocateMode::CollapseRange, SIZE - BLOCK)];
    for (mode, size) in shifts {
        for at in [1, SIZE / BLOCK / 2, SIZE / BLOCK - 1] {
            let volume = Volume::new();
            let handle = volume.file(ROOT, "f");
            volume.write(&handle, at * BLOCK, &pattern(1, BLOCK as usize));
            let changes = Changes { size: Some(SIZE), ..Changes::default() };
            volume.fs.set_attributes(&Caller::root(), handle.inode(), &changes).unwrap();
            let before = volume.fs.store().stats().commits;
            volume.fs.allocate(&handle, mode, 0, BLOCK).unwrap();
            let commits = volume.fs.store().stats().commits - before;
            assert!(commits < 10, "{commits} transactions");
            assert_eq!(volume.fs.attributes(handle.inode()).unwrap().size, size);
            let now = at * BLOCK + size - SIZE;
            assert_eq!(edges(&volume.fs, &handle), [now, now + BLOCK]);
            let mut found = vec![0; BLOCK as usize];
            volume.fs.read(&handle, now, &mut found).unwrap();
            assert!(found == pattern(1, BLOCK as usize));
            volume.settle_and_check();
        }
    }
}

/// After a crash in the middle of such a move, the first operation without space did all the rest before it failed.
#[test]
fn an_operation_without_space_does_not_wait_for_a_move_of_holes() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let inode = handle.inode();
    volume.write(&handle, BLOCK, &pattern(1, BLOCK as usize));
    let changes = Changes { size: Some(1 << 50), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), inode, &changes).unwrap();
    volume.fs.sync().unwrap();
    volume.device.record();
    amid_syncs(&volume, &handle, FallocateMode::InsertRange, (0, 1), 0);
    let mut amid = 0;
    for command in 0..=volume.device.commands() {
        let device = Arc::new(volume.device.image_at(command, &CrashPlan::KeepAll));
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let fs = mount(&device, &clock, false);
        if fs.view_inode(inode).unwrap().unwrap().flags & FLAG_SHIFTING == 0 {
            continue;
        }
        amid += 1;
        let crashed = Volume { device, clock, fs };
        let other = crashed.file(ROOT, "other");
        let data = pattern(2, 1 << 20);
        let full = (0..).find_map(|n| crashed.fs.write(&other, n * data.len() as u64, &data).err());
        assert_eq!(full, Some(FsError::NoSpace));
        let commits = crashed.fs.store().stats().commits;
        assert!(commits < 1000, "{commits} transactions");
        drop(other);
        crashed.unlink(ROOT, "other").unwrap();
        crashed.settle_and_check();
        assert_eq!(edges(&crashed.fs, &crashed.open(inode)), [2 * BLOCK, 3 * BLOCK]);
    }
    assert!(amid > 0, "a cut falls in the middle");
}

//! Manual defragmentation and GC.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use emulated::Spec;
use fs::{Caller, Changes, Fs, FsError, Handle, InodeNo, Layout};
use rt::{ManualClock, Timestamp};
use tree::Step;
use zone::{Blocks, Role, ZoneId};

use crate::support::{Volume, mount, pattern};
use crate::watched::{Watched, watched_volume};

const ROOT: InodeNo = InodeNo::ROOT;
const PIECE: u64 = 4096;
const PIECES: u64 = 1000;
const OTHERS: u64 = 100;
/// The length of one read of a program.
const READ_AT_ONCE: u64 = 128 << 10;

/// A volume whose device is watched. Its cache takes all metadata, so that reading a file reads only data.
struct Bench {
    watched: Arc<Watched>,
    volume: Volume,
}

impl Bench {
    fn new() -> Self {
        Self::with_zones(40, 4096)
    }

    fn with_zones(zones: u32, blocks: Blocks) -> Self {
        let spec = Spec { max_append: 256, ..Spec::new(4096, zones, blocks) };
        let (watched, volume) = watched_volume(spec, 64 << 20);
        Bench { watched, volume }
    }

    /// Writes a file in pieces, alternating with pieces of all the others.
    fn write_beside(&self, others: u64) -> (Handle, Vec<Handle>) {
        let file = self.volume.file(ROOT, "file");
        let others: Vec<Handle> = (0..others).map(|n| self.volume.file(ROOT, &format!("other{n}"))).collect();
        for piece in 0..PIECES {
            self.volume.write(&file, piece * PIECE, &pattern(piece as u8, PIECE as usize));
            for (number, other) in others.iter().enumerate().skip(piece as usize % 10).step_by(10) {
                let at = self.volume.fs.attributes(other.inode()).unwrap().size;
                self.volume.write(other, at, &pattern(number as u8, PIECE as usize));
            }
        }
        (file, others)
    }

    /// Reads the file from its beginning to its end and verifies it. Returns the number of commands to the device.
    fn reads_of(&self, file: &Handle) -> u64 {
        let before = self.watched.reads.load(Ordering::SeqCst);
        let mut bytes = vec![0; READ_AT_ONCE as usize];
        for at in (0..PIECES * PIECE).step_by(READ_AT_ONCE as usize) {
            let read = self.volume.fs.read(file, at, &mut bytes).unwrap();
            for (piece, found) in (at / PIECE..).zip(bytes[..read].chunks(PIECE as usize)) {
                assert!(found == pattern(piece as u8, PIECE as usize), "piece {piece}");
            }
        }
        self.watched.reads.load(Ordering::SeqCst) - before
    }

    fn zones_of(&self, file: &Handle) -> Vec<ZoneId> {
        let pieces =
            extent::view_object(self.volume.fs.extents().maps(), extent::Object(file.inode().0)).unwrap();
        let zone = |piece| match piece {
            extent::MapRow::Extent(extent) => extent.address.zone(),
            other => panic!("{other:?} is not in a zone"),
        };
        pieces.into_iter().map(|(_, piece)| zone(piece)).collect()
    }

    /// Whether a part of the file is in a zone that still takes data.
    fn has_open_zone(&self, file: &Handle) -> bool {
        let pool = self.volume.fs.store().pool();
        self.zones_of(file).into_iter().any(|zone| pool.is_open(zone))
    }

    /// Extents of the file in zones of a role.
    fn pieces_in(&self, file: &Handle, role: Role) -> u64 {
        let pool = self.volume.fs.store().pool();
        self.zones_of(file).into_iter().filter(|zone| pool.entry(*zone).role == role).count() as u64
    }

    fn layout(&self, file: &Handle) -> Layout {
        self.volume.fs.layout(file.inode()).unwrap()
    }
}

/// The number of reads of the file if nothing else was written meanwhile.
fn reads_when_alone() -> u64 {
    let bench = Bench::new();
    let (file, _) = bench.write_beside(0);
    bench.reads_of(&file)
}

fn defragment(fs: &Fs, inode: InodeNo) -> fs::Result<u64> {
    let (mut from, mut moved) = (Some(0), 0);
    while let Some(at) = from {
        let done = fs.defragment(inode, at)?;
        (from, moved) = (done.next, moved + done.blocks_moved);
    }
    Ok(moved)
}

#[test]
fn a_scattered_file_is_defragmented_as_if_it_had_been_written_alone() {
    let alone = reads_when_alone();
    let bench = Bench::new();
    let (file, _others) = bench.write_beside(OTHERS);
    let (before, reads_before) = (bench.layout(&file), bench.reads_of(&file));
    assert!(before.scattered && before.fragments > PIECES / 2, "{before:?}");
    assert_eq!(defragment(&bench.volume.fs, file.inode()), Ok(PIECES));
    let (after, reads_after) = (bench.layout(&file), bench.reads_of(&file));
    println!("alone {alone} reads; before {reads_before}, {before:?}; after {reads_after}, {after:?}");
    assert!(reads_after * 10 <= alone * 11, "{reads_after} reads, {alone} when written alone");
    assert!(!after.scattered && after.fragments <= 2, "{after:?}");
    assert_eq!(after.blocks, before.blocks);
    assert_eq!(defragment(&bench.volume.fs, file.inode()), Ok(0), "once is enough");
    bench.volume.settle_and_check();
    let volume = Volume { ..bench.volume }.remount();
    assert_eq!(
        volume.contents(&volume.open(file.inode()))[..8192],
        [pattern(0, 4096), pattern(1, 4096)].concat()
    );
}

/// The other files are deleted, more is written until their zones are full, and manual GC moves everything that gains
/// a zone. It defragments the blocks that it moves. A zone that would gain no further one stays, with the scattered
/// blocks in it.
#[test]
fn manual_gc_defragments_the_files_that_it_moves() {
    let alone = reads_when_alone();
    let bench = Bench::with_zones(400, 512);
    let (file, others) = bench.write_beside(OTHERS);
    let (before, reads_before) = (bench.layout(&file), bench.reads_of(&file));
    assert!(before.scattered && before.zones > 2, "{before:?}");
    drop(others);
    (0..OTHERS).for_each(|n| bench.volume.unlink(ROOT, &format!("other{n}")).unwrap());
    let mut later = 0;
    while bench.has_open_zone(&file) {
        later += 1;
        let handle = bench.volume.file(ROOT, &format!("later{later}"));
        bench.volume.write(&handle, 0, &[1; 64 << 10]);
    }
    while bench.volume.fs.collect_garbage().unwrap() {}
    let (after, reads_after) = (bench.layout(&file), bench.reads_of(&file));
    let left = bench.pieces_in(&file, Role::Data);
    println!(
        "alone {alone} reads; before {reads_before}, {before:?}; after {reads_after}, {after:?}, {left} left"
    );
    assert!(left * 3 < PIECES, "{left} pieces lie where they were");
    let collected = after.fragments - left;
    // The zones are emptied in a few batches, each of which is sorted and may reach from one zone into another.
    assert!(collected <= 8, "{collected} fragments of what was moved");
    assert!(
        reads_after - left <= alone * 11 / 10,
        "{reads_after} reads, {left} of them of what was not moved"
    );
    defragment(&bench.volume.fs, file.inode()).unwrap();
    let reads_after = bench.reads_of(&file);
    assert!(reads_after * 10 <= alone * 11, "{reads_after} reads, {alone} when written alone");
    bench.volume.settle_and_check();
}

#[test]
fn files_that_gain_nothing_are_not_defragmented() {
    let bench = Bench::new();
    let file = bench.volume.file(ROOT, "file");
    bench.volume.write(&file, 0, &pattern(3, 10 << 20));
    let sparse = bench.volume.file(ROOT, "sparse");
    (0..50).for_each(|n| bench.volume.write(&sparse, n * 3 * PIECE, &pattern(n as u8, PIECE as usize)));
    let inline = bench.volume.file(ROOT, "inline");
    bench.volume.write(&inline, 0, b"in the record");
    for handle in [&file, &sparse, &inline] {
        let before = bench.layout(handle);
        assert_eq!(defragment(&bench.volume.fs, handle.inode()), Ok(0), "{before:?}");
        assert_eq!(bench.layout(handle), before);
    }
    assert_eq!(bench.layout(&inline), Layout::default());
    assert_eq!(bench.volume.fs.layout(ROOT), Ok(Layout::default()));
}

/// A write between the reading and the commit wins: the data that was read no longer belongs to the file.
#[test]
fn concurrent_changes_are_not_undone() {
    let bench = Bench::new();
    let (file, _others) = bench.write_beside(OTHERS);
    let fs = Arc::clone(&bench.volume.fs);
    let writer = bench.volume.open(file.inode());
    let hook = move || {
        fs.write(&writer, 10 * PIECE, &[0xab; 2 * PIECE as usize]).unwrap();
        fs.set_attributes(&Caller::root(), writer.inode(), &cut(100 * PIECE + 7)).unwrap();
    };
    *bench.watched.at_next_read.lock() = Some(Box::new(hook));
    defragment(&bench.volume.fs, file.inode()).unwrap();
    let mut expected: Vec<u8> = (0..101).flat_map(|n| pattern(n as u8, PIECE as usize)).collect();
    expected.truncate(100 * PIECE as usize + 7);
    expected[10 * PIECE as usize..12 * PIECE as usize].fill(0xab);
    assert!(bench.volume.contents(&file) == expected);
    bench.volume.settle_and_check();
    assert!(bench.volume.contents(&file) == expected);
}

fn cut(size: u64) -> Changes {
    Changes { size: Some(size), ..Changes::default() }
}

/// A block that cannot be read stays in its place. The blocks around it are defragmented.
#[test]
fn damaged_blocks_are_not_moved() {
    let bench = Bench::new();
    let (file, _others) = bench.write_beside(OTHERS);
    let pieces =
        extent::view_object(bench.volume.fs.extents().maps(), extent::Object(file.inode().0)).unwrap();
    let (block, extent::MapRow::Extent(extent)) = &pieces[500] else { panic!("{:?}", pieces[500]) };
    bench.watched.device.make_unreadable(extent.address.zone(), extent.address.block());
    assert_eq!(defragment(&bench.volume.fs, file.inode()), Ok(PIECES - u64::from(extent.blocks)));
    let mut bytes = vec![0; PIECE as usize];
    assert!(matches!(bench.volume.fs.read(&file, block * PIECE, &mut bytes), Err(FsError::Io(_))));
    assert_eq!(bench.volume.fs.read(&file, (block + 1) * PIECE, &mut bytes), Ok(PIECE as usize));
    assert!(bytes == pattern((block + 1) as u8, PIECE as usize));
}

/// On a full volume, files are defragmented too: each piece takes space from the reserve for overwriting, and returns
/// it.
#[test]
fn a_full_volume_is_defragmented_too() {
    let volume = Volume::new();
    let files: Vec<Handle> = (0..8).map(|n| volume.file(ROOT, &n.to_string())).collect();
    let mut rounds = 0;
    'full: loop {
        for (number, file) in files.iter().enumerate() {
            match volume.fs.write(file, rounds * PIECE, &pattern(number as u8, PIECE as usize)) {
                Ok(_) => {}
                Err(FsError::NoSpace) => break 'full,
                Err(error) => panic!("{error}"),
            }
        }
        rounds += 1;
    }
    let fragments = || files.iter().map(|f| volume.fs.layout(f.inode()).unwrap().fragments).sum::<u64>();
    let (before, live) = (fragments(), volume.fs.space().live);
    for (number, file) in files.iter().enumerate() {
        defragment(&volume.fs, file.inode()).unwrap();
        let contents = volume.contents(file);
        let piece = pattern(number as u8, PIECE as usize);
        assert!(contents.chunks(PIECE as usize).take(rounds as usize).all(|found| found == piece));
    }
    println!("{before} fragments, then {}", fragments());
    assert!(fragments() * 4 < before, "{before} fragments, then {}", fragments());
    assert_eq!(volume.fs.space().live, live);
    volume.settle_and_check();
}

/// The power is lost after each change that defragmentation and GC make.
#[test]
fn a_defragmentation_survives_a_loss_of_power_at_any_time() {
    let volume = Volume::new();
    let file = volume.file(ROOT, "file");
    let others: Vec<Handle> = (0..12).map(|n| volume.file(ROOT, &format!("other{n}"))).collect();
    for piece in 0..140 {
        volume.write(&file, piece * PIECE, &pattern(piece as u8, PIECE as usize));
        others.iter().for_each(|other| volume.write(other, piece * PIECE, &pattern(0xff, PIECE as usize)));
    }
    volume.fs.sync().unwrap();
    let (inode, expected) = (file.inode(), volume.contents(&file));
    volume.device.record();
    assert_eq!(defragment(&volume.fs, inode), Ok(140));
    drop(others);
    (0..12).for_each(|n| volume.unlink(ROOT, &format!("other{n}")).unwrap());
    while volume.fs.collect_garbage().unwrap() {}
    volume.fs.sync().unwrap();
    let changes = volume.device.commands();
    for n in 0..=changes {
        for plan in volume.device.plans_at(n) {
            let device = Arc::new(volume.device.image_at(n, &plan));
            let clock = Arc::new(ManualClock::at(Timestamp(5_000_000_000)));
            let fs = mount(&device, &clock, false);
            while fs.step().unwrap() == Step::Worked {}
            assert_eq!(fs.check().unwrap(), [], "change {n}, {plan:?}");
            let found = Volume { device, clock, fs };
            assert!(found.contents(&found.open(inode)) == expected, "change {n}, {plan:?}");
        }
    }
    assert!(changes > 10, "{changes}");
}

/// Manual GC ends, gains the predicted zones, and keeps live blocks.
#[test]
fn manual_gc_ends_when_it_gains_nothing_more() {
    let volume = Volume::new();
    let names: Vec<String> = (0..600).map(|n| n.to_string()).collect();
    for (number, name) in names.iter().enumerate() {
        let file = volume.file(ROOT, name);
        volume.write(&file, 0, &pattern(number as u8, (1 + number % 13) * 4096));
    }
    names.iter().step_by(3).for_each(|name| volume.unlink(ROOT, name).unwrap());
    volume.settle();
    let before = volume.fs.extents().collector().outlook_now();
    assert!(before.zones_to_reclaim > 0, "{before:?}");
    let mut steps = 0;
    while volume.fs.collect_garbage().unwrap() {
        steps += 1;
        assert!(steps < 1000, "it goes on for ever: {:?}", volume.fs.extents().collector().outlook_now());
    }
    let after = volume.fs.extents().collector().outlook_now();
    println!("{before:?}, then {after:?}: {:?}", volume.fs.extents().collector().stats());
    assert_eq!(after.zones_to_reclaim, 0, "{after:?}");
    assert!(after.free_zones >= before.free_zones + before.zones_to_reclaim, "{before:?}, then {after:?}");
    for (number, name) in names.iter().enumerate().filter(|(number, _)| number % 3 != 0) {
        let file = volume.open(volume.find(ROOT, name).unwrap());
        assert!(volume.contents(&file) == pattern(number as u8, (1 + number % 13) * 4096), "{name}");
    }
    volume.settle_and_check();
    let volume = volume.remount();
    let outlook = volume.fs.extents().collector().outlook_now();
    while volume.fs.collect_garbage().unwrap() {}
    println!("after a mount {outlook:?}: {:?}", volume.fs.extents().collector().stats());
}

/// Creating and deleting names leaves few live pages in many metadata zones.
#[test]
fn manual_gc_includes_metadata() {
    let volume = Volume::new();
    let count = || volume.fs.store().pool().in_role(Role::Metadata).len();
    for round in 0..24 {
        let names: Vec<String> = (0..500).map(|n| format!("{round}-{n}")).collect();
        names.iter().for_each(|name| drop(volume.file(ROOT, name)));
        volume.fs.store().checkpoint().unwrap();
        names.iter().skip(10).for_each(|name| volume.unlink(ROOT, name).unwrap());
        volume.fs.store().checkpoint().unwrap();
    }
    let (before, cleaned) = (count(), volume.fs.store().stats().nodes_moved);
    while volume.fs.collect_garbage().unwrap() {}
    println!("{before} zones of metadata, then {}", count());
    assert!(count() < before, "{before} zones of metadata, then {}", count());
    assert!(volume.fs.store().stats().nodes_moved > cleaned);
    assert_eq!(volume.fs.collect_garbage(), Ok(false));
    let volume = volume.remount();
    assert_eq!(volume.names(ROOT).len(), 240);
    volume.settle_and_check();
}

/// The reported throttling is what writers then experience.
#[test]
fn the_reported_throttling_is_right() {
    let volume = Volume::new();
    let pressure = || volume.fs.extents().throttle().pressure();
    let moved = || volume.fs.extents().collector().stats().blocks_moved;
    let first = pressure();
    assert!(first.before_gc() > 0 && first.moved_per_written == 0.0, "{first:?}");
    assert_eq!((first.debt, first.charged), (None, 0), "{first:?}");
    let mut number = 0;
    let mut write = || {
        let file = volume.file(ROOT, &number.to_string());
        volume.write(&file, 0, &pattern(1, 8 * 4096));
        number += 1;
        if number % 3 == 0 {
            volume.unlink(ROOT, &(number - 2).to_string()).unwrap();
        }
    };
    write();
    let second = pressure();
    let taken = first.headroom.saturating_sub(second.headroom);
    assert!((1..64 * 4096).contains(&taken), "{first:?}, then {second:?}");
    while pressure().before_gc() > 0 {
        assert_eq!(moved(), 0, "nothing is moved before: {:?}", pressure());
        write();
    }
    while pressure().moved_per_written == 0.0 {
        assert_eq!(moved(), 0, "nothing is moved before: {:?}", pressure());
        write();
    }
    let begun = pressure();
    assert!(begun.debt.is_some_and(|debt| debt > 0), "{begun:?}");
    assert!(begun.freed_per_moved.is_some_and(|freed| freed > 0.3), "{begun:?}");
    while moved() == 0 {
        write();
    }
    volume.settle_and_check();
}

#[test]
fn the_rate_of_writing_follows_the_clock() {
    let volume = Volume::new();
    let file = volume.file(ROOT, "f");
    for piece in 0..30 {
        volume.write(&file, piece * PIECE, &pattern(1, PIECE as usize));
        volume.clock.advance(1_000_000_000);
        volume.fs.step().unwrap();
    }
    let rate = volume.fs.data_bytes_per_second();
    assert!((PIECE - 10..=PIECE).contains(&rate), "{rate}");
    volume.clock.advance(60_000_000_000);
    volume.fs.step().unwrap();
    volume.clock.advance(10_000_000_000);
    volume.fs.step().unwrap();
    volume.clock.advance(1_000_000_000);
    assert_eq!(volume.fs.data_bytes_per_second(), 0);
}

#[test]
fn a_read_only_volume_refuses_manual_gc() {
    let volume = Volume::new();
    let file = volume.file(ROOT, "f");
    volume.write(&file, 0, &pattern(1, 40_000));
    volume.fs.make_read_only().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(volume.fs.collect_garbage(), Err(FsError::ReadOnly));
    assert_eq!(defragment(&volume.fs, file.inode()), Err(FsError::ReadOnly));
    assert_eq!(volume.fs.layout(file.inode()).unwrap().blocks, 10);
}

/// No block has to be moved, so none has to be read.
#[test]
fn zones_without_live_blocks_are_reset_without_a_read() {
    let bench = Bench::with_zones(40, 256);
    let file = bench.volume.file(ROOT, "file");
    bench.volume.write(&file, 0, &pattern(1, 6 << 20));
    bench.volume.fs.sync().unwrap();
    bench.volume.settle();
    let pool = bench.volume.fs.store().pool();
    let mut of_file = bench.zones_of(&file);
    of_file.dedup();
    of_file.retain(|zone| !pool.is_open(*zone));
    assert!(of_file.len() > 4, "{of_file:?}");
    drop(file);
    bench.watched.zones_read.lock().clear();
    let free = pool.free();
    bench.volume.unlink(ROOT, "file").unwrap();
    // The name, then the backlog, and then it is known to be durable.
    for _ in 0..3 {
        bench.volume.settle();
        bench.volume.fs.sync().unwrap();
    }
    bench.volume.settle();
    assert!(pool.free() as usize >= free as usize + of_file.len(), "{} of {free}", pool.free());
    let read = bench.watched.zones_read.lock().clone();
    assert!(of_file.iter().all(|zone| !read.contains(zone)), "{read:?} of {of_file:?}");
    bench.volume.settle_and_check();
}

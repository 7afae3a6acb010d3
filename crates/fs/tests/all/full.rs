//! A full volume: operations that take space are refused, and operations that free space succeed.

use fs::{Caller, Changes, FallocateMode, FsError, Handle, InodeNo, Kind, OpenFlags, RenameFlags, Reserve};

use emulated::Spec;
use zone::Device;

use crate::support::{READ_WRITE, Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

fn fill(volume: &Volume, handle: &Handle) -> u64 {
    let piece = pattern(9, 256 << 10);
    let mut at = 0;
    loop {
        match volume.fs.write(handle, at, &piece) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert_eq!(error, FsError::NoSpace);
                return at;
            }
        }
    }
}

#[test]
fn space_can_be_freed_on_a_full_volume() {
    let volume = Volume::new();
    let root = Caller::root();
    let directory = volume.directory(ROOT, "d");
    volume.directory(directory, "empty");
    for n in 0..20 {
        let handle = volume.file(directory, &format!("f{n}"));
        volume.write(&handle, 0, &pattern(n, 10_000));
    }
    let big = volume.file(ROOT, "big");
    let size = fill(&volume, &big);
    assert!(size > 10 << 20, "most of 40 MiB is for users: {size}");
    // Metadata too, as far as it can be filled.
    let make = |n: u32| volume.fs.make_node(&root, ROOT, format!("node{n}").as_bytes(), Kind::File, 0o644, 0);
    let refused = (0..200_000).find_map(|n| make(n).err());
    assert_eq!(refused, Some(FsError::NoSpace), "metadata has its limit too");
    volume.fs.remove_directory(&root, directory, b"empty").unwrap();
    volume.fs.rename(&root, directory, b"f0", directory, b"f1", RenameFlags::default()).unwrap();
    volume.unlink(directory, "f2").unwrap();
    let cut = Changes { size: Some(5000), ..Changes::default() };
    volume.fs.set_attributes(&root, volume.find(directory, "f3").unwrap(), &cut).unwrap();
    volume.fs.set_attributes(&root, big.inode(), &cut).unwrap();
    volume.settle_and_check();
    let again = volume.file(directory, "again");
    volume.write(&again, 0, &pattern(1, (size / 2) as usize));
    let volume = volume.remount();
    volume.settle_and_check();
}

#[test]
fn a_deleted_file_frees_its_space_at_once() {
    let volume = Volume::new();
    for round in 0..3 {
        let handle = volume.file(ROOT, "f");
        let size = fill(&volume, &handle);
        assert!(size > 10 << 20, "round {round}: {size}");
        volume.unlink(ROOT, "f").unwrap();
        drop(handle);
    }
    volume.settle_and_check();
}

const BLOCK: u64 = 4096;
const PIECE: u64 = 1 << 20;
const FLAG_SHIFTING: u32 = fs::format::FLAG_SHIFTING;

/// To the last block.
fn fill_up(volume: &Volume, handle: &Handle, at: u64) {
    fill_up_by(volume, handle, at, BLOCK);
}

fn fill_up_by(volume: &Volume, handle: &Handle, at: u64, block_size: u64) {
    for block in at / block_size.. {
        match volume.fs.write(handle, block * block_size, &pattern(3, block_size as usize)) {
            Ok(written) => assert_eq!(written as u64, block_size),
            Err(error) => return assert_eq!(error, FsError::NoSpace),
        }
    }
}

/// A program that retries on a full volume must not cost others anything: if GC has gained nothing, the operation is
/// refused again without a command to the device.
#[test]
fn repeated_refusals_of_a_full_volume_cost_no_device_command() {
    const REFUSALS: u32 = 400;
    let root = Caller::root();
    let volume = Volume::new();
    let big = volume.file(ROOT, "big");
    let size = fill(&volume, &big);
    fill_up(&volume, &big, size);
    let make = |n: u32| volume.fs.make_node(&root, ROOT, format!("node{n}").as_bytes(), Kind::File, 0o644, 0);
    (0..).find_map(|n| make(n).err()).expect("metadata has its limit");
    let small = volume.open(volume.find(ROOT, "node0").unwrap());
    type Try<'a> = (&'static str, Box<dyn Fn(u32) -> Result<(), FsError> + 'a>);
    let tries: [Try<'_>; 4] = [
        ("write", Box::new(|_| volume.fs.write(&small, 0, &pattern(1, 1024)).map(drop))),
        (
            "write far behind",
            Box::new(|n| volume.fs.write(&big, (1 << 40) + u64::from(n) * BLOCK, &[1; 4096]).map(drop)),
        ),
        ("make a file", Box::new(|n| make(1_000_000 + n).map(drop))),
        (
            "preallocate",
            Box::new(|n| {
                let mode = FallocateMode::Allocate { keep_size: false };
                volume.fs.allocate(&small, mode, 0, PIECE + u64::from(n))
            }),
        ),
    ];
    for (what, attempt) in tries {
        assert_eq!(attempt(0), Err(FsError::NoSpace), "{what}");
        let before = volume.device.counters().total();
        (1..=REFUSALS).for_each(|n| assert_eq!(attempt(n), Err(FsError::NoSpace), "{what} {n}"));
        let commands = volume.device.counters().total() - before;
        assert!(commands <= 1, "{what}: {commands} commands for {REFUSALS} refusals");
    }
    volume.settle_and_check();
}

/// A zone with fifteen pages gains no more than the checkpoint writes that frees it. Metadata GC ran for ever,
/// because data GC needed one of these zones, and the writer waited.
#[test]
fn a_full_volume_with_small_zones_can_be_overwritten() {
    let volume = Volume::on(Spec::new(1024, 1023, 256));
    let file = volume.file(ROOT, "big");
    let (size, piece) = (fill(&volume, &file), pattern(5, 64 << 10));
    let mut rng = rt::random::Rng::with_seed(1);
    for number in 0..size / 2 / piece.len() as u64 {
        let at = rng.u64(0..size / piece.len() as u64) * piece.len() as u64;
        assert_eq!(volume.fs.write(&file, at, &piece), Ok(piece.len()), "write {number}");
        if number % 16 == 0 {
            volume.fs.fsync(&file, false).unwrap();
        }
    }
    volume.settle_and_check();
}

/// Metadata in small zones counted as if they had as much space as large ones: more space was reported than there
/// was, and reported space was no longer available later.
#[test]
fn the_available_space_fits_when_zones_differ() {
    let shapes = [(64, 43), (128, 64)];
    for (blocks, smaller) in shapes {
        let mut spec = Spec::new(4096, 72, blocks);
        spec.capacities.iter_mut().skip(1).step_by(4).for_each(|capacity| *capacity = smaller);
        let volume = Volume::on(spec);
        let offered = || {
            volume.settle();
            volume.fs.statfs().unwrap().available
        };
        let before = offered();
        for round in 0..2 {
            let file = volume.file(ROOT, "big");
            let piece = pattern(round, BLOCK as usize);
            for block in 0..before {
                volume.write(&file, block * BLOCK, &piece);
            }
            for block in (0..before).step_by(3) {
                volume.write(&file, block * BLOCK, &piece);
            }
            volume.fs.fsync(&file, false).unwrap();
            drop(file);
            volume.unlink(ROOT, "big").unwrap();
            let after = offered();
            assert!(after >= before, "round {round}: {after} of {before} blocks, {smaller}");
        }
        volume.settle_and_check();
    }
}

/// GC used the small zone as the target for the live blocks of a large one, and had no other when it was full:
/// overwriting was refused for lack of space.
#[test]
fn a_full_volume_with_a_small_last_zone_can_be_overwritten() {
    let mut spec = Spec::new(4096, 20, 532).limits(6, 6);
    spec.capacities[19] = 95;
    let volume = Volume::on(spec);
    let file = volume.file(ROOT, "big");
    fill_up(&volume, &file, 0);
    let blocks = volume.fs.attributes(file.inode()).unwrap().size / BLOCK;
    let mut rng = rt::random::Rng::with_seed(2);
    for number in 0..200 {
        let piece = pattern(number, rng.usize(1..=64) * BLOCK as usize);
        let at = rng.u64(0..=blocks - piece.len() as u64 / BLOCK) * BLOCK;
        volume.write(&file, at, &piece);
    }
    volume.settle_and_check();
}

/// A last zone smaller than a page was leased for metadata, although no page fits in it, and counted in the metadata
/// reserve: the process ended with a failed assertion as soon as metadata used it.
#[test]
fn a_zone_too_small_for_a_page_is_not_used() {
    let alike = Spec::new(2048, 40, 128);
    let offered = |volume: &Volume| {
        volume.settle();
        volume.fs.statfs().unwrap()
    };
    let without = offered(&Volume::on(alike.clone()));
    // A header and some blocks of data; one block less than a page with its header; nothing behind a header.
    for runt in [6, 8, 1] {
        let mut volume = Volume::on(alike.clone().last_zone(runt));
        let before = offered(&volume);
        for round in 0..2 {
            let file = volume.file(ROOT, "big");
            let piece = pattern(round, 64 << 10);
            for at in (0..before.available * 2048 / piece.len() as u64).cycle().take(200) {
                volume.write(&file, at * piece.len() as u64, &piece);
                volume.fs.fsync(&file, false).unwrap();
            }
            drop(file);
            volume.unlink(ROOT, "big").unwrap();
            volume = volume.remount();
            let after = offered(&volume).available;
            assert!(
                after >= before.available,
                "round {round}, {runt}: {after} blocks of {}",
                before.available
            );
        }
        volume.settle_and_check();
        let report = volume.device.report().unwrap();
        assert_eq!(report.last().unwrap().state, zone::ZoneState::Empty, "{runt}");
        assert_eq!((before.available, before.blocks), (without.available, without.blocks), "{runt}");
    }
}

/// In pieces that fit as a whole or not at all.
fn write_pieces(volume: &Volume, handle: &Handle, bytes: u64) {
    for at in (0..bytes).step_by(128 << 10) {
        volume.write(handle, at, &pattern(8, 128 << 10));
    }
}

/// A file with a block in every second place: each is an extent, so the operation takes several steps.
fn scattered(volume: &Volume, parent: InodeNo, name: &str, blocks: u64) -> Handle {
    let handle = volume.file(parent, name);
    for block in 0..blocks {
        volume.write(&handle, 2 * block * BLOCK, &pattern(block as u8, BLOCK as usize));
    }
    handle
}

/// A full volume on which a hole of four pieces was collapsed in a file. Another hole follows, which needs no space.
/// The data behind it could not be moved. Returns the file and its contents.
struct Stuck {
    volume: Volume,
    file: Handle,
    bytes: Vec<u8>,
}

impl Stuck {
    fn new(prepare: impl FnOnce(&Volume)) -> Stuck {
        let volume = Volume::new();
        let file = volume.file(ROOT, "f");
        let bytes = [vec![0; PIECE as usize], pattern(4, 4 * PIECE as usize)].concat();
        volume.write(&file, 5 * PIECE, &bytes[PIECE as usize..]);
        prepare(&volume);
        fill(&volume, &volume.file(ROOT, "big"));
        volume.fs.allocate(&file, FallocateMode::CollapseRange, 0, 4 * PIECE).unwrap();
        let stuck = Stuck { volume, file, bytes };
        assert!(stuck.is_shifting());
        let stops = (0..100).find_map(|_| stuck.volume.fs.step().err());
        assert_eq!(stops, Some(FsError::NoSpace), "there is work and no space for it");
        assert!(stuck.is_shifting() && stuck.volume.contents(&stuck.file) == stuck.bytes);
        stuck
    }

    fn is_shifting(&self) -> bool {
        let record = self.volume.fs.view_inode(self.file.inode()).unwrap().unwrap();
        record.flags & FLAG_SHIFTING != 0
    }
}

/// A range move without space made all later work wait for ever: deleted files freed no space, and writers were
/// refused.
#[test]
fn work_without_space_does_not_keep_others_from_freeing_some() {
    let deleted = || {
        Stuck::new(|volume| {
            let far = (0..3).fold(ROOT, |parent, n| volume.directory(parent, &format!("d{n}")));
            drop(scattered(volume, far, "doomed", 2000));
            drop(scattered(volume, ROOT, "doomed too", 300));
        })
    };
    let unlink = |volume: &Volume| {
        let far = (0..3).fold(ROOT, |parent, n| volume.find(parent, &format!("d{n}")).unwrap());
        volume.unlink(far, "doomed").unwrap();
        volume.unlink(ROOT, "doomed too").unwrap();
    };
    // The background continues.
    let stuck = deleted();
    unlink(&stuck.volume);
    stuck.volume.settle_and_check();
    assert!(!stuck.is_shifting() && stuck.volume.contents(&stuck.file) == stuck.bytes);
    // An operation that needs space frees it.
    let stuck = deleted();
    unlink(&stuck.volume);
    let new = stuck.volume.file(ROOT, "new");
    write_pieces(&stuck.volume, &new, 5 << 20);
    let stuck = deleted();
    unlink(&stuck.volume);
    let kept = stuck.volume.file(ROOT, "kept");
    stuck.volume.fs.allocate(&kept, FallocateMode::Allocate { keep_size: false }, 0, 5 << 20).unwrap();
    // Work that an earlier mount has left is found.
    let stuck = deleted();
    unlink(&stuck.volume);
    let Stuck { volume, file, bytes } = stuck;
    volume.fs.sync().unwrap();
    let inode = file.inode();
    drop(file);
    let volume = volume.kill();
    let new = volume.file(ROOT, "new");
    write_pieces(&volume, &new, 5 << 20);
    volume.settle_and_check();
    assert!(volume.contents(&volume.open(inode)) == bytes);
}

/// Truncating this file meanwhile returned `ENOSPC`, because the move had to be finished first.
#[test]
fn a_file_whose_range_move_finds_no_space_can_be_truncated() {
    let cut = |size| Changes { size: Some(size), ..Changes::default() };
    for size in [4 * PIECE - 5, 3 * PIECE, PIECE / 2, 0] {
        let Stuck { volume, file, bytes } = Stuck::new(|_| {});
        volume.fs.set_attributes(&Caller::root(), file.inode(), &cut(size)).unwrap();
        assert!(volume.contents(&file) == bytes[..size as usize], "cut to {size}");
        volume.unlink(ROOT, "big").unwrap();
        volume.settle_and_check();
        assert!(volume.contents(&file) == bytes[..size as usize], "cut to {size}, moved");
    }
    let Stuck { volume, file, .. } = Stuck::new(|_| {});
    let flags = OpenFlags { truncate: true, ..READ_WRITE };
    volume.fs.open(&Caller::root(), file.inode(), flags).unwrap();
    volume.settle_and_check();

    let Stuck { volume, file, mut bytes } = Stuck::new(|_| {});
    for from in [0, PIECE, 3 * PIECE] {
        volume.fs.allocate(&file, FallocateMode::PunchHole, from, PIECE / 2).unwrap();
        bytes[from as usize..][..PIECE as usize / 2].fill(0);
        assert!(volume.contents(&file) == bytes, "punched at {from}");
    }
    volume.unlink(ROOT, "big").unwrap();
    volume.settle_and_check();
    assert!(volume.contents(&file) == bytes);
}

/// Preallocated space can be written, however full the volume has become since, again and again.
#[test]
fn preallocated_space_can_be_written_on_a_full_volume() {
    let volume = Volume::new();
    let length = 8 << 20;
    let kept = volume.file(ROOT, "kept");
    let allocate = FallocateMode::Allocate { keep_size: false };
    volume.fs.allocate(&kept, allocate, 0, length).unwrap();
    let big = volume.file(ROOT, "big");
    let mut at = fill(&volume, &big);
    // To the last block.
    while let Ok(written) = volume.fs.write(&big, at, &pattern(3, 4096)) {
        at += written as u64;
    }
    for round in 0..3 {
        let data = pattern(round, length as usize);
        for (number, piece) in data.chunks(300_000).enumerate() {
            let written = volume.fs.write(&kept, number as u64 * 300_000, piece);
            assert_eq!(written, Ok(piece.len()), "piece {number} of round {round}");
        }
        // Less than a block goes to the record, and the space stays with the file.
        volume.write(&kept, 5 * 4096 + 7, b"small");
        volume.write(&kept, 5 * 4096, &data[5 * 4096..6 * 4096]);
        assert!(volume.contents(&kept) == data);
        assert_eq!(volume.fs.write(&big, at, &pattern(3, 4096)), Err(FsError::NoSpace));
    }
    volume.settle_and_check();
}

/// Preallocated space beyond the end was requested again, which a full volume refused.
#[test]
fn a_file_can_grow_into_its_preallocated_space_on_a_full_volume() {
    let volume = Volume::new();
    let kept = volume.file(ROOT, "kept");
    let allocate =
        |keep_size, length| volume.fs.allocate(&kept, FallocateMode::Allocate { keep_size }, 0, length);
    volume.write(&kept, 0, b"small");
    allocate(true, 8 * PIECE).unwrap();
    fill_up(&volume, &volume.file(ROOT, "big"), 0);
    assert_eq!(allocate(false, 8 * PIECE + BLOCK), Err(FsError::NoSpace));
    assert_eq!(volume.fs.attributes(kept.inode()).unwrap().size, 5, "it was asked first");
    allocate(false, 8 * PIECE).unwrap();
    assert_eq!(volume.fs.attributes(kept.inode()).unwrap().size, 8 * PIECE);
    write_pieces(&volume, &kept, 8 * PIECE);
    volume.settle_and_check();
}

/// Most of the range is a hole. The file does not grow until all of it is preallocated.
#[test]
fn a_failed_preallocation_leaves_the_size() {
    let volume = Volume::on(Spec::new(4096, 40, 16_384));
    let quarter = volume.fs.space().available / 4 / BLOCK * BLOCK;
    let kept = volume.file(ROOT, "kept");
    let hole = Changes { size: Some(3 * quarter), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), kept.inode(), &hole).unwrap();
    let allocate = FallocateMode::Allocate { keep_size: false };
    assert_eq!(volume.fs.allocate(&kept, allocate, 0, 5 * quarter), Err(FsError::NoSpace));
    let found = volume.fs.attributes(kept.inode()).unwrap();
    assert_eq!(found.size, 3 * quarter);
    assert!(found.blocks * 512 > 3 * quarter, "it has come further than the size");
    volume.fs.allocate(&kept, allocate, 0, 3 * quarter + 1).unwrap();
    assert_eq!(volume.fs.attributes(kept.inode()).unwrap().size, 3 * quarter + 1);
    volume.settle_and_check();
}

/// Files of a block or less that are stored in metadata, until there is no space for another one.
fn fill_with_small_files(volume: &Volume, directory: InodeNo, bytes: usize) -> u32 {
    for n in 0.. {
        let (name, flags) = (format!("small{n}"), READ_WRITE);
        let made = volume.fs.create(&Caller::root(), directory, name.as_bytes(), 0o644, flags, true);
        let written = made.and_then(|(_, handle)| volume.fs.write(&handle, 0, &pattern(n as u8, bytes)));
        match written {
            Ok(written) => assert_eq!(written, bytes),
            Err(error) => {
                assert_eq!(error, FsError::NoSpace);
                return n;
            }
        }
    }
    unreachable!("a volume has its limit")
}

/// A full volume of small files could not be emptied: after a third of the deletions no zone was free for metadata, and
/// the volume shut down, also after every mount. The reserve cannot be used up now.
#[test]
fn a_volume_full_of_small_files_can_be_emptied() {
    for (zones, zone_blocks) in [(16, 1024), (40, 256)] {
        let volume = Volume::on(Spec::new(4096, zones, zone_blocks));
        let directory = volume.directory(ROOT, "d");
        let empty = volume.fs.space().available;
        let files = fill_with_small_files(&volume, directory, 1000);
        let taken = u64::from(files) * 1000;
        assert!(taken > empty / 4, "{zones} zones: {taken} of {empty} bytes in {files} files");
        // In the order of a listing, which does not depend on the order of creation.
        for name in volume.names_in_order(directory) {
            volume.unlink(directory, &name).unwrap_or_else(|error| panic!("{zones} zones, {name}: {error}"));
        }
        volume.settle_and_check();
        let volume = volume.remount();
        volume.settle_and_check();
        let offered = volume.fs.space().available;
        assert!(offered >= empty - (empty >> 6), "{zones} zones: {offered} of {empty} are offered again");
    }
}

/// Small files took the space that was promised to fallocate and to overwriting.
#[test]
fn small_files_leave_the_promised_space() {
    for (zones, zone_blocks) in [(24, 256), (200, 64)] {
        small_files_leave_what_a_volume_promised(Volume::on(Spec::new(4096, zones, zone_blocks)));
    }
}

fn small_files_leave_what_a_volume_promised(volume: Volume) {
    let root = Caller::root();
    let kept = volume.file(ROOT, "kept");
    volume.fs.allocate(&kept, FallocateMode::Allocate { keep_size: false }, 0, 1 << 20).unwrap();
    let parts = volume.file(ROOT, "parts");
    volume.fs.allocate(&parts, FallocateMode::Allocate { keep_size: false }, 0, 1 << 20).unwrap();
    let written = volume.file(ROOT, "written");
    volume.write(&written, 0, &pattern(1, 1 << 20));
    let directory = volume.directory(ROOT, "d");
    volume.directory(directory, "sub");
    let files = fill_with_small_files(&volume, directory, 1000);
    assert!(files > 1000, "{files}");
    for at in (0..1 << 20).step_by(4096) {
        volume.write(&kept, at, &pattern(2, 4096));
        volume.write(&parts, at + 512, &pattern(5, 512));
        volume.write(&written, (1 << 20) - 4096 - at, &pattern(3, 4096));
    }
    for n in (0..files).step_by(7) {
        let inode = volume.find(directory, &format!("small{n}")).unwrap();
        volume.write(&volume.open(inode), 0, &pattern(4, 1000));
        let changes = Changes { permissions: Some(0o600), uid: Some(5), ..Changes::default() };
        volume.fs.set_attributes(&root, inode, &changes).unwrap();
    }
    let (from, to) = ("small1", "small2");
    let renamed =
        volume.fs.rename(&root, directory, from.as_bytes(), directory, to.as_bytes(), RenameFlags::default());
    renamed.unwrap();
    volume.fs.remove_directory(&root, directory, b"sub").unwrap();
    volume.settle_and_check();
    let volume = volume.remount();
    let written = volume.open(volume.find(ROOT, "written").unwrap());
    assert_eq!(volume.contents(&written)[..4096], pattern(3, 4096));
    volume.settle_and_check();
}

/// With so many names that no reserve for more nodes was left, writing data split the leaf in which map and names
/// meet, or that of the file's inode, and a block of the reported space did not fit.
#[test]
fn the_available_space_fits_beside_any_number_of_names() {
    let volume = Volume::on(Spec::new(16_384, 150, 16));
    let directory = volume.directory(ROOT, "d");
    let mut small = 0;
    for round in 0..160 {
        for _ in 0..9 {
            volume.write(&volume.file(directory, &format!("small{small}")), 0, &pattern(1, 1000));
            small += 1;
        }
        let file = volume.file(directory, "file");
        let offered = volume.fs.space().available;
        assert!(offered > 8 << 20, "{offered}");
        for at in (0..offered).step_by(128 << 10) {
            let bytes = pattern(round, (offered - at).min(128 << 10) as usize);
            let written = volume.fs.write(&file, at, &bytes);
            assert!(written.is_ok(), "beside {small} names, at {at} of {offered}: {written:?}");
        }
        if round % 8 == 0 {
            fill_up_by(&volume, &file, offered, 16_384);
            let space = volume.fs.space();
            let all = space.reserved + space.live + space.pending + space.unwritten + space.available;
            assert_eq!((space.available, all), (0, space.total), "{space:?}");
        }
        drop(file);
        volume.unlink(directory, "file").unwrap();
        volume.settle();
    }
    let nodes = volume.fs.space().metadata / 16_384;
    assert!(nodes > 64, "{nodes}: more than are foreseen");
    volume.settle_and_check();
}

/// The reserve is in every checkpoint and in the result of recovery.
#[test]
fn a_reserve_outlives_the_mount() {
    let spec = || Spec::new(4096, 40, 256);
    let (raw, default) = (40 * 256 * BLOCK, Volume::on(spec()).fs.space().available);
    let volume = Volume::with_reserve(spec(), Reserve(5_000));
    assert_eq!(volume.fs.space().available, raw / 2);
    let volume = volume.remount().kill();
    assert_eq!(volume.fs.space().available, raw / 2);
    let file = volume.file(ROOT, "f");
    fill_up(&volume, &file, 0);
    assert_eq!(volume.fs.attributes(file.inode()).unwrap().size, raw / 2);
    volume.settle_and_check();
    assert!(raw / 2 < default, "{default}");
}

/// The reserve is what is left of all zones when files use their space. So the numbers add up, whatever the reserve
/// and the operations are, and if zones differ or cannot be used.
#[test]
fn reported_sizes_add_up() {
    let mut unlike = Spec::new(4096, 72, 128);
    unlike.capacities.iter_mut().skip(1).step_by(4).for_each(|capacity| *capacity = 64);
    let shapes = [Spec::new(4096, 40, 256), unlike, Spec::new(4096, 40, 128).last_zone(3)];
    let reserves = [Reserve::default(), Reserve(6_000)];
    for (shape, reserve) in (0..shapes.len()).flat_map(|shape| reserves.map(|reserve| (shape, reserve))) {
        let mut volume = Volume::with_reserve(shapes[shape].clone(), reserve);
        let adds_up = |volume: &Volume, when: &str| {
            let space = volume.fs.space();
            let of_files = space.live + space.pending + space.unwritten;
            let left = space.total.saturating_sub(space.reserved + of_files);
            assert_eq!(space.available, left, "{shape}, {reserve}, {when}: {space:?}");
            space
        };
        let empty = adds_up(&volume, "empty");
        let quarter = empty.available / 4 / BLOCK * BLOCK;
        let file = volume.file(ROOT, "big");
        let mode = FallocateMode::Allocate { keep_size: false };
        volume.fs.allocate(&file, mode, 0, quarter).unwrap();
        assert_eq!(adds_up(&volume, "allocated").unwritten, quarter);
        fill_up(&volume, &file, 0);
        let full = adds_up(&volume, "full");
        assert!(full.available < BLOCK && full.live > empty.available / 2, "{full:?}");
        drop(file);
        volume.unlink(ROOT, "big").unwrap();
        volume.settle();
        adds_up(&volume, "empty again");
        volume = volume.remount();
        assert_eq!(adds_up(&volume, "mounted again").total, empty.total);
    }
}

/// On large zones, garbage collection of data took the zone that metadata needs, and that of metadata did not check
/// whether its live blocks fit: the volume shut down. Garbage collection of many metadata zones for one checkpoint
/// could use up the last zone: if base pages had moved into a part of a zone, only the larger part counted as live.
/// Moved blocks are counted.
#[test]
fn names_and_data_share_a_full_volume() {
    for zones in [18, 24] {
        let volume = Volume::on(Spec::new(4096, zones, 1024));
        let root = Caller::root();
        let directory = volume.directory(ROOT, "d");
        let half = volume.fs.space().available / 2;
        let mut files = 0;
        while volume.fs.space().available > half {
            for _ in 0..100 {
                volume.write(&volume.file(directory, &format!("small{files}")), 0, &pattern(1, 1000));
                files += 1;
            }
        }
        let big = volume.file(ROOT, "big");
        fill_up(&volume, &big, 0);
        let blocks = volume.fs.attributes(big.inode()).unwrap().size / BLOCK;
        for n in 0..20_000_u64 {
            let (file, block) = (n * 7919 % files, n * 104_729 % blocks);
            let (from, to) = (format!("small{file}"), format!("moved{file}"));
            let rename = |from: &str, to: &str| {
                let plain = RenameFlags::default();
                volume.fs.rename(&root, directory, from.as_bytes(), directory, to.as_bytes(), plain)
            };
            match n % 3 {
                0 => volume.write(&big, block * BLOCK, &pattern(n as u8, BLOCK as usize)),
                1 => {
                    let inode = volume.find(directory, &from).unwrap();
                    volume.write(&volume.open(inode), 0, &pattern(n as u8, 1000));
                }
                // A longer name may need another leaf, for which there may be no space.
                _ => match rename(&from, &to) {
                    Ok(()) => {
                        rename(&to, &from).unwrap_or_else(|error| panic!("{zones} zones, {n}: {error}"))
                    }
                    Err(error) => assert_eq!(error, FsError::NoSpace),
                },
            }
        }
        volume.settle_and_check();
    }
}

/// The map of a sequentially written file takes little space. Its reserve also counted as the reserve for names. When
/// everything was overwritten in any order, there was no space for both: writes were refused after two thirds.
#[test]
fn a_full_volume_with_many_names_can_be_overwritten() {
    let volume = Volume::on(Spec::new(4096, 200, 256));
    let directory = volume.directory(ROOT, "d");
    for n in 0..7500 {
        volume.write(&volume.file(directory, &format!("small{n}")), 0, &pattern(1, 200));
    }
    let big = volume.file(ROOT, "big");
    let blocks = fill(&volume, &big) / BLOCK;
    volume.fs.sync().unwrap();
    let metadata = volume.fs.space().metadata;
    for n in 0..blocks {
        let at = n * 104_729 % blocks * BLOCK;
        let written = volume.fs.write(&big, at, &pattern(n as u8, BLOCK as usize));
        assert_eq!(written, Ok(BLOCK as usize), "{n} of {blocks} blocks");
    }
    let grown = volume.fs.space().metadata;
    assert!(grown > metadata / 2 * 3, "the map has grown from {metadata} to {grown} bytes");
    volume.settle_and_check();
    volume.remount().settle_and_check();
}

/// Each open zone has entries in memory that a checkpoint contains. With small zones of which many may be open, these
/// outgrew the log: nothing could be changed or deleted any more, on a volume that was nearly empty.
#[test]
fn many_open_zones_leave_space_in_a_small_log() {
    let volume = Volume::on(Spec::new(4096, 1024, 64).limits(64, 64));
    let files: Vec<_> = (0..40).map(|n| volume.file(ROOT, &format!("f{n}"))).collect();
    for round in 0..120 {
        for (seed, file) in (0..).zip(&files) {
            volume.write(file, round * BLOCK, &pattern(seed, BLOCK as usize));
        }
    }
    volume.fs.sync().unwrap();
    volume.unlink(ROOT, "f0").unwrap();
    let checkpoints = volume.fs.store().stats().checkpoints;
    assert!(checkpoints < 200, "{checkpoints} checkpoints");
    drop(files);
    let volume = volume.kill();
    volume.settle_and_check();
    volume.unlink(ROOT, "f1").unwrap();
}

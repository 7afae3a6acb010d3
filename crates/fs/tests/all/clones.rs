//! Files that share blocks.

use emulated::Spec;
use fs::{Caller, Changes, FallocateMode, FsError, Handle, InodeNo, OpenFlags};
use rt::random::Rng;

use crate::support::{READ, READ_WRITE, Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: u64 = 4096;

fn clone(volume: &Volume, from: &Handle, to: &Handle) -> Result<(), FsError> {
    volume.fs.clone_range(from, 0, to, 0, 0)
}

#[test]
fn a_clone_takes_no_space_and_is_a_file_of_its_own() {
    let volume = Volume::new();
    let bytes = pattern(1, 3_000_123);
    let file = volume.file(ROOT, "file");
    volume.write(&file, 0, &bytes);
    let before = volume.fs.extents().budget().space().live;
    let copy = volume.file(ROOT, "copy");
    clone(&volume, &file, &copy).unwrap();
    assert_eq!(volume.fs.extents().budget().space().live, before, "the data is there once");
    assert_eq!(volume.contents(&copy), bytes);
    let blocks = |handle: &Handle| volume.fs.attributes(handle.inode()).unwrap().blocks;
    assert_eq!(blocks(&copy), blocks(&file));
    let mut changed = bytes.clone();
    changed[70_000..80_000].fill(7);
    volume.write(&copy, 70_000, &changed[70_000..80_000]);
    assert_eq!((volume.contents(&file), volume.contents(&copy)), (bytes.clone(), changed.clone()));
    volume.settle_and_check();
    let (file, copy) = ((file.inode(), bytes), (copy.inode(), changed));
    let volume = volume.remount();
    for (inode, bytes) in [&file, &copy] {
        assert_eq!(&volume.contents(&volume.open(*inode)), bytes);
    }
    volume.unlink(ROOT, "file").unwrap();
    volume.settle_and_check();
    assert_eq!(volume.contents(&volume.open(copy.0)), copy.1);
    volume.unlink(ROOT, "copy").unwrap();
    volume.settle_and_check();
    assert_eq!(volume.fs.extents().budget().space().live, 0, "nothing is left");
}

#[test]
fn a_clone_of_a_clone_and_of_what_was_written_since() {
    let volume = Volume::new();
    let mut bytes = pattern(1, 500_000);
    let file = volume.file(ROOT, "file");
    volume.write(&file, 0, &bytes);
    let mut copies = Vec::new();
    for generation in 0..6 {
        let copy = volume.file(ROOT, &format!("copy{generation}"));
        clone(&volume, copies.last().map_or(&file, |(copy, _)| copy), &copy).unwrap();
        assert_eq!(volume.contents(&copy), bytes);
        let at = generation * 77_777;
        bytes[at..at + 20_000].fill(generation as u8);
        volume.write(&copy, at as u64, &bytes[at..at + 20_000]);
        copies.push((copy, bytes.clone()));
    }
    volume.settle_and_check();
    for (copy, bytes) in copies {
        assert_eq!(volume.contents(&copy), bytes);
    }
}

#[test]
fn clones_that_are_refused() {
    let volume = Volume::new();
    let (file, other) = (volume.file(ROOT, "file"), volume.file(ROOT, "other"));
    volume.write(&file, 0, &pattern(1, 50_000));
    volume.write(&other, 0, &pattern(2, 60_000));
    let cloned = |from: u64, at: u64, length: u64| volume.fs.clone_range(&file, from, &other, at, length);
    assert_eq!(cloned(1, 0, BLOCK), Err(FsError::Invalid), "begins within a block");
    assert_eq!(cloned(0, 1, BLOCK), Err(FsError::Invalid), "goes within a block");
    assert_eq!(
        cloned(0, 0, 100),
        Err(FsError::Invalid),
        "ends within a block, and not where the source does"
    );
    assert_eq!(cloned(0, 0, 13 * BLOCK), Err(FsError::Invalid), "beyond the end of the source");
    assert_eq!(cloned(0, 0, 0), Err(FsError::Invalid), "the target goes on behind the end of the source");
    assert_eq!(cloned(0, (1 << 63) - BLOCK, 2 * BLOCK), Err(FsError::TooLarge));
    assert_eq!(volume.fs.clone_range(&file, 0, &file, BLOCK, 2 * BLOCK), Err(FsError::Invalid), "overlaps");
    let directory = volume.directory(ROOT, "d");
    let opened = volume.fs.open(&Caller::root(), directory, READ).unwrap();
    assert_eq!(volume.fs.clone_range(&opened, 0, &other, 0, 0), Err(FsError::IsDirectory));
    let reader = volume.fs.open(&Caller::root(), other.inode(), READ).unwrap();
    assert_eq!(clone(&volume, &file, &reader), Err(FsError::BadHandle));
    let flags = OpenFlags { append: true, ..READ_WRITE };
    let appending = volume.fs.open(&Caller::root(), other.inode(), flags).unwrap();
    assert_eq!(clone(&volume, &file, &appending), Err(FsError::BadHandle));
    assert_eq!(volume.contents(&other), pattern(2, 60_000), "nothing has changed");
    assert_eq!(cloned(0, 4 * BLOCK, 0), Ok(()), "its end is the target's");
    let expected = [&pattern(2, 60_000)[..4 * BLOCK as usize], &pattern(1, 50_000)].concat();
    assert_eq!(volume.contents(&other), expected);
    volume.settle_and_check();
}

#[test]
fn bytes_behind_the_end_read_as_zeros_after_a_clone() {
    let volume = Volume::new();
    let (file, copy) = (volume.file(ROOT, "file"), volume.file(ROOT, "copy"));
    volume.write(&file, 0, &[7; 30_000]);
    let resize = |handle: &Handle, size| {
        let changes = Changes { size: Some(size), ..Changes::default() };
        volume.fs.set_attributes(&Caller::root(), handle.inode(), &changes).unwrap();
    };
    resize(&file, 20_001);
    clone(&volume, &file, &copy).unwrap();
    for handle in [&copy, &file] {
        resize(handle, 25_000);
        let expected = [vec![7; 20_001], vec![0; 4999]].concat();
        assert_eq!(volume.contents(handle), expected);
    }
    volume.settle_and_check();
}

#[test]
fn short_contents_and_holes_are_cloned_as_well() {
    let volume = Volume::new();
    let (short, holes) = (volume.file(ROOT, "short"), volume.file(ROOT, "holes"));
    volume.write(&short, 0, b"a few bytes");
    volume.write(&holes, 10 * BLOCK, &pattern(3, 5000));
    volume.write(&holes, 30 * BLOCK + 5, b"small");
    let copy = volume.file(ROOT, "copy");
    volume.write(&copy, 0, &pattern(4, 9000));
    assert_eq!(volume.fs.clone_range(&short, 0, &copy, 2 * BLOCK, 0), Err(FsError::Invalid));
    assert_eq!(volume.fs.clone_range(&short, 0, &copy, 4 * BLOCK, 0), Ok(()));
    assert_eq!(volume.contents(&copy)[4 * BLOCK as usize..], *b"a few bytes");
    clone(&volume, &holes, &copy).unwrap();
    assert_eq!(volume.contents(&copy), volume.contents(&holes));
    assert_eq!(volume.fs.seek_data(&copy, 0), Ok(10 * BLOCK));
    assert_eq!(volume.fs.seek_hole(&copy, 10 * BLOCK), Ok(12 * BLOCK));
    assert_eq!(volume.fs.seek_data(&copy, 12 * BLOCK), Ok(30 * BLOCK));
    let into_short = volume.file(ROOT, "into");
    volume.write(&into_short, 0, b"was short");
    clone(&volume, &copy, &into_short).unwrap();
    assert_eq!(volume.contents(&into_short), volume.contents(&holes));
    volume.settle_and_check();
}

#[test]
fn preallocated_space_stays_with_the_file() {
    let volume = Volume::new();
    let (file, copy) = (volume.file(ROOT, "file"), volume.file(ROOT, "copy"));
    volume.write(&file, 0, &pattern(1, 100_000));
    let mode = FallocateMode::Allocate { keep_size: true };
    volume.fs.allocate(&file, mode, 0, 1 << 20).unwrap();
    let kept = volume.fs.extents().budget().space().unwritten;
    clone(&volume, &file, &copy).unwrap();
    assert_eq!(volume.fs.extents().budget().space().unwritten, kept);
    assert_eq!(volume.contents(&copy), pattern(1, 100_000));
    volume.settle_and_check();
}

#[test]
fn a_copy_of_much_shares_and_a_copy_of_little_does_not() {
    let volume = Volume::new();
    let file = volume.file(ROOT, "file");
    volume.write(&file, 0, &pattern(1, 1 << 20));
    let before = volume.fs.extents().budget().space().live;
    let copy = volume.file(ROOT, "copy");
    assert_eq!(volume.fs.copy_range(&file, 0, &copy, 0, 1 << 20), Ok(1 << 20));
    assert_eq!(volume.fs.extents().budget().space().live, before);
    assert_eq!(volume.fs.copy_range(&file, 4096, &copy, 2 << 20, 5000), Ok(5000));
    assert!(volume.fs.extents().budget().space().live > before);
    // Behind whole blocks the rest is copied.
    assert_eq!(volume.fs.copy_range(&file, 0, &copy, 4 << 20, 100_000), Ok(100_000));
    let contents = volume.contents(&copy);
    let expected = pattern(1, 1 << 20);
    assert_eq!(contents[..1 << 20], expected);
    assert_eq!(contents[2 << 20..][..5000], expected[4096..9096]);
    assert_eq!(contents[4 << 20..], expected[..100_000]);
    volume.settle_and_check();
}

#[test]
fn a_full_volume_is_emptied_of_files_that_share() {
    let volume = Volume::on(Spec::new(4096, 16, 256).limits(6, 6));
    let available = volume.fs.space().available;
    let file = volume.file(ROOT, "file");
    volume.write(&file, 0, &pattern(1, available as usize / 2));
    for number in 0..5 {
        clone(&volume, &file, &volume.file(ROOT, &format!("copy{number}"))).unwrap();
    }
    let rest = volume.file(ROOT, "rest");
    let mut at = 0;
    while let Ok(written) = volume.fs.write(&rest, at, &pattern(2, 50_000)) {
        at += written as u64;
    }
    assert_eq!(
        volume.fs.write(&volume.open(volume.find(ROOT, "copy1").unwrap()), 0, &pattern(3, 90_000)),
        Err(FsError::NoSpace)
    );
    drop((file, rest));
    for name in ["copy1", "file", "copy0", "copy2", "copy4", "rest", "copy3"] {
        volume.unlink(ROOT, name).unwrap();
    }
    volume.settle_and_check();
    assert_eq!(volume.fs.extents().budget().space().live, 0);
    assert_eq!(volume.fs.space().available, available);
}

/// The remaining blocks of many extents are freed together, which takes more than one transaction.
#[test]
fn freeing_parts_of_many_shared_extents_takes_steps() {
    let volume = Volume::on(Spec::new(4096, 64, 4096).max_append(256));
    let (file, copy) = (volume.file(ROOT, "file"), volume.file(ROOT, "copy"));
    const EXTENTS: u64 = 250;
    let extent = pattern(7, 1 << 20);
    for number in 0..EXTENTS {
        volume.write(&file, number << 20, &extent);
    }
    clone(&volume, &file, &copy).unwrap();
    for number in 0..EXTENTS {
        volume.write(&copy, (number << 20) + 40 * BLOCK, b"one block of each");
    }
    let again = volume.file(ROOT, "again");
    clone(&volume, &copy, &again).unwrap();
    drop(file);
    volume.unlink(ROOT, "file").unwrap();
    volume.settle_and_check();
    for number in 0..EXTENTS {
        let mut found = vec![0; 41 * BLOCK as usize];
        volume.fs.read(&again, number << 20, &mut found).unwrap();
        assert!(found[..40 * BLOCK as usize] == extent[..40 * BLOCK as usize]);
        assert!(found[40 * BLOCK as usize..].starts_with(b"one block of each"));
    }
    let changes = Changes { size: Some(5), ..Changes::default() };
    for handle in [&again, &copy] {
        volume.fs.set_attributes(&Caller::root(), handle.inode(), &changes).unwrap();
    }
    volume.settle_and_check();
}

/// Each block of the target belongs to another extent, so overwriting it changes all of them.
#[test]
fn many_extents_are_written_over_at_once() {
    let volume = Volume::on(Spec::new(4096, 64, 4096).max_append(256));
    let (file, patched) = (volume.file(ROOT, "file"), volume.file(ROOT, "patched"));
    const EXTENTS: u64 = 250;
    for number in 0..EXTENTS {
        volume.write(&file, number << 20, &pattern(number as u8, 1 << 20));
    }
    for number in 0..EXTENTS {
        let from = (number << 20) + 17 * BLOCK;
        volume.fs.clone_range(&file, from, &patched, number * BLOCK, BLOCK).unwrap();
        volume.write(&file, from, &[1; 4096]);
    }
    volume.settle_and_check();
    let bytes = pattern(99, (EXTENTS * BLOCK) as usize);
    volume.write(&patched, 0, &bytes);
    assert_eq!(volume.contents(&patched), bytes);
    volume.settle_and_check();
}

/// Several files against plain vectors, with mounts in between.
#[test]
fn files_that_share_agree_with_vectors() {
    for seed in 0..4 {
        let mut rng = Rng::with_seed(seed);
        let mut volume = Volume::on(Spec::new(4096, 24, 192));
        let mut model: Vec<Vec<u8>> = vec![Vec::new(); 5];
        let name = |number: usize| format!("f{number}");
        (0..5).for_each(|number| drop(volume.file(ROOT, &name(number))));
        for step in 0..250 {
            let (this, other) = (rng.usize(..5), rng.usize(..5));
            let handle = |number: usize| volume.open(volume.find(ROOT, &name(number)).unwrap());
            match rng.u8(..12) {
                0..4 => {
                    let (at, length) = (rng.usize(..300_000), rng.usize(1..40_000));
                    volume.write(&handle(this), at as u64, &pattern(step as u8, length));
                    let bytes = &mut model[this];
                    bytes.resize(bytes.len().max(at + length), 0);
                    bytes[at..at + length].copy_from_slice(&pattern(step as u8, length));
                }
                4..8 if this != other => {
                    let blocks = model[this].len() as u64 / BLOCK;
                    let from = rng.u64(..=blocks);
                    let length = rng.u64(..=blocks - from) * BLOCK;
                    let (from, at) = (from * BLOCK, rng.u64(..70) * BLOCK);
                    if length > 0 {
                        volume.fs.clone_range(&handle(this), from, &handle(other), at, length).unwrap();
                        let bytes = model[this][from as usize..(from + length) as usize].to_vec();
                        let target = &mut model[other];
                        target.resize(target.len().max(at as usize + bytes.len()), 0);
                        target[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                8 => {
                    let size = rng.usize(..300_000);
                    let changes = Changes { size: Some(size as u64), ..Changes::default() };
                    volume.fs.set_attributes(&Caller::root(), handle(this).inode(), &changes).unwrap();
                    model[this].resize(size, 0);
                }
                9 => {
                    volume.unlink(ROOT, &name(this)).unwrap();
                    drop(volume.file(ROOT, &name(this)));
                    model[this].clear();
                }
                10 => volume.settle(),
                _ if rng.u8(..4) == 0 => {
                    volume.fs.sync().unwrap();
                    volume = if rng.bool() { volume.remount() } else { volume.kill() };
                }
                _ => {}
            }
            if step % 25 == 24 {
                for (number, bytes) in model.iter().enumerate() {
                    let handle = volume.open(volume.find(ROOT, &name(number)).unwrap());
                    assert!(volume.contents(&handle) == *bytes, "seed {seed}, step {step}, file {number}");
                }
                assert_eq!(volume.fs.check().unwrap(), []);
            }
        }
    }
}

/// Two references to each of many small extents: removing the second one removes all rows of their owner.
#[test]
fn a_file_that_references_blocks_twice_is_deleted_in_steps() {
    const BLOCKS: u64 = 11_264;
    let volume = Volume::on(Spec::new(4096, 48, 512));
    let file = volume.file(ROOT, "file");
    // Consecutive blocks of the file are not consecutive in a zone.
    for (number, block) in (0..BLOCKS).map(|number| (number, number * 4_999 % BLOCKS)) {
        volume.write(&file, block * BLOCK, &[number as u8; BLOCK as usize]);
    }
    volume.fs.clone_range(&file, 0, &file, BLOCKS * BLOCK, BLOCKS * BLOCK).unwrap();
    volume.settle_and_check();
    drop(file);
    volume.unlink(ROOT, "file").unwrap();
    volume.settle_and_check();
    assert_eq!(volume.fs.extents().budget().space().live, 0);
    volume.remount().settle_and_check();
}

/// A database that was copied once, and whose copy is deleted, shares no blocks.
#[test]
fn blocks_that_are_no_longer_shared_can_be_overwritten_on_a_full_volume() {
    let volume = Volume::new();
    let (file, copy) = (volume.file(ROOT, "file"), volume.file(ROOT, "copy"));
    let mut bytes = pattern(1, 4 << 20);
    volume.write(&file, 0, &bytes);
    clone(&volume, &file, &copy).unwrap();
    drop(copy);
    volume.unlink(ROOT, "copy").unwrap();
    volume.settle();
    let rest = volume.file(ROOT, "rest");
    let (mut at, mut piece) = (0, 256 << 10);
    while piece >= 4096 {
        match volume.fs.write(&rest, at, &pattern(2, piece)) {
            Ok(written) => at += written as u64,
            Err(_) => piece /= 2,
        }
    }
    assert_eq!(volume.fs.space().available, 0);
    for round in 0..40 {
        let at = round as usize * 101_376 % (4 << 20) / 4096 * 4096;
        let new = pattern(round, 32_768.min((4 << 20) - at));
        volume.write(&file, at as u64, &new);
        bytes[at..at + new.len()].copy_from_slice(&new);
    }
    assert!(volume.contents(&file) == bytes);
    volume.settle_and_check();
    assert!(volume.fs.extents().budget().space().available < 64 << 10, "what was offered is what there is");
}

/// Each piece replaces shared blocks, so it frees nothing itself.
#[test]
fn a_shared_range_is_collapsed_with_little_space() {
    let volume = Volume::on(Spec::new(4096, 40, 512));
    let file = volume.file(ROOT, "file");
    const HALF: usize = 16 << 20;
    let (shared, own) = (pattern(1, HALF), pattern(2, HALF));
    volume.write(&file, 0, &shared);
    let copy = volume.file(ROOT, "copy");
    clone(&volume, &file, &copy).unwrap();
    volume.write(&file, HALF as u64, &own);
    let rest = volume.file(ROOT, "rest");
    let mut at = 0;
    while volume.fs.space().available > 5 << 20 {
        at += volume.fs.write(&rest, at, &pattern(3, 1 << 20)).unwrap() as u64;
    }
    volume.fs.allocate(&file, FallocateMode::CollapseRange, 0, HALF as u64).unwrap();
    assert!(volume.contents(&file) == own);
    assert!(volume.contents(&copy) == shared);
    // All of it, and not only when there is space later.
    volume.write(&file, HALF as u64, &[7; 4096]);
    volume.fs.allocate(&file, FallocateMode::InsertRange, 0, 8 << 20).unwrap();
    volume.write(&file, (8 << 20) + HALF as u64 + 4096, &[8; 4096]);
    let expected = [vec![0; 8 << 20], own, vec![7; 4096], vec![8; 4096]].concat();
    assert!(volume.contents(&file) == expected);
    volume.settle_and_check();
}

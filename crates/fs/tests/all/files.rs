//! Contents of files.

use fs::{Caller, Changes, FallocateMode, FsError, InodeNo, OpenFlags};

use emulated::Spec;

use crate::support::{READ, READ_WRITE, Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: u64 = 4096;

fn resize(volume: &Volume, inode: InodeNo, size: u64) {
    let changes = Changes { size: Some(size), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), inode, &changes).unwrap();
}

#[test]
fn written_data_is_read_back_at_every_size_around_the_limits() {
    let volume = Volume::new();
    for length in [0, 1, 511, 2047, 2048, 2049, 4095, 4096, 4097, 300_000, 1 << 20, (1 << 20) + 1] {
        let name = format!("f{length}");
        let handle = volume.file(ROOT, &name);
        let data = pattern(1, length);
        volume.write(&handle, 0, &data);
        assert!(volume.contents(&handle) == data, "{length} bytes");
    }
    let volume = volume.remount();
    for length in [0, 1, 511, 2047, 2048, 2049, 4095, 4096, 4097, 300_000, 1 << 20, (1 << 20) + 1] {
        let handle = volume.open(volume.find(ROOT, &format!("f{length}")).unwrap());
        assert!(volume.contents(&handle) == pattern(1, length), "{length} bytes after a mount");
    }
    volume.settle_and_check();
}

/// Every combination of a few places and lengths against a plain vector.
#[test]
fn overlapping_writes_truncations_and_holes_agree_with_a_plain_vector() {
    let volume = Volume::new();
    let places = [0u64, 100, 2000, 2048, 4000, 4096, 5000, 8192, 12_288, 70_000];
    let lengths = [1u64, 50, 96, 4096, 9000];
    let mut rng = rt::random::Rng::with_seed(7);
    for round in 0..40 {
        let handle = volume.file(ROOT, &format!("f{round}"));
        let mut model: Vec<u8> = Vec::new();
        for step in 0..12u8 {
            let (at, length) = (places[rng.usize(..places.len())], lengths[rng.usize(..lengths.len())]);
            let end = (at + length) as usize;
            match rng.u8(..6) {
                0..=2 => {
                    let data = pattern(step ^ round, length as usize);
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&data);
                    volume.write(&handle, at, &data);
                }
                3 => {
                    model.resize(at as usize, 0);
                    resize(&volume, handle.inode(), at);
                }
                4 => {
                    let end = end.min(model.len());
                    model.get_mut(at as usize..end).into_iter().for_each(|hole| hole.fill(0));
                    volume.fs.allocate(&handle, FallocateMode::PunchHole, at, length).unwrap();
                }
                _ => {
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].fill(0);
                    let mode = FallocateMode::ZeroRange { keep_size: false };
                    volume.fs.allocate(&handle, mode, at, length).unwrap();
                }
            }
            assert!(volume.contents(&handle) == model, "round {round} step {step} at {at} + {length}");
        }
    }
    volume.settle_and_check();
}

#[test]
fn a_file_that_was_cut_within_a_block_grows_with_zeros() {
    for regrow in ["size", "write behind", "write far behind", "allocate"] {
        let volume = Volume::new();
        let handle = volume.file(ROOT, "f");
        volume.write(&handle, 0, &[0xaa; 20_000]);
        resize(&volume, handle.inode(), 5000);
        match regrow {
            "size" => resize(&volume, handle.inode(), 30_000),
            "write behind" => volume.write(&handle, 6000, b"x"),
            "write far behind" => volume.write(&handle, 29_999, b"x"),
            _ => {
                let mode = FallocateMode::Allocate { keep_size: false };
                volume.fs.allocate(&handle, mode, 10_000, 10_000).unwrap();
            }
        }
        let contents = volume.contents(&handle);
        assert!(contents[..5000].iter().all(|byte| *byte == 0xaa), "{regrow}");
        assert!(contents[5000..].iter().all(|byte| matches!(byte, 0 | b'x')), "{regrow}: stale bytes");
        volume.settle_and_check();
    }
}

#[test]
fn holes_and_data_are_distinguished() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    assert_eq!(volume.fs.seek_data(&handle, 0), Err(FsError::NoData));
    volume.write(&handle, 0, b"inline");
    assert_eq!(volume.fs.seek_data(&handle, 2), Ok(2));
    assert_eq!(volume.fs.seek_hole(&handle, 2), Ok(6));
    volume.write(&handle, 10 * BLOCK, &pattern(1, BLOCK as usize));
    resize(&volume, handle.inode(), 20 * BLOCK);
    assert_eq!(volume.fs.seek_hole(&handle, 0), Ok(BLOCK));
    assert_eq!(volume.fs.seek_data(&handle, BLOCK), Ok(10 * BLOCK));
    assert_eq!(volume.fs.seek_data(&handle, 10 * BLOCK + 5), Ok(10 * BLOCK + 5));
    assert_eq!(volume.fs.seek_hole(&handle, 10 * BLOCK + 5), Ok(11 * BLOCK));
    assert_eq!(volume.fs.seek_data(&handle, 11 * BLOCK), Err(FsError::NoData));
    assert_eq!(volume.fs.seek_hole(&handle, 20 * BLOCK), Err(FsError::NoData));
    volume.fs.allocate(&handle, FallocateMode::PunchHole, 0, BLOCK).unwrap();
    assert_eq!(volume.fs.seek_data(&handle, 0), Ok(10 * BLOCK));
}

#[test]
fn preallocated_space_reads_as_zeros() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let allocate = |mode, offset, length| volume.fs.allocate(&handle, mode, offset, length);
    volume.write(&handle, 3 * BLOCK, b"data");
    let before = volume.fs.space();
    allocate(FallocateMode::Allocate { keep_size: false }, 0, 900 * BLOCK).unwrap();
    let shown = volume.fs.attributes(handle.inode()).unwrap();
    assert_eq!((shown.size, shown.blocks), (900 * BLOCK, 900 * BLOCK / 512));
    let after = volume.fs.space();
    assert_eq!((after.unwritten, before.available - after.available), (900 * BLOCK, 900 * BLOCK));
    assert_eq!(volume.fs.seek_data(&handle, 0), Ok(3 * BLOCK));
    assert_eq!(volume.fs.seek_hole(&handle, 3 * BLOCK), Ok(4 * BLOCK));
    assert_eq!(&volume.contents(&handle)[3 * BLOCK as usize..][..5], b"data\0");
    volume.write(&handle, 700 * BLOCK, &pattern(1, 3 * BLOCK as usize));
    volume.write(&handle, 10 * BLOCK + 10, b"small");
    assert_eq!(volume.fs.attributes(handle.inode()).unwrap().blocks, 900 * BLOCK / 512);
    assert_eq!(allocate(FallocateMode::PunchHole, 0, 0), Err(FsError::Invalid));
    let huge = allocate(FallocateMode::Allocate { keep_size: false }, 0, 1 << 40);
    assert_eq!(huge, Err(FsError::NoSpace));
    volume.settle_and_check();
}

#[test]
fn space_is_preallocated_beyond_the_end_until_the_size_is_set() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let beyond = FallocateMode::Allocate { keep_size: true };
    volume.fs.allocate(&handle, beyond, 0, 500 * BLOCK).unwrap();
    let inode = handle.inode();
    let shown = volume.fs.attributes(inode).unwrap();
    assert_eq!((shown.size, shown.blocks), (0, 500 * BLOCK / 512));
    volume.write(&handle, 0, &pattern(1, 2 * BLOCK as usize + 5));
    drop(handle);
    let volume = volume.remount();
    let handle = volume.open(inode);
    let shown = volume.fs.attributes(inode).unwrap();
    assert_eq!((shown.size, shown.blocks), (2 * BLOCK + 5, 500 * BLOCK / 512));
    assert_eq!(volume.fs.seek_data(&handle, 2 * BLOCK + 5), Err(FsError::NoData));
    resize(&volume, inode, 2 * BLOCK + 5);
    assert_eq!(volume.fs.attributes(inode).unwrap().blocks, 3 * BLOCK / 512);
    assert_eq!(volume.contents(&handle), pattern(1, 2 * BLOCK as usize + 5));
    // Without preallocation no space is needed: a small file uses its record.
    let small = volume.file(ROOT, "small");
    volume.fs.allocate(&small, beyond, 0, 10).unwrap();
    assert_eq!(volume.fs.attributes(small.inode()).unwrap().blocks, 0);
    volume.settle_and_check();
}

fn blocks(volume: &Volume, inode: InodeNo) -> u64 {
    volume.fs.attributes(inode).unwrap().blocks * 512 / BLOCK
}

/// A file that grew into a part of its preallocated space lost the flag for the rest, which then could not be freed.
#[test]
fn a_file_that_grows_into_preallocated_space_can_free_the_rest() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let inode = handle.inode();
    volume.fs.allocate(&handle, FallocateMode::Allocate { keep_size: true }, 0, 100 * BLOCK).unwrap();
    volume.fs.allocate(&handle, FallocateMode::Allocate { keep_size: false }, 0, 10 * BLOCK).unwrap();
    assert_eq!((volume.fs.attributes(inode).unwrap().size, blocks(&volume, inode)), (10 * BLOCK, 100));
    resize(&volume, inode, 10 * BLOCK);
    assert_eq!(blocks(&volume, inode), 10);
    volume.settle_and_check();
}

/// A file that grew into its preallocated blocks could not free the rest.
#[test]
fn preallocated_space_beyond_the_end_can_be_punched() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let inode = handle.inode();
    let data = pattern(1, 3 * BLOCK as usize + 5);
    volume.write(&handle, 0, &data);
    volume.fs.allocate(&handle, FallocateMode::Allocate { keep_size: true }, 0, 900 * BLOCK).unwrap();
    let punch = |from: u64, to: u64| {
        volume.fs.allocate(&handle, FallocateMode::PunchHole, from, to - from).unwrap();
        blocks(&volume, inode)
    };
    assert_eq!(punch(800 * BLOCK, 2000 * BLOCK), 800);
    assert_eq!(punch(100 * BLOCK - 1, 200 * BLOCK + 1), 700, "whole blocks only");
    assert_eq!(punch(3 * BLOCK + 100, 20 * BLOCK), 684, "behind the last byte, in its block");
    assert!(volume.contents(&handle) == data);
    assert_eq!(punch(2 * BLOCK, 50 * BLOCK), 652);
    let kept = [&data[..2 * BLOCK as usize], &[0; BLOCK as usize + 5]].concat();
    assert!(volume.contents(&handle) == kept);
    volume.settle_and_check();
    let handle = volume.open(inode);
    volume.fs.allocate(&handle, FallocateMode::PunchHole, 4 * BLOCK, 900 * BLOCK).unwrap();
    assert_eq!(blocks(&volume, inode), 2);
    assert!(volume.contents(&handle) == kept);
    volume.settle_and_check();
}

#[test]
fn a_zeroed_range_keeps_its_space() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let mut model = pattern(1, 20 * BLOCK as usize + 30);
    volume.write(&handle, 0, &model);
    let zero = |offset, length, keep_size| {
        volume.fs.allocate(&handle, FallocateMode::ZeroRange { keep_size }, offset, length).unwrap();
    };
    let taken = volume.fs.attributes(handle.inode()).unwrap().blocks;
    zero(BLOCK + 100, 5 * BLOCK, true);
    model[BLOCK as usize + 100..][..5 * BLOCK as usize].fill(0);
    assert_eq!(volume.contents(&handle), model);
    assert_eq!(volume.fs.attributes(handle.inode()).unwrap().blocks, taken);
    zero(19 * BLOCK + 1, 4 * BLOCK, false);
    model[19 * BLOCK as usize + 1..].fill(0);
    model.resize(23 * BLOCK as usize + 1, 0);
    assert_eq!(volume.contents(&handle), model);
    assert_eq!(volume.fs.attributes(handle.inode()).unwrap().blocks, 24 * BLOCK / 512);
    volume.settle_and_check();
}

#[test]
fn ranges_are_collapsed_and_inserted() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let change = |mode, at: u64, blocks: u64| volume.fs.allocate(&handle, mode, at, blocks * BLOCK);
    let (collapse, insert) = (FallocateMode::CollapseRange, FallocateMode::InsertRange);
    // Data, a hole, and data that ends within a block.
    let mut model = pattern(1, 3 * BLOCK as usize);
    model.resize(300 * BLOCK as usize, 0);
    model.extend(pattern(2, 300 * BLOCK as usize + 77));
    volume.write(&handle, 0, &model[..3 * BLOCK as usize]);
    volume.write(&handle, 300 * BLOCK, &model[300 * BLOCK as usize..]);
    let taken = volume.fs.attributes(handle.inode()).unwrap().blocks;

    change(insert, BLOCK, 2).unwrap();
    model.splice(BLOCK as usize..BLOCK as usize, vec![0; 2 * BLOCK as usize]);
    assert!(volume.contents(&handle) == model);
    assert_eq!(volume.fs.seek_hole(&handle, 0), Ok(BLOCK), "what was put in takes no space");
    assert_eq!(volume.fs.seek_data(&handle, BLOCK), Ok(3 * BLOCK));
    assert_eq!(volume.fs.seek_data(&handle, 5 * BLOCK), Ok(302 * BLOCK), "a hole stays one");
    assert_eq!(volume.fs.attributes(handle.inode()).unwrap().blocks, taken);

    change(collapse, 4 * BLOCK, 299).unwrap();
    model.drain(4 * BLOCK as usize..303 * BLOCK as usize);
    assert!(volume.contents(&handle) == model);
    volume.settle_and_check();
    let volume = volume.remount();
    let handle = volume.open(volume.find(ROOT, "f").unwrap());
    assert!(volume.contents(&handle) == model, "after a mount too");
    let grown = model.len() as u64 + 5;
    resize(&volume, handle.inode(), grown);
    model.resize(grown as usize, 0);
    assert!(volume.contents(&handle) == model, "what was behind the end is not seen again");
    volume.settle_and_check();
}

#[test]
fn ranges_that_cannot_be_collapsed_or_inserted_are_refused() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    volume.write(&handle, 0, &pattern(1, 3 * BLOCK as usize + 5));
    let change = |mode, at, length| volume.fs.allocate(&handle, mode, at, length);
    for mode in [FallocateMode::CollapseRange, FallocateMode::InsertRange] {
        assert_eq!(change(mode, 1, BLOCK), Err(FsError::Invalid));
        assert_eq!(change(mode, 0, 512), Err(FsError::Invalid));
        assert_eq!(change(mode, 4 * BLOCK, BLOCK), Err(FsError::Invalid), "beyond the end");
    }
    assert_eq!(change(FallocateMode::CollapseRange, 2 * BLOCK, 2 * BLOCK), Err(FsError::Invalid));
    let largest = (1 << 63) - BLOCK;
    assert_eq!(change(FallocateMode::InsertRange, 0, largest), Err(FsError::TooLarge));
    assert!(volume.contents(&handle) == pattern(1, 3 * BLOCK as usize + 5), "nothing has changed");
    // Inline contents end within the first block of this size, so there are no whole blocks.
    let small = volume.file(ROOT, "small");
    volume.write(&small, 0, b"in the record");
    assert_eq!(volume.fs.allocate(&small, FallocateMode::CollapseRange, 0, BLOCK), Err(FsError::Invalid));
    volume.fs.allocate(&small, FallocateMode::InsertRange, 0, BLOCK).unwrap();
    assert_eq!(&volume.contents(&small)[BLOCK as usize..], b"in the record");
    volume.settle_and_check();
}

#[test]
fn blocks_are_counted() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let sectors = || volume.fs.attributes(handle.inode()).unwrap().blocks;
    assert_eq!(sectors(), 0);
    volume.write(&handle, 0, b"short");
    assert_eq!(sectors(), 1, "contents in the record are contents");
    volume.write(&handle, 0, &pattern(1, 10 * BLOCK as usize));
    assert_eq!(sectors(), 80);
    volume.write(&handle, 5, &pattern(2, 100));
    assert_eq!(sectors(), 80, "an overwrite takes no more");
    volume.fs.allocate(&handle, FallocateMode::PunchHole, BLOCK, 2 * BLOCK).unwrap();
    assert_eq!(sectors(), 64);
    volume.settle();
    resize(&volume, handle.inode(), BLOCK);
    assert_eq!(sectors(), 8);
    resize(&volume, handle.inode(), 0);
    assert_eq!(sectors(), 0);
}

#[test]
fn writes_through_an_appending_handle_go_to_the_end() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let append = OpenFlags { append: true, ..READ_WRITE };
    let appending = volume.fs.open(&Caller::root(), handle.inode(), append).unwrap();
    volume.write(&handle, 0, b"one ");
    volume.write(&appending, 0, b"two ");
    volume.write(&appending, 100, b"three");
    assert_eq!(volume.contents(&handle), b"one two three");
}

#[test]
fn an_append_returns_the_place_of_its_data() {
    let volume = Volume::new();
    let file = volume.file(ROOT, "log");
    for (data, place) in [(pattern(1, 100), 0), (pattern(2, 9000), 100), (Vec::new(), 9100)] {
        assert_eq!(volume.fs.append(&file, &data), Ok((place, data.len())));
    }
    volume.write(&file, 10, b"x");
    assert_eq!(volume.fs.append(&file, b"end"), Ok((9100, 3)), "other writes do not matter");
    assert_eq!(volume.contents(&file)[9100..], *b"end");
    let reader = volume.fs.open(&Caller::root(), file.inode(), READ).unwrap();
    assert_eq!(volume.fs.append(&reader, b"no"), Err(FsError::BadHandle));
    volume.settle_and_check();
}

#[test]
fn handles_do_only_what_they_were_opened_for() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let root = Caller::root();
    let reader = volume.fs.open(&root, handle.inode(), READ).unwrap();
    assert_eq!(volume.fs.write(&reader, 0, b"x"), Err(FsError::BadHandle));
    let write_only = OpenFlags { read: false, ..READ_WRITE };
    let writer = volume.fs.open(&root, handle.inode(), write_only).unwrap();
    assert_eq!(volume.fs.read(&writer, 0, &mut [0]), Err(FsError::BadHandle));
    assert_eq!(volume.fs.open(&root, ROOT, READ_WRITE).map(|_| ()), Err(FsError::IsDirectory));
    let directory = volume.fs.open(&root, ROOT, READ).unwrap();
    assert_eq!(volume.fs.read(&directory, 0, &mut [0]), Err(FsError::IsDirectory));
    let nothing = volume.fs.read_directory(&reader, 0, &mut |_| true);
    assert_eq!(nothing, Err(FsError::NotDirectory));
}

/// Whether ranges of one file overlap was decided by the requested length and not by the length of the source:
/// copying "all" of the end of a file to its front was refused. And an error in the middle hid the bytes that had
/// been copied before it.
#[test]
fn a_copy_ends_where_the_source_does() {
    let volume = Volume::new();
    let file = volume.file(ROOT, "f");
    volume.write(&file, 0, &pattern(1, 10_000));
    assert_eq!(volume.fs.copy_range(&file, 9000, &file, 0, u64::MAX), Ok(1000));
    assert_eq!(volume.contents(&file)[..1000], pattern(1, 10_000)[9000..]);
    assert_eq!(volume.fs.copy_range(&file, 9000, &file, 10_000, u64::MAX), Ok(1000));
    assert_eq!(volume.fs.copy_range(&file, 9000, &file, 9500, 1000), Err(FsError::Invalid));
    assert_eq!(volume.fs.copy_range(&file, 9000, &file, 9500, 500), Ok(500));

    // The target can take the first piece and not the second.
    let source = volume.file(ROOT, "source");
    volume.write(&source, 0, &pattern(2, 3 << 20));
    let end = i64::MAX as u64;
    let copied = volume.fs.copy_range(&source, 0, &file, end - (3 << 19), 3 << 20);
    assert_eq!(copied, Ok(1 << 20));
    assert_eq!(volume.fs.copy_range(&source, 0, &file, end - (1 << 19), 3 << 20), Err(FsError::TooLarge));
}

#[test]
fn files_end_where_64_bits_do() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    assert_eq!(volume.fs.write(&handle, u64::MAX, b"x"), Err(FsError::TooLarge));
    assert_eq!(volume.fs.write(&handle, i64::MAX as u64, b"x"), Err(FsError::TooLarge));
    volume.write(&handle, 1 << 60, b"far");
    let mut bytes = [1; 5];
    assert_eq!(volume.fs.read(&handle, (1 << 60) - 2, &mut bytes), Ok(5));
    assert_eq!(&bytes, b"\0\0far");
    assert_eq!(volume.fs.read(&handle, u64::MAX, &mut bytes), Ok(0));
    volume.settle_and_check();
}

#[test]
fn ranges_are_copied_between_files() {
    let volume = Volume::new();
    let (from, to) = (volume.file(ROOT, "from"), volume.file(ROOT, "to"));
    let data = pattern(3, 3_000_000);
    volume.write(&from, 0, &data);
    assert_eq!(volume.fs.copy_range(&from, 1000, &to, 5, u64::MAX / 2), Ok(2_999_000));
    assert!(volume.contents(&to)[5..] == data[1000..]);
    assert_eq!(volume.fs.copy_range(&from, 0, &from, 10, 20), Err(FsError::Invalid));
    assert_eq!(volume.fs.copy_range(&from, 0, &from, 3_000_000, 10), Ok(10));
    assert_eq!(volume.fs.copy_range(&from, 4_000_000, &to, 0, 10), Ok(0));
}

/// A copy of gigabytes that could not share blocks was one request: for minutes the program could not be killed, and
/// no other program could use the file.
#[test]
fn a_long_copy_returns_in_between() {
    let volume = Volume::on(Spec::new(4096, 60, 512));
    let (from, to) = (volume.file(ROOT, "from"), volume.file(ROOT, "to"));
    let size = 65 << 20;
    volume.write(&from, size - 1, b"x");
    // At another offset within its block nothing can be shared.
    assert_eq!(volume.fs.copy_range(&from, 1, &to, 0, size), Ok(64 << 20));
    let rest = size - 1 - (64 << 20);
    assert_eq!(volume.fs.copy_range(&from, 1 + (64 << 20), &to, 64 << 20, size), Ok(rest));
    assert_eq!(volume.fs.attributes(to.inode()).unwrap().size, size - 1);
}

#[test]
fn times_come_from_the_clock_and_reading_changes_none() {
    let volume = Volume::new();
    let shown = |inode| volume.fs.attributes(inode).unwrap();
    let born = shown(ROOT).modified;
    volume.clock.advance(1_000);
    let handle = volume.file(ROOT, "f");
    let made = shown(handle.inode());
    assert_eq!([made.accessed, made.modified, made.changed, made.born], [rt::Timestamp(born.0 + 1_000); 4]);
    assert_eq!(shown(ROOT).modified, made.modified);
    volume.clock.advance(1_000);
    volume.write(&handle, 0, b"x");
    let written = shown(handle.inode());
    assert_eq!((written.modified.0, written.changed.0), (made.modified.0 + 1_000, made.changed.0 + 1_000));
    volume.clock.advance(1_000);
    volume.contents(&handle);
    assert_eq!(shown(handle.inode()), written);
    let changes = Changes { permissions: Some(0o600), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), handle.inode(), &changes).unwrap();
    let changed = shown(handle.inode());
    assert_eq!((changed.modified, changed.changed.0), (written.modified, written.changed.0 + 1_000));
    // Setting the present size modifies nothing. Opening with truncation does, even if the file is empty.
    for (size, modified) in
        [(1, written.modified.0), (0, written.modified.0 + 3_000), (0, written.modified.0 + 3_000)]
    {
        volume.clock.advance(1_000);
        let changes = Changes { size: Some(size), ..Changes::default() };
        volume.fs.set_attributes(&Caller::root(), handle.inode(), &changes).unwrap();
        assert_eq!(shown(handle.inode()).modified.0, modified);
    }
    volume.fs.open(&Caller::root(), handle.inode(), fs::OpenFlags { truncate: true, ..READ_WRITE }).unwrap();
    assert_eq!(shown(handle.inode()).modified.0, written.modified.0 + 4_000);
}

/// The clock is corrected to a time before all files were created, and to one before 1970. The times of files come
/// from the clock. Nothing else uses it.
#[test]
fn a_clock_that_goes_backwards_changes_nothing_but_times() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    volume.write(&handle, 0, b"before");
    for time in [500_000_000, -1_500_000_000, i64::MIN + 1, i64::MAX] {
        volume.clock.set(rt::Timestamp(time));
        volume.write(&handle, 0, &pattern(1, 10_000));
        let made = volume.file(ROOT, &format!("at {time}"));
        let shown = |inode| volume.fs.attributes(inode).unwrap();
        assert_eq!(shown(handle.inode()).modified, rt::Timestamp(time));
        assert_eq!(shown(made.inode()).born, rt::Timestamp(time));
        volume.fs.fsync(&handle, false).unwrap();
    }
    // Whether something is due is decided by a clock that never goes back.
    volume.clock.set(rt::Timestamp(-7));
    volume.write(&handle, 0, &pattern(2, 10_000));
    let before = volume.fs.store().durable_lsn();
    volume.clock.advance(6_000_000_000);
    volume.clock.set(rt::Timestamp(-8));
    volume.settle();
    assert!(volume.fs.store().durable_lsn() > before, "the commit interval has passed");
    drop(handle);
    let volume = volume.kill();
    let handle = volume.open(volume.find(ROOT, "f").unwrap());
    assert_eq!(volume.fs.attributes(handle.inode()).unwrap().modified, rt::Timestamp(-7));
    assert!(volume.contents(&handle) == pattern(2, 10_000));
    volume.settle_and_check();
}

/// The last block of the largest file is one byte short, and its end is the first offset with the sign bit set:
/// rounding up to it must not overflow. Files used to end 64 KiB before that, and the last bytes that other file
/// systems accept were refused.
#[test]
fn the_largest_file_has_a_first_and_a_last_byte_and_a_hole_between_them() {
    const LARGEST: u64 = i64::MAX as u64;
    for block in [512, 4096, 65536] {
        let volume = Volume::on(Spec::new(block, 40, (1 << 20) / block));
        let handle = volume.file(ROOT, "sparse");
        volume.write(&handle, LARGEST - 1, b"z");
        volume.write(&handle, 0, b"a");
        assert_eq!(volume.fs.write(&handle, LARGEST, b"!"), Err(FsError::TooLarge));
        let volume = volume.remount();
        let handle = volume.open(volume.find(ROOT, "sparse").unwrap());
        assert_eq!(volume.fs.attributes(handle.inode()).unwrap().size, LARGEST);
        let last = LARGEST - LARGEST % u64::from(block);
        assert_eq!(volume.fs.seek_hole(&handle, 0).unwrap(), u64::from(block));
        assert_eq!(volume.fs.seek_data(&handle, u64::from(block)).unwrap(), last);
        assert_eq!(volume.fs.seek_hole(&handle, last).unwrap(), LARGEST);
        let mut end = [0xee; 3];
        assert_eq!(volume.fs.read(&handle, LARGEST - 2, &mut end).unwrap(), 2);
        assert_eq!(end, [0, b'z', 0xee]);
        resize(&volume, handle.inode(), LARGEST - 1);
        resize(&volume, handle.inode(), LARGEST);
        assert_eq!(volume.fs.read(&handle, LARGEST - 1, &mut end).unwrap(), 1);
        assert_eq!(end[0], 0);
        volume.fs.allocate(&handle, FallocateMode::PunchHole, 1, LARGEST - 1).unwrap();
        assert_eq!(volume.fs.seek_hole(&handle, 0).unwrap(), u64::from(block));
        assert_eq!(volume.fs.seek_data(&handle, u64::from(block)), Err(FsError::NoData));
        volume.settle_and_check();
    }
}

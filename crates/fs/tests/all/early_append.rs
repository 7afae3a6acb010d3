//! Concurrent writers of one file.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use emulated::Spec;
use fs::{Changes, FallocateMode, Fs, Handle, InodeNo, OpenFlags};

use crate::support::{READ_WRITE, Volume, pattern};
use crate::watched::{Watched, watched_volume};
use zone::Cause;

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: usize = 4096;
/// Long enough for any operation on an idle volume, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A volume whose device is watched, and a file on it.
struct Bench {
    watched: Arc<Watched>,
    volume: Volume,
    file: Arc<Handle>,
}

impl Bench {
    fn new(contents: &[u8]) -> Bench {
        let (watched, volume) = watched_volume(Spec::new(4096, 40, 256), 4 << 20);
        let file = Arc::new(volume.file(ROOT, "file"));
        volume.write(&file, 0, contents);
        Bench { watched, volume, file }
    }

    /// Writes, and runs an operation on another thread while the data is on its way to the device.
    fn write_while(&self, (offset, data): (u64, &[u8]), other: impl FnOnce(&Fs, &Handle) + Send + 'static) {
        let (fs, file) = (self.volume.fs.clone(), self.file.clone());
        let (done, is_done) = mpsc::channel();
        let hook = move || {
            rt::thread::spawn("other", move || {
                other(&fs, &file);
                drop((fs, file));
                done.send(()).unwrap();
            })
            .unwrap();
            is_done.recv_timeout(PATIENCE).expect("no operation waits for data on its way to the device");
        };
        *self.watched.at_next_append.lock() = Some(Box::new(hook));
        self.volume.write(&self.file, offset, data);
        assert!(self.watched.at_next_append.lock().is_none(), "nothing was appended");
    }

    /// Blocks of user writes that were appended to zones.
    fn blocks_appended(&self) -> usize {
        self.volume.fs.store().traffic().bytes_written(Cause::Data) as usize / BLOCK
    }

    /// Checks the contents of the file before and after a mount and after GC. The volume is sound each time.
    fn holds(self, expected: &[u8]) {
        let inode = self.file.inode();
        assert!(self.volume.contents(&self.file) == expected, "as written");
        self.volume.settle_and_check();
        drop(self.file);
        let volume = self.volume.remount();
        while volume.fs.extents().collector().manual_gc().unwrap() {}
        assert!(volume.contents(&volume.open(inode)) == expected, "after a mount");
        volume.settle_and_check();
    }
}

fn write_all(fs: &Fs, file: &Handle, offset: usize, data: &[u8]) {
    assert_eq!(fs.write(file, offset as u64, data), Ok(data.len()));
}

fn set_size(fs: &Fs, file: &Handle, size: u64) {
    let changes = Changes { size: Some(size), ..Changes::default() };
    fs.set_attributes(&fs::Caller::root(), file.inode(), &changes).unwrap();
}

#[test]
fn a_writer_does_not_wait_for_the_data_of_another() {
    let mut expected = pattern(1, 8 * BLOCK);
    let bench = Bench::new(&expected);
    let (one, other) = (pattern(2, 2 * BLOCK), pattern(3, 3 * BLOCK));
    let theirs = other.clone();
    bench.write_while((BLOCK as u64, &one), move |fs, file| {
        write_all(fs, file, 2 * BLOCK, &theirs);
        let mut found = vec![0; 3 * BLOCK];
        assert_eq!(fs.read(file, 2 * BLOCK as u64, &mut found), Ok(found.len()));
        assert!(found == theirs, "nothing is seen of what is not written yet");
    });
    expected[2 * BLOCK..5 * BLOCK].copy_from_slice(&other);
    expected[BLOCK..3 * BLOCK].copy_from_slice(&one);
    bench.holds(&expected);
}

#[test]
fn a_concurrent_write_behind_the_end_in_the_same_block_stays() {
    let mut expected = pattern(1, 3 * BLOCK + 100);
    let bench = Bench::new(&expected);
    let (one, other) = (pattern(2, BLOCK + 904), pattern(3, 1500));
    let theirs = other.clone();
    bench.write_while((3 * BLOCK as u64, &one), move |fs, file| {
        write_all(fs, file, 4 * BLOCK + 1000, &theirs);
    });
    expected.resize(4 * BLOCK + 2500, 0);
    expected[4 * BLOCK + 1000..].copy_from_slice(&other);
    expected[3 * BLOCK..4 * BLOCK + 904].copy_from_slice(&one);
    bench.holds(&expected);
}

#[test]
fn a_file_that_was_cut_meanwhile_has_zeros_in_between() {
    let bench = Bench::new(&pattern(1, 8 * BLOCK));
    let one = pattern(2, 2 * BLOCK);
    bench.write_while((5 * BLOCK as u64, &one), |fs, file| set_size(fs, file, BLOCK as u64 + 50));
    let mut expected = pattern(1, BLOCK + 50);
    expected.resize(5 * BLOCK, 0);
    expected.extend(&one);
    bench.holds(&expected);
}

#[test]
fn a_file_that_was_emptied_and_has_small_contents_meanwhile() {
    let bench = Bench::new(&pattern(1, 8 * BLOCK));
    let one = pattern(2, 2 * BLOCK);
    bench.write_while((BLOCK as u64, &one), |fs, file| {
        set_size(fs, file, 0);
        write_all(fs, file, 0, b"small");
    });
    let mut expected = b"small".to_vec();
    expected.resize(BLOCK, 0);
    expected.extend(&one);
    bench.holds(&expected);
}

/// Writes into a copy of the contents in memory.
fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(at + data.len()), 0);
    bytes[at..at + data.len()].copy_from_slice(data);
}

/// The contents of a small file are in its record until the first large write.
#[test]
fn small_contents_that_are_changed_meanwhile() {
    type Other = (fn(&Fs, &Handle), fn(&mut Vec<u8>));
    let others: [Other; 7] = [
        (|_, _| {}, |_| {}),
        (|fs, file| set_size(fs, file, 3), |bytes| bytes.resize(3, 0)),
        (|fs, file| set_size(fs, file, 0), |bytes| bytes.clear()),
        (|fs, file| set_size(fs, file, 3 * BLOCK as u64 + 7), |bytes| bytes.resize(3 * BLOCK + 7, 0)),
        (|fs, file| write_all(fs, file, 5, b"other"), |bytes| put(bytes, 5, b"other")),
        (
            |fs, file| write_all(fs, file, 2 * BLOCK + 9, &pattern(4, BLOCK)),
            |bytes| put(bytes, 2 * BLOCK + 9, &pattern(4, BLOCK)),
        ),
        (
            |fs, file| write_all(fs, file, 0, &pattern(5, 2 * BLOCK + 77)),
            |bytes| put(bytes, 0, &pattern(5, 2 * BLOCK + 77)),
        ),
    ];
    for small in [&b""[..], b"contents in the record"] {
        for (at, length) in [(0, BLOCK), (0, 2 * BLOCK + 50), (BLOCK, 2 * BLOCK)] {
            for (number, (other, model)) in others.into_iter().enumerate() {
                let mut expected = small.to_vec();
                let bench = Bench::new(small);
                let one = pattern(2, length);
                bench.write_while((at as u64, &one), other);
                let is_used = bench.blocks_appended() == length.div_ceil(BLOCK);
                assert!(is_used || number > 0, "the early append is used");
                model(&mut expected);
                put(&mut expected, at, &one);
                bench.holds(&expected);
            }
        }
    }
}

/// With small blocks, contents in the record can be longer than a block.
#[test]
fn small_contents_of_more_than_a_block_stay() {
    for block in [512, 1024] {
        for small in [block - 1, block + 100, 1000] {
            for at in [0, 512, 1024, 2048] {
                for length in [block, 1024, 3000] {
                    let volume = Volume::on(Spec::new(block as u32, 40, 2048));
                    let file = volume.file(ROOT, "file");
                    let (mut expected, one) = (pattern(1, small), pattern(2, length));
                    volume.write(&file, 0, &expected);
                    volume.write(&file, at as u64, &one);
                    put(&mut expected, at, &one);
                    assert!(volume.contents(&file) == expected, "{small}, then {length} at {at}, by {block}");
                    volume.settle_and_check();
                }
            }
        }
    }
}

/// A piece of a file need not begin at a multiple of the largest piece.
#[test]
fn a_large_write_is_appended_early_wherever_it_begins() {
    const LARGE: usize = 256 * BLOCK;
    let mut expected = pattern(1, 2 * LARGE + 100);
    let bench = Bench::new(&expected);
    let one = pattern(2, LARGE);
    let before = bench.blocks_appended();
    bench.write_while((3 * BLOCK as u64, &one), |fs, file| set_size(fs, file, 2 * LARGE as u64 + 50));
    assert_eq!(bench.blocks_appended() - before, 256, "the early append is used");
    expected.truncate(2 * LARGE + 50);
    put(&mut expected, 3 * BLOCK, &one);
    bench.holds(&expected);
}

#[test]
fn ranges_that_are_collapsed_and_inserted_meanwhile() {
    let bytes = pattern(1, 12 * BLOCK);
    let one = pattern(2, 2 * BLOCK);
    for mode in [FallocateMode::CollapseRange, FallocateMode::InsertRange, FallocateMode::PunchHole] {
        let bench = Bench::new(&bytes);
        bench.write_while((4 * BLOCK as u64, &one), move |fs, file| {
            fs.allocate(file, mode, BLOCK as u64, 4 * BLOCK as u64).unwrap();
        });
        let range = BLOCK..5 * BLOCK;
        let mut expected = bytes.clone();
        match mode {
            FallocateMode::CollapseRange => drop(expected.drain(range)),
            FallocateMode::InsertRange => drop(expected.splice(BLOCK..BLOCK, vec![0; 4 * BLOCK])),
            _ => expected[range].fill(0),
        }
        expected[4 * BLOCK..6 * BLOCK].copy_from_slice(&one);
        bench.holds(&expected);
    }
}

#[test]
fn a_clone_that_was_made_meanwhile_has_what_was_there_before() {
    let bytes = pattern(1, 16 * BLOCK);
    let bench = Bench::new(&bytes);
    let copy = Arc::new(bench.volume.file(ROOT, "copy"));
    let (one, to) = (pattern(2, 3 * BLOCK), copy.clone());
    bench.write_while((2 * BLOCK as u64, &one), move |fs, file| fs.clone_range(file, 0, &to, 0, 0).unwrap());
    assert!(bench.volume.contents(&copy) == bytes, "the copy is of before");
    drop(copy);
    let mut expected = bytes;
    expected[2 * BLOCK..5 * BLOCK].copy_from_slice(&one);
    bench.holds(&expected);
}

#[test]
fn a_file_without_a_name_goes_with_its_last_handle() {
    let bench = Bench::new(&pattern(1, 8 * BLOCK));
    bench.write_while((0, &pattern(2, 2 * BLOCK)), |fs, _| {
        fs.unlink(&fs::Caller::root(), ROOT, b"file").unwrap();
    });
    let Bench { volume, file, .. } = bench;
    assert!(volume.contents(&file).starts_with(&pattern(2, 2 * BLOCK)));
    drop(file);
    volume.settle_and_check();
    assert_eq!(volume.fs.extents().budget().space().live, 0, "nothing is left");
}

/// Each block is always completely that of one writer.
#[test]
fn many_writers_and_readers_of_the_same_blocks() {
    const BLOCKS: u64 = 24;
    let block_of = |writer: u8, round: u8| {
        let mut block = pattern(writer, BLOCK);
        block[..2].copy_from_slice(&[writer, round]);
        block
    };
    let first: Vec<u8> = (0..BLOCKS).flat_map(|_| block_of(0, 0)).collect();
    let bench = Bench::new(&first);
    let is_whole = |block: &[u8]| block == block_of(block[0], block[1]);
    let work = |writer: u8| {
        let fs = &bench.volume.fs;
        let mut rng = rt::random::Rng::with_seed(u64::from(writer));
        let mut found = vec![0; 2 * BLOCK];
        for round in 0..120 {
            let at = rng.u64(..BLOCKS - 1) * BLOCK as u64;
            write_all(
                fs,
                &bench.file,
                at as usize,
                &[block_of(writer, round), block_of(writer, round)].concat(),
            );
            assert_eq!(fs.read(&bench.file, rng.u64(..BLOCKS - 1) * BLOCK as u64, &mut found), Ok(2 * BLOCK));
            assert!(found.chunks(BLOCK).all(is_whole), "writer {writer}, round {round}");
        }
    };
    std::thread::scope(|scope| (1..=6).for_each(|writer| drop(scope.spawn(move || work(writer)))));
    let contents = bench.volume.contents(&bench.file);
    assert!(contents.chunks(BLOCK).all(is_whole));
    bench.holds(&contents);
}

/// A handle that appends has its data only at the end.
#[test]
fn appending_writers_do_not_overlap() {
    let bench = Bench::new(&pattern(0, 2 * BLOCK));
    let append = |writer: u8| {
        let flags = OpenFlags { append: true, ..READ_WRITE };
        let inode = bench.file.inode();
        let handle = bench.volume.fs.open(&fs::Caller::root(), inode, flags).unwrap();
        (0..50).for_each(|_| write_all(&bench.volume.fs, &handle, 0, &pattern(writer, BLOCK)));
    };
    std::thread::scope(|scope| (1..=4).for_each(|writer| drop(scope.spawn(move || append(writer)))));
    let contents = bench.volume.contents(&bench.file);
    assert_eq!(contents.len(), 202 * BLOCK);
    for writer in 1..=4 {
        let theirs = pattern(writer, BLOCK);
        assert_eq!(contents.chunks(BLOCK).filter(|block| **block == theirs).count(), 50);
    }
    bench.holds(&contents);
}

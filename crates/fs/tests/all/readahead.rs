//! Readahead of data.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use emulated::Spec;
use fs::{BackgroundTask, Handle, InodeNo};
use tree::Step;

use crate::support::{Volume, pattern};
use crate::watched::{Watched, watched_volume};

const ROOT: InodeNo = InodeNo::ROOT;
const MIB: usize = 1 << 20;

fn counts(volume: &Volume) -> extent::ReadaheadCounts {
    volume.fs.extents().maps().readahead().counts()
}

/// A file of this many MiB on a watched device.
fn bench(mib: usize) -> (Arc<Watched>, Volume, Handle, Vec<u8>) {
    let (watched, volume) = watched_volume(Spec::new(4096, 64, 1024), 4 << 20);
    let file = volume.file(ROOT, "file");
    let bytes = pattern(1, mib * MIB);
    volume.write(&file, 0, &bytes);
    volume.fs.sync().unwrap();
    (watched, volume, file, bytes)
}

fn read(volume: &Volume, file: &Handle, offset: usize, length: usize) -> Vec<u8> {
    let mut into = vec![0xee; length];
    let count = volume.fs.read(file, offset as u64, &mut into).unwrap();
    into.truncate(count);
    into
}

fn read_ahead(volume: &Volume) {
    while volume.fs.step_task(BackgroundTask::Prefetch).unwrap() == Step::Worked {}
}

#[test]
fn a_reader_in_order_finds_its_data_in_memory() {
    for piece in [384 << 10, 256 << 10, 128 << 10, 4096, 5000] {
        let (watched, volume, file, bytes) = bench(8);
        let mut at = 0;
        while at < bytes.len() {
            let before = watched.reads.load(Ordering::SeqCst);
            assert!(read(&volume, &file, at, piece) == bytes[at..bytes.len().min(at + piece)], "at {at}");
            let reads = watched.reads.load(Ordering::SeqCst) - before;
            // A block that a read takes in part is gone with its piece.
            let is_expected = at < 2 * piece || reads == 0 || piece % 4096 != 0 && reads == 1;
            assert!(is_expected, "{reads} reads of {piece} bytes at {at} waited for the device");
            at += piece;
            read_ahead(&volume);
        }
        let counts = counts(&volume);
        assert!(counts.bytes_read <= bytes.len() as u64, "nothing behind the end, nothing twice: {counts:?}");
        assert!(counts.bytes_used >= (bytes.len() - 3 * piece) as u64, "{counts:?}");
        volume.settle_and_check();
    }
}

#[test]
fn reads_here_and_there_request_nothing() {
    let (_, volume, file, bytes) = bench(8);
    for number in [5, 1, 7, 3, 0, 6, 2, 4_usize] {
        let at = number * MIB;
        assert!(read(&volume, &file, at, 16 << 10) == bytes[at..at + (16 << 10)]);
        read_ahead(&volume);
    }
    assert_eq!(counts(&volume).bytes_read, 0);
}

/// What was read ahead is the contents of a place on the device, and the file has moved on.
#[test]
fn changes_after_a_readahead_are_seen() {
    let (_, volume, file, mut bytes) = bench(8);
    for at in [0, MIB / 4] {
        read(&volume, &file, at, MIB / 4);
    }
    read_ahead(&volume);
    assert_eq!(counts(&volume).bytes_read, 2 * MIB as u64);
    let new = pattern(9, 3 * 4096 + 77);
    volume.write(&file, (MIB + 5000) as u64, &new);
    bytes[MIB + 5000..][..new.len()].copy_from_slice(&new);
    let changes = fs::Changes { size: Some(2 * MIB as u64 + 10), ..fs::Changes::default() };
    volume.fs.set_attributes(&fs::Caller::root(), file.inode(), &changes).unwrap();
    let changes = fs::Changes { size: Some(4 * MIB as u64), ..fs::Changes::default() };
    volume.fs.set_attributes(&fs::Caller::root(), file.inode(), &changes).unwrap();
    bytes[2 * MIB + 10..].fill(0);
    bytes.truncate(4 * MIB);
    assert!(read(&volume, &file, MIB / 2, 3 * MIB) == bytes[MIB / 2..][..3 * MIB]);
    let used = counts(&volume).bytes_used;
    assert!(MIB as u64 <= used && used < 2 * MIB as u64, "what has not changed is used: {used}");
    volume.settle_and_check();
}

/// The zones are emptied, reset and written again while their old contents are in memory.
#[test]
fn zones_that_are_reset_after_a_readahead() {
    let (_, volume, file, mut bytes) = bench(8);
    for round in 0..20 {
        let reader = volume.open(file.inode());
        for at in [0, MIB / 4] {
            assert!(read(&volume, &reader, at, MIB / 4) == bytes[at..at + MIB / 4], "round {round}");
        }
        let before = counts(&volume);
        read_ahead(&volume);
        assert_eq!(counts(&volume).bytes_read, before.bytes_read + 2 * MIB as u64);
        bytes = pattern(round + 2, bytes.len());
        volume.write(&file, 0, &bytes);
        volume.fs.sync().unwrap();
        while volume.fs.extents().collector().manual_gc().unwrap() {}
        while volume.fs.step_task(BackgroundTask::Resets).unwrap() == Step::Worked {}
        // Written again, in part to the zones of before.
        bytes = pattern(round + 30, bytes.len());
        volume.write(&file, 0, &bytes);
        assert!(read(&volume, &reader, MIB / 2, 2 * MIB) == bytes[MIB / 2..][..2 * MIB], "round {round}");
        assert_eq!(counts(&volume).bytes_used, before.bytes_used, "what was read ahead is gone");
    }
    volume.settle_and_check();
}

/// A wrong bit in what was read ahead is no damage of the file.
#[test]
fn a_wrong_readahead_is_read_again() {
    let (watched, volume, file, bytes) = bench(4);
    for at in [0, MIB / 4] {
        read(&volume, &file, at, MIB / 4);
    }
    watched.flips_next_read.store(true, Ordering::SeqCst);
    read_ahead(&volume);
    assert!(!watched.flips_next_read.load(Ordering::SeqCst), "it has read");
    assert!(read(&volume, &file, MIB / 2, 2 * MIB) == bytes[MIB / 2..][..2 * MIB]);
    assert_eq!(counts(&volume).bytes_used, 2 * MIB as u64);
}

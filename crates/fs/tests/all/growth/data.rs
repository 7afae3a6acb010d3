//! Extents, holes, inline blocks, and blocks that files share.

use fs::{Caller, Changes, DamagedCopies, FallocateMode, Handle, InodeNo, OpenFlags, ScrubAt};

use super::{Meter, compare, kill, mount, name, volume};
use crate::support::{READ_WRITE, Volume};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: u64 = 4096;

fn check_data_and_scrub(meter: &mut Meter, volume: &Volume) {
    meter.measure("check", || assert_eq!(volume.fs.check().unwrap(), []));
    meter.measure("check data", || assert_eq!(extent::check_data(volume.fs.extents(), true).unwrap(), []));
    meter.measure("scrub", || {
        let mut at = ScrubAt::start();
        while at != ScrubAt::End {
            let scrubbed = volume.fs.scrub_step(at, 1 << 20, DamagedCopies::Report).unwrap();
            assert!(scrubbed.findings.is_empty());
            at = scrubbed.next;
        }
    });
}

fn salvage_contents(meter: &mut Meter, volume: Volume) -> Volume {
    volume.fs.unmount().unwrap();
    let Volume { device, clock, fs } = volume;
    drop(fs);
    device.reopen();
    let salvage = salvage::Salvage::open(device.clone(), &mut |_, _| ()).unwrap();
    meter.measure("salvage", || {
        let mut each = |item: &salvage::Item, _: &salvage::Paths| {
            assert_eq!(salvage.contents(item, &mut |_, _| ())?, []);
            Ok::<(), fs::FsError>(())
        };
        assert_eq!(salvage.walk(&mut each).unwrap().0, []);
    });
    drop(salvage);
    device.reopen();
    let fs = mount(&device, &clock);
    Volume { device, clock, fs }
}

/// In pieces: memory for all of it at once would cost more than the reading.
fn read(volume: &Volume, file: &Handle) -> u64 {
    let (mut at, mut piece) = (0, vec![0; 1 << 20]);
    loop {
        match volume.fs.read(file, at, &mut piece).unwrap() {
            0 => return at,
            count => at += count as u64,
        }
    }
}

/// From data to hole to data, to the end.
fn seek_through(volume: &Volume, file: &Handle) -> u64 {
    let (mut at, mut pieces) = (0, 0);
    while let Ok(data) = volume.fs.seek_data(file, at) {
        at = volume.fs.seek_hole(file, data).unwrap();
        pieces += 1;
    }
    pieces
}

/// Blocks of two files in turn, so that each is an extent of its own.
#[test]
fn extents_of_a_file() {
    compare("extents", 1500, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let (file, other) = (volume.file(ROOT, "f"), volume.file(ROOT, "other"));
        let block = vec![7; BLOCK as usize];
        meter.measure("write, backwards", || {
            for n in (0..number).rev() {
                volume.write(&file, n * BLOCK, &block);
                volume.write(&other, n * BLOCK, &block);
            }
        });
        meter.measure("read", || assert_eq!(read(&volume, &file), number * BLOCK));
        meter.measure("overwrite", || (0..number).for_each(|n| volume.write(&file, n * BLOCK, &block)));
        meter.measure("layout", || std::hint::black_box(volume.fs.layout(other.inode()).unwrap()));
        let (file, other) = (file.inode(), other.inode());
        volume.fs.sync().unwrap();
        let volume = meter.measure("recovery after a kill", || kill(volume));
        check_data_and_scrub(&mut meter, &volume);
        let volume = salvage_contents(&mut meter, volume);
        let (file, other) = (volume.open(file), volume.open(other));
        meter.measure("defragment", || {
            let mut from = Some(0);
            while let Some(at) = from {
                from = volume.fs.defragment(other.inode(), at).unwrap().next;
            }
        });
        meter.measure("truncate", || {
            let to = |size| Changes { size: Some(size), ..Changes::default() };
            for n in (0..number).rev() {
                volume.fs.set_attributes(&Caller::root(), file.inode(), &to(n * BLOCK)).unwrap();
            }
        });
        meter.measure("collect garbage", || while volume.fs.collect_garbage().unwrap() {});
        meter.measure("unlink and settle", || {
            drop(other);
            volume.unlink(ROOT, "other").unwrap();
            volume.settle();
        });
        meter
    });
}

#[test]
fn holes_of_a_file() {
    compare("holes", 1500, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        meter.measure("write between holes", || {
            (0..number).for_each(|n| volume.write(&file, 2 * n * BLOCK, &[7; BLOCK as usize]));
        });
        meter.measure("seek", || assert_eq!(seek_through(&volume, &file), number));
        meter.measure("keep space in the holes", || {
            for n in 0..number {
                let mode = FallocateMode::Allocate { keep_size: true };
                volume.fs.allocate(&file, mode, (2 * n + 1) * BLOCK, BLOCK).unwrap();
            }
        });
        meter.measure("write a part of each block", || {
            (0..number).for_each(|n| volume.write(&file, 2 * n * BLOCK + 9, b"a few bytes"));
        });
        check_data_and_scrub(&mut meter, &volume);
        let inode = file.inode();
        drop(file);
        let volume = salvage_contents(&mut meter, volume);
        let file = volume.open(inode);
        meter.measure("punch", || {
            for n in 0..number {
                volume.fs.allocate(&file, FallocateMode::PunchHole, 2 * n * BLOCK, BLOCK).unwrap();
            }
        });
        meter
    });
}

/// Short writes at the ends of a sparse file are inline blocks until they are moved.
#[test]
fn inline_blocks_of_a_file() {
    compare("inline blocks", 1500, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let flags = OpenFlags { sync: true, ..READ_WRITE };
        let made = volume.fs.create(&Caller::root(), ROOT, b"f", 0o644, flags, true);
        let file = made.unwrap().1;
        meter.measure("write a few bytes, durably", || {
            (0..number).for_each(|n| volume.write(&file, 3 * n * BLOCK, b"a few bytes"));
        });
        meter.measure("seek", || assert_eq!(seek_through(&volume, &file), number));
        check_data_and_scrub(&mut meter, &volume);
        let inode = file.inode();
        drop(file);
        let volume = salvage_contents(&mut meter, volume);
        let file = volume.open(inode);
        meter.measure("read", || read(&volume, &file));
        drop(file);
        meter.measure("unlink and settle", || {
            volume.unlink(ROOT, "f").unwrap();
            volume.settle();
        });
        meter
    });
}

fn clone(volume: &Volume, from: &Handle, to: &Handle, at: u64) {
    volume.fs.clone_range(from, 0, to, at, BLOCK).unwrap();
}

#[test]
fn files_that_share_a_block() {
    compare("files that share a block", 1500, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        volume.write(&file, 0, &[7; BLOCK as usize]);
        meter.measure("clone", || {
            for n in 0..number {
                clone(&volume, &file, &volume.file(ROOT, &name(n)), 0);
            }
        });
        check_data_and_scrub(&mut meter, &volume);
        drop(file);
        let volume = salvage_contents(&mut meter, volume);
        volume.fs.sync().unwrap();
        let volume = meter.measure("recovery after a kill", || kill(volume));
        meter.measure("overwrite", || {
            for n in 0..number / 2 {
                let copy = volume.open(volume.find(ROOT, &name(n)).unwrap());
                volume.write(&copy, 0, &[8; BLOCK as usize]);
            }
        });
        meter.measure("unlink and settle", || {
            (0..number).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap());
            volume.settle();
        });
        meter.measure("check what is left", || assert_eq!(volume.fs.check().unwrap(), []));
        meter
    });
}

#[test]
fn a_block_that_is_shared_many_times_in_one_file() {
    compare("a block shared in one file", 1500, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let (file, to) = (volume.file(ROOT, "f"), volume.file(ROOT, "to"));
        volume.write(&file, 0, &[7; BLOCK as usize]);
        meter.measure("clone", || (0..number).for_each(|n| clone(&volume, &file, &to, n * BLOCK)));
        meter.measure("read", || assert_eq!(read(&volume, &to), number * BLOCK));
        check_data_and_scrub(&mut meter, &volume);
        let inode = to.inode();
        drop((file, to));
        let volume = salvage_contents(&mut meter, volume);
        let to = volume.open(inode);
        meter.measure("overwrite", || {
            (0..number / 2).for_each(|n| volume.write(&to, 2 * n * BLOCK, &[8; BLOCK as usize]));
        });
        drop(to);
        meter.measure("unlink and settle", || {
            volume.unlink(ROOT, "to").unwrap();
            volume.settle();
        });
        meter
    });
}

/// Each block of one file is shared with a file of its own.
#[test]
fn shared_blocks_of_one_file() {
    compare("shared blocks of one file", 1000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        volume.write(&file, 0, &vec![7; (number * BLOCK) as usize]);
        meter.measure("clone", || {
            for n in 0..number {
                let copy = volume.file(ROOT, &name(n));
                volume.fs.clone_range(&file, n * BLOCK, &copy, 0, BLOCK).unwrap();
            }
        });
        check_data_and_scrub(&mut meter, &volume);
        meter.measure("overwrite the source", || {
            (0..number).for_each(|n| volume.write(&file, n * BLOCK, &[9; BLOCK as usize]));
        });
        drop(file);
        meter.measure("unlink and settle", || {
            volume.unlink(ROOT, "f").unwrap();
            (0..number).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap());
            volume.settle();
        });
        meter
    });
}

/// A clone of a clone of a clone …
#[test]
fn generations_of_clones() {
    compare("generations of clones", 800, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let mut last = volume.file(ROOT, "f");
        volume.write(&last, 0, &[7; 8 * BLOCK as usize]);
        meter.measure("clone", || {
            for n in 0..number {
                let next = volume.file(ROOT, &name(n));
                volume.fs.clone_range(&last, 0, &next, 0, 0).unwrap();
                volume.write(&next, n % 8 * BLOCK, &[n as u8; BLOCK as usize]);
                last = next;
            }
        });
        meter.measure("check", || assert_eq!(volume.fs.check().unwrap(), []));
        meter.measure("unlink and settle", || {
            drop(last);
            volume.unlink(ROOT, "f").unwrap();
            (0..number).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap());
            volume.settle();
        });
        meter
    });
}

//! Writes that return before their data is appended.

use std::sync::Arc;

use emulated::{CommandKind, CrashPlan, Effect, Fault, Spec};
use fs::{BackgroundTask, Caller, Changes, Fs, FsError, Handle, InodeNo, OpenFlags, RenameFlags};
use rt::random::Rng;
use zone::Cause;

use crate::support::{READ_WRITE, Volume, mount, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: usize = 4096;

/// A volume that delays writes, and a durable file of these bytes on it.
fn volume_with(contents: &[u8]) -> (Volume, Handle) {
    let volume = Volume::new();
    volume.fs.delay_writes(8 << 20);
    let file = volume.file(ROOT, "file");
    volume.write(&file, 0, contents);
    volume.fs.sync().unwrap();
    (volume, file)
}

fn bytes_appended(fs: &Fs) -> u64 {
    fs.store().traffic().bytes_written(Cause::Data)
}

/// The volume as it is found after a loss of power now.
fn after_loss_of_power(volume: &Volume) -> Volume {
    let device = Arc::new(volume.device.image(&CrashPlan::LoseAll));
    let fs = mount(&device, &volume.clock, false);
    Volume { device, clock: volume.clock.clone(), fs }
}

fn contents_after_loss_of_power(volume: &Volume, name: &str) -> Vec<u8> {
    let found = after_loss_of_power(volume);
    found.settle_and_check();
    let inode = found.find(ROOT, name).unwrap();
    found.contents(&found.open(inode))
}

/// Overwrites every third block in any order, and some of them twice.
fn overwrite(volume: &Volume, file: &Handle, bytes: &mut [u8], seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut blocks: Vec<usize> = (0..bytes.len() / BLOCK).step_by(3).collect();
    blocks.extend(blocks.clone().iter().step_by(4));
    rng.shuffle(&mut blocks);
    for block in blocks {
        let (at, data) = (block * BLOCK, pattern(rng.u8(..), BLOCK));
        volume.write(file, at as u64, &data);
        bytes[at..at + BLOCK].copy_from_slice(&data);
    }
}

#[test]
fn many_small_writes_are_appended_together() {
    let mut expected = pattern(1, 100 * BLOCK);
    let (volume, file) = volume_with(&expected);
    let (before, commits) = (volume.device.commands(), volume.fs.store().stats().commits);
    overwrite(&volume, &file, &mut expected, 1);
    assert_eq!(volume.device.commands(), before, "nothing is written yet");
    assert!(volume.contents(&file) == expected, "they are read as if they were");
    assert_eq!(volume.device.commands() - before, 1, "one command appends all of them");
    assert_eq!(volume.fs.store().stats().commits - commits, 1, "and one transaction inserts them");
    volume.settle_and_check();
}

#[test]
fn a_background_task_writes_what_is_delayed() {
    let mut expected = pattern(1, 30 * BLOCK);
    let (volume, file) = volume_with(&expected);
    overwrite(&volume, &file, &mut expected, 2);
    let before = bytes_appended(&volume.fs);
    assert_eq!(volume.fs.step_task(BackgroundTask::DelayedWrites), Ok(tree::Step::Idle), "more may come");
    volume.clock.advance(5_000_000);
    assert_eq!(volume.fs.step_task(BackgroundTask::DelayedWrites), Ok(tree::Step::Worked));
    assert!(bytes_appended(&volume.fs) > before);
    assert_eq!(volume.fs.step_task(BackgroundTask::DelayedWrites), Ok(tree::Step::Idle), "there are no more");
    let commands = volume.device.commands();
    assert!(volume.contents(&file) == expected);
    assert_eq!(volume.device.commands(), commands, "there was nothing left to write");
}

#[test]
fn a_large_batch_is_appended_at_once() {
    let (volume, file) = volume_with(&pattern(1, 100 * BLOCK));
    let step = || volume.fs.step_task(BackgroundTask::DelayedWrites);
    // A quarter of what may be delayed at once.
    for number in 0..15 {
        volume.write(&file, (3 * number * BLOCK) as u64, &[7; BLOCK]);
        assert_eq!(step(), Ok(tree::Step::Idle), "{number} blocks");
    }
    volume.write(&file, (93 * BLOCK) as u64, &[7; BLOCK]);
    assert_eq!((step(), step()), (Ok(tree::Step::Worked), Ok(tree::Step::Idle)), "enough blocks");
    volume.settle_and_check();
}

/// A call that makes delayed writes of the file durable.
type Durably = fn(&Volume, &Handle);

#[test]
fn delayed_writes_are_durable_whenever_others_would_be() {
    let calls: [(&str, Durably); 5] = [
        ("fsync", |volume, file| volume.fs.fsync(file, false).unwrap()),
        ("fdatasync", |volume, file| volume.fs.fsync(file, true).unwrap()),
        ("sync", |volume, _| volume.fs.sync().unwrap()),
        ("the commit interval", |volume, _| {
            volume.clock.advance(6_000_000_000);
            volume.fs.step_task(BackgroundTask::Commits).unwrap();
        }),
        ("a remount read-only", |volume, _| volume.fs.make_read_only().unwrap()),
    ];
    for (name, call) in calls {
        let mut expected = pattern(1, 50 * BLOCK);
        let (volume, file) = volume_with(&expected);
        volume.device.record();
        overwrite(&volume, &file, &mut expected, 3);
        volume.write(&file, (50 * BLOCK) as u64, &pattern(9, 2 * BLOCK));
        expected.extend(pattern(9, 2 * BLOCK));
        call(&volume, &file);
        assert!(contents_after_loss_of_power(&volume, "file") == expected, "{name}");
    }
}

#[test]
fn a_synchronous_write_makes_earlier_delayed_ones_of_the_file_durable() {
    let mut expected = pattern(1, 50 * BLOCK);
    let (volume, file) = volume_with(&expected);
    let synchronous = OpenFlags { sync: true, ..READ_WRITE };
    let synchronous = volume.fs.open(&Caller::root(), file.inode(), synchronous).unwrap();
    volume.device.record();
    overwrite(&volume, &file, &mut expected, 4);
    volume.write(&synchronous, 0, &[7; BLOCK]);
    expected[..BLOCK].fill(7);
    assert!(contents_after_loss_of_power(&volume, "file") == expected);
}

/// Promise 5 of the crash contract.
#[test]
fn a_file_gets_another_name_with_what_was_written_before() {
    let (volume, old) = volume_with(&pattern(1, 50 * BLOCK));
    let new = volume.file(ROOT, "new");
    let expected = pattern(2, 60 * BLOCK);
    volume.write(&new, 0, &expected[..BLOCK]);
    volume.write(&new, BLOCK as u64, &expected[BLOCK..]);
    volume.device.record();
    volume.fs.rename(&Caller::root(), ROOT, b"new", ROOT, b"file", RenameFlags::default()).unwrap();
    volume.fs.fsync(&volume.file(ROOT, "other"), false).unwrap();
    assert!(contents_after_loss_of_power(&volume, "file") == expected);
    drop(old);
}

/// The same promise: the truncation did not become durable without the contents that were written after it.
#[test]
fn a_truncation_is_durable_only_with_the_contents_that_follow() {
    let (volume, file) = volume_with(&pattern(1, 50 * BLOCK));
    let other = volume.file(ROOT, "other");
    volume.device.record();
    let emptied = Changes { size: Some(0), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), file.inode(), &emptied).unwrap();
    let expected = pattern(2, 60 * BLOCK);
    volume.write(&file, 0, &expected[..BLOCK]);
    volume.write(&file, BLOCK as u64, &expected[BLOCK..]);
    volume.fs.fsync(&other, false).unwrap();
    assert!(contents_after_loss_of_power(&volume, "file") == expected);
}

#[test]
fn attributes_show_what_was_delayed() {
    let (volume, file) = volume_with(&pattern(1, 10 * BLOCK));
    volume.clock.advance(1_000_000_000);
    volume.write(&file, (10 * BLOCK) as u64, &pattern(2, 5 * BLOCK));
    volume.clock.advance(1_000_000_000);
    let quick = volume.fs.attributes_but_blocks(file.inode()).unwrap();
    assert_eq!((quick.size, quick.blocks), (15 * BLOCK as u64, 10 * 8), "nothing was waited for");
    let whole = volume.fs.attributes(file.inode()).unwrap();
    assert_eq!(whole, fs::Attributes { blocks: 15 * 8, ..quick }, "the times are those of the write");
    assert!(whole.modified < rt::Clock::now(&*volume.clock));
    let later = volume.fs.attributes_but_blocks(file.inode()).unwrap();
    assert_eq!(later, whole);
}

/// The kernel asks for capabilities before it runs a program.
#[test]
fn a_write_that_removes_a_privilege_is_not_delayed() {
    let (volume, file) = volume_with(&pattern(1, 10 * BLOCK));
    let writes = |handle: &Handle| {
        let before = volume.device.commands();
        volume.write(handle, 0, &[3; BLOCK]);
        volume.device.commands() > before
    };
    assert!(!writes(&file));
    let user = Caller { uid: 7, gid: 7, groups: Vec::new(), umask: 0, checked: false };
    let changes = Changes { uid: Some(7), permissions: Some(0o4755), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), file.inode(), &changes).unwrap();
    let of_user = volume.fs.open(&user, file.inode(), READ_WRITE).unwrap();
    assert!(writes(&of_user), "the bit is gone with the write");
    assert_eq!(volume.fs.attributes_but_blocks(file.inode()).unwrap().permissions, 0o755);
    assert!(!writes(&of_user));
    volume.fs.set_xattr(&Caller::root(), file.inode(), b"user.a", b"b", false, false).unwrap();
    assert!(writes(&file));
}

#[test]
fn deleted_files_are_not_written() {
    let (volume, _other) = volume_with(&pattern(1, 10 * BLOCK));
    let file = volume.file(ROOT, "short");
    volume.write(&file, 0, &pattern(2, BLOCK));
    let before = bytes_appended(&volume.fs);
    volume.write(&file, BLOCK as u64, &pattern(3, 99 * BLOCK));
    volume.unlink(ROOT, "short").unwrap();
    assert_eq!(volume.contents(&file).len(), 100 * BLOCK, "it is still open");
    volume.write(&file, 0, &pattern(4, 99 * BLOCK));
    let while_open = bytes_appended(&volume.fs);
    assert!(while_open > before);
    drop(file);
    volume.settle_and_check();
    assert_eq!(bytes_appended(&volume.fs), while_open, "it died before it was written");
}

#[test]
fn nothing_is_delayed_while_the_volume_is_read_only() {
    let mut expected = pattern(1, 50 * BLOCK);
    let (volume, file) = volume_with(&expected);
    overwrite(&volume, &file, &mut expected, 5);
    volume.fs.make_read_only().unwrap();
    assert_eq!(volume.fs.write(&file, 0, &[1; BLOCK]), Err(FsError::ReadOnly));
    assert!(volume.contents(&file) == expected);
    volume.fs.make_writable().unwrap();
    overwrite(&volume, &file, &mut expected, 6);
    volume.fs.unmount().unwrap();
    let volume = volume.kill();
    let file = volume.open(volume.find(ROOT, "file").unwrap());
    assert!(volume.contents(&file) == expected);
    volume.settle_and_check();
}

/// What was acknowledged needs no space any more.
#[test]
fn a_full_volume_stores_what_was_delayed_before() {
    let mut expected = pattern(1, 64 * BLOCK);
    let (volume, file) = volume_with(&expected);
    let other = volume.file(ROOT, "other");
    let (mut at, mut was_delayed) = (0, 0);
    while volume.fs.write(&other, at, &pattern(2, 64 * BLOCK)) == Ok(64 * BLOCK) {
        at += 64 * BLOCK as u64;
        let (before, data) = (volume.device.commands(), pattern(at as u8, BLOCK));
        volume.write(&file, 5 * BLOCK as u64, &data);
        expected[5 * BLOCK..6 * BLOCK].copy_from_slice(&data);
        if volume.device.commands() == before {
            was_delayed += 1;
            let left = volume.fs.space().available;
            assert!(left > (256 * BLOCK) as u64, "{left} bytes are left");
        }
    }
    assert!(was_delayed > 9);
    assert!(volume.contents(&file) == expected);
    volume.settle_and_check();
}

#[test]
fn names_that_fill_the_volume_leave_space_for_what_was_delayed_before() {
    let mut expected = pattern(1, 64 * BLOCK);
    let (volume, file) = volume_with(&expected);
    let before = volume.device.commands();
    overwrite(&volume, &file, &mut expected, 7);
    assert_eq!(volume.device.commands(), before, "they are delayed");
    let names = (0..).map(|n| {
        volume.fs.make_node(&Caller::root(), ROOT, format!("{n}").as_bytes(), fs::Kind::File, 0o644, 0)
    });
    let refused = names.take(1 << 20).find_map(Result::err);
    assert_eq!(refused, Some(FsError::NoSpace));
    assert!(volume.contents(&file) == expected);
    volume.settle_and_check();
}

/// Each open handle learns of it once, and later writes are not delayed.
#[test]
fn writes_that_cannot_be_stored_are_reported_by_fsync() {
    let (volume, file) = volume_with(&pattern(1, 10 * BLOCK));
    let handles = [volume.open(file.inode()), file];
    volume.device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull).forever());
    volume.write(&handles[0], 0, &[7; BLOCK]);
    volume.clock.advance(5_000_000);
    assert_eq!(volume.fs.step_task(BackgroundTask::DelayedWrites), Ok(tree::Step::Worked));
    volume.device.clear_faults();
    for handle in &handles {
        assert_eq!(volume.fs.fsync(handle, false), Err(FsError::NoSpace));
    }
    for handle in &handles {
        assert_eq!(volume.fs.fsync(handle, false), Ok(()));
    }
    assert!(volume.contents(&handles[0]) == pattern(1, 10 * BLOCK));
    let before = volume.device.commands();
    volume.write(&handles[0], 0, &[7; BLOCK]);
    assert!(volume.device.commands() > before, "it is not delayed");
    volume.settle_and_check();
}

/// A reader that needs the lost bytes gets the error, too.
#[test]
fn a_reader_learns_of_writes_that_cannot_be_stored() {
    let (volume, file) = volume_with(&pattern(1, 10 * BLOCK));
    volume.device.inject(Fault::nth(CommandKind::Append, 1, Effect::Error).forever());
    volume.write(&file, 0, &[7; BLOCK]);
    let mut into = [0; BLOCK];
    assert_eq!(volume.fs.read(&file, BLOCK as u64, &mut into), Ok(BLOCK), "another block");
    assert!(matches!(volume.fs.read(&file, 0, &mut into), Err(FsError::Io(_))));
    volume.device.clear_faults();
    assert!(matches!(volume.fs.fsync(&file, false), Err(FsError::Io(_))));
}

/// A full host is not a reason to lose what was acknowledged, if it has space again.
#[test]
fn a_batch_that_finds_no_space_is_stored_in_pieces() {
    let mut expected = pattern(1, 50 * BLOCK);
    let (volume, file) = volume_with(&expected);
    overwrite(&volume, &file, &mut expected, 8);
    volume.device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull));
    assert!(volume.contents(&file) == expected);
    volume.fs.fsync(&file, false).unwrap();
    volume.settle_and_check();
}

/// Threads that write and read, and one that appends delayed writes. Each block has one writer, so its contents are known.
#[test]
fn threads_read_what_they_have_written() {
    const WRITERS: usize = 4;
    const BLOCKS: usize = 16;
    let (volume, file) = volume_with(&vec![0; WRITERS * BLOCKS * BLOCK]);
    let (volume, file, is_over) = (&volume, &file, &std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                volume.clock.advance(1_000_000);
                volume.fs.step_task(BackgroundTask::DelayedWrites).unwrap();
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(number as u64);
                    let mut expected = [0; BLOCKS];
                    for _ in 0..300 {
                        let block = rng.usize(..BLOCKS);
                        let at = ((block * WRITERS + number) * BLOCK) as u64;
                        if rng.bool() {
                            expected[block] = rng.u8(..);
                            volume.write(file, at, &[expected[block]; BLOCK]);
                        } else {
                            let mut into = [0xee; BLOCK];
                            assert_eq!(volume.fs.read(file, at, &mut into), Ok(BLOCK));
                            assert!(into == [expected[block]; BLOCK], "block {block} of writer {number}");
                        }
                        if rng.u8(..40) == 0 {
                            volume.fs.fsync(file, true).unwrap();
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(ended.into_iter().all(|ended| ended.is_ok()));
    });
    volume.settle_and_check();
}

/// Each run cuts another extent of the largest size in two. The checksums of both parts are in the transaction.
#[test]
fn a_batch_fits_in_a_transaction_whatever_it_cuts() {
    const EXTENTS: usize = 66;
    let specs =
        [(Spec::new(512, 40, 4096), 256), (Spec::new(4096, 90, 128), 128), (Spec::new(512, 90, 512), 128)];
    for (spec, extent_blocks) in specs {
        let block = spec.block_size as usize;
        let volume = Volume::on(spec);
        let file = volume.file(ROOT, "file");
        let mut expected = pattern(1, EXTENTS * extent_blocks * block);
        for (number, extent) in expected.chunks(extent_blocks * block).enumerate() {
            volume.write(&file, (number * extent.len()) as u64, extent);
        }
        volume.fs.delay_writes(8 << 20);
        let commits = volume.fs.store().stats().commits;
        for number in 0..EXTENTS {
            let at = (number * extent_blocks + extent_blocks / 2 - 1) * block;
            let data = pattern(number as u8, 2 * block);
            volume.write(&file, at as u64, &data);
            expected[at..at + data.len()].copy_from_slice(&data);
        }
        assert!(volume.contents(&file) == expected);
        let commits = volume.fs.store().stats().commits - commits;
        assert!((2..=25).contains(&commits), "{commits} transactions");
        volume.settle_and_check();
    }
}

/// The contents were in a later batch of the log than the truncation, and were not flushed with it. Between the two come
/// as many other changes as a batch has, more or less.
#[test]
fn a_truncation_is_durable_only_with_the_contents_in_a_later_batch() {
    let (volume, file) = volume_with(&pattern(1, 50 * BLOCK));
    let other = volume.file(ROOT, "other");
    for changes in 60..140 {
        volume.write(&file, 0, &pattern(1, 50 * BLOCK));
        volume.fs.sync().unwrap();
        volume.device.record();
        let emptied = Changes { size: Some(0), ..Changes::default() };
        volume.fs.set_attributes(&Caller::root(), file.inode(), &emptied).unwrap();
        let expected = pattern(changes, 60 * BLOCK);
        volume.write(&file, 0, &expected[..BLOCK]);
        let grown = Changes { size: Some(60 * BLOCK as u64), ..Changes::default() };
        volume.fs.set_attributes(&Caller::root(), file.inode(), &grown).unwrap();
        for change in 0..changes {
            let value = pattern(change, 2000);
            volume.fs.set_xattr(&Caller::root(), other.inode(), b"user.a", &value, false, false).unwrap();
        }
        // In an order that makes each block a run of its own.
        for block in (1..60).step_by(2).chain((2..60).step_by(2)) {
            volume.write(&file, (block * BLOCK) as u64, &expected[block * BLOCK..(block + 1) * BLOCK]);
        }
        volume.fs.fsync(&other, false).unwrap();
        assert!(contents_after_loss_of_power(&volume, "file") == expected, "after {changes} changes");
    }
}

/// An unwritten end of the file counts as soon as the write has returned.
#[test]
fn a_truncation_within_what_was_delayed_needs_no_space_and_cuts_it() {
    let (volume, file) = volume_with(&pattern(1, 10 * BLOCK));
    volume.write(&file, (10 * BLOCK) as u64, &pattern(2, 10 * BLOCK));
    let cut = Changes { size: Some(15 * BLOCK as u64), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), file.inode(), &cut).unwrap();
    let expected = [pattern(1, 10 * BLOCK), pattern(2, 10 * BLOCK)[..5 * BLOCK].to_vec()].concat();
    assert!(volume.contents(&file) == expected);
    volume.settle_and_check();
}

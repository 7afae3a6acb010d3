//! Background work and its threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use emulated::Spec;
use fs::{BackgroundTask, Caller, FallocateMode, Fs, FsError, InodeNo, MountOptions};
use tree::Step;

use crate::support::{Volume, pattern};
use crate::watched::{Watched, watched_volume};

const ROOT: InodeNo = InodeNo::ROOT;

#[test]
fn changes_are_durable_after_the_commit_interval() {
    let volume = Volume::new();
    volume.settle();
    volume.fs.sync().unwrap();
    drop(volume.file(ROOT, "f"));
    let last = volume.fs.store().last_lsn();
    volume.clock.advance(4_000_000_000);
    volume.settle();
    assert!(volume.fs.store().durable_lsn() < last, "the interval has not passed");
    volume.clock.advance(2_000_000_000);
    assert_eq!(volume.fs.step(), Ok(Step::Worked));
    assert!(volume.fs.store().durable_lsn() >= last);
}

#[test]
fn threads_end_with_the_mount_and_hold_no_volume() {
    let volume = Volume::new();
    volume.fs.start().unwrap();
    let handle = volume.file(ROOT, "f");
    volume.write(&handle, 0, &pattern(1, 2_000_000));
    volume.unlink(ROOT, "f").unwrap();
    drop(handle);
    volume.fs.unmount().unwrap();
    assert_eq!(Arc::strong_count(&volume.fs), 1, "no thread holds the volume");
}

#[test]
fn many_threads_use_one_volume() {
    let volume = Volume::new();
    volume.fs.start().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let volume = &volume;
            scope.spawn(move || {
                let directory = volume.directory(ROOT, &format!("d{thread}"));
                for round in 0..60 {
                    let name = format!("f{}", round % 7);
                    let _ = volume.unlink(directory, &name);
                    let handle = volume.file(directory, &name);
                    let data = pattern(thread ^ round, usize::from(round) * 997);
                    volume.write(&handle, 0, &data);
                    assert!(volume.contents(&handle) == data);
                    let shared = volume.file(ROOT, &format!("shared{thread}-{round}"));
                    volume.fs.fsync(&shared, false).unwrap();
                }
            });
        }
    });
    assert_eq!(volume.names(ROOT).len(), 4 + 4 * 60);
    let volume = volume.remount();
    volume.settle_and_check();
}

#[test]
fn a_failed_flush_is_reported_once_to_every_handle_and_shuts_the_volume_down() {
    use emulated::{CommandKind, Effect, Fault};
    let volume = Volume::new();
    let (first, second) = (volume.file(ROOT, "first"), volume.file(ROOT, "second"));
    volume.fs.fsync(&first, false).unwrap();
    volume.write(&first, 0, b"will be lost");
    volume.device.inject(Fault::nth(CommandKind::Flush, 1, Effect::Error).forever());
    assert!(matches!(volume.fs.fsync(&second, false), Err(FsError::Io(_))));
    assert!(matches!(volume.fs.fsync(&first, true), Err(FsError::Io(_))));
    assert!(
        matches!(volume.fs.fsync(&first, true), Err(FsError::Io(_))),
        "it is shut down: nothing is durable"
    );
    for _ in 0..2 {
        let synced = volume.fs.fsync_directories();
        assert!(
            matches!(synced, Err(FsError::Io(_))),
            "directories have no handle that records a reported error: {synced:?}"
        );
    }
    assert_eq!(volume.fs.write(&first, 0, b"more"), Err(FsError::ReadOnly));
    assert_eq!(volume.unlink(ROOT, "first"), Err(FsError::ReadOnly));
    assert_eq!(volume.contents(&first), b"will be lost", "reading goes on");
    volume.device.clear_faults();
    drop((first, second));
    volume.kill().settle_and_check();
}

#[test]
fn errors_in_the_background_are_reported_by_fsync() {
    use emulated::{CommandKind, Effect, Fault};
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    volume.clock.advance(6_000_000_000);
    volume.device.inject(Fault::nth(CommandKind::Flush, 1, Effect::Error));
    assert!(volume.fs.step().is_err());
    assert!(matches!(volume.fs.fsync(&handle, false), Err(FsError::Io(_))));
}

#[test]
fn a_synchronous_handle_returns_when_it_is_durable() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    let flags = fs::OpenFlags { sync: true, ..crate::support::READ_WRITE };
    let handle = volume.fs.open(&Caller::root(), inode, flags).unwrap();
    let is_durable = || volume.fs.store().durable_lsn() >= volume.fs.store().last_lsn();
    volume.write(&handle, 0, b"x");
    assert!(is_durable());
    // Space that a database has preallocated, so that writing there cannot fail, was gone after a loss of power.
    let (kept, longer) =
        (FallocateMode::Allocate { keep_size: true }, FallocateMode::Allocate { keep_size: false });
    for mode in [kept, longer, FallocateMode::PunchHole, FallocateMode::InsertRange] {
        volume.fs.allocate(&handle, mode, 0, 8192).unwrap();
        assert!(is_durable(), "{mode:?}");
    }
    let source = volume.file(ROOT, "source");
    volume.write(&source, 0, &[7; 100_000]);
    volume.fs.copy_range(&source, 0, &handle, 0, 100_000).unwrap();
    assert!(is_durable());
}

/// Four threads create, open, write, look up and remove the same three names.
#[test]
fn threads_that_compete_for_names_see_only_possible_states() {
    let volume = Volume::new();
    volume.fs.start().unwrap();
    let root = Caller::root();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (volume, root) = (&volume, &root);
            scope.spawn(move || {
                let mut rng = rt::random::Rng::with_seed(thread);
                for round in 0..400 {
                    let name = format!("n{}", rng.u8(..3));
                    let other = format!("n{}", rng.u8(..3));
                    match rng.u8(..4) {
                        0 | 1 => {
                            let flags = crate::support::READ_WRITE;
                            let name = name.as_bytes();
                            let (_, handle) =
                                volume.fs.create(root, ROOT, name, 0o644, flags, false).unwrap();
                            let data = vec![thread as u8 + 1; 1 + rng.usize(..9000)];
                            volume.write(&handle, 0, &data);
                            let mut head = [0; 1];
                            assert_eq!(volume.fs.read(&handle, 0, &mut head), Ok(1));
                            assert!((1..=4).contains(&head[0]));
                        }
                        2 => match volume.unlink(ROOT, &name) {
                            Ok(()) | Err(FsError::NotFound) => {}
                            refused => panic!("round {round}: {refused:?}"),
                        },
                        _ => {
                            let (from, to) = (name.as_bytes(), other.as_bytes());
                            let renamed = volume.fs.rename(root, ROOT, from, ROOT, to, Default::default());
                            assert!(matches!(renamed, Ok(()) | Err(FsError::NotFound)), "{renamed:?}");
                        }
                    }
                    let found = volume.fs.lookup(root, ROOT, other.as_bytes());
                    assert!(matches!(found, Ok(_) | Err(FsError::NotFound)), "{found:?}");
                }
            });
        }
    });
    volume.settle_and_check();
}

#[test]
fn readers_see_a_whole_write_or_nothing_of_it() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    volume.write(&handle, 0, &[0; 100_000]);
    std::thread::scope(|scope| {
        let (volume, handle) = (&volume, &handle);
        let writer = scope.spawn(move || {
            (1..60u8).for_each(|round| volume.write(handle, 0, &[round; 100_000]));
        });
        while !writer.is_finished() {
            let contents = volume.contents(handle);
            assert!(contents.iter().all(|byte| *byte == contents[0]), "a mixture of two writes");
        }
    });
}

#[test]
fn volume_info_has_the_properties_of_the_volume() {
    let volume = Volume::new();
    let info = volume.fs.volume_info();
    assert_eq!((info.label.as_str(), info.fs_id, info.groups), ("story", zone::FsId([5; 16]), 4));
    assert_eq!((info.block_size, info.created), (4096, rt::Timestamp(1_000_000_000)));
    let handle = volume.file(ROOT, "f");
    volume.write(&handle, 0, &pattern(1, 12_345));
    assert_eq!(volume.fs.user_bytes_written(), 12_345);
    let statfs = volume.fs.statfs().unwrap();
    assert!(statfs.available > 0 && statfs.available <= statfs.free && statfs.free <= statfs.blocks);
    assert_eq!((statfs.block_size, statfs.name_max), (4096, 255));
}

/// Records contain up to 2 KiB of contents, and there was one for each 4 KiB of the cache: a large cache needed half
/// as much memory again, without a limit.
#[test]
fn a_large_cache_does_not_let_records_grow_without_bound() {
    let volume = Volume::on(emulated::Spec::new(4096, 64, 1024));
    let options = fs::MountOptions {
        cache_bytes: 1 << 30,
        read_only: false,
        commit_interval_ns: 5_000_000_000,
        clock: volume.clock.clone(),
    };
    let Volume { device, fs, .. } = volume;
    fs.unmount().unwrap();
    let (fs, _) = fs::Fs::mount(device, options).unwrap();
    for number in 0..20_000 {
        let name = format!("f{number}").into_bytes();
        fs.make_node(&fs::Caller::root(), fs::InodeNo::ROOT, &name, fs::Kind::File, 0o644, 0).unwrap();
    }
    let cached = fs.inodes_cached();
    assert!((10_000..=17_000).contains(&cached), "{cached} records are in memory");
}

#[test]
fn the_thread_of_resets_gives_zones_back_one_at_a_time() {
    // The next flush reset all of them, and the caller of fsync waited for it. Now only this thread resets them.
    let (watched, volume) = watched_volume(Spec::new(4096, 40, 256), 4 << 20);
    volume.settle();
    watched.to_give_back.store(3, Ordering::SeqCst);
    let handle = volume.file(ROOT, "f");
    volume.fs.fsync(&handle, false).unwrap();
    assert_eq!(watched.to_give_back.load(Ordering::SeqCst), 3, "a flush gives nothing back");
    for left in [2, 1, 0] {
        assert_eq!(volume.fs.step_task(BackgroundTask::Resets), Ok(Step::Worked));
        assert_eq!(watched.to_give_back.load(Ordering::SeqCst), left);
    }
    assert_eq!(volume.fs.step_task(BackgroundTask::Resets), Ok(Step::Idle));
}

#[test]
fn a_mount_after_an_unmount_reads_in_no_zone_of_data() {
    // The last checkpoint contained the reverse maps of all zones that had been filled a moment before, and the mount
    // read each of them completely: on a disk, half a second for each such zone.
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    (0..8).for_each(|piece| volume.write(&handle, piece << 20, &pattern(1, 1 << 20)));
    let holds_data = |moment: tree::Moment<'_>| {
        let zones = (0..).map(zone::ZoneId).zip(moment.zones());
        zones.filter(|(_, zone)| zone.entry.role.holds_data()).map(|(zone, _)| zone).collect::<Vec<_>>()
    };
    let zones = volume.fs.store().pool().at_one_moment(holds_data);
    assert!(zones.len() >= 8, "{zones:?}");
    volume.fs.unmount().unwrap();
    let Volume { device, clock, fs } = volume;
    drop((handle, fs));
    let watched = Arc::new(Watched::new(&device));
    let options = MountOptions { cache_bytes: 4 << 20, read_only: false, commit_interval_ns: 1 << 40, clock };
    let (fs, recovery) = Fs::mount(watched.clone(), options).unwrap();
    assert!(recovery.clean);
    let read: Vec<_> = zones.into_iter().filter(|zone| watched.zones_read.lock().contains(zone)).collect();
    assert_eq!(read, []);
    assert_eq!(fs.check().unwrap(), []);
}

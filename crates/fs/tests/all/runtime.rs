//! Background work and its threads.

use std::sync::Arc;

use fs::InodeNo;
use tree::Step;

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

#[test]
fn what_nobody_syncs_is_durable_after_the_commit_interval() {
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
fn the_volume_says_what_it_is() {
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

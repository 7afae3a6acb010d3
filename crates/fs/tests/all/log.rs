//! Bytes of the log, and transactions, for each operation on small files. The counts do not vary.

use fs::{Caller, Changes, InodeNo, SetTime};
use rt::Timestamp;
use zone::Cause;

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const FILES: u64 = 200;
/// Contents that are in the inode's record.
const INLINE: usize = 700;

/// Log bytes and transactions for each file.
#[derive(Debug)]
struct Logged {
    bytes: u64,
    transactions: u64,
}

impl Volume {
    /// Counts what an operation on all files logs, and the background work after it.
    fn logged(&self, mut operation: impl FnMut(u64)) -> Logged {
        let counts = || {
            self.settle();
            self.fs.sync().unwrap();
            let bytes = self.fs.store().traffic().bytes_written(Cause::Journal);
            (bytes, self.fs.store().stats().commits)
        };
        let before = counts();
        (0..FILES).for_each(&mut operation);
        let after = counts();
        let logged = Logged {
            bytes: (after.0 - before.0) / FILES,
            transactions: (after.1 - before.1).div_ceil(FILES),
        };
        println!("{logged:?}");
        logged
    }
}

fn name(file: u64) -> String {
    format!("file {file:05}")
}

/// A volume with small files, and their inodes.
fn small_files(serves_a_kernel: bool) -> (Volume, Vec<InodeNo>) {
    let volume = Volume::new();
    if serves_a_kernel {
        volume.fs.keep_unlinked();
    }
    let make = |file| {
        let handle = volume.file(ROOT, &name(file));
        volume.write(&handle, 0, &pattern(file as u8, INLINE));
        handle.inode()
    };
    let inodes = (0..FILES).map(make).collect();
    (volume, inodes)
}

#[test]
fn a_change_of_attributes_logs_only_what_changes() {
    let (volume, inodes) = small_files(false);
    let change = |changes: Changes| {
        volume.logged(|file| {
            // A moment has other bytes than the one before it.
            volume.clock.advance(1_234_567);
            volume.fs.set_attributes(&Caller::root(), inodes[file as usize], &changes).unwrap();
        })
    };
    let permissions = change(Changes { permissions: Some(0o600), ..Changes::default() });
    assert!(permissions.bytes <= 100 && permissions.transactions == 1, "{permissions:?}");
    let then = Some(SetTime::To(Timestamp(999_888_777_666_555_444)));
    let times = change(Changes { accessed: then, modified: then, ..Changes::default() });
    assert!(times.bytes <= 100 && times.transactions == 1, "{times:?}");
    let owner = change(Changes { uid: Some(1000), gid: Some(1000), ..Changes::default() });
    assert!(owner.bytes <= 100 && owner.transactions == 1, "{owner:?}");
    volume.settle_and_check();
}

#[test]
fn a_small_file_is_removed_by_one_transaction() {
    for serves_a_kernel in [false, true] {
        let (volume, inodes) = small_files(serves_a_kernel);
        let unlink = volume.logged(|file| {
            volume.clock.advance(1_234_567);
            volume.unlink(ROOT, &name(file)).unwrap();
            if serves_a_kernel {
                // As `rm` through a mount: the kernel reports the change time, and then forgets the inode.
                let inode = inodes[file as usize];
                let changes = Changes { changed: Some(Timestamp(7)), ..Changes::default() };
                assert_eq!(volume.fs.set_attributes(&Caller::root(), inode, &changes).unwrap().links, 0);
                volume.fs.forget(inode);
            }
        });
        assert!(unlink.bytes <= 200 && unlink.transactions == 1, "{unlink:?}");
        volume.settle_and_check();
    }
}

/// A file is replaced by a rename, as editors do.
#[test]
fn a_small_file_is_replaced_by_one_transaction() {
    let (volume, _) = small_files(true);
    (0..FILES).for_each(|file| drop(volume.file(ROOT, &format!("new {file}"))));
    let root = Caller::root();
    let rename = volume.logged(|file| {
        let (from, to) = (format!("new {file}"), name(file));
        volume.fs.rename(&root, ROOT, from.as_bytes(), ROOT, to.as_bytes(), Default::default()).unwrap();
    });
    assert!(rename.transactions == 1, "{rename:?}");
    volume.settle_and_check();
}

#[test]
fn a_write_to_a_small_file_logs_the_bytes_that_change() {
    let (volume, inodes) = small_files(false);
    let append = volume.logged(|file| {
        volume.write(&volume.open(inodes[file as usize]), INLINE as u64, &[7; 50]);
    });
    assert!(append.bytes <= 150 && append.transactions == 1, "{append:?}");
    let volume = volume.kill();
    for (file, inode) in inodes.into_iter().enumerate() {
        let expected = [pattern(file as u8, INLINE), vec![7; 50]].concat();
        assert_eq!(volume.contents(&volume.open(inode)), expected);
    }
    volume.settle_and_check();
}

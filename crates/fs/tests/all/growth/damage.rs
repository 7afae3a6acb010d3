//! Findings: naming the affected files, and repairing.

use fs::format::{DIRENT, Dirent, INODE, Record, dirent_key, inode_key};
use fs::{Finding, InodeNo, Kind};
use tree::Tx;
use zone::Role;

use super::{Meter, compare, kill, name, remount, volume};
use crate::support::Volume;

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: u64 = 4096;

/// The rows of a directory's entries: cookie, inode, kind, name.
fn entries(volume: &Volume, directory: InodeNo) -> Vec<(u64, InodeNo, Kind, Vec<u8>)> {
    let store = volume.fs.store();
    let (from, to) = (dirent_key(directory, 0), dirent_key(directory, u64::MAX));
    let rows = store.range(store.group_of(directory.0), DIRENT, &from, &to, usize::MAX).unwrap();
    let decoded = |(key, value): &tree::Entry| {
        let (_, cookie) = fs::format::decode_dirent_key(key).unwrap();
        let Dirent { inode, kind, name } = Dirent::decode(value).unwrap();
        (cookie, inode, kind, name.to_vec())
    };
    rows.iter().map(decoded).collect()
}

fn change(volume: &Volume, change: impl FnOnce(&mut Tx)) {
    let mut tx = Tx::new();
    change(&mut tx);
    volume.fs.store().commit(tx).unwrap();
}

fn delete_entry(volume: &Volume, directory: InodeNo, cookie: u64) {
    let group = volume.fs.store().group_of(directory.0);
    change(volume, |tx| tx.delete(group, DIRENT, dirent_key(directory, cookie)));
}

fn put_entry(volume: &Volume, directory: InodeNo, cookie: u64, entry: &Dirent<'_>) {
    let group = volume.fs.store().group_of(directory.0);
    change(volume, |tx| tx.put(group, DIRENT, dirent_key(directory, cookie), entry.encode()));
}

fn set_parent(volume: &Volume, inode: InodeNo, parent: InodeNo) {
    let (store, key) = (volume.fs.store(), inode_key(inode));
    let row = store.get(store.group_of(inode.0), INODE, &key).unwrap().unwrap();
    let record = Record { parent, ..Record::decode(&row).unwrap() };
    change(volume, |tx| tx.put(store.group_of(inode.0), INODE, key, record.encode()));
}

/// Checks, names the files, and repairs until nothing more can be repaired.
fn check_and_repair(meter: &mut Meter, volume: Volume, findings_min: u64) {
    volume.fs.sync().unwrap();
    let mut volume = kill(volume);
    let found = meter.measure("check", || volume.fs.check().unwrap());
    assert!(found.len() as u64 >= findings_min, "{} findings", found.len());
    meter.measure("name the files", || {
        assert_eq!(volume.fs.affected_files(&found).unwrap().len(), found.len())
    });
    meter.measure("repair", || {
        for _ in 0..10 {
            let done = volume.fs.repair().unwrap();
            volume = remount(volume);
            if done.repaired.is_empty() {
                return assert_eq!(done.left, []);
            }
        }
        panic!("repairs come to an end");
    });
}

#[test]
fn names_that_are_lost() {
    compare("lost names", 800, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let directory = volume.directory(ROOT, "d");
        (0..number).for_each(|n| drop(volume.file(directory, &name(n))));
        for (cookie, ..) in entries(&volume, directory) {
            delete_entry(&volume, directory, cookie);
        }
        check_and_repair(&mut meter, volume, number);
        meter
    });
}

#[test]
fn directories_that_say_a_wrong_parent() {
    compare("wrong parents", 800, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let (directory, other) = (volume.directory(ROOT, "d"), volume.directory(ROOT, "other"));
        for n in 0..number {
            volume.directory(directory, &name(n));
            volume.file(other, &name(n));
        }
        for (_, inode, ..) in entries(&volume, directory) {
            set_parent(&volume, inode, other);
        }
        check_and_repair(&mut meter, volume, number);
        meter
    });
}

#[test]
fn names_that_are_not_where_their_hash_says() {
    compare("misplaced names", 800, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let directory = volume.directory(ROOT, "d");
        (0..number).for_each(|n| drop(volume.file(directory, &name(n))));
        for (cookie, inode, kind, name) in entries(&volume, directory) {
            delete_entry(&volume, directory, cookie);
            put_entry(&volume, directory, cookie ^ 1 << 40, &Dirent { inode, kind, name: &name });
        }
        check_and_repair(&mut meter, volume, number);
        meter
    });
}

#[test]
fn directories_in_a_circle() {
    compare("directories in a circle", 800, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let first = volume.directory(ROOT, "d");
        let last = (1..number).fold(first, |above, _| volume.directory(above, "d"));
        let (cookie, ..) = entries(&volume, ROOT).pop().unwrap();
        delete_entry(&volume, ROOT, cookie);
        put_entry(&volume, last, cookie, &Dirent { inode: first, kind: Kind::Directory, name: b"d" });
        set_parent(&volume, first, last);
        check_and_repair(&mut meter, volume, number);
        meter
    });
}

/// Every second block of a file is damaged, and each is shared with a file of its own.
#[test]
fn damaged_blocks_that_files_share() {
    compare("damaged shared blocks", 400, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        volume.write(&file, 0, &vec![7; (2 * number * BLOCK) as usize]);
        for n in 0..number {
            let copy = volume.file(ROOT, &name(n));
            volume.fs.clone_range(&file, 2 * n * BLOCK, &copy, 0, BLOCK).unwrap();
        }
        volume.fs.sync().unwrap();
        for zone in [Role::Data, Role::Gc].into_iter().flat_map(|role| volume.fs.store().pool().in_role(role))
        {
            let blocks = volume.fs.store().pool().capacity(zone);
            (0..blocks)
                .filter(|block| volume.device.is_written(zone, *block) && block % 2 == 1)
                .for_each(|block| volume.device.corrupt(zone, block, 9, 1));
        }
        let found = meter.measure("check data", || extent::check_data(volume.fs.extents(), true).unwrap());
        let found: Vec<Finding> = found.into_iter().map(Finding::Extents).collect();
        assert!(found.len() as u64 >= number, "{} findings", found.len());
        let named = meter.measure("name the files", || volume.fs.affected_files(&found).unwrap());
        assert!(named.iter().flatten().count() as u64 >= number);
        meter
    });
}

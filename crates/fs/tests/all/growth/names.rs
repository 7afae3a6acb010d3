//! Names, directories, links, orphans, open files, attributes.

use std::collections::BTreeMap;

use fs::{Caller, Changes, FsError, Handle, InodeNo, Kind, RenameFlags};
use salvage::{Item, Paths, Salvage};

use super::{Meter, compare, kill, mount, name, remount, volume};
use crate::support::{READ, Volume};

const ROOT: InodeNo = InodeNo::ROOT;

/// Mounts again, checks, and salvages everything as if the log were lost.
fn remount_check_salvage(meter: &mut Meter, volume: Volume) -> Volume {
    volume.fs.sync().unwrap();
    let volume = meter.measure("recovery after a kill", || kill(volume));
    let volume = meter.measure("unmount and mount", || remount(volume));
    meter.measure("check", || assert_eq!(volume.fs.check().unwrap(), []));
    let device = volume.device.clone();
    let volume = {
        let Volume { device, clock, fs } = volume;
        fs.unmount().unwrap();
        drop(fs);
        device.reopen();
        let salvage = Salvage::open(device.clone(), &mut |_, _| ()).unwrap();
        meter.measure("salvage", || {
            let mut each = |_: &Item, _: &Paths| Ok::<(), FsError>(());
            assert_eq!(salvage.walk(&mut each).unwrap().0, []);
        });
        device.reopen();
        let fs = mount(&device, &clock);
        Volume { device, clock, fs }
    };
    assert!(std::sync::Arc::ptr_eq(&device, &volume.device));
    volume
}

fn list(volume: &Volume, directory: InodeNo) -> Vec<InodeNo> {
    let handle = volume.fs.open(&Caller::root(), directory, READ).unwrap();
    let mut inodes = Vec::new();
    let mut each = |entry: fs::DirEntry| {
        inodes.push(entry.inode);
        true
    };
    volume.fs.read_directory(&handle, 2, &mut each).unwrap();
    inodes
}

#[test]
fn names_in_a_directory() {
    compare("names", 3000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let directory = volume.directory(ROOT, "d");
        meter.measure("create", || (0..number).for_each(|n| drop(volume.file(directory, &name(n)))));
        meter.measure("look up", || {
            (0..number).for_each(|n| _ = volume.find(directory, &name(n)).unwrap());
        });
        meter.measure("list", || assert_eq!(list(&volume, directory).len() as u64, number));
        meter.measure("list in pieces", || {
            let handle = volume.fs.open(&Caller::root(), directory, READ).unwrap();
            let mut cookie = 2;
            while let before = cookie
                && {
                    let mut left = 10;
                    let mut each = |entry: fs::DirEntry| {
                        cookie = entry.cookie;
                        left -= 1;
                        left > 0
                    };
                    volume.fs.read_directory(&handle, before, &mut each).unwrap();
                    cookie != before
                }
            {}
        });
        meter.measure("rename", || {
            for n in 0..number {
                let (old, new) = (name(n), format!("new-{n:06}"));
                let flags = RenameFlags::default();
                volume
                    .fs
                    .rename(&Caller::root(), directory, old.as_bytes(), directory, new.as_bytes(), flags)
                    .unwrap();
            }
        });
        let volume = remount_check_salvage(&mut meter, volume);
        let directory = volume.find(ROOT, "d").unwrap();
        // Together with the background work: whether a checkpoint is due after the last one depends on little.
        meter.measure("unlink and settle", || {
            (0..number).for_each(|n| volume.unlink(directory, &format!("new-{n:06}")).unwrap());
            volume.settle_and_check();
        });
        meter
    });
}

#[test]
fn levels_of_directories() {
    compare("levels", 2000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let mut levels = vec![ROOT];
        meter.measure("make", || {
            for _ in 0..number {
                let above = levels[levels.len() - 1];
                levels.push(volume.directory(above, &"x".repeat(100)));
            }
        });
        drop(volume.file(levels[number as usize], "f"));
        meter.measure("go down", || {
            let mut at = ROOT;
            while let Ok(next) = volume.find(at, &"x".repeat(100)) {
                at = next;
            }
            assert_eq!(at, levels[number as usize]);
        });
        let volume = remount_check_salvage(&mut meter, volume);
        meter.measure("name of the deepest", || {
            let wanted = [levels[number as usize]].into_iter().collect();
            assert_eq!(volume.fs.paths_of(&wanted).unwrap().len(), 1);
        });
        volume.unlink(levels[number as usize], "f").unwrap();
        meter.measure("remove", || {
            for pair in levels.windows(2).rev() {
                volume.fs.remove_directory(&Caller::root(), pair[0], "x".repeat(100).as_bytes()).unwrap();
            }
        });
        meter
    });
}

#[test]
fn hard_links_of_one_inode() {
    compare("links of one inode", 3000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f").inode();
        meter.measure("link", || {
            for n in 0..number {
                volume.fs.link(&Caller::root(), file, ROOT, name(n).as_bytes()).unwrap();
            }
        });
        let volume = remount_check_salvage(&mut meter, volume);
        meter.measure("unlink", || (0..number).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap()));
        meter
    });
}

#[test]
fn inodes_with_two_links() {
    compare("linked inodes", 2000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let others = volume.directory(ROOT, "others");
        let files: Vec<InodeNo> = (0..number).map(|n| volume.file(ROOT, &name(n)).inode()).collect();
        meter.measure("link", || {
            for (n, file) in files.iter().enumerate() {
                volume.fs.link(&Caller::root(), *file, others, name(n as u64).as_bytes()).unwrap();
            }
        });
        let volume = remount_check_salvage(&mut meter, volume);
        let others = volume.find(ROOT, "others").unwrap();
        meter.measure("unlink", || (0..number).for_each(|n| volume.unlink(others, &name(n)).unwrap()));
        meter
    });
}

#[test]
fn orphans() {
    for has_data in [false, true] {
        compare(if has_data { "orphans with data" } else { "orphans" }, 1500, |number| {
            let volume = volume();
            let mut meter = Meter::new(&volume.device);
            let open = |from: u64| -> Vec<Handle> {
                let open = (from..from + number).map(|n| volume.file(ROOT, &name(n)));
                open.inspect(|file| {
                    if has_data {
                        volume.write(file, 0, &[7; 5000])
                    }
                })
                .collect()
            };
            let files = open(0);
            meter.measure("unlink while open", || {
                (0..number).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap());
            });
            meter.measure("check", || assert_eq!(volume.fs.check().unwrap(), []));
            meter.measure("close", || drop(files));
            let left = open(number);
            (number..2 * number).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap());
            volume.fs.sync().unwrap();
            std::mem::forget(left);
            let volume = meter.measure("recovery after a kill", || kill(volume));
            meter.measure("settle", || volume.settle_and_check());
            meter
        });
    }
}

#[test]
fn open_files() {
    compare("open files", 2000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let mut files: Vec<Handle> = Vec::new();
        meter.measure("create and keep open", || {
            files.extend((0..number).map(|n| volume.file(ROOT, &name(n))));
        });
        meter.measure("open again", || {
            let again: Vec<Handle> = files.iter().map(|file| volume.open(file.inode())).collect();
            files.extend(again);
        });
        meter.measure("read attributes", || {
            files.iter().for_each(|file| _ = volume.fs.attributes(file.inode()).unwrap());
        });
        meter.measure("write", || files.iter().for_each(|file| volume.write(file, 0, b"a few bytes")));
        meter.measure("fsync", || files.iter().for_each(|file| volume.fs.fsync(file, false).unwrap()));
        meter.measure("close", || drop(files));
        meter.measure("check", || assert_eq!(volume.fs.check().unwrap(), []));
        meter
    });
}

#[test]
fn handles_of_one_file() {
    compare("handles of one file", 3000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        let mut handles = Vec::new();
        meter.measure("open", || handles.extend((0..number).map(|_| volume.open(file.inode()))));
        meter.measure("write through each", || {
            for (n, handle) in handles.iter().enumerate() {
                volume.write(handle, n as u64 % 100, b"x");
            }
        });
        meter.measure("close", || drop(handles));
        meter
    });
}

/// A kernel references files that have lost their names.
#[test]
fn files_that_a_kernel_references() {
    compare("unlinked but referenced inodes", 2000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        volume.fs.keep_unlinked();
        let files: Vec<InodeNo> = (0..number).map(|n| volume.file(ROOT, &name(n)).inode()).collect();
        meter.measure("unlink", || (0..number).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap()));
        meter.measure("forget", || files.iter().for_each(|file| volume.fs.forget(*file)));
        meter.measure("check", || assert_eq!(volume.fs.check().unwrap(), []));
        meter
    });
}

#[test]
fn attributes_of_one_inode() {
    compare("attributes of one inode", 1000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let (root, file) = (Caller::root(), volume.file(ROOT, "f").inode());
        let attribute = |n: u64| format!("user.{n:05}");
        meter.measure("set", || {
            for n in 0..number {
                volume.fs.set_xattr(&root, file, attribute(n).as_bytes(), b"value", false, false).unwrap();
            }
        });
        meter.measure("get", || {
            for n in 0..number {
                volume.fs.get_xattr(&root, file, attribute(n).as_bytes()).unwrap();
            }
        });
        meter.measure("list", || {
            assert_eq!(volume.fs.list_xattrs(&root, file).unwrap().len() as u64, number);
        });
        let volume = remount_check_salvage(&mut meter, volume);
        meter.measure("remove", || {
            for n in 0..number / 2 {
                volume.fs.remove_xattr(&root, file, attribute(n).as_bytes()).unwrap();
            }
        });
        meter.measure("unlink and settle", || {
            volume.unlink(ROOT, "f").unwrap();
            volume.settle_and_check();
        });
        meter
    });
}

#[test]
fn inodes_with_attributes_links_and_nodes_of_other_kinds() {
    compare("files of all kinds", 1500, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let root = Caller::root();
        meter.measure("make", || {
            for n in 0..number {
                let (link, fifo, file) = (format!("s{n}"), format!("p{n}"), format!("f{n}"));
                volume.fs.symlink(&root, ROOT, link.as_bytes(), b"where it leads").unwrap();
                volume.fs.make_node(&root, ROOT, fifo.as_bytes(), Kind::Fifo, 0o600, 0).unwrap();
                let file = volume.file(ROOT, &file).inode();
                volume.fs.set_xattr(&root, file, b"user.a", b"value", false, false).unwrap();
            }
        });
        meter.measure("change", || {
            let all: BTreeMap<InodeNo, Changes> = list(&volume, ROOT)
                .into_iter()
                .map(|inode| (inode, Changes { uid: Some(7), ..Changes::default() }))
                .collect();
            for (inode, changes) in &all {
                volume.fs.set_attributes(&root, *inode, changes).unwrap();
            }
            // One is due with four times as many, and costs as much as the changes.
            volume.fs.store().checkpoint().unwrap();
        });
        remount_check_salvage(&mut meter, volume);
        meter
    });
}

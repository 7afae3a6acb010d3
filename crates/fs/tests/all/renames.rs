//! Renaming.

use fs::{Caller, FsError, InodeNo, Kind, RenameFlags};

use crate::support::Volume;

const ROOT: InodeNo = InodeNo::ROOT;
const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };

fn rename(volume: &Volume, from: (InodeNo, &str), to: (InodeNo, &str), flags: RenameFlags) -> fs::Result<()> {
    volume.fs.rename(&Caller::root(), from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
}

#[test]
fn a_file_replaces_another() {
    let volume = Volume::new();
    let (a, b) = (volume.file(ROOT, "a").inode(), volume.file(ROOT, "b").inode());
    rename(&volume, (ROOT, "a"), (ROOT, "b"), PLAIN).unwrap();
    assert_eq!(volume.find(ROOT, "b"), Ok(a));
    assert_eq!(volume.find(ROOT, "a"), Err(FsError::NotFound));
    assert_eq!(volume.fs.attributes(b).unwrap().links, 0);
    assert_eq!(volume.names(ROOT), ["b"]);
    volume.settle_and_check();
}

#[test]
fn directories_move_with_their_dot_dot_but_not_below_themselves() {
    let volume = Volume::new();
    let (a, b) = (volume.directory(ROOT, "a"), volume.directory(ROOT, "b"));
    let inner = volume.directory(a, "inner");
    rename(&volume, (a, "inner"), (b, "moved"), PLAIN).unwrap();
    assert_eq!(volume.find(inner, ".."), Ok(b));
    let links = |inode| volume.fs.attributes(inode).unwrap().links;
    assert_eq!((links(a), links(b)), (2, 3));
    assert_eq!(rename(&volume, (ROOT, "b"), (inner, "b"), PLAIN), Err(FsError::Invalid));
    assert_eq!(rename(&volume, (ROOT, "b"), (b, "b"), PLAIN), Err(FsError::Invalid));
    assert_eq!(rename(&volume, (b, "moved"), (ROOT, "b"), PLAIN), Err(FsError::NotEmpty));
    rename(&volume, (ROOT, "b"), (ROOT, "a"), PLAIN).unwrap();
    assert_eq!(volume.find(ROOT, "a"), Ok(b));
    volume.settle_and_check();
}

#[test]
fn the_kinds_of_source_and_target_must_match() {
    let volume = Volume::new();
    drop(volume.file(ROOT, "f"));
    volume.directory(ROOT, "d");
    assert_eq!(rename(&volume, (ROOT, "f"), (ROOT, "d"), PLAIN), Err(FsError::IsDirectory));
    assert_eq!(rename(&volume, (ROOT, "d"), (ROOT, "f"), PLAIN), Err(FsError::NotDirectory));
    assert_eq!(rename(&volume, (ROOT, "none"), (ROOT, "f"), PLAIN), Err(FsError::NotFound));
    let no_replace = RenameFlags { no_replace: true, ..PLAIN };
    assert_eq!(rename(&volume, (ROOT, "f"), (ROOT, "d"), no_replace), Err(FsError::Exists));
    rename(&volume, (ROOT, "f"), (ROOT, "g"), no_replace).unwrap();
    let both = RenameFlags { exchange: true, ..no_replace };
    assert_eq!(rename(&volume, (ROOT, "g"), (ROOT, "d"), both), Err(FsError::Invalid));
}

#[test]
fn two_names_of_one_inode_stay() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "a").inode();
    volume.fs.link(&Caller::root(), inode, ROOT, b"b").unwrap();
    rename(&volume, (ROOT, "a"), (ROOT, "b"), PLAIN).unwrap();
    assert_eq!(volume.names(ROOT), ["a", "b"]);
    rename(&volume, (ROOT, "a"), (ROOT, "a"), PLAIN).unwrap();
    volume.settle_and_check();
}

#[test]
fn an_exchange_swaps_inodes_of_any_kind() {
    let volume = Volume::new();
    let exchange = RenameFlags { exchange: true, ..PLAIN };
    let (a, b) = (volume.directory(ROOT, "a"), volume.directory(ROOT, "b"));
    let file = volume.file(a, "x").inode();
    let directory = volume.directory(b, "y");
    volume.directory(directory, "deep");
    rename(&volume, (a, "x"), (b, "y"), exchange).unwrap();
    assert_eq!((volume.find(a, "x"), volume.find(b, "y")), (Ok(directory), Ok(file)));
    assert_eq!(volume.find(directory, ".."), Ok(a));
    let links = |inode| volume.fs.attributes(inode).unwrap().links;
    assert_eq!((links(a), links(b)), (3, 2));
    assert_eq!(rename(&volume, (a, "x"), (ROOT, "a"), exchange), Err(FsError::Invalid));
    assert_eq!(rename(&volume, (a, "x"), (b, "none"), exchange), Err(FsError::NotFound));
    let other = volume.directory(b, "other");
    rename(&volume, (a, "x"), (b, "other"), exchange).unwrap();
    assert_eq!((volume.find(directory, ".."), volume.find(other, "..")), (Ok(b), Ok(a)));
    rename(&volume, (ROOT, "a"), (ROOT, "b"), exchange).unwrap();
    assert_eq!((volume.find(ROOT, "a"), volume.find(ROOT, "b")), (Ok(b), Ok(a)));
    volume.settle_and_check();
}

#[test]
fn a_whiteout_is_left_behind() {
    let volume = Volume::new();
    let whiteout = RenameFlags { whiteout: true, ..PLAIN };
    let directory = volume.directory(ROOT, "d");
    let moved = volume.file(ROOT, "f").inode();
    drop(volume.file(directory, "g"));
    rename(&volume, (ROOT, "f"), (directory, "g"), whiteout).unwrap();
    assert_eq!(volume.find(directory, "g"), Ok(moved));
    let left = volume.fs.lookup(&Caller::root(), ROOT, b"f").unwrap();
    assert_eq!((left.kind, left.device, left.links), (Kind::CharDevice, 0, 1));
    rename(&volume, (directory, "g"), (directory, "h"), whiteout).unwrap();
    assert_eq!(volume.names(directory), ["g", "h"]);
    volume.settle_and_check();
}

#[test]
fn many_threads_move_directories_and_none_gets_lost() {
    let volume = Volume::new();
    let directories: Vec<InodeNo> = (0..4).map(|n| volume.directory(ROOT, &format!("d{n}"))).collect();
    for (n, directory) in directories.iter().enumerate() {
        volume.directory(*directory, &format!("s{n}"));
    }
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (volume, directories) = (&volume, &directories);
            scope.spawn(move || {
                let mut rng = rt::random::Rng::with_seed(thread);
                for _ in 0..300 {
                    let all: Vec<InodeNo> = directories.iter().copied().chain([ROOT]).collect();
                    let (from, to) = (all[rng.usize(..all.len())], all[rng.usize(..all.len())]);
                    let name = format!("{}{}", if rng.bool() { 'd' } else { 's' }, rng.u8(..4));
                    let exchange = RenameFlags { exchange: rng.u8(..4) == 0, ..PLAIN };
                    // Most names are elsewhere by now. Nothing may get lost or hang.
                    let _ = rename(volume, (from, &name), (to, &name), exchange);
                }
            });
        }
    });
    volume.settle_and_check();
    for directory in directories {
        assert!(volume.fs.attributes(directory).unwrap().links >= 2);
    }
}

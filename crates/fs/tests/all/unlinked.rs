//! Files and directories without a name that a kernel still references.

use std::sync::Arc;

use fs::{ACL_ACCESS, Caller, Changes, FsError, InodeNo, Kind, RenameFlags};
use rt::sync::Mutex;

use crate::support::{READ_WRITE, Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

/// A volume that serves a kernel, and a closed file.
fn with_closed_file(contents: &[u8]) -> (Volume, InodeNo) {
    let volume = Volume::new();
    volume.fs.keep_unlinked();
    let handle = volume.file(ROOT, "f");
    volume.write(&handle, 0, contents);
    (volume, handle.inode())
}

fn is_stale(volume: &Volume, inode: InodeNo) -> bool {
    matches!(volume.fs.open(&Caller::root(), inode, READ_WRITE), Err(FsError::Stale))
}

/// A program looked a file up, another program replaced it, and the first one got ESTALE when it opened, truncated or
/// changed the file. So did every program that read a file that was bind-mounted by itself.
#[test]
fn a_file_that_was_looked_up_can_be_used_after_it_was_replaced() {
    for length in [100, 50_000] {
        let contents = pattern(1, length);
        let (volume, inode) = with_closed_file(&contents);
        let root = Caller::root();
        drop(volume.file(ROOT, "new"));
        volume.fs.rename(&root, ROOT, b"new", ROOT, b"f", RenameFlags::default()).unwrap();
        volume.settle_and_check();
        assert_eq!(volume.contents(&volume.open(inode)), contents);
        volume.fs.set_xattr(&root, inode, b"user.a", b"1", false, false).unwrap();
        assert_eq!(volume.fs.attributes(inode).unwrap().links, 0);
        assert_eq!(volume.contents(&volume.open(inode)), contents, "closing it again does not end it");

        volume.fs.forget(inode);
        assert!(is_stale(&volume, inode));
        volume.settle_and_check();
        assert_eq!(volume.fs.space().live, 0);
    }
}

/// A mount of a process that also removes names by itself: the kernel does not forget what it has never looked up, so
/// such files stayed until the mount ended. The process learns of each.
#[test]
fn inodes_that_lose_their_last_name_are_reported() {
    let (volume, root) = (Volume::new(), Caller::root());
    let reported = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&reported);
    volume.fs.keep_unlinked_and_report(Arc::new(move |inode| noted.lock().push(inode)));
    let [one, two, three] = ["one", "two", "three"].map(|name| {
        let handle = volume.file(ROOT, name);
        volume.write(&handle, 0, &pattern(1, 50_000));
        handle.inode()
    });
    let directory = volume.fs.make_directory(&root, ROOT, b"directory", 0o755).unwrap().inode;
    volume.fs.link(&root, three, ROOT, b"four").unwrap();
    volume.fs.unlink(&root, ROOT, b"three").unwrap();
    volume.fs.rename(&root, ROOT, b"one", ROOT, b"two", RenameFlags::default()).unwrap();
    volume.fs.remove_directory(&root, ROOT, b"directory").unwrap();
    volume.fs.unlink(&root, ROOT, b"two").unwrap();
    assert_eq!(*reported.lock(), [two, directory, one]);
    reported.lock().drain(..).for_each(|inode| volume.fs.forget(inode));
    assert!([one, two].into_iter().all(|inode| is_stale(&volume, inode)));
    volume.fs.forget_all();
    volume.fs.unlink(&root, ROOT, b"four").unwrap();
    assert_eq!(*reported.lock(), [], "nothing is reported after the end of the mount");
    volume.settle_and_check();
    assert_eq!(volume.fs.space().live, 0);
}

/// A program that had a directory open lost it when another one removed it, and its inode left memory. Only files
/// were kept.
#[test]
fn a_removed_directory_exists_until_it_is_forgotten() {
    let root = Caller::root();
    for (with_attribute, is_replaced) in [(false, false), (false, true), (true, false), (true, true)] {
        let volume = Volume::new();
        volume.fs.keep_unlinked();
        let inode = volume.directory(ROOT, "d");
        if with_attribute {
            volume.fs.set_xattr(&root, inode, b"user.a", b"1", false, false).unwrap();
        }
        match is_replaced {
            true => {
                volume.directory(ROOT, "new");
                volume.fs.rename(&root, ROOT, b"new", ROOT, b"d", RenameFlags::default()).unwrap();
            }
            false => volume.fs.remove_directory(&root, ROOT, b"d").unwrap(),
        }
        // Many more inodes than memory keeps.
        (0..3000).for_each(|number| drop(volume.file(ROOT, &format!("f{number}"))));
        volume.settle_and_check();
        let changed = Changes { permissions: Some(0o700), ..Changes::default() };
        let found = volume.fs.set_attributes(&root, inode, &changed).unwrap();
        assert_eq!((found.links, found.permissions, found.kind), (0, 0o700, Kind::Directory));
        assert_eq!(volume.fs.get_xattr(&root, inode, b"user.a").is_ok(), with_attribute);
        let made = volume.fs.make_directory(&root, inode, b"sub", 0o755);
        assert_eq!(made.map(drop), Err(FsError::NotFound));
        volume.fs.sync().unwrap();
        match is_replaced {
            true => volume.fs.forget_all(),
            false => volume.fs.forget(inode),
        }
        volume.settle_and_check();
        // Memory keeps the last state of a removed directory, so a new mount is asked.
        let volume = volume.kill();
        volume.settle_and_check();
        let volume = volume.remount();
        assert_eq!(volume.fs.attributes(inode).map(drop), Err(FsError::Stale));
    }
}

/// After a crash nothing of it is left.
#[test]
fn removed_directories_are_gone_after_a_crash() {
    let root = Caller::root();
    let volume = Volume::new();
    volume.fs.keep_unlinked();
    let inodes = ["plain", "with-attribute", "changed"].map(|name| volume.directory(ROOT, name));
    volume.fs.set_xattr(&root, inodes[1], b"user.a", b"1", false, false).unwrap();
    for name in [&b"plain"[..], b"with-attribute", b"changed"] {
        volume.fs.remove_directory(&root, ROOT, name).unwrap();
    }
    volume.fs.set_xattr(&root, inodes[2], b"user.a", b"1", false, false).unwrap();
    volume.fs.sync().unwrap();
    let volume = volume.kill();
    volume.settle_and_check();
    let volume = volume.remount();
    for inode in inodes {
        assert_eq!(volume.fs.attributes(inode).map(drop), Err(FsError::Stale));
    }
    assert!(!volume.fs.has_xattrs().unwrap());
}

#[test]
fn an_open_file_that_is_forgotten_is_deleted_when_it_is_closed() {
    let (volume, inode) = with_closed_file(&pattern(1, 50_000));
    let handle = volume.open(inode);
    volume.unlink(ROOT, "f").unwrap();
    volume.fs.forget(inode);
    assert_eq!(volume.contents(&handle), pattern(1, 50_000));
    drop(handle);
    assert!(is_stale(&volume, inode));
    volume.settle_and_check();
}

#[test]
fn unlinked_files_are_gone_after_a_crash() {
    for length in [100, 50_000] {
        let (volume, inode) = with_closed_file(&pattern(1, length));
        volume.unlink(ROOT, "f").unwrap();
        volume.fs.sync().unwrap();
        let volume = volume.kill();
        volume.settle_and_check();
        assert!(is_stale(&volume, inode));
        assert_eq!(volume.fs.space().live, 0);
    }
}

/// Only memory has a small file that was removed while the kernel references it. It can be read and changed all the
/// same. What needs rows makes an orphan of it, and a crash must not leave these rows without one.
#[test]
fn a_small_unlinked_file_is_used_like_any_other() {
    let root = Caller::root();
    let contents = pattern(1, 700);
    let spill = |volume: &Volume, inode| volume.write(&volume.open(inode), 700, &pattern(2, 50_000));
    let set =
        |volume: &Volume, inode| volume.fs.set_xattr(&root, inode, b"user.a", b"1", false, false).unwrap();
    let clone = |volume: &Volume, inode| {
        let source = volume.file(ROOT, "source");
        volume.write(&source, 0, &pattern(3, 8192));
        volume.fs.clone_range(&source, 0, &volume.open(inode), 4096, 8192).unwrap();
    };
    type Work<'a> = &'a dyn Fn(&Volume, InodeNo);
    for (number, change) in [&spill as Work<'_>, &set, &clone].into_iter().enumerate() {
        for is_killed in [false, true] {
            let (volume, inode) = with_closed_file(&contents);
            let commits = || volume.fs.store().stats().commits;
            let before = commits();
            volume.unlink(ROOT, "f").unwrap();
            assert_eq!(volume.contents(&volume.open(inode)), contents);
            volume.write(&volume.open(inode), 10, b"changed");
            let longer = Changes { size: Some(705), permissions: Some(0o600), ..Changes::default() };
            let attributes = volume.fs.set_attributes(&root, inode, &longer).unwrap();
            assert_eq!((attributes.links, attributes.permissions, attributes.size), (0, 0o600, 705));
            assert_eq!(commits(), before + 1, "memory has the only record");
            assert_eq!(volume.fs.check().unwrap(), []);

            change(&volume, inode);
            assert!(commits() > before + 1, "change {number}");
            assert_eq!(volume.fs.check().unwrap(), [], "change {number}");
            assert_eq!(volume.contents(&volume.open(inode))[10..17], *b"changed");
            let linked = volume.fs.link(&root, inode, ROOT, b"again");
            assert_eq!(linked.map(|_| ()), Err(FsError::NotFound), "it stays without a name");
            volume.fs.sync().unwrap();
            let volume = match is_killed {
                true => volume.kill(),
                false => {
                    volume.fs.forget(inode);
                    volume
                }
            };
            volume.settle_and_check();
            assert!(is_stale(&volume, inode), "change {number}");
            let _ = volume.unlink(ROOT, "source");
            volume.fs.forget_all();
            volume.settle_and_check();
            assert_eq!(volume.fs.space().live, 0, "change {number}");
        }
    }
}

/// It is forgotten, or closed, while the volume is read-only.
#[test]
fn a_small_unlinked_file_is_gone_when_a_read_only_volume_becomes_writable() {
    let (volume, inode) = with_closed_file(b"contents");
    volume.unlink(ROOT, "f").unwrap();
    let handle = volume.open(inode);
    volume.fs.make_read_only().unwrap();
    assert_eq!(volume.contents(&handle), b"contents");
    assert_eq!(volume.fs.write(&handle, 0, b"no").unwrap_err(), FsError::ReadOnly);
    volume.fs.forget(inode);
    drop(handle);
    volume.fs.make_writable().unwrap();
    assert!(is_stale(&volume, inode));
    volume.fs.make_read_only().unwrap();
}

#[test]
fn forgetting_everything_deletes_all_unlinked_files() {
    let (volume, inode) = with_closed_file(b"contents");
    drop(volume.file(ROOT, "named"));
    volume.unlink(ROOT, "f").unwrap();
    volume.fs.forget_all();
    assert!(is_stale(&volume, inode));
    let named = volume.find(ROOT, "named").unwrap();
    volume.fs.forget(named);
    drop(volume.open(named));
    volume.settle_and_check();
}

/// Deleted files free their space at once, as they do without a kernel.
#[test]
fn unlinked_files_give_up_their_space_when_it_is_needed() {
    let volume = Volume::new();
    volume.fs.keep_unlinked();
    let piece = pattern(9, 256 << 10);
    for round in 0..3_u64 {
        let handle = volume.file(ROOT, "f");
        let size = (0..).map(|at| at * piece.len() as u64);
        let full = size.map(|at| volume.fs.write(&handle, at, &piece)).position(|done| done.is_err());
        assert!(full > Some(40), "round {round}: {full:?} pieces");
        drop(handle);
        volume.unlink(ROOT, "f").unwrap();
    }
    volume.settle_and_check();
}

/// `ln -sfn` replaces a link that another program is about to follow.
#[test]
fn the_target_of_a_link_can_be_read_after_it_was_replaced() {
    let volume = Volume::new();
    let root = Caller::root();
    let link = volume.fs.symlink(&root, ROOT, b"current", b"releases/1").unwrap().inode;
    volume.fs.symlink(&root, ROOT, b"next", b"releases/2").unwrap();
    volume.fs.rename(&root, ROOT, b"next", ROOT, b"current", RenameFlags::default()).unwrap();
    assert_eq!(volume.fs.read_link(link), Ok(b"releases/1".to_vec()));
    volume.settle_and_check();
}

/// A program that opened a deleted pipe again, or looked into its own deleted directory, and was not the owner, got
/// ESTALE: the kernel requests the access list.
#[test]
fn a_deleted_inode_has_no_access_list() {
    let volume = Volume::new();
    let root = Caller::root();
    let pipe = volume.fs.make_node(&root, ROOT, b"pipe", Kind::Fifo, 0o666, 0).unwrap().inode;
    let directory = volume.directory(ROOT, "d");
    volume.unlink(ROOT, "pipe").unwrap();
    volume.fs.remove_directory(&root, ROOT, b"d").unwrap();
    for inode in [pipe, directory] {
        assert_eq!(volume.fs.get_xattr(&root, inode, ACL_ACCESS), Err(FsError::NoAttribute));
        assert_eq!(volume.fs.list_xattrs(&root, inode), Ok(Vec::new()));
        assert_eq!(volume.fs.get_xattr(&root, inode, b"user.a"), Err(FsError::NoAttribute));
    }
}

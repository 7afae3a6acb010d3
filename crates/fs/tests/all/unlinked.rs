//! Files without a name that a kernel still references.

use fs::{ACL_ACCESS, Caller, FsError, InodeNo, Kind, RenameFlags};

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
    let (volume, inode) = with_closed_file(&pattern(1, 50_000));
    volume.unlink(ROOT, "f").unwrap();
    volume.fs.sync().unwrap();
    let volume = volume.kill();
    volume.settle_and_check();
    assert!(is_stale(&volume, inode));
    assert_eq!(volume.fs.space().live, 0);
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

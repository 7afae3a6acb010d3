//! Hard links, files without a name, and their deletion.

use fs::{Caller, FsError, Handle, InodeNo};

use crate::support::{READ_WRITE, Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

#[test]
fn an_inode_lives_until_its_last_name_and_handle_are_gone() {
    let volume = Volume::new();
    let root = Caller::root();
    let handle = volume.file(ROOT, "a");
    let inode = handle.inode();
    volume.write(&handle, 0, &pattern(1, 50_000));
    assert_eq!(volume.fs.link(&root, inode, ROOT, b"b").unwrap().links, 2);
    volume.unlink(ROOT, "a").unwrap();
    assert_eq!(volume.find(ROOT, "b"), Ok(inode));
    volume.unlink(ROOT, "b").unwrap();
    assert_eq!(volume.fs.attributes(inode).unwrap().links, 0);
    volume.write(&handle, 50_000, b"still here");
    assert!(volume.contents(&handle).ends_with(b"still here"));
    assert_eq!(volume.fs.link(&root, inode, ROOT, b"c").unwrap_err(), FsError::NotFound);
    volume.settle_and_check();
    drop(handle);
    assert_eq!(volume.fs.open(&root, inode, READ_WRITE).map(|_| ()), Err(FsError::Stale));
    volume.settle_and_check();
    assert_eq!(volume.fs.space().live, 0);
}

#[test]
fn directories_have_no_second_name() {
    let volume = Volume::new();
    let directory = volume.directory(ROOT, "d");
    let refused = volume.fs.link(&Caller::root(), directory, ROOT, b"e");
    assert_eq!(refused.unwrap_err(), FsError::NotPermitted);
}

#[test]
fn open_files_without_a_name_are_gone_after_a_crash() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let inode = handle.inode();
    volume.write(&handle, 0, &pattern(1, 3_000_000));
    volume.fs.set_xattr(&Caller::root(), inode, b"user.a", b"1", false, false).unwrap();
    volume.unlink(ROOT, "f").unwrap();
    volume.fs.sync().unwrap();
    let volume = volume.kill();
    drop(handle);
    volume.settle_and_check();
    assert_eq!(volume.fs.open(&Caller::root(), inode, READ_WRITE).map(|_| ()), Err(FsError::Stale));
    assert_eq!(volume.fs.space().live, 0);
}

#[test]
fn a_temporary_file_can_get_a_name_once() {
    let volume = Volume::new();
    let root = Caller::root();
    let (attributes, handle) = volume.fs.temporary_file(&root, ROOT, 0o640, READ_WRITE).unwrap();
    assert_eq!((attributes.links, attributes.permissions), (0, 0o640));
    volume.write(&handle, 0, b"prepared");
    assert_eq!(volume.names(ROOT), [""; 0]);
    volume.fs.link(&root, handle.inode(), ROOT, b"done").unwrap();
    volume.settle_and_check();
    volume.unlink(ROOT, "done").unwrap();
    let again = volume.fs.link(&root, handle.inode(), ROOT, b"again");
    assert_eq!(again.unwrap_err(), FsError::NotFound);
    drop(handle);
    drop(volume.fs.temporary_file(&root, ROOT, 0o640, READ_WRITE).unwrap());
    volume.settle_and_check();
}

#[test]
fn big_files_are_deleted_and_truncated_in_steps_that_survive_a_kill() {
    let volume = Volume::on(emulated::Spec::new(4096, 64, 512));
    let (big, cut) = (volume.file(ROOT, "big"), volume.file(ROOT, "cut"));
    // Every other block: as many extents as blocks.
    for handle in [&big, &cut] {
        (0..600).for_each(|n| volume.write(handle, n * 8192, &[n as u8; 4096]));
    }
    let size = fs::Changes { size: Some(5000), ..fs::Changes::default() };
    let cut_inode = cut.inode();
    volume.fs.set_attributes(&Caller::root(), cut_inode, &size).unwrap();
    volume.unlink(ROOT, "big").unwrap();
    drop((big, cut));
    volume.fs.sync().unwrap();
    let volume = volume.kill();
    let cut = volume.open(cut_inode);
    assert_eq!(volume.contents(&cut).len(), 5000);
    volume.write(&cut, 600_000, b"x");
    let contents = volume.contents(&cut);
    assert!(contents[4096..600_000].iter().all(|byte| *byte == 0), "no byte of before comes back");
    volume.settle_and_check();
}

/// A file of many extents is emptied in steps. The first small write ends the last step, after which the contents are
/// inline: they were recorded as inline, but were not there, and the next mount took the record for damaged. The same
/// with references of a clone.
#[test]
fn the_first_small_contents_after_a_long_truncation() {
    for (at, small) in [(0, &b"small"[..]), (100, b"small"), (0, &[7; 5000]), (9000, b"x")] {
        let volume = Volume::on(emulated::Spec::new(4096, 64, 512));
        let (file, source, target) = (volume.file(ROOT, "f"), volume.file(ROOT, "s"), volume.file(ROOT, "t"));
        volume.write(&source, 0, &[9; 9000]);
        let cut_to = |handle: &Handle, size| {
            let size = fs::Changes { size: Some(size), ..fs::Changes::default() };
            volume.fs.set_attributes(&Caller::root(), handle.inode(), &size).unwrap();
        };
        cut_to(&source, 100);
        for handle in [&file, &target] {
            (0..600).for_each(|n| volume.write(handle, n * 8192, &[n as u8; 4096]));
            cut_to(handle, 0);
        }
        volume.write(&file, at as u64, small);
        volume.fs.clone_range(&source, 0, &target, 0, 0).unwrap();
        let expected = [&vec![0; at], small].concat();
        assert_eq!(volume.contents(&file), expected);
        assert_eq!(volume.contents(&target), [9; 100]);
        volume.settle_and_check();
        let inodes = [file.inode(), target.inode()];
        drop((file, source, target));
        let volume = volume.remount();
        let contents = inodes.map(|inode| volume.contents(&volume.open(inode)));
        assert_eq!(contents, [expected, vec![9; 100]]);
        ["f", "s", "t"].into_iter().for_each(|name| volume.unlink(ROOT, name).unwrap());
        volume.settle_and_check();
        assert_eq!(volume.fs.extents().budget().space().live, 0, "nothing is left");
    }
}

#[test]
fn links_are_counted_up_to_a_limit() {
    use fs::format::{INODE, Record, inode_key};
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    let directory = volume.directory(ROOT, "d");
    let plant = |inode: InodeNo| {
        let store = volume.fs.store();
        let group = store.group_of(inode.0);
        let mut record =
            Record::decode(&store.get(group, INODE, &inode_key(inode)).unwrap().unwrap()).unwrap();
        record.links = i32::MAX as u32;
        let mut tx = tree::Tx::new();
        tx.put(group, INODE, inode_key(inode), record.encode());
        store.commit(tx).unwrap();
    };
    plant(inode);
    plant(directory);
    let volume = volume.remount();
    let root = Caller::root();
    assert_eq!(volume.fs.link(&root, inode, ROOT, b"g").unwrap_err(), FsError::TooManyLinks);
    assert_eq!(volume.fs.make_directory(&root, directory, b"x", 0o755).unwrap_err(), FsError::TooManyLinks);
    assert!(volume.fs.make_node(&root, directory, b"y", fs::Kind::File, 0o644, 0).is_ok());
}

/// Blocks with holes in between: more of them than are deleted at once.
fn write_in_pieces(volume: &Volume, handle: &fs::Handle) {
    (0..300).for_each(|piece| volume.write(handle, piece * 8192, &pattern(piece as u8, 4096)));
}

/// A kernel that has the name cached still opens the file after its last name is removed. A part of its contents may
/// be gone by then.
#[test]
fn a_file_that_is_being_deleted_cannot_be_opened() {
    let volume = Volume::new();
    let handle = volume.file(ROOT, "f");
    let inode = handle.inode();
    write_in_pieces(&volume, &handle);
    drop(handle);
    volume.unlink(ROOT, "f").unwrap();
    assert_eq!(volume.fs.attributes(inode).unwrap().links, 0, "not all of it has gone yet");
    assert_eq!(volume.fs.open(&Caller::root(), inode, READ_WRITE).map(|_| ()), Err(FsError::Stale));
    volume.settle_and_check();
    assert_eq!(volume.fs.space().live, 0);
}

/// A file that was being deleted in steps could be opened or linked: its beginning read as zeros. It is ESTALE.
#[test]
fn a_file_that_is_being_deleted_gets_no_name() {
    let volume = Volume::new();
    let root = Caller::root();
    let (attributes, handle) = volume.fs.temporary_file(&root, ROOT, 0o640, READ_WRITE).unwrap();
    write_in_pieces(&volume, &handle);
    drop(handle);
    assert_eq!(volume.fs.attributes(attributes.inode).unwrap().links, 0, "not all of it has gone yet");
    let linked = volume.fs.link(&root, attributes.inode, ROOT, b"late");
    assert_eq!(linked.unwrap_err(), FsError::NotFound);
    volume.settle_and_check();
    assert_eq!(volume.fs.space().live, 0);
}

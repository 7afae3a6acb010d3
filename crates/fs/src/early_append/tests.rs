use super::*;
use crate::tests::volume;
use crate::{Caller, InodeNo, Kind, OpenFlags};

const BLOCK: usize = 4096;

/// Writes that depend on the state of the file are done under the lock.
#[test]
fn only_whole_blocks_at_a_known_offset_are_appended_before_the_lock() {
    let (_device, fs) = volume();
    let root = Caller::root();
    let flags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };
    let file = |name: &[u8], flags| {
        let inode = fs.make_node(&root, InodeNo::ROOT, name, Kind::File, 0o644, 0).unwrap().inode;
        fs.open(&root, inode, flags).unwrap()
    };
    let early = |handle: &Handle, offset: usize, length: usize| {
        fs.begin_write(handle, Some(offset as u64), &vec![1; length]).unwrap().is_some()
    };
    let plain = file(b"plain", flags);
    assert!(early(&plain, 0, BLOCK) && early(&plain, 5 * BLOCK, BLOCK), "an empty file");
    fs.write(&plain, 0, &[7; 100]).unwrap();
    assert!(early(&plain, 0, BLOCK), "the contents in its record are replaced");
    assert!(early(&plain, BLOCK, BLOCK), "they end before the second block");
    fs.write(&plain, 0, &[7; 9 * BLOCK + 100]).unwrap();
    assert!(early(&plain, 0, BLOCK));
    assert!(early(&plain, 9 * BLOCK, BLOCK + 5), "behind the end there is nothing");
    assert!(!early(&plain, BLOCK, BLOCK + 5), "a block's rest is the file's");
    assert!(!early(&plain, 5, 2 * BLOCK));
    assert!(!early(&plain, 0, BLOCK - 1));
    assert!(early(&plain, BLOCK, PIECE as usize));
    assert!(!early(&plain, 0, 1 + PIECE as usize));
    let appending = fs.open(&root, plain.inode(), OpenFlags { append: true, ..flags }).unwrap();
    assert!(!early(&appending, 0, BLOCK));
    assert!(
        fs.begin_write(&plain, None, &[1; BLOCK]).unwrap().is_none(),
        "the end is known under the lock only"
    );
    let copy = file(b"copy", flags);
    fs.clone_range(&plain, 0, &copy, 0, 0).unwrap();
    assert!(!early(&plain, 0, BLOCK) && !early(&copy, 0, BLOCK), "shared blocks belong to other files too");
    drop((plain, appending, copy));
    assert_eq!(fs.check().unwrap(), []);
}

/// The reservation of a thread that waits for a lock must not be missing to the thread that holds it.
#[test]
fn nothing_is_appended_before_the_lock_when_space_is_scarce() {
    let (_device, fs) = volume();
    let root = Caller::root();
    let inode = fs.make_node(&root, InodeNo::ROOT, b"f", Kind::File, 0o644, 0).unwrap().inode;
    let flags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };
    let handle = fs.open(&root, inode, flags).unwrap();
    let piece = vec![3; 256 << 10];
    let mut at = 0;
    while fs.write(&handle, at, &piece) == Ok(piece.len()) {
        at += piece.len() as u64;
        let available = fs.extents.budget().space().available;
        let was_appended = fs.begin_write(&handle, Some(0), &piece[..BLOCK]).unwrap().is_some();
        assert!(!was_appended || available > 256 * BLOCK as u64, "with {available} bytes left");
    }
    assert_eq!(fs.check().unwrap(), []);
}

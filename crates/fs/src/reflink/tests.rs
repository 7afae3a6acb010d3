use tree::Tx;

use super::*;
use crate::tests::volume;
use crate::{Caller, Kind, OpenFlags};

/// A mount finds the row of a copy that is being made: that is no remainder of an earlier mount.
#[test]
fn a_copy_that_is_being_made_is_ended_by_nobody_else() {
    let (_device, fs) = volume();
    let root = Caller::root();
    let inode = fs.make_node(&root, InodeNo::ROOT, b"f", Kind::File, 0o644, 0).unwrap().inode;
    let flags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };
    let handle = fs.open(&root, inode, flags).unwrap();
    fs.write(&handle, 0, &[7; 50_000]).unwrap();
    let copy = Object(fs.numbers.next(&fs.store, fs.group(inode)).unwrap().0);
    fs.backlog.begin_making(copy);
    let mut change = Change::new();
    fs.add_shadow(&mut change, copy, None);
    fs.commit(change, &mut Locked::lock(&[])).unwrap();
    let mut tx = Tx::new();
    let (map, next) = fs.extents.refer(&mut tx, (Object(inode.0), copy), 0, STEP_EXTENTS).unwrap();
    fs.store.commit(tx).unwrap();
    drop(map);
    assert_eq!(next, None);
    let has_references = || !fs.extents.view_object(copy).unwrap().is_empty();
    assert_eq!(fs.work_on_shadow(copy, 0).unwrap(), None);
    assert!(has_references());
    assert_eq!(fs.check().unwrap(), []);
    // Had the power gone meanwhile, it would be one.
    fs.backlog.end_making(copy);
    assert_eq!(fs.work_on_shadow(copy, 0).unwrap(), None);
    assert!(!has_references());
    assert_eq!(fs.check().unwrap(), []);
}

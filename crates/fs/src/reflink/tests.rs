use tree::Tx;

use super::*;
use crate::tests::volume;
use crate::{Caller, Kind, OpenFlags};

/// The scan of a mount found the row of an object that an operation was building and took it for one that a crash had
/// left.
#[test]
fn an_object_that_is_being_built_is_removed_only_by_its_builder() {
    let (_device, fs) = volume();
    let root = Caller::root();
    let inode = fs.make_node(&root, InodeNo::ROOT, b"f", Kind::File, 0o644, 0).unwrap().inode;
    let flags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };
    let handle = fs.open(&root, inode, flags).unwrap();
    fs.write(&handle, 0, &[7; 50_000]).unwrap();
    let copy = Object(fs.numbers.next(&fs.store, fs.group(inode)).unwrap().0);
    fs.backlog.begin_building(copy);
    let mut change = Change::new();
    fs.put_uncounted(&mut change, copy, None);
    fs.commit(change, &mut Locked::lock(&[])).unwrap();
    let mut tx = Tx::new();
    let (map, next) = fs.extents.maps().refer(&mut tx, (Object(inode.0), copy), 0, STEP_EXTENTS).unwrap();
    fs.store.commit(tx).unwrap();
    drop(map);
    assert_eq!(next, None);
    let has_references = || !extent::view_object(fs.extents.maps(), copy).unwrap().is_empty();
    assert_eq!(fs.step_uncounted(copy, 0).unwrap(), None);
    assert!(has_references());
    assert_eq!(fs.check().unwrap(), []);
    // If power had been lost meanwhile, the object would be a remnant.
    fs.backlog.end_building(copy);
    assert_eq!(fs.step_uncounted(copy, 0).unwrap(), None);
    assert!(!has_references());
    assert_eq!(fs.check().unwrap(), []);
}

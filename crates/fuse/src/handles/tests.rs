use super::*;

#[test]
fn numbers_are_reused_and_never_shared() {
    let handles = Handles::new();
    let first = handles.insert(InodeNo(7), false, "first");
    let second = handles.insert(InodeNo(7), false, "second");
    assert_ne!(first, second);
    assert_eq!(*handles.remove(first).unwrap(), "first");
    assert!(handles.get(first).is_none());
    assert!(handles.remove(first).is_none());
    let third = handles.insert(InodeNo(7), false, "third");
    assert_eq!(third, first, "a free slot is taken before a new one is made");
    assert_eq!(*handles.get(second).unwrap(), "second");
    assert_eq!(*handles.get(third).unwrap(), "third");
}

#[test]
fn an_unknown_number_is_refused() {
    let handles = Handles::<()>::new();
    assert!(handles.get(HandleNo(u64::MAX)).is_none());
    assert!(handles.remove(HandleNo(12345)).is_none());
}

#[test]
fn writers_are_counted_by_inode() {
    let handles = Handles::new();
    let other = InodeNo(3 + SHARDS);
    let reader = handles.insert(InodeNo(3), false, ());
    assert!(!handles.has_writers(InodeNo(3)));
    let one = handles.insert(InodeNo(3), true, ());
    let two = handles.insert(InodeNo(3), true, ());
    assert!(handles.has_writers(InodeNo(3)));
    assert!(!handles.has_writers(other), "another inode of the same shard");
    handles.remove(one).unwrap();
    assert!(handles.has_writers(InodeNo(3)));
    handles.remove(two).unwrap();
    assert!(!handles.has_writers(InodeNo(3)));
    assert_eq!(handles.written(), []);
    handles.remove(reader).unwrap();
}

#[test]
fn a_handle_in_use_outlives_its_removal() {
    let handles = Handles::new();
    let number = handles.insert(InodeNo(1), true, String::from("open"));
    let held = handles.get(number).unwrap();
    drop(handles.remove(number));
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(*held, "open");
}

#[test]
fn a_shortage_is_noted_while_a_handle_can_write() {
    let handles = Handles::new();
    let inode = InodeNo(9);
    handles.note_shortage(inode);
    assert!(!handles.is_short(inode), "no handle can write");
    let writer = handles.insert(inode, true, ());
    handles.note_shortage(inode);
    let other = handles.insert(inode, true, ());
    handles.remove(writer).unwrap();
    assert!(handles.is_short(inode) && handles.take_shortage(inode));
    assert!(!handles.is_short(inode) && !handles.take_shortage(inode), "reported once");
    handles.note_shortage(inode);
    handles.remove(other).unwrap();
    assert!(!handles.is_short(inode));
}

#[test]
fn a_count_of_blocks_is_outdated_once_and_only_while_a_handle_can_write() {
    let (handles, inode) = (Handles::new(), InodeNo(3));
    let reader = handles.insert(inode, false, ());
    handles.note_blocks_reported(inode, 8);
    assert!(!handles.take_outdated(inode, 800), "the kernel asks again when it is closed");
    let writer = handles.insert(inode, true, ());
    assert!(!handles.take_outdated(inode, 0), "nothing was reported since");
    handles.note_blocks_reported(inode, 640);
    assert!(!handles.take_outdated(inode, 650), "a 64th more");
    assert!(!handles.take_outdated(inode, 630));
    assert!(handles.take_outdated(inode, 651));
    assert!(!handles.take_outdated(inode, 6500), "it has to ask anyway");
    handles.note_blocks_reported(inode, 6500);
    assert!(handles.take_outdated(inode, 8), "and where there is less");
    handles.remove(reader).unwrap();
    handles.remove(writer).unwrap();
    assert!(!handles.take_outdated(inode, 8));
}

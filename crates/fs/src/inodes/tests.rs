use super::*;

#[test]
fn referenced_nodes_stay_and_others_are_evicted() {
    let inodes = Inodes::new(64);
    let held: Vec<_> = (0..10).map(|n| inodes.node(InodeNo(n))).collect();
    (100..5000).for_each(|n| drop(inodes.node(InodeNo(n))));
    assert!(inodes.len() <= 64 + SHARDS + held.len(), "{} nodes", inodes.len());
    for node in held {
        assert!(Arc::ptr_eq(&node, &inodes.node(node.inode)), "there is one node of each inode");
    }
}

#[test]
fn a_deleted_inode_keeps_its_last_record_without_links() {
    let inodes = Inodes::new(64);
    let node = inodes.node(InodeNo(5));
    let mut locked = Locked::one(&node);
    let record = Record { links: 1, uid: 7, ..Record::empty(rt::Timestamp(1)) };
    locked.install(InodeNo(5), record);
    assert_eq!(locked.record(InodeNo(5)).map(|record| record.uid), Ok(7));
    locked.remove(InodeNo(5));
    assert_eq!(locked.record(InodeNo(5)), Err(FsError::Stale));
    drop(locked);
    assert!(matches!(&*node.state.read(), State::Gone(Some(Record { links: 0, uid: 7, .. }))));
}

#[test]
#[should_panic(expected = "in their order")]
fn locking_out_of_order_is_a_bug() {
    let inodes = Inodes::new(64);
    let nodes = [inodes.node(InodeNo(5)), inodes.node(InodeNo(4))];
    Locked::lock(&nodes);
}

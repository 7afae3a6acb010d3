//! Updates: the journal has the change of a value instead of the value.

use super::*;
use crate::{BatchContents, Patch};

const TABLE: Table = Table(1);

fn key(number: u32) -> Bytes {
    format!("key {number:08}").into_bytes()
}

fn value(number: u32, last: u8) -> Bytes {
    let mut value = vec![number as u8; 200];
    value[199] = last;
    value
}

fn update(store: &Store, numbers: std::ops::Range<u32>, last: u8) -> Lsn {
    let mut tx = Tx::new();
    numbers.for_each(|number| tx.update(Group(0), TABLE, key(number), value(number, last)));
    store.commit(tx).unwrap()
}

/// The writes of all records in the journal.
fn journal(store: &Store) -> Vec<Op> {
    let records = store.view_log().unwrap().into_iter().filter_map(|batch| match batch.kind {
        BatchContents::Journal(records) => records,
        _ => None,
    });
    records.flatten().flat_map(|(_, ops)| ops).collect()
}

#[test]
fn an_update_is_replayed_from_the_value_in_the_tables() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    update(&store, 0..20, 1);
    store.checkpoint().unwrap();
    for last in 2..5 {
        update(&store, 0..20, last);
    }
    let mut moved = Tx::new();
    moved.delete(Group(0), TABLE, key(3));
    moved.update(Group(0), TABLE, key(4), value(4, 1)[..20].to_vec());
    store.commit(moved).unwrap();
    update(&store, 3..5, 9);
    store.sync(store.last_lsn()).unwrap();
    let expected = contents(&store);
    assert_eq!(expected[&(0, 1, key(3))], value(3, 9));
    let logged = journal(&store);
    drop(store);
    let is_patch = |op: &&Op| matches!(op, Op::Patch { .. });
    // Key 4 becomes shorter and longer again. Key 3 is deleted, so it is put.
    assert_eq!(logged.iter().filter(is_patch).count(), 3 * 20 + 2);
    let (store, recovery) = open(&device).unwrap();
    assert!(recovery.records > 4);
    assert_eq!(contents(&store), expected);
    // The next recovery replays the same records, and more patches of their values.
    update(&store, 0..20, 7);
    store.sync(store.last_lsn()).unwrap();
    let expected = contents(&store);
    drop(store);
    assert_eq!(contents(&open(&device).unwrap().0), expected);
}

#[test]
fn a_key_that_is_new_or_written_twice_is_put() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    update(&store, 0..1, 1);
    let mut twice = Tx::new();
    for last in 2..4 {
        twice.update(Group(0), TABLE, key(0), value(0, last));
    }
    twice.update(Group(0), TABLE, key(1), value(1, 1));
    store.commit(twice).unwrap();
    store.sync(store.last_lsn()).unwrap();
    assert!(journal(&store).iter().all(|op| matches!(op, Op::Put { .. })));
    drop(store);
    let (store, _) = open(&device).unwrap();
    assert_eq!(store.get(Group(0), TABLE, &key(0)).unwrap(), Some(value(0, 3)));
}

#[test]
fn a_record_has_only_as_many_patches_as_recovery_accepts() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    update(&store, 0..100, 1);
    update(&store, 0..100, 2);
    store.sync(store.last_lsn()).unwrap();
    let expected = contents(&store);
    let patches = journal(&store).iter().filter(|op| matches!(op, Op::Patch { .. })).count();
    assert_eq!(patches, 64);
    drop(store);
    assert_eq!(contents(&open(&device).unwrap().0), expected);
}

/// Records that no release writes: the key is not there, or has a value for which the patch was not made.
#[test]
fn a_patch_of_another_value_does_not_fit() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    update(&store, 0..3, 1);
    let before = contents(&store);
    let patch = |number, old: &[u8]| {
        let patch = Patch::between(old, &value(number, 2));
        let ops = vec![Op::Patch { group: Group(0), table: TABLE, key: key(number).into(), patch }];
        store.core.transactions.without_patches(&ops).unwrap().map(|ops| ops.into_owned())
    };
    let put = |number, value| vec![Op::Put { group: Group(0), table: TABLE, key: key(number).into(), value }];
    assert_eq!(patch(1, &value(1, 1)).unwrap(), put(1, value(1, 2)));
    for (number, old) in [(9, value(9, 1)), (1, value(1, 2)), (1, Vec::new())] {
        let made = patch(number, &old);
        // The whole value is a patch of any value.
        match old.is_empty() {
            true => assert_eq!(made.unwrap(), put(1, value(1, 2))),
            false => assert_eq!(made, None, "{number}"),
        }
    }
    assert_eq!(contents(&store), before, "nothing was changed");
}

/// The volume could not be mounted at all, not even to copy what was there before the record.
#[test]
fn a_log_with_a_patch_that_does_not_fit_ends_before_it() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    update(&store, 0..3, 1);
    let before = contents(&store);
    let mut tx = Tx::new();
    let patch = Patch::between(&value(2, 7), &value(2, 2));
    tx.ops.push(Op::Patch { group: Group(0), table: TABLE, key: key(1).into(), patch });
    store.commit(tx).unwrap();
    update(&store, 4..6, 1);
    store.sync(store.last_lsn()).unwrap();
    drop(store);
    device.reopen();
    let refused = open(&device).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("changes a value") && refused.contains("-o ro"), "{refused}");
    for (read_only, accept_loss) in [(true, false), (false, true), (false, false)] {
        device.reopen();
        let config = Config { read_only, accept_loss, ..config() };
        let (store, recovery) = open_with(&device, &config).unwrap();
        assert_eq!(recovery.lost.is_some(), read_only || accept_loss);
        assert_eq!(contents(&store), before);
    }
}

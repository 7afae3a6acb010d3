use super::*;

const BLOCK: u32 = 4096;

/// The counts of inline blocks grew without a limit, and each insert scanned them under a lock. They are bounded.
#[test]
fn the_object_with_most_inline_blocks_is_chosen_if_it_has_many() {
    let counts = InlineCounts::default();
    counts.changed(Object(1), MANY as i64 - 1);
    assert_eq!(counts.next(BLOCK), None);
    counts.changed(Object(2), MANY as i64);
    counts.changed(Object(3), MANY as i64 + 1);
    assert_eq!(counts.next(BLOCK), Some(Object(3)));
    counts.forget(Object(3));
    assert_eq!(counts.next(BLOCK), Some(Object(2)));
    counts.changed(Object(2), -1);
    assert_eq!(counts.next(BLOCK), None);
}

#[test]
fn objects_with_few_are_chosen_if_all_together_have_too_many() {
    let counts = InlineCounts::default();
    let objects = MOVABLE_BYTES_MAX / u64::from(BLOCK) / SOME;
    (0..objects).for_each(|object| counts.changed(Object(object), SOME as i64));
    assert_eq!(counts.next(BLOCK), None);
    counts.changed(Object(objects), SOME as i64);
    let chosen = counts.next(BLOCK).unwrap();
    counts.changed(chosen, -(SOME as i64));
    assert_eq!(counts.next(BLOCK), None);
}

/// The counts of inline blocks grew without a limit, and each insert scanned them under a lock. They are bounded.
#[test]
fn single_inline_blocks_are_not_moved_and_their_counts_are_bounded() {
    let counts = InlineCounts::default();
    counts.changed(Object(0), MANY as i64 - 1);
    (1..3 * COUNTED_MAX as u64).for_each(|object| counts.changed(Object(object), 1));
    assert_eq!(counts.next(BLOCK), None);
    let guard = counts.counts.lock();
    assert_eq!((guard.of.len(), guard.order.len()), (COUNTED_MAX, COUNTED_MAX));
    assert_eq!(guard.movable, MANY - 1);
    drop(guard);
    counts.changed(Object(0), 1);
    assert_eq!(counts.next(BLOCK), Some(Object(0)), "an object with more is not dropped for single blocks");
}

#[test]
fn uncounted_inline_blocks_can_be_removed() {
    let counts = InlineCounts::default();
    counts.changed(Object(1), -3);
    counts.changed(Object(1), MANY as i64);
    assert_eq!(counts.next(BLOCK), Some(Object(1)));
    assert_eq!(counts.counts.lock().movable, MANY);
}

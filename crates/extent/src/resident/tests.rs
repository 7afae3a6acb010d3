use super::*;

const BLOCK: u32 = 4096;

#[test]
fn the_one_with_most_is_chosen_when_it_has_many() {
    let residents = Residents::default();
    residents.changed(Object(1), MANY as i64 - 1);
    assert_eq!(residents.next(BLOCK), None);
    residents.changed(Object(2), MANY as i64);
    residents.changed(Object(3), MANY as i64 + 1);
    assert_eq!(residents.next(BLOCK), Some(Object(3)));
    residents.forget(Object(3));
    assert_eq!(residents.next(BLOCK), Some(Object(2)));
    residents.changed(Object(2), -1);
    assert_eq!(residents.next(BLOCK), None);
}

#[test]
fn some_are_chosen_when_all_together_are_too_many() {
    let residents = Residents::default();
    let objects = MOVABLE_BYTES_MAX / u64::from(BLOCK) / SOME;
    (0..objects).for_each(|object| residents.changed(Object(object), SOME as i64));
    assert_eq!(residents.next(BLOCK), None);
    residents.changed(Object(objects), SOME as i64);
    let chosen = residents.next(BLOCK).unwrap();
    residents.changed(chosen, -(SOME as i64));
    assert_eq!(residents.next(BLOCK), None);
}

#[test]
fn single_blocks_are_neither_moved_nor_counted_without_end() {
    let residents = Residents::default();
    residents.changed(Object(0), MANY as i64 - 1);
    (1..3 * COUNTED_MAX as u64).for_each(|object| residents.changed(Object(object), 1));
    assert_eq!(residents.next(BLOCK), None);
    let counts = residents.counts.lock();
    assert_eq!((counts.of.len(), counts.order.len()), (COUNTED_MAX, COUNTED_MAX));
    assert_eq!(counts.movable, MANY - 1);
    drop(counts);
    residents.changed(Object(0), 1);
    assert_eq!(residents.next(BLOCK), Some(Object(0)), "one that has more outlives the singles");
}

#[test]
fn what_was_not_counted_can_go() {
    let residents = Residents::default();
    residents.changed(Object(1), -3);
    residents.changed(Object(1), MANY as i64);
    assert_eq!(residents.next(BLOCK), Some(Object(1)));
    assert_eq!(residents.counts.lock().movable, MANY);
}

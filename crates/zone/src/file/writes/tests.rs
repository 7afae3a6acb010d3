use super::*;

fn ended(accepted: bool, pointer: Option<Blocks>) -> Ended {
    Ended { accepted, pointer }
}

#[test]
fn writes_may_complete_in_any_order() {
    let mut writes = Writes::default();
    (0..3).for_each(|_| writes.begin());
    assert_eq!(writes.end(4, 4, true), ended(true, None));
    assert_eq!(writes.done, 8, "completed writes are covered, even if earlier ones are missing");
    assert_eq!(writes.end(0, 4, true), ended(true, None));
    assert_eq!(writes.end(8, 2, true), ended(true, None));
    assert_eq!((writes.done, writes.are_in_flight()), (10, false));
}

#[test]
fn writes_behind_a_failed_write_fail_too() {
    let mut writes = Writes::up_to(2);
    (0..3).for_each(|_| writes.begin());
    assert_eq!(writes.end(4, 2, false), ended(false, None));
    assert!(writes.are_failing());
    assert_eq!(writes.end(6, 2, true), ended(false, None));
    assert_eq!(writes.end(2, 2, true), ended(true, Some(4)));
    assert!(!writes.are_failing(), "the zone continues where the failed write began");
}

#[test]
fn the_pointer_is_never_before_the_end_of_a_completed_write() {
    let mut writes = Writes::default();
    (0..2).for_each(|_| writes.begin());
    assert_eq!(writes.end(3, 3, true), ended(true, None));
    assert_eq!(writes.end(0, 3, false), ended(false, Some(6)));
}

use super::*;

#[test]
fn what_a_part_has_done_to_its_end_is_told_and_nothing_else() {
    assert!(is_done("every bit of it was flipped"));
    assert!(is_done("every workload of one operation, every of two"));
    assert!(!is_done("every workload of one operation, not every of two"));
    assert!(!is_done("not every command of them was struck"));
    assert!(!is_done("counted bits flipped: 12"));
}

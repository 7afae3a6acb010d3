use super::*;

#[test]
fn only_completed_parts_are_reported() {
    assert!(is_done("every bit of it was flipped"));
    assert!(is_done("every workload of one operation, every of two"));
    assert!(!is_done("every workload of one operation, not every of two"));
    assert!(!is_done("not every command of them was struck"));
    assert!(!is_done("counted bits flipped: 12"));
}

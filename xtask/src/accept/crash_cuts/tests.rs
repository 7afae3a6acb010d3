use super::counted;

#[test]
fn counts_are_read_and_other_lines_are_not() {
    assert_eq!(counted("counted second cuts: 77"), Some(("second cuts", 77)));
    assert_eq!(counted("counted sheep: 77"), None);
    assert_eq!(counted("create  power-of-two  7 commands"), None);
}

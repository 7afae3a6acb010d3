use super::Counted;

#[test]
fn counts_are_summed_and_other_lines_are_not() {
    let mut counted = Counted::of(&["second cuts"]);
    for line in ["counted second cuts: 77", "counted sheep: 5", "create  power-of-two  7 commands"] {
        counted.read(line);
    }
    counted.read("counted second cuts: 3");
    assert_eq!(counted.counts(), [("second cuts", 80)]);
}

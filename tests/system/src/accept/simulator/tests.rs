use super::{Counted, check_enough};

#[test]
fn counts_are_summed_and_other_lines_are_not() {
    let mut counted = Counted::of(&["second cuts"]);
    for line in ["counted second cuts: 77", "counted sheep: 5", "create  power-of-two  7 commands"] {
        counted.read(line);
    }
    counted.read("counted second cuts: 3");
    assert_eq!(counted.counts(), [("second cuts", 80)]);
}

#[test]
fn too_small_counts_fail() {
    const LEAST: [(&str, u64); 3] = [("scenarios", 12), ("cuts", 20_000), ("faults", 400)];
    check_enough(&LEAST, &LEAST).unwrap();
    check_enough(&[], &LEAST).unwrap_err();
    for missing in 0..LEAST.len() {
        let mut counts = LEAST;
        counts[missing].1 -= 1;
        let error = check_enough(&counts, &LEAST).unwrap_err().to_string();
        assert!(error.starts_with(counts[missing].0), "{error}");
    }
}

use super::*;

fn measured(lines: &[&str]) -> Measured {
    let mut measured = Measured::default();
    lines.iter().for_each(|line| measured.read(line));
    measured
}

#[test]
fn ratios_are_taken_turn_by_turn() {
    // The machine was ten times slower in the second turn, for both.
    let turns =
        ["measured a x: 100.0", "measured b x: 50.0", "measured a x: 10.0", "measured b x: 5.0", "else"];
    let measured = measured(&turns);
    let ratio = measured.ratio("a x", "b x").unwrap();
    assert_eq!(ratio, Ratio { median: 2.0, quartiles: (2.0, 2.0) });
    assert_eq!(ratio.to_string(), "2.00 (2.00–2.00)");
    assert_eq!(measured.turns(), 4);
}

#[test]
fn medians_and_quartiles_lie_between_neighbours() {
    let measured = measured(&["measured a: 4", "measured a: 1", "measured a: 2", "measured a: 3"]);
    assert_eq!(measured.median("a").unwrap(), 2.5);
    assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.25), 1.75);
}

#[test]
fn a_missing_figure_has_no_ratio() {
    let measured = measured(&["measured a: 4", "measured a: 1", "measured b: 2", "measured c: x"]);
    assert!(measured.ratio("a", "b").is_err());
    assert!(measured.median("c").is_err());
}

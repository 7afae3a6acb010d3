use super::*;

fn report(counts: &[(&'static str, u64)]) -> Report {
    Report { geometry: "64 zones of 1 MiB".to_owned(), counts: counts.to_vec() }
}

#[test]
fn numbers_are_unique_and_in_order_and_names_are_unique() {
    assert!(POINTS.windows(2).all(|pair| pair[0].number < pair[1].number));
    let names: std::collections::BTreeSet<&str> = POINTS.iter().map(|point| point.name).collect();
    assert_eq!(names.len(), POINTS.len());
}

#[test]
fn an_unknown_point_names_the_known_ones() {
    let error = find("999").err().expect("there is no such point");
    assert!(error.to_string().contains("no acceptance point `999`; there are: fresh-clone, "), "{error}");
    assert_eq!(find("12").unwrap().name, find("trust").unwrap().name);
}

#[test]
fn a_point_that_counted_nothing_fails() {
    assert!(show(&report(&[])).is_err());
    assert!(show(&report(&[("cuts", 12), ("files compared", 0)])).is_err());
    assert!(show(&report(&[("cuts", 12)])).is_ok());
}

#[test]
fn the_repeat_command_carries_the_seed() {
    let run = Run { quick: true, seed: 7 };
    assert_eq!(
        repeat(find("2").unwrap(), &run).to_string(),
        "cargo system accept power-cuts --quick --seed 7"
    );
}

#[test]
fn the_seed_of_a_commit_stays_the_same() {
    assert_eq!(seed_of_commit().unwrap(), seed_of_commit().unwrap());
}

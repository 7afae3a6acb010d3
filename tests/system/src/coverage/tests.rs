use super::*;

#[test]
fn tests_and_commands_of_the_project_are_not_counted() {
    assert_eq!(crate_of("crates/tree/src/log.rs"), Some("tree"));
    assert_eq!(crate_of("crates/extent/src/gc/reading.rs"), Some("extent"));
    assert_eq!(crate_of("crates/tree/src/delta/tests.rs"), None);
    assert_eq!(crate_of("crates/tree/src/tests/crash.rs"), None);
    assert_eq!(crate_of("crates/extent/tests/all/crash.rs"), None);
    assert_eq!(crate_of("xtask/src/main.rs"), None);
}

#[test]
fn the_table_has_a_row_for_each_crate_and_a_sum() {
    let report = "SF:crates/tree/src/log.rs\nDA:1,1\nDA:2,0\nBRDA:1,0,0,1\n\
                  SF:crates/zone/src/lib.rs\nDA:1,1\nDA:2,1\nSF:crates/zone/src/tests.rs\nDA:1,0\n";
    let text = table(&lcov::read(report).unwrap());
    assert!(text.contains("| tree | 2 | 50.0 % | 1 | 100.0 % |"), "{text}");
    assert!(text.contains("| zone | 2 | 100.0 % | 0 | - |"), "{text}");
    assert!(text.ends_with("| all | 4 | 75.0 % | 1 | 100.0 % |\n"), "{text}");
}

#[test]
fn files_whose_lines_are_named_exist() {
    for name in NAMED {
        assert!(workspace::root().join(name).is_file(), "{name}");
    }
}

#[test]
fn a_report_that_leaves_out_a_decoder_is_refused() {
    let report = lcov::read("SF:crates/tree/src/log.rs\nDA:1,1\n").unwrap();
    assert!(not_run(&report).is_err());
}

/// Programs that tests run as the user nobody could not write their counts and reported this. A test that reads a
/// program's output then failed, and the command never completed as root.
#[test]
fn all_users_may_write_counts() {
    let place = tempfile::tempdir().expect("there is a place for it");
    let folder = place.path().join("target/counts");
    for _ in 0..2 {
        open_to_all(&folder).expect("it can be made, and may be there");
        let mode = std::fs::metadata(&folder).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o1777);
    }
}

#[test]
fn the_compilers_environment_is_parsed() {
    let printed = "KEY='one two'\n\nOTHER=3=4\n";
    let pairs = [("KEY", "one two"), ("OTHER", "3=4")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(variables(printed).unwrap(), pairs);
    assert!(variables("warning: something").is_err());
}

#[test]
fn points_that_build_polder_themselves_are_left_out() {
    let points = |tests_only| Args { lcov: None, tests_only }.points();
    assert_eq!(points(true), [0; 0]);
    let counted = points(false);
    assert_eq!(counted.len() + BUILDERS.len(), accept::POINTS.len());
    assert!(BUILDERS.iter().all(|number| !counted.contains(number)));
}

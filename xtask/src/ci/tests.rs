use super::*;

/// What the system tests print.
const SUITES: &str = "accept/posix\tcargo system accept posix --quick --seed 1\nvm/gate\tcargo system vm gate\n\
                      fuzz\tcargo system fuzz --quick\n";

#[test]
fn the_suites_of_the_gate_are_steps_and_a_list_without_any_fails() {
    let suites = suites(SUITES).unwrap();
    assert_eq!(suites[0].name, "accept/posix");
    assert!(suites[0].repeat.to_string().ends_with(" cargo system accept posix --quick --seed 1"));
    for wrong in ["", "no command\n"] {
        assert!(super::suites(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn results_of_all_test_binaries_are_added_up() {
    let mut tally = Tally::default();
    tally.add("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.1s");
    tally.add("test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
    tally.add("running 9 passed");
    assert_eq!((tally.passed, tally.failed, tally.ignored), (7, 1, 0));
}

#[test]
fn a_run_without_tests_fails() {
    let error = Tally::default().judge().expect_err("nothing ran");
    assert_eq!(error.to_string(), "no test ran");
}

#[test]
fn a_run_that_passes_tests_over_fails() {
    let tally = Tally { passed: 1, failed: 0, ignored: 2 };
    assert!(tally.judge().is_err());
}

#[test]
fn a_failing_test_step_fails() {
    let step = Step { name: "tests".to_owned(), repeat: Line::new("false"), work: Work::Test };
    assert!(step.carry_out(&mut Tally::default()).is_err());
}

#[test]
fn the_table_sums_and_shows_the_failure() {
    let done = |name: &str, verdict| Done { name: name.to_owned(), seconds: 1.25, verdict };
    let text = table(&[done("fmt", Verdict::Passed), done("tests", Verdict::Failed)]);
    assert!(text.contains("fmt                     passed       1.2"), "{text}");
    assert!(text.ends_with("total                   FAILED       2.5"), "{text}");
    let text = table(&[done("fmt", Verdict::Passed), done("vm/gate", Verdict::Skipped)]);
    assert!(text.contains("vm/gate                 skipped      1.2"), "{text}");
    assert!(text.ends_with("total                   passed       2.5"), "{text}");
}

/// The machines that run the gate do so as root, and there nothing may be left out.
#[test]
fn only_others_than_root_are_spared_the_guest() {
    let step = |words| Step { name: "vm/gate".to_owned(), repeat: Line::new(words), work: Work::Guest };
    assert_eq!(step("false").in_guest(false).expect("nothing is run"), Verdict::Skipped);
    assert_eq!(step("true").in_guest(true).expect("it succeeds"), Verdict::Passed);
    assert!(step("false").in_guest(true).is_err());
    assert_eq!(step("false").fuzz(false).expect("nothing is run"), Verdict::Skipped);
    assert!(step("false").fuzz(true).is_err());
    let suites = suites(SUITES).unwrap();
    let works: Vec<&Work> = suites.iter().map(|step| &step.work).collect();
    assert!(matches!(works[..], [Work::Run, Work::Guest, Work::Fuzz]));
}

#[test]
fn a_gate_that_takes_too_long_is_closed_and_set_up_and_compiling_do_not_count() {
    let done = |name: &str, seconds| Done { name: name.to_owned(), seconds, verdict: Verdict::Passed };
    let set_up = &steps()[0];
    assert!(matches!(set_up.work, Work::SetUp));
    let names: Vec<String> = steps().into_iter().map(|step| step.name).collect();
    assert!(COMPILING.iter().all(|compiling| names.iter().any(|name| name == compiling)), "they are steps");
    let but = |more: f64| {
        let each = COMPILE_SECONDS_MAX / COMPILING.len() as f64;
        let compiled = COMPILING.map(|name| done(name, if name == BUILD { each + more } else { each }));
        let others = [done(&set_up.name, 5000.0), done("tests", 700.0), done("accept 1", 500.0)];
        Vec::from_iter(compiled.into_iter().chain(others))
    };
    judge_time(&but(0.0)).expect("in time");
    let error = judge_time(&but(0.1)).expect_err("too much was compiled");
    assert!(error.to_string().starts_with("compiling took"), "{error}");
    let error = judge_time(&[done("tests", 700.0), done("accept 1", 500.1)]).expect_err("too long");
    assert!(error.to_string().contains("1200 s are allowed"), "{error}");
}

#[test]
fn only_set_up_may_use_the_network() {
    for step in steps().into_iter().chain(suites(SUITES).unwrap()) {
        let is_set_up = matches!(step.work, Work::SetUp);
        let offline = step.repeat.to_string().contains("CARGO_NET_OFFLINE=true");
        assert_ne!(is_set_up, offline, "{}: {}", step.name, step.repeat);
    }
}

use super::*;
use crate::case::{Case, Cut, Loss, Run};
use crate::caught::Wrong;

#[test]
fn verdicts_are_read_as_they_are_written() {
    let run = Run { scenario: "a", shape: "b", seed: 1 };
    let cut = Cut { at: 3, loss: Loss::Killed };
    let failure = |cuts: &[Cut], idle| Failure {
        case: Case { run: run.clone(), cuts: cuts.to_vec() },
        wrong: Wrong(String::new()),
        idle,
    };
    let read = |failure: Option<&Failure>| read_verdict(&format!("a line\n{}\nanother", verdict(failure)));
    assert_eq!(read(None), Verdict::Clean);
    assert_eq!(read(Some(&failure(&[cut], false))), Verdict::Wrong);
    assert_eq!(read(Some(&failure(&[], false))), Verdict::Uncut, "it failed before it was cut");
    assert_eq!(read(Some(&failure(&[], true))), Verdict::Idle);
    assert_eq!(read_verdict("HUNG: nothing came back"), Verdict::Died, "it ended without a verdict");
}

#[test]
fn the_table_marks_who_died_and_does_not_count_who_was_idle() {
    let verdicts = |list: &[(&str, Verdict)]| -> Verdicts {
        list.iter().map(|(scenario, verdict)| ((*scenario).to_owned(), *verdict)).collect()
    };
    let all =
        verdicts(&[("a", Verdict::Clean), ("b", Verdict::Wrong), ("c", Verdict::Died), ("d", Verdict::Idle)]);
    assert_eq!(line(&all), " 2 of 4: b c(died) d(idle)");
    assert_eq!(line(&verdicts(&[("d", Verdict::Idle)])), " 0 of 1: SURVIVED d(idle)");
    assert_eq!(line(&verdicts(&[("e", Verdict::Uncut)])), " 1 of 1: e(uncut)");
}

/// Every feature of this crate is tried, and every rule that the design names has one.
#[test]
fn every_rule_of_the_design_is_tried() {
    let (features, design) = (include_str!("../../Cargo.toml"), include_str!("../../../../docs/design.md"));
    let words = |text: &'static str| {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter(|word| word.starts_with("break-"))
    };
    for rule in words(features) {
        assert!(RULES.contains(&rule), "{rule} is a feature and is not tried");
    }
    for rule in words(design).filter(|rule| *rule != "break-") {
        assert!(RULES.contains(&rule), "{rule} is in the design and is not tried");
    }
}

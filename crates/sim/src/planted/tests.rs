use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
    let read = |failure: Option<&Failure>| {
        read_verdict(&format!("a line\n{}\nanother", verdict(failure)), failure.is_none())
    };
    assert_eq!(read(None), Verdict::Clean);
    assert_eq!(read(Some(&failure(&[cut], false))), Verdict::Wrong);
    assert_eq!(read(Some(&failure(&[], false))), Verdict::Uncut, "it failed before it was cut");
    assert_eq!(read(Some(&failure(&[], true))), Verdict::Idle);
    assert_eq!(read_verdict("HUNG: nothing came back", false), Verdict::Died, "it ended without a verdict");
    assert_eq!(read_verdict("counted bits flipped: 7", true), Verdict::Clean);
    assert_eq!(read_verdict("FAILED: lost\n  repeat with: polder-sim flips", false), Verdict::Wrong);
}

#[test]
fn an_idle_harness_has_not_noticed() {
    let noticed = |verdict: Verdict| verdict.is_noticed();
    assert!(noticed(Verdict::Wrong) && noticed(Verdict::Died) && noticed(Verdict::Uncut));
    assert!(!noticed(Verdict::Clean) && !noticed(Verdict::Idle));
}

/// An option that was renamed made every harness end at once, and every canary was counted as noticed.
#[test]
fn a_harness_that_does_not_know_an_option_has_not_noticed() {
    assert!(!Verdict::Died.is_reported() && Verdict::Wrong.is_reported() && Verdict::Uncut.is_reported());
    let target = std::env::temp_dir().join(format!("polder-planted-{}", std::process::id()));
    std::fs::create_dir_all(target.join("debug")).unwrap();
    // `false` ends with 1, and `ls`, which has no such options, with 2.
    let verdicts = ["false", "ls"].map(|program| {
        let simulator = target.join("debug/polder-sim");
        let _ = std::fs::remove_file(&simulator);
        std::os::unix::fs::symlink(Path::new("/usr/bin").join(program), simulator).unwrap();
        let trial = Trial {
            target: target.clone(),
            release: false,
            seed: 1,
            shape: "power-of-two".to_owned(),
            harnesses: vec![Harness::Flips],
        };
        trial.run(Some("break-orphan"))
    });
    std::fs::remove_dir_all(&target).unwrap();
    let [ended, misunderstood] = verdicts;
    assert_eq!(ended.unwrap().noticed.unwrap().verdict, Verdict::Died);
    assert!(misunderstood.unwrap_err().to_string().contains("does not understand"));
}

/// Every bug in the sources is tried, every bug that is tried exists in the sources, and every rule named in the
/// design is one of them.
#[test]
fn every_planted_bug_is_tried() {
    let known: BTreeSet<&str> = BUGS.iter().map(|bug| bug.name).collect();
    assert_eq!(known.len(), BUGS.len(), "each is tried once");
    let planted = planted_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let planted: BTreeSet<&str> = planted.iter().map(String::as_str).collect();
    assert_eq!(planted, known);
    let rules: BTreeSet<&str> =
        BUGS.iter().filter(|bug| bug.origin == Origin::Rule).map(|bug| bug.name).collect();
    let design = include_str!("../../../../docs/design.md");
    let words = design.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let named: BTreeSet<&str> =
        words.filter(|word| word.starts_with("break-") && *word != "break-").collect();
    assert_eq!(named, rules);
    let unseen = BUGS.iter().filter(|bug| bug.origin == Origin::Unseen).count();
    assert!(BUGS.len() >= 30 && unseen >= 15, "half of thirty were chosen unseen");
}

/// Every harness that is a command has its canary, and each canary is a bug.
#[test]
fn every_harness_has_a_canary() {
    let of = |harness: Harness| CANARIES.iter().filter(|(with, _)| *with == harness).count();
    assert!(Harness::ALL.iter().all(|&harness| of(harness) == usize::from(harness != Harness::Shuttle)));
    assert!(CANARIES.iter().all(|(_, canary)| BUGS.iter().any(|bug| bug.name == *canary)));
}

/// The names in all `is_planted("…")` of the sources.
fn planted_in(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in sources(directory) {
        let text = std::fs::read_to_string(&path).unwrap();
        let asked = text.split("is_planted(\"").skip(1);
        found.extend(asked.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
    }
    found.retain(|name| name.starts_with("break-"));
    found
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

use super::*;

const NAME: &str = "log.rs:1:1: replace == with !=";

fn mutant(diff: &str) -> Mutant {
    let name = format!("crates/tree/src/log.rs:1:1: replace {diff}");
    let (package, file) = ("polder-tree".to_owned(), "crates/tree/src/log.rs".to_owned());
    Mutant { name, package, file, diff: diff.to_owned(), ..Mutant::default() }
}

/// The output of cargo-mutants for a run of one mutant, shortened.
fn written(summary: &str) -> String {
    format!(
        r#"{{"outcomes": [{{"scenario": {{"Mutant": {{"name": "{NAME}", "file": "log.rs"}}}},
            "summary": "{summary}", "log_path": "log/a.log", "phase_results": [{{"phase": "Build"}}]}}],
            "total_mutants": 1, "missed": 0, "cargo_mutants_version": "27.1.0"}}"#
    )
}

#[test]
fn outcomes_are_read_as_they_are_written() {
    let by = || "polder-tree".to_owned();
    let read = |summary| read(&written(summary), NAME, "polder-tree").unwrap();
    assert_eq!(read("CaughtMutant"), Outcome::Caught { by: by() });
    assert_eq!(read("Timeout"), Outcome::TimedOut { by: by() });
    assert_eq!(read("Unviable"), Outcome::Unviable);
    assert_eq!(read("MissedMutant"), Outcome::Missed);
}

#[test]
fn unknown_output_is_no_outcome() {
    assert!(read(&written("Failure"), NAME, "polder-tree").is_err());
    assert!(read(r#"{"outcomes": []}"#, NAME, "polder-tree").is_err());
    assert!(
        read(r#"{"outcomes": [{"scenario": "Baseline", "summary": "Success"}]}"#, NAME, "polder-tree")
            .is_err()
    );
    assert!(read(&written("MissedMutant"), "another", "polder-tree").is_err());
    assert!(read("{}", NAME, "polder-tree").is_err());
    assert!(read("", NAME, "polder-tree").is_err());
}

#[test]
fn a_run_goes_on_where_another_was_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outcomes");
    let (one, other) = (mutant("one"), mutant("other"));
    let mut kept = Kept::open(&path).unwrap();
    assert_eq!(kept.stands(&one, 1), None);
    kept.add(&one, Outcome::Unviable, 1).unwrap();
    kept.add(&other, Outcome::Missed, 1).unwrap();
    // Killed while it wrote a third line.
    write!(kept.file, "{{\"name\": \"third").unwrap();
    drop(kept);
    Kept::open(&path).unwrap().add(&mutant("fourth"), Outcome::Missed, 1).unwrap();
    let kept = Kept::open(&path).unwrap();
    assert_eq!(kept.last(&mutant("fourth")), Some(&Outcome::Missed));
    assert_eq!(kept.stands(&one, 1), Some(&Outcome::Unviable));
    assert_eq!(kept.last(&other), Some(&Outcome::Missed));
    assert_eq!(kept.last(&mutant("third")), None);
}

#[test]
fn a_missed_mutant_is_tried_again_when_there_may_be_a_test_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::open(&folder.path().join("outcomes")).unwrap();
    let (caught, missed) = (mutant("caught"), mutant("missed"));
    kept.add(&caught, Outcome::Caught { by: "polder-tree".to_owned() }, 1).unwrap();
    kept.add(&missed, Outcome::Missed, 1).unwrap();
    assert_eq!(kept.stands(&missed, 1), Some(&Outcome::Missed));
    assert_eq!(kept.stands(&missed, 2), None);
    assert!(kept.stands(&caught, 2).is_some());
    kept.add(&missed, Outcome::Caught { by: "polder-fs".to_owned() }, 2).unwrap();
    assert!(kept.stands(&missed, 3).is_some());
}

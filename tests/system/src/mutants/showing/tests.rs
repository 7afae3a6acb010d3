use super::*;
use crate::mutants::drawing::Place;
use crate::mutants::{Asked, EXTENT, TREE};

/// A program that fails with one mutant, and reaches its function in one of two tests.
const PROGRAM: &str = "#!/bin/sh
if [ \"$1\" = --list ]; then printf 'slow: test\\nquick: test\\n\\n2 tests, 0 benchmarks\\n'; exit; fi
if [ -n \"$POLDER_MUTANTS_REACHED\" ] && [ \"$2\" = slow ]; then echo 4 > \"$POLDER_MUTANTS_REACHED\"; fi
test \"$POLDER_MUTANT\" != 4
";

fn program(folder: &Path, asked: Asked) -> Program {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(asked.package);
    fs::write(&path, PROGRAM).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Program { package: asked.package.to_owned(), path, dir: folder.to_owned() }
}

fn mutant(number: usize) -> Mutant {
    Mutant { package: "polder-tree".to_owned(), place: Place { number, of: 9 }, ..Mutant::default() }
}

#[test]
fn a_mistake_is_shown_to_the_tests_that_come_to_its_function() {
    let folder = tempfile::tempdir().unwrap();
    let together = Together { programs: vec![program(folder.path(), TREE)], mutants: [4, 5].into() };
    let tests = Tests::measure(&together, folder.path()).unwrap();
    let reached: BTreeSet<(&str, usize)> =
        tests.by_time.iter().map(|test| (test.name.as_str(), test.reached.len())).collect();
    assert_eq!(reached, [("quick", 0), ("slow", 1)].into());

    let mut found = Vec::new();
    let add = |mutant: &Mutant, outcome| {
        found.push((mutant.place.number, outcome));
        Ok(())
    };
    tests.show(vec![mutant(4), mutant(5)], || false, add).unwrap();
    found.sort_by_key(|(number, _)| *number);
    assert_eq!(found, [(4, Outcome::Caught { by: "polder-tree".to_owned() }), (5, Outcome::Missed)]);
}

#[test]
fn tests_of_packages_above_are_asked_last() {
    let folder = tempfile::tempdir().unwrap();
    let programs = vec![program(folder.path(), EXTENT)];
    let tests = Tests::measure(&Together { programs, mutants: [4].into() }, folder.path()).unwrap();
    assert_eq!(tests.of(&mutant(4), Pass::Quick).unwrap(), None);
    let caught = Outcome::Caught { by: "polder-extent".to_owned() };
    assert_eq!(tests.of(&mutant(4), Pass::Rest).unwrap(), Some(caught));
}

#[test]
fn nothing_is_tried_when_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let together = Together { programs: vec![program(folder.path(), TREE)], mutants: [4].into() };
    let tests = Tests::measure(&together, folder.path()).unwrap();
    tests.show(vec![mutant(4)], || true, |_, _| panic!("it was tried")).unwrap();
}

#[test]
fn a_program_that_had_to_be_ended_has_never_ended() {
    assert_eq!(Verdict::of(Some(0)), Verdict::Passed);
    assert_eq!(Verdict::of(Some(101)), Verdict::Failed);
    assert_eq!(Verdict::of(None), Verdict::Failed, "a signal ended it");
    let line = Line::new("timeout --kill-after 5 0.05 sleep 60");
    assert_eq!(Verdict::of(status(&line).unwrap()), Verdict::NeverEnded);
}

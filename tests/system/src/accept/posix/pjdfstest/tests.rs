use super::*;

const SAID: &str = "
chmod::enoent                                     ok
link::link_count_max                         skipped
\tCannot get value for LINK_MAX
open::broken                                  FAILED
\tassertion failed

Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total
";

#[test]
fn verdicts_are_read_and_counted() {
    let verdicts = Verdicts::read(SAID).unwrap();
    assert_eq!(verdicts.passed, ["chmod::enoent"]);
    assert_eq!(verdicts.failed, ["open::broken"]);
    assert_eq!(verdicts.skipped["link::link_count_max"], "Cannot get value for LINK_MAX");
    assert!(Verdicts::read(&SAID.replace("3 total", "4 total")).is_err());
    assert!(Verdicts::read("chmod::enoent ok").is_err());
}

#[test]
fn failed_and_unexplained_missing_tests_are_found() {
    let passed = |tests: &[&str]| Verdicts {
        passed: tests.iter().map(|&test| test.to_owned()).collect(),
        ..Verdicts::default()
    };
    let (excluded, _) = EXCLUDES[0];
    assert!(judge(&passed(&["a", "b"]), &passed(&["a", "b", excluded])).is_ok());
    assert!(judge(&passed(&["a"]), &passed(&["a", "b"])).is_err(), "b is missing");
    assert!(judge(&passed(&["a", excluded]), &passed(&["a"])).is_err(), "the exclude is not needed");
    let failed = Verdicts { failed: vec!["b".to_owned()], ..passed(&["a"]) };
    assert!(judge(&failed, &passed(&["a"])).is_err(), "b fails, on ext4 too");
}

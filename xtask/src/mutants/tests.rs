use super::*;

#[test]
fn the_tests_of_the_own_package_are_asked_first() {
    for package in Package::ALL {
        assert_eq!(package.asked()[0].package, package.name());
    }
}

#[test]
fn all_mutants_of_a_part_of_the_name_are_wanted_and_otherwise_the_first() {
    let mutant = |name: &str| Mutant {
        name: name.to_owned(),
        package: "polder-tree".to_owned(),
        file: "a.rs".to_owned(),
        ..Mutant::default()
    };
    let drawn = || ["log.rs:1", "page.rs:1", "log.rs:2"].map(mutant).to_vec();
    let mut args =
        Args { count: 2, seed: 1, package: None, only: None, minutes: None, go_on: false, report: true };
    let names = |mutants: Vec<Mutant>| mutants.into_iter().map(|mutant| mutant.name).collect::<Vec<_>>();
    assert_eq!(names(wanted(&args, drawn()).unwrap()), ["log.rs:1", "page.rs:1"]);
    args.only = Some("log.rs".to_owned());
    assert_eq!(names(wanted(&args, drawn()).unwrap()), ["log.rs:1", "log.rs:2"]);
    args.package = Some(Package::Extent);
    assert!(wanted(&args, drawn()).is_err());
    args.package = None;
    args.only = Some("zones.rs".to_owned());
    assert!(wanted(&args, drawn()).is_err());
}

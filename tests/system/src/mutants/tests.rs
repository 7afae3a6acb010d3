use super::*;

#[test]
fn the_tests_of_the_own_package_are_asked_first() {
    for package in Package::ALL {
        assert_eq!(package.asked()[0].package, package.name());
    }
}

#[test]
fn a_number_limits_the_mutants_and_a_part_of_the_name_chooses_all_without_one() {
    let mutant = |name: &str| Mutant {
        name: name.to_owned(),
        package: "polder-tree".to_owned(),
        file: "a.rs".to_owned(),
        ..Mutant::default()
    };
    let drawn = || ["log.rs:1", "page.rs:1", "log.rs:2"].map(mutant).to_vec();
    let mut args = Args {
        count: Some(2),
        seed: 1,
        package: None,
        only: None,
        minutes: None,
        go_on: false,
        report: true,
    };
    let names = |mutants: Vec<Mutant>| mutants.into_iter().map(|mutant| mutant.name).collect::<Vec<_>>();
    assert_eq!(names(wanted(&args, drawn()).unwrap()), ["log.rs:1", "page.rs:1"]);
    args.only = Some("log.rs".to_owned());
    args.count = Some(1);
    assert_eq!(names(wanted(&args, drawn()).unwrap()), ["log.rs:1"]);
    args.count = None;
    assert_eq!(names(wanted(&args, drawn()).unwrap()), ["log.rs:1", "log.rs:2"]);
    args.package = Some(Package::Extent);
    assert!(wanted(&args, drawn()).is_err());
    args.package = None;
    args.only = Some("reclaim.rs".to_owned());
    assert!(wanted(&args, drawn()).is_err());
}

/// A test that was renamed would run again, and take most of the time.
#[test]
fn tests_that_are_not_asked_exist() {
    for asked in ASKED {
        let folder = support::workspace::root().join(asked.folder).join("tests/all");
        for test in asked.without {
            let (module, name) = test.split_once("::").expect("a test is named with its module");
            let text = std::fs::read_to_string(folder.join(module).with_extension("rs")).unwrap();
            assert!(text.contains(&format!("fn {name}")), "{}: there is no test {test}", asked.package);
        }
    }
}

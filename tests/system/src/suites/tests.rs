use std::fs;

use super::results::{Row, Verdict};
use super::run::{Checkout, recorded, verdict};
use super::*;

fn row(suite: &str, verdict: Verdict) -> Row {
    Row::new(suite, "c0ffee", Some(7), 12, verdict, "").unwrap()
}

fn results(rows: &[Row]) -> Results {
    let mut results = Results::default();
    rows.iter().for_each(|row| results.put(row.clone()));
    results
}

/// A suite that this command runs.
fn suite(name: &str, long: &str) -> Suite {
    Suite::outside(name.to_owned(), long.to_owned(), None)
}

fn names(filters: &[&str], quick: bool) -> Vec<String> {
    let filters: Vec<String> = filters.iter().map(|&filter| filter.to_owned()).collect();
    named(&filters, quick).unwrap().into_iter().map(|suite| suite.name).collect()
}

#[test]
fn a_filter_is_the_name_of_a_suite_or_of_a_group_or_a_part_of_names() {
    assert_eq!(names(&["accept/posix"], false), ["accept/posix"]);
    assert_eq!(names(&["accept 2"], false), ["accept/power-cuts"], "the number is a name too");
    assert_eq!(names(&["fuzz"], false), ["fuzz"], "that is a whole name, and not a part of `sim/fuzz`");
    assert_eq!(names(&["accept/"], true).len(), accept::POINTS.len());
    assert_eq!(names(&["sanitizer"], false).len(), 3);
    assert_eq!(names(&["mutants"], false).len(), 3, "a suite may have the name of its group");
    assert!(names(&["cut"], false).contains(&"vm/power-cut".to_owned()));
    assert_eq!(names(&["saves", "crash/git"], true), ["crash/git", "crash/saves"]);
    assert_eq!(names(&["vm/gate"], true), ["vm/gate"]);
    assert!(named(&["vm/gate".to_owned()], false).is_err(), "it has no long form");
    assert!(named(&["nothing".to_owned()], false).is_err());
}

#[test]
fn names_are_unique() {
    let mut names: Vec<String> =
        all().into_iter().flat_map(|suite| [Some(suite.name), suite.also]).flatten().collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

fn shard_of(part: usize, recorded: &Results) -> Vec<Suite> {
    let selection = Selection { filters: Vec::new(), shard: Some((part, 4)) };
    selected(&selection, false, recorded).unwrap()
}

#[test]
fn shards_have_every_suite_once_and_take_about_equally_long() {
    let names = names(&[], false);
    // Every tenth takes ten times as long, and one has no record.
    let seconds = |index: usize| if index.is_multiple_of(10) { 6000 } else { 600 };
    let mut recorded = Results::default();
    for (index, name) in names.iter().enumerate().skip(1) {
        recorded.put(Row { seconds: seconds(index), ..row(name, Verdict::Passed) });
    }
    let parts: Vec<Vec<Suite>> = (1..=4).map(|part| shard_of(part, &recorded)).collect();
    let mut found: Vec<String> = parts.iter().flatten().map(|suite| suite.name.clone()).collect();
    found.sort();
    let mut wanted = names.clone();
    wanted.sort();
    assert_eq!(found, wanted);
    let long = |suite: &Suite| recorded.seconds(&suite.name).unwrap_or(SECONDS_UNKNOWN);
    let sums: Vec<u64> = parts.iter().map(|part| part.iter().map(long).sum()).collect();
    assert!(sums.iter().max().unwrap() - sums.iter().min().unwrap() <= 6000, "{sums:?}");
    for part in &parts {
        assert!(part.is_sorted_by_key(long), "the shortest come first");
    }
}

#[test]
fn a_shard_is_one_of_its_number() {
    assert_eq!(shard("1/8").unwrap(), (1, 8));
    assert_eq!(shard("8/8").unwrap(), (8, 8));
    for wrong in ["0/8", "9/8", "1/0", "1", "a/8"] {
        assert!(shard(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_suite_that_could_not_run_or_left_something_out_has_not_passed() {
    assert_eq!(verdict(Some(0), "all is well\n"), (Verdict::Passed, String::new()));
    let (skipped, why) = verdict(Some(77), "begun\nerror: only root can mount: use sudo\n");
    assert_eq!((skipped, why.as_str()), (Verdict::Skipped, "only root can mount: use sudo"));
    let (skipped, why) = verdict(Some(0), "  left out: systemd\nPoint 7 holds.\n");
    assert_eq!((skipped, why.as_str()), (Verdict::Skipped, "in part: systemd"));
    let (failed, why) = verdict(Some(1), "left out: systemd\nerror: two are missing\n");
    assert_eq!((failed, why.as_str()), (Verdict::Failed, "two are missing"));
    assert_eq!(verdict(None, "").0, Verdict::Failed);
    assert!(verdict(Some(124), "").1.contains("had not ended"));
}

#[test]
fn results_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results/everything.csv");
    assert_eq!(Results::read(&file).unwrap().seconds("soak"), None, "there is no file yet");
    let failed = Row::new("vm fsx", "c0ffee", None, 3, Verdict::Failed, "a, b\nand c").unwrap();
    results(&[row("soak", Verdict::Passed), failed]).write(&file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.ends_with(",a; b;and c\n"), "{text}");
    Results::read(&file).unwrap().write(&file).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    std::fs::write(&file, format!("{text}soak,c0ffee\n")).unwrap();
    assert!(Results::read(&file).is_err());
}

/// Two machines start with the same file, and each repeats one of its suites.
#[test]
fn of_results_that_are_merged_the_newest_count() {
    let at = |row: Row, ended: &str| Row::parse(&row.to_string().replace(&row.ended, ended)).unwrap();
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let old = |suite| at(row(suite, Verdict::Failed), old);
    let new = |suite| at(row(suite, Verdict::Passed), new);
    for (ours, theirs) in
        [([new("a"), old("b")], [old("a"), new("b")]), ([old("a"), new("b")], [new("a"), old("b")])]
    {
        let mut merged = results(&ours);
        merged.merge(results(&theirs));
        let suites = ["a", "b"].map(|name| suite(name, ""));
        merged.check(&suites).expect("both have passed");
    }
}

#[test]
fn results_are_complete_if_every_suite_has_passed_on_one_commit() {
    let suites = ["a", "b"].map(|name| suite(name, ""));
    let a = row("a", Verdict::Passed);
    results(&[a.clone(), row("b", Verdict::Passed)]).check(&suites).expect("both have passed");
    let of = |other: &[Row]| {
        results(&[std::slice::from_ref(&a), other].concat()).check(&suites).expect_err("not complete")
    };
    assert!(of(&[]).to_string().contains("no result of: b"));
    assert!(of(&[row("b", Verdict::Failed)]).to_string().contains("failed on c0ffee: b"));
    // The suite has said that the machine lacks something, or that a part was left out.
    let skipped = of(&[row("b", Verdict::Skipped)]).to_string();
    assert!(skipped.contains("skipped on c0ffee: b"), "{skipped}");
    let both = results(&[row("a", Verdict::Failed), row("b", Verdict::Skipped)]).check(&suites);
    let both = both.expect_err("neither has passed").to_string();
    assert!(both.contains("skipped on c0ffee: b") && both.contains("failed on c0ffee: a"), "{both}");
    let other = Row::new("b", "decaf", None, 1, Verdict::Passed, "").unwrap();
    assert!(of(&[other]).to_string().contains("decaf"));
}

#[test]
fn the_recorded_results_can_be_read_and_are_of_suites_that_there_are() {
    let suites = all();
    for name in Results::read(&file()).unwrap().names() {
        assert!(suites.iter().any(|suite| suite.name == name), "{}: there is no `{name}`", results::FILE);
    }
}

/// A result is that of the long form.
#[test]
fn long_forms_are_not_quick() {
    for suite in all() {
        assert!(suite.long.is_none_or(|words| !words.contains("--quick")), "{}", suite.name);
    }
}

/// The draw of `mutants` is mostly of the large packages.
#[test]
fn mutants_of_the_pool_and_of_gc_are_tried_by_suites_of_their_own_in_limited_time() {
    let suites = all();
    for (name, draws) in [("mutants/pool", "--package pool"), ("mutants/gc", "--only gc")] {
        let suite = suites.iter().find(|suite| suite.name == name).expect("there is this suite");
        let long = suite.long.as_deref().expect("it has a long form");
        assert!(long.contains(draws) && long.contains("--minutes ") && long.contains("--count "), "{long}");
    }
}

#[test]
fn every_command_can_be_parsed() {
    use clap::Parser;
    for suite in all() {
        for words in [suite.long, suite.quick].into_iter().flatten() {
            let words = words.replace("{seed}", "4294967295");
            let Some(words) = words.strip_prefix("cargo ") else { panic!("{words}") };
            if words.starts_with("system ") {
                let parsed = crate::System::try_parse_from(words.split(' '));
                assert!(parsed.is_ok(), "{words}: {}", parsed.err().unwrap());
            }
        }
    }
}

/// A checkout of one commit with the pages that suites write.
fn checkout(folder: &Path) -> Checkout {
    let checkout = Checkout(folder.to_owned());
    fs::create_dir_all(folder.join("docs/results/space")).unwrap();
    for page in ["docs/results/performance.md", "docs/results/space.md", "docs/results/space/plot.svg"] {
        fs::write(folder.join(page), "of the commit").unwrap();
    }
    for words in ["init --quiet", "add --all", "-c user.name=a -c user.email=b commit --quiet --message c"] {
        checkout.git(words).run().unwrap();
    }
    checkout
}

#[test]
fn a_checkout_with_changes_is_refused_and_its_results_are_no_change() {
    let folder = tempfile::tempdir().unwrap();
    let checkout = checkout(folder.path());
    let commit = checkout.commit().unwrap();
    results(&[row("soak", Verdict::Passed)]).write(&folder.path().join(results::FILE)).unwrap();
    assert_eq!(checkout.commit().unwrap(), commit);
    for (file, text) in [("docs/results/space.md", "another"), ("new.rs", "")] {
        fs::write(folder.path().join(file), text).unwrap();
        let error = checkout.commit().expect_err("this differs from the commit");
        assert!(error.to_string().contains(file), "{error}");
        checkout.git("clean --quiet --force").run().unwrap();
        checkout.git("checkout --quiet .").run().unwrap();
    }
}

#[test]
fn pages_that_a_suite_writes_are_kept_and_the_commit_has_its_own_again() {
    let folder = tempfile::tempdir().unwrap();
    let (here, kept) = (folder.path().join("checkout"), folder.path().join("pages"));
    let checkout = checkout(&here);
    checkout.move_pages(&kept).unwrap();
    assert!(!kept.exists(), "no page was written");
    fs::write(here.join("docs/results/space.md"), "of the suite").unwrap();
    fs::write(here.join("docs/results/space/new.svg"), "of the suite").unwrap();
    checkout.move_pages(&kept).unwrap();
    checkout.commit().expect("nothing has changed");
    assert_eq!(fs::read_to_string(here.join("docs/results/space.md")).unwrap(), "of the commit");
    assert_eq!(fs::read_to_string(kept.join("docs/results/space.md")).unwrap(), "of the suite");
    assert_eq!(fs::read_to_string(kept.join("docs/results/space/new.svg")).unwrap(), "of the suite");
}

#[test]
fn a_failure_ends_the_command_and_not_the_suites_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let checkout = checkout(&folder.path().join("checkout"));
    let script = folder.path().join("script");
    fs::write(&script, "echo error: nothing is here; exit $1").unwrap();
    let suites = [("test failed", 1), ("test skipped", 77), ("test passed", 0)]
        .map(|(name, status)| suite(name, &format!("sh {} {status} {{seed}}", script.display())));
    let mut rows = Vec::new();
    let ended = recorded(&suites, &checkout, 7, |row| {
        rows.push(row);
        Ok(())
    });
    assert_eq!(ended.expect_err("one has failed").to_string(), "1 of 3 suites failed");
    let verdicts: Vec<Verdict> = rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::Failed, Verdict::Skipped, Verdict::Passed]);
    assert!(rows.iter().all(|row| row.seed == "7" && row.commit == checkout.commit().unwrap()), "{rows:?}");
    assert_eq!(rows[1].why, "nothing is here");
    recorded(&suites[1..], &checkout, 7, |_| Ok(())).expect("none has failed");
}

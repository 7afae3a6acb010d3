use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use tree::Lsn;

use super::order::{Deeds, end_of_log};
use super::shrink::{Failing, shrink_by};
use super::{Place, Plan};
use crate::allowed::FilesState;
use crate::caught::Wrong;
use crate::model::{Model, Operation};

fn plan(seed: u64) -> Plan {
    Plan { rounds: 3, operations: 24, ..Plan::usual(seed) }
}

#[test]
fn the_same_seed_gives_the_same_digest_and_another_seed_another() {
    let digests = [7, 7, 8].map(|seed| plan(seed).run().unwrap_or_else(|wrong| panic!("{wrong}")).digest);
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}

#[test]
fn clients_on_every_shape_are_found_where_they_may_be() {
    let mut sum = super::Report::default();
    for seed in 100..112 {
        let plan = plan(seed);
        sum.add(&plan.run().unwrap_or_else(|wrong| panic!("{plan}: {wrong}")));
    }
    for (what, count) in sum.named() {
        assert!(count > 0, "no {what} in twelve runs");
    }
}

#[test]
fn leaving_an_operation_out_changes_no_other() {
    let all = super::work::operations(5, 30, 4096);
    let more = super::work::operations(5, 40, 4096);
    let texts = |operations: &[Operation]| operations.iter().map(Operation::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&all), texts(&more)[..30]);
}

#[test]
fn places_are_read_as_they_are_written() {
    let place = Place { round: 1, client: 0, number: 17 };
    assert_eq!("1.0.17".parse(), Ok(place));
    assert!("1.0".parse::<Place>().is_err());
    let plan = Plan { only: Some(BTreeSet::from([place])), ..plan(3) };
    assert!(plan.to_string().ends_with("--only 1.0.17"), "{plan}");
    assert_eq!(plan.places(), BTreeSet::from([place]));
}

/// Three operations of two clients make the plan fail, the last of them in the second of three rounds.
#[test]
fn a_plan_is_made_as_small_as_its_failure_allows() {
    let place = |round, client, number| Place { round, client, number };
    let needed = BTreeSet::from([place(0, 1, 3), place(1, 0, 0), place(1, 1, 23)]);
    let tried = Cell::new(0);
    let run = |plan: &Plan| {
        tried.set(tried.get() + 1);
        let fails = needed.is_subset(&plan.places());
        fails.then(|| Wrong(format!("{} places", plan.places().len())))
    };
    let whole = || Failing { plan: plan(1), wrong: Wrong("as found".to_owned()) };
    let smallest = shrink_by(whole(), 1000, &run);
    assert_eq!((smallest.plan.places(), smallest.plan.rounds), (needed.clone(), 2));
    assert_eq!(smallest.wrong.0, "3 places", "the error is that of the smallest plan");
    assert!((1..200).contains(&tried.get()), "{} tries", tried.get());
    for tries in 0..20 {
        tried.set(0);
        let smaller = shrink_by(whole(), tries, &run);
        assert!(tried.get() <= tries && needed.is_subset(&smaller.plan.places()), "after {tries}");
    }
}

/// A failure that does not occur again, because threads meet elsewhere, is kept as it was found.
#[test]
fn a_plan_that_passes_when_it_is_smaller_stays_as_it_is() {
    let found = Failing { plan: plan(1), wrong: Wrong("as found".to_owned()) };
    let kept = shrink_by(found, 1000, &|_| None);
    assert_eq!((kept.plan.places(), kept.wrong.0), (plan(1).places(), "as found".to_owned()));
}

/// A client that has created files, one after the other, in these spans of LSNs.
fn maker(spans: &[(u64, u64)]) -> Deeds {
    let mut model = Model::new(4096);
    let mut states = vec![Arc::new(FilesState::new(model.clone()))];
    for number in 0..spans.len() {
        model.apply(&Operation::Create { path: format!("{number}") }).expect("nothing is in the way");
        states.push(Arc::new(FilesState::new(model.clone())));
    }
    let spans =
        (1..).zip(spans).map(|(state, &(before, after))| (state, (Lsn(before), Lsn(after)))).collect();
    Deeds { states, first: 0, spans }
}

fn found(deeds: &Deeds, files: usize) -> (Deeds, FilesState) {
    let state = FilesState::new(deeds.states[files].model.clone());
    (deeds.clone(), state)
}

/// One client's first file is older than all files of the other client. If it is missing and a file of the other
/// client is found, a change has survived without an earlier one: a log that lost something in the middle.
#[test]
fn no_change_survives_without_an_earlier_one_of_another_client() {
    let (first, second) = (maker(&[(0, 1), (4, 5)]), maker(&[(1, 2), (2, 3)]));
    let last = |made: usize, other: usize| end_of_log(&[found(&first, made), found(&second, other)]);
    assert!(last(0, 0).is_some() && last(1, 0).is_some() && last(1, 2).is_some() && last(2, 2).is_some());
    assert_eq!(last(0, 1), None);
    assert_eq!(last(2, 1), None);
    let is_bounded =
        |made: usize, other: usize| last(made, other).expect("the log ended somewhere").is_bounded;
    assert!(is_bounded(1, 2));
    assert!(!is_bounded(0, 0) && !is_bounded(2, 2), "nothing is there, or nothing is missing");
}

/// Concurrent operations: each may have been first.
#[test]
fn of_two_at_once_either_may_be_missing() {
    let (first, second) = (maker(&[(0, 2)]), maker(&[(0, 2)]));
    let last = |made: usize, other: usize| end_of_log(&[found(&first, made), found(&second, other)]);
    assert!(last(0, 1).is_some() && last(1, 0).is_some() && last(1, 1).is_some());
}

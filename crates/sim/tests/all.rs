//! Scenarios that are short enough for every test run, and the promise that a run can be repeated.

use std::sync::Arc;

use emulated::{CommandKind, Emulated};
use polder_sim::catalogue::{self, Entry};
use polder_sim::explore::{Subject, Thoroughness};
use polder_sim::faults::{self, Harm, KINDS, Moment, Stage, Strikes};
use polder_sim::report::Counts;
use polder_sim::shapes;
use polder_sim::states::{Found, Limits, Search};
use zone::{Device, ZoneState};

/// As in the gate, with fewer plans.
const SHORT: Thoroughness = Thoroughness { plans_max: 6, ..Thoroughness::QUICK };

fn explore(scenario: &str, shape: &str, seed: u64) -> Counts {
    let is_it = |entry: &Entry| entry.run().scenario == scenario && entry.run().shape == shape;
    let entry = catalogue::all(seed).into_iter().find(is_it).expect("such a scenario");
    let (counts, failure) = entry.explore(SHORT);
    assert!(failure.is_none(), "{}", failure.expect("there is one"));
    assert!(counts.commands > 0 && counts.recovered.len() > 1, "{counts}");
    counts
}

#[test]
fn the_same_seed_gives_the_same_digest_and_another_seed_another() {
    for scenario in ["store-data", "append-fsync"] {
        let digest = |seed| explore(scenario, "power-of-two", seed).digest;
        assert_eq!(digest(7), digest(7), "{scenario}");
        assert_ne!(digest(7), digest(8), "{scenario}");
    }
}

#[test]
fn names_survive_every_cut() {
    for scenario in ["create", "rename-over", "link-unlink", "directories", "orphans"] {
        explore(scenario, "odd", 1);
    }
}

#[test]
fn bytes_survive_every_cut() {
    for scenario in ["truncate", "small-fsync", "group-commit"] {
        explore(scenario, "blocks-512", 1);
    }
}

#[test]
fn failing_zones_and_cuts_together_lose_nothing() {
    for scenario in ["log-failure", "data-failure", "store-metadata-failure"] {
        explore(scenario, "six-active", 1);
    }
}

#[test]
fn conventional_zones_survive_every_cut() {
    for scenario in ["append-fsync", "truncate", "store-data", "zones-amid"] {
        explore(scenario, "conventional", 1);
    }
}

/// Every other scenario begins to record after the volume was created. If `mkfs` had been cut, a user would have
/// found a part of the old volume in the new one, or an error would have advised to check a volume that was never finished.
#[test]
fn a_volume_that_is_being_made_survives_every_cut() {
    for (scenario, shape) in
        [("mkfs", "blocks-512"), ("mkfs-over", "odd"), ("mkfs-over-used", "conventional")]
    {
        explore(scenario, shape, 1);
    }
}

/// Without data in conventional zones, this shape would test nothing that other shapes do not test.
#[test]
fn most_scenarios_write_to_conventional_zones() {
    let (mut written, mut all) = (0, 0);
    for entry in catalogue::all(1).into_iter().filter(|entry| entry.run().shape == "conventional") {
        let Entry::Files(subject) = entry else { continue };
        let device = Arc::new(Emulated::new(subject.spec()));
        let ran = subject.run(&device).expect("a scenario that is not cut succeeds");
        let geometry = ran.device.geometry().clone();
        let zones = ran.device.report().expect("it has power");
        let conventional = &zones[geometry.sequential() as usize..];
        written += u32::from(conventional.iter().any(|zone| zone.state != ZoneState::Empty));
        all += 1;
    }
    println!("{written} of {all}");
    assert!(written * 2 > all, "{written} of {all}");
}

#[test]
fn the_quick_form_takes_every_scenario_on_two_shapes() {
    let all: Vec<Entry> = catalogue::all(3);
    let rotated = catalogue::rotated(3);
    assert_eq!(rotated.len() * shapes::all().len(), all.len() * 2);
    let runs: std::collections::HashSet<_> =
        rotated.iter().map(|entry| Arc::new(entry.run().clone())).collect();
    assert_eq!(runs.len(), rotated.len());
}

/// All workloads of one operation and a few longer ones, with few states for each command.
fn search(shape: &str, seed: u64) -> Found {
    let shape = shapes::all().into_iter().find(|known| known.name == shape).expect("such a shape");
    let limits = Limits { states_max: 4, workloads_max: [60, 30], nanoseconds: 0, seed };
    let search = Arc::new(Search::new(shape, limits).expect("a volume can be made"));
    let (found, failure) = search.run();
    assert!(search.has_taken_all(1) && !search.has_taken_all(2));
    assert!(failure.is_none(), "{}", failure.expect("there is one"));
    found
}

#[test]
fn small_workloads_lose_nothing_and_the_same_seed_finds_the_same() {
    let found = search("power-of-two", 1);
    assert!(found.images > 3000 && found.trees > 100 && found.seconds > 50, "{found:?}");
    let again = search("power-of-two", 1);
    assert_eq!((found.states, found.images, found.trees), (again.states, again.images, again.trees));
    let other = search("blocks-512", 2);
    assert!(other.images != found.images && other.workloads[0] == found.workloads[0], "{other:?}");
}

#[test]
fn faults_cost_no_more_than_they_may() {
    let scenario = faults::scenarios().into_iter().find(|scenario| scenario.name == "small-fsync");
    let shape = shapes::all().into_iter().find(|shape| shape.name == "six-active").expect("such a shape");
    let stage = Stage::new(scenario.expect("such a scenario"), shape, 1).expect("it can be prepared");
    for &kind in KINDS {
        for moment in [Moment::Work, Moment::Mount] {
            let (counts, failure) = faults::sweep(&stage, kind, moment, (1, 5), &|_| ());
            assert!(failure.is_none(), "{failure:?}");
            // So short a scenario resets and finishes no zone, and its recovery opens none.
            let opens = kind.is_of(CommandKind::Open) && moment == Moment::Mount;
            let seldom = opens || ["reset-error", "finish-error"].contains(&kind.name);
            let is_for_work = (kind.times > 1 || kind.strikes == Strikes::Log) && moment == Moment::Mount;
            assert!(seldom || is_for_work || counts.struck > 0, "{} {moment:?}: {counts}", kind.name);
            assert!(kind.harm != Harm::Nothing || counts.failed == 0, "{}: {counts}", kind.name);
        }
    }
}

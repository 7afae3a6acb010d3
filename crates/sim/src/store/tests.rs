//! Runs with several clients can be repeated from the seed.

use std::sync::Arc;

use emulated::Emulated;

use super::{StoreSubject, all};
use crate::digest::mix;
use crate::explore::{Ran, Subject};
use crate::history::State;
use crate::shapes;
use crate::shows::Sign;

/// Digests of the device and of the allowed states, and the most syncs that one flush has served.
fn run(scenario: &str, seed: u64) -> (u64, u64, u64) {
    let profile = all().into_iter().find(|profile| profile.name == scenario).unwrap();
    let subject = StoreSubject::new(profile, shapes::all().remove(0), seed);
    rt::random::repeat_from(seed);
    let device = Arc::new(Emulated::new(subject.spec()));
    let Ran { device, history, shown } = subject.run(&device).unwrap();
    let allowed = (0..=device.commands()).map(|at| {
        let states: Vec<u64> = history.allowed(at).iter().map(|state| state.digest()).collect();
        mix(&states)
    });
    (device.digest(), mix(&allowed.collect::<Vec<_>>()), shown.of(Sign::FlushesForFour))
}

#[test]
fn clients_at_once_repeat_from_their_seed() {
    for scenario in ["store-group-commit", "store-group-checkpoint", "store-group-eviction"] {
        let runs: Vec<_> = (1..5).map(|seed| run(scenario, seed)).collect();
        assert!((1..5).all(|seed| run(scenario, seed) == runs[seed as usize - 1]), "{scenario}");
        let devices: std::collections::BTreeSet<u64> = runs.iter().map(|run| run.0).collect();
        assert_eq!(devices.len(), 4, "{scenario}: seeds differ");
    }
}

#[test]
fn one_flush_carries_the_commits_of_four_clients() {
    assert!((1..9).all(|seed| run("store-group-commit", seed).2 > 0));
}

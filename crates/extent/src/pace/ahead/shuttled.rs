//! Who looks whether anybody writes, and who ends, in orders that Shuttle chooses (`cargo xtask shuttle`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rt::shuttled::{Choice, explore};
use rt::thread::{Signal, spawn};

use super::*;

const CHOICES: [Choice; 2] = [Choice::Random, Choice::Priorities(4)];

/// Two write, and call where they are asked to; the background looks until it is quiet, and waits where it is not, for as
/// long as it takes.
fn look_until_quiet(is_quiet_or_calls: fn(&Ahead) -> bool) {
    let (ahead, signal) = (Arc::new(Ahead::default()), Arc::new(Signal::default()));
    let write = |_| {
        let (ahead, signal) = (Arc::clone(&ahead), Arc::clone(&signal));
        let write = move || {
            drop(ahead.writing());
            if ahead.take_call() {
                signal.wake();
            }
        };
        spawn("writer", write).unwrap()
    };
    let writers: Vec<_> = (0..2).map(write).collect();
    let background = spawn("background", move || {
        let mut seen = 0;
        while !ahead.is_quiet() {
            if !is_quiet_or_calls(&ahead) {
                seen = signal.wait(seen, Duration::MAX).unwrap();
            }
        }
    });
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    background.unwrap().join().unwrap();
}

/// As [`Ahead::is_quiet_or_calls`], but who finds that somebody writes does not look again when he has said that he waits.
fn looks_once(ahead: &Ahead) -> bool {
    let is_written = ahead.is_written();
    ahead.waits.fetch_or(is_written, Ordering::SeqCst);
    !is_written
}

#[test]
fn who_ends_last_calls_whoever_has_looked() {
    for choice in CHOICES {
        explore(choice, 1, 3000, || look_until_quiet(Ahead::is_quiet_or_calls));
        let once = || explore(choice, 1, 3000, || look_until_quiet(looks_once));
        let panic = catch_unwind(AssertUnwindSafe(once)).expect_err("a call is lost");
        assert!(panic.downcast_ref::<String>().is_some_and(|said| said.contains("deadlock")));
    }
}

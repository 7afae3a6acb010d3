//! Writers that find work, and the background task that falls asleep, in orders that Shuttle chooses (`cargo xtask
//! shuttle`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rt::shuttled::{Choice, explore};
use rt::thread::{Signal, spawn};

use super::*;

const CHOICES: [Choice; 2] = [Choice::Random, Choice::Priorities(4)];

/// Two writers find work for the background task. It waits, as long as it takes, until there is some.
fn wake_for_work(falls_asleep: fn(&Charges) -> bool) {
    let (charges, signal) = (Arc::new(Charges::default()), Arc::new(Signal::default()));
    let write = |_| {
        let (charges, signal) = (Arc::clone(&charges), Arc::clone(&signal));
        let write = move || {
            charges.is_wanted.store(true, Ordering::SeqCst);
            if charges.take_call() {
                signal.wake();
            }
        };
        spawn("writer", write).unwrap()
    };
    let writers: Vec<_> = (0..2).map(write).collect();
    let background = spawn("background", move || {
        let mut seen = 0;
        while falls_asleep(&charges) {
            seen = signal.wait(seen, Duration::MAX).unwrap();
        }
    });
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    background.unwrap().join().unwrap();
}

/// As [`Charges::falls_asleep`], but it looks for work before it says that it sleeps.
fn looks_first(charges: &Charges) -> bool {
    let has_work = charges.is_wanted.load(Ordering::SeqCst);
    charges.sleeps.store(true, Ordering::SeqCst);
    !has_work
}

#[test]
fn a_writer_wakes_a_background_task_that_falls_asleep() {
    for choice in CHOICES {
        explore(choice, 1, 3000, || wake_for_work(Charges::falls_asleep));
        let wrong = || explore(choice, 1, 3000, || wake_for_work(looks_first));
        let panic = catch_unwind(AssertUnwindSafe(wrong)).expect_err("a call is lost");
        assert!(panic.downcast_ref::<String>().is_some_and(|message| message.contains("deadlock")));
    }
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, RwLock};
use crate::thread::{Signal, Stop};

const CHOICES: [Choice; 2] = [Choice::Random, Choice::Priorities(3)];

/// The panic of the body in one of these orders.
fn panics(choice: Choice, schedules: usize, body: impl Fn() + Send + Sync + 'static) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| explore(choice, 1, schedules, body))).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap())
}

fn spawn(body: impl FnOnce() + Send + 'static) -> crate::thread::JoinHandle<()> {
    crate::thread::spawn("other", body).unwrap()
}

#[test]
fn a_lock_admits_one_thread_at_a_time() {
    for choice in CHOICES {
        explore(choice, 1, 100, || {
            let (count, other) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
            let add = |count: &Mutex<u64>, other: &RwLock<u64>| {
                let mut held = count.lock();
                let before = *held;
                assert!(count.try_lock().is_none(), "it is held");
                let read = *other.read();
                *other.write() = read + 1;
                *held = before + 1;
            };
            let theirs = (Arc::clone(&count), Arc::clone(&other));
            let thread = spawn(move || add(&theirs.0, &theirs.1));
            add(&count, &other);
            thread.join().unwrap();
            assert_eq!((*count.lock(), *other.read()), (2, 2));
        });
    }
}

#[test]
fn a_lost_update_of_an_atomic_is_found() {
    for choice in CHOICES {
        let found = panics(choice, 1000, || {
            let count = Arc::new(AtomicU64::new(0));
            let add = |count: &AtomicU64| count.store(count.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
            let theirs = Arc::clone(&count);
            let thread = spawn(move || add(&theirs));
            add(&count);
            thread.join().unwrap();
            assert_eq!(count.load(Ordering::SeqCst), 2, "both have counted");
        });
        assert!(found.unwrap().contains("both have counted"));
    }
}

#[test]
fn two_locks_in_two_orders_are_found_as_a_deadlock() {
    for choice in CHOICES {
        let found = panics(choice, 1000, || {
            let locks = Arc::new((Mutex::new(0), Mutex::new(0)));
            let theirs = Arc::clone(&locks);
            let thread = spawn(move || *theirs.0.lock() += *theirs.1.lock());
            *locks.1.lock() += *locks.0.lock();
            thread.join().unwrap();
        });
        assert!(found.unwrap().contains("deadlock"));
    }
}

/// Waits for a condition that another thread makes true. There is no notification if `lost`.
fn wait_for_another(lost: bool) {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = Arc::clone(&shared);
    let thread = spawn(move || {
        *theirs.0.lock() = true;
        if !lost {
            theirs.1.notify_one();
        }
    });
    let mut done = shared.0.lock();
    while !*done {
        shared.1.wait(&mut done);
    }
    drop(done);
    thread.join().unwrap();
}

#[test]
fn a_lost_notification_is_found_as_a_deadlock() {
    for choice in CHOICES {
        explore(choice, 1, 200, || wait_for_another(false));
        assert!(panics(choice, 1000, || wait_for_another(true)).unwrap().contains("deadlock"));
    }
}

#[test]
fn a_wait_with_a_timeout_ends() {
    for choice in CHOICES {
        explore(choice, 1, 100, || {
            let stop = Arc::new(Stop::default());
            assert!(!stop.wait(Duration::from_secs(1_000_000)));
            let theirs = Arc::clone(&stop);
            let thread = spawn(move || theirs.stop());
            while !stop.wait(Duration::from_secs(1_000_000)) {}
            thread.join().unwrap();
        });
    }
}

/// Two threads queue work for a third, which does the work and waits while there is none.
fn work_when_woken(forgets: bool) {
    let (signal, left) = (Arc::new(Signal::default()), Arc::new(AtomicU64::new(0)));
    let (woken, theirs) = (Arc::clone(&signal), Arc::clone(&left));
    let worker = spawn(move || {
        let (mut seen, mut done) = (0, 0);
        loop {
            done += theirs.swap(0, Ordering::SeqCst);
            if done == 4 {
                break;
            }
            // A thread that reads the counter only now forgets a wake between the work and the wait.
            let seen_now = if forgets { woken.wait(u64::MAX, Duration::ZERO).unwrap() } else { seen };
            seen = woken.wait(seen_now, Duration::MAX).unwrap();
        }
    });
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (signal, left) = (Arc::clone(&signal), Arc::clone(&left));
            spawn(move || {
                for _ in 0..2 {
                    left.fetch_add(1, Ordering::SeqCst);
                    signal.wake();
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    worker.join().unwrap();
}

#[test]
fn a_wake_that_comes_while_a_thread_works_is_not_lost() {
    for choice in CHOICES {
        explore(choice, 1, 1000, || work_when_woken(false));
        assert!(panics(choice, 1000, || work_when_woken(true)).unwrap().contains("deadlock"));
    }
}

#[test]
fn a_thread_that_waits_is_stopped() {
    for choice in CHOICES {
        explore(choice, 1, 200, || {
            let signal = Arc::new(Signal::default());
            let theirs = Arc::clone(&signal);
            let thread = spawn(move || assert_eq!(theirs.wait(0, Duration::MAX), None));
            signal.set_stopped(true);
            thread.join().unwrap();
        });
    }
}

#[test]
fn the_same_seed_repeats_the_same_orders() {
    let orders = |seed| {
        let (noted, all) = std::sync::mpsc::channel();
        explore(Choice::Random, seed, 20, move || {
            let order = Arc::new(Mutex::new(vec![random()]));
            let theirs = Arc::clone(&order);
            let thread = spawn(move || (0..5).for_each(|_| theirs.lock().push(1)));
            (0..5).for_each(|_| order.lock().push(2));
            thread.join().unwrap();
            noted.send(order.lock().clone()).unwrap();
        });
        all.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(orders(1).len(), 20);
    assert_eq!(orders(1), orders(1));
    assert_ne!(orders(1), orders(2));
}

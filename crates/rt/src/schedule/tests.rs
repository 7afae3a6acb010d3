use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::sync::{Condvar, Mutex, RwLock};

fn body<'a, T>(name: &str, work: impl FnOnce() -> T + Send + 'a) -> Body<'a, T> {
    (name.to_owned(), Box::new(work))
}

/// Four threads note their numbers under a lock, eight times each.
fn order(seed: u64) -> Vec<usize> {
    let noted = Mutex::new(Vec::new());
    let note = |number| {
        let noted = &noted;
        move || (0..8).for_each(|_| noted.lock().push(number))
    };
    run(seed, (0..4).map(|number| body("noting", note(number))).collect());
    noted.lock().clone()
}

#[test]
fn the_order_follows_from_the_seed() {
    let orders: Vec<_> = (0..20).map(order).collect();
    assert!(orders.iter().all(|order| order.len() == 32));
    assert!((0..20).all(|seed| order(seed) == orders[seed as usize]));
    assert!(orders.iter().collect::<std::collections::BTreeSet<_>>().len() > 15, "seeds differ");
}

#[test]
fn a_lock_is_held_by_one_thread_across_seams() {
    for seed in 0..50 {
        let count = Mutex::new(0);
        let add = || {
            for _ in 0..10 {
                let mut held = count.lock();
                let before = *held;
                at_device();
                *held = before + 1;
            }
        };
        let ran = run(seed, (0..3).map(|_| body("adding", add)).collect());
        assert_eq!(*count.lock(), 30);
        assert!(ran.handovers > 3);
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    let (mut together, value) = (0, RwLock::new(0));
    for seed in 0..50 {
        let inside = AtomicUsize::new(0);
        let read = || {
            let _held = value.read();
            inside.fetch_add(1, Ordering::SeqCst);
            at_device();
            let seen = inside.load(Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
            seen
        };
        let write = || {
            let mut held = value.write();
            assert_eq!(inside.load(Ordering::SeqCst), 0, "no reader is inside");
            at_device();
            *held += 1;
            assert_eq!(inside.load(Ordering::SeqCst), 0, "no reader came in");
            0
        };
        let bodies = vec![body("a", read), body("b", write), body("c", read), body("d", write)];
        together += run(seed, bodies).returned.into_iter().max().unwrap() / 2;
    }
    assert_eq!(*value.read(), 100);
    assert!(together > 0, "in some order both readers were inside");
}

#[test]
fn a_thread_that_waits_for_a_condition_continues_after_a_notification() {
    for seed in 0..50 {
        let (queue, changed) = (Mutex::new(Vec::new()), Condvar::new());
        let take = || {
            let mut held = queue.lock();
            while held.is_empty() {
                changed.wait(&mut held);
            }
            held.pop().unwrap()
        };
        let give = || {
            for number in [3, 4] {
                queue.lock().push(number);
                changed.notify_one();
            }
            0
        };
        let bodies = vec![body("taking", take), body("also taking", take), body("giving", give)];
        let mut taken = run(seed, bodies).returned;
        taken.sort_unstable();
        assert_eq!(taken, [0, 3, 4]);
    }
}

#[test]
fn a_wait_with_a_timeout_ends_when_no_thread_can_continue() {
    let (held, changed) = (Mutex::new(()), Condvar::new());
    let waiting = || changed.wait_for(&mut held.lock(), Duration::from_secs(1_000_000));
    run(7, vec![body("one", waiting), body("two", waiting)]);
}

#[test]
fn two_locks_in_two_orders_are_found_as_a_deadlock() {
    let mut found = 0;
    for seed in 0..50 {
        let (a, b) = (Mutex::new(0), Mutex::new(0));
        let both = |first: &Mutex<i32>, second: &Mutex<i32>| {
            let mut first = first.lock();
            at_device();
            *second.lock() += 1;
            *first += 1;
        };
        let bodies = vec![body("ab", || both(&a, &b)), body("ba", || both(&b, &a))];
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, bodies))) {
            let words = panic.downcast_ref::<String>().unwrap();
            assert!(words.contains("ab for the lock at") && words.contains("ba for the lock at"), "{words}");
            assert_eq!((*a.lock(), *b.lock()), (1, 1), "the other thread has got both");
            found += 1;
        } else {
            assert_eq!((*a.lock(), *b.lock()), (2, 2));
        }
    }
    assert!(0 < found && found < 50, "in some orders and not in others: {found}");
}

#[test]
fn a_lost_notification_is_found_as_a_deadlock() {
    let (held, changed) = (Mutex::new(()), Condvar::new());
    let bodies = vec![body("waiting", || changed.wait(&mut held.lock()))];
    let panic = catch_unwind(AssertUnwindSafe(|| run(1, bodies))).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("waiting to be notified at"));
    assert!(held.try_lock().is_some(), "its lock was released");
}

#[test]
fn a_panic_in_one_thread_ends_the_schedule_after_the_others() {
    let ended = Arc::new(Mutex::new(0));
    let counting = || {
        (0..20).for_each(|_| at_device());
        *ended.lock() += 1;
    };
    let bodies = vec![body("one", counting), body("two", || panic!("on purpose")), body("three", counting)];
    let panic = catch_unwind(AssertUnwindSafe(|| run(3, bodies))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(*ended.lock(), 2);
}

#[test]
fn each_thread_has_randomness_of_its_own_that_repeats() {
    let secrets = |seed| {
        let secret = || random::secret::<8>();
        run(seed, vec![body("one", secret), body("two", secret)]).returned
    };
    assert_eq!(secrets(1), secrets(1));
    assert_ne!(secrets(1)[0], secrets(1)[1]);
}

#[test]
fn threads_outside_of_schedules_run_freely() {
    let ran = run(1, vec![body("alone", at_device)]);
    assert_eq!((ran.returned.len(), ran.handovers), (1, 0));
    let lock = Mutex::new(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _held = lock.lock();
            run(1, vec![body("scheduled", at_device)]);
        });
    });
    assert!(!is_scheduled());
}

#[test]
fn in_time_the_thread_that_sleeps_least_continues_first_and_none_before() {
    for seed in 0..20 {
        let (clock, noted) = (Arc::new(ManualClock::default()), Mutex::new(Vec::new()));
        let sleep = |naps: [u64; 3]| {
            let (clock, noted) = (&clock, &noted);
            move || {
                for nap in naps {
                    let until = clock.monotonic_ns() + nap;
                    assert!(sleep_until(until));
                    assert_eq!(clock.monotonic_ns(), until, "time passes up to the first moment only");
                    noted.lock().push(until);
                }
            }
        };
        run_in_time(&clock, seed, vec![body("a", sleep([5, 10, 1])), body("b", sleep([7, 1, 6]))]);
        assert_eq!(*noted.lock(), [5, 7, 8, 14, 15, 16]);
    }
    assert!(!sleep_until(u64::MAX), "a thread outside of schedules does not sleep");
}

#[test]
fn in_time_a_lock_is_waited_for_until_it_is_free_and_a_condition_until_its_time_is_over() {
    for seed in 0..20 {
        let clock = Arc::new(ManualClock::default());
        let (lock, told) = (Mutex::new(false), Condvar::new());
        let hold = || {
            let mut held = lock.lock();
            sleep_until(1_000);
            *held = true;
            drop(held);
            sleep_until(5_000);
            told.notify_all();
            clock.monotonic_ns()
        };
        let take = || {
            sleep_until(10);
            assert!(lock.try_lock().is_none(), "it is held while its holder sleeps");
            let mut held = lock.lock();
            assert!(*held && clock.monotonic_ns() == 1_000);
            told.wait_for(&mut held, Duration::from_nanos(500));
            assert_eq!(clock.monotonic_ns(), 1_500, "no notification");
            told.wait_for(&mut held, Duration::from_secs(1));
            clock.monotonic_ns()
        };
        let ran = run_in_time(&clock, seed, vec![body("holds", hold), body("takes", take)]);
        assert_eq!(ran.returned, [5_000, 5_000], "notified before its timeout");
    }
}

#[test]
fn in_time_an_endless_wait_is_a_deadlock_when_no_thread_sleeps() {
    let (clock, lock, never) = (Arc::new(ManualClock::default()), Mutex::new(()), Condvar::new());
    let wait = || never.wait(&mut lock.lock());
    let sleep = || assert!(sleep_until(100));
    let bodies = vec![body("waits", wait), body("sleeps", sleep)];
    let panicked = catch_unwind(AssertUnwindSafe(|| run_in_time(&clock, 1, bodies)));
    assert!(panicked.is_err() && clock.monotonic_ns() == 100);
}

/// A writer on a nearly full volume that had fallen behind waited until a whole zone was reclaimed (27 to 34 times a
/// write on an empty volume), because the background took the GC lock again as soon as it had released it.
#[test]
fn a_lock_that_is_released_fairly_goes_to_the_waiting_thread() {
    for seed in 0..20 {
        let (clock, lock) = (Arc::new(ManualClock::default()), Mutex::new(0));
        let hold = || {
            for _ in 0..10 {
                let mut rounds = lock.lock();
                *rounds += 1;
                sleep_until(clock.monotonic_ns() + 100);
                crate::sync::unlock_fair(rounds);
            }
            0
        };
        let take = || {
            sleep_until(10);
            *lock.lock()
        };
        let ran = run_in_time(&clock, seed, vec![body("holds", hold), body("takes", take)]);
        assert_eq!(ran.returned, [0, 1], "after the first round");
    }
}

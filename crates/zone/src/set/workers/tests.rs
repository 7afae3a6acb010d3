use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
fn parts_are_executed_at_the_same_time_and_return_in_their_order() {
    let workers = Workers::new(3, true);
    for round in 0..200 {
        let (barrier, numbers) = (Barrier::new(3), [round, round + 1, round + 2]);
        let part = |number: &u32| {
            barrier.wait();
            number + 1
        };
        let returned = workers.run(numbers.iter().map(|number| move || part(number)).collect());
        assert_eq!(returned, [round + 1, round + 2, round + 3]);
    }
    assert_eq!(workers.threads.lock().all.len(), 2, "threads are used again");
}

#[test]
fn a_caller_that_finds_no_idle_thread_executes_all_parts() {
    let (workers, inner) = (Workers::new(2, true), AtomicU32::new(0));
    // Each part sends parts of its own: more than there are threads.
    let part = || {
        let parts = (0..3).map(|number| {
            let inner = &inner;
            move || inner.fetch_add(number, Ordering::Relaxed)
        });
        workers.run(parts.collect()).len()
    };
    for _ in 0..100 {
        assert_eq!(workers.run(vec![part; 5]), [3; 5]);
    }
    assert_eq!(inner.load(Ordering::Relaxed), 100 * 5 * 3);
    assert!(workers.threads.lock().all.len() <= 2);
}

#[test]
fn a_panic_in_a_part_waits_for_the_others_and_reaches_the_caller() {
    for panicking in 0..3 {
        let (workers, completed) = (Workers::new(3, true), AtomicU32::new(0));
        let part = |number: u32| {
            assert_ne!(number, panicking, "this part panics");
            completed.fetch_add(1, Ordering::Relaxed);
        };
        let run = || workers.run((0..3).map(|number| move || part(number)).collect());
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert_eq!(completed.load(Ordering::Relaxed), 2, "{panicking}");
        // Its thread can be used, or another one begins.
        assert_eq!(workers.run(vec![|| 7; 3]), [7; 3]);
    }
}

#[test]
fn parts_of_devices_in_memory_follow_each_other() {
    let workers = Workers::new(3, false);
    assert!(!workers.is_worth_it(usize::MAX));
    let order = Mutex::new(Vec::new());
    let part = |number: u32| order.lock().push(number);
    workers.run((0..3).map(|number| move || part(number)).collect());
    assert_eq!(*order.lock(), [0, 1, 2]);
    assert!(workers.threads.lock().all.is_empty());
}

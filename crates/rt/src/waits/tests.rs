use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;
use crate::sync::{Condvar, Mutex, RwLock};

/// How often [`about_to_wait`] was called during `work`.
fn waits(work: impl FnOnce()) -> u32 {
    let count = Rc::new(Cell::new(0));
    let guard = {
        let count = Rc::clone(&count);
        call_before_waits(move |what| {
            assert_eq!(what, WaitFor::Thread);
            count.set(count.get() + 1);
        })
    };
    work();
    drop(guard);
    about_to_wait(WaitFor::Device);
    count.get()
}

#[test]
fn what_is_free_is_not_waited_for() {
    let (mutex, lock) = (Mutex::new(()), RwLock::new(()));
    let taken = waits(|| {
        drop(mutex.lock());
        drop((lock.read(), lock.read()));
        drop(lock.write());
    });
    assert_eq!(taken, 0);
}

#[test]
fn each_wait_is_announced() {
    let (mutex, lock, condition) = (Mutex::new(()), RwLock::new(()), Condvar::new());
    let wait_while_held = |hold: &(dyn Fn(&dyn Fn()) + Sync), take: &dyn Fn()| {
        let ((holds, held), (announce, announced)) = (channel(), channel());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                hold(&|| {
                    holds.send(()).unwrap();
                    announced.recv_timeout(Duration::from_secs(20)).expect("the wait is announced");
                })
            });
            held.recv().unwrap();
            let guard = call_before_waits(move |_| announce.send(()).unwrap());
            take();
            drop(guard);
        });
    };
    // Each of these ends only if the wait is announced before it begins.
    wait_while_held(
        &|hold| {
            let _held = mutex.lock();
            hold()
        },
        &|| drop(mutex.lock()),
    );
    wait_while_held(
        &|hold| {
            let _held = lock.write();
            hold()
        },
        &|| drop(lock.read()),
    );
    wait_while_held(
        &|hold| {
            let _held = lock.read();
            hold()
        },
        &|| drop(lock.write()),
    );
    assert_eq!(waits(|| condition.wait_for(&mut mutex.lock(), Duration::from_millis(1))), 1);
}

/// A callback that waited for a lock was called again before it did, and so on until the stack ended.
#[test]
fn a_callback_that_waits_is_not_called_for_that() {
    let condition = Condvar::new();
    let calls = Rc::new(Cell::new(0));
    let _guard = {
        let calls = Rc::clone(&calls);
        call_before_waits(move |_| {
            calls.set(calls.get() + 1);
            Condvar::new().wait_for(&mut Mutex::new(()).lock(), Duration::from_millis(1));
        })
    };
    for expected in 1..=2 {
        condition.wait_for(&mut Mutex::new(()).lock(), Duration::from_millis(1));
        assert_eq!(calls.get(), expected);
    }
}

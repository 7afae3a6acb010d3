use std::panic::catch_unwind;

use super::*;

static MAPS: Ordered<Mutex<u32>> = Ordered::mutex(LockOrder::Gc, 0);
static FIRST: Ordered<RwLock<u32>> = Ordered::rwlock(LockOrder::Inode, 1);
static SECOND: Ordered<RwLock<u32>> = Ordered::rwlock(LockOrder::Inode, 2);

/// Whether the thread is stopped before it waits.
fn is_refused(wait: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    catch_unwind(wait).is_err()
}

#[test]
fn a_thread_that_waits_for_an_earlier_lock_is_stopped() {
    let later = MAPS.lock();
    assert!(is_refused(|| drop(FIRST.read())));
    assert!(is_refused(|| drop(FIRST.write())));
    drop(later);
    let earlier = FIRST.read();
    *MAPS.lock() += 1;
    drop(earlier);
    assert!(!is_refused(|| drop(FIRST.read())), "nothing is held any more");
}

#[test]
fn several_locks_of_one_order_may_be_held_only_where_there_are_many() {
    let (first, second) = (FIRST.read(), SECOND.read());
    assert_eq!(*first + *second, 3);
    // Guards are dropped in any order.
    drop(first);
    let only: Ordered<Mutex<()>> = Ordered::mutex(LockOrder::Checkpoint, ());
    let other: Ordered<Mutex<()>> = Ordered::mutex(LockOrder::Checkpoint, ());
    let held = only.lock();
    assert!(is_refused(std::panic::AssertUnwindSafe(|| drop(other.lock()))));
    unlock_fair(held);
    drop(other.lock());
    drop(second);
}

#[test]
fn a_thread_may_try_in_any_order() {
    let own: Ordered<Mutex<()>> = Ordered::mutex(LockOrder::BackgroundChanges, ());
    let held = FIRST.read();
    let tried = own.try_lock();
    assert!(tried.is_some());
    assert!(own.try_lock().is_none(), "it is taken");
    drop((held, tried));
}

/// The check is per thread: another thread may hold any lock.
#[test]
fn locks_of_other_threads_do_not_count() {
    let later: Ordered<Mutex<()>> = Ordered::mutex(LockOrder::Node, ());
    let held = later.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(FIRST.read()));
    });
    drop(held);
}

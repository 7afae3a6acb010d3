//! Advisory locks of open files.

use std::io::ErrorKind;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};

use polder::{Error, FsError, LockMode, LockRange};

use crate::bench::{cause, file, volume};

#[test]
fn a_lock_excludes_other_open_files() {
    let (_bench, volume) = volume();
    let (one, other) = (file(&volume, "/file"), file(&volume, "/file"));
    one.try_lock().unwrap();
    let error = other.try_lock_shared().unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::WouldBlock, 11));
    one.try_lock_shared().unwrap();
    other.try_lock_shared().unwrap();
    assert_eq!(cause(one.try_lock()), FsError::WouldBlock);
    other.unlock().unwrap();
    other.unlock().unwrap();
    one.try_lock().unwrap();
    drop(one);
    other.try_lock().unwrap();
}

#[test]
fn ranges_are_locked_apart() {
    let (_bench, volume) = volume();
    let (one, other) = (file(&volume, "/file"), file(&volume, "/file"));
    let range = |start, end| LockRange::new(start, end).unwrap();
    one.try_lock_range(range(0, 100), LockMode::Exclusive).unwrap();
    other.try_lock_range(range(100, 200), LockMode::Exclusive).unwrap();
    assert_eq!(cause(other.try_lock_range(range(50, 60), LockMode::Shared)), FsError::WouldBlock);
    one.unlock_range(range(40, 60)).unwrap();
    other.lock_range(range(50, 60), LockMode::Shared).unwrap();
    other.try_lock().unwrap();
    let reader = volume.options().read(true).open("/file").unwrap();
    assert_eq!(cause(reader.try_lock_range(LockRange::WHOLE, LockMode::Exclusive)), FsError::BadHandle);
}

/// Runs a call on a thread that has begun when this returns.
fn begin<'s>(
    scope: &'s Scope<'s, '_>,
    call: impl FnOnce() -> polder::Result<()> + Send + 's,
) -> ScopedJoinHandle<'s, polder::Result<()>> {
    let (began, begins) = mpsc::channel();
    let thread = scope.spawn(move || {
        began.send(()).unwrap();
        call()
    });
    begins.recv().unwrap();
    thread
}

/// Every way in which a lock ends. The waiting thread gets the lock.
#[test]
fn a_waiting_thread_gets_the_lock_when_it_is_released() {
    type End = fn(&mut Option<polder::File>);
    let ends: [End; 3] = [
        |file| *file = None,
        |file| file.as_ref().unwrap().unlock().unwrap(),
        |file| file.as_ref().unwrap().try_lock_shared().unwrap(),
    ];
    for end in ends {
        let (_bench, volume) = volume();
        let (one, other) = (file(&volume, "/file"), file(&volume, "/file"));
        one.lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = begin(scope, || other.lock_shared());
            // A file that is open still must not end the wait by being dropped.
            let mut one = Some(one);
            end(&mut one);
            waiting.join().unwrap().unwrap();
            drop(one);
        });
    }
}

#[test]
fn two_files_that_share_a_lock_can_both_ask_for_it_alone() {
    let (_bench, volume) = volume();
    let (one, other) = (file(&volume, "/file"), file(&volume, "/file"));
    one.lock_shared().unwrap();
    other.lock_shared().unwrap();
    std::thread::scope(|scope| {
        for file in [one, other] {
            scope.spawn(move || {
                file.lock().unwrap();
                file.unlock().unwrap();
            });
        }
    });
}

#[test]
fn closing_the_volume_ends_every_wait() {
    let (_bench, volume) = volume();
    let (one, other) = (file(&volume, "/file"), file(&volume, "/file"));
    one.lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = begin(scope, || other.lock());
        let closed = scope.spawn(|| volume.close());
        closed.join().unwrap().unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    });
    assert!(matches!(one.unlock(), Err(Error::Closed)));
}

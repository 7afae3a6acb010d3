//! Locks.
//!
//! No lock here is poisoned: a panic while one is held is a bug that ends the process. The order in which locks are
//! taken is [`crate::order::LockOrder`].
//!
//! Each lock and each wait is a seam of [`crate::schedule`]: a thread of a schedule never blocks here but passes its
//! turn to another one. Threads outside of schedules only read a counter.

use std::panic::Location;
use std::time::Duration;

/// The atomics of `std`. They are taken from here, so that a scheduler can choose the next thread at each of them.
pub use std::sync::atomic;

pub use parking_lot::{MappedMutexGuard, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::schedule;
use crate::waits::{WaitFor, about_to_wait};

/// Takes a lock by `attempt`, or by `wait` if it is not free.
#[inline]
#[track_caller]
fn lock<G>(attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
    schedule::acquire(&attempt).or_else(attempt).unwrap_or_else(|| announce_and(wait))
}

#[cold]
#[inline(never)]
fn announce_and<G>(wait: impl FnOnce() -> G) -> G {
    about_to_wait(WaitFor::Thread);
    wait()
}

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is free, and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        lock(|| self.0.try_lock(), || self.0.lock())
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        schedule::at_lock();
        self.0.try_lock()
    }

    /// The guarded value. There is no other user of it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Releases a mutex to a waiting thread, if there is one. So a thread that takes the lock again and again does not
/// starve others.
pub fn unlock_fair<T: ?Sized>(guard: MutexGuard<'_, T>) {
    MutexGuard::unlock_fair(guard);
    schedule::let_others_try();
}

/// A lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until there is no writer.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        lock(|| self.0.try_read(), || self.0.read())
    }

    /// Waits until there is no reader and no writer.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        lock(|| self.0.try_write(), || self.0.write())
    }

    /// The guarded value. There is no other user of it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A condition for which holders of a mutex wait. A wait may end spuriously.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition without waiting threads.
    pub const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the mutex until a notification.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        if !self.waits_in_turn(guard, None) {
            about_to_wait(WaitFor::Thread);
            self.0.wait(guard);
        }
    }

    /// Releases the mutex until a notification, or for `timeout`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        if !self.waits_in_turn(guard, Some(timeout)) {
            about_to_wait(WaitFor::Thread);
            self.0.wait_for(guard, timeout);
        }
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        schedule::notify(self.place(), false);
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        schedule::notify(self.place(), true);
        self.0.notify_all();
    }

    /// Identifies the condition as long as a thread waits.
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns false for a thread outside of schedules, which has not waited.
    #[track_caller]
    fn waits_in_turn<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> bool {
        if !schedule::is_scheduled() {
            return false;
        }
        let (mutex, at) = (MutexGuard::mutex(guard), Location::caller());
        // When this returns, the mutex is free and stays free, because this thread has the turn.
        let waited = MutexGuard::unlocked(guard, || {
            schedule::wait(self.place(), timeout, at, || mutex.try_lock().is_some())
        });
        waited.unwrap_or_else(|deadlock| deadlock.break_it());
        true
    }
}

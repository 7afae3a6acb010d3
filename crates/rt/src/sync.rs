//! Locks.
//!
//! No lock here is poisoned: a panic while one is held is a bug that ends the process. The order in
//! which locks are taken is written in `docs/design.md` ("Locks").
//!
//! Each lock and each wait is a seam of [`crate::schedule`]: a thread of a schedule never blocks here,
//! it hands its turn to another. Threads that belong to none pay one look at a counter.

use std::panic::Location;
use std::time::Duration;

/// As `std` has them. Taken from here, they are seen by a build whose scheduler chooses at each of them who goes on.
pub use std::sync::atomic;

pub use parking_lot::{MappedMutexGuard, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::schedule;

/// One at a time.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// Nobody has it.
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until nobody else has it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        schedule::acquire(|| self.0.try_lock()).unwrap_or_else(|| self.0.lock())
    }

    /// Takes it unless somebody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        schedule::at_lock();
        self.0.try_lock()
    }

    /// What it guards, of which there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Lets a mutex go, to somebody who waits for it if anybody does: whoever takes it again and again keeps nobody else from it.
pub fn unlock_fair<T: ?Sized>(guard: MutexGuard<'_, T>) {
    MutexGuard::unlock_fair(guard);
    schedule::let_others_try();
}

/// Many readers, or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// Nobody has it.
    pub const fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        schedule::acquire(|| self.0.try_read()).unwrap_or_else(|| self.0.read())
    }

    /// Waits until nobody else reads or writes.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        schedule::acquire(|| self.0.try_write()).unwrap_or_else(|| self.0.write())
    }

    /// What it guards, of which there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Where those who hold a mutex wait for others to change what it guards. A wait may end for no reason.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Gives the mutex up until somebody notifies.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        if !self.waits_in_turn(guard, None) {
            self.0.wait(guard);
        }
    }

    /// Gives the mutex up until somebody notifies, or for `timeout`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        if !self.waits_in_turn(guard, Some(timeout)) {
            self.0.wait_for(guard, timeout);
        }
    }

    /// Wakes one of those who wait.
    pub fn notify_one(&self) {
        schedule::notify(self.place(), false);
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        schedule::notify(self.place(), true);
        self.0.notify_all();
    }

    /// What tells it from others as long as somebody waits.
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// False for a thread of no schedule, which has not waited.
    #[track_caller]
    fn waits_in_turn<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> bool {
        if !schedule::is_scheduled() {
            return false;
        }
        let (mutex, at) = (MutexGuard::mutex(guard), Location::caller());
        // When it returns the mutex is free, and stays so: it is this thread's turn.
        let waited = MutexGuard::unlocked(guard, || {
            schedule::wait(self.place(), timeout, at, || mutex.try_lock().is_some())
        });
        waited.unwrap_or_else(|deadlock| deadlock.break_it());
        true
    }
}

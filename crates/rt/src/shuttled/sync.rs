//! The locks and atomics of [`crate::sync`] with Shuttle.
//!
//! They exist within one execution. Outside of one, each of them panics. Differences between Shuttle and parking_lot
//! are handled here:
//!
//! * Poisoning is ignored. A panic ends the execution, and the test with it.
//! * A wait takes its guard by reference. The guard is empty meanwhile, which no other code can see, because its
//!   owner waits.
//! * A wait with a timeout. Shuttle has no time. Such a wait ends by itself when its thread next has the turn, which
//!   every caller must tolerate anyway.
//!
//! Shuttle is stricter than parking_lot in one respect: a thread that requests a read lock which it has already is in
//! a deadlock, even without a waiting writer. It is weaker in another respect: every atomic is sequentially
//! consistent, whatever order was requested.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use shuttle::sync::atomic;
pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

const HELD: &str = "a guard is empty only while its owner waits";

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// Access to the value that a [`Mutex`] guards.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a shuttle::sync::Mutex<T>,
    guard: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is free, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, guard: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: &self.0, guard: Some(guard) })
    }

    /// The guarded value. There is no other user of it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect(HELD)
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect(HELD)
    }
}

/// Releases a mutex. The scheduler chooses the next holder anyway.
pub fn unlock_fair<T: ?Sized>(guard: MutexGuard<'_, T>) {
    drop(guard);
}

/// A lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        RwLock(shuttle::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until there is no writer.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is no reader and no writer.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guarded value. There is no other user of it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition for which holders of a mutex wait. A wait may end spuriously.
#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// A condition without waiting threads.
    pub const fn new() -> Self {
        Condvar(shuttle::sync::Condvar::new())
    }

    /// Releases the mutex until a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.guard.take().expect(HELD);
        guard.guard = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Releases the mutex while other threads have their turn. Then the timeout may have passed.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        if timeout == Duration::MAX {
            return self.wait(guard);
        }
        drop(guard.guard.take());
        shuttle::thread::yield_now();
        guard.guard = Some(guard.mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Condvar")
    }
}

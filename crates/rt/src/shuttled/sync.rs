//! The locks and atomics of [`crate::sync`] as Shuttle's.
//!
//! They live and die within one execution; outside of one each of them panics. What parking_lot's have and Shuttle's
//! have not is made here:
//!
//! * No poison. A panic ends the execution, and the test with it.
//! * A wait takes its guard by reference. The guard is empty meanwhile, which nobody can see: its owner is the one
//!   who waits.
//! * A wait with a timeout. Shuttle knows no time; such a wait ends by itself when it next has the turn, which whoever
//!   calls it has to bear in any case.
//!
//! Shuttle is stricter than parking_lot in one thing: a thread that has a read lock and asks for it again has made a
//! deadlock, also when no writer stands between. And it is weaker in one: every atomic is sequentially consistent,
//! whatever order was asked for.

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use shuttle::sync::atomic;
pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

const HELD: &str = "a guard is empty only while its owner waits";

/// One at a time.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// The right to what a [`Mutex`] guards.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a shuttle::sync::Mutex<T>,
    guard: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Nobody has it.
    pub const fn new(value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until nobody else has it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, guard: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Takes it unless somebody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: &self.0, guard: Some(guard) })
    }

    /// What it guards, of which there is no other user.
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

/// Lets a mutex go: who has it next is the scheduler's choice anyhow.
pub fn unlock_fair<T: ?Sized>(guard: MutexGuard<'_, T>) {
    drop(guard);
}

/// Many readers, or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Nobody has it.
    pub const fn new(value: T) -> Self {
        RwLock(shuttle::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it guards, of which there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where those who hold a mutex wait for others to change what it guards. A wait may end for no reason.
#[derive(Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Condvar(shuttle::sync::Condvar::new())
    }

    /// Gives the mutex up until somebody notifies.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.guard.take().expect(HELD);
        guard.guard = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Gives the mutex up while others have their turn; then the time is over, if it ever is.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        if timeout == Duration::MAX {
            return self.wait(guard);
        }
        drop(guard.guard.take());
        shuttle::thread::yield_now();
        guard.guard = Some(guard.mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes one of those who wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Condvar")
    }
}

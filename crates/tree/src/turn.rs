//! The checkpoint lock, and waiting for less than its release.
//!
//! Whoever takes a checkpoint, writes nodes out or cleans holds it throughout, and works with what it guards. From a
//! checkpoint's cut on nothing that it writes is dirty any more: who only waits until less is dirty goes on then, and
//! not when all of it is on the device. So cuts and releases are both counted, and [`Turn::wait`] waits for either.
//!
//! The count's own lock is a leaf.

use std::ops::{Deref, DerefMut};

use rt::sync::{Condvar, Mutex, MutexGuard};

/// A lock whose holder may let some of those who wait pass.
pub(crate) struct Turn<T> {
    held: Mutex<T>,
    passed: Mutex<u64>,
    changed: Condvar,
}

/// The lock is held. Fields are dropped in this order: it is free when that is counted.
pub(crate) struct Held<'t, T> {
    guard: MutexGuard<'t, T>,
    _release: Release<'t, T>,
}

struct Release<'t, T>(&'t Turn<T>);

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Turn { held: Mutex::new(value), passed: Mutex::new(0), changed: Condvar::new() }
    }

    /// Waits until nobody else has it.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        Held { guard: self.held.lock(), _release: Release(self) }
    }

    /// Takes it unless somebody has it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.held.try_lock().map(|guard| Held { guard, _release: Release(self) })
    }

    /// How often the lock was released, or its holder let others pass.
    pub(crate) fn passed(&self) -> u64 {
        *self.passed.lock()
    }

    /// Those who wait look again.
    pub(crate) fn pass(&self) {
        *self.passed.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until it has been released or passed since it was `seen`. To be called only after the lock was found
    /// taken since then: nobody else would end this.
    pub(crate) fn wait(&self, seen: u64) {
        let mut passed = self.passed.lock();
        while *passed == seen {
            self.changed.wait(&mut passed);
        }
    }
}

impl<T> Drop for Release<'_, T> {
    fn drop(&mut self) {
        self.0.pass();
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

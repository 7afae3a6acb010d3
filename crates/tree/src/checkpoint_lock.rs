//! The checkpoint lock, and a wait that ends before its release.
//!
//! A thread that takes a checkpoint, writes nodes out or runs GC holds the lock throughout, and works with the data
//! that it guards. From the cut of a checkpoint on, the nodes that it writes are no longer dirty. A thread that only
//! waits for fewer dirty nodes goes on at the cut, not when all nodes are on the device. So cuts and releases are both
//! counted, and [`CheckpointLock::wait`] waits for either.
//!
//! The lock of the count is a leaf: no other lock is taken under it.

use std::ops::{Deref, DerefMut};

use rt::order::{Guard, LockOrder, Ordered};
use rt::sync::{Condvar, Mutex, MutexGuard};

/// A lock whose holder may let waiting threads go on.
pub(crate) struct CheckpointLock<T> {
    held: Ordered<Mutex<T>>,
    passed: Mutex<u64>,
    changed: Condvar,
}

/// The guard. Its fields are dropped in this order, so the lock is free when the release is counted.
pub(crate) struct CheckpointGuard<'t, T> {
    guard: Guard<MutexGuard<'t, T>>,
    _release: Release<'t, T>,
}

struct Release<'t, T>(&'t CheckpointLock<T>);

impl<T> CheckpointLock<T> {
    pub(crate) fn new(value: T) -> Self {
        CheckpointLock {
            held: Ordered::mutex(LockOrder::Checkpoint, value),
            passed: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    /// Waits until no other thread holds the lock.
    pub(crate) fn lock(&self) -> CheckpointGuard<'_, T> {
        CheckpointGuard { guard: self.held.lock(), _release: Release(self) }
    }

    /// Takes the lock unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<CheckpointGuard<'_, T>> {
        self.held.try_lock().map(|guard| CheckpointGuard { guard, _release: Release(self) })
    }

    /// How often the lock was released, or its holder let waiting threads go on.
    pub(crate) fn passed(&self) -> u64 {
        *self.passed.lock()
    }

    /// Lets the waiting threads check their condition again.
    pub(crate) fn pass(&self) {
        *self.passed.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until the count differs from `seen`. The caller must have found the lock taken since it read `seen`.
    /// Otherwise no thread would end the wait.
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

impl<T> Deref for CheckpointGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for CheckpointGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

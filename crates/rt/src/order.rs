//! The order in which locks are taken, and a check of it.
//!
//! [`LockOrder`] lists the locks that a thread may hold while it waits for others. A thread never waits for a lock of an
//! earlier order than one that it holds. Debug builds check this at each lock, under [`crate::schedule`] and under Shuttle
//! too, so a wrong order is found without the deadlock. Release builds store the order and check nothing.
//!
//! Locks that are held for a few instructions have no order here. `docs/design.md` ("Locks") has all of them.

use std::ops::{Deref, DerefMut};

use crate::sync::{self, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The locks with an order, the first one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOrder {
    /// Changes by tasks outside of operations (`fs`).
    BackgroundChanges,
    /// Renames of directories (`fs`).
    DirectoryMoves,
    /// The backlog's work in progress (`fs`).
    BacklogWork,
    /// An inode (`fs`). Several are taken in the order of their numbers.
    Inode,
    /// Garbage collection of data (`extent`).
    Gc,
    /// Opening a zone for user writes (`extent`).
    OpenZone,
    /// An object map (`extent`). Several are taken in the order of their shards.
    ObjectMap,
    /// Checkpoints and garbage collection of metadata (`tree`).
    Checkpoint,
    /// A group (`tree`). Several are taken in the order of their numbers.
    Group,
    /// Appends to the log (`tree`).
    Commit,
    /// The state of a node (`tree`). Several are taken from the root down.
    Node,
}

impl LockOrder {
    /// Whether a thread may hold several locks of this order. The order among them is not checked.
    #[cfg(debug_assertions)]
    fn is_one_of_many(self) -> bool {
        matches!(self, LockOrder::Inode | LockOrder::ObjectMap | LockOrder::Group | LockOrder::Node)
    }
}

/// A lock with its order.
#[derive(Debug)]
pub struct Ordered<L> {
    order: LockOrder,
    lock: L,
}

/// Access to the value of an ordered lock.
#[derive(Debug)]
pub struct Guard<G> {
    // In this order they are dropped: a lock counts as held until it is free.
    guard: G,
    held: Held,
}

impl<T> Ordered<Mutex<T>> {
    /// An unlocked mutex of this order.
    pub const fn mutex(order: LockOrder, value: T) -> Self {
        Ordered { order, lock: Mutex::new(value) }
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> Guard<MutexGuard<'_, T>> {
        let held = Held::wait_for(self.order);
        Guard { guard: self.lock.lock(), held }
    }

    /// Takes the lock if it is free. A thread may try in any order, because it does not wait.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<MutexGuard<'_, T>>> {
        self.lock.try_lock().map(|guard| Guard { guard, held: Held::note(self.order) })
    }
}

impl<T> Ordered<RwLock<T>> {
    /// An unlocked lock of this order.
    pub const fn rwlock(order: LockOrder, value: T) -> Self {
        Ordered { order, lock: RwLock::new(value) }
    }

    /// Waits until there is no writer.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, T>> {
        let held = Held::wait_for(self.order);
        Guard { guard: self.lock.read(), held }
    }

    /// Waits until there is no reader and no writer.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, T>> {
        let held = Held::wait_for(self.order);
        Guard { guard: self.lock.write(), held }
    }

    /// The guarded value. There is no other user of it.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

/// Releases a mutex to a waiting thread, if there is one.
pub fn unlock_fair<T>(guard: Guard<MutexGuard<'_, T>>) {
    let Guard { guard, held } = guard;
    sync::unlock_fair(guard);
    drop(held);
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// The present thread holds a lock of an order, until this is dropped.
#[derive(Debug)]
struct Held(#[cfg(debug_assertions)] LockOrder);

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use super::{Held, LockOrder};

    #[cfg(feature = "shuttle")]
    use shuttle::thread_local;

    thread_local! {
        /// The orders of the locks that the thread holds.
        static ORDERS: RefCell<Vec<LockOrder>> = const { RefCell::new(Vec::new()) };
    }

    impl Held {
        /// # Panics
        /// If the thread holds a lock of a later order, or another one of this order.
        #[track_caller]
        pub(super) fn wait_for(order: LockOrder) -> Held {
            ORDERS.with(|orders| {
                let latest = orders.borrow().iter().max().copied();
                let fits = latest.is_none_or(|held| held < order || held == order && order.is_one_of_many());
                assert!(fits, "a thread waits for {order:?} and holds {latest:?}: docs/design.md, Locks");
            });
            Held::note(order)
        }

        pub(super) fn note(order: LockOrder) -> Held {
            ORDERS.with(|orders| orders.borrow_mut().push(order));
            Held(order)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            ORDERS.with(|orders| {
                let mut orders = orders.borrow_mut();
                let at = orders.iter().rposition(|order| *order == self.0);
                orders.swap_remove(at.expect("a guard is dropped by the thread that took it"));
            });
        }
    }
}

#[cfg(not(debug_assertions))]
impl Held {
    #[inline]
    fn wait_for(_: LockOrder) -> Held {
        Held()
    }

    #[inline]
    fn note(_: LockOrder) -> Held {
        Held()
    }
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests;

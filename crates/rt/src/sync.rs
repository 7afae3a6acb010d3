//! Locks.
//!
//! No lock here is poisoned: a panic while one is held is a bug that ends the process. The order in
//! which locks are taken is written in `docs/design.md` ("Locks").

pub use parking_lot::{
    Condvar, MappedMutexGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

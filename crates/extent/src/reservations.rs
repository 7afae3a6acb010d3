//! Blocks that are reserved for writers.

use std::sync::Arc;

use rt::sync::atomic::{AtomicI64, Ordering};
use rt::sync::{Condvar, Mutex};
use tree::{Reserved, Tx};

/// Counts the blocks that are reserved for writers.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Reserved blocks that are neither inserted nor returned. They increase only under the lock of the zone table. A leaf
    /// lock.
    reserved: Mutex<i64>,
    /// Blocks of the overwrite reserve that are in use.
    overwriting: Mutex<i64>,
    /// Blocks of the overwrite reserve were returned.
    returned: Condvar,
}

/// The part of a reservation that is neither spent nor returned.
#[derive(Debug)]
struct Unspent {
    reservations: Arc<Reservations>,
    /// In blocks. Changed under the lock of `reserved`.
    left: AtomicI64,
}

impl Reservations {
    /// Reserved blocks that are neither inserted nor returned.
    pub(crate) fn reserved(&self) -> i64 {
        *self.reserved.lock()
    }

    /// Counts blocks as reserved. Only [`Reservation::of`] them returns them.
    pub(crate) fn add(&self, blocks: i64) {
        let mut reserved = self.reserved.lock();
        *reserved += blocks;
        assert!(blocks >= 0 && *reserved >= blocks, "no reservation is negative");
    }

    /// Blocks of the overwrite reserve that are in use.
    #[cfg(test)]
    pub(crate) fn overwriting(&self) -> i64 {
        *self.overwriting.lock()
    }
}

impl Unspent {
    fn release(&self, most: i64) {
        let mut reserved = self.reservations.reserved.lock();
        let left = self.left.load(Ordering::Relaxed);
        assert!(left >= 0 && most >= 0, "no more is returned than was reserved");
        let blocks = most.min(left);
        self.left.store(left - blocks, Ordering::Relaxed);
        *reserved -= blocks;
        assert!(*reserved >= 0, "a reservation is returned once");
    }
}

/// The part of a reservation that a transaction spends.
#[derive(Debug)]
struct ReservedPart {
    unspent: Arc<Unspent>,
    blocks: i64,
}

impl Reserved for ReservedPart {
    fn spend(&self) {
        self.unspent.release(self.blocks);
    }
}

/// Blocks that are reserved for a writer. A transaction that inserts some of them spends them in the moment in which it
/// takes effect. Drop returns the rest.
pub(crate) struct Reservation {
    unspent: Arc<Unspent>,
    /// Blocks of the overwrite reserve.
    of_overwrite_reserve: i64,
}

impl Reservation {
    /// Of blocks that are already counted as reserved.
    pub(crate) fn of(reservations: &Arc<Reservations>, blocks: i64) -> Self {
        let unspent = Unspent { reservations: Arc::clone(reservations), left: AtomicI64::new(blocks) };
        Reservation { unspent: Arc::new(unspent), of_overwrite_reserve: 0 }
    }

    /// Takes blocks of the overwrite reserve, of which there are `limit`. Waits while other writers have too many of them.
    pub(crate) fn take_overwrite_reserve(&mut self, blocks: i64, limit: i64) {
        assert!(blocks <= limit && self.of_overwrite_reserve == 0, "a reservation takes its part once");
        let reservations = &self.unspent.reservations;
        let mut overwriting = reservations.overwriting.lock();
        while *overwriting + blocks > limit {
            reservations.returned.wait(&mut overwriting);
        }
        *overwriting += blocks;
        self.of_overwrite_reserve = blocks;
    }

    /// The transaction inserts all reserved blocks.
    pub(crate) fn spend_in(&self, tx: &mut Tx) {
        self.spend_part_in(tx, i64::MAX as u64);
    }

    /// The transaction inserts this number of the reserved blocks.
    pub(crate) fn spend_part_in(&self, tx: &mut Tx, blocks: u64) {
        tx.spends(Arc::new(ReservedPart { unspent: Arc::clone(&self.unspent), blocks: blocks as i64 }));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.unspent.release(i64::MAX);
        if self.of_overwrite_reserve > 0 {
            let reservations = &self.unspent.reservations;
            let mut overwriting = reservations.overwriting.lock();
            assert!(*overwriting >= self.of_overwrite_reserve, "what is returned was taken");
            *overwriting -= self.of_overwrite_reserve;
            drop(overwriting);
            if !rt::is_planted("break-returned") {
                reservations.returned.notify_all();
            }
        }
    }
}

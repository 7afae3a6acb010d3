//! Handles: numbers that C programs keep for volumes, files, directories and mounts.
//!
//! A number is looked up in a table on every call. So a handle that was closed, that was never opened, or that belongs
//! to another process is an error (`EBADF`) and never undefined behaviour. Calls in progress keep what they use.

use std::sync::{Arc, OnceLock};

use rt::sync::RwLock;
use rt::sync::atomic::{AtomicUsize, Ordering};

use crate::call::{Failure, Outcome};

/// The parts of a table, so that threads that open files rarely meet.
const SHARDS: usize = 16;

/// Bits of the index within a table, which includes the shard.
const INDEX_BITS: u32 = 28;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// Bits of the number of uses of a slot. A slot with no further number is not used again.
const USE_BITS: u32 = 28;
const USE_MASK: u64 = (1 << USE_BITS) - 1;

/// What a handle is for: the highest byte of its number.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Volume = 1,
    File = 2,
    Directory = 3,
    Mount = 4,
}

/// The open things of one kind.
pub(crate) struct Table<T> {
    kind: Kind,
    shards: [RwLock<Shard<T>>; SHARDS],
    next: AtomicUsize,
}

struct Shard<T> {
    slots: Vec<Slot<T>>,
    /// Slots without a value that can be used again.
    free: Vec<usize>,
}

struct Slot<T> {
    uses: u64,
    value: Option<Arc<T>>,
}

/// The place of a value: the shard, the slot in it, and which of the uses of the slot.
struct At {
    shard: usize,
    slot: usize,
    uses: u64,
}

impl<T> Table<T> {
    pub(crate) fn new(kind: Kind) -> Table<T> {
        let shard = || RwLock::new(Shard { slots: Vec::new(), free: Vec::new() });
        Table { kind, shards: std::array::from_fn(|_| shard()), next: AtomicUsize::new(0) }
    }

    /// The number of a new handle. It is not 0.
    pub(crate) fn insert(&self, value: T) -> Outcome<u64> {
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut locked = self.shards[shard].write();
        let slot = match locked.free.pop() {
            Some(slot) => slot,
            None => {
                locked.slots.push(Slot { uses: 0, value: None });
                locked.slots.len() - 1
            }
        };
        let index = (slot * SHARDS + shard) as u64;
        if index > INDEX_MASK {
            return Err(Failure::new(libc::EMFILE, "too many handles are open"));
        }
        let place = &mut locked.slots[slot];
        place.value = Some(Arc::new(value));
        Ok((((self.kind as u64) << (INDEX_BITS + USE_BITS)) | place.uses << INDEX_BITS | index) ^ secret())
    }

    /// What a handle stands for.
    pub(crate) fn get(&self, handle: u64) -> Outcome<Arc<T>> {
        let at = self.at(handle)?;
        let shard = self.shards[at.shard].read();
        let slot = shard.slots.get(at.slot).filter(|slot| slot.uses == at.uses);
        slot.and_then(|slot| slot.value.clone()).ok_or_else(bad)
    }

    /// Ends a handle. What it stood for lives on until calls in progress are done with it.
    pub(crate) fn remove(&self, handle: u64) -> Outcome<Arc<T>> {
        let at = self.at(handle)?;
        let mut shard = self.shards[at.shard].write();
        let slot = shard.slots.get_mut(at.slot).filter(|slot| slot.uses == at.uses).ok_or_else(bad)?;
        let value = slot.value.take().ok_or_else(bad)?;
        slot.uses += 1;
        if slot.uses <= USE_MASK {
            shard.free.push(at.slot);
        }
        Ok(value)
    }

    fn at(&self, handle: u64) -> Outcome<At> {
        let number = handle ^ secret();
        if number >> (INDEX_BITS + USE_BITS) != self.kind as u64 {
            return Err(bad());
        }
        let index = (number & INDEX_MASK) as usize;
        Ok(At { shard: index % SHARDS, slot: index / SHARDS, uses: number >> INDEX_BITS & USE_MASK })
    }
}

fn bad() -> Failure {
    Failure::new(libc::EBADF, "the handle is not open, or not of this kind, or not of this process")
}

/// Distinguishes the handles of this process from those of others and from arbitrary numbers.
fn secret() -> u64 {
    static SECRET: OnceLock<u64> = OnceLock::new();
    // The byte of the kind stays, so that 0 is no handle.
    *SECRET.get_or_init(|| u64::from_ne_bytes(rt::random::secret()) >> 8)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_valid_until_it_is_removed_and_never_again() {
        let table = Table::new(Kind::File);
        let mut removed = Vec::new();
        for round in 0..1000 {
            let handle = table.insert(round).unwrap();
            assert_eq!(*table.get(handle).unwrap(), round);
            assert_eq!(*table.remove(handle).unwrap(), round);
            assert!(table.remove(handle).is_err());
            removed.push(handle);
        }
        let open = table.insert(7).unwrap();
        assert!(removed.iter().all(|&handle| handle != open && table.get(handle).is_err()));
        assert_eq!(*table.get(open).unwrap(), 7);
    }

    #[test]
    fn other_numbers_and_other_kinds_are_refused() {
        let (files, volumes) = (Table::new(Kind::File), Table::new(Kind::Volume));
        let (file, volume) = (files.insert(1).unwrap(), volumes.insert(2).unwrap());
        for number in [0, 1, u64::MAX, file ^ 1, file ^ 1 << 40, volume] {
            assert_eq!(files.get(number).map(|_| ()).unwrap_err().errno(), libc::EBADF, "{number:#x}");
        }
    }

    /// A slot without further numbers would give an old handle a new meaning.
    #[test]
    fn a_slot_is_given_up_when_its_numbers_are_used_up() {
        let table = Table::new(Kind::File);
        for _ in 0..SHARDS {
            let handle = table.insert(()).unwrap();
            table.remove(handle).unwrap();
        }
        for shard in &table.shards {
            shard.write().slots[0].uses = USE_MASK;
        }
        let last: Vec<u64> = (0..SHARDS).map(|_| table.insert(()).unwrap()).collect();
        last.iter().for_each(|&handle| drop(table.remove(handle).unwrap()));
        for _ in 0..SHARDS {
            table.insert(()).unwrap();
        }
        assert!(last.iter().all(|&handle| table.get(handle).is_err()));
        assert!(table.shards.iter().all(|shard| shard.read().slots.len() == 2));
    }
}

//! Records: keys, values, and which of them are known to be there.

use std::collections::BTreeSet;

use anyhow::Result;
use polder_rt::sync::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore};

/// Ten fields of a hundred bytes.
pub(crate) const VALUE_BYTES: usize = 1_000;
/// FNV-1a, of 64 bits: what YCSB scatters its keys by.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// A number that has nothing to do with this one.
pub(crate) fn scattered(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(FNV_OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// The key of a record. What is made one after the other does not lie so.
pub(crate) fn key(record: u64) -> Vec<u8> {
    format!("user{:020}", scattered(record)).into_bytes()
}

/// A value of that record: its number, and noise.
pub(crate) fn value(record: u64, random: &mut SmallRng) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    random.fill_bytes(&mut value);
    value[..8].copy_from_slice(&record.to_le_bytes());
    value
}

/// Whether `value` belongs to that record.
pub(crate) fn is_of(value: &[u8], record: u64) -> bool {
    value.len() == VALUE_BYTES && value[..8] == record.to_le_bytes()
}

/// Records have the numbers from 0 on. Clients insert beside each other, and what one of them has not finished is
/// not yet to be found; so only records below the first of those are confirmed.
pub(crate) struct Records(Mutex<Numbers>);

struct Numbers {
    next: u64,
    under_way: BTreeSet<u64>,
}

impl Records {
    /// So many are there.
    pub(crate) fn new(present: u64) -> Self {
        Records(Mutex::new(Numbers { next: present, under_way: BTreeSet::new() }))
    }

    /// All below this one are there.
    pub(crate) fn confirmed(&self) -> u64 {
        let numbers = self.0.lock();
        numbers.under_way.first().copied().unwrap_or(numbers.next)
    }

    /// Has `put` add the next one. What it fails to add stays unconfirmed.
    pub(crate) fn insert(&self, put: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        let record = {
            let mut numbers = self.0.lock();
            let record = numbers.next;
            numbers.next += 1;
            numbers.under_way.insert(record);
            record
        };
        put(record)?;
        self.0.lock().under_way.remove(&record);
        Ok(())
    }
}

/// A number below `end`.
pub(crate) fn below(end: u64, random: &mut SmallRng) -> u64 {
    random.random_range(0..end)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn what_is_under_way_or_failed_is_not_confirmed() {
        let records = Records::new(5);
        records
            .insert(|slow| {
                assert_eq!(slow, 5);
                records.insert(|quick| {
                    assert_eq!(quick, 6);
                    Ok(())
                })?;
                assert_eq!(records.confirmed(), 5);
                Ok(())
            })
            .unwrap();
        assert_eq!(records.confirmed(), 7);
        assert!(records.insert(|_| bail!("no")).is_err());
        assert!(records.insert(|_| Ok(())).is_ok());
        assert_eq!(records.confirmed(), 7);
    }

    #[test]
    fn a_value_tells_whose_it_is() {
        let made = value(7, &mut SmallRng::seed_from_u64(1));
        assert!(is_of(&made, 7) && !is_of(&made, 8) && !is_of(&made[1..], 7) && !is_of(&[], 7));
        let mut keys: Vec<_> = (0..1000).map(key).collect();
        assert!(!keys.is_sorted());
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 1000);
    }
}

//! The reference model of the store: one ordered map.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::digest::Digest;
use crate::history::State;

/// Group, table, key.
pub(super) type Key = (u16, u8, Vec<u8>);

/// All entries of a store.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    map: BTreeMap<Key, Vec<u8>>,
    /// The sum of a hash for each entry.
    digest: u64,
}

impl Entries {
    /// Puts an entry, in place of the one that was there.
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        self.delete(&key);
        self.digest = self.digest.wrapping_add(hash(&key, &value));
        self.map.insert(key, value);
    }

    /// Deletes an entry if it is there.
    pub fn delete(&mut self, key: &Key) {
        if let Some(old) = self.map.remove(key) {
            self.digest = self.digest.wrapping_sub(hash(key, &old));
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &Key) -> Option<&Vec<u8>> {
        self.map.get(key)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Vec<u8>)> {
        self.map.iter()
    }

    /// All entries of a table of a group, in order.
    pub fn table(&self, group: u16, table: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
        let from = (group, table, Vec::new());
        let of_table = self.map.range(from..).take_while(|((g, t, _), _)| (*g, *t) == (group, table));
        of_table.map(|((_, _, key), value)| (key.clone(), value.clone())).collect()
    }
}

fn hash((group, table, key): &Key, value: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.number(u64::from(*group) << 8 | u64::from(*table)).bytes(key).bytes(value).finish()
}

impl State for Entries {
    fn digest(&self) -> u64 {
        self.digest
    }

    fn difference(&self, found: &Self) -> String {
        let mut lines = String::new();
        for (key, value) in &self.map {
            match found.map.get(key) {
                None => writeln!(lines, "{} is missing ({})", name(key), brief(value)),
                Some(other) if other != value => {
                    writeln!(lines, "{} is {} instead of {}", name(key), brief(other), brief(value))
                }
                Some(_) => Ok(()),
            }
            .expect("a string takes everything");
        }
        for (key, value) in found.map.iter().filter(|(key, _)| !self.map.contains_key(*key)) {
            writeln!(lines, "{} should not be there ({})", name(key), brief(value))
                .expect("a string takes everything");
        }
        lines
    }
}

fn name((group, table, key): &Key) -> String {
    format!("group {group} table {table} key {:?}", String::from_utf8_lossy(key))
}

fn brief(value: &[u8]) -> String {
    let head: String = value.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{} bytes {head}", value.len())
}

//! Tests of the store as a whole. Tests of single modules are beside these.

use std::collections::BTreeMap;
use std::sync::Arc;

use emulated::{CrashPlan, Emulated, Spec};
use zone::{Device, FsId};

use crate::{
    Bytes, Client, Config, FormatOptions, Group, Lsn, Op, Recovery, Replay, Result, Store, Table, Tx,
};

mod check;
mod checkpoint_races;
mod concurrent;
mod crash;
mod deltas;
mod every;
mod faults;
mod formats;
mod growth;
mod memory;
mod missing;
mod ordinary;
mod patches;
mod prefetch;
mod reclaim;
mod refused;
mod successor;
mod witness;

/// A client of the store without data of its own on the device.
pub(crate) struct Plain;

impl Client for Plain {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        b"plain".to_vec()
    }
}

impl Replay for Plain {
    fn checkpoint(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn verify(&mut self, _ops: &[Op]) -> Result<bool> {
        Ok(true)
    }

    fn apply(&mut self, _ops: &[Op]) {}
}

/// Everything in the store.
pub(crate) type Contents = BTreeMap<(u16, u8, Bytes), Bytes>;

pub(crate) fn options() -> FormatOptions {
    let reserve = crate::Reserve::default();
    let label = "test".into();
    FormatOptions { fs_id: FsId([7; 16]), label, page_size: 4096, groups: 3, created_ns: 5, reserve }
}

pub(crate) fn config() -> Config {
    Config { cache_bytes: 1 << 20, read_only: false, accept_loss: false }
}

pub(crate) fn formatted(spec: Spec, options: &FormatOptions) -> Arc<Emulated> {
    let device = Arc::new(Emulated::new(spec));
    let as_device: Arc<dyn Device> = device.clone();
    Store::format(&as_device, options).unwrap();
    device
}

pub(crate) fn open(device: &Arc<Emulated>) -> Result<(Store, Recovery)> {
    open_with(device, &config())
}

pub(crate) fn open_with(device: &Arc<Emulated>, config: &Config) -> Result<(Store, Recovery)> {
    let (store, recovery) = Store::open(device.clone(), config, &mut Plain)?;
    store.set_client(Arc::new(Plain));
    Ok((store, recovery))
}

/// Reads everything through the checker, which must find nothing.
pub(crate) fn contents(store: &Store) -> Contents {
    let mut all = Contents::new();
    let findings = store
        .check(&mut |group, table, key, value| {
            all.insert((group.0, table.0, key.to_vec()), value.to_vec());
        })
        .unwrap();
    assert_eq!(findings, vec![], "the checker finds nothing");
    all
}

/// A random transaction, which is also applied to the model. The keys are few, so that they recur.
pub(crate) fn random_tx(rng: &mut fastrand::Rng, model: &mut Contents, keys: u32, value_max: usize) -> Tx {
    let mut tx = Tx::new();
    for _ in 0..rng.usize(1..6) {
        let group = rng.u16(0..3);
        let table = rng.u8(1..3);
        let key = format!("key {:08}", rng.u32(0..keys)).into_bytes();
        if rng.u8(0..3) == 0 {
            tx.delete(Group(group), Table(table), key.clone());
            model.remove(&(group, table, key));
        } else {
            let mut value = vec![rng.u8(..); rng.usize(0..value_max)];
            match model.get(&(group, table, key.clone())) {
                // The journal gets a patch, unless the transaction has written the key before.
                Some(old) if value.len().is_multiple_of(2) => {
                    let same = old.len().min(value.len()) / 2;
                    value[..same].copy_from_slice(&old[..same]);
                    tx.update(Group(group), Table(table), key.clone(), value.clone());
                }
                _ => tx.put(Group(group), Table(table), key.clone(), value.clone()),
            }
            model.insert((group, table, key), value);
        }
    }
    tx
}

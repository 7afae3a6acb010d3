//! Tests of objects on an emulated device.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod crash;
mod every;
mod faults;
mod findings;
mod ordinary;
mod shared;
mod space;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use emulated::{Emulated, Spec};
use polder_extent as extent;
use polder_extent::{Extents, FileClass, Hint, Object, Recovering, Result};
use rt::random::Rng;
use tree::{Config, FormatOptions, Lsn, Store, Tx};
use zone::{Device, FsId};

/// A volume.
struct Volume {
    device: Arc<Emulated>,
    store: Arc<Store>,
    extents: Arc<Extents>,
    /// The last transaction that recovery found.
    recovered: Lsn,
}

/// The contents of each object.
type Model = BTreeMap<u64, Vec<u8>>;

impl Volume {
    fn new(spec: Spec) -> Volume {
        let device = Arc::new(Emulated::new(spec));
        let as_device: Arc<dyn Device> = device.clone();
        let page_size = device.geometry().block_size.max(4096);
        let label = "test".to_owned();
        let (fs_id, reserve) = (FsId([3; 16]), tree::Reserve::default());
        let options = FormatOptions { fs_id, label, page_size, groups: 4, created_ns: 1, reserve };
        Store::format(&as_device, &options).unwrap();
        Volume::open(device)
    }

    fn open(device: Arc<Emulated>) -> Volume {
        let as_device: Arc<dyn Device> = device.clone();
        let mut recovering = Recovering::new(as_device.clone());
        let config = Config { cache_bytes: 8 << 20, read_only: false, accept_loss: false };
        let (store, recovery) = Store::open(as_device, &config, &mut recovering).unwrap();
        let store = Arc::new(store);
        let extents = Extents::open(Arc::clone(&store), recovering).unwrap();
        Volume { device, store, extents, recovered: recovery.last }
    }

    /// Writes and commits.
    fn write(&self, object: u64, offset: u64, data: &[u8], valid: u64) -> Result<Lsn> {
        self.extents.begin_write(data.len() as u64, None)?;
        let written = self.extents.append(Object(object), Hint::default(), offset, data, valid)?;
        let mut tx = Tx::new();
        let _lock = self.extents.insert(&mut tx, written)?;
        Ok(self.store.commit(tx)?)
    }

    /// Preallocates blocks.
    fn preallocate(&self, object: u64, blocks: Range<u64>) -> Result<()> {
        let mut from = blocks.start;
        while from < blocks.end {
            let mut tx = Tx::new();
            let preallocated =
                self.extents.preallocate(&mut tx, Object(object), (from, blocks.end), 64, None);
            let (_lock, until) = preallocated?;
            self.store.commit(tx)?;
            from = until;
        }
        Ok(())
    }

    /// Removes blocks from `from` on.
    fn truncate(&self, object: u64, from: u64) -> Result<()> {
        loop {
            let mut tx = Tx::reclaiming();
            let (_lock, done) =
                self.extents.remove(&mut tx, Object(object), (from, u64::MAX), 7, FileClass::default())?;
            self.store.commit(tx)?;
            if done {
                return Ok(());
            }
        }
    }

    fn block_size(&self) -> u64 {
        u64::from(self.extents.block_size())
    }

    /// Compares all objects with the model and runs the checker.
    fn verify(&self, model: &Model) {
        for (&object, bytes) in model {
            let mut found = vec![0xee; bytes.len()];
            self.extents.maps().read(Object(object), 0, &mut found).unwrap();
            let at = found.iter().zip(bytes).position(|(a, b)| a != b);
            assert_eq!(at, None, "object {object} of {} bytes differs", bytes.len());
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.extents.collector().stats().zones_searched, 0, "reverse maps name all live blocks");
        assert_eq!(extent::check(&self.extents).unwrap(), vec![], "the checker finds nothing");
        let findings = self.store.check(&mut |_, _, _, _| {}).unwrap();
        assert_eq!(findings, vec![], "the checker of the store finds nothing");
    }

    /// Does some background work.
    fn step(&self, times: usize) {
        for _ in 0..times {
            let _ = self.extents.step().unwrap();
            let _ = self.store.step().unwrap();
        }
    }

    fn sync(&self) {
        self.store.sync(self.store.last_lsn()).unwrap();
    }
}

/// Writes to an object of the model as a file would be written.
fn write(volume: &Volume, model: &mut Model, object: u64, offset: usize, data: &[u8]) -> Result<Lsn> {
    let bytes = model.entry(object).or_default();
    let lsn = volume.write(object, offset as u64, data, bytes.len() as u64)?;
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
    Ok(lsn)
}

/// Truncates an object of the model to a number of blocks.
fn truncate(volume: &Volume, model: &mut Model, object: u64, blocks: u64) {
    volume.truncate(object, blocks).unwrap();
    let size = (blocks * volume.block_size()) as usize;
    let bytes = model.entry(object).or_default();
    bytes.truncate(size);
}

/// Random bytes.
fn noise(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    rng.fill(&mut data);
    data
}

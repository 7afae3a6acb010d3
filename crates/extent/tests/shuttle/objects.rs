//! Volumes with objects. Each block contains its object, its number and its version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emulated::Emulated;
use polder_extent::{Extents, Hint, Lifetime, Object, Recovering};
use tree::{Config, Store, Tx};
use zone::Device;

pub(crate) const BLOCK: usize = 4096;

/// A volume.
pub(crate) struct Volume {
    pub(crate) device: Arc<Emulated>,
    pub(crate) store: Arc<Store>,
    pub(crate) extents: Arc<Extents>,
}

impl Volume {
    pub(crate) fn open(device: &Arc<Emulated>) -> Volume {
        let as_device: Arc<dyn Device> = device.clone();
        let mut recovering = Recovering::new(as_device.clone());
        let config = Config { cache_bytes: 1 << 20, read_only: false, accept_loss: false };
        let (store, _) = Store::open(as_device, &config, &mut recovering).unwrap();
        let store = Arc::new(store);
        let extents = Extents::open(Arc::clone(&store), recovering).unwrap();
        Volume { device: Arc::clone(device), store, extents }
    }

    pub(crate) fn sync(&self) {
        self.store.sync(self.store.last_lsn()).unwrap();
    }

    /// The checkers find nothing.
    pub(crate) fn check(&self) {
        assert_eq!(self.extents.collector().stats().zones_searched, 0, "reverse maps name all live blocks");
        assert_eq!(polder_extent::check(&self.extents).unwrap(), vec![], "the checker finds nothing");
        let findings = self.store.check(&mut |_, _, _, _| {}).unwrap();
        assert_eq!(findings, vec![], "the checker of the store finds nothing");
    }
}

/// An object that one thread writes: versions of each block, of the newest write that has begun and of the newest that
/// has returned. These are no seams, so that the test does not change the schedules.
pub(crate) struct Written {
    object: Object,
    lifetime: Lifetime,
    blocks: Vec<(AtomicU64, AtomicU64)>,
}

/// The versions of an object's blocks at some moment.
pub(crate) type Snapshot = Vec<u64>;

impl Written {
    /// The object, with its present contents.
    pub(crate) fn found(volume: &Volume, object: u64, lifetime: Lifetime, blocks: u64) -> Arc<Self> {
        let mut written = Written { object: Object(object), lifetime, blocks: Vec::new() };
        let versions = written.versions(volume, 0, blocks);
        written.blocks = versions.into_iter().map(|version| (version.into(), version.into())).collect();
        Arc::new(written)
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The word that a block repeats. A block that was never written contains zeros.
    fn word(&self, block: u64, version: u64) -> u64 {
        self.object.0 << 48 | block << 24 | version
    }

    /// Writes these blocks, each in its next version.
    pub(crate) fn write(&self, volume: &Volume, from: u64, count: u64) {
        let mut data = Vec::with_capacity(count as usize * BLOCK);
        let range = from..from + count;
        for block in range.clone() {
            let version = self.blocks[block as usize].0.fetch_add(1, Ordering::Relaxed) + 1;
            data.extend(self.word(block, version).to_le_bytes().repeat(BLOCK / 8));
        }
        let (offset, size) = (from * BLOCK as u64, self.blocks() * BLOCK as u64);
        volume.extents.admit().unwrap();
        let hint = Hint::of_lifetime(self.lifetime);
        let written = volume.extents.append(self.object, hint, offset, &data, size).unwrap();
        let mut tx = Tx::new();
        let lock = volume.extents.insert(&mut tx, written).unwrap();
        volume.store.commit(tx).unwrap();
        drop(lock);
        for block in range {
            let (begun, returned) = &self.blocks[block as usize];
            returned.store(begun.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Reads these blocks, and checks that each is whole, in its place, and of a possible version.
    pub(crate) fn read(&self, volume: &Volume, from: u64, count: u64) {
        let at_least = self.returned();
        let found = self.versions(volume, from, count);
        self.judge(from, &found, &at_least);
    }

    /// The newest versions whose writes have returned.
    pub(crate) fn returned(&self) -> Snapshot {
        self.blocks.iter().map(|(_, returned)| returned.load(Ordering::Relaxed)).collect()
    }

    /// Checks that no version is older than in the snapshot, or newer than the newest write.
    fn judge(&self, from: u64, found: &Snapshot, at_least: &Snapshot) {
        for (block, version) in (from..).zip(found) {
            let at_least = at_least[block as usize];
            let at_most = self.blocks[block as usize].0.load(Ordering::Relaxed);
            let object = self.object.0;
            let fits = (at_least..=at_most).contains(version);
            assert!(fits, "object {object} block {block}: {at_least} <= {version} <= {at_most}");
        }
    }

    /// Checks the object after a power loss: no block is older than in the snapshot.
    pub(crate) fn verify(&self, volume: &Volume, at_least: &Snapshot) {
        self.judge(0, &self.versions(volume, 0, self.blocks()), at_least);
    }

    fn versions(&self, volume: &Volume, from: u64, count: u64) -> Snapshot {
        let mut found = vec![0xee; count as usize * BLOCK];
        volume.extents.maps().read(self.object, from * BLOCK as u64, &mut found).unwrap();
        let version = |(block, bytes): (u64, &[u8])| {
            let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let (is_whole, version) = (bytes.chunks(8).all(|other| *other == bytes[..8]), word & 0xff_ffff);
            assert!(is_whole, "object {} block {block} is whole", self.object.0);
            let is_own = word == 0 || word == self.word(block, version);
            assert!(is_own, "object {} block {block} is its own, not {word:x}", self.object.0);
            version
        };
        (from..).zip(found.chunks(BLOCK)).map(version).collect()
    }
}

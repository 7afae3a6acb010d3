//! Objects of volumes that have no names: only tables and data.

use std::collections::BTreeMap;
use std::sync::Arc;

use emulated::{Emulated, Spec};
use extent::{Extents, FileClass, Hint, Object, Recovering};
use rt::random::Rng;
use salvage::{ObjectReport, Objects, Tables};
use tree::{Config, FormatOptions, Reserve, Store, Tx};
use zone::{Device, FsId};

/// Bytes of a block.
const SIZE: usize = 4096;

/// The contents of objects.
type Model = BTreeMap<u64, Vec<u8>>;

/// A volume without a file system.
struct Volume {
    device: Arc<Emulated>,
    store: Arc<Store>,
    extents: Arc<Extents>,
    model: Model,
}

impl Volume {
    fn new() -> Volume {
        let device = Arc::new(Emulated::new(Spec::power_of_two()));
        assert_eq!(device.geometry().block_size as usize, SIZE);
        let as_device: Arc<dyn Device> = device.clone();
        let (fs_id, label, reserve) = (FsId([3; 16]), "test".to_owned(), Reserve::default());
        let options = FormatOptions { fs_id, label, page_size: 4096, groups: 4, created_ns: 1, reserve };
        Store::format(&as_device, &options).unwrap();
        let mut recovering = Recovering::new(as_device.clone());
        let config = Config { cache_bytes: 8 << 20, read_only: false, accept_loss: false };
        let (store, _) = Store::open(as_device, &config, &mut recovering).unwrap();
        let store = Arc::new(store);
        let extents = Extents::open(Arc::clone(&store), recovering).unwrap();
        Volume { device, store, extents, model: Model::new() }
    }

    fn write(&mut self, object: u64, offset: usize, data: &[u8]) {
        let bytes = self.model.entry(object).or_default();
        self.extents.admit().unwrap();
        let valid = bytes.len() as u64;
        let written =
            self.extents.append(Object(object), Hint::default(), offset as u64, data, valid).unwrap();
        let mut tx = Tx::new();
        let _lock = self.extents.insert(&mut tx, written).unwrap();
        self.store.commit(tx).unwrap();
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Declares a block lost.
    fn lose(&self, object: u64, block: u64) {
        let mut tx = Tx::new();
        let _lock = self.extents.lose_block(&mut tx, Object(object), block).unwrap();
        self.store.commit(tx).unwrap();
    }

    /// Makes all blocks of an object references of another, which takes its place.
    fn refer(&self, object: u64, copy: u64) {
        let mut from = Some(0);
        while let Some(at) = from {
            let mut tx = Tx::new();
            let (_lock, next) =
                self.extents.maps().refer(&mut tx, (Object(object), Object(copy)), at, 5).unwrap();
            self.store.commit(tx).unwrap();
            from = next;
        }
    }

    /// Makes blocks [from, to) of an object blocks of another at `at` as well.
    fn share(&self, (object, from, to): (u64, u64, u64), into: u64, at: u64) {
        let mut next = from;
        while next < to {
            let (mut tx, place) = (Tx::new(), (Object(into), at + (next - from)));
            let source = (Object(object), (next, to));
            let (_lock, until) =
                self.extents.maps().share(&mut tx, source, place, 4, FileClass::default()).unwrap();
            self.store.commit(tx).unwrap();
            next = until;
        }
    }

    /// The objects after a checkpoint, read without the log.
    fn objects(&self) -> Objects {
        self.store.checkpoint().unwrap();
        Objects::new(Arc::new(Tables::scan(self.device.clone(), &mut |_, _| ()).unwrap()))
    }
}

/// Everything that is found of an object, block by block.
fn found(objects: &Objects, object: u64) -> (ObjectReport, BTreeMap<u64, Vec<u8>>) {
    let mut blocks = BTreeMap::new();
    let report = objects.read(Object(object), &mut |block, bytes| drop(blocks.insert(block, bytes.to_vec())));
    (report.unwrap(), blocks)
}

fn noise(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    rng.fill(&mut data);
    data
}

/// A block of an object's contents, with zeros behind their end.
fn block_of(bytes: &[u8], block: u64) -> Vec<u8> {
    let mut contents: Vec<u8> = bytes.iter().skip(block as usize * SIZE).copied().take(SIZE).collect();
    contents.resize(SIZE, 0);
    contents
}

/// In an undamaged volume no block is uncertain. All are returned: those in zones and inline ones. Lost ones are
/// reported. (By the reverse maps alone, everything would be uncertain.)
#[test]
fn blocks_that_the_tables_name_are_certain() {
    let mut volume = Volume::new();
    let mut rng = Rng::with_seed(3);
    volume.write(1, 0, &noise(&mut rng, 300 * SIZE));
    volume.write(1, 7 * SIZE, &noise(&mut rng, 2 * SIZE));
    volume.write(2, 5 * SIZE + 100, b"a few bytes");
    volume.lose(1, 40);
    let objects = volume.objects();
    let (report, blocks) = found(&objects, 1);
    assert_eq!((report.lost, report.blocks, blocks.len()), (std::iter::once(40..41).collect(), 299, 299));
    assert!(report.uncertain.is_empty() && report.unknown.is_empty());
    for (block, bytes) in blocks {
        assert!(bytes == block_of(&volume.model[&1], block), "block {block}");
    }
    let (report, blocks) = found(&objects, 2);
    assert_eq!(report, ObjectReport { blocks: 1, ..ObjectReport::default() });
    assert_eq!(blocks.keys().collect::<Vec<_>>(), [&5]);
    assert!(blocks[&5] == block_of(&volume.model[&2], 5));
}

/// The reverse maps of full zones name the objects whose blocks are there. If nothing of the tables is left, files can
/// be found only by them.
#[test]
fn full_zones_name_their_objects() {
    let mut volume = Volume::new();
    let mut rng = Rng::with_seed(4);
    for object in 1..=8 {
        volume.write(object, 0, &noise(&mut rng, 150 * SIZE));
    }
    let objects = volume.objects();
    let strays: Vec<u64> = objects.strays().iter().map(|stray| stray.object.0).collect();
    // Some of the last ones are in zones that are not full.
    assert!(strays.len() >= 5, "{strays:?}");
    let mut all = 0;
    for object in strays {
        let report = objects.read_stray(Object(object), &mut |block, bytes| {
            assert!(*bytes == block_of(&volume.model[&object], block), "{object}: block {block}");
            all += 1;
        });
        let report = report.unwrap();
        assert!(report.blocks > 0 && report.lost.is_empty() && !report.uncertain.is_empty(), "{report:?}");
    }
    assert!(all > 5 * 150, "{all} blocks are found");
}

/// A file has a shared block at another position than the object that owns it. If it were saved at the owner's position,
/// the file would have the right length and its contents in the wrong places.
#[test]
fn shared_blocks_are_found_at_their_position_in_each_file() {
    let mut volume = Volume::new();
    let mut rng = Rng::with_seed(5);
    volume.write(1, 0, &noise(&mut rng, 60 * SIZE));
    volume.write(1, 65 * SIZE, b"a few bytes");
    volume.write(2, 0, &noise(&mut rng, 2 * SIZE));
    volume.refer(1, 1000);
    volume.share((1000, 11, 66), 2, 100);
    // It is lost in the object that owns it.
    volume.lose(1, 40);
    let (report, blocks) = found(&volume.objects(), 2);
    assert_eq!((report.lost, report.uncertain), (std::iter::once(129..130).collect(), Vec::new()));
    let expected: Vec<u64> = (0..2).chain(100..129).chain(130..149).chain([154]).collect();
    assert_eq!(blocks.keys().copied().collect::<Vec<_>>(), expected);
    for (block, bytes) in blocks {
        let (of, at) = if block < 100 { (2, block) } else { (1, block - 100 + 11) };
        assert!(bytes == block_of(&volume.model[&of], at), "block {block}");
    }
}

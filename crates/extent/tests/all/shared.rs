//! Objects that share blocks, used like files.

use extent::MapLock;

use super::*;

/// Files by number. Their data may outlive them.
struct Files {
    volume: Volume,
    /// The object and the contents of each file.
    files: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Shared objects without a file, each with the object that inherits its blocks.
    shadows: BTreeMap<Object, Object>,
    next: u64,
    /// Blocks that GC moved before the last crash.
    moved: u64,
}

const ALL: (u64, u64) = (0, u64::MAX);

impl Files {
    fn new(spec: Spec) -> Files {
        Files {
            volume: Volume::new(spec),
            files: BTreeMap::new(),
            shadows: BTreeMap::new(),
            next: 1000,
            moved: 0,
        }
    }

    fn write(&mut self, file: u64, offset: usize, data: &[u8]) {
        let (object, bytes) = self.files.entry(file).or_insert((file, Vec::new()));
        self.volume.write(*object, offset as u64, data, bytes.len() as u64).unwrap();
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Leaves the blocks of the file to its old object, and gives the file a new object with references to them.
    fn freeze(&mut self, file: u64, ends_at_once: bool) {
        let object = self.files[&file].0;
        let copy = self.next;
        self.next += 1;
        let (pair, mut from) = ((Object(object), Object(copy)), Some(0));
        while let Some(at) = from {
            let mut tx = Tx::new();
            let (lock, next) = self.volume.extents.maps().refer(&mut tx, pair, at, 5).unwrap();
            self.commit(tx, lock);
            from = next;
        }
        self.files.get_mut(&file).unwrap().0 = copy;
        self.shadows.insert(Object(object), Object(copy));
        if ends_at_once {
            self.end_shadows();
        }
    }

    fn end_shadows(&mut self) {
        for (shadow, heir) in std::mem::take(&mut self.shadows) {
            let heir = self.files.values().any(|(object, _)| *object == heir.0).then_some((heir, u64::MAX));
            let mut from = Some(0);
            while let Some(at) = from {
                let mut tx = Tx::reclaiming();
                let (lock, next) =
                    self.volume.extents.maps().drop_uncounted(&mut tx, (shadow, heir), at, 3).unwrap();
                self.commit(tx, lock);
                from = next;
            }
        }
    }

    /// Clones blocks [from, to) of one file into another at `at`.
    fn clone(&mut self, (file, from, to): (u64, u64, u64), into: u64, at: u64) {
        if self.volume.extents.maps().has_own_data(Object(self.files[&file].0), (from, to)).unwrap() {
            self.freeze(file, from.is_multiple_of(2));
        }
        let (source, target) = (Object(self.files[&file].0), Object(self.files[&into].0));
        let mut next = from;
        while next < to {
            let (mut tx, place) = (Tx::new(), (target, at + (next - from)));
            let (lock, until) = self
                .volume
                .extents
                .maps()
                .share(&mut tx, (source, (next, to)), place, 4, FileClass::default())
                .unwrap();
            self.commit(tx, lock);
            assert!(until > next, "each step makes progress");
            next = until;
        }
        let size = self.volume.block_size() as usize;
        let (from, to, at) = (from as usize * size, to as usize * size, at as usize * size);
        let source = &self.files[&file].1;
        let mut copied = source[from.min(source.len())..to.min(source.len())].to_vec();
        copied.resize(to - from, 0);
        let bytes = &mut self.files.get_mut(&into).unwrap().1;
        bytes.resize(bytes.len().max(at + copied.len()), 0);
        bytes[at..at + copied.len()].copy_from_slice(&copied);
    }

    fn truncate(&mut self, file: u64, blocks: u64) {
        let (object, bytes) = self.files.get_mut(&file).unwrap();
        self.volume.truncate(*object, blocks).unwrap();
        bytes.truncate((blocks * self.volume.block_size()) as usize);
    }

    fn commit(&self, tx: Tx, lock: MapLock<'_>) {
        self.volume.store.commit(tx).unwrap();
        drop(lock);
    }

    fn verify(&self) {
        let model: Model = self.files.values().map(|(object, bytes)| (*object, bytes.clone())).collect();
        self.volume.verify(&model);
        let shared =
            extent::check_references(self.volume.extents.maps(), &self.shadows.keys().copied().collect())
                .unwrap();
        assert_eq!(shared.findings, vec![]);
    }

    fn crash(self) -> Files {
        self.volume.sync();
        let Files { volume, files, shadows, next, mut moved } = self;
        moved += volume.extents.collector().stats().blocks_moved;
        let device = Arc::clone(&volume.device);
        drop(volume);
        Files { volume: Volume::open(device), files, shadows, next, moved }
    }
}

/// Every second block of the heir is its own. So the preallocated blocks of the shared object become one row for each
/// of the others: more than a transaction takes, though the shared object has few rows.
#[test]
fn preallocated_blocks_of_a_shared_object_go_to_its_heir_in_as_many_steps_as_their_rows_need() {
    const BLOCKS: u64 = 2500;
    let mut files = Files::new(Spec::power_of_two());
    let block = files.volume.block_size() as usize;
    files.write(1, 0, &[1]);
    files.volume.preallocate(1, 1..BLOCKS).unwrap();
    files.freeze(1, false);
    for at in (2..BLOCKS as usize).step_by(2) {
        files.write(1, at * block, &vec![at as u8; block]);
    }
    let before = files.volume.extents.budget().space();
    let (shadow, heir) = files.shadows.pop_first().unwrap();
    let (mut from, mut steps) = (Some(0), 0);
    while let Some(at) = from {
        let mut tx = Tx::reclaiming();
        let heir = Some((heir, u64::MAX));
        let (lock, next) =
            files.volume.extents.maps().drop_uncounted(&mut tx, (shadow, heir), at, 1000).unwrap();
        assert!(tx.encoded_bytes() < files.volume.store.tx_bytes_max(), "it is a transaction");
        files.commit(tx, lock);
        (from, steps) = (next, steps + 1);
    }
    assert!(steps > 1, "all of it in one step");
    let now = files.volume.extents.budget().space();
    assert!(now.available >= before.available, "{now:?} has less than {before:?}");
    files.verify();
    // Each preallocated block of the file can be written, however full the volume is.
    files.write(2, 0, &vec![2; files.volume.extents.budget().space().available as usize]);
    for at in (1..BLOCKS as usize).step_by(2) {
        files.write(1, at * block, &vec![at as u8; block]);
    }
    files.verify();
}

#[test]
fn a_clone_takes_no_space_and_outlives_its_source() {
    let mut files = Files::new(Spec::power_of_two());
    let data = noise(&mut Rng::with_seed(3), 60 * files.volume.block_size() as usize);
    files.write(1, 0, &data);
    files.write(2, 0, b"");
    let before = files.volume.extents.budget().space();
    files.clone((1, 0, 60), 2, 0);
    let after = files.volume.extents.budget().space();
    assert_eq!(after.live, before.live, "data is there once");
    files.verify();
    files.write(1, 9_000, b"changed in one of them");
    files.verify();
    files.truncate(1, 0);
    files.verify();
    assert!(files.volume.extents.budget().space().live >= before.live, "the other still has it");
    files.truncate(2, 0);
    files.verify();
    assert_eq!(files.volume.extents.budget().space().live, 0, "the last reference is removed");
}

#[test]
fn preallocated_blocks_are_not_cloned() {
    let mut files = Files::new(Spec::power_of_two());
    let size = files.volume.block_size() as usize;
    files.write(1, 0, &noise(&mut Rng::with_seed(4), 5 * size));
    files.write(2, 0, b"");
    let (mut tx, object) = (Tx::new(), Object(1));
    let (lock, _) = files.volume.extents.preallocate(&mut tx, object, (5, 25), 9, None).unwrap();
    files.commit(tx, lock);
    let preallocated = files.volume.extents.budget().space().unwritten;
    assert_eq!(preallocated, 20 * size as u64);
    files.clone((1, 0, 25), 2, 0);
    assert_eq!(
        files.volume.extents.budget().space().unwritten,
        preallocated,
        "counted once, and not for the clone"
    );
    files.verify();
    files.truncate(1, 0);
    assert_eq!(files.volume.extents.budget().space().unwritten, 0);
    files.verify();
}

#[test]
fn a_lost_block_is_lost_in_all_objects() {
    let mut files = Files::new(Spec::power_of_two());
    let size = files.volume.block_size() as usize;
    files.write(1, 0, &noise(&mut Rng::with_seed(4), 5 * size));
    files.write(2, 0, b"");
    let mut tx = Tx::reclaiming();
    let lock = files.volume.extents.lose_block(&mut tx, Object(1), 3).unwrap();
    files.commit(tx, lock);
    files.clone((1, 0, 5), 2, 0);
    for (object, _) in files.files.values() {
        let read = |block: u64| {
            let mut found = vec![0; size];
            files.volume.extents.maps().read(Object(*object), block * size as u64, &mut found).map(|()| found)
        };
        assert!(matches!(read(3), Err(extent::ExtentError::Lost { block: 3, .. })));
        assert!(read(2).is_ok() && read(4).is_ok());
    }
}

/// Blocks of a file become those of a shared object before another file refers to them. If an own block behind many
/// references were not found, sharing would find it, which ends the process.
#[test]
fn own_data_behind_many_references_is_found() {
    let mut files = Files::new(Spec::power_of_two());
    let (size, mut rng) = (files.volume.block_size() as usize, Rng::with_seed(6));
    let block = noise(&mut rng, size);
    // More than are examined together, none adjacent to another.
    let extents = 260;
    (0..extents).for_each(|index| files.write(1, 2 * index * size, &block));
    files.freeze(1, true);
    let end = 2 * extents as u64;
    files.write(1, end as usize * size, &block);
    files.write(2, 0, b"");
    files.clone((1, 0, end + 1), 2, 0);
    files.verify();
}

/// After any writes, clones, truncations and GC, each file has its own contents, and no block is left at the end.
#[test]
fn files_that_share_blocks_keep_their_contents() {
    let mut moved = 0;
    for (seed, spec) in [Spec::power_of_two(), Spec::odd(), Spec::blocks_of_512()].into_iter().enumerate() {
        let mut files = Files::new(spec);
        let mut rng = Rng::with_seed(seed as u64 + 70);
        let size = files.volume.block_size() as usize;
        let blocks = 40;
        for step in 0..400 {
            let (file, into) = (rng.u64(1..7), rng.u64(1..7));
            files.write(into, 0, b"");
            let at = rng.usize(..blocks * size);
            let most = if rng.bool() { 200 } else { 12 * size };
            let length = rng.usize(1..most);
            match rng.u8(..10) {
                0..4 => files.write(file, at, &noise(&mut rng, length)),
                4..8 if files.files.contains_key(&file) && file != into => {
                    let (from, count) = (rng.u64(..blocks as u64), rng.u64(1..30));
                    files.clone((file, from, from + count), into, rng.u64(..blocks as u64));
                }
                8 => files.truncate(into, rng.u64(..blocks as u64)),
                _ if rng.bool() => drop(files.volume.extents.collector().manual_gc().unwrap()),
                _ => files.volume.step(3),
            }
            if step % 40 == 39 {
                files.verify();
            }
            if step % 100 == 99 {
                files = files.crash();
                files.verify();
                files.end_shadows();
            }
        }
        moved += files.moved;
        for file in 1..7 {
            files.truncate(file, 0);
        }
        files.end_shadows();
        files.verify();
        let space = files.volume.extents.budget().space();
        assert_eq!((space.live, space.unwritten), (0, 0), "seed {seed}: no block is left");
        for (object, _) in files.files.values() {
            assert!(!files.volume.extents.maps().has_own_data(Object(*object), ALL).unwrap());
        }
    }
    assert!(moved > 0, "GC moves shared blocks");
}

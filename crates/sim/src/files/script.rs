//! Builds scenarios: a list of operations, each write with bytes of its own.

use rt::random::Rng;

use crate::digest::mix;
use crate::model::{File, Operation};
use crate::shapes::Shape;

/// The builder of a list of operations.
pub(super) struct Script {
    /// The operations so far.
    pub(super) operations: Vec<Operation>,
    /// Bytes of a block.
    pub(super) block: u64,
    /// Bytes of a page.
    pub(super) page: u64,
    /// Blocks of the whole device.
    pub(super) device_blocks: u64,
    /// For random choices of a scenario.
    pub(super) rng: Rng,
    seed: u64,
    writes: u64,
}

impl Script {
    /// An empty list.
    pub(super) fn new(shape: &Shape, seed: u64) -> Self {
        Script {
            operations: Vec::new(),
            block: u64::from(shape.spec.block_size),
            page: u64::from(shape.page_size),
            device_blocks: shape.spec.capacities.iter().map(|&capacity| u64::from(capacity)).sum(),
            rng: Rng::with_seed(seed),
            seed,
            writes: 0,
        }
    }

    /// Takes the operations since the last call.
    pub(super) fn take(&mut self) -> Vec<Operation> {
        std::mem::take(&mut self.operations)
    }

    fn add(&mut self, operation: Operation) -> &mut Self {
        self.operations.push(operation);
        self
    }

    fn tag(&mut self) -> u64 {
        self.writes += 1;
        mix(&[self.seed, self.writes])
    }

    pub(super) fn create(&mut self, path: &str) -> &mut Self {
        self.add(Operation::Create { path: path.to_owned() })
    }

    pub(super) fn make_directory(&mut self, path: &str) -> &mut Self {
        self.add(Operation::MakeDirectory { path: path.to_owned() })
    }

    pub(super) fn remove_directory(&mut self, path: &str) -> &mut Self {
        self.add(Operation::RemoveDirectory { path: path.to_owned() })
    }

    pub(super) fn symlink(&mut self, target: &str, path: &str) -> &mut Self {
        self.add(Operation::Symlink { target: target.to_owned(), path: path.to_owned() })
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> &mut Self {
        self.add(Operation::Link { from: from.to_owned(), to: to.to_owned() })
    }

    pub(super) fn unlink(&mut self, path: &str) -> &mut Self {
        self.add(Operation::Unlink { path: path.to_owned() })
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> &mut Self {
        self.add(Operation::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    pub(super) fn exchange(&mut self, a: &str, b: &str) -> &mut Self {
        self.add(Operation::Exchange { a: a.to_owned(), b: b.to_owned() })
    }

    pub(super) fn permissions(&mut self, path: &str, permissions: u16) -> &mut Self {
        self.add(Operation::SetPermissions { file: at(path), permissions })
    }

    pub(super) fn xattr(&mut self, path: &str, name: &str, value: &[u8]) -> &mut Self {
        let (file, name, value) = (at(path), name.to_owned(), value.to_vec());
        self.add(Operation::SetXattr { file, name, value })
    }

    pub(super) fn remove_xattr(&mut self, path: &str, name: &str) -> &mut Self {
        self.add(Operation::RemoveXattr { file: at(path), name: name.to_owned() })
    }

    pub(super) fn write(&mut self, path: &str, offset: u64, length: u64) -> &mut Self {
        let tag = self.tag();
        self.add(Operation::Write { file: at(path), offset, length: length as usize, tag })
    }

    pub(super) fn append(&mut self, path: &str, length: u64) -> &mut Self {
        let tag = self.tag();
        self.add(Operation::Append { file: at(path), length: length as usize, tag })
    }

    pub(super) fn truncate(&mut self, path: &str, size: u64) -> &mut Self {
        self.add(Operation::Truncate { file: at(path), size })
    }

    pub(super) fn punch(&mut self, path: &str, offset: u64, length: u64) -> &mut Self {
        self.add(Operation::Punch { file: at(path), offset, length })
    }

    pub(super) fn allocate(&mut self, path: &str, offset: u64, length: u64, keep_size: bool) -> &mut Self {
        self.add(Operation::Allocate { file: at(path), offset, length, keep_size, clear: false })
    }

    pub(super) fn zero(&mut self, path: &str, offset: u64, length: u64, keep_size: bool) -> &mut Self {
        self.add(Operation::Allocate { file: at(path), offset, length, keep_size, clear: true })
    }

    /// In blocks.
    pub(super) fn collapse(&mut self, path: &str, first: u64, blocks: u64) -> &mut Self {
        let (offset, length) = (first * self.block, blocks * self.block);
        self.add(Operation::Collapse { file: at(path), offset, length })
    }

    /// In blocks.
    pub(super) fn insert(&mut self, path: &str, first: u64, blocks: u64) -> &mut Self {
        let (offset, length) = (first * self.block, blocks * self.block);
        self.add(Operation::Insert { file: at(path), offset, length })
    }

    /// In blocks; 0 blocks mean up to the end.
    pub(super) fn clone(
        &mut self,
        (from, first): (&str, u64),
        (to, place): (&str, u64),
        blocks: u64,
    ) -> &mut Self {
        let (from, file, block) = (at(from), at(to), self.block);
        let (offset, at, length) = (first * block, place * block, blocks * block);
        self.add(Operation::Clone { from, offset, file, at, length })
    }

    pub(super) fn fsync(&mut self, path: &str) -> &mut Self {
        self.add(Operation::Fsync { file: at(path), data_only: false })
    }

    pub(super) fn fdatasync(&mut self, path: &str) -> &mut Self {
        self.add(Operation::Fsync { file: at(path), data_only: true })
    }

    pub(super) fn fsync_directory(&mut self, path: &str) -> &mut Self {
        self.add(Operation::FsyncDirectory { path: path.to_owned() })
    }

    pub(super) fn read_back(&mut self, path: &str) -> &mut Self {
        self.add(Operation::ReadBack { file: at(path) })
    }

    pub(super) fn hold(&mut self, path: &str, handle: u8) -> &mut Self {
        self.add(Operation::Hold { path: path.to_owned(), handle })
    }

    pub(super) fn release(&mut self, handle: u8) -> &mut Self {
        self.add(Operation::Release { handle })
    }

    pub(super) fn temporary(&mut self, handle: u8) -> &mut Self {
        self.add(Operation::Temporary { handle })
    }

    pub(super) fn sync(&mut self) -> &mut Self {
        self.add(Operation::Sync)
    }

    pub(super) fn checkpoint(&mut self) -> &mut Self {
        self.add(Operation::Checkpoint)
    }

    pub(super) fn steps(&mut self, count: u32) -> &mut Self {
        self.add(Operation::Steps { count })
    }

    pub(super) fn wait_seconds(&mut self, seconds: u64) -> &mut Self {
        self.add(Operation::Wait { nanoseconds: seconds * 1_000_000_000 })
    }

    pub(super) fn fail(&mut self, failure: crate::store::ZoneFailure) -> &mut Self {
        self.add(Operation::Fail(failure))
    }
}

/// The file at a path; `#3` is the one that handle 3 holds.
fn at(path: &str) -> File {
    match path.strip_prefix('#').and_then(|number| number.parse().ok()) {
        Some(handle) => File::Held(handle),
        None => File::Path(path.to_owned()),
    }
}

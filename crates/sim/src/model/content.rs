//! The bytes of a file, and the versions of each block since its last acknowledged fsync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fs::FsError;

use crate::digest::{Digest, mix};

/// The bytes of a block, and their hash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    hash: u64,
    bytes: Box<[u8]>,
}

/// One version of a block; `None` is zeros.
pub(crate) type Version = Option<Arc<Block>>;

/// The bytes of a file in blocks. A block of zeros equals a block that was never written.
#[derive(Clone, Debug)]
pub struct Content {
    block_size: usize,
    size: u64,
    blocks: BTreeMap<u64, Arc<Block>>,
    /// The sum of a hash for each block.
    hash: u64,
    /// Earlier versions of blocks since the last acknowledged fsync.
    past: BTreeMap<u64, Vec<Version>>,
    /// Earlier sizes since then.
    past_sizes: Vec<u64>,
}

impl Content {
    /// An empty file.
    pub fn new(block_size: usize) -> Self {
        let (blocks, past) = (BTreeMap::new(), BTreeMap::new());
        Content { block_size, size: 0, blocks, hash: 0, past, past_sizes: Vec::new() }
    }

    /// A file with these bytes.
    pub fn of(block_size: usize, bytes: &[u8]) -> Self {
        let mut content = Content::new(block_size);
        for (block, bytes) in (0..).zip(bytes.chunks(block_size)) {
            content.put(block, bytes);
        }
        content.size = bytes.len() as u64;
        content.settle();
        content
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Equal contents have equal hashes.
    pub fn hash(&self) -> u64 {
        mix(&[self.size, self.hash])
    }

    /// The blocks that are not all zeros.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    /// The first bytes of a block, for people.
    pub fn brief(&self, block: u64) -> String {
        match self.blocks.get(&block) {
            None => "zeros".to_owned(),
            Some(found) => found.bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// The current version of a block. Bytes beyond the size are zeros.
    pub(crate) fn block(&self, block: u64) -> Version {
        self.blocks.get(&block).cloned()
    }

    /// Whether a block may be found as in `found`, by the contract. If `found` ends within the block, only the bytes
    /// before its end count.
    pub fn block_was(&self, block: u64, found: &Content) -> bool {
        let valid =
            found.size.saturating_sub(block * self.block_size as u64).min(self.block_size as u64) as usize;
        let zeros = vec![0; self.block_size];
        let bytes = |version: &Version| version.as_ref().map_or(zeros.clone(), |found| found.bytes.to_vec());
        let wanted = bytes(&found.block(block));
        let same = |version: &Version| bytes(version)[..valid] == wanted[..valid];
        same(&self.block(block)) || self.past.get(&block).is_some_and(|past| past.iter().any(same))
    }

    /// Whether a block begins at or beyond the end.
    pub fn is_beyond(&self, block: u64) -> bool {
        block * self.block_size as u64 >= self.size
    }

    /// The blocks that are or were not zeros here or in others.
    pub fn blocks_with(&self, others: &[&Content]) -> BTreeSet<u64> {
        let all = std::iter::once(self).chain(others.iter().copied());
        all.flat_map(|content| content.blocks.keys().chain(content.past.keys()).copied()).collect()
    }

    /// Whether the file may be found with this size, by the contract.
    pub fn size_was(&self, size: u64) -> bool {
        self.size == size || self.past_sizes.contains(&size)
    }

    /// Forgets earlier versions.
    pub fn settle(&mut self) {
        self.past.clear();
        self.past_sizes.clear();
    }

    /// Writes bytes from `offset` on. A write without bytes changes nothing, not even the size.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.splice(offset, bytes.len() as u64, |at, into| {
            into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
        });
        self.resize(self.size.max(offset + bytes.len() as u64));
    }

    /// Writes zeros within the size.
    pub fn punch(&mut self, offset: u64, length: u64) {
        let end = (offset + length).min(self.size);
        self.splice(offset, end.saturating_sub(offset), |_, into| into.fill(0));
    }

    /// Truncates, or extends with zeros.
    pub fn truncate(&mut self, size: u64) {
        self.splice(size, self.size.saturating_sub(size), |_, into| into.fill(0));
        self.resize(size);
    }

    /// Removes a range. The following bytes move down.
    pub fn collapse(&mut self, offset: u64, length: u64) -> Result<(), FsError> {
        self.check_range(offset, length)?;
        if offset + length >= self.size {
            return Err(FsError::Invalid);
        }
        let mut bytes = self.bytes();
        bytes.drain(offset as usize..(offset + length) as usize);
        self.truncate(bytes.len() as u64);
        self.write(0, &bytes);
        Ok(())
    }

    /// Inserts zeros. The following bytes move up.
    pub fn insert(&mut self, offset: u64, length: u64) -> Result<(), FsError> {
        self.check_range(offset, length)?;
        if offset >= self.size {
            return Err(FsError::Invalid);
        }
        let mut bytes = self.bytes();
        bytes.splice(offset as usize..offset as usize, std::iter::repeat_n(0, length as usize));
        self.write(0, &bytes);
        Ok(())
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<(), FsError> {
        let size = self.block_size as u64;
        let whole = offset.is_multiple_of(size) && length.is_multiple_of(size) && length > 0;
        if whole { Ok(()) } else { Err(FsError::Invalid) }
    }

    /// All bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (block, content) in &self.blocks {
            let start = *block as usize * self.block_size;
            let length = content.bytes.len().min(bytes.len().saturating_sub(start));
            bytes[start..start + length].copy_from_slice(&content.bytes[..length]);
        }
        bytes
    }

    fn resize(&mut self, size: u64) {
        if size != self.size {
            self.past_sizes.push(self.size);
            self.size = size;
        }
    }

    /// Changes `length` bytes from `offset` on. `change` gets the distance of each part from `offset`.
    fn splice(&mut self, offset: u64, length: u64, change: impl Fn(u64, &mut [u8])) {
        let size = self.block_size as u64;
        let mut at = offset;
        while at < offset + length {
            let (block, within) = (at / size, (at % size) as usize);
            let part = (self.block_size - within).min((offset + length - at) as usize);
            let mut bytes = vec![0; self.block_size];
            if let Some(old) = self.blocks.get(&block) {
                bytes.copy_from_slice(&old.bytes);
            }
            change(at - offset, &mut bytes[within..within + part]);
            self.put(block, &bytes);
            at += part as u64;
        }
    }

    fn put(&mut self, block: u64, bytes: &[u8]) {
        let before = self.blocks.remove(&block);
        self.hash = self.hash.wrapping_sub(before.as_ref().map_or(0, |before| before.hash));
        self.past.entry(block).or_default().push(before);
        if bytes.iter().any(|&byte| byte != 0) {
            let mut whole = bytes.to_vec();
            whole.resize(self.block_size, 0);
            let hash = Digest::new().number(block).bytes(&whole).finish();
            self.hash = self.hash.wrapping_add(hash);
            self.blocks.insert(block, Arc::new(Block { hash, bytes: whole.into() }));
        }
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && self.blocks == other.blocks
    }
}

//! The contents of an emulated device: blocks that share their bytes, so that a copy of a whole device needs little
//! more than a pointer for each zone.

use std::sync::{Arc, OnceLock};

use rt::random::Rng;

use zone::machine::Machine;
use zone::{Blocks, ZoneId, ZoneInfo, ZoneState};

/// The bytes of one write, shared by all copies.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: Box<[u8]>,
    /// A hash of each block, computed when it is first needed.
    hashes: OnceLock<Box<[u64]>>,
}

impl Payload {
    pub(super) fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Payload { bytes: bytes.into(), hashes: OnceLock::new() })
    }

    pub(super) fn blocks(&self, block_size: usize) -> Blocks {
        (self.bytes.len() / block_size) as Blocks
    }

    fn hash(&self, at: Blocks, block_size: usize) -> u64 {
        self.hashes.get_or_init(|| self.bytes.chunks(block_size).map(checksum).collect())[at as usize]
    }
}

/// One block of the medium.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// The `at`-th block of a write.
    Data { payload: Arc<Payload>, at: Blocks },
    /// One repeated word: the compact form of a block of a long run.
    Repeated(u64),
    /// Not written although the pointer is beyond it; it reads as zeros.
    Zeros,
    /// The same; it reads as noise.
    Noise(u64),
    /// It cannot be read.
    Unreadable,
}

impl Block {
    /// Copies the bytes; false when they cannot be read.
    pub(super) fn copy_to(&self, into: &mut [u8]) -> bool {
        match self {
            Block::Data { payload, at } => {
                let start = *at as usize * into.len();
                into.copy_from_slice(&payload.bytes[start..start + into.len()]);
            }
            Block::Repeated(word) => repeat(*word, into),
            Block::Zeros => into.fill(0),
            Block::Noise(seed) => Rng::with_seed(*seed).fill(into),
            Block::Unreadable => return false,
        }
        true
    }

    fn hash(&self, block_size: usize) -> u64 {
        match self {
            Block::Data { payload, at } => payload.hash(*at, block_size),
            Block::Repeated(word) => {
                let mut bytes = vec![0; block_size];
                repeat(*word, &mut bytes);
                checksum(&bytes)
            }
            Block::Zeros => 1,
            Block::Noise(seed) => mix(2, *seed),
            Block::Unreadable => 3,
        }
    }
}

/// The blocks of one zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    /// From block 0 to the pointer.
    pub(super) blocks: Arc<Vec<Block>>,
    /// The contents before the last reset, if they are kept.
    pub(super) previous: Arc<Vec<Block>>,
}

impl Contents {
    pub(super) fn reset(&mut self) {
        self.previous = std::mem::take(&mut self.blocks);
    }

    /// The contents of a block that was not written in this life: anything.
    pub(super) fn remains(&self, block: Blocks, seed: u64) -> Block {
        match seed % 3 {
            0 => Block::Zeros,
            1 => self.previous.get(block as usize).cloned().unwrap_or(Block::Zeros),
            _ => Block::Noise(mix(seed, u64::from(block))),
        }
    }

    /// Extends the zone to `end`: blocks up to there that were not written have old contents, zeros or noise.
    pub(super) fn extend(&mut self, end: Blocks, seed: u64) {
        for block in self.blocks.len() as Blocks..end {
            let remains = self.remains(block, seed);
            Arc::make_mut(&mut self.blocks).push(remains);
        }
    }

    /// Appends all blocks of a write.
    pub(super) fn append(&mut self, payload: &Arc<Payload>, blocks: Blocks) {
        let written = (0..blocks).map(|at| Block::Data { payload: Arc::clone(payload), at });
        Arc::make_mut(&mut self.blocks).extend(written);
    }

    /// Appends blocks that each repeat a word, without storing their bytes; false if some do not.
    pub(super) fn append_repeated(&mut self, bytes: &[u8], block_size: usize) -> bool {
        let Some(blocks) = repeated(bytes, block_size) else { return false };
        Arc::make_mut(&mut self.blocks).extend(blocks);
        true
    }

    /// Stores a block below the end or directly at it.
    pub(super) fn put(&mut self, at: Blocks, block: Block) {
        let blocks = Arc::make_mut(&mut self.blocks);
        match blocks.get_mut(at as usize) {
            Some(slot) => *slot = block,
            None => {
                assert_eq!(blocks.len(), at as usize, "blocks of a zone follow each other");
                blocks.push(block);
            }
        }
    }
}

/// Everything that survives on an emulated device: states and contents.
#[derive(Clone, Debug)]
pub(super) struct Medium {
    pub(super) machine: Machine,
    pub(super) contents: Vec<Contents>,
}

impl Medium {
    pub(super) fn contents_mut(&mut self, zone: ZoneId) -> &mut Contents {
        &mut self.contents[zone.0 as usize]
    }

    /// Changes the state of a zone unconditionally.
    pub(super) fn set_state(&mut self, zone: ZoneId, state: ZoneState) {
        let info = self.machine.zones()[zone.0 as usize];
        self.machine.force(zone, ZoneInfo { state, ..info });
    }

    /// Makes a conventional zone without block 0 empty: nothing is written behind block 0 before it is durable.
    pub(super) fn lose_first_block(&mut self, zone: ZoneId) {
        let info = self.machine.zones()[zone.0 as usize];
        let is_alive = !matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
        if is_alive && self.machine.geometry().is_conventional(zone) {
            self.contents_mut(zone).blocks = Arc::default();
            self.machine.force(zone, ZoneInfo { state: ZoneState::Empty, pointer: 0, ..info });
        }
    }

    /// Applies the effect of reopening the device: conventional zones with data are full.
    pub(super) fn forget_pointers(&mut self) {
        let geometry = self.machine.geometry();
        for zone in (geometry.sequential()..geometry.zones).map(ZoneId) {
            let info = self.machine.zones()[zone.0 as usize];
            match (info.state, info.pointer) {
                (ZoneState::Open, 0) => self.set_state(zone, ZoneState::Empty),
                (ZoneState::Open | ZoneState::Closed, _) => self.set_state(zone, ZoneState::Full),
                _ => {}
            }
        }
    }

    /// The block as it is read now, whether it is written or not.
    pub(super) fn block(&self, zone: ZoneId, block: Blocks, seed: u64) -> Block {
        let contents = &self.contents[zone.0 as usize];
        let known = contents.blocks.get(block as usize).cloned();
        known.unwrap_or_else(|| contents.remains(block, mix(seed, u64::from(zone.0))))
    }

    /// The state that the device reports of a zone: a pointer without meaning gets an arbitrary value.
    pub(super) fn reported(&self, zone: ZoneId, info: ZoneInfo, seed: u64) -> ZoneInfo {
        if info.state.has_pointer() {
            return info;
        }
        let any = [0, info.capacity, Blocks::MAX, info.capacity / 2];
        let pointer = any[(mix(seed, u64::from(zone.0)) % any.len() as u64) as usize];
        ZoneInfo { pointer, ..info }
    }

    /// A digest that is equal for devices with equal contents.
    pub(super) fn digest(&self) -> u64 {
        self.sum(Block::hash)
    }

    /// The same, with all noise treated as equal.
    pub(super) fn digest_ignoring_noise(&self) -> u64 {
        self.sum(|block, block_size| match block {
            Block::Noise(_) => 2,
            block => block.hash(block_size),
        })
    }

    fn sum(&self, hash: impl Fn(&Block, usize) -> u64) -> u64 {
        let block_size = self.machine.geometry().block_size as usize;
        let mut digest = 0;
        for (info, contents) in self.machine.zones().iter().zip(&self.contents) {
            let state = match info.state {
                ZoneState::Open => ZoneState::Closed,
                state => state,
            };
            digest = mix(digest, u64::from(info.capacity) << 8 | state as u64);
            for block in contents.blocks.iter() {
                digest = mix(digest, hash(block, block_size));
            }
        }
        digest
    }
}

fn checksum(block: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, block)
}

const WORD: usize = size_of::<u64>();

fn repeat(word: u64, into: &mut [u8]) {
    into.chunks_exact_mut(WORD).for_each(|place| place.copy_from_slice(&word.to_ne_bytes()));
}

/// The blocks, each as its repeated word; `None` unless every block repeats one.
fn repeated(bytes: &[u8], block_size: usize) -> Option<Vec<Block>> {
    let word_of = |block: &[u8]| {
        let (first, rest) = block.split_at(WORD);
        // Data that equals itself shifted by a word repeats the first word.
        (rest == &block[..rest.len()]).then(|| u64::from_ne_bytes(first.try_into().expect("split at a word")))
    };
    bytes.chunks_exact(block_size).map(|block| word_of(block).map(Block::Repeated)).collect()
}

/// Mixes two numbers into one that depends on each bit of both.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a.rotate_left(23) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

//! A stand-in for `extent`: blocks on data zones, named by entries of one table.
//!
//! An entry's value says where its blocks are and from which number their bytes were made, so that
//! they can be verified. What a checkpoint carries for it is the list of places in zones that are
//! still open: like the reverse map's unsummarised entries, it may be more than the cut, never less.

use std::collections::BTreeSet;
use std::sync::Arc;

use rt::random::Rng;
use rt::sync::Mutex;
use tree::{Client, Op, Replay};
use zone::{Address, Blocks, Device, ZoneId};

/// The table whose values name data.
pub(super) const DATA: u8 = 2;

/// Where the data of an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first block.
    pub(super) at: Address,
    /// How many blocks.
    pub(super) blocks: Blocks,
    /// What its bytes are made from.
    pub(super) tag: u64,
}

impl Place {
    /// As a value of [`DATA`].
    pub(super) fn encode(self) -> Vec<u8> {
        [self.at.bits().to_le_bytes(), u64::from(self.blocks).to_le_bytes(), self.tag.to_le_bytes()].concat()
    }

    /// From a value of [`DATA`].
    pub(super) fn decode(value: &[u8]) -> Option<Place> {
        let word =
            |index: usize| Some(u64::from_le_bytes(value.get(index * 8..index * 8 + 8)?.try_into().ok()?));
        let blocks = Blocks::try_from(word(1)?).ok()?;
        Some(Place { at: Address::from_bits(word(0)?), blocks, tag: word(2)? })
    }

    /// What its blocks hold.
    pub(super) fn bytes(tag: u64, blocks: Blocks, block_size: u32) -> Vec<u8> {
        let mut bytes = vec![0; (blocks * block_size) as usize];
        Rng::with_seed(tag).fill(&mut bytes);
        bytes
    }

    /// Whether the data is there, in a zone of the right life.
    pub(super) fn is_there(self, device: &dyn Device) -> bool {
        let block_size = device.geometry().block_size;
        let mut header = vec![0; block_size as usize];
        let mut bytes = vec![0; (self.blocks * block_size) as usize];
        let read = device
            .read(self.at.zone(), 0, &mut header)
            .and_then(|()| device.read(self.at.zone(), self.at.block(), &mut bytes));
        let life = zone::format::decode_header(&header).map(|(identity, _)| identity.life);
        read.is_ok()
            && life.is_ok_and(|life| self.at.is_of(life))
            && bytes == Place::bytes(self.tag, self.blocks, block_size)
    }
}

/// The places that a record's puts name.
fn places(ops: &[Op]) -> impl Iterator<Item = Place> {
    ops.iter().filter_map(|op| match op {
        Op::Put { table, value, .. } if table.0 == DATA => Place::decode(value),
        _ => None,
    })
}

/// Places in zones that are open: carried by checkpoints.
#[derive(Debug, Default)]
pub(super) struct Carried(Mutex<BTreeSet<u64>>);

impl Carried {
    /// Notes a place, before the transaction that names it.
    pub(super) fn add(&self, at: Address) {
        self.0.lock().insert(at.bits());
    }

    /// The zone is no longer open.
    pub(super) fn forget(&self, zone: ZoneId) {
        self.0.lock().retain(|&bits| Address::from_bits(bits).zone() != zone);
    }
}

impl Client for Carried {
    fn checkpoint_bytes(&self) -> Vec<u8> {
        self.0.lock().iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }
}

/// What recovery tells the stand-in.
pub(super) struct Recovering {
    device: Arc<dyn Device>,
    /// Places that the checkpoint carried or a record named.
    pub(super) known: BTreeSet<u64>,
}

impl Recovering {
    /// Before the recovery.
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Recovering { device, known: BTreeSet::new() }
    }
}

impl Replay for Recovering {
    fn checkpoint(&mut self, bytes: &[u8]) -> tree::Result<()> {
        assert!(bytes.len().is_multiple_of(8), "what a checkpoint carries comes back as it was");
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("chunks of 8"));
        self.known = bytes.chunks_exact(8).map(word).collect();
        Ok(())
    }

    fn verify(&mut self, ops: &[Op]) -> tree::Result<bool> {
        Ok(places(ops).all(|place| place.is_there(self.device.as_ref())))
    }

    fn apply(&mut self, ops: &[Op]) {
        self.known.extend(places(ops).map(|place| place.at.bits()));
    }
}

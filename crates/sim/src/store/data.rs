//! A stand-in for `extent`: blocks on data zones, named by entries of one table.
//!
//! An entry's value says where its blocks are and from which number their bytes were made, so that
//! they can be verified. What a checkpoint carries for it is the list of places in zones that are
//! still open: like the reverse map's unsummarised entries, it may be more than the cut, never less.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use rt::random::Rng;
use rt::sync::Mutex;
use tree::{Client, Lsn, Op, Replay, Store, StoreError, Tx};
use zone::{Address, Blocks, Device, ZoneId, ZoneState};

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

/// The store's user: what checkpoints carry for it, and what it commits while one is being taken.
#[derive(Default)]
pub(super) struct User {
    /// Places in zones that are open.
    carried: Mutex<BTreeSet<u64>>,
    meddling: Mutex<Meddling>,
}

/// Transactions for the middle of a checkpoint, where one thread gets only through its user.
#[derive(Default)]
pub(super) struct Meddling {
    /// The store to commit to; none between checkpoints.
    store: Weak<Store>,
    /// What is to be committed, in order.
    waiting: VecDeque<Tx>,
    /// What was.
    done: Vec<Lsn>,
    /// What went wrong.
    failed: Option<StoreError>,
    /// After how many transactions all of them are made durable.
    sync_after: usize,
    /// How often the checkpoint has asked: first before its cut, then after it.
    asked: u32,
}

impl User {
    /// Notes a place, before the transaction that names it.
    pub(super) fn add(&self, at: Address) {
        self.carried.lock().insert(at.bits());
    }

    /// The zone is no longer open.
    pub(super) fn forget(&self, zone: ZoneId) {
        self.carried.lock().retain(|&bits| Address::from_bits(bits).zone() != zone);
    }

    /// Has these committed during the next checkpoint, after its cut.
    pub(super) fn meddle(&self, store: &Arc<Store>, waiting: Vec<Tx>, sync_after: usize) {
        let store = Arc::downgrade(store);
        *self.meddling.lock() =
            Meddling { store, waiting: waiting.into(), sync_after, ..Meddling::default() };
    }

    /// Ends the meddling: what was committed.
    pub(super) fn meddled(&self) -> Result<Vec<Lsn>, StoreError> {
        let meddling = std::mem::take(&mut *self.meddling.lock());
        meddling.failed.map_or(Ok(meddling.done), Err)
    }
}

impl Meddling {
    fn go_on(&mut self) -> Result<(), StoreError> {
        self.asked += 1;
        let Some(store) = self.store.upgrade().filter(|_| self.asked == 2) else { return Ok(()) };
        for tx in self.waiting.drain(..) {
            self.done.push(store.commit(tx)?);
            if self.done.len() == self.sync_after {
                store.sync(store.last_lsn())?;
            }
        }
        Ok(())
    }
}

impl Client for User {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Vec<u8> {
        // A commit may itself need a checkpoint, which must not meddle.
        if let Some(mut meddling) = self.meddling.try_lock()
            && meddling.failed.is_none()
        {
            meddling.failed = meddling.go_on().err();
        }
        self.carried.lock().iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }
}

/// What recovery tells the stand-in.
pub(super) struct Recovering {
    device: Arc<dyn Device>,
    /// Places that the checkpoint carried or a record named.
    pub(super) known: BTreeSet<u64>,
    /// Records that did not count.
    pub(super) discarded: u64,
}

impl Recovering {
    /// Before the recovery.
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Recovering { device, known: BTreeSet::new(), discarded: 0 }
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
        // Nothing can be said of a zone that went offline: the record counts, and its data is gone.
        let offline = |zone| self.device.report_zone(zone).is_ok_and(|info| info.state == ZoneState::Offline);
        Ok(places(ops).all(|place| offline(place.at.zone()) || place.is_there(self.device.as_ref())))
    }

    fn apply(&mut self, ops: &[Op]) {
        self.known.extend(places(ops).map(|place| place.at.bits()));
    }
}

//! A stand-in for `extent`: blocks on data zones, and entries of one table that refer to them.
//!
//! An entry's value contains the address of its blocks, and the number from which their bytes follow, so that they
//! can be verified. The payload of a checkpoint is the list of addresses in zones that are still open. Like the
//! reverse map's unsummarised entries, it may contain more than the cut, but never less.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use rt::random::Rng;
use rt::sync::Mutex;
use tree::{Client, Lsn, Op, Replay, Store, StoreError, Tx};
use zone::{Address, Blocks, Device, ZoneId, ZoneState};

/// The table whose values refer to data.
pub(super) const DATA: u8 = 2;

/// The address of an entry's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first block.
    pub(super) at: Address,
    /// How many blocks.
    pub(super) blocks: Blocks,
    /// The number from which its bytes follow.
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

    /// The bytes of its blocks.
    pub(super) fn bytes(tag: u64, blocks: Blocks, block_size: u32) -> Vec<u8> {
        let mut bytes = vec![0; (blocks * block_size) as usize];
        Rng::with_seed(tag).fill(&mut bytes);
        bytes
    }

    /// Whether the data exists, in a zone of the right life.
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

/// The places to which a record's puts refer.
fn places(ops: &[Op]) -> impl Iterator<Item = Place> {
    ops.iter().filter_map(|op| match op {
        Op::Put { table, value, .. } if table.0 == DATA => Place::decode(value),
        _ => None,
    })
}

/// The store's user: the payload of checkpoints, and transactions to commit during a checkpoint.
#[derive(Default)]
pub(super) struct User {
    /// Places in zones that are open.
    carried: Mutex<BTreeSet<u64>>,
    meddling: Mutex<Meddling>,
}

/// Transactions for the middle of a checkpoint. A single thread can reach that moment only through the store's user.
#[derive(Default)]
pub(super) struct Meddling {
    /// The store to commit to. Dangling between checkpoints.
    store: Weak<Store>,
    /// Transactions to commit, in order.
    waiting: VecDeque<Tx>,
    /// LSNs of those committed.
    done: Vec<Lsn>,
    /// The error of a commit.
    failed: Option<StoreError>,
    /// After this many transactions all of them are made durable.
    sync_after: usize,
    /// How often the checkpoint has asked for its payload: first before its cut, then after it.
    asked: u32,
}

impl User {
    /// Notes a place, before the transaction that refers to it.
    pub(super) fn add(&self, at: Address) {
        self.carried.lock().insert(at.bits());
    }

    /// The zone is no longer open.
    pub(super) fn forget(&self, zone: ZoneId) {
        self.carried.lock().retain(|&bits| Address::from_bits(bits).zone() != zone);
    }

    /// Requests that these transactions are committed during the next checkpoint, after its cut.
    pub(super) fn meddle(&self, store: &Arc<Store>, waiting: Vec<Tx>, sync_after: usize) {
        let store = Arc::downgrade(store);
        *self.meddling.lock() =
            Meddling { store, waiting: waiting.into(), sync_after, ..Meddling::default() };
    }

    /// Ends the requests. Returns the LSNs of those committed.
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

/// The stand-in's state during recovery.
pub(super) struct Recovering {
    device: Arc<dyn Device>,
    /// Places that the checkpoint carried or to which a record refers.
    pub(super) known: BTreeSet<u64>,
    /// Discarded records.
    pub(super) discarded: u64,
}

impl Recovering {
    /// The state before the recovery.
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Recovering { device, known: BTreeSet::new(), discarded: 0 }
    }
}

impl Replay for Recovering {
    fn checkpoint(&mut self, bytes: &[u8]) -> tree::Result<()> {
        assert!(bytes.len().is_multiple_of(8), "a checkpoint returns the payload that was written");
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("chunks of 8"));
        self.known = bytes.chunks_exact(8).map(word).collect();
        Ok(())
    }

    fn verify(&mut self, ops: &[Op]) -> tree::Result<bool> {
        // Data in an offline zone cannot be verified. The record counts, and its data is lost.
        let offline = |zone| self.device.report_zone(zone).is_ok_and(|info| info.state == ZoneState::Offline);
        Ok(places(ops).all(|place| offline(place.at.zone()) || place.is_there(self.device.as_ref())))
    }

    fn apply(&mut self, ops: &[Op]) {
        self.known.extend(places(ops).map(|place| place.at.bits()));
    }
}

//! The end of the owner: answering the calls of one client.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rt::sync::Mutex;

use crate::Disconnected;
use crate::memory::{CommonWord, DATA_MAX, MESSAGE_MAX, Memory, SLOTS, Word, state};
use crate::socket::{DESCRIPTORS, Peer, greet, hang_up, pair, ring, wait, wait_for_ring};
use crate::spin::Spinning;

/// Begins every greeting. Owner and client must have the same version of this crate's protocol.
pub(crate) const MAGIC: &[u8; 8] = b"POLDATT1";
/// Follows it: the client gets memory, or the rest of the greeting says why not.
pub(crate) const ACCEPTED: u8 = 1;
pub(crate) const REFUSED: u8 = 0;

/// More data than this is copied for one call of a client at a time, and its memory is returned afterwards.
pub(crate) const LARGE: usize = 1 << 20;

/// Threads of this process that wait for calls.
static SPINNING: Spinning = Spinning::new();

/// A call, copied out of the shared memory; then its answer.
#[derive(Default)]
pub struct Exchange {
    /// The message.
    pub message: Vec<u8>,
    data: Vec<u8>,
    data_length: usize,
    wanted: usize,
}

impl Exchange {
    /// The data of the call.
    pub fn data(&self) -> &[u8] {
        &self.data[..self.data_length]
    }

    /// The most bytes of data that the answer may have.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// The message, and space for the data of the answer, at most [`Exchange::wanted`] bytes. The space has any
    /// contents. All of it is sent, unless [`Exchange::set_data_length`] is called.
    pub fn answer_data(&mut self, length: usize) -> &mut [u8] {
        assert!(length <= self.wanted, "no more than wanted");
        self.resize_data(length);
        &mut self.data[..length]
    }

    /// Sets how much of the data is sent.
    pub fn set_data_length(&mut self, length: usize) {
        assert!(length <= self.data_length, "no more than there is");
        self.data_length = length;
    }

    /// Takes both parts of the call.
    pub fn parts(&mut self) -> (&mut Vec<u8>, &[u8]) {
        (&mut self.message, &self.data[..self.data_length])
    }

    /// Allocates the space of a call and its answer. A lack of memory must end the connection, and not this process.
    fn reserve(&mut self, message: usize, data: usize) -> Result<(), Disconnected> {
        self.message
            .try_reserve_exact(message.saturating_sub(self.message.len()))
            .map_err(|_| Disconnected)?;
        self.data.try_reserve_exact(data.saturating_sub(self.data.len())).map_err(|_| Disconnected)
    }

    fn resize_data(&mut self, length: usize) {
        if self.data.len() < length {
            self.data.resize(length, 0);
        }
        self.data_length = length;
    }

    fn shrink(&mut self) {
        if self.data.len() > LARGE {
            self.data = Vec::new();
        }
    }
}

/// The owner's end of a connection. Each slot is served by a thread of its own.
pub struct Owner {
    memory: Memory,
    peer: Peer,
    bells: Vec<OwnedFd>,
    /// A bit for each slot that is served.
    served: AtomicU32,
    /// Held while large data is copied, so that one client cannot make this process copy much of it at a time.
    large: Mutex<()>,
    is_ended: AtomicBool,
}

impl Owner {
    /// Accepts a client: gives it memory and the greeting. If this process lacks memory or descriptors, refuses it.
    pub fn accept(peer: Peer, greeting: &[u8]) -> io::Result<Owner> {
        let created = Memory::create().and_then(|memory| Ok((memory, pairs()?)));
        let ((memory, file), pairs) = created.inspect_err(|error| {
            Owner::refuse(&peer, &format!("the owner cannot serve another process: {error}"));
        })?;
        let (bells, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![file.as_fd()];
        descriptors.extend(theirs.iter().map(AsFd::as_fd));
        assert_eq!(descriptors.len(), DESCRIPTORS, "as the client expects");
        greet(&peer.socket, &with_header(ACCEPTED, greeting), &descriptors)?;
        let served = AtomicU32::new(0);
        Ok(Owner { memory, peer, bells, served, large: Mutex::new(()), is_ended: AtomicBool::new(false) })
    }

    /// Refuses a client.
    pub fn refuse(peer: &Peer, reason: &str) {
        // The client may have ended.
        let _ = greet(&peer.socket, &with_header(REFUSED, reason.as_bytes()), &[]);
    }

    /// Waits until the client begins to use another slot. Returns its number, each one once.
    ///
    /// # Errors
    /// The connection has ended. No thread serves it any more in a moment.
    pub fn next_slot(&self) -> Result<usize, Disconnected> {
        loop {
            let mut slot = [0];
            let received = wait(&self.peer.socket, self.peer.process.as_ref(), &mut slot);
            received.inspect_err(|_| self.disconnect())?;
            let slot = usize::from(slot[0]);
            if slot < SLOTS && self.served.fetch_or(1 << slot, Ordering::SeqCst) & (1 << slot) == 0 {
                return Ok(slot);
            }
        }
    }

    /// Answers the calls in a slot until the connection ends. `answer` replaces the call by the answer. If it fails,
    /// the connection ends without an answer.
    pub fn serve(&self, slot: usize, mut answer: impl FnMut(&mut Exchange) -> Result<(), Disconnected>) {
        // If `answer` panics, the client must not wait for it.
        let _ending = Ending(self);
        let mut exchange = Exchange::default();
        while self.wait_for_call(slot).is_ok() && self.exchange(slot, &mut exchange, &mut answer).is_ok() {}
    }

    /// Reports to the client that something has happened.
    pub fn notify(&self) {
        self.memory.common(CommonWord::Notices).fetch_add(1, Ordering::SeqCst);
        if self.memory.common(CommonWord::NoticeAwaited).swap(0, Ordering::SeqCst) != 0 {
            ring(&self.peer.socket, 0);
        }
    }

    /// Ends the connection.
    pub fn disconnect(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        hang_up(&self.peer.socket);
        self.bells.iter().for_each(hang_up);
    }

    fn wait_for_call(&self, slot: usize) -> Result<(), Disconnected> {
        let is_called = || {
            let state = self.memory.word(slot, Word::State).load(Ordering::SeqCst);
            matches!(state, state::CALLED | state::AWAITED)
        };
        let waits = self.memory.word(slot, Word::OwnerWaits);
        if !SPINNING.until(is_called) {
            loop {
                waits.store(1, Ordering::SeqCst);
                if is_called() {
                    waits.store(0, Ordering::SeqCst);
                    break;
                }
                wait_for_ring(&self.bells[slot], None)?;
            }
        }
        match self.is_ended.load(Ordering::SeqCst) {
            true => Err(Disconnected),
            false => Ok(()),
        }
    }

    fn exchange(
        &self,
        slot: usize,
        exchange: &mut Exchange,
        answer: &mut impl FnMut(&mut Exchange) -> Result<(), Disconnected>,
    ) -> Result<(), Disconnected> {
        let message = self.length(slot, Word::Message, MESSAGE_MAX)?;
        let data = self.length(slot, Word::Data, DATA_MAX)?;
        exchange.wanted = self.length(slot, Word::Wanted, DATA_MAX)?;
        let _large = (data.max(exchange.wanted) > LARGE).then(|| self.large.lock());
        exchange.reserve(message, data.max(exchange.wanted))?;
        exchange.message.resize(message, 0);
        self.memory.read_message(slot, &mut exchange.message);
        exchange.resize_data(data);
        self.memory.read_data(slot, &mut exchange.data[..data]);

        answer(exchange)?;

        let data = exchange.data();
        assert!(exchange.message.len() <= MESSAGE_MAX && data.len() <= exchange.wanted, "the answer fits");
        self.memory.write_message(slot, &exchange.message);
        self.memory.write_data(slot, data);
        let set = |word, length: usize| self.memory.word(slot, word).store(length as u32, Ordering::Relaxed);
        set(Word::Message, exchange.message.len());
        set(Word::Data, data.len());
        exchange.shrink();
        let before = self.memory.word(slot, Word::State).swap(state::ANSWERED, Ordering::SeqCst);
        if before == state::AWAITED {
            ring(&self.bells[slot], 0);
        }
        Ok(())
    }

    /// Reads a length once. Only a broken client sets one that is too large.
    fn length(&self, slot: usize, word: Word, most: usize) -> Result<usize, Disconnected> {
        let length = self.memory.word(slot, word).load(Ordering::Relaxed) as usize;
        if length <= most { Ok(length) } else { Err(Disconnected) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// Disconnects when a slot is not served any more.
struct Ending<'a>(&'a Owner);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

/// A socket pair for each slot.
fn pairs() -> io::Result<Vec<(OwnedFd, OwnedFd)>> {
    Ok((0..SLOTS).map(|_| pair()).collect::<Result<_, _>>()?)
}

fn with_header(kind: u8, text: &[u8]) -> Vec<u8> {
    [MAGIC, &[kind][..], text].concat()
}

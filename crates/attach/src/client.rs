//! The end of a client: calling the owner.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rt::sync::{Condvar, Mutex};
use rustix::io::Errno;

use crate::Disconnected;
use crate::memory::{CommonWord, DATA_MAX, MESSAGE_MAX, Memory, SLOTS, Word, state};
use crate::owner::{ACCEPTED, LARGE, MAGIC};
use crate::socket::{
    NoPeer, Peer, connect, hang_up, receive_greeting, ring, wait, wait_for_answer, wait_for_ring,
    watch_process,
};
use crate::spin::Spinning;

/// Threads of this process that wait for answers.
static SPINNING: Spinning = Spinning::new();

/// Why a client was not connected.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No process listens there.
    #[error("no process listens there")]
    Absent,
    /// The process there has stopped listening before it answered.
    #[error("the process that listened there has stopped")]
    Ended,
    /// The process there belongs to another user.
    #[error("the process that listens there belongs to another user")]
    Stranger,
    /// The process there has another version of the protocol.
    #[error("the process that listens there has another version of Polder")]
    Version,
    /// The reason of the owner.
    #[error("{0}")]
    Owner(String),
    /// The system's error.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// The client's end of a connection. Any number of threads can call at the same time. If all slots are in use, a call
/// waits for a free one.
pub struct Client {
    memory: Memory,
    owner: Peer,
    bells: Vec<OwnedFd>,
    greeting: Vec<u8>,
    free: Mutex<Free>,
    freed: Condvar,
    /// A thread waits at the socket for a notice.
    has_watcher: Mutex<bool>,
    noticed: Condvar,
    is_ended: AtomicBool,
}

/// The slots that no thread uses.
struct Free {
    /// The one that was used last is used next, so that the memory of others stays unused.
    slots: Vec<usize>,
    /// A bit for each slot of which the owner knows.
    begun: u32,
}

impl Client {
    /// Connects to the owner that listens at a path. Waits for `patience` until the owner accepts.
    pub fn connect(path: &Path, patience: Duration) -> Result<Client, Refused> {
        let socket = connect(path, patience).map_err(|error| match error {
            Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => Refused::Absent,
            error => Refused::System(error.into()),
        })?;
        let owner = Peer::of(socket).map_err(|error| match error {
            NoPeer::Stranger => Refused::Stranger,
            NoPeer::Ended => Refused::Ended,
        })?;
        if !wait_for_answer(&owner.socket, owner.process.as_ref(), patience)? {
            return Err(Refused::System(io::ErrorKind::TimedOut.into()));
        }
        let (text, descriptors) = receive_greeting(&owner.socket).map_err(|error| {
            match error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) {
                true => Refused::System(error),
                false => Refused::Ended,
            }
        })?;
        if text.is_empty() {
            return Err(Refused::Ended);
        }
        let greeting = text.strip_prefix(MAGIC).ok_or(Refused::Version)?;
        match greeting.split_first() {
            Some((&ACCEPTED, greeting)) => Client::of(owner, greeting, descriptors),
            Some((_, reason)) => Err(Refused::Owner(String::from_utf8_lossy(reason).into_owned())),
            None => Err(Refused::Version),
        }
    }

    fn of(owner: Peer, greeting: &[u8], descriptors: Vec<OwnedFd>) -> Result<Client, Refused> {
        let mut descriptors = descriptors.into_iter();
        let memory = descriptors.next().ok_or(Refused::Version)?;
        let bells: Vec<OwnedFd> = descriptors.collect();
        if bells.len() != SLOTS {
            return Err(Refused::Version);
        }
        bells.iter().try_for_each(watch_process).map_err(io::Error::from)?;
        Ok(Client {
            memory: Memory::open(&memory)?,
            owner,
            bells,
            greeting: greeting.to_vec(),
            free: Mutex::new(Free { slots: (0..SLOTS).rev().collect(), begun: 0 }),
            freed: Condvar::default(),
            has_watcher: Mutex::new(false),
            noticed: Condvar::default(),
            is_ended: AtomicBool::new(false),
        })
    }

    /// The owner's greeting.
    pub fn greeting(&self) -> &[u8] {
        &self.greeting
    }

    /// Calls the owner. Puts the message of the answer into `answer`, and its data into `into`. Returns the number of
    /// bytes of data.
    ///
    /// # Errors
    /// The connection has ended. The owner may have performed the call or not.
    ///
    /// # Panics
    /// If the message, the data or `into` is longer than [`MESSAGE_MAX`] or [`DATA_MAX`].
    pub fn call(
        &self,
        message: &[u8],
        data: &[u8],
        answer: &mut Vec<u8>,
        into: &mut [u8],
    ) -> Result<usize, Disconnected> {
        assert!(message.len() <= MESSAGE_MAX && data.len().max(into.len()) <= DATA_MAX, "the call fits");
        let slot = self.take_slot()?;
        self.memory.write_message(slot.number, message);
        self.memory.write_data(slot.number, data);
        self.set(slot.number, Word::Message, message.len());
        self.set(slot.number, Word::Data, data.len());
        self.set(slot.number, Word::Wanted, into.len());
        self.send(&slot);
        self.wait_for_answer(slot.number)?;
        let received = self.receive(slot.number, answer, into)?;
        self.memory.word(slot.number, Word::State).store(state::IDLE, Ordering::Relaxed);
        if data.len().max(received) > LARGE {
            self.memory.release_data(slot.number, LARGE);
        }
        Ok(received)
    }

    /// The number of notices of the owner so far.
    pub fn notices(&self) -> u32 {
        self.memory.common(CommonWord::Notices).load(Ordering::SeqCst)
    }

    /// Waits until there are other notices than those that were `seen`.
    pub fn wait_for_notice(&self, seen: u32) -> Result<(), Disconnected> {
        let mut has_watcher = self.has_watcher.lock();
        while self.notices() == seen {
            if self.is_ended.load(Ordering::SeqCst) {
                return Err(Disconnected);
            }
            if *has_watcher {
                self.noticed.wait(&mut has_watcher);
                continue;
            }
            *has_watcher = true;
            drop(has_watcher);
            let watched = self.watch(seen);
            has_watcher = self.has_watcher.lock();
            *has_watcher = false;
            self.noticed.notify_all();
            watched?;
        }
        Ok(())
    }

    /// Waits at the socket for other threads too.
    fn watch(&self, seen: u32) -> Result<(), Disconnected> {
        self.memory.common(CommonWord::NoticeAwaited).store(1, Ordering::SeqCst);
        if self.notices() != seen {
            return Ok(());
        }
        let received = wait(&self.owner.socket, self.owner.process.as_ref(), &mut [0; 64]);
        received.map(drop).inspect_err(|_| self.disconnect())
    }

    /// Ends the connection. Calls in progress fail.
    pub fn disconnect(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        hang_up(&self.owner.socket);
        self.bells.iter().for_each(hang_up);
        drop(self.free.lock());
        self.freed.notify_all();
    }

    fn take_slot(&self) -> Result<Slot<'_>, Disconnected> {
        let mut free = self.free.lock();
        loop {
            if self.is_ended.load(Ordering::SeqCst) {
                return Err(Disconnected);
            }
            if let Some(number) = free.slots.pop() {
                let is_first = free.begun & (1 << number) == 0;
                free.begun |= 1 << number;
                return Ok(Slot { client: self, number, is_first });
            }
            self.freed.wait(&mut free);
        }
    }

    fn send(&self, slot: &Slot<'_>) {
        self.memory.word(slot.number, Word::State).store(state::CALLED, Ordering::SeqCst);
        if slot.is_first {
            ring(&self.owner.socket, slot.number as u8);
        } else if self.memory.word(slot.number, Word::OwnerWaits).swap(0, Ordering::SeqCst) != 0 {
            ring(&self.bells[slot.number], 0);
        }
    }

    fn wait_for_answer(&self, slot: usize) -> Result<(), Disconnected> {
        let state = self.memory.word(slot, Word::State);
        let is_answered = || state.load(Ordering::SeqCst) == state::ANSWERED;
        if SPINNING.until(is_answered) {
            return Ok(());
        }
        let awaited =
            state.compare_exchange(state::CALLED, state::AWAITED, Ordering::SeqCst, Ordering::SeqCst);
        if awaited.is_ok() {
            while !is_answered() {
                wait_for_ring(&self.bells[slot], self.owner.process.as_ref())
                    .inspect_err(|_| self.disconnect())?;
            }
        }
        match is_answered() {
            true => Ok(()),
            false => self.give_up(),
        }
    }

    fn receive(&self, slot: usize, answer: &mut Vec<u8>, into: &mut [u8]) -> Result<usize, Disconnected> {
        let message = self.memory.word(slot, Word::Message).load(Ordering::Relaxed) as usize;
        let data = self.memory.word(slot, Word::Data).load(Ordering::Relaxed) as usize;
        if message > MESSAGE_MAX || data > into.len() {
            return self.give_up();
        }
        answer.resize(message, 0);
        self.memory.read_message(slot, answer);
        self.memory.read_data(slot, &mut into[..data]);
        Ok(data)
    }

    /// The owner does not keep to the protocol.
    fn give_up<T>(&self) -> Result<T, Disconnected> {
        self.disconnect();
        Err(Disconnected)
    }

    fn set(&self, slot: usize, word: Word, length: usize) {
        self.memory.word(slot, word).store(length as u32, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Client {
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.owner.socket
    }

    pub(crate) fn bell(&self, slot: usize) -> &OwnedFd {
        &self.bells[slot]
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// A slot in use.
struct Slot<'a> {
    client: &'a Client,
    number: usize,
    /// The owner does not serve it yet.
    is_first: bool,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.client.free.lock().slots.push(self.number);
        self.client.freed.notify_one();
    }
}

//! Which thread receives the next request.
//!
//! The kernel wakes a thread for each request if one sleeps in its queue. On an idle machine such a wake-up costs more
//! than the answer. So at most one thread, the *receiver*, waits in the kernel's queue, and the others are parked
//! here. The receiver answers the requests that it receives. It looks for the next one for a moment before it sleeps,
//! because a program sends its next request soon after the last answer. (Leader/Followers: Schmidt and others,
//! "Pattern-Oriented Software Architecture", volume 2.)
//!
//! **No request waits for an answer that waits.** A receiver that is about to wait for a lock or a condition
//! ([`rt::waits::call_before_waits`]) first hands over to a parked thread. A thread that is not the receiver takes a
//! request that is there already before it parks. Waits that are not announced, and long work, are found otherwise: a
//! parked thread, the *watcher*, relieves a receiver whose answer takes longer than [`RELIEF`]. The watcher is woken
//! once for a series of requests, and sleeps when there have been none for a while.
//!
//! **Waits for the device.** If one program waits for its data and no other sends anything, handing over would be in
//! vain. So the receiver hands over only if requests have come during some of the last waits for the device.
//!
//! **Several processors.** A receiver that again and again finds the next request there already invites a parked
//! thread. That thread takes requests as long as there are any, and parks again.
//!
//! **Looks are learned.** A look in vain costs a processor that other programs may need. After each look in vain the
//! receiver leaves out twice as many as before, up to a limit, and after a look that found something, half as many.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex, MutexGuard};
use rt::waits::{BeforeWaits, WaitFor, call_before_waits};
use rt::{Clock, SystemClock};

use super::channel::{Channel, Received, RequestBuffer};

/// How long a look takes at most. A program that has its answer needs less than this until its next request.
const LOOK: Duration = Duration::from_micros(50);
/// How many looks are left out at most after looks in vain.
const LEFT_OUT_MAX: u32 = 256;
/// A receiver whose answer takes between one and two of these is relieved.
const RELIEF: Duration = Duration::from_millis(2);
/// The watcher sleeps when no request has come for this many times [`RELIEF`].
const IDLE_MAX: u32 = 8;
/// Once handing over was missed often enough, the receiver hands over before this many waits for the device.
const SHARING: u32 = 256;
/// Handing over was missed often enough if it was missed in one of `MISSED_WEIGHT` waits, and several times.
const MISSED_WEIGHT: u32 = 8;
const MISSED_MAX: u32 = 3 * MISSED_WEIGHT - 2;
/// Bits of a ticket that count the requests of one thread.
const TICKET_BITS: u32 = 48;
/// Pauses of a processor between two attempts of a look.
const PAUSES: u32 = 16;
/// After this many requests in a row that were there already, another thread is invited.
const INVITING: u32 = 16;

/// What the threads of a session share.
#[derive(Debug, Default)]
pub(super) struct Reception {
    state: Mutex<State>,
    /// Signalled when a parked thread can be the receiver, is invited, must watch, or must end.
    changed: Condvar,
    /// The number of the thread that is the receiver, or 0. It is changed under the lock of `state`.
    receiver: AtomicU64,
    /// The ticket of the request that the receiver answers, or 0. The receiver sets it. It is reset by the receiver, or
    /// by the watcher that relieves it.
    answering: AtomicU64,
    /// Whether a parked thread watches the receiver, or is about to.
    is_watched: AtomicBool,
    /// How often handing over was missed: each time counts [`MISSED_WEIGHT`], and each time when it was not, -1.
    missed: AtomicU32,
    /// The number of waits for the device before which the receiver will hand over.
    sharing: AtomicU32,
    /// Used by the receiver alone.
    looks: Looks,
    clock: SystemClock,
}

#[derive(Debug, Default)]
struct State {
    /// The number of threads that have joined.
    joined: u64,
    parked: u32,
    /// How many of the parked threads are invited.
    invited: u32,
    has_watcher: bool,
    has_ended: bool,
}

/// Whether looks pay.
#[derive(Debug, Default)]
struct Looks {
    /// How many are left out after the next one in vain.
    leaves_out: AtomicU32,
    /// How many are still left out.
    left_out: AtomicU32,
}

/// What a thread that is not the receiver does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Receive,
    /// The same, in place of a receiver whose answer takes long.
    Relieve,
    /// It takes requests that are there already.
    Help,
    End,
}

/// A thread that answers requests.
pub(super) struct AnsweringThread {
    reception: Arc<Reception>,
    /// From 1 on.
    number: u64,
    /// The ticket of its last request as the receiver. No two requests have the same.
    ticket: u64,
    /// Whether it waited for the device since, and did not hand over.
    has_kept: Rc<Cell<bool>>,
    /// How many requests in a row were there already.
    in_a_row: u32,
    _before_waits: BeforeWaits,
}

impl Reception {
    /// The calling thread becomes one of those that answer requests.
    pub(super) fn join(self: &Arc<Self>) -> AnsweringThread {
        let mut state = self.state.lock();
        state.joined += 1;
        let number = state.joined;
        drop(state);
        let has_kept = Rc::new(Cell::new(false));
        let before_waits = {
            let (reception, has_kept) = (Arc::clone(self), Rc::clone(&has_kept));
            call_before_waits(move |what| {
                if reception.is_receiver(number) {
                    has_kept.set(reception.keeps(number, what));
                }
            })
        };
        AnsweringThread {
            reception: Arc::clone(self),
            number,
            ticket: number << TICKET_BITS,
            has_kept,
            in_a_row: 0,
            _before_waits: before_waits,
        }
    }

    fn is_receiver(&self, number: u64) -> bool {
        self.receiver.load(Ordering::SeqCst) == number
    }

    /// The receiver is about to wait. Returns whether it stays the receiver.
    fn keeps(&self, number: u64, what: WaitFor) -> bool {
        let sharing = self.sharing.load(Ordering::Relaxed);
        if what == WaitFor::Device && sharing == 0 {
            return true;
        }
        if what == WaitFor::Device {
            self.sharing.store(sharing - 1, Ordering::Relaxed);
        }
        self.hand_over(number);
        false
    }

    /// The receiver begins to answer a request.
    fn begin(&self, ticket: u64) {
        self.answering.store(ticket, Ordering::SeqCst);
        if !self.is_watched.load(Ordering::SeqCst) {
            let state = self.state.lock();
            self.is_watched.store(true, Ordering::SeqCst);
            self.wake_one(state);
        }
    }

    /// The answer to the request with this ticket has ended, or its thread is relieved. Returns false if this was so
    /// already.
    fn end_answer(&self, ticket: u64) -> bool {
        self.answering.compare_exchange(ticket, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The receiver did not hand over while it waited. `was_missed`: another request came meanwhile. Of a fast program
    /// this can be the next one.
    fn note_kept(&self, was_missed: bool) {
        let missed = self.missed.load(Ordering::Relaxed);
        let missed = if was_missed { missed + MISSED_WEIGHT } else { missed.saturating_sub(1) };
        let is_enough = missed >= MISSED_MAX;
        self.missed.store(if is_enough { 0 } else { missed }, Ordering::Relaxed);
        if is_enough {
            self.sharing.store(SHARING, Ordering::Relaxed);
        }
    }

    /// If the calling thread is the receiver, it is not any more.
    fn hand_over(&self, number: u64) {
        let state = self.state.lock();
        if self.is_receiver(number) {
            // It was not relieved, so this is its own ticket.
            self.answering.store(0, Ordering::SeqCst);
            self.receiver.store(0, Ordering::SeqCst);
            self.wake_one(state);
        }
    }

    fn wake_one(&self, state: MutexGuard<'_, State>) {
        let is_anyone_parked = state.parked > 0;
        drop(state);
        if is_anyone_parked {
            self.changed.notify_one();
        }
    }

    /// Parks the calling thread until there is something to do for it.
    fn park(&self, number: u64) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return Next::End;
            }
            if self.receiver.load(Ordering::SeqCst) == 0 {
                self.become_receiver(number);
                return Next::Receive;
            }
            if state.invited > 0 {
                state.invited -= 1;
                // It may have been the watcher.
                self.wake_one(state);
                return Next::Help;
            }
            state.parked += 1;
            let relieves = match self.is_watched.load(Ordering::SeqCst) && !state.has_watcher {
                true => self.watch(&mut state),
                false => {
                    self.changed.wait(&mut state);
                    false
                }
            };
            state.parked -= 1;
            if relieves {
                self.become_receiver(number);
                return Next::Relieve;
            }
        }
    }

    /// The caller holds the lock of the state.
    fn become_receiver(&self, number: u64) {
        self.receiver.store(number, Ordering::SeqCst);
        // It may have been the watcher. The next request wakes another one.
        self.is_watched.store(false, Ordering::SeqCst);
    }

    /// Parks the calling thread for a while. Returns whether an answer of the receiver has taken all of this time, and
    /// the receiver is to be relieved.
    fn watch(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let mut idle = 0;
        while idle < IDLE_MAX {
            let answering = self.answering.load(Ordering::SeqCst);
            let end_ns = self.clock.monotonic_ns() + RELIEF.as_nanos() as u64;
            state.has_watcher = true;
            self.changed.wait_for(state, RELIEF);
            state.has_watcher = false;
            if self.clock.monotonic_ns() < end_ns {
                return false;
            }
            if answering != 0 && self.end_answer(answering) {
                return true;
            }
            idle = if self.answering.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
        }
        self.is_watched.store(false, Ordering::SeqCst);
        if self.answering.load(Ordering::SeqCst) != 0 {
            // The receiver may have seen that it is watched just before.
            self.is_watched.store(true, Ordering::SeqCst);
        }
        false
    }

    /// Has a parked thread take requests that are there already, if one is parked.
    fn invite(&self) {
        let mut state = self.state.lock();
        if state.parked > state.invited {
            state.invited += 1;
            self.wake_one(state);
        }
    }

    /// No more requests come.
    fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }
}

impl AnsweringThread {
    /// Waits for the next request and returns its length. None: the connection has ended.
    pub(super) fn receive(
        &mut self,
        channel: &Channel,
        buffer: &mut RequestBuffer,
    ) -> io::Result<Option<usize>> {
        let mut received = channel.receive(buffer)?;
        self.end_answer(matches!(received, Received::Request(_)));
        loop {
            match received {
                Received::Request(length) => {
                    self.begin_answer();
                    return Ok(Some(length));
                }
                Received::End => {
                    self.reception.end();
                    return Ok(None);
                }
                Received::Nothing => self.in_a_row = 0,
            }
            received = if self.is_receiver() {
                self.wait(channel, buffer)?
            } else {
                let next = self.reception.park(self.number);
                if next == Next::End {
                    return Ok(None);
                }
                let received = channel.receive(buffer)?;
                if next == Next::Relieve {
                    self.reception.note_kept(matches!(received, Received::Request(_)));
                }
                received
            };
        }
    }

    /// Waits for a request as the receiver.
    fn wait(&self, channel: &Channel, buffer: &mut RequestBuffer) -> io::Result<Received> {
        let found = self.look(channel, buffer)?;
        if !matches!(found, Received::Nothing) {
            return Ok(found);
        }
        channel.wait()?;
        channel.receive(buffer)
    }

    fn is_receiver(&self) -> bool {
        self.reception.is_receiver(self.number)
    }

    fn begin_answer(&mut self) {
        self.in_a_row += 1;
        if !self.is_receiver() {
            return;
        }
        if self.in_a_row >= INVITING {
            self.in_a_row = 0;
            self.reception.invite();
        }
        self.ticket += 1;
        self.reception.begin(self.ticket);
    }

    /// The last request is answered. `is_next_there`: another one came meanwhile.
    fn end_answer(&self, is_next_there: bool) {
        let has_kept = self.has_kept.take();
        if !self.is_receiver() {
            return;
        }
        if !self.reception.end_answer(self.ticket) {
            // Another thread is relieving this one under the lock.
            drop(self.reception.state.lock());
        } else if has_kept {
            self.reception.note_kept(is_next_there);
        }
    }

    /// Lets another thread receive, because this one has much to do.
    pub(super) fn hand_over(&self) {
        self.reception.hand_over(self.number);
    }

    /// Looks for a request until it is not worth it any more.
    fn look(&self, channel: &Channel, buffer: &mut RequestBuffer) -> io::Result<Received> {
        let looks = &self.reception.looks;
        if !looks.is_due() {
            return Ok(Received::Nothing);
        }
        let clock = &self.reception.clock;
        let end_ns = clock.monotonic_ns() + LOOK.as_nanos() as u64;
        while clock.monotonic_ns() < end_ns {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            let received = channel.receive(buffer)?;
            if !matches!(received, Received::Nothing) {
                looks.found();
                return Ok(received);
            }
        }
        looks.in_vain();
        Ok(Received::Nothing)
    }
}

impl Drop for AnsweringThread {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl Looks {
    fn is_due(&self) -> bool {
        let left_out = self.left_out.load(Ordering::Relaxed);
        self.left_out.store(left_out.saturating_sub(1), Ordering::Relaxed);
        left_out == 0
    }

    fn found(&self) {
        let leaves_out = self.leaves_out.load(Ordering::Relaxed);
        self.leaves_out.store(leaves_out / 2, Ordering::Relaxed);
    }

    fn in_vain(&self) {
        let leaves_out = (2 * self.leaves_out.load(Ordering::Relaxed) + 1).min(LEFT_OUT_MAX);
        self.leaves_out.store(leaves_out, Ordering::Relaxed);
        self.left_out.store(leaves_out, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;

//! How many writes are answered at once, and those that wait for others to be answered.
//!
//! A write may have to pay for garbage collection, and writes that pay wait for each other. The kernel sends hundreds of
//! them for one large file; were each answered by whoever received it, all threads would wait there, and nobody would
//! read, look up or flush for others. So no more than a share of the threads answers writes. Whoever receives one while so
//! many are being answered puts it aside and goes on receiving; whoever has answered one takes one that was put aside
//! before he receives again.
//!
//! **Files take turns.** What a small file has to write before its `fsync` does not wait behind all of a large one: first
//! come files of which no write is being answered, and of several the one whose turn was longest ago.
//!
//! **Any order is right.** The kernel has no two writes under way to the same bytes of its cache. Programs that write past
//! it can have, and are promised no order by anybody until one of them has been answered; what has to come after a write
//! (`fsync`, `truncate`, `close`, a rename of a file that is open for writing) comes when that is answered.
//!
//! **Nothing put aside is left lying.** While something is, somebody answers a write, and looks here before he does
//! anything else, so also before he ends. Whether a write is put aside, and whether its answerer may go, is therefore
//! decided under one lock, which nobody has while he answers. A thread that panics leaves what was put aside to the
//! others; the last one drops it, and with each its reply, which answers with an error.

use std::collections::{HashMap, VecDeque};

use rt::sync::Mutex;

/// What decides who answers a write `W`, and when.
#[derive(Debug)]
pub(super) struct Aside<W> {
    at_once_max: usize,
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    /// The node of each write that is being answered; more than `at_once_max` only by [`Aside::exceed`].
    answered: Vec<u64>,
    /// What was put aside, by node, each in the order in which it came. Where there is any somebody answers.
    waiting: HashMap<u64, VecDeque<W>>,
    /// The nodes in `waiting`, the one whose turn was longest ago first.
    turns: VecDeque<u64>,
}

/// The right to answer one write, and the duty to look then for what was put aside.
#[derive(Debug)]
pub(super) struct Turn<'a, W> {
    aside: &'a Aside<W>,
    /// Of the write that is being answered.
    node: Option<u64>,
}

impl<W> Aside<W> {
    /// As many as `at_once_max` are answered at once.
    pub(super) fn new(at_once_max: usize) -> Self {
        assert!(at_once_max > 0, "nobody would answer what is put aside");
        let answered = Vec::with_capacity(2 * at_once_max);
        let state = State { answered, waiting: HashMap::new(), turns: VecDeque::new() };
        Aside { at_once_max, state: Mutex::new(state) }
    }

    /// To answer a write to `node` now; nothing where so many are being answered that it is to be [put aside](Aside::put).
    pub(super) fn begin(&self, node: u64) -> Option<Turn<'_, W>> {
        let mut state = self.state.lock();
        (state.answered.len() < self.at_once_max).then(|| self.turn(&mut state, node))
    }

    /// To answer a write to `node` now, however many are: there is no room to put it aside.
    pub(super) fn exceed(&self, node: u64) -> Turn<'_, W> {
        self.turn(&mut self.state.lock(), node)
    }

    /// Puts a write to `node` aside; or gives back one to be answered now, because somebody has ended meanwhile.
    pub(super) fn put(&self, node: u64, write: W) -> Option<(Turn<'_, W>, W)> {
        let mut state = self.state.lock();
        state.add(node, write);
        if state.answered.len() >= self.at_once_max {
            return None;
        }
        let (node, write) = state.take()?;
        Some((self.turn(&mut state, node), write))
    }

    fn turn(&self, state: &mut State<W>, node: u64) -> Turn<'_, W> {
        state.answered.push(node);
        Turn { aside: self, node: Some(node) }
    }
}

impl<W> Turn<'_, W> {
    /// The write has been answered. What is to be answered next by the same thread; nothing when it may receive again.
    pub(super) fn next(&mut self) -> Option<W> {
        let mut state = self.aside.state.lock();
        state.end(self.node.take()?);
        if state.answered.len() >= self.aside.at_once_max {
            return None;
        }
        let (node, write) = state.take()?;
        state.answered.push(node);
        self.node = Some(node);
        Some(write)
    }
}

impl<W> Drop for Turn<'_, W> {
    /// Of a thread that panicked: others have ended their turn before.
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return };
        let mut state = self.aside.state.lock();
        state.end(node);
        let forsaken = match state.answered.is_empty() {
            true => state.clear(),
            false => HashMap::new(),
        };
        drop(state);
        drop(forsaken);
    }
}

impl<W> State<W> {
    fn add(&mut self, node: u64, write: W) {
        let of_node = self.waiting.entry(node).or_default();
        if of_node.is_empty() {
            self.turns.push_back(node);
        }
        of_node.push_back(write);
    }

    /// What is to be answered next. No more nodes are passed over than are being answered.
    fn take(&mut self) -> Option<(u64, W)> {
        let first = self.turns.iter().position(|node| !self.answered.contains(node)).unwrap_or(0);
        let node = self.turns.remove(first)?;
        let of_node = self.waiting.get_mut(&node).expect("what has a turn waits");
        let write = of_node.pop_front().expect("a node without writes is removed");
        match of_node.is_empty() {
            true => drop(self.waiting.remove(&node)),
            false => self.turns.push_back(node),
        }
        Some((node, write))
    }

    fn clear(&mut self) -> HashMap<u64, VecDeque<W>> {
        self.turns.clear();
        std::mem::take(&mut self.waiting)
    }

    fn end(&mut self, node: u64) {
        let place = self.answered.iter().position(|&answered| answered == node);
        self.answered.swap_remove(place.expect("a turn is counted until it ends"));
    }
}

#[cfg(test)]
mod tests;

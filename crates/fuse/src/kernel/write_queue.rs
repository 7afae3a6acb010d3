//! The limit of concurrent writes, and the queue of writes that wait for others to be answered.
//!
//! A write can be throttled, and throttled writes wait for each other. The kernel sends hundreds of them for one
//! large file. If the receiving thread answered each of them, all threads would wait there, and none would read, look
//! up or flush for other programs. So at most a part of the threads answers writes. A thread that receives a write
//! beyond the limit queues it and receives the next request. A thread that has answered a write answers queued writes
//! before it receives again.
//!
//! **Files take turns.** The writes of a small file before its `fsync` do not wait behind all writes of a large one:
//! files without a write in progress come first, and among several files the one whose turn was longest ago.
//!
//! **Any order is correct.** The kernel never has two writes of its cache to the same bytes in progress. Direct
//! writes of programs can overlap, but have no promised order until one of them has been answered. An operation that
//! must come after a write (`fsync`, `truncate`, `close`, a rename of a file that is open for writing) is sent after
//! its answer.
//!
//! **No queued write is forgotten.** While writes are queued, a thread answers a write, and it looks at the queue
//! before it does anything else, also before it ends. So the decisions whether a write is queued and whether a thread
//! may go on are made under one lock, which is not held during an answer. When a thread panics, the others answer the
//! queued writes. The last thread drops them together with their replies, which then answer with an error.

use std::collections::{HashMap, VecDeque};

use rt::sync::Mutex;

/// Decides which thread answers a write `W`, and when.
#[derive(Debug)]
pub(super) struct WriteQueue<W> {
    concurrent_max: usize,
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    /// The nodes of the writes in progress. More than `concurrent_max` only by [`WriteQueue::begin_beyond_limit`].
    active: Vec<u64>,
    /// The queued writes of each node, in the order of their arrival. While there are any, a write is in progress.
    waiting: HashMap<u64, VecDeque<W>>,
    /// The nodes in `waiting`. The one whose turn was longest ago comes first.
    turns: VecDeque<u64>,
}

/// The right to answer one write, and the duty to look at the queue afterwards.
#[derive(Debug)]
pub(super) struct WriteSlot<'a, W> {
    queue: &'a WriteQueue<W>,
    /// The node of the write in progress.
    node: Option<u64>,
}

impl<W> WriteQueue<W> {
    /// At most `concurrent_max` writes are answered at once.
    pub(super) fn new(concurrent_max: usize) -> Self {
        assert!(concurrent_max > 0, "queued writes would never be answered");
        let active = Vec::with_capacity(2 * concurrent_max);
        let state = State { active, waiting: HashMap::new(), turns: VecDeque::new() };
        WriteQueue { concurrent_max, state: Mutex::new(state) }
    }

    /// Begins to answer a write to `node`. None if the limit is reached and the write must be
    /// [queued](WriteQueue::queue).
    pub(super) fn begin(&self, node: u64) -> Option<WriteSlot<'_, W>> {
        let mut state = self.state.lock();
        (state.active.len() < self.concurrent_max).then(|| self.slot(&mut state, node))
    }

    /// Begins to answer a write to `node` beyond the limit, because there is no memory to queue it.
    pub(super) fn begin_beyond_limit(&self, node: u64) -> WriteSlot<'_, W> {
        self.slot(&mut self.state.lock(), node)
    }

    /// Queues a write to `node`. Returns a write to be answered now if another thread has ended meanwhile.
    pub(super) fn queue(&self, node: u64, write: W) -> Option<(WriteSlot<'_, W>, W)> {
        let mut state = self.state.lock();
        state.add(node, write);
        if state.active.len() >= self.concurrent_max {
            return None;
        }
        let (node, write) = state.take()?;
        Some((self.slot(&mut state, node), write))
    }

    fn slot(&self, state: &mut State<W>, node: u64) -> WriteSlot<'_, W> {
        state.active.push(node);
        WriteSlot { queue: self, node: Some(node) }
    }
}

impl<W> WriteSlot<'_, W> {
    /// Ends the present write. Returns the next one for the same thread, or None if the thread may receive again.
    pub(super) fn next(&mut self) -> Option<W> {
        let mut state = self.queue.state.lock();
        state.end(self.node.take()?);
        if state.active.len() >= self.queue.concurrent_max {
            return None;
        }
        let (node, write) = state.take()?;
        state.active.push(node);
        self.node = Some(node);
        Some(write)
    }
}

impl<W> Drop for WriteSlot<'_, W> {
    /// For a thread that panicked. Other threads have ended their slot before.
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return };
        let mut state = self.queue.state.lock();
        state.end(node);
        let forsaken = match state.active.is_empty() {
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

    /// The next write to answer. Passes over at most as many nodes as have writes in progress.
    fn take(&mut self) -> Option<(u64, W)> {
        let first = self.turns.iter().position(|node| !self.active.contains(node)).unwrap_or(0);
        let node = self.turns.remove(first)?;
        let of_node = self.waiting.get_mut(&node).expect("each node with a turn has waiting writes");
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
        let place = self.active.iter().position(|&active| active == node);
        self.active.swap_remove(place.expect("a slot is counted until it ends"));
    }
}

#[cfg(test)]
mod tests;

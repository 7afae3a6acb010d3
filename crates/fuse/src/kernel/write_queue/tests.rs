use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};

use super::*;

/// Sends its number when it is dropped.
struct Sends(u32, Sender<u32>);

impl Drop for Sends {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

#[test]
fn queued_writes_are_answered_in_order_when_a_write_ends() {
    let queue = WriteQueue::new(2);
    let mut first = queue.begin(1).unwrap();
    let mut second = queue.begin(1).unwrap();
    for write in 0..3 {
        assert!(queue.begin(1).is_none());
        assert!(queue.queue(1, write).is_none());
    }
    assert_eq!(first.next(), Some(0));
    assert_eq!(second.next(), Some(1));
    assert_eq!(first.next(), Some(2));
    assert_eq!(first.next(), None);
    assert_eq!(second.next(), None);
    assert!(queue.begin(1).is_some());
}

#[test]
fn files_take_turns() {
    let queue = WriteQueue::new(2);
    let mut first = queue.begin(1).unwrap();
    let mut second = queue.begin(1).unwrap();
    for (node, write) in [(1, "a"), (1, "b"), (2, "small"), (1, "c"), (2, "other")] {
        assert!(queue.queue(node, write).is_none());
    }
    assert_eq!(first.next(), Some("small"), "of 1 one is in progress");
    assert_eq!(second.next(), Some("a"), "of 1 none is");
    assert_eq!(first.next(), Some("other"), "of 2 none is any more");
    assert_eq!(first.next(), Some("b"));
    assert_eq!(second.next(), Some("c"));
    assert_eq!((first.next(), second.next()), (None, None));
}

#[test]
fn a_thread_that_queues_when_a_write_has_just_ended_answers() {
    let queue = WriteQueue::new(1);
    let mut slot = queue.begin(1).unwrap();
    assert!(queue.begin(1).is_none());
    assert_eq!(slot.next(), None);
    let (mut slot, write) = queue.queue(1, "late").unwrap();
    assert_eq!(write, "late");
    assert_eq!(slot.next(), None);
}

#[test]
fn a_write_beyond_the_limit_takes_no_queued_write() {
    let queue = WriteQueue::new(1);
    let mut slot = queue.begin(1).unwrap();
    assert!(queue.queue(1, 0).is_none());
    let mut beyond = queue.begin_beyond_limit(2);
    assert_eq!(beyond.next(), None, "the share is the other thread's");
    let mut beyond = queue.begin_beyond_limit(2);
    assert_eq!(slot.next(), None, "it is the other's now");
    assert_eq!((beyond.next(), beyond.next()), (Some(0), None));
}

#[test]
fn a_panic_leaves_queued_writes_to_others_and_the_last_thread_drops_them() {
    let (sender, dropped) = channel();
    let queue = WriteQueue::new(2);
    let (first, second) = (queue.begin(1).unwrap(), queue.begin(1).unwrap());
    for write in 0..2 {
        assert!(queue.queue(1, Sends(write, sender.clone())).is_none());
    }
    let panics = |slot| {
        let answers = || {
            let _turn = slot;
            std::panic::resume_unwind(Box::new("while a write is active"));
        };
        assert!(catch_unwind(AssertUnwindSafe(answers)).is_err());
    };
    panics(first);
    assert!(dropped.try_recv().is_err(), "the other thread will take it");
    panics(second);
    assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [0, 1]);
    assert!(queue.begin(1).is_some());
}

/// Threads receive a few writes, again and again, and forget none, whatever the timing. With few writes, no later
/// write would pick up a forgotten one.
#[test]
fn no_queued_write_is_forgotten() {
    const THREADS: usize = 4;
    const ROUNDS: u64 = 5000;
    const WRITES: u64 = 6;
    let queue = WriteQueue::new(2);
    let (received, active) = (Mutex::new(0..0), Mutex::new(Vec::new()));
    let (begin, wrong) = (Barrier::new(THREADS), Mutex::new(None));
    let receive = || {
        let next = || received.lock().next();
        while let Some(write) = next() {
            let node = write % 3;
            let begun = match queue.begin(node) {
                Some(slot) => Some((slot, write)),
                None if write % 7 == 0 => Some((queue.begin_beyond_limit(node), write)),
                None => {
                    std::thread::yield_now();
                    queue.queue(node, write)
                }
            };
            let Some((mut slot, write)) = begun else { continue };
            active.lock().push(write);
            while let Some(write) = slot.next() {
                active.lock().push(write);
            }
        }
    };
    let rounds = || {
        for round in 0..ROUNDS {
            let writes = round * WRITES..(round + 1) * WRITES;
            if begin.wait().is_leader() {
                *received.lock() = writes.clone();
            }
            begin.wait();
            receive();
            if begin.wait().is_leader() {
                let mut active = std::mem::take(&mut *active.lock());
                active.sort_unstable();
                let state = queue.state.lock();
                let is_empty = state.active.is_empty() && state.waiting.is_empty() && state.turns.is_empty();
                if active != writes.collect::<Vec<_>>() || !is_empty {
                    wrong.lock().get_or_insert(round);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(rounds))));
    assert_eq!(*wrong.lock(), None, "in this round");
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};

use super::*;

/// Tells when it is dropped.
struct Told(u32, Sender<u32>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

#[test]
fn what_is_put_aside_comes_in_its_order_when_a_turn_ends() {
    let aside = Aside::new(2);
    let mut first = aside.begin(1).unwrap();
    let mut second = aside.begin(1).unwrap();
    for write in 0..3 {
        assert!(aside.begin(1).is_none());
        assert!(aside.put(1, write).is_none());
    }
    assert_eq!(first.next(), Some(0));
    assert_eq!(second.next(), Some(1));
    assert_eq!(first.next(), Some(2));
    assert_eq!(first.next(), None);
    assert_eq!(second.next(), None);
    assert!(aside.begin(1).is_some());
}

#[test]
fn files_take_turns() {
    let aside = Aside::new(2);
    let mut first = aside.begin(1).unwrap();
    let mut second = aside.begin(1).unwrap();
    for (node, write) in [(1, "a"), (1, "b"), (2, "small"), (1, "c"), (2, "other")] {
        assert!(aside.put(node, write).is_none());
    }
    assert_eq!(first.next(), Some("small"), "of 1 one is being answered");
    assert_eq!(second.next(), Some("a"), "of 1 none is");
    assert_eq!(first.next(), Some("other"), "of 2 none is any more");
    assert_eq!(first.next(), Some("b"));
    assert_eq!(second.next(), Some("c"));
    assert_eq!((first.next(), second.next()), (None, None));
}

#[test]
fn who_comes_to_put_aside_when_a_turn_has_just_ended_answers() {
    let aside = Aside::new(1);
    let mut turn = aside.begin(1).unwrap();
    assert!(aside.begin(1).is_none());
    assert_eq!(turn.next(), None);
    let (mut turn, write) = aside.put(1, "late").unwrap();
    assert_eq!(write, "late");
    assert_eq!(turn.next(), None);
}

#[test]
fn a_write_beyond_the_share_takes_nothing_that_was_put_aside() {
    let aside = Aside::new(1);
    let mut turn = aside.begin(1).unwrap();
    assert!(aside.put(1, 0).is_none());
    let mut beyond = aside.exceed(2);
    assert_eq!(beyond.next(), None, "the share is the other thread's");
    let mut beyond = aside.exceed(2);
    assert_eq!(turn.next(), None, "it is the other's now");
    assert_eq!((beyond.next(), beyond.next()), (Some(0), None));
}

#[test]
fn a_panic_leaves_what_waits_to_others_and_the_last_one_drops_it() {
    let (sender, dropped) = channel();
    let aside = Aside::new(2);
    let (first, second) = (aside.begin(1).unwrap(), aside.begin(1).unwrap());
    for write in 0..2 {
        assert!(aside.put(1, Told(write, sender.clone())).is_none());
    }
    let panics = |turn| {
        let answers = || {
            let _turn = turn;
            std::panic::resume_unwind(Box::new("while a write is answered"));
        };
        assert!(catch_unwind(AssertUnwindSafe(answers)).is_err());
    };
    panics(first);
    assert!(dropped.try_recv().is_err(), "the other thread will take it");
    panics(second);
    assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [0, 1]);
    assert!(aside.begin(1).is_some());
}

/// Threads that receive a few numbers, again and again, and leave none lying, however their turns meet. With few of them
/// nobody comes afterwards who would pick up what was left.
#[test]
fn nothing_put_aside_is_left_lying() {
    const THREADS: usize = 4;
    const ROUNDS: u64 = 5000;
    const WRITES: u64 = 6;
    let aside = Aside::new(2);
    let (received, answered) = (Mutex::new(0..0), Mutex::new(Vec::new()));
    let (begin, wrong) = (Barrier::new(THREADS), Mutex::new(None));
    let receive = || {
        let next = || received.lock().next();
        while let Some(write) = next() {
            let node = write % 3;
            let begun = match aside.begin(node) {
                Some(turn) => Some((turn, write)),
                None if write % 7 == 0 => Some((aside.exceed(node), write)),
                None => {
                    std::thread::yield_now();
                    aside.put(node, write)
                }
            };
            let Some((mut turn, write)) = begun else { continue };
            answered.lock().push(write);
            while let Some(write) = turn.next() {
                answered.lock().push(write);
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
                let mut answered = std::mem::take(&mut *answered.lock());
                answered.sort_unstable();
                let state = aside.state.lock();
                let is_empty =
                    state.answered.is_empty() && state.waiting.is_empty() && state.turns.is_empty();
                if answered != writes.collect::<Vec<_>>() || !is_empty {
                    wrong.lock().get_or_insert(round);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(rounds))));
    assert_eq!(*wrong.lock(), None, "in this round");
}

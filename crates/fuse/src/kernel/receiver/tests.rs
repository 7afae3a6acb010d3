use rustix::io::Errno;

use super::*;
use crate::kernel::abi::opcode;
use crate::kernel::tests::{Kernel, connected, refusal, request};

const THREADS: usize = 4;

#[test]
fn looks_in_vain_become_rare_and_come_back_when_they_find_requests() {
    let looks = Looks::default();
    let until_due = || (0..).find(|_| looks.is_due()).unwrap();
    for left_out in [0, 1, 3, 7, 15, 31, 63, 127, 255, LEFT_OUT_MAX, LEFT_OUT_MAX] {
        assert_eq!(until_due(), left_out);
        looks.in_vain();
    }
    for left_out in [LEFT_OUT_MAX, 0, 0] {
        assert_eq!(until_due(), left_out);
        looks.found();
    }
    assert_eq!(until_due(), 0);
    looks.in_vain();
    assert_eq!(until_due(), LEFT_OUT_MAX / 8 * 2 + 1, "half as many for each that found something");
}

/// Receives until the connection ends, and answers each request after `work` with its number.
fn serve(reception: &Arc<Reception>, channel: &Channel, work: impl Fn(u64)) {
    let mut thread = reception.join();
    let mut buffer = RequestBuffer::new();
    while let Some(length) = thread.receive(channel, &mut buffer).unwrap() {
        let unique = u64::from_ne_bytes(buffer.bytes(length)[8..16].try_into().unwrap());
        work(unique);
        channel.send(&[io::IoSlice::new(&refusal(unique, Errno::IO))]).unwrap();
    }
}

/// Ends the threads when it is dropped, so that a failing test ends.
struct Ending<'a>(&'a Kernel);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

/// Waits until one thread is the receiver and the others are parked.
fn wait_until_parked(reception: &Reception, threads: usize) {
    wait_until(|| reception.state.lock().parked == threads as u32 - 1 && !reception.is_receiver(0));
}

fn wait_until(is_so: impl Fn() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic_ns() < 20_000_000_000, "it never is");
        std::thread::yield_now();
    }
}

/// One thread after the other waits for a lock, and requests are received as long as one of them does not.
#[test]
fn a_receiver_that_is_about_to_wait_hands_over() {
    let (kernel, channel) = connected();
    let (reception, held, begun) = (Arc::<Reception>::default(), Mutex::new(()), AtomicU64::new(0));
    let work = |unique| {
        begun.fetch_add(1, Ordering::SeqCst);
        if unique > 0 {
            drop(held.lock());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| serve(&reception, &channel, work));
        }
        let _ending = Ending(&kernel);
        let guard = held.lock();
        for unique in 1..THREADS as u64 {
            kernel.send(&request(opcode::STATFS, unique, &[]));
            kernel.send(&request(opcode::STATFS, 0, &[]));
            assert_eq!(kernel.next_reply(), refusal(0, Errno::IO), "while {unique} threads wait");
        }
        drop(guard);
        let mut answered: Vec<_> = (1..THREADS).map(|_| kernel.next_reply()).collect();
        answered.sort_unstable();
        let all: Vec<_> = (1..THREADS as u64).map(|unique| refusal(unique, Errno::IO)).collect();
        assert_eq!(answered, all);
    });
    assert_eq!(begun.into_inner(), 2 * (THREADS as u64 - 1));
}

/// Answers request 1 after a wait for the device, request 3 after one that is not announced, and all others at once.
/// Both waits end when the last argument of `test` is called.
fn with_slow_answers(test: impl FnOnce(&Kernel, &Reception, &dyn Fn())) {
    let (kernel, channel) = connected();
    let (reception, goes_on) = (Arc::<Reception>::default(), AtomicBool::new(false));
    let work = |unique| {
        if unique == 1 {
            rt::waits::about_to_wait(WaitFor::Device);
        }
        if [1, 3].contains(&unique) {
            wait_until(|| goes_on.swap(false, Ordering::SeqCst));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| serve(&reception, &channel, work));
        }
        let _ending = Ending(&kernel);
        wait_until_parked(&reception, THREADS);
        test(&kernel, &reception, &|| goes_on.store(true, Ordering::SeqCst));
    });
}

#[test]
fn a_receiver_that_waits_for_the_device_alone_stays_the_receiver() {
    with_slow_answers(|kernel, reception, go_on| {
        let mut stayed = 0;
        // The machine may be so busy that it is relieved nevertheless.
        for _ in 0..100 {
            let receiver = reception.receiver.load(Ordering::SeqCst);
            kernel.send(&request(opcode::STATFS, 1, &[]));
            go_on();
            assert_eq!(kernel.next_reply(), refusal(1, Errno::IO));
            stayed += u32::from(reception.is_receiver(receiver));
            // The next request may be there before the thread that has answered.
            reception.missed.store(0, Ordering::SeqCst);
        }
        assert!(stayed > 0, "it is relieved again and again");
        wait_until(|| !reception.state.lock().has_watcher && !reception.is_watched.load(Ordering::SeqCst));
    });
}

#[test]
fn a_receiver_whose_answer_takes_long_is_relieved() {
    with_slow_answers(|kernel, reception, go_on| {
        for slow in [1, 3, 1, 3] {
            let state = reception.state.lock();
            reception.missed.store(0, Ordering::SeqCst);
            // As otherwise the receiver would wait for the lock, and hand over.
            reception.is_watched.store(true, Ordering::SeqCst);
            // Both are there before the watcher can look.
            kernel.send(&request(opcode::STATFS, slow, &[]));
            kernel.send(&request(opcode::STATFS, 2, &[]));
            reception.wake_one(state);
            assert_eq!(kernel.next_reply(), refusal(2, Errno::IO), "beside {slow}");
            assert!(reception.missed.load(Ordering::SeqCst) > 0, "handing over was missed");
            go_on();
            assert_eq!(kernel.next_reply(), refusal(slow, Errno::IO));
            wait_until_parked(reception, THREADS);
        }
    });
}

/// A thread that had relieved another one was not watched: when its own answer took long too, for example because the
/// device did not answer, all requests waited.
#[test]
fn a_thread_that_has_relieved_another_is_relieved_too() {
    with_slow_answers(|kernel, _, go_on| {
        for slow in [1, 1, 3] {
            kernel.send(&request(opcode::STATFS, slow, &[]));
            kernel.send(&request(opcode::STATFS, 2, &[]));
            assert_eq!(kernel.next_reply(), refusal(2, Errno::IO), "beside {slow}");
        }
        for _ in 0..3 {
            go_on();
            kernel.next_reply();
        }
    });
}

/// A relieved thread took the mark of its successor's answer for its own, and nothing watched that answer.
#[test]
fn a_relieved_thread_does_not_touch_the_answer_of_the_next_receiver() {
    let reception: Arc<Reception> = Arc::default();
    let mut relieved = reception.join();
    reception.receiver.store(relieved.number, Ordering::SeqCst);
    relieved.begin_answer();
    let ticket = relieved.ticket;
    assert!(reception.end_answer(ticket), "the watcher relieves it");
    let next_ticket = 99 << TICKET_BITS | 1;
    reception.begin(next_ticket);
    // Before the watcher has set the next receiver.
    relieved.end_answer(false);
    assert_eq!(reception.answering.load(Ordering::SeqCst), next_ticket);
    reception.receiver.store(99, Ordering::SeqCst);
    relieved.end_answer(false);
    relieved.hand_over();
    assert_eq!(reception.answering.load(Ordering::SeqCst), next_ticket);
    assert!(reception.is_receiver(99));
}

/// Requests came during some waits for the device. So the next one finds another thread.
#[test]
fn requests_during_waits_for_the_device_make_the_next_wait_hand_over() {
    with_slow_answers(|kernel, reception, go_on| {
        let hands_over = |_| {
            reception.sharing.store(SHARING, Ordering::SeqCst);
            kernel.send(&request(opcode::STATFS, 1, &[]));
            kernel.send(&request(opcode::STATFS, 2, &[]));
            assert_eq!(kernel.next_reply(), refusal(2, Errno::IO));
            go_on();
            assert_eq!(kernel.next_reply(), refusal(1, Errno::IO));
            wait_until_parked(reception, THREADS);
            reception.sharing.load(Ordering::SeqCst) == SHARING - 1
        };
        // The machine may be so busy that it is relieved before it hands over.
        assert!((0..100).any(hands_over), "it is relieved again and again");
    });
    let reception: Arc<Reception> = Arc::default();
    let mut thread = reception.join();
    reception.receiver.store(thread.number, Ordering::SeqCst);
    let mut wait = |is_next_there| {
        thread.begin_answer();
        rt::waits::about_to_wait(WaitFor::Device);
        assert!(thread.is_receiver(), "it stays the receiver");
        thread.end_answer(is_next_there);
        reception.sharing.load(Ordering::SeqCst)
    };
    for waits in 0..99 {
        assert_eq!(wait(waits % 9 == 0), 0, "a request is seldom missed");
    }
    assert_eq!([true, true, true].map(&mut wait), [0, 0, SHARING]);
    thread.begin_answer();
    thread.end_answer(true);
    assert_eq!(reception.missed.load(Ordering::SeqCst), 0, "it did not wait");
    rt::waits::about_to_wait(WaitFor::Device);
    assert!(!thread.is_receiver(), "it has handed over");
}

#[test]
fn a_receiver_that_panics_is_replaced() {
    let (kernel, channel) = connected();
    let reception = Arc::<Reception>::default();
    let work = |unique| assert_ne!(unique, 13, "the test's own panic");
    std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(|| serve(&reception, &channel, work)));
        let ending = Ending(&kernel);
        wait_until_parked(&reception, THREADS);
        kernel.send(&request(opcode::STATFS, 13, &[]));
        for unique in 20..40 {
            kernel.send(&request(opcode::STATFS, unique, &[]));
            assert_eq!(kernel.next_reply(), refusal(unique, Errno::IO));
        }
        drop(ending);
        let panicked = threads.into_iter().map(|thread| thread.join()).filter(Result::is_err).count();
        assert_eq!(panicked, 1);
    });
}

/// Requests that are always there invite another thread, although none ever waits: the receiver answers request 1
/// only when another thread has begun to answer.
#[test]
fn requests_that_are_there_already_invite_other_threads() {
    let (kernel, channel) = connected();
    let (reception, begun, all_sent) =
        (Arc::<Reception>::default(), AtomicU64::new(0), AtomicBool::new(false));
    let last = 2 * u64::from(INVITING);
    let work = |unique| {
        if unique == 0 {
            wait_until(|| all_sent.load(Ordering::SeqCst));
        }
        if unique == last {
            begun.fetch_add(1, Ordering::SeqCst);
        }
        if unique == last - 1 {
            wait_until(|| begun.load(Ordering::SeqCst) > 0);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&reception, &channel, work));
        scope.spawn(|| serve(&reception, &channel, work));
        let _ending = Ending(&kernel);
        wait_until_parked(&reception, 2);
        // Nothing is relieved here.
        reception.state.lock().has_watcher = true;
        (0..=last).for_each(|unique| kernel.send(&request(opcode::STATFS, unique, &[])));
        all_sent.store(true, Ordering::SeqCst);
        let mut answered: Vec<_> = (0..=last).map(|_| kernel.next_reply()).collect();
        answered.sort_unstable();
        let all: Vec<_> = (0..=last).map(|unique| refusal(unique, Errno::IO)).collect();
        assert_eq!(answered, all, "each once");
    });
}

#[test]
fn a_parked_thread_is_invited_once_for_each_invitation() {
    let reception: Arc<Reception> = Arc::default();
    reception.receiver.store(99, Ordering::SeqCst);
    reception.state.lock().parked = 2;
    (0..5).for_each(|_| reception.invite());
    assert_eq!(reception.state.lock().invited, 2);
    for left in [1, 0] {
        assert!(reception.park(1) == Next::Help);
        assert_eq!(reception.state.lock().invited, left);
    }
}

/// Works for this long.
fn pass(duration: Duration) {
    let clock = SystemClock::new();
    while clock.monotonic_ns() < duration.as_nanos() as u64 {
        std::thread::yield_now();
    }
}

/// Threads wait for each other, for the device and not at all, two programs send requests, and none is left.
#[test]
fn every_request_is_answered_whatever_the_threads_wait_for() {
    const REQUESTS: u64 = 3000;
    let (kernel, channel) = connected();
    let (reception, contended) = (Arc::<Reception>::default(), Mutex::new(()));
    let work = |unique: u64| match unique % 7 {
        0 => rt::waits::about_to_wait(WaitFor::Device),
        1 => pass(RELIEF / 8),
        2 if unique.is_multiple_of(3) => {
            rt::waits::about_to_wait(WaitFor::Device);
            pass(2 * RELIEF);
        }
        3 => {
            let _held = contended.lock();
            std::thread::yield_now();
        }
        _ => {}
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| serve(&reception, &channel, work));
        }
        let _ending = Ending(&kernel);
        let mut answered: Vec<Vec<u8>> = Vec::new();
        for unique in 1..=REQUESTS {
            kernel.send(&request(opcode::STATFS, unique, &[]));
            // One or a few at a time.
            if unique % 16 < 8 || unique == REQUESTS {
                while (answered.len() as u64) < unique {
                    answered.push(kernel.next_reply());
                }
            }
        }
        answered.sort_unstable();
        let mut all: Vec<_> = (1..=REQUESTS).map(|unique| refusal(unique, Errno::IO)).collect();
        all.sort_unstable();
        assert!(answered == all, "each once");
    });
}

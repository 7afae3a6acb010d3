//! Schedules: threads of which exactly one runs at a time, in an order that follows from a seed.
//!
//! [`run`] starts real threads and gives one of them the *turn*. A thread keeps the turn until it reaches a *seam*:
//! it is about to take a lock, has to wait for a lock or a condition, has released a lock fairly, is about to send a
//! command to a device ([`at_device`]), or ends. There the schedule's random generator chooses the next thread. So
//! the interleaving of the threads repeats from the seed, and many seeds try many interleavings. The code under test
//! is that of the product: the seams are in [`crate::sync`], and an emulated device calls [`at_device`].
//!
//! [`run_in_time`] measures how long things take instead of trying orders. There a thread keeps its turn until it has
//! to wait or sleeps ([`sleep_until`]). A free lock and a command are no seams. When all threads wait, time passes
//! until the moment at which the first of them continues.
//!
//! States of a thread: `Ready` → `Trying` (another thread has the lock), `Waiting` (for a condition) or `Sleeping`
//! (until a moment) → `Ready` … → `Ended`. Properties of the states:
//! * The guard of a lock does not know this module. So releasing a lock does not wake a thread that has failed to get
//!   it. That thread tries again, but only after another thread has made progress since its last try (`progress`).
//!   When all remaining threads have failed since then, none will ever continue: a *deadlock*.
//! * A thread that waits for a condition is chosen only after a notification. A lost notification stays lost and is
//!   found as a deadlock. Time does not pass while a thread can continue. When none can, a wait with a timeout ends:
//!   with a clock the one that is due first, without a clock any of them.
//! * Only threads of a schedule in time sleep, and only such a schedule moves its clock.
//!
//! A deadlock is broken by a panic in one of its threads. The message says which thread waits where. The thread
//! unwinds and releases its locks, and the others end in their turns.
//!
//! Limits: atomics are no seams (two of them between seams are one step), the shortest failing order is not searched
//! for, processors take no time, and a thread of a schedule starts no threads.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::random::{self, Rng};
use crate::{Clock, ManualClock};

/// At one of so many locks the turn may go to another thread. Each schedule uses one of these numbers: some examine
/// closely what happens between two locks, and in others much is done in one turn.
const LOCKS_PER_TURN: [u32; 3] = [4, 16, 64];

/// The schedules that run in this process. While there are none, locks cost nothing extra.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// A thread of a schedule: its name and its body.
pub type Body<'a, T> = (String, Box<dyn FnOnce() -> T + Send + 'a>);

/// The result of a schedule.
#[derive(Debug)]
pub struct Ran<T> {
    /// The return value of each thread, in the order of the bodies.
    pub returned: Vec<T>,
    /// How often the turn went from one thread to another.
    pub handovers: u64,
}

/// Runs these threads in an order that follows from `seed`, until all have ended.
///
/// # Panics
/// If one of them panics, after all have ended.
pub fn run<'a, T: Send + 'a>(seed: u64, bodies: Vec<Body<'a, T>>) -> Ran<T> {
    run_by(None, seed, bodies)
}

/// Runs these threads until all have ended, in the order of the moments until which they sleep and wait. The order of
/// several at the same moment follows from `seed`. Nothing else may move the clock meanwhile.
///
/// # Panics
/// If one of them panics, after all have ended.
pub fn run_in_time<'a, T: Send + 'a>(
    clock: &Arc<ManualClock>,
    seed: u64,
    bodies: Vec<Body<'a, T>>,
) -> Ran<T> {
    run_by(Some(Arc::clone(clock)), seed, bodies)
}

fn run_by<'a, T: Send + 'a>(clock: Option<Arc<ManualClock>>, seed: u64, bodies: Vec<Body<'a, T>>) -> Ran<T> {
    assert!(!is_scheduled(), "a thread of a schedule starts no other");
    assert!(!bodies.is_empty(), "a schedule needs a thread");
    let names = bodies.iter().map(|(name, _)| name.clone()).collect();
    let schedule = Arc::new(Schedule::new(clock, seed, names));
    RUNNING.fetch_add(1, Ordering::SeqCst);
    let ended: Vec<std::thread::Result<T>> = std::thread::scope(|scope| {
        let start = |(me, (name, body)): (usize, Body<'a, T>)| {
            let current = Current { schedule: Arc::clone(&schedule), me };
            let named = std::thread::Builder::new().name(name);
            named.spawn_scoped(scope, move || current.live(seed, body)).expect("the system gives us threads")
        };
        let threads: Vec<_> = bodies.into_iter().enumerate().map(start).collect();
        schedule.begin();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    let unwrap =
        |ended: std::thread::Result<T>| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ran { returned: ended.into_iter().map(unwrap).collect(), handovers: schedule.state.lock().handovers }
}

/// A seam: the caller is about to send a command to a device.
pub fn at_device() {
    with_current(|current| current.point(Seam::Device));
}

/// A seam: the caller is about to take a lock.
pub(crate) fn at_lock() {
    with_current(|current| current.point(Seam::Lock));
}

/// Lets the caller sleep until its schedule's clock has reached this moment. Returns false at once unless the caller
/// is a thread of a schedule in time.
pub fn sleep_until(moment_ns: u64) -> bool {
    with_current(|current| current.sleep_until(moment_ns)).unwrap_or(false)
}

/// Whether the caller is a thread of a schedule.
pub fn is_scheduled() -> bool {
    with_current(|_| ()).is_some()
}

/// A seam: the caller has released a lock for which others may have waited.
pub(crate) fn let_others_try() {
    with_current(Current::let_others_try);
}

/// Takes a lock by calling `attempt`, in turn with others. `None` for a thread outside of schedules.
#[inline]
#[track_caller]
pub(crate) fn acquire<G>(attempt: impl Fn() -> Option<G>) -> Option<G> {
    if RUNNING.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let at = Location::caller();
    with_current(|current| {
        current.point(Seam::Lock);
        current.try_until(at, &attempt).unwrap_or_else(|deadlock| deadlock.break_it())
    })
}

/// Waits until the condition at `place` is notified, and then until `is_free`. With a `timeout` the wait also ends
/// when no other thread can continue and, in time, the timeout has passed.
pub(crate) fn wait(
    place: usize,
    timeout: Option<Duration>,
    at: &'static Location<'static>,
    is_free: impl Fn() -> bool,
) -> Result<(), Deadlock> {
    with_current(|current| {
        let passes = timeout.map(|timeout| current.schedule.after(timeout));
        current.wait(Waiting { place, passes, at }, &is_free)
    })
    .expect("only a thread of a schedule waits in turn")
}

/// Wakes one or all of the threads that wait at `place`.
pub(crate) fn notify(place: usize, all: bool) {
    with_current(|current| current.schedule.state.lock().notify(place, all));
}

fn with_current<T>(work: impl FnOnce(&Current) -> T) -> Option<T> {
    if RUNNING.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // Other thread-locals that are dropped at the end of a thread may take locks.
    CURRENT.try_with(|current| current.borrow().as_ref().map(work)).ok().flatten()
}

struct Schedule {
    /// The clock that a schedule in time moves.
    clock: Option<Arc<ManualClock>>,
    state: Mutex<State>,
    /// Signalled when the turn goes to a thread; one for each thread.
    turns: Vec<Condvar>,
}

struct State {
    rng: Rng,
    threads: Vec<Thread>,
    /// The thread that has the turn. None before the first turn and after the last.
    turn: Option<usize>,
    /// Rises whenever a thread has made progress, because other threads may be able to continue then.
    progress: u64,
    handovers: u64,
    /// One of [`LOCKS_PER_TURN`].
    locks_per_turn: u32,
}

/// The place of a thread that could continue.
enum Seam {
    Device,
    Lock,
}

struct Thread {
    name: String,
    does: Does,
    /// It was chosen to break a deadlock, once.
    doomed: bool,
    /// The description of the deadlock, until it has panicked.
    report: Option<String>,
}

#[derive(Clone, Copy)]
enum Does {
    Ready,
    /// Another thread has the lock. At the last try, `progress` had this value.
    Trying {
        tried: u64,
        at: &'static Location<'static>,
    },
    Waiting(Waiting),
    Sleeping {
        until: u64,
    },
    Ended,
}

impl Does {
    /// When it continues without being woken.
    fn passes(self) -> Option<u64> {
        match self {
            Does::Waiting(waiting) => waiting.passes,
            Does::Sleeping { until } => Some(until),
            Does::Ready | Does::Trying { .. } | Does::Ended => None,
        }
    }
}

#[derive(Clone, Copy)]
struct Waiting {
    place: usize,
    /// When the wait with a timeout ends. Without a clock, the same for all.
    passes: Option<u64>,
    at: &'static Location<'static>,
}

/// The description of a deadlock, with which a thread panics.
#[derive(Debug)]
pub(crate) struct Deadlock(String);

impl Deadlock {
    #[track_caller]
    pub(crate) fn break_it(self) -> ! {
        panic!("{}", self.0)
    }
}

impl Schedule {
    fn new(clock: Option<Arc<ManualClock>>, seed: u64, names: Vec<String>) -> Self {
        let thread = |name| Thread { name, does: Does::Ready, doomed: false, report: None };
        let turns = names.iter().map(|_| Condvar::new()).collect();
        let threads = names.into_iter().map(thread).collect();
        let mut rng = Rng::with_seed(seed);
        let locks_per_turn = LOCKS_PER_TURN[rng.usize(..LOCKS_PER_TURN.len())];
        let state = State { rng, threads, turn: None, progress: 0, handovers: 0, locks_per_turn };
        Schedule { clock, state: Mutex::new(state), turns }
    }

    fn begin(&self) {
        let mut state = self.state.lock();
        self.choose(&mut state);
        self.call(&state);
    }

    /// Chooses the thread that gets the next turn, and lets the time pass until then.
    fn choose(&self, state: &mut State) {
        let passed = state.choose();
        if let (Some(clock), Some(moment)) = (&self.clock, passed) {
            clock.advance(moment.saturating_sub(clock.monotonic_ns()));
        }
    }

    fn call(&self, state: &State) {
        if let Some(next) = state.turn {
            self.turns[next].notify_one();
        }
    }

    /// The moment at which the timeout will have passed.
    fn after(&self, timeout: Duration) -> u64 {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.clock.as_ref().map_or(0, |clock| clock.monotonic_ns().saturating_add(nanoseconds))
    }
}

impl State {
    /// Chooses the thread that gets the next turn. Returns the moment at which it continues, if time has to pass.
    fn choose(&mut self) -> Option<u64> {
        let mut able = self.threads_that(|does, progress| match does {
            Does::Ready => true,
            Does::Trying { tried, .. } => tried < progress,
            Does::Waiting(_) | Does::Sleeping { .. } | Does::Ended => false,
        });
        let mut passed = None;
        if able.is_empty() {
            passed = self.threads.iter().filter_map(|thread| thread.does.passes()).min();
            able = self.threads_that(|does, _| passed.is_some() && does.passes() == passed);
        }
        if able.is_empty() {
            able = self.doom().into_iter().collect();
        }
        self.turn = (!able.is_empty()).then(|| able[self.rng.usize(..able.len())]);
        if let Some(next) = self.turn
            && !matches!(self.threads[next].does, Does::Trying { .. })
        {
            self.threads[next].does = Does::Ready;
        }
        passed
    }

    fn threads_that(&self, may: impl Fn(Does, u64) -> bool) -> Vec<usize> {
        (0..self.threads.len()).filter(|&index| may(self.threads[index].does, self.progress)).collect()
    }

    /// Chooses one of the remaining threads to break a deadlock.
    fn doom(&mut self) -> Option<usize> {
        let left = self.threads_that(|does, _| !matches!(does, Does::Ended));
        let report = self.report();
        let Some(&victim) = left.iter().find(|&&index| !self.threads[index].doomed) else {
            assert!(left.is_empty(), "unwinding does not break it: {report}");
            return None;
        };
        (self.threads[victim].doomed, self.threads[victim].report) = (true, Some(report));
        Some(victim)
    }

    /// Takes the deadlock that this thread has to break.
    fn deadlock(&mut self, index: usize) -> Option<Deadlock> {
        self.threads[index].report.take().map(Deadlock)
    }

    /// Which thread waits where.
    fn report(&self) -> String {
        let line = |thread: &Thread| match thread.does {
            Does::Trying { at, .. } => Some(format!("{} for the lock at {at}", thread.name)),
            Does::Waiting(waiting) => Some(format!("{} to be notified at {}", thread.name, waiting.at)),
            Does::Ready | Does::Sleeping { .. } | Does::Ended => None,
        };
        let lines: Vec<String> = self.threads.iter().filter_map(line).collect();
        format!("deadlock: waiting are {}", lines.join(", "))
    }

    fn notify(&mut self, place: usize, all: bool) {
        let mut here =
            self.threads_that(|does, _| matches!(does, Does::Waiting(waiting) if waiting.place == place));
        if !all && here.len() > 1 {
            here = vec![here[self.rng.usize(..here.len())]];
        }
        here.into_iter().for_each(|index| self.threads[index].does = Does::Ready);
    }
}

/// The calling thread's place in its schedule.
struct Current {
    schedule: Arc<Schedule>,
    me: usize,
}

/// Passes the turn on when a thread ends, also by a panic.
struct End(Arc<Schedule>, usize);

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.threads[self.1].does = Does::Ended;
        state.progress += 1;
        self.0.choose(&mut state);
        self.0.call(&state);
    }
}

impl Current {
    fn live<T>(self, seed: u64, body: impl FnOnce() -> T) -> T {
        random::repeat_from(seed ^ (self.me as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (schedule, me) = (Arc::clone(&self.schedule), self.me);
        CURRENT.set(Some(self));
        let mut state = schedule.state.lock();
        while state.turn != Some(me) {
            schedule.turns[me].wait(&mut state);
        }
        drop(state);
        let _end = End(schedule, me);
        body()
    }

    /// Lets another thread continue, at each device command and at some locks. In time, no thread has to wait here.
    fn point(&self, seam: Seam) {
        if self.schedule.clock.is_some() {
            return;
        }
        let mut state = self.schedule.state.lock();
        let every = match seam {
            Seam::Device => 1,
            Seam::Lock => state.locks_per_turn,
        };
        if state.rng.u32(0..every) == 0 {
            state.progress += 1;
            self.pass(state);
        }
    }

    /// Gives the turn away and waits for the next one.
    fn pass(&self, mut state: MutexGuard<'_, State>) {
        self.schedule.choose(&mut state);
        if state.turn == Some(self.me) {
            return;
        }
        state.handovers += 1;
        self.schedule.call(&state);
        while state.turn != Some(self.me) {
            self.schedule.turns[self.me].wait(&mut state);
        }
    }

    /// In time, all threads that can continue at this moment do so before the caller. Without a clock, another one
    /// may.
    fn let_others_try(&self) {
        let mut state = self.schedule.state.lock();
        state.progress += 1;
        if let Some(clock) = &self.schedule.clock {
            state.threads[self.me].does = Does::Sleeping { until: clock.monotonic_ns() };
        }
        self.pass(state);
    }

    fn sleep_until(&self, until: u64) -> bool {
        let Some(clock) = &self.schedule.clock else { return false };
        if clock.monotonic_ns() < until {
            let mut state = self.schedule.state.lock();
            state.progress += 1;
            state.threads[self.me].does = Does::Sleeping { until };
            self.pass(state);
        }
        true
    }

    /// Tries now, and again whenever others have made progress. An error breaks a deadlock.
    fn try_until<G>(
        &self,
        at: &'static Location<'static>,
        attempt: &dyn Fn() -> Option<G>,
    ) -> Result<G, Deadlock> {
        let mut got = attempt();
        if got.is_none() {
            self.schedule.state.lock().progress += 1;
        }
        loop {
            let mut state = self.schedule.state.lock();
            if got.is_some() || state.threads[self.me].report.is_some() {
                state.threads[self.me].does = Does::Ready;
                return got.ok_or_else(|| state.deadlock(self.me).expect("it was seen above"));
            }
            let tried = state.progress;
            state.threads[self.me].does = Does::Trying { tried, at };
            self.pass(state);
            if self.schedule.state.lock().threads[self.me].report.is_none() {
                got = attempt();
            }
        }
    }

    fn wait(&self, waiting: Waiting, is_free: &dyn Fn() -> bool) -> Result<(), Deadlock> {
        let mut state = self.schedule.state.lock();
        state.progress += 1;
        state.threads[self.me].does = Does::Waiting(waiting);
        self.pass(state);
        let mut ending = self.schedule.state.lock().deadlock(self.me).map_or(Ok(()), Err);
        // In any case the mutex is taken again before the caller continues.
        while let Err(deadlock) = self.try_until(waiting.at, &|| is_free().then_some(())) {
            ending = Err(deadlock);
        }
        ending
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

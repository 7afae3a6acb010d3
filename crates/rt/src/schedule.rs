//! Threads of which exactly one runs at a time, in an order that follows from a seed.
//!
//! [`run`] starts real threads and gives one of them the *turn*. Whoever has the turn keeps it until it
//! comes to a *seam*: it is about to take a lock, has to wait for a lock or a condition, has let a lock go
//! fairly, is about to give a device a command ([`at_device`]), or ends. There the schedule's generator chooses who goes
//! on. So everything that the threads do to each other happens in an order that repeats from the seed,
//! and many seeds try many orders. The code under test is the code of the product: the seams are in
//! [`crate::sync`], and an emulated device calls [`at_device`].
//!
//! [`run_in_time`] is the same for whoever asks how long things take rather than in which orders they may happen:
//! there a thread keeps its turn until it has to wait, or sleeps ([`sleep_until`]); a lock that is free and a command are
//! no seams. When all wait, time passes up to the moment at which
//! the first of them goes on.
//!
//! States of a thread: `Ready` → `Trying` (somebody has the lock), `Waiting` (for a condition) or `Sleeping`
//! (until a moment) → `Ready` … → `Ended`. What may be trusted in each:
//! * The guard of a lock does not know this module. A thread that has failed to get a lock is therefore
//!   not woken by the one that lets it go; it tries again, but only after somebody else has got on
//!   since its last try (`progress`). When all who are left have tried in vain since then, nobody will
//!   ever get on: a *deadlock*.
//! * A thread that waits for a condition is chosen only after a notification: one that was lost stays
//!   lost, and is found as a deadlock. Time does not pass while anybody can go on; when nobody can, a
//!   wait with a timeout ends: in time the one that is over first, without a clock any of them.
//! * Only threads of a schedule in time sleep, and only they have its clock moved.
//!
//! A deadlock is broken by a panic in one of its threads, which says who waits where; it unwinds,
//! releases its locks, and the others end in their turns.
//!
//! What it does not do: it knows nothing of atomics (two of them between seams are one step), it does
//! not look for the shortest order that fails, processors take no time, and a thread of a schedule
//! starts no threads.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::random::{self, Rng};
use crate::{Clock, ManualClock};

/// At one lock in so many the turn may go to another thread: one of these for each schedule, so that
/// some look closely at what happens between two locks, and in others much is done in one turn.
const LOCKS_PER_TURN: [u32; 3] = [4, 16, 64];

/// Schedules that run in this process: while there are none, a lock is only a lock.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// A thread of a schedule: its name, and what it does.
pub type Body<'a, T> = (String, Box<dyn FnOnce() -> T + Send + 'a>);

/// What a schedule came to.
#[derive(Debug)]
pub struct Ran<T> {
    /// What each thread returned, in the order in which they were given.
    pub returned: Vec<T>,
    /// How often the turn went from one thread to another.
    pub handovers: u64,
}

/// Runs these threads in an order that follows from `seed`, until all have ended.
///
/// # Panics
/// When one of them does, after all have ended.
pub fn run<'a, T: Send + 'a>(seed: u64, bodies: Vec<Body<'a, T>>) -> Ran<T> {
    run_by(None, seed, bodies)
}

/// Runs these threads until all have ended, in the order of the moments until which they sleep and wait; which of
/// several is the first at one moment follows from `seed`. Nobody else may move the clock meanwhile.
///
/// # Panics
/// When one of them does, after all have ended.
pub fn run_in_time<'a, T: Send + 'a>(
    clock: &Arc<ManualClock>,
    seed: u64,
    bodies: Vec<Body<'a, T>>,
) -> Ran<T> {
    run_by(Some(Arc::clone(clock)), seed, bodies)
}

fn run_by<'a, T: Send + 'a>(clock: Option<Arc<ManualClock>>, seed: u64, bodies: Vec<Body<'a, T>>) -> Ran<T> {
    assert!(!is_scheduled(), "a thread of a schedule starts no other");
    assert!(!bodies.is_empty(), "somebody must be able to go on");
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

/// A seam: the caller is about to give a command to a device.
pub fn at_device() {
    with_current(|current| current.point(Seam::Device));
}

/// A seam: the caller is about to take a lock.
pub(crate) fn at_lock() {
    with_current(|current| current.point(Seam::Lock));
}

/// Lets the caller sleep until its schedule's clock says so much, or more; false, at once, unless it is a thread of a
/// schedule in time.
pub fn sleep_until(moment_ns: u64) -> bool {
    with_current(|current| current.sleep_until(moment_ns)).unwrap_or(false)
}

/// Whether the caller is a thread of a schedule.
pub fn is_scheduled() -> bool {
    with_current(|_| ()).is_some()
}

/// A seam: the caller has let a lock go that others may have waited for.
pub(crate) fn let_others_try() {
    with_current(Current::let_others_try);
}

/// Takes a lock by `attempt`, in turn with others; `None` for a thread of no schedule.
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

/// Waits until the condition at `place` is notified (or, with a `timeout`, until nobody else can go on and, in time, it
/// has passed) and then until `is_free`.
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

/// Wakes one or all who wait at `place`.
pub(crate) fn notify(place: usize, all: bool) {
    with_current(|current| current.schedule.state.lock().notify(place, all));
}

fn with_current<T>(work: impl FnOnce(&Current) -> T) -> Option<T> {
    if RUNNING.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // Thread-locals of others that are dropped at a thread's end may take locks.
    CURRENT.try_with(|current| current.borrow().as_ref().map(work)).ok().flatten()
}

struct Schedule {
    /// What a schedule in time moves.
    clock: Option<Arc<ManualClock>>,
    state: Mutex<State>,
    /// One for each thread: its turn has come.
    turns: Vec<Condvar>,
}

struct State {
    rng: Rng,
    threads: Vec<Thread>,
    /// Whose turn it is; none before the first and after the last.
    turn: Option<usize>,
    /// Rises whenever a thread has got on: what another waits for may have changed.
    progress: u64,
    handovers: u64,
    /// One of [`LOCKS_PER_TURN`].
    locks_per_turn: u32,
}

/// Where a thread is that could go on.
enum Seam {
    Device,
    Lock,
}

struct Thread {
    name: String,
    does: Does,
    /// It was chosen to break a deadlock, once.
    doomed: bool,
    /// How that looked; it has not panicked yet.
    report: Option<String>,
}

#[derive(Clone, Copy)]
enum Does {
    Ready,
    /// Somebody has the lock; the last try was when `progress` was this.
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
    /// When it goes on although nobody has told it to.
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
    /// When the wait is over, with a timeout; without a clock, the same for all.
    passes: Option<u64>,
    at: &'static Location<'static>,
}

/// Who waits where for what will not happen: the words of the panic that breaks it.
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

    /// Chooses who has the next turn, and lets the time pass until then.
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

    /// When so much time will have passed.
    fn after(&self, timeout: Duration) -> u64 {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.clock.as_ref().map_or(0, |clock| clock.monotonic_ns().saturating_add(nanoseconds))
    }
}

impl State {
    /// Chooses who has the next turn; the moment, if it is one that had to come first.
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

    /// Nobody can go on: one of those who are left has to give up.
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

    /// What this thread was chosen to break.
    fn deadlock(&mut self, index: usize) -> Option<Deadlock> {
        self.threads[index].report.take().map(Deadlock)
    }

    /// Who waits where.
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

    /// Another may go on, at each command of a device and at some locks; in time, nobody has to wait here.
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

    /// Gives the turn away and waits for the next.
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

    /// In time all who can go on at this moment do before the caller does; without a clock another may.
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

    /// Tries now, and again whenever others have got on; an error breaks a deadlock.
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
        // Whatever happened, the mutex is taken again before anybody hears of it.
        while let Err(deadlock) = self.try_until(waiting.at, &|| is_free().then_some(())) {
            ending = Err(deadlock);
        }
        ending
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

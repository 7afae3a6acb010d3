//! Background work: what there is to do, the threads that do it, and errors that nobody waited for.
//!
//! Logic owns no threads. [`Fs::step`] does one piece of everything there is; the simulator calls
//! it. The threads that [`Fs::start`] begins work in a [`Lane`] each: a long piece of collection does not hold up the
//! commit interval, and no checkpoint or reset holds up collection. What they do can be had without them
//! ([`Fs::workers`]), for a schedule of threads. They hold the volume only while they work:
//! a volume that is dropped without `unmount` ends as if the process had been killed.
//!
//! **An idle volume wakes no thread.** While changes are made, an idle thread looks for work four times a second, because
//! some work only becomes due with time. All such work follows from a change and is due soon after it. So a thread that
//! has found nothing to do for a while, with every change durable, sleeps until the next change ([`Calm`]).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rt::sync::Mutex;
use rt::thread::{JoinHandle, Signal};
use tree::Step;

use crate::errno::{FsError, Result};
use crate::volume::Fs;

/// How long an idle thread sleeps when nothing wakes it.
const IDLE: Duration = Duration::from_millis(250);
/// After how many looks in vain, without a change meanwhile, an idle thread sleeps. With [`IDLE`] these take 30 s, three
/// times as long as the longest time that is measured in ([`crate::write_rate`]).
const LOOKS_MAX: u32 = 120;
/// How long it sleeps at most. No work is known that only time makes due so late.
const SLEEP: Duration = Duration::from_secs(3600);
/// How long nobody must have written before garbage is collected that need not be yet.
const QUIET: Duration = Duration::from_micros(500);
/// How long a thread waits after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// No change waits to be made durable.
const NOTHING: u64 = u64::MAX;

/// Background work that is done side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Commit interval, checkpoints, cleaning of metadata.
    Commits,
    /// Resets of zones in which nothing lives, and giving back what the medium holds for them.
    Resets,
    /// Deletions, garbage collection, writeback.
    Space,
    /// Reading what walkers will need in a moment.
    Ahead,
}

impl Lane {
    /// All of them.
    pub const ALL: [Lane; 4] = [Lane::Commits, Lane::Resets, Lane::Space, Lane::Ahead];

    /// The name of its thread.
    fn name(self) -> &'static str {
        match self {
            Lane::Commits => "polder-commit",
            Lane::Resets => "polder-reset",
            Lane::Space => "polder-clean",
            Lane::Ahead => "polder-ahead",
        }
    }
}

/// The name of a thread, and what it does.
pub type Worker = (&'static str, Box<dyn FnOnce() + Send>);

/// The state of background work.
pub(crate) struct Runtime {
    commit_interval_ns: AtomicU64,
    /// When the oldest change that may not be durable was made (monotonic), or [`NOTHING`].
    oldest_ns: AtomicU64,
    /// Dirty nodes wait for a thread that was woken for them.
    pressed: AtomicBool,
    /// Errors of the volume so far.
    errors: AtomicU64,
    last_error: Mutex<Option<FsError>>,
    /// One for each lane.
    signals: [Arc<Signal>; Lane::ALL.len()],
    calm: Arc<Calm>,
    /// Called before the commit interval makes changes durable.
    before_commits: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Runtime {
    pub(crate) fn new(commit_interval_ns: u64) -> Self {
        Runtime {
            commit_interval_ns: AtomicU64::new(commit_interval_ns),
            oldest_ns: AtomicU64::new(NOTHING),
            pressed: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            signals: Default::default(),
            calm: Arc::default(),
            before_commits: Mutex::new(None),
            threads: Mutex::default(),
        }
    }

    fn commit_interval_ns(&self) -> u64 {
        self.commit_interval_ns.load(Ordering::SeqCst)
    }

    pub(crate) fn set_commit_interval(&self, interval_ns: u64) {
        self.commit_interval_ns.store(interval_ns, Ordering::SeqCst);
        self.wake();
    }

    /// A change was committed.
    pub(crate) fn committed(&self, now_ns: u64) {
        self.oldest_ns.fetch_min(now_ns, Ordering::SeqCst);
        if self.calm.end() {
            [Lane::Commits, Lane::Resets, Lane::Space].into_iter().for_each(|lane| self.wake_lane(lane));
        }
    }

    /// Whether every change is durable, or is just being made so.
    fn owes_nothing(&self) -> bool {
        self.oldest_ns.load(Ordering::SeqCst) == NOTHING
    }

    /// Whether the oldest change has waited for the commit interval. Then the caller makes
    /// everything durable.
    fn take_due(&self, now_ns: u64) -> bool {
        let oldest = self.oldest_ns.load(Ordering::SeqCst);
        if oldest == NOTHING || now_ns.saturating_sub(oldest) < self.commit_interval_ns() {
            return false;
        }
        self.oldest_ns.compare_exchange(oldest, NOTHING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// There is work, whatever it is.
    pub(crate) fn wake(&self) {
        [Lane::Commits, Lane::Resets, Lane::Space].into_iter().for_each(|lane| self.wake_lane(lane));
    }

    /// There is work for this lane.
    pub(crate) fn wake_lane(&self, lane: Lane) {
        self.signals[lane as usize].wake();
    }

    /// Wakes the thread that reads ahead.
    pub(crate) fn reader(&self) -> Arc<dyn Fn() + Send + Sync> {
        let ahead = self.signals[Lane::Ahead as usize].clone();
        Arc::new(move || ahead.wake())
    }

    /// There is a checkpoint to be taken; wakes the threads once for it.
    pub(crate) fn press(&self) {
        if !self.pressed.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Something failed that the caller of no operation may hear of.
    pub(crate) fn failed(&self, error: &FsError) {
        *self.last_error.lock() = Some(error.clone());
        self.errors.fetch_add(1, Ordering::SeqCst);
    }

    /// Failures so far.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::SeqCst)
    }

    pub(crate) fn last_error(&self) -> FsError {
        self.last_error.lock().clone().unwrap_or_else(|| FsError::Io("the volume failed".to_owned()))
    }

    /// Fetches what the changes depend on that are made durable next.
    fn prepare_commit(&self) {
        let before = self.before_commits.lock().clone();
        if let Some(before) = before {
            before();
        }
    }

    /// Asks the threads to end.
    pub(crate) fn stop(&self) {
        for signal in &self.signals {
            signal.set_stopped(true);
        }
    }

    /// Threads may be started again after they were stopped.
    pub(crate) fn allow_start(&self) {
        for signal in &self.signals {
            signal.set_stopped(false);
        }
    }

    /// Waits until they have.
    pub(crate) fn stop_and_join(&self) {
        self.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the volume panicked");
            }
        }
    }
}

impl Drop for Runtime {
    /// Threads that sleep would not notice for long that their volume is gone.
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether anything changes, and how many threads sleep because nothing does.
#[derive(Default)]
struct Calm {
    /// Counts changes.
    changes: AtomicU64,
    sleepers: AtomicUsize,
}

impl Calm {
    /// Something changes; whether threads sleep that have to be woken for it.
    fn end(&self) -> bool {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Sleeps by `wait`, unless there was a change after number `seen`. Either the change counts before this looks, or
    /// [`Calm::end`] sees that a thread sleeps.
    fn sleep(&self, seen: u64, wait: impl FnOnce() -> Option<u64>) -> Option<u64> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let woken = match self.changes.load(Ordering::SeqCst) == seen {
            true => wait(),
            false => Some(0),
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}

/// How often one thread has looked for work in vain since the last change.
#[derive(Default)]
struct Looks {
    changes: u64,
    count: u32,
}

impl Looks {
    /// It has looked again. Whether it may sleep.
    fn add(&mut self, changes: u64) -> bool {
        self.count = if changes == self.changes { self.count.saturating_add(1) } else { 0 };
        self.changes = changes;
        self.count >= LOOKS_MAX
    }
}

impl Fs {
    /// Starts the threads that call `step`; they end with `unmount`, or when the volume is dropped.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let mut threads = self.runtime.threads.lock();
        if !threads.is_empty() || self.read_only {
            return Ok(());
        }
        for (name, work) in self.workers() {
            let thread = rt::thread::spawn(name, work)
                .map_err(|error| FsError::Io(format!("cannot start a thread: {error}")))?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Has the thread that keeps the commit interval call this each time before it makes changes durable, so that data
    /// which a change depends on can still be written. No lock is held meanwhile.
    pub fn call_before_commits(&self, call: Arc<dyn Fn() + Send + Sync>) {
        *self.runtime.before_commits.lock() = Some(call);
    }

    /// What threads of these names do: they return when the volume is unmounted, or dropped and they have noticed.
    pub fn workers(self: &Arc<Self>) -> Vec<Worker> {
        let idle = IDLE.min(Duration::from_nanos(self.runtime.commit_interval_ns()).max(IDLE / 25));
        let worker = |lane: Lane| -> Worker {
            let (fs, signal) = (Arc::downgrade(self), self.runtime.signals[lane as usize].clone());
            let calm = Arc::clone(&self.runtime.calm);
            (lane.name(), Box::new(move || run(&fs, &signal, &calm, lane, idle)))
        };
        Lane::ALL.map(worker).into()
    }

    /// One piece of background work: commit interval, checkpoint, cleaning, GC, orphans, intents, reading ahead.
    pub fn step(&self) -> Result<Step> {
        let mut worked = Step::Idle;
        for lane in Lane::ALL {
            if self.step_in(lane)? == Step::Worked {
                worked = Step::Worked;
            }
        }
        Ok(worked)
    }

    /// One piece of what is done in a lane.
    pub fn step_in(&self, lane: Lane) -> Result<Step> {
        match lane {
            Lane::Ahead => self.step_ahead(),
            _ if self.is_read_only() => Ok(Step::Idle),
            Lane::Commits => self.step_commits(),
            Lane::Resets => self.step_resets(),
            Lane::Space => self.step_space(),
        }
    }

    fn step_commits(&self) -> Result<Step> {
        self.runtime.pressed.store(false, Ordering::SeqCst);
        let due = self.runtime.take_due(self.clock.monotonic_ns());
        if due {
            self.runtime.prepare_commit();
            self.note_failure(self.sync())?;
        }
        let step = self.note_failure(self.store.step().map_err(FsError::from))?;
        Ok(if due { Step::Worked } else { step })
    }

    fn step_resets(&self) -> Result<Step> {
        let step = self.note_failure(self.extents.step_resets().map_err(FsError::from))?;
        // Somebody may wait for a reset, and nobody for this.
        let worked = step == Step::Worked || self.store.device().give_back();
        Ok(if worked { Step::Worked } else { Step::Idle })
    }

    fn step_space(&self) -> Result<Step> {
        self.rate.note(self.clock.monotonic_ns(), self.data_bytes());
        let backlog = self.note_failure(self.step_backlog());
        // Also when that failed: what finds no room waits for this.
        let step = self.note_failure(self.extents.step_space().map_err(FsError::from))?;
        self.wake_resets();
        match backlog {
            Ok(true) => Ok(Step::Worked),
            Err(FsError::NoSpace | FsError::NoMemory) if step == Step::Worked => Ok(step),
            backlog => backlog.map(|_| step),
        }
    }

    /// Whether a lane that is idle will have something to do in a moment, if nobody writes until then.
    fn looks_again(&self, lane: Lane) -> bool {
        lane == Lane::Space && !self.is_read_only() && self.extents.waits_for_quiet()
    }

    /// Wakes whoever resets what was emptied.
    fn wake_resets(&self) {
        if self.extents.take_emptied() {
            self.runtime.wake_lane(Lane::Resets);
        }
    }

    /// After a change: wakes whoever resets what was emptied, and whoever moves what is owed.
    pub(crate) fn wake_for_space(&self) {
        self.wake_resets();
        if self.extents.take_call() {
            self.runtime.wake_lane(Lane::Space);
        }
    }

    fn step_ahead(&self) -> Result<Step> {
        Ok(if self.store.read_ahead() { Step::Worked } else { Step::Idle })
    }

    /// A lack of space or memory is met by those who need some; what else fails here is told to every handle.
    fn note_failure<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && !matches!(error, FsError::NoSpace | FsError::NoMemory)
        {
            self.runtime.failed(error);
        }
        result
    }
}

fn run(fs: &Weak<Fs>, signal: &Signal, calm: &Calm, lane: Lane, idle: Duration) {
    let (mut seen, mut looks) = (0, Looks::default());
    loop {
        let Some(held) = fs.upgrade() else { return };
        let changes = calm.changes.load(Ordering::SeqCst);
        let wait = match held.step_in(lane) {
            Ok(Step::Worked) => Duration::ZERO,
            Ok(Step::Idle) if held.looks_again(lane) => QUIET,
            Ok(Step::Idle) if looks.add(changes) && held.runtime.owes_nothing() => SLEEP,
            Ok(Step::Idle) => idle,
            Err(error) => {
                // It will be tried every second.
                tracing::warn!("background work failed: {error}");
                AFTER_ERROR
            }
        };
        drop(held);
        let woken = match wait {
            SLEEP => calm.sleep(changes, || signal.wait(seen, SLEEP)),
            _ => signal.wait(if wait.is_zero() { u64::MAX } else { seen }, wait),
        };
        match woken {
            Some(wakes) => seen = wakes,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests;

//! Background work: the tasks, the threads that run them, and errors that no caller waits for.
//!
//! Logic owns no threads. [`Fs::step`] performs one step of every task; the simulator calls it. Each thread that
//! [`Fs::start`] starts runs one [`BackgroundTask`], so long GC work does not delay the commit interval, and a
//! checkpoint or a reset does not delay GC. Callers that schedule threads themselves take the bodies from
//! [`Fs::workers`]. A thread holds a reference to the volume only during a step. A volume that is dropped without
//! `unmount` ends like one whose process was killed.
//!
//! **An idle volume wakes no thread.** While changes are made, an idle thread polls for work four times a second,
//! because some work only becomes due with time. All such work follows from a change and is due soon after it. So a
//! thread that has found no work for a while, with every change durable, sleeps until the next change
//! ([`ChangeWatch`]).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rt::sync::Mutex;
use rt::thread::{JoinHandle, Signal};
use tree::Step;

use crate::delayed_files::DELAY;
use crate::errno::{FsError, Result};
use crate::volume::Fs;

/// How long an idle thread waits between two polls when nothing wakes it.
const IDLE: Duration = Duration::from_millis(250);
/// After this many polls without work and without a change, an idle thread sleeps. With [`IDLE`] they take 30 s,
/// three times the longest time that anything measures ([`crate::write_rate`]).
const POLLS_MAX: u32 = 120;
/// How long a thread sleeps at most. No known work becomes due by time alone so late.
const SLEEP: Duration = Duration::from_secs(3600);
/// How long a thread waits after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Every change is durable.
const ALL_DURABLE: u64 = u64::MAX;

/// Background tasks that run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundTask {
    /// Commit interval, checkpoints, GC of metadata zones.
    Commits,
    /// Resets of zones without live blocks, and discarding their space on the medium.
    Resets,
    /// Deletions, GC of data zones, writeback.
    Space,
    /// Appending delayed writes.
    DelayedWrites,
    /// Readahead: metadata that walks of a tree will need soon, and data that readers in order will.
    Prefetch,
}

impl BackgroundTask {
    /// All of them.
    pub const ALL: [BackgroundTask; 5] = [
        BackgroundTask::Commits,
        BackgroundTask::Resets,
        BackgroundTask::Space,
        BackgroundTask::DelayedWrites,
        BackgroundTask::Prefetch,
    ];

    /// Those for which a change can make work.
    const AFTER_CHANGES: [BackgroundTask; 3] =
        [BackgroundTask::Commits, BackgroundTask::Resets, BackgroundTask::Space];

    /// The name of its thread.
    fn name(self) -> &'static str {
        match self {
            BackgroundTask::Commits => "polder-commit",
            BackgroundTask::Resets => "polder-reset",
            BackgroundTask::Space => "polder-gc",
            BackgroundTask::DelayedWrites => "polder-writes",
            BackgroundTask::Prefetch => "polder-prefetch",
        }
    }
}

/// The name of a thread and its body.
pub type Worker = (&'static str, Box<dyn FnOnce() + Send>);

/// The state of background work.
pub(crate) struct Runtime {
    commit_interval_ns: AtomicU64,
    /// When the oldest change that may not be durable was made (monotonic), or [`ALL_DURABLE`].
    oldest_ns: AtomicU64,
    /// A thread has been woken to take a checkpoint of the dirty nodes.
    checkpoint_requested: AtomicBool,
    /// The number of errors of the volume so far.
    errors: AtomicU64,
    last_error: Mutex<Option<FsError>>,
    /// One for each task.
    signals: [Arc<Signal>; BackgroundTask::ALL.len()],
    watch: Arc<ChangeWatch>,
    /// Called before the commit interval makes changes durable.
    before_commits: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Runtime {
    pub(crate) fn new(commit_interval_ns: u64) -> Self {
        Runtime {
            commit_interval_ns: AtomicU64::new(commit_interval_ns),
            oldest_ns: AtomicU64::new(ALL_DURABLE),
            checkpoint_requested: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            signals: Default::default(),
            watch: Arc::default(),
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
        if self.watch.note_change() {
            self.wake();
        }
    }

    /// Whether every change is durable or is just being made durable.
    fn is_all_durable(&self) -> bool {
        self.oldest_ns.load(Ordering::SeqCst) == ALL_DURABLE
    }

    /// Whether the oldest change has waited for the commit interval. If so, the caller makes everything durable.
    fn take_due(&self, now_ns: u64) -> bool {
        let oldest = self.oldest_ns.load(Ordering::SeqCst);
        if oldest == ALL_DURABLE || now_ns.saturating_sub(oldest) < self.commit_interval_ns() {
            return false;
        }
        self.oldest_ns.compare_exchange(oldest, ALL_DURABLE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Wakes the threads for which a change can make work.
    pub(crate) fn wake(&self) {
        BackgroundTask::AFTER_CHANGES.into_iter().for_each(|task| self.wake_task(task));
    }

    /// Wakes the thread of this task.
    pub(crate) fn wake_task(&self, task: BackgroundTask) {
        self.signals[task as usize].wake();
    }

    /// A function that wakes the thread that prefetches.
    pub(crate) fn prefetch_waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let prefetch = self.signals[BackgroundTask::Prefetch as usize].clone();
        Arc::new(move || prefetch.wake())
    }

    /// A checkpoint is due. Wakes the threads once for it.
    pub(crate) fn request_checkpoint(&self) {
        if !self.checkpoint_requested.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Notes an error that no operation may return to its caller.
    pub(crate) fn failed(&self, error: &FsError) {
        *self.last_error.lock() = Some(error.clone());
        self.errors.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of errors so far.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::SeqCst)
    }

    pub(crate) fn last_error(&self) -> FsError {
        self.last_error.lock().clone().unwrap_or_else(|| FsError::Io("the volume failed".to_owned()))
    }

    /// Has the data arrive that the changes depend on which are made durable next.
    fn prepare_commit(&self) {
        let before = self.before_commits.lock().clone();
        if let Some(before) = before {
            before();
        }
    }

    /// Tells the threads to end.
    pub(crate) fn stop(&self) {
        for signal in &self.signals {
            signal.set_stopped(true);
        }
    }

    /// Allows threads to be started again after they were stopped.
    pub(crate) fn allow_start(&self) {
        for signal in &self.signals {
            signal.set_stopped(false);
        }
    }

    /// Stops the threads and waits until they have ended.
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
    /// Sleeping threads would otherwise not notice for long that their volume is gone.
    fn drop(&mut self) {
        self.stop();
    }
}

/// Counts changes, and the threads that sleep because there are none.
#[derive(Default)]
struct ChangeWatch {
    /// The number of changes.
    changes: AtomicU64,
    /// Threads that the next change wakes.
    sleepers: AtomicUsize,
    /// Threads that sleep until there is work for them, whatever changes.
    others: AtomicUsize,
}

impl ChangeWatch {
    /// Counts a change. Returns whether threads sleep that must be woken for it.
    fn note_change(&self) -> bool {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Sleeps by calling `wait`, unless there was a change after number `seen`. Either the change is counted before
    /// the comparison here, or [`ChangeWatch::note_change`] sees that a thread sleeps.
    fn sleep(&self, seen: u64, wait: impl FnOnce() -> Option<u64>) -> Option<u64> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let woken = match self.changes.load(Ordering::SeqCst) == seen {
            true => wait(),
            false => Some(0),
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        woken
    }

    /// Sleeps by calling `wait`, whatever changes.
    fn sleep_apart(&self, wait: impl FnOnce() -> Option<u64>) -> Option<u64> {
        self.others.fetch_add(1, Ordering::SeqCst);
        let woken = wait();
        self.others.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}

/// How often one thread has polled without success since the last change.
#[derive(Default)]
struct IdlePolls {
    changes: u64,
    count: u32,
}

impl IdlePolls {
    /// Counts a poll without success. Returns whether the thread may sleep.
    fn add(&mut self, changes: u64) -> bool {
        self.count = if changes == self.changes { self.count.saturating_add(1) } else { 0 };
        self.changes = changes;
        self.count >= POLLS_MAX
    }
}

impl Fs {
    /// Starts the threads that call `step`. They end with `unmount` or when the volume is dropped.
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

    /// Has the thread that keeps the commit interval call this each time before it makes changes durable, so that
    /// data on which a change depends can still be written. No lock is held during the call.
    pub fn call_before_commits(&self, call: Arc<dyn Fn() + Send + Sync>) {
        *self.runtime.before_commits.lock() = Some(call);
    }

    /// The names and bodies of the threads. They return after the volume has been unmounted or dropped.
    pub fn workers(self: &Arc<Self>) -> Vec<Worker> {
        let idle = IDLE.min(Duration::from_nanos(self.runtime.commit_interval_ns()).max(IDLE / 25));
        let worker = |task: BackgroundTask| -> Worker {
            let (fs, signal) = (Arc::downgrade(self), self.runtime.signals[task as usize].clone());
            let watch = Arc::clone(&self.runtime.watch);
            (task.name(), Box::new(move || run(&fs, &signal, &watch, task, idle)))
        };
        BackgroundTask::ALL.map(worker).into()
    }

    /// One step of each task: commit interval, checkpoint, GC of metadata and data, orphans, intents, prefetch.
    pub fn step(&self) -> Result<Step> {
        let mut worked = Step::Idle;
        for task in BackgroundTask::ALL {
            if self.step_task(task)? == Step::Worked {
                worked = Step::Worked;
            }
        }
        Ok(worked)
    }

    /// One step of a task.
    pub fn step_task(&self, task: BackgroundTask) -> Result<Step> {
        match task {
            BackgroundTask::Prefetch => self.step_prefetch(),
            BackgroundTask::DelayedWrites => Ok(self.step_delayed_writes()),
            _ if self.is_read_only() => Ok(Step::Idle),
            BackgroundTask::Commits => self.step_commits(),
            BackgroundTask::Resets => self.step_resets(),
            BackgroundTask::Space => self.step_space(),
        }
    }

    fn step_commits(&self) -> Result<Step> {
        self.runtime.checkpoint_requested.store(false, Ordering::SeqCst);
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
        // A writer may wait for a reset. Nothing waits for a discard.
        let worked = step == Step::Worked || self.store.device().discard_one_zone();
        Ok(if worked { Step::Worked } else { Step::Idle })
    }

    fn step_space(&self) -> Result<Step> {
        self.rate.note(self.clock.monotonic_ns(), self.data_bytes());
        let backlog = self.note_failure(self.step_backlog());
        // This runs even if the backlog failed for lack of space, because it frees space.
        let step = self.note_failure(self.extents.step_space().map_err(FsError::from))?;
        self.wake_resets();
        match backlog {
            Ok(true) => Ok(Step::Worked),
            Err(FsError::NoSpace | FsError::NoMemory) if step == Step::Worked => Ok(step),
            backlog => backlog.map(|_| step),
        }
    }

    /// Wakes the thread that resets zones, if zones have become empty.
    fn wake_resets(&self) {
        if self.extents.take_may_need_resets() {
            self.runtime.wake_task(BackgroundTask::Resets);
        }
    }

    /// After a change: wakes the thread that resets zones, and the one that does GC if GC debt is due.
    pub(crate) fn wake_for_space(&self) {
        self.wake_resets();
        if self.extents.take_call() {
            self.runtime.wake_task(BackgroundTask::Space);
        }
    }

    fn step_prefetch(&self) -> Result<Step> {
        let worked = self.store.read_ahead() || self.extents.maps().step_readahead();
        Ok(if worked { Step::Worked } else { Step::Idle })
    }

    /// Operations that lack space or memory handle this themselves. Other errors of background work are reported once
    /// through every open handle.
    fn note_failure<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && !matches!(error, FsError::NoSpace | FsError::NoMemory)
        {
            self.runtime.failed(error);
        }
        result
    }
}

fn run(fs: &Weak<Fs>, signal: &Signal, watch: &ChangeWatch, task: BackgroundTask, idle: Duration) {
    let (mut seen, mut polls) = (0, IdlePolls::default());
    loop {
        let Some(volume) = fs.upgrade() else { return };
        let changes = watch.changes.load(Ordering::SeqCst);
        let wait = match volume.step_task(task) {
            Ok(Step::Worked) => Duration::ZERO,
            Ok(Step::Idle) if task == BackgroundTask::DelayedWrites && volume.delayed.any() => DELAY,
            Ok(Step::Idle) if polls.add(changes) && volume.runtime.is_all_durable() => SLEEP,
            Ok(Step::Idle) => idle,
            Err(error) => {
                // The next try follows in a second.
                tracing::warn!("background work failed: {error}");
                AFTER_ERROR
            }
        };
        drop(volume);
        let woken = match wait {
            SLEEP if BackgroundTask::AFTER_CHANGES.contains(&task) => {
                watch.sleep(changes, || signal.wait(seen, SLEEP))
            }
            // These are woken when there is work for them.
            SLEEP => watch.sleep_apart(|| signal.wait(seen, SLEEP)),
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

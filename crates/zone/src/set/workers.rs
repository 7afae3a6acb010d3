//! Threads that send the parts of a command to several members at the same time.
//!
//! The calling thread executes the first part. Each other part goes to a thread that is idle. Nothing is queued: if no
//! thread is idle, the calling thread executes the part as well. So a part never waits for one of another command, and
//! many callers keep all members busy without these threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rt::schedule::is_scheduled;
use rt::sync::{Condvar, Mutex};
use rt::thread::{JoinHandle, spawn};

/// Commands of fewer bytes are sent to one member after the other: it takes about as long to wake a thread.
const BYTES_MIN: usize = 128 << 10;

/// The most threads for each member but the first.
const THREADS_PER_MEMBER: usize = 2;

/// The threads of a set. They begin when they are first needed, and end with the set.
pub(super) struct Workers {
    /// The most threads; 0 if parts are always executed one after the other.
    most: usize,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    all: Vec<(Arc<Worker>, JoinHandle<()>)>,
    idle: Vec<Arc<Worker>>,
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread: what it is to do next.
#[derive(Default)]
struct Worker {
    next: Mutex<Next>,
    changed: Condvar,
}

#[derive(Default)]
struct Next {
    job: Option<Job>,
    is_stopped: bool,
}

/// The number of parts that other threads have not completed.
#[derive(Default)]
struct Latch {
    left: Mutex<usize>,
    changed: Condvar,
}

/// A part is completed when this is dropped, also by a panic.
struct Completion(Arc<Latch>);

impl Drop for Completion {
    fn drop(&mut self) {
        *self.0.left.lock() -= 1;
        self.0.changed.notify_all();
    }
}

/// The parts that other threads execute. When this is dropped, also by a panic, it waits until all of them are completed.
struct Running<'w> {
    workers: &'w Workers,
    latch: Arc<Latch>,
    used: Vec<Arc<Worker>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut left = self.latch.left.lock();
        while *left > 0 {
            self.latch.changed.wait(&mut left);
        }
        drop(left);
        self.workers.threads.lock().idle.append(&mut self.used);
    }
}

impl Running<'_> {
    /// Gives a part to a thread.
    fn give<'p>(&mut self, worker: Arc<Worker>, part: impl FnOnce() + Send + 'p) {
        *self.latch.left.lock() += 1;
        let completion = Completion(Arc::clone(&self.latch));
        let job: Box<dyn FnOnce() + Send + 'p> = Box::new(move || {
            part();
            drop(completion);
        });
        // SAFETY: The job uses what it borrows only until its completion is dropped: `part` is consumed before, also if
        // it panics. `Workers::run` drops this value, which waits for that, before anything that the parts borrow.
        let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'p>, Job>(job) };
        worker.begin(job);
        self.used.push(worker);
    }
}

impl Worker {
    /// The thread's body.
    fn work(&self) {
        loop {
            let job = {
                let mut next = self.next.lock();
                loop {
                    match next.job.take() {
                        Some(job) => break job,
                        None if next.is_stopped => return,
                        None => self.changed.wait(&mut next),
                    }
                }
            };
            // A panic reaches the caller, which misses the result.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn begin(&self, job: Job) {
        let before = self.next.lock().job.replace(job);
        assert!(before.is_none(), "a thread that is idle has no job");
        self.changed.notify_one();
    }

    fn stop(&self) {
        self.next.lock().is_stopped = true;
        self.changed.notify_one();
    }
}

impl Workers {
    /// For a set of `width` members, whose commands take time or not.
    pub(super) fn new(width: usize, takes_time: bool) -> Workers {
        let most = if takes_time { (width - 1) * THREADS_PER_MEMBER } else { 0 };
        Workers { most, threads: Mutex::default() }
    }

    /// Whether a command of this size is sent to several members at the same time.
    pub(super) fn is_worth_it(&self, bytes: usize) -> bool {
        self.most > 0 && bytes >= BYTES_MIN
    }

    /// Executes all parts, and returns what they return in their order.
    pub(super) fn run<T: Send, P: FnOnce() -> T + Send>(&self, parts: Vec<P>) -> Vec<T> {
        if self.most == 0 || parts.len() < 2 || is_scheduled() {
            return parts.into_iter().map(|part| part()).collect();
        }
        let results: Vec<Mutex<Option<T>>> = parts.iter().map(|_| Mutex::new(None)).collect();
        let mut running = Running { workers: self, latch: Arc::default(), used: Vec::new() };
        let mut own = Vec::new();
        for (index, (part, result)) in parts.into_iter().zip(&results).enumerate() {
            let execute = move || *result.lock() = Some(part());
            match if index == 0 { None } else { self.idle() } {
                None => own.push(execute),
                Some(worker) => running.give(worker, execute),
            }
        }
        own.into_iter().for_each(|execute| execute());
        drop(running);
        let result = |mut result: Mutex<Option<T>>| {
            result.get_mut().take().expect("every part is executed, unless it panics in another thread")
        };
        results.into_iter().map(result).collect()
    }

    /// A thread that has nothing to do.
    fn idle(&self) -> Option<Arc<Worker>> {
        let mut threads = self.threads.lock();
        if let Some(worker) = threads.idle.pop() {
            return Some(worker);
        }
        if threads.all.len() >= self.most {
            return None;
        }
        let worker = Arc::new(Worker::default());
        let body = Arc::clone(&worker);
        let thread = spawn("set member", move || body.work()).ok()?;
        threads.all.push((Arc::clone(&worker), thread));
        Some(worker)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let threads = std::mem::take(self.threads.get_mut());
        threads.all.iter().for_each(|(worker, _)| worker.stop());
        for (_, thread) in threads.all {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;

//! A pool of threads for work that can wait long. It grows so that no work is queued behind other work.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rt::sync::{Condvar, Mutex};

/// How many idle threads are kept.
const IDLE_MAX: usize = 4;

/// Runs each job that arrives in a channel on a thread of its own. The last idle thread starts another one before it
/// runs its job. If that fails, jobs are queued until a thread is idle again.
pub(crate) struct ThreadPool<T> {
    name: &'static str,
    jobs: Mutex<Receiver<T>>,
    /// Called by each thread when it starts. A thread for which it returns false ends.
    begin: fn() -> bool,
    run: Box<dyn Fn(T) + Send + Sync>,
    counts: Mutex<Counts>,
    ended: Condvar,
}

#[derive(Default)]
struct Counts {
    threads: usize,
    idle: usize,
}

impl<T: Send + 'static> ThreadPool<T> {
    /// Starts the first thread.
    pub(crate) fn start(
        name: &'static str,
        jobs: Receiver<T>,
        begin: fn() -> bool,
        run: impl Fn(T) + Send + Sync + 'static,
    ) -> std::io::Result<Arc<ThreadPool<T>>> {
        let (jobs, run) = (Mutex::new(jobs), Box::new(run));
        let pool =
            Arc::new(ThreadPool { name, jobs, begin, run, counts: Mutex::default(), ended: Condvar::new() });
        pool.add()?;
        Ok(pool)
    }

    /// Waits until the channel is closed and all threads have ended.
    pub(crate) fn wait(&self) {
        let mut counts = self.counts.lock();
        while counts.threads > 0 {
            self.ended.wait(&mut counts);
        }
    }

    fn add(self: &Arc<Self>) -> std::io::Result<()> {
        {
            let mut counts = self.counts.lock();
            counts.threads += 1;
            counts.idle += 1;
        }
        let pool = Arc::clone(self);
        let started = rt::thread::spawn(self.name, move || pool.work());
        if started.is_err() {
            self.counts.lock().idle -= 1;
            drop(Member(self));
        }
        started.map(drop)
    }

    /// The body of a thread. The thread counts as idle when it starts.
    fn work(self: &Arc<Self>) {
        let _member = Member(self);
        if !(self.begin)() {
            self.counts.lock().idle -= 1;
            return;
        }
        loop {
            let taken = self.jobs.lock().recv();
            let is_last = {
                let mut counts = self.counts.lock();
                counts.idle -= 1;
                counts.idle == 0
            };
            let Ok(job) = taken else { return };
            if is_last {
                // Without another thread the next job waits for this one. This logs nothing, because `begin` may
                // forbid it.
                let _ = self.add();
            }
            (self.run)(job);
            let mut counts = self.counts.lock();
            if counts.idle >= IDLE_MAX {
                return;
            }
            counts.idle += 1;
        }
    }
}

/// Counts a thread of a pool until it ends, also by a panic.
struct Member<'p, T>(&'p ThreadPool<T>);

impl<T> Drop for Member<'_, T> {
    fn drop(&mut self) {
        self.0.counts.lock().threads -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    #[test]
    fn no_job_waits_behind_a_waiting_job() {
        let (sender, jobs) = channel::<Box<dyn FnOnce() + Send>>();
        let pool = ThreadPool::start("test", jobs, || true, |job| job()).unwrap();
        let (told, heard) = channel();
        let held: Vec<Sender<()>> = (0..20)
            .map(|number| {
                let (hold, held) = channel();
                let told = told.clone();
                let job = move || {
                    told.send(number).unwrap();
                    // Waits until the test ends it.
                    let _ = held.recv();
                };
                sender.send(Box::new(job)).unwrap();
                hold
            })
            .collect();
        let mut begun: Vec<i32> = (0..20).map(|_| heard.recv().unwrap()).collect();
        begun.sort_unstable();
        assert!(begun.into_iter().eq(0..20), "all are under way at the same time");
        drop((held, sender));
        pool.wait();
        assert_eq!(pool.counts.lock().threads, 0);
    }

    #[test]
    fn few_idle_threads_are_kept() {
        let (sender, jobs) = channel::<()>();
        let pool = ThreadPool::start("test", jobs, || true, |()| ()).unwrap();
        (0..1000).for_each(|_| sender.send(()).unwrap());
        drop(sender);
        pool.wait();
        let counts = pool.counts.lock();
        assert_eq!((counts.threads, counts.idle), (0, 0));
    }

    #[test]
    fn threads_that_cannot_begin_end() {
        let (sender, jobs) = channel::<()>();
        let pool = ThreadPool::start("test", jobs, || false, |()| ()).unwrap();
        pool.wait();
        assert!(sender.send(()).is_ok_and(|()| pool.counts.lock().threads == 0));
    }
}

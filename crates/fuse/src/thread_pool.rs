//! A pool of threads for work that can wait long, which grows so that no work is queued behind other work.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rt::sync::{Condvar, Mutex};

/// How many idle threads are kept.
const IDLE_MAX: usize = 4;

/// Runs what arrives in a channel, each thing on its own thread. A thread that takes the last idle place starts another
/// thread first. If that fails, things are queued until a thread is idle again.
pub(crate) struct Pool<T> {
    name: &'static str,
    things: Mutex<Receiver<T>>,
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

impl<T: Send + 'static> Pool<T> {
    /// Starts the first thread.
    pub(crate) fn start(
        name: &'static str,
        things: Receiver<T>,
        begin: fn() -> bool,
        run: impl Fn(T) + Send + Sync + 'static,
    ) -> std::io::Result<Arc<Pool<T>>> {
        let (things, run) = (Mutex::new(things), Box::new(run));
        let pool =
            Arc::new(Pool { name, things, begin, run, counts: Mutex::default(), ended: Condvar::new() });
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

    /// One thread. It counts as idle when it starts.
    fn work(self: &Arc<Self>) {
        let _member = Member(self);
        if !(self.begin)() {
            self.counts.lock().idle -= 1;
            return;
        }
        loop {
            let taken = self.things.lock().recv();
            let is_last = {
                let mut counts = self.counts.lock();
                counts.idle -= 1;
                counts.idle == 0
            };
            let Ok(thing) = taken else { return };
            if is_last {
                // Without another thread the next thing waits for this one. What threads do first may forbid to log.
                let _ = self.add();
            }
            (self.run)(thing);
            let mut counts = self.counts.lock();
            if counts.idle >= IDLE_MAX {
                return;
            }
            counts.idle += 1;
        }
    }
}

/// A thread of a pool, however it ends.
struct Member<'p, T>(&'p Pool<T>);

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
    fn nothing_waits_behind_what_waits() {
        let (sender, things) = channel::<Box<dyn FnOnce() + Send>>();
        let pool = Pool::start("test", things, || true, |thing| thing()).unwrap();
        let (told, heard) = channel();
        let held: Vec<Sender<()>> = (0..20)
            .map(|number| {
                let (hold, held) = channel();
                let told = told.clone();
                let thing = move || {
                    told.send(number).unwrap();
                    // Until it is let go.
                    let _ = held.recv();
                };
                sender.send(Box::new(thing)).unwrap();
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
    fn few_threads_stay() {
        let (sender, things) = channel::<()>();
        let pool = Pool::start("test", things, || true, |()| ()).unwrap();
        (0..1000).for_each(|_| sender.send(()).unwrap());
        drop(sender);
        pool.wait();
        let counts = pool.counts.lock();
        assert_eq!((counts.threads, counts.idle), (0, 0));
    }

    #[test]
    fn threads_of_no_use_end() {
        let (sender, things) = channel::<()>();
        let pool = Pool::start("test", things, || false, |()| ()).unwrap();
        pool.wait();
        assert!(sender.send(()).is_ok_and(|()| pool.counts.lock().threads == 0));
    }
}

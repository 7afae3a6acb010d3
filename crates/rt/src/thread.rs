//! Threads of the runtime. Logic owns none: it has `step()` functions that these threads call.

use std::time::Duration;

#[cfg(feature = "shuttle")]
use shuttle::thread as system;
#[cfg(not(feature = "shuttle"))]
use std::thread as system;

/// A thread that can be joined.
pub use system::JoinHandle;

/// Starts a named thread. A thread of a [`crate::schedule`] must not start one, because it would wait for no turn.
#[allow(clippy::disallowed_methods, reason = "this is the seam")]
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    assert!(!crate::schedule::is_scheduled(), "a thread of a schedule starts no others");
    system::Builder::new().name(name.to_owned()).spawn(body)
}

/// How many processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A flag that ends a loop, and a wait that the flag interrupts: for a thread that does something periodically.
///
/// A thread that must also be woken when there is work uses a [`Signal`].
#[derive(Debug, Default)]
pub struct Stop {
    stopped: crate::sync::Mutex<bool>,
    changed: crate::sync::Condvar,
}

impl Stop {
    /// Tells all waiting threads to end.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for `timeout` or until [`Stop::stop`]. Returns whether it was stopped.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, timeout);
        }
        *stopped
    }
}

/// Wakes and ends a thread that works as long as there is work, and waits otherwise.
#[derive(Debug, Default)]
pub struct Signal {
    state: crate::sync::Mutex<SignalState>,
    changed: crate::sync::Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    stopped: bool,
    /// Counts wakes, so that a wake while the thread works is not lost.
    wakes: u64,
}

impl Signal {
    /// Waits for a wake after number `seen`. Returns the present number, or None when stopped.
    pub fn wait(&self, seen: u64, timeout: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        if !state.stopped && state.wakes == seen {
            self.changed.wait_for(&mut state, timeout);
        }
        if state.stopped { None } else { Some(state.wakes) }
    }

    /// Wakes the thread, because there is work.
    pub fn wake(&self) {
        self.state.lock().wakes += 1;
        self.changed.notify_all();
    }

    /// Tells the thread to end, or allows another one to begin.
    pub fn set_stopped(&self, stopped: bool) {
        self.state.lock().stopped = stopped;
        self.changed.notify_all();
    }
}

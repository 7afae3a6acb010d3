//! Threads of the runtime. Logic owns none: it has `step()` functions that these call.

use std::time::Duration;

#[cfg(feature = "shuttle")]
use shuttle::thread as system;
#[cfg(not(feature = "shuttle"))]
use std::thread as system;

/// A thread that can be joined.
pub use system::JoinHandle;

/// Starts a named thread. A thread of a [`crate::schedule`] starts none: it would wait for no turn.
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

/// A flag that ends a loop and a wait that the flag interrupts.
#[derive(Debug, Default)]
pub struct Stop {
    stopped: crate::sync::Mutex<bool>,
    changed: crate::sync::Condvar,
}

impl Stop {
    /// Asks everyone who waits here to end.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for `timeout` or until [`Stop::stop`]; true when stopped.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, timeout);
        }
        *stopped
    }
}

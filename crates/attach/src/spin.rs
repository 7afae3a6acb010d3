//! Waiting for a moment without a system call.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often a waiting thread looks at most before it sleeps. With a pause of about 40 ns between two looks, that is a
/// few times as long as it takes the kernel to wake a thread.
const LOOKS_MAX: usize = 1000;
/// With so few looks, the threads of this process have spun in vain for some time.
const LOOKS_MIN: usize = 8;
/// Every wait of this number tries for long again.
const RETRY: usize = 256;

/// Decides how long threads spin. On a busy machine, or if answers take long, spinning only takes the processor away
/// from the thread that is waited for. So every wait in vain halves the time, and every success doubles it.
pub(crate) struct Spinning {
    /// The number of threads that spin now.
    threads: AtomicUsize,
    looks: AtomicUsize,
    waits: AtomicUsize,
}

impl Spinning {
    pub(crate) const fn new() -> Spinning {
        Spinning {
            threads: AtomicUsize::new(0),
            looks: AtomicUsize::new(LOOKS_MAX),
            waits: AtomicUsize::new(0),
        }
    }

    /// Whether the condition became true within some microseconds.
    pub(crate) fn until(&self, is_true: impl Fn() -> bool) -> bool {
        if is_true() {
            return true;
        }
        // More than half of the processors would take the time from the threads that they wait for.
        let others = self.threads.fetch_add(1, Ordering::Relaxed);
        let became_true = others < threads_max() && self.spin(is_true);
        self.threads.fetch_sub(1, Ordering::Relaxed);
        became_true
    }

    fn spin(&self, is_true: impl Fn() -> bool) -> bool {
        let retries = self.waits.fetch_add(1, Ordering::Relaxed).is_multiple_of(RETRY);
        let learned = self.looks.load(Ordering::Relaxed);
        let looks = if retries { LOOKS_MAX } else { learned };
        let became_true = (0..looks).any(|_| {
            std::hint::spin_loop();
            is_true()
        });
        let next = match became_true {
            true => (learned * 2).min(LOOKS_MAX),
            false => (learned / 2).max(LOOKS_MIN),
        };
        self.looks.store(next, Ordering::Relaxed);
        became_true
    }
}

fn threads_max() -> usize {
    static HALF: OnceLock<usize> = OnceLock::new();
    *HALF.get_or_init(|| rt::thread::processors() / 2)
}

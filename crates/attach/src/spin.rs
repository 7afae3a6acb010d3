//! Waiting for a moment without a system call.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often a waiting thread looks before it sleeps. With a pause of about 40 ns between two looks, that is about as
/// long as it takes the kernel to wake a thread.
const LOOKS: usize = 500;
/// After this number of looks, another thread may run.
const YIELD: usize = 50;

/// Limits the number of threads that spin at the same time. More than half of the processors would take the time from
/// the threads that they wait for.
pub(crate) struct Spinning(AtomicUsize);

impl Spinning {
    pub(crate) const fn new() -> Spinning {
        Spinning(AtomicUsize::new(0))
    }

    /// Whether the condition became true within some microseconds.
    pub(crate) fn until(&self, is_true: impl Fn() -> bool) -> bool {
        if is_true() {
            return true;
        }
        let others = self.0.fetch_add(1, Ordering::Relaxed);
        let may_spin = others < spinning_max();
        let became_true = may_spin
            && (1..=LOOKS).any(|look| {
                match look.is_multiple_of(YIELD) {
                    true => std::thread::yield_now(),
                    false => std::hint::spin_loop(),
                }
                is_true()
            });
        self.0.fetch_sub(1, Ordering::Relaxed);
        became_true
    }
}

fn spinning_max() -> usize {
    static HALF: OnceLock<usize> = OnceLock::new();
    *HALF.get_or_init(|| rt::thread::processors() / 2)
}

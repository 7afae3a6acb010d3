//! Threads under Shuttle: in a build with the feature `shuttle`, [`crate::sync`] and [`crate::thread`] use Shuttle.
//! Its threads are coroutines of one thread. Before each step that other threads could see (a lock, a wait, a
//! notification, an atomic), Shuttle chooses the thread that continues.
//!
//! [`explore`] runs one body many times, in orders that follow from a seed. Comparison with [`crate::schedule`]: a
//! schedule runs the product as it ships and switches threads at device commands and at some locks. Shuttle needs a
//! build of its own and can switch at every lock and every atomic. It finds failing assertions, and deadlocks in
//! which no thread can continue.
//!
//! Other primitives must not wait for another thread: `std`'s channels, `OnceLock` and joined threads would wait for
//! ever, because that thread is the same one. Below `fs` there are none.

pub mod sync;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Bytes of each thread's stack. Recovery keeps whole blocks there.
const STACK: usize = 1 << 20;
/// An execution with more steps counts as endless.
const STEPS_MAX: usize = 20_000_000;

/// How Shuttle chooses the next thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any thread, at each step.
    Random,
    /// The first thread in a random order of priorities that changes this often, less one. So some thread is delayed
    /// for long (Burckhardt et al., ASPLOS 2010).
    Priorities(usize),
}

/// Runs `body`, with all threads that it starts, in `schedules` orders that follow from `seed`.
///
/// # Panics
/// If one of its threads panics, or if none of them can continue.
pub fn explore(choice: Choice, seed: u64, schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let scheduler: Box<dyn Scheduler + Send> = match choice {
        Choice::Random => Box::new(RandomScheduler::new_from_seed(seed, schedules)),
        Choice::Priorities(depth) => Box::new(PctScheduler::new_from_seed(seed, depth, schedules)),
    };
    let mut config = Config::new();
    config.stack_size = STACK;
    // The seed repeats the order. A printed schedule would be as long as the execution.
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let ran = Runner::new(scheduler, config).run(body);
    assert_eq!(ran, schedules, "every order was tried");
}

/// A random number that follows from the seed of [`explore`] and from the order so far.
pub fn random() -> u64 {
    use shuttle::rand::RngCore;
    shuttle::rand::thread_rng().next_u64()
}

#[cfg(test)]
mod tests;

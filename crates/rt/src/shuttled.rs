//! Threads under Shuttle: in a build with the feature `shuttle`, [`crate::sync`] and [`crate::thread`] are made of
//! Shuttle's parts. Its threads are coroutines of one thread, and before each step that
//! others could see (a lock, a wait, a notification, an atomic) it chooses who goes on.
//!
//! [`explore`] runs one body many times, in orders that follow from a seed. How it differs from [`crate::schedule`]:
//! that one runs the product as it ships, and gives the turn away at commands of devices and at some locks; this one
//! needs a build of its own, and may give it away at every lock and every atomic. What it finds: an assertion that
//! fails, and a deadlock, which is when nobody can go on.
//!
//! What is not Shuttle's must not wait for another thread: `std`'s channels, `OnceLock` and joined threads would wait
//! for ever, because that thread is the same one. Below `fs` there are none.

pub mod sync;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Bytes of each thread's stack: recovery keeps whole blocks there.
const STACK: usize = 1 << 20;
/// Steps after which an execution counts as one that never ends.
const STEPS_MAX: usize = 20_000_000;

/// How Shuttle chooses who goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Anybody, at each step.
    Random,
    /// Whoever stands first in an order that is drawn at the beginning and changed so many times, less one: orders
    /// in which somebody is held up for long (Burckhardt et al., ASPLOS 2010).
    Priorities(usize),
}

/// Runs `body`, with all threads that it starts, in so many orders that follow from `seed`.
///
/// # Panics
/// When one of its threads does, and when none of them can go on.
pub fn explore(choice: Choice, seed: u64, schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let scheduler: Box<dyn Scheduler + Send> = match choice {
        Choice::Random => Box::new(RandomScheduler::new_from_seed(seed, schedules)),
        Choice::Priorities(depth) => Box::new(PctScheduler::new_from_seed(seed, depth, schedules)),
    };
    let mut config = Config::new();
    config.stack_size = STACK;
    // The seed repeats it; a schedule in words is as long as what was done.
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let ran = Runner::new(scheduler, config).run(body);
    assert_eq!(ran, schedules, "every order was tried");
}

/// A number that follows from the seed of [`explore`] and from the order so far.
pub fn random() -> u64 {
    use shuttle::rand::RngCore;
    shuttle::rand::thread_rng().next_u64()
}

#[cfg(test)]
mod tests;

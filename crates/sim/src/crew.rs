//! Threads that share work, and a watchdog for them. A thread that hangs ends the process, because it cannot be
//! stopped. So does a thread that panics outside of [`crate::caught`], because its remaining work and its counts are
//! lost.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rt::sync::{Condvar, Mutex};
use rt::{Clock, SystemClock};

/// A case that takes longer than this hangs, unless the caller gives another limit.
const HUNG_AFTER: Duration = Duration::from_secs(60);

struct Crew {
    clock: SystemClock,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// For each thread its current case, and when it began (monotonic nanoseconds).
    working: Vec<Option<(String, u64)>>,
    /// Threads that have not ended.
    left: usize,
    /// The case in which a thread panicked.
    panicked: Option<String>,
}

/// Why the run cannot continue. Contains the command that repeats it.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Hung(Duration, String),
    Panicked(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Hung(after, case) => {
                write!(f, "HUNG: nothing came back for {after:?}\n  repeat with: {case}")
            }
            Ended::Panicked(case) => write!(f, "FAILED: a thread panicked\n  repeat with: {case}"),
        }
    }
}

/// One of the threads.
pub struct Member {
    crew: Arc<Crew>,
    number: usize,
}

impl Member {
    /// The thread begins with this case: the command that repeats it.
    pub fn began(&self, case: String) {
        let now = self.crew.clock.monotonic_ns();
        self.crew.state.lock().working[self.number] = Some((case, now));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.crew.state.lock();
        let case = state.working[self.number].take();
        if std::thread::panicking() {
            state.panicked = Some(case.map_or("none: it had not begun".to_owned(), |(case, _)| case));
        }
        state.left -= 1;
        self.crew.changed.notify_all();
    }
}

/// Runs `work` on one thread for each processor, and waits until all have finished.
pub fn share(work: impl Fn(&Member) + Send + Sync + 'static) {
    share_patiently(HUNG_AFTER, work);
}

/// The same, with another time limit for a case.
pub fn share_patiently(hung_after: Duration, work: impl Fn(&Member) + Send + Sync + 'static) {
    if let Err(ended) = try_to_share(hung_after, work) {
        println!("{ended}");
        std::process::exit(3);
    }
}

fn try_to_share(hung_after: Duration, work: impl Fn(&Member) + Send + Sync + 'static) -> Result<(), Ended> {
    let members = rt::thread::processors();
    let state = Mutex::new(State { working: vec![None; members], left: members, panicked: None });
    let crew = Arc::new(Crew { clock: SystemClock::new(), state, changed: Condvar::new() });
    let work = Arc::new(work);
    for number in 0..members {
        let (work, member) = (Arc::clone(&work), Member { crew: Arc::clone(&crew), number });
        rt::thread::spawn("crew", move || work(&member)).expect("the system has threads");
    }
    let mut state = crew.state.lock();
    loop {
        if let Some(case) = state.panicked.take() {
            return Err(Ended::Panicked(case));
        }
        if state.left == 0 {
            return Ok(());
        }
        let now = crew.clock.monotonic_ns();
        let hangs =
            |(_, since): &&(String, u64)| u128::from(now.saturating_sub(*since)) > hung_after.as_nanos();
        if let Some((case, _)) = state.working.iter().flatten().find(hangs) {
            return Err(Ended::Hung(hung_after, case.clone()));
        }
        crew.changed.wait_for(&mut state, Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An uncaught panic once ended one thread silently. Its remaining work was not done, and the run seemed to pass.
    #[test]
    fn a_thread_that_panics_fails_the_run() {
        assert_eq!(try_to_share(HUNG_AFTER, |member| member.began("sound".to_owned())), Ok(()));
        let ended = try_to_share(HUNG_AFTER, |member| {
            member.began(format!("thread {}", member.number));
            assert_ne!(member.number, 0, "on purpose");
        });
        assert_eq!(ended, Err(Ended::Panicked("thread 0".to_owned())));
        let ended = try_to_share(HUNG_AFTER, |_| panic!("on purpose"));
        assert!(matches!(ended, Err(Ended::Panicked(case)) if case.starts_with("none")));
    }
}

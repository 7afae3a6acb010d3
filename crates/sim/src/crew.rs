//! Threads that share work, and a look at each of them from outside: one that hangs ends the process, because
//! nothing can stop it.

use std::sync::Arc;
use std::time::Duration;

use rt::sync::{Condvar, Mutex};
use rt::{Clock, SystemClock};

/// After so long in one case something hangs.
const HUNG_AFTER: Duration = Duration::from_secs(60);

struct Crew {
    clock: SystemClock,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// For each thread the case it is at, and since when (monotonic nanoseconds).
    working: Vec<Option<(String, u64)>>,
    /// Threads that have not ended.
    left: usize,
}

/// One of the threads.
pub struct Member {
    crew: Arc<Crew>,
    number: usize,
}

impl Member {
    /// It begins with this case: the command that repeats it.
    pub fn began(&self, case: String) {
        let now = self.crew.clock.monotonic_ns();
        self.crew.state.lock().working[self.number] = Some((case, now));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.crew.state.lock();
        state.working[self.number] = None;
        state.left -= 1;
        self.crew.changed.notify_all();
    }
}

/// Lets a thread for each processor do this, and waits until all have.
pub fn share(work: impl Fn(&Member) + Send + Sync + 'static) {
    let members = rt::thread::processors();
    let state = Mutex::new(State { working: vec![None; members], left: members });
    let crew = Arc::new(Crew { clock: SystemClock::new(), state, changed: Condvar::new() });
    let work = Arc::new(work);
    for number in 0..members {
        let (work, member) = (Arc::clone(&work), Member { crew: Arc::clone(&crew), number });
        rt::thread::spawn("crew", move || work(&member)).expect("the system gives us threads");
    }
    let mut state = crew.state.lock();
    while state.left > 0 {
        crew.changed.wait_for(&mut state, Duration::from_secs(1));
        let now = crew.clock.monotonic_ns();
        let hangs =
            |(_, since): &&(String, u64)| u128::from(now.saturating_sub(*since)) > HUNG_AFTER.as_nanos();
        if let Some((case, _)) = state.working.iter().flatten().find(hangs) {
            println!("HUNG: nothing came back for {HUNG_AFTER:?}\n  repeat with: {case}");
            std::process::exit(3);
        }
    }
}

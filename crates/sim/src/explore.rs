//! Cuts the power at every device command of a run, under every plan, and again after the recovery.
//!
//! The run is recorded once, and every image is made from the recording. Images are independent, so threads share the
//! work. After each cut, the volume is recovered on an image that is recorded as well. The recovery, and the steps
//! after it, are cut like the run. A [`Thoroughness`] gives the number of second and third cuts. Their choice follows
//! from the seed alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emulated::{CrashPlan, Emulated, Spec};
use rt::random::Rng;
use rt::sync::{Condvar, Mutex};
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use zone::{Device, ZoneId, ZoneState};

use crate::case::{Case, Cut, Loss, Run};
use crate::caught::{Wrong, caught};
use crate::digest::mix;
use crate::history::{History, State};
use crate::report::{Counts, Failure};
use crate::shows::{Shown, Sign};

/// A volume under test, and the scenario that runs on it.
pub trait Subject: Send + Sync + 'static {
    /// The state to compare.
    type State: State;

    /// The identity of the run.
    fn run_id(&self) -> &Run;

    /// The device.
    fn spec(&self) -> Spec;

    /// Signs that must rise in the part of the run that is cut.
    fn shows(&self) -> &[Sign];

    /// Makes a volume on an empty device, begins to record, and runs the scenario. The recording may begin earlier,
    /// and may be on another device than `device`.
    fn run(&self, device: &Arc<Emulated>) -> Result<Ran<Self::State>, Wrong>;

    /// Recovers a volume, checks it, finds its state among the allowed ones, and continues with a few steps. `round`
    /// counts the cuts.
    fn recover(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<Self::State>],
        round: usize,
    ) -> Result<Recovered<Self::State>, Wrong>;
}

/// A finished run.
pub struct Ran<S> {
    /// The device with the recording.
    pub device: Arc<Emulated>,
    /// The states that may be found, for each moment.
    pub history: History<S>,
    /// The signs that rose during the recording.
    pub shown: Shown,
}

/// A volume that was found in an allowed state.
pub struct Recovered<S> {
    /// The digest of the found state.
    pub found: u64,
    /// The history of the recovery and of the steps after it.
    pub history: History<S>,
}

/// How many of the possible cuts are made.
#[derive(Clone, Copy, Debug)]
pub struct Thoroughness {
    /// The number of commands that are cut, spread evenly, if the run has more.
    pub commands_max: u64,
    /// Random plans for each command, in addition to those that the device lists.
    pub subsets: u64,
    /// Limit for the plans of each command. If there are more, some are drawn.
    pub plans_max: usize,
    /// One of this many first cuts has second cuts; 0 for none.
    pub second_every: u64,
    /// How many second cuts such a first cut has, each at a random command under a random plan.
    pub seconds: u64,
    /// One of this many second cuts has a third; 0 for none.
    pub third_every: u64,
    /// For one of this many first cuts, every command of the recovery is cut under every plan; 0 for none.
    pub exhaustive_every: u64,
    /// Chains of successive cuts, each in the recovery after the previous one.
    pub chains: u64,
}

impl Thoroughness {
    /// For the gate.
    pub const QUICK: Thoroughness = Thoroughness {
        commands_max: 240,
        subsets: 1,
        plans_max: 4,
        second_every: 8,
        seconds: 1,
        third_every: 4,
        exhaustive_every: 0,
        chains: 1,
    };
    /// For a run of ten minutes.
    pub const FULL: Thoroughness = Thoroughness {
        commands_max: u64::MAX,
        subsets: 3,
        plans_max: 40,
        second_every: 4,
        seconds: 2,
        third_every: 4,
        exhaustive_every: 400,
        chains: 60,
    };
}

/// Cuts of a chain.
const CHAIN: usize = 12;
/// The first zones belong to the log: one in use, one to switch to, and one in reserve in case both come back full.
pub(crate) const LOG_ZONES: usize = 3;
/// While two of them are in use, at one of this many commands both come back full …
const CROWDED_EVERY: u64 = 2;
/// … and so does the remaining one, at this many moments after the recovery, spread evenly, …
const CROWDED_PARTS: u64 = 8;
/// … and this is repeated this many times.
const CROWDED_TIMES: usize = 3;

/// A case that takes longer than this hangs.
const HUNG_AFTER: Duration = Duration::from_secs(60);

/// Runs the scenario once and cuts it. Returns the counts, and the first failing case.
pub fn explore<S: Subject>(subject: Arc<S>, how: Thoroughness) -> (Counts, Option<Failure>) {
    let start = Case { run: subject.run_id().clone(), cuts: Vec::new() };
    let device = Arc::new(Emulated::new(subject.spec()));
    let Ran { device, history, shown } = match run_watched(&subject, &device, &start) {
        Ok(ran) => ran,
        Err(wrong) => return (Counts::default(), Some(Failure { case: start, wrong, idle: false })),
    };
    if let Err(wrong) = shown.check(subject.shows()) {
        return (Counts::default(), Some(Failure { case: start, wrong, idle: true }));
    }
    let resets = shown.of(Sign::Resets);
    let workers = rt::thread::processors();
    let exploration = Arc::new(Exploration {
        subject,
        how,
        run: Level { device, history, case: start, before: 0 },
        next: AtomicU64::new(0),
        next_chain: AtomicU64::new(0),
        clock: SystemClock::new(),
        shared: Mutex::new(Shared {
            counts: Counts { resets, ..Counts::default() },
            failure: None,
            working: vec![None; workers],
            left: workers,
        }),
        changed: Condvar::new(),
    });
    for number in 0..workers {
        let exploration = Arc::clone(&exploration);
        let work = move || Worker { exploration: &exploration, number, counts: Counts::default() }.work();
        rt::thread::spawn("cuts", work).expect("the system has threads");
    }
    exploration.wait()
}

/// Runs the scenario without a cut. Returns the number of commands, the signs, and the error if there is one.
pub fn show<S: Subject>(subject: &Arc<S>) -> (u64, Shown, Option<Wrong>) {
    let start = Case { run: subject.run_id().clone(), cuts: Vec::new() };
    let device = Arc::new(Emulated::new(subject.spec()));
    match run_watched(subject, &device, &start) {
        Ok(ran) => {
            let wrong = ran.shown.check(subject.shows()).err();
            (ran.device.commands(), ran.shown, wrong)
        }
        Err(wrong) => (0, Shown::default(), Some(wrong)),
    }
}

/// Runs the scenario in a thread of its own, so that a hang is noticed.
fn run_watched<S: Subject>(
    subject: &Arc<S>,
    device: &Arc<Emulated>,
    start: &Case,
) -> Result<Ran<S::State>, Wrong> {
    let done = Arc::new(Stop::default());
    let (subject, device, case, over) =
        (Arc::clone(subject), Arc::clone(device), start.clone(), Arc::clone(&done));
    let work = move || {
        rt::random::repeat_from(case.run.seed);
        let ran = caught(&case, || subject.run(&device));
        over.stop();
        ran
    };
    let thread = rt::thread::spawn("run", work).expect("the system has threads");
    if !done.wait(HUNG_AFTER) {
        hung(start);
    }
    thread.join().expect("panics are caught in the thread")
}

/// Ends the process, because a hanging thread cannot be stopped.
fn hung(case: &Case) -> ! {
    println!("HUNG: nothing came back for {HUNG_AFTER:?}\n  repeat with: {case}");
    std::process::exit(3);
}

/// Repeats one case. Returns a description of the state after each of its cuts.
pub fn repeat<S: Subject>(subject: &S, case: &Case) -> Result<String, Wrong> {
    let device = Arc::new(Emulated::new(subject.spec()));
    rt::random::repeat_from(case.run.seed);
    let Ran { mut device, mut history, .. } = caught(case, || subject.run(&device))?;
    let mut story = format!("the run: {} commands\n", device.commands());
    for (round, cut) in case.cuts.iter().enumerate() {
        if cut.at > device.commands() {
            return Err(Wrong(format!(
                "there are {} commands, so none to cut at {}",
                device.commands(),
                cut.at
            )));
        }
        let image = Arc::new(cut.apply(&device));
        let allowed = history.allowed(cut.at).to_vec();
        let so_far = Case { run: case.run.clone(), cuts: case.cuts[..=round].to_vec() };
        rt::random::repeat_from(so_far.choice());
        story += &format!("cut at {} ({}); the device then:\n{}", cut.at, cut.loss, zones(&image));
        let recovered = caught(case, || subject.recover(&image, &allowed, round + 1))
            .map_err(|wrong| Wrong(format!("{story}{} states allowed; {wrong}", allowed.len())))?;
        story += &format!(
            "{} states allowed; recovered {:016x} and gone on, {} commands\n",
            allowed.len(),
            recovered.found,
            image.commands()
        );
        (device, history) = (image, recovered.history);
    }
    Ok(story)
}

/// The zones that are not empty, one line for each.
fn zones(device: &Emulated) -> String {
    let mut lines = String::new();
    for (zone, info) in (0..).map(ZoneId).zip(device.report().unwrap_or_default()) {
        if info.state == ZoneState::Empty {
            continue;
        }
        let mut header = vec![0; device.geometry().block_size as usize];
        let identity = device.read(zone, 0, &mut header).map(|()| zone::format::decode_header(&header));
        let role = match identity {
            Ok(Ok((identity, _))) => format!("{:?}, life {}", identity.role, identity.life.0),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        lines += &format!(
            "  zone {}: {:?} at {} of {}: {role}\n",
            zone.0, info.state, info.pointer, info.capacity
        );
    }
    lines
}

struct Exploration<S: Subject> {
    subject: Arc<S>,
    how: Thoroughness,
    run: Level<S::State>,
    /// The next command to be cut.
    next: AtomicU64,
    /// The next chain.
    next_chain: AtomicU64,
    clock: SystemClock,
    shared: Mutex<Shared>,
    /// A worker has ended.
    changed: Condvar,
}

struct Shared {
    counts: Counts,
    failure: Option<Failure>,
    /// For each worker its current case, and when it began (monotonic nanoseconds).
    working: Vec<Option<(Case, u64)>>,
    /// Workers that have not ended.
    left: usize,
}

/// The target of a cut: a run or a recovery on its device, the allowed states, and the case that led there.
struct Level<S> {
    device: Arc<Emulated>,
    history: History<S>,
    case: Case,
    /// Commands on the device that do not belong to this run: those that a killed process left unflushed.
    before: u64,
}

/// One thread's share of an exploration.
struct Worker<'a, S: Subject> {
    exploration: &'a Exploration<S>,
    number: usize,
    counts: Counts,
}

impl<S: Subject> Worker<'_, S> {
    fn work(mut self) {
        let exploration = self.exploration;
        while let Some(at) = exploration.take() {
            self.counts.commands += 1;
            if let Err(failure) = self.cut_command(&exploration.run, at) {
                exploration.fail(*failure);
            }
        }
        while let Some(number) = exploration.take_chain() {
            if let Err(failure) = self.chain(&exploration.run, number) {
                exploration.fail(*failure);
            }
        }
        let mut shared = exploration.shared.lock();
        shared.counts.add(self.counts);
        shared.working[self.number] = None;
        shared.left -= 1;
        exploration.changed.notify_all();
    }

    /// Cuts at one command of the run, under all plans, with the cuts that follow.
    fn cut_command(&mut self, run: &Level<S::State>, at: u64) -> Result<(), Box<Failure>> {
        let (how, seed) = (self.exploration.how, run.case.run.seed);
        let mut losses = losses(&run.device, at, how.subsets, seed);
        draw(&mut losses, how.plans_max, mix(&[seed, at]));
        for (number, loss) in losses.into_iter().enumerate() {
            let second = self.cut(run, Cut { at, loss })?;
            self.cut_again(&second, Rng::with_seed(mix(&[seed, at, number as u64])))?;
        }
        if at.is_multiple_of(CROWDED_EVERY) && is_crowded(&run.device, at) {
            self.crowd(run, at)?;
        }
        Ok(())
    }

    /// The case that the log is switching zones: both zones come back full, and then the zone in which it continued,
    /// again and again. Random cuts seldom produce this series, and in it no other zone may be available.
    fn crowd(&mut self, run: &Level<S::State>, at: u64) -> Result<(), Box<Failure>> {
        let full = || Loss::Power(CrashPlan::KeepAll.full_active());
        let first = self.cut(run, Cut { at, loss: full() })?;
        for part in 1..=CROWDED_PARTS {
            let mut last = None;
            for _ in 0..CROWDED_TIMES {
                let from = last.as_ref().unwrap_or(&first);
                let at = from.before + (from.device.commands() - from.before) * part / CROWDED_PARTS;
                last = Some(self.cut(from, Cut { at, loss: full() })?);
            }
        }
        self.counts.crowded += 1;
        Ok(())
    }

    /// Cuts the recovery after a first cut.
    fn cut_again(&mut self, second: &Level<S::State>, mut rng: Rng) -> Result<(), Box<Failure>> {
        let how = self.exploration.how;
        if one_in(how.exhaustive_every, &mut rng) {
            for at in second.before..=second.device.commands() {
                for loss in losses(&second.device, at, 0, 0) {
                    self.cut(second, Cut { at, loss })?;
                }
            }
        }
        // The kill leaves unflushed data in the device. The power may lose it later.
        let killed = second.case.cuts.last().is_some_and(|cut| cut.loss == Loss::Killed);
        if killed || one_in(how.second_every, &mut rng) {
            for _ in 0..how.seconds {
                let third = self.cut(second, second.random_cut(&mut rng))?;
                if one_in(how.third_every, &mut rng) {
                    self.cut(&third, third.random_cut(&mut rng))?;
                }
            }
        }
        Ok(())
    }

    /// Loses the power again and again, mostly during recoveries. In most chains the active zones are usually found
    /// full.
    fn chain(&mut self, run: &Level<S::State>, number: u64) -> Result<(), Box<Failure>> {
        let mut rng = Rng::with_seed(mix(&[run.case.run.seed, number, CHAIN as u64]));
        let full = rng.u64(0..4);
        let first = run.random_cut(&mut rng);
        let mut level = self.cut(run, first)?;
        for _ in 1..CHAIN {
            let Cut { at, mut loss } = level.random_cut(&mut rng);
            let in_recovery = (level.before + rng.u64(0..12)).min(level.device.commands());
            let at = if rng.bool() { in_recovery } else { at };
            if !level.can_be(at, &loss) {
                loss = Loss::Power(CrashPlan::Subset(rng.u64(..) >> 24));
            }
            if let Loss::Power(plan) = &loss
                && !matches!(plan, CrashPlan::FullActive(_))
                && rng.u64(0..4) < full
            {
                loss = Loss::Power(plan.clone().full_active());
            }
            level = self.cut(&level, Cut { at, loss })?;
        }
        self.counts.chains += 1;
        Ok(())
    }

    /// One loss of power and the recovery after it.
    fn cut(&mut self, level: &Level<S::State>, cut: Cut) -> Result<Level<S::State>, Box<Failure>> {
        let case = level.case.then(cut.clone());
        self.exploration.began(self.number, &case);
        let device = Arc::new(cut.apply(&level.device));
        let (before, image) = (device.commands(), device.digest_ignoring_noise());
        let allowed = level.history.allowed(cut.at);
        let round = case.cuts.len();
        rt::random::repeat_from(case.choice());
        match caught(&case, || self.exploration.subject.recover(&device, allowed, round)) {
            Ok(Recovered { found, history }) => {
                self.counts.note(&case, image, found);
                Ok(Level { device, history, case, before })
            }
            Err(wrong) => Err(Box::new(Failure { case, wrong, idle: false })),
        }
    }
}

impl<S> Level<S> {
    fn random_cut(&self, rng: &mut Rng) -> Cut {
        random_cut(&self.device, self.before, rng)
    }

    /// Whether this loss is possible after this command: a lost append must have been made.
    fn can_be(&self, at: u64, loss: &Loss) -> bool {
        let Loss::Power(plan) = loss else { return true };
        self.device.plans_at(at).contains(plan)
    }
}

impl<S: Subject> Exploration<S> {
    /// The next command to cut, until there are no more or a case has failed.
    fn take(&self) -> Option<u64> {
        let every = (self.run.device.commands() + 1).div_ceil(self.how.commands_max);
        let at = self.next.fetch_add(1, Ordering::Relaxed) * every;
        (at <= self.run.device.commands() && self.shared.lock().failure.is_none()).then_some(at)
    }

    /// The next chain, until there are no more or a case has failed.
    fn take_chain(&self) -> Option<u64> {
        let number = self.next_chain.fetch_add(1, Ordering::Relaxed);
        (number < self.how.chains && self.shared.lock().failure.is_none()).then_some(number)
    }

    fn began(&self, worker: usize, case: &Case) {
        self.shared.lock().working[worker] = Some((case.clone(), self.clock.monotonic_ns()));
    }

    /// Keeps the failure with the earliest cut.
    fn fail(&self, failure: Failure) {
        let place = |failure: &Failure| failure.case.cuts.iter().map(|cut| cut.at).collect::<Vec<_>>();
        let kept = &mut self.shared.lock().failure;
        if kept.as_ref().is_none_or(|kept| place(&failure) < place(kept)) {
            *kept = Some(failure);
        }
    }

    /// Waits for all workers. Ends the process if one hangs.
    fn wait(&self) -> (Counts, Option<Failure>) {
        let mut shared = self.shared.lock();
        while shared.left > 0 {
            self.changed.wait_for(&mut shared, Duration::from_secs(1));
            let now = self.clock.monotonic_ns();
            let hangs = |(_, since): &&(Case, u64)| u128::from(now - since) > HUNG_AFTER.as_nanos();
            if let Some((case, _)) = shared.working.iter().flatten().find(hangs) {
                hung(case);
            }
        }
        (std::mem::take(&mut shared.counts), shared.failure.take())
    }
}

/// A random cut of a run that began after `before` commands.
pub(crate) fn random_cut(device: &Emulated, before: u64, rng: &mut Rng) -> Cut {
    let at = rng.u64(before..=device.commands());
    let mut losses = losses(device, at, 2, rng.u64(..));
    Cut { at, loss: losses.swap_remove(rng.usize(..losses.len())) }
}

/// Whether two of the log's zones are not empty after this command.
fn is_crowded(device: &Emulated, at: u64) -> bool {
    let report = device.image_at(at, &CrashPlan::KeepAll).report().unwrap_or_default();
    report.iter().take(LOG_ZONES).filter(|info| info.state != ZoneState::Empty).count() > 1
}

/// All losses that are possible right after this command.
fn losses(device: &Emulated, at: u64, subsets: u64, seed: u64) -> Vec<Loss> {
    let mut losses: Vec<Loss> = device.plans_at(at).into_iter().map(Loss::Power).collect();
    losses.push(Loss::Killed);
    losses.extend((0..subsets).map(|number| subset(mix(&[seed, at, number]))));
    losses
}

/// Keeps at most `most` losses: the first, in which everything survives, and a random choice of the others.
fn draw(losses: &mut Vec<Loss>, most: usize, choice: u64) {
    if losses.len() > most {
        Rng::with_seed(choice).shuffle(&mut losses[1..]);
        losses.truncate(most);
    }
}

/// A random plan; one in four has its active zones full.
fn subset(choice: u64) -> Loss {
    let plan = CrashPlan::Subset(choice >> 40);
    Loss::Power(if choice.is_multiple_of(4) { plan.full_active() } else { plan })
}

/// True for one of `every` calls, at random. Never true if `every` is 0.
fn one_in(every: u64, rng: &mut Rng) -> bool {
    every > 0 && rng.u64(0..every) == 0
}

#[cfg(test)]
mod tests;

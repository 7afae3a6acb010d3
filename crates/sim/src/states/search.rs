//! Runs workloads, cuts each of them after every device command, and recovers every state that the device may be
//! found in.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emulated::{CrashPlan, Emulated};
use rt::random::Rng;
use rt::sync::Mutex;
use rt::{Clock, ManualClock, SystemClock, Timestamp};

use super::space::{self, Space, Workload};
use crate::allowed::FilesState;
use crate::case::{Cut, Loss};
use crate::caught::{Wrong, caught};
use crate::crew::{self, Member};
use crate::digest::mix;
use crate::files::{Driver, Volume, afterwards, judge};
use crate::history::{History, State};
use crate::model::{Model, Operation};
use crate::shapes::Shape;

/// The seed of everything except the choice of workloads and states, so that images of all runs can be compared.
const FIXED: u64 = 1;

/// One of this many images is used after its recovery, and loses power again.
const GO_ON_EVERY: u64 = 32;

/// The extent of the search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit for the states of one command. All of them if there are fewer.
    pub states_max: u64,
    /// Limits for the workloads of two and of three operations.
    pub workloads_max: [u64; 2],
    /// The time limit in nanoseconds; 0 for none.
    pub nanoseconds: u64,
    /// Determines the order of workloads, and which states are drawn.
    pub seed: u64,
}

/// The counts of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Workloads of one, two and three operations that ran.
    pub workloads: [u64; 3],
    /// Workloads with a step that is refused. A shorter workload does the same.
    pub impossible: u64,
    /// Device commands after which the power was lost.
    pub commands: u64,
    /// Those of them after which every state was tried.
    pub exhaustive: u64,
    /// States that were checked.
    pub states: u64,
    /// Recoveries: of states whose image was new.
    pub recoveries: u64,
    /// Second losses of power.
    pub seconds: u64,
    /// Distinct images.
    pub images: u64,
    /// Distinct trees found by recovery.
    pub trees: u64,
}

impl Found {
    fn add(&mut self, other: &Found) {
        self.workloads.iter_mut().zip(other.workloads).for_each(|(sum, more)| *sum += more);
        self.impossible += other.impossible;
        self.commands += other.commands;
        self.exhaustive += other.exhaustive;
        self.states += other.states;
        self.recoveries += other.recoveries;
        self.seconds += other.seconds;
    }

    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        let [one, two, three] = self.workloads;
        [
            ("workloads of one operation", one),
            ("workloads of two operations", two),
            ("workloads of three operations", three),
            ("device commands", self.commands),
            ("device commands with every state", self.exhaustive),
            ("states", self.states),
            ("recoveries", self.recoveries),
            ("second cuts", self.seconds),
            ("distinct device images", self.images),
            ("distinct recovered trees", self.trees),
        ]
    }
}

/// A failure, and the command that repeats it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The workload.
    pub workload: String,
    /// The name of the shape of device.
    pub shape: &'static str,
    /// Where the power was lost. Empty if the workload itself failed.
    pub cuts: Vec<Cut>,
    /// The failure.
    pub wrong: Wrong,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indented = self.wrong.0.replace('\n', "\n    ");
        let (shape, workload) = (self.shape, &self.workload);
        write!(
            f,
            "FAILED: {indented}\n  repeat with: polder-sim states --geometry {shape} --workload {workload}"
        )?;
        self.cuts.iter().try_for_each(|cut| write!(f, " --cut {} --plan {}", cut.at, cut.loss))
    }
}

/// A clock whose time of day stands still, so that no image contains the time of its run.
struct Still {
    now: Timestamp,
    monotonic: Arc<ManualClock>,
}

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic.monotonic_ns()
    }
}

/// A workload that ran: its device with the recording, and the states that may be found, for each moment.
struct Ran {
    device: Arc<Emulated>,
    history: History<FilesState>,
    /// Where its last operation begins. A shorter workload cuts the operations before it.
    last_begins: u64,
}

/// A search in the space of workloads on one shape of device.
pub struct Search {
    space: Space,
    shape: Shape,
    /// The volume with which every workload begins, unmounted.
    start: Emulated,
    model: Model,
    limits: Limits,
    clock: SystemClock,
    /// The next turn, and the next numbers of workloads of two and of three operations.
    next: [AtomicU64; 3],
    /// The state that was found on each image, in parts with locks of their own.
    images: Vec<Mutex<HashMap<u64, u64>>>,
    trees: Mutex<HashSet<u64>>,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    found: Found,
    failure: Option<Failure>,
}

impl Search {
    /// Creates the volume with which workloads begin.
    pub fn new(shape: Shape, limits: Limits) -> Result<Search, Wrong> {
        let mut search = Search {
            space: Space::new(),
            start: Emulated::new(shape.spec.clone().seed(FIXED)),
            model: Model::new(shape.spec.block_size as usize),
            shape,
            limits,
            clock: SystemClock::new(),
            next: Default::default(),
            images: (0..64).map(|_| Mutex::default()).collect(),
            trees: Mutex::default(),
            shared: Mutex::default(),
        };
        search.prepare()?;
        Ok(search)
    }

    /// The space of workloads.
    pub fn space(&self) -> &Space {
        &self.space
    }

    fn prepare(&mut self) -> Result<(), Wrong> {
        rt::random::repeat_from(FIXED);
        let device = Arc::new(Emulated::new(self.shape.spec.clone().seed(FIXED)));
        self.volume().format(&device)?;
        let mut driver = self.driver(&device, History::from(FilesState::new(self.model.clone())))?;
        driver.run(&space::prepare(self.block()))?;
        driver.restart()?;
        self.model = driver.history.newest().model.clone();
        driver.fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
        self.start = device.image(&CrashPlan::KeepAll);
        self.start.record();
        Ok(())
    }

    fn volume(&self) -> Volume {
        Volume { page_size: self.shape.page_size, groups: 2, cache_bytes: 8 << 20 }
    }

    fn block(&self) -> u64 {
        u64::from(self.shape.spec.block_size)
    }

    fn still(&self, monotonic: &Arc<ManualClock>) -> Arc<Still> {
        Arc::new(Still { now: monotonic.now(), monotonic: Arc::clone(monotonic) })
    }

    fn driver(&self, device: &Arc<Emulated>, history: History<FilesState>) -> Result<Driver, Wrong> {
        let clock = Volume::clock();
        let fs = self.volume().mount(device, self.still(&clock))?;
        Ok(Driver::new(fs, Arc::clone(device), clock, history, Rng::with_seed(FIXED), 0))
    }

    /// Searches with one thread for each processor. Returns the counts and the first failure.
    pub fn run(self: &Arc<Self>) -> (Found, Option<Failure>) {
        let search = Arc::clone(self);
        crew::share(move |member| Worker { search: &search, found: Found::default() }.work(member));
        let shared = self.shared.lock();
        let mut found = shared.found.clone();
        found.images = self.images.iter().map(|part| part.lock().len() as u64).sum();
        found.trees = self.trees.lock().len() as u64;
        (found, shared.failure.clone())
    }

    /// Whether every workload of this many operations was begun, including impossible ones. Call after `run`.
    pub fn has_taken_all(&self, operations: u32) -> bool {
        self.next[operations as usize - 1].load(Ordering::Relaxed) >= self.space.count(operations)
    }

    /// The next workload: all of one operation, then of two and three, in an order that follows from the seed.
    fn take(&self) -> Option<Workload> {
        let limits = &self.limits;
        let over = limits.nanoseconds > 0 && self.clock.monotonic_ns() > limits.nanoseconds;
        if over || self.shared.lock().failure.is_some() {
            return None;
        }
        let turn = self.next[0].fetch_add(1, Ordering::Relaxed);
        let one = self.space.count(1);
        if turn < one {
            return Some(self.space.workload(1, shuffled(turn, one, limits.seed)));
        }
        // Longer workloads take turns: one of three operations for three of two.
        let order = if turn % 4 == 3 { [3, 2] } else { [2, 3] };
        order.into_iter().find_map(|operations| {
            let (count, most) = (self.space.count(operations), limits.workloads_max[operations as usize - 2]);
            let number = self.next[operations as usize - 1].fetch_add(1, Ordering::Relaxed);
            (number < count.min(most))
                .then(|| self.space.workload(operations, shuffled(number, count, limits.seed)))
        })
    }

    /// Runs a workload from the start. Afterwards waits until everything becomes durable through the commit interval.
    fn play(&self, workload: &Workload) -> Result<Ran, Wrong> {
        rt::random::repeat_from(FIXED);
        let device = Arc::new(self.start.image_at(0, &CrashPlan::KeepAll));
        let mut driver = self.driver(&device, History::from(FilesState::new(self.model.clone())))?;
        driver.restart()?;
        let mut last_begins = 0;
        for (place, step) in (0..).zip(&workload.steps) {
            last_begins = device.commands();
            driver.run(&step.operations(self.block(), place))?;
        }
        driver.run(&[Operation::Wait { nanoseconds: 6_000_000_000 }, Operation::Steps { count: 2 }])?;
        if workload.checkpoint {
            driver.run(&[Operation::Checkpoint, Operation::Steps { count: 3 }])?;
        }
        Ok(Ran { device, history: driver.history, last_begins })
    }

    /// Recovers an image. Returns the found state, and the history of the following steps if there are any.
    fn recover(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<FilesState>],
        go_on: bool,
    ) -> Result<(u64, History<FilesState>), Wrong> {
        rt::random::repeat_from(FIXED);
        let (clock, mut history) = (Volume::clock(), History::recovering(allowed));
        let fs = self.volume().mount(device, self.still(&clock))?;
        let mounted = device.commands();
        let found = judge(&fs, allowed)?;
        let digest = found.digest();
        history.settle(mounted, Arc::new(found));
        if go_on {
            let rng = Rng::with_seed(FIXED);
            let mut driver = Driver::new(fs, Arc::clone(device), clock, history, rng, 0);
            driver.run(&afterwards(1, FIXED, self.block() as usize))?;
            history = driver.history;
        }
        Ok((digest, history))
    }

    fn part(&self, image: u64) -> &Mutex<HashMap<u64, u64>> {
        &self.images[(image % self.images.len() as u64) as usize]
    }

    /// Repeats one case. Returns a description of the state after each cut.
    pub fn repeat(&self, workload: &Workload, cuts: &[Cut]) -> Result<String, Wrong> {
        let Ran { mut device, mut history, .. } = caught(workload, || self.play(workload))?;
        let mut story = format!("the workload: {} commands\n", device.commands());
        for cut in cuts {
            if cut.at > device.commands() {
                return Err(Wrong(format!(
                    "there are {} commands, none to cut at {}",
                    device.commands(),
                    cut.at
                )));
            }
            let image = Arc::new(cut.apply(&device));
            let allowed = history.allowed(cut.at).to_vec();
            let recovered = caught(workload, || self.recover(&image, &allowed, true)).map_err(|wrong| {
                Wrong(format!("{story}{cut:?}: {} states allowed; {wrong}", allowed.len()))
            })?;
            story += &format!("cut at {} ({}): {} states allowed; ", cut.at, cut.loss, allowed.len());
            story += &format!("recovered {:016x} and gone on, {} commands\n", recovered.0, image.commands());
            (device, history) = (image, recovered.1);
        }
        Ok(story)
    }
}

/// A permutation of the numbers below `count`, one for each seed.
fn shuffled(number: u64, count: u64, seed: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut stride = (mix(&[seed, count]) % count) | 1;
    while gcd(stride, count) != 1 {
        stride += 2;
    }
    let product = u128::from(number) * u128::from(stride) + u128::from(mix(&[seed]));
    (product % u128::from(count)) as u64
}

/// One thread of the search.
struct Worker<'a> {
    search: &'a Search,
    found: Found,
}

impl Worker<'_> {
    fn work(mut self, member: &Member) {
        let search = self.search;
        while let Some(workload) = search.take() {
            if !space::is_possible(&workload, &search.model, search.block()) {
                self.found.impossible += 1;
                continue;
            }
            let text = workload.to_string();
            member.began(format!("polder-sim states --geometry {} --workload {text}", search.shape.name));
            self.found.workloads[workload.steps.len() - 1] += 1;
            if let Err((cuts, wrong)) = self.cut_all(&workload, &text) {
                let failure = Failure { workload: text, shape: search.shape.name, cuts, wrong };
                search.shared.lock().failure.get_or_insert(failure);
            }
        }
        search.shared.lock().found.add(&self.found);
    }

    fn cut_all(&mut self, workload: &Workload, text: &str) -> Result<(), (Vec<Cut>, Wrong)> {
        let ran = caught(text, || self.search.play(workload)).map_err(|wrong| (Vec::new(), wrong))?;
        let choice = text.bytes().fold(self.search.limits.seed, |sum, byte| mix(&[sum, byte.into()]));
        for at in ran.last_begins..=ran.device.commands() {
            self.found.commands += 1;
            let mut rng = Rng::with_seed(mix(&[choice, at]));
            for plan in self.plans(&ran.device, at, &mut rng) {
                self.cut(text, &ran, Cut { at, loss: Loss::Power(plan) })?;
            }
        }
        Ok(())
    }

    /// All states after this command, or a selection.
    fn plans(&mut self, device: &Emulated, at: u64, rng: &mut Rng) -> Vec<CrashPlan> {
        let most = self.search.limits.states_max;
        let count = device.states_at(at);
        if let Some(count) = count.filter(|&count| count <= most) {
            self.found.exhaustive += 1;
            return (0..count).map(CrashPlan::State).collect();
        }
        let mut plans = device.plans_at(at);
        rng.shuffle(&mut plans[1..]);
        plans.truncate((most / 2) as usize);
        while (plans.len() as u64) < most {
            plans.push(match count {
                Some(count) if rng.bool() => CrashPlan::State(rng.u64(0..count)),
                _ => CrashPlan::Subset(rng.u64(..) >> 40),
            });
        }
        plans
    }

    /// Checks one state: by the tree that was found on its image, now or before.
    fn cut(&mut self, text: &str, ran: &Ran, cut: Cut) -> Result<(), (Vec<Cut>, Wrong)> {
        let search = self.search;
        self.found.states += 1;
        let device = Arc::new(cut.apply(&ran.device));
        let image = device.digest_ignoring_noise();
        let allowed = ran.history.allowed(cut.at);
        let seen = search.part(image).lock().get(&image).copied();
        if seen.is_some_and(|found| allowed.iter().any(|state| state.digest() == found)) {
            return Ok(());
        }
        self.found.recoveries += 1;
        let go_on = mix(&[image]).is_multiple_of(GO_ON_EVERY);
        let (found, history) = caught(text, || search.recover(&device, allowed, go_on))
            .map_err(|wrong| (vec![cut.clone()], wrong))?;
        search.part(image).lock().insert(image, found);
        search.trees.lock().insert(found);
        if go_on {
            self.cut_again(text, cut, &device, &history)?;
        }
        Ok(())
    }

    /// A second loss of power, during the recovery from the first or during the steps after it.
    fn cut_again(
        &mut self,
        text: &str,
        first: Cut,
        device: &Arc<Emulated>,
        history: &History<FilesState>,
    ) -> Result<(), (Vec<Cut>, Wrong)> {
        self.found.seconds += 1;
        let mut rng = Rng::with_seed(mix(&[self.search.limits.seed, device.digest_ignoring_noise()]));
        let at = rng.u64(0..=device.commands());
        let plan = match device.states_at(at) {
            Some(count) => CrashPlan::State(rng.u64(0..count)),
            None => CrashPlan::Subset(rng.u64(..) >> 40),
        };
        let cut = Cut { at, loss: Loss::Power(plan) };
        let image = Arc::new(cut.apply(device));
        let recovered = caught(text, || self.search.recover(&image, history.allowed(at), false));
        recovered.map(|_| ()).map_err(|wrong| (vec![first, cut], wrong))
    }
}

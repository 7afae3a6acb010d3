//! The file system under one scenario on one shape of device.

use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions};
use rt::random::Rng;
use rt::{ManualClock, Timestamp};
use zone::emulated::{Emulated, Spec};
use zone::{Device, FsId};

use super::driver::Driver;
use super::observe;
use super::scenarios::Scenario;
use crate::allowed::FilesState;
use crate::case::Run;
use crate::caught::Wrong;
use crate::digest::mix;
use crate::explore::{Ran, Recovered, Subject};
use crate::history::{History, State};
use crate::model::{File, Model, Operation};
use crate::shapes::Shape;
use crate::shows::Sign;

/// The clock of every simulated volume begins here.
const BEGINNING: Timestamp = Timestamp(1_600_000_000_000_000_000);

/// A scenario on a shape of device.
pub struct FilesSubject {
    run: Run,
    scenario: Scenario,
    shape: Shape,
}

impl FilesSubject {
    /// This run.
    pub fn new(scenario: Scenario, shape: Shape, seed: u64) -> Self {
        FilesSubject { run: Run { scenario: scenario.name, shape: shape.name, seed }, scenario, shape }
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::new(ManualClock::at(BEGINNING))
    }

    fn format(&self, device: &Arc<Emulated>) -> Result<(), Wrong> {
        let options = FormatOptions {
            label: "sim".to_owned(),
            fs_id: FsId([7; 16]),
            uid: 0,
            gid: 0,
            page_size: Some(self.shape.page_size),
            groups: Some(self.scenario.groups),
        };
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        Fs::format(&device, &options, self.clock().as_ref()).map_err(|error| Wrong::at("format", error))
    }

    fn mount(&self, device: &Arc<Emulated>, clock: &Arc<ManualClock>) -> Result<Arc<Fs>, Wrong> {
        let options = MountOptions {
            cache_bytes: self.scenario.cache_bytes,
            read_only: false,
            commit_interval_ns: 5_000_000_000,
            clock: Arc::clone(clock) as _,
        };
        let mounted = Fs::mount(Arc::clone(device) as _, options);
        mounted.map(|(fs, _)| fs).map_err(|error| Wrong::at("mount", error))
    }

    fn block_size(&self) -> usize {
        self.shape.spec.block_size as usize
    }
}

/// What is done after each recovery: a little, an fsync, a little more; no checkpoint is asked for.
fn afterwards(round: usize, seed: u64, block_size: usize) -> Vec<Operation> {
    let (first, second) = (format!("after-{round}-a"), format!("after-{round}-b"));
    let tag = |number| mix(&[seed, round as u64, number]);
    let file = |path: &String| File::Path(path.clone());
    vec![
        Operation::Create { path: first.clone() },
        Operation::Write { file: file(&first), offset: 0, length: block_size + 77, tag: tag(1) },
        Operation::Create { path: second.clone() },
        Operation::Fsync { file: file(&first), data_only: false },
        Operation::Write { file: file(&second), offset: 0, length: 100, tag: tag(2) },
        Operation::Write { file: file(&first), offset: 9, length: block_size, tag: tag(3) },
        Operation::ReadBack { file: file(&first) },
        Operation::Rename { from: first, to: second },
    ]
}

impl Subject for FilesSubject {
    type State = FilesState;

    fn run_id(&self) -> &Run {
        &self.run
    }

    fn shows(&self) -> &[Sign] {
        self.scenario.shows
    }

    fn spec(&self) -> Spec {
        self.shape.spec.clone().seed(self.run.seed)
    }

    fn run(&self, device: &Arc<Emulated>) -> Result<Ran<FilesState>, Wrong> {
        self.format(device)?;
        let clock = self.clock();
        let fs = self.mount(device, &clock)?;
        let history = History::from(FilesState::new(Model::new(self.block_size())));
        let rng = Rng::with_seed(self.run.seed);
        let steps_before = if self.scenario.idle_before { 0 } else { self.scenario.steps_between };
        let mut driver = Driver::new(fs, Arc::clone(device), clock, history, rng, steps_before);
        let plan = (self.scenario.plan)(&self.shape, self.run.seed);
        driver.run(&plan.prepare)?;
        driver.steps_between = self.scenario.steps_between;
        driver.restart()?;
        let before = driver.reading();
        driver.run(&plan.cut)?;
        driver.run_until(&plan.until_shown, &before, self.scenario.shows)?;
        let shown = driver.reading().since(&before);
        Ok(Ran { device: Arc::clone(device), history: driver.history, shown })
    }

    fn recover(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<FilesState>],
        round: usize,
    ) -> Result<Recovered<FilesState>, Wrong> {
        let mut history = History::recovering(allowed);
        let clock = self.clock();
        let fs = self.mount(device, &clock)?;
        let mounted = device.commands();
        let findings = fs.check().map_err(|error| Wrong::at("check", error))?;
        if !findings.is_empty() {
            let lines: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
            return Err(Wrong(format!("the checker finds:\n{}", lines.join("\n"))));
        }
        let found = FilesState::found(observe::snapshot(&fs)?, self.block_size());
        if FilesState::find(allowed, &found).is_none() {
            let wrong = FilesState::explain(allowed, &found);
            return Err(Wrong(format!("none of the {} states that may be found:\n{wrong}", allowed.len())));
        }
        let digest = found.digest();
        history.settle(mounted, Arc::new(found));
        let seed = mix(&[self.run.seed, round as u64]);
        let rng = Rng::with_seed(seed);
        let mut driver = Driver::new(fs, Arc::clone(device), clock, history, rng, 1);
        driver.run(&afterwards(round, seed, self.block_size()))?;
        Ok(Recovered { found: digest, history: driver.history })
    }
}

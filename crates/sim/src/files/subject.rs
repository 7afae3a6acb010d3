//! The file system under one scenario on one shape of device.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use rt::random::Rng;

use super::driver::Driver;
use super::scenarios::Scenario;
use super::volume::{Volume, judge, judge_by_contract};
use crate::allowed::FilesState;
use crate::case::Run;
use crate::caught::Wrong;
use crate::digest::mix;
use crate::explore::{Ran, Recovered, Subject};
use crate::history::{History, State};
use crate::model::{File, Model, Operation};
use crate::shapes::Shape;
use crate::shows::Sign;

/// A scenario on a device shape.
pub struct FilesSubject {
    run: Run,
    scenario: Scenario,
    shape: Shape,
}

impl FilesSubject {
    /// A run of this scenario.
    pub fn new(scenario: Scenario, shape: Shape, seed: u64) -> Self {
        FilesSubject { run: Run { scenario: scenario.name, shape: shape.name, seed }, scenario, shape }
    }

    fn volume(&self) -> Volume {
        let Scenario { groups, cache_bytes, .. } = self.scenario;
        Volume { page_size: self.shape.page_size, groups, cache_bytes }
    }

    fn block_size(&self) -> usize {
        self.shape.spec.block_size as usize
    }
}

/// The operations after each recovery: a few, an fsync, a few more. No checkpoint is requested.
pub(crate) fn afterwards(round: usize, seed: u64, block_size: usize) -> Vec<Operation> {
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
        self.volume().format(device)?;
        let clock = Volume::clock();
        let fs = self.volume().mount(device, Arc::clone(&clock) as _)?;
        let history = History::from(FilesState::new(Model::new(self.block_size())));
        let rng = Rng::with_seed(self.run.seed);
        let steps_before = if self.scenario.idle_before { 0 } else { self.scenario.steps_between };
        let driver = Driver::new(fs, Arc::clone(device), clock, history, rng, steps_before);
        let mut driver = self.scenario.client(driver);
        let plan = (self.scenario.plan)(&self.shape, self.run.seed);
        driver.run(&plan.prepare)?;
        driver.steps_between = self.scenario.steps_between;
        driver.reclaims_amid = self.scenario.reclaims_amid;
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
        let clock = Volume::clock();
        let fs = self.volume().mount(device, Arc::clone(&clock) as _)?;
        let mounted = device.commands();
        let found = match self.scenario.delays {
            true => judge_by_contract(&fs, allowed)?,
            false => judge(&fs, allowed)?,
        };
        let digest = found.digest();
        history.settle(mounted, Arc::new(found));
        let seed = mix(&[self.run.seed, round as u64]);
        let rng = Rng::with_seed(seed);
        let mut driver = self.scenario.client(Driver::new(fs, Arc::clone(device), clock, history, rng, 1));
        driver.run(&afterwards(round, seed, self.block_size()))?;
        Ok(Recovered { found: digest, history: driver.history })
    }
}

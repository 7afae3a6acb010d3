//! One fault in one scenario.

use std::fmt;
use std::sync::Arc;

use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault};
use fs::FsError;
use rt::random::Rng;
use tree::Step;
use zone::{Device, Role, ZoneId, ZoneState};

use super::{Counts, Harm, Kind, Strikes, offline};
use crate::allowed::FilesState;
use crate::caught::Wrong;
use crate::digest::mix;
use crate::files::{Driver, Failed, Plan, Scenario, Volume, afterwards, compare, findings, judge, view};
use crate::flips;
use crate::history::History;
use crate::model::{Model, Operation};
use crate::shapes::Shape;

/// After this many background steps a volume has had time for all its background work.
const STEPS_MAX: u32 = 10_000;

/// When the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// While the scenario runs.
    Work,
    /// While the volume that the scenario leaves is mounted and compared.
    Mount,
    /// After a loss of power, before the mount: a zone comes back in another state. `nth` is the number of the zone.
    Between,
}

impl Moment {
    /// All moments.
    pub const ALL: [Moment; 3] = [Moment::Work, Moment::Mount, Moment::Between];

    /// The option that names the moment.
    fn option(self) -> &'static str {
        match self {
            Moment::Work => "",
            Moment::Mount => " --at-mount",
            Moment::Between => " --between",
        }
    }
}

/// A scenario on a device shape, up to the moment at which faults begin.
pub struct Stage {
    scenario: Scenario,
    shape: Shape,
    seed: u64,
    plan: Plan,
    /// The volume, unmounted, and its model. `None` if the scenario keeps files open from before.
    prepared: Option<(Emulated, Model)>,
}

/// One fault.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The scenario, and the device.
    pub stage: &'a Stage,
    /// The fault.
    pub kind: Kind,
    /// When.
    pub moment: Moment,
    /// At which command of its kind, from 1.
    pub nth: u64,
}

/// What a fault has destroyed, as far as that is known.
#[derive(Clone, Copy, Debug)]
enum Destroyed {
    /// Nothing, or some log or metadata. The volume has to report what that costs.
    Untold,
    /// All blocks of a zone.
    Zone(ZoneId),
    /// A block of data.
    Block,
}

/// The result of a trial that passed.
pub enum Outcome {
    /// There are fewer such commands.
    NotReached,
    /// The fault struck.
    Struck(Counts),
}

/// While this value exists, this thread requests memory page by page.
struct Scarce;

impl Scarce {
    fn begin() -> Self {
        rt::memory::make_scarce();
        Scarce
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        rt::memory::make_plenty();
    }
}

impl fmt::Display for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stage { scenario, shape, seed, .. } = self.stage;
        write!(f, "polder-sim faults --scenario {} --geometry {} --seed {seed}", scenario.name, shape.name)?;
        write!(f, " --fault {} --nth {}", self.kind.name, self.nth)?;
        f.write_str(self.moment.option())
    }
}

impl Stage {
    /// Runs the preparation of the scenario.
    pub fn new(scenario: Scenario, shape: Shape, seed: u64) -> Result<Stage, Wrong> {
        let plan = (scenario.plan)(&shape, seed);
        let holds = plan.prepare.iter().any(|operation| matches!(operation, Operation::Hold { .. }));
        let mut stage = Stage { scenario, shape, seed, plan, prepared: None };
        if !holds {
            let (device, driver) = stage.begin()?;
            driver.fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
            let image = device.image(&CrashPlan::KeepAll);
            image.record();
            stage.prepared = Some((image, driver.model().clone()));
        }
        Ok(stage)
    }

    fn volume(&self) -> Volume {
        let Scenario { groups, cache_bytes, .. } = self.scenario;
        Volume { page_size: self.shape.page_size, groups, cache_bytes }
    }

    pub(super) fn mount(
        &self,
        device: &Arc<Emulated>,
        history: History<FilesState>,
    ) -> Result<Driver, Wrong> {
        let clock = Volume::clock();
        let fs = self.volume().mount(device, Arc::clone(&clock) as _)?;
        let driver = Driver::new(fs, Arc::clone(device), clock, history, Rng::with_seed(self.seed), 0);
        Ok(self.scenario.client(driver))
    }

    /// The volume at which faults begin, mounted and recording.
    fn begin(&self) -> Result<(Arc<Emulated>, Driver), Wrong> {
        rt::random::repeat_from(self.seed);
        let (device, model) = match &self.prepared {
            Some((image, model)) => (Arc::new(image.image_at(0, &CrashPlan::KeepAll)), model.clone()),
            None => {
                let device = Arc::new(Emulated::new(self.shape.spec.clone().seed(self.seed)));
                self.volume().format(&device)?;
                (device, Model::new(self.shape.spec.block_size as usize))
            }
        };
        let mut driver = self.mount(&device, History::from(FilesState::new(model)))?;
        let steps = self.scenario.steps_between;
        if self.prepared.is_none() {
            driver.steps_between = if self.scenario.idle_before { 0 } else { steps };
            driver.run(&self.plan.prepare)?;
        }
        driver.steps_between = steps;
        driver.restart()?;
        Ok((device, driver))
    }
}

impl Trial<'_> {
    /// Runs the trial.
    pub fn run(&self) -> Result<Outcome, Wrong> {
        let _scarce = (self.kind.strikes == Strikes::Memory).then(Scarce::begin);
        match self.moment {
            moment if self.kind.strikes == Strikes::Log => self.log_dies(moment),
            Moment::Work => self.at_work(),
            Moment::Mount => self.at_mount(),
            Moment::Between => self.between(),
        }
    }

    /// Injects the fault. Returns how many of the commands that it may strike there have been.
    fn begin(&self, device: &Emulated) -> u64 {
        let Some(fault) = self.kind.fault(self.nth) else {
            rt::memory::refuse(self.nth, self.kind.times);
            return 0;
        };
        let number = (mix(&[self.stage.seed, self.nth]) >> 32) as u32;
        let effect = match fault.effect {
            Effect::FlipBit(_) => Effect::FlipBit(number),
            Effect::LoseCache(_) => Effect::LoseCache(number),
            effect => effect,
        };
        device.inject(Fault { effect, ..fault });
        device.counters().of(fault.kind)
    }

    /// Removes the fault. Returns whether it has struck. It must have struck if there were more commands that it may
    /// strike than it skips. Appends that open a zone are not counted.
    fn end(&self, device: &Emulated, before: u64, counts: &mut Counts) -> Result<bool, Wrong> {
        counts.struck |= u64::from(!device.failed_zones().is_empty());
        device.clear_faults();
        self.end_shortage(counts);
        if let Strikes::Command(kind, _) = self.kind.strikes
            && counts.struck == 0
            && kind != CommandKind::Open
            && device.counters().of(kind) - before >= self.nth
        {
            return Err(Wrong(format!("there was such a command, and {} did not strike", self.kind.name)));
        }
        Ok(counts.struck > 0)
    }

    fn end_shortage(&self, counts: &mut Counts) {
        if self.kind.strikes == Strikes::Memory {
            counts.struck |= u64::from(rt::memory::refused() > 0);
            rt::memory::refuse(1, 0);
        }
    }

    /// Runs the scenario with the fault in it, then a loss of power on a copy, then an unmount. Compares both.
    fn at_work(&self) -> Result<Outcome, Wrong> {
        let mut operations = self.stage.plan.cut.iter().chain(&self.stage.plan.until_shown);
        if self.reads_fail_for_a_while() && operations.any(Operation::is_whole) {
            return Ok(Outcome::NotReached);
        }
        let mut counts = Counts::default();
        let (device, mut driver) = self.stage.begin()?;
        let before = self.begin(&device);
        let stopped = self.work(&mut driver, &mut counts)?;
        let gone = self.destroyed(&device);
        if !self.end(&device, before, &mut counts)? {
            return Ok(Outcome::NotReached);
        }
        if self.kind.harm == Harm::Errors {
            // Operations that needed no command are visible as well.
            let now = driver.history.allowed(device.commands() + 1);
            compare(&view(&driver.fs)?, now).map_err(|wrong| Wrong::at("at once", wrong))?;
        }
        let plan = if self.nth.is_multiple_of(2) { CrashPlan::KeepAll } else { CrashPlan::LoseAll };
        let image = Arc::new(device.image(&plan));
        image.record();
        let allowed = self.allowed(&driver.history, &device);
        let after_cut = format!("after a loss of power ({plan})");
        self.look(&image, &allowed, gone, &mut counts).map_err(|wrong| Wrong::at(&after_cut, wrong))?;
        let closed = driver.fs.unmount();
        if self.kind.strikes == Strikes::Memory {
            closed.as_ref().map_err(|error| Wrong::at("unmount, with memory again", error))?;
        }
        let closed = closed.is_ok();
        let allowed = match closed && !stopped && self.kind.harm != Harm::Loss {
            true => vec![Arc::clone(driver.history.newest())],
            false => self.allowed(&driver.history, &device),
        };
        drop(driver);
        self.look(&device, &allowed, gone, &mut counts).map_err(|wrong| Wrong::at("mounted again", wrong))?;
        Ok(Outcome::Struck(counts))
    }

    /// Recovery, and a collapsed or inserted range, read twice and give up what cannot be read then.
    fn reads_fail_for_a_while(&self) -> bool {
        self.kind.times > 1 && self.kind.is_of(CommandKind::Read)
    }

    /// What the fault has destroyed. The first block of a zone is its header, and not data.
    fn destroyed(&self, device: &Emulated) -> Destroyed {
        match self.kind.effect() {
            Some(Effect::TurnOffline) => {
                device.failed_zones().first().copied().flatten().map_or(Destroyed::Untold, Destroyed::Zone)
            }
            Some(Effect::FlipBit(_)) => {
                let is_data = |zone| matches!(flips::role(device, zone), Ok(Some(role)) if role.holds_data());
                let is_block =
                    device.corrupted_block().is_some_and(|(zone, block)| block > 0 && is_data(zone));
                if is_block { Destroyed::Block } else { Destroyed::Untold }
            }
            _ => Destroyed::Untold,
        }
    }

    /// Runs the scenario without a fault, then a loss of power. The fault strikes during the recovery or while
    /// everything is read.
    fn at_mount(&self) -> Result<Outcome, Wrong> {
        if self.reads_fail_for_a_while() {
            return Ok(Outcome::NotReached);
        }
        let mut counts = Counts::default();
        let (device, mut driver) = self.stage.begin()?;
        self.work(&mut driver, &mut counts)?;
        let allowed = driver.history.allowed(device.commands()).to_vec();
        drop(driver);
        let image = Arc::new(device.image(&CrashPlan::KeepAll));
        image.record();
        let before = self.begin(&image);
        self.recover(&image, &allowed, &mut counts)
            .map_err(|wrong| Wrong::at("the fault in recovery", wrong))?;
        let gone = self.destroyed(&image);
        if !self.end(&image, before, &mut counts)? {
            return Ok(Outcome::NotReached);
        }
        self.look(&image, &allowed, gone, &mut counts).map_err(|wrong| Wrong::at("mounted again", wrong))?;
        Ok(Outcome::Struck(counts))
    }

    /// Mounts and reads everything on a device that fails once. If the fault must not be visible, it is not visible
    /// here either. Other kinds may prevent the mount, or the reading of something, until the device works again.
    fn recover(
        &self,
        image: &Arc<Emulated>,
        allowed: &[Arc<FilesState>],
        counts: &mut Counts,
    ) -> Result<(), Wrong> {
        let fs = match self.stage.volume().try_mount(image, Volume::clock()) {
            Ok(fs) => fs,
            Err(error) => {
                self.permit("the mount is refused", &error)?;
                counts.refused += 1;
                return Ok(());
            }
        };
        let lost = compare(&view(&fs)?, allowed)?;
        if self.kind.harm != Harm::Nothing && self.kind.strikes != Strikes::Memory {
            return Ok(());
        }
        // Data that could not be read without memory can be read once there is memory.
        self.end_shortage(counts);
        let lost = if lost.is_empty() { lost } else { compare(&view(&fs)?, allowed)? };
        if !lost.is_empty() {
            return Err(Wrong(format!("{} cannot be read", lost.join(", "))));
        }
        match fs.store().shutdown_reason() {
            Some(why) => Err(Wrong(format!("the volume is shut down: {why}"))),
            None => Ok(()),
        }
    }

    /// Runs the scenario without a fault, then a loss of power after which one zone cannot be written, or not even be
    /// read.
    fn between(&self) -> Result<Outcome, Wrong> {
        let state = match self.kind.strikes {
            Strikes::Command(_, Effect::TurnReadOnly(0)) => ZoneState::ReadOnly,
            Strikes::Command(CommandKind::Append, Effect::TurnOffline) => ZoneState::Offline,
            _ => return Ok(Outcome::NotReached),
        };
        let zones = self.stage.shape.spec.capacities.len() as u64;
        if self.nth > zones {
            return Ok(Outcome::NotReached);
        }
        let mut counts = Counts { struck: 1, ..Counts::default() };
        let (device, mut driver) = self.stage.begin()?;
        self.work(&mut driver, &mut counts)?;
        let allowed = self.allowed(&driver.history, &device);
        drop(driver);
        let image = Arc::new(device.image(&CrashPlan::KeepAll));
        let zone = ZoneId(self.nth as u32 - 1);
        let gone = if state == ZoneState::Offline { Destroyed::Zone(zone) } else { Destroyed::Untold };
        image.set_zone_state(zone, state);
        image.record();
        self.look(&image, &allowed, gone, &mut counts)?;
        Ok(Outcome::Struck(counts))
    }

    /// The log zone in use fails while the scenario runs, and after a loss of power the zone in which the log
    /// continued is offline. Older records can still be read, and must not be taken for the newest.
    fn log_dies(&self, moment: Moment) -> Result<Outcome, Wrong> {
        if moment != Moment::Work {
            return Ok(Outcome::NotReached);
        }
        let (device, mut driver) = self.stage.begin()?;
        let failing = Fault::nth(CommandKind::Append, self.nth, Effect::Error).on(log_in_use(&driver)?);
        device.inject(Fault { times: self.kind.times, ..failing });
        let mut counts = Counts { struck: 1, ..Counts::default() };
        self.work(&mut driver, &mut counts)?;
        if device.failed_zones().is_empty() {
            return Ok(Outcome::NotReached);
        }
        device.clear_faults();
        let plan = if self.nth.is_multiple_of(2) { CrashPlan::KeepAll } else { CrashPlan::LoseAll };
        let image = Arc::new(device.image(&plan));
        image.set_zone_state(log_in_use(&driver)?, ZoneState::Offline);
        image.record();
        let allowed = driver.history.allowed(device.commands()).to_vec();
        drop(driver);
        self.look(&image, &allowed, Destroyed::Untold, &mut counts)?;
        Ok(Outcome::Struck(counts))
    }

    /// The states that may be found now. If something was destroyed, the newest batch of the log may look as if a
    /// loss of power had torn it, or as if it had been torn with its data: no later record proves that it was
    /// durable. If more is missing, this is detected and the mount is refused.
    fn allowed(&self, history: &History<FilesState>, device: &Emulated) -> Vec<Arc<FilesState>> {
        let now = device.commands();
        match self.kind.harm {
            Harm::Loss => history.allowed_but_last(now).to_vec(),
            _ => history.allowed(now).to_vec(),
        }
    }

    /// Runs the scenario as far as possible. Returns whether it had to stop.
    fn work(&self, driver: &mut Driver, counts: &mut Counts) -> Result<bool, Wrong> {
        driver.lacks_space = matches!(self.kind.effect(), Some(Effect::HostFull));
        let stopped = self.work_on(driver, counts);
        counts.without_space = driver.without_space;
        stopped
    }

    fn work_on(&self, driver: &mut Driver, counts: &mut Counts) -> Result<bool, Wrong> {
        let (plan, shows) = (&self.stage.plan, self.stage.scenario.shows);
        let before = driver.reading();
        for (number, operation) in plan.cut.iter().chain(&plan.until_shown).enumerate() {
            if number >= plan.cut.len() && driver.reading().since(&before).check(shows).is_ok() {
                break;
            }
            let at = |wrong: Wrong| Wrong::at(&format!("operation {number}, {operation}"), wrong);
            let failed = driver.attempt(operation).map_err(at)?;
            if let Some(failed) = failed {
                counts.failed += u64::from(failed.error != FsError::NoSpace);
                self.permit("fails", &failed.error).map_err(at)?;
                self.permit_of_full_host(driver, &failed.error).map_err(at)?;
                self.end_shortage(counts);
                if !reconcile(driver, operation, failed).map_err(at)? {
                    return Ok(true);
                }
            }
            if let Some(error) = driver.pause() {
                counts.background += 1;
                self.permit("the background fails after it", &error).map_err(at)?;
            }
            if !driver.fs.store().covers_reservations() {
                return Err(at(Wrong("pages are used that are reserved for other owners".to_owned())));
            }
            if driver.fs.is_read_only() {
                counts.shut_down += 1;
                self.permit("the volume is shut down", &FsError::ReadOnly).map_err(at)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether such a fault may have this effect.
    fn permit(&self, what: &str, error: &FsError) -> Result<(), Wrong> {
        let is_permitted = match self.kind.strikes {
            Strikes::Memory => *error == FsError::NoMemory,
            Strikes::Command(..) | Strikes::Log => self.kind.harm != Harm::Nothing,
        };
        match is_permitted {
            true => Ok(()),
            false => Err(Wrong(format!("{what}: {error}, and {} must not have this effect", self.kind.name))),
        }
    }

    /// A full host looks like a full volume, or like one that was shut down.
    fn permit_of_full_host(&self, driver: &Driver, error: &FsError) -> Result<(), Wrong> {
        match self.kind.effect() {
            Some(Effect::HostFull) if *error != FsError::NoSpace && !driver.fs.is_read_only() => {
                Err(Wrong(format!("fails: {error}, and the volume takes changes: its host is full")))
            }
            _ => Ok(()),
        }
    }

    /// Mounts a volume and compares. Nothing may be wrong, and only what the fault destroys may be missing. If a zone
    /// of data is `gone`, its blocks are known exactly. A corrupt block of data costs only itself.
    fn look(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<FilesState>],
        gone: Destroyed,
        counts: &mut Counts,
    ) -> Result<(), Wrong> {
        counts.judged += 1;
        rt::random::repeat_from(self.stage.seed);
        if let Destroyed::Zone(zone) = gone
            && let Some(lost) = offline::would_lose(self.stage, device, zone, allowed)?
        {
            (counts.exact, counts.lossy) = (counts.exact + 1, counts.lossy + u64::from(!lost.is_empty()));
            let driver = self.stage.mount(device, History::recovering(allowed))?;
            return offline::has_lost(driver, allowed, &lost, self.stage.seed);
        }
        let mounted = self.stage.mount(device, History::recovering(allowed));
        if self.kind.harm != Harm::Loss {
            return self.go_on(mounted?, allowed, counts);
        }
        let is_block = matches!(gone, Destroyed::Block);
        let driver = match mounted {
            Ok(driver) => driver,
            Err(wrong) if is_block => return Err(Wrong::at("for one block of data", wrong)),
            Err(_) => {
                counts.refused += 1;
                return Ok(());
            }
        };
        let given = view(&driver.fs)?;
        if is_block {
            counts.bounded += u64::from(!given.lost.is_empty());
            if !given.misses_one_block_at_most() {
                return Err(Wrong(format!(
                    "one block of data costs {:?}: {:?}",
                    given.lost, given.unreadable
                )));
            }
        }
        let seen = compare(&given, allowed)?;
        let reported = findings(&driver.fs);
        if !seen.is_empty() && reported.as_ref().is_ok_and(Vec::is_empty) {
            return Err(Wrong(format!("{seen:?} cannot be read, and the checker finds nothing")));
        }
        counts.lossy += u64::from(!seen.is_empty());
        Ok(())
    }

    /// A volume that has lost nothing: the checker finds nothing, all data can be read, and the volume is used again.
    fn go_on(
        &self,
        mut driver: Driver,
        allowed: &[Arc<FilesState>],
        counts: &mut Counts,
    ) -> Result<(), Wrong> {
        let now = driver.device.commands();
        let stuck = lives_in_read_only(&driver)?;
        let found = judge(&driver.fs, allowed)?;
        let reported = findings(&driver.fs).map_err(|error| Wrong::at("check of data", error))?;
        if !reported.is_empty() {
            return Err(Wrong(format!("the checker finds {}", reported.join("; "))));
        }
        driver.settle(now, found);
        driver.run(&afterwards(1, self.stage.seed, self.stage.shape.spec.block_size as usize))?;
        match self.kind.effect() {
            Some(Effect::TurnReadOnly(_)) => {
                evacuate(&driver)?;
                let left = lives_in_read_only(&driver)?;
                counts.evacuated += stuck.iter().filter(|zone| !left.contains(zone)).count() as u64;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The log zone that is being written.
fn log_in_use(driver: &Driver) -> Result<ZoneId, Wrong> {
    let report = driver.device.report().map_err(|error| Wrong::at("report", error))?;
    let mut zones = driver.fs.store().pool().in_role(Role::Log).into_iter();
    let in_use = zones.find(|zone| report[zone.0 as usize].state.is_active());
    in_use.ok_or_else(|| Wrong("no log zone is being written".to_owned()))
}

/// The read-only zones with live data.
fn lives_in_read_only(driver: &Driver) -> Result<Vec<ZoneId>, Wrong> {
    let pool = driver.fs.store().pool();
    let report = driver.device.report().map_err(|error| Wrong::at("report", error))?;
    let stuck = (0..).map(ZoneId).zip(&report).filter(|(_, info)| info.state == ZoneState::ReadOnly);
    let lives = |zone: &ZoneId| {
        let entry = pool.entry(*zone);
        entry.role.holds_data() && entry.live > 0
    };
    Ok(stuck.map(|(zone, _)| zone).filter(lives).collect())
}

/// After the background has run, no zone that a mount found to be read-only has live data, unless there is no zone to
/// move it to.
fn evacuate(driver: &Driver) -> Result<(), Wrong> {
    let pool = driver.fs.store().pool();
    for _ in 0..STEPS_MAX {
        if driver.fs.step().map_err(|error| Wrong::at("step", error))? == Step::Idle {
            break;
        }
    }
    let left = lives_in_read_only(driver)?;
    match left.first() {
        Some(zone) if pool.free() > pool.reserved_from(Role::Gc) => {
            let live = pool.entry(*zone).live;
            Err(Wrong(format!("{live} blocks live in {zone:?}, which cannot be written any more")))
        }
        _ => Ok(()),
    }
}

/// Finds out which part of a failed operation was done. False if that is unknown.
fn reconcile(driver: &mut Driver, operation: &Operation, failed: Failed) -> Result<bool, Wrong> {
    let handles =
        matches!(operation, Operation::Hold { .. } | Operation::Temporary { .. } | Operation::Release { .. });
    let before = FilesState::new(driver.model().clone());
    let both = [Arc::new(before), Arc::new(FilesState::after(operation, failed.after.clone()))];
    let seen = view(&driver.fs)?;
    compare(&seen, &both).map_err(|wrong| Wrong(format!("after {}: {wrong}", failed.error)))?;
    let is = |state: &FilesState| seen.difference(&state.snapshot).is_none();
    // The contents of an unlinked file are not visible.
    let unseen = both[0].snapshot == both[1].snapshot && operation.changes();
    if handles || unseen || !seen.lost.is_empty() {
        return Ok(false);
    }
    match (is(&both[0]), is(&both[1])) {
        (true, _) => driver.adopt(both[0].model.clone()),
        (_, true) => driver.adopt(failed.after),
        _ => return Ok(false),
    }
    Ok(true)
}

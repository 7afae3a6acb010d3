//! A power failure during `mkfs`.
//!
//! `mkfs` may be cut like everything else: on an empty device, or over a volume with files. Then either the mount is
//! refused, with a message that says what to do, or the device contains one of two volumes: the old one, with all its
//! files unchanged, or the new one, which is empty. No state in between may be taken for a volume. The new one has an
//! identity of its own, given by `mkfs`, and the secret of the old one.
//!
//! After each cut, either `mkfs` runs once more, or the found volume is used. Both are cut again.

use std::sync::Arc;

use emulated::{CommandKind, Effect, Emulated, Fault, Spec};
use fs::FsError;
use rt::random::Rng;
use zone::{Device, FsId, Role, ZoneState};

use crate::allowed::FilesState;
use crate::case::Run;
use crate::caught::Wrong;
use crate::digest::mix;
use crate::explore::{LOG_ZONES, Ran, Recovered, Subject};
use crate::files::{Driver, Volume, afterwards, judge};
use crate::history::{History, State};
use crate::model::{File, Model, Operation};
use crate::shapes::Shape;
use crate::shows::{Shown, Sign};

/// What the message of a refusal has to contain: a command that helps, or that the device is empty. It must never
/// suggest `mkfs`, because an unfinished volume cannot be distinguished from a damaged one.
const HELP: [&str; 4] = [
    "polder salvage",
    "restore the whole volume",
    "no zone has data of a Polder volume",
    "mount the volume with -o ro",
];
const NO_HELP: &str = "mkfs";

/// The contents of the device before `mkfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Empty,
    /// A volume that was unmounted.
    Unmounted,
    /// A volume whose daemon was killed: it has a journal, in two zones.
    Used,
}

/// All of them, with the names of their scenarios.
pub const ALL: [(&str, Before); 3] =
    [("mkfs", Before::Empty), ("mkfs-over", Before::Unmounted), ("mkfs-over-used", Before::Used)];

/// The result of a mount.
pub enum MadeState {
    /// There is no volume.
    Refused,
    /// There is a volume with these files.
    Files(Arc<FilesState>),
}

impl State for MadeState {
    fn digest(&self) -> u64 {
        match self {
            MadeState::Refused => 0,
            MadeState::Files(files) => files.digest(),
        }
    }

    fn difference(&self, found: &Self) -> String {
        match (self, found) {
            (MadeState::Files(files), MadeState::Files(found)) => files.difference(found),
            _ => "refused".to_owned(),
        }
    }
}

/// A run of `mkfs` on one device shape.
pub struct MadeSubject {
    run: Run,
    before: Before,
    shape: Shape,
}

impl MadeSubject {
    /// A run from this state.
    pub fn new((name, before): (&'static str, Before), shape: Shape, seed: u64) -> Self {
        MadeSubject { run: Run { scenario: name, shape: shape.name, seed }, before, shape }
    }

    fn volume(&self) -> Volume {
        Volume { page_size: self.shape.page_size, groups: 2, cache_bytes: 8 << 20 }
    }

    fn empty(&self) -> FilesState {
        FilesState::new(Model::new(self.shape.spec.block_size as usize))
    }

    /// The driver of the mounted volume, from this state on.
    fn driver(&self, device: &Arc<Emulated>, state: FilesState) -> Result<Driver, Wrong> {
        let clock = Volume::clock();
        let fs = self.volume().mount(device, Arc::clone(&clock) as _)?;
        let rng = Rng::with_seed(self.run.seed);
        Ok(Driver::new(fs, Arc::clone(device), clock, History::from(state), rng, 1))
    }

    /// Prepares the old contents, all durable, and the device with them.
    fn prepare(&self, device: &Arc<Emulated>) -> Result<(Arc<Emulated>, MadeState), Wrong> {
        if self.before == Before::Empty {
            return Ok((Arc::clone(device), MadeState::Refused));
        }
        self.volume().format(device)?;
        let mut driver = self.driver(device, self.empty())?;
        driver.run(&old_files(u64::from(self.shape.spec.block_size)))?;
        if self.before == Before::Unmounted {
            driver.fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
            return Ok((Arc::clone(device), files_of(&driver)));
        }
        // An append to the log fails. The log continues in another zone, and the old one stays until a checkpoint has
        // replaced it.
        let log = driver.fs.store().pool().in_role(Role::Log);
        log.iter()
            .for_each(|&zone| device.inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(zone)));
        driver.steps_between = 0;
        driver.run(&newer_files())?;
        device.clear_faults();
        Ok((Arc::clone(device), files_of(&driver)))
    }

    /// Runs `mkfs` over any of the found states. After its end only the new volume is allowed.
    fn make(&self, device: &Arc<Emulated>, history: &mut History<MadeState>) -> Result<(), Wrong> {
        history.begin(device.commands(), MadeState::Refused);
        history.begin(device.commands(), MadeState::Files(Arc::new(self.empty())));
        // The identity follows from the round, so that no volume on this device has the identity of an earlier one.
        self.volume().format_as(device, FsId(rt::random::secret()))?;
        let empty = history.last();
        history.promise(device.commands(), empty);
        Ok(())
    }

    /// Mounts, and finds the state among the allowed ones.
    fn find(&self, device: &Arc<Emulated>, allowed: &[Arc<MadeState>]) -> Result<MadeState, Wrong> {
        let fs = match self.volume().try_mount(device, Volume::clock()) {
            Ok(fs) => fs,
            Err(error) => return refusal(&error, allowed),
        };
        Ok(MadeState::Files(Arc::new(judge(&fs, &files(allowed))?)))
    }

    /// Uses a volume with these files, and adds the allowed states to the history.
    fn go_on(
        &self,
        device: &Arc<Emulated>,
        history: &mut History<MadeState>,
        round: usize,
    ) -> Result<(), Wrong> {
        let commands = device.commands();
        let MadeState::Files(newest) = &**history.newest() else { unreachable!("a volume was made") };
        let mut driver = self.driver(device, FilesState::new(newest.model.clone()))?;
        judge(&driver.fs, &[Arc::clone(newest)])?;
        let seed = mix(&[self.run.seed, round as u64]);
        driver.run(&afterwards(round, seed, self.shape.spec.block_size as usize))?;
        history.go_on(commands, driver.history.map(|files| MadeState::Files(Arc::clone(files))));
        Ok(())
    }
}

impl Subject for MadeSubject {
    type State = MadeState;

    fn run_id(&self) -> &Run {
        &self.run
    }

    fn spec(&self) -> Spec {
        self.shape.spec.clone().seed(self.run.seed)
    }

    fn shows(&self) -> &[Sign] {
        &[]
    }

    fn run(&self, device: &Arc<Emulated>) -> Result<Ran<MadeState>, Wrong> {
        let (device, before) = self.prepare(device)?;
        if self.before == Before::Used && log_zones(&device) < 2 {
            return Err(Wrong("the log has one zone instead of two".to_owned()));
        }
        let mut history = History::from(before);
        device.record();
        self.make(&device, &mut history)?;
        Ok(Ran { device, history, shown: Shown::default() })
    }

    fn recover(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<MadeState>],
        round: usize,
    ) -> Result<Recovered<MadeState>, Wrong> {
        let makes_again = rt::random::secret::<1>()[0] & 1 == 0;
        let mut history = History::recovering(allowed);
        let found = self.find(device, allowed)?;
        let digest = found.digest();
        let is_refused = matches!(found, MadeState::Refused);
        if !is_refused {
            history.settle(device.commands(), Arc::new(found));
        }
        if is_refused || makes_again {
            self.make(device, &mut history)?;
        }
        self.go_on(device, &mut history, round)?;
        Ok(Recovered { found: digest, history })
    }
}

/// A mount was refused. That must be allowed, and the message must say what to do.
fn refusal(error: &FsError, allowed: &[Arc<MadeState>]) -> Result<MadeState, Wrong> {
    if !allowed.iter().any(|state| matches!(**state, MadeState::Refused)) {
        return Err(Wrong(format!("there must be a volume, and the mount says: {error}")));
    }
    let message = error.to_string();
    if !HELP.iter().any(|help| message.contains(help)) || message.contains(NO_HELP) {
        return Err(Wrong(format!("the mount is refused without advice: {message}")));
    }
    Ok(MadeState::Refused)
}

/// The number of zones of the log.
fn log_zones(device: &Emulated) -> usize {
    let report = device.report().unwrap_or_default();
    report.iter().take(LOG_ZONES).filter(|info| info.state != ZoneState::Empty).count()
}

/// The current state.
fn files_of(driver: &Driver) -> MadeState {
    MadeState::Files(Arc::new(FilesState::new(driver.model().clone())))
}

/// The allowed states that are volumes.
fn files(allowed: &[Arc<MadeState>]) -> Vec<Arc<FilesState>> {
    let files = |state: &Arc<MadeState>| match &**state {
        MadeState::Refused => None,
        MadeState::Files(files) => Some(Arc::clone(files)),
    };
    allowed.iter().filter_map(files).collect()
}

/// A volume with trees, a journal and several zones of data in use.
fn old_files(block: u64) -> Vec<Operation> {
    let file = |number: u32| File::Path(format!("d/old-{number}"));
    let mut operations = vec![Operation::MakeDirectory { path: "d".to_owned() }];
    for number in 0..8 {
        let (length, tag) = (5 * block as usize + 9, mix(&[block, number.into()]));
        operations.push(Operation::Create { path: format!("d/old-{number}") });
        operations.push(Operation::Write { file: file(number), offset: 0, length, tag });
        operations.push(Operation::Fsync { file: file(number), data_only: false });
        if number == 5 {
            operations.push(Operation::Checkpoint);
        }
    }
    operations.push(Operation::Sync);
    operations
}

/// Operations that are acknowledged after the log has moved to another zone.
fn newer_files() -> Vec<Operation> {
    let create = |number| Operation::Create { path: format!("d/newer-{number}") };
    (0..4).map(create).chain([Operation::Sync]).collect()
}

//! One run: a volume from its creation to its last mount.

use std::sync::Arc;

use emulated::{CommandKind, CrashPlan, Effect, Emulated};
use fs::{Fs, InodeNo};
use rt::random::Rng;
use rt::schedule::{self, Body};
use rt::{Clock, ManualClock};

use super::order::{Deeds, end_of_log};
use super::{Place, Plan, Report, work};
use crate::allowed::FilesState;
use crate::case::{Cut, Loss};
use crate::caught::{Wrong, caught};
use crate::digest::mix;
use crate::explore::random_cut;
use crate::faults::{Harm, KINDS, Kind};
use crate::files::{self, Driver, Volume};
use crate::history::History;
use crate::model::{Model, Operation, Snapshot};

/// Memory for nodes: so little that some are read again.
const CACHE_BYTES: u64 = 256 << 10;
/// Groups of the metadata store.
const GROUPS: u16 = 2;
/// Limit for zones that may become read-only in a run. If two of the log's did, the log would have no zone to switch
/// to.
const ZONES_LOST: u32 = 1;
/// A fault strikes one of this many commands of its kind.
const FAULT_WITHIN: u64 = 60;

/// Runs the whole plan.
pub(super) fn live(plan: &Plan) -> Result<Report, Wrong> {
    let mut life = Life::begin(plan)?;
    for round in 0..plan.rounds {
        life.round(round).map_err(|wrong| Wrong(format!("round {round}: {wrong}")))?;
    }
    life.end()
}

struct Life<'a> {
    plan: &'a Plan,
    volume: Volume,
    clock: Arc<ManualClock>,
    device: Arc<Emulated>,
    /// Commands on the device that do not belong to the next mount: those that a killed process has not flushed.
    before: u64,
    /// For each client the operations that it may be found to have done.
    deeds: Vec<Deeds>,
    /// The last round ended during work, so the log ties the clients together.
    is_amid: bool,
    zones_lost: u32,
    report: Report,
}

impl<'a> Life<'a> {
    /// Creates the volume, and a directory for each client.
    fn begin(plan: &'a Plan) -> Result<Self, Wrong> {
        rt::random::repeat_from(plan.seed);
        let device = Arc::new(Emulated::new(plan.shape.spec.clone().seed(plan.seed)));
        let volume = Volume { page_size: plan.shape.page_size, groups: GROUPS, cache_bytes: CACHE_BYTES };
        volume.format(&device)?;
        let clock = Volume::clock();
        let fs = volume.mount(&device, Arc::clone(&clock) as _)?;
        for client in 0..plan.clients {
            let made = fs.make_directory(&files::caller(), InodeNo::ROOT, home(client).as_bytes(), 0o755);
            made.map_err(|error| Wrong::at("make a directory for each client", error))?;
        }
        fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
        device.record();
        let nothing = Arc::new(FilesState::new(Model::new(plan.shape.spec.block_size as usize)));
        let deeds = Deeds { states: vec![nothing], first: 0, spans: files::Spans::new() };
        Ok(Life {
            plan,
            volume,
            clock,
            device,
            before: 0,
            deeds: vec![deeds; plan.clients as usize],
            is_amid: false,
            zones_lost: 0,
            report: Report::default(),
        })
    }

    fn round(&mut self, round: u32) -> Result<(), Wrong> {
        let mut rng = Rng::with_seed(mix(&[self.plan.seed, u64::from(round)]));
        rt::random::repeat_from(rng.u64(..));
        self.inject(&mut rng);
        let (fs, mounted, mut drivers) = self.mount()?;
        self.work(&fs, &mut drivers, round, rng.u64(..))?;
        files::book(&mut drivers);
        self.finish(&fs, mounted, drivers, &mut rng)
    }

    /// The last mount: the found state must be allowed.
    fn end(mut self) -> Result<Report, Wrong> {
        let (fs, _, drivers) = self.mount().map_err(|wrong| Wrong::at("in the end", wrong))?;
        drop(drivers);
        fs.unmount().map_err(|error| Wrong::at("unmount in the end", error))?;
        self.report.simulated_ns = self.clock.monotonic_ns();
        self.note(self.device.digest_ignoring_noise());
        Ok(self.report)
    }

    fn note(&mut self, number: u64) {
        self.report.digest = mix(&[self.report.digest, number]);
    }

    /// Lets a command fail in this round, perhaps during the recovery. Its failure must not be visible. Only one
    /// command fails: if the next one failed as well, the retry would have failed too.
    fn inject(&mut self, rng: &mut Rng) {
        let turns = |kind: &&Kind| matches!(kind.effect(), Some(Effect::TurnReadOnly(_)));
        let may = |kind: &&Kind| kind.harm == Harm::Nothing && (self.zones_lost < ZONES_LOST || !turns(kind));
        let kinds: Vec<&Kind> = KINDS.iter().filter(may).collect();
        let (kind, nth) = (kinds[rng.usize(..kinds.len())], rng.u64(1..=FAULT_WITHIN));
        if rng.bool() {
            self.zones_lost += u32::from(turns(&kind));
            kind.fault(nth).into_iter().for_each(|fault| self.device.inject(fault));
        }
    }

    /// Mounts the volume and checks it: the state of every client must be allowed, and the states of all clients
    /// together.
    fn mount(&mut self) -> Result<(Arc<Fs>, u64, Vec<Driver>), Wrong> {
        let fs = self.volume.mount(&self.device, Arc::clone(&self.clock) as _)?;
        let mounted = self.device.commands();
        let seen = files::clean(&fs)?;
        self.check_homes(&seen)?;
        let found =
            (0..self.plan.clients).map(|client| self.found(client, &seen)).collect::<Result<Vec<_>, _>>()?;
        let found: Vec<(Deeds, FilesState)> = self.deeds.drain(..).zip(found).collect();
        if self.is_amid {
            let end = end_of_log(&found);
            self.report.ordered += u64::from(end.is_some_and(|end| end.is_bounded));
            ensure(
                end.is_some(),
                "the clients are each where they may be, but together they are no prefix of the log",
            )?;
        }
        self.note(seen.digest());
        let drivers = (0..).zip(found).map(|(client, found)| self.driver(&fs, mounted, client, found));
        Ok((Arc::clone(&fs), mounted, drivers.collect::<Result<_, _>>()?))
    }

    /// The root contains only the clients' directories.
    fn check_homes(&self, seen: &Snapshot) -> Result<(), Wrong> {
        let homes: Vec<String> = (0..self.plan.clients).map(home).collect();
        let in_root = |path: &&String| !path.is_empty() && !path.contains('/');
        let found: Vec<String> = seen.items.keys().filter(in_root).cloned().collect();
        ensure(found == homes, &format!("the root holds {found:?}, not {homes:?}"))
    }

    /// The state of a client.
    fn found(&self, client: u32, seen: &Snapshot) -> Result<FilesState, Wrong> {
        let found = FilesState::found(seen.below(&home(client)), self.plan.shape.spec.block_size as usize);
        files::among(&self.deeds[client as usize].states, &found)
            .map_err(|wrong| Wrong(format!("client {client}: {wrong}")))?;
        Ok(found)
    }

    /// The driver of a client, which continues from its found state.
    fn driver(
        &self,
        fs: &Arc<Fs>,
        mounted: u64,
        client: u32,
        (deeds, found): (Deeds, FilesState),
    ) -> Result<Driver, Wrong> {
        let attributes = fs.lookup(&files::caller(), InodeNo::ROOT, home(client).as_bytes());
        let attributes = attributes.map_err(|error| Wrong::at("look for a client's directory", error))?;
        let mut history = History::recovering(&deeds.states);
        history.settle(mounted, Arc::new(found));
        let (clock, rng) = (Arc::clone(&self.clock), Rng::with_seed(0));
        let driver = Driver::new(Arc::clone(fs), Arc::clone(&self.device), clock, history, rng, 0);
        let driver = driver.in_company(attributes.inode);
        // Half of the runs have kernels as clients.
        Ok(if self.plan.seed.is_multiple_of(2) { driver.as_kernel() } else { driver })
    }

    /// Runs all clients and the background at once, until the clients have finished.
    fn work(&mut self, fs: &Arc<Fs>, drivers: &mut [Driver], round: u32, seed: u64) -> Result<(), Wrong> {
        let block = u64::from(self.plan.shape.spec.block_size);
        let (count, struck) = (self.plan.operations, self.device.failed_zones().len());
        let resets = self.device.counters().of(CommandKind::Reset);
        let mut bodies: Vec<Body<'_, Result<(), Wrong>>> = Vec::new();
        for (client, driver) in (0..).zip(drivers.iter_mut()) {
            let seed = mix(&[self.plan.seed, u64::from(round), u64::from(client)]);
            let has =
                |(number, _): &(u32, Operation)| self.plan.has(&Place { round, client, number: *number });
            let operations: Vec<_> = (0..).zip(work::operations(seed, count, block)).filter(has).collect();
            self.report.operations += operations.len() as u64;
            let name = format!("client {client}");
            let work = move || {
                operations.iter().try_for_each(|(number, operation)| {
                    let place = Place { round, client, number: *number };
                    driver
                        .run(std::slice::from_ref(operation))
                        .map_err(|wrong| Wrong(format!("{place}: {wrong}")))
                })
            };
            bodies.push((name.clone(), Box::new(move || caught(name, work))));
        }
        let steps = u64::from(count) * u64::from(self.plan.clients);
        bodies.push((
            "background".to_owned(),
            Box::new(move || caught("background", || background(fs, seed, steps))),
        ));
        let ran = schedule::run(seed, bodies);
        self.report.handovers += ran.handovers;
        self.report.resets += self.device.counters().of(CommandKind::Reset) - resets;
        self.report.faults += (self.device.failed_zones().len() - struck) as u64;
        self.device.clear_faults();
        ran.returned.into_iter().collect()
    }

    /// Ends the round in one of the ways in which a mount ends.
    fn finish(
        &mut self,
        fs: &Arc<Fs>,
        mounted: u64,
        mut drivers: Vec<Driver>,
        rng: &mut Rng,
    ) -> Result<(), Wrong> {
        let is_unmounted = rng.u32(0..6) == 0;
        if is_unmounted {
            drivers.iter_mut().for_each(Driver::close_all);
            fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
        }
        let cut = match is_unmounted {
            true => Cut { at: self.device.commands(), loss: Loss::Power(CrashPlan::LoseAll) },
            false => random_cut(&self.device, self.before, rng),
        };
        let is_killed = cut.loss == Loss::Killed;
        self.is_amid = !is_unmounted && cut.at >= mounted;
        self.deeds = drivers.iter().map(|driver| deeds(driver, &cut, is_unmounted)).collect();
        self.report.commands += self.device.commands() - self.before;
        self.report.unmounts += u64::from(is_unmounted);
        self.report.kills += u64::from(is_killed);
        self.report.cuts += u64::from(!is_killed && !is_unmounted);
        self.report.cuts_in_recovery += u64::from(!is_killed && !is_unmounted && cut.at < mounted);
        drop(drivers);
        self.note(mix(&[cut.at, self.device.digest_ignoring_noise()]));
        self.device = Arc::new(cut.apply(&self.device));
        self.before = self.device.commands();
        Ok(())
    }
}

/// The operations that a client may be found to have done after this; all of them after an unmount.
fn deeds(driver: &Driver, cut: &Cut, is_unmounted: bool) -> Deeds {
    let history = &driver.history;
    if is_unmounted {
        let newest = Arc::clone(history.newest());
        return Deeds { states: vec![newest], first: history.last(), spans: files::Spans::new() };
    }
    let range = history.allowed_range(cut.at);
    Deeds { first: *range.start(), states: history.allowed(cut.at).to_vec(), spans: driver.spans() }
}

/// Background steps, and now and then an operation that a user may request.
fn background(fs: &Arc<Fs>, seed: u64, steps: u64) -> Result<(), Wrong> {
    let mut rng = Rng::with_seed(seed);
    for _ in 0..steps {
        schedule::at_device();
        let done = match rng.u32(0..40) {
            0 => fs.store().checkpoint().map_err(|error| error.to_string()),
            1 => fs.store().reclaim(true).map(|_| ()).map_err(|error| error.to_string()),
            _ => fs.step().map(|_| ()).map_err(|error| error.to_string()),
        };
        done.map_err(|error| Wrong::at("background", error))?;
    }
    Ok(())
}

/// The directory of a client.
fn home(client: u32) -> String {
    format!("client-{client}")
}

fn ensure(holds: bool, what: &str) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong(what.to_owned())) }
}

//! The command that lets the device fail at the first, second, third … command: `polder-sim faults`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use emulated::CommandKind;
use polder_sim::caught::{Wrong, caught};
use polder_sim::crew::{self, Member};
use polder_sim::faults::{self, Counts, KINDS, Kind, Moment, Outcome, Stage, Trial};
use polder_sim::files::Scenario;
use polder_sim::shapes::{self, Shape};
use rt::sync::Mutex;
use rt::{Clock, SystemClock};

#[derive(Args)]
pub(crate) struct Faults {
    /// Only as much as the gate has time for: one shape for each scenario, and one command in a few.
    #[arg(long)]
    quick: bool,
    /// One of this many commands is struck.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// Only this scenario.
    #[arg(long)]
    scenario: Option<String>,
    /// Only this shape of device.
    #[arg(long)]
    geometry: Option<String>,
    /// Only this kind of fault.
    #[arg(long)]
    fault: Option<String>,
    /// Repeat one trial: only this one of the commands that the kind strikes, counted from 1.
    #[arg(long, requires = "scenario", requires = "geometry", requires = "fault")]
    nth: Option<u64>,
    /// With `--nth`: strike while the volume is mounted and compared after the scenario.
    #[arg(long, requires = "nth")]
    at_mount: bool,
    /// With `--nth`: the zone of this number, counted from 1, comes back in this state from a loss of power.
    #[arg(long, requires = "nth", conflicts_with = "at_mount")]
    between: bool,
    /// End after this many minutes, with the sweeps that have ended by then.
    #[arg(long)]
    minutes: Option<u64>,
    /// Continue after a failure.
    #[arg(long)]
    keep_going: bool,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// All kinds of faults in one scenario on one shape.
struct Sweeps {
    options: Options,
    stages: Vec<(Scenario, Shape)>,
    next: AtomicUsize,
    clock: SystemClock,
    /// The counts of each sweep that ended.
    results: Mutex<Vec<(&'static str, Counts)>>,
    failures: Mutex<Vec<(String, Wrong)>>,
}

struct Options {
    kinds: Vec<Kind>,
    /// One of this many commands is struck. If not given, the kind determines it.
    every: Option<u64>,
    seed: u64,
    nanoseconds: u64,
    keep_going: bool,
    /// Kinds that resemble another take turns.
    is_shared: bool,
    /// Every kind has a scenario in which it can strike, and time for it.
    is_whole: bool,
    /// The run ends with its time, and not with the last command.
    is_timed: bool,
}

pub(crate) fn faults(options: &Faults) -> Result<()> {
    let mut stages = stages(options);
    ensure!(!stages.is_empty(), "no scenario matches; `polder-sim list` shows all");
    let kinds: Vec<Kind> = KINDS
        .iter()
        .filter(|kind| options.fault.as_deref().is_none_or(|name| name == kind.name))
        .copied()
        .collect();
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    ensure!(!kinds.is_empty(), "no such fault; there are: {}", names.join(", "));
    // With a time limit, each seed begins with another scenario.
    let first = options.seed as usize % stages.len();
    stages.rotate_left(first);
    if let Some(nth) = options.nth {
        return repeat(options, &stages[0], kinds[0], nth);
    }
    let clock = SystemClock::new();
    let sweeps = Arc::new(Sweeps {
        options: Options {
            kinds,
            every: options.every.or((!options.quick).then_some(1)),
            seed: options.seed,
            nanoseconds: options.minutes.unwrap_or(u64::MAX / 60_000_000_000) * 60_000_000_000,
            keep_going: options.keep_going,
            is_shared: options.quick && options.fault.is_none() && options.scenario.is_none(),
            is_whole: options.scenario.is_none() && options.minutes.is_none(),
            is_timed: options.minutes.is_some(),
        },
        stages,
        next: AtomicUsize::new(0),
        clock: SystemClock::new(),
        results: Mutex::default(),
        failures: Mutex::default(),
    });
    let shared = Arc::clone(&sweeps);
    crew::share(move |member| shared.work(member));
    print(&sweeps, clock.monotonic_ns() as f64 / 1e9)
}

fn stages(options: &Faults) -> Vec<(Scenario, Shape)> {
    let shapes = shapes::all();
    let scenarios = faults::scenarios().into_iter().enumerate();
    let wanted = scenarios
        .filter(|(_, scenario)| options.scenario.as_deref().is_none_or(|name| name == scenario.name));
    let all = wanted.flat_map(|(number, scenario)| {
        let turn = (number + options.seed as usize) % shapes.len();
        let of_turn = |at: usize| !options.quick || options.geometry.is_some() || at == turn;
        let shapes = shapes.iter().enumerate().filter(move |(at, _)| of_turn(*at));
        shapes.map(move |(_, shape)| (scenario, shape.clone())).collect::<Vec<_>>()
    });
    all.filter(|(_, shape)| options.geometry.as_deref().is_none_or(|name| name == shape.name)).collect()
}

impl Sweeps {
    fn work(&self, member: &Member) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((scenario, shape)) = self.stages.get(number) else { break };
            let seed = self.options.seed;
            let command = "polder-sim faults --scenario";
            let case = format!("{command} {} --geometry {} --seed {seed}", scenario.name, shape.name);
            member.began(case.clone());
            match caught("with nothing struck", || Stage::new(*scenario, shape.clone(), seed)) {
                Ok(stage) => self.sweep(&stage, number, member),
                Err(wrong) => self.failures.lock().push((case, wrong)),
            }
        }
    }

    /// Whether each kind has struck every command that it can, at each moment.
    fn are_complete(&self) -> bool {
        let Options { kinds, every, .. } = &self.options;
        let all = self.stages.len() * kinds.len() * Moment::ALL.len();
        *every == Some(1) && self.results.lock().len() == all
    }

    fn sweep(&self, stage: &Stage, number: usize, member: &Member) {
        let Options { kinds, every, seed, nanoseconds, keep_going, is_shared, .. } = &self.options;
        for (turn, &kind) in kinds.iter().enumerate() {
            if *is_shared && !(number + turn).is_multiple_of(kind.quick_share()) {
                continue;
            }
            let every = every.unwrap_or(kind.quick_every());
            for moment in Moment::ALL {
                let is_over = self.clock.monotonic_ns() > *nanoseconds;
                if is_over || !keep_going && !self.failures.lock().is_empty() {
                    return;
                }
                // Each seed begins with another of the first few commands. A recovery mainly reads, and no scenario
                // finishes many zones.
                let in_recovery = moment == Moment::Mount && !kind.is_of(CommandKind::Read);
                let is_rare = in_recovery || kind.is_of(CommandKind::Finish) || kind.is_of(CommandKind::Open);
                let first = if is_rare { 1 } else { 1 + seed % every };
                let began = |trial: &Trial<'_>| member.began(trial.to_string());
                let (counts, failure) = faults::sweep(stage, kind, moment, (first, every), &began);
                self.results.lock().push((kind.name, counts));
                self.failures.lock().extend(failure);
            }
        }
    }
}

fn print(sweeps: &Sweeps, seconds: f64) -> Result<()> {
    let (mut all, mut idle) = (Counts::default(), Vec::new());
    for kind in &sweeps.options.kinds {
        let mut sum = Counts::default();
        let results = sweeps.results.lock();
        results.iter().filter(|(name, _)| *name == kind.name).for_each(|(_, counts)| sum.add(counts));
        println!("{:<22} {sum}", kind.name);
        all.add(&sum);
        if sum.struck == 0 {
            idle.push(kind.name);
        }
    }
    let scenarios: std::collections::BTreeSet<&str> =
        sweeps.stages.iter().map(|(scenario, _)| scenario.name).collect();
    println!("counted scenarios: {}", scenarios.len());
    println!("counted kinds of faults: {}", sweeps.options.kinds.len());
    for (what, count) in all.named() {
        println!("counted {what}: {count}");
    }
    println!("{} scenarios on shapes, seed {}, {seconds:.1} s", sweeps.stages.len(), sweeps.options.seed);
    let is_complete = sweeps.are_complete();
    println!("{} command of them was struck", if is_complete { "every" } else { "not every" });
    let failures = sweeps.failures.lock();
    for (case, wrong) in failures.iter() {
        println!("FAILED: {}\n  repeat with: {case}", wrong.0.replace('\n', "\n    "));
    }
    ensure!(failures.is_empty(), "{} faults did more than they may", failures.len());
    ensure!(all.struck > 0, "no fault struck");
    let Options { is_whole, is_timed, is_shared, every, .. } = sweeps.options;
    let may_be_left_out = is_timed || is_shared || every != Some(1);
    ensure!(is_complete || may_be_left_out, "some commands were left out");
    ensure!(!is_whole || idle.is_empty(), "no fault struck of the kinds {}", idle.join(", "));
    Ok(())
}

fn repeat(options: &Faults, (scenario, shape): &(Scenario, Shape), kind: Kind, nth: u64) -> Result<()> {
    let stage = Stage::new(*scenario, shape.clone(), options.seed).map_err(|wrong| anyhow!("{wrong}"))?;
    let moment = match (options.at_mount, options.between) {
        (true, _) => Moment::Mount,
        (_, true) => Moment::Between,
        _ => Moment::Work,
    };
    let trial = Trial { stage: &stage, kind, moment, nth };
    match polder_sim::caught::caught(trial, || trial.run()).map_err(|wrong| anyhow!("{wrong}"))? {
        Outcome::NotReached => bail!("there are fewer commands of that kind"),
        Outcome::Struck(counts) => println!("as it should be: {counts}"),
    }
    Ok(())
}

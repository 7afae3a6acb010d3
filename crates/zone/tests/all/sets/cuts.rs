//! Sets lose their power at every command, and each member keeps what it likes.

use std::sync::Arc;

use super::model::{Counts, Done, Model, Op, crowded_workload, execute, workload};
use super::{VOLUME, devices, member_zone};
use crate::zone::set::{Layout, Set};
use crate::zone::{Device, ZoneId, ZoneInfo, ZoneState};
use emulated::{CrashPlan, Emulated, Spec, Supply};

/// The most combinations of the members' losses at one command.
const LOSSES: usize = 48;

/// One layout with its members.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) layout: Layout,
    pub(super) specs: Vec<Spec>,
    pub(super) seed: u64,
}

pub(super) fn small() -> Spec {
    Spec::new(512, 8, 12).limits(8, 8).max_append(8)
}

fn cases() -> Vec<Case> {
    let case = |layout, specs: Vec<Spec>| Case { layout, specs, seed: 0 };
    let longer = Spec::new(512, 9, 14).limits(7, 9).max_append(9);
    vec![
        case(Layout::Mirror, vec![small(), small()]),
        case(Layout::Mirror, vec![small(), longer.clone(), small()]),
        case(Layout::Stripe { chunk: 1 }, vec![small(), small()]),
        case(Layout::Stripe { chunk: 3 }, vec![small(), longer, small()]),
        case(Layout::Stripe { chunk: 4 }, vec![small()]),
    ]
}

/// Cases with more zones than slots.
fn crowded() -> Vec<Case> {
    let case = |layout, specs: Vec<Spec>| Case { layout, specs, seed: 0 };
    let spec = |open| Spec::new(512, 16, 6).limits(open, open).max_append(4);
    vec![
        case(Layout::Mirror, vec![spec(7), spec(7)]),
        case(Layout::Mirror, vec![spec(8), spec(8), spec(8)]),
        case(Layout::Stripe { chunk: 1 }, vec![spec(7), spec(7)]),
        case(Layout::Stripe { chunk: 2 }, vec![spec(8), spec(8)]),
    ]
}

/// How many workloads of each case are tried. More with the environment variable.
fn rounds() -> u64 {
    std::env::var("POLDER_SET_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// A workload on a set whose members share a supply.
pub(super) struct Run {
    pub(super) supply: Arc<Supply>,
    pub(super) members: Vec<Arc<Emulated>>,
    pub(super) set: Set,
    pub(super) empty: Model,
    pub(super) done: Vec<Done>,
}

impl Case {
    fn members(&self, supply: &Arc<Supply>) -> Vec<Arc<Emulated>> {
        let seeds = (self.seed * 10..).map(|seed| seed + 1);
        let member =
            |(spec, seed): (&Spec, u64)| Arc::new(supply.connect(Emulated::new(spec.clone().seed(seed))));
        self.specs.iter().zip(seeds).map(member).collect()
    }

    /// A set that records.
    pub(super) fn set(&self) -> (Set, Arc<Supply>, Vec<Arc<Emulated>>) {
        super::plant();
        let supply = Supply::new();
        let members = self.members(&supply);
        let set = Set::create(self.layout, devices(&members), VOLUME, 0).unwrap();
        supply.record(&members);
        (set, supply, members)
    }

    /// A workload that has as many active zones as it can, most of the time.
    fn run_crowded(&self, count: usize) -> Run {
        let (set, supply, members) = self.set();
        let empty = Model::new(&set);
        let ops = crowded_workload(&empty, &set, count, self.seed);
        let done = execute(&set, &empty, &ops, || supply.commands());
        Run { supply, members, set, empty, done }
    }

    pub(super) fn run(&self, count: usize) -> Run {
        self.run_with(count, |_| {})
    }

    /// Executes the workload after something was prepared for its members.
    pub(super) fn run_with(&self, count: usize, prepare: impl Fn(&[Arc<Emulated>])) -> Run {
        let (set, supply, members) = self.set();
        let empty = Model::new(&set);
        let ops = workload(&empty, &set, count, self.seed);
        prepare(&members);
        let done = execute(&set, &empty, &ops, || supply.commands());
        Run { supply, members, set, empty, done }
    }
}

/// Combinations of losses: all of those that need no seed, if they are few, and random ones.
fn losses(members: &[Arc<Emulated>], counts: &[u64], rng: &mut fastrand::Rng) -> Vec<Vec<CrashPlan>> {
    let plans: Vec<Vec<CrashPlan>> =
        members.iter().zip(counts).map(|(member, &n)| member.plans_at(n)).collect();
    let product: usize = plans.iter().map(Vec::len).product();
    let number = |mut number: usize| {
        let choose = |plans: &Vec<CrashPlan>| {
            let plan = plans[number % plans.len()].clone();
            number /= plans.len();
            plan
        };
        plans.iter().map(choose).collect::<Vec<_>>()
    };
    let mut losses: Vec<Vec<CrashPlan>> = match product <= LOSSES {
        true => (0..product).map(number).collect(),
        false => (0..LOSSES).map(|_| number(rng.usize(0..product))).collect(),
    };
    for _ in 0..LOSSES / 4 {
        losses.push(members.iter().map(|_| random_loss(rng)).collect());
    }
    losses
}

pub(super) fn random_loss(rng: &mut fastrand::Rng) -> CrashPlan {
    let subset = CrashPlan::Subset(rng.u64(..));
    if rng.bool() { subset } else { subset.full_active() }
}

/// Whether a zone has another state when the set is opened once more. In the last row of a stripe (at most 9 blocks
/// here) a member may be full before the others, and then the superzone is.
fn differ(one: &ZoneInfo, two: &ZoneInfo) -> bool {
    let pointer = |info: &ZoneInfo| info.state.has_pointer().then_some(info.pointer);
    let is_last_row = one.state.is_active() && one.capacity - one.pointer <= 9;
    pointer(one) != pointer(two) && !(is_last_row && two.state == ZoneState::Full)
}

/// Opens the set and compares it with the model. Then it is used, and cut once more.
fn judge(
    images: &[Arc<Emulated>],
    model: &Model,
    rng: &mut fastrand::Rng,
    counts: &mut Counts,
) -> Result<(), String> {
    let supply = Arc::clone(images[0].supply().expect("images share one"));
    supply.record(images);
    let set = Set::open(devices(images), false).map_err(|error| error.to_string())?;
    counts.add("states", 1);
    model.check(&set)?;
    if set.report().unwrap().iter().any(|info| info.state == ZoneState::ReadOnly) {
        return Err("members did not agree".to_owned());
    }
    set.flush().map_err(|error| error.to_string())?;
    let copies = model.check_copies(&set)?;
    counts.add("copies compared", copies);
    let infos = set.report().unwrap();
    let again = Set::open(devices(images), false).map_err(|error| error.to_string())?;
    let found_again = again.report().unwrap();
    let differ = infos.iter().zip(&found_again).position(|(one, two)| differ(one, two));
    if let Some(zone) = differ {
        return Err(format!("zone {zone} was {:?}, and then {:?}", infos[zone], found_again[zone]));
    }
    if rng.u32(0..8) > 0 {
        return Ok(());
    }
    // The recovery itself is cut, where nothing new is durable but what the model has.
    let n = rng.u64(0..=supply.commands());
    let plans: Vec<CrashPlan> = images.iter().map(|_| random_loss(rng)).collect();
    let cut = supply.images_at(n, images, &plans);
    let set = Set::open(devices(&cut), false).map_err(|error| error.to_string())?;
    model.check(&set).map_err(|error| format!("cut {n} of the recovery: {error}"))?;
    counts.add("cuts of recoveries", 1);
    // The set is used again, and cut again.
    let found = Model::found(&again, model);
    again.end_recovery();
    supply.record(images);
    let done = execute(&again, &found, &found.next_ops(&again), || supply.commands());
    for n in 0..=supply.commands() {
        let plans: Vec<CrashPlan> = images.iter().map(|_| random_loss(rng)).collect();
        let cut = supply.images_at(n, images, &plans);
        let set = Set::open(devices(&cut), false).map_err(|error| error.to_string())?;
        let result = found.at(&again, &done, n).check(&set);
        result.map_err(|error| format!("second cut {n} {plans:?}: {error}"))?;
        counts.add("second cuts", 1);
    }
    Ok(())
}

#[test]
fn a_set_has_an_allowed_state_after_a_cut_at_every_command() {
    let mut counts = Counts::default();
    for mut case in cases() {
        for seed in 0..rounds() {
            case.seed = seed;
            let (run, mut rng) = (case.run(60), fastrand::Rng::with_seed(seed));
            for n in 0..=run.supply.commands() {
                let model = run.empty.at(&run.set, &run.done, n);
                for plans in losses(&run.members, &run.supply.commands_at(n), &mut rng) {
                    let images = run.supply.images_at(n, &run.members, &plans);
                    let judged = judge(&images, &model, &mut rng, &mut counts);
                    judged.unwrap_or_else(|why| panic!("{case:?}, cut {n}, {plans:?}: {why}"));
                }
            }
            counts.add("commands", run.supply.commands() as usize);
        }
    }
    println!("{counts:?}");
    assert!(counts.0["states"] > 10_000 && counts.0["second cuts"] > 1000, "{counts:?}");
}

/// No more zones are open and active than the geometry says, and one slot of each member is left for its label.
fn check_limits(set: &Set, members: &[Arc<Emulated>]) -> Result<(), String> {
    let count = |infos: &[ZoneInfo]| {
        let open = infos.iter().filter(|info| info.state == ZoneState::Open).count();
        (open as u32, infos.iter().filter(|info| info.state.is_active()).count() as u32)
    };
    let (open, active) = count(&set.report().map_err(|error| error.to_string())?);
    if open > set.geometry().max_open || active > set.geometry().max_active {
        return Err(format!("{open} zones are open and {active} active"));
    }
    for (position, member) in members.iter().enumerate() {
        let (open, active) = count(&member.report().unwrap());
        if open >= member.geometry().max_open || active >= member.geometry().max_active {
            return Err(format!("{open} zones of member {position} are open and {active} active"));
        }
    }
    Ok(())
}

#[test]
fn a_set_keeps_its_limits_after_a_cut_at_every_command() {
    let mut counts = Counts::default();
    for (mut case, seed) in
        crowded().into_iter().flat_map(|case| (0..rounds()).map(move |seed| (case.clone(), seed)))
    {
        case.seed = seed;
        let (run, mut rng) = (case.run_crowded(120), fastrand::Rng::with_seed(seed));
        for n in 0..=run.supply.commands() {
            let model = run.empty.at(&run.set, &run.done, n);
            for number in 0..12 {
                let images = match number {
                    0 => run.supply.killed_at(n, &run.members),
                    _ => {
                        let plans: Vec<CrashPlan> =
                            run.members.iter().map(|_| random_loss(&mut rng)).collect();
                        run.supply.images_at(n, &run.members, &plans)
                    }
                };
                let what = || format!("{case:?}, cut {n}, {number}");
                let set =
                    Set::open(devices(&images), false).unwrap_or_else(|why| panic!("{}: {why}", what()));
                let checked = model.check(&set).and_then(|()| check_limits(&set, &images));
                checked.unwrap_or_else(|why| panic!("{}: {why}", what()));
                let active = set.report().unwrap().iter().filter(|info| info.state.is_active()).count();
                counts.add("states", 1);
                counts.add("at the limit", usize::from(active == set.geometry().max_active as usize));
            }
        }
    }
    println!("{counts:?}");
    assert!(counts.0["states"] > 5000 && counts.0["at the limit"] > 500, "{counts:?}");
}

#[test]
fn a_set_whose_user_was_killed_has_an_allowed_state_before_and_after_a_cut() {
    let mut counts = Counts::default();
    for mut case in cases() {
        case.seed = 77;
        let (run, mut rng) = (case.run(60), fastrand::Rng::with_seed(1));
        for n in 0..=run.supply.commands() {
            let model = run.empty.at(&run.set, &run.done, n);
            let killed = run.supply.killed_at(n, &run.members);
            let set = Set::open(devices(&killed), false).unwrap();
            model.check(&set).unwrap_or_else(|why| panic!("{case:?}, killed at {n}: {why}"));
            for _ in 0..10 {
                let images: Vec<Arc<Emulated>> =
                    killed.iter().map(|one| Arc::new(one.image(&random_loss(&mut rng)))).collect();
                let set = Set::open(devices(&images), false).unwrap();
                model.check(&set).unwrap_or_else(|why| panic!("{case:?}, killed at {n} and cut: {why}"));
                counts.add("states", 1);
            }
        }
    }
    println!("{counts:?}");
}

#[test]
fn a_zone_is_not_lost_with_its_header_on_one_member() {
    // A bit of the header is wrong on one member, and the power was lost: nothing may be reset.
    for layout in [Layout::Mirror, Layout::Stripe { chunk: 2 }] {
        for position in 0..2 {
            let (set, _, members) = Case { layout, specs: vec![small(), small()], seed: 3 }.set();
            let mut model = Model::new(&set);
            for op in [Op::Append(1, 1), Op::Append(1, 5), Op::Flush] {
                model.execute(&set, op).unwrap();
            }
            members[position].corrupt(member_zone(1), 0, 40, 1);
            let set = Set::open(devices(&members), false).unwrap();
            set.end_recovery();
            let info = set.report_zone(ZoneId(1)).unwrap();
            assert_eq!(info.state, ZoneState::Full, "{layout:?}");
            let good = (0..set.copies(ZoneId(1), 0)).filter(|&copy| {
                let mut block = vec![0; 512];
                set.read_copy(ZoneId(1), 0, copy, &mut block).unwrap();
                crate::zone::format::decode_header(&block).is_ok()
            });
            assert_eq!(good.count(), 1, "{layout:?}: the other copy of the header is right");
            let mut data = vec![0; 512];
            set.read(ZoneId(1), 3, &mut data).unwrap();
            assert_eq!(&data[..4], b"TAG.", "{layout:?}: the data is there");
        }
    }
}

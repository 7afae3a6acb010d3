//! A member of a mirror is replaced: losses of power and of members at every command, while the set is used.

use std::sync::Arc;

use super::cuts::{random_loss, small};
use super::model::{Counts, Done, Model, Op, execute, workload};
use super::{VOLUME, create, devices, emulated, member_zone};
use crate::zone::set::{Layout, MemberLabel, MemberState, RebuildStep, Set, SetError};
use crate::zone::{Device, DeviceError, ZoneId, ZoneState};
use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault, Spec, Supply};

/// Losses that are tried at each command.
const LOSSES: u64 = 16;

fn rounds() -> u64 {
    std::env::var("POLDER_SET_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// How the member of position 1 is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Old {
    Works,
    Missing,
}

/// A mirror whose member 1 is replaced by the last device, while it is used.
struct Replacement {
    supply: Arc<Supply>,
    /// The members by position, and the new one behind them.
    members: Vec<Arc<Emulated>>,
    set: Set,
    empty: Model,
    done: Vec<Done>,
    /// What the steps said last.
    last: RebuildStep,
    /// The number of changes when the new member counted.
    counted: Option<u64>,
}

/// Executes a workload with steps of the rebuild in between, until the new member counts or was given up.
fn replace(width: usize, old: Old, seed: u64, prepare: impl Fn(&[Arc<Emulated>])) -> Replacement {
    super::plant();
    let supply = Supply::new();
    let member = |number| Arc::new(supply.connect(Emulated::new(small().seed(seed * 10 + number))));
    let members: Vec<Arc<Emulated>> = (1..=width as u64 + 1).map(member).collect();
    let set = Set::create(Layout::Mirror, devices(&members[..width]), VOLUME, 0).unwrap();
    let mut model = Model::new(&set);
    // There is something to copy.
    let first = workload(&model, &set, 24, seed);
    execute(&set, &model, &first, || 0);
    first.iter().chain(&[Op::Flush]).for_each(|&op| model.note(op, &set));
    set.flush().unwrap();
    let set = match old {
        Old::Works => set,
        Old::Missing => {
            drop(set);
            Set::open(devices(&[&members[..1], &members[2..width]].concat()), true).unwrap()
        }
    };
    set.end_recovery();
    supply.record(&members);
    prepare(&members);
    let empty = model.clone();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut run =
        Replacement { supply, members, set, empty, done: Vec::new(), last: RebuildStep::More, counted: None };
    let ops = workload(&model, &run.set, 40, seed + 1);
    let begun = run.set.replace(1, Arc::clone(&run.members[width]) as _);
    run.last = begun.map_or_else(|error| RebuildStep::GivenUp(error.to_string()), |()| RebuildStep::More);
    for op in ops {
        if !run.execute(op, &mut model) {
            return run;
        }
        if rng.u32(0..3) == 0 {
            run.step();
        }
    }
    while run.last == RebuildStep::More {
        run.step();
    }
    for op in [Op::Flush].into_iter().chain(workload(&model, &run.set, 6, seed + 2)) {
        if !run.execute(op, &mut model) {
            return run;
        }
    }
    run
}

impl Replacement {
    /// Returns whether it succeeded. If not, the set has lost all members.
    fn execute(&mut self, op: Op, model: &mut Model) -> bool {
        let begin = self.supply.commands();
        match model.execute(&self.set, op) {
            Ok(()) => self.done.push(Done { op, begin, end: self.supply.commands() }),
            // A member that counts has an error of a zone.
            Err(DeviceError::Io { .. }) if self.counted.is_some() => {
                self.done.push(Done { op, begin, end: u64::MAX });
                return false;
            }
            Err(error) => {
                assert!(self.set.report().is_err(), "{op:?}: {error}, but a member is left");
                self.done.push(Done { op, begin, end: u64::MAX });
                return false;
            }
        }
        true
    }

    fn step(&mut self) {
        if self.last != RebuildStep::More {
            return;
        }
        self.last = self.set.rebuild_step().unwrap_or(RebuildStep::Idle);
        if self.last == RebuildStep::Complete {
            self.counted = Some(self.supply.commands());
        }
    }

    fn new_member(&self) -> usize {
        self.members.len() - 1
    }

    fn model_at(&self, n: u64) -> Model {
        self.empty.at(&self.set, &self.done, n)
    }
}

/// The devices that a search would find: those with a label.
fn labelled(images: &[Arc<Emulated>]) -> Vec<Arc<dyn Device>> {
    let is_labelled = |image: &&Arc<Emulated>| MemberLabel::read(&***image).is_ok();
    images.iter().filter(is_labelled).map(|image| Arc::clone(image) as _).collect()
}

/// Executes all steps. Returns whether a member was rebuilt.
fn rebuild(set: &Set) -> Result<bool, String> {
    for number in 0.. {
        match set.rebuild_step().map_err(|error| error.to_string())? {
            RebuildStep::More if number < 1000 => {}
            RebuildStep::Complete => return Ok(true),
            RebuildStep::Idle => return Ok(false),
            step => return Err(format!("step {number}: {step:?}")),
        }
    }
    unreachable!("there is a bound")
}

/// Opens the devices after a loss of power, continues the rebuild, and then takes the others away.
fn judge(
    images: &[Arc<Emulated>],
    model: &Model,
    must_count: bool,
    rng: &mut fastrand::Rng,
    counts: &mut Counts,
) -> Result<(), String> {
    let supply = Arc::clone(images[0].supply().expect("images share one"));
    supply.record(images);
    let set = Set::open(labelled(images), true).map_err(|error| error.to_string())?;
    model.check(&set)?;
    set.flush().map_err(|error| error.to_string())?;
    model.check_copies(&set)?;
    counts.add("states", 1);
    let states = set.members();
    if must_count && states.contains(&MemberState::Rebuilding) {
        return Err(format!("the new member does not count: {states:?}"));
    }
    let (found, opened) = (Model::found(&set, model), supply.commands());
    set.end_recovery();
    if !states.contains(&MemberState::Rebuilding) {
        if must_count {
            // Without the others.
            let alone = Set::open(devices(&images[images.len() - 1..]), true);
            model.check(&alone.map_err(|error| error.to_string())?)?;
            counts.add("new members alone", 1);
        }
        return Ok(());
    }
    counts.add("states in which a member is being rebuilt", 1);
    // The set is used while the rebuild continues.
    let (mut now, mut done) = (found.clone(), Vec::new());
    for op in found.next_ops(&set) {
        let begin = supply.commands();
        now.execute(&set, op).map_err(|error| format!("{op:?}: {error}"))?;
        done.push(Done { op, begin, end: supply.commands() });
        if rng.bool() {
            set.rebuild_step().map_err(|error| error.to_string())?;
        }
    }
    if !rebuild(&set)? && set.members().contains(&MemberState::Rebuilding) {
        return Err("it is still being rebuilt".to_owned());
    }
    now.execute(&set, Op::Flush).map_err(|error| error.to_string())?;
    now.check_copies(&set)?;
    let counted = supply.commands();
    let alone = Set::open(devices(&images[images.len() - 1..]), true).map_err(|error| error.to_string())?;
    now.check(&alone).map_err(|why| format!("the new member alone: {why}"))?;
    counts.add("new members alone", 1);
    // The rebuild is cut once more.
    for _ in 0..2 {
        let n = rng.u64(0..=counted);
        let plans: Vec<CrashPlan> = images.iter().map(|_| random_loss(rng)).collect();
        let cut = supply.images_at(n, images, &plans);
        let again = Set::open(labelled(&cut), true).map_err(|error| error.to_string())?;
        // Before it was open, nothing more was durable.
        let then = if n < opened { model.clone() } else { found.at(&set, &done, n) };
        then.check(&again).map_err(|why| format!("second cut {n}, {plans:?}: {why}"))?;
        again.end_recovery();
        if rebuild(&again)? {
            let alone = Set::open(devices(&cut[cut.len() - 1..]), true).map_err(|error| error.to_string())?;
            let checked = then.check(&alone);
            checked.map_err(|why| format!("second cut {n}, {plans:?}, alone: {why}"))?;
        }
        counts.add("second cuts", 1);
    }
    Ok(())
}

#[test]
fn a_mirror_loses_its_power_at_every_command_of_a_replacement() {
    let mut counts = Counts::default();
    let cases = [(2, Old::Works), (2, Old::Missing), (3, Old::Works)];
    for ((width, old), seed) in cases.into_iter().flat_map(|case| (0..rounds()).map(move |seed| (case, seed)))
    {
        let run = replace(width, old, seed, |_| {});
        let counted = run.counted.expect("the new member counts");
        assert_eq!(run.set.members(), vec![MemberState::Counts; width]);
        let mut rng = fastrand::Rng::with_seed(seed);
        let end = run.supply.commands();
        for (n, number) in (0..=end).flat_map(|n| (0..LOSSES).map(move |number| (n, number))) {
            let plans: Vec<CrashPlan> = run
                .members
                .iter()
                .map(|_| match number {
                    0 => CrashPlan::LoseContents,
                    1 => CrashPlan::LoseContents.full_active(),
                    2 => CrashPlan::LoseAllUndoResets,
                    _ => random_loss(&mut rng),
                })
                .collect();
            let images = run.supply.images_at(n, &run.members, &plans);
            let is_all = n >= counted;
            let judged = judge(&images, &run.model_at(n), is_all, &mut rng, &mut counts);
            judged.unwrap_or_else(|why| {
                panic!("{width} {old:?} seed {seed}, cut {n} of {end} (counted {counted}), {plans:?}: {why}")
            });
        }
        counts.add("commands", end as usize);
    }
    println!("{counts:?}");
    assert!(counts.0["states in which a member is being rebuilt"] > 2000, "{counts:?}");
    assert!(counts.0["new members alone"] > 2000 && counts.0["second cuts"] > 2000, "{counts:?}");
}

/// Before the others list it, a device that is to become a member decides nothing.
#[test]
fn a_replacement_has_happened_or_not() {
    let run = replace(2, Old::Works, 5, |_| {});
    let mut counts = Counts::default();
    let mut rng = fastrand::Rng::with_seed(1);
    for (n, _) in (0..=run.supply.commands()).flat_map(|n| (0..6).map(move |number| (n, number))) {
        let plans: Vec<CrashPlan> = run.members.iter().map(|_| random_loss(&mut rng)).collect();
        let images = run.supply.images_at(n, &run.members, &plans);
        let set = Set::open(labelled(&images), false).unwrap_or_else(|why| panic!("cut {n}: {why}"));
        let states = set.members();
        assert!(!states.contains(&MemberState::Failed), "cut {n}, {plans:?}: {states:?}");
        let is_new_used = MemberLabel::read(&*images[2]).is_ok_and(|label| !label.is_joining());
        counts.add(if is_new_used { "after" } else { "before" }, 1);
        if MemberLabel::read(&*images[2]).is_ok_and(|label| label.is_joining()) {
            let alone = Set::open(devices(&images[2..]), true).err();
            assert!(matches!(alone, Some(SetError::NotJoined)), "cut {n}: {alone:?}");
            counts.add("joining", 1);
        }
    }
    println!("{counts:?}");
    assert!(counts.0["before"] > 20 && counts.0["joining"] > 10 && counts.0["after"] > 100, "{counts:?}");
}

/// The new member or one that counts fails at every command, for good, and then the power fails.
#[test]
fn a_member_fails_at_every_command_of_a_replacement() {
    let mut counts = Counts::default();
    for (width, lost) in [(2, 2), (2, 0), (3, 3), (3, 0)] {
        let all = replace(width, Old::Works, 3, |_| {});
        let changes = all.members[lost].commands();
        for after in 0..changes {
            let run = replace(width, Old::Works, 3, |members| members[lost].lose_power_after(after));
            counts.add("losses", 1);
            let states = run.set.members();
            let what = format!("{width}, {lost} fails after {after}: {:?}, {states:?}", run.last);
            if lost == run.new_member() {
                assert!(states[0] == MemberState::Counts, "{what}");
                assert!(!states.contains(&MemberState::Rebuilding), "{what}");
                counts.add("given up", usize::from(run.counted.is_none()));
            } else {
                counts.add("still rebuilt", usize::from(run.counted.is_some()));
                assert!(width == 2 || run.counted.is_some(), "{what}");
            }
            let mut rng = fastrand::Rng::with_seed(after);
            let end = run.supply.commands();
            let within = (0..4).map(|_| rng.u64(0..=end)).collect::<Vec<u64>>();
            for n in [vec![end], within].concat() {
                let plans: Vec<CrashPlan> = run.members.iter().map(|_| random_loss(&mut rng)).collect();
                let images = run.supply.images_at(n, &run.members, &plans);
                let set =
                    Set::open(labelled(&images), true).unwrap_or_else(|why| panic!("{what}, cut {n}: {why}"));
                let model = run.model_at(n);
                model.check(&set).unwrap_or_else(|why| panic!("{what}, cut {n}, {plans:?}: {why}"));
                set.flush().unwrap();
                model.check_copies(&set).unwrap_or_else(|why| panic!("{what}, cut {n}, {plans:?}: {why}"));
                let rebuilt = rebuild(&set).unwrap_or_else(|why| panic!("{what}, cut {n}: {why}"));
                model.check_copies(&set).unwrap_or_else(|why| panic!("{what}, cut {n}, {plans:?}: {why}"));
                counts.add("states", 1);
                counts.add("rebuilt afterwards", usize::from(rebuilt));
            }
        }
    }
    println!("{counts:?}");
    assert!(
        counts.0["given up"] > 50 && counts.0["still rebuilt"] > 50 && counts.0["states"] > 1000,
        "{counts:?}"
    );
    assert!(counts.0["rebuilt afterwards"] > 50, "{counts:?}");
}

/// The label of the new member alone said that the other one is replaced, after the only other one had failed while it was
/// written: the volume could not be opened any more.
#[test]
fn a_member_that_fails_during_a_replacement_and_stays_away_is_not_needed() {
    let changes = replace(2, Old::Works, 3, |_| {}).members[0].commands();
    let mut counts = Counts::default();
    for after in 0..changes {
        let run = replace(2, Old::Works, 3, |members| members[0].lose_power_after(after));
        let has_joined = !matches!(run.last, RebuildStep::GivenUp(_));
        let is_replaced = run.counted.is_some();
        if has_joined && !is_replaced {
            // It was durable that the old member is replaced, so what followed is on the first one alone.
            assert!(run.set.report().is_err(), "{after}: {:?}", run.set.members());
            counts.add("too late", 1);
            continue;
        }
        counts.add(if is_replaced { "replaced" } else { "not replaced" }, 1);
        let mut rng = fastrand::Rng::with_seed(after);
        let plans: Vec<CrashPlan> = run.members.iter().map(|_| random_loss(&mut rng)).collect();
        let end = run.supply.commands();
        let images = run.supply.images_at(end, &run.members, &plans);
        let set = Set::open(labelled(&images[1..]), true);
        let set = set.unwrap_or_else(|why| panic!("{after}, replaced: {is_replaced}: {why}"));
        run.model_at(end).check(&set).unwrap_or_else(|why| panic!("{after}, {plans:?}: {why}"));
    }
    println!("{counts:?}");
    assert!(counts.0["not replaced"] > 2 && counts.0["replaced"] > 2, "{counts:?}");
}

/// A member is replaced although it works. The other one lacks a superzone, so its contents would be lost.
#[test]
fn the_only_member_that_has_a_superzone_is_not_replaced() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    append(&set, 1, 1).unwrap();
    set.flush().unwrap();
    members[0].set_zone_state(member_zone(1), ZoneState::Offline);
    let error = set.replace(1, new_device()).unwrap_err().to_string();
    assert!(error.contains("superzone 1 is on this member only"), "{error}");
    set.replace(0, new_device()).unwrap();
    assert!(rebuild(&set).unwrap());
}

/// A superzone takes no more writes, but its zone of the other member is still active. A piece that went beyond the pointer
/// of that zone was copied as zeros, with the blocks below the pointer.
#[test]
fn blocks_below_the_pointer_of_a_member_are_copied() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    for tag in 1..5 {
        append(&set, 1, tag).unwrap();
    }
    set.flush().unwrap();
    drop(set);
    members[1].set_zone_state(member_zone(1), ZoneState::ReadOnly);
    members[0].inject(Fault::nth(CommandKind::Finish, 1, Effect::Error).on(member_zone(1)).forever());
    let set = Set::open(devices(&members), false).unwrap();
    set.end_recovery();
    assert_eq!(set.report().unwrap()[1].state, ZoneState::ReadOnly);
    assert!(members[0].report().unwrap()[member_zone(1).0 as usize].state.is_active());
    let new = new_device();
    set.replace(1, Arc::clone(&new) as _).unwrap();
    assert!(rebuild(&set).unwrap());
    let alone = Set::open(vec![new], true).unwrap();
    for (block, tag) in (0..).zip(1..5) {
        let mut found = crate::pattern(&set, 0, 1);
        alone.read(ZoneId(1), block, &mut found).unwrap();
        assert!(found == crate::pattern(&set, tag, 1), "block {block}");
    }
}

fn append(set: &Set, zone: u32, tag: u8) -> Result<u32, DeviceError> {
    set.append(ZoneId(zone), &crate::pattern(set, tag, 1))
}

fn new_device() -> Arc<Emulated> {
    Arc::new(Emulated::new(small().seed(99)))
}

/// Nothing is written before a replacement is refused.
#[test]
fn replacements_that_are_not_possible_are_refused() {
    let refused = |set: &Set, position: usize, device: &Arc<Emulated>| {
        let before = device.digest();
        let refused = set.replace(position, Arc::clone(device) as _).err();
        let error = refused.unwrap_or_else(|| panic!("{position}, {:?}: not refused", device.spec()));
        assert_eq!(device.digest(), before, "{error}");
        error.to_string()
    };
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    append(&set, 1, 1).unwrap();
    for (spec, words) in [
        (Spec::new(512, 7, 12).limits(8, 8), "7 zones instead of 8"),
        (Spec::new(512, 8, 11).limits(8, 8), "11 blocks in a zone instead of 12"),
        (Spec::new(512, 8, 12).limits(7, 8), "7 open zones instead of 8"),
        (Spec::new(512, 8, 12).limits(7, 7), "instead of 8"),
        (Spec::new(4096, 8, 12).limits(8, 8), "blocks of 4096 bytes"),
        (Spec::new(512, 7, 12).limits(8, 8).last_zone(6), "6 blocks instead of 12"),
    ] {
        let device = Arc::new(Emulated::new(spec));
        device.append(ZoneId(5), &vec![1; device.geometry().block_size as usize]).unwrap();
        let said = refused(&set, 1, &device);
        assert!(said.contains(words), "{said}");
    }
    let broken = new_device();
    broken.set_zone_state(member_zone(2), ZoneState::ReadOnly);
    assert!(refused(&set, 1, &broken).contains("takes no writes"));
    assert!(refused(&set, 2, &new_device()).contains("no position 2"));
    for member in &members {
        assert!(refused(&set, 1, member).contains("is a member of the set"));
    }
    let generation = set.generation();
    let stripe = create(Layout::STRIPE, &emulated(&small(), 2));
    assert!(refused(&stripe, 1, &new_device()).contains("is a stripe"));
    // The only one that counts.
    let alone = Set::open(devices(&members[..1]), true).unwrap();
    assert!(refused(&alone, 0, &new_device()).contains("the only one"));
    // One at a time.
    alone.replace(1, new_device()).unwrap();
    assert!(refused(&alone, 1, &new_device()).contains("is being rebuilt"));
    assert_eq!(rebuild(&alone), Ok(true));
    assert_eq!(set.generation(), generation, "a refusal writes no label");
}

/// What was copied, and is equal, is not copied again.
#[test]
fn a_rebuild_that_was_interrupted_continues() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    for zone in 0..4 {
        (0..12).for_each(|tag| assert_eq!(append(&set, zone, tag).unwrap(), u32::from(tag)));
    }
    append(&set, 4, 1).unwrap();
    let new = new_device();
    set.replace(1, Arc::clone(&new) as _).unwrap();
    while set.rebuild_state().unwrap().zones_done < 3 {
        assert_eq!(set.rebuild_step().unwrap(), RebuildStep::More);
    }
    // A piece of another one.
    set.rebuild_step().unwrap();
    drop(set);
    let all = vec![Arc::clone(&members[0]), Arc::clone(&new)];
    let set = Set::open(devices(&all), false).expect("all members are there");
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Rebuilding]);
    // One of them was changed meanwhile.
    new.corrupt(member_zone(1), 7, 3, 1);
    let state = set.rebuild_state().unwrap();
    assert_eq!((state.position, state.zones_done, state.zones), (1, 0, 5));
    // It is not read.
    assert_eq!(set.copies(ZoneId(1), 7), 1);
    set.end_recovery();
    let blocks = || {
        let written = |zone: u32| new.report_zone(member_zone(zone)).unwrap().state;
        (0..5).map(written).collect::<Vec<_>>()
    };
    assert_eq!(blocks()[..3], [ZoneState::Full; 3]);
    let resets = || new.counters().of(CommandKind::Reset);
    let before = resets();
    assert_eq!(rebuild(&set), Ok(true));
    // The labels, and the zone that was changed; the active ones were emptied when the set was opened.
    let of_labels = 2;
    assert_eq!(resets(), before + of_labels + 1);
    let alone = Set::open(devices(&all[1..]), true).unwrap();
    for zone in 0..4 {
        assert_eq!(crate::tags(&alone, zone, 0, 12), (0..12).collect::<Vec<u8>>());
    }
    assert_eq!(crate::tags(&alone, 4, 0, 1), [1]);
    let info = alone.report_zone(ZoneId(4)).unwrap();
    assert!(info.state.is_active() && info.pointer == 1, "{info:?}");
}

#[test]
fn a_superzone_that_is_written_again_between_two_pieces_is_copied_anew() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    (0..9).for_each(|tag| assert_eq!(append(&set, 0, tag).unwrap(), u32::from(tag)));
    let new = new_device();
    set.replace(1, Arc::clone(&new) as _).unwrap();
    while new.report_zone(member_zone(0)).unwrap().pointer == 0 {
        assert_eq!(set.rebuild_step().unwrap(), RebuildStep::More);
    }
    assert!(new.report_zone(member_zone(0)).unwrap().pointer < 9, "it is one piece");
    set.reset(ZoneId(0)).unwrap();
    (20..26).for_each(|tag| assert_eq!(append(&set, 0, tag).unwrap(), u32::from(tag) - 20));
    rebuild(&set).unwrap();
    assert_eq!(set.members(), [MemberState::Counts; 2]);
    let alone = Set::open(devices(&[new]), true).unwrap();
    assert_eq!(crate::tags(&alone, 0, 0, 6), (20..26).collect::<Vec<u8>>());
}

/// No member can read a block: the new member must not count, because a block of zeros would be taken for a lost one.
#[test]
fn a_block_that_no_member_can_read_stops_the_rebuild_until_it_is_gone() {
    let members = emulated(&small(), 3);
    let set = create(Layout::Mirror, &members);
    for zone in 0..3 {
        (0..12).for_each(|tag| assert_eq!(append(&set, zone, tag).unwrap(), u32::from(tag)));
    }
    members[0].make_unreadable(member_zone(1), 5);
    // Another member has this one.
    members[0].make_unreadable(member_zone(2), 5);
    members[2].make_unreadable(member_zone(1), 5);
    let new = new_device();
    set.replace(1, Arc::clone(&new) as _).unwrap();
    let mut blocked = 0;
    for _ in 0..100 {
        match set.rebuild_step().unwrap() {
            RebuildStep::More => {}
            RebuildStep::Blocked(1) => blocked += 1,
            step => panic!("{step:?}"),
        }
    }
    assert!(blocked > 2, "{blocked}");
    assert_eq!(set.rebuild_state().unwrap().zones_done, 4);
    assert_eq!(set.members()[1], MemberState::Rebuilding);
    set.reset(ZoneId(1)).unwrap();
    assert_eq!(rebuild(&set), Ok(true));
    let alone = Set::open(devices(&[new]), true).unwrap();
    assert_eq!(crate::tags(&alone, 2, 0, 12), (0..12).collect::<Vec<u8>>());
}

/// All slots of the new member are in use, one of them by a copy, and a label must be written.
#[test]
fn a_label_takes_the_slot_of_a_copy() {
    let spec = || Spec::new(512, 16, 12).limits(8, 8).max_append(8);
    let members = emulated(&spec(), 3);
    let set = create(Layout::Mirror, &members);
    let max = set.geometry().max_active;
    (0..12).for_each(|tag| assert_eq!(append(&set, 12, tag).unwrap(), u32::from(tag)));
    let new = Arc::new(Emulated::new(spec()));
    set.replace(1, Arc::clone(&new) as _).unwrap();
    let active = |device: &Emulated| {
        device.report().unwrap().iter().filter(|info| info.state.is_active()).count() as u32
    };
    // Zones that are begun now are on the new member, too.
    while !set.rebuild_step().is_ok_and(|_| active(&new) == 1) {}
    (0..max).for_each(|zone| assert_eq!(append(&set, zone, 1).unwrap(), 0));
    assert_eq!(active(&new), max + 1, "one of them is that of the copy");
    members[2].lose_power_after(0);
    set.flush().unwrap();
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Rebuilding, MemberState::Failed]);
    (0..max).for_each(|zone| assert_eq!(append(&set, zone, 2).unwrap(), 1));
    assert_eq!(rebuild(&set), Ok(true));
    let alone = Set::open(devices(&[new]), true).unwrap();
    assert_eq!(crate::tags(&alone, 12, 0, 12), (0..12).collect::<Vec<u8>>());
    assert_eq!(crate::tags(&alone, max - 1, 0, 2), [1, 2]);
}

/// A command of the new member fails, and not the whole member: the set goes on, and the zone is copied again.
#[test]
fn an_error_of_a_zone_of_the_new_member_is_none_of_the_set() {
    for (kind, nth) in [CommandKind::Append, CommandKind::Finish, CommandKind::Reset]
        .into_iter()
        .flat_map(|kind| (1..30).map(move |nth| (kind, nth)))
    {
        let run = replace(2, Old::Works, nth, |members| {
            for zone in 0..5 {
                members[2].inject(Fault::nth(kind, nth, Effect::Error).on(member_zone(zone)));
            }
        });
        assert_eq!(run.last, RebuildStep::Complete, "{kind:?} {nth}");
        let model = run.model_at(run.supply.commands());
        let alone = Set::open(devices(&run.members[2..]), true).unwrap();
        model.check(&alone).unwrap_or_else(|why| panic!("{kind:?} {nth}: {why}"));
    }
}

/// A zone of the new member can never be written.
#[test]
fn a_new_member_that_cannot_have_a_zone_is_given_up() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    (0..12).for_each(|tag| assert_eq!(append(&set, 2, tag).unwrap(), u32::from(tag)));
    let new = new_device();
    set.replace(1, Arc::clone(&new) as _).unwrap();
    new.inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(member_zone(2)).forever());
    let given_up = (0..100).find_map(|_| match set.rebuild_step().unwrap() {
        RebuildStep::GivenUp(why) => Some(why),
        _ => None,
    });
    assert!(given_up.is_some());
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed]);
    assert_eq!(set.rebuild_step().unwrap(), RebuildStep::Idle);
    append(&set, 1, 1).unwrap();
    // Another one takes its place.
    let other = new_device();
    set.replace(1, Arc::clone(&other) as _).unwrap();
    assert_eq!(rebuild(&set), Ok(true));
    let alone = Set::open(devices(&[other]), true).unwrap();
    assert_eq!(crate::tags(&alone, 2, 0, 12), (0..12).collect::<Vec<u8>>());
}

#[test]
fn a_replaced_member_that_is_still_there_is_not_used() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    append(&set, 1, 1).unwrap();
    let new = new_device();
    set.replace(1, Arc::clone(&new) as _).unwrap();
    append(&set, 1, 2).unwrap();
    let all = vec![Arc::clone(&members[0]), Arc::clone(&members[1]), Arc::clone(&new)];
    let set = Set::open(devices(&all), false).unwrap();
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Rebuilding]);
    assert_eq!(rebuild(&set), Ok(true));
    let set = Set::open(devices(&all), false).unwrap();
    assert_eq!(set.members(), [MemberState::Counts; 2]);
    assert_eq!(crate::tags(&set, 1, 0, 2), [1, 2]);
    // It returns as a new member, with a new identity.
    append(&set, 1, 3).unwrap();
    set.replace(0, Arc::clone(&members[1]) as _).unwrap();
    assert_eq!(rebuild(&set), Ok(true));
    let set = Set::open(devices(&all), false).unwrap();
    assert_eq!(set.members(), [MemberState::Counts; 2]);
    let alone = Set::open(devices(&members[1..]), true).unwrap();
    assert_eq!(crate::tags(&alone, 1, 0, 3), [1, 2, 3]);
}

/// The member that was replaced is used alone afterwards. Together with the others it is refused.
#[test]
fn a_replaced_member_that_was_used_is_not_mixed_in() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    append(&set, 1, 1).unwrap();
    set.flush().unwrap();
    set.replace(1, new_device()).unwrap();
    append(&set, 1, 2).unwrap();
    set.flush().unwrap();
    drop(set);
    let alone = Set::open(devices(&members[1..]), true).unwrap();
    append(&alone, 2, 9).unwrap();
    alone.flush().unwrap();
    drop(alone);
    let orders = [[0, 1], [1, 0]].map(|order| order.map(|at| Arc::clone(&members[at])));
    for devices_in_order in orders {
        let refused = Set::open(devices(&devices_in_order), true).err();
        assert!(matches!(refused, Some(SetError::Divided(..))), "{refused:?}");
    }
}

/// Threads write and reset while a member is rebuilt.
#[test]
fn a_member_is_rebuilt_while_threads_write() {
    for round in 0..20 {
        let spec = || Spec::new(512, 20, 40).limits(14, 14).max_append(8);
        let members = emulated(&spec(), 2);
        let set = create(Layout::Mirror, &members);
        set.end_recovery();
        let new = Arc::new(Emulated::new(spec().seed(round)));
        let threads = 4_u32;
        let writer = |number: u32| {
            let mut rng = fastrand::Rng::with_seed(round * 10 + u64::from(number));
            for _ in 0..300 {
                let zone = number * 4 + rng.u32(0..4);
                let info = set.report_zone(ZoneId(zone)).unwrap();
                match rng.u32(0..10) {
                    0 => set.flush().unwrap(),
                    1 if info.state != ZoneState::Empty => set.reset(ZoneId(zone)).unwrap(),
                    2 if info.state.is_active() => set.finish(ZoneId(zone)).unwrap(),
                    _ if info.state != ZoneState::Full && info.pointer < info.capacity => {
                        // Too many zones may be open.
                        let _ = set.append(ZoneId(zone), &crate::pattern(&set, rng.u8(..), 1));
                    }
                    _ => {}
                }
            }
        };
        std::thread::scope(|scope| {
            (0..threads).for_each(|number| drop(scope.spawn(move || writer(number))));
            set.replace(1, Arc::clone(&new) as _).unwrap();
            assert_eq!(rebuild(&set), Ok(true));
        });
        set.flush().unwrap();
        assert_eq!(set.members(), [MemberState::Counts; 2]);
        for (zone, info) in (0..).zip(set.report().unwrap()) {
            let end = if info.state.has_pointer() { info.pointer } else { 0 };
            for block in 0..end {
                let copies = [0, 1].map(|copy| {
                    let mut bytes = vec![0; 512];
                    set.read_copy(ZoneId(zone), block, copy, &mut bytes).unwrap();
                    bytes
                });
                assert_eq!(copies[0], copies[1], "round {round}, zone {zone} block {block}");
            }
            let states =
                [&members[0], &new].map(|device| device.report_zone(member_zone(zone)).unwrap().state);
            assert_eq!(states[0], states[1], "round {round}, zone {zone}");
        }
    }
}

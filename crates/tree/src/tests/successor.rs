//! The decisions of recovery when a log zone is damaged, in every state that a switch of the log leaves.
//!
//! A [`Story`] moves the log from one zone to the next, or further. The power is cut after each of its commands. Then
//! one log zone is damaged in each possible way. Either the mount is refused and has changed nothing, or no
//! acknowledged record is missing. Without damage it is never refused, nor if the damaged zone was empty.

use std::collections::BTreeSet;

use emulated::{CommandKind, Effect, Fault};
use zone::{ZoneId, ZoneState};

use super::*;
use crate::StoreError;
use crate::scan::LogZone;

/// The damage of a zone after the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    None,
    Offline,
    ReadOnly,
    HeaderRefused,
    HeaderWrong,
    BatchesRefused,
    BatchesWrong,
    AllRefused,
    AllWrong,
    Emptied,
}

impl Damage {
    const ALL: [Damage; 10] = [
        Damage::None,
        Damage::Offline,
        Damage::ReadOnly,
        Damage::HeaderRefused,
        Damage::HeaderWrong,
        Damage::BatchesRefused,
        Damage::BatchesWrong,
        Damage::AllRefused,
        Damage::AllWrong,
        Damage::Emptied,
    ];

    /// Damages the zone. Returns whether that changed it.
    fn strike(self, device: &Emulated, zone: ZoneId) -> bool {
        let state = device.report_zone(zone).unwrap().state;
        let capacity = device.geometry().zone_blocks;
        let written = || (0..capacity).filter(|&block| device.is_written(zone, block));
        let refuse = |block| device.make_unreadable(zone, block);
        let spoil = |block| device.corrupt(zone, block, 20, 1);
        match self {
            Damage::None => zone == ZoneId(0),
            _ if state == ZoneState::Offline => false,
            Damage::Offline => {
                device.set_zone_state(zone, ZoneState::Offline);
                true
            }
            _ if state == ZoneState::Empty => false,
            Damage::ReadOnly => {
                device.set_zone_state(zone, ZoneState::ReadOnly);
                state != ZoneState::ReadOnly
            }
            Damage::HeaderRefused => written().take(1).map(refuse).count() > 0,
            Damage::HeaderWrong => written().take(1).map(spoil).count() > 0,
            Damage::BatchesRefused => written().skip(1).map(refuse).count() > 0,
            Damage::BatchesWrong => written().skip(1).map(spoil).count() > 0,
            Damage::AllRefused => written().map(refuse).count() > 0,
            Damage::AllWrong => written().map(spoil).count() > 0,
            Damage::Emptied => state != ZoneState::ReadOnly && device.reset(zone).is_ok(),
        }
    }
}

/// A device that recorded the moves of the log, and the acknowledgements.
struct Story {
    name: &'static str,
    device: Arc<Emulated>,
    after: BTreeMap<Lsn, Contents>,
    /// A number of commands, and the last transaction that a sync had acknowledged by then.
    acknowledged: Vec<(u64, Lsn)>,
}

/// The numbers of judged states and of results.
#[derive(Debug, Default)]
struct Seen {
    states: u64,
    opened: u64,
    refused: u64,
}

/// The zone with the newest batch.
pub(super) fn log_in_use(device: &Emulated) -> ZoneId {
    let newest = (0..3).map(ZoneId).zip(device.report().unwrap()).filter_map(|(zone, info)| {
        let (identity, _) = crate::read_header(device, zone).ok()?.ok()?;
        let found = LogZone::new(device, identity.fs_id, zone, identity.life, info).last().ok()??;
        Some((found.epoch, found.sequence, zone))
    });
    newest.max().expect("the log is in one of them").2
}

impl Story {
    /// Begins with the mount of a device.
    fn new(name: &'static str, device: Arc<Emulated>) -> (Story, Store) {
        device.record();
        let (store, recovery) = open(&device).unwrap();
        let model = contents(&store);
        let after = BTreeMap::from([(Lsn(0), model.clone()), (recovery.last, model)]);
        (Story { name, device, after, acknowledged: Vec::new() }, store)
    }

    fn model(&self) -> Contents {
        self.after.values().next_back().unwrap().clone()
    }

    /// One transaction that is acknowledged.
    fn put(&mut self, store: &Store, number: u32) {
        let mut model = self.model();
        let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 900]);
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), key.clone(), value.clone());
        model.insert((0, 1, key), value);
        let lsn = store.commit(tx).unwrap();
        self.after.insert(lsn, model);
        store.sync(lsn).unwrap();
        self.acknowledged.push((self.device.commands(), lsn));
    }

    /// Continues until the log has moved this often, and a little further.
    fn go_on(&mut self, store: &Store, moves: u32) {
        let (mut at, mut moved) = (log_in_use(&self.device), 0);
        let mut left = 6;
        for number in 0.. {
            self.put(store, number % 40);
            let _ = store.step().unwrap();
            let now = log_in_use(&self.device);
            moved += u32::from(now != at);
            at = now;
            left -= u32::from(moved >= moves);
            if left == 0 {
                break;
            }
            assert!(number < 2000, "{}: the log moves", self.name);
        }
        store.checkpoint().unwrap();
        self.put(store, 99);
    }

    fn acknowledged_at(&self, command: u64) -> Lsn {
        let all = self.acknowledged.iter().filter(|(commands, _)| *commands <= command);
        all.map(|(_, lsn)| *lsn).max().unwrap_or(Lsn(0))
    }

    /// The commands near moves of the log: shortly before or after them, the state of one of its zones changes.
    fn moments(&self) -> Vec<u64> {
        let shape = |command: u64| {
            let image = self.device.image_at(command, &CrashPlan::KeepAll);
            let report = image.report().unwrap();
            report[..3].iter().map(|info| info.state).collect::<Vec<_>>()
        };
        let shapes: Vec<_> = (0..=self.device.commands()).map(shape).collect();
        let changes = (1..shapes.len()).filter(|&at| shapes[at] != shapes[at - 1]);
        let around: BTreeSet<u64> = changes
            .flat_map(|at| at.saturating_sub(2)..=at + 6)
            .map(|at| at as u64)
            .filter(|at| *at <= self.device.commands())
            .collect();
        around.into_iter().collect()
    }

    /// The story after a loss of power: the recovery, and one transaction.
    fn recovered(&self, command: u64, plan: &CrashPlan) -> Story {
        let image = Arc::new(self.device.image_at(command, plan));
        let acknowledged = vec![(0, self.acknowledged_at(command))];
        image.record();
        let (store, recovery) = open(&image).unwrap();
        // Nothing that was appended is lost. Later LSNs are used again.
        let earlier = self.after.range(..=recovery.last);
        let mut after: BTreeMap<_, _> = earlier.map(|(lsn, model)| (*lsn, model.clone())).collect();
        after.insert(recovery.last, contents(&store));
        let mut again = Story { name: self.name, device: image, after, acknowledged };
        (0..2).for_each(|number| again.put(&store, 200 + number));
        again
    }

    /// Judges every cut near a move of the log, every plan in `plans`, every log zone, every damage.
    fn judge_all(&self, plans: &[CrashPlan], seen: &mut Seen) {
        self.judge_at(self.moments(), plans, &Damage::ALL, seen);
    }

    fn judge_at(
        &self,
        commands: impl IntoIterator<Item = u64>,
        plans: &[CrashPlan],
        damages: &[Damage],
        seen: &mut Seen,
    ) {
        for command in commands {
            let mut distinct = BTreeSet::new();
            let is_new = |plan: &&CrashPlan| distinct.insert(self.device.image_at(command, plan).digest());
            for plan in plans.iter().filter(is_new).collect::<Vec<_>>() {
                for zone in (0..3).map(ZoneId) {
                    for &damage in damages {
                        self.judge(command, plan, zone, damage, seen);
                    }
                }
            }
        }
    }

    fn judge(&self, command: u64, plan: &CrashPlan, zone: ZoneId, damage: Damage, seen: &mut Seen) {
        let image = Arc::new(self.device.image_at(command, plan));
        let before: Vec<_> = image.report().unwrap();
        if !damage.strike(&image, zone) {
            return;
        }
        let context =
            || format!("{}, command {command}, {plan:?}, zone {} {damage:?}, {before:?}", self.name, zone.0);
        seen.states += 1;
        match self.found(&image, self.acknowledged_at(command)) {
            Ok(()) => seen.opened += 1,
            Err(Found::Refused(error)) => {
                let has = |state| before[..3].iter().any(|info| info.state == state);
                let had_died = has(ZoneState::Offline);
                assert!(damage != Damage::None || had_died, "{}: {error}", context());
                // A read-only zone does not show whether the log continued in another zone that cannot be read.
                let is_reported = has(ZoneState::ReadOnly) || had_died;
                let was_empty = before[zone.0 as usize].state == ZoneState::Empty;
                assert!(!was_empty || is_reported, "{}: nothing was there: {error}", context());
                seen.refused += 1;
            }
            Err(Found::Lost(what)) => panic!("{}: {what}", context()),
        }
    }

    /// The result of a mount.
    fn found(&self, image: &Arc<Emulated>, acknowledged: Lsn) -> std::result::Result<(), Found> {
        let digest = image.digest();
        let (store, recovery) = match open(image) {
            Ok(opened) => opened,
            Err(error) => {
                assert_eq!(image.digest(), digest, "nothing was changed: {error}");
                return Err(Found::Refused(error));
            }
        };
        if recovery.last < acknowledged {
            return Err(Found::Lost(format!("{acknowledged:?} was acknowledged: {recovery:?}")));
        }
        let expected = self.after.range(..=recovery.last).next_back().unwrap().1;
        assert!(contents(&store) == *expected, "the state after {:?}", recovery.last);
        Ok(())
    }
}

enum Found {
    Refused(StoreError),
    Lost(String),
}

/// A volume with a few transactions.
fn begun() -> Arc<Emulated> {
    let device = formatted(Spec::tiny(), &options());
    let (mut story, store) = Story::new("begun", device);
    (0..5).for_each(|number| story.put(&store, number));
    story.device
}

/// The image after a loss of power. The zone that was being written comes back full.
fn full(device: &Emulated) -> Arc<Emulated> {
    Arc::new(device.image(&CrashPlan::KeepAll.full_active()))
}

const PLANS: [CrashPlan; 5] = [
    CrashPlan::KeepAll,
    CrashPlan::LoseAll,
    CrashPlan::LoseContents,
    CrashPlan::UndoResets,
    CrashPlan::LoseAllUndoResets,
];

fn plans() -> Vec<CrashPlan> {
    PLANS.iter().flat_map(|plan| [plan.clone(), plan.clone().full_active()]).collect()
}

fn story_of(name: &'static str, fault: Option<Fault>, moves: u32) -> Story {
    let (mut story, store) = Story::new(name, begun());
    let at = log_in_use(&story.device);
    fault.into_iter().for_each(|fault| story.device.inject(fault.on(at)));
    story.go_on(&store, moves);
    assert!(story.device.failed_zones().is_empty() == story.name.starts_with("moves"), "{name}");
    story
}

fn judge(stories: impl IntoIterator<Item = Story>) {
    for story in stories {
        let mut seen = Seen::default();
        story.judge_all(&plans(), &mut seen);
        println!("{}: {} commands, {seen:?}", story.name, story.device.commands());
        assert!(seen.refused > 0, "{}: a loss is detected", story.name);
    }
}

#[test]
fn the_loss_of_the_next_log_zone_is_detected() {
    judge([story_of("moves once", None, 1), story_of("moves three times", None, 3)]);
}

#[test]
fn the_loss_of_the_next_zone_is_detected_after_a_failed_append() {
    let append = |effect| Some(Fault::nth(CommandKind::Append, 2, effect));
    let forever = |effect| append(effect).map(Fault::forever);
    judge([
        story_of("an append fails once", append(Effect::Error), 1),
        story_of("an append is torn", append(Effect::Torn(1)), 1),
        story_of("appends fail", forever(Effect::Error), 1),
        story_of("appends fail, and the log moves on", forever(Effect::Error), 2),
    ]);
}

#[test]
fn the_loss_of_the_next_zone_is_detected_after_a_zone_turned() {
    let append = |effect| Some(Fault::nth(CommandKind::Append, 2, effect));
    judge([
        story_of("a zone turns read-only", append(Effect::TurnReadOnly(0)), 1),
        story_of("a zone turns read-only, and the log moves on", append(Effect::TurnReadOnly(1)), 3),
        story_of("a zone turns offline", append(Effect::TurnOffline), 2),
    ]);
}

#[test]
fn the_loss_of_the_next_zone_is_detected_after_a_failed_finish_or_reset() {
    let first = |kind| Some(Fault::nth(kind, 1, Effect::Error));
    judge([
        story_of("a zone cannot be finished", first(CommandKind::Finish), 2),
        story_of("a zone cannot be reset", first(CommandKind::Reset), 2),
    ]);
}

/// A zone that a loss of power has filled cannot have a mark that the log continues elsewhere. It is reset before
/// anything is acknowledged.
#[test]
fn the_loss_of_the_next_zone_is_detected_after_one_came_back_full() {
    let (mut moves, store) = Story::new("full after a loss of power", full(&begun()));
    moves.go_on(&store, 1);
    let (mut stays, store) = Story::new("full after a loss of power, and cannot be reset", full(&begun()));
    (0..3).map(ZoneId).for_each(|zone| {
        stays.device.inject(Fault::nth(CommandKind::Reset, 1, Effect::Error).on(zone).forever());
    });
    (0..3).for_each(|number| stays.put(&store, number));
    store.checkpoint().unwrap();
    stays.put(&store, 9);
    let fails = Fault::nth(CommandKind::Append, 2, Effect::Error).forever();
    let failed = story_of("appends fail", Some(fails), 1);
    let (mut both, store) =
        Story::new("appends failed, and full after a loss of power", full(&failed.device));
    both.go_on(&store, 1);
    judge([moves, stays, both]);
}

/// The power is lost at a switch of the log, and again at each command of the recovery and of the following
/// transaction.
#[test]
fn a_second_crash_makes_no_acknowledged_data_disappear_silently() {
    let fails = Fault::nth(CommandKind::Append, 2, Effect::Error);
    let stories = [
        story_of("moves once", None, 1),
        story_of("an append fails once", Some(fails.clone()), 1),
        story_of("appends fail", Some(fails.forever()), 1),
    ];
    let damages = [Damage::None, Damage::Offline, Damage::HeaderWrong, Damage::AllWrong];
    let plans = [CrashPlan::KeepAll, CrashPlan::LoseAll, CrashPlan::KeepAll.full_active()];
    let mut seen = Seen::default();
    for story in stories {
        for command in story.moments().into_iter().step_by(2) {
            for plan in [CrashPlan::KeepAll, CrashPlan::KeepAll.full_active()] {
                let again = story.recovered(command, &plan);
                again.judge_at(0..=again.device.commands(), &plans, &damages, &mut seen);
            }
        }
    }
    println!("{seen:?}");
    assert!(seen.refused > 0, "a loss is detected");
}

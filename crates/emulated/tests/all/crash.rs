//! Power losses of the emulated device: one test for each clause of the contract.

use std::collections::BTreeSet;

use crate::emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault, Spec};
use crate::{pattern, tags};
use zone::{Device, DeviceError, ZoneId, ZoneInfo, ZoneState};

const ZONE: ZoneId = ZoneId(1);

fn recorded() -> Emulated {
    let device = Emulated::new(Spec::tiny());
    device.record();
    device
}

fn append(device: &Emulated, zone: u32, tag: u8, blocks: u32) {
    device.append(ZoneId(zone), &pattern(device, tag, blocks)).unwrap();
}

fn info(device: &Emulated, zone: u32) -> ZoneInfo {
    device.report_zone(ZoneId(zone)).unwrap()
}

fn pointer(device: &Emulated, zone: u32) -> u32 {
    let info = info(device, zone);
    assert!(info.state.has_pointer(), "{info:?}");
    info.pointer
}

/// Two blocks are flushed, then three and four are appended.
fn two_flushed_seven_not() -> Emulated {
    let device = recorded();
    append(&device, 1, 10, 2);
    device.flush().unwrap();
    append(&device, 1, 20, 3);
    append(&device, 1, 30, 4);
    device
}

#[test]
fn flushed_data_survives_every_crash() {
    let device = two_flushed_seven_not();
    let mut plans = device.plans_at(4);
    plans.extend((0..200).map(CrashPlan::Subset));
    for plan in plans {
        let image = device.image_at(4, &plan);
        assert_eq!(tags(&image, 1, 0, 2), [10, 11], "{plan}");
    }
}

#[test]
fn a_crash_between_an_append_and_its_flush_may_lose_it() {
    let device = two_flushed_seven_not();
    assert_eq!(pointer(&device.image_at(1, &CrashPlan::LoseAll), 1), 0);
    assert_eq!(pointer(&device.image_at(2, &CrashPlan::LoseAll), 1), 2, "the flush was the second command");
    assert_eq!(pointer(&device.image_at(4, &CrashPlan::LoseAll), 1), 2);
    assert_eq!(pointer(&device.image_at(4, &CrashPlan::KeepAll), 1), 9);
    assert_eq!(pointer(&device.image_at(3, &CrashPlan::KeepAll), 1), 5);
    assert_eq!(pointer(&device, 1), 9, "the device itself does not change");
}

#[test]
fn one_append_may_be_missing_below_the_pointer() {
    let device = two_flushed_seven_not();
    let image = device.image_at(4, &CrashPlan::LoseOne(0));
    assert_eq!(pointer(&image, 1), 9);
    assert_ne!(tags(&image, 1, 2, 3), [20, 21, 22]);
    assert_eq!(tags(&image, 1, 5, 4), [30, 31, 32, 33]);
    let image = device.image_at(4, &CrashPlan::LoseContents);
    assert_eq!(pointer(&image, 1), 9);
    assert_ne!(tags(&image, 1, 5, 4), [30, 31, 32, 33]);
}

#[test]
fn an_append_may_be_torn_between_blocks() {
    let device = two_flushed_seven_not();
    let image = device.image_at(4, &CrashPlan::TearOne { k: 1, blocks: 2 });
    assert_eq!(pointer(&image, 1), 9);
    assert_eq!(tags(&image, 1, 2, 5), [20, 21, 22, 30, 31]);
    assert_ne!(tags(&image, 1, 7, 2), [32, 33]);
}

#[test]
fn a_lost_block_may_contain_data_of_an_earlier_life() {
    let mut found = BTreeSet::new();
    for seed in 0..30 {
        let device = Emulated::new(Spec::tiny().seed(seed));
        device.record();
        append(&device, 1, 70, 1);
        device.reset(ZONE).unwrap();
        device.flush().unwrap();
        append(&device, 1, 10, 1);
        let image = device.image(&CrashPlan::LoseOne(0));
        found.insert(tags(&image, 1, 0, 1)[0]);
    }
    assert!(
        found.contains(&0) && found.contains(&70) && found.len() > 2,
        "zeros, stale and noise: {found:?}"
    );
}

#[test]
fn a_reset_may_be_undone_with_all_later_writes() {
    let device = two_flushed_seven_not();
    device.reset(ZONE).unwrap();
    append(&device, 1, 50, 1);
    append(&device, 2, 60, 1);
    let n = device.commands();
    let image = device.image_at(n, &CrashPlan::UndoResets);
    assert_eq!(tags(&image, 1, 0, pointer(&image, 1)), [10, 11, 20, 21, 22, 30, 31, 32, 33]);
    assert_eq!(tags(&image, 2, 0, 1), [60], "other zones keep their contents");
    let image = device.image_at(n, &CrashPlan::LoseAllUndoResets);
    assert_eq!((pointer(&image, 1), pointer(&image, 2)), (2, 0));
    let image = device.image_at(n, &CrashPlan::LoseAll);
    assert_eq!(pointer(&image, 1), 0, "a reset may also be kept");
    device.flush().unwrap();
    let image = device.image(&CrashPlan::UndoResets);
    assert_eq!(tags(&image, 1, 0, pointer(&image, 1)), [50], "after the flush it is durable");
}

#[test]
fn a_device_never_comes_back_with_too_many_active_zones() {
    let device = recorded();
    for zone in 0..8 {
        append(&device, zone, 1, 2);
    }
    device.flush().unwrap();
    device.reset(ZONE).unwrap();
    append(&device, 9, 1, 1);
    let image = device.image(&CrashPlan::UndoResets);
    let zones = image.report().unwrap();
    assert_eq!(zones.iter().filter(|zone| zone.state.is_active()).count(), 8);
    assert_eq!(zones.iter().filter(|zone| zone.state == ZoneState::Full).count(), 1);
}

#[test]
fn active_zones_may_come_back_full() {
    let device = two_flushed_seven_not();
    let image = device.image(&CrashPlan::LoseAll.full_active());
    assert_eq!(info(&image, 1).state, ZoneState::Full);
    assert_eq!(info(&image, 2).state, ZoneState::Empty);
    assert_eq!(tags(&image, 1, 0, 2), [10, 11]);
    image.read(ZONE, 60, &mut pattern(&image, 0, 1)).expect("beyond the lost pointer it reads as anything");
}

#[test]
fn no_zone_is_open_after_a_power_loss() {
    let device = two_flushed_seven_not();
    device.open(ZoneId(2)).unwrap();
    let image = device.image(&CrashPlan::KeepAll);
    assert_eq!((info(&image, 1).state, info(&image, 2).state), (ZoneState::Closed, ZoneState::Empty));
    let killed = device.killed_at(device.commands());
    assert_eq!((info(&killed, 1).state, info(&killed, 2).state), (ZoneState::Open, ZoneState::Open));
}

#[test]
fn an_unflushed_finish_may_be_lost() {
    let device = two_flushed_seven_not();
    device.finish(ZONE).unwrap();
    assert_eq!(info(&device.image(&CrashPlan::LoseAll), 1).state, ZoneState::Closed);
    assert_eq!(info(&device.image(&CrashPlan::KeepAll), 1).state, ZoneState::Full);
}

#[test]
fn a_failed_flush_makes_nothing_durable() {
    let device = recorded();
    append(&device, 1, 10, 2);
    device.inject(Fault::nth(CommandKind::Flush, 1, Effect::Error));
    device.flush().unwrap_err();
    assert_eq!(pointer(&device.image(&CrashPlan::LoseAll), 1), 0);
}

#[test]
fn a_read_only_zone_stays_read_only() {
    let device = two_flushed_seven_not();
    device.set_zone_state(ZONE, ZoneState::ReadOnly);
    for plan in [CrashPlan::LoseAll, CrashPlan::KeepAll, CrashPlan::Subset(5)] {
        assert_eq!(info(&device.image(&plan), 1).state, ZoneState::ReadOnly, "{plan}");
    }
    let before = device.image_at(device.commands() - 1, &CrashPlan::KeepAll);
    assert_eq!(info(&before, 1).state, ZoneState::Closed);
}

#[test]
fn writes_of_a_killed_process_are_readable_and_may_still_be_lost() {
    let device = two_flushed_seven_not();
    let successor = device.killed_at(3);
    assert_eq!(tags(&successor, 1, 0, 5), [10, 11, 20, 21, 22]);
    append(&successor, 1, 90, 1);
    assert_eq!(pointer(&successor.image(&CrashPlan::LoseAll), 1), 2);
    successor.flush().unwrap();
    assert_eq!(pointer(&successor.image(&CrashPlan::LoseAll), 1), 6);
}

#[test]
fn an_image_can_be_crashed_again() {
    let first = two_flushed_seven_not().image_at(3, &CrashPlan::LoseOne(0));
    first.record();
    append(&first, 1, 40, 1);
    let second = first.image(&CrashPlan::LoseAll);
    assert_eq!(pointer(&second, 1), 5, "the state after the first crash is durable");
    second.record();
    append(&second, 1, 41, 1);
    assert_eq!(tags(&second.image(&CrashPlan::KeepAll), 1, 5, 1), [41]);
}

#[test]
fn without_power_every_command_fails() {
    let device = two_flushed_seven_not();
    device.lose_power_after(1);
    append(&device, 1, 50, 1);
    let one = pattern(&device, 0, 1);
    let failed = [
        device.append(ZONE, &one).map(|_| ()),
        device.read(ZONE, 0, &mut one.clone()),
        device.report().map(|_| ()),
        device.reset(ZONE),
        device.flush(),
    ];
    for failure in failed {
        assert!(matches!(failure, Err(DeviceError::PowerLost)), "{failure:?}");
    }
    assert_eq!(pointer(&device.image(&CrashPlan::KeepAll), 1), 10);
}

#[test]
fn every_state_of_a_small_window_is_reached_by_some_seed() {
    let device = recorded();
    append(&device, 1, 10, 1);
    append(&device, 2, 20, 1);
    let mut states = BTreeSet::new();
    for seed in 0..500 {
        let image = device.image(&CrashPlan::Subset(seed));
        let seen = |zone: u32, tag: u8| match info(&image, zone) {
            ZoneInfo { state: ZoneState::Empty, .. } => "gone",
            ZoneInfo { state: ZoneState::Full, .. } => "full",
            _ if tags(&image, zone, 0, 1) == [tag] => "there",
            _ => "lost",
        };
        states.insert((seen(1, 10), seen(2, 20)));
    }
    assert_eq!(states.len(), 16, "the zones are independent: {states:?}");
}

/// A zone after a power loss: its state, its pointer if it has one, and which blocks contain the written data.
fn seen(image: &Emulated, zone: u32, written: &[u8]) -> (ZoneState, Option<u32>, Vec<bool>) {
    let info = info(image, zone);
    let pointer = info.state.has_pointer().then_some(info.pointer);
    let end = pointer.unwrap_or(written.len() as u32);
    let there = (0..end).map(|block| tags(image, zone, block, 1) == [written[block as usize]]);
    (info.state, pointer, there.collect())
}

#[test]
fn all_states_have_numbers_and_all_numbers_are_states() {
    let device = recorded();
    append(&device, 1, 10, 2);
    device.flush().unwrap();
    append(&device, 1, 20, 2);
    append(&device, 2, 30, 1);
    let count = device.states_at(4).unwrap();
    // Zone 1: nothing, one block (2 subsets), two blocks (4), full (4). Zone 2: nothing, one block (2), full (2).
    assert_eq!(count, (1 + 2 + 4 + 4) * (1 + 2 + 2));
    let both = |plan: &CrashPlan| {
        let image = device.image_at(4, plan);
        (seen(&image, 1, &[10, 11, 20, 21]), seen(&image, 2, &[30]))
    };
    let all: BTreeSet<String> =
        (0..count).map(|number| format!("{:?}", both(&CrashPlan::State(number)))).collect();
    assert_eq!(all.len() as u64, count, "all are distinct");
    for plan in device.plans_at(4).into_iter().chain((0..500).map(CrashPlan::Subset)) {
        let found = format!("{:?}", both(&plan));
        assert!(all.contains(&found), "{plan} is one of them: {found}");
    }
}

#[test]
fn an_undone_reset_is_a_separate_state() {
    let device = recorded();
    append(&device, 1, 10, 2);
    device.flush().unwrap();
    device.reset(ZONE).unwrap();
    assert_eq!(device.states_at(3), Some(2 + 1), "unchanged, unchanged and full, empty");
    append(&device, 1, 20, 1);
    assert_eq!(device.states_at(4), Some(2 + 5));
    let found: BTreeSet<String> = (0..7)
        .map(|number| info(&device.image_at(4, &CrashPlan::State(number)), 1))
        .map(|info| format!("{:?} {:?}", info.state, info.state.has_pointer().then_some(info.pointer)))
        .collect();
    let expected = ["Closed Some(1)", "Closed Some(2)", "Empty Some(0)", "Full None"];
    assert_eq!(found, expected.map(str::to_owned).into());
    (0..8).for_each(|_| append(&device, 3, 30, 8));
    assert_eq!(device.states_at(device.commands()), None, "too many to number");
}

#[test]
fn the_basic_plans_are_distinct() {
    let device = two_flushed_seven_not();
    assert_eq!(device.plans_at(0), [CrashPlan::KeepAll]);
    let full = CrashPlan::KeepAll.full_active();
    assert_eq!(device.plans_at(2), [CrashPlan::KeepAll, full], "nothing is in flight after a flush");
    let words: Vec<String> = device.plans_at(4).iter().map(|plan| plan.to_string()).collect();
    let expected = "keep-all lose-all lose-contents full:keep-all full:lose-all full:lose-contents \
                    lose-one:0 tear-one:0:1 lose-one:1 back-from:1 tear-one:1:1 tear-one:1:2";
    assert_eq!(words.join(" "), expected);
    device.reset(ZONE).unwrap();
    let words: Vec<String> = device.plans_at(5).iter().map(|plan| plan.to_string()).collect();
    assert_eq!(words.join(" "), "keep-all undo-resets", "appends before a reset are not lost again");
    let digests: BTreeSet<u64> =
        device.plans_at(4).iter().map(|plan| device.image_at(4, plan).digest()).collect();
    assert_eq!(digests.len(), device.plans_at(4).len(), "each plan gives a distinct state");
}

#[test]
fn a_plan_can_be_formatted_and_parsed() {
    let device = two_flushed_seven_not();
    let mut plans = device.plans_at(4);
    plans.extend([
        CrashPlan::Subset(77),
        CrashPlan::State(9),
        CrashPlan::UndoResets,
        CrashPlan::LoseAllUndoResets.full_active(),
    ]);
    for plan in plans {
        assert_eq!(plan.to_string().parse::<CrashPlan>().unwrap(), plan);
    }
    for wrong in ["", "lose", "lose-one", "lose-one:x", "tear-one:1", "lose-one:99999999999", "full:"] {
        assert!(wrong.parse::<CrashPlan>().is_err(), "{wrong}");
    }
}

#[test]
fn the_same_plan_gives_the_same_device() {
    let device = two_flushed_seven_not();
    for seed in 0..50 {
        let plan = CrashPlan::Subset(seed);
        assert_eq!(device.image_at(4, &plan).digest(), device.image_at(4, &plan).digest());
    }
}

//! A log zone that can no longer be read, beside an older one that can. The acknowledged records were in the newer
//! one, and the mount continued from the older one as if they did not exist. Also a log zone that the log had not
//! reached, whose failure loses nothing.

use emulated::{CommandKind, Effect, Fault};
use zone::{Role, ZoneId, ZoneState};

use super::successor::log_in_use;
use super::*;
use crate::StoreError;
use crate::scan::LogZone;

fn put(store: &Store, model: &mut Contents, number: u32) {
    let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 900]);
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), key.clone(), value.clone());
    model.insert((0, 1, key), value);
    store.commit(tx).unwrap();
    store.sync(store.last_lsn()).unwrap();
}

/// The log zones in use, with their states and pointers.
fn in_use(device: &Emulated) -> Vec<(ZoneId, zone::ZoneInfo)> {
    let zones = (0..3).map(|zone| (ZoneId(zone), device.report_zone(ZoneId(zone)).unwrap()));
    zones.filter(|(_, info)| info.state != ZoneState::Empty).collect()
}

/// A mount for writing is refused and leaves the volume unchanged. A mount for reading opens it.
fn is_refused(device: &Arc<Emulated>) {
    let digest = device.digest();
    let error = open(device).map(|_| ()).unwrap_err();
    let is_reported = |what: &str| what.contains("-o ro") && what.contains("salvage") && !what.contains('\n');
    assert!(matches!(&error, StoreError::Corrupt(what) if is_reported(what)), "{error}");
    assert_eq!(device.digest(), digest, "nothing was changed");
    let (store, _) = open_with(device, &Config { read_only: true, ..config() }).unwrap();
    goes_on_without_what_is_lost(device, contents(&store));
}

/// A mount that accepts the loss has all that can be read, in this mount and the next, and writes go on.
fn goes_on_without_what_is_lost(device: &Arc<Emulated>, mut left: Contents) {
    device.record();
    let (store, recovery) = open_with(device, &Config { accept_loss: true, ..config() }).unwrap();
    assert!(recovery.lost.is_some());
    assert_eq!(contents(&store), left);
    put(&store, &mut left, 88);
    drop(store);
    let (store, recovery) = open(&Arc::new(device.image(&CrashPlan::KeepAll))).unwrap();
    assert_eq!(recovery.lost, None, "the loss was accepted for good");
    assert_eq!(contents(&store), left);
}

/// The state of the device at each command while the log moves from one zone to another, with the zone to which it
/// moves.
fn amid_switches() -> Vec<(Arc<Emulated>, ZoneId)> {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    device.record();
    let first = store.pool().in_role(Role::Log);
    for number in 0.. {
        put(&store, &mut model, number % 50);
        let _ = store.step().unwrap();
        if store.pool().in_role(Role::Log).iter().all(|zone| !first.contains(zone)) {
            break;
        }
    }
    let images = (0..=device.commands()).map(|at| Arc::new(device.image_at(at, &CrashPlan::KeepAll)));
    let both = images.filter_map(|image| {
        image.record();
        let newer = in_use(&image).into_iter().find(|(zone, _)| !first.contains(zone));
        newer.filter(|_| in_use(&image).len() > 1).map(|(zone, _)| (image, zone))
    });
    both.collect()
}

/// The next log zone failed before any record showed that the log had moved there. Such a volume was refused.
#[test]
fn a_log_that_moved_to_a_lost_zone_is_not_taken_for_the_older_one() {
    let images = amid_switches();
    assert!(images.len() > 3, "{} moments", images.len());
    let mut refused = 0;
    for (image, newer) in images {
        let whole = Arc::new(image.image_at(0, &CrashPlan::KeepAll));
        open(&whole).unwrap();
        image.set_zone_state(newer, ZoneState::Offline);
        if is_marked(&image) {
            is_refused(&image);
            refused += 1;
        } else {
            open(&image).unwrap();
        }
    }
    assert!(refused > 1, "{refused} moments");
}

/// Whether the newest readable batch shows that the log continues elsewhere.
fn is_marked(device: &Emulated) -> bool {
    let batches = in_use(device).into_iter().filter_map(|(zone, info)| {
        let (identity, _) = crate::read_header(device, zone).ok()?.ok()?;
        LogZone::new(device, identity.fs_id, zone, identity.life, info).last().unwrap()
    });
    let newest = batches.max_by_key(|found| (found.epoch, found.sequence));
    newest.unwrap().successor.is_some_and(|successor| successor.has_begun)
}

#[test]
fn a_log_zone_that_failed_empty_loses_nothing() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    device.record();
    let mut model = Contents::new();
    (0..20).for_each(|number| put(&store, &mut model, number));
    drop(store);
    let [(used, _)] = in_use(&device)[..] else { panic!("{:?}", in_use(&device)) };
    for standby in (0..4).map(ZoneId).filter(|zone| *zone != used) {
        let image = Arc::new(device.image(&CrashPlan::KeepAll));
        image.set_zone_state(standby, ZoneState::Offline);
        let (store, _) = open(&image).unwrap();
        assert_eq!(contents(&store), model);
        let mut after = model.clone();
        put(&store, &mut after, 77);
        assert_eq!(contents(&store), after);
    }
}

/// A log zone that failed long ago is not the one to which the log was moving when power was lost.
#[test]
fn a_long_failed_log_zone_does_not_refuse_a_crash_in_a_switch() {
    let device = formatted(Spec::tiny(), &options());
    let [(used, _)] = in_use(&device)[..] else { panic!("{:?}", in_use(&device)) };
    let dead = (0..3).map(ZoneId).rfind(|zone| *zone != used).unwrap();
    device.set_zone_state(dead, ZoneState::Offline);
    let (store, _) = open(&device).unwrap();
    let (mut model, mut switches) = (Contents::new(), 0);
    device.record();
    let mut at = store.pool().in_role(Role::Log);
    for number in 0.. {
        put(&store, &mut model, number % 50);
        let _ = store.step().unwrap();
        let now = store.pool().in_role(Role::Log);
        switches += u32::from(now != at);
        at = now;
        if switches == 3 {
            break;
        }
    }
    for command in 0..=device.commands() {
        for plan in [CrashPlan::KeepAll, CrashPlan::LoseAll] {
            let image = Arc::new(device.image_at(command, &plan));
            open(&image).unwrap_or_else(|error| panic!("{command}, {plan:?}: {error}"));
        }
    }
}

/// A log whose zone has failed with this effect, and the zone in which it continued, with this number of synced
/// transactions.
fn after_a_failure(effect: Effect, transactions: u32) -> (Arc<Emulated>, ZoneId) {
    let device = formatted(Spec::power_of_two(), &options());
    let newer = fail_over(&device, effect, transactions);
    (device, newer)
}

/// The same for a zone that turned read-only when there was no third one: no mark shows that the log continued.
fn without_a_witness(spec: Spec, transactions: u32) -> (Arc<Emulated>, ZoneId) {
    let device = formatted(spec, &options());
    let [(used, _)] = in_use(&device)[..] else { panic!("{:?}", in_use(&device)) };
    let others = (0..4).map(ZoneId).filter(|zone| *zone != used);
    let is_free = |zone: &ZoneId| device.report_zone(*zone).unwrap().state == ZoneState::Empty;
    others.filter(is_free).skip(1).for_each(|zone| device.set_zone_state(zone, ZoneState::Offline));
    let newer = fail_over(&device, Effect::TurnReadOnly(0), transactions);
    (device, newer)
}

fn fail_over(device: &Arc<Emulated>, effect: Effect, transactions: u32) -> ZoneId {
    let (store, _) = open(device).unwrap();
    let mut model = Contents::new();
    (0..5).for_each(|number| put(&store, &mut model, number));
    let before = log_in_use(device);
    device.inject(Fault::nth(CommandKind::Append, 1, effect).on(before));
    (0..transactions).for_each(|number| put(&store, &mut model, 10 + number));
    device.clear_faults();
    log_in_use(device)
}

/// The device refused to read the last batch, and it was skipped like a batch that a crash has torn. But a crash
/// leaves no block that the device refuses to read.
#[test]
fn a_last_batch_that_the_device_refuses_to_read_is_missed() {
    for is_full in [false, true] {
        let device = formatted(Spec::power_of_two(), &options());
        let (store, _) = open(&device).unwrap();
        let mut model = Contents::new();
        (0..5).for_each(|number| put(&store, &mut model, number));
        drop(store);
        let zone = log_in_use(&device);
        let last = device.report_zone(zone).unwrap().pointer - 1;
        if is_full {
            device.finish(zone).unwrap();
        }
        device.make_unreadable(zone, last);
        is_refused(&device);
    }
}

/// The cost of a switch of the log. A planned switch adds one flush to its checkpoint. A sync whose zone fails takes
/// two flushes.
#[test]
fn a_move_of_the_log_flushes_once() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    let count = |kind| device.counters().of(kind);
    let (mut at, mut moves) = (log_in_use(&device), 0);
    for number in 0..60 {
        put(&store, &mut model, number);
        let (flushes, finished) = (count(CommandKind::Flush), count(CommandKind::Finish));
        store.checkpoint().unwrap();
        let now = log_in_use(&device);
        let moved = u64::from(now != at);
        assert_eq!(count(CommandKind::Flush) - flushes, 2 + moved, "checkpoint {number}");
        assert!(count(CommandKind::Finish) - finished >= moved);
        (at, moves) = (now, moves + moved);
    }
    assert!(moves > 2, "{moves} moves");
    for (effect, times, appends) in
        [(Effect::Error, 1, 4), (Effect::Error, 2, 6), (Effect::TurnReadOnly(0), 1, 5)]
    {
        let device = formatted(Spec::tiny(), &options());
        let (store, _) = open(&device).unwrap();
        let failing = Fault::nth(CommandKind::Append, 1, effect).on(log_in_use(&device));
        device.inject(Fault { times, ..failing });
        let before = device.counters();
        put(&store, &mut Contents::new(), 1);
        let spent = |kind| device.counters().of(kind) - before.of(kind);
        // The failed append; the header of the next zone and the repeated append; the mark; and, if the mark fails,
        // the mark again with the header of the witness.
        assert_eq!(
            (spent(CommandKind::Flush), spent(CommandKind::Append)),
            (2, appends),
            "{effect:?} {times}"
        );
    }
}

/// A header that was wrong was taken for the result of a crash, until a later batch stated that the one before it was
/// durable: acknowledged records were lost.
#[test]
fn batches_behind_an_unreadable_header_are_missed() {
    for effect in [Effect::Error, Effect::Torn(1), Effect::TurnReadOnly(0)] {
        for transactions in [1, 3] {
            let (device, newer) = after_a_failure(effect, transactions);
            device.make_unreadable(newer, 0);
            is_refused(&device);
            let (device, newer) = after_a_failure(effect, transactions);
            device.corrupt(newer, 0, 20, 1);
            is_refused(&device);
        }
    }
    let (device, newer) = without_a_witness(Spec::power_of_two(), 1);
    device.make_unreadable(newer, 0);
    is_refused(&device);
    let (device, newer) = without_a_witness(Spec::power_of_two(), 3);
    device.corrupt(newer, 0, 20, 1);
    is_refused(&device);
}

/// The log had moved to a zone whose header could be read, but nothing behind it. The zone was taken for one without
/// batches, and the records acknowledged there were lost.
#[test]
fn a_log_that_moved_to_a_zone_with_only_a_readable_header_is_not_taken_for_the_older_one() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let (device, newer) = after_a_failure(effect, 1);
        let pointer = device.report_zone(newer).unwrap().pointer;
        (1..pointer).for_each(|block| device.make_unreadable(newer, block));
        is_refused(&device);
    }
}

/// A zone had batches behind its unreadable header, and went offline while they were read. It counted as a zone
/// without batches, and the mount continued from the older one.
#[test]
fn a_zone_that_goes_offline_while_it_is_searched_ends_the_mount() {
    for nth in 1.. {
        let (device, newer) = without_a_witness(Spec::power_of_two(), 3);
        device.corrupt(newer, 0, 20, 1);
        let appends = device.counters().of(CommandKind::Append);
        device.inject(Fault::nth(CommandKind::Read, nth, Effect::TurnOffline).on(newer));
        let opened = open(&device);
        if device.failed_zones().is_empty() {
            assert!(nth > 3, "the header and the batches behind it are read twice");
            break;
        }
        assert!(opened.is_err(), "read {nth}");
        assert_eq!(device.counters().of(CommandKind::Append), appends, "nothing was written");
    }
}

/// Each block was read twice and separately, after any number of failures. If each read takes seconds, this takes
/// hours.
#[test]
fn a_zone_that_cannot_be_read_at_all_is_soon_given_up() {
    let (device, newer) = without_a_witness(Spec::new(4096, 32, 1024), 400);
    let pointer = device.report_zone(newer).unwrap().pointer;
    assert!(pointer > 400);
    device.corrupt(newer, 0, 20, 1);
    (1..pointer).for_each(|block| device.make_unreadable(newer, block));
    let before = device.counters().of(CommandKind::Read);
    drop(open(&device));
    let reads = device.counters().of(CommandKind::Read) - before;
    assert!(reads < 300, "{reads} reads");
}

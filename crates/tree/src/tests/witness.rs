//! A log with one zone less than usual, because the fourth of the first zones does not accept it. So the third zone is
//! the witness, and has to be free again before another zone fails.

use emulated::{CommandKind, Effect, Fault};
use zone::{Lease, Role, ZoneId, ZoneState};

use super::successor::log_in_use;
use super::*;

/// A volume with a few transactions, whose fourth zone accepts no writes.
fn begun() -> Arc<Emulated> {
    let device = formatted(Spec::tiny(), &options());
    device.set_zone_state(ZoneId(3), ZoneState::ReadOnly);
    used(device)
}

fn used(device: Arc<Emulated>) -> Arc<Emulated> {
    let (store, _) = open(&device).unwrap();
    (0..5).for_each(|number| _ = put(&store, number));
    drop(store);
    device.record();
    device
}

/// One transaction that is acknowledged.
fn put(store: &Store, number: u32) -> Lsn {
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), number.to_be_bytes(), vec![number as u8; 900]);
    let lsn = store.commit(tx).unwrap();
    store.sync(lsn).unwrap();
    lsn
}

fn append_fails(effect: Effect) -> Fault {
    Fault::nth(CommandKind::Append, 1, effect)
}

/// The image after a loss of power. The zone that was being written comes back full.
fn full(device: &Emulated) -> Arc<Emulated> {
    let image = Arc::new(device.image(&CrashPlan::KeepAll.full_active()));
    image.record();
    image
}

/// Commits until the log is in another zone.
fn move_the_log(device: &Emulated, store: &Store) {
    let before = log_in_use(device);
    for number in 0.. {
        put(store, number % 40);
        store.step().unwrap();
        if log_in_use(device) != before {
            return;
        }
        assert!(number < 2000, "the log moves");
    }
}

/// The witness has nothing that recovery needs, so it can be given up for the zone that the log needs.
#[test]
fn a_witness_is_given_up_where_the_zone_in_use_comes_back_full() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let device = begun();
        let (store, _) = open(&device).unwrap();
        device.inject(append_fails(effect).on(log_in_use(&device)).forever());
        let last = [10, 11, 12].map(|number| put(&store, number))[2];
        let image = full(&device);
        let (store, recovery) = open(&image).unwrap_or_else(|error| panic!("{effect:?}: {error}"));
        assert_eq!(recovery.last, last, "{effect:?}");
        store.checkpoint().unwrap();
        put(&store, 13);
    }
}

/// The fourth zone is taken before the witness. If it fails, the log takes the witness.
#[test]
fn a_witness_is_given_up_where_the_last_resort_fails() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0), Effect::TurnOffline] {
        let device = used(formatted(Spec::tiny(), &options()));
        let (store, _) = open(&device).unwrap();
        device.inject(append_fails(Effect::TurnReadOnly(0)).on(log_in_use(&device)));
        let last = [10, 11, 12].map(|number| put(&store, number))[2];
        let image = full(&device);
        image.inject(append_fails(effect).on(ZoneId(3)).forever());
        let (store, recovery) = open(&image).unwrap_or_else(|error| panic!("{effect:?}: {error}"));
        assert!(!image.failed_zones().is_empty(), "the last resort was tried");
        assert_eq!(recovery.last, last, "{effect:?}");
        store.checkpoint().unwrap();
        put(&store, 13);
    }
}

#[test]
fn a_log_zone_fails_while_other_roles_have_all_slots() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let device = begun();
        let (store, _) = open(&device).unwrap();
        store.checkpoint().unwrap();
        let data = std::iter::from_fn(|| store.open_zone(Role::Data).ok().flatten());
        let _leases: Vec<Lease> = data.chain(store.open_zone(Role::Gc).unwrap()).collect();
        device.inject(append_fails(effect).on(log_in_use(&device)).forever());
        put(&store, 10);
    }
}

/// After the checkpoint that replaces the failed zone, the witness is the log's standby again.
#[test]
fn a_log_zone_fails_after_the_checkpoint_that_follows_a_failure() {
    let device = begun();
    let (store, _) = open(&device).unwrap();
    for number in 0..2 {
        device.inject(append_fails(Effect::Error).on(log_in_use(&device)));
        put(&store, number);
        store.checkpoint().unwrap();
    }
    put(&store, 3);
}

/// Only a read-only zone shows that the log continued, until a free zone can take the mark.
#[test]
fn a_checkpoint_marks_what_a_read_only_zone_could_not() {
    let device = begun();
    let (store, _) = open(&device).unwrap();
    device.inject(append_fails(Effect::Error).on(log_in_use(&device)).forever());
    put(&store, 10);
    drop(store);
    let device = Arc::new(device.image(&CrashPlan::KeepAll));
    device.record();
    let (store, _) = open(&device).unwrap();
    store.checkpoint().unwrap();
    let turned = log_in_use(&device);
    device.inject(append_fails(Effect::TurnReadOnly(0)).on(turned));
    put(&store, 12);
    (0..2).for_each(|_| store.checkpoint().unwrap());
    put(&store, 13);
    let (zone, last) = (log_in_use(&device), put(&store, 14));
    drop(store);
    let image = Arc::new(device.image(&CrashPlan::KeepAll));
    image.reset(zone).unwrap();
    let found = open(&image).map(|(_, recovery)| recovery.last);
    assert!(found.is_err(), "zone {} was the log's, and {last:?} is lost silently: {found:?}", zone.0);
}

/// The zone that a crash has filled holds the beginning of the log's new zone and cannot be reset. The zone with the
/// mark is free to become its witness.
#[test]
fn a_full_zone_that_cannot_be_reset_ends_no_mount() {
    let device = begun();
    let (store, _) = open(&device).unwrap();
    let before = log_in_use(&device);
    let from = device.commands();
    move_the_log(&device, &store);
    let moved = (from..=device.commands()).find_map(|command| {
        let image = Arc::new(device.image_at(command, &CrashPlan::KeepAll.full_active()));
        let states: Vec<_> = image.report().unwrap()[..3].iter().map(|info| info.state).collect();
        let full = states.iter().filter(|state| **state == ZoneState::Full).count();
        (full == 2 && log_in_use(&image) != before).then_some(image)
    });
    let mut image = moved.expect("the power is lost between the new zone and the checkpoint");
    let zone = log_in_use(&image);
    for round in 0..4 {
        image.record();
        image.inject(Fault::nth(CommandKind::Reset, 1, Effect::Error).on(zone).forever());
        let (store, _) = open(&image).unwrap_or_else(|error| panic!("round {round}: {error}"));
        store.checkpoint().unwrap();
        put(&store, 5 + round);
        image = Arc::new(image.image(&CrashPlan::KeepAll));
    }
}

/// The zone without a mark is reset first, and that is durable before the zone with the mark is reset. Otherwise a
/// crash could bring back only the zone without a mark, which does not show that the log continued.
#[test]
fn a_mark_outlasts_the_zones_without_one() {
    let device = begun();
    let (store, _) = open(&device).unwrap();
    device.inject(append_fails(Effect::Error).on(log_in_use(&device)).forever());
    let last = put(&store, 10);
    let (zone, from) = (log_in_use(&device), device.commands());
    store.checkpoint().unwrap();
    assert_eq!(log_in_use(&device), zone, "the log stays where it is");
    let mut refused = 0;
    // If only resets are not durable, there are few states.
    for command in from..=device.commands() {
        for state in 0..device.states_at(command).filter(|count| *count <= 64).unwrap_or(0) {
            let image = Arc::new(device.image_at(command, &CrashPlan::State(state)));
            image.reset(zone).unwrap();
            match open(&image) {
                Ok((_, recovery)) => {
                    panic!("command {command}, state {state}: {:?} of {last:?}", recovery.last)
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 4, "{refused} states");
}

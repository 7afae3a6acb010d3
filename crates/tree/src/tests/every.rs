//! A failure of every single command: a short history in which the first, the second, the third … reset, finish, open
//! or read fails, until none is left.
//!
//! The store reports each failure as a typed error and does not panic. The next mount is sound and has all that was
//! acknowledged.

use emulated::{CommandKind, Effect, Fault};

use super::*;
use crate::StoreError;

/// The result of a run.
struct Ran {
    /// The contents after each committed transaction.
    after: BTreeMap<Lsn, Contents>,
    acknowledged: Lsn,
    /// The error that ended the run.
    error: Option<StoreError>,
}

/// Mounts, changes, runs GC and mounts again, until an operation fails.
fn run(device: &Arc<Emulated>, base: &Contents) -> Ran {
    let mut ran = Ran { after: BTreeMap::from([(Lsn(0), base.clone())]), acknowledged: Lsn(0), error: None };
    let (mut rng, mut model) = (fastrand::Rng::with_seed(5), base.clone());
    for closes in [false, true] {
        if let Err(error) = mounted(device, &mut rng, &mut model, &mut ran, closes) {
            ran.error = Some(error);
            break;
        }
    }
    ran
}

fn mounted(
    device: &Arc<Emulated>,
    rng: &mut fastrand::Rng,
    model: &mut Contents,
    ran: &mut Ran,
    closes: bool,
) -> Result<()> {
    let (store, recovery) = open(device)?;
    assert!(recovery.last >= ran.acknowledged, "{recovery:?}");
    model.clone_from(ran.after.range(..=recovery.last).next_back().unwrap().1);
    for round in 0..60 {
        let mut changed = model.clone();
        let mut tx = random_tx(rng, &mut changed, 500, 900);
        if round % 20 == 7 {
            // A data zone is opened, filled and closed, and all its blocks die.
            let opened = store.open_zone(zone::Role::Data)?;
            let lease = opened.expect("there are free zones");
            let zone = lease.zone();
            tx.zone_live(zone, 1);
            if let Err(error) = lease.finish() {
                assert!(error.ends_zone(), "{error}");
            }
            store.pool().close(zone);
            let mut dies = Tx::new();
            dies.zone_live(zone, -1);
            store.commit(tx)?;
            tx = dies;
        }
        let lsn = store.commit(tx)?;
        *model = changed;
        ran.after.insert(lsn, model.clone());
        match round % 12 {
            3 | 9 => {
                store.sync(lsn)?;
                ran.acknowledged = lsn;
            }
            5 => store.checkpoint()?,
            7 => drop(store.reclaim(true)?),
            _ => drop(store.step()?),
        }
    }
    store
        .core
        .gc
        .collect_one_zone(&mut store.core.checkpoints.saving.lock(), crate::headroom::Need::Should)?;
    if closes {
        store.close()?;
        ran.acknowledged = store.last_lsn();
    }
    Ok(())
}

/// A volume with a few hundred keys, to be copied for each run.
fn base() -> (Arc<Emulated>, Contents) {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let mut base = Contents::new();
    for number in 0..600 {
        let mut tx = Tx::new();
        let key = format!("key {number:08}").into_bytes();
        tx.put(Group(0), Table(1), key.clone(), vec![1; 600]);
        base.insert((0, 1, key), vec![1; 600]);
        store.commit(tx).unwrap();
    }
    store.close().unwrap();
    device.record();
    (device, base)
}

/// Runs with the `nth` command failing. Returns whether there was one, and whether the run ended with an error.
fn with_fault(
    (device, base): &(Arc<Emulated>, Contents),
    kind: CommandKind,
    effect: Effect,
    nth: u64,
) -> (bool, Ran) {
    let context = format!("{kind:?} {nth}, {effect:?}");
    let device = Arc::new(device.image_at(0, &CrashPlan::KeepAll));
    let before = device.counters();
    device.inject(Fault::nth(kind, nth, effect));
    let ran = run(&device, base);
    let struck = device.counters().of(kind) - before.of(kind) >= nth;
    device.clear_faults();
    let (store, recovery) = open(&device).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(recovery.last >= ran.acknowledged, "{context}: {recovery:?} of {:?}", ran.acknowledged);
    let at = ran.after.range(..=recovery.last).next_back().unwrap().1;
    assert_eq!(&contents(&store), at, "{context}");
    let mut tx = Tx::new();
    tx.put(Group(1), Table(1), *b"again", *b"it accepts changes");
    let lsn = store.commit(tx).unwrap_or_else(|error| panic!("{context}: {error}"));
    store.sync(lsn).unwrap_or_else(|error| panic!("{context}: {error}"));
    store.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    (struck, ran)
}

/// Repeats this until there is no such command left. Returns how many failed, and the errors that the user got.
fn every(kind: CommandKind, effect: Effect) -> (u64, Vec<String>) {
    let (base, mut seen) = (base(), Vec::new());
    for nth in 1.. {
        let (struck, ran) = with_fault(&base, kind, effect, nth);
        if !struck {
            assert!(ran.error.is_none(), "nothing failed: {:?}", ran.error);
            println!("{kind:?} {effect:?}: {} failed, {} were reported", nth - 1, seen.len());
            return (nth - 1, seen);
        }
        seen.extend(ran.error.map(|error| format!("{nth}: {error}")));
    }
    unreachable!("a run ends");
}

#[test]
fn failed_resets_are_not_reported() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let (failed, seen) = every(CommandKind::Reset, effect);
        assert!(failed > 5 && seen.is_empty(), "{failed} failed: {seen:?}");
    }
}

#[test]
fn failed_finishes_are_not_reported() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        let (failed, seen) = every(CommandKind::Finish, effect);
        assert!(failed > 5 && seen.is_empty(), "{failed} failed: {seen:?}");
    }
}

/// One failed read of a metadata page, or one wrong bit in it, shut the volume down until the next mount. Such reads
/// are repeated.
#[test]
fn reads_that_fail_once_are_asked_again() {
    let (failed, seen) = every(CommandKind::Read, Effect::Error);
    assert!(failed > 20 && seen.is_empty(), "{failed} failed: {seen:?}");
}

#[test]
fn only_appends_open_zones() {
    for effect in [Effect::Error, Effect::TurnReadOnly(0)] {
        assert_eq!(every(CommandKind::Open, effect).0, 0, "no open is among the commands");
    }
}

//! Data zones that several threads reset.

use rt::sync::Mutex;
use zone::{Blocks, Cause, Command, Geometry, Output, Role, ZoneId, ZoneInfo};

use super::*;

/// The actions of another thread.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// A device that runs another thread's actions before the next reset, or before the next append to a zone.
struct Interrupted {
    device: Arc<Emulated>,
    amid: Mutex<Option<Meanwhile>>,
    before_append: Mutex<Option<(ZoneId, Meanwhile)>>,
}

impl Interrupted {
    fn new(device: &Arc<Emulated>) -> Arc<Interrupted> {
        let (amid, before_append) = (Mutex::new(None), Mutex::new(None));
        Arc::new(Interrupted { device: Arc::clone(device), amid, before_append })
    }
}

impl Device for Interrupted {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }
    fn report(&self) -> zone::Result<Vec<ZoneInfo>> {
        self.device.report()
    }
    fn report_zone(&self, zone: ZoneId) -> zone::Result<ZoneInfo> {
        self.device.report_zone(zone)
    }
    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> zone::Result<()> {
        self.device.read(zone, block, into)
    }
    fn append(&self, zone: ZoneId, from: &[u8]) -> zone::Result<Blocks> {
        let before = self.before_append.lock().take_if(|(to, _)| *to == zone);
        if let Some((_, before)) = before {
            before();
        }
        self.device.append(zone, from)
    }
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        self.device.run(batch)
    }
    fn finish(&self, zone: ZoneId) -> zone::Result<()> {
        self.device.finish(zone)
    }
    fn reset(&self, zone: ZoneId) -> zone::Result<()> {
        let amid = self.amid.lock().take();
        if let Some(amid) = amid {
            amid();
        }
        self.device.reset(zone)
    }
    fn flush(&self) -> zone::Result<()> {
        self.device.flush()
    }
}

const KEY: &[u8] = b"its contents";

/// Opens a zone, writes a block to it, and a row with its address. The zone is closed then.
fn fill_one(store: &Store) -> ZoneId {
    let lease = store.open_zone(Role::Data).unwrap().unwrap();
    let zone = lease.zone();
    assert!(lease.admit(1, 0));
    lease.append(Cause::Data, &vec![7; store.device().geometry().block_size as usize]).unwrap();
    lease.finish().unwrap();
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), KEY, zone.0.to_le_bytes().to_vec());
    tx.zone_live(zone, 1);
    store.commit(tx).unwrap();
    store.pool().close(zone);
    zone
}

/// Makes all blocks of the zone dead.
fn empty(store: &Store, zone: ZoneId) {
    let mut tx = Tx::new();
    tx.delete(Group(0), Table(1), KEY);
    tx.zone_live(zone, -1);
    store.commit(tx).unwrap();
}

/// A thread listed the dead zones, and was delayed at the reset of the first one. Meanwhile another thread reset the
/// second. It was written again, its contents became durable, and a transaction that was not yet durable replaced
/// them. Then the first thread found the second zone dead as before, and reset it: a loss of power took acknowledged
/// changes. Now a thread resets a zone only if it has not lived since the thread listed it.
#[test]
fn a_zone_that_lived_again_meanwhile_is_not_reset() {
    let emulated = formatted(Spec::tiny(), &options());
    let device = Interrupted::new(&emulated);
    let (store, _) = Store::open(device.clone(), &config(), &mut Plain).unwrap();
    store.set_client(Arc::new(Plain));
    let store = Arc::new(store);
    let zones = [fill_one(&store), fill_one(&store)];
    zones.iter().for_each(|zone| empty(&store, *zone));
    store.sync(store.last_lsn()).unwrap();
    assert!(store.core.log.make_known(store.last_lsn()).unwrap());
    emulated.record();

    let (other, refilled) = (Arc::clone(&store), Arc::new(Mutex::new(None)));
    let again = Arc::clone(&refilled);
    *device.amid.lock() = Some(Box::new(move || {
        assert_eq!(other.reclaim(false).unwrap(), 1, "one of the two");
        // Zones that have been free for longer are taken first.
        let zone = loop {
            let zone = fill_one(&other);
            if zones.contains(&zone) {
                break zone;
            }
            empty(&other, zone);
            other.reclaim(true).unwrap();
        };
        other.sync(other.last_lsn()).unwrap();
        empty(&other, zone);
        *again.lock() = Some(zone);
    }));
    store.reclaim(false).unwrap();
    let zone = refilled.lock().expect("there was a reset");
    assert!(zones.contains(&zone), "it was dead when the first thread listed the zones");

    let found = Arc::new(emulated.image(&CrashPlan::LoseAll));
    let (store, _) = open(&found).unwrap();
    let row = store.get(Group(0), Table(1), KEY).unwrap();
    assert_eq!(
        row,
        Some(zone.0.to_le_bytes().to_vec()),
        "the row was acknowledged, and its replacement was not"
    );
    let mut block = vec![0; found.geometry().block_size as usize];
    found.read(zone, 1, &mut block).expect("the zone still has its contents");
    assert!(block.iter().all(|byte| *byte == 7));
}

/// A checkpoint has made its cut. Then a data zone is emptied, by a record behind the cut, and reset, and the
/// checkpoint itself opens it for metadata. So the checkpoint has the zone's next life, and a replay finds a change of
/// the life before. If replay did not skip it, the zone would count one page too few, and would be reset while a live
/// node is still there.
#[test]
fn a_replay_skips_changes_of_an_earlier_life() {
    let emulated = formatted(Spec::tiny(), &options());
    let device = Interrupted::new(&emulated);
    let (store, _) = Store::open(device.clone(), &config(), &mut Plain).unwrap();
    store.set_client(Arc::new(Plain));
    let store = Arc::new(store);
    let mut model = Contents::new();
    let mut change = |round: u32| {
        for number in (0..60).map(|number| (number * 7 + round) % 60) {
            let (key, value) = (vec![number as u8; 9], vec![round as u8; 900]);
            let mut tx = Tx::new();
            tx.put(Group(1), Table(1), key.clone(), value.clone());
            model.insert((1, 1, key), value);
            store.commit(tx).unwrap();
        }
    };
    emulated.record();
    let zone = (0..100).find_map(|round| {
        change(round);
        let zone = fill_one(&store);
        store.sync(store.last_lsn()).unwrap();
        let open = store.core.checkpoints.saving.lock().zone.id()?;
        let (other, claimed) = (Arc::clone(&store), Arc::new(Mutex::new(Vec::new())));
        let taken = Arc::clone(&claimed);
        *device.before_append.lock() = Some((
            open,
            Box::new(move || {
                empty(&other, zone);
                other.sync(other.last_lsn()).unwrap();
                other.reclaim(true).unwrap();
                // It is the only free zone.
                let others = (0..other.pool().count()).map(ZoneId).filter(|free| *free != zone);
                *taken.lock() = others.filter(|&free| other.core.volume.pool.take_zone(free)).collect();
            }),
        ));
        store.checkpoint().unwrap();
        assert!(device.before_append.lock().is_none(), "a page was written");
        claimed.lock().drain(..).for_each(|zone| store.core.volume.pool.give_back(zone, true));
        (store.pool().entry(zone).role == Role::Metadata).then_some(zone)
    });
    let zone = zone.expect("a checkpoint needed a zone, and took the one that was free");
    for plan in [CrashPlan::KeepAll, CrashPlan::LoseAll] {
        let (found, recovery) = open(&Arc::new(emulated.image(&plan))).unwrap();
        assert!(recovery.records > 0, "the record that emptied the zone is behind the cut");
        assert_eq!(found.pool().entry(zone).role, Role::Metadata);
        assert_eq!(contents(&found), model);
    }
}

/// A mount finds the record that emptied a zone, and its seal states that this record is durable. The next mount does
/// not rely on a seal for that. If the seal were lost with a log zone that is given up, a later mount would need the
/// contents of the zone once more. So the zone waits, over any number of power cuts, until the log itself states that
/// the record is durable.
#[test]
fn a_zone_that_is_dead_only_by_seals_is_not_reset() {
    let emulated = formatted(Spec::tiny(), &options());
    emulated.record();
    let (store, _) = open(&emulated).unwrap();
    let zone = fill_one(&store);
    store.sync(store.last_lsn()).unwrap();
    empty(&store, zone);
    store.sync(store.last_lsn()).unwrap();
    let found = Arc::new(emulated.image(&CrashPlan::LoseAll));
    for mount in 0..4 {
        let (store, recovery) = open(&found).unwrap();
        assert!(recovery.records > 0, "mount {mount}: no checkpoint has it");
        let usage = store.core.volume.pool.usage(zone);
        assert_eq!((usage, store.pool().entry(zone).live), (pool::Usage::Closed, 0), "mount {mount}");
        assert_eq!(store.reclaim(false).unwrap(), 0, "mount {mount}");
    }
    let (store, _) = open(&found).unwrap();
    store.reclaim(true).unwrap();
    assert_ne!(store.core.volume.pool.usage(zone), pool::Usage::Closed, "it waits no longer");
}

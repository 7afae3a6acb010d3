//! The store under power cuts: at every command of a short history, for every basic state of the device. The recovered
//! contents are those after some prefix of the transactions, and not older than the last acknowledged sync.

use super::*;

pub(crate) struct History {
    pub(crate) device: Arc<Emulated>,
    /// Contents after each transaction, by LSN.
    pub(crate) after: BTreeMap<Lsn, Contents>,
    /// The number of commands when a sync of this LSN had been acknowledged.
    pub(crate) acknowledged: Vec<(u64, Lsn)>,
}

impl History {
    fn of(spec: Spec, seed: u64, transactions: usize) -> History {
        let page_size = spec.block_size.max(4096);
        let device = formatted(spec, &FormatOptions { page_size, ..options() });
        device.record();
        let (store, recovery) = open(&device).unwrap();
        let mut history = History {
            device,
            after: BTreeMap::from([(recovery.last, Contents::new())]),
            acknowledged: Vec::new(),
        };
        history.go_on(&store, &mut Contents::new(), seed, transactions);
        history
    }

    fn go_on(&mut self, store: &Store, model: &mut Contents, seed: u64, transactions: usize) {
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..transactions {
            let tx = random_tx(&mut rng, model, 60, 700);
            let lsn = store.commit(tx).unwrap();
            self.after.insert(lsn, model.clone());
            match rng.u8(0..16) {
                0..3 => {
                    store.sync(lsn).unwrap();
                    self.acknowledged.push((self.device.commands(), lsn));
                }
                3 => store.checkpoint().unwrap(),
                4 => {
                    store.step().unwrap();
                }
                _ => {}
            }
        }
    }

    /// The state after the last transaction that is not later than `lsn`.
    fn at(&self, lsn: Lsn) -> &Contents {
        self.after.range(..=lsn).next_back().unwrap().1
    }

    pub(crate) fn check(&self, n: u64, plan: &CrashPlan, image: &Arc<Emulated>) -> Store {
        let context = format!("after command {n}, {plan:?}");
        let (store, recovery) = open(image).unwrap_or_else(|error| panic!("{context}: {error}"));
        let acknowledged =
            self.acknowledged.iter().filter(|(commands, _)| *commands <= n).map(|(_, lsn)| *lsn).max();
        if let Some(acknowledged) = acknowledged {
            assert!(
                recovery.last >= acknowledged,
                "{context}: {acknowledged:?} was acknowledged, {recovery:?}"
            );
        }
        assert_eq!(&contents(&store), self.at(recovery.last), "{context}: {recovery:?}");
        store
    }
}

/// A client that commits while a checkpoint is taken, after its cut.
struct Meddling {
    store: std::sync::Weak<Store>,
    state: rt::sync::Mutex<Meddled>,
}

/// The model, its random numbers, and its state after each transaction.
struct Meddled {
    model: Contents,
    rng: fastrand::Rng,
    after: Vec<(Lsn, Contents)>,
}

impl Meddled {
    fn commit(&mut self, store: &Store) {
        let tx = random_tx(&mut self.rng, &mut self.model, 60, 700);
        let lsn = store.commit(tx).unwrap();
        self.after.push((lsn, self.model.clone()));
    }
}

impl Client for Meddling {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        if let Some(store) = self.store.upgrade() {
            for _ in 0..4 {
                self.state.lock().commit(&store);
            }
        }
        Bytes::new()
    }
}

#[test]
fn transactions_during_a_checkpoint_belong_to_the_next_epoch() {
    let device = formatted(Spec::odd(), &options());
    device.record();
    let (store, recovery) = open(&device).unwrap();
    let store = Arc::new(store);
    let meddling = Arc::new(Meddling {
        store: Arc::downgrade(&store),
        state: rt::sync::Mutex::new(Meddled {
            model: Contents::new(),
            rng: fastrand::Rng::with_seed(4),
            after: Vec::new(),
        }),
    });
    store.set_client(meddling.clone());
    let mut acknowledged = Vec::new();
    for _ in 0..12 {
        for _ in 0..6 {
            meddling.state.lock().commit(&store);
        }
        store.checkpoint().unwrap();
        let last = meddling.state.lock().after.last().unwrap().0;
        store.sync(last).unwrap();
        acknowledged.push((device.commands(), last));
    }
    let mut after: BTreeMap<_, _> = meddling.state.lock().after.drain(..).collect();
    after.insert(recovery.last, Contents::new());
    let history = History { device, after, acknowledged };
    for n in 0..=history.device.commands() {
        for plan in history.device.plans_at(n) {
            history.check(n, &plan, &Arc::new(history.device.image_at(n, &plan)));
        }
    }
}

#[test]
fn a_batch_behind_a_lost_one_does_not_count() {
    let spec = Spec::new(4096, 32, 1024);
    let device = formatted(spec, &options());
    device.record();
    let (store, recovery) = open(&device).unwrap();
    let mut model = Contents::new();
    let mut history =
        History { device, after: BTreeMap::from([(recovery.last, model.clone())]), acknowledged: Vec::new() };
    // More records than a batch takes, so that several batches are appended before the flush.
    for number in 0..700_u32 {
        let mut tx = Tx::new();
        let value = vec![number as u8; 1000];
        let key = number.to_be_bytes().to_vec();
        tx.put(Group(0), Table(1), key.clone(), value.clone());
        model.insert((0, 1, key), value);
        history.after.insert(store.commit(tx).unwrap(), model.clone());
    }
    store.sync(store.last_lsn()).unwrap();
    history.acknowledged.push((history.device.commands(), store.last_lsn()));
    let from = history.device.commands().saturating_sub(12);
    for n in from..=history.device.commands() {
        for plan in history.device.plans_at(n) {
            history.check(n, &plan, &Arc::new(history.device.image_at(n, &plan)));
        }
    }
}

#[test]
fn gc_loses_nothing_at_any_power_cut() {
    let device = formatted(Spec::tiny(), &options());
    let (store, _) = open(&device).unwrap();
    let mut model = Contents::new();
    let mut rng = fastrand::Rng::with_seed(21);
    let mut put = |store: &Store, model: &mut Contents, number: u32| {
        let mut tx = Tx::new();
        let (key, value) = (number.to_be_bytes().to_vec(), vec![rng.u8(..); 900]);
        tx.put(Group(0), Table(1), key.clone(), value.clone());
        model.insert((0, 1, key), value);
        store.commit(tx).unwrap()
    };
    for number in 0..1800 {
        put(&store, &mut model, number);
    }
    store.checkpoint().unwrap();
    device.record();
    let mut history = History {
        device,
        after: BTreeMap::from([(store.last_lsn(), model.clone())]),
        acknowledged: Vec::new(),
    };
    let moved_before = store.stats().nodes_moved;
    for round in 0..600_u32 {
        let lsn = put(&store, &mut model, round.wrapping_mul(7919) % 1800);
        history.after.insert(lsn, model.clone());
    }
    assert!(store.stats().nodes_moved > moved_before, "GC has run");
    let mut cuts = 0;
    for n in (0..=history.device.commands()).step_by(5) {
        for plan in history.device.plans_at(n).into_iter().step_by(3) {
            history.check(n, &plan, &Arc::new(history.device.image_at(n, &plan)));
            cuts += 1;
        }
    }
    println!("{} nodes moved by GC, {cuts} cuts", store.stats().nodes_moved - moved_before);
}

#[test]
fn every_cut_of_a_history_leaves_a_prefix() {
    for (name, spec) in [("tiny", Spec::tiny()), ("odd", Spec::odd())] {
        let history = History::of(spec, 5, 120);
        let mut cuts = 0;
        for n in 0..=history.device.commands() {
            for plan in history.device.plans_at(n) {
                history.check(n, &plan, &Arc::new(history.device.image_at(n, &plan)));
                cuts += 1;
            }
        }
        println!("{name}: {} commands, {cuts} cuts", history.device.commands());
    }
}

#[test]
fn a_second_cut_without_a_checkpoint_leaves_a_prefix() {
    let history = History::of(Spec::tiny(), 6, 60);
    let mut rng = fastrand::Rng::with_seed(9);
    let mut cuts = 0;
    for n in (0..=history.device.commands()).step_by(3) {
        let plans = history.device.plans_at(n);
        let plan = &plans[rng.usize(0..plans.len())];
        let image = Arc::new(history.device.image_at(n, plan));
        image.record();
        let store = history.check(n, plan, &image);
        let mut model = contents(&store);
        let mut second = History {
            device: Arc::clone(&image),
            after: BTreeMap::from([(store.last_lsn(), model.clone())]),
            acknowledged: Vec::new(),
        };
        let first_of_new = store.last_lsn();
        second.after.insert(Lsn(0), model.clone());
        second.go_on(&store, &mut model, n, 8);
        drop(store);
        for m in 0..=image.commands() {
            for plan in image.plans_at(m) {
                let third = Arc::new(image.image_at(m, &plan));
                let store = second.check(m, &plan, &third);
                assert!(store.last_lsn() >= first_of_new || m < image.commands());
                cuts += 1;
            }
        }
    }
    println!("{cuts} second cuts");
}

/// Crashes in a row that left every active zone full used up the three log zones: the volume could only be read. A zone
/// without information that is needed is released.
#[test]
fn crashes_that_fill_every_zone_never_leave_the_log_without_one() {
    let history = History::of(Spec::tiny(), 11, 160);
    let mut rng = fastrand::Rng::with_seed(3);
    for n in (0..=history.device.commands()).step_by(7) {
        let plan = CrashPlan::KeepAll.full_active();
        let mut image = Arc::new(history.device.image_at(n, &plan));
        image.record();
        let mut store = history.check(n, &plan, &image);
        for round in 0..6 {
            let mut model = contents(&store);
            let mut next = History {
                device: Arc::clone(&image),
                after: BTreeMap::from([(Lsn(0), model.clone()), (store.last_lsn(), model.clone())]),
                acknowledged: Vec::new(),
            };
            next.go_on(&store, &mut model, n + round, 1);
            store.sync(store.last_lsn()).unwrap();
            next.acknowledged.push((image.commands(), store.last_lsn()));
            drop(store);
            let plans = [CrashPlan::KeepAll, CrashPlan::LoseAll, CrashPlan::LoseContents];
            let plan = plans[rng.usize(0..plans.len())].clone().full_active();
            let m = rng.u64(0..=image.commands());
            let after = Arc::new(image.image_at(m, &plan));
            after.record();
            store = next.check(m, &plan, &after);
            image = after;
        }
    }
}

/// The replay ended at the first record that referred to a data zone that had gone offline with the power. All
/// acknowledged records after it, also of other files, were lost. Such a record counts now.
#[test]
fn a_data_zone_that_goes_offline_takes_no_record_with_it() {
    let device = formatted(Spec::tiny(), &options());
    device.record();
    let (store, _) = open(&device).unwrap();
    let put = |key: u32| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), key.to_be_bytes(), vec![7; 50]);
        store.commit(tx).unwrap()
    };
    put(1);
    let lease = store.open_zone(zone::Role::Data).unwrap().unwrap();
    let acknowledged = put(2);
    store.sync(acknowledged).unwrap();
    device.set_zone_state(lease.zone(), zone::ZoneState::Offline);
    let image = Arc::new(device.image(&CrashPlan::KeepAll));
    let (_, recovery) = open(&image).unwrap();
    assert!(recovery.last >= acknowledged, "{acknowledged:?} was acknowledged, {recovery:?}");
}

/// Recovery released a read-only log zone before a zone that can take the seal.
#[test]
fn a_log_zone_that_can_only_be_read_is_not_given_up() {
    for read_only in [&[1][..], &[1, 3]] {
        let device = formatted(Spec::tiny(), &options());
        device.record();
        let (store, _) = open(&device).unwrap();
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), b"key", vec![7; 50]);
        let acknowledged = store.commit(tx).unwrap();
        store.sync(acknowledged).unwrap();
        drop(store);
        let full = CrashPlan::KeepAll.full_active();
        let mut image = Arc::new(device.image(&full));
        for round in 0..8 {
            image.record();
            let (store, recovery) = open(&image).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(recovery.last >= acknowledged);
            drop(store);
            if round == 0 {
                read_only.iter().for_each(|&number| {
                    image.set_zone_state(zone::ZoneId(number), zone::ZoneState::ReadOnly)
                });
            }
            image = Arc::new(image.image(&full));
        }
    }
}

/// A client whose data is missing: the data that a transaction names.
struct Missing(Bytes);

impl Replay for Missing {
    fn checkpoint(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn verify(&mut self, ops: &[Op]) -> Result<bool> {
        Ok(!ops.iter().any(|op| matches!(op, Op::Put { key, .. } if key[..] == self.0[..])))
    }

    fn apply(&mut self, _ops: &[Op]) {}
}

/// The power was lost, and with it the data of a transaction. Neither that transaction nor later ones count. Their
/// LSNs are still in the log. If these were used again, each would belong to two transactions.
#[test]
fn lsns_of_transactions_that_do_not_count_are_not_used_again() {
    let device = formatted(Spec::tiny(), &options());
    device.record();
    let (store, _) = open(&device).unwrap();
    let put = |store: &Store, key: &[u8]| {
        let mut tx = Tx::new();
        tx.put(Group(0), Table(1), key, vec![7; 50]);
        store.commit(tx).unwrap()
    };
    store.sync(put(&store, b"durable")).unwrap();
    let [before, _, last] = [b"before", b"amidst", b"behind"].map(|key| put(&store, key));
    store.sync(last).unwrap();
    let image = Arc::new(device.image(&CrashPlan::LoseAll));
    let (store, recovery) = Store::open(image, &config(), &mut Missing(b"amidst".to_vec())).unwrap();
    store.set_client(Arc::new(Plain));
    assert_eq!((recovery.last, recovery.discarded), (before, 2));
    let next = put(&store, b"next");
    assert!(next > last, "{next:?} is used again: {last:?} was the last");
    assert_eq!(contents(&store).len(), 3);
}

/// If a mount did not reach a checkpoint, the next one began the same life of a log zone again. After six crashes in a
/// row old records were taken for new ones, and acknowledged records were lost. Lives are taken from the headers.
#[test]
fn chains_of_crashes_leave_a_prefix() {
    let mut cuts = 0;
    for seed in 0..CHAINS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let history = History::of(Spec::tiny(), seed, 40);
        let full = rng.u8(0..4);
        let n = rng.u64(0..=history.device.commands());
        let plan = any_plan(&history.device, n, full, &mut rng);
        let mut image = Arc::new(history.device.image_at(n, &plan));
        image.record();
        let mut store = history.check(n, &plan, &image);
        for _ in 0..12 {
            let mut model = contents(&store);
            let mut next = History {
                device: Arc::clone(&image),
                after: BTreeMap::from([(Lsn(0), model.clone()), (store.last_lsn(), model.clone())]),
                acknowledged: Vec::new(),
            };
            next.go_on(&store, &mut model, rng.u64(..), 3);
            drop(store);
            let last = if rng.bool() { image.commands() } else { image.commands().min(10) };
            let m = rng.u64(0..=last);
            let plan = any_plan(&image, m, full, &mut rng);
            let after = Arc::new(image.image_at(m, &plan));
            after.record();
            store = next.check(m, &plan, &after);
            image = after;
            cuts += 1;
        }
    }
    println!("{cuts} cuts");
}

/// Chains of a dozen crashes.
const CHAINS: u64 = 300;

fn any_plan(device: &Emulated, n: u64, full: u8, rng: &mut fastrand::Rng) -> CrashPlan {
    let mut plans = device.plans_at(n);
    plans.extend([CrashPlan::Subset(rng.u64(..)), CrashPlan::Subset(rng.u64(..))]);
    let plan = plans.swap_remove(rng.usize(0..plans.len()));
    let is_full = matches!(plan, CrashPlan::FullActive(_));
    if !is_full && rng.u8(0..4) < full { plan.full_active() } else { plan }
}

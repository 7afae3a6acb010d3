//! The store under power cuts: at every command of a short history, every basic state of the device,
//! the recovered contents are those after some prefix of the transactions, not older than the last
//! acknowledged sync.

use super::*;

struct History {
    device: Arc<Emulated>,
    /// Contents after each transaction, by LSN.
    after: BTreeMap<Lsn, Contents>,
    /// Commands issued when a sync of this LSN had been acknowledged.
    acknowledged: Vec<(u64, Lsn)>,
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

    fn check(&self, n: u64, plan: &CrashPlan, image: &Arc<Emulated>) -> Store {
        let told = format!("after command {n}, {plan:?}");
        let (store, recovery) = open(image).unwrap_or_else(|error| panic!("{told}: {error}"));
        let acknowledged =
            self.acknowledged.iter().filter(|(commands, _)| *commands <= n).map(|(_, lsn)| *lsn).max();
        if let Some(acknowledged) = acknowledged {
            assert!(recovery.last >= acknowledged, "{told}: {acknowledged:?} was acknowledged, {recovery:?}");
        }
        assert_eq!(&contents(&store), self.at(recovery.last), "{told}: {recovery:?}");
        store
    }
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

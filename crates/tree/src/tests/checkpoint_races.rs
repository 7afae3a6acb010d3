//! Leaves that are changed while a checkpoint writes their delta records.

use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::sync::Mutex;
use zone::{Blocks, Command, Geometry, Output, Role, ZoneId, ZoneInfo};

use super::crash::History;
use super::*;
use crate::cache::CutVersion;
use crate::types::NodeId;

type Hook = Box<dyn FnMut(ZoneId) + Send>;

/// A device that calls a hook before each append.
struct HookedDevice {
    device: Arc<Emulated>,
    hook: Mutex<Option<Hook>>,
}

impl HookedDevice {
    /// The hook is not called for its own appends.
    fn call_hook(&self, zone: ZoneId) {
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook {
            hook(zone);
            *self.hook.lock() = Some(hook);
        }
    }
}

impl Device for HookedDevice {
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
        self.call_hook(zone);
        self.device.append(zone, from)
    }
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        for command in batch.iter() {
            if let Command::Append { zone, .. } = command {
                self.call_hook(*zone);
            }
        }
        self.device.run(batch)
    }
    fn finish(&self, zone: ZoneId) -> zone::Result<()> {
        self.device.finish(zone)
    }
    fn reset(&self, zone: ZoneId) -> zone::Result<()> {
        self.device.reset(zone)
    }
    fn flush(&self) -> zone::Result<()> {
        self.device.flush()
    }
}

/// The source of transactions, and the contents that they made.
struct Story {
    model: Contents,
    rng: fastrand::Rng,
    after: BTreeMap<Lsn, Contents>,
}

impl Story {
    fn commit(&mut self, store: &Store) {
        let lsn = store.commit(random_tx(&mut self.rng, &mut self.model, 300, 30)).unwrap();
        self.after.insert(lsn, self.model.clone());
    }

    /// Always changes the same entry.
    fn commit_one(&mut self, store: &Store) {
        let (mut tx, key, value) = (Tx::new(), b"key 00000007".to_vec(), vec![self.rng.u8(..); 9]);
        tx.put(Group(1), Table(1), key.clone(), value.clone());
        self.model.insert((1, 1, key), value);
        self.after.insert(store.commit(tx).unwrap(), self.model.clone());
    }
}

/// How many leaves a checkpoint is writing.
fn being_written(store: &Store) -> usize {
    let ids = (0..store.core.nodes.mat.next_node()).map(NodeId);
    ids.filter_map(|id| store.core.nodes.cache.get(id)).filter(|node| node.look().being_written).count()
}

#[test]
fn changes_while_a_checkpoint_writes_belong_to_the_next() {
    let device = formatted(Spec::odd(), &options());
    let told = Arc::new(HookedDevice { device: device.clone(), hook: Mutex::new(None) });
    let (store, recovery) = Store::open(told.clone(), &config(), &mut Plain).unwrap();
    store.set_client(Arc::new(Plain));
    let store = Arc::new(store);
    let mut story =
        Story { model: Contents::new(), rng: fastrand::Rng::with_seed(9), after: BTreeMap::new() };
    story.after.insert(recovery.last, Contents::new());
    (0..400).for_each(|_| story.commit(&store));
    store.checkpoint().unwrap();
    device.record();

    let (story, changed) = (Arc::new(Mutex::new(story)), Arc::new(AtomicUsize::new(0)));
    let mut acknowledged = Vec::new();
    for _ in 0..5 {
        (0..6).for_each(|_| story.lock().commit(&store));
        let (within, of, count) = (Arc::downgrade(&store), story.clone(), changed.clone());
        let mut is_over = false;
        *told.hook.lock() = Some(Box::new(move |zone| {
            let store = within.upgrade().unwrap();
            if !is_over && store.core.volume.pool.entry(zone).role == Role::Metadata {
                is_over = true;
                let before = being_written(&store);
                (0..6).for_each(|_| of.lock().commit(&store));
                count.fetch_add(before - being_written(&store), Ordering::Relaxed);
            }
        }));
        store.checkpoint().unwrap();
        *told.hook.lock() = None;
        let last = *story.lock().after.last_key_value().unwrap().0;
        store.sync(last).unwrap();
        acknowledged.push((device.commands(), last));
    }
    assert!(changed.load(Ordering::Relaxed) > 10, "leaves are changed while a checkpoint writes them");
    assert_eq!(contents(&store), story.lock().model);

    let after = std::mem::take(&mut story.lock().after);
    let history = History { device, after, acknowledged };
    for n in 0..=history.device.commands() {
        for plan in history.device.plans_at(n) {
            history.check(n, &plan, &Arc::new(history.device.image_at(n, &plan)));
        }
    }
}

/// A client that changes, after the cut, nodes that a checkpoint has still to write.
struct Early {
    store: Weak<Store>,
    story: Mutex<Story>,
    /// The number of transactions at each call for its bytes, before the cut and after it. None: one transaction of
    /// one entry.
    at_once: AtomicUsize,
    /// Leaves with a cut version as changes, and nodes with one as a page.
    kept: [AtomicUsize; 2],
}

impl Client for Early {
    fn checkpoint_bytes(&self, _cut: Lsn) -> Bytes {
        let Some(store) = self.store.upgrade() else { return Bytes::new() };
        match self.at_once.load(Ordering::Relaxed) {
            0 => self.story.lock().commit_one(&store),
            many => (0..many).for_each(|_| self.story.lock().commit(&store)),
        }
        for node in
            (0..store.core.nodes.mat.next_node()).filter_map(|id| store.core.nodes.cache.get(NodeId(id)))
        {
            match node.look().cut_version {
                Some(CutVersion::Changes(_)) => self.kept[0].fetch_add(1, Ordering::Relaxed),
                Some(CutVersion::Page(_)) => self.kept[1].fetch_add(1, Ordering::Relaxed),
                None => 0,
            };
        }
        Bytes::new()
    }
}

#[test]
fn the_cut_version_of_a_leaf_is_its_delta_record() {
    let device = formatted(Spec::odd(), &options());
    let (store, recovery) = open(&device).unwrap();
    let store = Arc::new(store);
    let story = Story { model: Contents::new(), rng: fastrand::Rng::with_seed(3), after: BTreeMap::new() };
    let early = Arc::new(Early {
        store: Arc::downgrade(&store),
        story: Mutex::new(story),
        at_once: AtomicUsize::new(0),
        kept: Default::default(),
    });
    early.story.lock().after.insert(recovery.last, Contents::new());
    (0..400).for_each(|_| early.story.lock().commit(&store));
    store.checkpoint().unwrap();
    store.set_client(early.clone());
    device.record();

    let (mut acknowledged, mut alone) = (Vec::new(), 0);
    for at_once in [4, 1, 4, 1, 4, 1, 0, 0, 0, 0] {
        early.at_once.store(at_once, Ordering::Relaxed);
        let (kept, before) = (early.kept[0].load(Ordering::Relaxed), store.stats().deltas_written);
        store.checkpoint().unwrap();
        let is_one = store.stats().deltas_written == before + 1;
        alone += u32::from(is_one && early.kept[0].load(Ordering::Relaxed) > kept);
        let last = *early.story.lock().after.last_key_value().unwrap().0;
        store.sync(last).unwrap();
        acknowledged.push((device.commands(), last));
    }
    let [changes, pages] = [0, 1].map(|form| early.kept[form].load(Ordering::Relaxed));
    assert!(changes > 10 && pages > 0, "{changes} cut versions are changes, {pages} are pages");
    assert!(alone > 0, "the delta record of a cut version is alone in a page");
    assert_eq!(contents(&store), early.story.lock().model);

    let after = std::mem::take(&mut early.story.lock().after);
    let history = History { device, after, acknowledged };
    for n in 0..=history.device.commands() {
        for plan in history.device.plans_at(n) {
            history.check(n, &plan, &Arc::new(history.device.image_at(n, &plan)));
        }
    }
}

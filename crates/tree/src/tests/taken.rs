//! Leaves that are changed while a checkpoint has their changes in hand.

use std::sync::atomic::{AtomicUsize, Ordering};

use rt::sync::Mutex;
use zone::{Blocks, Command, Geometry, Output, Role, ZoneId, ZoneInfo};

use super::crash::History;
use super::*;
use crate::types::NodeId;

type Hook = Box<dyn FnMut(ZoneId) + Send>;

/// A device of which somebody is told before each append.
struct Told {
    device: Arc<Emulated>,
    hook: Mutex<Option<Hook>>,
}

impl Told {
    /// What the hook does itself it is not told of.
    fn tell(&self, zone: ZoneId) {
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook {
            hook(zone);
            *self.hook.lock() = Some(hook);
        }
    }
}

impl Device for Told {
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
        self.tell(zone);
        self.device.append(zone, from)
    }
    fn write(&self, zone: ZoneId, block: Blocks, from: &[u8]) -> zone::Result<()> {
        self.device.write(zone, block, from)
    }
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        for command in batch.iter() {
            if let Command::Append { zone, .. } = command {
                self.tell(*zone);
            }
        }
        self.device.run(batch)
    }
    fn open(&self, zone: ZoneId) -> zone::Result<()> {
        self.device.open(zone)
    }
    fn close(&self, zone: ZoneId) -> zone::Result<()> {
        self.device.close(zone)
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

/// Where transactions come from, and what they made of the store.
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
}

/// How many leaves a checkpoint has in hand.
fn taken(store: &Store) -> usize {
    let ids = (0..store.core.mat.next_node()).map(NodeId);
    ids.filter_map(|id| store.core.cache.get(id)).filter(|node| node.look().taken).count()
}

#[test]
fn what_is_changed_while_a_checkpoint_writes_it_belongs_to_the_next() {
    let device = formatted(Spec::odd(), &options());
    let told = Arc::new(Told { device: device.clone(), hook: Mutex::new(None) });
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
            if !is_over && store.core.zones.entry(zone).role == Role::Metadata {
                is_over = true;
                let before = taken(&store);
                (0..6).for_each(|_| of.lock().commit(&store));
                count.fetch_add(before - taken(&store), Ordering::Relaxed);
            }
        }));
        store.checkpoint().unwrap();
        *told.hook.lock() = None;
        let last = *story.lock().after.last_key_value().unwrap().0;
        store.sync(last).unwrap();
        acknowledged.push((device.commands(), last));
    }
    assert!(changed.load(Ordering::Relaxed) > 10, "leaves are changed while they are in hand");
    assert_eq!(contents(&store), story.lock().model);

    let after = std::mem::take(&mut story.lock().after);
    let history = History { device, after, acknowledged };
    for n in 0..=history.device.commands() {
        for plan in history.device.plans_at(n) {
            history.check(n, &plan, &Arc::new(history.device.image_at(n, &plan)));
        }
    }
}

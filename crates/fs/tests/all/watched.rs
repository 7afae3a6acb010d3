//! A device whose commands a test can count, hold up and react to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use emulated::{Emulated, Spec};
use fs::{Fs, MountOptions};
use rt::sync::Mutex;
use zone::{Blocks, Command, Device, Geometry, Output, Role, ZoneId, ZoneInfo};

use crate::support::Volume;

type Hook = Box<dyn FnOnce() + Send>;
type EachHook = Arc<dyn Fn(Doing) + Send + Sync>;

/// Kinds of commands to data zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doing {
    /// Reads.
    Reading,
    /// Appends of user writes.
    Appending,
    /// Appends of GC.
    Moving,
    /// Opening, closing, finishing or resetting a zone.
    Changing,
}

/// A device that counts its reads, notes the hints for zones, has zones to discard on request, and can run something
/// at the next read, before the next data is appended, at the next flush, or during any command to data zones.
pub(crate) struct Watched {
    pub(crate) device: Arc<Emulated>,
    pub(crate) reads: AtomicU64,
    /// The zones that were read.
    pub(crate) zones_read: Mutex<BTreeSet<ZoneId>>,
    /// Zones that it could discard.
    pub(crate) to_give_back: AtomicU64,
    /// The last hint for each zone: the role, and the lifetime class.
    pub(crate) leased: Mutex<BTreeMap<ZoneId, (Role, u8)>>,
    pub(crate) at_next_read: Mutex<Option<Hook>>,
    pub(crate) at_next_append: Mutex<Option<Hook>>,
    pub(crate) at_next_flush: Mutex<Option<Hook>>,
    /// Whether the next batch reads a wrong bit.
    pub(crate) flips_next_read: AtomicBool,
    /// Not for commands during the hook.
    pub(crate) meanwhile: Mutex<Option<EachHook>>,
    is_meanwhile: AtomicBool,
}

impl Watched {
    pub(crate) fn new(device: &Arc<Emulated>) -> Self {
        Watched {
            device: device.clone(),
            reads: AtomicU64::new(0),
            zones_read: Mutex::default(),
            to_give_back: AtomicU64::new(0),
            leased: Mutex::default(),
            at_next_read: Mutex::new(None),
            at_next_append: Mutex::new(None),
            at_next_flush: Mutex::new(None),
            flips_next_read: AtomicBool::new(false),
            meanwhile: Mutex::new(None),
            is_meanwhile: AtomicBool::new(false),
        }
    }

    /// Commands that have begun are not done before this returns.
    fn begin(&self, doing: Doing, zone: ZoneId) {
        let holds_data = self.role(zone).is_some_and(Role::holds_data);
        let Some(hook) = self.meanwhile.lock().clone().filter(|_| holds_data) else { return };
        if !self.is_meanwhile.swap(true, Ordering::SeqCst) {
            hook(doing);
            self.is_meanwhile.store(false, Ordering::SeqCst);
        }
    }

    fn begin_batch(&self, batch: &[Command<'_>]) {
        let of = |command: &Command<'_>| match command {
            Command::Read { zone, .. } => (Doing::Reading, *zone),
            Command::Append { zone, .. } if self.role(*zone) == Some(Role::Gc) => (Doing::Moving, *zone),
            Command::Append { zone, .. } => (Doing::Appending, *zone),
        };
        if let Some((doing, zone)) = batch.iter().map(of).max() {
            self.begin(doing, zone);
        }
    }

    fn role(&self, zone: ZoneId) -> Option<Role> {
        self.leased.lock().get(&zone).map(|(role, _)| *role)
    }

    fn count(&self, zone: ZoneId) {
        self.zones_read.lock().insert(zone);
        self.reads.fetch_add(1, Ordering::SeqCst);
        happen(&self.at_next_read);
    }
}

/// An empty volume on a watched device.
pub(crate) fn watched_volume(spec: Spec, cache_bytes: u64) -> (Arc<Watched>, Volume) {
    let Volume { device, clock, fs } = Volume::on(spec);
    fs.unmount().unwrap();
    drop(fs);
    let watched = Arc::new(Watched::new(&device));
    let options = MountOptions {
        cache_bytes,
        read_only: false,
        commit_interval_ns: 5_000_000_000,
        clock: clock.clone(),
    };
    let fs = Fs::mount(watched.clone(), options).unwrap().0;
    (watched, Volume { device, clock, fs })
}

fn happen(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().take();
    if let Some(hook) = hook {
        hook();
    }
}

impl Device for Watched {
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
        self.count(zone);
        self.begin(Doing::Reading, zone);
        self.device.read(zone, block, into)
    }
    fn append(&self, zone: ZoneId, from: &[u8]) -> zone::Result<Blocks> {
        self.begin_batch(&[Command::Append { zone, from }]);
        self.device.append(zone, from)
    }
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        for command in batch.iter() {
            match command {
                Command::Read { zone, .. } => self.count(*zone),
                Command::Append { .. } => happen(&self.at_next_append),
            }
        }
        self.begin_batch(batch);
        let outputs = self.device.run(batch);
        if let Some(Command::Read { into, .. }) = batch.first_mut()
            && self.flips_next_read.swap(false, Ordering::SeqCst)
        {
            into[0] ^= 1;
        }
        outputs
    }
    fn finish(&self, zone: ZoneId) -> zone::Result<()> {
        self.begin(Doing::Changing, zone);
        self.device.finish(zone)
    }
    fn reset(&self, zone: ZoneId) -> zone::Result<()> {
        self.begin(Doing::Changing, zone);
        self.device.reset(zone)
    }
    fn flush(&self) -> zone::Result<()> {
        happen(&self.at_next_flush);
        self.device.flush()
    }
    fn set_placement(&self, zone: ZoneId, role: Role, class: u8) {
        self.leased.lock().insert(zone, (role, class));
    }
    fn discard_one_zone(&self) -> bool {
        let take_one = |left: u64| left.checked_sub(1);
        self.to_give_back.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one).is_ok()
    }
}

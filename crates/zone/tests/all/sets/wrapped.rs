//! Members that are wrapped: a disk that dies answers with I/O errors, and a test does something at a chosen moment.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use super::{VOLUME, emulated};
use crate::zone::set::{Layout, Set};
use crate::zone::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo};
use emulated::{Emulated, Spec};

/// Which commands fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Health {
    Good,
    /// It reads, reports and flushes, and refuses every change.
    ReadsOnly,
    /// Every command fails with an I/O error of its zone, as those of a disk do that is gone.
    Dead,
}

type Hook = Box<dyn Fn(&'static str, ZoneId) + Send + Sync>;

/// A member device.
pub(super) struct Wrapped {
    device: Arc<Emulated>,
    health: AtomicU8,
    /// Called before each command but reports.
    before: OnceLock<Hook>,
}

impl Wrapped {
    pub(super) fn new(device: &Arc<Emulated>) -> Arc<Wrapped> {
        let health = AtomicU8::new(Health::Good as u8);
        Arc::new(Wrapped { device: Arc::clone(device), health, before: OnceLock::new() })
    }

    pub(super) fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    pub(super) fn before_commands(&self, hook: impl Fn(&'static str, ZoneId) + Send + Sync + 'static) {
        assert!(self.before.set(Box::new(hook)).is_ok(), "there is one hook");
    }

    fn check(&self, zone: ZoneId, operation: &'static str, worst: Health) -> Result<()> {
        match self.health.load(Ordering::Relaxed) <= worst as u8 {
            true => Ok(()),
            false => Err(DeviceError::Io { zone, operation, reason: "no such device".to_owned() }),
        }
    }

    fn begin(&self, zone: ZoneId, operation: &'static str, worst: Health) -> Result<()> {
        if let Some(hook) = self.before.get() {
            hook(operation, zone);
        }
        self.check(zone, operation, worst)
    }
}

impl Device for Wrapped {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        self.check(ZoneId(0), "report", Health::ReadsOnly)?;
        self.device.report()
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.check(zone, "report", Health::ReadsOnly)?;
        self.device.report_zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        self.begin(zone, "read", Health::ReadsOnly)?;
        self.device.read(zone, block, into)
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        self.begin(zone, "append", Health::Good)?;
        self.device.append(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        match self.begin(ZoneId(0), "batch", Health::ReadsOnly) {
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            Ok(()) => self.device.run(batch),
        }
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.begin(zone, "finish", Health::Good)?;
        self.device.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.begin(zone, "reset", Health::Good)?;
        self.device.reset(zone)
    }

    fn flush(&self) -> Result<()> {
        self.begin(ZoneId(0), "flush", Health::ReadsOnly)?;
        self.device.flush()
    }
}

/// A set of wrapped members.
pub(super) struct WrappedSet {
    pub(super) members: Vec<Arc<Emulated>>,
    pub(super) wrapped: Vec<Arc<Wrapped>>,
    pub(super) set: Arc<Set>,
}

impl WrappedSet {
    pub(super) fn new(layout: Layout, specs: &[Spec]) -> WrappedSet {
        super::plant();
        let members: Vec<Arc<Emulated>> = specs.iter().flat_map(|spec| emulated(spec, 1)).collect();
        let wrapped: Vec<Arc<Wrapped>> = members.iter().map(Wrapped::new).collect();
        let set = Arc::new(Set::create(layout, dynamic(&wrapped), VOLUME, 0).unwrap());
        WrappedSet { members, wrapped, set }
    }
}

pub(super) fn dynamic(wrapped: &[Arc<Wrapped>]) -> Vec<Arc<dyn Device>> {
    wrapped.iter().map(|one| Arc::clone(one) as Arc<dyn Device>).collect()
}

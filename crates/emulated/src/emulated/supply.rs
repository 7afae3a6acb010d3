//! A power supply that several devices share: all lose their power at the same command.

use std::sync::Arc;

use rt::sync::Mutex;

use super::{CrashPlan, Emulated};
use zone::{DeviceError, Result};

/// The supply of several devices. It numbers the changes of all of them in one order.
#[derive(Debug, Default)]
pub struct Supply {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of devices.
    devices: usize,
    /// The device of each change since the recording began.
    changes: Vec<usize>,
    /// The number of changes after which the power is lost.
    until: Option<u64>,
}

/// The place of a device at its supply.
#[derive(Debug)]
pub(super) struct Socket {
    supply: Arc<Supply>,
    index: usize,
}

impl Supply {
    /// A supply without devices.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Connects a device, which counts from 0 in the order of these calls.
    pub fn connect(self: &Arc<Self>, device: Emulated) -> Emulated {
        let mut inner = self.inner.lock();
        inner.devices += 1;
        let socket = Socket { supply: Arc::clone(self), index: inner.devices - 1 };
        Emulated { socket: Some(socket), ..device }
    }

    /// Begins to record on all of its devices: their present contents count as durable, and changes count from 0.
    pub fn record(&self, devices: &[Arc<Emulated>]) {
        devices.iter().for_each(|device| device.record());
        self.inner.lock().changes.clear();
    }

    /// The number of changes of all devices since [`Supply::record`].
    pub fn commands(&self) -> u64 {
        self.inner.lock().changes.len() as u64
    }

    /// Loses the power after `n` more changes: every later command of every device fails.
    pub fn lose_power_after(&self, n: u64) {
        let mut inner = self.inner.lock();
        inner.until = Some(inner.changes.len() as u64 + n);
    }

    /// For each device the number of its changes among the first `n` of all.
    pub fn commands_at(&self, n: u64) -> Vec<u64> {
        let inner = self.inner.lock();
        let mut counts = vec![0; inner.devices];
        inner.changes[..n as usize].iter().for_each(|&device| counts[device] += 1);
        counts
    }

    /// The devices after a loss of power directly after change `n`, with a plan for each, on a new supply.
    pub fn images_at(&self, n: u64, devices: &[Arc<Emulated>], plans: &[CrashPlan]) -> Vec<Arc<Emulated>> {
        let supply = Supply::new();
        let images = devices.iter().zip(self.commands_at(n)).zip(plans);
        images.map(|((device, n), plan)| Arc::new(supply.connect(device.image_at(n, plan)))).collect()
    }

    /// The devices after their user was killed directly after change `n`, on a new supply. They record; the changes of
    /// the supply begin with those that are not yet flushed, one device after the other.
    pub fn killed_at(&self, n: u64, devices: &[Arc<Emulated>]) -> Vec<Arc<Emulated>> {
        let supply = Supply::new();
        let killed = devices.iter().zip(self.commands_at(n));
        let killed = killed.map(|(device, n)| Arc::new(supply.connect(device.killed_at(n))));
        let killed: Vec<Arc<Emulated>> = killed.collect();
        for (index, device) in killed.iter().enumerate() {
            let unflushed = std::iter::repeat_n(index, device.commands() as usize);
            supply.inner.lock().changes.extend(unflushed);
        }
        killed
    }
}

impl Socket {
    pub(super) fn supply(&self) -> &Arc<Supply> {
        &self.supply
    }

    pub(super) fn count(&self) {
        self.supply.inner.lock().changes.push(self.index);
    }

    pub(super) fn check_power(&self) -> Result<()> {
        let inner = self.supply.inner.lock();
        match inner.until {
            Some(until) if inner.changes.len() as u64 >= until => Err(DeviceError::PowerLost),
            _ => Ok(()),
        }
    }
}

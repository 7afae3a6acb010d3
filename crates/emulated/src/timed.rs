//! A model of device time on top of another device.
//!
//! The device below executes every command immediately. A [`Model`] determines how long the command would have taken,
//! and the given clock advances by the time that the caller waits. Nothing depends on the machine. A zone lies on one
//! of several channels. A command occupies the channel of its zone for its service time, and the link of its
//! direction, which all channels share, for the transfer time of its bytes. Channels and links serve commands in the
//! order of issue, and a command is complete when both are done with it. If the model has seek times, a command takes
//! longer if it does not begin where the last one of its channel ended. Commands are not reordered.
//!
//! The caller of a command waits until it is complete. Several threads wait concurrently if they are threads of a
//! schedule in time ([`rt::schedule::run_in_time`], with this clock). They queue for the device in the order of their
//! times, and their other interactions by locks and conditions are those of the product's threads. Any other thread
//! is assumed to be alone: the clock advances by the time that it waits.
//!
//! Opening, closing, finishing and reporting zones take no time, and neither does the CPU.

mod schedule;

use std::cell::Cell;
use std::sync::Arc;

use rt::sync::Mutex;
use rt::{Clock, ManualClock};

use zone::{Blocks, Command, Device, Geometry, HostSpace, Output, Result, Role, ZoneId, ZoneInfo};

pub use schedule::{ClassTimes, CommandClass, DeviceTimes, Model};
use schedule::{Demand, Schedule};

thread_local! {
    static WAITED_NS: Cell<u64> = const { Cell::new(0) };
}

/// How long the commands of this thread have taken on all devices of this kind, including the time in queues.
pub fn waited_by_this_thread_ns() -> u64 {
    WAITED_NS.get()
}

/// A device whose commands take time on a clock that only they advance.
pub struct Timed {
    below: Arc<dyn Device>,
    clock: Arc<ManualClock>,
    schedule: Mutex<Schedule>,
}

impl Timed {
    /// No commands are in flight yet. Other code may advance the clock while no command is in flight.
    pub fn new(below: Arc<dyn Device>, clock: Arc<ManualClock>, model: Model) -> Timed {
        let schedule = Schedule::new(model, clock.monotonic_ns());
        Timed { below, clock, schedule: Mutex::new(schedule) }
    }

    /// The times of commands so far.
    pub fn times(&self) -> DeviceTimes {
        self.schedule.lock().times()
    }

    /// The clock that it advances.
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// Issues commands together and waits for all of them.
    fn take(&self, demands: &[Demand]) {
        let now = self.clock.monotonic_ns();
        let complete = self.schedule.lock().issue(now, demands);
        WAITED_NS.set(WAITED_NS.get() + (complete - now));
        if !rt::schedule::sleep_until(complete) {
            self.clock.advance(complete - now);
        }
    }

    fn take_one(&self, demand: Demand) {
        self.take(&[demand]);
    }

    fn read_at(&self, zone: ZoneId, block: Blocks, into: &[u8]) -> Demand {
        let at = u64::from(block) * u64::from(self.geometry().block_size);
        Demand { zone: Some(zone), kind: CommandClass::Read, bytes: into.len() as u64, at: Some(at) }
    }
}

fn appended(zone: ZoneId, from: &[u8]) -> Demand {
    Demand { zone: Some(zone), kind: CommandClass::Write, bytes: from.len() as u64, at: None }
}

impl Device for Timed {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        self.below.report()
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.below.report_zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        self.take_one(self.read_at(zone, block, into));
        self.below.read(zone, block, into)
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        self.take_one(appended(zone, from));
        self.below.append(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let demand = |command: &Command<'_>| match command {
            Command::Read { zone, block, into } => self.read_at(*zone, *block, into),
            Command::Append { zone, from } => appended(*zone, from),
        };
        let demands: Vec<Demand> = batch.iter().map(demand).collect();
        self.take(&demands);
        self.below.run(batch)
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.below.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.take_one(Demand { zone: Some(zone), kind: CommandClass::Reset, bytes: 0, at: None });
        self.below.reset(zone)
    }

    fn flush(&self) -> Result<()> {
        self.take_one(Demand { zone: None, kind: CommandClass::Flush, bytes: 0, at: None });
        self.below.flush()
    }

    /// Its time is that of a clock, which threads outside of a schedule would move too far.
    fn takes_time(&self) -> bool {
        false
    }

    fn set_placement(&self, zone: ZoneId, role: Role, class: u8) {
        self.below.set_placement(zone, role, class);
    }

    fn host_space(&self) -> Option<HostSpace> {
        self.below.host_space()
    }

    fn has_space_for(&self, zones: u64) -> bool {
        self.below.has_space_for(zones)
    }

    fn device_metadata_bytes_written(&self) -> u64 {
        self.below.device_metadata_bytes_written()
    }
}

#[cfg(test)]
mod tests;

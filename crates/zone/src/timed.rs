//! A model of time over a device that has none.
//!
//! Every command is carried out at once by the device below. How long it would have taken is worked out
//! from a [`Model`], and the clock that it is given moves by what its caller waits for; nothing depends
//! on the machine. A zone lies on one of several channels. A command occupies the channel of its zone
//! for its service time, and the link of its direction, which all channels share, for as long as its
//! bytes take; both serve one after the other in the order of issue, and the command is complete when
//! both are done with it. Where the model has an arm, a command that does not go on where the last one of its channel has
//! ended takes longer; it takes them as they come, and does not look for a shorter way.
//!
//! Commands are issued by the *client*, whose time is the clock, and by *background* work of several lanes, done
//! inside [`Timed::in_background`]. What that does takes effect at once, but its commands are only
//! noted: each lane issues its own one after the other in times of their own, as the client's time passes, so
//! that the client and all lanes queue for the device exactly in the order of their times. So a lane is at most
//! one such piece ahead of its time, and its next may begin when the last of its commands is complete
//! ([`Timed::background_is_free`]).
//!
//! Opening, closing and finishing a zone and reporting take no time; processors take none.

mod schedule;

use std::sync::Arc;

use rt::sync::Mutex;
use rt::{Clock, ManualClock};

use crate::{Blocks, Command, Device, Geometry, Output, Result, Role, ZoneId, ZoneInfo};

use schedule::{Demand, Schedule};
pub use schedule::{Kind, Model, Spent, Times};

/// A device whose commands take time on a clock that only they move.
pub struct Timed {
    below: Arc<dyn Device>,
    clock: Arc<ManualClock>,
    state: Mutex<State>,
}

struct State {
    schedule: Schedule,
    /// Commands are those of this lane of background work.
    lane: Option<usize>,
}

impl Timed {
    /// Nothing under way yet. Nobody else but the client may move the clock, and only forwards.
    pub fn new(below: Arc<dyn Device>, clock: Arc<ManualClock>, model: Model, lanes: usize) -> Timed {
        let schedule = Schedule::new(model, lanes, clock.monotonic_ns());
        Timed { below, clock, state: Mutex::new(State { schedule, lane: None }) }
    }

    /// Does a piece of background work, whose commands do not hold up the client but through the queues
    /// of the device. It begins when the last piece of its lane was over.
    pub fn in_background<T>(&self, lane: usize, work: impl FnOnce() -> T) -> T {
        let entered = self.state.lock().lane.replace(lane);
        assert_eq!(entered, None, "background work does not begin within background work");
        let done = work();
        self.state.lock().lane = None;
        done
    }

    /// Whether the commands of a lane are complete by now, so that more can be done.
    pub fn background_is_free(&self, lane: usize) -> bool {
        let now = self.clock.monotonic_ns();
        self.state.lock().schedule.is_free(lane, now)
    }

    /// A lane has found nothing to do: its next piece does not begin before now.
    pub fn background_idles(&self, lane: usize) {
        let now = self.clock.monotonic_ns();
        self.state.lock().schedule.idle_until(lane, now);
    }

    /// Lets the client wait until then, or only until a lane that is at work is free if that comes first.
    pub fn wait_until(&self, until: u64) {
        let now = self.clock.monotonic_ns();
        let free = self.state.lock().schedule.first_free(now, until);
        self.clock.advance(free.unwrap_or(until).max(now) - now);
    }

    /// What commands have taken so far.
    pub fn times(&self) -> Times {
        self.state.lock().schedule.times()
    }

    /// The clock that it moves.
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// Commands that are issued at once: their issuer waits for all of them.
    fn take(&self, demands: Vec<Demand>) {
        let mut state = self.state.lock();
        if let Some(lane) = state.lane {
            state.schedule.note(lane, demands);
            return;
        }
        let now = self.clock.monotonic_ns();
        state.schedule.play_until(now);
        let complete = state.schedule.issue(now, &demands);
        drop(state);
        self.clock.advance(complete - now);
    }

    fn take_one(&self, demand: Demand) {
        self.take(vec![demand]);
    }

    fn read_at(&self, zone: ZoneId, block: Blocks, into: &[u8]) -> Demand {
        let at = u64::from(block) * u64::from(self.geometry().block_size);
        Demand { zone: Some(zone), kind: Kind::Read, bytes: into.len() as u64, at: Some(at) }
    }
}

fn appended(zone: ZoneId, from: &[u8]) -> Demand {
    Demand { zone: Some(zone), kind: Kind::Write, bytes: from.len() as u64, at: None }
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

    fn write(&self, zone: ZoneId, block: Blocks, from: &[u8]) -> Result<()> {
        self.take_one(appended(zone, from));
        self.below.write(zone, block, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let demand = |command: &Command<'_>| match command {
            Command::Read { zone, block, into } => self.read_at(*zone, *block, into),
            Command::Append { zone, from } => appended(*zone, from),
        };
        self.take(batch.iter().map(demand).collect());
        self.below.run(batch)
    }

    fn open(&self, zone: ZoneId) -> Result<()> {
        self.below.open(zone)
    }

    fn close(&self, zone: ZoneId) -> Result<()> {
        self.below.close(zone)
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.below.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.take_one(Demand { zone: Some(zone), kind: Kind::Reset, bytes: 0, at: None });
        self.below.reset(zone)
    }

    fn flush(&self) -> Result<()> {
        self.take(vec![Demand { zone: None, kind: Kind::Flush, bytes: 0, at: None }]);
        self.below.flush()
    }

    fn lease(&self, zone: ZoneId, role: Role, class: u8) {
        self.below.lease(zone, role, class);
    }

    fn has_room_for(&self, zones: u64) -> bool {
        self.below.has_room_for(zones)
    }

    fn own_bytes_written(&self) -> u64 {
        self.below.own_bytes_written()
    }
}

#[cfg(test)]
mod tests;

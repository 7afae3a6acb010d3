//! The moment of a kill: at a given time, or at the first sign of an activity after it.
//!
//! The daemon counts the bytes that it writes by their cause. A cause was active if its count grew between two
//! samples, a few milliseconds apart, and the second sample is the last thing before the kill. Samples that are
//! further apart prove nothing and count as no sign.

use std::time::Duration;

use anyhow::Result;
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use serde_json::Value;

use crate::accept::volume::{Volume, number};

/// The pause between two samples.
const PAUSE: Duration = Duration::from_millis(3);

/// Two samples that are further apart than this prove nothing.
const APART_NS_MAX: u64 = 50_000_000;

/// An activity at the moment of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Collection,
    Checkpoint,
}

const SIGNS: [Sign; 2] = [Sign::Collection, Sign::Checkpoint];

impl Sign {
    /// The sign that a kill waits for: a third of the kills for none, a third for each.
    pub(super) fn for_kill(kill: u64) -> Option<Sign> {
        match kill % 3 {
            0 => None,
            1 => Some(Sign::Collection),
            _ => Some(Sign::Checkpoint),
        }
    }

    fn counter(self) -> &'static str {
        match self {
            Sign::Collection => "/written/device_bytes_by_cause/gc",
            Sign::Checkpoint => "/written/device_bytes_by_cause/checkpoint",
        }
    }
}

/// A sample of the counters.
struct Look {
    began_ns: u64,
    ended_ns: u64,
    stats: Value,
}

pub(super) struct Watch {
    at: Duration,
    latest_ns: u64,
    aim: Option<Sign>,
    clock: SystemClock,
    seen: Vec<Sign>,
}

impl Watch {
    /// For a kill at `at`, or for a sign after it, but at `latest_ms` at the latest.
    pub(super) fn new(at: Duration, latest_ms: u64, aim: Option<Sign>) -> Self {
        let latest_ns = latest_ms * 1_000_000;
        Watch { at, latest_ns, aim, clock: SystemClock::new(), seen: Vec::new() }
    }

    /// Returns at the moment of the kill.
    pub(super) fn until_kill(&mut self, volume: &Volume) -> Result<()> {
        let stop = Stop::default();
        stop.wait(self.at);
        let mut before = self.look(volume)?;
        loop {
            stop.wait(PAUSE);
            let after = self.look(volume)?;
            let is_late = after.ended_ns >= self.latest_ns;
            self.seen = SIGNS.into_iter().filter(|&sign| was_at_work(&before, &after, sign)).collect();
            if is_late || self.aim.is_none_or(|aim| self.saw(aim)) {
                return Ok(());
            }
            before = after;
        }
    }

    /// Whether there was activity between the last two samples.
    pub(super) fn saw(&self, sign: Sign) -> bool {
        self.seen.contains(&sign)
    }

    fn look(&self, volume: &Volume) -> Result<Look> {
        let began_ns = self.clock.monotonic_ns();
        let stats = volume.stats()?;
        Ok(Look { began_ns, ended_ns: self.clock.monotonic_ns(), stats })
    }
}

/// Whether a counter grew between two samples that are close together.
fn was_at_work(before: &Look, after: &Look, sign: Sign) -> bool {
    let count = |look: &Look| number(&look.stats, sign.counter());
    let has_grown = match (count(before), count(after)) {
        (Ok(before), Ok(after)) => after > before,
        _ => false,
    };
    has_grown && after.ended_ns - before.began_ns <= APART_NS_MAX
}

//! What each stream was given and cost, and how right what was expected of it has been: for those who look on.
//!
//! Blocks count for the stream of the zones in which they lay: what is moved out of a zone is what its stream costs,
//! whatever it is in afterwards. What dies is compared with what was expected (`ages.rs`) each time that all zones
//! are looked at, before what was seen then is learned.

use rt::sync::atomic::{AtomicU64, Ordering};

use super::ages::{STREAMS, Stream};
use crate::Lifetime;

/// One stream since the mount, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamTold {
    /// Written to it by users.
    pub written: u64,
    /// Of these, blocks that nobody said anything of, and which it was learned belong there.
    pub by_learning: u64,
    /// Moved out of its zones.
    pub moved: u64,
    /// Seen to die in its zones that were filled.
    pub died: f64,
    /// Expected to, by what had been learned until then.
    pub expected: f64,
    /// How far the two were apart, zone by zone and look by look.
    pub apart: f64,
}

impl StreamTold {
    /// How much was expected in error for each block that died or was expected to; none: nothing was.
    pub fn error(&self) -> Option<f64> {
        let most = self.died.max(self.expected);
        (most > 0.0).then(|| self.apart / most)
    }
}

/// Counters that writers touch.
#[derive(Default)]
pub(crate) struct Flows {
    written: [AtomicU64; STREAMS],
    by_learning: [AtomicU64; STREAMS],
    moved: [AtomicU64; STREAMS],
}

/// What became of expectations.
#[derive(Clone, Copy, Default)]
pub(crate) struct Expected {
    pub(crate) died: f64,
    pub(crate) expected: f64,
    pub(crate) apart: f64,
}

impl Expected {
    /// Of blocks of one zone so many died, and so many were expected to.
    pub(crate) fn add(&mut self, died: f64, expected: f64) {
        self.died += died;
        self.expected += expected;
        self.apart += (died - expected).abs();
    }
}

impl Flows {
    /// Blocks were written as of this class; `learned`: nobody had said so.
    pub(crate) fn wrote(&self, lifetime: Lifetime, blocks: u64, learned: bool) {
        let stream = usize::from(Stream::fresh(lifetime).number());
        self.written[stream].fetch_add(blocks, Ordering::Relaxed);
        if learned {
            self.by_learning[stream].fetch_add(blocks, Ordering::Relaxed);
        }
    }

    /// Blocks were moved out of a zone of this stream.
    pub(crate) fn moved(&self, stream: Stream, blocks: u64) {
        self.moved[usize::from(stream.number())].fetch_add(blocks, Ordering::Relaxed);
    }

    /// All streams: fresh data of each class, and what was moved.
    pub(crate) fn told(&self, expected: &[Expected; STREAMS]) -> [StreamTold; STREAMS] {
        std::array::from_fn(|stream| {
            let count = |counts: &[AtomicU64; STREAMS]| counts[stream].load(Ordering::Relaxed);
            let Expected { died, expected, apart } = expected[stream];
            StreamTold {
                written: count(&self.written),
                by_learning: count(&self.by_learning),
                moved: count(&self.moved),
                died,
                expected,
                apart,
            }
        })
    }
}

/// What a stream is called on screens and in `--json`.
pub fn stream_names() -> [&'static str; STREAMS] {
    std::array::from_fn(|stream| match Lifetime::from_number(stream as u8) {
        Some(lifetime) => lifetime.name(),
        None => "moved",
    })
}

#[cfg(test)]
mod tests;

//! What each stream was given and cost, and the error of its predictions. For statistics only.
//!
//! Blocks count for the stream of the zone in which they are. A block that GC moves out of a zone is a cost of that zone's
//! stream. Each scan of all zones compares deaths with predictions (`ages.rs`), before it learns from these deaths.

use rt::sync::atomic::{AtomicU64, Ordering};

use super::ages::{STREAMS, Stream};
use crate::Lifetime;

/// One stream since the mount, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamStats {
    /// Blocks that users wrote to it.
    pub written: u64,
    /// Of these, blocks without a hint, for which this stream was predicted.
    pub by_learning: u64,
    /// Blocks that GC moved out of its zones.
    pub moved: u64,
    /// Deaths that were observed in its filled zones.
    pub died: f64,
    /// Deaths that were predicted for them by what had been learned until then.
    pub predicted: f64,
    /// Sum of the absolute differences of the two, over zones and scans.
    pub difference: f64,
}

impl StreamStats {
    /// The error for each block that died or was predicted to die. `None` if there is no such block.
    pub fn prediction_error(&self) -> Option<f64> {
        let most = self.died.max(self.predicted);
        (most > 0.0).then(|| self.difference / most)
    }
}

/// Counters that writers touch.
#[derive(Default)]
pub(crate) struct StreamCounters {
    written: [AtomicU64; STREAMS],
    by_learning: [AtomicU64; STREAMS],
    moved: [AtomicU64; STREAMS],
}

/// The sums of one stream.
#[derive(Clone, Copy, Default)]
pub(crate) struct PredictionError {
    pub(crate) died: f64,
    pub(crate) predicted: f64,
    pub(crate) difference: f64,
}

impl PredictionError {
    /// Adds one zone: the blocks that died, and the predicted number.
    pub(crate) fn add(&mut self, died: f64, predicted: f64) {
        self.died += died;
        self.predicted += predicted;
        self.difference += (died - predicted).abs();
    }
}

impl StreamCounters {
    /// Blocks were written to this class. `learned`: no hint named it.
    pub(crate) fn wrote(&self, lifetime: Lifetime, blocks: u64, learned: bool) {
        let stream = usize::from(Stream::user_writes(lifetime).number());
        self.written[stream].fetch_add(blocks, Ordering::Relaxed);
        if learned {
            self.by_learning[stream].fetch_add(blocks, Ordering::Relaxed);
        }
    }

    /// Blocks were moved out of a zone of this stream.
    pub(crate) fn moved(&self, stream: Stream, blocks: u64) {
        self.moved[usize::from(stream.number())].fetch_add(blocks, Ordering::Relaxed);
    }

    /// All streams: user writes of each class, and moved blocks.
    pub(crate) fn stats(&self, predicted: &[PredictionError; STREAMS]) -> [StreamStats; STREAMS] {
        std::array::from_fn(|stream| {
            let count = |counts: &[AtomicU64; STREAMS]| counts[stream].load(Ordering::Relaxed);
            let PredictionError { died, predicted, difference } = predicted[stream];
            StreamStats {
                written: count(&self.written),
                by_learning: count(&self.by_learning),
                moved: count(&self.moved),
                died,
                predicted,
                difference,
            }
        })
    }
}

/// The name of each stream on screens and in `--json`.
pub fn stream_names() -> [&'static str; STREAMS] {
    std::array::from_fn(|stream| match Lifetime::from_number(stream as u8) {
        Some(lifetime) => lifetime.name(),
        None => "moved",
    })
}

#[cfg(test)]
mod tests;

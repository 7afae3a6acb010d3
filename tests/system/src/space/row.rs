//! The output of `polder-space` for one cell.

use serde::{Deserialize, Serialize};

/// One cell of the table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) fill_percent: u64,
    pub(super) zones: u32,
    pub(super) zone_bytes: u64,
    pub(super) fsync: bool,
    pub(super) hints: bool,
    pub(super) learning: bool,
    pub(super) seed: u64,
    /// The commit at which it was made. The program does not know it.
    #[serde(default)]
    pub(super) commit: String,
    pub(super) offered_bytes: u64,
    pub(super) live_percent_of_raw: f64,
    /// Device bytes per byte that the user wrote.
    pub(super) amplification: f64,
    pub(super) parts: Vec<Part>,
    /// Zones left for data, on average.
    pub(super) data_zones: f64,
    /// The ideal GC with this many zones, and with all.
    pub(super) ideal: Option<f64>,
    pub(super) ideal_of_all: Option<f64>,
    /// The analytical optimum for uniform writes.
    pub(super) optimum: Option<f64>,
    pub(super) empty: Waits,
    pub(super) closed: Waits,
    pub(super) half_rate: Waits,
    /// Device bytes per byte while writes arrive at half the rate.
    pub(super) half_rate_amplification: f64,
    pub(super) bytes_per_second: f64,
    pub(super) compared_blocks: u64,
}

/// Device bytes per byte that the user wrote, for one cause.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Part {
    pub(super) cause: String,
    pub(super) amplification: f64,
}

/// Latencies.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Waits {
    pub(super) writes: Summary,
    pub(super) writes_of_1_mib: Summary,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p999_ns: u64,
    pub(super) max_ns: u64,
}

impl Row {
    /// Whether everything is switched on.
    pub(super) fn is_whole(&self) -> bool {
        self.learning
    }

    /// `256 × 16 MiB`.
    pub(super) fn geometry(&self) -> String {
        format!("{} × {} MiB", self.zones, self.zone_bytes >> 20)
    }

    /// Polder's amplification relative to the ideal GC with the same zones.
    pub(super) fn against_ideal(&self) -> Option<f64> {
        self.ideal.map(|ideal| self.amplification / ideal)
    }

    /// The cost of taking log, metadata and reserve from the same zones.
    pub(super) fn price(&self) -> Option<f64> {
        Some(self.ideal? / self.ideal_of_all?)
    }

    /// Device bytes per byte for one cause.
    pub(super) fn part(&self, cause: &str) -> f64 {
        let part = self.parts.iter().find(|part| part.cause == cause);
        part.map_or(0.0, |part| part.amplification)
    }
}

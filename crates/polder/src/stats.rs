//! Counters of a volume and its contents: what was written, by which cause, and what is stored.
//!
//! All counters begin when the volume is opened. The structures can be written and read with `serde`; the field names
//! are those of `polder stats --json`.

use std::collections::BTreeMap;

use extent::StreamStats;
use fs::Fs;
use serde::{Deserialize, Serialize};
use tree::{Pool, Usage};
use zone::{Cause, Role, ZoneId};

/// The name of the state of a zone that cannot be written any more.
pub const BAD: &str = "bad";

/// The names under which zones are counted: roles, and [`BAD`].
pub const ROLES: [&str; 6] = ["free", "log", "metadata", "data", "gc", BAD];

/// Counters and contents of a volume. [`Volume::stats`](crate::Volume::stats) returns them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Whether the volume is open for the counters to count: false in `polder stats` of a volume that is not mounted,
    /// where the counters of writes are 0.
    pub mounted: bool,
    /// What was written.
    pub written: Written,
    /// The work of the metadata store.
    pub metadata: Metadata,
    /// What is stored.
    pub stored: Stored,
    /// The streams since the mount. A stream contains data of the same expected lifetime. Empty if the daemon is of an
    /// earlier release without this field.
    #[serde(default)]
    pub streams: BTreeMap<String, Stream>,
    /// Whether learned lifetimes are used. Nothing if the daemon is of an earlier release without this field.
    #[serde(default)]
    pub learning: Option<bool>,
    /// Nothing if the volume is read-only.
    pub gc: Option<Gc>,
}

/// The writes since the mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    /// Bytes of user writes that have reached Polder.
    pub user_bytes: u64,
    /// All bytes written to the device.
    pub device_bytes: u64,
    /// `device_bytes` by cause.
    pub device_bytes_by_cause: BTreeMap<String, u64>,
    /// `device_bytes` divided by `user_bytes`. Nothing if there were no user writes.
    pub amplification: Option<f64>,
}

/// The work of the metadata store since the mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Metadata {
    /// Committed transactions.
    pub commits: u64,
    /// Batches appended to the log: journal, checkpoints, seals.
    pub log_batches: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Whole nodes.
    pub nodes_written: u64,
    /// Leaves written as delta records.
    pub delta_records_written: u64,
    /// Nodes moved by garbage collection.
    pub nodes_moved: u64,
    /// Delta records moved by garbage collection.
    pub delta_records_moved: u64,
    /// Nodes read from the device.
    pub nodes_read: u64,
    /// Pages in the cache.
    pub pages_cached: u64,
    /// The capacity of the cache in pages.
    pub pages_cached_max: u64,
}

/// The state of garbage collection and throttling.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gc {
    /// The headroom: bytes of user writes that are possible before a zone must be reclaimed.
    pub headroom_bytes: u64,
    /// The low watermark: writers are throttled if the headroom is smaller.
    pub low_watermark_bytes: u64,
    /// The GC debt: bytes to be moved until one more zone is reclaimed. Nothing if no zone can be reclaimed.
    pub debt_bytes: Option<u64>,
    /// The part of the GC debt that is charged to writers: bytes that are due to be moved and not moved yet.
    pub charged_bytes: u64,
    /// Bytes to be moved for each written byte at the moment.
    pub moved_per_written: f64,
    /// Bytes that are freed for each moved byte, in the next victims.
    pub freed_per_moved: Option<f64>,
    /// The rate of user writes over the last 10 to 20 seconds.
    pub written_bytes_per_second: u64,
    /// The time until throttling starts at the current rate, 0 if it has started. Nothing if there are no writes, or if
    /// the headroom is below the watermark but the next zone is available.
    pub throttle_in_seconds: Option<f64>,
    /// Zones that garbage collection has emptied.
    pub zones_reclaimed: u64,
    /// Blocks that it has moved.
    pub blocks_moved: u64,
    /// Blocks that it could not read.
    pub blocks_lost: u64,
}

/// A stream: user writes of a lifetime class, or the blocks that garbage collection has moved (`moved`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// Bytes of user writes in the stream.
    pub user_bytes: u64,
    /// Those of them that were placed by learned lifetimes, without a hint.
    pub learned_bytes: u64,
    /// Bytes moved out of zones of the stream.
    pub moved_bytes: u64,
    /// Moved and written bytes for each written byte. Nothing if there were no writes.
    pub amplification: Option<f64>,
    /// Bytes that died in zones of the stream after these were full.
    pub died_bytes: u64,
    /// Bytes that were predicted to die.
    pub predicted_bytes: u64,
    /// The prediction error: the difference of the two, summed over the zones, for each byte of the larger one. Nothing
    /// without such bytes.
    pub prediction_error: Option<f64>,
}

/// The stored data of the volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// The largest number of bytes that data can use.
    pub total_bytes: u64,
    /// Bytes of live blocks.
    pub live_bytes: u64,
    /// Bytes of dead blocks, without the unwritten space in open zones.
    pub dead_bytes: u64,
    /// Bytes promised to writers, or written and not yet part of a file.
    pub pending_bytes: u64,
    /// Bytes of preallocated blocks of files.
    pub unwritten_bytes: u64,
    /// Bytes that are not available to files: for the log, metadata, garbage collection and the reserve. Nothing if the
    /// daemon is of an earlier release without this field.
    #[serde(default)]
    pub reserved_bytes: Option<u64>,
    /// Bytes that are available to files when the volume is mounted for writing.
    pub available_bytes: Option<u64>,
    /// Free zones reserved for metadata and garbage collection now. Nothing if the volume is read-only.
    #[serde(default)]
    pub free_zones_reserved: Option<u32>,
    /// Those of them that are reserved for metadata only.
    #[serde(default)]
    pub free_zones_reserved_for_metadata: Option<u32>,
    /// The number of zones of each role, see [`shown_role`], and of zones without a role that cannot be written any
    /// more (`bad`).
    pub zones_by_role: BTreeMap<String, u32>,
}

/// The cause of bytes of the device's own metadata, in addition to [`Cause`].
const DEVICE_OWN: &str = "zone_states";

impl Stats {
    /// The present values of a volume. The values of garbage collection are missing if it accepts no changes.
    pub fn of(fs: &Fs, read_only: bool) -> Stats {
        Stats::with_zones(fs, read_only, zones_by_role(fs))
    }

    /// The same with numbers of zones that the caller has counted. It takes no time that grows with the volume.
    pub fn with_zones(fs: &Fs, read_only: bool, zones_by_role: BTreeMap<String, u32>) -> Stats {
        Stats {
            mounted: true,
            written: Written::of(fs),
            metadata: Metadata::of(fs),
            stored: Stored::of(fs, read_only, zones_by_role),
            streams: Stream::all_of(fs),
            learning: Some(fs.extents().learned().is_learning()),
            gc: (!read_only).then(|| Gc::of(fs)),
        }
    }
}

impl Written {
    fn of(fs: &Fs) -> Written {
        let traffic = fs.store().traffic();
        let mut by_cause: BTreeMap<String, u64> =
            Cause::ALL.iter().map(|&cause| (cause.name().to_owned(), traffic.bytes_written(cause))).collect();
        by_cause.insert(DEVICE_OWN.to_owned(), fs.store().device().device_metadata_bytes_written());
        let device_bytes = by_cause.values().sum();
        let user_bytes = fs.user_bytes_written();
        let amplification = (user_bytes > 0).then(|| device_bytes as f64 / user_bytes as f64);
        Written { user_bytes, device_bytes, device_bytes_by_cause: by_cause, amplification }
    }
}

impl Metadata {
    fn of(fs: &Fs) -> Metadata {
        let stats = fs.store().stats();
        Metadata {
            commits: stats.commits,
            log_batches: stats.log_batches,
            checkpoints: stats.checkpoints,
            nodes_written: stats.nodes_written,
            delta_records_written: stats.deltas_written,
            nodes_moved: stats.nodes_moved,
            delta_records_moved: stats.deltas_moved,
            nodes_read: stats.nodes_read,
            pages_cached: stats.pages_cached,
            pages_cached_max: stats.pages_cached_max,
        }
    }
}

impl Gc {
    fn of(fs: &Fs) -> Gc {
        let (pressure, done) = (fs.extents().throttle().pressure(), fs.extents().collector().stats());
        let written_bytes_per_second = fs.data_bytes_per_second();
        let throttle_in_seconds = match (pressure.before_gc(), written_bytes_per_second) {
            _ if pressure.moved_per_written > 0.0 => Some(0.0),
            (0, _) | (_, 0) => None,
            (bytes, rate) => Some(bytes as f64 / rate as f64),
        };
        Gc {
            headroom_bytes: pressure.headroom,
            low_watermark_bytes: pressure.low_watermark,
            debt_bytes: pressure.debt,
            charged_bytes: pressure.charged,
            moved_per_written: pressure.moved_per_written,
            freed_per_moved: pressure.freed_per_moved,
            written_bytes_per_second,
            throttle_in_seconds,
            zones_reclaimed: done.zones_reclaimed,
            blocks_moved: done.blocks_moved,
            blocks_lost: done.blocks_lost,
        }
    }
}

impl Stream {
    fn all_of(fs: &Fs) -> BTreeMap<String, Stream> {
        let block = f64::from(fs.extents().block_size());
        let bytes = |blocks: f64| (blocks * block) as u64;
        let stream = |counts: &StreamStats| Stream {
            user_bytes: bytes(counts.written as f64),
            learned_bytes: bytes(counts.by_learning as f64),
            moved_bytes: bytes(counts.moved as f64),
            amplification: (counts.written > 0)
                .then(|| (counts.written + counts.moved) as f64 / counts.written as f64),
            died_bytes: bytes(counts.died),
            predicted_bytes: bytes(counts.predicted),
            prediction_error: counts.prediction_error(),
        };
        let named = extent::stream_names().into_iter().zip(fs.extents().learned().streams());
        named.map(|(name, counts)| (name.to_owned(), stream(&counts))).collect()
    }
}

impl Stored {
    fn of(fs: &Fs, read_only: bool, zones_by_role: BTreeMap<String, u32>) -> Stored {
        let (space, pool) = (fs.extents().budget().space(), fs.store().pool());
        Stored {
            total_bytes: space.total,
            live_bytes: space.live,
            dead_bytes: fs.extents().dead_blocks() * u64::from(space.block_size),
            pending_bytes: space.pending,
            unwritten_bytes: space.unwritten,
            reserved_bytes: Some(space.reserved),
            available_bytes: Some(space.available),
            free_zones_reserved: (!read_only).then(|| pool.reserved_from(Role::Data)),
            free_zones_reserved_for_metadata: (!read_only).then(|| pool.reserved_from(Role::Gc)),
            zones_by_role,
        }
    }
}

fn zones_by_role(fs: &Fs) -> BTreeMap<String, u32> {
    let pool = fs.store().pool();
    let mut counts: BTreeMap<String, u32> = ROLES.map(|name| (name.to_owned(), 0)).into();
    for zone in (0..pool.count()).map(ZoneId) {
        *counts.entry(counted_role(pool, zone).to_owned()).or_default() += 1;
    }
    counts
}

/// The name under which a zone is counted: one of [`ROLES`].
pub fn counted_role(pool: &Pool, zone: ZoneId) -> &'static str {
    match (shown_role(pool, zone), pool.usage(zone)) {
        (Role::Free, Usage::Retired) => BAD,
        (role, _) => role_name(role),
    }
}

/// The role that is reported for a zone. A zone that only the log may use is reported as a log zone even if it is
/// empty. Otherwise it would be counted as a free zone, which can be opened for any role (`polder gc --free`).
pub fn shown_role(pool: &Pool, zone: ZoneId) -> Role {
    match pool.entry(zone).role {
        Role::Free if zone.0 < tree::LOG_ZONES => Role::Log,
        role => role,
    }
}

/// The name of a role.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Free => "free",
        Role::Log => "log",
        Role::Metadata => "metadata",
        Role::Data => "data",
        Role::Gc => "gc",
    }
}

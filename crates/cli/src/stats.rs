//! `polder stats`: the writes since the volume was mounted, and the stored data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use extent::StreamStats;
use fs::Fs;
use serde::{Deserialize, Serialize};
use tree::Usage;
use zone::{Cause, Role, ZoneId};

use crate::control::Request;
use crate::output::{Table, line};
use crate::volume::Volume;
use crate::{bytes, zones};

/// Show the writes since a volume was mounted, their causes, and the stored data.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file or block device, or the directory that it is mounted on.
    path: PathBuf,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Counters and contents of a volume. Also the answer to the control request `stats`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stats {
    /// Whether the volume is mounted. If not, the counters of writes are 0.
    pub(crate) mounted: bool,
    pub(crate) written: Written,
    pub(crate) metadata: Metadata,
    pub(crate) stored: Stored,
    /// The streams since the mount. A stream contains data of the same expected lifetime. Empty if the daemon is of an earlier
    /// release without this field.
    #[serde(default)]
    pub(crate) streams: BTreeMap<String, Stream>,
    /// Whether learned lifetimes are used. Nothing if the daemon is of an earlier release without this field.
    #[serde(default)]
    pub(crate) learning: Option<bool>,
    /// Nothing if the volume is read-only.
    pub(crate) gc: Option<Gc>,
}

/// The writes since the mount.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Bytes of user writes that have reached the daemon.
    pub(crate) user_bytes: u64,
    /// All bytes written to the device.
    pub(crate) device_bytes: u64,
    /// `device_bytes` by cause.
    pub(crate) device_bytes_by_cause: BTreeMap<String, u64>,
    /// `device_bytes` divided by `user_bytes`. Nothing if there were no user writes.
    pub(crate) amplification: Option<f64>,
}

/// The work of the metadata store since the mount.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) commits: u64,
    /// Batches appended to the log: journal, checkpoints, seals.
    pub(crate) log_batches: u64,
    pub(crate) checkpoints: u64,
    /// Whole nodes.
    pub(crate) nodes_written: u64,
    /// Leaves written as delta records.
    pub(crate) delta_records_written: u64,
    /// Nodes moved by garbage collection.
    pub(crate) nodes_moved: u64,
    /// Delta records moved by garbage collection.
    pub(crate) delta_records_moved: u64,
    pub(crate) nodes_read: u64,
    pub(crate) pages_cached: u64,
    /// The capacity of the cache in pages.
    pub(crate) pages_cached_max: u64,
}

/// The state of garbage collection and throttling.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gc {
    /// The headroom: bytes of user writes that are possible before a zone must be reclaimed.
    pub(crate) headroom_bytes: u64,
    /// The low watermark: writers are throttled if the headroom is smaller.
    pub(crate) low_watermark_bytes: u64,
    /// The GC debt: bytes to be moved until one more zone is reclaimed. Nothing if no zone can be reclaimed.
    pub(crate) debt_bytes: Option<u64>,
    /// The part of the GC debt that is charged to writers: bytes that are due to be moved and not moved yet.
    pub(crate) charged_bytes: u64,
    /// Bytes to be moved for each written byte at the moment.
    pub(crate) moved_per_written: f64,
    /// Bytes that are freed for each moved byte, in the next victims.
    pub(crate) freed_per_moved: Option<f64>,
    /// The rate of user writes over the last 10 to 20 seconds.
    pub(crate) written_bytes_per_second: u64,
    /// The time until throttling starts at the current rate, 0 if it has started. Nothing if there are no writes, or if the
    /// headroom is below the watermark but the next zone is available.
    pub(crate) throttle_in_seconds: Option<f64>,
    pub(crate) zones_reclaimed: u64,
    pub(crate) blocks_moved: u64,
    pub(crate) blocks_lost: u64,
}

/// A stream: user writes of a lifetime class, or the blocks that garbage collection has moved (`moved`).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// Bytes of user writes in the stream.
    pub(crate) user_bytes: u64,
    /// Those of them that were placed by learned lifetimes, without a hint.
    pub(crate) learned_bytes: u64,
    /// Bytes moved out of zones of the stream.
    pub(crate) moved_bytes: u64,
    /// Moved and written bytes for each written byte. Nothing if there were no writes.
    pub(crate) amplification: Option<f64>,
    /// Bytes that died in zones of the stream after these were full.
    pub(crate) died_bytes: u64,
    /// Bytes that were predicted to die.
    pub(crate) predicted_bytes: u64,
    /// The prediction error: the difference of the two, summed over the zones, for each byte of the larger one. Nothing
    /// without such bytes.
    pub(crate) prediction_error: Option<f64>,
}

/// The stored data of the volume.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// The largest number of bytes that data can use.
    pub(crate) total_bytes: u64,
    /// Bytes of live blocks.
    pub(crate) live_bytes: u64,
    /// Bytes of dead blocks, without the unwritten space in open zones.
    pub(crate) dead_bytes: u64,
    /// Bytes promised to writers, or written and not yet part of a file.
    pub(crate) pending_bytes: u64,
    /// Bytes of preallocated blocks of files.
    pub(crate) unwritten_bytes: u64,
    /// Bytes that are not available to files: for the log, metadata, garbage collection and the reserve. Nothing if the
    /// daemon is of an earlier release without this field.
    #[serde(default)]
    pub(crate) reserved_bytes: Option<u64>,
    /// Bytes that are available to files when the volume is mounted for writing.
    pub(crate) available_bytes: Option<u64>,
    /// Free zones reserved for metadata and garbage collection now. Nothing if the volume is read-only.
    #[serde(default)]
    pub(crate) free_zones_reserved: Option<u32>,
    /// Those of them that are reserved for metadata only.
    #[serde(default)]
    pub(crate) free_zones_reserved_for_metadata: Option<u32>,
    /// The number of zones of each role, see [`zones::shown_role`], and of zones without a role that cannot be written any
    /// more (`bad`).
    pub(crate) zones_by_role: BTreeMap<String, u32>,
}

/// The cause of bytes of the device's own metadata, in addition to [`Cause`].
const DEVICE_OWN: &str = "zone_states";

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let stats: Stats = match Volume::find(&arguments.path)? {
        Volume::Served(mut client) => client.ask(&Request::Stats)?,
        Volume::Opened(opened) => Stats { mounted: false, ..Stats::of(&opened.fs, true) },
    };
    if arguments.json {
        return line!("{}", serde_json::to_string_pretty(&stats)?);
    }
    let mut table = Table::default();
    stats.show(&mut table);
    table.print()
}

impl Stats {
    pub(crate) fn of(fs: &Fs, read_only: bool) -> Stats {
        Stats {
            mounted: true,
            written: Written::of(fs),
            metadata: Metadata::of(fs),
            stored: Stored::of(fs, read_only),
            streams: Stream::all_of(fs),
            learning: Some(fs.extents().learned().is_learning()),
            gc: (!read_only).then(|| Gc::of(fs)),
        }
    }

    fn show(&self, table: &mut Table) {
        if self.mounted {
            self.written.show(table);
            self.metadata.show(table);
            self.streams.iter().for_each(|(name, stream)| stream.show(name, table));
            if let Some(is_learning) = self.learning {
                let used = if is_learning { "used" } else { "not used (nolearn)" };
                table.line("learning", format_args!("learned lifetimes are {used}"));
            }
        } else {
            table.line("mounted", "no; writes are counted only while the volume is mounted");
        }
        self.stored.show(table);
        if let Some(gc) = &self.gc {
            gc.show(table);
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

    fn show(&self, table: &mut Table) {
        let (headroom, mark) = (bytes::show(self.headroom_bytes), bytes::show(self.low_watermark_bytes));
        table.line("headroom", format_args!("{headroom}, low watermark {mark}"));
        let rate = bytes::show(self.written_bytes_per_second);
        let when = match self.throttle_in_seconds {
            Some(0.0) => "active".to_owned(),
            Some(seconds) => format!("active in {seconds:.0} s at {rate}/s"),
            None if self.headroom_bytes <= self.low_watermark_bytes => {
                "not before the next zone is opened".to_owned()
            }
            None => "inactive, no user writes".to_owned(),
        };
        table.line("throttle", when);
        let debt = self.debt_bytes.map_or("no zone can be reclaimed".to_owned(), |debt| {
            let (debt, charged) = (bytes::show(debt), bytes::show(self.charged_bytes));
            format!("{debt} until one more zone is free, {charged} charged")
        });
        table.line("GC debt", debt);
        let moved = self.moved_per_written;
        let freed =
            self.freed_per_moved.map_or(String::new(), |freed| format!(", {freed:.2} freed per byte moved"));
        table.line("GC rate", format_args!("{moved:.2} moved per byte written{freed}"));
        let (reclaimed, moved, lost) = (self.zones_reclaimed, self.blocks_moved, self.blocks_lost);
        table.line("GC", format_args!("{reclaimed} zones reclaimed, {moved} blocks moved, {lost} lost"));
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

    fn show(&self, table: &mut Table) {
        table.line("user writes", bytes::show(self.user_bytes));
        table.line("device writes", bytes::show(self.device_bytes));
        if let Some(ratio) = self.amplification {
            table.line("amplification", format_args!("{ratio:.2}"));
        }
        for (cause, &count) in &self.device_bytes_by_cause {
            let share = match self.user_bytes {
                0 => String::new(),
                user => format!("  {:.3}", count as f64 / user as f64),
            };
            table.line(&format!("  {cause}"), format_args!("{:<10}{share}", bytes::show(count)));
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

    fn show(&self, name: &str, table: &mut Table) {
        if self.user_bytes == 0 && self.moved_bytes == 0 {
            return;
        }
        let (user, moved) = (bytes::show(self.user_bytes), bytes::show(self.moved_bytes));
        let ratio = self.amplification.map_or(String::new(), |ratio| format!(", {ratio:.2}"));
        let placed = match self.learned_bytes {
            0 => String::new(),
            learned => format!(" ({} by learned lifetimes)", bytes::show(learned)),
        };
        let (died, predicted) = (bytes::show(self.died_bytes), bytes::show(self.predicted_bytes));
        let error =
            self.prediction_error.map_or(String::new(), |error| format!(", prediction error {error:.2}"));
        table.line(
            &format!("  {name}"),
            format_args!(
                "{user} written{placed}, {moved} moved{ratio}; {died} died, {predicted} predicted{error}"
            ),
        );
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

    fn show(&self, table: &mut Table) {
        table.line("commits", format_args!("{} in {} log batches", self.commits, self.log_batches));
        table.line("checkpoints", self.checkpoints);
        let (written, moved, read) = (self.nodes_written, self.nodes_moved, self.nodes_read);
        table.line("nodes", format_args!("{written} written, {moved} moved, {read} read"));
        let (written, moved) = (self.delta_records_written, self.delta_records_moved);
        table.line("delta records", format_args!("{written} written, {moved} moved"));
        table.line("cache", format_args!("{} of {} pages", self.pages_cached, self.pages_cached_max));
    }
}

impl Stored {
    fn of(fs: &Fs, read_only: bool) -> Stored {
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
            zones_by_role: zones_by_role(fs),
        }
    }

    fn show(&self, table: &mut Table) {
        table.line("live", bytes::show(self.live_bytes));
        table.line("dead", bytes::show(self.dead_bytes));
        let (pending, unwritten) = (bytes::show(self.pending_bytes), bytes::show(self.unwritten_bytes));
        table.line("promised", format_args!("{pending} to writers, {unwritten} preallocated"));
        if let Some(reserved) = self.reserved_bytes {
            let purpose = "for the log, metadata, garbage collection and the reserve";
            table.line("reserved", format_args!("{} {purpose}", bytes::show(reserved)));
        }
        if let Some(available) = self.available_bytes {
            table.line("available", bytes::show(available));
        }
        let has_any = |(role, count): &(&String, &u32)| **count > 0 || *role != zones::BAD;
        let zones = self.zones_by_role.iter().filter(has_any);
        let zones: Vec<String> = zones.map(|(role, count)| format!("{count} {role}")).collect();
        table.line("zones", zones.join(", "));
        if let (Some(all), Some(metadata)) = (self.free_zones_reserved, self.free_zones_reserved_for_metadata)
        {
            table.line(
                "zone reserve",
                format_args!(
                    "{all} for metadata and garbage collection, {metadata} of them for metadata only"
                ),
            );
        }
    }
}

fn zones_by_role(fs: &Fs) -> BTreeMap<String, u32> {
    let pool = fs.store().pool();
    let names = ["free", "log", "metadata", "data", "gc", zones::BAD];
    let mut counts: BTreeMap<String, u32> = names.map(|name| (name.to_owned(), 0)).into();
    for zone in (0..pool.count()).map(ZoneId) {
        let name = match (zones::shown_role(pool, zone), pool.usage(zone)) {
            (Role::Free, Usage::Retired) => zones::BAD,
            (role, _) => zones::role_name(role),
        };
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

//! `polder stats`: the writes since the volume was mounted, and the stored data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use extent::StreamTold;
use fs::Fs;
use serde::{Deserialize, Serialize};
use tree::Usage;
use zone::{Cause, Role, ZoneId};

use crate::control::Request;
use crate::output::{Table, line};
use crate::volume::Volume;
use crate::{bytes, zones};

/// Show what was written since a volume was mounted, why, and what it holds.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file or block device, or the directory that it is mounted on.
    path: PathBuf,
    /// Write it as JSON.
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
    pub(crate) collection: Option<Collection>,
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
    pub(crate) deltas_written: u64,
    pub(crate) nodes_cleaned: u64,
    pub(crate) deltas_cleaned: u64,
    pub(crate) nodes_read: u64,
    pub(crate) pages_cached: u64,
    /// The capacity of the cache in pages.
    pub(crate) pages_cached_max: u64,
}

/// The state of garbage collection and throttling.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Collection {
    /// The headroom: bytes of user writes that are possible before a zone must be reclaimed.
    pub(crate) room_bytes: u64,
    /// The low watermark: writers are throttled if the headroom is smaller.
    pub(crate) begin_bytes: u64,
    /// Bytes to be moved until one more zone is reclaimed. Nothing if no zone can be reclaimed.
    pub(crate) debt_bytes: Option<u64>,
    /// The GC debt: bytes that are due to be moved and not moved yet.
    pub(crate) owed_bytes: u64,
    /// Bytes that may be written before a writer moves blocks itself. Nothing if writers are not throttled.
    pub(crate) credit_bytes: Option<u64>,
    /// Bytes to be moved for each written byte at the moment.
    pub(crate) moved_per_written: f64,
    /// Bytes that are reclaimed for each moved byte, in the next victims.
    pub(crate) won_per_moved: Option<f64>,
    /// The rate of user writes over the last 10 to 20 seconds.
    pub(crate) written_bytes_per_second: u64,
    /// The time until throttling starts at the current rate, 0 if it has started. Nothing if there are no writes, or if the
    /// headroom is below the watermark but the next zone is available.
    pub(crate) throttle_in_seconds: Option<f64>,
    pub(crate) zones_emptied: u64,
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
    /// Bytes that were expected to die.
    pub(crate) expected_bytes: u64,
    /// The prediction error: the difference of the two, summed over the zones, for each byte of the larger one. Nothing
    /// without such bytes.
    pub(crate) error: Option<f64>,
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
    /// Bytes reserved by writers, or written and not yet part of a file.
    pub(crate) pending_bytes: u64,
    /// Bytes of preallocated blocks of files.
    pub(crate) unwritten_bytes: u64,
    /// Bytes that are not available to files: for the log, metadata, garbage collection and the reserve. Nothing if the
    /// daemon is of an earlier release without this field.
    #[serde(default)]
    pub(crate) kept_bytes: Option<u64>,
    /// Bytes that are available to files when the volume is mounted for writing.
    pub(crate) available_bytes: Option<u64>,
    /// Free zones reserved for metadata and garbage collection at the moment. Nothing if the volume is read-only.
    #[serde(default)]
    pub(crate) free_zones_kept_from_data: Option<u32>,
    /// Those of them that are reserved for metadata only.
    #[serde(default)]
    pub(crate) free_zones_kept_from_gc: Option<u32>,
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
    table.say()
}

impl Stats {
    pub(crate) fn of(fs: &Fs, read_only: bool) -> Stats {
        Stats {
            mounted: true,
            written: Written::of(fs),
            metadata: Metadata::of(fs),
            stored: Stored::of(fs, read_only),
            streams: Stream::all_of(fs),
            learning: Some(fs.extents().is_learning()),
            collection: (!read_only).then(|| Collection::of(fs)),
        }
    }

    fn show(&self, table: &mut Table) {
        if self.mounted {
            self.written.show(table);
            self.metadata.show(table);
            self.streams.iter().for_each(|(name, stream)| stream.show(name, table));
            if let Some(is_learning) = self.learning {
                table
                    .line("lifetimes", if is_learning { "are learned" } else { "are not learned (nolearn)" });
            }
        } else {
            table.line("mounted", "no, so there is nothing to tell of writing");
        }
        self.stored.show(table);
        if let Some(collection) = &self.collection {
            collection.show(table);
        }
    }
}

impl Collection {
    fn of(fs: &Fs) -> Collection {
        let (pressure, done) = (fs.extents().pressure(), fs.extents().gc_stats());
        let written_bytes_per_second = fs.data_bytes_per_second();
        let throttle_in_seconds = match (pressure.before_begin(), written_bytes_per_second) {
            _ if pressure.credit.is_some() => Some(0.0),
            (0, _) | (_, 0) => None,
            (left, rate) => Some(left as f64 / rate as f64),
        };
        Collection {
            room_bytes: pressure.room,
            begin_bytes: pressure.begin,
            debt_bytes: pressure.debt,
            owed_bytes: pressure.owed,
            credit_bytes: pressure.credit,
            moved_per_written: pressure.moved_per_written,
            won_per_moved: pressure.won_per_moved,
            written_bytes_per_second,
            throttle_in_seconds,
            zones_emptied: done.zones_evacuated,
            blocks_moved: done.blocks_moved,
            blocks_lost: done.blocks_lost,
        }
    }

    fn show(&self, table: &mut Table) {
        let (room, begin) = (bytes::show(self.room_bytes), bytes::show(self.begin_bytes));
        table.line("room", format_args!("{room}; collection begins at {begin}"));
        let rate = bytes::show(self.written_bytes_per_second);
        let when = match self.throttle_in_seconds {
            Some(0.0) => "has begun".to_owned(),
            Some(seconds) => format!("in {seconds:.0} s at {rate} a second"),
            None if self.room_bytes <= self.begin_bytes => "not before the next zone is taken".to_owned(),
            None => "nothing is being written".to_owned(),
        };
        table.line("throttle", when);
        let won = self.won_per_moved.map_or(String::new(), |won| format!(", each byte moved wins {won:.2}"));
        let debt = self.debt_bytes.map_or("no zone can be won".to_owned(), |debt| {
            let (debt, owed) = (bytes::show(debt), bytes::show(self.owed_bytes));
            format!("{debt} until a zone more is free, {owed} owed{won}")
        });
        table.line("debt", debt);
        if let Some(credit) = self.credit_bytes {
            let moved = self.moved_per_written;
            table.line("credit", format_args!("{}, each byte owes {moved:.2}", bytes::show(credit)));
        }
        let (emptied, moved, lost) = (self.zones_emptied, self.blocks_moved, self.blocks_lost);
        table.line("collected", format_args!("{emptied} zones emptied, {moved} blocks moved, {lost} lost"));
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
        table.line("user wrote", bytes::show(self.user_bytes));
        table.line("device wrote", bytes::show(self.device_bytes));
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
        let stream = |counts: &StreamTold| Stream {
            user_bytes: bytes(counts.written as f64),
            learned_bytes: bytes(counts.by_learning as f64),
            moved_bytes: bytes(counts.moved as f64),
            amplification: (counts.written > 0)
                .then(|| (counts.written + counts.moved) as f64 / counts.written as f64),
            died_bytes: bytes(counts.died),
            expected_bytes: bytes(counts.expected),
            error: counts.error(),
        };
        let named = extent::stream_names().into_iter().zip(fs.extents().streams());
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
            learned => format!(" ({} as learned)", bytes::show(learned)),
        };
        let (died, expected) = (bytes::show(self.died_bytes), bytes::show(self.expected_bytes));
        let error = self.error.map_or(String::new(), |error| format!(", error {error:.2}"));
        table.line(
            &format!("  {name}"),
            format_args!(
                "{user} written{placed}, {moved} moved{ratio}; {died} died, {expected} expected{error}"
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
            deltas_written: stats.deltas_written,
            nodes_cleaned: stats.nodes_cleaned,
            deltas_cleaned: stats.deltas_cleaned,
            nodes_read: stats.nodes_read,
            pages_cached: stats.pages_cached,
            pages_cached_max: stats.pages_cached_max,
        }
    }

    fn show(&self, table: &mut Table) {
        table.line("commits", format_args!("{} in {} batches of the log", self.commits, self.log_batches));
        table.line("checkpoints", self.checkpoints);
        let (written, cleaned, read) = (self.nodes_written, self.nodes_cleaned, self.nodes_read);
        table.line("nodes", format_args!("{written} written, {cleaned} cleaned, {read} read"));
        let (written, cleaned) = (self.deltas_written, self.deltas_cleaned);
        table.line("changes", format_args!("{written} of leaves written, {cleaned} cleaned"));
        table.line("cache", format_args!("{} of {} pages", self.pages_cached, self.pages_cached_max));
    }
}

impl Stored {
    fn of(fs: &Fs, read_only: bool) -> Stored {
        let (space, pool) = (fs.extents().space(), fs.store().pool());
        Stored {
            total_bytes: space.total,
            live_bytes: space.live,
            dead_bytes: fs.extents().dead_blocks() * u64::from(space.block_size),
            pending_bytes: space.pending,
            unwritten_bytes: space.unwritten,
            kept_bytes: Some(space.kept),
            available_bytes: Some(space.available),
            free_zones_kept_from_data: (!read_only).then(|| pool.reserved_from(Role::Data)),
            free_zones_kept_from_gc: (!read_only).then(|| pool.reserved_from(Role::Gc)),
            zones_by_role: zones_by_role(fs),
        }
    }

    fn show(&self, table: &mut Table) {
        table.line("live", bytes::show(self.live_bytes));
        table.line("dead", bytes::show(self.dead_bytes));
        let (pending, unwritten) = (bytes::show(self.pending_bytes), bytes::show(self.unwritten_bytes));
        table.line("reserved", format_args!("{pending} by writers, {unwritten} by files"));
        if let Some(kept) = self.kept_bytes {
            let why = "for the log, metadata, garbage collection and the reserve";
            table.line("kept", format_args!("{} {why}", bytes::show(kept)));
        }
        if let Some(available) = self.available_bytes {
            table.line("available", bytes::show(available));
        }
        let has_any = |(role, count): &(&String, &u32)| **count > 0 || *role != zones::BAD;
        let zones = self.zones_by_role.iter().filter(has_any);
        let zones: Vec<String> = zones.map(|(role, count)| format!("{count} {role}")).collect();
        table.line("zones", zones.join(", "));
        if let (Some(data), Some(gc)) = (self.free_zones_kept_from_data, self.free_zones_kept_from_gc) {
            table.line(
                "kept free",
                format_args!("{data} zones from data, {gc} of them from garbage collection"),
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

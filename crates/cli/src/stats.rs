//! `polder stats`: the writes since the volume was mounted, and the stored data.

use std::path::PathBuf;

use anyhow::Result;
use polder::stats::{BAD, Gc, Metadata, Stats, Stored, Stream, Written};

use crate::bytes;
use crate::control::Request;
use crate::output::{Table, line};
use crate::volume::Volume;

/// Show the writes since a volume was mounted, their causes, and the stored data.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL, or the directory that it is mounted on.
    path: PathBuf,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
}

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

/// A part of the statistics in a table.
trait Shown {
    fn show(&self, table: &mut Table);
}

impl Shown for Stats {
    fn show(&self, table: &mut Table) {
        if self.mounted {
            self.written.show(table);
            self.metadata.show(table);
            self.streams.iter().for_each(|(name, stream)| show_stream(stream, name, table));
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

impl Shown for Gc {
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

impl Shown for Written {
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

fn show_stream(stream: &Stream, name: &str, table: &mut Table) {
    if stream.user_bytes == 0 && stream.moved_bytes == 0 {
        return;
    }
    let (user, moved) = (bytes::show(stream.user_bytes), bytes::show(stream.moved_bytes));
    let ratio = stream.amplification.map_or(String::new(), |ratio| format!(", {ratio:.2}"));
    let placed = match stream.learned_bytes {
        0 => String::new(),
        learned => format!(" ({} by learned lifetimes)", bytes::show(learned)),
    };
    let (died, predicted) = (bytes::show(stream.died_bytes), bytes::show(stream.predicted_bytes));
    let error =
        stream.prediction_error.map_or(String::new(), |error| format!(", prediction error {error:.2}"));
    table.line(
        &format!("  {name}"),
        format_args!(
            "{user} written{placed}, {moved} moved{ratio}; {died} died, {predicted} predicted{error}"
        ),
    );
}

impl Shown for Metadata {
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

impl Shown for Stored {
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
        let has_any = |(role, count): &(&String, &u32)| **count > 0 || *role != BAD;
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

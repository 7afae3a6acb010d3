//! `polder gc`: manual garbage collection, until no more zones can be reclaimed.
//!
//! The process that holds the volume performs the work in pieces. Between two pieces this command decides whether to
//! continue. So it can be ended at any time, and the completed work stays.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use fs::Fs;
use rt::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

use crate::control::Request;
use crate::interrupt::Interrupt;
use crate::numbers::whole;
use crate::output::note;
use crate::volume::Volume;
use crate::{output, progress};

/// The number of moves, of at most a mebibyte each, that one request performs.
const MOVES_PER_REQUEST: usize = 8;
const SECOND_NS: u64 = 1_000_000_000;

/// Run manual garbage collection: move live blocks out of partly dead zones, until no more zones can be freed.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL, or the directory that it is mounted on.
    path: PathBuf,
    /// End as soon as N zones are free. It is an error if N zones cannot be free. If that is certain in advance,
    /// nothing is moved.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
    free: Option<u32>,
    /// End after N seconds.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    seconds: Option<u64>,
    /// Write the results as JSON.
    #[arg(long)]
    json: bool,
}

/// The state of garbage collection. Also the answer to the control request `gc`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Garbage {
    /// Whether there may be more work.
    may_continue: bool,
    block_size: u32,
    zone_blocks: u32,
    free_zones: u32,
    /// The largest number of zones that can be free unless something is deleted. Nothing while deletions are pending, and
    /// in answers to requests that perform work.
    #[serde(default)]
    free_zones_max: Option<u32>,
    /// Data zones that could be reclaimed in addition.
    zones_to_reclaim: u32,
    /// Blocks that must be moved to reclaim them.
    blocks_to_move: u64,
    dead_blocks: u64,
    /// Data zones reclaimed since the mount. The next counters also start at the mount.
    zones_reclaimed: u64,
    blocks_moved: u64,
    /// Blocks that could not be read and so are lost.
    blocks_lost: u64,
    /// Metadata pages that were moved.
    pages_moved: u64,
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Summary {
    zones_reclaimed: u64,
    blocks_moved: u64,
    blocks_lost: u64,
    pages_moved: u64,
    free_zones_before: u32,
    free_zones: u32,
    dead_blocks: u64,
}

impl Garbage {
    /// Performs some work if requested, and returns the state.
    pub(crate) fn of(fs: &Fs, work: bool) -> Result<Garbage> {
        let mut may_continue = work;
        for _ in 0..MOVES_PER_REQUEST {
            may_continue = may_continue && fs.collect_garbage()?;
        }
        let (outlook, done) = (fs.extents().collector().outlook_now(), fs.extents().collector().stats());
        let store = fs.store().stats();
        Ok(Garbage {
            may_continue,
            block_size: fs.extents().block_size(),
            zone_blocks: fs.store().device().geometry().zone_blocks,
            free_zones: outlook.free_zones,
            // Computed from all zones, and only useful before the work.
            free_zones_max: if work { None } else { fs.free_zones_max() },
            zones_to_reclaim: outlook.zones_to_reclaim,
            blocks_to_move: outlook.blocks_to_move,
            dead_blocks: fs.extents().dead_blocks(),
            zones_reclaimed: done.zones_reclaimed,
            blocks_moved: done.blocks_moved,
            blocks_lost: done.blocks_lost,
            pages_moved: store.nodes_moved,
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let mut volume = Volume::find_to_change(&arguments.path)?;
    let first = arguments.begin(&mut volume);
    let done =
        first.and_then(|first| Ok((first.clone(), arguments.collect(&mut volume, &first, &interrupt)?)));
    if let Volume::Opened(opened) = &volume {
        opened.close()?;
    }
    let (first, last) = done?;
    arguments.show(&Summary::between(&first, &last))?;
    match arguments.free {
        _ if interrupt.has_arrived() => {
            bail!("interrupted; completed work stays, run the command again to continue")
        }
        Some(wanted) if last.free_zones < wanted && !last.may_continue => {
            bail!(
                "only {} zones are free and no more can be reclaimed; delete something, or ask for fewer",
                last.free_zones
            )
        }
        _ => Ok(()),
    }
}

impl Arguments {
    /// The state before the work. In a volume without a daemon, pending deletions are finished first, because the largest
    /// possible number of free zones is not known before.
    fn begin(&self, volume: &mut Volume) -> Result<Garbage> {
        if let Volume::Opened(opened) = volume
            && self.free.is_some()
        {
            opened.fs.finish_backlog().with_context(|| self.path.display().to_string())?;
        }
        self.ask(volume, false)
    }

    fn ask(&self, volume: &mut Volume, work: bool) -> Result<Garbage> {
        let answer = match volume {
            Volume::Served(client) => client.ask(&Request::Gc { work }),
            Volume::Opened(opened) => Garbage::of(&opened.fs, work),
        };
        answer.with_context(|| self.path.display().to_string())
    }

    fn collect(&self, volume: &mut Volume, first: &Garbage, interrupt: &Interrupt) -> Result<Garbage> {
        self.check_free(first)?;
        let clock = SystemClock::new();
        let until = self.seconds.map(|seconds| seconds.saturating_mul(SECOND_NS));
        let bar = progress::moving(first.blocks_to_move * u64::from(first.block_size));
        // Programs may create garbage as fast as it is collected. The limit ends the command nevertheless.
        let most = 2 * first.blocks_to_move + u64::from(first.zone_blocks);
        let mut now = Garbage { may_continue: true, ..first.clone() };
        let enough = |now: &Garbage| {
            self.free.is_some_and(|wanted| now.free_zones >= wanted)
                || until.is_some_and(|until| clock.monotonic_ns() >= until)
                || now.blocks_moved - first.blocks_moved > most
        };
        while now.may_continue && !interrupt.has_arrived() && !enough(&now) {
            now = self.ask(volume, true)?;
            // The amount of work may grow: as blocks die, more zones become worth collecting.
            let moved = (now.blocks_moved - first.blocks_moved) * u64::from(now.block_size);
            let left = now.blocks_to_move * u64::from(now.block_size);
            bar.set_length(bar.length().unwrap_or(0).max(moved + left));
            bar.set_position(moved);
        }
        bar.finish_and_clear();
        Ok(now)
    }

    /// Fails if the requested number of zones cannot become free.
    fn check_free(&self, now: &Garbage) -> Result<()> {
        match (self.free, now.free_zones_max) {
            (Some(wanted), Some(most)) if wanted > most => bail!(
                "{wanted} zones cannot be free: live data leaves at most {most}; delete something, or ask for fewer"
            ),
            _ => Ok(()),
        }
    }

    fn show(&self, summary: &Summary) -> Result<()> {
        if self.json {
            return output::say(serde_json::to_string_pretty(summary)? + "\n");
        }
        let Summary { zones_reclaimed, blocks_moved, pages_moved, dead_blocks, .. } = summary;
        let mut text = format!("{zones_reclaimed} zones reclaimed, {blocks_moved} blocks moved");
        if *pages_moved > 0 {
            text += &format!(", {pages_moved} pages of metadata moved");
        }
        if summary.blocks_lost > 0 {
            text += &format!(", {} unreadable blocks are lost", summary.blocks_lost);
        }
        let (before, now) = (summary.free_zones_before, summary.free_zones);
        note!("{text}\n{now} free zones, {before} before; {dead_blocks} dead blocks remain")
    }
}

impl Summary {
    fn between(first: &Garbage, last: &Garbage) -> Summary {
        Summary {
            zones_reclaimed: last.zones_reclaimed - first.zones_reclaimed,
            blocks_moved: last.blocks_moved - first.blocks_moved,
            blocks_lost: last.blocks_lost - first.blocks_lost,
            pages_moved: last.pages_moved - first.pages_moved,
            free_zones_before: first.free_zones,
            free_zones: last.free_zones,
            dead_blocks: last.dead_blocks,
        }
    }
}

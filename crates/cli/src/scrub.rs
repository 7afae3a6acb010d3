//! `polder scrub`: reads and verifies all live data and metadata of a volume, mounted or not.
//!
//! The process that holds the volume reads a piece per request and keeps no state between two requests. The command says
//! where the next piece begins and how large it is, and waits as the rate demands. So a scrub ends with the command.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use extent::DataScrub;
use fs::{DamagedCopies, Fs, InodeNo, ScrubAt};
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use tree::NodeScrub;

use crate::check::{ReportedFinding, exit_status, show_count};
use crate::control::Request;
use crate::name::AnyPath;
use crate::output::{line, note};
use crate::volume::Volume;
use crate::{bytes, progress};

/// Bytes of a piece: large enough that the request costs little, small enough that other users of the volume hardly wait.
const PIECE: u64 = 4 << 20;
const PIECE_MIN: u64 = 64 << 10;
/// The smallest number of pieces per second if there is a rate.
const PIECES_A_SECOND: u64 = 8;
const SECOND_NS: u64 = 1_000_000_000;

/// Read and verify all live data and metadata of a volume, mounted or not.
///
/// If the volume has several copies, all of them are read. On a volume that is mounted for writing, a damaged copy of data
/// is repaired if another one is intact.
///
/// The exit status is 0 if there are no findings, 4 if there are findings, 8 if the volume could not be read.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL, or the directory that it is mounted on.
    path: PathBuf,
    /// The largest number of bytes to read per second.
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    rate: Option<u64>,
    /// Write the findings as JSON.
    #[arg(long)]
    json: bool,
}

fn rate(text: &str) -> Result<u64, String> {
    bytes::parse(text).and_then(|rate| match rate {
        0 => Err("a rate of 0 would never end; omit --rate to read as fast as possible".to_owned()),
        1..PIECE_MIN => Err(format!(
            "{rate} bytes per second are too few; write at least {}K, or a number with a unit, like 10M",
            PIECE_MIN >> 10
        )),
        PIECE_MIN.. => Ok(rate),
    })
}

/// The beginning of a piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    Metadata { begun: bool, chunk: u64, index: u64 },
    Data { group: u16, object: u64, block: u64 },
    End,
}

/// The answer to the control request `scrub`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Piece {
    next: Place,
    bytes: u64,
    /// The approximate number of bytes of the whole scrub.
    total: u64,
    findings: Vec<ReportedFinding>,
    /// Damaged copies that were repaired.
    #[serde(default)]
    repaired: Vec<ReportedFinding>,
}

/// The result of a scrub.
#[derive(Default, Serialize)]
pub(crate) struct Found {
    clean: bool,
    bytes: u64,
    pub(crate) findings: Vec<ReportedFinding>,
    /// Damaged copies that were repaired.
    repaired: Vec<ReportedFinding>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    exit_status(scrub(arguments))
}

/// Returns true if there are no findings.
fn scrub(arguments: &Arguments) -> Result<bool> {
    let mut volume = Volume::find(&arguments.path)?;
    let found = all(&mut volume, Place::start(), arguments.rate, DamagedCopies::Repair)?;
    if arguments.json {
        line!("{}", serde_json::to_string_pretty(&found)?)?;
        return Ok(found.clean);
    }
    let path = arguments.path.display();
    found.repaired.iter().try_for_each(|finding| finding.show_repaired(&path))?;
    found.findings.iter().try_for_each(|finding| finding.show(&arguments.path))?;
    note!("{path}: {} bytes verified", found.bytes)?;
    show_count(&path, found.findings.len())?;
    Ok(found.clean)
}

/// Reads from a place to the end, in this process or through the daemon that holds the volume.
pub(crate) fn all(
    volume: &mut Volume,
    from: Place,
    rate: Option<u64>,
    copies: DamagedCopies,
) -> Result<Found> {
    let mut pace = Pace::new(Arc::new(SystemClock::new()), rate);
    let bar = progress::moving(0);
    let mut copies = copies;
    let found = found(from, |at| {
        let is_data = matches!(at, Place::Data { .. });
        let piece: Piece = match volume {
            Volume::Served(client) => {
                let repair = copies == DamagedCopies::Repair;
                client.ask(&Request::Scrub { at, bytes: pace.piece, repair })?
            }
            Volume::Opened(opened) => {
                let piece = piece(&opened.fs, &at, pace.piece, copies);
                piece.with_context(|| opened.path.display().to_string())?
            }
        };
        bar.set_length(piece.total.max(bar.position() + piece.bytes));
        bar.inc(piece.bytes);
        // A member that fails again and again would have everything written anew.
        if is_data && piece.findings.iter().any(ReportedFinding::is_of_copy) {
            copies = DamagedCopies::Report;
        }
        pace.wait(piece.bytes);
        Ok(piece)
    });
    bar.finish_and_clear();
    let mut found = found?;
    let inodes: BTreeSet<u64> = found.files().map(|file| file.inode).collect();
    if !inodes.is_empty() {
        let paths: BTreeMap<u64, AnyPath> = match volume {
            Volume::Served(client) => client.ask(&Request::Paths { inodes })?,
            Volume::Opened(opened) => paths(&opened.fs, &inodes)?,
        };
        found.name(&paths);
    }
    Ok(found)
}

/// The same in the process that holds the volume, without a rate.
pub(crate) fn all_of(fs: &Fs, from: Place) -> Result<Found> {
    let mut found = found(from, |at| piece(fs, &at, PIECE, DamagedCopies::Report))?;
    let inodes: BTreeSet<u64> = found.files().map(|file| file.inode).collect();
    if !inodes.is_empty() {
        found.name(&paths(fs, &inodes)?);
    }
    Ok(found)
}

fn found(from: Place, mut next: impl FnMut(Place) -> Result<Piece>) -> Result<Found> {
    let (mut found, mut at) = (Found::default(), from);
    while at != Place::End {
        let piece = next(at)?;
        found.bytes += piece.bytes;
        found.findings.extend(piece.findings);
        found.repaired.extend(piece.repaired);
        at = piece.next;
    }
    found.clean = found.findings.is_empty();
    Ok(found)
}

/// Reads one piece.
pub(crate) fn piece(fs: &Fs, at: &Place, bytes: u64, copies: DamagedCopies) -> Result<Piece> {
    let scrubbed = fs.scrub_step(at.decode(), bytes, copies)?;
    let (metadata, data) = fs.scrub_bytes();
    // The device's own metadata is read with the first piece.
    let of_device = if *at == Place::start() { ReportedFinding::of_device(fs) } else { Vec::new() };
    let findings = scrubbed.findings.into_iter();
    let (repaired, left): (Vec<_>, Vec<_>) = scrubbed.damaged_copies.iter().partition(|copy| copy.repaired);
    Ok(Piece {
        next: Place::encode(scrubbed.next),
        bytes: scrubbed.bytes,
        total: metadata + data,
        findings: of_device
            .into_iter()
            .chain(findings.map(|(finding, of)| ReportedFinding::new(&finding, of)))
            .chain(left.into_iter().map(ReportedFinding::of_damaged_copy))
            .collect(),
        repaired: repaired.into_iter().map(ReportedFinding::of_damaged_copy).collect(),
    })
}

/// The answer to the control request `paths`: a name of each inode that has one.
pub(crate) fn paths(fs: &Fs, inodes: &BTreeSet<u64>) -> Result<BTreeMap<u64, AnyPath>> {
    let paths = fs.paths_of(&inodes.iter().copied().map(InodeNo).collect())?;
    Ok(paths.into_iter().map(|(inode, path)| (inode.0, path.into())).collect())
}

impl Found {
    fn files(&mut self) -> impl Iterator<Item = &mut crate::check::ReportedFile> {
        self.findings.iter_mut().flat_map(|finding| &mut finding.files)
    }

    fn name(&mut self, paths: &BTreeMap<u64, AnyPath>) {
        self.files().for_each(|file| file.path = paths.get(&file.inode).cloned());
    }
}

impl Place {
    fn start() -> Place {
        Place::encode(ScrubAt::start())
    }

    /// The beginning of the contents of files.
    pub(crate) fn data() -> Place {
        Place::encode(ScrubAt::data())
    }

    fn encode(at: ScrubAt) -> Place {
        match at {
            ScrubAt::Metadata(NodeScrub { begun, chunk, index }) => Place::Metadata { begun, chunk, index },
            ScrubAt::Data(DataScrub { group, object, block }) => Place::Data { group, object, block },
            ScrubAt::End => Place::End,
        }
    }

    fn decode(&self) -> ScrubAt {
        match *self {
            Place::Metadata { begun, chunk, index } => ScrubAt::Metadata(NodeScrub { begun, chunk, index }),
            Place::Data { group, object, block } => ScrubAt::Data(DataScrub { group, object, block }),
            Place::End => ScrubAt::End,
        }
    }
}

/// Limits the rate of reading.
struct Pace {
    clock: Arc<dyn Clock>,
    began_ns: u64,
    rate: Option<u64>,
    /// Bytes per request.
    piece: u64,
    read: u64,
}

impl Pace {
    fn new(clock: Arc<dyn Clock>, rate: Option<u64>) -> Self {
        let piece = rate.map_or(PIECE, |rate| (rate / PIECES_A_SECOND).clamp(PIECE_MIN, PIECE));
        Pace { began_ns: clock.monotonic_ns(), clock, rate, piece, read: 0 }
    }

    /// Counts bytes as read, and waits as long as the rate demands.
    fn wait(&mut self, bytes: u64) {
        let left = self.left(bytes);
        if !left.is_zero() {
            Stop::default().wait(left);
        }
    }

    /// Counts bytes as read. Returns the time that remains until the rate permits them.
    fn left(&mut self, bytes: u64) -> Duration {
        self.read += bytes;
        let Some(rate) = self.rate else { return Duration::ZERO };
        let due_ns = u128::from(self.read) * u128::from(SECOND_NS) / u128::from(rate);
        let passed_ns = u128::from(self.clock.monotonic_ns() - self.began_ns);
        let left_ns = u64::try_from(due_ns.saturating_sub(passed_ns));
        Duration::from_nanos(left_ns.unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;

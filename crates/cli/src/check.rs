//! `polder check`: verifies a volume.
//!
//! A volume that is mounted for writing changes during the check. So facts that depend on several rows cannot be verified,
//! and the report says so.
//!
//! The exit status is that of `fsck`: 0 clean, 4 something is wrong, 8 could not be checked.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use fs::{AffectedFile, Checked, DamagedCopies, DamagedCopy, Finding, Fs};
use serde::{Deserialize, Serialize};
use zone::MetadataCopy;
use zone::file::{FileError, RestoredHeader};

use crate::control::Request;
use crate::misuse::MISUSED;
use crate::name::AnyPath;
use crate::output::{line, note};
use crate::scrub::{self, Place};
use crate::volume::{LastMount, Opened, Volume};
use crate::{complain, misuse, progress, volume};

/// The largest number of repairs of a volume.
const REPAIRS_MAX: usize = 16;
/// The kind of findings that are known from the tables alone.
const LOST: &str = "lost";
/// The kind of findings about a damaged copy of which another copy is intact.
const COPY: &str = "copy";

const FOUND: u8 = 4;
const NOT_CHECKED: u8 = 8;

/// Facts that cannot be verified while the volume changes.
const NOT_WHILE_WRITTEN: [&str; 3] = [
    "counts of live blocks, blocks that are used twice",
    "names and inodes: links, types, orphans, sizes",
    "unreachable nodes and addresses",
];
/// The reasons and the advice if a repair is impossible, and if it is incomplete.
const METADATA_UNREADABLE: &str = "because metadata cannot be read; `polder cp -r` copies readable files, `polder salvage` \
                                   may find more";
const NOT_KNOWN: &str = "because the right value is not known; `polder cp -r` copies readable files, `polder salvage` \
                         may find more";
/// A slow part of the check that was not requested.
const NOT_WITHOUT_DATA: &str = "the contents of files (--data)";

/// Verify a volume. Changes nothing without --repair.
///
/// The exit status is 0 if the volume is clean, 4 if there are findings, 8 if it could not be checked.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL, or the directory that it is mounted on.
    path: PathBuf,
    /// Also read and verify the contents of all files.
    #[arg(long)]
    data: bool,
    /// Repair values that follow from other values, and give names to files that have lost theirs. The volume must not
    /// be mounted.
    #[arg(long)]
    repair: bool,
    /// If the newest part of the log is lost, continue without it. Acknowledged transactions in it are lost for good.
    #[arg(long, requires = "repair")]
    accept_loss: bool,
    /// Write the header even over another file system or a partition table, which is then lost.
    #[arg(long, requires = "repair")]
    force: bool,
    /// Write the findings as JSON.
    #[arg(long)]
    json: bool,
}

/// The result of a check. Also the answer to the control request `check`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) clean: bool,
    pub(crate) findings: Vec<ReportedFinding>,
    /// Parts that were not verified.
    pub(crate) not_checked: Vec<String>,
    /// The state in which the last mount left the volume. An unclean volume is not damaged.
    #[serde(default)]
    pub(crate) last_mount: Option<LastMount>,
    /// Findings that were repaired before this check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) repaired: Vec<ReportedFinding>,
    /// Why the other findings were not repaired, and what helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_repaired: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReportedFinding {
    /// The damaged part: `device`, `store`, `extents` or `names`.
    part: String,
    /// The kind of damage.
    kind: String,
    description: String,
    /// The affected files.
    pub(crate) files: Vec<ReportedFile>,
}

/// A file that a finding affects, and the affected bytes if they are not the whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedFile {
    pub(crate) inode: u64,
    /// The path from the root of the volume. Null if no name leads to the file.
    pub(crate) path: Option<AnyPath>,
    start: Option<u64>,
    end: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    exit_status(check(arguments))
}

/// The exit status of a command that verifies a volume. `true` means clean.
pub(crate) fn exit_status(verified: Result<bool>) -> ExitCode {
    match verified {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(error) => {
            complain(&error);
            misuse::exit_status(&error, MISUSED, NOT_CHECKED)
        }
    }
}

/// Returns true if the volume is clean.
fn check(arguments: &Arguments) -> Result<bool> {
    let over = if arguments.force { Over::Anything } else { Over::Unknown };
    let repaired = match arguments.repair {
        true => repair(&arguments.path, over, arguments.accept_loss)?,
        false => Vec::new(),
    };
    let mut volume = Volume::find(&arguments.path)?;
    let is_mounted = matches!(volume, Volume::Served(_));
    let mut report: Report = match &mut volume {
        Volume::Served(client) => {
            // A single request and a single answer, so the progress is not known.
            let waiting = progress::waiting("checking");
            let answer = client.ask(&Request::Check { data: false });
            waiting.finish_and_clear();
            answer?
        }
        Volume::Opened(opened) => verify(opened).with_context(|| opened.path.display().to_string())?,
    };
    if arguments.repair {
        report.add_repaired(repaired);
    }
    if arguments.data {
        report.add_data(scrub::all(&mut volume, Place::data(), None, DamagedCopies::Report)?.findings);
    }
    if arguments.json {
        line!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        if let Some(unclean) = report.last_mount.and_then(|last| last.warning(is_mounted)) {
            line!("{}: {unclean}", arguments.path.display())?;
        }
        report.show(&arguments.path)?;
    }
    Ok(report.clean)
}

/// Verifies a volume that this process has open, and shows the progress.
pub(crate) fn verify(opened: &Opened) -> Result<Report> {
    let mut kinds = progress::Kinds::default();
    let report = Report::with_progress(&opened.fs, false, &mut |Checked { part, done, of }| {
        kinds.at(part.name(), done, of)
    })?;
    Ok(Report { last_mount: Some(LastMount::of(&opened.recovery)), ..report })
}

/// The data that a repair may overwrite when it restores a header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Only damaged copies, which a mount for writing overwrites too.
    Damage,
    /// Data without the signature of another program.
    Unknown,
    /// Any data. The user has requested this with `--force`.
    Anything,
}

/// Repairs until no more findings can be repaired, because one repair may reveal further findings. Returns the repaired
/// findings. With `accept_loss` the lost part of the log is discarded.
pub(crate) fn repair(named: &Path, over: Over, accept_loss: bool) -> Result<Vec<ReportedFinding>> {
    match Volume::find(named) {
        Ok(Volume::Served(_)) => {
            bail!("{}: is mounted; unmount it before the repair", named.display())
        }
        Err(error) if over == Over::Damage || !may_be_headerless(&error) => return Err(error),
        Ok(Volume::Opened(_)) | Err(_) => {}
    }
    let path = volume::resolve(named)?;
    let restored = match over {
        Over::Damage => None,
        Over::Unknown | Over::Anything => volume::restore_header(&path, over == Over::Anything)?,
    };
    let mut all: Vec<ReportedFinding> = restored.iter().flat_map(ReportedFinding::restored).collect();
    if accept_loss {
        all.extend(volume::accept_loss(&path)?.map(ReportedFinding::discarded));
    }
    let waiting = progress::waiting("repairing");
    for _ in 0..REPAIRS_MAX {
        let (repaired, copies) = volume::repair_once(&path)?;
        all.extend(copies.iter().filter_map(ReportedFinding::of_copy));
        if repaired.is_empty() {
            break;
        }
        all.extend(repaired.iter().map(|finding| ReportedFinding::new(finding, [])));
    }
    waiting.finish_and_clear();
    Ok(all)
}

/// Whether a volume could not be opened because no header was found.
pub(crate) fn may_be_headerless(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(FileError::Damaged { .. } | FileError::Foreign { .. }))
}

impl Report {
    /// Checks everything. The volume must not change meanwhile.
    pub(crate) fn of(fs: &Fs, data: bool) -> Result<Report> {
        Report::with_progress(fs, data, &mut |_| ())
    }

    /// The same, and reports the progress.
    fn with_progress(fs: &Fs, data: bool, progress: &mut dyn FnMut(Checked)) -> Result<Report> {
        let found = fs.check_with_progress(progress).and_then(|mut found| {
            found.extend(fs.check_lost()?);
            Ok(found)
        });
        match found {
            Ok(found) => Report::new(fs, found, Vec::new())?.with_data(fs, data),
            Err(error) => Report::of_metadata(fs, &error.into()),
        }
    }

    /// Checks only the trees, if they are too damaged to verify their contents.
    fn of_metadata(fs: &Fs, why: &Error) -> Result<Report> {
        let found = fs.check_store()?;
        if found.is_empty() {
            bail!("{why:#}");
        }
        Report::new(fs, found, vec!["data and names (metadata is damaged)".to_owned()])
    }

    /// Checks as much as possible while the volume changes.
    pub(crate) fn of_used(fs: &Fs, data: bool) -> Result<Report> {
        let mut found = fs.check_readable()?.findings;
        match fs.check_lost() {
            Ok(lost) => found.extend(lost),
            Err(error) if found.is_empty() => return Err(error.into()),
            Err(_) => {}
        }
        let not_checked = NOT_WHILE_WRITTEN.into_iter().chain([NOT_WITHOUT_DATA]);
        Report::new(fs, found, not_checked.map(str::to_owned).collect())?.with_data(fs, data)
    }

    fn new(fs: &Fs, found: Vec<Finding>, not_checked: Vec<String>) -> Result<Report> {
        let affected = fs.affected_files(&found)?;
        let reported = |(finding, files)| ReportedFinding::new(&finding, files);
        let of_device = ReportedFinding::of_device(fs);
        let of_log = fs.lost_log().map(ReportedFinding::of_log);
        let of_contents = found.into_iter().zip(affected).map(reported);
        let findings: Vec<_> = of_device.into_iter().chain(of_log).chain(of_contents).collect();
        let clean = findings.is_empty();
        let (repaired, not_repaired) = (Vec::new(), None);
        Ok(Report { clean, findings, not_checked, last_mount: None, repaired, not_repaired })
    }

    fn with_data(mut self, fs: &Fs, data: bool) -> Result<Report> {
        if data {
            self.add_data(scrub::all_of(fs, Place::data())?.findings);
        }
        Ok(self)
    }

    /// Adds the repaired findings, and advice about the other findings. A repair cannot restore lost blocks, so they get no
    /// advice.
    pub(crate) fn add_repaired(&mut self, repaired: Vec<ReportedFinding>) {
        self.repaired = repaired;
        let remains = |is: fn(&ReportedFinding) -> bool| self.findings.iter().any(is);
        let reason = match () {
            () if remains(|finding| finding.part == "store") => Some(METADATA_UNREADABLE),
            () if remains(|finding| finding.kind != LOST) => Some(NOT_KNOWN),
            () => None,
        };
        self.not_repaired = reason.map(str::to_owned);
    }

    /// Adds the findings from reading all data, except lost blocks, which are reported already.
    fn add_data(&mut self, found: Vec<ReportedFinding>) {
        self.findings.extend(found.into_iter().filter(|finding| finding.kind != LOST));
        self.not_checked.retain(|part| part != NOT_WITHOUT_DATA);
        self.clean = self.findings.is_empty();
    }

    pub(crate) fn show(&self, path: &Path) -> Result<()> {
        self.repaired.iter().try_for_each(|finding| finding.show_repaired(&path.display()))?;
        self.findings.iter().try_for_each(|finding| finding.show(path))?;
        let path = path.display();
        for part in &self.not_checked {
            line!("{path}: not checked: {part}")?;
        }
        if let Some(reason) = &self.not_repaired {
            line!("{path}: not repaired {reason}")?;
        }
        show_count(&path, self.findings.len())
    }
}

/// Prints the last line.
pub(crate) fn show_count(path: &std::path::Display<'_>, findings: usize) -> Result<()> {
    match findings {
        0 => note!("{path}: clean"),
        1 => line!("{path}: 1 finding"),
        count => line!("{path}: {count} findings"),
    }
}

impl ReportedFinding {
    pub(crate) fn new(finding: &Finding, files: impl IntoIterator<Item = AffectedFile>) -> Self {
        ReportedFinding {
            part: finding.part().to_owned(),
            kind: finding.kind().to_owned(),
            description: finding.what(),
            files: files.into_iter().map(ReportedFile::new).collect(),
        }
    }

    /// The findings in the copies of the device's own metadata.
    pub(crate) fn of_device(fs: &Fs) -> Vec<ReportedFinding> {
        fs.store().device().verify_device_metadata().iter().filter_map(ReportedFinding::of_copy).collect()
    }

    fn of_copy(copy: &MetadataCopy) -> Option<ReportedFinding> {
        let kind = if copy.record.is_header() { "header" } else { "zone-table" };
        Some(ReportedFinding {
            part: "device".to_owned(),
            kind: kind.to_owned(),
            description: copy.damage()?,
            files: Vec::new(),
        })
    }

    pub(crate) fn is_of_copy(&self) -> bool {
        self.kind == COPY
    }

    /// A damaged copy of something of which another copy is intact.
    pub(crate) fn of_damaged_copy(copy: &DamagedCopy) -> ReportedFinding {
        let advice = if copy.repaired { "" } else { "; another copy is intact" };
        ReportedFinding {
            part: "device".to_owned(),
            kind: COPY.to_owned(),
            description: format!("{}{advice}", copy.what),
            files: Vec::new(),
        }
    }

    /// The finding for a lost part of the log.
    fn of_log(lost: &str) -> ReportedFinding {
        let [part, kind] = ["store", "log"].map(str::to_owned);
        ReportedFinding { part, kind, description: lost.to_owned(), files: Vec::new() }
    }

    /// The same, if it was discarded.
    fn discarded(lost: String) -> ReportedFinding {
        Self::of_log(&format!("{lost}; it was discarded"))
    }

    fn restored(restored: &RestoredHeader) -> Vec<ReportedFinding> {
        let reconstructed = restored.zones.map(|zones| ReportedFinding {
            part: "device".to_owned(),
            kind: "header".to_owned(),
            description: format!(
                "no copy of the header of the volume {} was left; it was reconstructed from the headers of {zones} zones",
                restored.fs_id
            ),
            files: Vec::new(),
        });
        let overwritten = restored.overwritten.map(|contents| ReportedFinding {
            part: "device".to_owned(),
            kind: "overwritten".to_owned(),
            description: format!("the header of the volume {} was written over {contents}", restored.fs_id),
            files: Vec::new(),
        });
        reconstructed
            .into_iter()
            .chain(overwritten)
            .chain(restored.repaired.iter().filter_map(ReportedFinding::of_copy))
            .collect()
    }

    /// Prints a line for a finding that was repaired.
    pub(crate) fn show_repaired(&self, path: &std::path::Display<'_>) -> Result<()> {
        line!("{path}: repaired: {}: {}", self.part, self.description)?;
        Ok(())
    }

    /// Prints a line for the finding and one for each file.
    pub(crate) fn show(&self, path: &Path) -> Result<()> {
        let path = path.display();
        line!("{path}: {}: {}", self.part, self.description)?;
        for file in &self.files {
            line!("{path}: affects {}", file.shown())?;
        }
        Ok(())
    }
}

impl ReportedFile {
    fn new(affected: AffectedFile) -> Self {
        let bytes = affected.bytes;
        ReportedFile {
            inode: affected.inode.0,
            path: affected.path.map(AnyPath::from),
            start: bytes.as_ref().map(|bytes| bytes.start),
            end: bytes.as_ref().map(|bytes| bytes.end),
        }
    }

    fn shown(&self) -> String {
        let named = match &self.path {
            Some(path) => path.to_string(),
            None => format!("inode {}, which has no name", self.inode),
        };
        match (self.start, self.end) {
            (Some(start), Some(u64::MAX)) => format!("{named}, from byte {start} on"),
            (Some(start), Some(end)) => format!("{named}, bytes {start} to {end}"),
            _ => named,
        }
    }
}

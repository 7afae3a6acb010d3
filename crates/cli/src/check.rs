//! `polder check`: verifies a volume.
//!
//! One that is mounted for writing changes while it is looked at, so what depends on several rows at once cannot
//! be verified; the report says so.
//!
//! The exit status is that of `fsck`: 0 clean, 4 something is wrong, 8 could not be checked.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use fs::{Finding, Fs};
use serde::{Deserialize, Serialize};

use crate::control::Request;
use crate::volume::Volume;
use crate::{complain, progress};

const FOUND: u8 = 4;
const NOT_CHECKED: u8 = 8;

/// What nobody can tell of a volume that changes meanwhile.
const NOT_WHILE_WRITTEN: [&str; 3] = [
    "counts of live blocks, and whether blocks are used twice",
    "names against inodes: links, kinds, orphans, sizes against data",
    "nodes and addresses that nothing leads to",
];
/// What takes long and was not asked for.
const NOT_WITHOUT_DATA: &str = "the contents of files (--data)";

/// Verify a volume; changes nothing.
///
/// The exit status is 0 when it is clean, 4 when something is wrong, 8 when it could not be checked.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file or block device, or the directory that it is mounted on.
    path: PathBuf,
    /// Reads and verifies the contents of all files too.
    #[arg(long)]
    data: bool,
    /// Write what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// What was found; also the answer to the control request `check`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) clean: bool,
    pub(crate) findings: Vec<ReportedFinding>,
    /// What was not verified.
    pub(crate) not_checked: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReportedFinding {
    /// Where: `store`, `extents` or `names`.
    part: String,
    what: String,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match check(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(error) => {
            complain(&error);
            ExitCode::from(NOT_CHECKED)
        }
    }
}

/// True when the volume is clean.
fn check(arguments: &Arguments) -> Result<bool> {
    let waiting = progress::waiting("checking");
    let report: Report = match Volume::find(&arguments.path)? {
        Volume::Served(mut client) => client.ask(&Request::Check { data: arguments.data })?,
        Volume::Opened(opened) => {
            Report::of(&opened.fs, arguments.data).with_context(|| opened.path.display().to_string())?
        }
    };
    waiting.finish_and_clear();
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.show(&arguments.path);
    }
    Ok(report.clean)
}

impl Report {
    /// Of everything there is; nobody may change the volume meanwhile.
    pub(crate) fn of(fs: &Fs, data: bool) -> Result<Report> {
        let found = match fs.check() {
            Ok(found) => found,
            Err(error) => return Report::of_metadata(fs, &error.into()),
        };
        let mut findings: Vec<_> = found.into_iter().map(reported).collect();
        if data {
            let found = fs.check_readable(true)?.findings;
            findings
                .extend(found.into_iter().map(|what| ReportedFinding { part: "extents".to_owned(), what }));
        }
        Ok(Report::new(findings, Vec::new()))
    }

    /// Of the trees alone, when they are too damaged for what is in them to be verified.
    fn of_metadata(fs: &Fs, why: &Error) -> Result<Report> {
        let found = fs.store().check(&mut |_, _, _, _| ())?;
        if found.is_empty() {
            bail!("{why:#}");
        }
        let findings = found.into_iter().map(|finding| reported(Finding::Store(finding.what))).collect();
        Ok(Report::new(findings, vec!["data and names, because metadata is damaged".to_owned()]))
    }

    /// Of what can be told while others change it.
    pub(crate) fn of_used(fs: &Fs, data: bool) -> Result<Report> {
        let found = fs.check_readable(data)?.findings;
        let finding = |what| ReportedFinding { part: "store".to_owned(), what };
        let not_checked = NOT_WHILE_WRITTEN.iter().copied().chain((!data).then_some(NOT_WITHOUT_DATA));
        Ok(Report::new(found.into_iter().map(finding).collect(), not_checked.map(str::to_owned).collect()))
    }

    fn new(findings: Vec<ReportedFinding>, not_checked: Vec<String>) -> Report {
        Report { clean: findings.is_empty(), findings, not_checked }
    }

    pub(crate) fn show(&self, path: &Path) {
        let path = path.display();
        for finding in &self.findings {
            println!("{path}: {}: {}", finding.part, finding.what);
        }
        for what in &self.not_checked {
            println!("{path}: not checked: {what}");
        }
        match self.findings.len() {
            0 => println!("{path}: clean"),
            1 => println!("{path}: 1 finding"),
            count => println!("{path}: {count} findings"),
        }
    }
}

fn reported(finding: Finding) -> ReportedFinding {
    let (part, what) = match finding {
        Finding::Store(what) => ("store", what),
        Finding::Extents(what) => ("extents", what),
        Finding::Names(what) => ("names", what.to_string()),
    };
    ReportedFinding { part: part.to_owned(), what }
}

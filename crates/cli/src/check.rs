//! `polder check`: verifies a volume that is not mounted.
//!
//! The exit status is that of `fsck`: 0 clean, 4 something is wrong, 8 could not be checked.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use fs::Finding;
use serde::Serialize;

use crate::volume::Opened;
use crate::{complain, volume};

const FOUND: u8 = 4;
const NOT_CHECKED: u8 = 8;

/// Verify a volume that is not mounted; changes nothing.
///
/// The exit status is 0 when it is clean, 4 when something is wrong, 8 when it could not be checked.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file or block device.
    path: PathBuf,
    /// Write what was found as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) clean: bool,
    findings: Vec<ReportedFinding>,
}

#[derive(Serialize)]
struct ReportedFinding {
    /// Where: `store`, `extents` or `names`.
    part: &'static str,
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
    let opened = volume::open_to_look(&volume::resolve(&arguments.path)?)?;
    let report = Report::of(&opened)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        show(&arguments.path, &report);
    }
    Ok(report.clean)
}

impl Report {
    /// Of everything there is on a volume that nobody has mounted.
    pub(crate) fn of(opened: &Opened) -> Result<Report> {
        let found = opened.fs.check().with_context(|| opened.path.display().to_string())?;
        let findings: Vec<_> = found.into_iter().map(reported).collect();
        Ok(Report { clean: findings.is_empty(), findings })
    }
}

pub(crate) fn show(path: &Path, report: &Report) {
    let path = path.display();
    for finding in &report.findings {
        println!("{path}: {}: {}", finding.part, finding.what);
    }
    match report.findings.len() {
        0 => println!("{path}: clean"),
        1 => println!("{path}: 1 finding"),
        count => println!("{path}: {count} findings"),
    }
}

fn reported(finding: Finding) -> ReportedFinding {
    let (part, what) = match finding {
        Finding::Store(what) => ("store", what),
        Finding::Extents(what) => ("extents", what),
        Finding::Names(what) => ("names", what.to_string()),
    };
    ReportedFinding { part, what }
}

//! `fsck.polder`: verifies volumes with the interface of `fsck`.
//!
//! After a crash, verification replays the log in memory, and a mount replays it for good. So the only correction that needs
//! no consent is to close an unclean volume, and only if it is sound. With `-y` a damaged volume is repaired like by
//! `polder check --repair`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use zone::file::FileError;

use crate::check::{self, Over};
use crate::output::{line, note};
use crate::{complain, explain, volume};

/// The bits of `fsck`'s exit status.
const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const NOT_CHECKED: u8 = 8;
const MISUSED: u8 = 16;

/// Verify volumes of Polder; called by fsck(8).
///
/// The exit status is the sum of 1 if a volume was repaired (it had not been closed, or with -y was damaged), 4 if
/// there are findings, 8 if a volume could not be checked.
#[derive(Parser)]
#[command(name = "fsck.polder", version)]
struct Arguments {
    /// The volumes' files or block devices.
    #[arg(required = true)]
    volumes: Vec<PathBuf>,
    /// Only close volumes that were not closed.
    #[arg(short = 'a')]
    automatic: bool,
    /// The same as `-a`.
    #[arg(short = 'p')]
    preen: bool,
    /// Verify and change nothing.
    #[arg(short = 'n', conflicts_with_all = ["automatic", "preen", "yes"])]
    dry: bool,
    /// Verify, repair as much as possible, and close volumes that were not closed.
    #[arg(short = 'y')]
    yes: bool,
    /// Verify even with `-a` or `-p`.
    #[arg(short = 'f')]
    force: bool,
    /// Accepted without effect: no change needs consent.
    #[arg(short = 'r')]
    interactive: bool,
    /// Accepted without effect.
    #[arg(short = 'v')]
    verbose: bool,
}

/// The command line, for its manual page.
pub(crate) fn command() -> clap::Command {
    Arguments::command()
}

pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            explain::<Arguments>(&error);
            return ExitCode::from(MISUSED);
        }
    };
    let each = arguments.volumes.iter().map(|volume| match arguments.verify(volume) {
        Ok(status) => status,
        Err(error) => {
            complain(&error);
            NOT_CHECKED
        }
    });
    ExitCode::from(each.fold(0, |all, status| all | status))
}

impl Arguments {
    fn verify(&self, named: &Path) -> Result<u8> {
        let path = volume::resolve(named)?;
        let opened = match volume::open_read_only(&path) {
            Err(error) if self.yes && is_headerless(&error) => return repair(named, &path, Over::Unknown),
            opened => opened?,
        };
        let was_closed = opened.recovery.clean;
        if self.force || !(self.automatic || self.preen) {
            let report = check::verify(&opened).with_context(|| named.display().to_string())?;
            // If the volume is closed below, that message says so.
            if let Some(unclean) = report.last_mount.filter(|_| self.dry).and_then(|last| last.warning(false))
            {
                line!("{}: {unclean}", named.display())?;
            }
            report.show(named)?;
            if !report.clean {
                drop(opened);
                return if self.yes { repair(named, &path, Over::Damage) } else { Ok(UNCORRECTED) };
            }
        } else if was_closed {
            note!("{}: clean", named.display())?;
        }
        drop(opened);
        if was_closed || self.dry {
            return Ok(0);
        }
        let records = volume::close_properly(&path).with_context(|| named.display().to_string())?;
        line!("{}: was not closed properly; replayed {records} records and closed it", named.display())?;
        Ok(CORRECTED)
    }
}

/// Whether no header of a volume is left, and its start has no signature of another program. A foreign signature is
/// overwritten only if the user requests it (`polder check --repair --force`).
fn is_headerless(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(FileError::Damaged { what: None, .. }))
}

/// Repairs a damaged volume and verifies it once more.
fn repair(named: &Path, path: &Path, over: Over) -> Result<u8> {
    let repaired = check::repair(named, over, false)?;
    let opened = volume::open_read_only(path)?;
    let mut report = check::verify(&opened).with_context(|| named.display().to_string())?;
    let corrected = if repaired.is_empty() { 0 } else { CORRECTED };
    report.add_repaired(repaired);
    report.show(named)?;
    Ok(if report.clean { corrected } else { corrected | UNCORRECTED })
}

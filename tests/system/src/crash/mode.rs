//! How a daemon crashes: by SIGKILL, or with a loss of power.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode as Permissions, mknodat};

use crate::accept::volume::Volume;

/// The fate of written and unsynced data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It stays.
    Kill,
    /// A part of it is lost.
    Cut,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Kill => "kill",
            Mode::Cut => "cut",
        }
    }
}

/// The blocks that were not synced before a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) kept: u64,
    pub(super) lost: u64,
}

/// The trigger of a daemon's crashes.
pub(super) enum Trigger {
    Kill,
    /// A line on a pipe. This end of the pipe stays open, so that no daemon finds it closed.
    Cut {
        pipe: File,
        path: PathBuf,
    },
}

impl Trigger {
    /// `place` is a folder outside of the volume.
    pub(super) fn of(mode: Mode, place: &Path) -> Result<Self> {
        if mode == Mode::Kill {
            return Ok(Trigger::Kill);
        }
        let path = place.join("power");
        mknodat(CWD, &path, FileType::Fifo, Permissions::RUSR | Permissions::WUSR, 0)
            .with_context(|| format!("cannot make the pipe {}", path.display()))?;
        // Open for both, because opening a pipe only for writing waits for its reader.
        let pipe = File::options().read(true).write(true).open(&path)?;
        Ok(Trigger::Cut { pipe, path })
    }

    /// The daemon's environment (`crates/zone/src/engine/write_cache.rs`).
    pub(super) fn env(&self, lies: bool) -> Vec<(&'static str, String)> {
        let Trigger::Cut { path, .. } = self else { return Vec::new() };
        let mut env = vec![("POLDER_KNIFE_PIPE", path.to_string_lossy().into_owned())];
        if lies {
            env.push(("POLDER_KNIFE_LIES", "1".to_owned()));
        }
        env
    }

    /// Makes the daemon crash. Returns the losses of a cut, once the daemon has ended.
    pub(super) fn crash(&self, volume: &Volume, seed: u64) -> Result<Lost> {
        match self {
            Trigger::Kill => volume.strike().map(|()| Lost::default()),
            Trigger::Cut { pipe, .. } => {
                let mut pipe: &File = pipe;
                pipe.write_all(format!("cut {seed}\n").as_bytes()).context("the pipe is gone")?;
                volume.await_gone()?;
                lost(&volume.log(), seed).context("the daemon has ended, but not by a cut of its power")
            }
        }
    }
}

/// Parses the last words of a daemon: `polder: cut 7, at once: 12 blocks kept, 30 blocks lost`.
fn lost(log: &str, seed: u64) -> Option<Lost> {
    let report = log.lines().rev().find_map(|line| line.strip_prefix("polder: cut "))?;
    let (of, counts) = report.split_once(": ")?;
    if of.split(',').next()? != seed.to_string() {
        return None;
    }
    let (kept, lost) = counts.split_once(" blocks kept, ")?;
    Some(Lost { kept: kept.parse().ok()?, lost: lost.strip_suffix(" blocks lost")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{Lost, lost};

    #[test]
    fn the_log_contains_the_losses_of_a_cut() {
        let log = "mounted\npolder: cut 7, at once: 12 blocks kept, 30 blocks lost\n";
        assert_eq!(lost(log, 7), Some(Lost { kept: 12, lost: 30 }));
        assert_eq!(lost(log, 8), None, "that was another cut");
        assert_eq!(lost("polder: cut 7 did not reach the file: no space\n", 7), None);
        assert_eq!(lost("panicked\n", 7), None);
    }
}

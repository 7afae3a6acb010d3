//! A program that reports the number of each acknowledged transaction, into a file outside of the volume.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use support::shell::Line;

use crate::accept::programs::running::Running;

/// How much of the file is read: its last lines.
const TAIL_BYTES: u64 = 4096;

pub(crate) struct Writer {
    running: Running,
    output: PathBuf,
    /// Parses the number in one line.
    number: fn(&str) -> Option<u64>,
    /// The last number before the crash.
    braced: Option<u64>,
}

impl Writer {
    pub(crate) fn start(line: &Line, output: &Path, number: fn(&str) -> Option<u64>) -> Result<Self> {
        let running = Running::start(line, Stdio::null(), output)?;
        Ok(Writer { running, output: output.to_owned(), number, braced: None })
    }

    /// Whether it has reached this number, or has ended.
    pub(crate) fn has_reached(&mut self, number: u64) -> Result<bool> {
        Ok(self.running.ended()?.is_some() || self.printed()? >= Some(number))
    }

    /// Its last line.
    pub(crate) fn progress(&self) -> String {
        let tail = self.tail().unwrap_or_default();
        format!("it says: {}", tail.lines().last().unwrap_or_default())
    }

    /// Notes the transactions that are certainly acknowledged.
    pub(crate) fn brace(&mut self) -> Result<()> {
        let has_ended = self.running.ended()?.is_some();
        self.braced = self.printed()?;
        ensure!(!has_ended, "it ended before the crash: {}", self.tail()?);
        Ok(())
    }

    /// Ends it. Returns the range of the last transaction that may exist. The fate of a transaction in progress is
    /// unknown when the mount dies, and a program that does not sync does not even notice.
    pub(crate) fn finish(mut self) -> Result<RangeInclusive<u64>> {
        self.running.kill()?;
        let certain = self.braced.with_context(|| self.tail().unwrap_or_default());
        let certain = certain.context("it has acknowledged nothing")?;
        let printed = self.printed()?.unwrap_or(certain);
        Ok(certain..=printed + 1)
    }

    fn printed(&self) -> Result<Option<u64>> {
        let tail = self.tail()?;
        // The last line may be incomplete.
        let whole = tail.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().rev().find_map(self.number))
    }

    fn tail(&self) -> Result<String> {
        let mut file = File::open(&self.output)?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    }
}

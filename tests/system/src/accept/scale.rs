//! Point 11: size costs little. A million files are created, found, listed and unlinked with at least half the rate
//! of ten thousand, in one directory and in a thousand. A file may have its last byte 8 EiB after its first, and may
//! have a million extents.
//!
//! Four times as much of anything costs about four times as much ([`growth`], alone by `cargo system growth`).
//!
//! Names ([`names`]) go through the library and a mount, and through ext4 and XFS with the same calls, in turns, so
//! that other load on the machine slows all alike. The quick form has 30,000 files in one directory, no large tree on
//! ext4 and XFS, and 20,000 extents.

mod extents;
pub(super) mod growth;
mod names;
mod sparse;

use anyhow::Result;

use super::{Report, Run};

pub(super) fn run(run: &Run) -> Result<Report> {
    let (mut geometry, mut counts) = (Vec::new(), Vec::new());
    for part in [sparse::run, growth::run, extents::run, names::run] {
        let report = part(run)?;
        geometry.push(report.geometry);
        counts.extend(report.counts);
    }
    Ok(Report { geometry: geometry.join("\n          "), counts })
}

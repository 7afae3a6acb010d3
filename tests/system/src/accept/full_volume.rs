//! Point 8: exactly the available space of a volume can be written. It can be overwritten while it is full, and is
//! available again once everything is deleted. The same holds if small files fill it.
//!
//! Tested through the library on the emulated device with few and with many zones, and through a mount, where all
//! bytes are compared without the kernel's cache and verified (`polder check --data`) while the files exist. The
//! quick form leaves out the thousand zones.

use anyhow::Result;
use support::shell::Line;

use super::simulator::{Counted, simulator};
use super::volume::Volume;
use super::{Report, Run};

/// Counts of the simulator, under the names of the report.
const COUNTS: [&str; 4] =
    ["bytes offered and written", "small files made and deleted", "bytes written over", "bytes compared"];

pub(super) fn run(run: &Run) -> Result<Report> {
    let mut counted = Counted::of(&COUNTS);
    let zones: &[&str] = if run.quick { &["16", "64"] } else { &["16", "64", "1000"] };
    let fill = || simulator("fill").arg("--seed").arg(run.seed.to_string());
    let line = zones
        .iter()
        .fold(fill().args(["--zone-blocks", "256"]), |line, zones| line.arg("--zones").arg(zones));
    line.run_watched(|line| counted.read(line))?;
    // Small files take far more operations for each byte. With many zones of few pages, each has few dead blocks.
    for zones in [&["256", "--zones", "16", "--zones", "64"][..], &["200", "--zones", "130"]] {
        let small = fill().args(["--small-files", "--zone-blocks"]).args(zones);
        small.run_watched(|line| counted.read(line))?;
    }
    let volume = Volume::make(&["--size", if run.quick { "96M" } else { "1G" }], &[])?;
    let geometry = volume.keep_if_failed("full-volume", through(&volume, fill, &mut counted))?;
    Ok(Report {
        geometry: format!(
            "emulated: {} zones of 256 blocks, 130 of 200; mount: {geometry}",
            zones.join(", ")
        ),
        counts: counted.counts(),
    })
}

/// The same through a mount.
fn through(volume: &Volume, fill: impl Fn() -> Line, counted: &mut Counted) -> Result<String> {
    volume.mount()?;
    let geometry = volume.geometry()?;
    for (name, small) in [("full", &[][..]), ("small", &["--small-files"])] {
        let directory = volume.dir().join(name);
        std::fs::create_dir(&directory)?;
        fill().args(small).args(volume.verified_in(&directory)).run_watched(|line| counted.read(line))?;
    }
    volume.unmount()?;
    volume.check_data()?;
    Ok(geometry)
}

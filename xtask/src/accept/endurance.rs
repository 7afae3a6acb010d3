//! Point 9: at four fifths of what a volume offers, files are made, written over, cut and deleted until
//! many times its capacity was written; nothing is refused, nothing is lost, nothing leaks.
//!
//! Through the library on sixteen zones of which six may be active, and through a mount of 128 zones.
//! Everything is compared with a model at the end. The quick form writes less and to less.

use anyhow::Result;

use super::simulator::{Counted, simulator};
use super::volume::Volume;
use super::{Report, Run};

/// What the simulator counts, under the names of the report.
const COUNTS: [&str; 4] = ["bytes written", "operations", "bytes compared", "files at the end"];

/// How large the short and the long form are.
struct Scale {
    /// Blocks of a zone of the emulated device.
    zone_blocks: &'static str,
    volume: &'static str,
    zone: &'static str,
    /// How many times what the volume offers is written.
    times: &'static str,
}

const QUICK: Scale = Scale { zone_blocks: "512", volume: "512M", zone: "4M", times: "2" };
const FULL: Scale = Scale { zone_blocks: "4096", volume: "8G", zone: "64M", times: "10" };

pub(super) fn run(run: &Run) -> Result<Report> {
    let scale = if run.quick { QUICK } else { FULL };
    let mut counted = Counted::of(&COUNTS);
    let endure = |times: &str| simulator("endure").args(["--seed", &run.seed.to_string(), "--times", times]);
    endure("10")
        .args(["--zones", "16", "--active", "6", "--zone-blocks", scale.zone_blocks])
        .run_watched(|line| counted.read(line))?;
    let volume = Volume::make(&["--size", scale.volume, "--zone-size", scale.zone], &[])?;
    let mut through = || {
        volume.mount()?;
        let geometry = volume.geometry()?;
        let directory = volume.dir().join("endurance");
        std::fs::create_dir(&directory)?;
        endure(scale.times).arg("--directory").arg(&directory).run_watched(|line| counted.read(line))?;
        let stats = volume.stats()?;
        println!("written through the mount, and why: {:#}", stats["written"]);
        volume.unmount()?;
        volume.check()?;
        Ok(geometry)
    };
    let geometry = volume.keep_if_failed("endurance", through())?;
    Ok(Report {
        geometry: format!("emulated: 16 zones of {} blocks, 6 active; mount: {geometry}", scale.zone_blocks),
        counts: counted.counts(),
    })
}

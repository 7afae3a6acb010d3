//! Point 9: at four fifths of what a volume offers, files are made, written over, cut and deleted until
//! many times its capacity was written; nothing is refused, nothing is lost, nothing leaks.
//!
//! Through the library on sixteen zones of which six may be active, and through a mount of 128 zones; the
//! capacity is that of the device, of which four fifths of what is offered is a part. Everything is compared with a
//! model at the end, past the kernel's memory, and verified (`polder check --data`) while it is there. The quick
//! form writes less and to less.

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
    /// How many times the device's capacity is written through the mount.
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
        let capacity = std::fs::metadata(volume.file())?.len();
        println!("through the mount: {} times the {capacity} bytes of the device", scale.times);
        endure(scale.times)
            .args(["--capacity", &capacity.to_string()])
            .args(volume.verified_in(&directory))
            .run_watched(|line| counted.read(line))?;
        let stats = volume.stats()?;
        println!("written through the mount, and why: {:#}", stats["written"]);
        volume.unmount()?;
        volume.check_data()?;
        Ok(geometry)
    };
    let geometry = volume.keep_if_failed("endurance", through())?;
    Ok(Report {
        geometry: format!("emulated: 16 zones of {} blocks, 6 active; mount: {geometry}", scale.zone_blocks),
        counts: counted.counts(),
    })
}

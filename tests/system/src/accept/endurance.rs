//! Point 9: files are created, overwritten, truncated and deleted until many times a volume's capacity has been
//! written. Writes that fit succeed, others are refused, nothing is lost, and nothing leaks.
//!
//! * At 100, 99 and 95 % of the available space, through the library on 16, 64 and 1,024 zones, and at 95 % on 64
//!   zones of which sixteen may be active, until three times the capacity has been written. Now and then a file takes
//!   all remaining space. Then no operation that needs a block succeeds, but everything can be overwritten and
//!   deleted.
//! * Full to the last block on volumes of drawn shapes (`polder-sim shapes`), overwritten in drawn patterns, twice
//!   each.
//! * At four fifths, where nothing is ever refused, through the library on sixteen zones of which six may be active,
//!   and through a mount of 128 zones.
//!
//! The capacity is that of the device; the available space is a part of it. At the end everything is compared with a
//! model, without the kernel's cache, and verified (`polder check --data` on the mount) while the files exist. Then
//! everything is deleted, and all space must be available again. The quick form has smaller zones where there are
//! many, fewer shapes, and at four fifths smaller volumes with fewer writes.

use anyhow::Result;
use support::shell::Line;

use super::simulator::{Counted, simulator};
use super::volume::Volume;
use super::{Report, Run};

/// Counts of the simulator, under the names of the report.
const COUNTS: [&str; 8] = [
    "bytes written",
    "operations",
    "bytes compared",
    "files at the end",
    "times filled to the last block",
    "writes refused for want of space",
    "shapes drawn",
    "bytes written over on them",
];

/// The fill levels of volumes that are filled to the last block, in percent of the available space.
const PERCENTS: [&str; 3] = ["100", "99", "95"];
/// How many times the capacity is written there.
const TIMES_FULL: &str = "3";

/// The size of the short and the long form.
struct Scale {
    /// Blocks of each of 1,024 zones.
    many_zone_blocks: &'static str,
    /// Blocks of a zone of the emulated device at four fifths.
    zone_blocks: &'static str,
    /// Drawn shapes.
    shapes: &'static str,
    volume: &'static str,
    zone: &'static str,
    /// How many times the device's capacity is written through the mount.
    times: &'static str,
}

const QUICK: Scale = Scale {
    many_zone_blocks: "64",
    zone_blocks: "512",
    shapes: "24",
    volume: "512M",
    zone: "4M",
    times: "2",
};
const FULL: Scale = Scale {
    many_zone_blocks: "256",
    zone_blocks: "4096",
    shapes: "400",
    volume: "8G",
    zone: "64M",
    times: "10",
};

pub(super) fn run(run: &Run) -> Result<Report> {
    let scale = if run.quick { QUICK } else { FULL };
    let mut counted = Counted::of(&COUNTS);
    let endure = |times: &str| simulator("endure").args(["--seed", &run.seed.to_string(), "--times", times]);
    for line in full(&scale, || endure(TIMES_FULL).arg("--fill-up")) {
        line.run_watched(|line| counted.read(line))?;
    }
    simulator("shapes")
        .args(["--seed", &run.seed.to_string(), "--times", scale.shapes])
        .run_watched(|line| counted.read(line))?;
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
        geometry: format!(
            "emulated, to the last block: 16 and 64 zones of 1024 blocks, 1024 of {}, 14 active, 64 with 16 active; \
             {} drawn shapes; at four fifths: 16 zones of {} blocks, 6 active; mount: {geometry}",
            scale.many_zone_blocks, scale.shapes, scale.zone_blocks
        ),
        counts: counted.counts(),
    })
}

/// The runs that fill a volume to the last block.
fn full(scale: &Scale, endure: impl Fn() -> Line) -> Vec<Line> {
    let at = |percent: &str, device: &[&str]| endure().args(["--percent", percent]).args(device);
    let few = ["--zone-blocks", "1024", "--zones", "16", "--zones", "64"];
    let many = ["--zone-blocks", scale.many_zone_blocks, "--zones", "1024"];
    let mut lines: Vec<Line> =
        PERCENTS.iter().flat_map(|percent| [at(percent, &few), at(percent, &many)]).collect();
    lines.push(at("95", &["--zone-blocks", "1024", "--zones", "64", "--active", "16"]));
    lines
}

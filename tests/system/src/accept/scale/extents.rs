//! A file with very many extents, through a mount and through the library.

use anyhow::Result;

use super::{Report, Run};
use crate::accept::simulator::{Counted, simulator};
use crate::accept::volume::Volume;

/// Counts of the simulator, under the names of the report.
const COUNTS: [&str; 2] = ["extents written", "extents compared"];

pub(super) fn run(run: &Run) -> Result<Report> {
    let (extents, size) = if run.quick { ("20000", "512M") } else { ("1000000", "6G") };
    let volume = Volume::make(&["--size", size], &[])?;
    let mut counted = Counted::of(&COUNTS);
    let geometry = volume.keep_if_failed("extents", prove(&volume, extents, &mut counted))?;
    Ok(Report { geometry: format!("extents: {geometry}"), counts: counted.counts() })
}

fn prove(volume: &Volume, extents: &str, counted: &mut Counted) -> Result<String> {
    let mut drive = |stage: &str, through: &str, path: &std::path::Path| {
        let line = simulator("extents").args(["--stage", stage, "--extents", extents, through]).arg(path);
        println!("{line}");
        line.run_watched(|line| counted.read(line))
    };
    volume.mount()?;
    let geometry = volume.geometry()?;
    drive("make", "--directory", &volume.dir())?;
    drive("compare", "--directory", &volume.dir())?;
    volume.unmount()?;
    volume.check()?;
    drive("compare", "--library", &volume.file())?;
    drive("remove", "--library", &volume.file())?;
    volume.check()?;
    drive("make", "--library", &volume.file())?;
    volume.mount()?;
    drive("compare", "--directory", &volume.dir())?;
    drive("remove", "--directory", &volume.dir())?;
    volume.unmount()?;
    volume.check()?;
    Ok(geometry)
}

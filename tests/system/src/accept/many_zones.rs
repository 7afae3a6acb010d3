//! Point 13: the costs of a hundred thousand zones depend on the zones in use. This is the part of point 11 about the
//! number of zones: mounts, memory, GC and deletes. `crates/fs/tests/all/growth/zones.rs` has the device commands of
//! each operation with N and 4 N zones.
//!
//! `polder-space many` writes zones of 256 MiB of a disk with shingled tracks that stores only metadata: on a device
//! with 100,000 zones and on one with 1,000. A mount, also after a kill of the process, takes at most a second of
//! device time, and at most 5 µs more for each further zone (without the device's report of zones). Resident memory
//! is within the limit for the number of zones, and at most 128 bytes more for each zone that the small device does
//! not have. Repeated operations (choosing victims, deleting) take at most four times as long per affected zone on
//! the large device, because their table is no longer in the processor's cache. The quick form uses 128 zones, the
//! long form 1,000 of the large device and 700 of the small one.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use support::shell::Line;
use support::workspace;

use super::volume::number;
use super::{Report, Run};

const LARGE: u32 = 100_000;
const SMALL: u32 = 1000;
/// Limit for the slowdown per affected zone.
const SLOWER_MAX: u64 = 4;
/// Limit for the device time of a mount, …
const MOUNT_MS_MAX: f64 = 1000.0;
/// … and for the time that a zone may add to it.
const MOUNT_MS_A_ZONE_MAX: f64 = 0.005;
/// Limit for the resident memory per zone: the table's 64 bytes, and temporary data (a report, chunks of the table).
const RESIDENT_BYTES_A_ZONE_MAX: u64 = 128;

pub(super) fn run(run: &Run) -> Result<Report> {
    crate::space::build_line().run()?;
    let [of_large, of_small] = if run.quick { [128, 128] } else { [1000, 700] };
    let large = measure(LARGE, of_large, run.seed)?;
    let small = measure(SMALL, of_small, run.seed)?;
    for seen in [&large, &small] {
        judge(seen)?;
    }
    compare_mounts(&large, &small)?;
    compare_memory(&large, &small)?;
    for (what, of) in [("victims_ns", "victims_looked_at"), ("freed_ns", "")] {
        compare(&large, &small, what, of)?;
    }
    let count = |what: &str| number(&large, what);
    Ok(Report {
        geometry: format!("in memory: {LARGE} zones of 256 MiB, {of_large} used; {SMALL}, {of_small} used"),
        counts: vec![
            ("zones with data", count("/data_zones")?),
            ("bytes written", count("/written_bytes")?),
            ("bytes of metadata kept", count("/kept_bytes")?),
            ("records replayed after the kill", count("/killed/records")?),
            ("peak resident bytes", count("/resident_bytes_max")?),
            ("zones looked at to choose a victim", count("/victims_looked_at")?),
            ("nanoseconds for that", count("/victims_ns")?),
            ("the same on the small device", number(&small, "/victims_ns")?),
            ("zones freed by deleting", count("/freed_zones")?),
        ],
    })
}

fn measure(zones: u32, used: u32, seed: u64) -> Result<Value> {
    let program = workspace::target_dir()?.join("release/polder-space");
    let line = Line::program(program)
        .args(["many", "--zones", &zones.to_string(), "--used", &used.to_string()])
        .args(["--seed", &seed.to_string()]);
    let printed = line.output()?;
    println!("{}", printed.trim());
    serde_json::from_str(&printed).context("polder-space says no JSON")
}

/// The checks for each device.
fn judge(seen: &Value) -> Result<()> {
    let (resident, allowed) =
        (number(seen, "/resident_bytes_max")?, number(seen, "/resident_bytes_allowed")?);
    ensure!(resident <= allowed, "{resident} bytes were resident; {allowed} may be");
    Ok(())
}

/// Checks that mounts take little longer on the large device.
fn compare_mounts(large: &Value, small: &Value) -> Result<()> {
    for mount in ["clean", "killed"] {
        let took = |seen: &Value| seen[mount]["device_ms"].as_f64().context("a mount has no time");
        let (large, small) = (took(large)?, took(small)?);
        ensure!(large <= MOUNT_MS_MAX, "the mount ({mount}) takes {large} ms, and may take {MOUNT_MS_MAX}");
        let more = large - small;
        println!("the mount ({mount}) takes {more:.0} ms more of device time on the large device");
        let most = MOUNT_MS_A_ZONE_MAX * f64::from(LARGE - SMALL);
        ensure!(more <= most, "the mount ({mount}) takes {more} ms more, and may take {most}");
    }
    Ok(())
}

/// Checks that little more memory is resident on the large device.
fn compare_memory(large: &Value, small: &Value) -> Result<()> {
    let resident = |seen: &Value| number(seen, "/resident_bytes_max");
    let each = resident(large)?.saturating_sub(resident(small)?) / u64::from(LARGE - SMALL);
    println!("for each zone more {each} bytes are resident");
    ensure!(
        each <= RESIDENT_BYTES_A_ZONE_MAX,
        "a zone may take {RESIDENT_BYTES_A_ZONE_MAX} bytes, not {each}"
    );
    Ok(())
}

/// Checks that the time per affected zone is similar on the large device.
fn compare(large: &Value, small: &Value, what: &str, of: &str) -> Result<()> {
    let each = |seen: &Value| -> Result<f64> {
        let took = number(seen, &format!("/{what}"))? as f64;
        Ok(if of.is_empty() { took } else { took / number(seen, &format!("/{of}"))?.max(1) as f64 })
    };
    let (on_large, on_small) = (each(large)?, each(small)?);
    println!("{what}: {on_large:.0} for each zone on the large device, {on_small:.0} on the small one");
    ensure!(on_large <= on_small * SLOWER_MAX as f64, "{what} grows with the number of zones");
    Ok(())
}

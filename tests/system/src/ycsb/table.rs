//! The figures of the page: ratios of rates and times, and bytes at the device for each byte that RocksDB wrote.

use std::fmt::Write as _;

use anyhow::Result;

use super::{Scale, WORKLOADS};
use crate::measured::Measured;

/// The name of our figures.
pub(super) const OURS: &str = "polder";
/// The names of the other file systems' figures, and their names on the page.
const PEERS: [(&str, &str); 2] = [("ext4", "ext4"), ("xfs", "XFS")];
/// The times that the driver reports for each kind of operation.
const TIMES: [&str; 4] = ["median", "99 %", "99.9 %", "longest"];
/// All bytes at the device, and some of ours by cause.
pub(super) const DEVICE: &str = "device";
pub(super) const DATA: &str = "data";
pub(super) const COLLECTION: &str = "collection";
/// The driver's name for the bytes that RocksDB wrote to its files.
const WRITTEN: &str = "written";

pub(super) fn of(measured: &Measured, scale: &Scale, machine: &str) -> Result<String> {
    let mut text = format!(
        "Measured on {machine}: {} records of 1 KB, {} MiB below each file system, {} operations of a workload ({} of \
         scans and of synced writes), four clients. Each figure is the median of {} rounds, with the quartiles.\n\n",
        scale.records,
        scale.bytes >> 20,
        scale.operations,
        scale.long_operations,
        scale.rounds,
    );
    let add = &mut text;
    writeln!(add, "| workload | operation | beside | rate | {} |", TIMES.join(" | "))?;
    writeln!(add, "|---|---|---|---|{}", "---|".repeat(TIMES.len()))?;
    for workload in &WORKLOADS {
        let title = workload.title();
        for kind in workload.kinds {
            for (peer, name) in PEERS {
                let rate =
                    measured.ratio(&format!("{OURS} {title} rate"), &format!("{peer} {title} rate"))?;
                write!(add, "| {title} | {kind} | {name} | {rate} |")?;
                for time in TIMES {
                    let called = |place: &str| format!("{place} {title} {kind} {time}");
                    // A shorter time is a larger figure, as everywhere on the page.
                    write!(add, " {} |", measured.ratio(&called(peer), &called(OURS))?)?;
                }
                writeln!(add)?;
            }
        }
    }
    write!(add, "\n{}", amplification(measured)?)?;
    Ok(text)
}

fn amplification(measured: &Measured) -> Result<String> {
    let mut text = String::new();
    let add = &mut text;
    writeln!(
        add,
        "| bytes at the device for each of RocksDB's (medians) | MiB written | Polder | data | collection | rest |{}",
        { PEERS.map(|(_, name)| format!(" {name} |")).concat() }
    )?;
    writeln!(add, "|---|---|---|---|---|---|{}", "---|".repeat(PEERS.len()))?;
    for workload in &WORKLOADS {
        let title = workload.title();
        let median = |what: &str| measured.median(&format!("{OURS} {title} {what}"));
        let of = |place: &str, what: &str| {
            Ok::<_, anyhow::Error>(
                measured
                    .ratio(&format!("{place} {title} {what}"), &format!("{place} {title} {WRITTEN}"))?
                    .median,
            )
        };
        let (all, data, moved) = (of(OURS, DEVICE)?, of(OURS, DATA)?, of(OURS, COLLECTION)?);
        write!(
            add,
            "| {title} | {:.0} | {all:.3} | {data:.3} | {moved:.3} |",
            median(WRITTEN)? / 1_048_576.0
        )?;
        write!(add, " {:.3} |", all - data - moved)?;
        for (peer, _) in PEERS {
            write!(add, " {:.3} |", of(peer, DEVICE)?)?;
        }
        writeln!(add)?;
    }
    Ok(text)
}

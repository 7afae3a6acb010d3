use super::*;

/// Polder twice as fast, and with `device` bytes for each two that RocksDB wrote.
fn measured() -> Measured {
    let mut measured = Measured::default();
    for workload in &WORKLOADS {
        let title = workload.title();
        for (place, factor) in [("polder", 2.0), ("ext4", 1.0), ("xfs", 1.0)] {
            measured.add(&format!("{place} {title} rate"), 100.0 * factor);
            measured.add(&format!("{place} {title} written"), 2_097_152.0);
            measured.add(&format!("{place} {title} device"), 2_621_440.0);
            for kind in workload.kinds {
                for time in ["median", "99 %", "99.9 %", "longest"] {
                    measured.add(&format!("{place} {title} {kind} {time}"), 50.0 / factor);
                }
            }
        }
        measured.add(&format!("polder {title} data"), 2_097_152.0);
        measured.add(&format!("polder {title} collection"), 262_144.0);
    }
    measured
}

#[test]
fn faster_is_a_larger_figure_in_rates_and_in_times() {
    let table = table::of(&measured(), &QUICK, "a machine").unwrap();
    let twice = "2.00 (2.00–2.00) |";
    let row = format!("| a synced | update | XFS | {0} {0} {0} {0} {0}\n", twice);
    assert!(table.contains(&row), "{table}");
}

#[test]
fn bytes_are_listed_by_cause() {
    let table = table::of(&measured(), &QUICK, "a machine").unwrap();
    assert!(table.contains("| e | 2 | 1.250 | 1.000 | 0.125 | 0.125 | 1.250 | 1.250 |\n"), "{table}");
}

#[test]
fn a_missing_measurement_is_an_error() {
    assert!(table::of(&Measured::default(), &QUICK, "a machine").is_err());
}

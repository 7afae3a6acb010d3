use super::super::row::{Part, Waits};
use super::*;

fn row(workload: &str, fill_percent: u64, hints: bool, amplification: f64) -> Row {
    let writes = Summary { count: 5000, p50_ns: 10, p99_ns: 20, p999_ns: 30, max_ns: 50 };
    let waits = Waits { writes, writes_of_1_mib: writes };
    Row {
        workload: workload.to_owned(),
        fill_percent,
        zones: 256,
        zone_bytes: 16 << 20,
        fsync: false,
        hints,
        by_file: true,
        learning: true,
        seed: 1,
        offered_bytes: 1,
        live_percent_of_raw: 70.0,
        amplification,
        parts: vec![Part { cause: "data".to_owned(), amplification: 1.0 }],
        data_zones: 247.0,
        ideal: Some(2.0),
        ideal_of_all: Some(1.9),
        optimum: (workload == "uniform").then_some(2.0),
        empty: waits,
        closed: waits,
        half_rate: waits,
        bytes_per_second: 1.0,
        compared_blocks: 1,
    }
}

fn broken(rows: &[Row]) -> Vec<String> {
    of(rows).iter().filter(|bound| !bound.holds()).map(|bound| bound.what.clone()).collect()
}

#[test]
fn figures_at_the_bound_hold_and_those_beyond_do_not() {
    for (workload, most) in [("small-files", 2.16), ("zipf", 1.6), ("mix", 1.2)] {
        assert_eq!(broken(&[row(workload, 80, false, most - 0.001)]), [""; 0]);
        let beyond = broken(&[row(workload, 80, false, most + 0.001)]);
        assert_eq!(beyond, [format!("{workload}, 256 × 16 MiB, 80 %: against the ideal cleaner")]);
    }
    let beyond = broken(&[row("uniform", 95, false, 2.3)]);
    assert_eq!(beyond, ["uniform, 256 × 16 MiB, 95 %: against the optimum"]);
}

#[test]
fn hints_are_compared_with_the_same_cell_without() {
    let with = |amplification| [row("rocksdb", 80, false, 1.5), row("rocksdb", 80, true, amplification)];
    assert_eq!(broken(&with(1.4)), [""; 0]);
    assert_eq!(broken(&with(1.2)), ["rocksdb, 256 × 16 MiB, 80 %: without hints against with"]);
    assert!(of(&[row("rocksdb", 80, false, 1.5)]).is_empty(), "there is nothing to compare with");
}

#[test]
fn nothing_is_asked_of_what_is_switched_off() {
    let beyond = Row { learning: false, ..row("mix", 80, false, 3.0) };
    assert!(of(&[beyond]).is_empty());
    let hinted = Row { by_file: false, ..row("rocksdb", 80, true, 1.0) };
    assert!(of(&[row("rocksdb", 80, false, 1.5), hinted]).is_empty());
}

#[test]
fn latencies_are_bounded_at_high_fill_where_there_are_enough_writes() {
    let mut slow = row("small-files", 95, false, 2.0);
    assert_eq!(broken(std::slice::from_ref(&slow)), [""; 0]);
    slow.closed.writes_of_1_mib.max_ns = 81;
    slow.half_rate.writes_of_1_mib.p999_ns = 81;
    assert_eq!(
        broken(std::slice::from_ref(&slow)),
        [
            "small-files, 256 × 16 MiB, 95 %: closed loop, all 1-MiB writes",
            "small-files, 256 × 16 MiB, 95 %: half rate, 99.9 % of 1-MiB writes"
        ]
    );
    slow.closed.writes_of_1_mib.count = WRITES_MIN - 1;
    slow.half_rate.writes_of_1_mib.count = WRITES_MIN - 1;
    assert_eq!(of(&[slow]).len(), 0);
}

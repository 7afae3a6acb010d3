use super::super::row::{Part, Waits};
use super::*;

pub(in crate::space) fn row(workload: &str, fill_percent: u64, hints: bool, amplification: f64) -> Row {
    let writes = Summary { count: 5000, p50_ns: 10, p99_ns: 20, p999_ns: 30, max_ns: 50 };
    let waits = Waits { writes, writes_of_1_mib: writes };
    Row {
        workload: workload.to_owned(),
        fill_percent,
        zones: 256,
        zone_bytes: 16 << 20,
        fsync: false,
        hints,
        learning: true,
        seed: 1,
        commit: "1234567890".to_owned(),
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
        half_rate_amplification: amplification,
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
        assert_eq!(beyond, [format!("{workload}, 256 × 16 MiB, 80 %: against the ideal GC")]);
    }
    let beyond = broken(&[row("uniform", 95, false, 2.3)]);
    assert_eq!(beyond, ["uniform, 256 × 16 MiB, 95 %: against the optimum"]);
}

fn is_asked_of_hints(rows: &[Row]) -> bool {
    of(rows).iter().any(|bound| bound.kind == Kind::WithoutHints)
}

#[test]
fn hints_are_compared_with_the_same_cell_without() {
    let with = |amplification| [row("rocksdb", 80, false, 1.5), row("rocksdb", 80, true, amplification)];
    assert_eq!(broken(&with(1.4)), [""; 0]);
    assert_eq!(broken(&with(1.2)), ["rocksdb, 256 × 16 MiB, 80 %: without hints against with"]);
    assert!(!is_asked_of_hints(&[row("rocksdb", 80, false, 1.5)]), "there is nothing to compare with");
    let smaller = Row { zone_bytes: 4 << 20, ..row("rocksdb", 80, true, 1.2) };
    assert!(!is_asked_of_hints(&[row("rocksdb", 80, false, 1.5), smaller]), "another geometry says nothing");
}

#[test]
fn learning_may_cost_nothing() {
    let costs = |workload, times| {
        let without = Row { learning: false, ..row(workload, 95, false, 1.5) };
        broken(&[row(workload, 95, false, 1.5 * times), without])
    };
    assert_eq!(costs("small-files", 1.029), [""; 0]);
    assert_eq!(
        costs("small-files", 1.031),
        ["small-files, 256 × 16 MiB, 95 %: with learning against without"]
    );
    assert_eq!(costs("rocksdb", 1.2).len(), 1);
}

#[test]
fn rows_with_a_feature_off_have_no_bounds() {
    let beyond = Row { learning: false, ..row("mix", 80, false, 3.0) };
    assert!(of(&[beyond]).is_empty());
    let hinted = Row { learning: false, ..row("rocksdb", 80, true, 1.0) };
    assert!(!is_asked_of_hints(&[row("rocksdb", 80, false, 1.5), hinted]));
}

#[test]
fn latencies_are_bounded_at_high_fill_where_there_are_writes() {
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
    slow.closed.writes_of_1_mib.count = 0;
    slow.half_rate.writes_of_1_mib.count = 0;
    let kinds: Vec<Kind> = of(&[slow]).iter().map(|bound| bound.kind).collect();
    assert_eq!(kinds, [Kind::Stated]);
}

pub(in crate::space) fn usable_row(zones: u32, zone_mib: u64, reserve: u32, offered_mib: u64) -> usable::Row {
    let (zone_bytes, offered_bytes) = (zone_mib << 20, offered_mib << 20);
    let offered_percent = offered_mib as f64 / (u64::from(zones) * zone_mib) as f64 * 100.0;
    serde_json::from_value(serde_json::json!({
        "zones": zones, "zone_bytes": zone_bytes, "block_bytes": 4096, "reserve": reserve, "least_reserve": 300, "seed": 1,
        "offered_bytes": offered_bytes, "offered_percent": offered_percent, "filled_bytes": offered_bytes,
        "churned_bytes": 1, "amplification": 1.0, "compared_blocks": 1, "offered_again_bytes": offered_bytes,
        "metadata_zones_max": 1,
    }))
    .unwrap()
}

#[test]
fn the_least_available_space_is_exact() {
    let holds = |row: &usable::Row| of_usable(row).map(|bound| bound.holds());
    for (zones, gb) in [(36, 54), (68, 115), (128, 230)] {
        assert_eq!(holds(&usable_row(zones, 2048, 0, gb << 10)), Some(true), "{zones} zones");
        assert_eq!(holds(&usable_row(zones, 2048, 0, (gb << 10) - 1)), Some(false), "{zones} zones");
    }
    assert_eq!(holds(&usable_row(1000, 64, 0, 62_080)), Some(true));
    assert_eq!(holds(&usable_row(1000, 64, 0, 62_079)), Some(false));
    assert_eq!(holds(&usable_row(1000, 64, 1000, 57_600)), None, "it was asked for less");
    assert_eq!(holds(&usable_row(32, 2048, 0, 1)), None, "nothing is asked of it");
}

pub(in crate::space) fn beside_row(read_waits_ns: u64) -> beside::Row {
    let summary =
        |max: u64| serde_json::json!({"count": 9, "p50_ns": 0, "p99_ns": 0, "p999_ns": max, "max_ns": max});
    let waits = |max: u64| serde_json::json!({"all": summary(900 + max), "for_others": summary(max)});
    let others = |max: u64| {
        serde_json::json!({
            "reads_of_4_kib": waits(0), "reads_of_64_kib": waits(max), "writes_of_4_kib": waits(80), "fsyncs": waits(90),
        })
    };
    serde_json::from_value(serde_json::json!({
        "fill_percent": 90, "seed": 1, "wrote": {"amplification": 2.0, "moved_per_written": 1.0},
        "beside": others(read_waits_ns), "alone": others(0),
    }))
    .unwrap()
}

#[test]
fn a_reader_waits_for_no_other_thread() {
    assert!(of_beside(&beside_row(0)).holds());
    let bound = of_beside(&beside_row(1));
    assert!(!bound.holds() && bound.what == "beside, 90 %: longest that a read waited for others");
}

#[test]
fn no_write_takes_longer_than_the_manual_says() {
    // Two rounds of twice 16 MiB that are read and written, and of two checkpoints of 8 MiB.
    let stated = 2.0 * (2.0 * (1.0 / 1.2 + 1.0 / 3.0) + 1.0 / 1.2) * f64::from(16 << 20);
    let with = |closed: f64, half: f64| {
        let mut row = row("zipf", 60, false, 2.0);
        (row.ideal, row.closed.writes.max_ns, row.half_rate.writes.max_ns) =
            (None, closed as u64, half as u64);
        broken(&[row])
    };
    let beyond = ["zipf, 256 × 16 MiB, 60 %: longest write, against the bound of the manual"];
    assert_eq!(with(stated - 2.0, stated - 2.0), [""; 0]);
    assert_eq!(with(stated + 2.0, 1.0), beyond);
    assert_eq!(with(1.0, stated + 2.0), beyond);
}

#[test]
fn a_file_that_was_in_pieces_is_read_like_one_written_alone() {
    let row = |reads| {
        let layout = |reads| pieces::Layout { fragments: 1, reads };
        let (seed, before, put_together) = (1, layout(1000), layout(1));
        let (collected, alone) = (layout(reads), layout(20));
        pieces::Row { seed, pieces: 1000, before, collected, put_together, alone, moved_bytes: 1 }
    };
    assert!(of_pieces(&row(22)).holds());
    assert!(!of_pieces(&row(23)).holds());
}

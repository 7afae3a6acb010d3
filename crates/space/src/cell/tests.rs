use super::*;

fn cell(workload: Workload, fsync: bool, hints: bool) -> Cell {
    Cell {
        workload,
        fill_percent: 70,
        shape: Shape::new(64, 2 << 20),
        medium: Medium::Ssd,
        switches: Switches { fsync, hints, ..Switches::default() },
        seed: 3,
        warm_percent: 50,
        measure_percent: 50,
        check: true,
    }
}

#[test]
fn a_cell_repeats_to_the_last_digit() {
    for workload in [Workload::RocksDb, Workload::Uniform] {
        let figures = || serde_json::to_string(&cell(workload, true, true).run().unwrap()).unwrap();
        let (once, again) = (figures(), figures());
        assert!(once == again, "{once}\n{again}");
    }
}

#[test]
fn every_workload_runs_is_compared_and_checked() {
    for workload in [Workload::SmallFiles, Workload::Zipf, Workload::RocksDb, Workload::Spool] {
        let row = cell(workload, false, false).run().unwrap();
        row.verify().unwrap();
        let ideal = row.ideal.expect("zones are not full");
        assert!(row.ideal_of_all.is_some_and(|all| 1.0 <= all && all <= ideal), "{row:?}");
        assert!(row.compared_blocks > 0 && row.data_zones < 64.0 && row.live_percent_of_raw < 70.0);
        assert!((row.empty.writes_of_1_mib.p50_ns as f64) < 2e6, "{row:?}");
    }
}

#[test]
fn the_latency_of_a_write_includes_its_fsync() {
    let p50 = |fsync| cell(Workload::SmallFiles, fsync, false).run().unwrap().empty.writes.p50_ns;
    assert!(p50(true) > p50(false) + 15_000, "a flush alone takes 15 µs");
}

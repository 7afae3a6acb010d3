use super::super::bounds::Limit;
use super::super::bounds::tests::{row, usable_row};
use super::super::row::Row;
use super::super::{bounds, cells};
use super::*;
use support::workspace;

/// A row for every cell. Workloads of single blocks have no writes of 1 MiB.
fn rows() -> Vec<Row> {
    let is_blocks =
        |name: &str| cells::WORKLOADS.iter().any(|workload| workload.name == name && workload.is_blocks);
    let of = |cell: &cells::Cell| {
        let mut row = row(cell.workload, cell.fill, cell.hints, 9.0);
        (row.zones, row.zone_bytes, row.fsync) = (cell.zones, cell.zone_mib << 20, cell.fsync);
        row.learning = cell.off != Some("learning");
        if is_blocks(cell.workload) {
            row.closed.writes_of_1_mib.count = 0;
            row.half_rate.writes_of_1_mib.count = 0;
        }
        row
    };
    cells::all(1).iter().map(of).collect()
}

fn judged() -> Vec<Bound> {
    let layout = |reads| pieces::Layout { fragments: 1, reads };
    let (before, collected, put_together, alone) = (layout(9), layout(9), layout(1), layout(1));
    let pieces = pieces::Row { seed: 1, pieces: 9, before, collected, put_together, alone, moved_bytes: 1 };
    let mut bounds = bounds::of(&rows());
    bounds.extend([(36, 2048), (1000, 64)].map(|(zones, mib)| {
        bounds::of_usable(&usable_row(zones, mib, 0, 1)).expect("something is asked of it")
    }));
    bounds.push(bounds::of_pieces(&pieces));
    // A kind of bound that has always held has no reason, and fails if it does not hold.
    bounds.retain(|bound| bound.kind != Kind::Stated);
    bounds
}

#[test]
fn every_bound_that_is_judged_has_one_reason() {
    let bounds = judged();
    for bound in &bounds {
        let count = REASONS.iter().filter(|reason| reason.is_of(bound)).count();
        assert_eq!(count, 1, "{}", bound.what);
    }
    for reason in &REASONS {
        for (kind, workload) in
            reason.kinds.iter().flat_map(|kind| reason.workloads.iter().map(move |name| (kind, name)))
        {
            let is_of = |bound: &Bound| bound.kind == *kind && bound.workload == *workload;
            assert!(bounds.iter().any(is_of), "{}: {kind:?} is never judged for {workload}", reason.title);
        }
    }
}

#[test]
fn pages_that_reasons_name_are_there() {
    let mut links = 0;
    for reason in &REASONS {
        for link in reason.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(workspace::root().join("docs/results").join(link).is_file(), "{}: {link}", reason.title);
            links += 1;
        }
    }
    assert!(links >= REASONS.len(), "each reason names a decision");
}

#[test]
fn a_group_that_holds_needs_no_reason() {
    let mut beyond = row("mix", 80, false, 1.3);
    let section_of = |rows: &[Row]| section(&bounds::of(rows)).unwrap();
    let failed = section_of(&[beyond.clone(), Row { fsync: true, ..row("mix", 80, false, 1.1) }]);
    assert!(failed.contains("* **mix, against the ideal GC**: 1 of 2 do not hold. On 64"), "{failed}");
    beyond.amplification = 1.1;
    let holds = section_of(&[beyond]);
    assert!(holds.contains("\n\n* **mix, against the ideal GC**: 0 of 1 do not hold.\n"), "{holds}");
}

/// A reason is written for observed violations.
#[test]
fn a_violation_beyond_its_reason_is_an_error() {
    let of = |times: f64| {
        let bound = bounds::of(&[row("mix", 80, false, 1.3)]).remove(0);
        let reason = REASONS.iter().find(|reason| reason.is_of(&bound)).unwrap();
        let Limit::AtMost(most) = bound.limit else { panic!("it is to be at most so much") };
        section(&[Bound { found: most * reason.at_most * times, ..bound }])
    };
    assert!(of(0.999).is_ok());
    assert!(of(1.001).unwrap_err().to_string().contains("not for so much"));
    assert!(REASONS.iter().all(|reason| reason.at_most < 20.0), "each has a figure of its own");
}

#[test]
fn a_bound_that_does_not_hold_and_has_no_reason_is_an_error() {
    let of = |amplification| Bound {
        workload: "another".to_owned(),
        ..bounds::of(&[row("mix", 80, false, amplification)]).remove(0)
    };
    assert!(section(&[of(1.1)]).is_ok());
    let error = section(&[of(1.3)]).unwrap_err().to_string();
    assert!(error.contains("mix, 256 × 16 MiB, 80 %: against the ideal GC"), "{error}");
}

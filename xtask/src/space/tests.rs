use std::collections::HashSet;

use super::*;

#[test]
fn the_quick_form_runs_some_cells_of_every_workload() {
    let quick = cells::quick(1);
    let workloads: HashSet<&str> = quick.iter().map(|cell| cell.workload).collect();
    assert_eq!(workloads.len(), cells::WORKLOADS.len());
    assert!(quick.len() * 5 < cells::all(1).len(), "{} cells", quick.len());
    assert!(quick.iter().any(|cell| cell.fsync) && quick.iter().any(|cell| cell.hints));
    let off: HashSet<_> = quick.iter().filter_map(|cell| cell.off).collect();
    assert_eq!(off.len(), 2, "{off:?}");
}

#[test]
fn cells_are_told_apart_by_their_arguments() {
    let cells = cells::all(1);
    let told: HashSet<String> = cells.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), cells.len());
}

use std::collections::HashSet;

use super::*;

#[test]
fn the_quick_form_runs_some_cells_of_every_workload() {
    let quick = cells::quick(1);
    let workloads: HashSet<&str> = quick.iter().map(|cell| cell.workload).collect();
    assert_eq!(workloads.len(), cells::WORKLOADS.len());
    assert!(quick.len() * 5 < cells::all(1).len(), "{} cells", quick.len());
    assert!(quick.iter().any(|cell| cell.fsync) && quick.iter().any(|cell| cell.hints));
    let off = |cells: &[cells::Cell]| cells.iter().filter_map(|cell| cell.off).collect::<HashSet<_>>();
    assert_eq!(off(&quick), off(&cells::all(1)), "each switch of the page is measured");
    assert!(!off(&quick).is_empty());
}

#[test]
fn cells_are_distinguished_by_their_arguments() {
    let cells = cells::all(1);
    let arguments: HashSet<Vec<String>> = cells.iter().map(Case::args).collect();
    assert_eq!(arguments.len(), cells.len());
    let devices = usable::all(1);
    let arguments: HashSet<Vec<String>> = devices.iter().map(Case::args).collect();
    assert_eq!(arguments.len(), devices.len());
}

#[test]
fn hints_are_measured_with_each_switch_off() {
    let hinted = |workload: &str, off| {
        let is_meant = |cell: &&cells::Cell| cell.workload == workload && cell.hints && cell.off == Some(off);
        cells::all(1).iter().filter(is_meant).count()
    };
    let off = "learning";
    assert_eq!([hinted("rocksdb", off), hinted("mix", off), hinted("small-files", off)], [4, 4, 0]);
    assert!(!cells::quick(1).iter().any(|cell| cell.hints && cell.off.is_some()));
}

#[test]
fn the_unseen_workload_takes_few_cells() {
    let cells = cells::all(1);
    let unseen: Vec<_> = cells.iter().filter(|cell| cell.workload == "spool").collect();
    assert_eq!(unseen.len(), 24);
    assert_eq!(unseen.iter().filter(|cell| cell.off == Some("learning")).count(), 8);
}

#[test]
fn single_blocks_are_written_over_in_zones_of_full_size_too() {
    let full_size = |cells: Vec<cells::Cell>, zones, zone_mib| {
        let is_meant = |cell: &&cells::Cell| (cell.zones, cell.zone_mib) == (zones, zone_mib);
        let of_uniform = cells.iter().filter(|cell| cell.workload == "uniform").filter(is_meant);
        of_uniform.map(|cell| (cell.fill, cell.fsync)).collect::<Vec<_>>()
    };
    for (zones, zone_mib) in [(64, 64), (256, 16)] {
        let expected = [(60, false), (80, false), (80, true), (90, false)];
        assert_eq!(full_size(cells::all(1), zones, zone_mib), expected);
        assert_eq!(full_size(cells::quick(1), zones, zone_mib), []);
    }
}

#[test]
fn a_name_chooses_one_part() {
    let chosen = |only: Option<&str>, quick| {
        let only = only.map(str::to_owned);
        let Chosen { cells, usable, pieces, beside } =
            Chosen::by(&Args { quick, resume: false, again: 0, seed: 1, docs: false, only })?;
        anyhow::Ok([cells.len(), usable.len(), pieces.len(), beside.len()])
    };
    let all = chosen(None, false).unwrap();
    assert!(all.iter().all(|count| *count > 0), "{all:?}");
    for quick in [false, true] {
        let [cells, usable, pieces, beside] = chosen(None, quick).unwrap();
        assert_eq!(chosen(Some("usable"), quick).unwrap(), [0, usable, 0, 0]);
        assert_eq!(chosen(Some("pieces"), quick).unwrap(), [0, 0, pieces, 0]);
        assert_eq!(chosen(Some("beside"), quick).unwrap(), [0, 0, 0, beside]);
        let [zipf, nothing @ ..] = chosen(Some("zipf"), quick).unwrap();
        assert!((1..cells).contains(&zipf) && nothing == [0; 3], "{zipf} {nothing:?}");
    }
    assert!(chosen(Some("usables"), true).is_err());
}

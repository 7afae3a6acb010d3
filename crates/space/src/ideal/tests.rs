use super::*;
use crate::trace::{Trace, Workload};

/// The amplification after filling, and after this many times the level.
fn run(workload: Workload, zones: usize, zone_blocks: usize, level: u64, warm: u64, measured: u64) -> f64 {
    let mut collector = Collector::new(zones, zone_blocks);
    let mut trace = Trace::new(workload, level, 7);
    let mut go_on = |collector: &mut Collector, until: u64, fill: bool| {
        while collector.written().user < until || (fill && !trace.is_filled()) {
            collector.apply(&trace.next().unwrap()).unwrap();
            assert!(collector.live() <= level);
        }
    };
    go_on(&mut collector, warm * level, true);
    let before = collector.written();
    go_on(&mut collector, before.user + measured * level, false);
    collector.written().since(before).amplification()
}

#[test]
fn the_formula_gives_published_figures() {
    // Xiang and Kurkoski: overprovisioning of 0.3 gives 2.36.
    assert!((uniform_optimum(1.3, 1.0) - 2.36).abs() < 0.005, "{}", uniform_optimum(1.3, 1.0));
    assert!((uniform_optimum(100.0, 1.0) - 1.0).abs() < 1e-6);
}

#[test]
fn uniform_writes_cost_as_much_as_the_formula_says() {
    for (zones, fill) in [(64, 0.6), (64, 0.8), (128, 0.9)] {
        let zone_blocks = 512;
        let level = (zones as f64 * zone_blocks as f64 * fill) as u64;
        let found = run(Workload::Uniform, zones, zone_blocks, level, 4, 4);
        // One zone is in reserve.
        let expected = uniform_optimum((zones - 1) as f64 * zone_blocks as f64, level as f64);
        let ratio = found / expected;
        assert!((0.95..1.03).contains(&ratio), "{zones} zones, {fill} full: {found} instead of {expected}");
    }
}

#[test]
fn live_blocks_are_those_of_the_files_and_nothing_is_moved_before_zones_are_short() {
    let mut collector = Collector::new(16, 1024);
    let mut trace = Trace::new(Workload::Uniform, 4096, 1);
    while !trace.is_filled() {
        collector.apply(&trace.next().unwrap()).unwrap();
    }
    assert_eq!((collector.live(), collector.written()), (4096, Written { user: 4096, moved: 0 }));
    while collector.written().user < 14 * 1024 {
        collector.apply(&trace.next().unwrap()).unwrap();
    }
    assert_eq!((collector.live(), collector.written().moved), (4096, 0));
}

#[test]
fn gc_cannot_free_zones_full_of_live_blocks() {
    let mut collector = Collector::new(4, 64);
    let name = crate::trace::Name { directory: "files", suffix: "" };
    let class = crate::trace::Class::Unknown;
    collector.apply(&Op::Create { file: 1, name, class }).unwrap();
    collector.apply(&Op::Write { file: 1, start: 0, blocks: 192 }).unwrap();
    assert_eq!(collector.apply(&Op::Write { file: 1, start: 192, blocks: 1 }), Err(Full));
}

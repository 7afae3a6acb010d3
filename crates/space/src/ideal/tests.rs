use super::*;
use crate::trace::{Trace, Workload};

/// The amplification after filling and so many times the level.
fn run(workload: Workload, zones: usize, zone_blocks: usize, level: u64, warm: u64, measured: u64) -> f64 {
    let mut cleaner = Cleaner::new(zones, zone_blocks);
    let mut trace = Trace::new(workload, level, 7);
    let mut go_on = |cleaner: &mut Cleaner, until: u64, fill: bool| {
        while cleaner.written().user < until || (fill && !trace.is_filled()) {
            cleaner.apply(&trace.next().unwrap()).unwrap();
            assert!(cleaner.live() <= level);
        }
    };
    go_on(&mut cleaner, warm * level, true);
    let before = cleaner.written();
    go_on(&mut cleaner, before.user + measured * level, false);
    cleaner.written().since(before).amplification()
}

#[test]
fn the_formula_gives_published_figures() {
    // Xiang and Kurkoski: overprovisioning of 0.3 gives 2.36.
    assert!((uniform_optimum(1.3, 1.0) - 2.36).abs() < 0.005, "{}", uniform_optimum(1.3, 1.0));
    assert!((uniform_optimum(100.0, 1.0) - 1.0).abs() < 1e-6);
}

#[test]
fn uniform_writes_cost_what_the_formula_says() {
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
fn what_lives_is_what_the_files_have_and_nothing_is_moved_before_zones_are_short() {
    let mut cleaner = Cleaner::new(16, 1024);
    let mut trace = Trace::new(Workload::Uniform, 4096, 1);
    while !trace.is_filled() {
        cleaner.apply(&trace.next().unwrap()).unwrap();
    }
    assert_eq!((cleaner.live(), cleaner.written()), (4096, Written { user: 4096, moved: 0 }));
    while cleaner.written().user < 14 * 1024 {
        cleaner.apply(&trace.next().unwrap()).unwrap();
    }
    assert_eq!((cleaner.live(), cleaner.written().moved), (4096, 0));
}

#[test]
fn zones_that_are_full_of_what_lives_cannot_be_cleaned() {
    let mut cleaner = Cleaner::new(4, 64);
    let name = crate::trace::Name { directory: "files", suffix: "" };
    let class = crate::trace::Class::Unknown;
    cleaner.apply(&Op::Create { file: 1, name, class }).unwrap();
    cleaner.apply(&Op::Write { file: 1, start: 0, blocks: 192 }).unwrap();
    assert_eq!(cleaner.apply(&Op::Write { file: 1, start: 192, blocks: 1 }), Err(Full));
}

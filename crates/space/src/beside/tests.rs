use super::*;

fn beside(fill_percent: u64) -> Beside {
    Beside {
        workload: Workload::SmallFiles,
        fill_percent,
        shape: Shape::new(64, 4 << 20),
        medium: Medium::Ssd,
        warm_percent: 50,
        milliseconds: 2000,
        seed: 3,
        check: true,
    }
}

/// The time in which the device takes a piece of GC of these zones, 256 KiB.
const PIECE_NS: u64 = 250_000;

/// A reader waits only for the device, even where writers are throttled, because no thread holds a lock that a reader
/// needs while it waits for the device. A client that writes little is throttled now and then.
#[test]
fn a_reader_waits_only_for_the_device_however_much_writers_are_throttled() {
    let (free, full) = (beside(30).run().unwrap(), beside(85).run().unwrap());
    assert!(free.wrote.moved_per_written < 0.01 && full.wrote.moved_per_written > 0.2, "{free:?} {full:?}");
    for seen in [free, full] {
        let Others { reads_of_4_kib, reads_of_64_kib, fsyncs, .. } = seen.alone;
        assert_eq!(reads_of_4_kib.all.p50_ns, 70_000, "a read by itself: {seen:?}");
        assert!(fsyncs.all.p50_ns >= 30_000, "an append and a flush: {seen:?}");
        assert_eq!(reads_of_64_kib.for_others.max_ns, 0, "{seen:?}");
        assert_eq!(seen.beside.reads_of_4_kib.for_others.max_ns, 0, "{seen:?}");
        assert_eq!(seen.beside.reads_of_64_kib.for_others.max_ns, 0, "{seen:?}");
    }
    let waits = |seen: &Seen| seen.beside.writes_of_4_kib.for_others;
    assert_eq!(waits(&free).p50_ns, 0, "without GC nothing delays a write");
    assert!(waits(&full).p50_ns < PIECE_NS, "most writes wait for less than a piece of GC: {full:?}");
    assert!(waits(&full).p99_ns > waits(&free).p99_ns, "and is throttled once it has accumulated: {full:?}");
}

#[test]
fn it_repeats_to_the_last_digit() {
    let short = Beside { milliseconds: 200, warm_percent: 0, ..beside(60) };
    assert_eq!(short.run().unwrap(), short.run().unwrap());
}

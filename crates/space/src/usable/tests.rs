use super::*;

fn usable(zones: u32, zone_bytes: u64, reserve: Reserve) -> Seen {
    seen(Shape::new(zones, zone_bytes), reserve)
}

fn seen(shape: Shape, reserve: Reserve) -> Seen {
    Usable { shape, reserve, churn_permille: 500, seed: 1 }.run().unwrap()
}

#[test]
fn what_is_offered_can_be_written_and_written_over() {
    let larger = Shape { block_bytes: 16 << 10, ..Shape::new(20, 4 << 20) };
    let of = |reserve| usable(20, 4 << 20, reserve);
    for seen in [of(Reserve::default()), of(Reserve::LEAST), seen(larger, Reserve::LEAST)] {
        assert_eq!(seen.filled_bytes, seen.offered_bytes);
        assert!(seen.churned_bytes > seen.offered_bytes / 3 && seen.amplification > 1.0, "{seen:?}");
    }
}

/// The least costs three zones less than the default at least: nothing is kept for garbage that waits.
#[test]
fn a_reserve_is_what_data_never_has() {
    let by_default = usable(24, 4 << 20, Reserve::default());
    let least = usable(24, 4 << 20, Reserve::LEAST);
    assert!(least.offered_bytes > by_default.offered_bytes + (4 << 20), "{least:?} {by_default:?}");
    let half = usable(24, 4 << 20, Reserve(5_000));
    let raw = 24 * (4 << 20);
    assert_eq!(half.offered_bytes, raw / 2, "{half:?}");
}

use super::*;

fn usable(zones: u32, zone_bytes: u64, reserve: Reserve) -> Seen {
    seen(Shape::new(zones, zone_bytes), reserve)
}

fn seen(shape: Shape, reserve: Reserve) -> Seen {
    Usable { shape, reserve, churn_permille: 500, seed: 1 }.run().unwrap()
}

#[test]
fn available_space_can_be_written_and_overwritten() {
    let larger = Shape { block_bytes: 16 << 10, ..Shape::new(20, 4 << 20) };
    let of = |reserve| usable(20, 4 << 20, reserve);
    for seen in [of(Reserve::default()), seen(larger, Reserve::default())] {
        assert_eq!(seen.filled_bytes, seen.offered_bytes);
        assert!(seen.churned_bytes > seen.offered_bytes / 3 && seen.amplification > 1.0, "{seen:?}");
    }
}

#[test]
fn data_never_gets_the_reserve() {
    let half = usable(24, 4 << 20, Reserve(5_000));
    let raw = 24 * (4 << 20);
    assert_eq!(half.offered_bytes, raw / 2, "{half:?}");
}

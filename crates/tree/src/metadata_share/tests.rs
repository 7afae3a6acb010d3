use super::*;

/// Blocks that GC of data and metadata moves with these dead blocks of each, by the approximation that the share is
/// based on.
fn moved(written: [f64; 2], live: [u64; 2], dead: [f64; 2]) -> f64 {
    (0..2).map(|index| written[index] * live[index] as f64 / (2.0 * dead[index])).sum()
}

#[test]
fn no_other_share_moves_fewer_blocks() {
    for (bytes, live, dead_or_free) in [
        ([4096, 3900], [778_000, 17_000], 220_000),
        ([4096, 1500], [158_000, 4_000], 60_000),
        ([1 << 20, 4096], [700_000, 1_000], 120_000),
    ] {
        let mut metadata_share = MetadataShare::default();
        (1..100).for_each(|times| metadata_share.update([bytes[0] * times, bytes[1] * times]));
        let best = metadata_share.for_metadata(live, dead_or_free) as f64;
        let written = [bytes[0] as f64, bytes[1] as f64];
        let of = |metadata: f64| moved(written, live, [dead_or_free as f64 - metadata, metadata]);
        for share in 1..100 {
            let other = dead_or_free as f64 * f64::from(share) / 100.0;
            assert!(of(best) <= of(other) * 1.0001, "{other} of {dead_or_free} is better than {best}");
        }
    }
}

#[test]
fn old_writes_lose_their_weight() {
    let mut metadata_share = MetadataShare::default();
    metadata_share.update([0, 1 << 30]);
    let share = |metadata_share: &MetadataShare| metadata_share.for_metadata([100_000, 1_000], 10_000);
    assert_eq!(share(&metadata_share), 5_000, "half if no data is written");
    (1..1000).for_each(|times| metadata_share.update([times << 20, 1 << 30]));
    assert!(share(&metadata_share) < 10, "almost nothing if no metadata is written");
}

#[test]
fn the_share_is_empty_without_dead_blocks() {
    let mut metadata_share = MetadataShare::default();
    metadata_share.update([1, 1]);
    assert_eq!(metadata_share.for_metadata([0, 0], 0), 0);
    assert_eq!(MetadataShare::default().for_metadata([5, 5], 9), 0);
}

/// Data loses one zone at a time, and only after as many bytes have been written as a zone takes.
#[test]
fn the_share_grows_when_a_zone_has_been_written() {
    let mut metadata_share = MetadataShare::default();
    metadata_share.update([99, 0]);
    assert!(!metadata_share.may_grow(100));
    metadata_share.update([100, 0]);
    assert!(metadata_share.may_grow(100));
    metadata_share.has_grown();
    metadata_share.update([199, 1000]);
    assert!(!metadata_share.may_grow(100));
    metadata_share.update([200, 1000]);
    assert!(metadata_share.may_grow(100));
}

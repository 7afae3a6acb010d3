use super::*;

#[test]
fn a_duration_is_in_the_bucket_with_the_next_bound() {
    for exponent in 0..64 {
        let around = 1_u64 << exponent;
        for duration in [around - 1, around, around + 1, around + around / 4, around + (around - 1) / 2] {
            let bucket = bucket_of(duration);
            assert!(duration < duration_bound_ns(bucket) || bucket == DURATION_BUCKETS - 1, "{duration}");
            assert!(bucket == 0 || duration >= duration_bound_ns(bucket - 1), "{duration}");
        }
    }
    assert_eq!(bucket_of(u64::MAX), DURATION_BUCKETS - 1);
}

#[test]
fn bounds_grow_by_a_quarter_at_most() {
    let bounds: Vec<u64> = (0..DURATION_BUCKETS - 1).map(duration_bound_ns).collect();
    for pair in bounds.windows(2) {
        assert!(pair[0] < pair[1] && pair[1] - pair[0] <= pair[0] / 4, "{pair:?}");
    }
    assert_eq!((bounds[0], bounds.last()), (1024, Some(&(1 << 35))));
    assert_eq!(duration_bound_ns(DURATION_BUCKETS - 1), u64::MAX);
}

#[test]
fn the_channels_of_a_mount_are_added() {
    let times = RequestTimes::default();
    let channels = [times.add_channel(), times.add_channel()];
    channels[0].count(RequestKind::Read, 5_000);
    channels[0].count_bytes(RequestKind::Read, 4096);
    channels[1].count(RequestKind::Read, 5_000);
    channels[1].count(RequestKind::Sync, 3_000_000);
    let durations = times.durations();
    let of = |kind: RequestKind| durations.iter().find(|of| of.kind == kind).unwrap();
    let read = of(RequestKind::Read);
    assert_eq!((read.total_ns, read.reply_bytes, read.buckets[bucket_of(5_000)]), (10_000, 4096, 2));
    assert_eq!(of(RequestKind::Sync).buckets.iter().sum::<u64>(), 1);
    assert_eq!(of(RequestKind::Change).buckets.iter().sum::<u64>(), 0);
}

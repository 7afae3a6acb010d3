use super::*;

#[test]
fn a_bucket_is_at_most_one_sixty_fourth_wide() {
    for power in 0..64 {
        for near in [0, 1, 12_345] {
            let took_ns = (1_u64 << power) + near % (1 << power).max(1);
            let found = middle_ns(bucket(took_ns));
            assert!(found.abs_diff(took_ns) <= took_ns / 64, "{took_ns} is found as {found}");
        }
    }
    assert!(bucket(u64::MAX) < BUCKETS);
}

#[test]
fn neighbouring_times_have_neighbouring_buckets() {
    let buckets: Vec<usize> = (0..100_000).map(bucket).collect();
    assert!(buckets.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
}

#[test]
fn quantiles_count_the_operations_of_all_threads() {
    let (mut fast, mut slow) = (Latencies::default(), Latencies::default());
    (0..990).for_each(|_| fast.add(100));
    (0..10).for_each(|_| slow.add(1_000_000));
    fast.merge(&slow);
    assert_eq!(fast.operations(), 1000);
    assert_eq!([0.5, 0.99].map(|part| fast.quantile_ns(part)), [100, 100]);
    assert!(fast.quantile_ns(0.999).abs_diff(1_000_000) < 16_000);
    assert_eq!(Latencies::default().quantile_ns(0.5), 0);
}

use super::*;

#[test]
fn a_small_device_is_measured_like_a_large_one() {
    let shape = Shape::new(64, 4 << 20);
    let seen = Many { shape, used: 32, seed: 3 }.run().unwrap();
    assert!(seen.data_zones >= 32 && seen.victims_looked_at >= 32, "{seen:?}");
    assert!(seen.killed.records > 0 && seen.evacuated_zones > 0 && seen.freed_zones > 8, "{seen:?}");
    assert!(seen.kept_bytes < seen.written_bytes / 20, "data are not kept: {seen:?}");
}

#[test]
fn a_device_that_would_be_full_is_refused() {
    let shape = Shape::new(64, 4 << 20);
    assert!(Many { shape, used: 60, seed: 3 }.run().is_err());
}

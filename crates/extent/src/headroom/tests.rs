use super::*;

/// A zone of 64 MiB was forecast over the last 8 MiB of metadata. Meanwhile users may fill many zones, and all that time one
/// more zone was collected for than anything needed.
#[test]
fn metadatas_next_zone_is_forecast_over_the_last_of_its_headroom() {
    assert_eq!(forecast(512, 4096, 512), 0.0);
    assert_eq!(forecast(256, 4096, 512), 0.5);
    assert_eq!(forecast(0, 4096, 512), 1.0);
    assert_eq!(forecast(-2048, 4096, 512), 1.5, "what does not fit into one zone takes a part of another");
    assert_eq!((forecast(512, 16384, 512), forecast(256, 16384, 512)), (0.0, 0.5), "however long zones are");
    assert_eq!((forecast(32, 256, 512), forecast(16, 256, 512)), (0.0, 0.5), "an eighth of short zones");
}

/// The next checkpoint's writes counted as long as nodes were dirty. For fifty zones of user data and more, one zone was
/// collected for that nothing took.
#[test]
fn the_writes_of_an_epochs_end_are_forecast_in_its_last_part() {
    let of = |zones: f64| [0.0, 0.5, 0.75, 0.875, 1.0, 1.3].map(|share| of_epoch(share, zones * share));
    assert_eq!(of(100.0), [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]);
    assert_eq!(of(2.0), [0.0, 0.0, 0.5, 0.75, 1.0, 1.0], "a zone of user data before the end");
    assert_eq!(of(0.5), [0.0, 0.5, 0.75, 0.875, 1.0, 1.0], "all the time if no zone is filled in the epoch");
    assert_eq!(of_epoch(1.0, 0.0), 1.0);
    let epoch = EpochWrites::default();
    assert_eq!([(0, 70), (0, 100), (1, 120), (1, 125)].map(|(n, at)| epoch.written(n, at)), [0, 30, 0, 5]);
}

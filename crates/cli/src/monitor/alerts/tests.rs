use super::*;
use crate::monitor::rates::RequestRates;
use crate::name::AnyPath;
use crate::sets::SetInfo;

/// A sample of a small volume without trouble.
pub(in crate::monitor) fn sample() -> Sample {
    serde_json::from_str(include_str!("sample.json")).unwrap()
}

fn changed(change: impl FnOnce(&mut Sample)) -> Vec<Alert> {
    let mut sample = sample();
    change(&mut sample);
    let mut throttled = Throttled::default();
    throttled.note(&sample);
    alerts(&sample, &Rates::default(), throttled)
}

#[test]
fn a_sound_volume_has_no_alerts() {
    assert_eq!(changed(|_| {}), []);
}

#[test]
fn each_trouble_is_reported_once() {
    let one = |change: fn(&mut Sample), level, words: &str| {
        let alerts = changed(change);
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        assert_eq!(alerts[0].level, level, "{alerts:?}");
        assert!(alerts[0].what.contains(words) && !alerts[0].remedy.is_empty(), "{alerts:?}");
    };
    use Level::{Critical, Warning};
    one(|sample| sample.info.shutdown_reason = Some("a write failed".into()), Critical, "a write failed");
    one(|sample| sample.info.closing = true, Warning, "being closed");
    one(|sample| sample.zone_faults.offline = 2, Critical, "2 zones");
    one(|sample| sample.zone_faults.read_only = 3, Warning, "3 zones");
    one(|sample| sample.stats.gc.as_mut().unwrap().blocks_lost = 7, Critical, "7 blocks");
    one(|sample| sample.stats.stored.available_bytes = Some(1 << 20), Critical, "1 MiB");
    one(|sample| sample.stats.stored.available_bytes = Some(8 << 20), Warning, "8 MiB");
    one(|sample| sample.stats.gc.as_mut().unwrap().moved_per_written = 2.5, Warning, "throttled: up to 2.5");
    one(|sample| sample.info.host_available_bytes = Some(0), Warning, "file system");
}

/// The remedy for a rebuild is to wait, and not to replace the member again.
#[test]
fn a_degraded_set_is_reported_with_its_own_remedy() {
    let alerts = changed(|sample| {
        let mut set = SetInfo::single(AnyPath("a".into()), 64);
        set.problem = Some("set 0, a mirror: member 1 is being rebuilt".to_owned());
        set.remedy = Some("wait".to_owned());
        sample.info.sets = vec![set];
    });
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let Alert { level, what, remedy } = &alerts[0];
    assert!(*level == Level::Warning && what.contains("is being rebuilt") && remedy == "wait", "{alerts:?}");
}

#[test]
fn a_read_only_mount_is_not_nearly_full() {
    let full = |sample: &mut Sample| {
        sample.stats.stored.available_bytes = Some(0);
        sample.info.read_only = Some(true);
    };
    assert_eq!(changed(full), []);
}

#[test]
fn slow_requests_are_reported_by_kind_and_critical_alerts_come_first() {
    let mut rates = Rates::default();
    let slow = RequestRates { p99: Some(2.5), ..RequestRates::default() };
    rates.requests.insert("sync".to_owned(), slow);
    let mut sample = sample();
    sample.info.shutdown_reason = Some("gone".to_owned());
    let alerts = alerts(&sample, &rates, Throttled::default());
    assert!(alerts[0].level == Level::Critical && alerts[1].what.contains("sync"), "{alerts:?}");
}

#[test]
fn throttling_is_reported_for_a_minute() {
    let mut throttled = Throttled::default();
    let mut sample = sample();
    let ratios = [(10.0, 2.0), (11.0, 7.0), (12.0, 3.0), (13.0, 0.0)];
    for (at, ratio) in ratios {
        sample.up_seconds = at;
        sample.stats.gc.as_mut().unwrap().moved_per_written = ratio;
        throttled.note(&sample);
        let alerts = alerts(&sample, &Rates::default(), throttled);
        let most = if at < 11.0 { "up to 2.0" } else { "up to 7.0" };
        assert!(alerts.len() == 1 && alerts[0].what.contains(most), "{at}: {alerts:?}");
    }
    sample.up_seconds = 73.0;
    assert_eq!(alerts(&sample, &Rates::default(), throttled), []);
}

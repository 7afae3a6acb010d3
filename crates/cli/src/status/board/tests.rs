use anyhow::anyhow;
use serde_json::Value;

use super::*;

fn sample(up_seconds: f64) -> Sample {
    let mut sample: Sample = serde_json::from_str(include_str!("../../monitor/alerts/sample.json")).unwrap();
    sample.up_seconds = up_seconds;
    sample
}

fn report(up_seconds: f64) -> Arc<Report> {
    Arc::new(Report::of(sample(up_seconds), None, &mut Throttled::default()).unwrap())
}

#[test]
fn a_report_has_the_map_apart_from_the_event() {
    let report = report(10.0);
    let event: Value = serde_json::from_str(&report.event).unwrap();
    assert!(event["sample"]["zone_map"].is_null() && event["rates"]["seconds"] == 10.0, "{event}");
    assert!(!report.event.contains('\n'), "an event is one line");
    let map: Value = serde_json::from_str(&report.map).unwrap();
    assert_eq!(map["zones"], 64);
}

/// A device that hangs holds the thread that takes samples, and nothing else.
#[test]
fn the_last_report_stays_while_no_sample_is_taken() {
    let board = Arc::new(Board::default());
    assert!(board.report_within(Duration::from_millis(1)).is_none());
    let taking = Arc::clone(&board);
    let taken = Mutex::new(false);
    let take = move || match std::mem::replace(&mut *taken.lock(), true) {
        false => Ok(sample(10.0)),
        true => Err(anyhow!("the device does not answer")),
    };
    rt::thread::spawn("takes", move || taking.keep_taking(take)).unwrap();
    let (number, first) = board.next_report(0, Duration::from_secs(20)).unwrap();
    let age = board.age_seconds();
    assert!(board.next_report(number, INTERVAL + INTERVAL / 2).is_none());
    assert!(board.age_seconds() >= age + 1.0);
    let last = board.report_within(Duration::ZERO).unwrap();
    assert!(Arc::ptr_eq(&first, &last));
}

#[test]
fn the_history_gets_a_point_for_each_step() {
    let mut begin = None;
    let points = (0..60).filter_map(|second| point_after(&report(f64::from(second) + 10.0), &mut begin));
    assert_eq!(points.count() as u64, 59 / STEP_SECONDS);
}

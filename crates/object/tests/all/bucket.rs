//! A bucket of a server that speaks the protocol of S3.

use std::sync::Arc;

use bytes::Bytes;
use polder_object::{Created, ObjectDevice, Remote, Store};
use rt::{ManualClock, Timestamp};

use crate::model::{GRACE_NS, found, options, shape};
use zone::{Device, ZoneId};

/// The place for volumes, such as `s3://bucket/place`. The credentials are those of the environment.
const URL: &str = "POLDER_OBJECT_URL";

#[test]
#[ignore = "needs a server: POLDER_OBJECT_URL, AWS_ENDPOINT_URL and credentials"]
fn a_volume_in_a_bucket_has_what_was_flushed() {
    let url = std::env::var(URL).unwrap();
    let store = Arc::new(Remote::at_url(&url).unwrap());
    let shared = || Arc::<Remote>::clone(&store);
    assert_eq!(store.create("once", Bytes::from_static(b"1")).wait(), Ok(Created::New));
    assert_eq!(store.create("once", Bytes::from_static(b"2")).wait(), Ok(Created::Exists));
    assert_eq!(store.read("once", None), Ok(Bytes::from_static(b"1")));
    store.delete("once").unwrap();

    ObjectDevice::create(&*store, &shape(7), true).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let device = ObjectDevice::open(shared(), &options(&clock, 1, false)).unwrap();
    for round in 0..40_u64 {
        let zone = ZoneId(round as u32 % 6);
        if device
            .append(zone, &[&crate::model::block(round)[..], &crate::model::block(round + 99)[..]].concat())
            .is_err()
        {
            device.reset(zone).unwrap();
        }
        device.flush().unwrap();
        clock.advance(2 * GRACE_NS);
        while device.discard_one_zone() {}
    }
    let contents = found(&device);
    // Another process takes over; this one notices at its next flush.
    let other = ObjectDevice::open(shared(), &options(&clock, 2, true)).unwrap();
    assert_eq!(found(&other), contents);
    device.reset(ZoneId(0)).unwrap();
    let refusal = device.flush().unwrap_err().to_string();
    assert!(refusal.contains("process 2 on elsewhere has taken over"), "{refusal}");
    drop(device);
    drop(other);
    let again = ObjectDevice::open(shared(), &options(&clock, 3, false)).unwrap();
    assert_eq!(found(&again), contents);
    let names = store.list("", "").unwrap();
    println!("{} objects", names.len());
    assert!(names.len() < 60, "{names:?}");
}

//! A bucket of a server that speaks the protocol of S3.

use std::sync::Arc;

use bytes::Bytes;
use polder_object::{Created, Credentials, ObjectDevice, Remote, Store, StoreError};
use rt::{ManualClock, Timestamp};
use zone::{Device, ZoneId};

use crate::model::{GRACE_NS, block, found, options, shape};
use crate::server::{Faults, Server};

fn store(server: &Server) -> Arc<Remote> {
    let credentials = Credentials {
        endpoint: Some(server.url.clone()),
        access_key: "key".to_owned(),
        secret_key: "secret".to_owned(),
        region: "here".to_owned(),
    };
    Arc::new(Remote::with_credentials("s3://bucket/some/place", &credentials).unwrap())
}

#[test]
fn a_volume_in_a_bucket_has_what_was_flushed() {
    let server = Server::start();
    let store = store(&server);
    let shared = || Arc::<Remote>::clone(&store);
    ObjectDevice::create(&*store, &shape(7), false).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let device = ObjectDevice::open(shared(), &options(&clock, 1, false)).unwrap();
    for round in 0..40_u64 {
        let zone = ZoneId(round as u32 % 6);
        if device.append(zone, &[block(round), block(round + 99)].concat()).is_err() {
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
    let names = server.names();
    assert!(names.len() < 60 && names.iter().all(|name| name.starts_with("some/place/")), "{names:?}");
}

#[test]
fn objects_of_a_bucket_are_created_once_whatever_the_server_answers() {
    let server = Server::start();
    let store = store(&server);
    for (number, faults) in [
        Faults::default(),
        Faults { lost_replies: 1, ..Faults::default() },
        Faults { busy: 2, ..Faults::default() },
    ]
    .into_iter()
    .enumerate()
    {
        let is_lost = faults.lost_replies > 0;
        server.plan(faults);
        let name = format!("a/{number}");
        let created = store.create(&name, Bytes::from(vec![number as u8])).wait().unwrap();
        assert_eq!(created, if is_lost { Created::Exists } else { Created::New }, "{name}");
        assert_eq!(store.read(&name, None).unwrap(), [number as u8][..]);
        assert_eq!(store.create(&name, Bytes::from_static(b"other")).wait(), Ok(Created::Exists));
    }
    assert!(server.creations() > 6, "requests were repeated");
    // The store refused, and there is nothing: the device creates it again.
    server.plan(Faults { conflicts: 1, ..Faults::default() });
    assert_eq!(store.create("a/9", Bytes::from_static(b"9")).wait(), Ok(Created::Exists));
    assert_eq!(store.read("a/9", None), Err(StoreError::NotFound("a/9".to_owned())));
    for name in ["a/4", "a/5", "b/1"] {
        assert_eq!(store.create(name, Bytes::from_static(b"12345")).wait(), Ok(Created::New));
    }
    assert_eq!(store.list("a/", "").unwrap(), ["a/0", "a/1", "a/2", "a/4", "a/5"]);
    assert_eq!(store.list("a/", "a/2").unwrap(), ["a/4", "a/5"]);
    assert_eq!(store.read("a/4", Some(1..3)).unwrap(), b"23"[..]);
    assert_eq!((store.delete("a/4"), store.delete("a/4")), (Ok(()), Ok(())));
    assert_eq!(store.list("a/", "a/2").unwrap(), ["a/5"]);
}

#[test]
fn conflicts_and_lost_replies_do_not_disturb_a_volume() {
    let server = Server::start();
    let store = store(&server);
    ObjectDevice::create(&*store, &shape(7), false).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let device = ObjectDevice::open(Arc::<Remote>::clone(&store), &options(&clock, 1, false)).unwrap();
    for round in 0..12_u64 {
        let faults =
            Faults { lost_replies: round as u32 % 2, conflicts: round as u32 % 3, ..Faults::default() };
        server.plan(faults);
        device.append(ZoneId(round as u32 % 4), &[block(round), block(round + 50)].concat()).unwrap();
        device.flush().unwrap();
    }
    server.plan(Faults::default());
    let contents = found(&device);
    drop(device);
    let again = ObjectDevice::open(store, &options(&clock, 1, false)).unwrap();
    assert_eq!(found(&again), contents);
}

#[test]
fn wrong_credentials_are_reported_and_not_shown() {
    let server = Server::start();
    let store = store(&server);
    server.plan(Faults { is_forbidden: true, ..Faults::default() });
    let refusal = ObjectDevice::create(&*store, &shape(7), false).unwrap_err().to_string();
    assert!(refusal.contains("s3://bucket/some/place") && !refusal.contains("secret"), "{refusal}");
    assert!(matches!(store.read("a", None), Err(StoreError::Refused(_))), "{refusal}");
}

//! A bucket of a server that speaks the protocol of S3.

use std::sync::Arc;

use bytes::Bytes;
use emulated::bucket::{Faults, Server};
use polder_object::{Created, Credentials, ObjectDevice, Remote, Store, StoreError};
use rt::{ManualClock, Timestamp};
use zone::{Device, ZoneId};

use crate::model::{GRACE_NS, block, found, options, shape};

fn store(server: &Server) -> Arc<Remote> {
    let credentials = Credentials {
        endpoint: Some(server.url().to_owned()),
        access_key: "key".to_owned(),
        secret_key: "secret".to_owned(),
        region: "here".to_owned(),
    };
    Arc::new(Remote::with_credentials("s3://bucket/some/place", &credentials).unwrap())
}

#[test]
fn a_volume_in_a_bucket_has_what_was_flushed() {
    let server = Server::start().unwrap();
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
    let server = Server::start().unwrap();
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
    let server = Server::start().unwrap();
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
fn refusals_say_what_to_do_and_show_no_secrets() {
    let server = Server::start().unwrap();
    let store = store(&server);
    for (faults, advice) in [
        (
            Faults { forbidden: Some("SignatureDoesNotMatch"), ..Faults::default() },
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        ),
        (
            Faults { forbidden: Some("AccessDenied"), ..Faults::default() },
            "AccessDenied: The server says so.); check the credentials and their rights",
        ),
        (Faults { is_read_only: true, ..Faults::default() }, "check the credentials and their rights"),
        (Faults { has_no_bucket: true, ..Faults::default() }, "the bucket or directory does not exist"),
    ] {
        server.plan(faults);
        let refusal = ObjectDevice::create(&*store, &shape(7), false).unwrap_err().to_string();
        assert!(refusal.contains("s3://bucket/some/place") && refusal.contains(advice), "{refusal}");
        for secret in ["secret", "the-access-key", "the-signed"] {
            assert!(!refusal.contains(secret), "{refusal}");
        }
        let refused = store.create("a", Bytes::from_static(b"a")).wait();
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    server.plan(Faults { ignores_conditions: true, ..Faults::default() });
    let refusal = ObjectDevice::create(&*store, &shape(7), false).unwrap_err().to_string();
    assert!(refusal.contains("use a store that supports conditional writes"), "{refusal}");
}

/// `polder info` with a wrong address waited for minutes.
#[test]
fn a_store_that_never_answered_is_given_up_soon() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let credentials = Credentials {
        endpoint: Some(format!("http://{nowhere}")),
        access_key: "key".to_owned(),
        secret_key: "secret".to_owned(),
        region: "here".to_owned(),
    };
    let store = Remote::with_credentials("s3://bucket/some/place", &credentials).unwrap();
    let clock = rt::SystemClock::new();
    let refusal = ObjectDevice::probe(&store).unwrap_err().to_string();
    assert!(rt::Clock::monotonic_ns(&clock) < 60_000_000_000);
    assert!(refusal.contains("cannot be reached") && refusal.contains("AWS_ENDPOINT_URL"), "{refusal}");
}

#[test]
fn directories_are_listed_without_what_is_in_them() {
    let server = Server::start().unwrap();
    let store = store(&server);
    for name in ["a/1", "a/2", "b/c/1", "d/1", "e/1", "f", "with space/1"] {
        store.create(name, Bytes::from_static(b"x")).wait().unwrap();
    }
    let expected = ["a", "b", "d", "e", "with%20space"].map(|name| format!("s3://bucket/some/place/{name}"));
    assert_eq!(store.directories().unwrap(), expected);
}

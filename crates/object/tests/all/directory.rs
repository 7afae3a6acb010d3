//! A directory of this machine as a store.

use std::sync::Arc;

use bytes::Bytes;
use polder_object::{Created, ObjectDevice, Remote, Store, StoreError, is_url};
use rt::{ManualClock, Timestamp};
use zone::Device;

use crate::model::{found, options, shape};

#[test]
fn objects_are_created_once_and_listed_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Remote::in_directory(directory.path()).unwrap());
    let creators: Vec<_> = (0..8_u8)
        .map(|number| {
            let store = Arc::clone(&store);
            let create = move || store.create("a/one", Bytes::from(vec![number; 5])).wait().unwrap();
            rt::thread::spawn("creator", create).unwrap()
        })
        .collect();
    let created: Vec<Created> = creators.into_iter().map(|creator| creator.join().unwrap()).collect();
    assert_eq!(created.iter().filter(|created| **created == Created::New).count(), 1, "{created:?}");
    let one = store.read("a/one", None).unwrap();
    assert!(one.len() == 5 && one.iter().all(|byte| *byte == one[0]));
    assert_eq!(store.read("a/one", Some(1..3)).unwrap(), one.slice(1..3));
    for name in ["a/two", "a/three", "b/one"] {
        assert_eq!(store.create(name, Bytes::from_static(b"x")).wait(), Ok(Created::New));
    }
    assert_eq!(store.list("a/", "").unwrap(), ["a/one", "a/three", "a/two"]);
    assert_eq!(store.list("a/", "a/one").unwrap(), ["a/three", "a/two"]);
    assert_eq!(store.read("a/four", None), Err(StoreError::NotFound("a/four".to_owned())));
    assert_eq!((store.delete("a/one"), store.delete("a/one")), (Ok(()), Ok(())));
    assert_eq!(store.list("a/", "").unwrap(), ["a/three", "a/two"]);
}

#[test]
fn a_volume_in_a_directory_is_there_after_it_was_closed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Remote::in_directory(directory.path()).unwrap());
    ObjectDevice::create(&*store, &shape(7), false).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let mut before = None;
    for round in 0..3_u8 {
        let device = ObjectDevice::open(Arc::<Remote>::clone(&store), &options(&clock, 1, false)).unwrap();
        before.inspect(|before| assert_eq!(found(&device), *before));
        for zone in 0..6 {
            device
                .append(zone::ZoneId(zone), &crate::model::block(u64::from(round) << 8 | u64::from(zone)))
                .unwrap();
        }
        device.flush().unwrap();
        before = Some(found(&device));
    }
}

#[test]
fn urls_are_understood_or_refused() {
    assert!(is_url("s3://bucket/place") && is_url("file:///srv"));
    assert!(!is_url("/srv/volume") && !is_url("://x") && !is_url("a/b://c") && !is_url("./s3://b/c"));
    let refusal = |text: &str| Remote::at_url(text).err().unwrap().to_string();
    assert!(refusal("file://srv/volume").contains("three slashes"));
    assert!(refusal("ftp://srv/volume").contains("s3://bucket/place"));
    assert!(refusal("s3:///place").contains("bucket"));
    for text in ["s3://key:secret@bucket/place", "s3://bucket/place?x=1"] {
        let refusal = refusal(text);
        assert!(refusal.contains("AWS_SECRET_ACCESS_KEY") && !refusal.contains("key:"), "{refusal}");
    }
    assert!(refusal("file:///no/such/directory").contains("/no/such/directory"));
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    let store = Remote::at_url(&url).unwrap();
    assert!(store.describe().starts_with(&url));
    assert_eq!(store.list("a/", ""), Ok(Vec::new()));
}

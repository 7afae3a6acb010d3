//! Volumes in object stores.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use polder::{Error, Volume, VolumeOptions};

/// A directory that is used as a store, and the URL of a volume in it.
fn place() -> (tempfile::TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    let url = format!("file://{}/volume", place.path().display());
    (place, url)
}

#[test]
fn a_volume_in_a_store_is_opened_by_its_url() {
    let (place, url) = place();
    let volume = Volume::create(&url).size(64 << 20).label("stored").open().unwrap();
    let mode = std::fs::metadata(place.path().join("volume")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "other users cannot read it");
    volume.write("/file", vec![7; 9 << 20]).unwrap();
    volume.close().unwrap();
    for name in [url.clone(), format!("{url}/"), format!("{url}/../volume")] {
        let volume = Volume::open(&name).unwrap();
        assert!(volume.read("/file").unwrap() == vec![7; 9 << 20]);
        assert_eq!(volume.info().unwrap().label, "stored");
    }
    let reader = VolumeOptions::new().read_only(true).open(&url).unwrap();
    assert_eq!(reader.write("/other", b"").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let exists = Volume::create(&url).size(64 << 20).open().unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists, "{exists}");
    drop(reader);
    let again = Volume::create(&url).size(64 << 20).overwrite(true).open().unwrap();
    assert_eq!(again.read("/file").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn others_on_this_machine_attach_to_the_owner() {
    let (_place, url) = place();
    let owner = Volume::create(&url).size(64 << 20).open().unwrap();
    let attached = Volume::open(&url).unwrap();
    assert!(attached.is_attached() && !owner.is_attached());
    attached.write("/file", b"text").unwrap();
    assert_eq!(owner.read("/file").unwrap(), b"text");
}

#[test]
fn a_volume_in_a_store_has_one_owner() {
    let (_place, url) = place();
    let hour = Duration::from_secs(3600);
    let alone = VolumeOptions::new().share(false).commit_interval(hour);
    let owner = Volume::create(&url).size(64 << 20).open_options(alone).open().unwrap();
    owner.write("/file", b"text").unwrap();
    let error = Volume::open(&url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    let error = Volume::create(&url).size(64 << 20).overwrite(true).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    // What was synced is there, and the first owner notices before it acknowledges anything more.
    owner.sync().unwrap();
    owner.write("/late", b"text").unwrap();
    let next = VolumeOptions::new().takeover(true).open(&url).unwrap();
    assert_eq!(next.read("/file").unwrap(), b"text");
    let lost = owner.sync().unwrap_err();
    assert!(lost.to_string().contains("has taken over the volume"), "{lost}");
    assert!(owner.is_read_only().unwrap());
    assert!(owner.close().is_err());
    next.write("/file", b"more").unwrap();
    next.close().unwrap();
    let volume = Volume::open(&url).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"more");
    assert_eq!(volume.read("/late").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn what_makes_no_sense_for_a_url_is_refused() {
    let (place, url) = place();
    let refusal = |error: Error, kind| {
        assert_eq!(error.kind(), kind, "{error}");
        error.to_string()
    };
    let missing = refusal(Volume::open(&url).unwrap_err(), ErrorKind::NotFound);
    assert!(missing.contains("polder mkfs"), "{missing}");
    let create = || Volume::create(&url).size(64 << 20);
    for options in [create().preallocate(true), create().max_open_zones(9), create().zone_size(4096)] {
        refusal(options.open().unwrap_err(), ErrorKind::InvalidInput);
    }
    refusal(Volume::create(&url).open().unwrap_err(), ErrorKind::InvalidInput);
    let mirror = Volume::create_set(polder::Layout::Mirror, [&url, &format!("{url}-2")]).size(64 << 20);
    let said = refusal(mirror.open().unwrap_err(), ErrorKind::InvalidInput);
    assert!(said.contains("cannot be a member"), "{said}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing was made");
    for wrong in ["s3://", "ftp://host/volume", "file://host/volume", "s3://key:secret@bucket/volume"] {
        let said = Volume::open(wrong).unwrap_err().to_string();
        assert!(!said.contains("secret@") && said.len() > 20, "{said}");
    }
    create().open().unwrap();
    let other = VolumeOptions::new().device("/other").open(&url).unwrap_err();
    assert!(refusal(other, ErrorKind::InvalidInput).contains("no other members"));
    let reader = VolumeOptions::new().read_only(true).takeover(true).open(&url).unwrap_err();
    refusal(reader, ErrorKind::InvalidInput);
    let path = place.path().join("path");
    Volume::create(&path).size(64 << 20).open().unwrap();
    let local = VolumeOptions::new().takeover(true).open(&path).unwrap_err();
    assert!(refusal(local, ErrorKind::InvalidInput).contains("object store"));
}

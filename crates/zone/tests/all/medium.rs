//! Every medium of a volume, opened by its path.
//!
//! Devices with zones are rare, so a guest of `cargo system vm` emulates them: it runs these tests with
//! `POLDER_TEST_DEVICE` set to one. If it is not set, a file is used.

use std::path::PathBuf;
use std::sync::Arc;

use crate::conformance::conforms;
use crate::pattern;
use crate::zone::file::{FileContents, FileError, OpenMode};
use crate::zone::format::{FsId, Role};
use crate::zone::medium::{Medium, VolumeOptions};
use crate::zone::{Cause, DeviceError, Leases, Life, Traffic, ZoneId, ZoneState};

const FS_ID: FsId = FsId([9; 16]);

/// The path under test, its options, and the directory that contains it.
fn medium_under_test() -> (PathBuf, VolumeOptions, Option<tempfile::TempDir>) {
    if let Some(path) = std::env::var_os("POLDER_TEST_DEVICE") {
        return (path.into(), VolumeOptions { fs_id: FS_ID, force: true, ..VolumeOptions::default() }, None);
    }
    let folder = tempfile::tempdir().unwrap();
    let options =
        VolumeOptions { size: Some(48 << 20), max_open: Some(8), fs_id: FS_ID, ..VolumeOptions::default() };
    (folder.path().join("volume"), options, Some(folder))
}

#[test]
fn the_medium_follows_the_contract() {
    let (path, options, _folder) = medium_under_test();
    let made = Medium::draft(&path, &options).unwrap().make(&mut |_, _| {}).unwrap();
    let device = made.into_device();
    println!("{}: {:?}", path.display(), device.geometry());
    conforms(&*device);
}

#[test]
fn the_medium_has_its_contents_after_reopening() {
    let (path, options, _folder) = medium_under_test();
    let made = Medium::draft(&path, &options).unwrap().make(&mut |_, _| {}).unwrap();
    let device = made.into_device();
    let leases = Leases::new(Arc::clone(&device), FS_ID, Arc::new(Traffic::default()));
    let lease = leases.begin(ZoneId(0), Life(1), Role::Log).unwrap();
    assert!(lease.admit(3, 0));
    assert_eq!(lease.append(Cause::Journal, &pattern(&*device, 5, 3)).unwrap(), 1);
    device.append(ZoneId(8), &pattern(&*device, 6, 1)).unwrap();
    device.finish(ZoneId(8)).unwrap();
    let last = ZoneId(device.geometry().zones - 1);
    device.append(last, &pattern(&*device, 7, 2)).unwrap();
    device.flush().unwrap();
    let FileContents::Volume { fs_id, geometry } = Medium::probe(&path).unwrap() else { panic!("no volume") };
    assert_eq!((fs_id, &geometry), (FS_ID, device.geometry()));
    assert!(matches!(Medium::open(&path, OpenMode::ReadWrite), Err(FileError::InUse(_))));
    let taken = Medium::draft(&path, &VolumeOptions { force: false, ..options.clone() });
    assert!(matches!(taken, Err(FileError::InUse(_))));
    drop((lease, leases, device));
    let taken = Medium::draft(&path, &VolumeOptions { force: false, ..options });
    assert!(matches!(taken, Err(FileError::HoldsData { .. })));
    drop(taken);

    let looked_at = Medium::open(&path, OpenMode::ReadOnly).unwrap().into_device();
    assert!(matches!(
        looked_at.append(ZoneId(3), &pattern(&*looked_at, 1, 1)),
        Err(DeviceError::Unusable(_))
    ));
    drop(looked_at);
    let opened = crate::reopen(|| Medium::open(&path, OpenMode::ReadWrite));
    assert_eq!(opened.fs_id(), FS_ID);
    let device = opened.into_device();
    let zones = device.report().unwrap();
    assert_eq!((zones[0].state, zones[0].pointer), (ZoneState::Closed, 4));
    assert_eq!((zones[7].state, zones[8].state), (ZoneState::Empty, ZoneState::Full));
    assert_eq!(crate::tags(&*device, 0, 1, 3), [5, 6, 7]);
    let kept = if device.geometry().is_conventional(last) { ZoneState::Full } else { ZoneState::Closed };
    assert_eq!((zones[last.0 as usize].state, crate::tags(&*device, last.0, 0, 2)), (kept, vec![7, 8]));
    assert_eq!(device.append(ZoneId(0), &pattern(&*device, 8, 1)).unwrap(), 4);
}

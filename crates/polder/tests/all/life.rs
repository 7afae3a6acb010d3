//! Making, opening, closing and dropping volumes.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use polder::{Error, FileError, FsError, Volume, VolumeOptions};

use crate::bench::{Bench, SIZE, cause, file, listed, volume};

#[test]
fn a_closed_volume_can_be_opened_again() {
    let (bench, volume) = volume();
    volume.write("/file", b"text").unwrap();
    volume.close().unwrap();
    let volume = bench.open();
    assert_eq!(volume.read("/file").unwrap(), b"text");
}

#[test]
fn a_dropped_volume_is_closed() {
    let (bench, volume) = volume();
    volume.write("/file", b"text").unwrap();
    drop(volume);
    assert!(is_closed(&bench));
    assert_eq!(bench.open().read("/file").unwrap(), b"text");
}

/// Whether the volume has nothing to recover.
fn is_closed(bench: &Bench) -> bool {
    let medium = zone::Medium::open(&bench.path(), zone::file::OpenMode::ReadOnly).unwrap();
    let options = polder::device::mount_options(true, 8 << 20, None);
    let (_, recovery) = fs::Fs::mount(medium.into_device(), options).unwrap();
    recovery.clean
}

#[test]
fn an_open_file_outlives_the_volume_and_keeps_it_open() {
    let (bench, volume) = volume();
    let open = file(&volume, "/file");
    let listing = volume.read_dir("/").unwrap();
    drop(volume);
    open.append(b"text").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 4);
    assert!(matches!(bench.refusal(), Some(Error::Open(FileError::InUse(_)))));
    drop(open);
    assert_eq!(listing.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["file"]);
    assert_eq!(bench.open().read("/file").unwrap(), b"text");
}

#[test]
fn nothing_works_after_close() {
    let (bench, volume) = volume();
    volume.write("/kept", b"text").unwrap();
    let clone = volume.clone();
    let open = file(&volume, "/file");
    let unlinked = file(&volume, "/unlinked");
    volume.remove_file("/unlinked").unwrap();
    let mut listing = volume.read_dir("/").unwrap();
    volume.close().unwrap();
    assert!(matches!(clone.read("/kept"), Err(Error::Closed)));
    assert!(matches!(clone.sync(), Err(Error::Closed)));
    assert!(matches!(clone.statvfs().map(drop), Err(Error::Closed)));
    assert!(matches!(open.append(b"x"), Err(Error::Closed)));
    assert!(matches!(open.sync_data(), Err(Error::Closed)));
    assert!(matches!(open.lock(), Err(Error::Closed)));
    assert!(matches!(listing.next(), Some(Err(Error::Closed))));
    assert!(listing.next().is_none());
    assert!(matches!(clone.clone().close(), Err(Error::Closed)));
    // The volume is free, although files of it are open.
    let again = bench.open();
    assert_eq!(listed(&again, "/"), ["file", "kept"]);
    drop((open, unlinked, listing, clone));
    again.write("/kept", b"new").unwrap();
    again.close().unwrap();
    assert!(is_closed(&bench));
}

#[test]
fn a_volume_has_one_owner() {
    let (bench, volume) = volume();
    let error = bench.refusal().unwrap();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("is in use by another process"), "{error}");
    let error = bench.create().overwrite(true).open().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    volume.close().unwrap();
    let readers = [0, 1].map(|_| VolumeOptions::new().read_only(true).open(bench.path()).unwrap());
    assert!(readers.iter().all(|reader| reader.exists("/").unwrap()));
    let error = Volume::open(bench.path()).err().unwrap();
    assert!(matches!(error, Error::NotShared { .. }) && error.kind() == ErrorKind::ResourceBusy, "{error}");
}

#[test]
fn what_is_no_volume_is_refused() {
    let bench = Bench::new();
    let path = bench.path();
    assert_eq!(Volume::open(&path).err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(Volume::open(path.join("below")).err().unwrap().kind(), ErrorKind::NotFound);
    std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    let error = Volume::open(&path).err().unwrap();
    assert!(matches!(&error, Error::Open(FileError::Foreign { .. })), "{error}");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("is not a Polder volume"), "{error}");
    let error = bench.create().open().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; 1 << 20], "nothing was written");
    bench.create().overwrite(true).open().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let directory = path.parent().unwrap();
    assert!(matches!(Volume::open(directory), Err(Error::Open(FileError::NotStorage { .. }))));
}

#[test]
fn impossible_options_are_refused_and_leave_nothing() {
    let bench = Bench::new();
    let small = VolumeOptions::new().cache_bytes(1);
    for refused in [
        Volume::create(bench.path()),
        bench.create().size(1),
        bench.create().block_size(1000),
        bench.create().zone_size(5),
        bench.create().zone_capacity(SIZE),
        bench.create().max_open_zones(1),
        bench.create().page_size(5000),
        bench.create().groups(0),
        bench.create().label("x".repeat(65)),
        bench.create().label("two\nlines"),
        bench.create().reserve_percent(-1.0),
        bench.create().reserve_percent(f64::NAN),
        bench.create().open_options(small.clone()),
    ] {
        let error = refused.open().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{refused:?}: {error}");
        assert!(!bench.path().exists(), "{refused:?}");
    }
    bench.create().open().unwrap();
    assert_eq!(small.open(bench.path()).err().unwrap().kind(), ErrorKind::InvalidInput);
}

#[test]
fn options_have_their_effect() {
    let bench = Bench::new();
    let created = bench
        .create()
        .label("Photos")
        .block_size(512)
        .zone_size(1 << 20)
        .zone_capacity(960 << 10)
        .max_open_zones(10)
        .max_active_zones(12)
        .page_size(4096)
        .groups(3)
        .reserve_percent(50.0)
        .preallocate(true)
        .open()
        .unwrap();
    let info = created.info().unwrap();
    assert_eq!((info.label.as_str(), info.block_size, info.page_size, info.groups), ("Photos", 512, 4096, 3));
    let space = created.statvfs().unwrap();
    assert!(space.available * 512 < SIZE / 100 * 50, "{space:?}");
    created.close().unwrap();

    let options = VolumeOptions::new().cache_bytes(4 << 20).commit_interval(Duration::from_millis(20));
    let volume = options.open(bench.path()).unwrap();
    let batches = || volume.stats().unwrap().metadata.log_batches;
    let before = batches();
    volume.write("/file", b"text").unwrap();
    // The commit interval makes it durable without a sync.
    let pause = rt::thread::Stop::default();
    assert!((0..4000).any(|_| batches() > before || pause.wait(Duration::from_millis(5))));
}

#[test]
fn a_volume_that_is_open_for_reading_refuses_changes() {
    let (bench, volume) = volume();
    volume.write("/file", b"text").unwrap();
    volume.close().unwrap();
    let before = std::fs::read(bench.path()).unwrap();
    let volume = VolumeOptions::new().read_only(true).open(bench.path()).unwrap();
    assert!(volume.is_read_only().unwrap());
    let open = volume.options().read(true).open("/file").unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"text");
    for refused in [
        volume.write("/file", b""),
        volume.write("/new", b""),
        volume.create_dir("/new"),
        volume.remove_file("/file"),
        volume.rename("/file", "/new"),
        volume.symlink("x", "/new"),
        volume.hard_link("/file", "/new"),
        volume.set_permissions("/file", 0),
        volume.set_xattr("/file", "user.x", b""),
        volume.options().write(true).open("/file").map(drop),
    ] {
        assert_eq!(cause(refused), FsError::ReadOnly);
    }
    open.sync_all().unwrap();
    volume.sync().unwrap();
    assert!(volume.stats().unwrap().gc.is_none());
    volume.close().unwrap();
    assert!(std::fs::read(bench.path()).unwrap() == before, "nothing was written");
}

#[test]
fn stats_count_what_was_written() {
    let (_bench, volume) = volume();
    volume.write("/file", vec![1; 1 << 20]).unwrap();
    volume.sync().unwrap();
    let stats = volume.stats().unwrap();
    assert_eq!(stats.written.user_bytes, 1 << 20);
    assert!(stats.written.device_bytes > 1 << 20 && stats.stored.live_bytes >= 1 << 20);
    assert!(stats.gc.is_some());
}

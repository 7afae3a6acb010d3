//! A mount that is served from the process that uses the volume.
//!
//! Every test reads what the other side has just written, without waiting: nothing of the mount may be cached.

use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use polder::{Error, Mount, Volume};

use crate::bench::{Bench, file, listed, until};

/// A mounted volume. The mount ends first, also if a test takes this apart in the order bench, volume, mount.
struct Mounted {
    mount: Mount,
    volume: Volume,
    bench: Bench,
}

impl Mounted {
    fn on(&self, name: &str) -> PathBuf {
        self.mount.directory().join(name)
    }
}

/// Nothing if this machine cannot mount. Root with `/dev/fuse` can.
fn mounted() -> Option<Mounted> {
    mounted_with(polder::VolumeOptions::new())
}

fn mounted_with(options: polder::VolumeOptions) -> Option<Mounted> {
    let bench = Bench::new();
    let volume = bench.create().open_options(options).open().unwrap();
    let directory = bench.path().with_file_name("mnt");
    fs::create_dir(&directory).unwrap();
    match volume.mount(&directory) {
        Ok(mount) => Some(Mounted { bench, volume, mount }),
        Err(error) => {
            let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
            assert!(!(is_root && fs::exists("/dev/fuse").unwrap()), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn both_sides_see_each_others_contents_at_once() {
    let Some(mounted) = mounted() else { return };
    let Mounted { volume, .. } = &mounted;
    volume.write("/file", b"first").unwrap();
    assert_eq!(fs::read(mounted.on("file")).unwrap(), b"first");
    let mut outside = fs::File::options().read(true).write(true).open(mounted.on("file")).unwrap();
    let inside = file(volume, "/file");
    for round in 0..200u64 {
        // The size, the bytes and the times are those of a moment ago, through files that stay open.
        let at = inside.append(&[round as u8; 777]).unwrap();
        assert_eq!(outside.metadata().unwrap().len(), at + 777);
        let mut bytes = [0xff; 777];
        outside.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(bytes, [round as u8; 777]);
        inside.write_all_at(b"inside", 100).unwrap();
        outside.seek(SeekFrom::Start(100)).unwrap();
        let mut word = [0; 6];
        outside.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"inside");
        outside.write_all_at(b"beyond", 100).unwrap();
        inside.read_exact_at(&mut word, 100).unwrap();
        assert_eq!(&word, b"beyond");
        let end = outside.seek(SeekFrom::End(0)).unwrap();
        outside.write_all(b"end").unwrap();
        assert_eq!(inside.metadata().unwrap().len(), end + 3);
    }
    inside.set_len(3).unwrap();
    assert_eq!(outside.metadata().unwrap().len(), 3);
    assert_eq!(fs::read(mounted.on("file")).unwrap(), b"fir");
    outside.set_len(1).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"f");
    // Gaps behind the old end are zeros on both sides.
    outside.set_len(5000).unwrap();
    inside.write_all_at(b"x", 10_000).unwrap();
    let mut expected = vec![0; 10_001];
    (expected[0], expected[10_000]) = (b'f', b'x');
    assert_eq!(fs::read(mounted.on("file")).unwrap(), expected);
}

/// The kernel's own size of a file can be old. Reads do not use it, and `copy_file_range` uses the one of the last
/// `stat`.
#[test]
fn a_program_that_never_asks_for_the_size_reads_to_the_end() {
    let Some(mounted) = mounted() else { return };
    let inside = file(&mounted.volume, "/file");
    inside.append(&[1; 100]).unwrap();
    let mut outside = fs::File::open(mounted.on("file")).unwrap();
    for round in 1..50 {
        inside.append(&[2; 100]).unwrap();
        let mut bytes = [0; 200];
        assert_eq!(outside.read_at(&mut bytes, round * 100 - 50).unwrap(), 150);
    }
    inside.append(&[3; 100]).unwrap();
    let mut contents = Vec::new();
    outside.read_to_end(&mut contents).unwrap();
    assert_eq!(contents.len(), 5100);
    let target = fs::File::create(mounted.on("target")).unwrap();
    inside.append(&[4; 100]).unwrap();
    assert_eq!(outside.metadata().unwrap().len(), 5200);
    let copied = rustix::fs::copy_file_range(&outside, Some(&mut 0), &target, Some(&mut 0), 10_000);
    assert_eq!(copied.unwrap(), 5200);
}

/// Asynchronous direct reads end at the kernel's own size of the file, which can be old.
#[test]
fn direct_access_is_refused() {
    let Some(mounted) = mounted() else { return };
    mounted.volume.write("/file", b"text").unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DIRECT;
    for (name, flags) in [("file", flags), ("new", flags | rustix::fs::OFlags::CREATE)] {
        let opened = rustix::fs::open(mounted.on(name), flags, rustix::fs::Mode::RUSR);
        assert_eq!(opened.unwrap_err(), rustix::io::Errno::INVAL, "{name}");
    }
    assert!(!mounted.volume.exists("/new").unwrap());
}

#[test]
fn appends_of_both_sides_overwrite_nothing() {
    let Some(mounted) = mounted() else { return };
    let inside = file(&mounted.volume, "/log");
    let mut outside = fs::File::options().append(true).create(true).open(mounted.on("log")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|_| assert!(inside.append(&[b'i'; 100]).is_ok())));
        scope.spawn(|| (0..200).for_each(|_| outside.write_all(&[b'o'; 100]).unwrap()));
    });
    let contents = mounted.volume.read("/log").unwrap();
    assert_eq!(contents.len(), 400 * 100);
    assert!(contents.chunks(100).all(|record| record.iter().all(|byte| *byte == record[0])));
    assert_eq!(contents.iter().filter(|byte| **byte == b'i').count(), 200 * 100);
}

#[test]
fn both_sides_see_each_others_names_at_once() {
    let Some(mounted) = mounted() else { return };
    let Mounted { volume, .. } = &mounted;
    let names = || {
        let entries = fs::read_dir(mounted.on("")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for round in 0..50 {
        assert_eq!(fs::metadata(mounted.on("one")).unwrap_err().kind(), ErrorKind::NotFound);
        volume.create_dir("/one").unwrap();
        assert!(fs::metadata(mounted.on("one")).unwrap().is_dir());
        assert_eq!(names(), ["one"]);
        volume.write("/one/file", b"1").unwrap();
        volume.rename("/one", "/two").unwrap();
        assert!(!fs::exists(mounted.on("one")).unwrap());
        assert_eq!(fs::read(mounted.on("two/file")).unwrap(), b"1");
        assert_eq!(names(), ["two"]);
        // Another file under the same name.
        volume.write("/new", b"other").unwrap();
        volume.rename("/new", "/two/file").unwrap();
        assert_eq!(fs::read(mounted.on("two/file")).unwrap(), b"other");
        fs::rename(mounted.on("two/file"), mounted.on("three")).unwrap();
        assert_eq!(volume.read("/three").unwrap(), b"other");
        assert_eq!(listed(volume, "/two"), [""; 0]);
        fs::remove_file(mounted.on("three")).unwrap();
        assert!(!volume.exists("/three").unwrap());
        volume.symlink(format!("{round}"), "/link").unwrap();
        assert_eq!(fs::read_link(mounted.on("link")).unwrap(), PathBuf::from(format!("{round}")));
        volume.remove_file("/link").unwrap();
        volume.remove_dir("/two").unwrap();
        assert_eq!(names(), [""; 0]);
    }
}

#[test]
fn both_sides_see_each_others_attributes_at_once() {
    let Some(mounted) = mounted() else { return };
    let Mounted { volume, .. } = &mounted;
    volume.write("/file", b"text").unwrap();
    for round in 0..50u32 {
        volume.set_permissions("/file", 0o600 + (round % 8) as u16).unwrap();
        volume.set_owner("/file", Some(round), None).unwrap();
        let found = fs::metadata(mounted.on("file")).unwrap();
        assert_eq!((found.mode() & 0o777, found.uid()), (0o600 + round % 8, round));
        fs::set_permissions(mounted.on("file"), fs::Permissions::from_mode(0o640 + round % 8)).unwrap();
        assert_eq!(volume.metadata("/file").unwrap().permissions(), 0o640 + (round % 8) as u16);
        volume.hard_link("/file", format!("/name{round}")).unwrap();
        assert_eq!(fs::metadata(mounted.on("file")).unwrap().nlink(), u64::from(round) + 2);
    }
    let found = fs::metadata(mounted.on("file")).unwrap();
    assert_eq!(found.ino(), volume.metadata("/file").unwrap().inode());
}

/// The volume keeps an inode without a name until the kernel forgets it. The kernel never forgets what it has never
/// seen: a process that removes files beside its mount would fill the volume and its memory.
#[test]
fn files_that_the_library_removes_are_deleted_while_the_volume_is_mounted() {
    let Some(mut mounted) = mounted() else { return };
    let Mounted { volume, .. } = &mounted;
    let live = || volume.stats().unwrap().stored.live_bytes;
    let before = live();
    for round in 0..20 {
        volume.create_dir("/dir").unwrap();
        for number in 0..10 {
            volume.write(format!("/dir/{number}"), vec![1; 200_000]).unwrap();
        }
        // The kernel looks up half of them.
        if round % 2 == 0 {
            fs::read_dir(mounted.on("dir"))
                .unwrap()
                .for_each(|entry| assert!(entry.unwrap().metadata().is_ok()));
        }
        volume.rename("/dir/0", "/dir/1").unwrap();
        volume.remove_dir_all("/dir").unwrap();
    }
    // The kernel forgets what it has seen when it finds that the name is gone.
    assert!(!fs::exists(mounted.on("dir/1")).unwrap());
    until(|| live() == before);
    mounted.mount.unmount().unwrap();
    mounted.volume.close().unwrap();
    assert_eq!(listed(&mounted.bench.open(), "/"), [""; 0]);
}

/// Lookups of the kernel and removals by the library meet in every order. Nothing is lost, left over or damaged.
#[test]
fn both_sides_race_for_the_same_names() {
    let Some(mut mounted) = mounted() else { return };
    let Mounted { volume, .. } = &mounted;
    let before = volume.stats().unwrap().stored.live_bytes;
    let is_race = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::StaleNetworkFileHandle
        )
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for round in 0..300 {
                    let (own, common) = (format!("/own{thread}"), format!("/common{}", round % 3));
                    volume.write(&own, vec![1; 50_000]).unwrap();
                    volume.rename(&own, &common).unwrap();
                    match volume.remove_file(&common) {
                        Ok(()) => {}
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                }
            });
            let on = |name: String| mounted.on(&name);
            scope.spawn(move || {
                for round in 0..300 {
                    let (own, common) = (on(format!("outside{thread}")), on(format!("common{}", round % 3)));
                    let looked = [
                        fs::metadata(&common).map(drop),
                        fs::read(&common).map(drop),
                        fs::write(&own, vec![2; 50_000]).and_then(|()| fs::rename(&own, &common)),
                        fs::remove_file(&common),
                    ];
                    looked
                        .into_iter()
                        .filter_map(Result::err)
                        .for_each(|error| assert!(is_race(&error), "{error}"));
                }
            });
        }
    });
    for name in listed(volume, "/") {
        volume.remove_file(&name).unwrap();
        assert!(!fs::exists(mounted.on(&name)).unwrap());
    }
    until(|| volume.stats().unwrap().stored.live_bytes == before);
    mounted.mount.unmount().unwrap();
    mounted.volume.close().unwrap();
    let medium = zone::Medium::open(&mounted.bench.path(), zone::file::OpenMode::ReadOnly).unwrap();
    let options = polder::device::mount_options(true, 8 << 20, None);
    let (found, _) = ::fs::Fs::mount(medium.into_device(), options).unwrap();
    assert_eq!(found.check().unwrap(), []);
}

#[test]
fn a_file_that_a_program_has_open_survives_its_removal_by_the_library() {
    let Some(mounted) = mounted() else { return };
    mounted.volume.write("/file", b"text").unwrap();
    let mut outside = fs::File::open(mounted.on("file")).unwrap();
    mounted.volume.remove_file("/file").unwrap();
    let mut contents = String::new();
    outside.read_to_string(&mut contents).unwrap();
    assert_eq!((contents.as_str(), outside.metadata().unwrap().nlink()), ("text", 0));
}

#[test]
fn what_a_program_has_synced_or_written_synchronously_is_durable() {
    // Nothing becomes durable by itself.
    let options = polder::VolumeOptions::new().commit_interval(std::time::Duration::from_secs(3600));
    let Some(mounted) = mounted_with(options) else { return };
    let batches = || mounted.volume.stats().unwrap().metadata.log_batches;
    let outside = fs::File::create(mounted.on("file")).unwrap();
    outside.write_all_at(b"text", 0).unwrap();
    let before = batches();
    outside.sync_all().unwrap();
    assert!(batches() > before);
    let options = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::DSYNC;
    let synchronous = rustix::fs::open(mounted.on("file"), options, rustix::fs::Mode::empty()).unwrap();
    let before = batches();
    rustix::io::pwrite(&synchronous, b"more", 10).unwrap();
    assert!(batches() > before);
}

#[test]
fn a_mapping_is_private() {
    let Some(mounted) = mounted() else { return };
    mounted.volume.write("/program", "#!/bin/sh\necho it runs\n").unwrap();
    mounted.volume.set_permissions("/program", 0o755).unwrap();
    let said = std::process::Command::new(mounted.on("program")).output().unwrap();
    assert_eq!(said.stdout, b"it runs\n");
}

/// `sendfile` reads pages of the kernel. They are dropped when `stat` shows that the file has changed.
#[test]
fn sendfile_shows_a_change_after_stat() {
    let Some(mounted) = mounted() else { return };
    let inside = file(&mounted.volume, "/file");
    let target_path = mounted.bench.path().with_file_name("target");
    for contents in [b"one", b"two", b"six"] {
        inside.write_all_at(contents, 0).unwrap();
        let outside = fs::File::open(mounted.on("file")).unwrap();
        let sent = || {
            let target = fs::File::create(&target_path).unwrap();
            assert_eq!(rustix::fs::sendfile(&target, &outside, Some(&mut 0), 3).unwrap(), 3);
            fs::read(&target_path).unwrap()
        };
        assert_eq!(sent(), contents);
        // Changes within one tick of the clock have the same time.
        let before = inside.metadata().unwrap().modified();
        until(|| {
            inside.write_all_at(b"new", 0).unwrap();
            inside.metadata().unwrap().modified() != before
        });
        assert_eq!(outside.metadata().unwrap().len(), 3);
        assert_eq!(sent(), b"new");
    }
}

#[test]
fn a_mount_keeps_its_volume_open() {
    let Some(Mounted { bench, volume, mut mount }) = mounted() else { return };
    let again = volume.mount(mount.directory()).err().unwrap();
    assert!(matches!(again, Error::Mounted) && again.kind() == ErrorKind::ResourceBusy);
    assert!(matches!(volume.clone().close(), Err(Error::Mounted)));
    fs::write(mount.directory().join("file"), "text").unwrap();
    drop(volume);
    assert_eq!(fs::read(mount.directory().join("file")).unwrap(), b"text");
    let busy = fs::File::open(mount.directory().join("file")).unwrap();
    assert_eq!(mount.unmount().unwrap_err().kind(), ErrorKind::ResourceBusy);
    drop(busy);
    let directory = mount.directory().to_owned();
    drop(mount);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    let volume = bench.open();
    assert_eq!(volume.read("/file").unwrap(), b"text");

    // A volume can be mounted again, and only on a directory.
    let mut mount = volume.mount(&directory).unwrap();
    mount.unmount().unwrap();
    mount.unmount().unwrap();
    let nowhere = volume.mount(directory.join("missing")).err().unwrap();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    drop(volume.mount(&directory).unwrap());
    volume.close().unwrap();
    assert!(matches!(volume.close(), Err(Error::Closed)));
}

/// A mount that exists away from its directory cannot be unmounted there, and nothing waits for it.
#[test]
fn a_mount_that_is_not_at_its_directory_is_busy() {
    let Some(mut mounted) = mounted() else { return };
    // Another volume covers it.
    let cover = Bench::new();
    let above = cover.create().open().unwrap().mount(mounted.mount.directory()).unwrap();
    assert_eq!(mounted.mount.unmount().unwrap_err().kind(), ErrorKind::ResourceBusy);
    drop(above);
    mounted.volume.write("/file", b"text").unwrap();
    // It was detached while a program uses it.
    let outside = fs::File::open(mounted.on("file")).unwrap();
    fuse::mount::unmount_lazily(mounted.mount.directory()).unwrap();
    assert_eq!(mounted.mount.unmount().unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert!(matches!(mounted.volume.close(), Err(Error::Mounted)));
    drop(outside);
    mounted.mount.wait().unwrap();
    mounted.volume.close().unwrap();
}

/// The guard is gone, and a program still uses the mount: it can go on, and the volume is closed when it ends.
#[test]
fn a_mount_in_use_that_is_dropped_ends_with_its_last_user() {
    let Some(Mounted { bench, volume, mount }) = mounted() else { return };
    volume.write("/file", b"text").unwrap();
    let outside = fs::File::open(mount.directory().join("file")).unwrap();
    drop((mount, volume));
    let mut bytes = [0; 4];
    outside.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"text");
    assert_eq!(bench.refusal().map(|error| error.kind()), Some(ErrorKind::ResourceBusy));
    drop(outside);
    // Until then, this process is attached to itself.
    until(|| {
        Volume::open(bench.path())
            .is_ok_and(|volume| !volume.is_attached() && volume.read("/file").unwrap() == b"text")
    });
}

#[test]
fn a_read_only_volume_has_a_read_only_mount() {
    let bench = Bench::new();
    bench.create().open().unwrap().write("/file", b"text").unwrap();
    let volume = polder::VolumeOptions::new().read_only(true).open(bench.path()).unwrap();
    let directory = bench.path().with_file_name("mnt");
    fs::create_dir(&directory).unwrap();
    let Ok(mount) = volume.mount(&directory) else { return assert!(mounted().is_none()) };
    assert_eq!(fs::read(mount.directory().join("file")).unwrap(), b"text");
    let refused = fs::write(mount.directory().join("new"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
}

/// The variable that tells a child which volume to mount where.
const EXITS: &str = "POLDER_TEST_EXITS";

/// The child of the next test. It ends while it has a file of its own mount open.
#[test]
fn child_that_exits() {
    let Some(place) = std::env::var_os(EXITS) else { return };
    let place = PathBuf::from(place);
    let volume = Volume::open(place.join("volume")).unwrap();
    let _mount = volume.mount(place.join("mnt")).unwrap();
    let mut open = fs::File::create(place.join("mnt/file")).unwrap();
    open.write_all(b"text").unwrap();
    std::process::exit(0);
}

/// Closing its files, the kernel waited for threads that had ended, and nothing could end the process.
#[test]
fn a_process_can_end_with_files_of_its_own_mount_open() {
    let Some(Mounted { bench, volume, mount }) = mounted() else { return };
    drop(mount);
    volume.close().unwrap();
    let (place, directory) = (bench.path().parent().unwrap().to_owned(), bench.path().with_file_name("mnt"));
    assert_eq!(bench.path().file_name().unwrap(), "volume");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mounted::child_that_exits"])
        .env(EXITS, &place)
        .spawn()
        .unwrap();
    let (ended, wait) = std::sync::mpsc::channel();
    let waiter = rt::thread::spawn("waiter", move || ended.send(child.wait().unwrap()).unwrap()).unwrap();
    let status = wait.recv_timeout(std::time::Duration::from_secs(60));
    // The mount has no daemon any more. If the child hangs, this ends the connection that it waits for.
    let _ = std::process::Command::new("umount").args(["-f", "-l"]).arg(&directory).status();
    waiter.join().unwrap();
    assert!(status.expect("the process has not ended").success());
    assert!(Volume::open(bench.path()).unwrap().exists("/file").is_ok());
}

//! Volumes that another process owns. The other process is this one, unless a test needs one that can be killed.

use std::process::{Command, Stdio};

use polder::{Error, FsError, LockMode, LockRange, Volume, VolumeOptions};

use crate::bench::{ATTACHED, Bench, cause, file, listed};

/// The modules whose tests run again on attached volumes.
const STORIES: [&str; 5] = ["attributes::", "files::", "locks::", "names::", "threads::"];
/// It makes a volume in the place of a closed one, which stays open at its owner.
const OF_OWNERS: &str = "errors_have_the_numbers_and_kinds_of_the_system";

#[test]
fn all_stories_hold_for_attached_volumes() {
    if std::env::var_os(ATTACHED).is_some() {
        return;
    }
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(STORIES)
        .args(["--skip", OF_OWNERS])
        .env(ATTACHED, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    let passed = said.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(passed >= 30, "{said}");
}

#[test]
fn both_sides_see_each_others_changes_at_once() {
    let (bench, volume) = Bench::attached();
    let owner = bench.owner();
    let (inside, outside) = (file(owner, "/file"), file(&volume, "/file"));
    for round in 0..200u64 {
        let at = inside.append(&[round as u8; 777]).unwrap();
        assert_eq!(outside.metadata().unwrap().len(), at + 777);
        let mut bytes = [0xff; 777];
        outside.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(bytes, [round as u8; 777]);
        outside.write_all_at(b"outside", 5).unwrap();
        let mut word = [0; 7];
        inside.read_exact_at(&mut word, 5).unwrap();
        assert_eq!(&word, b"outside");
        volume.rename("/file", "/other").unwrap();
        owner.rename("/other", "/file").unwrap();
    }
    assert_eq!(owner.info().unwrap().fs_id, volume.info().unwrap().fs_id);
    assert_eq!(owner.statvfs().unwrap().blocks, volume.statvfs().unwrap().blocks);
    assert!(volume.stats().unwrap().written.user_bytes > 200 * 777);
    assert!(volume.is_attached() && !owner.is_attached());
}

/// More than a slot can take: several calls.
#[test]
fn large_contents_go_through() {
    let bench = Bench::new();
    let owner = bench.create().size(256 << 20).open().unwrap();
    let volume = bench.open();
    let contents: Vec<u8> = (0..40_000_001_u32).map(|number| (number % 251) as u8).collect();
    volume.write("/large", &contents).unwrap();
    assert!(owner.read("/large").unwrap() == contents);
    assert!(volume.read("/large").unwrap() == contents);
    let open = file(&volume, "/appended");
    assert_eq!(open.append(&contents[..16 << 20]).unwrap(), 0);
    assert_eq!(cause(open.append(&contents)), FsError::TooLarge);
    assert_eq!(open.metadata().unwrap().len(), 16 << 20);
}

/// Once, a client asked for more for ever when contents ended with a piece.
#[test]
fn contents_can_end_with_a_piece() {
    const PIECE: usize = 16 << 20;
    let bench = Bench::new();
    let _owner = bench.create().size(256 << 20).open().unwrap();
    let volume = bench.open();
    for length in [0, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE] {
        volume.write("/file", vec![7; length]).unwrap();
        assert_eq!(volume.read("/file").unwrap().len(), length);
        let mut into = vec![0; 3 * PIECE];
        assert_eq!(file(&volume, "/file").read_at(&mut into, 0).unwrap(), length);
        assert!(into[..length].iter().all(|byte| *byte == 7) && into[length..].iter().all(|byte| *byte == 0));
    }
}

/// The program has always more to write than one operation takes.
#[test]
fn large_data_is_appended_at_the_cursor() {
    use std::io::Write;
    let bench = Bench::new();
    let _owner = bench.create().size(256 << 20).open().unwrap();
    let volume = bench.open();
    let contents: Vec<u8> = (0..35_000_000_u32).map(|number| (number % 251) as u8).collect();
    let mut log = volume.options().append(true).create(true).open("/log").unwrap();
    log.write_all(b"first").unwrap();
    log.write_all(&contents).unwrap();
    log.write_all(b"last").unwrap();
    let read = volume.read("/log").unwrap();
    assert!(read.starts_with(b"first") && read.ends_with(b"last") && read[5..read.len() - 4] == contents);
}

/// A write that runs out of space in a later piece is short, as it is for the owner.
#[test]
fn a_large_write_to_a_full_volume_is_short() {
    let (bench, volume) = Bench::attached();
    let open = file(&volume, "/file");
    let data = vec![1; 100 << 20];
    let written = open.write_at(&data, 0).unwrap();
    assert!(written > 20 << 20 && written < 64 << 20, "{written}");
    assert_eq!(open.metadata().unwrap().len(), written as u64);
    assert_eq!(cause(open.write_all_at(&data, 0)), FsError::NoSpace);
    drop(bench);
}

#[test]
fn a_volume_can_be_attached_for_reading_only() {
    let (bench, volume) = Bench::attached();
    volume.write("/file", b"text").unwrap();
    let reader = VolumeOptions::new().read_only(true).open(bench.path()).unwrap();
    assert!(reader.is_attached() && reader.is_read_only().unwrap() && !volume.is_read_only().unwrap());
    let open = reader.options().read(true).open("/file").unwrap();
    for refused in [
        reader.write("/file", b""),
        reader.create_dir("/new"),
        reader.remove_file("/file"),
        reader.set_permissions("/file", 0),
        reader.options().append(true).open("/file").map(drop),
        open.set_permissions(0),
    ] {
        assert_eq!(cause(refused), FsError::ReadOnly);
    }
    // The errors name the path, as those of a volume that this process owns.
    for (refused, path) in [
        (reader.write("/file", b""), "/file"),
        (reader.rename("/old", "/new"), "/old"),
        (reader.symlink("/target", "/link"), "/link"),
        (reader.set_xattr("/file", "user.a", b""), "/file"),
        (reader.options().append(true).open("/file").map(drop), "/file"),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, Error::Path { path: named, .. } if named.as_os_str() == path), "{error}");
    }
    assert_eq!(cause(open.write_at(b"x", 0)), FsError::BadHandle);
    volume.write("/file", b"other").unwrap();
    assert_eq!(reader.read("/file").unwrap(), b"other");
    reader.close().unwrap();
}

#[test]
fn closing_the_owner_disconnects_its_clients() {
    let (bench, volume) = Bench::attached();
    let (open, other) = (file(&volume, "/file"), file(bench.owner(), "/file"));
    let mut listing = volume.read_dir("/").unwrap();
    other.lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| open.lock());
        volume.write("/last", b"text").unwrap();
        bench.owner().close().unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Disconnected)));
    });
    assert!(matches!(open.append(b"x"), Err(Error::Disconnected)));
    assert!(matches!(volume.read("/last"), Err(Error::Disconnected)));
    assert!(matches!(listing.next(), Some(Err(Error::Disconnected))));
    let error = volume.sync().unwrap_err();
    assert_eq!((error.kind(), error.errno()), (std::io::ErrorKind::NotConnected, 107));
    // The next process that opens it owns it, also this one.
    let again = bench.open();
    assert!(!again.is_attached());
    assert_eq!(again.read("/last").unwrap(), b"text");
    assert!(matches!(volume.close(), Err(Error::Disconnected)));
    assert!(matches!(volume.read("/last"), Err(Error::Closed)));
}

#[test]
fn closing_a_client_closes_its_own_files_alone() {
    let (bench, volume) = Bench::attached();
    let third = bench.open();
    let (open, kept) = (file(&volume, "/file"), file(&third, "/file"));
    open.lock().unwrap();
    open.lock_range(LockRange::WHOLE, LockMode::Exclusive).unwrap();
    volume.remove_file("/file").unwrap();
    let unlinked = file(&volume, "/unlinked");
    unlinked.append(&vec![7; 5 << 20]).unwrap();
    volume.remove_file("/unlinked").unwrap();
    let before = bench.owner().stats().unwrap().stored.live_bytes;
    assert_eq!(cause(kept.try_lock()), FsError::WouldBlock);
    volume.close().unwrap();
    kept.try_lock().unwrap();
    kept.lock_range(LockRange::WHOLE, LockMode::Exclusive).unwrap();
    kept.append(b"text").unwrap();
    assert!(matches!(open.append(b"x"), Err(Error::Closed)));
    // The file without a name was deleted.
    crate::bench::until(|| bench.owner().stats().unwrap().stored.live_bytes + (4 << 20) < before);
}

/// Programs that only look must not make the owner write.
#[test]
fn only_clients_that_change_something_sync_when_they_close() {
    let bench = Bench::new();
    let options = VolumeOptions::new().commit_interval(std::time::Duration::from_secs(3600));
    let owner = bench.create().open_options(options).open().unwrap();
    owner.write("/file", b"text").unwrap();
    let batches = || owner.stats().unwrap().metadata.log_batches;
    let before = batches();
    let reader = bench.open();
    assert_eq!(reader.read("/file").unwrap(), b"text");
    assert_eq!(listed(&reader, "/"), ["file"]);
    reader.close().unwrap();
    assert_eq!(batches(), before);
    let writer = bench.open();
    writer.set_permissions("/file", 0o600).unwrap();
    writer.close().unwrap();
    assert!(batches() > before);
}

#[test]
fn locks_hold_between_owner_and_clients() {
    let (bench, volume) = Bench::attached();
    let third = bench.open();
    let all = [bench.owner(), &volume, &third];
    std::thread::scope(|scope| {
        for number in 0..6 {
            let volume = all[number % 3];
            scope.spawn(move || {
                let counter = file(volume, "/counter");
                for _ in 0..50 {
                    counter.lock().unwrap();
                    let mut count = [0; 8];
                    let _ = counter.read_at(&mut count, 0).unwrap();
                    let next = u64::from_le_bytes(count) + 1;
                    counter.write_all_at(&next.to_le_bytes(), 0).unwrap();
                    counter.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(volume.read("/counter").unwrap(), 300_u64.to_le_bytes());
}

/// Threads that wait for locks use no slots: the thread that will release the lock can still call.
#[test]
fn waits_for_locks_do_not_block_other_calls() {
    let (_bench, volume) = Bench::attached();
    let holder = file(&volume, "/file");
    holder.lock().unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let open = file(&volume, "/file");
                scope.spawn(move || {
                    open.lock().unwrap();
                    open.unlock().unwrap();
                })
            })
            .collect();
        for number in 0..100 {
            volume.write(format!("/{number}"), b"text").unwrap();
        }
        holder.unlock().unwrap();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn clients_and_their_files_are_limited() {
    let (bench, volume) = Bench::attached();
    let mut clients = vec![bench.open()];
    let refused = loop {
        match Volume::open(bench.path()) {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(clients.len(), 31);
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("32 processes are attached already"), "{refused}");
    clients.truncate(2);
    // The owner notices soon that the others have gone.
    crate::bench::until(|| Volume::open(bench.path()).is_ok());
    let mut files = Vec::new();
    let refused = loop {
        match volume.options().read(true).write(true).create(true).open("/file") {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyOpen) && refused.errno() == 24);
    assert_eq!(files.len(), 16_384);
    // What is refused has no effect.
    clients[0].write("/full", b"text").unwrap();
    assert!(matches!(volume.write("/full", b""), Err(Error::TooManyOpen)));
    assert_eq!(clients[0].read("/full").unwrap(), b"text");
    assert!(matches!(volume.write("/new", b""), Err(Error::TooManyOpen)));
    assert!(!clients[0].exists("/new").unwrap());
    assert!(clients[0].read("/file").is_ok(), "others are not affected");
    drop(files);
    volume.write("/file", b"text").unwrap();
}

#[test]
fn an_owner_need_not_share() {
    let bench = Bench::new();
    let options = VolumeOptions::new().share(false);
    let _owner = bench.create().open_options(options).open().unwrap();
    let error = Volume::open(bench.path()).unwrap_err();
    assert!(matches!(error, Error::NotShared { .. }) && error.kind() == std::io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("polder mount --shared"), "{error}");
}

#[test]
fn only_the_owner_mounts() {
    let (bench, volume) = Bench::attached();
    let error = volume.mount(bench.path().parent().unwrap()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("another process owns the volume"), "{error}");
}

/// Threads open, use and close the volume in a race. Each of them owns it or is attached, and no change is lost.
#[test]
fn processes_race_for_the_ownership() {
    const ROUNDS: usize = 25;
    let bench = Bench::new();
    bench.create().open().unwrap().close().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // The owner can close the volume at any time.
                    loop {
                        let volume = bench.open();
                        let path = format!("/{thread}.{round}");
                        let written = volume.write(&path, b"text").and_then(|()| volume.sync());
                        let done = written.and_then(|()| volume.close());
                        match done {
                            Ok(()) => break,
                            Err(Error::Disconnected) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    let volume = bench.open();
    assert!(!volume.is_attached());
    assert_eq!(listed(&volume, "/").len(), 3 * ROUNDS);
}

/// The library, a client and a mount on one volume.
#[test]
fn owner_client_and_mount_work_together() {
    let (bench, volume) = Bench::attached();
    let directory = bench.path().with_file_name("mnt");
    std::fs::create_dir(&directory).unwrap();
    let Ok(mut mount) = bench.owner().mount(&directory) else { return eprintln!("skipped: cannot mount") };
    std::thread::scope(|scope| {
        for (number, volume) in [bench.owner(), &volume].into_iter().enumerate() {
            let log = file(volume, "/log");
            scope.spawn(move || {
                for round in 0..200 {
                    log.append(&[b'0' + number as u8; 100]).unwrap();
                    let path = format!("/{number}.{round}");
                    volume.write(&path, path.as_bytes()).unwrap();
                    if round % 2 == 0 {
                        volume.remove_file(&path).unwrap();
                    }
                }
            });
        }
        let mut log = std::fs::File::options().append(true).create(true).open(directory.join("log")).unwrap();
        let directory = &directory;
        scope.spawn(move || {
            for round in 0..200 {
                std::io::Write::write_all(&mut log, &[b'2'; 100]).unwrap();
                std::fs::write(directory.join(format!("2.{round}")), b"text").unwrap();
            }
        });
    });
    let contents = volume.read("/log").unwrap();
    assert_eq!(contents.len(), 600 * 100);
    assert!(contents.chunks(100).all(|record| record.iter().all(|byte| *byte == record[0])));
    assert_eq!(listed(&volume, "/").len(), 1 + 100 + 100 + 200);
    // A file that the client removes while a program has it open.
    let open = std::fs::File::open(directory.join("2.0")).unwrap();
    volume.remove_file("/2.0").unwrap();
    assert!(!directory.join("2.0").exists());
    drop(open);
    mount.unmount().unwrap();
    volume.close().unwrap();
    bench.owner().close().unwrap();
    assert!(!bench.open().is_attached());
}

#[test]
fn the_socket_is_private_and_ends_with_the_owner() {
    use std::os::unix::fs::PermissionsExt;
    let (bench, _volume) = Bench::attached();
    let socket = crate::bench::socket(&bench.path());
    let mode = std::fs::symlink_metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    bench.owner().close().unwrap();
    assert!(!socket.exists());
    // A name that a killed process has left is taken over.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let owner = bench.open();
    assert!(bench.open().is_attached());
    drop(owner);
    assert!(!socket.exists());
    // A name that belongs to another process by then stays.
    let owner = bench.open();
    std::fs::remove_file(&socket).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    drop(owner);
    assert!(socket.exists());
    std::fs::remove_file(&socket).unwrap();
}

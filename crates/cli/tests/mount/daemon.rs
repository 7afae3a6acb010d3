//! The life of a daemon: starting, answering, refusing, ending.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::{Bench, bench_or_skip};

#[test]
fn a_mounted_volume_answers_and_is_refused_to_others() {
    let bench = bench_or_skip!();
    let (volume, directory) = (bench.volume(), bench.directory());
    let (volume, directory) = (volume.to_str().unwrap(), directory.to_str().unwrap());
    let mounted = bench.mount(&[]);

    let data = vec![7; 1 << 20];
    let mut file = File::create(mounted.path("data")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    drop(file);

    let info = mounted.told("info");
    assert_eq!(info["label"], "bench");
    assert_eq!(info["mounted_on"], directory);
    assert_eq!(info["read_only"], false);
    assert!(bench.succeed(&["info", volume]).contains("read-write"), "by the path of the volume too");
    let stats = mounted.told("stats");
    assert_eq!(stats["written"]["user_bytes"], 1 << 20);
    assert!(stats["written"]["amplification"].as_f64().unwrap() >= 1.0, "{stats}");
    assert!(bench.succeed(&["stats", volume]).contains("amplification"));

    assert!(bench.succeed(&["check", volume]).contains("not checked"));
    assert!(bench.fail(1, &["mkfs", volume, "--force"]).contains("in use"));
    assert!(bench.fail(1, &["mount", volume, directory]).contains("mounted there already"));
    let elsewhere = tempfile::tempdir().unwrap();
    let said = bench.fail(1, &["mount", volume, elsewhere.path().to_str().unwrap()]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("in use"), "{said}");
    mounted.umount();
    bench.check();
}

#[test]
fn only_the_owner_may_talk_to_the_daemon() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let sockets = bench.directory().with_file_name("run");
    let socket = fs::read_dir(&sockets).unwrap().next().unwrap().unwrap();
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    mounted.umount();
    assert_eq!(fs::read_dir(&sockets).unwrap().count(), 0, "the socket goes with the daemon");
}

/// The kernel writes back the times of a file whose last name has just gone; its `syncfs` failed with a
/// stale handle, and nobody could say what was lost. Nothing was.
#[test]
fn a_sync_after_an_unlink_succeeds() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let socket =
        fs::read_dir(bench.directory().with_file_name("run")).unwrap().next().unwrap().unwrap().path();
    fs::write(mounted.path("short-lived"), vec![1; 5000]).unwrap();
    fs::remove_file(mounted.path("short-lived")).unwrap();
    let mut asked = UnixStream::connect(socket).unwrap();
    asked.write_all(b"{\"command\":\"sync\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(asked).read_line(&mut answer).unwrap();
    assert!(answer.contains("\"ok\""), "{answer}");
    mounted.umount();
    bench.check();
}

#[test]
fn a_busy_mount_stays_unless_told_otherwise() {
    let bench = bench_or_skip!();
    let directory = bench.directory();
    let mounted = bench.mount(&[]);
    let daemon = mounted.daemon();
    let file = File::create(mounted.path("open")).unwrap();
    assert!(bench.fail(1, &["umount", directory.to_str().unwrap()]).contains("is in use"));
    assert!(bench.is_mounted());
    bench.succeed(&["umount", "--lazy", directory.to_str().unwrap()]);
    assert!(!bench.is_mounted());
    (&file).write_all(b"still here").unwrap();
    drop(file);
    daemon.wait();
    let again = bench.mount(&[]);
    assert_eq!(fs::read(again.path("open")).unwrap(), b"still here");
    again.umount();
    bench.check();
}

#[test]
fn a_signal_unmounts() {
    let bench = bench_or_skip!();
    for signal in [Signal::TERM, Signal::INT] {
        let mounted = bench.mount(&[]);
        fs::write(mounted.path("file"), signal.as_raw().to_string()).unwrap();
        let daemon = mounted.daemon();
        daemon.signal(signal);
        daemon.wait();
        assert!(!bench.is_mounted());
        bench.check();
        let again = bench.mount(&[]);
        assert_eq!(fs::read_to_string(again.path("file")).unwrap(), signal.as_raw().to_string());
        again.umount();
    }
}

#[test]
fn a_signal_to_a_busy_mount_detaches_it_and_saves_what_was_written() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let daemon = mounted.daemon();
    let mut file = File::create(mounted.path("open")).unwrap();
    file.write_all(b"in the kernel's cache").unwrap();
    daemon.signal(Signal::TERM);
    // The daemon waits for us to close the file; by then the mount is out of sight.
    let gone = rt::thread::Stop::default();
    while bench.is_mounted() {
        gone.wait(Duration::from_millis(5));
    }
    drop(file);
    daemon.wait();
    bench.check();
    let again = bench.mount(&[]);
    assert_eq!(fs::read(again.path("open")).unwrap(), b"in the kernel's cache");
    again.umount();
}

#[test]
fn a_second_signal_does_not_wait_for_who_uses_the_mount() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let daemon = mounted.daemon();
    let mut file = File::create(mounted.path("open")).unwrap();
    file.write_all(b"written before").unwrap();
    daemon.signal(Signal::TERM);
    let gone = rt::thread::Stop::default();
    while bench.is_mounted() {
        gone.wait(Duration::from_millis(5));
    }
    daemon.signal(Signal::TERM);
    daemon.wait();
    assert!(file.metadata().is_err(), "nobody answers any more");
    bench.check();
    let again = bench.mount(&[]);
    assert_eq!(fs::read(again.path("open")).unwrap(), b"written before");
    again.umount();
}

#[test]
fn a_dead_mount_is_replaced_or_taken_away() {
    let bench = bench_or_skip!();
    let directory = bench.directory();
    let mounted = bench.mount(&[]);
    mounted.daemon().kill();
    let error = fs::read_dir(&directory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    assert!(bench.succeed(&["info", directory.to_str().unwrap()]).contains("mounted       no"));
    let again = bench.mount(&[]);
    fs::write(again.path("alive"), "yes").unwrap();
    again.daemon().kill();
    bench.succeed(&["umount", directory.to_str().unwrap()]);
    assert!(!bench.is_mounted());
    bench.check();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), "kept").unwrap();
    mounted.umount();
    let before = fs::read(bench.volume()).unwrap();
    let mounted = bench.mount(&["-o", "ro"]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"kept");
    let refused = fs::write(mounted.path("file"), "changed").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(mounted.told("info")["read_only"], true);
    mounted.umount();
    assert!(fs::read(bench.volume()).unwrap() == before, "the volume has changed");
}

#[test]
fn the_log_tells_of_mounts_and_names_no_files() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "commit=1,cache=16M,nosuid"]);
    fs::write(mounted.path("a-telling-name"), "x").unwrap();
    mounted.umount();
    let log = bench.logged();
    let count = |word| log.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count(" recovered"), count(" mounted"), count(" unmounted")), (1, 1, 1), "{log}");
    assert!(!log.contains("a-telling-name"), "{log}");
}

/// Prepares a machine with a log, `$1`, of its own. `$2`: the program.
const MACHINE: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /dev
mknod -m 666 /dev/fuse c 10 229
mknod -m 666 /dev/null c 1 3
touch /dev/log
mount --bind log /dev/log
"$1" mount volume mnt
touch mnt/a-telling-name
"$1" umount mnt
echo "seen to the end"
"#;

/// What is mounted by `/etc/fstab` or systemd has no log file: nobody could tell afterwards what a
/// recovery had done, or why a volume took no more writes.
#[test]
fn a_daemon_without_a_log_file_writes_to_the_systems_log() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can make a /dev/log");
    }
    let place = bench.directory().parent().unwrap().to_owned();
    let log = std::os::unix::net::UnixDatagram::bind(place.join("log")).unwrap();
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", MACHINE, "sh"])
        .arg(bench.program())
        .current_dir(&place)
        .env("POLDER_RUN_DIR", bench.sockets())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("seen to the end\n"), "{said}{complained}");
    assert_eq!(complained, "", "only warnings are for whoever mounts");
    log.set_nonblocking(true).unwrap();
    let mut lines = Vec::new();
    let mut line = [0; 1000];
    while let Ok(length) = log.recv(&mut line) {
        lines.push(String::from_utf8(line[..length].to_vec()).unwrap());
    }
    let [recovered, mounted, unmounted] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(recovered.starts_with("<30>polder[") && recovered.contains("]: recovered "), "{recovered}");
    assert!(recovered.contains(" records=0 ") && recovered.contains(" took_ms="), "{recovered}");
    assert!(mounted.contains("]: mounted ") && unmounted.contains("]: unmounted "), "{lines:?}");
    bench.check();
}

#[test]
fn the_foreground_is_left_by_unmounting() {
    let bench: Bench = bench_or_skip!();
    let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_polder"))
        .args(["mount", "--foreground"])
        .args([bench.volume(), bench.directory()])
        .env("POLDER_RUN_DIR", bench.directory().with_file_name("run"))
        .spawn()
        .unwrap();
    let guard = crate::Mounted { bench: &bench };
    let waiting = rt::thread::Stop::default();
    while !bench.is_mounted() && daemon.try_wait().unwrap().is_none() {
        waiting.wait(Duration::from_millis(5));
    }
    fs::write(guard.path("file"), "x").unwrap();
    guard.umount();
    assert!(daemon.wait().unwrap().success());
    bench.check();
}

/// A daemon that had been detached while in use unmounted by path, and so took away what had been mounted there
/// since; and `polder sync` of its volume opened that mount instead, and said that all was durable: after
/// a power loss what the kernel still held of the first volume would have been missing.
#[test]
fn a_daemon_out_of_sight_leaves_the_next_mount_alone() {
    let bench = bench_or_skip!();
    let other = bench_or_skip!();
    let (volume, directory) = (bench.volume(), bench.directory());
    let (volume, directory) = (volume.to_str().unwrap(), directory.to_str().unwrap());
    let mounted = bench.mount(&[]);
    let socket = fs::read_dir(bench.sockets()).unwrap().next().unwrap().unwrap().path();
    let daemon = mounted.daemon();
    let mut file = File::create(mounted.path("open")).unwrap();
    bench.succeed(&["umount", "--lazy", directory]);
    bench.succeed(&["mount", other.volume().to_str().unwrap(), directory]);

    file.write_all(b"in the kernel's cache").unwrap();
    bench.succeed(&["sync", volume]);
    let mut asked = UnixStream::connect(&socket).unwrap();
    asked.write_all(b"{\"command\":\"unmount\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(asked).read_line(&mut answer).unwrap();
    assert!(answer.contains("\"ok\""), "{answer}");
    assert!(bench.is_mounted(), "the other volume was unmounted");
    assert!(bench.succeed(&["info", volume]).contains("out of sight"));

    daemon.kill();
    drop(file);
    assert_eq!(bench.succeed(&["cat", volume, "/open"]), "in the kernel's cache");
    mounted.umount();
    bench.check();
}

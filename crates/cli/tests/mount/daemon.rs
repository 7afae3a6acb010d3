//! The life of a daemon: start, answers, refusals, end.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use serde_json::Value;

use crate::bench::Daemon;
use crate::{Bench, bench_or_skip};

/// Waits up to ten seconds until a condition is true. Returns whether it became true.
fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let waiting = rt::thread::Stop::default();
    (0..2000).any(|_| condition() || waiting.wait(Duration::from_millis(5)))
}

/// A second mount point. Its mount is taken down when this is dropped.
struct Elsewhere<'a> {
    bench: &'a Bench,
    place: tempfile::TempDir,
}

impl<'a> Elsewhere<'a> {
    fn new(bench: &'a Bench) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("mnt")).unwrap();
        Elsewhere { bench, place }
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    fn mount(&self, volume: &Path) {
        let paths = [volume, &self.directory(), &self.log()].map(|path| path.to_str().unwrap().to_owned());
        self.bench.succeed(&["mount", &paths[0], &paths[1], "--log", &paths[2]]);
    }

    fn daemon(&self) -> Daemon {
        Daemon::of(self.bench, &self.directory())
    }

    /// Whether its daemon logs these words within the time limit of [`comes_true`].
    fn comes_to_log(&self, words: &str) -> bool {
        comes_true(|| fs::read_to_string(self.log()).unwrap().contains(words))
    }
}

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        self.bench.polder(&["umount", "--lazy", self.directory().to_str().unwrap()]);
    }
}

/// Unmounts a directory when dropped. Its name may be any bytes.
struct TakenDown<'a>(&'a Bench, &'a OsStr);

impl Drop for TakenDown<'_> {
    fn drop(&mut self) {
        let mut command = Command::new(self.0.program());
        command.args(["umount", "--lazy"]).arg(self.1).env("POLDER_RUN_DIR", self.0.sockets());
        // The command fails if the directory is not mounted any more.
        let _ = command.output();
    }
}

/// A stopped process. It continues when this is dropped.
struct Stopped<'a>(&'a Daemon);

impl<'a> Stopped<'a> {
    fn new(daemon: &'a Daemon) -> Self {
        daemon.signal(Signal::STOP);
        Stopped(daemon)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

/// A running command. It is killed when this is dropped.
struct Running(Child);

impl Running {
    fn has_succeeded(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some_and(|status| status.success())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_mounted_volume_answers_and_other_commands_may_not_open_it() {
    let bench = bench_or_skip!();
    let (volume, directory) = (bench.volume(), bench.directory());
    let (volume, directory) = (volume.to_str().unwrap(), directory.to_str().unwrap());
    let mounted = bench.mount(&[]);

    let data = vec![7; 1 << 20];
    let mut file = File::create(mounted.path("data")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    drop(file);

    let info = mounted.report("info");
    assert_eq!(info["label"], "bench");
    assert_eq!(info["mounted_on"], directory);
    assert_eq!(info["read_only"], false);
    assert!(bench.succeed(&["info", volume]).contains("read-write"), "by the path of the volume too");
    let stats = mounted.report("stats");
    assert_eq!(stats["written"]["user_bytes"], 1 << 20);
    assert!(stats["written"]["amplification"].as_f64().unwrap() >= 1.0, "{stats}");
    assert!(bench.succeed(&["stats", volume]).contains("amplification"));

    assert!(bench.succeed(&["check", volume]).contains("not checked"));
    assert!(bench.fail(1, &["mkfs", volume, "--force"]).contains("in use"));
    assert!(bench.fail(1, &["mount", volume, directory]).contains("already mounted there"));
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

/// The kernel writes back the times of a file that has just lost its last name. `syncfs` then failed with a stale handle,
/// although nothing was lost.
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
fn a_busy_mount_stays_unless_it_is_unmounted_lazily() {
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
fn a_signal_to_a_busy_mount_detaches_it_and_saves_its_writes() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let daemon = mounted.daemon();
    let mut file = File::create(mounted.path("open")).unwrap();
    file.write_all(b"in the kernel's cache").unwrap();
    daemon.signal(Signal::TERM);
    // The daemon waits until we close the file. The mount is detached before that.
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
fn a_second_signal_does_not_wait_for_open_files() {
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
    assert!(file.metadata().is_err(), "the daemon does not answer any more");
    bench.check();
    let again = bench.mount(&[]);
    assert_eq!(fs::read(again.path("open")).unwrap(), b"written before");
    again.umount();
}

/// A thread of the daemon waited in the kernel for requests that the daemon itself would have answered, and so kept the
/// connection open.
#[test]
fn killing_a_daemon_while_it_unmounts_leaves_no_process_waiting() {
    let bench = bench_or_skip!();
    for round in 0..6 {
        let mounted = bench.mount(&[]);
        let daemon = mounted.daemon();
        let connection = Connection::of(&mounted.root());
        let (begun, has_begun) = std::sync::mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let path = mounted.path("written-over");
        let writer = rt::thread::spawn("writer", move || {
            let file = File::create(path).unwrap();
            let bytes = vec![round; 1 << 20];
            let write = |at: u64| file.write_all_at(&bytes, (at % 64) << 20);
            // Writes still go to the kernel's cache after the daemon has ended.
            let goes_on = |at: &u64| !ends.load(Ordering::Relaxed) && write(*at).is_ok();
            (0..).take_while(goes_on).for_each(|at| {
                let _ = begun.send(at);
            });
        })
        .unwrap();
        assert!(has_begun.iter().any(|at| at == 40), "{}", bench.logged());
        daemon.signal(Signal::TERM);
        // Some rounds kill the daemon as soon as it has begun to unmount, other rounds kill it later.
        comes_true(|| daemon.threads().iter().any(|name| name == "polder-detach"));
        comes_true(|| has_begun.try_iter().any(|at| at % 6 == u64::from(round)) || writer.is_finished());
        daemon.signal(Signal::KILL);
        is_over.store(true, Ordering::Relaxed);
        let has_ended = comes_true(|| daemon.has_ended() && writer.is_finished());
        if !has_ended {
            connection.abort();
        }
        assert!(has_ended, "round {round}: threads of the daemon or users of the mount still wait");
        writer.join().unwrap();
        drop(mounted);
        bench.check();
    }
}

/// The kernel's FUSE connection of a mount. A test aborts it if the mount hangs.
struct Connection(u32);

impl Connection {
    fn of(directory: &Path) -> Connection {
        Connection(rustix::fs::minor(fs::metadata(directory).unwrap().dev()))
    }

    fn abort(&self) {
        let place = tempfile::tempdir().unwrap();
        rustix::mount::mount("fusectl", place.path(), "fusectl", MountFlags::empty(), None).unwrap();
        fs::write(place.path().join(self.0.to_string()).join("abort"), "1").unwrap();
        rustix::mount::unmount(place.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// The thread that handled the first signal waited for durability and did not receive a second signal. A hanging device
/// blocked the mount, and all processes that used it, for as long as it hung.
#[test]
fn a_second_signal_does_not_wait_for_a_device_that_hangs() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let below = mounted.daemon();
    let volume = mounted.path("volume");
    bench.succeed(&["mkfs", volume.to_str().unwrap(), "--size", "64M"]);
    let above = Elsewhere::new(&bench);
    above.mount(&volume);
    let daemon = above.daemon();
    let mut file = File::create(above.directory().join("open")).unwrap();
    {
        let _hangs = Stopped::new(&below);
        file.write_all(&[1; 64 << 10]).unwrap();
        daemon.signal(Signal::TERM);
        assert!(above.comes_to_log("SIGTERM: unmounting"));
        daemon.signal(Signal::TERM);
        assert!(above.comes_to_log("ends although it is in use"));
        assert!(comes_true(|| rustix::fs::fstatfs(&file).is_err()), "open files answer with errors");
    }
    daemon.wait();
    drop((file, above));
    mounted.umount();
    bench.check();
}

/// A sync of the mount only started the kernel's writeback. Pages that were not yet written when the power failed were
/// lost, although `polder sync` had returned.
#[test]
fn a_sync_waits_for_writeback() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can remount");
    }
    let mounted = bench.mount(&[]);
    let below = mounted.daemon();
    let volume = mounted.path("volume");
    bench.succeed(&["mkfs", volume.to_str().unwrap(), "--size", "64M"]);
    let above = Elsewhere::new(&bench);
    above.mount(&volume);
    let daemon = above.daemon();
    // With this option the kernel does not write back the file's mtime. That request would follow the data and wait for
    // them.
    let lazily = MountFlags::LAZYTIME | MountFlags::NOATIME;
    rustix::mount::mount_remount(above.directory(), lazily, c"").unwrap();
    // Started before the file is opened. A child that is started later closes a copy of the descriptor, and waits for
    // that.
    let mut shell = Command::new("sh");
    shell.args(["-c", "read go && exec \"$1\" sync \"$2\"", "sh"]);
    shell.arg(bench.program()).arg(above.directory()).env("POLDER_RUN_DIR", bench.sockets());
    let mut sync = Running(shell.stdin(Stdio::piped()).spawn().unwrap());
    let mut file = File::create(above.directory().join("open")).unwrap();
    file.sync_all().unwrap();
    {
        let _hangs = Stopped::new(&below);
        file.write_all(&[b'x'; 64 << 10]).unwrap();
        sync.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        // Nothing becomes durable while the device hangs.
        let waiting = rt::thread::Stop::default();
        let is_over = (0..100).any(|_| waiting.wait(Duration::from_millis(5)) || sync.has_succeeded());
        assert!(!is_over, "the sync has not waited");
    }
    assert!(comes_true(|| sync.has_succeeded()));
    daemon.kill();
    drop((file, above));
    assert!(bench.succeed(&["cat", volume.to_str().unwrap(), "/open"]) == "x".repeat(64 << 10));
    mounted.umount();
    bench.check();
}

/// `umount DIR && mount …` failed when the last writes of the first mount took longer than half a second.
#[test]
fn a_mount_waits_until_the_previous_mount_is_closed() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can unmount without a helper");
    }
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), "kept").unwrap();
    bench.succeed(&["sync", bench.directory().to_str().unwrap()]);
    let first = mounted.daemon();
    let (volume, directory) = (bench.volume(), bench.directory());
    let mut second = {
        let _slow = Stopped::new(&first);
        // A child process that another test has just forked keeps our files open until it calls `exec`.
        assert!(comes_true(|| rustix::mount::unmount(&directory, UnmountFlags::NOFOLLOW).is_ok()));
        let mut second = Command::new(bench.program());
        second.args(["mount", "--foreground", "--log"]).args([&bench.log(), &volume, &directory]);
        let second = Running(second.env("POLDER_RUN_DIR", bench.sockets()).spawn().unwrap());
        // The mount has waited for the lock for the time that a lock may be held without a daemon. It now asks which
        // process holds it.
        assert!(comes_true(|| asks(second.0.id())));
        second
    };
    assert!(comes_true(|| bench.is_mounted()), "{}", bench.logged());
    assert!(first.has_ended());
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"kept");
    mounted.umount();
    assert!(second.has_succeeded());
    bench.check();
}

/// Whether a process has a socket open.
fn asks(process: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut leads = files.filter_map(|file| fs::read_link(file.path()).ok());
    leads.any(|to| to.to_string_lossy().starts_with("socket:"))
}

/// The command waited forever, without a message.
#[test]
fn umount_reports_where_the_volume_is_still_mounted() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can mount a directory again");
    }
    let mounted = bench.mount(&[]);
    let (daemon, directory, elsewhere) = (mounted.daemon(), bench.directory(), Elsewhere::new(&bench));
    let there = elsewhere.directory();
    rustix::mount::mount_bind(&directory, &there).unwrap();
    let said = bench.fail(1, &["umount", directory.to_str().unwrap()]);
    assert!(said.contains(&format!("still mounted on {}", there.display())), "{said}");
    assert!(!daemon.has_ended() && !bench.is_mounted());
    bench.succeed(&["umount", there.to_str().unwrap()]);
    assert!(daemon.has_ended());

    let mounted = bench.mount(&[]);
    let daemon = mounted.daemon();
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat"]);
    let mut apart = Running(apart.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(apart.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let mut umount = Command::new(bench.program());
    umount.arg("umount").arg(&directory).env("POLDER_RUN_DIR", bench.sockets()).stderr(Stdio::piped());
    let mut umount = Running(umount.spawn().unwrap());
    let mut said = String::new();
    BufReader::new(umount.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("still mounted in other mount namespaces"), "{said}");
    assert!(!daemon.has_ended() && !umount.has_succeeded());
    drop(apart.0.stdin.take());
    assert!(comes_true(|| umount.has_succeeded()));
    assert!(daemon.has_ended());
    bench.check();
}

/// The second read-only daemon of a volume never got the name of the control socket.
#[test]
fn a_second_reader_answers_after_the_first_has_ended() {
    let bench = bench_or_skip!();
    let first = bench.mount(&["-o", "ro"]);
    let elsewhere = Elsewhere::new(&bench);
    let (volume, there) = (bench.volume(), elsewhere.directory());
    let log = elsewhere.log();
    let paths = [&volume, &there, &log].map(|path| path.to_str().unwrap());
    bench.succeed(&["mount", "-o", "ro", paths[0], paths[1], "--log", paths[2]]);
    let report = || -> Value { serde_json::from_str(&bench.succeed(&["info", "--json", paths[0]])).unwrap() };
    assert_eq!(report()["mounted_on"], first.root().to_str().unwrap());
    first.umount();
    // One socket for the volume and one for the mount.
    assert!(comes_true(|| fs::read_dir(bench.sockets()).unwrap().count() == 2));
    assert!(comes_true(|| report()["mounted_on"] == paths[1]));
    bench.succeed(&["umount", paths[1]]);
    assert_eq!(fs::read_dir(bench.sockets()).unwrap().count(), 0);
}

/// No command about such a mount worked, because the daemon could not encode the path of the mount point.
#[test]
fn paths_need_not_be_utf8() {
    let bench = bench_or_skip!();
    let place = tempfile::tempdir().unwrap();
    let volume = place.path().join(OsStr::from_bytes(b"vol\xff\nume"));
    let directory = place.path().join(OsStr::from_bytes(b"m\xfent"));
    fs::create_dir(&directory).unwrap();
    fs::rename(bench.volume(), &volume).or_else(|_| fs::copy(bench.volume(), &volume).map(drop)).unwrap();
    let polder = |arguments: &[&OsStr]| {
        let mut command = Command::new(bench.program());
        let output = command.args(arguments).env("POLDER_RUN_DIR", bench.sockets()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "polder {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (volume, directory) = (volume.as_os_str(), directory.as_os_str());
    let _taken_down = TakenDown(&bench, directory);
    polder(&["mount".as_ref(), volume, directory]);
    let info: Value = serde_json::from_str(&polder(&["info".as_ref(), "--json".as_ref(), volume])).unwrap();
    let bytes: Vec<u64> = directory.as_bytes().iter().copied().map(u64::from).collect();
    assert_eq!(info["mounted_on"], Value::from(bytes));
    assert!(polder(&["info".as_ref(), directory]).contains("vol\\xff\\nume"));
    for command in ["stats", "check", "sync", "zones", "gc"] {
        polder(&[command.as_ref(), directory]);
    }
    if rustix::process::geteuid().is_root() {
        polder(&["mount".as_ref(), "-o".as_ref(), "remount,ro".as_ref(), directory]);
    }
    polder(&["umount".as_ref(), directory]);
    polder(&["check".as_ref(), volume]);
}

/// The starting process ended while the daemon recovered. The daemon could not report `ready` and ended too. It left a
/// mount without a daemon behind, and a volume that was not closed.
#[test]
fn a_mount_is_taken_down_if_its_starter_has_ended() {
    let bench = bench_or_skip!();
    let guard = crate::Mounted { bench: &bench };
    let mut daemon = Command::new(bench.program())
        .args(["mount", "--foreground", "--detach", "--log"])
        .args([bench.log(), bench.volume(), bench.directory()])
        .env("POLDER_RUN_DIR", bench.sockets())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(daemon.stdout.take());
    let ended = daemon.wait().unwrap();
    assert_eq!(ended.code(), Some(1), "{}", bench.logged());
    assert!(!bench.is_mounted(), "{}", bench.logged());
    assert!(bench.logged().contains("the process that started the daemon has ended"), "{}", bench.logged());
    assert_eq!(fs::read_dir(bench.sockets()).unwrap().count(), 0, "the socket goes too");
    drop(guard);
    let again = bench.mount(&[]);
    let cleanly = bench.logged().lines().filter(|line| line.contains("clean=true")).count();
    assert_eq!(cleanly, 2, "{}", bench.logged());
    again.umount();
    bench.check();
}

/// `umount` of a mount without a daemon waited for the lock of the daemon that had mounted the volume elsewhere since,
/// until that mount ended.
#[test]
fn unmounting_a_dead_mount_does_not_wait_for_another_mount_of_its_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    mounted.daemon().kill();
    let elsewhere = Elsewhere::new(&bench);
    elsewhere.mount(&bench.volume());
    let directory = bench.directory();
    let mut command = Command::new(bench.program());
    command.arg("umount").arg(directory).env("POLDER_RUN_DIR", bench.sockets());
    let mut umount = Running(command.spawn().unwrap());
    assert!(comes_true(|| umount.has_succeeded()));
    assert!(!bench.is_mounted());
    fs::write(elsewhere.directory().join("file"), "alive").unwrap();
    let daemon = elsewhere.daemon();
    drop(elsewhere);
    daemon.wait();
    bench.check();
}

#[test]
fn a_dead_mount_is_replaced_or_removed() {
    let bench = bench_or_skip!();
    let directory = bench.directory();
    let mounted = bench.mount(&[]);
    mounted.daemon().kill();
    let error = fs::read_dir(&directory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
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
    assert_eq!(mounted.report("info")["read_only"], true);
    mounted.umount();
    assert!(fs::read(bench.volume()).unwrap() == before, "the volume has changed");
}

#[test]
fn the_log_records_mounts_and_contains_no_file_names() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "commit=1,cache=16M,nosuid"]);
    fs::write(mounted.path("a-telling-name"), "x").unwrap();
    mounted.umount();
    let log = bench.logged();
    let count = |word| log.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count(" recovered"), count(" mounted"), count(" unmounted")), (1, 1, 1), "{log}");
    assert!(!log.contains("a-telling-name"), "{log}");
}

/// Mounts and unmounts a volume on a machine with its own system log. `$1` is the program.
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

/// A mount by `/etc/fstab` or systemd has no log file. There was no record of what a recovery had done, or of why a volume
/// had been shut down.
#[test]
fn a_daemon_without_a_log_file_writes_to_the_systems_log() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can make a /dev/log");
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
    assert_eq!(complained, "", "only warnings go to the starter");
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
fn a_foreground_daemon_ends_when_it_is_unmounted() {
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

/// A daemon whose mount was lazily unmounted unmounted by path. So it took down the volume that had been mounted there
/// since. `polder sync` of its volume opened that mount instead and reported success: after a power loss, the dirty pages
/// of the first volume would have been lost.
#[test]
fn a_lazily_unmounted_daemon_does_not_touch_the_next_mount() {
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
    assert!(bench.succeed(&["info", volume]).contains("lazily unmounted"));

    daemon.kill();
    drop(file);
    assert_eq!(bench.succeed(&["cat", volume, "/open"]), "in the kernel's cache");
    mounted.umount();
    bench.check();
}

/// In the kernel, each channel has a lock. With a shared channel all threads would wait for the same lock.
#[test]
fn each_fuse_thread_has_its_own_channel() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let process = format!("/proc/{}", mounted.daemon().number());
    let is_answering = |thread: &fs::DirEntry| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with("polder-fuse-"))
    };
    let is_channel = |descriptor: &fs::DirEntry| {
        fs::read_link(descriptor.path()).is_ok_and(|target| target == std::path::Path::new("/dev/fuse"))
    };
    let entries =
        |directory: &str| fs::read_dir(format!("{process}/{directory}")).unwrap().map(Result::unwrap);
    // A thread gets its name when it starts to run. On a busy machine the mount may be usable before that.
    let begun = (0..100_000).map(|_| entries("task").filter(is_answering).count()).find(|&threads| {
        let channels = entries("fd").filter(is_channel).count();
        threads >= 8 && threads == channels
    });
    let channels = entries("fd").filter(is_channel).count();
    assert!(begun.is_some(), "{} threads, {channels} channels", entries("task").filter(is_answering).count());
    mounted.umount();
}

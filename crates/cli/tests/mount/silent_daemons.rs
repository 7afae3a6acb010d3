//! Daemons that do not answer because they are stopped or were killed. No command waits for them, and each error says what
//! helps.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rt::{Clock, SystemClock};
use rustix::process::Signal;

use crate::bench::{Daemon, mounts};
use crate::{Bench, Mounted, bench_or_skip};

/// The time limit for a command. It waits for the daemon at most twice, but the machine may be busy.
const PATIENCE_NS: u64 = 60_000_000_000;

/// A stopped daemon. It continues when this is dropped.
struct Stopped<'a>(&'a Daemon);

impl<'a> Stopped<'a> {
    fn new(daemon: &'a Daemon) -> Self {
        daemon.signal(Signal::STOP);
        let state = || fs::read_to_string(format!("/proc/{}/stat", daemon.number())).unwrap();
        let waiting = rt::thread::Stop::default();
        while !state().rsplit_once(") ").unwrap().1.starts_with('T') {
            waiting.wait(Duration::from_millis(1));
        }
        Stopped(daemon)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.signal(Signal::CONT);
        }
    }
}

/// Detaches a mount when dropped, so that its daemon ends even if the test fails.
struct Ended<'a>(&'a Daemon);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.0.has_ended() {
            self.0.kill();
        }
    }
}

fn start(bench: &Bench, arguments: &[&str]) -> Child {
    let mut command = Command::new(bench.program());
    command.args(arguments).env("POLDER_RUN_DIR", bench.sockets());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The output of a command that must end by itself.
fn finish(mut child: Child, what: &str) -> Output {
    let clock = SystemClock::new();
    let waiting = rt::thread::Stop::default();
    while child.try_wait().unwrap().is_none() {
        if clock.monotonic_ns() > PATIENCE_NS {
            let _ = child.kill();
            panic!("{what} waits for a daemon that does not answer");
        }
        waiting.wait(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs all of these commands at once. Each must fail with its status and the words.
fn all_fail(bench: &Bench, commands: &[(i32, Vec<&str>)], words: &[String]) {
    let running: Vec<Child> = commands.iter().map(|(_, arguments)| start(bench, arguments)).collect();
    let ended: Vec<Output> = running
        .into_iter()
        .zip(commands)
        .map(|(child, (_, arguments))| finish(child, &format!("polder {arguments:?}")))
        .collect();
    for ((status, arguments), output) in commands.iter().zip(ended) {
        let said = said(&output);
        assert_eq!(output.status.code(), Some(*status), "polder {arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "polder {arguments:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "polder {arguments:?}: {said}");
    }
}

/// All commands waited as long as the daemon was stopped, and could not be killed.
#[test]
fn no_command_waits_for_a_stopped_daemon() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), [7; 10_000]).unwrap();
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("mnt");
    fs::create_dir(&elsewhere).unwrap();
    let (volume, root, file) = (bench.volume(), mounted.root(), mounted.path("file"));
    let [volume, root, file, elsewhere] =
        [&volume, &root, &file, &elsewhere].map(|path| path.to_str().unwrap());
    let daemon = mounted.daemon();
    {
        let _stopped = Stopped::new(&daemon);
        let words = [format!("process {}", daemon.number()), format!("kill -CONT {}", daemon.number())];
        let commands = [
            (1, vec!["info", root]),
            (1, vec!["info", volume]),
            (1, vec!["stats", root]),
            (1, vec!["stats", volume]),
            (1, vec!["zones", root]),
            (1, vec!["sync", root]),
            (1, vec!["gc", root]),
            (1, vec!["gc", volume]),
            (8, vec!["check", root]),
            (8, vec!["check", volume]),
            (8, vec!["check", "--repair", volume]),
            (8, vec!["scrub", root]),
            (8, vec!["scrub", volume]),
            (1, vec!["ls", volume]),
            (1, vec!["fragments", file]),
            (1, vec!["defrag", root]),
            (1, vec!["hint", file]),
            (1, vec!["info", file]),
            (1, vec!["mount", "-o", "remount,ro", root]),
            (1, vec!["mount", volume, root]),
            (1, vec!["mount", volume, elsewhere]),
            (1, vec!["zones", volume, "--mount", elsewhere]),
            (1, vec!["umount", root]),
        ];
        all_fail(&bench, &commands, &words);
        assert!(bench.is_mounted());
    }
    assert_eq!(fs::read(mounted.path("file")).unwrap(), [7; 10_000]);
    bench.succeed(&["sync", root]);
    mounted.umount();
    bench.check();
}

/// `umount` waited like the other commands, so that such a mount could not be removed.
#[test]
fn a_mount_with_a_stopped_daemon_is_detached_and_ends_when_it_continues() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let daemon = mounted.daemon();
    let _ended = Ended(&daemon);
    // These pages are dirty, and the process that detaches the mount waits until they are written.
    fs::write(mounted.path("file"), vec![7; 3 << 20]).unwrap();
    {
        let _stopped = Stopped::new(&daemon);
        let root = mounted.root();
        let output = finish(start(&bench, &["umount", "--lazy", root.to_str().unwrap()]), "umount --lazy");
        let said = said(&output);
        assert!(output.status.success() && said.contains(&format!("process {}", daemon.number())), "{said}");
        assert!(!bench.is_mounted() && !daemon.has_ended());
    }
    daemon.wait();
    bench.check();
    let again = bench.mount(&[]);
    assert_eq!(fs::read(again.path("file")).unwrap(), vec![7; 3 << 20]);
    again.umount();
}

/// A volume in a file of another mount. When the lower daemon is stopped, the device of the volume hangs, and the volume
/// cannot be closed.
struct OnAMount<'a> {
    bench: &'a Bench,
    below: Mounted<'a>,
    volume: PathBuf,
    place: tempfile::TempDir,
}

impl<'a> OnAMount<'a> {
    fn new(bench: &'a Bench) -> Self {
        let below = bench.mount(&[]);
        let (volume, place) = (below.path("volume"), tempfile::tempdir().unwrap());
        let made = OnAMount { bench, below, volume, place };
        bench.succeed(&["mkfs", made.volume.to_str().unwrap(), "--size", "64M"]);
        bench.succeed(&["mount", "-o", "commit=3600", made.volume.to_str().unwrap(), made.directory()]);
        fs::write(made.place.path().join("file"), "kept").unwrap();
        made
    }

    fn directory(&self) -> &str {
        self.place.path().to_str().unwrap()
    }

    fn is_mounted(&self) -> bool {
        mounts().lines().any(|line| line.split(' ').nth(4) == Some(self.directory()))
    }

    fn verify(&self) {
        assert_eq!(self.bench.succeed(&["cat", self.volume.to_str().unwrap(), "/file"]), "kept");
    }
}

impl Drop for OnAMount<'_> {
    fn drop(&mut self) {
        if self.is_mounted() {
            self.bench.polder(&["umount", "--lazy", self.directory()]);
        }
    }
}

/// `umount --lazy` waited until the volume was closed, unless the mount was in use.
#[test]
fn a_lazy_unmount_does_not_wait_for_a_hanging_device() {
    let bench = bench_or_skip!();
    let mounted = OnAMount::new(&bench);
    let daemon = Daemon::of(&bench, mounted.place.path());
    let below = mounted.below.daemon();
    {
        let _stopped = Stopped::new(&below);
        let output = finish(start(&bench, &["umount", "--lazy", mounted.directory()]), "umount --lazy");
        let said = said(&output);
        let number = daemon.number();
        assert!(
            output.status.success() && said.contains(&format!("(process {number}) closes the volume")),
            "{said}"
        );
        assert!(!mounted.is_mounted() && !daemon.has_ended());
    }
    daemon.wait();
    mounted.verify();
}

/// In another PID namespace, a command cannot see the process behind the daemon's socket. It did not wait for the daemon.
#[test]
fn an_unmount_from_another_pid_namespace_waits_until_the_volume_is_closed() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can create a PID namespace");
    }
    let mounted = OnAMount::new(&bench);
    let daemon = Daemon::of(&bench, mounted.place.path());
    let below = mounted.below.daemon();
    let mut umount = Command::new("unshare");
    umount.args(["--pid", "--fork", "--"]).arg(bench.program()).args(["umount", mounted.directory()]);
    umount.env("POLDER_RUN_DIR", bench.sockets()).stdin(Stdio::null());
    let mut umount = {
        let _stopped = Stopped::new(&below);
        let mut umount = umount.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let waiting = rt::thread::Stop::default();
        while mounted.is_mounted() && umount.try_wait().unwrap().is_none() {
            waiting.wait(Duration::from_millis(5));
        }
        // This waits for the time limit of a silent daemon, much longer than an unmount that does not wait.
        bench.fail(1, &["info", bench.directory().to_str().unwrap()]);
        assert!(
            umount.try_wait().unwrap().is_none() && !daemon.has_ended(),
            "the daemon still holds the volume"
        );
        umount
    };
    assert!(umount.wait().unwrap().success());
    // The volume is closed. The process may take a moment longer to end.
    mounted.verify();
    daemon.wait();
}

#[test]
fn force_ends_a_mount_with_a_running_or_stopped_daemon() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can end a mount by force");
    }
    for is_stopped in [false, true] {
        let mounted = bench.mount(&["-o", "commit=3600"]);
        let root = mounted.root();
        let daemon = mounted.daemon();
        let _ended = Ended(&daemon);
        fs::write(mounted.path("synced"), "kept").unwrap();
        bench.succeed(&["sync", root.to_str().unwrap()]);
        // Started before the file is opened. A child that is started later closes a copy of the descriptor, and waits for
        // the daemon.
        let mut shell = Command::new("sh");
        shell.args(["-c", "read go && exec \"$0\" umount --force \"$1\""]).arg(bench.program()).arg(&root);
        shell.env("POLDER_RUN_DIR", bench.sockets()).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut umount = shell.spawn().unwrap();
        let mut open = File::create(mounted.path("open")).unwrap();
        open.write_all(b"in the kernel's cache").unwrap();
        {
            let _stopped = is_stopped.then(|| Stopped::new(&daemon));
            umount.stdin.take().unwrap().write_all(b"go\n").unwrap();
            let output = finish(umount, "umount --force");
            let said = said(&output);
            assert!(output.status.success() && said.contains("unsynced data is lost"), "{said}");
            let is_reported = said.contains(&format!("process {} still holds the volume", daemon.number()));
            assert!(is_reported || !is_stopped, "{said}");
            assert!(!bench.is_mounted());
            assert!(
                open.metadata().is_err() || open.sync_all().is_err(),
                "the program that uses the mount gets an error"
            );
        }
        drop(open);
        daemon.wait();
        bench.check();
        let again = bench.mount(&[]);
        assert_eq!(fs::read(again.path("synced")).unwrap(), b"kept");
        again.umount();
    }
}

/// Some commands reported that the volume is not mounted, others opened it without a message.
#[test]
fn every_command_reports_a_killed_daemon() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), "kept").unwrap();
    let root: PathBuf = mounted.root();
    let root = root.to_str().unwrap();
    bench.succeed(&["sync", root]);
    let daemon = mounted.daemon();
    daemon.kill();
    let words = ["the daemon of this mount has ended".to_owned(), format!("polder umount {root}")];
    let commands = [
        (1, vec!["info", root]),
        (1, vec!["stats", root]),
        (1, vec!["zones", root]),
        (1, vec!["sync", root]),
        (1, vec!["gc", root]),
        (8, vec!["check", root]),
        (8, vec!["check", "--repair", root]),
        (8, vec!["scrub", root]),
        (1, vec!["ls", root]),
        (1, vec!["mount", "-o", "remount,ro", root]),
    ];
    all_fail(&bench, &commands, &words);
    let file = mounted.path("file");
    all_fail(
        &bench,
        &[(1, vec!["hint", file.to_str().unwrap()])],
        &["the daemon of the mount has ended".to_owned()],
    );
    // The volume itself counts as not mounted.
    assert!(bench.succeed(&["info", bench.volume().to_str().unwrap()]).contains("mounted       no"));
    bench.succeed(&["umount", root]);
    assert!(!bench.is_mounted());
    assert_eq!(fs::read_dir(bench.sockets()).unwrap().count(), 1, "only the name of the volume is left");
    assert_eq!(bench.succeed(&["cat", bench.volume().to_str().unwrap(), "/file"]), "kept");
    bench.check();
}

/// Commands with a path into a mount with a stopped daemon waited for the daemon and could not be killed. Most of them waited
/// if the path leads through a directory there, the others if a symbolic link leads there.
#[test]
fn paths_through_a_stopped_mount_are_refused() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let daemon = mounted.daemon();
    let place = tempfile::tempdir().unwrap();
    let outside = |name: &str| place.path().join(name).into_os_string().into_string().unwrap();
    let inside = |name: &str| mounted.path(name).into_os_string().into_string().unwrap();
    let (root, top, sub) = (inside(""), inside("volume"), inside("sub"));
    let (volume, new) = (inside("sub/volume"), inside("sub/new"));
    let (other, elsewhere) = (outside("other"), outside("mnt"));
    let [to_root, to_sub, to_volume, to_new, to_top] =
        ["root", "to-sub", "to-volume", "to-new", "to-top"].map(outside);
    fs::create_dir(&sub).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    for volume in [&top, &volume, &other] {
        bench.succeed(&["mkfs", volume, "--size", "64M"]);
    }
    for (target, link) in
        [(&root, &to_root), (&sub, &to_sub), (&volume, &to_volume), (&new, &to_new), (&top, &to_top)]
    {
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    let through_link = outside("to-sub/volume");
    {
        let _stopped = Stopped::new(&daemon);
        let words = [format!("process {}", daemon.number()), bench.directory().to_str().unwrap().to_owned()];
        let of_volume = |volume| {
            [
                (1, vec!["info", volume]),
                (8, vec!["check", volume]),
                (1, vec!["mount", volume, &elsewhere]),
                (1, vec!["umount", volume]),
                (1, vec!["umount", "--force", volume]),
                (1, vec!["hint", volume]),
                (1, vec!["fragments", volume]),
                (1, vec!["ls", volume]),
                (1, vec!["zones", volume, "--mount", &elsewhere]),
                (8, vec!["salvage", volume, &elsewhere]),
            ]
        };
        let mut commands: Vec<(i32, Vec<&str>)> =
            [&*top, &*volume, &*to_top, &*to_volume, &*through_link].map(of_volume).concat();
        commands.extend([
            (1, vec!["mkfs", &new, "--size", "64M"]),
            (1, vec!["mkfs", &to_new, "--size", "64M"]),
            (1, vec!["mkfs", &root, "--size", "64M"]),
            (8, vec!["salvage", &other, &new]),
            (8, vec!["salvage", &other, &to_root]),
            (1, vec!["cp", "-r", &other, "/", &new]),
            (1, vec!["mount", &other, &sub]),
            (1, vec!["mount", &other, &to_sub]),
            (1, vec!["mount", &root, &elsewhere]),
            (1, vec!["mount", "--log", &new, &other, &elsewhere]),
            (1, vec!["zones", &other, "--log", &to_new, "--mount", &elsewhere]),
            (1, vec!["umount", &sub]),
            (1, vec!["umount", &to_sub]),
            (1, vec!["info", &to_root]),
            (1, vec!["mount", "-o", "remount,ro", &sub]),
        ]);
        all_fail(&bench, &commands, &words);
        all_fail(&bench, &[(1, vec!["umount", &to_root])], &words[..1]);
    }
    for volume in [&volume, &to_volume, &through_link] {
        assert!(bench.succeed(&["info", volume]).contains("mounted       no"));
    }
    mounted.umount();
    bench.check();
}

//! State that a daemon inherits from its caller, and how the daemon resets it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::bench::Daemon;
use crate::security::NOBODY;
use crate::{Bench, Mounted, bench_or_skip};

/// Mounts the volume of the bench from a shell after it has run `before`.
fn mount_after<'a>(bench: &'a Bench, before: &str) -> Mounted<'a> {
    let mounted = Mounted { bench };
    let mut shell = shell(bench, &format!("{before}\n\"$0\" mount \"$1\" \"$2\" --log \"$3\""));
    let output = shell.args([bench.volume(), bench.directory(), bench.log()]).output().unwrap();
    assert!(output.status.success(), "{before}: {}", String::from_utf8_lossy(&output.stderr));
    mounted
}

/// A shell in the directory of the bench; `$0` is the program.
fn shell(bench: &Bench, script: &str) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(bench.program()).env("POLDER_RUN_DIR", bench.sockets());
    shell.current_dir(bench.volume().parent().unwrap());
    shell
}

/// A field of `/proc/PID/status`.
fn status(daemon: &Daemon, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", daemon.number())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field}")).trim().to_owned()
}

/// The soft and the hard limit, as the system shows them.
fn limits(daemon: &Daemon, name: &str) -> (String, String) {
    let text = fs::read_to_string(format!("/proc/{}/limits", daemon.number())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let mut words = line.split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let waiting = rt::thread::Stop::default();
    (0..4000).any(|_| condition() || waiting.wait(Duration::from_millis(5)))
}

/// A process in the foreground. It is killed when this is dropped.
struct Foreground(Child);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cron job that mounts under `flock` never ran again, because the daemon kept the lock. The reader of a pipe from the
/// caller waited as long as the volume was mounted.
#[test]
fn descriptors_of_the_caller_are_closed() {
    let bench = bench_or_skip!();
    let (reader, writer) = std::io::pipe().unwrap();
    let script = "exec 9>lock; flock 9; exec 8</; { \"$0\" mount \"$1\" \"$2\" --log \"$3\"; } 7>&1 >ended; echo done >&2";
    let mounted = Mounted { bench: &bench };
    let mut mount = shell(&bench, script);
    mount.args([bench.volume(), bench.directory(), bench.log()]).stdout(writer).stderr(Stdio::piped());
    let output = mount.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "done\n");
    drop(mount);
    // The reader reaches the end of the pipe while the daemon still runs.
    assert_eq!(std::io::read_to_string(reader).unwrap(), "");
    let lock = File::open(bench.volume().with_file_name("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let daemon = mounted.daemon();
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.number())).unwrap();
    let leads: Vec<_> = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect();
    assert!(
        !leads.iter().any(|to| to == Path::new("/") || to.ends_with("lock") || to.ends_with("ended")),
        "{leads:?}"
    );
    mounted.umount();
    bench.check();
}

/// A daemon that inherited a file size limit was killed at the first write beyond it, and unsynced data were lost.
#[test]
fn limits_of_the_caller_are_raised() {
    let bench = bench_or_skip!();
    let mounted =
        mount_after(&bench, "ulimit -S -f 8192 && ulimit -S -t 1 && ulimit -S -n 40 && ulimit -S -s 128");
    let daemon = mounted.daemon();
    for name in ["Max file size", "Max cpu time", "Max open files", "Max stack size"] {
        let (lower, upper) = limits(&daemon, name);
        assert_eq!(lower, upper, "{name}");
    }
    let mut file = File::create(mounted.path("file")).unwrap();
    file.write_all(&vec![7; 30 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.umount();
    bench.check();
    let made = shell(&bench, "ulimit -S -f 64 && \"$0\" mkfs new --size 64M").status().unwrap();
    assert!(made.success());
}

/// SIGXFSZ killed `mkfs`, which left an empty file behind. A mount by a user that cannot raise the limit would reach it
/// later.
#[test]
fn limits_that_are_too_low_are_refused_in_advance() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can run a command as another user");
    }
    crate::security::open_to_others(&bench);
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(place.path(), Some(NOBODY), None).unwrap();
    let program = bench.volume().with_file_name("polder");
    let run = |script: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).arg(&program).current_dir(place.path()).uid(NOBODY).gid(NOBODY);
        shell.env("POLDER_RUN_DIR", place.path().join("run")).output().unwrap()
    };
    let refused = |script: &str| {
        let output = run(script);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{script}: {said}");
        assert!(said.contains("files of at most 4 MiB") && said.contains("64 MiB"), "{said}");
    };
    refused("ulimit -f 4096 && exec \"$0\" mkfs volume --size 64M");
    assert!(!place.path().join("volume").exists());
    assert!(run("\"$0\" mkfs volume --size 64M && mkdir mnt").status.success());
    let before = fs::metadata(place.path().join("volume")).unwrap();
    refused("ulimit -f 4096 && exec \"$0\" mkfs volume --force");
    refused("ulimit -f 4096 && exec \"$0\" mount volume mnt");
    refused("ulimit -f 4096 && exec \"$0\" gc volume");
    for (limit, words) in
        [("-t 30", "killed after 30 s of processor time"), ("-n 40", "raise the limit (`ulimit -n`)")]
    {
        let output = run(&format!("ulimit {limit} && exec \"$0\" mount volume mnt"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(words), "{said}");
    }
    let after = fs::metadata(place.path().join("volume")).unwrap();
    assert_eq!((before.len(), before.mtime_nsec()), (after.len(), after.mtime_nsec()));
    // A soft limit is raised.
    assert!(run("ulimit -S -f 4096 && exec \"$0\" mkfs other --size 64M").status.success());
    // Reading needs no file size.
    assert!(run("ulimit -f 4096 && exec \"$0\" check volume").status.success());
}

/// Otherwise a daemon would ignore the signals that its caller ignores (`nohup`, `trap ''`) forever.
#[test]
fn signals_that_the_caller_ignores_end_a_daemon() {
    const OF_PIPES: u64 = 1 << 12;
    // The higher signals belong to the C library.
    const STANDARD: u64 = (1 << 31) - 1;
    let bench = bench_or_skip!();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::XCPU] {
        let mounted = mount_after(&bench, "trap '' TERM HUP INT CHLD QUIT XCPU ALRM USR1");
        let daemon = mounted.daemon();
        let ignored = u64::from_str_radix(&status(&daemon, "SigIgn"), 16).unwrap();
        assert_eq!(ignored & STANDARD, OF_PIPES, "{ignored:x}");
        daemon.signal(signal);
        daemon.wait();
        assert!(!bench.is_mounted());
        drop(mounted);
    }
    bench.check();
}

/// A foreground process that was started with `nohup` is meant to continue.
#[test]
fn signals_that_the_caller_ignores_stay_ignored_in_the_foreground() {
    let bench = bench_or_skip!();
    let mounted = Mounted { bench: &bench };
    let mut shell = shell(&bench, "trap '' HUP; exec \"$0\" mount --foreground \"$1\" \"$2\" --log \"$3\"");
    let process = shell.args([bench.volume(), bench.directory(), bench.log()]).spawn().unwrap();
    let mut process = Foreground(process);
    assert!(comes_true(|| bench.logged().contains(" mounted ")));
    let daemon = mounted.daemon();
    assert_eq!(daemon.number().cast_unsigned(), process.0.id());
    daemon.signal(Signal::HUP);
    bench.succeed(&["sync", bench.directory().to_str().unwrap()]);
    daemon.signal(Signal::TERM);
    assert!(process.0.wait().unwrap().success());
    assert!(!bench.logged().contains("SIGHUP") && !bench.is_mounted());
    bench.check();
}

#[test]
fn a_daemon_has_its_own_session_directory_umask_and_priority() {
    let bench = bench_or_skip!();
    let before = "umask 0; mkdir -p here; cd here; export POLDER_RUN_DIR=../run; renice -n 5 $$ >renice";
    let mounted = mount_after(&bench, before);
    let daemon = mounted.daemon();
    let process = format!("/proc/{}", daemon.number());
    assert_eq!(fs::read_link(format!("{process}/cwd")).unwrap(), Path::new("/"));
    assert_eq!(status(&daemon, "Umask"), "0022");
    assert_eq!(fs::metadata(bench.log()).unwrap().permissions().mode() & 0o777, 0o644);
    let about = fs::read_to_string(format!("{process}/stat")).unwrap();
    let fields: Vec<i32> =
        about.rsplit_once(") ").unwrap().1.split(' ').skip(1).map_while(|field| field.parse().ok()).collect();
    // The fields after the parent: process group, session, terminal.
    assert_eq!(fields[1..4], [daemon.number(), daemon.number(), 0]);
    if rustix::process::geteuid().is_root() {
        let nice = rustix::process::getpriority_process(rustix::process::Pid::from_raw(daemon.number()));
        assert_eq!(nice.unwrap(), 0);
    }
    mounted.umount();
    bench.check();
}

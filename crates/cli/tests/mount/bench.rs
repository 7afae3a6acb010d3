//! A volume in a temporary directory, and mounts that are always taken down.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::Value;
use tempfile::TempDir;

/// A volume and a mount point.
pub(crate) struct Bench {
    place: TempDir,
}

/// A mounted volume. It is unmounted when dropped, even if it is in use or its daemon has ended.
pub(crate) struct Mounted<'a> {
    pub(crate) bench: &'a Bench,
}

/// Nine mebibytes that depend on the seed.
pub(crate) fn contents(seed: u32) -> Vec<u8> {
    (0..9_u32 << 20).map(|at| (at.wrapping_mul(seed) >> 7) as u8).collect()
}

/// Writes a file with these contents durably.
pub(crate) fn write(path: &Path, seed: u32) {
    fs::write(path, contents(seed)).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// Asserts that a file has these contents.
pub(crate) fn assert_contents(path: &Path, seed: u32) {
    assert!(fs::read(path).unwrap() == contents(seed), "{}", path.display());
}

impl Bench {
    pub(crate) fn new() -> Result<Bench, String> {
        File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(|error| format!("/dev/fuse: {error}"))?;
        if !rustix::process::geteuid().is_root() {
            Command::new("fusermount3")
                .arg("-V")
                .output()
                .map_err(|error| format!("fusermount3: {error}"))?;
        }
        let bench = Bench { place: tempfile::tempdir().unwrap() };
        fs::create_dir(bench.directory()).unwrap();
        fs::create_dir(bench.sockets()).unwrap();
        bench.succeed(&["mkfs", bench.volume().to_str().unwrap(), "--size", "256M", "--label", "bench"]);
        Ok(bench)
    }

    pub(crate) fn volume(&self) -> PathBuf {
        self.place.path().join("volume")
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.place.path().join("run")
    }

    pub(crate) fn polder(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
        command.args(arguments).env("POLDER_RUN_DIR", self.sockets()).output().unwrap()
    }

    /// The program itself.
    pub(crate) fn program(&self) -> &Path {
        Path::new(env!("CARGO_BIN_EXE_polder"))
    }

    /// Runs the program under another of its names.
    pub(crate) fn run_as(&self, name: &str, arguments: &[&str]) -> Output {
        let link = self.place.path().join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(self.program(), &link).unwrap();
        }
        Command::new(link).args(arguments).env("POLDER_RUN_DIR", self.sockets()).output().unwrap()
    }

    /// Runs a command that must succeed. Returns its standard output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.polder(arguments);
        let (said, printed) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        let logged = || format!("{printed}{}", self.logged());
        assert!(output.status.success(), "polder {arguments:?}: {}: {said}{}", output.status, logged());
        printed.into_owned()
    }

    /// Runs a command that must fail with this status. Returns its error message.
    pub(crate) fn fail(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.polder(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "polder {arguments:?}: {said}");
        said
    }

    pub(crate) fn mount(&self, options: &[&str]) -> Mounted<'_> {
        let (volume, directory, log) = (self.volume(), self.directory(), self.log());
        let paths = [&volume, &directory, &log].map(|path| path.to_str().unwrap());
        let mounted = Mounted { bench: self };
        self.succeed(&[&["mount", paths[0], paths[1], "--log", paths[2]], options].concat());
        mounted
    }

    /// Asserts that the unmounted volume is clean.
    pub(crate) fn check(&self) {
        let said = self.succeed(&["check", self.volume().to_str().unwrap()]);
        assert!(said.ends_with(": clean\n"), "{said}");
    }

    /// The log of all daemons so far.
    pub(crate) fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Whether the table of mounts has a mount at the directory.
    pub(crate) fn is_mounted(&self) -> bool {
        let directory = self.directory();
        mounts().lines().any(|line| line.split(' ').nth(4) == directory.to_str())
    }
}

impl Mounted<'_> {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.bench.directory()
    }

    /// The JSON report of `info`, `stats` or `zones`.
    pub(crate) fn report(&self, command: &str) -> Value {
        let directory = self.root();
        serde_json::from_str(&self.bench.succeed(&[command, directory.to_str().unwrap(), "--json"])).unwrap()
    }

    pub(crate) fn daemon(&self) -> Daemon {
        Daemon::of(self.bench, &self.root())
    }

    /// Unmounts the volume, which must succeed. The mount may be in use for a moment: a child process that another test has
    /// just forked keeps our files open until it calls `exec`.
    pub(crate) fn umount(self) {
        let directory = self.root();
        let waiting = rt::thread::Stop::default();
        let said = (0..1000).find_map(|_| {
            let output = self.bench.polder(&["umount", directory.to_str().unwrap()]);
            let said = String::from_utf8(output.stderr).unwrap();
            let is_busy = said.contains("is in use");
            if is_busy {
                waiting.wait(Duration::from_millis(5));
            }
            (!is_busy).then_some(said)
        });
        assert_eq!(said.as_deref(), Some(""), "{}", self.bench.logged());
        assert!(!self.bench.is_mounted());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.bench.is_mounted() {
            let directory = self.root();
            self.bench.polder(&["umount", "--lazy", directory.to_str().unwrap()]);
        }
        if std::thread::panicking() {
            eprintln!("{}", self.bench.logged());
        }
    }
}

/// The process behind a mount.
pub(crate) struct Daemon {
    pid: Pid,
    handle: File,
}

impl Daemon {
    /// The daemon of the mount at this directory.
    pub(crate) fn of(bench: &Bench, directory: &Path) -> Daemon {
        Daemon::in_report(&bench.succeed(&["info", directory.to_str().unwrap(), "--json"]))
    }

    /// The daemon in a report of `info --json`.
    pub(crate) fn in_report(info: &str) -> Daemon {
        let info: Value = serde_json::from_str(info).unwrap();
        let pid = Pid::from_raw(info["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Daemon { pid, handle: handle.into() }
    }

    pub(crate) fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid, signal).unwrap();
    }

    /// The names of its threads, truncated by the system.
    pub(crate) fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.number())).into_iter().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.map(|name| name.trim_end().to_owned()).collect()
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&self) {
        poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], None).unwrap();
    }

    /// Kills the process, which is equivalent to a crash.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        self.wait();
    }
}

/// The table of mounts. Paths of other mounts need not be UTF-8.
pub(crate) fn mounts() -> String {
    String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap()).into_owned()
}

/// The names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

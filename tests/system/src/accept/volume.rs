//! A volume for an acceptance point: its commands and its daemon.
//!
//! Nothing of it stays: dropping it kills the daemon that it started (by its process id, never by a name), detaches
//! the mount and removes the file. Only [`Volume::keep_if_failed`] keeps files of a failed point.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use serde_json::Value;
use support::mounts::{is_mounted, umount_line};
use support::needs;
use support::shell::Line;
use support::workspace;
use tempfile::TempDir;

/// Time limit for a mount, also after a crash.
pub(crate) const MOUNT_NS_MAX: u64 = 1_000_000_000;

/// Time limit for the end of a killed process.
const END_NS_MAX: u64 = 10_000_000_000;

/// The interval of checks for that.
const LOOK: Duration = Duration::from_millis(1);

/// The daemon's log, beside the volume, and how many of its last lines a failure shows.
const LOG: &str = "log";
const LOG_LINES: usize = 80;

/// The folder of the daemon's control sockets. Its path must be short.
pub(crate) const RUN_DIR: &str = "POLDER_RUN_DIR";

/// A copy of the volume's file as it was when its daemon was killed.
const STRUCK: &str = "struck";

/// A volume in a folder of its own.
pub(crate) struct Volume {
    polder: PathBuf,
    /// The program that mounts it, and its environment.
    daemon: PathBuf,
    daemon_env: Vec<(&'static str, String)>,
    folder: TempDir,
    run_dir: TempDir,
    /// The mount point.
    dir: PathBuf,
    mount_args: Vec<String>,
    clock: SystemClock,
    pid: Cell<Option<Pid>>,
    control: RefCell<Option<BufReader<UnixStream>>>,
    mounts: Cell<u64>,
    mount_ns_max: Cell<u64>,
}

impl Volume {
    /// Builds the command and creates a volume with it. `mkfs` and `mount` are arguments of these subcommands.
    pub(crate) fn make(mkfs: &[&str], mount: &[&str]) -> Result<Self> {
        Volume::make_for(None, mkfs, mount)
    }

    /// The same, to be mounted on a folder of the caller (`None`: on one that only this user can reach).
    pub(crate) fn make_for(dir: Option<&Path>, mkfs: &[&str], mount: &[&str]) -> Result<Self> {
        needs::require(&needs::MOUNT)?;
        let polder = workspace::build_polder()?;
        let target = workspace::target_dir()?;
        let temporary = |within: &Path| tempfile::Builder::new().prefix("accept-").tempdir_in(within);
        let folder = temporary(&target).context("cannot make a temporary folder")?;
        let volume = Volume {
            daemon: polder.clone(),
            daemon_env: Vec::new(),
            polder,
            dir: dir.map_or_else(|| folder.path().join("mnt"), Path::to_owned),
            folder,
            run_dir: temporary(&std::env::temp_dir()).context("cannot make a temporary folder")?,
            mount_args: mount.iter().map(|&arg| arg.to_owned()).collect(),
            clock: SystemClock::new(),
            pid: Cell::new(None),
            control: RefCell::new(None),
            mounts: Cell::new(0),
            mount_ns_max: Cell::new(0),
        };
        std::fs::create_dir_all(volume.dir())?;
        volume.command("mkfs").arg(volume.file()).args(mkfs).run()?;
        Ok(volume)
    }

    /// Makes another program mount it from now on, with more variables in its environment.
    pub(crate) fn serve_by(&mut self, daemon: &Path, env: Vec<(&'static str, String)>) {
        self.daemon = daemon.to_owned();
        self.daemon_env = env;
    }

    /// The file that contains the volume.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    /// The program.
    pub(crate) fn polder(&self) -> &Path {
        &self.polder
    }

    /// The mount point.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    /// The process that serves the mount.
    pub(crate) fn pid(&self) -> Result<Pid> {
        self.pid.get().context("the volume is not mounted")
    }

    /// How often it was mounted.
    pub(crate) fn mounts(&self) -> u64 {
        self.mounts.get()
    }

    /// The longest mount so far, from the start of the command to its end.
    pub(crate) fn mount_ns_max(&self) -> u64 {
        self.mount_ns_max.get()
    }

    /// Mounts. Returns how long the command took.
    pub(crate) fn mount(&self) -> Result<u64> {
        self.mount_with(&[])
    }

    /// The same with further arguments.
    pub(crate) fn mount_with(&self, more: &[&str]) -> Result<u64> {
        let log = self.folder.path().join(LOG);
        let line = Line::program(&self.daemon).arg("mount").env(RUN_DIR, &self.run_dir());
        let line = self.daemon_env.iter().fold(line, |line, (key, value)| line.env(key, value));
        let line = line.args(&self.mount_args).args(more).arg("--log").arg(log);
        let line = line.arg(self.file()).arg(self.dir());
        let began_ns = self.clock.monotonic_ns();
        line.run()?;
        let took_ns = self.clock.monotonic_ns() - began_ns;
        let info = self.info()?;
        let pid = info["pid"].as_i64().context("`polder info` names no process of the mount")?;
        self.pid.set(Some(Pid::from_raw(pid.try_into()?)));
        ensure!(is_mounted(&self.dir())?, "`polder mount` ended well, but nothing is mounted");
        self.mounts.set(self.mounts.get() + 1);
        self.mount_ns_max.set(self.mount_ns_max.get().max(took_ns));
        Ok(took_ns)
    }

    /// Mounts after a crash, which must take at most [`MOUNT_NS_MAX`].
    pub(crate) fn mount_in_time(&self) -> Result<u64> {
        let took_ns = self.mount()?;
        self.ensure_mounted_in_time()?;
        Ok(took_ns)
    }

    /// Checks that no mount has taken longer than that.
    pub(crate) fn ensure_mounted_in_time(&self) -> Result<()> {
        let took_ns = self.mount_ns_max();
        ensure!(took_ns < MOUNT_NS_MAX, "the mount after a crash took {} ms", took_ns / 1_000_000);
        Ok(())
    }

    /// `kill -9`, without waiting for anything.
    pub(crate) fn strike(&self) -> Result<()> {
        kill(self.pid()?, Signal::SIGKILL).context("the daemon had ended before it was killed")
    }

    /// Waits until the killed or terminated process is gone, with its lock on the volume.
    pub(crate) fn await_end(&self) -> Result<()> {
        self.await_gone()?;
        self.pid.set(None);
        self.control.take();
        Ok(())
    }

    /// The same, but the volume still counts as mounted.
    pub(crate) fn await_gone(&self) -> Result<()> {
        let pid = self.pid()?;
        let began_ns = self.clock.monotonic_ns();
        while !is_gone(pid) {
            ensure!(self.clock.monotonic_ns() - began_ns < END_NS_MAX, "process {pid} does not end");
            Stop::default().wait(LOOK);
        }
        Ok(())
    }

    /// Copies the volume's file as it is, to be kept if a later step fails. The copy is a new file each time. If an
    /// old file was truncated and rewritten, the host would write it to its disk at once, and the work would wait for
    /// that.
    pub(crate) fn copy_struck(&self) -> Result<()> {
        let copy = self.folder.path().join(STRUCK);
        Line::new("cp --sparse=always --reflink=auto --remove-destination").arg(self.file()).arg(copy).run()
    }

    /// `kill -9`, and removes the dead mount.
    pub(crate) fn kill(&self) -> Result<()> {
        self.strike()?;
        self.await_end()?;
        self.detach()
    }

    pub(crate) fn unmount(&self) -> Result<()> {
        umount_line(&self.polder, &self.dir()).env(RUN_DIR, &self.run_dir()).run()?;
        ensure!(!is_mounted(&self.dir())?, "`polder umount` ended well, but the mount is still there");
        // It has released the volume, but its process may need a moment to end.
        self.await_end()
    }

    /// Removes the mount of a dead daemon.
    pub(crate) fn detach(&self) -> Result<()> {
        if is_mounted(&self.dir())? {
            Line::new("fusermount3 -u -z").arg(self.dir()).run()?;
        }
        Ok(())
    }

    /// Checks that the volume, not mounted, is clean.
    pub(crate) fn check(&self) -> Result<()> {
        self.command("check").arg(self.file()).output()?;
        Ok(())
    }

    /// The same, with every block of every file.
    pub(crate) fn check_data(&self) -> Result<()> {
        self.command("check").arg("--data").arg(self.file()).output()?;
        Ok(())
    }

    /// Arguments of the simulator for a run in a directory of the mount. The daemon verifies all files before they
    /// are deleted.
    pub(super) fn verified_in(&self, directory: &Path) -> Vec<String> {
        let polder = self.polder.display();
        let verify =
            format!("{RUN_DIR}='{}' '{polder}' check --data '{}'", self.run_dir(), self.dir().display());
        ["--directory", &directory.to_string_lossy(), "--verify", &verify].map(str::to_owned).to_vec()
    }

    /// The output of `polder info`.
    pub(crate) fn info(&self) -> Result<Value> {
        self.ask_command("info")
    }

    /// The output of `polder stats`, quickly: over a permanent connection.
    pub(crate) fn stats(&self) -> Result<Value> {
        let mut control = self.control.borrow_mut();
        let stream = match &mut *control {
            Some(stream) => stream,
            none => none.insert(BufReader::new(self.connect()?)),
        };
        stream.get_mut().write_all(b"{\"command\":\"stats\"}\n").context("the daemon has ended")?;
        let mut line = String::new();
        stream.read_line(&mut line).context("the daemon does not answer")?;
        let answer: Value = serde_json::from_str(&line).context("the daemon's answer is not JSON")?;
        match answer.get("ok") {
            Some(stats) => Ok(stats.clone()),
            None => bail!("the daemon refuses to count: {answer}"),
        }
    }

    /// The directory has the sockets of the daemon, and those that killed daemons have left.
    fn connect(&self) -> Result<UnixStream> {
        let entries = std::fs::read_dir(self.run_dir.path())?.collect::<std::io::Result<Vec<_>>>()?;
        let answers = entries.iter().find_map(|entry| UnixStream::connect(entry.path()).ok());
        answers.with_context(|| format!("none of {} control sockets answers", entries.len()))
    }

    fn ask_command(&self, what: &str) -> Result<Value> {
        let named = if is_mounted(&self.dir())? { self.dir() } else { self.file() };
        let text = self.command(what).arg("--json").arg(named).output()?;
        serde_json::from_str(&text).with_context(|| format!("`polder {what} --json` printed no JSON"))
    }

    /// A one-line description.
    pub(crate) fn geometry(&self) -> Result<String> {
        let info = self.info()?;
        let number = |key: &str| info[key].as_u64().with_context(|| format!("`polder info` names no {key}"));
        let options = match self.mount_args.as_slice() {
            [] => "no options".to_owned(),
            options => options.join(" "),
        };
        Ok(format!(
            "{} zones of {} KiB, blocks of {}, pages of {}, {} groups; mounted with {options}",
            number("zones")?,
            number("zone_bytes")? >> 10,
            number("block_size")?,
            number("page_size")?,
            number("groups")?,
        ))
    }

    /// Passes a result on. If it is a failure, keeps the file of the volume and prints its path.
    pub(crate) fn keep_if_failed<T>(&self, name: &str, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.keep(name);
        }
        result
    }

    /// Passes a result on. If it is a failure, shows the log, and does not keep the volume.
    pub(super) fn tell_if_failed<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.show_log();
        }
        result
    }

    fn keep(&self, name: &str) {
        self.show_log();
        self.keep_file(&self.file(), &format!("failed-{name}.volume"), "the volume");
        let struck = self.folder.path().join(STRUCK);
        if struck.exists() {
            self.keep_file(&struck, &format!("failed-{name}-struck.volume"), "the file of its last daemon");
        }
    }

    fn keep_file(&self, file: &Path, name: &str, what: &str) {
        let kept = self.folder.path().with_file_name(name);
        match std::fs::rename(file, &kept) {
            Ok(()) => println!("{what} is kept as {}", kept.display()),
            Err(error) => println!("{what} cannot be kept: {error}"),
        }
    }

    /// The whole log of its daemons.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }

    fn show_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        println!("the end of the daemon's log:");
        lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).for_each(|line| println!("  {line}"));
    }

    pub(crate) fn command(&self, name: &str) -> Line {
        Line::program(&self.polder).arg(name).env(RUN_DIR, &self.run_dir())
    }

    pub(crate) fn run_dir(&self) -> String {
        self.run_dir.path().to_string_lossy().into_owned()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.pid.get().is_some() {
            // A daemon that has ended by itself cannot be killed, but its mount must be removed all the same.
            let _ = self.strike();
            if let Err(error) = self.await_end() {
                println!("a daemon is left behind: {error:#}");
            }
        }
        if let Err(error) = self.detach() {
            println!("a mount is left behind on {}: {error:#}", self.dir().display());
        }
    }
}

/// Whether no part of a process runs any more. A zombie has no open files once its last thread has ended.
pub(crate) fn is_gone(pid: Pid) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let Ok(stat) = std::fs::read_to_string(process.join("stat")) else { return true };
    let is_zombie = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    is_zombie && threads <= 1
}

/// A number in the answer of `polder stats` or `polder info`.
pub(crate) fn number(answer: &Value, path: &str) -> Result<u64> {
    answer.pointer(path).and_then(Value::as_u64).with_context(|| format!("the daemon does not count {path}"))
}

//! A PostgreSQL server of our own: its data on the mount, reached only by a Unix socket, run by the user that its
//! package creates.
//!
//! When the main process is killed, other processes of the server survive for a moment, and no new server starts
//! while one of them exists. So the tests wait for all of them, by their pids.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use support::needs;
use support::shell::Line;

use crate::accept::programs::running::{at_most, await_that, children};
use crate::accept::volume::is_gone;

/// The user that the package creates.
const USER: &str = "postgres";
const SECONDS_MAX: u64 = 500;
/// Time limit for starting, including recovery, and for stopping.
const CONTROL_SECONDS: &str = "300";
/// How many lines of the server's log a failure shows.
const LOG_LINES: usize = 40;

/// Small buffers and short intervals, so that most of the work reaches the file system, and checkpoints and log
/// segments come and go during the test.
const SETTINGS: [&str; 7] = [
    "listen_addresses=",
    "shared_buffers=32MB",
    "max_connections=20",
    "checkpoint_timeout=30s",
    "max_wal_size=256MB",
    "min_wal_size=32MB",
    "log_checkpoints=on",
];

pub(super) struct Server {
    programs: PathBuf,
    /// Accessible to all users; contains the folder for sockets and the log.
    place: PathBuf,
    data: PathBuf,
    /// In addition to [`SETTINGS`].
    settings: Vec<&'static str>,
    /// The process started by `pg_ctl`.
    running: RefCell<Option<Pid>>,
    /// Processes of a dead server.
    left: RefCell<Vec<Pid>>,
}

impl Server {
    /// Creates a cluster in a new folder on the mount.
    pub(super) fn make(place: &Path, data: PathBuf, settings: &[&'static str]) -> Result<Self> {
        let server = Server {
            programs: needs::postgres_programs()?,
            place: place.to_owned(),
            data,
            settings: settings.to_vec(),
            running: RefCell::new(None),
            left: RefCell::new(Vec::new()),
        };
        for folder in [&server.data, &server.sockets()] {
            Line::new("install -d -m 0700 -g").args([USER, "-o", USER]).arg(folder).run()?;
        }
        let line = server.line("initdb").args(["--data-checksums", "--auth=trust", "--no-locale"]);
        line.args(["--encoding=UTF8", "--no-instructions"]).arg("--pgdata").arg(&server.data).output()?;
        Ok(server)
    }

    fn sockets(&self) -> PathBuf {
        self.place.join("sockets")
    }

    fn log(&self) -> PathBuf {
        self.sockets().join("server-log")
    }

    /// One of PostgreSQL's programs, as its user, with a time limit.
    pub(super) fn line(&self, name: &str) -> Line {
        let line = at_most(SECONDS_MAX, "setpriv --init-groups --reuid").args([USER, "--regid", USER]);
        line.arg(self.programs.join(name)).in_dir(&self.place)
    }

    /// A program that connects to the server.
    pub(super) fn client(&self, name: &str) -> Line {
        let sockets = self.sockets().to_string_lossy().into_owned();
        self.line(name).env("PGHOST", &sockets).env("PGUSER", USER).env("PGDATABASE", "postgres")
    }

    /// Starts the server and waits for the end of its recovery.
    pub(super) fn start(&self) -> Result<()> {
        let sockets = format!("unix_socket_directories={}", self.sockets().display());
        let settings = SETTINGS.iter().chain(&self.settings).copied().chain([sockets.as_str()]);
        let settings: Vec<String> = settings.map(|setting| format!("-c {setting}")).collect();
        // When `pg_ctl` has ended, its children become ours. A killed server that no process waits for would look as
        // if it ran.
        nix::sys::prctl::set_child_subreaper(true).context("this program cannot adopt processes")?;
        let started = self.control("start").arg("-l").arg(self.log()).arg("-o").arg(settings.join(" "));
        started.output().inspect_err(|_| self.show_log())?;
        let file = self.data.join("postmaster.pid");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let number = text.lines().next().and_then(|line| line.trim().parse().ok());
        *self.running.borrow_mut() = Some(Pid::from_raw(number.context("PostgreSQL does not say its pid")?));
        Ok(())
    }

    /// `pg_ctl`, which waits until its command is done.
    fn control(&self, what: &str) -> Line {
        let line = self.line("pg_ctl").args([what, "-w", "-t", CONTROL_SECONDS]).arg("-D");
        line.arg(&self.data)
    }

    fn pid(&self) -> Result<Pid> {
        self.running.borrow().context("the server was not started")
    }

    pub(super) fn show_log(&self) {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        println!("the end of PostgreSQL's log:");
        lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).for_each(|line| println!("  {line}"));
    }

    /// The answer to a query: one value in each line.
    pub(super) fn ask(&self, sql: &str) -> Result<Vec<String>> {
        let line = self.client("psql").args(["--no-psqlrc", "--tuples-only", "--no-align"]);
        let printed = line.arg("--set=ON_ERROR_STOP=1").arg("--command").arg(sql).output()?;
        Ok(printed.lines().map(str::to_owned).collect())
    }

    /// Stops the server like its users: clients are disconnected, and everything is written.
    pub(super) fn stop(&self) -> Result<()> {
        let pid = self.pid()?;
        self.control("stop").args(["-m", "fast"]).output().inspect_err(|_| self.show_log())?;
        await_that("the end of PostgreSQL", || Ok(has_ended(pid)))
    }

    /// `kill -9` of the server, without waiting.
    pub(super) fn strike(&self) -> Result<()> {
        let pid = self.pid()?;
        let signal = |signal| match kill(pid, signal) {
            Err(error) if !is_gone(pid) => Err(error).context("PostgreSQL cannot be signalled"),
            _ => Ok(()),
        };
        // A stopped server starts no process that would be missed here.
        signal(Signal::SIGSTOP)?;
        self.left.borrow_mut().extend(children(pid)?);
        signal(Signal::SIGKILL)
    }

    /// Waits until no process of a killed server is left. Its processes notice that and end. With `all` they are
    /// killed as well, because processes that wait for a dead mount notice nothing.
    pub(super) fn await_end(&self, all: bool) -> Result<()> {
        self.left.borrow_mut().extend(self.running.take());
        let left = self.left.take();
        for &pid in left.iter().filter(|&&pid| all && !is_gone(pid)) {
            // It may have ended at this moment.
            let _ = kill(pid, Signal::SIGKILL);
        }
        await_that("the end of all processes of PostgreSQL", || Ok(left.iter().all(|&pid| has_ended(pid))))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.running.borrow().is_none() {
            return;
        }
        if let Err(error) = self.strike().and_then(|()| self.await_end(true)) {
            println!("a server is left behind: {error:#}");
        }
    }
}

/// Whether it has ended, and was reaped if it was ours.
fn has_ended(pid: Pid) -> bool {
    is_gone(pid) && !matches!(waitpid(pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
}

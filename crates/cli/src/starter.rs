//! Starts this program again as a daemon.
//!
//! The daemon is a new process, so it inherits no threads and no open files. All signals have their default actions: signals
//! that this process ignores or blocks (`nohup`, `trap ''`) would be ignored by the daemon forever, and without SIGCHLD it
//! could not read the status of its own children. The daemon prints `ready` on its standard output when the mount is usable.
//! Until then its errors go to the standard error of this process.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Context, Result, bail};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::{AlreadyReported, logging};

/// The name under which this program has all of its commands.
pub(crate) const PROGRAM: &str = "polder";
/// The line that the daemon prints on standard output when the mount is usable.
pub(crate) const READY: &str = "ready";

/// Starts this program with these arguments, and waits until it reports that the mount is usable. Fails if the daemon ends
/// before.
pub(crate) fn start_daemon(arguments: Vec<OsString>) -> Result<()> {
    let (output, daemon) = spawn(arguments).context("the daemon cannot be started")?;
    if says_ready(output) {
        return Ok(());
    }
    match waitpid(daemon, None) {
        // A process that ignores SIGCHLD cannot read the status.
        Ok(WaitStatus::Exited(_, 1..)) | Err(nix::errno::Errno::ECHILD) => Err(AlreadyReported.into()),
        Ok(ended) => bail!("the daemon ended before the mount was ready ({ended:?}); see its log"),
        Err(error) => Err(error).context("the status of the daemon cannot be read"),
    }
}

fn spawn(arguments: Vec<OsString>) -> Result<(PipeReader, Pid)> {
    let program = std::env::current_exe().context("the path of this program cannot be found")?;
    let (output, its_output) = io::pipe()?;
    let nothing = File::open("/dev/null").context("/dev/null")?;
    let mut files = PosixSpawnFileActions::init()?;
    files.add_dup2(nothing.as_raw_fd(), 0)?;
    files.add_dup2(its_output.as_raw_fd(), 1)?;
    let mut signals = PosixSpawnAttr::init()?;
    signals.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK)?;
    signals.set_sigdefault(&SigSet::all())?;
    signals.set_sigmask(&SigSet::empty())?;
    // Under another name the program would be another command.
    let verbose = logging::is_verbose().then(|| OsString::from("--verbose"));
    let words = [OsString::from(PROGRAM)].into_iter().chain(verbose).chain(arguments).map(c_string);
    let environment = std::env::vars_os().map(|(name, value)| {
        let mut both = name;
        both.push("=");
        both.push(value);
        c_string(both)
    });
    let words = words.collect::<Result<Vec<_>>>()?;
    let environment = environment.collect::<Result<Vec<_>>>()?;
    let daemon = posix_spawn(&program, &files, &signals, &words, &environment)?;
    Ok((output, daemon))
}

fn c_string(word: OsString) -> Result<CString> {
    CString::new(word.into_vec()).context("a zero byte in an argument")
}

/// Whether a daemon reports that it is ready. Passes earlier lines on.
fn says_ready(output: PipeReader) -> bool {
    for line in BufReader::new(output).lines().map_while(io::Result::ok) {
        if line == READY {
            return true;
        }
        // An error is ignored, because the mount does not depend on it.
        let _ = crate::output::say(format!("{line}\n"));
    }
    false
}

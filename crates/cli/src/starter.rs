//! Starting this program again as a daemon.
//!
//! It is started anew, so that there is no thread and no open file to be careful about, and with all signals as the system has
//! them: what this process ignores or blocks (`nohup`, `trap ''`) a daemon would ignore for ever, and of helpers that it
//! starts itself it could not tell how they ended. It says `ready` on its standard output when it can be used. Until
//! then its errors go where ours go.

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

use crate::AlreadySaid;

/// The name by which this program is all its commands.
pub(crate) const PROGRAM: &str = "polder";
/// What the daemon says on its standard output when the mount can be used.
pub(crate) const READY: &str = "ready";

/// Starts this program with these arguments, and waits until it says that what it mounts can be used. Otherwise it ends with the
/// status of the daemon.
pub(crate) fn start_daemon(arguments: Vec<OsString>) -> Result<()> {
    let (output, daemon) = spawn(arguments).context("the daemon cannot be started")?;
    if says_ready(output) {
        return Ok(());
    }
    match waitpid(daemon, None) {
        // A caller that ignores the end of children (SIGCHLD) is not told of it.
        Ok(WaitStatus::Exited(_, 1..)) | Err(nix::errno::Errno::ECHILD) => Err(AlreadySaid.into()),
        Ok(ended) => bail!("the daemon has ended before it was ready ({ended:?})"),
        Err(error) => Err(error).context("the daemon is lost"),
    }
}

fn spawn(arguments: Vec<OsString>) -> Result<(PipeReader, Pid)> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    let (output, its_output) = io::pipe()?;
    let nothing = File::open("/dev/null").context("/dev/null")?;
    let mut files = PosixSpawnFileActions::init()?;
    files.add_dup2(nothing.as_raw_fd(), 0)?;
    files.add_dup2(its_output.as_raw_fd(), 1)?;
    let mut signals = PosixSpawnAttr::init()?;
    signals.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK)?;
    signals.set_sigdefault(&SigSet::all())?;
    signals.set_sigmask(&SigSet::empty())?;
    // By another name it would be another command.
    let words = [OsString::from(PROGRAM)].into_iter().chain(arguments).map(c_string);
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

/// Whether a daemon comes to say that it is ready. What it says before is passed on.
fn says_ready(output: PipeReader) -> bool {
    for line in BufReader::new(output).lines().map_while(io::Result::ok) {
        if line == READY {
            return true;
        }
        // The volume is mounted whether this is read or not.
        let _ = crate::output::say(format!("{line}\n"));
    }
    false
}

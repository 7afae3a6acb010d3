//! Background programs of a test: started, signalled or killed by their pid, and never left behind.

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use support::shell::Line;

/// The interval of checks.
const LOOK: Duration = Duration::from_millis(5);
/// Time limit for a condition, also on a busy machine.
const END_NS_MAX: u64 = 120_000_000_000;

/// Waits until `is_so`. Returns an error with the condition if that takes too long.
pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let clock = SystemClock::new();
    let began_ns = clock.monotonic_ns();
    while !is_so()? {
        if clock.monotonic_ns() - began_ns > END_NS_MAX {
            bail!("waited {} s in vain: {what}", END_NS_MAX / 1_000_000_000);
        }
        Stop::default().wait(LOOK);
    }
    Ok(())
}

/// A program. Killed when it is dropped before its end.
pub(crate) struct Running {
    line: String,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts a program. `output` is the file of its output and errors.
    pub(crate) fn start(line: &Line, input: Stdio, output: &Path) -> Result<Self> {
        let file =
            std::fs::File::create(output).with_context(|| format!("cannot make {}", output.display()))?;
        let errors = file.try_clone()?;
        Running::with(line, input, file.into(), errors.into())
    }

    /// The same with a choice for each of the three streams.
    pub(crate) fn with(line: &Line, input: Stdio, output: Stdio, errors: Stdio) -> Result<Self> {
        let child = line.start(input, output, errors)?;
        Ok(Running { line: line.to_string(), child, ended: None })
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().with_context(|| format!("cannot watch `{}`", self.line))?;
        }
        Ok(self.ended)
    }

    /// Waits until it has ended by itself.
    pub(crate) fn await_end(&mut self) -> Result<ExitStatus> {
        let what = format!("the end of `{}`", self.line);
        await_that(&what, || Ok(self.ended()?.is_some()))?;
        Ok(self.ended.expect("it was waited for"))
    }

    /// Sends a signal if it has not ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.ended()?.is_none() {
            kill(self.pid(), signal).with_context(|| format!("cannot signal `{}`", self.line))?;
        }
        Ok(())
    }

    /// Kills it and waits.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.await_end().map(drop)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            println!("a program is left behind: {error:#}");
        }
    }
}

/// The processes whose parent is `pid`.
pub(crate) fn children(pid: Pid) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("cannot list processes")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Ok(number) = name.parse() else { continue };
        if parent(number) == Some(pid.as_raw()) {
            found.push(Pid::from_raw(number));
        }
    }
    Ok(found)
}

/// `None` if the process is gone.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).ok()?;
    // State and parent come after the name, which may contain anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A program with a time limit. A hang is a failure.
pub(crate) fn at_most(seconds: u64, words: &str) -> Line {
    Line::new(&format!("timeout --kill-after=5 {seconds} {words}"))
}

#[cfg(test)]
mod tests;

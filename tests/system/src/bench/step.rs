//! One measurement: a program that runs in a place.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};
use support::shell::Line;
use support::workspace;

use super::cost::Cpu;
use super::figures::{CLIENT_CPU, DAEMON_CPU, RATE};
use super::place::{Before, Place};
use crate::accept::simulator;

/// The exit status of `grep` when it has found nothing.
pub(super) const NOTHING_FOUND: i32 = 1;

/// A program and what it is for.
pub(super) struct Step {
    /// The row. None: it is not measured, but others need it.
    pub(super) row: Option<&'static str>,
    pub(super) before: Before,
    /// How many operations the program performs.
    pub(super) operations: u64,
    pub(super) program: Program,
    /// The exit status of success.
    pub(super) status: i32,
}

/// Makes the command line of a step for a directory.
type LineOf = Box<dyn Fn(&Path) -> Line>;

/// The program of a step.
pub(super) enum Program {
    /// A program of others. Its time is that from its start to its end.
    Other(LineOf),
    /// Our client, which prints its figures.
    Client(Calls),
}

/// Arguments of `polder-sim calls`.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    pub(super) kind: &'static str,
    /// The directory below the mount point.
    pub(super) folder: &'static str,
    /// `None`: as many as there are pieces or files.
    pub(super) operations: Option<u64>,
    pub(super) threads: u64,
    pub(super) bytes: u64,
}

impl Step {
    /// Measures a program of others.
    pub(super) fn other(row: &'static str, operations: u64, line: impl Fn(&Path) -> Line + 'static) -> Step {
        let program = Program::Other(Box::new(line));
        Step { row: Some(row), before: Before::Settled, operations, program, status: 0 }
    }

    /// Measures our client.
    pub(super) fn client(row: &'static str, operations: u64, calls: Calls) -> Step {
        let program = Program::Client(calls);
        Step { row: Some(row), before: Before::Settled, operations, program, status: 0 }
    }

    pub(super) fn before(self, before: Before) -> Step {
        Step { before, ..self }
    }

    pub(super) fn ending_with(self, status: i32) -> Step {
        Step { status, ..self }
    }

    /// Does not measure it.
    pub(super) fn unmeasured(self) -> Step {
        Step { row: None, ..self }
    }
}

/// The client.
pub(super) struct Client(PathBuf);

impl Client {
    /// Builds it for use. Cargo is not among the measured programs.
    pub(super) fn build() -> Result<Client> {
        simulator::build_line().run()?;
        Ok(Client(workspace::target_dir()?.join("release/polder-sim")))
    }

    /// A command of the program.
    pub(super) fn simulator(&self, command: &str) -> Line {
        Line::program(&self.0).arg(command)
    }

    /// One kind of operation below `dir`.
    pub(super) fn line(&self, calls: &Calls, dir: &Path) -> Line {
        let line = self.simulator("calls").arg(calls.kind).arg(dir.join(calls.folder));
        let line = line.args(["--threads", &calls.threads.to_string(), "--bytes", &calls.bytes.to_string()]);
        match calls.operations {
            Some(operations) => line.args(["--operations", &operations.to_string()]),
            None => line,
        }
    }

    /// The command of a step in a place.
    pub(super) fn line_of(&self, step: &Step, place: &Place) -> Line {
        match &step.program {
            Program::Other(line) => line(&place.dir()),
            Program::Client(calls) => self.line(calls, &place.dir()),
        }
    }

    /// Runs a step and returns its figures.
    pub(super) fn measure(&self, step: &Step, place: &Place, beside: bool) -> Result<Vec<(String, f64)>> {
        place.prepare(step.before)?;
        let writer = beside.then(|| Writer::start(self, place)).transpose()?;
        let clock = SystemClock::new();
        let before = Cpu::now(place.daemon()?)?;
        let began_ns = clock.monotonic_ns();
        let printed = run(step, &self.line_of(step, place))?;
        let took_ns = clock.monotonic_ns() - began_ns;
        let costs_ns = Cpu::now(place.daemon()?)?.since(before);
        drop(writer);
        let mut figures = printed_figures(&printed);
        if let Program::Other(_) = step.program {
            figures.push((RATE.to_owned(), step.operations as f64 * 1e9 / took_ns as f64));
        }
        if !beside {
            // Otherwise the daemon also works for the writer.
            let each = |cost_ns: u64| cost_ns as f64 / step.operations as f64;
            figures.push((CLIENT_CPU.to_owned(), each(costs_ns[0])));
            figures.push((DAEMON_CPU.to_owned(), each(costs_ns[1])));
        }
        Ok(figures)
    }
}

/// Runs the command of a step and returns the output of our client. Programs of others write to nowhere, because
/// reading what they print would take processor time from them.
pub(super) fn run(step: &Step, line: &Line) -> Result<String> {
    let output = match &step.program {
        Program::Other(_) => Stdio::null(),
        Program::Client(_) => Stdio::piped(),
    };
    let mut child = line.start(Stdio::null(), output, Stdio::inherit())?;
    let mut printed = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut printed)?;
    }
    let status = child.wait()?;
    ensure!(status.code() == Some(step.status), "`{line}` failed ({status})");
    Ok(printed)
}

/// The lines `measured NAME: VALUE`.
fn printed_figures(printed: &str) -> Vec<(String, f64)> {
    let figures = printed.lines().filter_map(|line| line.strip_prefix("measured ")?.split_once(": "));
    figures.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The large sequential writer. It ends when it is dropped.
struct Writer(Child);

impl Writer {
    /// Returns when it is writing.
    fn start(client: &Client, place: &Place) -> Result<Writer> {
        let calls = Calls { kind: "stream", folder: "beside", operations: None, threads: 1, bytes: 0 };
        let line = client.line(&calls, &place.dir());
        let mut writer = Writer(line.start(Stdio::null(), Stdio::piped(), Stdio::inherit())?);
        let output = writer.0.stdout.take().context("its output is a pipe")?;
        let mut first = String::new();
        BufReader::new(output).read_line(&mut first)?;
        ensure!(!first.is_empty(), "the large writer has ended: `{line}`");
        Ok(writer)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        if let Err(error) = self.0.wait() {
            println!("the large writer is left behind: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_clients_output() {
        let printed = "measured rate: 12.5\nsomething else\nmeasured p50_ns: 100\nmeasured odd: x\n";
        let figures = printed_figures(printed);
        assert_eq!(figures, [("rate".to_owned(), 12.5), ("p50_ns".to_owned(), 100.0)]);
    }

    #[test]
    fn a_step_fails_with_another_exit_status() {
        let step = Step::other("grep-cold", 1, |_| Line::new("false")).ending_with(NOTHING_FOUND);
        run(&step, &Line::new("false")).unwrap();
        assert!(run(&step, &Line::new("true")).is_err());
    }
}

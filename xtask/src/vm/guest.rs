//! The emulated machine: started, listened to, reset, ended.
//!
//! It talks on its console, which is its output here. Lines that begin with a mark are for us:
//!
//! ```text
//! vm: passed                 the verdict, as is `vm: failed: WHY`
//! vm: acknowledged N         N things are durable; what is found later may not be less
//! vm: found N
//! vm: reset                  wants to lose its power now
//! ```
//!
//! States of zones live in the emulated devices, so a reset loses what is in the guest's memory and nothing
//! else. Whatever happens, the machine ends with this command and its disks are removed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rt::{Clock, SystemClock};

use super::kernel::Kernel;
use super::suite::Suite;
use crate::shell::Line;

const MARK: &str = "vm: ";
const SECOND_NS: u64 = 1_000_000_000;

/// Namespaces with zones: a size, bytes of a zone, what it takes, and how many may be open and active.
const NAMESPACES: [(&str, &str, &str, u32, u32); 2] =
    [("2G", "32M", "24M", 14, 14), ("1536M", "96M", "96M", 8, 10)];

/// A machine that runs.
struct Guest {
    child: Child,
    lines: Receiver<String>,
    /// Holds the disks and the monitor's socket.
    folder: tempfile::TempDir,
    clock: SystemClock,
    limit: Duration,
}

/// Runs a suite to its verdict; how many seconds that took.
pub(super) fn run(home: &Path, kernel: &Kernel, image: &Path, suite: &Suite) -> Result<u64> {
    println!("vm {}: {}", suite.name, suite.about);
    let mut guest = Guest::start(home, kernel, image, suite)?;
    let ended = guest.listen();
    let seconds = guest.clock.monotonic_ns() / SECOND_NS;
    ended.with_context(|| format!("vm {} failed; again: cargo xtask vm {}", suite.name, suite.name))?;
    Ok(seconds)
}

/// What the guest has said so far.
#[derive(Default)]
struct Said {
    acknowledged: u64,
    resets: u32,
}

/// What follows from a line.
enum Next {
    GoOn,
    Reset,
    End,
}

impl Said {
    fn hear(&mut self, line: &str) -> Result<Next> {
        ensure!(!line.contains("Kernel panic"), "the guest's kernel has ended: {line}");
        let Some(words) = line.strip_prefix(MARK) else { return Ok(Next::GoOn) };
        match words.split_once(' ').unwrap_or((words, "")) {
            ("passed", _) => return Ok(Next::End),
            ("failed:", why) => bail!("{why}"),
            ("reset", _) => {
                self.resets += 1;
                return Ok(Next::Reset);
            }
            ("acknowledged", count) => self.acknowledged = count.parse()?,
            ("found", count) => {
                let found: u64 = count.parse()?;
                let least = self.acknowledged;
                ensure!(found >= least, "{least} were acknowledged and {found} are there");
            }
            _ => {}
        }
        Ok(Next::GoOn)
    }
}

impl Guest {
    fn start(home: &Path, kernel: &Kernel, image: &Path, suite: &Suite) -> Result<Guest> {
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(home)?;
        let line = line(kernel, image, suite, folder.path())?;
        let errors = std::fs::File::create(folder.path().join("errors"))?;
        let mut child = line.start(Stdio::null(), Stdio::piped(), Stdio::from(errors))?;
        let console = child.stdout.take().expect("asked for a pipe one line above");
        let lines = read_lines(console)?;
        Ok(Guest { child, lines, folder, clock: SystemClock::new(), limit: suite.limit })
    }

    fn listen(&mut self) -> Result<()> {
        let mut said = Said::default();
        loop {
            let line = self.line()?;
            println!("  {line}");
            match said.hear(&line)? {
                Next::GoOn => {}
                Next::Reset => self.reset()?,
                Next::End => return Ok(()),
            }
        }
    }

    /// The next line of the console.
    fn line(&self) -> Result<String> {
        let passed = Duration::from_nanos(self.clock.monotonic_ns());
        let left = self.limit.saturating_sub(passed);
        self.lines.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow::anyhow!("no verdict within {} s", self.limit.as_secs()),
            RecvTimeoutError::Disconnected => {
                let errors = std::fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
                anyhow::anyhow!("the guest ended without a verdict: {}", errors.trim())
            }
        })
    }

    /// Takes the guest's power away and gives it back; the devices keep theirs.
    fn reset(&self) -> Result<()> {
        let mut monitor = UnixStream::connect(self.folder.path().join("monitor"))?;
        monitor.write_all(b"system_reset\n")?;
        // The monitor answers when it has obeyed.
        let mut answer = BufReader::new(monitor);
        for _ in 0..2 {
            let mut line = Vec::new();
            answer.read_until(b'\n', &mut line)?;
        }
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of the console, as they come. The thread ends with the guest.
fn read_lines(console: ChildStdout) -> Result<Receiver<String>> {
    let (sender, lines) = channel();
    rt::thread::spawn("xtask-console", move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    })?;
    Ok(lines)
}

/// The command that starts the machine.
fn line(kernel: &Kernel, image: &Path, suite: &Suite, folder: &Path) -> Result<Line> {
    // A command that is killed cannot end its guest itself.
    let mut line = Line::new(
        "setpriv --pdeathsig KILL qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 3G -smp 2",
    )
    .args(["-nodefaults", "-display", "none", "-net", "none", "-serial", "stdio"])
    .arg("-monitor")
    .arg(format!("unix:{},server,nowait", folder.join("monitor").display()))
    .arg("-kernel")
    .arg(&kernel.image)
    .arg("-initrd")
    .arg(image)
    .arg("-append")
    .arg(format!("console=ttyS0 quiet panic=0 mitigations=off vm.suite={}", suite.name))
    .args(["-device", "nvme,id=nvme,serial=polder,zoned.zasl=5"]);
    for (index, (size, zone, capacity, open, active)) in NAMESPACES.into_iter().enumerate() {
        let disk = folder.join(format!("disk{index}"));
        Line::new("truncate -s").arg(size).arg(&disk).run()?;
        let drive = format!("file={},if=none,id=disk{index},format=raw,cache=unsafe", disk.display());
        let namespace = format!(
            "nvme-ns,drive=disk{index},bus=nvme,nsid={},logical_block_size=4096,physical_block_size=4096,zoned=true,\
             zoned.zone_size={zone},zoned.zone_capacity={capacity},zoned.max_open={open},zoned.max_active={active}",
            index + 1
        );
        line = line.args(["-drive", &drive, "-device", &namespace]);
    }
    Ok(line)
}

#[cfg(test)]
mod tests;

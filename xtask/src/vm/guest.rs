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
use super::suite::{Namespace, Suite};
use crate::shell::Line;

const MARK: &str = "vm: ";
/// A controller whose namespaces have eight placement handles.
const HANDLES: &[&str] = &[
    "-device",
    "nvme-subsys,id=subsystem,nqn=polder,fdp=on,fdp.nruh=8,fdp.nrg=1,fdp.runs=64M",
    "-device",
    "nvme,id=nvme,serial=polder,subsys=subsystem",
];
const SECOND_NS: u64 = 1_000_000_000;

/// A machine that runs.
struct Guest {
    child: Child,
    lines: Receiver<String>,
    /// Holds the disks and the monitor's socket.
    folder: tempfile::TempDir,
    clock: SystemClock,
    limit: Duration,
}

/// What of a suite is run.
pub(super) struct Run<'a> {
    pub(super) suite: &'a Suite,
    /// The short form, where the suite has one.
    pub(super) quick: bool,
    /// The only kind of device, where the suite has several.
    pub(super) only: Option<&'a str>,
    pub(super) seed: u32,
}

/// Runs a suite to its verdict; how many seconds that took.
pub(super) fn run(home: &Path, kernel: &Kernel, image: &Path, run: &Run<'_>) -> Result<u64> {
    let suite = run.suite;
    println!("vm {}: {}", suite.name, suite.about);
    let mut guest = Guest::start(home, kernel, image, run)?;
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
    fn start(home: &Path, kernel: &Kernel, image: &Path, run: &Run<'_>) -> Result<Guest> {
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(home)?;
        let line = line(kernel, image, run, folder.path())?;
        let errors = std::fs::File::create(folder.path().join("errors"))?;
        let mut child = line.start(Stdio::null(), Stdio::piped(), Stdio::from(errors))?;
        let console = child.stdout.take().expect("asked for a pipe one line above");
        let lines = read_lines(console)?;
        Ok(Guest { child, lines, folder, clock: SystemClock::new(), limit: run.suite.limit })
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
fn line(kernel: &Kernel, image: &Path, run: &Run<'_>, folder: &Path) -> Result<Line> {
    let Run { suite, quick, only, seed } = run;
    let mut told = format!("vm.suite={} vm.devices={} vm.seed={seed}", suite.name, suite.devices.name);
    if *quick {
        told += " vm.quick=1";
    }
    if let Some(only) = only {
        told += &format!(" vm.only={only}");
    }
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
    // An emulated timer on a busy machine fails the kernel's test of it, which is logged as an error.
    .arg(format!("console=ttyS0 quiet panic=0 mitigations=off no_timer_check {told}"))
    .args(if suite.devices.handles {
        HANDLES
    } else {
        &["-device", "nvme,id=nvme,serial=polder,zoned.zasl=5"]
    });
    for (index, namespace) in suite.devices.namespaces.iter().enumerate() {
        let disk = folder.join(format!("disk{index}"));
        Line::new("truncate -s").arg(namespace.size).arg(&disk).run()?;
        let drive = format!("file={},if=none,id=disk{index},format=raw,cache=unsafe", disk.display());
        let handles = if suite.devices.handles { ",fdp.ruhs=0-7" } else { "" };
        line = line.args(["-drive", &drive, "-device", &(device_of(namespace, index) + handles)]);
    }
    Ok(line)
}

/// Whether the emulator has placement handles.
pub(super) fn has_handles() -> Result<bool> {
    Ok(Line::new("qemu-system-x86_64 -device nvme-subsys,help").output()?.contains("fdp"))
}

/// A namespace as the emulator wants it named.
fn device_of(namespace: &Namespace, index: usize) -> String {
    let common = format!(
        "nvme-ns,drive=disk{index},bus=nvme,nsid={},logical_block_size=4096,physical_block_size=4096",
        index + 1
    );
    namespace.zones.as_ref().map_or(common.clone(), |zones| {
        format!(
            "{common},zoned=true,zoned.zone_size={},zoned.zone_capacity={},zoned.max_open={},zoned.max_active={}",
            zones.size, zones.capacity, zones.open, zones.active
        )
    })
}

#[cfg(test)]
mod tests;

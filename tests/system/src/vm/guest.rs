//! The emulated machine: start, console, reset, end.
//!
//! Its console is its output. Lines that begin with a mark are for this program:
//!
//! ```text
//! vm: begun                  from here on Polder is at work
//! vm: passed                 the verdict, as is `vm: failed: WHY`
//! vm: acknowledged N         N things are durable; what is found later may not be less
//! vm: found N
//! vm: reset                  wants to lose its power now
//! vm: figure ROW|COLUMN|WORDS  for the table of the suite, if there is one
//! vm: ask WHAT NAMESPACE     what the emulated device has counted (`counts`); the answer goes to the guest's console
//! ```
//!
//! The zone states are in the emulated devices, so a reset loses only the guest's memory. In any case the machine
//! ends with this command, and its disks are removed.
//!
//! If a kernel panics before Polder runs, the emulator is at fault: with two processors, one may execute code that
//! the other is changing. It is booted again.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rt::{Clock, SystemClock};
use support::needs::EMULATOR_EVENTS;
use support::shell::Line;

use super::counts::{self, Commands};
use super::emulator::Emulator;
use super::kernel::Kernel;
use super::suite::{Devices, Namespace, Suite};

const MARK: &str = "vm: ";
/// A controller whose namespaces have eight placement handles.
const HANDLES: &[&str] = &[
    "-device",
    "nvme-subsys,id=subsystem,nqn=polder,fdp=on,fdp.nruh=8,fdp.nrg=1,fdp.runs=64M",
    "-device",
    "nvme,id=nvme,serial=polder,subsys=subsystem",
];
/// The prompt of the monitor.
const PROMPT: &[u8] = b"(qemu) ";
/// The prefix of folders with the disks of a machine.
pub(super) const RUN: &str = "run-";
/// The emulator's log, in the folder of its disks.
const LOG: &str = "log";
/// Limit for boots that end before Polder runs. More are no accident.
const LOST_BOOTS_MAX: u32 = 3;
const SECOND_NS: u64 = 1_000_000_000;

/// A running machine.
struct Guest {
    child: Child,
    lines: Receiver<String>,
    /// The input of the console, for answers.
    console: ChildStdin,
    /// The commands in the emulator's log, if the suite has it enabled.
    commands: Commands,
    /// Contains the disks and the monitor's socket.
    folder: tempfile::TempDir,
    clock: SystemClock,
    limit: Duration,
}

/// The part of a suite to run.
pub(super) struct Run<'a> {
    pub(super) suite: &'a Suite,
    pub(super) emulator: &'a Emulator,
    /// The short form, if the suite has one.
    pub(super) quick: bool,
    /// The only kind of device, if the suite has several.
    pub(super) only: Option<&'a str>,
    pub(super) seed: u32,
}

/// The result of a suite that has passed.
pub(super) struct Passed {
    pub(super) seconds: u64,
    /// Row, column and words, in order of arrival.
    pub(super) figures: Vec<[String; 3]>,
}

/// Runs a suite to its verdict.
pub(super) fn run(home: &Path, kernel: &Kernel, image: &Path, run: &Run<'_>) -> Result<Passed> {
    let suite = run.suite;
    println!("vm {}: {}", suite.name, suite.about);
    let mut guest = Guest::start(home, kernel, image, run)?;
    let ended = guest.listen();
    let seconds = guest.clock.monotonic_ns() / SECOND_NS;
    let figures =
        ended.with_context(|| format!("vm {} failed; again: cargo system vm {}", suite.name, suite.name))?;
    Ok(Passed { seconds, figures })
}

/// The state that follows from the guest's lines so far.
#[derive(Default)]
struct Heard {
    acknowledged: u64,
    resets: u32,
    /// Polder has run since the last boot.
    has_begun: bool,
    lost_boots: u32,
    figures: Vec<[String; 3]>,
}

/// The reaction to a line.
enum Next {
    GoOn,
    Reset,
    Answer(Question),
    End,
}

/// A question of the guest about a namespace, by its number.
enum Question {
    /// The bytes read and written since the emulator was started.
    Traffic(u32),
    /// The commands since the last question.
    Commands(u32),
}

impl Heard {
    fn hear(&mut self, line: &str) -> Result<Next> {
        // The kernel prints this line again after the reason.
        if line.contains("Kernel panic") && !line.contains("end Kernel panic") {
            return self.boot_again(line);
        }
        let Some(words) = line.strip_prefix(MARK) else { return Ok(Next::GoOn) };
        match words.split_once(' ').unwrap_or((words, "")) {
            ("passed", _) => return Ok(Next::End),
            ("failed:", why) => bail!("{why}"),
            ("begun", _) => self.has_begun = true,
            ("reset", _) => {
                self.resets += 1;
                self.has_begun = false;
                return Ok(Next::Reset);
            }
            ("figure", figure) => {
                let parts: Vec<String> = figure.split('|').map(str::to_owned).collect();
                self.figures.push(parts.try_into().map_err(|_| anyhow!("this is no figure: {figure}"))?);
            }
            ("ask", question) => return Ok(Next::Answer(Question::of(question)?)),
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

    /// The guest's kernel has panicked.
    fn boot_again(&mut self, line: &str) -> Result<Next> {
        ensure!(!self.has_begun, "the guest's kernel has ended: {line}");
        ensure!(self.lost_boots < LOST_BOOTS_MAX, "the guest's kernel ends whenever it is booted: {line}");
        self.lost_boots += 1;
        println!("  nothing of Polder ran yet: the guest is booted again");
        Ok(Next::Reset)
    }
}

impl Question {
    fn of(words: &str) -> Result<Question> {
        match words.split_once(' ').map(|(what, namespace)| (what, namespace.parse())) {
            Some(("traffic", Ok(namespace))) => Ok(Question::Traffic(namespace)),
            Some(("commands", Ok(namespace))) => Ok(Question::Commands(namespace)),
            _ => bail!(
                "the suite asks for `{words}`; it can ask for the traffic or the commands of a namespace"
            ),
        }
    }
}

impl Guest {
    fn start(home: &Path, kernel: &Kernel, image: &Path, run: &Run<'_>) -> Result<Guest> {
        let folder = tempfile::Builder::new().prefix(RUN).tempdir_in(home)?;
        let line = line(kernel, image, run, folder.path())?;
        let errors = std::fs::File::create(folder.path().join("errors"))?;
        let mut child = line.start(Stdio::piped(), Stdio::piped(), Stdio::from(errors))?;
        let console = child.stdin.take().expect("asked for a pipe one line above");
        let lines = read_lines(child.stdout.take().expect("asked for a pipe two lines above"))?;
        let commands = Commands::new(&folder.path().join(LOG));
        Ok(Guest {
            child,
            lines,
            console,
            commands,
            folder,
            clock: SystemClock::new(),
            limit: run.suite.limit,
        })
    }

    /// Reads lines up to the verdict. Returns the figures.
    fn listen(&mut self) -> Result<Vec<[String; 3]>> {
        let mut printed = Heard::default();
        loop {
            let line = self.line()?;
            println!("  {line}");
            match printed.hear(&line)? {
                Next::GoOn => {}
                Next::Reset => self.monitor("system_reset").map(drop)?,
                Next::Answer(question) => self.answer(&question)?,
                Next::End => return Ok(printed.figures),
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

    /// Executes a monitor command, and returns its output. A reset interrupts the guest's power. The devices keep
    /// theirs.
    fn monitor(&self, command: &str) -> Result<String> {
        let mut monitor = UnixStream::connect(self.folder.path().join("monitor"))?;
        until_prompt(&mut monitor)?;
        writeln!(monitor, "{command}")?;
        until_prompt(&mut monitor)
    }

    fn answer(&mut self, question: &Question) -> Result<()> {
        let answer = match question {
            Question::Traffic(namespace) => {
                counts::traffic(&self.monitor("info blockstats")?, &disk(namespace - 1))?.to_string()
            }
            Question::Commands(namespace) => self.commands.since(*namespace)?.to_string(),
        };
        Ok(writeln!(self.console, "{answer}")?)
    }
}

/// The output of the monitor up to its prompt.
fn until_prompt(monitor: &mut UnixStream) -> Result<String> {
    let mut printed = Vec::new();
    let mut byte = [0];
    while !printed.ends_with(PROMPT) {
        ensure!(monitor.read(&mut byte)? == 1, "the monitor is gone");
        printed.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of the console, as they arrive. The thread ends with the guest.
fn read_lines(console: ChildStdout) -> Result<Receiver<String>> {
    let (sender, lines) = channel();
    rt::thread::spawn("console", move || {
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
    let Run { suite, emulator, quick, only, seed } = run;
    let mut parameters = format!("vm.suite={} vm.devices={} vm.seed={seed}", suite.name, suite.devices.name);
    if *quick {
        parameters += " vm.quick=1";
    }
    if let Some(only) = only {
        parameters += &format!(" vm.only={only}");
    }
    let machine = ["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "3G", "-smp", "2"];
    let mut line = emulator
        .line()
        .args(machine)
        .args(["-nodefaults", "-display", "none", "-net", "none", "-serial", "stdio"])
        .arg("-monitor")
        .arg(format!("unix:{},server,nowait", folder.join("monitor").display()))
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(image)
        .arg("-append")
        // An emulated timer on a busy machine fails the kernel's test of it, which is logged as an error.
        .arg(format!("console=ttyS0 quiet panic=0 mitigations=off no_timer_check {parameters}"))
        .args(controller(suite.devices));
    if suite.devices.are_logged {
        line = line.arg("-D").arg(folder.join(LOG));
        line = EMULATOR_EVENTS.iter().fold(line, |line, event| line.args(["-trace", event]));
    }
    for (index, namespace) in (0..).zip(suite.devices.namespaces) {
        let file = folder.join(disk(index));
        Line::new("truncate -s").arg(namespace.size).arg(&file).run()?;
        let drive = format!("file={},if=none,id={},format=raw,cache=unsafe", file.display(), disk(index));
        let handles = if suite.devices.handles { ",fdp.ruhs=0-7" } else { "" };
        line = line.args(["-drive", &drive, "-device", &(device_of(namespace, index) + handles)]);
    }
    Ok(line)
}

/// The controller of the namespaces.
fn controller(devices: &Devices) -> Vec<String> {
    if devices.handles {
        return HANDLES.iter().map(|&word| word.to_owned()).collect();
    }
    let shift = devices.append_shift;
    vec!["-device".to_owned(), format!("nvme,id=nvme,serial=polder,zoned.zasl={shift}")]
}

/// The emulator's name of the disk below a namespace.
fn disk(index: u32) -> String {
    format!("disk{index}")
}

/// A namespace as an option of the emulator.
fn device_of(namespace: &Namespace, index: u32) -> String {
    let common = format!(
        "nvme-ns,drive={},bus=nvme,nsid={},logical_block_size=4096,physical_block_size=4096",
        disk(index),
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

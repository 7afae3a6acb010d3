//! What an operation costs: processor time of client and daemon, and their instructions where the machine counts them.
//!
//! Processor time of the kernel's own threads, such as those that write back for ext4 and XFS, belongs to no process
//! and is not counted.

use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use support::shell::Line;

/// Linux shows all processes' times in this unit, whatever its own ticks are.
const TICK_NS: u64 = 10_000_000;
/// Fields of `/proc/PID/stat` after the name of the program: user and system time.
const TIMES: [usize; 2] = [11, 12];

/// Processor times until a moment.
#[derive(Clone, Copy)]
pub(super) struct Cpu {
    /// Of all programs that this one has started and that have ended.
    client_ns: u64,
    daemon_ns: u64,
}

impl Cpu {
    pub(super) fn now(daemon: Option<Pid>) -> Result<Cpu> {
        let ended = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let client_ns = (ended.user_time() + ended.system_time()).num_nanoseconds().try_into()?;
        Ok(Cpu { client_ns, daemon_ns: daemon.map_or(Ok(0), daemon_ns)? })
    }

    /// The times of client and daemon since another moment.
    pub(super) fn since(self, before: Cpu) -> [u64; 2] {
        [self.client_ns - before.client_ns, self.daemon_ns - before.daemon_ns]
    }
}

fn daemon_ns(pid: Pid) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    parse_stat(&text).context(path)
}

fn parse_stat(text: &str) -> Result<u64> {
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
    let ticks = TIMES.iter().map(|&at| Ok(fields.get(at).context("too few fields")?.parse::<u64>()?));
    Ok(ticks.sum::<Result<u64>>()? * TICK_NS)
}

/// Counts instructions by `perf stat`.
pub(super) struct Instructions;

impl Instructions {
    /// Says why there are none if the machine cannot count them.
    pub(super) fn find() -> Result<Instructions, String> {
        let (counted, printed) = Line::new("perf stat -x , -e instructions true")
            .verdict()
            .map_err(|error| format!("{error:#}"))?;
        match count(&printed) {
            Some(_) if counted => Ok(Instructions),
            _ => Err(format!("`perf stat -e instructions` says: {}", printed.trim())),
        }
    }

    /// The command that counts its own instructions and those of a process meanwhile.
    pub(super) fn watch(&self, line: Line, daemon: Option<Pid>, folder: &Path) -> Line {
        let perf = |file: &str| Line::new("perf stat -x , -e instructions -o").arg(folder.join(file));
        let line = line.started_by(perf(CLIENT).arg("--"));
        match daemon {
            Some(pid) => line.started_by(perf(DAEMON).args(["-p", &pid.to_string(), "--"])),
            None => line,
        }
    }

    /// What was counted.
    pub(super) fn counted(&self, folder: &Path) -> [Option<u64>; 2] {
        [CLIENT, DAEMON].map(|file| count(&std::fs::read_to_string(folder.join(file)).ok()?))
    }
}

const CLIENT: &str = "client-instructions";
const DAEMON: &str = "daemon-instructions";

/// `123456,,instructions,…` among the lines of `perf stat -x ,`.
fn count(printed: &str) -> Option<u64> {
    printed.lines().find(|line| line.contains("instructions"))?.split(',').next()?.parse().ok()
}

/// How often the threads of a process have gone to sleep so far.
pub(super) fn sleeps(pid: Pid) -> Result<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let mut sleeps = 0;
    for task in tasks {
        let text = std::fs::read_to_string(task?.path().join("status"))?;
        let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += count.context("the kernel does not count context switches")?.trim().parse::<u64>()?;
    }
    Ok(sleeps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let text = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 21 4 0 0 20 0";
        assert_eq!(parse_stat(text).unwrap(), 25 * TICK_NS);
        assert!(parse_stat("12 (a) S 1").is_err());
    }

    #[test]
    fn a_machine_without_counters_counts_nothing() {
        assert_eq!(count("# started\n\n123456,,instructions,100,100.00,,\n"), Some(123_456));
        assert_eq!(count("<not supported>,,instructions,0,100.00,,\n"), None);
        assert_eq!(count(""), None);
    }

    #[test]
    fn a_process_that_has_ended_is_counted_as_a_client() {
        let before = Cpu::now(Some(Pid::this())).unwrap();
        Line::new("sh -c").arg("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").run().unwrap();
        let [client_ns, _] = Cpu::now(Some(Pid::this())).unwrap().since(before);
        assert!(client_ns > 0);
        assert!(sleeps(Pid::this()).unwrap() > 0);
    }
}

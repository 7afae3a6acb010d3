//! The requests of the kernel to a daemon, by opcode, as the kernel's tracepoint `fuse:fuse_request_send` shows them.
//!
//! A counter has a trace buffer of its own, so it does not mix with other tracers. It counts exactly
//! or fails: an event that did not fit into the buffer is an error. Tracing costs time, so it has a round of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::mounts::is_mounted;
use support::shell::Line;
use tempfile::TempDir;

const EVENT: &str = "events/fuse/fuse_request_send";
/// The memory for events of all processors. An event takes less than 64 bytes.
const BUFFER_KIB: usize = 128 << 10;
const BUFFER_KIB_MIN: usize = 4 << 10;

/// The kernel's tracing with a buffer of this process.
pub(super) struct Requests {
    instance: PathBuf,
    mount: TempDir,
}

impl Requests {
    /// Says why nothing can be counted if it cannot.
    pub(super) fn open() -> Result<Requests, String> {
        let mount =
            tempfile::Builder::new().prefix("tracing-").tempdir().map_err(|error| error.to_string())?;
        let mounted = Line::new("mount -t tracefs tracefs").arg(mount.path()).run();
        mounted.map_err(|error| format!("{error:#}"))?;
        let instance = mount.path().join(format!("instances/polder-bench-{}", std::process::id()));
        let requests = Requests { instance, mount };
        requests.set_up().map_err(|error| format!("{error:#}"))?;
        Ok(requests)
    }

    fn set_up(&self) -> Result<()> {
        std::fs::create_dir(&self.instance).with_context(|| self.instance.display().to_string())?;
        let event = self.instance.join(EVENT);
        ensure!(event.is_dir(), "the kernel has no {}", event.display());
        let kib = (BUFFER_KIB / rt::thread::processors()).max(BUFFER_KIB_MIN);
        self.write("buffer_size_kb", &kib.to_string())
    }

    /// Counts from now on.
    pub(super) fn start(&self, connection: u32) -> Result<()> {
        self.write("trace", "")?;
        self.write(&format!("{EVENT}/filter"), &format!("connection == {connection}"))?;
        self.write(&format!("{EVENT}/enable"), "1")
    }

    /// The number of requests by opcode since the start.
    pub(super) fn stop(&self) -> Result<BTreeMap<String, u64>> {
        self.write(&format!("{EVENT}/enable"), "0")?;
        let processors = std::fs::read_dir(self.instance.join("per_cpu"))?;
        for processor in processors {
            let stats = std::fs::read_to_string(processor?.path().join("stats"))?;
            let lost = stats
                .lines()
                .filter(|line| line.starts_with("overrun:") || line.starts_with("dropped events:"));
            let lost: Vec<&str> = lost.filter(|line| !line.ends_with(" 0")).collect();
            ensure!(lost.is_empty(), "the trace buffer was too small: {}", lost.join(", "));
        }
        let trace = self.instance.join("trace");
        Ok(count(&std::fs::read_to_string(&trace).with_context(|| trace.display().to_string())?))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.instance.join(file);
        std::fs::write(&path, text).with_context(|| format!("{}: {text}", path.display()))
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let removed = if self.instance.exists() { std::fs::remove_dir(&self.instance) } else { Ok(()) };
        if let Err(error) = removed {
            println!("{} is left behind: {error}", self.instance.display());
        }
        unmount(self.mount.path());
    }
}

fn unmount(dir: &Path) {
    let unmounted = match is_mounted(dir) {
        Ok(false) => Ok(()),
        _ => Line::new("umount").arg(dir).run(),
    };
    if let Err(error) = unmounted {
        println!("a mount is left behind on {}: {error:#}", dir.display());
    }
}

/// Counts lines such as `tar-12 [000] ..... 3.4: fuse_request_send: connection 45 req 2 opcode 1 (FUSE_LOOKUP) len 40`.
fn count(trace: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let Some((number, rest)) = line.split_once(" opcode ").and_then(|(_, rest)| rest.split_once(" ("))
        else {
            continue;
        };
        let name = rest.split_once(')').map_or("", |(name, _)| name);
        let name = name.strip_prefix("FUSE_").map_or_else(|| format!("opcode {number}"), str::to_owned);
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_opcode() {
        let line = |opcode: &str| {
            format!(
                "  tar-12 [000] ..... 3.4: fuse_request_send: connection 45 req 2 opcode {opcode} len 40\n"
            )
        };
        let trace =
            ["1 (FUSE_LOOKUP)", "1 (FUSE_LOOKUP)", "3 (FUSE_GETATTR)", "99 (0x63)"].map(line).concat();
        let counts = count(&format!("# tracer: nop\n#\n{trace}"));
        let expected = [("GETATTR", 1), ("LOOKUP", 2), ("opcode 99", 1)];
        assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
    }
}

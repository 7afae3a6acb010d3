//! The counts of the emulated devices, to compare with Polder's own.
//!
//! The emulator's monitor reports how much was read from and written to the disk below each namespace. Its log
//! contains every NVMe command with its start and completion: its kind, and thus how many appends were in progress in
//! one zone at once. Neither counts the bytes of reset zones as writes.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Bytes and commands of one disk since the emulator was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    written_bytes: u64,
    writes: u64,
    read_bytes: u64,
    reads: u64,
}

/// Parses `info blockstats` of the monitor for a disk.
pub(super) fn traffic(reply: &str, disk: &str) -> Result<Traffic> {
    let begin = format!("{disk}: ");
    let line = reply.lines().find_map(|line| line.strip_prefix(&begin));
    let line = line.with_context(|| format!("the emulator reports nothing about {disk}"))?;
    let number = |name| number(line, &format!("{name}="));
    Ok(Traffic {
        written_bytes: number("wr_bytes")?,
        writes: number("wr_operations")?,
        read_bytes: number("rd_bytes")?,
        reads: number("rd_operations")?,
    })
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traffic { written_bytes, writes, read_bytes, reads } = self;
        write!(f, "written_bytes={written_bytes} writes={writes} read_bytes={read_bytes} reads={reads}")
    }
}

/// Commands of one namespace that succeeded, by kind, and the number of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    appends: u64,
    append_bytes: u64,
    /// The maximum of appends in progress in one zone at once.
    in_flight: u64,
    writes: u64,
    write_bytes: u64,
    reads: u64,
    read_bytes: u64,
    failed: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Done { appends, append_bytes, in_flight, writes, write_bytes, reads, read_bytes, failed } = self;
        write!(
            f,
            "appends={appends} append_bytes={append_bytes} in_flight={in_flight} writes={writes} \
             write_bytes={write_bytes} reads={reads} read_bytes={read_bytes} failed={failed}"
        )
    }
}

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To the zone that begins here.
    Append(u64),
    Write,
    Read,
    Other,
}

/// A command in progress.
#[derive(Clone, Copy, Debug)]
struct Command {
    namespace: u32,
    kind: Kind,
    bytes: u64,
}

/// A command in progress is identified by its queue and its number in it.
type Key = (u64, u64);

/// All commands in the emulator's log.
pub(super) struct Commands {
    log: PathBuf,
    /// The position up to which the log was read.
    at: u64,
    under_way: HashMap<Key, Command>,
    /// The latest command. Lines that describe a command follow the line that identifies it.
    last: Key,
    done: HashMap<u32, Done>,
}

impl Commands {
    pub(super) fn new(log: &Path) -> Commands {
        let (under_way, done) = (HashMap::new(), HashMap::new());
        Commands { log: log.to_owned(), at: 0, under_way, last: (0, 0), done }
    }

    /// The commands of a namespace since the last call.
    pub(super) fn since(&mut self, namespace: u32) -> Result<Done> {
        let hint = || format!("{} (does the suite have commands logged?)", self.log.display());
        let mut log = File::open(&self.log).with_context(hint)?;
        log.seek(SeekFrom::Start(self.at))?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        // The emulator may be writing a line.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        text[..whole].lines().try_for_each(|line| self.hear(line).with_context(|| line.to_owned()))?;
        self.at += whole as u64;
        Ok(self.done.remove(&namespace).unwrap_or_default())
    }

    fn hear(&mut self, line: &str) -> Result<()> {
        let Some((event, words)) = line.split_once(' ') else { return Ok(()) };
        let number = |name| number(words, name);
        match event {
            "pci_nvme_io_cmd" => {
                self.last = (number("sqid ")?, number("cid ")?);
                let namespace = number("nsid ")? as u32;
                self.under_way.insert(self.last, Command { namespace, kind: Kind::Other, bytes: 0 });
            }
            "pci_nvme_write" if words.contains("APPEND") => {
                self.learn(Kind::Append(number("lba ")?), number("count ")?)?;
            }
            "pci_nvme_write" => self.learn(Kind::Write, number("count ")?)?,
            "pci_nvme_read" => self.learn(Kind::Read, number("count ")?)?,
            "pci_nvme_enqueue_req_completion" => {
                self.complete((number("cqid ")?, number("cid ")?), number("status ")?)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes the kind of the latest command.
    fn learn(&mut self, kind: Kind, bytes: u64) -> Result<()> {
        let command = self.under_way.get_mut(&self.last).context("the log has no start of this command")?;
        let namespace = command.namespace;
        *command = Command { kind, bytes, namespace };
        if let Kind::Append(_) = kind {
            let is_beside = |other: &&Command| (other.namespace, other.kind) == (namespace, kind);
            let in_flight = self.under_way.values().filter(is_beside).count() as u64;
            let done = self.done.entry(namespace).or_default();
            done.in_flight = done.in_flight.max(in_flight);
        }
        Ok(())
    }

    fn complete(&mut self, key: Key, status: u64) -> Result<()> {
        // The queue of admin commands has the number 0, and is ignored.
        if key.0 == 0 {
            return Ok(());
        }
        let command = self.under_way.remove(&key).context("a command was completed that was not sent")?;
        let done = self.done.entry(command.namespace).or_default();
        let (count, bytes) = match command.kind {
            _ if status != 0 => {
                done.failed += 1;
                return Ok(());
            }
            Kind::Append(_) => (&mut done.appends, &mut done.append_bytes),
            Kind::Write => (&mut done.writes, &mut done.write_bytes),
            Kind::Read => (&mut done.reads, &mut done.read_bytes),
            Kind::Other => return Ok(()),
        };
        *count += 1;
        *bytes += command.bytes;
        Ok(())
    }
}

/// The number after a name, decimal or with `0x`.
fn number(words: &str, name: &str) -> Result<u64> {
    let is_word = |at: &usize| *at == 0 || words.as_bytes()[at - 1] == b' ';
    let found = words.match_indices(name).map(|(at, _)| at).find(is_word);
    let rest = &words[found.with_context(|| format!("there is no `{name}`"))? + name.len()..];
    let word = rest.split([' ', '\r']).next().unwrap_or_default();
    let number = word.strip_prefix("0x").map_or_else(|| word.parse(), |hex| u64::from_str_radix(hex, 16));
    ensure!(number.is_ok(), "`{name}` is followed by `{word}`, which is no number");
    Ok(number?)
}

#[cfg(test)]
mod tests;

//! LMDB, which writes through system calls and, in a second database, through shared mapped memory.
//!
//! A separate program commits one transaction after the other (`lmdb_writer.py`). The contents after a crash follow
//! from the number of the last transaction. LMDB's own tool dumps the whole database, and the dump must have exactly
//! these contents.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use support::shell::Line;
use support::{needs, workspace};

use super::section::Site;
use super::writer::Writer;
use crate::accept::programs::cycle::Application;
use crate::accept::programs::running::at_most;

const KINDS: [&str; 2] = ["written", "mapped"];
const SECONDS_MAX: u64 = 120;
/// Transactions of each database before each crash.
const BEFORE_CRASH_MIN: u64 = 10;

/// The same as in `lmdb_writer.py`.
const RECORDS: u64 = 300;
const SLOTS: u64 = 97;

pub(super) struct Lmdb {
    databases: Vec<Database>,
    careless: bool,
}

struct Database {
    kind: &'static str,
    path: PathBuf,
    output: PathBuf,
    writer: Option<Writer>,
    /// The last existing transaction, before the writer begins.
    last: u64,
    /// The range of the last transaction that may exist now.
    expected: RangeInclusive<u64>,
}

impl Lmdb {
    pub(super) fn make(site: Site<'_>) -> Result<Self> {
        let mut databases = Vec::new();
        for kind in KINDS {
            let path = site.dir.join(kind);
            std::fs::create_dir(&path)?;
            let output = site.place.join(format!("lmdb-{kind}"));
            databases.push(Database { kind, path, output, writer: None, last: 0, expected: 0..=0 });
        }
        Ok(Lmdb { databases, careless: site.careless })
    }
}

impl Application for Lmdb {
    fn start(&mut self) -> Result<()> {
        let care = if self.careless { "careless" } else { "careful" };
        self.databases.iter_mut().try_for_each(|database| database.start(care))
    }

    fn is_ready(&mut self) -> Result<bool> {
        let mut ready = true;
        for database in &mut self.databases {
            let wanted = database.last + BEFORE_CRASH_MIN;
            ready &= database.writer()?.has_reached(wanted)?;
        }
        Ok(ready)
    }

    fn progress(&mut self) -> String {
        let writers = self.databases.iter().filter_map(|database| database.writer.as_ref());
        writers.map(Writer::progress).collect::<Vec<_>>().join("; ")
    }

    fn brace(&mut self) -> Result<()> {
        self.databases.iter_mut().try_for_each(|database| database.writer()?.brace())
    }

    fn finish(&mut self) -> Result<u64> {
        self.databases.iter_mut().map(|database| database.finish().context(database.kind)).sum()
    }

    fn verify(&mut self) -> Result<u64> {
        self.databases.iter_mut().map(|database| database.verify().context(database.kind)).sum()
    }
}

impl Database {
    fn start(&mut self, care: &str) -> Result<()> {
        let script = workspace::root().join("tests/system/src/crash/lmdb_writer.py");
        let line = Line::new(needs::PYTHON).arg(script).arg(&self.path).arg((self.last + 1).to_string());
        let line = line.args([self.kind, care]);
        self.writer = Some(Writer::start(&line, &self.output, |line| line.trim().parse().ok())?);
        Ok(())
    }

    fn writer(&mut self) -> Result<&mut Writer> {
        self.writer.as_mut().context("the writer is not running")
    }

    fn finish(&mut self) -> Result<u64> {
        let writer = self.writer.take().context("the writer is not running")?;
        self.expected = writer.finish()?;
        Ok(self.expected.start() - self.last)
    }

    /// LMDB's tools open the database, which runs its recovery, and walk all of it.
    fn verify(&mut self) -> Result<u64> {
        at_most(SECONDS_MAX, "mdb_stat -e -f -a").arg(&self.path).output()?;
        let dump = at_most(SECONDS_MAX, "mdb_dump -p").arg(&self.path).output()?;
        let found = entries(&dump)?;
        let newest = found.keys().filter_map(|key| key.strip_prefix("record")?.parse().ok()).max();
        let newest: u64 = newest.context("no record is there")?;
        ensure!(
            self.expected.contains(&newest),
            "the last transaction must be one of {:?}, but is {newest}",
            self.expected
        );
        let wanted = wanted(newest);
        let wrong = wanted.iter().find(|(key, value)| found.get(*key) != Some(value));
        ensure!(wrong.is_none(), "after transaction {newest} it should hold {wrong:?}");
        let unwanted = found.keys().find(|key| !wanted.contains_key(*key));
        ensure!(unwanted.is_none(), "after transaction {newest} it should not hold {unwanted:?}");
        self.last = newest;
        Ok(found.len() as u64)
    }
}

/// The contents of a database after this transaction.
fn wanted(last: u64) -> BTreeMap<String, String> {
    let records =
        (last.saturating_sub(RECORDS) + 1..=last).map(|number| (format!("record{number:010}"), number));
    let slots =
        (last.saturating_sub(SLOTS) + 1..=last).map(|number| (format!("slot{:03}", number % SLOTS), number));
    records.chain(slots).map(|(key, number)| (key, value(number))).collect()
}

fn value(number: u64) -> String {
    let unit = format!("{number}.");
    let length = (number * 7919 % 9001 + 1) as usize;
    let mut value = unit.repeat(length / unit.len() + 1);
    value.truncate(length);
    value
}

/// Parses the output of `mdb_dump -p`: after a header, keys and values in turns, each after a space.
fn entries(dump: &str) -> Result<BTreeMap<String, String>> {
    let mut lines = dump.lines().skip_while(|line| *line != "HEADER=END").skip(1);
    let mut entries = BTreeMap::new();
    loop {
        let line = lines.next().context("the dump has no end")?;
        let Some(key) = line.strip_prefix(' ') else {
            ensure!(line == "DATA=END", "the dump ends with {line}");
            return Ok(entries);
        };
        let value = lines.next().and_then(|line| line.strip_prefix(' '));
        entries.insert(key.to_owned(), value.with_context(|| format!("{key} has no value"))?.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_to_its_end() {
        let dump = "VERSION=3\nformat=print\nHEADER=END\n one\n 1.\n two\n 2.\nDATA=END\n";
        let found = entries(dump).unwrap();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("one", "1."), ("two", "2.")].map(|(k, v)| (k.into(), v.into()))
        );
        assert!(entries("HEADER=END\n one\n 1.\n").is_err(), "cut short");
        assert!(entries("HEADER=END\n one\nDATA=END\n").is_err(), "a key alone");
    }

    #[test]
    fn the_contents_follow_from_the_last_transaction() {
        let early = wanted(2);
        assert_eq!(
            early.keys().collect::<Vec<_>>(),
            ["record0000000001", "record0000000002", "slot001", "slot002"]
        );
        let late = wanted(1000);
        assert_eq!(late.len() as u64, RECORDS + SLOTS);
        assert!(late.contains_key("record0000000701") && !late.contains_key("record0000000700"));
        assert_eq!(late["slot030"], value(1000));
        assert!(value(12).starts_with("12.12.12."));
    }
}

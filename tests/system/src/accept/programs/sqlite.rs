//! SQLite with a write-ahead log and with a rollback journal, while the daemon is killed again and again.
//!
//! There are two databases on one volume, one for each kind. Clients move amounts between accounts and record each
//! move in the same transaction. This process remembers what was acknowledged. A reader must always see the same sum
//! of all accounts. After each kill the volume is mounted again. Each database must be intact (`PRAGMA
//! integrity_check`), and must contain every acknowledged transaction and, for each client, at most the one that was
//! in progress, with its record, and the balances that follow.
//!
//! `synchronous` is the lowest level at which SQLite promises this on any file system: FULL with a log, which
//! is synced at each commit, and EXTRA with a journal, because there a commit is the removal of a name.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rt::thread::{JoinHandle, Stop};
use support::shell::Line;

use super::Counts;
use super::cycle::{self, Application};
use super::running::{Running, at_most};
use crate::accept::Run;
use crate::accept::volume::Volume;

const ACCOUNTS: u64 = 2_000;
const BALANCE: u64 = 1_000;
const CLIENTS: u64 = 2;
const SECONDS_MAX: u64 = 300;
/// Transactions that must have been acknowledged before each kill, of each database.
const BEFORE_KILL_MIN: u64 = 10;

/// How long a client waits for others. SQLite admits them at random, and one may be unlucky for long.
const BUSY_MS: u64 = 500_000;

/// The pause between two sums, so that a reader leaves a processor and the database to the writers.
const PAUSE: Duration = Duration::from_millis(2);

/// The settings of the clients of one kind.
pub(crate) struct Kind {
    name: &'static str,
    settings: &'static str,
}

/// Acknowledged transactions are durable.
pub(crate) const CAREFUL: [Kind; 2] = [
    Kind {
        name: "wal",
        settings: "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 100;",
    },
    Kind { name: "delete", settings: "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA;" },
];

/// Nothing is ever synced. No log, because a permanent reader would let it grow until the volume is full.
pub(crate) const CARELESS: [Kind; 1] =
    [Kind { name: "delete", settings: "PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;" }];

pub(super) fn run(run: &Run, place: &Path) -> Result<(String, Counts)> {
    let volume = Volume::make(&["--size", "256M"], &[])?;
    volume.tell_if_failed(prove(&volume, run, place))
}

fn prove(volume: &Volume, run: &Run, place: &Path) -> Result<(String, Counts)> {
    volume.mount()?;
    let geometry = volume.geometry()?;
    let mut random = fastrand::Rng::with_seed(run.seed);
    let mut databases = Databases::make(&CAREFUL, &volume.dir(), place, random.fork())?;
    let (kills, latest_ms) = if run.quick { (2, 500) } else { (60, 3_000) };
    let mut checked = 0;
    for kill in 1..=kills {
        let at = Duration::from_millis(random.u64(..latest_ms));
        checked = round(volume, &mut databases, at)
            .with_context(|| format!("SQLite, kill {kill}, {} ms after the first commits", at.as_millis()))?;
    }
    volume.unmount()?;
    volume.check()?;
    let all = &databases.all;
    let counts = vec![
        ("kills under SQLite", kills),
        ("transactions acknowledged with a log", all[0].acknowledged()),
        ("transactions acknowledged with a journal", all[1].acknowledged()),
        ("transactions of SQLite found and verified", checked),
        ("sums that SQLite's readers saw", all.iter().map(|database| database.sums).sum()),
    ];
    Ok((geometry, counts))
}

/// Works until a kill, mounts again and checks. Returns the number of transactions.
fn round(volume: &Volume, databases: &mut Databases, at: Duration) -> Result<u64> {
    cycle::work(volume, databases, at, Volume::strike)?;
    let found = cycle::recover(volume, databases)?;
    volume.ensure_mounted_in_time()?;
    Ok(found)
}

/// A database of each kind.
pub(crate) struct Databases {
    all: Vec<Database>,
    /// The clients of each database, while they run.
    work: Vec<Work>,
    /// Set when the mount is about to fail. Errors are expected from then on.
    killing: Arc<AtomicBool>,
    random: fastrand::Rng,
}

impl Databases {
    pub(crate) fn make(
        kinds: &'static [Kind],
        dir: &Path,
        place: &Path,
        random: fastrand::Rng,
    ) -> Result<Self> {
        let all = kinds.iter().map(|kind| Database::make(kind, dir, place)).collect::<Result<_>>()?;
        Ok(Databases { all, work: Vec::new(), killing: Arc::default(), random })
    }
}

impl Application for Databases {
    fn start(&mut self) -> Result<()> {
        self.killing = Arc::default();
        for database in &self.all {
            self.work.push(database.start(&self.killing, &mut self.random)?);
        }
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool> {
        let has_ended = self.work.iter().any(Work::has_ended);
        Ok(has_ended || self.work.iter().all(|work| work.done.load(Ordering::SeqCst) >= BEFORE_KILL_MIN))
    }

    fn progress(&mut self) -> String {
        let done: Vec<u64> = self.work.iter().map(|work| work.done.load(Ordering::SeqCst)).collect();
        format!("transactions so far, with a log and a journal: {done:?}")
    }

    fn brace(&mut self) -> Result<()> {
        self.killing.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn finish(&mut self) -> Result<u64> {
        let mut acknowledged = 0;
        for (database, work) in self.all.iter_mut().zip(std::mem::take(&mut self.work)) {
            acknowledged += database.finish(work)?;
        }
        Ok(acknowledged)
    }

    fn verify(&mut self) -> Result<u64> {
        self.all.iter_mut().map(|database| database.check().with_context(|| database.kind.name)).sum()
    }
}

/// One database, and the knowledge of its clients.
struct Database {
    kind: &'static Kind,
    file: PathBuf,
    /// The folder for errors of the clients.
    place: PathBuf,
    /// The number of each client's last acknowledged transaction, in all rounds.
    last: [u64; CLIENTS as usize],
    sums: u64,
}

/// The running clients of one database.
struct Work {
    clients: Vec<JoinHandle<Result<u64>>>,
    reader: JoinHandle<Result<u64>>,
    /// Transactions acknowledged in this round.
    done: Arc<AtomicU64>,
}

impl Work {
    fn has_ended(&self) -> bool {
        self.reader.is_finished() || self.clients.iter().any(JoinHandle::is_finished)
    }
}

impl Database {
    fn make(kind: &'static Kind, dir: &Path, place: &Path) -> Result<Self> {
        let file = dir.join(kind.name);
        let database = Database { kind, file, place: place.to_owned(), last: [0; CLIENTS as usize], sums: 0 };
        database.ask(&format!(
            "{}
             CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, filler TEXT);
             CREATE TABLE moved (client INTEGER, number INTEGER, source INTEGER, target INTEGER,
                 amount INTEGER, payload TEXT, PRIMARY KEY (client, number)) WITHOUT ROWID;
             CREATE INDEX by_source ON moved (source);
             CREATE INDEX by_target ON moved (target);
             WITH RECURSIVE ids(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id < {ACCOUNTS} - 1)
             INSERT INTO accounts SELECT id, {BALANCE}, hex(zeroblob(50)) FROM ids;",
            kind.settings
        ))?;
        Ok(database)
    }

    fn acknowledged(&self) -> u64 {
        self.last.iter().sum()
    }

    /// Runs SQL while no client works. Returns the lines of the answer.
    fn ask(&self, sql: &str) -> Result<Vec<String>> {
        let line = at_most(SECONDS_MAX, "sqlite3 -bail").arg(&self.file).arg(sql);
        Ok(line.output()?.lines().map(str::to_owned).collect())
    }

    fn start(&self, killing: &Arc<AtomicBool>, random: &mut fastrand::Rng) -> Result<Work> {
        let done = Arc::new(AtomicU64::new(0));
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let session = Session::open(self, client)?;
            let mover = Mover { client, last: self.last[client as usize], random: random.fork() };
            let (killing, done) = (Arc::clone(killing), Arc::clone(&done));
            clients.push(rt::thread::spawn("client", move || mover.work(session, &killing, &done))?);
        }
        let (session, killing) = (Session::open(self, CLIENTS)?, Arc::clone(killing));
        let reader = rt::thread::spawn("reader", move || read_sums(session, &killing))?;
        Ok(Work { clients, reader, done })
    }

    /// Waits for the clients, which the kill has ended. Returns the number of transactions acknowledged since they
    /// began.
    fn finish(&mut self, work: Work) -> Result<u64> {
        let before = self.acknowledged();
        for (client, thread) in work.clients.into_iter().enumerate() {
            self.last[client] = thread.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        self.sums += work.reader.join().map_err(|_| anyhow!("a reader panicked"))??;
        Ok(self.acknowledged() - before)
    }

    /// Checks the database after a crash, and continues from its state.
    fn check(&mut self) -> Result<u64> {
        let printed = self.ask(&format!(
            "PRAGMA integrity_check;
             SELECT count(*) FROM accounts WHERE balance <> {BALANCE}
                 - (SELECT ifnull(sum(amount), 0) FROM moved WHERE source = id)
                 + (SELECT ifnull(sum(amount), 0) FROM moved WHERE target = id);
             SELECT count(*) FROM moved WHERE payload <> {};
             SELECT sum(balance) FROM accounts;",
            payload("client", "number")
        ))?;
        let wanted = ["ok", "0", "0", &(ACCOUNTS * BALANCE).to_string()];
        ensure!(printed == wanted, "integrity, wrong balances, wrong payloads and the sum are {printed:?}");
        let mut found = 0;
        for client in 0..CLIENTS {
            let last = &mut self.last[client as usize];
            let there = count_of(&self.file, client)?;
            ensure!(
                (*last..=*last + 1).contains(&there),
                "client {client} has transaction {last} acknowledged, but {there} exist"
            );
            *last = there;
            found += there;
        }
        Ok(found)
    }
}

/// The number of transactions of a client. They must have no gap.
fn count_of(file: &Path, client: u64) -> Result<u64> {
    let sql = format!("SELECT count(*), ifnull(max(number), 0) FROM moved WHERE client = {client};");
    let printed = at_most(SECONDS_MAX, "sqlite3 -bail").arg(file).arg(sql).output()?;
    let (count, last) = printed.trim().split_once('|').with_context(|| format!("{printed}: no counts"))?;
    ensure!(count == last, "client {client} has {count} transactions, the last is number {last}");
    Ok(count.parse()?)
}

/// The payload of a transaction: some hundred characters, as an SQL expression of two others.
fn payload(client: &str, number: &str) -> String {
    format!("replace(hex(zeroblob(40)), '00', printf('%d-%d.', {client}, ({number} * 7919) % 10007))")
}

/// The SQLite command, which reads and prints line by line.
struct Session {
    running: Running,
    /// The file of its error messages.
    errors: PathBuf,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn open(database: &Database, number: u64) -> Result<Self> {
        let line = Line::new("stdbuf -oL sqlite3 -bail").arg(&database.file);
        let errors = database.place.join(format!("sqlite-{}-{number}", database.kind.name));
        let file = std::fs::File::create(&errors)?;
        let mut running = Running::with(&line, Stdio::piped(), Stdio::piped(), file.into())?;
        let child = running.child();
        let input = child.stdin.take().expect("asked for a pipe");
        let output = BufReader::new(child.stdout.take().expect("asked for a pipe"));
        let mut session = Session { running, errors, input, output };
        let begun = session.ask(&format!(".timeout {BUSY_MS}\n{}\n.print begun\n", database.kind.settings));
        // The settings answer too.
        let mut printed = begun?;
        while printed.as_deref().is_some_and(|printed| printed != "begun") {
            printed = session.next()?;
        }
        ensure!(printed.is_some(), "sqlite3 ended at once");
        Ok(session)
    }

    /// The next line of the answer. `None` if the program has ended.
    fn ask(&mut self, sql: &str) -> Result<Option<String>> {
        if self.input.write_all(sql.as_bytes()).is_err() {
            return Ok(None);
        }
        self.next()
    }

    fn next(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("cannot read the output of sqlite3")?;
        Ok(line.ends_with('\n').then(|| line.trim().to_owned()))
    }

    /// The program has ended. It may only do so while the daemon is being killed.
    fn close(mut self, killing: &AtomicBool) -> Result<()> {
        let printed = || std::fs::read_to_string(&self.errors).unwrap_or_default();
        ensure!(killing.load(Ordering::SeqCst), "sqlite3 ended before the kill: {}", printed());
        drop(self.input);
        self.running.await_end().map(drop)
    }
}

/// A client that moves amounts, one transaction after the other.
struct Mover {
    client: u64,
    last: u64,
    random: fastrand::Rng,
}

impl Mover {
    /// Works until the kill. Returns the number of the last acknowledged transaction. A client that syncs notices the
    /// death of the mount, but a client that does not sync must end too.
    fn work(mut self, mut session: Session, killing: &AtomicBool, done: &AtomicU64) -> Result<u64> {
        while !killing.load(Ordering::SeqCst) {
            let number = self.last + 1;
            match session.ask(&self.transaction(number))? {
                // Answers after the kill count as in progress. SQLite takes a commit for done if it cannot open the
                // directory that it wants to sync, as on a mount that has just died.
                Some(_) if killing.load(Ordering::SeqCst) => break,
                Some(printed) if printed == number.to_string() => self.last = number,
                Some(printed) => bail!("sqlite3 says {printed} after transaction {number}"),
                None => break,
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
        session.close(killing)?;
        Ok(self.last)
    }

    fn transaction(&mut self, number: u64) -> String {
        let (source, target) = (self.random.u64(..ACCOUNTS), self.random.u64(..ACCOUNTS));
        let (amount, client) = (self.random.u64(1..100), self.client);
        let payload = payload(&client.to_string(), &number.to_string());
        format!(
            "BEGIN IMMEDIATE; \
             UPDATE accounts SET balance = balance - {amount} WHERE id = {source}; \
             UPDATE accounts SET balance = balance + {amount} WHERE id = {target}; \
             INSERT INTO moved VALUES ({client}, {number}, {source}, {target}, {amount}, {payload}); \
             COMMIT; SELECT {number};\n"
        )
    }
}

/// Reads the sum of all accounts until the kill. Returns how often. It need not notice the kill, because all pages
/// may be in its own or the kernel's cache.
fn read_sums(mut session: Session, killing: &AtomicBool) -> Result<u64> {
    let mut sums = 0;
    while !killing.load(Ordering::SeqCst) {
        let Some(printed) = session.ask("SELECT sum(balance) FROM accounts;\n")? else { break };
        ensure!(printed == (ACCOUNTS * BALANCE).to_string(), "a reader saw a sum of {printed}");
        sums += 1;
        Stop::default().wait(PAUSE);
    }
    session.close(killing)?;
    Ok(sums)
}

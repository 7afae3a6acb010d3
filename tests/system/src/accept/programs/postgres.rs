//! PostgreSQL with pgbench, while the server and Polder's daemon are killed again and again.
//!
//! pgbench moves amounts and records each move in a history, in one transaction. At its end it reports, outside of
//! the volume, how many transactions were acknowledged. After each kill (of the server, or of the daemon and then the
//! server) the volume is mounted again and the server recovers. Then the sums of all accounts, tellers, branches and
//! of the history must be equal. Each account, teller and branch must be the sum of its own history. No acknowledged
//! transaction may be missing, and each client may have at most one more. `pg_amcheck` compares heaps with indexes,
//! `pg_checksums` verifies every page after a clean stop.

mod server;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rt::thread::Stop;

use self::server::Server;
use super::Counts;
use super::cycle::{self, Application};
use super::running::{Running, await_that};
use crate::accept::Run;
use crate::accept::volume::Volume;

const CLIENTS: u64 = 4;
/// Accounts for each step of pgbench's scale.
const ACCOUNTS: u64 = 100_000;

struct Scale {
    volume: &'static str,
    pgbench: u64,
    kills: u64,
    /// The latest moment of a kill, after the first transactions.
    latest_ms: u64,
    /// The server is stopped for `pg_checksums` after this many kills.
    checksums_each: u64,
}

const QUICK: Scale = Scale { volume: "512M", pgbench: 1, kills: 2, latest_ms: 500, checksums_each: 2 };
const FULL: Scale = Scale { volume: "4G", pgbench: 50, kills: 12, latest_ms: 8_000, checksums_each: 4 };

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    Daemon,
}

/// The sums of all rounds.
#[derive(Default)]
struct Sum {
    acknowledged: u64,
    rows: u64,
    server_kills: u64,
    daemon_kills: u64,
    index_checks: u64,
    pages: u64,
}

pub(super) fn run(run: &Run, _place: &Path) -> Result<(String, Counts)> {
    let scale = if run.quick { QUICK } else { FULL };
    // The server's user must be able to reach it.
    let place =
        tempfile::Builder::new().prefix("accept-").tempdir().context("cannot make a temporary folder")?;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))?;
    let volume = Volume::make_for(Some(&place.path().join("mnt")), &["--size", scale.volume], &[])?;
    volume.tell_if_failed(prove(&volume, run, &scale, place.path()))
}

fn prove(volume: &Volume, run: &Run, scale: &Scale, place: &Path) -> Result<(String, Counts)> {
    volume.mount()?;
    let geometry = format!("{}; pgbench at scale {}", volume.geometry()?, scale.pgbench);
    let mut pgbench = Pgbench::make(scale.pgbench, &volume.dir(), place, &[])?;
    let mut random = fastrand::Rng::with_seed(run.seed);
    let mut sum = Sum::default();
    for kill in 1..=scale.kills {
        let victim = if kill % 3 == 1 { Victim::Server } else { Victim::Daemon };
        let at = Duration::from_millis(random.u64(..scale.latest_ms));
        let context =
            || format!("PostgreSQL, kill {kill} ({victim:?}), {} ms after the first commits", at.as_millis());
        round(volume, &mut pgbench, victim, at, &mut sum)
            .with_context(context)
            .inspect_err(|_| pgbench.server.show_log())?;
        if kill % scale.checksums_each == 0 {
            sum.pages += pgbench.verify_pages().with_context(context)?;
        }
    }
    sum.acknowledged = pgbench.acknowledged;
    pgbench.server.stop()?;
    volume.unmount()?;
    volume.check()?;
    Ok((geometry, sum.counts()))
}

/// Works until a kill, recovers and verifies.
fn round(volume: &Volume, pgbench: &mut Pgbench, victim: Victim, at: Duration, sum: &mut Sum) -> Result<()> {
    if victim == Victim::Daemon {
        cycle::work(volume, pgbench, at, Volume::strike)?;
        sum.daemon_kills += 1;
        sum.rows = cycle::recover(volume, pgbench)?;
        volume.ensure_mounted_in_time()?;
    } else {
        pgbench.lose_its_server(at)?;
        sum.server_kills += 1;
        sum.rows = pgbench.verify()?;
    }
    sum.index_checks += 1;
    Ok(())
}

/// A server, and clients that move amounts.
pub(crate) struct Pgbench {
    server: Server,
    scale: u64,
    /// The output file of the clients.
    output: PathBuf,
    data: PathBuf,
    clients: Option<Running>,
    /// Whether the clients ended before the kill.
    ended_early: bool,
    /// The number of all acknowledged transactions, and how often clients were disconnected in the middle of one.
    acknowledged: u64,
    interruptions: u64,
}

impl Pgbench {
    /// Creates a cluster and fills it; `settings` are added to the server's.
    pub(crate) fn make(scale: u64, dir: &Path, place: &Path, settings: &[&'static str]) -> Result<Self> {
        let data = dir.join("data");
        let server = Server::make(place, data.clone(), settings)?;
        server.start()?;
        server.client("pgbench").args(["-i", "-q", "-s", &scale.to_string()]).output()?;
        Ok(Pgbench {
            server,
            scale,
            output: place.join("pgbench"),
            data,
            clients: None,
            ended_early: false,
            acknowledged: 0,
            interruptions: 0,
        })
    }

    /// The same round, but only the server is killed, and the mount stays.
    fn lose_its_server(&mut self, at: Duration) -> Result<()> {
        self.start()?;
        let begun = await_that("the first transactions of pgbench", || self.is_ready());
        Stop::default().wait(at);
        self.brace()?;
        self.server.strike()?;
        self.server.await_end(false)?;
        let counted = self.count_acknowledged();
        begun.and(counted).map(drop)
    }

    /// Waits for the clients, which have lost their server, and reads how many transactions were acknowledged.
    fn count_acknowledged(&mut self) -> Result<u64> {
        let mut clients = self.clients.take().context("pgbench was not started")?;
        clients.await_end()?;
        let printed = std::fs::read_to_string(&self.output)?;
        ensure!(!self.ended_early, "pgbench ended before the kill: {printed}");
        let acknowledged = processed(&printed)?;
        self.acknowledged += acknowledged;
        self.interruptions += 1;
        Ok(acknowledged)
    }
}

impl Application for Pgbench {
    fn start(&mut self) -> Result<()> {
        let line = self.server.client("pgbench").args(["-n", "-j", "2", "-T", "400", "-P", "1"]);
        let line = line.arg("-c").arg(CLIENTS.to_string());
        self.clients = Some(Running::start(&line, Stdio::null(), &self.output)?);
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool> {
        let clients = self.clients.as_mut().context("pgbench was not started")?;
        Ok(clients.ended()?.is_some() || has_progress(&std::fs::read_to_string(&self.output)?))
    }

    fn progress(&mut self) -> String {
        format!("pgbench says: {}", std::fs::read_to_string(&self.output).unwrap_or_default())
    }

    fn brace(&mut self) -> Result<()> {
        let clients = self.clients.as_mut().context("pgbench was not started")?;
        self.ended_early = clients.ended()?.is_some();
        Ok(())
    }

    /// The server is killed with its data. Its state without them does not matter.
    fn finish(&mut self) -> Result<u64> {
        let struck = self.server.strike();
        self.server.await_end(true)?;
        let acknowledged = self.count_acknowledged()?;
        struck.map(|()| acknowledged)
    }

    fn verify(&mut self) -> Result<u64> {
        self.server.start()?;
        let rows = self.judge(self.acknowledged, self.interruptions * CLIENTS)?;
        let line = self.server.client("pg_amcheck").args(["--install-missing", "--heapallindexed"]);
        line.args(["--parent-check", "--database=postgres"]).output()?;
        Ok(rows)
    }
}

impl Pgbench {
    /// Checks the sums, and that no transaction is missing. Returns the number of transactions.
    fn judge(&self, acknowledged: u64, unanswered_max: u64) -> Result<u64> {
        let sums = self.server.ask(
            "SELECT sum(abalance) FROM pgbench_accounts UNION ALL SELECT sum(tbalance) FROM pgbench_tellers \
             UNION ALL SELECT sum(bbalance) FROM pgbench_branches \
             UNION ALL SELECT sum(delta) FROM pgbench_history",
        )?;
        ensure!(
            sums.len() == 4 && sums.iter().all(|sum| *sum == sums[0]),
            "the sums of accounts, tellers, branches and history are {sums:?}"
        );
        for (table, balance, key) in
            [("accounts", "abalance", "aid"), ("tellers", "tbalance", "tid"), ("branches", "bbalance", "bid")]
        {
            let wrong = self.number(&format!(
                "SELECT count(*) FROM pgbench_{table} LEFT JOIN (SELECT {key}, sum(delta) AS moved \
                 FROM pgbench_history GROUP BY {key}) AS own USING ({key}) \
                 WHERE {balance} <> coalesce(moved, 0)"
            ))?;
            ensure!(wrong == 0, "{wrong} of {table} are not the sum of their history");
        }
        let accounts = self.number("SELECT count(*) FROM pgbench_accounts")?;
        ensure!(accounts == self.scale * ACCOUNTS, "there are {accounts} accounts");
        let rows = self.number("SELECT count(*) FROM pgbench_history")?;
        ensure!(
            (acknowledged..=acknowledged + unanswered_max).contains(&rows),
            "{acknowledged} transactions were acknowledged, but {rows} exist"
        );
        Ok(rows)
    }

    fn number(&self, sql: &str) -> Result<u64> {
        let printed = self.server.ask(sql)?;
        printed.concat().parse().with_context(|| format!("{printed:?} is no number"))
    }

    /// Verifies every page of a stopped server. Returns the number of pages.
    fn verify_pages(&self) -> Result<u64> {
        self.server.stop()?;
        let line = self.server.line("pg_checksums").arg("--check").arg("-D").arg(&self.data);
        let printed = line.output()?;
        let scanned = printed.lines().find_map(|line| line.strip_prefix("Blocks scanned:"));
        let pages = scanned.context("pg_checksums counts nothing")?.trim().parse()?;
        self.server.start()?;
        Ok(pages)
    }
}

/// Whether pgbench has reported a second with transactions.
fn has_progress(printed: &str) -> bool {
    printed.lines().filter(|line| line.starts_with("progress: ")).any(|line| !line.contains(" 0.0 tps"))
}

/// `number of transactions actually processed: 4711`.
fn processed(printed: &str) -> Result<u64> {
    let count =
        printed.lines().find_map(|line| line.strip_prefix("number of transactions actually processed:"));
    let count = count.with_context(|| format!("pgbench does not count its transactions: {printed}"))?;
    let count = count.split('/').next().expect("there is a first part").trim();
    count.parse().with_context(|| format!("pgbench counts {count}"))
}

impl Sum {
    fn counts(self) -> Counts {
        vec![
            ("kills of PostgreSQL's server", self.server_kills),
            ("kills of the daemon under PostgreSQL", self.daemon_kills),
            ("transactions of pgbench acknowledged", self.acknowledged),
            ("rows of its history found", self.rows),
            ("comparisons of all heaps and indexes", self.index_checks),
            ("pages with right checksums", self.pages),
        ]
    }
}

#[cfg(test)]
mod tests;

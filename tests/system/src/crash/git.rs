//! git: commit after commit, with a repack or a tag now and then.
//!
//! git syncs every file that it writes if `core.fsync` says so, but never the final rename that gives a branch its
//! newest commit. So a commit counts as acknowledged once the repository's folder was synced after it. After a crash
//! `git fsck` must find nothing. Every acknowledged commit must be in the branch's history, in order, with at most
//! one more. Locks that a crash has left are removed, as git tells its users to do.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use rt::thread::JoinHandle;

use super::section::Site;
use crate::accept::programs::cycle::Application;
use crate::accept::real_input::git;

/// Commits before each crash.
const BEFORE_CRASH_MIN: u64 = 2;
/// Files of the tree.
const FILES: u64 = 40;
/// After this many commits a tag is set, and everything is repacked.
const TAG_EACH: u64 = 5;
const PACK_EACH: u64 = 12;

pub(super) struct Git {
    repository: PathBuf,
    careless: bool,
    random: fastrand::Rng,
    /// The names of the existing commits, the oldest first.
    commits: Vec<String>,
    work: Option<Work>,
}

/// A running client.
struct Work {
    client: JoinHandle<Result<Vec<String>>>,
    /// Set when the mount is about to fail.
    ending: Arc<AtomicBool>,
    /// Commits acknowledged by this client.
    done: Arc<AtomicU64>,
}

impl Git {
    pub(super) fn make(site: Site<'_>) -> Result<Self> {
        let repository = site.dir.join("repository");
        std::fs::create_dir(&repository)?;
        git(&repository, &["init", "--quiet", "--initial-branch=main"])?;
        let fsync = if site.careless { "none" } else { "all" };
        git(&repository, &["config", "core.fsync", fsync])?;
        sync(&repository)?;
        Ok(Git { repository, careless: site.careless, random: site.random, commits: Vec::new(), work: None })
    }

    /// Cleans up after a crash, whatever was in progress.
    fn tidy_up(&self) -> Result<()> {
        remove_locks(&self.repository.join(".git"))?;
        git(&self.repository, &["reset", "--quiet", "--hard"])?;
        git(&self.repository, &["clean", "--quiet", "--force", "-d", "-x"]).map(drop)
    }
}

impl Application for Git {
    fn start(&mut self) -> Result<()> {
        let (ending, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = Client {
            repository: self.repository.clone(),
            careless: self.careless,
            number: self.commits.len() as u64,
            random: self.random.fork(),
        };
        let (seen, count) = (Arc::clone(&ending), Arc::clone(&done));
        let client = rt::thread::spawn("client", move || client.work(&seen, &count))?;
        self.work = Some(Work { client, ending, done });
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool> {
        let work = self.work.as_ref().context("no client is running")?;
        Ok(work.client.is_finished() || work.done.load(Ordering::SeqCst) >= BEFORE_CRASH_MIN)
    }

    fn progress(&mut self) -> String {
        let done = self.work.as_ref().map_or(0, |work| work.done.load(Ordering::SeqCst));
        format!("commits so far: {done}")
    }

    fn brace(&mut self) -> Result<()> {
        self.work.as_ref().context("no client is running")?.ending.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn finish(&mut self) -> Result<u64> {
        let work = self.work.take().context("no client is running")?;
        let commits = work.client.join().map_err(|_| anyhow!("the client panicked"))??;
        let acknowledged = commits.len() as u64;
        self.commits.extend(commits);
        Ok(acknowledged)
    }

    fn verify(&mut self) -> Result<u64> {
        self.tidy_up()?;
        git(&self.repository, &["fsck", "--full", "--strict", "--no-progress"])?;
        let printed = git(&self.repository, &["rev-list", "--first-parent", "--reverse", "main"])?;
        let found: Vec<String> = printed.lines().map(str::to_owned).collect();
        judge(&self.commits, &found)?;
        self.commits = found;
        Ok(self.commits.len() as u64)
    }
}

/// Checks that everything acknowledged exists, in order, and at most one more commit.
fn judge(acknowledged: &[String], found: &[String]) -> Result<()> {
    let lost = acknowledged.iter().zip(0..).find(|(commit, place)| found.get(*place) != Some(commit));
    if let Some((commit, place)) = lost {
        let there = found.len();
        anyhow::bail!("commit {commit}, number {place} of {}, is lost; {there} exist", acknowledged.len());
    }
    let more = found.len() - acknowledged.len();
    ensure!(more <= 1, "{more} commits exist that were not acknowledged");
    Ok(())
}

/// A thread that commits.
struct Client {
    repository: PathBuf,
    careless: bool,
    /// The number of the next commit.
    number: u64,
    random: fastrand::Rng,
}

impl Client {
    /// Commits until the crash. Returns the names of the acknowledged commits.
    fn work(mut self, ending: &AtomicBool, done: &AtomicU64) -> Result<Vec<String>> {
        let mut commits = Vec::new();
        loop {
            let commit = self.commit();
            // An answer after that may come from a dead mount.
            if ending.load(Ordering::SeqCst) {
                return Ok(commits);
            }
            commits.push(commit.context("before the crash")?);
            done.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn commit(&mut self) -> Result<String> {
        let number = self.number;
        self.number += 1;
        for _ in 0..self.random.u32(1..4) {
            let name = format!("file-{}", self.random.u64(..FILES));
            let line = format!("{number} {}\n", self.random.u64(..));
            std::fs::write(self.repository.join(name), line.repeat(self.random.usize(1..400)))?;
        }
        git(&self.repository, &["add", "--all"])?;
        git(&self.repository, &["commit", "--quiet", "--allow-empty", "--message", &number.to_string()])?;
        if number.is_multiple_of(TAG_EACH) {
            git(&self.repository, &["tag", "--force", &format!("tag-{number}")])?;
        }
        let commit = git(&self.repository, &["rev-parse", "HEAD"])?;
        if !self.careless {
            sync(&self.repository)?;
        }
        if number % PACK_EACH == PACK_EACH - 1 {
            git(&self.repository, &["gc", "--quiet"])?;
        }
        Ok(commit.trim().to_owned())
    }
}

fn sync(repository: &Path) -> Result<()> {
    let folder = repository.join(".git");
    File::open(&folder)?.sync_all().with_context(|| format!("{} cannot be synced", folder.display()))
}

/// Files of a dead git process, besides its locks, that keep other processes away.
const LEFT: [&str; 2] = ["gc.pid", "packed-refs.new"];

/// Removes the files of dead processes that keep other processes away.
fn remove_locks(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            remove_locks(&path)?;
        } else if name.ends_with(".lock") || LEFT.contains(&name.as_str()) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn a_lost_commit_is_found() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let acknowledged = names(&["a", "b"]);
        assert!(judge(&acknowledged, &names(&["a", "b"])).is_ok());
        assert!(judge(&acknowledged, &names(&["a", "b", "c"])).is_ok());
        assert!(judge(&acknowledged, &names(&["a"])).is_err(), "the last is lost");
        assert!(judge(&acknowledged, &names(&["b", "a"])).is_err(), "another order");
        assert!(judge(&acknowledged, &names(&["a", "b", "c", "d"])).is_err(), "two more");
    }
}

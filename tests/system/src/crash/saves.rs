//! Files that are saved again and again, in the ways in which editors, git, Go programs and package managers do it.
//!
//! Each way replaces the contents of a name by a rename, an exchange or a link. Some ways sync the new contents
//! first, some close the file first, and some do neither: then the contents are in the kernel's cache when the name
//! changes. After every few saves the folder is synced, and then the saves before it count as acknowledged. After a
//! crash each file must contain one complete version, at least the last acknowledged one. It must never be empty.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use rt::thread::JoinHandle;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::section::Site;
use crate::accept::programs::cycle::Application;

/// Files that are saved.
const FILES: u64 = 12;
/// Limit for the length of a version.
const BYTES_MAX: usize = 200 << 10;
/// Saves before the folder is synced.
const SYNC_EACH: u64 = 6;
/// Syncs before each crash.
const BEFORE_CRASH_MIN: u64 = 2;
/// The suffix of the old contents of a file in vim's way, while the new ones are written under the file's name.
const BACKUP: &str = "~";
/// The suffix of the old contents of a file while its name is free. Under the file's name there is a complete
/// version, or nothing.
const KEPT: &str = ".kept";
const NEW: &str = ".new";

pub(super) struct Saves {
    dir: PathBuf,
    careless: bool,
    random: fastrand::Rng,
    files: Vec<Versions>,
    work: Option<Work>,
}

/// The versions of a file: numbers that rise by one with each save. 0 means that there is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Versions {
    acknowledged: u64,
    tried: u64,
}

struct Work {
    client: JoinHandle<Result<(Vec<Versions>, u64)>>,
    /// Set when the mount is about to fail.
    ending: Arc<AtomicBool>,
    /// Syncs of the folder so far.
    syncs: Arc<AtomicU64>,
}

/// How a file is saved.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// git, Go's `os.Rename`: a new file is closed and renamed.
    Closed,
    /// Package managers: a new file is synced, closed and renamed.
    Synced,
    /// A new file is renamed while it is open, and closed later.
    Open,
    /// The same by an exchange, after which the old contents are removed.
    Exchanged,
    /// The old file gets another name, and a new one is linked there while it is open.
    Linked,
    /// vim: the old file gets another name, a new one is written and synced, and the old one is removed.
    BackedUp,
}

const WAYS: [Way; 6] = [Way::Closed, Way::Synced, Way::Open, Way::Exchanged, Way::Linked, Way::BackedUp];

impl Saves {
    pub(super) fn make(site: Site<'_>) -> Result<Self> {
        let dir = site.dir.join("saves");
        fs::create_dir(&dir)?;
        sync(&dir)?;
        let files = vec![Versions::default(); FILES as usize];
        Ok(Saves { dir, careless: site.careless, random: site.random, files, work: None })
    }
}

impl Application for Saves {
    fn start(&mut self) -> Result<()> {
        let (ending, syncs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = Client {
            dir: self.dir.clone(),
            careless: self.careless,
            files: self.files.clone(),
            random: self.random.fork(),
            open: Vec::new(),
        };
        let (seen, count) = (Arc::clone(&ending), Arc::clone(&syncs));
        let client = rt::thread::spawn("client", move || client.work(&seen, &count))?;
        self.work = Some(Work { client, ending, syncs });
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool> {
        let work = self.work.as_ref().context("no client saves")?;
        Ok(work.client.is_finished() || work.syncs.load(Ordering::SeqCst) >= BEFORE_CRASH_MIN)
    }

    fn progress(&mut self) -> String {
        let syncs = self.work.as_ref().map_or(0, |work| work.syncs.load(Ordering::SeqCst));
        format!("syncs of the folder so far: {syncs}")
    }

    fn brace(&mut self) -> Result<()> {
        self.work.as_ref().context("no client saves")?.ending.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn finish(&mut self) -> Result<u64> {
        let work = self.work.take().context("no client saves")?;
        let (files, acknowledged) = work.client.join().map_err(|_| anyhow!("the client panicked"))??;
        self.files = files;
        Ok(acknowledged)
    }

    fn verify(&mut self) -> Result<u64> {
        let mut found = 0;
        for (number, versions) in (0..).zip(&mut self.files) {
            let path = path_of(&self.dir, number);
            let version = version_of(&path).with_context(|| path.display().to_string())?;
            judge(*versions, version).with_context(|| path.display().to_string())?;
            *versions = Versions { acknowledged: version, tried: version.max(versions.tried) };
            found += u64::from(version > 0);
        }
        Ok(found)
    }
}

fn judge(versions: Versions, found: u64) -> Result<()> {
    let Versions { acknowledged, tried } = versions;
    ensure!(found >= acknowledged, "version {acknowledged} is lost; found version {found}");
    ensure!(found <= tried, "found version {found}, but {tried} is the last that was written");
    Ok(())
}

/// The program that saves.
struct Client {
    dir: PathBuf,
    careless: bool,
    files: Vec<Versions>,
    random: fastrand::Rng,
    /// Files that stay open until the folder is synced.
    open: Vec<File>,
}

impl Client {
    /// Works until the crash. Returns the versions, and the number of acknowledged saves.
    fn work(mut self, ending: &AtomicBool, syncs: &AtomicU64) -> Result<(Vec<Versions>, u64)> {
        let mut acknowledged = 0;
        loop {
            let saved = self.save_some();
            // An answer after that may come from a dead mount.
            if ending.load(Ordering::SeqCst) {
                return Ok((self.files, acknowledged));
            }
            let files = saved.context("before the crash")?;
            for file in files {
                let versions = &mut self.files[file as usize];
                versions.acknowledged = versions.tried;
                acknowledged += 1;
            }
            syncs.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Saves some files and syncs their folder. Returns the files.
    fn save_some(&mut self) -> Result<Vec<u64>> {
        let mut saved = Vec::new();
        for _ in 0..SYNC_EACH {
            let file = self.random.u64(..FILES);
            let way = WAYS[self.random.usize(..WAYS.len())];
            self.files[file as usize].tried += 1;
            let version = self.files[file as usize].tried;
            self.save(file, version, way).with_context(|| format!("file {file}, {way:?}"))?;
            saved.push(file);
        }
        if !self.careless {
            sync(&self.dir)?;
        }
        self.open.clear();
        Ok(saved)
    }

    fn save(&mut self, file: u64, version: u64, way: Way) -> Result<()> {
        let path = path_of(&self.dir, file);
        let new = beside(&path, NEW);
        if matches!(way, Way::BackedUp) {
            return self.save_backed_up(&path, version);
        }
        remove(&new)?;
        let written = self.written(&new, version, matches!(way, Way::Synced))?;
        match way {
            Way::Closed | Way::Synced => {
                drop(written);
                fs::rename(&new, &path)?;
                return Ok(());
            }
            Way::Exchanged if path.exists() => {
                renameat_with(CWD, &new, CWD, &path, RenameFlags::EXCHANGE)?;
                remove(&new)?;
            }
            Way::Linked => {
                if path.exists() {
                    fs::rename(&path, beside(&path, KEPT))?;
                }
                fs::hard_link(&new, &path)?;
                remove(&new)?;
                remove(&beside(&path, KEPT))?;
            }
            _ => fs::rename(&new, &path)?,
        }
        self.open.push(written);
        Ok(())
    }

    fn save_backed_up(&mut self, path: &Path, version: u64) -> Result<()> {
        let backup = beside(path, BACKUP);
        if path.exists() {
            fs::rename(path, &backup)?;
        }
        drop(self.written(path, version, true)?);
        remove(&backup)
    }

    fn written(&mut self, path: &Path, version: u64, is_synced: bool) -> Result<File> {
        let mut file = File::create_new(path)?;
        file.write_all(&contents(version, self.random.usize(1..BYTES_MAX)))?;
        if is_synced && !self.careless {
            file.sync_all()?;
        }
        Ok(file)
    }
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file-{number}"))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ending);
    beside.into()
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn sync(dir: &Path) -> Result<()> {
    File::open(dir)?.sync_all().with_context(|| format!("{} cannot be synced", dir.display()))
}

/// The version and the length, and then the version over and over.
fn contents(version: u64, length: usize) -> Vec<u8> {
    let mut contents = format!("{version} {length}\n").into_bytes();
    contents.resize(contents.len() + length, version as u8);
    contents
}

/// The version of a file, or of its backup if a save was interrupted; 0 if there is none. A file may only be torn if
/// it has a backup.
fn version_of(path: &Path) -> Result<u64> {
    let (backup, kept) = (beside(path, BACKUP), beside(path, KEPT));
    let old = match read(&backup).context("the backup")? {
        Some(old) => Some((old, backup)),
        None => read(&kept).context("the kept file")?.map(|old| (old, kept)),
    };
    let new = match &old {
        Some((_, place)) if *place == beside(path, BACKUP) => read(path).ok().flatten(),
        _ => read(path)?,
    };
    match (&old, new) {
        (Some((_, place)), Some(_)) => fs::remove_file(place)?,
        (Some((_, place)), None) => fs::rename(place, path)?,
        (None, _) => {}
    }
    Ok(new.or(old.map(|(old, _)| old)).unwrap_or(0))
}

fn read(path: &Path) -> Result<Option<u64>> {
    match fs::read(path) {
        Ok(bytes) => version_in(&bytes).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn version_in(bytes: &[u8]) -> Result<u64> {
    ensure!(!bytes.is_empty(), "it is empty");
    let end = bytes.iter().position(|&byte| byte == b'\n').context("it has no first line")?;
    let line = str::from_utf8(&bytes[..end])?;
    let (version, length) = line.split_once(' ').context("its first line is no version")?;
    let (version, length): (u64, usize) = (version.parse()?, length.parse()?);
    ensure!(
        bytes == contents(version, length),
        "it holds a part of version {version}: {} bytes",
        bytes.len()
    );
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_torn_files_are_found() {
        let whole = contents(300, 10_000);
        assert_eq!(version_in(&whole).unwrap(), 300);
        assert!(version_in(&whole[..9000]).is_err(), "a part");
        assert!(version_in(&[]).is_err(), "nothing");
        assert!(version_in(&vec![0; 10_000]).is_err(), "zeros");
        let versions = Versions { acknowledged: 4, tried: 6 };
        assert!(judge(versions, 3).is_err() && judge(versions, 7).is_err());
        assert!((4..=6).all(|found| judge(versions, found).is_ok()));
    }

    #[test]
    fn a_backup_stands_for_a_file_that_is_missing_or_torn() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let backup = beside(&path, BACKUP);
        assert_eq!(version_of(&path).unwrap(), 0);
        for torn in [None, Some(&contents(2, 50)[..20])] {
            fs::write(&backup, contents(1, 50)).unwrap();
            torn.iter().for_each(|torn| fs::write(&path, torn).unwrap());
            assert_eq!(version_of(&path).unwrap(), 1);
            assert!(path.exists() && !backup.exists());
        }
        fs::write(&backup, contents(1, 50)).unwrap();
        fs::write(&path, contents(2, 50)).unwrap();
        assert_eq!(version_of(&path).unwrap(), 2);
        let kept = beside(&path, KEPT);
        fs::rename(&path, &kept).unwrap();
        assert_eq!(version_of(&path).unwrap(), 2);
        fs::write(&kept, contents(1, 50)).unwrap();
        fs::write(&path, b"").unwrap();
        assert!(version_of(&path).is_err(), "only a backup excuses a torn file");
    }
}

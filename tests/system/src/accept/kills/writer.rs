//! A writer: changes its directory until the mount dies, and knows which states are allowed then.
//!
//! The directory belongs to this writer alone, so its operations are ordered. An answered call is acknowledged. The
//! call that was in progress at the kill may or may not have been performed. Writes go through the kernel's cache, so
//! only `fsync` promises contents. Names are promised by any later `fsync` of any thread.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail, ensure};

use super::Shared;
use super::contents::{BLOCK, Contents, Origin, Write};
use super::names::{Change, Done, Fit, History, Listing};

/// Bytes of each of the files that fill the volume and are overwritten in place.
const BULK_BYTES: usize = 1 << 20;
/// The minimum and maximum number of small files of a writer.
const SMALL_FILES: std::ops::Range<usize> = 10..40;
/// Limit for the first size of a small file, and for each append to it.
const SMALL_BYTES: usize = 6000;
/// Limit for the size of a small file.
const SMALL_BYTES_MAX: usize = 24 << 10;
/// Limit for the blocks of one overwrite.
const RUN_BLOCKS_MAX: usize = 8;

/// The operations that make something durable.
const SYNCS: [&str; 2] = ["fsync", "fdatasync"];

/// Acknowledged operations, by kind.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) by_kind: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        for (kind, count) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
    }

    /// Answers that promise that the operation survives any crash.
    pub(super) fn synced(&self) -> u64 {
        self.by_kind.iter().filter(|(kind, _)| SYNCS.contains(kind)).map(|(_, count)| count).sum()
    }

    /// Answers that promise that the operation was performed, and its order.
    pub(super) fn buffered(&self) -> u64 {
        self.by_kind.values().sum::<u64>() - self.synced()
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        *self.by_kind.entry(kind).or_default() += 1;
    }
}

/// A file's own number in its writer. Never reused.
type FileNumber = u64;

pub(super) struct Writer {
    number: usize,
    dir: PathBuf,
    seed: u64,
    random: fastrand::Rng,
    next_file: FileNumber,
    next_version: u64,
    /// The names after all operations.
    names: BTreeMap<String, FileNumber>,
    files: BTreeMap<FileNumber, Contents>,
    by_inode: BTreeMap<u64, FileNumber>,
    history: History,
    /// The file with an unknown inode, because the mount died during its creation.
    unanswered: Option<FileNumber>,
    /// When the last acknowledged `fsync` began.
    synced_order: u64,
    tally: Tally,
    /// The directory as the last comparison found it.
    found: Listing,
}

impl Writer {
    /// A writer with a directory of about `bytes`, all of it durable.
    pub(super) fn begin(root: &Path, number: usize, seed: u64, bytes: u64) -> Result<Self> {
        let name = directory_name(number);
        let mut writer = Writer {
            number,
            dir: root.join(&name),
            seed,
            random: fastrand::Rng::with_seed(seed ^ (number as u64 + 1)),
            next_file: 0,
            next_version: 0,
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            by_inode: BTreeMap::new(),
            history: History::default(),
            unanswered: None,
            synced_order: 0,
            tally: Tally::default(),
            found: Listing::new(),
        };
        std::fs::create_dir(&writer.dir).with_context(|| format!("cannot make {name}"))?;
        let shared = Shared::new();
        let bulk_files = (bytes as usize / BULK_BYTES).saturating_sub(1);
        ensure!(bulk_files > 0, "the volume is too small: {bytes} bytes for each writer");
        for bulk in 0..bulk_files {
            writer.make_bulk(&shared, bulk).with_context(|| format!("{name} cannot be filled"))?;
        }
        writer.settle()?;
        writer.take_tally();
        Ok(writer)
    }

    fn make_bulk(&mut self, shared: &Shared, bulk: usize) -> io::Result<()> {
        let (number, file) = self.create(shared, bulk_name(bulk))?;
        self.write(number, &file, 0, BULK_BYTES)?;
        self.sync(shared, number, &file)
    }

    pub(super) fn directory_name(&self) -> String {
        directory_name(self.number)
    }

    pub(super) fn synced_order(&self) -> u64 {
        self.synced_order
    }

    pub(super) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Works until the mount dies. An earlier error is an error of the file system.
    pub(super) fn work(mut self, shared: &Shared) -> Result<Self> {
        loop {
            if let Err(error) = self.step(shared) {
                if shared.killing.load(Ordering::SeqCst) {
                    return Ok(self);
                }
                return Err(error).context(format!("writer {} failed before the kill", self.number));
            }
        }
    }

    fn step(&mut self, shared: &Shared) -> io::Result<()> {
        let small = self.small_names();
        let few = small.len() <= SMALL_FILES.start;
        let many = small.len() >= SMALL_FILES.end;
        match self.random.u32(..100) {
            0..40 => self.overwrite(shared),
            40..60 if !many => self.make_small(shared),
            _ if few => self.make_small(shared),
            40..72 => self.grow(shared, &small),
            72..82 => self.replace(shared, &small),
            82..90 => self.rename(shared, &small),
            _ => self.remove(shared, &small),
        }
    }

    fn small_names(&self) -> Vec<String> {
        self.names.keys().filter(|name| !name.starts_with("bulk")).cloned().collect()
    }

    /// Overwrites a run of blocks in a large file.
    fn overwrite(&mut self, shared: &Shared) -> io::Result<()> {
        let bulk = self.names.keys().filter(|name| name.starts_with("bulk")).count();
        let name = bulk_name(self.random.usize(..bulk));
        let number = self.names[&name];
        let file = self.open(&name)?;
        let blocks = self.random.usize(1..=RUN_BLOCKS_MAX);
        let first = self.random.usize(..=BULK_BYTES / BLOCK - blocks);
        self.write(number, &file, first * BLOCK, blocks * BLOCK)?;
        self.sync_sometimes(shared, number, &file, 30)
    }

    fn make_small(&mut self, shared: &Shared) -> io::Result<()> {
        let name = format!("small-{}", self.next_file);
        let (number, file) = self.create(shared, name)?;
        let length = self.random.usize(..=SMALL_BYTES);
        self.write(number, &file, 0, length)?;
        self.sync_sometimes(shared, number, &file, 40)
    }

    fn grow(&mut self, shared: &Shared, small: &[String]) -> io::Result<()> {
        let name = &small[self.random.usize(..small.len())];
        let number = self.names[name];
        let file = self.open(name)?;
        let (size, more) = (self.files[&number].size(), self.random.usize(1..=SMALL_BYTES / 2));
        let offset = if size + more > SMALL_BYTES_MAX { 0 } else { size };
        self.write(number, &file, offset, more)?;
        self.sync_sometimes(shared, number, &file, 60)
    }

    /// Replaces a file like programs do: writes a new file, syncs it, and renames it over the old one.
    fn replace(&mut self, shared: &Shared, small: &[String]) -> io::Result<()> {
        let target = small[self.random.usize(..small.len())].clone();
        let from = format!("new-{}", self.next_file);
        let (number, file) = self.create(shared, from.clone())?;
        let length = self.random.usize(..=SMALL_BYTES);
        self.write(number, &file, 0, length)?;
        self.sync(shared, number, &file)?;
        self.change(shared, "rename", Change::Rename { from, to: target })
    }

    fn rename(&mut self, shared: &Shared, small: &[String]) -> io::Result<()> {
        let from = small[self.random.usize(..small.len())].clone();
        let fresh = format!("moved-{}", self.random.u32(..));
        let to = if self.random.bool() { fresh } else { small[self.random.usize(..small.len())].clone() };
        if from == to {
            return Ok(());
        }
        self.change(shared, "rename", Change::Rename { from, to })
    }

    fn remove(&mut self, shared: &Shared, small: &[String]) -> io::Result<()> {
        let name = small[self.random.usize(..small.len())].clone();
        self.change(shared, "unlink", Change::Remove { name })
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.dir.join(name))
    }

    fn create(&mut self, shared: &Shared, name: String) -> io::Result<(FileNumber, File)> {
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, Contents::default());
        self.names.insert(name.clone(), number);
        self.unanswered = Some(number);
        let path = self.dir.join(&name);
        let began = shared.tick();
        self.history.done.push(Done {
            change: Change::Create { name: name.clone(), inode: None },
            began,
            ended: None,
        });
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let ended = Some(shared.tick());
        self.tally.count("create");
        self.history.done.last_mut().expect("pushed above").ended = ended;
        let inode = file.metadata()?.ino();
        self.history.done.last_mut().expect("pushed above").change =
            Change::Create { name, inode: Some(inode) };
        self.by_inode.insert(inode, number);
        self.unanswered = None;
        Ok((number, file))
    }

    /// Removes or renames.
    fn change(&mut self, shared: &Shared, kind: &'static str, change: Change) -> io::Result<()> {
        let began = shared.tick();
        self.history.done.push(Done { change: change.clone(), began, ended: None });
        match &change {
            Change::Remove { name } => {
                std::fs::remove_file(self.dir.join(name))?;
                self.names.remove(name);
            }
            Change::Rename { from, to } => {
                std::fs::rename(self.dir.join(from), self.dir.join(to))?;
                let number = self.names.remove(from).expect("only files with a name are renamed");
                self.names.insert(to.clone(), number);
            }
            Change::Create { .. } => unreachable!("files are made by `create`"),
        }
        self.history.done.last_mut().expect("pushed above").ended = Some(shared.tick());
        self.tally.count(kind);
        Ok(())
    }

    fn write(&mut self, number: FileNumber, file: &File, offset: usize, length: usize) -> io::Result<()> {
        let version = self.next_version;
        self.next_version += 1;
        let origin = Origin { seed: self.seed, writer: self.number as u64, file: number, version };
        let bytes = origin.bytes(offset, length);
        let contents = self.files.get_mut(&number).expect("every file that is written has contents");
        contents.write(Write { offset, bytes: bytes.clone() });
        file.write_all_at(&bytes, offset as u64)?;
        self.tally.count("write");
        Ok(())
    }

    fn sync_sometimes(
        &mut self,
        shared: &Shared,
        number: FileNumber,
        file: &File,
        percent: u32,
    ) -> io::Result<()> {
        if self.random.u32(..100) < percent { self.sync(shared, number, file) } else { Ok(()) }
    }

    fn sync(&mut self, shared: &Shared, number: FileNumber, file: &File) -> io::Result<()> {
        let began = shared.tick();
        let (kind, synced) = if self.random.u32(..4) == 0 {
            ("fdatasync", file.sync_data())
        } else {
            ("fsync", file.sync_all())
        };
        synced?;
        self.synced_order = began;
        self.files.get_mut(&number).expect("every file that is synced has contents").sync();
        self.tally.count(kind);
        Ok(())
    }

    /// Compares the existing names with the allowed ones. `durable` is the time at which the last `fsync` of any
    /// thread began.
    pub(super) fn compare_names(&mut self, durable: u64) -> Result<Fit> {
        self.found = list(&self.dir)?;
        self.history.fit(&self.found, durable).with_context(|| format!("in {}", self.directory_name()))
    }

    /// Compares the contents of all files, and continues from them.
    pub(super) fn compare_contents(&mut self) -> Result<u64> {
        let mut files = BTreeMap::new();
        let mut bytes = 0;
        for (name, inode) in &self.found {
            let inode = inode.expect("listed names have inodes");
            let Some(number) = self.by_inode.get(&inode).copied().or(self.unanswered) else {
                bail!("{}/{name} has inode {inode}, which no writer created", self.directory_name());
            };
            let found = std::fs::read(self.dir.join(name))
                .with_context(|| format!("{}/{name} cannot be read", self.directory_name()))?;
            self.files[&number]
                .judge(&found)
                .with_context(|| format!("{}/{name} (file {number}) is wrong", self.directory_name()))?;
            bytes += found.len() as u64;
            files.insert(number, (name.clone(), inode, Contents::found(found)));
        }
        self.go_on(files);
        Ok(bytes)
    }

    fn go_on(&mut self, files: BTreeMap<FileNumber, (String, u64, Contents)>) {
        self.history = History { base: std::mem::take(&mut self.found), done: Vec::new() };
        self.names = files.iter().map(|(&number, (name, ..))| (name.clone(), number)).collect();
        self.by_inode = files.iter().map(|(&number, &(_, inode, _))| (inode, number)).collect();
        self.files = files.into_iter().map(|(number, (_, _, contents))| (number, contents)).collect();
        self.unanswered = None;
        self.synced_order = 0;
    }

    /// Notes that the state is durable, with no operation in progress.
    fn settle(&mut self) -> Result<()> {
        File::open(&self.dir)?.sync_all().context("the directory cannot be synced")?;
        self.compare_names(u64::MAX)?;
        self.compare_contents()?;
        Ok(())
    }
}

fn list(dir: &Path) -> Result<Listing> {
    let mut listing = Listing::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let inode = entry.metadata().with_context(|| format!("{name} is listed and not there"))?.ino();
        ensure!(listing.insert(name.clone(), Some(inode)).is_none(), "{name} is listed twice");
    }
    Ok(listing)
}

fn directory_name(writer: usize) -> String {
    format!("writer-{writer}")
}

fn bulk_name(number: usize) -> String {
    format!("bulk-{number}")
}

//! A whole file system on a timed device in memory, used by one or several clients.
//!
//! A client performs one operation after the other, each when the previous one has returned. Meanwhile the threads of
//! the volume and the other clients work like in the product ([`rt::schedule::run_in_time`]). They all wait for the
//! device, for each other's locks and for timers, in device time. Processors take no time.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use emulated::timed::{self, CommandClass, DeviceTimes, Model, Timed};
use emulated::{Emulated, Spec};
use extent::Lifetime;
use fs::{
    Caller, FormatOptions, Fs, FsError, Handle, InodeNo, MountOptions, OpenFlags, RenameFlags, Reserve,
};
use rt::random::Rng;
use rt::schedule::{self, Body};
use rt::{Clock, ManualClock, Timestamp};
use tree::Step;
use zone::{Cause, Device, FsId, Role, ZoneId};

use crate::trace::{BLOCK, Class, Name, Op, PIECE};

/// Memory for the metadata cache.
const CACHE_BYTES: u64 = 128 << 20;
const COMMIT_INTERVAL_NS: u64 = 5_000_000_000;
/// If no command has reached the device for this long, no thread of the volume has anything to do.
const REST_NS: u64 = 2 * COMMIT_INTERVAL_NS;
const WRITING: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

/// The device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Zones.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Bytes of a block, the unit of a trace.
    pub block_bytes: u64,
}

impl Shape {
    /// A device with blocks of the usual size.
    pub fn new(zones: u32, zone_bytes: u64) -> Shape {
        Shape { zones, zone_bytes, block_bytes: BLOCK }
    }
}

/// The device model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// An SSD.
    Ssd,
    /// A disk with shingled tracks.
    Disk,
    /// A disk that does not report that it has to move its arm before it can write elsewhere.
    SilentDisk,
}

/// Options beyond the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Make written data durable wherever the trace closes a file or would sync it.
    pub fsync: bool,
    /// Pass the program's lifetime hints to the volume.
    pub hints: bool,
    /// Switches of placement and GC.
    pub of_volume: extent::Switches,
}

/// The layout of a file, and the cost of reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Layout {
    /// Runs of contiguous blocks.
    pub fragments: u64,
    /// Device commands for reading the file from start to end.
    pub reads: u64,
}

/// A timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// A write.
    Wrote {
        /// Its blocks.
        blocks: u64,
        /// Its duration.
        nanoseconds: u64,
    },
    /// The sync of the last write.
    Synced {
        /// Its duration.
        nanoseconds: u64,
    },
    /// Another operation.
    Other,
}

struct File {
    inode: InodeNo,
    handle: Option<Handle>,
    name: Name,
    /// How often each block was written.
    versions: Vec<u16>,
}

/// A mounted volume and its client.
pub struct Volume {
    fs: Arc<Fs>,
    device: Arc<Timed>,
    clock: Arc<ManualClock>,
    switches: Switches,
    directories: HashMap<&'static str, InodeNo>,
    files: HashMap<u32, File>,
    buffer: Vec<u8>,
    /// Bytes of a block.
    block: u64,
}

/// An open file of the volume, for another client.
pub struct Opened {
    fs: Arc<Fs>,
    clock: Arc<ManualClock>,
    handle: Handle,
    file: u32,
    blocks: u64,
}

/// The duration of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// Total.
    pub nanoseconds: u64,
    /// The part in which its own commands were executed or queued at the device.
    pub at_device_ns: u64,
}

/// The current use of the zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneUse {
    /// Zones of the log, in use or empty.
    pub log: u32,
    /// Zones that contain metadata.
    pub metadata: u32,
    /// Free zones that are reserved for metadata.
    pub kept_for_metadata: u32,
    /// All other zones: they contain data, can take data, or are needed for GC.
    pub data: u32,
}

impl Volume {
    /// Creates and mounts an empty volume.
    fn new(shape: Shape, medium: Medium, reserve: Reserve, switches: Switches) -> Result<Volume> {
        let zone_blocks =
            u32::try_from(shape.zone_bytes / shape.block_bytes).context("a zone has too many blocks")?;
        let block_size = u32::try_from(shape.block_bytes).context("a block is too large")?;
        let clock = Arc::new(ManualClock::at(Timestamp(1_600_000_000_000_000_000)));
        let spec = Spec::new(block_size, shape.zones, zone_blocks);
        let (spec, model) = match medium {
            Medium::Ssd => (spec, Model::ssd()),
            Medium::Disk => (spec.disk(), Model::shingled()),
            Medium::SilentDisk => (spec, Model::shingled()),
        };
        let emulated = Arc::new(Emulated::new(spec));
        let device = Arc::new(Timed::new(emulated, Arc::clone(&clock), model));
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        let options = FormatOptions {
            label: "space".to_owned(),
            fs_id: FsId([7; 16]),
            uid: 0,
            gid: 0,
            page_size: None,
            groups: None,
            reserve,
        };
        Fs::format(&shared, &options, clock.as_ref())?;
        let options = MountOptions {
            cache_bytes: CACHE_BYTES,
            read_only: false,
            commit_interval_ns: COMMIT_INTERVAL_NS,
            clock: Arc::clone(&clock) as _,
        };
        let (fs, _) = Fs::mount(shared, options)?;
        fs.set_switches(switches.of_volume);
        Ok(Volume {
            fs,
            device,
            clock,
            switches,
            directories: HashMap::new(),
            files: HashMap::new(),
            block: shape.block_bytes,
            buffer: vec![0; (PIECE * shape.block_bytes) as usize],
        })
    }

    /// Runs a client on an empty volume, beside the threads of the volume, until it returns.
    pub fn used_by<T: Send>(
        of: (Shape, Medium, Reserve, Switches),
        seed: u64,
        client: impl FnOnce(Volume) -> Result<T> + Send,
    ) -> Result<T> {
        Volume::used_beside(of, seed, client, Vec::new())
    }

    /// The same beside other clients. The client passes them the files to use, and signals the end.
    pub fn used_beside<'a, T: Send + 'a>(
        (shape, medium, reserve, switches): (Shape, Medium, Reserve, Switches),
        seed: u64,
        client: impl FnOnce(Volume) -> Result<T> + Send + 'a,
        others: Vec<Body<'a, ()>>,
    ) -> Result<T> {
        let volume = Volume::new(shape, medium, reserve, switches)?;
        let (clock, workers) = (Arc::clone(&volume.clock), volume.fs.workers());
        let workers = workers.into_iter().map(|(name, work)| -> Body<'a, ()> { (name.to_owned(), work) });
        let uses = || Some(client(volume));
        let mut bodies: Vec<Body<'a, Option<Result<T>>>> = vec![("client".to_owned(), Box::new(uses))];
        bodies.extend(others.into_iter().chain(workers).map(|(name, work)| -> Body<'a, Option<Result<T>>> {
            let works = || {
                work();
                None
            };
            (name, Box::new(works))
        }));
        let ran = schedule::run_in_time(&clock, seed, bodies);
        ran.returned.into_iter().flatten().next().expect("the client has returned")
    }

    /// Bytes that can currently be written.
    pub fn available(&self) -> Result<u64> {
        let sizes = self.fs.statfs()?;
        Ok(sizes.available * u64::from(sizes.block_size))
    }

    /// Bytes written to the device so far for one cause.
    pub fn written(&self, cause: Cause) -> u64 {
        self.fs.store().traffic().bytes_written(cause)
    }

    /// Bytes written to the device so far for all causes.
    pub fn written_in_all(&self) -> u64 {
        self.fs.store().traffic().bytes_written_total()
    }

    /// The times of device commands so far.
    pub fn times(&self) -> DeviceTimes {
        self.device.times()
    }

    /// The client's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// How the zones are used now.
    pub fn zone_use(&self) -> ZoneUse {
        let pool = self.fs.store().pool();
        let roles = (0..pool.count()).map(|zone| pool.entry(ZoneId(zone)).role);
        let metadata = roles.filter(|role| *role == Role::Metadata).count() as u32;
        let kept = pool.reserved_from(Role::Data) - pool.metadata_target() - 1;
        let log = tree::LOG_ZONES;
        ZoneUse { log, metadata, kept_for_metadata: kept, data: pool.count() - log - metadata - kept }
    }

    /// Performs an operation of the trace.
    pub fn apply(&mut self, op: &Op) -> Result<Timing> {
        let before = self.now();
        match *op {
            Op::Create { file, name, class } => {
                self.create(file, name, class)?;
                Ok(Timing::Other)
            }
            Op::Write { file, start, blocks } => {
                self.write(file, start, blocks)?;
                Ok(Timing::Wrote { blocks, nanoseconds: self.now() - before })
            }
            Op::Sync { file } => self.sync(file),
            Op::Close { file } => {
                let timing = self.sync(file)?;
                self.file(file).handle = None;
                Ok(timing)
            }
            Op::Rename { file, name } => {
                self.rename(file, name)?;
                Ok(Timing::Other)
            }
            Op::Delete { file } => {
                let gone = self.files.remove(&file).expect("a trace deletes only its own files");
                let directory = self.directories[gone.name.directory];
                self.fs.unlink(&caller(), directory, &name_of(file, gone.name))?;
                Ok(Timing::Other)
            }
        }
    }

    /// Sleeps until this time, while background work continues.
    pub fn rest_until(&self, then: u64) {
        assert!(schedule::sleep_until(then), "a client is a thread of a schedule");
    }

    /// Opens a file for another client, which is the only writer from now on.
    pub fn open_for_another(&self, file: u32) -> Result<Opened> {
        let known = &self.files[&file];
        let handle = self.fs.open(&caller(), known.inode, WRITING)?;
        let (fs, clock) = (Arc::clone(&self.fs), Arc::clone(&self.clock));
        Ok(Opened { fs, clock, handle, file, blocks: known.versions.len() as u64 })
    }

    /// Performs all pending background work.
    pub fn rest(&self) -> Result<()> {
        loop {
            let before = self.times();
            self.rest_until(self.now() + REST_NS);
            if self.times() == before && self.fs.step()? == Step::Idle {
                return Ok(());
            }
        }
    }

    fn file(&mut self, file: u32) -> &mut File {
        self.files.get_mut(&file).expect("a trace uses only its own files")
    }

    fn directory(&mut self, name: &'static str) -> Result<InodeNo> {
        if let Some(directory) = self.directories.get(name) {
            return Ok(*directory);
        }
        let made = self.fs.make_directory(&caller(), InodeNo::ROOT, name.as_bytes(), 0o755)?;
        self.directories.insert(name, made.inode);
        Ok(made.inode)
    }

    fn create(&mut self, file: u32, name: Name, class: Class) -> Result<()> {
        let directory = self.directory(name.directory)?;
        let (made, handle) =
            self.fs.create(&caller(), directory, &name_of(file, name), 0o644, WRITING, true)?;
        if self.switches.hints && class != Class::Unknown {
            self.fs.set_lifetime(&caller(), made.inode, lifetime(class))?;
        }
        let file_of = File { inode: made.inode, handle: Some(handle), name, versions: Vec::new() };
        self.files.insert(file, file_of);
        Ok(())
    }

    fn rename(&mut self, file: u32, name: Name) -> Result<()> {
        let before = std::mem::replace(&mut self.file(file).name, name);
        let (from, to) = (self.directory(before.directory)?, self.directory(name.directory)?);
        let (before, after) = (name_of(file, before), name_of(file, name));
        self.fs.rename(&caller(), from, &before, to, &after, RenameFlags::default())?;
        Ok(())
    }

    fn write(&mut self, file: u32, start: u64, blocks: u64) -> Result<()> {
        let Volume { fs, files, buffer, block: block_bytes, .. } = self;
        let block_bytes = *block_bytes;
        let known = files.get_mut(&file).expect("a trace writes only to its own files");
        let end = (start + blocks) as usize;
        if known.versions.len() < end {
            known.versions.resize(end, 0);
        }
        let bytes = &mut buffer[..(blocks * block_bytes) as usize];
        for (block, into) in (start..).zip(bytes.chunks_exact_mut(block_bytes as usize)) {
            let version = &mut known.versions[block as usize];
            *version = version.wrapping_add(1);
            fill(into, word(file, block, *version));
        }
        let handle = known.handle.as_ref().expect("a trace writes before it closes");
        let mut done = 0;
        while done < bytes.len() {
            done += fs.write(handle, start * block_bytes + done as u64, &bytes[done..])?;
        }
        Ok(())
    }

    fn sync(&mut self, file: u32) -> Result<Timing> {
        if !self.switches.fsync {
            return Ok(Timing::Other);
        }
        let before = self.now();
        let fs = Arc::clone(&self.fs);
        let handle = self.file(file).handle.as_ref().expect("a trace syncs before it closes");
        fs.fsync(handle, false)?;
        Ok(Timing::Synced { nanoseconds: self.now() - before })
    }

    /// Reads every block of some files and compares it with the last write. Returns the number of blocks.
    pub fn compare(&mut self, files: usize) -> Result<u64> {
        let mut numbers: Vec<u32> = self.files.keys().copied().collect();
        numbers.sort_unstable();
        let every = numbers.len().div_ceil(files.max(1)).max(1);
        let mut compared = 0;
        for file in numbers.into_iter().step_by(every) {
            compared += self.compare_one(file)?;
        }
        ensure!(compared > 0, "there was nothing to compare");
        Ok(compared)
    }

    fn compare_one(&mut self, file: u32) -> Result<u64> {
        let known = &self.files[&file];
        let handle = self.fs.open(&caller(), known.inode, WRITING)?;
        (0..known.versions.len() as u64).try_for_each(|block| self.compare_block(&handle, file, block))?;
        Ok(known.versions.len() as u64)
    }

    /// Whether a write of a block at `start` of an open file fails for lack of space.
    pub fn refuses(&mut self, file: u32, start: u64) -> Result<bool> {
        let (fs, block_bytes) = (Arc::clone(&self.fs), self.block);
        let handle = self.file(file).handle.as_ref().expect("a file is open while it is written");
        match fs.write(handle, start * block_bytes, &vec![1; block_bytes as usize]) {
            Ok(_) => Ok(false),
            Err(FsError::NoSpace) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes that can be written after all pending background work.
    pub fn available_at_rest(&mut self) -> Result<u64> {
        self.rest()?;
        self.fs.sync()?;
        self.available()
    }

    /// The layout of a file, and the number of commands for reading it from start to end. Its extents have been
    /// looked up before.
    pub fn layout(&mut self, file: u32) -> Result<Layout> {
        let inode = self.files[&file].inode;
        let fragments = self.fs.layout(inode)?.fragments;
        let handle = self.fs.open(&caller(), inode, WRITING)?;
        let before = self.times().of(CommandClass::Read).commands;
        let mut into = vec![0; (PIECE * self.block) as usize];
        let mut at = 0;
        loop {
            match self.fs.read(&handle, at, &mut into)? {
                0 => break,
                bytes => at += bytes as u64,
            }
        }
        Ok(Layout { fragments, reads: self.times().of(CommandClass::Read).commands - before })
    }

    /// Runs GC until it cannot free any more space. Returns the number of bytes moved.
    pub fn collect(&mut self) -> Result<u64> {
        let before = self.written(Cause::Gc);
        self.rest()?;
        while self.fs.collect_garbage()? {}
        Ok(self.written(Cause::Gc) - before)
    }

    /// Defragments a file as far as that saves reads.
    pub fn defragment(&mut self, file: u32) -> Result<()> {
        let inode = self.files[&file].inode;
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.fs.defragment(inode, from)?.next;
        }
        Ok(())
    }

    /// The least possible reserve on this device.
    pub fn least_reserve(&self) -> Reserve {
        let store = self.fs.store();
        extent::least_reserve(store.device().geometry(), store.info().page_size, store.info().groups)
    }

    /// Reads random blocks of a file and compares them with the last writes.
    pub fn compare_some(&mut self, file: u32, blocks: u64, seed: u64) -> Result<u64> {
        let mut rng = Rng::with_seed(seed);
        let known = &self.files[&file];
        let handle = self.fs.open(&caller(), known.inode, WRITING)?;
        let all = known.versions.len() as u64;
        for _ in 0..blocks.min(all) {
            self.compare_block(&handle, file, rng.u64(0..all))?;
        }
        Ok(blocks.min(all))
    }

    fn compare_block(&self, handle: &Handle, file: u32, block: u64) -> Result<()> {
        let (mut found, mut expected) = (vec![0; self.block as usize], vec![0; self.block as usize]);
        let read = self.fs.read(handle, block * self.block, &mut found)?;
        fill(&mut expected, word(file, block, self.files[&file].versions[block as usize]));
        ensure!(
            read == found.len() && found == expected,
            "block {block} of file {file} differs from the last write"
        );
        Ok(())
    }

    /// Makes everything durable and runs the checker.
    pub fn check(&mut self) -> Result<()> {
        self.fs.sync()?;
        let findings = self.fs.check()?;
        ensure!(findings.is_empty(), "the checker finds {findings:?}");
        Ok(())
    }
}

impl Opened {
    /// Its length.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The clock that all clients share, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// Reads blocks that were written once, and compares them with the write.
    pub fn read(&self, start: u64, into: &mut [u8]) -> Result<Took> {
        let (took, read) = self.timed(|fs| fs.read(&self.handle, start * BLOCK, into))?;
        let mut expected = [0; BLOCK as usize];
        for (block, found) in (start..).zip(into.chunks_exact(BLOCK as usize)) {
            fill(&mut expected, word(self.file, block, 1));
            ensure!(found == expected, "block {block} of file {} differs from the last write", self.file);
        }
        ensure!(read == into.len(), "file {} ends after {read} bytes of {}", self.file, into.len());
        Ok(took)
    }

    /// Overwrites one block.
    pub fn write(&self, block: u64, version: u16) -> Result<Took> {
        let mut bytes = [0; BLOCK as usize];
        fill(&mut bytes, word(self.file, block, version));
        let (took, written) = self.timed(|fs| fs.write(&self.handle, block * BLOCK, &bytes))?;
        ensure!(written == bytes.len(), "{written} bytes of a block were written");
        Ok(took)
    }

    /// Makes the file durable.
    pub fn sync(&self) -> Result<Took> {
        Ok(self.timed(|fs| fs.fsync(&self.handle, false))?.0)
    }

    fn timed<T>(&self, operation: impl FnOnce(&Fs) -> Result<T, FsError>) -> Result<(Took, T), FsError> {
        let (began, waited) = (self.now(), timed::waited_by_this_thread_ns());
        let returned = operation(&self.fs)?;
        let at_device_ns = timed::waited_by_this_thread_ns() - waited;
        Ok((Took { nanoseconds: self.now() - began, at_device_ns }, returned))
    }
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

fn name_of(file: u32, name: Name) -> Vec<u8> {
    format!("{file:08}{}", name.suffix).into_bytes()
}

fn lifetime(class: Class) -> Lifetime {
    match class {
        Class::Unknown => Lifetime::Unknown,
        Class::Short => Lifetime::Short,
        Class::Medium => Lifetime::Medium,
        Class::Long => Lifetime::Long,
        Class::Extreme => Lifetime::Extreme,
    }
}

/// The word that fills a block. The device stores only this word of each block.
fn word(file: u32, block: u64, version: u16) -> u64 {
    (u64::from(file) << 40) ^ (block << 16) ^ u64::from(version)
}

fn fill(bytes: &mut [u8], word: u64) {
    bytes.chunks_exact_mut(size_of::<u64>()).for_each(|place| place.copy_from_slice(&word.to_ne_bytes()));
}

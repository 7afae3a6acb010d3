//! The library on an emulated device, with one thread: background steps are done between operations.

use std::collections::HashMap;
use std::sync::Arc;

use fs::{Caller, Changes, FormatOptions, Fs, FsError, Handle, InodeNo, MountOptions, OpenFlags, Reserve};
use rt::random::Rng;
use rt::{ManualClock, Timestamp};
use tree::Step;
use zone::emulated::{Emulated, Spec};
use zone::{Device, FsId};

use super::{Place, Refused};
use crate::caught::Wrong;

const WRITING: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

/// Directories that the files are spread over.
const DIRECTORIES: u32 = 8;
/// Background steps after an operation, at most.
const STEPS_MAX: u32 = 2;
/// Handles that are kept open.
const OPEN_MAX: usize = 64;

/// A volume of its own.
pub struct Library {
    /// What is mounted.
    pub fs: Arc<Fs>,
    device: Arc<Emulated>,
    clock: Arc<ManualClock>,
    directories: Vec<InodeNo>,
    open: HashMap<u32, Handle>,
    rng: Rng,
    cache_bytes: u64,
}

impl Library {
    /// Makes and mounts a volume.
    pub fn new(spec: Spec, reserve: Reserve, cache_bytes: u64, seed: u64) -> Result<Self, Wrong> {
        let clock = Arc::new(ManualClock::at(Timestamp(1_600_000_000_000_000_000)));
        let device = Arc::new(Emulated::new(spec));
        let options = FormatOptions {
            label: "long".to_owned(),
            fs_id: FsId([7; 16]),
            uid: 0,
            gid: 0,
            page_size: None,
            groups: None,
            reserve,
        };
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        Fs::format(&shared, &options, clock.as_ref()).map_err(|error| Wrong::at("format", error))?;
        let fs = mount(&device, &clock, cache_bytes)?;
        let make = |number: u32| {
            let made = fs.make_directory(&caller(), InodeNo::ROOT, format!("d{number}").as_bytes(), 0o755);
            made.map(|attributes| attributes.inode).map_err(|error| Wrong::at("make a directory", error))
        };
        let directories = (0..DIRECTORIES).map(make).collect::<Result<_, _>>()?;
        let rng = Rng::with_seed(seed);
        Ok(Library { fs, device, clock, directories, open: HashMap::new(), rng, cache_bytes })
    }

    /// Unmounts, mounts again, and checks.
    pub fn remount(&mut self) -> Result<(), Wrong> {
        self.open.clear();
        self.fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
        self.fs = mount(&self.device, &self.clock, self.cache_bytes)?;
        let findings = self.fs.check().map_err(|error| Wrong::at("check", error))?;
        if findings.is_empty() { Ok(()) } else { Err(Wrong(format!("the checker finds {findings:?}"))) }
    }

    /// Bytes of the device.
    pub fn device_bytes(&self) -> u64 {
        let geometry = self.device.geometry();
        self.device.report().map_or(0, |zones| {
            zones.iter().map(|zone| u64::from(zone.capacity) * u64::from(geometry.block_size)).sum()
        })
    }

    fn place(&self, file: u32) -> (InodeNo, Vec<u8>) {
        (self.directories[(file % DIRECTORIES) as usize], format!("f{file}").into_bytes())
    }

    fn handle(&mut self, file: u32) -> Result<&Handle, Refused> {
        if !self.open.contains_key(&file) {
            let (directory, name) = self.place(file);
            let inode = self.fs.lookup(&caller(), directory, &name)?.inode;
            let handle = self.fs.open(&caller(), inode, WRITING)?;
            self.keep(file, handle);
        }
        Ok(&self.open[&file])
    }

    fn keep(&mut self, file: u32, handle: Handle) {
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(file, handle);
    }

    /// What threads of the runtime would do meanwhile.
    fn background(&mut self) -> Result<(), Refused> {
        self.clock.advance(1_000_000);
        for _ in 0..self.rng.u32(0..=STEPS_MAX) {
            self.fs.step()?;
        }
        Ok(())
    }
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

fn mount(device: &Arc<Emulated>, clock: &Arc<ManualClock>, cache_bytes: u64) -> Result<Arc<Fs>, Wrong> {
    let options = MountOptions {
        cache_bytes,
        read_only: false,
        commit_interval_ns: 5_000_000_000,
        clock: Arc::clone(clock) as _,
    };
    let mounted = Fs::mount(Arc::clone(device) as _, options);
    mounted.map(|(fs, _)| fs).map_err(|error| Wrong::at("mount", error))
}

impl From<FsError> for Refused {
    fn from(error: FsError) -> Self {
        if error == FsError::NoSpace { Refused::NoSpace } else { Refused::Other(error.to_string()) }
    }
}

impl Place for Library {
    fn create(&mut self, file: u32) -> Result<(), Refused> {
        let (directory, name) = self.place(file);
        let (_, handle) = self.fs.create(&caller(), directory, &name, 0o644, WRITING, true)?;
        self.keep(file, handle);
        self.background()
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let fs = Arc::clone(&self.fs);
        let handle = self.handle(file)?;
        let mut done = 0;
        while done < bytes.len() {
            done += fs.write(handle, offset + done as u64, &bytes[done..])?;
        }
        self.background()
    }

    fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused> {
        let inode = self.handle(file)?.inode();
        let changes = Changes { size: Some(size), ..Changes::default() };
        self.fs.set_attributes(&caller(), inode, &changes)?;
        self.background()
    }

    fn remove(&mut self, file: u32) -> Result<(), Refused> {
        self.open.remove(&file);
        let (directory, name) = self.place(file);
        self.fs.unlink(&caller(), directory, &name)?;
        self.background()
    }

    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused> {
        let fs = Arc::clone(&self.fs);
        let handle = self.handle(file)?;
        let size = fs.attributes(handle.inode())?.size;
        let mut done = 0;
        while done < into.len() {
            match fs.read(handle, offset + done as u64, &mut into[done..])? {
                0 => break,
                read => done += read,
            }
        }
        Ok((size, done))
    }

    fn fsync(&mut self, file: u32) -> Result<(), Refused> {
        let fs = Arc::clone(&self.fs);
        fs.fsync(self.handle(file)?, false)?;
        self.background()
    }

    fn available(&mut self) -> Result<u64, Refused> {
        let sizes = self.fs.statfs()?;
        Ok(sizes.available * u64::from(sizes.block_size))
    }

    /// Nothing is remembered of contents: each read is one of the device.
    fn verify(&mut self) -> Result<(), Refused> {
        while self.fs.step()? == Step::Worked {}
        self.fs.sync()?;
        let wrong = |what: String| Refused::Other(what);
        let findings = self.fs.check()?;
        let unread = self.fs.extents().check_data(true).map_err(|error| wrong(error.to_string()))?;
        match findings.is_empty() && unread.is_empty() {
            true => Ok(()),
            false => Err(wrong(format!("the checker finds {findings:?} {unread:?}"))),
        }
    }

    fn regain(&mut self, _bytes: u64) -> Result<u64, Refused> {
        self.open.clear();
        while self.fs.step()? == Step::Worked {}
        self.fs.sync()?;
        self.available()
    }
}

//! The library on an emulated device, with one thread. Background steps are performed between operations.

use std::collections::HashMap;
use std::sync::Arc;

use emulated::{Emulated, Spec};
use fs::{Caller, Changes, FormatOptions, Fs, FsError, Handle, InodeNo, MountOptions, OpenFlags, Reserve};
use rt::random::Rng;
use rt::{ManualClock, Timestamp};
use tree::Step;
use zone::{Device, FsId};

use super::{Place, Refused};
use crate::caught::Wrong;

const WRITING: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

/// Directories that the files are spread over.
const DIRECTORIES: u32 = 8;
/// Limit for open handles.
const OPEN_MAX: usize = 64;

/// The options of a volume, and of its use.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The device.
    pub spec: Spec,
    /// Bytes of a page of metadata. The default of the device if `None`.
    pub page_size: Option<u32>,
    /// The reserve that data never gets.
    pub reserve: Reserve,
    /// Memory for metadata.
    pub cache_bytes: u64,
    /// Limit for background steps after an operation.
    pub steps_max: u32,
    /// Whether it is remounted before everything is verified.
    pub is_remounted: bool,
    /// After this many changes of the device within one operation, the operation has failed: it would never end.
    pub changes_max: Option<u64>,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Setup {
    /// The usual setup.
    pub fn usual(spec: Spec, reserve: Reserve, cache_bytes: u64, seed: u64) -> Self {
        Setup {
            spec,
            page_size: None,
            reserve,
            cache_bytes,
            steps_max: 2,
            is_remounted: false,
            changes_max: None,
            seed,
        }
    }

    /// The options for `mkfs`.
    pub fn format_options(&self) -> FormatOptions {
        FormatOptions {
            label: "long".to_owned(),
            fs_id: FsId([7; 16]),
            uid: 0,
            gid: 0,
            page_size: self.page_size,
            groups: None,
            reserve: self.reserve,
        }
    }
}

/// A volume on a device of its own.
pub struct Library {
    /// The mounted file system.
    pub fs: Arc<Fs>,
    setup: Setup,
    device: Arc<Emulated>,
    clock: Arc<ManualClock>,
    directories: Vec<InodeNo>,
    open: HashMap<u32, Handle>,
    rng: Rng,
    /// The most changes of the device within one operation.
    longest: u64,
}

impl Library {
    /// Makes and mounts a volume.
    pub fn new(setup: Setup) -> Result<Self, Wrong> {
        let clock = Arc::new(ManualClock::at(Timestamp(1_600_000_000_000_000_000)));
        let device = Arc::new(Emulated::new(setup.spec.clone()));
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        Fs::format(&shared, &setup.format_options(), clock.as_ref())
            .map_err(|error| Wrong::at("format", error))?;
        let fs = mount(&device, &clock, setup.cache_bytes)?;
        let make = |number: u32| {
            let made = fs.make_directory(&caller(), InodeNo::ROOT, format!("d{number}").as_bytes(), 0o755);
            made.map(|attributes| attributes.inode).map_err(|error| Wrong::at("make a directory", error))
        };
        let directories = (0..DIRECTORIES).map(make).collect::<Result<_, _>>()?;
        let rng = Rng::with_seed(setup.seed);
        Ok(Library { fs, setup, device, clock, directories, open: HashMap::new(), rng, longest: 0 })
    }

    /// Unmounts, mounts again, and checks.
    pub fn remount(&mut self) -> Result<(), Wrong> {
        self.bounded(|library| library.mount_anew().map_err(|wrong| Refused::Other(wrong.0)))
            .map_err(|refused| Wrong(refused.to_string()))
    }

    fn mount_anew(&mut self) -> Result<(), Wrong> {
        self.open.clear();
        self.fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
        self.device.reopen();
        self.fs = mount(&self.device, &self.clock, self.setup.cache_bytes)?;
        let findings = self.fs.check().map_err(|error| Wrong::at("check", error))?;
        if findings.is_empty() { Ok(()) } else { Err(Wrong(format!("the checker finds {findings:?}"))) }
    }

    /// The device, for its counts.
    pub fn device(&self) -> &Emulated {
        &self.device
    }

    /// The most changes of the device within one operation.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Runs work that may change the device this many times. Then the device fails, so that endless work ends.
    fn bounded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Refused>) -> Result<T, Refused> {
        let before = self.device.commands();
        if let Some(most) = self.setup.changes_max {
            self.device.lose_power_after(most);
        }
        let done = work(self);
        let changes = self.device.commands() - before;
        self.longest = self.longest.max(changes);
        match self.setup.changes_max {
            Some(most) if changes >= most => Err(Refused::Other(format!(
                "it had not come to an end after {changes} changes of the device"
            ))),
            _ => done,
        }
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

    /// The work that threads of the runtime would do meanwhile.
    fn background(&mut self) -> Result<(), Refused> {
        self.clock.advance(1_000_000);
        for _ in 0..self.rng.u32(0..=self.setup.steps_max) {
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

/// The operations of a place, without a limit for device changes.
impl Library {
    fn create_now(&mut self, file: u32) -> Result<(), Refused> {
        let (directory, name) = self.place(file);
        let (_, handle) = self.fs.create(&caller(), directory, &name, 0o644, WRITING, true)?;
        self.keep(file, handle);
        self.background()
    }

    fn write_now(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let fs = Arc::clone(&self.fs);
        let handle = self.handle(file)?;
        let mut done = 0;
        while done < bytes.len() {
            done += fs.write(handle, offset + done as u64, &bytes[done..])?;
        }
        self.background()
    }

    fn truncate_now(&mut self, file: u32, size: u64) -> Result<(), Refused> {
        let inode = self.handle(file)?.inode();
        let changes = Changes { size: Some(size), ..Changes::default() };
        self.fs.set_attributes(&caller(), inode, &changes)?;
        self.background()
    }

    fn remove_now(&mut self, file: u32) -> Result<(), Refused> {
        self.open.remove(&file);
        let (directory, name) = self.place(file);
        self.fs.unlink(&caller(), directory, &name)?;
        self.background()
    }

    fn read_now(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused> {
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

    fn fsync_now(&mut self, file: u32) -> Result<(), Refused> {
        let fs = Arc::clone(&self.fs);
        fs.fsync(self.handle(file)?, false)?;
        self.background()
    }

    fn available_now(&mut self) -> Result<u64, Refused> {
        let sizes = self.fs.statfs()?;
        Ok(sizes.available * u64::from(sizes.block_size))
    }

    fn verify_now(&mut self) -> Result<(), Refused> {
        if self.setup.is_remounted {
            self.mount_anew().map_err(|wrong| Refused::Other(wrong.0))?;
        }
        while self.fs.step()? == Step::Worked {}
        self.fs.sync()?;
        let wrong = |what: String| Refused::Other(what);
        let findings = self.fs.check()?;
        let unread = extent::check_data(self.fs.extents(), true).map_err(|error| wrong(error.to_string()))?;
        match findings.is_empty() && unread.is_empty() {
            true => Ok(()),
            false => Err(wrong(format!("the checker finds {findings:?} {unread:?}"))),
        }
    }

    fn regain_now(&mut self) -> Result<u64, Refused> {
        self.open.clear();
        while self.fs.step()? == Step::Worked {}
        self.fs.sync()?;
        self.available_now()
    }
}

impl Place for Library {
    fn create(&mut self, file: u32) -> Result<(), Refused> {
        self.bounded(|library| library.create_now(file))
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.bounded(|library| library.write_now(file, offset, bytes))
    }

    fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused> {
        self.bounded(|library| library.truncate_now(file, size))
    }

    fn remove(&mut self, file: u32) -> Result<(), Refused> {
        self.bounded(|library| library.remove_now(file))
    }

    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused> {
        self.bounded(|library| library.read_now(file, offset, into))
    }

    fn fsync(&mut self, file: u32) -> Result<(), Refused> {
        self.bounded(|library| library.fsync_now(file))
    }

    fn available(&mut self) -> Result<u64, Refused> {
        self.bounded(Library::available_now)
    }

    /// Contents are not cached: each read reaches the device.
    fn verify(&mut self) -> Result<(), Refused> {
        self.bounded(Library::verify_now)
    }

    fn regain(&mut self, _bytes: u64) -> Result<u64, Refused> {
        self.bounded(Library::regain_now)
    }
}

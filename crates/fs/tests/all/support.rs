//! A volume for tests of the public API.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use fs::{Caller, FormatOptions, Fs, FsError, Handle, InodeNo, MountOptions, OpenFlags};
use rt::{ManualClock, Timestamp};
use tree::Step;

pub(crate) const READ_WRITE: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };
pub(crate) const READ: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, sync: false };

/// Pieces of background work that `settle` does at most.
const STEPS_MAX: usize = 1 << 17;

/// A mounted volume on an emulated device, used by root.
pub(crate) struct Volume {
    pub(crate) device: Arc<Emulated>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) fs: Arc<Fs>,
}

impl Volume {
    pub(crate) fn new() -> Self {
        Self::on(Spec::new(4096, 40, 256))
    }

    pub(crate) fn on(spec: Spec) -> Self {
        Self::with_reserve(spec, fs::Reserve::default())
    }

    pub(crate) fn with_reserve(spec: Spec, reserve: fs::Reserve) -> Self {
        let device = Arc::new(Emulated::new(spec));
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000_000)));
        let options = FormatOptions {
            label: "story".into(),
            fs_id: zone::FsId([5; 16]),
            uid: 0,
            gid: 0,
            page_size: None,
            groups: Some(4),
            reserve,
        };
        let shared: Arc<dyn zone::Device> = device.clone();
        Fs::format(&shared, &options, &*clock).expect("an empty device can be formatted");
        let fs = mount(&device, &clock, false);
        Volume { device, clock, fs }
    }

    /// Unmounts, checks, mounts again.
    pub(crate) fn remount(self) -> Self {
        self.fs.unmount().expect("a sound volume unmounts");
        self.kill()
    }

    /// Mounts again without an unmount, as after a killed process.
    pub(crate) fn kill(self) -> Self {
        let Volume { device, clock, fs } = self;
        drop(fs);
        device.reopen();
        let fs = mount(&device, &clock, false);
        Volume { device, clock, fs }
    }

    /// Finishes the background work, and then checks the volume.
    pub(crate) fn settle_and_check(&self) {
        self.settle();
        let findings = self.fs.check().expect("the checker can read the volume");
        assert_eq!(findings, [], "the volume is sound");
    }

    pub(crate) fn settle(&self) {
        let works = |_: &usize| self.fs.step().expect("background work succeeds") == Step::Worked;
        assert!((0..STEPS_MAX).take_while(works).count() < STEPS_MAX, "background work ends");
    }

    pub(crate) fn file(&self, parent: InodeNo, name: &str) -> Handle {
        let flags = READ_WRITE;
        let made = self.fs.create(&Caller::root(), parent, name.as_bytes(), 0o644, flags, true);
        made.expect("the file can be made").1
    }

    pub(crate) fn directory(&self, parent: InodeNo, name: &str) -> InodeNo {
        let made = self.fs.make_directory(&Caller::root(), parent, name.as_bytes(), 0o755);
        made.expect("the directory can be made").inode
    }

    pub(crate) fn find(&self, parent: InodeNo, name: &str) -> Result<InodeNo, FsError> {
        Ok(self.fs.lookup(&Caller::root(), parent, name.as_bytes())?.inode)
    }

    pub(crate) fn open(&self, inode: InodeNo) -> Handle {
        self.fs.open(&Caller::root(), inode, READ_WRITE).expect("root may open anything")
    }

    pub(crate) fn unlink(&self, parent: InodeNo, name: &str) -> Result<(), FsError> {
        self.fs.unlink(&Caller::root(), parent, name.as_bytes())
    }

    pub(crate) fn write(&self, handle: &Handle, offset: u64, data: &[u8]) {
        let written = self.fs.write(handle, offset, data).expect("there is space");
        assert_eq!(written, data.len());
    }

    /// The whole contents.
    pub(crate) fn contents(&self, handle: &Handle) -> Vec<u8> {
        let size = self.fs.attributes(handle.inode()).expect("an open inode exists").size;
        let mut bytes = vec![0xee; size as usize + 10];
        let read = self.fs.read(handle, 0, &mut bytes).expect("the file can be read");
        bytes.truncate(read);
        bytes
    }

    pub(crate) fn names(&self, inode: InodeNo) -> Vec<String> {
        let mut names = self.names_in_order(inode);
        names.sort();
        names
    }

    /// In the order of a listing.
    pub(crate) fn names_in_order(&self, inode: InodeNo) -> Vec<String> {
        let handle = self.fs.open(&Caller::root(), inode, READ).expect("the directory exists");
        let mut names = Vec::new();
        let mut each = |entry: fs::DirEntry| {
            names.push(String::from_utf8(entry.name).expect("stories use plain names"));
            true
        };
        self.fs.read_directory(&handle, 2, &mut each).expect("the directory can be read");
        names
    }
}

pub(crate) fn mount(device: &Arc<Emulated>, clock: &Arc<ManualClock>, read_only: bool) -> Arc<Fs> {
    mount_any(device.clone(), clock, read_only)
}

/// Mounts a volume on a device that is not emulated, or not only.
pub(crate) fn mount_any(device: Arc<dyn zone::Device>, clock: &Arc<ManualClock>, read_only: bool) -> Arc<Fs> {
    let options = MountOptions {
        cache_bytes: 4 << 20,
        read_only,
        commit_interval_ns: 5_000_000_000,
        clock: clock.clone(),
    };
    Fs::mount(device, options).expect("the volume can be mounted").0
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

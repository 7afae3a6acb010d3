//! A small volume in a temporary directory, which the tests own or are attached to.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polder::{CreateOptions, Error, File, FsError, Result, Volume, VolumeOptions};
use tempfile::TempDir;

/// Bytes of a volume.
pub(crate) const SIZE: u64 = 64 << 20;

/// If this variable is set, the volumes of [`volume`] are attached ones.
pub(crate) const ATTACHED: &str = "POLDER_TEST_ATTACHED";

/// The directory of a volume.
pub(crate) struct Bench {
    /// Only if the tests are attached.
    owner: Option<Volume>,
    place: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { owner: None, place: tempfile::tempdir().unwrap() }
    }

    /// A new volume that is attached to its owner.
    pub(crate) fn attached() -> (Bench, Volume) {
        let mut bench = Bench::new();
        bench.owner = Some(bench.create().open().unwrap());
        let volume = bench.open();
        assert!(volume.is_attached());
        (bench, volume)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.place.path().join("volume")
    }

    pub(crate) fn create(&self) -> CreateOptions {
        Volume::create(self.path()).size(SIZE)
    }

    pub(crate) fn open(&self) -> Volume {
        Volume::open(self.path()).unwrap()
    }

    /// The owner of an attached volume.
    pub(crate) fn owner(&self) -> &Volume {
        self.owner.as_ref().unwrap()
    }

    /// Why this process cannot own the volume.
    pub(crate) fn refusal(&self) -> Option<Error> {
        VolumeOptions::new().attach(false).open(self.path()).err()
    }
}

/// A new volume that is open.
pub(crate) fn volume() -> (Bench, Volume) {
    if std::env::var_os(ATTACHED).is_some() {
        return Bench::attached();
    }
    let bench = Bench::new();
    let volume = bench.create().open().unwrap();
    (bench, volume)
}

/// Opens or creates a file for reading and writing.
pub(crate) fn file(volume: &Volume, path: &str) -> File {
    volume.options().read(true).write(true).create(true).open(path).unwrap()
}

/// The cause of an error of an operation.
pub(crate) fn cause<T>(result: Result<T>) -> FsError {
    match result.map(drop) {
        Err(Error::Path { cause, .. } | Error::Operation(cause)) => cause,
        other => panic!("not the error of an operation: {other:?}"),
    }
}

/// The names in a directory, in order.
pub(crate) fn listed(volume: &Volume, path: &str) -> Vec<String> {
    let names = volume.read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits until a condition holds that another thread makes true soon.
pub(crate) fn until(holds: impl Fn() -> bool) {
    let pause = rt::thread::Stop::default();
    assert!((0..6000).any(|_| holds() || pause.wait(Duration::from_millis(5))), "it never holds");
}

/// The socket of the owner of a volume.
pub(crate) fn socket(volume: &Path) -> PathBuf {
    let found = std::fs::metadata(volume).unwrap();
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    polder::runtime::directory().join(format!("file.{major}:{minor}.{}.attach", found.ino()))
}

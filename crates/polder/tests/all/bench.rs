//! A small volume in a temporary directory.

use std::path::PathBuf;

use polder::{CreateOptions, Error, File, FsError, Result, Volume};
use tempfile::TempDir;

/// Bytes of a volume.
pub(crate) const SIZE: u64 = 64 << 20;

/// The directory of a volume.
pub(crate) struct Bench {
    place: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { place: tempfile::tempdir().unwrap() }
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
}

/// A new volume that is open.
pub(crate) fn volume() -> (Bench, Volume) {
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

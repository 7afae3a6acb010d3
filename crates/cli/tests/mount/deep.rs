//! What lies deeper than a path can be long: a program that goes down step by step can make it, so the commands must be
//! able to save it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat};

use crate::bench_or_skip;

const NAME: &str = "a level with a name of fifty bytes, and many of it";
/// All their names are longer than 4096 bytes together.
const LEVELS: usize = 120;

fn directory(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).unwrap()
}

/// The directory below all levels.
fn deepest(root: &Path) -> OwnedFd {
    (0..LEVELS).fold(directory(root), |at, _| {
        openat(&at, NAME, OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).unwrap()
    })
}

fn file(within: &OwnedFd, name: &str) -> File {
    File::from(openat(within, name, OFlags::RDONLY, Mode::empty()).unwrap())
}

fn make(root: &Path) {
    let mut at = directory(root);
    for _ in 0..LEVELS {
        mkdirat(&at, NAME, Mode::RWXU).unwrap();
        at = openat(&at, NAME, OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).unwrap();
    }
    for name in ["precious", "found here first", "alone"] {
        let made = openat(&at, name, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR | Mode::WUSR).unwrap();
        File::from(made).write_all_at(&[7; 10_000], 0).unwrap();
    }
    // Names of one file on both sides of the limit, of which either may come first.
    let root = directory(root);
    linkat(&at, "found here first", &root, "z, found later", AtFlags::empty()).unwrap();
    linkat(&at, "precious", &root, "Z, found first", AtFlags::empty()).unwrap();
}

fn verify(root: &Path) {
    let (top, below) = (directory(root), deepest(root));
    for (here, there) in [("found here first", "z, found later"), ("precious", "Z, found first")] {
        let (mut one, other) = (file(&below, here), file(&top, there));
        let mut bytes = Vec::new();
        one.read_to_end(&mut bytes).unwrap();
        assert!(bytes == [7; 10_000], "{} has other contents in {}", here, root.display());
        let is_same = one.metadata().unwrap().ino() == other.metadata().unwrap().ino();
        assert!(is_same, "{there} is another name of the same file in {}", root.display());
    }
}

#[test]
fn what_lies_deeper_than_a_path_is_long_is_copied_and_salvaged() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    make(&mounted.root());
    verify(&mounted.root());
    let root = mounted.root();
    let told = bench.succeed(&["fragments", root.to_str().unwrap()]);
    assert!(told.lines().any(|line| line.contains("/alone: ")), "a file deep below is not told");
    bench.succeed(&["defrag", root.to_str().unwrap()]);
    bench.succeed(&["umount", root.to_str().unwrap()]);
    drop(mounted);
    bench.check();
    let volume = bench.volume();
    let [copied, saved] = ["copied", "saved"].map(|name| volume.with_file_name(name));
    let volume = volume.to_str().unwrap();
    bench.succeed(&["cp", "-r", volume, "/", copied.to_str().unwrap()]);
    verify(&copied);
    bench.succeed(&["salvage", volume, saved.to_str().unwrap()]);
    verify(&saved);
    let told = bench.succeed(&["fragments", volume, "/"]);
    assert!(told.lines().any(|line| line.contains("/alone: ")), "a file deep below is not told");
}

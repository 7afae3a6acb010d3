//! Files so deep that their paths exceed the limit of the system. A program can create them step by step, so the commands
//! must be able to save them.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat};

use crate::bench_or_skip;

const NAME: &str = "a level with a name of fifty bytes, and many of it";
/// All names together are longer than 4096 bytes.
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
    // Names of the same file above and below the limit. Either may be found first.
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
fn files_deeper_than_the_longest_path_are_copied_and_salvaged() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    make(&mounted.root());
    verify(&mounted.root());
    let root = mounted.root();
    let output = bench.succeed(&["fragments", root.to_str().unwrap()]);
    assert!(output.lines().any(|line| line.contains("/alone: ")), "a deep file is not listed");
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
    let output = bench.succeed(&["fragments", volume, "/"]);
    assert!(output.lines().any(|line| line.contains("/alone: ")), "a deep file is not listed");
}

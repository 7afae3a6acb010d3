//! The kernel's caches of files and directories, which must not show an old state.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::RawDir;

use crate::bench_or_skip;

/// A listing of a directory in small steps.
struct Listing {
    directory: File,
    seen: BTreeMap<String, usize>,
}

impl Listing {
    /// The buffer is so small that a listing of hundreds of names needs many steps.
    const STEP_BYTES: usize = 2048;

    fn begin(path: &Path) -> Listing {
        let mut listing = Listing { directory: File::open(path).unwrap(), seen: BTreeMap::new() };
        assert!(listing.step(), "a directory has entries");
        listing
    }

    /// Reads the next entries. Returns false at the end.
    fn step(&mut self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); Self::STEP_BYTES];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        let mut count = 0;
        // A step is one system call.
        while count == 0 || !entries.is_buffer_empty() {
            let Some(entry) = entries.next() else { break };
            *self.seen.entry(entry.unwrap().file_name().to_str().unwrap().to_owned()).or_default() += 1;
            count += 1;
        }
        count > 0
    }

    fn finish(mut self) -> BTreeMap<String, usize> {
        while self.step() {}
        self.seen
    }
}

/// Two processes listed a directory that a third one changed. The first listing filled the kernel's cache with the
/// old beginning of the directory and its new end. The second listing began after the change and continued from that
/// cache: names that had existed before it began were missing, and names that had been removed were there.
#[test]
fn a_listing_shows_every_change_that_was_made_before_it_began() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let directory = mounted.path("directory");
    fs::create_dir(&directory).unwrap();
    let make = |name: &str| drop(File::create_new(directory.join(name)).unwrap());
    (0..400).for_each(|number| make(&format!("stays {number}")));
    for round in 0..10 {
        let [removed, made] =
            ["removed", "made"].map(|kind| (0..100).map(move |number| format!("{kind} {round} {number}")));
        removed.clone().for_each(|name| make(&name));
        let early = Listing::begin(&directory);
        made.clone().for_each(|name| make(&name));
        removed.clone().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
        let late = Listing::begin(&directory);
        let (early, late) = (early.finish(), late.finish());
        for number in 0..400 {
            let name = format!("stays {number}");
            assert_eq!((early.get(&name), late.get(&name)), (Some(&1), Some(&1)), "{name} in round {round}");
        }
        made.for_each(|name| assert_eq!(late.get(&name), Some(&1), "{name} was made before"));
        removed.for_each(|name| assert_eq!(late.get(&name), None, "{name} was removed before"));
    }
    mounted.umount();
    bench.check();
}

/// Builds a C program, because its system calls need `unsafe` code in Rust. Uses the compiler that links Rust programs.
fn build(source: &str, into: &Path) -> PathBuf {
    let program = into.join("program");
    fs::write(into.join("program.c"), source).unwrap();
    let output = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &into.join("program.c")])
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs a program, which must succeed without output.
fn succeed(program: &Path, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said));
}

/// Pages that were read during a direct write kept the old contents until the kernel reclaimed them. Buffered reads of the
/// file did not see the data that a database had written.
#[test]
fn buffered_reads_see_asynchronous_direct_writes() {
    let bench = bench_or_skip!();
    let elsewhere = tempfile::tempdir().unwrap();
    let program = build(include_str!("programs/direct_writes.c"), elsewhere.path());
    let mounted = bench.mount(&[]);
    let file = mounted.path("file");
    for reader in ["read", "map", "map-direct"] {
        succeed(&program, &[file.to_str().unwrap(), reader]);
    }
    mounted.umount();
    bench.check();
}

/// Bytes that a program had stored beyond the end of a file, through a mapping of its last page, became part of the file when
/// the file grew.
#[test]
fn bytes_stored_beyond_the_end_are_zeros_when_a_file_grows() {
    let bench = bench_or_skip!();
    let elsewhere = tempfile::tempdir().unwrap();
    let program = build(include_str!("programs/beyond_end.c"), elsewhere.path());
    let mounted = bench.mount(&[]);
    succeed(&program, &[mounted.path("file").to_str().unwrap()]);
    mounted.umount();
    bench.check();
}

/// An answer that extends a file waited for a thread that waited for a write of the same file. The kernel does not send this
/// write before the answer. The deadlock blocked all syncs, and the daemon did not end.
#[test]
fn a_file_can_grow_while_it_is_written_back() {
    let bench = bench_or_skip!();
    let elsewhere = tempfile::tempdir().unwrap();
    let program = build(include_str!("programs/growing.c"), elsewhere.path());
    let mounted = bench.mount(&[]);
    for other in ["sync", "direct"] {
        let mut running = Command::new(&program).arg(mounted.path(other)).arg(other).spawn().unwrap();
        let waiting = rt::thread::Stop::default();
        let ended = (0..12_000).find_map(|_| {
            let ended = running.try_wait().unwrap();
            if ended.is_none() {
                waiting.wait(Duration::from_millis(5));
            }
            ended
        });
        let Some(status) = ended else {
            bench.polder(&["umount", "--force", mounted.root().to_str().unwrap()]);
            running.wait().unwrap();
            panic!("{other}: not done after a minute");
        };
        assert!(status.success(), "{other}");
    }
    mounted.umount();
    bench.check();
}

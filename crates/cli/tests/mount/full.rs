//! A full volume behind the kernel's cache.
//!
//! The kernel accepts writes without asking whether they fit. `close` reported the error, but `stat` and `read` showed the
//! lost data until the next mount: 520 of 10,000 files were shorter after a remount.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::bench::names;
use crate::{Bench, Mounted, bench_or_skip};

const LEFT: u64 = 6 << 20;
const TOO_MUCH: usize = 24 << 20;

#[test]
fn data_that_did_not_fit_are_not_visible_after_close() {
    let bench = bench_or_skip!();
    let mounted = nearly_full(&bench);
    let path = mounted.path("large");
    assert_eq!(write_and_close(&path, TOO_MUCH), Some(Errno::NOSPC), "`close` reports it");
    for number in 0..200 {
        write_and_close(&mounted.path(&format!("small-{number}")), 3000 + number);
    }
    await_that("the kernel forgets the size that it gave the file", || {
        fs::metadata(&path).unwrap().len() < TOO_MUCH as u64
    });
    let shown = await_same(&mounted);
    mounted.umount();
    let mounted = bench.mount(&[]);
    assert_eq!(contents(&mounted.root()), shown);
    mounted.umount();
    bench.check();
}

/// Another program that reads the file keeps it in the kernel's cache until it closes the file.
#[test]
fn a_reader_delays_the_true_size_and_does_not_prevent_it() {
    let bench = bench_or_skip!();
    let mounted = nearly_full(&bench);
    let path = mounted.path("large");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; TOO_MUCH]).unwrap();
    let reader = File::open(&path).unwrap();
    assert!(file.sync_all().is_err());
    drop(file);
    await_that("the reader sees nothing that was not stored", || {
        let stored = fs::read(&path).unwrap();
        stored.iter().rev().take(1 << 20).all(|&byte| byte == 0)
    });
    drop(reader);
    await_that("the kernel forgets the size that it gave the file", || {
        fs::metadata(&path).unwrap().len() < TOO_MUCH as u64
    });
    mounted.umount();
    bench.check();
}

/// `polder sync` failed because of lost data of a deleted file.
#[test]
fn lost_data_of_a_deleted_file_do_not_fail_a_sync() {
    let bench = bench_or_skip!();
    let mounted = nearly_full(&bench);
    let root = mounted.root();
    let sync = ["sync", root.to_str().unwrap()];
    for is_deleted_first in [false, true] {
        let path = mounted.path("large");
        let mut file = File::create(&path).unwrap();
        // The kernel may ask the daemon, and refuse a write that does not fit.
        let written = file.write_all(&vec![7; TOO_MUCH]);
        if is_deleted_first {
            fs::remove_file(&path).unwrap();
        }
        let synced = file.sync_all();
        assert!(written.is_err() || synced.is_err(), "the program gets an error");
        if !is_deleted_first {
            let said = bench.fail(1, &sync);
            assert!(said.contains("written back"), "the file exists and lacks data: {said}");
            fs::remove_file(&path).unwrap();
        }
        bench.succeed(&sync);
        let _ = file.sync_all();
        bench.succeed(&sync);
        // The next sync writes its dirty pages back, and they do not fit.
        let _ = file.write_all(&vec![8; TOO_MUCH]);
        bench.succeed(&sync);
        drop(file);
    }
    mounted.umount();
    bench.check();
}

fn nearly_full(bench: &Bench) -> Mounted<'_> {
    let mounted = bench.mount(&[]);
    let fill = File::create(mounted.path("fill")).unwrap();
    let space = statvfs(mounted.root()).unwrap();
    fallocate(&fill, FallocateFlags::empty(), 0, space.f_bavail * space.f_frsize - LEFT).unwrap();
    mounted
}

/// Writes through the kernel's cache. Returns the first error, including that of `close`.
fn write_and_close(path: &Path, bytes: usize) -> Option<Errno> {
    let mut file = match File::create(path) {
        Ok(file) => file,
        Err(error) => return Errno::from_io_error(&error),
    };
    let written = file.write_all(&vec![7; bytes]).err().and_then(|error| Errno::from_io_error(&error));
    let closed = nix::unistd::close(file).err().map(|error| Errno::from_raw_os_error(error as i32));
    written.or(closed)
}

/// The files in the mount, as soon as two listings of them are equal.
fn await_same(mounted: &Mounted<'_>) -> BTreeMap<String, Vec<u8>> {
    let mut shown = contents(&mounted.root());
    await_that("the kernel shows the same twice", || {
        let before = std::mem::replace(&mut shown, contents(&mounted.root()));
        before == shown
    });
    shown
}

/// Names and contents of the files.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    names(directory).into_iter().map(|name| (name.clone(), fs::read(directory.join(name)).unwrap())).collect()
}

fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = rt::thread::Stop::default();
    let came = (0..2000).any(|_| condition() || waiting.wait(Duration::from_millis(5)));
    assert!(came, "within ten seconds: {what}");
}

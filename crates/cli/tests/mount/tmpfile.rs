//! Files without a name (`O_TMPFILE`, from kernel 6.1 on) and the birth time (from 6.6 on).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::bench::names;
use crate::{Mounted, bench_or_skip};

/// Opens a new file without a name in a directory.
fn open_tmpfile(directory: &Path, more: OFlags) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    rustix::fs::open(directory, flags, Mode::from_raw_mode(0o640)).unwrap().into()
}

/// Gives an open file a name.
fn link(file: &File, path: &Path) -> Result<(), Errno> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

fn statx(path: &Path) -> Statx {
    rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::ALL).unwrap()
}

fn available_bytes(mounted: &Mounted<'_>) -> u64 {
    let space = rustix::fs::statvfs(mounted.root()).unwrap();
    space.f_bavail * space.f_frsize
}

/// Waits until about as much space is available as `before`. Returns whether this happens in time.
fn is_freed(mounted: &Mounted<'_>, before: u64) -> bool {
    let waiting = rt::thread::Stop::default();
    let is_free = || available_bytes(mounted) + (1 << 20) >= before;
    (0..2000).any(|_| is_free() || waiting.wait(Duration::from_millis(5)))
}

#[test]
fn a_file_without_a_name_can_get_one_and_is_stored() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let mut file = open_tmpfile(&mounted.root(), OFlags::empty());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(names(&mounted.root()), [""; 0]);
    file.write_all(&vec![b'x'; 300_000]).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    let mut whole = vec![0; 300_000];
    file.read_exact_at(&mut whole, 0).unwrap();
    assert!(whole.starts_with(b"beginxxx"));
    link(&file, &mounted.path("name")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(link(&file, &mounted.path("name")), Err(Errno::EXIST));
    link(&file, &mounted.path("second")).unwrap();
    assert_eq!(fs::metadata(mounted.path("name")).unwrap().nlink(), 2);
    // Writes through the handle after the link belong to the file too.
    file.write_all(b"end").unwrap();
    drop(file);
    mounted.umount();
    bench.check();

    let mounted = bench.mount(&[]);
    assert_eq!(names(&mounted.root()), ["name", "second"]);
    let mut read = Vec::new();
    File::open(mounted.path("name")).unwrap().read_to_end(&mut read).unwrap();
    assert!(read.len() == 300_003 && read.starts_with(b"beginxxx") && read.ends_with(b"xend"));
    assert_eq!(fs::metadata(mounted.path("second")).unwrap().mode() & 0o7777, 0o640);
    mounted.umount();
}

#[test]
fn a_file_opened_with_excl_cannot_get_a_name() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let file = open_tmpfile(&mounted.root(), OFlags::EXCL);
    file.write_all_at(b"private", 0).unwrap();
    assert_eq!(link(&file, &mounted.path("name")), Err(Errno::NOENT));
    // A file that lost its last name cannot get a new one either.
    fs::write(mounted.path("other"), "contents").unwrap();
    let other = File::open(mounted.path("other")).unwrap();
    fs::remove_file(mounted.path("other")).unwrap();
    assert_eq!(link(&other, &mounted.path("name")), Err(Errno::NOENT));
    assert_eq!(names(&mounted.root()), [""; 0]);
    drop((file, other));
    mounted.umount();
    bench.check();
}

/// A file that had been looked up and was then replaced by a rename returned `ESTALE`: to programs that opened or truncated
/// it in that moment, and to every reader of a file that was bind-mounted.
#[test]
fn a_replaced_file_that_was_looked_up_can_still_be_opened() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let before = available_bytes(&mounted);
    for length in [100, 8 << 20] {
        let path = mounted.path("file");
        fs::write(&path, vec![b'1'; length]).unwrap();
        let known = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        fs::write(mounted.path("new"), "2").unwrap();
        fs::rename(mounted.path("new"), &path).unwrap();
        let found = format!("/proc/self/fd/{}", known.as_raw_fd());
        assert_eq!(fs::read(&found).unwrap(), vec![b'1'; length]);
        rustix::fs::setxattr(&found, "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
        File::options().append(true).open(&found).unwrap().write_all(b"more").unwrap();
        assert_eq!(fs::metadata(&found).unwrap().len(), length as u64 + 4);
        assert_eq!(fs::read(&path).unwrap(), b"2");
    }
    assert!(is_freed(&mounted, before), "the file is deleted when it is not referenced any more");
    mounted.umount();
    bench.check();
}

#[test]
fn a_file_that_never_had_a_name_leaves_nothing() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::create_dir(mounted.path("directory")).unwrap();
    let before = available_bytes(&mounted);
    let mut held = Vec::new();
    for _ in 0..20 {
        let file = open_tmpfile(&mounted.path("directory"), OFlags::empty());
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        held.push(file);
    }
    assert!(available_bytes(&mounted) + (15 << 20) < before, "they take space");
    drop(held);
    fs::remove_dir(mounted.path("directory")).unwrap();
    assert!(is_freed(&mounted, before));
    mounted.umount();
    bench.check();

    // The same if the daemon was killed, so that the files were not closed.
    let mounted = bench.mount(&[]);
    let file = open_tmpfile(&mounted.root(), OFlags::empty());
    file.write_all_at(&vec![2; 8 << 20], 0).unwrap();
    file.sync_all().unwrap();
    mounted.daemon().kill();
    drop((file, mounted));
    let mounted = bench.mount(&[]);
    assert!(is_freed(&mounted, before), "the next mount deletes them by itself");
    assert_eq!(names(&mounted.root()), [""; 0]);
    mounted.umount();
    bench.check();
}

#[test]
fn the_birth_time_is_reported_and_does_not_change() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    fs::write(&path, "first").unwrap();
    let born = statx(&path);
    assert!(born.stx_mask & StatxFlags::BTIME.bits() != 0, "the birth time is reported");
    assert!(born.stx_btime.tv_sec > 1_500_000_000);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    file.write_all_at(b"second", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename(&path, mounted.path("moved")).unwrap();
    let same = |now: &Statx| {
        (now.stx_btime.tv_sec, now.stx_btime.tv_nsec) == (born.stx_btime.tv_sec, born.stx_btime.tv_nsec)
    };
    let now = statx(&mounted.path("moved"));
    assert!(same(&now) && now.stx_size == 6);
    let created = fs::metadata(mounted.path("moved")).unwrap().created().unwrap();
    assert!(created > std::time::UNIX_EPOCH);
    assert!(statx(&mounted.root()).stx_btime.tv_sec > 1_500_000_000);
    // The answer of the daemon equals the answer from the kernel's cache.
    let plain = rustix::fs::stat(mounted.path("moved")).unwrap();
    assert_eq!((now.stx_ino, now.stx_nlink), (plain.st_ino, 1));
    assert_eq!((u32::from(now.stx_mode), now.stx_uid), (plain.st_mode, plain.st_uid));
    mounted.umount();
    let mounted = bench.mount(&[]);
    assert!(same(&statx(&mounted.path("moved"))), "the birth time is stored");
    mounted.umount();
    bench.check();
}

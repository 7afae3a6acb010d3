//! Files without a name (`O_TMPFILE`), and the time of birth: what kernels pass on from 6.1 and 6.6 on.

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

/// A file in a directory, without a name.
fn nameless(directory: &Path, more: OFlags) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    rustix::fs::open(directory, flags, Mode::from_raw_mode(0o640)).unwrap().into()
}

/// Gives what is open a name.
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

/// Waits until about as much is available as was `before`.
fn comes_free(mounted: &Mounted<'_>, before: u64) -> bool {
    let waiting = rt::thread::Stop::default();
    let is_free = || available_bytes(mounted) + (1 << 20) >= before;
    (0..2000).any(|_| is_free() || waiting.wait(Duration::from_millis(5)))
}

#[test]
fn a_file_without_a_name_is_given_one_and_kept() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let mut file = nameless(&mounted.root(), OFlags::empty());
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
    // What was written through it after it had a name is its too.
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
fn a_file_that_may_have_no_name_gets_none() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let file = nameless(&mounted.root(), OFlags::EXCL);
    file.write_all_at(b"private", 0).unwrap();
    assert_eq!(link(&file, &mounted.path("name")), Err(Errno::NOENT));
    // Nor one that lost the name it had.
    fs::write(mounted.path("other"), "contents").unwrap();
    let other = File::open(mounted.path("other")).unwrap();
    fs::remove_file(mounted.path("other")).unwrap();
    assert_eq!(link(&other, &mounted.path("name")), Err(Errno::NOENT));
    assert_eq!(names(&mounted.root()), [""; 0]);
    drop((file, other));
    mounted.umount();
    bench.check();
}

/// Who had looked a file up found it `ESTALE` when another had replaced it by renaming: programs that opened or
/// truncated it in that moment, and everybody who read a file that was mounted by itself.
#[test]
fn who_has_looked_a_file_up_finds_it_after_it_was_replaced() {
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
    assert!(comes_free(&mounted, before), "when nobody knows it any more it is gone");
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
        let file = nameless(&mounted.path("directory"), OFlags::empty());
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        held.push(file);
    }
    assert!(available_bytes(&mounted) + (15 << 20) < before, "they take space");
    drop(held);
    fs::remove_dir(mounted.path("directory")).unwrap();
    assert!(comes_free(&mounted, before));
    mounted.umount();
    bench.check();

    // And when nobody was there any more to close it.
    let mounted = bench.mount(&[]);
    let file = nameless(&mounted.root(), OFlags::empty());
    file.write_all_at(&vec![2; 8 << 20], 0).unwrap();
    file.sync_all().unwrap();
    mounted.daemon().kill();
    drop((file, mounted));
    let mounted = bench.mount(&[]);
    assert!(comes_free(&mounted, before), "the next one does it without being asked");
    assert_eq!(names(&mounted.root()), [""; 0]);
    mounted.umount();
    bench.check();
}

#[test]
fn the_time_of_birth_is_shown_and_stays() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    fs::write(&path, "first").unwrap();
    let born = statx(&path);
    assert!(born.stx_mask & StatxFlags::BTIME.bits() != 0, "it is told");
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
    // What is asked of the daemon is what `stat` tells from what the kernel remembers.
    let plain = rustix::fs::stat(mounted.path("moved")).unwrap();
    assert_eq!((now.stx_ino, now.stx_nlink), (plain.st_ino, 1));
    assert_eq!((u32::from(now.stx_mode), now.stx_uid), (plain.st_mode, plain.st_uid));
    mounted.umount();
    let mounted = bench.mount(&[]);
    assert!(same(&statx(&mounted.path("moved"))), "it is kept");
    mounted.umount();
    bench.check();
}

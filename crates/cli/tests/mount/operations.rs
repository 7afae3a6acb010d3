//! File operations through the kernel in which the kernel's cache and the daemon must agree.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use rt::Clock;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::bench::names;
use crate::bench_or_skip;

#[test]
fn appending_and_overwriting_parts_of_pages() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    fs::write(&path, vec![b'a'; 10_000]).unwrap();
    // The file is not open for reading, but the kernel must read the bytes around the written ones.
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    rustix::fs::fadvise(&writer, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    writer.write_all_at(b"bbb", 5000).unwrap();
    let mut appender = OpenOptions::new().append(true).open(&path).unwrap();
    appender.write_all(b"ccc").unwrap();
    drop((writer, appender));
    let mut expected = vec![b'a'; 10_000];
    expected[5000..5003].copy_from_slice(b"bbb");
    expected.extend(b"ccc");
    assert!(fs::read(&path).unwrap() == expected);
    // After a truncation and an extension, the bytes are zeros.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(5001).unwrap();
    file.set_len(9000).unwrap();
    expected.truncate(5001);
    expected.resize(9000, 0);
    assert!(fs::read(&path).unwrap() == expected);
    drop(File::create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    drop(file);
    let again = remounted(mounted);
    assert_eq!(fs::metadata(again.path("file")).unwrap().len(), 0);
    again.umount();
    bench.check();
}

#[test]
fn direct_writes_and_cached_reads_agree() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    fs::write(&path, vec![1; 64 << 10]).unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), 64 << 10);
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(&path).unwrap();
    let buffer = vec![2; 8192];
    let aligned = buffer.as_ptr().align_offset(4096);
    let page = &buffer[aligned..aligned + 4096];
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    file.write_all_at(page, 8192).unwrap();
    assert!(file.metadata().unwrap().modified().unwrap() > std::time::UNIX_EPOCH);
    let read = fs::read(&path).unwrap();
    assert!(read[8192..12288].iter().all(|&byte| byte == 2));
    assert!(read[12288..].iter().all(|&byte| byte == 1));
    drop(file);
    mounted.umount();
    bench.check();
}

#[test]
fn seek_hole_sees_dirty_pages() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let file = File::create_new(mounted.path("sparse")).unwrap();
    let block = vec![3; 4096];
    file.write_all_at(&block, 1 << 20).unwrap();
    file.write_all_at(&block, 3 << 20).unwrap();
    let data = |from| rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(from));
    let hole = |from| rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(from));
    assert_eq!(data(0), Ok(1 << 20));
    assert_eq!(hole(1 << 20), Ok((1 << 20) + 4096));
    assert_eq!(data((1 << 20) + 4096), Ok(3 << 20));
    assert_eq!(hole(3 << 20), Ok((3 << 20) + 4096));
    assert_eq!(data((3 << 20) + 4096), Err(Errno::NXIO));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 1 << 20, 4096).unwrap();
    assert_eq!(data(0), Ok(3 << 20));
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse, Err(Errno::OPNOTSUPP), "the kernel refuses it itself");
    drop(file);
    mounted.umount();
    bench.check();
}

/// Programs that copy files search for holes. Dirty pages that look like a hole would be missing in the copy.
#[test]
fn copies_of_files_with_dirty_pages_are_complete() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let elsewhere = tempfile::tempdir().unwrap();
    let succeed = |program: &str, words: &[&str]| {
        let output = std::process::Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let path = |name: &str| mounted.path(name).to_str().unwrap().to_owned();
    for round in 0..20_u64 {
        let source = path("source");
        let file = File::create(&source).unwrap();
        // Data at both ends and in the middle, none of it synced.
        for at in [round * 100, (1 << 20) + round * 5000, (3 << 20) - round] {
            file.write_all_at(&[round as u8 + 1; 5000], at).unwrap();
        }
        let expected = fs::read(&source).unwrap();
        file.write_all_at(&[0xee; 3], 2 << 20).unwrap();
        let mut expected = expected;
        expected[2 << 20..(2 << 20) + 3].fill(0xee);
        let copy = path("copy");
        succeed("cp", &["--sparse=always", &source, &copy]);
        assert!(fs::read(&copy).unwrap() == expected, "round {round}: cp --sparse=always");
        succeed("cp", &["--reflink=auto", &source, &copy]);
        assert!(fs::read(&copy).unwrap() == expected, "round {round}: cp");
        file.write_all_at(&[0xdd; 3], 1 << 19).unwrap();
        expected[1 << 19..(1 << 19) + 3].fill(0xdd);
        let (archive, folder) = (elsewhere.path().join("archive"), elsewhere.path());
        let (archive, folder) = (archive.to_str().unwrap(), folder.to_str().unwrap());
        succeed("tar", &["-S", "-c", "-f", archive, "-C", mounted.root().to_str().unwrap(), "source"]);
        succeed("tar", &["-x", "-f", archive, "-C", folder]);
        assert!(fs::read(elsewhere.path().join("source")).unwrap() == expected, "round {round}: tar -S");
    }
    mounted.umount();
    bench.check();
}

/// A `tar -S` of one file, which waits before it begins. It is started before the file is opened: a process that is started
/// later closes a copy of our descriptor, and then the kernel refreshes the attributes.
struct Tar {
    process: std::process::Child,
    elsewhere: tempfile::TempDir,
    name: &'static str,
}

impl Tar {
    fn prepare(mounted: &crate::Mounted<'_>, name: &'static str) -> Tar {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "read go && exec tar -S -c -f \"$1\" -C \"$2\" \"$3\"", "sh"]);
        shell.args([elsewhere.path().join("archive"), mounted.root(), name.into()]);
        let process = shell.stdin(std::process::Stdio::piped()).spawn().unwrap();
        Tar { process, elsewhere, name }
    }

    fn run(&mut self) {
        self.process.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(self.process.wait().unwrap().success(), "tar -c {}", self.name);
    }

    /// The contents in the archive.
    fn saved(&self) -> Vec<u8> {
        let mut tar = std::process::Command::new("tar");
        tar.args(["-x", "-f"])
            .arg(self.elsewhere.path().join("archive"))
            .arg("-C")
            .arg(self.elsewhere.path());
        assert!(tar.status().unwrap().success(), "tar -x {}", self.name);
        fs::read(self.elsewhere.path().join(self.name)).unwrap()
    }
}

/// `stat` of an open database or log reported the number of blocks from the time of its opening, as long as it was open,
/// even after a sync.
#[test]
fn an_open_file_reports_its_synced_blocks() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let mut file = File::create_new(mounted.path("log")).unwrap();
    let mut written = 0;
    for length in [5_000_000, 10_000_000, 40_000] {
        file.write_all(&vec![7; length]).unwrap();
        file.sync_all().unwrap();
        written += length as u64;
        for metadata in [file.metadata().unwrap(), fs::metadata(mounted.path("log")).unwrap()] {
            let taken = metadata.blocks() * 512;
            assert!(taken.abs_diff(written) <= written / 64 + 4096, "{taken} bytes of {written}");
        }
    }
}

/// The kernel cached for a day that a file that is open for writing has no blocks. `tar -S` treats such a file as one hole
/// without searching for data, so it saved zeros.
#[test]
fn a_file_that_is_being_written_is_not_saved_as_a_hole() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let names = ["made", "made", "opened", "link"];
    let [mut first, mut synced, mut opened, mut linked] = names.map(|name| Tar::prepare(&mounted, name));
    let written = vec![1; 3 << 20];
    let file = File::create_new(mounted.path("made")).unwrap();
    file.write_all_at(&written, 0).unwrap();
    first.run();
    file.write_all_at(&written, 3 << 20).unwrap();
    file.sync_data().unwrap();
    synced.run();

    // The kernel caches the file as empty. Then it is opened and written.
    let path = mounted.path("opened");
    drop(File::create_new(&path).unwrap());
    let settled = rt::thread::Stop::default();
    let is_empty = (0..1000).any(|_| {
        settled.wait(Duration::from_millis(5));
        fs::metadata(&path).unwrap().blocks() == 0
    });
    assert!(is_empty, "an empty file that is not written has no blocks");
    let mut again = File::options().append(true).open(&path).unwrap();
    again.write_all(&written).unwrap();
    opened.run();

    // Truncated, and looked up by a name that is not in the kernel's cache.
    again.set_len(0).unwrap();
    fs::hard_link(&path, mounted.path("link")).unwrap();
    again.write_all(&written).unwrap();
    linked.run();
    for entry in fs::read_dir(mounted.root()).unwrap() {
        assert!(entry.unwrap().metadata().unwrap().blocks() > 0);
    }

    assert!(first.saved() == written, "first read by tar");
    assert!(synced.saved() == [written.as_slice(), &written].concat(), "synced, and not closed");
    assert!(opened.saved() == written, "opened again");
    assert!(linked.saved() == written, "by another name");
    drop((file, again));
    mounted.umount();
    bench.check();
}

#[test]
fn many_threads_seek_while_many_write() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    // More calls at once than the daemon has threads. No call may wait for another.
    std::thread::scope(|scope| {
        for number in 0..64 {
            let path = mounted.path(&format!("file-{number}"));
            scope.spawn(move || {
                let file = File::create_new(path).unwrap();
                for round in 1..=8_u64 {
                    file.write_all_at(&[1; 4096], round << 16).unwrap();
                    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(1 << 16));
                }
            });
        }
    });
    mounted.umount();
    bench.check();
}

#[test]
fn names_and_links() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = |name: &str| mounted.path(name);
    assert!(fs::metadata(path("a")).is_err(), "the kernel caches the missing name");
    fs::write(path("a"), "a").unwrap();
    fs::write(path("b"), "b").unwrap();
    fs::hard_link(path("a"), path("c")).unwrap();
    assert_eq!(fs::metadata(path("a")).unwrap().nlink(), 2);
    symlink("a", path("s")).unwrap();
    assert_eq!(fs::read_link(path("s")).unwrap().to_str(), Some("a"));
    let rename = |from, to, flags| rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(path("a")).unwrap(), "b");
    assert_eq!(fs::read_to_string(path("s")).unwrap(), "b");
    fs::rename(path("a"), path("b")).unwrap();
    assert_eq!(fs::metadata(path("c")).unwrap().nlink(), 1);
    fs::create_dir(path("d")).unwrap();
    assert_eq!(fs::remove_dir(path("b")).unwrap_err().raw_os_error(), Some(Errno::NOTDIR.raw_os_error()));
    fs::write(path("d/x"), "").unwrap();
    assert_eq!(fs::remove_dir(path("d")).unwrap_err().kind(), std::io::ErrorKind::DirectoryNotEmpty);
    let pipe = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, path("pipe"), rustix::fs::FileType::Fifo, pipe, 0).unwrap();
    assert_eq!(fs::metadata(path("pipe")).unwrap().mode(), 0o010_600);
    let long = "n".repeat(255);
    fs::write(path(&long), "").unwrap();
    assert!(fs::write(path(&"n".repeat(256)), "").is_err());
    assert_eq!(names(&mounted.root()), ["b", "c", "d", &long, "pipe", "s"]);
    mounted.umount();
    bench.check();
}

#[test]
fn a_large_directory_is_listed_completely_and_emptied() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let directory = mounted.path("many");
    fs::create_dir(&directory).unwrap();
    let mut expected: Vec<String> = (0..3000).map(|number| format!("file-{number}")).collect();
    for name in &expected {
        fs::write(directory.join(name), name).unwrap();
    }
    expected.sort();
    assert_eq!(names(&directory), expected);
    let mounted = remounted(mounted);
    assert_eq!(names(&directory), expected);
    for entry in fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().len(), entry.file_name().len() as u64);
        fs::remove_file(entry.path()).unwrap();
    }
    fs::remove_dir(&directory).unwrap();
    mounted.umount();
    bench.check();
}

#[test]
fn an_open_file_outlives_its_name() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("gone");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[5; 100_000]).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(&[6; 100_000]).unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert_eq!((read.len(), read[99_999], read[100_000]), (200_000, 5, 6));
    drop(file);
    mounted.umount();
    bench.check();
}

#[test]
fn attributes_are_stored() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time(-2, 800_000_000), last_modification: time(1_000_000_000, 7) };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.colour", b"green", XattrFlags::CREATE).unwrap();
    let twice = rustix::fs::setxattr(&path, "user.colour", b"red", XattrFlags::CREATE);
    assert_eq!(twice, Err(Errno::EXIST));
    let mounted = remounted(mounted);
    let found = fs::metadata(&path).unwrap();
    assert_eq!(found.mode(), 0o100_640);
    assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_000, 7));
    assert_eq!((found.atime(), found.atime_nsec()), (-2, 800_000_000));
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(&path, "user.colour", &mut value), Ok(5));
    assert_eq!(&value[..5], b"green");
    assert_eq!(rustix::fs::getxattr(&path, "user.colour", &mut value[..2]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut value), Err(Errno::NODATA));
    let mut list = [0; 64];
    let count = rustix::fs::listxattr(&path, &mut list).unwrap();
    assert_eq!(&list[..count], b"user.colour\0");
    rustix::fs::removexattr(&path, "user.colour").unwrap();
    assert_eq!(rustix::fs::listxattr(&path, &mut list), Ok(0));
    mounted.umount();
    bench.check();
}

/// A time that 64 bits of nanoseconds cannot represent was reported as requested while it was in the kernel's cache, and as
/// stored after that. A backup that compares times copied such a file again and again.
#[test]
fn a_time_out_of_range_is_never_reported() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let (file, directory) = (mounted.path("file"), mounted.path("directory"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&directory).unwrap();
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 5 };
    let omitted = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let set = |path, last_access, last_modification| {
        rustix::fs::utimensat(CWD, path, &Timestamps { last_access, last_modification }, AtFlags::empty())
    };
    let latest = (i64::MAX / 1_000_000_000, i64::MAX % 1_000_000_000);
    let earliest = (i64::MIN.div_euclid(1_000_000_000), i64::MIN.rem_euclid(1_000_000_000));
    let accessed = |path| fs::metadata(path).map(|shown| (shown.atime(), shown.atime_nsec())).unwrap();
    let modified = |path| fs::metadata(path).map(|shown| (shown.mtime(), shown.mtime_nsec())).unwrap();
    for (seconds, nearest) in [(1 << 34, latest), (-(1 << 34), earliest), (-1, (-1, 5))] {
        set(&directory, time(seconds), time(seconds)).unwrap();
        assert_eq!((accessed(&directory), modified(&directory)), (nearest, nearest));
        set(&file, time(seconds), omitted).unwrap();
        assert_eq!(accessed(&file), nearest);
    }
    // The kernel caches the requested mtime of a file itself.
    for seconds in [1 << 34, -(1 << 34)] {
        set(&file, time(1), time(2)).unwrap();
        assert_eq!(set(&file, time(3), time(seconds)), Err(Errno::RANGE));
        assert_eq!((accessed(&file), modified(&file)), ((1, 5), (2, 5)));
    }
    let again = remounted(mounted);
    assert_eq!((accessed(&file), modified(&file)), ((1, 5), (2, 5)));
    assert_eq!((accessed(&directory), modified(&directory)), ((-1, 5), (-1, 5)));
    again.umount();
    bench.check();
}

#[test]
fn copying_within_the_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let contents: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(mounted.path("from"), &contents).unwrap();
    // std copies with copy_file_range.
    assert_eq!(fs::copy(mounted.path("from"), mounted.path("to")).unwrap(), 300_000);
    assert!(fs::read(mounted.path("to")).unwrap() == contents);
    mounted.umount();
    bench.check();
}

#[test]
fn a_copy_within_the_volume_shares_its_data() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let contents: Vec<u8> = (0..16_000_123_u32).map(|number| (number % 253) as u8).collect();
    fs::write(mounted.path("from"), &contents).unwrap();
    File::open(mounted.path("from")).unwrap().sync_all().unwrap();
    let available = || {
        let space = rustix::fs::statvfs(mounted.root()).unwrap();
        space.f_bavail * space.f_frsize
    };
    let before = available();
    for copy in ["one", "two"] {
        assert_eq!(fs::copy(mounted.path("from"), mounted.path(copy)).unwrap(), 16_000_123);
    }
    assert!(before - available() < 1 << 20, "32 MB were copied");
    let mut one = File::options().write(true).open(mounted.path("one")).unwrap();
    one.write_all(b"changed").unwrap();
    drop(one);
    fs::remove_file(mounted.path("from")).unwrap();
    let expected = [&b"changed"[..], &contents[7..]].concat();
    assert!(fs::read(mounted.path("one")).unwrap() == expected);
    assert!(fs::read(mounted.path("two")).unwrap() == contents);
    mounted.umount();
    bench.check();
}

#[test]
fn statfs_reports_the_size_of_the_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let before = rustix::fs::statvfs(mounted.root()).unwrap();
    assert!(before.f_blocks * before.f_frsize < 256 << 20);
    assert!(before.f_bavail * before.f_frsize > 128 << 20);
    assert_eq!(before.f_namemax, 255);
    let mut file = File::create(mounted.path("file")).unwrap();
    file.write_all(&vec![9; 32 << 20]).unwrap();
    file.sync_all().unwrap();
    let after = rustix::fs::statvfs(mounted.root()).unwrap();
    assert!((before.f_bfree - after.f_bfree) * after.f_frsize >= 32 << 20);
    drop(file);
    mounted.umount();
    bench.check();
}

/// A program that wrote until the volume was full wrote for ever, because errors of writeback reach only fsync and
/// close. The kernel is made to ask.
#[test]
fn a_full_volume_refuses_writes_and_recovers() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let chunk = vec![4; 1 << 20];
    // Until a write is refused, which must not take forever.
    let fill = |file: &mut File| {
        let refused = (0..10_000).find_map(|_| file.write_all(&chunk).err());
        refused.expect("the kernel accepts every write")
    };
    let path = mounted.path("big");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    let error = fill(&mut file);
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let synced = file.sync_all().unwrap_err();
    assert_eq!(synced.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert!(file.metadata().is_ok(), "attributes can still be read");
    file.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(file.read(&mut [0; 10]).unwrap(), 0, "a read at the end succeeds");
    // After a request for attributes, the kernel may accept one write. The next one is refused again.
    assert_eq!(fill(&mut file).raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    drop(file);
    fs::remove_file(mounted.path("big")).unwrap();
    let contents: Vec<u8> = (0..40_u32 << 20).map(|at| (at / 977) as u8).collect();
    let mut file = File::create_new(mounted.path("next")).unwrap();
    file.write_all(&contents).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mounted = remounted(mounted);
    assert!(fs::read(mounted.path("next")).unwrap() == contents);
    mounted.umount();
    bench.check();
}

/// Fills the volume with a file until there is no space for another page.
fn fill_up(path: &Path) -> File {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let full = OpenOptions::new().write(true).create_new(true).custom_flags(direct).open(path).unwrap();
    let buffer = vec![6; (1 << 20) + 4096];
    let aligned = buffer.as_ptr().align_offset(4096);
    let mut at = 0;
    // In smaller and smaller pieces, until no page fits.
    for length in [1 << 20, 64 << 10, 4096] {
        let piece = &buffer[aligned..aligned + length];
        while let Ok(written) = full.write_at(piece, at) {
            at += written as u64;
        }
    }
    let error = full.write_at(&buffer[aligned..aligned + 4096], at).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    full
}

/// After a file on a full volume could not grow, it refused every write until all programs had closed it: SQLite could not
/// even roll back the transaction that had failed. A later version refused the second write after a truncation, although
/// there was space.
#[test]
fn a_file_that_could_not_grow_can_be_overwritten() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), vec![1; 1 << 20]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mounted.path("file")).unwrap();
    file.sync_all().unwrap();
    let full = fill_up(&mounted.path("full"));
    file.write_all_at(&[2; 64 << 10], 1 << 20).unwrap();
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    file.set_len(1 << 20).unwrap();
    for number in 0..64 {
        file.write_all_at(&[3; 8192], number * 8192).unwrap();
        file.sync_all().unwrap();
    }
    drop((file, full));
    let mounted = remounted(mounted);
    let expected = [vec![3; 512 << 10], vec![1; 512 << 10]].concat();
    assert!(fs::read(mounted.path("file")).unwrap() == expected);
    mounted.umount();
    bench.check();
}

/// Waits until the kernel's clock shows a later time than the last change of this file.
fn later_than(file: &File) {
    let about = file.metadata().unwrap();
    let modified = about.mtime() * 1_000_000_000 + about.mtime_nsec();
    let (clock, waiting) = (rt::SystemClock::new(), rt::thread::Stop::default());
    while clock.now().0 < modified + 30_000_000 {
        waiting.wait(Duration::from_millis(1));
    }
}

/// The mtime became the time of the writeback after the file had left the kernel's cache. Build programs then treated
/// unchanged files as changed.
#[test]
fn the_mtime_is_the_time_of_the_write() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    for number in 0..20 {
        let path = mounted.path(&format!("file {number}"));
        let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        let made = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(&vec![7; 8192 << (number % 8)], 0).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        assert!(made <= written, "{made:?} {written:?}");
    }
    let path = mounted.path("file");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&vec![7; 3 << 20], 0).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    later_than(&file);
    rustix::fs::syncfs(File::open(mounted.root()).unwrap()).unwrap();
    drop(file);
    let mounted = remounted(mounted);
    assert_eq!(fs::metadata(mounted.path("file")).unwrap().modified().unwrap(), modified);
    mounted.umount();
}

/// Writeback of data that had been written before the capabilities were set removed the capabilities.
#[test]
fn capabilities_set_after_the_last_write_survive_writeback() {
    const CAPABILITY: &str = "security.capability";
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can set capabilities");
    }
    let mounted = bench.mount(&[]);
    let path = mounted.path("program");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    // Revision 2: the permitted and the inheritable bits, in two words each.
    let given = [0x0200_0001_u32, 1 << 10, 0, 0, 0].map(u32::to_le_bytes).concat();
    rustix::fs::fsetxattr(&file, CAPABILITY, &given, XattrFlags::empty()).unwrap();
    drop(file);
    let mounted = remounted(mounted);
    let path = mounted.path("program");
    let mut found = [0; 64];
    let length = rustix::fs::getxattr(&path, CAPABILITY, &mut found).unwrap();
    assert_eq!(found[..length], given);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"other", 0).unwrap();
    drop(file);
    assert_eq!(rustix::fs::getxattr(&path, CAPABILITY, &mut found), Err(Errno::NODATA));
    mounted.umount();
}

/// The kernel opens no handle for either, so only its references show that they are in use.
#[test]
fn unlinked_pipes_and_directories_can_be_used() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("pipe");
    rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    pipe.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    let about = pipe.metadata().unwrap();
    assert_eq!((about.mode() & 0o7777, about.nlink()), (0o600, 0));
    fs::create_dir(mounted.path("directory")).unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", "rmdir ../directory && ls -a"])
        .current_dir(mounted.path("directory"))
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    drop(pipe);
    mounted.umount();
    bench.check();
}

#[test]
fn every_way_of_freeing_space_works_on_a_full_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = |name: &str| mounted.path(name);
    fs::create_dir_all(path("d/empty")).unwrap();
    for name in ["unlinked", "cut", "replaced", "replacing", "punched", "opened"] {
        let mut file = File::create_new(path(name)).unwrap();
        file.write_all(&vec![5; 1 << 20]).unwrap();
        file.sync_all().unwrap();
    }
    let full = fill_up(&path("full"));
    let at = full.metadata().unwrap().len();
    fs::remove_dir(path("d/empty")).unwrap();
    fs::rename(path("replacing"), path("replaced")).unwrap();
    let cut = OpenOptions::new().write(true).open(path("cut")).unwrap();
    cut.set_len(5000).unwrap();
    cut.set_len(0).unwrap();
    let punched = OpenOptions::new().write(true).open(path("punched")).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, punch, 4096, 512 << 10).unwrap();
    drop(File::create(path("opened")).unwrap());
    fs::remove_file(path("unlinked")).unwrap();
    drop((cut, punched));
    let mut file = File::create_new(path("fits again")).unwrap();
    file.write_all(&vec![7; 2 << 20]).unwrap();
    file.sync_all().unwrap();
    drop((file, full));
    let mounted = remounted(mounted);
    assert_eq!(fs::read(mounted.path("fits again")).unwrap(), vec![7; 2 << 20]);
    assert_eq!(fs::metadata(mounted.path("full")).unwrap().len(), at);
    mounted.umount();
    bench.check();
}

#[test]
fn names_of_any_bytes() {
    use std::os::unix::ffi::OsStringExt;

    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let mut expected: Vec<std::ffi::OsString> = (1..=255_u8)
        .filter(|byte| !matches!(byte, b'/'))
        .map(|byte| std::ffi::OsString::from_vec(vec![byte; if byte == b'.' { 3 } else { byte as usize }]))
        .collect();
    for name in &expected {
        fs::write(mounted.root().join(name), name.as_encoded_bytes()).unwrap();
    }
    let mounted = remounted(mounted);
    let mut found: Vec<_> =
        fs::read_dir(mounted.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for name in &expected {
        assert_eq!(fs::read(mounted.root().join(name)).unwrap(), name.as_encoded_bytes());
        fs::remove_file(mounted.root().join(name)).unwrap();
    }
    mounted.umount();
    bench.check();
}

/// Unmounts and mounts the volume again, to empty the kernel's cache.
fn remounted(mounted: crate::Mounted<'_>) -> crate::Mounted<'_> {
    let bench = mounted.bench;
    mounted.umount();
    bench.mount(&[])
}

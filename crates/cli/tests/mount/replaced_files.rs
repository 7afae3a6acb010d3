//! Files that are replaced while their new contents are still in the kernel's cache.
//!
//! A program wrote a new file, renamed it over the old one and kept it open to continue writing. The rename became durable
//! with the next commit. The data became durable only when the kernel wrote them back, up to 30 s later. A crash in between
//! left an empty file, with neither the old contents nor the new.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, fallocate};

use crate::bench::names;
use crate::{Mounted, bench_or_skip};

const NAME: &str = "settings";
const SAVED: &str = "settings.new";

/// A way of saving a file. The new contents stay in the kernel's cache. Returns a guard that keeps the file open.
type Save = fn(&Path) -> Box<dyn Any>;

/// Opens the second argument in the mode of the first, writes through a mapping, and keeps the mapping until its input ends.
const MAP: &str = "
import mmap, os, sys
file = os.open(sys.argv[2], os.O_RDWR | (os.O_CREAT if sys.argv[1] == 'new' else os.O_TRUNC))
os.ftruncate(file, int(sys.argv[3]))
mapping = mmap.mmap(file, int(sys.argv[3]))
mapping[:] = b'n' * len(mapping)
print('written', flush=True)
sys.stdin.read()
";

const WAYS: [(&str, Save); 9] = [
    ("rename over", |root| {
        let file = written(&root.join(SAVED));
        fs::rename(root.join(SAVED), root.join(NAME)).unwrap();
        Box::new(file)
    }),
    ("rename over, mapped", |root| {
        let file = mapped("new", &root.join(SAVED));
        fs::rename(root.join(SAVED), root.join(NAME)).unwrap();
        Box::new(file)
    }),
    ("rename from another directory", |root| {
        fs::create_dir(root.join("elsewhere")).unwrap();
        let file = written(&root.join("elsewhere/new"));
        fs::rename(root.join("elsewhere/new"), root.join(NAME)).unwrap();
        Box::new(file)
    }),
    ("exchange", |root| {
        let file = written(&root.join(SAVED));
        exchange(&root.join(SAVED), &root.join(NAME));
        Box::new(file)
    }),
    ("exchange the other way", |root| {
        let file = written(&root.join(SAVED));
        exchange(&root.join(NAME), &root.join(SAVED));
        Box::new(file)
    }),
    ("rename to a name that was removed", |root| {
        let file = written(&root.join(SAVED));
        fs::remove_file(root.join(NAME)).unwrap();
        fs::rename(root.join(SAVED), root.join(NAME)).unwrap();
        Box::new(file)
    }),
    ("link to a name that was removed", |root| {
        let file = written(&root.join(SAVED));
        fs::remove_file(root.join(NAME)).unwrap();
        fs::hard_link(root.join(SAVED), root.join(NAME)).unwrap();
        fs::remove_file(root.join(SAVED)).unwrap();
        Box::new(file)
    }),
    ("link of a file without a name", |root| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(root, flags, Mode::from_raw_mode(0o600)).unwrap());
        file.write_all(&new()).unwrap();
        fs::remove_file(root.join(NAME)).unwrap();
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, itself, CWD, root.join(NAME), AtFlags::SYMLINK_FOLLOW).unwrap();
        Box::new(file)
    }),
    ("rename twice", |root| {
        let file = written(&root.join(SAVED));
        fs::rename(root.join(SAVED), root.join("settings.next")).unwrap();
        fs::rename(root.join("settings.next"), root.join(NAME)).unwrap();
        Box::new(file)
    }),
];

/// Ways that remove the old contents before they write the new ones. The new contents are written back at the latest with
/// the next commit.
const CUTS: [(&str, Save); 3] = [
    ("emptied when opened", |root| {
        let mut file = File::create(root.join(NAME)).unwrap();
        file.write_all(&new()).unwrap();
        Box::new(file)
    }),
    ("emptied by a handle", |root| {
        let file = OpenOptions::new().write(true).open(root.join(NAME)).unwrap();
        file.set_len(0).unwrap();
        file.write_all_at(&new(), 0).unwrap();
        Box::new(file)
    }),
    ("emptied, then mapped", |root| Box::new(mapped("old", &root.join(NAME)))),
];

#[test]
fn a_file_that_is_replaced_while_it_is_open_is_old_or_new_after_a_kill() {
    for (way, save) in WAYS {
        saved_and_killed(way, save, |mounted| {
            // An fsync of another file makes the rename durable.
            File::create(mounted.path("other")).unwrap().sync_all().unwrap();
        });
    }
}

#[test]
fn a_truncated_and_rewritten_file_is_new_after_a_commit_and_a_kill() {
    for (way, save) in CUTS {
        saved_and_killed(way, save, |mounted| {
            File::create(mounted.path("other")).unwrap().sync_all().unwrap();
        });
        saved_and_killed(way, save, |mounted| {
            // This write bypasses the cache and is durable when it returns, without an `fsync` by the kernel.
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT | OFlags::SYNC;
            let other = rustix::fs::open(mounted.path("other"), flags, Mode::from_raw_mode(0o600)).unwrap();
            fallocate(other, FallocateFlags::empty(), 0, 1 << 16).unwrap();
        });
    }
}

/// The kernel had written back a part of the file already, and the daemon assumed that the rest was written back too.
#[test]
fn a_truncated_and_rewritten_file_is_new_after_a_partial_sync() {
    for (way, save) in CUTS {
        saved_and_killed(way, save, |mounted| {
            let flags = OFlags::WRONLY | OFlags::DSYNC;
            let same = rustix::fs::open(mounted.path(NAME), flags, Mode::empty()).unwrap();
            rustix::io::pwrite(same, &new()[..1], 0).unwrap();
        });
    }
}

#[test]
fn the_commit_interval_makes_a_truncation_durable_with_the_later_writes() {
    for (way, save) in CUTS {
        saved_and_killed(way, save, |mounted| {
            let batches = || mounted.report("stats")["metadata"]["log_batches"].as_u64().unwrap();
            let before = batches();
            // The interval may have passed already. Then there would be no further commit without another change.
            File::create(mounted.path("other")).unwrap();
            await_that("the commit interval passes", || batches() > before);
        });
    }
}

/// The rename fails with ENOSPC, so the program learns that the new contents did not fit, and the old contents stay.
#[test]
fn a_rename_whose_data_do_not_fit_is_refused_and_keeps_the_old_file() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path(NAME), old()).unwrap();
    let fill = File::create(mounted.path("fill")).unwrap();
    let space = rustix::fs::statvfs(mounted.root()).unwrap();
    let left = 1 << 20;
    fallocate(&fill, FallocateFlags::empty(), 0, space.f_bavail * space.f_frsize - left).unwrap();
    let mut file = File::create(mounted.path(SAVED)).unwrap();
    file.write_all(&vec![7; 8 << 20]).unwrap();
    let refused = fs::rename(mounted.path(SAVED), mounted.path(NAME)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    assert_eq!(fs::read(mounted.path(NAME)).unwrap(), old());
    drop((file, fill));
    mounted.umount();
    bench.check();
}

/// A thread that had started writeback waited in the kernel for the daemon's other threads. When these were killed, the
/// thread kept the connection open: the daemon never ended, and its users waited forever.
#[test]
fn a_daemon_that_is_killed_while_files_are_replaced_ends() {
    let bench = bench_or_skip!();
    for _round in 0..6 {
        let mounted = bench.mount(&[]);
        let (daemon, root) = (mounted.daemon(), mounted.root());
        std::thread::scope(|scope| {
            let savers: Vec<_> = (0..4)
                .map(|number| {
                    let root = &root;
                    scope.spawn(move || replace_until_dead(root, number))
                })
                .collect();
            await_that("files are replaced", || root.join("saved-3-20").exists());
            daemon.kill();
            savers.into_iter().for_each(|saver| saver.join().unwrap());
        });
        drop(mounted);
        bench.check();
        let mounted = bench.mount(&[]);
        for name in names(&mounted.root()).iter().filter(|name| name.starts_with("saved")) {
            let found = fs::read(mounted.path(name)).unwrap();
            assert!(found == old() || found == new(), "{name}: {} bytes", found.len());
            fs::remove_file(mounted.path(name)).unwrap();
        }
        mounted.umount();
    }
}

/// Renames open files over others, and truncates and extends files, until the daemon has ended.
fn replace_until_dead(root: &Path, number: u32) {
    let (saved, new_name) = (root.join(format!("saved-{number}-")), root.join(format!("new-{number}")));
    let mut cut = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(root.join(format!("cut-{number}")))
        .unwrap();
    for round in 0.. {
        let target = saved.with_file_name(format!("saved-{number}-{}", round % 30));
        let contents = if round % 2 == 0 { old() } else { new() };
        let done = File::create(&new_name).and_then(|mut file| {
            file.write_all(&contents)?;
            fs::rename(&new_name, &target)?;
            cut.set_len(0)?;
            cut.write_all(&contents[..5000])?;
            cut.set_len(9000)?;
            if round % 8 == 0 { file.sync_all() } else { Ok(()) }
        });
        if done.is_err() {
            return;
        }
    }
}

fn await_that(what: &str, condition: impl Fn() -> bool) {
    let waiting = rt::thread::Stop::default();
    let came = (0..12_000).any(|_| condition() || waiting.wait(Duration::from_millis(5)));
    assert!(came, "within a minute: {what}");
}

/// Saves a file in this way, makes it durable with `commit`, kills the daemon, and verifies the contents.
fn saved_and_killed(way: &str, save: Save, commit: impl FnOnce(&Mounted<'_>)) {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "commit=1"]);
    fs::write(mounted.path(NAME), old()).unwrap();
    File::open(mounted.root()).unwrap().sync_all().unwrap();
    let open = save(&mounted.root());
    commit(&mounted);
    mounted.daemon().kill();
    drop((open, mounted));
    let mounted = bench.mount(&[]);
    let found = fs::read(mounted.path(NAME)).unwrap();
    assert!(
        found == new() || found == old(),
        "{way}: {} bytes, neither the old contents nor the new",
        found.len()
    );
    assert!(found == new(), "{way}: the new contents were durable, and the old ones are there");
    mounted.umount();
    bench.check();
}

fn exchange(one: &Path, other: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// A new file whose pages are all dirty in the kernel's cache.
fn written(path: &Path) -> File {
    let mut file = File::create_new(path).unwrap();
    file.write_all(&new()).unwrap();
    file
}

/// A program that has written a file through a mapping, and keeps the mapping.
struct Mapped(Child);

impl Drop for Mapped {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn mapped(which: &str, path: &Path) -> Mapped {
    let mut program = Command::new("python3");
    program.args(["-c", MAP, which, path.to_str().unwrap(), &new().len().to_string()]);
    let mut program = Mapped(program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "written\n");
    program
}

fn old() -> Vec<u8> {
    vec![b'o'; 300_000]
}

fn new() -> Vec<u8> {
    vec![b'n'; 400_000]
}

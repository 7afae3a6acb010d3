//! Mount options take effect at the mount and at a remount.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::bench::{Bench, mounts};
use crate::{Mounted, bench_or_skip};

/// The options in the table of mounts.
fn shown(bench: &Bench) -> String {
    let directory = bench.directory();
    let table = mounts();
    let line = table.lines().find(|line| line.split(' ').nth(4) == directory.to_str()).unwrap();
    line.split(' ').nth(5).unwrap().to_owned()
}

fn remount(mounted: &Mounted<'_>, options: &str) {
    let directory = mounted.root();
    let said =
        mounted.bench.succeed(&["mount", "-o", &format!("remount,{options}"), directory.to_str().unwrap()]);
    assert_eq!(said, "");
}

#[test]
fn options_reach_the_kernel() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "nosuid,nodev,noexec,nofail,x-systemd.automount,commit=7"]);
    let options = shown(&bench);
    for option in ["rw", "nosuid", "nodev", "noexec", "noatime"] {
        assert!(options.split(',').any(|word| word == option), "{option}: {options}");
    }
    mounted.umount();
    let mounted = bench.mount(&["-o", "strictatime"]);
    assert!(!shown(&bench).contains("noatime"));
    mounted.umount();
}

/// The kernel asks for attributes at the first write and `chown` of each file, and cannot remember that there are none.
#[test]
fn a_mount_can_have_no_extended_attributes() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "noxattr"]);
    assert!(mounted.report("info")["options"].as_str().unwrap().contains("noxattr"));
    let path = mounted.path("file");
    fs::write(&path, "without attributes").unwrap();
    let set = || setxattr(&path, "user.color", b"red", XattrFlags::empty());
    assert_eq!(set(), Err(Errno::OPNOTSUPP));
    assert_eq!(getxattr(&path, "user.color", [0; 8].as_mut_slice()), Err(Errno::OPNOTSUPP));
    assert_eq!(listxattr(&path, [0; 64].as_mut_slice()), Err(Errno::OPNOTSUPP));
    let mode = fs::metadata(&path).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o644, "the umask counts");
    if rustix::process::geteuid().is_root() {
        let directory = mounted.root();
        let said = bench.fail(1, &["mount", "-o", "remount,xattr", directory.to_str().unwrap()]);
        assert!(said.contains("unmount the volume and mount it again"), "{said}");
    }
    mounted.umount();

    let mounted = bench.mount(&[]);
    assert_eq!(set(), Ok(()));
    mounted.umount();
    let (volume, directory) = (bench.volume(), bench.directory());
    let words = ["mount", "-o", "noxattr", volume.to_str().unwrap(), directory.to_str().unwrap()];
    let said = bench.fail(1, &words);
    assert!(said.contains("mount it without noxattr"), "{said}");
    assert!(!bench.is_mounted());
    bench.check();
    let mounted = bench.mount(&[]);
    removexattr(&path, "user.color").unwrap();
    mounted.umount();
    bench.mount(&["-o", "noxattr"]).umount();
}

/// A volume was mounted when the machine lost power. A read-only mount replays the log in memory, and does not change a byte
/// of the file.
#[test]
fn a_read_only_mount_after_a_crash_writes_nothing() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "commit=3600"]);
    for number in 0..200 {
        let mut file = File::create_new(mounted.path(&format!("file-{number}"))).unwrap();
        file.write_all(&vec![number as u8; number * 100]).unwrap();
        file.sync_all().unwrap();
    }
    fs::remove_file(mounted.path("file-7")).unwrap();
    mounted.daemon().kill();
    let before = fs::read(bench.volume()).unwrap();

    let mounted = bench.mount(&["-o", "ro"]);
    assert!(bench.logged().lines().last().unwrap().contains("mounted"));
    assert!(bench.logged().lines().any(|line| line.contains("recovered") && line.contains("clean=false")));
    for number in 8..200 {
        assert_eq!(
            fs::read(mounted.path(&format!("file-{number}"))).unwrap(),
            vec![number as u8; number * 100]
        );
    }
    assert_eq!(File::create(mounted.path("new")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let free = rustix::fs::statvfs(mounted.root()).unwrap();
    assert!(free.f_bavail > 0 && free.f_bavail <= free.f_bfree, "`df` shows the space of a writable mount");
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    bench.succeed(&["sync", mounted.root().to_str().unwrap()]);
    bench.succeed(&["stats", volume]);
    mounted.umount();
    bench.check();
    bench.succeed(&["info", volume]);
    assert!(fs::read(bench.volume()).unwrap() == before, "the volume has changed");
    bench.mount(&[]).umount();
    assert!(fs::read(bench.volume()).unwrap() != before, "a writer closes the volume");
}

#[test]
fn two_readers_share_a_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), "shared").unwrap();
    mounted.umount();
    let first = bench.mount(&["-o", "ro"]);
    let second = bench.directory().with_file_name("second");
    fs::create_dir(&second).unwrap();
    let (volume, directory) = (bench.volume(), second.to_str().unwrap());
    bench.succeed(&["mount", "-o", "ro", volume.to_str().unwrap(), directory]);
    assert_eq!(fs::read(second.join("file")).unwrap(), b"shared");
    if rustix::process::geteuid().is_root() {
        bench.succeed(&["mount", "-o", "remount,nosuid", directory]);
        let table = crate::bench::mounts();
        let line = |place: &str| table.lines().find(|line| line.split(' ').nth(4) == Some(place)).unwrap();
        assert!(line(directory).contains("nosuid"));
        assert!(!line(first.root().to_str().unwrap()).contains("nosuid"), "only named options change");
    }
    bench.succeed(&["umount", directory]);
    // A reader holds only a shared lock. Nevertheless `umount` waits for it.
    let daemon = first.daemon();
    first.umount();
    assert!(daemon.has_ended());
}

#[test]
fn a_remount_closes_the_volume_and_opens_it_again() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root may remount");
    }
    let mounted = bench.mount(&["-o", "nosuid,commit=3600"]);
    let mut open = File::create(mounted.path("file")).unwrap();
    open.write_all(b"first").unwrap();
    let directory = mounted.root();
    let said = bench.fail(1, &["mount", "-o", "remount,ro", directory.to_str().unwrap()]);
    assert!(said.contains("in use for writing"), "{said}");
    open.write_all(b", second").unwrap();
    drop(open);

    remount(&mounted, "ro,commit=1");
    assert!(shown(&bench).starts_with("ro,nosuid"), "other options stay: {}", shown(&bench));
    let before = fs::read(bench.volume()).unwrap();
    assert_eq!(fs::write(mounted.path("no"), "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(mounted.report("info")["read_only"], true);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"first, second");
    // The volume is closed, so there is nothing to replay after a kill.
    let copy = bench.volume().with_file_name("copy");
    fs::copy(bench.volume(), &copy).unwrap();
    assert_eq!(bench.run_as("fsck.polder", &["-n", copy.to_str().unwrap()]).status.code(), Some(0));
    assert_eq!(bench.run_as("fsck.polder", &["-p", copy.to_str().unwrap()]).status.code(), Some(0));
    assert!(fs::read(bench.volume()).unwrap() == before);

    remount(&mounted, "rw");
    fs::write(mounted.path("again"), "written").unwrap();
    bench.succeed(&["sync", directory.to_str().unwrap()]);
    mounted.daemon().kill();
    let mounted = bench.mount(&["-o", "ro"]);
    assert_eq!(fs::read(mounted.path("again")).unwrap(), b"written");
    let said = bench.fail(1, &["mount", "-o", "remount,rw", directory.to_str().unwrap()]);
    assert!(said.contains("it was mounted read-only; unmount it"), "{said}");
    mounted.umount();
    bench.check();
}

#[test]
fn strictatime_updates_access_times() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root may remount");
    }
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    fs::write(&path, "read me").unwrap();
    let accessed = || {
        let found = fs::metadata(&path).unwrap();
        (found.atime(), found.atime_nsec())
    };
    let made = accessed();
    fs::read(&path).unwrap();
    assert_eq!(accessed(), made);
    let changed = fs::metadata(&path).unwrap().ctime_nsec();
    remount(&mounted, "strictatime");
    // The daemon's clock has the resolution of a tick. The kernel's clock has a finer resolution for other file systems, and
    // may be ahead within a tick. So the test creates a file, whose times come from the daemon.
    let now = || {
        let path = mounted.path("clock");
        drop(fs::File::create(&path).unwrap());
        let found = fs::metadata(&path).unwrap();
        fs::remove_file(&path).unwrap();
        (found.atime(), found.atime_nsec())
    };
    while now() <= made {}
    fs::read(&path).unwrap();
    let read = accessed();
    assert!(read > made);
    let mut file = OpenOptions::new().read(true).custom_flags(0o1000000).open(&path).unwrap();
    file.read_to_end(&mut Vec::new()).unwrap();
    drop(file);
    assert_eq!(accessed(), read, "O_NOATIME");
    fs::read_dir(mounted.root()).unwrap().count();
    assert_eq!(fs::metadata(&path).unwrap().ctime_nsec(), changed, "a read does not change the ctime");
    mounted.umount();
    bench.check();
}

//! What somebody else may do, who is not root and mounted nothing.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Gid, Mode, Uid, makedev, mknodat};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::bench::{Bench, Mounted, mounts, names};
use crate::bench_or_skip;

/// A user and a group that own nothing.
pub(crate) const NOBODY: u32 = 65534;

macro_rules! root_or_skip {
    () => {
        if !rustix::process::geteuid().is_root() {
            return crate::skip("only root can become another user");
        }
    };
}

/// By a process of its own: what is open for writing cannot be run, and a process that another test is just starting
/// has our open files until it begins its program.
fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status().unwrap();
    assert!(copied.success(), "{} cannot be copied", from.display());
}

/// Lets others into the directory of the bench, and gives them a program that they can run.
pub(crate) fn open_to_others(bench: &Bench) {
    let place = bench.volume().parent().unwrap().to_owned();
    fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
    copy_program(bench.program(), &place.join("polder"));
}

fn as_nobody(program: &Path, arguments: &[&str], bench: &Bench) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/");
    command.env("POLDER_RUN_DIR", bench.sockets()).output().unwrap()
}

/// Does something on a thread that is somebody else's.
fn on_thread_of_nobody<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let acted = rt::thread::spawn("nobody", move || {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        act()
    });
    acted.unwrap().join().unwrap()
}

/// The complaint of somebody else's command, which must fail and tell nothing.
fn refusal(bench: &Bench, arguments: &[&str]) -> String {
    let output = as_nobody(&bench.volume().with_file_name("polder"), arguments, bench);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {said}");
    said
}

/// A command of somebody else's that must be refused in plain words.
fn refuse(bench: &Bench, arguments: &[&str]) {
    let said = refusal(bench, arguments);
    let is_plain = ["permission denied", "not permitted", "only root"]
        .iter()
        .any(|word| said.to_lowercase().contains(word));
    assert!(is_plain, "{arguments:?}: {said}");
}

/// What somebody else's command prints that must not fail.
fn allow(bench: &Bench, arguments: &[&str]) -> String {
    let output = as_nobody(&bench.volume().with_file_name("polder"), arguments, bench);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A directory beside the volume that is somebody else's.
fn place_of_nobody(bench: &Bench) -> PathBuf {
    let place = bench.volume().with_file_name("his");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    place
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A program that runs as root, and a device that all may read.
pub(crate) fn tempt(mounted: &Mounted<'_>) {
    let (program, device) = (mounted.path("id"), mounted.path("zero"));
    copy_program(Path::new("/usr/bin/id"), &program);
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    mknodat(CWD, &device, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 5)).unwrap();
    fs::set_permissions(&device, Permissions::from_mode(0o666)).unwrap();
}

fn reads_device(mounted: &Mounted<'_>) -> bool {
    let device = mounted.path("zero");
    let head = ["-c", "7", device.to_str().unwrap()];
    as_nobody(Path::new("/usr/bin/head"), &head, mounted.bench).stdout == [0; 7]
}

#[test]
fn others_reach_neither_the_daemon_nor_the_volume() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("secret"), "root's").unwrap();
    fs::set_permissions(mounted.path("secret"), Permissions::from_mode(0o600)).unwrap();
    let (root, volume) = (mounted.root(), bench.volume());
    let (directory, volume) = (root.to_str().unwrap(), volume.to_str().unwrap());
    let commands: [&[&str]; 11] = [
        &["info", directory],
        &["stats", directory],
        &["zones", directory],
        &["sync", directory],
        &["gc", directory],
        &["check", directory],
        &["umount", directory],
        &["mount", "-o", "remount,ro", directory],
        &["check", volume],
        &["cat", volume, "/secret"],
        &["mkfs", volume, "--force"],
    ];
    for arguments in commands {
        refuse(&bench, arguments);
    }
    let secret = mounted.path("secret");
    let read = as_nobody(Path::new("/usr/bin/cat"), &[secret.to_str().unwrap()], &bench);
    assert!(read.stdout.is_empty() && !read.status.success());
    assert_eq!(fs::read(&secret).unwrap(), b"root's");
    mounted.umount();
    bench.check();
}

/// The directory is closed to others, and if it were not the socket would be: whatever its maker's umask.
#[test]
fn others_cannot_connect_to_the_daemon() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    fs::remove_dir(bench.sockets()).unwrap();
    let mounted = Mounted { bench: &bench };
    let paths = [bench.volume(), bench.directory(), bench.log()];
    let made = Command::new("sh")
        .args(["-c", r#"umask 0; exec "$0" mount "$1" "$2" --log "$3""#])
        .arg(bench.program())
        .args(paths)
        .env("POLDER_RUN_DIR", bench.sockets())
        .status();
    assert!(made.unwrap().success(), "{}", bench.logged());
    let found = names(&bench.sockets());
    assert!(found.len() == 2 && found.iter().all(|name| name.ends_with(".sock")), "{found:?}");
    let sockets = [&found[0], &found[1]].map(|name| bench.sockets().join(name));
    assert_eq!((mode(&bench.sockets()), sockets.each_ref().map(|socket| mode(socket))), (0o700, [0o600; 2]));

    let tried = |socket: &Path| {
        let socket = socket.to_owned();
        on_thread_of_nobody(move || (fs::symlink_metadata(&socket).is_ok(), UnixStream::connect(socket)))
    };
    for socket in &sockets {
        let (sees, connected) = tried(socket);
        assert!(!sees && connected.unwrap_err().kind() == io::ErrorKind::PermissionDenied);
    }
    fs::set_permissions(bench.sockets(), Permissions::from_mode(0o755)).unwrap();
    for socket in &sockets {
        let (sees, connected) = tried(socket);
        assert!(sees, "nothing but the socket is in the way");
        assert_eq!(connected.unwrap_err().raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
        UnixStream::connect(socket).unwrap();
    }
    mounted.umount();
    bench.check();
}

/// Others may be let read a volume, as the group of a disk is; that gives them no say in how it is mounted.
#[test]
fn who_may_read_a_volume_does_not_reach_its_daemon() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    for (path, permissions) in [(bench.volume(), 0o644), (bench.sockets(), 0o755)] {
        fs::set_permissions(path, Permissions::from_mode(permissions)).unwrap();
    }
    let mounted = bench.mount(&[]);
    set_stage(&mounted);
    let (root, open) = (mounted.root(), mounted.path("open"));
    let [root, open] = [&root, &open].map(|path| path.to_str().unwrap());
    for arguments in [
        &["info", root][..],
        &["stats", root],
        &["zones", root],
        &["sync", root],
        &["gc", root],
        &["check", root],
        &["scrub", root],
        &["fragments", open],
        &["defrag", open],
        &["mount", "-o", "remount,ro", root],
    ] {
        let said = refusal(&bench, arguments);
        assert!(said.contains("its daemon cannot be asked"), "{arguments:?}: {said}");
    }
    refuse(&bench, &["umount", root]);
    assert!(bench.is_mounted());
    fs::write(open, "still written to").unwrap();
    mounted.umount();
    bench.check();
}

/// What can be asked about files is asked of the daemon, and who may ask that may ask about every file: so it is for
/// those who mounted, and for others not even about what is theirs. A hint is an attribute, and set by who may write.
#[test]
fn others_ask_about_no_file_and_hint_where_they_may_write() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    let mounted = bench.mount(&[]);
    set_stage(&mounted);
    let own = mounted.path("shared/own");
    on_thread_of_nobody(move || fs::write(own, [1; 9000])).unwrap();
    let (root, volume) = (mounted.root(), bench.volume());
    let target = place_of_nobody(&bench).join("saved");
    let files = ["open", "closed", "shared", "shared/own"].map(|name| mounted.path(name));
    let [root, volume, target] = [&root, &volume, &target].map(|path| path.to_str().unwrap());
    let [open, closed, shared, own] = files.each_ref().map(|path| path.to_str().unwrap());
    for arguments in [
        &["scrub", root][..],
        &["scrub", volume],
        &["fragments", open],
        &["fragments", closed],
        &["fragments", own],
        &["defrag", open],
        &["defrag", "-n", own],
        &["dump", volume, "inode", "1"],
        &["salvage", volume, target],
        &["hint", open, "short"],
        &["hint", closed],
        &["hint", closed, "short"],
        &["hint", shared, "short"],
    ] {
        refuse(&bench, arguments);
    }
    assert!(!Path::new(target).exists());
    for path in [open, closed, shared] {
        assert_eq!(bench.succeed(&["hint", path]), "none\n");
    }
    assert_eq!(allow(&bench, &["hint", open]), "none\n", "he may read the file");
    allow(&bench, &["hint", own, "long"]);
    assert_eq!(allow(&bench, &["hint", own]), "long\n");
    mounted.umount();
    bench.check();
}

/// Who may not read a volume gets nothing out of it, and who may read it gets everything, of whatever mode. To be told
/// of a volume that he may not read that it is "not in a mounted volume", as `fragments` and `defrag` did, sends him
/// looking for a mount that would not help.
#[test]
fn others_get_at_the_inside_of_no_volume_but_one_that_they_may_read() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    let mounted = bench.mount(&[]);
    set_stage(&mounted);
    mounted.umount();
    let place = place_of_nobody(&bench);
    let (volume, readable, target) = (bench.volume(), place.join("volume"), place.join("saved"));
    fs::copy(&volume, &readable).unwrap();
    fs::set_permissions(&readable, Permissions::from_mode(0o644)).unwrap();
    let before = fs::read(&volume).unwrap();
    assert_eq!(mode(&volume), 0o600);
    let [volume, readable, target, place] =
        [&volume, &readable, &target, &place].map(|path| path.to_str().unwrap());
    for arguments in [
        &["scrub", volume][..],
        &["fragments", volume, "/open"],
        &["defrag", volume, "/"],
        &["defrag", "-n", volume, "/"],
        &["dump", volume, "inode", "1"],
        &["dump", volume, "journal"],
        &["salvage", volume, target],
        &["ls", volume, "/"],
        &["cat", volume, "/closed"],
        &["cp", volume, "/open", target],
        &["check", volume],
        &["check", volume, "--repair"],
        &["gc", volume],
        &["zones", volume],
        &["zones", volume, "--mount", place],
        &["mount", volume, place],
    ] {
        refuse(&bench, arguments);
    }
    assert!(!Path::new(target).exists());
    assert!(fs::read(volume).unwrap() == before, "the volume has changed");

    assert!(allow(&bench, &["scrub", readable]).ends_with(": clean\n"));
    assert!(allow(&bench, &["dump", readable, "inode", "1"]).contains("directory"));
    assert!(allow(&bench, &["fragments", readable, "/closed"]).starts_with("/closed: "));
    assert_eq!(allow(&bench, &["cat", readable, "/closed"]), "root's");
    assert!(allow(&bench, &["ls", readable, "/"]).contains("closed"));
    assert!(allow(&bench, &["check", readable]).ends_with(": clean\n"));
    allow(&bench, &["salvage", readable, target]);
    let saved = fs::metadata(Path::new(target).join("closed")).unwrap();
    assert_eq!((saved.uid(), saved.mode() & 0o7777, saved.len()), (NOBODY, 0o600, 6));
}

/// Files of root's that others may read and may not, and a place where all may make files.
fn set_stage(mounted: &Mounted<'_>) {
    let shared = mounted.path("shared");
    fs::create_dir_all(&shared).unwrap();
    let files = [("open", "for all", 0o644), ("closed", "root's", 0o600), ("shared/theirs", "root's", 0o666)];
    for (name, contents, permissions) in files {
        fs::write(mounted.path(name), contents).unwrap();
        fs::set_permissions(mounted.path(name), Permissions::from_mode(permissions)).unwrap();
    }
    fs::set_permissions(shared, Permissions::from_mode(0o1777)).unwrap();
}

/// What somebody does who owns nothing there but what he makes.
fn try_what_modes_grant(root: &Path) {
    let refused = |what: &str, tried: io::Result<()>, errno: Errno| {
        assert_eq!(tried.unwrap_err().raw_os_error(), Some(errno.raw_os_error()), "{what}");
    };
    let (open, closed, theirs) = (root.join("open"), root.join("closed"), root.join("shared/theirs"));
    assert_eq!(fs::read(&open).unwrap(), b"for all");
    refused("read what is closed", fs::read(&closed).map(drop), Errno::ACCESS);
    refused("write", fs::write(&open, "mine"), Errno::ACCESS);
    refused("open up", fs::set_permissions(&closed, Permissions::from_mode(0o644)), Errno::PERM);
    refused("take", chown(&closed, Some(NOBODY), None), Errno::PERM);
    refused("make in root's", fs::write(root.join("new"), ""), Errno::ACCESS);
    refused("remove from root's", fs::remove_file(&open), Errno::ACCESS);
    // He may write to this one; that makes neither it nor its name his.
    fs::write(&theirs, "scribbled").unwrap();
    refused("remove somebody else's", fs::remove_file(&theirs), Errno::PERM);
    refused("rename somebody else's", fs::rename(&theirs, root.join("shared/mine")), Errno::PERM);
    let own = root.join("shared/own");
    fs::write(&own, "his").unwrap();
    refused("replace somebody else's", fs::rename(&own, &theirs), Errno::PERM);
    let made = fs::metadata(&own).unwrap();
    assert_eq!((made.uid(), made.gid()), (NOBODY, NOBODY), "what he makes is his");
    refused("give away", chown(&own, Some(0), None), Errno::PERM);
    fs::remove_file(&own).unwrap();
}

/// Root's mount is for all, asked for or not.
#[test]
fn others_do_in_roots_mount_what_modes_grant() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    for options in [&[][..], &["-o", "allow_other"]] {
        let mounted = bench.mount(options);
        let (root, table) = (mounted.root(), mounts());
        let line = table.lines().find(|line| line.split(' ').nth(4) == root.to_str()).unwrap();
        let of_kernel: Vec<&str> = line.rsplit(' ').next().unwrap().split(',').collect();
        for word in ["allow_other", "default_permissions"] {
            assert!(of_kernel.contains(&word), "{line}");
        }
        set_stage(&mounted);
        on_thread_of_nobody(move || try_what_modes_grant(&root));
        assert_eq!(fs::read(mounted.path("shared/theirs")).unwrap(), b"scribbled");
        assert_eq!(names(&mounted.root()), ["closed", "open", "shared"]);
        mounted.umount();
    }
    bench.check();
}

#[test]
fn programs_and_devices_count_as_the_options_say() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    let user = |mounted: &Mounted<'_>| {
        let output = as_nobody(&mounted.path("id"), &["-u"], mounted.bench);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let mounted = bench.mount(&[]);
    tempt(&mounted);
    assert_eq!((user(&mounted), reads_device(&mounted)), ("0".into(), true), "root has mounted it so");
    mounted.umount();
    let mounted = bench.mount(&["-o", "nosuid"]);
    assert_eq!((user(&mounted), reads_device(&mounted)), (NOBODY.to_string(), true));
    mounted.umount();
    let mounted = bench.mount(&["-o", "nodev"]);
    assert_eq!((user(&mounted), reads_device(&mounted)), ("0".into(), false));
    mounted.umount();
}

/// What is mounted on, and is asked about, is where the link leads at that moment.
#[test]
fn a_mount_at_a_link_is_where_the_link_leads() {
    let bench = bench_or_skip!();
    let link = bench.volume().with_file_name("link");
    symlink(bench.directory(), &link).unwrap();
    let (volume, link) = (bench.volume(), link.to_str().unwrap().to_owned());
    bench.succeed(&["mount", volume.to_str().unwrap(), &link]);
    let mounted = Mounted { bench: &bench };
    assert!(bench.is_mounted());
    fs::write(mounted.path("file"), "there").unwrap();
    bench.succeed(&["sync", &link]);
    bench.succeed(&["umount", &link]);
    assert!(!bench.is_mounted() && fs::read_dir(bench.directory()).unwrap().next().is_none());
}

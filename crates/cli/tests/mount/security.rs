//! The rights of another user, that is, of a user that is not root and has not mounted the volume.

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

/// The user and the group `nobody`, that own nothing.
pub(crate) const NOBODY: u32 = 65534;

macro_rules! root_or_skip {
    () => {
        if !rustix::process::geteuid().is_root() {
            return crate::skip("only root can become another user");
        }
    };
}

/// Copies with a separate process. A file that is open for writing cannot be executed, and a child process that
/// another test has just forked keeps our files open until it calls `exec`.
fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status().unwrap();
    assert!(copied.success(), "{} cannot be copied", from.display());
}

/// Gives other users access to the directory of the bench, and a program that they can run.
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

/// Calls a function on a thread that runs as [`NOBODY`].
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

/// Runs a command as [`NOBODY`]. The command must fail and print nothing on standard output. Returns the error message.
fn refusal(bench: &Bench, arguments: &[&str]) -> String {
    let output = as_nobody(&bench.volume().with_file_name("polder"), arguments, bench);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {said}");
    said
}

/// Runs a command as [`NOBODY`]. The command must be refused with a plain message about permissions.
fn refuse(bench: &Bench, arguments: &[&str]) {
    let said = refusal(bench, arguments);
    let is_plain = ["permission denied", "not permitted", "only root"]
        .iter()
        .any(|word| said.to_lowercase().contains(word));
    assert!(is_plain, "{arguments:?}: {said}");
}

/// Runs a command as [`NOBODY`]. The command must succeed. Returns its standard output.
fn allow(bench: &Bench, arguments: &[&str]) -> String {
    let output = as_nobody(&bench.volume().with_file_name("polder"), arguments, bench);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A directory next to the volume, owned by [`NOBODY`].
fn place_of_nobody(bench: &Bench) -> PathBuf {
    let place = bench.volume().with_file_name("nobodys");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    place
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Creates a set-user-ID program of root, and a device that every user may read.
pub(crate) fn create_program_and_device(mounted: &Mounted<'_>) {
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

/// The directory and the sockets are both closed to other users, whatever the umask of the daemon is.
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
        assert!(sees, "only the mode of the socket denies access");
        assert_eq!(connected.unwrap_err().raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
        UnixStream::connect(socket).unwrap();
    }
    mounted.umount();
    bench.check();
}

/// Other users may have read access to a volume, like the group of a disk. This gives them no control over its mount.
#[test]
fn read_access_to_a_volume_gives_no_access_to_its_daemon() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    for (path, permissions) in [(bench.volume(), 0o644), (bench.sockets(), 0o755)] {
        fs::set_permissions(path, Permissions::from_mode(permissions)).unwrap();
    }
    let mounted = bench.mount(&[]);
    create_files_of_root(&mounted);
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
        assert!(said.contains("run this as that user"), "{arguments:?}: {said}");
    }
    refuse(&bench, &["umount", root]);
    assert!(bench.is_mounted());
    fs::write(open, "still written to").unwrap();
    mounted.umount();
    bench.check();
}

/// The daemon answers questions about files, and does not distinguish between files. So only the user that mounted the
/// volume may ask, and other users may not even ask about their own files. A hint is an extended attribute. A user with
/// write permission may set it.
#[test]
fn others_query_no_file_and_set_hints_only_with_write_permission() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    let mounted = bench.mount(&[]);
    create_files_of_root(&mounted);
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
    assert_eq!(allow(&bench, &["hint", open]), "none\n", "the user may read the file");
    allow(&bench, &["hint", own, "long"]);
    assert_eq!(allow(&bench, &["hint", own]), "long\n");
    mounted.umount();
    bench.check();
}

/// A user without read permission for a volume gets nothing out of it. A user with read permission gets all of its
/// files, whatever their modes are. `fragments` and `defrag` reported of an unreadable volume that it is "not in a mounted
/// volume". This message sent the user looking for a mount, which would not help.
#[test]
fn others_read_an_unmounted_volume_only_with_read_permission() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    let mounted = bench.mount(&[]);
    create_files_of_root(&mounted);
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

/// Creates files of root, with and without read permission for others, and a directory in which every user may create
/// files.
fn create_files_of_root(mounted: &Mounted<'_>) {
    let shared = mounted.path("shared");
    fs::create_dir_all(&shared).unwrap();
    let files = [("open", "for all", 0o644), ("closed", "root's", 0o600), ("shared/theirs", "root's", 0o666)];
    for (name, contents, permissions) in files {
        fs::write(mounted.path(name), contents).unwrap();
        fs::set_permissions(mounted.path(name), Permissions::from_mode(permissions)).unwrap();
    }
    fs::set_permissions(shared, Permissions::from_mode(0o1777)).unwrap();
}

/// Operations of a user that owns nothing in the volume except the files that it creates.
fn try_operations_as_other(root: &Path) {
    let refused = |operation: &str, tried: io::Result<()>, errno: Errno| {
        assert_eq!(tried.unwrap_err().raw_os_error(), Some(errno.raw_os_error()), "{operation}");
    };
    let (open, closed, theirs) = (root.join("open"), root.join("closed"), root.join("shared/theirs"));
    assert_eq!(fs::read(&open).unwrap(), b"for all");
    refused("read a closed file", fs::read(&closed).map(drop), Errno::ACCESS);
    refused("write", fs::write(&open, "mine"), Errno::ACCESS);
    refused("change a mode", fs::set_permissions(&closed, Permissions::from_mode(0o644)), Errno::PERM);
    refused("take ownership", chown(&closed, Some(NOBODY), None), Errno::PERM);
    refused("create in root's directory", fs::write(root.join("new"), ""), Errno::ACCESS);
    refused("remove from root's directory", fs::remove_file(&open), Errno::ACCESS);
    // The user may write to this file. This gives it neither the ownership nor the right to change the name.
    fs::write(&theirs, "scribbled").unwrap();
    refused("remove another user's file", fs::remove_file(&theirs), Errno::PERM);
    refused("rename another user's file", fs::rename(&theirs, root.join("shared/mine")), Errno::PERM);
    let own = root.join("shared/own");
    fs::write(&own, "own").unwrap();
    refused("replace another user's file", fs::rename(&own, &theirs), Errno::PERM);
    let made = fs::metadata(&own).unwrap();
    assert_eq!((made.uid(), made.gid()), (NOBODY, NOBODY), "a new file belongs to its creator");
    refused("give away", chown(&own, Some(0), None), Errno::PERM);
    fs::remove_file(&own).unwrap();
}

/// A mount by root is accessible to all users, with or without `allow_other`.
#[test]
fn modes_decide_what_others_may_do_in_a_mount_by_root() {
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
        create_files_of_root(&mounted);
        on_thread_of_nobody(move || try_operations_as_other(&root));
        assert_eq!(fs::read(mounted.path("shared/theirs")).unwrap(), b"scribbled");
        assert_eq!(names(&mounted.root()), ["closed", "open", "shared"]);
        mounted.umount();
    }
    bench.check();
}

#[test]
fn nosuid_and_nodev_disable_programs_and_devices() {
    root_or_skip!();
    let bench = bench_or_skip!();
    open_to_others(&bench);
    let user = |mounted: &Mounted<'_>| {
        let output = as_nobody(&mounted.path("id"), &["-u"], mounted.bench);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let mounted = bench.mount(&[]);
    create_program_and_device(&mounted);
    assert_eq!(
        (user(&mounted), reads_device(&mounted)),
        ("0".into(), true),
        "root mounts without nosuid and nodev"
    );
    mounted.umount();
    let mounted = bench.mount(&["-o", "nosuid"]);
    assert_eq!((user(&mounted), reads_device(&mounted)), (NOBODY.to_string(), true));
    mounted.umount();
    let mounted = bench.mount(&["-o", "nodev"]);
    assert_eq!((user(&mounted), reads_device(&mounted)), ("0".into(), false));
    mounted.umount();
}

/// `polder` resolves a symbolic link to the mount point once, at the time of the command.
#[test]
fn a_mount_on_a_symbolic_link_is_on_its_target() {
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

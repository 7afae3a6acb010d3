//! What somebody else may do, who is not root and mounted nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::bench::{Bench, Mounted};
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
fn open_to_others(bench: &Bench) {
    let place = bench.volume().parent().unwrap().to_owned();
    fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
    copy_program(bench.program(), &place.join("polder"));
}

fn as_nobody(program: &Path, arguments: &[&str], bench: &Bench) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/");
    command.env("POLDER_RUN_DIR", bench.sockets()).output().unwrap()
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
    let program = Path::new(volume).with_file_name("polder");
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
        let output = as_nobody(&program, arguments, &bench);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {said}");
        let is_plain = ["permission denied", "not permitted", "only root"]
            .iter()
            .any(|word| said.to_lowercase().contains(word));
        assert!(is_plain, "{arguments:?}: {said}");
    }
    let secret = mounted.path("secret");
    let read = as_nobody(Path::new("/usr/bin/cat"), &[secret.to_str().unwrap()], &bench);
    assert!(read.stdout.is_empty() && !read.status.success());
    assert_eq!(fs::read(&secret).unwrap(), b"root's");
    mounted.umount();
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

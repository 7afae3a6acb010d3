//! Access control lists, as the kernel enforces them and programs see them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{Gid, Mode, OFlags, Uid, XattrFlags, openat};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::bench_or_skip;

const ACCESS_LIST: &str = "system.posix_acl_access";

/// Prints facts that must be equal on all file systems: the modes and lists of files created under different umasks and
/// default lists, and their changes by `chmod` and by copying.
const SCRIPT: &str = r#"
set -e
cd "$1"
for umask in 000 022 027 077; do
    for default in none minimal named masked; do
        made=$umask-$default
        umask 022
        mkdir "$made"
        case $default in
        minimal) setfacl -d -m u::rwx,g::rw-,o::r-- "$made" ;;
        named) setfacl -d -m u:7:rwx,g:8:r-x,o::--- "$made" ;;
        masked) setfacl -d -m u:7:rwx,g::rwx,m::r-x,o::rwx "$made" ;;
        esac
        umask $umask
        cd "$made"
        mkdir directory directory/inner
        mkdir -m 2751 mode
        touch file directory/file
        mkfifo pipe
        mknod null c 1 3
        ln -s file link
        ln file name
        install -m 640 /dev/null installed
        cp -p installed copied
        touch other
        chmod 604 other
        setfacl -m u:9:rw- file
        touch changed
        setfacl -m g:9:rwx changed
        chmod g-w,o+x changed
        cp -a changed again
        touch less
        setfacl -m u:9:rwx less
        setfacl -x u:9 less
        touch none
        setfacl -m u:9:rwx none
        setfacl -b none
        mkdir plain
        setfacl -k plain
        touch plain/file
        cd ..
    done
done
find . -printf '%p %M\n' | LC_ALL=C sort
find . ! -type l | LC_ALL=C sort | getfacl --numeric -
"#;

type Done = Result<(), Errno>;

fn run_in(directory: &Path) -> Output {
    Command::new("sh").args(["-c", SCRIPT, "sh"]).arg(directory).output().unwrap()
}

fn setfacl(words: &[&str], path: &Path) {
    assert!(Command::new("setfacl").args(words).arg(path).status().unwrap().success());
}

fn is_missing(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_err()
}

/// Calls a function as another user with supplementary groups.
fn run_as(uid: u32, groups: &[u32], work: impl FnOnce() -> Done + Send + 'static) -> Done {
    let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
    let done = rt::thread::spawn("user", move || {
        let (user, own) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(own, own, own)?;
        set_thread_res_uid(user, user, user)?;
        work()
    });
    done.unwrap().join().unwrap()
}

fn open_as(uid: u32, groups: &[u32], directory: &Path, name: &'static str, flags: OFlags) -> Done {
    let within = File::open(directory).unwrap();
    run_as(uid, groups, move || openat(&within, name, flags, Mode::empty()).map(drop))
}

#[test]
fn a_list_grants_and_denies_access() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() || is_missing("setfacl") {
        return crate::skip("only root can act as another user, and `setfacl` sets the lists");
    }
    let mounted = bench.mount(&[]);
    let (home, file) = (mounted.path("home"), mounted.path("home/file"));
    fs::create_dir(&home).unwrap();
    fs::write(&file, "x").unwrap();
    setfacl(&["-m", "u::rwx,g::---,o::---"], &home);
    setfacl(&["-m", "u::rw-,g::r--,o::---"], &file);
    let reads = |uid, groups: &[u32]| open_as(uid, groups, &home, "file", OFlags::RDONLY);
    let writes = |uid, groups: &[u32]| open_as(uid, groups, &home, "file", OFlags::WRONLY);
    let refused = Err(Errno::ACCESS);
    assert_eq!(reads(1001, &[]), refused, "the directory is closed");
    setfacl(&["-m", "u:1001:x,g:2001:x"], &home);
    assert_eq!(reads(1001, &[]), refused, "the file is closed");
    setfacl(&["-m", "u:1001:rw,g:2001:r"], &file);
    assert_eq!((reads(1001, &[]), writes(1001, &[])), (Ok(()), Ok(())));
    assert_eq!((reads(1002, &[2001]), writes(1002, &[2001])), (Ok(()), refused));
    assert_eq!(reads(1002, &[]), refused);
    // A right that `chmod` or a list removes is denied at once.
    fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!((reads(1001, &[]), writes(1001, &[])), (Ok(()), refused));
    setfacl(&["-x", "u:1001"], &file);
    assert_eq!((reads(1001, &[]), reads(1002, &[2001])), (refused, Ok(())));
    mounted.umount();
    bench.check();
    // The lists survive an unmount.
    let mounted = bench.mount(&[]);
    assert_eq!((reads(1001, &[]), reads(1002, &[2001])), (refused, Ok(())));
    mounted.umount();
}

/// The kernel leaves it to the file system to clear the bit, and the request names only one group of the caller.
#[test]
fn a_list_set_by_a_non_member_clears_the_set_group_id_bit() {
    const OWNER: u32 = 65534;
    const GROUP: u32 = 7777;
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() || is_missing("setfacl") {
        return crate::skip("only root can act as another user, and `setfacl` sets the lists");
    }
    let mounted = bench.mount(&[]);
    let (path, source) = (mounted.path("program"), mounted.path("source"));
    fs::write(&source, "").unwrap();
    setfacl(&["-m", "u:9:rwx"], &source);
    let mut list = vec![0; 100];
    let length = rustix::fs::getxattr(&source, ACCESS_LIST, list.as_mut_slice()).unwrap();
    list.truncate(length);
    for (groups, expected) in [(&[1, GROUP][..], 0o2674), (&[1], 0o674)] {
        fs::write(&path, "").unwrap();
        std::os::unix::fs::chown(&path, Some(OWNER), Some(GROUP)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o2755)).unwrap();
        let (file, list) = (File::open(&path).unwrap(), list.clone());
        let set = run_as(OWNER, groups, move || {
            rustix::fs::fsetxattr(&file, ACCESS_LIST, &list, XattrFlags::empty())
        });
        assert_eq!(set, Ok(()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, expected);
    }
    mounted.umount();
    bench.check();
}

#[test]
fn lists_behave_as_on_other_file_systems() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() || is_missing("setfacl") || is_missing("getfacl") {
        return crate::skip("only root can create all compared files, and `setfacl` sets the lists");
    }
    let beside = bench.volume().with_file_name("beside");
    fs::create_dir(&beside).unwrap();
    let expected = run_in(&beside);
    let mounted = bench.mount(&[]);
    let compared = mounted.path("compared");
    fs::create_dir(&compared).unwrap();
    let found = run_in(&compared);
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    mounted.umount();
    bench.check();
    if !expected.status.success() {
        return eprintln!(
            "not compared: {}: {}",
            beside.display(),
            String::from_utf8_lossy(&expected.stderr)
        );
    }
    let lines = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let (expected, found) = (lines(&expected), lines(&found));
    assert!(expected.lines().count() > 1000, "the scripts print enough lines to compare");
    let differ = expected.lines().zip(found.lines()).enumerate().find(|(_, (a, b))| a != b);
    assert_eq!(differ, None, "the first line that differs");
    assert_eq!(expected.lines().count(), found.lines().count());
}

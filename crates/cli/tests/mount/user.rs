//! Mounting without being root, by the rules of `fusermount3`.
//!
//! Root runs it as another user, in a mount namespace of its own where that user may open `/dev/fuse`.

use std::os::unix::fs::chown;
use std::process::Command;

use crate::bench_or_skip;

/// A user and a group that own nothing.
const NOBODY: u32 = 65534;

/// Prepares the namespace, then goes on as the user. `$1`: where the user's files are; `$2`: the program.
const SCRIPT: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /mnt
mknod -m 666 /mnt/fuse c 10 229
mount --bind /mnt/fuse /dev/fuse
cp "$2" /mnt/polder
chmod 755 /mnt/polder
cd "$1"
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
/mnt/polder mkfs volume --size 64M
mkdir mnt
/mnt/polder mount volume mnt -o noexec
echo mine > mnt/file
grep -q " $PWD/mnt rw,nosuid,nodev,noexec,noatime - fuse.polder " /proc/self/mountinfo
test "$(stat -c %u:%g mnt mnt/file | sort -u)" = 65534:65534
test "$(stat -c %a run)" = 700
test "$(stat -c %a run/*.sock)" = 600
/mnt/polder sync mnt
/mnt/polder info mnt
if /mnt/polder mount -o remount,ro mnt 2> complaint; then exit 1; fi
grep -q "only root may remount" complaint
'
if ls mnt 2> complaint; then exit 1; fi
grep -q "Permission denied" complaint
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
/mnt/polder umount mnt
if /mnt/polder mount volume mnt -o allow_other 2> complaint; then exit 1; fi
grep -q user_allow_other complaint
/mnt/polder check volume
'
echo "seen to the end"
"#;

#[test]
fn a_user_mounts_what_is_his() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can prepare the namespace");
    }
    // The home of a test may be in a directory that is closed to others.
    let home = tempfile::Builder::new().prefix("user-").tempdir_in(std::env::temp_dir()).unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", SCRIPT, "sh"])
        .arg(home.path())
        .arg(bench.program())
        .env("POLDER_RUN_DIR", home.path().join("run"))
        .output()
        .unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if complained.contains("Operation not permitted") && !said.contains("volume") {
        return eprintln!("skipped: {complained}");
    }
    assert!(output.status.success() && said.ends_with("seen to the end\n"), "{said}{complained}");
}

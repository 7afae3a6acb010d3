//! Mounts by users other than root, under the rules of `fusermount3`.
//!
//! Root runs the scripts as another user, in a separate mount namespace in which that user may open `/dev/fuse`.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use crate::security::NOBODY;
use crate::{bench_or_skip, security};

/// Prepares the namespace. `$1` is the directory of the user's files, `$2` is the program.
const PREPARE: &str = r#"
set -e
mount --make-rprivate /
# Mounts of other tests. Their daemons could not end as long as this namespace has the mounts too.
for mount in $(sed -n "s/^[^ ]* [^ ]* [^ ]* [^ ]* \([^ ]*\) .* - fuse.polder.*/\1/p" /proc/self/mountinfo); do
    umount --internal-only --no-canonicalize --lazy "$mount" 2> /dev/null || true
done
mount -t tmpfs -o mode=755 tmpfs /mnt
mknod -m 666 /mnt/fuse c 10 229
mount --bind /mnt/fuse /dev/fuse
cp "$2" /mnt/polder
chmod 755 /mnt/polder
cd "$1"
# A script that ends early leaves no daemon behind.
trap "umount -l mnt other 2> /dev/null || true" EXIT
"#;

/// The part that runs as the user.
const SCRIPT: &str = r#"
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
/mnt/polder mkfs volume --size 64M
/mnt/polder mkfs replaced --size 64M
mkdir mnt
/mnt/polder mount volume mnt -o noexec
echo mine > mnt/file
grep -q " $PWD/mnt rw,nosuid,nodev,noexec,noatime - fuse.polder " /proc/self/mountinfo
test "$(stat -c %u:%g mnt mnt/file | sort -u)" = 65534:65534
test "$(stat -c %a run)" = 700
test "$(stat -c %a run/*.sock | sort -u)" = 600
/mnt/polder sync mnt
/mnt/polder info mnt
if /mnt/polder mount -o remount,ro mnt 2> complaint; then exit 1; fi
grep -q "only root may remount" complaint
# A link to a directory of another user, and a volume of another user.
ln -s /usr elsewhere
if /mnt/polder mount foreign elsewhere 2> complaint; then exit 1; fi
grep -q "no write access to mountpoint /usr" complaint
if /mnt/polder mount closed other 2> complaint; then exit 1; fi
grep -qi "permission denied" complaint
# Set-user-ID programs and devices in a volume that another user has created are disabled.
/mnt/polder mount foreign other -o suid,dev
test "$(stat -c %a other/id)" = 4755
test "$(other/id -u)" = 65534
if head -c 1 other/zero 2> complaint; then exit 1; fi
grep -q "Permission denied" complaint
/mnt/polder umount other
# A user cannot open a file by its handle, so the pages are written back one by one before the file is renamed.
/mnt/polder mount replaced other
echo old > other/file
exec 3> other/new
echo new >&3
mv other/new other/file
sync other
kill -9 "$(/mnt/polder info other --json | sed -n "s/.*\"pid\": \([0-9]*\).*/\1/p")"
exec 3>&-
fusermount3 -uz other
test "$(/mnt/polder cat replaced /file)" = new
'
if ls mnt 2> complaint; then exit 1; fi
grep -q "Permission denied" complaint
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
/mnt/polder umount mnt
# A limit of processor time stays, and the volume is closed before it.
bash -c "ulimit -t 1000; trap \"\" CHLD; exec /mnt/polder mount volume mnt" 2> complaint
grep -q "unmounts shortly before the limit" complaint
pid=$(/mnt/polder info --json mnt | sed -n "s/.*\"pid\": \([0-9]*\).*/\1/p")
grep "Max cpu time" /proc/$pid/limits | grep -q " 990 *1000 "
bash -c "trap \"\" CHLD; exec /mnt/polder umount mnt"
if grep -q " $PWD/mnt " /proc/self/mountinfo; then exit 1; fi
if /mnt/polder mount volume mnt -o allow_other 2> complaint; then exit 1; fi
grep -q user_allow_other complaint
/mnt/polder check volume
/mnt/polder zones volume --mount mnt
grep -q " $PWD/mnt ro,nosuid,nodev,noexec,noatime - fuse.polder-zones " /proc/self/mountinfo
test "$(stat -c %u:%g:%a mnt/seq/0)" = 65534:65534:400
head -c 9 mnt/seq/0 | grep -q .
if echo x 2> complaint > mnt/seq/0; then exit 1; fi
grep -q "Read-only file system" complaint
'
# Not even root may read a mount of a user.
if ls mnt/seq 2> complaint; then exit 1; fi
grep -q "Permission denied" complaint
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
fusermount3 -u mnt
/mnt/polder zones volume --mount mnt
/mnt/polder umount mnt
/mnt/polder check volume
'
"#;

/// A second user in the mount of the first: without `allow_other`, and with it, which root permits in `fuse.conf`.
const GRANT: &str = r#"
chmod 755 .
echo user_allow_other > /mnt/fuse.conf
mount --bind /mnt/fuse.conf /etc/fuse.conf
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
umask 022
/mnt/polder mkfs volume --size 64M
mkdir mnt
/mnt/polder mount volume mnt
echo first > mnt/file
'
cat > /mnt/refused <<'END'
# Runs a command that must fail with these words.
if complaint=$("$@" 2>&1 < /dev/null); then echo "allowed: $*" >&2; exit 1; fi
if echo "$complaint" | grep -qi "$words"; then exit 0; fi
echo "$*: $complaint" >&2
exit 1
END
setpriv --reuid=65533 --regid=65533 --clear-groups sh -ec '
ls | grep -q volume
export words="permission denied"
sh /mnt/refused ls mnt
sh /mnt/refused cat mnt/file
'
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
umask 022
/mnt/polder umount mnt
/mnt/polder mount volume mnt -o allow_other
grep -q " $PWD/mnt rw,nosuid,nodev,.*,default_permissions,allow_other" /proc/self/mountinfo
echo secret > mnt/closed
chmod 600 mnt/closed
mkdir mnt/shared
chmod 1777 mnt/shared
echo first > mnt/shared/first
chmod 666 mnt/shared/first
'
test "$(cat mnt/closed)" = secret
setpriv --reuid=65533 --regid=65533 --clear-groups sh -ec '
test "$(cat mnt/file)" = first
echo second > mnt/shared/second
test "$(stat -c %u:%g mnt/shared/second)" = 65533:65533
export words="permission denied"
sh /mnt/refused cat mnt/closed
sh /mnt/refused tee mnt/file
sh /mnt/refused touch mnt/new
sh /mnt/refused /mnt/polder stats mnt
sh /mnt/refused /mnt/polder umount mnt
words="operation not permitted"
sh /mnt/refused rm -f mnt/shared/first
sh /mnt/refused mv -f mnt/shared/first mnt/shared/taken
sh /mnt/refused mv -f mnt/shared/second mnt/shared/first
sh /mnt/refused chmod 644 mnt/closed
rm mnt/shared/second
'
setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
test "$(ls mnt mnt/shared | tr "\n" " ")" = "mnt: closed file shared  mnt/shared: first "
/mnt/polder umount mnt
/mnt/polder check volume
'
"#;

/// Root unmounts the mount of a user while its daemon is stopped.
const STOPPED: &str = r#"
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
as_user mkdir mnt
for how in "" --lazy; do
    as_user /mnt/polder mkfs volume --size 64M --force
    as_user /mnt/polder mount volume mnt -o commit=3600
    pid=$(as_user /mnt/polder info --json mnt | sed -n "s/.*\"pid\": \([0-9]*\).*/\1/p")
    trap "kill -CONT $pid 2> /dev/null || true; umount -l mnt 2> /dev/null || true" EXIT
    # These pages are still dirty, and the kernel waits for the daemon to write them.
    as_user dd if=/dev/zero of=mnt/file bs=1M count=3 2> /dev/null
    kill -STOP $pid
    until grep -q "^State:.T" /proc/$pid/status; do :; done
    status=0
    timeout 60 /mnt/polder umount $how mnt 2> complaint || status=$?
    test $status = "$(test "$how" && echo 0 || echo 1)"
    grep -q "mnt: detached, but its daemon (process $pid) .*kill -CONT $pid" complaint
    if grep -q " $PWD/mnt " /proc/self/mountinfo; then exit 1; fi
    kill -CONT $pid
    while kill -0 $pid 2> /dev/null; do :; done
    as_user /mnt/polder check volume
done
"#;

/// Runs a script in the prepared namespace. The script must reach its end. The test is skipped if mounts are not
/// permitted.
fn succeed(bench: &crate::Bench, home: &Path, script: &str) {
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &format!("{PREPARE}{script}\necho seen to the end"), "sh"])
        .arg(home)
        .arg(bench.program())
        .env("POLDER_RUN_DIR", home.join("run"))
        .output()
        .unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if complained.contains("Operation not permitted") && !said.contains("volume") {
        return crate::skip(&complained);
    }
    assert!(output.status.success() && said.ends_with("seen to the end\n"), "{said}{complained}");
}

/// A directory of the user, in the system's temporary directory: the directory of a bench may be closed to others.
fn home() -> tempfile::TempDir {
    let home = tempfile::Builder::new().prefix("user-").tempdir_in(std::env::temp_dir()).unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    home
}

/// The user's daemon does not run as root. Nevertheless a file that another user creates in the mount belongs to that
/// user.
#[test]
fn modes_decide_what_others_may_do_in_a_mount_by_a_user() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can prepare the namespace");
    }
    succeed(&bench, home().path(), GRANT);
}

/// A stopped daemon of a user does not answer root. Root waited for its lock forever, without a message.
#[test]
fn root_does_not_wait_for_the_stopped_daemon_of_a_user() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can prepare the namespace");
    }
    succeed(&bench, home().path(), STOPPED);
}

#[test]
fn a_user_mounts_own_volumes() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can prepare the namespace");
    }
    let home = home();
    let mounted = bench.mount(&[]);
    security::create_program_and_device(&mounted);
    mounted.umount();
    for (name, owner) in [("foreign", NOBODY), ("closed", 0)] {
        fs::copy(bench.volume(), home.path().join(name)).unwrap();
        chown(home.path().join(name), Some(owner), None).unwrap();
    }
    fs::create_dir(home.path().join("other")).unwrap();
    chown(home.path().join("other"), Some(NOBODY), Some(NOBODY)).unwrap();
    succeed(&bench, home.path(), SCRIPT);
}

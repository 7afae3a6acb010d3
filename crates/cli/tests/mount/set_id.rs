//! Which changes take the right to run as another away from a file: compared with ext4.
//!
//! The kernel leaves it to a FUSE server to drop the set-user-id and set-group-id bits, and says only of some requests
//! whether the caller may keep them.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, Gid, Uid, XattrFlags, copy_file_range, fallocate};
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::bench_or_skip;

const OWNER: u32 = 65534;
const GROUP: u32 = 7777;

/// Who changes a file of [`OWNER`] and [`GROUP`].
#[derive(Clone, Copy, Debug)]
enum Who {
    Root,
    /// Root that has given up `CAP_FSETID`.
    RootWithout,
    Owner,
    OwnerInGroup,
    Stranger,
    StrangerInGroup,
}

const EVERYBODY: [Who; 6] =
    [Who::Root, Who::RootWithout, Who::Owner, Who::OwnerInGroup, Who::Stranger, Who::StrangerInGroup];

impl Who {
    /// For the rest of the thread's life.
    fn become_this_thread(self) -> io::Result<()> {
        let user = match self {
            Who::Root => return Ok(()),
            Who::RootWithout => {
                let mut sets = capabilities(None)?;
                sets.effective.remove(CapabilitySet::FSETID);
                return Ok(set_capabilities(None, sets)?);
            }
            Who::Owner | Who::OwnerInGroup => OWNER,
            Who::Stranger | Who::StrangerInGroup => OWNER - 1,
        };
        let further = if matches!(self, Who::OwnerInGroup | Who::StrangerInGroup) { GROUP } else { 1 };
        set_thread_groups(&[Gid::from_raw(1), Gid::from_raw(further)])?;
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
        set_thread_res_gid(group, group, group)?;
        Ok(set_thread_res_uid(user, user, user)?)
    }
}

/// A file or directory, and for a file a descriptor for writing that root has opened.
struct Victim {
    path: PathBuf,
    open: File,
    source: File,
}

type Change = fn(&Victim) -> io::Result<()>;

/// What changes the owner, or says that it does.
const OF_OWNER: [(&str, Change); 5] = [
    ("chown(-1, -1)", |victim| chown(&victim.path, None, None)),
    ("fchown(-1, -1)", |victim| fchown(&victim.open, None, None)),
    ("chown(owner, -1)", |victim| chown(&victim.path, Some(OWNER), None)),
    ("chown(-1, group)", |victim| chown(&victim.path, None, Some(GROUP))),
    ("fchown(owner, group)", |victim| fchown(&victim.open, Some(OWNER), Some(GROUP))),
];

/// What changes the contents.
const OF_CONTENTS: [(&str, Change); 10] = [
    ("write", |victim| victim.open.write_all_at(b"x", 3)),
    ("truncate", |victim| File::options().write(true).open(&victim.path)?.set_len(10)),
    ("ftruncate to be shorter", |victim| victim.open.set_len(10)),
    ("ftruncate to what it is", |victim| victim.open.set_len(9000)),
    ("ftruncate to be longer", |victim| victim.open.set_len(20_000)),
    ("open with O_TRUNC", |victim| File::create(&victim.path).map(drop)),
    ("fallocate", |victim| Ok(fallocate(&victim.open, FallocateFlags::empty(), 0, 20_000)?)),
    ("fallocate beyond", |victim| Ok(fallocate(&victim.open, FallocateFlags::KEEP_SIZE, 0, 20_000)?)),
    ("punch a hole", |victim| {
        Ok(fallocate(&victim.open, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)?)
    }),
    ("copy_file_range", |victim| {
        Ok(copy_file_range(&victim.source, None, &victim.open, None, 5000).map(drop)?)
    }),
];

/// What changes the bits themselves, or nothing of that.
const OF_BITS: [(&str, Change); 5] = [
    ("chmod", |victim| {
        let mode = fs::metadata(&victim.path)?.permissions().mode();
        fs::set_permissions(&victim.path, Permissions::from_mode(mode & 0o7777))
    }),
    ("access list that is a mode", |victim| {
        set_list(&victim.path, &[(1, 7, NOBODY), (4, 7, NOBODY), (0x20, 7, NOBODY)])
    }),
    ("access list with a user", |victim| {
        let named = [(2, 4, 5), (4, 6, NOBODY), (0x10, 6, NOBODY), (0x20, 4, NOBODY)];
        set_list(&victim.path, &[&[(1, 6, NOBODY)], &named[..]].concat())
    }),
    ("utimensat", |victim| victim.open.set_modified(std::time::UNIX_EPOCH)),
    ("setxattr", |victim| {
        Ok(rustix::fs::setxattr(&victim.path, "user.name", b"value", XattrFlags::empty())?)
    }),
];

const NOBODY: u32 = u32::MAX;

fn set_list(path: &Path, entries: &[(u16, u16, u32)]) -> io::Result<()> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    Ok(rustix::fs::setxattr(path, "system.posix_acl_access", &bytes, XattrFlags::empty())?)
}

/// Changes a new file or directory; the error or none, and the mode that is left.
fn outcome(place: &Path, is_directory: bool, mode: u32, who: Who, change: Change) -> (Option<i32>, u32) {
    let path = place.join(if is_directory { "directory" } else { "file" });
    let options = if is_directory {
        fs::remove_dir(&path).ok();
        fs::create_dir(&path).unwrap();
        File::options().read(true).clone()
    } else {
        fs::remove_file(&path).ok();
        fs::write(&path, [1; 9000]).unwrap();
        File::options().read(true).write(true).clone()
    };
    chown(&path, Some(OWNER), Some(GROUP)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    let open = options.open(&path).unwrap();
    let victim = Arc::new(Victim { path, open, source: File::open(place.join("source")).unwrap() });
    let changed = Arc::clone(&victim);
    let thread = rt::thread::spawn("whoever", move || {
        who.become_this_thread()?;
        change(&changed)
    });
    let error = thread.unwrap().join().unwrap().err().map(|error| error.raw_os_error().unwrap());
    (error, victim.open.metadata().unwrap().mode() & 0o7777)
}

/// A directory that everybody can reach files in.
fn place(root: &Path) -> PathBuf {
    let place = root.join("place");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("source"), [7; 9000]).unwrap();
    fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
    place
}

/// An ext4 of its own; unmounted when dropped.
struct Ext4(PathBuf);

impl Ext4 {
    fn new(place: &Path) -> Result<Ext4, String> {
        let (image, directory) = (place.join("ext4.image"), place.join("ext4"));
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(&directory).unwrap();
        for (program, words) in [("mkfs.ext4", &["-q", "-F"][..]), ("mount", &["-o", "loop"])] {
            let mut command = Command::new(program);
            command.args(words).arg(&image);
            if program == "mount" {
                command.arg(&directory);
            }
            let output = command.output().map_err(|error| format!("{program}: {error}"))?;
            if !output.status.success() {
                return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        Ok(Ext4(directory))
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// `chown(path, -1, -1)` left the bits where any other `chown` takes them: the kernel asks for nothing there but a new time
/// of change. For strangers it succeeded, where elsewhere it is refused. Root that had given up `CAP_FSETID` kept the
/// bits of whatever it wrote over.
#[test]
fn set_id_bits_go_where_they_go_on_ext4() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can change a file as somebody else");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o755)).unwrap();
    let ext4 = match Ext4::new(elsewhere.path()) {
        Ok(ext4) => ext4,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let parent = bench.directory();
    fs::set_permissions(parent.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let mounted = bench.mount(&[]);
    let (ours, theirs) = (place(&mounted.root()), place(&ext4.0));
    let of_files = [&OF_OWNER[..], &OF_CONTENTS, &OF_BITS].concat();
    let of_directories = [&OF_OWNER[..], &OF_BITS].concat();
    let (mut kept, mut dropped) = (0, 0);
    for (is_directory, changes) in [(false, of_files), (true, of_directories)] {
        for (name, change) in changes {
            for who in EVERYBODY {
                for mode in [0o6777, 0o6766, 0o4755, 0o2755, 0o2766, 0o755] {
                    let found = outcome(&ours, is_directory, mode, who, change);
                    let expected = outcome(&theirs, is_directory, mode, who, change);
                    let what = if is_directory { "directory" } else { "file" };
                    assert_eq!(found, expected, "{name} of a {what} of mode {mode:o} by {who:?}");
                    *(if found.1 & 0o6000 == mode & 0o6000 { &mut kept } else { &mut dropped }) += 1;
                }
            }
        }
    }
    assert!(kept > 100 && dropped > 100, "{kept} kept, {dropped} dropped");
    mounted.umount();
    bench.check();
}

/// The same without anything to compare with.
#[test]
fn a_change_of_owner_that_names_nobody_drops_set_id_bits() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can change a file as somebody else");
    }
    let mounted = bench.mount(&[]);
    let place = place(&mounted.root());
    let (_, fchown) = OF_OWNER[1];
    const PERM: Option<i32> = Some(rustix::io::Errno::PERM.raw_os_error());
    for (mode, who, expected) in [
        (0o6777, Who::Root, (None, 0o777)),
        (0o6766, Who::Root, (None, 0o2766)),
        (0o6777, Who::OwnerInGroup, (None, 0o777)),
        (0o6766, Who::OwnerInGroup, (None, 0o2766)),
        (0o6766, Who::Owner, (None, 0o766)),
        (0o6766, Who::Stranger, (PERM, 0o6766)),
        (0o2766, Who::StrangerInGroup, (None, 0o2766)),
        (0o755, Who::Stranger, (None, 0o755)),
    ] {
        let found = outcome(&place, false, mode, who, fchown);
        assert_eq!(found, expected, "mode {mode:o} by {who:?}");
        assert_eq!(outcome(&place, true, 0o6777, who, fchown), (None, 0o6777), "a directory, by {who:?}");
    }
    mounted.umount();
    bench.check();
}

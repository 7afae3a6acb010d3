//! Which changes of a file clear its set-user-ID and set-group-ID bits: compared with ext4.
//!
//! The kernel leaves it to a FUSE server to clear these bits. Only some requests say whether the caller may keep them.

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

/// The caller that changes a file of [`OWNER`] and [`GROUP`].
#[derive(Clone, Copy, Debug)]
enum Caller {
    Root,
    /// Root without `CAP_FSETID`.
    RootWithoutFsetid,
    Owner,
    OwnerInGroup,
    Stranger,
    StrangerInGroup,
}

const CALLERS: [Caller; 6] = [
    Caller::Root,
    Caller::RootWithoutFsetid,
    Caller::Owner,
    Caller::OwnerInGroup,
    Caller::Stranger,
    Caller::StrangerInGroup,
];

impl Caller {
    /// Gives the thread the caller's IDs and capabilities until the thread ends.
    fn become_this_thread(self) -> io::Result<()> {
        let user = match self {
            Caller::Root => return Ok(()),
            Caller::RootWithoutFsetid => {
                let mut sets = capabilities(None)?;
                sets.effective.remove(CapabilitySet::FSETID);
                return Ok(set_capabilities(None, sets)?);
            }
            Caller::Owner | Caller::OwnerInGroup => OWNER,
            Caller::Stranger | Caller::StrangerInGroup => OWNER - 1,
        };
        let further = if matches!(self, Caller::OwnerInGroup | Caller::StrangerInGroup) { GROUP } else { 1 };
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

/// Changes of the owner or the group. Some of them name neither.
const OWNER_CHANGES: [(&str, Change); 5] = [
    ("chown(-1, -1)", |victim| chown(&victim.path, None, None)),
    ("fchown(-1, -1)", |victim| fchown(&victim.open, None, None)),
    ("chown(owner, -1)", |victim| chown(&victim.path, Some(OWNER), None)),
    ("chown(-1, group)", |victim| chown(&victim.path, None, Some(GROUP))),
    ("fchown(owner, group)", |victim| fchown(&victim.open, Some(OWNER), Some(GROUP))),
];

/// Changes of the contents.
const CONTENT_CHANGES: [(&str, Change); 10] = [
    ("write", |victim| victim.open.write_all_at(b"x", 3)),
    ("truncate", |victim| File::options().write(true).open(&victim.path)?.set_len(10)),
    ("ftruncate to a smaller size", |victim| victim.open.set_len(10)),
    ("ftruncate to the same size", |victim| victim.open.set_len(9000)),
    ("ftruncate to a larger size", |victim| victim.open.set_len(20_000)),
    ("open with O_TRUNC", |victim| File::create(&victim.path).map(drop)),
    ("fallocate", |victim| Ok(fallocate(&victim.open, FallocateFlags::empty(), 0, 20_000)?)),
    ("fallocate beyond the end", |victim| Ok(fallocate(&victim.open, FallocateFlags::KEEP_SIZE, 0, 20_000)?)),
    ("punch a hole", |victim| {
        Ok(fallocate(&victim.open, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)?)
    }),
    ("copy_file_range", |victim| {
        Ok(copy_file_range(&victim.source, None, &victim.open, None, 5000).map(drop)?)
    }),
];

/// Changes of the mode, and changes of other attributes.
const ATTRIBUTE_CHANGES: [(&str, Change); 5] = [
    ("chmod", |victim| {
        let mode = fs::metadata(&victim.path)?.permissions().mode();
        fs::set_permissions(&victim.path, Permissions::from_mode(mode & 0o7777))
    }),
    ("access list equivalent to a mode", |victim| {
        set_list(&victim.path, &[(1, 7, NO_ID), (4, 7, NO_ID), (0x20, 7, NO_ID)])
    }),
    ("access list with a user", |victim| {
        let named = [(2, 4, 5), (4, 6, NO_ID), (0x10, 6, NO_ID), (0x20, 4, NO_ID)];
        set_list(&victim.path, &[&[(1, 6, NO_ID)], &named[..]].concat())
    }),
    ("utimensat", |victim| victim.open.set_modified(std::time::UNIX_EPOCH)),
    ("setxattr", |victim| {
        Ok(rustix::fs::setxattr(&victim.path, "user.name", b"value", XattrFlags::empty())?)
    }),
];

/// The ID of an entry that names neither a user nor a group.
const NO_ID: u32 = u32::MAX;

fn set_list(path: &Path, entries: &[(u16, u16, u32)]) -> io::Result<()> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    Ok(rustix::fs::setxattr(path, "system.posix_acl_access", &bytes, XattrFlags::empty())?)
}

/// Changes a new file or directory. Returns the error, if any, and the resulting mode.
fn outcome(
    place: &Path,
    is_directory: bool,
    mode: u32,
    caller: Caller,
    change: Change,
) -> (Option<i32>, u32) {
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
    let thread = rt::thread::spawn("caller", move || {
        caller.become_this_thread()?;
        change(&changed)
    });
    let error = thread.unwrap().join().unwrap().err().map(|error| error.raw_os_error().unwrap());
    (error, victim.open.metadata().unwrap().mode() & 0o7777)
}

/// A directory in which every user can open files.
fn place(root: &Path) -> PathBuf {
    let place = root.join("place");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("source"), [7; 9000]).unwrap();
    fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
    place
}

/// A new ext4 file system. It is unmounted when dropped.
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

/// `chown(path, -1, -1)` kept the bits, unlike every other `chown`: the kernel then requests only a new ctime. It also
/// succeeded for strangers, although other file systems refuse it. When root without `CAP_FSETID` wrote to a file, the
/// file kept the bits.
#[test]
fn set_id_bits_are_cleared_as_on_ext4() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can change a file as another user");
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
    let (polder, reference) = (place(&mounted.root()), place(&ext4.0));
    let file_changes = [&OWNER_CHANGES[..], &CONTENT_CHANGES, &ATTRIBUTE_CHANGES].concat();
    let directory_changes = [&OWNER_CHANGES[..], &ATTRIBUTE_CHANGES].concat();
    let (mut kept, mut cleared) = (0, 0);
    for (is_directory, changes) in [(false, file_changes), (true, directory_changes)] {
        for (name, change) in changes {
            for caller in CALLERS {
                for mode in [0o6777, 0o6766, 0o4755, 0o2755, 0o2766, 0o755] {
                    let found = outcome(&polder, is_directory, mode, caller, change);
                    let expected = outcome(&reference, is_directory, mode, caller, change);
                    let type_name = if is_directory { "directory" } else { "file" };
                    assert_eq!(found, expected, "{name} of a {type_name} with mode {mode:o} by {caller:?}");
                    *(if found.1 & 0o6000 == mode & 0o6000 { &mut kept } else { &mut cleared }) += 1;
                }
            }
        }
    }
    assert!(kept > 100 && cleared > 100, "{kept} kept, {cleared} cleared");
    mounted.umount();
    bench.check();
}

/// The same without a comparison, for machines where ext4 cannot be mounted.
#[test]
fn a_chown_without_owner_and_group_clears_set_id_bits() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can change a file as another user");
    }
    let mounted = bench.mount(&[]);
    let place = place(&mounted.root());
    let (_, fchown) = OWNER_CHANGES[1];
    const PERM: Option<i32> = Some(rustix::io::Errno::PERM.raw_os_error());
    for (mode, caller, expected) in [
        (0o6777, Caller::Root, (None, 0o777)),
        (0o6766, Caller::Root, (None, 0o2766)),
        (0o6777, Caller::OwnerInGroup, (None, 0o777)),
        (0o6766, Caller::OwnerInGroup, (None, 0o2766)),
        (0o6766, Caller::Owner, (None, 0o766)),
        (0o6766, Caller::Stranger, (PERM, 0o6766)),
        (0o2766, Caller::StrangerInGroup, (None, 0o2766)),
        (0o755, Caller::Stranger, (None, 0o755)),
    ] {
        let found = outcome(&place, false, mode, caller, fchown);
        assert_eq!(found, expected, "mode {mode:o} by {caller:?}");
        assert_eq!(
            outcome(&place, true, 0o6777, caller, fchown),
            (None, 0o6777),
            "a directory, by {caller:?}"
        );
    }
    mounted.umount();
    bench.check();
}

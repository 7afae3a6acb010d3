//! Permissions as the kernel enforces them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, StatxFlags, Uid, XattrFlags, copy_file_range, fallocate,
    openat, statx,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::bench_or_skip;

const ACCESS_LIST: &str = "system.posix_acl_access";

/// An access list as `setfacl` stores it: version 2, then tag, permissions and ID of each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The kernel used its cached mode for a day. Other users could still read a file after `setfacl` had denied it to
/// them.
#[test]
fn an_access_list_changes_the_mode_at_once() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    const NO_ID: u32 = u32::MAX;
    for other in [0, 4, 0, 6] {
        fs::write(&path, "x").unwrap();
        let open = File::open(&path).unwrap();
        let before = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let list = list(&[(1, 6, NO_ID), (4, 4, NO_ID), (0x20, other, NO_ID)]);
        rustix::fs::setxattr(&path, ACCESS_LIST, &list, XattrFlags::empty()).unwrap();
        let expected = 0o640 | u32::from(other);
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o777, expected, "was {before:o}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, expected, "was {before:o}");
        let kept = rustix::fs::getxattr(&path, ACCESS_LIST, [0; 100].as_mut_slice());
        assert_eq!(kept, Err(rustix::io::Errno::NODATA), "the mode is equivalent to the list");
    }
    rustix::fs::removexattr(&path, ACCESS_LIST).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o646);
    mounted.umount();
    bench.check();
}

/// The mode that the kernel uses, even if its other cached attributes are invalid: to run a program, the kernel reads
/// only the mode.
fn effective_mode(path: &Path) -> u16 {
    statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode & 0o7777
}

/// The files that a change needs: the program, a file to copy from, and the directory of both.
struct Scene {
    program: File,
    source: File,
    directory: File,
}

impl Scene {
    fn open_truncating(&self) -> std::io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::TRUNC;
        Ok(openat(&self.directory, "program", flags, Mode::empty())?.into())
    }
}

/// The caller that changes a file of root and root's group.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Root,
    /// A user with root's group as a supplementary group.
    Member,
    Stranger,
}

impl Caller {
    /// Gives the thread the caller's IDs until the thread ends.
    fn become_this_thread(self) -> std::io::Result<()> {
        let (user, own) = (Uid::from_raw(65534), Gid::from_raw(65534));
        match self {
            Caller::Root => return Ok(()),
            Caller::Member => set_thread_groups(&[Gid::from_raw(1), Gid::ROOT])?,
            Caller::Stranger => set_thread_groups(&[Gid::from_raw(1)])?,
        }
        set_thread_res_gid(own, own, own)?;
        Ok(set_thread_res_uid(user, user, user)?)
    }
}

/// The mode before, the caller that changes the contents, and the mode afterwards.
const MODES: [(u32, Caller, u16); 6] = [
    (0o6777, Caller::Root, 0o6777),
    (0o6777, Caller::Member, 0o777),
    (0o6777, Caller::Stranger, 0o777),
    (0o6666, Caller::Root, 0o6666),
    (0o6666, Caller::Member, 0o2666),
    (0o6666, Caller::Stranger, 0o666),
];

/// With the features that Polder negotiates, the kernel leaves it to the file system to clear the set-ID bits.
/// `fallocate` and `copy_file_range` did not clear them: a user with write access to a set-user-ID program could put
/// zeros or other code into it, and the program still ran as its owner. A file that is not executable kept the
/// set-group-ID bit of a group of which the writer was not a member, and which the writer could not have set. `open` with
/// O_TRUNC cleared the bits but did not invalidate the kernel's cached mode: the kernel ran the new contents as the old
/// owner until the next `stat`.
#[test]
fn changing_a_program_clears_its_set_id_bits() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can change a file as another user");
    }
    let mounted = bench.mount(&[]);
    let path = mounted.path("program");
    fs::write(mounted.path("source"), [7; 9000]).unwrap();
    const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
    type Change = fn(&Scene) -> std::io::Result<()>;
    let changes: [(&str, Change); 7] = [
        ("write", |scene| scene.program.write_all_at(b"x", 3)),
        ("ftruncate", |scene| scene.program.set_len(10)),
        ("open to truncate", |scene| scene.open_truncating().map(drop)),
        ("open to truncate, write", |scene| scene.open_truncating()?.write_all_at(&[2; 9000], 0)),
        ("fallocate", |scene| Ok(fallocate(&scene.program, FallocateFlags::empty(), 0, 20_000)?)),
        ("fallocate -p", |scene| Ok(fallocate(&scene.program, PUNCH, 0, 4096)?)),
        ("copy_file_range", |scene| {
            Ok(copy_file_range(&scene.source, None, &scene.program, None, 5000).map(drop)?)
        }),
    ];
    for (name, change) in changes {
        for (mode, caller, expected) in MODES {
            fs::write(&path, [1; 9000]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let scene = Scene {
                program: File::options().read(true).write(true).open(&path).unwrap(),
                source: File::open(mounted.path("source")).unwrap(),
                directory: File::open(mounted.root()).unwrap(),
            };
            let changed = rt::thread::spawn("caller", move || {
                caller.become_this_thread()?;
                change(&scene)
            });
            changed.unwrap().join().unwrap().unwrap();
            assert_eq!(effective_mode(&path), expected, "{name} of {mode:o} by {caller:?}");
            let left = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(left, u32::from(expected), "{name} of {mode:o} by {caller:?}");
        }
    }
    mounted.umount();
    bench.check();
}

/// The bit was cleared if the caller had the group only as a supplementary group, which no request names.
#[test]
fn a_group_member_creates_set_group_id_programs() {
    const USER: u32 = 65534;
    const GROUP: u32 = 7777;
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can be in any group");
    }
    let mounted = bench.mount(&[]);
    let directory = mounted.path("shared");
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, None, Some(GROUP)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2777)).unwrap();
    for (name, group, expected) in [("member", GROUP, 0o2755), ("stranger", GROUP + 1, 0o755)] {
        let within = File::open(&directory).unwrap();
        let made = rt::thread::spawn("creator", move || {
            let (user, own) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_groups(&[Gid::from_raw(1), Gid::from_raw(group)])?;
            set_thread_res_gid(own, own, own)?;
            set_thread_res_uid(user, user, user)?;
            let mode = Mode::from_raw_mode(0o2755);
            openat(&within, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode)
        });
        let made = File::from(made.unwrap().join().unwrap().unwrap()).metadata().unwrap();
        assert_eq!((made.mode() & 0o7777, made.gid(), made.uid()), (expected, GROUP, USER), "{name}");
    }
    mounted.umount();
    bench.check();
}

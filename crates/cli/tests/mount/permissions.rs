//! Who may do what through the kernel.

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

/// An access list as `setfacl` hands it over: version 2, then tag, permissions and id of each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The kernel went on for a day with the mode that it remembered: a file that `setfacl` had closed to others
/// could be read by them.
#[test]
fn an_access_list_changes_the_mode_at_once() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    const NOBODY: u32 = u32::MAX;
    for other in [0, 4, 0, 6] {
        fs::write(&path, "x").unwrap();
        let open = File::open(&path).unwrap();
        let before = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let list = list(&[(1, 6, NOBODY), (4, 4, NOBODY), (0x20, other, NOBODY)]);
        rustix::fs::setxattr(&path, ACCESS_LIST, &list, XattrFlags::empty()).unwrap();
        let expected = 0o640 | u32::from(other);
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o777, expected, "was {before:o}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, expected, "was {before:o}");
        let kept = rustix::fs::getxattr(&path, ACCESS_LIST, [0; 100].as_mut_slice());
        assert_eq!(kept, Err(rustix::io::Errno::NODATA), "the mode says all of it");
    }
    rustix::fs::removexattr(&path, ACCESS_LIST).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o646);
    mounted.umount();
    bench.check();
}

/// The mode that the kernel acts on, also when it has forgotten other attributes: what runs a program asks for
/// no more than this.
fn mode_acted_on(path: &Path) -> u16 {
    statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode & 0o7777
}

/// What a change works on: the program, something to copy from, and the directory of both.
struct Scene {
    program: File,
    source: File,
    directory: File,
}

impl Scene {
    fn truncate_by_opening(&self) -> std::io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::TRUNC;
        Ok(openat(&self.directory, "program", flags, Mode::empty())?.into())
    }
}

/// Who changes a file of root's and of root's group.
#[derive(Clone, Copy, Debug)]
enum Who {
    Root,
    /// Somebody in root's group, by one of his further groups.
    Member,
    Stranger,
}

impl Who {
    /// For the rest of the thread's life.
    fn become_this_thread(self) -> std::io::Result<()> {
        let (user, own) = (Uid::from_raw(65534), Gid::from_raw(65534));
        match self {
            Who::Root => return Ok(()),
            Who::Member => set_thread_groups(&[Gid::from_raw(1), Gid::ROOT])?,
            Who::Stranger => set_thread_groups(&[Gid::from_raw(1)])?,
        }
        set_thread_res_gid(own, own, own)?;
        Ok(set_thread_res_uid(user, user, user)?)
    }
}

/// The mode before, who changes the contents, and the mode behind.
const WHAT_IS_LEFT: [(u32, Who, u16); 6] = [
    (0o6777, Who::Root, 0o6777),
    (0o6777, Who::Member, 0o777),
    (0o6777, Who::Stranger, 0o777),
    (0o6666, Who::Root, 0o6666),
    (0o6666, Who::Member, 0o2666),
    (0o6666, Who::Stranger, 0o666),
];

/// With what we ask of the kernel it leaves it to us to drop these bits. For `fallocate` and `copy_file_range`
/// we did not: whoever may write a program that runs as another could put zeros or other code in it and
/// have it still run as that other. A file that does not run kept the bit of a group to which whoever wrote it did not
/// belong, and that he could not have set. For `open` with O_TRUNC we did, and did not tell the kernel: it ran what was
/// written then as that other, until somebody called `stat`.
#[test]
fn whoever_changes_a_program_takes_the_right_to_run_as_another_from_it() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can change a file as somebody else");
    }
    let mounted = bench.mount(&[]);
    let path = mounted.path("program");
    fs::write(mounted.path("source"), [7; 9000]).unwrap();
    const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
    type Change = fn(&Scene) -> std::io::Result<()>;
    let changes: [(&str, Change); 7] = [
        ("write", |scene| scene.program.write_all_at(b"x", 3)),
        ("ftruncate", |scene| scene.program.set_len(10)),
        ("open to truncate", |scene| scene.truncate_by_opening().map(drop)),
        ("open to truncate, write", |scene| scene.truncate_by_opening()?.write_all_at(&[2; 9000], 0)),
        ("fallocate", |scene| Ok(fallocate(&scene.program, FallocateFlags::empty(), 0, 20_000)?)),
        ("fallocate -p", |scene| Ok(fallocate(&scene.program, PUNCH, 0, 4096)?)),
        ("copy_file_range", |scene| {
            Ok(copy_file_range(&scene.source, None, &scene.program, None, 5000).map(drop)?)
        }),
    ];
    for (name, change) in changes {
        for (mode, who, expected) in WHAT_IS_LEFT {
            fs::write(&path, [1; 9000]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let scene = Scene {
                program: File::options().read(true).write(true).open(&path).unwrap(),
                source: File::open(mounted.path("source")).unwrap(),
                directory: File::open(mounted.root()).unwrap(),
            };
            let changed = rt::thread::spawn("whoever", move || {
                who.become_this_thread()?;
                change(&scene)
            });
            changed.unwrap().join().unwrap().unwrap();
            assert_eq!(mode_acted_on(&path), expected, "{name} of {mode:o} by {who:?}");
            let left = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(left, u32::from(expected), "{name} of {mode:o} by {who:?}");
        }
    }
    mounted.umount();
    bench.check();
}

/// Who belongs to a group by one of his further groups, which no request names, lost the bit.
#[test]
fn who_is_in_a_group_makes_programs_that_run_as_that_group() {
    const SOMEBODY: u32 = 65534;
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
        let made = rt::thread::spawn("somebody", move || {
            let (user, own) = (Uid::from_raw(SOMEBODY), Gid::from_raw(SOMEBODY));
            set_thread_groups(&[Gid::from_raw(1), Gid::from_raw(group)])?;
            set_thread_res_gid(own, own, own)?;
            set_thread_res_uid(user, user, user)?;
            let mode = Mode::from_raw_mode(0o2755);
            openat(&within, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode)
        });
        let made = File::from(made.unwrap().join().unwrap().unwrap()).metadata().unwrap();
        assert_eq!((made.mode() & 0o7777, made.gid(), made.uid()), (expected, GROUP, SOMEBODY), "{name}");
    }
    mounted.umount();
    bench.check();
}

//! Extended attributes.

use std::collections::BTreeSet;

use fs::{Caller, Changes, FallocateMode, FsError, InodeNo, Kind, XATTR_VALUE_MAX};

use emulated::Spec;

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

fn set(volume: &Volume, inode: InodeNo, name: &str, value: &[u8]) -> fs::Result<()> {
    volume.fs.set_xattr(&Caller::root(), inode, name.as_bytes(), value, false, false)
}

fn get(volume: &Volume, inode: InodeNo, name: &str) -> fs::Result<Vec<u8>> {
    volume.fs.get_xattr(&Caller::root(), inode, name.as_bytes())
}

#[test]
fn attributes_of_any_length_are_stored_replaced_and_removed() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    for length in [0, 1, 4000, 5000, 5200, 20_000, XATTR_VALUE_MAX, 10] {
        set(&volume, inode, "user.changing", &pattern(1, length)).unwrap();
        set(&volume, inode, &format!("user.n{length}"), &pattern(2, length)).unwrap();
        assert!(get(&volume, inode, "user.changing").unwrap() == pattern(1, length), "{length}");
    }
    let too_long = set(&volume, inode, "user.changing", &pattern(1, XATTR_VALUE_MAX + 1));
    assert_eq!(too_long, Err(FsError::ArgumentTooLong));
    let volume = volume.remount();
    assert_eq!(volume.fs.list_xattrs(&Caller::root(), inode).unwrap().len(), 9);
    assert!(get(&volume, inode, "user.n65536").unwrap() == pattern(2, XATTR_VALUE_MAX));
    volume.settle_and_check();
    for name in volume.fs.list_xattrs(&Caller::root(), inode).unwrap() {
        volume.fs.remove_xattr(&Caller::root(), inode, &name).unwrap();
    }
    assert_eq!(volume.fs.list_xattrs(&Caller::root(), inode).unwrap(), [[0u8; 0]; 0]);
    assert_eq!(get(&volume, inode, "user.changing"), Err(FsError::NoAttribute));
    assert_eq!(volume.fs.remove_xattr(&Caller::root(), inode, b"user.x"), Err(FsError::NoAttribute));
    volume.settle_and_check();
}

/// With small zones, transactions are short. A value longer than one ended the daemon: every user who could set an
/// attribute could take the volume away from all others. Now it is refused, and the present value stays.
#[test]
fn a_value_that_is_longer_than_a_transaction_is_refused() {
    for (spec, at_least) in [
        (Spec::new(4096, 64, 64), 23 << 10),
        (Spec::new(4096, 40, 128), 47 << 10),
        (Spec::new(4096, 40, 256), XATTR_VALUE_MAX),
        (Spec::new(512, 64, 512), 20 << 10),
        (Spec::new(512, 48, 1024), 41 << 10),
    ] {
        let volume = Volume::on(spec.clone());
        let inode = volume.file(ROOT, "f").inode();
        // The longest name, and the longest record.
        volume.write(&volume.open(inode), 0, &pattern(3, 2048));
        let name = format!("user.{:0250}", 1);
        let set_longest = |seed: u8| {
            let fits = |length: &usize| match set(&volume, inode, &name, &pattern(seed, *length)) {
                Err(error) => {
                    assert_eq!(error, FsError::NoSpace, "{length} bytes, {spec:?}");
                    false
                }
                Ok(()) => true,
            };
            (0..=XATTR_VALUE_MAX).rev().step_by(64).find(fits).expect("short ones always fit")
        };
        let longest = set_longest(1);
        assert!(longest >= at_least && (longest == XATTR_VALUE_MAX) == (at_least == XATTR_VALUE_MAX));
        // Replaced by values that are as long, shorter, and too long.
        assert_eq!(set_longest(2), longest);
        for length in [longest / 2, 0, longest] {
            set(&volume, inode, &name, &pattern(4, length)).unwrap();
        }
        if longest < XATTR_VALUE_MAX {
            assert_eq!(set(&volume, inode, &name, &pattern(5, XATTR_VALUE_MAX)), Err(FsError::NoSpace));
        }
        volume.fs.sync().unwrap();
        let volume = volume.kill();
        assert!(get(&volume, inode, &name).unwrap() == pattern(4, longest));
        volume.fs.remove_xattr(&Caller::root(), inode, name.as_bytes()).unwrap();
        volume.settle_and_check();
    }
}

/// The other largest contents of one transaction fit with the smallest zones: both access lists of a new directory,
/// and a link to the longest path.
#[test]
fn the_longest_of_everything_else_fits_where_zones_are_smallest() {
    for spec in [Spec::new(4096, 64, 64), Spec::new(512, 64, 512)] {
        let volume = Volume::on(spec);
        let (root, name) = (Caller::root(), "n".repeat(255));
        let above = volume.directory(ROOT, "above");
        let entry =
            |tag: u16, id: u32| [&tag.to_le_bytes()[..], &7u16.to_le_bytes(), &id.to_le_bytes()].concat();
        let named = (0..507).flat_map(|id| entry(2, id));
        let rest = [4, 16, 32].into_iter().flat_map(|tag| entry(tag, u32::MAX));
        let list: Vec<u8> =
            2u32.to_le_bytes().into_iter().chain(entry(1, u32::MAX)).chain(named).chain(rest).collect();
        assert_eq!(list.len(), 4092, "8 bytes more would be too many");
        set(&volume, above, "system.posix_acl_default", &list).unwrap();
        let made = volume.directory(above, &name);
        assert_eq!(get(&volume, made, "system.posix_acl_default").unwrap(), list);
        assert!(get(&volume, made, "system.posix_acl_access").is_ok());
        let link = volume.fs.symlink(&root, ROOT, name.as_bytes(), &[b'a'; 4095]).unwrap().inode;
        let most = (0..=XATTR_VALUE_MAX).rev().step_by(512);
        let fits = |length: &usize| set(&volume, link, "trusted.long", &pattern(1, *length)).is_ok();
        assert!(most.into_iter().find(fits).is_some_and(|length| length > 16 << 10));
        volume.settle_and_check();
    }
}

#[test]
fn creating_and_replacing_can_be_required() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    let set = |create, replace| volume.fs.set_xattr(&Caller::root(), inode, b"user.a", b"1", create, replace);
    assert_eq!(set(false, true), Err(FsError::NoAttribute));
    assert_eq!(set(true, false), Ok(()));
    assert_eq!(set(true, false), Err(FsError::Exists));
    assert_eq!(set(false, true), Ok(()));
}

/// The kernel requests all names at once, in at most 64 KiB: an inode with more names could not be listed, so no
/// program could have copied or saved it with its attributes.
#[test]
fn all_names_fit_in_one_list() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    let name = |n: usize| format!("user.{n:0250}");
    let set_all = |names: std::ops::Range<usize>| names.map(|n| set(&volume, inode, &name(n), b"")).collect();
    let done: fs::Result<Vec<()>> = set_all(0..255);
    assert_eq!(done.map(|done| done.len()), Ok(255), "255 names of 255 bytes and a NUL");
    assert_eq!(set(&volume, inode, &name(255), b""), Err(FsError::NoSpace));
    assert_eq!(set(&volume, inode, &name(17), b"what is there can be replaced"), Ok(()));
    // The rest is space for the lifetime, and for this one.
    let rest = 256 - "user.polder.lifetime".len() - 1 - "user.".len() - 1;
    let fits = format!("user.{:0rest$}", 7);
    assert_eq!(set(&volume, inode, &format!("{fits}8"), b""), Err(FsError::NoSpace));
    assert_eq!(set(&volume, inode, &fits, b""), Ok(()));
    assert_eq!(set(&volume, inode, "user.a", b""), Err(FsError::NoSpace));
    assert_eq!(set(&volume, inode, "user.polder.lifetime", b"short"), Ok(()));
    let bytes: usize =
        volume.fs.list_xattrs(&Caller::root(), inode).unwrap().iter().map(|name| name.len() + 1).sum();
    assert_eq!(bytes, 64 << 10);
    volume.settle_and_check();
}

#[test]
fn attributes_are_deleted_with_the_inode() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    (0..200).for_each(|n| set(&volume, inode, &format!("user.{n}"), &pattern(1, 100)).unwrap());
    let names: BTreeSet<Vec<u8>> =
        volume.fs.list_xattrs(&Caller::root(), inode).unwrap().into_iter().collect();
    assert_eq!(names.len(), 200);
    volume.unlink(ROOT, "f").unwrap();
    volume.settle_and_check();
}

/// Names of trusted attributes were shown to every user.
#[test]
fn each_namespace_has_its_rules() {
    let volume = Volume::new();
    let root = Caller::root();
    let user = Caller::user(10, 20);
    let inode = volume.file(ROOT, "f").inode();
    let link = volume.fs.symlink(&root, ROOT, b"l", b"target").unwrap().inode;
    let as_user = |inode, name: &[u8]| volume.fs.set_xattr(&user, inode, name, b"v", false, false);
    assert_eq!(as_user(inode, b"user.a"), Err(FsError::Access));
    assert_eq!(as_user(inode, b"trusted.a"), Err(FsError::NotPermitted));
    assert_eq!(as_user(inode, b"security.a"), Err(FsError::NotPermitted));
    assert_eq!(set(&volume, inode, "trusted.a", b"v"), Ok(()));
    assert_eq!(volume.fs.get_xattr(&user, inode, b"trusted.a"), Err(FsError::NoAttribute));
    assert_eq!(set(&volume, inode, "security.a", b"v"), Ok(()));
    // A caller that the kernel has checked is not root for that.
    let names = |who: &Caller| {
        let listed = volume.fs.list_xattrs(who, inode).unwrap();
        listed.into_iter().map(|name| String::from_utf8(name).unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&root), ["security.a", "trusted.a"].map(String::from).into());
    assert_eq!(names(&Caller { checked: true, ..root.clone() }).len(), 2);
    for stranger in [user.clone(), Caller { checked: true, ..user.clone() }] {
        assert_eq!(names(&stranger), ["security.a"].map(String::from).into());
    }
    assert_eq!(volume.fs.get_xattr(&user, inode, b"security.a").as_deref(), Ok(&b"v"[..]));
    assert_eq!(set(&volume, link, "user.a", b"v"), Err(FsError::NotPermitted));
    assert_eq!(set(&volume, link, "trusted.a", b"v"), Ok(()));
    assert_eq!(set(&volume, inode, "other.a", b"v"), Err(FsError::NotSupported));
    assert_eq!(set(&volume, inode, "system.other", b"v"), Err(FsError::NotSupported));
    assert_eq!(set(&volume, inode, "user.", b"v"), Err(FsError::Invalid));
    assert_eq!(set(&volume, inode, "", b"v"), Err(FsError::Range));
    assert_eq!(set(&volume, inode, &format!("user.{}", "x".repeat(251)), b"v"), Err(FsError::Range));
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn access_lists_are_verified_and_set_the_permission_bits() {
    let volume = Volume::new();
    let inode = volume.fs.make_node(&Caller::root(), ROOT, b"f", Kind::File, 0o644, 0).unwrap().inode;
    const NONE: u32 = u32::MAX;
    let list = acl(&[(1, 7, NONE), (2, 6, 10), (4, 5, NONE), (0x10, 4, NONE), (0x20, 4, NONE)]);
    set(&volume, inode, "system.posix_acl_access", &list).unwrap();
    assert_eq!(get(&volume, inode, "system.posix_acl_access").unwrap(), list);
    assert_eq!(volume.fs.attributes(inode).unwrap().permissions, 0o744);
    let without_mask = acl(&[(1, 7, NONE), (2, 6, 10), (4, 5, NONE), (0x20, 1, NONE)]);
    let twice = acl(&[(1, 7, NONE), (1, 7, NONE), (4, 5, NONE), (0x20, 1, NONE)]);
    for refused in [&b""[..], b"\x02\0\0\0", &list[..9], &without_mask, &twice, &acl(&[(1, 7, NONE)])] {
        assert_eq!(set(&volume, inode, "system.posix_acl_access", refused), Err(FsError::Invalid));
    }
    assert_eq!(set(&volume, inode, "system.posix_acl_default", &list), Err(FsError::Access));
    assert_eq!(set(&volume, ROOT, "system.posix_acl_default", &list), Ok(()));
}

/// On kernels before 6.2, every user that could reach a file could change its access control list.
#[test]
fn only_its_owner_and_root_change_an_access_list() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "file").inode();
    let owned = Changes { uid: Some(10), gid: Some(20), permissions: Some(0o660), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), inode, &owned).unwrap();
    let open_to_all = acl(&[(1, 6, u32::MAX), (4, 6, u32::MAX), (0x20, 6, u32::MAX)]);
    let name = b"system.posix_acl_access";
    let set = |who: &Caller| volume.fs.set_xattr(who, inode, name, &open_to_all, false, false);
    let remove = |who: &Caller| volume.fs.remove_xattr(who, inode, name);
    let strangers = [Caller::user(11, 20), Caller { groups: vec![20], ..Caller::user(12, 30) }];
    for stranger in &strangers {
        assert_eq!(set(stranger), Err(FsError::NotPermitted));
    }
    assert_eq!(volume.fs.attributes(inode).unwrap().permissions, 0o660);
    for may in [Caller::user(10, 99), Caller::root()] {
        assert_eq!(set(&may), Ok(()));
        for stranger in &strangers {
            assert_eq!(remove(stranger), Err(FsError::NotPermitted));
        }
        assert_eq!(remove(&may), Ok(()));
    }
}

/// A program kept its capabilities when its contents were replaced by a user with write permission. Unlike with the
/// set-id bits, the writer does not matter: writes of root remove them too, as on every file system.
#[test]
fn a_program_that_changes_loses_its_capabilities() {
    const NAME: &str = "security.capability";
    type Change = fn(&Volume, &fs::Handle) -> fs::Result<()>;
    let changes: [(&str, Change); 10] = [
        ("write", |volume, handle| volume.fs.write(handle, 3, b"x").map(|_| ())),
        ("write much", |volume, handle| volume.fs.write(handle, 3, &[1; 70_000]).map(|_| ())),
        ("truncate", |volume, handle| {
            changed(volume, handle, Changes { size: Some(10), ..Changes::default() })
        }),
        ("extend", |volume, handle| {
            changed(volume, handle, Changes { size: Some(1 << 20), ..Changes::default() })
        }),
        ("chown", |volume, handle| changed(volume, handle, Changes { uid: Some(0), ..Changes::default() })),
        ("chgrp", |volume, handle| changed(volume, handle, Changes { gid: Some(5), ..Changes::default() })),
        ("allocate", |volume, handle| {
            allocated(volume, handle, FallocateMode::ZeroRange { keep_size: true })
        }),
        ("punch", |volume, handle| allocated(volume, handle, FallocateMode::PunchHole)),
        ("collapse", |volume, handle| allocated(volume, handle, FallocateMode::CollapseRange)),
        ("copy", |volume, handle| {
            let source = volume.file(ROOT, "source");
            volume.write(&source, 0, &[3; 9000]);
            volume.fs.copy_range(&source, 0, handle, 0, 9000).map(|_| ())
        }),
    ];
    for (what, change) in changes {
        for size in [100, 20_000] {
            if size == 100 && ["punch", "collapse"].contains(&what) {
                continue; // There is nothing to be changed.
            }
            let volume = Volume::new();
            let handle = volume.file(ROOT, "f");
            volume.write(&handle, 0, &pattern(1, size));
            set(&volume, handle.inode(), NAME, &pattern(2, 20)).unwrap();
            set(&volume, handle.inode(), "user.a", b"stays").unwrap();
            assert_eq!(change(&volume, &handle), Ok(()), "{what} of {size}");
            assert_eq!(get(&volume, handle.inode(), NAME), Err(FsError::NoAttribute), "{what} of {size}");
            assert_eq!(get(&volume, handle.inode(), "user.a").as_deref(), Ok(&b"stays"[..]));
            volume.settle_and_check();
        }
    }
    let volume = Volume::new();
    let directory = volume.directory(ROOT, "d");
    set(&volume, directory, NAME, b"x").unwrap();
    let handle = volume.file(ROOT, "f");
    set(&volume, handle.inode(), NAME, b"x").unwrap();
    let owner = Changes { uid: Some(7), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), directory, &owner).unwrap();
    changed(&volume, &handle, Changes { permissions: Some(0o755), ..Changes::default() }).unwrap();
    for inode in [directory, handle.inode()] {
        assert_eq!(get(&volume, inode, NAME).as_deref(), Ok(&b"x"[..]));
    }
}

fn changed(volume: &Volume, handle: &fs::Handle, changes: Changes) -> fs::Result<()> {
    volume.fs.set_attributes(&Caller::root(), handle.inode(), &changes).map(|_| ())
}

fn allocated(volume: &Volume, handle: &fs::Handle, mode: FallocateMode) -> fs::Result<()> {
    volume.fs.allocate(handle, mode, 4096, 4096)
}

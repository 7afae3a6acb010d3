//! Access control lists, for callers that no kernel has checked.

use fs::{ACL_ACCESS, ACL_DEFAULT, Caller, Changes, FsError, InodeNo, Kind};

use crate::support::{READ, READ_WRITE, Volume};

const ROOT: InodeNo = InodeNo::ROOT;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NOBODY: u32 = u32::MAX;

/// The value of an attribute: version 2, then tag, permissions and id of each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// A list with user 11 and group 30, which each get everything that the mask allows.
fn named(owner: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    list(&[
        (OWNER, owner, NOBODY),
        (USER, 7, 11),
        (OWNING_GROUP, group, NOBODY),
        (GROUP, 7, 30),
        (MASK, mask, NOBODY),
        (OTHER, other, NOBODY),
    ])
}

fn minimal(owner: u16, group: u16, other: u16) -> Vec<u8> {
    list(&[(OWNER, owner, NOBODY), (OWNING_GROUP, group, NOBODY), (OTHER, other, NOBODY)])
}

fn set(volume: &Volume, inode: InodeNo, name: &[u8], value: &[u8]) -> fs::Result<()> {
    volume.fs.set_xattr(&Caller::root(), inode, name, value, false, false)
}

fn get(volume: &Volume, inode: InodeNo, name: &[u8]) -> fs::Result<Vec<u8>> {
    volume.fs.get_xattr(&Caller::root(), inode, name)
}

fn permissions(volume: &Volume, inode: InodeNo) -> u16 {
    volume.fs.attributes(inode).unwrap().permissions
}

fn chmod(volume: &Volume, inode: InodeNo, permissions: u16) {
    let changes = Changes { permissions: Some(permissions), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), inode, &changes).unwrap();
}

/// A file or directory of user 10 and group 20.
fn owned(volume: &Volume, inode: InodeNo) -> InodeNo {
    let changes = Changes { uid: Some(10), gid: Some(20), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), inode, &changes).unwrap();
    inode
}

/// Users and groups in a list had no access by it, and the owning group had the access of the mask.
#[test]
fn lists_decide_about_access() {
    let volume = Volume::new();
    let home = owned(&volume, volume.directory(ROOT, "home"));
    let file = owned(&volume, volume.file(home, "f").inode());
    chmod(&volume, home, 0o700);
    chmod(&volume, file, 0o640);
    let named_user = Caller::user(11, 99);
    let named_group = Caller { groups: vec![30], ..Caller::user(12, 99) };
    let member = Caller::user(12, 20);
    let stranger = Caller::user(12, 99);
    let reads = |who: &Caller| volume.fs.open(who, file, READ).map(|_| ());
    let writes = |who: &Caller| volume.fs.open(who, file, READ_WRITE).map(|_| ());
    let finds = |who: &Caller| volume.fs.lookup(who, home, b"f").map(|_| ());
    let refused = Err(FsError::Access);

    set(&volume, file, ACL_ACCESS, &named(6, 4, 6, 0)).unwrap();
    assert_eq!(permissions(&volume, file), 0o660);
    for who in [&named_user, &named_group] {
        assert_eq!((reads(who), writes(who)), (Ok(()), Ok(())));
    }
    assert_eq!((reads(&member), writes(&member)), (Ok(()), refused.clone()));
    assert_eq!((reads(&stranger), writes(&stranger)), (refused.clone(), refused.clone()));
    // `chmod` changes the mask.
    chmod(&volume, file, 0o4646);
    assert_eq!(get(&volume, file, ACL_ACCESS), Ok(named(6, 4, 4, 6)));
    assert_eq!((reads(&named_user), writes(&named_user)), (Ok(()), refused.clone()));
    assert_eq!(writes(&stranger), Ok(()));
    chmod(&volume, file, 0o600);
    assert_eq!((reads(&named_user), reads(&named_group), reads(&member)), {
        (refused.clone(), refused.clone(), refused.clone())
    });
    // For directories.
    assert_eq!(finds(&named_user), refused);
    set(&volume, home, ACL_ACCESS, &named(7, 0, 7, 0)).unwrap();
    assert_eq!(finds(&named_user), Ok(()));
    assert_eq!(finds(&member), refused, "the owning group's own entry says nothing");
    assert_eq!(volume.fs.make_directory(&member, home, b"d", 0o755).map(|_| ()), refused);
    assert!(volume.fs.make_directory(&named_user, home, b"d", 0o755).is_ok());
    assert_eq!(volume.fs.unlink(&stranger, home, b"f"), refused);
    assert_eq!(volume.fs.unlink(&named_group, home, b"f"), Ok(()));
    volume.settle_and_check();
}

#[test]
fn a_list_that_bits_can_express_is_not_stored() {
    let volume = Volume::new();
    let file = volume.file(ROOT, "f").inode();
    let names = |volume: &Volume| volume.fs.list_xattrs(&Caller::root(), file).unwrap();
    chmod(&volume, file, 0o4644);
    set(&volume, file, ACL_ACCESS, &minimal(7, 5, 1)).unwrap();
    assert_eq!(permissions(&volume, file), 0o4751, "as `chmod` would, but for what is no entry");
    assert_eq!(get(&volume, file, ACL_ACCESS), Err(FsError::NoAttribute));
    assert_eq!(names(&volume), [[0_u8; 0]; 0]);
    set(&volume, file, ACL_ACCESS, &named(6, 4, 6, 0)).unwrap();
    assert_eq!(names(&volume), [ACL_ACCESS]);
    let volume = volume.remount();
    assert_eq!(get(&volume, file, ACL_ACCESS), Ok(named(6, 4, 6, 0)));
    // Removing a list leaves the bits. Removing a list that does not exist succeeds.
    for _ in 0..2 {
        assert_eq!(volume.fs.remove_xattr(&Caller::root(), file, ACL_ACCESS), Ok(()));
        assert_eq!((permissions(&volume, file), names(&volume).len()), (0o4660, 0));
        assert_eq!(volume.fs.remove_xattr(&Caller::root(), file, ACL_DEFAULT), Ok(()));
    }
    set(&volume, file, ACL_ACCESS, &named(6, 4, 6, 0)).unwrap();
    set(&volume, file, ACL_ACCESS, &minimal(6, 4, 4)).unwrap();
    assert_eq!((permissions(&volume, file), names(&volume).len()), (0o4644, 0));
    volume.settle_and_check();
}

/// A directory's default list was stored and not inherited.
#[test]
fn new_inodes_inherit_the_default_list() {
    let volume = Volume::new();
    let default = named(7, 5, 7, 1);
    let home = owned(&volume, volume.directory(ROOT, "home"));
    chmod(&volume, home, 0o777);
    set(&volume, home, ACL_DEFAULT, &default).unwrap();
    assert_eq!(permissions(&volume, home), 0o777, "it is not for the directory itself");
    assert_eq!(get(&volume, home, ACL_ACCESS), Err(FsError::NoAttribute));
    // The umask does not count.
    let who = Caller { umask: 0o077, ..Caller::user(40, 40) };
    let file = volume.fs.create(&who, home, b"f", 0o644, READ_WRITE, true).unwrap().0;
    let node = volume.fs.make_node(&who, home, b"p", Kind::Fifo, 0o4666, 0).unwrap();
    let directory = volume.fs.make_directory(&who, home, b"d", 0o777).unwrap();
    let (unnamed, _open) = volume.fs.temporary_file(&who, home, 0o660, READ_WRITE).unwrap();
    let link = volume.fs.symlink(&who, home, b"l", b"target").unwrap();
    let inner = volume.fs.make_directory(&who, directory.inode, b"d", 0o750).unwrap();
    volume.fs.link(&who, unnamed.inode, home, b"t").unwrap();
    drop(_open);
    let volume = volume.remount();
    for (made, bits, owner, mask, other) in [
        (&file, 0o640, 6, 4, 0),
        (&node, 0o4660, 6, 6, 0),
        (&directory, 0o771, 7, 7, 1),
        (&unnamed, 0o660, 6, 6, 0),
        (&inner, 0o750, 7, 5, 0),
    ] {
        assert_eq!(made.permissions, bits);
        assert_eq!(permissions(&volume, made.inode), bits);
        assert_eq!(get(&volume, made.inode, ACL_ACCESS), Ok(named(owner, 5, mask, other)), "{bits:o}");
        let expected =
            if made.kind == Kind::Directory { Ok(default.clone()) } else { Err(FsError::NoAttribute) };
        assert_eq!(get(&volume, made.inode, ACL_DEFAULT), expected);
    }
    assert_eq!(link.permissions, 0o777);
    assert_eq!(volume.fs.list_xattrs(&who, link.inode).unwrap(), [[0_u8; 0]; 0]);
    volume.settle_and_check();
}

#[test]
fn a_minimal_default_list_acts_like_a_umask() {
    let volume = Volume::new();
    let home = volume.directory(ROOT, "home");
    set(&volume, home, ACL_DEFAULT, &minimal(7, 6, 4)).unwrap();
    let who = Caller { umask: 0o077, ..Caller::root() };
    let file = volume.fs.make_node(&who, home, b"f", Kind::File, 0o666, 0).unwrap();
    let directory = volume.fs.make_directory(&who, home, b"d", 0o1777).unwrap();
    assert_eq!((file.permissions, directory.permissions), (0o664, 0o1764));
    assert_eq!(volume.fs.list_xattrs(&who, file.inode).unwrap(), [[0_u8; 0]; 0]);
    assert_eq!(volume.fs.list_xattrs(&who, directory.inode).unwrap(), [ACL_DEFAULT]);
    volume.fs.remove_xattr(&who, home, ACL_DEFAULT).unwrap();
    let file = volume.fs.make_node(&who, home, b"g", Kind::File, 0o666, 0).unwrap();
    assert_eq!(file.permissions, 0o600);
    volume.settle_and_check();
}

#[test]
fn lists_are_set_only_on_allowed_inodes_by_allowed_callers() {
    let volume = Volume::new();
    let file = owned(&volume, volume.file(ROOT, "f").inode());
    let directory = owned(&volume, volume.directory(ROOT, "d"));
    let link = volume.fs.symlink(&Caller::root(), ROOT, b"l", b"f").unwrap().inode;
    let (owner, other) = (Caller::user(10, 20), Caller::user(11, 30));
    let set_as = |who: &Caller, inode, name: &[u8]| {
        volume.fs.set_xattr(who, inode, name, &named(7, 7, 7, 7), false, false)
    };
    for name in [ACL_ACCESS, ACL_DEFAULT] {
        assert_eq!(set_as(&other, directory, name), Err(FsError::NotPermitted), "whatever lists say");
        assert_eq!(set_as(&owner, directory, name), Ok(()));
        assert_eq!(volume.fs.remove_xattr(&other, directory, name), Err(FsError::NotPermitted));
        assert_eq!(set_as(&Caller::root(), link, name), Err(FsError::NotSupported));
        assert_eq!(get(&volume, link, name), Err(FsError::NotSupported));
    }
    assert_eq!(set_as(&owner, file, ACL_DEFAULT), Err(FsError::Access));
    let many: Vec<(u16, u16, u32)> = (0..512).map(|n| (USER, 7, n)).collect();
    let most = |count: usize| {
        let (first, last) = ([(OWNER, 7, NOBODY)], [(OWNING_GROUP, 7, NOBODY), (MASK, 7, 0), (OTHER, 7, 0)]);
        list(&[&first[..], &many[..count], &last[..]].concat())
    };
    assert_eq!(set(&volume, file, ACL_ACCESS, &most(507)), Ok(()));
    assert_eq!(set(&volume, file, ACL_ACCESS, &most(508)), Err(FsError::ArgumentTooLong));
    // As with `chmod`, a caller outside of the group does not make a program run as that group.
    let stranger = Caller { gid: 99, ..owner.clone() };
    for (who, expected) in [(&owner, 0o6777), (&stranger, 0o4777)] {
        chmod(&volume, file, 0o6777);
        assert_eq!(set_as(who, file, ACL_ACCESS), Ok(()));
        assert_eq!(permissions(&volume, file), expected);
    }
    volume.settle_and_check();
}

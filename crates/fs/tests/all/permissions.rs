//! Permissions, for callers that no kernel has checked.

use fs::{Caller, Changes, FsError, InodeNo, Kind, OpenFlags, SetTime};
use rt::Timestamp;

use crate::support::{READ, READ_WRITE, Volume};

const ROOT: InodeNo = InodeNo::ROOT;

fn set(volume: &Volume, who: &Caller, inode: InodeNo, changes: Changes) -> fs::Result<u16> {
    volume.fs.set_attributes(who, inode, &changes).map(|shown| shown.permissions)
}

fn volume_with_home() -> (Volume, InodeNo, Caller) {
    let volume = Volume::new();
    let home = volume.directory(ROOT, "home");
    let owner = Changes { uid: Some(10), gid: Some(20), ..Changes::default() };
    set(&volume, &Caller::root(), home, owner).unwrap();
    (volume, home, Caller::user(10, 20))
}

#[test]
fn the_first_matching_class_decides() {
    let (volume, home, owner) = volume_with_home();
    let inode = volume.fs.make_node(&owner, home, b"f", Kind::File, 0o044, 0).unwrap().inode;
    let open = |who: &Caller, flags| volume.fs.open(who, inode, flags).map(|_| ());
    assert_eq!(open(&owner, READ), Err(FsError::Access), "the owner has no bits, others' do not help");
    set(&volume, &owner, inode, Changes { permissions: Some(0o604), ..Changes::default() }).unwrap();
    assert_eq!(open(&owner, READ_WRITE), Ok(()));
    assert_eq!(open(&Caller::user(11, 20), READ), Err(FsError::Access));
    let member = Caller { groups: vec![20], ..Caller::user(11, 30) };
    assert_eq!(open(&member, READ), Err(FsError::Access));
    assert_eq!(open(&Caller::user(11, 30), READ), Ok(()));
    assert_eq!(open(&Caller::user(11, 30), READ_WRITE), Err(FsError::Access));
    assert_eq!(open(&Caller::root(), READ_WRITE), Ok(()));
    let checked = Caller { checked: true, ..Caller::user(11, 30) };
    assert_eq!(open(&checked, READ_WRITE), Ok(()), "whom the kernel has checked is not checked again");
}

#[test]
fn directories_are_searched_and_written_only_with_the_bits_for_it() {
    let (volume, home, owner) = volume_with_home();
    let other = Caller::user(11, 30);
    drop(volume.fs.create(&owner, home, b"f", 0o666, READ_WRITE, true).unwrap());
    let made = |who: &Caller| volume.fs.make_directory(who, home, b"d", 0o777).map(|shown| shown.permissions);
    assert_eq!(made(&other), Err(FsError::Access));
    assert_eq!(volume.fs.unlink(&other, home, b"f"), Err(FsError::Access));
    assert_eq!(made(&owner), Ok(0o755), "the umask takes bits away");
    set(&volume, &owner, home, Changes { permissions: Some(0o700), ..Changes::default() }).unwrap();
    assert_eq!(volume.fs.lookup(&other, home, b"f").map(|_| ()), Err(FsError::Access));
    assert_eq!(volume.fs.unlink(&other, home, b"none"), Err(FsError::Access));
    assert_eq!(
        volume.fs.link(&other, volume.find(home, "f").unwrap(), home, b"g").map(|_| ()),
        Err(FsError::Access)
    );
}

#[test]
fn in_a_sticky_directory_only_owners_remove_names() {
    let (volume, home, owner) = volume_with_home();
    let (first, second) = (Caller::user(11, 30), Caller::user(12, 30));
    set(&volume, &owner, home, Changes { permissions: Some(0o1777), ..Changes::default() }).unwrap();
    volume.fs.make_node(&first, home, b"f", Kind::File, 0o666, 0).unwrap();
    assert_eq!(volume.fs.unlink(&second, home, b"f"), Err(FsError::NotPermitted));
    let rename = |who: &Caller| volume.fs.rename(who, home, b"f", home, b"g", fs::RenameFlags::default());
    assert_eq!(rename(&second), Err(FsError::NotPermitted));
    assert_eq!(rename(&first), Ok(()));
    assert_eq!(volume.fs.unlink(&owner, home, b"g"), Ok(()), "the directory's owner may");
}

#[test]
fn only_owners_change_attributes_and_only_root_changes_owners() {
    let (volume, home, owner) = volume_with_home();
    let inode = volume.fs.make_node(&owner, home, b"f", Kind::File, 0o644, 0).unwrap().inode;
    let other = Caller { groups: vec![20], ..Caller::user(11, 30) };
    let refused = Err(FsError::NotPermitted);
    let to = Changes { modified: Some(SetTime::To(Timestamp(5))), ..Changes::default() };
    assert_eq!(
        set(&volume, &other, inode, Changes { permissions: Some(0o777), ..Changes::default() }),
        refused
    );
    assert_eq!(set(&volume, &other, inode, to), refused);
    assert!(set(&volume, &owner, inode, to).is_ok());
    assert_eq!(set(&volume, &owner, inode, Changes { uid: Some(11), ..Changes::default() }), refused);
    assert_eq!(set(&volume, &owner, inode, Changes { gid: Some(30), ..Changes::default() }), refused);
    let member = Caller { groups: vec![30], ..owner.clone() };
    assert!(set(&volume, &member, inode, Changes { gid: Some(30), ..Changes::default() }).is_ok());
    assert_eq!(
        set(&volume, &other, inode, Changes { size: Some(0), ..Changes::default() }),
        Err(FsError::Access)
    );
}

/// As with `utimensat`. A caller with write permission alone could set one of the two times, which neither reading
/// nor writing would do.
#[test]
fn a_caller_that_may_write_may_only_set_both_times_to_now() {
    let (volume, home, owner) = volume_with_home();
    let inode = volume.fs.make_node(&owner, home, b"f", Kind::File, 0o646, 0).unwrap().inode;
    let member = Caller { groups: vec![20], ..Caller::user(11, 30) };
    let other = Caller::user(11, 30);
    set(&volume, &owner, inode, Changes { permissions: Some(0o646), ..Changes::default() }).unwrap();
    let (now, then) = (Some(SetTime::Now), Some(SetTime::To(Timestamp(5))));
    for accessed in [None, now, then] {
        for modified in [None, now, then] {
            let times = Changes { accessed, modified, ..Changes::default() };
            let may = |who| set(&volume, who, inode, times).map(|_| ());
            let both_now = matches!((accessed, modified), (Some(SetTime::Now), Some(SetTime::Now)));
            let nothing = accessed.is_none() && modified.is_none();
            let refused = Err(FsError::NotPermitted);
            assert_eq!(may(&owner), Ok(()));
            assert_eq!(may(&other), if both_now || nothing { Ok(()) } else { refused.clone() }, "{times:?}");
            let of_member = match () {
                () if nothing => Ok(()),
                () if both_now => Err(FsError::Access),
                () => refused,
            };
            assert_eq!(may(&member), of_member, "{times:?}");
        }
    }
}

/// A program that has a file open for writing may change its size, whatever its mode is now: `tar` creates files with
/// their final mode and then truncates them, which failed.
#[test]
fn a_handle_for_writing_changes_the_size_of_a_file_without_write_permission() {
    let (volume, home, owner) = volume_with_home();
    let (made, handle) = volume.fs.create(&owner, home, b"f", 0o400, READ_WRITE, true).unwrap();
    volume.write(&handle, 0, &[7; 5000]);
    let cut = Changes { size: Some(10), ..Changes::default() };
    assert_eq!(set(&volume, &owner, made.inode, cut), Err(FsError::Access));
    let through = |who: &Caller, handle: &fs::Handle, changes: &Changes| {
        volume.fs.set_attributes_through(who, handle, changes).map(|shown| (shown.size, shown.permissions))
    };
    assert_eq!(through(&owner, &handle, &cut), Ok((10, 0o400)));
    assert_eq!(volume.contents(&handle), [7; 10]);
    let reader = volume.fs.open(&owner, made.inode, READ).unwrap();
    assert_eq!(through(&owner, &reader, &cut), Err(FsError::BadHandle));
    // Everything else is as without a handle.
    let other = Caller::user(11, 30);
    let armed = Changes { permissions: Some(0o4700), ..Changes::default() };
    assert_eq!(through(&other, &handle, &armed), Err(FsError::NotPermitted));
    assert_eq!(through(&owner, &reader, &armed), Ok((10, 0o4700)));
    assert_eq!(through(&other, &handle, &cut), Ok((10, 0o700)));
    volume.unlink(home, "f").unwrap();
    assert_eq!(through(&owner, &handle, &Changes { size: Some(20), ..Changes::default() }), Ok((20, 0o700)));
    drop((handle, reader));
    volume.settle_and_check();
}

#[test]
fn programs_lose_the_right_to_run_as_another_when_they_change() {
    let (volume, home, owner) = volume_with_home();
    let inode = volume.fs.make_node(&owner, home, b"f", Kind::File, 0o755, 0).unwrap().inode;
    let arm = || set(&volume, &owner, inode, Changes { permissions: Some(0o6755), ..Changes::default() });
    let permissions = || volume.fs.attributes(inode).unwrap().permissions;
    assert_eq!(arm(), Ok(0o6755));
    let member = Caller { groups: vec![30], ..owner.clone() };
    assert_eq!(set(&volume, &member, inode, Changes { gid: Some(30), ..Changes::default() }), Ok(0o755));
    set(&volume, &Caller::root(), inode, Changes { gid: Some(20), ..Changes::default() }).unwrap();
    arm().unwrap();
    let handle = volume.fs.open(&owner, inode, READ_WRITE).unwrap();
    volume.write(&handle, 0, b"x");
    assert_eq!(permissions(), 0o755);
    arm().unwrap();
    let as_root = volume.fs.open(&Caller::root(), inode, READ_WRITE).unwrap();
    volume.write(&as_root, 0, b"x");
    assert_eq!(permissions(), 0o6755, "root's writes keep them");
    set(&volume, &owner, inode, Changes { size: Some(0), ..Changes::default() }).unwrap();
    assert_eq!(permissions(), 0o755);
    let stranger = Caller::user(10, 99);
    assert_eq!(
        set(&volume, &stranger, inode, Changes { permissions: Some(0o2755), ..Changes::default() }),
        Ok(0o755)
    );
}

/// Pipes, sockets and devices kept set-ID bits when their owner changed.
#[test]
fn a_change_of_owner_drops_set_id_bits() {
    let (volume, home, _) = volume_with_home();
    for (name, kind) in [("pipe", Kind::Fifo), ("socket", Kind::Socket), ("file", Kind::File)] {
        let made = volume.fs.make_node(&Caller::root(), home, name.as_bytes(), kind, 0o755, 0).unwrap();
        let armed = Changes { permissions: Some(0o6755), ..Changes::default() };
        assert_eq!(set(&volume, &Caller::root(), made.inode, armed), Ok(0o6755));
        let given = Changes { uid: Some(7), ..Changes::default() };
        assert_eq!(set(&volume, &Caller::root(), made.inode, given), Ok(0o755), "{name}");
    }
}

#[test]
fn new_inodes_inherit_the_group_of_a_set_group_id_directory() {
    let (volume, home, owner) = volume_with_home();
    set(&volume, &owner, home, Changes { permissions: Some(0o2777), ..Changes::default() }).unwrap();
    let other = Caller::user(11, 30);
    let file = volume.fs.make_node(&other, home, b"f", Kind::File, 0o2775, 0).unwrap();
    assert_eq!((file.gid, file.permissions), (20, 0o755), "no set-group-id for a foreign group");
    let directory = volume.fs.make_directory(&other, home, b"d", 0o755).unwrap();
    assert_eq!((directory.gid, directory.permissions), (20, 0o2755));
}

#[test]
fn only_root_creates_device_nodes() {
    let (volume, home, owner) = volume_with_home();
    let made = volume.fs.make_node(&owner, home, b"c", Kind::CharDevice, 0o600, 1);
    assert_eq!(made.map(|_| ()), Err(FsError::NotPermitted));
    assert!(volume.fs.make_node(&owner, home, b"p", Kind::Fifo, 0o600, 0).is_ok());
}

#[test]
fn a_volume_mounted_read_only_accepts_no_change() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    volume.fs.unmount().unwrap();
    let Volume { device, clock, fs } = volume;
    drop(fs);
    let fs = crate::support::mount(&device, &clock, true);
    let root = Caller::root();
    assert_eq!(fs.unlink(&root, ROOT, b"f"), Err(FsError::ReadOnly));
    assert_eq!(fs.make_directory(&root, ROOT, b"d", 0o755).map(|_| ()), Err(FsError::ReadOnly));
    assert_eq!(fs.open(&root, inode, READ_WRITE).map(|_| ()), Err(FsError::ReadOnly));
    let creating = OpenFlags { truncate: true, ..READ };
    assert_eq!(fs.open(&root, inode, creating).map(|_| ()), Err(FsError::ReadOnly));
    assert!(fs.open(&root, inode, READ).is_ok());
    assert_eq!(fs.check().unwrap(), []);
    fs.unmount().unwrap();
}

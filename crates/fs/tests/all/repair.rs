//! Findings are repaired if the right state is known. No readable data is lost.

mod blocks;
mod cuts;
mod damage;
mod picture;
mod random;
mod reach;

use std::collections::BTreeMap;

use extent::format::UNWRITTEN_BLOCKS;
use fs::format::{
    DIRENT, Dirent, FILE_SIZE_MAX, FLAG_TRUNCATING, INODE, INTENT, ORPHAN, XATTR, XattrHead, dirent_key,
    inode_key, marker, number_key, xattr_key,
};
use fs::{Finding, InodeNo, Kind};
use tree::Tx;

use crate::checker::Sound;
use crate::support::Volume;

const ROOT: InodeNo = InodeNo::ROOT;
const NOBODY: InodeNo = InodeNo(4 * 100);

/// Repairs until nothing more can be repaired. Returns the volume and the remaining findings.
fn repaired(volume: Volume) -> (Volume, Vec<Finding>) {
    volume.fs.sync().unwrap();
    repaired_as_mounted(volume.kill())
}

/// The same for a volume that was just mounted.
fn repaired_as_mounted(mut volume: Volume) -> (Volume, Vec<Finding>) {
    for _ in 0..10 {
        let done = volume.fs.repair().unwrap();
        volume = volume.remount();
        if done.repaired.is_empty() {
            assert_eq!(volume.fs.check().unwrap(), done.left, "nothing has changed");
            return (volume, done.left);
        }
    }
    panic!("repairs come to an end");
}

/// Every inode that a name leads to: its kind and contents.
fn reached(volume: &Volume) -> BTreeMap<u64, (Kind, Vec<u8>)> {
    let (mut found, mut left) = (BTreeMap::new(), vec![ROOT]);
    let flags = crate::support::READ;
    while let Some(inode) = left.pop() {
        let Ok(attributes) = volume.fs.attributes(inode) else { continue };
        let Ok(handle) = volume.fs.open(&fs::Caller::root(), inode, flags) else { continue };
        let contents = if attributes.kind == Kind::File { volume.contents(&handle) } else { Vec::new() };
        if found.insert(inode.0, (attributes.kind, contents)).is_none() && attributes.kind == Kind::Directory
        {
            let each = &mut |entry: fs::DirEntry| {
                if entry.name != b"." && entry.name != b".." {
                    left.push(entry.inode);
                }
                true
            };
            volume.fs.read_directory(&handle, 0, each).unwrap();
        }
    }
    found
}

#[test]
fn a_sound_volume_is_left_alone() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    let (volume, left) = repaired(sound.volume);
    assert_eq!((left, reached(&volume)), (vec![], before));
}

#[test]
fn counts_are_set_to_what_they_count() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    sound.change(sound.f, |record| (record.links, record.xattrs) = (5, 0));
    sound.change(sound.d, |record| (record.links, record.size) = (7, 9));
    let zone = sound.volume.fs.store().pool().in_role(zone::Role::Data)[0];
    let mut tx = Tx::new();
    tx.zone_live(zone, 3);
    tx.counter(UNWRITTEN_BLOCKS, 3);
    sound.volume.fs.store().commit(tx).unwrap();
    let (volume, left) = repaired(sound.volume);
    assert_eq!((left, reached(&volume)), (vec![], before));
}

/// Fuzzing of a mount found such counts: `stat` of a small file added to the largest number.
#[test]
fn counts_at_the_end_of_numbers_can_be_shown_and_are_set_right() {
    let sound = Sound::new();
    let small = sound.volume.file(sound.d, "small");
    sound.volume.write(&small, 0, b"kept in its record");
    drop(small);
    let before = reached(&sound.volume);
    let small = sound.volume.find(sound.d, "small").unwrap();
    let (key, _) = sound.entry(sound.d, "e");
    sound.delete(sound.d, DIRENT, key);
    for inode in [ROOT, sound.d, sound.f, small] {
        sound.change(inode, |record| record.blocks = u64::MAX);
    }
    sound.change(ROOT, |record| (record.links, record.size) = (u32::MAX, FILE_SIZE_MAX));
    sound.volume.fs.sync().unwrap();
    let (e, volume) = (sound.e, sound.volume.kill());
    assert_eq!(volume.fs.attributes(small).unwrap().blocks, u64::MAX);
    let made = volume.fs.make_directory(&fs::Caller::root(), ROOT, b"one more", 0o755);
    assert_eq!(made.map(|made| made.inode), Err(fs::FsError::TooManyLinks));
    let made = volume.fs.make_node(&fs::Caller::root(), ROOT, b"one more", Kind::File, 0o644, 0);
    assert!(matches!(made, Err(fs::FsError::Io(_))), "{made:?}");
    let (volume, left) = repaired_as_mounted(volume);
    let place = volume.find(ROOT, "lost+found").unwrap();
    assert_eq!(volume.find(place, &format!("inode-{}", e.0)), Ok(e));
    let mut after = reached(&volume);
    after.remove(&place.0);
    assert_eq!((left, after), (vec![], before));
}

#[test]
fn rows_without_an_inode_are_removed() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    let head = XattrHead { parts: 1, value_length: 1, name: b"user.a".to_vec(), bytes: b"1".to_vec() };
    sound.put(NOBODY, XATTR, xattr_key(NOBODY, 1, 0, 0), head.encode());
    sound.put(NOBODY, ORPHAN, number_key(NOBODY), marker());
    sound.put(sound.f, ORPHAN, number_key(sound.f), marker());
    sound.put(sound.e, INTENT, number_key(sound.e), marker());
    let entry = Dirent { inode: NOBODY, kind: Kind::File, name: b"nobody" };
    sound.put(sound.d, DIRENT, dirent_key(sound.d, 1 << 40), entry.encode());
    let (volume, left) = repaired(sound.volume);
    assert_eq!((left, reached(&volume)), (vec![], before));
}

#[test]
fn an_inode_without_a_name_gets_one() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    for name in ["e", "f"] {
        let (key, _) = sound.entry(sound.d, name);
        sound.delete(sound.d, DIRENT, key);
    }
    // It has a name and is marked for deletion. The right state is unknown, so it stays.
    sound.put(sound.f, ORPHAN, number_key(sound.f), marker());
    let (d, e, f) = (sound.d, sound.e, sound.f);
    let (volume, left) = repaired(sound.volume);
    let place = volume.find(ROOT, "lost+found").unwrap();
    assert_eq!(volume.find(place, &format!("inode-{}", f.0)), Ok(f));
    assert_eq!(volume.find(place, &format!("inode-{}", e.0)), Ok(e));
    assert_eq!(volume.fs.attributes(d).unwrap().size, 0);
    let mut after = reached(&volume);
    after.remove(&place.0);
    assert_eq!((left, after), (vec![], before));
}

#[test]
fn entries_say_what_the_inode_is_and_lie_under_their_hash() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    let (key, entry) = sound.entry(sound.d, "f");
    sound.delete(sound.d, DIRENT, key);
    let wrong = Dirent { kind: Kind::Fifo, ..entry };
    sound.put(sound.d, DIRENT, dirent_key(sound.d, 1 << 40), wrong.encode());
    sound.change(sound.e, |record| record.parent = ROOT);
    sound.change(sound.f, |record| record.flags |= FLAG_TRUNCATING);
    let (volume, left) = repaired(sound.volume);
    assert_eq!((left, reached(&volume)), (vec![], before));
}

/// Two rows contradict each other, and the right one is unknown.
#[test]
fn contradictions_without_a_known_solution_are_left() {
    let sound = Sound::new();
    let mut record = sound.record(sound.f).encode();
    record[0] = 99;
    sound.put(sound.f, INODE, inode_key(sound.f), record);
    sound.put(sound.f, ORPHAN, number_key(sound.f), marker());
    sound.volume.fs.sync().unwrap();
    let volume = sound.volume.kill();
    let found = volume.fs.check().unwrap();
    let done = volume.fs.repair().unwrap();
    assert_eq!((done.repaired, done.left), (vec![], found.clone()));
    assert_eq!(volume.remount().fs.check().unwrap(), found);
}

/// A page that cannot be read: missing rows do not mean that inodes do not exist.
#[test]
fn nothing_is_repaired_while_a_page_cannot_be_read() {
    let sound = Sound::new();
    sound.change(sound.d, |record| record.size = 9);
    sound.volume.fs.unmount().unwrap();
    let volume = sound.volume.kill();
    // The tree of a group that does not contain the root directory.
    let node = volume.fs.store().view_node(1).unwrap().unwrap();
    let at = if node.base.is_none() { node.address } else { node.base };
    volume.device.corrupt(at.zone(), at.block(), 500, 1);
    // Cached pages are not read again.
    let volume = volume.kill();
    let before = volume.device.commands();
    let done = volume.fs.repair().unwrap();
    assert!(done.repaired.is_empty() && matches!(done.left[0], Finding::Store(_)), "{done:?}");
    assert_eq!(volume.device.commands(), before);
}

/// A row of an orphan in a wrong group, where it is not looked up. Each repair reported that it had removed the row,
/// and each found it again: the command went on up to its limit of repairs and reported each.
#[test]
fn a_finding_counts_as_repaired_only_if_a_row_has_changed() {
    let sound = Sound::new();
    let elsewhere = InodeNo(NOBODY.0 + 1);
    for table in [ORPHAN, INTENT] {
        sound.put(elsewhere, table, number_key(NOBODY), marker());
    }
    let head = XattrHead { parts: 1, value_length: 1, name: b"user.a".to_vec(), bytes: b"1".to_vec() };
    sound.put(elsewhere, XATTR, xattr_key(NOBODY, 1, 0, 0), head.encode());
    sound.volume.fs.sync().unwrap();
    let volume = sound.volume.kill();
    let found = volume.fs.check().unwrap();
    let done = volume.fs.repair().unwrap();
    assert_eq!((done.repaired, done.left), (vec![], found));
}

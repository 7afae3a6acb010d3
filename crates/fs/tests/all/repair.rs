//! What the checker finds is put right where it is known what is right; nothing that could be read is lost.

use std::collections::BTreeMap;

use extent::format::UNWRITTEN_BLOCKS;
use fs::format::{
    DIRENT, Dirent, FLAG_TRUNCATING, INODE, INTENT, ORPHAN, Record, XATTR, XattrHead, dirent_key, inode_key,
    marker, number_key, xattr_key,
};
use fs::{Finding, InodeNo, Kind, NameFinding};
use rt::random::Rng;
use tree::{Group, Tx};

use crate::checker::Sound;
use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const NOBODY: InodeNo = InodeNo(4 * 100);

/// Repairs until there is nothing left that can be; the volume, and what is left.
fn repaired(volume: Volume) -> (Volume, Vec<Finding>) {
    volume.fs.sync().unwrap();
    let mut volume = volume.kill();
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
    let zone = sound.volume.fs.store().zones().in_role(zone::Role::Data)[0];
    let mut tx = Tx::new();
    tx.zone_live(zone, 3);
    tx.counter(UNWRITTEN_BLOCKS, 3);
    sound.volume.fs.store().commit(tx).unwrap();
    let (volume, left) = repaired(sound.volume);
    assert_eq!((left, reached(&volume)), (vec![], before));
}

#[test]
fn what_belongs_to_nobody_goes() {
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
fn what_has_no_name_gets_one() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    for name in ["e", "f"] {
        let (key, _) = sound.entry(sound.d, name);
        sound.delete(sound.d, DIRENT, key);
    }
    // It says that it has a name, and that it is to be deleted: nobody knows, so it stays.
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

/// Two things contradict each other, and nobody knows which is right.
#[test]
fn where_nobody_knows_what_is_right_nothing_is_done() {
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

/// A page that cannot be read: what is missing is not what does not exist.
#[test]
fn nothing_is_repaired_while_a_page_cannot_be_read() {
    let sound = Sound::new();
    sound.change(sound.d, |record| record.size = 9);
    sound.volume.fs.unmount().unwrap();
    let volume = sound.volume.kill();
    // The tree of a group that does not hold the root directory.
    let node = volume.fs.store().view_node(1).unwrap().unwrap();
    let at = if node.base.is_none() { node.address } else { node.base };
    volume.device.corrupt(at.zone(), at.block(), 500, 1);
    // What is in memory is not read again.
    let volume = volume.kill();
    let before = volume.device.commands();
    let done = volume.fs.repair().unwrap();
    assert!(done.repaired.is_empty() && matches!(done.left[0], Finding::Store(_)), "{done:?}");
    assert_eq!(volume.device.commands(), before);
}

/// Rows are changed and removed at random. After repair whatever had been there and has a record that is whole
/// can be reached, with its contents; and only what nobody can know is left.
#[test]
fn random_damage_of_rows_is_repaired_and_loses_nothing() {
    let mut repairs = 0;
    for seed in 0..40 {
        let volume = Volume::new();
        let mut rng = Rng::with_seed(seed);
        let mut directories = vec![ROOT];
        for number in 0..8 {
            let parent = directories[rng.usize(0..directories.len())];
            directories.push(volume.directory(parent, &format!("d{number}")));
        }
        for number in 0..40 {
            let parent = directories[rng.usize(0..directories.len())];
            let file = volume.file(parent, &format!("f{number}"));
            volume.write(&file, 0, &pattern(number, [100, 9000][rng.usize(0..2)]));
        }
        volume.settle_and_check();
        let before = reached(&volume);
        for _ in 0..1 + seed % 8 {
            damage(&volume, &mut rng);
        }
        let (volume, left) = repaired(volume);
        repairs += 1;
        for finding in &left {
            let is_known = matches!(finding, Finding::Names(NameFinding::Detached { .. }));
            assert!(is_known, "seed {seed}: {finding:?} is left");
        }
        let detached = left.len();
        let after = reached(&volume);
        let missing = before.iter().filter(|(inode, what)| after.get(inode) != Some(what)).count();
        assert!(missing == 0 || detached > 0, "seed {seed}: {missing} files are gone, {left:?}");
    }
    assert_eq!(repairs, 40);
}

/// Changes one row so that it contradicts others.
fn damage(volume: &Volume, rng: &mut Rng) {
    let store = volume.fs.store();
    let group = Group(rng.u64(0..4) as u16);
    let mut tx = Tx::new();
    let entries = store.range(group, DIRENT, &[], &[], 1000).unwrap();
    let inodes = store.range(group, INODE, &[], &[], 1000).unwrap();
    if entries.is_empty() || inodes.is_empty() {
        return;
    }
    let (key, value) = &entries[rng.usize(0..entries.len())];
    let entry = Dirent::decode(value).unwrap();
    let (inode_row, record) = &inodes[rng.usize(0..inodes.len())];
    let mut record = Record::decode(record).unwrap();
    let number = inode_row[..8].to_vec();
    match rng.u64(0..8) {
        0 => tx.delete(group, DIRENT, key.clone()),
        1 => tx.put(group, DIRENT, key.clone(), Dirent { kind: Kind::Socket, ..entry }.encode()),
        2 => {
            let other = Dirent { inode: InodeNo(entry.inode.0 + 4 * 1000), name: b"other", ..entry };
            let at = dirent_key(InodeNo(u64::from_be_bytes(key[..8].try_into().unwrap())), 1 << 50);
            tx.put(group, DIRENT, at, other.encode());
        }
        3 => tx.put(group, ORPHAN, number, marker()),
        4 => tx.put(group, INTENT, number, marker()),
        5 => {
            record.links = 40;
            tx.put(group, INODE, inode_row.clone(), record.encode());
        }
        6 => {
            record.xattrs = 40;
            tx.put(group, INODE, inode_row.clone(), record.encode());
        }
        _ => {
            if record.kind == Kind::Directory {
                record.size += 3;
                record.parent = InodeNo(777);
            }
            tx.put(group, INODE, inode_row.clone(), record.encode());
        }
    }
    store.commit(tx).unwrap();
}

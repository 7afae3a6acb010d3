//! A repair makes files reachable that were not, and removes nothing that alone leads to data.

use std::collections::BTreeSet;

use extent::Object;
use fs::format::{
    COUNTER, DIRENT, Direction, Dirent, FLAG_SHIFTING, INODE, INTENT, ORPHAN, Shift, counter_key, dirent_key,
    inode_key, marker, number_key,
};
use fs::{Caller, Finding, InodeNo, Kind};

use super::{NOBODY, ROOT, reached, repaired};
use crate::checker::Sound;
use crate::support::pattern;

/// The entry of the directory was removed together with its record, and all files below it were in a directory that
/// did not exist: they were on the volume, had names, and could not be opened any more.
#[test]
fn a_directory_that_has_lost_its_record_is_recreated() {
    for record in [None, Some(b"nonsense".to_vec())] {
        let sound = Sound::new();
        let before = reached(&sound.volume);
        let (d, e, f) = (sound.d, sound.e, sound.f);
        match record {
            None => sound.delete(d, INODE, inode_key(d)),
            Some(record) => sound.put(d, INODE, inode_key(d), record),
        }
        let (volume, left) = repaired(sound.volume);
        assert_eq!((left, reached(&volume)), (vec![], before));
        assert_eq!((volume.find(ROOT, "d"), volume.find(d, "e"), volume.find(d, "f")), (Ok(d), Ok(e), Ok(f)));
        let made = volume.fs.attributes(d).unwrap();
        assert_eq!(
            (made.permissions, made.uid),
            (0o700, 0),
            "its owner is not known, so no other user gets it"
        );
    }
}

/// The same if its name is lost too: it gets a name in `lost+found`, and the names below it stay.
#[test]
fn a_directory_that_has_lost_record_and_name_is_recreated() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    let (d, f) = (sound.d, sound.f);
    let (key, _) = sound.entry(ROOT, "d");
    sound.delete(ROOT, DIRENT, key);
    sound.delete(d, INODE, inode_key(d));
    let (volume, left) = repaired(sound.volume);
    let place = volume.find(ROOT, "lost+found").unwrap();
    let (found, deep) = (volume.find(place, &format!("inode-{}", d.0)), volume.find(d, "f"));
    assert_eq!((found, deep), (Ok(d), Ok(f)));
    let mut after = reached(&volume);
    after.remove(&place.0);
    assert_eq!((left, after), (vec![], before));
}

/// An empty directory need not be recreated, and a number that was never used would use up all numbers below it.
#[test]
fn an_empty_directory_or_an_unused_number_is_not_recreated() {
    let sound = Sound::new();
    let (e, far) = (sound.e, InodeNo(4 << 40));
    sound.delete(e, INODE, inode_key(e));
    let entry = Dirent { inode: NOBODY, kind: Kind::File, name: b"nobody" };
    sound.put(NOBODY, DIRENT, dirent_key(NOBODY, 1 << 40), entry.encode());
    let (key, f) = sound.entry(sound.d, "f");
    let cookie = u64::from_be_bytes(key[8..16].try_into().unwrap());
    sound.put(far, DIRENT, dirent_key(far, cookie), f.encode());
    let (f, d) = (sound.f, sound.d);
    let (volume, left) = repaired(sound.volume);
    assert_eq!((volume.find(d, "e").is_err(), volume.find(d, "f")), (true, Ok(f)));
    for inode in [e, NOBODY, far] {
        assert!(volume.fs.attributes(inode).is_err(), "{inode:?}");
    }
    assert!(left.iter().all(|finding| finding.kind() == "no-directory"), "{left:?}");
}

/// Names are any bytes. The finding contained text, with other characters in the place of invalid ones, and the
/// repair looked for a file with that name: it found none, and the finding stayed for ever.
#[test]
fn damage_to_names_that_are_no_text_is_repaired() {
    let name = b"caf\xe9 \xff".as_slice();
    for wrong in 0..3 {
        let sound = Sound::new();
        let root = Caller::root();
        sound.volume.fs.link(&root, sound.f, ROOT, name).unwrap();
        let mut before = reached(&sound.volume);
        let store = sound.volume.fs.store();
        let (from, to) = (dirent_key(ROOT, 0), dirent_key(ROOT, u64::MAX));
        let rows = store.range(sound.group(ROOT), DIRENT, &from, &to, 100).unwrap();
        let its = |(_, value): &&tree::Entry| Dirent::decode(value).unwrap().name == name;
        let (key, _) = rows.iter().find(its).unwrap().clone();
        let entry = Dirent { inode: sound.f, kind: Kind::File, name };
        match wrong {
            0 => sound.put(ROOT, DIRENT, key, Dirent { kind: Kind::Socket, ..entry }.encode()),
            1 => {
                sound.delete(ROOT, DIRENT, key);
                sound.put(ROOT, DIRENT, dirent_key(ROOT, 1 << 40), entry.encode());
            }
            _ => sound.put(ROOT, DIRENT, key, Dirent { inode: NOBODY, ..entry }.encode()),
        }
        let f = sound.f;
        let (volume, left) = repaired(sound.volume);
        let found = volume.fs.lookup(&root, ROOT, name).map(|found| found.inode);
        assert_eq!(found, if wrong < 2 { Ok(f) } else { Err(fs::FsError::NotFound) });
        let mut after = reached(&volume);
        before.retain(|inode, _| after.contains_key(inode));
        after.retain(|inode, _| before.contains_key(inode));
        assert_eq!((left, after), (vec![], before));
    }
}

/// A range of a file was being collapsed, and half of the bytes behind it were copied, when the file's record lost
/// the flag for this. The repair removed the intent. Then nothing said any more where the bytes are. Now the intent
/// is left, and the file is right as soon as its record is right again.
#[test]
fn an_intent_to_move_a_range_is_left_where_the_file_may_be_half_moved() {
    let sound = Sound::new();
    let f = sound.f;
    let shift = Shift { direction: Direction::Down, at: 4096, length: 4096, moved: 12288 };
    // As after the first step of copying: block 1 has the contents of block 2, and the file is shorter.
    let handle = sound.volume.open(f);
    sound.volume.write(&handle, 4096, &pattern(1, 50_000)[8192..12288]);
    drop(handle);
    sound.put(f, INTENT, number_key(f), shift.encode());
    sound.change(f, |record| record.size -= 4096);
    // On a directory or without data it has no effect.
    for inode in [sound.e, NOBODY] {
        sound.put(inode, INTENT, number_key(inode), shift.encode());
    }
    let (volume, left) = repaired(sound.volume);
    let kinds: Vec<_> = left.iter().map(Finding::kind).collect();
    assert!(kinds.contains(&"intent-without-cause"), "{kinds:?}");
    let sound = Sound { volume, ..sound };
    assert_eq!(left.iter().filter(|finding| finding.kind() == "intent-without-cause").count(), 1, "{left:?}");
    sound.change(f, |record| record.flags |= FLAG_SHIFTING);
    sound.volume.fs.sync().unwrap();
    let volume = sound.volume.kill();
    let mut bytes = pattern(1, 50_000);
    bytes.drain(4096..8192);
    assert!(volume.contents(&volume.open(f)) == bytes);
    volume.settle_and_check();
}

/// Two directories that are only in each other: the files in them could not be reached.
#[test]
fn directories_that_are_only_in_each_other_are_taken_out() {
    let sound = Sound::new();
    let deep = sound.volume.directory(sound.e, "deep");
    let file = sound.volume.file(deep, "file");
    sound.volume.write(&file, 0, b"at the bottom");
    let (e, inode) = (sound.e, file.inode());
    drop(file);
    let before = reached(&sound.volume);
    let (key, entry) = sound.entry(sound.d, "e");
    let cookie = u64::from_be_bytes(key[8..16].try_into().unwrap());
    sound.delete(sound.d, DIRENT, key);
    sound.put(deep, DIRENT, dirent_key(deep, cookie), entry.encode());
    sound.change(e, |record| record.parent = deep);
    let (volume, left) = repaired(sound.volume);
    let place = volume.find(ROOT, "lost+found").unwrap();
    let first = InodeNo(e.0.min(deep.0));
    assert_eq!(volume.find(place, &format!("inode-{}", first.0)), Ok(first));
    assert_eq!(volume.find(deep, "file"), Ok(inode));
    let mut after = reached(&volume);
    after.remove(&place.0);
    assert_eq!((left, after), (vec![], before));
}

/// An entry in a file: the inode that it names could not be reached.
#[test]
fn an_inode_with_only_an_entry_in_a_file_gets_a_name() {
    let sound = Sound::new();
    let before = reached(&sound.volume);
    let (key, entry) = sound.entry(sound.d, "e");
    let cookie = u64::from_be_bytes(key[8..16].try_into().unwrap());
    sound.delete(sound.d, DIRENT, key);
    sound.put(sound.f, DIRENT, dirent_key(sound.f, cookie), entry.encode());
    let e = sound.e;
    let (volume, left) = repaired(sound.volume);
    let place = volume.find(ROOT, "lost+found").unwrap();
    assert_eq!(volume.find(place, &format!("inode-{}", e.0)), Ok(e));
    let mut after = reached(&volume);
    after.remove(&place.0);
    assert_eq!((left, after), (vec![], before));
}

/// A file's record was lost, and the repair removed its name and attributes: before it, `salvage` saved the bytes
/// under the name, and afterwards only under a number.
#[test]
fn the_name_of_data_without_an_inode_stays() {
    let sound = Sound::new();
    let (d, f) = (sound.d, sound.f);
    sound.delete(f, INODE, inode_key(f));
    sound.put(f, ORPHAN, number_key(f), marker());
    let (volume, left) = repaired(sound.volume);
    let kinds: Vec<_> = left.iter().map(Finding::kind).collect();
    assert_eq!(kinds, ["no-inode", "attribute-without-inode", "data-without-file"]);
    volume.fs.unmount().unwrap();
    let salvage = salvage::Salvage::open(volume.device.clone(), &mut |_, _| ()).unwrap();
    let mut found = Vec::new();
    let each = &mut |item: &salvage::Item, paths: &salvage::Paths| {
        if item.inode == f {
            let mut bytes = vec![0; 50_000];
            salvage.contents(item, &mut |at, some| {
                let (at, end) = (at as usize, (at as usize + some.len()).min(50_000));
                bytes[at..end].copy_from_slice(&some[..end - at]);
            })?;
            found.push((paths.path(item.inode), item.xattrs.clone(), bytes));
        }
        Ok::<_, fs::FsError>(())
    };
    salvage.walk(each).unwrap();
    let attributes = vec![(b"user.a".to_vec(), b"1".to_vec())];
    assert_eq!(found, [(b"d/f".to_vec(), attributes, pattern(1, 50_000))]);
    assert!(
        extent::view_object(volume.fs.extents().maps(), Object(f.0)).is_ok_and(|pieces| !pieces.is_empty())
    );
    assert!(volume.find(d, "f").is_err() || volume.fs.attributes(f).is_err());
}

/// One damaged row ended a repair with an error, and the rest of the volume was never repaired.
#[test]
fn a_damaged_row_does_not_stop_a_repair() {
    let sound = Sound::new();
    let (d, e, f) = (sound.d, sound.e, sound.f);
    // In the place of one name, which is elsewhere; and of all counters but one.
    let (key, entry) = sound.entry(d, "e");
    sound.put(d, DIRENT, key, b"nonsense".to_vec());
    sound.put(d, DIRENT, dirent_key(d, 1 << 40), entry.encode());
    let (key, _) = sound.entry(ROOT, "d");
    sound.delete(ROOT, DIRENT, key);
    for group in 0..sound.volume.fs.store().info().groups {
        let inode = InodeNo(u64::from(group));
        if sound.group(inode) != sound.group(f) {
            sound.put(inode, COUNTER, counter_key(sound.group(inode).0), vec![9]);
        }
    }
    sound.change(f, |record| record.links = 7);
    let (volume, left) = repaired(sound.volume);
    let kinds: BTreeSet<_> = left.iter().map(Finding::kind).collect();
    assert_eq!(kinds, BTreeSet::from(["row", "hash"]), "{left:?}");
    let place = volume.find(ROOT, "lost+found").unwrap();
    assert_eq!(volume.find(place, &format!("inode-{}", d.0)), Ok(d));
    assert_eq!(volume.fs.attributes(f).unwrap().links, 1);
    assert!(volume.fs.attributes(e).is_ok());
}

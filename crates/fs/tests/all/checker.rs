//! Every finding of the checker, each with the damage that causes it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use extent::Object;
use extent::format::{EXTENT, Extent, INLINE_BLOCK, Origin, REFCOUNT, UNWRITTEN_BLOCKS, encode_refcount};
use fs::format::{
    self, COUNTER, DIRENT, Damaged, Dirent, FLAG_INLINE, FLAG_SHIFTING, FLAG_TRUNCATING, INODE, INTENT,
    ORPHAN, Record, XATTR, XattrHead, dirent_key, inode_key, marker, number_key, xattr_key,
};
use fs::{Caller, DamagedCopies, Finding, InodeNo, Kind, NameFinding, ScrubAt};
use tree::{Group, Key, Table, Tx};

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const NOBODY: InodeNo = InodeNo(4 * 100);

/// A volume with a directory `d` that contains a directory `e` and a file `f` of some blocks.
pub(crate) struct Sound {
    pub(crate) volume: Volume,
    pub(crate) d: InodeNo,
    pub(crate) e: InodeNo,
    pub(crate) f: InodeNo,
}

impl Sound {
    pub(crate) fn new() -> Self {
        let volume = Volume::new();
        let d = volume.directory(ROOT, "d");
        let e = volume.directory(d, "e");
        let handle = volume.file(d, "f");
        volume.write(&handle, 0, &pattern(1, 50_000));
        let f = handle.inode();
        drop(handle);
        volume.fs.set_xattr(&Caller::root(), f, b"user.a", b"1", false, false).unwrap();
        volume.settle_and_check();
        Sound { volume, d, e, f }
    }

    pub(crate) fn group(&self, inode: InodeNo) -> Group {
        self.volume.fs.store().group_of(inode.0)
    }

    pub(crate) fn record(&self, inode: InodeNo) -> Record {
        let bytes = self.volume.fs.store().get(self.group(inode), INODE, &inode_key(inode)).unwrap();
        Record::decode(&bytes.expect("the inode exists")).unwrap()
    }

    pub(crate) fn put(&self, inode: InodeNo, table: Table, key: impl AsRef<[u8]>, value: Vec<u8>) {
        let mut tx = Tx::new();
        tx.put(self.group(inode), table, key, value);
        self.volume.fs.store().commit(tx).unwrap();
    }

    pub(crate) fn delete(&self, inode: InodeNo, table: Table, key: impl AsRef<[u8]>) {
        let mut tx = Tx::new();
        tx.delete(self.group(inode), table, key);
        self.volume.fs.store().commit(tx).unwrap();
    }

    pub(crate) fn change(&self, inode: InodeNo, change: impl FnOnce(&mut Record)) {
        let mut record = self.record(inode);
        change(&mut record);
        self.put(inode, INODE, inode_key(inode), record.encode());
    }

    /// Key and entry of a name.
    pub(crate) fn entry<'a>(&self, parent: InodeNo, name: &'a str) -> (Key, Dirent<'a>) {
        let store = self.volume.fs.store();
        let (from, to) = (dirent_key(parent, 0), dirent_key(parent, u64::MAX));
        let rows = store.range(self.group(parent), DIRENT, &from, &to, 100).unwrap();
        let its = |value: &[u8]| {
            let Dirent { inode, kind, name: found } = Dirent::decode(value).unwrap();
            (found == name.as_bytes()).then_some(Dirent { inode, kind, name: name.as_bytes() })
        };
        rows.into_iter().find_map(|(key, value)| Some((key, its(&value)?))).expect("the name is there")
    }

    /// The findings about names, after a mount without cached inodes.
    #[track_caller]
    fn finds(self, expected: &[NameFinding]) {
        self.volume.fs.sync().unwrap();
        let volume = self.volume.kill();
        let found = volume.fs.check().unwrap();
        for wanted in expected {
            assert!(found.contains(&Finding::Names(wanted.clone())), "{wanted:?} is not in {found:?}");
            assert!(!Finding::Names(wanted.clone()).to_string().is_empty());
            tick(wanted);
        }
        let names = found.iter().filter(|finding| matches!(finding, Finding::Names(_))).count();
        assert_eq!(names, expected.len(), "nothing else is found: {found:?}");
    }
}

thread_local! {
    /// The kinds that tests of this thread have planted and found.
    static PLANTED: RefCell<BTreeSet<String>> = RefCell::default();
}

fn tick(finding: &NameFinding) {
    let name = format!("{finding:?}").split(' ').next().unwrap().to_owned();
    PLANTED.with_borrow_mut(|planted| planted.insert(name));
}

/// The variants of an enum in a source, by their names.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("pub enum {name} {{")).nth(1).unwrap().split("\n}").next().unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    names.map(|line| line.split([' ', ',']).next().unwrap().to_owned()).collect()
}

/// A new kind of finding must be planted too.
#[test]
fn every_kind_of_finding_is_planted() {
    let plants = [
        rows_that_cannot_be_decoded,
        a_row_in_another_group,
        a_number_that_was_never_handed_out,
        an_entry_of_an_inode_that_is_no_directory,
        a_name_of_no_inode_and_one_of_a_wrong_kind,
        a_name_under_a_wrong_hash,
        a_directory_that_names_another_above_it,
        wrong_counts,
        an_inode_without_a_name,
        directories_that_are_only_in_each_other,
        orphans_that_are_none,
        intents_and_their_causes,
        attributes_without_an_inode,
        data_beyond_the_end,
        data_of_an_inode_that_is_no_file,
        a_file_that_owns_blocks_that_others_reference,
    ];
    plants.iter().for_each(|plant| plant());
    let kinds = variants(include_str!("../../src/check.rs"), "NameFinding");
    assert!(kinds.len() >= 21, "{kinds:?}");
    assert_eq!(PLANTED.take(), kinds);
}

#[test]
fn rows_that_cannot_be_decoded() {
    let sound = Sound::new();
    sound.put(ROOT, INODE, inode_key(NOBODY), b"nonsense".to_vec());
    sound.put(ROOT, ORPHAN, b"short", marker());
    sound.finds(&[
        NameFinding::Damaged { table: INODE.0, why: Damaged("an inode's record is too short") },
        NameFinding::Damaged { table: ORPHAN.0, why: Damaged("a key is too short for an inode's number") },
    ]);
}

#[test]
fn a_row_in_another_group() {
    let sound = Sound::new();
    let elsewhere = InodeNo(sound.f.0 + 1);
    let record = sound.record(sound.f).encode();
    sound.delete(sound.f, INODE, inode_key(sound.f));
    sound.put(elsewhere, INODE, inode_key(sound.f), record);
    let f = sound.f;
    sound.finds(&[NameFinding::Misplaced { table: INODE.0, inode: f }]);
}

#[test]
fn a_number_that_was_never_handed_out() {
    let sound = Sound::new();
    let inode = InodeNo(sound.d.0 % 4 + 4 * 1_000_000);
    let record =
        Record { links: 0, size: 0, flags: FLAG_INLINE, xattrs: 0, blocks: 0, ..sound.record(sound.f) };
    sound.put(inode, INODE, inode_key(inode), record.encode());
    sound.put(inode, ORPHAN, number_key(inode), marker());
    let volume = &sound.volume;
    let beyond = NameFinding::NumberBeyondRange { inode };
    assert_eq!(volume.fs.check_names().unwrap(), std::slice::from_ref(&beyond));
    tick(&beyond);
}

#[test]
fn an_entry_of_an_inode_that_is_no_directory() {
    let sound = Sound::new();
    let (key, entry) = sound.entry(sound.d, "f");
    let cookie = u64::from_be_bytes(key[8..16].try_into().unwrap());
    sound.put(sound.f, DIRENT, dirent_key(sound.f, cookie), entry.encode());
    sound.change(sound.f, |record| record.links = 2);
    let f = sound.f;
    sound.finds(&[NameFinding::NoDirectory { parent: f, name: "f".into() }]);
}

#[test]
fn a_name_of_no_inode_and_one_of_a_wrong_kind() {
    let sound = Sound::new();
    let (key, entry) = sound.entry(sound.d, "f");
    sound.put(sound.d, DIRENT, key.clone(), Dirent { inode: NOBODY, ..entry }.encode());
    sound.change(sound.f, |record| record.links = 0);
    sound.put(sound.f, ORPHAN, number_key(sound.f), marker());
    let d = sound.d;
    sound.finds(&[NameFinding::NoInode { parent: d, name: "f".into(), inode: NOBODY }]);

    let sound = Sound::new();
    let (key, entry) = sound.entry(sound.d, "f");
    sound.put(sound.d, DIRENT, key, Dirent { kind: Kind::Fifo, ..entry }.encode());
    let (d, f) = (sound.d, sound.f);
    sound.finds(&[NameFinding::WrongKind { parent: d, name: "f".into(), inode: f }]);
}

#[test]
fn a_name_under_a_wrong_hash() {
    let sound = Sound::new();
    let (key, entry) = sound.entry(sound.d, "f");
    sound.delete(sound.d, DIRENT, key);
    sound.put(sound.d, DIRENT, dirent_key(sound.d, 1 << 40), entry.encode());
    let d = sound.d;
    sound.finds(&[NameFinding::WrongHash { parent: d, name: "f".into() }]);
}

#[test]
fn a_directory_that_names_another_above_it() {
    let sound = Sound::new();
    sound.change(sound.e, |record| record.parent = ROOT);
    let (d, e) = (sound.d, sound.e);
    sound.finds(&[NameFinding::WrongParent { inode: e, stored: ROOT, found: d }]);
}

#[test]
fn wrong_counts() {
    let sound = Sound::new();
    sound.change(sound.f, |record| {
        record.links = 5;
        record.xattrs = 0;
    });
    sound.change(sound.d, |record| {
        record.links = 7;
        record.size = 9;
    });
    let (d, f) = (sound.d, sound.f);
    sound.finds(&[
        NameFinding::WrongLinks { inode: f, stored: 5, counted: 1 },
        NameFinding::WrongAttributes { inode: f, stored: 0, counted: 1 },
        NameFinding::WrongLinks { inode: d, stored: 7, counted: 3 },
        NameFinding::WrongEntries { inode: d, stored: 9, counted: 2 },
    ]);
}

#[test]
fn an_inode_without_a_name() {
    let sound = Sound::new();
    let (key, _) = sound.entry(sound.d, "f");
    sound.delete(sound.d, DIRENT, key);
    sound.change(sound.d, |record| record.size = 1);
    let f = sound.f;
    sound.finds(&[NameFinding::Nameless { inode: f }]);
}

#[test]
fn directories_that_are_only_in_each_other() {
    let sound = Sound::new();
    let deep = sound.volume.directory(sound.e, "deep");
    let (key, entry) = sound.entry(sound.d, "e");
    let cookie = u64::from_be_bytes(key[8..16].try_into().unwrap());
    sound.delete(sound.d, DIRENT, key);
    sound.put(deep, DIRENT, dirent_key(deep, cookie), entry.encode());
    sound.change(sound.d, |record| (record.size, record.links) = (1, 2));
    sound.change(deep, |record| (record.size, record.links) = (1, 3));
    sound.change(sound.e, |record| record.parent = deep);
    let e = sound.e;
    sound.finds(&[NameFinding::Detached { inode: e }, NameFinding::Detached { inode: deep }]);
}

#[test]
fn orphans_that_are_none() {
    let sound = Sound::new();
    sound.put(NOBODY, ORPHAN, number_key(NOBODY), marker());
    sound.put(sound.f, ORPHAN, number_key(sound.f), marker());
    let f = sound.f;
    sound.finds(&[
        NameFinding::OrphanWithoutInode { inode: NOBODY },
        NameFinding::OrphanWithName { inode: f },
    ]);
}

#[test]
fn intents_and_their_causes() {
    let sound = Sound::new();
    let other = sound.volume.file(sound.d, "other").inode();
    sound.put(sound.f, INTENT, number_key(sound.f), marker());
    sound.change(other, |record| record.flags |= FLAG_TRUNCATING);
    let f = sound.f;
    sound.finds(&[
        NameFinding::IntentWithoutCause { inode: f },
        NameFinding::CauseWithoutIntent { inode: other },
    ]);
}

#[test]
fn a_range_move_without_a_valid_intent() {
    let sound = Sound::new();
    let other = sound.volume.file(sound.d, "other").inode();
    sound.put(sound.f, INTENT, number_key(sound.f), marker());
    sound.change(sound.f, |record| record.flags |= FLAG_SHIFTING);
    sound.change(other, |record| record.flags |= FLAG_SHIFTING);
    let mut bytes = [0; 10];
    let volume = sound.volume.fs.sync().map(|()| sound.volume.kill()).unwrap();
    let (f, damaged) = (sound.f, volume.fs.check_names().unwrap());
    let why = Damaged("an intent to move a range has a wrong length");
    assert!(damaged.contains(&NameFinding::Damaged { table: INTENT.0, why }), "{damaged:?}");
    assert!(damaged.contains(&NameFinding::CauseWithoutIntent { inode: other }), "{damaged:?}");
    assert_eq!(damaged.len(), 2, "{damaged:?}");
    let handle = volume.open(f);
    assert!(matches!(volume.fs.read(&handle, 0, &mut bytes), Err(fs::FsError::Io(_))));
    assert!(matches!(volume.fs.write(&handle, 0, &bytes), Err(fs::FsError::Io(_))));
}

#[test]
fn attributes_without_an_inode() {
    let sound = Sound::new();
    let head = XattrHead { parts: 1, value_length: 1, name: b"user.a".to_vec(), bytes: b"1".to_vec() };
    sound.put(NOBODY, XATTR, xattr_key(NOBODY, 1, 0, 0), head.encode());
    sound.finds(&[NameFinding::AttributeWithoutInode { inode: NOBODY }]);
}

#[test]
fn data_beyond_the_end() {
    let sound = Sound::new();
    sound.change(sound.f, |record| record.size = 4097);
    let f = sound.f;
    sound.finds(&[NameFinding::DataBeyondEnd { inode: f, block: 2 }]);
}

#[test]
fn values_of_the_format_are_not_taken_from_a_newer_version() {
    let sound = Sound::new();
    let mut record = sound.record(sound.f).encode();
    record[0] = format::VERSION + 1;
    sound.put(sound.f, INODE, inode_key(sound.f), record);
    let (d, f) = (sound.d, sound.f);
    sound.finds(&[
        NameFinding::Damaged { table: INODE.0, why: Damaged("an inode's record has an unknown version") },
        NameFinding::NoInode { parent: d, name: "f".into(), inode: f },
        NameFinding::AttributeWithoutInode { inode: f },
        NameFinding::DataWithoutFile { inode: f },
    ]);
}

#[test]
fn data_of_an_inode_that_is_no_file() {
    let sound = Sound::new();
    let handle = sound.volume.file(sound.d, "short");
    sound.volume.write(&handle, 0, b"inline");
    let short = handle.inode();
    drop(handle);
    for owner in [NOBODY, short, sound.d] {
        let store = sound.volume.fs.store();
        let mut tx = Tx::new();
        tx.put(
            store.group_of(owner.0),
            INLINE_BLOCK,
            extent::format::key(Object(owner.0), 3),
            b"lost".to_vec(),
        );
        store.commit(tx).unwrap();
    }
    let d = sound.d;
    sound.finds(&[NOBODY, short, d].map(|inode| NameFinding::DataWithoutFile { inode }));
}

#[test]
fn a_wrong_count_of_unwritten_blocks() {
    let sound = Sound::new();
    let mut tx = Tx::new();
    tx.counter(UNWRITTEN_BLOCKS, 3);
    sound.volume.fs.store().commit(tx).unwrap();
    let findings = sound.volume.fs.check().unwrap();
    let [Finding::Extents(found)] = &findings[..] else { panic!("one thing is wrong: {findings:?}") };
    assert_eq!(found.kind, extent::FindingKind::Unwritten);
    assert_eq!(found.what, "3 unwritten blocks are counted, extents have 0");
}

#[test]
fn an_attribute_and_a_counter_that_cannot_be_decoded() {
    let sound = Sound::new();
    sound.put(sound.f, XATTR, xattr_key(sound.f, 1, 0, 0), vec![0; 9]);
    let group = sound.group(sound.f).0;
    sound.put(sound.f, COUNTER, format::counter_key(group), vec![9]);
    sound.finds(&[
        NameFinding::Damaged { table: XATTR.0, why: Damaged("an extended attribute has an unknown version") },
        NameFinding::Damaged {
            table: COUNTER.0,
            why: Damaged("a counter of inode numbers cannot be decoded"),
        },
    ]);
}

/// One damaged row of a file's data or of a directory kept the whole volume from being checked and repaired: there
/// was an error instead of the findings.
#[test]
fn a_damaged_row_does_not_stop_the_checker() {
    let sound = Sound::new();
    let data = extent::format::key(Object(sound.f.0), 0).to_vec();
    sound.put(sound.f, EXTENT, data, vec![0; 5]);
    let kinds: Vec<&str> = sound.volume.fs.check().unwrap().iter().map(Finding::kind).collect();
    assert_eq!(kinds, ["extent", "live-blocks"]);

    let sound = Sound::new();
    sound.put(sound.d, INODE, inode_key(sound.d), b"nonsense".to_vec());
    let (d, e) = (sound.d, sound.e);
    sound.finds(&[
        NameFinding::Damaged { table: INODE.0, why: Damaged("an inode's record is too short") },
        NameFinding::NoInode { parent: ROOT, name: "d".into(), inode: d },
        NameFinding::NoDirectory { parent: d, name: "e".into() },
        NameFinding::NoDirectory { parent: d, name: "f".into() },
        NameFinding::Detached { inode: e },
    ]);
}

/// `f` and a clone of it, and the objects with their contents.
struct Cloned {
    sound: Sound,
    g: InodeNo,
    objects: [InodeNo; 2],
}

impl Cloned {
    fn new() -> Cloned {
        let sound = Sound::new();
        let (f, g) = (sound.volume.open(sound.f), sound.volume.file(sound.d, "g"));
        sound.volume.fs.clone_range(&f, 0, &g, 0, 0).unwrap();
        let objects = [sound.f, g.inode()].map(|inode| InodeNo(sound.record(inode).object(inode).0));
        let g = g.inode();
        drop(f);
        sound.volume.settle_and_check();
        Cloned { sound, g, objects }
    }

    fn key(object: InodeNo, block: u64) -> Vec<u8> {
        extent::format::key(Object(object.0), block).to_vec()
    }

    /// The findings about data.
    fn finds(&self, kinds: &[&str]) {
        let findings = self.sound.volume.fs.check().unwrap();
        let found: Vec<&str> = findings.iter().map(Finding::kind).collect();
        assert_eq!(found, kinds, "{findings:?}");
    }
}

#[test]
fn references_that_are_not_counted_or_lead_nowhere() {
    let cloned = Cloned::new();
    let (sound, owner) = (&cloned.sound, cloned.sound.f);
    let reference = Extent::reference(3, Origin { object: Object(owner.0), block: 4 }).encode();
    sound.put(cloned.g, EXTENT, Cloned::key(cloned.objects[1], 20), reference);
    cloned.finds(&["reference-count", "data-beyond-end"]);

    let cloned = Cloned::new();
    let (sound, owner) = (&cloned.sound, cloned.sound.f);
    sound.put(owner, REFCOUNT, Cloned::key(owner, 2), encode_refcount(1, 5).to_vec());
    cloned.finds(&["reference-count"]);
    sound.put(NOBODY, REFCOUNT, Cloned::key(NOBODY, 2), encode_refcount(1, 5).to_vec());
    sound.put(owner, REFCOUNT, Cloned::key(owner, 700), vec![1]);
    cloned.finds(&["extent", "reference-count", "reference-count"]);

    let cloned = Cloned::new();
    let (sound, owner) = (&cloned.sound, cloned.sound.f);
    let nowhere = Extent::reference(2, Origin { object: Object(owner.0), block: 600 }).encode();
    sound.put(cloned.g, EXTENT, Cloned::key(cloned.objects[1], 20), nowhere);
    sound.change(cloned.g, |record| record.size = 30 * 4096);
    cloned.finds(&["reference"]);
    cloned.sound.volume.fs.sync().unwrap();
    let volume = cloned.sound.volume.kill();
    let read = volume.fs.read(&volume.open(cloned.g), 20 * 4096, &mut [0; 9]);
    assert!(matches!(read, Err(fs::FsError::Io(_))), "not zeros: {read:?}");
}

#[test]
fn shared_blocks_without_a_reference() {
    let cloned = Cloned::new();
    for object in cloned.objects {
        cloned.sound.delete(object, EXTENT, Cloned::key(object, 0));
    }
    cloned.sound.delete(cloned.sound.f, REFCOUNT, Cloned::key(cloned.sound.f, 0));
    // One reference has all blocks: now they are data without an owner, as those of any other object would be.
    cloned.finds(&["data-without-file"]);
    let rest = Extent::reference(3, Origin { object: Object(cloned.sound.f.0), block: 4 }).encode();
    cloned.sound.put(cloned.g, EXTENT, Cloned::key(cloned.objects[1], 0), rest);
    cloned.finds(&["unreferenced-blocks", "unreferenced-blocks"]);
}

#[test]
fn a_file_that_owns_blocks_that_others_reference() {
    let cloned = Cloned::new();
    let (f, Cloned { sound, objects, .. }) = (cloned.sound.f, cloned);
    sound.change(f, |record| record.object = None);
    sound.finds(&[
        NameFinding::SharedAndWritten { inode: f, object: Object(f.0) },
        NameFinding::DataWithoutFile { inode: objects[0] },
    ]);
}

#[test]
fn damage_to_shared_blocks_is_reported_for_each_file() {
    let Cloned { sound, .. } = Cloned::new();
    let at = first_extent(&sound.volume, sound.f);
    sound.volume.device.corrupt(at.zone(), at.block() + 2, 9, 1);
    let bytes = Some(2 * 4096..3 * 4096);
    let mut reported = scrub(&sound.volume);
    reported.sort_by_key(|(_, path, _)| path.clone());
    assert_eq!(
        reported,
        [("data", Some("/d/f".to_owned()), bytes.clone()), ("data", Some("/d/g".to_owned()), bytes)]
    );
}

/// A kind of finding, the path of a file, and the affected bytes.
type Reported = (&'static str, Option<String>, Option<std::ops::Range<u64>>);

/// Everything that a scrub finds: kinds, paths, bytes.
fn scrub(volume: &Volume) -> Vec<Reported> {
    let (mut at, mut findings) = (ScrubAt::start(), Vec::new());
    while at != ScrubAt::End {
        let some = volume.fs.scrub_step(at, 10_000, DamagedCopies::Report).unwrap();
        findings.extend(some.findings.into_iter().map(|(finding, _)| finding));
        at = some.next;
    }
    reported(volume, &findings)
}

fn reported(volume: &Volume, findings: &[Finding]) -> Vec<Reported> {
    let affected = volume.fs.affected_files(findings).unwrap();
    let path = |path: Option<Vec<u8>>| path.map(|path| String::from_utf8(path).unwrap());
    let each = findings.iter().zip(affected);
    each.flat_map(|(finding, of)| of.into_iter().map(move |of| (finding.kind(), path(of.path), of.bytes)))
        .collect()
}

/// The place of the first extent of a file.
fn first_extent(volume: &Volume, inode: InodeNo) -> zone::Address {
    let pieces = extent::view_object(volume.fs.extents().maps(), Object(inode.0)).unwrap();
    match &pieces[0].1 {
        extent::MapRow::Extent(extent) => extent.address,
        other => panic!("{other:?}"),
    }
}

#[test]
fn damaged_data_is_reported_by_name_and_bytes() {
    let sound = Sound::new();
    let at = first_extent(&sound.volume, sound.f);
    assert_eq!(scrub(&sound.volume), []);
    sound.volume.device.corrupt(at.zone(), at.block() + 2, 9, 1);
    sound.volume.device.make_unreadable(at.zone(), at.block() + 12);
    let path = || Some("/d/f".to_owned());
    assert_eq!(
        scrub(&sound.volume),
        [("data", path(), Some(2 * 4096..3 * 4096)), ("data", path(), Some(12 * 4096..50_000))]
    );
}

/// A leaf that cannot be read: the files whose names, contents and attributes may be in it are reported.
#[test]
fn a_damaged_page_of_metadata_affects_the_files_in_it() {
    let volume = Volume::new();
    let (mut files, mut inodes) = (Vec::new(), std::collections::BTreeSet::new());
    for number in 0..400 {
        let file = volume.file(ROOT, &format!("f{number}"));
        volume.write(&file, 0, &pattern(number as u8, 5000));
        inodes.insert(file.inode());
        files.push((file.inode(), number));
    }
    let volume = volume.remount();
    let store = volume.fs.store();
    let leaf_of = |inode: InodeNo| {
        let root = store.view_node(1 + u64::from(store.group_of(inode.0).0)).unwrap().unwrap();
        let key = [&[INODE.0][..], &inode_key(inode)].concat();
        let mut children = root.entries.into_iter().filter_map(|entry| match entry {
            tree::NodeEntry::Child(first, child) if first <= key => Some(child),
            _ => None,
        });
        store.view_node(children.next_back().unwrap()).unwrap().unwrap()
    };
    let victim = *inodes.iter().nth(200).unwrap();
    let leaf = leaf_of(victim);
    assert_eq!(leaf.level, 0);
    let at = if leaf.base.is_none() { leaf.address } else { leaf.base };
    let inside: std::collections::BTreeSet<u64> = (leaf.entries.iter())
        .filter_map(|entry| match entry {
            tree::NodeEntry::Row(INODE, key, _) => Some(u64::from_be_bytes(key[..8].try_into().unwrap())),
            _ => None,
        })
        .collect();
    assert!(inside.contains(&victim.0) && inside.len() < 200);
    volume.device.corrupt(at.zone(), at.block(), 77, 1);
    let volume = volume.kill();
    let findings = volume.fs.check_store().unwrap();
    let reported = reported(&volume, &findings);
    assert!(reported.iter().all(|(kind, ..)| *kind == "node"), "{reported:?}");
    for (inode, number) in files {
        let is_reported = reported.iter().any(|(_, path, _)| path.as_deref() == Some(&format!("/f{number}")));
        assert!(is_reported || !inside.contains(&inode.0), "/f{number}");
    }
    assert!(reported.len() < 300, "{} files are named", reported.len());
    assert!(!volume.fs.check_readable().unwrap().findings.is_empty());
}

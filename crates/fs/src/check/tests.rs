use std::collections::BTreeMap;
use std::sync::Arc;

use emulated::{Emulated, Spec};
use rt::{ManualClock, Timestamp};

use crate::format::{DIRENT, Dirent, INODE, dirent_key, inode_key};
use crate::names::{Slot, first_cookie};
use crate::{
    Caller, Checked, CheckedPart, FormatOptions, Fs, FsError, InodeNo, Kind, MountOptions, OpenFlags,
};

const ROOT: InodeNo = InodeNo::ROOT;

fn volume() -> Arc<Fs> {
    let device: Arc<dyn zone::Device> = Arc::new(Emulated::new(Spec::new(4096, 32, 256)));
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let options = FormatOptions {
        label: String::new(),
        fs_id: zone::FsId([1; 16]),
        uid: 0,
        gid: 0,
        page_size: None,
        groups: Some(3),
        reserve: crate::Reserve::default(),
    };
    Fs::format(&device, &options, &*clock).expect("an empty device can be formatted");
    let options = MountOptions { cache_bytes: 1 << 20, read_only: false, commit_interval_ns: 1, clock };
    Fs::mount(device, options).expect("a new volume can be mounted").0
}

#[test]
fn many_passes_find_what_one_does() {
    let fs = volume();
    let root = Caller::root();
    for n in 0..50 {
        let directory = fs.make_directory(&root, ROOT, format!("d{n}").as_bytes(), 0o755).unwrap().inode;
        fs.make_node(&root, directory, b"f", Kind::File, 0o644, 0).unwrap();
    }
    assert_eq!(fs.check_names_in_passes(&fs.shared_blocks().unwrap(), 7), Ok(vec![]));
    let mut tx = tree::Tx::new();
    for n in (0..50).step_by(3) {
        let directory = fs.lookup(&root, ROOT, format!("d{n}").as_bytes()).unwrap().inode;
        let found = fs.find(directory, b"f").unwrap().unwrap();
        tx.delete(fs.group(directory), DIRENT, dirent_key(directory, found.cookie));
    }
    tx.put(fs.group(InodeNo(9000)), INODE, inode_key(InodeNo(9000)), b"damaged".to_vec());
    fs.store().commit(tx).unwrap();
    let whole = fs.check_names().unwrap();
    let mut parts = fs.check_names_in_passes(&fs.shared_blocks().unwrap(), 7).unwrap();
    assert_eq!(whole.len(), 1 + 2 * 17);
    assert!(whole.iter().all(|finding| parts.contains(finding)));
    parts.dedup();
    assert_eq!(parts.len(), whole.len(), "each is told once");
}

/// Names with the same hash cannot be found by trying: they are put there.
#[test]
fn names_of_one_hash_are_told_apart_up_to_256() {
    let fs = volume();
    let root = Caller::root();
    let first = first_cookie(&fs.store().info().secret, b"wanted");
    let mut tx = tree::Tx::new();
    for n in 0..254u64 {
        let name = format!("other{n}");
        let entry = Dirent { inode: InodeNo(9), kind: Kind::File, name: name.as_bytes() };
        tx.put(fs.group(ROOT), DIRENT, dirent_key(ROOT, first + n), entry.encode());
    }
    fs.store().commit(tx).unwrap();
    assert_eq!(fs.slot(ROOT, b"wanted"), Ok(Slot::Free(first + 254)));
    fs.make_node(&root, ROOT, b"wanted", Kind::File, 0o644, 0).unwrap();
    assert_eq!(fs.find(ROOT, b"wanted").unwrap().map(|found| found.cookie), Some(first + 254));
    let entry = Dirent { inode: InodeNo(9), kind: Kind::File, name: b"last" };
    let mut tx = tree::Tx::new();
    tx.put(fs.group(ROOT), DIRENT, dirent_key(ROOT, first + 255), entry.encode());
    fs.store().commit(tx).unwrap();
    assert!(fs.find(ROOT, b"wanted").unwrap().is_some());
    fs.unlink(&root, ROOT, b"wanted").unwrap();
    assert_eq!(fs.slot(ROOT, b"wanted"), Ok(Slot::Free(first + 254)), "its number is used again");
    let mut tx = tree::Tx::new();
    let entry = Dirent { inode: InodeNo(9), kind: Kind::File, name: b"one more" };
    tx.put(fs.group(ROOT), DIRENT, dirent_key(ROOT, first + 254), entry.encode());
    fs.store().commit(tx).unwrap();
    assert_eq!(fs.slot(ROOT, b"wanted"), Err(FsError::NoSpace), "there are 256 names of this hash");
}

/// What is said of each part while a sound volume is checked, one part after the other.
fn told(fs: &Fs) -> BTreeMap<CheckedPart, Vec<(u64, u64)>> {
    let (mut told, mut parts) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    let found = fs.check_with_progress(&mut |Checked { part, done, of }| {
        parts.push(part);
        told.entry(part).or_default().push((done, of));
    });
    assert_eq!(found, Ok(vec![]));
    assert!(parts.is_sorted());
    told
}

/// Counts rise by one and come to the total, which is known from the beginning; but nodes that came after the last
/// checkpoint are known only when they are met.
#[test]
fn a_check_says_how_far_it_is() {
    let fs = volume();
    let root = Caller::root();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    for n in 0..300 {
        let name = format!("a name that is long enough for several nodes, {n}");
        let (_, file) = fs.create(&root, ROOT, name.as_bytes(), 0o600, flags, true).unwrap();
        fs.write(&file, 0, &[7; 5000]).unwrap();
        fs.set_xattr(&root, file.inode(), b"user.n", b"value", false, false).unwrap();
    }
    fs.sync().unwrap();
    let early = &told(&fs)[&CheckedPart::Nodes];
    assert!(early.iter().all(|(done, of)| done <= of) && early[0].1 < early.len() as u64);
    fs.store().checkpoint().unwrap();
    let told = told(&fs);
    for (part, least) in [(CheckedPart::Nodes, 10), (CheckedPart::Extents, 300), (CheckedPart::Rows, 900)] {
        let counts = &told[&part];
        let (done, of) = *counts.last().unwrap();
        assert!(done == of && of >= least, "{done} of {of} {part:?}");
        let mut expected: Vec<(u64, u64)> = (1..=of).map(|done| (done, of)).collect();
        // That the trees are done is said once more.
        expected.extend((part == CheckedPart::Nodes).then_some((of, of)));
        assert_eq!(*counts, expected, "{part:?}");
    }
    assert_eq!(told[&CheckedPart::Nodes].last(), early.last(), "as many as were met before the checkpoint");
}

/// Each pass reads all rows, and counts.
#[test]
fn passes_are_counted_together() {
    let fs = volume();
    for n in 0..20 {
        fs.make_directory(&Caller::root(), ROOT, format!("d{n}").as_bytes(), 0o755).unwrap();
    }
    let count = |pass_inodes: u64| {
        let mut last = (0, 0);
        let shared = fs.shared_blocks().unwrap();
        let found =
            fs.check_names_with_progress(&shared, pass_inodes, &mut |done, passes| last = (done, passes));
        assert_eq!(found, Ok(vec![]));
        last
    };
    let (rows, once) = count(1000);
    assert_eq!(once, 1);
    assert_eq!(count(7), (3 * rows, 3));
}

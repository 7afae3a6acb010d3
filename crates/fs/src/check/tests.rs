use std::sync::Arc;

use rt::{ManualClock, Timestamp};
use zone::emulated::{Emulated, Spec};

use crate::format::{DIRENT, Dirent, INODE, dirent_key, inode_key};
use crate::names::{Slot, first_cookie};
use crate::{Caller, FormatOptions, Fs, FsError, InodeNo, Kind, MountOptions};

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

//! Names, directories, and reading them in pieces.

use std::collections::BTreeSet;

use fs::{Caller, FsError, InodeNo, Kind, OpenFlags};

use crate::support::{READ, READ_WRITE, Volume};

const ROOT: InodeNo = InodeNo::ROOT;

#[test]
fn a_name_leads_to_its_inode_until_it_is_removed() {
    let volume = Volume::new();
    let made = volume.file(ROOT, "a").inode();
    assert_eq!(volume.find(ROOT, "a"), Ok(made));
    assert_eq!(volume.find(ROOT, "b"), Err(FsError::NotFound));
    volume.unlink(ROOT, "a").unwrap();
    assert_eq!(volume.find(ROOT, "a"), Err(FsError::NotFound));
    assert_eq!(volume.unlink(ROOT, "a"), Err(FsError::NotFound));
    volume.settle_and_check();
}

#[test]
fn dot_and_dot_dot_are_the_directory_and_the_one_above() {
    let volume = Volume::new();
    let inner = volume.directory(volume.directory(ROOT, "outer"), "inner");
    let outer = volume.find(ROOT, "outer").unwrap();
    assert_eq!(volume.find(inner, "."), Ok(inner));
    assert_eq!(volume.find(inner, ".."), Ok(outer));
    assert_eq!(volume.find(ROOT, ".."), Ok(ROOT));
}

/// A handle that was opened for neither reading nor writing listed a directory that its owner had closed to others.
#[test]
fn a_directory_can_be_listed_only_with_read_permission() {
    let volume = Volume::new();
    let closed = volume.fs.make_directory(&Caller::root(), ROOT, b"closed", 0o711).unwrap().inode;
    let other = Caller::user(11, 30);
    assert_eq!(volume.fs.open(&other, closed, READ).map(|_| ()), Err(FsError::Access));
    let handle = volume.fs.open(&other, closed, OpenFlags::default()).unwrap();
    assert_eq!(volume.fs.read_directory(&handle, 0, &mut |_| true), Err(FsError::BadHandle));
    assert_eq!(volume.fs.fsync(&handle, false), Ok(()));
}

#[test]
fn links_of_a_directory_count_its_subdirectories() {
    let volume = Volume::new();
    let links = |inode| volume.fs.attributes(inode).unwrap().links;
    let outer = volume.directory(ROOT, "outer");
    assert_eq!((links(ROOT), links(outer)), (3, 2));
    volume.directory(outer, "inner");
    volume.file(outer, "file");
    assert_eq!(links(outer), 3);
    volume.fs.remove_directory(&Caller::root(), outer, b"inner").unwrap();
    assert_eq!(links(outer), 2);
}

#[test]
fn only_empty_directories_are_removed_and_nothing_is_created_in_them_then() {
    let volume = Volume::new();
    let root = Caller::root();
    let directory = volume.directory(ROOT, "d");
    let open = volume.fs.open(&root, directory, READ).unwrap();
    volume.file(directory, "f");
    assert_eq!(volume.fs.remove_directory(&root, ROOT, b"d"), Err(FsError::NotEmpty));
    assert_eq!(volume.fs.remove_directory(&root, directory, b"f"), Err(FsError::NotDirectory));
    assert_eq!(volume.unlink(ROOT, "d"), Err(FsError::IsDirectory));
    volume.unlink(directory, "f").unwrap();
    volume.fs.remove_directory(&root, ROOT, b"d").unwrap();
    let made = volume.fs.create(&root, directory, b"late", 0o644, READ_WRITE, true);
    assert_eq!(made.map(|_| ()).unwrap_err(), FsError::NotFound);
    assert_eq!(volume.fs.attributes(directory).unwrap().links, 0);
    let mut seen = 0;
    let mut count = |_| {
        seen += 1;
        true
    };
    volume.fs.read_directory(&open, 0, &mut count).unwrap();
    assert_eq!(seen, 0, "a removed directory has no entries, not even dots");
    drop(open);
    volume.settle_and_check();
}

#[test]
fn names_are_any_bytes_but_slash_and_nul_up_to_255() {
    let volume = Volume::new();
    let root = Caller::root();
    let make = |name: &[u8]| volume.fs.make_node(&root, ROOT, name, Kind::File, 0o644, 0).map(|_| ());
    assert_eq!(make(&[0xff, 1, b'\n', b' ']), Ok(()));
    assert_eq!(make(&[b'x'; 255]), Ok(()));
    assert_eq!(make(&[b'x'; 256]), Err(FsError::NameTooLong));
    for refused in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert!(make(refused).is_err(), "{refused:?}");
    }
    assert_eq!(volume.fs.lookup(&root, ROOT, &[b'y'; 256]).unwrap_err(), FsError::NameTooLong);
    volume.settle_and_check();
}

#[test]
fn a_directory_can_be_read_in_pieces_while_names_come_and_go() {
    let volume = Volume::new();
    let root = Caller::root();
    let directory = volume.directory(ROOT, "d");
    let stay: BTreeSet<String> = (0..500).map(|n| format!("stay{n}")).collect();
    stay.iter().for_each(|name| drop(volume.file(directory, name)));
    (0..200).for_each(|n| drop(volume.file(directory, &format!("go{n}"))));
    let handle = volume.fs.open(&root, directory, READ).unwrap();
    let (mut cookie, mut seen, mut rounds) = (0, Vec::new(), 0);
    loop {
        let (before, after) = (seen.len(), cookie);
        let mut each = |entry: fs::DirEntry| {
            cookie = entry.cookie;
            seen.push(String::from_utf8(entry.name).unwrap());
            seen.len() - before < 37
        };
        volume.fs.read_directory(&handle, after, &mut each).unwrap();
        if seen.len() == before {
            break;
        }
        let _ = volume.unlink(directory, &format!("go{rounds}"));
        drop(volume.file(directory, &format!("come{rounds}")));
        rounds += 1;
    }
    let once: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!(once.len(), seen.len(), "nothing is seen twice");
    assert_eq!(seen[..2], [".".to_string(), "..".to_string()]);
    assert!(stay.is_subset(&once));
    volume.settle_and_check();
}

#[test]
fn a_directory_can_have_tens_of_thousands_of_entries() {
    let volume = Volume::on(emulated::Spec::new(4096, 64, 1024));
    let entries = 20_000;
    let directory = volume.directory(ROOT, "d");
    for n in 0..entries {
        volume
            .fs
            .make_node(&Caller::root(), directory, format!("n{n}").as_bytes(), Kind::File, 0o644, 0)
            .unwrap();
    }
    let volume = volume.remount();
    let directory = volume.find(ROOT, "d").unwrap();
    assert_eq!(volume.fs.attributes(directory).unwrap().size, entries as u64);
    assert_eq!(volume.names(directory).len(), entries);
    for n in (0..entries).step_by(997) {
        assert!(volume.find(directory, &format!("n{n}")).is_ok());
    }
    volume.settle_and_check();
}

#[test]
fn inode_numbers_are_never_used_twice_and_directories_spread_over_the_groups() {
    let mut volume = Volume::new();
    let mut numbers = BTreeSet::new();
    let mut groups = BTreeSet::new();
    for mount in 0..3 {
        for n in 0..5 {
            let directory = volume.directory(ROOT, &format!("d{mount}-{n}"));
            let file = volume.file(directory, "f").inode();
            assert_eq!(directory.0 % 4, file.0 % 4, "a file is in the group of its directory");
            assert!(numbers.insert(directory) && numbers.insert(file));
            groups.insert(directory.0 % 4);
            volume.unlink(directory, "f").unwrap();
        }
        volume.fs.sync().unwrap();
        volume = if mount == 0 { volume.remount() } else { volume.kill() };
    }
    assert_eq!(groups.len(), 4);
}

#[test]
fn special_files_keep_what_they_are() {
    let volume = Volume::new();
    let root = Caller::root();
    let make =
        |name: &[u8], kind, device| volume.fs.make_node(&root, ROOT, name, kind, 0o600, device).unwrap();
    make(b"char", Kind::CharDevice, 0x1234);
    make(b"block", Kind::BlockDevice, 7);
    make(b"fifo", Kind::Fifo, 9);
    make(b"socket", Kind::Socket, 0);
    volume.fs.symlink(&root, ROOT, b"link", b"no/such/target").unwrap();
    let volume = volume.remount();
    let shown = |name: &str| {
        let found = volume.fs.lookup(&root, ROOT, name.as_bytes()).unwrap();
        (found.kind, found.device, found.permissions)
    };
    assert_eq!(shown("char"), (Kind::CharDevice, 0x1234, 0o600));
    assert_eq!(shown("block"), (Kind::BlockDevice, 7, 0o600));
    assert_eq!(shown("fifo"), (Kind::Fifo, 0, 0o600));
    assert_eq!(shown("socket"), (Kind::Socket, 0, 0o600));
    let link = volume.fs.lookup(&root, ROOT, b"link").unwrap();
    assert_eq!((link.kind, link.size, link.permissions), (Kind::Symlink, 14, 0o777));
    assert_eq!(volume.fs.read_link(link.inode).unwrap(), b"no/such/target");
    assert_eq!(volume.fs.read_link(ROOT), Err(FsError::Invalid));
    volume.settle_and_check();
}

#[test]
fn creating_opens_an_existing_file_unless_exclusive() {
    let volume = Volume::new();
    let root = Caller::root();
    let handle = volume.file(ROOT, "f");
    volume.write(&handle, 0, b"contents");
    let again = volume.fs.create(&root, ROOT, b"f", 0o600, READ_WRITE, false).unwrap().1;
    assert_eq!(volume.contents(&again), b"contents");
    let refused = volume.fs.create(&root, ROOT, b"f", 0o600, READ_WRITE, true).map(|_| ());
    assert_eq!(refused, Err(FsError::Exists));
    let truncating = fs::OpenFlags { truncate: true, ..READ_WRITE };
    let (attributes, _handle) = volume.fs.create(&root, ROOT, b"f", 0o600, truncating, false).unwrap();
    assert_eq!((attributes.size, attributes.permissions), (0, 0o644));
}

/// Every byte that a name may have, alone and in every place, and names of every length.
#[test]
fn names_are_any_bytes() {
    let volume = Volume::new();
    let root = Caller::root();
    let allowed = |byte: &u8| !matches!(byte, 0 | b'/');
    let mut names: BTreeSet<Vec<u8>> =
        (1..=255u8).filter(allowed).filter(|byte| *byte != b'.').map(|byte| vec![byte]).collect();
    let mut random = rt::random::Rng::with_seed(11);
    for length in 1..=255usize {
        let byte = || random.u8(..);
        names.insert(std::iter::repeat_with(byte).filter(allowed).take(length).collect());
    }
    names.extend([b"...".to_vec(), b". ".to_vec(), b"\xff\xfe".to_vec(), vec![b'\n'; 255]]);
    names.retain(|name| name != b"." && name != b"..");
    let directory = volume.directory(ROOT, "d");
    for name in &names {
        volume.fs.make_node(&root, directory, name, Kind::File, 0o644, 0).unwrap();
        let again = volume.fs.make_node(&root, directory, name, Kind::File, 0o644, 0);
        assert_eq!(again.unwrap_err(), FsError::Exists, "{name:?}");
    }
    for wrong in [&b""[..], b"a/b", b"a\0b", b"."] {
        assert!(volume.fs.make_node(&root, directory, wrong, Kind::File, 0o644, 0).is_err(), "{wrong:?}");
    }
    let longer = volume.fs.make_node(&root, directory, &[b'a'; 256], Kind::File, 0o644, 0);
    assert_eq!(longer.unwrap_err(), FsError::NameTooLong);

    let volume = volume.remount();
    let other = volume.directory(ROOT, "other");
    let handle = volume.fs.open(&root, directory, READ).unwrap();
    let mut found = BTreeSet::new();
    let mut each = |entry: fs::DirEntry| found.insert(entry.name);
    volume.fs.read_directory(&handle, 2, &mut each).unwrap();
    assert!(found == names, "{} of {} names are listed", found.len(), names.len());
    for name in &names {
        volume.fs.rename(&root, directory, name, other, name, fs::RenameFlags::default()).unwrap();
        volume.fs.unlink(&root, other, name).unwrap();
    }
    volume.settle_and_check();
}

/// If something other than a file exists: a directory was opened without write access, and a link gave the wrong
/// error.
#[test]
fn creating_a_file_opens_only_regular_files() {
    let volume = Volume::new();
    let root = Caller::root();
    volume.directory(ROOT, "d");
    volume.fs.symlink(&root, ROOT, b"l", b"d").unwrap();
    for flags in [READ, READ_WRITE] {
        let create = |name: &str, exclusive| {
            volume.fs.create(&root, ROOT, name.as_bytes(), 0o644, flags, exclusive).map(|_| ())
        };
        assert_eq!(create("d", false), Err(FsError::IsDirectory));
        assert_eq!(create(".", false), Err(FsError::IsDirectory));
        assert_eq!(create("l", false), Err(FsError::Loop));
        assert_eq!(create("d", true), Err(FsError::Exists));
        assert_eq!(create("l", true), Err(FsError::Exists));
    }
    assert!(volume.fs.open(&root, volume.find(ROOT, "d").unwrap(), READ).is_ok());
    assert_eq!(volume.fs.open(&root, volume.find(ROOT, "l").unwrap(), READ).map(|_| ()), Err(FsError::Loop));
}

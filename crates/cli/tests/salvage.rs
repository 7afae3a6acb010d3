//! `polder salvage` of a volume whose log zones or headers are destroyed, and the files that it saves.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use ::fs::{Caller, FormatOptions, Fs, InodeNo, Kind, MountOptions, OpenFlags};
use rt::SystemClock;
use serde_json::Value;
use tempfile::TempDir;
use zone::file::{FileDevice, FileOptions};
use zone::{Device, FsId, Role};

const ZONE_BYTES: u64 = 4 << 20;
const ROOT: InodeNo = InodeNo::ROOT;

/// A file, as far as the tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SavedFile {
    File(Vec<u8>),
    Link(PathBuf),
    Directory,
    /// A FIFO if true, else a device or socket.
    Special(bool),
}

/// Files by their paths below the root.
type Tree = BTreeMap<String, SavedFile>;

fn polder(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polder")).args(arguments).output().unwrap()
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + seed * 13) as u8).collect()
}

/// Creates a volume with some hundred files. Returns the files, the log zones and the metadata zones.
fn volume(path: &Path) -> (Tree, Vec<u64>, Vec<u64>) {
    let options = FileOptions {
        size: Some(128 << 20),
        zone_bytes: Some(ZONE_BYTES),
        fs_id: FsId([9; 16]),
        ..FileOptions::default()
    };
    let device: Arc<dyn Device> = Arc::new(FileDevice::create(path, &options).unwrap());
    let clock = Arc::new(SystemClock::new());
    let format = FormatOptions {
        label: String::new(),
        fs_id: FsId([9; 16]),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        page_size: None,
        groups: None,
        reserve: ::fs::Reserve::default(),
    };
    Fs::format(&device, &format, &*clock).unwrap();
    let options =
        MountOptions { cache_bytes: 8 << 20, read_only: false, commit_interval_ns: 1_000_000_000, clock };
    let (volume, _) = Fs::mount(device, options).unwrap();
    let tree = fill(&volume);
    volume.unmount().unwrap();
    let zones = |role| volume.store().pool().in_role(role).into_iter().map(|zone| u64::from(zone.0));
    (tree, zones(Role::Log).collect(), zones(Role::Metadata).collect())
}

fn fill(volume: &Fs) -> Tree {
    let caller = Caller { uid: format_owner().0, gid: format_owner().1, ..Caller::root() };
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let mut tree = Tree::new();
    for number in 0..20 {
        let name = format!("d{number}");
        let directory = volume.make_directory(&caller, ROOT, name.as_bytes(), 0o750).unwrap().inode;
        tree.insert(name.clone(), SavedFile::Directory);
        for file in 0..20usize {
            let seed = number * 20 + file;
            let bytes = pattern(seed, [0, 30, 2000, 4097, 60_000, 150_000][seed % 6]);
            let (named, path) = (format!("f{file}"), format!("{name}/f{file}"));
            let (made, handle) =
                volume.create(&caller, directory, named.as_bytes(), 0o640, flags, true).unwrap();
            volume.write(&handle, 0, &bytes).unwrap();
            if file == 7 {
                volume.set_xattr(&caller, made.inode, b"user.color", b"blue", false, false).unwrap();
                volume.link(&caller, made.inode, ROOT, format!("link{number}").as_bytes()).unwrap();
                tree.insert(format!("link{number}"), SavedFile::File(bytes.clone()));
            }
            tree.insert(path, SavedFile::File(bytes));
        }
        volume.symlink(&caller, directory, b"s", b"../d0/f1").unwrap();
        tree.insert(format!("{name}/s"), SavedFile::Link(PathBuf::from("../d0/f1")));
    }
    volume.make_node(&caller, ROOT, b"pipe", Kind::Fifo, 0o600, 0).unwrap();
    tree.insert("pipe".to_owned(), SavedFile::Special(true));
    tree
}

fn format_owner() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

/// The offset of a zone in the file.
fn offset_of(path: &Path, zone: u64) -> u64 {
    let zones = (fs::metadata(path).unwrap().len() - 16384) / ZONE_BYTES;
    8192 + 2 * (zones * 32).next_multiple_of(4096) + zone * ZONE_BYTES
}

fn destroy(path: &Path, at: u64, length: usize) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&vec![0x5a; length]).unwrap();
}

/// The files below a directory.
fn tree_of(root: &Path) -> Tree {
    let (mut tree, mut left) = (Tree::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let file = if kind.is_symlink() {
                SavedFile::Link(fs::read_link(&path).unwrap())
            } else if kind.is_dir() {
                left.push(path.clone());
                SavedFile::Directory
            } else if kind.is_file() {
                SavedFile::File(fs::read(&path).unwrap())
            } else {
                SavedFile::Special(kind.is_fifo())
            };
            tree.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), file);
        }
    }
    tree
}

struct Place(TempDir);

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn a_volume_without_a_log_is_saved_completely() {
    let place = Place(tempfile::tempdir().unwrap());
    let (source, target) = (place.path("volume"), place.path("saved"));
    let (expected, log, _) = volume(&source);
    for zone in log {
        destroy(&source, offset_of(&source, zone), ZONE_BYTES as usize);
    }
    let refused = polder(&["ls", &place.text("volume")]);
    assert_eq!(refused.status.code(), Some(1), "the volume cannot be opened");
    let before = fs::read(&source).unwrap();
    let output = polder(&["salvage", &place.text("volume"), &place.text("saved")]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("saved 400 files, 21 directories, 21 others"), "{said}");
    assert!(said.ends_with(": everything of the last checkpoint was saved\n"), "{said}");
    assert!(fs::read(&source).unwrap() == before, "the volume is not written");

    let found = tree_of(&target);
    for (path, file) in &expected {
        assert!(found.get(path) == Some(file), "{path}");
    }
    assert_eq!(found.len(), expected.len());
    let file = fs::metadata(target.join("d3/f7")).unwrap();
    assert_eq!((file.mode() & 0o7777, file.nlink()), (0o640, 2));
    assert_eq!(fs::metadata(target.join("link3")).unwrap().ino(), file.ino());
    assert!((file.mtime() - fs::metadata(&source).unwrap().mtime()).abs() < 600, "times are kept");
    assert_eq!(fs::metadata(target.join("d3")).unwrap().mode() & 0o7777, 0o750);
    let mut value = [0; 8];
    match rustix::fs::getxattr(target.join("d3/f7"), "user.color", &mut value) {
        Ok(length) => assert_eq!(&value[..length], b"blue"),
        Err(_) => assert!(!said.contains(" 0 attributes refused"), "{said}"),
    }
}

/// Volumes as earlier releases wrote them: each page itself says whether its references have one address or two.
#[test]
fn volumes_of_every_format_are_saved() {
    for image in [
        "format-1.zlib",
        "format-1-deltas.zlib",
        "format-1-references.zlib",
        "format-1-end-copy.zlib",
        "format-1-patches.zlib",
    ] {
        let place = Place(tempfile::tempdir().unwrap());
        let packed = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(image)).unwrap();
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&packed, 12 << 20).unwrap();
        fs::write(place.path("volume"), bytes).unwrap();
        fs::create_dir(place.path("copied")).unwrap();
        let copied = polder(&["cp", "-r", &place.text("volume"), "/", &place.text("copied")]);
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let output = polder(&["salvage", &place.text("volume"), &place.text("saved")]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{image}: {said}");
        let (copied, saved) = (tree_of(&place.path("copied")), tree_of(&place.path("saved")));
        assert!(copied == saved && saved.len() >= 10, "{image}: {:?} {:?}", copied.keys(), saved.keys());
    }
}

/// Metadata blocks are destroyed as well. Each saved file is correct, or the report names it.
#[test]
fn files_that_are_not_saved_are_reported() {
    let place = Place(tempfile::tempdir().unwrap());
    let source = place.path("volume");
    let (expected, log, metadata) = volume(&source);
    for zone in log {
        destroy(&source, offset_of(&source, zone), ZONE_BYTES as usize);
    }
    let sound = fs::read(&source).unwrap();
    let (mut wrong, mut newest) = (0, 0);
    for round in 0..8u64 {
        fs::write(&source, &sound).unwrap();
        let mut rng = rt::random::Rng::with_seed(round);
        for _ in 0..1 + round / 2 {
            let zone = metadata[rng.usize(0..metadata.len())];
            destroy(&source, offset_of(&source, zone) + 4096 * rng.u64(1..60), 4096);
        }
        let target = place.path(&format!("saved{round}"));
        let output = polder(&["salvage", "--json", &place.text("volume"), target.to_str().unwrap()]);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: Value = serde_json::from_slice(&output.stdout).expect(&complaint);
        let found = tree_of(&target);
        let reported: Vec<&str> = report["problems"]
            .as_array()
            .unwrap()
            .iter()
            .map(|problem| problem["path"].as_str().unwrap())
            .collect();
        let is_newest = report["newest"] == true;
        newest += u32::from(is_newest);
        let all_there = expected.iter().all(|(path, file)| found.get(path) == Some(file));
        assert_eq!(output.status.code(), Some(if report["complete"] == true { 0 } else { 4 }), "{report}");
        assert!(all_there || report["complete"] == false, "round {round}");
        // If a later state may be lost, every file is doubtful. The report must say so for the whole volume, and damaged
        // pages must be the reason.
        let is_doubtful =
            report["complete"] == false && report["metadata_pages_damaged"].as_u64().unwrap() > 0;
        assert!(is_newest || is_doubtful, "round {round}: {report}");
        assert!(!found.is_empty() && found.len() * 2 > expected.len(), "round {round}: {}", found.len());
        for path in
            expected.iter().filter(|(path, file)| found.get(*path) != Some(file)).map(|(path, _)| path)
        {
            wrong += 1;
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            let is_reported =
                reported.contains(&path.as_str()) || reported.contains(&above) || reported.contains(&"");
            assert!(!is_newest || is_reported, "round {round}: {path}");
        }
    }
    assert!(newest > 2, "{wrong} wrong, newest in {newest} of 8");
}

#[test]
fn impossible_salvages_are_refused_in_one_line() {
    let place = Place(tempfile::tempdir().unwrap());
    let (source, full) = (place.path("volume"), place.path("full"));
    volume(&source);
    fs::create_dir(&full).unwrap();
    fs::write(full.join("file"), "").unwrap();
    fs::write(place.path("text"), vec![1; 1 << 20]).unwrap();
    for (from, to, why) in [
        ("volume", "full", "is not empty"),
        ("nothing", "new", "nothing"),
        ("text", "new", "text"),
        ("volume", "text", "text"),
    ] {
        let output = polder(&["salvage", &place.text(from), &place.text(to)]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(8), "{from} {to}: {said}");
        assert!(said.lines().count() == 1 && said.contains(why), "{said}");
    }
    assert!(!place.path("new").exists(), "a refused salvage creates no directory");
    let mounted = FileDevice::open(&source, zone::file::OpenMode::ReadWrite).unwrap();
    let output = polder(&["salvage", &place.text("volume"), &place.text("new")]);
    assert_eq!(output.status.code(), Some(8), "{}", String::from_utf8_lossy(&output.stderr));
    drop(mounted);
}

/// The number of bytes that another program has overwritten by mistake, at the start and at the end of a volume.
#[derive(Clone, Copy)]
struct Overwrite {
    start: u64,
    end: u64,
}

fn overwrite(path: &Path, Overwrite { start, end }: Overwrite) {
    let length = fs::metadata(path).unwrap().len();
    destroy(path, 0, start as usize);
    destroy(path, length - end, end as usize);
}

/// The headers at the start and near the end; the headers and the zone tables; the headers, the tables and the first
/// megabyte of the log.
const HEADERS: Overwrite = Overwrite { start: 8192, end: 128 << 10 };
const HEADERS_AND_TABLES: Overwrite = Overwrite { start: 16384, ..HEADERS };
const MEGABYTE: Overwrite = Overwrite { start: 1 << 20, ..HEADERS };

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Only the first 8 KiB of a volume identified it. Without them no command could read the files, although all of their
/// bytes were intact.
#[test]
fn a_volume_without_any_header_is_saved_completely() {
    for damage in [HEADERS, HEADERS_AND_TABLES, MEGABYTE] {
        let place = Place(tempfile::tempdir().unwrap());
        let source = place.path("volume");
        let (expected, _, _) = volume(&source);
        overwrite(&source, damage);
        let before = fs::read(&source).unwrap();
        let refused = polder(&["info", &place.text("volume")]);
        let said = text(&refused.stderr);
        assert!(
            said.contains("damaged") && said.contains("check --repair") && !said.contains("mkfs"),
            "{said}"
        );
        let output = polder(&["salvage", &place.text("volume"), &place.text("saved")]);
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        assert!(tree_of(&place.path("saved")) == expected);
        assert!(fs::read(&source).unwrap() == before, "the volume is not written");
    }
}

#[test]
fn a_volume_without_any_header_is_repaired() {
    for damage in [HEADERS, HEADERS_AND_TABLES] {
        let place = Place(tempfile::tempdir().unwrap());
        let (source, named) = (place.path("volume"), place.text("volume"));
        let (expected, _, _) = volume(&source);
        overwrite(&source, damage);
        let output = polder(&["check", "--repair", "--data", &named]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
        assert!(
            said.contains("it was reconstructed from the headers of ") && said.ends_with(": clean\n"),
            "{said}"
        );
        let output = polder(&["cp", "-r", &named, "/", &place.text("copied")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(tree_of(&place.path("copied")) == expected);
        let volume = opened(&source);
        volume.make_directory(&Caller::root(), ROOT, b"new", 0o755).unwrap();
        volume.unmount().unwrap();
        drop(volume);
        assert!(text(&polder(&["check", "--data", &named]).stdout).ends_with(": clean\n"));
    }
}

/// A repair does not guess: the headers of the log zones are gone as well.
#[test]
fn a_volume_without_header_and_log_is_left_to_salvage() {
    let place = Place(tempfile::tempdir().unwrap());
    let (source, named) = (place.path("volume"), place.text("volume"));
    let (expected, _, _) = volume(&source);
    // The log may be in any of the first four zones.
    (0..4).for_each(|zone| destroy(&source, offset_of(&source, zone), 4096));
    overwrite(&source, HEADERS);
    let before = fs::read(&source).unwrap();
    let output = polder(&["check", "--repair", &named]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(
        said.contains("log zones") && said.contains("polder salvage") && said.lines().count() == 1,
        "{said}"
    );
    assert!(fs::read(&source).unwrap() == before, "nothing was written");
    assert!(polder(&["salvage", &named, &place.text("saved")]).status.success());
    assert!(tree_of(&place.path("saved")) == expected);
}

/// For each single damaged copy, `check`, `scrub` and `info` report it, as text and as JSON, and a repair rewrites it.
#[test]
fn a_damaged_copy_is_reported_and_repaired() {
    let place = Place(tempfile::tempdir().unwrap());
    let (source, named) = (place.path("volume"), place.text("volume"));
    volume(&source);
    let sound = fs::read(&source).unwrap();
    let end = (sound.len() as u64 / 65536 - 2) * 65536;
    for (offset, record, name) in [
        (0, "first_header", "the first copy of the header"),
        (4096, "second_header", "the second copy of the header"),
        (end, "end_header", "the copy of the header at the end"),
        (8192, "first_zone_table", "the first table of zone states"),
        (12288, "second_zone_table", "the second table of zone states"),
    ] {
        destroy(&source, offset, 4096);
        for command in ["check", "scrub"] {
            let output = polder(&[command, &named]);
            let said = text(&output.stdout);
            assert_eq!(output.status.code(), Some(4), "{said}{}", text(&output.stderr));
            assert!(
                said.contains(&format!(": device: {name} is lost")) && said.contains(": 1 finding"),
                "{said}"
            );
            let output = polder(&[command, "--json", &named]);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let kind = if record.ends_with("header") { "header" } else { "zone-table" };
            assert_eq!(
                (&report["findings"][0]["part"], &report["findings"][0]["kind"]),
                (&"device".into(), &kind.into())
            );
        }
        assert!(text(&polder(&["info", &named]).stdout).contains(&format!("{name} is lost")));
        let info: Value = serde_json::from_slice(&polder(&["info", "--json", &named]).stdout).unwrap();
        let damaged: Vec<&Value> =
            info["copies"].as_array().unwrap().iter().filter(|copy| copy["state"] != "whole").collect();
        assert!(
            damaged.len() == 1 && damaged[0]["record"] == record && damaged[0]["state"] == "damaged",
            "{info}"
        );
        assert!(polder(&["zones", &named]).status.success());
        let output = polder(&["check", "--repair", &named]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
        assert!(
            said.contains(&format!("repaired: device: {name} is lost")) && said.ends_with(": clean\n"),
            "{said}"
        );
        let output = polder(&["check", "--data", &named]);
        assert!(text(&output.stdout).ends_with(": clean\n"), "{}", text(&output.stdout));
    }
}

/// The output of `fsck -y` is usually not read. So it does not write a header over data that may belong to another
/// program.
#[test]
fn fsck_repairs_a_header_unless_something_else_is_there() {
    let place = Place(tempfile::tempdir().unwrap());
    let (source, named) = (place.path("volume"), place.text("volume"));
    volume(&source);
    let fsck = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
        command.arg0("fsck.polder").args(["-y", &named]).output().unwrap()
    };
    overwrite(&source, HEADERS);
    let mut file = File::options().write(true).open(&source).unwrap();
    file.write_all(b"XFSB").unwrap();
    let before = fs::read(&source).unwrap();
    let output = fsck();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("its start contains an XFS file system"), "{said}");
    assert!(fs::read(&source).unwrap() == before, "a possible other file system is not changed");
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"nope").unwrap();
    assert_eq!(fsck().status.code(), Some(1), "repaired");
    // One copy is left, and the start contains the signature of a partition table.
    file.seek(SeekFrom::Start(510)).unwrap();
    file.write_all(&[0x55, 0xaa]).unwrap();
    let before = fs::read(&source).unwrap();
    let output = fsck();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(8) && said.contains("contains a partition table"), "{said}");
    assert!(fs::read(&source).unwrap() == before);
    assert!(polder(&["check", "--repair", "--force", &named]).status.success());
}

/// A volume had been replaced by an ext4 on a device. `check --repair` of this device, mistyped, destroyed the ext4 and
/// reported the volume clean.
#[test]
fn a_repair_overwrites_another_file_system_only_with_force() {
    // Only the zones are left, or also the copy of the header near the end.
    for damage in [HEADERS, Overwrite { end: 0, ..HEADERS_AND_TABLES }] {
        let place = Place(tempfile::tempdir().unwrap());
        let (source, named) = (place.path("volume"), place.text("volume"));
        volume(&source);
        overwrite(&source, damage);
        let mut file = File::options().write(true).open(&source).unwrap();
        file.seek(SeekFrom::Start(1024 + 56)).unwrap();
        file.write_all(&[0x53, 0xef]).unwrap();
        let before = fs::read(&source).unwrap();
        let output = polder(&["check", "--repair", &named]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{said}");
        assert!(
            said.contains("contains an ext2, ext3 or ext4 file system")
                && said.contains("check --repair --force"),
            "{said}"
        );
        assert!(fs::read(&source).unwrap() == before, "nothing was written");
        let output = polder(&["check", "--repair", "--force", &named]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
        let reported = "was written over an ext2, ext3 or ext4 file system";
        assert!(said.contains(reported) && said.ends_with(": clean\n"), "{said}");
    }
}

fn opened(path: &Path) -> Arc<Fs> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(path, zone::file::OpenMode::ReadWrite).unwrap());
    let clock = Arc::new(SystemClock::new());
    let options =
        MountOptions { cache_bytes: 8 << 20, read_only: false, commit_interval_ns: 1_000_000_000, clock };
    Fs::mount(device, options).unwrap().0
}

/// Without the reason for a failed repair, users do not know whether to try again.
#[test]
fn an_incomplete_repair_is_reported_with_its_reason_and_advice() {
    use ::fs::format::{INODE, inode_key};
    let place = Place(tempfile::tempdir().unwrap());
    let (source, named) = (place.path("volume"), place.text("volume"));
    volume(&source);
    let fs = opened(&source);
    let d3 = fs.lookup(&Caller::root(), ROOT, b"d3").unwrap().inode;
    // A file with data blocks. The blocks stay, and without the inode there is no way to tell which file they belong to.
    let file = fs.lookup(&Caller::root(), d3, b"f5").unwrap().inode;
    let store = fs.store();
    let mut tx = tree::Tx::new();
    tx.delete(store.group_of(file.0), INODE, inode_key(file));
    store.commit(tx).unwrap();
    fs.unmount().unwrap();
    // The tree of another group than the root directory's.
    let other = 1 + (u64::from(store.group_of(ROOT.0).0) + 1) % u64::from(store.info().groups);
    let node = store.view_node(other).unwrap().unwrap();
    let at = if node.base.is_none() { node.address } else { node.base };
    drop(fs);
    let advice = |why: &str| {
        let output = polder(&["check", "--repair", &named]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(&format!("not repaired {why}")) && said.contains("`polder salvage`"), "{said}");
    };
    advice("because the right value is not known");
    destroy(&source, offset_of(&source, u64::from(at.zone().0)) + u64::from(at.block()) * 4096, 4096);
    advice("because metadata cannot be read");
    let report: Value =
        serde_json::from_slice(&polder(&["check", "--repair", "--json", &named]).stdout).unwrap();
    let reason = report["not_repaired"].as_str().unwrap();
    assert!(reason.starts_with("because metadata cannot be read"), "{report}");
    let report: Value = serde_json::from_slice(&polder(&["check", "--json", &named]).stdout).unwrap();
    assert!(report.get("not_repaired").is_none() && report["clean"] == false, "{report}");
}

/// Link counts are repaired from the names, and a file without a name gets one in `lost+found`.
#[test]
fn redundant_metadata_is_repaired() {
    use ::fs::format::{DIRENT, Dirent, INODE, Record, dirent_key, inode_key};
    let place = Place(tempfile::tempdir().unwrap());
    let source = place.path("volume");
    let (expected, ..) = volume(&source);
    let opened = opened(&source);
    let (store, root) = (opened.store(), Caller::root());
    let d3 = opened.lookup(&root, ROOT, b"d3").unwrap().inode;
    let group = store.group_of(d3.0);
    let rows = store.range(group, DIRENT, &dirent_key(d3, 0), &dirent_key(d3, u64::MAX), 100).unwrap();
    let (key, value) = rows.iter().find(|(_, row)| Dirent::decode(row).unwrap().name == b"f1").unwrap();
    let lost = Dirent::decode(value).unwrap().inode;
    let record = Record::decode(&store.get(group, INODE, &inode_key(d3)).unwrap().unwrap()).unwrap();
    let mut tx = tree::Tx::new();
    tx.delete(group, DIRENT, key.clone());
    tx.put(group, INODE, inode_key(d3), Record { links: 9, ..record }.encode());
    store.commit(tx).unwrap();
    opened.unmount().unwrap();
    drop(opened);

    let named = place.text("volume");
    let before = fs::read(&source).unwrap();
    assert_eq!(polder(&["check", &named]).status.code(), Some(4));
    assert!(fs::read(&source).unwrap() == before, "nothing changes without --repair");
    let copy = place.text("copy");
    fs::copy(&source, &copy).unwrap();
    let fsck = |option: &str| {
        let mut fsck = Command::new(env!("CARGO_BIN_EXE_polder"));
        fsck.arg0("fsck.polder").args([option, &copy]).output().unwrap().status.code()
    };
    assert_eq!((fsck("-n"), fsck("-f"), fsck("-y"), fsck("-f")), (Some(4), Some(4), Some(1), Some(0)));
    let output = polder(&["check", "--repair", &named]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("repaired: names:") && said.ends_with(": clean\n"), "{said}");
    let found = polder(&["cat", &named, &format!("/lost+found/inode-{}", lost.0)]);
    assert!(Some(&SavedFile::File(found.stdout)) == expected.get("d3/f1"));
    let again: Value =
        serde_json::from_slice(&polder(&["check", "--repair", "--json", &named]).stdout).unwrap();
    assert!(again["clean"] == true && again.get("repaired").is_none(), "{again}");
}

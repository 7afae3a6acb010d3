//! The commands that copy, verify and dump a volume, mounted and unmounted.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat};
use serde_json::Value;

use crate::bench::names;
use crate::bench_or_skip;

/// The attributes and contents of a file or directory that a copy must preserve, as text.
fn description(path: &Path, is_root: bool) -> String {
    let found = fs::symlink_metadata(path).unwrap();
    let kind = found.file_type();
    let contents = match () {
        () if kind.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
        () if kind.is_file() => format!("{:?}", fs::read(path).unwrap()),
        () if kind.is_dir() => format!("{:?}", names(path)),
        () => format!("{}", found.rdev()),
    };
    let mut value = [0; 100];
    let length = rustix::fs::lgetxattr(path, c"user.colour", &mut value).unwrap_or(0);
    let owner = if is_root { (found.uid(), found.gid()) } else { (0, 0) };
    let links = if kind.is_dir() { 0 } else { found.nlink() };
    // The comparison itself may change the atime on the file system of the copy.
    let times = (found.mtime(), found.mtime_nsec());
    format!(
        "{:o} {kind:?} {owner:?} {links} {times:?} {:?} {contents}",
        found.permissions().mode(),
        &value[..length]
    )
}

pub(crate) fn compare(one: &Path, other: &Path, is_root: bool, count: &mut usize) {
    *count += 1;
    assert!(
        description(one, is_root) == description(other, is_root),
        "{} and {} differ",
        one.display(),
        other.display()
    );
    if fs::symlink_metadata(one).unwrap().is_dir() {
        for name in names(one) {
            compare(&one.join(&name), &other.join(&name), is_root, count);
        }
    }
}

/// Creates a file of every type, and files with all kinds of attributes.
pub(crate) fn fill(root: &Path, is_root: bool) {
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::write(root.join("deep/small"), "in the record").unwrap();
    let mut sparse = File::create(root.join("deep/er/sparse")).unwrap();
    sparse.write_all(&[1; 70_000]).unwrap();
    sparse.seek(SeekFrom::Start(9 << 20)).unwrap();
    sparse.write_all(b"end").unwrap();
    sparse.set_len(10 << 20).unwrap();
    let large: Vec<u8> = (0..3_000_001_u32).map(|at| (at / 251) as u8).collect();
    fs::write(root.join("large"), large).unwrap();
    fs::hard_link(root.join("large"), root.join("deep/large-too")).unwrap();
    symlink("deep/er", root.join("short-cut")).unwrap();
    symlink("/nowhere", root.join("broken")).unwrap();
    mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    rustix::fs::lsetxattr(root.join("large"), c"user.colour", b"red", XattrFlags::empty()).unwrap();
    fs::set_permissions(root.join("deep/small"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("deep"), fs::Permissions::from_mode(0o1775)).unwrap();
    if is_root {
        mknodat(CWD, root.join("zero"), FileType::CharacterDevice, Mode::from_raw_mode(0o600), 0x105)
            .unwrap();
        std::os::unix::fs::lchown(root.join("broken"), Some(12), Some(34)).unwrap();
        std::os::unix::fs::chown(root.join("deep/er"), Some(12), Some(34)).unwrap();
    }
}

#[test]
fn a_copy_out_of_a_volume_equals_the_mounted_files() {
    let bench = bench_or_skip!();
    let is_root = rustix::process::geteuid().is_root();
    let mounted = bench.mount(&[]);
    fill(&mounted.root(), is_root);
    bench.succeed(&["sync", mounted.root().to_str().unwrap()]);
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    assert!(bench.fail(1, &["ls", volume]).contains("is mounted on"));
    // After a crash, the volume is read after a recovery in memory, which is not written.
    mounted.daemon().kill();
    drop(mounted);
    let before = fs::read(volume).unwrap();

    assert_eq!(bench.succeed(&["cat", volume, "deep/small", "/deep/small"]), "in the recordin the record");
    assert_eq!(bench.succeed(&["ls", volume, "short-cut"]), "sparse\nstill\n");
    let long = bench.succeed(&["ls", "-l", volume, "deep"]);
    assert!(
        long.lines().any(|line| line.starts_with("-rwsr-x--x   1 ") && line.ends_with(" small")),
        "{long}"
    );
    let human = bench.succeed(&["ls", "-lh", volume, "deep"]);
    assert!(human.contains(" B ") || human.contains("iB "), "{human}");
    assert!(bench.succeed(&["ls", "--help"]).contains("-h"));
    assert!(bench.succeed(&["ls", "-l", volume]).contains("broken -> /nowhere"));
    assert!(bench.fail(1, &["cat", volume, "deep"]).contains("is not a regular file"));
    assert!(bench.fail(1, &["cat", volume, "short-cut/none"]).contains("no such file"));
    let copy = bench.volume().with_file_name("copy");
    let copied = copy.to_str().unwrap();
    assert!(bench.fail(1, &["cp", volume, "/", copied]).contains("copy it with -r"));
    bench.succeed(&["cp", "-r", volume, "/", copied]);
    let said = bench.fail(1, &["cp", volume, "large", copied]);
    assert!(said.contains("exists"), "nothing is overwritten: {said}");
    bench.succeed(&["cp", volume, "short-cut/sparse", &format!("{copied}-2")]);
    assert!(fs::read(volume).unwrap() == before, "reading commands change nothing");
    let sparse = fs::metadata(copy.join("deep/er/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "holes stay holes");

    let mounted = bench.mount(&["-o", "ro"]);
    let mut count = 0;
    compare(&mounted.root(), &copy, is_root, &mut count);
    assert_eq!(count, 11 + usize::from(is_root));
    assert!(fs::symlink_metadata(copy.join("pipe")).unwrap().file_type().is_fifo());
    let one = fs::read(mounted.path("deep/er/sparse")).unwrap();
    assert!(fs::read(bench.volume().with_file_name("copy-2")).unwrap() == one);
    mounted.umount();
}

/// The copy of a set-user-ID program of root was a set-user-ID program of the user that had copied it, and all users could
/// run it.
#[test]
fn a_copy_with_another_owner_has_no_set_id_bits() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root can copy as another user");
    }
    let mounted = bench.mount(&[]);
    let armed = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o6755)).unwrap();
    fs::write(mounted.path("roots"), "x").unwrap();
    fs::write(mounted.path("own"), "x").unwrap();
    std::os::unix::fs::chown(mounted.path("own"), Some(65534), Some(65534)).unwrap();
    fs::create_dir(mounted.path("shared")).unwrap();
    for name in ["roots", "own", "shared"] {
        armed(&mounted.path(name));
    }
    let device = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, mounted.path("a\nnull"), kind, 0o666.into(), device).unwrap();
    mounted.umount();

    let home = tempfile::Builder::new().prefix("user-").tempdir_in(std::env::temp_dir()).unwrap();
    let (program, volume) = (home.path().join("polder"), home.path().join("volume"));
    fs::copy(bench.program(), &program).unwrap();
    fs::rename(bench.volume(), &volume).or_else(|_| fs::copy(bench.volume(), &volume).map(drop)).unwrap();
    for owned in [home.path(), &program, &volume] {
        std::os::unix::fs::chown(owned, Some(65534), Some(65534)).unwrap();
    }
    let copy = home.path().join("copy");
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([&program, Path::new("cp"), Path::new("-r"), &volume, Path::new("/"), &copy])
        .output()
        .unwrap();
    // The device that the user may not create is reported, and the rest is copied.
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("/a\\nnull: is not copied: ") && said.contains("the copy is not complete: 1 problem"),
        "{said}"
    );
    let mode = |name| fs::metadata(copy.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["roots", "own", "shared"].map(mode), [0o755, 0o6755, 0o755]);
}

/// `polder cp -r`, which is recommended for damaged volumes, ended at the first lost block and did not copy the files
/// after it.
#[test]
fn a_mounted_volume_is_verified_as_far_as_possible() {
    let bench = bench_or_skip!();
    if !rustix::process::geteuid().is_root() {
        return crate::skip("only root may remount");
    }
    let mounted = bench.mount(&[]);
    fill(&mounted.root(), false);
    let directory = mounted.root();
    let directory = directory.to_str().unwrap();
    let said = bench.succeed(&["check", directory]);
    assert!(said.contains("not checked: names and inodes") && said.ends_with(": clean\n"), "{said}");
    let report: Value =
        serde_json::from_str(&bench.succeed(&["check", "--data", "--json", directory])).unwrap();
    assert_eq!(report["clean"], true);
    assert_eq!(report["not_checked"].as_array().unwrap().len(), 3, "{report}");
    bench.succeed(&["mount", "-o", "remount,ro", directory]);
    assert_eq!(bench.succeed(&["check", directory]), format!("{directory}: clean\n"), "all of it");
    let zones: Value = serde_json::from_str(&bench.succeed(&["zones", directory, "--json"])).unwrap();
    let data = zones.as_array().unwrap().iter().filter(|zone| zone["role"] == "data");
    assert!(data.map(|zone| zone["live_blocks"].as_u64().unwrap()).sum::<u64>() > 700, "{zones}");
    mounted.umount();

    // A read detects a block of a file that has changed on the medium.
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    let inode = inode_of(&bench, "large");
    let extents: Value =
        serde_json::from_str(&bench.succeed(&["dump", volume, "extent", &inode, "--json"])).unwrap();
    let at = extents["extents"][0]["address"].as_str().unwrap();
    let place: Vec<u64> = at.split([':', '~']).map(|word| word.parse().unwrap()).collect();
    let mut file = fs::OpenOptions::new().read(true).write(true).open(volume).unwrap();
    file.seek(SeekFrom::Start(offset_of(&bench, place[0], place[1]))).unwrap();
    file.write_all(b"!").unwrap();
    drop(file);
    bench.check();
    let said = String::from_utf8(bench.polder(&["check", "--data", volume]).stdout).unwrap();
    assert!(said.contains(&format!("object {inode} block 0 cannot be read")), "{said}");
    assert!(
        said.contains("large-too, bytes 0 to 4096\n") || said.contains("/large, bytes 0 to 4096\n"),
        "{said}"
    );
    scrubbed(&bench, volume, false);
    // The readable blocks are copied.
    let copy = bench.volume().with_file_name("copy");
    let said = bench.fail(1, &["cp", "-r", volume, "/", copy.to_str().unwrap()]);
    assert!(said.contains("4096 bytes, which are zeros in the copy, cannot be read"), "{said}");
    let mounted = bench.mount(&[]);
    let (mut there, mut copied) = (fs::File::open(mounted.path("large")).unwrap(), Vec::new());
    fs::File::open(copy.join("large")).unwrap().read_to_end(&mut copied).unwrap();
    assert!(copied[..4096].iter().all(|byte| *byte == 0));
    let mut rest = Vec::new();
    there.seek(SeekFrom::Start(4096)).unwrap();
    there.read_to_end(&mut rest).unwrap();
    assert!(copied[4096..] == rest && !rest.is_empty());
    drop(there);
    assert!(fs::read(copy.join("deep/small")).unwrap() == fs::read(mounted.path("deep/small")).unwrap());
    for _ in 0..3 {
        assert!(fs::read(mounted.path("large")).is_err());
    }
    let lines = bench.logged().lines().filter(|line| line.contains("cannot be read")).count();
    assert_eq!(lines, 1, "the first error of a kind: {}", bench.logged());
    let found = bench.polder(&["check", "--data", directory]);
    assert_eq!(found.status.code(), Some(4), "{}", String::from_utf8_lossy(&found.stdout));
    scrubbed(&bench, directory, false);
    fs::remove_file(mounted.path("large")).unwrap();
    fs::remove_file(mounted.path("deep/large-too")).unwrap();
    scrubbed(&bench, directory, true);
    mounted.umount();
}

/// Commands on a copy of a mounted volume asked the daemon of the original, which reported a damaged copy as clean.
#[test]
fn a_copy_of_a_mounted_volume_is_not_mistaken_for_it() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), vec![7; 200_000]).unwrap();
    mounted.umount();
    let copy = bench.volume().with_file_name("backup");
    fs::copy(bench.volume(), &copy).unwrap();
    let mounted = bench.mount(&[]);
    let (volume, backup) = (bench.volume(), copy.to_str().unwrap());
    let volume = volume.to_str().unwrap();
    let info =
        |named: &str| -> Value { serde_json::from_str(&bench.succeed(&["info", "--json", named])).unwrap() };
    assert_eq!(info(volume)["mounted_on"], mounted.root().to_str().unwrap());
    assert_eq!((&info(backup)["mounted_on"], &info(backup)["path"]), (&Value::Null, &backup.into()));
    bench.succeed(&["check", "--data", backup]);
    let inode = fs::metadata(mounted.path("file")).unwrap().ino().to_string();
    let extents: Value =
        serde_json::from_str(&bench.succeed(&["dump", backup, "extent", &inode, "--json"])).unwrap();
    let at = extents["extents"][0]["address"].as_str().unwrap();
    let place: Vec<u64> = at.split([':', '~']).map(|word| word.parse().unwrap()).collect();
    let mut file = fs::OpenOptions::new().read(true).write(true).open(&copy).unwrap();
    file.seek(SeekFrom::Start(offset_of(&bench, place[0], place[1]))).unwrap();
    file.write_all(b"!").unwrap();
    drop(file);
    for command in [&["check", "--data"][..], &["scrub"]] {
        let found = bench.polder(&[command, &[backup]].concat());
        let said = String::from_utf8(found.stdout).unwrap();
        assert_eq!(found.status.code(), Some(4), "{command:?} {at}: {said}");
        assert_eq!(bench.polder(&[command, &[volume]].concat()).status.code(), Some(0), "{command:?}");
    }
    assert!(bench.fail(1, &["gc", backup]).contains("a volume with the same ID is mounted from"));
    mounted.umount();
    bench.check();
}

/// Scrubs a volume. Unless `clean`, it must find only the damaged first block of the file `large`, which has two names.
fn scrubbed(bench: &crate::Bench, volume: &str, clean: bool) {
    let output = bench.polder(&["scrub", volume, "--rate", "64M"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty() && said.contains(" bytes verified\n"), "{said}");
    assert_eq!(output.status.code(), Some(if clean { 0 } else { 4 }), "{said}");
    assert_eq!(said.contains(", bytes 0 to 4096\n"), !clean, "{said}");
    let output = bench.polder(&["scrub", volume, "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["clean"], clean, "{found}");
    assert!(found["bytes"].as_u64().unwrap() > 1 << 16, "{found}");
    if !clean {
        let file = &found["findings"][0]["files"][0];
        assert!(["/large", "/deep/large-too"].contains(&file["path"].as_str().unwrap()), "{found}");
        assert_eq!(found["findings"][0]["kind"], "data", "{found}");
    }
}

fn inode_of(bench: &crate::Bench, name: &str) -> String {
    let mounted = bench.mount(&["-o", "ro"]);
    let inode = fs::metadata(mounted.path(name)).unwrap().ino().to_string();
    mounted.umount();
    inode
}

/// The offset of a block of a zone in the file of a volume.
fn offset_of(bench: &crate::Bench, zone: u64, block: u64) -> u64 {
    let volume = bench.volume();
    let said = bench.succeed(&["info", volume.to_str().unwrap(), "--json"]);
    let info: Value = serde_json::from_str(&said).unwrap();
    let (zone_bytes, zones) = (info["zone_bytes"].as_u64().unwrap(), info["zones"].as_u64().unwrap());
    8192 + 2 * (zones * 32).next_multiple_of(4096) + zone * zone_bytes + block * 4096
}

/// A metadata leaf has changed on the medium. `check` and `fsck` find it, report it by their status, and do not change the
/// volume.
#[test]
fn damaged_metadata_is_found() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    for number in 0..400 {
        fs::write(mounted.path(&format!("file-{number}")), vec![1; 3000]).unwrap();
    }
    mounted.umount();
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    let zones: Value = serde_json::from_str(&bench.succeed(&["zones", "--json", volume])).unwrap();
    let zone = zones.as_array().unwrap().iter().find(|zone| zone["role"] == "metadata").unwrap();
    let zone = zone["zone"].as_u64().unwrap();
    let pages: Value =
        serde_json::from_str(&bench.succeed(&["dump", volume, "zone", &zone.to_string(), "--json"])).unwrap();
    // The leaf is not in the group of the root directory, because without that group the volume cannot be opened.
    let leaf = pages["contents"].as_array().unwrap().iter().find(|page| {
        page["kind"] == "node" && page["current"] == true && page["level"] == 0 && page["group"] == 5
    });
    let block = leaf.unwrap()["block"].as_u64().unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(volume).unwrap();
    file.seek(SeekFrom::Start(offset_of(&bench, zone, block) + 1000)).unwrap();
    file.write_all(&[0xa5; 64]).unwrap();
    drop(file);
    let before = fs::read(volume).unwrap();
    let found = bench.polder(&["check", volume]);
    let said = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(4), "{said}{}", String::from_utf8_lossy(&found.stderr));
    assert!(said.contains("wrong checksum"), "{said}");
    assert_eq!(bench.run_as("fsck.polder", &["-f", volume]).status.code(), Some(4));
    assert!(fs::read(volume).unwrap() == before, "nothing is changed without --repair");
    assert_eq!(
        bench.run_as("fsck.polder", &["-y", volume]).status.code(),
        Some(4),
        "nothing can be repaired"
    );
}

#[test]
fn dump_shows_every_kind_of_object() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fill(&mounted.root(), false);
    bench.succeed(&["sync", mounted.root().to_str().unwrap()]);
    let map = bench.succeed(&["zones", mounted.root().to_str().unwrap()]);
    assert!(map.contains("D+") && map.contains("L+") && map.contains(".."), "{map}");
    mounted.daemon().kill();
    drop(mounted);
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    let dump = |structure: &[&str]| -> Value {
        serde_json::from_str(&bench.succeed(&[&["dump", "--json", volume], structure].concat())).unwrap()
    };
    let inode = dump(&["inode", "1"]);
    assert_eq!((&inode["kind"], &inode["links"]), (&"directory".into(), &3.into()));
    let journal = dump(&["journal"]);
    let kinds: Vec<&str> =
        journal["batches"].as_array().unwrap().iter().map(|batch| batch["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"checkpoint") && kinds.contains(&"journal"), "{kinds:?}");
    let root = dump(&["node", "1"]);
    assert_eq!((&root["node"], &root["group"]), (&1.into(), &0.into()));

    let zones: Value = serde_json::from_str(&bench.succeed(&["zones", "--json", volume])).unwrap();
    for (role, expected) in [("log", "kind"), ("metadata", "epoch"), ("data", "file_block"), ("free", "")] {
        let of_role = zones.as_array().unwrap().iter().filter(|zone| zone["role"] == role);
        let shown: Vec<Value> = of_role.map(|zone| dump(&["zone", &zone["zone"].to_string()])).collect();
        let has_contents = shown.iter().any(|zone| zone["contents"].to_string().contains(expected));
        assert!(!shown.is_empty() && has_contents, "{role}: {shown:?}");
    }
    for (status, arguments, complaint) in [
        (1, vec!["zone", "64"], "the zones are 0 to 63"),
        (2, vec!["zone"], "add the number of the zone"),
        (1, vec!["inode", "123456"], "there is none"),
        (1, vec!["node", "0"], "the roots are 1 to 8"),
        (1, vec!["extent", "123456"], "there is none"),
        (2, vec!["journal", "1"], "has no number"),
    ] {
        let said = bench.fail(status, &[&["dump", volume], arguments.as_slice()].concat());
        assert!(said.contains(complaint) && said.lines().count() == 1, "{said}");
    }
    let text = bench.succeed(&["dump", volume, "journal"]);
    assert!(text.contains("kind=checkpoint") && text.contains("write=put"), "{text}");
}

//! The command's reaction to bad input: one line that names the object, a status other than 0, and no changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use zone::file::{FileDevice, OpenMode};
use zone::format::{ZONE_MAGIC, checksum};

fn polder(arguments: &[&str]) -> Output {
    polder_as("polder", arguments)
}

/// Runs the program under another of its names.
fn polder_as(name: &str, arguments: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_polder")).arg0(name).args(arguments).output();
    run.expect("the command was built for this test")
}

/// Runs the command, expects this status, and returns its error message of one line.
fn refusal(status: i32, arguments: &[&str]) -> String {
    let output = polder(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("polder: "), "{said}");
    said
}

/// `polder stats volume | head -3` panicked when `head` had read enough. So did every command whose output went to a file
/// on a full disk.
#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let place = Place::new();
    let volume = place.volume("volume");
    let new = place.path("new");
    let of: [&[&str]; 6] = [
        &["info", &volume],
        &["info", &volume, "--json"],
        &["stats", &volume],
        &["stats", &volume, "--json"],
        &["zones", &volume],
        &["mkfs", &new, "--size", "64M", "--force"],
    ];
    for arguments in of {
        let outcome = |to: Stdio| {
            let run = Command::new(env!("CARGO_BIN_EXE_polder")).args(arguments).stdout(to).output();
            let output = run.expect("the command was built for this test");
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(outcome(writer.into()), (Some(0), String::new()), "{arguments:?}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let (status, said) = outcome(full.into());
        assert_eq!((status, said.lines().count()), (Some(1), 1), "{arguments:?}: {said}");
        assert!(said.contains("cannot be written: No space left"), "{said}");
    }
}

/// `polder gc volume --free 99 2>&1 | head -2` panicked because the reader of the errors had ended.
#[test]
fn error_output_to_a_closed_pipe_keeps_the_status() {
    let place = Place::new();
    let (volume, missing) = (place.volume("volume"), place.path("missing"));
    let closed_pipe = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    for (status, arguments) in [
        (1, &["gc", &volume, "--free", "99"][..]),
        (1, &["gc", &volume, "--free", "99", "--json"]),
        (1, &["info", &missing]),
        (1, &["cat", &volume, "/missing"]),
        (1, &["umount", &missing]),
        (8, &["check", &missing]),
        (8, &["scrub", &missing]),
        (2, &["mkfz"]),
        (0, &["--help"]),
        (0, &["gc", "--help"]),
        (0, &["gc", &volume]),
    ] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_polder"));
        let ended = run.args(arguments).stdout(closed_pipe()).stderr(closed_pipe()).status().unwrap();
        assert_eq!(ended.code(), Some(status), "{arguments:?}");
    }
    for (name, status) in [("fsck.polder", 8), ("mount.polder", 1), ("umount.polder", 32)] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_polder"));
        let run = run.arg0(name).arg(&missing).stdout(closed_pipe()).stderr(closed_pipe());
        assert_eq!(run.status().unwrap().code(), Some(status), "{name}");
    }
}

/// Placeholders in the command lines of the test of exit statuses.
const PATH: &str = "PATH";
const FOLDER: &str = "FOLDER";

/// A command, valid arguments with [`PATH`] for the volume, and its exit status when the operation fails.
struct Called {
    command: &'static str,
    words: &'static [&'static str],
    failed: i32,
}

const ALL_COMMANDS: [Called; 27] = [
    Called { command: "mkfs", words: &[PATH], failed: 1 },
    Called { command: "mount", words: &[PATH, FOLDER], failed: 1 },
    Called { command: "umount", words: &[PATH], failed: 1 },
    Called { command: "sync", words: &[PATH], failed: 1 },
    Called { command: "list", words: &[], failed: 1 },
    Called { command: "label", words: &[PATH, "name"], failed: 1 },
    Called { command: "info", words: &[PATH], failed: 1 },
    Called { command: "device", words: &["status", PATH], failed: 1 },
    Called { command: "stats", words: &[PATH], failed: 1 },
    Called { command: "top", words: &[PATH, "--once"], failed: 1 },
    Called { command: "zones", words: &[PATH], failed: 1 },
    Called { command: "hint", words: &[PATH], failed: 1 },
    Called { command: "gc", words: &[PATH], failed: 1 },
    Called { command: "fragments", words: &[PATH], failed: 1 },
    Called { command: "defrag", words: &[PATH], failed: 1 },
    Called { command: "check", words: &[PATH], failed: 8 },
    Called { command: "scrub", words: &[PATH], failed: 8 },
    Called { command: "salvage", words: &[PATH, FOLDER], failed: 8 },
    Called { command: "dump", words: &[PATH, "zone", "1"], failed: 1 },
    Called { command: "ls", words: &[PATH], failed: 1 },
    Called { command: "cat", words: &[PATH, "/file"], failed: 1 },
    Called { command: "cp", words: &[PATH, "/file", FOLDER], failed: 1 },
    Called { command: "po2", words: &[PATH], failed: 1 },
    Called { command: "probe", words: &[PATH], failed: 1 },
    Called { command: "install", words: &["--prefix", PATH], failed: 1 },
    Called { command: "manual", words: &[FOLDER], failed: 1 },
    Called { command: "completions", words: &["bash"], failed: 1 },
];

impl Called {
    /// The command line with the placeholders replaced.
    fn with<'a>(&self, path: &'a str, folder: &'a str) -> Vec<&'a str> {
        let word = |word: &&'static str| match *word {
            PATH => path,
            FOLDER => folder,
            word => word,
        };
        std::iter::once(self.command).chain(self.words.iter().map(word)).collect()
    }
}

/// For an unknown option, `polder mount` returned 1 and `polder check` returned 2.
#[test]
fn the_same_mistake_ends_with_the_same_status_everywhere() {
    let help = String::from_utf8(polder(&["--help"]).stdout).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let listed: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    let called: Vec<&str> = ALL_COMMANDS.iter().map(|called| called.command).collect();
    assert_eq!(listed, [called.as_slice(), &["help"]].concat(), "the table lists every command");

    let place = Place::new();
    let folder = place.folder("folder");
    let text = place.file("text", &b"no volume at all ".repeat(1000));
    let missing = place.path("missing");
    let below = place.path("text/below");
    let astray = place.path("nowhere/volume");
    std::os::unix::fs::symlink("nowhere", place.path("dangling")).unwrap();
    let dangling = place.path("dangling");
    for called in &ALL_COMMANDS {
        let command = called.command;
        if !matches!(command, "install" | "list") {
            assert!(refusal(2, &[command]).contains("were not provided"), "{command}");
        }
        for unknown in ["--unknown", "-Q"] {
            let words = [called.with(&missing, &folder), vec![unknown]].concat();
            assert!(refusal(2, &words).contains(unknown), "{command}");
        }
        for path in [&missing, &below, &astray, &dangling, &text, &folder] {
            let is_right = match command {
                "install" => *path == folder,
                // It answers by its status that there is no volume.
                "probe" => *path == text,
                _ => !called.words.contains(&PATH),
            };
            if is_right {
                continue;
            }
            let said = refusal(called.failed, &called.with(path, &folder));
            assert!(said.contains(path.as_str()), "{command}: {said}");
            assert!(!said.contains("os error"), "{command}: {said}");
        }
    }
}

/// Values that are invalid for every volume.
#[test]
fn wrong_values_are_misuse() {
    for words in [
        &["mount", "v", "d", "-o", "bogus"][..],
        &["mount", "v", "d", "-o", "relatime"],
        &["mount", "v", "d", "-o", "commit=x"],
        &["mount", "v", "d", "-o", "cache=1"],
        &["mount", "v", "d", "--cache", "1"],
        &["mount", "v", "-o", "ro"],
        &["mount", "d", "-o", "remount,bogus"],
        &["umount", "--lazy", "--force", "d"],
        &["zones", "v", "--foreground"],
        &["dump", "v", "zone"],
        &["dump", "v", "extent"],
        &["dump", "v", "journal", "3"],
        &["dump", "v", "zone", "x"],
        &["dump", "v", "zoen", "1"],
        &["hint", "f", "forever"],
        &["gc", "v", "--free", "x"],
        &["scrub", "v", "--rate", "x"],
        &["scrub", "v", "--rate", "65535"],
        &["mkfs", "v", "--size", "64M", "--block-size", "5000"],
        &["mkfs", "v", "--size", "64M", "--page-size", "5000"],
        &["mkfs", "v", "--size", "1M"],
        &["help", "nothing"],
        &["nothing"],
    ] {
        refusal(2, words);
    }
    assert!(
        refusal(2, &["dump", "v", "zone"])
            .contains("add the number of the zone, like `polder dump v zone 1`")
    );
    // Ten bytes per second look like a command that hangs.
    let said = refusal(2, &["scrub", "v", "--rate", "10"]);
    assert!(said.contains("10 bytes per second are too few; write at least 64K"), "{said}");
    // Under the names that the system calls, with the statuses that it expects.
    for (name, words, status) in [
        ("mkfs.polder", &["v", "--size", "1M"][..], 2),
        ("mkfs.polder", &[], 2),
        ("mount.polder", &["v", "d", "-o", "bogus"], 1),
        ("mount.polder", &["v"], 1),
        ("mount.polder", &["missing", "/"], 32),
        ("umount.polder", &[], 1),
        ("umount.polder", &["missing"], 32),
        ("fsck.polder", &[], 16),
        ("fsck.polder", &["missing"], 8),
    ] {
        let output = polder_as(name, words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(status), 1),
            "{name} {words:?}: {said}"
        );
    }
}

#[test]
fn mistyped_words_get_a_suggestion() {
    for (words, meant) in [
        (&["chekc", "v"][..], "'check'"),
        (&["mkfz", "v"], "'mkfs'"),
        (&["check", "--repai", "v"], "'--repair'"),
        (&["mkfs", "v", "--blocksize", "4K"], "'--block-size'"),
        (&["umount", "--layz", "d"], "'--lazy'"),
        (&["dump", "v", "zoen", "1"], "'zone'"),
        (&["hint", "f", "shrot"], "'short'"),
        (&["mount", "v", "d", "-o", "ro,strictatme"], "'strictatime'"),
        (&["mount", "v", "d", "-o", "cahce=64M"], "'cache'"),
    ] {
        let said = refusal(2, words);
        assert!(said.contains("; did you mean ") && said.contains(meant), "{said}");
    }
    // `hint` was suggested for these.
    for word in ["nothing", "mnt"] {
        assert!(!refusal(2, &[word]).contains("did you mean"));
    }
}

/// `polder mount LABEL=x mnt` advised to create a volume there first.
#[test]
fn paths_that_lead_nowhere_are_explained() {
    let place = Place::new();
    let folder = place.folder("folder");
    std::os::unix::fs::symlink("nowhere", place.path("dangling")).unwrap();
    let text = place.file("text", b"text");
    for (path, complaint) in [
        (place.path("dangling"), "is a symbolic link to nowhere, which does not exist; correct the link"),
        (place.path("nodir/volume"), "there is no directory "),
        (format!("{text}/volume"), "is not a directory; correct the path"),
    ] {
        refused_by_all(&place, &path, complaint, "correct the");
        let said = refusal(1, &["mkfs", &path, "--size", "64M"]);
        assert!(said.contains(complaint) && !Path::new(&path).exists(), "{said}");
    }
    assert!(refusal(1, &["info", "/dev/no/such"]).contains("there is no such device"));
    for tag in ["LABEL=no such label", "UUID=0000-none", "PARTUUID=none"] {
        let said = refusal(1, &["mount", tag, &folder]);
        assert!(said.contains(tag) && said.contains("name the path"), "{said}");
    }
}

/// If another user created a file with such a name in root's working directory, root mounted that file.
#[test]
fn a_tag_is_no_file_in_the_working_directory() {
    let place = Place::new();
    let (tag, folder) = ("LABEL=no such label", place.folder("folder"));
    place.volume(tag);
    for words in [&["info", tag][..], &["mount", tag, &folder], &["umount", tag]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
        let output = command.args(words).current_dir(place.directory.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains("name the path"), "{words:?}: {said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
    command.args(["info", &format!("./{tag}")]).current_dir(place.directory.path());
    assert!(command.output().unwrap().status.success());
}

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str, contents: &[u8]) -> String {
        fs::write(self.directory.path().join(name), contents).unwrap();
        self.path(name)
    }

    fn folder(&self, name: &str) -> String {
        fs::create_dir(self.directory.path().join(name)).unwrap();
        self.path(name)
    }

    fn volume(&self, name: &str) -> String {
        let path = self.path(name);
        let made = polder(&["mkfs", &path, "--size", "64M", "--label", "first"]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        path
    }
}

#[test]
fn invalid_arguments_are_refused() {
    assert!(refusal(2, &["mkfz"]).contains("mkfz"));
    assert!(refusal(2, &["mkfs"]).contains("<PATH>"));
    assert!(refusal(2, &["mkfs", "v", "--size", "1Q"]).contains("'1Q' is not a size"));
    assert!(refusal(2, &["mkfs", "v", "--uuid", "nobody"]).contains("write a UUID"));
    assert!(refusal(2, &["mkfs", "v", "--label", &"x".repeat(65)]).contains("at most 64"));
    assert!(refusal(2, &["mkfs", "v", "--groups", "0"]).contains("'--groups <GROUPS>'"));
    for (arguments, help) in [
        (&["gc", "v", "--free", "-1"][..], "polder gc --help"),
        (&["gc", "v", "--free", "x"], "polder gc --help"),
        (&["gc", "v", "--seconds", "1.5"], "polder gc --help"),
        (&["mkfs", "v", "--max-open", "many"], "polder mkfs --help"),
        (&["dump", "v", "zone", "-1"], "polder dump --help"),
    ] {
        let said = refusal(2, arguments);
        assert!(said.contains("is not a whole number; write one") && said.contains(help), "{said}");
    }
    assert!(refusal(2, &["gc"]).contains("(see `polder gc --help`)"));
    assert!(refusal(2, &["mkfs", "v", "--reserve", "some"]).contains("write a percentage"));
    assert!(refusal(2, &["mount", "v", "d", "--cache", "1K"]).contains("cache: 1K is too small"));
    assert!(polder(&["--help"]).status.success());
    assert!(polder(&["--version"]).status.success());
}

/// `mkfs` accepted zones with space for three nodes, on which not all available space could be written, and devices
/// without space for files. They are refused.
#[test]
fn impossible_geometries_create_no_file() {
    let place = Place::new();
    let path = place.path("volume");
    for (arguments, complaint) in [
        (vec!["--size", "1M"], "too few"),
        (vec!["--size", "0"], "too few"),
        (vec!["--size", "1G", "--block-size", "5000"], "block size 5000"),
        (vec!["--size", "1G", "--block-size", "128K"], "block size 131072"),
        (vec!["--size", "1G", "--zone-size", "1000000"], "zone size 1000000"),
        (vec!["--size", "1G", "--zone-size", "512M"], "too few"),
        (vec!["--size", "1G", "--max-open", "5"], "open zones 5"),
        (vec!["--size", "1G", "--max-open", "14", "--max-active", "10"], "active zones 10"),
        (vec![], "the file does not exist yet; give the size of the volume (--size)"),
        (vec!["--size", "64M", "--page-size", "5000"], "5000 bytes are not a valid node size"),
        (
            vec!["--size", "64M", "--zone-size", "256K", "--page-size", "64K"],
            "space for 3 nodes of 64 KiB, but needs space for 10",
        ),
        (
            vec!["--size", "1G", "--reserve", "2"],
            "a reserve of 2.00 % is impossible: on this device choose from",
        ),
        (vec!["--size", "1G", "--reserve", "0"], "choose from"),
    ] {
        let status = if arguments.is_empty() { 1 } else { 2 };
        let said = refusal(status, &[&["mkfs", path.as_str()], arguments.as_slice()].concat());
        assert!(said.contains(complaint), "{arguments:?}: {said}");
        assert!(!Path::new(&path).exists(), "{arguments:?}");
    }
}

#[test]
fn existing_data_is_overwritten_only_with_force() {
    let place = Place::new();
    let volume = place.volume("volume");
    let before = fs::read(&volume).unwrap();
    assert!(refusal(1, &["mkfs", &volume]).contains("--force"));
    assert_eq!(fs::read(&volume).unwrap(), before);

    let letters = b"dear diary".repeat(10_000_000);
    let other = place.file("other", &letters);
    assert!(refusal(1, &["mkfs", &other]).contains("--force"));
    assert_eq!(fs::read(&other).unwrap(), letters);

    let forced = polder(&["mkfs", &volume, "--force"]);
    assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));
    assert_ne!(fs::read(&volume).unwrap(), before, "each volume has its own ID");
}

/// `polder mkfs --force` with an invalid page size destroyed a volume: the file was truncated before the page size was
/// checked.
#[test]
fn a_refused_mkfs_leaves_the_file_unchanged() {
    let place = Place::new();
    let volume = place.volume("volume");
    let blank = place.file("blank", &[0; 64 << 20]);
    let empty = place.file("empty", b"");
    let host_is_full = ["--size", "8000000000000000", "--zone-size", "64G", "--preallocate"];
    for (arguments, complaint) in [
        (&["--page-size", "5000"][..], "5000 bytes are not a valid node size"),
        (&["--page-size", "5000", "--preallocate"], "5000 bytes are not a valid node size"),
        (&["--groups", "5000"], "5000 groups"),
        (&["--block-size", "32K", "--page-size", "4K"], "4096 bytes are not a valid node size"),
        (&["--max-open", "5"], "open zones 5"),
        (&["--zone-size", "32M"], "too few"),
        (&host_is_full, &volume),
    ] {
        for (path, size) in [(&volume, &[][..]), (&blank, &[]), (&empty, &["--size", "64M"])] {
            // `mkfs` refuses an option that is given twice.
            let size = if arguments.contains(&"--size") { &[] } else { size };
            let blocks = || fs::metadata(path).unwrap().blocks();
            let (before, taken) = (fs::read(path).unwrap(), blocks());
            let status = if complaint == volume { 1 } else { 2 };
            let said = refusal(status, &[&["mkfs", "--force", path.as_str()], arguments, size].concat());
            let complaint = if complaint == volume { path } else { complaint };
            assert!(said.contains(complaint), "{arguments:?}: {said}");
            assert!(fs::read(path).unwrap() == before, "{arguments:?} changed {path}");
            assert_eq!(blocks(), taken, "{arguments:?} took blocks of the host for {path}");
        }
    }
    assert!(polder(&["check", &volume]).status.success());
}

/// Asserts that every command that reads a volume refuses this path with this complaint and this advice, and leaves the
/// file unchanged.
fn refused_by_all(place: &Place, path: &str, complaint: &str, advice: &str) {
    let folder = place.path("mount point");
    fs::create_dir_all(&folder).unwrap();
    let before = fs::read(path).ok();
    for (status, command) in [
        (1, vec!["mount", path, &folder]),
        (1, vec!["mount", path, &folder, "-o", "ro"]),
        (1, vec!["info", path]),
        (1, vec!["stats", path]),
        (8, vec!["check", path]),
        (8, vec!["check", "--data", path]),
    ] {
        let said = refusal(status, &command);
        assert!(said.contains(path), "{command:?}: {said}");
        assert!(said.contains(complaint) && said.contains(advice), "{command:?}: {said}");
        assert!(fs::read(path).ok() == before, "{command:?} has changed the file");
    }
    assert!(fs::read_dir(&folder).unwrap().next().is_none(), "something was mounted");
}

/// Asserts that `polder mkfs` does not overwrite this file, and names its contents.
fn not_overwritten(path: &str, contents: &str) {
    let before = fs::read(path).unwrap();
    for more in [&[][..], &["--size", "64M"]] {
        let said = refusal(1, &[&["mkfs", path], more].concat());
        assert!(said.contains(contents) && said.contains("use --force to overwrite it"), "{said}");
        assert!(fs::read(path).unwrap() == before, "a refusal changes nothing");
    }
}

/// Changes blocks of 4096 bytes and updates their checksums. The checksum is at byte 8 in the headers of files and of
/// zones.
fn rewrite(path: &str, is_selected: impl Fn(usize, &[u8]) -> bool, change: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(path).unwrap();
    let headers = copies_of_header(bytes.len());
    let mut changed = 0;
    for (index, block) in
        bytes.chunks_exact_mut(4096).enumerate().filter(|(index, block)| is_selected(*index, block))
    {
        change(block);
        block[8..12].fill(0);
        let sum = checksum(&[&*block]);
        block[8..12].copy_from_slice(&sum.to_le_bytes());
        assert!(
            headers.contains(&index) || block.starts_with(&ZONE_MAGIC),
            "a header of the file or of a zone"
        );
        changed += 1;
    }
    assert!(changed > 0, "at least one block is selected");
    fs::write(path, bytes).unwrap();
}

/// The blocks of 4096 bytes in which a file of this length has the copies of its header.
fn copies_of_header(bytes: usize) -> [usize; 3] {
    [0, 1, (bytes / 65536 - 2) * 16]
}

/// Changes all copies of the file's header.
fn rewrite_file_header(path: &str, change: impl Fn(&mut [u8])) {
    let copies = copies_of_header(fs::metadata(path).unwrap().len() as usize);
    rewrite(path, |index, _| copies.contains(&index), change);
}

/// Changes the headers of all zones that have one.
fn rewrite_zone_headers(path: &str, change: impl Fn(&mut [u8])) {
    rewrite(path, |_, block| block.starts_with(&ZONE_MAGIC), change);
}

const DAMAGED: &str = "a damaged Polder volume: no copy of its header can be read";
const REPAIR: &str = "`polder check --repair` reconstructs the header from the zones, `polder salvage`";
const NAME_ONE: &str = "name a volume, or make one elsewhere (polder mkfs)";

#[test]
fn every_command_refuses_a_path_without_a_volume() {
    let place = Place::new();
    let missing = place.path("missing");
    refused_by_all(
        &place,
        &missing,
        "no such file",
        "correct the path, or make a volume there (polder mkfs)",
    );
    assert!(!Path::new(&missing).exists());
    // A member that is gone is no reason to make a volume.
    let (folder, volume) = (place.folder("folder"), place.volume("one member"));
    for words in [
        &["mount", &missing, &folder, "-o", "degraded"][..],
        &["mount", &missing, &volume, &folder],
        &["mount", &volume, &folder, "-o", &format!("device={missing}")],
    ] {
        let said = refusal(1, words);
        assert!(said.contains("or name another member of the volume") && !said.contains("mkfs"), "{said}");
    }
    let unknown = "not a Polder volume: it contains data of an unknown kind";
    refused_by_all(&place, &place.file("text", &b"no volume at all ".repeat(1000)), unknown, NAME_ONE);
    let nothing = "not a Polder volume: it contains nothing";
    let empty = place.file("empty", b"");
    refused_by_all(&place, &empty, "it contains nothing, the file is empty (0 bytes)", NAME_ONE);
    let said = refusal(1, &["mkfs", &empty]);
    assert!(said.contains("the file is empty (0 bytes); give the size of the volume (--size)"), "{said}");
    refused_by_all(&place, &place.file("zeros", &[0; 100_000]), nothing, NAME_ONE);
    // A file with the zones of a volume is a volume, even if its header is overwritten.
    let volume = place.volume("wrong magic");
    rewrite_file_header(&volume, |copy| copy[..8].copy_from_slice(b"POLDERX1"));
    refused_by_all(&place, &volume, DAMAGED, REPAIR);
}

#[test]
fn other_file_systems_are_named_and_not_overwritten() {
    let place = Place::new();
    let mut made = Vec::new();
    for (program, arguments, megabytes, what) in [
        ("mkfs.ext4", &["-q", "-F"][..], 16, "an ext2, ext3 or ext4 file system"),
        // The smallest size that `mkfs.xfs` accepts.
        ("mkfs.xfs", &["-q", "-f"], 300, "an XFS file system"),
    ] {
        let path = place.path(program);
        fs::File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
        let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        match Command::new(program).args(arguments).arg(&path).env("PATH", search).status() {
            Err(error) if error.kind() == ErrorKind::NotFound => eprintln!("{program} is not installed"),
            status => {
                assert!(status.unwrap().success(), "{program}");
                made.push((path, what));
            }
        }
    }
    // The magic numbers that the programs write, in case the programs are not installed.
    let mut ext4 = vec![0; 1 << 20];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    made.push((place.file("ext4", &ext4), "an ext2, ext3 or ext4 file system"));
    made.push((place.file("xfs", &[b"XFSB".as_slice(), &[0; 1 << 20]].concat()), "an XFS file system"));
    for (path, what) in made {
        refused_by_all(&place, &path, &format!("not a Polder volume: it contains {what}"), NAME_ONE);
        not_overwritten(&path, &format!("already contains {what}"));
    }
    not_overwritten(&place.volume("volume"), "already contains the Polder volume ");
}

#[test]
fn a_volume_cut_short_is_refused() {
    let place = Place::new();
    let volume = place.volume("volume");
    for (bytes, complaint, advice) in [
        (40 << 20, "cut short: it has 41943040 of its ", "restore the whole file"),
        (8192, "cut short: it has 8192 of its ", "restore the whole file"),
        (100, DAMAGED, REPAIR),
        (7, "not a Polder volume", NAME_ONE),
    ] {
        fs::OpenOptions::new().write(true).open(&volume).unwrap().set_len(bytes).unwrap();
        refused_by_all(&place, &volume, complaint, advice);
    }
}

#[test]
fn a_later_format_is_refused_with_the_release_that_reads_it() {
    let place = Place::new();
    let needs = "needs Polder 7.8.9 or later; this is Polder";
    let name = |at: usize| move |block: &mut [u8]| block[at..at + 6].copy_from_slice(b"7.8.9\0");
    let volume = place.volume("version");
    rewrite_file_header(&volume, |copy| {
        copy[12] = 2;
        name(84)(copy);
    });
    refused_by_all(&place, &volume, "format version 2, features 0x0: ", needs);
    not_overwritten(&volume, "a volume of a later release of Polder");

    let volume = place.volume("feature");
    rewrite_file_header(&volume, |copy| copy[48] = 0x10);
    refused_by_all(&place, &volume, "format version 1, features 0x10: ", "needs Polder 0.1.0 or later");

    let volume = place.volume("zones of a later version");
    rewrite_zone_headers(&volume, |header| header[12] = 2);
    let given = format!("format version 2, features {:#x}: ", zone::format::FEATURES_DEFAULT);
    refused_by_all(&place, &volume, &given, "needs Polder 0.1.0 or later");

    let volume = place.volume("zones with a feature");
    rewrite_zone_headers(&volume, |header| {
        header[64] = 0x20;
        name(80)(header);
    });
    refused_by_all(&place, &volume, "format version 1, features 0x20: ", needs);
}

/// A header that permits fewer open zones than a volume needs was mounted, and the first write failed.
#[test]
fn impossible_geometry_in_a_header_is_refused() {
    let place = Place::new();
    let numbers = [(56, 5000), (56, 0), (60, 0), (64, 0), (68, 0), (68, u32::MAX), (72, 2), (76, 1)];
    for (at, number) in numbers {
        let volume = place.volume("volume");
        rewrite_file_header(&volume, |copy| copy[at..at + 4].copy_from_slice(&number.to_le_bytes()));
        refused_by_all(&place, &volume, DAMAGED, REPAIR);
        fs::remove_file(&volume).unwrap();
    }
    // Possible geometries that differ from the one with which the volume was created.
    for zones in [5, 31] {
        let volume = place.volume("volume");
        rewrite_file_header(&volume, |copy| copy[60] = zones);
        refused_by_all(&place, &volume, "made on a device with other zones", "open it on that device");
        fs::remove_file(&volume).unwrap();
    }
}

#[test]
fn a_volume_in_use_is_refused() {
    let place = Place::new();
    let volume = place.volume("volume");
    let held = FileDevice::open(Path::new(&volume), OpenMode::ReadWrite).unwrap();
    let own = format!("is in use by another process (process {}, ", std::process::id());
    assert!(refusal(1, &["info", &volume]).contains(&own), "the process is named");
    refused_by_all(&place, &volume, "is in use by another process", "unmount it or end that process first");
    let before = fs::read(&volume).unwrap();
    for more in [&[][..], &["--force"]] {
        let said = refusal(1, &[&["mkfs", volume.as_str()], more].concat());
        assert!(said.contains("is in use by another process"), "{said}");
    }
    assert!(fs::read(&volume).unwrap() == before);
    drop(held);
    assert!(polder(&["check", &volume]).status.success());
}

#[test]
fn a_device_that_is_too_small_is_not_changed() {
    let place = Place::new();
    let small = place.file("small", &[0; 1 << 20]);
    let said = refusal(1, &["mkfs", &small]);
    assert!(said.contains("1048576 bytes are too few for 16 zones; the smallest volume"), "{said}");
    assert!(fs::read(&small).unwrap() == [0; 1 << 20]);
}

#[test]
fn damage_is_named() {
    let place = Place::new();
    let scratched = place.volume("scratched");
    let mut bytes = fs::read(&scratched).unwrap();
    for block in copies_of_header(bytes.len()) {
        bytes[block * 4096..][..4096].iter_mut().skip(16).step_by(64).for_each(|byte| *byte ^= 0xff);
    }
    fs::write(&scratched, &bytes).unwrap();
    refused_by_all(&place, &scratched, DAMAGED, REPAIR);
    not_overwritten(&scratched, "a damaged Polder volume, which `polder check --repair` may repair");

    let restore = "restore the whole volume from a copy";
    let headless = place.volume("headless");
    let mut bytes = fs::read(&headless).unwrap();
    let zones = bytes.chunks_exact_mut(4096).filter(|block| block.starts_with(&ZONE_MAGIC));
    zones.for_each(|header| header[100] ^= 0xff);
    fs::write(&headless, &bytes).unwrap();
    refused_by_all(&place, &headless, "the headers of the log zones are damaged", restore);

    let logless = place.volume("logless");
    let mut bytes = fs::read(&logless).unwrap();
    let log = bytes.chunks_exact_mut(4096).filter(|block| block.starts_with(b"PLOG"));
    log.for_each(|block| block[100] ^= 0xff);
    fs::write(&logless, &bytes).unwrap();
    refused_by_all(&place, &logless, "the log has no readable checkpoint", restore);
}

/// Only the ID of the volume distinguishes remains of an old volume on a device from the new one.
#[test]
fn a_new_volume_does_not_get_the_id_of_the_old_one() {
    const FIRST: &str = "00112233-4455-6677-8899-aabbccddeeff";
    const OTHER: &str = "00112233-4455-6677-8899-aabbccddeefe";
    let place = Place::new();
    let path = place.path("volume");
    let make = |uuid| polder(&["mkfs", &path, "--size", "64M", "--force", "--uuid", uuid]).status.success();
    assert!(make(FIRST));
    let before = fs::read(&path).unwrap();
    let said = refusal(1, &["mkfs", &path, "--force", "--uuid", FIRST]);
    assert!(said.contains(FIRST) && said.contains("choose another"), "{said}");
    assert!(before == fs::read(&path).unwrap(), "the volume was changed");
    assert!(make(OTHER));
}

/// A pipe that was named as a volume was opened, and the command waited for its other end for ever.
#[test]
fn pipes_directories_and_character_devices_are_refused() {
    let place = Place::new();
    let (folder, file, pipe) = (place.folder("folder"), place.file("folder/file", b"x"), place.path("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let advice = "name a file or a block device";
    refused_without_reading(&place, &pipe, "is a pipe", advice);
    refused_without_reading(&place, "/dev/null", "is a character device", advice);
    for arguments in
        [&["mkfs", &folder][..], &["mkfs", &folder, "--force", "--size", "64M"], &["mount", &folder, &folder]]
    {
        let said = refusal(1, arguments);
        assert!(said.contains("is a directory") && said.contains(advice), "{arguments:?}: {said}");
    }
    assert!(refusal(8, &["check", &folder]).contains("no Polder volume is mounted there"));
    for words in [&["device", "status", &folder][..], &["device", "replace", &folder, "0", &pipe]] {
        assert!(refusal(1, words).contains("no Polder volume is mounted there"), "{words:?}");
    }
    assert_eq!(fs::read(file).unwrap(), b"x");
}

/// Like `refused_by_all`, for paths that cannot be read. Includes `polder mkfs`.
fn refused_without_reading(place: &Place, path: &str, complaint: &str, advice: &str) {
    let folder = place.path("mount point");
    fs::create_dir_all(&folder).unwrap();
    for (status, command) in [
        (1, vec!["mkfs", path]),
        (1, vec!["mkfs", path, "--force", "--size", "64M"]),
        (1, vec!["mount", path, &folder]),
        (1, vec!["info", path]),
        (1, vec!["stats", path]),
        (8, vec!["check", path]),
    ] {
        let said = refusal(status, &command);
        assert!(
            said.contains(path) && said.contains(complaint) && said.contains(advice),
            "{command:?}: {said}"
        );
    }
}

/// Only root may read this file. If the test runs as root, the commands run as the user `nobody`.
#[test]
fn an_unreadable_volume_is_refused() {
    const NOBODY: u32 = 65534;
    let place = Place::new();
    let volume = place.volume("volume");
    let before = fs::read(&volume).unwrap();
    fs::set_permissions(place.directory.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&volume, Permissions::from_mode(0o000)).unwrap();
    // A copy that every user may run.
    let command = place.path("polder");
    fs::copy(env!("CARGO_BIN_EXE_polder"), &command).unwrap();
    let folder = place.folder("folder");
    let is_root = fs::metadata(&volume).unwrap().uid() == 0;
    for (status, arguments) in [
        (1, &["mkfs", &volume][..]),
        (1, &["mkfs", &volume, "--force", "--size", "64M"]),
        (1, &["mount", &volume, &folder]),
        (1, &["info", &volume]),
        (8, &["check", &volume]),
    ] {
        let mut run = Command::new(&command);
        if is_root {
            run.uid(NOBODY).gid(NOBODY);
        }
        let output = run.args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(status), 1), "{arguments:?}: {said}");
        let says = [volume.as_str(), "permission denied; ", "change its permissions"];
        assert!(says.iter().all(|words| said.contains(words)), "{arguments:?}: {said}");
    }
    fs::set_permissions(&volume, Permissions::from_mode(0o600)).unwrap();
    assert!(fs::read(&volume).unwrap() == before);
}

#[test]
fn mount_points_must_be_directories() {
    let place = Place::new();
    let volume = place.volume("volume");
    let file = place.file("file", b"x");
    let missing = place.path("missing");
    let folder = place.folder("folder");
    assert!(refusal(1, &["mount", &volume, &missing]).contains("no such directory"));
    assert!(refusal(1, &["mount", &volume, &file]).contains("not a directory"));
    assert!(refusal(1, &["umount", &folder]).contains("no Polder volume is mounted there"));
    assert!(refusal(1, &["info", &folder]).contains("no Polder volume is mounted there"));
    let said = refusal(2, &["mount", &volume, &folder, "-o", "ro,bogus"]);
    assert!(said.contains("unknown mount option 'bogus'"), "{said}");
}

#[test]
fn a_new_volume_is_clean_and_reports_its_properties() {
    let place = Place::new();
    let volume = place.volume("volume");
    let before = fs::read(&volume).unwrap();

    let checked = polder(&["check", &volume]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(String::from_utf8(checked.stdout).unwrap().ends_with(": clean\n"));

    // A reader that ends early.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = Command::new(env!("CARGO_BIN_EXE_polder"));
    let unread = unread.args(["check", &volume]).stdout(writer).output().unwrap();
    assert_eq!((unread.status.code(), unread.stderr), (Some(0), Vec::new()));

    let info: serde_json::Value =
        serde_json::from_slice(&polder(&["info", &volume, "--json"]).stdout).unwrap();
    assert_eq!(info["label"], "first");
    assert_eq!(info["block_size"], 4096);
    assert_eq!(info["mounted_on"], serde_json::Value::Null);
    assert!(info["zones"].as_u64().unwrap() >= 15, "{info}");

    let stats: serde_json::Value =
        serde_json::from_slice(&polder(&["stats", &volume, "--json"]).stdout).unwrap();
    assert_eq!(stats["written"]["user_bytes"], 0);
    assert_eq!(stats["mounted"], false);
    assert_eq!(stats["stored"]["zones_by_role"]["data"], 0, "{stats}");
    assert!(stats["stored"]["reserved_bytes"].as_u64() > Some(0), "{stats}");
    assert_eq!(stats["stored"]["free_zones_reserved"], serde_json::Value::Null, "nothing can be written");
    assert_eq!(fs::read(&volume).unwrap(), before, "reading commands change nothing");
}

#[test]
fn a_quiet_command_prints_only_data_and_findings() {
    let place = Place::new();
    let volume = place.path("volume");
    let printed = |arguments: &[&str]| {
        let output = polder(arguments);
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let nothing = (Some(0), String::new());
    assert_eq!(printed(&["mkfs", "-q", &volume, "--size", "64M", "--label", "mine"]), nothing);
    for silent in [["check", &volume], ["scrub", &volume], ["gc", &volume]] {
        assert_ne!(printed(&silent).1, "", "{silent:?}");
        assert_eq!(printed(&[&["--quiet"], silent.as_slice()].concat()), nothing, "{silent:?}");
    }
    let quiet = polder_as("mkfs.polder", &["-q", "-f", "-L", "mine", &volume]);
    assert!(quiet.status.success() && quiet.stdout.is_empty());
    assert_eq!(printed(&["label", "-q", &volume]), (Some(0), "mine\n".to_owned()));

    // Damage all over the volume.
    let bytes = fs::metadata(&volume).unwrap().len();
    let file = fs::File::options().write(true).open(&volume).unwrap();
    for at in (1..bytes / (1 << 20)).map(|mebibyte| mebibyte << 20) {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 64 << 10], at).unwrap();
    }
    let found = polder(&["check", "-q", &volume]);
    assert_ne!(found.status.code(), Some(0));
    assert!(!found.stdout.is_empty() || !found.stderr.is_empty());
    assert!(refusal(2, &["check", "-q", "-v", &volume]).contains("cannot be used with"));
}

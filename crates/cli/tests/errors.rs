//! What the command says to bad input: one line that names the thing, a status that is not 0, and nothing
//! changed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

fn polder(arguments: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_polder")).args(arguments).output();
    run.expect("the command was built for this test")
}

/// Runs the command, expects this status, and returns its one line of complaint.
fn refusal(status: i32, arguments: &[&str]) -> String {
    let output = polder(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("polder: "), "{said}");
    said
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
fn words_that_mean_nothing_are_refused() {
    assert!(refusal(2, &["mkfz"]).contains("mkfz"));
    assert!(refusal(2, &["mkfs"]).contains("<PATH>"));
    assert!(refusal(2, &["mkfs", "v", "--size", "1Q"]).contains("'1Q' is not a size"));
    assert!(refusal(2, &["mkfs", "v", "--uuid", "nobody"]).contains("write a UUID"));
    assert!(refusal(2, &["mkfs", "v", "--label", &"x".repeat(65)]).contains("at most 64"));
    assert!(refusal(2, &["mkfs", "v", "--groups", "0"]).contains("'--groups <GROUPS>'"));
    assert!(refusal(2, &["mount", "v", "d", "--cache", "1K"]).contains("cache: 1K is too little"));
    assert!(polder(&["--help"]).status.success());
    assert!(polder(&["--version"]).status.success());
}

#[test]
fn geometries_that_cannot_be_make_no_file() {
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
        (vec![], "say how large it is to be"),
        (vec!["--size", "64M", "--page-size", "5000"], "node of 5000 bytes"),
    ] {
        let said = refusal(1, &[&["mkfs", path.as_str()], arguments.as_slice()].concat());
        assert!(said.contains(complaint), "{arguments:?}: {said}");
        assert!(!Path::new(&path).exists(), "{arguments:?}");
    }
}

#[test]
fn what_a_file_holds_is_not_overwritten_unasked() {
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
    assert_ne!(fs::read(&volume).unwrap(), before, "a volume has an id of its own");
}

#[test]
fn what_is_no_volume_is_refused_by_every_command() {
    let place = Place::new();
    let missing = place.path("missing");
    let text = place.file("text", &b"no volume at all ".repeat(1000));
    let empty = place.file("empty", b"");
    let folder = place.folder("folder");
    for (path, complaint) in
        [(&missing, "no such file"), (&text, "not a Polder volume"), (&empty, "not a Polder volume")]
    {
        for (status, command) in [
            (1, vec!["mount", path, &folder]),
            (1, vec!["info", path]),
            (1, vec!["stats", path]),
            (8, vec!["check", path]),
        ] {
            let said = refusal(status, &command);
            assert!(said.contains(complaint), "{command:?}: {said}");
        }
    }
    assert!(!Path::new(&missing).exists());
}

#[test]
fn damage_is_named() {
    let place = Place::new();
    let short = place.volume("short");
    fs::OpenOptions::new().write(true).open(&short).unwrap().set_len(40 << 20).unwrap();
    assert!(refusal(8, &["check", &short]).contains("cut short"));

    let scratched = place.volume("scratched");
    let mut bytes = fs::read(&scratched).unwrap();
    bytes[..8192].iter_mut().skip(16).step_by(64).for_each(|byte| *byte ^= 0xff);
    fs::write(&scratched, &bytes).unwrap();
    assert!(refusal(1, &["info", &scratched]).contains("damaged"));
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
    assert!(refusal(1, &["umount", &folder]).contains("no volume of Polder is mounted there"));
    assert!(refusal(1, &["info", &folder]).contains("no volume of Polder is mounted there"));
    let said = refusal(1, &["mount", &volume, &folder, "-o", "ro,nobarrier"]);
    assert!(said.contains("unknown mount option 'nobarrier'"), "{said}");
}

#[test]
fn a_new_volume_is_clean_and_tells_what_it_is() {
    let place = Place::new();
    let volume = place.volume("volume");
    let before = fs::read(&volume).unwrap();

    let checked = polder(&["check", &volume]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(String::from_utf8(checked.stdout).unwrap().ends_with(": clean\n"));

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
    assert_eq!(fs::read(&volume).unwrap(), before, "looking changes nothing");
}

//! Volumes on several devices, without a mount: making them, bad input, and commands on unmounted volumes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs the program. Words of one letter are names of members.
    fn run(&self, words: &[&str]) -> Output {
        let is_member = |word: &str| word.len() == 1 && word.chars().all(char::is_alphabetic);
        let words =
            words.iter().map(|word| if is_member(word) { self.path(word) } else { (*word).to_owned() });
        let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
        command.args(words).env("POLDER_RUN_DIR", self.path("run")).output().unwrap()
    }

    fn succeed(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refusal(&self, status: i32, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        said
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_refused_mkfs_of_several_members_changes_none_of_them() {
    let place = Place::new();
    place.succeed(&["mkfs", "v", "--size", "64M"]);
    place.succeed(&["mkfs", "--size", "64M", "--layout", "mirror", "m", "n"]);
    fs::write(place.path("t"), b"a letter ".repeat(10_000_000)).unwrap();
    fs::write(place.path("s"), [0; 300_000]).unwrap();
    let before: Vec<(String, Vec<u8>)> =
        place.names().into_iter().map(|name| (name.clone(), fs::read(place.path(&name)).unwrap())).collect();
    let file = ["--size", "64M"];
    for (status, words, complaint) in [
        (2, &["--layout", "mirror", "a"][..], "needs at least 2 members, and 1 is given; name more"),
        (2, &["--layout", "stripe", "a"], "needs at least 2 members"),
        (2, &["--layout", "mirror"], "write the members directly behind the layout"),
        (2, &["--layout", "parity", "a", "b"], "is no layout; write stripe or mirror"),
        (2, &["--layout", "mirror", "a", "a"], "is given twice"),
        (2, &["--layout", "mirror", "a", "b", "--layout", "mirror", "c", "a"], "is given twice"),
        (2, &["a", "--layout", "mirror", "b", "c"], "name all members behind a layout"),
        (2, &["--layout", "mirror", "a", "b", "--chunk", "64K"], "only a stripe has chunks"),
        (
            2,
            &["--layout", "stripe", "a", "b", "--chunk", "5000"],
            "chunk 5000: it must be a multiple of the block",
        ),
        (2, &["--layout", "stripe", "a", "b", "--chunk", "0K"], "chunk 0"),
        (2, &["--chunk", "64K", "a"], "--layout"),
        (2, &["--layout", "mirror", "a", "b", "--max-open", "6"], "open zones 6"),
        (2, &["--layout", "mirror", "a", "b", "--page-size", "5000"], "5000 bytes are not a valid node size"),
        (2, &["--layout", "mirror", "a", "b", "--zone-size", "8M"], "too few"),
        (1, &["--layout", "mirror", "a", "v"], "already contains the Polder volume"),
        (1, &["--layout", "mirror", "a", "m"], "already contains a member of the Polder volume"),
        (1, &["--layout", "mirror", "a", "t"], "use --force to overwrite it"),
        (1, &["--layout", "mirror", "a", "/dev/null"], "name a file or a block device"),
        (1, &["--layout", "mirror", "a", "/nowhere/b"], "there is no directory /nowhere"),
    ] {
        let said = place.refusal(status, &[&["mkfs"], words, &file].concat());
        assert!(said.contains(complaint), "{words:?}: {said}");
    }
    assert!(place.refusal(1, &["mkfs", "--layout", "mirror", "a", "b"]).contains("give the size"));
    // A member that is too small, although the others may be overwritten.
    let said = place.refusal(1, &["mkfs", "--force", "--layout", "mirror", "v", "s"]);
    assert!(said.contains("too few for 16 zones"), "{said}");
    // A member of a volume alone is no place for another volume.
    let said = place.refusal(1, &["mkfs", "n"]);
    assert!(said.contains("a member of the Polder volume") && said.contains("--force"), "{said}");
    let after: Vec<(String, Vec<u8>)> =
        place.names().into_iter().map(|name| (name.clone(), fs::read(place.path(&name)).unwrap())).collect();
    assert!(before == after, "something was changed or created: {:?}", place.names());
}

/// The first member was emptied before it was known that the second one cannot be created.
#[test]
fn a_member_is_not_emptied_if_another_one_cannot_be_created() {
    let place = Place::new();
    place.succeed(&["mkfs", "v", "--size", "64M"]);
    let before = place.succeed(&["info", "v"]);
    // No program can create files there.
    let impossible = "/sys/polder-member";
    place.refusal(1, &["mkfs", "--force", "--size", "64M", "--layout", "mirror", "v", "n", impossible]);
    assert_eq!(place.succeed(&["info", "v"]), before);
    assert!(!place.names().contains(&"n".to_owned()), "a new file was left: {:?}", place.names());
}

#[test]
fn mkfs_reports_what_is_not_used() {
    let place = Place::new();
    fs::File::create(place.path("a")).unwrap().set_len(64 << 20).unwrap();
    fs::File::create(place.path("b")).unwrap().set_len(96 << 20).unwrap();
    let said = place.succeed(&["mkfs", "--layout", "mirror", "a", "b"]);
    assert!(said.contains("set 0: a mirror, each block is on all 2 members"), "{said}");
    let part = |name: &str| {
        let beginning = format!("{}: not used: ", place.path(name));
        said.lines().find_map(|line| line.strip_prefix(&beginning)).unwrap_or_default().to_owned()
    };
    assert!(part("a").contains("for the label") && !part("a").contains("beyond those of"), "{said}");
    assert!(part("b").contains("zones beyond those of the smallest member"), "{said}");
    let zones = place.succeed(&["zones", "b"]);
    assert!(zones.contains("log"), "{zones}");
}

#[test]
fn every_command_takes_any_member() {
    let place = Place::new();
    place.succeed(&[
        "mkfs", "--size", "64M", "--label", "all", "--layout", "stripe", "a", "b", "--layout", "mirror", "c",
        "d",
    ]);
    fs::create_dir(place.path("empty")).unwrap();
    let id = |name: &str| {
        let info: Value = serde_json::from_str(&place.succeed(&["info", name, "--json"])).unwrap();
        assert_eq!(info["label"], "all");
        info["id"].as_str().unwrap().to_owned()
    };
    let all: Vec<String> = ["a", "b", "c", "d"].into_iter().map(id).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    for member in ["a", "b", "c", "d"] {
        place.succeed(&["stats", member]);
        place.succeed(&["zones", member]);
        place.succeed(&["check", "--data", member]);
        place.succeed(&["check", "--repair", member]);
        place.succeed(&["scrub", member]);
        place.succeed(&["ls", member]);
        place.succeed(&["gc", member]);
        place.succeed(&["fragments", member, "//"]);
        place.succeed(&["defrag", member, "//"]);
        place.succeed(&["dump", member, "zone", "01"]);
        place.succeed(&["device", "list", member]);
        let probed = place.succeed(&["probe", member]);
        assert!(probed.contains(&format!("ID_FS_UUID={}\n", all[0])), "{probed}");
        assert!(probed.contains("ID_FS_TYPE=polder\n"), "{probed}");
        let status = place.succeed(&["device", "status", member]);
        assert!(status.ends_with("ok: all devices are used\n"), "{status}");
        let target = place.path(&format!("saved-{member}"));
        place.succeed(&["salvage", member, &target]);
        assert!(Path::new(&target).exists());
    }
    place.succeed(&["mkfs", "v", "--size", "64M"]);
    let single = place.succeed(&["device", "status", "v"]);
    assert!(single.contains("single") && single.ends_with("ok: all devices are used\n"), "{single}");
}

#[test]
fn copies_and_strangers_are_recognised() {
    let place = Place::new();
    place.succeed(&["mkfs", "--size", "64M", "--layout", "mirror", "a", "b"]);
    place.succeed(&["mkfs", "--size", "64M", "--layout", "mirror", "c", "d"]);
    place.succeed(&["mkfs", "--size", "64M", "v"]);
    let directory = place.path("mnt");
    fs::create_dir(&directory).unwrap();
    for (device, complaint) in [
        (place.path("c"), "is a member of the volume"),
        (place.path("v"), "is not a member of a volume on several devices"),
        (place.path("missing"), "no such file"),
    ] {
        let said = place.refusal(1, &["mount", "a", &directory, "-o", &format!("device={device}")]);
        assert!(said.contains(complaint) && said.contains(&device), "{said}");
    }
    let said = place.refusal(1, &["mount", "v", "a", &directory]);
    assert!(said.contains("is a volume on one device"), "{said}");
    // A copy of the member that is named does not matter, and one of another member does.
    fs::copy(place.path("a"), place.path("x")).unwrap();
    place.succeed(&["info", "a"]);
    let said = place.refusal(1, &["info", "b"]);
    assert!(said.contains("are copies of one member") && said.contains("device=PATH"), "{said}");
    let said = place.refusal(1, &["mount", "a", "x", &directory]);
    assert!(said.contains("are copies of one member"), "{said}");
    // A link beside a member leads to another one.
    fs::remove_file(place.path("x")).unwrap();
    fs::create_dir(place.path("away")).unwrap();
    fs::rename(place.path("b"), place.path("away/b")).unwrap();
    // Looking works without it, and is followed by the refusal to write.
    let refused = place.run(&["check", "--repair", "a"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(8), "{said}");
    assert!(said.contains("is missing; give the path"), "{said}");
    std::os::unix::fs::symlink("away/b", place.path("y")).unwrap();
    place.succeed(&["check", "--repair", "a"]);
}

impl Place {
    fn states(&self, name: &str) -> Vec<String> {
        let status: Value =
            serde_json::from_str(&self.succeed(&["device", "status", name, "--json"])).unwrap();
        let sets = status["sets"].as_array().unwrap().clone();
        let members = sets.iter().flat_map(|set| set["members"].as_array().unwrap().clone());
        members.map(|member| member["state"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn members_of_an_unmounted_mirror_are_replaced() {
    let place = Place::new();
    place.succeed(&["mkfs", "--size", "64M", "--label", "whole", "--layout", "mirror", "a", "b"]);
    fs::remove_file(place.path("b")).unwrap();
    let said = place.succeed(&["device", "replace", "a", "missing", "c"]);
    assert!(said.ends_with("/c: rebuilt, and in use\n"), "{said}");
    assert_eq!(place.states("c"), ["ok", "ok"]);
    // One that works, by a larger one.
    fs::File::create(place.path("d")).unwrap().set_len(96 << 20).unwrap();
    place.succeed(&["device", "replace", "c", "0", "d"]);
    assert_eq!(place.states("d"), ["ok", "ok"]);
    let shown = place.succeed(&["device", "list", "a"]);
    assert!(!shown.contains("/a ") && shown.contains("/d ") && shown.contains("/c "), "{shown}");
    // The old one returns in place of the other.
    let said = place.refusal(1, &["device", "replace", "d", "c", "a"]);
    assert!(said.contains("already contains a member of the Polder volume"), "{said}");
    place.succeed(&["device", "replace", "d", "c", "a", "--force"]);
    for name in ["c", "d"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    assert_eq!(place.states("a"), ["missing", "ok"]);
    let said = place.run(&["info", "a"]);
    assert!(String::from_utf8(said.stdout).unwrap().contains("whole"));
    place.succeed(&["device", "replace", "a", "missing", "e", "--no-wait"]);
    assert_eq!(place.states("e"), ["rebuilding", "ok"]);
    // Commands work meanwhile. Repeated, it goes on.
    place.succeed(&["check", "--repair", "e"]);
    place.succeed(&["device", "replace", "a", "missing", "e"]);
    assert_eq!(place.states("e"), ["ok", "ok"]);
    place.succeed(&["check", "--data", "e"]);
}

#[test]
fn a_replacement_that_is_refused_changes_nothing() {
    let place = Place::new();
    place.succeed(&["mkfs", "--size", "64M", "--layout", "mirror", "a", "b"]);
    place.succeed(&["mkfs", "--size", "64M", "--layout", "stripe", "s", "t"]);
    place.succeed(&["mkfs", "--size", "64M", "--layout", "mirror", "m", "n", "--layout", "mirror", "o", "p"]);
    place.succeed(&["mkfs", "--size", "64M", "v"]);
    fs::write(place.path("w"), b"a letter ".repeat(10_000_000)).unwrap();
    fs::File::create(place.path("x")).unwrap().set_len(48 << 20).unwrap();
    fs::File::create(place.path("y")).unwrap().set_len(1 << 20).unwrap();
    let candidates = ["v", "w", "x", "y", "s", "m"];
    let before = candidates.map(|name| fs::read(place.path(name)).unwrap());
    for (words, complaint) in [
        (&["a", "b", "v"][..], "already contains the Polder volume"),
        (&["a", "b", "w"], "use --force"),
        (&["a", "b", "m"], "already contains a member of the Polder volume"),
        (&["a", "b", "x"], "zones instead of"),
        (&["a", "b", "y"], "too few for 16 zones"),
        (&["a", "b", "a"], "is a member of this volume and is used; name another device"),
        (&["a", "b", "b"], "is a member of this volume and is used; name another device"),
        (&["a", "b", "/dev/null"], "name a file or a block device"),
        (&["a", "b", "/nowhere/e"], "there is no directory /nowhere"),
        (&["a", "2", "e"], "no such position"),
        (&["a", "missing", "e"], "no member is missing"),
        (&["a", "z", "e"], "is no member of the volume that was found"),
        (&["s", "t", "e"], "is a stripe"),
        (&["m", "0", "e"], "several sets"),
        (&["v", "0", "e"], "is a volume on one device"),
        (&["z", "0", "e"], "no such file"),
    ] {
        let said = place.refusal(1, &[&["device", "replace"], words].concat());
        assert!(said.contains(complaint), "{words:?}: {said}");
    }
    for (words, complaint) in [
        (&["replace", "a", "b"][..], "were not provided"),
        (&["replace", "a"], "were not provided"),
        (&["status", "a", "b"], "only replace takes more than one path"),
        (&["list", "a", "--force"], "are for replace"),
        (&["replace", "a", "b", "e", "--json"], "has no result"),
    ] {
        let said = place.refusal(2, &[&["device"], words].concat());
        assert!(said.contains(complaint), "{words:?}: {said}");
    }
    let after = candidates.map(|name| fs::read(place.path(name)).unwrap());
    assert!(before == after, "something was written");
    assert!(!place.names().contains(&"e".to_owned()), "a file was left");
    assert_eq!(place.states("a"), ["ok", "ok"]);
    // In a volume of several sets.
    place.succeed(&["device", "replace", "m", "1:0", "e"]);
    assert_eq!(place.states("n"), ["ok"; 4]);
    fs::remove_file(place.path("o")).unwrap();
    fs::remove_file(place.path("p")).unwrap();
    assert_eq!(place.states("n"), ["ok", "ok", "ok", "missing"]);
}

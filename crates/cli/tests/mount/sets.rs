//! Volumes on several devices.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::bench::{Daemon, assert_contents, write};
use crate::block_device::Loop;
use crate::{Bench, Mounted, bench_or_skip};

/// Members of a volume, in a directory of their own.
struct Members<'a> {
    bench: &'a Bench,
    directory: PathBuf,
}

impl<'a> Members<'a> {
    /// Makes a volume. A word without dashes in front is the name of a member or of a layout.
    fn make(bench: &'a Bench, words: &[&str]) -> Members<'a> {
        let directory = bench.volume().with_file_name("members");
        fs::create_dir(&directory).unwrap();
        let members = Members { bench, directory };
        let words: Vec<String> = words.iter().map(|word| members.word(word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        bench.succeed(&[&["mkfs", "--size", "96M", "--label", "several"], words.as_slice()].concat());
        members
    }

    fn word(&self, word: &str) -> String {
        let is_member = word.len() == 1;
        if is_member { self.path(word) } else { word.to_owned() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    /// Moves a member out of the directory.
    fn take_away(&self, name: &str) {
        fs::rename(self.path(name), self.away(name)).unwrap();
    }

    fn bring_back(&self, name: &str) {
        fs::rename(self.away(name), self.path(name)).unwrap();
    }

    fn away(&self, name: &str) -> PathBuf {
        self.directory.with_file_name(format!("away-{name}"))
    }

    fn mount(&self, name: &str, more: &[&str]) -> Mounted<'a> {
        let (path, directory, log) = (self.path(name), self.bench.directory(), self.bench.log());
        let [directory, log] = [&directory, &log].map(|path| path.to_str().unwrap());
        let mounted = Mounted { bench: self.bench };
        self.bench.succeed(&[&["mount", &path, directory, "--log", log], more].concat());
        mounted
    }

    /// The error of a mount that must fail.
    fn refusal(&self, name: &str, more: &[&str]) -> String {
        let directory = self.bench.directory();
        let said =
            self.bench.fail(1, &[&["mount", &self.path(name), directory.to_str().unwrap()], more].concat());
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }

    fn status(&self, path: &str) -> Value {
        serde_json::from_str(&self.bench.succeed(&["device", "status", path, "--json"])).unwrap()
    }

    /// The states of all members, in order.
    fn states(&self, path: &str) -> Vec<String> {
        let status = self.status(path);
        let sets = status["sets"].as_array().unwrap().clone();
        let members = sets.iter().flat_map(|set| set["members"].as_array().unwrap().clone());
        members.map(|member| member["state"].as_str().unwrap().to_owned()).collect()
    }

    fn check(&self, name: &str) {
        let said = self.bench.succeed(&["check", "--data", &self.path(name)]);
        assert!(said.ends_with(": clean\n"), "{said}");
    }
}

#[test]
fn a_stripe_is_opened_by_any_member_also_after_a_kill() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "stripe", "a", "b", "c", "--chunk", "16K"]);
    let mounted = members.mount("a", &[]);
    write(&mounted.path("file"), 3);
    let info = mounted.report("info");
    assert_eq!(info["sets"][0]["chunk_blocks"], 4);
    mounted.daemon().kill();
    drop(mounted);

    // Reading changes no member, although they disagree after the kill.
    let before: Vec<Vec<u8>> = ["a", "b", "c"].map(|name| fs::read(members.path(name)).unwrap()).into();
    members.check("c");
    assert_eq!(bench.succeed(&["ls", &members.path("b")]).lines().count(), 1);
    let read_only = members.mount("b", &["-o", "ro"]);
    assert_contents(&read_only.path("file"), 3);
    read_only.umount();
    let after: Vec<Vec<u8>> = ["a", "b", "c"].map(|name| fs::read(members.path(name)).unwrap()).into();
    assert!(before == after, "a reader has written");

    let mounted = members.mount("b", &[]);
    assert_contents(&mounted.path("file"), 3);
    write(&mounted.path("more"), 5);
    assert_eq!(members.states(bench.directory().to_str().unwrap()), ["ok"; 3]);
    mounted.umount();
    members.check("c");

    members.take_away("b");
    for more in [&[][..], &["-o", "degraded"], &["-o", "ro,degraded"]] {
        let said = members.refusal("a", more);
        assert!(said.contains("member 1 (id ") && said.contains("cannot be used without it"), "{said}");
    }
    assert!(bench.fail(8, &["check", &members.path("a")]).contains("is missing"));
    assert_eq!(members.states(&members.path("c")), ["ok", "missing", "ok"]);
    assert_eq!(members.status(&members.path("c"))["state"], "unusable");
    // It is found where the user says.
    let away = members.away("b");
    let mounted = members.mount("a", &["-o", &format!("device={}", away.display())]);
    assert_contents(&mounted.path("more"), 5);
    mounted.umount();
}

#[test]
fn a_mirror_works_without_a_member_only_on_request() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    let mounted = members.mount("a", &[]);
    write(&mounted.path("file"), 3);
    mounted.daemon().kill();
    drop(mounted);
    let mounted = members.mount("b", &[]);
    assert_contents(&mounted.path("file"), 3);
    mounted.umount();

    members.take_away("a");
    for more in [&[][..], &["-o", "ro"]] {
        let said = members.refusal("b", more);
        assert!(said.contains("member 0 (id ") && said.contains(") is missing"), "{said}");
        assert!(said.contains("device=PATH") && said.contains("-o degraded"), "{said}");
    }
    assert!(bench.fail(8, &["check", "--repair", &members.path("b")]).contains("is missing"));
    // Reading needs one member, and says that the other one is missing.
    let shown = bench.polder(&["info", &members.path("b")]);
    let (shown, said) = (String::from_utf8(shown.stdout).unwrap(), String::from_utf8(shown.stderr).unwrap());
    assert!(
        said.contains("the volume is degraded") && shown.contains("degraded      set 0"),
        "{said}{shown}"
    );
    members.check("b");
    assert_eq!(members.states(&members.path("b")), ["missing", "ok"]);

    let mounted = members.mount("b", &["-o", "degraded"]);
    assert!(bench.logged().contains("the volume is degraded"), "{}", bench.logged());
    assert_eq!(members.states(directory), ["missing", "ok"]);
    let info = mounted.report("info");
    assert!(info["sets"][0]["problem"].as_str().unwrap().contains("member 0"), "{info}");
    write(&mounted.path("later"), 5);
    fs::remove_file(mounted.path("file")).unwrap();
    mounted.umount();

    members.bring_back("a");
    for name in ["a", "b"] {
        let said = members.refusal(name, &[]);
        assert!(
            said.contains("member 0 (") && said.contains("is stale: the volume was used without it"),
            "{said}"
        );
        assert!(said.contains("-o degraded"), "{said}");
        assert_eq!(members.states(&members.path(name)), ["stale", "ok"]);
    }
    let mounted = members.mount("a", &["-o", "degraded"]);
    assert_contents(&mounted.path("later"), 5);
    assert!(!mounted.path("file").exists(), "the stale member was read");
    // The mount holds the lock of the stale member too.
    assert!(bench.fail(1, &["mkfs", "--force", &members.path("a")]).contains("in use"));
    mounted.umount();
    members.check("b");
    bench.succeed(&["check", "--repair", &members.path("b")]);
}

#[test]
fn members_of_a_mirror_that_were_used_apart_are_refused() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    let mounted = members.mount("a", &[]);
    write(&mounted.path("file"), 3);
    mounted.umount();
    members.take_away("a");
    members.mount("b", &["-o", "degraded"]).umount();
    members.bring_back("a");
    members.take_away("b");
    let mounted = members.mount("a", &["-o", "degraded"]);
    assert_contents(&mounted.path("file"), 3);
    mounted.umount();
    members.bring_back("b");
    for more in [&[][..], &["-o", "degraded"]] {
        let said = members.refusal("a", more);
        assert!(
            said.contains("were used apart from each other") && said.contains("move the other away"),
            "{said}"
        );
    }
}

/// The mount of the other member was refused only after its label excluded the first one, and then both members were
/// taken for halves that were used apart.
#[test]
fn a_refused_mount_by_the_other_member_changes_nothing() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    members.take_away("b");
    let mounted = members.mount("a", &["-o", "degraded"]);
    write(&mounted.path("file"), 3);
    let elsewhere = bench.volume().with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let b = members.away("b");
    let words = ["mount", b.to_str().unwrap(), elsewhere.to_str().unwrap(), "-o", "degraded"];
    let said = bench.fail(1, &words);
    assert!(said.contains("is mounted"), "{said}");
    mounted.umount();
    members.bring_back("b");
    assert_eq!(members.states(&members.path("a")), ["ok", "stale"]);
    let mounted = members.mount("b", &["-o", "degraded"]);
    assert_contents(&mounted.path("file"), 3);
    mounted.umount();
}

/// The copy of the header near the end survives a mkfs of many file systems.
#[test]
fn a_former_member_that_has_another_file_system_is_no_member() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    members.take_away("b");
    members.mount("a", &["-o", "degraded"]).umount();
    members.bring_back("b");
    let mut start = vec![0; 64 << 10];
    start[..4].copy_from_slice(b"XFSB");
    File::options().write(true).open(members.path("b")).unwrap().write_all_at(&start, 0).unwrap();
    assert_eq!(bench.polder(&["probe", &members.path("b")]).status.code(), Some(2));
    assert_eq!(members.states(&members.path("a")), ["ok", "failed"]);
    members.mount("a", &["-o", "degraded"]).umount();
}

#[test]
fn two_mirrors_are_one_volume() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b", "--layout", "mirror", "c", "d"]);
    let one: Value = serde_json::from_str(&bench.succeed(&["info", &members.path("c"), "--json"])).unwrap();
    assert!(one["total_bytes"].as_u64().unwrap() > 110 << 20, "both sets count: {one}");
    let mounted = members.mount("d", &[]);
    for seed in 1..12 {
        write(&mounted.path(&seed.to_string()), seed);
    }
    mounted.daemon().kill();
    drop(mounted);
    members.take_away("a");
    members.take_away("d");
    let said = members.refusal("b", &[]);
    assert!(said.contains("set 0, a mirror: member 0"), "{said}");
    let mounted = members.mount("c", &["-o", "degraded"]);
    for seed in 1..12 {
        assert_contents(&mounted.path(&seed.to_string()), seed);
    }
    mounted.umount();
    members.check("b");
    // A whole set is missing.
    members.take_away("c");
    assert!(members.refusal("b", &["-o", "degraded"]).contains("set 1 of the volume is missing"));
    members.bring_back("c");
    members.take_away("b");
    assert!(members.refusal("c", &["-o", "degraded"]).contains("set 0 of the volume is missing"));
}

#[test]
fn all_members_of_a_mounted_volume_are_in_use() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    let mounted = members.mount("a", &[]);
    let other = bench.directory().with_file_name("other");
    fs::create_dir(&other).unwrap();
    for name in ["a", "b"] {
        let path = members.path(name);
        assert!(bench.fail(1, &["mount", &path, other.to_str().unwrap()]).contains("in use"), "{name}");
        assert!(bench.fail(1, &["mkfs", "--force", &path]).contains("in use"), "{name}");
        // Commands find the daemon by any member.
        let daemon = Daemon::of(&bench, Path::new(&path));
        assert_eq!(daemon.number(), mounted.daemon().number(), "{name}");
        assert!(bench.succeed(&["check", &path]).contains("not checked"), "{name}");
    }
    assert!(bench.fail(8, &["check", "--repair", &members.path("b")]).contains("is mounted"));
    bench.succeed(&["umount", &members.path("b")]);
    assert!(!bench.is_mounted());
    // As in a line of `/etc/fstab`.
    let directory = bench.directory();
    let words = [members.path("b"), directory.to_str().unwrap().to_owned()];
    let helper = bench.run_as("mount.polder", &[&words[0], &words[1], "-o", "rw,degraded"]);
    assert!(helper.status.success(), "{}", String::from_utf8_lossy(&helper.stderr));
    mounted.umount();
    let checked = bench.run_as("fsck.polder", &["-a", &members.path("a")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn damage_of_one_member_of_a_mirror_loses_nothing() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    let mounted = members.mount("a", &[]);
    fs::create_dir(mounted.path("directory")).unwrap();
    for seed in 1..4 {
        write(&mounted.path(&format!("directory/{seed}")), seed);
    }
    mounted.umount();
    // Every fourth block behind the label and the log of one member.
    let member = File::options().read(true).write(true).open(members.path("a")).unwrap();
    let bytes = member.metadata().unwrap().len();
    let is_written = |block: &[u8]| block.iter().any(|byte| *byte != 0);
    let mut damaged = 0;
    for at in (25 << 20..bytes - (1 << 20)).step_by(4 * 4096) {
        let mut block = [0; 4096];
        member.read_exact_at(&mut block, at).unwrap();
        if is_written(&block) {
            block[77] ^= 4;
            member.write_all_at(&block, at).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 1000, "{damaged}");
    bench.succeed(&["check", &members.path("b")]);
    // Damaged copies are reported, and nothing else is damaged.
    let scrubbed = bench.polder(&["scrub", &members.path("a")]);
    let said = String::from_utf8(scrubbed.stdout).unwrap();
    assert_eq!(scrubbed.status.code(), Some(4), "{said}");
    let findings: Vec<&str> = said.lines().filter(|line| line.contains("device: ")).collect();
    assert!(findings.iter().any(|line| line.contains("metadata: ")), "{said}");
    assert!(findings.iter().any(|line| line.contains("data: object")), "{said}");
    let is_of_a = |line: &&str| line.contains("(at position 0)") && line.ends_with("another copy is intact");
    assert!(findings.iter().all(is_of_a) && said.lines().count() == findings.len() + 2, "{said}");
    let target = bench.directory().with_file_name("saved");
    let saved = bench.polder(&["salvage", &members.path("b"), target.to_str().unwrap()]);
    let report = String::from_utf8(saved.stdout).unwrap();
    assert_eq!(saved.status.code(), Some(0), "{report}");
    for seed in 1..4 {
        assert_contents(&target.join(format!("directory/{seed}")), seed);
    }
    let mounted = members.mount("b", &[]);
    for seed in 1..4 {
        assert_contents(&mounted.path(&format!("directory/{seed}")), seed);
    }
    // A check changes nothing. A scrub repairs the copies of data.
    let directory = bench.directory().to_str().unwrap().to_owned();
    let copies = |command: &[&str]| {
        let output = bench.polder(command);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(4), "{said}");
        ["repaired: device: data: object ", ": device: data: object ", ": device: metadata: "]
            .map(|words| said.lines().filter(|line| line.contains(words)).count())
    };
    let [repaired, reported, _] = copies(&["check", "--data", &directory]);
    assert!(repaired == 0 && reported > 0, "{reported} copies of data");
    let [repaired, of_data, of_metadata] = copies(&["scrub", &directory]);
    assert!(repaired == of_data && repaired > 0 && of_metadata > 0, "{repaired}, {of_data}, {of_metadata}");
    let [repaired, of_data, _] = copies(&["scrub", &directory]);
    assert_eq!([repaired, of_data], [0, 0], "the second scrub");
    for seed in 1..4 {
        assert_contents(&mounted.path(&format!("directory/{seed}")), seed);
    }
    mounted.umount();
}

/// A disk and a file in one mirror. The disk is found by its label.
#[test]
fn a_mirror_of_a_disk_and_a_file_is_found_by_its_labels() {
    let bench = bench_or_skip!();
    let backing = bench.volume().with_file_name("backing");
    File::create(&backing).unwrap().set_len(128 << 20).unwrap();
    let attached = match Loop::new(&backing, &[]) {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let disk = attached.device.to_str().unwrap().to_owned();
    let members = bench.volume().with_file_name("members");
    fs::create_dir(&members).unwrap();
    let file = members.join("a").to_str().unwrap().to_owned();
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    let made = bench.succeed(&["mkfs", "--size", "96M", "--layout", "mirror", &file, &disk]);
    assert!(made.contains("not used:"), "{made}");
    // Files are not looked for everywhere.
    assert!(bench.fail(1, &["mount", &disk, directory]).contains("is missing"));
    for paths in [[&file, &disk], [&disk, &file]] {
        bench.succeed(&["mount", paths[0], paths[1], directory]);
        let mounted = Mounted { bench: &bench };
        write(&mounted.path("file"), 7);
        mounted.umount();
    }
    let probed = bench.succeed(&["probe", &disk]);
    assert!(probed.contains("ID_FS_TYPE=polder\n") && probed.contains("ID_FS_UUID_SUB="), "{probed}");
    let listed = bench.succeed(&["list", "--json"]);
    let id = probed.lines().find_map(|line| line.strip_prefix("ID_FS_UUID=")).unwrap();
    assert_eq!(listed.matches(id).count(), 1, "{listed}");
}

/// Waits until a member is in this state.
fn wait_for_states(members: &Members<'_>, path: &str, wanted: &[&str]) {
    let clock = rt::SystemClock::new();
    let began = rt::Clock::monotonic_ns(&clock);
    let stop = rt::thread::Stop::default();
    while members.states(path) != wanted {
        let waited = rt::Clock::monotonic_ns(&clock) - began;
        assert!(waited < 120_000_000_000, "{:?}, not {wanted:?}", members.states(path));
        stop.wait(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_member_of_a_mounted_mirror_is_replaced_while_files_are_written() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    let mounted = members.mount("a", &[]);
    write(&mounted.path("first"), 3);
    mounted.umount();
    fs::remove_file(members.path("b")).unwrap();
    let mounted = members.mount("a", &["-o", "degraded"]);
    let said = bench.succeed(&["device", "replace", directory, "missing", &members.path("c"), "--no-wait"]);
    assert!(said.contains("being rebuilt"), "{said}");
    for seed in 5..9 {
        write(&mounted.path(&seed.to_string()), seed);
    }
    fs::remove_file(mounted.path("first")).unwrap();
    wait_for_states(&members, directory, &["ok", "ok"]);
    write(&mounted.path("last"), 11);
    // The devices in use are known.
    let said = bench.fail(1, &["device", "replace", directory, "0", &members.path("c")]);
    assert!(said.contains("is a member of this volume and is used"), "{said}");
    assert!(bench.fail(1, &["mkfs", "--force", &members.path("c")]).contains("in use"));
    mounted.umount();
    members.check("c");
    fs::remove_file(members.path("a")).unwrap();
    let mounted = members.mount("c", &["-o", "degraded"]);
    for seed in 5..9 {
        assert_contents(&mounted.path(&seed.to_string()), seed);
    }
    assert_contents(&mounted.path("last"), 11);
    assert!(!mounted.path("first").exists());
    // The same for a command that waits, and for a member that works.
    let said = bench.succeed(&["device", "replace", directory, "0", &members.path("d")]);
    assert!(said.ends_with("/d: rebuilt, and in use\n"), "{said}");
    let said = bench.succeed(&["device", "replace", directory, &members.path("c"), &members.path("e")]);
    assert!(said.ends_with("/e: rebuilt, and in use\n"), "{said}");
    // One that was a member comes back as a new one.
    let said = bench.fail(1, &["device", "replace", directory, "0", &members.path("c")]);
    assert!(said.contains("already contains a member of the Polder volume"), "{said}");
    let again = ["device", "replace", directory, "0", &members.path("c"), "--force"];
    let said = bench.fail(1, &again);
    assert!(said.contains("unmount the volume and mount it again"), "{said}");
    mounted.umount();
    let mounted = members.mount("e", &[]);
    bench.succeed(&again);
    mounted.umount();
    for name in ["d", "e"] {
        fs::remove_file(members.path(name)).unwrap();
    }
    let mounted = members.mount("c", &["-o", "degraded"]);
    assert_contents(&mounted.path("last"), 11);
    mounted.umount();
    members.check("c");
}

#[test]
fn a_rebuild_goes_on_after_the_daemon_was_killed() {
    let bench = bench_or_skip!();
    let members = Members::make(&bench, &["--layout", "mirror", "a", "b"]);
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    let mut mounted = members.mount("a", &[]);
    for seed in 5..9 {
        write(&mounted.path(&seed.to_string()), seed);
    }
    // The copying is fast. It is tried until the kill comes before its end.
    let mut interrupted = None;
    for new in ('c'..='z').map(String::from) {
        bench.succeed(&["device", "replace", directory, "1", &members.path(&new), "--no-wait"]);
        mounted.daemon().kill();
        drop(mounted);
        let is_interrupted = members.states(&members.path("a")) == ["ok", "rebuilding"];
        // No option is needed, and the rebuild goes on without a command.
        mounted = members.mount(&new, &[]);
        if is_interrupted {
            interrupted = Some(new);
            break;
        }
        wait_for_states(&members, directory, &["ok", "ok"]);
    }
    let new = interrupted.expect("one kill comes before the end");
    write(&mounted.path("last"), 11);
    wait_for_states(&members, directory, &["ok", "ok"]);
    mounted.umount();
    members.check("a");
    for name in ('a'..='z').map(String::from).filter(|name| *name != new) {
        let _ = fs::remove_file(members.path(&name));
    }
    let mounted = members.mount(&new, &["-o", "degraded"]);
    for seed in 5..9 {
        assert_contents(&mounted.path(&seed.to_string()), seed);
    }
    assert_contents(&mounted.path("last"), 11);
    mounted.umount();
    members.check(&new);
}

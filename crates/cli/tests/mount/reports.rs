//! The reports of `info`, `check`, `stats`, `mkfs` and `statfs` about a volume and its mount.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::statvfs;
use serde_json::Value;

use crate::{Bench, bench_or_skip};

/// The report of a command as JSON. The volume is named by its own path.
fn report(bench: &Bench, command: &str) -> Value {
    serde_json::from_str(&bench.succeed(&[command, bench.volume().to_str().unwrap(), "--json"])).unwrap()
}

#[test]
fn an_unclean_volume_is_reported_until_it_is_closed() {
    let bench = bench_or_skip!();
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), "written").unwrap();
    let root = mounted.root();
    bench.succeed(&["sync", root.to_str().unwrap()]);
    mounted.daemon().kill();
    bench.succeed(&["umount", root.to_str().unwrap()]);

    for command in ["info", "check"] {
        let last = &report(&bench, command)["last_mount"];
        assert_eq!(last["closed_properly"], false, "{command}: {last}");
        assert!(last["records_replayed"].as_u64().unwrap() > 0, "{command}: {last}");
        let said = bench.succeed(&[command, volume]);
        assert!(said.contains("not closed properly by the last mount"), "{command}: {said}");
    }
    assert!(bench.succeed(&["check", volume]).ends_with(": clean\n"), "an unclean volume is not damaged");

    let mounted = bench.mount(&[]);
    for command in ["info", "check"] {
        assert_eq!(report(&bench, command)["last_mount"]["closed_properly"], false, "{command}");
        let said = bench.succeed(&[command, volume]);
        assert!(said.contains("not closed properly by the mount before this one"), "{command}: {said}");
    }
    mounted.umount();
    for command in ["info", "check"] {
        assert_eq!(report(&bench, command)["last_mount"]["closed_properly"], true, "{command}");
        assert!(!bench.succeed(&[command, volume]).contains("not closed properly"), "{command}");
    }
}

#[test]
fn an_unmounted_volume_is_not_reported_read_only_and_its_free_space_is_reported() {
    let bench = bench_or_skip!();
    let info = report(&bench, "info");
    assert!(info["read_only"].is_null() && info["options"].is_null(), "{info}");
    let free = info["available_bytes"].as_u64().unwrap();
    assert!(free > 128 << 20, "{info}");
    assert_eq!(report(&bench, "stats")["stored"]["available_bytes"], free);
    for command in ["info", "stats"] {
        let said = bench.succeed(&[command, bench.volume().to_str().unwrap()]);
        assert!(said.contains("available  "), "{said}");
    }
    let mounted = bench.mount(&[]);
    let space = statvfs(mounted.root()).unwrap();
    assert_eq!(space.f_bavail * space.f_frsize, free, "a mount has the reported space");
    mounted.umount();
}

#[test]
fn the_mount_options_in_force_are_shown() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "nosuid,commit=7,cache=16M"]);
    let info = mounted.report("info");
    let options = info["options"].as_str().unwrap();
    assert!(options.starts_with("rw,"), "{options}");
    for option in ["nosuid", "noatime", "learn", "cache=16M", "commit=7"] {
        assert!(options.split(',').any(|word| word == option), "{option}: {options}");
    }
    assert_eq!((&info["cache_bytes"], &info["commit_seconds"]), (&(16 << 20).into(), &7.into()));
    let root = mounted.root();
    assert!(bench.succeed(&["info", root.to_str().unwrap()]).contains(options));
    if rustix::process::geteuid().is_root() {
        bench.succeed(&["mount", "-o", "remount,strictatime,commit=9", root.to_str().unwrap()]);
        let info = mounted.report("info");
        let options = info["options"].as_str().unwrap();
        assert!(options.contains("strictatime") && options.contains("commit=9"), "{options}");
        assert!(options.contains("nosuid"), "other options stay: {options}");
    }
    mounted.umount();
    let mounted = bench.mount(&[]);
    let info = mounted.report("info");
    assert_eq!((&info["cache_bytes"], &info["commit_seconds"]), (&(128 << 20).into(), &5.into()));
    mounted.umount();
}

/// Programs that check for free inodes before they write treated a volume as full.
#[test]
fn inodes_are_free_while_there_is_space() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let empty = statvfs(mounted.root()).unwrap();
    assert!(
        empty.f_ffree > 0 && empty.f_favail == empty.f_ffree && empty.f_files >= empty.f_ffree,
        "{} of {}",
        empty.f_ffree,
        empty.f_files
    );
    let file = File::create(mounted.path("large")).unwrap();
    let half = empty.f_bavail / 2 * empty.f_frsize;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, half).unwrap();
    let filled = statvfs(mounted.root()).unwrap();
    assert_eq!(filled.f_files, empty.f_files);
    assert!(filled.f_ffree < empty.f_ffree / 2 + 1000, "{} of {}", filled.f_ffree, filled.f_files);
    drop(file);
    mounted.umount();
}

#[test]
fn a_new_volume_belongs_to_its_owner_alone_and_its_space_is_reported() {
    let bench = bench_or_skip!();
    let volume = bench.volume();
    let path = volume.to_str().unwrap();
    fs::set_permissions(&volume, Permissions::from_mode(0o644)).unwrap();
    let said = bench.succeed(&["mkfs", "--force", path]);
    assert!(said.contains("mode 0600 (was 0644)"), "{said}");
    assert_eq!(fs::metadata(&volume).unwrap().mode() & 0o7777, 0o600);
    assert!(said.contains(" for files\n"), "{said}");
    let offered = said.lines().find_map(|line| line.strip_suffix(" for files")).unwrap().to_owned();
    assert!(bench.succeed(&["info", path]).contains(&format!("available     {offered}\n")), "{offered}");
    let said = bench.succeed(&["mkfs", "--force", path]);
    assert!(!said.contains("mode"), "the mode was not changed: {said}");

    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&volume, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::chown(&volume, Some(12345), None).unwrap();
        bench.succeed(&["mkfs", "--force", path]);
        assert_eq!(fs::metadata(&volume).unwrap().mode() & 0o7777, 0o644, "the file is another user's");
    }
}

#[test]
fn a_label_is_changed_while_mounted_and_unmounted_and_survives_a_kill() {
    let bench = bench_or_skip!();
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    let label = || bench.succeed(&["label", volume]);
    assert_eq!(label(), "bench\n");
    bench.succeed(&["label", volume, "Archive 2026"]);
    assert_eq!(label(), "Archive 2026\n");
    assert_eq!(report(&bench, "info")["label"], "Archive 2026");
    let properties = bench.succeed(&["probe", volume]);
    assert!(properties.contains("ID_FS_LABEL_ENC=Archive\\x202026"), "{properties}");

    let mounted = bench.mount(&[]);
    bench.succeed(&["label", mounted.root().to_str().unwrap(), "other"]);
    assert_eq!(label(), "other\n");
    mounted.daemon().kill();
    bench.succeed(&["umount", mounted.root().to_str().unwrap()]);
    assert_eq!(label(), "other\n");
    bench.succeed(&["label", volume, ""]);
    assert_eq!(label(), "\n");

    let said = bench.fail(2, &["label", volume, &"x".repeat(65)]);
    assert!(said.contains("at most 64"), "{said}");
    let mounted = bench.mount(&["-o", "ro"]);
    let said = bench.fail(1, &["label", mounted.root().to_str().unwrap(), "new"]);
    assert!(said.contains("read-only") || said.contains("Read-only"), "{said}");
    mounted.umount();
    assert_eq!(label(), "\n");
}

#[test]
fn a_verbose_mount_logs_details() {
    let bench = bench_or_skip!();
    bench.mount(&[]).umount();
    assert!(!bench.logged().contains("FUSE version"), "{}", bench.logged());
    bench.mount(&["--verbose"]).umount();
    assert!(bench.logged().contains("DEBUG FUSE version"), "{}", bench.logged());
}

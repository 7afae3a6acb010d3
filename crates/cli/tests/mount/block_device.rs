//! Volumes on block devices. The tests use loop devices, which root can create.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench_or_skip;

/// A loop device over a file. It is detached when dropped.
pub(crate) struct Loop {
    pub(crate) device: PathBuf,
}

impl Loop {
    pub(crate) fn new(file: &std::path::Path, more: &[&str]) -> Result<Loop, String> {
        let run = Command::new("losetup").args(["--find", "--show"]).args(more).arg(file).output();
        let output = run.map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(Loop { device: String::from_utf8(output.stdout).unwrap().trim().into() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn a_block_device_works_like_a_file() {
    let bench = bench_or_skip!();
    let backing = bench.volume().with_file_name("disk");
    File::create(&backing).unwrap().set_len(128 << 20).unwrap();
    let disk = match Loop::new(&backing, &[]) {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let device = disk.device.to_str().unwrap();
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    bench.succeed(&["mkfs", device, "--label", "disk"]);
    assert!(bench.fail(1, &["mkfs", device]).contains("--force"));
    bench.succeed(&["mount", device, directory]);
    let mounted = crate::Mounted { bench: &bench };
    let contents: Vec<u8> = (0..30_u32 << 20).map(|at| (at / 1013) as u8).collect();
    fs::write(mounted.path("file"), &contents).unwrap();
    assert_eq!(mounted.report("info")["label"], "disk");
    let other = Command::new("mount").arg(device).arg(directory).output().unwrap();
    assert!(!other.status.success(), "the device is taken");
    assert!(bench.succeed(&["check", device]).contains("not checked"));
    bench.succeed(&["sync", directory]);
    mounted.daemon().kill();

    let before = fs::read(&disk.device).unwrap();
    bench.succeed(&["mount", device, directory, "-o", "ro"]);
    assert!(fs::read(mounted.path("file")).unwrap() == contents);
    mounted.umount();
    assert!(fs::read(&disk.device).unwrap() == before, "a reader has written");
    assert!(bench.succeed(&["check", device]).ends_with(": clean\n"));
    bench.succeed(&["mount", device, directory]);
    let mounted = crate::Mounted { bench: &bench };
    assert!(fs::read(mounted.path("file")).unwrap() == contents);
    fs::remove_file(mounted.path("file")).unwrap();
    mounted.umount();
    assert!(bench.succeed(&["check", device]).ends_with(": clean\n"));
}

/// Another program has overwritten the start of a disk with an odd length. The test runs twice, the second time with the
/// remains of an older volume on the disk.
#[test]
fn a_disk_whose_start_was_overwritten_is_repaired() {
    let bench = bench_or_skip!();
    let backing = bench.volume().with_file_name("disk");
    File::create(&backing).unwrap().set_len((128 << 20) + 7 * 512).unwrap();
    let disk = match Loop::new(&backing, &[]) {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let device = disk.device.to_str().unwrap();
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    for round in 0..2_u8 {
        bench.succeed(&["mkfs", device, "--force"]);
        bench.succeed(&["mount", device, directory]);
        let mounted = crate::Mounted { bench: &bench };
        fs::write(mounted.path("file"), [round; 100_000]).unwrap();
        mounted.umount();
        let info: serde_json::Value =
            serde_json::from_str(&bench.succeed(&["info", "--json", device])).unwrap();
        assert_eq!(info["copies"][2]["state"], "whole", "{info}");
        // The header and the zone tables at the start, and the space that a GPT uses at the end.
        let write = |offset: u64, length: usize| {
            let file = fs::OpenOptions::new().write(true).open(device).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![0x11; length], offset).unwrap();
            file.sync_all().unwrap();
        };
        write(0, 16384);
        write((128 << 20) + 7 * 512 - 17 * 1024, 17 * 1024);
        assert!(bench.fail(1, &["mount", device, directory]).contains("check --repair"));
        let said = bench.succeed(&["check", "--repair", device]);
        assert!(said.contains("the first copy of the header") && said.ends_with(": clean\n"), "{said}");
        // Without any copy, only the zones identify the volume.
        write(0, 16384);
        write((128 << 20) - (192 << 10), 192 << 10);
        let said = bench.succeed(&["check", "--repair", device]);
        assert!(said.contains("it was reconstructed from") && said.ends_with(": clean\n"), "{said}");
        bench.succeed(&["mount", device, directory]);
        let mounted = crate::Mounted { bench: &bench };
        assert!(fs::read(mounted.path("file")).unwrap() == [round; 100_000]);
        assert_eq!(mounted.report("info")["id"], info["id"]);
        mounted.umount();
        assert!(bench.succeed(&["check", device]).ends_with(": clean\n"));
    }
}

/// A new volume replaced an old one with another zone size, on a disk without discards, and lost its headers. `salvage` saved
/// the files of the old volume, and `check --repair` wrote the header of the old volume.
#[test]
fn a_volume_without_headers_is_not_mistaken_for_the_previous_one() {
    const BYTES: u64 = 512 << 20;
    let bench = bench_or_skip!();
    let backing = bench.volume().with_file_name("disk");
    File::create(&backing).unwrap().set_len(BYTES).unwrap();
    let disk = match Loop::new(&backing, &[]) {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let queue = Path::new("/sys/block").join(disk.device.file_name().unwrap()).join("queue");
    if let Err(error) = fs::write(queue.join("discard_max_bytes"), "0") {
        return eprintln!("skipped: discards cannot be turned off: {error}");
    }
    let device = disk.device.to_str().unwrap();
    let (directory, saved) = (bench.directory(), bench.volume().with_file_name("saved"));
    let (directory, saved) = (directory.to_str().unwrap(), saved.to_str().unwrap());
    let write = |offset: u64, length: usize| {
        let file = fs::OpenOptions::new().write(true).open(device).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; length], offset).unwrap();
        file.sync_all().unwrap();
    };
    let make = |zone_size: &str, megabytes: u32| {
        bench.succeed(&["mkfs", device, "--force", "--zone-size", zone_size]);
        bench.succeed(&["mount", device, directory]);
        let mounted = crate::Mounted { bench: &bench };
        fs::write(mounted.path(zone_size), "here").unwrap();
        (0..megabytes).for_each(|at| fs::write(mounted.path(&at.to_string()), vec![7; 1 << 20]).unwrap());
        mounted.umount();
        let info = bench.succeed(&["info", "--json", device]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        info["id"].as_str().unwrap().to_owned()
    };
    make("4M", 300);
    for zone_size in ["16M", "1M"] {
        let id = make(zone_size, 0);
        write(0, 8192);
        write(BYTES - (128 << 10), 4096);
        bench.succeed(&["salvage", device, saved]);
        assert_eq!(crate::bench::names(Path::new(saved)), [zone_size]);
        fs::remove_dir_all(saved).unwrap();
        let said = bench.succeed(&["check", "--repair", device]);
        assert!(said.contains(&format!("no copy of the header of the volume {id}")), "{said}");
        assert!(said.ends_with(": clean\n"), "{said}");
        bench.succeed(&["mount", device, directory]);
        let mounted = crate::Mounted { bench: &bench };
        assert_eq!(fs::read(mounted.path(zone_size)).unwrap(), b"here");
        mounted.umount();
    }
    // No zone of the second volume begins at the beginning of a zone of the first. Without its first zone, there is no way to
    // tell which volume is newer.
    let older = make("4M", 300);
    let newer = make("3M", 0);
    write(0, 64 << 10);
    write(BYTES - (128 << 10), 4096);
    for arguments in [&["salvage", device, saved][..], &["check", "--repair", device]] {
        let said = bench.fail(8, arguments);
        assert!(said.contains(&older) && said.contains(&newer), "{said}");
    }
    for (id, name, count) in [(older, "4M", 301), (newer, "3M", 1)] {
        bench.succeed(&["salvage", device, saved, "--volume", &id]);
        let names = crate::bench::names(Path::new(saved));
        assert!(names.len() == count && names.iter().any(|found| found == name), "{names:?}");
        fs::remove_dir_all(saved).unwrap();
    }
}

/// The error said that no zone accepts the log, and advised to salvage the volume.
#[test]
fn a_read_only_device_is_refused_for_writing() {
    let bench = bench_or_skip!();
    let volume = bench.volume();
    let disk = match Loop::new(&volume, &["--read-only"]) {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let device = disk.device.to_str().unwrap();
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    for arguments in [&["mount", device, directory][..], &["mkfs", device, "--force"], &["gc", device]] {
        let said = bench.fail(1, arguments);
        assert!(said.contains("the device is read-only; make it writable"), "{said}");
    }
    bench.succeed(&["mount", device, directory, "-o", "ro"]);
    crate::Mounted { bench: &bench }.umount();
}

/// `list` and `probe` find a volume on a disk whether it is mounted or not, and `probe` refuses other contents.
#[test]
fn volumes_on_disks_are_listed_and_probed() {
    let bench = bench_or_skip!();
    let backing = bench.volume().with_file_name("disk");
    File::create(&backing).unwrap().set_len(128 << 20).unwrap();
    let disk = match Loop::new(&backing, &[]) {
        Ok(disk) => disk,
        Err(reason) => return crate::skip(&reason),
    };
    let device = disk.device.to_str().unwrap();
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    let row = || {
        let all: serde_json::Value = serde_json::from_str(&bench.succeed(&["list", "--json"])).unwrap();
        all.as_array().unwrap().iter().find(|row| row["path"] == device).cloned()
    };
    assert_eq!(row(), None);
    bench.fail(2, &["probe", device]);
    bench.succeed(&["mkfs", device, "--label", "my disk"]);
    let unmounted = row().unwrap();
    assert_eq!((&unmounted["label"], &unmounted["mounted_on"]), (&"my disk".into(), &serde_json::json!([])));
    let probed = bench.succeed(&["probe", device]);
    let id = unmounted["id"].as_str().unwrap();
    for line in ["ID_FS_TYPE=polder", "ID_FS_LABEL_ENC=my\\x20disk", &format!("ID_FS_UUID={id}")] {
        assert!(probed.lines().any(|found| found == line), "{line}: {probed}");
    }
    bench.succeed(&["mount", device, directory, "-o", "ro"]);
    let mounted = crate::Mounted { bench: &bench };
    let listed = row().unwrap();
    assert_eq!(listed["id"], unmounted["id"]);
    assert_eq!(
        (&listed["mounted_on"], &listed["read_only"]),
        (&serde_json::json!([directory]), &true.into())
    );
    assert!(bench.succeed(&["list"]).contains(&format!("{directory} (read-only)")));
    assert_eq!(bench.succeed(&["probe", device]), probed);
    mounted.umount();
    // A copy of the header stays near the end.
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-E", "nodiscard", device]).status();
    if !made.is_ok_and(|status| status.success()) {
        return crate::skip("mkfs.ext4 is missing or fails");
    }
    bench.fail(2, &["probe", device]);
    assert_eq!(row(), None);
}

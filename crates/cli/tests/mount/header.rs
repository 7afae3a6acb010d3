//! Damaged copies of a volume's header and zone tables, and their repair by a mount.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::bench_or_skip;

fn put(volume: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(volume).unwrap().write_all_at(bytes, offset).unwrap();
}

/// The offset of the copy of the header near the end.
fn end_copy(volume: &Path) -> u64 {
    (fs::metadata(volume).unwrap().len() / 65536 - 2) * 65536
}

/// The state of each copy.
fn states(info: &Value) -> Vec<&str> {
    info["copies"].as_array().unwrap().iter().map(|copy| copy["state"].as_str().unwrap()).collect()
}

#[test]
fn a_mount_for_writing_repairs_copies_and_logs_it() {
    let bench = bench_or_skip!();
    let (volume, mounted) = (bench.volume(), bench.mount(&[]));
    fs::write(mounted.path("kept"), "kept").unwrap();
    mounted.umount();
    let end = end_copy(&volume);
    for (offset, name) in [
        (0, "the first copy of the header"),
        (4096, "the second copy of the header"),
        (end, "the copy of the header at the end"),
        (8192, "the first table of zone states"),
        (12288, "the second table of zone states"),
    ] {
        put(&volume, offset, &[0xa5; 4096]);
        // A reader reports the damage and changes nothing.
        let before = fs::read(&volume).unwrap();
        let mounted = bench.mount(&["-o", "ro"]);
        assert!(bench.logged().contains(&format!("{name} is lost")), "{}", bench.logged());
        assert_eq!(states(&mounted.report("info")).iter().filter(|state| **state == "damaged").count(), 1);
        let root = mounted.root();
        let output = bench.polder(&["scrub", root.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stdout));
        mounted.umount();
        assert!(fs::read(&volume).unwrap() == before);
        fs::remove_file(bench.log()).unwrap();

        let mounted = bench.mount(&[]);
        let logged = bench.logged();
        assert!(logged.contains(&format!("{name} is lost")) && logged.contains("rewritten"), "{logged}");
        assert_eq!(states(&mounted.report("info")), ["whole"; 5], "{name}");
        let said = bench.succeed(&["scrub", mounted.root().to_str().unwrap()]);
        assert!(said.ends_with(": clean\n"), "{said}");
        assert_eq!(fs::read(mounted.path("kept")).unwrap(), b"kept");
        mounted.umount();
        bench.check();
    }
}

/// Another program overwrites the start of the volume while it is in use. Verification must report this before the last
/// copy is lost.
#[test]
fn damage_to_a_mounted_volume_is_found_by_check_and_scrub() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    put(&bench.volume(), 0, &[0; 8192]);
    let root = mounted.root();
    for command in ["check", "scrub"] {
        let output = bench.polder(&[command, root.to_str().unwrap()]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("the first copy of the header is lost: its place has zeros"), "{said}");
        assert!(said.contains("the second copy of the header is lost: its place has zeros"), "{said}");
    }
    assert_eq!(states(&mounted.report("info")), ["damaged", "damaged", "whole", "whole", "whole"]);
    mounted.umount();
    let mounted = bench.mount(&[]);
    assert_eq!(states(&mounted.report("info")), ["whole"; 5]);
    mounted.umount();
    bench.check();
}

/// A mount does not overwrite a partition table at the start of the device, even if it was created by mistake.
#[test]
fn a_volume_with_a_foreign_signature_is_mounted_only_for_reading() {
    let bench = bench_or_skip!();
    let volume = bench.volume();
    put(&volume, 510, &[0x55, 0xaa]);
    let before = fs::read(&volume).unwrap();
    let directory = bench.directory();
    let named = [volume.to_str().unwrap(), directory.to_str().unwrap()];
    let said = bench.fail(1, &["mount", named[0], named[1]]);
    assert!(said.contains("contains a partition table") && said.contains("check --repair"), "{said}");
    bench.mount(&["-o", "ro"]).umount();
    assert!(fs::read(&volume).unwrap() == before);
    let said = bench.fail(8, &["check", "--repair", named[0]]);
    assert!(said.contains("contains a partition table") && said.contains("check --repair --force"), "{said}");
    assert!(fs::read(&volume).unwrap() == before);
    let said = bench.succeed(&["check", "--repair", "--force", named[0]]);
    assert!(said.contains("was written over a partition table or boot sector"), "{said}");
    bench.mount(&[]).umount();
    bench.check();
}

//! Programs that attach to a mounted volume.

use std::path::PathBuf;
use std::process::Command;

use polder::Error;

use crate::bench_or_skip;

/// The directory in which the child finds the volume and its mount.
const PLACE: &str = "POLDER_TEST_SHARED_PLACE";

#[test]
fn programs_attach_to_a_shared_mount() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["--shared"]);
    // Another process, because the daemon's socket is in the directory of this test.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shared::child_that_attaches", "--nocapture"])
        .env(PLACE, bench.volume().parent().unwrap())
        .env("POLDER_RUN_DIR", bench.sockets())
        .output()
        .unwrap();
    let said = [child.stdout, child.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(
        child.status.success() && said[0].contains("1 passed"),
        "{}{}{}",
        said[0],
        said[1],
        bench.logged()
    );
    assert!(!bench.is_mounted(), "the child has unmounted it");
    drop(mounted);
    bench.check();
}

/// The child, if this process is one.
#[test]
fn child_that_attaches() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let (path, directory) = (place.join("volume"), place.join("mnt"));
    let volume = polder::Volume::open(&path).unwrap();
    assert!(volume.is_attached());
    for round in 0..50_u8 {
        volume.write("/inside", [round; 5000]).unwrap();
        assert_eq!(std::fs::read(directory.join("inside")).unwrap(), [round; 5000]);
        std::fs::write(directory.join("outside"), [round; 7000]).unwrap();
        assert_eq!(volume.read("/outside").unwrap(), [round; 7000]);
        volume.rename("/outside", "/renamed").unwrap();
        assert!(!directory.join("outside").exists() && directory.join("renamed").exists());
    }
    // A file without a name that a program has open.
    let open = std::fs::File::open(directory.join("renamed")).unwrap();
    volume.remove_file("/renamed").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 7000);
    drop(open);
    // Commands ask the daemon, as for any mount.
    for command in ["info", "stats", "check", "sync", "umount"] {
        let done = Command::new(env!("CARGO_BIN_EXE_polder")).arg(command).arg(&directory).output().unwrap();
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert!(matches!(volume.read("/inside"), Err(Error::Disconnected)));
    drop(volume);
    let volume = polder::Volume::open(&path).unwrap();
    assert!(!volume.is_attached());
    assert_eq!(volume.read("/inside").unwrap(), [49; 5000]);
}

#[test]
fn other_mounts_are_not_shared() {
    let bench = bench_or_skip!();
    let (path, directory) = (bench.volume(), bench.directory());
    let said = bench
        .fail(2, &["mount", "--shared", "-o", "ro", path.to_str().unwrap(), directory.to_str().unwrap()]);
    assert!(said.contains("mounted read-only"), "{said}");
    let _mounted = bench.mount(&[]);
    let error = polder::Volume::open(&path).unwrap_err();
    assert!(error.to_string().contains("polder mount --shared"), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
}

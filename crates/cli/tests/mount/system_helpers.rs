//! The program under its other names, as `mkfs`, `fsck` and `mount` call it.

use std::fs;

use crate::bench_or_skip;

#[test]
fn mount_calls_its_helper() {
    let bench = bench_or_skip!();
    let (volume, directory) = (bench.volume(), bench.directory());
    let (volume, directory) = (volume.to_str().unwrap(), directory.to_str().unwrap());
    for name in ["mount.polder", "mount.fuse.polder"] {
        let done = bench.run_as(name, &[volume, directory, "-n", "-o", "rw,nofail,x-systemd.requires=/x"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mounted = crate::Mounted { bench: &bench };
        fs::write(mounted.path("file"), name).unwrap();
        mounted.umount();
    }
    for (arguments, status, complaint) in [
        (vec!["-o", "data=journal"], 1, "unknown mount option 'data=journal'"),
        (vec!["-o", "remount,ro"], 32, "no Polder volume is mounted there"),
        (vec!["-q"], 1, "'-q'"),
    ] {
        let done = bench.run_as("mount.polder", &[&[volume, directory], arguments.as_slice()].concat());
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(status), "{said}");
        assert!(said.contains(complaint) && said.lines().count() == 1, "{said}");
    }
    // The error comes from the daemon, which is another process.
    let mounted = bench.mount(&[]);
    let another = bench.volume().with_file_name("another");
    fs::create_dir(&another).unwrap();
    let done = bench.run_as("mount.polder", &[volume, another.to_str().unwrap()]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(32), "{said}");
    assert!(said.contains("in use") && said.lines().count() == 1, "{said}");
    mounted.umount();
    let fake = bench.run_as("mount.polder", &["-f", "-s", volume, directory, "-o", "ro,data=journal"]);
    assert!(fake.status.success() && fake.stderr.is_empty() && !bench.is_mounted());
}

/// `umount DIR && poweroff`, or removing the disk after `umount`, lost the last writes: `umount` returned when the kernel had
/// detached the mount, while the daemon was still writing.
#[test]
fn umount_waits_through_its_helper() {
    let bench = bench_or_skip!();
    let directory = bench.directory();
    let directory = directory.to_str().unwrap();
    for (name, asked) in
        [("umount.polder", &["-n", "-v"][..]), ("umount.fuse.polder", &["-t", "fuse.polder"])]
    {
        let mounted = bench.mount(&[]);
        let daemon = mounted.daemon();
        fs::write(mounted.path("file"), vec![7; 8 << 20]).unwrap();
        let done = bench.run_as(name, &[&[directory], asked].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(!bench.is_mounted() && daemon.has_ended());
        let check = bench.run_as("fsck.polder", &["-p", bench.volume().to_str().unwrap()]);
        assert_eq!(check.status.code(), Some(0), "the volume was closed");
    }
    let status = |arguments: &[&str]| {
        let done = bench.run_as("umount.polder", arguments);
        let said = String::from_utf8(done.stderr).unwrap();
        (done.status.code().unwrap(), said)
    };
    let (code, said) = status(&[directory]);
    assert!(code == 32 && said.contains("no Polder volume is mounted there"), "{said}");
    assert_eq!(status(&[directory, "-q"]).0, 1);
    let mounted = bench.mount(&[]);
    let open = fs::File::open(mounted.path("file")).unwrap();
    let (code, said) = status(&[directory]);
    assert!(code == 32 && said.contains("in use") && said.lines().count() == 1, "{said}");
    let (code, said) = status(&[directory, "-l"]);
    assert!(code == 0 && said.contains("the mount ends when no program uses it"), "{said}");
    assert!(!bench.is_mounted());
    drop(open);
}

#[test]
fn fsck_reports_its_findings_by_its_status() {
    let bench = bench_or_skip!();
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    let status = |arguments: &[&str]| bench.run_as("fsck.polder", arguments).status.code().unwrap();
    assert_eq!(status(&["-a", volume]), 0);
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), "kept").unwrap();
    bench.succeed(&["sync", mounted.root().to_str().unwrap()]);
    assert_eq!(status(&["-f", "-y", volume]), 8, "in use");
    mounted.daemon().kill();
    drop(mounted);

    let before = fs::read(volume).unwrap();
    assert_eq!(status(&["-n", volume]), 0);
    assert!(fs::read(volume).unwrap() == before, "-n changes nothing");
    let copy = bench.volume().with_file_name("copy");
    let copy = copy.to_str().unwrap();
    fs::copy(volume, copy).unwrap();
    assert_eq!(status(&["-p", volume]), 1, "the volume was not closed");
    assert_eq!(status(&["-p", volume]), 0, "the volume is closed now");
    assert_eq!(status(&["-y", "-f", copy]), 1);
    assert_eq!(status(&[volume, copy]), 0);

    let nothing = bench.volume().with_file_name("nothing");
    assert_eq!(status(&["-a", nothing.to_str().unwrap()]), 8);
    assert_eq!(status(&["-a", volume, nothing.to_str().unwrap()]), 8);
    assert_eq!(status(&["-n", "-y", volume]), 16);
}

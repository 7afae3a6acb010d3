//! Commands beside a program that uses a volume by the library.

use crate::bench::mounts;
use crate::bench_or_skip;

/// `polder umount` detached such a mount, waited for a daemon that did not exist, and advised to kill the program.
#[test]
fn commands_leave_the_mount_of_a_program_alone() {
    let bench = bench_or_skip!();
    let volume = polder::Volume::open(bench.volume()).unwrap();
    let mut mount = volume.mount(bench.directory()).unwrap();
    let (path, directory) = (bench.volume(), mount.directory().to_owned());
    let (path, directory) = (path.to_str().unwrap(), directory.to_str().unwrap());
    for arguments in [
        &["info", directory][..],
        &["stats", directory],
        &["sync", directory],
        &["umount", directory],
        &["umount", "--lazy", directory],
        &["mount", path, directory],
    ] {
        let said = bench.fail(1, arguments);
        assert!(said.contains(&format!("or with `umount {directory}`")), "{arguments:?}: {said}");
    }
    for arguments in [&["info", path][..], &["ls", path], &["scrub", path], &["mkfs", "--force", path]] {
        let status = if arguments[0] == "scrub" { 8 } else { 1 };
        let said = bench.fail(status, arguments);
        assert!(said.contains("is in use by another process (process "), "{arguments:?}: {said}");
    }
    assert!(mounts().contains("fuse.polder-library"));
    std::fs::write(mount.directory().join("file"), "text").unwrap();
    mount.unmount().unwrap();
    volume.close().unwrap();
    assert_eq!(bench.succeed(&["cat", path, "/file"]), "text");
    assert!(bench.succeed(&["check", path]).contains("clean"));
}

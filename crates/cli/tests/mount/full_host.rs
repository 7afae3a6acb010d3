//! A volume in a file, in a host file system that is full. The volume is full then, and not broken.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Bench, Mounted, bench_or_skip};

/// The size of the host file system, which is smaller than the volume.
const HOST_BYTES: u64 = 64 << 20;

/// A small file system mounted over the directory of the bench's volume, with a volume of 256 MiB.
struct Host(PathBuf);

impl Host {
    fn new(bench: &Bench) -> Result<Host, String> {
        let place = bench.volume().with_file_name("host");
        fs::create_dir(&place).unwrap();
        let size = format!("size={HOST_BYTES}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&place).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            return Err("no memory file system can be mounted".to_owned());
        }
        let host = Host(place);
        fs::remove_file(bench.volume()).unwrap();
        std::os::unix::fs::symlink(host.0.join("volume"), bench.volume()).unwrap();
        bench.succeed(&["mkfs", host.0.join("volume").to_str().unwrap(), "--size", "256M"]);
        Ok(host)
    }

    /// Fills the host with another file.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        assert_eq!(fill(&path), ErrorKind::StorageFull);
        path
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// Writes to a new file until a write is refused. Returns the error.
fn fill(path: &Path) -> ErrorKind {
    let mut file = File::create(path).unwrap();
    let written = (0..).map(|_| file.write_all(&[7; 64 << 10])).find_map(Result::err).unwrap().kind();
    match file.sync_all() {
        Ok(()) => written,
        Err(error) => error.kind(),
    }
}

fn is_shut_down(mounted: &Mounted<'_>) -> bool {
    !mounted.report("info")["shutdown_reason"].is_null()
}

/// When the host was full, programs got an input/output error, as from a broken disk. Now they get ENOSPC, and deletions
/// free space at once.
#[test]
fn a_volume_whose_host_is_full_is_full() {
    let bench = bench_or_skip!();
    let host = match Host::new(&bench) {
        Ok(host) => host,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mounted = bench.mount(&[]);
    for round in 0..3 {
        let path = mounted.path("large");
        assert_eq!(fill(&path), ErrorKind::StorageFull, "round {round}");
        assert!(fs::metadata(&path).unwrap().len() > 20 << 20, "round {round}");
        for number in 0..200 {
            fs::write(mounted.path(&format!("small{number}")), [1; 700]).unwrap();
        }
        fs::remove_file(&path).unwrap();
    }
    assert!(!is_shut_down(&mounted));
    mounted.umount();
    bench.check();
    drop(host);
}

/// No message said that the host was full: `df` and `info` showed the space that the volume would have.
#[test]
fn a_full_host_is_reported() {
    let bench = bench_or_skip!();
    let host = match Host::new(&bench) {
        Ok(host) => host,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mounted = bench.mount(&[]);
    let available = || {
        let space = rustix::fs::statvfs(mounted.root()).unwrap();
        space.f_bavail * space.f_frsize
    };
    assert!(available() <= HOST_BYTES, "the host has no more: {}", available());
    let filler = host.fill();
    let left = available();
    assert!(left < HOST_BYTES / 4, "{left}");
    assert_eq!(fill(&mounted.path("large")), ErrorKind::StorageFull);
    let info = mounted.report("info");
    let number = |name: &str| info[name].as_u64().unwrap();
    assert!(number("host_available_bytes") < number("host_needed_bytes"), "{info}");
    assert!(number("available_bytes") <= left, "{info}");
    let root = mounted.root();
    let said = bench.succeed(&["info", root.to_str().unwrap()]);
    assert!(said.contains("the file system that contains the volume has only"), "{said}");
    let logged = bench.logged();
    assert_eq!(logged.matches("the file system that contains the volume is full").count(), 1, "{logged}");
    fs::remove_file(filler).unwrap();
    fs::remove_file(mounted.path("large")).unwrap();
    assert!(available() > left);
    assert!(fs::metadata(mounted.root()).is_ok() && !is_shut_down(&mounted));
    mounted.umount();
    drop(host);
}

/// Another program filled the host. When the log or metadata needed the next zone, the volume was shut down until it was
/// mounted again. Now writes get ENOSPC until the host has space.
#[test]
fn a_volume_is_writable_again_when_its_host_has_space() {
    let bench = bench_or_skip!();
    let host = match Host::new(&bench) {
        Ok(host) => host,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("before"), "kept").unwrap();
    let filler = host.fill();
    let make = |number: u32| fs::write(mounted.path(&format!("small{number}")), [1; 700]);
    let refused = (0..50_000).find_map(|number| make(number).err().map(|error| (number, error.kind())));
    let (made, kind) = refused.expect("the log gets full");
    assert_eq!(kind, ErrorKind::StorageFull);
    assert!(made > 100, "the space that the volume has is used: {made}");
    assert!(!is_shut_down(&mounted));
    fs::remove_file(filler).unwrap();
    for number in made..made + 10_000 {
        make(number).unwrap();
    }
    File::open(mounted.path("before")).unwrap().sync_all().unwrap();
    mounted.umount();
    bench.check();
    let mounted = bench.mount(&[]);
    assert_eq!(fs::read_to_string(mounted.path("before")).unwrap(), "kept");
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count() as u32, made + 10_001);
    mounted.umount();
    drop(host);
}

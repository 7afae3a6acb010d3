//! A volume in a file, in a file system that is full: a full volume, and not a broken one.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Bench, Mounted, bench_or_skip};

/// The volume may grow to more than that.
const HOST_BYTES: u64 = 64 << 20;

/// A small file system over the place where the bench has its volume, and a volume of 256 MiB there.
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

    /// Somebody else takes all of the room that is left.
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

/// Writes to a new file until that is refused, and why.
fn fill(path: &Path) -> ErrorKind {
    let mut file = File::create(path).unwrap();
    let written = (0..).map(|_| file.write_all(&[7; 64 << 10])).find_map(Result::err).unwrap().kind();
    match file.sync_all() {
        Ok(()) => written,
        Err(error) => error.kind(),
    }
}

fn is_latched(mounted: &Mounted<'_>) -> bool {
    !mounted.told("info")["latched"].is_null()
}

/// When the host ran full, programs were told of an input/output error, as of a broken disk. Now it is a full disk, and
/// what is deleted makes room at once.
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
    assert!(!is_latched(&mounted));
    mounted.umount();
    bench.check();
    drop(host);
}

/// Nothing said that it was the host that was full: `df` and `info` showed the room that the volume would have.
#[test]
fn a_full_host_is_named() {
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
    let info = mounted.told("info");
    let number = |name: &str| info[name].as_u64().unwrap();
    assert!(number("host_available_bytes") < number("host_needed_bytes"), "{info}");
    assert!(number("available_bytes") <= left, "{info}");
    let root = mounted.root();
    let said = bench.succeed(&["info", root.to_str().unwrap()]);
    assert!(said.contains("the file system that holds the volume has"), "{said}");
    let logged = bench.logged();
    assert_eq!(logged.matches("the file system that holds the volume is full").count(), 1, "{logged}");
    fs::remove_file(filler).unwrap();
    fs::remove_file(mounted.path("large")).unwrap();
    assert!(available() > left);
    assert!(fs::metadata(mounted.root()).is_ok() && !is_latched(&mounted));
    mounted.umount();
    drop(host);
}

/// Somebody else filled the host, and when the log or metadata needed their next zone the volume was read-only until it
/// was mounted again. Now there is no space until the host has some.
#[test]
fn a_volume_goes_on_when_its_host_has_room_again() {
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
    let (made, kind) = refused.expect("the log has an end");
    assert_eq!(kind, ErrorKind::StorageFull);
    assert!(made > 100, "what it has is used: {made}");
    assert!(!is_latched(&mounted));
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

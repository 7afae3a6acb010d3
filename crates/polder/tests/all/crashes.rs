//! A process that is killed while it uses a volume.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use polder::VolumeOptions;

use crate::bench::Bench;

/// The variable that tells the child which volume to use.
const VOLUME: &str = "POLDER_TEST_VOLUME";
/// What the child says when everything is durable that must survive.
const SYNCED: &str = "synced";
const RECORD: usize = 3000;

/// The child, if this process is one: this test program again, with [`VOLUME`] set.
#[test]
fn child() {
    let Some(path) = std::env::var_os(VOLUME) else { return };
    // Nothing becomes durable by itself.
    let options = VolumeOptions::new().commit_interval(std::time::Duration::from_secs(3600));
    let volume = options.open(path).unwrap();
    volume.create_dir_all("/kept/dir").unwrap();
    let log = volume.options().append(true).create(true).open("/kept/log").unwrap();
    for number in 0..100u8 {
        log.append(&[number; RECORD]).unwrap();
    }
    volume.rename("/kept/log", "/kept/dir/log").unwrap();
    volume.set_xattr("/kept/dir/log", "user.count", b"100").unwrap();
    volume.write("/before", b"old").unwrap();
    log.sync_data().unwrap();
    volume.write("/before", b"new").unwrap();
    volume.remove_dir_all("/kept").unwrap();
    println!("\n{SYNCED}");
    // Until this process is killed.
    loop {
        std::thread::park();
    }
}

/// Kills the child, also if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a child and kills it once it has synced.
fn run_and_kill(path: &Path) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::child", "--nocapture"])
        .env(VOLUME, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let said = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let is_synced = said.map_while(Result::ok).any(|line| line == SYNCED);
    assert!(is_synced, "the child has ended: {:?}", child.0.wait());
    let refused = VolumeOptions::new().attach(false).open(path).err().map(|error| error.kind());
    assert_eq!(refused, Some(std::io::ErrorKind::ResourceBusy), "another process has it open");
    drop(child);
}

#[test]
fn what_was_synced_survives_a_kill() {
    let bench = Bench::new();
    bench.create().open().unwrap().close().unwrap();
    run_and_kill(&bench.path());
    let volume = bench.open();
    let log = volume.read("/kept/dir/log").unwrap();
    assert_eq!(log.len(), 100 * RECORD);
    assert!(log.chunks(RECORD).zip(0..100u8).all(|(record, number)| record == [number; RECORD]));
    assert_eq!(volume.get_xattr("/kept/dir/log", "user.count").unwrap(), b"100");
    assert!(!volume.exists("/kept/log").unwrap());
    let before = volume.read("/before").unwrap();
    assert!([&b"old"[..], b"", b"new"].contains(&before.as_slice()), "{before:?}");

    // The volume can be used and closed as if nothing had happened.
    volume.remove_dir_all("/kept").unwrap();
    volume.write("/after", b"text").unwrap();
    volume.close().unwrap();
    assert_eq!(bench.open().read("/after").unwrap(), b"text");
}

#[test]
fn a_volume_that_was_not_closed_can_be_read_without_being_recovered() {
    let bench = Bench::new();
    bench.create().open().unwrap().close().unwrap();
    run_and_kill(&bench.path());
    let image = std::fs::read(bench.path()).unwrap();
    let volume = VolumeOptions::new().read_only(true).open(bench.path()).unwrap();
    assert_eq!(volume.metadata("/kept/dir/log").unwrap().len(), 100 * RECORD as u64);
    drop(volume);
    assert!(std::fs::read(bench.path()).unwrap() == image, "nothing was written");
}

//! Processes that are killed or stopped: owners and clients of a volume.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use polder::{Error, FsError, LockMode, LockRange, Volume, VolumeOptions};

use crate::bench::{Bench, cause, file, until};

const VOLUME: &str = "POLDER_TEST_DEATH_VOLUME";
const READY: &str = "ready";
const RECORD: usize = 3000;

/// This test program again, as one of the children below.
struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a child, and waits until it says that it is ready.
    fn start(test: &str, volume: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(VOLUME, volume)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Process { child, said };
        process.wait_for(READY);
        process
    }

    fn wait_for(&mut self, line: &str) {
        let is_said = self.said.by_ref().map_while(Result::ok).any(|said| said == line);
        assert!(is_said, "the child has ended: {:?}", self.child.wait());
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say_ready() {
    println!("\n{READY}");
}

#[test]
fn child_that_owns() {
    let Some(path) = std::env::var_os(VOLUME) else { return };
    let volume = VolumeOptions::new().attach(false).open(path).unwrap();
    say_ready();
    loop {
        // It works as well.
        volume.write("/of-owner", vec![3; 100_000]).unwrap();
    }
}

/// Changes of each kind, until it is killed.
#[test]
fn child_that_is_attached() {
    let Some(path) = std::env::var_os(VOLUME) else { return };
    let volume = Volume::open(path).unwrap();
    assert!(volume.is_attached());
    let lock = file(&volume, "/lock");
    lock.lock().unwrap();
    lock.lock_range(LockRange::WHOLE, LockMode::Exclusive).unwrap();
    let unlinked = file(&volume, "/unlinked");
    unlinked.append(&vec![5; 4 << 20]).unwrap();
    volume.remove_file("/unlinked").unwrap();
    say_ready();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let volume = &volume;
            scope.spawn(move || while change(volume, thread).is_ok() {});
        }
    });
}

/// Fails when the owner has ended.
fn change(volume: &Volume, thread: u8) -> polder::Result<()> {
    let path = format!("/child.{thread}");
    volume.write(&path, vec![thread; 3 << 20])?;
    volume.rename(&path, format!("/moved.{thread}"))?;
    let log = volume.options().append(true).create(true).open("/log")?;
    log.append(&[thread; RECORD])?;
    log.sync_data()
}

#[test]
fn an_owner_that_is_killed_ends_every_call_of_its_clients() {
    let bench = Bench::new();
    bench.create().open().unwrap().close().unwrap();
    for round in 0..12 {
        let owner = Process::start("deaths::child_that_owns", &bench.path());
        let volume = bench.open();
        assert!(volume.is_attached());
        let held = file(&volume, "/held");
        held.lock().unwrap();
        let synced = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let wanted = file(&volume, "/held");
            let waiting = scope.spawn(move || wanted.lock());
            let log = file(&volume, &format!("/log.{round}"));
            let synced = &synced;
            let appending = scope.spawn(move || {
                loop {
                    let done = log.append(&[round; RECORD]).and_then(|at| log.sync_data().map(|()| at));
                    match done {
                        Ok(at) => synced.store(at + RECORD as u64, Ordering::SeqCst),
                        Err(error) => return error,
                    }
                }
            });
            let reading = scope.spawn(|| {
                loop {
                    let done =
                        volume.write("/contents", vec![1; 2 << 20]).and_then(|()| volume.read("/contents"));
                    if let Err(error) = done {
                        return error;
                    }
                }
            });
            until(|| synced.load(Ordering::SeqCst) >= u64::from(round % 4 + 1) * RECORD as u64);
            drop(owner);
            assert!(matches!(appending.join().unwrap(), Error::Disconnected));
            assert!(matches!(reading.join().unwrap(), Error::Disconnected));
            assert!(matches!(waiting.join().unwrap(), Err(Error::Disconnected)));
        });
        assert!(matches!(volume.statvfs(), Err(Error::Disconnected)));
        assert!(matches!(volume.close(), Err(Error::Disconnected)));
        // What the client has synced is there, and the client can become the owner.
        let again = bench.open();
        assert!(!again.is_attached());
        let log = again.read(format!("/log.{round}")).unwrap();
        assert!(log.len() as u64 >= synced.into_inner());
        assert!(log.iter().all(|byte| *byte == round));
        again.close().unwrap();
    }
}

#[test]
fn a_client_that_is_killed_loses_its_own_files_and_locks_alone() {
    let bench = Bench::new();
    let owner = bench.create().size(512 << 20).open().unwrap();
    let other = bench.open();
    for round in 0..12 {
        let client = Process::start("deaths::child_that_is_attached", &bench.path());
        let lock = file(&owner, "/lock");
        assert_eq!(cause(lock.try_lock()), FsError::WouldBlock);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let lock = file(&other, "/lock");
                lock.lock().unwrap();
                lock.lock_range(LockRange::WHOLE, LockMode::Shared).unwrap();
            });
            for number in 0..round * 3 {
                other.write(format!("/of-other.{number}"), vec![number; 50_000]).unwrap();
            }
            drop(client);
            waiting.join().unwrap();
        });
        lock.try_lock().unwrap();
        for number in 0..round * 3 {
            assert_eq!(other.read(format!("/of-other.{number}")).unwrap(), vec![number; 50_000]);
        }
        let log = owner.read("/log").unwrap_or_default();
        assert!(log.len().is_multiple_of(RECORD), "an append is there or not");
        assert!(log.chunks(RECORD).all(|record| record.iter().all(|byte| *byte == record[0])));
        owner.remove_dir_all("/").err().unwrap();
        for entry in owner.read_dir("/").unwrap() {
            owner.remove_file(entry.unwrap().path()).unwrap();
        }
    }
    // The files without names of all these clients were deleted.
    drop(other);
    owner.sync().unwrap();
    until(|| owner.stats().unwrap().stored.live_bytes < 4 << 20);
    owner.close().unwrap();
}

/// A client that is stopped at any moment holds its locks, as any process does, and nothing else.
#[test]
fn a_client_that_is_stopped_blocks_nobody() {
    let bench = Bench::new();
    let owner = bench.create().size(256 << 20).open().unwrap();
    let other = bench.open();
    // Stopped in a later call each time.
    for calls in [0, 1, 3] {
        let client = Process::start("deaths::child_that_is_attached", &bench.path());
        (0..calls).for_each(|_| drop(owner.read("/log")));
        client.signal(rustix::process::Signal::STOP);
        for number in 0..100 {
            other.write(format!("/{number}"), vec![number; 10_000]).unwrap();
            owner.sync().unwrap();
            assert_eq!(owner.read(format!("/{number}")).unwrap(), vec![number; 10_000]);
        }
        assert_eq!(cause(file(&owner, "/lock").try_lock()), FsError::WouldBlock);
    }
    let client = Process::start("deaths::child_that_is_attached", &bench.path());
    client.signal(rustix::process::Signal::STOP);
    owner.close().unwrap();
    // It finds out when it goes on.
    client.signal(rustix::process::Signal::CONT);
    assert!(!bench.open().is_attached());
}

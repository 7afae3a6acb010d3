//! Locks: ranges, owners, handles, and requests that wait.

use fs::{FsError, Handle, InodeNo, LockMode, LockOwner, LockRange, OnConflict, RecordLock};
use rt::schedule::{self, Body};

use super::{Meter, compare, volume};

const ROOT: InodeNo = InodeNo::ROOT;

fn record(owner: LockOwner, start: u64, end: u64, mode: LockMode) -> RecordLock {
    RecordLock { owner, range: LockRange::new(start, end).unwrap(), mode }
}

#[test]
fn ranges_of_one_owner() {
    compare("lock ranges of one owner", 1000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        let owner = LockOwner::Process(1);
        meter.measure("lock", || {
            for n in (0..number).rev() {
                let lock = record(owner, 4 * n, 4 * n + 2, LockMode::Exclusive);
                volume.fs.lock_range(&file, &lock, OnConflict::Refuse).unwrap();
            }
        });
        meter.measure("ask", || {
            for n in 0..number {
                let lock = record(LockOwner::Process(2), 4 * n, 4 * n + 2, LockMode::Shared);
                assert!(volume.fs.conflicting_lock(&file, &lock).is_some());
            }
        });
        meter.measure("unlock", || {
            for n in 0..number {
                let range = LockRange::new(4 * n, 4 * n + 1).unwrap();
                volume.fs.unlock_range(&file, owner, range).unwrap();
            }
        });
        meter
    });
}

#[test]
fn owners_of_one_file() {
    for (of, mode) in [("owners, exclusive", LockMode::Exclusive), ("owners, shared", LockMode::Shared)] {
        compare(of, 3000, |number| {
            let volume = volume();
            let mut meter = Meter::new(&volume.device);
            let file = volume.file(ROOT, "f");
            // Shared ranges all overlap each other. Exclusive ones do not overlap.
            let of_owner = |n| match mode {
                LockMode::Exclusive => record(LockOwner::Process(n), 8 * n, 8 * n + 6, mode),
                LockMode::Shared => record(LockOwner::Process(n), n, 2 * number, mode),
            };
            meter.measure("lock", || {
                for n in 0..number {
                    volume.fs.lock_range(&file, &of_owner(n), OnConflict::Refuse).unwrap();
                }
            });
            meter.measure("lock what another has", || {
                for n in 0..number {
                    let lock =
                        RecordLock { owner: LockOwner::Handle, mode: LockMode::Exclusive, ..of_owner(n) };
                    let locked = volume.fs.lock_range(&file, &lock, OnConflict::Refuse);
                    assert_eq!(locked, Err(FsError::WouldBlock));
                }
            });
            meter.measure("unlock", || {
                for n in 0..number / 2 {
                    let lock = of_owner(n);
                    volume.fs.unlock_range(&file, lock.owner, lock.range).unwrap();
                }
            });
            meter.measure("close", || (number / 2..number).for_each(|n| volume.fs.close_locks(&file, n)));
            meter
        });
    }
}

#[test]
fn handles_with_locks() {
    compare("handles with locks", 3000, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        let handles: Vec<Handle> = (0..number).map(|_| volume.open(file.inode())).collect();
        meter.measure("lock the file", || {
            for handle in &handles {
                volume.fs.lock_file(handle, LockMode::Shared, OnConflict::Refuse).unwrap();
            }
        });
        meter.measure("lock a range", || {
            for (n, handle) in handles.iter().enumerate() {
                let n = n as u64;
                let own = record(LockOwner::Handle, 8 * n, 8 * n + 2, LockMode::Exclusive);
                volume.fs.lock_range(handle, &own, OnConflict::Refuse).unwrap();
                // One process through many handles.
                let of_process = record(LockOwner::Process(1), 8 * n + 4, 8 * n + 6, LockMode::Exclusive);
                if n < 1000 {
                    volume.fs.lock_range(handle, &of_process, OnConflict::Refuse).unwrap();
                }
            }
        });
        meter.measure("close", || drop(handles));
        volume.fs.lock_file(&file, LockMode::Exclusive, OnConflict::Refuse).unwrap();
        meter
    });
}

/// All request an exclusive lock and get it one after the other.
#[test]
fn requests_that_wait() {
    compare("requests that wait", 32, |number| {
        let volume = volume();
        let mut meter = Meter::new(&volume.device);
        let file = volume.file(ROOT, "f");
        let handles: Vec<Handle> = (0..number).map(|_| volume.open(file.inode())).collect();
        volume.fs.lock_file(&file, LockMode::Exclusive, OnConflict::Refuse).unwrap();
        let wait = |handle: &Handle| {
            volume.fs.lock_file(handle, LockMode::Exclusive, OnConflict::Wait).unwrap();
            volume.fs.unlock_file(handle);
        };
        let mut bodies: Vec<Body<'_, ()>> = Vec::new();
        for handle in &handles {
            bodies.push(("waits".to_owned(), Box::new(move || wait(handle))));
        }
        bodies.push(("holds".to_owned(), Box::new(|| volume.fs.unlock_file(&file))));
        meter.count("turns of threads", schedule::run(1, bodies).handovers);
        meter
    });
}

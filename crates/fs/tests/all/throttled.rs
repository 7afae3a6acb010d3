//! Other programs, while a writer is throttled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use emulated::Spec;
use fs::{Fs, Handle, InodeNo};
use rt::random::Rng;
use rt::sync::Mutex;

use crate::support::{Volume, pattern};
use crate::watched::{Doing, Watched, watched_volume};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: usize = 4096;
/// The length of one overwrite.
const PIECE: usize = 16 * BLOCK;
/// Blocks of the file that is read.
const READ_BLOCKS: usize = 64;
/// How often a command of the writer's GC work is held up.
const HELD: u64 = 100;
/// Long enough for any operation on an idle volume, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A volume so full that a writer has to do GC work, and a file that is only read.
struct Bench {
    watched: Arc<Watched>,
    volume: Volume,
    churned: Vec<Handle>,
    read: Handle,
}

impl Bench {
    fn new() -> Bench {
        let (watched, volume) = watched_volume(Spec::new(4096, 64, 256), 16 << 20);
        let read = volume.file(ROOT, "read");
        volume.write(&read, 0, &pattern(1, READ_BLOCKS * BLOCK));
        let count = volume.fs.space().available as usize / PIECE * 81 / 100;
        let file = |number: usize| {
            let handle = volume.file(ROOT, &format!("churned{number}"));
            volume.write(&handle, 0, &[1; PIECE]);
            handle
        };
        let churned = (0..count).map(file).collect();
        Bench { watched, volume, churned, read }
    }

    /// Overwrites files until `is_enough`.
    fn churn(&self, is_enough: impl Fn() -> bool) {
        let mut rng = Rng::with_seed(1);
        for round in 0..8 * self.churned.len() {
            if is_enough() {
                return;
            }
            let file = &self.churned[rng.usize(..self.churned.len())];
            self.volume.write(file, 0, &[round as u8; PIECE]);
        }
        panic!("not enough was moved");
    }

    fn moved(&self) -> u64 {
        self.volume.fs.extents().collector().stats().blocks_moved
    }
}

/// Reads a file, creates others and syncs them, on request.
struct Other {
    fs: Arc<Fs>,
    read: Handle,
    synced: Handle,
    rounds: AtomicU64,
}

impl Other {
    fn use_volume(&self) {
        let round = self.rounds.fetch_add(1, Ordering::SeqCst);
        let first = round as usize % (READ_BLOCKS - 2);
        let mut found = vec![0; 2 * BLOCK];
        assert_eq!(self.fs.read(&self.read, (first * BLOCK) as u64, &mut found), Ok(found.len()));
        assert!(found == pattern(1, READ_BLOCKS * BLOCK)[first * BLOCK..][..2 * BLOCK]);
        self.fs.write(&self.synced, 0, &round.to_le_bytes()).unwrap();
        let written = self.fs.store().last_lsn();
        self.fs.fsync(&self.synced, false).unwrap();
        assert!(self.fs.store().durable_lsn() >= written);
    }
}

/// A command for which a throttled writer waits does not finish until another program has read a file and has synced
/// a write to another one.
#[test]
fn reads_and_syncs_of_other_files_do_not_wait_for_a_throttled_writer() {
    let bench = Bench::new();
    let before = bench.moved();
    bench.churn(|| bench.moved() > before);
    let fs = Arc::clone(&bench.volume.fs);
    let read = bench.volume.open(bench.read.inode());
    let other = Other { fs, read, synced: bench.volume.file(ROOT, "synced"), rounds: AtomicU64::new(0) };
    let (ask, asked) = mpsc::channel::<Doing>();
    let (done, is_done) = mpsc::channel();
    let thread = rt::thread::spawn("other", move || {
        for doing in asked {
            other.use_volume();
            done.send(doing).unwrap();
        }
    });
    let held: Arc<Mutex<BTreeMap<Doing, u64>>> = Arc::default();
    let waits = Mutex::new((ask, is_done));
    let counts = Arc::clone(&held);
    *bench.watched.meanwhile.lock() = Some(Arc::new(move |doing| {
        let (ask, is_done) = &*waits.lock();
        ask.send(doing).unwrap();
        let answer = is_done.recv_timeout(PATIENCE);
        assert_eq!(answer, Ok(doing), "others wait for what a writer has to move");
        *counts.lock().entry(doing).or_default() += 1;
    }));
    let times = |doing| held.lock().get(&doing).copied().unwrap_or(0);
    bench.churn(|| times(Doing::Moving) >= HELD);
    *bench.watched.meanwhile.lock() = None;
    thread.unwrap().join().unwrap();
    let all = [Doing::Reading, Doing::Appending, Doing::Moving, Doing::Changing];
    assert!(all.into_iter().all(|doing| times(doing) > 0), "{:?}", held.lock());
    bench.volume.settle_and_check();
}

//! Record locks against a model of every byte; threads that exclude each other, wait in cycles, and drop locks for
//! which others wait, in many orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rt::random::Rng;
use rt::schedule::{self, Body};
use rt::sync::{Condvar, Mutex};

use super::*;
use crate::tests::volume;
use crate::{Caller, Fs, InodeNo, OpenFlags};

use LockMode::{Exclusive, Shared};
use LockOwner::Process;
use OnConflict::{Refuse, Wait};

const BOTH: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

fn create(fs: &Fs, name: &str) -> Handle {
    fs.create(&Caller::root(), InodeNo::ROOT, name.as_bytes(), 0o600, BOTH, true).unwrap().1
}

fn open(fs: &Fs, handle: &Handle) -> Handle {
    fs.open(&Caller::root(), handle.inode(), BOTH).unwrap()
}

fn record(owner: LockOwner, start: u64, end: u64, mode: LockMode) -> RecordLock {
    RecordLock { owner, range: LockRange::new(start, end).unwrap(), mode }
}

fn body<'a, T>(name: &str, work: impl FnOnce() -> T + Send + 'a) -> Body<'a, T> {
    (name.to_owned(), Box::new(work))
}

/// Bytes that the model distinguishes. The last one stands for all from there to infinity.
const CELLS: usize = 13;

type Cells = [Option<LockMode>; CELLS];

fn end_of(cell: usize) -> u64 {
    if cell == CELLS { LockRange::INFINITY } else { cell as u64 }
}

/// The runs of one mode in the locks of one owner.
fn runs(cells: &Cells) -> Vec<(LockRange, LockMode)> {
    let mut runs: Vec<(LockRange, LockMode)> = Vec::new();
    for (cell, held) in cells.iter().enumerate() {
        let Some(held) = *held else { continue };
        match runs.last_mut() {
            Some((range, mode)) if *mode == held && range.end == cell as u64 => range.end = end_of(cell + 1),
            _ => runs.push((LockRange { start: cell as u64, end: end_of(cell + 1) }, held)),
        }
    }
    runs
}

/// For every state of an owner and every change of a range, the result is as expected.
#[test]
fn every_change_of_every_small_state_is_right() {
    const SMALL: usize = 5;
    const MODES: [Option<LockMode>; 3] = [None, Some(Shared), Some(Exclusive)];
    let (_, fs) = volume();
    let file = create(&fs, "f");
    let set = |cells: &mut Cells, start: usize, end: usize, mode: Option<LockMode>| {
        cells[start..end].fill(mode);
        let range = LockRange::new(start as u64, end as u64).unwrap();
        match mode {
            None => fs.unlock_range(&file, LockOwner::Handle, range),
            Some(mode) => fs.lock_range(&file, &RecordLock { owner: LockOwner::Handle, range, mode }, Refuse),
        }
    };
    for state in 0..MODES.len().pow(SMALL as u32) {
        for (start, end) in (0..SMALL).flat_map(|start| (start + 1..=SMALL).map(move |end| (start, end))) {
            for mode in MODES {
                let mut cells = [None; CELLS];
                for cell in 0..SMALL {
                    let digit = state / MODES.len().pow(cell as u32) % MODES.len();
                    set(&mut cells, cell, cell + 1, MODES[digit]).unwrap();
                }
                set(&mut cells, start, end, mode).unwrap();
                let held: Vec<_> = match file.node().locks.get() {
                    Some(locks) => {
                        locks.records.held().into_iter().map(|(_, range, mode)| (range, mode)).collect()
                    }
                    None => Vec::new(),
                };
                assert_eq!(held, runs(&cells), "{mode:?} from {start} to {end} in state {state}");
            }
        }
    }
}

/// Three handles of one file, and five owners: two processes, and the handles.
struct Compared {
    fs: Arc<Fs>,
    handles: Vec<Handle>,
    /// Of the owners, in this order: processes 0 and 1, handles 0, 1 and 2.
    model: [Cells; 5],
    /// The handles through which the processes have acquired their locks.
    through: [Vec<usize>; 2],
    granted: u32,
    refused: u32,
}

impl Compared {
    fn owner(&self, rng: &mut Rng) -> (usize, usize, LockOwner) {
        let (handle, who) = (rng.usize(..3), rng.usize(..3));
        if who < 2 { (handle, who, Process(who as u64)) } else { (handle, 2 + handle, LockOwner::Handle) }
    }

    /// The first conflicting run of each other owner.
    fn conflicts(&self, who: usize, range: LockRange, mode: LockMode) -> Vec<RecordLock> {
        let mut found = Vec::new();
        for other in (0..5).filter(|&other| other != who) {
            let owner = if other < 2 { Process(other as u64) } else { LockOwner::Handle };
            let mut runs = runs(&self.model[other]).into_iter();
            let first = runs.find(|(run, held)| {
                run.start < range.end && range.start < run.end && (mode == Exclusive || *held == Exclusive)
            });
            found.extend(first.map(|(range, mode)| RecordLock { owner, range, mode }));
        }
        found
    }

    fn set(&mut self, who: usize, range: LockRange, mode: Option<LockMode>) {
        let end = range.end.min(CELLS as u64) as usize;
        self.model[who][range.start as usize..end].fill(mode);
        if who < 2 && self.model[who] == [None; CELLS] {
            self.through[who].clear();
        }
    }

    fn lock(&mut self, rng: &mut Rng, range: LockRange) {
        let (handle, who, owner) = self.owner(rng);
        let mode = if rng.bool() { Shared } else { Exclusive };
        let asked = RecordLock { owner, range, mode };
        let in_the_way = self.conflicts(who, range, mode);
        match self.fs.conflicting_lock(&self.handles[handle], &asked) {
            None => assert_eq!(in_the_way, []),
            Some(first) => {
                assert!(in_the_way.contains(&first), "{first:?} is none of {in_the_way:?}");
                assert!(in_the_way.iter().all(|other| first.range.start <= other.range.start));
            }
        }
        let locked = self.fs.lock_range(&self.handles[handle], &asked, Refuse);
        if !in_the_way.is_empty() {
            self.refused += 1;
            return assert_eq!(locked, Err(FsError::WouldBlock), "{in_the_way:?}");
        }
        self.granted += 1;
        assert_eq!(locked, Ok(()));
        self.set(who, range, Some(mode));
        if who < 2 {
            self.through[who].push(handle);
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        let start = rng.usize(..CELLS);
        let range = LockRange::new(start as u64, end_of(rng.usize(start + 1..=CELLS))).unwrap();
        match rng.u32(..20) {
            0 => {
                let process = rng.usize(..2);
                self.fs.close_locks(&self.handles[rng.usize(..3)], process as u64);
                self.set(process, LockRange::WHOLE, None);
            }
            1 => {
                let handle = rng.usize(..3);
                self.handles[handle] = open(&self.fs, &self.handles[handle]);
                self.set(2 + handle, LockRange::WHOLE, None);
                for process in 0..2 {
                    if self.through[process].contains(&handle) {
                        self.set(process, LockRange::WHOLE, None);
                    }
                }
            }
            2..10 => {
                let (handle, who, owner) = self.owner(rng);
                assert_eq!(self.fs.unlock_range(&self.handles[handle], owner, range), Ok(()));
                self.set(who, range, None);
            }
            _ => self.lock(rng, range),
        }
    }

    fn compare(&self) {
        let held = self.handles[0].node().locks.get().map_or(Vec::new(), |locks| locks.records.held());
        let mut seen = 0;
        for (who, cells) in self.model.iter().enumerate() {
            let owner = match who.checked_sub(2) {
                None => Owner::Process(who as u64),
                Some(handle) => Owner::Handle(self.handles[handle].locker.id()),
            };
            // A handle that has never requested a lock is no owner.
            let of_owner = held.iter().filter(|(holder, _, _)| *holder == owner);
            let spans: Vec<_> = of_owner.map(|&(_, range, mode)| (range, mode)).collect();
            assert_eq!(spans, runs(cells), "of {owner:?}");
            seen += spans.len();
        }
        assert_eq!(seen, held.len(), "an owner that is gone holds a lock: {held:?}");
    }
}

#[test]
fn record_locks_agree_with_a_model_of_every_byte() {
    let (_, fs) = volume();
    let file = create(&fs, "f");
    let (mut granted, mut refused) = (0, 0);
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        let handles = (0..3).map(|_| open(&fs, &file)).collect();
        let (model, through) = ([[None; CELLS]; 5], Default::default());
        let mut compared = Compared { fs: fs.clone(), handles, model, through, granted: 0, refused: 0 };
        for _ in 0..200 {
            compared.step(&mut rng);
            compared.compare();
        }
        granted += compared.granted;
        refused += compared.refused;
        drop(compared);
        let left = file.node().locks.get().unwrap().records.held();
        assert_eq!(left, [], "seed {seed}: every owner of a lock has a handle");
    }
    assert!(granted > 1000 && refused > 1000, "{granted} granted, {refused} refused");
}

/// A critical section for one thread at a time.
#[derive(Default)]
struct Section {
    inside: AtomicU32,
    seam: Mutex<()>,
}

impl Section {
    /// Whether another thread was in it.
    fn enter(&self) -> bool {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        (0..20).for_each(|_| drop(self.seam.lock()));
        self.inside.fetch_sub(1, Ordering::SeqCst);
        others > 0
    }
}

/// Two threads that enter again and again, each between `lock` and `unlock`. Returns how often they met.
fn meetings(lock: impl Fn(&Fs, &Handle, u64) + Sync, unlock: impl Fn(&Fs, &Handle, u64) + Sync) -> u32 {
    let (_, fs) = volume();
    let file = create(&fs, "f");
    let met = |seed| {
        let section = Section::default();
        let enter = |number: u64| {
            let handle = open(&fs, &file);
            let mut met = 0;
            for _ in 0..5 {
                lock(&fs, &handle, number);
                met += u32::from(section.enter());
                unlock(&fs, &handle, number);
            }
            met
        };
        let bodies = vec![body("one", || enter(1)), body("other", || enter(2))];
        schedule::run(seed, bodies).returned.iter().sum::<u32>()
    };
    (0..50).map(met).sum()
}

#[test]
fn two_threads_exclude_each_other() {
    assert!(meetings(|_, _, _| (), |_, _, _| ()) > 0, "without locks they meet, so this can see it");

    let whole = |fs: &Fs, handle: &Handle, _| fs.lock_file(handle, Exclusive, Wait).unwrap();
    assert_eq!(meetings(whole, |fs, handle, _| fs.unlock_file(handle)), 0);

    let convert = |fs: &Fs, handle: &Handle, _| {
        fs.lock_file(handle, Shared, Wait).unwrap();
        fs.lock_file(handle, Exclusive, Wait).unwrap();
    };
    assert_eq!(meetings(convert, |fs, handle, _| fs.lock_file(handle, Shared, Wait).unwrap()), 0);

    // The two ranges share the bytes 4 to 6.
    let range = |number: u64| if number == 1 { (0, 6) } else { (4, LockRange::INFINITY) };
    for is_process in [false, true] {
        let lock = |number: u64| {
            let owner = if is_process { Process(number) } else { LockOwner::Handle };
            record(owner, range(number).0, range(number).1, Exclusive)
        };
        let take = |fs: &Fs, handle: &Handle, number| fs.lock_range(handle, &lock(number), Wait).unwrap();
        let give = |fs: &Fs, handle: &Handle, number| {
            fs.unlock_range(handle, lock(number).owner, lock(number).range).unwrap();
        };
        assert_eq!(meetings(take, give), 0);
        let downgrade = |fs: &Fs, handle: &Handle, number| {
            give(fs, handle, number);
            let shared = RecordLock { mode: Shared, ..lock(number) };
            fs.lock_range(handle, &shared, Wait).unwrap();
            give(fs, handle, number);
        };
        assert_eq!(meetings(take, downgrade), 0);
    }
}

/// Where threads wait until all have arrived.
struct Gathering {
    missing: Mutex<usize>,
    complete: Condvar,
}

impl Gathering {
    fn of(members: usize) -> Gathering {
        Gathering { missing: Mutex::new(members), complete: Condvar::new() }
    }

    fn arrive(&self) {
        let mut missing = self.missing.lock();
        *missing -= 1;
        self.complete.notify_all();
        while *missing > 0 {
            self.complete.wait(&mut missing);
        }
    }
}

/// Owner n holds file n and requests file n + 1. The last one requests the first file.
#[test]
fn in_every_cycle_exactly_one_request_is_refused() {
    for members in 2..5 {
        let (_, fs) = volume();
        let files: Vec<Handle> = (0..members).map(|n| create(&fs, &n.to_string())).collect();
        for seed in 0..50 {
            let gathering = Gathering::of(members);
            let work = |n: usize| {
                let all = |mode| RecordLock { owner: Process(n as u64), range: LockRange::WHOLE, mode };
                let (mine, next) = (&files[n], &files[(n + 1) % members]);
                fs.lock_range(mine, &all(Exclusive), Wait).unwrap();
                gathering.arrive();
                let locked = fs.lock_range(next, &all(Shared), Wait);
                fs.close_locks(mine, n as u64);
                fs.close_locks(next, n as u64);
                locked
            };
            let bodies = (0..members).map(|n| body(&n.to_string(), move || work(n))).collect();
            let mut returned = schedule::run(seed, bodies).returned;
            returned.retain(|locked| *locked != Ok(()));
            assert_eq!(returned, [Err(FsError::Deadlock)], "{members} in a circle, seed {seed}");
        }
    }
}

#[test]
fn of_two_shared_holders_that_request_an_exclusive_lock_one_is_refused() {
    let (_, fs) = volume();
    let file = create(&fs, "f");
    for seed in 0..50 {
        let gathering = Gathering::of(2);
        let work = |n: u64| {
            fs.lock_range(&file, &record(Process(n), 3, 9, Shared), Wait).unwrap();
            gathering.arrive();
            let locked = fs.lock_range(&file, &record(Process(n), 0, 4, Exclusive), Wait);
            fs.close_locks(&file, n);
            locked
        };
        let mut returned = schedule::run(seed, vec![body("1", || work(1)), body("2", || work(2))]).returned;
        returned.retain(|locked| *locked != Ok(()));
        assert_eq!(returned, [Err(FsError::Deadlock)], "seed {seed}");
    }
}

/// No thread waits for an owner that has released its lock, even before the waiting thread has noticed. It is no
/// deadlock if that owner then waits for the other.
#[test]
fn no_request_is_refused_because_of_an_owner_that_has_released_its_lock() {
    let (_, fs) = volume();
    let (f, g) = (create(&fs, "f"), create(&fs, "g"));
    let whole = |n| RecordLock { owner: Process(n), range: LockRange::WHOLE, mode: Exclusive };
    for seed in 0..300 {
        fs.lock_range(&g, &whole(1), Refuse).unwrap();
        fs.lock_range(&f, &whole(2), Refuse).unwrap();
        let waits = || {
            fs.lock_range(&f, &whole(1), Wait)?;
            fs.unlock_range(&f, Process(1), LockRange::WHOLE)?;
            fs.unlock_range(&g, Process(1), LockRange::WHOLE)
        };
        let lets_go = || {
            fs.unlock_range(&f, Process(2), LockRange::WHOLE)?;
            fs.lock_range(&g, &whole(2), Wait)?;
            fs.unlock_range(&g, Process(2), LockRange::WHOLE)
        };
        let bodies = vec![body("waits", waits), body("lets go", lets_go)];
        assert_eq!(schedule::run(seed, bodies).returned, [Ok(()), Ok(())], "seed {seed}");
    }
}

/// A writer also waits for an owner that joins the present readers, even while the first of them stays.
#[test]
fn a_reader_that_joins_can_close_a_cycle() {
    let (_, fs) = volume();
    let (f, g) = (create(&fs, "f"), create(&fs, "g"));
    let whole = |n, mode| RecordLock { owner: Process(n), range: LockRange::WHOLE, mode };
    for seed in 0..100 {
        fs.lock_range(&g, &whole(1, Exclusive), Refuse).unwrap();
        fs.lock_range(&f, &whole(3, Shared), Refuse).unwrap();
        let writer = || {
            let locked = fs.lock_range(&f, &whole(1, Exclusive), Wait);
            fs.close_locks(&f, 1);
            fs.close_locks(&g, 1);
            locked
        };
        let reader = || {
            fs.lock_range(&f, &whole(2, Shared), Wait).unwrap();
            let locked = fs.lock_range(&g, &whole(2, Exclusive), Wait);
            fs.close_locks(&f, 3);
            fs.close_locks(&f, 2);
            fs.close_locks(&g, 2);
            locked
        };
        let mut returned = schedule::run(seed, vec![body("writer", writer), body("reader", reader)]).returned;
        returned.retain(|locked| *locked != Ok(()));
        assert_eq!(returned, [Err(FsError::Deadlock)], "seed {seed}");
    }
}

#[test]
fn dropping_a_handle_admits_waiting_requests() {
    let (_, fs) = volume();
    let file = create(&fs, "f");
    type Lock = fn(&Fs, &Handle, u64) -> Result<()>;
    let kinds: [Lock; 3] = [
        |fs, handle, _| fs.lock_file(handle, Exclusive, Wait),
        |fs, handle, _| fs.lock_range(handle, &record(LockOwner::Handle, 0, 9, Exclusive), Wait),
        |fs, handle, n| fs.lock_range(handle, &record(Process(n), 0, 9, Exclusive), Wait),
    ];
    for lock in kinds {
        for seed in 0..30 {
            let section = Section::default();
            let work = |n: u64| {
                let handle = open(&fs, &file);
                lock(&fs, &handle, n).unwrap();
                let met = section.enter();
                drop(handle);
                met
            };
            let bodies = (1..4).map(|n| body(&n.to_string(), move || work(n))).collect();
            assert_eq!(schedule::run(seed, bodies).returned, [false; 3]);
        }
    }
}

#[test]
fn a_process_that_closes_any_handle_loses_all_its_locks() {
    let (_, fs) = volume();
    let (by, other) = (create(&fs, "f"), create(&fs, "g"));
    let second = open(&fs, &by);
    let (mine, theirs) = (record(Process(1), 0, 5, Exclusive), record(Process(2), 5, 9, Exclusive));
    fs.lock_range(&by, &mine, Refuse).unwrap();
    fs.lock_range(&by, &theirs, Refuse).unwrap();
    fs.lock_range(&other, &mine, Refuse).unwrap();
    fs.close_locks(&second, 1);
    let asked = record(Process(3), 0, LockRange::INFINITY, Shared);
    assert_eq!(fs.conflicting_lock(&second, &asked), Some(theirs), "others keep theirs");
    assert_eq!(
        fs.conflicting_lock(&other, &asked),
        Some(mine),
        "and the other owner has its locks on other files"
    );
    drop(by);
    assert_eq!(fs.conflicting_lock(&second, &asked), None);
}

#[test]
fn locks_of_whole_files_are_shared_or_not_and_change_their_mode() {
    let (_, fs) = volume();
    let one = create(&fs, "f");
    let reading = OpenFlags { write: false, ..BOTH };
    let other = fs.open(&Caller::root(), one.inode(), reading).unwrap();
    fs.lock_file(&one, Shared, Refuse).unwrap();
    fs.lock_file(&other, Shared, Refuse).unwrap();
    assert_eq!(fs.lock_file(&other, Exclusive, Refuse), Err(FsError::WouldBlock));
    fs.unlock_file(&one);
    assert_eq!(fs.lock_file(&one, Exclusive, Refuse), Err(FsError::WouldBlock), "the other still shares");
    fs.lock_file(&other, Exclusive, Refuse).unwrap();
    assert_eq!(fs.lock_file(&one, Shared, Refuse), Err(FsError::WouldBlock));
    fs.lock_file(&other, Shared, Refuse).unwrap();
    fs.lock_file(&one, Shared, Refuse).unwrap();
    drop(other);
    fs.lock_file(&one, Exclusive, Refuse).unwrap();
    let record = record(Process(1), 0, 1, Exclusive);
    assert_eq!(fs.lock_range(&open(&fs, &one), &record, Refuse), Ok(()), "the kinds do not see each other");
}

#[test]
fn locks_that_a_handle_was_not_opened_for_are_refused() {
    let (_, fs) = volume();
    let file = create(&fs, "f");
    for (read, refused) in [(true, Exclusive), (false, Shared)] {
        let handle =
            fs.open(&Caller::root(), file.inode(), OpenFlags { read, write: !read, ..BOTH }).unwrap();
        let lock = record(Process(1), 0, 1, refused);
        assert_eq!(fs.lock_range(&handle, &lock, Refuse), Err(FsError::BadHandle));
        let granted = if read { Shared } else { Exclusive };
        assert_eq!(fs.lock_range(&handle, &RecordLock { mode: granted, ..lock }, Refuse), Ok(()));
    }
    assert_eq!(LockRange::new(3, 3), Err(FsError::Invalid));
}

#[test]
fn an_owner_holds_no_more_ranges_than_stated() {
    let (_, fs) = volume();
    let file = create(&fs, "f");
    let lock = |owner, start, end| fs.lock_range(&file, &record(owner, start, end, Exclusive), Refuse);
    let most = RECORD_LOCKS_MAX as u64;
    for n in 0..most {
        lock(Process(1), 4 * n, 4 * n + 3).unwrap();
    }
    assert_eq!(lock(Process(1), 4 * most, 4 * most + 3), Err(FsError::NoLocks));
    let middle = LockRange::new(1, 2).unwrap();
    assert_eq!(fs.unlock_range(&file, Process(1), middle), Err(FsError::NoLocks), "it would be one more");
    assert_eq!(file.node().locks.get().unwrap().records.held().len(), RECORD_LOCKS_MAX);
    assert_eq!(lock(Process(2), 4 * most, 4 * most + 3), Ok(()), "others have a limit of their own");
    assert_eq!(lock(Process(1), 3, 4), Ok(()), "two become one");
    assert_eq!(fs.unlock_range(&file, Process(1), middle), Ok(()));
}

#[test]
fn a_file_without_locks_has_no_state_for_them() {
    let (_, fs) = volume();
    let file = create(&fs, "f");
    let lock = record(LockOwner::Handle, 0, LockRange::INFINITY, Exclusive);
    assert_eq!(fs.conflicting_lock(&file, &lock), None);
    assert_eq!(fs.unlock_range(&file, lock.owner, lock.range), Ok(()));
    fs.unlock_file(&file);
    fs.close_locks(&file, 1);
    drop(open(&fs, &file));
    assert!(file.node().locks.get().is_none());
    assert_eq!(file.locker.id(), HandleId(0));
}

#[test]
fn refusals_have_the_numbers_of_system_calls() {
    use rustix::io::Errno;
    for (error, errno) in [
        (FsError::WouldBlock, Errno::AGAIN),
        (FsError::Deadlock, Errno::DEADLK),
        (FsError::NoLocks, Errno::NOLCK),
    ] {
        assert_eq!(error.errno(), errno.raw_os_error());
    }
}

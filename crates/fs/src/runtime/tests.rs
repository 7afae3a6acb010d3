//! Idle threads.

use rt::thread::Stop;
use tree::Step;

use super::*;
use crate::MountOptions;
use crate::tests::volume;
use crate::types::{Caller, InodeNo};

const PAUSE: Duration = Duration::from_millis(5);

/// Four threads of each idle mount woke up four times a second.
#[test]
fn threads_of_an_idle_volume_sleep_and_a_change_wakes_them() {
    let fs = timed_volume();
    while fs.step() == Ok(Step::Worked) {}
    fs.start().unwrap();
    let sleepers = || sleepers(&fs.runtime.watch);
    for round in 0..3 {
        await_that("all threads sleep", || sleepers() == BackgroundTask::ALL.len());
        fs.make_directory(&Caller::root(), InodeNo::ROOT, format!("d{round}").as_bytes(), 0o755).unwrap();
        let last = fs.store.last_lsn();
        await_that("the change is made durable by a thread that slept", || fs.store.durable_lsn() >= last);
    }
    fs.unmount().unwrap();
    assert_eq!(sleepers(), 0);
}

#[test]
fn a_change_before_a_thread_sleeps_keeps_it_awake() {
    let watch = ChangeWatch::default();
    let seen = watch.changes.load(Ordering::SeqCst);
    assert!(!watch.note_change(), "no thread sleeps");
    assert_eq!(watch.sleep(seen, || unreachable!("there was a change")), Some(0));
    let seen = watch.changes.load(Ordering::SeqCst);
    let woken = watch.sleep(seen, || {
        assert!(watch.note_change(), "it is to be woken");
        Some(7)
    });
    assert_eq!(woken, Some(7));
}

#[test]
fn sleeping_threads_end_when_the_volume_is_dropped() {
    let fs = timed_volume();
    let watch = Arc::clone(&fs.runtime.watch);
    fs.start().unwrap();
    await_that("all threads sleep", || sleepers(&watch) == BackgroundTask::ALL.len());
    drop(fs);
    await_that("no thread holds the watch", || Arc::strong_count(&watch) == 1);
}

/// All threads that sleep. A change wakes only those for which it can make work.
fn sleepers(watch: &ChangeWatch) -> usize {
    let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    assert!(of(&watch.sleepers) <= BackgroundTask::AFTER_CHANGES.len());
    of(&watch.sleepers) + of(&watch.others)
}

/// A volume whose clock runs.
fn timed_volume() -> Arc<Fs> {
    let (device, fs) = volume();
    fs.unmount().unwrap();
    let clock = Arc::new(rt::SystemClock::new());
    let options = MountOptions { cache_bytes: 1 << 20, read_only: false, commit_interval_ns: 1, clock };
    Fs::mount(device, options).unwrap().0
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let waiting = Stop::default();
    assert!((0..12_000).any(|_| is_so() || waiting.wait(PAUSE)), "within a minute: {what}");
}

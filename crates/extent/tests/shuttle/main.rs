//! Tests of concurrent threads in schedules that Shuttle chooses (`rt::shuttled`): group commit, checkpoints beside
//! writers, GC beside writers and readers, a full volume, hand-over of leases, the cache of nodes.
//!
//! Each test makes a small volume once and works on an image of it in every schedule. In two thirds of the schedules a
//! thread is delayed for long, a few times or many. In the others any thread may run at each step. Everything follows
//! from a seed. At its end a test checks that the events that it is about have happened.
//!
//! ```sh
//! cargo xtask shuttle
//! POLDER_SHUTTLE_TIMES=100 POLDER_SHUTTLE_SEED=7 cargo xtask shuttle
//! ```
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod cache;
mod canaries;
mod checkpoint;
mod full;
mod gc;
mod group_commit;
mod leases;
mod objects;
mod tables;
mod throttle;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use emulated::{CrashPlan, Emulated, Spec};
use rt::random::Rng;
use rt::shuttled::{self, Choice};
use rt::thread::JoinHandle;
use tree::{FormatOptions, Reserve, Store};
use zone::{Device, FsId};

/// How schedules are chosen, the same number in each way: a thread is delayed for long, a few times or many; or any
/// thread may run at each step.
const CHOICES: [Choice; 3] = [Choice::Priorities(4), Choice::Priorities(16), Choice::Random];
/// The same for events that need a delay in a few steps of many.
const DELAYED_OFTEN: [Choice; 3] = [Choice::Priorities(32), Choice::Priorities(64), Choice::Priorities(16)];

/// A number from the environment.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Runs `body` on images of `device` in this number of schedules, or in a multiple of it.
fn explore(
    test: &str,
    schedules: usize,
    device: Arc<Emulated>,
    body: impl Fn(Arc<Emulated>) + Send + Sync + 'static,
) {
    explore_in(CHOICES, test, schedules, device, body);
}

/// The same in schedules that are chosen in these ways.
fn explore_in(
    choices: [Choice; 3],
    test: &str,
    schedules: usize,
    device: Arc<Emulated>,
    body: impl Fn(Arc<Emulated>) + Send + Sync + 'static,
) {
    canaries::plant();
    let (seed, times) = (setting("POLDER_SHUTTLE_SEED", 1), setting("POLDER_SHUTTLE_TIMES", 1));
    let of_each = schedules * times as usize / choices.len();
    let (body, begun) = (Arc::new(body), Seen::default());
    let run = |choice| {
        let (device, body, begun) = (Arc::clone(&device), Arc::clone(&body), begun.clone());
        shuttled::explore(choice, seed, of_each, move || {
            begun.add(1);
            body(image(&device, &CrashPlan::KeepAll));
        });
    };
    let explored = catch_unwind(AssertUnwindSafe(|| choices.into_iter().for_each(run)));
    if let Err(panic) = explored {
        eprintln!(
            "schedule {}; repeat with: POLDER_SHUTTLE_SEED={seed} POLDER_SHUTTLE_TIMES={times} cargo test --package \
             polder-extent --features shuttle --test shuttle -- --exact {test}",
            begun.count()
        );
        resume_unwind(panic);
    }
    println!("counted schedules of {test}: {}", of_each * choices.len());
}

/// A device that was prepared under Shuttle, because there are no other locks. It records.
fn prepared(
    spec: Spec,
    groups: u16,
    prepare: impl Fn(&Arc<Emulated>) + Send + Sync + 'static,
) -> Arc<Emulated> {
    let (sender, devices) = mpsc::channel();
    shuttled::explore(Choice::Random, 1, 1, move || {
        let device = Arc::new(Emulated::new(spec.clone()));
        let as_device: Arc<dyn Device> = device.clone();
        let (fs_id, reserve) = (FsId([3; 16]), Reserve::default());
        let label = "shuttle".to_owned();
        let options = FormatOptions { fs_id, label, page_size: 4096, groups, created_ns: 1, reserve };
        Store::format(&as_device, &options).unwrap();
        prepare(&device);
        device.record();
        sender.send(device).unwrap();
    });
    devices.recv().unwrap()
}

/// The device after a power loss. It records.
fn image(device: &Emulated, plan: &CrashPlan) -> Arc<Emulated> {
    let image = device.image(plan);
    image.record();
    Arc::new(image)
}

/// Loses the power at some command. Returns its number, and the device after it.
fn cut(device: &Emulated, rng: &mut Rng) -> (u64, Arc<Emulated>) {
    let at = rng.u64(0..=device.commands());
    let plans = device.plans_at(at);
    let plan = match rng.u8(0..4) {
        0 => CrashPlan::LoseAll,
        1 => CrashPlan::Subset(rng.u64(..)),
        _ => plans[rng.usize(..plans.len())].clone(),
    };
    let image = device.image_at(at, &plan);
    image.record();
    (at, Arc::new(image))
}

/// Numbers that follow from the schedule.
fn rng() -> Rng {
    Rng::with_seed(shuttled::random())
}

fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    rt::thread::spawn(name, body).unwrap()
}

/// Counts events in all schedules of a test. It is no seam: a thread is never interrupted while it counts.
#[derive(Clone, Default)]
struct Seen(Arc<AtomicU64>);

impl Seen {
    fn add(&self, times: u64) {
        self.0.fetch_add(times, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends a test. It has shown nothing if the count is 0.
    fn report(&self, event: &str) {
        let times = self.count();
        println!("counted {event}: {times}");
        assert!(times > 0, "no schedule had {event}");
    }
}

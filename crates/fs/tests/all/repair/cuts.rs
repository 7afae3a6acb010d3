//! The power is lost at every command of a repair. No readable data is lost, and another repair reaches the same end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use emulated::{CrashPlan, Emulated};
use fs::{Finding, InodeNo};
use rt::random::Rng;
use rt::schedule::{self, Body};
use rt::{ManualClock, Timestamp};

use super::blocks::{self, Part};
use super::damage::Damage::*;
use super::picture::{Picture, excused};
use super::random::populated;
use super::repaired_as_mounted;
use crate::support::{Volume, mount};

/// How many plans are tried at one command. The first one keeps everything.
const PLANS: usize = 3;

/// A damaged volume, and what must be found of it.
struct Damaged {
    device: Emulated,
    known: BTreeSet<InodeNo>,
    before: Picture,
    /// The result of a repair without interruption.
    after: Picture,
    left: Vec<Finding>,
}

impl Damaged {
    /// With some blocks of data `hurt` or not.
    fn new(seed: u64, hurt: bool) -> Damaged {
        let mut rng = Rng::with_seed(seed);
        let (volume, known) = populated(&mut rng);
        let kinds =
            [EntryGone, EntryOfNobody, EntryUnderAnotherHash, Orphan, Intent, Links, EntryCount, LiveCount];
        for damage in kinds.into_iter().chain(kinds) {
            damage.apply(&volume, &mut rng);
        }
        volume.device.record();
        volume.fs.sync().unwrap();
        drop(volume.fs);
        let device = volume.device.image(&CrashPlan::KeepAll);
        if hurt {
            blocks::damage(&device, &[Part::Data], 5, &mut rng);
        }
        device.record();
        let before = Picture::of(&mounted(copy(&device)), &known);
        let (volume, left) = repaired_as_mounted(mounted(copy(&device)));
        let after = Picture::of(&volume, &known);
        Damaged { device, known, before, after, left }
    }

    /// After a cut: the state at once, and after another repair.
    fn look(&self, image: Emulated, story: &str) {
        let volume = mounted(image);
        let found = Picture::of(&volume, &self.known);
        let kept: BTreeSet<_> = self.known.difference(&self.before.reached).copied().collect();
        self.before.assert_kept(&found, &kept, story);
        let (volume, left) = repaired_as_mounted(volume);
        let after = Picture::of(&volume, &self.known);
        self.before.assert_kept(&after, &excused(&volume, &left), story);
        assert!(after == self.after, "{story}: another end");
        assert_eq!(left, self.left, "{story}");
    }
}

/// A copy of the device, which may be changed.
fn copy(device: &Emulated) -> Emulated {
    device.image_at(0, &CrashPlan::KeepAll)
}

fn mounted(device: Emulated) -> Volume {
    let (device, clock) = (Arc::new(device), Arc::new(ManualClock::at(Timestamp(2_000_000_000))));
    let fs = mount(&device, &clock, false);
    Volume { device, clock, fs }
}

/// Repairs while another thread makes the changes durable. Otherwise all would be in one batch of the log. Returns
/// the number of repairs.
fn repair_amid_syncs(volume: &Volume, seed: u64) -> usize {
    let (is_over, repaired) = (AtomicBool::new(false), AtomicUsize::new(0));
    let repair = || {
        let done = volume.fs.repair();
        is_over.store(true, Ordering::SeqCst);
        repaired.store(done.unwrap().repaired.len(), Ordering::SeqCst);
    };
    let sync = || {
        while !is_over.load(Ordering::SeqCst) {
            schedule::at_device();
            volume.fs.sync().unwrap();
        }
    };
    let bodies: Vec<Body<'_, ()>> =
        vec![("repairing".into(), Box::new(repair)), ("syncing".into(), Box::new(sync))];
    schedule::run(seed, bodies);
    repaired.load(Ordering::SeqCst)
}

#[test]
fn a_repair_that_is_cut_short_loses_nothing_and_can_be_done_again() {
    let (mut commands, mut repairs) = (0, 0);
    for (seed, hurt) in [(0, false), (1, false), (2, true)] {
        let damaged = Damaged::new(seed, hurt);
        let device = copy(&damaged.device);
        device.record();
        let volume = mounted(device);
        // One repair may reveal the next: both are cut, and so is closing the volume after each.
        repairs += repair_amid_syncs(&volume, seed);
        let volume = volume.remount();
        volume.fs.repair().unwrap();
        volume.fs.unmount().unwrap();
        for command in 0..=volume.device.commands() {
            let mut plans = volume.device.plans_at(command);
            Rng::with_seed(seed ^ command).shuffle(&mut plans[1..]);
            for plan in plans.into_iter().take(PLANS) {
                damaged
                    .look(volume.device.image_at(command, &plan), &format!("seed {seed}, {command}, {plan}"));
            }
            commands += 1;
        }
    }
    assert!(commands > 40 && repairs > 20, "{commands} commands were cut of {repairs} repairs");
}

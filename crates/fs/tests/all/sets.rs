//! Volumes on sets of devices. Nothing here or below `zone` knows of them: names are a prefix after a loss of power, and
//! what was acknowledged is there, also if a member was lost before.

use std::sync::Arc;

use emulated::{CrashPlan, Emulated, Spec, Supply};
use fs::{FormatOptions, Fs, InodeNo};
use rt::random::Rng;
use rt::{ManualClock, Timestamp};
use zone::set::{Concatenation, Layout, Set};
use zone::{Device, FsId};

use crate::crash::{picture, scenario};
use crate::support::{Volume, mount_any};

const ROOT: InodeNo = InodeNo::ROOT;

/// A volume on a set, before and after its power is lost.
struct Case {
    layout: Layout,
    width: usize,
    /// Two such sets, one behind the other.
    twice: bool,
    /// The member that is lost, and the number of its changes before that.
    lost: Option<(usize, u64)>,
}

impl Case {
    fn new(layout: Layout, width: usize) -> Case {
        Case { layout, width, twice: false, lost: None }
    }

    fn sets(
        &self,
        members: &[Arc<Emulated>],
        open: impl Fn(Vec<Arc<dyn Device>>, u32) -> Set,
    ) -> Arc<dyn Device> {
        let devices = |members: &[Arc<Emulated>]| {
            members.iter().map(|member| Arc::clone(member) as Arc<dyn Device>).collect::<Vec<_>>()
        };
        let sets = (0..).zip(members.chunks(self.width));
        let mut sets: Vec<Arc<dyn Device>> = sets
            .map(|(number, members)| Arc::new(open(devices(members), number)) as Arc<dyn Device>)
            .collect();
        match self.twice {
            true => Arc::new(Concatenation::new(sets).unwrap()),
            false => sets.remove(0),
        }
    }

    /// Executes the scenario, and cuts the power at some hundred commands.
    fn cut(&self, count: u64, seed: u64) {
        let supply = Supply::new();
        let zones = if self.twice { 24 } else { 42 };
        let width = if self.twice { 2 * self.width } else { self.width };
        let spec = |seed| Spec::new(4096, zones, 256).seed(seed);
        let members: Vec<Arc<Emulated>> =
            (0..width as u64).map(|seed| Arc::new(supply.connect(Emulated::new(spec(seed))))).collect();
        let set = self.sets(&members, |devices, number| {
            Set::create(self.layout, devices, FsId([5; 16]), number).unwrap()
        });
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000_000)));
        let format = FormatOptions {
            label: "set".into(),
            fs_id: FsId([5; 16]),
            uid: 0,
            gid: 0,
            page_size: None,
            groups: Some(4),
            reserve: fs::Reserve::default(),
        };
        Fs::format(&set, &format, &*clock).unwrap();
        let fs = mount_any(Arc::clone(&set), &clock, false);
        let volume = Volume { device: Arc::clone(&members[0]), clock, fs };
        supply.record(&members);
        if let Some((member, after)) = self.lost {
            members[member].lose_power_after(after);
        }
        let (mut pictures, mut durable) = (vec![picture(&volume.fs, ROOT)], vec![(0, 0)]);
        scenario(&volume, &mut |volume, is_durable| {
            pictures.push(picture(&volume.fs, ROOT));
            if is_durable {
                durable.push((supply.commands(), pictures.len() - 1));
            }
        });
        volume.settle_and_check();
        let mut rng = Rng::with_seed(seed);
        let commands = supply.commands();
        for number in 0..count {
            let n = commands * number / count;
            let plans: Vec<CrashPlan> = members.iter().map(|_| CrashPlan::Subset(rng.u64(..))).collect();
            let images = supply.images_at(n, &members, &plans);
            let degraded = self.lost.is_some();
            let set = self.sets(&images, |devices, _| Set::open(devices, degraded).unwrap());
            let clock = Arc::new(ManualClock::at(Timestamp(0)));
            let fs = mount_any(set, &clock, false);
            let found = picture(&fs, ROOT);
            let floor = durable.iter().rev().find(|(at, _)| *at <= n).map_or(0, |(_, floor)| *floor);
            assert!(pictures[floor..].contains(&found), "command {n}, {plans:?}: no picture from {floor} on");
            Volume { device: Arc::clone(&images[0]), clock, fs }.settle_and_check();
        }
    }
}

#[test]
fn a_volume_on_a_stripe_or_a_mirror_survives_losses_of_power() {
    for layout in [Layout::Mirror, Layout::STRIPE, Layout::Stripe { chunk: 1 }] {
        Case::new(layout, 2).cut(150, 1);
    }
    Case::new(Layout::Mirror, 3).cut(100, 2);
}

#[test]
fn a_volume_on_two_sets_survives_losses_of_power() {
    Case { twice: true, ..Case::new(Layout::Mirror, 2) }.cut(100, 3);
    Case { twice: true, ..Case::new(Layout::STRIPE, 1) }.cut(100, 4);
}

#[test]
fn a_volume_on_a_mirror_survives_the_loss_of_a_member_and_then_of_power() {
    for (number, member) in [0, 1].into_iter().cycle().take(40).enumerate() {
        let lost = Some((member, number as u64 * 2));
        Case { lost, ..Case::new(Layout::Mirror, 2) }.cut(20, number as u64);
    }
}

//! Volumes on sets of devices. Nothing here or below `zone` knows of them: names are a prefix after a loss of power, and
//! what was acknowledged is there, also if a member was lost before.

use std::sync::Arc;

use emulated::{CrashPlan, Emulated, Spec, Supply};
use fs::{DamagedCopies, FormatOptions, Fs, InodeNo, MountOptions, ScrubAt};
use rt::random::Rng;
use rt::{ManualClock, Timestamp};
use zone::set::{Concatenation, Layout, MemberLabel, MemberState, RebuildStep, Set};
use zone::{Device, FsId, Role, ZoneId};

use crate::crash::{picture, scenario};
use crate::support::{Volume, mount_any, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

/// The first zones of a member, which hold its label.
const LABEL_ZONES: u32 = 3;

/// A new volume on a device, one member of which is given.
fn new_volume(device: &Arc<dyn Device>, member: &Arc<Emulated>) -> Volume {
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
    Fs::format(device, &format, &*clock).unwrap();
    let fs = mount_any(Arc::clone(device), &clock, false);
    Volume { device: Arc::clone(member), clock, fs }
}

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

    /// A new volume, and its members.
    fn volume(&self) -> (Volume, Arc<Supply>, Vec<Arc<Emulated>>) {
        let supply = Supply::new();
        let zones = if self.twice { 24 } else { 42 };
        let width = if self.twice { 2 * self.width } else { self.width };
        let spec = |seed| Spec::new(4096, zones, 256).seed(seed);
        let members: Vec<Arc<Emulated>> =
            (0..width as u64).map(|seed| Arc::new(supply.connect(Emulated::new(spec(seed))))).collect();
        let create = |devices, number| Set::create(self.layout, devices, FsId([5; 16]), number).unwrap();
        let set = self.sets(&members, create);
        (new_volume(&set, &members[0]), supply, members)
    }

    /// Mounts the volume of these members.
    fn mount(&self, members: &[Arc<Emulated>]) -> Volume {
        let set = self.sets(members, |devices, _| Set::open(devices, self.lost.is_some()).unwrap());
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let fs = mount_any(set, &clock, false);
        Volume { device: Arc::clone(&members[0]), clock, fs }
    }

    /// Executes the scenario, and cuts the power at some hundred commands.
    fn cut(&self, count: u64, seed: u64) {
        let (volume, supply, members) = self.volume();
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
            let crashed = self.mount(&images);
            let found = picture(&crashed.fs, ROOT);
            let floor = durable.iter().rev().find(|(at, _)| *at <= n).map_or(0, |(_, floor)| *floor);
            assert!(pictures[floor..].contains(&found), "command {n}, {plans:?}: no picture from {floor} on");
            crashed.settle_and_check();
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

/// Opens the devices that have a label, and mounts the volume on them.
fn mount_labelled(images: &[Arc<Emulated>]) -> (Arc<Set>, Volume) {
    let labelled = images.iter().filter(|image| MemberLabel::read(&***image).is_ok());
    let devices = labelled.map(|image| Arc::clone(image) as Arc<dyn Device>).collect();
    let set = Arc::new(Set::open(devices, true).unwrap());
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let fs = mount_any(Arc::clone(&set) as _, &clock, false);
    (set, Volume { device: Arc::clone(&images[0]), clock, fs })
}

/// A member is replaced while the volume is used. Whenever the power is lost, the volume is there, and when the new member
/// counts, it alone has everything.
#[test]
fn a_volume_survives_losses_of_power_while_a_member_is_replaced() {
    let supply = Supply::new();
    let member = |seed| Arc::new(supply.connect(Emulated::new(Spec::new(4096, 42, 256).seed(seed))));
    let members: Vec<Arc<Emulated>> = (0..3).map(member).collect();
    let old = members[..2].iter().map(|member| Arc::clone(member) as Arc<dyn Device>).collect();
    let set = Arc::new(Set::create(Layout::Mirror, old, FsId([5; 16]), 0).unwrap());
    let volume = new_volume(&(Arc::clone(&set) as Arc<dyn Device>), &members[0]);
    supply.record(&members);
    let (mut pictures, mut durable) = (vec![picture(&volume.fs, ROOT)], vec![(0, 0)]);
    let (mut steps, mut counted) = (0_u32, None);
    scenario(&volume, &mut |volume, is_durable| {
        pictures.push(picture(&volume.fs, ROOT));
        if is_durable {
            durable.push((supply.commands(), pictures.len() - 1));
        }
        steps += 1;
        if steps == 4 {
            set.replace(1, Arc::clone(&members[2]) as _).unwrap();
        }
        if set.rebuild_step().unwrap() == RebuildStep::Complete {
            counted = Some(supply.commands());
        }
    });
    while counted.is_none() {
        match set.rebuild_step().unwrap() {
            RebuildStep::More => {}
            step => counted = (step == RebuildStep::Complete).then(|| supply.commands()),
        }
    }
    volume.settle_and_check();
    let (mut rng, commands, mut rebuilt) = (Rng::with_seed(9), supply.commands(), 0);
    for number in 0..150 {
        let n = commands * number / 150;
        let plans: Vec<CrashPlan> = members.iter().map(|_| CrashPlan::Subset(rng.u64(..))).collect();
        let images = supply.images_at(n, &members, &plans);
        let (set, crashed) = mount_labelled(&images);
        let found = picture(&crashed.fs, ROOT);
        let floor = durable.iter().rev().find(|(at, _)| *at <= n).map_or(0, |(_, floor)| *floor);
        assert!(pictures[floor..].contains(&found), "command {n}, {plans:?}: no picture from {floor} on");
        while set.rebuild_step().unwrap() == RebuildStep::More {}
        crashed.fs.unmount().unwrap();
        drop(crashed);
        let is_new = set.members() == [MemberState::Counts; 2]
            && MemberLabel::read(&*images[2]).is_ok_and(|label| !label.is_joining());
        if is_new {
            let (_, alone) = mount_labelled(&images[2..]);
            assert!(picture(&alone.fs, ROOT) == found, "command {n}, {plans:?}: the new member alone");
            alone.settle_and_check();
            rebuilt += 1;
        }
    }
    println!("{commands} commands, {rebuilt} new members alone, counted at {counted:?}");
    assert!(rebuilt > 50);
}

/// Files of all sizes, a third of which are deleted again.
fn make_files(volume: &Volume) {
    for number in 0..300 {
        let file = volume.file(ROOT, &format!("{number}"));
        volume.write(&file, 0, &pattern(number as u8, 3000 + 137 * number));
    }
    (0..300).step_by(3).for_each(|number| volume.unlink(ROOT, &format!("{number}")).unwrap());
}

/// Flips a bit of every block that is written behind the log zones.
fn damage(member: &Emulated) {
    let zones = member.spec().capacities.len() as u32;
    for (zone, block) in (6..zones).flat_map(|zone| (0..256).map(move |block| (ZoneId(zone), block))) {
        if member.is_written(zone, block) {
            member.corrupt(zone, block, 99, 1);
        }
    }
}

/// The headers of the log are damaged on one member. Nothing acknowledged may be missing from a volume that is mounted.
#[test]
fn a_mirror_with_damaged_headers_of_the_log_loses_nothing() {
    for (member, is_unmounted) in [(0, false), (1, false), (0, true), (1, true)] {
        let case = Case { lost: Some((0, 0)), ..Case::new(Layout::Mirror, 2) };
        let (volume, _, members) = case.volume();
        for number in 0..40 {
            let file = volume.file(ROOT, &format!("{number}"));
            volume.write(&file, 0, &pattern(number as u8, 5000));
        }
        volume.fs.sync().unwrap();
        let expected = picture(&volume.fs, ROOT);
        if is_unmounted {
            volume.fs.unmount().unwrap();
        }
        drop(volume);
        for zone in
            (LABEL_ZONES..LABEL_ZONES + 4).map(ZoneId).filter(|&zone| members[member].is_written(zone, 0))
        {
            members[member].corrupt(zone, 0, 40, 1);
        }
        let sets =
            |members: &[Arc<Emulated>]| case.sets(members, |devices, _| Set::open(devices, true).unwrap());
        let options = MountOptions {
            cache_bytes: 4 << 20,
            read_only: false,
            commit_interval_ns: 5_000_000_000,
            clock: Arc::new(ManualClock::at(Timestamp(0))),
        };
        let refused = Fs::mount(sets(&members), options).err();
        let why = refused.expect("no log is found").to_string();
        assert!(why.contains("damaged"), "{why}");
        // Without this member, the other one has everything.
        let volume = case.mount(&members[1 - member..=1 - member]);
        assert!(picture(&volume.fs, ROOT) == expected, "{member}, {is_unmounted}");
        volume.settle_and_check();
    }
}

#[test]
fn a_mirror_corrects_damage_of_all_data_and_nodes_of_one_member() {
    for member in [0, 1] {
        let case = Case::new(Layout::Mirror, 2);
        let (volume, _, members) = case.volume();
        make_files(&volume);
        let expected = picture(&volume.fs, ROOT);
        volume.fs.unmount().unwrap();
        drop(volume);
        damage(&members[member]);
        let volume = case.mount(&members);
        assert!(picture(&volume.fs, ROOT) == expected, "nodes and data are read from the other member");
        volume.settle_and_check();
        // What GC moves is right on both members again.
        while volume.fs.collect_garbage().unwrap() {}
        volume.fs.unmount().unwrap();
        drop(volume);
        let volume = case.mount(&members);
        assert!(picture(&volume.fs, ROOT) == expected);
        volume.settle_and_check();
    }
}

/// Scrubs everything. Returns the number of damaged copies, and how many of them were repaired.
fn scrub(fs: &Fs, copies: DamagedCopies) -> (usize, usize) {
    let (mut at, mut damaged) = (ScrubAt::start(), Vec::new());
    while at != ScrubAt::End {
        let scrubbed = fs.scrub_step(at, 64 << 10, copies).unwrap();
        assert_eq!(scrubbed.findings, [], "one copy is always intact");
        damaged.extend(scrubbed.damaged_copies);
        at = scrubbed.next;
    }
    (damaged.len(), damaged.iter().filter(|copy| copy.repaired).count())
}

/// Flips a bit of every written block in these zones of the set, but not in their headers.
fn damage_zones(member: &Emulated, zones: &[ZoneId]) {
    let on_member = zones.iter().map(|zone| ZoneId(zone.0 + LABEL_ZONES));
    for (zone, block) in on_member.flat_map(|zone| (1..256).map(move |block| (zone, block))) {
        if member.is_written(zone, block) {
            member.corrupt(zone, block, 99, 1);
        }
    }
}

#[test]
fn a_scrub_repairs_all_data_of_one_member_and_survives_losses_of_power() {
    for member in [0, 1] {
        let case = Case { lost: Some((0, 0)), ..Case::new(Layout::Mirror, 2) };
        let (volume, supply, members) = case.volume();
        make_files(&volume);
        let expected = picture(&volume.fs, ROOT);
        volume.fs.unmount().unwrap();
        let pool = volume.fs.store().pool();
        let zones: Vec<ZoneId> =
            [Role::Data, Role::Gc].into_iter().flat_map(|role| pool.in_role(role)).collect();
        drop(volume);
        damage_zones(&members[member], &zones);
        let volume = case.mount(&members);
        let (damaged, repaired) = scrub(&volume.fs, DamagedCopies::Report);
        assert!(damaged > 100 && repaired == 0, "{damaged}, {repaired}");
        supply.record(&members);
        let (damaged, repaired) = scrub(&volume.fs, DamagedCopies::Repair);
        assert!(damaged > 100 && repaired == damaged, "{repaired} of {damaged}");
        assert_eq!(scrub(&volume.fs, DamagedCopies::Report), (0, 0));
        volume.fs.unmount().unwrap();
        drop(volume);
        let (mut rng, commands) = (Rng::with_seed(member as u64), supply.commands());
        for number in 0..60 {
            let plans: Vec<CrashPlan> = members.iter().map(|_| CrashPlan::Subset(rng.u64(..))).collect();
            let images = supply.images_at(commands * number / 60, &members, &plans);
            let crashed = case.mount(&images);
            assert!(picture(&crashed.fs, ROOT) == expected, "cut {number} of {commands} commands, {plans:?}");
            crashed.settle_and_check();
        }
        let alone = case.mount(&members[member..=member]);
        assert!(picture(&alone.fs, ROOT) == expected, "the member with the damage has everything");
        alone.settle_and_check();
        println!("{damaged} damaged copies, {commands} commands");
    }
}

/// Metadata of one member is damaged. It is reported, and GC moves what is intact on the other member.
#[test]
fn a_scrub_reports_damaged_copies_of_metadata() {
    let case = Case::new(Layout::Mirror, 2);
    let (volume, _, members) = case.volume();
    for number in 0..300 {
        volume.file(ROOT, &format!("{number}"));
    }
    volume.fs.unmount().unwrap();
    let zones: Vec<ZoneId> = volume.fs.store().pool().in_role(Role::Metadata);
    drop(volume);
    damage_zones(&members[1], &zones);
    let volume = case.mount(&members);
    let (damaged, repaired) = scrub(&volume.fs, DamagedCopies::Repair);
    assert!(damaged > 3 && repaired == 0, "{damaged}, {repaired}");
    volume.settle_and_check();
}

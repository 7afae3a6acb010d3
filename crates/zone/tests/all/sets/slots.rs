//! Slots, capacities, and zones of one member that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::cuts::{random_loss, small};
use super::wrapped::WrappedSet;
use super::{VOLUME, create, devices, emulated, member_zone};
use crate::zone::set::{Layout, MemberState, Part, Set, SetError};
use crate::zone::{Blocks, Device, DeviceError, FsId, ZoneId, ZoneState};
use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault, Spec, Supply};

const LAYOUTS: [Layout; 2] = [Layout::Mirror, Layout::Stripe { chunk: 2 }];

fn append(set: &Set, zone: u32, tag: u8) -> Result<Blocks, DeviceError> {
    set.append(ZoneId(zone), &crate::pattern(set, tag, 1))
}

/// A superzone is full, and the zone of the larger member is not finished yet: another zone must not take its slot,
/// because a label that is written then needs it.
#[test]
fn a_full_superzone_keeps_its_slot_until_its_member_zones_are_finished() {
    let specs = [Spec::new(512, 16, 6).limits(8, 8), Spec::new(512, 16, 9).limits(7, 7)];
    for layout in LAYOUTS {
        let WrappedSet { wrapped, set, .. } = WrappedSet::new(layout, &specs);
        (0..6).for_each(|zone| assert_eq!(append(&set, zone, 0).unwrap(), 0));
        let capacity = set.report_zone(ZoneId(0)).unwrap().capacity;
        (1..capacity - 1).for_each(|block| assert_eq!(append(&set, 0, 0).unwrap(), block));
        let (weak, refused) = (Arc::downgrade(&set), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&refused);
        wrapped[1].before_commands(move |operation, zone| {
            if let Some(set) = weak.upgrade().filter(|_| operation == "finish" && zone == member_zone(0)) {
                let opened = append(&set, 7, 1);
                assert!(matches!(opened, Err(DeviceError::TooManyOpen { .. })), "{opened:?}");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        append(&set, 0, 0).unwrap();
        assert_eq!(refused.load(Ordering::Relaxed), 1, "{layout:?}");
        assert_eq!(set.report_zone(ZoneId(0)).unwrap().state, ZoneState::Full);
        assert!(matches!(append(&set, 0, 1), Err(DeviceError::ZoneFull { .. })));
        append(&set, 7, 1).unwrap();
    }
}

/// The first append to a zone fails on one member: the zone is as it was, on all of them.
#[test]
fn a_zone_whose_first_append_failed_is_empty() {
    for (layout, effect) in LAYOUTS
        .into_iter()
        .flat_map(|layout| [Effect::HostFull, Effect::Error, Effect::Torn(1)].map(|effect| (layout, effect)))
    {
        for position in [0, 1] {
            let members = emulated(&small(), 2);
            let set = create(layout, &members);
            members[position].inject(Fault::nth(CommandKind::Append, 1, effect).on(member_zone(1)));
            append(&set, 1, 1).unwrap_err();
            let info = set.report_zone(ZoneId(1)).unwrap();
            assert_eq!((info.state, info.pointer), (ZoneState::Empty, 0), "{layout:?} {effect:?}");
            for member in &members {
                assert_eq!(member.report_zone(member_zone(1)).unwrap().state, ZoneState::Empty);
            }
            assert_eq!(append(&set, 1, 2).unwrap(), 0, "it can be used");
            assert_eq!(set.members(), [MemberState::Counts; 2]);
        }
    }
}

#[test]
fn a_superzone_whose_reset_failed_is_read_only() {
    for (layout, position) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 0), (layout, 1)]) {
        let members = emulated(&small(), 2);
        let set = create(layout, &members);
        (0..4).for_each(|tag| assert_eq!(append(&set, 1, tag).unwrap(), u32::from(tag)));
        members[position].inject(Fault::nth(CommandKind::Reset, 1, Effect::Error).on(member_zone(1)));
        assert!(matches!(set.reset(ZoneId(1)), Err(DeviceError::Io { zone: ZoneId(1), .. })));
        assert_eq!(set.report_zone(ZoneId(1)).unwrap().state, ZoneState::ReadOnly, "{layout:?}");
        assert!(matches!(append(&set, 1, 1), Err(DeviceError::ReadOnly(ZoneId(1)))));
        assert!(matches!(set.reset(ZoneId(1)), Err(DeviceError::ReadOnly(ZoneId(1)))));
        // Its member zones take no slots.
        (2..5).for_each(|zone| assert_eq!(append(&set, zone, 1).unwrap(), 0));
        let set = Set::open(devices(&members), false).unwrap();
        let state = set.report_zone(ZoneId(1)).unwrap().state;
        assert!(matches!(state, ZoneState::Empty | ZoneState::Full), "{layout:?}: {state:?}");
        if state == ZoneState::Full {
            set.reset(ZoneId(1)).unwrap();
        }
        assert_eq!(append(&set, 1, 7).unwrap(), 0);
    }
}

/// One zone of one member is shorter. When this member is excluded, the superzone does not become larger.
#[test]
fn the_capacity_of_a_superzone_does_not_depend_on_the_members_that_are_left() {
    let mut short = small();
    short.capacities[member_zone(1).0 as usize] = 9;
    let members: Vec<Arc<Emulated>> = vec![Arc::new(Emulated::new(small())), Arc::new(Emulated::new(short))];
    let set = create(Layout::Mirror, &members);
    let capacity = |set: &Set| set.report_zone(ZoneId(1)).unwrap().capacity;
    let identity = crate::zone::format::ZoneIdentity {
        fs_id: VOLUME,
        zone: ZoneId(1),
        life: crate::zone::Life(1),
        role: crate::zone::Role::Data,
    };
    let header = crate::zone::format::encode_header_of(&identity, set.geometry(), 9);
    set.append(ZoneId(1), &header).unwrap();
    assert_eq!((capacity(&set), append(&set, 1, 1).unwrap()), (9, 1));
    members[1].lose_power_after(0);
    set.flush().unwrap();
    members[0].inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(member_zone(1)));
    append(&set, 1, 2).unwrap_err();
    assert_eq!(capacity(&set), 9, "after members have agreed");
    let set = Set::open(devices(&members[..1]), true).unwrap();
    let info = set.report_zone(ZoneId(1)).unwrap();
    assert_eq!((info.capacity, info.pointer), (9, 2), "after it was opened again");
    (2..9).for_each(|block| assert_eq!(append(&set, 1, 1).unwrap(), block));
    assert_eq!(set.report_zone(ZoneId(1)).unwrap().state, ZoneState::Full);
    assert_eq!(members[0].report_zone(member_zone(1)).unwrap().state, ZoneState::Full, "it takes no slot");
    set.reset(ZoneId(1)).unwrap();
    assert_eq!(capacity(&set), 12, "a reset may change it");
}

/// One label zone of the last good member has failed, and the power fails while a label is written.
#[test]
fn a_member_with_a_failed_label_zone_always_has_a_label() {
    for (number, zone) in (0..3).flat_map(|number| [0, 1, 2].map(|zone| (number, ZoneId(zone)))) {
        super::plant();
        let supply = Supply::new();
        let members: Vec<Arc<Emulated>> =
            (0..2).map(|seed| Arc::new(supply.connect(Emulated::new(small().seed(seed))))).collect();
        let set = Set::create(Layout::Mirror, devices(&members), VOLUME, 0).unwrap();
        append(&set, 1, 1).unwrap();
        set.flush().unwrap();
        supply.record(&members);
        match number {
            0 => members[0].set_zone_state(zone, ZoneState::ReadOnly),
            1 => members[0].set_zone_state(zone, ZoneState::Offline),
            _ => members[0].inject(Fault::nth(CommandKind::Reset, 1, Effect::Error).on(zone).forever()),
        }
        members[1].lose_power_after(0);
        append(&set, 1, 2).unwrap();
        assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed]);
        let mut rng = fastrand::Rng::with_seed(number);
        for n in (0..=supply.commands()).flat_map(|n| [n; 12]) {
            let plans: Vec<CrashPlan> = members.iter().map(|_| random_loss(&mut rng)).collect();
            let images = supply.images_at(n, &members, &plans);
            let opened = Set::open(devices(&images[..1]), true);
            opened.unwrap_or_else(|error| panic!("{number}, {zone:?}, cut {n}, {plans:?}: {error}"));
        }
    }
}

/// Two label zones have failed: the label in the third one is not replaced, because a loss of power would leave none.
#[test]
fn the_only_label_of_a_member_is_not_replaced() {
    let members = emulated(&small(), 2);
    append(&create(Layout::Mirror, &members), 1, 1).unwrap();
    // The label is in zones 0 and 1.
    members[0].corrupt(ZoneId(1), 0, 100, 1);
    for zone in [1, 2].map(ZoneId) {
        members[0].inject(Fault::nth(CommandKind::Reset, 1, Effect::Error).on(zone).forever());
        members[0].inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(zone).forever());
    }
    let set = Set::open(devices(&members), false).unwrap();
    members[1].lose_power_after(0);
    let before = members[0].counters().of(CommandKind::Reset);
    set.flush().unwrap_err();
    members[0].clear_faults();
    let set = Set::open(devices(&members[..1]), true).unwrap();
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed]);
    assert!(members[0].counters().of(CommandKind::Reset) > before);
    assert_eq!(crate::tags(&set, 1, 0, 1), [1]);
}

#[test]
fn the_sets_of_a_volume_are_all_there_once_and_in_order() {
    let set = |fs_id: u8, number: u16, count: u16| {
        let part = Part { number, count };
        let set = Set::create_part(Layout::Mirror, devices(&emulated(&small(), 2)), FsId([fs_id; 16]), part);
        Arc::new(set.unwrap())
    };
    let volume = |sets: &[&Arc<Set>]| Set::concatenate(sets.iter().map(|&set| Arc::clone(set)).collect());
    let (first, second, third) = (set(7, 0, 3), set(7, 1, 3), set(7, 2, 3));
    append(&second, 1, 5).unwrap();
    let device = volume(&[&third, &first, &second]).unwrap();
    assert_eq!(device.geometry().zones, 15);
    assert_eq!(crate::tags(&device, 5 + 1, 0, 1), [5], "the second set is behind the first");
    let refused = |sets: &[&Arc<Set>], words: &str| {
        let Err(SetError::NotOneVolume(why)) = volume(sets) else { panic!("{words}: it is accepted") };
        assert!(why.contains(words), "{why}");
    };
    refused(&[], "no set is given");
    refused(&[&first, &second], "2 of 3 sets");
    refused(&[&first, &third], "set 1 is missing");
    refused(&[&second, &third], "set 0 is missing");
    refused(&[&first, &second, &second], "set 1 is given twice");
    refused(&[&first, &set(8, 1, 3), &third], "of volume");
    refused(&[&first, &set(7, 1, 2), &third], "3 sets");
    volume(&[&set(7, 0, 1)]).unwrap();
    // Their number is not known: the last one may be missing.
    volume(&[&set(7, 0, 0), &set(7, 1, 0)]).unwrap();
    refused(&[&set(7, 1, 0)], "set 0 is missing");
    let impossible = Set::create_part(
        Layout::Mirror,
        devices(&emulated(&small(), 2)),
        VOLUME,
        Part { number: 2, count: 2 },
    );
    assert!(matches!(impossible, Err(SetError::Unsuitable(_))));
}

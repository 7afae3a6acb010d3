//! Labels of members: which members count.

use std::sync::Arc;

use super::cuts::{Case, random_loss, small};
use super::{LABEL_ZONES, VOLUME, create, devices, emulated, member_zone};
use crate::zone::set::{Layout, MemberState, Set, SetError};
use crate::zone::{Device, DeviceError, FsId, ZoneId, ZoneState};
use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault, Spec};

fn refused(devices: Vec<Arc<dyn Device>>, degraded: bool) -> SetError {
    Set::open(devices, degraded).err().expect("it is refused")
}

fn use_it(set: &Set, tag: u8) {
    set.append(ZoneId(1), &crate::pattern(set, tag, 1)).unwrap();
    set.flush().unwrap();
}

#[test]
fn a_member_that_was_missing_is_stale() {
    let members = emulated(&small(), 2);
    use_it(&create(Layout::Mirror, &members), 1);
    let alone = || devices(&members[..1]);
    assert!(matches!(refused(alone(), false), SetError::Missing { missing: 1, width: 2, tolerated: true }));
    let set = Set::open(alone(), true).unwrap();
    assert_eq!((set.generation(), set.fs_id()), (2, VOLUME));
    use_it(&set, 2);
    let error = refused(devices(&members), false);
    assert!(matches!(error, SetError::Missing { missing: 1, .. }), "{error}");
    let set = Set::open(devices(&members), true).unwrap();
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed]);
    assert_eq!(crate::tags(&set, 1, 0, 2), [1, 2]);
    assert_eq!(set.generation(), 2, "nothing has changed");
}

#[test]
fn members_that_were_used_apart_are_refused() {
    for more in [false, true] {
        let members = emulated(&small(), 2);
        use_it(&create(Layout::Mirror, &members), 1);
        use_it(&Set::open(devices(&members[..1]), true).unwrap(), 2);
        use_it(&Set::open(devices(&members[1..]), true).unwrap(), 3);
        if more {
            // One of them has a greater generation: that decides nothing.
            let three = emulated(&small(), 3);
            use_it(&create(Layout::Mirror, &three), 1);
            use_it(&Set::open(devices(&three[..2]), true).unwrap(), 2);
            use_it(&Set::open(devices(&three[..1]), true).unwrap(), 2);
            use_it(&Set::open(devices(&three[2..]), true).unwrap(), 3);
            assert!(matches!(refused(devices(&three), true), SetError::Divided(..)));
        }
        assert!(matches!(refused(devices(&members), true), SetError::Divided(..)));
    }
}

#[test]
fn devices_that_do_not_belong_together_are_refused() {
    let (one, other) = (emulated(&small(), 2), emulated(&small(), 2));
    create(Layout::Mirror, &one);
    Set::create(Layout::Mirror, devices(&other), FsId([8; 16]), 0).unwrap();
    let mixed = vec![Arc::clone(&one[0]), Arc::clone(&other[1])];
    assert!(matches!(refused(devices(&mixed), true), SetError::Foreign(_)));
    let same = vec![Arc::clone(&one[0]), Arc::clone(&one[0])];
    assert!(matches!(refused(devices(&same), true), SetError::Duplicate(0, 1)));
    let empty = vec![Arc::clone(&one[0]), Arc::new(Emulated::new(small()))];
    assert!(matches!(refused(devices(&empty), true), SetError::Unlabelled(1)));
    assert!(matches!(refused(Vec::new(), true), SetError::Unsuitable(_)));
    let set = Set::create(Layout::Mirror, devices(&other), VOLUME, 1).unwrap();
    drop(set);
    let sets = vec![Arc::clone(&one[0]), Arc::clone(&other[1])];
    assert!(matches!(refused(devices(&sets), true), SetError::Foreign(_)), "another set of the volume");
}

#[test]
fn devices_of_another_set_become_empty_members_of_a_new_one() {
    let members = emulated(&small(), 3);
    use_it(&create(Layout::Mirror, &members), 1);
    // The devices have labels of several generations.
    for count in [2, 1] {
        use_it(&Set::open(devices(&members[..count]), true).unwrap(), 2);
    }
    members[1].append(ZoneId(7), &[1; 512]).unwrap();
    let set = Set::create(Layout::STRIPE, devices(&members), FsId([9; 16]), 0).unwrap();
    assert!(set.report().unwrap().iter().all(|info| info.state == ZoneState::Empty));
    for member in &members {
        assert!(
            member.report().unwrap()[LABEL_ZONES as usize..]
                .iter()
                .all(|info| info.state == ZoneState::Empty)
        );
    }
    for zone in [0, 1] {
        // Nor is the old one found when a label is damaged.
        members[0].corrupt(ZoneId(zone), 0, 100, 1);
        assert_eq!(Set::open(devices(&members), false).unwrap().fs_id(), FsId([9; 16]));
    }
}

/// The power fails while a set is made of devices of another one. Neither is opened with zones of the other.
#[test]
fn a_set_that_was_not_completely_made_is_not_mixed_with_the_one_before() {
    let (set, supply, members) = Case { layout: Layout::Mirror, specs: vec![small(); 2], seed: 4 }.set();
    use_it(&set, 1);
    use_it(&Set::open(devices(&members[..1]), true).unwrap(), 2);
    let before = supply.commands();
    Set::create(Layout::Mirror, devices(&members), FsId([9; 16]), 0).unwrap();
    let (mut rng, mut counts) = (fastrand::Rng::with_seed(1), [0; 3]);
    for n in (before..=supply.commands()).flat_map(|n| [n; 8]) {
        let plans: Vec<CrashPlan> = members.iter().map(|_| random_loss(&mut rng)).collect();
        let images = supply.images_at(n, &members, &plans);
        match Set::open(devices(&images), true) {
            Ok(set) if set.fs_id() == FsId([9; 16]) => {
                assert!(set.report().unwrap().iter().all(|info| info.state == ZoneState::Empty));
                counts[0] += 1;
            }
            Ok(set) => {
                assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed], "cut {n}, {plans:?}");
                counts[1] += 1;
            }
            Err(_) => counts[2] += 1,
        }
    }
    assert!(counts.iter().all(|&count| count > 8), "{counts:?}");
}

/// Changes bytes of the label in one label zone. Its checksum is right.
fn change_label(member: &Emulated, zone: ZoneId, at: usize, bytes: &[u8]) {
    let mut block = vec![0; 512];
    member.read(zone, 0, &mut block).unwrap();
    block[at..at + bytes.len()].copy_from_slice(bytes);
    block[8..12].fill(0);
    let sum = crate::zone::format::checksum(&[&block]);
    block[8..12].copy_from_slice(&sum.to_le_bytes());
    member.reset(zone).unwrap();
    member.append(zone, &block).unwrap();
    member.finish(zone).unwrap();
}

#[test]
fn a_label_of_a_later_release_is_refused_although_an_older_one_is_there() {
    for (zone, position) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let members = emulated(&small(), 2);
        use_it(&create(Layout::Mirror, &members), 1);
        change_label(&members[position], ZoneId(zone), 12, &2u32.to_le_bytes());
        let error = refused(devices(&members), true);
        assert!(matches!(error, SetError::Unknown(at, _) if at == position), "{error}");
        assert!(error.to_string().contains("needs"), "{error}");
    }
}

#[test]
fn a_generation_near_its_maximum_is_refused() {
    let members = emulated(&small(), 2);
    use_it(&create(Layout::Mirror, &members), 1);
    for zone in [0, 1] {
        change_label(&members[0], ZoneId(zone), 32, &((1u64 << 62) - 1).to_le_bytes());
    }
    let error = refused(devices(&members), true);
    assert!(matches!(error, SetError::Unsuitable(_)), "{error}");
    Set::create(Layout::Mirror, devices(&members), VOLUME, 0).unwrap();
}

#[test]
fn a_stale_member_does_not_count_again_when_a_label_is_damaged() {
    // The second label is in zones 2 and 0, and zone 1 has the first one.
    for (zone, other) in [(0, 2), (2, 0)] {
        let members = emulated(&small(), 2);
        use_it(&create(Layout::Mirror, &members), 1);
        use_it(&Set::open(devices(&members[..1]), true).unwrap(), 2);
        members[0].corrupt(ZoneId(zone), 0, 100, 1);
        let set = Set::open(devices(&members), true).unwrap();
        assert_eq!((set.generation(), set.members()[1]), (2, MemberState::Failed), "zone {zone}");
        assert_eq!(crate::tags(&set, 1, 0, 2), [1, 2]);
        // The damaged one was written again.
        members[0].corrupt(ZoneId(other), 0, 100, 1);
        assert_eq!(Set::open(devices(&members), true).unwrap().members()[1], MemberState::Failed);
    }
}

/// The power fails while the second member is excluded. The set is opened, used and closed, and then a label of the
/// first member is damaged.
#[test]
fn a_label_that_was_not_completely_written_is_completed_at_the_next_opening() {
    let (set, supply, members) = Case { layout: Layout::Mirror, specs: vec![small(); 3], seed: 5 }.set();
    members[1].lose_power_after(0);
    use_it(&set, 1);
    let mut excluded = 0;
    for n in 0..=supply.commands() {
        let mut rng = fastrand::Rng::with_seed(n);
        let plans: Vec<CrashPlan> = members.iter().map(|_| random_loss(&mut rng)).collect();
        let images = supply.images_at(n, &members, &plans);
        let set = Set::open(devices(&images), true).unwrap();
        if set.members()[1] == MemberState::Counts {
            continue;
        }
        excluded += 1;
        for (member, zone) in [0, 2].into_iter().flat_map(|member| [0, 1, 2].map(|zone| (member, zone))) {
            if !images[member].is_written(ZoneId(zone), 0) {
                continue;
            }
            images[member].corrupt(ZoneId(zone), 0, 100, 1);
            // The other one of the two that count is missing.
            let found = refused(devices(&[Arc::clone(&images[1]), Arc::clone(&images[member])]), false);
            assert!(matches!(found, SetError::Missing { missing: 2, .. }), "cut {n}: {found}");
            images[member].corrupt(ZoneId(zone), 0, 100, 1);
        }
    }
    assert!(excluded > 4, "{excluded}");
}

#[test]
fn a_label_zone_that_fails_does_not_make_its_member_fail() {
    let broken: [fn(&Emulated, ZoneId); 5] = [
        |member, zone| member.set_zone_state(zone, ZoneState::ReadOnly),
        |member, zone| member.set_zone_state(zone, ZoneState::Offline),
        |member, zone| member.inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(zone).forever()),
        |member, zone| member.inject(Fault::nth(CommandKind::Reset, 1, Effect::Error).on(zone).forever()),
        |member, zone| member.inject(Fault::nth(CommandKind::Finish, 1, Effect::Error).on(zone).forever()),
    ];
    for (index, zone) in (0..broken.len()).flat_map(|index| [0, 1, 2].map(|zone| (index, ZoneId(zone)))) {
        let members = emulated(&small(), 2);
        let set = create(Layout::Mirror, &members);
        use_it(&set, 1);
        broken[index](&members[0], zone);
        // The member with the broken label zone is the last good copy, and must say so.
        members[1].lose_power_after(0);
        use_it(&set, 2);
        assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed], "{index}, {zone:?}");
        members[1].clear_faults();
        let set = Set::open(devices(&members), true).unwrap();
        assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed], "{index}, {zone:?}");
        assert_eq!(crate::tags(&set, 1, 0, 2), [1, 2]);
    }
}

/// One label zone is read-only and has an old label. The newest one was in the other zones, which are damaged.
#[test]
fn an_old_label_in_a_read_only_zone_is_not_used() {
    for zone in [0, 1] {
        let members = emulated(&small(), 3);
        let set = create(Layout::Mirror, &members);
        members[0].set_zone_state(ZoneId(zone), ZoneState::ReadOnly);
        members[1].lose_power_after(0);
        use_it(&set, 1);
        members[1].clear_faults();
        let others = [1 - zone, 2].map(ZoneId);
        // One damaged block is not enough.
        members[0].corrupt(others[0], 0, 100, 1);
        let set = Set::open(devices(&members), true).unwrap();
        assert_eq!(set.members()[1], MemberState::Failed);
        drop(set);
        others.iter().for_each(|&other| members[0].corrupt(other, 0, 100, 1));
        assert!(matches!(refused(devices(&members), true), SetError::LabelLost(0)));
        others.iter().for_each(|&other| members[0].reset(other).unwrap());
        assert!(matches!(refused(devices(&members), true), SetError::LabelLost(0)));
        let set = Set::open(devices(&members[1..]), true).unwrap();
        assert_eq!(set.members(), [MemberState::Failed, MemberState::Failed, MemberState::Counts]);
    }
}

/// The cause is reported, and the member is missing instead of having no label.
#[test]
fn labels_that_cannot_be_read_make_a_member_missing() {
    let members = emulated(&small(), 2);
    use_it(&create(Layout::Mirror, &members), 1);
    (0..2).for_each(|zone| members[0].make_unreadable(ZoneId(zone), 0));
    assert!(matches!(refused(devices(&members), false), SetError::Missing { missing: 1, .. }));
    let error = refused(devices(&members[..1]), true);
    assert!(matches!(error, SetError::Device(DeviceError::Io { .. })), "{error}");
    assert_eq!(Set::open(devices(&members), true).unwrap().members()[0], MemberState::Failed);
}

#[test]
fn a_member_that_cannot_be_read_at_opening_counts_as_missing() {
    let members = emulated(&small(), 2);
    use_it(&create(Layout::Mirror, &members), 1);
    members[0].lose_power_after(0);
    assert!(matches!(refused(devices(&members), false), SetError::Missing { missing: 1, .. }));
    let set = Set::open(devices(&members), true).unwrap();
    assert_eq!(set.members(), [MemberState::Failed, MemberState::Counts]);
    members[1].lose_power_after(0);
    assert!(matches!(refused(devices(&members), true), SetError::Device(_)));
}

#[test]
fn unsuitable_devices_make_no_set() {
    let unlike = vec![Arc::new(Emulated::new(small())), Arc::new(Emulated::new(Spec::tiny()))];
    let error = Set::create(Layout::Mirror, devices(&unlike), VOLUME, 0).err().unwrap();
    assert!(error.to_string().contains("blocks of 512 and of 4096 bytes"), "{error}");
}

/// The killed process had written a label and not flushed it. The next label replaces the other one, so the first must
/// be durable by then.
#[test]
fn a_label_is_there_after_a_kill_and_a_loss_of_power() {
    let (set, supply, members) = Case { layout: Layout::Mirror, specs: vec![small(); 3], seed: 1 }.set();
    members[1].lose_power_after(0);
    use_it(&set, 1);
    let mut states = 0;
    for n in 0..=supply.commands() {
        let killed = supply.killed_at(n, &members);
        let supply = Arc::clone(killed[0].supply().unwrap());
        let before = supply.commands();
        // The third member is missing: opening the set writes a label.
        let set = Set::open(devices(&killed[..1]), true).unwrap();
        use_it(&set, 2);
        let mut rng = fastrand::Rng::with_seed(n);
        for cut in (before..=supply.commands()).flat_map(|cut| [cut; 6]) {
            let plans: Vec<CrashPlan> = killed.iter().map(|_| random_loss(&mut rng)).collect();
            let images = supply.images_at(cut, &killed, &plans);
            let opened = Set::open(devices(&images[..1]), true);
            opened.unwrap_or_else(|error| panic!("killed at {n}, cut {cut}, {plans:?}: {error}"));
            states += 1;
        }
    }
    assert!(states > 100, "{states}");
}

/// The finish of a zone was undone, so the member has no slot for the label that excludes the missing one.
#[test]
fn a_member_without_a_slot_frees_one_for_its_label() {
    let members = emulated(&Spec::new(512, 16, 6).limits(7, 7), 2);
    let set = create(Layout::Mirror, &members);
    (0..6).for_each(|zone| assert_eq!(set.append(ZoneId(zone), &crate::pattern(&set, 1, 1)).unwrap(), 0));
    set.flush().unwrap();
    members[0].append(member_zone(7), &[1; 512]).unwrap();
    let set = Set::open(devices(&members[..1]), true).unwrap();
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed]);
    let active = set.report().unwrap().iter().filter(|info| info.state.is_active()).count();
    assert!(active <= 6, "{active}");
}

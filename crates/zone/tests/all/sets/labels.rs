//! Labels of members: which members count.

use std::sync::Arc;

use super::cuts::{Case, random_loss, small};
use super::{VOLUME, create, devices, emulated};
use crate::zone::set::{Layout, MemberState, Set, SetError};
use crate::zone::{Device, FsId, ZoneId};
use emulated::{CrashPlan, Emulated, Spec};

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
    assert_eq!((set.generation(), set.fs_id()), (3, VOLUME));
    use_it(&set, 2);
    let error = refused(devices(&members), false);
    assert!(matches!(error, SetError::Missing { missing: 1, .. }), "{error}");
    let set = Set::open(devices(&members), true).unwrap();
    assert_eq!(set.members(), [MemberState::Counts, MemberState::Failed]);
    assert_eq!(crate::tags(&set, 1, 0, 2), [1, 2]);
    assert_eq!(set.generation(), 3, "nothing has changed");
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
fn devices_of_another_set_become_members_of_a_new_one() {
    let members = emulated(&small(), 3);
    use_it(&create(Layout::Mirror, &members), 1);
    for count in [2, 1] {
        let set = Set::open(devices(&members[..count]), true).unwrap();
        set.reset(ZoneId(1)).unwrap();
    }
    let old = Set::open(devices(&members[..1]), true).unwrap().generation();
    let set = Set::create(Layout::STRIPE, devices(&members), FsId([9; 16]), 0).unwrap();
    assert!(set.generation() > old);
    for zone in [0, 1] {
        // Nor is the old one found when a label is damaged.
        members[0].corrupt(ZoneId(zone), 0, 100, 1);
        assert_eq!(Set::open(devices(&members), false).unwrap().fs_id(), FsId([9; 16]));
        members[0].corrupt(ZoneId(zone), 0, 100, 1);
    }
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

#[test]
fn either_label_zone_may_be_lost() {
    for zone in [0, 1] {
        let members = emulated(&small(), 2);
        use_it(&create(Layout::Mirror, &members), 1);
        use_it(&Set::open(devices(&members[..1]), true).unwrap(), 2);
        // The older label of the member is in one zone, the newer one in the other.
        members[0].corrupt(ZoneId(zone), 0, 100, 1);
        let generation = Set::open(devices(&members[..1]), true).unwrap().generation();
        assert!(generation == 3 || generation == 4, "{generation}");
    }
}

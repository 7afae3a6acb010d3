//! Zones that a member lacks, and what recovery may believe of a member.

use super::cuts::{Case, random_loss, small};
use super::model::{Counts, Model, Op, execute};
use super::{create, devices, emulated, member_zone};
use crate::zone::format::{HeaderError, decode_header};
use crate::zone::set::{Layout, MemberState, Set};
use crate::zone::{Device, DeviceError, ZoneId, ZoneState};
use emulated::{CommandKind, CrashPlan, Effect, Fault};

/// A mirror with flushed data in three zones, which one member has lost.
fn with_lost_zones(
    width: usize,
    lost: usize,
) -> (std::sync::Arc<emulated::Supply>, Vec<std::sync::Arc<emulated::Emulated>>, Model) {
    let case = Case { layout: Layout::Mirror, specs: vec![small(); width], seed: 9 };
    let (set, supply, members) = case.set();
    let mut model = Model::new(&set);
    let ops = [
        Op::Append(0, 1),
        Op::Append(0, 4),
        Op::Append(1, 1),
        Op::Append(1, 6),
        Op::Append(2, 1),
        Op::Append(2, 3),
        Op::Finish(2),
        Op::Flush,
    ];
    execute(&set, &model, &ops, || 0);
    ops.iter().for_each(|&op| model.note(op, &set));
    [1, 2].iter().for_each(|&zone| members[lost].reset(member_zone(zone)).unwrap());
    members[lost].flush().unwrap();
    supply.record(&members);
    (supply, members, model)
}

/// The set has everything that was flushed, on each member that counts.
fn check(set: &Set, model: &Model) -> Result<(), String> {
    model.check(set)?;
    let copies = model.check_copies(set)?;
    let expected = (5 + 7 + 4) * set.copies(ZoneId(0), 0) as usize;
    if copies != expected { Err(format!("{copies} copies, not {expected}")) } else { Ok(()) }
}

#[test]
fn a_zone_that_a_member_lost_survives_losses_of_power_while_it_is_copied() {
    let mut counts = Counts::default();
    for (width, lost) in [(2, 0), (2, 1), (3, 1)] {
        let (supply, members, model) = with_lost_zones(width, lost);
        check(&Set::open(devices(&members), false).unwrap(), &model).unwrap();
        let mut rng = fastrand::Rng::with_seed(lost as u64);
        for n in 0..=supply.commands() {
            for number in 0..24 {
                let plans: Vec<CrashPlan> = match number {
                    0 => vec![CrashPlan::LoseContents; width],
                    1 => vec![CrashPlan::LoseContents.full_active(); width],
                    2 => vec![CrashPlan::LoseAllUndoResets; width],
                    _ => members.iter().map(|_| random_loss(&mut rng)).collect(),
                };
                let images = supply.images_at(n, &members, &plans);
                let what = || format!("{width} members, cut {n}, {plans:?}");
                let second = std::sync::Arc::clone(images[0].supply().unwrap());
                second.record(&images);
                let set =
                    Set::open(devices(&images), false).unwrap_or_else(|why| panic!("{}: {why}", what()));
                check(&set, &model).unwrap_or_else(|why| panic!("{}: {why}", what()));
                counts.add("states", 1);
                if number % 8 > 0 {
                    continue;
                }
                // The power fails again, while the zone is copied once more.
                for _ in 0..8 {
                    let n = rng.u64(0..=second.commands());
                    let plans: Vec<CrashPlan> = images.iter().map(|_| random_loss(&mut rng)).collect();
                    let cut = second.images_at(n, &images, &plans);
                    let set = Set::open(devices(&cut), false).unwrap();
                    check(&set, &model)
                        .unwrap_or_else(|why| panic!("{}, then {n}, {plans:?}: {why}", what()));
                    counts.add("second cuts", 1);
                }
            }
        }
    }
    println!("{counts:?}");
    assert!(counts.0["states"] > 1500 && counts.0["second cuts"] > 1500, "{counts:?}");
}

/// The member whose zone is being copied fails, or the one from which it is copied.
#[test]
fn a_member_fails_while_a_zone_is_copied() {
    for (failing, after) in
        [0, 1, 2].into_iter().flat_map(|failing| (0..60).map(move |after| (failing, after)))
    {
        let (supply, members, model) = with_lost_zones(3, 1);
        members[failing].lose_power_after(after);
        let what = format!("member {failing} fails after {after}");
        let set = Set::open(devices(&members), true).unwrap_or_else(|why| panic!("{what}: {why}"));
        check(&set, &model).unwrap_or_else(|why| panic!("{what}: {why}"));
        let mut rng = fastrand::Rng::with_seed(after);
        for _ in 0..4 {
            let n = rng.u64(0..=supply.commands());
            let plans: Vec<CrashPlan> = members.iter().map(|_| random_loss(&mut rng)).collect();
            let cut = supply.images_at(n, &members, &plans);
            let set = Set::open(devices(&cut), true).unwrap_or_else(|why| panic!("{what}, cut {n}: {why}"));
            check(&set, &model).unwrap_or_else(|why| panic!("{what}, cut {n}, {plans:?}: {why}"));
        }
    }
}

/// The zone cannot be written: it is empty again, and its superzone takes no writes.
#[test]
fn a_copy_that_fails_leaves_nothing_behind() {
    let (_, members, _) = with_lost_zones(2, 1);
    members[1].inject(Fault::nth(CommandKind::Append, 2, Effect::Torn(0)).on(member_zone(1)));
    members[1].inject(Fault::nth(CommandKind::Finish, 1, Effect::Error).on(member_zone(1)));
    let set = Set::open(devices(&members), false).unwrap();
    assert_eq!(set.members(), [MemberState::Counts; 2]);
    assert_eq!(members[1].report_zone(member_zone(1)).unwrap().state, ZoneState::Empty);
    assert_eq!(set.report_zone(ZoneId(1)).unwrap().state, ZoneState::ReadOnly);
    // It is not taken for lost, and not believed either.
    let read = set.read(ZoneId(1), 1, &mut [0; 512]);
    assert!(matches!(read, Err(DeviceError::Io { zone: ZoneId(1), .. })), "{read:?}");
    set.end_recovery();
    set.read(ZoneId(1), 1, &mut [0; 512]).unwrap();
}

/// The only member that is left has a copy that is not complete.
#[test]
fn an_incomplete_copy_takes_no_writes_when_its_source_is_missing() {
    let (supply, members, _) = with_lost_zones(2, 1);
    Set::open(devices(&members), false).unwrap();
    let mut copying = 0;
    for n in 0..=supply.commands() {
        let images = supply.images_at(n, &members, &[CrashPlan::KeepAll, CrashPlan::KeepAll]);
        let state = images[1].report_zone(member_zone(1)).unwrap().state;
        copying += u32::from(state.is_active());
        let set = Set::open(devices(&images[1..]), true).unwrap();
        assert!(!set.report_zone(ZoneId(1)).unwrap().state.is_active(), "cut {n}");
        assert_eq!(set.members(), [MemberState::Failed, MemberState::Counts]);
        let again = Set::open(devices(&images[1..]), true).unwrap();
        assert_eq!(again.generation(), set.generation(), "cut {n}: nothing is left to do");
    }
    assert!(copying > 0, "the zone was partly written");
}

#[test]
fn recovery_does_not_accept_a_block_that_one_member_cannot_read() {
    for position in [0, 1] {
        let members = emulated(&small(), 2);
        let set = create(Layout::Mirror, &members);
        (0..3).for_each(|tag| {
            assert_eq!(set.append(ZoneId(1), &crate::pattern(&set, tag, 1)).unwrap(), u32::from(tag))
        });
        members[position].make_unreadable(member_zone(1), 1);
        let mut block = [9; 512];
        let read = set.read(ZoneId(1), 1, &mut block);
        assert!(matches!(read, Err(DeviceError::Io { zone: ZoneId(1), .. })), "{read:?}");
        assert_eq!(set.members(), [MemberState::Counts; 2], "it can be used otherwise");
        set.read_copy(ZoneId(1), 1, 1 - position as u32, &mut block).unwrap();
        set.read(ZoneId(1), 2, &mut block).unwrap();
        assert_eq!(block[0], 2);
        // Without this member, the other one decides.
        let set = Set::open(devices(&members[1 - position..=1 - position]), true).unwrap();
        assert_eq!(crate::tags(&set, 1, 0, 3), [0, 1, 2]);
    }
}

#[test]
fn a_header_that_differs_between_members_reads_as_damaged() {
    let case = Case { layout: Layout::Mirror, specs: vec![small(); 2], seed: 1 };
    for position in [0, 1] {
        let (set, _, members) = case.set();
        let model = Model::new(&set);
        execute(&set, &model, &[Op::Append(1, 1), Op::Append(1, 5), Op::Finish(1), Op::Flush], || 0);
        members[position].corrupt(member_zone(1), 0, 40, 1);
        let set = Set::open(devices(&members), false).unwrap();
        let mut block = vec![0; 6 * 512];
        set.read(ZoneId(1), 0, &mut block).unwrap();
        assert_eq!(decode_header(&block[..512]).err(), Some(HeaderError::Damaged));
        assert_eq!(&block[512..516], b"TAG.", "the blocks behind it are equal");
        let good = (0..2).filter(|&copy| {
            set.read_copy(ZoneId(1), 0, copy, &mut block[..512]).unwrap();
            decode_header(&block[..512]).is_ok()
        });
        assert_eq!(good.count(), 1);
    }
}

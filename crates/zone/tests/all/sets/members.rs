//! Members of a set fail: as a whole, or one command of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cuts::{Case, random_loss, small};
use super::model::{Counts, Model, Op, execute};
use super::{create, devices, emulated, member_zone};
use crate::zone::set::{Layout, MemberState, Overlay, Set, SetError};
use crate::zone::{Command, Device, DeviceError, Geometry, ZoneId, ZoneInfo, ZoneState};
use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault, Spec};

/// How many workloads of each case are tried.
fn rounds() -> u64 {
    std::env::var("POLDER_SET_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

fn mirror(width: usize, seed: u64) -> Case {
    Case { layout: Layout::Mirror, specs: vec![small(); width], seed }
}

#[test]
fn a_mirror_loses_a_member_at_every_command_and_then_its_power() {
    let mut counts = Counts::default();
    for (width, seed) in [2, 3].into_iter().flat_map(|width| (0..rounds()).map(move |seed| (width, seed))) {
        let all = mirror(width, seed).run(40);
        let changes = all.members[0].commands();
        // The first member is asked first, and the last one last.
        for (lost, after) in [0, width - 1].into_iter().flat_map(|lost| (0..changes).map(move |n| (lost, n)))
        {
            let case = mirror(width, seed);
            let run = case.run_with(40, |members| members[lost].lose_power_after(after));
            counts.add("losses", 1);
            let mut rng = fastrand::Rng::with_seed(after);
            let end = run.supply.commands();
            // Directly after the loss, the labels are written.
            let lost_at = (0..=end).find(|&n| run.supply.commands_at(n)[lost] == after).unwrap();
            for n in lost_at..=end {
                if n - lost_at >= 24 && rng.u32(0..8) > 0 {
                    continue;
                }
                let model = run.empty.at(&run.set, &run.done, n);
                let plans: Vec<CrashPlan> = (0..width).map(|_| random_loss(&mut rng)).collect();
                let images = run.supply.images_at(n, &run.members, &plans);
                let set = Set::open(devices(&images), true).unwrap();
                let checked = model.check(&set).and_then(|()| set.flush().map_err(|error| error.to_string()));
                let checked = checked.and_then(|()| model.check_copies(&set));
                checked.unwrap_or_else(|why| {
                    panic!("{case:?}: {lost} lost at {after}, cut {n}, {plans:?}: {why}")
                });
                counts.add("states", 1);
                let failed = set.members().iter().filter(|state| **state == MemberState::Failed).count();
                counts.add("states without the member", failed);
            }
        }
    }
    println!("{counts:?}");
    let without = counts.0["states without the member"];
    assert!(counts.0["states"] > 1000 && without > 500 && without < counts.0["states"], "{counts:?}");
}

/// Faults of one command, and whether data survives in a layout without copies.
fn faults() -> Vec<(CommandKind, Effect, bool)> {
    vec![
        (CommandKind::Append, Effect::Error, true),
        (CommandKind::Append, Effect::Torn(1), true),
        (CommandKind::Append, Effect::HostFull, true),
        (CommandKind::Append, Effect::TurnReadOnly(1), true),
        (CommandKind::Append, Effect::TurnOffline, false),
        (CommandKind::Open, Effect::Error, true),
        (CommandKind::Finish, Effect::Error, true),
        (CommandKind::Reset, Effect::Error, true),
        (CommandKind::Flush, Effect::Error, true),
        (CommandKind::Flush, Effect::LoseCache(2), false),
    ]
}

#[test]
fn a_command_of_one_member_fails() {
    let mut counts = Counts::default();
    let layouts = [(Layout::Mirror, 2), (Layout::Mirror, 3), (Layout::Stripe { chunk: 2 }, 2)];
    for (layout, width) in layouts {
        for (kind, effect, survives) in faults() {
            if layout != Layout::Mirror && !survives {
                continue;
            }
            for (position, nth) in [0, width - 1].into_iter().flat_map(|at| (1..25).map(move |nth| (at, nth)))
            {
                let case = Case { layout, specs: vec![small(); width], seed: nth };
                let what = format!("{layout:?} of {width}: {kind:?} {nth} of {position}: {effect:?}");
                one_fault(&case, position, Fault::nth(kind, nth, effect), &mut counts)
                    .unwrap_or_else(|why| panic!("{what}: {why}"));
            }
        }
    }
    println!("{counts:?}");
    assert!(counts.0["operations failed"] > 300 && counts.0["states"] > 1000, "{counts:?}");
}

/// Executes a workload until an operation fails, and compares at once, after a loss of power, and after more work.
fn one_fault(case: &Case, position: usize, fault: Fault, counts: &mut Counts) -> Result<(), String> {
    let (set, supply, members) = case.set();
    let mut flushed = Model::new(&set);
    let ops = super::model::workload(&flushed, &set, 50, case.seed);
    members[position].inject(fault);
    for op in ops {
        let Err(error) = flushed.execute(&set, op) else { continue };
        match set.flush() {
            Ok(()) => flushed.note(Op::Flush, &set),
            // A stripe without one of its members cannot be used until it is opened again.
            Err(_) => assert_ne!(case.layout, Layout::Mirror, "{op:?}: {error}"),
        }
        counts.add("operations failed", 1);
        flushed.begin(op, &set);
        break;
    }
    members[position].clear_faults();
    let mut rng = fastrand::Rng::with_seed(supply.commands());
    for _ in 0..3 {
        let plans: Vec<CrashPlan> = members.iter().map(|_| random_loss(&mut rng)).collect();
        let images = supply.images_at(supply.commands(), &members, &plans);
        let set = Set::open(devices(&images), true).map_err(|error| error.to_string())?;
        flushed.check(&set).map_err(|error| format!("{plans:?}: {error}"))?;
        counts.add("states", 1);
    }
    if set.report().is_err() {
        return Ok(());
    }
    // What was appended is there without a flush, and every zone that still can be used is used.
    flushed.check(&set)?;
    let mut found = Model::found(&set, &flushed);
    for op in found.next_ops(&set) {
        found.execute(&set, op).map_err(|error| format!("{op:?}: {error}"))?;
    }
    set.flush().map_err(|error| error.to_string())?;
    found.execute(&set, Op::Flush).map_err(|error| error.to_string())?;
    let set = Set::open(devices(&members), true).map_err(|error| error.to_string())?;
    found.check(&set)
}

fn append(set: &dyn Device, zone: u32, tag: u8) -> Result<u32, DeviceError> {
    set.append(ZoneId(zone), &crate::pattern(set, tag, 1))
}

#[test]
fn a_mirror_without_members_fails_for_good() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    append(&set, 1, 1).unwrap();
    members[0].lose_power_after(0);
    append(&set, 1, 2).unwrap();
    assert_eq!(set.members(), [MemberState::Failed, MemberState::Counts]);
    members[1].lose_power_after(0);
    append(&set, 1, 3).unwrap_err();
    // It works again, but a label may be durable of which the set does not know.
    members[1].clear_faults();
    let refused =
        [append(&set, 1, 3).map(|_| ()), set.flush(), set.reset(ZoneId(1)), set.report().map(|_| ())];
    for refusal in refused {
        assert!(matches!(refusal, Err(DeviceError::Unusable(_))), "{refusal:?}");
    }
    let set = Set::open(devices(&members[1..]), true).unwrap();
    assert_eq!(crate::tags(&set, 1, 0, 2), [1, 2]);
}

#[test]
fn a_stripe_that_loses_a_member_cannot_be_used() {
    let members = emulated(&small(), 3);
    let set = create(Layout::STRIPE, &members);
    append(&set, 1, 1).unwrap();
    members[2].lose_power_after(0);
    assert!(set.flush().is_err() && append(&set, 2, 1).is_err());
    let missing = Set::open(devices(&members[..2]), true).err().unwrap();
    assert!(matches!(missing, SetError::Missing { missing: 1, width: 3, tolerated: false }), "{missing}");
}

#[test]
fn a_read_takes_another_copy_if_one_fails() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    (0..4).for_each(|tag| assert_eq!(append(&set, 1, tag).unwrap(), u32::from(tag)));
    set.flush().unwrap();
    members[0].make_unreadable(member_zone(1), 1);
    members[1].make_unreadable(member_zone(1), 2);
    members[1].corrupt(member_zone(1), 3, 7, 0xff);
    // Until recovery has ended, blocks that are not equal on all members are zeros, and every copy must be readable.
    let mut block = vec![1; 512];
    for (number, tag) in [(0, Some(0)), (1, None), (2, None), (3, Some(0))] {
        let read = set.read(ZoneId(1), number, &mut block).map(|()| block[0]);
        assert_eq!(read.ok(), tag, "block {number}");
    }
    assert_eq!(set.members(), [MemberState::Counts; 2]);
    let mut blocks = vec![1; 4 * 512];
    set.end_recovery();
    for (block, into) in (0..3).zip(blocks.chunks_mut(512)) {
        set.read(ZoneId(1), block, into).unwrap();
    }
    assert_eq!(blocks.chunks(512).map(|block| block[0]).collect::<Vec<_>>(), [0, 1, 2, 1]);
    // A batch takes another copy too, and what fails in it does not affect the rest.
    let mut blocks = vec![1; 4 * 512];
    let mut parts = blocks.chunks_mut(512);
    let mut unwritten = [0; 512];
    let mut batch: Vec<Command<'_>> = (0..3)
        .map(|block| Command::Read { zone: ZoneId(1), block, into: parts.next().unwrap() })
        .chain([Command::Read { zone: ZoneId(2), block: 0, into: &mut unwritten }])
        .collect();
    let outputs = set.run(&mut batch);
    assert!(outputs[..3].iter().all(Result::is_ok), "{outputs:?}");
    assert!(matches!(outputs[3], Err(DeviceError::Unwritten { zone: ZoneId(2), block: 0 })), "{outputs:?}");
    assert_eq!(blocks.chunks(512).map(|block| block[0]).collect::<Vec<_>>(), [0, 1, 2, 1]);
    assert_eq!(set.copies(ZoneId(1), 3), 2);
    let copies = [0, 1].map(|copy| {
        let mut block = vec![0; 512];
        set.read_copy(ZoneId(1), 3, copy, &mut block).map(|()| block[7]).unwrap()
    });
    assert_eq!(copies, [3, 3 ^ 0xff]);
    assert!(set.read_copy(ZoneId(1), 3, 2, &mut [0; 512]).is_err(), "there is no third copy");
}

#[test]
fn a_zone_of_a_member_that_ends_makes_the_superzone_read_only() {
    for (state, layout) in [ZoneState::ReadOnly, ZoneState::Offline]
        .into_iter()
        .flat_map(|state| [Layout::Mirror, Layout::Stripe { chunk: 1 }].map(|layout| (state, layout)))
    {
        let members = emulated(&small(), 2);
        let set = create(layout, &members);
        (0..4).for_each(|tag| assert_eq!(append(&set, 1, tag).unwrap(), u32::from(tag)));
        members[1].set_zone_state(member_zone(1), state);
        assert_eq!(set.report_zone(ZoneId(1)).unwrap().state, ZoneState::ReadOnly);
        assert_eq!(set.report().unwrap()[1].state, ZoneState::ReadOnly);
        assert!(matches!(append(&set, 1, 9), Err(DeviceError::ReadOnly(ZoneId(1)))));
        assert!(set.reset(ZoneId(1)).is_err() && set.finish(ZoneId(1)).is_err());
        let is_lost = layout != Layout::Mirror && state == ZoneState::Offline;
        for block in 0..4 {
            let mut bytes = vec![9; 512];
            let read = set.read(ZoneId(1), block, &mut bytes);
            // In the stripe, block 2 is on the second member; block 0 is on both.
            match is_lost && block == 2 {
                true => assert!(matches!(read, Err(DeviceError::Offline(ZoneId(1)))), "{read:?}"),
                false => assert!(read.is_ok() && bytes[0] == block as u8, "{layout:?} {state:?} {block}"),
            }
        }
        // Its zone on the other member takes no slot.
        for zone in 0..5 {
            if zone != 1 {
                append(&set, zone, 1).unwrap();
            }
        }
        let again = Set::open(devices(&members), false).unwrap();
        assert_eq!(again.report_zone(ZoneId(1)).unwrap().state, ZoneState::ReadOnly);
    }
}

#[test]
fn the_capacity_of_a_superzone_may_change_at_its_reset() {
    for (layout, capacity) in [(Layout::Mirror, 5), (Layout::Stripe { chunk: 2 }, 1 + 2 * 4)] {
        let members: Vec<Arc<Emulated>> = emulated(&small(), 2);
        let set = create(layout, &members);
        append(&set, 1, 1).unwrap();
        members[1].change_capacity_at_reset(member_zone(1), 5);
        set.reset(ZoneId(1)).unwrap();
        assert_eq!(set.report_zone(ZoneId(1)).unwrap().capacity, capacity);
        (0..capacity).for_each(|tag| assert_eq!(append(&set, 1, tag as u8).unwrap(), tag));
        assert_eq!(set.report_zone(ZoneId(1)).unwrap().state, ZoneState::Full);
        for member in &members {
            assert_eq!(
                member.report_zone(member_zone(1)).unwrap().state,
                ZoneState::Full,
                "it takes no slot"
            );
        }
        let set = Set::open(devices(&members), false).unwrap();
        assert_eq!(set.report_zone(ZoneId(1)).unwrap().capacity, capacity);
        assert_eq!(crate::tags(&set, 1, 0, capacity), (0..capacity as u8).collect::<Vec<u8>>());
    }
}

#[test]
fn a_mirror_repairs_a_zone_that_a_member_has_lost() {
    let members = emulated(&small(), 2);
    let set = create(Layout::Mirror, &members);
    let mut model = Model::new(&set);
    let ops =
        [Op::Append(1, 1), Op::Append(1, 6), Op::Append(2, 1), Op::Append(2, 3), Op::Finish(2), Op::Flush];
    execute(&set, &model, &ops, || 0);
    ops.iter().for_each(|&op| model.note(op, &set));
    // Someone empties two zones of the first member.
    members[0].reset(member_zone(1)).unwrap();
    members[0].reset(member_zone(2)).unwrap();
    let set = Set::open(devices(&members), false).unwrap();
    model.check(&set).unwrap();
    assert!(model.check_copies(&set).unwrap() >= 2 * (7 + 4));
    let states = [1, 2].map(|zone| set.report_zone(ZoneId(zone)).unwrap().state);
    assert_eq!(states, [ZoneState::Full; 2], "it takes no more writes");
}

#[test]
fn a_batch_reads_each_block_of_a_stripe_from_its_member() {
    for chunk in [1, 2, 5] {
        let members = emulated(&small(), 3);
        let set = create(Layout::Stripe { chunk }, &members);
        let capacity = set.report_zone(ZoneId(1)).unwrap().capacity as u8;
        (0..capacity).for_each(|tag| assert_eq!(append(&set, 1, tag).unwrap(), u32::from(tag)));
        let before: Vec<u64> = members.iter().map(|member| member.counters().of(CommandKind::Read)).collect();
        for first in 0..capacity - 7 {
            let (mut seven, mut one) = (vec![0; 7 * 512], vec![0; 512]);
            let mut batch = [
                Command::Read { zone: ZoneId(1), block: u32::from(first), into: &mut seven },
                Command::Read { zone: ZoneId(1), block: u32::from(first + 7), into: &mut one },
            ];
            assert!(set.run(&mut batch).iter().all(|output| matches!(output, Ok(0))));
            let found: Vec<u8> = seven.chunks(512).map(|block| block[0]).collect();
            assert_eq!(found, (first..first + 7).collect::<Vec<u8>>());
            assert_eq!(one[0], first + 7);
        }
        for (member, before) in members.iter().zip(before) {
            assert!(member.counters().of(CommandKind::Read) > before, "each member is read");
        }
    }
}

/// The larger member is left: the set keeps the geometry that it had with both.
#[test]
fn a_mirror_keeps_its_geometry_when_the_smaller_member_is_missing() {
    let large = Spec::new(512, 20, 14).limits(14, 14).max_append(16);
    let small = Spec::new(512, 16, 12).limits(8, 9).max_append(8);
    for left in [0, 1] {
        let members: Vec<Arc<Emulated>> =
            [large.clone(), small.clone()].map(|spec| Arc::new(Emulated::new(spec))).into();
        let set = create(Layout::Mirror, &members);
        let whole = set.geometry().clone();
        append(&set, 1, 1).unwrap();
        set.flush().unwrap();
        for degraded in [true, false] {
            let set = Set::open(devices(&members[left..=left]), true).unwrap();
            let found = Geometry { max_append: whole.max_append, ..set.geometry().clone() };
            assert_eq!(found, whole, "degraded: {degraded}");
            assert!(set.report().unwrap().iter().all(|info| info.capacity == 12));
        }
        let set = Set::open(devices(&members[left..=left]), true).unwrap();
        (1..12).for_each(|tag| assert_eq!(append(&set, 1, tag).unwrap(), u32::from(tag)));
        assert!(matches!(append(&set, 1, 1), Err(DeviceError::ZoneFull { .. })));
    }
}

/// A member is now a device with fewer zones or slots: nothing is written before it is refused.
#[test]
fn a_member_that_has_less_than_the_label_says_is_refused() {
    let members = emulated(&Spec::new(512, 20, 14).limits(9, 9).max_append(8), 2);
    append(&create(Layout::Mirror, &members), 1, 1).unwrap();
    for (spec, words) in [
        (Spec::new(512, 19, 14).limits(9, 9), "19 zones"),
        (Spec::new(512, 20, 13).limits(9, 9), "13 blocks in a zone"),
        (Spec::new(512, 20, 14).limits(8, 9), "8 open zones"),
        (Spec::new(512, 20, 14).limits(8, 8), "8 open zones"),
    ] {
        let other = Arc::new(Emulated::new(spec));
        for zone in [0, 1].map(ZoneId) {
            let mut label = vec![0; 512];
            members[0].read(zone, 0, &mut label).unwrap();
            other.append(zone, &label).unwrap();
            other.finish(zone).unwrap();
        }
        let before = other.digest();
        let error = Set::open(devices(std::slice::from_ref(&other)), true).err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(other.digest(), before, "nothing is written");
    }
}

/// Another program wrote behind the blocks that the set uses of a longer zone.
#[test]
fn a_pointer_beyond_the_used_blocks_makes_the_superzone_full() {
    for layout in [Layout::Mirror, Layout::Stripe { chunk: 2 }, Layout::Stripe { chunk: u32::MAX }] {
        for written in [0, 1, 3] {
            let specs = [Spec::new(512, 8, 14), Spec::new(512, 8, 6), Spec::new(512, 8, 14)];
            let members: Vec<Arc<Emulated>> = specs.map(|spec| Arc::new(Emulated::new(spec))).into();
            let set = create(layout, &members);
            (0..written).for_each(|tag| assert_eq!(append(&set, 1, tag).unwrap(), u32::from(tag)));
            drop(set);
            while members[2].report_zone(member_zone(1)).unwrap().pointer < 13 {
                members[2].append(member_zone(1), &[1; 512]).unwrap();
            }
            let set = Set::open(devices(&members), false).unwrap();
            let info = set.report_zone(ZoneId(1)).unwrap();
            assert!(info.pointer <= info.capacity && !info.state.is_active(), "{layout:?}: {info:?}");
            set.reset(ZoneId(1)).unwrap();
            append(&set, 1, 1).unwrap();
        }
    }
}

#[test]
fn a_stripe_whose_zones_have_one_block_has_headers_only() {
    for chunk in [1, u32::MAX] {
        let members = emulated(&Spec::new(512, 8, 1), 3);
        let set = create(Layout::Stripe { chunk }, &members);
        append(&set, 1, 1).unwrap();
        assert!(matches!(append(&set, 1, 1), Err(DeviceError::ZoneFull { .. })));
        let set = Set::open(devices(&members), false).unwrap();
        assert_eq!(set.report_zone(ZoneId(1)).unwrap().state, ZoneState::Full);
        assert_eq!(crate::tags(&set, 1, 0, 1), [1]);
    }
}

/// Members are excluded while other threads read batches.
#[test]
fn batches_are_read_while_members_are_excluded() {
    for round in 0..60 {
        let members = emulated(&small(), 4);
        let set = create(Layout::Mirror, &members);
        (0..8).for_each(|tag| assert_eq!(append(&set, 1, tag).unwrap(), u32::from(tag)));
        set.flush().unwrap();
        drop(set);
        // The first position is not there.
        let set = Set::open(devices(&members[1..]), true).unwrap();
        set.end_recovery();
        let (batches, is_read) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = || {
                for _ in 0..200 {
                    let mut blocks = vec![0; 8 * 512];
                    let mut batch: Vec<Command<'_>> = (0..)
                        .zip(blocks.chunks_mut(512))
                        .map(|(block, into)| Command::Read { zone: ZoneId(1), block, into })
                        .collect();
                    assert!(set.run(&mut batch).iter().all(Result::is_ok));
                    assert!(blocks.chunks(512).map(|block| block[0]).eq(0..8));
                    batches.fetch_add(1, Ordering::Relaxed);
                }
                is_read.store(true, Ordering::Relaxed);
            };
            (0..3).for_each(|_| drop(scope.spawn(reader)));
            for member in &members[2..] {
                let before = batches.load(Ordering::Relaxed);
                while batches.load(Ordering::Relaxed) < before + round % 20
                    && !is_read.load(Ordering::Relaxed)
                {
                    std::thread::yield_now();
                }
                member.inject(Fault::nth(CommandKind::Flush, 1, Effect::Error).forever());
                set.flush().unwrap();
            }
        });
        let failed = set.members().iter().filter(|state| **state == MemberState::Failed).count();
        assert_eq!(failed, 3);
    }
}

/// Opening writes: members agree, and labels are completed. Under overlays all of that stays in memory, and the set is the
/// same as one that was opened for writing.
#[test]
fn a_set_that_is_only_read_writes_nothing_and_is_the_same() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut changed = 0;
    for seed in 0..40 {
        let layout = if seed % 2 == 0 { Layout::Mirror } else { Layout::Stripe { chunk: 2 } };
        let case = Case { layout, specs: vec![small(); 2], seed };
        let run = case.run(40);
        let n = rng.u64(0..=run.supply.commands());
        let plans: Vec<CrashPlan> = (0..2).map(|_| random_loss(&mut rng)).collect();
        let images = || run.supply.images_at(n, &run.members, &plans);
        let (below, other) = (images(), images());
        let covered: Vec<Arc<dyn Device>> =
            devices(&below).into_iter().map(|device| Arc::new(Overlay::new(device).unwrap()) as _).collect();
        let before: Vec<u64> = below.iter().map(|member| member.commands()).collect();
        let (read, written) =
            (Set::open(covered, false).unwrap(), Set::open(devices(&other), false).unwrap());
        let model = run.empty.at(&run.set, &run.done, n);
        model.check(&read).unwrap_or_else(|why| panic!("{case:?} at {n}, {plans:?}: {why}"));
        let states = |set: &Set| {
            let known = |info: &ZoneInfo| info.state.has_pointer().then_some(info.pointer);
            let report = set.report().unwrap();
            report.iter().map(|info| (info.state, info.capacity, known(info))).collect::<Vec<_>>()
        };
        assert_eq!(states(&read), states(&written));
        for (zone, info) in (0..).map(ZoneId).zip(read.report().unwrap()) {
            let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
            let block_size = read.geometry().block_size as usize;
            let bytes = |set: &Set| {
                let mut bytes = vec![0; end as usize * block_size];
                if end > 0 && info.state != ZoneState::Offline {
                    set.read(zone, 0, &mut bytes).unwrap();
                }
                bytes
            };
            assert!(info.state == ZoneState::Full || bytes(&read) == bytes(&written), "{zone:?}");
        }
        let after: Vec<u64> = below.iter().map(|member| member.commands()).collect();
        assert_eq!(before, after, "a member was changed");
        changed += usize::from(other.iter().any(|member| member.commands() > 0));
    }
    assert!(changed > 10, "{changed}");
}

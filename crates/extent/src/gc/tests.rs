use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use emulated::timed::{CommandClass as Commands, Model, Timed};
use emulated::{CommandKind, Effect, Emulated, Fault, Spec};
use tree::Tx;
use zone::{Cause, Device, Life, Role, ZoneId};

use super::chunk::sources;
use super::collector::VICTIMS_MAX_FOR_ALL;
use super::*;
use crate::append::{Appending, BATCH_APPENDS, Run};
use crate::map;
use crate::place::OpenAttempt;
use crate::place::tests::{extents_on, request};
use crate::{Extents, FileClass, Hint, Lifetime, Object};

const SIZE: usize = 4096;

pub(crate) fn write(extents: &Extents, object: u64, block: u64, blocks: usize, valid: u64) {
    write_as(Lifetime::Unknown, extents, object, block, blocks, valid);
}

/// The same, with a lifetime from a hint.
pub(crate) fn write_as(
    lifetime: Lifetime,
    extents: &Extents,
    object: u64,
    block: u64,
    blocks: usize,
    valid: u64,
) {
    let hint = Hint { lifetime, ..Hint::default() };
    let data = vec![object as u8; blocks * SIZE];
    let offset = block * SIZE as u64;
    let written = extents.append(Object(object), hint, offset, &data, valid).unwrap();
    let mut tx = Tx::new();
    let _lock = extents.insert(&mut tx, written).unwrap();
    extents.store().commit(tx).unwrap();
}

fn names(runs: &VecDeque<Run<'_>>) -> Vec<(Object, u64)> {
    runs.iter().map(|run| (run.object, run.start)).collect()
}

/// Blocks that could not be appended returned to the queue in the wrong order. The next search missed some, and a panic
/// followed while the lock of garbage collection was held.
#[test]
fn blocks_that_could_not_be_appended_stay_in_order() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    let data = vec![7; 3 * SIZE];
    let run = |object| Run::new(Object(object), object * 10, &data);
    for failing in 1..=6 {
        let open = extents.supply().place(request()).unwrap();
        let mut runs: VecDeque<Run<'_>> = (1..12).map(run).collect();
        let before = names(&runs);
        device.inject(Fault::nth(CommandKind::Append, failing, Effect::Error).on(open.lease.zone()));
        let mut appending =
            Appending { open: &open, runs: &mut runs, cause: Cause::Data, at_once: BATCH_APPENDS };
        let done = extents.appender().append_some(&mut appending, Vec::new()).unwrap();
        let done: BTreeSet<_> = done.iter().map(|piece| (piece.object, piece.start)).collect();
        assert_eq!(done.len() as u64, failing - 1, "a batch ends with its first failure");
        let left: Vec<_> = before.into_iter().filter(|name| !done.contains(name)).collect();
        assert_eq!(names(&runs), left);
        device.clear_faults();
    }
}

/// Each time the blocks that were read cannot be written, they return to the queue, in order, with their addresses.
#[test]
fn blocks_that_return_to_the_queue_again_and_again_are_moved_in_the_end() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    // Single blocks of many objects, so that a batch has many runs.
    (1..=40).for_each(|object| write(&extents, object, 0, 3, 0));
    (1..=40).for_each(|object| write(&extents, object, 1, 1, 3 * SIZE as u64));
    let zone = extents.supply().place(request()).unwrap();
    extents.placer().retire(&zone).unwrap();
    let mut gc = extents.collector().lock();
    assert!(extents.collector().choose_and_queue_victims(&mut gc, Goal::OneZone).unwrap());
    let all: BTreeSet<_> = gc.queue.iter().flat_map(sources).map(|s| (s.object, s.block)).collect();
    for round in 0..5 {
        assert!(extents.collector().mover().has_target(&mut gc).unwrap());
        let (chunk, _references) = extents
            .collector()
            .mover()
            .reader()
            .read_chunk(&mut gc, extents.collector().mover().reader().piece_blocks())
            .unwrap();
        let mut runs: VecDeque<Run<'_>> =
            chunk.runs().into_iter().map(|(range, _)| chunk.run(range)).collect();
        let target = Arc::clone(gc.target.as_ref().unwrap());
        device.inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(target.lease.zone()));
        let mut moving =
            Appending { open: &target, runs: &mut runs, cause: Cause::Gc, at_once: BATCH_APPENDS };
        assert!(extents.appender().append_some(&mut moving, Vec::new()).unwrap().is_empty());
        extents.collector().mover().requeue(&mut gc, &chunk, &runs);
        let queued: Vec<_> = gc.queue.iter().flat_map(sources).map(|s| (s.object, s.block)).collect();
        assert!(queued.is_sorted(), "round {round}");
        assert_eq!(queued.iter().copied().collect::<BTreeSet<_>>(), all, "round {round}");
    }
    assert!(extents.collector().reclaim_victims(&mut gc).unwrap());
    assert_eq!(gc.stats.blocks_moved, all.len() as u64);
    assert_eq!(gc.stats.zones_searched, 0);
    drop(gc);
    for object in 1..=40 {
        let mut found = vec![0; 3 * SIZE];
        extents.maps().read(Object(object), 0, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == object as u8));
    }
    assert_eq!(crate::check(&extents).unwrap(), []);
}

/// A failing append to GC's open zone loses nothing and moves nothing twice.
#[test]
fn moves_continue_in_another_zone_when_the_target_fails() {
    for fails in [false, true] {
        let device = Arc::new(Emulated::new(Spec::power_of_two()));
        let extents = extents_on(Arc::clone(&device) as _);
        (1..=40).for_each(|object| write(&extents, object, 0, 3, 0));
        let zone = extents.supply().place(request()).unwrap();
        extents.placer().retire(&zone).unwrap();
        let mut gc = extents.collector().lock();
        assert!(
            extents.collector().choose_and_queue_victims(&mut gc, Goal::OneZone).unwrap()
                && extents.collector().mover().has_target(&mut gc).unwrap()
        );
        let target = gc.target.as_ref().unwrap().lease.zone();
        let queued = gc.queue.iter().flat_map(sources).count() as u64;
        let mut move_piece = |fails: bool| {
            if fails {
                device.inject(Fault::nth(CommandKind::Append, 1, Effect::Error).on(target));
            }
            assert_eq!(extents.collector().collect_some(&mut gc, Goal::OneZone, 7).unwrap(), Progress::Moved);
            device.clear_faults();
            gc.stats.blocks_moved
        };
        assert!((7..queued).contains(&move_piece(false)));
        let moved = move_piece(fails);
        assert!(
            (14..queued).contains(&moved),
            "{moved} of {queued} blocks in two pieces of 7 or a little more"
        );
        assert!(extents.collector().reclaim_victims(&mut gc).unwrap());
        assert_eq!(gc.stats.blocks_moved, queued);
        drop(gc);
        for object in 1..=40 {
            let mut found = vec![0; 3 * SIZE];
            extents.maps().read(Object(object), 0, &mut found).unwrap();
            assert!(found.iter().all(|&byte| byte == object as u8), "object {object}, fails: {fails}");
        }
        assert_eq!(crate::check(&extents).unwrap(), []);
    }
}

/// Three zones full of single blocks, every second of which is dead. The live ones are read and written by large
/// commands, also at the end of the target.
#[test]
fn small_extents_are_moved_by_few_commands() {
    const OBJECTS: u64 = 3 * 250;
    let emulated = Arc::new(Emulated::new(Spec::power_of_two()));
    let device = Arc::new(Timed::new(emulated, Arc::default(), Model::ssd()));
    let extents = extents_on(Arc::clone(&device) as Arc<dyn Device>);
    (1..=OBJECTS).for_each(|object| write(&extents, object, 0, 1, 0));
    let last = extents.supply().place(request()).unwrap();
    extents.placer().retire(&last).unwrap();
    for object in (1..=OBJECTS).filter(|object| object % 2 == 0) {
        let mut tx = Tx::new();
        let range = (0, 1);
        let _removed = extents.remove(&mut tx, Object(object), range, 1, FileClass::default()).unwrap();
        extents.store().commit(tx).unwrap();
    }
    let before = device.times();
    let mut gc = extents.collector().lock();
    while gc.stats.blocks_moved < OBJECTS / 2 {
        assert!(extents.collector().reclaim_victims(&mut gc).unwrap());
    }
    drop(gc);
    let commands = |kind| device.times().of(kind).commands - before.of(kind).commands;
    let chunks = OBJECTS / 2 / extents.collector().mover().reader().piece_blocks() as u64;
    // Beside the moved blocks: summaries, footers and headers of the zones.
    assert!(
        commands(Commands::Write) < 2 * chunks + 40,
        "{} appends for {chunks} chunks",
        commands(Commands::Write)
    );
    assert!(
        commands(Commands::Read) < 2 * chunks + 40,
        "{} reads for {chunks} chunks",
        commands(Commands::Read)
    );
    assert_eq!(crate::check(&extents).unwrap(), []);
}

/// Files were deleted and overwritten while their zone was a victim. Their queued blocks were moved all the same, and
/// were dead in the target.
#[test]
fn blocks_that_died_since_they_were_queued_are_not_moved() {
    let extents = extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    (1..=40).for_each(|object| write(&extents, object, 0, 5, 0));
    let zone = extents.supply().place(request()).unwrap();
    extents.placer().retire(&zone).unwrap();
    let mut gc = extents.collector().lock();
    assert!(extents.collector().choose_and_queue_victims(&mut gc, Goal::OneZone).unwrap());
    for object in 1..=20 {
        let mut tx = Tx::new();
        let _removed = extents.remove(&mut tx, Object(object), (0, 5), 5, FileClass::default()).unwrap();
        extents.store().commit(tx).unwrap();
    }
    // In the middle, so that a part before it and one behind it stay live.
    (21..=30).for_each(|object| write(&extents, object, 1, 2, 5 * SIZE as u64));
    assert!(extents.collector().reclaim_victims(&mut gc).unwrap());
    assert_eq!(gc.stats.blocks_moved, 10 * 3 + 10 * 5);
    drop(gc);
    assert_eq!(extents.store().pool().entry(zone.lease.zone()).live, 0);
    for object in 21..=40 {
        let mut found = vec![0; 5 * SIZE];
        extents.maps().read(Object(object), 0, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == object as u8));
    }
    assert_eq!(crate::check(&extents).unwrap(), []);
}

/// The last moved block freed enough, so no GC is due any more. Still the empty victim is reclaimed, so that it is
/// reset.
#[test]
fn a_victim_without_live_blocks_is_reclaimed_although_no_gc_is_due() {
    let extents = extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    write(&extents, 1, 0, 1, 0);
    let zone = extents.supply().place(request()).unwrap();
    extents.placer().retire(&zone).unwrap();
    let victim = (zone.lease.zone(), zone.lease.life());
    drop(zone);
    let mut tx = Tx::new();
    drop(extents.remove(&mut tx, Object(1), (0, 1), 1, FileClass::default()).unwrap());
    extents.store().commit(tx).unwrap();
    extents.collector().lock().victims.push(victim);
    assert!(!extents.collector().headroom().is_low());
    assert!(extents.throttle().collect_in_step(&mut extents.collector().lock()).unwrap());
    assert_eq!(extents.collector().lock().victims().count(), 0);
    assert!(extents.take_may_need_resets());
}

/// Two zones are victims together, and a block of each cannot be read for a moment. The block of the zone that was
/// unreadable before becomes lost. The block of the other zone was lost as well, although it had been read in this
/// moment only, and although the first loss freed enough: a file had lost a block for good that the device would have
/// delivered a second later.
#[test]
fn unreadable_blocks_become_lost_only_in_a_zone_that_was_unreadable_before() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    let victims: Vec<(ZoneId, Life)> = (1..=2)
        .map(|object| {
            write(&extents, object, 0, 3, 0);
            let open = extents.supply().place(request()).unwrap();
            extents.placer().retire(&open).unwrap();
            let extent = &map::extents(extents.store(), Object(object), (0, 3), 1).unwrap()[0].1;
            assert_eq!(extent.address.zone(), open.lease.zone());
            device.make_unreadable(open.lease.zone(), extent.address.block() + 1);
            (open.lease.zone(), open.lease.life())
        })
        .collect();
    let mut gc = extents.collector().lock();
    assert!(extents.collector().mover().has_target(&mut gc).unwrap());
    // No zone is left as a target for other victims.
    let mut taken = Vec::new();
    while extents.store().pool().free_soon() > extents.store().pool().reserved_from(Role::Gc) {
        let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Gc).unwrap() else {
            panic!("it was free")
        };
        extents.maps().device().finish(open.lease.zone()).unwrap();
        taken.push(open.lease.zone());
    }
    assert!(!taken.is_empty());
    gc.victims.clone_from(&victims);
    gc.unreadable.insert(victims[0].0, victims[0].1);
    while extents.collector().collect(&mut gc, Goal::OneZone).unwrap() == Progress::Moved
        && !gc.unreadable.contains_key(&victims[1].0)
    {}
    assert_eq!(gc.stats.blocks_lost, 1, "of the zone that was unreadable before");
    assert!(gc.has_unreadable(victims[1].0, victims[1].1));
    drop(gc);
    let live = |object: usize| extents.store().pool().entry(victims[object].0).live;
    assert_eq!((live(0), live(1)), (0, 1), "readable blocks were moved");
}

/// A zone counts two live blocks that no extent names (I-EXT-2): the count is wrong, or an extent was lost with its
/// page. All known blocks are moved, first those of the reverse map and then those of a search of the object map. The
/// zone is not reset, so that a repair can still find blocks that the count may be right about.
#[test]
fn a_zone_that_counts_more_live_blocks_than_extents_name_is_stuck() {
    let extents = extents_on(Arc::new(Emulated::new(Spec::power_of_two())));
    write(&extents, 1, 0, 3, 0);
    let open = extents.supply().place(request()).unwrap();
    extents.placer().retire(&open).unwrap();
    let (zone, life) = (open.lease.zone(), open.lease.life());
    drop(open);
    let mut tx = Tx::new();
    tx.zone_live(zone, 2);
    extents.store().commit(tx).unwrap();
    let mut gc = extents.collector().lock();
    assert!(extents.collector().reclaim_victims(&mut gc).unwrap());
    assert_eq!((gc.stats.blocks_moved, gc.stats.zones_searched, gc.stats.zones_reclaimed), (3, 1, 1));
    assert_eq!(gc.stuck().collect::<Vec<_>>(), [zone]);
    assert!(
        !extents.collector().choose_and_queue_victims(&mut gc, Goal::OneZone).unwrap(),
        "it is no victim any more"
    );
    assert_eq!(gc.victims().count(), 0);
    drop(gc);
    extents.store().sync(extents.store().last_lsn()).unwrap();
    extents.store().reclaim(true).unwrap();
    let entry = extents.store().pool().entry(zone);
    assert_eq!((entry.life, entry.live), (life, 2), "it was not reset");
    let mut found = vec![0; 3 * SIZE];
    extents.maps().read(Object(1), 0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 1));
    let kinds: Vec<_> = crate::check(&extents).unwrap().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [crate::FindingKind::LiveCount; 2], "its count, and that it is stuck");
}

/// Blocks of an offline zone are lost at once: no read will ever succeed, so GC need not wait.
#[test]
fn blocks_of_an_offline_zone_are_lost_at_once() {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let extents = extents_on(Arc::clone(&device) as _);
    (1..=2).for_each(|object| write(&extents, object, 0, 3, 0));
    let open = extents.supply().place(request()).unwrap();
    extents.placer().retire(&open).unwrap();
    let (zone, life) = (open.lease.zone(), open.lease.life());
    drop(open);
    write(&extents, 2, 1, 1, 3 * SIZE as u64);
    device.set_zone_state(zone, zone::ZoneState::Offline);
    let mut gc = extents.collector().lock();
    assert!(extents.collector().reclaim_victims(&mut gc).unwrap());
    assert_eq!((gc.stats.blocks_lost, gc.stats.blocks_moved, gc.has_unreadable(zone, life)), (5, 0, false));
    assert_eq!(extents.store().pool().entry(zone).live, 0);
    drop(gc);
    let reads = |object, block: u64| {
        let mut found = vec![0; SIZE];
        extents.maps().read(Object(object), block * SIZE as u64, &mut found).map(|()| found[0])
    };
    for (object, block) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 2)] {
        let lost = reads(object, block).unwrap_err();
        assert!(matches!(lost, crate::ExtentError::Lost { .. }), "{lost}");
    }
    assert_eq!(reads(2, 1).unwrap(), 2, "blocks of other zones are unchanged");
    let kinds: BTreeSet<_> =
        crate::check(&extents).unwrap().iter().map(|finding| finding.kind.is_count()).collect();
    assert_eq!(kinds, BTreeSet::new(), "the checker reports no other finding");
}

/// Zones that GC skips, and zones that come last, often have the fewest live blocks. GC examines enough candidates to
/// find others among them. Otherwise a volume with many such zones would be full, however many blocks are dead in the
/// other zones.
#[test]
fn skipped_zones_do_not_hide_other_victims() {
    let extents = extents_on(Arc::new(Emulated::new(Spec::new(4096, 64, 64))));
    let fill = |object: u64, blocks: usize| {
        write(&extents, object, 0, blocks, 0);
        let open = extents.supply().place(request()).unwrap();
        extents.placer().retire(&open).unwrap();
        let zone = open.lease.zone();
        assert_eq!(extents.store().pool().entry(zone).live as usize, blocks);
        (zone, open.lease.life())
    };
    let skipped: Vec<_> = (1..=VICTIMS_MAX_FOR_ALL as u64 + 4).map(|object| fill(object, 1)).collect();
    let (victim, _) = fill(100, 9);
    let zones = || skipped.iter().copied();
    let ways = [
        GcState { stuck: zones().map(|(zone, _)| zone).collect(), ..GcState::default() },
        GcState { postponed: zones().map(|(zone, life)| (zone, (life, 1))).collect(), ..GcState::default() },
        GcState { unreadable: zones().collect(), ..GcState::default() },
    ];
    for (way, mut gc) in ways.into_iter().enumerate() {
        assert!(
            extents.collector().choose_and_queue_victims(&mut gc, Goal::OneZone).unwrap(),
            "{way}: there is a victim"
        );
        assert_eq!(gc.victims().collect::<Vec<_>>(), [victim], "{way}");
    }
}

use zone::ZoneState;

use super::*;
use crate::shares::GC_MINIMUM;
use crate::types::Change;

const SHAPE: Shape = Shape { rows_per_chunk: 1, page_blocks: 4, deltas_per_page: 7, sequential: u32::MAX };

/// Twelve empty zones that are not in the free list yet.
fn twelve_empty(reserve: MetadataReserve) -> OwnedPool {
    let info = ZoneInfo { state: ZoneState::Empty, capacity: 64, pointer: 0 };
    OwnedPool::new(vec![ZoneEntry::default(); 12], &[info; 12], SHAPE, reserve)
}

/// A checkpoint lists a zone as a metadata zone, and records after it in the log make it a data zone. After the replay, the
/// zone was still in the set of metadata zones. When its last live block died, the next checkpoint reset it, although
/// writers had just appended to it. Their acknowledged data was lost.
#[test]
fn a_zone_that_a_replay_turns_into_a_data_zone_is_not_reset_as_metadata() {
    let (zone, life) = (ZoneId(0), Life(2));
    let in_checkpoint = ZoneEntry { life: Life(1), role: Role::Metadata, live: 0, deltas: 0, user: [0; 16] };
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default()], &[info], SHAPE, reserve);
    zones.load(zone, in_checkpoint);
    zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(7), &[]);
    zones.close(zone);
    assert_eq!(zones.closed_metadata(), []);
    assert_eq!(zones.begin_resets_of_metadata(), []);
}

/// A zone that is too small for a page was counted as space for metadata. Metadata opened it and could not write a page.
#[test]
fn a_zone_too_small_for_a_page_is_never_free() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 1 };
    for (page_blocks, least) in [(4, 8), (8, 9), (16, 17)] {
        let capacities = [64, 64, 64, 64, least, least - 1];
        let report = capacities.map(info);
        let zones =
            OwnedPool::new(vec![ZoneEntry::default(); 6], &report, Shape { page_blocks, ..SHAPE }, reserve);
        (0..6).for_each(|zone| zones.recovered(ZoneId(zone), Usage::Free { empty: true }));
        assert!(zones.is_free(ZoneId(4)) && !zones.is_free(ZoneId(5)), "{least} blocks, and one less");
        let free: Vec<bool> = zones.at_one_moment(|moment| moment.zones().map(|zone| zone.is_free).collect());
        assert_eq!(free, [false, false, false, true, true, false]);
        // A reset may make it smaller.
        assert!(zones.take_zone(ZoneId(4)));
        zones.freed(ZoneId(4), info(least - 1));
        let taken: Vec<ZoneId> =
            std::iter::from_fn(|| zones.take(Role::Metadata)).map(|(zone, _)| zone).collect();
        assert_eq!(taken, [ZoneId(3)]);
        assert!(!zones.take_zone(ZoneId(5)));
    }
}

/// Each reserved zone was counted with the capacity of the largest zone. If only small zones remained free, metadata had half
/// of its reserve.
#[test]
fn the_reserve_is_counted_in_blocks_of_the_free_zones() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let report: Vec<ZoneInfo> = (0..20).map(|zone| info(if zone < 12 { 33 } else { 65 })).collect();
    let reserve = MetadataReserve { blocks: 128, of_zone: 64 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 20], &report, SHAPE, reserve);
    (0..12).for_each(|zone| zones.recovered(ZoneId(zone), Usage::Free { empty: true }));
    assert_eq!(
        (zones.free(), zones.metadata_reserve()),
        (9, 6),
        "six small zones instead of three large ones"
    );
    (12..15).for_each(|zone| zones.recovered(ZoneId(zone), Usage::Free { empty: true }));
    assert_eq!((zones.free(), zones.metadata_reserve()), (12, 3), "three large zones are enough");
    assert_eq!(zones.free_headroom(), 9 * 32 + 3 * 64);
    // Data leaves three large zones for metadata, and one zone for garbage collection.
    let mut taken = Vec::new();
    while let Some((zone, _)) = zones.take(Role::Data) {
        taken.push(zone.0);
        let reserved = zones.metadata_reserve();
        assert!(
            zones.free() >= reserved + GC_MINIMUM,
            "{taken:?}: {} free, {reserved} reserved",
            zones.free()
        );
    }
    assert_eq!(taken, [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!((zones.free(), zones.metadata_reserve()), (4, 3));
    assert!(zones.announce(3 * 64 + 32) && !zones.announce(3 * 64 + 33));
}

/// Data takes conventional zones first if other zones are scarce. If data took the one large zone, the reserve would need
/// more of the small zones than are free.
#[test]
fn data_does_not_take_a_large_zone_that_the_reserve_needs() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let report: Vec<ZoneInfo> = (0..13).map(|zone| info(if zone < 12 { 33 } else { 65 })).collect();
    let reserve = MetadataReserve { blocks: 192, of_zone: 64 };
    let zones =
        OwnedPool::new(vec![ZoneEntry::default(); 13], &report, Shape { sequential: 12, ..SHAPE }, reserve);
    // Zone 3, the standby of the log, may be free too. It is taken last.
    for zone in [3, 4, 5, 6, 7, 8, 9, 10, 12] {
        zones.recovered(ZoneId(zone), Usage::Free { empty: true });
    }
    assert_eq!((zones.free(), zones.metadata_reserve()), (9, 7), "a large zone and six small ones");
    let (taken, _) = zones.take(Role::Data).unwrap();
    assert!((4..12).contains(&taken.0), "{taken:?}");
    assert_eq!((zones.free(), zones.metadata_reserve()), (8, 7));
    assert!(zones.take(Role::Data).is_none() && zones.take(Role::Gc).is_some());
}

/// A mount resets free zones that a crash has left partly written, and a reset may change the capacity of a zone. The sums of
/// free space still had the old capacity, and an assertion failed during the mount.
#[test]
fn a_free_zone_is_counted_with_its_capacity_after_a_reset() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 64 };
    for other in [65, 49] {
        let report = [info(65), info(65), info(65), info(other), info(65)];
        let zones = OwnedPool::new(vec![ZoneEntry::default(); 5], &report, SHAPE, reserve);
        (3..5).for_each(|zone| zones.recovered(ZoneId(zone), Usage::Free { empty: false }));
        for (capacity, blocks) in [(49, 48), (33, 32), (1, 0)] {
            zones.freed(ZoneId(4), info(capacity));
            assert_eq!(zones.free_headroom(), u64::from(other - 1) + blocks, "{capacity} beside {other}");
        }
        for capacity in [33, 0, 65] {
            zones.set_info(ZoneId(3), info(capacity));
        }
        assert_eq!(
            (zones.free(), zones.free_headroom()),
            (0, 0),
            "a zone too small for a page is not used any more"
        );
    }
}

/// Zones that a reset made too small for a page are unusable. The sums dropped the capacity of a second unusable zone when the
/// capacity of the first changed.
#[test]
fn sums_are_right_with_several_unusable_zones() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 64 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 6], &[info(65); 6], SHAPE, reserve);
    let sums = || zones.at_one_moment(|moment| moment.sums().clone());
    assert_eq!((sums().raw, sums().by_capacity[&65].of_use), (6 * 65, 6));
    for (zone, capacity) in [(4, 3), (5, 3), (4, 2), (5, 65), (4, 65), (5, 0)] {
        zones.freed(ZoneId(zone), info(capacity));
        let sums = sums();
        assert!(sums.by_capacity.keys().all(|&capacity| capacity == 65), "{sums:?}");
    }
    assert_eq!((sums().raw, sums().by_capacity[&65].of_use), (5 * 65, 5));
}

/// All zones had the same capacity at the mount, and each has a smaller one after its reset. The reserve then needs more zones.
#[test]
fn zones_that_shrink_are_counted_with_their_new_capacity() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let reserve = MetadataReserve { blocks: 192, of_zone: 64 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 13], &[info(65); 13], SHAPE, reserve);
    (4..13).for_each(|zone| zones.recovered(ZoneId(zone), Usage::Free { empty: true }));
    let before = zones.metadata_reserve();
    assert!(zones.announce(9 * 64) && before < 9);
    (4..13).for_each(|zone| zones.freed(ZoneId(zone), info(33)));
    assert!(!zones.announce(5 * 64) && zones.announce(4 * 64));
    assert!(zones.metadata_reserve() > before, "{before}");
}

/// Deleting a large file leaves many dead zones. Each reset collected a list of all of them, and each write counted them. A
/// volume with many zones stood still until all zones were reset.
#[test]
fn only_the_requested_number_of_dead_zones_is_listed() {
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 9], &[info; 9], SHAPE, reserve);
    for zone in (0..9).map(ZoneId) {
        let life = Life(1);
        zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(1), &[]);
        zones.apply([Change::Live { zone, life, change: 5 }].into_iter(), Lsn(2), &[]);
        zones.close(zone);
        let change = if zone.0 == 8 { -4 } else { -5 };
        zones.apply([Change::Live { zone, life, change }].into_iter(), Lsn(3 + u64::from(zone.0)), &[]);
    }
    assert_eq!((zones.dead_count(), zones.free_soon()), (8, 8));
    assert_eq!(zones.victims(usize::MAX), [(ZoneId(8), 1)]);
    zones.add_pending(ZoneId(0), 1);
    let may = |changed: Lsn| changed > Lsn(4);
    let two = vec![(ZoneId(2), Lsn(5)), (ZoneId(3), Lsn(6))];
    assert_eq!(zones.dead_data(2, may), (two, Some(Lsn(4))));
    assert_eq!(zones.dead_data(usize::MAX, |_| false), (Vec::new(), Some(Lsn(10))));
    assert!(zones.begin_reset(ZoneId(3), Lsn(6)) && !zones.begin_reset(ZoneId(3), Lsn(6)));
    assert_eq!((zones.dead_count(), zones.free_soon()), (7, 8));
}

/// The target of metadata is soft: it only reduces the number of moved nodes. It grows by one zone at a time and shrinks when
/// metadata opens zones. A writer that finds no other zone lowers it. It does not limit garbage collection.
#[test]
fn the_metadata_target_is_soft() {
    let zones = twelve_empty(MetadataReserve { blocks: 0, of_zone: 1 });
    (0..12).map(ZoneId).for_each(|zone| zones.recovered(zone, Usage::Free { empty: true }));
    let (of_data, of_gc) = (zones.reserved_from(Role::Data), zones.reserved_from(Role::Gc));
    assert_eq!(zones.raise_metadata_target(3, 0), 0, "not above the limit of the call");
    assert_eq!((zones.raise_metadata_target(3, 1), zones.raise_metadata_target(3, 1)), (1, 1));
    assert_eq!((zones.reserved_from(Role::Data), zones.reserved_from(Role::Gc)), (of_data + 2, of_gc));
    let (zone, _) = zones.take(Role::Metadata).expect("there are free zones");
    zones.open_for_store(zone, Life(1), Role::Metadata, 64);
    assert_eq!(zones.reserved_from(Role::Data), of_data + 1, "metadata has opened one of the two");
    assert_eq!(zones.raise_metadata_target(3, 1), 1);
    assert_eq!(zones.raise_metadata_target(3, 1), 0, "two, and the open zone, are three");
    let over = zones.resets_over();
    assert!(zones.lower_metadata_target() && zones.resets_over() > over, "waiting writers search again");
    assert_eq!(zones.reserved_from(Role::Data), of_data + 1, "one at a time");
    assert!(zones.lower_metadata_target() && !zones.lower_metadata_target());
    assert_eq!(zones.reserved_from(Role::Data), of_data);
    while zones.free() > of_data {
        zones.take(Role::Data).expect("data may take all zones that are not reserved");
    }
    assert_eq!(zones.raise_metadata_target(3, 1), 0, "there is no zone left to reserve");
}

#[test]
fn live_blocks_in_data_zones_are_counted_incrementally() {
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 4], &[info; 4], SHAPE, reserve);
    let change_live = |zone: u32, lsn: u64, change: i32| {
        zones.apply([Change::Live { zone: ZoneId(zone), life: Life(1), change }].into_iter(), Lsn(lsn), &[]);
    };
    for zone in (0..2).map(ZoneId) {
        zones.apply([Change::Opened { zone, life: Life(1), role: Role::Data }].into_iter(), Lsn(1), &[]);
    }
    change_live(0, 2, 30);
    assert_eq!(zones.live_data(), 30);
    change_live(1, 3, 20);
    change_live(0, 4, -10);
    assert_eq!(zones.live_data(), 40, "the same as the sum over all zones");
}

#[test]
fn free_zones_are_taken_in_the_order_in_which_they_became_free() {
    let zones = twelve_empty(MetadataReserve { blocks: 0, of_zone: 1 });
    let set_free = |zone: u32, empty: bool| zones.recovered(ZoneId(zone), Usage::Free { empty });
    // Zones of the log are not in the free list.
    [8, 2, 3, 6, 11, 9, 10].into_iter().for_each(|zone| set_free(zone, zone != 8));
    assert_eq!(zones.free(), 6);
    assert!(zones.take_zone(ZoneId(9)) && !zones.take_zone(ZoneId(9)));
    assert!(zones.take_zone(ZoneId(2)), "the log takes its zones by number");
    let taken = || std::iter::from_fn(|| zones.take(Role::Metadata)).map(|(zone, _)| zone.0);
    // Empty zones come first, and the first four zones last.
    assert_eq!(taken().collect::<Vec<_>>(), [6, 11, 10, 8, 3]);
    assert_eq!(zones.free(), 0);
    [7, 5].into_iter().for_each(|zone| set_free(zone, true));
    assert_eq!(taken().collect::<Vec<_>>(), [7, 5]);
}

/// A conventional zone that is being written is full after the next mount, and each mount writes metadata. So metadata would
/// waste these zones.
#[test]
fn metadata_takes_conventional_zones_last_and_data_takes_them_when_others_are_scarce() {
    let info = ZoneInfo { state: ZoneState::Empty, capacity: 64, pointer: 0 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = || {
        let zones = OwnedPool::new(
            vec![ZoneEntry::default(); 12],
            &[info; 12],
            Shape { sequential: 9, ..SHAPE },
            reserve,
        );
        // The zones that are free for the longest time are conventional, and one of the others waits for its reset.
        let order = [9, 10, 11, 3, 4, 5, 6, 7, 8].map(ZoneId);
        order.iter().for_each(|&zone| zones.recovered(zone, Usage::Free { empty: zone.0 != 8 }));
        zones
    };
    let taken = |zones: &OwnedPool, role| zones.take(role).map(|(zone, _)| zone.0);
    let all = |zones: &OwnedPool, role| std::iter::from_fn(|| taken(zones, role)).collect::<Vec<_>>();
    assert_eq!(all(&zones(), Role::Metadata), [4, 5, 6, 7, 8, 9, 10, 11, 3]);
    let of_data = zones();
    assert_eq!(of_data.metadata_reserve(), 1);
    assert_eq!(all(&of_data, Role::Data), [4, 5, 6, 9, 10, 11, 7], "two sequential zones remain");
    assert_eq!(taken(&of_data, Role::Metadata), Some(8));
}

/// Closed data zones in their first life, each with `live` live blocks.
fn closed_with(count: usize, live: i32) -> OwnedPool {
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let reserve = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); count], &vec![info; count], SHAPE, reserve);
    for zone in (0..count as u32).map(ZoneId) {
        let life = Life(1);
        zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(1), &[]);
        zones.apply([Change::Live { zone, life, change: live }].into_iter(), Lsn(2), &[]);
        zones.close(zone);
    }
    zones
}

/// Appended blocks that no file has yet would be lost by the reset.
#[test]
fn a_dead_zone_with_pending_blocks_is_not_reset() {
    let (zones, zone) = (closed_with(1, 5), ZoneId(0));
    assert!(!zones.begin_reset(zone, Lsn(2)), "a zone with live blocks is not reset either");
    zones.add_pending(zone, 2);
    zones.apply([Change::Live { zone, life: Life(1), change: -5 }].into_iter(), Lsn(3), &[]);
    assert!(!zones.begin_reset(zone, Lsn(3)));
    zones.remove_pending(zone, 1);
    assert!(!zones.begin_reset(zone, Lsn(3)));
    zones.remove_pending(zone, 1);
    assert!(zones.begin_reset(zone, Lsn(3)));
}

/// Two kinds of records contradict the zone table: one that begins the next life of a zone with live blocks, and one about
/// a life that has not begun.
#[test]
fn a_zone_with_live_blocks_does_not_begin_another_life() {
    let (zones, zone) = (closed_with(1, 5), ZoneId(0));
    let opened = |life| Change::Opened { zone, life: Life(life), role: Role::Data };
    let live = |life, change| Change::Live { zone, life: Life(life), change };
    assert!(zones.accepts([opened(1)].into_iter()), "this life has begun already");
    assert!(!zones.accepts([opened(2)].into_iter()));
    assert!(!zones.accepts([live(1, -4), opened(2)].into_iter()));
    assert!(zones.accepts([live(1, -5), opened(2), live(2, 3)].into_iter()));
    assert!(!zones.accepts([live(2, 3)].into_iter()));
}

#[test]
fn announced_blocks_reserve_zones_until_they_are_withdrawn() {
    let zones = twelve_empty(MetadataReserve { blocks: 0, of_zone: 64 });
    (0..12).map(ZoneId).for_each(|zone| zones.recovered(zone, Usage::Free { empty: true }));
    assert!(!zones.is_announced());
    assert!(zones.announce(65) && zones.is_announced());
    assert_eq!(zones.reserved_from(Role::Gc), 2);
    assert!(!zones.announce(64 * 100), "fewer zones are free");
    assert!(zones.announce(0) && !zones.is_announced());
}

/// Garbage collection takes a zone from the reserve and continues to write it after its victims are freed. The reserve was
/// complete by then, but the zone still counted as outstanding. A full zone without a freed victim is not outstanding either.
#[test]
fn a_zone_taken_from_the_reserve_is_outstanding_until_one_is_freed() {
    let zones = twelve_empty(MetadataReserve { blocks: 126, of_zone: 63 });
    let free = |zone: u32| zones.recovered(ZoneId(zone), Usage::Free { empty: true });
    (4..7).for_each(free);
    assert_eq!((zones.metadata_reserve(), zones.free(), zones.free_or_outstanding()), (3, 3, 3));
    let (first, _) = zones.take(Role::Gc).expect("garbage collection may take a zone from the reserve");
    assert_eq!((zones.free(), zones.free_or_outstanding()), (2, 3));
    free(9);
    assert_eq!((zones.free(), zones.free_or_outstanding()), (3, 3), "one zone was freed");
    zones.close(first);
    let (second, _) =
        zones.take(Role::Gc).expect("garbage collection may take another zone from the reserve");
    assert_eq!((zones.free(), zones.free_or_outstanding()), (2, 3));
    zones.close(second);
    assert_eq!((zones.free(), zones.free_or_outstanding()), (2, 2), "the zone is full");
}

/// Garbage collection took the smallest zone as its target. The live blocks of a victim did not fit, and no other zone was
/// free. It also selected small zones first, although they had few dead blocks.
#[test]
fn smaller_zones_are_for_data_and_victims_have_most_dead_blocks() {
    let mut infos = [ZoneInfo { state: ZoneState::Empty, capacity: 64, pointer: 0 }; 12];
    infos[11].capacity = 10;
    let reserve = MetadataReserve { blocks: 0, of_zone: 60 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 12], &infos, SHAPE, reserve);
    for zone in [11, 8, 9, 10].map(ZoneId) {
        zones.recovered(zone, Usage::Free { empty: true });
    }
    assert_eq!(zones.take(Role::Gc), Some((ZoneId(8), true)));
    assert_eq!(zones.take(Role::Data), Some((ZoneId(11), true)));
    for (zone, live) in [(11, 9), (8, 20)].map(|(zone, live)| (ZoneId(zone), live)) {
        let life = Life(1);
        zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(1), &[]);
        zones.apply([Change::Live { zone, life, change: live }].into_iter(), Lsn(2), &[]);
        zones.close(zone);
    }
    assert_eq!(zones.victims(usize::MAX), [(ZoneId(8), 20), (ZoneId(11), 9)]);
    zones.apply([Change::Live { zone: ZoneId(11), life: Life(1), change: -9 }].into_iter(), Lsn(3), &[]);
    assert_eq!(zones.victims(usize::MAX), [(ZoneId(8), 20)]);
}

/// A zone that changed its usage from another one than its holder thought was in two hands.
#[test]
fn a_usage_ends_only_as_it_began() {
    let zones = || {
        let zones = twelve_empty(MetadataReserve { blocks: 0, of_zone: 1 });
        (4..8).for_each(|zone| zones.recovered(ZoneId(zone), Usage::Free { empty: true }));
        zones
    };
    let is_refused = |change: fn(&OwnedPool, ZoneId), zone: u32| {
        let zones = zones();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(&zones, ZoneId(zone)))).is_err()
    };
    let (free, closed) = (4, 9);
    assert!(is_refused(|zones, zone| zones.give_back(zone, true), free), "it is free already");
    assert!(is_refused(|zones, zone| zones.give_back(zone, true), closed));
    assert!(is_refused(|zones, zone| zones.resume(zone), free));
    assert!(is_refused(|zones, zone| zones.resume(zone), closed), "it has no role");
    assert!(
        is_refused(|zones, zone| zones.recovered(zone, Usage::Closed), free),
        "that was recovered before"
    );
    assert!(!is_refused(|zones, zone| zones.retire(zone), free));
    let zones = zones();
    let (taken, _) = zones.take(Role::Data).expect("four are free");
    zones.give_back(taken, true);
    assert_eq!((zones.free(), zones.usage(taken)), (4, Usage::Free { empty: true }));
}

use zone::ZoneState;

use super::*;
use crate::shares::GC_MINIMUM;
use crate::types::Change;

const SHAPE: Shape = Shape { rows_per_chunk: 1, page_blocks: 4, deltas_per_page: 7, sequential: u32::MAX };

/// Twelve zones of which the table does not know yet whether they are free.
fn twelve_empty(kept: MetadataReserve) -> OwnedPool {
    let info = ZoneInfo { state: ZoneState::Empty, capacity: 64, pointer: 0 };
    OwnedPool::new(vec![ZoneEntry::default(); 12], &[info; 12], SHAPE, kept)
}

/// The checkpoint that a replay begins with may have been taken while a zone held metadata; the records
/// after it may have made it a zone of data. When its last live block died, the next checkpoint took it
/// for a dead zone of metadata and reset it, although writers had just appended to it: what they then
/// acknowledged was gone.
#[test]
fn a_zone_that_a_replay_makes_one_of_data_is_no_dead_metadata() {
    let (zone, life) = (ZoneId(0), Life(2));
    let held = ZoneEntry { life: Life(1), role: Role::Metadata, live: 0, deltas: 0, user: [0; 16] };
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let kept = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default()], &[info], SHAPE, kept);
    zones.load(zone, held);
    zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(7), &[]);
    zones.set_usage(zone, Usage::Closed);
    assert_eq!(zones.closed_metadata(), []);
    assert_eq!(zones.begin_resets_of_metadata(), []);
}

/// Metadata that took the smallest of three zones had no room for a page there, and counted on what it would write there.
#[test]
fn a_zone_without_room_for_a_page_is_never_free() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let kept = MetadataReserve { blocks: 0, of_zone: 1 };
    for (page_blocks, least) in [(4, 8), (8, 9), (16, 17)] {
        let capacities = [64, 64, 64, 64, least, least - 1];
        let report = capacities.map(info);
        let zones =
            OwnedPool::new(vec![ZoneEntry::default(); 6], &report, Shape { page_blocks, ..SHAPE }, kept);
        (0..6).for_each(|zone| zones.set_usage(ZoneId(zone), Usage::Free { empty: true }));
        assert!(zones.is_free(ZoneId(4)) && !zones.is_free(ZoneId(5)), "of {least} blocks, and one less");
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

/// Kept zones were counted as if each were the largest: when the small ones were left, metadata had half the room it was to
/// have.
#[test]
fn what_is_kept_is_in_the_zones_that_are_free() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let report: Vec<ZoneInfo> = (0..20).map(|zone| info(if zone < 12 { 33 } else { 65 })).collect();
    let kept = MetadataReserve { blocks: 128, of_zone: 64 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 20], &report, SHAPE, kept);
    (0..12).for_each(|zone| zones.set_usage(ZoneId(zone), Usage::Free { empty: true }));
    assert_eq!((zones.free(), zones.metadata_reserve()), (9, 6), "small ones, six for three");
    (12..15).for_each(|zone| zones.set_usage(ZoneId(zone), Usage::Free { empty: true }));
    assert_eq!((zones.free(), zones.metadata_reserve()), (12, 3), "three large ones hold it");
    assert_eq!(zones.free_headroom(), 9 * 32 + 3 * 64);
    // Data leaves three large ones, and one for garbage collection.
    let mut taken = Vec::new();
    while let Some((zone, _)) = zones.take(Role::Data) {
        taken.push(zone.0);
        let most = zones.metadata_reserve();
        assert!(zones.free() >= most + GC_MINIMUM, "{taken:?}: {} of {most}", zones.free());
    }
    assert_eq!(taken, [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!((zones.free(), zones.metadata_reserve()), (4, 3));
    assert!(zones.announce(3 * 64 + 32) && !zones.announce(3 * 64 + 33));
}

/// Data takes conventional zones first where others are scarce. Without one that is larger, more of those are needed for
/// what is kept.
#[test]
fn data_takes_no_large_zone_without_which_too_little_is_kept() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let report: Vec<ZoneInfo> = (0..13).map(|zone| info(if zone < 12 { 33 } else { 65 })).collect();
    let kept = MetadataReserve { blocks: 192, of_zone: 64 };
    let zones =
        OwnedPool::new(vec![ZoneEntry::default(); 13], &report, Shape { sequential: 12, ..SHAPE }, kept);
    // The log's spare, which may be free and as small, comes last.
    for zone in [3, 4, 5, 6, 7, 8, 9, 10, 12] {
        zones.set_usage(ZoneId(zone), Usage::Free { empty: true });
    }
    assert_eq!((zones.free(), zones.metadata_reserve()), (9, 7), "a large one and six small ones");
    let (taken, _) = zones.take(Role::Data).unwrap();
    assert!((4..12).contains(&taken.0), "{taken:?}");
    assert_eq!((zones.free(), zones.metadata_reserve()), (8, 7));
    assert!(zones.take(Role::Data).is_none() && zones.take(Role::Gc).is_some());
}

/// The mount resets what a crash has left in a zone that is free already, and the reset may change what the zone takes: the
/// free ones are counted by that, and the mount ended with a failed assertion.
#[test]
fn a_free_zone_whose_reset_changes_its_capacity_is_counted_by_that() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let kept = MetadataReserve { blocks: 0, of_zone: 64 };
    for other in [65, 49] {
        let report = [info(65), info(65), info(65), info(other), info(65)];
        let zones = OwnedPool::new(vec![ZoneEntry::default(); 5], &report, SHAPE, kept);
        (3..5).for_each(|zone| zones.set_usage(ZoneId(zone), Usage::Free { empty: false }));
        for (capacity, room) in [(49, 48), (33, 32), (1, 0)] {
            zones.freed(ZoneId(4), info(capacity));
            assert_eq!(zones.free_headroom(), u64::from(other - 1) + room, "{capacity} beside {other}");
        }
        for capacity in [33, 0, 65] {
            zones.set_info(ZoneId(3), info(capacity));
        }
        assert_eq!((zones.free(), zones.free_headroom()), (0, 0), "what had no room for a page is given up");
    }
}

/// Zones that a reset made too small for a page are of no use. The sums forgot the capacity of the second when the first took
/// another one.
#[test]
fn sums_are_right_with_several_zones_of_no_use() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let kept = MetadataReserve { blocks: 0, of_zone: 64 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 6], &[info(65); 6], SHAPE, kept);
    let sums = || zones.at_one_moment(|moment| moment.sums().clone());
    assert_eq!((sums().raw, sums().by_capacity[&65].of_use), (6 * 65, 6));
    for (zone, capacity) in [(4, 3), (5, 3), (4, 2), (5, 65), (4, 65), (5, 0)] {
        zones.freed(ZoneId(zone), info(capacity));
        let sums = sums();
        assert!(sums.by_capacity.keys().all(|&capacity| capacity == 65), "{sums:?}");
    }
    assert_eq!((sums().raw, sums().by_capacity[&65].of_use), (5 * 65, 5));
}

/// All zones were alike when the volume was mounted, and each takes less since it was reset: it takes more of them to
/// keep as much.
#[test]
fn zones_that_come_to_take_less_are_counted_by_that() {
    let info = |capacity| ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 };
    let kept = MetadataReserve { blocks: 192, of_zone: 64 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 13], &[info(65); 13], SHAPE, kept);
    (4..13).for_each(|zone| zones.set_usage(ZoneId(zone), Usage::Free { empty: true }));
    let before = zones.metadata_reserve();
    assert!(zones.announce(9 * 64) && before < 9);
    (4..13).for_each(|zone| zones.freed(ZoneId(zone), info(33)));
    assert!(!zones.announce(5 * 64) && zones.announce(4 * 64));
    assert!(zones.metadata_reserve() > before, "{before}");
}

/// A large file that is deleted leaves a zone dead for each that it filled. Each reset gathered all of them, and
/// each write counted them: a volume of many zones stood still until all had been reset.
#[test]
fn so_many_dead_zones_are_found_as_are_wanted() {
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let kept = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 9], &[info; 9], SHAPE, kept);
    for zone in (0..9).map(ZoneId) {
        let life = Life(1);
        zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(1), &[]);
        zones.apply([Change::Live { zone, life, change: 5 }].into_iter(), Lsn(2), &[]);
        zones.set_usage(zone, Usage::Closed);
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

/// What is left to metadata only so that less has to be moved is lost to data a zone at a time, comes back when
/// metadata has opened zones, and is had at once by who can have no other. Nobody else is kept from it.
#[test]
fn what_is_left_to_metadata_is_a_wish() {
    let zones = twelve_empty(MetadataReserve { blocks: 0, of_zone: 1 });
    (0..12).map(ZoneId).for_each(|zone| zones.set_usage(zone, Usage::Free { empty: true }));
    let (of_data, of_gc) = (zones.reserved_from(Role::Data), zones.reserved_from(Role::Gc));
    assert_eq!(zones.raise_metadata_target(3, 0), 0, "not more than is said");
    assert_eq!((zones.raise_metadata_target(3, 1), zones.raise_metadata_target(3, 1)), (1, 1));
    assert_eq!((zones.reserved_from(Role::Data), zones.reserved_from(Role::Gc)), (of_data + 2, of_gc));
    let (zone, _) = zones.take(Role::Metadata).expect("there are free ones");
    zones.open_for_store(zone, Life(1), Role::Metadata, 64);
    assert_eq!(zones.reserved_from(Role::Data), of_data + 1, "it has one of them");
    assert_eq!(zones.raise_metadata_target(3, 1), 1);
    assert_eq!(zones.raise_metadata_target(3, 1), 0, "two and the one that is open are three");
    let over = zones.resets_over();
    assert!(zones.lower_metadata_target() && zones.resets_over() > over, "who waits looks again");
    assert_eq!(zones.reserved_from(Role::Data), of_data + 1, "one at a time");
    assert!(zones.lower_metadata_target() && !zones.lower_metadata_target());
    assert_eq!(zones.reserved_from(Role::Data), of_data);
    while zones.free() > of_data {
        zones.take(Role::Data).expect("data may have all that it need not leave");
    }
    assert_eq!(zones.raise_metadata_target(3, 1), 0, "data has none to leave");
}

#[test]
fn what_lives_in_zones_of_data_is_counted_along() {
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let kept = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 4], &[info; 4], SHAPE, kept);
    let lives = |zone: u32, lsn: u64, change: i32| {
        zones.apply([Change::Live { zone: ZoneId(zone), life: Life(1), change }].into_iter(), Lsn(lsn), &[]);
    };
    for zone in (0..2).map(ZoneId) {
        zones.apply([Change::Opened { zone, life: Life(1), role: Role::Data }].into_iter(), Lsn(1), &[]);
    }
    lives(0, 2, 30);
    assert_eq!(zones.live_data(), 30);
    lives(1, 3, 20);
    lives(0, 4, -10);
    assert_eq!(zones.live_data(), 40, "as it would be if they were all looked at again");
}

#[test]
fn free_zones_are_taken_in_the_order_in_which_they_became_free() {
    let zones = twelve_empty(MetadataReserve { blocks: 0, of_zone: 1 });
    let set_free = |zone: u32, empty: bool| zones.set_usage(ZoneId(zone), Usage::Free { empty });
    // Those of the log are not among them, and one that is freed twice is there once.
    [8, 2, 3, 6, 11, 6, 9, 10].into_iter().for_each(|zone| set_free(zone, zone != 8));
    assert_eq!(zones.free(), 6);
    assert!(zones.take_zone(ZoneId(9)) && !zones.take_zone(ZoneId(9)));
    assert!(zones.take_zone(ZoneId(2)), "the log takes its own by number");
    let taken = || std::iter::from_fn(|| zones.take(Role::Metadata)).map(|(zone, _)| zone.0);
    // What is empty first, and the first four zones last.
    assert_eq!(taken().collect::<Vec<_>>(), [11, 6, 10, 8, 3]);
    assert_eq!(zones.free(), 0);
    [7, 5].into_iter().for_each(|zone| set_free(zone, true));
    assert_eq!(taken().collect::<Vec<_>>(), [7, 5]);
}

/// Conventional zones come back full from every mount, and metadata is written at every one.
#[test]
fn metadata_takes_conventional_zones_last_and_data_takes_them_when_others_are_scarce() {
    let info = ZoneInfo { state: ZoneState::Empty, capacity: 64, pointer: 0 };
    let kept = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = || {
        let zones = OwnedPool::new(
            vec![ZoneEntry::default(); 12],
            &[info; 12],
            Shape { sequential: 9, ..SHAPE },
            kept,
        );
        // Those that are longest free are conventional, and one of the others waits to be reset.
        let order = [9, 10, 11, 3, 4, 5, 6, 7, 8].map(ZoneId);
        order.iter().for_each(|&zone| zones.set_usage(zone, Usage::Free { empty: zone.0 != 8 }));
        zones
    };
    let taken = |zones: &OwnedPool, role| zones.take(role).map(|(zone, _)| zone.0);
    let all = |zones: &OwnedPool, role| std::iter::from_fn(|| taken(zones, role)).collect::<Vec<_>>();
    assert_eq!(all(&zones(), Role::Metadata), [4, 5, 6, 7, 8, 9, 10, 11, 3]);
    let of_data = zones();
    assert_eq!(of_data.metadata_reserve(), 1);
    assert_eq!(all(&of_data, Role::Data), [4, 5, 6, 9, 10, 11, 7], "two of the others are left last");
    assert_eq!(taken(&of_data, Role::Metadata), Some(8));
}

/// So many closed zones of data in their first life, with so many live blocks each.
fn closed_with(count: usize, live: i32) -> OwnedPool {
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let kept = MetadataReserve { blocks: 0, of_zone: 1 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); count], &vec![info; count], SHAPE, kept);
    for zone in (0..count as u32).map(ZoneId) {
        let life = Life(1);
        zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(1), &[]);
        zones.apply([Change::Live { zone, life, change: live }].into_iter(), Lsn(2), &[]);
        zones.set_usage(zone, Usage::Closed);
    }
    zones
}

/// What is appended and not yet anybody's would be gone with the zone.
#[test]
fn a_dead_zone_with_pending_blocks_is_not_reset() {
    let (zones, zone) = (closed_with(1, 5), ZoneId(0));
    assert!(!zones.begin_reset(zone, Lsn(2)), "and least of all one in which something lives");
    zones.add_pending(zone, 2);
    zones.apply([Change::Live { zone, life: Life(1), change: -5 }].into_iter(), Lsn(3), &[]);
    assert!(!zones.begin_reset(zone, Lsn(3)));
    zones.remove_pending(zone, 1);
    assert!(!zones.begin_reset(zone, Lsn(3)));
    zones.remove_pending(zone, 1);
    assert!(zones.begin_reset(zone, Lsn(3)));
}

/// A record that begins another life of a zone in which something lives contradicts the table, as does one that speaks of
/// a life that has not begun.
#[test]
fn a_zone_in_which_something_lives_begins_no_other_life() {
    let (zones, zone) = (closed_with(1, 5), ZoneId(0));
    let opened = |life| Change::Opened { zone, life: Life(life), role: Role::Data };
    let live = |life, change| Change::Live { zone, life: Life(life), change };
    assert!(zones.accepts([opened(1)].into_iter()), "that one has begun");
    assert!(!zones.accepts([opened(2)].into_iter()));
    assert!(!zones.accepts([live(1, -4), opened(2)].into_iter()));
    assert!(zones.accepts([live(1, -5), opened(2), live(2, 3)].into_iter()));
    assert!(!zones.accepts([live(2, 3)].into_iter()));
}

#[test]
fn zones_are_held_only_for_as_long_as_somebody_counts_on_them() {
    let zones = twelve_empty(MetadataReserve { blocks: 0, of_zone: 64 });
    (0..12).map(ZoneId).for_each(|zone| zones.set_usage(zone, Usage::Free { empty: true }));
    assert!(!zones.is_announced());
    assert!(zones.announce(65) && zones.is_announced());
    assert_eq!(zones.reserved_from(Role::Gc), 2);
    assert!(!zones.announce(64 * 100), "so many are not free");
    assert!(zones.announce(0) && !zones.is_announced());
}

/// Garbage collection goes on to write a zone after it has emptied others into it: what it had taken has come back by then,
/// and counted as if it came once more. Nor does it come back when that zone is full and nothing has become free.
#[test]
fn a_zone_that_was_lent_counts_until_one_has_come_back() {
    let zones = twelve_empty(MetadataReserve { blocks: 126, of_zone: 63 });
    let free = |zone: u32| zones.set_usage(ZoneId(zone), Usage::Free { empty: true });
    (4..7).for_each(free);
    assert_eq!((zones.metadata_reserve(), zones.free(), zones.free_or_outstanding()), (3, 3, 3));
    let (first, _) = zones.take(Role::Gc).expect("it may draw on what is kept");
    assert_eq!((zones.free(), zones.free_or_outstanding()), (2, 3));
    free(9);
    assert_eq!((zones.free(), zones.free_or_outstanding()), (3, 3), "one has come back");
    zones.set_usage(first, Usage::Closed);
    let (second, _) = zones.take(Role::Gc).expect("and once more");
    assert_eq!((zones.free(), zones.free_or_outstanding()), (2, 3));
    zones.set_usage(second, Usage::Closed);
    assert_eq!((zones.free(), zones.free_or_outstanding()), (2, 2), "it is full");
}

/// Garbage collection took the smallest zone to move to, which what lived in a victim did not fit into, and no other was
/// left; and it emptied small zones first, in which hardly anything was dead.
#[test]
fn smaller_zones_are_for_data_and_are_victims_by_what_is_dead() {
    let mut infos = [ZoneInfo { state: ZoneState::Empty, capacity: 64, pointer: 0 }; 12];
    infos[11].capacity = 10;
    let kept = MetadataReserve { blocks: 0, of_zone: 60 };
    let zones = OwnedPool::new(vec![ZoneEntry::default(); 12], &infos, SHAPE, kept);
    for zone in [11, 8, 9, 10].map(ZoneId) {
        zones.set_usage(zone, Usage::Free { empty: true });
    }
    assert_eq!(zones.take(Role::Gc), Some((ZoneId(8), true)));
    assert_eq!(zones.take(Role::Data), Some((ZoneId(11), true)));
    for (zone, live) in [(11, 9), (8, 20)].map(|(zone, live)| (ZoneId(zone), live)) {
        let life = Life(1);
        zones.apply([Change::Opened { zone, life, role: Role::Data }].into_iter(), Lsn(1), &[]);
        zones.apply([Change::Live { zone, life, change: live }].into_iter(), Lsn(2), &[]);
        zones.set_usage(zone, Usage::Closed);
    }
    assert_eq!(zones.victims(usize::MAX), [(ZoneId(8), 20), (ZoneId(11), 9)]);
    zones.apply([Change::Live { zone: ZoneId(11), life: Life(1), change: -9 }].into_iter(), Lsn(3), &[]);
    assert_eq!(zones.victims(usize::MAX), [(ZoneId(8), 20)]);
}

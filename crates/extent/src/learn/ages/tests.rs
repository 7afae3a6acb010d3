use super::*;

const ZONE: Blocks = 1000;

/// Zones in which this share of the live blocks dies for each thousand blocks written, by age.
fn watch(shares: impl Fn(u64) -> f64) -> (FillTimes, Ages) {
    let (filled, mut ages) = (FillTimes::new(64), Ages::new(64, ZONE));
    let mut live: Vec<Blocks> = vec![0; 64];
    let mut now = Clocks::default();
    for round in 1..2000_u64 {
        let next = (round % 64) as usize;
        now.written = round * 1000;
        ages.gc_begins(&filled, ZoneId(next as u32), now, live[next]);
        for (zone, live) in live.iter_mut().enumerate() {
            let (age, _) = filled.of(ZoneId(zone as u32), now.written);
            let dead = (f64::from(*live) * shares(age / 1000)) as Blocks;
            *live -= dead;
            now.died += u64::from(dead);
        }
        filled.set(ZoneId(next as u32), Stream::user_writes(Lifetime::Unknown), now.written);
        live[next] = ZONE;
        ages.scan(&filled, ZoneId(next as u32), now, &live);
    }
    (filled, ages)
}

/// A point in time until which as many blocks have died as were written.
fn at(blocks: u64) -> Clocks {
    Clocks { written: blocks, died: blocks }
}

#[test]
fn without_an_effect_of_age_the_emptiest_zone_is_best() {
    let (zones, ages) = watch(|_| 0.02);
    let worth = |filled: u64, live| {
        let zone = ZoneId((filled % 64) as u32);
        ages.worth(zones.of(zone, 1_999_000), live, ZONE)
    };
    for (old, young) in [(1945, 1990), (1950, 1980), (1940, 1970)] {
        assert!(worth(young, 500) > worth(old, 560), "filled at {old} and {young}");
        assert!(worth(young, 560) < worth(old, 500), "filled at {old} and {young}");
    }
}

#[test]
fn if_old_blocks_stay_a_young_zone_is_left_alone() {
    let (zones, ages) = watch(|age| if age < 8 { 0.1 } else { 0.002 });
    let now = 1_999_000;
    let (old, young) = (ZoneId((1945_u64 % 64) as u32), ZoneId((1996_u64 % 64) as u32));
    assert!(ages.worth(zones.of(old, now), 700, ZONE) > ages.worth(zones.of(young, now), 400, ZONE));
    let hazard = |age| ages.hazard(Stream::user_writes(Lifetime::Unknown), age);
    assert!(hazard(4000) > 10.0 * hazard(40_000), "{} and {}", hazard(4000), hazard(40_000));
}

/// Deaths and exposure of all streams and ages.
fn sums(ages: &Ages) -> (f64, f64) {
    ages.observed()
        .fold((0.0, 0.0), |(died, exposure), observed| (died + observed.died, exposure + observed.exposure))
}

#[test]
fn moved_blocks_do_not_die() {
    let (zones, mut ages) = (FillTimes::new(4), Ages::new(4, ZONE));
    zones.set(ZoneId(1), Stream::MOVED, 5);
    ages.scan(&zones, ZoneId(1), at(5), &[0, 900, 0, 0]);
    ages.scan(&zones, ZoneId(2), at(10), &[0, 900, 0, 0]);
    assert!(ages.gc_begins(&zones, ZoneId(1), at(20), 890));
    ages.scan(&zones, ZoneId(2), at(30), &[0, 0, 0, 0]);
    assert_eq!(sums(&ages), (10.0, 9000.0));
}

/// Other zones are filled while a zone is in GC. Its moved blocks were counted as dead, so old zones seemed to become empty
/// by themselves. With uniform overwrites they were left, and younger and fuller ones were collected: 22 % more was moved
/// than without learning.
#[test]
fn blocks_moved_while_other_zones_are_filled_do_not_die() {
    let (zones, mut ages) = (FillTimes::new(16), Ages::new(16, ZONE));
    zones.set(ZoneId(1), Stream::MOVED, 5);
    ages.scan(&zones, ZoneId(2), at(10), &[0, 900, 0, 0]);
    assert!(ages.gc_begins(&zones, ZoneId(1), at(20), 890));
    ages.scan(&zones, ZoneId(2), at(30), &[0, 600, 0, 0]);
    ages.scan(&zones, ZoneId(3), at(40), &[0, 300, 0, 0]);
    assert!(!ages.gc_begins(&zones, ZoneId(1), at(45), 250), "it was counted when GC began");
    assert_eq!(sums(&ages), (10.0, 9000.0));
    ages.scan(&zones, ZoneId(3), at(48), &[0, 0, 0, 0]);
    zones.set(ZoneId(1), Stream::MOVED, 50);
    ages.scan(&zones, ZoneId(2), at(50), &[0, 900, 0, 0]);
    ages.scan(&zones, ZoneId(2), at(60), &[0, 880, 0, 0]);
    assert_eq!(sums(&ages), (30.0, 18_000.0), "in its next life it counts like any other");
}

/// Zones that are filled while files are only added grow old, and nothing dies in any zone. Later, under uniform overwrites,
/// old zones were taken for zones that die slowly and were collected first: 6 % more was moved than without learning.
#[test]
fn a_time_without_deaths_has_no_effect() {
    let (zones, mut ages) = (FillTimes::new(4), Ages::new(4, ZONE));
    let mut now = at(10);
    zones.set(ZoneId(1), Stream::MOVED, 10);
    ages.scan(&zones, ZoneId(2), now, &[0, 900, 0, 0]);
    now.written += 1 << 20;
    ages.scan(&zones, ZoneId(2), now, &[0, 900, 0, 0]);
    assert_eq!(sums(&ages), (0.0, 0.0));
    (now.written, now.died) = (now.written + 20, now.died + 20);
    ages.scan(&zones, ZoneId(3), now, &[0, 880, 0, 0]);
    assert_eq!(sums(&ages), (20.0, 18_000.0));
}

/// The last blocks of a zone are inserted after it was reported full: it gains blocks while it should lose them.
#[test]
fn a_zone_counts_from_the_scan_after_it_was_filled() {
    let (zones, mut ages) = (FillTimes::new(4), Ages::new(4, ZONE));
    zones.set(ZoneId(1), Stream::MOVED, 10);
    ages.scan(&zones, ZoneId(1), at(10), &[0, 700, 0, 0]);
    ages.scan(&zones, ZoneId(2), at(30), &[0, 900, 0, 0]);
    assert_eq!(sums(&ages), (0.0, 0.0));
    ages.scan(&zones, ZoneId(3), at(40), &[0, 890, 0, 0]);
    assert_eq!(sums(&ages), (10.0, 9000.0));
}

#[test]
fn without_observations_the_hazard_falls_with_age() {
    let ages = Ages::new(4, ZONE);
    let hazards: Vec<f64> = (0..40).map(|power| ages.hazard(Stream::MOVED, 1 << power)).collect();
    assert!(hazards.windows(2).all(|pair| pair[1] < pair[0]), "{hazards:?}");
    assert!(hazards.iter().all(|hazard| hazard.is_finite() && *hazard > 0.0));
}

#[test]
fn loaded_sums_give_the_same_hazards() {
    let (_, before) = watch(|age| if age < 8 { 0.1 } else { 0.01 });
    let mut after = Ages::new(64, ZONE);
    after.load(at(1_999_000), before.observed());
    for age in [0, 3000, 30_000, 1 << 40] {
        let stream = Stream::user_writes(Lifetime::Unknown);
        assert_eq!(after.hazard(stream, age), before.hazard(stream, age));
    }
}

use super::*;

const ZONE: Blocks = 1000;

/// Zones of which this share of what lives dies in each thousand blocks, as long as they are this old.
fn watch(shares: impl Fn(u64) -> f64) -> (Filled, Ages) {
    let (filled, mut ages) = (Filled::new(64), Ages::new(64, ZONE));
    let mut live: Vec<Blocks> = vec![0; 64];
    let mut now = Moment::default();
    for round in 1..2000_u64 {
        let next = (round % 64) as usize;
        now.written = round * 1000;
        ages.evacuated(&filled, ZoneId(next as u32), now, live[next]);
        for (zone, live) in live.iter_mut().enumerate() {
            let (age, _) = filled.of(ZoneId(zone as u32), now.written);
            let dead = (f64::from(*live) * shares(age / 1000)) as Blocks;
            *live -= dead;
            now.died += u64::from(dead);
        }
        filled.set(ZoneId(next as u32), Stream::fresh(Lifetime::Unknown), now.written);
        live[next] = ZONE;
        ages.look(&filled, ZoneId(next as u32), now, &live);
    }
    (filled, ages)
}

/// A moment until which as many blocks have died as were written.
fn at(blocks: u64) -> Moment {
    Moment { written: blocks, died: blocks }
}

#[test]
fn where_age_says_nothing_the_emptiest_zone_is_the_best() {
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
fn where_what_is_old_stays_a_young_zone_is_left_to_empty() {
    let (zones, ages) = watch(|age| if age < 8 { 0.1 } else { 0.002 });
    let now = 1_999_000;
    let (old, young) = (ZoneId((1945_u64 % 64) as u32), ZoneId((1996_u64 % 64) as u32));
    assert!(ages.worth(zones.of(old, now), 700, ZONE) > ages.worth(zones.of(young, now), 400, ZONE));
    let hazard = |age| ages.hazard(Stream::fresh(Lifetime::Unknown), age);
    assert!(hazard(4000) > 10.0 * hazard(40_000), "{} and {}", hazard(4000), hazard(40_000));
}

/// Deaths and exposure of all streams and ages.
fn sums(ages: &Ages) -> (f64, f64) {
    ages.seen().fold((0.0, 0.0), |(died, exposure), seen| (died + seen.died, exposure + seen.exposure))
}

#[test]
fn what_is_moved_does_not_die() {
    let (zones, mut ages) = (Filled::new(4), Ages::new(4, ZONE));
    zones.set(ZoneId(1), Stream::MOVED, 5);
    ages.look(&zones, ZoneId(1), at(5), &[0, 900, 0, 0]);
    ages.look(&zones, ZoneId(2), at(10), &[0, 900, 0, 0]);
    assert!(ages.evacuated(&zones, ZoneId(1), at(20), 890));
    ages.look(&zones, ZoneId(2), at(30), &[0, 0, 0, 0]);
    assert_eq!(sums(&ages), (10.0, 9000.0));
}

/// Others are filled while a zone is emptied. What had left it by then was taken for dead, so that old zones seemed to
/// empty themselves: where every block is as likely to be written over as any other, they were left, younger and fuller
/// ones were emptied, and 22 % more was moved than by whoever had learned nothing.
#[test]
fn what_is_moved_while_others_are_filled_does_not_die() {
    let (zones, mut ages) = (Filled::new(16), Ages::new(16, ZONE));
    zones.set(ZoneId(1), Stream::MOVED, 5);
    ages.look(&zones, ZoneId(2), at(10), &[0, 900, 0, 0]);
    assert!(ages.evacuated(&zones, ZoneId(1), at(20), 890));
    ages.look(&zones, ZoneId(2), at(30), &[0, 600, 0, 0]);
    ages.look(&zones, ZoneId(3), at(40), &[0, 300, 0, 0]);
    assert!(!ages.evacuated(&zones, ZoneId(1), at(45), 250), "it was counted when it was begun");
    assert_eq!(sums(&ages), (10.0, 9000.0));
    ages.look(&zones, ZoneId(3), at(48), &[0, 0, 0, 0]);
    zones.set(ZoneId(1), Stream::MOVED, 50);
    ages.look(&zones, ZoneId(2), at(50), &[0, 900, 0, 0]);
    ages.look(&zones, ZoneId(2), at(60), &[0, 880, 0, 0]);
    assert_eq!(sums(&ages), (30.0, 18_000.0), "in its next life it is looked at like any other");
}

/// Zones that are filled while files are only added grow old, and nothing in them dies, nor anywhere else. Old zones were
/// taken for such as die slowly long after blocks were written over again, each as likely as any other, and emptied
/// first: 6 % more was moved than by whoever had learned nothing.
#[test]
fn a_time_in_which_nothing_dies_says_nothing() {
    let (zones, mut ages) = (Filled::new(4), Ages::new(4, ZONE));
    let mut now = at(10);
    zones.set(ZoneId(1), Stream::MOVED, 10);
    ages.look(&zones, ZoneId(2), now, &[0, 900, 0, 0]);
    now.written += 1 << 20;
    ages.look(&zones, ZoneId(2), now, &[0, 900, 0, 0]);
    assert_eq!(sums(&ages), (0.0, 0.0));
    (now.written, now.died) = (now.written + 20, now.died + 20);
    ages.look(&zones, ZoneId(3), now, &[0, 880, 0, 0]);
    assert_eq!(sums(&ages), (20.0, 18_000.0));
}

/// What a zone was filled with last is counted after it is told that it is full: it gains while it should lose.
#[test]
fn a_zone_is_watched_from_the_look_after_it_was_filled() {
    let (zones, mut ages) = (Filled::new(4), Ages::new(4, ZONE));
    zones.set(ZoneId(1), Stream::MOVED, 10);
    ages.look(&zones, ZoneId(1), at(10), &[0, 700, 0, 0]);
    ages.look(&zones, ZoneId(2), at(30), &[0, 900, 0, 0]);
    assert_eq!(sums(&ages), (0.0, 0.0));
    ages.look(&zones, ZoneId(3), at(40), &[0, 890, 0, 0]);
    assert_eq!(sums(&ages), (10.0, 9000.0));
}

#[test]
fn what_nobody_has_seen_is_expected_to_die_more_and_more_slowly() {
    let ages = Ages::new(4, ZONE);
    let hazards: Vec<f64> = (0..40).map(|power| ages.hazard(Stream::MOVED, 1 << power)).collect();
    assert!(hazards.windows(2).all(|pair| pair[1] < pair[0]), "{hazards:?}");
    assert!(hazards.iter().all(|hazard| hazard.is_finite() && *hazard > 0.0));
}

#[test]
fn it_goes_on_from_what_was_seen_before() {
    let (_, before) = watch(|age| if age < 8 { 0.1 } else { 0.01 });
    let mut after = Ages::new(64, ZONE);
    after.remember(at(1_999_000), before.seen());
    for age in [0, 3000, 30_000, 1 << 40] {
        let stream = Stream::fresh(Lifetime::Unknown);
        assert_eq!(after.hazard(stream, age), before.hazard(stream, age));
    }
}

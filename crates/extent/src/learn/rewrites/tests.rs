use rt::random::Rng;

use super::*;

const BLOCKS: u64 = 20_000;

fn watch(mut choose: impl FnMut(&mut Rng) -> u64) -> Rewrites {
    let (rewrites, mut rng) = (Rewrites::new(), Rng::with_seed(5));
    rewrites.stayed(BLOCKS / 4);
    for now in 0..20 * BLOCKS {
        let block = choose(&mut rng);
        rewrites.wrote(Object(3), block..block + 1, now);
    }
    rewrites
}

#[test]
fn a_block_that_was_written_over_soon_is_expected_to_be_again() {
    let rewrites = watch(|rng| if rng.u32(0..10) < 8 { rng.u64(0..BLOCKS / 20) } else { rng.u64(0..BLOCKS) });
    assert!(rewrites.tells());
    assert_eq!(rewrites.expect(BLOCKS / 20), Lifetime::Short);
    assert_eq!(rewrites.expect(BLOCKS), Lifetime::Long);
}

#[test]
fn the_next_mount_believes_it_until_it_sees_otherwise() {
    let before = watch(|rng| if rng.u32(0..10) < 8 { rng.u64(0..BLOCKS / 20) } else { rng.u64(0..BLOCKS) });
    let (after, mut rng) = (Rewrites::new(), Rng::with_seed(6));
    after.remember(before.stay(), before.tells());
    assert!(after.tells());
    assert_eq!(after.expect(BLOCKS / 20), Lifetime::Short);
    let now_alike = (0..40 * BLOCKS).find(|&now| {
        let block = rng.u64(0..BLOCKS);
        after.wrote(Object(3), block..block + 1, now);
        !after.tells()
    });
    assert!(now_alike.is_some());
}

#[test]
fn nothing_is_said_where_all_blocks_are_alike() {
    assert!(!watch(|rng| rng.u64(0..BLOCKS)).tells());
}

/// Where zones stayed for long, nearly all lives were short, and so were those that followed; where they stayed for less,
/// nearly none. Counted together that looked as if one life told the next: uniform overwrites of a volume that was 90 % full
/// went to zones of two classes, and cost a tenth more.
#[test]
fn a_limit_that_moves_tells_nothing() {
    let (rewrites, mut rng) = (Rewrites::new(), Rng::with_seed(5));
    let mut believed = 0;
    for now in 0..100 * BLOCKS {
        // So often that no more is left of what was before: each weighs an eighth.
        if now % (5 * BLOCKS) == 0 {
            let stay = if now % (10 * BLOCKS) == 0 { 2 * BLOCKS } else { BLOCKS / 8 };
            (0..32).for_each(|_| rewrites.stayed(stay));
        }
        let block = rng.u64(0..BLOCKS);
        rewrites.wrote(Object(3), block..block + 1, now);
        believed += u64::from(rewrites.tells());
    }
    assert_eq!(believed, 0, "for so many blocks of {}", 100 * BLOCKS);
}

/// With few pairs of one kind any share can be seen by chance.
#[test]
fn little_that_was_seen_is_not_believed() {
    let limit = 100;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let (after_short, after_long) = Default::default();
        let mut samples = Samples { mask: 0, blocks: HashMap::new(), after_short, after_long, limit };
        for _ in 0..1000 {
            let mut life = || if rng.u32(0..10) == 0 { 1 } else { limit };
            let (last, lived) = (life(), life());
            samples.followed(last, lived, limit);
            assert!(!samples.tells(false), "{:?} {:?}", samples.after_short, samples.after_long);
        }
    }
}

#[test]
fn what_changes_is_noticed() {
    let rewrites = watch(|rng| if rng.u32(0..10) < 8 { rng.u64(0..BLOCKS / 20) } else { rng.u64(0..BLOCKS) });
    let mut rng = Rng::with_seed(6);
    for now in 20 * BLOCKS..60 * BLOCKS {
        let block = rng.u64(0..BLOCKS);
        rewrites.wrote(Object(3), block..block + 1, now);
    }
    assert!(!rewrites.tells());
}

#[test]
fn only_so_many_blocks_are_watched() {
    let rewrites = Rewrites::new();
    rewrites.wrote(Object(1), 0..1 << 20, 1);
    let samples = rewrites.samples.lock();
    let watched = samples.blocks.len();
    assert!((SAMPLES_MAX / 4..=SAMPLES_MAX).contains(&watched), "{watched}");
    assert!(samples.mask > MASK);
}

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
fn nothing_is_said_where_all_blocks_are_alike() {
    assert!(!watch(|rng| rng.u64(0..BLOCKS)).tells());
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

use rt::random::Rng;

use super::*;

const BLOCKS: u64 = 20_000;

fn watch(mut choose: impl FnMut(&mut Rng) -> u64) -> OverwriteHistory {
    let (overwrite_history, mut rng) = (OverwriteHistory::new(), Rng::with_seed(5));
    overwrite_history.add_stay(BLOCKS / 4);
    for now in 0..20 * BLOCKS {
        let block = choose(&mut rng);
        overwrite_history.wrote(Object(3), block..block + 1, now);
    }
    overwrite_history
}

#[test]
fn a_block_overwritten_soon_is_predicted_to_be_so_again() {
    let overwrite_history =
        watch(|rng| if rng.u32(0..10) < 8 { rng.u64(0..BLOCKS / 20) } else { rng.u64(0..BLOCKS) });
    assert!(overwrite_history.is_predictive());
    assert_eq!(overwrite_history.predict(BLOCKS / 20), Lifetime::Short);
    assert_eq!(overwrite_history.predict(BLOCKS), Lifetime::Long);
}

#[test]
fn the_next_mount_predicts_until_the_evidence_is_against_it() {
    let before = watch(|rng| if rng.u32(0..10) < 8 { rng.u64(0..BLOCKS / 20) } else { rng.u64(0..BLOCKS) });
    let (after, mut rng) = (OverwriteHistory::new(), Rng::with_seed(6));
    after.load(before.stay(), before.is_predictive());
    assert!(after.is_predictive());
    assert_eq!(after.predict(BLOCKS / 20), Lifetime::Short);
    let now_alike = (0..40 * BLOCKS).find(|&now| {
        let block = rng.u64(0..BLOCKS);
        after.wrote(Object(3), block..block + 1, now);
        !after.is_predictive()
    });
    assert!(now_alike.is_some());
}

#[test]
fn uniform_overwrites_give_no_prediction() {
    assert!(!watch(|rng| rng.u64(0..BLOCKS)).is_predictive());
}

/// While zones stayed for long, nearly all lives were short, and so were those that followed. While they stayed for less,
/// nearly none were. Counted together, this looked like a prediction. Uniform overwrites of a volume that was 90 % full went
/// to zones of two classes, and a tenth more was written.
#[test]
fn a_moving_limit_gives_no_prediction() {
    let (overwrite_history, mut rng) = (OverwriteHistory::new(), Rng::with_seed(5));
    let mut was_predictive = 0;
    for now in 0..100 * BLOCKS {
        // Often enough that nothing of the former value remains: each has an eighth of the weight.
        if now % (5 * BLOCKS) == 0 {
            let stay = if now % (10 * BLOCKS) == 0 { 2 * BLOCKS } else { BLOCKS / 8 };
            (0..32).for_each(|_| overwrite_history.add_stay(stay));
        }
        let block = rng.u64(0..BLOCKS);
        overwrite_history.wrote(Object(3), block..block + 1, now);
        was_predictive += u64::from(overwrite_history.is_predictive());
    }
    assert_eq!(was_predictive, 0, "of {} blocks", 100 * BLOCKS);
}

/// With few pairs after one kind of life, any share can be a coincidence.
#[test]
fn little_evidence_gives_no_prediction() {
    let limit = 100;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let (after_short, after_long) = Default::default();
        let mut samples = Samples { mask: 0, blocks: HashMap::new(), after_short, after_long, limit };
        for _ in 0..1000 {
            let mut life = || if rng.u32(0..10) == 0 { 1 } else { limit };
            let (last, lived) = (life(), life());
            samples.add_pair(last, lived, limit);
            assert!(!samples.is_predictive(false), "{:?} {:?}", samples.after_short, samples.after_long);
        }
    }
}

#[test]
fn predictions_stop_when_overwrites_become_uniform() {
    let overwrite_history =
        watch(|rng| if rng.u32(0..10) < 8 { rng.u64(0..BLOCKS / 20) } else { rng.u64(0..BLOCKS) });
    let mut rng = Rng::with_seed(6);
    for now in 20 * BLOCKS..60 * BLOCKS {
        let block = rng.u64(0..BLOCKS);
        overwrite_history.wrote(Object(3), block..block + 1, now);
    }
    assert!(!overwrite_history.is_predictive());
}

#[test]
fn the_number_of_samples_is_bounded() {
    let overwrite_history = OverwriteHistory::new();
    overwrite_history.wrote(Object(1), 0..1 << 20, 1);
    let samples = overwrite_history.samples.lock();
    let watched = samples.blocks.len();
    assert!((SAMPLES_MAX / 4..=SAMPLES_MAX).contains(&watched), "{watched}");
    assert!(samples.mask > MASK_AT_START);
}

use super::*;

const ZONE: Blocks = 1000;
const BRIEF: Kind = Kind { particular: 7, general: 3 };
const LASTING: Kind = Kind { particular: 9, general: 4 };

/// Writes a zone at a time, of which `share` percent are of the brief kind; blocks of a kind die when so many of
/// it have been written after them.
fn run(zones: u64, share: u64, lives: [u64; 2]) -> (Kinds, Sums) {
    let (kinds, mut sums) = (Kinds::new(), Sums::new());
    let mut written = [0_u64; 2];
    for _ in 0..zones {
        for (kind, blocks) in [(0, ZONE as u64 * share / 100), (1, ZONE as u64 * (100 - share) / 100)] {
            let of = [BRIEF, LASTING][kind];
            kinds.wrote(of, blocks);
            let alive_before = written[kind].min(lives[kind]);
            written[kind] += blocks;
            let dead = (alive_before + blocks).saturating_sub(lives[kind]);
            kinds.died(of, dead);
        }
        sums.look(&kinds, u64::from(ZONE), 64, ZONE);
    }
    (kinds, sums)
}

#[test]
fn kinds_that_live_unlike_are_told_apart_before_most_of_the_one_has_died() {
    let (kinds, _) = run(40, 80, [2000, 30_000]);
    assert_eq!(kinds.expect(BRIEF), Lifetime::Short);
    assert_eq!(kinds.expect(LASTING), Lifetime::Long);
    let elsewhere = |kind: Kind| Kind { particular: 99, ..kind };
    assert_eq!(kinds.expect(elsewhere(BRIEF)), Lifetime::Short, "the general kind is asked");
    assert_eq!(kinds.expect(Kind { particular: 5, general: 6 }), Lifetime::Unknown);
    assert_eq!(kinds.expect(Kind::default()), Lifetime::Unknown);
}

#[test]
fn nothing_is_said_where_lives_are_alike() {
    let (kinds, _) = run(200, 50, [20_000, 20_000]);
    assert_eq!([BRIEF, LASTING].map(|kind| kinds.expect(kind)), [Lifetime::Unknown; 2]);
}

#[test]
fn nothing_is_said_while_nothing_dies() {
    let (kinds, _) = run(50, 80, [u64::MAX, u64::MAX]);
    assert_eq!([BRIEF, LASTING].map(|kind| kinds.expect(kind)), [Lifetime::Unknown; 2]);
}

#[test]
fn what_was_said_is_said_again_after_the_next_look() {
    let (_, sums) = run(40, 80, [2000, 30_000]);
    let before: Vec<(usize, Lives)> = sums.lives().iter().copied().enumerate().collect();
    let (kinds, mut sums) = (Kinds::new(), Sums::new());
    sums.remember(&kinds, &before);
    sums.look(&kinds, 0, 64, ZONE);
    assert_eq!((kinds.expect(BRIEF), kinds.expect(LASTING)), (Lifetime::Short, Lifetime::Long));
    sums.remember(&kinds, &[(1 << 20, Lives::default())]);
}

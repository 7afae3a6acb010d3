use super::*;

/// Asks about `order`; the answers, and how many parents were looked up.
fn ask(
    known_max: u64,
    order: impl IntoIterator<Item = u64>,
    parent_of: impl Fn(u64) -> Option<u64>,
) -> (Vec<bool>, u64) {
    let (mut ancestors, mut steps) = (Ancestors::new(known_max), 0);
    let mut reach = |number| {
        let reached = ancestors.reach_root(InodeNo(number), |at| {
            steps += 1;
            Ok(parent_of(at.0).map(InodeNo))
        });
        reached.expect("parents can be looked up")
    };
    (order.into_iter().map(&mut reach).collect(), steps)
}

/// Directory n is in n - 1.
fn chain(number: u64) -> Option<u64> {
    Some(number - 1)
}

#[test]
fn every_parent_is_looked_up_once_whatever_the_order() {
    let deepest = InodeNo::ROOT.0 + 4000;
    let down = InodeNo::ROOT.0 + 1..=deepest;
    assert_eq!(ask(1 << 18, down.clone(), chain), (vec![true; 4000], 4000));
    assert_eq!(ask(1 << 18, down.rev(), chain), (vec![true; 4000], 4000));
}

#[test]
fn directories_below_a_circle_or_an_unknown_parent_do_not_reach_the_root() {
    // 12 -> 11 -> 10 -> 12, and 13 is below; the parent of 20 is not known, and 21 is below.
    let parent_of = |number| match number {
        10 => Some(12),
        20 => None,
        30 => Some(InodeNo::ROOT.0),
        number => Some(number - 1),
    };
    for order in [[13, 10, 11, 12, 21, 20, 30, 31], [31, 30, 20, 21, 12, 11, 10, 13]] {
        let (reached, steps) = ask(1 << 18, order, parent_of);
        assert_eq!((order.map(|number| number >= 30).to_vec(), 8), (reached, steps), "{order:?}");
    }
}

#[test]
fn at_the_limit_of_memory_the_answers_stay_right() {
    let (reached, steps) = ask(10, InodeNo::ROOT.0 + 1..=InodeNo::ROOT.0 + 1000, chain);
    assert_eq!(reached, vec![true; 1000]);
    assert!((1001..5000).contains(&steps), "{steps} parents were looked up");
}

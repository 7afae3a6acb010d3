use super::*;

/// Ends of ranges: near the numbers 0, 1, 2, 255 and the largest, in tables 4 to 6; shorter and longer keys too.
fn ends() -> Vec<Key> {
    let few: [&[u8]; 7] = [&[], &[4], &[5], &[6], &[5, 0], &[5, 0, 0, 0, 0, 0, 0, 0], &[5, 1]];
    let mut ends = few.map(Key::from).to_vec();
    for table in [4, 5, 6] {
        for number in [0, 1, 2, 255, u64::MAX - 1, u64::MAX] {
            let key = tree_key(Table(table), &number.to_be_bytes());
            ends.push([&key[..], &[0]].concat().into());
            ends.push([&key[..], &[7, 7]].concat().into());
            ends.push(key);
        }
    }
    ends
}

fn ranges() -> Vec<KeyRange> {
    let highs = || ends().into_iter().map(Some).chain([None]);
    let of = |low: Key| highs().map(move |high| KeyRange { group: Group(1), low: low.clone(), high });
    ends().into_iter().flat_map(of).collect()
}

const NUMBERS: [u64; 8] = [0, 1, 2, 3, 255, 256, u64::MAX - 1, u64::MAX];

#[test]
fn numbers_are_those_that_are_touched() {
    for range in ranges() {
        for number in NUMBERS {
            let is_among = range.numbers(Table(5)).is_some_and(|numbers| numbers.contains(&number));
            assert_eq!(is_among, range.touches(Table(5), &number.to_be_bytes()), "{number} in {range:?}");
        }
    }
}

#[test]
fn ranges_that_are_touched_are_found_among_many() {
    let all = ranges();
    let many = KeyRanges::new(all.iter().rev().cloned());
    assert_eq!(many.iter().count(), all.len());
    for number in NUMBERS {
        let prefix = number.to_be_bytes();
        let one_by_one = all.iter().filter(|range| range.touches(Table(5), &prefix)).count();
        assert_eq!(many.touching(Group(1), Table(5), &prefix).count(), one_by_one, "{number}");
        assert!(many.touching(Group(1), Table(5), &prefix).all(|range| range.touches(Table(5), &prefix)));
        assert_eq!(many.touching(Group(2), Table(5), &prefix).count(), 0);
    }
}

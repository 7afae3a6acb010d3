use super::*;

/// Random changes against an array of counts.
#[test]
fn counts_agree_with_an_array() {
    let mut rng = rt::random::Rng::with_seed(5);
    for _ in 0..200 {
        let mut counts = Counts { owner: Object(1), old: BTreeMap::new(), new: BTreeMap::new() };
        let mut model = [1i64; 300];
        for _ in 0..60 {
            let from = rng.u64(0..250);
            let run = from..from + rng.u64(1..50);
            let within = run.start as usize..run.end as usize;
            let goes = model[within.clone()].iter().all(|&count| count > 0) && rng.u8(..3) == 0;
            let change = if goes { -1 } else { i64::from(rng.u8(1..3)) };
            let unreferenced = counts.change(&run, change).unwrap();
            for block in within {
                model[block] += change;
                let gone = unreferenced.iter().any(|run| run.contains(&(block as u64)));
                assert_eq!(gone, model[block] == 0);
                // A block without a reference is no longer shared: its count begins with one again.
                model[block] = model[block].max(1);
            }
        }
        for (block, &count) in model.iter().enumerate() {
            let run = counts.new.range(..=block as u64).next_back().filter(|(_, run)| run.0 > block as u64);
            assert_eq!(run.map_or(1, |(_, run)| i64::from(run.1)), count, "block {block}");
        }
    }
}

#[test]
fn more_references_than_counted_cannot_be_removed() {
    let mut counts = Counts { owner: Object(1), old: BTreeMap::new(), new: BTreeMap::new() };
    assert!(counts.change(&(3..9), 2).unwrap().is_empty());
    assert!(counts.change(&(4..5), -4).is_err());
}

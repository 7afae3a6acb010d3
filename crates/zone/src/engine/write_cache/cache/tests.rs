//! What a cut may leave, and what it may not touch.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use super::*;

const BLOCKS: usize = 8;

/// A cache in front of a file of zeros, for a disk that lies or not.
fn cache(lies: bool) -> WriteCache {
    let file = tempfile::tempfile().unwrap();
    file.set_len((BLOCKS * UNIT) as u64).unwrap();
    WriteCache::new(file, lies)
}

fn write(cache: &WriteCache, block: usize, tags: &[u8]) {
    let bytes: Vec<u8> = tags.iter().flat_map(|&tag| [tag; UNIT]).collect();
    cache.carry_out(&mut Transfer::Write { offset: (block * UNIT) as u64, from: &bytes, stream: 0 }).unwrap();
}

/// The first byte of each block, which is that of all of it.
fn tags(bytes: &[u8]) -> Vec<u8> {
    assert!(
        bytes.chunks(UNIT).all(|block| block.iter().all(|&byte| byte == block[0])),
        "a block is one version"
    );
    bytes.chunks(UNIT).map(|block| block[0]).collect()
}

/// What the cache gives.
fn read(cache: &WriteCache) -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS * UNIT];
    cache.carry_out(&mut Transfer::Read { offset: 0, into: &mut bytes }).unwrap();
    tags(&bytes)
}

/// What the file holds.
fn there(cache: &WriteCache) -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS * UNIT];
    cache.0.file.read_exact_at(&mut bytes, 0).unwrap();
    tags(&bytes)
}

fn settle(cache: &WriteCache, seed: u64) -> Aftermath {
    cache.0.settle(&cache.0.state.lock(), &mut Rng::with_seed(seed)).unwrap()
}

#[test]
fn what_was_written_is_read_and_only_a_sync_brings_it_to_the_file() {
    let cache = cache(false);
    write(&cache, 1, &[1, 2, 3]);
    write(&cache, 2, &[9]);
    assert_eq!(read(&cache), [0, 1, 9, 3, 0, 0, 0, 0]);
    assert_eq!(there(&cache), [0; BLOCKS]);
    cache.sync().unwrap();
    assert_eq!(there(&cache), [0, 1, 9, 3, 0, 0, 0, 0]);
    assert_eq!(settle(&cache, 1), Aftermath::default(), "nothing is left to lose");
}

#[test]
fn what_a_disk_that_lies_has_synced_can_be_lost() {
    let cache = cache(true);
    write(&cache, 0, &[1]);
    cache.sync().unwrap();
    assert_eq!(read(&cache)[0], 1);
    assert_eq!(there(&cache)[0], 0);
}

#[test]
fn a_cut_leaves_of_each_write_all_nothing_a_beginning_or_any_blocks() {
    let mut found = BTreeSet::new();
    for seed in 0..2_000 {
        let cache = cache(false);
        write(&cache, 0, &[7, 7]);
        cache.sync().unwrap();
        write(&cache, 1, &[1, 2, 3]);
        write(&cache, 1, &[4]);
        let aftermath = settle(&cache, seed);
        assert_eq!(aftermath.kept + aftermath.lost, 4);
        let there = there(&cache);
        assert_eq!(
            (there[0], &there[4..]),
            (7, &[0; 4][..]),
            "what was synced, and what nobody wrote, stays"
        );
        found.insert((there[1], there[2], there[3]));
    }
    // The first block as it was or of either write, each of the others there or not.
    let legal = [7, 1, 4].map(|first| [0, 2].map(|second| [0, 3].map(|third| (first, second, third))));
    let legal: BTreeSet<_> = legal.into_iter().flatten().flatten().collect();
    assert_eq!(found, legal);
}

#[test]
fn what_a_sync_that_has_not_ended_writes_can_be_lost_too() {
    let cache = cache(false);
    write(&cache, 0, &[1]);
    let mut state = cache.0.state.lock();
    state.leaving = Arc::new(std::mem::take(&mut state.new));
    drop(state);
    write(&cache, 1, &[2]);
    assert_eq!(read(&cache)[..2], [1, 2]);
    let counted = |seed| settle(&cache, seed);
    assert!((0..50).any(|seed| counted(seed) == Aftermath { kept: 0, lost: 2 }));
    assert!((0..50).any(|seed| counted(seed) == Aftermath { kept: 2, lost: 0 }));
}

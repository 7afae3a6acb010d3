//! Which data a power loss may discard, and which it must keep.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use super::*;

const BLOCKS: usize = 8;

/// A cache in front of a file of zeros, for a disk whose syncs work or not.
fn cache(lies: bool) -> WriteCache {
    let file = tempfile::tempfile().unwrap();
    file.set_len((BLOCKS * UNIT) as u64).unwrap();
    WriteCache::new(file, lies)
}

fn write(cache: &WriteCache, block: usize, tags: &[u8]) {
    let bytes: Vec<u8> = tags.iter().flat_map(|&tag| [tag; UNIT]).collect();
    cache.execute(&mut Transfer::Write { offset: (block * UNIT) as u64, from: &bytes, stream: 0 }).unwrap();
}

/// The first byte of each block, which is filled with it.
fn tags(bytes: &[u8]) -> Vec<u8> {
    assert!(
        bytes.chunks(UNIT).all(|block| block.iter().all(|&byte| byte == block[0])),
        "a block is one version"
    );
    bytes.chunks(UNIT).map(|block| block[0]).collect()
}

/// The blocks that are read through the cache.
fn read(cache: &WriteCache) -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS * UNIT];
    cache.execute(&mut Transfer::Read { offset: 0, into: &mut bytes }).unwrap();
    tags(&bytes)
}

/// The blocks in the file.
fn there(cache: &WriteCache) -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS * UNIT];
    cache.0.file.read_exact_at(&mut bytes, 0).unwrap();
    tags(&bytes)
}

fn write_survivors(cache: &WriteCache, seed: u64) -> CutBlocks {
    cache.0.write_survivors(&cache.0.state.lock(), &mut Rng::with_seed(seed)).unwrap()
}

#[test]
fn data_is_readable_at_once_and_reaches_the_file_with_a_sync() {
    let cache = cache(false);
    write(&cache, 1, &[1, 2, 3]);
    write(&cache, 2, &[9]);
    assert_eq!(read(&cache), [0, 1, 9, 3, 0, 0, 0, 0]);
    assert_eq!(there(&cache), [0; BLOCKS]);
    cache.sync().unwrap();
    assert_eq!(there(&cache), [0, 1, 9, 3, 0, 0, 0, 0]);
    assert_eq!(write_survivors(&cache, 1), CutBlocks::default(), "nothing is left to lose");
}

#[test]
fn synced_data_can_be_lost_if_the_disk_ignores_syncs() {
    let cache = cache(true);
    write(&cache, 0, &[1]);
    cache.sync().unwrap();
    assert_eq!(read(&cache)[0], 1);
    assert_eq!(there(&cache)[0], 0);
}

#[test]
fn a_power_loss_keeps_all_none_the_first_or_any_blocks_of_each_write() {
    let mut found = BTreeSet::new();
    for seed in 0..2_000 {
        let cache = cache(false);
        write(&cache, 0, &[7, 7]);
        cache.sync().unwrap();
        write(&cache, 1, &[1, 2, 3]);
        write(&cache, 1, &[4]);
        let counts = write_survivors(&cache, seed);
        assert_eq!(counts.kept + counts.lost, 4);
        let there = there(&cache);
        assert_eq!((there[0], &there[4..]), (7, &[0; 4][..]), "synced and unwritten blocks do not change");
        found.insert((there[1], there[2], there[3]));
    }
    // The first block is old or from either write; each of the others is present or lost.
    let legal = [7, 1, 4].map(|first| [0, 2].map(|second| [0, 3].map(|third| (first, second, third))));
    let legal: BTreeSet<_> = legal.into_iter().flatten().flatten().collect();
    assert_eq!(found, legal);
}

#[test]
fn writes_of_an_unfinished_sync_can_be_lost() {
    let cache = cache(false);
    write(&cache, 0, &[1]);
    let mut state = cache.0.state.lock();
    state.leaving = Arc::new(std::mem::take(&mut state.new));
    drop(state);
    write(&cache, 1, &[2]);
    assert_eq!(read(&cache)[..2], [1, 2]);
    let counted = |seed| write_survivors(&cache, seed);
    assert!((0..50).any(|seed| counted(seed) == CutBlocks { kept: 0, lost: 2 }));
    assert!((0..50).any(|seed| counted(seed) == CutBlocks { kept: 2, lost: 0 }));
}

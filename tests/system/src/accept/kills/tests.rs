//! Planted errors that must be found: a comparison that finds nothing would be worthless.

use super::contents::{BLOCK, Contents, Origin, Write};
use super::names::{Change, Done, History, Listing, judge_prefix};
use super::writer::Tally;

fn bytes(version: u64, offset: usize, length: usize) -> Vec<u8> {
    Origin { seed: 7, writer: 1, file: 2, version }.bytes(offset, length)
}

fn write(version: u64, offset: usize, length: usize) -> Write {
    Write { offset, bytes: bytes(version, offset, length) }
}

/// Two blocks of version 0, synced. Then version 1 of the second, not synced.
fn contents() -> Contents {
    let mut contents = Contents::default();
    contents.write(write(0, 0, 2 * BLOCK));
    contents.sync();
    contents.write(write(1, BLOCK, BLOCK));
    contents
}

#[test]
fn old_and_new_blocks_may_be_there_after_a_write_without_sync() {
    let old = bytes(0, 0, 2 * BLOCK);
    let new = [bytes(0, 0, BLOCK), bytes(1, BLOCK, BLOCK)].concat();
    contents().judge(&old).unwrap();
    contents().judge(&new).unwrap();
}

#[test]
fn a_synced_write_must_be_there() {
    let mut contents = contents();
    contents.sync();
    let error = format!("{:#}", contents.judge(&bytes(0, 0, 2 * BLOCK)).unwrap_err());
    assert!(error.contains("block 1"), "{error}");
    assert!(error.contains("64 lines of writer 1 file 2 version 0 block 1"), "{error}");
}

#[test]
fn torn_foreign_and_lost_blocks_are_found() {
    let mut torn = bytes(0, 0, 2 * BLOCK);
    torn[BLOCK..BLOCK + 512].copy_from_slice(&bytes(1, BLOCK, 512));
    assert!(contents().judge(&torn).is_err());
    let mut foreign = bytes(0, 0, 2 * BLOCK);
    foreign[100] ^= 1;
    assert!(contents().judge(&foreign).is_err());
    let moved = [bytes(0, BLOCK, BLOCK), bytes(0, BLOCK, BLOCK)].concat();
    assert!(contents().judge(&moved).is_err());
    assert!(contents().judge(&bytes(0, 0, BLOCK)).is_err());
    assert!(contents().judge(&[bytes(0, 0, 2 * BLOCK), vec![0]].concat()).is_err());
    assert!(contents().judge(&vec![0; 2 * BLOCK]).is_err());
}

#[test]
fn appended_bytes_may_be_missing_or_zeros_but_not_invented() {
    let mut contents = Contents::found(bytes(0, 0, 100));
    contents.write(write(1, 100, 5000));
    contents.judge(&bytes(0, 0, 100)).unwrap();
    contents.judge(&[bytes(0, 0, 100), vec![0; 200]].concat()).unwrap();
    contents.judge(&[bytes(0, 0, 100), bytes(1, 100, 5000)].concat()).unwrap();
    assert!(contents.judge(&[bytes(0, 0, 100), vec![7; 200]].concat()).is_err());
    assert!(contents.judge(&[vec![0; 100], bytes(1, 100, 5000)].concat()).is_err());
}

fn create(name: &str, inode: u64, began: u64) -> Done {
    let change = Change::Create { name: name.to_owned(), inode: Some(inode) };
    Done { change, began, ended: Some(began + 1) }
}

/// Creates `a`, then `b`, then renames `b` over `a`. The last call was not answered.
fn history() -> History {
    let rename = Change::Rename { from: "b".to_owned(), to: "a".to_owned() };
    let done = vec![create("a", 1, 10), create("b", 2, 20), Done { change: rename, began: 30, ended: None }];
    History { base: Listing::new(), done }
}

fn listing(names: &[(&str, u64)]) -> Listing {
    names.iter().map(|&(name, inode)| (name.to_owned(), Some(inode))).collect()
}

#[test]
fn every_prefix_may_be_there_that_is_not_older_than_the_last_sync() {
    let states: [&[(&str, u64)]; 4] = [&[], &[("a", 1)], &[("a", 1), ("b", 2)], &[("a", 2)]];
    for state in states {
        history().fit(&listing(state), 0).unwrap();
    }
    assert!(history().fit(&listing(states[0]), 12).is_err());
    history().fit(&listing(states[1]), 12).unwrap();
    assert!(history().fit(&listing(states[1]), 40).is_err());
    history().fit(&listing(states[3]), 40).unwrap();
}

#[test]
fn names_that_never_stood_together_are_found() {
    for state in [&[("b", 2)][..], &[("a", 2), ("b", 2)], &[("a", 3)], &[("a", 1), ("c", 2)]] {
        assert!(history().fit(&listing(state), 0).is_err(), "{state:?}");
    }
}

#[test]
fn a_hole_in_the_order_of_two_writers_is_found() {
    let early = History { base: Listing::new(), done: vec![create("a", 1, 10)] };
    let late = History { base: Listing::new(), done: vec![create("b", 2, 20)] };
    let (none, a, b) = (listing(&[]), listing(&[("a", 1)]), listing(&[("b", 2)]));
    let fits =
        |first: &Listing, second: &Listing| [early.fit(first, 0).unwrap(), late.fit(second, 0).unwrap()];
    judge_prefix(&fits(&none, &none)).unwrap();
    judge_prefix(&fits(&a, &none)).unwrap();
    judge_prefix(&fits(&a, &b)).unwrap();
    assert!(judge_prefix(&fits(&none, &b)).is_err());
}

#[test]
fn only_syncs_count_as_such() {
    let mut tally = Tally::default();
    for kind in ["write", "fsync", "create", "write", "fdatasync", "fsync"] {
        tally.count(kind);
    }
    assert_eq!((tally.synced(), tally.buffered()), (3, 3));
}

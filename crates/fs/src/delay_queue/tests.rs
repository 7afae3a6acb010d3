use super::*;

const BLOCK: u64 = 4;

fn batch() -> Batch {
    let hint = Hint::default();
    let call = WriteCall { object: Object(1), hint, offset: 0, data: &[], valid: 0, may_refer: false };
    Batch::new(&call, Vec::new(), 0)
}

fn add(batch: &mut Batch, first: u64, data: &[u8]) -> Added {
    batch.add(first, data, BLOCK, |runs, blocks| runs <= 3 && blocks <= 6)
}

#[test]
fn writes_that_follow_each_other_are_one_run() {
    let mut batch = batch();
    for (first, data) in [(7, &b"aaaabbbb"[..]), (9, b"cccc"), (2, b"dddd"), (10, b"eeee")] {
        assert_ne!(add(&mut batch, first, data), Added::No);
    }
    assert_eq!(batch.outline.runs, [(7, 3), (2, 1), (10, 1)], "the last one does not follow the last run");
    assert_eq!(batch.data, b"aaaabbbbccccddddeeee");
    assert_eq!(batch.outline.end, 11 * BLOCK);
}

#[test]
fn a_write_within_an_earlier_one_replaces_its_bytes() {
    let mut batch = batch();
    for (first, data) in [(7, &b"aaaabbbb"[..]), (9, b"cccc"), (2, b"dddd"), (8, b"BBBBCCCC"), (2, b"DDDD")] {
        assert_ne!(add(&mut batch, first, data), Added::No);
    }
    assert_eq!(batch.outline.runs, [(7, 3), (2, 1)]);
    assert_eq!(batch.data, b"aaaaBBBBCCCCDDDD");
    for (first, data) in
        [(6, &b"xxxxxxxx"[..]), (9, b"xxxxxxxx"), (1, b"xxxxxxxxxxxx"), (6, b"xxxxxxxxxxxxxxxx")]
    {
        assert_eq!(add(&mut batch, first, data), Added::No);
    }
    assert_eq!(batch.data, b"aaaaBBBBCCCCDDDD", "nothing else is changed");
}

#[test]
fn a_batch_is_no_larger_than_one_transaction() {
    let mut batch = batch();
    for first in [10, 20, 30] {
        assert_eq!(add(&mut batch, first, b"aaaa"), Added::Yes(BLOCK));
    }
    assert_eq!(add(&mut batch, 40, b"aaaa"), Added::No, "too many runs");
    assert_eq!(add(&mut batch, 31, b"aaaabbbbcccc"), Added::Yes(3 * BLOCK));
    assert_eq!(add(&mut batch, 34, b"aaaa"), Added::No, "too many blocks");
    assert_eq!(add(&mut batch, 30, b"bbbb"), Added::Yes(0));
    assert_eq!(batch.outline.end, 34 * BLOCK);
}

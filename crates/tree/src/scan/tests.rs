use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::*;

fn seal(epoch: u64, last: u64, next: u64) -> Found {
    let body = Seal { last: U64::new(last), next: U64::new(next) }.as_bytes().to_vec();
    let (at, checkpoint) = (Address::NONE, Address::NONE);
    let kind = BatchKind::Seal;
    Found {
        at,
        kind,
        epoch,
        sequence: epoch,
        first: 0,
        last: 0,
        known_durable: 0,
        checkpoint,
        successor: None,
        body,
    }
}

/// Epoch 10 has written up to some LSN. Epoch 20 accepted the records of 10 up to 100 and continues at 200. Epoch 30
/// accepted the records up to 250 and continues at 300.
fn seals() -> Seals {
    Seals::of(&[seal(30, 250, 300), seal(20, 100, 200)])
}

#[test]
fn records_of_an_epoch_count_up_to_the_lowest_later_seal() {
    assert_eq!([10, 19, 20, 29].map(|epoch| seals().limit(epoch)), [100, 100, 250, 250]);
    assert_eq!([30, 31].map(|epoch| seals().limit(epoch)), [u64::MAX; 2], "no seal has ended it");
    // An epoch that accepted less than the one before it.
    assert_eq!(Seals::of(&[seal(20, 100, 200), seal(30, 50, 300)]).limit(10), 50);
}

#[test]
fn the_first_lsn_after_a_seal_is_that_of_its_epoch() {
    let seals = seals();
    assert!(seals.follows(99, 100) && seals.follows(100, 101) && seals.follows(100, 200));
    assert!(seals.follows(250, 300));
    assert!(!seals.follows(100, 102) && !seals.follows(99, 200) && !seals.follows(100, 300));
    assert!(!seals.follows(5, 5));
    assert_eq!([99, 100, 101, 250].map(|last| seals.next_after(last)), [100, 200, 102, 300]);
    // Two mounts that found the same end. The later one continues the log.
    assert_eq!(Seals::of(&[seal(20, 100, 200), seal(30, 100, 201)]).next_after(100), 201);
}

#[test]
fn the_next_seal_is_the_next_one_that_remains() {
    let seals = seals();
    assert_eq!(seals.next_but(10, &[]), Some(20));
    assert_eq!(seals.next_but(10, &[20]), Some(30));
    assert_eq!(seals.next_but(20, &[]), Some(30));
    assert_eq!(seals.next_but(30, &[]), None);
}

#[test]
fn a_batch_that_is_not_a_seal_ends_no_epoch() {
    let mut short = seal(20, 100, 200);
    short.body.pop();
    let journal = Found { kind: BatchKind::Journal, ..seal(20, 100, 200) };
    for none in [short, journal, seal(20, 1 << 62, 200), seal(20, 100, 1 << 62)] {
        assert_eq!(Seals::of(&[none]).limit(10), u64::MAX);
    }
}

use super::*;

fn every_kind() -> Vec<Op> {
    let (group, table) = (Group(0x102), Table(3));
    vec![
        Op::Put { group, table, key: b"key"[..].into(), value: b"a value".to_vec() },
        Op::Put { group, table, key: b"k"[..].into(), value: Vec::new() },
        Op::Patch { group, table, key: b"key"[..].into(), patch: Patch::between(b"a value", b"A  Valuable") },
        Op::Delete { group, table, key: b"other"[..].into() },
        Op::ZoneOpened { zone: ZoneId(70_000), life: Life(80_000), role: Role::Data },
        Op::ZoneLive { zone: ZoneId(5), life: Life(6), change: -7 },
        Op::ZoneUser { zone: ZoneId(8), life: Life(9), bytes: [10; 16] },
        Op::Counter { counter: 15, change: -(1 << 40) },
    ]
}

fn encoded(ops: &[Op], lsn: u64) -> Vec<u8> {
    let mut record = encode(ops, &[]);
    set_lsn(&mut record, Lsn(lsn));
    record
}

#[test]
fn records_are_read_as_they_were_written() {
    let both = [encoded(&every_kind(), 11), encoded(&every_kind()[..1], 12)].concat();
    assert_eq!(decode_all(&both), Some(vec![(Lsn(11), every_kind()), (Lsn(12), every_kind()[..1].to_vec())]));
    assert_eq!(decode_all(&[]), Some(Vec::new()));
}

#[test]
fn a_truncated_record_is_refused() {
    let record = encoded(&every_kind(), 11);
    for length in 1..record.len() {
        assert_eq!(decode_all(&record[..length]), None, "{length} bytes of a record");
        // Also if the record itself states the shorter length.
        let mut shorter = record[..length].to_vec();
        if length >= 4 {
            shorter[..4].copy_from_slice(&(length as u32).to_le_bytes());
        }
        assert_eq!(decode_all(&shorter), None, "{length} bytes that pass for a record");
    }
}

#[test]
fn a_record_that_contradicts_itself_is_refused() {
    let put = |at: usize, bytes: &[u8]| {
        let mut record = encoded(&every_kind()[..1], 11);
        record[at..at + bytes.len()].copy_from_slice(bytes);
        decode_all(&record)
    };
    assert!(put(4, &[1]).is_some(), "the record has one operation");
    assert_eq!(put(4, &[2]), None, "one operation more than there are bytes for");
    assert_eq!(put(4, &[0]), None, "bytes that belong to no operation");
    assert_eq!(put(0, &[0; 4]), None, "a record without a length never ends");
    assert_eq!(put(16, &[0]), None, "an unknown kind");
    assert_eq!(put(16, &[8]), None, "an unknown kind");
    assert_eq!(put(8, &(1u64 << 62).to_le_bytes()), None, "an impossible LSN");
    assert!(put(8, &((1u64 << 62) - 1).to_le_bytes()).is_some());
}

#[test]
fn a_record_with_an_unknown_counter_is_refused() {
    let last = crate::COUNTERS as u8 - 1;
    assert!(decode_all(&encoded(&[Op::Counter { counter: last, change: 1 }], 1)).is_some());
    assert_eq!(decode_all(&encoded(&[Op::Counter { counter: last + 1, change: 1 }], 1)), None);
}

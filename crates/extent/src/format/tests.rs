use super::*;

fn entry(block: Blocks, blocks: u32) -> Entry {
    Entry { object: Object(7), offset: 90, sequence: 5, block, crcs: (0..blocks).collect() }
}

#[test]
fn extents_come_back_as_they_were_stored() {
    let extent = Extent::new(Address::new(ZoneId(3), 9, Life(2)), vec![1, 2, 3]);
    assert_eq!(Extent::decode(&extent.encode()), Some(extent.clone()));
    let tail = extent.slice(1, 3);
    assert_eq!((tail.address.block(), tail.crcs.as_slice()), (10, &[2, 3][..]));
    let lost = Extent::lost(4);
    assert_eq!(Extent::decode(&lost.encode()), Some(lost));
    let reference = Extent::reference(9, Origin { object: Object(7), block: 30 });
    assert_eq!(Extent::decode(&reference.encode()), Some(reference.clone()));
    let rest = Extent::reference(5, Origin { object: Object(7), block: 34 });
    assert_eq!(reference.slice(4, 9), rest);
    let endless = Extent::reference(9, Origin { object: Object(7), block: u64::MAX - 8 });
    assert_eq!(Extent::decode(&endless.encode()), None);
}

/// The first block of a zone is its header. No extent has it.
#[test]
fn an_extent_is_after_the_header_and_within_its_zone() {
    let is_one = |block| {
        let address = Address::new(ZoneId(3), block, Life(2));
        Extent::decode(&Extent::new(address, vec![1, 2]).encode()).is_some()
    };
    assert!(!is_one(0) && is_one(1));
    assert!(is_one(Address::BLOCKS_MAX - 2) && !is_one(Address::BLOCKS_MAX - 1));
}

#[test]
fn any_bytes_can_be_decoded_without_a_panic() {
    let mut rng = rt::random::Rng::with_seed(3);
    let mut good = 4u32.to_le_bytes().to_vec();
    good[..4].copy_from_slice(&CHECKPOINT_MAGIC.to_le_bytes());
    encode_unfinished(&mut good, (ZoneId(4), Life(1)), &[5, 6], [entry(3, 2)].iter());
    for _ in 0..20_000 {
        let mut bytes = if rng.bool() { good.clone() } else { vec![0; rng.usize(0..200)] };
        for _ in 0..rng.usize(0..6) {
            if !bytes.is_empty() {
                let at = rng.usize(0..bytes.len());
                bytes[at] = rng.u8(..);
            }
        }
        bytes.truncate(rng.usize(0..=bytes.len()));
        let _ = decode_checkpoint(&bytes);
        let _ = Extent::decode(&bytes);
        let _ = decode_key(&bytes);
        let _ = decode_entries(&bytes, 1);
        let name = ZoneName { fs_id: FsId([0; 16]), zone: ZoneId(0), life: Life(0) };
        if bytes.len() >= 8 {
            assert_eq!(decode_summary(SUMMARY_MAGIC, &name, &bytes), None);
        }
    }
}

#[test]
fn a_checkpoint_carries_zones() {
    let mut bytes = CHECKPOINT_MAGIC.to_le_bytes().to_vec();
    let entries = [entry(3, 2), entry(5, 256)];
    encode_unfinished(&mut bytes, (ZoneId(4), Life(1)), &[5, 6], entries.iter());
    encode_unfinished(&mut bytes, (ZoneId(9), Life(0)), &[], [].iter());
    let zones = decode_checkpoint(&bytes).expect("they were just encoded");
    let whole = Unfinished { life: Life(1), summaries: vec![5, 6], entries: entries.to_vec() };
    assert_eq!(zones, [(ZoneId(4), whole), (ZoneId(9), Unfinished::default())]);
    assert_eq!(decode_checkpoint(&bytes[..bytes.len() - 1]), None);
}

#[test]
fn a_summary_is_of_one_zone_in_one_life() {
    let name = ZoneName { fs_id: FsId([8; 16]), zone: ZoneId(1), life: Life(7) };
    let payload = encode_entries([entry(1, 256)].iter());
    let mut bytes = encode_summary(SUMMARY_MAGIC, &name, 0, (1, &payload), 512);
    assert_eq!(bytes.len(), 512 * Packing { block_size: 512 }.summary(payload.len()) as usize);
    assert_eq!(decode_summary(SUMMARY_MAGIC, &name, &bytes), Some((1, &payload[..])));
    assert_eq!(decode_summary(FOOTER_MAGIC, &name, &bytes), None);
    let other = ZoneName { life: Life(8), ..name };
    assert_eq!(decode_summary(SUMMARY_MAGIC, &other, &bytes), None);
    for at in 0..bytes.len() {
        bytes[at] ^= 4;
        assert_eq!(decode_summary(SUMMARY_MAGIC, &name, &bytes), None, "byte {at} is covered");
        bytes[at] ^= 4;
    }
}

/// The payload was found by counting down from the number of blocks that fit without a footer: thousands of steps for large
/// zones with small blocks, at each write for each open zone. A binary search finds the same number in few steps.
#[test]
fn payload_is_found_in_few_steps() {
    let one_by_one = |packing: Packing, capacity: Blocks| {
        let most = packing.payload_within(capacity).end - 1;
        (0..=most).rev().find(|data| packing.fits(*data, capacity)).unwrap_or(0)
    };
    for block_size in [512, 520, 4096, 16384, 65536] {
        let packing = Packing { block_size };
        let large = [1 << 16, 275_712, 1 << 19, (1 << 22) - 1, 1 << 22, (1 << 24) - 1];
        for capacity in (0..5000).chain(large) {
            let payload = packing.payload(capacity);
            assert_eq!(payload, one_by_one(packing, capacity), "{capacity} blocks of {block_size}");
            let within = packing.payload_within(capacity);
            let doubts = within.end - within.start;
            assert!(doubts <= capacity / 1000 + 8, "{doubts} for {capacity} blocks of {block_size}");
            assert!(packing.fits(within.start, capacity) || payload == 0, "{capacity} of {block_size}");
        }
    }
}

#[test]
fn payload_is_the_worst_case_of_a_writer() {
    for block_size in [512u32, 4096, 65536] {
        let packing = Packing { block_size };
        for capacity in [24, 40, 64, 77, 240, 256, 1536, 65536] {
            let payload = packing.payload(capacity);
            let per_block = packing.bytes_per_block() / Entry::bytes_for(1);
            // Appends of one block. Each block of a summary is written as soon as it is full.
            let (mut used, mut data, mut open, mut summaries) = (1, 0, 0, 0);
            loop {
                let keep = packing.reserved_behind((open + 1) * Entry::bytes_for(1), summaries);
                if used + 1 + keep > capacity {
                    break;
                }
                (used, data, open) = (used + 1, data + 1, open + 1);
                if open == per_block && used + 1 + packing.reserved_behind(0, summaries + 1) <= capacity {
                    (used, open, summaries) = (used + 1, 0, summaries + 1);
                }
            }
            assert!(data >= payload, "{block_size} {capacity}: {data} {payload}");
            assert!(data - payload <= 4, "{block_size} {capacity}: {data} {payload}");
        }
    }
}

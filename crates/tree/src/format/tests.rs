//! Decoders verify not only the checksum, but also the identity, the life and the numbers (I-TREE-2).

use super::*;

const IDENTITY: Identity = Identity { fs_id: FsId([7; 16]), zone: ZoneId(1), life: Life(5) };
const BLOCK: usize = 512;

fn frame() -> LogFrame {
    let mut frame = LogFrame::read_from_bytes(&[0; FRAME]).expect("as long as a frame");
    frame.magic = LOG_MAGIC;
    frame.fs_id = IDENTITY.fs_id.0;
    frame.zone = U32::new(IDENTITY.zone.0);
    frame.life = U32::new(IDENTITY.life.0);
    frame.kind = BatchKind::Journal as u8;
    frame.index = U32::new(0);
    frame.count = U32::new(2);
    frame.payload = U32::new((BLOCK - FRAME) as u32);
    frame
}

/// Whether a block with this change of its frame, and the right checksum, is accepted as a block of the log.
fn is_accepted(change: impl FnOnce(&mut LogFrame)) -> bool {
    let mut frame = frame();
    change(&mut frame);
    let mut block = vec![9; BLOCK];
    seal_block(&mut block, frame);
    decode_frame(&block, &IDENTITY).is_some()
}

#[test]
fn a_log_block_of_another_volume_zone_or_life_is_refused() {
    assert!(is_accepted(|_| {}));
    assert!(!is_accepted(|frame| frame.magic[0] ^= 1));
    assert!(!is_accepted(|frame| frame.fs_id[15] ^= 1));
    assert!(!is_accepted(|frame| frame.zone = U32::new(2)));
    assert!(!is_accepted(|frame| frame.life = U32::new(4)));
    assert!(!is_accepted(|frame| frame.kind = 0xff));
}

#[test]
fn a_log_block_with_impossible_numbers_is_refused() {
    assert!(!is_accepted(|frame| frame.payload = U32::new((BLOCK - FRAME) as u32 + 1)));
    assert!(is_accepted(|frame| frame.index = U32::new(1)));
    assert!(!is_accepted(|frame| frame.index = U32::new(2)));
    for end in [1 << 62, u64::MAX] {
        assert!(!is_accepted(|frame| frame.epoch = U64::new(end)));
        assert!(!is_accepted(|frame| frame.sequence = U64::new(end)));
    }
    assert!(is_accepted(|frame| frame.epoch = U64::new((1 << 62) - 1)));
}

#[test]
fn every_byte_of_a_block_of_the_log_is_in_its_checksum() {
    let mut block = vec![9; BLOCK];
    seal_block(&mut block, frame());
    for byte in 0..BLOCK {
        block[byte] ^= 0x10;
        assert!(decode_frame(&block, &IDENTITY).is_none(), "byte {byte} is not covered");
        block[byte] ^= 0x10;
    }
    assert!(decode_frame(&block, &IDENTITY).is_some());
    assert!(decode_frame(&block[..FRAME - 1], &IDENTITY).is_none());
}

fn page(lsn: u64, epoch: u64) -> Vec<u8> {
    let mut page = vec![9; 4096];
    write_header(&mut page, PageKind::MatChunk, 3, Lsn(lsn));
    seal_page(&mut page, IDENTITY.fs_id, IDENTITY.life, epoch);
    page
}

#[test]
fn a_page_header_has_the_written_fields() {
    let header = decode_page(&page(11, 12), IDENTITY.fs_id).expect("a page");
    assert_eq!((header.id.get(), header.lsn.get(), header.epoch.get()), (3, 11, 12));
    assert_eq!((header.life.get(), header.kind), (5, PageKind::MatChunk as u8));
}

#[test]
fn a_damaged_page_or_one_with_impossible_numbers_is_refused() {
    let mut whole = page(11, 12);
    assert!(decode_page(&whole, FsId([8; 16])).is_none());
    for byte in [0, 3, 4, 7, 8, 23, 24, 39, 40, 63, 64, 4095] {
        whole[byte] ^= 0x10;
        assert!(decode_page(&whole, IDENTITY.fs_id).is_none(), "byte {byte} is not covered");
        whole[byte] ^= 0x10;
    }
    assert!(decode_page(&page(1 << 62, 12), IDENTITY.fs_id).is_none());
    assert!(decode_page(&page(11, 1 << 62), IDENTITY.fs_id).is_none());
    assert!(decode_page(&whole[..PAGE_HEADER - 1], IDENTITY.fs_id).is_none());
}

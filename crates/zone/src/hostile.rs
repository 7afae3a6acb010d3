//! Passes arbitrary bytes to the decoders of this crate, as a malicious device would. Each input is completed with
//! the correct checksum first. Every function returns for any bytes. For fuzzing.

use crate::device::{Geometry, ZoneInfo, ZoneState};
use crate::file::format::{HEADER_BYTES, Layout, Recorded, SLOT_BYTES};
use crate::file::{self};
use crate::format::{ZoneHeader, checksum, decode_header};
use crate::set::hostile as set;
use crate::zoned::hostile as zoned;
use crate::{FsId, ZoneId};

/// The name of a fuzz target, and its function.
pub type Decoder = (&'static str, fn(&[u8]));

/// Every decoder with the name of its target.
pub const DECODERS: [Decoder; 6] = [
    ("zone-header", zone_header),
    ("file-header", file_header),
    ("file-slot", file_slot),
    ("zone-report", zoned::report),
    ("nvme-zones", zoned::nvme_zones),
    ("set-label", set::label),
];

/// The header of a zone.
fn zone_header(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    block.resize(512, 0);
    complete_checksum_of_header(&mut block);
    let Ok((identity, header)) = decode_header(&block) else { return };
    assert_eq!(header.zone.get(), identity.zone.0, "the identity is the header's");
}

/// The header of a volume in a file. Asserts that an accepted header has a consistent layout.
fn file_header(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    copy.resize(HEADER_BYTES, 0);
    complete_checksum_of_header(&mut copy);
    let Ok((_, layout, _)) = file::format::decode_header(&copy) else { return };
    let last = ZoneId(layout.geometry.zones - 1);
    assert!(layout.capacity(last) <= layout.geometry.zone_blocks, "no capacity is above the maximum");
    assert!(layout.offset(last, 0) < layout.file_bytes(), "the last zone is in the file");
    assert!(
        layout.table_offset(1) + layout.table_bytes() as u64 <= layout.offset(ZoneId(0), 0),
        "tables come first"
    );
    assert!(
        layout.end_copy.is_none_or(|place| place >= layout.file_bytes()),
        "the end copy is behind the zones"
    );
}

/// The recorded state of a zone in a file.
fn file_slot(bytes: &[u8]) {
    const CAPACITY: u32 = 100;
    let mut slot = bytes.to_vec();
    slot.resize(SLOT_BYTES, 0);
    complete_checksums_of_slots(&mut slot);
    let found = file::format::decode_slot(FsId([7; 16]), ZoneId(0), &slot, CAPACITY);
    let Some(Recorded { info: ZoneInfo { state, pointer, capacity }, .. }) = found else { return };
    assert!(pointer <= capacity && (state != ZoneState::Empty || pointer == 0), "a possible state");
}

/// Corrects the checksum of a zone's header.
pub fn complete_checksum_of_header(block: &mut [u8]) {
    if block.len() >= size_of::<ZoneHeader>() {
        block[8..12].fill(0);
        let sum = checksum(&[block]);
        block[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Corrects the checksums of recorded states of zones in a file.
pub fn complete_checksums_of_slots(table: &mut [u8]) {
    for slot in table.chunks_exact_mut(SLOT_BYTES) {
        slot[..4].fill(0);
        let sum = checksum(&[slot]);
        slot[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Valid inputs, each with the name of its target.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let geometry = Geometry {
        block_size: 4096,
        zones: 20,
        zone_blocks: 64,
        max_open: 14,
        max_active: 14,
        max_append: 64,
        conventional: 0,
        seek_bytes: Geometry::SEEK_BYTES,
    };
    let end_copy = Some(2 << 30);
    let layout = Layout {
        geometry,
        zone_size: 100,
        last_zone_blocks: 50,
        preallocated: false,
        is_member: false,
        end_copy,
    };
    let info = ZoneInfo { state: ZoneState::Closed, capacity: 100, pointer: 9 };
    let recorded = Recorded { generation: 3, info, is_discarded: false };
    let fs_id = FsId([7; 16]);
    vec![
        ("file-header", file::format::encode_header(fs_id, &layout)[..160].to_vec()),
        ("file-slot", file::format::encode_slot(fs_id, ZoneId(0), &recorded).to_vec()),
        ("zone-report", zoned::report_seed()),
        ("nvme-zones", zoned::nvme_seed()),
        ("set-label", set::seed()),
    ]
}

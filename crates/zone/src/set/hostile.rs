//! Passes arbitrary bytes to the decoder of labels, for fuzzing.

use crate::format::checksum;
use crate::{FsId, ZoneId};

use super::format::{
    LABEL_BYTES, Label, MemberId, Part, Repair, Standing, StandingState, decode_label, encode_label,
};
use super::layout::{Layout, Used};

/// A label. Asserts that an accepted one is possible, and is encoded to what was decoded.
pub(crate) fn label(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    block.resize(LABEL_BYTES, 0);
    block[8..12].fill(0);
    let sum = checksum(&[&block]);
    block[8..12].copy_from_slice(&sum.to_le_bytes());
    let Ok((label, position)) = decode_label(&block) else { return };
    assert!(position < label.members.len(), "the member is one of the set");
    assert_eq!(decode_label(&encode_label(&label, position)), Ok((label, position)));
}

/// A valid input.
pub(crate) fn seed() -> Vec<u8> {
    let state = |id: u8| if id == 2 { StandingState::Failed } else { StandingState::Counts };
    let standing = |id: u8| Standing { id: MemberId([id; 16]), state: state(id) };
    let members = (1..=3).map(standing).collect();
    let used =
        Used { block_size: 512, zones: 5, member_blocks: 12, max_open: 7, max_active: 8, max_append: 8 };
    let label = Label {
        fs_id: FsId([7; 16]),
        part: Part { number: 1, count: 3 },
        layout: Layout::Mirror,
        generation: 5,
        used,
        repair: Some(Repair { member: 2, zone: ZoneId(4) }),
        members,
    };
    encode_label(&label, 1).to_vec()
}

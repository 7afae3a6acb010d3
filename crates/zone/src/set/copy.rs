//! Copies blocks of a superzone from one member of a mirror to another.

use std::ops::Range;

use crate::{Blocks, DeviceError, ZoneId};

use super::lives::Failure;
use super::member::{Member, is_of_member};

/// Blocks that are copied at once.
const COPY_BLOCKS: Blocks = 64;

/// Appends these blocks to a member, whose pointer is the first of them. Blocks that cannot be read become zeros.
pub(super) fn copy_blocks(
    zone: ZoneId,
    from: &Member,
    to: &Member,
    blocks: Range<Blocks>,
) -> Result<(), Failure> {
    let block_size = to.geometry().block_size as usize;
    let mut at = blocks.start;
    while at < blocks.end {
        let count = COPY_BLOCKS.min(blocks.end - at);
        let mut bytes = vec![0; count as usize * block_size];
        for (block, into) in (at..).zip(bytes.chunks_mut(block_size)) {
            match from.read(zone, block, into) {
                Err(error) if is_of_member(&error) => return Err((from.position, error)),
                Err(_) => into.fill(0),
                Ok(()) => {}
            }
        }
        to.append_at(zone, at, &bytes).map_err(|error: DeviceError| (to.position, error))?;
        at += count;
    }
    Ok(())
}

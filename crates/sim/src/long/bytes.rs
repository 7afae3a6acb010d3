//! The contents of files: each granule identifies its write, so that a model need not keep the bytes.

use crate::digest::mix;

/// Bytes that are written and tracked together, unless smaller granules are requested.
pub(super) const GRANULE: u64 = 4096;

/// Fills a piece of a file with the bytes of write number `write`. `offset` is that of a granule.
pub(super) fn fill(into: &mut [u8], file: u32, offset: u64, write: u64) {
    fill_by(GRANULE, into, file, offset, write);
}

/// The same in granules of another size.
pub(super) fn fill_by(granule: u64, into: &mut [u8], file: u32, offset: u64, write: u64) {
    for (index, bytes) in into.chunks_mut(granule as usize).enumerate() {
        let mut state = mix(&[u64::from(file), offset / granule + index as u64, write]);
        for word in bytes.chunks_mut(8) {
            // Every word differs, so that a shifted or truncated granule is detected.
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let bytes = (state ^ state >> 29).to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }
}

/// `length` bytes of the same.
pub(super) fn made(file: u32, offset: u64, length: usize, write: u64) -> Vec<u8> {
    made_by(GRANULE, file, offset, length, write)
}

/// The same in granules of another size.
pub(super) fn made_by(granule: u64, file: u32, offset: u64, length: usize, write: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill_by(granule, &mut bytes, file, offset, write);
    bytes
}

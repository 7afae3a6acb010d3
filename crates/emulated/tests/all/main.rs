//! Tests of the emulated device through its public interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod device;
mod supply;

use polder_emulated as emulated;
use zone::{Blocks, Device, ZoneId};

/// Blocks for one test: block `n` is filled with `tag + n`.
fn pattern(device: &dyn Device, tag: u8, blocks: Blocks) -> Vec<u8> {
    let size = device.geometry().block_size as usize;
    (0..blocks as usize * size).map(|at| tag.wrapping_add((at / size) as u8)).collect()
}

/// The first byte of each block, which identifies the blocks of `pattern`.
fn tags(device: &dyn Device, zone: u32, block: Blocks, blocks: Blocks) -> Vec<u8> {
    let size = device.geometry().block_size as usize;
    let mut bytes = vec![0; blocks as usize * size];
    device.read(ZoneId(zone), block, &mut bytes).unwrap();
    bytes.chunks(size).map(|block| block[0]).collect()
}

//! Tests of devices and leases through the public interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod discard;
mod file;
mod file_refusals;
mod formats;
mod headerless;
mod lease;
mod medium;
mod sets;

use polder_zone as zone;
use rt::{Clock, SystemClock};
use zone::file::FileError;
use zone::{Blocks, Device, ZoneId};

/// Nanoseconds that a test waits for a volume that was closed.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Opens a volume that this process has closed. A process that another test starts has all descriptors, and with them the
/// lock of the volume, until it runs its program.
fn reopen<T>(open: impl Fn() -> Result<T, FileError>) -> T {
    let clock = SystemClock::new();
    loop {
        match open() {
            Err(FileError::InUse(_)) if clock.monotonic_ns() < PATIENCE_NS => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// Blocks with distinct contents: block `n` of them is filled with `tag + n`.
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

//! One file with very many extents. Every second block is written, in an order in which neighbours in the file are
//! not neighbours in time, so that extents cannot be joined.

use rt::Clock;

use super::data::{Buffer, DEPTH, SMALL, at_once};
use super::{Bytes, Place, Result};

const FILE: &str = "extents";
/// A prime, so that its multiples reach every extent if it does not divide their number.
const STRIDE: u64 = 7_368_787;

/// Writes the file and makes it durable. Returns extents per second.
pub fn make(place: &dyn Place, extents: u64, clock: &dyn Clock) -> Result<f64> {
    check(extents)?;
    let names = [FILE.to_owned()];
    at_once(place, &names, extents, clock, move |thread, file| {
        let mut buffer = Buffer::new(SMALL, 0);
        for number in (thread..extents).step_by(DEPTH as usize) {
            let extent = number * STRIDE % extents;
            fill(buffer.get_mut(), extent);
            file.write(offset(extent), buffer.get())?;
        }
        file.sync()
    })
}

/// Reads every extent and the hole behind it, and compares. Returns extents per second.
pub fn compare(place: &dyn Place, extents: u64, clock: &dyn Clock) -> Result<f64> {
    check(extents)?;
    let (size, expected) = (place.lookup(FILE)?, offset(extents - 1) + SMALL as u64);
    if size != expected {
        return Err(format!("the file has {size} bytes and not {expected}"));
    }
    at_once(place, &[FILE.to_owned()], extents, clock, move |thread, file| {
        (thread..extents).step_by(DEPTH as usize).try_for_each(|extent| compare_one(file, extent, extents))
    })
}

fn compare_one(file: &dyn Bytes, extent: u64, extents: u64) -> Result<()> {
    // The last extent has no hole behind it.
    let length = if extent + 1 == extents { SMALL } else { 2 * SMALL };
    let (mut found, mut expected) = (Buffer::new(length, 1), Buffer::new(length, 0));
    file.read(offset(extent), found.get_mut())?;
    let (data, hole) = expected.get_mut().split_at_mut(SMALL);
    fill(data, extent);
    hole.fill(0);
    if found.get() == expected.get() { Ok(()) } else { Err(format!("extent {extent} holds something else")) }
}

/// Deletes the file.
pub fn remove(place: &dyn Place) -> Result<()> {
    place.remove(FILE)?;
    place.sync()
}

fn check(extents: u64) -> Result<()> {
    match extents > 0 && !extents.is_multiple_of(STRIDE) {
        true => Ok(()),
        false => Err(format!("{extents} extents cannot be written in a stride of {STRIDE}")),
    }
}

fn offset(extent: u64) -> u64 {
    2 * extent * SMALL as u64
}

fn fill(block: &mut [u8], extent: u64) {
    block.chunks_mut(8).for_each(|word| word.copy_from_slice(&(extent + 1).to_le_bytes()));
}

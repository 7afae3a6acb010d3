//! Other copies of a block that was read and is wrong. Devices with several copies of each block have them.

use zone::{Address, Device};

/// Reads a block from each copy until its checksum is right. Returns false, with arbitrary bytes, if no copy is right, or
/// if there is only one.
pub(crate) fn read_intact(device: &dyn Device, address: Address, crc: u32, into: &mut [u8]) -> bool {
    let (zone, block) = (address.zone(), address.block());
    let copies = device.copies(zone, block);
    let is_intact = copies > 1
        && (0..copies).any(|copy| {
            let read = device.read_copy(zone, block, copy, into);
            read.is_ok() && zone::format::checksum(&[&*into]) == crc
        });
    if is_intact {
        tracing::warn!(
            "block {block} of zone {} is damaged on one of the devices: another copy was read",
            zone.0
        );
    }
    is_intact
}

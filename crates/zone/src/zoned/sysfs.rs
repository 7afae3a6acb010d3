//! The properties of a block device in sysfs.

use std::io;
use std::path::Path;

use super::port::Limits;

/// The largest command, even if the device supports larger ones.
const TRANSFER_BYTES_MAX: u64 = 1 << 20;

/// Reads the limits from a device's directory (`/sys/dev/block/MAJOR:MINOR`).
pub(super) fn limits(folder: &Path) -> io::Result<Limits> {
    let queue = folder.join("queue");
    let needed = |name: &str| number(&queue, name);
    let optional = |name: &str| match number(&queue, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        found => found,
    };
    let logical = needed("logical_block_size")?;
    // The device writes a physical block atomically, and it cannot write less than the unit in which a zone's pointer
    // moves.
    let block = logical.max(optional("physical_block_size")?).max(optional("zone_write_granularity")?);
    let transfer = (needed("max_sectors_kb")?.saturating_mul(1024)).min(TRANSFER_BYTES_MAX);
    let limit = |name: &str| optional(name).map(|count| (count > 0).then(|| saturated(count)));
    Ok(Limits {
        block_size: saturated(block),
        max_open: limit("max_open_zones")?,
        max_active: limit("max_active_zones")?,
        transfer_bytes: (transfer / block.max(1) * block).max(block) as usize,
        append_bytes: None,
        seeks: optional("rotational")? != 0,
    })
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn number(queue: &Path, name: &str) -> io::Result<u64> {
    let path = queue.join(name);
    let named = |kind, what: String| io::Error::new(kind, format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| named(error.kind(), error.to_string()))?;
    text.trim()
        .parse()
        .map_err(|_| named(io::ErrorKind::InvalidData, format!("{:?} is no number", text.trim())))
}

#[cfg(test)]
mod tests;

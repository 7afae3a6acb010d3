//! The structures of an NVMe controller that describe a namespace and its zones (NVM Express Base, NVM Command Set
//! and Zoned Namespace Command Set specifications).

use super::super::port::ReportedZone;
use crate::ZoneState;

/// Bytes of every identify structure.
pub(in crate::zoned) const IDENTIFY_BYTES: usize = 4096;
/// A report of zones: its head, then as many zones as fit.
const HEAD_BYTES: usize = 64;
const ZONE_BYTES: usize = 64;
pub(in crate::zoned) const REPORT_BYTES: usize = 4096;

/// The smallest memory page of a controller, the unit of its limits.
const PAGE_BYTES: u64 = 4096;

/// The required properties of a zoned namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::zoned) struct Namespace {
    pub(in crate::zoned) block_size: u32,
    /// The zone size in blocks.
    pub(in crate::zoned) zone_blocks: u64,
    pub(in crate::zoned) max_active: Option<u32>,
    pub(in crate::zoned) max_open: Option<u32>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Decodes the two structures that identify a namespace, or returns the reason why it cannot be used.
pub(in crate::zoned) fn namespace(
    common: &[u8; IDENTIFY_BYTES],
    zoned: &[u8; IDENTIFY_BYTES],
) -> Result<Namespace, String> {
    let chosen = common[26];
    let format = usize::from(chosen & 0xf) | usize::from(chosen >> 5 & 0x3) << 4;
    let (metadata_bytes, log_of_size) = (u16_at(common, 128 + 4 * format), common[128 + 4 * format + 2]);
    if metadata_bytes != 0 {
        return Err(format!(
            "its blocks have {metadata_bytes} bytes of metadata each; format it without metadata (nvme format)"
        ));
    }
    if !(9..=16).contains(&log_of_size) {
        return Err(format!("its blocks have 2^{log_of_size} bytes; Polder uses 512 to 65536"));
    }
    let zone_blocks = u64_at(zoned, 2816 + 16 * format);
    if zone_blocks == 0 {
        return Err("it is formatted without zones".to_owned());
    }
    // Counted from 0; all bits set: no limit.
    let limit = |at| u32_at(zoned, at).checked_add(1);
    let (max_active, max_open) = (limit(4), limit(8));
    Ok(Namespace { block_size: 1 << log_of_size, zone_blocks, max_active, max_open })
}

/// The smaller limit of commands and of appends, in bytes, from the structures that identify the controller.
pub(in crate::zoned) fn transfer_bytes(common: &[u8; IDENTIFY_BYTES], zoned: &[u8; IDENTIFY_BYTES]) -> u64 {
    let bytes = |exponent: u8| match exponent {
        0 => u64::MAX,
        exponent => PAGE_BYTES.checked_shl(exponent.into()).unwrap_or(u64::MAX),
    };
    bytes(common[77]).min(bytes(zoned[0]))
}

/// The zones of a report of a namespace.
pub(in crate::zoned) fn zones(
    report: &[u8; REPORT_BYTES],
    namespace: &Namespace,
) -> Result<Vec<ReportedZone>, String> {
    let count = usize::try_from(u64_at(report, 0)).unwrap_or(usize::MAX);
    let zones = report[HEAD_BYTES..].chunks_exact(ZONE_BYTES).take(count);
    zones.map(|zone| one(zone, namespace)).collect()
}

fn one(zone: &[u8], namespace: &Namespace) -> Result<ReportedZone, String> {
    let (capacity, start, pointer) = (u64_at(zone, 8), u64_at(zone, 16), u64_at(zone, 24));
    let wrong = |what: &str| Err(format!("the zone at block {start} {what}"));
    let state = match zone[1] >> 4 {
        0x1 => ZoneState::Empty,
        0x2 | 0x3 => ZoneState::Open,
        0x4 => ZoneState::Closed,
        0xd => ZoneState::ReadOnly,
        0xe => ZoneState::Full,
        0xf => ZoneState::Offline,
        other => return wrong(&format!("is in an unknown state ({other:#x})")),
    };
    if zone[0] & 0xf != 2 {
        return wrong("is of an unknown type");
    }
    let length = namespace.zone_blocks;
    if capacity > length || start.checked_add(length).is_none_or(|end| end > u64::MAX >> 16) {
        return wrong("is reported with an impossible capacity or position");
    }
    let written = if state.has_pointer() { pointer.checked_sub(start) } else { Some(0) };
    let block = u64::from(namespace.block_size);
    let most = if state == ZoneState::Empty { 0 } else { capacity };
    match written.filter(|&written| written <= most) {
        Some(written) => Ok(ReportedZone {
            start: start * block,
            length: length * block,
            capacity: capacity * block,
            pointer: written * block,
            state: Some(state),
            is_conventional: false,
        }),
        None => wrong("is reported with its write pointer outside"),
    }
}

#[cfg(test)]
mod tests;

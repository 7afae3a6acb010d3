//! The parts of the log that recovery cannot read: whether acknowledged records are missing.
//!
//! A zone that failed while it was empty, or that was given up before, loses nothing, and the mount goes on without
//! it. If the log had continued there, an older remaining zone would be taken for the newest, and later acknowledged
//! records would be lost without an error. The following evidence shows that the log had continued:
//!
//! * The newest readable batch is a successor mark. A newer one was durable before it (`log/switch.rs`), so that one
//!   is lost, in any state of the named zone.
//! * The newest batch lies in a read-only zone, which accepts no mark, and the device refuses to read another zone of the log.
//! * The device refuses to read blocks behind the newest batch. A crash loses blocks, but leaves none that are refused.
//! * Behind a header that cannot be read there are batches with newer records. An invalid header may be the result of
//!   a crash before anything in that zone was durable. So in that case the batches themselves must state that such
//!   records were durable.
//! * The newest batch names a zone in which nothing had been written yet, and the device refuses to read that zone.
//!   Earlier releases wrote such marks, and this one does if it may not have two log zones open.

use pool::{LOG_ZONES, Lsn};
use zone::{Device, DeviceError, FsId, ZoneId, ZoneInfo, ZoneState};

use super::LogContents;
use crate::format::BatchKind;
use crate::scan::{Found, LogZone};
use crate::types::Result;

/// One of the first zones whose header, or everything behind it, cannot be read.
pub(super) struct Unread {
    pub(super) zone: ZoneId,
    pub(super) info: ZoneInfo,
    pub(super) why: Why,
}

/// Why it cannot be read.
pub(super) enum Why {
    /// The device returns neither the header nor any batch.
    Device(DeviceError),
    /// The header is not valid.
    Damaged,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Device(error) => error.fmt(f),
            Why::Damaged => f.write_str("its header is damaged"),
        }
    }
}

impl Unread {
    pub(super) fn device_error(&self) -> Option<&DeviceError> {
        match &self.why {
            Why::Device(error) => Some(error),
            Why::Damaged => None,
        }
    }

    /// Whether the device refuses to read written blocks. A crash never causes this.
    fn is_refused(&self) -> bool {
        !matches!(self.device_error(), None | Some(DeviceError::Unwritten { .. }))
    }
}

/// The missing part of the log, if there is one.
pub(super) fn missing(
    device: &dyn Device,
    contents: &LogContents,
    unread: &[Unread],
    last: Lsn,
) -> Result<Option<String>> {
    let report =
        |what: String| Some(format!("{what}: acknowledged transactions after {} are missing", last.0));
    let went_on = |zone: ZoneId, why: &str| report(format!("the log continued in zone {}, {why}", zone.0));
    if let Some(next) = contents.newest.successor.filter(|successor| successor.has_begun) {
        let why = match unread.iter().find(|unread| unread.zone == next.zone) {
            Some(unread) => format!("which cannot be read ({})", unread.why),
            None => "which has no data of the log any more".to_owned(),
        };
        return Ok(went_on(next.zone, &why));
    }
    for unread in unread {
        if is_newer(device, contents, unread, last)? {
            return Ok(went_on(unread.zone, &format!("which cannot be read ({})", unread.why)));
        }
    }
    let refused = contents.refused.as_ref();
    Ok(refused.and_then(|error| report(format!("the end of the log cannot be read ({error})"))))
}

/// Whether the log had continued in this zone, beyond the last replayed record.
fn is_newer(device: &dyn Device, contents: &LogContents, unread: &Unread, last: Lsn) -> Result<bool> {
    // The zones behind the log's own are its last resort.
    let may_be_log = unread.zone.0 < LOG_ZONES || contents.zones.len() as u32 >= LOG_ZONES;
    let is_named = contents.newest.successor.is_some_and(|successor| successor.zone == unread.zone);
    let is_silent = may_be_log && contents.newest.state == ZoneState::ReadOnly;
    if unread.is_refused() && (is_named || is_silent) {
        return Ok(true);
    }
    if !may_be_log {
        return Ok(false);
    }
    let fs_id = contents.zones[0].0.fs_id;
    let batches = batches_behind(device, fs_id, unread)?;
    let durable = match unread.is_refused() {
        true => u64::MAX,
        false => batches.iter().map(|found| found.known_durable).max().unwrap_or(0),
    };
    let is_newer =
        |found: &Found| found.epoch >= contents.epoch_max && found.sequence > contents.sequence_max;
    let holds_records = |found: &Found| found.kind == BatchKind::Journal && found.first <= found.last;
    let counts = |found: &&Found| last.0 < found.last && found.last <= durable;
    Ok(batches.iter().filter(|found| is_newer(found) && holds_records(found)).any(|found| counts(&found)))
}

/// The batches that can be read in a zone without a header. Their frames have the life.
fn batches_behind(device: &dyn Device, fs_id: FsId, unread: &Unread) -> Result<Vec<Found>> {
    if unread.info.state == ZoneState::Offline {
        return Ok(Vec::new());
    }
    let zone = LogZone::by_its_frames(device, fs_id, unread.zone, unread.info)?;
    zone.map_or(Ok(Vec::new()), |zone| zone.batches(1))
}

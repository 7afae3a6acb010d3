//! Log zones of which nothing can be read, or not the header, or nothing but the header: whether the log had gone on
//! there.
//!
//! A zone that died while it was empty, or that was given up before, takes nothing with it, and the mount goes on
//! without it. If the log had moved there, an older zone that is left would be taken for the newest, and what was
//! acknowledged since would be gone without a word. What tells the one from the other:
//!
//! * The newest batch that can be read says in which zone the log goes on (`Log::say_that_it_moves`), and that is one
//!   that the device cannot read. Others may have been dead for long.
//! * Behind a header that cannot be read stand batches with newer records. A crash loses blocks, but leaves none that
//!   the device refuses to read. A header that is there and wrong may be what a crash has left, before anything in
//!   that zone was durable: so there the batches must say themselves that such records were durable.
//!
//! It cannot be told of a zone that went offline when the one before it had failed or come back full: that one could not
//! say that it was left.

use zone::{Device, DeviceError, FsId, ZoneId, ZoneInfo, ZoneState};

use super::LogContents;
use crate::format::BatchKind;
use crate::log::LOG_ZONES;
use crate::scan::{Found, LogZone};
use crate::types::{Lsn, Result, StoreError};

/// One of the first zones, the header of which says nothing, or all that is behind it.
pub(super) struct Unread {
    pub(super) zone: ZoneId,
    pub(super) info: ZoneInfo,
    pub(super) why: Why,
}

/// Why it says nothing.
pub(super) enum Why {
    /// The device does not give it, nor any batch.
    Device(DeviceError),
    /// It is not what was written.
    Damaged,
}

impl Unread {
    pub(super) fn device_error(&self) -> Option<&DeviceError> {
        match &self.why {
            Why::Device(error) => Some(error),
            Why::Damaged => None,
        }
    }

    /// Whether the device refuses to read what was written: a crash has done nothing of the kind.
    fn is_refused(&self) -> bool {
        !matches!(self.device_error(), None | Some(DeviceError::Unwritten { .. }))
    }
}

/// Refuses to go on from an older log zone where the newer one cannot be read: whoever writes on would make that final.
/// Reading what is left is allowed.
pub(super) fn check(
    device: &dyn Device,
    contents: &LogContents,
    unread: &[Unread],
    last: Lsn,
    read_only: bool,
) -> Result<()> {
    let mut missing = None;
    for unread in unread {
        if missing.is_none() && is_newer(device, contents, unread, last)? {
            missing = Some(unread);
        }
    }
    let Some(missing) = missing else { return Ok(()) };
    let why = match &missing.why {
        Why::Device(error) => error.to_string(),
        Why::Damaged => "its header is damaged".to_owned(),
    };
    let what = format!(
        "the log went on in zone {}, which cannot be read ({why}): what was acknowledged after transaction {} is missing",
        missing.zone.0, last.0
    );
    if read_only {
        tracing::error!(what);
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "{what}; mount the volume with -o ro, or use `polder salvage`, which may find newer files, and copy what is left"
    )))
}

/// Whether the log had gone on in this zone, beyond the last record that was replayed.
fn is_newer(device: &dyn Device, contents: &LogContents, unread: &Unread, last: Lsn) -> Result<bool> {
    // The zones behind those of the log are its last resort.
    let may_be_log = unread.zone.0 < LOG_ZONES || contents.zones.len() as u32 >= LOG_ZONES;
    if contents.moves == Some(unread.zone) && unread.is_refused() {
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

/// The batches that can be read in a zone without a header: their frames say of which life they are.
fn batches_behind(device: &dyn Device, fs_id: FsId, unread: &Unread) -> Result<Vec<Found>> {
    if unread.info.state == ZoneState::Offline {
        return Ok(Vec::new());
    }
    let zone = LogZone::by_its_frames(device, fs_id, unread.zone, unread.info)?;
    zone.map_or(Ok(Vec::new()), |zone| zone.batches(1))
}

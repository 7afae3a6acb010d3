//! A member device: the zones of a set on it, and its label.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState};

use super::format::{Label, MemberId, decode_label, encode_label};
use super::layout::LABEL_ZONES;

/// One member of a set.
pub(super) struct Member {
    /// Its position in the set.
    pub(super) position: usize,
    device: Arc<dyn Device>,
    /// Whether its contents count. Becomes false once, after a label that says so is durable on all others.
    counts: AtomicBool,
    /// The label zone with the newest label. The lock is held while a label is written.
    newest: Mutex<ZoneId>,
}

/// The newest label on a device.
pub(super) struct FoundLabel {
    pub(super) label: Label,
    /// The position of the device in the set.
    pub(super) position: usize,
    zone: ZoneId,
}

impl FoundLabel {
    /// The newest label on the device; `None` if there is none that can be read.
    pub(super) fn read(device: &dyn Device) -> Result<Option<FoundLabel>> {
        let mut newest: Option<FoundLabel> = None;
        for zone in (0..LABEL_ZONES).map(ZoneId) {
            let mut block = vec![0; device.geometry().block_size as usize];
            let decoded = match device.read(zone, 0, &mut block) {
                Ok(()) => decode_label(&block),
                Err(error) if error.is_of_whole_device() => return Err(error),
                Err(_) => None,
            };
            let Some((label, position)) = decoded else { continue };
            if newest.as_ref().is_none_or(|newest| newest.label.generation < label.generation) {
                newest = Some(FoundLabel { label, position, zone });
            }
        }
        Ok(newest)
    }

    /// The id of the device.
    pub(super) fn id(&self) -> MemberId {
        self.label.members[self.position].id
    }
}

impl Member {
    /// A member without a label.
    pub(super) fn new(position: usize, device: Arc<dyn Device>) -> Self {
        Member {
            position,
            device,
            counts: AtomicBool::new(true),
            newest: Mutex::new(ZoneId(LABEL_ZONES - 1)),
        }
    }

    /// A member with a label.
    pub(super) fn with_label(device: Arc<dyn Device>, found: &FoundLabel) -> Self {
        let member = Member::new(found.position, device);
        *member.newest.lock() = found.zone;
        member
    }

    /// Whether its contents count.
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::Acquire)
    }

    /// Makes its contents not count any more.
    pub(super) fn exclude(&self) {
        self.counts.store(false, Ordering::Release);
    }

    /// The device.
    pub(super) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Its geometry, label zones included.
    pub(super) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    /// Stores a label durably. The previous one is readable until then.
    pub(super) fn write_label(&self, label: &Label) -> Result<()> {
        let mut newest = self.newest.lock();
        let mut zone = ZoneId((newest.0 + 1) % LABEL_ZONES);
        if rt::is_planted("set-label-zone") {
            zone = *newest;
        }
        if self.device.report_zone(zone)?.state != ZoneState::Empty {
            self.device.reset(zone)?;
        }
        let mut block = encode_label(label, self.position).to_vec();
        block.resize(self.geometry().block_size as usize, 0);
        self.device.append(zone, &block)?;
        self.device.finish(zone)?;
        self.device.flush()?;
        *newest = zone;
        Ok(())
    }

    /// The zone of the device that belongs to a superzone.
    pub(super) fn zone(&self, superzone: ZoneId) -> ZoneId {
        ZoneId(superzone.0 + LABEL_ZONES)
    }

    pub(super) fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.device.report_zone(self.zone(zone)).map_err(|error| of_superzone(zone, error))
    }

    /// The states of its zones of the first `zones` superzones.
    pub(super) fn report(&self, zones: u32) -> Result<Vec<ZoneInfo>> {
        let mut infos = self.device.report()?;
        infos.drain(..LABEL_ZONES as usize);
        infos.truncate(zones as usize);
        Ok(infos)
    }

    pub(super) fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        self.device.read(self.zone(zone), block, into).map_err(|error| of_superzone(zone, error))
    }

    /// Executes a batch of commands whose zones are those of the set.
    pub(super) fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        for command in batch.iter_mut() {
            let (Command::Read { zone, .. } | Command::Append { zone, .. }) = command;
            *zone = self.zone(*zone);
        }
        self.device.run(batch)
    }

    /// Appends at a block that is the pointer of the member's zone. More than the device takes at once are appended in
    /// pieces.
    pub(super) fn append_at(&self, zone: ZoneId, pointer: Blocks, from: &[u8]) -> Result<()> {
        let geometry = self.geometry();
        let most = geometry.max_append as usize * geometry.block_size as usize;
        let mut pointer = pointer;
        for piece in from.chunks(most) {
            let appended = self.device.append(self.zone(zone), piece);
            let at = appended.map_err(|error| of_superzone(zone, error))?;
            if at != pointer {
                let why = format!(
                    "a member of the set was written by another program: zone {} at block {pointer}",
                    self.zone(zone).0
                );
                return Err(DeviceError::Unusable(why));
            }
            pointer += (piece.len() / geometry.block_size as usize) as Blocks;
        }
        Ok(())
    }

    pub(super) fn finish(&self, zone: ZoneId) -> Result<()> {
        self.device.finish(self.zone(zone)).map_err(|error| of_superzone(zone, error))
    }

    pub(super) fn reset(&self, zone: ZoneId) -> Result<()> {
        self.device.reset(self.zone(zone)).map_err(|error| of_superzone(zone, error))
    }
}

/// Whether an error means that the member has failed, and not only one of its zones.
pub(super) fn is_of_member(error: &DeviceError) -> bool {
    error.is_of_whole_device() && !matches!(error, DeviceError::HostFull { .. })
}

/// The error of a member, as one of the superzone.
pub(super) fn of_superzone(zone: ZoneId, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::ZoneFull { blocks, .. } => DeviceError::ZoneFull { zone, blocks },
        DeviceError::NotAtPointer { block, pointer, .. } => {
            DeviceError::NotAtPointer { zone, block, pointer }
        }
        DeviceError::Unwritten { block, .. } => DeviceError::Unwritten { zone, block },
        DeviceError::ReadOnly(_) => DeviceError::ReadOnly(zone),
        DeviceError::Offline(_) => DeviceError::Offline(zone),
        DeviceError::TooManyOpen { limit, .. } => DeviceError::TooManyOpen { zone, limit },
        DeviceError::Invalid { why, .. } => DeviceError::Invalid { zone, why },
        DeviceError::Io { operation, reason, .. } => DeviceError::Io { zone, operation, reason },
        DeviceError::HostFull { .. } => DeviceError::HostFull { zone },
        error @ (DeviceError::PowerLost | DeviceError::Unusable(_)) => error,
    }
}

//! A member device: the zones of a set on it, and its label.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState};

use super::format::{Label, MemberId, NoLabel, decode_label, encode_label};
use super::layout::LABEL_ZONES;

/// One member of a set.
pub(super) struct Member {
    /// Its position in the set.
    pub(super) position: usize,
    device: Arc<dyn Device>,
    /// Whether its contents count. Becomes false once, after a label that says so is durable on all others.
    counts: AtomicBool,
    /// The generation of the label in each label zone; `None` if it has none that is known to be whole. The lock is
    /// held while a label is written.
    labels: Mutex<Generations>,
}

type Generations = [Option<u64>; LABEL_ZONES as usize];

/// The newest label on a device.
pub(super) struct FoundLabel {
    pub(super) label: Label,
    /// The position of the device in the set.
    pub(super) position: usize,
    generations: Generations,
}

/// Why a device has no label that can be used.
pub(super) enum Unlabelled {
    /// It has none.
    Absent,
    /// It has one that this release does not understand.
    Unknown(String),
    /// It had a newer one than the one that can be read.
    Lost,
    /// It cannot be read.
    Failed(DeviceError),
}

/// What was found in a label zone.
enum Slot {
    Empty,
    Label(Box<Label>, usize),
    /// It is not empty and has no label, or cannot be read: the error.
    Damaged(Option<DeviceError>),
}

impl FoundLabel {
    /// The newest label on the device.
    ///
    /// A label is complete when it is in both label zones. So if only one can be read, the other one is equal, or
    /// belongs to a change that was not completed. This is not so if one of the zones takes no more writes: then the
    /// newest label was in the other one only.
    pub(super) fn read(device: &dyn Device) -> std::result::Result<FoundLabel, Unlabelled> {
        let (mut newest, mut failure) = (None::<FoundLabel>, None);
        let (mut generations, mut is_writable, mut is_missing) = ([None; 2], true, false);
        for zone in (0..LABEL_ZONES).map(ZoneId) {
            let (state, slot) = read_slot(device, zone)?;
            is_writable &= !matches!(state, Some(ZoneState::ReadOnly | ZoneState::Offline));
            match slot {
                Slot::Empty => is_missing = true,
                Slot::Damaged(error) => {
                    is_missing |= !matches!(state, Some(ZoneState::ReadOnly | ZoneState::Offline));
                    failure = failure.or(error);
                }
                Slot::Label(label, position) => {
                    // One that was not finished takes a slot: it is written again.
                    let is_complete = !state.is_some_and(ZoneState::is_active);
                    generations[zone.0 as usize] = is_complete.then_some(label.generation);
                    if newest.as_ref().is_none_or(|newest| newest.label.generation < label.generation) {
                        newest = Some(FoundLabel { label: *label, position, generations });
                    }
                }
            }
        }
        match (newest, failure) {
            (Some(_), _) if !is_writable && is_missing => Err(Unlabelled::Lost),
            (Some(newest), _) => Ok(FoundLabel { generations, ..newest }),
            (None, Some(error)) => Err(Unlabelled::Failed(error)),
            (None, None) => Err(Unlabelled::Absent),
        }
    }

    /// The id of the device.
    pub(super) fn id(&self) -> MemberId {
        self.label.members[self.position].id
    }
}

/// Reads a label zone. The state is `None` if it cannot be told. Only an error of the whole device is a failure.
fn read_slot(
    device: &dyn Device,
    zone: ZoneId,
) -> std::result::Result<(Option<ZoneState>, Slot), Unlabelled> {
    let state = match device.report_zone(zone) {
        Ok(info) => Some(info.state),
        Err(error) if error.is_of_whole_device() => return Err(Unlabelled::Failed(error)),
        Err(error) => return Ok((None, Slot::Damaged(Some(error)))),
    };
    if state == Some(ZoneState::Empty) {
        return Ok((state, Slot::Empty));
    }
    let mut block = vec![0; device.geometry().block_size as usize];
    let slot = match device.read(zone, 0, &mut block) {
        Err(error) if error.is_of_whole_device() => return Err(Unlabelled::Failed(error)),
        Err(error) => Slot::Damaged(Some(error)),
        Ok(()) => match decode_label(&block) {
            Ok((label, position)) => Slot::Label(Box::new(label), position),
            Err(NoLabel::Damaged) => Slot::Damaged(None),
            Err(NoLabel::Unknown(why)) => return Err(Unlabelled::Unknown(why)),
        },
    };
    Ok((state, slot))
}

impl Member {
    /// A member without a label.
    pub(super) fn new(position: usize, device: Arc<dyn Device>) -> Self {
        Member { position, device, counts: AtomicBool::new(true), labels: Mutex::new([None; 2]) }
    }

    /// A member with a label.
    pub(super) fn with_label(device: Arc<dyn Device>, found: &FoundLabel) -> Self {
        let member = Member::new(found.position, device);
        *member.labels.lock() = found.generations;
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

    /// Stores a label durably in both label zones, one after the other, so one label is whole at any time.
    ///
    /// A label zone that fails is left out. If the other one then has the only label, that is replaced in place.
    pub(super) fn write_label(&self, label: &Label) -> Result<()> {
        let mut labels = self.labels.lock();
        let mut zones = [0, 1];
        zones.sort_by_key(|&zone| labels[zone]);
        let mut failure = None;
        for zone in
            zones.into_iter().filter(|&zone| labels[zone] != Some(label.generation)).collect::<Vec<_>>()
        {
            labels[zone] = None;
            match self.write_label_to(ZoneId(zone as u32), label) {
                Ok(()) => labels[zone] = Some(label.generation),
                Err(error) if error.is_of_whole_device() => return Err(error),
                Err(error) => {
                    tracing::warn!(member = self.position, zone, %error, "a label was not written");
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if !labels.contains(&Some(label.generation)) => Err(error),
            _ => Ok(()),
        }
    }

    fn write_label_to(&self, zone: ZoneId, label: &Label) -> Result<()> {
        if self.device.report_zone(zone)?.state != ZoneState::Empty {
            self.device.reset(zone)?;
        }
        let mut block = encode_label(label, self.position).to_vec();
        block.resize(self.geometry().block_size as usize, 0);
        self.device.append(zone, &block)?;
        self.device.finish(zone)?;
        if rt::is_planted("set-label-zone") {
            return Ok(());
        }
        self.device.flush()
    }

    /// Finishes zones until there is a slot for the label. After a crash, a member may have more active zones than the
    /// set had: those whose finish or reset was undone. An active zone may come back full, so this is one more state
    /// that members may disagree about. Called before they agree.
    pub(super) fn free_slot(&self) -> Result<()> {
        let infos = self.device.report()?;
        let count = |is: fn(ZoneState) -> bool| infos.iter().filter(|info| is(info.state)).count() as u32;
        let over_active = (count(ZoneState::is_active) + 1).saturating_sub(self.geometry().max_active);
        let over_open =
            (count(|state| state == ZoneState::Open) + 1).saturating_sub(self.geometry().max_open);
        let excess = most_written(&infos, LABEL_ZONES, over_open, over_active);
        excess.into_iter().try_for_each(|zone| self.device.finish(zone))
    }

    /// Whether both label zones have the label of this generation.
    pub(super) fn has_label(&self, generation: u64) -> bool {
        self.labels.lock().iter().all(|label| *label == Some(generation))
    }

    /// Empties the device, durably: so no label of an earlier set is left, and no zone of an earlier volume.
    pub(super) fn erase(&self) -> Result<()> {
        for (zone, info) in (0..self.geometry().sequential()).map(ZoneId).zip(self.device.report()?) {
            match info.state {
                ZoneState::Empty => {}
                ZoneState::ReadOnly | ZoneState::Offline if zone.0 >= LABEL_ZONES => {}
                _ => self.device.reset(zone)?,
            }
        }
        self.device.flush()
    }

    /// The error of a command. A disk that has died answers with errors of zones. So after an I/O error the member is
    /// asked something else, and if it does not answer either, the error is one of the whole member.
    pub(super) fn judge(&self, error: DeviceError) -> DeviceError {
        if !matches!(error, DeviceError::Io { .. }) {
            return error;
        }
        match self.probe() {
            Ok(()) => error,
            Err(cause) => DeviceError::Unusable(format!("a member of the set does not answer: {cause}")),
        }
    }

    fn probe(&self) -> Result<()> {
        self.device.flush()?;
        self.device.report()?;
        match FoundLabel::read(&*self.device) {
            Err(Unlabelled::Failed(error)) => Err(error),
            _ => Ok(()),
        }
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

/// Zones to finish, so that `open` fewer are open and `active` fewer are active: those with the least space left. The
/// first zones are skipped.
pub(super) fn most_written(infos: &[ZoneInfo], skip: u32, open: u32, active: u32) -> Vec<ZoneId> {
    let mut candidates: Vec<(ZoneId, &ZoneInfo)> =
        (0..).map(ZoneId).zip(infos).skip(skip as usize).filter(|(_, info)| info.state.is_active()).collect();
    candidates.sort_by_key(|(_, info)| info.capacity - info.pointer);
    let (opened, closed): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|(_, info)| info.state == ZoneState::Open);
    let first = opened.iter().take(open as usize);
    let more =
        closed.iter().chain(opened.iter().skip(open as usize)).take(active.saturating_sub(open) as usize);
    first.chain(more).map(|(zone, _)| *zone).collect()
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

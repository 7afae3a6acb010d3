//! A member device: the zones of a set on it, and its label.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU8, Ordering};

use crate::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState};

use super::format::{Label, MemberId, NoLabel, StandingState, decode_label, encode_label};
use super::layout::LABEL_ZONES;

/// In how many label zones a label is written. The third one has an older label, or is a spare.
const LABEL_COPIES: usize = 2;

/// One member of a set.
pub(super) struct Member {
    /// Its position in the set. Another member may have had it before.
    pub(super) position: usize,
    /// Its id.
    pub(super) id: MemberId,
    device: Arc<dyn Device>,
    /// Its [`Use`]. Changes after labels that say so are durable on all other members.
    usage: AtomicU8,
    /// The superzone that is being copied to it. Its zone has a slot beyond those of the set. The lock is held while a
    /// label is written, which needs a slot too, and while blocks are copied.
    copying: Mutex<Option<ZoneId>>,
    /// The generation of the label in each label zone; `None` if it has none that is known to be whole. The lock is
    /// held while a label is written.
    labels: Mutex<Generations>,
}

/// How a member is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Use {
    /// Not any more, or not yet.
    Unused,
    /// It is being rebuilt: it gets changes of superzones that were copied to it, and is not read.
    Rebuilt,
    /// Its contents count.
    Counts,
}

impl Use {
    fn of(stored: u8) -> Use {
        [Use::Unused, Use::Rebuilt, Use::Counts][usize::from(stored)]
    }
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
    /// A label is complete when it is in two label zones. So a complete one is found if one of them can be read. This is
    /// not certain if only one label can be read, and its zone takes no more writes: newer ones were in the other two.
    pub(super) fn read(device: &dyn Device) -> std::result::Result<FoundLabel, Unlabelled> {
        let (mut newest, mut failure) = (None::<FoundLabel>, None);
        let (mut generations, mut found, mut is_writable) = (Generations::default(), 0, false);
        for zone in (0..LABEL_ZONES).map(ZoneId) {
            let (state, slot) = read_slot(device, zone)?;
            match slot {
                Slot::Empty => {}
                Slot::Damaged(error) => failure = failure.or(error),
                Slot::Label(label, position) => {
                    found += 1;
                    is_writable |= state != Some(ZoneState::ReadOnly);
                    generations[zone.0 as usize] = Some(label.generation);
                    if newest.as_ref().is_none_or(|newest| newest.label.generation < label.generation) {
                        newest = Some(FoundLabel { label: *label, position, generations });
                    }
                }
            }
        }
        match (newest, failure) {
            (Some(_), _) if found == 1 && !is_writable => Err(Unlabelled::Lost),
            (Some(newest), _) => Ok(FoundLabel { generations, ..newest }),
            (None, Some(error)) => Err(Unlabelled::Failed(error)),
            (None, None) => Err(Unlabelled::Absent),
        }
    }

    /// The id of the device.
    pub(super) fn id(&self) -> MemberId {
        self.label.members[self.position].id
    }

    /// Whether the device was about to become a member.
    pub(super) fn is_joining(&self) -> bool {
        self.label.members[self.position].state == StandingState::Joining
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
    pub(super) fn new(position: usize, id: MemberId, device: Arc<dyn Device>, usage: Use) -> Self {
        let usage = AtomicU8::new(usage as u8);
        Member { position, id, device, usage, copying: Mutex::default(), labels: Mutex::default() }
    }

    /// A member with a label.
    pub(super) fn with_label(device: Arc<dyn Device>, found: &FoundLabel, usage: Use) -> Self {
        let member = Member::new(found.position, found.id(), device, usage);
        *member.labels.lock() = found.generations;
        member
    }

    /// How it is used.
    pub(super) fn usage(&self) -> Use {
        Use::of(self.usage.load(Ordering::Acquire))
    }

    /// Whether its contents count.
    pub(super) fn counts(&self) -> bool {
        self.usage() == Use::Counts
    }

    /// Uses it in another way from now on.
    pub(super) fn set_usage(&self, usage: Use) {
        self.usage.store(usage as u8, Ordering::Release);
    }

    /// The device.
    pub(super) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Whether this is its device.
    pub(super) fn is_on(&self, device: &Arc<dyn Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Its geometry, label zones included.
    pub(super) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    /// Stores a label durably in two label zones, one after the other. The zones with the oldest labels are used. So there
    /// is always a whole label that was durable before, also if one label zone has failed.
    ///
    /// A label zone that fails is left out. If only one can be written, the label is there once.
    pub(super) fn write_label(&self, label: &Label) -> Result<()> {
        let mut labels = self.labels.lock();
        let (mut copies, mut failure) = (copies(&labels, label.generation), None);
        for zone in oldest_first(&labels) {
            if copies >= LABEL_COPIES || labels[zone] == Some(label.generation) {
                continue;
            }
            match self.replace_label(&mut labels, zone, label) {
                Ok(()) => copies += 1,
                Err(error) if error.is_of_whole_device() => return Err(error),
                Err(error) => {
                    tracing::warn!(member = self.position, zone, %error, "a label was not written");
                    failure = Some(error);
                }
            }
        }
        match (copies, failure) {
            (0, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the member still takes writes: the label that it has is written once more.
    fn rewrite_label(&self, label: &Label) -> Result<()> {
        let mut labels = self.labels.lock();
        let mut failure = None;
        for zone in oldest_first(&labels) {
            match self.replace_label(&mut labels, zone, label) {
                // A host without space says nothing about the disk.
                Ok(()) | Err(DeviceError::HostFull { .. }) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("a member has label zones"))
    }

    /// Writes a label to one label zone. The only label of the member is not replaced: a loss of power would leave none.
    fn replace_label(&self, labels: &mut Generations, zone: usize, label: &Label) -> Result<()> {
        let others = labels.iter().enumerate().filter(|(other, found)| *other != zone && found.is_some());
        if labels[zone].is_some() && others.count() == 0 && !rt::is_planted("set-label-in-place") {
            let why = "only one of its label zones can be used".to_owned();
            return Err(DeviceError::Io { zone: ZoneId(zone as u32), operation: "label", reason: why });
        }
        labels[zone] = None;
        let mut copying = self.copying.lock();
        self.take_slot_of_copy(&mut copying)?;
        self.write_label_to(ZoneId(zone as u32), label)?;
        drop(copying);
        labels[zone] = Some(label.generation);
        Ok(())
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

    /// Finishes the label zones that a crash has left unfinished: they would take slots.
    pub(super) fn finish_labels(&self) -> Result<()> {
        let mut labels = self.labels.lock();
        for zone in (0..LABEL_ZONES).map(ZoneId) {
            let finished = self.device.report_zone(zone).and_then(|info| match info.state.is_active() {
                true => self.device.finish(zone),
                false => Ok(()),
            });
            match finished {
                Err(error) if error.is_of_whole_device() => return Err(error),
                // It is written again before others.
                Err(_) if copies(&labels, None) < labels.len() - 1 => labels[zone.0 as usize] = None,
                _ => {}
            }
        }
        Ok(())
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

    /// If all slots are in use, finishes the zone to which a superzone is being copied. The copy begins again later.
    fn take_slot_of_copy(&self, copying: &mut Option<ZoneId>) -> Result<()> {
        let Some(zone) = *copying else { return Ok(()) };
        let infos = self.device.report()?;
        let count = |is: fn(ZoneState) -> bool| infos.iter().filter(|info| is(info.state)).count() as u32;
        let has_slot = count(ZoneState::is_active) < self.geometry().max_active
            && count(|state| state == ZoneState::Open) < self.geometry().max_open;
        if !has_slot {
            self.finish(zone)?;
            *copying = None;
        }
        Ok(())
    }

    /// Appends blocks of a superzone that is being copied to this member, at the pointer of its zone. Returns whether it
    /// did: a label may have taken the slot of the zone.
    pub(super) fn append_copy(&self, zone: ZoneId, at: Blocks, from: &[u8]) -> Result<bool> {
        let mut copying = self.copying.lock();
        if at == 0 {
            *copying = Some(zone);
        }
        match *copying == Some(zone) {
            true => self.append_at(zone, at, from).map(|()| true),
            false => Ok(false),
        }
    }

    /// No superzone is being copied to this member any more.
    pub(super) fn end_copy(&self) {
        *self.copying.lock() = None;
    }

    /// Whether the label of this generation is in as many label zones as it must be.
    pub(super) fn has_label(&self, generation: u64) -> bool {
        copies(&self.labels.lock(), generation) >= LABEL_COPIES
    }

    /// Empties the device, durably: so no label of an earlier set is left, and no zone of an earlier volume. The oldest
    /// label is the first that is removed: it never comes back as the only one.
    pub(super) fn erase(&self) -> Result<()> {
        let generations = FoundLabel::read(&*self.device)
            .map_or_else(|_| Generations::default(), |found| found.generations);
        for zone in oldest_first(&generations).map(|zone| ZoneId(zone as u32)) {
            if self.device.report_zone(zone)?.state != ZoneState::Empty {
                self.device.reset(zone)?;
                self.device.flush()?;
            }
        }
        let zones = (0..self.geometry().sequential()).map(ZoneId).zip(self.device.report()?);
        for (zone, info) in zones.skip(LABEL_ZONES as usize) {
            if !matches!(info.state, ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline) {
                self.device.reset(zone)?;
            }
        }
        self.device.flush()
    }

    /// Whether the member still works, after an I/O error of a zone. Its label is written once more, because a disk may
    /// answer reads, reports and flushes, and refuse every write.
    pub(super) fn probe(&self, label: &Label) -> Result<()> {
        self.device.flush()?;
        self.device.report()?;
        if rt::is_planted("set-probe") {
            return Ok(());
        }
        self.rewrite_label(label)
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
        let mut copying = self.copying.lock();
        *copying = copying.filter(|copied| *copied != zone);
        drop(copying);
        self.device.reset(self.zone(zone)).map_err(|error| of_superzone(zone, error))
    }
}

/// How many label zones have this generation.
fn copies(labels: &Generations, generation: impl Into<Option<u64>>) -> usize {
    let generation = generation.into();
    labels.iter().filter(|label| **label == generation).count()
}

/// The label zones in the order in which they are written.
fn oldest_first(labels: &Generations) -> [usize; LABEL_ZONES as usize] {
    let mut zones = [0, 1, 2];
    zones.sort_by_key(|&zone| labels[zone]);
    zones
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

//! A device made of several.
//!
//! A [`Set`] is a [`Device`] over member devices. Zone *z* of it, a *superzone*, is one zone of each member. In a
//! *mirror* each member has all blocks. In a *stripe* each has its share. A [`Concatenation`] is a device over devices
//! or sets, one behind the other. `docs/internals/sets.md` explains the design.
//!
//! * Appends to one superzone are serialised. So the place of an append is known before it is sent, and is the same on
//!   all members of a mirror.
//! * A mirror that loses a member continues without it. First a label that says so is durable on all other members
//!   (`roster.rs`).
//! * Members that disagree about a superzone are made to agree before its pointer is reported: when a set is opened
//!   and after a failed append (`agreement.rs`).
//! * A superzone begins a new life only when its reset is durable on all members. So two lives never meet in one superzone
//!   (`resets.rs`).
//! * Zones that a member of a mirror lacks are copied when the set is opened. A copy counts when it is complete
//!   (`repair.rs`).
//! * A member of a mirror can be replaced. Everything is copied to the new one, step by step, before it counts
//!   (`rebuild.rs`).
//! * Large commands and flushes are sent to several members at the same time (`workers.rs`).
//! * Until [`Device::end_recovery`] a mirror reads all copies and returns zeros for blocks in which they differ. So what
//!   recovery accepts is on every copy (`reading.rs`).
//!
//! Locks, in the order in which they are taken: the cursor of the copies (`rebuild.rs`), the lock of a superzone, that of
//! the label (`roster.rs`), that of the labels of a member, that of the zone that is copied to it (`member.rs`). The table
//! of zones and the unflushed resets have locks that are never held while another one is taken, or while a command is
//! sent.

mod agreement;
mod concatenation;
mod copy;
mod error;
mod format;
pub(crate) mod hostile;
mod label;
mod layout;
mod lives;
mod member;
mod opening;
mod overlay;
mod reading;
mod rebuild;
mod repair;
mod resets;
mod roster;
mod workers;

use std::cell::Cell;
use std::sync::Arc;

use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Mutex, MutexGuard};

pub use concatenation::Concatenation;
pub use error::SetError;
pub use format::{MemberId, Part};
pub(crate) use label::LABEL_ZONES_OF_MEMBER;
pub use label::MemberLabel;
pub use layout::{Layout, MEMBERS_MAX};
pub use overlay::Overlay;
pub use roster::MemberState;

use agreement::{Agreement, Means};
use layout::Shape;
use member::{Member, Use, is_of_member};
use reading::{OneRead, Reading};
use rebuild::{Copied, Copies, CopyZone};
use resets::UnflushedResets;
use roster::Roster;

use crate::machine::Machine;
use crate::{
    Blocks, Command, Device, DeviceError, FsId, Geometry, MetadataCopy, Output, Role, ZoneId, ZoneInfo,
    ZoneState,
};

/// A device whose zones consist of one zone of each member.
pub struct Set {
    layout: Layout,
    roster: Roster,
    geometry: Geometry,
    machine: Mutex<Machine>,
    /// One for each superzone: held while it is changed.
    zone_locks: Vec<Mutex<()>>,
    resets: UnflushedResets,
    /// What the member that is being rebuilt has.
    copies: Copies,
    /// The zones that a member lacks and that could not be copied when the set was opened.
    not_copied: Vec<ZoneId>,
    /// Recovery has not ended: nothing that is read may be on one copy only.
    is_recovering: AtomicBool,
}

/// What a step of the rebuild of a member did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildStep {
    /// No member is being rebuilt.
    Idle,
    /// It copied a piece.
    More,
    /// The member has everything, and counts from now on.
    Complete,
    /// Nothing can be copied now: this many superzones have blocks that no member can read. They can be copied when
    /// garbage collection has emptied them.
    Blocked(u32),
    /// The new member has failed. The set continues without it.
    GivenUp(String),
}

/// How much of a member was rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildState {
    /// The position of the member.
    pub position: usize,
    /// The superzones that it has.
    pub zones_done: u32,
    /// All superzones.
    pub zones: u32,
}

impl Set {
    /// Makes a set of devices, in the order of their positions. `number` is its number in the volume, of which it is not
    /// known how many sets it has. What is on the devices is erased.
    pub fn create(
        layout: Layout,
        devices: Vec<Arc<dyn Device>>,
        fs_id: FsId,
        number: u32,
    ) -> Result<Set, SetError> {
        let too_many = |_| SetError::Unsuitable(format!("a volume has no set {number}"));
        let part = Part { number: u16::try_from(number).map_err(too_many)?, count: 0 };
        Set::create_part(layout, devices, fs_id, part)
    }

    /// The same, where it is known how many sets the volume has.
    pub fn create_part(
        layout: Layout,
        devices: Vec<Arc<dyn Device>>,
        fs_id: FsId,
        part: Part,
    ) -> Result<Set, SetError> {
        Set::new(Roster::create(layout, devices, fs_id, part)?)
    }

    /// Opens the set to which the devices belong, in any order, and makes its members agree about every superzone.
    ///
    /// Members that are stale are not used. If members are missing, `degraded` must permit that, and they will be
    /// stale from now on.
    pub fn open(devices: Vec<Arc<dyn Device>>, degraded: bool) -> Result<Set, SetError> {
        Set::new(Roster::open(devices, degraded)?)
    }

    fn new(roster: Roster) -> Result<Set, SetError> {
        let layout = roster.layout();
        let present: Vec<&Geometry> = roster.counting().map(Member::geometry).collect();
        let geometry = roster.used().geometry(layout, roster.width(), &present);
        let (zones, not_copied) = opening::agreed_zones(&roster, &geometry)?;
        let zone_locks = zones.iter().map(|_| Mutex::new(())).collect();
        let copies = Copies::new(zones.len());
        let machine = Mutex::new(Machine::new(geometry.clone(), zones));
        let (resets, is_recovering) = (UnflushedResets::default(), AtomicBool::new(true));
        Ok(Set { layout, roster, geometry, machine, zone_locks, resets, copies, not_copied, is_recovering })
    }

    /// The device of a volume that consists of these sets, given in any order. Refuses sets of several volumes, and a
    /// volume of which a set is missing.
    pub fn concatenate(mut sets: Vec<Arc<Set>>) -> Result<Concatenation, SetError> {
        sets.sort_by_key(|set| set.part().number);
        let parts: Vec<(FsId, Part)> = sets.iter().map(|set| (set.fs_id(), set.part())).collect();
        concatenation::check_parts(&parts)?;
        Concatenation::new(sets.into_iter().map(|set| set as Arc<dyn Device>).collect())
    }

    /// The shape that a device needs at least to be a member.
    pub fn member_geometry(&self) -> Geometry {
        self.roster.used().member_geometry()
    }

    /// The id of the volume.
    pub fn fs_id(&self) -> FsId {
        self.roster.fs_id()
    }

    /// The place of the set in its volume.
    pub fn part(&self) -> Part {
        self.roster.part()
    }

    /// The number of the newest label: it grows when a member is excluded, and when a zone of a member is repaired.
    pub fn generation(&self) -> u64 {
        self.roster.generation()
    }

    /// The state of each member, by position.
    pub fn members(&self) -> Vec<MemberState> {
        self.roster.states()
    }

    /// Why a device of this shape, whose last zone has this capacity, cannot replace the member at a position.
    ///
    /// # Errors
    /// The reason. Nothing was written.
    pub fn check_replacement(
        &self,
        position: usize,
        device: &Geometry,
        last_zone: Blocks,
    ) -> Result<(), SetError> {
        let refuse = |why: String| Err(SetError::NotReplaceable(why));
        self.roster.check()?;
        if self.layout != Layout::Mirror {
            return refuse("the set is a stripe, and no other member has its data".to_owned());
        }
        if position >= self.roster.width() {
            return refuse(format!(
                "the set has no position {position}; `polder device list` shows the positions"
            ));
        }
        if let Some(other) = self.roster.rebuilt() {
            let position = other.position;
            return refuse(format!(
                "the member at position {position} is being rebuilt; wait until that has ended"
            ));
        }
        if self.roster.counting().all(|member| member.position == position) {
            return refuse(
                "it is the only one that counts: nothing could be copied to the new one".to_owned(),
            );
        }
        if let Some(why) = self.roster.used().missing_in(device) {
            return refuse(format!("the new device has {why}; name another one"));
        }
        let last = ZoneId(self.geometry.zones - 1);
        let wanted = self.machine.lock().zone(last)?.capacity;
        let is_last_used = device.sequential() == label::LABEL_ZONES_OF_MEMBER + self.geometry.zones;
        match is_last_used && last_zone < wanted {
            true => refuse(format!(
                "the last zone of the new device has {last_zone} blocks instead of {wanted}; name a larger one"
            )),
            false => Ok(()),
        }
    }

    /// Makes a device the member at a position. What is on it is erased. Everything is copied to it by
    /// [`Set::rebuild_step`], and it does not count before. The member that had the position is not used any more.
    ///
    /// # Errors
    /// The device cannot be used, or its labels cannot be written. If [`Set::check_replacement`] or a zone of the device
    /// is the reason, nothing was written.
    pub fn replace(&self, position: usize, device: Arc<dyn Device>) -> Result<(), SetError> {
        let report = device.report()?;
        let last_zone = report.last().map_or(0, |info| info.capacity);
        // No other thread replaces a member meanwhile.
        let mut cursor = self.copies.cursor();
        self.check_replacement(position, device.geometry(), last_zone)?;
        if self.roster.has(&device) {
            return Err(SetError::NotReplaceable("the new device is a member of the set".to_owned()));
        }
        let superzones = self.machine.lock().zones().to_vec();
        let own = report.iter().skip(label::LABEL_ZONES_OF_MEMBER as usize);
        for (zone, (wanted, has)) in superzones.iter().zip(own).enumerate() {
            let why = match has.state {
                ZoneState::ReadOnly | ZoneState::Offline => "takes no writes".to_owned(),
                _ if has.capacity < wanted.capacity => {
                    format!("has {} blocks instead of {}", has.capacity, wanted.capacity)
                }
                _ => continue,
            };
            let zone = zone as u32 + label::LABEL_ZONES_OF_MEMBER;
            return Err(SetError::NotReplaceable(format!(
                "zone {zone} of the new device {why}; name another one"
            )));
        }
        if let Some(zone) = self.only_there(position, &superzones)? {
            return Err(SetError::NotReplaceable(format!(
                "superzone {} is on this member only; wait until garbage collection has emptied it, or open the set \
                 again, so that it is copied",
                zone.0
            )));
        }
        self.copies.begin(&mut cursor);
        self.roster.join(position, device)
    }

    /// A superzone that the member at a position has, and no other one that counts.
    fn only_there(&self, position: usize, superzones: &[ZoneInfo]) -> Result<Option<ZoneId>, DeviceError> {
        let (replaced, others): (Vec<&Member>, Vec<&Member>) =
            self.roster.counting().partition(|member| member.position == position);
        let Some(replaced) = replaced.first() else { return Ok(None) };
        let has = |info: &ZoneInfo| !matches!(info.state, ZoneState::Empty | ZoneState::Offline);
        let all = self.geometry.zones;
        let reports = others.iter().map(|member| member.report(all)).collect::<Result<Vec<_>, _>>()?;
        let candidates = (0..).map(ZoneId).zip(superzones).filter(|(zone, info)| {
            has(info) && !reports.iter().any(|report| report.get(zone.0 as usize).is_some_and(has))
        });
        for (zone, _) in candidates {
            // It may have been reset meanwhile.
            let _lock = self.lock_zone(zone)?;
            let is_used = has(&self.machine.lock().zone(zone)?);
            let is_on = |member: &&Member| member.report_zone(zone).map(|info| has(&info));
            if !is_used || !is_on(replaced)? {
                continue;
            }
            let on_others = others.iter().map(is_on).collect::<Result<Vec<bool>, _>>()?;
            if !on_others.contains(&true) {
                return Ok(Some(zone));
            }
        }
        Ok(None)
    }

    /// Copies one piece of one superzone, at most, to the member that is being rebuilt. When it has all of them, it counts.
    ///
    /// # Errors
    /// No member is left.
    pub fn rebuild_step(&self) -> Result<RebuildStep, DeviceError> {
        self.roster.check()?;
        let mut cursor = self.copies.cursor();
        let Some(member) = self.roster.rebuilt() else { return Ok(RebuildStep::Idle) };
        for _ in 0..rebuild::EMPTY_ZONES_PER_STEP {
            let Some(zone) = self.copies.next(&mut cursor) else {
                return match (cursor.begin_again(), self.copies.is_complete()) {
                    (_, true) => self.complete(member),
                    (0, false) => Ok(RebuildStep::More),
                    (unreadable, false) => Ok(RebuildStep::Blocked(unreadable)),
                };
            };
            let _lock = self.lock_zone(zone)?;
            let (info, roster) = (self.machine.lock().zone(zone)?, &self.roster);
            if self.copies.has(zone) {
                continue;
            }
            match (CopyZone { roster, member, zone, info }).step(&self.copies, &mut cursor) {
                Ok(Copied::Empty) => {}
                Ok(Copied::Whole | Copied::Piece | Copied::Unreadable) => return Ok(RebuildStep::More),
                Err((position, error)) => {
                    let failed = self.roster.at(position).unwrap_or(member);
                    let error = self.roster.judge(failed, error);
                    let is_too_often = position == member.position && cursor.fail();
                    if !is_of_member(&error) && !is_too_often {
                        return Ok(RebuildStep::More);
                    }
                    return self.give_up(position, member, &error);
                }
            }
        }
        Ok(RebuildStep::More)
    }

    /// Excludes a member that failed while a superzone was copied.
    fn give_up(
        &self,
        position: usize,
        member: &Member,
        error: &DeviceError,
    ) -> Result<RebuildStep, DeviceError> {
        self.roster.exclude(&[position], error)?;
        match position == member.position {
            true => Ok(RebuildStep::GivenUp(error.to_string())),
            false => Ok(RebuildStep::More),
        }
    }

    /// The member has everything: makes that durable, and then makes the member count.
    fn complete(&self, member: &Member) -> Result<RebuildStep, DeviceError> {
        if !rt::is_planted("set-rebuild-flush")
            && let Err(error) = member.device().flush()
        {
            return self.give_up(member.position, member, &error);
        }
        match self.roster.count_in(member, || self.copies.is_complete())? {
            true => Ok(RebuildStep::Complete),
            false => Ok(RebuildStep::More),
        }
    }

    /// How much of the member that is being rebuilt it has. `None` if there is none.
    pub fn rebuild_state(&self) -> Option<RebuildState> {
        let position = self.roster.rebuilt()?.position;
        let zones = self.geometry.zones;
        Some(RebuildState { position, zones_done: self.copies.count(), zones })
    }

    fn lock_zone(&self, zone: ZoneId) -> Result<MutexGuard<'_, ()>, DeviceError> {
        self.roster.check()?;
        let lock = self.zone_locks.get(zone.0 as usize);
        lock.map(Mutex::lock).ok_or(DeviceError::Invalid { zone, why: "the set has no such zone" })
    }

    fn shape(&self, capacity: Blocks) -> Shape {
        self.layout.shape_of(self.roster.width(), capacity)
    }

    /// The members that get a change of a superzone. The caller holds its lock.
    fn receivers(&self, zone: ZoneId) -> Vec<&Member> {
        self.roster.receivers(|| self.copies.has(zone) && !rt::is_planted("set-rebuild-append"))
    }

    /// Executes a command on members. Those that fail are excluded. `Ok` holds the first error of a zone.
    fn on_all(
        &self,
        zone: ZoneId,
        members: Vec<&Member>,
        command: impl Fn(&Member) -> Result<(), DeviceError>,
    ) -> Result<Option<DeviceError>, DeviceError> {
        let failed = |member: &Member| self.roster.failure(member, command(member).err()?);
        self.settle(zone, members.into_iter().filter_map(failed).collect())
    }

    /// Excludes members whose commands failed as a whole. An error of a zone of the member that is being rebuilt is none
    /// of the superzone: the member lacks the superzone from then on.
    fn settle(
        &self,
        zone: ZoneId,
        mut failures: Vec<(usize, DeviceError)>,
    ) -> Result<Option<DeviceError>, DeviceError> {
        let is_of_zone = |(_, error): &(usize, DeviceError)| !is_of_member(error);
        for (failed, _) in failures.clone().into_iter().filter(is_of_zone) {
            if self.lose_copy(zone, Some(failed)) {
                failures.retain(|failure| failure.0 != failed);
            }
        }
        self.roster.settle(failures)
    }

    /// The member that is being rebuilt, if it has this position, lacks a superzone from now on. The caller holds the lock of
    /// the superzone. Returns whether there is such a member.
    fn lose_copy(&self, zone: ZoneId, position: Option<usize>) -> bool {
        let Some(member) = self.roster.lose_copy(position, || self.copies.set(zone, false)) else {
            return false;
        };
        // Its zone may have a slot. If that fails, the zone is emptied before it is copied.
        if let Err(error) = member.reset(zone) {
            tracing::warn!(zone = zone.0, member = member.position, %error, "a copy was not removed");
        }
        true
    }

    /// Appends to the members. The caller holds the lock of the zone, whose pointer is `start`.
    fn send(&self, zone: ZoneId, shape: &Shape, start: Blocks, from: &[u8]) -> Result<(), DeviceError> {
        let block_size = self.geometry.block_size as usize;
        let end = start + (from.len() / block_size) as Blocks;
        let blocks_of = |member: &Member| {
            let of = |pointer| shape.member_pointer(member.position, pointer);
            of(start)..of(end)
        };
        let send_part = |member: &Member| {
            let part = reading::gather(shape, member.position, start, from, block_size);
            let error = member.append_at(zone, blocks_of(member).start, &part).err()?;
            self.roster.failure(member, error)
        };
        let members: Vec<&Member> =
            self.receivers(zone).into_iter().filter(|member| !blocks_of(member).is_empty()).collect();
        let workers = self.roster.workers();
        let failures = match workers.is_worth_it(from.len()) {
            true => {
                let parts = members.into_iter().map(|member| move || send_part(member)).collect();
                workers.run(parts).into_iter().flatten().collect()
            }
            false => {
                let mut failures = Vec::new();
                for failure in members.into_iter().filter_map(send_part) {
                    // After an error of the zone nothing more needs to be written to it.
                    let is_last = !is_of_member(&failure.1);
                    failures.push(failure);
                    if is_last {
                        break;
                    }
                }
                failures
            }
        };
        self.settle(zone, failures)?.map_or(Ok(()), Err)
    }

    /// Makes the members agree after an append that failed.
    fn agree_after_append(
        &self,
        zone: ZoneId,
        start: Blocks,
        info: ZoneInfo,
    ) -> Result<ZoneInfo, DeviceError> {
        self.lose_copy(zone, None);
        if start == 0 && !rt::is_planted("set-keep-header") {
            // Nothing of this life was acknowledged. Members that have the header would fill the others.
            self.resets.add(zone);
            let failure = self.on_all(zone, self.receivers(zone), |member| member.reset(zone));
            self.resets.add(zone);
            if let Some(error) = failure? {
                tracing::warn!(zone = zone.0, %error, "a zone that was not begun was not reset");
            }
        }
        // A reset may have changed the capacity.
        self.agree(zone, if start == 0 { Blocks::MAX } else { info.capacity })
    }

    /// The state of a superzone that was reset: its zone of the member that is being rebuilt may be smaller now.
    fn within_copy(&self, zone: ZoneId, info: ZoneInfo) -> ZoneInfo {
        let Some(member) = self.roster.rebuilt().filter(|_| self.copies.has(zone)) else { return info };
        match member.report_zone(zone) {
            Ok(own) => ZoneInfo { capacity: info.capacity.min(own.capacity), ..info },
            Err(_) => info,
        }
    }

    /// Makes the members agree about a superzone that has this capacity, or a smaller one.
    fn agree(&self, zone: ZoneId, capacity: Blocks) -> Result<ZoneInfo, DeviceError> {
        let (roster, layout, means) = (&self.roster, self.layout, Means::KeepContents);
        let member_blocks_max = self.shape(capacity).member_blocks();
        Agreement { roster, layout, zone, means, member_blocks_max }.reach()
    }

    /// Finishes member zones of a superzone that takes no more writes, so that they take no slots. Returns whether they
    /// take none.
    fn finish_rest(&self, zone: ZoneId) -> bool {
        let mut is_finished = true;
        for member in self.receivers(zone) {
            let info = member.report_zone(zone);
            let finished = info.and_then(|info| match info.state.is_active() {
                true => member.finish(zone).or_else(|_| member.finish(zone)),
                false => Ok(()),
            });
            if let Err(error) = finished {
                tracing::warn!(zone = zone.0, member = member.position, %error, "a zone was not finished");
                is_finished &= self.lose_copy(zone, Some(member.position));
            }
        }
        is_finished
    }

    /// The state of a superzone of which a member zone has changed its state on its own.
    fn with_permanent_states(known: ZoneInfo, members: &[ZoneState]) -> ZoneInfo {
        let count = |state| members.iter().filter(|&&one| one == state).count();
        let state = match (count(ZoneState::Offline), count(ZoneState::ReadOnly)) {
            (0, 0) => known.state,
            (offline, _) if offline == members.len() => ZoneState::Offline,
            _ => ZoneState::ReadOnly,
        };
        ZoneInfo { state, ..known }
    }

    fn reading(&self) -> Reading<'_> {
        Reading {
            roster: &self.roster,
            layout: self.layout,
            block_size: self.geometry.block_size as usize,
            compares: self.layout == Layout::Mirror
                && self.is_recovering.load(Ordering::Acquire)
                && !rt::is_planted("set-compare"),
            not_copied: &self.not_copied,
        }
    }

    /// Whether a change of a zone is possible: its state before. Nothing is changed yet: a slot that the change frees must
    /// be free on the members before another writer can take it.
    fn check_change(
        &self,
        zone: ZoneId,
        change: impl FnOnce(&mut Machine) -> Result<(), DeviceError>,
    ) -> Result<ZoneInfo, DeviceError> {
        let mut machine = self.machine.lock();
        let before = machine.zone(zone)?;
        change(&mut machine)?;
        machine.force(zone, before);
        Ok(before)
    }

    fn force(&self, zone: ZoneId, info: ZoneInfo) {
        self.machine.lock().force(zone, info);
    }

    /// The state of a zone in which these bytes can be read.
    fn check_read(&self, zone: ZoneId, block: Blocks, bytes: usize) -> Result<ZoneInfo, DeviceError> {
        self.roster.check()?;
        let machine = self.machine.lock();
        let blocks = machine.blocks(zone, bytes)?;
        machine.check_read(zone, block, blocks)?;
        machine.zone(zone)
    }
}

impl Device for Set {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>, DeviceError> {
        self.roster.check()?;
        let known = self.machine.lock().zones().to_vec();
        let reports = self.roster.ask(|member| member.report(self.geometry.zones))?;
        let merged = known.into_iter().enumerate().map(|(zone, known)| {
            let states: Vec<ZoneState> = reports.iter().map(|report| report[zone].state).collect();
            Set::with_permanent_states(known, &states)
        });
        Ok(merged.collect())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo, DeviceError> {
        let _lock = self.lock_zone(zone)?;
        let known = self.machine.lock().zone(zone)?;
        let states = self.roster.ask(|member| member.report_zone(zone).map(|info| info.state))?;
        let info = Set::with_permanent_states(known, &states);
        if info.state != known.state {
            self.finish_rest(zone);
            self.force(zone, info);
        }
        Ok(info)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<(), DeviceError> {
        let info = self.check_read(zone, block, into.len())?;
        self.reading().read(zone, info, block, into)
    }

    fn copies(&self, zone: ZoneId, block: Blocks) -> u32 {
        let capacity = self.machine.lock().zone(zone).map_or(0, |info| info.capacity);
        self.shape(capacity).copies(block).min(self.roster.counting().count() as u32)
    }

    fn read_copy(&self, zone: ZoneId, block: Blocks, copy: u32, into: &mut [u8]) -> Result<(), DeviceError> {
        let info = self.check_read(zone, block, into.len())?;
        self.reading().read_copy(zone, info, block, copy, into)
    }

    fn copy_name(&self, _zone: ZoneId, copy: u32) -> String {
        match self.roster.counting().nth(copy as usize) {
            Some(member) => format!("member {} (at position {})", member.id, member.position),
            None => "a former member".to_owned(),
        }
    }

    fn end_recovery(&self) {
        self.is_recovering.store(false, Ordering::Release);
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks, DeviceError> {
        let _lock = self.lock_zone(zone)?;
        let (start, info) = {
            let mut machine = self.machine.lock();
            let blocks = machine.blocks(zone, from.len())?;
            machine.check_append(zone, blocks)?;
            let start = machine.advance(zone, blocks, None)?;
            // A full superzone keeps its slot until its member zones have none: a label may need one.
            let info = ZoneInfo { state: ZoneState::Open, ..machine.zone(zone)? };
            if !rt::is_planted("set-early-slot") {
                machine.force(zone, info);
            }
            (start, info)
        };
        let is_ready = match start == 0 && self.resets.contains(zone) {
            true => self.flush(),
            false => Ok(()),
        };
        let sent = is_ready.and_then(|()| self.send(zone, &self.shape(info.capacity), start, from));
        if sent.is_ok() && info.pointer == info.capacity && self.finish_rest(zone) {
            self.force(zone, ZoneInfo { state: ZoneState::Full, ..info });
        }
        if sent.is_err() {
            let agreed = self.roster.check().and_then(|()| self.agree_after_append(zone, start, info));
            let broken = ZoneInfo { state: ZoneState::ReadOnly, ..info };
            self.force(zone, agreed.unwrap_or(broken));
        }
        sent.map(|()| start)
    }

    /// Each member gets its reads as one batch. Appends follow one after the other.
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let mut outputs: Vec<Output> = batch.iter().map(|_| Ok(0)).collect();
        let mut reads = Vec::new();
        for (index, command) in batch.iter_mut().enumerate() {
            match command {
                Command::Append { zone, from } => outputs[index] = self.append(*zone, from),
                Command::Read { zone, block, into } => match self.check_read(*zone, *block, into.len()) {
                    Ok(info) => reads.push(OneRead { index, zone: *zone, info, block: *block, into }),
                    Err(error) => outputs[index] = Err(error),
                },
            }
        }
        for (index, error) in self.reading().read_batch(reads) {
            outputs[index] = Err(error);
        }
        outputs
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let _lock = self.lock_zone(zone)?;
        let known = self.check_change(zone, |machine| machine.finish(zone))?;
        // The others are full when one fails, so the zone takes no more appends. It keeps its slot unless a second
        // attempt succeeds.
        let finish = |member: &Member| member.finish(zone).or_else(|_| member.finish(zone));
        if let Some(error) = self.on_all(zone, self.receivers(zone), finish)? {
            return Err(error);
        }
        self.force(zone, ZoneInfo { state: ZoneState::Full, ..known });
        Ok(())
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let _lock = self.lock_zone(zone)?;
        let known = self.check_change(zone, |machine| machine.reset(zone, None))?;
        self.resets.add(zone);
        // The member that is being rebuilt has what is empty.
        let members = match rt::is_planted("set-rebuild-reset") {
            false => self.roster.receivers(|| true),
            true => self.receivers(zone),
        };
        let is_rebuilt_empty = Cell::new(false);
        let reset = |member: &Member| {
            member.reset(zone)?;
            is_rebuilt_empty.set(is_rebuilt_empty.get() || member.usage() == Use::Rebuilt);
            Ok(())
        };
        let failure = self.on_all(zone, members, reset);
        // Once more: a flush that began in between does not cover it.
        self.resets.add(zone);
        let failure = failure?;
        if let Some(error) = failure {
            // Some members are empty. When the set is opened again, the others say what the zone has.
            self.lose_copy(zone, None);
            self.finish_rest(zone);
            self.force(zone, ZoneInfo { state: ZoneState::ReadOnly, ..known });
            return Err(error);
        }
        if is_rebuilt_empty.get() {
            self.copies.set(zone, true);
        }
        // Capacities may have changed.
        let info = self.agree(zone, Blocks::MAX)?;
        let info = self.within_copy(zone, info);
        self.force(zone, info);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let begun = self.resets.begin_flush();
        self.roster.flush()?;
        self.resets.end_flush(begun);
        Ok(())
    }

    fn discard_one_zone(&self) -> bool {
        self.roster.in_use().any(|member| member.device().discard_one_zone())
    }

    fn set_placement(&self, zone: ZoneId, role: Role, class: u8) {
        for member in self.roster.in_use() {
            member.device().set_placement(member.zone(zone), role, class);
        }
    }

    fn has_space_for(&self, zones: u64) -> bool {
        self.roster.counting().all(|member| member.device().has_space_for(zones))
    }

    fn device_metadata_copies(&self) -> Vec<MetadataCopy> {
        self.roster.counting().flat_map(|member| member.device().device_metadata_copies()).collect()
    }

    fn verify_device_metadata(&self) -> Vec<MetadataCopy> {
        self.roster.counting().flat_map(|member| member.device().verify_device_metadata()).collect()
    }

    fn device_metadata_bytes_written(&self) -> u64 {
        self.roster.counting().map(|member| member.device().device_metadata_bytes_written()).sum()
    }
}

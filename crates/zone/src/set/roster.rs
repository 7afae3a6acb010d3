//! Which members of a set count.
//!
//! A member that has failed lacks what is written afterwards. So a label that excludes it is durable on *all* other
//! members before any command succeeds without it. Suppose it were not: the machine stops, the failed member returns
//! with the generation of the others, and its old contents count.
//!
//! If the set runs out of members while it writes labels, a label may be durable that the set does not know. So
//! nothing succeeds any more until the set is opened again.

use std::sync::{Arc, OnceLock};

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::{Device, DeviceError, FsId, Geometry};

use super::error::SetError;
use super::format::{GENERATIONS_MAX, Label, MemberId, Part, Repair, Standing, StandingState};
use super::layout::{Layout, MEMBERS_MAX, Used};
use super::member::{FoundLabel, Member, Unlabelled, Use, is_of_member};
use super::workers::Workers;

/// How many labels can at least be written when a set is opened: none is near that, so such a label is damage.
const GENERATIONS_LEFT: u64 = 1 << 20;

/// How many members can be replaced while a set is open.
const NEW_MEMBERS_MAX: usize = 16;

/// The members of a set.
pub(super) struct Roster {
    /// Those that were there and used when the set was opened, in the order of their positions.
    members: Vec<Member>,
    /// Those that joined since, in their order.
    new_members: [OnceLock<Member>; NEW_MEMBERS_MAX],
    constants: Constants,
    /// The label as it is on all members that count. The lock is held while labels are written. So commands that need
    /// only the constants do not wait for the flushes of a label.
    label: Mutex<Label>,
    is_broken: AtomicBool,
    workers: Workers,
}

/// The part of the label that does not change while the set is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// The volume.
    pub(super) fs_id: FsId,
    /// The place of the set in its volume.
    pub(super) part: Part,
    /// How blocks are distributed.
    pub(super) layout: Layout,
    /// How many members the set has, failed and missing ones included.
    pub(super) width: usize,
    /// What the set uses of each member.
    pub(super) used: Used,
}

/// Whether a member of a set is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Its contents count.
    Counts,
    /// It has failed, or was missing once while the set was used: it lacks data.
    Failed,
    /// It is being rebuilt: it does not count before all is copied to it.
    Rebuilding,
}

impl Roster {
    /// Makes members of devices, which are in the order of their positions. What is on them is erased, so that no label
    /// of an earlier set is left.
    pub(super) fn create(
        layout: Layout,
        devices: Vec<Arc<dyn Device>>,
        fs_id: FsId,
        part: Part,
    ) -> Result<Roster, SetError> {
        if !part.is_possible() {
            let why = format!("set {} of {} is not possible", part.number, part.count);
            return Err(SetError::Unsuitable(why));
        }
        let geometries: Vec<&Geometry> = devices.iter().map(|device| device.geometry()).collect();
        let used = layout.used(&geometries)?;
        let standing = |_| Standing { id: MemberId(rt::random::secret()), state: StandingState::Counts };
        let standings: Vec<Standing> = devices.iter().map(standing).collect();
        let member = |((position, device), standing): ((usize, Arc<dyn Device>), &Standing)| {
            Member::new(position, standing.id, device, Use::Counts)
        };
        let members: Vec<Member> = devices.into_iter().enumerate().zip(&standings).map(member).collect();
        let label = Label { fs_id, part, layout, generation: 1, used, repair: None, members: standings };
        members.iter().try_for_each(Member::erase)?;
        members.iter().try_for_each(|member| member.write_label(&label))?;
        Ok(Roster::new(members, label))
    }

    fn new(members: Vec<Member>, label: Label) -> Roster {
        let Label { fs_id, part, layout, used, .. } = label;
        let constants = Constants { fs_id, part, layout, width: label.members.len(), used };
        let takes_time = members.iter().any(|member| member.device().takes_time());
        let workers = Workers::new(constants.width, takes_time);
        let (label, is_broken) = (Mutex::new(label), AtomicBool::new(false));
        Roster { members, new_members: Default::default(), constants, label, is_broken, workers }
    }

    /// Finds the members among devices, in any order. Stale members are left out. If members are missing, the caller
    /// must permit that, and a label says so durably when this returns.
    pub(super) fn open(devices: Vec<Arc<dyn Device>>, degraded: bool) -> Result<Roster, SetError> {
        let (devices, found) = read_labels(devices)?;
        // The label of a device that has not joined decides nothing.
        let deciding = found.iter().filter(|found| !found.is_joining() || rt::is_planted("set-joining"));
        let newest = deciding.map(|found| &found.label).max_by_key(|label| label.generation);
        let newest = newest.ok_or(SetError::NotJoined)?.clone();
        check_together(&newest, &found)?;
        let usage = |found: &FoundLabel| {
            let standing = newest.members[found.position];
            match standing.state {
                _ if rt::is_planted("set-stale") => Use::Counts,
                _ if standing.id != found.id() => Use::Unused,
                StandingState::Counts => Use::Counts,
                StandingState::Rebuilding => Use::Rebuilt,
                StandingState::Failed | StandingState::Joining => Use::Unused,
            }
        };
        let mut members: Vec<Member> = (devices.into_iter().zip(&found))
            .map(|(device, found)| Member::with_label(device, found, usage(found)))
            .filter(|member| member.usage() != Use::Unused)
            .collect();
        members.sort_by_key(|member| member.position);
        let (width, missing) = (newest.members.len(), newest.members.len() - members.len());
        let not_counting = width - members.iter().filter(|member| member.counts()).count();
        let tolerated = not_counting <= newest.layout.tolerated(width);
        if !tolerated || missing > 0 && !degraded {
            let missing = if tolerated { missing } else { not_counting };
            return Err(SetError::Missing { missing, width, tolerated });
        }
        // Everything that can be refused is refused before a label is written.
        for member in &members {
            if let Some(why) = newest.used.missing_in(member.geometry()) {
                let why = format!("member {} has {why}", member.position);
                return Err(SetError::Unsuitable(why));
            }
        }
        if newest.generation > GENERATIONS_MAX - GENERATIONS_LEFT {
            return Err(SetError::Unsuitable("its labels were written too often".to_owned()));
        }
        let is_present = |position| members.iter().any(|member| member.position == position);
        let is_used = |at: &usize| newest.members[*at].state != StandingState::Failed;
        let mut gone: Vec<usize> = (0..width).filter(|at| is_used(at) && !is_present(*at)).collect();
        for member in &members {
            if let Err(error) = member.finish_labels().and_then(|()| member.free_slot()) {
                tracing::error!(member = member.position, %error, "a member of the set cannot be used");
                gone.push(member.position);
            }
        }
        let roster = Roster::new(members, newest);
        if !gone.is_empty() {
            roster.exclude(&gone, &DeviceError::Unusable("members of the set are missing".to_owned()))?;
        }
        roster.complete_labels()?;
        Ok(roster)
    }

    /// Writes the newest label until each member has it in two zones: a crash may have stopped its writer. Else a member
    /// that this label excludes counts again when the only copy is lost.
    fn complete_labels(&self) -> Result<(), DeviceError> {
        let label = self.label.lock().clone();
        let failed = |member: &Member| {
            let written =
                if member.has_label(label.generation) { Ok(()) } else { member.write_label(&label) };
            written.err().map(|error| (member.position, error))
        };
        let failures: Vec<(usize, DeviceError)> = self.in_use().filter_map(failed).collect();
        let Some((_, error)) = failures.first() else { return Ok(()) };
        let positions: Vec<usize> = failures.iter().map(|(position, _)| *position).collect();
        self.exclude(&positions, error)
    }

    /// What the set uses of each member.
    pub(super) fn used(&self) -> Used {
        self.constants.used
    }

    /// How blocks are distributed.
    pub(super) fn layout(&self) -> Layout {
        self.constants.layout
    }

    /// The volume.
    pub(super) fn fs_id(&self) -> FsId {
        self.constants.fs_id
    }

    /// The place of the set in its volume.
    pub(super) fn part(&self) -> Part {
        self.constants.part
    }

    /// How many members the set has, failed and missing ones included.
    pub(super) fn width(&self) -> usize {
        self.constants.width
    }

    /// The generation of the labels.
    pub(super) fn generation(&self) -> u64 {
        self.label.lock().generation
    }

    /// The state of each member.
    pub(super) fn states(&self) -> Vec<MemberState> {
        let state = |member: &Standing| match member.state {
            StandingState::Counts => MemberState::Counts,
            StandingState::Rebuilding => MemberState::Rebuilding,
            StandingState::Failed | StandingState::Joining => MemberState::Failed,
        };
        self.label.lock().members.iter().map(state).collect()
    }

    /// All members that are used now or were used since the set was opened, and one that joins.
    fn all(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(self.new_members.iter().filter_map(OnceLock::get))
    }

    /// Whether a device is that of a member that is used.
    pub(super) fn has(&self, device: &Arc<dyn Device>) -> bool {
        self.in_use().any(|member| member.is_on(device))
    }

    /// The members that count. There is always one: each is asked once, so one that begins to count in the place of another
    /// can be missed, but not twice.
    pub(super) fn counting(&self) -> impl Iterator<Item = &Member> {
        let collect = || -> Vec<&Member> { self.all().filter(|member| member.counts()).collect() };
        let found = collect();
        let found = if found.is_empty() { collect() } else { found };
        found.into_iter()
    }

    /// The member that is being rebuilt.
    pub(super) fn rebuilt(&self) -> Option<&Member> {
        self.all().find(|member| member.usage() == Use::Rebuilt)
    }

    /// The members that count, and behind them the one that is being rebuilt.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &Member> {
        self.receivers(|| true).into_iter()
    }

    /// Those that get a change of a superzone: the members that count, and behind them the one that is being rebuilt, if
    /// it has the superzone. `has_zone` is asked after the members: a member that joins meanwhile has nothing.
    pub(super) fn receivers(&self, has_zone: impl FnOnce() -> bool) -> Vec<&Member> {
        // Each member is asked once: it may begin to count meanwhile.
        let mut used: Vec<(Use, &Member)> = self.all().map(|member| (member.usage(), member)).collect();
        let has_zone = has_zone();
        used.retain(|(usage, _)| *usage == Use::Counts || *usage == Use::Rebuilt && has_zone);
        used.sort_by_key(|(usage, _)| std::cmp::Reverse(*usage));
        used.into_iter().map(|(_, member)| member).collect()
    }

    /// The threads that send commands to several members at the same time.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The member at a position, if it was there when the set was opened or joined since.
    pub(super) fn at(&self, position: usize) -> Option<&Member> {
        let at = self.all().filter(|member| member.position == position);
        at.max_by_key(|member| member.usage())
    }

    /// Whether the set can be used: it has not run out of members.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        if !self.is_broken.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(DeviceError::Unusable("too many members of the set have failed; open it again".to_owned()))
    }

    /// Makes failed members not count any more. When this succeeds, no crash makes them count again. It returns
    /// `error` if no member is left, or if the layout tolerates no failure.
    pub(super) fn exclude(&self, failed: &[usize], error: &DeviceError) -> Result<(), DeviceError> {
        let mut label = self.label.lock();
        self.check()?;
        let lost: Vec<usize> =
            failed.iter().copied().filter(|&at| label.members[at].state != StandingState::Failed).collect();
        if lost.is_empty() {
            return Ok(()); // Another thread has done it.
        }
        let next = label.clone();
        self.replace_label(&mut label, next, lost, error)
    }

    /// The zone of a member that must be copied from others: its contents do not count.
    pub(super) fn repair(&self) -> Option<Repair> {
        self.label.lock().repair
    }

    /// Records durably on all members which zone of which member does not count.
    pub(super) fn set_repair(&self, repair: Option<Repair>) -> Result<(), DeviceError> {
        let mut label = self.label.lock();
        self.check()?;
        if label.repair == repair || rt::is_planted("set-repair") {
            return Ok(());
        }
        let next = Label { repair, ..label.clone() };
        let error = DeviceError::Unusable("no member of the set takes its label".to_owned());
        self.replace_label(&mut label, next, Vec::new(), &error)
    }

    /// Writes the next label to all members that it lists. Members that fail, now or before, do not count from then on.
    fn replace_label(
        &self,
        label: &mut Label,
        mut next: Label,
        lost: Vec<usize>,
        error: &DeviceError,
    ) -> Result<(), DeviceError> {
        if !self.write_label(&mut next, lost) {
            self.is_broken.store(true, Ordering::Release);
            return Err(error.clone());
        }
        self.use_as_listed(&next, error);
        *label = next;
        Ok(())
    }

    /// The same without using the members as the label says. Returns false if too many of them have failed.
    fn write_label(&self, next: &mut Label, mut lost: Vec<usize>) -> bool {
        loop {
            for at in lost.drain(..) {
                next.members[at].state = StandingState::Failed;
                next.repair = next.repair.filter(|repair| repair.member != at);
            }
            next.generation += 1;
            let failed = next.members.iter().filter(|member| !member.counts()).count();
            if failed > next.layout.tolerated(next.members.len()) || next.generation >= GENERATIONS_MAX {
                return false;
            }
            if rt::is_planted("set-generation") {
                return true;
            }
            let mut write = |members: Vec<&Member>| {
                for member in members {
                    if let Err(error) = member.write_label(next) {
                        tracing::error!(member = member.position, %error, "a member of the set has failed");
                        lost.push(member.position);
                    }
                }
                lost.is_empty()
            };
            let (counting, others): (Vec<&Member>, Vec<&Member>) =
                self.all().filter(|member| is_listed(next, member)).partition(|member| member.counts());
            // On one that is being rebuilt only after all that count have it: a label that is on that one only must not be
            // newer than all others.
            if write(counting) && write(others) {
                return true;
            }
        }
    }

    /// Uses the members as a label says that is durable on all of them. A member begins to count before others cease to:
    /// one always counts.
    fn use_as_listed(&self, label: &Label, error: &DeviceError) {
        let usage = |member: &Member| match label.members[member.position].state {
            StandingState::Counts if is_listed(label, member) => Use::Counts,
            StandingState::Rebuilding if is_listed(label, member) => Use::Rebuilt,
            _ => Use::Unused,
        };
        let all = || self.all().map(|member| (member, member.usage(), usage(member)));
        all()
            .filter(|(_, before, after)| before < after)
            .for_each(|(member, _, after)| member.set_usage(after));
        for (member, _, after) in all().filter(|(_, before, after)| before > after) {
            tracing::error!(member = member.position, %error, "the set continues without a failed member");
            member.set_usage(after);
        }
    }

    /// Makes a device that is empty the member at a position, which is being rebuilt from now on. What was there before
    /// does not count any more. Nothing is written before everything that can be refused is refused.
    pub(super) fn join(&self, position: usize, device: Arc<dyn Device>) -> Result<(), SetError> {
        let id = MemberId(rt::random::secret());
        let standing = |state| Standing { id, state };
        let with = |label: &Label, state| {
            let mut members = label.members.clone();
            members[position] = standing(state);
            let repair = label.repair.filter(|repair| repair.member != position);
            Label { members, repair, ..label.clone() }
        };
        let slot = self.new_members.iter().find(|slot| slot.get().is_none());
        let slot = slot.ok_or_else(|| {
            let why = format!("{NEW_MEMBERS_MAX} members were replaced since it was opened; open it again");
            SetError::Unsuitable(why)
        })?;
        let member = Member::new(position, id, device, Use::Unused);
        member.erase()?;
        // On the new member alone, so that it is known when the others list it. It decides nothing.
        let joining = with(&self.label.lock().clone(), StandingState::Joining);
        member.write_label(&joining)?;
        let mut label = self.label.lock();
        self.check()?;
        let next = with(&label, StandingState::Rebuilding);
        // Others may have failed while the new device was erased.
        if !next.members.iter().any(Standing::counts) {
            let why =
                "the other members have failed meanwhile: nothing could be copied to the new one".to_owned();
            return Err(SetError::NotReplaceable(why));
        }
        let member = slot.get_or_init(|| member);
        let error = DeviceError::Unusable("another member has its position now".to_owned());
        self.replace_label(&mut label, next, Vec::new(), &error)?;
        match member.usage() {
            Use::Rebuilt => Ok(()),
            _ => Err(DeviceError::Unusable("the new member has failed".to_owned()).into()),
        }
    }

    /// Makes the member that is being rebuilt count, unless `is_complete` is false once no change can be under way that
    /// it lacks. Returns whether it counts.
    pub(super) fn count_in(
        &self,
        member: &Member,
        is_complete: impl FnOnce() -> bool,
    ) -> Result<bool, DeviceError> {
        let mut label = self.label.lock();
        self.check()?;
        if member.usage() != Use::Rebuilt || !is_complete() {
            return Ok(false);
        }
        let mut next = label.clone();
        next.members[member.position].state = StandingState::Counts;
        let error = DeviceError::Unusable("it does not take the labels of the set".to_owned());
        self.replace_label(&mut label, next, Vec::new(), &error)?;
        Ok(member.counts())
    }

    /// If a member is still being rebuilt, at this position if one is given: notes with `lose` that it lacks a change,
    /// before it can begin to count. Returns it.
    pub(super) fn lose_copy(&self, position: Option<usize>, lose: impl FnOnce()) -> Option<&Member> {
        let _label = self.label.lock();
        let member = self.rebuilt().filter(|member| position.is_none_or(|at| member.position == at))?;
        lose();
        Some(member)
    }

    /// The error of a command. A disk that has died answers with errors of zones. So after an I/O error the member is
    /// probed. If the probe fails, the error is one of the whole member.
    pub(super) fn judge(&self, member: &Member, error: DeviceError) -> DeviceError {
        if !matches!(error, DeviceError::Io { .. }) {
            return error;
        }
        let label = self.label.lock();
        if member.usage() == Use::Unused || self.check().is_err() {
            return DeviceError::Unusable(format!("a member of the set has failed: {error}"));
        }
        match member.probe(&label) {
            Ok(()) => error,
            Err(cause) => DeviceError::Unusable(format!("a member of the set does not work: {cause}")),
        }
    }

    /// The failure of a command of a member. Nothing if the member is not used any more: labels say so, and another one may
    /// have its position.
    pub(super) fn failure(&self, member: &Member, error: DeviceError) -> Option<(usize, DeviceError)> {
        let error = self.judge(member, error);
        (member.usage() != Use::Unused).then_some((member.position, error))
    }

    /// Flushes all members. One whose flush fails has failed: it may have lost what it had acknowledged, whatever it says
    /// later.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        self.check()?;
        let flush = |member: &'_ Member| {
            let error = member.device().flush().err()?;
            (member.usage() != Use::Unused).then_some((member.position, error))
        };
        let flushes = self.in_use().map(|member| move || flush(member)).collect();
        let failures: Vec<(usize, DeviceError)> = self.workers.run(flushes).into_iter().flatten().collect();
        let Some((_, error)) = failures.first() else { return Ok(()) };
        let positions: Vec<usize> = failures.iter().map(|(position, _)| *position).collect();
        self.exclude(&positions, error)
    }

    /// Asks all members that count. Members that fail are excluded, and an error of a zone is returned.
    pub(super) fn ask<T>(
        &self,
        question: impl Fn(&Member) -> Result<T, DeviceError>,
    ) -> Result<Vec<T>, DeviceError> {
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        for member in self.counting() {
            match question(member) {
                Ok(answer) => answers.push(answer),
                Err(error) => failures.extend(self.failure(member, error)),
            }
        }
        self.settle(failures)?.map_or(Ok(answers), Err)
    }

    /// Excludes the members whose commands failed as a whole. `Ok` holds the first error of a zone, if there is one.
    pub(super) fn settle(
        &self,
        failures: Vec<(usize, DeviceError)>,
    ) -> Result<Option<DeviceError>, DeviceError> {
        let (members, zones): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|(_, error)| is_of_member(error));
        if let Some((_, error)) = members.first() {
            let positions: Vec<usize> = members.iter().map(|(position, _)| *position).collect();
            self.exclude(&positions, error)?;
        }
        Ok(zones.into_iter().next().map(|(_, error)| error))
    }
}

/// Whether a label says that a member is used.
fn is_listed(label: &Label, member: &Member) -> bool {
    let standing = label.members[member.position];
    standing.id == member.id && matches!(standing.state, StandingState::Counts | StandingState::Rebuilding)
}

/// Reads the labels of devices, and leaves out devices that fail.
///
/// They are flushed first, so that no label of a killed process is believed that is not durable.
#[allow(clippy::type_complexity, reason = "two vectors of the same length")]
fn read_labels(devices: Vec<Arc<dyn Device>>) -> Result<(Vec<Arc<dyn Device>>, Vec<FoundLabel>), SetError> {
    let (mut kept, mut labels, mut failure) = (Vec::new(), Vec::new(), None);
    for (index, device) in devices.into_iter().enumerate() {
        match device.flush().map_err(Unlabelled::Failed).and_then(|()| FoundLabel::read(&*device)) {
            Ok(found) => {
                labels.push(found);
                kept.push(device);
            }
            Err(Unlabelled::Absent) => return Err(SetError::Unlabelled(index)),
            Err(Unlabelled::Unknown(why)) => return Err(SetError::Unknown(index, why)),
            Err(Unlabelled::Lost) => return Err(SetError::LabelLost(index)),
            Err(Unlabelled::Failed(error)) => {
                tracing::error!(device = index, %error, "a member of the set cannot be used");
                failure = Some(error);
            }
        }
    }
    match (kept.is_empty(), failure) {
        (true, Some(error)) => Err(error.into()),
        (true, None) => Err(SetError::Unsuitable("no device is given".to_owned())),
        (false, _) => Ok((kept, labels)),
    }
}

/// Refuses devices that are not members of one set, each once, or that were used apart.
fn check_together(newest: &Label, found: &[FoundLabel]) -> Result<(), SetError> {
    assert!(newest.members.len() <= MEMBERS_MAX, "labels are decoded within their limits");
    for (index, one) in found.iter().enumerate() {
        let label = &one.label;
        let is_same = (label.fs_id, label.part, label.layout, label.members.len())
            == (newest.fs_id, newest.part, newest.layout, newest.members.len());
        if !is_same {
            return Err(SetError::Foreign(index));
        }
        if let Some(other) = found[..index].iter().position(|other| other.id() == one.id()) {
            return Err(SetError::Duplicate(other, index));
        }
        let excluded = |at: &usize| {
            let (old, new) = (label.members[*at], newest.members[*at]);
            let is_excluded = old.state == StandingState::Failed;
            // Or, of two members, one has failed for the other, which this one has replaced. Of more members, this one may
            // have failed before the other one was replaced.
            let own = newest.members[one.position];
            let is_failed = own.id == one.id() && own.state == StandingState::Failed;
            let is_replaced = newest.members.len() == 2 && is_failed && *at != one.position;
            match old.id == new.id {
                true => new.state != StandingState::Failed && is_excluded,
                false => is_replaced && !is_excluded && !one.is_joining(),
            }
        };
        if let Some(position) = (0..newest.members.len()).find(excluded) {
            return Err(SetError::Divided(one.position, position));
        }
    }
    Ok(())
}

//! Which members of a set count.
//!
//! A member that has failed lacks what is written afterwards. So a label that excludes it is durable on *all* other
//! members before any command succeeds without it. Suppose it were not: the machine stops, the failed member returns
//! with the generation of the others, and its old contents count.
//!
//! If the set runs out of members while it writes labels, a label may be durable that the set does not know. So
//! nothing succeeds any more until the set is opened again.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::{Device, DeviceError, FsId, Geometry};

use super::error::SetError;
use super::format::{GENERATIONS_MAX, Label, MemberId, Part, Repair, Standing};
use super::layout::{Layout, MEMBERS_MAX, Used};
use super::member::{FoundLabel, Member, Unlabelled, is_of_member};
use super::workers::Workers;

/// How many labels can at least be written when a set is opened: none is near that, so such a label is damage.
const GENERATIONS_LEFT: u64 = 1 << 20;

/// The members of a set.
pub(super) struct Roster {
    /// Those that were there when the set was opened and counted then, in the order of their positions.
    members: Vec<Member>,
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
        let standing = |_| Standing { id: MemberId(rt::random::secret()), counts: true };
        let standings = devices.iter().map(standing).collect();
        let label = Label { fs_id, part, layout, generation: 1, used, repair: None, members: standings };
        let members: Vec<Member> =
            devices.into_iter().enumerate().map(|(position, device)| Member::new(position, device)).collect();
        members.iter().try_for_each(Member::erase)?;
        members.iter().try_for_each(|member| member.write_label(&label))?;
        Ok(Roster::new(members, label))
    }

    fn new(members: Vec<Member>, label: Label) -> Roster {
        let Label { fs_id, part, layout, used, .. } = label;
        let constants = Constants { fs_id, part, layout, width: label.members.len(), used };
        let takes_time = members.iter().any(|member| member.device().takes_time());
        let workers = Workers::new(members.len(), takes_time);
        Roster { members, constants, label: Mutex::new(label), is_broken: AtomicBool::new(false), workers }
    }

    /// Finds the members among devices, in any order. Stale members are left out. If members are missing, the caller
    /// must permit that, and a label says so durably when this returns.
    pub(super) fn open(devices: Vec<Arc<dyn Device>>, degraded: bool) -> Result<Roster, SetError> {
        let (devices, found) = read_labels(devices)?;
        let newest = found.iter().map(|found| &found.label).max_by_key(|label| label.generation);
        let newest = newest.expect("a device is left").clone();
        check_together(&newest, &found)?;
        let is_member = |found: &FoundLabel| {
            let standing = newest.members[found.position];
            standing.counts && standing.id == found.id()
        };
        let mut members: Vec<Member> = (devices.into_iter().zip(&found))
            .filter(|(_, found)| is_member(found) || rt::is_planted("set-stale"))
            .map(|(device, found)| Member::with_label(device, found))
            .collect();
        members.sort_by_key(|member| member.position);
        let (width, missing) = (newest.members.len(), newest.members.len() - members.len());
        let tolerated = missing <= newest.layout.tolerated(width);
        if missing > 0 && !(degraded && tolerated) {
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
        let mut gone: Vec<usize> =
            (0..width).filter(|&at| newest.members[at].counts && !is_present(at)).collect();
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
        let failures: Vec<(usize, DeviceError)> = self.counting().filter_map(failed).collect();
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
        let state = |member: &Standing| match member.counts {
            true => MemberState::Counts,
            false => MemberState::Failed,
        };
        self.label.lock().members.iter().map(state).collect()
    }

    /// The members that count.
    pub(super) fn counting(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.counts())
    }

    /// The threads that send commands to several members at the same time.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The member at a position, if it was there when the set was opened.
    pub(super) fn at(&self, position: usize) -> Option<&Member> {
        self.members.iter().find(|member| member.position == position)
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
        let lost: Vec<usize> = failed.iter().copied().filter(|&at| label.members[at].counts).collect();
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

    /// Writes the next label to all members that count. Members that fail, now or before, do not count from then on.
    fn replace_label(
        &self,
        label: &mut Label,
        mut next: Label,
        mut lost: Vec<usize>,
        error: &DeviceError,
    ) -> Result<(), DeviceError> {
        loop {
            for at in lost.drain(..) {
                next.members[at].counts = false;
                next.repair = next.repair.filter(|repair| repair.member != at);
            }
            next.generation += 1;
            let failed = next.members.iter().filter(|member| !member.counts).count();
            if failed > next.layout.tolerated(next.members.len()) || next.generation >= GENERATIONS_MAX {
                self.is_broken.store(true, Ordering::Release);
                return Err(error.clone());
            }
            if rt::is_planted("set-generation") {
                break;
            }
            let survivors = self.counting().filter(|member| next.members[member.position].counts);
            for member in survivors {
                if let Err(error) = member.write_label(&next) {
                    tracing::error!(member = member.position, %error, "a member of the set has failed");
                    lost.push(member.position);
                }
            }
            if lost.is_empty() {
                break;
            }
        }
        for member in self.counting().filter(|member| !next.members[member.position].counts) {
            tracing::error!(member = member.position, %error, "the set continues without a failed member");
            member.exclude();
        }
        *label = next;
        Ok(())
    }

    /// The error of a command. A disk that has died answers with errors of zones. So after an I/O error the member is
    /// probed. If the probe fails, the error is one of the whole member.
    pub(super) fn judge(&self, member: &Member, error: DeviceError) -> DeviceError {
        if !matches!(error, DeviceError::Io { .. }) {
            return error;
        }
        let label = self.label.lock();
        if !member.counts() || self.check().is_err() {
            return DeviceError::Unusable(format!("a member of the set has failed: {error}"));
        }
        match member.probe(&label) {
            Ok(()) => error,
            Err(cause) => DeviceError::Unusable(format!("a member of the set does not work: {cause}")),
        }
    }

    /// Flushes all members. One whose flush fails has failed: it may have lost what it had acknowledged, whatever it says
    /// later.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        self.check()?;
        let flush = |member: &'_ Member| member.device().flush().err().map(|error| (member.position, error));
        let flushes = self.counting().map(|member| move || flush(member)).collect();
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
                Err(error) => failures.push((member.position, self.judge(member, error))),
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
            old.id == new.id && new.counts && !old.counts
        };
        if let Some(position) = (0..newest.members.len()).find(excluded) {
            return Err(SetError::Divided(one.position, position));
        }
    }
    Ok(())
}

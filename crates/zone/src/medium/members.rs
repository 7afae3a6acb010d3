//! Opens a volume on several devices.
//!
//! All members that are found are opened and locked, also those that are not used. So no other process can mount a part
//! of the volume meanwhile.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rt::sync::Mutex;

use super::Medium;
use super::find::{FoundMember, find};
use crate::file::{FileDevice, FileError, OpenMode};
use crate::format::decode_header;
use crate::set::{LABEL_ZONES_OF_MEMBER, Layout, MemberId, MemberLabel, MemberState, Overlay, Set, SetError};
use crate::zoned::{ZonedDevice, is_zoned};
use crate::{Device, FsId, MetadataCopy, ZoneId};

/// The number of the first zones that can contain the log.
const LOG_ZONES: u32 = 4;

/// How the members of a volume are found, and whether all are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetOptions {
    /// Members besides the one that is named. Others are found.
    pub devices: Vec<PathBuf>,
    /// Whether members may be missing, as far as the layout tolerates that.
    pub degraded: Degraded,
}

/// Whether a volume is opened without some of its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Degraded {
    /// No: all members must be there.
    #[default]
    Refused,
    /// Without members that the labels exclude: they lack data already.
    IfExcluded,
    /// Without any member that is missing. If the volume is opened for writing, such a member is stale from then on.
    Permitted,
}

/// A volume on several devices, open.
pub struct SetMedium {
    fs_id: FsId,
    device: Arc<dyn Device>,
    members: Arc<Members>,
    opened: Vec<Single>,
    repaired: Vec<MetadataCopy>,
}

/// The members of an open volume.
pub struct Members {
    pub(super) sets: Vec<OpenSet>,
    /// All devices that were opened. Those that are not used stay locked, too.
    pub(super) locked: Mutex<Vec<(PathBuf, Arc<dyn Device>)>>,
    /// Whether changes of the members stay in memory.
    pub(super) is_read_only: bool,
}

pub(super) struct OpenSet {
    pub(super) set: Arc<Set>,
    /// As the set was found, with the paths of members that joined since.
    pub(super) found: Mutex<SetReport>,
    /// The paths of all members that were used since the volume was opened. They are open until it is closed.
    pub(super) held: Mutex<Vec<PathBuf>>,
}

impl OpenSet {
    fn new(set: Arc<Set>, found: SetReport) -> OpenSet {
        let held = found.members.iter().filter(|member| member.condition.is_used());
        let held = held.filter_map(|member| member.path.clone()).collect();
        OpenSet { set, found: Mutex::new(found), held: Mutex::new(held) }
    }
}

/// A set and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetReport {
    /// Its number in the volume.
    pub number: u32,
    /// How it distributes blocks.
    pub layout: Layout,
    /// Its zones.
    pub zones: u32,
    /// Its members, by position.
    pub members: Vec<MemberReport>,
}

/// A member of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// The identity of its membership.
    pub id: MemberId,
    /// Where it was found, if it was.
    pub path: Option<PathBuf>,
    /// Its state.
    pub condition: MemberCondition,
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberCondition {
    /// It is used.
    Ok,
    /// It was not found.
    Missing,
    /// It has failed, or was not there while the set was used, and it was not found now.
    Failed,
    /// The same, and it is there. It lacks what was written since, and is not read.
    Stale,
    /// It is there, and everything is being copied to it.
    Rebuilding,
}

impl MemberCondition {
    /// Whether the set writes to the member.
    pub(super) fn is_used(self) -> bool {
        matches!(self, MemberCondition::Ok | MemberCondition::Rebuilding)
    }
}

impl SetReport {
    /// The set to which these members belong. The newest label says what counts.
    fn of(number: u32, found: &[FoundMember]) -> SetReport {
        let newest = newest_of(found);
        let member = |position| {
            let id = newest.id_at(position);
            let path = found.iter().find(|found| found.label.id() == id).map(|found| found.path.clone());
            let is_rebuilt = newest.is_rebuilt(position);
            let condition = match (newest.counts(position) || is_rebuilt, path.is_some()) {
                (true, true) if is_rebuilt => MemberCondition::Rebuilding,
                (true, true) => MemberCondition::Ok,
                (true, false) => MemberCondition::Missing,
                (false, false) => MemberCondition::Failed,
                (false, true) => MemberCondition::Stale,
            };
            MemberReport { id, path, condition }
        };
        let members = (0..newest.width()).map(member).collect();
        SetReport { number, layout: newest.layout(), zones: newest.zones(), members }
    }

    /// How many members are not used.
    pub fn unused(&self) -> usize {
        self.members.iter().filter(|member| member.condition != MemberCondition::Ok).count()
    }

    /// Whether the set works without the members that are not used.
    pub fn is_usable(&self) -> bool {
        self.unused() <= self.layout.redundancy(self.members.len())
    }

    /// A sentence about the members that are not used; `None` if all are.
    pub fn problem(&self) -> Option<String> {
        let (layout, number) = (self.layout.name(), self.number);
        let one = |(position, member): (usize, &MemberReport)| {
            let place = member.path.as_ref().map(|path| format!("{}, ", path.display())).unwrap_or_default();
            let state = match member.condition {
                MemberCondition::Ok => return None,
                MemberCondition::Missing => "is missing",
                MemberCondition::Failed => "has failed or was missing before, and was not found",
                MemberCondition::Stale => "is stale: the volume was used without it",
                MemberCondition::Rebuilding => "is being rebuilt",
            };
            Some(format!("member {position} ({place}id {}) {state}", member.id))
        };
        let all: Vec<String> = self.members.iter().enumerate().filter_map(one).collect();
        (!all.is_empty()).then(|| format!("set {number}, a {layout}: {}", all.join("; ")))
    }

    fn has_missing(&self) -> bool {
        self.members.iter().any(|member| member.condition == MemberCondition::Missing)
    }

    /// Whether all members are there, and no user needs to permit anything.
    pub fn is_whole(&self) -> bool {
        self.is_usable() && self.members.iter().all(|member| member.condition.is_used())
    }

    /// What the user can do about members that are not used.
    pub fn advice(&self) -> &'static str {
        match (self.is_usable(), self.has_missing()) {
            (true, false) if self.is_whole() => "mount the volume: the rebuild continues by itself",
            (true, true) => {
                "give the path of a missing member (`polder mount -o device=PATH`), or mount the volume without it \
                 (`-o degraded`)"
            }
            (true, false) => "mount the volume without it (`-o degraded`)",
            (false, _) => {
                "the volume cannot be used without it; give the path of a missing member \
                 (`polder mount -o device=PATH`)"
            }
        }
    }
}

impl Members {
    /// The sets and their members, in their present states.
    pub fn report(&self) -> Vec<SetReport> {
        self.sets.iter().map(OpenSet::report).collect()
    }

    /// The paths of the members that are used.
    pub fn paths(&self) -> Vec<PathBuf> {
        let reports = self.report().into_iter().flat_map(|report| report.members);
        reports.filter(|member| member.condition.is_used()).filter_map(|member| member.path).collect()
    }
}

impl OpenSet {
    fn report(&self) -> SetReport {
        let mut report = self.found.lock().clone();
        for (member, state) in report.members.iter_mut().zip(self.set.members()) {
            let is_used = member.condition.is_used();
            member.condition = match state {
                MemberState::Failed if is_used => MemberCondition::Failed,
                MemberState::Counts if is_used => MemberCondition::Ok,
                MemberState::Rebuilding if is_used => MemberCondition::Rebuilding,
                _ => member.condition,
            };
        }
        report
    }
}

/// An open device that is a member.
pub(super) enum Single {
    File(Arc<FileDevice>),
    Zoned(Arc<ZonedDevice>),
}

impl Single {
    /// The device of a medium on one device.
    pub(super) fn of(medium: Medium) -> Single {
        match medium {
            Medium::File(device) => Single::File(Arc::from(device)),
            Medium::Zoned(device) => Single::Zoned(Arc::from(device)),
            Medium::Sets(_) => unreachable!("a member is one device"),
        }
    }

    fn open(path: &Path, mode: OpenMode) -> Result<Single, FileError> {
        let known = std::fs::metadata(path).map_err(|error| FileError::io(path, "read it", error))?;
        match is_zoned(path, &known)? {
            true => ZonedDevice::open_member(path, mode).map(|device| Single::Zoned(Arc::new(device))),
            false => FileDevice::open(path, mode).map(|device| Single::File(Arc::new(device))),
        }
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        match self {
            Single::File(device) => Arc::clone(device) as _,
            Single::Zoned(device) => Arc::clone(device) as _,
        }
    }

    fn repaired(&self) -> &[MetadataCopy] {
        match self {
            Single::File(device) => device.repaired(),
            Single::Zoned(_) => &[],
        }
    }

    fn prepare_writes(&self, count: usize) {
        match self {
            Single::File(device) => device.prepare_writes(count),
            Single::Zoned(device) => device.prepare_writes(count),
        }
    }
}

/// The sets of the volume with the member at a path, as their labels say. Opens nothing, so it needs no lock.
pub fn survey(path: &Path, label: MemberLabel, options: &SetOptions) -> Result<Vec<SetReport>, FileError> {
    let found = by_set(find(path, label, &options.devices)?);
    Ok(found.iter().map(|(number, members)| SetReport::of(*number, members)).collect())
}

fn by_set(found: Vec<FoundMember>) -> BTreeMap<u32, Vec<FoundMember>> {
    let mut sets: BTreeMap<u32, Vec<FoundMember>> = BTreeMap::new();
    for member in found {
        sets.entry(member.label.set()).or_default().push(member);
    }
    sets
}

impl SetMedium {
    /// Opens the volume that has the member at `path` with this label.
    pub(super) fn open(
        path: &Path,
        label: MemberLabel,
        mode: OpenMode,
        options: &SetOptions,
    ) -> Result<SetMedium, FileError> {
        let fs_id = label.fs_id();
        let found = by_set(find(path, label, &options.devices)?);
        check_numbers(path, &found)?;
        let (opened, locked, failure, degraded) = (Vec::new(), Vec::new(), None, options.degraded);
        let mut opening = Opening { path, mode, degraded, opened, locked, failure };
        let mut checked = Vec::new();
        // All sets are checked before one of them is changed.
        for (number, members) in found {
            let members = opening.lock(members)?;
            checked.push((opening.check(number, &members)?, members));
        }
        check_zones(path, fs_id, &checked)?;
        let sets = checked.into_iter().map(|(report, members)| opening.set(report, members));
        let sets = sets.collect::<Result<Vec<OpenSet>, _>>()?;
        let device = concatenate(path, &sets)?;
        let repaired = opening.opened.iter().flat_map(|one| one.repaired().to_vec()).collect();
        let (locked, is_read_only) = (Mutex::new(opening.locked), mode == OpenMode::ReadOnly);
        let members = Arc::new(Members { sets, locked, is_read_only });
        Ok(SetMedium { fs_id, device, members, opened: opening.opened, repaired })
    }

    /// Makes a medium of sets that were made.
    pub(super) fn of_new(path: &Path, fs_id: FsId, new: Vec<NewSet>) -> Result<SetMedium, FileError> {
        let mut opened = Vec::new();
        let mut sets = Vec::new();
        for (number, NewSet { set, members }) in (0..).zip(new) {
            let labels = members.iter().map(|(path, device)| {
                let label = MemberLabel::read(&*device.device())
                    .map_err(|(why, _)| FileError::Member { path: path.clone(), why })?;
                Ok(FoundMember { path: path.clone(), label })
            });
            let found = labels.collect::<Result<Vec<FoundMember>, FileError>>()?;
            sets.push(OpenSet::new(set, SetReport::of(number, &found)));
            opened.extend(members.into_iter().map(|(_, device)| device));
        }
        let device = concatenate(path, &sets)?;
        let members = Arc::new(Members { sets, locked: Mutex::default(), is_read_only: false });
        Ok(SetMedium { fs_id, device, members, opened, repaired: Vec::new() })
    }
}

/// A set that was just made, and its devices by position.
pub(super) struct NewSet {
    pub(super) set: Arc<Set>,
    pub(super) members: Vec<(PathBuf, Single)>,
}

impl SetMedium {
    pub(super) fn fs_id(&self) -> FsId {
        self.fs_id
    }

    pub(super) fn repaired(&self) -> &[MetadataCopy] {
        &self.repaired
    }

    pub(super) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    pub(super) fn prepare_writes(&self, count: usize) {
        self.opened.iter().for_each(|one| one.prepare_writes(count));
    }

    pub(super) fn into_device(self) -> Arc<dyn Device> {
        self.device
    }
}

/// The opening of a volume.
struct Opening<'a> {
    /// The member that was named.
    path: &'a Path,
    mode: OpenMode,
    degraded: Degraded,
    opened: Vec<Single>,
    locked: Vec<(PathBuf, Arc<dyn Device>)>,
    /// The first error of a member of the present set that cannot be opened.
    failure: Option<FileError>,
}

/// Why a member cannot be used.
enum Unusable {
    /// Its device fails: the set may do without it.
    Fails(FileError),
    /// Anything else: a set that did without it would make a good member stale, or use a stale one.
    Refused(FileError),
}

/// Whether this process may open a file or device, as far as it is not the device that fails.
fn is_readable(path: &Path) -> bool {
    match std::fs::File::open(path) {
        Ok(_) => true,
        Err(error) => {
            let limits =
                [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
            error.kind() != std::io::ErrorKind::PermissionDenied
                && error.raw_os_error().is_none_or(|errno| !limits.contains(&errno))
        }
    }
}

/// A member whose device is open and locked.
struct LockedMember {
    found: FoundMember,
    device: Arc<dyn Device>,
}

impl Opening<'_> {
    /// Opens and locks members. Those whose device fails are left out.
    fn lock(&mut self, members: Vec<FoundMember>) -> Result<Vec<LockedMember>, FileError> {
        let mut locked = Vec::new();
        self.failure = None;
        for found in members {
            match self.lock_one(&found) {
                Ok(member) => locked.push(member),
                Err(Unusable::Refused(error)) => return Err(error),
                Err(Unusable::Fails(error)) => {
                    tracing::error!(member = %found.path.display(), %error, "a member cannot be used");
                    self.failure.get_or_insert(error);
                }
            }
        }
        Ok(locked)
    }

    fn lock_one(&mut self, found: &FoundMember) -> Result<LockedMember, Unusable> {
        let path = &found.path;
        let single = Single::open(path, self.mode).map_err(|error| match error {
            FileError::Io { .. } if is_readable(path) => Unusable::Fails(error),
            error => Unusable::Refused(error),
        })?;
        let below = single.device();
        // It was read without a lock before.
        let label = MemberLabel::read(&*below).map_err(|(why, is_failing)| {
            let error = FileError::Member { path: path.clone(), why };
            if is_failing { Unusable::Fails(error) } else { Unusable::Refused(error) }
        })?;
        let is_same = (label.fs_id(), label.set(), label.position())
            == (found.label.fs_id(), found.label.set(), found.label.position());
        if !is_same {
            let why = "has become a member of something else meanwhile; try again".to_owned();
            return Err(Unusable::Refused(FileError::Member { path: path.clone(), why }));
        }
        let device = match self.mode {
            OpenMode::ReadWrite => below,
            OpenMode::ReadOnly => {
                let covered = Overlay::new(below);
                Arc::new(
                    covered.map_err(|error| Unusable::Fails(FileError::io(path, "list its zones", error)))?,
                )
            }
        };
        self.opened.push(single);
        Ok(LockedMember { found: FoundMember { path: path.clone(), label }, device })
    }

    /// Refuses a set that is not complete enough, before any set of the volume is changed.
    fn check(&mut self, number: u32, members: &[LockedMember]) -> Result<SetReport, FileError> {
        let found: Vec<FoundMember> = members.iter().map(|member| member.found.clone()).collect();
        if found.is_empty() {
            let error = self.failure.take();
            return Err(error.unwrap_or_else(|| missing_set(self.path, number)));
        }
        check_together(self.path, &found)?;
        let report = SetReport::of(number, &found);
        let Some(problem) = report.problem().filter(|_| !report.is_whole()) else { return Ok(report) };
        let is_permitted = match self.degraded {
            Degraded::Refused => false,
            Degraded::IfExcluded => !report.has_missing(),
            Degraded::Permitted => true,
        };
        if is_permitted && report.is_usable() {
            return Ok(report);
        }
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let why = format!("{problem}; {}", report.advice());
        Err(FileError::MembersMissing { path: self.path.to_owned(), why })
    }

    fn set(&mut self, report: SetReport, members: Vec<LockedMember>) -> Result<OpenSet, FileError> {
        if let Some(problem) = report.problem() {
            tracing::warn!("the volume is degraded: {problem}");
        }
        let paths: Vec<PathBuf> = members.iter().map(|member| member.found.path.clone()).collect();
        let devices: Vec<Arc<dyn Device>> = members.into_iter().map(|member| member.device).collect();
        self.locked.extend(paths.iter().cloned().zip(devices.iter().map(Arc::clone)));
        let opened = Set::open(devices, self.degraded != Degraded::Refused);
        let set = Arc::new(opened.map_err(|error| explained(self.path, &paths, error))?);
        Ok(OpenSet::new(set, report))
    }
}

/// The newest label. Labels of devices that have not joined decide nothing, unless there are no others.
fn newest_of(found: &[FoundMember]) -> &MemberLabel {
    let labels = found.iter().map(|found| &found.label);
    let newest = labels.max_by_key(|label| (!label.is_joining(), label.generation()));
    newest.expect("a set has a member that was found")
}

/// Refuses members that were used apart from each other: each has changes that the other lacks.
fn check_together(path: &Path, found: &[FoundMember]) -> Result<(), FileError> {
    let newest = newest_of(found);
    for FoundMember { path: one, label } in found {
        let is_same = (label.layout(), label.width()) == (newest.layout(), newest.width());
        let excludes = |at: &usize| {
            newest.id_at(*at) == label.id_at(*at) && !newest.is_failed(*at) && label.is_failed(*at)
        };
        match (0..newest.width()).find(|at| is_same && excludes(at)) {
            None if is_same => {}
            None => {
                let why = "is a member of another set with the same ID; move it away".to_owned();
                return Err(FileError::Member { path: one.clone(), why });
            }
            Some(other) => return Err(divided(path, label.position(), other)),
        }
    }
    Ok(())
}

fn divided(path: &Path, one: usize, other: usize) -> FileError {
    let why = format!(
        "the members at the positions {one} and {other} were used apart from each other, and each may have changes that \
         the other lacks; decide which to keep, move the other away, and mount the volume with -o degraded"
    );
    FileError::Member { path: path.to_owned(), why }
}

/// The error of a set, with the paths of the devices that it names by number.
fn explained(path: &Path, paths: &[PathBuf], error: SetError) -> FileError {
    let of = |index: usize, why: String| {
        let path = paths.get(index).map_or(path, PathBuf::as_path).to_owned();
        FileError::Member { path, why }
    };
    match error {
        SetError::Unlabelled(index) => of(index, "has no label of a member; leave it out".to_owned()),
        SetError::Unknown(index, why) => of(index, format!("its label cannot be used: {why}")),
        SetError::LabelLost(index) => of(
            index,
            "has lost its newest label; move it away, and mount the volume with -o degraded".to_owned(),
        ),
        SetError::Foreign(index) => of(index, "is a member of another set; leave it out".to_owned()),
        SetError::Divided(one, other) => divided(path, one, other),
        SetError::NotJoined => of(
            usize::MAX,
            "was to replace a member, and did not; name another member of the volume".to_owned(),
        ),
        error => of(usize::MAX, error.to_string()),
    }
}

fn missing_set(path: &Path, number: u32) -> FileError {
    let why = format!(
        "set {number} of the volume is missing; give the paths of its members (`polder mount -o device=PATH`)"
    );
    FileError::MembersMissing { path: path.to_owned(), why }
}

/// Refuses a volume of which a set before another one is missing.
fn check_numbers(path: &Path, sets: &BTreeMap<u32, Vec<FoundMember>>) -> Result<(), FileError> {
    let gap = (0..).zip(sets.keys()).find(|(expected, number)| expected != *number);
    gap.map_or(Ok(()), |(expected, _)| Err(missing_set(path, expected)))
}

/// Refuses a volume of which a set behind the others is missing, or that has one too many: the headers of its zones, which
/// are on every member, say how many zones it has.
fn check_zones(path: &Path, fs_id: FsId, sets: &[(SetReport, Vec<LockedMember>)]) -> Result<(), FileError> {
    let found: u64 = sets.iter().map(|(report, _)| u64::from(report.zones)).sum();
    for LockedMember { device, .. } in sets.iter().take(1).flat_map(|(_, members)| members) {
        let geometry = device.geometry();
        let first = LABEL_ZONES_OF_MEMBER;
        for zone in (first..(first + LOG_ZONES).min(geometry.sequential())).map(ZoneId) {
            let mut block = vec![0; geometry.block_size as usize];
            if device.read(zone, 0, &mut block).is_err() {
                continue;
            }
            let Ok((identity, header)) = decode_header(&block) else { continue };
            if identity.fs_id != fs_id {
                continue;
            }
            match u64::from(header.zones.get()).cmp(&found) {
                Ordering::Equal => {}
                Ordering::Greater => return Err(missing_set(path, sets.len() as u32)),
                Ordering::Less => {
                    let why =
                        "more sets were found than the volume has; move away what does not belong to it";
                    return Err(FileError::Member { path: path.to_owned(), why: why.to_owned() });
                }
            }
        }
    }
    Ok(())
}

fn concatenate(path: &Path, sets: &[OpenSet]) -> Result<Arc<dyn Device>, FileError> {
    let all: Vec<Arc<Set>> = sets.iter().map(|one| Arc::clone(&one.set)).collect();
    // This checks that no set of the volume is missing, also if there is only one.
    let device = Set::concatenate(all).map_err(|error| explained(path, &[], error))?;
    match sets {
        [one] => Ok(Arc::clone(&one.set) as _),
        _ => Ok(Arc::new(device)),
    }
}

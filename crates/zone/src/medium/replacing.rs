//! Replaces members of a volume that is open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::find::{Identity, member_label};
use super::members::{Members, OpenSet, Single};
use super::{Medium, MediumDraft, MemberCondition, MemberReport, VolumeOptions};
use crate::DeviceError;
use crate::file::FileError;
use crate::set::{MemberId, MemberLabel, RebuildState, RebuildStep, SetError};

/// The usual limit of open zones of a file.
const OPEN_ZONES: u32 = 14;

/// The member that is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OldMember {
    /// The one with this file or device.
    Path(PathBuf),
    /// The one at a position.
    Position {
        /// The number of its set. Can be left out if the volume has one set.
        set: Option<u32>,
        /// The position in the set.
        position: usize,
    },
    /// The only one that is not used.
    Missing,
}

/// A member that is being rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildReport {
    /// The number of the set.
    pub set: u32,
    /// The member, and how much of it was rebuilt.
    pub state: RebuildState,
    /// The bytes of a superzone.
    pub zone_bytes: u64,
}

impl Members {
    /// Replaces a member by a file or device. What is on it is erased, and it does not count before
    /// [`Members::rebuild_step`] has copied everything. `done` receives the prepared bytes and the total.
    ///
    /// # Errors
    /// If the new device is in use, too small, not empty without `force`, or a member already, or if the member cannot be
    /// replaced, nothing was written.
    pub fn replace(
        &self,
        old: &OldMember,
        new: &Path,
        force: bool,
        done: &mut dyn FnMut(u64, u64),
    ) -> Result<RebuildReport, FileError> {
        if self.is_read_only {
            return Err(unfit("the volume is open for reading only; mount it for writing"));
        }
        let (of, position) = self.find(old)?;
        self.refuse_member(new, force)?;
        if force {
            self.release_unused(new);
        }
        let draft = of.prepare(position, new, force)?;
        let is_new = draft.is_new();
        let device = Single::of(draft.make(done)?).device();
        let joined = of.set.replace(position, Arc::clone(&device)).map_err(|error| explained(new, &error));
        let label = joined.and_then(|()| {
            let label = MemberLabel::read(&*device);
            label.map_err(|(why, _)| FileError::Member { path: new.to_owned(), why })
        });
        let label = label.inspect_err(|_| {
            if is_new {
                // This call created it.
                let _ = std::fs::remove_file(new);
            }
        })?;
        of.note_member(position, label.id(), new);
        self.locked.lock().push((new.to_owned(), device));
        let zones = of.set.member_geometry().zones;
        let state = of.set.rebuild_state().unwrap_or(RebuildState { position, zones_done: 0, zones });
        Ok(of.rebuild_report(state))
    }

    /// Copies a piece to one of the members that are being rebuilt, with the number of the set.
    ///
    /// # Errors
    /// A set has lost all of its members.
    pub fn rebuild_step(&self) -> Result<(u32, RebuildStep), DeviceError> {
        let mut blocked = None;
        for of in &self.sets {
            let number = of.found.lock().number;
            match of.set.rebuild_step()? {
                RebuildStep::Idle => {}
                step @ RebuildStep::Blocked(_) => blocked = blocked.or(Some((number, step))),
                step => return Ok((number, step)),
            }
        }
        Ok(blocked.unwrap_or((0, RebuildStep::Idle)))
    }

    /// The member at a path, if it is being rebuilt.
    pub fn rebuild_of(&self, path: &Path) -> Option<RebuildReport> {
        let wanted = Identity::at(path)?;
        let is_it = |of: &&OpenSet| {
            let position = of.set.rebuild_state().map(|state| state.position);
            let found = position.and_then(|position| of.found.lock().members[position].path.clone());
            found.is_some_and(|found| Identity::at(&found) == Some(wanted))
        };
        let of = self.sets.iter().find(is_it)?;
        Some(of.rebuild_report(of.set.rebuild_state()?))
    }

    /// The members that are being rebuilt.
    pub fn rebuilds(&self) -> Vec<RebuildReport> {
        let rebuilds = self.sets.iter();
        rebuilds.filter_map(|of| Some(of.rebuild_report(of.set.rebuild_state()?))).collect()
    }

    /// The set and the position of a member that is to be replaced.
    fn find(&self, old: &OldMember) -> Result<(&OpenSet, usize), FileError> {
        let all = || {
            let with_members = |of: &'_ OpenSet| (0..of.found.lock().members.len()).collect::<Vec<_>>();
            self.sets.iter().flat_map(move |of| with_members(of).into_iter().map(move |at| (of, at)))
        };
        match old {
            OldMember::Position { set: None, .. } if self.sets.len() > 1 => Err(unfit(
                "the volume has several sets; write the number of the set in front of the position, like 1:0",
            )),
            OldMember::Position { set, position } => {
                let is_it = |(of, at): &(&OpenSet, usize)| {
                    set.is_none_or(|set| of.found.lock().number == set) && at == position
                };
                let why = "the volume has no such position; `polder device list` shows the positions";
                all().find(is_it).ok_or_else(|| unfit(why))
            }
            OldMember::Path(path) => {
                let wanted = Identity::at(path);
                let is_it = |(of, at): &(&OpenSet, usize)| {
                    let found = of.found.lock().members[*at].path.clone();
                    found.is_some_and(|found| {
                        found == *path || wanted.is_some() && Identity::at(&found) == wanted
                    })
                };
                let why = "is no member of the volume that was found; write its position (`polder device list` shows \
                           it), or `missing`";
                all().find(is_it).ok_or_else(|| FileError::Member { path: path.clone(), why: why.to_owned() })
            }
            OldMember::Missing => {
                let reports = self.report();
                let is_missing = |(of, at): &(&OpenSet, usize)| {
                    let number = of.found.lock().number;
                    let report = reports.iter().find(|report| report.number == number);
                    report.is_none_or(|report| !report.members[*at].condition.is_used())
                };
                let missing: Vec<(&OpenSet, usize)> = all().filter(is_missing).collect();
                match missing[..] {
                    [one] => Ok(one),
                    [] => Err(unfit("no member is missing; write the path or the position of the old one")),
                    _ => Err(unfit("several members are missing; write the position of one of them")),
                }
            }
        }
    }

    /// Refuses a device that is a member already. One that is not used must be overwritten by force.
    fn refuse_member(&self, new: &Path, force: bool) -> Result<(), FileError> {
        let wanted = Identity::at(new);
        let paths = self.paths();
        let Some(member) = paths.iter().find(|path| wanted.is_some() && Identity::at(path) == wanted) else {
            return self.refuse_held(new, force);
        };
        let why = match member == new {
            true => "is a member of this volume and is used; name another device".to_owned(),
            false => format!("is {}, which is used by this volume; name another device", member.display()),
        };
        Err(FileError::Member { path: new.to_owned(), why })
    }

    /// Refuses a device that was a member, unless it may be overwritten and is not open any more.
    fn refuse_held(&self, new: &Path, force: bool) -> Result<(), FileError> {
        if let Some(label) = member_label(new).filter(|_| !force) {
            let what = format!("a member of the Polder volume {}", label.fs_id());
            return Err(FileError::HoldsData { path: new.to_owned(), what });
        }
        let wanted = Identity::at(new);
        let is_it = |path: &PathBuf| wanted.is_some() && Identity::at(path) == wanted;
        if self.sets.iter().any(|of| of.held.lock().iter().any(is_it)) {
            let why = "was a member of the volume since it was opened, which still holds it; unmount the volume and \
                       mount it again before, or name another device";
            return Err(FileError::Member { path: new.to_owned(), why: why.to_owned() });
        }
        Ok(())
    }

    /// Ends the lock on a device that was found and is not used: a stale member.
    fn release_unused(&self, new: &Path) {
        if let Some(wanted) = Identity::at(new) {
            self.locked.lock().retain(|(path, _)| Identity::at(path) != Some(wanted));
        }
    }
}

impl OpenSet {
    /// Checks everything that can be checked, and locks the new device. Nothing is written.
    fn prepare(&self, position: usize, new: &Path, force: bool) -> Result<MediumDraft, FileError> {
        let needed = self.set.member_geometry();
        let max_open = needed.max_open.max(OPEN_ZONES);
        let options = VolumeOptions {
            size: self.size_of_new(new)?,
            block_size: Some(needed.block_size),
            zone_bytes: Some(u64::from(needed.zone_blocks) * u64::from(needed.block_size)),
            zone_capacity: None,
            max_open: Some(max_open),
            max_active: Some(needed.max_active.max(max_open)),
            preallocate: false,
            fs_id: self.set.fs_id(),
            force,
        };
        let draft = Medium::draft_member(new, &options, true)?;
        let checked = self.set.check_replacement(position, draft.geometry(), draft.last_zone());
        checked.map_err(|error| explained(new, &error)).map(|()| draft)
    }

    /// The size of a file that does not exist yet: that of a member that is a file.
    fn size_of_new(&self, new: &Path) -> Result<Option<u64>, FileError> {
        if std::fs::metadata(new).is_ok_and(|known| !known.is_file() || known.len() > 0) {
            return Ok(None);
        }
        let members = self.found.lock().members.clone();
        let sizes = members.iter().filter_map(|member| {
            let known = std::fs::metadata(member.path.as_ref()?).ok()?;
            known.is_file().then_some(known.len())
        });
        match sizes.max() {
            Some(size) => Ok(Some(size)),
            None => {
                let why = "is no file yet; create it with its size (`truncate -s SIZE`), or name a device";
                Err(FileError::Member { path: new.to_owned(), why: why.to_owned() })
            }
        }
    }

    fn note_member(&self, position: usize, id: MemberId, path: &Path) {
        self.held.lock().push(path.to_owned());
        let (condition, path) = (MemberCondition::Rebuilding, Some(path.to_owned()));
        self.found.lock().members[position] = MemberReport { id, path, condition };
    }

    fn rebuild_report(&self, state: RebuildState) -> RebuildReport {
        let geometry = self.set.member_geometry();
        let zone_bytes = u64::from(geometry.zone_blocks) * u64::from(geometry.block_size);
        RebuildReport { set: self.found.lock().number, state, zone_bytes }
    }
}

fn explained(new: &Path, error: &SetError) -> FileError {
    FileError::Member { path: new.to_owned(), why: error.to_string() }
}

fn unfit(why: &str) -> FileError {
    FileError::Unfit(why.to_owned())
}

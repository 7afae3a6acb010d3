//! How the members of a superzone agree about it after a crash, or after a command that failed on some of them.
//!
//! Each member zone is in a state that the contract of [`crate::Device`] allows, and the members chose independently.
//! Block 0 of all member zones is the same header, so it shows whether they are in one life. It is read only if the
//! members disagree, or if a zone is partly written.
//!
//! | members | mirror | stripe |
//! |---|---|---|
//! | one is read-only or offline | read-only; offline if all are | the same |
//! | some are empty | copied before (`repair.rs`), else read-only | the others are reset |
//! | different valid headers | the older life is reset before (`repair.rs`) | all are reset |
//! | different headers, one invalid | full | full |
//! | one is full | full | full |
//! | all have pointers | padded with blocks of the furthest | padded with zeros |
//!
//! In a mirror each member alone is a legal state, because it has executed every command. In a stripe a missing header
//! means that nothing of this life was flushed. Nothing is reset because of a header that cannot be verified: it may be
//! the only damage in a zone full of flushed data.
//!
//! Repeating it after a crash in the middle has the same result, or another legal one.

use crate::{Blocks, DeviceError, ZoneId, ZoneInfo, ZoneState};

use super::copy::copy_blocks;
use super::layout::{Layout, Shape};
use super::lives::{self, Failure, Headers, Lives, MemberZone};
use super::member::is_of_member;
use super::roster::Roster;

/// What may be done to make members agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Contents of which nothing was flushed may be reset: the set is being opened.
    Any,
    /// Nothing is reset.
    KeepContents,
}

/// One superzone whose members are to agree.
pub(super) struct Agreement<'s> {
    pub(super) roster: &'s Roster,
    pub(super) layout: Layout,
    pub(super) zone: ZoneId,
    pub(super) means: Means,
    /// The most blocks of each member zone that can be used. A superzone in use does not become larger when the member
    /// with the smallest zone is excluded.
    pub(super) member_blocks_max: Blocks,
}

impl<'s> Agreement<'s> {
    /// Makes the members agree, and returns the state of the superzone. Members that fail are excluded. If the zone
    /// cannot be repaired, it is read-only until the set is opened again.
    pub(super) fn reach(&self) -> Result<ZoneInfo, DeviceError> {
        loop {
            let (position, error) = match self.attempt() {
                Ok(info) => return Ok(info),
                Err((position, error)) => match self.roster.at(position) {
                    Some(member) => (position, self.roster.judge(member, error)),
                    None => (position, error),
                },
            };
            if is_of_member(&error) {
                self.roster.exclude(&[position], &error)?;
                continue;
            }
            tracing::warn!(zone = self.zone.0, member = position, %error, "the members of a zone do not agree");
            return Ok(self.give_up());
        }
    }

    /// Finishes the zones that are active, as far as that is possible.
    fn give_up(&self) -> ZoneInfo {
        let mut least = None;
        for member in self.roster.counting() {
            let Ok(info) = member.report_zone(self.zone) else { continue };
            least = Some(info.capacity.min(least.unwrap_or(info.capacity)));
            if info.state.is_active() {
                let _ = member.finish(self.zone);
            }
        }
        let shape = self.shape_with(least.unwrap_or(0));
        ZoneInfo { state: ZoneState::ReadOnly, capacity: shape.capacity(), pointer: 0 }
    }

    /// The state of the superzone if that follows from those of its member zones, and nothing needs to be read or
    /// written.
    pub(super) fn without_io(&self, members: &[ZoneInfo]) -> Option<ZoneInfo> {
        let state = members.first()?.state;
        let is_uniform = !state.is_active() && state != ZoneState::ReadOnly;
        let is_same = is_uniform && members.iter().all(|info| info.state == state);
        let info = || ZoneInfo { state, capacity: self.shape_of(members).capacity(), pointer: 0 };
        is_same.then(info)
    }

    fn shape_of(&self, members: &[ZoneInfo]) -> Shape {
        self.shape_with(members.iter().map(|info| info.capacity).min().unwrap_or(0))
    }

    /// The shape with this smallest capacity of a member zone: never larger than what the label says.
    fn shape_with(&self, least: Blocks) -> Shape {
        let most = self.roster.used().member_blocks.min(self.member_blocks_max);
        self.layout.shape(self.roster.width(), least.min(most))
    }

    fn attempt(&self) -> Result<ZoneInfo, Failure> {
        let parts = lives::parts(self.roster, self.zone)?;
        let infos: Vec<ZoneInfo> = parts.iter().map(|part| part.info).collect();
        if let Some(info) = self.without_io(&infos) {
            return Ok(info);
        }
        let shape = self.shape_of(&infos);
        if infos.iter().any(|info| matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline)) {
            finish_active(&parts, self.zone)?;
            return Ok(ZoneInfo { state: ZoneState::ReadOnly, capacity: shape.capacity(), pointer: 0 });
        }
        // Nothing of the set writes there: another program did.
        let is_beyond = |info: &ZoneInfo| info.state.has_pointer() && info.pointer > shape.member_blocks();
        if infos.iter().any(is_beyond) {
            return self.fill(&shape);
        }
        match self.layout {
            Layout::Mirror => self.repair_mirror(&parts, &shape),
            Layout::Stripe { .. } => self.repair_stripe(&parts, &shape),
        }
    }

    fn repair_mirror(&self, parts: &[MemberZone<'s>], shape: &Shape) -> Result<ZoneInfo, Failure> {
        if parts.iter().any(|part| part.info.state == ZoneState::Empty) {
            let zone = self.zone.0;
            tracing::warn!(zone, "a member lacks a zone: it is copied when the set is opened again");
            return Ok(self.give_up());
        }
        let headers = Headers::read(parts.iter(), self.zone)?;
        let shape = match headers.agree() {
            Lives::One => self.shape_in_header(shape, &headers),
            Lives::Unknown | Lives::Different => return self.fill(shape),
        };
        if parts.iter().any(|part| part.info.state == ZoneState::Full) {
            // Behind a zone that is full, what was not flushed may be missing.
            return self.fill(&shape);
        }
        let source =
            parts.iter().max_by_key(|part| part.info.pointer).expect("a set has a member that counts");
        let end = source.info.pointer;
        for part in parts.iter().filter(|part| part.info.pointer < end) {
            let at = if rt::is_planted("set-pad") { end } else { part.info.pointer };
            match copy_blocks(self.zone, source.member, part.member, at..end) {
                Err((_, DeviceError::TooManyOpen { .. })) => return self.fill(&shape),
                copied => copied?,
            }
        }
        if end == shape.capacity() { self.fill(&shape) } else { self.found(&shape, end) }
    }

    /// The shape with the capacity that the superzone had when its life began: the member with the smallest zone may be
    /// missing now.
    fn shape_in_header(&self, shape: &Shape, headers: &Headers<'_, '_>) -> Shape {
        let written = headers.parts().map(|part| part.info).filter(|info| info.state.has_pointer());
        let written = written.map(|info| info.pointer).max().unwrap_or(0);
        match headers.capacity() {
            Some(capacity) if capacity >= written => self.shape_with(shape.member_blocks().min(capacity)),
            _ => *shape,
        }
    }

    fn repair_stripe(&self, parts: &[MemberZone<'s>], shape: &Shape) -> Result<ZoneInfo, Failure> {
        let count = |state| parts.iter().filter(|part| part.info.state == state).count();
        let lives = match count(ZoneState::Empty) {
            0 => Headers::read(parts.iter(), self.zone)?.agree(),
            _ => Lives::Different,
        };
        match lives {
            Lives::Different if self.means == Means::Any => return self.empty(parts),
            Lives::One if count(ZoneState::Full) == 0 => {}
            _ => return self.fill(shape),
        }
        let pointers: Vec<Blocks> = parts.iter().map(|part| part.info.pointer).collect();
        let pointer = shape.pointer_covering(&pointers);
        for part in parts {
            let position = part.member.position;
            let missing = shape.member_pointer(position, pointer) - part.info.pointer;
            if missing > 0 && !rt::is_planted("set-pad") {
                let zeros = vec![0; missing as usize * part.member.geometry().block_size as usize];
                match part.member.append_at(self.zone, part.info.pointer, &zeros) {
                    Err(DeviceError::TooManyOpen { .. }) => return self.fill(shape),
                    padded => padded.map_err(|error| (position, error))?,
                }
            }
        }
        if pointer == shape.capacity() {
            return self.fill(shape);
        }
        self.found(shape, pointer)
    }

    /// The superzone is full: it takes no more writes, and blocks that a member lacks read as anything. Empty member
    /// zones stay so: they refuse reads, so that another copy is read.
    fn fill(&self, shape: &Shape) -> Result<ZoneInfo, Failure> {
        for part in
            lives::parts(self.roster, self.zone)?.iter().filter(|part| part.info.state != ZoneState::Empty)
        {
            part.member.finish(self.zone).map_err(|error| (part.member.position, error))?;
        }
        Ok(ZoneInfo { state: ZoneState::Full, capacity: shape.capacity(), pointer: 0 })
    }

    /// The superzone is empty.
    fn empty(&self, parts: &[MemberZone<'_>]) -> Result<ZoneInfo, Failure> {
        for part in parts.iter().filter(|part| part.info.state != ZoneState::Empty) {
            part.member.reset(self.zone).map_err(|error| (part.member.position, error))?;
        }
        let infos: Vec<ZoneInfo> =
            lives::parts(self.roster, self.zone)?.iter().map(|part| part.info).collect();
        let capacity = self.shape_of(&infos).capacity();
        Ok(ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 })
    }

    /// The state of a partly written superzone. It is open if a member has it open.
    fn found(&self, shape: &Shape, pointer: Blocks) -> Result<ZoneInfo, Failure> {
        let is_open =
            lives::parts(self.roster, self.zone)?.iter().any(|part| part.info.state == ZoneState::Open);
        let state = if is_open { ZoneState::Open } else { ZoneState::Closed };
        Ok(ZoneInfo { state, capacity: shape.capacity(), pointer })
    }
}

fn finish_active(parts: &[MemberZone<'_>], zone: ZoneId) -> Result<(), Failure> {
    for part in parts.iter().filter(|part| part.info.state.is_active()) {
        part.member.finish(zone).map_err(|error| (part.member.position, error))?;
    }
    Ok(())
}

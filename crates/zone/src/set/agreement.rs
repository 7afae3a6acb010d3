//! How the members of a superzone agree about it after a crash, or after a command that failed on some of them.
//!
//! Each member zone is in a state that the contract of [`crate::Device`] allows, and the members chose independently.
//! Block 0 of all member zones is the same header, so it shows whether they are in one life. It is read only if the
//! members disagree, or if a zone is partly written.
//!
//! | members | mirror | stripe |
//! |---|---|---|
//! | one is read-only or offline | read-only; offline if all are | the same |
//! | some are empty | the others are copied onto them | the others are reset |
//! | different valid headers | those with the older life are reset | all are reset |
//! | different headers, one invalid | full | full |
//! | one is full | full | full |
//! | all have pointers | padded with blocks of the furthest | padded with zeros |
//!
//! In a mirror each member alone is a legal state, because it has executed every command. In a stripe a missing header
//! means that nothing of this life was flushed. Nothing is reset because of a header that cannot be verified: it may be
//! the only damage in a zone full of flushed data.
//!
//! Repeating it after a crash in the middle has the same result, or another legal one. One case is not safe: a member
//! that has lost a zone is repaired, and the power fails (`docs/internals/sets.md`, section 10).

use crate::format::{ZoneIdentity, decode_header};
use crate::{Blocks, DeviceError, ZoneId, ZoneInfo, ZoneState};

use super::layout::{Layout, Shape};
use super::member::{Member, is_of_member};
use super::roster::Roster;

/// Blocks that are copied at once.
const COPY_BLOCKS: Blocks = 64;

/// What may be done to make members agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Contents of which nothing was flushed may be reset: the set is being opened, or the zone was just begun.
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
    /// The set has no slot for one more active zone.
    pub(super) is_crowded: bool,
}

/// A member zone.
struct Part<'s> {
    member: &'s Member,
    info: ZoneInfo,
}

/// The error of a member.
type Failure = (usize, DeviceError);

impl<'s> Agreement<'s> {
    /// Makes the members agree, and returns the state of the superzone. Members that fail are excluded. If the zone
    /// cannot be repaired, it is read-only until the set is opened again.
    pub(super) fn reach(&self) -> Result<ZoneInfo, DeviceError> {
        loop {
            let (position, error) = match self.attempt() {
                Ok(info) => return Ok(info),
                Err((position, error)) => match self.roster.at(position) {
                    Some(member) => (position, member.judge(error)),
                    None => (position, error),
                },
            };
            if is_of_member(&error) {
                self.roster.exclude(&[position], &error)?;
                continue;
            }
            tracing::warn!(zone = self.zone.0, member = position, %error, "the members of a zone do not agree");
            return self.give_up();
        }
    }

    /// Finishes the zones that are active, as far as that is possible.
    fn give_up(&self) -> Result<ZoneInfo, DeviceError> {
        let mut least = None;
        for member in self.roster.counting() {
            let Ok(info) = member.report_zone(self.zone) else { continue };
            least = Some(info.capacity.min(least.unwrap_or(info.capacity)));
            if info.state.is_active() {
                let _ = member.finish(self.zone);
            }
        }
        let shape = self.shape_with(least.unwrap_or(0));
        Ok(ZoneInfo { state: ZoneState::ReadOnly, capacity: shape.capacity(), pointer: 0 })
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
        self.layout.shape(self.roster.width(), least.min(self.roster.used().member_blocks))
    }

    fn attempt(&self) -> Result<ZoneInfo, Failure> {
        let parts = self.parts()?;
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

    fn parts(&self) -> Result<Vec<Part<'s>>, Failure> {
        let part = |member: &'s Member| {
            let info = member.report_zone(self.zone).map_err(|error| (member.position, error))?;
            Ok(Part { member, info })
        };
        self.roster.counting().map(part).collect()
    }

    fn repair_mirror(&self, parts: &[Part<'s>], shape: &Shape) -> Result<ZoneInfo, Failure> {
        let written = parts.iter().filter(|part| part.info.state != ZoneState::Empty);
        let headers = Headers::read(written, self.zone)?;
        match headers.agree() {
            Lives::One => {}
            Lives::Unknown => return self.fill(shape),
            Lives::Different if self.means == Means::KeepContents => return self.fill(shape),
            Lives::Different => {
                let newest = headers.newest(self.roster);
                for part in headers.of_other_lives(newest) {
                    part.member.reset(self.zone).map_err(|error| (part.member.position, error))?;
                }
                return self.attempt();
            }
        }
        let furthest = |part: &&Part<'_>| (part.info.state == ZoneState::Full, part.info.pointer);
        let source = parts.iter().max_by_key(furthest).expect("a set has a member that counts");
        let end = match source.info.state {
            ZoneState::Full => shape.capacity(),
            _ => source.info.pointer,
        };
        let mut was_empty = false;
        for part in parts {
            let is_empty = part.info.state == ZoneState::Empty;
            let is_behind = part.info.state.has_pointer() && part.info.pointer < end;
            // Behind a zone that is full, what was not flushed may be missing.
            if is_empty || is_behind && source.info.state != ZoneState::Full {
                was_empty |= is_empty;
                match self.copy(source, part, end) {
                    Err((_, DeviceError::TooManyOpen { .. })) => return self.fill(shape),
                    copied => copied?,
                }
            }
        }
        if source.info.state == ZoneState::Full || end == shape.capacity() || was_empty && self.is_crowded {
            return self.fill(shape);
        }
        self.found(shape, end)
    }

    fn repair_stripe(&self, parts: &[Part<'s>], shape: &Shape) -> Result<ZoneInfo, Failure> {
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

    /// Copies the blocks that `to` lacks, up to `end`. Blocks that cannot be read become zeros.
    fn copy(&self, from: &Part<'_>, to: &Part<'_>, end: Blocks) -> Result<(), Failure> {
        let block_size = to.member.geometry().block_size as usize;
        let mut at = if to.info.state == ZoneState::Empty { 0 } else { to.info.pointer };
        if rt::is_planted("set-pad") {
            at = end;
        }
        while at < end {
            let blocks = COPY_BLOCKS.min(end - at);
            let mut bytes = vec![0; blocks as usize * block_size];
            for (block, into) in (at..).zip(bytes.chunks_mut(block_size)) {
                match from.member.read(self.zone, block, into) {
                    Err(error) if is_of_member(&error) => return Err((from.member.position, error)),
                    Err(_) => into.fill(0),
                    Ok(()) => {}
                }
            }
            let appended = to.member.append_at(self.zone, at, &bytes);
            appended.map_err(|error| (to.member.position, error))?;
            at += blocks;
        }
        Ok(())
    }

    /// The superzone is full: it takes no more writes, and blocks that a member lacks read as anything. Empty member
    /// zones stay so: they refuse reads, so that another copy is read.
    fn fill(&self, shape: &Shape) -> Result<ZoneInfo, Failure> {
        for part in self.parts()?.iter().filter(|part| part.info.state != ZoneState::Empty) {
            part.member.finish(self.zone).map_err(|error| (part.member.position, error))?;
        }
        Ok(ZoneInfo { state: ZoneState::Full, capacity: shape.capacity(), pointer: 0 })
    }

    /// The superzone is empty.
    fn empty(&self, parts: &[Part<'_>]) -> Result<ZoneInfo, Failure> {
        for part in parts.iter().filter(|part| part.info.state != ZoneState::Empty) {
            part.member.reset(self.zone).map_err(|error| (part.member.position, error))?;
        }
        let infos: Vec<ZoneInfo> = self.parts()?.iter().map(|part| part.info).collect();
        let capacity = self.shape_of(&infos).capacity();
        Ok(ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 })
    }

    /// The state of a partly written superzone. It is open if a member has it open.
    fn found(&self, shape: &Shape, pointer: Blocks) -> Result<ZoneInfo, Failure> {
        let is_open = self.parts()?.iter().any(|part| part.info.state == ZoneState::Open);
        let state = if is_open { ZoneState::Open } else { ZoneState::Closed };
        Ok(ZoneInfo { state, capacity: shape.capacity(), pointer })
    }
}

fn finish_active(parts: &[Part<'_>], zone: ZoneId) -> Result<(), Failure> {
    for part in parts.iter().filter(|part| part.info.state.is_active()) {
        part.member.finish(zone).map_err(|error| (part.member.position, error))?;
    }
    Ok(())
}

/// What the headers of member zones say about their lives.
enum Lives {
    /// All are in one life.
    One,
    /// They are in different lives: each header is valid.
    Different,
    /// At least one header is lost or damaged.
    Unknown,
}

/// The headers of member zones that are not empty.
struct Headers<'p, 's>(Vec<(&'p Part<'s>, Vec<u8>)>);

impl<'p, 's> Headers<'p, 's> {
    fn read(parts: impl Iterator<Item = &'p Part<'s>>, zone: ZoneId) -> Result<Self, Failure>
    where
        's: 'p,
    {
        let mut headers = Vec::new();
        for part in parts {
            let mut block = vec![0; part.member.geometry().block_size as usize];
            match part.member.read(zone, 0, &mut block) {
                Err(error) if is_of_member(&error) => return Err((part.member.position, error)),
                Err(_) => block.clear(),
                Ok(()) => {}
            }
            headers.push((part, block));
        }
        Ok(Headers(headers))
    }

    fn agree(&self) -> Lives {
        let first = &self.0[0].1;
        if !first.is_empty() && self.0.iter().all(|(_, block)| block == first) {
            return Lives::One;
        }
        match self.0.iter().all(|(_, block)| identity(block).is_some()) {
            true => Lives::Different,
            false => Lives::Unknown,
        }
    }

    /// The header of the latest life.
    fn newest(&self, roster: &Roster) -> &[u8] {
        let fs_id = roster.fs_id();
        let age = |block: &[u8]| identity(block).map(|found| (found.fs_id == fs_id, found.life));
        let newest = self.0.iter().max_by_key(|(_, block)| age(block));
        &newest.expect("two headers differ").1
    }

    fn of_other_lives<'h>(&'h self, newest: &'h [u8]) -> impl Iterator<Item = &'p Part<'s>> + 'h {
        self.0.iter().filter(move |(_, block)| block != newest).map(|(part, _)| *part)
    }
}

fn identity(block: &[u8]) -> Option<ZoneIdentity> {
    decode_header(block).ok().map(|(identity, _)| identity)
}

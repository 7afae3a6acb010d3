//! The zones of the members that belong to one superzone, and the lives in which their headers show them.

use crate::format::{ZoneIdentity, decode_header};
use crate::{Blocks, DeviceError, ZoneId, ZoneInfo};

use super::member::{Member, is_of_member};
use super::roster::Roster;

/// A member zone.
pub(super) struct MemberZone<'s> {
    pub(super) member: &'s Member,
    pub(super) info: ZoneInfo,
}

/// The error of a member.
pub(super) type Failure = (usize, DeviceError);

/// The zones of all members that count.
pub(super) fn parts(roster: &Roster, zone: ZoneId) -> Result<Vec<MemberZone<'_>>, Failure> {
    let part = |member| match Member::report_zone(member, zone) {
        Ok(info) => Ok(MemberZone { member, info }),
        Err(error) => Err((member.position, error)),
    };
    roster.counting().map(part).collect()
}

/// What the headers of member zones say about their lives.
pub(super) enum Lives {
    /// All are in one life.
    One,
    /// They are in different lives: each header is valid.
    Different,
    /// At least one header is lost or damaged.
    Unknown,
}

/// The headers of member zones that are not empty.
pub(super) struct Headers<'p, 's>(Vec<(&'p MemberZone<'s>, Vec<u8>)>);

impl<'p, 's> Headers<'p, 's> {
    pub(super) fn read(parts: impl Iterator<Item = &'p MemberZone<'s>>, zone: ZoneId) -> Result<Self, Failure>
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

    pub(super) fn agree(&self) -> Lives {
        let first = &self.0[0].1;
        if !first.is_empty() && self.0.iter().all(|(_, block)| block == first) {
            return Lives::One;
        }
        match self.0.iter().all(|(_, block)| identity(block).is_some()) {
            true => Lives::Different,
            false => Lives::Unknown,
        }
    }

    /// The member zones.
    pub(super) fn parts(&self) -> impl Iterator<Item = &'p MemberZone<'s>> + '_ {
        self.0.iter().map(|(part, _)| *part)
    }

    /// The capacity of the superzone that the first header has.
    pub(super) fn capacity(&self) -> Option<Blocks> {
        let (_, header) = decode_header(&self.0.first()?.1).ok()?;
        Some(header.capacity.get()).filter(|capacity| *capacity > 0)
    }

    /// Whether a member has a header that is valid.
    pub(super) fn is_valid_on(&self, position: usize) -> bool {
        let of_member = self.0.iter().find(|(part, _)| part.member.position == position);
        of_member.is_some_and(|(_, block)| identity(block).is_some())
    }

    /// The header of the latest life.
    pub(super) fn newest(&self, roster: &Roster) -> &[u8] {
        let fs_id = roster.fs_id();
        let age = |block: &[u8]| identity(block).map(|found| (found.fs_id == fs_id, found.life));
        let newest = self.0.iter().max_by_key(|(_, block)| age(block));
        &newest.expect("two headers differ").1
    }

    pub(super) fn of_other_lives<'h>(
        &'h self,
        newest: &'h [u8],
    ) -> impl Iterator<Item = &'p MemberZone<'s>> + 'h {
        self.0.iter().filter(move |(_, block)| block != newest).map(|(part, _)| *part)
    }
}

fn identity(block: &[u8]) -> Option<ZoneIdentity> {
    decode_header(block).ok().map(|(identity, _)| identity)
}

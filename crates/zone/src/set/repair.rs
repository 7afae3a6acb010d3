//! Zones that a member of a mirror lacks.
//!
//! After a crash a member zone may be empty while others are not. Usually nothing in it was flushed. But a member may
//! also have lost a zone without noticing, and then the others have flushed data. Both look the same, so the zone is
//! copied from another member, before recovery reads anything.
//!
//! A copy that is not complete must not count: it has the right header, and after a loss of power it may look like a zone
//! that ends earlier, or like a full one. So the labels say which zone of which member is being copied, durably and
//! before the first block is. While they do, that zone does not count: it is reset when the set is opened again.
//!
//! ```text
//!   empty -> label "zone z of member m does not count" -> blocks, finish, flush -> label with the next zone, or without one
//! ```
//!
//! The superzone is full afterwards, as every active zone may be after a crash. So copies take one slot of a member, one
//! after the other.

use crate::{DeviceError, ZoneId, ZoneInfo, ZoneState};

use super::copy::copy_blocks;
use super::format::Repair;
use super::lives::{Failure, Headers, Lives, MemberZone, parts};
use super::member::is_of_member;
use super::roster::Roster;

/// Copies the zones that members of a mirror lack, and returns those that could not be copied. Members that fail are
/// excluded.
pub(super) fn copy_missing_zones(roster: &Roster, zones: u32) -> Result<Vec<ZoneId>, DeviceError> {
    begin_again(roster)?;
    let reports = roster.ask(|member| member.report(zones))?;
    let is_possible = |zone: &ZoneId| {
        let states = reports.iter().map(|report| report[zone.0 as usize].state);
        may_differ(states)
    };
    let mut not_copied = Vec::new();
    for zone in (0..zones).map(ZoneId).filter(is_possible) {
        if let Some(error) = (OneZone { roster, zone }).settle()? {
            tracing::error!(zone = zone.0, %error, "a member lacks a zone that cannot be copied");
            not_copied.push(zone);
        }
    }
    Ok(not_copied)
}

/// Whether members may be in different lives, or lack the zone.
fn may_differ(mut states: impl Iterator<Item = ZoneState>) -> bool {
    let first = states.next().expect("a set has a member that counts");
    first.is_active()
        || states.any(|state| state.is_active() || (state == ZoneState::Empty) != (first == ZoneState::Empty))
}

/// Empties the zone that was being copied when the set was last used.
fn begin_again(roster: &Roster) -> Result<(), DeviceError> {
    let Some(Repair { member, zone }) = roster.repair() else { return Ok(()) };
    let Some(member) = roster.at(member).filter(|member| member.counts()) else { return Ok(()) };
    // Without another member, an incomplete copy is better than nothing. It takes no more writes.
    let is_last = roster.counting().count() == 1;
    let emptied = member.report_zone(zone).and_then(|info| match info.state {
        ZoneState::Empty => Ok(()),
        state if is_last && state.is_active() => member.finish(zone),
        _ if is_last => Ok(()),
        _ => member.reset(zone),
    });
    emptied.or_else(|error| roster.exclude(&[member.position], &useless(&error)))
}

/// The error that excludes a member with an incomplete copy.
fn useless(error: &DeviceError) -> DeviceError {
    DeviceError::Unusable(format!("a zone of a member cannot be copied: {error}"))
}

/// One superzone of a mirror that is being opened.
struct OneZone<'s> {
    roster: &'s Roster,
    zone: ZoneId,
}

impl OneZone<'_> {
    /// Returns the error of a zone for which it was not possible.
    fn settle(&self) -> Result<Option<DeviceError>, DeviceError> {
        loop {
            let (position, error) = match self.attempt() {
                Ok(()) => return Ok(None),
                Err((position, error)) => match self.roster.at(position) {
                    Some(member) => (position, self.roster.judge(member, error)),
                    None => (position, error),
                },
            };
            if !is_of_member(&error) {
                return Ok(Some(error));
            }
            self.roster.exclude(&[position], &error)?;
        }
    }

    fn attempt(&self) -> Result<(), Failure> {
        let mut found = parts(self.roster, self.zone)?;
        if self.reset_older_lives(&found)? {
            found = parts(self.roster, self.zone)?;
        }
        found.retain(|part| part.info.state != ZoneState::Offline);
        let (empty, written): (Vec<MemberZone<'_>>, Vec<MemberZone<'_>>) =
            found.into_iter().partition(|part| part.info.state == ZoneState::Empty);
        if empty.is_empty() || written.is_empty() {
            return Ok(());
        }
        let headers = Headers::read(written.iter(), self.zone)?;
        let worth = |part: &&MemberZone<'_>| {
            let is_valid = headers.is_valid_on(part.member.position);
            (is_valid, !part.info.state.has_pointer(), part.info.pointer)
        };
        let source = written.iter().max_by_key(worth).expect("one of them is written");
        empty.iter().try_for_each(|part| self.copy(source, part))
    }

    /// Resets member zones whose header is that of an older life: nothing of the newer one was flushed there. If a header
    /// is not valid, or if a zone takes no more writes, nothing is reset.
    fn reset_older_lives(&self, found: &[MemberZone<'_>]) -> Result<bool, Failure> {
        let has_ended =
            |part: &MemberZone<'_>| matches!(part.info.state, ZoneState::ReadOnly | ZoneState::Offline);
        if found.iter().any(has_ended) {
            return Ok(false);
        }
        let written: Vec<&MemberZone<'_>> =
            found.iter().filter(|part| part.info.state != ZoneState::Empty).collect();
        if written.len() < 2 {
            return Ok(false);
        }
        let headers = Headers::read(written.into_iter(), self.zone)?;
        if !matches!(headers.agree(), Lives::Different) {
            return Ok(false);
        }
        let newest = headers.newest(self.roster);
        for part in headers.of_other_lives(newest) {
            part.member.reset(self.zone).map_err(|error| (part.member.position, error))?;
        }
        Ok(true)
    }

    /// Copies the superzone to a member that has nothing of it. If that fails, the member has nothing of it again.
    fn copy(&self, source: &MemberZone<'_>, to: &MemberZone<'_>) -> Result<(), Failure> {
        let position = to.member.position;
        let repair = Repair { member: position, zone: self.zone };
        // An error of the labels is one of the whole set.
        self.roster.set_repair(Some(repair)).map_err(|error| (position, error))?;
        if !to.member.counts() {
            return Ok(());
        }
        match self.copy_all(source, to) {
            Err((failed, error)) if failed == position && !is_of_member(&error) => {
                let emptied = to.member.reset(self.zone).and_then(|()| to.member.device().flush());
                emptied.map_err(|error| (position, useless(&error)))?;
                Err((position, error))
            }
            copied => copied,
        }
    }

    fn copy_all(&self, source: &MemberZone<'_>, to: &MemberZone<'_>) -> Result<(), Failure> {
        let of_target = |error| (to.member.position, error);
        to.member.free_slot().map_err(of_target)?;
        let used = self.roster.used().member_blocks.min(to.info.capacity);
        let ZoneInfo { state, pointer, capacity } = source.info;
        let end = if state.has_pointer() { pointer } else { capacity };
        copy_blocks(self.zone, source.member, to.member, 0..end.min(used))?;
        to.member.finish(self.zone).map_err(of_target)?;
        // Durable before the label says that another zone is copied.
        to.member.device().flush().map_err(|error| (to.member.position, useless(&error)))
    }
}

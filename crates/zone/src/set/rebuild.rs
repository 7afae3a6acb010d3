//! Copies the superzones of a mirror to a member that is being rebuilt.
//!
//! The member has a superzone when everything in it was copied, or when the superzone is empty on both. From then on it
//! gets every change of the superzone, and every flush. What it has is known in memory only. When the set is opened again,
//! a full zone of the member is compared with the superzone and copied only if they differ: after a loss of power, a zone
//! with the right header and pointer may still lack blocks. Active zones are copied again.
//!
//! ```text
//!             full on both, when the set was opened              differs
//!   lacks it -----------------------------------------> compared ---------+
//!     |   ^                                                |  equal       |
//!     |   +------- a change of it failed there ----+       v              |
//!     +-- reset, then copied piece by piece -----> has it: gets changes   |
//!                        ^                                                |
//!                        +------------------------------------------------+
//! ```
//!
//! The lock of the superzone is held while one piece is copied. So the last piece ends at the pointer, and no append
//! passes between it and the next change.

use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Mutex, MutexGuard};

use crate::{Blocks, DeviceError, ZoneId, ZoneInfo, ZoneState};

use super::lives::Failure;
use super::member::{Member, is_of_member};
use super::roster::Roster;

/// The most bytes that are copied while the lock of a superzone is held.
const PIECE_BYTES: usize = 1 << 20;

/// Small zones are copied in this many pieces at least.
const PIECES_MIN: Blocks = 4;

/// How many superzones without contents one step passes.
pub(super) const EMPTY_ZONES_PER_STEP: usize = 256;

/// How often in succession copying may fail before the member is given up.
const FAILURES_MAX: u32 = 8;

/// What the member that is being rebuilt has.
pub(super) struct Copies {
    /// For each superzone, whether the member has it. Read and changed under the lock of the superzone.
    has: Vec<AtomicBool>,
    /// Held during a step.
    cursor: Mutex<Cursor>,
}

/// Where copying continues.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    next: u32,
    current: Option<CurrentZone>,
    failures: u32,
    /// Superzones that could not be read since the cursor was at the first one.
    unreadable: u32,
}

/// The superzone that is being copied or compared.
#[derive(Clone, Copy, Debug)]
struct CurrentZone {
    zone: ZoneId,
    /// The next block.
    at: Blocks,
    /// Whether the member has the blocks already, as far as they were compared.
    is_compared: bool,
}

/// What the members that count have of some blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// One of them has all.
    Written,
    /// None of them has written all of them.
    Unwritten,
    /// One of them cannot read them, or all lack the zone.
    Unreadable,
}

/// What was done for a superzone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// The member has it, and nothing was to be copied.
    Empty,
    /// The member has it.
    Whole,
    /// A piece of it.
    Piece,
    /// Nothing: a block of it cannot be read from any member that counts. It is tried again later.
    Unreadable,
}

impl Copies {
    pub(super) fn new(zones: usize) -> Copies {
        Copies { has: (0..zones).map(|_| AtomicBool::new(false)).collect(), cursor: Mutex::default() }
    }

    /// Whether the member has the superzone. The caller holds its lock.
    pub(super) fn has(&self, zone: ZoneId) -> bool {
        self.has.get(zone.0 as usize).is_some_and(|has| has.load(Ordering::Acquire))
    }

    /// The caller holds the lock of the superzone.
    pub(super) fn set(&self, zone: ZoneId, has: bool) {
        self.has[zone.0 as usize].store(has, Ordering::Release);
    }

    /// The number of superzones that the member has.
    pub(super) fn count(&self) -> u32 {
        self.has.iter().filter(|has| has.load(Ordering::Acquire)).count() as u32
    }

    pub(super) fn is_complete(&self) -> bool {
        self.has.iter().all(|has| has.load(Ordering::Acquire))
    }

    /// Begins for a member that has nothing.
    pub(super) fn begin(&self, cursor: &mut Cursor) {
        self.has.iter().for_each(|has| has.store(false, Ordering::Release));
        *cursor = Cursor::default();
    }

    pub(super) fn cursor(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock()
    }

    /// The next superzone that the member lacks; `None` behind the last one.
    pub(super) fn next(&self, cursor: &mut Cursor) -> Option<ZoneId> {
        let zones = (cursor.next..self.has.len() as u32).map(ZoneId);
        let next = zones.into_iter().find(|zone| !self.has(*zone));
        cursor.next = next.map_or(self.has.len() as u32, |zone| zone.0);
        next
    }
}

impl Cursor {
    /// Begins with the first superzone again. Returns how many could not be read.
    pub(super) fn begin_again(&mut self) -> u32 {
        self.next = 0;
        std::mem::take(&mut self.unreadable)
    }

    /// Notes that copying failed. Returns whether that was once too often.
    pub(super) fn fail(&mut self) -> bool {
        self.current = None;
        self.failures += 1;
        self.failures >= FAILURES_MAX
    }

    fn note(&mut self, copied: Copied) {
        match copied {
            Copied::Empty | Copied::Whole => (self.next, self.failures) = (self.next + 1, 0),
            Copied::Piece => {}
            Copied::Unreadable => {
                (self.next, self.unreadable) = (self.next + 1, self.unreadable + 1);
                self.current = None;
            }
        }
    }
}

/// Empties the active zones of a member that was being rebuilt when the set was last used: they have slots that the set
/// needs, and are copied again.
pub(super) fn free_slots(member: &Member, zones: u32) -> Result<(), DeviceError> {
    for (zone, info) in (0..).map(ZoneId).zip(member.report(zones)?) {
        if info.state.is_active() {
            member.reset(zone)?;
        }
    }
    Ok(())
}

/// One superzone that the member lacks. The caller holds its lock.
pub(super) struct CopyZone<'s> {
    pub(super) roster: &'s Roster,
    pub(super) member: &'s Member,
    pub(super) zone: ZoneId,
    /// The superzone as the set knows it.
    pub(super) info: ZoneInfo,
}

impl CopyZone<'_> {
    /// Copies the next piece.
    pub(super) fn step(&self, copies: &Copies, cursor: &mut Cursor) -> Result<Copied, Failure> {
        let copied = self.copy(cursor)?;
        if matches!(copied, Copied::Empty | Copied::Whole) {
            copies.set(self.zone, true);
        }
        cursor.note(copied);
        Ok(copied)
    }

    /// The blocks of the superzone.
    fn end(&self) -> Blocks {
        if self.info.state.has_pointer() { self.info.pointer } else { self.info.capacity }
    }

    fn copy(&self, cursor: &mut Cursor) -> Result<Copied, Failure> {
        let there = self.of_member(self.member.report_zone(self.zone))?;
        match there.state {
            ZoneState::ReadOnly => return Err((self.member.position, DeviceError::ReadOnly(self.zone))),
            ZoneState::Offline => return Err((self.member.position, DeviceError::Offline(self.zone))),
            _ => {}
        }
        if self.info.state == ZoneState::Offline {
            return Ok(Copied::Unreadable);
        }
        if self.info.state == ZoneState::Empty || self.end() == 0 {
            self.empty(&there)?;
            cursor.current = None;
            return Ok(Copied::Empty);
        }
        let found = cursor.current.take().filter(|current| current.zone == self.zone);
        let current = match found {
            Some(current) if current.at < self.end() && current.is_at(&there) => current,
            _ => self.begin(&there)?,
        };
        match current.is_compared {
            true => self.compare_piece(current, cursor),
            false => self.copy_piece(current, cursor),
        }
    }

    /// A full zone may have all blocks already. Any other one begins empty.
    fn begin(&self, there: &ZoneInfo) -> Result<CurrentZone, Failure> {
        let is_compared = there.state == ZoneState::Full && !self.info.state.has_pointer();
        if !is_compared {
            self.empty(there)?;
        }
        Ok(CurrentZone { zone: self.zone, at: 0, is_compared })
    }

    fn empty(&self, there: &ZoneInfo) -> Result<(), Failure> {
        match there.state {
            ZoneState::Empty => Ok(()),
            _ => self.of_member(self.member.reset(self.zone)),
        }
    }

    fn compare_piece(&self, current: CurrentZone, cursor: &mut Cursor) -> Result<Copied, Failure> {
        let to = self.piece_end(current.at);
        let Some(bytes) = self.read(current.at, to)? else { return Ok(Copied::Unreadable) };
        let mut own = vec![0; bytes.len()];
        let is_equal = match self.member.read(self.zone, current.at, &mut own) {
            Err(error) if is_of_member(&error) => return Err((self.member.position, error)),
            read => read.is_ok() && own == bytes || rt::is_planted("set-rebuild-compare"),
        };
        if !is_equal {
            self.of_member(self.member.reset(self.zone))?;
            cursor.current = Some(CurrentZone { at: 0, is_compared: false, ..current });
            return Ok(Copied::Piece);
        }
        Ok(self.advance(CurrentZone { at: to, ..current }, cursor))
    }

    fn copy_piece(&self, current: CurrentZone, cursor: &mut Cursor) -> Result<Copied, Failure> {
        let to = self.piece_end(current.at);
        let Some(bytes) = self.read(current.at, to)? else {
            // The next superzone needs the slot.
            self.of_member(self.member.reset(self.zone))?;
            return Ok(Copied::Unreadable);
        };
        if !self.of_member(self.member.append_copy(self.zone, current.at, &bytes))? {
            // A label has taken the slot.
            return Ok(Copied::Piece);
        }
        let copied = self.advance(CurrentZone { at: to, ..current }, cursor);
        if copied == Copied::Whole {
            if !self.info.state.has_pointer() || to == self.info.capacity {
                self.of_member(self.member.finish(self.zone))?;
            }
            self.member.end_copy();
        }
        Ok(copied)
    }

    fn advance(&self, current: CurrentZone, cursor: &mut Cursor) -> Copied {
        if current.at == self.end() {
            return Copied::Whole;
        }
        cursor.current = Some(current);
        Copied::Piece
    }

    fn piece_end(&self, at: Blocks) -> Blocks {
        let bytes = PIECE_BYTES / self.member.geometry().block_size as usize;
        let most = (bytes as Blocks).min(self.info.capacity / PIECES_MIN).max(1);
        self.end().min(at.saturating_add(most))
    }

    /// Reads blocks from members that count. `None` if none of them can read a block. Zeros would be taken for a block
    /// that was lost in a crash, when the member counts and the others are gone.
    fn read(&self, at: Blocks, to: Blocks) -> Result<Option<Vec<u8>>, Failure> {
        let block_size = self.member.geometry().block_size as usize;
        let mut bytes = vec![0; (to - at) as usize * block_size];
        if self.read_any(at, &mut bytes)? == Source::Written {
            return Ok(Some(bytes));
        }
        // Some of the blocks may be there.
        for (block, into) in (at..to).zip(bytes.chunks_mut(block_size)) {
            match self.read_any(block, into)? {
                Source::Written => {}
                Source::Unwritten => into.fill(0),
                Source::Unreadable => return Ok(None),
            }
        }
        Ok(Some(bytes))
    }

    /// Reads blocks from one member that counts. In a zone without a pointer, no member may have a block. A member that
    /// lacks the zone as a whole says nothing about its blocks.
    fn read_any(&self, at: Blocks, into: &mut [u8]) -> Result<Source, Failure> {
        let mut source = None;
        for member in self.roster.counting() {
            let found = match member.read(self.zone, at, into) {
                Ok(()) => return Ok(Source::Written),
                Err(error) if is_of_member(&error) => return Err((member.position, error)),
                Err(DeviceError::Unwritten { .. }) if !self.info.state.has_pointer() => {
                    match member.report_zone(self.zone).map_err(|error| (member.position, error))?.state {
                        ZoneState::Empty => continue,
                        _ => Source::Unwritten,
                    }
                }
                Err(_) => Source::Unreadable,
            };
            source = source.max(Some(found));
        }
        Ok(source.unwrap_or(Source::Unreadable))
    }

    fn of_member<T>(&self, result: Result<T, DeviceError>) -> Result<T, Failure> {
        result.map_err(|error| (self.member.position, error))
    }
}

impl CurrentZone {
    /// Whether the member's zone is as the last piece left it.
    fn is_at(&self, there: &ZoneInfo) -> bool {
        match self.is_compared {
            true => there.state == ZoneState::Full,
            false if self.at == 0 => there.state == ZoneState::Empty,
            false => there.state.is_active() && there.pointer == self.at,
        }
    }
}

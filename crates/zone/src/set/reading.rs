//! Reads of a set, and the parts of an append.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::{Blocks, Command, DeviceError, Output, Result, ZoneId, ZoneInfo};

use super::layout::{Layout, Piece, Shape};
use super::member::{Member, of_superzone};
use super::roster::Roster;

/// Consecutive blocks that are read from one member of a mirror, before the next blocks are read from another one.
const RUN_BLOCKS: Blocks = 256;

/// What a read needs to know of a set.
pub(super) struct Reading<'s> {
    pub(super) roster: &'s Roster,
    pub(super) layout: Layout,
    pub(super) block_size: usize,
    /// Whether blocks of a mirror count only if they are equal on all members.
    pub(super) compares: bool,
}

/// One read of a batch.
pub(super) struct OneRead<'b> {
    /// The index of its command.
    pub(super) index: usize,
    pub(super) zone: ZoneId,
    pub(super) info: ZoneInfo,
    pub(super) block: Blocks,
    pub(super) into: &'b mut [u8],
}

/// What one member reads of a batch.
#[derive(Default)]
struct MemberBatch<'b> {
    commands: Vec<Command<'b>>,
    /// For each command the read of which it is a piece.
    origins: Vec<Origin>,
}

/// The read of which a command of a member is a piece.
struct Origin {
    index: usize,
    zone: ZoneId,
    info: ZoneInfo,
    /// The first block of the piece.
    block: Blocks,
    copies: u32,
}

impl Reading<'_> {
    /// Reads many pieces: each member gets its part as one batch. Returns the index of each read that failed.
    pub(super) fn read_batch(&self, reads: Vec<OneRead<'_>>) -> Vec<(usize, DeviceError)> {
        let mut failures = Vec::new();
        let mut batches: BTreeMap<usize, MemberBatch<'_>> = BTreeMap::new();
        // Once for the whole batch: another thread may exclude members meanwhile.
        let counting: Vec<&Member> = self.roster.counting().collect();
        for read in reads {
            let OneRead { index, zone, info, block, into } = read;
            if self.compares {
                failures.extend(self.read(zone, info, block, into).err().map(|error| (index, error)));
                continue;
            }
            let shape = self.layout.shape_of(self.roster.width(), info.capacity);
            let (mut at, mut rest) = (block, into);
            for piece in shape.pieces(block, (rest.len() / self.block_size) as Blocks) {
                let (into, behind) = rest.split_at_mut(piece.blocks as usize * self.block_size);
                let copies = shape.copies(at);
                let member = match copies > 1 {
                    true => preferred(&counting, zone, piece.at).position,
                    false => piece.member,
                };
                let batch = batches.entry(member).or_default();
                batch.commands.push(Command::Read { zone, block: piece.at, into });
                batch.origins.push(Origin { index, zone, info, block: at, copies });
                (at, rest) = (at + piece.blocks, behind);
            }
        }
        for (position, batch) in batches {
            self.read_from_member(position, batch, &mut failures);
        }
        failures
    }

    /// Executes the batch of one member. Pieces that fail are read from other members, if they have them.
    fn read_from_member(
        &self,
        position: usize,
        mut batch: MemberBatch<'_>,
        failures: &mut Vec<(usize, DeviceError)>,
    ) {
        let member = self.roster.at(position).expect("a member that counts, or one of a stripe, is there");
        let outputs: Vec<Output> = member.run(&mut batch.commands);
        for ((origin, command), output) in batch.origins.iter().zip(batch.commands).zip(outputs) {
            let Command::Read { block, into, .. } = command else { continue };
            let read = match output {
                Err(_) if origin.copies > 1 => self.read_any(origin.zone, block, into),
                output => output.map(|_| ()).map_err(|error| of_superzone(origin.zone, error)),
            };
            let read = settle_unwritten(origin.info, origin.zone, origin.block, into, read);
            failures.extend(read.err().map(|error| (origin.index, error)));
        }
    }

    /// Reads blocks of a superzone in this state.
    pub(super) fn read(&self, zone: ZoneId, info: ZoneInfo, block: Blocks, into: &mut [u8]) -> Result<()> {
        self.read_pieces(zone, info, block, into, |piece, copies, into| {
            if copies == 1 {
                return self.read_from(piece.member, zone, piece.at, into);
            }
            match self.compares {
                true => self.read_equal(zone, piece.at, into),
                false => self.read_any(zone, piece.at, into),
            }
        })
    }

    /// Reads one of the copies.
    pub(super) fn read_copy(
        &self,
        zone: ZoneId,
        info: ZoneInfo,
        block: Blocks,
        copy: u32,
        into: &mut [u8],
    ) -> Result<()> {
        self.read_pieces(zone, info, block, into, |piece, copies, into| {
            if copies == 1 {
                return self.read_from(piece.member, zone, piece.at, into);
            }
            let member = self.roster.counting().nth(copy as usize);
            let member = member.ok_or(DeviceError::Invalid { zone, why: "there is no such copy" })?;
            member.read(zone, piece.at, into)
        })
    }

    /// Reads each piece. In a superzone without a pointer, blocks that a member does not have read as zeros.
    fn read_pieces(
        &self,
        zone: ZoneId,
        info: ZoneInfo,
        block: Blocks,
        into: &mut [u8],
        read: impl Fn(Piece, u32, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let shape = self.layout.shape_of(self.roster.width(), info.capacity);
        let (mut at, mut rest) = (block, into);
        for piece in shape.pieces(block, (rest.len() / self.block_size) as Blocks) {
            let (into, behind) = rest.split_at_mut(piece.blocks as usize * self.block_size);
            let done = read(piece, shape.copies(at), into);
            settle_unwritten(info, zone, at, into, done)?;
            (at, rest) = (at + piece.blocks, behind);
        }
        Ok(())
    }

    fn read_from(&self, position: usize, zone: ZoneId, at: Blocks, into: &mut [u8]) -> Result<()> {
        let member = self.roster.at(position).filter(|member| member.counts());
        let gone = || DeviceError::Io { zone, operation: "read", reason: "the member is missing".to_owned() };
        member.ok_or_else(gone)?.read(zone, at, into)
    }

    /// Reads from one member, and from another if that fails.
    fn read_any(&self, zone: ZoneId, at: Blocks, into: &mut [u8]) -> Result<()> {
        let counting: Vec<&Member> = self.roster.counting().collect();
        let first = preferred(&counting, zone, at).position;
        let (before, from): (Vec<&Member>, Vec<&Member>) =
            counting.into_iter().partition(|member| member.position < first);
        let mut failure = None;
        for member in from.into_iter().chain(before) {
            match member.read(zone, at, into) {
                Ok(()) => return Ok(()),
                // That a member lacks the blocks says less than another error.
                Err(DeviceError::Unwritten { .. }) if failure.is_some() => {}
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("a set has a member that counts"))
    }

    /// Reads from all members: blocks that are not equal on all of them become zeros. Members that cannot be read do
    /// not count.
    fn read_equal(&self, zone: ZoneId, at: Blocks, into: &mut [u8]) -> Result<()> {
        let (mut other, mut is_read, mut failure) = (vec![0; into.len()], false, None);
        for member in self.roster.counting() {
            let read = match is_read {
                false => member.read(zone, at, into),
                true => member.read(zone, at, &mut other),
            };
            match read {
                Ok(()) if !is_read => is_read = true,
                Ok(()) => self.clear_unequal(into, &other),
                Err(DeviceError::Unwritten { .. }) => return self.read_equal_singly(zone, at, into),
                Err(error) => failure = Some(error),
            }
        }
        if is_read { Ok(()) } else { Err(failure.expect("a set has a member that counts")) }
    }

    /// The same, where a member lacks some of the blocks.
    fn read_equal_singly(&self, zone: ZoneId, at: Blocks, into: &mut [u8]) -> Result<()> {
        if into.len() == self.block_size {
            into.fill(0);
            return Ok(());
        }
        let mut blocks = (at..).zip(into.chunks_mut(self.block_size));
        blocks.try_for_each(|(block, into)| self.read_equal(zone, block, into))
    }

    fn clear_unequal(&self, into: &mut [u8], other: &[u8]) {
        for (into, other) in into.chunks_mut(self.block_size).zip(other.chunks(self.block_size)) {
            if into != other {
                into.fill(0);
            }
        }
    }
}

/// The member from which a copy is read first: sequential reads stay on one member, others use all.
fn preferred<'m>(counting: &[&'m Member], zone: ZoneId, at: Blocks) -> &'m Member {
    assert!(!counting.is_empty(), "the last member of a set always counts");
    counting[(u64::from(at / RUN_BLOCKS) + u64::from(zone.0)) as usize % counting.len()]
}

/// The result of a read of which a member says that it has not written the blocks. In a superzone without a pointer they
/// read as zeros.
fn settle_unwritten(
    info: ZoneInfo,
    zone: ZoneId,
    block: Blocks,
    into: &mut [u8],
    read: Result<()>,
) -> Result<()> {
    match read {
        Err(DeviceError::Unwritten { .. }) if !info.state.has_pointer() => {
            into.fill(0);
            Ok(())
        }
        Err(DeviceError::Unwritten { .. }) => Err(DeviceError::Unwritten { zone, block }),
        read => read,
    }
}

/// The bytes of an append at `start` that a member gets.
pub(super) fn gather<'f>(
    shape: &Shape,
    member: usize,
    start: Blocks,
    from: &'f [u8],
    block_size: usize,
) -> Cow<'f, [u8]> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let (mut at, mut rest) = (start, from);
    for piece in shape.pieces(start, (from.len() / block_size) as Blocks) {
        let (part, behind) = rest.split_at(piece.blocks as usize * block_size);
        if piece.member == member || shape.copies(at) > 1 {
            parts.push(part);
        }
        (at, rest) = (at + piece.blocks, behind);
    }
    match parts[..] {
        [part] => Cow::Borrowed(part),
        _ => Cow::Owned(parts.concat()),
    }
}

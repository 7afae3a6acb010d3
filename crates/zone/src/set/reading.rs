//! Reads of a set, and the parts of an append.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::format::ZONE_MAGIC;
use crate::{Blocks, Command, DeviceError, Output, Result, ZoneId, ZoneInfo};

use super::layout::{Layout, Piece, Shape};
use super::member::{Member, is_of_member, of_superzone};
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
    /// The zones that a member lacks and that could not be copied when the set was opened.
    pub(super) not_copied: &'s [ZoneId],
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
struct MemberBatch<'s, 'b> {
    member: &'s Member,
    commands: Vec<Command<'b>>,
    /// For each command the read of which it is a piece.
    origins: Vec<Origin>,
}

impl MemberBatch<'_, '_> {
    fn bytes(&self) -> usize {
        let of = |command: &Command<'_>| match command {
            Command::Read { into, .. } => into.len(),
            Command::Append { from, .. } => from.len(),
        };
        self.commands.iter().map(of).sum()
    }
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
        let mut batches: BTreeMap<usize, MemberBatch<'_, '_>> = BTreeMap::new();
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
                    true => preferred(&counting, zone, piece.at),
                    false => self.roster.at(piece.member).expect("all members of a stripe are there"),
                };
                let new = || MemberBatch { member, commands: Vec::new(), origins: Vec::new() };
                let batch = batches.entry(member.position).or_insert_with(new);
                batch.commands.push(Command::Read { zone, block: piece.at, into });
                batch.origins.push(Origin { index, zone, info, block: at, copies });
                (at, rest) = (at + piece.blocks, behind);
            }
        }
        let workers = self.roster.workers();
        let read = |(_, batch)| self.read_from_member(batch);
        match workers.is_worth_it(batches.values().map(MemberBatch::bytes).sum()) {
            true => {
                let parts = batches.into_iter().map(|one| move || read(one)).collect();
                failures.extend(workers.run(parts).into_iter().flatten());
            }
            false => failures.extend(batches.into_iter().flat_map(read)),
        }
        failures
    }

    /// Executes the batch of one member. Pieces that fail are read from other members, if they have them.
    fn read_from_member(&self, mut batch: MemberBatch<'_, '_>) -> Vec<(usize, DeviceError)> {
        let mut failures = Vec::new();
        let outputs: Vec<Output> = batch.member.run(&mut batch.commands);
        for ((origin, command), output) in batch.origins.iter().zip(batch.commands).zip(outputs) {
            let Command::Read { block, into, .. } = command else { continue };
            let read = match output {
                Err(_) if origin.copies > 1 => self.read_any(origin.zone, block, into),
                output => output.map(|_| ()).map_err(|error| of_superzone(origin.zone, error)),
            };
            let read = settle_unwritten(origin.info, origin.zone, origin.block, into, read);
            failures.extend(read.err().map(|error| (origin.index, error)));
        }
        failures
    }

    /// Reads blocks of a superzone in this state.
    pub(super) fn read(&self, zone: ZoneId, info: ZoneInfo, block: Blocks, into: &mut [u8]) -> Result<()> {
        if !self.compares && self.roster.workers().is_worth_it(into.len()) {
            let failed = self.read_batch(vec![OneRead { index: 0, zone, info, block, into }]);
            return failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error));
        }
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

    /// Reads from all members: blocks that are not equal on all of them become zeros, and block 0 a damaged header.
    ///
    /// A member that cannot read the blocks may lack them, so the read fails, as on one device. But a member that has
    /// failed as a whole is excluded first, and one whose zone is offline never has them again. Where one member is empty,
    /// the superzone was begun after opening, and the others have blocks of an append that failed.
    fn read_equal(&self, zone: ZoneId, at: Blocks, into: &mut [u8]) -> Result<()> {
        let (mut other, mut is_read, mut failure) = (vec![0; into.len()], false, None);
        let mut is_unwritten = false;
        for member in self.roster.counting() {
            let read = match is_read {
                false => member.read(zone, at, into),
                true => member.read(zone, at, &mut other),
            };
            match read.map_err(|error| self.roster.judge(member, error)) {
                Ok(()) if !is_read => is_read = true,
                Ok(()) => self.clear_unequal(at, into, &other),
                Err(error) if is_of_member(&error) => {
                    self.roster.exclude(&[member.position], &error)?;
                    failure = Some(error);
                }
                Err(error @ DeviceError::Offline(_)) => failure = failure.or(Some(error)),
                Err(error @ DeviceError::Unwritten { .. }) => (is_unwritten, failure) = (true, Some(error)),
                Err(error) if rt::is_planted("set-one-copy") => failure = Some(error),
                Err(error) => {
                    tracing::error!(
                        zone = zone.0,
                        member = member.position,
                        %error,
                        "recovery needs every copy: if this member has failed, open the set without it"
                    );
                    return Err(error);
                }
            }
        }
        if is_unwritten && is_read && !self.not_copied.contains(&zone) {
            into.fill(0);
            return Ok(());
        }
        if is_unwritten && is_read {
            let reason = "a member of the set lacks this zone".to_owned();
            return Err(DeviceError::Io { zone, operation: "read", reason });
        }
        if is_read { Ok(()) } else { Err(failure.expect("a set has a member that counts")) }
    }

    fn clear_unequal(&self, at: Blocks, into: &mut [u8], other: &[u8]) {
        let blocks = into.chunks_mut(self.block_size).zip(other.chunks(self.block_size));
        for (block, (into, other)) in (at..).zip(blocks) {
            if into == other {
                continue;
            }
            into.fill(0);
            if block == 0 && !rt::is_planted("set-lost-header") {
                into[..ZONE_MAGIC.len()].copy_from_slice(&ZONE_MAGIC);
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

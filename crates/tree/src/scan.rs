//! Reading the log: the batches in a log zone, and which of them count.
//!
//! A zone is read block by block, and frames mark where batches begin. Torn or lost batches are skipped, because a
//! later mount may have continued behind them. Epochs and LSNs alone decide which batches count, not addresses. A seal
//! of a later epoch ends the records of earlier ones. The number of a new epoch jumps by a random amount, so batches
//! of a lost epoch that become readable behind the pointer cannot be taken for new ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use pool::OwnedPool;
use zerocopy::FromBytes;
use zone::format::{HeaderError, ZoneHeader, ZoneIdentity, decode_header};
use zone::{Address, Blocks, Device, DeviceError, FsId, Life, ZoneId, ZoneInfo, ZoneState};

use crate::format::{self, BatchHeader, BatchKind, FRAME, Identity, LogFrame, Seal};
use crate::types::Result;

/// Reads, and tries once more after a failure. Recovery discards for good what it cannot read, so a transient failure
/// must not lose acknowledged records.
pub(crate) fn read_twice(
    device: &dyn Device,
    zone: ZoneId,
    block: Blocks,
    into: &mut [u8],
) -> zone::Result<()> {
    device.read(zone, block, into).or_else(|_| device.read(zone, block, into))
}

/// The header of a zone. It is read once more if it cannot be read or is not valid.
pub fn read_header(
    device: &dyn Device,
    zone: ZoneId,
) -> zone::Result<std::result::Result<(ZoneIdentity, ZoneHeader), HeaderError>> {
    let mut block = vec![0; device.geometry().block_size as usize];
    let mut once = || device.read(zone, 0, &mut block).map(|()| decode_header(&block));
    match once() {
        Ok(Ok(header)) => Ok(Ok(header)),
        _ => once(),
    }
}

/// The life that begins when this zone is opened. It is greater than the life in the ZIT, and greater than the life in
/// the zone's header, which may be from before a crash.
pub(crate) fn next_life(device: &dyn Device, fs_id: FsId, pool: &OwnedPool, zone: ZoneId) -> Result<Life> {
    let known = pool.entry(zone).life;
    if device.report_zone(zone)?.state == ZoneState::Empty {
        return Ok(known.next());
    }
    let shown = read_header(device, zone).ok().and_then(|header| header.ok()).map(|(identity, _)| identity);
    let shown = shown.filter(|identity| identity.fs_id == fs_id).map_or(known, |identity| identity.life);
    Ok(known.max(shown).next())
}

/// Bytes read at once.
const READ_AT_ONCE: usize = 1 << 20;
/// Number of failed blocks in a zone without other information, after which blocks that cannot be read together are
/// skipped together.
const FAILED_BLOCKS_MAX: u32 = 64;

/// A batch in the log.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) at: Address,
    pub(crate) kind: BatchKind,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) known_durable: u64,
    pub(crate) checkpoint: Address,
    /// Where the log continues after it, if the batch states that.
    pub(crate) successor: Option<Successor>,
    /// The bytes behind the batch's header.
    pub(crate) body: Vec<u8>,
}

/// The zone that a batch names as the next of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Successor {
    pub(crate) zone: ZoneId,
    /// It had begun, and a newer batch in it was durable, before the mark was written (`log/switch.rs`).
    pub(crate) has_begun: bool,
}

impl Successor {
    fn of(header: &BatchHeader) -> Option<Successor> {
        let zone = header.successor.get().checked_sub(1).map(ZoneId)?;
        Some(Successor { zone, has_begun: header.successor_life.get() != 0 })
    }
}

/// One log zone, open for reading.
pub(crate) struct LogZone<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) identity: Identity,
    pub(crate) info: ZoneInfo,
    /// The last written block that the device refused to read, and the error.
    refused: RefCell<Option<(Blocks, DeviceError)>>,
    /// How many more blocks may fail when blocks that cannot be read together are read one by one.
    failures_left: Cell<u32>,
    /// The end of the last whole batch, once the zone has been read to its end.
    whole_until: Cell<Blocks>,
}

impl<'a> LogZone<'a> {
    pub(crate) fn new(device: &'a dyn Device, fs_id: FsId, zone: ZoneId, life: Life, info: ZoneInfo) -> Self {
        let identity = Identity { fs_id, zone, life };
        let (failures_left, whole_until) = (Cell::new(u32::MAX), Cell::new(Blocks::MAX));
        LogZone { device, identity, info, refused: RefCell::default(), failures_left, whole_until }
    }

    /// The same for a zone of which only the frames are known. It uses the life of the first frame that can be read
    /// (batches of an earlier life lie behind those of this life). None if there is no frame. Unreadable blocks are
    /// soon skipped many at a time, because the zone may be empty.
    pub(crate) fn by_its_frames(
        device: &'a dyn Device,
        fs_id: FsId,
        zone: ZoneId,
        info: ZoneInfo,
    ) -> Result<Option<Self>> {
        let unknown = LogZone::new(device, fs_id, zone, Life(0), info);
        unknown.failures_left.set(FAILED_BLOCKS_MAX);
        let mut life = None;
        unknown.each_block(1..unknown.end(), &mut |_, bytes| {
            life = life.or_else(|| format::life_of_frame(bytes, fs_id, zone));
            life.is_none()
        })?;
        unknown.failures_left.set(FAILED_BLOCKS_MAX);
        let known = |life| LogZone { identity: Identity { fs_id, zone, life }, ..unknown };
        Ok(life.map(known))
    }

    /// Why the device refused to read a written block from this one on, if it has. A crash never causes this.
    pub(crate) fn refused(&self, from: Blocks) -> Option<DeviceError> {
        self.refused.borrow().as_ref().filter(|(block, _)| *block >= from).map(|(_, error)| error.clone())
    }

    fn note_refused(&self, block: Blocks, error: DeviceError) {
        let mut refused = self.refused.borrow_mut();
        if refused.as_ref().is_none_or(|(last, _)| *last <= block) {
            *refused = Some((block, error));
        }
    }

    /// The end of the blocks to read.
    fn end(&self) -> Blocks {
        let end = if self.info.state.has_pointer() { self.info.pointer } else { self.info.capacity };
        end.min(self.whole_until.get())
    }

    fn block_size(&self) -> usize {
        self.device.geometry().block_size as usize
    }

    /// All whole batches from `from` on.
    pub(crate) fn batches(&self, from: Blocks) -> Result<Vec<Found>> {
        Ok(self.batches_with(from, &|_| true)?.0)
    }

    /// The same, without the bodies of batches that are not needed, because a log zone may be larger than memory. Also
    /// returns the end of the last batch. In a zone, batches only become newer. An older one behind a newer one was
    /// there before a reset, in a life of the same number that a crash had hidden.
    ///
    /// Blocks that are no part of a batch are read once more, because they may have been read wrong.
    pub(crate) fn batches_with(
        &self,
        from: Blocks,
        is_needed: &dyn Fn(&Found) -> bool,
    ) -> Result<(Vec<Found>, Blocks)> {
        let mut whole = Whole::new();
        self.gather(from.max(1)..self.end(), is_needed, &mut whole)?;
        for gap in gaps(from.max(1)..self.end(), &whole) {
            self.gather(gap, is_needed, &mut whole)?;
        }
        let end = whole.values().next_back().map_or(from, |(end, _)| *end);
        let mut found: Vec<Found> = Vec::new();
        for (_, batch) in whole.into_values() {
            if found.last().map(|last| (last.epoch, last.sequence)) < Some((batch.epoch, batch.sequence)) {
                found.push(batch);
            }
        }
        Ok((found, end))
    }

    /// Adds all whole batches in these blocks.
    fn gather(
        &self,
        blocks: Range<Blocks>,
        is_needed: &dyn Fn(&Found) -> bool,
        into: &mut Whole,
    ) -> Result<()> {
        let mut gathered = Gathered::default();
        self.each_block(blocks, &mut |block, bytes| {
            let at = Address::new(self.identity.zone, block, self.identity.life);
            if let Some(mut batch) = gathered.take(at, bytes, format::decode_frame(bytes, &self.identity)) {
                if !is_needed(&batch) {
                    batch.body = Vec::new();
                }
                into.insert(batch.at.block(), (block + 1, batch));
            }
            true
        })
    }

    /// Calls `each` for these blocks until it returns false.
    fn each_block(&self, blocks: Range<Blocks>, each: &mut dyn FnMut(Blocks, &[u8]) -> bool) -> Result<()> {
        let per_read = (READ_AT_ONCE / self.block_size()).max(1) as Blocks;
        let mut block = blocks.start;
        while block < blocks.end {
            let count = per_read.min(blocks.end - block);
            let bytes = self.read(block, count)?;
            for (index, bytes) in bytes.chunks(self.block_size()).enumerate() {
                if !each(block + index as Blocks, bytes) {
                    return Ok(());
                }
            }
            block += count;
        }
        Ok(())
    }

    /// The last whole batch. The search goes backwards from the pointer, or forwards if there is none. A forward
    /// search keeps no bodies, and nothing behind the batch is read again, because it was read twice.
    pub(crate) fn last(&self) -> Result<Option<Found>> {
        if !self.info.state.has_pointer() {
            let (batches, end) = self.batches_with(1, &|_| false)?;
            self.whole_until.set(end);
            return Ok(batches.into_iter().max_by_key(|found| (found.epoch, found.sequence)));
        }
        let mut block = self.end();
        while block > 1 {
            block -= 1;
            let Some(frame) = self.frame_at(block)? else { continue };
            let (index, count) = (frame.index.get(), frame.count.get());
            if index + 1 != count || index >= block || count > self.end() {
                continue;
            }
            if let Some(found) = self.batch_at(block - index, count)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The number of blocks of the batch that begins at this block.
    pub(crate) fn count_at(&self, block: Blocks) -> Result<Option<Blocks>> {
        let frame = self.frame_at(block)?;
        let begins = |frame: &LogFrame| {
            frame.index.get() == 0 && frame.count.get() <= self.end().saturating_sub(block)
        };
        Ok(frame.filter(begins).map(|frame| frame.count.get()))
    }

    /// The frame of a block, if it has a valid one.
    fn frame_at(&self, block: Blocks) -> Result<Option<LogFrame>> {
        let once = || Ok(format::decode_frame(&self.read(block, 1)?, &self.identity));
        once().and_then(|frame: Option<LogFrame>| if frame.is_some() { Ok(frame) } else { once() })
    }

    /// The batch that begins at a block, if it is whole.
    pub(crate) fn batch_at(&self, block: Blocks, count: Blocks) -> Result<Option<Found>> {
        let once = || -> Result<Option<Found>> {
            let bytes = self.read(block, count)?;
            let mut gathered = Gathered::default();
            Ok(bytes.chunks(self.block_size()).enumerate().find_map(|(index, bytes)| {
                let at = Address::new(self.identity.zone, block + index as Blocks, self.identity.life);
                gathered.take(at, bytes, format::decode_frame(bytes, &self.identity))
            }))
        };
        once().and_then(|found| if found.is_some() { Ok(found) } else { once() })
    }

    /// Blocks, with zeros for those that cannot be read: lost or torn blocks are no batch.
    ///
    /// # Errors
    /// The zone or the whole device cannot be read any more. That is no evidence of an empty log: a log that is taken
    /// for empty would be continued without acknowledged records.
    fn read(&self, block: Blocks, blocks: Blocks) -> Result<Vec<u8>> {
        let mut bytes = vec![0; blocks as usize * self.block_size()];
        if blocks > 1 && self.try_read(block, &mut bytes)?.is_ok() {
            return Ok(bytes);
        }
        for (index, one) in bytes.chunks_mut(self.block_size()).enumerate() {
            let is_read = self.failures_left.get() > 0
                && match self.try_read(block + index as Blocks, one)? {
                    Ok(()) => true,
                    Err(DeviceError::Unwritten { .. }) => false,
                    Err(error) => {
                        self.note_refused(block + index as Blocks, error);
                        false
                    }
                };
            if !is_read {
                one.fill(0);
                self.failures_left.set(self.failures_left.get().saturating_sub(1));
            }
        }
        Ok(bytes)
    }

    /// Tries to read, twice.
    ///
    /// # Errors
    /// The zone or the whole device cannot be read any more.
    fn try_read(&self, block: Blocks, into: &mut [u8]) -> Result<zone::Result<()>> {
        match read_twice(self.device, self.identity.zone, block, into) {
            Err(gone @ (DeviceError::Offline(_) | DeviceError::PowerLost | DeviceError::Unusable(_))) => {
                Err(gone.into())
            }
            read => Ok(read),
        }
    }
}

/// Whole batches by their first blocks, and the block behind each.
type Whole = BTreeMap<Blocks, (Blocks, Found)>;

/// The parts of these blocks that belong to no batch.
fn gaps(blocks: Range<Blocks>, whole: &Whole) -> Vec<Range<Blocks>> {
    let begins = std::iter::once(blocks.start).chain(whole.values().map(|(end, _)| *end));
    let ends = whole.keys().copied().chain([blocks.end]);
    begins.zip(ends).map(|(begin, end)| begin..end).filter(|gap| !gap.is_empty()).collect()
}

/// The blocks of a batch so far.
#[derive(Default)]
pub(crate) struct Gathered {
    frame: Option<LogFrame>,
    at: Address,
    next: u32,
    payload: Vec<u8>,
}

impl Gathered {
    /// Adds the next block. Returns a batch if the block completes one.
    pub(crate) fn take(&mut self, at: Address, block: &[u8], frame: Option<LogFrame>) -> Option<Found> {
        let Some(frame) = frame else {
            self.frame = None;
            return None;
        };
        if frame.index.get() == 0 {
            (self.frame, self.at, self.next) = (Some(frame), at, 0);
            self.payload.clear();
        }
        let first = self.frame.as_ref().filter(|first| {
            frame.index.get() == self.next
                && first.sequence == frame.sequence
                && first.epoch == frame.epoch
                && first.count == frame.count
                && first.kind == frame.kind
        });
        if first.is_none() {
            self.frame = None;
            return None;
        }
        self.next += 1;
        self.payload.extend_from_slice(&block[FRAME..FRAME + frame.payload.get() as usize]);
        if self.next < frame.count.get() {
            return None;
        }
        self.frame = None;
        decode_batch(self.at, &frame, &self.payload)
    }
}

fn decode_batch(at: Address, frame: &LogFrame, payload: &[u8]) -> Option<Found> {
    let (header, body) = BatchHeader::read_from_prefix(payload).ok()?;
    let whole = header.bytes.get() == payload.len() as u64
        && [header.first, header.last, header.known_durable].into_iter().all(format::is_ordinal)
        && format::checksum(&[&payload[4..]]) == header.checksum.get();
    whole.then(|| Found {
        at,
        kind: BatchKind::from_number(frame.kind).expect("a frame with another kind is none"),
        epoch: frame.epoch.get(),
        sequence: frame.sequence.get(),
        first: header.first.get(),
        last: header.last.get(),
        known_durable: header.known_durable.get(),
        checkpoint: Address::from_bits(header.checkpoint.get()),
        successor: Successor::of(&header),
        body: body.to_vec(),
    })
}

/// Seals, in the order of their epochs.
pub(crate) struct Seals(Vec<(u64, u64, u64)>);

impl Seals {
    pub(crate) fn of(batches: &[Found]) -> Seals {
        let seals = batches.iter().filter(|found| found.kind == BatchKind::Seal);
        let mut seals: Vec<_> = seals
            .filter_map(|found| {
                let seal = Seal::read_from_bytes(&found.body).ok()?;
                let is_seal = [seal.last, seal.next].into_iter().all(format::is_ordinal);
                is_seal.then_some((found.epoch, seal.last.get(), seal.next.get()))
            })
            .collect();
        seals.sort_unstable();
        Seals(seals)
    }

    /// The last LSN of `epoch` that counts.
    pub(crate) fn limit(&self, epoch: u64) -> u64 {
        let seals = if rt::is_planted("break-seal-limit") { &[] } else { self.0.as_slice() };
        let later = seals.iter().filter(|(sealed, _, _)| *sealed > epoch);
        later.map(|&(_, last, _)| last).min().unwrap_or(u64::MAX)
    }

    /// Whether `next` may follow `last`: the next LSN, or the first after a seal that ends at `last`.
    pub(crate) fn follows(&self, last: u64, next: u64) -> bool {
        next == last + 1 || self.0.iter().any(|&(_, sealed, first)| sealed == last && first == next)
    }

    /// The epoch of the first seal after `epoch` that is not among `others`.
    pub(crate) fn next_but(&self, epoch: u64, others: &[u64]) -> Option<u64> {
        self.0.iter().map(|&(sealed, ..)| sealed).find(|next| *next > epoch && !others.contains(next))
    }

    /// The LSN with which the newest epoch begins if nothing follows `last`.
    pub(crate) fn next_after(&self, last: u64) -> u64 {
        let after = self.0.iter().filter(|&&(_, sealed, _)| sealed == last).map(|&(_, _, next)| next);
        after.max().unwrap_or(0).max(last + 1)
    }
}

#[cfg(test)]
mod tests;

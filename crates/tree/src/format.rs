//! The bytes of the metadata store: log frames and batches, checkpoint records, pages, the ZIT.
//!
//! `docs/format.md` has the same tables, and a test compares the two. Decoders accept any bytes and never panic. Their
//! results have been verified by checksum and identity (I-TREE-2).

use crate::types::Reserve;
use pool::{Lsn, ZoneEntry};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zone::{FsId, Life, Role, ZoneId};

pub(crate) use zone::format::checksum;

/// The magic number of a block of the log.
pub(crate) const LOG_MAGIC: [u8; 4] = *b"PLOG";
/// The magic number of a page.
pub(crate) const PAGE_MAGIC: [u8; 4] = *b"PPAG";
/// The longest key.
pub const KEY_MAX: usize = 512;
/// Bytes of [`LogFrame`].
pub(crate) const FRAME: usize = size_of::<LogFrame>();
/// Bytes of [`PageHeader`].
pub(crate) const PAGE_HEADER: usize = size_of::<PageHeader>();

/// The contents of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BatchKind {
    /// Records of transactions; none at all in a mark.
    Journal = 1,
    /// One checkpoint record.
    Checkpoint = 2,
    /// One seal.
    Seal = 3,
}

impl BatchKind {
    pub(crate) fn from_number(number: u8) -> Option<BatchKind> {
        [BatchKind::Journal, BatchKind::Checkpoint, BatchKind::Seal]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// The start of every block of a log zone but the first.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LogFrame {
    pub(crate) magic: [u8; 4],
    pub(crate) checksum: U32,
    pub(crate) fs_id: [u8; 16],
    pub(crate) zone: U32,
    pub(crate) life: U32,
    pub(crate) sequence: U64,
    pub(crate) epoch: U64,
    pub(crate) index: U32,
    pub(crate) count: U32,
    pub(crate) payload: U32,
    pub(crate) kind: u8,
    pub(crate) reserved: [u8; 3],
}

const _: () = assert!(size_of::<LogFrame>() == 64);

/// The start of a batch's payload.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct BatchHeader {
    pub(crate) checksum: U32,
    pub(crate) records: U32,
    pub(crate) bytes: U64,
    pub(crate) first: U64,
    pub(crate) last: U64,
    pub(crate) known_durable: U64,
    pub(crate) checkpoint: U64,
    /// The zone in which the log continues, and 1; 0: nothing is said.
    pub(crate) successor: U32,
    /// The life of that zone; 0: it was named before anything was written there.
    pub(crate) successor_life: U32,
}

const _: () = assert!(size_of::<BatchHeader>() == 56);

/// The start of a record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RecordHeader {
    pub(crate) bytes: U32,
    pub(crate) operations: U32,
    pub(crate) lsn: U64,
}

const _: () = assert!(size_of::<RecordHeader>() == 16);

/// The end of the log that a recovery accepted; the new epoch is in the frame.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Seal {
    pub(crate) last: U64,
    pub(crate) next: U64,
}

const _: () = assert!(size_of::<Seal>() == 16);

/// The start of a checkpoint record; the parts follow in the order of their counts.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CheckpointHeader {
    pub(crate) header_bytes: U32,
    pub(crate) version: U32,
    pub(crate) features_compatible: U64,
    pub(crate) features_read_only: U64,
    pub(crate) features_incompatible: U64,
    pub(crate) block_size: U32,
    pub(crate) zones: U32,
    pub(crate) page_size: U32,
    pub(crate) groups: U32,
    pub(crate) cut: U64,
    pub(crate) epoch: U64,
    pub(crate) number: U64,
    pub(crate) replay_from: U64,
    pub(crate) next_node: U64,
    pub(crate) secret: [u8; 16],
    pub(crate) label: [u8; 64],
    pub(crate) created_ns: I64,
    pub(crate) mat_directories: U32,
    pub(crate) zit_directories: U32,
    pub(crate) patches: U32,
    pub(crate) user_bytes: U32,
    pub(crate) counters: [I64; crate::COUNTERS],
    pub(crate) reserve: U32,
    pub(crate) prepaid: U64,
    pub(crate) reserved: [u8; 68],
}

const _: () = assert!(size_of::<CheckpointHeader>() == 400);

/// Compatible feature: `reserve` is not the default. A release that does not know it reports the space that its own
/// default leaves.
pub(crate) const FEATURE_RESERVE: u64 = 1;

/// Read-only-compatible feature: a release that moves the log to another zone makes a successor mark durable before it
/// acknowledges anything there. A release that does not know the feature would take an older zone for the newest, and
/// write to it.
pub(crate) const FEATURE_SUCCESSOR_MARKS: u64 = 1;

/// The read-only-compatible features that this code knows. Every volume gets them with the first checkpoint.
pub(crate) const FEATURES_READ_ONLY: u64 = FEATURE_SUCCESSOR_MARKS;

/// The compatible features of a volume with this reserve.
pub(crate) fn features_compatible(reserve: Reserve) -> u64 {
    if reserve == Reserve::default() { 0 } else { FEATURE_RESERVE }
}

/// A zone whose entry changed after its chunk of the ZIT was written.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ZonePatch {
    pub(crate) zone: U32,
    pub(crate) entry: ZitEntry,
}

const _: () = assert!(size_of::<ZonePatch>() == 36);

/// One zone in the ZIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ZitEntry {
    pub(crate) life: U32,
    pub(crate) role: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) live: U32,
    pub(crate) deltas: U32,
    pub(crate) user: [u8; 16],
}

const _: () = assert!(size_of::<ZitEntry>() == 32);

/// One chunk in a directory page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DirectoryEntry {
    pub(crate) address: U64,
    pub(crate) used: U32,
    pub(crate) reserved: U32,
}

const _: () = assert!(size_of::<DirectoryEntry>() == 16);

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// A node of a tree.
    Node = 1,
    /// Places of nodes.
    MatChunk = 2,
    /// Entries of zones.
    ZitChunk = 3,
    /// Addresses of MAT chunks.
    MatDirectory = 4,
    /// Addresses of ZIT chunks.
    ZitDirectory = 5,
    /// Delta records of leaves.
    Deltas = 6,
}

/// The delta record of a leaf in a page of such records. Its entries follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DeltaHeader {
    pub(crate) node: U64,
    pub(crate) lsn: U64,
    pub(crate) epoch: U64,
    /// The LSN of the base page.
    pub(crate) base: U64,
    pub(crate) group: U16,
    pub(crate) entries: U16,
    /// Bytes of the entries.
    pub(crate) bytes: U32,
}

const _: () = assert!(size_of::<DeltaHeader>() == 40);

/// The start of an entry. The key and the value follow, or only the key if it is deleted.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DeltaEntry {
    pub(crate) key: U16,
    /// [`DELTA_GONE`] if the key is deleted.
    pub(crate) value: U16,
}

const _: () = assert!(size_of::<DeltaEntry>() == 4);

/// Longer than a value can be.
pub(crate) const DELTA_GONE: u16 = u16::MAX;

/// The start of every page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PageHeader {
    pub(crate) checksum: U32,
    pub(crate) magic: [u8; 4],
    pub(crate) fs_id: [u8; 16],
    pub(crate) id: U64,
    pub(crate) lsn: U64,
    pub(crate) epoch: U64,
    pub(crate) life: U32,
    pub(crate) group: U16,
    pub(crate) kind: u8,
    pub(crate) level: u8,
    pub(crate) entries: U16,
    /// [`NODE_PREPAID`].
    pub(crate) flags: U16,
    pub(crate) cells: U32,
}

const _: () = assert!(size_of::<PageHeader>() == 64);

/// The last key of a node belonged to the prepaid table when the node was made, split or merged.
pub(crate) const NODE_PREPAID: u16 = 1;

/// Reads a struct from the start of `bytes`.
pub(crate) fn take<T: FromBytes>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (value, rest) = T::read_from_prefix(bytes).ok()?;
    Some((value, rest))
}

/// The number of entries of this size in a page.
pub(crate) fn entries_per_page(page_size: usize, entry: usize) -> usize {
    (page_size - PAGE_HEADER) / entry
}

/// An entry as it is stored.
pub(crate) fn stored(entry: &ZoneEntry) -> ZitEntry {
    ZitEntry {
        life: U32::new(entry.life.0),
        role: entry.role as u8,
        reserved: [0; 3],
        live: U32::new(entry.live),
        deltas: U32::new(entry.deltas),
        user: entry.user,
    }
}

/// The entry in memory. `None` if its role is unknown.
pub(crate) fn loaded(entry: &ZitEntry) -> Option<ZoneEntry> {
    Some(ZoneEntry {
        life: Life(entry.life.get()),
        role: Role::from_number(entry.role)?,
        live: entry.live.get(),
        deltas: entry.deltas.get(),
        user: entry.user,
    })
}

/// The identity that a page or block must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) fs_id: FsId,
    pub(crate) zone: ZoneId,
    pub(crate) life: Life,
}

/// Completes a log block in place: writes its frame before the payload.
pub(crate) fn seal_block(block: &mut [u8], mut frame: LogFrame) {
    frame.checksum = U32::ZERO;
    block[..FRAME].copy_from_slice(frame.as_bytes());
    let sum = checksum(&[block]);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Whether an LSN, an epoch or a sequence number is possible. No volume reaches the others, so additions to a possible
/// number do not overflow.
pub(crate) fn is_ordinal(number: U64) -> bool {
    number.get() < 1 << 62
}

/// The frame of a log block of this zone and life, if it is one.
pub(crate) fn decode_frame(block: &[u8], identity: &Identity) -> Option<LogFrame> {
    let (frame, _) = take::<LogFrame>(block)?;
    let ours = frame.magic == LOG_MAGIC
        && frame.fs_id == identity.fs_id.0
        && frame.zone.get() == identity.zone.0
        && frame.life.get() == identity.life.0
        && frame.payload.get() as usize <= block.len() - FRAME
        && frame.index < frame.count
        && [frame.epoch, frame.sequence].into_iter().all(is_ordinal)
        && BatchKind::from_number(frame.kind).is_some();
    let sum = || checksum(&[&block[..4], &[0; 4], &block[8..]]);
    (ours && sum() == frame.checksum.get()).then_some(frame)
}

/// The life in the frame of a log block, if the frame is one of this zone.
pub(crate) fn life_of_frame(block: &[u8], fs_id: FsId, zone: ZoneId) -> Option<Life> {
    let life = Life(take::<LogFrame>(block)?.0.life.get());
    decode_frame(block, &Identity { fs_id, zone, life }).map(|_| life)
}

/// Begins a page that is not a node.
pub(crate) fn write_header(page: &mut [u8], kind: PageKind, id: u64, lsn: Lsn) {
    let header = PageHeader {
        checksum: U32::ZERO,
        magic: [0; 4],
        fs_id: [0; 16],
        id: U64::new(id),
        lsn: U64::new(lsn.0),
        epoch: U64::ZERO,
        life: U32::ZERO,
        group: U16::ZERO,
        kind: kind as u8,
        level: 0,
        entries: U16::ZERO,
        flags: U16::ZERO,
        cells: U32::ZERO,
    };
    page[..PAGE_HEADER].copy_from_slice(header.as_bytes());
}

/// Completes the header of a page for the zone and epoch in which it will be written.
pub(crate) fn seal_page(page: &mut [u8], fs_id: FsId, life: Life, epoch: u64) {
    page[4..8].copy_from_slice(&PAGE_MAGIC);
    page[8..24].copy_from_slice(&fs_id.0);
    page[40..48].copy_from_slice(&epoch.to_le_bytes());
    page[48..52].copy_from_slice(&life.0.to_le_bytes());
    page[..4].fill(0);
    let sum = checksum(&[page]);
    page[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The header of a page whose checksum, magic number and volume are right.
pub(crate) fn decode_page(page: &[u8], fs_id: FsId) -> Option<PageHeader> {
    let (header, _) = take::<PageHeader>(page)?;
    let right = header.magic == PAGE_MAGIC
        && header.fs_id == fs_id.0
        && [header.lsn, header.epoch].into_iter().all(is_ordinal)
        && checksum(&[&[0; 4], &page[4..]]) == header.checksum.get();
    right.then_some(header)
}

#[cfg(test)]
mod tests;

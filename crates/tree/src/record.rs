//! Records: the logical writes of one transaction as bytes of the journal.

use pool::Lsn;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};
use zone::{Life, Role, ZoneId};

use crate::format::{RecordHeader, is_ordinal, take};
use crate::patch::Patch;
use crate::types::{Group, Key, Op, Table, Tx};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const ZONE_OPENED: u8 = 3;
const ZONE_LIVE: u8 = 4;
const ZONE_USER: u8 = 5;
const COUNTER: u8 = 6;
const PATCH: u8 = 7;

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => 8 + key.len() + value.len(),
        Op::Patch { key, patch, .. } => patch_bytes(key, patch),
        Op::Delete { key, .. } => 6 + key.len(),
        Op::ZoneOpened { .. } => 10,
        Op::ZoneLive { .. } => 13,
        Op::ZoneUser { .. } => 25,
        Op::Counter { .. } => 10,
    }
}

fn patch_bytes(key: &[u8], patch: &Patch) -> usize {
    14 + key.len() + patch.encoded_bytes()
}

/// A patch that a record has instead of the put with this index.
pub(crate) type Patched = (usize, Patch);

/// The patch from an old value, if it is shorter than the put.
pub(crate) fn shorter_patch(put: &Op, old: &[u8]) -> Option<Patch> {
    let Op::Put { key, value, .. } = put else { return None };
    let patch = Patch::between(old, value);
    (patch_bytes(key, &patch) < op_bytes(put)).then_some(patch)
}

/// Bytes of the record of these writes.
pub(crate) fn encoded_bytes(ops: &[Op]) -> usize {
    size_of::<RecordHeader>() + ops.iter().map(op_bytes).sum::<usize>()
}

impl Tx {
    /// Bytes this takes in the journal, or more if it has updates; at most [`crate::Store::tx_bytes_max`].
    pub fn encoded_bytes(&self) -> usize {
        encoded_bytes(&self.ops)
    }
}

/// Encodes a record whose LSN is filled in by [`set_lsn`]. Patches are in the order of their puts.
pub(crate) fn encode(ops: &[Op], patched: &[Patched]) -> Vec<u8> {
    let bytes = encoded_bytes(ops);
    let mut out = Vec::with_capacity(bytes);
    let header = RecordHeader {
        bytes: U32::new(u32::try_from(bytes).expect("admission bounds the size of a record")),
        operations: U32::new(u32::try_from(ops.len()).expect("admission bounds the size of a record")),
        lsn: U64::ZERO,
    };
    out.extend_from_slice(header.as_bytes());
    let mut patched = patched.iter().peekable();
    for (index, op) in ops.iter().enumerate() {
        match (op, patched.next_if(|(patched, _)| *patched == index)) {
            (Op::Put { group, table, key, .. }, Some((_, patch))) => {
                encode_patch(*group, *table, key, patch, &mut out);
            }
            (op, _) => encode_op(op, &mut out),
        }
    }
    assert!(patched.next().is_none(), "each patch takes the place of a put");
    assert!(out.len() <= bytes, "a record is not longer than was said");
    let bytes = u32::try_from(out.len()).expect("it is not longer");
    out[..4].copy_from_slice(&bytes.to_le_bytes());
    out
}

fn encode_patch(group: Group, table: Table, key: &[u8], patch: &Patch, out: &mut Vec<u8>) {
    let count = |length: usize| u16::try_from(length).expect("keys and values are shorter than a page");
    out.push(PATCH);
    out.extend_from_slice(&group.0.to_le_bytes());
    out.push(table.0);
    out.extend_from_slice(&count(key.len()).to_le_bytes());
    out.extend_from_slice(&patch.length.to_le_bytes());
    out.extend_from_slice(&patch.checksum.to_le_bytes());
    out.extend_from_slice(&count(patch.pieces.len()).to_le_bytes());
    out.extend_from_slice(key);
    for (at, bytes) in &patch.pieces {
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&count(bytes.len()).to_le_bytes());
        out.extend_from_slice(bytes);
    }
}

fn encode_op(op: &Op, out: &mut Vec<u8>) {
    let length = |bytes: &[u8]| {
        u16::try_from(bytes.len()).expect("keys and values are shorter than a page").to_le_bytes()
    };
    match op {
        Op::Put { group, table, key, value } => {
            out.push(PUT);
            out.extend_from_slice(&group.0.to_le_bytes());
            out.push(table.0);
            out.extend_from_slice(&length(key));
            out.extend_from_slice(&length(value));
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        Op::Patch { group, table, key, patch } => encode_patch(*group, *table, key, patch, out),
        Op::Delete { group, table, key } => {
            out.push(DELETE);
            out.extend_from_slice(&group.0.to_le_bytes());
            out.push(table.0);
            out.extend_from_slice(&length(key));
            out.extend_from_slice(key);
        }
        Op::ZoneOpened { zone, life, role } => {
            out.push(ZONE_OPENED);
            out.extend_from_slice(&zone.0.to_le_bytes());
            out.extend_from_slice(&life.0.to_le_bytes());
            out.push(*role as u8);
        }
        Op::ZoneLive { zone, life, change } => {
            out.push(ZONE_LIVE);
            out.extend_from_slice(&zone.0.to_le_bytes());
            out.extend_from_slice(&life.0.to_le_bytes());
            out.extend_from_slice(&change.to_le_bytes());
        }
        Op::ZoneUser { zone, life, bytes } => {
            out.push(ZONE_USER);
            out.extend_from_slice(&zone.0.to_le_bytes());
            out.extend_from_slice(&life.0.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Op::Counter { counter, change } => {
            out.extend_from_slice(&[COUNTER, *counter]);
            out.extend_from_slice(&change.to_le_bytes());
        }
    }
}

/// Fills in the LSN of an encoded record.
pub(crate) fn set_lsn(record: &mut [u8], lsn: Lsn) {
    record[8..16].copy_from_slice(&lsn.0.to_le_bytes());
}

/// The records of a journal batch; `None` when the bytes are not records.
pub(crate) fn decode_all(mut bytes: &[u8]) -> Option<Vec<(Lsn, Vec<Op>)>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (header, _) = take::<RecordHeader>(bytes)?;
        let length = header.bytes.get() as usize;
        if length < size_of::<RecordHeader>() || length > bytes.len() || !is_ordinal(header.lsn) {
            return None;
        }
        let (record, rest) = bytes.split_at(length);
        let ops = decode_ops(&record[size_of::<RecordHeader>()..], header.operations.get())?;
        records.push((Lsn(header.lsn.get()), ops));
        bytes = rest;
    }
    Some(records)
}

fn decode_ops(bytes: &[u8], count: u32) -> Option<Vec<Op>> {
    let mut reader = Reader(bytes);
    let mut ops = Vec::new();
    for _ in 0..count {
        ops.push(decode_op(&mut reader)?);
    }
    reader.0.is_empty().then_some(ops)
}

fn decode_op(reader: &mut Reader<'_>) -> Option<Op> {
    Some(match reader.array::<1>()?[0] {
        PUT => {
            let group = Group(reader.u16()?);
            let table = Table(reader.array::<1>()?[0]);
            let key = usize::from(reader.u16()?);
            let value = usize::from(reader.u16()?);
            Op::Put {
                group,
                table,
                key: Key::from_slice(reader.bytes(key)?),
                value: reader.bytes(value)?.to_vec(),
            }
        }
        DELETE => {
            let group = Group(reader.u16()?);
            let table = Table(reader.array::<1>()?[0]);
            let key = usize::from(reader.u16()?);
            Op::Delete { group, table, key: Key::from_slice(reader.bytes(key)?) }
        }
        ZONE_OPENED => Op::ZoneOpened {
            zone: reader.zone()?,
            life: reader.life()?,
            role: Role::from_number(reader.array::<1>()?[0])?,
        },
        ZONE_LIVE => Op::ZoneLive {
            zone: reader.zone()?,
            life: reader.life()?,
            change: i32::from_le_bytes(reader.array()?),
        },
        ZONE_USER => Op::ZoneUser { zone: reader.zone()?, life: reader.life()?, bytes: reader.array()? },
        COUNTER => {
            let counter = reader.array::<1>()?[0];
            let change = i64::from_le_bytes(reader.array()?);
            (usize::from(counter) < crate::COUNTERS).then_some(Op::Counter { counter, change })?
        }
        PATCH => decode_patch(reader)?,
        _ => return None,
    })
}

fn decode_patch(reader: &mut Reader<'_>) -> Option<Op> {
    let group = Group(reader.u16()?);
    let table = Table(reader.array::<1>()?[0]);
    let (key, length) = (reader.u16()?, reader.u16()?);
    let checksum = u32::from_le_bytes(reader.array()?);
    let count = reader.u16()?;
    let key = Key::from_slice(reader.bytes(key.into())?);
    let mut pieces = Vec::new();
    for _ in 0..count {
        let (at, bytes) = (reader.u16()?, reader.u16()?);
        pieces.push((at, reader.bytes(bytes.into())?.to_vec()));
    }
    let patch = Patch { length, checksum, pieces };
    patch.is_sound().then_some(Op::Patch { group, table, key, patch })
}

/// Takes bytes from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.array()?))
    }

    fn life(&mut self) -> Option<Life> {
        Some(Life(u32::from_le_bytes(self.array()?)))
    }

    fn zone(&mut self) -> Option<ZoneId> {
        Some(ZoneId(u32::from_le_bytes(self.array()?)))
    }
}

#[cfg(test)]
mod tests;

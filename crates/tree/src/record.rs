//! Records: the logical writes of one transaction as bytes of the journal.

use pool::Lsn;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};
use zone::{Life, Role, ZoneId};

use crate::format::{RecordHeader, is_ordinal, take};
use crate::types::{Group, Op, Table, Tx};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const ZONE_OPENED: u8 = 3;
const ZONE_LIVE: u8 = 4;
const ZONE_USER: u8 = 5;
const COUNTER: u8 = 6;

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => 8 + key.len() + value.len(),
        Op::Delete { key, .. } => 6 + key.len(),
        Op::ZoneOpened { .. } => 10,
        Op::ZoneLive { .. } => 13,
        Op::ZoneUser { .. } => 25,
        Op::Counter { .. } => 10,
    }
}

/// Bytes of the record of these writes.
pub(crate) fn encoded_bytes(ops: &[Op]) -> usize {
    size_of::<RecordHeader>() + ops.iter().map(op_bytes).sum::<usize>()
}

impl Tx {
    /// Bytes this takes in the journal; at most [`crate::Store::tx_bytes_max`].
    pub fn encoded_bytes(&self) -> usize {
        encoded_bytes(&self.ops)
    }
}

/// Encodes a record whose LSN is filled in by [`set_lsn`].
pub(crate) fn encode(ops: &[Op]) -> Vec<u8> {
    let bytes = encoded_bytes(ops);
    let mut out = Vec::with_capacity(bytes);
    let header = RecordHeader {
        bytes: U32::new(u32::try_from(bytes).expect("admission bounds the size of a record")),
        operations: U32::new(u32::try_from(ops.len()).expect("admission bounds the size of a record")),
        lsn: U64::ZERO,
    };
    out.extend_from_slice(header.as_bytes());
    ops.iter().for_each(|op| encode_op(op, &mut out));
    assert_eq!(out.len(), bytes, "a record is as long as was said");
    out
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
            let group = Group(u16::from_le_bytes(reader.array()?));
            let table = Table(reader.array::<1>()?[0]);
            let key = usize::from(u16::from_le_bytes(reader.array()?));
            let value = usize::from(u16::from_le_bytes(reader.array()?));
            Op::Put { group, table, key: reader.bytes(key)?.to_vec(), value: reader.bytes(value)?.to_vec() }
        }
        DELETE => {
            let group = Group(u16::from_le_bytes(reader.array()?));
            let table = Table(reader.array::<1>()?[0]);
            let key = usize::from(u16::from_le_bytes(reader.array()?));
            Op::Delete { group, table, key: reader.bytes(key)?.to_vec() }
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
        _ => return None,
    })
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

    fn life(&mut self) -> Option<Life> {
        Some(Life(u32::from_le_bytes(self.array()?)))
    }

    fn zone(&mut self) -> Option<ZoneId> {
        Some(ZoneId(u32::from_le_bytes(self.array()?)))
    }
}

#[cfg(test)]
mod tests;

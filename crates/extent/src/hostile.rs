//! Passes any bytes to the decoders of this crate, as a hostile device would. The right checksum is set first. Every function
//! must return, whatever the bytes are. For fuzzing.

use zone::hostile::Decoder;
use zone::{FsId, Life, ZoneId};

use crate::Object;

use crate::format::{
    self, Entry, Extent, FOOTER_MAGIC, SUMMARY_MAGIC, Unfinished, ZoneName, ZoneUser, decode_checkpoint,
    decode_entries, decode_key, decode_places, decode_refcount, decode_summary, encode_unfinished,
    summary_blocks_claimed,
};

/// The zone of all inputs.
const NAME: ZoneName = ZoneName { fs_id: FsId([7; 16]), zone: ZoneId(1), life: Life(1) };

/// Every decoder with the name of its fuzz target.
pub const DECODERS: [Decoder; 6] = [
    ("extents", extents),
    ("refcounts", refcounts),
    ("reverse-summary", summary),
    ("reverse-footer", footer),
    ("reverse-checkpoint", checkpoint),
    ("learned", learned),
];

/// A row of the object map: its key, then its value.
fn extents(bytes: &[u8]) {
    let (key, value) = bytes.split_at(bytes.len().min(16));
    let _ = decode_key(key);
    if let Ok(user) = <&[u8; 16]>::try_from(key) {
        let _ = ZoneUser::decode(user);
    }
    let Some(extent) = Extent::decode(value) else { return };
    assert!(extent.blocks > 0 && extent.blocks <= format::EXTENT_BLOCKS_MAX, "an extent has blocks");
    assert!(
        !extent.is_stored() || extent.crcs.len() == extent.blocks as usize,
        "a stored extent has a checksum of each block"
    );
    let half = extent.slice(0, extent.blocks.div_ceil(2));
    assert!(half.blocks <= extent.blocks, "a part is not larger than the whole");
}

/// A row of the reference counts: its key, then its value. If it is valid, encoding it gives the same bytes.
fn refcounts(bytes: &[u8]) {
    let (key, value) = bytes.split_at(bytes.len().min(format::KEY_BYTES));
    if let Some((blocks, references)) = decode_refcount(value) {
        assert!(blocks > 0 && references > 1, "one reference has no row");
        assert_eq!(format::encode_refcount(blocks, references), value, "a count has one form");
    }
    let Some((owner, start)) = decode_key(key) else { return };
    assert_eq!(format::key(owner, start), key, "a key has one form");
    if let Ok(row) = crate::refcount::decode(owner, key, value) {
        let (run, references) = row.expect("the row is its owner's");
        assert!(run.start == start && run.end > start && references > 1, "the run is a valid one");
    }
}

/// Completes bytes with this magic number to a summary or footer of the zone.
fn complete(magic: u32, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(512).max(512), 0);
    bytes[..4].copy_from_slice(&magic.to_le_bytes());
    format::complete_summary(&NAME, &mut bytes);
    bytes
}

fn summary(bytes: &[u8]) {
    let bytes = complete(SUMMARY_MAGIC, bytes);
    let _ = summary_blocks_claimed(SUMMARY_MAGIC, &bytes);
    let Some((count, payload)) = decode_summary(SUMMARY_MAGIC, &NAME, &bytes) else { return };
    let entries = decode_entries(payload, count).unwrap_or_default();
    assert!(entries.iter().map(Entry::bytes).sum::<usize>() <= payload.len(), "the payload has all entries");
}

fn footer(bytes: &[u8]) {
    let bytes = complete(FOOTER_MAGIC, bytes);
    let Some((count, payload)) = decode_summary(FOOTER_MAGIC, &NAME, &bytes) else { return };
    assert!(
        decode_places(payload, count).is_none_or(|places| places.len() == count as usize),
        "the footer has as many places as it says"
    );
}

/// The bytes in a checkpoint. If they are valid, they can be encoded and decoded again.
fn checkpoint(bytes: &[u8]) {
    let Some(zones) = decode_checkpoint(bytes) else { return };
    let mut again = format::CHECKPOINT_MAGIC.to_le_bytes().to_vec();
    for (zone, Unfinished { life, summaries, entries }) in &zones {
        encode_unfinished(&mut again, (*zone, *life), summaries, entries.iter());
    }
    assert_eq!(decode_checkpoint(&again), Some(zones), "valid zones can be encoded and decoded again");
}

/// Rows of learned lifetimes: a byte with the length of the key, a byte with that of the value, then both.
fn learned(bytes: &[u8]) {
    let (mut rows, mut rest) = (Vec::new(), bytes);
    while let Some((&[key, value], behind)) = rest.split_first_chunk::<2>() {
        let (key, behind) = behind.split_at(usize::from(key % 4).min(behind.len()));
        let (value, behind) = behind.split_at(usize::from(value).min(behind.len()));
        rows.push((key.to_vec(), value.to_vec()));
        rest = behind;
    }
    crate::learn::use_rows(&rows);
}

/// Sets the checksum of bytes that may be a summary or footer.
pub fn complete_checksum_of_summary(bytes: &mut [u8]) {
    let ours =
        [SUMMARY_MAGIC, FOOTER_MAGIC].iter().any(|&magic| summary_blocks_claimed(magic, bytes).is_some());
    if ours {
        format::complete_checksum_of_summary(bytes);
    }
}

/// Valid inputs for the fuzzer, each with the name of its target.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let entry = |block| Entry { object: Object(9), offset: 4, sequence: 7, block, crcs: vec![block; 3] };
    let entries = format::encode_entries([entry(1), entry(4)].iter());
    let summary = format::encode_summary(SUMMARY_MAGIC, &NAME, 0, (2, &entries), 512);
    let places = format::encode_places(&[7, 30, 55]);
    let footer = format::encode_summary(FOOTER_MAGIC, &NAME, 3, (3, &places), 512);
    let mut rows = Vec::new();
    for (key, value) in crate::learn::seed_rows() {
        rows.extend_from_slice(&[key.len() as u8, value.len() as u8]);
        rows.extend_from_slice(&key);
        rows.extend_from_slice(&value);
    }
    let count = [&format::key(Object(9), 4)[..], &format::encode_refcount(300, 2)].concat();
    vec![("refcounts", count), ("reverse-summary", summary), ("reverse-footer", footer), ("learned", rows)]
}

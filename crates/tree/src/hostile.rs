//! Passes any bytes to the decoders of this crate, as a hostile device would (I-TREE-2). For fuzzing.
//!
//! An attacker can recompute checksums, so they are no defence. Each function first sets the right checksums and
//! identity in its input, so that the code behind these checks is reached. For any bytes it returns: it does not panic
//! or loop for ever, and it allocates at most a small multiple of the input.

use std::sync::{Arc, LazyLock};

use pool::Lsn;
use zerocopy::IntoBytes;
use zone::hostile::Decoder;
use zone::{Address, FsId, Life, Pages, Role, ZoneId};

use crate::decode;
use crate::delta::{self, Changes, Packed};
use crate::format::{
    self, BatchHeader, BatchKind, FRAME, Identity, LOG_MAGIC, LogFrame, PAGE_HEADER, PAGE_MAGIC, PageKind,
    checksum, take,
};
use crate::mat::Mat;
use crate::page::Page;
use crate::record;
use crate::recover::decode_checkpoint;
use crate::scan::{Found, Gathered, Seals};
use crate::types::{Epoch, Group, NodeId};

/// The volume and the zone of all inputs.
const IDENTITY: Identity = Identity { fs_id: FsId([7; 16]), zone: ZoneId(1), life: Life(1) };
const BLOCK: usize = 4096;
const PAGE: usize = 4096;
static PAGES: LazyLock<Arc<Pages>> = LazyLock::new(|| Pages::new(PAGE));

/// Every decoder with the name of its target.
pub const DECODERS: [Decoder; 6] = [
    ("log-blocks", log_blocks),
    ("log-records", log_records),
    ("checkpoint-record", checkpoint_record),
    ("nodes", nodes),
    ("deltas", deltas),
    ("chunks", chunks),
];

/// The blocks of a log zone.
fn log_blocks(bytes: &[u8]) {
    let mut gathered = Gathered::default();
    let mut found = Vec::new();
    for (index, bytes) in bytes.chunks(BLOCK).enumerate() {
        let mut block = bytes.to_vec();
        block.resize(BLOCK, 0);
        complete_log_block(&mut block, &IDENTITY);
        let at = Address::new(IDENTITY.zone, 1 + index as u32, IDENTITY.life);
        found.extend(gathered.take(at, &block, format::decode_frame(&block, &IDENTITY)));
    }
    let seals = Seals::of(&found);
    for batch in &found {
        let limit = seals.limit(batch.epoch);
        assert!(
            limit == u64::MAX || seals.follows(limit, seals.next_after(limit)),
            "a seal has the first LSN after it"
        );
        match batch.kind {
            BatchKind::Journal => drop(record::decode_all(&batch.body)),
            BatchKind::Checkpoint => drop(decode_checkpoint(batch)),
            BatchKind::Seal => {}
        }
    }
}

/// The records of a batch. An accepted record has only one encoding.
fn log_records(bytes: &[u8]) {
    let Some(records) = record::decode_all(bytes) else { return };
    let mut again = Vec::new();
    for (lsn, ops) in &records {
        let mut record = record::encode(ops, &[]);
        record::set_lsn(&mut record, *lsn);
        again.extend_from_slice(&record);
    }
    assert_eq!(again, bytes, "a record has one form");
}

fn checkpoint_record(bytes: &[u8]) {
    let found = Found {
        at: Address::new(IDENTITY.zone, 1, IDENTITY.life),
        kind: BatchKind::Checkpoint,
        epoch: 1,
        sequence: 1,
        first: 1,
        last: 0,
        known_durable: 0,
        checkpoint: Address::NONE,
        successor: None,
        body: bytes.to_vec(),
    };
    let Some(checkpoint) = decode_checkpoint(&found) else { return };
    let named =
        checkpoint.mat_directories.len() + checkpoint.zit_directories.len() + checkpoint.patches.len();
    assert!(named + checkpoint.user.len() <= bytes.len(), "a checkpoint names no more than it contains");
}

fn page_of(bytes: &[u8], kind: PageKind) -> Vec<u8> {
    let mut page = bytes.to_vec();
    page.resize(PAGE, 0);
    page[54] = kind as u8;
    // A possible LSN.
    page[39] &= 0x3f;
    format::seal_page(&mut page, IDENTITY.fs_id, IDENTITY.life, 1);
    assert!(format::decode_page(&page, IDENTITY.fs_id).is_some(), "the page was just completed");
    page
}

/// A node of a tree, searched, changed and split.
fn nodes(bytes: &[u8]) {
    let Some(mut page) = Page::load(PAGES.with_bytes(&page_of(bytes, PageKind::Node))) else { return };
    for index in 0..page.count() {
        assert_eq!(page.search(page.key(index)), Ok(index), "every key of a node is found");
        let _ = (page.value(index), page.entry_bytes(index));
        if page.level() > 0 {
            let _ = (page.child(index), page.branch(page.key(index)));
        }
    }
    if page.level() == 0 && page.count() > 1 {
        page.remove(page.count() / 2);
        let keys: Vec<_> = (0..page.count()).map(|index| page.key(index).to_vec()).collect();
        for key in [&[1, 7][..], &[200; 20]] {
            if let (Err(index), true) = (page.search(key), page.fits(key.len(), 60)) {
                page.insert(index, key, &[9; 60]);
            }
        }
        assert!(keys.iter().all(|key| page.search(key).is_ok()), "an insertion changes no other entry");
    }
    if page.count() > 1 {
        let at = page.split_point(page.count() / 2);
        let mut right = Page::new(&PAGES, NodeId(2), Group(0), page.level());
        page.move_entries(at, &mut right);
        assert!(page.count() + right.count() > 1, "nothing is lost in a split");
    }
    while page.count() > 0 {
        page.remove(page.count() / 2);
    }
}

/// A page of delta records. Each is applied to a small leaf that has the LSN of its base page.
fn deltas(bytes: &[u8]) {
    let page = page_of(bytes, PageKind::Deltas);
    for delta in delta::all(&page).unwrap_or_default() {
        let mut base = Page::new(&PAGES, delta.node(), Group(delta.header.group.get()), 0);
        for index in 0..8_u8 {
            base.insert(usize::from(index), &[1, index], &[index; 40]);
        }
        if let Some(changes) = delta.apply(&mut base) {
            let again = changes.encode(&base, Lsn(delta.header.base.get()));
            assert!(
                again.is_none_or(|again| again.len() <= delta.bytes.len()),
                "the encoding is no longer than the original"
            );
            assert!(
                Page::load(PAGES.with_bytes(base.bytes())).is_some(),
                "a leaf with its changes is a valid leaf"
            );
        }
        assert!(delta::find(&page, delta.node()).is_some(), "the record is found in its page");
    }
}

/// Chunks of MAT and ZIT, and directories.
fn chunks(bytes: &[u8]) {
    for has_deltas in [false, true] {
        let page = page_of(bytes, PageKind::MatChunk);
        let mat = Mat::new(PAGE, has_deltas, 1 << 20);
        for index in 0..mat.per_chunk() as usize {
            let place = mat.place_in(&page, index);
            let _ = (place.whole_page().zone(), place.at.block(), place.is_nowhere());
        }
        mat.harvest(0, &page);
        assert!(
            mat.next_node() == 1 << 20 && mat.allocate().0 < mat.next_node(),
            "unused ids are below the next"
        );
    }
    for entry in decode::zone_entries(&page_of(bytes, PageKind::ZitChunk)) {
        assert!(entry.is_none_or(|entry| Role::from_number(entry.role as u8).is_some()), "it has a role");
    }
    let listed = decode::chunk_addresses(&page_of(bytes, PageKind::MatDirectory));
    assert!(listed.len() as u64 == decode::chunks_per_directory(PAGE), "a full page of addresses");
}

/// Completes a block of a log zone with a frame of this zone and valid checksums.
fn complete_log_block(block: &mut [u8], identity: &Identity) {
    block[..4].copy_from_slice(&LOG_MAGIC);
    block[8..24].copy_from_slice(&identity.fs_id.0);
    block[24..28].copy_from_slice(&identity.zone.0.to_le_bytes());
    block[28..32].copy_from_slice(&identity.life.0.to_le_bytes());
    complete_checksums_of_log(block);
}

/// Sets the right checksums of a log block, and of the batch if the block is all of it.
pub fn complete_checksums_of_log(block: &mut [u8]) {
    let Some((frame, _)) = take::<LogFrame>(block) else { return };
    let end = FRAME + frame.payload.get() as usize;
    if frame.count.get() == 1 && end <= block.len() && end >= FRAME + size_of::<BatchHeader>() {
        let sum = checksum(&[&block[FRAME + 4..end]]);
        block[FRAME..FRAME + 4].copy_from_slice(sum.as_bytes());
    }
    format::seal_block(block, frame);
}

/// Sets the right checksum of a metadata page.
pub fn complete_checksum_of_page(page: &mut [u8]) {
    if page.len() > PAGE_HEADER && page[4..8] == PAGE_MAGIC {
        page[..4].fill(0);
        let sum = checksum(&[page]);
        page[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Valid inputs to begin with, each with the name of its target.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    const VALUE: [u8; 20] = [7; 20];
    let mut packed = Packed::new(PAGE);
    for id in 1..4 {
        let mut leaf = Page::new(&PAGES, NodeId(id), Group(0), 0);
        let mut changes = Changes::default();
        for key in [[1, 2], [1, 200], [3, id as u8]] {
            let index = leaf.search(&key).unwrap_or_else(|index| index);
            leaf.insert(index, &key, &VALUE);
            changes.note(&key, Some(VALUE.len()), PAGE);
        }
        changes.note(&[1, 1], None, PAGE);
        let mut delta = changes.encode(&leaf, Lsn(0)).expect("a leaf of a few short entries");
        delta::set_epoch(&mut delta, Epoch(1));
        packed.add(&delta, Lsn(id), ());
    }
    packed.take().0.into_iter().map(|page| ("deltas", page)).collect()
}

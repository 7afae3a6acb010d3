//! Seed inputs: the contents of a small volume.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use emulated::CrashPlan;
use rt::random::Rng;
use tree::{Group, Table};
use zone::{Device, Role};

use super::volume::{COMPLETE, READ_ONLY, caller, target};
use crate::files::Volume;

/// Limit for the inputs of one target.
const MOST: usize = 24;
/// Bytes of a log block's frame, and of a batch's header behind it (docs/format.md).
const FRAME: usize = 64;
const BATCH: usize = 56;
/// The offsets of a frame's payload length, and of its kind.
const PAYLOAD: usize = 56;
const KIND: usize = 60;
/// The offset of a page's kind.
const PAGE_KIND: usize = 54;
/// Inputs of edits.
const EDITS: u64 = 48;

/// Inputs for a target. None if the volume contains nothing of this kind.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<BTreeMap<&'static str, Vec<Vec<u8>>>> = OnceLock::new();
    SEEDS.get_or_init(all).get(target).cloned().unwrap_or_default()
}

fn all() -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    let mut seeds: BTreeMap<&'static str, Vec<Vec<u8>>> = BTreeMap::new();
    let mut add = |name: &'static str, input: Vec<u8>| {
        let inputs = seeds.entry(name).or_default();
        if inputs.len() < MOST || ["mount", "volume-file"].contains(&name) {
            inputs.push(input);
        }
    };
    let made = [
        zone::hostile::seeds(),
        object::hostile::seeds(),
        tree::hostile::seeds(),
        extent::hostile::seeds(),
        fs::hostile::seeds(),
    ];
    made.into_iter().flatten().for_each(|(name, input)| add(name, input));
    of_blocks(&mut add);
    of_rows(&mut add);
    (0..EDITS).for_each(|number| add("mount", edits(number)));
    // In the file, most edits are in the blocks before its zones.
    (0..EDITS).for_each(|number| add("volume-file", edits_of(0..6, number)));
    seeds
}

fn of_blocks(add: &mut impl FnMut(&'static str, Vec<u8>)) {
    let image = target().image().image_at(0, &CrashPlan::KeepAll);
    for place in target().blocks() {
        let mut block = vec![0; image.geometry().block_size as usize];
        image.read(place.zone, place.block, &mut block).expect("written blocks can be read");
        match place.role {
            _ if place.block == 0 => add("zone-header", block[..512].to_vec()),
            Some(Role::Log) => of_log(block, add),
            Some(Role::Metadata) => add(page_target(block[PAGE_KIND]), block),
            _ => {}
        }
    }
}

fn of_log(block: Vec<u8>, add: &mut impl FnMut(&'static str, Vec<u8>)) {
    let length = block[PAYLOAD..PAYLOAD + 4].try_into().map_or(0, u32::from_le_bytes) as usize;
    let body = block.get(FRAME + BATCH..(FRAME + length).min(block.len())).unwrap_or_default().to_vec();
    match block[KIND] {
        1 => add("log-records", body),
        2 => {
            let magic = extent::format::CHECKPOINT_MAGIC.to_le_bytes();
            let ours = body.windows(4).position(|word| word == magic);
            ours.into_iter().for_each(|at| add("reverse-checkpoint", body[at..].to_vec()));
            add("checkpoint-record", body);
        }
        _ => {}
    }
    add("log-blocks", block);
}

fn page_target(kind: u8) -> &'static str {
    match kind {
        1 => "nodes",
        6 => "deltas",
        _ => "chunks",
    }
}

/// Rows of all tables of the volume, mounted.
fn of_rows(add: &mut impl FnMut(&'static str, Vec<u8>)) {
    rt::random::repeat_from(1);
    let device = Arc::new(target().image().image_at(0, &CrashPlan::KeepAll));
    device.record();
    let volume = Volume { page_size: 4096, groups: 2, cache_bytes: 8 << 20 };
    let fs = volume.mount(&device, Volume::clock()).expect("an unedited volume can be mounted");
    for (name, value) in [(&b"user.short"[..], &[1; 20][..]), (b"user.long", &[2; 5000])] {
        fs.set_xattr(&caller(), fs::InodeNo::ROOT, name, value, false, false).expect("there is space");
    }
    let tables = [
        (extent::format::EXTENT, "extents"),
        (extent::format::REFCOUNT, "refcounts"),
        (fs::format::INODE, "inodes"),
        (fs::format::DIRENT, "entries"),
        (fs::format::XATTR, "attributes"),
        (fs::format::INTENT, "intents"),
        (fs::format::SHADOW, "shadows"),
        (extent::LEARNED, "learned"),
    ];
    let groups = (0..fs.store().info().groups).map(Group);
    for (group, (table, name)) in groups.flat_map(|group| tables.map(|named| (group, named))) {
        for (key, value) in rows(&fs, group, table) {
            let input = match name {
                "extents" => [&key[..key.len().min(16)], &value].concat(),
                "refcounts" => [&key[..], &value].concat(),
                "learned" => [&[key.len() as u8, value.len() as u8], &key[..], &value].concat(),
                _ => value,
            };
            add(name, input);
            add("keys", key.into_vec());
        }
    }
}

fn rows(fs: &fs::Fs, group: Group, table: Table) -> Vec<tree::Entry> {
    fs.store().range(group, table, &[], &[], MOST).expect("the volume is whole")
}

/// A few edits at offsets of fields, most of them with corrected checksums.
fn edits(number: u64) -> Vec<u8> {
    edits_of(0..u16::MAX, number)
}

fn edits_of(blocks: Range<u16>, number: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(number);
    let flags =
        if rng.u32(0..8) == 0 { 0 } else { COMPLETE } | if rng.u32(0..4) == 0 { READ_ONLY } else { 0 };
    let mut input = vec![flags];
    for _ in 0..rng.u32(0..4) {
        input.extend_from_slice(&rng.u16(blocks.clone()).to_le_bytes());
        let at = if rng.bool() { rng.u16(0..160) } else { rng.u16(..) } & !3;
        input.extend_from_slice(&at.to_le_bytes());
        let length = [1_u8, 2, 4, 8][rng.usize(..4)];
        input.push(length - 1);
        let filled = [0, 1, 0x7f, 0xff, rng.u8(..)][rng.usize(..5)];
        input.extend((0..length).map(|_| filled));
    }
    input
}

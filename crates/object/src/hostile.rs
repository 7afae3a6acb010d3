//! Passes arbitrary bytes to the decoders of this crate, as another program that can write to the store would. Each
//! input is completed with the correct checksum first. Every function returns for any bytes. For fuzzing.

use zone::hostile::Decoder;
use zone::{FsId, Geometry, Life, ZoneId, ZoneState};

use crate::format::{self, Bundle, Piece, Run, Shape, ZoneEntry};
use crate::table::Table;

/// Every decoder with the name of its target.
pub const DECODERS: [Decoder; 3] =
    [("object-volume", volume), ("object-bundle", bundle), ("object-chunk", chunk)];

/// A volume whose objects the seeds are.
fn shape() -> Shape {
    let geometry = Geometry {
        block_size: 512,
        zones: 12,
        zone_blocks: 11,
        max_open: 8,
        max_active: 8,
        max_append: 4,
        conventional: 0,
        seek_bytes: crate::SEEK_BYTES,
    };
    Shape { fs_id: FsId([7; 16]), geometry, part_blocks: 4, chunk_zones: 5 }
}

/// These bytes with the right checksum.
fn complete(bytes: &[u8]) -> Vec<u8> {
    let mut object = bytes.to_vec();
    if object.len() >= 12 {
        object[8..12].fill(0);
        let checksum = zone::format::checksum(&[&object]);
        object[8..12].copy_from_slice(&checksum.to_le_bytes());
    }
    object
}

fn volume(bytes: &[u8]) {
    let Ok(shape) = format::decode_volume(&complete(bytes)) else { return };
    assert!(shape.chunks() > 0 && shape.part_bytes() > 0, "a volume has zones, and parts have blocks");
}

/// What a bundle says can be applied, and appended to.
fn bundle(bytes: &[u8]) {
    let (shape, object) = (shape(), complete(bytes));
    let Ok(found) = format::decode_bundle(&shape, 9, &object) else { return };
    let mut table = Table::new(&shape);
    apply(&shape, &mut table, found.zones);
    let is_within = |piece: &Piece| piece.offset + u64::from(piece.blocks) * 512 <= object.len() as u64;
    assert!(found.pieces.iter().all(is_within), "the blocks of a bundle are in it");
}

fn chunk(bytes: &[u8]) {
    let shape = shape();
    let Ok(found) = format::decode_chunk(&shape, 1, 3, &complete(bytes)) else { return };
    let mut table = Table::new(&shape);
    apply(
        &shape,
        &mut table,
        found.into_iter().zip(5..).map(|(entry, zone)| (ZoneId(zone), entry)).collect(),
    );
}

fn apply(shape: &Shape, table: &mut Table, zones: Vec<(ZoneId, ZoneEntry)>) {
    for (zone, entry) in zones {
        table.load(zone, entry);
        let info = table.info(zone);
        if info.state.is_active() {
            table.set_owner(zone, info.pointer / shape.part_blocks, 77);
        }
        let entry = table.entry(zone);
        assert_eq!((entry.pointer, entry.life), (info.pointer, table.life(zone)));
    }
}

/// One valid input of each target.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let shape = shape();
    let runs = vec![Run { part: 0, owner: 1 }, Run { part: 1, owner: 4 }];
    let continued =
        ZoneEntry { life: Life(3), state: ZoneState::Closed, pointer: 9, has_garbage: true, runs };
    let mut bundle = Bundle {
        sequence: 9,
        table: 9,
        swept: 2,
        nonce: [1; 16],
        previous_nonce: [2; 16],
        owner: 4,
        holder: crate::Holder::elsewhere(5).0,
        is_owner: false,
        is_closing: false,
        chunks: Some(vec![0, 3, 0]),
        zones: vec![(ZoneId(2), continued.clone()), (ZoneId(3), ZoneEntry::NEW)],
        pieces: vec![Piece { zone: ZoneId(2), block: 8, blocks: 1, bundle: 0, offset: 0 }],
        references: vec![Piece { zone: ZoneId(4), block: 4, blocks: 2, bundle: 7, offset: 300 }],
    };
    let payload = bytes::Bytes::from(vec![5; 512]);
    let entries: Vec<ZoneEntry> = (0..5).map(|_| continued.clone()).collect();
    vec![
        ("object-volume", format::encode_volume(&shape).to_vec()),
        ("object-bundle", format::encode_bundle(&shape, &mut bundle, &[payload]).to_vec()),
        ("object-chunk", format::encode_chunk(&shape, 1, 3, &entries).to_vec()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_valid_and_any_byte_may_be_wrong() {
        for (name, seed) in seeds() {
            let decode = |bytes: &[u8]| match name {
                "object-volume" => format::decode_volume(bytes).is_ok(),
                "object-bundle" => format::decode_bundle(&shape(), 9, bytes).is_ok(),
                _ => format::decode_chunk(&shape(), 1, 3, bytes).is_ok(),
            };
            assert!(decode(&seed), "{name}");
            assert!(!decode(&[&seed[..], &[0]].concat()), "{name} with a byte more, and its old checksum");
            let (_, target) = DECODERS.iter().find(|(target, _)| *target == name).expect("each has a target");
            for index in 0..seed.len() {
                for byte in [0, 1, 0x7f, 0xff] {
                    let mut changed = seed.clone();
                    changed[index] = byte;
                    target(&changed);
                    target(&changed[..index]);
                }
            }
        }
    }
}

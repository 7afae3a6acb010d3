//! The blocks of unfinished parts, and where bundles have them.

use std::collections::BTreeMap;

use bytes::Bytes;
use zone::{Blocks, ZoneId};

use crate::format::{Piece, Shape};

/// The tails of all active zones.
#[derive(Default)]
pub(crate) struct Tails(BTreeMap<ZoneId, Tail>);

/// The blocks of one unfinished part.
pub(crate) struct Tail {
    /// The first block of the part.
    pub(crate) first: Blocks,
    pub(crate) bytes: Vec<u8>,
    /// The bundles that have the first of these blocks, in order and without gaps.
    pub(crate) pieces: Vec<Piece>,
}

impl Tail {
    /// An empty tail of the part that begins at `first`.
    pub(crate) fn new(first: Blocks) -> Tail {
        Tail { first, bytes: Vec::new(), pieces: Vec::new() }
    }

    /// The block behind the last one that a bundle has.
    fn recorded(&self) -> Blocks {
        self.pieces.last().map_or(self.first, |piece| piece.block + piece.blocks)
    }

    /// The first block that a table bundle is to have: all blocks that no table bundle has.
    fn behind_table(&self, last_table: u64) -> Blocks {
        let later = self.pieces.iter().find(|piece| piece.bundle > last_table);
        later.map_or(self.recorded(), |piece| piece.block)
    }
}

impl Tails {
    pub(crate) fn get(&self, zone: ZoneId) -> Option<&Tail> {
        self.0.get(&zone)
    }

    /// The tail of a zone, which begins at `first` if there is none yet.
    pub(crate) fn at(&mut self, zone: ZoneId, first: Blocks) -> &mut Tail {
        self.0.entry(zone).or_insert_with(|| Tail::new(first))
    }

    pub(crate) fn remove(&mut self, zone: ZoneId) -> Option<Tail> {
        self.0.remove(&zone)
    }

    /// The blocks that a bundle is to have: those that no bundle has. `last_table` is given for a table bundle, which
    /// repeats those that no table bundle has, and whole tails if there are more than `pieces_max` pieces. The offsets in
    /// the bundle are not known yet.
    pub(crate) fn to_record(
        &self,
        shape: &Shape,
        last_table: Option<u64>,
        pieces_max: usize,
    ) -> (Vec<Piece>, Vec<Bytes>) {
        let block_size = shape.geometry.block_size as usize;
        let whole = last_table.map_or_else(Vec::new, |_| self.to_repeat(pieces_max));
        let (mut pieces, mut payload) = (Vec::new(), Vec::new());
        for (&zone, tail) in &self.0 {
            let block = match last_table {
                None => tail.recorded(),
                Some(_) if whole.contains(&zone) => tail.first,
                Some(table) => tail.behind_table(table),
            };
            let bytes = &tail.bytes[(block - tail.first) as usize * block_size..];
            if !bytes.is_empty() {
                let blocks = (bytes.len() / block_size) as Blocks;
                pieces.push(Piece { zone, block, blocks, bundle: 0, offset: 0 });
                payload.push(Bytes::copy_from_slice(bytes));
            }
        }
        (pieces, payload)
    }

    /// The tails that are to be repeated as a whole, so that few bundles are needed: those with the most pieces.
    fn to_repeat(&self, pieces_max: usize) -> Vec<ZoneId> {
        let mut tails: Vec<(usize, ZoneId)> =
            self.0.iter().map(|(&zone, tail)| (tail.pieces.len(), zone)).collect();
        tails.sort_unstable();
        let mut total: usize = tails.iter().map(|(pieces, _)| pieces).sum();
        let mut repeated = Vec::new();
        while total > pieces_max
            && let Some((pieces, zone)) = tails.pop()
        {
            total -= pieces;
            repeated.push(zone);
        }
        repeated
    }

    /// The earlier bundles that have blocks which a table bundle with these pieces does not repeat.
    pub(crate) fn references(&self, repeated: &[Piece]) -> Vec<Piece> {
        let is_repeated = |piece: &Piece| {
            repeated.iter().any(|other| other.zone == piece.zone && other.block <= piece.block)
        };
        let pieces = self.0.values().flat_map(|tail| &tail.pieces);
        pieces.filter(|piece| !is_repeated(piece)).copied().collect()
    }

    /// Notes that a bundle has these blocks. Tails that have become parts, or that were reset, meanwhile do not need
    /// to know: `is_same_life` tells.
    pub(crate) fn note(&mut self, recorded: &[Piece], is_same_life: impl Fn(ZoneId) -> bool) {
        for piece in recorded {
            let Some(tail) = self.0.get_mut(&piece.zone) else { continue };
            let is_of_tail = piece.block >= tail.first && is_same_life(piece.zone);
            if is_of_tail {
                tail.pieces.retain(|earlier| earlier.block < piece.block);
                tail.pieces.push(*piece);
            }
        }
    }
}

//! What differs between two values of a key. The journal has it instead of the new value where it is shorter
//! ([`Tx::update`](crate::Tx::update)).
//!
//! A replay makes the new value from the one that the key has in the tables. Replay begins at the cut of a checkpoint
//! and stops at the first gap, so that is the value that the key had when the transaction was committed. If it were
//! another one, the result would be a mixture of both. So a patch contains the checksum of the new value.

use zone::format::checksum;

/// Patches of one record. Recovery has the values of all in memory.
pub(crate) const PATCHES_MAX: usize = 64;

/// Bytes of a piece in the journal beside its contents. Differences that are not further apart are one piece.
pub(crate) const PIECE_HEADER: usize = 4;
/// Equal bytes are skipped in steps of this length.
const STEP: usize = 16;

/// The change from one value to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Bytes of the new value. The old value is cut or continued with zeros to this length.
    pub length: u16,
    /// The checksum of the new value.
    pub checksum: u32,
    /// What the new value has in other places than the old one: offsets and bytes. In order, without overlaps, none is
    /// empty, and all are within the length.
    pub pieces: Vec<(u16, Vec<u8>)>,
}

impl Patch {
    /// The change from `old` to `new`.
    pub(crate) fn between(old: &[u8], new: &[u8]) -> Patch {
        let mut pieces: Vec<(u16, Vec<u8>)> = Vec::new();
        let mut at = 0;
        while let Some(from) = next_difference(old, new, at) {
            at = difference_end(old, new, from);
            pieces.push((offset(from), new[from..at].to_vec()));
        }
        Patch { length: offset(new.len()), checksum: checksum(&[new]), pieces }
    }

    /// Bytes of the pieces in the journal.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.pieces.iter().map(|(_, bytes)| PIECE_HEADER + bytes.len()).sum()
    }

    /// Whether the pieces are as their field says.
    pub(crate) fn is_sound(&self) -> bool {
        let ends = self.pieces.iter().map(|(at, bytes)| usize::from(*at) + bytes.len());
        let starts = self.pieces.iter().skip(1).map(|(at, _)| usize::from(*at));
        let starts = starts.chain([usize::from(self.length)]);
        self.pieces.iter().all(|(_, bytes)| !bytes.is_empty())
            && ends.zip(starts).all(|(end, next)| end <= next)
    }

    /// The new value. None if `old` is not the value from which the change was made.
    pub(crate) fn apply(&self, old: &[u8]) -> Option<Vec<u8>> {
        let mut new = old.to_vec();
        new.resize(self.length.into(), 0);
        for (at, bytes) in &self.pieces {
            let at = usize::from(*at);
            new.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        }
        (checksum(&[&new]) == self.checksum).then_some(new)
    }
}

fn offset(at: usize) -> u16 {
    u16::try_from(at).expect("values are shorter than a page")
}

/// Where the first difference at or after `at` begins.
fn next_difference(old: &[u8], new: &[u8], mut at: usize) -> Option<usize> {
    let both = old.len().min(new.len());
    while at + STEP <= both && old[at..at + STEP] == new[at..at + STEP] {
        at += STEP;
    }
    (at..new.len()).find(|&at| differs(old, new, at))
}

/// Where the piece ends that begins at `from`: behind a difference that none follows closely.
fn difference_end(old: &[u8], new: &[u8], from: usize) -> usize {
    let mut end = from + 1;
    while let Some(at) = (end..new.len().min(end + PIECE_HEADER + 1)).find(|&at| differs(old, new, at)) {
        end = at + 1;
    }
    end
}

fn differs(old: &[u8], new: &[u8], at: usize) -> bool {
    old.get(at).copied().unwrap_or(0) != new[at]
}

#[cfg(test)]
mod tests;

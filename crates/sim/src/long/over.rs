//! Ways to fill a volume and to overwrite its contents.

use std::fmt;

use rt::random::Rng;

use super::bytes::{GRANULE, made_by};
use super::{Place, Refused};
use crate::caught::Wrong;

/// Bytes of a read, and of a write unless smaller ones are requested.
pub(super) const PIECE: u64 = 1 << 20;

/// The order of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From start to end.
    Sequential,
    /// Each piece once, in random order.
    Shuffled,
    /// At random offsets and with random lengths up to the given one, as many bytes as there are. Then the bytes that
    /// were missed.
    Anywhere,
}

/// How a volume is filled and overwritten.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Bytes of a block. File sizes are multiples of it.
    pub block_size: u64,
    /// Files that share the available space.
    pub files: u32,
    /// The order of writes to empty files. Not `Anywhere`, because that writes some bytes twice.
    pub filling: Order,
    /// Bytes of a write to an empty file.
    pub filling_bytes: u64,
    /// The order of overwrites.
    pub over: Order,
    /// Limit for the bytes of each overwrite, in granules.
    pub over_bytes: u64,
    /// How many times the size is written in the order `Anywhere`.
    pub times: u64,
    /// While the volume is full, one of this many writes is followed by an fsync; 0 for none.
    pub fsync_every: u64,
    /// Files of less than a block that exist before the volume is filled, and while it is full.
    pub names: u32,
    /// Whether each file is deleted and rewritten while the others are full.
    pub is_replaced: bool,
    /// Whether no block is available after all available space has been written.
    pub is_exact: bool,
}

impl Way {
    /// One large file, which is overwritten anywhere this many times.
    pub fn usual(block_size: u64, times: u64) -> Self {
        Way {
            block_size,
            files: 1,
            filling: Order::Sequential,
            filling_bytes: PIECE,
            over: Order::Anywhere,
            over_bytes: PIECE,
            times,
            fsync_every: 0,
            names: 0,
            is_replaced: false,
            is_exact: true,
        }
    }

    /// Bytes that are written and tracked together.
    pub fn granule(&self) -> u64 {
        GRANULE.min(self.block_size)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files, filled {} by {} bytes", self.files, self.filling, self.filling_bytes)?;
        write!(f, ", written over {} by {} bytes", self.over, self.over_bytes)?;
        match self.fsync_every {
            0 => f.write_str(", never synced")?,
            every => write!(f, ", synced each {every}")?,
        }
        if self.names > 0 {
            write!(f, ", beside {} small ones", self.names)?;
        }
        f.write_str(if self.is_replaced { ", replaced" } else { "" })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Sequential => "in order",
            Order::Shuffled => "in any order",
            Order::Anywhere => "anywhere",
        })
    }
}

/// Where one write begins, and how many bytes it has.
type Piece = (u64, u64);

impl Way {
    /// The writes that fill a file of this size.
    fn filling(&self, size: u64, rng: &mut Rng) -> Vec<Piece> {
        let mut pieces = in_order(size, self.filling_bytes);
        if self.filling == Order::Shuffled {
            rng.shuffle(&mut pieces);
        }
        pieces
    }

    /// The writes that overwrite a file of this size, each byte at least once.
    fn over(&self, size: u64, rng: &mut Rng) -> Vec<Piece> {
        let mut pieces = match self.over {
            Order::Anywhere => return self.anywhere(size, rng),
            Order::Sequential | Order::Shuffled => in_order(size, self.over_bytes),
        };
        if self.over == Order::Shuffled {
            rng.shuffle(&mut pieces);
        }
        pieces
    }

    fn anywhere(&self, size: u64, rng: &mut Rng) -> Vec<Piece> {
        let granule = self.granule();
        let (granules, most) = (size / granule, (self.over_bytes / granule).min(size / granule));
        let (mut pieces, mut left) = (Vec::new(), granules * self.times);
        let mut is_over = vec![false; granules as usize];
        while left > 0 {
            let length = rng.u64(1..=most);
            let at = rng.u64(0..=granules - length);
            is_over[at as usize..(at + length) as usize].fill(true);
            pieces.push((at * granule, length * granule));
            left = left.saturating_sub(length);
        }
        let mut at = 0;
        for same in is_over.chunk_by(|one, other| one == other) {
            let length = same.len() as u64;
            if !same[0] {
                let missing = in_order(length * granule, self.over_bytes);
                pieces.extend(missing.into_iter().map(|(from, length)| (at * granule + from, length)));
            }
            at += length;
        }
        pieces
    }
}

fn in_order(size: u64, bytes: u64) -> Vec<Piece> {
    (0..size).step_by(bytes as usize).map(|at| (at, bytes.min(size - at))).collect()
}

/// A written file, and for each of its granules the number of the write.
pub(super) struct Written {
    file: u32,
    size: u64,
    granule: u64,
    writes: Vec<u64>,
    /// The last write.
    number: u64,
    /// Bytes of all writes.
    pub(super) bytes: u64,
}

impl Written {
    /// A file that will have this size, a multiple of the granule.
    pub(super) fn new(file: u32, size: u64, way: &Way) -> Self {
        let granule = way.granule();
        Written { file, size, granule, writes: vec![0; (size / granule) as usize], number: 0, bytes: 0 }
    }

    /// Fills the empty file up to its size.
    pub(super) fn fill(&mut self, place: &mut impl Place, way: &Way, rng: &mut Rng) -> Result<(), Wrong> {
        for piece in way.filling(self.size, rng) {
            self.write(place, piece)?;
        }
        self.fsync(place)
    }

    /// Appends this many bytes, a multiple of the granule.
    pub(super) fn grow(&mut self, place: &mut impl Place, way: &Way, bytes: u64) -> Result<(), Wrong> {
        let before = self.size;
        self.size += bytes;
        self.writes.resize((self.size / self.granule) as usize, 0);
        for (at, length) in in_order(bytes, way.filling_bytes) {
            self.write(place, (before + at, length))?;
        }
        self.fsync(place)
    }

    /// Overwrites the file.
    pub(super) fn write_over(
        &mut self,
        place: &mut impl Place,
        way: &Way,
        rng: &mut Rng,
    ) -> Result<(), Wrong> {
        for (index, piece) in (1..).zip(way.over(self.size, rng)) {
            self.write(place, piece)?;
            if way.fsync_every > 0 && index % way.fsync_every == 0 {
                self.fsync(place)?;
            }
        }
        self.fsync(place)
    }

    /// Appends a block. False if it is refused for lack of space.
    pub(super) fn grows(&mut self, place: &mut impl Place, way: &Way) -> Result<bool, Wrong> {
        let bytes = made_by(self.granule, self.file, self.size, way.block_size as usize, self.number + 1);
        match place.write(self.file, self.size, &bytes) {
            Err(Refused::NoSpace) => return Ok(false),
            written => written.map_err(|error| error.wrong("appending a block"))?,
        }
        self.number += 1;
        self.size += way.block_size;
        self.bytes += way.block_size;
        self.writes.resize((self.size / self.granule) as usize, self.number);
        self.fsync(place)?;
        Ok(true)
    }

    /// Deletes the file and writes it again, as far as the available space allows.
    pub(super) fn replace(&mut self, place: &mut impl Place, way: &Way, rng: &mut Rng) -> Result<(), Wrong> {
        let failed = |error: Refused| error.wrong(format!("file {}", self.file));
        place.remove(self.file).map_err(failed)?;
        place.create(self.file).map_err(failed)?;
        let offered = place.regain(self.size).map_err(failed)?;
        self.size = self.size.min(offered / way.block_size * way.block_size);
        self.writes.truncate((self.size / self.granule) as usize);
        self.fill(place, way, rng)
    }

    pub(super) fn file(&self) -> u32 {
        self.file
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    fn write(&mut self, place: &mut impl Place, (at, length): Piece) -> Result<(), Wrong> {
        self.number += 1;
        let bytes = made_by(self.granule, self.file, at, length as usize, self.number);
        place.write(self.file, at, &bytes).map_err(|error| {
            let (file, size, number) = (self.file, self.size, self.number);
            error.wrong(format!("write {number} of file {file}: {length} bytes at {at} of {size}"))
        })?;
        self.bytes += length;
        let granules = (at / self.granule) as usize..((at + length) / self.granule) as usize;
        self.writes[granules].fill(self.number);
        Ok(())
    }

    fn fsync(&self, place: &mut impl Place) -> Result<(), Wrong> {
        place.fsync(self.file).map_err(|error| {
            let (file, size, number) = (self.file, self.size, self.number);
            error.wrong(format!("fsync of file {file} of {size} bytes after write {number}"))
        })
    }

    /// Reads and compares the file. Returns its size in bytes.
    pub(super) fn compare(&self, place: &mut impl Place) -> Result<u64, Wrong> {
        let Written { file, size, granule, .. } = *self;
        let mut found = vec![0; PIECE as usize];
        for (piece, writes) in (0..).zip(self.writes.chunks((PIECE / granule) as usize)) {
            let offset = piece * PIECE;
            let found = &mut found[..writes.len() * granule as usize];
            let read = place.read(file, offset, found).map_err(|error| error.wrong("reading"))?;
            if read != (size, found.len()) {
                return Err(Wrong(format!("file {file} at {offset} of {size}: {read:?} was read")));
            }
            for ((index, found), &write) in (0..).zip(found.chunks(granule as usize)).zip(writes) {
                let offset = offset + index * granule;
                if found != made_by(granule, file, offset, granule as usize, write) {
                    return Err(Wrong(format!("file {file} at {offset} differs from write {write}")));
                }
            }
        }
        Ok(size)
    }
}

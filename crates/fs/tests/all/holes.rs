//! A model of the blocks of a file: which contain data, and which are holes.
//!
//! A file system that reports everything as data loses no byte, but sparse files take space. So the results of
//! searches are compared with this model: whole blocks that were never written, or were punched, are holes, and
//! written blocks are data. Blocks that may be either are not compared: blocks that were punched or zeroed in part,
//! the block of the end before a growth, and the first blocks of a file, whose contents may be inline.

/// Contents up to here may have been inline.
const MAYBE_INLINE: u64 = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Data,
    Hole,
    Either,
}

/// The blocks of a file, up to its end.
pub(crate) struct Holes {
    block: u64,
    size: u64,
    blocks: Vec<Known>,
}

impl Holes {
    /// For an empty file.
    pub(crate) fn new(block: u64) -> Self {
        Holes { block, size: 0, blocks: Vec::new() }
    }

    /// The size was set.
    pub(crate) fn resize(&mut self, size: u64) {
        if size > self.size && !self.size.is_multiple_of(self.block) {
            self.forget(self.size, self.size);
        }
        self.size = size;
        self.blocks.resize(size.div_ceil(self.block) as usize, Known::Hole);
        self.forget_inline();
    }

    /// The file grew up to here, unless it was larger.
    pub(crate) fn grow(&mut self, end: u64) {
        if end > self.size {
            self.resize(end);
        }
    }

    pub(crate) fn write(&mut self, at: u64, length: u64) {
        if length > 0 {
            self.grow(at + length);
            let touched = at / self.block..(at + length).div_ceil(self.block);
            self.blocks[touched.start as usize..touched.end as usize].fill(Known::Data);
        }
    }

    pub(crate) fn punch(&mut self, at: u64, length: u64) {
        let end = (at + length).min(self.size);
        self.zero(at, length);
        let whole = at.div_ceil(self.block)..end / self.block;
        if whole.start < whole.end {
            self.blocks[whole.start as usize..whole.end as usize].fill(Known::Hole);
        }
        self.forget_inline();
    }

    /// Zeros, written or not.
    pub(crate) fn zero(&mut self, at: u64, length: u64) {
        let end = (at + length).min(self.size);
        if at < end {
            self.forget(at, end - 1);
        }
    }

    /// Whole blocks were collapsed.
    pub(crate) fn collapse(&mut self, at: u64, length: u64) {
        self.blocks.drain((at / self.block) as usize..((at + length) / self.block) as usize);
        self.size -= length;
        self.forget_inline();
    }

    /// Whole blocks were inserted.
    pub(crate) fn insert(&mut self, at: u64, length: u64) {
        let at = (at / self.block) as usize;
        self.blocks.splice(at..at, std::iter::repeat_n(Known::Hole, (length / self.block) as usize));
        self.size += length;
        self.forget_inline();
    }

    /// Compares the results of searches from `at`, within the file: data (or none), and a hole.
    pub(crate) fn compare(&self, at: u64, data: Option<u64>, hole: u64) -> Result<(), String> {
        let wrong = |called, place, is| {
            Err(format!("looked for from {at}: {place} is called {called}, and is {is:?}"))
        };
        let data = data.unwrap_or(self.size);
        for (block, known) in (at / self.block..).zip(&self.blocks[(at / self.block) as usize..]) {
            let (start, end) = ((block * self.block).max(at), ((block + 1) * self.block).min(self.size));
            if data > start && *known == Known::Data {
                return wrong("a hole", start, known);
            }
            if (start..end).contains(&data) && *known == Known::Hole {
                return wrong("data", data, known);
            }
            if hole > start && *known == Known::Hole {
                return wrong("data up to a hole behind it", start, known);
            }
            if (start..end).contains(&hole) && *known == Known::Data {
                return wrong("a hole", hole, known);
            }
            if start > data.max(hole) {
                break;
            }
        }
        Ok(())
    }

    /// The number of whole blocks that are certainly holes.
    pub(crate) fn count(&self) -> u64 {
        self.blocks.iter().filter(|known| **known == Known::Hole).count() as u64
    }

    fn forget(&mut self, first: u64, last: u64) {
        self.blocks[(first / self.block) as usize..=(last / self.block) as usize].fill(Known::Either);
    }

    fn forget_inline(&mut self) {
        let inline = self.blocks.iter_mut().take((MAYBE_INLINE / self.block).max(1) as usize);
        inline.for_each(|known| *known = Known::Either);
    }
}

#[test]
fn an_implementation_that_reports_no_holes_fails() {
    let mut file = Holes::new(4096);
    file.write(0, 10);
    file.resize(100_000);
    file.write(50_000, 10);
    // Data is in block 12, and may be in the first two.
    assert_eq!(file.compare(20_000, Some(49_152), 20_000), Ok(()));
    assert!(file.compare(20_000, Some(20_000), 100_000).is_err(), "all is data");
    assert!(file.compare(20_000, Some(49_152), 49_152).is_err(), "a hole that begins late");
    assert!(file.compare(20_000, None, 20_000).is_err(), "data is not found");
    assert_eq!(file.compare(50_000, Some(50_000), 53_248), Ok(()));
    assert!(file.compare(50_000, Some(50_000), 50_000).is_err(), "data is called a hole");
    assert!(file.compare(50_000, Some(50_000), 100_000).is_err(), "a hole is not found");
    file.punch(49_000, 5000);
    assert_eq!(file.compare(20_000, None, 20_000), Ok(()));
    assert!(file.compare(20_000, Some(49_152), 20_000).is_err(), "what was punched is data");
    assert_eq!(file.count(), 25 - 2 - 2);
}

//! The allowed contents of a file after a crash.
//!
//! Each block has, as a whole, the contents after one of the writes to it, no earlier than the last acknowledged
//! `fsync` of the file. The size is at least the synced size, and at most the written size. Contents are
//! self-describing: each 64 bytes name the writer, the file, the version of the write and their place, and have a
//! checksum, so that a wrong block shows its origin.
//! the write and their place, and carry a sum, so that a block that is wrong says where it is from.

use anyhow::{Context, Result, ensure};

/// The atomic unit of writes.
pub(super) const BLOCK: usize = 4096;
const LINE: usize = 64;

/// The first bytes of each line.
const MAGIC: [u8; 8] = *b"killtest";

/// The origin of a write: its writer, its file and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) seed: u64,
    pub(super) writer: u64,
    pub(super) file: u64,
    pub(super) version: u64,
}

/// A write.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
}

/// The knowledge about the contents of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    /// The contents when the file was last made durable.
    synced: Vec<u8>,
    /// Later writes, acknowledged or not, in order.
    pending: Vec<Write>,
}

impl Origin {
    /// The bytes of this version at `offset`.
    pub(super) fn bytes(self, offset: usize, length: usize) -> Vec<u8> {
        let first = offset / LINE;
        let last = (offset + length).div_ceil(LINE);
        let lines: Vec<u8> = (first..last).flat_map(|line| self.line(line)).collect();
        let skipped = offset - first * LINE;
        lines[skipped..skipped + length].to_vec()
    }

    fn line(self, number: usize) -> [u8; LINE] {
        let mut line = [0; LINE];
        let words = [self.seed, self.writer, self.file, self.version, number as u64];
        line[..8].copy_from_slice(&MAGIC);
        for (at, word) in words.iter().enumerate() {
            line[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = sum(&line[..48]);
        line[48..56].copy_from_slice(&sum.to_le_bytes());
        line[56..].copy_from_slice(&sum.rotate_left(29).to_be_bytes());
        line
    }
}

/// FNV-1a: sufficient to detect bytes that were never written.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Contents {
    /// The contents of a found file.
    pub(super) fn found(bytes: Vec<u8>) -> Self {
        Contents { synced: bytes, pending: Vec::new() }
    }

    /// Notes an attempted write. It may be found from now on.
    pub(super) fn write(&mut self, write: Write) {
        self.pending.push(write);
    }

    /// Notes that all writes have been acknowledged and made durable.
    pub(super) fn sync(&mut self) {
        for write in self.pending.drain(..) {
            write.apply(&mut self.synced);
        }
    }

    /// The size after all writes.
    pub(super) fn size(&self) -> usize {
        self.pending.iter().map(Write::end).fold(self.synced.len(), usize::max)
    }

    /// Checks that a file may have these contents after a crash.
    pub(super) fn judge(&self, found: &[u8]) -> Result<()> {
        let (least, most) = (self.synced.len(), self.size());
        ensure!(
            (least..=most).contains(&found.len()),
            "it has {} bytes, and must have {least} to {most}",
            found.len()
        );
        for (number, block) in found.chunks(BLOCK).enumerate() {
            self.judge_block(number, block)
                .with_context(|| format!("block {number} of {} bytes: {}", found.len(), describe(block)))?;
        }
        Ok(())
    }

    fn judge_block(&self, number: usize, found: &[u8]) -> Result<()> {
        let start = number * BLOCK;
        let mut image = [0; BLOCK];
        if let Some(rest) = self.synced.get(start..) {
            let length = rest.len().min(BLOCK);
            image[..length].copy_from_slice(&rest[..length]);
        }
        let touches = |write: &&Write| write.offset < start + BLOCK && write.end() > start;
        let mut pending = self.pending.iter().filter(touches);
        let mut versions = 0;
        loop {
            if image[..found.len()] == *found {
                return Ok(());
            }
            versions += 1;
            match pending.next() {
                Some(write) => write.apply_to_block(start, &mut image),
                None => break,
            }
        }
        anyhow::bail!("it is none of the {versions} versions that it may be")
    }
}

impl Write {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }

    fn apply(&self, contents: &mut Vec<u8>) {
        if contents.len() < self.end() {
            contents.resize(self.end(), 0);
        }
        contents[self.offset..self.end()].copy_from_slice(&self.bytes);
    }

    fn apply_to_block(&self, start: usize, block: &mut [u8; BLOCK]) {
        let from = self.offset.max(start);
        let to = self.end().min(start + BLOCK);
        block[from - start..to - start].copy_from_slice(&self.bytes[from - self.offset..to - self.offset]);
    }
}

/// The origins in a block, line by line. Equal lines are counted together.
fn describe(block: &[u8]) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for line in block.chunks(LINE).map(describe_line) {
        match runs.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => runs.push((line, 1)),
        }
    }
    let shown: Vec<String> = runs.into_iter().map(|(line, count)| format!("{count} lines {line}")).collect();
    shown.join(", ")
}

fn describe_line(line: &[u8]) -> String {
    if line.iter().all(|&byte| byte == 0) {
        return "of zeros".to_owned();
    }
    if line.len() < LINE || line[..8] != MAGIC || sum(&line[..48]).to_le_bytes() != line[48..56] {
        return "cut or foreign".to_owned();
    }
    let word = |at: usize| {
        u64::from_le_bytes(line[8 + at * 8..16 + at * 8].try_into().expect("a slice of eight bytes"))
    };
    let place = word(4) as usize * LINE / BLOCK;
    format!("of writer {} file {} version {} block {place}", word(1), word(2), word(3))
}

//! The largest possible file, 8 EiB − 1, with a byte at each end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{SeekFrom, seek};

use super::{Report, Run};
use crate::accept::volume::Volume;

/// The largest offset of POSIX.
const LARGEST: u64 = i64::MAX as u64;
/// Limit for the space of a file with a few blocks.
const TAKEN_BYTES_MAX: u64 = 128 << 10;
const BLOCK: u64 = 4096;

pub(super) fn run(_run: &Run) -> Result<Report> {
    let volume = Volume::make(&["--size", "256M"], &[])?;
    let compared = volume.keep_if_failed("sparse", prove(&volume))?;
    let geometry = format!("sparse file: {}", volume.geometry()?);
    Ok(Report { geometry, counts: vec![("bytes compared of the largest file", compared)] })
}

fn prove(volume: &Volume) -> Result<u64> {
    volume.mount()?;
    let path = volume.dir().join("sparse");
    make(&path)?;
    let mut compared = compare(&path)?;
    volume.unmount()?;
    volume.check()?;
    volume.mount()?;
    compared += compare(&path)?;
    cut(&path)?;
    volume.kill()?;
    volume.mount()?;
    compared += compare_cut(&path)?;
    std::fs::remove_file(&path)?;
    volume.unmount()?;
    volume.check()?;
    Ok(compared)
}

/// The first and the last byte, and one in the middle.
fn marks() -> [(u64, u8); 3] {
    [(0, b'a'), (LARGEST / 2, b'm'), (LARGEST - 1, b'z')]
}

fn make(path: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    for (offset, byte) in marks() {
        file.write_all_at(&[byte], offset).with_context(|| format!("byte {offset} cannot be written"))?;
    }
    ensure!(file.write_at(b"!", LARGEST).is_err(), "a byte behind the last that there can be was written");
    Ok(file.sync_all()?)
}

fn compare(path: &Path) -> Result<u64> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    ensure!(metadata.len() == LARGEST, "the largest file has {} bytes", metadata.len());
    let taken = metadata.blocks() * 512;
    ensure!((3..=TAKEN_BYTES_MAX).contains(&taken), "a file of three bytes takes {taken}");
    for (offset, byte) in marks() {
        let from = offset.saturating_sub(1);
        // Not beyond the maximum, because a range that ends after the largest offset is refused.
        let length = (LARGEST - from).min(3);
        let mut found = vec![0xee; length as usize];
        file.read_exact_at(&mut found, from)?;
        let expected = (from..from + length).map(|at| if at == offset { byte } else { 0 });
        ensure!(found.iter().copied().eq(expected), "{found:?} was read at {from}");
    }
    let block = |offset: u64| offset - offset % BLOCK;
    for (offset, _) in marks() {
        let data = seek(&file, SeekFrom::Data(block(offset).saturating_sub(BLOCK)))?;
        ensure!(data == block(offset), "data is found at {data} and not at {}", block(offset));
        let hole = seek(&file, SeekFrom::Hole(offset))?;
        let end = (block(offset) + BLOCK).min(LARGEST);
        ensure!(hole == end, "a hole is found at {hole} and not at {end}");
    }
    Ok(marks().map(|(offset, _)| (LARGEST - offset.saturating_sub(1)).min(3)).iter().sum())
}

/// Truncates by the last byte, to the half, and back to its length.
fn cut(path: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    for size in [LARGEST - 1, LARGEST / 2, LARGEST] {
        file.set_len(size)?;
    }
    Ok(file.sync_all()?)
}

fn compare_cut(path: &Path) -> Result<u64> {
    let file = File::open(path)?;
    ensure!(file.metadata()?.len() == LARGEST, "the size that was set last is not there");
    let mut byte = [0xee];
    for (offset, expected) in [(0, b'a'), (LARGEST / 2, 0), (LARGEST - 1, 0)] {
        file.read_exact_at(&mut byte, offset)?;
        ensure!(byte[0] == expected, "{byte:?} was read at {offset} after cutting");
    }
    // The block with the earlier end of the file stays, with zeros after that end.
    let behind = LARGEST / 2 + 1;
    assert!(behind.is_multiple_of(BLOCK), "half of the largest file ends one byte before the end of a block");
    ensure!(seek(&file, SeekFrom::Data(behind)).is_err(), "the truncated bytes are still there");
    Ok(3)
}

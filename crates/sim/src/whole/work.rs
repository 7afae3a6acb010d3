//! The operations of a client. They follow only from a seed, so that leaving some out does not change the others.
//!
//! There are few names, so that clients meet existing files: they overwrite them, clone them, and rename them over
//! other files. Many operations are refused, by the model and by the volume.

use rt::random::Rng;

use crate::digest::mix;
use crate::model::{File, Operation};

/// Files, and directories that some of them are in.
const FILES: [&str; 7] = ["a", "b", "c", "d/a", "d/b", "e/a", "d/f/a"];
const DIRECTORIES: [&str; 3] = ["d", "e", "d/f"];

/// The approximate number of blocks of a file.
const BLOCKS: u64 = 14;

/// Limit for an occasional think time, in seconds.
const SECONDS: u64 = 10;

/// The operations of one client in one round.
pub(super) fn operations(seed: u64, count: u32, block: u64) -> Vec<Operation> {
    (0..count)
        .map(|number| operation(&mut Rng::with_seed(mix(&[seed, u64::from(number)])), number, block))
        .collect()
}

fn operation(rng: &mut Rng, number: u32, block: u64) -> Operation {
    match rng.u32(0..100) {
        0..=8 => Operation::Create { path: name(rng) },
        9..=47 => content(rng, number, block),
        48..=65 => names(rng),
        66..=79 => durable(rng),
        80..=83 => attributes(rng),
        84..=86 => Operation::Hold { path: name(rng), handle: handle(number) },
        87 => Operation::Temporary { handle: handle(number) },
        88..=90 => Operation::Release { handle: rng.u8(..) },
        91..=96 => Operation::ReadBack { file: file(rng, number) },
        _ => Operation::Wait { nanoseconds: rng.u64(1..=SECONDS) * 1_000_000_000 },
    }
}

/// Each operation has a handle of its own, so a round has no more operations than handles.
fn handle(number: u32) -> u8 {
    u8::try_from(number).expect("operations of a round are counted in a byte")
}

fn content(rng: &mut Rng, number: u32, block: u64) -> Operation {
    let file = file(rng, number);
    let (first, blocks) = (rng.u64(0..BLOCKS), rng.u64(1..=BLOCKS / 2));
    let (offset, length) = (first * block, blocks * block);
    let (inside, tag) = (rng.u64(0..block), rng.u64(..));
    match rng.u32(0..20) {
        0..=5 => Operation::Write { file, offset, length: length as usize, tag },
        6..=8 => Operation::Write { file, offset: offset + inside, length: 1 + (length / 3) as usize, tag },
        9..=11 => Operation::Append { file, length: 1 + inside as usize, tag },
        12 => Operation::Truncate { file, size: offset + inside },
        13 => Operation::Punch { file, offset: offset + inside, length },
        14 => Operation::Allocate { file, offset, length, keep_size: rng.bool(), clear: rng.bool() },
        15 => Operation::Collapse { file, offset, length },
        16 => Operation::Insert { file, offset, length },
        _ => {
            let at = rng.u64(0..BLOCKS) * block;
            Operation::Clone {
                from: File::Path(name(rng)),
                offset,
                file,
                at,
                length: if rng.bool() { 0 } else { length },
            }
        }
    }
}

fn names(rng: &mut Rng) -> Operation {
    match rng.u32(0..16) {
        0..=3 => Operation::MakeDirectory { path: directory(rng) },
        4..=7 => Operation::Rename { from: name(rng), to: name(rng) },
        8 => Operation::Rename { from: directory(rng), to: directory(rng) },
        9..=11 => Operation::Unlink { path: name(rng) },
        12 => Operation::Link { from: name(rng), to: name(rng) },
        13 => Operation::Exchange { a: name(rng), b: name(rng) },
        14 => Operation::RemoveDirectory { path: directory(rng) },
        _ => Operation::Symlink { target: name(rng), path: format!("link-{}", rng.u32(0..3)) },
    }
}

fn durable(rng: &mut Rng) -> Operation {
    match rng.u32(0..10) {
        0..=4 => Operation::Fsync { file: File::Path(name(rng)), data_only: false },
        5..=6 => Operation::Fsync { file: File::Path(name(rng)), data_only: true },
        7 => Operation::FsyncDirectory { path: String::new() },
        8 => Operation::Sync,
        _ => Operation::Checkpoint,
    }
}

fn attributes(rng: &mut Rng) -> Operation {
    let (file, name) = (File::Path(name(rng)), format!("user.{}", rng.u32(0..2)));
    match rng.u32(0..4) {
        0 => Operation::SetPermissions { file, permissions: if rng.bool() { 0o600 } else { 0o640 } },
        1 => Operation::RemoveXattr { file, name },
        _ => Operation::SetXattr { file, name, value: vec![rng.u8(..); rng.usize(1..900)] },
    }
}

/// A file by its name, or by the handle of an earlier operation.
fn file(rng: &mut Rng, number: u32) -> File {
    match rng.u32(0..8) {
        0 => File::Held(rng.u8(0..=handle(number))),
        _ => File::Path(name(rng)),
    }
}

fn name(rng: &mut Rng) -> String {
    FILES[rng.usize(..FILES.len())].to_owned()
}

fn directory(rng: &mut Rng) -> String {
    DIRECTORIES[rng.usize(..DIRECTORIES.len())].to_owned()
}

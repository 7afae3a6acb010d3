//! Unsynced files that a thread writes beside an application.
//!
//! An application that syncs all the time leaves hardly anything for a cut of the power to take, and little for the
//! volume to do. This thread writes, renames and deletes. When it closes a file, the daemon gets the file's pages,
//! which wait there to become durable. The thread is promised nothing. But each file that is there can be read, and
//! holds what was written to that file once.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rt::thread::{JoinHandle, Stop};

/// The number of files, and the limit for their size: a small part of the smallest volume.
const FILES: u64 = 24;
const BYTES_MAX: usize = 256 << 10;
/// The pause between two files, so that the application gets its turn.
const PAUSE: Duration = Duration::from_millis(2);

pub(super) struct Litter {
    dir: PathBuf,
    writer: Option<JoinHandle<Result<()>>>,
    signs: Arc<Signs>,
}

/// The state that the writer checks between two changes.
#[derive(Default)]
struct Signs {
    /// The mount is about to fail, so errors are expected. The writer continues until then, so that it works when the
    /// daemon crashes.
    bracing: AtomicBool,
    ending: AtomicBool,
}

impl Litter {
    pub(super) fn start(mount: &Path, mut random: fastrand::Rng) -> Result<Self> {
        let dir = mount.join("litter");
        fs::create_dir_all(&dir)?;
        let signs = Arc::new(Signs::default());
        let (seen, place) = (Arc::clone(&signs), dir.clone());
        let writer = rt::thread::spawn("litter", move || {
            while !seen.ending.load(Ordering::SeqCst) {
                let written = change(&place, &mut random);
                if written.is_err() && seen.bracing.load(Ordering::SeqCst) {
                    break;
                }
                written.context("litter, before the crash")?;
                Stop::default().wait(PAUSE);
            }
            Ok(())
        })?;
        Ok(Litter { dir, writer: Some(writer), signs })
    }

    pub(super) fn brace(&self) {
        self.signs.bracing.store(true, Ordering::SeqCst);
    }

    fn end(&self) {
        self.brace();
        self.signs.ending.store(true, Ordering::SeqCst);
    }

    pub(super) fn finish(mut self) -> Result<PathBuf> {
        self.end();
        let writer = self.writer.take().expect("it is taken here and when it is dropped");
        writer.join().map_err(|_| anyhow!("the writer of litter panicked"))??;
        Ok(std::mem::take(&mut self.dir))
    }
}

impl Drop for Litter {
    fn drop(&mut self) {
        self.end();
        if let Some(writer) = self.writer.take() {
            // The result was not requested because another failure is already being reported.
            let _ = writer.join();
        }
    }
}

/// Overwrites a file, renames one over another, or deletes one.
fn change(dir: &Path, random: &mut fastrand::Rng) -> Result<()> {
    let (number, other) = (random.u64(..FILES), random.u64(..FILES));
    let (file, other) = (dir.join(number.to_string()), dir.join(other.to_string()));
    let done = match random.u32(..8) {
        0 => fs::remove_file(&file),
        1 => fs::rename(&file, &other),
        _ => fs::write(&file, contents(random.u64(..), random.usize(1..BYTES_MAX))),
    };
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done.with_context(|| file.display().to_string()),
    }
}

/// A word repeated over and over, which can be recognised.
fn contents(seed: u64, bytes: usize) -> Vec<u8> {
    let word = seed | u64::from_be_bytes(*b"@@@@@@@@");
    let words = std::iter::repeat_n(word.to_le_bytes(), bytes / 8 + 1);
    let mut contents: Vec<u8> = words.flatten().collect();
    contents.truncate(bytes);
    contents
}

/// Reads everything. Returns the number of files.
pub(super) fn verify(dir: &Path) -> Result<u64> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let found = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        judge(&found).with_context(|| path.display().to_string())?;
        files += 1;
    }
    Ok(files)
}

/// Each block must contain one of these words over and over, or zeros where a file has grown and its data was not
/// durable.
fn judge(found: &[u8]) -> Result<()> {
    for (block, bytes) in found.chunks(4096).enumerate() {
        let word = &bytes[..bytes.len().min(8)];
        let is_ours = word.iter().all(|byte| byte & b'@' == b'@') || word.iter().all(|&byte| byte == 0);
        let is_even = bytes.chunks(8).all(|next| next == &word[..next.len()]);
        ensure!(is_ours && is_even, "block {block} contains a word that was never written there: {word:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_are_found() {
        let mut found = contents(12345, 10_000);
        assert!(judge(&found).is_ok());
        found[4096..8192].copy_from_slice(&contents(99, 4096));
        assert!(judge(&found).is_ok(), "a block of another version");
        found[4096..8192].fill(0);
        assert!(judge(&found).is_ok(), "a block that was lost");
        found[5000] ^= 1;
        assert!(judge(&found).is_err(), "a block of two versions");
        assert!(judge(b"something else").is_err());
    }
}

//! A copy of the sources, in which mutants are made.
//!
//! Only changed files are rewritten, so that little is rebuilt.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use support::shell::Line;
use support::workspace;

use super::drawing::hash;

/// Folders whose contents decide whether a missed mutant is tried again.
const WATCHED: [&str; 6] =
    ["crates/rt/", "crates/zone/", "crates/emulated/", "crates/tree/", "crates/extent/", "crates/fs/"];

/// The copy.
pub(crate) struct Copy {
    root: PathBuf,
    sources: u64,
}

impl Copy {
    /// Updates the copy with the files that git knows or would add, as they are in this checkout now.
    pub(crate) fn make(root: &Path) -> Result<Copy> {
        let listed = Line::new("git ls-files --cached --others --exclude-standard").output()?;
        let mut sources = 0;
        for path in listed.lines() {
            let from = workspace::root().join(path);
            // Files that were deleted and are still in git's index are not copied.
            let Ok(bytes) = fs::read(&from) else { continue };
            if WATCHED.iter().any(|folder| path.starts_with(folder)) {
                sources = hash(sources, &[path.as_bytes(), &bytes].concat());
            }
            update(&root.join(path), &bytes)?;
        }
        Ok(Copy { root: root.to_owned(), sources })
    }

    /// The copy of an earlier run, whatever has changed in this checkout since.
    pub(crate) fn as_it_is(root: &Path, sources: u64) -> Copy {
        Copy { root: root.to_owned(), sources }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A hash that changes with sources or tests.
    pub(crate) fn sources(&self) -> u64 {
        self.sources
    }
}

/// Writes the file if its contents differ.
fn update(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let parent = path.parent().expect("a file of the copy lies in a folder");
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;

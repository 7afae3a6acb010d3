//! A copy of the sources, in which mistakes can be made.
//!
//! Only what has changed is written again, so that little is built anew.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use support::shell::Line;
use support::workspace;

use super::drawing::hash;

/// Folders whose text decides whether a mutant that was missed is worth another try.
const WATCHED: [&str; 6] =
    ["crates/rt/", "crates/zone/", "crates/emulated/", "crates/tree/", "crates/extent/", "crates/fs/"];

/// The copy.
pub(crate) struct Copy {
    root: PathBuf,
    sources: u64,
}

impl Copy {
    /// Brings the copy up to date: what git knows or would add, as it is in this checkout now.
    pub(crate) fn make(root: &Path) -> Result<Copy> {
        let listed = Line::new("git ls-files --cached --others --exclude-standard").output()?;
        let mut sources = 0;
        for path in listed.lines() {
            let from = workspace::root().join(path);
            // What was deleted and is still in git's index is in neither.
            let Ok(bytes) = fs::read(&from) else { continue };
            if WATCHED.iter().any(|folder| path.starts_with(folder)) {
                sources = hash(sources, &[path.as_bytes(), &bytes].concat());
            }
            update(&root.join(path), &bytes)?;
        }
        Ok(Copy { root: root.to_owned(), sources })
    }

    /// The copy as an earlier run has left it, whatever has changed in this checkout since.
    pub(crate) fn as_it_is(root: &Path, sources: u64) -> Copy {
        Copy { root: root.to_owned(), sources }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Another number whenever sources or tests are others.
    pub(crate) fn sources(&self) -> u64 {
        self.sources
    }
}

/// Writes the file if it holds anything else.
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

//! Whether the parents of a directory lead to the root.
//!
//! The answer is remembered for every directory on the way, so that checking all directories costs one step for
//! each of them, however deep they are. Memory is bounded by a limit or, where directories are deeper, by their depth:
//! beyond it everything is forgotten.

use rustc_hash::FxHashMap;

use crate::errno::Result;
use crate::types::InodeNo;

/// Directories whose answer is known.
pub(super) struct Ancestors {
    /// Whether the parents lead to the root. A directory on the present way counts as one whose parents do not: a
    /// way that comes back to it is a circle.
    known: FxHashMap<InodeNo, bool>,
    /// At the beginning of a way there are fewer.
    known_max: usize,
}

impl Ancestors {
    pub(super) fn new(known_max: u64) -> Ancestors {
        let known_max = usize::try_from(known_max).unwrap_or(usize::MAX);
        Ancestors { known: FxHashMap::default(), known_max }
    }

    /// Goes up from a directory. `parent_of` tells the parent of a directory; none where that is not known.
    pub(super) fn reach_root(
        &mut self,
        directory: InodeNo,
        mut parent_of: impl FnMut(InodeNo) -> Result<Option<InodeNo>>,
    ) -> Result<bool> {
        if self.known.len() >= self.known_max {
            self.known.clear();
        }
        let (mut way, mut above) = (Vec::new(), Some(directory));
        let reaches = loop {
            let Some(at) = above else { break false };
            if at == InodeNo::ROOT {
                break true;
            }
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            self.known.insert(at, false);
            way.push(at);
            above = parent_of(at)?;
        };
        // A way as long as the limit must not be gone again for each directory on it.
        self.known_max = self.known_max.max(2 * way.len());
        if reaches {
            self.known.extend(way.into_iter().map(|at| (at, true)));
        }
        Ok(reaches)
    }
}

#[cfg(test)]
mod tests;

//! Sets of files for which something must still be done on the kernel's side.
//!
//! A mount has two such sets.
//!
//! **Cut files.** A program that truncates a file and rewrites it has the old contents removed at once, by a request,
//! while the new ones wait in the kernel's page cache. If the removal became durable alone, a crash would leave
//! neither. So the dirty pages of these files are written back before a commit makes the removal durable. A file
//! leaves the set once its pages have been written back after the last cut, or once no program has it open for
//! writing.
//!
//! **Unstored files.** When a write-back fails, the kernel continues with the pages and the size that the file would
//! have. It accepts no size from us as long as it has the inode. So the inode is evicted once no program has it open
//! for writing. A file stays in the set until the kernel has forgotten it.

use std::collections::HashMap;

use fs::InodeNo;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicUsize, Ordering};

/// The number of passes is bounded, because a program can cut files faster than they are written back.
const PASSES_MAX: u32 = 4;

/// A set of marked files.
#[derive(Default)]
pub(crate) struct MarkedFiles {
    /// The number of files, so that most callers need no lock.
    count: AtomicUsize,
    state: Mutex<State>,
    /// Held by the thread that processes all files.
    turn: Mutex<()>,
}

#[derive(Default)]
struct State {
    files: HashMap<InodeNo, Mark>,
    last: Mark,
}

/// The number of the last mark of a file. It rises with each mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl MarkedFiles {
    pub(crate) fn mark(&self, inode: InodeNo) {
        self.change(|state| {
            state.last.0 += 1;
            state.files.insert(inode, state.last);
        });
    }

    pub(crate) fn forget(&self, inode: InodeNo) {
        if !self.is_empty() {
            self.change(|state| {
                state.files.remove(&inode);
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn contains(&self, inode: InodeNo) -> bool {
        !self.is_empty() && self.state.lock().files.contains_key(&inode)
    }

    /// The last mark of a file, if it is in the set.
    pub(crate) fn last_mark(&self, inode: InodeNo) -> Option<Mark> {
        if self.is_empty() { None } else { self.state.lock().files.get(&inode).copied() }
    }

    /// Processes all files, also those that are marked meanwhile: while one large file is written back, many others
    /// can be cut.
    pub(crate) fn process_all(&self, mut process: impl FnMut(InodeNo)) {
        // The next caller then finds nothing left.
        let _turn = self.turn.lock();
        for _ in 0..PASSES_MAX {
            for (inode, mark) in self.all() {
                process(inode);
                self.unmark(inode, mark);
            }
            if self.is_empty() {
                break;
            }
        }
    }

    /// All files, each with its last mark.
    pub(crate) fn all(&self) -> Vec<(InodeNo, Mark)> {
        self.state.lock().files.iter().map(|(&inode, &mark)| (inode, mark)).collect()
    }

    /// Removes a processed file from the set, unless it was marked again after `mark`.
    fn unmark(&self, inode: InodeNo, mark: Mark) {
        self.change(|state| {
            if state.files.get(&inode) == Some(&mark) {
                state.files.remove(&inode);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.count.store(state.files.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_marked_meanwhile_stays_in_the_set() {
        let (noted, file) = (MarkedFiles::default(), InodeNo(7));
        noted.mark(file);
        let seen = noted.all();
        noted.mark(file);
        seen.iter().for_each(|&(inode, mark)| noted.unmark(inode, mark));
        assert!(noted.contains(file), "the second mark still counts");
        noted.process_all(|_| ());
        assert!(noted.is_empty());
    }

    #[test]
    fn files_that_are_marked_meanwhile_are_processed_too() {
        let (noted, mut settled) = (MarkedFiles::default(), Vec::new());
        noted.mark(InodeNo(1));
        noted.process_all(|inode| {
            settled.push(inode.0);
            if inode.0 < 3 {
                noted.mark(InodeNo(inode.0 + 1));
            }
        });
        assert_eq!(settled, [1, 2, 3]);
        assert!(noted.is_empty());
        noted.mark(InodeNo(4));
        let mut count = 0;
        noted.process_all(|inode| {
            noted.mark(inode);
            count += 1;
        });
        assert_eq!(count, PASSES_MAX, "endless marking is left to the next call");
    }

    #[test]
    fn a_forgotten_file_is_not_in_the_set() {
        let noted = MarkedFiles::default();
        noted.forget(InodeNo(1));
        noted.mark(InodeNo(1));
        noted.mark(InodeNo(2));
        noted.forget(InodeNo(1));
        assert!(!noted.contains(InodeNo(1)));
        assert_eq!(noted.all().iter().map(|(inode, _)| inode.0).collect::<Vec<_>>(), [2]);
    }
}

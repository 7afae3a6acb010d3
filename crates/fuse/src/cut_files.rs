//! Files whose old contents were cut off and whose new contents the kernel may still hold.
//!
//! A program that empties a file and writes it anew has the old contents removed at once, by a request, while the new
//! ones wait in the kernel's page cache. If the removal became durable alone, a crash would leave neither. So the dirty
//! pages of these files are written back before a commit makes the removal durable. A file is no longer listed once
//! its pages have been written back after the last cut, or once no program has it open for writing.

use std::collections::HashMap;

use fs::InodeNo;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicUsize, Ordering};

/// The files of one mount.
#[derive(Default)]
pub(crate) struct CutFiles {
    /// How many there are, so that an `fsync` need not lock where there are none.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// For each file the number of its last cut.
    cuts: HashMap<InodeNo, Cut>,
    last: Cut,
}

/// The number of a cut, which rises with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut(u64);

impl CutFiles {
    /// The contents of this file are about to be cut.
    pub(crate) fn note(&self, inode: InodeNo) {
        self.change(|state| {
            state.last.0 += 1;
            state.cuts.insert(inode, state.last);
        });
    }

    /// Nothing that was written to this file before now is in the kernel's cache alone.
    pub(crate) fn forget(&self, inode: InodeNo) {
        if !self.is_empty() {
            self.change(|state| {
                state.cuts.remove(&inode);
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// All of them, each with its last cut.
    pub(crate) fn all(&self) -> Vec<(InodeNo, Cut)> {
        self.state.lock().cuts.iter().map(|(&inode, &cut)| (inode, cut)).collect()
    }

    /// The file was written back after this cut. A later one counts on.
    pub(crate) fn settle(&self, inode: InodeNo, cut: Cut) {
        self.change(|state| {
            if state.cuts.get(&inode) == Some(&cut) {
                state.cuts.remove(&inode);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.count.store(state.cuts.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_that_comes_during_the_write_back_is_not_settled_by_it() {
        let (files, file) = (CutFiles::default(), InodeNo(7));
        files.note(file);
        let seen = files.all();
        files.note(file);
        seen.iter().for_each(|&(inode, cut)| files.settle(inode, cut));
        assert!(!files.is_empty(), "the second cut still counts");
        files.all().into_iter().for_each(|(inode, cut)| files.settle(inode, cut));
        assert!(files.is_empty());
    }

    #[test]
    fn a_file_that_is_forgotten_is_not_listed() {
        let files = CutFiles::default();
        files.forget(InodeNo(1));
        files.note(InodeNo(1));
        files.note(InodeNo(2));
        files.forget(InodeNo(1));
        assert_eq!(files.all().iter().map(|(inode, _)| inode.0).collect::<Vec<_>>(), [2]);
    }
}

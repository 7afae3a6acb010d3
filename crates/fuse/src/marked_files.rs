//! Files for which something must still be done on the kernel's side.
//!
//! A mount has two such sets.
//!
//! **Cut files.** A program that empties a file and writes it anew has the old contents removed at once, by a request,
//! while the new ones wait in the kernel's page cache. If the removal became durable alone, a crash would leave neither.
//! So the dirty pages of these files are written back before a commit makes the removal durable. A file is no longer
//! listed once its pages have been written back after the last cut, or once no program has it open for writing.
//!
//! **Unstored files.** When a write-back fails, the kernel goes on with the pages and the size that the file would have.
//! It takes no size from us as long as it knows the inode. So the inode is evicted once no program has it open for
//! writing. A file is listed until the kernel has forgotten it.

use std::collections::HashMap;

use fs::InodeNo;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicUsize, Ordering};

/// The number of passes is bounded, because a program can cut files faster than they are written back.
const PASSES_MAX: u32 = 4;

/// A set of files.
#[derive(Default)]
pub(crate) struct Noted {
    /// How many there are, so that nobody need lock where there are none.
    count: AtomicUsize,
    state: Mutex<State>,
    /// Of those who do for all of them what was to be done.
    turn: Mutex<()>,
}

#[derive(Default)]
struct State {
    files: HashMap<InodeNo, Note>,
    last: Note,
}

/// The number of the last note of a file. It rises with each note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note(u64);

impl Noted {
    pub(crate) fn note(&self, inode: InodeNo) {
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

    /// The last note of a file, if it is there.
    pub(crate) fn last(&self, inode: InodeNo) -> Option<Note> {
        if self.is_empty() { None } else { self.state.lock().files.get(&inode).copied() }
    }

    /// Does something for all of them, also for those that are noted meanwhile: while one large file is written back,
    /// many others can be cut.
    pub(crate) fn settle_all(&self, mut settle: impl FnMut(InodeNo)) {
        // Others find nothing left when it is their turn.
        let _turn = self.turn.lock();
        for _ in 0..PASSES_MAX {
            for (inode, note) in self.all() {
                settle(inode);
                self.settle(inode, note);
            }
            if self.is_empty() {
                break;
            }
        }
    }

    /// All of them, each with its last note.
    pub(crate) fn all(&self) -> Vec<(InodeNo, Note)> {
        self.state.lock().files.iter().map(|(&inode, &note)| (inode, note)).collect()
    }

    /// What was to be done is done, unless the file was noted again after `note`.
    fn settle(&self, inode: InodeNo, note: Note) {
        self.change(|state| {
            if state.files.get(&inode) == Some(&note) {
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
    fn a_note_that_comes_meanwhile_is_not_settled() {
        let (noted, file) = (Noted::default(), InodeNo(7));
        noted.note(file);
        let seen = noted.all();
        noted.note(file);
        seen.iter().for_each(|&(inode, note)| noted.settle(inode, note));
        assert!(noted.contains(file), "the second note still counts");
        noted.settle_all(|_| ());
        assert!(noted.is_empty());
    }

    #[test]
    fn files_that_are_noted_meanwhile_are_settled_too() {
        let (noted, mut settled) = (Noted::default(), Vec::new());
        noted.note(InodeNo(1));
        noted.settle_all(|inode| {
            settled.push(inode.0);
            if inode.0 < 3 {
                noted.note(InodeNo(inode.0 + 1));
            }
        });
        assert_eq!(settled, [1, 2, 3]);
        assert!(noted.is_empty());
        noted.note(InodeNo(4));
        let mut count = 0;
        noted.settle_all(|inode| {
            noted.note(inode);
            count += 1;
        });
        assert_eq!(count, PASSES_MAX, "who notes without end is left to the next time");
    }

    #[test]
    fn a_file_that_is_forgotten_is_not_listed() {
        let noted = Noted::default();
        noted.forget(InodeNo(1));
        noted.note(InodeNo(1));
        noted.note(InodeNo(2));
        noted.forget(InodeNo(1));
        assert!(!noted.contains(InodeNo(1)));
        assert_eq!(noted.all().iter().map(|(inode, _)| inode.0).collect::<Vec<_>>(), [2]);
    }
}

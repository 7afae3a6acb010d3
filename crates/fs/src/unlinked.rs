//! Files without a name of which somebody still knows the number.
//!
//! Who has found a file may ask for it by its number later, when somebody else has taken its last name away: a kernel
//! that opens what it looked up a moment ago, in which a file itself is mounted somewhere, or which has a descriptor
//! that was opened with `O_PATH`. In a file system that lives in a kernel the file is there as long as anything of that
//! is so. A kernel says when it has forgotten an inode; where somebody passes that on ([`Fs::keep_known`]), a file
//! whose last name goes counts as opened once more until then.
//!
//! Nothing of this is stored: after a crash such a file is an orphan like any other. Nor does it take room from anybody:
//! who finds none has those given up that have blocks, before he is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rt::sync::Mutex;
use rustc_hash::FxHashMap;

use crate::format::Record;
use crate::inodes::{Locked, Node};
use crate::orphan::Work;
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

/// What is kept because it is known.
#[derive(Default)]
pub(crate) struct Known {
    is_kept: AtomicBool,
    /// Each has been counted as opened. Taken after inodes' locks, or without any.
    nameless: Mutex<FxHashMap<InodeNo, Arc<Node>>>,
    /// How many those are, for who forgets one inode after the other of which none is among them.
    count: AtomicUsize,
}

impl Known {
    fn insert(&self, node: Arc<Node>) {
        let mut nameless = self.nameless.lock();
        nameless.insert(node.inode, node);
        self.count.store(nameless.len(), Ordering::SeqCst);
    }

    fn remove(&self, inode: InodeNo) -> Option<Arc<Node>> {
        let mut nameless = self.nameless.lock();
        let node = nameless.remove(&inode);
        self.count.store(nameless.len(), Ordering::SeqCst);
        node
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        self.nameless.lock().values().cloned().collect()
    }
}

impl Fs {
    /// From now on a file that loses its last name is there until [`Fs::forget`] is called for it.
    pub fn keep_known(&self) {
        self.known.is_kept.store(true, Ordering::SeqCst);
    }

    /// Nobody knows this inode any more. Of most nothing was kept.
    pub fn forget(&self, inode: InodeNo) {
        if self.known.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        // A kernel does not wait for this, nor do those who look for room, unless they see that it is in hand.
        let _aside = self.aside.read();
        let _in_hand = self.backlog.take_in_hand();
        let node = self.known.remove(inode);
        if node.is_none_or(|node| node.opens.fetch_sub(1, Ordering::SeqCst) > 1) {
            return;
        }
        self.dispose_in_hand(inode);
    }

    /// Nobody knows anything any more.
    pub fn forget_all(&self) {
        self.known.is_kept.store(false, Ordering::SeqCst);
        self.known.nodes().into_iter().for_each(|node| self.forget(node.inode));
    }

    /// Whether a file like this is there without a name.
    pub(crate) fn keeps_nameless(&self, record: &Record) -> bool {
        record.kind == Kind::File && self.known.is_kept.load(Ordering::SeqCst)
    }

    /// Keeps an inode, which has just lost a name, if that was the last. It is locked.
    pub(crate) fn keep_nameless(&self, locked: &Locked, inode: InodeNo) {
        if locked.record(inode).is_ok_and(|record| record.links == 0 && self.keeps_nameless(record)) {
            let node = self.inodes.node(inode);
            node.opened();
            self.known.insert(node);
        }
    }

    /// Leaves what is kept and has blocks to be deleted; whether there was any. No lock is held.
    pub(crate) fn give_up_known(&self) -> bool {
        // Who sees neither that it is kept nor that it is to be deleted waits for this.
        let _in_hand = self.backlog.take_in_hand();
        let mut any = false;
        for node in self.known.nodes() {
            let has_blocks = node.state.read().record().is_ok_and(|record| !record.has_no_blocks());
            if has_blocks && self.known.remove(node.inode).is_some() {
                node.opens.fetch_sub(1, Ordering::SeqCst);
                self.backlog.push(Work::Reap(node.inode));
                self.backlog.note_advance();
                any = true;
            }
        }
        any
    }
}

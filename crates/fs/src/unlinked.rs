//! Files and directories without a name that are still referenced by inode number.
//!
//! A kernel looks a file up and may use its inode number later, when another program has removed the last name of the
//! file: it opens a file that it has just looked up, a file is bind-mounted, a descriptor was opened with `O_PATH`, or
//! a directory is open or a working directory: the kernel opens directories without a request.
//! In a file system inside the kernel, the file exists as long as such a reference. The kernel reports when it has
//! forgotten an inode. A caller that passes these reports on enables this ([`Fs::keep_unlinked`]). From then on a file
//! or directory that loses its last name counts as open once more until the kernel has forgotten it.
//!
//! None of this is stored: after a crash such a file is an orphan like any other. The exceptions are a directory, and a
//! file whose contents are in its record, both without extended attributes. The transaction that removes the last name
//! also deletes the inode, and memory keeps the record (`State::Detached`). If a later change needs rows, it becomes an
//! orphan.
//!
//! Unlinked files do not hold space that others need: an operation that finds no space has those with blocks deleted
//! before it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rt::sync::Mutex;
use rustc_hash::FxHashMap;

use crate::format::Record;
use crate::inodes::{Locked, Node};
use crate::orphan::Work;
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

/// Notes an inode that has lost its last name.
type Report = Arc<dyn Fn(InodeNo) + Send + Sync>;

/// The unlinked files that are kept because a kernel references them.
#[derive(Default)]
pub(crate) struct UnlinkedFiles {
    is_enabled: AtomicBool,
    /// Each of these nodes has been counted as opened once more. This lock is taken after the locks of inodes.
    files: Mutex<FxHashMap<InodeNo, Arc<Node>>>,
    /// The number of `files`. Most calls of [`Fs::forget`] are for other inodes and need only this.
    count: AtomicUsize,
    /// How many were deleted although a kernel references them.
    given_up: AtomicU64,
    /// Called for each inode that becomes one of them.
    report: Mutex<Option<Report>>,
}

impl UnlinkedFiles {
    fn insert(&self, node: Arc<Node>) {
        let mut files = self.files.lock();
        let inode = node.inode;
        files.insert(inode, node);
        self.count.store(files.len(), Ordering::SeqCst);
        drop(files);
        if let Some(report) = &*self.report.lock() {
            report(inode);
        }
    }

    fn remove(&self, inode: InodeNo) -> Option<Arc<Node>> {
        let mut files = self.files.lock();
        let node = files.remove(&inode);
        self.count.store(files.len(), Ordering::SeqCst);
        node
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        self.files.lock().values().cloned().collect()
    }
}

impl Fs {
    /// From now on a file or directory that loses its last name exists until [`Fs::forget`] is called for it.
    pub fn keep_unlinked(&self) {
        self.unlinked.is_enabled.store(true, Ordering::SeqCst);
    }

    /// The same. `report` is called with each such inode, while locks of inodes are held. It must only note the inode.
    /// A caller that also removes names that the kernel has never looked up needs this: the kernel does not forget what
    /// it does not know.
    pub fn keep_unlinked_and_report(&self, report: Arc<dyn Fn(InodeNo) + Send + Sync>) {
        *self.unlinked.report.lock() = Some(report);
        self.keep_unlinked();
    }

    /// The kernel no longer references this inode. Most inodes are not among the unlinked files.
    pub fn forget(&self, inode: InodeNo) {
        if self.unlinked.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        // A kernel does not wait for this. Operations that need space wait for it, because it is marked as in progress.
        let _background_change = self.background_changes.read();
        let _in_progress = self.backlog.start_work();
        let node = self.unlinked.remove(inode);
        if node.is_none_or(|node| node.opens.fetch_sub(1, Ordering::SeqCst) > 1) {
            return;
        }
        self.dispose_in_progress(inode);
    }

    /// The kernel no longer references any inode.
    pub fn forget_all(&self) {
        self.unlinked.is_enabled.store(false, Ordering::SeqCst);
        *self.unlinked.report.lock() = None;
        self.unlinked.nodes().into_iter().for_each(|node| self.forget(node.inode));
    }

    /// How many unlinked files were deleted before the kernel forgot them, because their space was needed.
    pub fn unlinked_given_up(&self) -> u64 {
        self.unlinked.given_up.load(Ordering::SeqCst)
    }

    /// Whether this file will be kept when it loses its last name.
    pub(crate) fn keeps_unlinked(&self, record: &Record) -> bool {
        matches!(record.kind, Kind::File | Kind::Directory) && self.unlinked.is_enabled.load(Ordering::SeqCst)
    }

    /// Keeps a locked inode that has just lost a name, if that was the last one.
    pub(crate) fn keep_if_unlinked(&self, locked: &Locked, inode: InodeNo) {
        if locked.record(inode).is_ok_and(|record| record.links == 0 && self.keeps_unlinked(record)) {
            let node = self.inodes.node(inode);
            node.opened();
            self.unlinked.insert(node);
        }
    }

    /// Queues the unlinked files that have blocks for deletion. Returns whether there were any. The caller holds no
    /// lock.
    pub(crate) fn release_unlinked(&self) -> bool {
        // For a moment a file is neither here nor in the queue. Operations that need space wait until this is over.
        let _in_progress = self.backlog.start_work();
        let mut any = false;
        for node in self.unlinked.nodes() {
            let has_blocks = node.state.read().record().is_ok_and(|record| !record.has_no_blocks());
            if has_blocks && self.unlinked.remove(node.inode).is_some() {
                node.opens.fetch_sub(1, Ordering::SeqCst);
                self.unlinked.given_up.fetch_add(1, Ordering::SeqCst);
                self.backlog.push(Work::Reap(node.inode));
                self.backlog.note_advance();
                any = true;
            }
        }
        any
    }
}

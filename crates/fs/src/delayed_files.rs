//! The files with delayed writes, and the memory of these writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rt::sync::Mutex;
use rustc_hash::FxHashMap;

use crate::types::InodeNo;

/// A write is appended after this time, if its batch does not become large before.
pub(crate) const DELAY: Duration = Duration::from_millis(5);
/// Buffers in the pool at most.
const POOL_BUFFERS: usize = 2;

/// All files with delayed writes. `N` is a file in memory, which stays there as long as it is listed.
pub(crate) struct DelayedFiles<N> {
    /// The most bytes that are delayed at once. 0: no write is delayed.
    bytes_max: AtomicU64,
    bytes: AtomicU64,
    files: Mutex<Files<N>>,
    /// Buffers for the next batches.
    buffer_pool: Mutex<Vec<Vec<u8>>>,
}

struct Files<N> {
    /// No writes are delayed, because the volume is being closed.
    is_closed: bool,
    /// All files with delayed writes.
    listed: FxHashMap<InodeNo, Listed<N>>,
    /// Files whose queued writes are appended at once, in this order.
    due: VecDeque<InodeNo>,
}

struct Listed<N> {
    node: Arc<N>,
    is_due: bool,
}

impl<N> Default for DelayedFiles<N> {
    fn default() -> Self {
        let files = Files { is_closed: false, listed: FxHashMap::default(), due: VecDeque::new() };
        DelayedFiles {
            bytes_max: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            files: Mutex::new(files),
            buffer_pool: Mutex::default(),
        }
    }
}

impl<N> DelayedFiles<N> {
    /// From now on at most this number of bytes is delayed at once.
    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::SeqCst);
    }

    /// The most bytes that are delayed at once.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::SeqCst)
    }

    /// Counts bytes that are about to be delayed. Returns false if they would be too many.
    pub(crate) fn add_bytes(&self, bytes: u64) -> bool {
        let bytes_max = self.bytes_max();
        let add = |now| Some(now + bytes).filter(|sum| *sum <= bytes_max);
        self.bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok()
    }

    /// Bytes that were counted are not delayed, or not any more.
    pub(crate) fn remove_bytes(&self, bytes: u64) {
        let before = self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "each delayed byte is counted once");
    }

    /// Whether any write is delayed.
    pub(crate) fn any(&self) -> bool {
        !self.files.lock().listed.is_empty()
    }

    /// Lists a file before a write to it is queued. Returns whether it is the only one: then the thread that appends must
    /// be woken. None: the volume is being closed, and the write must not be queued.
    pub(crate) fn list(&self, inode: InodeNo, node: &Arc<N>) -> Option<bool> {
        let mut files = self.files.lock();
        if files.is_closed {
            return None;
        }
        let is_first = files.listed.is_empty();
        files.listed.entry(inode).or_insert_with(|| Listed { node: Arc::clone(node), is_due: false });
        Some(is_first)
    }

    /// The batch of a listed file is large, so it is appended at once. Returns false if the file was due already.
    pub(crate) fn set_due(&self, inode: InodeNo) -> bool {
        let mut files = self.files.lock();
        let listed = files.listed.get_mut(&inode).expect("a file with delayed writes is listed");
        let is_new = !std::mem::replace(&mut listed.is_due, true);
        if is_new {
            files.due.push_back(inode);
        }
        is_new
    }

    /// The file has no delayed writes.
    pub(crate) fn unlist(&self, inode: InodeNo) {
        let mut files = self.files.lock();
        if files.listed.remove(&inode).is_some_and(|listed| listed.is_due) {
            files.due.retain(|due| *due != inode);
        }
    }

    /// The next file whose queued writes are appended at once.
    pub(crate) fn take_due(&self) -> Option<Arc<N>> {
        let mut files = self.files.lock();
        let inode = files.due.pop_front()?;
        let listed = files.listed.get_mut(&inode).expect("a file that is due is listed");
        listed.is_due = false;
        Some(Arc::clone(&listed.node))
    }

    /// From now on no write is delayed, or writes are again.
    pub(crate) fn set_closed(&self, is_closed: bool) {
        self.files.lock().is_closed = is_closed;
    }

    /// All files with delayed writes.
    pub(crate) fn all(&self) -> Vec<Arc<N>> {
        self.files.lock().listed.values().map(|listed| Arc::clone(&listed.node)).collect()
    }

    /// A buffer for a batch.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.buffer_pool.lock().pop().unwrap_or_default()
    }

    /// The contents of a buffer are stored, or lost.
    pub(crate) fn return_buffer(&self, mut buffer: Vec<u8>) {
        self.remove_bytes(buffer.len() as u64);
        buffer.clear();
        let mut pool = self.buffer_pool.lock();
        if pool.len() < POOL_BUFFERS {
            pool.push(buffer);
        }
    }
}

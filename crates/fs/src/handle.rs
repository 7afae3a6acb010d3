//! Open files and directories.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use extent::{Lifetime, ReadPosition};

use crate::errno::{FsError, Result};
use crate::inodes::{Node, State};
use crate::locks::Locker;
use crate::permissions::{READ, WRITE};
use crate::types::{Caller, Changes, InodeNo, Kind, OpenFlags, SetTime};
use crate::volume::Fs;

/// No lifetime was set for the handle.
const AS_THE_FILE: u8 = u8::MAX;

/// An open file or directory. Dropping the last handle of an unlinked inode deletes the inode.
pub struct Handle {
    fs: Weak<Fs>,
    node: Arc<Node>,
    flags: OpenFlags,
    /// Writes do not clear the set-user-id bit: handles of root, and of a kernel that requests the clearing itself.
    keeps_set_id: bool,
    /// The number of the expected lifetime of data that is written through this handle, or [`AS_THE_FILE`].
    lifetime: AtomicU8,
    /// Volume errors up to this number have been reported through this handle.
    errors_seen: AtomicU64,
    /// Where reads through this handle are.
    reader: OnceLock<Arc<ReadPosition>>,
    /// Identifies the handle as a holder of locks.
    pub(crate) locker: Locker,
}

impl Handle {
    /// A handle of a node that was already counted as opened.
    pub(crate) fn new(fs: &Fs, node: Arc<Node>, caller: &Caller, flags: OpenFlags) -> Handle {
        let errors_seen = AtomicU64::new(fs.runtime.errors());
        let keeps_set_id = caller.checked || caller.is_root();
        let lifetime = AtomicU8::new(AS_THE_FILE);
        Handle {
            fs: fs.this.clone(),
            node,
            flags,
            keeps_set_id,
            lifetime,
            errors_seen,
            reader: OnceLock::new(),
            locker: Locker::default(),
        }
    }

    /// The inode.
    pub fn inode(&self) -> InodeNo {
        self.node.inode
    }

    /// The flags with which it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Sets the expected lifetime of data that is written through this handle from now on. It is used for placement.
    /// `None`: the lifetime of the file ([`Fs::set_lifetime`]).
    pub fn set_lifetime(&self, lifetime: Option<Lifetime>) {
        self.lifetime.store(lifetime.map_or(AS_THE_FILE, Lifetime::number), Ordering::Relaxed);
    }

    /// The lifetime that was set.
    pub fn lifetime(&self) -> Option<Lifetime> {
        Lifetime::from_number(self.lifetime.load(Ordering::Relaxed))
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub(crate) fn reader(&self) -> &Arc<ReadPosition> {
        self.reader.get_or_init(Arc::default)
    }

    pub(crate) fn keeps_set_id(&self) -> bool {
        self.keeps_set_id
    }

    pub(crate) fn check_readable(&self) -> Result<()> {
        if self.flags.read { Ok(()) } else { Err(FsError::BadHandle) }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.flags.write { Ok(()) } else { Err(FsError::BadHandle) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(fs) = self.fs.upgrade() {
            fs.drop_locks(self);
            fs.closed(&self.node);
        }
    }
}

impl Node {
    /// Counts a handle. The caller holds the lock of the state, which is present or that of a removed directory.
    pub(crate) fn opened(&self) {
        self.opens.fetch_add(1, Ordering::SeqCst);
    }
}

impl Fs {
    /// Opens an inode.
    pub fn open(&self, caller: &Caller, inode: InodeNo, flags: OpenFlags) -> Result<Handle> {
        let writes = flags.write || flags.truncate;
        if writes {
            self.begin()?;
        }
        let node = self.node(inode)?;
        {
            let state = node.state.read();
            let record = match &*state {
                // A removed directory that a program still uses is empty.
                State::Gone(Some(record)) if record.kind == Kind::Directory => record,
                state => state.record()?,
            };
            match record.kind {
                // It is being deleted and may have lost a part of its contents.
                Kind::File
                    if record.links == 0
                        && node.opens.load(Ordering::SeqCst) == 0
                        && !rt::is_planted("break-open-deleted") =>
                {
                    return Err(FsError::Stale);
                }
                Kind::Directory if writes => return Err(FsError::IsDirectory),
                Kind::Symlink => return Err(FsError::Loop),
                _ => {}
            }
            let wanted = if flags.read { READ } else { 0 } | if writes { WRITE } else { 0 };
            self.check_access(caller, inode, record, wanted)?;
            node.opened();
        }
        let handle = Handle::new(self, node, caller, flags);
        if flags.truncate {
            let kernel = Caller { checked: true, ..caller.clone() };
            let emptied = Changes { size: Some(0), modified: Some(SetTime::Now), ..Changes::default() };
            self.set_attributes(&kernel, inode, &emptied)?;
        }
        Ok(handle)
    }

    /// Drops one handle from the count. The last handle of an inode without a name deletes the inode.
    pub(crate) fn closed(&self, node: &Node) {
        if node.opens.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let is_doomed = node.state.read().record().is_ok_and(|record| record.links == 0);
        if !is_doomed {
            return;
        }
        // A kernel does not wait until a file is closed here.
        let _background_change = self.background_changes.read();
        self.dispose(node.inode);
    }

    /// Makes everything durable that was written through any handle, and all earlier changes of names (fsync,
    /// fdatasync, also of directories). An error of the volume is reported once through each handle that was open
    /// when it happened.
    pub fn fsync(&self, handle: &Handle, _data_only: bool) -> Result<()> {
        // What cannot be stored is among the errors.
        if !rt::is_planted("break-delayed-fsync") {
            drop(self.settle(handle.node()));
        }
        let synced = self.sync_and_note_error();
        let errors = self.runtime.errors();
        if handle.errors_seen.swap(errors, Ordering::SeqCst) < errors {
            return Err(self.runtime.last_error());
        }
        synced
    }

    /// The same for directories, for callers that have no handles of them. After a failure, each call fails until the
    /// volume is mounted again.
    pub fn fsync_directories(&self) -> Result<()> {
        let synced = self.sync_and_note_error();
        match self.store.shutdown_reason() {
            Some(_) => Err(self.runtime.last_error()),
            None => synced,
        }
    }

    fn sync_and_note_error(&self) -> Result<()> {
        self.make_durable().inspect_err(|error| self.runtime.failed(error))
    }
}

/// Threads share volumes and handles.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Fs>();
    shared::<Handle>();
};

//! A mounted volume: formatting, mounting, unmounting, and its overall sizes and state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use extent::{Extents, Recovering};
use rt::order::{LockOrder, Ordered};
use rt::sync::{Mutex, RwLock};
use rt::{Clock, Timestamp};
use tree::{Config, Group, Lsn, Store};
use zone::{Cause, Device, Geometry};

use crate::delayed_files::DelayedFiles;
use crate::errno::{FsError, Result};
use crate::format::{Damaged, FLAG_INLINE, INLINE_MAX, INODE, InodeHeader, NAME_MAX, Record, inode_key};
use crate::inodes::{Inodes, Node};
use crate::locks::Locks;
use crate::numbers::Numbers;
use crate::orphan::Backlog;
use crate::runtime::Runtime;
use crate::types::{FormatOptions, InodeNo, Kind, MountOptions, StatFs, VolumeInfo};
use crate::unlinked::UnlinkedFiles;
use crate::write_rate::WriteRate;

const PAGE_SIZE: u32 = 16 << 10;
const GROUPS: u16 = 8;
const LABEL_MAX: usize = tree::Label::BYTES_MAX;
/// Bytes of node cache for each inode record that is cached beside it. A record holds contents of up to 2 KiB, so
/// `NODES_MAX` records take at most 40 MiB. A volume may need 64 MiB beside its cache, whatever the size of the
/// cache.
const CACHE_BYTES_PER_NODE: u64 = 4096;
const NODES_MIN: u64 = 256;
const NODES_MAX: u64 = 1 << 14;

/// A mounted volume. It is owned by one process. Any number of threads may call it.
pub struct Fs {
    pub(crate) store: Arc<Store>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inodes: Inodes,
    pub(crate) locks: Locks,
    pub(crate) numbers: Numbers,
    pub(crate) backlog: Backlog,
    pub(crate) unlinked: UnlinkedFiles,
    pub(crate) delayed: DelayedFiles<Node>,
    pub(crate) runtime: Runtime,
    /// Held while a directory is moved into another one, because only such moves change ancestors. Taken before the
    /// lock of any inode.
    pub(crate) directory_moves: Ordered<Mutex<()>>,
    pub(crate) user_bytes: AtomicU64,
    pub(crate) rate: WriteRate,
    /// Distinguishes this mount from others. Inodes that it creates carry this number.
    pub(crate) generation: u32,
    /// Opened read-only. This never changes.
    pub(crate) read_only: bool,
    /// Made read-only by [`Fs::make_read_only`], until [`Fs::make_writable`].
    pub(crate) remounted_read_only: AtomicBool,
    /// Everything is durable and the volume is closed. Set only while `remounted_read_only` is.
    pub(crate) closed: AtomicBool,
    /// Held shared by changes of the volume that are not requested by a system call, because the kernel does not wait
    /// for these before it remounts read-only. [`Fs::make_read_only`] takes it exclusively once, after it has set
    /// `remounted_read_only`. This is the first lock in the order.
    pub(crate) background_changes: Ordered<RwLock<()>>,
    /// What recovery found lost of the log.
    pub(crate) lost_log: Option<String>,
    /// For handles, which must not keep the volume alive.
    pub(crate) this: Weak<Fs>,
}

impl Fs {
    /// Whether [`Fs::format`] accepts these options on a device with this geometry. Callers ask before they destroy
    /// the contents of the device.
    pub fn check_format(geometry: &Geometry, options: &FormatOptions) -> Result<()> {
        if options.label.len() > LABEL_MAX || options.groups == Some(0) {
            return Err(FsError::Invalid);
        }
        let tree_options = tree_options(geometry, options, Timestamp(0));
        Store::check_format(geometry, &tree_options)?;
        Ok(extent::check_reserve(geometry, tree_options.page_size, tree_options.groups, options.reserve)?)
    }

    /// Formats an empty volume with a root directory. The contents of the device are lost.
    pub fn format(device: &Arc<dyn Device>, options: &FormatOptions, clock: &dyn Clock) -> Result<()> {
        Self::check_format(device.geometry(), options)?;
        let tree_options = tree_options(device.geometry(), options, clock.now());
        Store::format(device, &tree_options)?;
        let mut recovering = Recovering::new(device.clone());
        let config = Config { cache_bytes: 1 << 20, read_only: false, accept_loss: false };
        let (store, _) = Store::open(device.clone(), &config, &mut recovering)?;
        let store = Arc::new(store);
        let _extents = Extents::open(store.clone(), recovering)?;
        make_root(&store, options, clock.now())?;
        Ok(store.close()?)
    }

    /// Recovers the volume and opens it. Starts no thread.
    pub fn mount(device: Arc<dyn Device>, options: MountOptions) -> Result<(Arc<Fs>, tree::Recovery)> {
        Self::recovered(device, options, false)
    }

    /// The same, but accepts that the newest part of the log is lost. The first write makes this loss final.
    pub fn mount_without_lost(
        device: Arc<dyn Device>,
        options: MountOptions,
    ) -> Result<(Arc<Fs>, tree::Recovery)> {
        Self::recovered(device, options, true)
    }

    /// The part of the log that recovery found lost, so acknowledged changes are missing. Only a volume that was opened
    /// for reading, or without what is lost, can have one.
    pub fn lost_log(&self) -> Option<&str> {
        self.lost_log.as_deref()
    }

    fn recovered(
        device: Arc<dyn Device>,
        options: MountOptions,
        accept_loss: bool,
    ) -> Result<(Arc<Fs>, tree::Recovery)> {
        let mut recovering = Recovering::new(device.clone());
        let config = Config { cache_bytes: options.cache_bytes, read_only: options.read_only, accept_loss };
        let (store, recovery) = Store::open(device.clone(), &config, &mut recovering)?;
        let store = Arc::new(store);
        let extents = Extents::open(store.clone(), recovering)?;
        if !options.read_only {
            device.end_recovery();
        }
        let groups = store.info().groups;
        let nodes_max = (options.cache_bytes / CACHE_BYTES_PER_NODE).clamp(NODES_MIN, NODES_MAX) as usize;
        let fs = Arc::new_cyclic(|this| Fs {
            store,
            extents,
            inodes: Inodes::new(nodes_max),
            locks: Locks::default(),
            numbers: Numbers::new(groups),
            backlog: Backlog::new(options.read_only),
            unlinked: UnlinkedFiles::default(),
            delayed: DelayedFiles::default(),
            runtime: Runtime::new(options.commit_interval_ns),
            // Microseconds distinguish mounts. The number repeats every hour, which does not matter.
            generation: (options.clock.now().0 / 1000) as u32,
            directory_moves: Ordered::mutex(LockOrder::DirectoryMoves, ()),
            user_bytes: AtomicU64::new(0),
            rate: WriteRate::new(options.clock.monotonic_ns()),
            read_only: options.read_only,
            remounted_read_only: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            background_changes: Ordered::rwlock(LockOrder::BackgroundChanges, ()),
            lost_log: recovery.lost.clone(),
            this: this.clone(),
            clock: options.clock,
        });
        fs.store.set_reader(fs.runtime.prefetch_waker());
        fs.extents.maps().readahead().set_reader(fs.runtime.prefetch_waker());
        if fs.node(InodeNo::ROOT)?.state.read().record().is_err() {
            let why = "there is no root directory: the creation of the volume was interrupted (make it again), or it is \
                       damaged (save the files with `polder salvage`)";
            return Err(Damaged(why).into());
        }
        Ok((fs, recovery))
    }

    /// Ends the threads, makes everything durable and closes the volume, so that the next mount replays nothing.
    /// Handles that are still open cannot be used afterwards. Another process may own the device from then on, even if
    /// closing the volume fails.
    pub fn unmount(&self) -> Result<()> {
        let closed = self.close();
        let released = self.store.device().release();
        closed?;
        Ok(released.map_err(tree::StoreError::from)?)
    }

    fn close(&self) -> Result<()> {
        self.runtime.stop_and_join();
        if self.read_only || self.remounted_read_only.load(Ordering::SeqCst) {
            return self.close_read_only();
        }
        self.delayed.set_closed(true);
        let settled = self.settle_all();
        self.extents.learned().save(self.extents.store(), true)?;
        self.extents.close_conventional();
        self.store.sync(self.store.last_lsn())?;
        self.store.close()?;
        settled
    }

    /// Sets which mechanisms data placement uses from now on. By default it uses all of them.
    pub fn set_switches(&self, switches: extent::Switches) {
        self.extents.set_switches(switches);
    }

    /// Makes everything durable that Polder has received.
    pub fn sync(&self) -> Result<()> {
        let settled = self.settle_all();
        self.make_durable().and(settled)
    }

    /// Makes every change durable that is committed.
    pub(crate) fn make_durable(&self) -> Result<()> {
        if self.is_closed() { Ok(()) } else { self.sync_to(self.store.last_lsn()) }
    }

    /// The same for all changes up to this LSN.
    pub(crate) fn sync_to(&self, lsn: Lsn) -> Result<()> {
        // A truncation becomes durable only with the contents that were written after it.
        let lsn = if self.settle_cut_files() { self.store.last_lsn() } else { lsn };
        Ok(self.store.sync(lsn)?)
    }

    /// The sizes that `statfs` reports.
    pub fn statfs(&self) -> Result<StatFs> {
        let space = self.extents.budget().space();
        let block = u64::from(space.block_size);
        let taken = space.live + space.unwritten + space.metadata;
        let available = match self.store.device().host_space() {
            // A full host: available is what it can still store beyond the blocks that are in use.
            Some(host) => space.available.min(host.capacity().saturating_sub(taken + space.pending)),
            None => space.available,
        };
        Ok(StatFs {
            block_size: space.block_size,
            blocks: space.total / block,
            free: space.total.saturating_sub(taken).max(available) / block,
            available: available / block,
            files: space.total / block,
            files_free: available / block,
            name_max: NAME_MAX as u32,
        })
    }

    /// Changes the label of the volume, durably.
    pub fn set_label(&self, label: &str) -> Result<()> {
        if label.len() > LABEL_MAX {
            return Err(FsError::Invalid);
        }
        let _change = self.background_changes.read();
        self.begin()?;
        Ok(self.store.set_label(label)?)
    }

    /// The properties that were chosen when the volume was formatted.
    pub fn volume_info(&self) -> VolumeInfo {
        let info = self.store.info();
        VolumeInfo {
            label: info.label.text(),
            fs_id: info.fs_id,
            created: Timestamp(info.created_ns),
            block_size: self.extents.block_size(),
            page_size: info.page_size,
            groups: info.groups,
            inline_bytes_max: self.inline_bytes_max(),
            format_version: zone::format::FORMAT_VERSION,
        }
    }

    /// How the space is used.
    pub fn space(&self) -> extent::Space {
        self.extents.budget().space()
    }

    /// The data layer.
    pub fn extents(&self) -> &Arc<Extents> {
        &self.extents
    }

    /// The metadata layer.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Bytes that users have written since the mount. This is the denominator of write amplification.
    pub fn user_bytes_written(&self) -> u64 {
        self.user_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of user writes that reach zones in a second, over the last 10 to 20 seconds.
    pub fn data_bytes_per_second(&self) -> u64 {
        self.rate.per_second(self.clock.monotonic_ns(), self.data_bytes())
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.store.traffic().bytes_written(Cause::Data)
    }

    /// The number of cached inodes.
    pub fn inodes_cached(&self) -> usize {
        self.inodes.len()
    }

    /// Whether the volume accepts no changes: it is mounted read-only or has shut down.
    pub fn is_read_only(&self) -> bool {
        self.read_only
            || self.remounted_read_only.load(Ordering::SeqCst)
            || self.store.shutdown_reason().is_some()
    }

    /// The node of an inode. The record is read if it is not cached. The state tells whether the inode exists.
    pub(crate) fn node(&self, inode: InodeNo) -> Result<Arc<Node>> {
        use crate::inodes::State;
        let node = self.inodes.node(inode);
        if matches!(*node.state.read(), State::Unknown) {
            let mut state = node.state.write();
            if matches!(*state, State::Unknown) {
                // It may have been truncated before it was evicted.
                node.delayed.note_cut(self.store.last_lsn());
                *state = match self.store.look(self.group(inode), INODE, &inode_key(inode), Record::decode)? {
                    Some(record) => State::Present(record?),
                    None => State::Gone(None),
                };
            }
        }
        Ok(node)
    }

    pub(crate) fn group(&self, inode: InodeNo) -> Group {
        self.store.group_of(inode.0)
    }

    /// Contents of up to this many bytes are inline in the inode's record.
    pub(crate) fn inline_bytes_max(&self) -> usize {
        INLINE_MAX.min(self.store.value_max() - size_of::<InodeHeader>())
    }

    /// Starts an operation that changes something.
    pub(crate) fn begin(&self) -> Result<()> {
        if self.is_read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Starts an operation that takes space. The caller has locked no inode yet, because this can wait and do GC.
    pub(crate) fn begin_growing(&self) -> Result<()> {
        self.begin()?;
        Ok(self.extents.admit()?)
    }

    /// Runs an operation that takes space. If there is none, finishes the backlog to free some and runs the operation
    /// again. The operation holds no lock when it returns.
    pub(crate) fn with_space<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let mut may_settle = true;
        loop {
            let before = self.backlog.advances();
            match operation() {
                // An error is noted.
                Err(FsError::NoSpace) if std::mem::take(&mut may_settle) && self.delayed.any() => {
                    drop(self.settle_all());
                }
                Err(FsError::NoSpace) if self.make_space(before)? || self.extents.reclaim_for_growth()? => {}
                result => return result,
            }
        }
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.runtime.stop();
    }
}

fn tree_options(geometry: &Geometry, options: &FormatOptions, now: Timestamp) -> tree::FormatOptions {
    tree::FormatOptions {
        fs_id: options.fs_id,
        label: options.label.clone(),
        page_size: options.page_size.unwrap_or(PAGE_SIZE.max(geometry.block_size)),
        groups: options.groups.unwrap_or(GROUPS),
        created_ns: now.0,
        reserve: options.reserve,
    }
}

fn make_root(store: &Store, options: &FormatOptions, now: Timestamp) -> Result<()> {
    let root = Record {
        kind: Kind::Directory,
        permissions: 0o755,
        links: 2,
        uid: options.uid,
        gid: options.gid,
        parent: InodeNo::ROOT,
        ..Record::empty(now)
    };
    let mut tx = tree::Tx::new();
    tx.put(store.group_of(InodeNo::ROOT.0), INODE, inode_key(InodeNo::ROOT), root.encode());
    store.commit(tx)?;
    Ok(())
}

impl Record {
    /// An empty file without a name, created now.
    pub fn empty(now: Timestamp) -> Record {
        Record {
            kind: Kind::File,
            permissions: 0,
            flags: 0,
            links: 0,
            uid: 0,
            gid: 0,
            device: 0,
            generation: 0,
            xattrs: 0,
            size: 0,
            blocks: 0,
            parent: InodeNo(0),
            accessed: now,
            modified: now,
            changed: now,
            born: now,
            lifetime: 0,
            file_class: extent::FileClass::default(),
            object: None,
            content: Vec::new(),
        }
    }

    /// Sets the times for a change of contents.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
    }

    /// Whether the inode can exist in memory alone until it is deleted.
    pub(crate) fn may_be_detached(&self) -> bool {
        self.links == 0 && self.has_no_blocks() && self.xattrs == 0
    }

    /// Whether the inode has no data blocks, so that deleting it removes only its record and attributes.
    pub(crate) fn has_no_blocks(&self) -> bool {
        self.kind != Kind::File || self.flags & FLAG_INLINE != 0
    }
}

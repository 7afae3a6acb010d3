//! A volume in use: making, mounting, unmounting, and what is known of it as a whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use extent::{Extents, Recovering};
use rt::sync::{Mutex, RwLock};
use rt::{Clock, Timestamp};
use tree::{Config, Group, Store};
use zone::{Cause, Device, Geometry};

use crate::errno::{FsError, Result};
use crate::format::{Damaged, FLAG_INLINE, INLINE_MAX, INODE, InodeHeader, NAME_MAX, Record, inode_key};
use crate::inodes::{Inodes, Node};
use crate::known::Known;
use crate::locks::Locks;
use crate::numbers::Numbers;
use crate::orphan::Backlog;
use crate::rate::WriteRate;
use crate::runtime::Runtime;
use crate::types::{FormatOptions, InodeNo, Kind, MountOptions, StatFs, VolumeInfo};

const PAGE_SIZE: u32 = 16 << 10;
const GROUPS: u16 = 8;
const LABEL_MAX: usize = 64;
/// Memory of the node cache for each record that is kept beside it. A record holds contents of up to 2 KiB: the
/// largest number of them takes 40 MiB, of the 64 MiB that a volume may need beside its cache however large that is.
const CACHE_BYTES_PER_NODE: u64 = 4096;
const NODES_MIN: u64 = 256;
const NODES_MAX: u64 = 1 << 14;

/// A mounted volume. One process has it; any number of threads may call.
pub struct Fs {
    pub(crate) store: Arc<Store>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inodes: Inodes,
    pub(crate) locks: Locks,
    pub(crate) numbers: Numbers,
    pub(crate) backlog: Backlog,
    pub(crate) known: Known,
    pub(crate) runtime: Runtime,
    /// Held by whoever moves a directory into another: only then do ancestors change. Taken before
    /// any inode's lock.
    pub(crate) directory_moves: Mutex<()>,
    pub(crate) user_bytes: AtomicU64,
    pub(crate) rate: WriteRate,
    /// Tells this mount from others; the inodes that it makes carry it.
    pub(crate) generation: u32,
    /// Opened for reading only, for good.
    pub(crate) read_only: bool,
    /// Made read-only for the time being.
    pub(crate) held: AtomicBool,
    /// Only while `held`: everything is durable, and the volume closed.
    pub(crate) closed: AtomicBool,
    /// Held shared by what changes the volume without being asked for by an operation that a kernel would wait
    /// for before it makes a mount read-only; alone for a moment by who has set `held`. The first lock.
    pub(crate) aside: RwLock<()>,
    /// For handles, which must not keep the volume.
    pub(crate) me: Weak<Fs>,
}

impl Fs {
    /// Whether [`Fs::format`] would take these options on a device of this shape: asked before what the
    /// device holds is given up.
    pub fn check_format(geometry: &Geometry, options: &FormatOptions) -> Result<()> {
        if options.label.len() > LABEL_MAX || options.groups == Some(0) {
            return Err(FsError::Invalid);
        }
        let tree_options = tree_options(geometry, options, Timestamp(0));
        Store::check_format(geometry, &tree_options)?;
        Ok(extent::check_reserve(geometry, tree_options.page_size, tree_options.groups, options.reserve)?)
    }

    /// Makes an empty volume with a root directory. What the device held is lost.
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

    /// Recovers and opens; starts no thread.
    pub fn mount(device: Arc<dyn Device>, options: MountOptions) -> Result<(Arc<Fs>, tree::Recovery)> {
        Self::recovered(device, options, false)
    }

    /// The same, also where the newest part of the log is lost. Writing makes that final.
    pub fn mount_without_lost(
        device: Arc<dyn Device>,
        options: MountOptions,
    ) -> Result<(Arc<Fs>, tree::Recovery)> {
        Self::recovered(device, options, true)
    }

    fn recovered(
        device: Arc<dyn Device>,
        options: MountOptions,
        accept_loss: bool,
    ) -> Result<(Arc<Fs>, tree::Recovery)> {
        let mut recovering = Recovering::new(device.clone());
        let config = Config { cache_bytes: options.cache_bytes, read_only: options.read_only, accept_loss };
        let (store, recovery) = Store::open(device, &config, &mut recovering)?;
        let store = Arc::new(store);
        let extents = Extents::open(store.clone(), recovering)?;
        let groups = store.info().groups;
        let nodes_max = (options.cache_bytes / CACHE_BYTES_PER_NODE).clamp(NODES_MIN, NODES_MAX) as usize;
        let fs = Arc::new_cyclic(|me| Fs {
            store,
            extents,
            inodes: Inodes::new(nodes_max),
            locks: Locks::default(),
            numbers: Numbers::new(groups),
            backlog: Backlog::new(options.read_only),
            known: Known::default(),
            runtime: Runtime::new(options.commit_interval_ns),
            // Microseconds tell mounts apart; that they come round every hour is no concern.
            generation: (options.clock.now().0 / 1000) as u32,
            directory_moves: Mutex::new(()),
            user_bytes: AtomicU64::new(0),
            rate: WriteRate::new(options.clock.monotonic_ns()),
            read_only: options.read_only,
            held: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            aside: RwLock::new(()),
            me: me.clone(),
            clock: options.clock,
        });
        fs.store.set_reader(fs.runtime.reader());
        if fs.node(InodeNo::ROOT)?.state.read().record().is_err() {
            let why = "there is no root directory: the volume was not finished when it was made, or it is damaged and \
                       `polder salvage` saves what it finds";
            return Err(Damaged(why).into());
        }
        Ok((fs, recovery))
    }

    /// Ends the threads, makes everything durable and closes the volume, so that the next mount
    /// replays nothing. Handles that are still open are of no use afterwards.
    pub fn unmount(&self) -> Result<()> {
        self.runtime.stop_and_join();
        if self.read_only || self.held.load(Ordering::SeqCst) {
            return self.close_held();
        }
        self.extents.save_learned(true)?;
        self.extents.close_conventional();
        self.store.sync(self.store.last_lsn())?;
        Ok(self.store.close()?)
    }

    /// What the placement of data makes use of from now on; everything, unless it is said.
    pub fn set_switches(&self, switches: extent::Switches) {
        self.extents.set_switches(switches);
    }

    /// Everything that has reached Polder becomes durable.
    pub fn sync(&self) -> Result<()> {
        if self.is_closed() {
            return Ok(());
        }
        Ok(self.store.sync(self.store.last_lsn())?)
    }

    /// Makes something durable for a program that waits for it: until then it counts as one that writes, for whoever
    /// would make use of a pause.
    pub(crate) fn awaited<T>(&self, make_durable: impl FnOnce() -> T) -> T {
        let writing = self.extents.writing();
        let done = make_durable();
        drop(writing);
        self.wake_for_space();
        done
    }

    /// Sizes of the volume.
    pub fn statfs(&self) -> Result<StatFs> {
        let space = self.extents.space();
        let block = u64::from(space.block_size);
        let taken = space.live + space.unwritten + space.metadata;
        let available = match self.store.device().host_room() {
            // A host that is full: what it can still give, beside what its blocks are taken for already.
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

    /// What was decided when the volume was made.
    pub fn volume_info(&self) -> VolumeInfo {
        let info = self.store.info();
        VolumeInfo {
            label: info.label.clone(),
            fs_id: info.fs_id,
            created: Timestamp(info.created_ns),
            block_size: self.extents.block_size(),
            page_size: info.page_size,
            groups: info.groups,
            inline_bytes_max: self.inline_bytes_max(),
            format_version: zone::format::FORMAT_VERSION,
        }
    }

    /// Where the space is.
    pub fn space(&self) -> extent::Space {
        self.extents.space()
    }

    /// The data below.
    pub fn extents(&self) -> &Arc<Extents> {
        &self.extents
    }

    /// The metadata below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Bytes that users have written since the mount: the denominator of write amplification.
    pub fn user_bytes_written(&self) -> u64 {
        self.user_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of fresh data that come to zones in a second, over the last 10 to 20.
    pub fn data_bytes_per_second(&self) -> u64 {
        self.rate.per_second(self.clock.monotonic_ns(), self.data_bytes())
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.store.traffic().bytes_written(Cause::Data)
    }

    /// Inodes in memory.
    pub fn inodes_cached(&self) -> usize {
        self.inodes.len()
    }

    /// Whether the volume takes no changes: mounted so, or latched.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.held.load(Ordering::SeqCst) || self.store.latched().is_some()
    }

    /// The inode, read if it is not in memory; whether it exists is seen in its state.
    pub(crate) fn node(&self, inode: InodeNo) -> Result<Arc<Node>> {
        use crate::inodes::State;
        let node = self.inodes.node(inode);
        if matches!(*node.state.read(), State::Unknown) {
            let mut state = node.state.write();
            if matches!(*state, State::Unknown) {
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

    /// Contents of up to this many bytes lie in the inode's record.
    pub(crate) fn inline_bytes_max(&self) -> usize {
        INLINE_MAX.min(self.store.value_max() - size_of::<InodeHeader>())
    }

    /// Begins an operation that changes something.
    pub(crate) fn begin(&self) -> Result<()> {
        if self.is_read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Begins an operation that takes space. No inode is locked yet: this may clean and collect.
    pub(crate) fn begin_growing(&self) -> Result<()> {
        self.begin()?;
        Ok(self.extents.admit()?)
    }

    /// Runs an operation that takes space; where there is none, deletes what waits to be deleted
    /// and runs it again. The operation holds no lock when it returns.
    pub(crate) fn with_room<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let before = self.backlog.advances();
            match operation() {
                Err(FsError::NoSpace) if self.make_room(before)? || self.extents.win_back()? => {}
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
    /// An empty file without a name, made now.
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
            data_kind: extent::Kind::default(),
            object: None,
            content: Vec::new(),
        }
    }

    /// Contents changed.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
    }

    /// Whether nothing but the record (and attributes) has to go when the inode does.
    pub(crate) fn has_no_blocks(&self) -> bool {
        self.kind != Kind::File || self.flags & FLAG_INLINE != 0
    }
}

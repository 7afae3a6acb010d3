//! Drives a mounted file system and the model together. Each operation is performed on both, and both must give the
//! same result.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emulated::{CommandKind, Emulated, Fault};
use fs::{Changes, FallocateMode, Fs, FsError, Handle, InodeNo, OpenFlags, RenameFlags};
use rt::ManualClock;
use rt::random::Rng;
use rt::schedule::{self, Body};
use rt::sync::Mutex;
use tree::Lsn;
use zone::Device;

use super::company::Account;
use super::observe::{self, caller};
use crate::allowed::FilesState;
use crate::caught::{Wrong, caught};
use crate::digest::mix;
use crate::history::History;
use crate::model::{File, Model, Operation, operation_bytes};
use crate::shows::{Reading, Sign};
use crate::store::ZoneFailure;

const WRITING: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

/// The error of an operation that read other bytes or attributes than were written.
const MISREAD: &str = "reads other bytes or attributes than were written";

/// Limit for the syncs of the second thread while a range is collapsed or inserted.
const SYNCS_AMID: u32 = 200;

/// The driver of a mounted file system.
pub struct Driver {
    /// The mounted file system.
    pub fs: Arc<Fs>,
    /// The device below.
    pub device: Arc<Emulated>,
    /// The states that may be found, for each moment.
    pub history: History<FilesState>,
    /// The inode of the model's root directory.
    root: InodeNo,
    /// The notes for the histories of the other clients. `None` if there are no other clients.
    pub(super) account: Option<Account>,
    model: Model,
    held: BTreeMap<u8, Held>,
    clock: Arc<ManualClock>,
    /// After each operation: the newest record, and the index of the state.
    pub(super) commits: Vec<(Lsn, usize)>,
    rng: Rng,
    /// Limit for background steps between two operations.
    pub steps_between: u32,
    /// While one thread writes, a second thread looks for zones that can be reset.
    pub reclaims_amid: bool,
    /// Treat a lack of space like a device failure: the first of several steps of an operation may have been done.
    pub lacks_space: bool,
    /// Operations that were refused for lack of space although the model has space for them.
    pub without_space: u64,
    /// Moments in the middle of an operation at which its completed part became durable.
    amid: Cell<u64>,
    /// Inodes that have lost a name or a handle. An inode that has lost all of them, and that no kernel references,
    /// cannot be opened any more.
    dropped: BTreeMap<InodeNo, Referenced>,
    /// Whether the client is a kernel. For each operation it opens the file that a program holds, and it references an
    /// inode until some time after the last name and the last program are gone.
    is_kernel: bool,
    /// Whether the volume delays writes.
    delays: bool,
}

/// A file or directory that a program holds.
enum Held {
    /// Here it is an open handle.
    Open(Handle),
    /// A kernel knows its number.
    Known(InodeNo),
}

impl Held {
    fn inode(&self) -> InodeNo {
        match self {
            Held::Open(handle) => handle.inode(),
            Held::Known(inode) => *inode,
        }
    }
}

/// Whether a kernel references an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Referenced {
    ByKernel,
    No,
}

impl Driver {
    /// Closes all held files.
    pub fn close_all(&mut self) {
        self.held.clear();
        self.fs.forget_all();
    }

    /// Continues from the newest state of the history.
    pub fn new(
        fs: Arc<Fs>,
        device: Arc<Emulated>,
        clock: Arc<ManualClock>,
        history: History<FilesState>,
        rng: Rng,
        steps_between: u32,
    ) -> Self {
        let model = history.newest().model.clone();
        Driver {
            fs,
            device,
            history,
            root: InodeNo::ROOT,
            account: None,
            model,
            held: BTreeMap::new(),
            clock,
            commits: Vec::new(),
            rng,
            steps_between,
            reclaims_amid: false,
            lacks_space: false,
            without_space: 0,
            amid: Cell::new(0),
            dropped: BTreeMap::new(),
            is_kernel: false,
            delays: false,
        }
    }

    /// From now on the client is a kernel.
    pub fn as_kernel(mut self) -> Self {
        self.fs.keep_unlinked();
        self.is_kernel = true;
        self
    }

    /// From now on the volume delays writes of up to this number of bytes.
    pub fn delaying(mut self, bytes_max: u64) -> Self {
        self.fs.delay_writes(bytes_max);
        self.delays = true;
        self
    }

    /// From now on works below this directory. Other clients work below other directories.
    pub fn in_company(mut self, root: InodeNo) -> Self {
        (self.root, self.account) = (root, Some(Account::default()));
        self
    }

    /// Forgets the history. The recording begins here, and everything is durable.
    pub fn restart(&mut self) -> Result<(), Wrong> {
        self.fs.sync().map_err(|error| Wrong::at("sync", error))?;
        self.model.settle_all();
        self.device.record();
        self.history = History::from(FilesState::new(self.model.clone()));
        self.commits.clear();
        Ok(())
    }

    /// Performs the operations one by one, until all signs in `wanted` have risen since `before`.
    pub fn run_until(
        &mut self,
        operations: &[Operation],
        before: &Reading,
        wanted: &[Sign],
    ) -> Result<(), Wrong> {
        for operation in operations {
            if self.reading().since(before).check(wanted).is_ok() {
                break;
            }
            self.run(std::slice::from_ref(operation))?;
        }
        Ok(())
    }

    /// The current counts.
    pub fn reading(&self) -> Reading {
        let moved = self.fs.extents().collector().stats().blocks_moved;
        Reading::of(&self.device, self.fs.store(), moved).with(Sign::Amid, self.amid.get())
    }

    /// Performs all operations, with background steps between them.
    pub fn run(&mut self, operations: &[Operation]) -> Result<(), Wrong> {
        for operation in operations {
            self.operate(operation).map_err(|wrong| Wrong(format!("{operation}: {wrong}")))?;
            self.clock.advance(10_000_000);
            for _ in 0..self.rng.u32(0..=self.steps_between) {
                self.step()?;
            }
            self.note_durable();
        }
        Ok(())
    }

    fn step(&self) -> Result<(), Wrong> {
        self.fs.step().map(|_| ()).map_err(|error| Wrong::at("step", error))
    }

    fn operate(&mut self, operation: &Operation) -> Result<(), Wrong> {
        match self.attempt(operation)? {
            None => Ok(()),
            Some(failed) => Err(Wrong(format!("gives {:?}", failed.error))),
        }
    }

    /// Performs an operation on a device whose commands may fail. If it fails, any part of it may have been done.
    pub fn attempt(&mut self, operation: &Operation) -> Result<Option<Failed>, Wrong> {
        let (begun, lsn) = (self.device.commands(), self.fs.store().last_lsn());
        let mut after = self.model.clone();
        let expected = after.apply(operation);
        if self.delays && expected.is_ok() {
            settle_renamed(&self.model, &mut after, operation);
        }
        self.history.begin(begun, FilesState::after(operation, after.clone()));
        self.note_dropped(operation);
        let done = self.perform(operation);
        let succeeded = done.is_ok();
        self.open_deleted()?;
        match (done, expected) {
            (Ok(written), Ok(())) => self.model = self.after_write(operation, written, begun, after),
            (Err(FsError::NoSpace), Ok(())) => {
                self.without_space += 1;
                if self.lacks_space {
                    return Ok(Some(Failed { error: FsError::NoSpace, after }));
                }
                self.history.withdraw();
                return Ok(None);
            }
            (Err(refused), Err(expected)) if refused == expected => {}
            // What nothing but a kernel references is deleted if the space is needed.
            (Err(FsError::Stale), _) if self.has_given_up() && self.uses_nameless(operation) => {
                self.history.withdraw();
                return Ok(None);
            }
            // A drawn operation may have several reasons to be refused. It is not promised which of them is reported.
            (Err(refused), Err(_)) if self.account.is_some() && !is_of_device(&refused) => {}
            (Err(error), _) if is_of_device(&error) => return Ok(Some(Failed { error, after })),
            (done, expected) => return Err(Wrong(format!("gives {done:?}, should give {expected:?}"))),
        }
        self.commits.push((self.fs.store().last_lsn(), self.history.last()));
        self.note_span(lsn);
        if succeeded {
            self.acknowledge(operation, lsn);
        }
        Ok(None)
    }

    /// Notes the inode from which an operation takes a name or a handle, while the inode can still be found.
    fn note_dropped(&mut self, operation: &Operation) {
        let known = if self.is_kernel { Referenced::ByKernel } else { Referenced::No };
        let dropped = match operation {
            Operation::Unlink { path }
            | Operation::RemoveDirectory { path }
            | Operation::Rename { to: path, .. } => self.resolve(path).ok().map(|inode| (inode, known)),
            Operation::Release { handle } => self.held.get(handle).map(|held| match held {
                Held::Open(handle) => (handle.inode(), Referenced::No),
                Held::Known(inode) => (*inode, known),
            }),
            _ => None,
        };
        self.dropped.extend(dropped);
    }

    /// A file with neither name nor handle cannot be opened by its number any more: it may already have lost a part
    /// of its contents. While a kernel references it, it can be opened; the kernel may forget it at any time.
    fn open_deleted(&mut self) -> Result<(), Wrong> {
        let (volume, has_given_up) = (&self.fs, self.has_given_up());
        // Only a later mount reuses the number of a deleted inode.
        self.dropped.retain(|&inode, _| volume.attributes(inode).is_ok());
        for (&inode, referenced) in &mut self.dropped {
            let is_held = self.held.values().any(|held| held.inode() == inode);
            let Ok(found) = volume.attributes(inode) else { continue };
            if is_held || found.links > 0 {
                continue;
            }
            let opens = || volume.open(&caller(), inode, observe::READING).is_ok();
            if *referenced == Referenced::ByKernel {
                if !opens() && !has_given_up {
                    return Err(Wrong(format!("inode {} is referenced, and is not opened", inode.0)));
                }
                if self.rng.bool() {
                    continue;
                }
                volume.forget(inode);
                *referenced = Referenced::No;
            }
            // A removed directory can still be opened through its number, and is empty.
            if found.kind == fs::Kind::File && opens() {
                return Err(Wrong(format!("inode {} is opened while it is being deleted", inode.0)));
            }
        }
        Ok(())
    }

    /// Whether files that a kernel references were deleted for their space.
    fn has_given_up(&self) -> bool {
        self.fs.unlinked_given_up() > 0
    }

    /// Whether an operation is on a file without a name that only a kernel references.
    fn uses_nameless(&self, operation: &Operation) -> bool {
        let is_nameless = |file: &File| match file {
            File::Held(handle) => {
                matches!(self.held.get(handle), Some(Held::Known(_))) && self.model.links(file) == Ok(0)
            }
            File::Path(_) => false,
        };
        operation.files().into_iter().flatten().any(is_nameless)
    }

    /// Advances the clock after an operation and runs background steps. Returns their error, if one fails.
    pub fn pause(&mut self) -> Option<FsError> {
        self.clock.advance(10_000_000);
        let steps = self.rng.u32(0..=self.steps_between);
        let failed = (0..steps).find_map(|_| self.fs.step().err());
        self.note_durable();
        failed
    }

    /// Takes over the state that the volume has after a failed operation.
    pub fn adopt(&mut self, model: Model) {
        self.model = model;
        self.history.begin(self.device.commands(), FilesState::new(self.model.clone()));
        self.commits.push((self.fs.store().last_lsn(), self.history.last()));
    }

    /// Notes that a recovery has ended after this many commands, and the state that it found.
    pub fn settle(&mut self, commands: u64, found: FilesState) {
        self.model = found.model.clone();
        self.history.settle(commands, Arc::new(found));
    }

    /// The current model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model after an operation. A write that ended early for lack of space is a shorter write.
    fn after_write(
        &mut self,
        operation: &Operation,
        written: Option<usize>,
        begun: u64,
        whole: Model,
    ) -> Model {
        let Some(shorter) = written.and_then(|written| operation.shortened(written)) else { return whole };
        let mut after = self.model.clone();
        after.apply(&shorter).expect("the whole write was possible in the model");
        self.history.withdraw();
        self.history.begin(begun, FilesState::new(after.clone()));
        after
    }

    /// Notes the promise of an fsync or sync that has returned. `lsn` was the newest LSN before it.
    fn acknowledge(&mut self, operation: &Operation, lsn: Lsn) {
        match operation {
            Operation::Fsync { file, .. } => self.model.settle(file),
            Operation::Sync | Operation::Checkpoint => self.model.settle_all(),
            Operation::FsyncDirectory { .. } => {}
            _ => return,
        }
        let now = self.device.commands();
        self.history.begin(now, FilesState::new(self.model.clone()));
        match &mut self.account {
            None => self.history.promise(now, self.history.last()),
            Some(account) => account.durable(now, lsn),
        }
    }

    /// Everything that the store reports as durable is promised, no matter which client asked for it.
    fn note_durable(&mut self) {
        let durable = self.fs.store().durable_lsn();
        if let Some(account) = &mut self.account {
            account.durable(self.device.commands(), durable);
        } else if let Some((_, state)) = self.commits.iter().rev().find(|(lsn, _)| *lsn <= durable) {
            self.history.promise(self.device.commands(), *state);
        }
    }

    fn resolve(&self, path: &str) -> Result<InodeNo, FsError> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(self.root, |inode, name| {
            self.fs.lookup(&caller(), inode, name.as_bytes()).map(|attributes| attributes.inode)
        })
    }

    fn parent<'a>(&self, path: &'a str) -> Result<(InodeNo, &'a [u8]), FsError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.resolve(parent)?, name.as_bytes()))
    }

    /// Performs an operation. For writes: how many bytes were written.
    fn perform(&mut self, operation: &Operation) -> Result<Option<usize>, FsError> {
        match operation {
            Operation::Write { file, .. } | Operation::Append { file, .. } => self.with_file(file, operation),
            _ => self.perform_other(operation).map(|()| None),
        }
    }

    fn perform_other(&mut self, operation: &Operation) -> Result<(), FsError> {
        match operation {
            Operation::Hold { path, handle } => {
                let inode = self.resolve(path)?;
                let held = match self.is_kernel {
                    true => Held::Known(inode),
                    false => Held::Open(self.fs.open(&caller(), inode, WRITING)?),
                };
                self.held.insert(*handle, held);
                Ok(())
            }
            Operation::Temporary { handle } => {
                let (_, open) = self.fs.temporary_file(&caller(), self.root, 0o600, WRITING)?;
                self.held.insert(*handle, Held::Open(open));
                Ok(())
            }
            Operation::Release { handle } => self.held.remove(handle).map(drop).ok_or(FsError::BadHandle),
            Operation::Sync => self.fs.sync(),
            Operation::Checkpoint => self.fs.store().checkpoint().map_err(FsError::from),
            Operation::Steps { count } => (0..*count).try_for_each(|_| self.fs.step().map(|_| ())),
            Operation::Wait { nanoseconds } => {
                self.clock.advance(*nanoseconds);
                Ok(())
            }
            Operation::Fail(failure) => self.fail(*failure),
            _ => match operation.file() {
                Some(file) => self.with_file(file, operation).map(|_| ()),
                None => self.with_names(operation),
            },
        }
    }

    fn with_names(&self, operation: &Operation) -> Result<(), FsError> {
        let (fs, user) = (&self.fs, &caller());
        match operation {
            Operation::Create { path } => {
                let (parent, name) = self.parent(path)?;
                fs.create(user, parent, name, 0o644, WRITING, true).map(|_| ())
            }
            Operation::MakeDirectory { path } => {
                let (parent, name) = self.parent(path)?;
                fs.make_directory(user, parent, name, 0o755).map(|_| ())
            }
            Operation::RemoveDirectory { path } => {
                let (parent, name) = self.parent(path)?;
                fs.remove_directory(user, parent, name)
            }
            Operation::Symlink { target, path } => {
                let (parent, name) = self.parent(path)?;
                fs.symlink(user, parent, name, target.as_bytes()).map(|_| ())
            }
            Operation::Link { from, to } => {
                let (inode, (parent, name)) = (self.resolve(from)?, self.parent(to)?);
                fs.link(user, inode, parent, name).map(|_| ())
            }
            Operation::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                fs.unlink(user, parent, name)
            }
            Operation::Rename { from, to } => self.rename(from, to, RenameFlags::default()),
            Operation::Exchange { a, b } => {
                self.rename(a, b, RenameFlags { exchange: true, ..RenameFlags::default() })
            }
            Operation::SetPermissions { file, permissions } => {
                let changes = Changes { permissions: Some(*permissions), ..Changes::default() };
                fs.set_attributes(user, self.inode(file)?, &changes).map(|_| ())
            }
            Operation::SetXattr { file, name, value } => {
                fs.set_xattr(user, self.inode(file)?, name.as_bytes(), value, false, false)
            }
            Operation::RemoveXattr { file, name } => {
                fs.remove_xattr(user, self.inode(file)?, name.as_bytes())
            }
            Operation::FsyncDirectory { path } => {
                let handle = fs.open(user, self.resolve(path)?, observe::READING)?;
                fs.fsync(&handle, false)
            }
            other => unreachable!("{other} is not an operation on names"),
        }
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<(), FsError> {
        let ((parent, name), (new_parent, new_name)) = (self.parent(from)?, self.parent(to)?);
        self.fs.rename(&caller(), parent, name, new_parent, new_name, flags)
    }

    fn inode(&self, file: &File) -> Result<InodeNo, FsError> {
        match file {
            File::Held(handle) => self.held.get(handle).map(Held::inode).ok_or(FsError::BadHandle),
            File::Path(path) => self.resolve(path),
        }
    }

    fn with_handle<T>(
        &self,
        file: &File,
        flags: OpenFlags,
        then: impl FnOnce(&Handle) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        if let File::Held(number) = file
            && let Some(Held::Open(handle)) = self.held.get(number)
        {
            return then(handle);
        }
        then(&self.fs.open(&caller(), self.inode(file)?, flags)?)
    }

    fn with_file(&self, file: &File, operation: &Operation) -> Result<Option<usize>, FsError> {
        self.with_handle(file, WRITING, |handle| self.on_handle(handle, operation))
    }

    fn on_handle(&self, handle: &Handle, operation: &Operation) -> Result<Option<usize>, FsError> {
        let fs = &self.fs;
        let size = || fs.attributes_but_blocks(handle.inode()).map(|attributes| attributes.size);
        let write = |offset, length, tag| self.write(handle, offset, &operation_bytes(tag, length));
        match operation {
            Operation::Write { offset, length, tag, .. } => return write(*offset, *length, *tag).map(Some),
            Operation::Append { length, tag, .. } => return write(size()?, *length, *tag).map(Some),
            Operation::Truncate { size, .. } => {
                let changes = Changes { size: Some(*size), ..Changes::default() };
                self.fs.set_attributes(&caller(), handle.inode(), &changes)?;
            }
            Operation::Punch { offset, length, .. } => {
                self.fs.allocate(handle, FallocateMode::PunchHole, *offset, *length)?;
            }
            Operation::Allocate { offset, length, keep_size, clear, .. } => {
                let keep_size = *keep_size;
                let mode = match clear {
                    true => FallocateMode::ZeroRange { keep_size },
                    false => FallocateMode::Allocate { keep_size },
                };
                self.fs.allocate(handle, mode, *offset, *length)?;
            }
            Operation::Collapse { offset, length, .. } => {
                let collapse = || fs.allocate(handle, FallocateMode::CollapseRange, *offset, *length);
                self.amid_syncs((*offset, *length), collapse)?;
            }
            Operation::Insert { offset, length, .. } => {
                let insert = || fs.allocate(handle, FallocateMode::InsertRange, *offset, *length);
                self.amid_syncs((*offset, *length), insert)?;
            }
            Operation::Clone { from, offset, at, length, .. } => {
                self.with_handle(from, observe::READING, |source| {
                    let clone = || fs.clone_range(source, *offset, handle, *at, *length);
                    self.amid_syncs((*at, *length), clone)
                })?;
            }
            Operation::Fsync { data_only, .. } => self.fs.fsync(handle, *data_only)?,
            Operation::ReadBack { file } => {
                let expected = self.model.content(file)?.bytes();
                if observe::read_all(&self.fs, handle, size()?)? != expected {
                    return Err(FsError::Io(MISREAD.to_owned()));
                }
                let (permissions, xattrs) = self.model.attributes(file)?;
                if fs.attributes(handle.inode())?.permissions != permissions
                    || &observe::xattrs(fs, handle.inode())? != xattrs
                {
                    return Err(FsError::Io(MISREAD.to_owned()));
                }
            }
            other => unreachable!("{other} is not an operation on a file"),
        }
        Ok(None)
    }

    fn write(&self, handle: &Handle, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let fs = &self.fs;
        if !self.reclaims_amid {
            return fs.write(handle, offset, bytes);
        }
        let reclaim = || {
            fs.sync()?;
            fs.store().reclaim(true).map_err(|error| FsError::Io(error.to_string()))?;
            Ok(fs.store().durable_lsn())
        };
        self.amid((offset, bytes.len() as u64), || fs.write(handle, offset, bytes), reclaim)
    }

    /// Runs work that takes many transactions, while a second thread makes the completed part durable. Otherwise all
    /// transactions would reach the device together, and no cut would fall between two of them.
    fn amid_syncs(
        &self,
        range: (u64, u64),
        work: impl Fn() -> Result<(), FsError> + Send + Sync,
    ) -> Result<(), FsError> {
        if self.account.is_some() {
            return work();
        }
        let fs = &self.fs;
        let sync = || fs.sync().map(|()| fs.store().durable_lsn());
        self.amid(range, work, sync)
    }

    /// Runs `work` on a range, while a second thread runs `other` again and again. `other` returns the LSN that is
    /// durable then.
    fn amid<T: Send>(
        &self,
        (offset, length): (u64, u64),
        work: impl Fn() -> Result<T, FsError> + Send + Sync,
        other: impl Fn() -> Result<Lsn, FsError> + Send + Sync,
    ) -> Result<T, FsError> {
        let fs = &self.fs;
        let before = fs.store().last_lsn();
        let (is_over, result) = (AtomicBool::new(false), Mutex::new(None));
        let working = || {
            let done = work();
            is_over.store(true, Ordering::SeqCst);
            *result.lock() = Some(done?);
            Ok(vec![fs.store().last_lsn()])
        };
        let meanwhile = || {
            let one = |_| {
                schedule::at_device();
                other()
            };
            let goes_on = |_: &u32| !is_over.load(Ordering::SeqCst);
            (0..SYNCS_AMID).take_while(goes_on).map(one).collect::<Result<Vec<Lsn>, FsError>>()
        };
        let seed = mix(&[self.device.commands(), before.0, offset, length]);
        let bodies: Vec<Body<'_, Result<Vec<Lsn>, FsError>>> = vec![
            ("working".to_owned(), Box::new(|| within("working", working))),
            ("meanwhile".to_owned(), Box::new(|| within("meanwhile", meanwhile))),
        ];
        let mut ran = schedule::run(seed, bodies).returned;
        let [synced, done] = [ran.pop(), ran.pop()].map(|lsns| lsns.expect("both threads have returned"));
        let (synced, done) = (synced?, done?);
        let mut amid: Vec<Lsn> = synced.into_iter().filter(|lsn| before < *lsn && *lsn < done[0]).collect();
        amid.dedup();
        self.amid.set(self.amid.get() + amid.len() as u64);
        let result = result.lock().take();
        Ok(result.expect("the work has returned and did not fail"))
    }

    /// From now on every append to the zone that is being written in a role fails.
    fn fail(&self, failure: ZoneFailure) -> Result<(), FsError> {
        let report = self.device.report().map_err(|error| FsError::Io(error.to_string()))?;
        for zone in self.fs.store().pool().in_role(failure.role) {
            if report[zone.0 as usize].state.is_active() {
                let fault = Fault::nth(CommandKind::Append, 1, failure.effect).on(zone).forever();
                self.device.inject(fault);
            }
        }
        Ok(())
    }
}

/// An operation that failed because of the device.
pub struct Failed {
    /// The error.
    pub error: FsError,
    /// The model as if the operation had succeeded.
    pub after: Model,
}

/// Whether an error says that the device has failed, or that the volume has failed because of the device. A wrong
/// read or a panic is no such error.
fn is_of_device(error: &FsError) -> bool {
    match error {
        FsError::ReadOnly | FsError::NoMemory => true,
        FsError::Io(what) => what != MISREAD && !what.starts_with("panic: "),
        _ => false,
    }
}

/// A file has all its data when it gets another name, although none of it was synced.
fn settle_renamed(before: &Model, after: &mut Model, operation: &Operation) {
    let named = match operation {
        // Two names of one file stay as they are.
        Operation::Rename { from, to } if before.number_at(from) == before.number_at(to) => Vec::new(),
        Operation::Rename { to, .. } => vec![to],
        Operation::Exchange { a, b } => vec![a, b],
        Operation::Link { from, .. } => vec![from],
        _ => Vec::new(),
    };
    named.into_iter().for_each(|path| after.settle(&File::Path(path.clone())));
}

/// Runs work in a thread of a schedule. Turns a panic into an error with the panic's message.
fn within<T>(what: &str, work: impl FnOnce() -> Result<T, FsError>) -> Result<T, FsError> {
    caught(what, || Ok(work())).unwrap_or_else(|wrong| Err(FsError::Io(wrong.0)))
}

//! The process that holds a volume and serves its mount.
//!
//! The daemon blocks the signals that end it (all threads inherit the mask, and one thread waits for the signals). It
//! takes the volume's lock and the control socket, recovers, starts the file system's threads, and attaches the mount. It
//! answers until the mount is detached and unused. Then it closes the volume and ends. The lock is released by the end of
//! the process, after the last write.
//!
//! A panic ends the process: state that threads share may be half changed, and a daemon that continued would write it to
//! the volume. Recovery can start from the state of a process that has ended.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use extent::Switches;
use fs::{DamagedCopies, Fs};
use fuse::mount::{abort, unmount, unmount_by_force, unmount_lazily};
use fuse::{AccessTimes, Changes, KernelCache, Memory, MountEntry, MountOptions, Mounted};
use nix::sys::signal::{SigSet, Signal};
use polder::Stats;
use polder::device::{Medium, MediumOptions, id_before_opening, prepare_writes, refused_label};
use polder::sharing::{Sharing, Waiting};
use rt::sync::Mutex;
use serde_json::Value;
use zone::FsId;
use zone::file::{FileError, OpenMode};
use zone::medium::{Degraded, Members, SetOptions};

use crate::check::Report;
use crate::control::{Connections, Introduction, Request, Service, Socket};
use crate::files::{FileLayout, FileStep};
use crate::gc::Garbage;
use crate::info::{Info, MountInForce, Place};
use crate::logging::Reader;
use crate::monitor::Monitor;
use crate::monitor::sample::Sample;
use crate::name::AnyPath;
use crate::options::Words;
use crate::rebuilds::{Rebuild, Rebuilds, Replacement};
use crate::registry::Registry;
use crate::remount::Mount;
use crate::sets::SetInfo;
use crate::starter::READY;
use crate::status::StatusPage;
use crate::volume::{FileId, LastMount};
use crate::{inherited, logging, process, remount, scrub, volume, zones};

const MILLISECOND_NS: u64 = 1_000_000;

const NOT_WRITTEN_BACK: &str = "the kernel's dirty pages cannot be written back";

const NOT_SHARED: &str = "programs cannot attach to the volume";

/// The volume to serve, and the options.
pub(crate) struct Daemon {
    /// Absolute.
    pub(crate) path: PathBuf,
    /// Absolute.
    pub(crate) directory: PathBuf,
    pub(crate) words: Words,
    pub(crate) cache_bytes: u64,
    pub(crate) log: Option<PathBuf>,
    /// Whether to leave the terminal.
    pub(crate) detach: bool,
    /// Whether programs can attach to the volume. The kernel caches nothing then.
    pub(crate) shared: bool,
}

/// State shared by the threads that serve and end the mount.
struct Served {
    fs: Arc<Fs>,
    /// Absolute.
    path: PathBuf,
    volume: FileId,
    /// The members of a volume on several devices.
    members: Option<Arc<Members>>,
    /// Rebuilds members in the background, unless the volume is open for reading only.
    rebuilds: Option<Rebuilds>,
    /// The findings of recovery when the volume was mounted.
    last_mount: LastMount,
    cache_bytes: u64,
    /// The device is open for reading only, so the mount cannot become writable.
    opened_read_only: bool,
    /// Programs can attach to the volume.
    shared: bool,
    /// The first mount point.
    directory: PathBuf,
    /// The entry in the table of mounts at that time, if the table could be read.
    entry: Option<MountEntry>,
    /// The options now in force.
    words: Mutex<Words>,
    /// Held by a thread that changes the options, or that needs them to stay the same for long.
    changing: Mutex<()>,
    access_times: AccessTimes,
    kernel_cache: KernelCache,
    monitor: Monitor,
    /// The URL of the status page.
    status: Option<String>,
    connections: Arc<Connections>,
}

pub(crate) fn run(daemon: Daemon) -> Result<()> {
    let signals = inherited::block_signals()?;
    end_on_panic();
    let registry = Registry::of_user();
    let log = prepare_process(&daemon)?;
    let page = daemon.status_page()?;
    let volume = FileId::of(&daemon.path).with_context(|| daemon.path.display().to_string())?;
    let (device, mut socket) = daemon.open_and_bind(registry, &volume)?;
    let members = device.members().cloned();
    let waiting = daemon.listen()?;
    let (fs, last_mount) = daemon.recover(device)?;
    fs.start().with_context(|| daemon.path.display().to_string())?;
    let options = mount_options(&daemon.path, &daemon.words, daemon.shared);
    let write_queue_bytes = daemon.memory().write_queue_bytes;
    let attach = |()| Ok(Mounted::new(Arc::clone(&fs), &daemon.directory, &options, write_queue_bytes)?);
    let mounted = match check_xattrs(&fs, &daemon.words).and_then(attach) {
        Ok(mounted) => mounted,
        Err(error) => {
            // Only recovery has changed the volume. Its changes are closed properly.
            fs.unmount().with_context(|| daemon.path.display().to_string())?;
            return Err(error);
        }
    };
    if let Some(entry) = mounted.entry() {
        socket.bind_mount(&entry.device);
    }
    let rebuilds = match members.as_ref().filter(|_| !daemon.words.read_only).map(Rebuilds::start).transpose()
    {
        Ok(rebuilds) => rebuilds,
        Err(error) => {
            drop(mounted);
            fs.unmount().with_context(|| daemon.path.display().to_string())?;
            return Err(error);
        }
    };
    let monitor = Monitor::new(mounted.request_times(), fs.store().pool().count());
    let served = Arc::new(Served {
        fs,
        volume,
        members,
        rebuilds,
        path: daemon.path.clone(),
        last_mount,
        cache_bytes: daemon.cache_bytes,
        opened_read_only: daemon.words.read_only,
        shared: daemon.shared,
        directory: daemon.directory.clone(),
        entry: mounted.entry().cloned(),
        words: Mutex::new(daemon.words.clone()),
        changing: Mutex::new(()),
        access_times: mounted.access_times(),
        kernel_cache: mounted.kernel_cache(),
        monitor,
        status: page.as_ref().map(StatusPage::url),
        connections: socket.connections(),
    });
    let begun = daemon.share(waiting, &served.fs, mounted.changes()).and_then(|sharing| {
        daemon.announce(&served, &socket, page, signals, log.as_deref())?;
        Ok(sharing)
    });
    let sharing = match begun {
        Ok(sharing) => sharing,
        Err(error) => {
            tracing::error!("{error:#}");
            return served.take_down().and(Err(error));
        }
    };
    let ended = mounted.serve();
    // Before the volume is closed.
    sharing.iter().for_each(Sharing::stop);
    served.close()?;
    ended.context("the connection to the kernel failed")
}

impl Daemon {
    /// Opens the device, and takes the name of the volume among daemons. Opening a member changes labels, and opening a
    /// volume in an object store ends the ownership of another process. So the name of such a volume is taken first: if it
    /// is mounted here already, the mount is refused before anything changes.
    fn open_and_bind(&self, registry: Registry, volume: &FileId) -> Result<(Medium, Socket)> {
        let bind = |fs_id| Socket::bind(registry, fs_id, volume.clone(), self.words.read_only);
        let Some(fs_id) = id_before_opening(&self.path)? else {
            let device = self.open_device()?;
            let socket = bind(device.fs_id())?;
            return Ok((device, socket));
        };
        let is_held = || volume::is_served(&self.path) || matches!(volume::is_locked(&self.path), Ok(true));
        let socket = bind(fs_id).map_err(|error| match is_held() {
            true => FileError::InUse(self.path.clone()).into(),
            false => error,
        })?;
        Ok((self.open_device()?, socket))
    }

    /// Starts the threads that answer commands and handle signals, and reports the mount to the starter.
    fn announce(
        &self,
        served: &Arc<Served>,
        socket: &Socket,
        page: Option<StatusPage>,
        signals: SigSet,
        log: Option<&File>,
    ) -> Result<()> {
        let service: Arc<dyn Service> = Arc::clone(served) as _;
        socket.serve(&service)?;
        if let Some(page) = page {
            let served = Arc::clone(served);
            page.serve(move || served.sample())?;
        }
        end_on_signal(signals, Arc::clone(served))?;
        tracing::info!(volume = %served.fs_id(), "mounted");
        if self.detach {
            leave_starter(log)?;
        }
        Ok(())
    }

    fn status_page(&self) -> Result<Option<StatusPage>> {
        let bind = |address| StatusPage::bind(address, self.words.is_status_remote);
        self.words.status.map(bind).transpose()
    }

    /// Lets programs connect, if that was requested. They wait until the volume is recovered and mounted.
    fn listen(&self) -> Result<Option<Waiting>> {
        let waiting = self.shared.then(|| Waiting::listen(&self.path)).transpose();
        waiting.context(NOT_SHARED)
    }

    /// Lets programs attach.
    fn share(
        &self,
        waiting: Option<Waiting>,
        fs: &Arc<Fs>,
        changes: Option<Changes>,
    ) -> Result<Option<Sharing>> {
        let serve = |waiting: Waiting| waiting.serve(&self.path, Arc::clone(fs), changes);
        waiting.map(serve).transpose().context(NOT_SHARED)
    }

    fn memory(&self) -> Memory {
        match self.words.read_only {
            true => Memory::of_reader(self.cache_bytes),
            false => Memory::divide(self.cache_bytes),
        }
    }

    fn open_device(&self) -> Result<Medium> {
        let mode = if self.words.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let degraded = if self.words.degraded { Degraded::Permitted } else { Degraded::Refused };
        let sets = SetOptions { devices: self.words.devices.clone(), degraded };
        let options = MediumOptions { sets, takes_over: self.words.takes_over, ..MediumOptions::default() };
        let device = volume::open_device(&self.path, mode, &options)?;
        if mode == OpenMode::ReadWrite {
            prepare_writes(&device);
        }
        Ok(device)
    }

    fn recover(&self, device: Medium) -> Result<(Arc<Fs>, LastMount)> {
        let fs_id = device.fs_id();
        let interval = self.words.commit_interval_ns;
        let Memory { cache_bytes, .. } = self.memory();
        let options = polder::device::mount_options(self.words.read_only, cache_bytes, interval);
        let clock = Arc::clone(&options.clock);
        let began_ns = clock.monotonic_ns();
        let (fs, recovery) = volume::mount_fs(&self.path, device.into_device(), options)?;
        fs.set_switches(switches(&self.words));
        let took_ms = (clock.monotonic_ns() - began_ns) / MILLISECOND_NS;
        let (clean, records, discarded) = (recovery.clean, recovery.records, recovery.discarded);
        tracing::info!(volume = %fs_id, clean, records, discarded, took_ms, "recovered");
        Ok((fs, LastMount::of(&recovery)))
    }
}

fn id_of(member: PathBuf) -> Option<FileId> {
    FileId::of(&member).ok()
}

/// Attributes that exist must count: an access list may take a right away.
fn check_xattrs(fs: &Fs, words: &Words) -> Result<()> {
    ensure!(
        !words.no_xattrs || !fs.has_xattrs()?,
        "files of the volume have extended attributes or access control lists; mount it without noxattr"
    );
    Ok(())
}

fn switches(words: &Words) -> Switches {
    if words.no_learning { Switches::without_learning() } else { Switches::default() }
}

fn mount_options(path: &Path, words: &Words, shared: bool) -> MountOptions {
    MountOptions {
        source: path.into(),
        is_view: false,
        read_only: words.read_only,
        allow_other: words.allow_other || rustix::process::geteuid().is_root(),
        no_set_id: words.no_set_id,
        no_devices: words.no_devices,
        no_execution: words.no_execution,
        strict_access_times: words.strict_access_times,
        no_xattrs: words.no_xattrs,
        uncached: shared,
        is_of_library: false,
    }
}

impl Service for Served {
    fn answer(&self, request: Request) -> Result<Value> {
        match request {
            Request::Introduce => Ok(serde_json::to_value(self.introduction())?),
            Request::Info => Ok(serde_json::to_value(Info::of(&self.fs, &self.place())?)?),
            Request::SetLabel { label } => self.set_label(&label).map(|()| Value::Null),
            Request::Stats => Ok(serde_json::to_value(self.stats())?),
            Request::Zones => Ok(serde_json::to_value(zones::all(&self.fs)?)?),
            Request::Monitor => Ok(serde_json::to_value(self.sample()?)?),
            Request::Check { data } => Ok(serde_json::to_value(self.check(data)?)?),
            Request::Gc { work } => Ok(serde_json::to_value(Garbage::of(&self.fs, work)?)?),
            Request::Layout { inode } => Ok(serde_json::to_value(FileLayout::of(&self.fs, inode)?)?),
            Request::Defragment { inode, from } => {
                Ok(serde_json::to_value(FileStep::of(&self.fs, inode, from)?)?)
            }
            Request::Scrub { at, bytes, repair } => {
                let copies = if repair { DamagedCopies::Repair } else { DamagedCopies::Report };
                Ok(serde_json::to_value(scrub::piece(&self.fs, &at, bytes, copies)?)?)
            }
            Request::Paths { inodes } => Ok(serde_json::to_value(scrub::paths(&self.fs, &inodes)?)?),
            Request::Replace(replacement) => Ok(serde_json::to_value(self.replace(&replacement)?)?),
            Request::Rebuilds => {
                let all: Vec<Rebuild> = self.rebuilds.iter().flat_map(Rebuilds::all).collect();
                Ok(serde_json::to_value(all)?)
            }
            Request::ReportClose => bail!("is answered for each connection"),
            Request::Sync => self.sync().map(|()| Value::Null),
            Request::Unmount => self.detach().map(|()| Value::Null),
            Request::Remount { options } => self.remount(&options).map(|()| Value::Null),
        }
    }
}

impl Served {
    fn fs_id(&self) -> FsId {
        self.fs.volume_info().fs_id
    }

    fn set_label(&self, label: &str) -> Result<()> {
        if let Some(why) = refused_label(label) {
            bail!(why);
        }
        self.fs.set_label(label)?;
        tracing::info!(volume = %self.fs_id(), label, "the label was changed");
        Ok(())
    }

    fn replace(&self, replacement: &Replacement) -> Result<Rebuild> {
        let path = self.path.display();
        if self.members.is_none() {
            bail!("{path}: is a volume on one device; only a member of a mirror can be replaced");
        }
        let rebuilds = self.rebuilds.as_ref();
        rebuilds
            .with_context(|| format!("{path}: is mounted read-only; mount it for writing"))?
            .begin(replacement)
    }

    /// Ends a mount that no thread serves yet.
    fn take_down(&self) -> Result<()> {
        for directory in self.directories() {
            if let Err(error) = unmount_lazily(&directory) {
                tracing::error!("the mount cannot be detached: {error}");
            }
        }
        self.close()
    }

    fn close(&self) -> Result<()> {
        self.rebuilds.iter().for_each(Rebuilds::stop);
        self.close_volume()
    }

    /// Closes the volume, and reports the result to the log and to the clients that wait for it.
    fn close_volume(&self) -> Result<()> {
        let fs_id = self.fs_id();
        let closed = self.fs.unmount().with_context(|| format!("volume {fs_id} was not closed properly"));
        match &closed {
            Ok(()) => tracing::info!(volume = %fs_id, "unmounted"),
            Err(error) => tracing::error!("{error:#}"),
        }
        self.connections.report_closed(closed.as_ref().err().map(|error| format!("{error:#}")));
        closed
    }

    /// The places where the mount is attached now. There is none after it was detached, even if it is still in use: its old
    /// directory may lead to another mount by then, and another mount may have its device number.
    fn places(&self) -> Vec<MountEntry> {
        let attached = self.entry.as_ref().filter(|_| self.kernel_cache.is_attached());
        attached.and_then(|entry| entry.places().ok()).unwrap_or_default()
    }

    /// The directories that lead to this mount. The first is the directory at which it was attached, or to which that mount
    /// was moved.
    fn directories(&self) -> Vec<PathBuf> {
        if self.entry.is_none() && self.kernel_cache.is_attached() {
            return vec![self.directory.clone()];
        }
        let places = self.places().into_iter();
        places.filter(MountEntry::is_reachable).map(|place| place.directory).collect()
    }

    /// Waits for the kernel's dirty pages, then makes everything durable. `syncfs` on the root only starts the kernel's
    /// writeback, of all files at once. Then each file is waited for.
    fn sync(&self) -> Result<()> {
        let begun = match self.start_writeback() {
            // The kernel does not say which file the error belongs to. The next call finds the error if the file is still
            // open and has a name. If the file was closed, its program has received the error.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            begun => begun.context(NOT_WRITTEN_BACK),
        };
        let written = self.kernel_cache.write_back().context(NOT_WRITTEN_BACK);
        // The data that has arrived is made durable, even if writeback of other data failed.
        self.fs.sync()?;
        begun.and(written)
    }

    /// Starts the kernel's writeback, and waits as far as `syncfs` waits.
    fn start_writeback(&self) -> io::Result<()> {
        let Some(directory) = self.directories().into_iter().next() else { return Ok(()) };
        let sync = move || Ok(rustix::fs::syncfs(&File::open(directory)?)?);
        process::apart("polder-syncs", sync)
    }

    fn stats(&self) -> Stats {
        let read_only = self.words.lock().read_only;
        Stats::of(&self.fs, read_only)
    }

    fn sample(&self) -> Result<Sample> {
        let read_only = self.words.lock().read_only;
        self.monitor.sample(&self.fs, &self.place(), read_only)
    }

    /// A volume that is mounted read-only does not change, so all of it can be verified.
    fn check(&self, data: bool) -> Result<Report> {
        let stays = self.changing.lock();
        let read_only = self.words.lock().read_only;
        let mut report = match read_only {
            true => Report::of(&self.fs, data)?,
            false => {
                drop(stays);
                Report::of_used(&self.fs, data)?
            }
        };
        report.last_mount = Some(self.last_mount);
        Ok(report)
    }

    fn place(&self) -> Place {
        let mounted_on = match &self.entry {
            Some(_) => self.places().into_iter().next().map(|place| place.directory),
            None => Some(self.directory.clone()),
        };
        Place {
            path: self.path.clone(),
            mounted_on,
            mount: Some(self.mount_in_force()),
            closing: !self.kernel_cache.is_attached(),
            last_mount: self.last_mount,
            status: self.status.clone(),
            sets: self.members.iter().flat_map(|members| SetInfo::of(members)).collect(),
        }
    }

    fn mount_in_force(&self) -> MountInForce {
        let words = self.words.lock().clone();
        // The value that was passed to the kernel.
        let allow_other = mount_options(&self.path, &words, self.shared).allow_other;
        MountInForce {
            read_only: words.read_only,
            commit_seconds: words.commit_seconds(),
            cache_bytes: self.cache_bytes,
            options: Words { allow_other, ..words }.in_force(self.cache_bytes),
        }
    }

    fn introduction(&self) -> Introduction {
        let mounted_on = self.places().into_iter().next().map(|place| AnyPath(place.directory));
        Introduction {
            pid: std::process::id(),
            device: self.entry.as_ref().map(|entry| entry.device.clone()),
            volume: self.volume.clone(),
            members: self.members.iter().flat_map(|members| members.paths()).filter_map(id_of).collect(),
            path: AnyPath(self.path.clone()),
            mounted_on,
            closing: !self.kernel_cache.is_attached(),
        }
    }

    fn remount(&self, options: &str) -> Result<()> {
        let _alone = self.changing.lock();
        let words = self.words.lock().clone();
        let Some(directory) = self.directories().into_iter().next() else {
            bail!("{}: the volume is not mounted there any more", self.directory.display());
        };
        let (opened_read_only, shared) = (self.opened_read_only, self.shared);
        let mount = Mount { directory: &directory, opened_read_only, shared };
        let after = mount.words_after(&words, options)?;
        let shown = directory.display();
        if words.read_only && !after.read_only {
            self.fs.make_writable().with_context(|| shown.to_string())?;
        }
        if let Err(error) = fuse::mount::remount(&directory, &mount_options(&self.path, &after, self.shared))
        {
            if words.read_only {
                self.fs.make_read_only().with_context(|| shown.to_string())?;
            }
            return Err(remount::explain(error, &directory));
        }
        // Even if this fails, changes are refused until the volume is made writable again.
        let closed = if after.read_only { self.fs.make_read_only() } else { Ok(()) };
        if let Some(interval_ns) = after.commit_interval_ns {
            self.fs.set_commit_interval(interval_ns);
        }
        self.access_times.set_enabled(after.strict_access_times);
        self.fs.set_switches(switches(&after));
        tracing::info!(volume = %self.fs_id(), read_only = after.read_only, "remounted");
        *self.words.lock() = after;
        closed.with_context(|| format!("{shown}: is read-only now, but the volume was not closed properly"))
    }

    /// Detaches the mount in all places. A mount in use is lazily unmounted, and ends when it is not used any more.
    fn detach(&self) -> Result<()> {
        let directories = self.directories();
        if directories.is_empty() {
            tracing::info!("already lazily unmounted; the mount ends when no program uses it");
            return self.sync();
        }
        for directory in directories {
            let there = directory.clone();
            match process::apart("polder-unmounts", move || unmount(&there)) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.detach_in_use(&directory),
                Err(error) if self.directories().contains(&directory) => {
                    return Err(error).with_context(|| format!("{} stays mounted", directory.display()));
                }
                Err(error) => tracing::debug!("another process has detached the mount: {error}"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Ends a mount, detached or not, even if it is in use.
    fn end_in_use(&self) -> Result<()> {
        tracing::warn!("the mount ends although it is in use");
        let attached = self.entry.as_ref().filter(|_| self.kernel_cache.is_attached());
        if attached.is_some_and(|entry| abort(entry).is_ok()) {
            return Ok(());
        }
        // `fusectl` is not mounted.
        if self.directories().first().is_some_and(|directory| unmount_by_force(directory).is_ok()) {
            return Ok(());
        }
        self.end_process()
    }

    /// Does not wait for writeback of each file. If this process were killed during such a wait, the waiting thread would
    /// keep the mount alive, and its users would wait forever.
    fn detach_in_use(&self, directory: &Path) {
        let written = self.start_writeback().context(NOT_WRITTEN_BACK);
        if let Err(error) = written.and_then(|()| Ok(self.fs.sync()?)) {
            tracing::error!("the data cannot be synced before the lazy unmount: {error:#}");
        }
        // This may have taken long, and another process may have detached the mount meanwhile.
        let there = directory.to_owned();
        if self.directories().contains(&there)
            && let Err(error) = process::apart("polder-unmounts", move || unmount_lazily(&there))
        {
            tracing::error!("the mount cannot be detached: {error}");
        }
    }

    /// Ends the process, which closes the connection. This is the last resort if the connection cannot be aborted.
    fn end_process(&self) -> Result<()> {
        std::process::exit(i32::from(self.close_volume().is_err()));
    }
}

/// Opens the log, and tells the kernel that writeback depends on this process. Returns the log file.
fn prepare_process(daemon: &Daemon) -> Result<Option<Arc<File>>> {
    let log = logging::start(&match &daemon.log {
        Some(path) => Reader::File(path),
        None if daemon.detach => Reader::System,
        None => Reader::Starter,
    })?;
    inherited::warn_of_limits();
    process::stand_by_writeback();
    inherited::leave_directory()?;
    Ok(log)
}

/// Leaves the session and the terminal of the starter. A process that waits for us reads `ready` and the end of our
/// output. The caller must have attached the mount before. If an access to the directory triggers the mount
/// (`x-systemd.automount`), the kernel blocks all processes at the directory except the process group that performs the
/// mount.
pub(crate) fn leave_starter(log: Option<&File>) -> Result<()> {
    rustix::process::setsid().context("a session cannot be created")?;
    let nowhere = File::options().read(true).write(true).open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stderr(log.unwrap_or(&nowhere))?;
    let said = writeln!(std::io::stdout(), "{READY}");
    rustix::stdio::dup2_stdout(&nowhere)?;
    if said.is_err() {
        bail!("the process that started the daemon has ended");
    }
    Ok(())
}

/// Starts the thread that waits for signals. The first signal detaches the mount. A later signal waits neither for the
/// users of the mount nor for the work of the first.
fn end_on_signal(signals: SigSet, served: Arc<Served>) -> Result<()> {
    rt::thread::spawn("polder-signals", move || {
        let mut is_first = true;
        while let Ok(signal) = signals.wait() {
            tracing::info!("{signal}: unmounting");
            let begun = match (is_first, signal) {
                (true, _) => detach_in_background(&served),
                // The kernel sends it once a second, and it does not call for an immediate end.
                (false, Signal::SIGXCPU) => Ok(()),
                (false, _) => served.end_in_use(),
            };
            if let Err(error) = begun {
                tracing::error!("{error:#}");
            }
            is_first = false;
        }
    })?;
    Ok(())
}

/// Detaches on a separate thread, because the sync takes as long as the device needs.
fn detach_in_background(served: &Arc<Served>) -> Result<()> {
    let served = Arc::clone(served);
    rt::thread::spawn("polder-detach", move || {
        if let Err(error) = served.detach() {
            tracing::error!("{error:#}");
        }
    })?;
    Ok(())
}

pub(crate) fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!("{}", panic.to_string().replace('\n', " "));
        report(panic);
        std::process::abort();
    }));
}

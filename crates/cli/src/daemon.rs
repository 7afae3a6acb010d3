//! The process that has a volume and serves its mount.
//!
//! From its beginning to its end: block the signals that end it (threads inherit that, and one waits for
//! them), take the volume's lock, recover, start the file system's threads, take the control socket,
//! attach, answer until detached and used by nobody, close the volume, end. The lock is given back by the end of the
//! process, after the last write.
//!
//! A panic ends the process: what threads shared may be half changed, and a daemon that goes on would write
//! that down. Recovery knows how to go on from a process that has ended.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use extent::Switches;
use fs::Fs;
use fuse::mount::{abort, unmount, unmount_by_force, unmount_lazily};
use fuse::{AccessTimes, KernelCache, Memory, MountEntry, MountOptions, Mounted};
use nix::sys::signal::{SigSet, Signal};
use rt::sync::Mutex;
use serde_json::Value;
use zone::file::OpenMode;
use zone::{FsId, Medium};

use crate::check::Report;
use crate::control::{Request, Service, Socket};
use crate::files::{FileLayout, FileStep};
use crate::gc::Garbage;
use crate::info::{Info, Place};
use crate::logging::Reader;
use crate::options::Words;
use crate::remount::Mount;
use crate::stats::Stats;
use crate::{logging, process, remount, scrub, volume, zones};

/// What the daemon says on its standard output when the mount can be used.
pub(crate) const READY: &str = "ready";

/// How many writes to the device need no memory that is not there yet.
const PREPARED_WRITES: usize = 8;

const MILLISECOND_NS: u64 = 1_000_000;

const NOT_WRITTEN_BACK: &str = "the kernel's cache cannot be written back";

/// What to serve, and how.
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
}

/// What the threads share that serve and end the mount.
struct Served {
    fs: Arc<Fs>,
    place: Place,
    directory: PathBuf,
    entry: Option<MountEntry>,
    /// How it is mounted now.
    words: Mutex<Words>,
    /// Held by whoever changes the words, or needs them to stay as they are for long.
    changing: Mutex<()>,
    access_times: AccessTimes,
    kernel_cache: KernelCache,
}

pub(crate) fn run(daemon: Daemon) -> Result<()> {
    let signals = block_signals()?;
    end_on_panic();
    let log = prepare_process(&daemon)?;
    let device = daemon.open_device()?;
    let fs_id = device.fs_id();
    let socket = Socket::bind(fs_id, &daemon.path, daemon.words.read_only)?;
    let fs = daemon.recover(device)?;
    fs.start().with_context(|| daemon.path.display().to_string())?;
    let options = mount_options(&daemon.path, &daemon.words);
    let aside_bytes = daemon.memory().aside_bytes;
    let mounted = match Mounted::new(Arc::clone(&fs), &daemon.directory, &options, aside_bytes) {
        Ok(mounted) => mounted,
        Err(error) => {
            // Nothing was changed but by recovery; what that did is closed properly.
            fs.unmount().with_context(|| daemon.path.display().to_string())?;
            return Err(error.into());
        }
    };
    let served = Arc::new(Served {
        fs,
        place: daemon.place(),
        directory: daemon.directory.clone(),
        entry: mounted.entry().cloned(),
        words: Mutex::new(daemon.words.clone()),
        changing: Mutex::new(()),
        access_times: mounted.access_times(),
        kernel_cache: mounted.kernel_cache(),
    });
    if let Err(error) = daemon.make_known(&served, &socket, signals, log.as_deref()) {
        tracing::error!("{error:#}");
        return served.take_down().and(Err(error));
    }
    let ended = mounted.serve();
    served.close()?;
    ended.context("the kernel's connection broke")
}

impl Daemon {
    /// What is attached can be asked and ended from now on, and whoever waits for it knows.
    fn make_known(
        &self,
        served: &Arc<Served>,
        socket: &Socket,
        signals: SigSet,
        log: Option<&File>,
    ) -> Result<()> {
        let service: Arc<dyn Service> = Arc::clone(served) as _;
        socket.serve(&service)?;
        end_on_signal(signals, Arc::clone(served))?;
        tracing::info!(volume = %served.fs_id(), "mounted");
        if self.detach {
            leave_starter(log)?;
        }
        Ok(())
    }

    fn place(&self) -> Place {
        Place {
            path: self.path.clone(),
            mounted_on: Some(self.directory.clone()),
            read_only: self.words.read_only,
            closing: false,
        }
    }

    fn memory(&self) -> Memory {
        match self.words.read_only {
            true => Memory::of_reader(self.cache_bytes),
            false => Memory::divide(self.cache_bytes),
        }
    }

    fn open_device(&self) -> Result<Medium> {
        let mode = if self.words.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let device = volume::open_device(&self.path, mode)?;
        if mode == OpenMode::ReadWrite {
            device.prepare_writes(PREPARED_WRITES);
        }
        Ok(device)
    }

    fn recover(&self, device: Medium) -> Result<Arc<Fs>> {
        let fs_id = device.fs_id();
        let interval = self.words.commit_interval_ns;
        let Memory { cache_bytes, .. } = self.memory();
        let options = volume::mount_options(self.words.read_only, cache_bytes, interval);
        let clock = Arc::clone(&options.clock);
        let began_ns = clock.monotonic_ns();
        let (fs, recovery) = volume::mount_fs(&self.path, device.into_device(), options)?;
        fs.set_switches(switches(&self.words));
        let took_ms = (clock.monotonic_ns() - began_ns) / MILLISECOND_NS;
        let (clean, records, discarded) = (recovery.clean, recovery.records, recovery.discarded);
        tracing::info!(volume = %fs_id, clean, records, discarded, took_ms, "recovered");
        Ok(fs)
    }
}

fn switches(words: &Words) -> Switches {
    Switches { learning: !words.no_learning, ..Switches::default() }
}

fn mount_options(path: &Path, words: &Words) -> MountOptions {
    MountOptions {
        source: path.into(),
        is_view: false,
        read_only: words.read_only,
        allow_other: words.allow_other || rustix::process::geteuid().is_root(),
        no_set_id: words.no_set_id,
        no_devices: words.no_devices,
        no_execution: words.no_execution,
        strict_access_times: words.strict_access_times,
    }
}

impl Service for Served {
    fn answer(&self, request: Request) -> Result<Value> {
        match request {
            Request::Info => Ok(serde_json::to_value(Info::of(&self.fs, &self.place())?)?),
            Request::Stats => Ok(serde_json::to_value(Stats::of(&self.fs, self.place().read_only))?),
            Request::Zones => Ok(serde_json::to_value(zones::all(&self.fs)?)?),
            Request::Check { data } => Ok(serde_json::to_value(self.check(data)?)?),
            Request::Gc { work } => Ok(serde_json::to_value(Garbage::of(&self.fs, work)?)?),
            Request::Layout { inode } => Ok(serde_json::to_value(FileLayout::of(&self.fs, inode)?)?),
            Request::Defragment { inode, from } => {
                Ok(serde_json::to_value(FileStep::of(&self.fs, inode, from)?)?)
            }
            Request::Scrub { at, bytes } => Ok(serde_json::to_value(scrub::piece(&self.fs, &at, bytes)?)?),
            Request::Paths { inodes } => Ok(serde_json::to_value(scrub::paths(&self.fs, &inodes)?)?),
            Request::Sync => self.sync().map(|()| Value::Null),
            Request::Unmount => self.detach().map(|()| Value::Null),
            Request::Remount { directory, options } => {
                self.remount(&directory, &options).map(|()| Value::Null)
            }
        }
    }
}

impl Served {
    fn fs_id(&self) -> FsId {
        self.fs.volume_info().fs_id
    }

    /// Ends a mount that nobody answers for yet.
    fn take_down(&self) -> Result<()> {
        if self.is_in_sight()
            && let Err(error) = unmount_lazily(&self.directory)
        {
            tracing::error!("the mount cannot be detached: {error}");
        }
        self.close()
    }

    fn close(&self) -> Result<()> {
        let fs_id = self.fs_id();
        let closed = self.fs.unmount().with_context(|| format!("volume {fs_id} was not closed properly"));
        match &closed {
            Ok(()) => tracing::info!(volume = %fs_id, "unmounted"),
            Err(error) => tracing::error!("{error:#}"),
        }
        closed
    }

    /// Whether the directory leads to this mount. Once it was detached another may be there, which is none
    /// of ours.
    fn is_in_sight(&self) -> bool {
        self.entry.as_ref().is_none_or(|entry| entry.is_in_sight().unwrap_or(true))
    }

    /// Takes the kernel's dirty pages, then makes everything durable. To sync its root only has the kernel begin
    /// to write, all files at once; each is waited for after that.
    fn sync(&self) -> Result<()> {
        if self.is_in_sight() {
            self.have_written_back()?;
        }
        self.kernel_cache.write_back().context(NOT_WRITTEN_BACK)?;
        Ok(self.fs.sync()?)
    }

    /// Has the kernel begin to write back, and wait as far as it does.
    fn have_written_back(&self) -> Result<()> {
        self.apart("polder-syncs", |directory| Ok(rustix::fs::syncfs(&File::open(directory)?)?))
            .context(NOT_WRITTEN_BACK)
    }

    /// Does what waits for this mount.
    fn apart(&self, name: &str, body: fn(&Path) -> io::Result<()>) -> io::Result<()> {
        let directory = self.directory.clone();
        process::apart(name, move || body(&directory))
    }

    /// Nobody changes a volume that is mounted read-only, so all of it can be verified.
    fn check(&self, data: bool) -> Result<Report> {
        let stays = self.changing.lock();
        if self.words.lock().read_only {
            return Report::of(&self.fs, data);
        }
        drop(stays);
        Report::of_used(&self.fs, data)
    }

    fn place(&self) -> Place {
        let mounted_on = self.place.mounted_on.clone().filter(|_| self.is_in_sight());
        let read_only = self.words.lock().read_only;
        Place { read_only, mounted_on, closing: !self.kernel_cache.is_attached(), ..self.place.clone() }
    }

    fn remount(&self, directory: &Path, options: &str) -> Result<()> {
        let _alone = self.changing.lock();
        let words = self.words.lock().clone();
        let mount = Mount { directory: &self.directory, opened_read_only: self.place.read_only };
        let after = mount.words_after(&words, directory, options)?;
        let shown = self.directory.display();
        if !self.is_in_sight() {
            bail!("{shown}: is not mounted there any more");
        }
        if words.read_only && !after.read_only {
            self.fs.make_writable().with_context(|| shown.to_string())?;
        }
        if let Err(error) = fuse::mount::remount(&self.directory, &mount_options(&self.place.path, &after)) {
            if words.read_only {
                self.fs.make_read_only().with_context(|| shown.to_string())?;
            }
            return Err(remount::explain(error, &self.directory));
        }
        // Whatever comes of that, changes are refused from now on, until it is made writable.
        let closed = if after.read_only { self.fs.make_read_only() } else { Ok(()) };
        if let Some(interval_ns) = after.commit_interval_ns {
            self.fs.set_commit_interval(interval_ns);
        }
        self.access_times.keep(after.strict_access_times);
        self.fs.set_switches(switches(&after));
        tracing::info!(volume = %self.fs_id(), read_only = after.read_only, "remounted");
        *self.words.lock() = after;
        closed.with_context(|| format!("{shown}: is read-only, but was not closed properly"))
    }

    /// Detaches the mount. When it is in use it goes out of sight, and ends when nobody uses it any more.
    fn detach(&self) -> Result<()> {
        if !self.is_in_sight() {
            tracing::info!("out of sight already; it ends when nobody uses it any more");
            return self.sync();
        }
        match self.apart("polder-unmounts", unmount) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.detach_in_use(),
            Err(error) if self.is_in_sight() => {
                return Err(error).with_context(|| format!("{} stays mounted", self.directory.display()));
            }
            Err(error) => tracing::debug!("somebody else was faster: {error}"),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Ends a mount, detached or not, whoever still uses it.
    fn cut_off(&self) -> Result<()> {
        tracing::warn!("who still uses the mount is cut off");
        if self.entry.as_ref().is_some_and(|entry| abort(entry).is_ok()) {
            return Ok(());
        }
        // Where the kernel's switches for connections are not mounted.
        if self.entry.is_some() && self.is_in_sight() && unmount_by_force(&self.directory).is_ok() {
            return Ok(());
        }
        self.end_process()
    }

    /// What is still on its way is not waited for by file: whoever ends this process now would have the waiting thread
    /// keep the mount, and its users wait for ever.
    fn detach_in_use(&self) {
        if let Err(error) = self.have_written_back().and_then(|()| Ok(self.fs.sync()?)) {
            tracing::error!("on the way to its end: {error:#}");
        }
        // That may have taken long, and somebody may have been faster.
        if self.is_in_sight()
            && let Err(error) = self.apart("polder-unmounts", unmount_lazily)
        {
            tracing::error!("the mount cannot be detached: {error}");
        }
    }

    /// Closing the connection by ending is left when the kernel gives no other means.
    fn end_process(&self) -> Result<()> {
        let closed = self.fs.unmount();
        if let Err(error) = &closed {
            tracing::error!("the volume was not closed properly: {error}");
        }
        std::process::exit(i32::from(closed.is_err()));
    }
}

/// Says where the log goes, and what the kernel should know of a process that it writes back through. Returns the log
/// file.
fn prepare_process(daemon: &Daemon) -> Result<Option<Arc<File>>> {
    let log = logging::start(&match &daemon.log {
        Some(path) => Reader::File(path),
        None if daemon.detach => Reader::System,
        None => Reader::Starter,
    })?;
    process::stand_by_writeback();
    Ok(log)
}

/// Leaves what this process was started with behind: session, directory, terminal. Whoever waits for us reads `ready`
/// and the end of our output. Only after the mount is attached: where it is mounted because somebody came to the
/// directory (`x-systemd.automount`), the kernel has all wait for it but the process group that was started to mount.
pub(crate) fn leave_starter(log: Option<&File>) -> Result<()> {
    rustix::process::setsid().context("no session of its own")?;
    std::env::set_current_dir("/").context("/")?;
    let nowhere = File::options().read(true).write(true).open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stderr(log.unwrap_or(&nowhere))?;
    let said = writeln!(std::io::stdout(), "{READY}");
    rustix::stdio::dup2_stdout(&nowhere)?;
    if said.is_err() {
        bail!("nobody waits for the mount any more");
    }
    Ok(())
}

/// Signals that end the daemon wait to be fetched, in every thread that is started from now on.
pub(crate) fn block_signals() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().context("signals cannot be blocked")?;
    Ok(signals)
}

/// The first signal detaches the mount, a further one does not wait for those who use it, nor for what the first
/// has begun.
fn end_on_signal(signals: SigSet, served: Arc<Served>) -> Result<()> {
    rt::thread::spawn("polder-signals", move || {
        let mut is_first = true;
        while let Ok(signal) = signals.wait() {
            tracing::info!("{signal}: unmounting");
            let begun = match is_first {
                true => detach_aside(&served),
                false => served.cut_off(),
            };
            if let Err(error) = begun {
                tracing::error!("{error:#}");
            }
            is_first = false;
        }
    })?;
    Ok(())
}

/// To make durable what was written takes as long as the device does.
fn detach_aside(served: &Arc<Served>) -> Result<()> {
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

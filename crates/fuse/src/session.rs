//! The life of one mount.
//!
//! The session ends when the mount is detached or aborted. This module does not decide that. To end a session, call
//! [`crate::mount::unmount`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

use fs::Fs;
use rt::thread::JoinHandle;

use crate::atime::AccessTimes;
use crate::deferred::{DeferredQueues, DeferredReceivers, DeferredWork, write_back, write_back_cut_files};
use crate::kernel::{Answers, Channel, FITS, Notifier, REQUEST_BYTES_MAX, Serving};
use crate::mount::{self, MountEntry, MountError, MountOptions};
use crate::page_cache::PageCache;
use crate::request_times::RequestTimes;
use crate::server::Server;
use crate::thread_pool::ThreadPool;
use crate::transport::Transport;
use crate::uncached::Changes;

/// The number of threads that answer requests. There are more than processors, because a thread that waits for the
/// device or a flush answers nothing else, and only threads that wait at the same time share a flush.
const THREADS_MIN: usize = 12;
const THREADS_MAX: usize = 32;
/// One of `OTHERS_SHARE` threads answers no writes.
const OTHERS_SHARE: usize = 3;

/// Writes that bypass the kernel's cache are delayed up to this number of bytes: enough to append one batch while the
/// next one arrives.
const DELAYED_BYTES: u64 = 4 << 20;

/// How many requests for readahead and write-back the kernel may have in progress. When that many are in progress, a
/// program that reads a file waits in the kernel, behind all writes of programs that write more than fits. So the
/// number is the largest possible where the kernel keeps no more dirty bytes than can be queued here …
const BACKGROUND_MAX: u16 = u16::MAX;
/// … and at most this otherwise, so that all of them can be queued: they would delay all later requests.
const BACKGROUND_MAX_UNBOUNDED: u64 = 64;

/// The kernel is not told to keep less than 1 / `DIRTY_SHARE_MIN` of the dirty bytes that it would keep. By default
/// it gives a mount a hundredth of all dirty memory. Kernels that count shares in 1024ths would round a smaller share
/// to nothing.
const DIRTY_SHARE_MIN: u64 = 10;

/// Readahead of the kernel, where we may set it: this many times what the device could read in the time of one seek.
/// A program that reads one of several files loses the time of a seek once for each readahead.
const READ_AHEAD_SEEKS: u64 = 8;

/// A volume that is attached and waits for its requests to be answered.
pub struct Mounted {
    channel: Channel,
    transport: Transport,
    server: Arc<Server>,
    deferred: DeferredReceivers,
    entry: Option<MountEntry>,
    cache: PageCache,
    write_queue_bytes: u64,
}

impl Mounted {
    /// Attaches the volume at `directory`, which must be absolute and free of symbolic links. Queued writes take at
    /// most [`write_queue_bytes`](crate::Memory::write_queue_bytes).
    pub fn new(
        fs: Arc<Fs>,
        directory: &Path,
        options: &MountOptions,
        write_queue_bytes: u64,
    ) -> Result<Mounted, MountError> {
        assert!(directory.is_absolute(), "the mount table has absolute paths");
        let device = mount::attach(directory, options)?;
        let entry = mount::entry_at(directory).ok().flatten();
        let access_times = AccessTimes::new(options.strict_access_times);
        let readahead_bytes = u64::from(fs.extents().seek_bytes()) * READ_AHEAD_SEEKS;
        let server = Arc::new(Server::new(Arc::clone(&fs), access_times, options.uncached));
        let (sender, deferred) = DeferredQueues::new();
        let transport = Transport::new(Arc::clone(&server), sender, !options.no_xattrs);
        let channel = Channel::new(device).map_err(MountError::NoDevice)?;
        let bdi = entry.as_ref().map(BdiSettings::of);
        let is_bounded = |bdi: &BdiSettings| bdi.bound_dirty(write_queue_bytes / FITS.1 * FITS.0);
        let background_max = match bdi.as_ref().is_some_and(is_bounded) {
            true => BACKGROUND_MAX,
            false => background_max_unbounded(write_queue_bytes),
        };
        transport.begin(&channel, background_max).map_err(|error| {
            detach_leftover(&channel, entry.as_ref());
            MountError::Handshake(error)
        })?;
        // Kernels before 6.16 lock a file while it is closed, and an `fsync` that waits for us may hold that lock.
        let opened = entry.clone().filter(|_| transport.waits_for_writes());
        let cache = PageCache::new(Notifier::new(&channel), opened);
        fs.call_before_commits(write_back_before_commits(&server, &cache));
        if !options.uncached {
            fs.delay_writes(DELAYED_BYTES);
        }
        if let Some(bdi) = bdi {
            bdi.set_readahead(readahead_bytes);
        }
        Ok(Mounted { channel, transport, server, deferred, entry, cache, write_queue_bytes })
    }

    /// Its line in the table of mounts, if the table could be read.
    pub fn entry(&self) -> Option<&MountEntry> {
        self.entry.as_ref()
    }

    /// The switch for access times.
    pub fn access_times(&self) -> AccessTimes {
        self.server.access_times().clone()
    }

    /// How long its requests take.
    pub fn request_times(&self) -> RequestTimes {
        self.channel.times_of_mount()
    }

    /// For the process that changes the volume of an uncached mount. `None` if the kernel caches.
    pub fn changes(&self) -> Option<Changes> {
        self.server.references().cloned().map(Changes)
    }

    /// The kernel's cache of this mount.
    pub fn kernel_cache(&self) -> KernelCache {
        KernelCache { server: Arc::downgrade(&self.server), cache: self.cache.clone() }
    }

    /// Answers requests until the volume is detached and no longer in use.
    pub fn serve(self) -> io::Result<()> {
        let Mounted { channel, transport, server, deferred, entry, cache, write_queue_bytes } = self;
        let runner = DeferredRunner { server, cache };
        let started = runner.start_all(deferred);
        let ended = match &started {
            Ok(_) => answer_all(&channel, transport, write_queue_bytes),
            Err(_) => {
                drop(transport);
                Ok(())
            }
        };
        detach_leftover(&channel, entry.as_ref());
        let Running { threads, pool } = started?;
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread that runs deferred work panicked"))?;
        }
        pool.wait();
        ended
    }
}

/// The kernel's settings for the backing device of a mount (BDI).
struct BdiSettings(PathBuf);

impl BdiSettings {
    fn of(entry: &MountEntry) -> BdiSettings {
        BdiSettings(Path::new("/sys/class/bdi").join(&entry.device))
    }

    /// Only root may do this. Otherwise the kernel's 128 KiB stay.
    fn set_readahead(&self, bytes: u64) {
        if let Err(error) = std::fs::write(self.0.join("read_ahead_kb"), (bytes >> 10).to_string()) {
            tracing::debug!("the readahead of the kernel cannot be set: {error}");
        }
    }

    /// Limits the dirty bytes that the kernel keeps to about `bytes`. A smaller limit stays. Returns whether there is
    /// a limit. The kernel keeps it as a share of the memory that it has now. Kernels before 6.2 do not have this
    /// setting.
    fn bound_dirty(&self, bytes: u64) -> bool {
        let knob = self.0.join("max_bytes");
        let bounded = std::fs::read_to_string(&knob).and_then(|now| {
            let now: u64 = now.trim().parse().map_err(io::Error::other)?;
            match now <= bytes {
                true => Ok(()),
                false if now / DIRTY_SHARE_MIN > bytes => {
                    Err(io::Error::other(format!("{now} are too many")))
                }
                false => std::fs::write(&knob, bytes.to_string()),
            }
        });
        if let Err(error) = &bounded {
            tracing::debug!("the limit of dirty bytes in the kernel cannot be set: {error}");
        }
        bounded.is_ok()
    }
}

/// The kernel's cache of a mount. It can be used without a path to the mount.
pub struct KernelCache {
    /// A weak reference, because open files end with the session.
    server: Weak<Server>,
    cache: PageCache,
}

impl KernelCache {
    /// Whether the mount is attached in any namespace or used by any program.
    pub fn is_attached(&self) -> bool {
        self.cache.notifier().is_connected()
    }

    /// Makes the kernel write back all files that are open for writing, and waits until it has. It has written back
    /// the others when they were closed. A thread that answers requests must not call this.
    ///
    /// An error means that a file with a name lacks data, now or since the last report. A file without a name is not
    /// reported: programs that have it open get the error, and it cannot get a name without its data.
    ///
    /// Kernels before 6.16 do not wait for write-back that is already in progress.
    pub fn write_back(&self) -> io::Result<()> {
        let Some(server) = self.server.upgrade() else { return Ok(()) };
        let of = |inode| match write_back(&server, &self.cache, inode) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && server.has_no_name(inode) => Ok(()),
            written => written,
        };
        // The other files are written back even if one lacks space.
        server.files_written().into_iter().map(of).fold(Ok(()), io::Result::and)
    }
}

/// Has data written back before the commit that depends on it. A session that has ended has no data left.
fn write_back_before_commits(server: &Arc<Server>, cache: &PageCache) -> Arc<dyn Fn() + Send + Sync> {
    let (server, cache) = (Arc::downgrade(server), cache.clone());
    Arc::new(move || {
        if let Some(server) = server.upgrade() {
            write_back_cut_files(&server, &cache);
        }
    })
}

/// The threads that run deferred work.
struct Running {
    threads: Vec<JoinHandle<()>>,
    pool: Arc<ThreadPool<DeferredWork>>,
}

/// The state that deferred work needs.
#[derive(Clone)]
struct DeferredRunner {
    server: Arc<Server>,
    cache: PageCache,
}

impl DeferredRunner {
    fn start_all(
        &self,
        DeferredReceivers { threads, write_backs, listings }: DeferredReceivers,
    ) -> io::Result<Running> {
        let start = |(name, deferred)| self.start(name, deferred);
        let threads = threads.into_iter().map(start).collect::<io::Result<_>>()?;
        let runner = self.clone();
        let pool = ThreadPool::start("polder-writeback", write_backs, || true, move |work| runner.run(work))?;
        let notifier = self.cache.notifier().clone();
        ThreadPool::start("polder-listings", listings, || true, move |work| work.drop_listing(&notifier))?;
        Ok(Running { threads, pool })
    }

    /// Starts a thread that runs the work that it receives until all senders are gone.
    fn start(&self, name: &str, deferred: Receiver<DeferredWork>) -> io::Result<JoinHandle<()>> {
        let runner = self.clone();
        rt::thread::spawn(name, move || deferred.into_iter().for_each(|work| runner.run(work)))
    }

    fn run(&self, work: DeferredWork) {
        work.run(&self.server, &self.cache);
    }
}

/// How many threads answer requests.
pub(crate) fn thread_count() -> usize {
    (3 * rt::thread::processors()).clamp(THREADS_MIN, THREADS_MAX)
}

/// How many of them answer writes.
fn writers() -> usize {
    thread_count() - thread_count() / OTHERS_SHARE
}

/// How many writes of the largest size can be answered or queued, up to the limit. A mount without writes uses the
/// limit.
fn background_max_unbounded(write_queue_bytes: u64) -> u16 {
    let queued = match write_queue_bytes {
        0 => BACKGROUND_MAX_UNBOUNDED,
        bytes => bytes / FITS.1 * FITS.0 / u64::from(REQUEST_BYTES_MAX),
    };
    (writers() as u64 + queued).min(BACKGROUND_MAX_UNBOUNDED) as u16
}

/// Answers requests on many threads until the connection ends. Drops `answers` when the last thread ends. Queued
/// writes take at most `write_queue_bytes`.
pub(crate) fn answer_all<A>(channel: &Channel, answers: A, write_queue_bytes: u64) -> io::Result<()>
where
    A: Answers + Send + Sync + 'static,
{
    let write_queue_bytes = usize::try_from(write_queue_bytes).unwrap_or(usize::MAX);
    let serving = Arc::new(Serving::new(answers, writers(), write_queue_bytes));
    let mut threads = vec![answer_on(channel.clone(), &serving, 0)?];
    for number in 1..thread_count() {
        match answer_on(own_channel(channel), &serving, number) {
            Ok(thread) => threads.push(thread),
            // Fewer threads suffice. Ending now would leave programs without answers.
            Err(error) => tracing::warn!("only {number} threads answer requests: {error}"),
        }
    }
    drop(serving);
    let join = |thread: JoinHandle<io::Result<()>>| {
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that answers requests panicked")))
    };
    let ended: Vec<io::Result<()>> = threads.into_iter().map(join).collect();
    ended.into_iter().collect()
}

fn answer_on<A>(
    channel: Channel,
    serving: &Arc<Serving<A>>,
    number: usize,
) -> io::Result<JoinHandle<io::Result<()>>>
where
    A: Answers + Send + Sync + 'static,
{
    let serving = Arc::clone(serving);
    rt::thread::spawn(&format!("polder-fuse-{number}"), move || {
        let served = serving.serve(&channel);
        if let Err(error) = &served {
            tracing::warn!("a thread that answers requests has ended: {error}");
        }
        served
    })
}

/// A channel for one thread alone. The common one if the device cannot be opened again.
fn own_channel(common: &Channel) -> Channel {
    mount::open_device().and_then(|device| common.fork(device.into())).unwrap_or_else(|error| {
        tracing::debug!("threads share a channel: {error}");
        common.clone()
    })
}

/// Detaches the mount after a session that ended by an error, because nothing would answer its requests. If the
/// session ended because the mount did, nothing is left. Another mount at that place may have the same numbers and
/// stays.
pub(crate) fn detach_leftover(channel: &Channel, entry: Option<&MountEntry>) {
    let places = entry.and_then(|entry| entry.places().ok()).unwrap_or_default();
    for place in places.iter().filter(|place| place.is_reachable()) {
        if (channel.is_connected() || mount::is_dead(&place.directory))
            && let Err(error) = mount::unmount_lazily(&place.directory)
        {
            tracing::warn!("the mount cannot be detached: {error}");
        }
    }
}

#[cfg(test)]
mod tests;

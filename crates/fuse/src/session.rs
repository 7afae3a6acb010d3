//! One mount from its beginning to its end.
//!
//! The session ends when the mount does: detached by whoever may, or aborted. Nothing here decides
//! to end it; whoever wants it ended calls [`crate::mount::unmount`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

use fs::Fs;
use rt::thread::JoinHandle;

use crate::access::AccessTimes;
use crate::errands::{Errand, Errands, Received, write_back, write_back_cut_files};
use crate::kernel::{Answers, Channel, FITS, Notifier, REQUEST_BYTES_MAX, Serving};
use crate::mount::{self, MountEntry, MountError, MountOptions};
use crate::page_cache::PageCache;
use crate::pool::Pool;
use crate::server::Server;
use crate::transport::Transport;

/// Threads that answer requests. More than processors, because one that waits for the device or a flush
/// answers nobody else, and flushes are shared only among those that wait at the same time.
const THREADS_MIN: usize = 12;
const THREADS_MAX: usize = 32;
/// One of so many threads answers no writes.
const OTHERS_SHARE: usize = 3;

/// How many reads ahead and writes back the kernel may have under way. Who reads a file and finds that so many are waits
/// in the kernel, behind all writes of whoever writes more than fits: so it is as many as can be said where there cannot
/// be more to be written back than can be put aside …
const BACKGROUND_MAX: u16 = u16::MAX;
/// … and no more than so many, all of which can be put aside, where there can: they would come before all else that is
/// asked later.
const BACKGROUND_MAX_UNBOUNDED: u64 = 64;

/// The kernel is not told to keep less to be written back than such a share of what it would. By itself it gives a mount a
/// hundredth of all that may be dirty; where it counts shares in 1024ths, less than one of these is nothing.
const DIRTY_SHARE_MIN: u64 = 10;

/// How far the kernel reads ahead, where we may say so: so many times what the device could read instead of beginning
/// elsewhere. Who reads one file beside others that are read loses that time once for each turn.
const READ_AHEAD_SEEKS: u64 = 8;

/// A volume that is attached and waits for its requests to be answered.
pub struct Mounted {
    channel: Channel,
    transport: Transport,
    server: Arc<Server>,
    errands: Received,
    entry: Option<MountEntry>,
    cache: PageCache,
    aside_bytes: u64,
}

impl Mounted {
    /// Attaches the volume at `directory`, which must be absolute and free of symbolic links. Writes that wait until others
    /// are answered take at most [so many bytes](crate::Memory::aside_bytes).
    pub fn new(
        fs: Arc<Fs>,
        directory: &Path,
        options: &MountOptions,
        aside_bytes: u64,
    ) -> Result<Mounted, MountError> {
        assert!(directory.is_absolute(), "the table of mounts has absolute paths");
        let device = mount::attach(directory, options)?;
        let entry = mount::entry_at(directory).ok().flatten();
        let access_times = AccessTimes::new(options.strict_access_times);
        let read_ahead_bytes = u64::from(fs.extents().seek_bytes()) * READ_AHEAD_SEEKS;
        let server = Arc::new(Server::new(Arc::clone(&fs), access_times));
        let (sender, errands) = Errands::new();
        let transport = Transport::new(Arc::clone(&server), sender);
        let channel = Channel::new(device);
        let knobs = entry.as_ref().map(Knobs::of);
        let is_bounded = |knobs: &Knobs| knobs.bound_dirty(aside_bytes / FITS.1 * FITS.0);
        let background_max = match knobs.as_ref().is_some_and(is_bounded) {
            true => BACKGROUND_MAX,
            false => background_max_unbounded(aside_bytes),
        };
        transport.begin(&channel, background_max).map_err(|error| {
            detach_leftover(&channel, entry.as_ref());
            MountError::Handshake(error)
        })?;
        // Kernels before 6.16 lock a file that is closed, and an `fsync` that waits for us may have it locked.
        let opened = entry.clone().filter(|_| transport.waits_for_writes());
        let cache = PageCache::new(Notifier::new(&channel), opened);
        fs.call_before_commits(write_back_before_commits(&server, &cache));
        if let Some(knobs) = knobs {
            knobs.set_read_ahead(read_ahead_bytes);
        }
        Ok(Mounted { channel, transport, server, errands, entry, cache, aside_bytes })
    }

    /// Its line in the table of mounts, if the table could be read.
    pub fn entry(&self) -> Option<&MountEntry> {
        self.entry.as_ref()
    }

    /// The switch for times of access.
    pub fn access_times(&self) -> AccessTimes {
        self.server.access_times().clone()
    }

    /// The kernel's cache of this mount.
    pub fn kernel_cache(&self) -> KernelCache {
        KernelCache { server: Arc::downgrade(&self.server), cache: self.cache.clone() }
    }

    /// Answers requests until the volume is detached and nothing of it is in use.
    pub fn serve(self) -> io::Result<()> {
        let Mounted { channel, transport, server, errands, entry, cache, aside_bytes } = self;
        let runner = ErrandRunner { server, cache };
        let Received { threads, write_backs } = errands;
        let started = runner.start_all(threads, write_backs);
        let ended = match &started {
            Ok(_) => answer_all(&channel, transport, aside_bytes),
            Err(_) => {
                drop(transport);
                Ok(())
            }
        };
        detach_leftover(&channel, entry.as_ref());
        let Running { threads, pool } = started?;
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread that runs errands panicked"))?;
        }
        pool.wait();
        ended
    }
}

/// What the kernel lets root choose for a mount.
struct Knobs(PathBuf);

impl Knobs {
    fn of(entry: &MountEntry) -> Knobs {
        Knobs(Path::new("/sys/class/bdi").join(&entry.device))
    }

    /// Only root may; without it the kernel's 128 KiB stay.
    fn set_read_ahead(&self, bytes: u64) {
        if let Err(error) = std::fs::write(self.0.join("read_ahead_kb"), (bytes >> 10).to_string()) {
            tracing::debug!("the kernel's read-ahead stays as it is: {error}");
        }
    }

    /// Has no more than about so many bytes wait in the kernel to be written back; whether it is so. Less than that stays as
    /// it is. The kernel keeps it as a share of the memory that it has then. Kernels before 6.2 cannot.
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
            tracing::debug!("what the kernel keeps to be written back stays as it is: {error}");
        }
        bounded.is_ok()
    }
}

/// What the kernel holds of a mount, reached without a way through a directory.
pub struct KernelCache {
    /// Open files end with the session, not with us.
    server: Weak<Server>,
    cache: PageCache,
}

impl KernelCache {
    /// Whether the mount is attached anywhere, in whatever namespace, or used by anybody.
    pub fn is_attached(&self) -> bool {
        self.cache.notifier().is_connected()
    }

    /// Makes the kernel write back what it holds of the contents of all files that are open for writing, and waits
    /// until it has; others it has written back when they were closed. Never to be called by a thread that
    /// answers requests.
    ///
    /// An error means that a file that has a name lacks data, here or since somebody was told last. What a file without a
    /// name lacks is lost to nobody: whoever has it open hears of it, and nothing gives it a name without its data.
    ///
    /// Of what was on its way already kernels before 6.16 do not wait.
    pub fn write_back(&self) -> io::Result<()> {
        let Some(server) = self.server.upgrade() else { return Ok(()) };
        let of = |inode| match write_back(&server, &self.cache, inode) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && server.has_no_name(inode) => Ok(()),
            written => written,
        };
        // One that lacks space does not keep the others from being written back.
        server.files_written().into_iter().map(of).fold(Ok(()), io::Result::and)
    }
}

/// Has data arrive before the commit that depends on it. The session that has ended holds no data.
fn write_back_before_commits(server: &Arc<Server>, cache: &PageCache) -> Arc<dyn Fn() + Send + Sync> {
    let (server, cache) = (Arc::downgrade(server), cache.clone());
    Arc::new(move || {
        if let Some(server) = server.upgrade() {
            write_back_cut_files(&server, &cache);
        }
    })
}

/// The threads that run errands.
struct Running {
    threads: Vec<JoinHandle<()>>,
    pool: Arc<Pool<Errand>>,
}

/// What threads that run errands need.
#[derive(Clone)]
struct ErrandRunner {
    server: Arc<Server>,
    cache: PageCache,
}

impl ErrandRunner {
    fn start_all(
        &self,
        threads: [(&'static str, Receiver<Errand>); 4],
        write_backs: Receiver<Errand>,
    ) -> io::Result<Running> {
        let start = |(name, errands)| self.start(name, errands);
        let threads = threads.into_iter().map(start).collect::<io::Result<_>>()?;
        let runner = self.clone();
        let pool = Pool::start("polder-writeback", write_backs, || true, move |errand| runner.run(errand))?;
        Ok(Running { threads, pool })
    }

    /// Starts a thread that runs what it receives until nobody can send any more.
    fn start(&self, name: &str, errands: Receiver<Errand>) -> io::Result<JoinHandle<()>> {
        let runner = self.clone();
        rt::thread::spawn(name, move || errands.into_iter().for_each(|errand| runner.run(errand)))
    }

    fn run(&self, errand: Errand) {
        errand.run(&self.server, &self.cache);
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

/// How many writes, as large as they can be, can be answered or put aside, but no more than reads where nothing is written.
fn background_max_unbounded(aside_bytes: u64) -> u16 {
    let aside = match aside_bytes {
        0 => BACKGROUND_MAX_UNBOUNDED,
        bytes => bytes / FITS.1 * FITS.0 / u64::from(REQUEST_BYTES_MAX),
    };
    (writers() as u64 + aside).min(BACKGROUND_MAX_UNBOUNDED) as u16
}

/// Answers requests on many threads until there are no more; no other thread keeps what answers then. Writes that are put
/// aside take at most so many bytes.
pub(crate) fn answer_all<A>(channel: &Channel, answers: A, aside_bytes: u64) -> io::Result<()>
where
    A: Answers + Send + Sync + 'static,
{
    let aside_bytes = usize::try_from(aside_bytes).unwrap_or(usize::MAX);
    let serving = Arc::new(Serving::new(answers, writers(), aside_bytes));
    let mut threads = vec![answer_on(channel.clone(), &serving, 0)?];
    for number in 1..thread_count() {
        match answer_on(own_channel(channel), &serving, number) {
            Ok(thread) => threads.push(thread),
            // Fewer threads answer as well, and to end now would leave those who wait without an answer.
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
            tracing::warn!("a thread answers no more requests: {error}");
        }
        served
    })
}

/// A channel for one thread alone, or the common one where the device cannot be opened again.
fn own_channel(common: &Channel) -> Channel {
    mount::open_device().and_then(|device| common.fork(device.into())).unwrap_or_else(|error| {
        tracing::debug!("threads share a channel: {error}");
        common.clone()
    })
}

/// A session that ended by an error leaves a mount that answers nobody. One that ended because the mount did leaves
/// nothing; what is there by then is somebody else's, and may have got the same numbers.
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

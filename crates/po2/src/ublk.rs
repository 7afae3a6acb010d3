//! A view of zones as a block device of Linux with ublk, the kernel's driver for block devices that a process serves.
//!
//! ```text
//! programs --> /dev/ublkbN --> the kernel's driver --> /dev/ublkcN --> this process --> the device
//! ```
//!
//! Start: the driver receives the shape of the device (`control`), one thread waits for requests (`queue`), workers
//! execute them (`answer`), the device is started, and the kernel reports its zones. End: the device is stopped, the
//! kernel returns the commands that wait for requests, the threads end, and the number of the device is freed. If the
//! process is killed, its device disappears: its users get errors, and unflushed data may be lost, as with a device
//! that was unplugged.
//!
//! **Ownership.** The driver identifies devices by small numbers and reuses free numbers. A server has `/dev/ublkcN`
//! open until it has freed the number. So its commands for N affect its own device. A process that removes a device
//! of another process first checks that it is Polder's, by a mark that the driver stores, and does everything under
//! one lock (`removal`): no other process of Polder takes or frees a number meanwhile.
//!
//! **Order.** The kernel has one write in flight for each zone, and any number of appends; workers answer in any
//! order. A flush is answered when the device below has flushed, and there is no cache here that it would miss.
//!
//! **Memory.** The bytes of a request are copied from and to the kernel (`UBLK_F_USER_COPY`, which zones require). A
//! read returns all requested bytes, so no memory of the kernel is exposed.
//!
//! It requires root. No device outlives its process. Discards are not supported, because zones are reset.

mod abi;
mod answer;
mod control;
mod queue;
mod removal;
mod ring;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use rt::sync::Mutex;
use rt::thread::JoinHandle;
use rustix::io::Errno;

use self::abi::{DeviceInfo, Parameters};
use self::answer::{Payload, answer};
use self::control::Control;
use self::queue::{DEPTH, Finished, Job, Queue};
pub use self::removal::ServedDevice;
use self::removal::{DriverLock, stop};
use crate::{Po2Shape, Po2View};
use zone::zoned::port::AlignedBuffer;
use zone::zoned::report::{SECTOR, Zone};

/// The number of threads that execute requests: as many commands as a device can use concurrently, and no more than
/// one core can keep busy.
const WORKERS: usize = 16;
/// The largest transfer of a worker in bytes.
const BUFFER_BYTES: usize = 512 << 10;
/// The largest request that the driver supports.
const REQUEST_BYTES_MAX: usize = 32 << 20;
/// A mark that the driver stores for the server: the device is Polder's.
const MARK: u64 = u64::from_be_bytes(*b"polderp2");
/// Blocks may not be larger than the smallest page that the kernel has.
const PAGE_BYTES: u32 = 4096;

/// Why a block device cannot be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel has no ublk driver.
    #[error("the kernel has no ublk; load its module with `modprobe ublk_drv` (Linux 6.6 or later)")]
    NoDriver,
    /// The driver does not support zones.
    #[error("the kernel's ublk does not support zones; use Linux 6.6 or later, with zoned block devices")]
    NoZones,
    /// The process is not root.
    #[error("only root may create block devices; run this as root")]
    NotPermitted,
    /// The kernel does not support a device of this shape.
    #[error("{0}")]
    Unsuitable(String),
    /// The system refused an operation.
    #[error("the kernel refuses to {0}: {1}")]
    Refused(&'static str, io::Error),
    /// The device is in use.
    #[error("{} is in use; unmount it, or end the programs that use it first", .0.display())]
    InUse(PathBuf),
    /// A program other than Polder serves it.
    #[error("{} is served by a program other than Polder; end it with that program", .0.display())]
    Foreign(PathBuf),
}

/// A block device that this process serves.
pub struct UblkDevice {
    control: Control,
    number: u32,
    opened: Opened,
    threads: Mutex<Option<Threads>>,
}

/// `/dev/ublkcN`, open: until it is closed, N identifies this device. It is closed when the device has been removed,
/// and when requests can no longer be served: then the kernel ends pending requests.
#[derive(Clone)]
struct Opened(Arc<Mutex<Option<Arc<File>>>>);

impl Opened {
    fn get(&self) -> Option<Arc<File>> {
        self.0.lock().clone()
    }

    fn take(&self) -> Option<Arc<File>> {
        self.0.lock().take()
    }
}

struct Threads {
    queue: JoinHandle<io::Result<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl UblkDevice {
    /// Makes a block device of a view. It can be used when this returns.
    pub fn start(view: Po2View) -> Result<UblkDevice, UblkError> {
        let mut parameters = parameters(&view.shape())?;
        let request_bytes = parameters.sectors_max * SECTOR as u32;
        let control = Control::open()?;
        let lock = DriverLock::take()?;
        let made =
            control.add(&wanted(request_bytes)).map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::PERM) => UblkError::NotPermitted,
                Some(Errno::INVAL | Errno::OPNOTSUPP) => UblkError::NoZones,
                _ => UblkError::Refused("create a device", error),
            })?;
        let opened = open_served(made.device).map_err(|error| {
            // A further error cannot be reported.
            let _ = control.remove(made.device, None);
            UblkError::Refused("open the device that serves it", error)
        })?;
        let opened = Opened(Arc::new(Mutex::new(Some(Arc::new(opened)))));
        let device = UblkDevice { control, number: made.device, opened, threads: Mutex::new(None) };
        let started = device.begin(&made, &mut parameters, view);
        // Until it is started, it looks like a device whose process is about to end. So the lock is held until here.
        drop(lock);
        if started.is_err() {
            let _ = device.control.stop(device.number);
            device.wait().ok();
        }
        started.map(|()| device)
    }

    fn begin(&self, made: &DeviceInfo, parameters: &mut Parameters, view: Po2View) -> Result<(), UblkError> {
        if made.flags & abi::FLAG_ZONED == 0 {
            return Err(UblkError::NoZones);
        }
        let refused = |what| move |error| UblkError::Refused(what, error);
        self.control.set(self.number, parameters).map_err(refused("set the parameters of the device"))?;
        self.serve(view).map_err(refused("pass on requests"))?;
        self.control.start(self.number).map_err(refused("start the device"))
    }

    /// Starts the threads; returns when they wait for requests.
    fn serve(&self, view: Po2View) -> io::Result<()> {
        let device = self.opened.get().ok_or(Errno::NODEV)?;
        let (view, finished) = (Arc::new(view), Arc::new(Finished::new()?));
        let (jobs, request) = mpsc::channel();
        let request = Arc::new(Mutex::new(request));
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let worker = Worker {
                view: Arc::clone(&view),
                device: Arc::clone(&device),
                finished: Arc::clone(&finished),
            };
            let request = Arc::clone(&request);
            workers.push(rt::thread::spawn(&format!("polder-ublk-{number}"), move || worker.work(&request))?);
        }
        let (ready, is_ready) = mpsc::channel();
        let opened = self.opened.clone();
        let queue = rt::thread::spawn("polder-ublk", move || {
            let ended = run_queue(device, finished, jobs, &ready);
            if let Err(error) = &ended {
                tracing::error!(%error, "requests of the block device cannot be served any more; the device is removed");
                opened.take();
            }
            ended
        })?;
        *self.threads.lock() = Some(Threads { queue, workers });
        is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("the queue's thread has ended")))
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        path_of(self.number)
    }

    /// Stops the device after the requests in flight. Fails without `force` if the device is in use. Does nothing if
    /// it is stopped already.
    pub fn stop(&self, force: bool) -> Result<(), UblkError> {
        let Some(_opened) = self.opened.get() else { return Ok(()) };
        stop(&self.control, self.number, force)
    }

    /// Waits until the device was stopped, by this or another process, and frees its number.
    pub fn wait(&self) -> Result<(), UblkError> {
        let ended = self.join().map_err(|error| UblkError::Refused("pass on further requests", error));
        let _lock = DriverLock::take()?;
        // If the queue failed, it has closed `/dev/ublkcN`. If that can be opened now, it is still this device: only
        // a device whose server is gone can be opened.
        let Some(opened) = self.opened.take().or_else(|| open_served(self.number).ok().map(Arc::new)) else {
            return ended;
        };
        // If the kernel removed the device because the queue ended, it is stopped already.
        let _ = self.control.stop(self.number);
        let removed = self.control.remove(self.number, Some(opened));
        ended.and(removed.map_err(|error| UblkError::Refused("free the device's number", error)))
    }

    fn join(&self) -> io::Result<()> {
        let Some(Threads { queue, workers }) = self.threads.lock().take() else { return Ok(()) };
        let panicked = |_| io::Error::other("a thread that serves the device panicked");
        let ended = queue.join().map_err(panicked)?;
        workers.into_iter().try_for_each(|worker| worker.join().map_err(panicked))?;
        ended
    }
}

/// Opens the device as its server does; no other process can open it meanwhile.
fn open_served(number: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(served_path(number))
}

fn served_path(number: u32) -> PathBuf {
    format!("/dev/ublkc{number}").into()
}

fn path_of(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

/// The properties that are requested from the driver.
fn wanted(request_bytes_max: u32) -> DeviceInfo {
    DeviceInfo {
        queues: 1,
        depth: DEPTH,
        request_bytes_max,
        flags: abi::FLAG_IOCTL_ENCODE | abi::FLAG_USER_COPY | abi::FLAG_ZONED,
        server_flags: MARK,
        ..DeviceInfo::default()
    }
}

/// The parameters of a view for the kernel, or the reason why the kernel does not support it.
fn parameters(shape: &Po2Shape) -> Result<Parameters, UblkError> {
    let unsuitable = |why: String| Err(UblkError::Unsuitable(why));
    let block = shape.block_size;
    if block > PAGE_BYTES {
        return unsuitable(format!(
            "its blocks have {block} bytes; the kernel supports at most {PAGE_BYTES}"
        ));
    }
    let append_bytes = shape.append_bytes_max.min(BUFFER_BYTES);
    if append_bytes == 0 {
        return unsuitable("the device does not support zone append, which the kernel needs".to_owned());
    }
    let request_bytes = request_bytes(shape.zones);
    if request_bytes > REQUEST_BYTES_MAX {
        return unsuitable(format!("it has {} zones, more than the kernel's driver supports", shape.zones));
    }
    let sectors = |bytes: usize| (bytes as u64 / SECTOR) as u32;
    let Ok(zone_sectors) = u32::try_from(shape.zone_bytes / SECTOR) else {
        return unsuitable(format!(
            "zones of {} bytes are larger than the kernel supports",
            shape.zone_bytes
        ));
    };
    let shift = block.trailing_zeros() as u8;
    Ok(Parameters {
        types: abi::TYPE_BASIC | abi::TYPE_ZONED,
        attributes: abi::ATTRIBUTE_VOLATILE_CACHE,
        logical_block_shift: shift,
        physical_block_shift: shift,
        io_best_shift: shift,
        io_least_shift: shift,
        sectors_max: sectors(request_bytes),
        zone_sectors,
        sectors: u64::from(shape.zones) * u64::from(zone_sectors),
        open_zones_max: shape.max_open.unwrap_or(0),
        active_zones_max: shape.max_active.unwrap_or(0),
        append_sectors_max: sectors(append_bytes),
        ..Parameters::default()
    })
}

/// The size of the largest request, in which all zones can be reported. The driver would split a report into several
/// requests, but number the zones of each from 0. Then the kernel would take the zones behind the first request for
/// conventional ones.
fn request_bytes(zones: u32) -> usize {
    let report = zones as usize * size_of::<Zone>();
    report.next_multiple_of(PAGE_BYTES as usize).max(BUFFER_BYTES)
}

fn run_queue(
    device: Arc<File>,
    finished: Arc<Finished>,
    jobs: Sender<Job>,
    ready: &Sender<io::Result<()>>,
) -> io::Result<()> {
    // If sending fails, the receiver no longer waits.
    match Queue::new(device, finished, jobs) {
        Ok(queue) => {
            let _ = ready.send(Ok(()));
            queue.run()
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            Ok(())
        }
    }
}

/// A thread that executes requests.
struct Worker {
    view: Arc<Po2View>,
    device: Arc<File>,
    finished: Arc<Finished>,
}

impl Worker {
    /// Runs until there are no more requests.
    fn work(&self, request: &Mutex<Receiver<Job>>) {
        let mut buffer = AlignedBuffer::new(BUFFER_BYTES);
        loop {
            let next = request.lock().recv();
            let Ok(job) = next else { return };
            let payload = Bytes { device: &self.device, at: abi::position(job.tag) };
            let answer = answer(&self.view, &job.request, &payload, buffer.bytes_mut());
            self.finished.note(job.tag, answer);
        }
    }
}

/// The bytes of a request, at an offset of `/dev/ublkcN`.
struct Bytes<'a> {
    device: &'a File,
    at: u64,
}

impl Payload for Bytes<'_> {
    fn fetch(&self, from: usize, into: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(into, self.at + from as u64)
    }

    fn give(&self, at: usize, from: &[u8]) -> io::Result<()> {
        self.device.write_all_at(from, self.at + at as u64)
    }
}

#[cfg(test)]
mod tests;

//! Reads and writes of a file or block device. It uses direct I/O if the host supports it, and executes the commands
//! of a batch concurrently with io_uring if that is permitted, and one after the other otherwise.
//!
//! A buffer that a kernel command uses belongs to that command until its completion was seen. A batch returns only
//! when every submitted command has completed. If the kernel does not report completions, the process aborts, because
//! its memory could still be written to.
//!
//! It does not know what a zone is.

mod buffer;
mod discard;
mod host_recorder;
mod write_cache;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::waits::{WaitFor, about_to_wait};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

pub use self::buffer::Buffer as AlignedBuffer;
use self::buffer::{ALIGNMENT, Buffer, Buffers};
use self::host_recorder::HostRecorder;
use self::write_cache::WriteCache;

/// The commands of one batch that are in flight at once.
const DEPTH: u32 = 64;
/// The largest length of one command to the kernel; the rest of a transfer is done after it.
const LENGTH_MAX: usize = 1 << 30;

/// A file and the rings and buffers for its I/O.
pub(crate) struct Engine {
    file: File,
    /// Whether it is a block device.
    is_device: bool,
    /// Whether buffers have to be aligned.
    direct: bool,
    /// Rings that are not in use.
    rings: Mutex<Vec<IoUring>>,
    /// Whether rings are permitted; false once the kernel has refused one.
    has_rings: AtomicBool,
    buffers: Buffers,
    /// A volatile write cache in front of the file, for crash tests.
    write_cache: Option<WriteCache>,
    pub(crate) recorder: HostRecorder,
}

/// One read or write.
pub enum Transfer<'a> {
    /// A read that fills `into`.
    Read {
        /// Bytes from the beginning of the device.
        offset: u64,
        /// A whole number of blocks.
        into: &'a mut [u8],
    },
    /// A write to a write stream of the device, or without a stream (0).
    Write {
        /// Bytes from the beginning of the device.
        offset: u64,
        /// A whole number of blocks.
        from: &'a [u8],
        /// The number of the stream, or 0.
        stream: u8,
    },
}

impl Transfer<'_> {
    fn stream(&self) -> u8 {
        match self {
            Transfer::Read { .. } => 0,
            Transfer::Write { stream, .. } => *stream,
        }
    }
}

/// A transfer, and an aligned bounce buffer if the caller's memory is not aligned.
struct Prepared<'t, 'a> {
    transfer: &'t mut Transfer<'a>,
    bounce: Option<Buffer>,
}

impl Prepared<'_, '_> {
    fn offset(&self) -> u64 {
        match &*self.transfer {
            Transfer::Read { offset, .. } | Transfer::Write { offset, .. } => *offset,
        }
    }

    /// The command for the ring. It refers to memory of `self`, which must not be accessed or freed until the command
    /// has completed.
    fn entry(&mut self, fd: types::Fd) -> squeue::Entry {
        let offset = self.offset();
        let length = |bytes: &[u8]| bytes.len().min(LENGTH_MAX) as u32;
        match (&mut *self.transfer, &mut self.bounce) {
            (Transfer::Read { into, .. }, bounce) => {
                let bytes = match bounce {
                    Some(buffer) => &mut buffer.bytes_mut()[..into.len()],
                    None => into,
                };
                opcode::Read::new(fd, bytes.as_mut_ptr(), length(bytes)).offset(offset).build()
            }
            (Transfer::Write { from, stream, .. }, bounce) => {
                let bytes = match bounce {
                    Some(buffer) => &buffer.bytes()[..from.len()],
                    None => from,
                };
                let write = opcode::Write::new(fd, bytes.as_ptr(), length(bytes)).offset(offset);
                write.write_stream(*stream).build()
            }
        }
    }

    /// Transfers the bytes after the first `done`.
    fn finish(&mut self, file: &File, done: usize) -> std::io::Result<()> {
        let offset = self.offset() + done as u64;
        match (&mut *self.transfer, &mut self.bounce) {
            (Transfer::Read { into, .. }, Some(buffer)) => {
                file.read_exact_at(&mut buffer.bytes_mut()[done..into.len()], offset)
            }
            (Transfer::Read { into, .. }, None) => file.read_exact_at(&mut into[done..], offset),
            (Transfer::Write { from, .. }, Some(buffer)) => {
                file.write_all_at(&buffer.bytes()[done..from.len()], offset)
            }
            (Transfer::Write { from, .. }, None) => file.write_all_at(&from[done..], offset),
        }
    }

    fn len(&self) -> usize {
        match &*self.transfer {
            Transfer::Read { into, .. } => into.len(),
            Transfer::Write { from, .. } => from.len(),
        }
    }
}

impl Engine {
    /// Allocates and touches buffers for `count` transfers of `bytes` bytes.
    pub(crate) fn prepare_buffers(&self, count: usize, bytes: usize) {
        self.buffers.prepare(count, bytes);
    }

    /// Uses direct I/O if a read of `unit` aligned bytes at offset `unit` succeeds with it.
    pub(crate) fn new(file: File, unit: usize) -> std::io::Result<Self> {
        if let Some(write_cache) = WriteCache::from_environment(&file, unit)? {
            return Ok(Engine { direct: false, write_cache: Some(write_cache), ..Engine::of_direct(file) });
        }
        let is_device = file.metadata()?.file_type().is_block_device();
        let mut engine = Engine { is_device, ..Engine::of_direct(file) };
        let flags = rustix::fs::fcntl_getfl(&engine.file)?;
        let mut buffer = vec![0; unit];
        let tried = rustix::fs::fcntl_setfl(&engine.file, flags | OFlags::DIRECT)
            .map_err(std::io::Error::from)
            .and_then(|()| engine.read(unit as u64, &mut buffer));
        if tried.is_err() {
            rustix::fs::fcntl_setfl(&engine.file, flags - OFlags::DIRECT)?;
            engine.direct = false;
            // A medium error is reported to the caller that reads these bytes later. Here only direct I/O is tested.
            match engine.read(unit as u64, &mut buffer) {
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {}
                read => read?,
            }
        }
        Ok(engine)
    }

    /// For a file that was opened with `O_DIRECT`.
    pub(crate) fn of_direct(file: File) -> Self {
        Engine {
            file,
            is_device: false,
            direct: true,
            rings: Mutex::new(Vec::new()),
            has_rings: AtomicBool::new(true),
            buffers: Buffers::default(),
            write_cache: None,
            recorder: HostRecorder::default(),
        }
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether the host's page cache is bypassed.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether batches go through io_uring, as far as is known.
    pub(crate) fn has_rings(&self) -> bool {
        self.has_rings.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn forbid_rings(&self) {
        self.has_rings.store(false, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.one(&mut Transfer::Read { offset, into })
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> std::io::Result<()> {
        self.one(&mut Transfer::Write { offset, from, stream: 0 })
    }

    /// The same, to a write stream. Only io_uring can pass a stream to the kernel.
    pub(crate) fn write_to(&self, stream: u8, offset: u64, from: &[u8]) -> std::io::Result<()> {
        let mut write = [Transfer::Write { offset, from, stream }];
        self.run(&mut write).pop().expect("one result for one write")
    }

    fn one(&self, transfer: &mut Transfer<'_>) -> std::io::Result<()> {
        self.record_write(transfer)?;
        if let Some(write_cache) = &self.write_cache {
            return write_cache.execute(transfer);
        }
        let mut prepared = self.prepare(transfer);
        about_to_wait(WaitFor::Device);
        let done = prepared.finish(&self.file, 0);
        self.release(prepared);
        done
    }

    /// Executes all transfers, in any order, and waits for them. Returns one result for each.
    pub(crate) fn run(&self, transfers: &mut [Transfer<'_>]) -> Vec<std::io::Result<()>> {
        let has_stream = |transfer: &Transfer<'_>| transfer.stream() > 0;
        let at_once = (transfers.len() > 1 || transfers.iter().any(has_stream)) && self.write_cache.is_none();
        let ring = if at_once { self.take_ring() } else { None };
        let Some(mut ring) = ring else {
            return transfers.iter_mut().map(|transfer| self.one(transfer)).collect();
        };
        let recorded: Vec<_> = transfers.iter().map(|transfer| self.record_write(transfer)).collect();
        let mut prepared: Vec<_> = transfers.iter_mut().map(|transfer| self.prepare(transfer)).collect();
        let moved = submit_all(&mut ring, types::Fd(self.file.as_raw_fd()), &mut prepared);
        self.rings.lock().push(ring);
        let mut results = Vec::with_capacity(moved.len());
        for ((mut prepared, moved), recorded) in prepared.into_iter().zip(moved).zip(recorded) {
            results.push(recorded.and(self.complete(&mut prepared, moved)));
            self.release(prepared);
        }
        results
    }

    fn record_write(&self, transfer: &Transfer<'_>) -> std::io::Result<()> {
        match transfer {
            Transfer::Read { .. } => Ok(()),
            Transfer::Write { offset, from, .. } => self.recorder.write(*offset, from),
        }
    }

    /// The result of one transfer, after its unfinished part was done.
    fn complete(&self, prepared: &mut Prepared<'_, '_>, moved: i32) -> std::io::Result<()> {
        match usize::try_from(moved) {
            Ok(moved) if moved == prepared.len() => Ok(()),
            Ok(moved) => prepared.finish(&self.file, moved),
            Err(_) => {
                let errno = Errno::from_raw_os_error(-moved);
                // The device may have fewer streams than before.
                let refused = errno == Errno::INVAL && prepared.transfer.stream() > 0;
                // If this process may have no more threads, the kernel cancels commands that need one.
                let again = refused || matches!(errno, Errno::AGAIN | Errno::INTR | Errno::CANCELED);
                if again { prepared.finish(&self.file, 0) } else { Err(errno.into()) }
            }
        }
    }

    /// Makes all completed writes durable.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        about_to_wait(WaitFor::Device);
        match &self.write_cache {
            Some(write_cache) => write_cache.sync()?,
            None => self.file.sync_data()?,
        }
        self.recorder.sync()
    }

    /// Allocates blocks of the host for a range. Does nothing if the host does not support that.
    pub(crate) fn allocate(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        about_to_wait(WaitFor::Device);
        let flags = FallocateFlags::KEEP_SIZE;
        retry(|| rustix::fs::fallocate(&self.file, flags, offset, bytes)).or_else(ignore_unsupported)
    }

    /// Free bytes of the host of a file; `u64::MAX` if that is not known.
    pub(crate) fn host_space(&self) -> u64 {
        if self.is_device {
            return u64::MAX;
        }
        match rustix::fs::fstatvfs(&self.file) {
            // File systems without a limit report 0 blocks.
            Ok(host) if host.f_blocks > 0 => host.f_bavail.saturating_mul(host.f_frsize),
            _ => u64::MAX,
        }
    }

    /// Whether a block device supports discards; `None` for a file.
    pub(crate) fn discards(&self) -> Option<bool> {
        self.is_device.then(|| discard::can_discard(&self.file))
    }

    /// Returns the host's blocks of a range, or discards the range of a block device. Does nothing if that is not
    /// supported.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        about_to_wait(WaitFor::Device);
        self.recorder.punch(offset, bytes);
        if self.is_device {
            return retry(|| discard::discard(&self.file, offset, bytes)).or_else(ignore_unsupported);
        }
        let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        retry(|| rustix::fs::fallocate(&self.file, flags, offset, bytes)).or_else(ignore_unsupported)
    }

    fn take_ring(&self) -> Option<IoUring> {
        if !self.has_rings() {
            return None;
        }
        if let Some(ring) = self.rings.lock().pop() {
            return Some(ring);
        }
        let made = IoUring::new(DEPTH);
        if made.is_err() {
            self.has_rings.store(false, Ordering::Relaxed);
        }
        made.ok()
    }

    fn prepare<'t, 'a>(&self, transfer: &'t mut Transfer<'a>) -> Prepared<'t, 'a> {
        let (address, length) = match transfer {
            Transfer::Read { into, .. } => (into.as_ptr().addr(), into.len()),
            Transfer::Write { from, .. } => (from.as_ptr().addr(), from.len()),
        };
        if !self.direct || address.is_multiple_of(ALIGNMENT) {
            return Prepared { transfer, bounce: None };
        }
        let mut buffer = self.buffers.take(length);
        if let Transfer::Write { from, .. } = transfer {
            buffer.bytes_mut()[..length].copy_from_slice(from);
        }
        Prepared { transfer, bounce: Some(buffer) }
    }

    fn release(&self, prepared: Prepared<'_, '_>) {
        let Some(buffer) = prepared.bounce else { return };
        if let Transfer::Read { into, .. } = prepared.transfer {
            let length = into.len();
            into.copy_from_slice(&buffer.bytes()[..length]);
        }
        self.buffers.give(buffer);
    }
}

/// Submits every transfer and waits until all have completed. Returns the kernel's result of each.
fn submit_all(ring: &mut IoUring, fd: types::Fd, prepared: &mut [Prepared<'_, '_>]) -> Vec<i32> {
    let mut moved = vec![0; prepared.len()];
    let (mut next, mut in_flight) = (0, 0);
    while next < prepared.len() || in_flight > 0 {
        while next < prepared.len() && in_flight < DEPTH {
            let entry = prepared[next].entry(fd).user_data(next as u64);
            // SAFETY: the memory that the entry refers to is owned or exclusively borrowed by `prepared[next]`, which
            // is not accessed again before this function returns; and it returns (or unwinds) only after every
            // completion was seen.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.expect("the ring has DEPTH places and fewer commands are in flight");
            next += 1;
            in_flight += 1;
        }
        wait(ring);
        for completion in ring.completion() {
            moved[completion.user_data() as usize] = completion.result();
            in_flight -= 1;
        }
    }
    moved
}

/// Submits the pushed entries and waits until at least one command has completed. Aborts the process if the kernel
/// does not report completions.
pub(crate) fn wait<S: squeue::EntryMarker, C: cqueue::EntryMarker>(ring: &mut IoUring<S, C>) {
    about_to_wait(WaitFor::Device);
    if let Err(error) = ring.submit_and_wait(1) {
        let again = [Errno::INTR, Errno::AGAIN, Errno::BUSY].map(|errno| Some(errno.raw_os_error()));
        if !again.contains(&error.raw_os_error()) {
            eprintln!("polder: io_uring failed with commands in flight: {error}");
            std::process::abort();
        }
    }
}

fn retry(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

fn ignore_unsupported(errno: Errno) -> Result<(), Errno> {
    let unsupported = matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL);
    if unsupported { Ok(()) } else { Err(errno) }
}

#[cfg(test)]
pub(crate) use host_recorder::HostChange;

#[cfg(test)]
mod tests;

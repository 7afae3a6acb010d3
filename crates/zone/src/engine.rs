//! Reads and writes of a file or block device: direct where the host can, many at once by io_uring where
//! that is permitted, one after the other otherwise.
//!
//! A buffer that a kernel command uses belongs to that command until its completion has been seen:
//! a batch returns only when every command that it submitted has completed. If the kernel refuses to
//! say so, the process ends, because nothing could be told about its memory any more.
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
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

pub use self::buffer::Buffer as AlignedBuffer;
use self::buffer::{ALIGNMENT, Buffer, Buffers};
use self::host_recorder::HostRecorder;
use self::write_cache::WriteCache;

/// Commands of one batch that are under way at once.
const DEPTH: u32 = 64;
/// The largest length given to the kernel in one command; what is left over is done after it.
const LENGTH_MAX: usize = 1 << 30;

/// The file and the means to reach it.
pub(crate) struct Engine {
    file: File,
    /// Whether it is a block device.
    is_device: bool,
    /// Whether buffers have to be aligned.
    direct: bool,
    /// Rings that nobody uses at the moment.
    rings: Mutex<Vec<IoUring>>,
    /// Whether a ring can be had; false once the kernel has refused one.
    has_rings: AtomicBool,
    buffers: Buffers,
    /// What stands between us and the file, where losses of power are tried out.
    write_cache: Option<WriteCache>,
    pub(crate) recorder: HostRecorder,
}

/// One read or write.
pub enum Transfer<'a> {
    /// A read until `into` is full.
    Read {
        /// Bytes from the beginning of the device.
        offset: u64,
        /// A whole number of blocks.
        into: &'a mut [u8],
    },
    /// To a write stream of the device, or to none (0).
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

/// A transfer and the aligned memory that stands in for the caller's, where that is needed.
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

    /// The command for the ring. It names memory of `self`, which must not be touched or freed until
    /// the command has completed.
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

    /// Does what is left after the first `done` bytes.
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
    /// Makes and touches buffers for so many transfers of so many bytes.
    pub(crate) fn prepare_buffers(&self, count: usize, bytes: usize) {
        self.buffers.prepare(count, bytes);
    }

    /// Reaches the file directly if a read of `unit` aligned bytes at `unit` can be had so.
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
            // Whoever reads what cannot be read is told; here the question was another.
            match engine.read(unit as u64, &mut buffer) {
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {}
                read => read?,
            }
        }
        Ok(engine)
    }

    /// Reaches directly what was opened so (O_DIRECT).
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

    /// What is reached.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether the host's page cache is passed by.
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

    /// The same, to a write stream. Only io_uring takes one along.
    pub(crate) fn write_to(&self, stream: u8, offset: u64, from: &[u8]) -> std::io::Result<()> {
        let mut write = [Transfer::Write { offset, from, stream }];
        self.run(&mut write).pop().expect("one result for one write")
    }

    fn one(&self, transfer: &mut Transfer<'_>) -> std::io::Result<()> {
        self.record_write(transfer)?;
        if let Some(write_cache) = &self.write_cache {
            return write_cache.carry_out(transfer);
        }
        let mut prepared = self.prepare(transfer);
        let done = prepared.finish(&self.file, 0);
        self.release(prepared);
        done
    }

    /// Carries out all transfers, in any order, and waits for them. One result each.
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

    /// What the kernel said of one transfer, after what it left undone is done.
    fn complete(&self, prepared: &mut Prepared<'_, '_>, moved: i32) -> std::io::Result<()> {
        match usize::try_from(moved) {
            Ok(moved) if moved == prepared.len() => Ok(()),
            Ok(moved) => prepared.finish(&self.file, moved),
            Err(_) => {
                let errno = Errno::from_raw_os_error(-moved);
                // A device may have fewer streams than it had.
                let refused = errno == Errno::INVAL && prepared.transfer.stream() > 0;
                // Where this process may have no more threads, the kernel cancels what it would need one for.
                let again = refused || matches!(errno, Errno::AGAIN | Errno::INTR | Errno::CANCELED);
                if again { prepared.finish(&self.file, 0) } else { Err(errno.into()) }
            }
        }
    }

    /// Makes durable what was written before.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        match &self.write_cache {
            Some(write_cache) => write_cache.sync()?,
            None => self.file.sync_data()?,
        }
        self.recorder.sync()
    }

    /// Takes blocks of the host for a range; not every host can.
    pub(crate) fn allocate(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::KEEP_SIZE;
        retry(|| rustix::fs::fallocate(&self.file, flags, offset, bytes)).or_else(ignore_unsupported)
    }

    /// Bytes that the host of a file has left; more than there are where that is not known.
    pub(crate) fn host_space(&self) -> u64 {
        if self.is_device {
            return u64::MAX;
        }
        match rustix::fs::fstatvfs(&self.file) {
            // Of no blocks at all those speak that have no bound.
            Ok(host) if host.f_blocks > 0 => host.f_bavail.saturating_mul(host.f_frsize),
            _ => u64::MAX,
        }
    }

    /// Of a block device, whether it takes discards; none of a file.
    pub(crate) fn discards(&self) -> Option<bool> {
        self.is_device.then(|| discard::can_discard(&self.file))
    }

    /// Gives the host's blocks of a range back, or tells a block device that nobody needs it; not every one can.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
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

/// Submits every transfer and waits until all have completed; what the kernel said of each.
fn submit_all(ring: &mut IoUring, fd: types::Fd, prepared: &mut [Prepared<'_, '_>]) -> Vec<i32> {
    let mut moved = vec![0; prepared.len()];
    let (mut next, mut under_way) = (0, 0);
    while next < prepared.len() || under_way > 0 {
        while next < prepared.len() && under_way < DEPTH {
            let entry = prepared[next].entry(fd).user_data(next as u64);
            // SAFETY: the memory that the entry names is owned or exclusively borrowed by
            // `prepared[next]`, which is not touched again before this function returns; and it
            // returns (or unwinds) only after every completion was seen.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.expect("the ring has DEPTH places and fewer commands are under way");
            next += 1;
            under_way += 1;
        }
        wait(ring);
        for completion in ring.completion() {
            moved[completion.user_data() as usize] = completion.result();
            under_way -= 1;
        }
    }
    moved
}

/// Submits what was pushed and waits until something has completed. Ends the process if the kernel will not say.
pub(crate) fn wait<S: squeue::EntryMarker, C: cqueue::EntryMarker>(ring: &mut IoUring<S, C>) {
    if let Err(error) = ring.submit_and_wait(1) {
        let again = [Errno::INTR, Errno::AGAIN, Errno::BUSY].map(|errno| Some(errno.raw_os_error()));
        if !again.contains(&error.raw_os_error()) {
            eprintln!("polder: io_uring failed with commands under way: {error}");
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

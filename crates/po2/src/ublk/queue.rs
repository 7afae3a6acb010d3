//! The one queue of a device: fetches requests, has workers answer them, hands the answers back.
//!
//! The kernel wants all commands of a queue from one thread. So that thread does nothing but wait for its ring; the
//! requests are carried out by others, and a counter of the kernel (an `eventfd`, watched by the ring) says when some
//! of them have finished. Each tag is at any time in the kernel, waiting for a request, or in service; when the device
//! is stopped the kernel gives the waiting ones back, and the thread ends when none is anywhere.
//!
//! The kernel may refuse an answer. Its request would never end then, and whoever waits for it neither: so the answer
//! is an error instead, and where that is refused too the thread ends with the reason, upon which the kernel ends all
//! requests and the device.
#![allow(
    unsafe_code,
    reason = "requests come in memory that the kernel shares, and a ring takes raw entries"
)]

use std::fs::File;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use io_uring::{IoUring, opcode, types};
use rt::sync::Mutex;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::IntoBytes;

use super::abi::{Descriptor, RequestCommand, fetch};
use super::answer::Answer;
use super::ring::wait;

/// Requests that the kernel may have under way.
pub(super) const DEPTH: u16 = 64;
/// Entries of the ring: a command for each tag, and the look at the counter.
const ENTRIES: u32 = 2 * DEPTH as u32;
/// What completions of that look are told by; all others by their tag.
const FINISHED: u64 = u64::MAX;

/// One request to be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) tag: u16,
    pub(super) asked: Descriptor,
}

/// What workers have finished.
pub(super) struct Finished {
    answers: Mutex<Vec<(u16, Answer)>>,
    counter: OwnedFd,
}

impl Finished {
    pub(super) fn new() -> io::Result<Finished> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Finished { answers: Mutex::new(Vec::new()), counter })
    }

    /// Notes an answer and wakes the queue's thread.
    pub(super) fn note(&self, tag: u16, answer: Answer) {
        self.answers.lock().push((tag, answer));
        // A counter that is full has woken it already.
        let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> Vec<(u16, Answer)> {
        // First the counter: what comes in between is taken now, and looked for once more.
        let _ = rustix::io::read(&self.counter, &mut [0; 8]);
        std::mem::take(&mut *self.answers.lock())
    }
}

/// The queue's thread.
pub(super) struct Queue {
    ring: IoUring,
    device: Arc<File>,
    descriptors: Descriptors,
    finished: Arc<Finished>,
    jobs: Sender<Job>,
    /// Tags that are in the kernel.
    waiting: u16,
    /// Tags that are with workers, or on their way back.
    in_service: u16,
    /// What the kernel was told last, by tag.
    told: [Answer; DEPTH as usize],
}

/// What a request is answered with whose own answer the kernel does not take.
const REFUSED: Answer = Answer { result: -Errno::IO.raw_os_error(), place: 0 };

impl Queue {
    /// Of `/dev/ublkcN`. To be made by the thread that runs it.
    pub(super) fn new(device: Arc<File>, finished: Arc<Finished>, jobs: Sender<Job>) -> io::Result<Queue> {
        let mut queue = Queue::idle(device, finished, jobs)?;
        queue.watch();
        for tag in 0..DEPTH {
            queue.push(fetch::FETCH, RequestCommand { tag, ..RequestCommand::default() });
        }
        queue.ring.submit()?;
        // Nothing is asked before the device is started: what has completed was refused.
        let refused = queue.ring.completion().find(|completion| completion.user_data() != FINISHED);
        match refused.map(|completion| completion.result()) {
            Some(result) => Err(Errno::from_raw_os_error(-result).into()),
            None => Ok(queue),
        }
    }

    /// With no command in the kernel.
    fn idle(device: Arc<File>, finished: Arc<Finished>, jobs: Sender<Job>) -> io::Result<Queue> {
        let ring = IoUring::new(ENTRIES)?;
        let descriptors = Descriptors::map(&device)?;
        let told = [REFUSED; DEPTH as usize];
        Ok(Queue { ring, device, descriptors, finished, jobs, waiting: 0, in_service: 0, told })
    }

    /// Serves until the device is stopped.
    pub(super) fn run(mut self) -> io::Result<()> {
        while self.waiting > 0 || self.in_service > 0 {
            wait(&mut self.ring);
            let completed: Vec<(u64, i32)> =
                self.ring.completion().map(|done| (done.user_data(), done.result())).collect();
            for (whose, result) in completed {
                match u16::try_from(whose) {
                    Ok(tag) => self.fetched(tag, result)?,
                    Err(_) => self.hand_back(),
                }
            }
        }
        Ok(())
    }

    /// The kernel has given a tag back: with a request, for good, or because it does not take what it was told. An
    /// error: it takes nothing more of this tag.
    fn fetched(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.waiting -= 1;
        if result >= 0 {
            self.in_service += 1;
            let job = Job { tag, asked: self.descriptors.read(tag) };
            self.jobs.send(job).expect("workers live as long as there are jobs");
            return Ok(());
        }
        match Errno::from_raw_os_error(-result) {
            Errno::NODEV => Ok(()),
            errno if self.told[usize::from(tag)] == REFUSED => Err(Error::from(errno)),
            errno => {
                let told = self.told[usize::from(tag)].result;
                tracing::error!(tag, told, error = %Error::from(errno), "the kernel refuses an answer; it is an error now");
                self.tell(tag, REFUSED);
                Ok(())
            }
        }
    }

    /// Hands answers to the kernel.
    fn hand_back(&mut self) {
        for (tag, answer) in self.finished.take() {
            self.in_service -= 1;
            self.tell(tag, answer);
        }
        self.watch();
    }

    fn tell(&mut self, tag: u16, answer: Answer) {
        self.told[usize::from(tag)] = answer;
        let command = RequestCommand { queue: 0, tag, result: answer.result, place: answer.place };
        self.push(fetch::COMMIT_AND_FETCH, command);
    }

    /// Has the kernel say when the counter is not 0.
    fn watch(&mut self) {
        let counter = types::Fd(self.finished.counter.as_raw_fd());
        let entry = opcode::PollAdd::new(counter, PollFlags::IN.bits().into()).build().user_data(FINISHED);
        // SAFETY: the entry names no memory, and the counter is open as long as `self` has it.
        unsafe { self.ring.submission().push(&entry) }.expect("it is looked at once at a time");
    }

    fn push(&mut self, operation: u32, command: RequestCommand) {
        let bytes = command.as_bytes().try_into().expect("a command has 16 bytes");
        let device = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd16::new(device, operation).cmd(bytes).build();
        // SAFETY: the entry names no memory, and the device is open as long as `self` has it.
        unsafe { self.ring.submission().push(&entry.user_data(command.tag.into())) }
            .expect("each tag has one command at a time");
        self.waiting += 1;
    }
}

/// What the kernel asks, one descriptor for each tag, in memory that it shares.
struct Descriptors(NonNull<Descriptor>);

// SAFETY: it is the only way to this mapping, which any thread may read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    const PAGE: usize = 4096;
    const BYTES: usize = (DEPTH as usize * size_of::<Descriptor>()).next_multiple_of(Self::PAGE);

    fn map(device: &File) -> io::Result<Descriptors> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place that the kernel chooses takes no memory from anybody.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), Self::BYTES, ProtFlags::READ, flags, device, 0)
        }?;
        Ok(Descriptors(NonNull::new(start.cast()).expect("the kernel maps nothing at 0")))
    }

    /// That of a tag which the kernel has just given back: until its next command the kernel leaves it as it is.
    fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < DEPTH, "the kernel names tags that it was given");
        // SAFETY: the mapping has DEPTH descriptors, is aligned to a page and lives as long as `self`; any bytes are
        // a descriptor, and the kernel wrote this one before it completed the tag's command.
        unsafe { self.0.add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and `self` was the only way to it.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), Self::BYTES) };
        unmapped.expect("a mapping of our own can be taken away");
    }
}

#[cfg(test)]
mod tests;

//! The only queue of a device: fetches requests, passes them to workers, and returns the answers.
//!
//! The kernel requires all commands of a queue from one thread. So that thread only waits for its ring, and workers
//! execute the requests. A counter of the kernel (an `eventfd`, watched by the ring) signals finished requests. Each
//! tag is at any time either in the kernel, waiting for a request, or in service. When the device is stopped, the
//! kernel returns the waiting tags, and the thread ends when no tag is in either state.
//!
//! The kernel may refuse an answer. Then its request would never end, and the program would wait forever. So the
//! answer is replaced by an error. If that is refused too, the thread ends with the reason, and then the kernel ends
//! all requests and the device.
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

/// The largest number of requests in flight.
pub(super) const DEPTH: u16 = 64;
/// Entries of the ring: a command for each tag, and the poll of the counter.
const ENTRIES: u32 = 2 * DEPTH as u32;
/// The identifier of completions of that poll; all others have their tag.
const FINISHED: u64 = u64::MAX;

/// One request to be executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) tag: u16,
    pub(super) request: Descriptor,
}

/// The answers of workers.
pub(super) struct Finished {
    answers: Mutex<Vec<(u16, Answer)>>,
    counter: OwnedFd,
}

impl Finished {
    pub(super) fn new() -> io::Result<Finished> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Finished { answers: Mutex::new(Vec::new()), counter })
    }

    /// Adds an answer and wakes the queue's thread.
    pub(super) fn note(&self, tag: u16, answer: Answer) {
        self.answers.lock().push((tag, answer));
        // If the counter is full, the thread is awake already.
        let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> Vec<(u16, Answer)> {
        // The counter is reset first: an answer that arrives in between is taken now, and causes one more wake-up.
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
    /// The number of tags in the kernel.
    waiting: u16,
    /// The number of tags with workers or with answers that are not yet returned.
    in_service: u16,
    /// The last answer to the kernel, by tag.
    last_answers: [Answer; DEPTH as usize],
}

/// The answer to a request whose own answer the kernel refused.
const REFUSED: Answer = Answer { result: -Errno::IO.raw_os_error(), place: 0 };

impl Queue {
    /// The queue of `/dev/ublkcN`. Must be created by the thread that runs it.
    pub(super) fn new(device: Arc<File>, finished: Arc<Finished>, jobs: Sender<Job>) -> io::Result<Queue> {
        let mut queue = Queue::idle(device, finished, jobs)?;
        queue.watch();
        for tag in 0..DEPTH {
            queue.push(fetch::FETCH, RequestCommand { tag, ..RequestCommand::default() });
        }
        queue.ring.submit()?;
        // There are no requests before the device is started, so a completion is a refusal.
        let refused = queue.ring.completion().find(|completion| completion.user_data() != FINISHED);
        match refused.map(|completion| completion.result()) {
            Some(result) => Err(Errno::from_raw_os_error(-result).into()),
            None => Ok(queue),
        }
    }

    /// A queue without commands in the kernel.
    fn idle(device: Arc<File>, finished: Arc<Finished>, jobs: Sender<Job>) -> io::Result<Queue> {
        let ring = IoUring::new(ENTRIES)?;
        let descriptors = Descriptors::map(&device)?;
        let last_answers = [REFUSED; DEPTH as usize];
        Ok(Queue { ring, device, descriptors, finished, jobs, waiting: 0, in_service: 0, last_answers })
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

    /// Handles a tag that the kernel has returned: with a request, permanently, or because it refused the answer.
    /// Returns an error if the kernel accepts nothing more for this tag.
    fn fetched(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.waiting -= 1;
        if result >= 0 {
            self.in_service += 1;
            let job = Job { tag, request: self.descriptors.read(tag) };
            self.jobs.send(job).expect("workers live as long as there are jobs");
            return Ok(());
        }
        match Errno::from_raw_os_error(-result) {
            Errno::NODEV => Ok(()),
            errno if self.last_answers[usize::from(tag)] == REFUSED => Err(Error::from(errno)),
            errno => {
                let result = self.last_answers[usize::from(tag)].result;
                tracing::error!(tag, result, error = %Error::from(errno), "the kernel rejects an answer; an error is sent instead");
                self.commit(tag, REFUSED);
                Ok(())
            }
        }
    }

    /// Passes answers to the kernel.
    fn hand_back(&mut self) {
        for (tag, answer) in self.finished.take() {
            self.in_service -= 1;
            self.commit(tag, answer);
        }
        self.watch();
    }

    fn commit(&mut self, tag: u16, answer: Answer) {
        self.last_answers[usize::from(tag)] = answer;
        let command = RequestCommand { queue: 0, tag, result: answer.result, place: answer.place };
        self.push(fetch::COMMIT_AND_FETCH, command);
    }

    /// Polls the counter.
    fn watch(&mut self) {
        let counter = types::Fd(self.finished.counter.as_raw_fd());
        let entry = opcode::PollAdd::new(counter, PollFlags::IN.bits().into()).build().user_data(FINISHED);
        // SAFETY: the entry refers to no memory, and the counter is open as long as `self` has it.
        unsafe { self.ring.submission().push(&entry) }.expect("it is looked at once at a time");
    }

    fn push(&mut self, operation: u32, command: RequestCommand) {
        let bytes = command.as_bytes().try_into().expect("a command has 16 bytes");
        let device = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd16::new(device, operation).cmd(bytes).build();
        // SAFETY: the entry refers to no memory, and the device is open as long as `self` has it.
        unsafe { self.ring.submission().push(&entry.user_data(command.tag.into())) }
            .expect("each tag has one command at a time");
        self.waiting += 1;
    }
}

/// The requests of the kernel, one descriptor for each tag, in shared memory.
struct Descriptors(NonNull<Descriptor>);

// SAFETY: it is the only pointer to this mapping, which any thread may read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    const PAGE: usize = 4096;
    const BYTES: usize = (DEPTH as usize * size_of::<Descriptor>()).next_multiple_of(Self::PAGE);

    fn map(device: &File) -> io::Result<Descriptors> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses changes no other mapping.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), Self::BYTES, ProtFlags::READ, flags, device, 0)
        }?;
        Ok(Descriptors(NonNull::new(start.cast()).expect("the kernel maps nothing at 0")))
    }

    /// The descriptor of a tag that the kernel has just returned: the kernel does not change it before the next
    /// command.
    fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < DEPTH, "the kernel names tags that it was given");
        // SAFETY: the mapping has DEPTH descriptors, is aligned to a page and lives as long as `self`; any bytes are
        // a descriptor, and the kernel wrote this one before it completed the tag's command.
        unsafe { self.0.add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and `self` had the only pointer to it.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), Self::BYTES) };
        unmapped.expect("a mapping can be removed");
    }
}

#[cfg(test)]
mod tests;

//! The kernel's FUSE protocol over `/dev/fuse`, without the meaning of its requests.
//!
//! | file | contents |
//! |---|---|
//! | `abi` | the structures, operations and flags of `linux/fuse.h` |
//! | `buffer` | memory on page boundaries |
//! | `by_handle` | opening a node of our own mount |
//! | `channel` | the open device: reads one request or writes one reply at a time |
//! | `request` | decoding of requests; checks every length |
//! | `reply` | replies, each sent once |
//! | `init` | the first request: the protocol version and the capabilities |
//! | `notify` | notifications, which answer no request |
//! | `receiver` | which thread receives the next request |
//! | `write_queue` | the limit of concurrent writes, and the queue of the others |
//! | `buffer_pool` | memory for queued writes |
//!
//! **The sender of requests need not be a correct kernel.** Any byte string can arrive. A request that is shorter
//! than its header says is answered with EIO if a thread may wait for the answer, and ignored otherwise. Of a longer
//! one only the known part is read, because kernels append to their structures.
//!
//! **A reply goes to the device that its request came from.** The kernel tracks requests in progress by open device.
//! So a [`Reply`] holds the channel of its request, whichever thread sends it.
//!
//! Not implemented: splice, io_uring, interrupts (each is answered with "not supported").

pub(crate) mod abi;
mod buffer;
mod buffer_pool;
mod by_handle;
mod channel;
mod init;
mod notify;
mod receiver;
mod reply;
mod request;
mod write_queue;

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use buffer_pool::{BufferPool, StoredRequest};
use receiver::Reception;
use write_queue::{WriteQueue, WriteSlot};

pub(crate) use buffer::PageBuffer;
pub(crate) use buffer_pool::FITS;
pub(crate) use by_handle::{begin_write_back, is_dirty, leave_descriptors, open_node};
pub(crate) use channel::{Channel, RequestBuffer};
pub(crate) use init::{Agreed, Terms, shake_hands};
pub(crate) use notify::Notifier;
pub(crate) use reply::{Listing, Reply};
pub(crate) use request::{Malformed, Operation, Origin, Request};

/// The largest read or write of one request.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// A request of more bytes takes long enough to answer that another thread receives meanwhile.
const LONG: usize = 32 << 10;

/// Answers the requests that are not the protocol's own.
pub(crate) trait Answers {
    /// Answers a request. A thread waits for the answer.
    fn answer(&self, request: Request<'_>, reply: Reply);

    /// The kernel drops `lookups` of its references to this node. No reply is sent.
    fn forget(&self, node: u64, lookups: u64);
}

/// The state that the threads of one session share.
pub(crate) struct Serving<A> {
    answers: A,
    write_queue: WriteQueue<QueuedWrite>,
    buffers: Arc<BufferPool>,
    reception: Arc<Reception>,
}

/// A write that waits for other writes to be answered.
struct QueuedWrite {
    reply: Reply,
    request: StoredRequest,
}

impl<A: Answers> Serving<A> {
    /// At most `writers` threads answer writes at once. Up to `write_queue_bytes` of further writes are queued
    /// meanwhile.
    pub(crate) fn new(answers: A, writers: usize, write_queue_bytes: usize) -> Self {
        Serving {
            answers,
            write_queue: WriteQueue::new(writers),
            buffers: BufferPool::new(write_queue_bytes),
            reception: Arc::default(),
        }
    }

    /// Answers the requests of one channel until the connection ends, and with them writes that other threads have
    /// queued.
    pub(crate) fn serve(&self, channel: &Channel) -> io::Result<()> {
        let mut buffer = RequestBuffer::new();
        let mut thread = self.reception.join();
        while let Some(length) = thread.receive(channel, &mut buffer)? {
            if length > LONG {
                thread.hand_over();
            }
            match Request::decode(buffer.bytes(length)) {
                Ok(request) => match request.writes_to() {
                    None => take(request, channel, &self.answers),
                    Some(node) => match self.write_queue.begin(node) {
                        Some(slot) => {
                            let reply = Reply::timed(request.origin.unique, request.kind(), channel);
                            self.write(request, slot, reply);
                        }
                        None => {
                            let reply = Reply::timed(request.origin.unique, request.kind(), channel);
                            self.queue_write(node, reply, (&mut buffer, length));
                        }
                    },
                },
                Err(malformed) => refuse(&malformed, channel),
            }
        }
        Ok(())
    }

    /// Answers a write.
    fn write(&self, request: Request<'_>, slot: WriteSlot<'_, QueuedWrite>, reply: Reply) {
        self.answers.answer(request, reply);
        self.answer_queued(slot);
    }

    /// Queues the received write to `node`. Answers it if there is no memory to queue it.
    fn queue_write(&self, node: u64, reply: Reply, (received, length): (&mut RequestBuffer, usize)) {
        let Some(request) = self.buffers.store(received, length) else {
            let slot = self.write_queue.begin_beyond_limit(node);
            return self.write(decode_again(&received.memory().bytes()[..length]), slot, reply);
        };
        let write = QueuedWrite { reply, request };
        if let Some((slot, write)) = self.write_queue.queue(node, write) {
            self.answer(write);
            self.answer_queued(slot);
        }
    }

    /// Answers queued writes as long as this thread has to.
    fn answer_queued(&self, mut slot: WriteSlot<'_, QueuedWrite>) {
        while let Some(write) = slot.next() {
            self.answer(write);
        }
    }

    fn answer(&self, write: QueuedWrite) {
        self.answers.answer(decode_again(write.request.as_bytes()), write.reply);
    }
}

fn decode_again(bytes: &[u8]) -> Request<'_> {
    Request::decode(bytes).expect("the request was decoded when it arrived")
}

/// Answers the protocol's own requests, and passes all others on.
fn take(request: Request<'_>, channel: &Channel, answers: &impl Answers) {
    let reply = || Reply::timed(request.origin.unique, request.kind(), channel);
    match request.operation {
        Operation::Forget(asked) => answers.forget(request.origin.node, asked.nlookup),
        Operation::BatchForget(forgotten) => {
            forgotten.nodes().for_each(|(node, lookups)| answers.forget(node, lookups));
        }
        Operation::Destroy => reply().done(),
        // The kernel remembers that this is not supported: interrupts, and operations newer than this module.
        Operation::Interrupt | Operation::Unknown(_) => reply().error(Errno::NOSYS),
        // The handshake was done when the session began.
        Operation::Init(_) => reply().error(Errno::IO),
        _ => answers.answer(request, reply()),
    }
}

fn refuse(malformed: &Malformed, channel: &Channel) {
    tracing::warn!("a request cannot be decoded: {malformed}");
    if let Some(unique) = malformed.answer_to {
        Reply::new(unique, channel).error(Errno::IO);
    }
}

#[cfg(test)]
pub(crate) mod tests;

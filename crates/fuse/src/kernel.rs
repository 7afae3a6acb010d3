//! The kernel's FUSE protocol over `/dev/fuse`, and nothing of what its requests mean.
//!
//! | file | is |
//! |---|---|
//! | `abi` | the structures, operations and flags of `linux/fuse.h` |
//! | `buffer` | memory on page boundaries |
//! | `by_handle` | opening a node of the own mount |
//! | `channel` | the open device: one request is read at a time, one reply written |
//! | `request` | a request taken apart, every length checked |
//! | `reply` | answers, each given once |
//! | `init` | the first request: which protocol, which capabilities |
//! | `notify` | what the kernel is told without having asked |
//! | `aside` | how many writes are answered at once, and those that wait |
//! | `shelf` | memory for those |
//!
//! **Whoever sends bytes here need not be a kernel of ours.** Any byte string can be offered: what is too short
//! for what it says it is is answered with EIO where somebody may wait for it, and left alone otherwise.
//! What is longer than expected is read as far as it is known, because kernels append to their structures.
//!
//! **A reply goes where its request came from.** The kernel keeps the requests under way by open device, so a
//! [`Reply`] holds the channel of its request, on whatever thread it is given in the end.
//!
//! Not here: splice, io_uring, interrupts (each is answered by saying that they are not looked at), and counts of
//! lookups: a node id is an inode number, and the kernel forgets all that it looked up of one at once.

pub(crate) mod abi;
mod aside;
mod buffer;
mod by_handle;
mod channel;
mod init;
mod notify;
mod reply;
mod request;
mod shelf;

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use aside::{Aside, Turn};
use shelf::{Kept, Shelf};

pub(crate) use buffer::PageBuffer;
pub(crate) use by_handle::{begin_write_back, is_dirty, leave_descriptors, open_node};
pub(crate) use channel::{Channel, RequestBuffer};
pub(crate) use init::{Agreed, Terms, shake_hands};
pub(crate) use notify::Notifier;
pub(crate) use reply::{Listing, Reply};
pub(crate) use request::{Malformed, Operation, Origin, Request};
pub(crate) use shelf::FITS;

/// The largest read or write of one request.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Who answers what is not the protocol's own.
pub(crate) trait Answers {
    /// One request, which somebody waits for.
    fn answer(&self, request: Request<'_>, reply: Reply);

    /// The kernel does not know this node any more. Nobody waits.
    fn forget(&self, node: u64);
}

/// What the threads of one session have in common.
pub(crate) struct Serving<A> {
    answers: A,
    aside: Aside<PutAside>,
    shelf: Arc<Shelf>,
}

/// A write that waits for others to be answered.
struct PutAside {
    reply: Reply,
    request: Kept,
}

impl<A: Answers> Serving<A> {
    /// As many as `writers` threads answer writes at once, and as many as `aside_bytes` are put aside meanwhile.
    pub(crate) fn new(answers: A, writers: usize, aside_bytes: usize) -> Self {
        Serving { answers, aside: Aside::new(writers), shelf: Shelf::new(aside_bytes) }
    }

    /// Answers the requests of one channel until nothing is mounted any more, and with them writes that others have put
    /// aside.
    pub(crate) fn serve(&self, channel: &Channel) -> io::Result<()> {
        let mut buffer = RequestBuffer::new();
        while let Some(bytes) = channel.receive(&mut buffer)? {
            match Request::decode(bytes) {
                Ok(request) => match request.writes_to() {
                    None => take(request, channel, &self.answers),
                    Some(node) => match self.aside.begin(node) {
                        Some(turn) => self.write(request, turn, channel),
                        None => {
                            let (unique, length) = (request.origin.unique, bytes.len());
                            self.put_aside(node, unique, (&mut buffer, length), channel);
                        }
                    },
                },
                Err(malformed) => refuse(&malformed, channel),
            }
        }
        Ok(())
    }

    /// Answers a write.
    fn write(&self, request: Request<'_>, turn: Turn<'_, PutAside>, channel: &Channel) {
        let reply = Reply::new(request.origin.unique, channel);
        self.answers.answer(request, reply);
        self.go_on(turn);
    }

    /// Puts the write to `node` aside that was received there; answers it where there is no room for it.
    fn put_aside(
        &self,
        node: u64,
        unique: u64,
        (received, length): (&mut RequestBuffer, usize),
        channel: &Channel,
    ) {
        let Some(request) = self.shelf.keep(received, length) else {
            let turn = self.aside.exceed(node);
            return self.write(decoded_before(&received.memory().bytes()[..length]), turn, channel);
        };
        let write = PutAside { reply: Reply::new(unique, channel), request };
        if let Some((turn, write)) = self.aside.put(node, write) {
            self.answer(write);
            self.go_on(turn);
        }
    }

    /// Answers what was put aside as long as it is for this thread to do.
    fn go_on(&self, mut turn: Turn<'_, PutAside>) {
        while let Some(write) = turn.next() {
            self.answer(write);
        }
    }

    fn answer(&self, write: PutAside) {
        self.answers.answer(decoded_before(write.request.as_bytes()), write.reply);
    }
}

fn decoded_before(bytes: &[u8]) -> Request<'_> {
    Request::decode(bytes).expect("it was decoded when it came")
}

/// Answers what is the protocol's own, and hands everything else on.
fn take(request: Request<'_>, channel: &Channel, answers: &impl Answers) {
    let reply = || Reply::new(request.origin.unique, channel);
    match request.operation {
        Operation::Forget => answers.forget(request.origin.node),
        Operation::BatchForget(forgotten) => forgotten.nodes().for_each(|node| answers.forget(node)),
        Operation::Destroy => reply().done(),
        // The kernel remembers that this is not done: interrupts, and whatever is newer than this module.
        Operation::Interrupt | Operation::Unknown(_) => reply().error(Errno::NOSYS),
        // It shook hands when the session began.
        Operation::Init(_) => reply().error(Errno::IO),
        _ => answers.answer(request, reply()),
    }
}

fn refuse(malformed: &Malformed, channel: &Channel) {
    tracing::warn!("a request makes no sense: {malformed}");
    if let Some(unique) = malformed.answer_to {
        Reply::new(unique, channel).error(Errno::IO);
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! A socket in place of the kernel: each message that is sent there is read as a request.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rt::sync::{Condvar, Mutex};
use rt::{Clock, SystemClock};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use zerocopy::IntoBytes;

use super::abi::{InHeader, WriteIn, opcode};
use super::*;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel's end.
pub(crate) struct Kernel(OwnedFd);

/// Both ends. Receiving at the kernel's end fails after a while.
pub(crate) fn connected() -> (Kernel, Channel) {
    let pair =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (theirs, ours) = pair.unwrap();
    for way in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&theirs, way, Some(PATIENCE)).unwrap();
    }
    (Kernel(theirs), Channel::new(ours).unwrap())
}

impl Kernel {
    pub(crate) fn send(&self, request: &[u8]) {
        assert_eq!(rustix::net::send(&self.0, request, SendFlags::empty()).unwrap(), request.len());
    }

    /// The next reply, which must exist already.
    pub(crate) fn reply(&self) -> Vec<u8> {
        self.reply_if_any().unwrap()
    }

    /// Waits for the next reply.
    pub(crate) fn next_reply(&self) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let (count, _) = rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::empty()).unwrap();
        bytes.truncate(count);
        bytes
    }

    /// Sends no more requests.
    pub(crate) fn hang_up(&self) {
        rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write).unwrap();
    }

    pub(crate) fn reply_if_any(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 2 << 20];
        let (count, _) = rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

/// A request of user 11, group 12, thread 13 about inode 7.
pub(crate) fn request(opcode: u32, unique: u64, arguments: &[&[u8]]) -> Vec<u8> {
    let arguments = arguments.concat();
    let header = InHeader {
        len: (size_of::<InHeader>() + arguments.len()) as u32,
        opcode,
        unique,
        nodeid: 7,
        uid: 11,
        gid: 12,
        pid: 13,
        ..InHeader::default()
    };
    [header.as_bytes(), &arguments].concat()
}

/// A reply that consists of a header with this error.
pub(crate) fn refusal(unique: u64, errno: Errno) -> Vec<u8> {
    let mut bytes = 16_u32.to_ne_bytes().to_vec();
    bytes.extend((-errno.raw_os_error()).to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes
}

/// Records requests and does not answer them, as if something had failed.
#[derive(Default)]
struct Seen {
    asked: std::cell::RefCell<Vec<Origin>>,
    forgotten: std::cell::RefCell<Vec<(u64, u64)>>,
}

impl Answers for Seen {
    fn answer(&self, request: Request<'_>, _: Reply) {
        assert!(matches!(request.operation, Operation::Statfs));
        self.asked.borrow_mut().push(request.origin);
    }

    fn forget(&self, node: u64, lookups: u64) {
        self.forgotten.borrow_mut().push((node, lookups));
    }
}

#[test]
fn the_protocol_answers_its_own_requests_until_the_connection_ends() {
    let (kernel, channel) = connected();
    kernel.send(&request(opcode::FORGET, 1, &[&3_u64.to_ne_bytes()]));
    kernel.send(&request(opcode::BATCH_FORGET, 2, &[&[1, 0, 0, 0, 0, 0, 0, 0], &[1; 16], &[2; 16]]));
    kernel.send(&request(opcode::BATCH_FORGET, 3, &[&[0xff; 8]]));
    kernel.send(&request(opcode::INTERRUPT, 4, &[&[0; 8]]));
    kernel.send(&request(9999, 5, &[]));
    kernel.send(&request(opcode::WRITE, 6, &[&[0xff; 40]]));
    kernel.send(b"no header");
    kernel.send(&request(opcode::DESTROY, 7, &[]));
    kernel.send(&request(opcode::STATFS, 8, &[]));
    kernel.hang_up();
    let serving = Serving::new(Seen::default(), 1, 0);
    serving.serve(&channel).unwrap();
    let seen = serving.answers;
    assert_eq!(seen.forgotten.take(), [(7, 3), (0x0101_0101_0101_0101, 0x0101_0101_0101_0101)]);
    assert_eq!(seen.asked.take(), [Origin { unique: 8, node: 7, uid: 11, gid: 12, pid: 13 }]);
    assert_eq!(kernel.reply(), refusal(4, Errno::NOSYS));
    assert_eq!(kernel.reply(), refusal(5, Errno::NOSYS));
    assert_eq!(kernel.reply(), refusal(6, Errno::IO));
    let done = [&16_u32.to_ne_bytes()[..], &[0; 4], &7_u64.to_ne_bytes()].concat();
    assert_eq!(kernel.reply(), done);
    assert_eq!(kernel.reply(), refusal(8, Errno::IO));
    assert!(kernel.reply_if_any().is_err(), "the others need no answer");
}

/// Answers writes when it is allowed to, and everything else at once.
#[derive(Default)]
struct Held {
    state: Mutex<HeldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HeldState {
    is_allowed: bool,
    /// Numbers of the writes that have begun, and whether their bytes are those that were sent.
    begun: Vec<(u64, bool)>,
}

impl Held {
    fn wait_until(&self, is_so: impl Fn(&HeldState) -> bool) {
        let mut state = self.state.lock();
        let clock = SystemClock::new();
        let end_ns = clock.monotonic_ns() + PATIENCE.as_nanos() as u64;
        while !is_so(&state) {
            assert!(clock.monotonic_ns() < end_ns, "begun: {:?}", state.begun);
            self.changed.wait_for(&mut state, PATIENCE);
        }
    }

    fn allow(&self) {
        self.state.lock().is_allowed = true;
        self.changed.notify_all();
    }
}

impl Answers for Held {
    fn answer(&self, request: Request<'_>, reply: Reply) {
        if let Operation::Write(_, data) = request.operation {
            self.state.lock().begun.push((request.origin.unique, data == bytes_of(request.origin.unique)));
            self.changed.notify_all();
            self.wait_until(|state| state.is_allowed);
        }
        reply.done();
    }

    fn forget(&self, _: u64, _: u64) {}
}

/// Ends all threads when it is dropped, so that a failing test ends.
struct Ending<'a>(&'a Kernel, &'a Held);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.hang_up();
        self.1.allow();
    }
}

const THREADS: usize = 3;

fn bytes_of(unique: u64) -> Vec<u8> {
    vec![unique as u8; 1 + unique as usize * 100]
}

fn write_of(unique: u64) -> Vec<u8> {
    let bytes = bytes_of(unique);
    let asked = WriteIn { size: bytes.len() as u32, ..WriteIn::default() };
    request(opcode::WRITE, unique, &[asked.as_bytes(), &bytes])
}

fn done(unique: u64) -> Vec<u8> {
    [&16_u32.to_ne_bytes()[..], &[0; 4], &unique.to_ne_bytes()].concat()
}

/// A lookup waited until one of eight writes was answered, which all waited for garbage collection. Queued writes are
/// answered before the last thread ends, although the kernel has gone.
#[test]
fn other_requests_are_answered_while_writes_wait() {
    const WRITERS: usize = THREADS - 1;
    const WRITES: u64 = 100;
    let (kernel, channel) = connected();
    let serving = Serving::new(Held::default(), WRITERS, 2 << 20);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| serving.serve(&channel).unwrap());
        }
        let ending = Ending(&kernel, &serving.answers);
        (0..WRITES).for_each(|unique| kernel.send(&write_of(unique)));
        serving.answers.wait_until(|state| state.begun.len() >= WRITERS);
        kernel.send(&request(opcode::READ, WRITES, &[&[0; 40]]));
        assert_eq!(kernel.next_reply(), done(WRITES), "before any write");
        assert_eq!(serving.answers.state.lock().begun.len(), WRITERS);
        drop(ending);
    });
    let mut answered: Vec<_> = (0..WRITES).map(|_| kernel.reply()).collect();
    let mut expected: Vec<_> = (0..WRITES).map(done).collect();
    answered.sort_unstable();
    expected.sort_unstable();
    assert_eq!(answered, expected, "each once");
    assert!(kernel.reply_if_any().is_err(), "each is answered once");
    assert!(serving.answers.state.lock().begun.iter().all(|(_, is_whole)| *is_whole));
}

#[test]
fn writes_that_cannot_be_queued_are_answered_at_once() {
    let (kernel, channel) = connected();
    let serving = Serving::new(Held::default(), 1, 0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| serving.serve(&channel).unwrap());
        }
        let ending = Ending(&kernel, &serving.answers);
        (0..THREADS as u64).for_each(|unique| kernel.send(&write_of(unique)));
        serving.answers.wait_until(|state| state.begun.len() == THREADS);
        drop(ending);
    });
    assert_eq!((0..THREADS).filter(|_| kernel.reply_if_any().is_ok()).count(), THREADS);
}

#[test]
fn notifications_have_no_number() {
    let (kernel, channel) = connected();
    Notifier::new(&channel).invalidate_inode(0x1122, -1, 5).unwrap();
    let sent = kernel.reply();
    let expected = [
        &40_u32.to_ne_bytes()[..],
        &2_i32.to_ne_bytes(),
        &0_u64.to_ne_bytes(),
        &0x1122_u64.to_ne_bytes(),
        &(-1_i64).to_ne_bytes(),
        &5_i64.to_ne_bytes(),
    ];
    assert_eq!(sent, expected.concat());
}

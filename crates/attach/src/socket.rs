//! Sockets: finding the other side, passing descriptors to it, waking it, and noticing its end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags};

use crate::Disconnected;
use crate::memory::SLOTS;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 64;
/// A thread that waits looks at the other process this often.
const LOOK: Duration = Duration::from_secs(1);
/// The descriptors that a client gets: the memory, and its ends of the socket pairs.
pub(crate) const DESCRIPTORS: usize = 1 + SLOTS;
/// The longest greeting.
pub(crate) const GREETING_MAX: usize = 512;

const NO_WAIT: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A socket at which clients connect.
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens at a path that does not exist. Only processes of this user and root can connect.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let socket = new_socket()?;
        // Binding takes the permissions from here. So no other user has access in between.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener(socket))
    }

    /// Waits for the next client. A process of another user is disconnected.
    ///
    /// # Errors
    /// [`Listener::stop`] was called, or this process cannot open another descriptor.
    pub fn accept(&self) -> io::Result<Peer> {
        loop {
            let socket = match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                accepted => accepted?,
            };
            if let Ok(peer) = Peer::of(socket) {
                return Ok(peer);
            }
        }
    }

    /// Ends [`Listener::accept`], in all threads and for ever.
    pub fn stop(&self) {
        hang_up(&self.0);
    }
}

/// A connected process that may be trusted as much as this one.
pub struct Peer {
    pub(crate) socket: OwnedFd,
    /// The process, if the kernel can tell.
    pub(crate) process: Option<OwnedFd>,
}

/// Why a connected process is no peer.
pub(crate) enum NoPeer {
    /// It belongs to another user than this process and root.
    Stranger,
    /// It has ended.
    Ended,
}

impl Peer {
    pub(crate) fn of(socket: OwnedFd) -> Result<Peer, NoPeer> {
        let peer = getsockopt(&socket, PeerCredentials).map_err(|_| NoPeer::Ended)?;
        if peer.uid() != 0 && peer.uid() != rustix::process::geteuid().as_raw() {
            return Err(NoPeer::Stranger);
        }
        // A process of another namespace has no number here. Then its sockets alone tell that it has ended.
        let opened =
            Pid::from_raw(peer.pid()).map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
        match opened {
            Some(Err(Errno::SRCH)) => Err(NoPeer::Ended),
            opened => Ok(Peer { socket, process: opened.and_then(Result::ok) }),
        }
    }
}

/// Connects to a listener. Waits for `patience` if many others wait there.
pub(crate) fn connect(path: &Path, patience: Duration) -> rustix::io::Result<OwnedFd> {
    let socket = new_socket()?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Two connected sockets, to wake the other side.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Sends the greeting, with descriptors, without waiting.
pub(crate) fn greet(socket: &OwnedFd, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(
        text.len() <= GREETING_MAX && descriptors.len() <= DESCRIPTORS,
        "the receiver has that much space"
    );
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let has_space = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(has_space, "there is space for all descriptors");
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(text)], &mut control, NO_WAIT)?;
    Ok(())
}

/// Receives the greeting.
///
/// # Errors
/// The other process has closed the socket. `EMFILE` if this process has too many open descriptors.
pub(crate) fn receive_greeting(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; GREETING_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    text.truncate(received.bytes);
    Ok((text, descriptors))
}

/// Sends a byte without waiting. Success does not mean that it arrives: if the buffer is full, there are bytes that the
/// other side has not received yet, and if the other side has ended, the next wait says so.
pub(crate) fn ring(socket: &OwnedFd, byte: u8) {
    while rustix::net::send(socket, &[byte], NO_WAIT) == Err(Errno::INTR) {}
}

/// Ends all waits at a socket, on both sides.
pub(crate) fn hang_up(socket: &OwnedFd) {
    // It fails if the other side has hung up.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Waits until the other side has sent something, and receives it. Returns the number of bytes.
///
/// # Errors
/// The other side has hung up, or its process has ended.
pub(crate) fn wait(
    socket: &OwnedFd,
    process: Option<&OwnedFd>,
    into: &mut [u8],
) -> Result<usize, Disconnected> {
    loop {
        let events = poll_both(socket, process, None).map_err(|_| Disconnected)?;
        if events.is_readable {
            match rustix::net::recv(socket, &mut *into, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) if bytes > 0 => return Ok(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {}
                _ => return Err(Disconnected),
            }
        }
        if events.is_ended {
            return Err(Disconnected);
        }
    }
}

/// Lets waits at a socket of this process look at the other process from time to time.
pub(crate) fn watch_process(socket: &OwnedFd) -> rustix::io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(LOOK))
}

/// The same as [`wait`] at a socket that this process alone can read, with one system call. The other process is
/// watched only after [`watch_process`].
pub(crate) fn wait_for_ring(socket: &OwnedFd, process: Option<&OwnedFd>) -> Result<(), Disconnected> {
    loop {
        match rustix::net::recv(socket, &mut [0; 64], RecvFlags::empty()) {
            Ok((bytes, _)) if bytes > 0 => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let events = poll_both(socket, process, Some(Duration::ZERO)).map_err(|_| Disconnected)?;
                if events.is_ended {
                    return Err(Disconnected);
                }
            }
            _ => return Err(Disconnected),
        }
    }
}

/// Waits until the socket can be read or the other side has ended. Returns whether that happened within the time.
pub(crate) fn wait_for_answer(
    socket: &OwnedFd,
    process: Option<&OwnedFd>,
    patience: Duration,
) -> io::Result<bool> {
    let events = poll_both(socket, process, Some(patience))?;
    Ok(events.is_readable || events.is_ended)
}

struct Events {
    is_readable: bool,
    is_ended: bool,
}

fn poll_both(
    socket: &OwnedFd,
    process: Option<&OwnedFd>,
    patience: Option<Duration>,
) -> rustix::io::Result<Events> {
    let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
    let mut watched = [
        PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP),
        PollFd::from_borrowed_fd(process.unwrap_or(socket).as_fd(), PollFlags::IN),
    ];
    let watched = &mut watched[..if process.is_some() { 2 } else { 1 }];
    loop {
        match poll(watched, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            polled => {
                polled?;
                break;
            }
        }
    }
    let of_socket = watched[0].revents();
    let has_process_ended = watched.get(1).is_some_and(|process| !process.revents().is_empty());
    Ok(Events {
        is_readable: of_socket.contains(PollFlags::IN),
        is_ended: has_process_ended
            || of_socket.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
    })
}

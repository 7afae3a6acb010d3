//! Replies to requests.
//!
//! Each request is answered once. A [`Reply`] that is dropped without an answer answers EIO, so that no program waits
//! for ever.

use std::io::IoSlice;

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::Channel;
use super::abi::{Dirent, EntryOut, OutHeader};
use crate::request_times::RequestKind;

/// The right and the duty to answer one request.
#[derive(Debug)]
pub(crate) struct Reply {
    unique: u64,
    channel: Channel,
    is_due: bool,
    /// The kind of the request, and the time when it was received. Nothing if it is not counted.
    timing: Option<(RequestKind, u64)>,
}

impl Reply {
    pub(crate) fn new(unique: u64, channel: &Channel) -> Self {
        Reply::timed(unique, None, channel)
    }

    /// A reply whose duration is counted, from now on.
    pub(crate) fn timed(unique: u64, kind: Option<RequestKind>, channel: &Channel) -> Self {
        let timing = kind.map(|kind| (kind, channel.now_ns()));
        Reply { unique, channel: channel.clone(), is_due: true, timing }
    }

    /// Replies with an error.
    pub(crate) fn error(mut self, errno: Errno) {
        self.send(errno.raw_os_error(), [&[], &[]]);
    }

    /// Replies that the operation is done, without data.
    pub(crate) fn done(mut self) {
        self.send(0, [&[], &[]]);
    }

    /// Replies with one structure.
    pub(crate) fn structure(mut self, data: &(impl IntoBytes + Immutable)) {
        self.send(0, [data.as_bytes(), &[]]);
    }

    /// Replies with two structures, one after the other.
    pub(crate) fn structures(
        mut self,
        first: &(impl IntoBytes + Immutable),
        second: &(impl IntoBytes + Immutable),
    ) {
        self.send(0, [first.as_bytes(), second.as_bytes()]);
    }

    /// Replies with bytes, at most as many as requested.
    pub(crate) fn bytes(mut self, data: &[u8]) {
        self.send(0, [data, &[]]);
    }

    fn send(&mut self, errno: i32, parts: [&[u8]; 2]) {
        self.is_due = false;
        let length = size_of::<OutHeader>() + parts[0].len() + parts[1].len();
        let header = OutHeader {
            len: u32::try_from(length).expect("a request asks for less than 4 GiB"),
            error: -errno,
            unique: self.unique,
        };
        let message = [header.as_bytes(), parts[0], parts[1]].map(IoSlice::new);
        match self.channel.send(&message) {
            // The program has ended meanwhile, or the connection has.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => tracing::warn!("the kernel rejects a reply of {length} bytes: {error}"),
        }
        if let Some((kind, begun_ns)) = self.timing {
            self.channel.times().count(kind, self.channel.now_ns() - begun_ns);
            self.channel.times().count_bytes(kind, parts[0].len() + parts[1].len());
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_due {
            self.send(Errno::IO.raw_os_error(), [&[], &[]]);
        }
    }
}

/// A directory listing with as many entries as fit.
pub(crate) struct Listing {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Listing {
    /// The initial allocation. It grows if the kernel requests more and there are enough entries.
    const USUAL_BYTES: usize = 4096;

    pub(crate) fn new(bytes_max: u32) -> Self {
        let bytes_max = bytes_max as usize;
        Listing { bytes: Vec::with_capacity(bytes_max.min(Self::USUAL_BYTES)), bytes_max }
    }

    /// Adds an entry. Returns false and adds nothing if it does not fit.
    pub(crate) fn add(&mut self, inode: u64, cookie: u64, kind: u32, name: &[u8]) -> bool {
        self.append(&[], inode, cookie, kind, name)
    }

    /// The same with the result of a lookup.
    pub(crate) fn add_plus(&mut self, entry: &EntryOut, dirent: (u64, u64, u32), name: &[u8]) -> bool {
        let (inode, cookie, kind) = dirent;
        self.append(entry.as_bytes(), inode, cookie, kind, name)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn append(&mut self, before: &[u8], inode: u64, cookie: u64, kind: u32, name: &[u8]) -> bool {
        let length = (before.len() + size_of::<Dirent>() + name.len()).next_multiple_of(8);
        let end = self.bytes.len() + length;
        if end > self.bytes_max {
            return false;
        }
        let namelen = u32::try_from(name.len()).expect("a name that fits is short");
        let dirent = Dirent { ino: inode, off: cookie, namelen, kind };
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

#[cfg(test)]
mod tests;

//! Notifications: messages to the kernel that answer no request.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::Channel;
use super::abi::{NOTIFY_INVAL_INODE, NOTIFY_PRUNE, NotifyInvalInodeOut, NotifyPruneOut, OutHeader};

/// Sends notifications through a channel.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(Channel);

impl Notifier {
    pub(crate) fn new(channel: &Channel) -> Self {
        Notifier(channel.clone())
    }

    /// Whether the connection still exists.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// Invalidates the cached attributes of an inode, and its cached contents from `offset` on, for `length` bytes
    /// or, with 0, up to the end. Dirty pages are written back before this returns. With a negative offset the
    /// contents stay. An inode that the kernel does not know is no error.
    ///
    /// A thread that answers requests must not call this.
    pub(crate) fn invalidate_inode(&self, inode: u64, offset: i64, length: i64) -> io::Result<()> {
        let message = NotifyInvalInodeOut { ino: inode, off: offset, len: length };
        self.send(NOTIFY_INVAL_INODE, message.as_bytes(), &[])
    }

    /// Drops an inode if no program uses it.
    ///
    /// A thread that answers requests must not call this.
    pub(crate) fn prune(&self, inode: u64) -> io::Result<()> {
        let message = NotifyPruneOut { count: 1, ..NotifyPruneOut::default() };
        self.send(NOTIFY_PRUNE, message.as_bytes(), inode.as_bytes())
    }

    /// Sends a notification. Its kind is in the field that has the error in a reply.
    fn send(&self, kind: i32, message: &[u8], more: &[u8]) -> io::Result<()> {
        let length = size_of::<OutHeader>() + message.len() + more.len();
        let header = OutHeader { len: length as u32, error: kind, unique: 0 };
        match self.0.send(&[header.as_bytes(), message, more].map(IoSlice::new)) {
            Err(Errno::NOENT) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

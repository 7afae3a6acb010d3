//! What the kernel is told without having asked.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::Channel;
use super::abi::{NOTIFY_INVAL_INODE, NOTIFY_PRUNE, NotifyInvalInodeOut, NotifyPruneOut, OutHeader};

/// Tells the kernel things by way of a channel.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(Channel);

impl Notifier {
    pub(crate) fn new(channel: &Channel) -> Self {
        Notifier(channel.clone())
    }

    /// Whether anybody is there to be told.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// The attributes of an inode are not to be believed any more, nor its contents from `offset` on, for
    /// `length` bytes or, with 0, to the end; dirty pages are written back before this returns. With a
    /// negative offset the contents are left alone. An inode that the kernel does not know is no error.
    ///
    /// Never to be called by a thread that answers requests.
    pub(crate) fn invalidate_inode(&self, inode: u64, offset: i64, length: i64) -> io::Result<()> {
        let told = NotifyInvalInodeOut { ino: inode, off: offset, len: length };
        self.send(NOTIFY_INVAL_INODE, told.as_bytes(), &[])
    }

    /// An inode that no program uses is to be forgotten; of one that is used nothing happens.
    ///
    /// Never to be called by a thread that answers requests.
    pub(crate) fn prune(&self, inode: u64) -> io::Result<()> {
        let told = NotifyPruneOut { count: 1, ..NotifyPruneOut::default() };
        self.send(NOTIFY_PRUNE, told.as_bytes(), inode.as_bytes())
    }

    /// Sends a message that answers no request. It has its kind where an answer has its error.
    fn send(&self, kind: i32, told: &[u8], more: &[u8]) -> io::Result<()> {
        let length = size_of::<OutHeader>() + told.len() + more.len();
        let header = OutHeader { len: length as u32, error: kind, unique: 0 };
        match self.0.send(&[header.as_bytes(), told, more].map(IoSlice::new)) {
            Err(Errno::NOENT) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

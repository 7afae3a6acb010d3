//! What the kernel is told without having asked.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::Channel;
use super::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};

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
        // A message that answers no request has its kind where others have their error.
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of_val(&told)) as u32,
            error: NOTIFY_INVAL_INODE,
            unique: 0,
        };
        match self.0.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(told.as_bytes())]) {
            Err(Errno::NOENT) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

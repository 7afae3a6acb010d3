//! What must not be done by a thread that answers requests, because it may have to wait for one.
//!
//! The kernel does not write dirty pages back before it asks for data or a hole, so the answer must wait until
//! it has, and it can only when threads are free to take the writes. What the kernel is to be told waits for
//! its locks, which a request that is under way may hold. Writing back a large file takes long, and answers that wait
//! until the kernel has been told something are not to wait for that: so searches have a thread of their own.

use fs::InodeNo;
use rustix::io::Errno;

use crate::handles::HandleNo;
use crate::kernel::abi::LseekOut;
use crate::kernel::{Notifier, Reply};
use crate::server::Server;
use crate::transport::errno;

/// One thing for a thread that runs errands.
pub(crate) enum Errand {
    /// Has the kernel write back what it holds of the file, and answers a seek then.
    Seek(Seek, Reply),
    /// Tells the kernel that the attributes it remembers are no longer valid.
    ForgetAttributes(InodeNo),
    /// The same, before something else.
    ForgetThen(InodeNo, Box<dyn FnOnce() + Send>),
}

/// A search for data or a hole.
pub(crate) struct Seek {
    pub(crate) inode: InodeNo,
    pub(crate) handle: HandleNo,
    pub(crate) offset: i64,
    pub(crate) whence: i32,
}

impl Errand {
    pub(crate) fn run(self, server: &Server, notifier: &Notifier) {
        match self {
            // What lies before it does not matter.
            Errand::Seek(seek, reply) => match notifier.invalidate_inode(seek.inode.0, seek.offset.max(0), 0)
            {
                Ok(()) => reply_seek(server, &seek, reply),
                Err(error) => reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            },
            Errand::ForgetAttributes(inode) => forget_attributes(notifier, inode),
            Errand::ForgetThen(inode, then) => {
                forget_attributes(notifier, inode);
                then();
            }
        }
    }
}

/// Answers a seek from what has come here.
pub(crate) fn reply_seek(server: &Server, seek: &Seek, reply: Reply) {
    match server.seek(seek.handle, seek.offset, seek.whence) {
        Ok(offset) => reply.structure(&LseekOut { offset }),
        Err(error) => reply.error(errno(&error)),
    }
}

fn forget_attributes(notifier: &Notifier, inode: InodeNo) {
    // A negative offset leaves the pages alone.
    if let Err(error) = notifier.invalidate_inode(inode.0, -1, 0) {
        tracing::debug!("the kernel keeps the attributes of inode {}: {error}", inode.0);
    }
}

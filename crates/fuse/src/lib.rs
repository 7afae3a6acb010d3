//! Translation of kernel requests, and nothing else.
//!
//! A node id of the kernel is an inode number of the volume. Inode numbers are never used twice, so there is no table
//! of nodes. The state kept here is the table of open files (`handles`) and what the kernel may have in its cache of
//! listings (`listings`). A file or directory without a name exists as long as it is in the table of open files or the
//! kernel references it: [`fs::Fs`] gets the kernel's FORGET requests.
//!
//! | file | contents |
//! |---|---|
//! | `server` | the meaning of each kernel operation for [`fs::Fs`]; independent of the transport |
//! | `translate` | flags, kinds and times in both directions |
//! | `kernel` | the protocol: decoding of requests, encoding of replies; independent of a file system |
//! | `transport` | which request of the protocol is which operation |
//! | `deferred` | work that may have to wait for the kernel, on threads that answer no requests |
//! | `page_cache` | having the kernel write back the dirty pages of a file |
//! | `thread_pool` | threads for work that can wait long |
//! | `listings` | what the kernel may have in its cache of directory listings |
//! | `request_times` | how long requests take, by kind |
//! | `marked_files` | files for which something must still be done on the kernel's side |
//! | `session` | the life of one mount: threads, the kernel's settings |
//! | `memory` | how the memory of a mount is divided |
//! | `atime` | whether reading updates access times |
//! | `uncached` | mounts of volumes that their process changes by itself too |
//! | `view` | read-only trees that are no volumes, served by the same protocol |
//! | `mount` | the system calls that mount and unmount, and the table of mounts |
//!
//! **Ownership.** With the kernel's writeback cache, the kernel owns size and times of every regular file that it has
//! cached, and the bytes of its dirty pages. It applies `O_APPEND`, merges partial pages (so it reads through files
//! that were opened for writing only) and sends its times by setting attributes. All changes of names and attributes
//! go through the same kernel, so it may cache them for a day.
//!
//! **Permissions** are checked by the kernel (`default_permissions`, always on). It also checks access control lists,
//! which it reads for this (`FUSE_POSIX_ACL`). [`fs::Fs`] sets the permissions and lists of new inodes; for that the
//! kernel sends the umask (`FUSE_DONT_MASK`). The set-user-id and set-group-id bits are dropped here if a request
//! says or implies it (`FUSE_HANDLE_KILLPRIV_V2`).
//!
//! **Locks** on files and ranges of files are left to the kernel.
#![deny(unsafe_code)]

mod atime;
mod deferred;
mod errno;
mod groups;
mod handles;
mod kernel;
mod listings;
mod marked_files;
mod memory;
pub mod mount;
mod page_cache;
mod request_times;
mod server;
mod session;
mod thread_pool;
mod translate;
mod transport;
mod uncached;
mod view;

pub use atime::AccessTimes;
pub use memory::Memory;
pub use mount::{MountEntry, MountError, MountOptions};
pub use request_times::{DURATION_BUCKETS, Durations, RequestKind, RequestTimes, duration_bound_ns};
pub use session::{KernelCache, Mounted};
pub use uncached::Changes;
pub use view::{MountedView, View};

//! The translation of kernel requests, and nothing else.
//!
//! A node id of the kernel is an inode number of the volume: inode numbers are never used twice, so
//! a lookup needs no counting. The only state kept here is the table of open files (`handles`). A file
//! without a name lives as long as it is in there, or the kernel knows it: [`fs::Fs`] is told what it forgets.
//!
//! | file | is |
//! |---|---|
//! | `server` | what each operation of the kernel means to [`fs::Fs`]; knows nothing of a transport |
//! | `translate` | flags, kinds and times in both directions |
//! | `kernel` | the protocol: requests taken apart, replies put together; knows nothing of a file system |
//! | `transport` | which request of the protocol is which operation |
//! | `errands` | what may have to wait for the kernel, on a thread that answers nobody |
//! | `page_cache` | having the kernel write back the dirty pages of a file |
//! | `pool` | threads for what may wait long |
//! | `noted` | files for which something must still be done on the kernel's side |
//! | `session` | one mount from its beginning to its end: threads, the kernel's settings |
//! | `memory` | what the memory is for that is given to a mount |
//! | `access` | whether reading sets times of access |
//! | `view` | what is no volume and can only be read, shown by the same protocol |
//! | `mount` | the system calls that attach and detach, and the table of what is mounted |
//!
//! **Who owns what.** With the kernel's writeback cache the kernel owns size and times of every
//! regular file that it knows, and the bytes of its dirty pages. It applies `O_APPEND`, merges
//! partial pages (so it reads through files opened for writing only) and sends the times it keeps
//! by setting attributes. All names and attributes change only through the same kernel, so they
//! may be cached there for a day.
//!
//! **Permissions** are checked by the kernel (`default_permissions`, always on), and access control lists, for which
//! it asks, too (`FUSE_POSIX_ACL`). What is made is given its permissions and lists by [`fs::Fs`], which the kernel
//! tells the umask (`FUSE_DONT_MASK`). The set-user-id and
//! set-group-id bits are dropped here where a request says or implies it (`FUSE_HANDLE_KILLPRIV_V2`).
//!
//! **Locks** on files and ranges of files are left to the kernel.
#![deny(unsafe_code)]

mod access;
mod errands;
mod groups;
mod handles;
mod kernel;
mod memory;
pub mod mount;
mod noted;
mod page_cache;
mod pool;
mod server;
mod session;
mod translate;
mod transport;
mod view;

pub use access::AccessTimes;
pub use memory::Memory;
pub use mount::{MountEntry, MountError, MountOptions};
pub use session::{KernelCache, Mounted};
pub use view::{Shown, View};

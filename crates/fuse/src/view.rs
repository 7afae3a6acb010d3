//! Views: read-only trees of files that are mounted in a directory.
//!
//! A [`View`] is no volume. It describes a tree of files with contents, and the kernel's requests are decoded and
//! answered by the same protocol as those of a volume. The tree never changes, so the kernel may keep everything that
//! it has cached. There are no handles and no deferred work.
//!
//! **Nothing can be written**, even after a remount: the mount is read-only, and changes are refused here too.
//! **Other users cannot read it**: it is attached without `allow_other`, also by root.
//!
//! Not implemented: links, devices, and features of volumes that these files do not have (locks, holes).

use std::io;
use std::path::Path;
use std::sync::Arc;

use fs::{Attributes, DirEntry, FsError, InodeNo, StatFs};
use rustix::io::Errno;

use crate::errno::errno;
use crate::kernel::abi::{AttrOut, EntryOut, OpenOut, ReadIn, fopen, init_flag};
use crate::kernel::{
    Answers, Channel, Operation, Origin, PageBuffer, REQUEST_BYTES_MAX, Reply, Request, Terms, shake_hands,
};
use crate::mount::{self, MountEntry, MountError, MountOptions};
use crate::session;
use crate::transport::{
    LIFETIME, absent, attr, directory_type, finish, inode_of, listing_for, reply_listing, reply_sizes,
    reply_xattr,
};

/// The number of readahead requests that the kernel may have in progress.
const BACKGROUND_REQUESTS_MAX: u16 = 16;

const CAPABILITIES: u64 = init_flag::ASYNC_READ
    | init_flag::BIG_WRITES
    | init_flag::ASYNC_DIO
    | init_flag::PARALLEL_DIROPS
    | init_flag::MAX_PAGES
    | init_flag::DIRECT_IO_ALLOW_MMAP;

/// A tree of files. The implementation chooses the inode numbers. The root is [`InodeNo::ROOT`]. No inode ever
/// changes.
pub trait View: Send + Sync + 'static {
    /// The attributes of an inode.
    fn attributes(&self, inode: InodeNo) -> fs::Result<Attributes>;

    /// The inode of a name in a directory.
    fn lookup(&self, directory: InodeNo, name: &[u8]) -> fs::Result<InodeNo>;

    /// Calls `each` for every entry after `cookie` until it returns false.
    fn entries(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> fs::Result<()>;

    /// Checks whether a file can be read at all.
    fn open(&self, inode: InodeNo) -> fs::Result<()>;

    /// Reads until `into` is full or the file ends.
    fn read(&self, inode: InodeNo, offset: u64, into: &mut [u8]) -> fs::Result<usize>;

    /// Names of extended attributes.
    fn xattr_names(&self, inode: InodeNo) -> fs::Result<Vec<&'static [u8]>>;

    /// The value of an extended attribute.
    fn xattr(&self, inode: InodeNo, name: &[u8]) -> fs::Result<Vec<u8>>;

    /// The sizes for `statfs`.
    fn sizes(&self) -> StatFs;
}

/// A view that is attached and waits for its requests to be answered.
pub struct MountedView {
    channel: Channel,
    view: Arc<dyn View>,
    entry: Option<MountEntry>,
}

impl MountedView {
    /// Attaches the view at `directory`, which must be absolute and free of symbolic links. `source` is the source in
    /// the table of mounts.
    pub fn new(view: Arc<dyn View>, directory: &Path, source: &Path) -> Result<MountedView, MountError> {
        assert!(directory.is_absolute(), "the mount table has absolute paths");
        let channel =
            Channel::new(mount::attach(directory, &options(source))?).map_err(MountError::NoDevice)?;
        let entry = mount::entry_at(directory).ok().flatten();
        let max_background = BACKGROUND_REQUESTS_MAX;
        let terms = Terms { wanted: CAPABILITIES, max_write: REQUEST_BYTES_MAX, max_background };
        shake_hands(&channel, &terms).map_err(|error| {
            session::detach_leftover(&channel, entry.as_ref());
            MountError::Handshake(error)
        })?;
        Ok(MountedView { channel, view, entry })
    }

    /// Its line in the table of mounts, if the table could be read.
    pub fn entry(&self) -> Option<&MountEntry> {
        self.entry.as_ref()
    }

    /// Answers requests until the view is detached and no longer in use.
    pub fn serve(self) -> io::Result<()> {
        let MountedView { channel, view, entry } = self;
        let ended = session::answer_all(&channel, ViewAnswers(view), 0);
        session::detach_leftover(&channel, entry.as_ref());
        ended
    }
}

/// Answers the requests for a view.
struct ViewAnswers(Arc<dyn View>);

impl Answers for ViewAnswers {
    fn answer(&self, request: Request<'_>, reply: Reply) {
        answer(&*self.0, &request, reply);
    }

    /// Inodes of a view exist for ever.
    fn forget(&self, _: u64, _: u64) {}
}

fn options(source: &Path) -> MountOptions {
    MountOptions {
        source: source.into(),
        is_view: true,
        read_only: true,
        allow_other: false,
        no_set_id: true,
        no_devices: true,
        no_execution: true,
        strict_access_times: false,
        no_xattrs: false,
        uncached: false,
        is_of_library: false,
    }
}

fn answer(view: &dyn View, request: &Request<'_>, reply: Reply) {
    let from = &request.origin;
    match request.operation {
        Operation::Lookup(name) => lookup(view, from, name, reply),
        Operation::Getattr(_) => match view.attributes(inode_of(from)) {
            Ok(found) => {
                reply.structure(&AttrOut { attr_valid: LIFETIME, attr: attr(&found), ..AttrOut::default() })
            }
            Err(error) => reply.error(errno(&error)),
        },
        Operation::Open(_) | Operation::Opendir(_) => open(view, from, reply),
        Operation::Read(asked) => read(view, from, asked, reply),
        Operation::Readdir(asked) => list(view, from, asked, reply),
        Operation::Getxattr(asked, name) => {
            reply_xattr(reply, asked.size, view.xattr(inode_of(from), name));
        }
        Operation::Listxattr(asked) => {
            let names = view.xattr_names(inode_of(from));
            let list = names.map(|names| names.iter().flat_map(|name| [name, &b"\0"[..]].concat()).collect());
            reply_xattr(reply, asked.size, list);
        }
        Operation::Statfs => reply_sizes(reply, view.sizes()),
        Operation::Release(_) | Operation::Releasedir(_) | Operation::Fsync(_) | Operation::Fsyncdir(_) => {
            reply.done();
        }
        _ => refuse(&request.operation, reply),
    }
}

/// Refuses operations that would change something, and those that the kernel performs itself when they are not
/// supported.
fn refuse(operation: &Operation<'_>, reply: Reply) {
    match operation {
        Operation::Setattr(_)
        | Operation::Symlink { .. }
        | Operation::Mknod(..)
        | Operation::Mkdir(..)
        | Operation::Unlink(_)
        | Operation::Rmdir(_)
        | Operation::Rename(..)
        | Operation::Link(..)
        | Operation::Create(..)
        | Operation::Tmpfile(_)
        | Operation::Write(..)
        | Operation::Setxattr(..)
        | Operation::Removexattr(_)
        | Operation::Fallocate(_)
        | Operation::CopyFileRange(_) => finish(reply, Err(FsError::ReadOnly)),
        Operation::Readlink => finish(reply, Err(FsError::Invalid)),
        _ => reply.error(Errno::NOSYS),
    }
}

fn lookup(view: &dyn View, from: &Origin, name: &[u8], reply: Reply) {
    let found = view.lookup(inode_of(from), name).and_then(|inode| view.attributes(inode));
    match found {
        Ok(found) => reply.structure(&EntryOut {
            nodeid: found.inode.0,
            generation: found.generation.into(),
            attr: attr(&found),
            ..absent()
        }),
        Err(FsError::NotFound) => reply.structure(&absent()),
        Err(error) => reply.error(errno(&error)),
    }
}

fn open(view: &dyn View, from: &Origin, reply: Reply) {
    let open_flags = fopen::KEEP_CACHE | fopen::CACHE_DIR;
    match view.open(inode_of(from)) {
        Ok(()) => reply.structure(&OpenOut { fh: 0, open_flags, backing_id: 0 }),
        Err(error) => reply.error(errno(&error)),
    }
}

fn read(view: &dyn View, from: &Origin, asked: ReadIn, reply: Reply) {
    let length = asked.size.min(REQUEST_BYTES_MAX) as usize;
    let mut buffer = PageBuffer::new(0, length);
    let into = &mut buffer.space()[..length];
    match view.read(inode_of(from), asked.offset, into) {
        Ok(count) => reply.bytes(&into[..count]),
        Err(error) => reply.error(errno(&error)),
    }
}

fn list(view: &dyn View, from: &Origin, asked: ReadIn, reply: Reply) {
    let mut listing = listing_for(&asked);
    let listed = view.entries(inode_of(from), asked.offset, &mut |entry| {
        listing.add(entry.inode.0, entry.cookie, directory_type(entry.kind), &entry.name)
    });
    reply_listing(reply, listed, &listing);
}

#[cfg(test)]
mod tests;

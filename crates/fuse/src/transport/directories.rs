//! Reading directories.

use std::sync::Arc;

use fs::InodeNo;

use rustix::io::Errno;

use super::attr::directory_type;
use super::{Transport, attr, finish, inode_of};
use crate::deferred::{DeferredWork, Pages};
use crate::errno::errno;
use crate::kernel::abi::{EntryOut, OpenOut, ReadIn, fopen, init_flag};
use crate::kernel::{Listing, Origin, REQUEST_BYTES_MAX, Reply};

/// What the kernel takes for open flags where it opens directories without a request.
const OPENED: OpenOut = OpenOut { fh: 0, open_flags: fopen::KEEP_CACHE | fopen::CACHE_DIR, backing_id: 0 };
/// A reply that ends a listing and is no empty reply: it is shorter than any entry.
const NO_ENTRY: [u8; 8] = [0; 8];

impl Transport {
    /// The kernel asks once, or each time if it has to ask. All requests about an open directory name the directory.
    pub(super) fn opendir(&self, reply: Reply) {
        match self.agreed().is_some_and(|agreed| agreed.granted & init_flag::NO_OPENDIR_SUPPORT != 0) {
            true => reply.error(Errno::NOSYS),
            false => reply.structure(&OPENED),
        }
    }

    pub(super) fn readdir(&self, from: &Origin, asked: ReadIn, reply: Reply) {
        self.list(from, &asked, reply, |directory, listing| {
            self.server.read_directory(directory, asked.offset, &mut |entry| {
                listing.add(entry.inode.0, entry.cookie, directory_type(entry.kind), &entry.name)
            })
        });
    }

    pub(super) fn readdirplus(&self, from: &Origin, asked: ReadIn, reply: Reply) {
        self.list(from, &asked, reply, |directory, listing| {
            self.server.read_directory_plus(directory, asked.offset, &mut |entry, attributes| {
                let dirent = (entry.inode.0, entry.cookie, directory_type(entry.kind));
                // Without a node the kernel uses only the name.
                let found = attributes
                    .map_or(EntryOut::default(), |attributes| attr::entry(&self.server, &attributes));
                listing.add_plus(&found, dirent, &entry.name)
            })
        });
    }

    pub(super) fn fsyncdir(&self, reply: Reply) {
        self.reply_durable(|server| finish(reply, server.fs().fsync_directories()));
    }

    /// Replies with the next part of a listing, and after the last one in the way that makes the kernel keep only
    /// what it may keep.
    fn list(
        &self,
        from: &Origin,
        asked: &ReadIn,
        reply: Reply,
        read: impl FnOnce(InodeNo, &mut Listing) -> fs::Result<()>,
    ) {
        let (directory, begins) = (inode_of(from), asked.offset == 0);
        // Before the entries are read, so that every later change is noted.
        let listings = self.server.listings();
        let begun = if begins { listings.begin(directory, from.pid) } else { None };
        match begins {
            true => self.server.update_atime(directory),
            false => listings.go_on(directory, from.pid),
        }
        let mut listing = listing_for(asked);
        let listed = read(directory, &mut listing);
        let ends = listed.is_ok() && listing.as_bytes().is_empty();
        let is_complete = ends && self.server.completes_listing(directory, from.pid);
        let answer = move || match ends && !is_complete {
            true => reply.bytes(&NO_ENTRY),
            false => reply_listing(reply, listed, &listing),
        };
        let Some(begun) = begun else { return answer() };
        let (first, server) = (Pages { inode: directory, offset: 0, length: 1 }, Arc::clone(&self.server));
        let then = move || {
            server.listings().dropped(directory, begun);
            answer();
        };
        self.deferred.send(DeferredWork::DropPages(first, Box::new(then)));
    }
}

/// A listing of the requested size.
pub(crate) fn listing_for(asked: &ReadIn) -> Listing {
    Listing::new(asked.size.min(REQUEST_BYTES_MAX))
}

/// Replies with a listing. An error after some entries is reported to the next request.
pub(crate) fn reply_listing(reply: Reply, listed: fs::Result<()>, listing: &Listing) {
    match listed {
        Err(error) if listing.as_bytes().is_empty() => reply.error(errno(&error)),
        _ => reply.bytes(listing.as_bytes()),
    }
}

//! Reading directories.

use std::sync::Arc;

use fs::InodeNo;

use rustix::io::Errno;

use super::attr::directory_type;
use super::{Transport, attr, finish, inode_of};
use crate::deferred::DeferredWork;
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
        match self.agreed.get().is_some_and(|agreed| agreed.granted & init_flag::NO_OPENDIR_SUPPORT != 0) {
            true => reply.error(Errno::NOSYS),
            false if self.server.is_uncached() => reply.structure(&OpenOut::default()),
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
                let found = attributes.map_or(EntryOut::default(), |found| attr::entry(&self.server, &found));
                let is_added = listing.add_plus(&found, dirent, &entry.name);
                if is_added && let Some(found) = attributes {
                    self.server.note_lookup(&found);
                }
                is_added
            })
        });
    }

    pub(super) fn fsyncdir(&self, reply: Reply) {
        self.reply_durable(|server| finish(reply, server.fs().fsync_directories()));
    }

    /// Replies with the next part of a listing. See [`crate::listings`] for what the kernel keeps of it.
    fn list(
        &self,
        from: &Origin,
        asked: &ReadIn,
        reply: Reply,
        read: impl FnOnce(InodeNo, &mut Listing) -> fs::Result<()>,
    ) {
        let directory = inode_of(from);
        if asked.offset == 0 {
            self.server.update_atime(directory);
        }
        self.server.listings().note_entries(directory);
        let mut listing = listing_for(asked);
        let listed = read(directory, &mut listing);
        if listed.is_err() || !listing.as_bytes().is_empty() {
            return reply_listing(reply, listed, &listing);
        }
        if self.server.access_times().are_enabled() {
            // The next listing must arrive here too.
            return reply.bytes(&NO_ENTRY);
        }
        if self.server.is_uncached() || !self.server.listings().is_old(directory) {
            return reply.bytes(&[]);
        }
        // Without the server: the thread that waits for the kernel must not keep the volume open.
        let listings = Arc::clone(self.server.listings());
        let then = move |is_dropped: bool| {
            if !is_dropped {
                return reply.bytes(&NO_ENTRY);
            }
            listings.note_drop(directory);
            reply.bytes(&[]);
        };
        self.deferred.send(DeferredWork::DropListing(directory, Box::new(then)));
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

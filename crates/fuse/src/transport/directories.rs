//! Reading directories.

use fs::InodeNo;

use super::attr::directory_type;
use super::{Transport, attr, caller, finish, inode_of};
use crate::errno::errno;
use crate::handles::HandleNo;
use crate::kernel::abi::{EntryOut, OpenOut, ReadIn, ReleaseIn, fopen};
use crate::kernel::{Listing, Origin, REQUEST_BYTES_MAX, Reply};

impl Transport {
    pub(super) fn opendir(&self, from: &Origin, reply: Reply) {
        match self.server.open_directory(&caller(from, 0), inode_of(from)) {
            Ok((handle, lists_from_cache)) => {
                let cache = if lists_from_cache { fopen::CACHE_DIR } else { 0 };
                // Without `KEEP_CACHE` the kernel would drop the cache that another handle uses.
                let open_flags = self.caching(from) | cache;
                reply.structure(&OpenOut { fh: handle.0, open_flags, backing_id: 0 });
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(super) fn readdir(&self, from: &Origin, asked: ReadIn, reply: Reply) {
        self.note_listing(inode_of(from), asked.offset);
        let mut listing = listing_for(&asked);
        let listed = self.server.read_directory(HandleNo(asked.fh), asked.offset, &mut |entry| {
            listing.add(entry.inode.0, entry.cookie, directory_type(entry.kind), &entry.name)
        });
        reply_listing(reply, listed, &listing);
    }

    pub(super) fn readdirplus(&self, from: &Origin, asked: ReadIn, reply: Reply) {
        self.note_listing(inode_of(from), asked.offset);
        let mut listing = listing_for(&asked);
        let handle = HandleNo(asked.fh);
        let listed = self.server.read_directory_plus(handle, asked.offset, &mut |entry, attributes| {
            let dirent = (entry.inode.0, entry.cookie, directory_type(entry.kind));
            // Without a node the kernel uses only the name.
            let found =
                attributes.map_or(EntryOut::default(), |attributes| attr::entry(&self.server, &attributes));
            listing.add_plus(&found, dirent, &entry.name)
        });
        reply_listing(reply, listed, &listing);
    }

    pub(super) fn releasedir(&self, asked: ReleaseIn, reply: Reply) {
        finish(reply, self.server.release(HandleNo(asked.fh)));
    }

    /// Notes that a directory is read from its beginning.
    fn note_listing(&self, directory: InodeNo, cookie: u64) {
        if cookie == 0 {
            self.server.update_atime(directory);
        }
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

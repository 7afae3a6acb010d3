//! Operations that find, create, move and remove names.

use fs::{Fs, FsError, InodeNo};
use rustix::io::Errno;

use super::attr::{absent, entry};
use super::{Transport, caller, finish, inode_of, maker};
use crate::errno::errno;
use crate::kernel::abi::{LinkIn, MkdirIn, MknodIn, Rename2In};
use crate::kernel::{Origin, Reply};
use crate::server::{Server, permissions};
use crate::translate;

impl Transport {
    pub(super) fn lookup(&self, from: &Origin, name: &[u8], reply: Reply) {
        match self.server.lookup(&caller(from, 0), inode_of(from), name) {
            Err(FsError::NotFound) if !self.server.is_uncached() => reply.structure(&absent()),
            found => self.reply_entry(reply, found),
        }
    }

    pub(super) fn readlink(&self, from: &Origin, reply: Reply) {
        match self.server.fs().read_link(inode_of(from)) {
            Ok(target) => {
                self.server.update_atime(inode_of(from));
                reply.bytes(&target);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(super) fn mknod(&self, from: &Origin, asked: MknodIn, name: &[u8], reply: Reply) {
        let caller = maker(from, asked.umask, asked.mode);
        self.reply_entry(reply, self.server.make_node(&caller, inode_of(from), name, asked.mode, asked.rdev));
    }

    pub(super) fn mkdir(&self, from: &Origin, asked: MkdirIn, name: &[u8], reply: Reply) {
        let caller = caller(from, asked.umask);
        let (parent, permissions) = (inode_of(from), permissions(asked.mode));
        let make = |fs: &Fs| fs.make_directory(&caller, parent, name, permissions);
        let made = self.server.changing(&[parent], make);
        self.reply_entry(reply, made);
    }

    pub(super) fn symlink(&self, from: &Origin, name: &[u8], target: &[u8], reply: Reply) {
        let parent = inode_of(from);
        let made = self.server.changing(&[parent], |fs| fs.symlink(&caller(from, 0), parent, name, target));
        self.reply_entry(reply, made);
    }

    pub(super) fn unlink(&self, from: &Origin, name: &[u8], reply: Reply) {
        let parent = inode_of(from);
        finish(reply, self.server.changing(&[parent], |fs| fs.unlink(&caller(from, 0), parent, name)));
    }

    pub(super) fn rmdir(&self, from: &Origin, name: &[u8], reply: Reply) {
        let parent = inode_of(from);
        let remove = |fs: &Fs| fs.remove_directory(&caller(from, 0), parent, name);
        finish(reply, self.server.changing(&[parent], remove));
    }

    pub(super) fn rename(&self, from: &Origin, asked: Rename2In, names: [&[u8]; 2], reply: Reply) {
        let Some(flags) = translate::rename_flags(asked.flags) else {
            return reply.error(Errno::INVAL);
        };
        let caller = caller(from, 0);
        let places = [(inode_of(from), names[0]), (InodeNo(asked.newdir), names[1])];
        let named = if flags.exchange { &places[..] } else { &places[..1] };
        let files = named.iter().filter_map(|(parent, name)| self.server.dirty_file(&caller, *parent, name));
        let files: Vec<InodeNo> = files.collect();
        let [(parent, name), (new_parent, new_name)] = places.map(|(parent, name)| (parent, name.to_vec()));
        let rename = move |server: &Server| {
            server.changing(&[parent, new_parent], |fs| {
                fs.rename(&caller, parent, &name, new_parent, &new_name, flags)
            })
        };
        self.reply_named(files, rename, |renamed| finish(reply, renamed));
    }

    pub(super) fn link(&self, from: &Origin, asked: LinkIn, name: &[u8], reply: Reply) {
        let (inode, parent) = (InodeNo(asked.oldnodeid), inode_of(from));
        let files = Vec::from_iter(self.server.may_be_dirty(inode).then_some(inode));
        let (caller, name) = (caller(from, 0), name.to_vec());
        let link = move |server: &Server| {
            let linked = server.changing(&[parent], |fs| fs.link(&caller, inode, parent, &name));
            linked.map(|linked| {
                server.note_lookup_of_file(&linked);
                entry(server, &linked)
            })
        };
        self.reply_named(files, link, |linked| match linked {
            Ok(entry) => reply.structure(&entry),
            Err(error) => reply.error(errno(&error)),
        });
    }
}

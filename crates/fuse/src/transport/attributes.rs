//! Attributes, extended attributes, and the sizes of the volume.

use fs::{Changes, FsError, SetTime, StatFs};
use rustix::io::Errno;

use super::{Transport, caller, finish, inode_of, may_run_as, reply_grown, short};
use crate::errno::errno;
use crate::groups;
use crate::handles::HandleNo;
use crate::kernel::abi::{
    GETATTR_FH, GetattrIn, GetxattrIn, GetxattrOut, SetattrIn, SetxattrIn, StatfsOut, StatxIn, fattr,
};
use crate::kernel::{Origin, Reply};
use crate::server::{permissions, setter_of};
use crate::translate;

impl Transport {
    pub(super) fn getattr(&self, from: &Origin, asked: GetattrIn, reply: Reply) {
        match self.attributes_for(from, asked.getattr_flags) {
            Ok(found) => reply.structure(&self.attributes(&found)),
            Err(error) => reply.error(errno(&error)),
        }
        self.keep_asking(from);
    }

    /// The kernel sends this when a program requests the birth time and the kernel does not know it yet.
    pub(super) fn statx(&self, from: &Origin, asked: StatxIn, reply: Reply) {
        match self.attributes_for(from, asked.getattr_flags) {
            Ok(found) => reply.structure(&self.extended(&found)),
            Err(error) => reply.error(errno(&error)),
        }
        self.keep_asking(from);
    }

    pub(super) fn setattr(&self, from: &Origin, asked: &SetattrIn, reply: Reply) {
        let has = |field| asked.valid & field != 0;
        let inode = inode_of(from);
        let is_modified_given = has(fattr::MTIME) && !has(fattr::MTIME_NOW);
        if is_modified_given
            && !translate::is_representable(asked.mtime, asked.mtimensec)
            && self.server.kernel_keeps_time(inode)
        {
            return reply.error(errno(&FsError::Range));
        }
        if let Err(error) = self.drop_set_id_by(from, asked.valid) {
            return reply.error(errno(&error));
        }
        let (caller, changes) = (caller(from, 0), changes(asked));
        let shorter = changes.size.and_then(|size| self.server.shorter_before(inode, size));
        let set = || match has(fattr::FH) && has(fattr::SIZE) {
            true => self.server.set_attributes_through(&caller, HandleNo(asked.fh), &changes),
            false => self.server.fs().set_attributes(&caller, inode, &changes),
        };
        let changed = match changes.size {
            Some(size) => self.server.resizing(inode, size, set),
            None => set(),
        };
        if has(fattr::SIZE) && changed.is_ok() {
            // After this answer the kernel lets the next write through. The error would be reported at the write
            // after it.
            self.server.forget_shortage(inode);
        }
        match changed.map(|attributes| self.attributes(&attributes)) {
            Ok(reported) => reply_grown(&self.deferred, shorter, move || reply.structure(&reported)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Drops the set-id bits of a file if setting these attributes does.
    fn drop_set_id_by(&self, from: &Origin, valid: u32) -> fs::Result<bool> {
        /// Flags that describe the request and set no attribute.
        const MANNER: u32 = fattr::FH | fattr::LOCKOWNER | fattr::KILL_SUIDGID;
        let (inode, has) = (inode_of(from), |field| valid & field != 0);
        if has(fattr::UID) || has(fattr::GID) {
            return self.drop_set_id_for(from, inode);
        }
        if valid & !MANNER == fattr::CTIME {
            // Only a `chown` that names neither an owner nor a group sets the change time alone.
            return self.server.drop_set_id_of_own(from.uid, inode, |group| may_run_as(from, group));
        }
        // When it truncates, the kernel says whether the caller may keep them.
        if has(fattr::KILL_SUIDGID) { self.drop_set_id(from, inode) } else { Ok(false) }
    }

    pub(super) fn statfs(&self, reply: Reply) {
        match self.server.fs().statfs() {
            Ok(space) => reply_sizes(reply, space),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(super) fn setxattr(&self, from: &Origin, asked: SetxattrIn, name: &[u8], value: &[u8], reply: Reply) {
        const CREATE: u32 = 1;
        const REPLACE: u32 = 2;
        let (create, replace) = (asked.flags & CREATE != 0, asked.flags & REPLACE != 0);
        let mut caller = setter_of(name, caller(from, 0));
        if sets_bits(name) && caller.uid != 0 {
            // The groups decide whether the file may still run as its group.
            caller.groups = groups::of_thread(from.pid);
        }
        let mut done = self.server.fs().set_xattr(&caller, inode_of(from), name, value, create, replace);
        if sets_bits(name) && caller.uid == 0 {
            // Root may have dropped the capability to keep the bit, which the file system does not know.
            let drop_bit = || self.server.drop_set_group_id(inode_of(from), |group| may_run_as(from, group));
            done = done.and_then(|()| drop_bit());
        }
        self.reply_after(done.is_ok() && sets_bits(name), inode_of(from), || finish(reply, done));
    }

    pub(super) fn getxattr(&self, from: &Origin, asked: GetxattrIn, name: &[u8], reply: Reply) {
        let value = self.server.fs().get_xattr(&caller(from, 0), inode_of(from), name);
        reply_xattr(reply, asked.size, value);
    }

    pub(super) fn listxattr(&self, from: &Origin, asked: GetxattrIn, reply: Reply) {
        let list = self.server.fs().list_xattrs(&caller(from, 0), inode_of(from)).map(|names| {
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            list
        });
        reply_xattr(reply, asked.size, list);
    }

    pub(super) fn removexattr(&self, from: &Origin, name: &[u8], reply: Reply) {
        let caller = setter_of(name, caller(from, 0));
        let done = self.server.fs().remove_xattr(&caller, inode_of(from), name);
        self.reply_after(done.is_ok() && sets_bits(name), inode_of(from), || finish(reply, done));
    }

    /// The kernel asks through a handle before it accepts a write.
    fn attributes_for(&self, from: &Origin, flags: u32) -> fs::Result<fs::Attributes> {
        match flags & GETATTR_FH != 0 {
            true => self.server.attributes_for_write(inode_of(from)),
            false => self.server.fs().attributes(inode_of(from)),
        }
    }

    /// The kernel has just cached attributes. For a file that found no space it must drop them again.
    fn keep_asking(&self, from: &Origin) {
        if self.server.is_short(inode_of(from)) {
            self.forget_attributes(inode_of(from));
        }
    }
}

/// Replies to `statfs`. The protocol has no field for the id of a file system: the kernel leaves `f_fsid` 0. It also
/// reports the free inodes as the available ones.
pub(crate) fn reply_sizes(reply: Reply, space: StatFs) {
    reply.structure(&StatfsOut {
        blocks: space.blocks,
        bfree: space.free,
        bavail: space.available,
        files: space.files,
        ffree: space.files_free,
        bsize: space.block_size,
        namelen: space.name_max,
        frsize: space.block_size,
        ..StatfsOut::default()
    });
}

fn changes(asked: &SetattrIn) -> Changes {
    let given = |field| asked.valid & field != 0;
    let time = |field, now, seconds, nanoseconds| {
        given(field).then(|| match given(now) {
            true => SetTime::Now,
            false => SetTime::To(translate::from_request(seconds, nanoseconds)),
        })
    };
    Changes {
        permissions: given(fattr::MODE).then(|| permissions(asked.mode)),
        uid: given(fattr::UID).then_some(asked.uid),
        gid: given(fattr::GID).then_some(asked.gid),
        size: given(fattr::SIZE).then_some(asked.size),
        accessed: time(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atimensec),
        modified: time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtimensec),
        changed: given(fattr::CTIME).then(|| translate::from_request(asked.ctime, asked.ctimensec)),
    }
}

/// An access list sets the permission bits too.
fn sets_bits(name: &[u8]) -> bool {
    name == fs::ACL_ACCESS
}

/// Replies with a value to a caller with space for `size` bytes. 0 requests only the size.
pub(crate) fn reply_xattr(reply: Reply, size: u32, value: fs::Result<Vec<u8>>) {
    match value {
        Ok(value) if size == 0 => {
            reply.structure(&GetxattrOut { size: short(value.len() as u64), padding: 0 });
        }
        Ok(value) if value.len() <= size as usize => reply.bytes(&value),
        Ok(_) => reply.error(Errno::RANGE),
        Err(error) => reply.error(errno(&error)),
    }
}

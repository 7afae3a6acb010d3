//! Attributes in the kernel's structures.
//!
//! **Attributes of directories are believed for a second.** Size, links and times of a directory change with the
//! names in it. The kernel marks what it knows of the directory as outdated when a name was made or removed, but does
//! not notice that an answer with older attributes, of another thread, is still on its way: taken last, that
//! one counts for as long as it says. After a second the kernel asks again, once for each directory that somebody looks
//! at or goes through. Of files it notices, and names it knows better than we.

use fs::{Attributes, Kind};

use super::Transport;
use crate::kernel::abi::{Attr, AttrOut, EntryOut, STATX_BASIC_STATS, STATX_BTIME, Statx, StatxOut, SxTime};
use crate::server::Server;
use crate::translate;

/// How many seconds the kernel may believe attributes, entries and the absence of entries. Nothing changes them
/// but requests of the same kernel; the limit heals what an error of ours might leave behind.
pub(crate) const LIFETIME: u64 = 24 * 60 * 60;

/// The same for the attributes of a directory that can be changed.
const LIFETIME_OF_DIRECTORIES: u64 = 1;

/// What `st_blksize` says: the size of a page, which is what the kernel caches.
const IO_SIZE: u32 = 4096;

/// An entry, and all that is to be known of its inode.
pub(super) fn entry(server: &Server, attributes: &Attributes) -> EntryOut {
    EntryOut {
        nodeid: attributes.inode.0,
        generation: attributes.generation.into(),
        attr_valid: lifetime(attributes),
        attr: shown(server, attributes),
        ..absent()
    }
}

/// What the kernel is told of an inode. It goes on with the count of blocks that it was told, whatever it has
/// in its cache, and there are programs that take a file without blocks for one hole: so none that
/// somebody may be writing to is without.
fn shown(server: &Server, attributes: &Attributes) -> Attr {
    let is_being_written = server.has_no_blocks(attributes) && server.may_be_dirty(attributes.inode);
    let blocks = attributes.blocks.max(is_being_written.into());
    server.note_blocks_told(attributes.inode, blocks);
    Attr { blocks, ..attr(attributes) }
}

impl Transport {
    pub(super) fn attributes(&self, attributes: &Attributes) -> AttrOut {
        AttrOut {
            attr_valid: lifetime(attributes),
            attr: shown(&self.server, attributes),
            ..AttrOut::default()
        }
    }

    /// The same with the time of birth.
    pub(super) fn extended(&self, attributes: &Attributes) -> StatxOut {
        let shown = shown(&self.server, attributes);
        let stat = Statx {
            mask: STATX_BASIC_STATS | STATX_BTIME,
            blksize: shown.blksize,
            nlink: shown.nlink,
            uid: shown.uid,
            gid: shown.gid,
            mode: u16::try_from(shown.mode).expect("a mode has 16 bits"),
            ino: shown.ino,
            size: shown.size,
            blocks: shown.blocks,
            atime: sx_time(attributes.accessed),
            btime: sx_time(attributes.born),
            ctime: sx_time(attributes.changed),
            mtime: sx_time(attributes.modified),
            rdev_major: shown.rdev >> 8 & 0xfff,
            rdev_minor: shown.rdev & 0xff | shown.rdev >> 12 & 0xf_ff00,
            ..Statx::default()
        };
        StatxOut { attr_valid: lifetime(attributes), stat, ..StatxOut::default() }
    }
}

fn lifetime(attributes: &Attributes) -> u64 {
    if attributes.kind == Kind::Directory { LIFETIME_OF_DIRECTORIES } else { LIFETIME }
}

/// An entry that is not there, which the kernel may remember.
pub(crate) fn absent() -> EntryOut {
    EntryOut { entry_valid: LIFETIME, attr_valid: LIFETIME, ..EntryOut::default() }
}

/// The kind of an entry of a directory.
pub(crate) fn directory_type(kind: Kind) -> u32 {
    match kind {
        Kind::Fifo => 0o1,
        Kind::CharDevice => 0o2,
        Kind::Directory => 0o4,
        Kind::BlockDevice => 0o6,
        Kind::File => 0o10,
        Kind::Symlink => 0o12,
        Kind::Socket => 0o14,
    }
}

/// Attributes as they are.
pub(crate) fn attr(attributes: &Attributes) -> Attr {
    let (atime, atimensec) = translate::to_reply(attributes.accessed);
    let (mtime, mtimensec) = translate::to_reply(attributes.modified);
    let (ctime, ctimensec) = translate::to_reply(attributes.changed);
    Attr {
        ino: attributes.inode.0,
        size: attributes.size,
        blocks: attributes.blocks,
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        mode: directory_type(attributes.kind) << 12 | u32::from(attributes.permissions),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: IO_SIZE,
        flags: 0,
    }
}

fn sx_time(time: rt::Timestamp) -> SxTime {
    let (tv_sec, tv_nsec) = translate::to_reply(time);
    SxTime { tv_sec, tv_nsec, reserved: 0 }
}

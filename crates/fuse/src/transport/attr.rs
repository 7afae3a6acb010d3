//! Attributes in the kernel's structures.
//!
//! **The kernel caches attributes of directories for a second.** Size, links and times of a directory change with its
//! names. The kernel invalidates its cached attributes of the directory when a name was created or removed. But it
//! does not notice that an older answer of another thread is still in flight: if that one arrives last, it is valid
//! for as long as it says. After a second the kernel asks again, once for each directory that a program uses. For
//! files the kernel does notice, and for names it knows the state better than we do.

use fs::{Attributes, Kind};

use super::Transport;
use crate::kernel::abi::{Attr, AttrOut, EntryOut, STATX_BASIC_STATS, STATX_BTIME, Statx, StatxOut, SxTime};
use crate::server::Server;
use crate::translate;

/// For how many seconds the kernel may cache attributes, entries and the absence of entries. Only requests of the
/// same kernel change them. The limit bounds the effect of an error of ours.
pub(crate) const LIFETIME: u64 = 24 * 60 * 60;

/// The same for the attributes of a writable directory.
const LIFETIME_OF_DIRECTORIES: u64 = 1;

/// `st_blksize`: the size of a page, which is the unit of the kernel's cache.
const IO_SIZE: u32 = 4096;

/// An entry and the attributes of its inode.
pub(super) fn entry(server: &Server, attributes: &Attributes) -> EntryOut {
    EntryOut {
        nodeid: attributes.inode.0,
        generation: attributes.generation.into(),
        entry_valid: if server.is_uncached() { 0 } else { LIFETIME },
        attr_valid: lifetime(server, attributes),
        attr: reported_attr(server, attributes),
        ..EntryOut::default()
    }
}

/// The attributes that are reported to the kernel. It keeps the reported count of blocks whatever is in its cache,
/// and some programs take a file without blocks for one hole. So a file that may be being written is reported with at
/// least one.
fn reported_attr(server: &Server, attributes: &Attributes) -> Attr {
    let is_being_written = server.has_no_blocks(attributes) && server.may_be_dirty(attributes.inode);
    let blocks = attributes.blocks.max(is_being_written.into());
    server.note_blocks_reported(attributes.inode, blocks);
    Attr { blocks, ..attr(attributes) }
}

impl Transport {
    pub(super) fn attributes(&self, attributes: &Attributes) -> AttrOut {
        AttrOut {
            attr_valid: lifetime(&self.server, attributes),
            attr: reported_attr(&self.server, attributes),
            ..AttrOut::default()
        }
    }

    /// The same with the birth time.
    pub(super) fn extended(&self, attributes: &Attributes) -> StatxOut {
        let attr = reported_attr(&self.server, attributes);
        let stat = Statx {
            mask: STATX_BASIC_STATS | STATX_BTIME,
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: u16::try_from(attr.mode).expect("a mode has 16 bits"),
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: sx_time(attributes.accessed),
            btime: sx_time(attributes.born),
            ctime: sx_time(attributes.changed),
            mtime: sx_time(attributes.modified),
            rdev_major: attr.rdev >> 8 & 0xfff,
            rdev_minor: attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00,
            ..Statx::default()
        };
        StatxOut { attr_valid: lifetime(&self.server, attributes), stat, ..StatxOut::default() }
    }
}

fn lifetime(server: &Server, attributes: &Attributes) -> u64 {
    match attributes.kind {
        _ if server.is_uncached() => 0,
        Kind::Directory => LIFETIME_OF_DIRECTORIES,
        _ => LIFETIME,
    }
}

/// The absence of an entry, which the kernel may cache.
pub(crate) fn absent() -> EntryOut {
    EntryOut { entry_valid: LIFETIME, attr_valid: LIFETIME, ..EntryOut::default() }
}

/// The kind of a directory entry.
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

/// The attributes without any change.
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

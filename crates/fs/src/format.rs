//! The bytes of the file system's tables. `docs/format.md`, section "Files (fs)", describes the same.
//!
//! Keys are big-endian, so that they sort. Values are little-endian and begin with a version. Every decoder accepts
//! arbitrary bytes and returns a value or [`Damaged`].

use extent::Object;
use rt::Timestamp;
use tree::Table;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::types::{InodeNo, Kind};

/// Inodes: [`inode_key`] → [`InodeHeader`] and contents.
pub const INODE: Table = Table(16);
/// Directory entries: [`dirent_key`] → [`DirentHeader`] and name.
pub const DIRENT: Table = Table(17);
/// Extended attributes: [`xattr_key`] → [`XattrHeader`], name and bytes; further parts raw.
pub const XATTR: Table = Table(18);
/// Inodes without a name: [`number_key`] → [`Marker`].
pub const ORPHAN: Table = Table(19);
/// Files with unfinished work: [`number_key`] → [`Marker`] while blocks beyond the end are being removed,
/// [`ShiftIntent`] while a range is being moved.
pub const INTENT: Table = Table(20);
/// Ends of the ranges of inode counters: [`counter_key`] → [`Counter`].
pub const COUNTER: Table = Table(21);

/// Uncounted objects (`reflink.rs`): [`number_key`] → [`Shadow`]. References of such an object do not count. They are
/// being removed, or the object is still being built.
pub const SHADOW: Table = Table(22);

/// The version at the start of every value.
pub const VERSION: u8 = 1;
/// The snapshot id of the live state.
pub const SNAPSHOT_LIVE: u32 = 0;
/// Bytes of the longest name of an entry or of an extended attribute.
pub const NAME_MAX: usize = 255;
/// Contents of up to this many bytes may be inline in the inode's record.
pub const INLINE_MAX: usize = 2048;

/// The file's contents are in its record.
pub const FLAG_INLINE: u32 = 1;
/// Blocks beyond the end are still being removed; there is an [`INTENT`].
pub const FLAG_TRUNCATING: u32 = 2;
/// The last block may hold bytes beyond the end that are not zero.
pub const FLAG_TAIL_STALE: u32 = 4;
/// Made without a name (`O_TMPFILE`) and may still be given one.
pub const FLAG_LINKABLE: u32 = 8;
/// The file may have preallocated space beyond its end.
pub const FLAG_SPACE_BEYOND_END: u32 = 16;
/// A range is being moved. There is an [`INTENT`] with the range and the progress.
pub const FLAG_SHIFTING: u32 = 32;
/// The file has shared blocks, or has had some.
pub const FLAG_SHARES: u32 = 64;
const FLAGS_KNOWN: u32 = 127;

/// Stored bytes that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

/// The fixed part of an inode's record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeHeader {
    /// [`VERSION`].
    pub version: u8,
    /// [`Kind`].
    pub kind: u8,
    /// The low 12 bits of the mode.
    pub permissions: U16,
    /// `FLAG_…`.
    pub flags: U32,
    /// Names; of a directory 2 + subdirectories.
    pub links: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Device number.
    pub device: U32,
    /// Distinguishes the mount that created it from others.
    pub generation: U32,
    /// Extended attributes.
    pub xattrs: U32,
    /// Bytes; of a directory: entries.
    pub size: U64,
    /// Data blocks.
    pub blocks: U64,
    /// For a directory: its parent.
    pub parent: U64,
    /// Nanoseconds since 1970.
    pub accessed: I64,
    /// Nanoseconds since 1970.
    pub modified: I64,
    /// Nanoseconds since 1970.
    pub changed: I64,
    /// Nanoseconds since 1970.
    pub born: I64,
    /// Bytes of contents that follow the header.
    pub content_length: U32,
    /// Expected lifetime of the data: 0 unknown, 1 short, 2 medium, 3 long, 4 extreme.
    pub lifetime: u8,
    /// The file class of its data among files in the same directory, for learning lifetimes. 0: none.
    pub kind_here: U16,
    /// The file class anywhere.
    pub kind_anywhere: U16,
    /// The object with the contents of a file. 0: the one with the inode's number.
    pub object: U64,
    /// Zero.
    pub reserved: [u8; 23],
}
const _: () = assert!(size_of::<InodeHeader>() == 128);

/// The fixed part of a directory entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirentHeader {
    /// [`VERSION`].
    pub version: u8,
    /// [`Kind`] of the inode.
    pub kind: u8,
    /// Bytes of the name that follows.
    pub name_length: U16,
    /// Zero.
    pub reserved: U32,
    /// The inode.
    pub inode: U64,
}
const _: () = assert!(size_of::<DirentHeader>() == 16);

/// The fixed part of an extended attribute's first row.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XattrHeader {
    /// [`VERSION`].
    pub version: u8,
    /// Rows that the value takes, this one included.
    pub parts: u8,
    /// Bytes of the name that follows.
    pub name_length: U16,
    /// Bytes of the whole value.
    pub value_length: U32,
}
const _: () = assert!(size_of::<XattrHeader>() == 8);

/// The value of an orphan or an intent. The key contains everything.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Marker {
    /// [`VERSION`].
    pub version: u8,
    /// Zero.
    pub reserved: [u8; 7],
}
const _: () = assert!(size_of::<Marker>() == 8);

/// The value for an uncounted object.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Shadow {
    /// [`VERSION`].
    pub version: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// The file whose contents it had, which takes over its preallocated space. 0: it never belonged to a file.
    pub heir: U64,
}
const _: () = assert!(size_of::<Shadow>() == 16);

/// The value of an intent to move the bytes behind a removed or inserted range.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ShiftIntent {
    /// [`VERSION`].
    pub version: u8,
    /// [`Direction`].
    pub direction: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// Where the range begins.
    pub at: U64,
    /// Bytes of the range.
    pub length: U64,
    /// Down: everything before this has been moved. Up: everything from here on has been moved.
    pub moved: U64,
}
const _: () = assert!(size_of::<ShiftIntent>() == 32);

/// The end of the range of inode counters that a group may have used.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Counter {
    /// [`VERSION`].
    pub version: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// No inode of the group has this counter or a greater one.
    pub end: U64,
}
const _: () = assert!(size_of::<Counter>() == 16);

/// An inode in memory: the fields of the header, and inline contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its kind.
    pub kind: Kind,
    /// The low 12 bits of the mode.
    pub permissions: u16,
    /// `FLAG_…`.
    pub flags: u32,
    /// Names; of a directory 2 + subdirectories; 0 without a name.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub device: u32,
    /// Distinguishes the mount that created it from others.
    pub generation: u32,
    /// Extended attributes.
    pub xattrs: u32,
    /// Bytes; of a directory: entries.
    pub size: u64,
    /// Data blocks.
    pub blocks: u64,
    /// For a directory: its parent (the root is its own parent).
    pub parent: InodeNo,
    /// Access time.
    pub accessed: Timestamp,
    /// Modification time.
    pub modified: Timestamp,
    /// Change time.
    pub changed: Timestamp,
    /// Creation time.
    pub born: Timestamp,
    /// Expected lifetime of the data, 0–4.
    pub lifetime: u8,
    /// The file class of the data, derived from its name.
    pub file_class: extent::FileClass,
    /// The object with the contents of a file, if it is not the one with the inode's number.
    pub object: Option<Object>,
    /// The target of a symbolic link, or the contents of an inline file (exactly `size` bytes).
    pub content: Vec<u8>,
}

impl Record {
    /// Whether one of these flags is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The object with the contents of a file with this number.
    pub fn object(&self, inode: InodeNo) -> Object {
        self.object.unwrap_or(Object(inode.0))
    }

    /// Sets or clears a flag.
    pub fn set(&mut self, flag: u32, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let header = InodeHeader {
            version: VERSION,
            kind: self.kind as u8,
            permissions: self.permissions.into(),
            flags: self.flags.into(),
            links: self.links.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            device: self.device.into(),
            generation: self.generation.into(),
            xattrs: self.xattrs.into(),
            size: self.size.into(),
            blocks: self.blocks.into(),
            parent: self.parent.0.into(),
            accessed: self.accessed.0.into(),
            modified: self.modified.0.into(),
            changed: self.changed.0.into(),
            born: self.born.0.into(),
            content_length: u32::try_from(self.content.len()).expect("contents are a few KiB").into(),
            lifetime: self.lifetime,
            kind_here: self.file_class.particular.into(),
            kind_anywhere: self.file_class.general.into(),
            object: self.object.map_or(0, |object| object.0).into(),
            reserved: [0; 23],
        };
        [header.as_bytes(), &self.content].concat()
    }

    /// The record in stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<Record, Damaged> {
        let (header, content) =
            InodeHeader::read_from_prefix(bytes).map_err(|_| Damaged("an inode's record is too short"))?;
        if header.version != VERSION {
            return Err(Damaged("an inode's record has an unknown version"));
        }
        let record = Record {
            kind: Kind::from_number(header.kind).ok_or(Damaged("an inode has an unknown type"))?,
            permissions: header.permissions.get(),
            flags: header.flags.get(),
            links: header.links.get(),
            uid: header.uid.get(),
            gid: header.gid.get(),
            device: header.device.get(),
            generation: header.generation.get(),
            xattrs: header.xattrs.get(),
            size: header.size.get(),
            blocks: header.blocks.get(),
            parent: InodeNo(header.parent.get()),
            accessed: Timestamp(header.accessed.get()),
            modified: Timestamp(header.modified.get()),
            changed: Timestamp(header.changed.get()),
            born: Timestamp(header.born.get()),
            lifetime: header.lifetime,
            file_class: extent::FileClass {
                particular: header.kind_here.get(),
                general: header.kind_anywhere.get(),
            },
            object: Some(Object(header.object.get())).filter(|object| object.0 != 0),
            content: content.to_vec(),
        };
        record.verified(header.content_length.get())
    }

    fn verified(self, content_length: u32) -> Result<Record, Damaged> {
        let length = self.content.len() as u64;
        if u64::from(content_length) != length {
            return Err(Damaged("the contents in an inode's record have another length than is recorded"));
        }
        if self.permissions > 0o7777 || self.flags & !FLAGS_KNOWN != 0 || self.lifetime > 4 {
            return Err(Damaged("an inode's record has unknown bits"));
        }
        if self.object.is_some() && self.kind != Kind::File {
            return Err(Damaged("an inode that is not a file has a data object"));
        }
        if self.size > FILE_SIZE_MAX {
            return Err(Damaged("an inode is larger than the largest file"));
        }
        let holds_contents = self.kind == Kind::Symlink || self.has(FLAG_INLINE);
        if length != if holds_contents { self.size } else { 0 } {
            return Err(Damaged("an inode's size is not that of the contents in its record"));
        }
        Ok(self)
    }
}

/// The largest size of a file, because POSIX offsets are signed. Rounded up to a block of any size it is 2^63, which
/// our unsigned offsets can hold.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// The direction in which the bytes behind a range move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// The range was taken out.
    Down = 1,
    /// The range was inserted.
    Up = 2,
}

/// A range that was taken out of a file or inserted, and the progress of moving the bytes behind it. All offsets are
/// multiples of the block size and are those before the move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The direction of the move.
    pub direction: Direction,
    /// Where the range begins.
    pub at: u64,
    /// Its bytes.
    pub length: u64,
    /// Down: everything before this has been moved; at first the end of the range. Up: everything from here on has
    /// been moved; at first the end of the file.
    pub moved: u64,
}

impl Shift {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let intent = ShiftIntent {
            version: VERSION,
            direction: self.direction as u8,
            reserved: [0; 6],
            at: self.at.into(),
            length: self.length.into(),
            moved: self.moved.into(),
        };
        intent.as_bytes().to_vec()
    }

    /// The intent in stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<Shift, Damaged> {
        let intent = ShiftIntent::read_from_bytes(bytes)
            .map_err(|_| Damaged("an intent to move a range has a wrong length"))?;
        if intent.version != VERSION {
            return Err(Damaged("an intent has an unknown version"));
        }
        let direction = match intent.direction {
            1 => Direction::Down,
            2 => Direction::Up,
            _ => return Err(Damaged("an intent has an unknown direction")),
        };
        let (at, length, moved) = (intent.at.get(), intent.length.get(), intent.moved.get());
        let least = match direction {
            Direction::Down => at.checked_add(length),
            Direction::Up => Some(at),
        };
        let reach = match direction {
            Direction::Down => Some(moved),
            Direction::Up => moved.checked_add(length),
        };
        let is_within = reach.is_some_and(|reach| reach <= FILE_SIZE_MAX.next_multiple_of(0x10000));
        match is_within && length > 0 && least.is_some_and(|least| least <= moved) {
            true => Ok(Shift { direction, at, length, moved }),
            false => Err(Damaged("an intent's range is not valid")),
        }
    }
}

/// A decoded directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The inode.
    pub inode: InodeNo,
    /// Its kind.
    pub kind: Kind,
    /// The name.
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let header = DirentHeader {
            version: VERSION,
            kind: self.kind as u8,
            name_length: name_length(self.name),
            reserved: 0.into(),
            inode: self.inode.0.into(),
        };
        [header.as_bytes(), self.name].concat()
    }

    /// The entry in stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<Dirent<'_>, Damaged> {
        let (header, name) =
            DirentHeader::read_from_prefix(bytes).map_err(|_| Damaged("a directory entry is too short"))?;
        if header.version != VERSION {
            return Err(Damaged("a directory entry has an unknown version"));
        }
        if name.is_empty() || name.len() > NAME_MAX || usize::from(header.name_length.get()) != name.len() {
            return Err(Damaged("a directory entry's name has another length than is recorded"));
        }
        let kind = Kind::from_number(header.kind).ok_or(Damaged("a directory entry has an unknown type"))?;
        Ok(Dirent { inode: InodeNo(header.inode.get()), kind, name })
    }
}

fn name_length(name: &[u8]) -> U16 {
    assert!(name.len() <= NAME_MAX, "names are checked before they are stored");
    U16::new(name.len() as u16)
}

/// The first row of an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrHead {
    /// Rows of the value.
    pub parts: u8,
    /// Bytes of the whole value.
    pub value_length: u32,
    /// The whole name, with its namespace.
    pub name: Vec<u8>,
    /// The beginning of the value.
    pub bytes: Vec<u8>,
}

impl XattrHead {
    /// The bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let header = XattrHeader {
            version: VERSION,
            parts: self.parts,
            name_length: name_length(&self.name),
            value_length: self.value_length.into(),
        };
        [header.as_bytes(), &self.name, &self.bytes].concat()
    }

    /// The row in stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<XattrHead, Damaged> {
        let (header, rest) = XattrHeader::read_from_prefix(bytes)
            .map_err(|_| Damaged("an extended attribute is too short"))?;
        if header.version != VERSION {
            return Err(Damaged("an extended attribute has an unknown version"));
        }
        let name_length = usize::from(header.name_length.get());
        if name_length == 0 || name_length > NAME_MAX || name_length > rest.len() || header.parts == 0 {
            return Err(Damaged("an extended attribute's name has another length than is recorded"));
        }
        let (name, bytes) = rest.split_at(name_length);
        Ok(XattrHead {
            parts: header.parts,
            value_length: header.value_length.get(),
            name: name.to_vec(),
            bytes: bytes.to_vec(),
        })
    }
}

/// The value of an orphan or an intent.
pub fn marker() -> Vec<u8> {
    Marker { version: VERSION, reserved: [0; 7] }.as_bytes().to_vec()
}

/// The value for an uncounted object.
pub fn encode_shadow(owner: Option<InodeNo>) -> Vec<u8> {
    let heir = owner.map_or(0, |owner| owner.0).into();
    Shadow { version: VERSION, reserved: [0; 7], heir }.as_bytes().to_vec()
}

/// The owner of an uncounted object.
pub fn decode_shadow(bytes: &[u8]) -> Result<Option<InodeNo>, Damaged> {
    match Shadow::read_from_bytes(bytes) {
        Ok(shadow) if shadow.version == VERSION => {
            Ok(Some(InodeNo(shadow.heir.get())).filter(|owner| owner.0 != 0))
        }
        _ => Err(Damaged("the record of a shared object cannot be decoded")),
    }
}

/// The value of a counter.
pub fn encode_counter(end: u64) -> Vec<u8> {
    Counter { version: VERSION, reserved: [0; 7], end: end.into() }.as_bytes().to_vec()
}

/// The end in a stored counter.
pub fn decode_counter(bytes: &[u8]) -> Result<u64, Damaged> {
    match Counter::read_from_bytes(bytes) {
        Ok(counter) if counter.version == VERSION => Ok(counter.end.get()),
        _ => Err(Damaged("a counter of inode numbers cannot be decoded")),
    }
}

/// inode u64, snapshot u32.
pub fn inode_key(inode: InodeNo) -> [u8; 12] {
    key([&inode.0.to_be_bytes(), &SNAPSHOT_LIVE.to_be_bytes()])
}

/// parent u64, cookie u64 (hash × 256 + collision number), snapshot u32.
pub fn dirent_key(parent: InodeNo, cookie: u64) -> [u8; 20] {
    key([&parent.0.to_be_bytes(), &cookie.to_be_bytes(), &SNAPSHOT_LIVE.to_be_bytes()])
}

/// inode u64, hash of the name u64, collision number u8, part u8, snapshot u32.
pub fn xattr_key(inode: InodeNo, hash: u64, collision: u8, part: u8) -> [u8; 22] {
    let snapshot = SNAPSHOT_LIVE.to_be_bytes();
    key([&inode.0.to_be_bytes(), &hash.to_be_bytes(), &[collision, part], &snapshot])
}

/// inode u64.
pub fn number_key(inode: InodeNo) -> [u8; 8] {
    inode.0.to_be_bytes()
}

/// group u16.
pub fn counter_key(group: u16) -> [u8; 2] {
    group.to_be_bytes()
}

/// The parts of a key one after another. They have that length together.
fn key<const LENGTH: usize, const PARTS: usize>(parts: [&[u8]; PARTS]) -> [u8; LENGTH] {
    let mut key = [0; LENGTH];
    let mut at = 0;
    for part in parts {
        key[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    assert_eq!(at, LENGTH, "the parts fill the key");
    key
}

/// The inode of an [`inode_key`] or a [`number_key`].
pub fn decode_inode_key(key: &[u8]) -> Result<InodeNo, Damaged> {
    let number = key.first_chunk::<8>().ok_or(Damaged("a key is too short for an inode's number"))?;
    Ok(InodeNo(u64::from_be_bytes(*number)))
}

/// Parent and cookie of a [`dirent_key`].
pub fn decode_dirent_key(key: &[u8]) -> Result<(InodeNo, u64), Damaged> {
    let key: &[u8; 20] = key.try_into().map_err(|_| Damaged("a directory entry's key has a wrong length"))?;
    let (parent, rest) = key.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    Ok((InodeNo(word(parent)), word(&rest[..8])))
}

/// Inode, hash, collision number and part of an [`xattr_key`].
pub fn decode_xattr_key(key: &[u8]) -> Result<(InodeNo, u64, u8, u8), Damaged> {
    let key: &[u8; 22] =
        key.try_into().map_err(|_| Damaged("an extended attribute's key has a wrong length"))?;
    let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    Ok((InodeNo(word(&key[..8])), word(&key[8..16]), key[16], key[17]))
}

#[cfg(test)]
mod tests;

//! Detects the contents of a file, so that data is not overwritten by mistake.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::format::{FILE_MAGIC, HEADER_BYTES, Layout, NoHeader};
use super::header::Headers;
use super::{FileError, search};
use crate::set::MemberLabel;
use crate::{FsId, Geometry, ZoneId};

/// How many bytes of the beginning and of the end of a file are read.
const PROBE_BYTES: u64 = 64 << 10;

const UNKNOWN: &str = "data of an unknown kind";
const UNLABELLED: &str =
    "a member of a set of Polder without a label (`polder mkfs` was interrupted, or the label is damaged)";

/// The contents of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContents {
    /// No file.
    Nothing,
    /// A file whose beginning and end are zeros.
    Blank,
    /// A volume of Polder.
    Volume {
        /// The volume.
        fs_id: FsId,
        /// Its shape.
        geometry: Geometry,
    },
    /// A member of a set, which is a part of a volume of Polder.
    Member(Box<MemberLabel>),
    /// A volume of Polder of which no header can be read.
    Damaged {
        /// The present contents of its start, if they are known.
        what: Option<String>,
    },
    /// Something else, or a volume that this release cannot use.
    Other(String),
}

/// Bytes that identify a format at a fixed offset.
struct Signature {
    offset: usize,
    bytes: &'static [u8],
    name: &'static str,
}

const fn signature(offset: usize, bytes: &'static [u8], name: &'static str) -> Signature {
    Signature { offset, bytes, name }
}

const SIGNATURES: &[Signature] = &[
    signature(0, b"XFSB", "an XFS file system"),
    signature(1024 + 56, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    signature(1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    signature(1024, &[2, 0, 0, 0, 0, 0, 0x34, 0x34], "a NILFS2 file system"),
    signature(1024, b"H+\0\x04", "an HFS+ file system"),
    signature(1024, b"HX\0\x05", "an HFS+ file system"),
    signature(32, b"NXSB", "an APFS file system"),
    signature(32768, b"JFS1", "a JFS file system"),
    signature(0, b"SFOZ", "a zonefs file system"),
    signature(0, b"bluestore block device", "a BlueStore device of Ceph"),
    signature(4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], "a bcachefs file system"),
    signature(3, b"NTFS    ", "an NTFS file system"),
    signature(82, b"FAT32   ", "a FAT file system"),
    signature(54, b"FAT1", "a FAT file system"),
    signature(3, b"EXFAT   ", "an exFAT file system"),
    signature(0, b"hsqs", "a squashfs image"),
    signature(1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS image"),
    signature(4096 - 10, b"SWAPSPACE2", "a swap area"),
    signature(0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
    signature(0, MD_RAID, MD_RAID_NAME),
    signature(4096, MD_RAID, MD_RAID_NAME),
    signature(512, b"LABELONE", "an LVM physical volume"),
    signature(0, b"QFI\xfb", "a qcow2 disk image"),
    signature(0, b"SQLite format 3\0", "an SQLite database"),
    signature(32769, b"CD001", "an ISO 9660 image"),
    signature(512, b"EFI PART", "a GPT partition table"),
    signature(4096, b"EFI PART", "a GPT partition table"),
    signature(510, &[0x55, 0xaa], "a partition table or boot sector"),
];

const MD_RAID: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const MD_RAID_NAME: &str = "a member of an MD RAID";

/// The superblock of btrfs begins directly behind the bytes that are read from the beginning.
const BTRFS: (u64, &[u8; 8]) = (0x10040, b"_BHRfS_M");

/// A member of a ZFS pool has a ring of uberblocks here, each at a multiple of 1 KiB and with these first bytes.
const ZFS_RING: std::ops::Range<usize> = 128 << 10..256 << 10;
const ZFS_UBERBLOCK_UNIT: usize = 1 << 10;
const ZFS_UBERBLOCK: &[u8] = &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];

/// Detects the contents of an open file of `size` bytes.
pub(super) fn contents_of(file: &File, path: &Path, size: u64) -> Result<FileContents, FileError> {
    let look = |offset: u64, bytes: u64| {
        let mut found = vec![0; bytes.min(size.saturating_sub(offset)) as usize];
        let read = file.read_exact_at(&mut found, offset);
        read.map(|()| found).map_err(|error| FileError::io(path, "read it", error))
    };
    let start = look(0, PROBE_BYTES)?;
    let header = Headers::read(file, size);
    match header {
        Ok(Headers { layout, .. }) if layout.is_member => {
            return Ok(match member_label(file, size) {
                Some(label) => FileContents::Member(Box::new(label)),
                None => other(signature_without_header(file, size).unwrap_or(UNLABELLED)),
            });
        }
        Ok(Headers { fs_id, layout, .. }) => {
            return Ok(FileContents::Volume { fs_id, geometry: layout.geometry });
        }
        Err(NoHeader::Newer { .. }) => return Ok(other("a volume of a later release of Polder")),
        Err(NoHeader::Damaged | NoHeader::Foreign) => {}
    }
    let known = signature_without_header(file, size);
    if matches!(header, Err(NoHeader::Damaged)) || search::has_trace(file, size) {
        return Ok(FileContents::Damaged { what: known.map(str::to_owned) });
    }
    if let Some(name) = known {
        return Ok(other(name));
    }
    let end = look(size.saturating_sub(PROBE_BYTES), PROBE_BYTES)?;
    let blank = start.iter().chain(&end).all(|&byte| byte == 0);
    Ok(if blank { FileContents::Blank } else { other(UNKNOWN) })
}

/// The label of a member of a set in an open file of `size` bytes; `None` if it is something else.
pub(super) fn member_label(file: &File, size: u64) -> Option<MemberLabel> {
    let Headers { fs_id, layout, .. } = Headers::read(file, size).ok()?;
    let mut magic = [0; FILE_MAGIC.len()];
    let has_first_header = file.read_exact_at(&mut magic, 0).is_ok() && magic == FILE_MAGIC;
    if !has_first_header && signature_without_header(file, size).is_some() {
        // The disk was given to another program, which left the copy of the header near its end.
        return None;
    }
    if layout.is_member { label_of(file, fs_id, &layout) } else { None }
}

fn label_of(file: &File, fs_id: FsId, layout: &Layout) -> Option<MemberLabel> {
    MemberLabel::find(Some(fs_id), |zone, block| {
        let mut bytes = vec![0; layout.geometry.block_size as usize];
        let is_read = file.read_exact_at(&mut bytes, layout.offset(ZoneId(zone), block)).is_ok();
        is_read.then_some(bytes)
    })
}

/// The contents of the beginning of a device; `None` if they are zeros.
pub(crate) fn describe_start(start: &[u8]) -> Option<String> {
    if start.iter().all(|&byte| byte == 0) {
        return None;
    }
    Some(signature_in(start).unwrap_or(UNKNOWN).to_owned())
}

/// The known signature of another program, in a file that has no volume header at its start.
pub(super) fn signature_without_header(file: &File, size: u64) -> Option<&'static str> {
    signature_at_start(file).or_else(|| signature_at_end(file, size))
}

/// The other program whose signature is at the start of a file or device. A copy of a volume's header can be left near
/// the end of a device that another file system uses now.
pub fn other_signature(path: &Path) -> Option<&'static str> {
    signature_at_start(&File::open(path).ok()?)
}

fn signature_at_start(file: &File) -> Option<&'static str> {
    let is_btrfs = || {
        let mut found = [0; BTRFS.1.len()];
        file.read_exact_at(&mut found, BTRFS.0).is_ok() && found == *BTRFS.1
    };
    let behind = || match () {
        () if is_btrfs() => Some("a btrfs file system"),
        () if is_in_zfs_pool(file) => Some("a member of a ZFS pool"),
        () => None,
    };
    signature_in_file(file, PROBE_BYTES as usize).or_else(behind)
}

fn is_in_zfs_pool(file: &File) -> bool {
    let mut ring = vec![0; ZFS_RING.len()];
    let is_read = file.read_exact_at(&mut ring, ZFS_RING.start as u64).is_ok();
    is_read && ring.chunks(ZFS_UBERBLOCK_UNIT).any(|block| block.starts_with(ZFS_UBERBLOCK))
}

/// The signature of an MD RAID of version 1.0 or 0.90 near the end. These versions leave the start to the contents of
/// the array.
fn signature_at_end(file: &File, size: u64) -> Option<&'static str> {
    let places = [
        size.checked_sub(8 << 10).map(|place| place / 4096 * 4096),
        (size / (64 << 10)).checked_sub(1).map(|unit| unit * (64 << 10)),
    ];
    let is_there = |place: u64| {
        let mut found = [0; MD_RAID.len()];
        file.read_exact_at(&mut found, place).is_ok() && found == *MD_RAID
    };
    places.into_iter().flatten().any(is_there).then_some(MD_RAID_NAME)
}

/// The same for a file that still has a volume header at its start. A signature behind both headers is older than the
/// volume, because a volume does not write all of its first zone at once.
pub(super) fn signature_behind_headers(file: &File) -> Option<&'static str> {
    signature_in_file(file, 2 * HEADER_BYTES)
}

fn signature_in_file(file: &File, bytes: usize) -> Option<&'static str> {
    let mut start = vec![0; bytes];
    let read = file.read_at(&mut start, 0).ok()?;
    signature_in(&start[..read])
}

fn signature_in(start: &[u8]) -> Option<&'static str> {
    let is_there =
        |signature: &&Signature| start[signature.offset.min(start.len())..].starts_with(signature.bytes);
    SIGNATURES.iter().find(is_there).map(|known| known.name)
}

fn other(what: &str) -> FileContents {
    FileContents::Other(what.to_owned())
}

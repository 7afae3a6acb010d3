//! Files that are not created or not opened, and the messages for the user.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::zone::file::format::HEADER_BYTES;
use crate::zone::file::{FileContents, FileDevice, FileError, FileOptions, OpenMode};
use crate::zone::format::checksum;
use crate::zone::{Device, FsId, ZoneId};

fn options(size: u64) -> FileOptions {
    FileOptions { size: Some(size), fs_id: FsId([9; 16]), ..FileOptions::default() }
}

fn with_volume(story: impl FnOnce(&Path)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    FileDevice::create(&path, &options(24 << 20)).unwrap();
    story(&path);
}

/// The places of the copies of the header.
fn copies(path: &Path) -> [u64; 3] {
    let bytes = std::fs::metadata(path).unwrap().len();
    [0, HEADER_BYTES as u64, (bytes / 65536 - 2) * 65536]
}

/// Applies `change` to the header's copies and corrects their checksums.
fn rewrite_header(path: &Path, change: impl Fn(&mut [u8])) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    for offset in copies(path) {
        let mut copy = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut copy, offset).unwrap();
        change(&mut copy);
        copy[8..12].fill(0);
        let sum = checksum(&[&copy]);
        copy[8..12].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&copy, offset).unwrap();
    }
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// The error of opening the volume, in one line.
fn refusal(path: &Path) -> String {
    let error = FileDevice::open(path, OpenMode::ReadWrite).err().expect("it cannot be opened").to_string();
    assert!(!error.contains('\n') && error.contains(path.to_str().unwrap()), "{error}");
    error
}

/// A file of 1 MiB with these bytes at this offset.
fn file_with(directory: &Path, offset: u64, bytes: &[u8]) -> PathBuf {
    let path = directory.join("file");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    put(&path, offset, bytes);
    path
}

#[test]
fn the_default_shape_follows_from_the_size() {
    let shape = |size: u64| {
        let directory = tempfile::tempdir().unwrap();
        let device = FileDevice::create(&directory.path().join("volume"), &options(size)).unwrap();
        let geometry = device.geometry().clone();
        let bytes: u64 = device.report().unwrap().iter().map(|zone| u64::from(zone.capacity) * 4096).sum();
        // Less than half a zone, and the end copy of the header.
        let unused_most = (u64::from(geometry.zone_blocks) * 2048).max(256 << 10) + (192 << 10);
        assert!(bytes <= size && size - bytes <= unused_most + 65536, "{size}: {bytes}");
        assert_eq!((geometry.block_size, geometry.max_open, geometry.max_active), (4096, 14, 14));
        (geometry.zone_blocks / 256, geometry.zones)
    };
    assert_eq!(shape(1 << 40), (256, 4096));
    assert_eq!(shape(10 << 30), (64, 160));
    assert_eq!(shape(1 << 30), (8, 128));
    assert_eq!(shape(100 << 20), (4, 25));
    assert_eq!(shape(64 << 20), (2, 32));
    assert_eq!(shape(8 << 20).0, 0, "256 KiB");
}

#[test]
fn too_small_a_volume_is_refused_with_the_smallest_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    for (block_size, zone_bytes) in [(512, None), (4096, None), (65536, None), (4096, Some(5 << 20))] {
        let options = |size| FileOptions { block_size, zone_bytes, force: true, ..options(size) };
        let Err(FileError::TooSmall { smallest, zones: 16, .. }) =
            FileDevice::create(&path, &options(1 << 20))
        else {
            panic!("a mebibyte is too small")
        };
        assert!(!path.exists(), "a failed creation leaves no file");
        assert!(matches!(
            FileDevice::create(&path, &options(smallest - 1)),
            Err(FileError::TooSmall { smallest: again, .. }) if again == smallest
        ));
        let device = FileDevice::create(&path, &options(smallest)).unwrap();
        assert_eq!(device.geometry().zones, 16);
        drop(device);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn impossible_values_are_refused() {
    let base = || options(64 << 20);
    let wrong = [
        FileOptions { block_size: 256, ..base() },
        FileOptions { block_size: 5000, ..base() },
        FileOptions { block_size: 131072, ..base() },
        FileOptions { max_open: 5, ..base() },
        FileOptions { max_open: 14, max_active: 13, ..base() },
        FileOptions { zone_bytes: Some((1 << 20) + 1), ..base() },
        FileOptions { zone_bytes: Some(128 << 10), ..base() },
        FileOptions { zone_bytes: Some(1 << 41), ..base() },
        FileOptions { zone_capacity: Some((1 << 20) + 1), ..base() },
        FileOptions { zone_capacity: Some(128 << 10), ..base() },
        FileOptions { zone_bytes: Some(2 << 20), zone_capacity: Some(3 << 20), ..base() },
        FileOptions { size: None, ..base() },
        FileOptions { size: Some(u64::MAX), ..base() },
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    for options in wrong {
        let error = FileDevice::create(&path, &options).err().unwrap();
        assert!(matches!(error, FileError::Option { .. } | FileError::NoSize { .. }), "{error}");
        assert!(!path.exists());
    }
}

#[test]
fn open_errors_state_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let nothing = directory.path().join("nothing");
    assert!(refusal(&nothing).contains("no such file"));
    assert_eq!(FileDevice::probe(&nothing).unwrap(), FileContents::Nothing);
    let foreign = file_with(directory.path(), 0, b"XFSB");
    assert!(refusal(&foreign).contains("not a Polder volume: it contains an XFS file system"));
    std::fs::write(&foreign, b"short").unwrap();
    assert!(refusal(&foreign).contains("not a Polder volume: it contains data of an unknown kind"));
    std::fs::write(&foreign, b"").unwrap();
    assert!(refusal(&foreign).contains("not a Polder volume: it contains nothing"));
}

#[test]
fn a_volume_cut_short_is_refused() {
    with_volume(|path| {
        OpenOptions::new().write(true).open(path).unwrap().set_len(20 << 20).unwrap();
        assert!(refusal(path).contains("cut short: it has 20971520 of its"), "{}", refusal(path));
    });
}

#[test]
fn a_later_format_is_refused() {
    with_volume(|path| {
        rewrite_header(path, |copy| {
            copy[12] = 2;
            copy[84..90].copy_from_slice(b"0.10.2");
        });
        let wanted = "format version 2, features 0x0: needs Polder 0.10.2 or later; this is Polder";
        assert!(refusal(path).contains(wanted), "{}", refusal(path));
    });
    with_volume(|path| {
        // The bytes there may be arbitrary.
        for release in [b"\0\0", b"\n0", b"\xff\xff"] {
            rewrite_header(path, |copy| {
                copy[48] = 0x10;
                copy[84..100].fill(0);
                copy[84..86].copy_from_slice(release);
            });
            let wanted = "format version 1, features 0x10: needs a later release of Polder; this is Polder";
            assert!(refusal(path).contains(wanted), "{}", refusal(path));
        }
        assert!(matches!(FileDevice::probe(path).unwrap(), FileContents::Other(_)));
    });
    with_volume(|path| {
        rewrite_header(path, |copy| copy[40] = 1);
        assert!(refusal(path).contains("can only read"));
        FileDevice::open(path, OpenMode::ReadOnly).unwrap();
    });
    with_volume(|path| {
        rewrite_header(path, |copy| copy[32] |= 2);
        FileDevice::open(path, OpenMode::ReadWrite).expect("a compatible feature does not prevent an open");
    });
}

#[test]
fn one_copy_of_the_header_is_enough_and_none_is_an_error() {
    with_volume(|path| {
        let offsets = copies(path);
        for kept in offsets {
            for offset in offsets.into_iter().filter(|&offset| offset != kept) {
                put(path, offset + 100, &[0xff; 50]);
            }
            crate::reopen(|| FileDevice::open(path, OpenMode::ReadWrite));
        }
        offsets.into_iter().for_each(|offset| put(path, offset + 100, &[0xff; 50]));
        let said = refusal(path);
        assert!(said.contains("a damaged Polder volume: no copy of its header can be read"), "{said}");
    });
}

/// Zones of a few blocks cannot contain a log: an ordinary transaction is longer than its longest record.
#[test]
fn a_header_with_zones_below_the_minimum_size_is_refused() {
    for (zone_blocks, is_refused) in [(63_u32, true), (64, false)] {
        with_volume(|path| {
            rewrite_header(path, |copy| {
                copy[64..68].copy_from_slice(&zone_blocks.to_le_bytes());
                copy[68..72].copy_from_slice(&zone_blocks.to_le_bytes());
            });
            match is_refused {
                true => assert!(refusal(path).contains("no copy of its header can be read")),
                false => assert!(FileDevice::open(path, OpenMode::ReadOnly).is_ok()),
            }
        });
    }
}

#[test]
fn no_bytes_in_the_header_make_it_panic() {
    let mut rng = fastrand::Rng::with_seed(1);
    with_volume(|path| {
        let whole = std::fs::read(path).unwrap()[..2 * HEADER_BYTES].to_vec();
        for round in 0..2000 {
            let changes: Vec<(usize, u8)> = (0..round % 9)
                .map(|_| (rng.usize(56..88), *rng.choice([0, 1, 0x10, 0x80, 0xff].iter()).unwrap()))
                .collect();
            rewrite_header(path, |copy| changes.iter().for_each(|&(at, byte)| copy[at] = byte));
            // Any result except a panic: some of these numbers are a possible shape.
            let _ = FileDevice::open(path, OpenMode::ReadOnly);
            let _ = FileDevice::probe(path);
            put(path, 0, &whole);
        }
    });
}

#[test]
fn contents_of_a_file_are_not_overwritten_without_force() {
    let directory = tempfile::tempdir().unwrap();
    let raid: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
    let known: [(u64, &[u8], &str); 20] = [
        (1024, &[2, 0, 0, 0, 0, 0, 0x34, 0x34], "a NILFS2 file system"),
        (1024, b"H+\0\x04", "an HFS+ file system"),
        (32, b"NXSB", "an APFS file system"),
        (32768, b"JFS1", "a JFS file system"),
        (0, b"SFOZ", "a zonefs file system"),
        (0, b"bluestore block device", "a BlueStore device of Ceph"),
        (0, raid, "a member of an MD RAID"),
        (4096, raid, "a member of an MD RAID"),
        ((1 << 20) - 8192, raid, "a member of an MD RAID"),
        ((1 << 20) - 65536, raid, "a member of an MD RAID"),
        ((128 + 7) << 10, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], "a member of a ZFS pool"),
        (0, b"XFSB", "an XFS file system"),
        (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
        (0x10040, b"_BHRfS_M", "a btrfs file system"),
        (4086, b"SWAPSPACE2", "a swap area"),
        (510, &[0x55, 0xaa], "a partition table or boot sector"),
        (512, b"EFI PART", "a GPT partition table"),
        (0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
        (65535, &[1], "data of an unknown kind"),
        ((1 << 20) - 65536, &[1], "data of an unknown kind"),
    ];
    for (offset, bytes, name) in known {
        let path = file_with(directory.path(), offset, bytes);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(FileDevice::probe(&path).unwrap(), FileContents::Other(name.to_owned()));
        let error = FileDevice::create(&path, &options(24 << 20)).err().unwrap().to_string();
        assert!(error.contains(&format!("already contains {name}; use --force")), "{error}");
        assert!(std::fs::read(&path).unwrap() == before, "a refusal changes nothing");
    }
}

/// Its superblock is up to 128 KiB before the end, and everything else may be zeros: the device was taken for blank.
#[test]
fn a_member_of_a_raid_of_version_0_90_is_not_blank() {
    let directory = tempfile::tempdir().unwrap();
    let path = file_with(directory.path(), (1 << 20) - 65536, &[0xfc, 0x4e, 0x2b, 0xa9]);
    OpenOptions::new().write(true).open(&path).unwrap().set_len((1 << 20) + 60_000).unwrap();
    assert_eq!(FileDevice::probe(&path).unwrap(), FileContents::Other("a member of an MD RAID".to_owned()));
}

#[test]
fn a_blank_file_is_accepted_and_a_volume_only_with_force() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    std::fs::File::create(&path).unwrap().set_len(30 << 20).unwrap();
    assert_eq!(FileDevice::probe(&path).unwrap(), FileContents::Blank);
    let device = FileDevice::create(&path, &FileOptions { size: None, ..options(0) }).unwrap();
    let block = vec![1; 4096];
    device.append(ZoneId(0), &block).unwrap();
    device.flush().unwrap();
    drop(device);
    let again = FileOptions { size: None, fs_id: FsId([3; 16]), ..options(0) };
    let error = FileDevice::create(&path, &again).err().unwrap().to_string();
    assert!(error.contains("already contains the Polder volume 09090909-0909-"), "{error}");
    let device = FileDevice::create(&path, &FileOptions { force: true, ..again }).unwrap();
    assert_eq!(device.report_zone(ZoneId(0)).unwrap().pointer, 0);
    let geometry = device.geometry().clone();
    assert_eq!(FileDevice::probe(&path).unwrap(), FileContents::Volume { fs_id: FsId([3; 16]), geometry });
    drop(device);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 30 << 20, "the file keeps its size");
}

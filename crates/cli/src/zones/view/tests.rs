use emulated::{Emulated, Spec};

use super::*;

const BLOCK: usize = 4096;

/// A device with an empty, a partly written, a full and an offline zone, and the written bytes.
fn view() -> (ZoneView, Vec<u8>) {
    let device = Arc::new(Emulated::new(Spec::new(BLOCK as u32, 16, 64)));
    let bytes: Vec<u8> = (0..8 * BLOCK).map(|at| (at / 7) as u8).collect();
    device.append(ZoneId(1), &bytes).unwrap();
    for _ in 0..8 {
        device.append(ZoneId(2), &bytes).unwrap();
    }
    device.set_zone_state(ZoneId(3), ZoneState::Offline);
    let view = ZoneView::new(device, (11, 12), Timestamp(5)).unwrap();
    (view, bytes)
}

fn file(zone: u64) -> InodeNo {
    InodeNo(FIRST_FILE + zone)
}

#[test]
fn a_file_is_as_long_as_the_written_part_of_its_zone() {
    let (view, _) = view();
    let sizes = [0, 1, 2, 3].map(|zone| view.attributes(file(zone)).unwrap().size);
    assert_eq!(sizes, [0, 8 * BLOCK as u64, 64 * BLOCK as u64, 0]);
    let one = view.attributes(file(1)).unwrap();
    assert_eq!((one.permissions, one.uid, one.gid, one.blocks), (0o400, 11, 12, 64));
    assert!(matches!(view.open(file(3)), Err(FsError::Io(_))), "an offline zone");
    assert_eq!(view.open(file(0)), Ok(()));
    assert_eq!(view.attributes(file(16)).map(|_| ()), Err(FsError::Stale));
}

/// Reads with every offset and length in two blocks and around the end.
#[test]
fn reads_return_the_bytes_of_the_device() {
    let (view, bytes) = view();
    let edges = [0, 1, 511, 4095, 4096, 4097, 8192, 7 * BLOCK, 8 * BLOCK - 1, 8 * BLOCK, 9 * BLOCK];
    for from in edges {
        for length in [0, 1, 512, 4096, 4097, 8192, 9 * BLOCK] {
            let mut into = vec![0xee; length];
            let count = view.read(file(1), from as u64, &mut into).unwrap();
            let expected =
                &bytes[from.min(bytes.len())..(from + length).min(bytes.len()).max(from.min(bytes.len()))];
            assert_eq!(count, expected.len(), "{length} bytes from {from}");
            assert!(&into[..count] == expected, "{length} bytes from {from}");
        }
    }
}

#[test]
fn a_number_has_one_name() {
    let (view, _) = view();
    assert_eq!(view.lookup(InodeNo::ROOT, b"seq"), Ok(DIRECTORY_INODE));
    assert_eq!(view.lookup(InodeNo::ROOT, b"cnv"), Err(FsError::NotFound));
    assert_eq!(view.lookup(DIRECTORY_INODE, b"15"), Ok(file(15)));
    for name in ["16", "015", "+1", "-1", "", "1 ", "99999999999999999999"] {
        assert_eq!(view.lookup(DIRECTORY_INODE, name.as_bytes()), Err(FsError::NotFound), "{name:?}");
    }
    assert_eq!(view.lookup(file(1), b"seq"), Err(FsError::NotDirectory));
}

/// The kernel may continue a listing at any cookie, with a buffer for any number of entries.
#[test]
fn a_listing_continues_at_its_cookie() {
    let (view, _) = view();
    let list = |cookie: u64, room: usize| {
        let mut entries = Vec::new();
        let each = &mut |entry: DirEntry| {
            entries.push(entry);
            entries.len() < room
        };
        view.entries(DIRECTORY_INODE, cookie, each).unwrap();
        entries
    };
    let all = list(0, usize::MAX);
    assert_eq!(all.len(), 18);
    assert_eq!((all[2].name.as_slice(), all[2].inode), (&b"0"[..], file(0)));
    for room in 1..20 {
        let mut pieces = Vec::new();
        loop {
            let piece = list(pieces.last().map_or(0, |last: &DirEntry| last.cookie), room);
            if piece.is_empty() {
                break;
            }
            pieces.extend(piece);
        }
        assert_eq!(pieces, all, "{room} at a time");
    }
}

#[test]
fn attributes_come_from_the_header_if_it_is_valid() {
    let (view, _) = view();
    assert_eq!(view.xattr(file(2), STATE), Ok(b"full".to_vec()));
    assert_eq!(view.xattr(file(3), STATE), Ok(b"offline".to_vec()));
    assert_eq!(view.xattr_names(file(1)), Ok(vec![STATE]), "the first block is not a header");
    assert_eq!(view.xattr(file(1), ROLE), Err(FsError::NoAttribute));
    assert_eq!(view.xattr(DIRECTORY_INODE, STATE), Err(FsError::NoAttribute));
}

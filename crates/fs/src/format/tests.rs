use rt::random::Rng;

use super::*;

fn record() -> Record {
    Record {
        kind: Kind::File,
        permissions: 0o6751,
        flags: FLAG_INLINE,
        links: 3,
        uid: 4,
        gid: 5,
        device: 6,
        generation: 7,
        xattrs: 8,
        size: 5,
        blocks: 10,
        parent: InodeNo(11),
        accessed: Timestamp(-12),
        modified: Timestamp(13),
        changed: Timestamp(14),
        born: Timestamp(15),
        lifetime: 4,
        file_class: extent::FileClass { particular: 16, general: 17 },
        object: Some(Object(77)),
        content: b"bytes".to_vec(),
    }
}

fn shift() -> Shift {
    Shift { direction: Direction::Down, at: 4096, length: 8192, moved: 12288 }
}

#[test]
fn records_decode_to_what_was_encoded() {
    assert_eq!(Record::decode(&record().encode()), Ok(record()));
    let dirent = Dirent { inode: InodeNo(9), kind: Kind::Fifo, name: &[0xff; 255] };
    assert_eq!(Dirent::decode(&dirent.encode()), Ok(dirent));
    let head = XattrHead { parts: 3, value_length: 70_000, name: b"user.a".to_vec(), bytes: vec![1, 2] };
    assert_eq!(XattrHead::decode(&head.encode()), Ok(head));
    assert_eq!(decode_counter(&encode_counter(77)), Ok(77));
    assert_eq!(Shift::decode(&shift().encode()), Ok(shift()));
    assert_eq!(decode_dirent_key(&dirent_key(InodeNo(3), 1 << 62)), Ok((InodeNo(3), 1 << 62)));
    assert_eq!(decode_xattr_key(&xattr_key(InodeNo(3), u64::MAX, 4, 5)), Ok((InodeNo(3), u64::MAX, 4, 5)));
    assert_eq!(decode_inode_key(&inode_key(InodeNo(u64::MAX))), Ok(InodeNo(u64::MAX)));
}

/// Passes arbitrary bytes to every decoder: noise, truncations and single flipped bits.
#[test]
fn any_bytes_can_be_decoded_without_a_panic() {
    let offer = |bytes: &[u8]| {
        let _ = (Record::decode(bytes), Dirent::decode(bytes), XattrHead::decode(bytes));
        let _ = (decode_counter(bytes), decode_inode_key(bytes), decode_dirent_key(bytes));
        let _ = (decode_xattr_key(bytes), Shift::decode(bytes));
    };
    let mut rng = Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
        if let Some(first) = bytes.first_mut() {
            *first = VERSION;
        }
        offer(&bytes);
    }
    let dirent = Dirent { inode: InodeNo(9), kind: Kind::Fifo, name: b"name" }.encode();
    for good in
        [record().encode(), dirent, encode_counter(3), dirent_key(InodeNo(3), 4).to_vec(), shift().encode()]
    {
        (0..good.len()).for_each(|length| offer(&good[..length]));
        for bit in 0..good.len() * 8 {
            let mut changed = good.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            offer(&changed);
        }
    }
}

#[test]
fn impossible_values_are_refused() {
    let refused = |change: &dyn Fn(&mut Record)| {
        let mut record = record();
        change(&mut record);
        assert!(Record::decode(&record.encode()).is_err());
    };
    refused(&|record| record.size = 6);
    refused(&|record| record.flags = 0);
    refused(&|record| record.flags |= 1 << 20);
    refused(&|record| record.permissions = 0o10000);
    refused(&|record| record.lifetime = 5);
    refused(&|record| (record.size, record.flags, record.content) = (u64::MAX, 0, Vec::new()));
    let mut longer = record().encode();
    longer.push(0);
    assert!(Record::decode(&longer).is_err());
    let up = Shift { direction: Direction::Up, ..shift() };
    for none in [
        Shift { length: 0, ..shift() },
        Shift { moved: 8192, ..shift() },
        Shift { moved: 0, ..up },
        Shift { at: u64::MAX, ..shift() },
        Shift { moved: i64::MAX as u64, ..up },
        Shift { moved: u64::MAX, ..shift() },
    ] {
        assert!(Shift::decode(&none.encode()).is_err(), "{none:?}");
    }
}

#[test]
fn keys_sort_like_their_values() {
    let numbers = [0, 1, 255, 256, u64::from(u32::MAX), u64::MAX];
    for pair in numbers.windows(2) {
        assert!(inode_key(InodeNo(pair[0])) < inode_key(InodeNo(pair[1])));
        assert!(dirent_key(InodeNo(pair[0]), u64::MAX) < dirent_key(InodeNo(pair[1]), 0));
        assert!(dirent_key(InodeNo(1), pair[0]) < dirent_key(InodeNo(1), pair[1]));
    }
    let all = xattr_key(InodeNo(7), u64::MAX, 255, 255);
    assert!(xattr_key(InodeNo(7), 0, 0, 0) < all && all[..] < inode_key(InodeNo(8))[..]);
}

/// The tables in `docs/format.md` and the structs say the same twice.
#[test]
fn the_manual_says_the_same() {
    let manual = include_str!("../../../../docs/format.md");
    let section = manual.split("## Files (fs)").nth(1).expect("there is a section on files");
    let section = section.split("\n## ").next().expect("a section ends somewhere");
    let mut fields = Vec::new();
    macro_rules! table {
        ($name:ident: $($field:ident),*) => {
            $(fields.push((
                format!("`{}`, {} bytes", stringify!($name), size_of::<$name>()),
                std::mem::offset_of!($name, $field),
                stringify!($field).replace('_', " "),
            ));)*
        };
    }
    table!(InodeHeader: version, kind, permissions, flags, links, uid, gid, device, generation, xattrs,
        size, blocks, parent, accessed, modified, changed, born, content_length, lifetime, reserved);
    table!(DirentHeader: version, kind, name_length, reserved, inode);
    table!(XattrHeader: version, parts, name_length, value_length);
    table!(Counter: version, reserved, end);
    table!(Marker: version, reserved);
    table!(ShiftIntent: version, direction, reserved, at, length, moved);
    for (name, offset, field) in fields {
        let table = section.split(&name).nth(1).expect("the table is there");
        let row = table.lines().find(|line| line.starts_with(&format!("| {offset} |")));
        assert!(row.is_some_and(|row| row.contains(&field)), "{name}: {field} at {offset}");
    }
}

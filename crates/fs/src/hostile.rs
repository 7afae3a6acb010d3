//! Passes arbitrary bytes to the decoders of this crate, like a hostile device or the value of an attribute. Every
//! function returns whatever the bytes are. For fuzzing.

use zone::hostile::Decoder;

use crate::InodeNo;
use crate::acl;
use crate::format::{
    Direction, Dirent, Record, Shift, XattrHead, decode_counter, decode_dirent_key, decode_inode_key,
    decode_shadow, decode_xattr_key, dirent_key, encode_shadow, inode_key, xattr_key,
};

/// Bytes at the end of a key that contain a snapshot id.
const SNAPSHOT: usize = 4;

/// Every decoder with the name of its fuzz target.
pub const DECODERS: [Decoder; 7] = [
    ("inodes", inodes),
    ("entries", entries),
    ("intents", intents),
    ("shadows", shadows),
    ("attributes", attributes),
    ("access-lists", access_lists),
    ("keys", keys),
];

/// An inode's record. Accepted bytes are encoded to the same bytes.
fn inodes(bytes: &[u8]) {
    let Ok(record) = Record::decode(bytes) else { return };
    let again = Record::decode(&record.encode());
    assert_eq!(
        again.as_ref().map(Record::encode),
        Ok(record.encode()),
        "decoded bytes are encoded to the same bytes"
    );
}

/// A directory entry.
fn entries(bytes: &[u8]) {
    let Ok(entry) = Dirent::decode(bytes) else { return };
    let encoded = entry.encode();
    assert_eq!(
        Dirent::decode(&encoded).map(|entry| entry.encode()),
        Ok(encoded.clone()),
        "it can be written"
    );
}

/// A range move. The places of the file's bytes can be computed.
fn intents(bytes: &[u8]) {
    let Ok(shift) = Shift::decode(bytes) else { return };
    assert_eq!(Shift::decode(&shift.encode()), Ok(shift), "decoded bytes are encoded to the same bytes");
}

/// An uncounted object. Accepted bytes are encoded to the same bytes.
fn shadows(bytes: &[u8]) {
    let Ok(owner) = decode_shadow(bytes) else { return };
    assert_eq!(
        decode_shadow(&encode_shadow(owner)),
        Ok(owner),
        "decoded bytes are encoded to the same bytes"
    );
}

/// The first row of an extended attribute.
fn attributes(bytes: &[u8]) {
    let Ok(head) = XattrHead::decode(bytes) else { return };
    assert!(head.name.len() + head.bytes.len() <= bytes.len(), "no more than there is");
}

/// An access list, which every user can set.
fn access_lists(bytes: &[u8]) {
    let Some(mut list) = acl::AccessList::decode(bytes) else { return };
    assert!(bytes.len() >= 4 + 3 * 8, "a list names the owner, the group and others");
    assert_eq!(list.encode(), bytes, "decoded bytes are encoded to the same bytes");
    let bits = list.bits();
    assert!(bits <= 0o777, "permission bits and no others");
    list.set_bits(bits);
    assert_eq!(list.encode(), bytes, "the bits are unchanged");
}

/// Keys of all tables, and a counter.
fn keys(bytes: &[u8]) {
    let _ = decode_counter(bytes);
    let is_its = |key: &[u8]| key[..key.len() - SNAPSHOT] == bytes[..key.len() - SNAPSHOT];
    if let Ok(inode) = decode_inode_key(bytes) {
        assert!(is_its(&inode_key(inode)), "a key has one form");
    }
    if let Ok((inode, cookie)) = decode_dirent_key(bytes) {
        assert!(is_its(&dirent_key(inode, cookie)), "a key has one form");
    }
    if let Ok((inode, hash, collision, part)) = decode_xattr_key(bytes) {
        assert!(is_its(&xattr_key(inode, hash, collision, part)), "a key has one form");
    }
}

/// Valid inputs to begin with, each with the name of its fuzz target.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let shift = Shift { direction: Direction::Down, at: 4096, length: 8192, moved: 20480 };
    let entry =
        |tag: u16, id: u32| [&tag.to_le_bytes()[..], &6_u16.to_le_bytes(), &id.to_le_bytes()].concat();
    let named = [(1, u32::MAX), (2, 1000), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)];
    let list = named.map(|(tag, id)| entry(tag, id)).concat();
    vec![
        ("intents", shift.encode()),
        ("shadows", encode_shadow(None)),
        ("shadows", encode_shadow(Some(InodeNo(9)))),
        ("access-lists", [&2_u32.to_le_bytes()[..], &list].concat()),
    ]
}
